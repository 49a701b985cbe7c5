"""A write to some partitions of a large table looks at nothing else, and does what it does to a small one."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import bitlake
from bitlake.mergetree.bucket import bucket_states, hash_index_states
from bitlake.snapshot import partitions as partition_files
from bitlake.snapshot.state import TableState
from bitlake.table.table import Table

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("day", pa.string())])
KINDS = {
    "fixed": {"bucket": "2"},
    "dynamic": {"dynamic-bucket.target-row-num": "3"},
    "vectors": {"bucket": "2", "deletion-vectors.enabled": "true"},
    "lookup": {"bucket": "2", "changelog-producer": "lookup"},
    "dynamic vectors": {"dynamic-bucket.target-row-num": "3", "deletion-vectors.enabled": "true"},
}


def rows(ids: range, v: str, days: list[str]) -> pa.Table:
    columns = [list(ids), [v] * len(ids), [days[i % len(days)] for i in ids]]
    return pa.table(columns, schema=SCHEMA)


def made(folder: Path, options: dict[str, str]) -> Table:
    return bitlake.connect(str(folder)).create_table(
        "t", SCHEMA, partition_by=["day"], primary_key=["id", "day"], options=options
    )


def steps(table: Table) -> None:
    """Days of their own, old ones again, new ones, deletes, and schemas that only some partitions' files have."""
    days = [f"d{i}" for i in range(6)]
    table.upsert(rows(range(60), "first", days))
    table.upsert(rows(range(0, 60, 2), "second", days[:2]))
    table.add_column("x", "INT")
    table.upsert(rows(range(30), "third", days[1:3]))
    table.upsert(rows(range(0, 60, 5), "gone", days[:3]), ["-D"] * 12)
    table.upsert(rows(range(200, 220), "new", ["d7", "d8"]))
    table.upsert(rows(range(220), "last", ["d2"]))
    table.maintenance.compact(full=True, where="day = 'd2'")


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_rows_and_buckets(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    small = made(tmp_path / "small", KINDS[kind])
    steps(small)
    monkeypatch.setattr(partition_files, "MANY_FILES", 1)
    large = made(tmp_path / "large", KINDS[kind])
    steps(large)
    tables = [
        sorted(map(str, t.scan(["id", "v", "x", "day", "__paimon_bucket"]).to_arrow().to_pylist()))
        for t in (small, large)
    ]
    assert tables[0] == tables[1]
    shapes = [
        sorted(
            (e.partition, e.bucket, e.file.level, e.file.row_count, e.file.min_sequence_number)
            for e in t._core.state().entries()
        )
        for t in (small, large)
    ]
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("kind", KINDS)
def test_other_partitions_are_not_looked_at(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path, KINDS[kind]).upsert(rows(range(60), "first", [f"d{i}" for i in range(6)]))
    # Elsewhere, so that nothing of it is known in this process.
    (tmp_path / "default.db").rename(tmp_path / "moved.db")
    table = bitlake.connect(str(tmp_path)).table("moved.t")
    monkeypatch.setattr(partition_files, "MANY_FILES", 1)
    whole, asked = TableState.entries, []

    def entries(state: TableState, partitions: partition_files.live.PartitionFilter | None = None) -> object:
        assert partitions is not None and partitions.rows is not None, "every file of the table is looked at"
        asked.append(len(partitions.rows))
        return whole(state, partitions)

    monkeypatch.setattr(TableState, "entries", entries)
    table.upsert(rows(range(12), "second", ["d9", "d1"]))
    assert asked and max(asked) == 2
    monkeypatch.undo()
    assert table.scan(where="v = 'second'").count() == 12
    assert table.scan(where="day = 'd1'").count() == 14


def test_buckets_with_hash_indexes_are_those_of_the_table(tmp_path: Path) -> None:
    table = made(tmp_path, KINDS["dynamic vectors"])
    steps(table)
    state = table._core.state()
    known = {slot: b for slot, b in bucket_states(state).items() if b.hashes is not None}
    found = hash_index_states(state)
    assert known and any(b.vectors is not None for b in known.values())
    assert {slot: b.hashes for slot, b in found.items()} == {slot: b.hashes for slot, b in known.items()}
    assert {(b.total_buckets, b.files, b.vectors) for b in found.values()} == {(-1, (), None)}
