"""Whether values of two lists of rows are the same, whatever their type: NULL is the same as NULL, order counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bitlake.table.merge.order import Int64s, equality_codes

Bools = npt.NDArray[np.bool_]


def same_values(column: Any, left: Int64s, right: Int64s) -> Bools:
    """For each pair of rows of a column whether they hold the same value; nested ones by what is in them."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    kind = array.type
    if not pa.types.is_nested(kind):
        codes = equality_codes(array)
        out: Bools = codes[left] == codes[right]
        return out
    missing = array.is_null().to_numpy(zero_copy_only=False)
    same: Bools = missing[left] == missing[right]
    both = same & ~missing[left]
    if pa.types.is_struct(kind):
        for i in range(kind.num_fields):
            same &= ~both | same_values(array.field(i), left, right)
        return same
    offsets = np.asarray(array.offsets, dtype=np.int64)
    starts, sizes = offsets[:-1], np.diff(offsets)
    same &= ~both | (sizes[left] == sizes[right])
    pairs = np.flatnonzero(same & both & (sizes[left] > 0))
    if not len(pairs):
        return same
    lengths = sizes[left[pairs]]
    firsts = np.cumsum(lengths) - lengths
    within = np.arange(int(lengths.sum())) - np.repeat(firsts, lengths)
    inner_left = np.repeat(starts[left[pairs]], lengths) + within
    inner_right = np.repeat(starts[right[pairs]], lengths) + within
    # `keys`, `items` and `values` are the whole child arrays, as the offsets count.
    children = (array.keys, array.items) if pa.types.is_map(kind) else (array.values,)
    for child in children:
        equal = same_values(child, inner_left, inner_right)
        same[pairs] &= np.logical_and.reduceat(equal, firsts)
    return same
