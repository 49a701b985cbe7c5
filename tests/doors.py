"""Doors (ways to name a warehouse), sizes of tables, and ways to read: what ``tests/spark/test_doors.py`` combines.

A door opens a copy of a folder of tables.  The tables that are generated here are judged by plain Spark over the same
rows as one Parquet file; Paimon's by the answers that Paimon gave.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fixtures
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import rest_server
import s3_server
import webhdfs_server

import bitlake
from bitlake.io import open_store

DOORS = ("path", "file:/", "file://", "relative", "special", "symlink", "s3", "hdfs", "jdbc", "rest")
WAYS = ("process", "source", "driver", "spark", "workers", "merge", "merge in process")
SIZES = ("fixtures", "mb", "large", "partitions", "files")
SPECIAL = "a b%41+#?é [1]{x,y}*\\z"
Case = tuple[str, str, str]

# --- which combinations -----------------------------------------------------------------------------------------------


def pairwise(seed: int) -> list[Case]:
    """Combinations in which every door meets every way, every door every size, and every way every size.

    Each new combination covers the most pairs that are still missing; of those that cover the same number, the
    smaller size wins, and chance decides the rest.
    """
    chance = random.Random(seed)
    missing = {
        *(("door, way", d, w) for d in DOORS for w in WAYS),
        *(("door, size", d, s) for d in DOORS for s in SIZES),
        *(("way, size", w, s) for w in WAYS for s in SIZES),
    }
    out = []
    while missing:
        every = list(itertools.product(DOORS, WAYS, SIZES))
        chance.shuffle(every)
        best = max(every, key=lambda c: (len(_pairs(c) & missing), -_COST[c[2]]))
        missing -= _pairs(best)
        out.append(best)
    return sorted(out, key=lambda c: (DOORS.index(c[0]), SIZES.index(c[2])))  # a door's copy is made once


def _pairs(case: Case) -> set[tuple[str, str, str]]:
    door, way, size = case
    return {("door, way", door, way), ("door, size", door, size), ("way, size", way, size)}


_COST = {"mb": 0, "fixtures": 1, "partitions": 2, "files": 3, "large": 4}

# --- tables -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Size:
    """A table's rows, partitions and buckets (each a file)."""

    rows: int
    partitions: int = 1
    buckets: int = 1


GENERATED = {
    "mb": Size(150_000),
    "large": Size(3_000_000, buckets=4),
    "partitions": Size(200_000, partitions=2000),
    "files": Size(100_000, buckets=5000),
}
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("k", pa.int64()),
        pa.field("v", pa.int64()),
        pa.field("s", pa.string()),
        pa.field("d", pa.date32()),
        pa.field("p", pa.int32(), nullable=False),
    ]
)
TABLE, MERGED = "t", "merged"
TABLES = dict.fromkeys(GENERATED, (TABLE, MERGED))


def rows_of(size: Size) -> pa.Table:
    """The rows: ``id`` and ``d`` ascend, ``v`` is NULL now and then, the others are scattered."""
    chance = np.random.default_rng(size.rows)
    ids = np.arange(size.rows)
    k = chance.integers(0, 1000, size.rows)
    values = pa.array(chance.integers(0, 1 << 40, size.rows), mask=chance.random(size.rows) < 0.05)
    names = pa.array([f"s{i}" for i in range(50)]).take(pa.array(k % 50))
    days = pa.array((ids * 1000 // size.rows).astype(np.int32), pa.int32()).cast(pa.date32())
    parts = (ids % size.partitions).astype(np.int32)
    return pa.Table.from_arrays([pa.array(ids), pa.array(k), values, names, days, pa.array(parts)], schema=SCHEMA)


def generate(root: Path, name: str) -> None:
    """Write both tables of a size, ``t`` and ``merged`` (whose rows are merged by key), and the rows as they are."""
    size = GENERATED[name]
    rows = rows_of(size)
    lake = bitlake.connect(str(root), progress=False)
    by = ["p"] if size.partitions > 1 else []
    indexes = {"file-index.bitmap.columns": "s", "file-index.range-bitmap.columns": "k"} if name != "files" else {}
    buckets = {"bucket": str(size.buckets), "bucket-key": "id"} if size.buckets > 1 else {}
    lake.create_table(TABLE, SCHEMA, partition_by=by, options={**buckets, **indexes}).append(rows)
    merged = lake.create_table(
        MERGED,
        SCHEMA,
        partition_by=by,
        primary_key=[*by, "id"],
        options={"bucket": str(max(1, size.buckets // 2)), "write-only": "true"},
    )
    odd = np.arange(size.rows) % 2 == 1
    wrong = pa.array(np.where(odd, -1, 0))
    old = pa.compute.if_else(pa.array(odd), wrong, rows["v"].combine_chunks())
    merged.upsert(rows.set_column(2, SCHEMA.field("v"), old))
    merged.upsert(rows.filter(pa.array(odd)))
    pq.write_table(rows, root / "plain.parquet")


_generated: dict[str, Path] = {}


def source(size: str) -> Path:
    """A local folder of a size's tables, made once in a process."""
    if size == "fixtures":
        return fixtures.warehouse()
    if size not in _generated:
        _generated[size] = Path(tempfile.mkdtemp(prefix=f"bitlake-doors-{size}-"))
        generate(_generated[size], size)
    return _generated[size]


def clean() -> None:
    """Remove what :func:`source` made."""
    while _generated:
        shutil.rmtree(_generated.popitem()[1], ignore_errors=True)


# --- doors ------------------------------------------------------------------------------------------------------------


@dataclass
class Opened:
    """A warehouse behind a door: a lake, and the options by which the data source opens a table of it."""

    lake: bitlake.Lake
    warehouse: str
    options: dict[str, str] = field(default_factory=dict)

    def source_options(self, table: str) -> dict[str, str]:
        """Options of ``spark.read.format("bitlake")``."""
        if "catalog" in self.options:
            return {**self.options, "warehouse": self.warehouse, "table": table}
        return {**self.options, "path": f"{self.warehouse}/default.db/{table}"}


@contextmanager
def opened(door: str, size: str, spark: Any, folder: Path, s3_endpoint: str | None) -> Iterator[Opened]:
    """A copy of a size's tables, opened through a door; ``folder`` is an empty one."""
    with ExitStack() as stack:
        yield _OPEN[door](stack, source(size), spark, folder, s3_endpoint)


def _copied(root: Path, to: Path) -> Path:
    """A copy of links: data files never change."""
    shutil.copytree(root / "default.db", to / "default.db", copy_function=_linked)
    return to


def _linked(old: str, new: str) -> None:
    try:
        os.link(old, new)
    except OSError:
        shutil.copyfile(old, new)


def _uploaded(root: Path, uri: str, options: Mapping[str, str]) -> None:
    store = open_store(uri, options)
    files = [p for p in (root / "default.db").rglob("*") if p.is_file()]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda p: store.write(f"{uri}/{p.relative_to(root).as_posix()}", p.read_bytes()), files))


def _local(form: str, name: str = "lake") -> Callable[..., Opened]:
    def made(stack: ExitStack, root: Path, spark: Any, folder: Path, _: str | None) -> Opened:
        warehouse = form.format(_copied(root, folder / name))
        return Opened(bitlake.connect(warehouse, spark=spark), warehouse)

    return made


def _relative(stack: ExitStack, root: Path, spark: Any, folder: Path, _: str | None) -> Opened:
    _copied(root, folder / "lake")
    before = os.getcwd()
    stack.callback(os.chdir, before)
    os.chdir(folder)
    lake = bitlake.connect("lake", spark=spark)
    return Opened(lake, str(folder / "lake"))  # the data source's process has another working folder


def _symlink(stack: ExitStack, root: Path, spark: Any, folder: Path, _: str | None) -> Opened:
    _copied(root, folder / "real")
    (folder / "link").symlink_to(folder / "real")
    return Opened(bitlake.connect(str(folder / "link"), spark=spark), str(folder / "link"))


def _s3(stack: ExitStack, root: Path, spark: Any, folder: Path, endpoint: str | None) -> Opened:
    assert endpoint is not None
    uri, options = f"s3://{s3_server.BUCKET}/{folder.name}", s3_server.options(endpoint)
    _uploaded(root, uri, options)
    given = {k if k.startswith("s3.") else f"s3.{k}": v for k, v in options.items()}
    return Opened(bitlake.connect(uri, spark=spark, storage_options=options), uri, given)


def _hdfs(stack: ExitStack, root: Path, spark: Any, folder: Path, _: str | None) -> Opened:
    cluster = stack.enter_context(webhdfs_server.running())
    uri, options = f"webhdfs://{cluster.namenode}/{folder.name}", {"user": "me"}
    _uploaded(root, uri, options)
    lake = bitlake.connect(uri, spark=spark, storage_options=options)
    return Opened(lake, uri, {"hdfs.user": "me"})


def _jdbc(stack: ExitStack, root: Path, spark: Any, folder: Path, _: str | None) -> Opened:
    warehouse, uri = str(_copied(root, folder / "lake")), f"sqlite:///{folder}/catalog.db"
    lake = bitlake.connect(warehouse, spark=spark, catalog="jdbc", uri=uri)
    lake.create_database("default", if_not_exists=True)
    with sqlite3.connect(folder / "catalog.db") as db:
        names = [("jdbc", "default", p.name) for p in (root / "default.db").iterdir() if p.is_dir()]
        db.executemany("INSERT INTO paimon_tables (catalog_key, database_name, table_name) VALUES (?, ?, ?)", names)
    db.close()
    return Opened(lake, warehouse, {"catalog": "jdbc", "uri": uri})


def _rest(stack: ExitStack, root: Path, spark: Any, folder: Path, _: str | None) -> Opened:
    copied = _copied(root, folder / "lake")
    server = stack.enter_context(rest_server.running(copied))
    server.databases["default"] = {}
    for table in (copied / "default.db").iterdir():
        last = max((table / "schema").glob("schema-*"), key=lambda p: int(p.name.removeprefix("schema-")))
        schema = json.loads(last.read_text())
        server.tables["default", table.name] = rest_server.Table(f"file://{table}", table.name, schema, schema["id"])
    given = {"token.provider": "bear", "token": rest_server.TOKEN}
    lake = bitlake.connect(rest_server.WAREHOUSE, spark=spark, catalog="rest", uri=server.uri, catalog_options=given)
    return Opened(lake, rest_server.WAREHOUSE, {"catalog": "rest", "uri": server.uri, **given})


_OPEN: dict[str, Callable[..., Opened]] = {
    "path": _local("{}"),
    "file:/": _local("file:{}"),
    "file://": _local("file://{}"),
    "relative": _relative,
    "special": _local("file://{}", SPECIAL),
    "symlink": _symlink,
    "s3": _s3,
    "hdfs": _hdfs,
    "jdbc": _jdbc,
    "rest": _rest,
}
