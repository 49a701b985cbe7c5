"""A table is verified while it is written to, compacted and its snapshots expire: nothing is taken for a fault."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
import verify_tables as made

from bitlake.snapshot.expiry import Retention
from bitlake.table.table import Table

ROUNDS = 12


def append_rounds(table: Table) -> None:
    for i in range(ROUNDS):
        table.append(made.rows(i * 10, i * 10 + 20))
        table.delete(f"id = {i * 10}")
        if i % 3 == 2:
            table.compact(full=True)
        table.expire_snapshots(Retention(2, 1, 2**62))


def keyed_rounds(table: Table) -> None:
    for i in range(ROUNDS):
        table.upsert(made.keyed_rows(range(i * 7, i * 7 + 30), f"round {i}"))
        gone = range(i * 7, i * 7 + 3)
        table.upsert(made.keyed_rows(gone, "gone"), kinds=pa.array([3] * len(gone), pa.int8()))
        table.expire_snapshots(Retention(2, 1, 2**62))


@pytest.mark.parametrize(
    ("schema", "options", "work"),
    [
        (made.ROWS, {**made.SEPARATE, **made.DV}, append_rounds),
        (made.KEYED, {"bucket": "2", "primary-key": "id", **made.DV}, keyed_rounds),
        (made.KEYED, {"bucket": "-1", "primary-key": "id", "changelog-producer": "input"}, keyed_rounds),
    ],
    ids=["append", "vectors", "dynamic"],
)
def test_writers_and_expiry_are_no_fault(
    tmp_path: Path, schema: pa.Schema, options: dict[str, str], work: Callable[[Table], None]
) -> None:
    table = made.create(tmp_path, schema, options)
    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(work, Table("t", table.path, table.store))
        looks = 0
        while not writer.done() or not looks:
            report = table.verify()
            assert not report.findings, report.text()
            looks += 1
        writer.result()
    report = table.verify()
    assert not report.findings, report.text()
    assert report.checked["snapshots"] <= 3
