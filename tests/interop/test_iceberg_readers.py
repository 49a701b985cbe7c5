"""Iceberg's readers read what bitlake publishes: after each random commit the rows that Paimon exposes."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
import s3_server
from iceberg_reader import IcebergTable, local, sorted_rows
from interop import iceberg_peer, peer_process
from interop.peer_process import Unavailable

import bitlake
from bitlake.table.table import Table

pytestmark = pytest.mark.interop

COMMITS = int(os.environ.get("BITLAKE_ICEBERG_COMMITS", "12"))
ON = {"metadata.iceberg.storage": "table-location", "metadata.iceberg.compaction.max.file-num": "8"}
VECTORS = {
    "deletion-vectors.enabled": "true",
    "deletion-vectors.bitmap64": "true",
    "metadata.iceberg.format-version": "3",
}
APPENDED = pa.schema([("id", pa.int64()), ("v", pa.string()), ("p", pa.string())])
KEYED = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string()), ("p", pa.string())])
EVERYONE = ("pyiceberg", "duckdb", "polars")
CASES: dict[str, tuple[bool, dict[str, str], tuple[str, ...]]] = {
    "append": (False, {}, EVERYONE),
    "append-partitioned": (False, {"partition": "p"}, EVERYONE),
    "key": (True, {"num-sorted-run.compaction-trigger": "3"}, EVERYONE),
    "key-vectors": (True, VECTORS, EVERYONE),
    "append-vectors": (False, VECTORS, EVERYONE),
}


@contextmanager
def running(start: Callable[[], iceberg_peer.Readers]) -> Iterator[iceberg_peer.Readers]:
    try:
        found = start()
    except Unavailable as e:
        pytest.skip(str(e))
    yield found
    found.close()


@pytest.fixture(scope="module")
def readers() -> Iterator[iceberg_peer.Readers]:
    with running(iceberg_peer.Readers) as found:
        yield found


@pytest.fixture(scope="module")
def spark_reader() -> Iterator[iceberg_peer.Readers]:
    with running(iceberg_peer.spark) as found:
        yield found


def change(table: Table, keyed: bool, chance: random.Random, step: int) -> None:
    """One commit of some kind; a new column comes with rows that have it."""
    kind = chance.choice(["write", "write", "write", "delete", "update", "compact", "evolve", "expire"])
    if kind == "evolve" and len(table.schema.fields) < 8:
        table.alter(add={f"n{step}": "INT"})
        kind = "write"
    match kind:
        case "delete":
            table.delete(f"id < {chance.randrange(200)}" if step % 5 == 0 else f"id = {chance.randrange(200)}")
        case "update" if not keyed:
            table.update({"v": f"'u{step}'"}, f"id > {chance.randrange(200)}")
        case "compact":
            table.maintenance.compact(full=True)
        case "expire":
            table.maintenance.expire_snapshots(retain_max=3, retain_min=2)
        case _:
            ids = chance.sample(range(200), chance.randint(1, 40))
            rows = pa.table(
                {"id": ids, "v": [f"v{step}"] * len(ids), "p": [f"p{i % 3}" for i in ids]},
                schema=KEYED if keyed else APPENDED,
            )
            for name in table.schema.field_names[3:]:
                rows = rows.append_column(name, pa.array([step] * len(ids), pa.int32()))
            (table.upsert if keyed else table.append)(rows)


@pytest.mark.parametrize("case", CASES)
def test_random_commits(tmp_path: Path, readers: iceberg_peer.Readers, case: str) -> None:
    check_random_commits(tmp_path, readers, case, CASES[case][2])


@pytest.mark.parametrize("case", CASES)
def test_spark_reads_random_commits(tmp_path: Path, spark_reader: iceberg_peer.Readers, case: str) -> None:
    check_random_commits(tmp_path, spark_reader, case, ("spark",))


def check_random_commits(tmp_path: Path, readers: iceberg_peer.Readers, case: str, engines: tuple[str, ...]) -> None:
    """What engines read after each commit is what Paimon's format exposes."""
    keyed, options, _ = CASES[case]
    given = {**ON, **options, **({"bucket": "1", "primary-key": "id"} if keyed else {})}
    table = bitlake.connect(str(tmp_path)).create_table("t", KEYED if keyed else APPENDED, options=given)
    chance = random.Random(case)
    folder = Path(table.path) / "metadata"
    seen = 0
    while seen < COMMITS:
        before = table.snapshot
        change(table, keyed, chance, seen)
        if table.snapshot == before:
            continue
        seen += 1
        metadata = folder / f"v{table.snapshot.id}.metadata.json"
        if keyed and options is not VECTORS:
            # The files of the highest level, read by the specification.
            expected = sorted_rows(IcebergTable.open(folder).rows())
            if all(e.file.level == 3 for e in table._core.state().entries()):
                assert expected == sorted_rows(table.scan().to_arrow())
        else:
            expected = sorted_rows(table.scan().to_arrow())
        for engine in engines:
            assert sorted_rows(readers.read(engine, metadata)) == expected, (engine, seen)


def test_pyiceberg_reads_a_bucket(s3_endpoint: str, readers: iceberg_peer.Readers) -> None:
    options = s3_server.options(s3_endpoint)
    lake = bitlake.connect(f"s3://{s3_server.BUCKET}/iceberg", storage_options=options)
    table = lake.create_table("t", KEYED, primary_key=["id"], options={**ON, **VECTORS, "bucket": "1"})
    properties = {
        "s3.endpoint": options["s3.endpoint"],
        "s3.access-key-id": options["s3.access-key"],
        "s3.secret-access-key": options["s3.secret-key"],
        "s3.region": "us-east-1",
    }
    table.upsert(pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"], "p": ["p"] * 3}, schema=KEYED))
    chance = random.Random(3)
    for step in range(6):
        change(table, True, chance, step)
        assert table.snapshot is not None
        metadata = f"{table.path}/metadata/v{table.snapshot.id}.metadata.json"
        assert sorted_rows(readers.read("pyiceberg", metadata, **properties)) == sorted_rows(table.scan().to_arrow())


def test_examples_of_the_page(tmp_path: Path, readers: iceberg_peer.Readers) -> None:
    """What the page "Iceberg readers" shows for pyiceberg, Polars and DuckDB."""
    page = (peer_process.ROOT / "docs/how-to/iceberg-readers.md").read_text().replace("/data/lake", str(tmp_path))
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(blocks[0], {})
    ours = [b for b in blocks if "from pyiceberg" in b or "import polars" in b]
    assert len(ours) == 2
    for block in ours:
        done = subprocess.run(
            [iceberg_peer.find_python(), "-W", "ignore", "-c", block], capture_output=True, text=True, check=False
        )
        assert done.stdout == "2\n", done.stderr
    (path,) = re.findall(r"iceberg_scan\('(.*?)'\)", page)
    assert readers.read("duckdb", Path(path)).num_rows == 3


def members(metadata: dict[str, Any]) -> dict[str, Any]:
    """Table metadata without what differs between any two commits: ids of files and commits, and times."""
    out = {k: v for k, v in metadata.items() if k not in ("table-uuid", "last-updated-ms", "snapshots")}
    out["snapshots"] = [
        {k: v for k, v in s.items() if k not in ("timestamp-ms", "manifest-list", "summary")}
        | {"operation": s["summary"]["operation"]}
        for s in metadata["snapshots"]
    ]
    return out


def listed(table: IcebergTable) -> list[dict[str, Any]]:
    """The live files of all manifests, field by field, without names that contain a UUID."""
    out = []
    for entry in table.entries():
        if entry["status"] == 2:
            continue
        file = dict(entry["data_file"])
        path = local(file.pop("file_path"))
        assert path.exists()
        del file["file_size_in_bytes"]  # of different Parquet writers
        for name in ("null_value_counts", "lower_bounds", "upper_bounds"):
            file[name] = sorted((p["key"], p["value"]) for p in file[name])
        out.append({**entry, "data_file": file, "folder": str(path.parent.relative_to(table.folder.parent))})
    return sorted(out, key=repr)


def summaries(table: IcebergTable) -> list[dict[str, Any]]:
    """The manifests of the manifest list, without their names and sizes."""
    return [{k: v for k, v in m.items() if k not in ("manifest_path", "manifest_length")} for m in table.manifests()]


FIELDS = pa.schema(
    [
        ("id", pa.int64()),
        ("i", pa.int32()),
        ("d", pa.float64()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("p", pa.string()),
    ]
)


@pytest.mark.parametrize("partition", ["", "p"])
def test_paimon_publishes_the_same(tmp_path: Path, java: ModuleType, partition: str) -> None:
    """Two tables with the same commits, one by Paimon (Java): the same metadata, field by field.

    Without a zero among the doubles: its lower bound is -0.0 here, and 0.0 there.
    """
    lake = bitlake.connect(str(tmp_path))
    lake.create_database("db")
    options = {"metadata.iceberg.storage": "table-location", **({"partition": partition} if partition else {})}
    ours, theirs = (lake.create_table(f"db.{name}", FIELDS, options=options) for name in ("ours", "theirs"))
    for step in range(3):
        rows = [(step * 10 + i, i, i / 2 + 1, None if i == 1 else f"s{i}" * 9, i % 2 == 0, "a") for i in range(4)]
        ours.append(pa.table(list(map(list, zip(*rows, strict=True))), schema=FIELDS))
        java.append(tmp_path, "db.theirs", rows)
        one, other = (IcebergTable.open(Path(t.path) / "metadata") for t in (ours, theirs))
        one.check()
        first, second = members(one.metadata), members(other.metadata)
        assert first.pop("location") == f"file:{ours.path}" and second.pop("location") == f"file:{theirs.path}"
        assert list(one.metadata) == list(other.metadata)
        assert first == second
        assert listed(one) == listed(other)
        assert summaries(one) == summaries(other)


VECTORS_OF_64_BITS = {
    "metadata.iceberg.format-version": "3",
    "deletion-vectors.enabled": "true",
    "deletion-vectors.bitmap64": "true",
}
ROW_IDS = ("next-row-id", "first-row-id", "added-rows", "first_row_id")
"""Members of format version 3 that Paimon (Java) 1.4.2 does not write."""
PLACE = ("content_offset", "content_size_in_bytes")


def without(value: Any, *names: str) -> Any:
    """JSON without these members, at any depth."""
    if isinstance(value, list):
        return [without(v, *names) for v in value]
    return {k: without(v, *names) for k, v in value.items() if k not in names} if isinstance(value, dict) else value


@pytest.mark.parametrize("options", [{}, VECTORS_OF_64_BITS], ids=["merged", "vectors"])
def test_paimon_publishes_the_same_of_key_tables(tmp_path: Path, java: ModuleType, options: dict[str, str]) -> None:
    """The same metadata, without row ids and the places of vectors, which Paimon leaves in its index files.

    The first publication is not compared: Paimon shows a lone file of level 0 in it, also as removed.  Nor are
    manifests of removed files alone: Paimon writes several, and keeps them.
    """
    lake = bitlake.connect(str(tmp_path))
    lake.create_database("db")
    given = {"metadata.iceberg.storage": "table-location", "bucket": "1", **options}
    ours, theirs = (
        lake.create_table(f"db.{name}", KEYED, primary_key=["id"], options=given) for name in ("ours", "theirs")
    )
    operations = []
    for step in range(4):
        rows = [(i, f"v{step}", "p") for i in range(step * 5, step * 5 + 10)]
        ours.upsert(pa.table(list(map(list, zip(*rows, strict=True))), schema=KEYED))
        if not options:  # with vectors each write compacts level 0
            ours.maintenance.compact(full=True)
        java.write(tmp_path, "db.theirs", [("+I", row) for row in rows], full=not options)
        assert [s.commit_kind for s in ours.history.snapshots()] == [s.commit_kind for s in theirs.history.snapshots()]
        if step < 2:
            continue
        one, other = (IcebergTable.open(Path(t.path) / "metadata") for t in (ours, theirs))
        one.check()
        first, second = (without(members(t.metadata), "location", *ROW_IDS) for t in (one, other))
        assert first == second
        assert without(listed(one), *ROW_IDS, *PLACE, "folder") == without(listed(other), *ROW_IDS, *PLACE, "folder")
        lists = (without(summaries(t), *ROW_IDS) for t in (one, other))
        found, expected = ([m for m in every if m["added_files_count"] + m["existing_files_count"]] for every in lists)
        assert found == expected
        operations.append(one.current["summary"]["operation"])
    assert operations == (["append", "overwrite"] if options else ["overwrite", "overwrite"])


@pytest.mark.parametrize("keyed", [False, True], ids=["append", "key"])
def test_bitlake_and_paimon_take_turns(
    tmp_path: Path, java: ModuleType, readers: iceberg_peer.Readers, keyed: bool
) -> None:
    """Each extends what the other has published, and finds the files that it removes in it."""
    lake = bitlake.connect(str(tmp_path))
    lake.create_database("db")
    key = {"bucket": "1", "primary-key": "id"} if keyed else {}
    options = {"metadata.iceberg.storage": "table-location", **key}
    schema = KEYED if keyed else APPENDED
    table = lake.create_table("db.t", schema, options=options)
    for step in range(6):
        ids = list(range(step * 5, step * 5 + 10))
        if step % 2:
            rows = pa.table({"id": ids, "v": [f"v{step}"] * 10, "p": ["p"] * 10}, schema=schema)
            (table.upsert if keyed else table.append)(rows)
            table.maintenance.compact(full=True)
        elif keyed:
            java.write(tmp_path, "db.t", [("+I", (i, f"v{step}", "p")) for i in ids], full=True)
        else:
            java.append(tmp_path, "db.t", [(i, f"v{step}", "p") for i in ids])
        expected = sorted_rows(table.scan().to_arrow())
        metadata = Path(table.path) / f"metadata/v{table.snapshot.id}.metadata.json"
        for engine in EVERYONE:
            assert sorted_rows(readers.read(engine, metadata)) == expected, (engine, step)
        assert json.loads(metadata.read_text())["current-snapshot-id"] == table.snapshot.id
