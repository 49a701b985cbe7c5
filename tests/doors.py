"""Doors (ways to name a warehouse), sizes of tables, and ways to read: what ``tests/spark/test_doors.py`` combines.

A door opens a copy of a folder of tables.  The tables that are generated here are judged by plain Spark over the same
rows as one Parquet file; Paimon's by the answers that Paimon gave.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from bitlake.io.local_cache import FILE_KINDS

DOORS = ("path", "file:/", "file://", "relative", "special", "symlink", "s3", "cached s3", "hdfs", "jdbc", "rest")
REMOTE = ("s3", "cached s3", "hdfs")
WAYS = ("process", "source", "driver", "spark", "workers", "duckdb", "merge", "merge in process")
SIZES = ("fixtures", "mb", "large", "partitions", "files")
SPECIAL = "a b%41+#?é [1]{x,y}*\\z"
Case = tuple[str, str, str]

# --- which combinations -----------------------------------------------------------------------------------------------


def pairwise(seed: int) -> list[Case]:
    """Combinations in which every door meets every way, every door every size, and every way every size.

    Each door meets each way once, which is the fewest combinations that there can be.  A dear size goes once through
    each door: by each way, and three times more by the cheaper ones.  The other ways get cheap sizes.  Of arrays that
    chance makes, the cheapest wins.
    """
    chance = random.Random(seed)
    found = min((_array(chance) for _ in range(_ARRAYS)), key=lambda cases: sum(map(_cost, cases)))
    return _scheduled(found)


def _array(chance: random.Random) -> list[Case]:
    """One such array, in any order."""
    out: list[Case] = []
    for size in DEAR:
        ways = [*WAYS, *chance.sample(sorted(WAYS, key=_READS.__getitem__)[:5], len(DOORS) - len(WAYS))]
        taken = {(door, way) for door, way, _ in out}
        chance.shuffle(ways)
        while taken.intersection(zip(DOORS, ways, strict=True)):
            chance.shuffle(ways)
        out += [(door, way, size) for door, way in zip(DOORS, ways, strict=True)]
    return out + _cheap_ones(chance, out)


def _cheap_ones(chance: random.Random, dear: Sequence[Case]) -> list[Case]:
    """For each door, cheap sizes by the ways that it has not met: each size once, and each by every way once."""
    while True:
        out: list[Case] = []
        for door in DOORS:
            ways = [w for w in WAYS if w not in {way for d, way, _ in dear if d == door}]
            sizes = [*CHEAP, *chance.choices(CHEAP, k=len(ways) - len(CHEAP))]
            chance.shuffle(sizes)
            out += [(door, way, size) for way, size in zip(ways, sizes, strict=True)]
        if {(way, size) for _, way, size in out} == set(itertools.product(WAYS, CHEAP)):
            return out


def _cost(case: Case) -> float:
    """About how many thousand files are opened; each takes several requests of a server in Python, if it is remote."""
    door, way, size = case
    return _READS[way] * _FILES[size] * (_REMOTE if door in REMOTE else 1)


def _scheduled(cases: Sequence[Case]) -> list[Case]:
    """Cases of one door and size side by side, the longest first, and no two dear sizes: each is generated once."""

    def place(case: Case) -> tuple[int, int, int]:
        door, _, size = case
        if size in CHEAP:
            return len(DOORS), DOORS.index(door), CHEAP.index(size)
        return rank[door], DEAR.index(size), 0

    doors = sorted(DOORS, key=lambda d: -sum(_cost(c) for c in cases if c[0] == d))
    rank = {door: n for n, door in enumerate(doors)}
    return sorted(cases, key=place)


DEAR, CHEAP = ("files", "partitions", "large"), ("mb", "fixtures")
_FILES = {"mb": 0.1, "fixtures": 0.2, "partitions": 2, "files": 5, "large": 1}
_READS = {
    "driver": 1,
    "spark": 1.5,
    "workers": 1.5,
    "duckdb": 1.5,
    "source": 2,
    "process": 3,
    "merge": 2,
    "merge in process": 5,
}
_REMOTE = 5
_ARRAYS = 20

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


class Sources:
    """Local folders of the sizes' tables in ``root``, each made once by one of the processes that share it."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def folder(self, size: str) -> Path:
        """The folder of a size, made if no process has."""
        if size == "fixtures":
            return fixtures.warehouse()
        folder = self._root / f"doors-{size}"
        with open(self._root / f"doors-{size}.lock", "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():
                partial = self._root / f"doors-{size}.partial"
                shutil.rmtree(partial, ignore_errors=True)
                partial.mkdir()
                generate(partial, size)
                partial.rename(folder)
        return folder


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


@dataclass(frozen=True, slots=True)
class Copying:
    """What to open: the tables ``names`` (all if empty) of a folder ``root``, copied into an empty ``folder``."""

    root: Path
    folder: Path
    names: frozenset[str] = frozenset()

    def tables(self) -> list[Path]:
        """The folders of the tables."""
        return [p for p in (self.root / "default.db").iterdir() if not self.names or p.name in self.names]

    def files(self) -> list[tuple[str, Path]]:
        """The tables' files, with their paths below the warehouse."""
        every = (p for table in self.tables() for p in table.rglob("*") if p.is_file())
        return [(p.relative_to(self.root).as_posix(), p) for p in every]

    def copied(self, name: str) -> Path:
        """A folder in ``folder`` of links: data files never change."""
        to = self.folder / name
        for table in self.tables():
            shutil.copytree(table, to / "default.db" / table.name, copy_function=_linked)
        return to

    def uploaded(self, uri: str, options: Mapping[str, str]) -> None:
        """Write the tables' files to a store."""
        store = open_store(uri, options)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda f: store.write(f"{uri}/{f[0]}", f[1].read_bytes()), self.files()))


@contextmanager
def opened(door: str, what: Copying, spark: Any, s3_endpoint: str | None) -> Iterator[Opened]:
    """A copy of tables, opened through a door."""
    with ExitStack() as stack:
        yield _OPEN[door](stack, what, spark, s3_endpoint)


def _linked(old: str, new: str) -> None:
    try:
        os.link(old, new)
    except OSError:
        shutil.copyfile(old, new)


def _local(form: str, name: str = "lake") -> Callable[..., Opened]:
    def made(stack: ExitStack, what: Copying, spark: Any, _: str | None) -> Opened:
        warehouse = form.format(what.copied(name))
        return Opened(bitlake.connect(warehouse, spark=spark), warehouse)

    return made


def _relative(stack: ExitStack, what: Copying, spark: Any, _: str | None) -> Opened:
    lake_folder = what.copied("lake")
    before = os.getcwd()
    stack.callback(os.chdir, before)
    os.chdir(what.folder)
    lake = bitlake.connect("lake", spark=spark)
    return Opened(lake, str(lake_folder))  # the data source's process has another working folder


def _symlink(stack: ExitStack, what: Copying, spark: Any, _: str | None) -> Opened:
    link = what.folder / "link"
    link.symlink_to(what.copied("real"))
    return Opened(bitlake.connect(str(link), spark=spark), str(link))


def _s3(
    stack: ExitStack, what: Copying, spark: Any, endpoint: str | None, more: Mapping[str, str] | None = None
) -> Opened:
    assert endpoint is not None
    uri, options = f"s3://{s3_server.BUCKET}/{what.folder.name}", s3_server.options(endpoint)
    what.uploaded(uri, options)
    options.update(more or {})
    given = {k if k.startswith(("s3.", "local-cache.")) else f"s3.{k}": v for k, v in options.items()}
    return Opened(bitlake.connect(uri, spark=spark, storage_options=options), uri, given)


def _cached_s3(stack: ExitStack, what: Copying, spark: Any, endpoint: str | None) -> Opened:
    cache = {
        "enabled": "true",
        "dir": str(what.folder / "cache"),
        "block-size": "64 kb",
        "whitelist": ",".join(FILE_KINDS),
    }
    return _s3(stack, what, spark, endpoint, {f"local-cache.{name}": value for name, value in cache.items()})


def _hdfs(stack: ExitStack, what: Copying, spark: Any, _: str | None) -> Opened:
    cluster = stack.enter_context(webhdfs_server.running())
    uri, options = f"webhdfs://{cluster.namenode}/{what.folder.name}", {"user": "me"}
    cluster.put({f"/{what.folder.name}/{path}": file.read_bytes() for path, file in what.files()})
    lake = bitlake.connect(uri, spark=spark, storage_options=options)
    return Opened(lake, uri, {"hdfs.user": "me"})


def _jdbc(stack: ExitStack, what: Copying, spark: Any, _: str | None) -> Opened:
    warehouse, uri = str(what.copied("lake")), f"sqlite:///{what.folder}/catalog.db"
    lake = bitlake.connect(warehouse, spark=spark, catalog="jdbc", uri=uri)
    lake.create_database("default", if_not_exists=True)
    with sqlite3.connect(what.folder / "catalog.db") as db:
        names = [("jdbc", "default", p.name) for p in what.tables()]
        db.executemany("INSERT INTO paimon_tables (catalog_key, database_name, table_name) VALUES (?, ?, ?)", names)
    db.close()
    return Opened(lake, warehouse, {"catalog": "jdbc", "uri": uri})


def _rest(stack: ExitStack, what: Copying, spark: Any, _: str | None) -> Opened:
    copied = what.copied("lake")
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
    "cached s3": _cached_s3,
    "hdfs": _hdfs,
    "jdbc": _jdbc,
    "rest": _rest,
}
