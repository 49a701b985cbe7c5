"""Columns as codes: the distinct keys of a column, and which of them each row has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bitlake.codec.hashing import Int64s
from bitlake.fileindex.keys import Ints, Keys, chunks

_COLLAPSE = 1 << 20
"""Dictionary entries held beyond the distinct ones before they are unified: bounds memory over many batches."""
_SAMPLE = 4096


@dataclass(frozen=True, slots=True)
class Coded:
    """A column: ``dictionary`` (distinct keys, each used, no NULL) and ``codes`` (int32 per row, -1 = NULL).

    ``ordered``: the dictionary is known to be sorted.
    """

    dictionary: pa.Array
    codes: npt.NDArray[np.int32]
    ordered: bool = False

    @property
    def cardinality(self) -> int:
        """How many distinct keys there are."""
        return len(self.dictionary)


class Coder:
    """Gathers a column batch by batch, in about 4 bytes a row plus its distinct keys.

    Numbers that hardly repeat are kept as they are (up to 8 bytes a row) and sorted at the end: three times faster than
    a hash table of them.
    """

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._parts: list[pa.DictionaryArray] = []
        self._entries = 0
        self._distinct = 0
        self._numbers: list[pa.Array] | None = None

    def add(self, column: pa.Array | pa.ChunkedArray) -> None:
        """Append a column's rows."""
        for chunk in chunks(column):
            keys = self._keys.of_array(chunk)
            if self._numbers is None and not self._parts and self._hardly_repeats(keys):
                self._numbers = []
            if self._numbers is not None:
                self._numbers.append(keys.dictionary_decode() if isinstance(keys, pa.DictionaryArray) else keys)
                continue
            if not isinstance(keys, pa.DictionaryArray):
                keys = keys.dictionary_encode()
            elif keys.indices.type != pa.int32():
                keys = pa.DictionaryArray.from_arrays(keys.indices.cast(pa.int32()), keys.dictionary)
            self._parts.append(keys)
            self._entries += len(keys.dictionary)
            if self._entries > 2 * self._distinct + _COLLAPSE:
                self._unify()

    def _hardly_repeats(self, keys: pa.Array) -> bool:
        if self._keys.width < 4 or len(keys) < _SAMPLE or isinstance(keys, pa.DictionaryArray):
            return False
        sample = keys.take(pa.array(np.arange(_SAMPLE) * (len(keys) // _SAMPLE))).drop_null()
        return len(sample.unique()) * 2 > _SAMPLE

    def _unify(self) -> None:
        whole = pa.chunked_array(self._parts).unify_dictionaries()
        self._parts = list(whole.chunks)
        self._distinct = self._entries = len(self._parts[0].dictionary)

    def finish(self) -> Coded:
        """The gathered column; the coder is empty afterwards."""
        if self._numbers is not None:
            numbers, self._numbers = pa.concat_arrays(self._numbers), None
            return _by_sorting(self._keys, numbers)
        if not self._parts:
            return Coded(pa.array([], self._keys.arrow), np.zeros(0, np.int32))
        if len(self._parts) > 1:
            self._unify()
        parts, self._parts = self._parts, []
        dictionary = parts[0].dictionary
        codes = np.concatenate([_codes(p.indices) for p in parts]) if len(parts) > 1 else _codes(parts[0].indices)
        used = np.bincount(codes + 1, minlength=len(dictionary) + 1)[1:] > 0
        if not used.all():  # dictionaries handed in may hold more than their rows use
            new = np.cumsum(used, dtype=np.int32) - 1
            codes = np.append(new, np.int32(-1))[codes]
            dictionary = dictionary.filter(pa.array(used))
        return Coded(dictionary, codes)


def _by_sorting(keys: Keys, column: pa.Array) -> Coded:
    present = column.drop_null() if column.null_count else column
    values = keys.numpy(present)
    ordered, found = _ranks(keys.order(values), keys)
    codes = found
    if column.null_count:
        codes = np.full(len(column), -1, np.int32)
        codes[column.is_valid().to_numpy(zero_copy_only=False)] = found
    return Coded(pa.array(ordered, keys.arrow), codes, ordered=True)


def _ranks(sortable: Ints, keys: Keys) -> tuple[Ints, npt.NDArray[np.int32]]:
    """(the distinct keys in order, which of them each value is)."""
    if len(sortable) == 0:
        return sortable, np.zeros(0, np.int32)
    least, most = int(sortable.min()), int(sortable.max())
    if most - least < 4 * len(sortable):  # dense: count instead of sorting
        offsets = sortable.astype(np.int64) - least
        there = np.zeros(most - least + 1, bool)
        there[offsets] = True
        rank = np.cumsum(there, dtype=np.int32) - 1
        return keys.order((np.flatnonzero(there) + least).astype(sortable.dtype)), rank[offsets]
    order = np.argsort(sortable)
    ascending = sortable[order]
    new = np.ones(len(order), bool)
    np.not_equal(ascending[1:], ascending[:-1], out=new[1:])
    codes = np.empty(len(order), np.int32)
    codes[order] = np.cumsum(new, dtype=np.int32) - 1
    return keys.order(ascending[new]), codes


def _codes(indices: pa.Array) -> npt.NDArray[np.int32]:
    filled = indices.fill_null(-1) if indices.null_count else indices
    codes: npt.NDArray[np.int32] = filled.to_numpy(zero_copy_only=False)
    return codes


def first_rows(codes: npt.NDArray[np.int32], cardinality: int) -> Int64s:
    """The first row of every code."""
    first = np.full(cardinality + 1, -1, np.int64)
    size = 1 << 16
    while True:  # usually every code shows up early
        part = codes[:size]
        # Of equal indices the last one assigned stays; code -1 lands in the spare last slot.
        first[part[::-1]] = np.arange(len(part) - 1, -1, -1)
        if size >= len(codes) or first[:-1].min(initial=0) >= 0:
            return first[:-1]
        size *= 8


def rows_by_group(groups: npt.NDArray[np.integer], count: int) -> tuple[Int64s, Int64s]:
    """Row positions sorted by group, ascending inside each; and the ``count + 1`` bounds of the groups."""
    bounds = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(groups, minlength=count), out=bounds[1:])
    # numpy's stable sort is a radix sort for up to 16 bits.
    if count <= 1 << 8:
        return np.argsort(groups.astype(np.uint8, copy=False), kind="stable"), bounds
    if count <= 1 << 16:
        return np.argsort(groups.astype(np.uint16, copy=False), kind="stable"), bounds
    by_low = np.argsort((groups & 0xFFFF).astype(np.uint16), kind="stable")
    by_high = np.argsort((groups >> 16).astype(np.uint16)[by_low], kind="stable")
    return by_low[by_high], bounds
