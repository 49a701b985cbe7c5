"""A table is verified while it is written to, compacted and its snapshots expire: nothing is taken for a fault."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
import verify_tables as made
from long import exhaustive

from bitlake.file_store_table import FileStoreTable
from bitlake.table.table import Table

ROUNDS = 12


def append_rounds(table: Table) -> None:
    for i in range(ROUNDS):
        table.append(made.rows(i * 10, i * 10 + 20))
        table.delete(f"id = {i * 10}")
        if i % 3 == 2:
            table.maintenance.compact(full=True)
        table.maintenance.expire_snapshots(retain_max=2, retain_min=1, older_than=2**62)


def keyed_rounds(table: Table) -> None:
    for i in range(ROUNDS):
        table.upsert(made.keyed_rows(range(i * 7, i * 7 + 30), f"round {i}"))
        gone = range(i * 7, i * 7 + 3)
        table.upsert(made.keyed_rows(gone, "gone"), kinds=pa.array([3] * len(gone), pa.int8()))
        table.maintenance.expire_snapshots(retain_max=2, retain_min=1, older_than=2**62)


@pytest.mark.parametrize(
    ("schema", "options", "work"),
    [
        exhaustive(made.ROWS, {**made.SEPARATE, **made.DV}, append_rounds),
        (made.KEYED, {"bucket": "2", "primary-key": "id", **made.DV}, keyed_rounds),
        exhaustive(made.KEYED, {"bucket": "-1", "primary-key": "id", "changelog-producer": "input"}, keyed_rounds),
    ],
    ids=["append", "vectors", "dynamic"],
)
def test_writers_and_expiry_are_no_fault(
    tmp_path: Path, schema: pa.Schema, options: dict[str, str], work: Callable[[Table], None]
) -> None:
    table = made.create(tmp_path, schema, options)
    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(work, Table(FileStoreTable("t", table.path, table._core.store)))
        looks = 0
        while not writer.done() or not looks:
            report = table.maintenance.verify()
            assert not report.findings, report.text()
            looks += 1
        writer.result()
    report = table.maintenance.verify()
    assert not report.findings, report.text()
    assert report.checked["snapshots"] <= 3
