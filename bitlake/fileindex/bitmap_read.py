"""Reading ``bitmap`` indexes; the layouts are drawn in :mod:`bitlake.fileindex.bitmap`.

A reader fetches the header, then only the blocks and bitmaps a predicate needs, and keeps what it read.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from bitlake.codec.bytes import Reader
from bitlake.codec.hashing import Int64s
from bitlake.codec.roaring import bitmap_of, deserialize
from bitlake.errors import CorruptError, InvalidRequest, UnsupportedFeature
from bitlake.fileindex.answer import answer
from bitlake.fileindex.entries import read_fixed, read_variable
from bitlake.fileindex.keys import Key, keys_of
from bitlake.fileindex.selection import Selection
from bitlake.fileindex.window import Fetch, Window
from bitlake.predicate.tree import Comparison, Leaf, Like, Op
from bitlake.types import DataType, Root

_HEAD = 10
_SCAN_BYTES = 1 << 20
"""Ranges and LIKE read all keys, if they take at most so many bytes (and bitmaps of at most so many bytes match)."""


class _Entries:
    """Some values of the index with their (offset, length): a block of version 2, or all of version 1."""

    __slots__ = ("_index", "_order", "_sorted", "keys", "places")

    def __init__(self, keys: list[bytes] | Int64s, places: Int64s) -> None:
        self.keys = keys
        self.places = places
        self._index: dict[bytes, int] | None = None
        self._order: Int64s | None = None
        self._sorted: Int64s | None = None

    def find(self, key: Key) -> int | None:
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
    """Answers ``=``, ``<>``, ``[NOT] IN`` and ``IS [NOT] NULL``; ranges and simple LIKE while the keys are few."""

    def __init__(self, kind: DataType, fetch: Fetch, length: int, row_count: int) -> None:
        keys = keys_of(kind)
        if keys is None:
            raise InvalidRequest(f"a bitmap index cannot hold values of {kind}")
        self.keys = keys
        self._window = Window(fetch, length)
        self.row_count = row_count
        self._open = False
        self._values = 0
        self._null_place: tuple[int, int] | None = None
        self._body = 0
        self._first_keys: list[Key] = []
        self._block_bounds: list[int] = []
        self._blocks: dict[int, _Entries] = {}
        self._nulls: BitMap | None = None

    def test(self, leaf: Leaf) -> Selection | None:
        """The rows for which the leaf is TRUE, or None when this index cannot tell."""
        if not self._open:
            self._read_header()
            self._open = True
        return self._like(leaf) if isinstance(leaf, Like) else answer(self, leaf)

    def nulls(self) -> BitMap:
        """The rows that are NULL."""
        if self._nulls is None:
            self._nulls = BitMap() if self._null_place is None else self._rows(*self._null_place)
        return self._nulls

    def present(self) -> BitMap:
        """The rows that are not NULL."""
        return BitMap(range(self.row_count)) - self.nulls()

    def having(self, keys: list[Key]) -> BitMap:
        """The rows with any of these keys."""
        places = [place for key in keys if (place := self._place(key)) is not None]
        return self._rows_of(np.array(places, np.int64).reshape(-1, 2))

    def compared(self, op: Op, key: Key) -> BitMap | None:
        """The rows whose key is <, <=, > or >= another; None unless the keys are few."""
        scanned = self._scan()
        if scanned is None:
            return None
        keys, places = scanned
        if isinstance(key, bytes):
            match = _COMPARE[op](keys, pa.scalar(key, self.keys.arrow)).to_numpy(zero_copy_only=False)
        else:
            match = _COMPARE_INTS[op](self.keys.order(self.keys.numpy(keys)), self._sortable(key))
        return self._matching(places[match])

    def _rows_of(self, places: Int64s) -> BitMap:
        """The union of the rows at these (offset, length) places."""
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
        try:
            return deserialize(self._window.view(at, length), self.row_count)[0]
        except CorruptError as e:
            raise CorruptError(e.what, at + (e.offset or 0)) from e

    # Finding values -----------------------------------------------------------------------------------------------

    def _place(self, key: Key) -> tuple[int, int] | None:
        """The (offset, length) of a key's rows."""
        if not self._first_keys:
            return None
        block = 0
        if len(self._first_keys) > 1:
            block = bisect_right(self._first_keys, self._sortable(key)) - 1
        if block < 0:
            return None
        entries = self._block(block)
        at = entries.find(key)
        return None if at is None else (int(entries.places[at, 0]), int(entries.places[at, 1]))

    def _sortable(self, key: Key) -> Key:
        if isinstance(key, bytes) or not self.keys.floating:
            return key
        return int(self.keys.order(np.array([key], self.keys.dtype))[0])

    def _block(self, i: int) -> _Entries:
        if i not in self._blocks:
            start, end = self._block_bounds[i], self._block_bounds[i + 1]
            count = Reader(self._window.view(start, 4), start).i4()
            if self.keys.width:
                keys, places, stop = read_fixed(self.keys, self._window, start + 4, count, 2)
                self._blocks[i] = _Entries(keys, places)
            else:
                names, places, stop = read_variable(self._window, start + 4, count, 2, end)
                self._blocks[i] = _Entries(names, places)
            if stop > end:
                raise CorruptError("a block of a bitmap index is longer than its place", start)
        return self._blocks[i]

    # Scanning values ----------------------------------------------------------------------------------------------

    def _scan(self) -> tuple[pa.Array, Int64s] | None:
        """All keys with their places, while they are few."""
        if not self._block_bounds or self._block_bounds[-1] - self._block_bounds[0] > _SCAN_BYTES:
            return None
        blocks = [self._block(i) for i in range(len(self._first_keys))]
        if not blocks:
            return pa.array([], self.keys.arrow), np.zeros((0, 2), np.int64)
        keys = pa.concat_arrays([pa.array(b.keys).cast(self.keys.arrow) for b in blocks])
        return keys, np.concatenate([b.places for b in blocks])

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
                return answer(self, Comparison(leaf.column, Op.EQ, inner))
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
        window = self._window
        reader = Reader(window.view(0, _HEAD))
        version, rows, values, has_nulls = reader.u1(), reader.i4(), reader.i4(), reader.u1()
        if version > 2:
            raise UnsupportedFeature(f"bitmap index version {version} is not known, only 1 and 2")
        if version == 0 or has_nulls > 1:
            raise CorruptError("this is not a bitmap index", 0)
        if rows != self.row_count:
            raise CorruptError(f"the bitmap index is of {rows} rows, its data file has {self.row_count}", 1)
        if not 0 <= values <= rows:
            raise CorruptError(f"a bitmap index of {rows} rows cannot have {values} values", 5)
        self._values = values
        (self._read_v1 if version == 1 else self._read_v2)(bool(has_nulls))

    def _read_v1(self, has_nulls: bool) -> None:
        window, at = self._window, _HEAD
        null_offset = None
        if has_nulls:
            null_offset = Reader(window.view(at, 4), at).i4()
            at += 4
        keys: list[bytes] | Int64s
        if self.keys.width:
            keys, tails, body = read_fixed(self.keys, window, at, self._values, 1)
        else:
            keys, tails, body = read_variable(window, at, self._values, 1)
        # No lengths are stored: a bitmap ends where the next one starts, the last one with the payload.
        offsets = tails[:, 0]
        stored = offsets[offsets >= 0]
        every = stored if null_offset is None or null_offset < 0 else np.concatenate(([null_offset], stored))
        stops = np.append(every, window.length - body)
        lengths = np.diff(stops)
        if np.any(lengths <= 0):
            raise CorruptError("the bitmaps of a bitmap index are not in the order of its header", at)
        places = np.stack([offsets, np.full(len(offsets), -1)], axis=1)
        places[offsets >= 0, 1] = lengths[len(every) - len(stored) :]
        if null_offset is not None:
            self._null_place = (null_offset, int(lengths[0]) if null_offset >= 0 else -1)
        self._body = body
        if self._values:
            first: Key = b"" if isinstance(keys, list) else 0
            self._first_keys = [first]
            self._block_bounds = [at, body]
            self._blocks[0] = _Entries(keys, places)
        else:
            self._block_bounds = [at, at]

    def _read_v2(self, has_nulls: bool) -> None:
        window, at = self._window, _HEAD
        if has_nulls:
            reader = Reader(window.view(at, 8), at)
            self._null_place = (reader.i4(), reader.i4())
            at += 8
        count = Reader(window.view(at, 4), at).i4()
        at += 4
        if not 0 <= count <= self._values:
            raise CorruptError(f"a bitmap index of {self._values} values cannot have {count} blocks", at - 4)
        if self.keys.width:
            keys, tails, at = read_fixed(self.keys, window, at, count, 1)
            first: list[Key] = self.keys.order(keys.astype(self.keys.dtype)).tolist()
        else:
            names, tails, at = read_variable(window, at, count, 1)
            first = list(names)
        size = Reader(window.view(at, 4), at).i4()
        at += 4
        bounds = np.append(tails[:, 0], size)
        if size < 0 or size > window.length - at or np.any(np.diff(bounds) < 4) or bounds[0] != 0:
            raise CorruptError("the blocks of a bitmap index do not follow each other", at)
        if any(b <= a for a, b in pairwise(first)):  # type: ignore[operator]
            raise CorruptError("the blocks of a bitmap index are not in order", at)
        self._first_keys = first
        self._block_bounds = (bounds + at).tolist()
        self._body = at + size


_COMPARE = {Op.LT: pc.less, Op.LE: pc.less_equal, Op.GT: pc.greater, Op.GE: pc.greater_equal}
_COMPARE_INTS = {Op.LT: np.less, Op.LE: np.less_equal, Op.GT: np.greater, Op.GE: np.greater_equal}


def open_bitmap(kind: DataType, fetch: Fetch, length: int, row_count: int) -> BitmapReader:
    """A lazy reader of a payload of ``length`` bytes."""
    return BitmapReader(kind, fetch, length, row_count)
