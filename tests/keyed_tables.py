"""A small primary-key table for tests: made, read as a dictionary, and searched for files that nothing names."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from caches import forget

import bitlake
from bitlake.table.table import Table

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string())])
DV = {"deletion-vectors.enabled": "true"}
QUICK = {"commit.min-retry-wait": "1 ms", "commit.max-retry-wait": "1 ms", "commit.max-retries": "0"}


def made(root: Path, **options: str) -> Table:
    given = {"bucket": "1", "primary-key": "id", **QUICK, **options}
    return bitlake.connect(str(root)).create_table("t", COLUMNS, options=given)


def rows_of(ids: range | list[int], value: str) -> pa.Table:
    return pa.table({"id": list(ids), "v": [value] * len(ids)}, schema=COLUMNS)


def read(table: Table, *, level_0: bool = False) -> dict[int, str]:
    forget()
    scan = table.scan().with_level_0() if level_0 else table.scan()
    found = scan.to_arrow()
    out = dict(zip(found.column("id").to_pylist(), found.column("v").to_pylist(), strict=True))
    assert len(out) == found.num_rows, "a key is there twice"
    return out
