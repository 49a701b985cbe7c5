"""Append tables that bitlake deletes from, updates and compacts: Paimon (Java) reads, writes on, and compacts them."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

import bitlake

pytestmark = pytest.mark.interop

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
TABLES = {
    "unaware": {"deletion-vectors.enabled": "true"},
    "unaware-wide": {"deletion-vectors.enabled": "true", "deletion-vectors.bitmap64": "true"},
    "bucketed": {"deletion-vectors.enabled": "true", "bucket": "2", "bucket-key": "id"},
    "copy-on-write": {"bucket": "2", "bucket-key": "id"},
}


@pytest.mark.parametrize("name", TABLES)
def test_taking_turns(java: ModuleType, tmp_path: Path, name: str) -> None:
    table = bitlake.connect(tmp_path).create_table("t", SCHEMA, options=TABLES[name])
    rows: dict[int, Any] = {}

    def check() -> None:
        wanted = sorted(rows.items())
        assert sorted(tuple(r.values()) for r in table.scan().to_arrow().to_pylist()) == wanted
        assert sorted(java.dump(tmp_path, "default.t")) == wanted

    for turn in range(3):
        low = turn * 1000
        new = {i: f"v{i % 9}" for i in range(low, low + 400)}
        table.append(pa.table({"id": list(new), "v": list(new.values())}, schema=SCHEMA))
        java.append(tmp_path, "default.t", [(low + 500 + i, "java") for i in range(50)])
        rows |= new | {low + 500 + i: "java" for i in range(50)}
        check()
        assert table.delete("v = 'v3'") == sum(v == "v3" for v in rows.values())
        rows = {k: v for k, v in rows.items() if v != "v3"}
        check()
        assert table.update({"v": f"u{turn}"}, f"id < {low + 60}") == sum(k < low + 60 for k in rows)
        rows = {k: f"u{turn}" if k < low + 60 else v for k, v in rows.items()}
        table.delete(f"id BETWEEN {low + 100} AND {low + 110}")
        rows = {k: v for k, v in rows.items() if not low + 100 <= k <= low + 110}
        check()
        if turn == 1 or name == "bucketed":
            table.maintenance.compact(full=True)
            check()
        if "bucket" in TABLES[name] and turn != 1:
            java.write(tmp_path, "default.t", full=True)
            check()
