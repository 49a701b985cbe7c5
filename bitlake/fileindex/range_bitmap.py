"""The ``range-bitmap`` index stores values as ordered codes, and codes as bit slices.  For comparisons and TopN.

::

    i4 header length (after this field)
    u1 version=1 | i4 rows | i4 distinct values | [smallest key | largest key if any] | i4 dictionary length
    dictionary                                          see below
    i4 header length = 10 + 8*slices | u1 version=1 | u1 slices | i4 E length | i4 slice directory length = 8*slices
    slices x ( i4 offset, i4 length )                   from the end of E
    E: the rows that are not NULL | slice 0 | slice 1 | ...

Slice ``i`` holds the rows whose code has bit ``i``; there are max(1, bits of the largest code) slices, but 64 empty
ones when every row is NULL (a quirk of Paimon's).  Integers are big-endian, keys are encoded as in
:mod:`bitlake.fileindex.keyed`, bitmaps portable Roaring.  Source: index-format spec, section 4.

The dictionary holds the sorted keys in chunks; a key's position is its code.

::

    i4 header length = 13 | u1 version=1 | i4 chunks | i4 offsets length = 4*chunks | i4 chunk headers' length
    chunks x i4 offset of each chunk header, from the first one
    chunk headers: u1 version=1 | first key | i4 code | i4 keys offset | i4 size | then
                   fixed width: i4 keys length | i4 key length;  variable width: i4 offsets length | i4 keys length
    key areas of all chunks:       fixed width: keys;  variable width: size x i4 offset from the first key, then keys

A chunk's first key is only in its header; ``size`` counts the others and ``code`` is the first one's.  ``keys offset``
counts from the start of all key areas.  A chunk takes keys while the others' bytes fit ``chunk-size``; with variable
width their offsets must fit another ``chunk-size``.  Integers are big-endian.  Source: index-format spec, section 4.2.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from bitlake.codec.bytes import INT_MAX as _MAX
from bitlake.codec.bytes import Reader
from bitlake.codec.hashing import Int64s
from bitlake.codec.roaring import bitmap_of, deserialize, positions_of, serialize_mask
from bitlake.errors import CorruptError, UnsupportedFeature
from bitlake.expressions.tree import Comparison, In, Leaf, Like, Op
from bitlake.fileindex import capabilities, keyed, sums
from bitlake.fileindex.bsi import MOST_SLICES, any_of, at_least, encode_slices, top
from bitlake.fileindex.dictionary import Coder, pack, rows_by_group
from bitlake.fileindex.payload import Fetch, LazyBytes, Page, Section
from bitlake.fileindex.selection import Selection
from bitlake.types import DataType, Root
from bitlake.types.datatypes import BINARIES, TIMESTAMPS

CHUNK_SIZE: capabilities.IndexOption[int] = capabilities.IndexOption(
    "chunk-size",
    capabilities.memory,
    None,
    "Most bytes of a chunk of values; default 16kb, and 0b for BOOLEAN, TINYINT, SMALLINT.",
)
ACCEPTS = "range-bitmap takes strings, BOOLEAN, numbers (DECIMAL up to precision 18), DATE, TIME, timestamps up to 6"
_DEFAULT_CHUNK = 16 * 1024
_ONE_KEY_CHUNKS = frozenset({Root.BOOLEAN, Root.TINYINT, Root.SMALLINT})
_VERSION = 1
_EMPTY_SLICES = 64
_BLOCK = 16 * 1024
_ROARING = 8192
"""Bytes of a bitmap beyond one bit for each row, at most."""
_I4 = struct.Struct(">i")
_HEAD = struct.Struct(">Bii")
_SLICES = struct.Struct(">iBBii")


def supports(kind: DataType) -> bool:
    """Whether the index takes values of a type."""
    keys = keyed.keys_of(kind)
    if keys is None or keys.type.root in BINARIES:
        return False
    if keys.type.root is Root.DECIMAL:
        return (keys.type.precision or 0) <= 18
    return keys.type.root not in TIMESTAMPS or (keys.type.precision or 0) <= 6


class RangeBitmapWriter:
    """Builds a payload: ``add`` any number of times, then ``finish`` once."""

    def __init__(self, kind: DataType, options: Mapping[str, str]) -> None:
        self._keys = keyed.keys_for(kind, ACCEPTS, supports)
        size = CHUNK_SIZE.of(options)
        default = 0 if self._keys.type.root in _ONE_KEY_CHUNKS else _DEFAULT_CHUNK
        self._chunk_size = default if size is None else size
        self._coder = Coder(self._keys)

    def add(self, column: pa.Array | pa.ChunkedArray) -> None:
        """Append a column's rows."""
        self._coder.add(column)

    def finish(self) -> bytes:
        """Return the payload."""
        coded = self._coder.finish()
        n = coded.cardinality
        ordered, codes = coded.dictionary, coded.codes
        if not coded.ordered:
            order = self._keys.sort_indices(coded.dictionary)
            ordered = coded.dictionary.take(pa.array(order))
            rank = np.full(n + 1, -1, np.int32)  # the last one is for NULL, code -1
            rank[order] = np.arange(n, dtype=np.int32)
            codes = rank[codes]
        bounds = [self._keys.encode(ordered[i].as_py()) for i in (0, n - 1)] if n else []
        dictionary = encode_dictionary(self._keys, ordered, self._chunk_size)
        head = b"".join([_HEAD.pack(_VERSION, len(codes), n), *bounds, _I4.pack(len(dictionary))])
        payload = b"".join([_I4.pack(len(head)), head, dictionary, *_bit_slices(codes, n)])
        if len(payload) > _MAX:
            raise UnsupportedFeature(f"a range-bitmap of {n} values takes more than 2 GiB; write smaller files")
        return payload


def _bit_slices(codes: npt.NDArray[np.int32], cardinality: int) -> list[bytes]:
    present = codes >= 0
    count = max(1, (cardinality - 1).bit_length()) if cardinality else _EMPTY_SLICES
    existing = serialize_mask(present)
    slices = encode_slices(codes, present, count) if cardinality else [existing] * count
    lengths = np.array([len(s) for s in slices], np.int64)
    directory = np.stack([np.cumsum(lengths) - lengths, lengths], axis=1).astype(">i4").tobytes()
    head = _SLICES.pack(10 + len(directory), _VERSION, count, len(existing), len(directory))
    return [head, directory, existing, *slices]


class RangeBitmapReader:
    """Evaluates every operator except LIKE, exactly, and TopN."""

    def __init__(self, kind: DataType, fetch: Fetch, length: int, row_count: int) -> None:
        self.keys = keyed.keys_for(kind, ACCEPTS)
        self.row_count = row_count
        self._payload = LazyBytes(fetch, length)
        self._cardinality = -1
        self._dictionary: Dictionary | None = None
        self._present: BitMap | None = None
        self._directory = np.zeros((0, 2), np.int64)
        self._slices_at = 0
        self._slices: dict[int, BitMap] = {}

    def test(self, leaf: Leaf) -> Selection | None:
        """Return the rows for which the leaf is TRUE.  None if this index cannot evaluate it."""
        self._open()
        return keyed.evaluate_leaf(self, leaf)

    def present(self) -> BitMap:
        """Return the rows that are not NULL."""
        self._open()
        if self._present is None:
            self._present = self._bitmap(self._slices_at - self._present_length, self._present_length)
        return self._present

    def nulls(self) -> BitMap:
        """Return the rows that are NULL."""
        return BitMap(range(self.row_count)) - self.present()

    def having(self, keys: keyed.KeyList) -> BitMap:
        """Return the rows with any of these keys."""
        codes = self._codes(keys)
        return any_of(self._all_slices(), self.present(), codes) if len(codes) else BitMap()

    def _codes(self, keys: keyed.KeyList) -> Sequence[int] | Int64s:
        """Return the codes of those keys that exist."""
        self._open()
        if self._dictionary is not None and len(keys) > max(keyed.LONG_LIST, self._dictionary.chunks):
            # More keys than chunks: nearly every chunk is read anyway.
            known = self._dictionary.keys_at(np.arange(self._cardinality))
            return np.flatnonzero(keyed.are_listed(known, keys))
        return [code for code, there in map(self._find, keyed.one_by_one(keys)) if there]

    def compared(self, op: Op, key: keyed.Key) -> BitMap:
        """Return the rows whose key is <, <=, > or >= another."""
        code, there = self._find(key)
        # Rows from the first code that is not smaller (or: is greater) on.
        start = code + (there and op in (Op.GT, Op.LE))
        above = at_least(self._all_slices(), self.present(), start) if start < self._cardinality else BitMap()
        return above if op in (Op.GT, Op.GE) else self.present() - above

    def top_n(
        self, k: int, descending: bool, nulls_first: bool, found: BitMap | None = None, strict: bool = True
    ) -> BitMap:
        """Return the rows with the k largest (``descending``) or smallest values among ``found`` (None: all rows).

        ``strict``: k rows, however many tie for the last place (of tied values those at the end of the file, of NULLs
        those at its start, as Paimon does).  Otherwise all that tie, for sorting by further columns.
        """
        present = self.present() if found is None else self.present() & found
        nulls = self.nulls() if found is None else self.nulls() & found
        if k <= 0:
            return BitMap()
        if nulls_first:
            if len(nulls) >= k:
                return nulls[:k] if strict else nulls
            return nulls | self._best(k - len(nulls), descending, present, strict)
        if len(present) >= k:
            return self._best(k, descending, present, strict)
        return present | (nulls[: k - len(present)] if strict else nulls)

    def bytes_to_read(self, leaf: Leaf, length: int, rows: int) -> int:
        """See :class:`bitlake.fileindex.capabilities.CostEstimator`."""
        slices = 1 + max(rows - 1, 1).bit_length()
        return min(length, slices * (rows // 8 + _ROARING) + 2 * _BLOCK)

    def selectivity(self, leaf: Leaf) -> float | None:
        """See :class:`bitlake.fileindex.capabilities.CostEstimator`."""
        return self.share(leaf.op, leaf.value) if isinstance(leaf, Comparison) else None

    def share(self, op: Op, value: Any) -> float | None:
        """Estimate the share of rows that compare so with a value, as if every distinct value had equally many."""
        self._open()
        key = self.keys.of_literal(value)
        if key is None or not self._cardinality or op in (Op.EQ, Op.NE):
            return None
        above = 1 - self._find(key)[0] / self._cardinality
        return above if op in (Op.GT, Op.GE) else 1 - above

    def ranked(self, rows: BitMap) -> capabilities.RankedRows | None:
        """See :class:`bitlake.fileindex.capabilities.RowRanker`."""
        if not keyed.are_values(self.keys):
            return None
        positions, ranks, keys = self._ranked(rows)
        return capabilities.RankedRows(
            positions, ranks, [keyed.physical_value(self.keys, key) for key in keys.to_pylist()]
        )

    def difference(self, rebuilt: RangeBitmapReader) -> str | None:
        """See :class:`bitlake.fileindex.capabilities.Comparable`."""
        odd = keyed.difference_by_row(self, rebuilt, self._row_keys(), rebuilt._row_keys())
        if odd is None and self._bounds() != rebuilt._bounds():
            return "its smallest or largest value is not the column's"
        return odd

    def _row_keys(self) -> tuple[Int64s, pa.Array]:
        """Return the rows that are not NULL, and the key of each."""
        positions, ranks, keys = self._ranked(BitMap(range(self.row_count)))
        return positions, keys.take(pa.array(ranks))

    def _bounds(self) -> bytes:
        """Rows, distinct values, smallest and largest key: the part of the header that no option changes."""
        return bytes(self._payload.view(4, Reader(self._payload.view(0, 4)).i4() - 4))

    def _ranked(self, rows: BitMap) -> tuple[Int64s, Int64s, pa.Array]:
        """Of ``rows`` that are not NULL: their positions, each one's place in, and the keys of, their distinct keys.

        The keys ascend in the order of values.
        """
        self._open()
        positions, codes = keyed.codes_of(self._all_slices(), rows & self.present(), self.row_count)
        distinct, ranks = np.unique(codes, return_inverse=True)
        return positions, ranks, self._keys_at(distinct)

    def extremes(self, rows: BitMap | None) -> pa.Array | None:
        """See :class:`bitlake.fileindex.capabilities.ValueBounds`; None if the keys are not the values."""
        self._open()
        if not keyed.are_values(self.keys):
            return None
        if rows is None:
            codes = {0, self._cardinality - 1} if self._cardinality else set()
        else:
            held = rows & self.present()
            ends = [self._best(1, largest, held, True) for largest in (False, True)] if held else []
            codes = {int(c) for end in ends for c in keyed.codes_of(self._all_slices(), end, self.row_count)[1]}
        return keyed.to_arrow(self.keys, self._keys_at(np.array(sorted(codes), np.int64)))

    def value_counts(self, rows: BitMap | None) -> capabilities.ValueCounts | None:
        """Count how many of ``rows`` (None: all) have each value.  None if the keys are not the values."""
        self._open()
        if not keyed.are_values(self.keys):
            return None
        held = self.present() if rows is None else rows & self.present()
        _, codes = keyed.codes_of(self._all_slices(), held, self.row_count)
        if len(codes) and int(codes.max()) >= self._cardinality:
            raise CorruptError(f"a range-bitmap of {self._cardinality} values cannot have code {int(codes.max())}")
        counts = np.bincount(codes, minlength=self._cardinality).astype(np.int64)
        places = np.flatnonzero(counts)
        total = self.row_count if rows is None else len(rows)
        return capabilities.ValueCounts(
            keyed.to_arrow(self.keys, self._keys_at(places)), counts[places], total - len(held)
        )

    def distinct(self) -> pa.Array | None:
        """Return the distinct values of all rows.  None if the keys are not the values."""
        self._open()
        if not keyed.are_values(self.keys):
            return None
        return keyed.to_arrow(self.keys, self._keys_at(np.arange(self._cardinality, dtype=np.int64)))

    def sums(self, groups: Sequence[BitMap | None]) -> capabilities.ValueSums | None:
        """See :class:`bitlake.fileindex.capabilities.ValueSummer`."""
        self._open()
        if not keyed.are_numbers(self.keys):
            return None
        if not self._cardinality:
            return sums.of_counts(np.zeros(0, np.int64), [np.zeros(0, np.int64)] * len(groups))
        way = sums.cheapest(len(self._directory), groups, self.row_count)
        # Codes are the values less the smallest one where no value is missing between the smallest and the largest.
        first, last = np.frombuffer(self._bounds()[_HEAD.size :], self.keys.dtype.newbyteorder(">"), 2).tolist()
        dense = last - first == self._cardinality - 1
        if way is sums.Way.SLICES and not dense:
            way = sums.cheapest(len(self._directory), groups, self.row_count, by_slices=False)
        if way is None:
            return None
        held = sums.held_rows(groups, self.present())
        if way is sums.Way.ROWS:
            rows = BitMap.union(*held) if held else BitMap()
            positions, codes = keyed.codes_of(self._all_slices(), rows, self.row_count)
            distinct, ranks = np.unique(codes, return_inverse=True)
            return sums.of_rows(held, positions, self.keys.numpy(self._keys_at(distinct)).astype(np.int64)[ranks])
        counts = sums.sizes_of(held, self.row_count)
        codes_sums = zip(sums.of_slices(self._all_slices(), held), counts.tolist(), strict=True)
        farthest = max(abs(first), abs(last))
        return capabilities.ValueSums(
            counts, [t + first * n for t, n in codes_sums], [farthest * n for n in counts.tolist()]
        )

    def groups(self, rows: BitMap | None, most: int) -> capabilities.RowGroups | None:
        """See :class:`bitlake.fileindex.capabilities.RowGrouper`."""
        self._open()
        if not keyed.are_values(self.keys):
            return None
        if (rows is None and self._cardinality > most) or sums.cheapest(
            len(self._directory), [rows], self.row_count, by_slices=False
        ) is None:
            return None
        held = self.present() if rows is None else rows & self.present()
        positions, codes = keyed.codes_of(self._all_slices(), held, self.row_count)
        distinct, ranks = np.unique(codes, return_inverse=True)
        if len(distinct) > most:
            return None
        order, bounds = rows_by_group(ranks, len(distinct))
        values = keyed.to_arrow(self.keys, self._keys_at(distinct))
        bitmaps = [bitmap_of(positions[order[a:b]]) for a, b in pairwise(bounds.tolist())]
        nulls = self.nulls() if rows is None else rows - self.present()
        return keyed.with_nulls(values, bitmaps, nulls)

    def _keys_at(self, codes: Int64s) -> pa.Array:
        if not len(codes):
            return pa.array([], self.keys.arrow)
        if self._dictionary is None or int(codes[-1]) >= self._cardinality:
            raise CorruptError(f"a range-bitmap of {self._cardinality} values cannot have code {int(codes[-1])}")
        return self._dictionary.keys_at(codes)

    def _best(self, k: int, descending: bool, rows: BitMap, strict: bool) -> BitMap:
        if len(rows) <= k:
            return rows.copy()
        sure, tied = top(self._all_slices(), rows, k, descending)
        if strict:
            places = positions_of(tied)
            return sure | bitmap_of(places[len(places) - (k - len(sure)) :])
        best = sure | tied
        if self.keys.floating:  # 0.0 and -0.0 tie, but have different codes
            zeros = self.having(self.keys.equal_keys(0.0)[0]) & rows
            if zeros & best:
                best |= zeros
        return best

    def _find(self, key: keyed.Key) -> tuple[int, bool]:
        self._open()
        return (0, False) if self._dictionary is None else self._dictionary.find(key)

    def _all_slices(self) -> list[BitMap]:
        if not self._slices and len(self._directory):  # all at once: they lie together, after the rows not NULL
            start = self._slices_at - (0 if self._present else self._present_length)
            end = self._slices_at + int(self._directory.sum(axis=1).max())
            self._payload.view(start, end - start, ahead=0)
        for i, (offset, length) in enumerate(self._directory.tolist()):
            if i not in self._slices:
                self._slices[i] = self._bitmap(self._slices_at + offset, length)
        return [self._slices[i] for i in range(len(self._directory))]

    def _bitmap(self, at: int, length: int) -> BitMap:
        return deserialize(self._payload.view(at, length), self.row_count, at)[0]

    def _open(self) -> None:
        if self._cardinality >= 0:
            return
        payload = self._payload
        length = Reader(payload.view(0, 4)).i4()
        if not 13 <= length <= payload.length - 4:
            raise CorruptError(f"a range-bitmap cannot have a header of {length} bytes", 0)
        reader = Reader(payload.view(4, length), 4)
        version, rows, cardinality = reader.u1(), reader.i4(), reader.i4()
        if version != _VERSION:
            raise UnsupportedFeature(f"range-bitmap version {version} is not known, only {_VERSION}")
        if rows != self.row_count:
            raise CorruptError(f"the range-bitmap is of {rows} rows, its data file has {self.row_count}", 5)
        if not 0 <= cardinality <= rows:
            raise CorruptError(f"a range-bitmap of {rows} rows cannot have {cardinality} values", 9)
        for _ in range(2 if cardinality else 0):  # smallest and largest key: the dictionary has them too
            reader.take(self.keys.width or reader.i4())
        dictionary, at = reader.i4(), 4 + length
        if not 0 <= dictionary <= payload.length - at:
            raise CorruptError(f"a dictionary of {dictionary} bytes does not fit its range-bitmap", at)
        self._open_slices(at + dictionary, cardinality)
        if cardinality:
            self._dictionary = Dictionary(self.keys, payload, at, dictionary, cardinality)
        self._cardinality = cardinality

    def _open_slices(self, at: int, cardinality: int) -> None:
        reader = Reader(self._payload.view(at, _SLICES.size), at)
        length, version, count, present, directory = (
            reader.i4(),
            reader.u1(),
            reader.u1(),
            reader.i4(),
            reader.i4(),
        )
        if version != _VERSION:
            raise UnsupportedFeature(f"bit-slice version {version} is not known, only {_VERSION}")
        if directory != 8 * count or length != 10 + directory or present < 0:
            raise CorruptError("the header of a range-bitmap's slices contradicts itself", at)
        if cardinality and not (cardinality - 1).bit_length() <= count <= MOST_SLICES:
            raise CorruptError(f"{count} slices cannot hold {cardinality} values", at)
        at += _SLICES.size
        self._directory = np.frombuffer(self._payload.view(at, directory), ">i4").astype(np.int64).reshape(-1, 2)
        self._present_length = present
        self._slices_at = at + directory + present
        if self._slices_at > self._payload.length:
            raise CorruptError("the slices of a range-bitmap are outside of it", at)


# --- the dictionary ---------------------------------------------------------------------------------------------------

_DICTIONARY_HEAD = struct.Struct(">iBiii")
_FIVE = struct.Struct(">iiiii")


def encode_dictionary(keys: keyed.Keys, values: pa.Array, chunk_size: int) -> bytes:
    """The dictionary of sorted, distinct keys without NULL."""
    if len(values) == 0:
        return _DICTIONARY_HEAD.pack(_DICTIONARY_HEAD.size - 4, _VERSION, 0, 0, 0)
    offsets, headers, areas = (_fixed if keys.width else _variable)(keys, values, chunk_size)
    head = _DICTIONARY_HEAD.pack(_DICTIONARY_HEAD.size - 4, _VERSION, len(offsets), 4 * len(offsets), len(headers))
    return b"".join([head, offsets.astype(">i4").tobytes(), headers, areas])


def _fixed(keys: keyed.Keys, values: pa.Array, chunk_size: int) -> tuple[Int64s, bytes, bytes]:
    n, width = len(values), keys.width
    encoded = np.frombuffer(pack(keys, values)[0], np.uint8).reshape(n, width)
    starts = np.arange(0, n, 1 + chunk_size // width, dtype=np.int64)
    sizes = np.diff(np.append(starts, n)) - 1
    headers = np.empty(len(starts), _fixed_header(keys))
    headers["version"] = _VERSION
    headers["key"] = encoded[starts].view(f"V{width}").reshape(-1)
    headers["code"] = starts
    headers["at"] = width * (starts - np.arange(len(starts)))
    headers["size"] = sizes
    headers["length"] = width * sizes
    headers["width"] = width
    others = np.ones(n, bool)
    others[starts] = False
    offsets = np.arange(len(starts), dtype=np.int64) * headers.itemsize
    return offsets, headers.tobytes(), encoded[others].tobytes()


def _fixed_header(keys: keyed.Keys) -> np.dtype[np.void]:
    four = [(name, ">i4") for name in ("code", "at", "size", "length", "width")]
    return np.dtype([("version", "u1"), ("key", f"V{keys.width}"), *four])


def _variable(keys: keyed.Keys, values: pa.Array, chunk_size: int) -> tuple[Int64s, bytes, bytes]:
    data, ends = pack(keys, values)
    n = len(values)
    offsets, headers, areas, at, header_at, area_at = [], [], [], 0, 0, 0
    while at < n:  # once a chunk
        first, others = data[ends[at] : ends[at + 1]], at + 1
        fit = int(np.searchsorted(ends, ends[others] + chunk_size, side="right")) - 1
        stop = max(others, min(fit, others + chunk_size // 4))
        size, length = stop - others, int(ends[stop] - ends[others])
        areas.append((ends[others:stop] - ends[others]).astype(">i4").tobytes())
        areas.append(data[ends[others] : ends[stop]])
        header = bytes((_VERSION,)) + first + _FIVE.pack(at, area_at, size, 4 * size, length)
        offsets.append(header_at)
        headers.append(header)
        header_at += len(header)
        area_at += 4 * size + length
        at = stop
    return np.array(offsets, np.int64), b"".join(headers), b"".join(areas)


_MANY_CODES = 64
"""From this many codes on, the keys of fixed width are gathered from the whole dictionary, and not chunk by chunk."""


class Dictionary:
    """Finds the codes of keys in the dictionary at ``[start, start + length)`` of a payload, reading what it needs."""

    def __init__(self, keys: keyed.Keys, payload: LazyBytes, start: int, length: int, cardinality: int) -> None:
        reader = Reader(payload.view(start, _DICTIONARY_HEAD.size), start)
        head, version, chunks = reader.i4(), reader.u1(), reader.i4()
        offsets_length, headers_length = reader.i4(), reader.i4()
        if version != _VERSION:
            raise UnsupportedFeature(f"range-bitmap dictionary version {version} is not known, only {_VERSION}")
        self._offsets = start + _DICTIONARY_HEAD.size
        self._headers = self._offsets + offsets_length
        self._areas = self._headers + headers_length
        self._end = start + length
        good = head == _DICTIONARY_HEAD.size - 4 and offsets_length == 4 * chunks and headers_length >= 0
        if not good or not 0 < chunks <= cardinality or self._areas > self._end:
            raise CorruptError("the header of a range-bitmap's dictionary contradicts itself", start)
        self._keys = keys
        self._payload = payload
        self.chunks = chunks
        self._cardinality = cardinality
        self._headers_length = headers_length
        self._read: dict[int, tuple[keyed.Key, int, int, int, int]] = {}
        self._table: npt.NDArray[np.void] | None = None
        self._area: memoryview | None = None

    def find(self, key: keyed.Key) -> tuple[int, bool]:
        """Return (the number of smaller keys, whether the key exists); if it exists, the first is its code."""
        sortable = self._keys.sortable
        # The first chunk whose first key is greater.
        after = bisect_right(range(self.chunks), sortable(key), key=lambda i: sortable(self._chunk(i)[0]))
        if after == 0:
            return 0, False
        first, code, at, size, length = self._chunk(after - 1)
        if first == key:
            return code, True
        smaller, there = (self._in_fixed if self._keys.width else self._in_variable)(key, at, size, length)
        return code + 1 + smaller, there

    def keys_at(self, codes: Int64s) -> pa.Array:
        """Return the keys of ascending codes (each 0 ≤ code < the number of keys), in order."""
        if self._keys.width and len(codes) > _MANY_CODES:
            return pa.array(self._fixed_keys_at(codes), self._keys.arrow)
        parts, at = [], 0
        while at < len(codes):  # once a chunk that holds some
            chunk = self._chunk_of(int(codes[at]))
            first, size = self._chunk(chunk)[1], self._chunk(chunk)[3]
            stop = int(np.searchsorted(codes, first + size, side="right"))
            if stop <= at:
                raise CorruptError("the chunks of a range-bitmap's dictionary leave out codes", self._headers)
            parts.append(self._keys_of(chunk).take(pa.array(codes[at:stop] - first)))
            at = stop
        return pa.concat_arrays(parts) if parts else pa.array([], self._keys.arrow)

    def _fixed_keys_at(self, codes: Int64s) -> keyed.Ints:
        """Return keys of fixed width, wherever they are: the chunks' headers are read as one array, and so are keys."""
        chunks = self._fixed_chunks()
        width, kind = self._keys.width, self._keys.dtype.newbyteorder(">")
        of = np.searchsorted(chunks["code"], codes, side="right") - 1
        inside = codes - chunks["code"][of]
        keys = chunks["key"][of].view(kind).astype(self._keys.dtype)
        others = np.flatnonzero(inside)
        if len(others):
            places = chunks["at"][of[others]].astype(np.int64) + width * (inside[others] - 1)
            if self._area is None:
                self._area = self._payload.view(self._areas, self._end - self._areas, ahead=0)
            keys[others] = np.ndarray((len(self._area) - width + 1,), kind, self._area, strides=(1,))[places]
        return keys

    def _fixed_chunks(self) -> npt.NDArray[np.void]:
        """Return the headers of all chunks, checked against each other and the dictionary's length."""
        if self._table is None:
            record = _fixed_header(self._keys)
            size = self.chunks * record.itemsize
            offsets = np.frombuffer(self._payload.view(self._offsets, 4 * self.chunks, ahead=0), ">i4")
            if self._headers_length != size or np.any(offsets != np.arange(self.chunks) * record.itemsize):
                raise CorruptError("the chunks of a range-bitmap's dictionary do not follow each other", self._offsets)
            table = np.frombuffer(self._payload.view(self._headers, size, ahead=0), record)
            code, at, others, length = (table[n].astype(np.int64) for n in ("code", "at", "size", "length"))
            ends = np.append(code[1:], self._cardinality)
            good = code[0] == 0 and np.all(table["version"] == _VERSION) and np.all(code + others + 1 == ends)
            good = good and np.all(others >= 0) and np.all(length == others * self._keys.width) and np.all(at >= 0)
            if not good or int((at + length).max()) > self._end - self._areas:
                raise CorruptError("a chunk of a range-bitmap's dictionary does not fit it", self._headers)
            self._table = table
        return self._table

    def _chunk_of(self, code: int) -> int:
        after = bisect_right(range(self.chunks), code, key=lambda i: self._chunk(i)[1])
        if after == 0:
            raise CorruptError("the chunks of a range-bitmap's dictionary do not start with code 0", self._headers)
        return after - 1

    def _keys_of(self, chunk: int) -> pa.Array:
        """Return all keys of a chunk."""
        first, _, at, size, length = self._chunk(chunk)
        head = pa.array([first], self._keys.arrow)
        if self._keys.width:
            return pa.concat_arrays([head, pa.array(self._fixed(at, size, length), self._keys.arrow)])
        area = self._payload.view(at, 4 * size + length)
        offsets = np.frombuffer(area[: 4 * size], ">i4").astype(np.int64)
        values = np.frombuffer(area[4 * size :], np.uint8)
        ends = np.append(offsets[1:], length) if size else offsets
        lengths = ends - offsets - 4
        if size and (offsets[0] != 0 or np.any(lengths < 0)):
            raise CorruptError("a chunk of a range-bitmap's dictionary contradicts itself", at)
        stored = np.ndarray((max(length - 3, 0),), ">i4", values, strides=(1,))[offsets]
        if np.any(stored != lengths):
            raise CorruptError("a chunk of a range-bitmap's dictionary contradicts itself", at)
        kept = np.ones(length, bool)
        kept[(offsets[:, None] + np.arange(4)).ravel()] = False
        bounds = np.concatenate(([0], np.cumsum(lengths)))
        texts = pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), size, [None, pa.py_buffer(bounds), pa.py_buffer(values[kept].tobytes())]
        )
        return pa.concat_arrays([head, texts])

    def _fixed(self, at: int, size: int, length: int) -> np.ndarray[Any, Any]:
        """Return all keys of a chunk but the first, of fixed width."""
        if length != size * self._keys.width:
            raise CorruptError("a chunk of a range-bitmap's dictionary contradicts itself", at)
        stored = np.frombuffer(self._payload.view(at, length), self._keys.dtype.newbyteorder(">"))
        return stored.astype(self._keys.dtype)

    def _in_fixed(self, key: keyed.Key, at: int, size: int, length: int) -> tuple[int, bool]:
        others = self._fixed(at, size, length)
        place = int(np.searchsorted(self._keys.order(others), self._keys.sortable(key)))
        return place, place < size and int(others[place]) == key

    def _in_variable(self, key: keyed.Key, at: int, size: int, length: int) -> tuple[int, bool]:
        assert isinstance(key, bytes)
        area = self._payload.view(at, 4 * size + length)
        offsets = np.frombuffer(area[: 4 * size], ">i4")
        reader = Reader(area[4 * size :], at + 4 * size)

        def other(i: int) -> bytes:
            reader.seek(int(offsets[i]))
            return bytes(reader.take(reader.i4()))

        place = bisect_left(range(size), key, key=other)
        return place, place < size and other(place) == key

    def _chunk(self, i: int) -> tuple[keyed.Key, int, int, int, int]:
        """Return (first key, its code, offset of the keys, number of other keys, length of the keys)."""
        if i not in self._read:
            offset = _I4.unpack(self._payload.view(self._offsets + 4 * i, 4))[0]
            at = self._headers + offset
            if not 0 <= offset < self._headers_length:
                raise CorruptError("a chunk of a range-bitmap's dictionary is out of place", at)
            self._read[i] = self._parse(self._payload.view(at, min(4096, self._areas - at), ahead=0), at)
        return self._read[i]

    def _parse(self, view: memoryview, at: int) -> tuple[keyed.Key, int, int, int, int]:
        reader = Reader(view, at)
        if reader.u1() != _VERSION:
            raise CorruptError("a chunk of a range-bitmap's dictionary has an unknown version", at)
        first: keyed.Key
        if self._keys.width:
            first = int.from_bytes(reader.take(self._keys.width), "big", signed=True)
        else:
            n = reader.i4()
            if 0 <= n < self._areas - at and n + 25 > len(view) and len(view) == 4096:
                return self._parse(self._payload.view(at, min(n + 25, self._areas - at), ahead=0), at)
            first = bytes(reader.take(n))
        code, keys_at, size = reader.i4(), reader.i4(), reader.i4()
        if self._keys.width:
            length, _ = reader.i4(), reader.i4()
            extent = length
        else:
            offsets_length, length = reader.i4(), reader.i4()
            extent = length + offsets_length
            if offsets_length != 4 * size:
                raise CorruptError("a chunk of a range-bitmap's dictionary contradicts itself", at)
        start = self._areas + keys_at
        good = min(code, keys_at, size, length) >= 0 and code + size < self._cardinality
        if not good or start + extent > self._end:
            raise CorruptError("a chunk of a range-bitmap's dictionary does not fit it", at)
        return first, code, start, size, length


# --- the index type ---------------------------------------------------------------------------------------------------

_FEWEST_ADVISED = 8
"""A column with at most this number of distinct values is not tried: a bitmap for each takes less."""
_ROWS_AT = 5


class _RangeBitmapIndex(capabilities.IndexType):
    name = "range-bitmap"
    accepts = ACCEPTS
    options = (CHUNK_SIZE,)
    ranks_rows = True

    supports = staticmethod(supports)
    writer = staticmethod(RangeBitmapWriter)
    reader = staticmethod(RangeBitmapReader)

    def stored_rows(self, payload: LazyBytes) -> int | None:
        return Reader(payload.view(_ROWS_AT, 4), _ROWS_AT).i4() if payload.length >= _ROWS_AT + 4 else None

    def describe(self, section: Section, payload: LazyBytes, kind: DataType | None, page: Page | None) -> None:
        keys = keyed.keys_to_describe(section, kind)
        if keys is not None:
            _describe(section, payload, keys, page)

    def trial_options(self, column: capabilities.ColumnFacts) -> Mapping[str, str] | None:
        return {} if column.distinct > _FEWEST_ADVISED else None

    def suitability(self, leaf: Leaf, kind: DataType) -> int:
        match leaf:
            case Comparison(_, Op.LT | Op.LE | Op.GT | Op.GE, _):
                return 3
            case Comparison(_, Op.EQ, _) | In(_, _, False):
                return 0 if keyed.is_floating(kind) else 1
            case Like():
                return 0
        return 2

    def fixed_bytes(self, payload: bytes) -> int:
        head = 4 + _I4.unpack_from(payload, 0)[0]
        return int(head + _I4.unpack_from(payload, head - 4)[0])

    def growing_read(self, payload: bytes, read: capabilities.SampledRead) -> tuple[int, int | None]:
        slices = len(payload) - self.fixed_bytes(payload)
        return (slices if read.bytes_read >= slices else 0), None

    def row_scale(self, rows: int, file_rows: int) -> float:
        return _slice_bytes(file_rows) / max(_slice_bytes(rows), 1)

    def file_bytes(self, payload_bytes: int, fixed_bytes: int, column: capabilities.SampledColumn) -> float:
        more = column.file_distinct / max(1, column.distinct)
        bits = max(1, int(column.file_distinct)).bit_length() / max(1, column.distinct.bit_length())
        slices = (payload_bytes - fixed_bytes) * self.row_scale(column.rows, column.file_rows) * bits
        return fixed_bytes * more + slices


RANGE_BITMAP = _RangeBitmapIndex()


def _slice_bytes(rows: int) -> int:
    """Estimate a slice: half of 65,536 rows take 8 KB, and fewer rows two bytes for each that it holds, up to 8 KB."""
    return rows // 65536 * 8192 + min(8192, rows % 65536)


def _describe(section: Section, payload: LazyBytes, keys: keyed.Keys, page: Page | None) -> None:
    """Add header, dictionary and slices; with a ``page`` the dictionary's values, and the rows of each slice."""
    length = Reader(payload.view(0, min(4, payload.length))).i4()
    if not 13 <= length <= payload.length - 4:
        raise CorruptError(f"a range-bitmap cannot have a header of {length:,} bytes", 0)
    reader = Reader(payload.view(4, length), 4)
    version, rows, values = reader.u1(), reader.i4(), reader.i4()
    section.facts.update({"version": version, "rows": rows, "values": values})
    head = section.add("header", 0, 4 + length)
    if version != _VERSION or not 0 <= values <= rows:
        raise CorruptError(f"this is not a range-bitmap: version {version}, {values:,} values in {rows:,} rows", 4)
    for name in ("smallest", "largest") if values else ():
        raw = bytes(reader.take(keys.width or reader.i4()))
        key = int.from_bytes(raw, "big", signed=True) if keys.width else raw
        head.facts[name] = keyed.key_texts(keys, [key], range(1))[0]
    size, at = reader.i4(), 4 + length
    if not 0 <= size <= payload.length - at:
        raise CorruptError(f"a dictionary of {size:,} bytes does not fit", at)
    dictionary = section.add("dictionary", at, size)
    with dictionary.reading():
        _describe_dictionary(dictionary, payload, at, size, keys, values, page)
    slices = section.add("slices", at + size, payload.length - at - size)
    with slices.reading():
        _describe_slices(slices, payload, at + size, rows, page is not None)


def _describe_dictionary(
    section: Section, payload: LazyBytes, at: int, size: int, keys: keyed.Keys, values: int, page: Page | None
) -> None:
    reader = Reader(payload.view(at, min(_DICTIONARY_HEAD.size, size)), at)
    _, version, chunks, offsets, headers = reader.i4(), reader.u1(), reader.i4(), reader.i4(), reader.i4()
    section.facts.update({"version": version, "chunks": chunks})
    if version != _VERSION or min(chunks, offsets, headers) < 0 or _DICTIONARY_HEAD.size + offsets + headers > size:
        raise CorruptError("the dictionary's header contradicts itself", at)
    begin = at + _DICTIONARY_HEAD.size
    section.add("chunk offsets", begin, offsets)
    section.add("chunk headers", begin + offsets, headers)
    areas = section.add("keys", begin + offsets + headers, size - _DICTIONARY_HEAD.size - offsets - headers)
    if page is None or not values:
        return
    shown = page.of(values)
    codes = np.arange(shown.start, shown.stop, dtype=np.int64)
    picked = Dictionary(keys, payload, at, size, values).keys_at(codes).to_pylist()
    for code, text in zip(shown, keyed.key_texts(keys, picked, range(len(picked))), strict=True):
        areas.add(text, facts={"code": code})
    areas.more = page.left(values)


def _describe_slices(section: Section, payload: LazyBytes, at: int, rows: int, entries: bool) -> None:
    reader = Reader(payload.view(at, min(_SLICES.size, payload.length - at)), at)
    length, version, count, present, directory = reader.i4(), reader.u1(), reader.u1(), reader.i4(), reader.i4()
    section.facts["slices"] = count
    if version != _VERSION or directory != 8 * count or length != 10 + directory or present < 0:
        raise CorruptError("the header of the slices contradicts itself", at)
    places = np.frombuffer(payload.view(at + _SLICES.size, directory), ">i4").reshape(-1, 2).tolist()
    section.add("directory", at, _SLICES.size + directory)
    at += _SLICES.size + directory
    parts = [("rows not NULL", at, present)]
    parts += [(f"bit {i}", at + present + offset, size) for i, (offset, size) in enumerate(places)]
    for name, start, size in parts:
        part = section.add(name, start, size)
        with part.reading():
            if size < 0 or start < 0 or start + size > payload.length:
                raise CorruptError(f"{size:,} bytes do not fit", start)
            if entries:
                part.facts["rows"] = keyed.counted_rows(payload, start, size, rows)
