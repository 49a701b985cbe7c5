"""Reading files that are merged by key: chunk by chunk, with the rows and positions of one chunk."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from long import exhaustive, few

import bitlake
from bitlake.merge import sort_merge_reader
from bitlake.scan.reader import ROW_INDEX

ENGINES = {
    "deduplicate": {},
    "sequence": {"sequence.field": "s"},
    "partial-update": {"merge-engine": "partial-update"},
    "aggregation": {"merge-engine": "aggregation", "fields.a.aggregate-function": "sum"},
    "lookup": {"merge-engine": "partial-update", "changelog-producer": "lookup"},
}
KEYS = 3_000


def upserts(table: bitlake.Table, seed: int, with_deletes: bool) -> None:
    """A file of all keys, one of a level above 0 if that merges, and some of a part of the keys."""
    rng = random.Random(seed)
    for size in (KEYS, 400, 1_000, 7, 300):
        keys = sorted(rng.sample(range(KEYS), size))
        table.upsert(
            pa.table(
                {
                    "k": pa.array([f"key-{k:05d}" for k in keys]),
                    "n": pa.array([k % 7 for k in keys], pa.int32()),
                    "a": pa.array([rng.choice([None, k, -k]) for k in keys], pa.int64()),
                    "s": pa.array([rng.randrange(50) for _ in keys], pa.int32()),
                }
            )
        )
        if size == 400:
            table.maintenance.compact(full=True)
        elif size == 1_000 and with_deletes:
            table.delete("k LIKE '%3' AND n < 4")


@pytest.mark.parametrize(
    "engine", [exhaustive(e) if e == "sequence" else e for e in few(ENGINES, "deduplicate", "sequence", "aggregation")]
)
def test_chunks_have_the_rows_of_one_chunk(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = pa.schema([pa.field("k", pa.string(), False), pa.field("n", pa.int32(), False), ("a", pa.int64())])
    schema = schema.append(pa.field("s", pa.int32()))
    options = {"bucket": "1", "write-only": "true", "target-file-size": "8 kb", "page-size": "1 kb"}
    table = bitlake.connect(str(tmp_path)).create_table(
        "t", schema, primary_key=["k", "n"], options=options | ENGINES[engine]
    )
    upserts(table, 5, with_deletes=engine in ("deduplicate", "sequence"))
    asked = [
        table.scan(),
        table.scan(["a"]),
        table.scan([ROW_INDEX, "k", "a"]),
        table.scan([ROW_INDEX, "k"], where="a > 500 OR s = 3"),
        table.scan(["s"], where="k > 'key-01000' AND k < 'key-01100'"),
        table.scan(["k", "s"], where="n = 3 AND a IS NULL"),
        table.scan([ROW_INDEX, "k", "n"], where="k = 'key-02999'"),
        table.scan(["k"], where="a = 123456789"),
    ]
    once = [scan.to_arrow() for scan in asked]
    chunks = []
    merge_runs = sort_merge_reader.merge_runs

    def counted(sources: list[sort_merge_reader.SortedSource], keys: list[str]) -> object:
        found = list(merge_runs(sources, keys))
        chunks.append(len(found))
        yield from found

    monkeypatch.setattr("bitlake.scan.reader.merge_runs", counted)
    monkeypatch.setattr("bitlake.scan.column_reader._BATCH_ROWS", 64)
    monkeypatch.setattr(sort_merge_reader, "MEMORY", 1)
    again = [scan.to_arrow() for scan in asked]
    assert max(chunks) > 10
    for one, many in zip(once, again, strict=True):
        order = [(c, "ascending") for c in one.column_names]
        assert one.schema == many.schema
        assert one.sort_by(order).to_pylist() == many.sort_by(order).to_pylist()
    index = again[2].sort_by("k").column(ROW_INDEX).to_pylist()
    assert index == list(range(len(index)))  # positions count live rows in key order
    limited = table.scan(["k", "n"], limit=100).to_arrow()
    assert limited.num_rows == 100 and len(set(map(str, limited.to_pylist()))) == 100
