"""Bit-sliced numbers: the kernels of the range-bitmap and bsi indexes.

Slice ``i`` holds the rows whose number has bit ``i``; a comparison walks over the slices.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from bitlake.codec.roaring import serialize_mask


def encode_slices(numbers: npt.NDArray[np.integer], present: npt.NDArray[np.bool_], slices: int) -> list[bytes]:
    """Return the serialized slices of non-negative numbers; rows that are not ``present`` are in none."""
    held = np.where(present, numbers, 0)
    return [serialize_mask((held & held.dtype.type(1 << i)) != 0) for i in range(slices)]


def any_of(slices: Sequence[BitMap], present: BitMap, numbers: Iterable[int]) -> BitMap:
    """Return the rows of ``present`` that have one of these numbers.

    Splits rows and numbers from the top slice down, so that a long list costs only a few passes over the rows.
    """
    wanted = sorted({n for n in numbers if n >= 0 and not n >> len(slices)})
    found: list[BitMap] = []
    _descend(slices, present, wanted, len(slices), found)
    return BitMap.union(*found) if len(found) > 1 else found[0].copy() if found else BitMap()


def _descend(slices: Sequence[BitMap], rows: BitMap, wanted: list[int], bits: int, found: list[BitMap]) -> None:
    if not wanted or not rows:
        return
    if len(wanted) == 1 << bits:  # every number with these upper bits
        found.append(rows)
        return
    bit = bits - 1
    cut = bisect_left(wanted, 1, key=lambda n: n >> bit & 1)
    _descend(slices, rows - slices[bit] if cut else rows, wanted[:cut], bit, found)
    _descend(slices, rows & slices[bit] if cut < len(wanted) else rows, wanted[cut:], bit, found)


def at_least(slices: Sequence[BitMap], present: BitMap, number: int) -> BitMap:
    """Return the rows of ``present`` whose number is at least ``number``."""
    if number <= 0:
        return present.copy()
    number -= 1  # more than number - 1
    if number >> len(slices):
        return BitMap()
    # From the lowest 0 bit upwards: a 1 in number demands the bit, a 0 makes it enough.
    low = 0
    while number >> low & 1:
        low += 1
    if low >= len(slices):
        return BitMap()
    rows = slices[low].copy()
    for i in range(low + 1, len(slices)):
        if number >> i & 1:
            rows &= slices[i]
        else:
            rows |= slices[i]
    return rows & present


def top(slices: Sequence[BitMap], rows: BitMap, k: int, largest: bool) -> tuple[BitMap, BitMap]:
    """Return the k largest (or smallest) of ``rows``: (rows surely among them, rows that tie for the other places).

    O'Neil's algorithm.  Requires 0 < k < len(rows).
    """
    sure, tied = BitMap(), rows.copy()
    for rows_of_bit in reversed(slices):
        better = tied & rows_of_bit if largest else tied - rows_of_bit
        n = len(sure) + len(better)
        if n >= k:
            tied = better
            if n == k:
                break
        else:
            sure |= better
            tied -= better
    return sure, tied
