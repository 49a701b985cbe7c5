"""Merging runs: all rows of a key in one chunk, chunks in key order, memory as bounded as it says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from long import exhaustive

from bitlake.errors import CorruptError
from bitlake.merge import sort_merge_reader as stream
from bitlake.merge.sort_merge_reader import SortedSource, merge_runs

keys = st.one_of(
    st.just(st.tuples(st.integers(-5, 40))),
    st.just(st.tuples(st.text("ab\u00e9\U0001f600", max_size=3))),
    st.just(st.tuples(st.integers(0, 3), st.text("xy", max_size=2))),
    st.just(st.tuples(st.floats(allow_nan=False), st.booleans())),
)
runs = keys.flatmap(lambda key: st.lists(st.tuples(st.sets(key, max_size=25), st.integers(1, 7)), max_size=5))


def table_of(rows: Sequence[tuple[Any, ...]], run: int) -> pa.Table:
    columns = [[r[i] for r in rows] for i in range(len(rows[0]))]
    return pa.table({**{f"k{i}": c for i, c in enumerate(columns)}, "run": [run] * len(rows)})


def batches(rows: Sequence[tuple[Any, ...]], size: int, run: int, taken: list[int]) -> Iterator[pa.Table]:
    for start in range(0, len(rows), size):
        taken[run] += len(rows[start : start + size])
        yield table_of(rows[start : start + size], run)


def place(key: tuple[Any, ...]) -> tuple[Any, ...]:
    # -0.0 is below 0.0.
    return tuple((v, str(v)[0] != "-") if isinstance(v, float) else v for v in key)


@pytest.mark.parametrize("examples", [50, exhaustive(150)])
def test_every_key_comes_whole_and_in_order(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(runs, st.sampled_from([1, 300, 1 << 30]))
    def run(made: list[tuple[set[Any], int]], memory: int) -> None:
        held = stream.MEMORY
        stream.MEMORY = memory
        try:
            sorted_runs = [(sorted(rows, key=place), size) for rows, size in made]
            taken = [0] * len(made)
            width = next((len(r[0]) for r, _ in sorted_runs if r), 1)
            sources = [SortedSource(batches(r, n, i, taken), f"run {i}") for i, (r, n) in enumerate(sorted_runs)]
            names = [f"k{i}" for i in range(width)]
            found: list[tuple[Any, ...]] = []
            last: tuple[Any, ...] | None = None
            for chunk in merge_runs(sources, names):
                assert chunk.num_rows
                rows = [tuple(r.values()) for r in chunk.to_pylist()]
                chunk_keys = sorted(place(r[:-1]) for r in rows)
                assert last is None or chunk_keys[0] > last
                last = chunk_keys[-1]
                found += rows
                if memory == 1:
                    # A run holds one batch that is not out yet, at most.
                    for i, (_, size) in enumerate(sorted_runs):
                        assert taken[i] - sum(r[-1] == i for r in found) <= 2 * size
            wanted = [(*k, i) for i, (r, _) in enumerate(sorted_runs) for k in r]
            assert sorted(found, key=repr) == sorted(wanted, key=repr)
        finally:
            stream.MEMORY = held

    run()


def test_small_runs_come_as_one_chunk() -> None:
    taken = [0, 0]
    parts = [batches([(i,) for i in range(n, 100, 2)], 7, n, taken) for n in (0, 1)]
    (chunk,) = merge_runs([SortedSource(p, "") for p in parts], ["k0"])
    assert chunk.num_rows == 100


@pytest.mark.parametrize("rows", [[2, 1], [1, 2, 3, 1], [None, 1]])
def test_rows_that_are_not_in_key_order_are_an_error(rows: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MEMORY", 1)
    parts = [pa.table({"k0": pa.array(rows[i : i + 3], pa.int64())}) for i in range(0, len(rows), 3)]
    with pytest.raises(CorruptError, match="the file"):
        list(merge_runs([SortedSource(iter(parts), "the file")], ["k0"]))


@pytest.mark.parametrize("memory", [1, 200, 1 << 30])
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_a_key_that_a_run_repeats_comes_whole(size: int, memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some releases of pypaimon sorted the rows of an upsert and did not merge them."""
    monkeypatch.setattr(stream, "MEMORY", memory)
    runs = [[(i // 3,) for i in range(40)], [(i // 2,) for i in range(9, 50)], [(5,)] * 11]
    taken = [0] * len(runs)
    sources = [SortedSource(batches(rows, size, i, taken), f"run {i}") for i, rows in enumerate(runs)]
    chunks = [[r["k0"] for r in chunk.to_pylist()] for chunk in merge_runs(sources, ["k0"])]
    assert sorted(k for chunk in chunks for k in chunk) == sorted(k for run in runs for (k,) in run)
    assert all(max(one) < min(other) for one, other in pairwise(chunks))
    assert memory > 1 or len(chunks) > 3
