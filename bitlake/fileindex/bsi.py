"""The ``bsi`` index (deprecated in Paimon) stores numbers as bit slices, positive and negative numbers separately.

::

    u1 version=1 | i4 rows | u1 has positive | [part] | u1 has negative | [part]
    part: u1 version=1 | i8 min | i8 max | E: rows of the part | i4 slices | slice 0 | slice 1 | ...

The positive part holds values >= 0, the negative one the absolute values of those below.  Slice ``i`` holds the rows
whose value minus ``min`` has bit ``i``; Paimon always writes min = 0 and as many slices as max - min has bits.  Bitmaps
are portable Roaring without lengths, integers big-endian.  Source: index-format spec, section 5.

The kernels over bit slices are shared with the range-bitmap index: slice ``i`` holds the rows whose number has bit
``i``, and a comparison walks over the slices.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from bitlake.codec.bytes import Reader
from bitlake.codec.hashing import Int64s
from bitlake.codec.roaring import bitmap_of, deserialize, serialize_mask
from bitlake.errors import CorruptError, UnsupportedFeature
from bitlake.expressions.tree import Leaf, Op
from bitlake.fileindex import sums
from bitlake.fileindex.capabilities import IndexType, ValueSums
from bitlake.fileindex.keyed import (
    LONG_LIST,
    Key,
    KeyList,
    are_numbers,
    are_values,
    chunks,
    codes_of,
    difference_by_row,
    evaluate_leaf,
    keys_for,
    keys_of,
    to_arrow,
)
from bitlake.fileindex.payload import Fetch, LazyBytes, Page, Section
from bitlake.fileindex.selection import Selection
from bitlake.types import DataType, Root
from bitlake.types.datatypes import INTEGERS, TIMESTAMPS

MOST_SLICES = 63
"""Bits of the largest number."""

# --- bit slices -------------------------------------------------------------------------------------------------------


def encode_slices(numbers: npt.NDArray[np.integer], present: npt.NDArray[np.bool_], slices: int) -> list[bytes]:
    """Return the serialized slices of non-negative numbers; rows that are not ``present`` are in none."""
    held = np.where(present, numbers, 0)
    return [serialize_mask((held & held.dtype.type(1 << i)) != 0) for i in range(slices)]


def any_of(slices: Sequence[BitMap], present: BitMap, numbers: Sequence[int] | Int64s) -> BitMap:
    """Return the rows of ``present`` that have one of these numbers.

    Splits rows and numbers from the top slice down, so that a list costs only a few passes over the rows.  For a long
    list the numbers of all rows are put together instead.
    """
    wanted: Int64s = np.asarray(numbers, np.int64)
    wanted = wanted[wanted >= 0]
    if len(slices) < MOST_SLICES:
        wanted = wanted[wanted < 1 << len(slices)]
    if not len(wanted) or not present:
        return BitMap()
    if len(wanted) > LONG_LIST:
        end = 1 + max(int(rows.max()) for rows in (present, *slices) if rows)
        positions, codes = codes_of(slices, present, end)
        return bitmap_of(positions[np.isin(codes, wanted)])
    bitmaps: list[BitMap] = []
    _descend(slices, present, sorted(set(wanted.tolist())), len(slices), bitmaps)
    return BitMap.union(*bitmaps) if len(bitmaps) > 1 else bitmaps[0].copy() if bitmaps else BitMap()


def _descend(slices: Sequence[BitMap], rows: BitMap, wanted: list[int], bits: int, found: list[BitMap]) -> None:
    if not wanted or not rows:
        return
    if len(wanted) == 1 << bits:  # every number with these upper bits
        found.append(rows)
        return
    bit = bits - 1
    cut = bisect_left(wanted, 1, key=lambda n: n >> bit & 1)
    _descend(slices, rows - slices[bit] if cut else rows, wanted[:cut], bit, found)
    _descend(slices, rows & slices[bit] if cut < len(wanted) else rows, wanted[cut:], bit, found)


def at_least(slices: Sequence[BitMap], present: BitMap, number: int) -> BitMap:
    """Return the rows of ``present`` whose number is at least ``number``."""
    if number <= 0:
        return present.copy()
    number -= 1  # more than number - 1
    if number >> len(slices):
        return BitMap()
    # From the lowest 0 bit upwards: a 1 in number demands the bit, a 0 makes it enough.
    low = 0
    while number >> low & 1:
        low += 1
    if low >= len(slices):
        return BitMap()
    rows = slices[low].copy()
    for i in range(low + 1, len(slices)):
        if number >> i & 1:
            rows &= slices[i]
        else:
            rows |= slices[i]
    return rows & present


def top(slices: Sequence[BitMap], rows: BitMap, k: int, largest: bool) -> tuple[BitMap, BitMap]:
    """Return the k largest (or smallest) of ``rows``: (rows surely among them, rows that tie for the other places).

    O'Neil's algorithm.  Requires 0 < k < len(rows).
    """
    sure, tied = BitMap(), rows.copy()
    for rows_of_bit in reversed(slices):
        better = tied & rows_of_bit if largest else tied - rows_of_bit
        n = len(sure) + len(better)
        if n >= k:
            tied = better
            if n == k:
                break
        else:
            sure |= better
            tied -= better
    return sure, tied


# --- the codec --------------------------------------------------------------------------------------------------------

ACCEPTS = "bsi takes integers, DECIMAL, DATE, TIME and timestamps"
_SUPPORTED = INTEGERS | TIMESTAMPS | {Root.DATE, Root.TIME, Root.DECIMAL}
_VERSION = 1
_LEAST = -(1 << 63)
_HEAD = struct.Struct(">Bi")
_PART = struct.Struct(">Bqq")
_I4 = struct.Struct(">i")


def supports(kind: DataType) -> bool:
    """Whether the index takes values of a type."""
    keys = keys_of(kind)
    return keys is not None and keys.type.root in _SUPPORTED


class BsiWriter:
    """Builds a payload: ``add`` any number of times, then ``finish`` once.  Memory: 8 bytes a row."""

    def __init__(self, kind: DataType, options: Mapping[str, str]) -> None:
        self._keys = keys_for(kind, ACCEPTS, supports)
        self._values: list[Int64s] = []
        self._present: list[npt.NDArray[np.bool_]] = []

    def add(self, column: pa.Array | pa.ChunkedArray) -> None:
        """Append a column's rows; raises :class:`UnsupportedFeature` for -2^63, whose absolute value overflows."""
        for chunk in chunks(column):
            keys = self._keys.of_array(chunk)
            if isinstance(keys, pa.DictionaryArray):
                keys = keys.dictionary_decode()
            values = self._keys.numpy(keys).astype(np.int64)
            present = np.ones(len(values), bool)
            if keys.null_count:
                present = keys.is_valid().to_numpy(zero_copy_only=False)
            if self._keys.width == 8 and np.any(values == _LEAST):
                raise UnsupportedFeature("a bsi index cannot hold -9223372036854775808")
            self._values.append(values)
            self._present.append(present)

    def finish(self) -> bytes:
        """Return the payload."""
        values = np.concatenate([np.zeros(0, np.int64), *self._values])
        present = np.concatenate([np.zeros(0, bool), *self._present])
        out = [_HEAD.pack(_VERSION, len(values))]
        for rows, numbers in ((present & (values >= 0), values), (present & (values < 0), -values)):
            out += [b"\1", *_part(numbers, rows)] if rows.any() else [b"\0"]
        return b"".join(out)


def _part(numbers: Int64s, rows: npt.NDArray[np.bool_]) -> list[bytes]:
    largest = int(numbers[rows].max())
    slices = largest.bit_length()
    head = _PART.pack(_VERSION, 0, largest)
    return [head, serialize_mask(rows), _I4.pack(slices), *encode_slices(numbers, rows, slices)]


@dataclass(frozen=True, slots=True)
class _Part:
    least: int
    most: int
    present: BitMap
    slices: list[BitMap]

    def any_of(self, numbers: Int64s) -> BitMap:
        return any_of(self.slices, self.present, numbers - self.least)

    def at_least(self, number: int) -> BitMap:
        if number > self.most:
            return BitMap()
        return at_least(self.slices, self.present, number - self.least)

    def end(self, rows: BitMap | None, largest: bool, row_count: int) -> int:
        """Return the largest or smallest number of ``rows``, of which one is present; None: of all."""
        held = self.present if rows is None else self.present & rows
        best = BitMap.union(*top(self.slices, held, 1, largest)) if len(held) > 1 else held
        return int(codes_of(self.slices, best[:1], row_count)[1][0]) + self.least


def _intersects(present: BitMap, rows: BitMap | None) -> bool:
    return bool(present) if rows is None else present.intersect(rows)


def _part_sums(part: _Part, groups: Sequence[BitMap | None], way: sums.Way, row_count: int) -> ValueSums:
    """The sums of a part's numbers, without their sign."""
    held = sums.held_rows(groups, part.present)
    if way is sums.Way.ROWS:
        rows, codes = codes_of(part.slices, BitMap.union(*held) if held else BitMap(), row_count)
        return sums.of_rows(held, rows, codes + part.least)
    counts = sums.sizes_of(held, row_count)
    totals = [t + part.least * n for t, n in zip(sums.of_slices(part.slices, held), counts.tolist(), strict=True)]
    return ValueSums(counts, totals, totals)


class BsiReader:
    """Evaluates every operator except LIKE, exactly (timestamps finer than microseconds: a superset of the rows)."""

    def __init__(self, kind: DataType, fetch: Fetch, length: int, row_count: int) -> None:
        self.keys = keys_for(kind, ACCEPTS)
        self.row_count = row_count
        # The payload does not state where a slice starts, so it is read whole.
        self._payload = LazyBytes(fetch, length, length)
        self._parts: tuple[_Part, _Part] | None = None

    def test(self, leaf: Leaf) -> Selection | None:
        """Return the rows for which the leaf is TRUE.  None if this index cannot evaluate it."""
        return evaluate_leaf(self, leaf)

    def present(self) -> BitMap:
        """Return the rows that are not NULL."""
        positive, negative = self._read()
        return positive.present | negative.present

    def nulls(self) -> BitMap:
        """Return the rows that are NULL."""
        return BitMap(range(self.row_count)) - self.present()

    def having(self, keys: KeyList) -> BitMap:
        """Return the rows with any of these keys."""
        positive, negative = self._read()
        numbers = np.asarray(keys, np.int64)
        numbers = numbers[numbers > _LEAST]  # its absolute value overflows, and no index holds it
        return positive.any_of(numbers[numbers >= 0]) | negative.any_of(-numbers[numbers < 0])

    def compared(self, op: Op, key: Key) -> BitMap:
        """Return the rows whose key is <, <=, > or >= another."""
        assert isinstance(key, int)
        positive, negative = self._read()
        start = key + (op in (Op.GT, Op.LE))  # the rows from here on, or all others
        if start >= 0:
            above = positive.at_least(start)
        else:  # all positive ones, and the negative ones whose absolute value is small enough
            above = positive.present | (negative.present - negative.at_least(1 - start))
        return above if op in (Op.GT, Op.GE) else self.present() - above

    def numbers(self) -> tuple[Int64s, Int64s]:
        """Return the rows that are not NULL, and the number of each."""
        parts = [codes_of(p.slices, p.present, self.row_count) for p in self._read()]
        values = [sign * (codes + p.least) for sign, p, (_, codes) in zip((1, -1), self._read(), parts, strict=True)]
        rows, numbers = np.concatenate([f[0] for f in parts]), np.concatenate(values)
        order = np.argsort(rows, kind="stable")
        return rows[order], numbers[order]

    def sums(self, groups: Sequence[BitMap | None]) -> ValueSums | None:
        """See :class:`bitlake.fileindex.capabilities.ValueSummer`."""
        if not are_numbers(self.keys):
            return None
        parts = self._read()
        way = sums.cheapest(sum(len(p.slices) for p in parts), groups, self.row_count)
        if way is None:
            return None
        positive, negative = (_part_sums(part, groups, way, self.row_count) for part in parts)
        return ValueSums(
            positive.counts + negative.counts,
            [p - n for p, n in zip(positive.totals, negative.totals, strict=True)],
            [p + n for p, n in zip(positive.totals, negative.totals, strict=True)],
        )

    def extremes(self, rows: BitMap | None) -> pa.Array | None:
        """See :class:`bitlake.fileindex.capabilities.ValueBounds`; None if the keys are not the values."""
        if not are_values(self.keys):
            return None
        positive, negative = self._read()
        ends = []
        # The smallest value is the largest absolute value below 0, or else the smallest one from 0 up.
        for first, second, largest in ((negative, positive, False), (positive, negative, True)):
            part = first if _intersects(first.present, rows) else second
            if _intersects(part.present, rows):
                number = part.end(rows, largest=largest is (part is positive), row_count=self.row_count)
                ends.append(number if part is positive else -number)
        return to_arrow(self.keys, pa.array(list(dict.fromkeys(ends)), self.keys.arrow))

    def difference(self, rebuilt: BsiReader) -> str | None:
        """See :class:`bitlake.fileindex.capabilities.Comparable`."""
        return difference_by_row(self, rebuilt, self.numbers(), rebuilt.numbers())

    def _read(self) -> tuple[_Part, _Part]:
        if self._parts is None:
            reader = Reader(self._payload.view(0, self._payload.length))
            version, rows = reader.u1(), reader.i4()
            if version > _VERSION:
                raise UnsupportedFeature(f"bsi version {version} is not known, only {_VERSION}")
            if version != _VERSION:
                raise CorruptError("this is not a bsi index", 0)
            if rows != self.row_count:
                raise CorruptError(f"the bsi index is of {rows} rows, its data file has {self.row_count}", 1)
            positive, negative = self._part(reader), self._part(reader)
            if positive.present & negative.present:
                raise CorruptError("a bsi index has rows that are positive and negative", reader.offset)
            self._parts = positive, negative
        return self._parts

    def _part(self, reader: Reader) -> _Part:
        at = reader.offset
        has_rows = reader.u1()
        if not has_rows:
            return _Part(0, 0, BitMap(), [])
        version, least, most = reader.u1(), reader.i8(), reader.i8()
        if has_rows != 1 or version != _VERSION or not 0 <= least <= most:
            raise CorruptError("a part of a bsi index contradicts itself", at)
        present = self._bitmap(reader)
        at = reader.offset
        count = reader.count("the number of slices", 8)
        if not (most - least).bit_length() <= count <= MOST_SLICES:
            raise CorruptError(f"{count} slices cannot hold values from {least} to {most}", at)
        return _Part(least, most, present, [self._bitmap(reader) for _ in range(count)])

    def _bitmap(self, reader: Reader) -> BitMap:
        at = reader.offset
        bitmap, size = deserialize(reader.take(reader.remaining), self.row_count, at)
        reader.seek(at + size)
        return bitmap


# --- the index type ---------------------------------------------------------------------------------------------------


class _BsiIndex(IndexType):
    name = "bsi"
    accepts = ACCEPTS

    supports = staticmethod(supports)
    writer = staticmethod(BsiWriter)
    reader = staticmethod(BsiReader)

    def stored_rows(self, payload: LazyBytes) -> int | None:
        return Reader(payload.view(1, 4), 1).i4() if payload.length >= _HEAD.size else None

    def describe(self, section: Section, payload: LazyBytes, kind: DataType | None, page: Page | None) -> None:
        # The payload does not state where a slice starts, so both parts are read only if entries are asked for.
        reader = Reader(payload.view(0, min(_HEAD.size, payload.length) if page is None else payload.length))
        version, rows = reader.u1(), reader.i4()
        section.facts.update({"version": version, "rows": rows})
        section.add("head", 0, _HEAD.size)
        if version != _VERSION or rows < 0:
            raise CorruptError(f"this is not a bsi index: version {version} of {rows:,} rows", 0)
        for name in ("values from 0", "values below 0") if page is not None else ():
            _describe_part(section.add(name, reader.offset), reader, rows)


BSI = _BsiIndex()


def _describe_part(part: Section, reader: Reader, rows: int) -> None:
    at = reader.offset
    has_rows = reader.u1()
    part.size = 1
    if not has_rows:
        part.facts[""] = "none"
        return
    version, least, most = reader.u1(), reader.i8(), reader.i8()
    part.facts.update({"smallest": least, "largest": most})
    if has_rows != 1 or version != _VERSION or not 0 <= least <= most:
        raise CorruptError("a part of the bsi index contradicts itself", at)
    _describe_bitmap(part, "rows", reader, rows)
    for i in range(reader.count("the number of slices", 8)):
        _describe_bitmap(part, f"bit {i}", reader, rows)
    part.size = reader.offset - at


def _describe_bitmap(part: Section, name: str, reader: Reader, rows: int) -> None:
    at = reader.offset
    section = part.add(name, at)
    bitmap, size = deserialize(reader.take(reader.remaining), rows, at)
    section.size, section.facts["rows"] = size, len(bitmap)
    reader.seek(at + size)
