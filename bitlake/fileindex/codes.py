"""Columns as codes: the distinct keys of a column, and which of them each row has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bitlake.codec.hashing import Int64s
from bitlake.fileindex.keys import Keys, chunks

_COLLAPSE = 1 << 20
"""Dictionary entries held beyond the distinct ones before they are unified: bounds memory over many batches."""


@dataclass(frozen=True, slots=True)
class Coded:
    """A column: ``dictionary`` (distinct keys, each used, no NULL) and ``codes`` (int32 per row, -1 = NULL)."""

    dictionary: pa.Array
    codes: npt.NDArray[np.int32]

    @property
    def cardinality(self) -> int:
        """How many distinct keys there are."""
        return len(self.dictionary)


class Coder:
    """Gathers a column batch by batch in about 4 bytes a row, plus its distinct keys."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._parts: list[pa.DictionaryArray] = []
        self._entries = 0
        self._distinct = 0

    def add(self, column: pa.Array | pa.ChunkedArray) -> None:
        """Append a column's rows."""
        for chunk in chunks(column):
            keys = self._keys.of_array(chunk)
            if not isinstance(keys, pa.DictionaryArray):
                keys = keys.dictionary_encode()
            elif keys.indices.type != pa.int32():
                keys = pa.DictionaryArray.from_arrays(keys.indices.cast(pa.int32()), keys.dictionary)
            self._parts.append(keys)
            self._entries += len(keys.dictionary)
            if self._entries > 2 * self._distinct + _COLLAPSE:
                self._unify()

    def _unify(self) -> None:
        whole = pa.chunked_array(self._parts).unify_dictionaries()
        self._parts = list(whole.chunks)
        self._distinct = self._entries = len(self._parts[0].dictionary)

    def finish(self) -> Coded:
        """The gathered column; the coder is empty afterwards."""
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
