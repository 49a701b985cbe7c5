"""Roaring bitmaps of many positions, made and asked through packed masks instead of position by position.

A container of 65,536 rows that holds more than 4,096 of them *is* their packed mask, so setting bytes of a mask and
packing it makes the same bitmap tens of times faster than adding positions does.  Layout: :mod:`bitlake.codec.roaring`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from bitlake.codec.roaring import ARRAY_LIMIT, PLAIN, bitmap_of, positions_of, serialize_mask

Bools = npt.NDArray[np.bool_]
_ROWS = 1 << 16
_WINDOW = 64 * _ROWS
"""Rows in one mask: 4 MB of it stay in the cache while it is filled and packed."""
_CHUNK = 1 << 18
"""Positions looked up at a time: 2 MB of them stay in the cache."""
_SPARSE = 64
"""With fewer than one position in so many rows, adding positions is quicker than passing over the mask."""


def bitmap_of_any(positions: npt.NDArray[np.integer]) -> BitMap:
    """A bitmap of positions of any order and number (0 ≤ p < 2^32), repeats allowed."""
    if len(positions) < 2:
        return bitmap_of(positions)
    if not bool(np.all(positions[1:] >= positions[:-1])):
        low, high = int(positions.min()), int(positions.max())
        if high - low < _WINDOW and len(positions) * _SPARSE > high - low:
            return _packed(positions, low // _ROWS * _ROWS, high)
        positions = np.sort(positions)
    first, last = int(positions[0]), int(positions[-1])
    if len(positions) * _SPARSE <= last - first:
        return bitmap_of(positions)
    start = first // _ROWS * _ROWS
    borders = np.arange(start, last + _WINDOW, _WINDOW)
    cuts = np.searchsorted(positions, borders.astype(positions.dtype, copy=False)).tolist()
    out = BitMap()
    for at, begin, end in zip(borders.tolist(), cuts, [*cuts[1:], len(positions)], strict=True):
        part = positions[begin:end]
        if len(part) * _SPARSE <= _WINDOW:
            out |= bitmap_of(part)
        else:
            out |= _packed(part, at, int(part[-1]))
    return out


def _packed(positions: npt.NDArray[np.integer], start: int, last: int) -> BitMap:
    """A bitmap of positions from ``start``, a container's first row, to ``last``."""
    mask = np.zeros(last - start + 1, np.bool_)
    mask[positions - start if start else positions] = True
    return BitMap.deserialize(serialize_mask(mask, start // _ROWS))


def mask_of(bitmap: BitMap, start: int, stop: int) -> Bools:
    """Which of the rows ``start`` to ``stop`` (not included) a bitmap holds."""
    mask = np.zeros(max(0, stop - start), np.bool_)
    for low in range(start, stop, _WINDOW):
        high = min(low + _WINDOW, stop)
        part = bitmap & BitMap(range(low, high))
        rows = _unpacked(part, low, high)
        if rows is not None:
            mask[low - start : low - start + len(rows)] = rows
        else:
            mask[np.frombuffer(part.to_array(), np.uint32).astype(np.int64) - start] = True
    return mask


def _unpacked(bitmap: BitMap, low: int, high: int) -> Bools | None:
    """The mask, from row ``low`` on, of a bitmap whose containers are all bit sets without gaps between; else None."""
    data = bitmap.serialize()
    if len(data) < 8 or int.from_bytes(data[:4], "little") != PLAIN:
        return None
    n = int.from_bytes(data[4:8], "little")
    head = 8 + 8 * n
    first = low // _ROWS
    described = np.frombuffer(data, "<u2", 2 * n, 8)
    # A container's cardinality less one comes after its key.
    if not np.array_equal(described[::2], np.arange(first, first + n)) or np.any(described[1::2] < ARRAY_LIMIT):
        return None
    bits = np.unpackbits(np.frombuffer(data, np.uint8, -1, head), bitorder="little").view(np.bool_)
    begin = low - first * _ROWS
    return bits[begin : begin + high - low]


def contains(bitmap: BitMap, positions: npt.NDArray[np.integer]) -> Bools:
    """For each position whether a bitmap holds it; in any order, quickest ascending.

    Chunks of positions that lie close together are looked up in a mask of their span, others are intersected.
    """
    found = np.zeros(len(positions), np.bool_)
    for begin in range(0, len(positions) if bitmap else 0, _CHUNK):
        part = positions[begin : begin + _CHUNK]
        low, high = int(part.min()) // _ROWS * _ROWS, int(part.max()) + 1
        if high - low <= _SPARSE * len(part) or high - low <= _ROWS:
            # Every index is in range: "clip" spares looking again, and take is quicker than an index in brackets.
            mask_of(bitmap, low, high).take(
                part - low if low else part, out=found[begin : begin + len(part)], mode="clip"
            )
        else:
            held = positions_of(bitmap & bitmap_of(np.sort(part)))
            found[begin : begin + _CHUNK] = np.isin(part, held)
    return found


__all__ = ["bitmap_of_any", "contains", "mask_of"]
