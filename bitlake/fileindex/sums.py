"""Exact sums of integers over groups of rows: from bit slices, from the rows' numbers, and from counted values.

Sums do not overflow: they are Python integers.  Slice ``i`` of a column holds the rows whose number has bit ``i``, so a
group's sum is Σ 2^i · |slice i ∧ group|, without reading any row.  If few rows belong to many groups, it is cheaper to
look up each row's number (:func:`bitlake.fileindex.keyed.codes_of`).  :func:`cheapest` chooses one of these, or to read
the column.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from bitlake.codec.hashing import Int64s
from bitlake.codec.roaring import positions_of
from bitlake.fileindex.capabilities import ValueSums
from bitlake.fileindex.keyed import is_few

_BIT_SET_NS, _CONTAINER_NS, _POSITION_NS = 400, 20, 4
"""Counting the rows that a group and a slice share (measured): AND of two bit sets of 65,536 rows; finding a container;
and looking up one position of a small container."""
_CALL_NS = 150
_LOOK_UP_NS, _UNPACK_NS = 20, 5
"""Looking up one bit of a row where rows are few, and unpacking a bit of every row where they are many (measured)."""
_READ_NS = 5
"""Reading a number of the column from the data file, for each row; whatever the selection, whole pages are decoded."""
_OPEN_NS = 5_000_000
"""Opening a data file and reading its footer."""
_LOW = 0xFFFFFFFF


class Way(Enum):
    """Ways to compute sums from bit slices."""

    SLICES = "slices"
    ROWS = "rows"


def sizes_of(groups: Sequence[BitMap | None], rows: int) -> Int64s:
    """The number of rows in each group; None: all ``rows``."""
    return np.array([rows if g is None else len(g) for g in groups], np.int64)


def cheapest(slices: int, groups: Sequence[BitMap | None], row_count: int, *, by_slices: bool = True) -> Way | None:
    """The cheapest way to sum a column of ``slices`` bit slices over groups.  None: reading the column is cheaper.

    ``by_slices``: whether the slices are the bits of the values, and not only of codes.
    """
    sizes = sizes_of(groups, row_count)
    few = is_few(int(sizes.sum()), row_count)
    costs = {Way.ROWS: slices * (int(sizes.sum()) * _LOOK_UP_NS if few else row_count * _UNPACK_NS)}
    if by_slices:
        containers = np.array([_containers(g, row_count) for g in groups], np.int64)
        shared = np.minimum(sizes * _POSITION_NS, containers * _BIT_SET_NS) + containers * _CONTAINER_NS
        costs[Way.SLICES] = slices * (len(groups) * _CALL_NS + int(shared.sum()))
    way = min(costs, key=lambda w: costs[w])
    return way if costs[way] <= row_count * _READ_NS + _OPEN_NS else None


def _containers(group: BitMap | None, row_count: int) -> int:
    """The number of containers, of 65,536 rows each, in which a group has rows; None: all rows."""
    return (row_count >> 16) + 1 if group is None else int(group.get_statistics()["n_containers"])


def held_rows(groups: Sequence[BitMap | None], present: BitMap) -> list[BitMap]:
    """The rows of each group that are ``present``."""
    return [present if g is None else g & present for g in groups]


def of_slices(slices: Sequence[BitMap], groups: Sequence[BitMap]) -> list[int]:
    """The sum of each group's numbers."""
    return [sum(rows.intersection_cardinality(group) << i for i, rows in enumerate(slices)) for group in groups]


def of_runs(numbers: npt.NDArray[np.integer], bounds: Int64s) -> list[int]:
    """The exact sum of each run ``numbers[bounds[i]:bounds[i + 1]]`` of at most 2^31 64-bit integers."""
    wide = numbers.astype(np.int64, copy=False)
    # Halves of 32 bits do not overflow 64 bits within 2^31 rows.
    high = np.diff(np.concatenate(([0], np.cumsum(wide >> 32)))[bounds])
    low = np.diff(np.concatenate(([0], np.cumsum(wide & _LOW)))[bounds])
    return [(h << 32) + n for h, n in zip(high.tolist(), low.tolist(), strict=True)]


def of_rows(groups: Sequence[BitMap], rows: Int64s, numbers: Int64s) -> ValueSums:
    """The sums over disjoint groups of ``rows``, ascending, each with its number; a group holds no other rows."""
    positions = [positions_of(group) for group in groups]
    counts = np.array([len(p) for p in positions], np.int64)
    bounds = np.concatenate(([0], np.cumsum(counts)))
    grouped = numbers[np.searchsorted(rows, np.concatenate([np.zeros(0, np.int64), *positions]))]
    return of_grouped(grouped, bounds)


def of_grouped(numbers: Int64s, bounds: Int64s) -> ValueSums:
    """The sums of runs of numbers, as of :func:`of_runs`."""
    above = of_runs(np.where(numbers > 0, numbers, 0), bounds)
    below = of_runs(np.where(numbers < 0, numbers, 0), bounds)
    totals = [a + b for a, b in zip(above, below, strict=True)]
    return ValueSums(np.diff(bounds), totals, [a - b for a, b in zip(above, below, strict=True)])


def of_counts(numbers: Int64s, counts: Sequence[Int64s]) -> ValueSums:
    """The sums over groups of which each has ``counts[g][i]`` rows of the number ``numbers[i]``."""
    totals, magnitudes = [], []
    high, low = numbers >> 32, numbers & _LOW
    negative = numbers < 0
    for each in counts:
        above, below = np.where(negative, 0, each), np.where(negative, each, 0)
        up = (int(high @ above) << 32) + int(low @ above)
        down = (int(high @ below) << 32) + int(low @ below)
        totals.append(up + down)
        magnitudes.append(up - down)
    return ValueSums(np.array([int(c.sum()) for c in counts], np.int64), totals, magnitudes)
