"""Tables that bitlake changes and compacts: Paimon (Java) reads, writes on, compacts, streams and expires them."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from interop.rows import rows_of

import bitlake
from bitlake.scan.stream_offsets import ChangeStream

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


CHANGES = {
    "append": {"streaming-read-append-overwrite": "true"},
    "delta": {"primary-key": "id", "bucket": "2", "streaming-read-overwrite": "true"},
    "input": {"primary-key": "id", "bucket": "2", "changelog-producer": "input"},
    "lookup": {"primary-key": "id", "bucket": "2", "changelog-producer": "lookup"},
}


@pytest.mark.parametrize("name", CHANGES)
def test_streams_of_overwrites_and_expired_snapshots(java: ModuleType, tmp_path: Path, name: str) -> None:
    """Changelogs outlive the snapshots that Paimon (Java) expires; both then stream the same rows."""
    kept = {"snapshot.num-retained.min": "2", "snapshot.num-retained.max": "2", "snapshot.time-retained": "0 ms"}
    options = {**CHANGES[name], **kept, "changelog.num-retained.max": "100", "changelog.time-retained": "1 d"}
    table = bitlake.connect(tmp_path).create_table("t", SCHEMA, options=options)

    def rows(v: str, *ids: int) -> pa.Table:
        return pa.table([list(ids), [v] * len(ids)], schema=SCHEMA)

    table.append(rows("a", *range(9)))
    java.write(tmp_path, "default.t", [("+I", (3, "java")), ("+I", (20, "java"))])
    if name != "input":
        table.overwrite(rows("o", 1, 5, 20))
    table.append(rows("b", 1, 30))
    java.write(tmp_path, "default.t", [("+I", (30, "late"))])

    def streamed(start: int) -> list[tuple[Any, ...]]:
        feed = ChangeStream(bitlake.connect(tmp_path).table("t")._core, kinds=True)
        at = feed.at(start)
        return sorted(r for scan in feed.scans(at, feed.step(at).end) for r in rows_of(scan.to_arrow()))

    last = table._core.state().snapshot_id
    assert last is not None
    before = {start: streamed(start) for start in (1, 2, last)}
    for start, found in before.items():
        assert found == sorted(java.changes(tmp_path, "default.t", start))
    java.expire(tmp_path, "default.t")
    assert len(table.history.snapshots()) == 2
    for start, found in before.items():
        if name == "delta" and start < last:  # also the rows that the overwrite removed
            continue
        assert streamed(start) == found == sorted(java.changes(tmp_path, "default.t", start))
