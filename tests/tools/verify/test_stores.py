"""Verifying and repairing where paths are not of this machine: object stores, and a catalog that is a server."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
import rest_server
import verify_tables as made
from caches import forget
from store_wrappers import CountingStore

import bitlake
from bitlake.file_store_table import FileStoreTable
from bitlake.snapshot.partitions import PartitionReader
from bitlake.table.table import Table

SMALL = {"file-index.in-manifest-threshold": "1 b"}


def filled(lake: bitlake.Lake) -> Table:
    table = lake.create_table("t", made.KEYED, options={"bucket": "1", "primary-key": "id", **made.SEPARATE, **made.DV})
    for i in range(3):
        table.upsert(made.keyed_rows(range(i * 10, i * 10 + 30), f"round {i}"))
    table.upsert(made.keyed_rows([1, 2], "gone"), kinds=pa.array([3, 3], pa.int8()))
    return table


def damaged_and_repaired(table: Table) -> None:
    assert not table.maintenance.verify().findings
    state = table._core.state()
    entry = next(iter(state.entries()))
    folder = PartitionReader(state.schema, state.paths).data_path(entry).rsplit("/", 1)[0]
    index = f"{folder}/{entry.file.extra_files[0]}"
    table._core.store.write(index, table._core.store.read(index)[:-1] + b"?")
    forget()
    report = table.maintenance.verify()
    assert {(f.code, f.path) for f in report.findings} == {("index-unreadable", index)}
    done = table.maintenance.repair(report, dry_run=False)
    forget()
    assert done.snapshot is not None
    assert not table.maintenance.verify(snapshots=[done.snapshot]).findings
    data = f"{folder}/{entry.file.file_name}"
    table._core.store.delete(data)
    forget()
    assert ("data-missing", data) in {(f.code, f.path) for f in table.maintenance.verify().findings}


def test_an_object_store() -> None:
    table = filled(bitlake.connect("memory://verify/lake"))
    table.history.create_tag("monday")
    damaged_and_repaired(table)


def test_the_requests_of_a_quick_run_do_not_grow_with_folders() -> None:
    """A file took two reads, a question for its size, and a listing each of its partition and its bucket."""
    table = bitlake.connect(f"memory://{uuid4()}/lake").create_table(
        "t", made.ROWS, partition_by=["p"], options={"file-index.bitmap.columns": "v", **SMALL}
    )
    count = 300
    for start in range(0, count, 100):
        ids = range(start, start + 100)
        rows = {"id": list(ids), "v": ["x"] * 100, "x": [0.0] * 100, "p": [f"p{i}" for i in ids]}
        table.append(pa.table(rows, schema=made.ROWS))
    store = table._core.store
    counting = CountingStore(store)
    quick = bitlake.Table(FileStoreTable(table.name, table.path, counting)).maintenance
    report = quick.verify(deep=False)
    assert not report.findings and report.checked["data_files"] == report.checked["file_indexes"] == count
    data = [call for call, path in counting.paths if "/bucket-0/" in path]
    assert Counter(data) == {"read_part": count, "read": count}
    assert counting.calls["list"] < 40 and counting.calls["list_below"] == 2 and counting.calls["size"] < 5
    # A file that was cut is looked at again, and one that is gone is found, whatever is cached.
    assert table.scan().to_arrow().num_rows == count
    cut, gone = (file.path for file in table.scan().plan().files[:2])
    store.write(cut, store.read(cut)[:-1])
    store.delete(gone)
    found = {(f.code, f.path) for f in quick.verify(deep=False).findings}
    assert found == {("data-size-wrong", cut), ("data-unreadable", cut), ("data-missing", gone)}


def test_a_rest_catalog(tmp_path: Path) -> None:
    options = {"token.provider": "bear", "token": rest_server.TOKEN}
    with rest_server.running(tmp_path) as server:
        lake = bitlake.connect(rest_server.WAREHOUSE, catalog="rest", uri=server.uri, catalog_options=options)
        damaged_and_repaired(filled(lake))


@pytest.mark.parametrize("bucket", ["1", "-1"])
def test_keys_that_move_between_partitions(tmp_path: Path, bucket: str) -> None:
    """Keys that are unique over partitions, and keys with their partition's columns, in partitions."""
    keys = "p,id" if bucket == "1" else "id"
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("p", pa.string(), nullable=False)])
    lake = bitlake.connect(str(tmp_path))
    table = lake.create_table("t", schema, partition_by=["p"], options={"bucket": bucket, "primary-key": keys})
    for i in range(4):
        ids = range(i * 5, i * 5 + 20)
        table.upsert(pa.table({"id": list(ids), "p": [f"p{(j + i) % 3}" for j in ids]}, schema=schema))
    report = table.maintenance.verify()
    assert not report.findings, report.text()
