"""Searching sorted keys: where a key falls among them, and which keys of two sorted lists are the same.

Nothing here touches row after row in Python: a search compares about log2(n) keys, a match whole columns.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bitlake.table.merge.order import Int64s, in_order, key_columns

Key = tuple[Any, ...]
"""A key of :class:`SortedKeys`: a code or value for each column; compares as Paimon compares keys."""


@dataclass(frozen=True, slots=True)
class SortedKeys:
    """Keys in ascending order; ``columns`` as :func:`bitlake.table.merge.order.key_columns` makes them."""

    columns: tuple[Any, ...]

    @staticmethod
    def of(keys: Sequence[Any]) -> SortedKeys:
        """Of key columns (Arrow, of one length, without NULL)."""
        return SortedKeys(tuple(key_columns(keys)))

    def __len__(self) -> int:
        return len(self.columns[0])

    def at(self, i: int) -> Key:
        """One key."""
        return tuple(int(c[i]) if isinstance(c, np.ndarray) else c[i].as_py() for c in self.columns)

    def lower(self, key: Key) -> int:
        """How many keys are below ``key``."""
        if len(self.columns) == 1 and isinstance(self.columns[0], np.ndarray):
            return int(np.searchsorted(self.columns[0], key[0], "left"))
        return bisect_left(range(len(self)), key, key=self.at)

    def upper(self, key: Key) -> int:
        """How many keys are ``key`` or below."""
        if len(self.columns) == 1 and isinstance(self.columns[0], np.ndarray):
            return int(np.searchsorted(self.columns[0], key[0], "right"))
        return bisect_right(range(len(self)), key, key=self.at)

    def slice(self, start: int, stop: int) -> SortedKeys:
        """Neighbouring keys."""
        return SortedKeys(tuple(c[start:stop] for c in self.columns))

    def take(self, places: Int64s) -> SortedKeys:
        """Some of the keys; ``places`` ascend."""
        rows = pa.array(places)
        return SortedKeys(tuple(c[places] if isinstance(c, np.ndarray) else c.take(rows) for c in self.columns))

    @property
    def ascend(self) -> bool:
        """Whether the keys really are in order; equal neighbours are."""
        return in_order(self.columns)


def match(few: SortedKeys, many: SortedKeys) -> tuple[Int64s, Int64s]:
    """Pairs of places of equal keys, ascending in both lists.  Each list has a key once.

    Measured, 100k keys in 1M: int64 6 ms of CPU, text 70 ms, a number and a text 119 ms.
    """
    if not len(few) or not len(many):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    if len(few.columns) == 1 and isinstance(few.columns[0], np.ndarray):
        return _search(few.columns[0], many.columns[0])
    wanted, found = np.zeros(len(few), np.int64), np.zeros(len(many), np.int64)
    known = np.ones(len(many), bool)
    for left, right in zip(few.columns, many.columns, strict=True):
        size, of_left, of_right = _codes(left, right)
        known &= of_right >= 0
        # Each step's numbers stay below len(few) * size: no overflow, whatever the number of columns.
        steps, wanted = np.unique(wanted * size + of_left, return_inverse=True)
        mixed = found * size + of_right
        found = np.minimum(np.searchsorted(steps, mixed), len(steps) - 1)
        known &= steps[found] == mixed
    place = np.empty(len(few), np.int64)
    place[wanted] = np.arange(len(few))
    rows = np.flatnonzero(known)
    return place[found[rows]], rows


def _search(few: Int64s, many: Int64s) -> tuple[Int64s, Int64s]:
    if len(few) > len(many):
        rows, places = _search(many, few)
        return places, rows
    at = np.searchsorted(many, few)
    hit = many[np.minimum(at, len(many) - 1)] == few
    return np.flatnonzero(hit), at[hit].astype(np.int64, copy=False)


def _codes(left: Any, right: Any) -> tuple[int, Int64s, Int64s]:
    """Values as numbers below the first result, the same for the same; -1 for what is only on the right."""
    if isinstance(left, np.ndarray):
        values, of_left = np.unique(left, return_inverse=True)
        at = np.minimum(np.searchsorted(values, right), len(values) - 1)
        return len(values), of_left.astype(np.int64, copy=False), np.where(values[at] == right, at, -1)
    encoded = left.dictionary_encode()
    of_right = pc.index_in(right, value_set=encoded.dictionary).fill_null(-1)
    return len(encoded.dictionary), _int64(encoded.indices), _int64(of_right)


def _int64(array: pa.Array) -> npt.NDArray[np.int64]:
    out: npt.NDArray[np.int64] = array.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return out
