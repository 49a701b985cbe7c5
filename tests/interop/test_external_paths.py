"""Tables with files in external paths and in a data directory: Paimon (Java) reads, writes on, and compacts them."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

import bitlake

pytestmark = pytest.mark.interop

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])


@pytest.mark.parametrize("strategy", ["round-robin", "entropy-inject", "weight-robin", "none"])
@pytest.mark.parametrize("key", [(), ("id",)])
def test_taking_turns(java: ModuleType, tmp_path: Path, key: tuple[str, ...], strategy: str) -> None:
    roots = [tmp_path / "ext1", tmp_path / "ext2"]
    lake = bitlake.connect(tmp_path / "lake", external_paths=[str(root) for root in roots])
    options = {
        "data-file.external-paths": ",".join(f"file://{root}" for root in roots),
        "data-file.external-paths.strategy": strategy,
        "data-file.path-directory": "data",
        "deletion-vectors.enabled": "true",
        "file-index.bitmap.columns": "v",
        "file-index.in-manifest-threshold": "1 b",
        "bucket": "1",
        **({} if key else {"bucket-key": "id"}),
    }
    table = lake.create_table("t", SCHEMA, primary_key=key, options=options)
    rows: dict[int, Any] = {}

    def check() -> None:
        wanted = sorted(rows.items())
        assert sorted(tuple(r.values()) for r in table.scan().to_arrow().to_pylist()) == wanted
        assert sorted(java.dump(tmp_path / "lake", "default.t")) == wanted

    for turn in range(2):
        low = turn * 100
        new = {i: f"v{i % 9}" for i in range(low, low + 50)}
        batch = pa.table({"id": list(new), "v": list(new.values())}, schema=table.arrow_schema)
        table.upsert(batch) if key else table.append(batch)
        rows |= new
        check()
        java.write(tmp_path / "lake", "default.t", [("+I", (low + 50 + i, "java")) for i in range(5)])
        rows |= {low + 50 + i: "java" for i in range(5)}
        check()
        table.delete("v = 'v3'")
        rows = {k: v for k, v in rows.items() if v != "v3"}
        check()
    java.write(tmp_path / "lake", "default.t", full=True)
    check()
    inside = list(Path(table.path).rglob("*.parquet"))
    outside = [p for root in roots for p in root.rglob("*.parquet")]
    assert bool(inside) is (strategy == "none") and bool(outside) is (strategy != "none")
    assert all("/data/bucket-0/" in str(p) for p in (*inside, *outside))
    assert table.maintenance.verify().ok and table.maintenance.remove_orphan_files(2**60) == []
