"""A small append table for tests: made, and filled batch by batch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

import bitlake
from bitlake.table.table import Table

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("p", pa.string())])
VECTORS = {"deletion-vectors.enabled": "true"}


def table_of(tmp_path: Path, options: dict[str, str], partition_by: Sequence[str] = ()) -> Table:
    lake = bitlake.connect(str(tmp_path / "lake"))
    return lake.create_table("t", SCHEMA, partition_by=partition_by, options=options)


def fill(table: Table, batches: int, rows: int = 20) -> None:
    """Ids 0, 1, …; seven values of ``v``, two of ``p``."""
    for batch in range(batches):
        ids = range(batch * rows, (batch + 1) * rows)
        new = {"id": list(ids), "v": [f"v{i % 7}" for i in ids], "p": [f"p{i % 2}" for i in ids]}
        table.append(pa.table(new, schema=SCHEMA))
