"""Whole columns as numbers: equal numbers for equal keys, ordered numbers for ordered sequences.

Paimon compares numbers of a key or sequence as Java does: -0.0 is smaller than 0.0, NaN is one value and the greatest;
text and bytes by their bytes.  NULL is the smallest, also in a descending ``sequence.field``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Int64s = npt.NDArray[np.int64]
_NULL = np.int64(-(2**63))


@dataclass(frozen=True, slots=True)
class Groups:
    """Rows in the order in which they merge.

    ``order``: row numbers, rows of one key side by side; the rows of group ``g`` are
    ``order[starts[g]:starts[g] + sizes[g]]``, the first to merge first.
    """

    order: Int64s
    starts: Int64s
    sizes: Int64s

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def last(self) -> Int64s:
        """The row of each group that merges last."""
        rows: Int64s = self.order[self.starts + self.sizes - 1]
        return rows

    def only(self, wanted: npt.NDArray[np.bool_]) -> Groups:
        """Some of the groups."""
        sizes = self.sizes[wanted]
        order = self.order[np.repeat(wanted, self.sizes)]
        return Groups(order, np.cumsum(sizes) - sizes, sizes)


def group_rows(keys: Sequence[Any], ordering: Sequence[Int64s]) -> Groups:
    """Rows grouped by key columns (Arrow, of one length), inside a group by ``ordering``, the first counting most."""
    rows = len(ordering[0])
    codes = [equality_codes(k) for k in keys]
    order = np.lexsort((*reversed(ordering), *reversed(codes))).astype(np.int64)
    fresh = np.zeros(rows, bool)
    fresh[:1] = True
    for code in codes:
        ordered = code[order]
        fresh[1:] |= ordered[1:] != ordered[:-1]
    starts = np.flatnonzero(fresh).astype(np.int64)
    return Groups(order, starts, np.diff(np.append(starts, rows)))


def equality_codes(column: Any) -> Int64s:
    """A number for each row; equal iff the values are (NULL equals NULL).  Ordered like the values where cheap."""
    array = _one(column)
    plain = _integers(array)
    if plain is not None and not array.null_count:
        return plain
    encoded = (array if plain is None else pa.array(plain, mask=_nulls(array))).dictionary_encode()
    codes: Int64s = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def order_codes(column: Any, descending: bool = False) -> Int64s:
    """A number for each row, ordered as Paimon orders the values; NULL is the smallest."""
    array = _one(column)
    plain = _integers(array)
    nulls = _nulls(array)
    if plain is None or (len(plain) and plain.min() == _NULL):
        ranked = pc.rank(array if plain is None else pa.array(plain), sort_keys="ascending", tiebreaker="dense")
        plain = ranked.to_numpy(zero_copy_only=False).astype(np.int64)
    return np.where(nulls, _NULL, -plain if descending else plain)


def dense_ranks(codes: Sequence[Int64s]) -> Int64s:
    """The place of each row by several codes, the first counting most; equal rows share one, the first is 0."""
    order = np.lexsort(tuple(reversed(codes)))
    step = np.zeros(len(order), bool)
    for code in codes:
        ordered = code[order]
        step[1:] |= ordered[1:] != ordered[:-1]
    out = np.empty(len(order), np.int64)
    out[order] = np.cumsum(step)
    return out


def _one(column: Any) -> pa.Array:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _nulls(array: pa.Array) -> npt.NDArray[np.bool_]:
    mask: npt.NDArray[np.bool_] = array.is_null().to_numpy(zero_copy_only=False)
    return mask


def _integers(array: pa.Array) -> Int64s | None:
    """Values that are numbers inside as int64 of the same order (anything where NULL), or None."""
    kind = array.type
    t = pa.types
    if t.is_boolean(kind):
        return _numpy(array.fill_null(False))
    if t.is_integer(kind) and not t.is_uint64(kind):
        return _numpy(array.fill_null(0))
    if t.is_date32(kind) or t.is_time32(kind):
        return _integers(array.view(pa.int32()))
    if t.is_timestamp(kind) or t.is_time64(kind):
        return _integers(array.view(pa.int64()))
    if t.is_floating(kind):
        values = array.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
        bits = np.where(np.isnan(values), np.float64("nan"), values).view(np.int64)
        return np.where(bits < 0, bits ^ np.int64(0x7FFFFFFFFFFFFFFF), bits)
    return None


def _numpy(array: pa.Array) -> Int64s:
    values: Int64s = array.to_numpy(zero_copy_only=False).astype(np.int64)
    return values
