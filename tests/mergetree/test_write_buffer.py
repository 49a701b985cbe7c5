"""Batches made sorted runs: at once or as a stream, cut wherever it may be."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from lsm_builders import context_of

from bitlake.codec.binary_row import EMPTY_ROW, decode_row
from bitlake.errors import InvalidRequest
from bitlake.formats.file_format import reader_for
from bitlake.io import Store
from bitlake.mergetree import writer as buffer
from bitlake.mergetree.bucket import BucketChange, BucketReader, BucketState, MergeTreeContext
from bitlake.mergetree.writer import (
    BucketWriter,
    SortedMerge,
    merge_numbered,
    sorted_merged,
    sorted_rows,
    split_by_bucket,
    with_sequence,
)
from bitlake.metadata.manifest import ManifestEntry
from bitlake.schema.merge_spec import MergeSpec
from bitlake.write.writer import split_groups

COLUMNS = [("k", "STRING NOT NULL"), ("i", "INT NOT NULL"), ("a", "INT"), ("b", "STRING")]
ENGINES: list[dict[str, str]] = [
    {},
    {"sequence.field": "a"},
    {"sequence.field": "a,b", "sequence.field.sort-order": "descending"},
    {"merge-engine": "first-row", "ignore-delete": "true"},
    {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
    {"merge-engine": "aggregation", "fields.a.aggregate-function": "sum", "fields.b.aggregate-function": "last_value"},
]


def some_rows(chance: random.Random, count: int, kinds: bool = True) -> pa.Table:
    """Rows in the order they came, with kinds."""
    maybe = [None, 1, 2, 3]
    return pa.table(
        {
            "k": pa.array([chance.choice(["", "a", "b", "aé", "z"]) for _ in range(count)]),
            "i": pa.array([chance.randrange(3) for _ in range(count)], pa.int32()),
            "a": pa.array([chance.choice(maybe) for _ in range(count)], pa.int32()),
            "b": pa.array([chance.choice([None, "p", "q"]) for _ in range(count)]),
            "_VALUE_KIND": pa.array([chance.choice([0, 0, 2, 3]) if kinds else 0 for _ in range(count)], pa.int8()),
        }
    )


def spec_of(tmp_path: Path, options: dict[str, str]) -> tuple[MergeTreeContext, Store, MergeSpec]:
    context, store = context_of(tmp_path, COLUMNS, ["k", "i"], options)
    return context, store, MergeSpec.of(context.schema)


def plain(rows: pa.Table) -> list[dict[str, Any]]:
    names = ["k", "i", "a", "b", "_VALUE_KIND"]
    found: list[dict[str, Any]] = rows.select(names).to_pylist()
    return found


def test_merged_rows_are_numbered_in_the_order_of_keys(tmp_path: Path) -> None:
    _, _, spec = spec_of(tmp_path, {})
    rows = some_rows(random.Random(1), 2).set_column(0, "k", pa.array(["b", "a"]))
    made = merge_numbered(spec, with_sequence(rows, 7), 7)
    assert made.column("k").to_pylist() == ["a", "b"]
    assert made.column("_SEQUENCE_NUMBER").to_pylist() == [7, 8]


@pytest.mark.parametrize("options", ENGINES)
def test_a_stream_cut_anywhere_merges_as_the_whole(options: dict[str, str], tmp_path: Path) -> None:
    _, _, spec = spec_of(tmp_path, options)
    for seed in range(30):
        chance = random.Random(seed)
        rows = some_rows(chance, chance.randrange(1, 60))
        expected = sorted_merged(spec, rows, 100)
        keys = list(zip(expected.column("k").to_pylist(), expected.column("i").to_pylist(), strict=True))
        assert keys == sorted(set(keys))
        assert expected.column("_SEQUENCE_NUMBER").to_pylist() == list(range(100, 100 + len(keys)))
        sorted_all = sorted_rows(spec, rows, 100)
        stream, parts, start = SortedMerge(spec, 100), [], 0
        while start < rows.num_rows:
            size = chance.choice([1, 2, 3, 50])
            raw, merged = stream.add(sorted_all.drop_columns(["_SEQUENCE_NUMBER"]).slice(start, size))
            assert plain(raw) == plain(sorted_all.slice(start, size))
            parts += [] if merged is None else [merged]
            start += size
        last = stream.finish()
        assert last is not None and stream.finish() is None
        together = pa.concat_tables([*parts, last])
        assert plain(together) == plain(expected)
        numbers = together.column("_SEQUENCE_NUMBER").to_pylist()
        assert numbers == sorted(set(numbers)) and numbers[0] >= 100


def test_a_key_of_very_many_rows_is_not_held_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer, "_HELD_ROWS", 10)
    _, _, spec = spec_of(tmp_path, ENGINES[5])
    stream = SortedMerge(spec, 0)
    one = pa.table({"k": ["a"] * 8, "i": pa.array([1] * 8, pa.int32()), "a": pa.array([1] * 8, pa.int32()),
                    "b": ["x"] * 8, "_VALUE_KIND": pa.array([0] * 8, pa.int8())})  # fmt: skip
    for _ in range(20):
        _, merged = stream.add(one)
        assert merged is None
        assert sum(t.num_rows for t in stream._held) <= 10
    last = stream.finish()
    assert last is not None and last.column("a").to_pylist() == [160]


def test_a_stream_that_is_not_sorted_is_refused(tmp_path: Path) -> None:
    _, _, spec = spec_of(tmp_path, {})
    ordered = sorted_rows(spec, some_rows(random.Random(1), 40), 0).drop_columns(["_SEQUENCE_NUMBER"])
    with pytest.raises(InvalidRequest, match="key order"):
        SortedMerge(spec, 0).add(ordered.take(pa.array(range(39, -1, -1))))
    stream = SortedMerge(spec, 0)
    stream.add(ordered.slice(20))
    with pytest.raises(InvalidRequest, match="key order"):
        stream.add(ordered.slice(0, 20))


def stored(context: MergeTreeContext, store: Store, entries: tuple[ManifestEntry, ...]) -> list[dict[str, Any]]:
    reader = BucketReader(context, store, EMPTY_ROW, {})
    tables = [t for e in entries for t in reader.read(e, reader.columns)]
    return [] if not tables else plain(pa.concat_tables(tables))


@pytest.mark.parametrize("options", [{}, ENGINES[1], ENGINES[5], {"changelog-producer": "input"}])
def test_a_writer_makes_the_same_run_of_rows_in_any_order_and_in_key_order(
    options: dict[str, str], tmp_path: Path
) -> None:
    chance = random.Random(5)
    rows = some_rows(chance, 200)
    made: list[BucketChange] = []
    for is_sorted in (False, True):
        options = {**options, "target-file-row-num": "6"}
        context, store, spec = spec_of(tmp_path / str(is_sorted), options)
        state = BucketState(EMPTY_ROW, 0, 1)
        came = sorted_rows(spec, rows, 0).drop_columns(["_SEQUENCE_NUMBER"]) if is_sorted else rows
        with BucketWriter(context, store, state, sorted=is_sorted) as writer:
            for start in range(0, 200, 37):
                writer.write(came.slice(start, 37))
            made.append(writer.finish(compact=False))
        types = [context.schema.field(k).type for k in ("k", "i")]
        ends = [decode_row(types, m) for e in made[-1].new_files for m in (e.file.min_key, e.file.max_key)]
        assert ends == sorted(ends), "one run"
        assert all(e.file.row_count == 6 for e in made[-1].new_files[:-1])
        assert made[-1].rows == 200 and not made[-1].compaction
    unsorted, ordered = (
        stored(*spec_of(tmp_path / n, options)[:2], c.new_files) for n, c in zip(("False", "True"), made, strict=True)
    )
    assert unsorted == ordered == plain(sorted_merged(spec_of(tmp_path, options)[2], rows, 0))
    if "changelog-producer" in options:
        logs = []
        for name, change in zip(("False", "True"), made, strict=True):
            (log,) = change.changelog
            store = spec_of(tmp_path / name, options)[1]
            with store.open_input(next((tmp_path / name).rglob(log.file.file_name)).as_posix()) as source:
                reader = reader_for(log.file.file_name)
                columns = ["k", "i", "a", "b", "_VALUE_KIND"]
                logs.append(pa.table(next(iter(reader(source, columns, batch_size=1000)))).to_pylist())
        assert logs[0] == logs[1] and len(logs[0]) == 200


@pytest.mark.parametrize("producer", ["none", "input"])
def test_memory_bounds_the_runs_of_rows_in_any_order(tmp_path: Path, producer: str) -> None:
    context, store, _ = spec_of(tmp_path, {"write-buffer-size": "2 kb", "changelog-producer": producer})
    writer = BucketWriter(context, store, BucketState(EMPTY_ROW, 0, 1, reserved=1000))
    for seed in range(30):
        writer.write(some_rows(random.Random(seed), 30))
        assert writer.held_bytes < 2048
    change = writer.finish(compact=False)
    assert 5 < len(change.new_files) <= 30
    numbers = [(e.file.min_sequence_number, e.file.max_sequence_number) for e in change.new_files]
    assert all(a[1] < b[0] for a, b in pairwise(numbers)) and numbers[0][0] >= 1000
    logged = [(e.file.min_sequence_number, e.file.max_sequence_number) for e in change.changelog]
    assert all(a[1] < b[0] for a, b in pairwise(logged)) and len(logged) == len(numbers) * (producer == "input")
    assert sum(e.file.row_count for e in change.changelog) == 900 * (producer == "input")


def test_what_an_aborted_writer_made_is_gone(tmp_path: Path) -> None:
    context, store, _ = spec_of(tmp_path, {"changelog-producer": "input", "write-buffer-size": "1 b"})
    writer = BucketWriter(context, store, BucketState(EMPTY_ROW, 0, 1))

    def write() -> None:
        with writer:
            writer.write(some_rows(random.Random(0), 30))
            writer.write(some_rows(random.Random(0), 2).drop_columns(["_VALUE_KIND"]), [3, 9])

    with pytest.raises(InvalidRequest, match="row kind"):
        write()
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


# --- buckets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [["k", "i"], ["i", "k"]])
def test_rows_are_spread_as_before_and_sorted(keys: list[str], tmp_path: Path) -> None:
    context, _ = context_of(tmp_path, COLUMNS, keys, {"bucket": "3", "bucket-key": "i"})
    rows = some_rows(random.Random(3), 300)
    rows = rows.append_column("at", pa.array(np.arange(300)))
    expected = {bucket: part for _, bucket, part in split_groups(rows, context.schema)}
    shares = list(split_by_bucket(rows, context.schema))
    assert {s.bucket for s in shares} == set(expected) and len(shares) == len(expected)
    for share in shares:
        assert share.partition == EMPTY_ROW and share.hashes is None
        found = share.rows.to_pylist()
        assert found == sorted(expected[share.bucket].to_pylist(), key=lambda r: (*(r[k] for k in keys), r["at"]))
    assert list(split_by_bucket(rows.slice(0, 0), context.schema)) == []
