"""Dictionary encoding: the distinct keys of a column, and the code of each row.

Also packing and reading lists of (key, fixed-size tail) records, as bitmap and range-bitmap indexes store them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bitlake.codec.hashing import Int64s
from bitlake.errors import CorruptError
from bitlake.fileindex.keyed import Ints, Keys, chunks
from bitlake.fileindex.payload import LazyBytes
from bitlake.lazy_modules import compute as pc

_COLLAPSE = 1 << 20
"""Dictionary entries beyond the distinct ones at which dictionaries are unified: bounds memory over many batches."""
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
        """The number of distinct keys."""
        return len(self.dictionary)


class Coder:
    """Encodes a column batch by batch.  Memory: about 4 bytes a row plus the distinct keys.

    Numbers that hardly repeat are kept as they are (up to 8 bytes a row) and sorted at the end, which is three times
    faster than a hash table.
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
        # One part, or the next call would look up the whole dictionary again for each.
        parts = pa.chunked_array(self._parts).unify_dictionaries().chunks
        indices = pa.concat_arrays([p.indices for p in parts])
        self._parts = [pa.DictionaryArray.from_arrays(indices, parts[0].dictionary, safe=False)]
        self._distinct = self._entries = len(parts[0].dictionary)

    def finish(self) -> Coded:
        """Return the encoded column; the coder is empty afterwards."""
        if self._numbers is not None:
            numbers, self._numbers = pa.concat_arrays(self._numbers), None
            return _by_sorting(self._keys, numbers)
        if not self._parts:
            return Coded(pa.array([], self._keys.arrow), np.zeros(0, np.int32))
        if len(self._parts) > 1:
            self._unify()
        (part,), self._parts = self._parts, []
        dictionary, codes = part.dictionary, _codes(part.indices)
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
    """Return (the distinct keys in order, the code of each value) of at least one value."""
    least, most = int(sortable.min()), int(sortable.max())
    if most - least < 4 * len(sortable):  # dense: count instead of sorting
        offsets = sortable.astype(np.int64) - least
        is_used = np.zeros(most - least + 1, bool)
        is_used[offsets] = True
        rank = np.cumsum(is_used, dtype=np.int32) - 1
        return keys.order((np.flatnonzero(is_used) + least).astype(sortable.dtype)), rank[offsets]
    order = np.argsort(sortable)
    ascending = sortable[order]
    new = np.ones(len(order), bool)
    np.not_equal(ascending[1:], ascending[:-1], out=new[1:])
    codes = np.empty(len(order), np.int32)
    codes[order] = np.cumsum(new, dtype=np.int32) - 1
    return keys.order(ascending[new]), codes


def _codes(indices: pa.Array) -> npt.NDArray[np.int32]:
    filled = indices.fill_null(-1) if indices.null_count else indices
    codes: npt.NDArray[np.int32] = filled.to_numpy()
    return codes


def first_rows(codes: npt.NDArray[np.int32], cardinality: int) -> Int64s:
    """Return the first row of every code."""
    first = np.full(cardinality + 1, -1, np.int64)
    size = 1 << 16
    while True:  # usually every code shows up early
        part = codes[:size]
        # Of equal indices the last one assigned stays; code -1 lands in the spare last slot.
        first[part[::-1]] = np.arange(len(part) - 1, -1, -1)
        if size >= len(codes) or first[:-1].min(initial=0) >= 0:
            return first[:-1]
        size *= 8


def members_by_row(coded: Coded, rows: Int64s, count: int) -> tuple[Coded, Int64s]:
    """Return the distinct members of each row, and the row of each; a row without members has one NULL.

    ``rows`` (int64) names the row of each code, of ``count`` rows; NULL members are left out.
    """
    empty = np.ones(count, bool)
    empty[rows] = False
    without = np.flatnonzero(empty)
    present = coded.codes >= 0
    codes = np.concatenate([coded.codes[present], np.full(len(without), -1, np.int32)])
    rows = np.concatenate([rows[present], without])
    order = np.lexsort((codes, rows))
    codes, rows = codes[order], rows[order]
    first = np.ones(len(codes), bool)
    first[1:] = (codes[1:] != codes[:-1]) | (rows[1:] != rows[:-1])
    return replace(coded, codes=codes[first]), rows[first]


def rows_by_group(groups: npt.NDArray[np.integer], count: int) -> tuple[Int64s, Int64s]:
    """Return row positions sorted by group, ascending inside each, and the ``count + 1`` bounds of the groups."""
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


_I4 = struct.Struct(">i")
_FEW = 16


def pack(keys: Keys, values: pa.Array, *tail: Int64s) -> tuple[bytes, Int64s]:
    """Encode records of each key followed by i4 big-endian numbers, one array per number.

    Returns their bytes and the ``n + 1`` offsets of the records.
    """
    n = len(values)
    if keys.width:
        record = np.dtype([("key", keys.dtype.newbyteorder(">"))] + [(f"t{i}", ">i4") for i in range(len(tail))])
        out = np.empty(n, record)
        out["key"] = keys.numpy(values)
        for i, numbers in enumerate(tail):
            out[f"t{i}"] = numbers
        return out.tobytes(), np.arange(n + 1, dtype=np.int64) * record.itemsize
    lengths = pc.binary_length(values).to_numpy()
    tails = np.empty((n, len(tail)), ">i4")
    for i, numbers in enumerate(tail):
        tails[:, i] = numbers
    joined = pc.binary_join_element_wise(
        _fixed(lengths.astype(">i4")), values, _fixed(tails), pa.scalar(b"", pa.large_binary())
    )
    sizes = lengths + (4 + 4 * len(tail))
    offsets = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
    data = joined.buffers()[2] if n else None
    return b"" if data is None else data.to_pybytes()[: int(offsets[-1])], offsets


def _fixed(rows: npt.NDArray[np.integer]) -> pa.Array:
    """Return every row of a big-endian array as one binary value."""
    size = rows.nbytes // len(rows) if len(rows) else 0
    offsets = np.arange(len(rows) + 1, dtype=np.int64) * size
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(rows.tobytes())]
    )


def read_records(
    keys: Keys, payload: LazyBytes, at: int, n: int, tail: int, end: int | None = None
) -> tuple[list[bytes] | Int64s, Int64s, int]:
    """Read ``n`` records of a key and ``tail`` numbers from ``at``: (keys, tails as an (n, tail) array, end offset).

    ``end``: the latest end of the list.  Raises :class:`CorruptError` when it does not end by then.
    """
    if keys.width:
        return read_fixed(keys, payload, at, n, tail)
    return read_variable(payload, at, n, tail, end)


def read_variable(
    payload: LazyBytes, at: int, n: int, tail: int, end: int | None = None
) -> tuple[list[bytes], Int64s, int]:
    """Read ``n`` records of variable-width keys from ``at``: (keys, tails as an (n, tail) array, end offset).

    ``end``: the latest end of the list.  None: unknown, the list is fetched in growing pieces.
    Raises :class:`CorruptError` when it does not end by then.
    """
    least = 4 + 4 * tail
    limit = payload.length if end is None else end
    if n < 0 or at > limit or n * least > limit - at:
        raise CorruptError(f"an index cannot have {n} values here", at)
    size = limit - at if end is not None else min(limit - at, max(4096, n * (least + 16)))
    view = payload.view(at, size)
    while True:
        found = _walk(view, at, n, tail)
        if found is not None:
            values, numbers, used = found
            return values, numbers, at + used
        more = min(limit - at - size, size)
        if more == 0:
            raise CorruptError("an index ends inside its values", at)
        # Only the missing bytes: the list may be as long as everything else that a lookup reads.
        view = memoryview(b"".join((view, payload.view(at + size, more))))
        size += more


def _walk(view: memoryview, base: int, n: int, tail: int) -> tuple[list[bytes], Int64s, int] | None:
    """Return the records at the start of ``view``.  None if it ends before they do.

    Where a record starts is known only from the one before it, hence a plain loop; the block size of V2 bitmaps and
    the chunk size of range-bitmaps bound it.
    """
    values: list[bytes] = []
    starts: list[int] = []
    data = bytes(view)  # slices of bytes take a third of the time of slices of a memoryview
    at, last, behind, unpack = 0, len(data) - 4, 4 * tail, _I4.unpack_from
    for _ in range(n):
        if at > last:
            return None
        (length,) = unpack(data, at)
        if length < 0:
            raise CorruptError(f"a value cannot have {length} bytes", base + at)
        at += 4
        stop = at + length
        values.append(data[at:stop])
        starts.append(stop)
        at = stop + behind
    if at > len(data):
        return None
    if n <= _FEW:  # the usual index of a small file: making arrays would take longer than filling them
        few = [[unpack(view, start + 4 * i)[0] for i in range(tail)] for start in starts]
        return values, np.array(few, np.int64).reshape(n, tail), at
    numbers = np.zeros((n, tail), np.int64)
    words = np.ndarray((last + 1,), ">i4", np.frombuffer(data, np.uint8), strides=(1,))
    for i in range(tail):
        numbers[:, i] = words[np.array(starts, np.int64) + 4 * i]
    return values, numbers, at


def read_fixed(keys: Keys, payload: LazyBytes, at: int, n: int, tail: int) -> tuple[npt.NDArray[np.int64], Int64s, int]:
    """Read ``n`` records of fixed-width keys from ``at``: (keys as int64, tails as an (n, tail) array, end offset)."""
    record = np.dtype([("key", keys.dtype.newbyteorder(">")), ("tail", ">i4", (tail,))])
    if n < 0 or at + n * record.itemsize > payload.length:
        raise CorruptError(f"an index cannot have {n} values here", at)
    rows = np.frombuffer(payload.view(at, n * record.itemsize), record)
    return rows["key"].astype(np.int64), rows["tail"].astype(np.int64), at + n * record.itemsize
