"""Space-filling curves for clustering: z-order and Hilbert.

Sorting rows by their position on a curve through several columns keeps rows together that are close in all of them.
Each value is replaced by its rank among bounds that cut a sample of its column into equal shares, NULL first, so that
columns weigh the same whatever their type and range.  The ranks of all columns then make one number: ``zorder``
interleaves their bits, ``hilbert`` takes the position on a Hilbert curve, which never jumps (J. Skilling, Programming
the Hilbert curve, 2004).  All functions work on whole columns.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from bitlake.codec.hashing import Int64s
from bitlake.lazy_modules import compute as pc

MOST_BITS = 16
"""Bits of a rank at most: finer shares of a column make no difference to files."""


def bits_for(columns: int) -> int:
    """Return the bits of a rank for which the ranks of all columns fit into 63 bits."""
    return max(1, min(MOST_BITS, 63 // columns))


def bounds_of(sample: pa.Array, bits: int) -> pa.Array:
    """Return values that cut a column into at most ``2**bits - 1`` shares, ascending and distinct."""
    values = sample.drop_null()
    ordered = values.take(pc.sort_indices(values))
    # NULL has a share of its own, and n bounds make n + 1.
    shares = min(len(ordered), (1 << bits) - 2)
    if shares <= 0:
        return ordered.slice(0, 0)
    at = np.unique(np.linspace(0, len(ordered) - 1, shares).astype(np.int64))
    return pc.unique(ordered.take(pa.array(at)))


def ranks(column: pa.Array, bounds: pa.Array, bits: int) -> Int64s:
    """Return the rank of each value, below ``2**bits``: 0 for NULL, else from the number of bounds at or below it.

    Ranks of a column with few bounds are spread from 1 to the largest rank: otherwise the column's highest bits would
    all be 0, and the curve would go through the other columns first.
    """
    if len(bounds) == 0:
        valid: Int64s = column.is_valid().to_numpy(zero_copy_only=False).astype(np.int64)
        return valid
    both = pa.concat_arrays([bounds, column])
    order = pc.sort_indices(both).to_numpy()
    passed = np.cumsum(order < len(bounds))
    out = np.empty(len(both), np.int64)
    # The sort is stable: a bound comes before the values that equal it.
    out[order] = passed + 1
    spread = 1 + (out[len(bounds) :] - 1) * ((1 << bits) - 2) // len(bounds)
    spread[column.is_null().to_numpy(zero_copy_only=False)] = 0
    return spread


def zorder(columns: Sequence[Int64s], bits: int) -> Int64s:
    """Interleave the bits of non-negative numbers below ``2**bits``, the first column's highest bit first."""
    out = np.zeros(len(columns[0]), np.int64)
    for bit in range(bits - 1, -1, -1):
        for column in columns:
            out = out << 1 | (column >> bit & 1)
    return out


def hilbert(columns: Sequence[Int64s], bits: int) -> Int64s:
    """Return the position of each point (non-negative coordinates below ``2**bits``) on a Hilbert curve."""
    x = [c.copy() for c in columns]
    top = 1 << (bits - 1)
    q = top
    while q > 1:
        low = q - 1
        for i in range(len(x)):
            inverted = (x[i] & q) != 0
            swapped = np.where(inverted, 0, (x[0] ^ x[i]) & low)
            x[0] = np.where(inverted, x[0] ^ low, x[0] ^ swapped)
            if i:
                x[i] = x[i] ^ swapped
        q >>= 1
    for i in range(1, len(x)):
        x[i] = x[i] ^ x[i - 1]
    turn = np.zeros(len(x[0]), np.int64)
    q = top
    while q > 1:
        turn = np.where((x[-1] & q) != 0, turn ^ (q - 1), turn)
        q >>= 1
    return zorder([c ^ turn for c in x], bits)
