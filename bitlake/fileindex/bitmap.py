"""The ``bitmap`` index stores the rows of each value as a bitmap.  Versions 1 and 2.

Version 1::

    u1 version=1 | i4 rows | i4 values | u1 has NULLs | [i4 NULL offset]
    values x ( key, i4 offset )
    body: [bitmap of NULL rows if more than one] then the bitmap of every value with more than one row, in header order

Version 2::

    u1 version=2 | i4 rows | i4 values | u1 has NULLs | [i4 NULL offset, i4 NULL length]
    i4 blocks, blocks x ( first key, i4 block offset )        from the start of the first block
    i4 size of all blocks
    blocks: each i4 entries, entries x ( key, i4 offset, i4 length ), keys ascending over all blocks
    body as in version 1

Integers are big-endian, keys are encoded as in :mod:`bitlake.fileindex.keyed`, bitmaps portable Roaring.  An offset
counts from the body's start; a negative one is a single row at ``-1 - offset`` that has no bitmap (its length then is
-1, but a single NULL's length is that of the bitmap it would have had).  Version 1 has no lengths: a bitmap ends where
the next begins.  Bodies are in the order of a Java hash map.  Source: index-format spec, section 3.

A reader fetches the header, then only the blocks and bitmaps a predicate needs, and keeps what it read.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from bitlake.codec.bytes import INT_MAX as _MAX
from bitlake.codec.bytes import Reader
from bitlake.codec.hashing import Int64s, compute_if_absent_order
from bitlake.codec.roaring import bitmap_of, contains, deserialize, serialize_many, serialize_mask
from bitlake.errors import CorruptError, UnsupportedFeature
from bitlake.expressions.tree import Comparison, In, Leaf, Like, Op
from bitlake.fileindex import keyed, sums
from bitlake.fileindex.capabilities import (
    ColumnFacts,
    IndexOption,
    IndexType,
    RowGroups,
    SampledRead,
    ValueCounts,
    ValueSums,
    integer,
    memory,
)
from bitlake.fileindex.dictionary import Coded, Coder, first_rows, members_by_row, pack, read_records, rows_by_group
from bitlake.fileindex.payload import Fetch, LazyBytes, Page, Section
from bitlake.fileindex.selection import Selection
from bitlake.lazy_modules import compute as pc
from bitlake.types import AtomicType, DataType, Root
from bitlake.types.datatypes import BINARIES, STRINGS

VERSION: IndexOption[int] = IndexOption("version", integer(1, 2), 2, "Layout to write: 1 or 2.")
BLOCK_SIZE: IndexOption[int] = IndexOption(
    "index-block-size", memory, 16 * 1024, "Most bytes of a block of values (version 2); a lookup reads one block."
)
ACCEPTS = "bitmap takes strings, BOOLEAN, integers, FLOAT, DOUBLE, DATE, TIME and timestamps"
_UNSUPPORTED = frozenset({Root.DECIMAL, Root.VARIANT}) | BINARIES
_I4, _II, _HEAD = struct.Struct(">i"), struct.Struct(">ii"), struct.Struct(">BiiB")


def supports(kind: DataType) -> bool:
    """Whether the index takes values of a type."""
    keys = keyed.keys_of(kind)
    return keys is not None and keys.type.root not in _UNSUPPORTED


class BitmapWriter:
    """Builds a payload: ``add`` any number of times, then ``finish`` once."""

    def __init__(self, kind: DataType, options: Mapping[str, str]) -> None:
        self._keys = keyed.keys_for(kind, ACCEPTS, supports)
        self._version = VERSION.of(options)
        self._block_size = BLOCK_SIZE.of(options) or 0
        self._coder = Coder(self._keys)
        self._rows: list[Int64s] = []
        self._count: int | None = None

    def add(self, column: pa.Array | pa.ChunkedArray) -> None:
        """Append a column's rows."""
        self._coder.add(column)

    def add_members(self, values: pa.Array, rows: Int64s, count: int) -> None:
        """Append rows that have any number of values."""
        start = self._count or 0
        self._coder.add(values)
        self._rows.append(rows + start)
        self._count = start + count

    def finish(self) -> bytes:
        """Return the payload."""
        coded, rows = self._coder.finish(), None
        if self._count is not None:
            coded, rows = members_by_row(coded, np.concatenate(self._rows), self._count)
        body = _Body(self._keys, coded, rows)
        count = len(coded.codes) if self._count is None else self._count
        head = [_HEAD.pack(self._version, count, coded.cardinality, body.nulls > 0)]
        if self._version == 1:
            head.append(_I4.pack(body.null_offset) if body.nulls else b"")
            head.append(pack(self._keys, coded.dictionary.take(pa.array(body.order)), body.offsets[body.order])[0])
        else:
            head.append(_II.pack(body.null_offset, body.null_length) if body.nulls else b"")
            head.append(_blocks(self._keys, coded, body, self._block_size))
        return b"".join([*head, body.data])


_SINGLE_BYTES = 18
"""Bytes of a Roaring bitmap with one row."""
_FEW_GROUPS, _MANY_ROWS = 24, 1 << 16
"""With few values and many rows a mask for each value beats sorting the rows (4M rows, 5 values: half the time)."""
_Grouped = tuple[Int64s, Int64s, bytes, Int64s]
"""Per group: rows, first row; then the bitmaps of groups with more than one row, and their offsets."""


class _Body:
    """The bitmaps of a column and their places; arrays are indexed by code."""

    def __init__(self, keys: keyed.Keys, coded: Coded, rows: Int64s | None = None) -> None:
        """``rows``: the row of each code; None: code i is row i's."""
        n = coded.cardinality
        self.order = _java_order(keys, coded)
        # Group 0 are the NULLs (their bitmap comes first), then the values in Java's order.
        group = np.zeros(n + 1, np.int32)
        group[self.order] = np.arange(1, n + 1, dtype=np.int32)
        small = group.astype(np.uint8) if n < 1 << 8 else group.astype(np.uint16) if n < 1 << 16 else group
        few = n < _FEW_GROUPS and len(coded.codes) >= _MANY_ROWS and rows is None
        groups = small[coded.codes]
        grouped = _by_masks(groups, n + 1) if few else _by_sorting(groups, n + 1, rows)
        counts, first, self.data, cuts = grouped
        self.nulls = int(counts[0])
        many = counts > 1
        sizes = np.full(n + 1, -1, np.int64)
        offsets = np.zeros(n + 1, np.int64)
        sizes[many] = np.diff(cuts)
        offsets[many] = cuts[:-1]
        offsets[counts == 1] = -1 - first[counts == 1]
        self.null_offset = int(offsets[0])
        self.null_length = _SINGLE_BYTES if self.nulls == 1 else int(sizes[0])
        self.offsets: Int64s = offsets[group[:n]]
        self.lengths: Int64s = sizes[group[:n]]
        if len(self.data) > _MAX:
            raise UnsupportedFeature(f"a bitmap index of {n} values takes more than 2 GiB; write smaller files")


def _by_sorting(groups: npt.NDArray[np.integer], n: int, rows: Int64s | None) -> _Grouped:
    positions, bounds = rows_by_group(groups, n)
    if rows is not None:
        positions = rows[positions]
    counts = np.diff(bounds)
    many = counts > 1
    kept = positions if many.all() else positions[np.repeat(many, counts)]
    data, cuts = serialize_many(kept, np.concatenate(([0], np.cumsum(counts[many]))))
    first = np.zeros(n, np.int64)
    first[counts > 0] = positions[bounds[:-1][counts > 0]]
    return counts, first, data, cuts


def _by_masks(groups: npt.NDArray[np.integer], n: int) -> _Grouped:
    counts, first, bodies = np.zeros(n, np.int64), np.zeros(n, np.int64), []
    for g in range(n):
        mask = groups == g
        counts[g] = np.count_nonzero(mask)
        first[g] = np.argmax(mask)
        if counts[g] > 1:
            bodies.append(serialize_mask(mask))
    return counts, first, b"".join(bodies), np.cumsum([0, *map(len, bodies)], dtype=np.int64)


def _java_order(keys: keyed.Keys, coded: Coded) -> Int64s:
    """The codes in the order Paimon's (Java) map of bitmaps has them."""
    first = first_rows(coded.codes, coded.cardinality)
    arrival = np.argsort(first)
    if len(arrival) == 0:
        return arrival
    last_first = int(first[arrival[-1]])
    called_again = bool(np.any(coded.codes[last_first + 1 :] >= 0))
    hashes = keys.java_hashes(coded.dictionary)[arrival]
    order: Int64s = arrival[compute_if_absent_order(hashes, called_again)]
    return order


def _blocks(keys: keyed.Keys, coded: Coded, body: _Body, block_size: int) -> bytes:
    """The directory, the size of all blocks, and the blocks."""
    order = np.arange(coded.cardinality) if coded.ordered else keys.sort_indices(coded.dictionary)
    ordered = coded.dictionary if coded.ordered else coded.dictionary.take(pa.array(order))
    data, ends = pack(keys, ordered, body.offsets[order], body.lengths[order])
    starts = _block_starts(ends, block_size - 4)
    pieces = [
        piece
        for start, stop in pairwise([*starts, len(ordered)])
        for piece in (_I4.pack(stop - start), data[ends[start] : ends[stop]])
    ]
    offsets = ends[starts] + 4 * np.arange(len(starts))
    directory = pack(keys, ordered.take(pa.array(starts, pa.int64())), offsets)[0]
    total = len(data) + 4 * len(starts)
    if total > _MAX:
        raise UnsupportedFeature(f"a bitmap index of {len(ordered)} values takes more than 2 GiB; write smaller files")
    return b"".join([_I4.pack(len(starts)), directory, _I4.pack(total), *pieces])


def _block_starts(ends: Int64s, room: int) -> list[int]:
    """The first entry of each block: as many entries as fit, at least one.

    Paimon refuses an entry that is bigger than a block; its readers take a bigger block, so such an entry gets one.
    """
    starts, at, n = [], 0, len(ends) - 1
    while at < n:
        starts.append(at)
        at = max(int(np.searchsorted(ends, ends[at] + room, side="right")) - 1, at + 1)
    return starts


_READ_HEAD = 10
_HEADERS_APART = 256
"""For at most this number of bitmaps, headers are fetched one by one instead of in one request."""
_ROARING = 8192
"""Bytes of a bitmap beyond one bit for each row, at most."""
_BLOCK = 16 * 1024
_MOST_ESTIMATED = 64
"""Selectivity is estimated for lists of at most this number of values."""
_SCAN_BYTES = 1 << 20
"""Ranges and LIKE are evaluated if all keys, and the bitmaps of those that match, take at most this number of bytes."""

_KEPT_BYTES = 4 << 20
"""The bitmaps of all values are kept, once they were read and checked for groups, if they take at most these bytes."""


class _Entries:
    """Values of the index with their (offset, length): a block of version 2, or all of version 1."""

    __slots__ = ("_index", "_order", "_sorted", "keys", "places")

    def __init__(self, keys: list[bytes] | Int64s, places: Int64s) -> None:
        self.keys = keys
        self.places = places
        self._index: dict[bytes, int] | None = None
        self._order: Int64s | None = None
        self._sorted: Int64s | None = None

    def find(self, key: keyed.Key) -> int | None:
        if isinstance(self.keys, list):
            if self._index is None:
                self._index = {k: i for i, k in enumerate(self.keys)}
            return self._index.get(key)  # type: ignore[arg-type]
        if self._sorted is None:
            self._order = np.argsort(self.keys, kind="stable")
            self._sorted = self.keys[self._order]
        at = int(np.searchsorted(self._sorted, key))
        if at < len(self._sorted) and self._sorted[at] == key:
            assert self._order is not None
            return int(self._order[at])
        return None


class BitmapReader:
    """Evaluates ``=``, ``<>``, ``[NOT] IN`` and ``IS [NOT] NULL``; ranges and simple LIKE if there are few keys."""

    def __init__(self, kind: DataType, fetch: Fetch, length: int, row_count: int) -> None:
        self.keys = keyed.keys_for(kind, ACCEPTS)
        self._payload = LazyBytes(fetch, length)
        self.row_count = row_count
        self._open = False
        self._values = 0
        self._null_place: tuple[int, int] | None = None
        self._body = 0
        self._first_keys: list[keyed.Key] = []
        self._block_bounds: list[int] = []
        self._blocks: dict[int, _Entries] = {}
        self._nulls: BitMap | None = None
        self._by_value: list[BitMap] | None = None
        self._entries: tuple[pa.Array, Int64s] | None = None
        self._of_members = False

    def expect_members(self) -> None:
        """See :class:`bitlake.fileindex.capabilities.MemberReader`."""
        self._of_members = True

    def test(self, leaf: Leaf) -> Selection | None:
        """Return the rows for which the leaf is TRUE.  None if this index cannot evaluate it."""
        self._opened()
        return self._like(leaf) if isinstance(leaf, Like) else keyed.evaluate_leaf(self, leaf)

    def nulls(self) -> BitMap:
        """Return the rows that are NULL."""
        if self._nulls is None:
            self._nulls = BitMap() if self._null_place is None else self._rows(*self._null_place)
        return self._nulls

    def present(self) -> BitMap:
        """Return the rows that are not NULL."""
        return BitMap(range(self.row_count)) - self.nulls()

    def having(self, keys: keyed.KeyList) -> BitMap:
        """Return the rows with any of these keys."""
        if len(keys) > max(keyed.LONG_LIST, len(self._first_keys)):
            # More keys than blocks: nearly every block is read anyway.
            known, of_all = self._everything()
            return self._rows_of(of_all[keyed.are_listed(known, keys)])
        places = [place for key in keyed.one_by_one(keys) if (place := self._place(key)) is not None]
        if not places:
            return BitMap()
        if len(places) == 1 and places[0][0] >= 0:
            return self._rows(*places[0])
        return self._rows_of(np.array(places, np.int64).reshape(-1, 2))

    def compared(self, op: Op, key: keyed.Key) -> BitMap | None:
        """Return the rows whose key is <, <=, > or >= another.  None if there are too many keys."""
        scanned = self._scan()
        if scanned is None:
            return None
        keys, places = scanned
        if isinstance(key, bytes):
            match = pc.call_function(_COMPARE[op], [keys, pa.scalar(key, self.keys.arrow)])
            match = match.to_numpy(zero_copy_only=False)
        else:
            match = _COMPARE_INTS[op](self.keys.order(self.keys.numpy(keys)), self.keys.sortable(key))
        return self._matching(places[match])

    def _rows_of(self, places: Int64s) -> BitMap:
        """Return the union of the rows at these (offset, length) places."""
        offsets = places[:, 0]
        single = -1 - offsets[offsets < 0]
        if np.any(single >= self.row_count):
            raise CorruptError(f"a bitmap index names row {int(single.max())} of {self.row_count}")
        many = places[np.argsort(offsets, kind="stable")][len(single) :]
        bitmaps = [self._rows(int(o), int(n)) for o, n in many]
        if len(single):
            bitmaps.append(bitmap_of(np.sort(single)))
        return BitMap.union(*bitmaps) if len(bitmaps) > 1 else bitmaps[0] if bitmaps else BitMap()

    def _rows(self, offset: int, length: int) -> BitMap:
        if offset < 0:
            return self._rows_of(np.array([[offset, length]], np.int64))
        at = self._body + offset
        return deserialize(self._payload.view(at, length), self.row_count, at)[0]

    # Counting values ----------------------------------------------------------------------------------------------

    def distinct(self) -> pa.Array | None:
        """Return the distinct values of all rows.  None if the keys are not the values."""
        self._opened()
        return keyed.to_arrow(self.keys, self._everything()[0]) if keyed.are_values(self.keys) else None

    def value_counts(self, rows: BitMap | None) -> ValueCounts | None:
        """Count how many of ``rows`` (None: all) have each value, mostly from the bitmaps' headers.

        None if the keys are not the values, or if too many bitmaps would be read.
        """
        self._opened()
        if not keyed.are_values(self.keys):
            return None
        keys, places = self._everything()
        stored = np.flatnonzero(places[:, 0] >= 0)
        counts = np.ones(len(places), np.int64)
        if rows is None:
            counts[stored] = self._cardinalities(places[stored])
            nulls = self._null_count()
            if int(counts.sum()) + nulls != self.row_count:
                raise CorruptError(f"a bitmap index counts {int(counts.sum())} + {nulls} of {self.row_count} rows")
            return ValueCounts(keyed.to_arrow(self.keys, keys), counts, nulls)
        if len(stored) > keyed.MAX_COUNTED:
            return None
        single = np.flatnonzero(places[:, 0] < 0)
        counts[single] = contains(rows, -1 - places[single, 0])
        for i in stored.tolist():  # at most MAX_COUNTED
            counts[i] = self._rows(int(places[i, 0]), int(places[i, 1])).intersection_cardinality(rows)
        nulls = self.nulls().intersection_cardinality(rows)
        if int(counts.sum()) + nulls != len(rows):
            raise CorruptError(f"a bitmap index counts {int(counts.sum())} + {nulls} of {len(rows)} rows")
        there = np.flatnonzero(counts)
        return ValueCounts(keyed.to_arrow(self.keys, keys.take(pa.array(there))), counts[there], nulls)

    def groups(self, rows: BitMap | None, most: int) -> RowGroups | None:
        """See :class:`bitlake.fileindex.capabilities.RowGrouper`."""
        self._opened()
        if not keyed.are_values(self.keys) or self._values > min(most, keyed.MAX_COUNTED):
            return None
        keys, places = self._everything()
        nulls = self.nulls() if rows is None else self.nulls() & rows
        bitmaps = self._by_value
        if bitmaps is None:
            bitmaps = [self._rows(offset, length) for offset, length in places.tolist()]  # at most MAX_COUNTED
            if int(np.maximum(places[:, 1], 0).sum()) <= _KEPT_BYTES:
                self._by_value = bitmaps
        if rows is not None:
            bitmaps = [bitmap & rows for bitmap in bitmaps]
        counts = np.array([len(bitmap) for bitmap in bitmaps], np.int64)
        total = self.row_count if rows is None else len(rows)
        if int(counts.sum()) + len(nulls) != total:
            raise CorruptError(f"a bitmap index counts {int(counts.sum())} + {len(nulls)} of {total} rows")
        present = np.flatnonzero(counts)
        values = keyed.to_arrow(self.keys, keys.take(pa.array(present)))
        return keyed.with_nulls(values, [bitmaps[i] for i in present.tolist()], nulls)

    def sums(self, groups: Sequence[BitMap | None]) -> ValueSums | None:
        """See :class:`bitlake.fileindex.capabilities.ValueSummer`."""
        self._opened()
        if not keyed.are_numbers(self.keys) or self._values * len(groups) > keyed.MAX_COUNTED:
            return None
        if list(groups) == [None]:
            counted = self.value_counts(None)
            assert counted is not None
            return sums.of_counts(self._numbers(counted.values), [counted.counts])
        by_value = self.groups(None, keyed.MAX_COUNTED)
        if by_value is None:
            return None
        numbers = self._numbers(by_value.values.drop_null())
        rows = by_value.rows[: len(numbers)]  # NULL is last
        counts = [
            np.array([len(r) if g is None else r.intersection_cardinality(g) for r in rows], np.int64) for g in groups
        ]
        return sums.of_counts(numbers, counts)

    def _numbers(self, values: pa.Array) -> Int64s:
        return self.keys.numpy(self.keys.of_array(values)).astype(np.int64)

    # Estimating and comparing -------------------------------------------------------------------------------------

    def bytes_to_read(self, leaf: Leaf, length: int, rows: int) -> int:
        """See :class:`bitlake.fileindex.capabilities.CostEstimator`."""
        if isinstance(leaf, Like):
            return length
        if isinstance(leaf, Comparison) and leaf.op not in (Op.EQ, Op.NE):
            return min(length, _SCAN_BYTES)
        values = len(leaf.values) if isinstance(leaf, In) else 1
        return min(length, values * (_BLOCK + rows // 8 + _ROARING))

    def selectivity(self, leaf: Leaf) -> float | None:
        """See :class:`bitlake.fileindex.capabilities.CostEstimator`."""
        match leaf:
            case Comparison(_, (Op.EQ | Op.NE) as op, value):
                values, negated = (value,), op is Op.NE
            case In(_, values, negated) if len(values) <= _MOST_ESTIMATED:
                pass
            case _:
                return None
        keys = set(self.keys.keys_of_all(values)[0])
        share = self.count_having(list(keys)) / max(self.row_count, 1)
        return 1 - share if negated else share

    def difference(self, rebuilt: BitmapReader) -> str | None:
        """See :class:`bitlake.fileindex.capabilities.Comparable`."""
        expected, stored = rebuilt.rows_by_key(), self.rows_by_key()
        if len(expected) != len(stored):
            return f"it has {len(stored):,} values, and the column {len(expected):,}"
        for key, rows in expected:
            found = self.having([key])
            if found != rows:
                return f"it has other rows for a value of row {(found ^ rows)[0]:,}"
        odd = self.nulls() ^ rebuilt.nulls()
        return f"it is wrong about whether row {odd[0]:,} is NULL, and {len(odd) - 1:,} more rows" if odd else None

    def count_having(self, keys: list[keyed.Key]) -> int:
        """Count the rows that have any of these (different) keys, from the bitmaps' headers."""
        self._opened()
        places = np.array([p for k in keys if (p := self._place(k)) is not None], np.int64).reshape(-1, 2)
        stored = places[:, 0] >= 0
        return int((~stored).sum()) + int(self._cardinalities(places[stored]).sum())

    def rows_by_key(self) -> list[tuple[keyed.Key, BitMap]]:
        """Return each key with its rows, without NULL; a Python object for each key."""
        self._opened()
        keys, places = self._everything()
        return [(k, self._rows(int(o), int(n))) for k, (o, n) in zip(keys.to_pylist(), places.tolist(), strict=True)]

    def _null_count(self) -> int:
        if self._null_place is None:
            return 0
        if self._null_place[0] < 0:
            return 1
        return int(self._cardinalities(np.array([self._null_place], np.int64))[0])

    def _cardinalities(self, places: Int64s) -> Int64s:
        if len(places) > _HEADERS_APART:
            end = int(places.sum(axis=1).max())
            return keyed.cardinalities(self._payload.view(self._body, end), places[:, 0])
        return np.array(
            [keyed.counted_rows(self._payload, self._body + int(o), int(n), self.row_count) for o, n in places],
            np.int64,
        )

    def _everything(self) -> tuple[pa.Array, Int64s]:
        """Return all keys with their places, which stay in memory if they are few."""
        if self._entries is not None:
            return self._entries
        blocks = [self._block(i) for i in range(len(self._first_keys))]
        if not blocks:
            return pa.array([], self.keys.arrow), np.zeros((0, 2), np.int64)
        keys = pa.concat_arrays([pa.array(b.keys).cast(self.keys.arrow) for b in blocks])
        if len(keys) != self._values:
            raise CorruptError(f"a bitmap index of {self._values} values holds {len(keys)}")
        entries = keys, np.concatenate([b.places for b in blocks])
        if len(keys) <= keyed.MAX_COUNTED:
            self._entries = entries
        return entries

    def _opened(self) -> None:
        if not self._open:
            self._read_header()
            self._open = True

    # Finding values -----------------------------------------------------------------------------------------------

    def _place(self, key: keyed.Key) -> tuple[int, int] | None:
        """Return the (offset, length) of a key's rows."""
        if not self._first_keys:
            return None
        block = 0
        if len(self._first_keys) > 1:
            block = bisect_right(self._first_keys, self.keys.sortable(key)) - 1
        if block < 0:
            return None
        entries = self._block(block)
        at = entries.find(key)
        return None if at is None else (int(entries.places[at, 0]), int(entries.places[at, 1]))

    def _block(self, i: int) -> _Entries:
        if i not in self._blocks:
            start, end = self._block_bounds[i], self._block_bounds[i + 1]
            self._payload.view(start, end - start, ahead=0)  # in one request, and nothing beyond
            count = Reader(self._payload.view(start, 4), start).i4()
            keys, places, stop = read_records(self.keys, self._payload, start + 4, count, 2, end)
            self._blocks[i] = _Entries(keys, places)
            if stop > end:
                raise CorruptError("a block of a bitmap index is longer than its place", start)
        return self._blocks[i]

    # Scanning values ----------------------------------------------------------------------------------------------

    def _scan(self) -> tuple[pa.Array, Int64s] | None:
        """Return all keys with their places.  None if there are too many."""
        if self._block_bounds[-1] - self._block_bounds[0] > _SCAN_BYTES:
            return None
        return self._everything()

    def _matching(self, places: Int64s) -> BitMap | None:
        return None if int(np.maximum(places[:, 1], 0).sum()) > _SCAN_BYTES else self._rows_of(places)

    def _like(self, leaf: Like) -> Selection | None:
        """``'p%'``, ``'%p'`` and ``'%p%'``."""
        inner = leaf.pattern.strip("%")
        if leaf.negated or self.keys.type.root is not Root.VARCHAR or not inner:
            return None
        if leaf.escape in ("%", "_") or any(c in inner for c in ("%", "_", leaf.escape)):
            return None
        ends = (leaf.pattern.startswith("%"), leaf.pattern.endswith("%"))
        if leaf.pattern != "%" * ends[0] + inner + "%" * ends[1]:
            return None
        scanned = self._scan()
        if scanned is None:
            return None
        keys, places = scanned
        match ends:
            case (False, False):
                return keyed.evaluate_leaf(self, Comparison(leaf.column, Op.EQ, inner))
            case (False, True):
                match_ = pc.starts_with(keys, inner.encode())
            case (True, False):
                match_ = pc.ends_with(keys, inner.encode())
            case _:
                match_ = pc.match_substring(keys, inner.encode())
        rows = self._matching(places[match_.to_numpy(zero_copy_only=False)])
        return None if rows is None else Selection.of(rows, True)

    # Headers ------------------------------------------------------------------------------------------------------

    def _read_header(self) -> None:
        payload = self._payload
        reader = Reader(payload.view(0, _READ_HEAD))
        version, rows, values, has_nulls = reader.u1(), reader.i4(), reader.i4(), reader.u1()
        if version > 2:
            raise UnsupportedFeature(f"bitmap index version {version} is not known, only 1 and 2")
        if version == 0 or has_nulls > 1:
            raise CorruptError("this is not a bitmap index", 0)
        if rows != self.row_count:
            raise CorruptError(f"the bitmap index is of {rows} rows, its data file has {self.row_count}", 1)
        # Of members there may be more values than rows; each takes more than a byte.
        if not 0 <= values <= (payload.length if self._of_members else rows):
            raise CorruptError(f"a bitmap index of {rows} rows cannot have {values} values", 5)
        self._values = values
        (self._read_v1 if version == 1 else self._read_v2)(bool(has_nulls))

    def _read_v1(self, has_nulls: bool) -> None:
        payload, at = self._payload, _READ_HEAD
        null_offset = None
        if has_nulls:
            null_offset = Reader(payload.view(at, 4), at).i4()
            at += 4
        keys, tails, body = read_records(self.keys, payload, at, self._values, 1)
        # No lengths are stored: a bitmap ends where the next one starts, the last one with the payload.
        offsets = tails[:, 0]
        stored = offsets[offsets >= 0]
        every = stored if null_offset is None or null_offset < 0 else np.concatenate(([null_offset], stored))
        stops = np.append(every, payload.length - body)
        lengths = np.diff(stops)
        if np.any(lengths <= 0):
            raise CorruptError("the bitmaps of a bitmap index are not in the order of its header", at)
        places = np.stack([offsets, np.full(len(offsets), -1)], axis=1)
        places[offsets >= 0, 1] = lengths[len(every) - len(stored) :]
        if null_offset is not None:
            self._null_place = (null_offset, int(lengths[0]) if null_offset >= 0 else -1)
        self._body = body
        if self._values:
            first: keyed.Key = b"" if isinstance(keys, list) else 0
            self._first_keys = [first]
            self._block_bounds = [at, body]
            self._blocks[0] = _Entries(keys, places)
        else:
            self._block_bounds = [at, at]

    def _read_v2(self, has_nulls: bool) -> None:
        payload, at = self._payload, _READ_HEAD
        if has_nulls:
            reader = Reader(payload.view(at, 8), at)
            self._null_place = (reader.i4(), reader.i4())
            at += 8
        count = Reader(payload.view(at, 4), at).i4()
        at += 4
        if not 0 <= count <= self._values:
            raise CorruptError(f"a bitmap index of {self._values} values cannot have {count} blocks", at - 4)
        if self.keys.width:
            listed = count * (self.keys.width + 4) + 4
            payload.view(at, min(listed, payload.length - at), ahead=0)  # with the number that follows, in one request
        keys, tails, at = read_records(self.keys, payload, at, count, 1)
        ordered = keys if isinstance(keys, list) else self.keys.order(keys.astype(self.keys.dtype)).tolist()
        first: list[keyed.Key] = list(ordered)
        size = Reader(payload.view(at, 4), at).i4()
        at += 4
        bounds = [*tails[:, 0].tolist(), size]
        if not 0 <= size <= payload.length - at or bounds[0] != 0 or any(b - a < 4 for a, b in pairwise(bounds)):
            raise CorruptError("the blocks of a bitmap index do not follow each other", at)
        if any(b <= a for a, b in pairwise(first)):  # type: ignore[operator]
            raise CorruptError("the blocks of a bitmap index are not in order", at)
        self._first_keys = first
        self._block_bounds = [b + at for b in bounds]
        self._body = at + size


_COMPARE = {Op.LT: "less", Op.LE: "less_equal", Op.GT: "greater", Op.GE: "greater_equal"}
_COMPARE_INTS = {Op.LT: np.less, Op.LE: np.less_equal, Op.GT: np.greater, Op.GE: np.greater_equal}


# --- the index type ---------------------------------------------------------------------------------------------------

_MOST_ADVISED = 50_000
"""Distinct values in a run beyond which a bitmap for each is not tried: a range-bitmap does the same with less."""
_VALUE_BYTES = 20
"""Bytes of a value that do not grow with the rows: key, place, and the head of its bitmap."""
_VALUES_AT = 5


class _BitmapIndex(IndexType):
    name = "bitmap"
    accepts = ACCEPTS
    options = (VERSION, BLOCK_SIZE)

    supports = staticmethod(supports)
    writer = staticmethod(BitmapWriter)
    reader = staticmethod(BitmapReader)

    def describe(self, section: Section, payload: LazyBytes, kind: DataType | None, page: Page | None) -> None:
        keys = keyed.keys_to_describe(section, kind)
        if keys is not None:
            _describe(section, payload, keys, page)

    def stored_rows(self, payload: LazyBytes) -> int | None:
        return Reader(payload.view(1, 4), 1).i4() if payload.length >= _VALUES_AT else None

    def trial_options(self, column: ColumnFacts) -> Mapping[str, str] | None:
        return {} if column.most_in_run <= _MOST_ADVISED else None

    def suitability(self, leaf: Leaf, kind: DataType) -> int:
        match leaf:
            case Comparison(_, Op.LT | Op.LE | Op.GT | Op.GE, _):
                return 0
            case Like():
                return 3 if isinstance(kind, AtomicType) and kind.root in STRINGS else 0
            case Comparison(_, Op.EQ, _) | In(_, _, False):
                return 2 if keyed.is_floating(kind) else 3
        return 3

    def fixed_bytes(self, payload: bytes) -> int:
        return int(_I4.unpack_from(payload, _VALUES_AT)[0]) * _VALUE_BYTES

    def growing_read(self, payload: bytes, read: SampledRead) -> tuple[int, int | None]:
        if not read.decided:
            return 0, None
        ranges = sum(isinstance(leaf, Comparison) and leaf.op not in (Op.EQ, Op.NE) for leaf in read.leaves)
        if ranges:  # the bitmaps of all values in the range are read, if they are not too many
            return max(0, read.beyond_first - self.fixed_bytes(payload)), ranges * _SCAN_BYTES
        return min(read.bytes_read, sum(len(rows.serialize()) for rows in read.matches)), None


BITMAP = _BitmapIndex()


def _describe(section: Section, payload: LazyBytes, keys: keyed.Keys, page: Page | None) -> None:
    """Add head, blocks and body; with a ``page`` its values, and where the rows of each are."""
    reader = Reader(payload.view(0, min(_READ_HEAD, payload.length)))
    version, rows, values, nulls = reader.u1(), reader.i4(), reader.i4(), reader.u1()
    section.facts.update({"version": version, "rows": rows, "values": values})
    section.add("head", 0, _READ_HEAD, {"has NULLs": bool(nulls)})
    if version not in (1, 2) or nulls > 1 or not 0 <= values <= rows:
        raise CorruptError(f"this is not a bitmap index: version {version}, {values:,} values in {rows:,} rows", 0)
    (_describe_v1 if version == 1 else _describe_v2)(section, payload, keys, rows, values, bool(nulls), page)


def _describe_v1(
    section: Section, payload: LazyBytes, keys: keyed.Keys, rows: int, values: int, nulls: bool, page: Page | None
) -> None:
    at = _READ_HEAD
    null_offset = None
    if nulls:
        null_offset = Reader(payload.view(at, 4), at).i4()
        at += 4
    entries, tails, body = read_records(keys, payload, at, values, 1)
    listed = section.add("values", at, body - at, {"": values})
    section.add("bitmaps", body, payload.length - body)
    offsets = tails[:, 0]
    stored = offsets[offsets >= 0]
    starts = stored if null_offset is None or null_offset < 0 else np.concatenate(([null_offset], stored))
    ends = dict(pairwise([*starts.tolist(), payload.length - body]))
    if null_offset is not None:
        length = ends.get(null_offset, null_offset) - null_offset
        _describe_value(section, payload, body, "NULL", null_offset, length, rows)
    if page is not None:
        for i, text in zip(page.of(values), keyed.key_texts(keys, entries, page.of(values)), strict=True):
            offset = int(offsets[i])
            _describe_value(listed, payload, body, text, offset, ends.get(offset, offset) - offset, rows)
        listed.more = page.left(values)


def _describe_v2(
    section: Section, payload: LazyBytes, keys: keyed.Keys, rows: int, values: int, nulls: bool, page: Page | None
) -> None:
    at = _READ_HEAD
    null_place = None
    if nulls:
        reader = Reader(payload.view(at, 8), at)
        null_place = reader.i4(), reader.i4()
        at += 8
    start = at
    count = Reader(payload.view(at, 4), at).i4()
    if not 0 <= count <= values:
        raise CorruptError(f"a bitmap index of {values:,} values cannot have {count:,} blocks", at)
    _, tails, at = read_records(keys, payload, at + 4, count, 1)
    size = Reader(payload.view(at, 4), at).i4()
    at += 4
    section.add("block index", start, at - start, {"blocks": count, "bytes of blocks": size})
    bounds = [*tails[:, 0].tolist(), size]
    if not 0 <= size <= payload.length - at or any(not b - a >= 4 for a, b in pairwise(bounds)):
        raise CorruptError("the blocks of a bitmap index do not follow each other", at)
    body = at + size
    blocks = section.add("blocks", at, size, {"": count})
    section.add("bitmaps", body, payload.length - body)
    if null_place is not None:
        _describe_value(section, payload, body, "NULL", *null_place, rows)
    if page is None:
        return
    seen = 0
    for number in range(count):
        begin, end = at + bounds[number], at + bounds[number + 1]
        held = Reader(payload.view(begin, 4), begin).i4()
        if held < 0 or held > values:
            raise CorruptError(f"a block of {held:,} values", begin)
        shown = range(max(page.offset - seen, 0), min(held, page.offset + page.limit - seen))
        if shown:
            block = blocks.add(f"block {number}", begin, end - begin, {"values": held})
            with block.reading():
                entries, places, stop = read_records(keys, payload, begin + 4, held, 2, end)
                if stop > end:
                    raise CorruptError("a block of a bitmap index is longer than its place", begin)
                for i, text in zip(shown, keyed.key_texts(keys, entries, shown), strict=True):
                    _describe_value(block, payload, body, text, int(places[i, 0]), int(places[i, 1]), rows)
        seen += held
    blocks.more = page.left(seen)


def _describe_value(
    section: Section, payload: LazyBytes, body: int, text: str, offset: int, length: int, rows: int
) -> None:
    if offset < 0:  # a single row is stored in the offset itself
        section.add(text, facts={"row": -1 - offset})
        return
    value = section.add(text)  # its bytes are among the bitmaps, not here
    with value.reading():
        value.facts.update({"bitmap at": value.base + body + offset, "bytes": length})
        if length <= 0:
            raise CorruptError(f"a bitmap of {length} bytes", body + offset)
        value.facts = {"rows": keyed.counted_rows(payload, body + offset, length, rows), **value.facts}
