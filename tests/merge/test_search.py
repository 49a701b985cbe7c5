"""Searches of sorted keys and pairs of equal keys, against Python's own comparison of a few keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bitlake.merge.keys import SortedKeys, match

NUMBERS = [-(2**63) + 1, 0, 2**63 - 1]
SHAPES: dict[str, tuple[list[tuple[Any, ...]], tuple[pa.DataType, ...]]] = {
    "number": ([(n,) for n in (*NUMBERS, 7)], (pa.int64(),)),
    "text": ([("",), ("a",), ("ab",), ("é",)], (pa.string(),)),
    "numbers": ([(a, b) for a in (-1, 1) for b in (-5, 5)], (pa.int32(), pa.int64())),
    "text and number": ([(a, b) for a in ("", "z") for b in (0, 9)], (pa.string(), pa.int64())),
    "three": ([(a, b, c) for a in (0, 1) for b in ("x", "y") for c in (2, 3)], (pa.int8(), pa.string(), pa.int64())),
}


def _keys(keys: Sequence[tuple[Any, ...]], kinds: Sequence[pa.DataType]) -> SortedKeys:
    return SortedKeys.of([pa.array([k[i] for k in keys], kind) for i, kind in enumerate(kinds)])


def _lists(keys: Sequence[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    for size in range(5 if len(keys) < 5 else 3):
        yield from (list(chosen) for chosen in combinations(sorted(keys), size))


@pytest.mark.parametrize("shape", SHAPES)
def test_matches_are_those_of_every_pair_of_lists(shape: str) -> None:
    keys, kinds = SHAPES[shape]
    made = [(chosen, _keys(chosen, kinds)) for chosen in _lists(keys)]
    for few, left in made:
        for many, right in made:
            rows, places = match(left, right)
            common = [k for k in few if k in many]
            assert rows.tolist() == [few.index(k) for k in common]
            assert places.tolist() == [many.index(k) for k in common]
            assert rows.dtype == places.dtype == np.int64


@pytest.mark.parametrize("shape", SHAPES)
def test_bounds_places_and_slices_of_every_list(shape: str) -> None:
    keys, kinds = SHAPES[shape]
    asked = [_keys([k], kinds).at(0) for k in keys]
    assert sorted(asked) == [_keys([k], kinds).at(0) for k in sorted(keys)]
    for chosen in _lists(keys):
        repeated = sorted([*chosen, *chosen[:1], *chosen[-1:]])
        made = _keys(repeated, kinds)
        known = [made.at(i) for i in range(len(made))]
        assert len(made) == len(repeated) and made.ascend
        for key in asked:
            assert made.lower(key) == sum(k < key for k in known)
            assert made.upper(key) == sum(k <= key for k in known)
        for start in range(len(made)):
            part = made.slice(start, start + 2)
            assert [part.at(i) for i in range(len(part))] == known[start : start + 2]
        odd = made.take(np.arange(1, len(made), 2))
        assert [odd.at(i) for i in range(len(odd))] == known[1::2]


def test_keys_out_of_order_are_noticed() -> None:
    for shape, (keys, kinds) in SHAPES.items():
        ordered = sorted(keys)
        for i in range(len(ordered) - 1):
            swapped = [*ordered[:i], ordered[i + 1], ordered[i], *ordered[i + 2 :]]
            assert not _keys(swapped, kinds).ascend, shape
