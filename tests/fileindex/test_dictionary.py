from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from bitlake.fileindex.dictionary import Coder, first_rows, rows_by_group
from bitlake.fileindex.keyed import keys_of
from bitlake.types import parse_type


def code(kind: str, *parts: pa.Array) -> tuple[list, list[int], bool]:
    keys = keys_of(parse_type(kind))
    assert keys is not None
    coder = Coder(keys)
    for part in parts:
        coder.add(part)
    coded = coder.finish()
    distinct = coded.dictionary.to_pylist()
    assert len(set(distinct)) == len(distinct) and set(coded.codes.tolist()) - {-1} == set(range(len(distinct)))
    return [None if c < 0 else distinct[c] for c in coded.codes], distinct, coded.ordered


@pytest.mark.parametrize("high", [10, 5000, 10**15])
@pytest.mark.parametrize("kind", ["INT", "BIGINT", "DOUBLE"])
def test_codes_give_the_values_back(kind: str, high: int) -> None:
    rng = np.random.default_rng(1)
    numbers = rng.integers(-high, high, 9000) % (2**31 if kind == "INT" else 2**60)
    values = numbers.astype({"INT": np.int32, "BIGINT": np.int64, "DOUBLE": np.float64}[kind])
    array = pa.array(values, mask=rng.random(9000) < 0.1)
    keys = keys_of(parse_type(kind))
    assert keys is not None
    want = keys.of_array(array).to_pylist()
    got, distinct, ordered = code(kind, array[:5000], array[5000:7000].dictionary_encode(), array[7000:])
    assert got == want
    assert ordered == (high > 1000) or high == 5000
    if ordered:
        order = keys.order(np.array(distinct, keys.dtype))
        assert (np.diff(order) > 0).all()


def test_values_far_apart_are_sorted_and_not_counted() -> None:
    """Counting them would take an array of their range."""
    values = np.tile(np.array([2**50, -(2**50)]), 3000)
    got, distinct, _ = code("BIGINT", pa.array(values))
    assert got == values.tolist() and sorted(distinct) == [-(2**50), 2**50]


def test_unused_and_repeated_dictionary_entries() -> None:
    odd = pa.DictionaryArray.from_arrays(pa.array([3, 1, None, 3], pa.int8()), pa.array(["x", "a", "a", "b"]))
    assert code("STRING", odd)[:2] == ([b"b", b"a", None, b"b"], [b"a", b"b"])
    assert code("STRING", pa.nulls(3, pa.string()))[0] == [None] * 3
    assert code("STRING") == ([], [], False)


def test_many_batches_are_unified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bitlake.fileindex.dictionary._COLLAPSE", 10)
    parts = [pa.array([f"v{i % 7}" for i in range(n, n + 9)]) for n in range(20)]
    assert code("STRING", *parts)[0] == [v.encode() for p in parts for v in p.to_pylist()]


@pytest.mark.parametrize("count", [1, 3, 255, 256, 257, 300, 65_535, 65_536, 65_537, 70_000])
def test_grouping(count: int) -> None:
    codes = np.random.default_rng(2).integers(0, count, 200_000).astype(np.int32)
    codes[-2:] = 0, count - 1
    rows, bounds = rows_by_group(codes, count)
    assert (np.diff(bounds) == np.bincount(codes, minlength=count)).all()
    assert (rows == np.argsort(codes, kind="stable")).all()
    first = first_rows(codes, count)
    assert first[codes[0]] == 0
    for c in (0, count - 1):
        where = np.flatnonzero(codes == c)
        assert first[c] == (where[0] if len(where) else -1)
