"""Gather chosen rows from PLAIN and dictionary pages without decoding their other rows.

A data page (version 1) of a flat column, as one lies in the file::

    PageHeader, Thrift   15 type  15 uncompressed size  15 compressed size  2C (15 values  15 encoding  …) …
    compressed:          optional column: 4 bytes length, little-endian, then the definition levels as RLE runs;
                         where no value is NULL that is one run: varint(values << 1), 01
                         PLAIN values: side by side; of BYTE_ARRAY 4 bytes length, then the bytes, each

pyarrow decodes every value of a page, and makes a zstd context for every page, which takes 16 µs where a hypervisor
catches the CPUID instruction in it (as on the machine of the measurements).  Here one context decompresses all pages;
of fixed widths, and of texts of one length, the chosen rows are then gathered, as those of small dictionary pages are.
Everything else (NULLs, texts of many lengths) goes to pyarrow, decompressed already.

Measured: 61 rows in 57 pages of 4,096 rows, 7 columns, one file of bench/selective.py: 43 → 28 ms of CPU, of which 20
are zstd's (payload 21 → 16, texts in dictionaries 5.5 → 1.8, integers 4.2 → 3.0 each).

Small pages mostly hold few values in few runs.  A dictionary page and a data page (version 1) of a flat column,
decompressed::

    dictionary   PLAIN values side by side; of BYTE_ARRAY 4 bytes length, little-endian, then the bytes, each
    data         optional column: definition levels, as above
                 1 byte: bits of a code; then runs, until there is a code for every value:
                   varint n << 1       n times one code, in as many bytes as its bits need, little-endian
                   varint n << 1 | 1   8 n codes, packed from the lowest bit on (the last ones may be padding)

pyarrow takes some 40 µs to set up a column; a page of a thousand codes is decoded here in 10.  Dictionaries of many
texts, pages of many runs and NULLs are pyarrow's: the loops here are over a few of either.  Of few chosen rows only
their own codes are unpacked: 41 of 4,096 rows in nine runs of three bits take 25 µs, and all of them 90.

Source: the Apache Parquet format (``Encodings.md``: PLAIN, RLE_DICTIONARY).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from bitlake.codec.bytes import varint
from bitlake.codec.hashing import Int64s
from bitlake.errors import CorruptError
from bitlake.formats.parquet import thrift
from bitlake.formats.parquet.footer import BYTE_ARRAY, DOUBLE, FLOAT, INT32, INT64, OPTIONAL, SchemaNode
from bitlake.formats.parquet.thrift import ThriftReader
from bitlake.lazy_modules import compute as pc

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

Codes: TypeAlias = np.ndarray[Any, np.dtype[np.int32]]

ZSTD = 6
"""Parquet's number of the codec, on disk."""
_MAGIC = b"\x28\xb5\x2f\xfd"
PLAIN = 0
PLAIN_DICTIONARY = 2
DICTIONARY = (PLAIN_DICTIONARY, 8)
"""Numbers of encodings, on disk."""
DICTIONARY_PAGE = 2
_PAGE_HEADERS = {0: 0x2C, DICTIONARY_PAGE: 0x4C}
"""By the kind of page, how the Thrift field of its own header begins: fields 5 and 7, after 3."""
_DATA_HEADERS = (5, 8)
"""Thrift fields of the headers of data pages, version 1 and 2."""
_HEAD = 40
BLOCK_BYTES = 1 << 20
"""Decompressed bytes that are looked at together: few enough to stay in the processor's cache."""
NUMBERS = {INT32: np.dtype("<i4"), INT64: np.dtype("<i8"), FLOAT: np.dtype("<f4"), DOUBLE: np.dtype("<f8")}
_SAME: dict[int, tuple[pa.DataType, ...]] = {
    INT32: (pa.int32(), pa.date32()),
    INT64: (pa.int64(),),
    FLOAT: (pa.float32(),),
    DOUBLE: (pa.float64(),),
}


@dataclass(frozen=True, slots=True)
class PageBytes:
    """A page as it lies in the file: the rest of its header after the sizes, and its compressed values."""

    kind: int
    size: int
    rest: memoryview
    body: memoryview
    values: int
    """Its values; of a dictionary its entries."""
    encoding: int

    def plainly(self, body: Any) -> list[Any]:
        """The page without compression: its header, and its decompressed bytes."""
        size = thrift.i32_field(1, self.size)
        return [thrift.i32_field(1, self.kind) + size + size + self.rest, body]


def split_page(page: memoryview) -> PageBytes | None:
    """The parts of a page; None for any that is not laid out as drawn above, or not compressed by zstd."""
    head = _page_head(bytes(page[:_HEAD]))
    if head is None:
        return None
    kind, size, compressed, values, encoding, at = head
    start = len(page) - compressed
    if start <= at or page[start : start + 4] != _MAGIC:
        return None
    return PageBytes(kind, size, page[at:start], page[start:], values, encoding)


def page_values(page: memoryview) -> tuple[int, bool]:
    """The number of values of a data page of any version, and whether these are known to be a dictionary's codes.

    Of a repeated column the values are not the rows.  Raises :class:`CorruptError`.
    """
    head = _page_head(bytes(page[:_HEAD]))
    if head is not None:
        return head[3], head[4] in DICTIONARY
    header = ThriftReader(bytes(page)).struct()
    values = next((header[i].get(1) for i in _DATA_HEADERS if isinstance(header.get(i), dict)), None)
    if not isinstance(values, int) or values < 0:
        raise CorruptError("Parquet: the header of a data page has no number of values")
    return values, False


def _page_head(head: bytes) -> tuple[int, int, int, int, int, int] | None:
    """Kind, size, compressed size, values, encoding of a page, and where the rest of its header begins.

    None for a header that does not begin as drawn above.
    """
    try:
        if head[0] != 0x15 or head[2] != 0x15:
            return None
        kind = head[1] >> 1
        size, at = _varint(head, 3)
        if head[at] != 0x15:
            return None
        compressed, at = _varint(head, at + 1)
        if head[at] != _PAGE_HEADERS.get(kind) or head[at + 1] != 0x15:
            return None
        values, after = _varint(head, at + 2)
        if head[after] != 0x15:
            return None
        encoding, _ = _varint(head, after + 1)
    except IndexError:
        return None
    return kind, size, compressed, values, encoding, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint, of which only numbers that are not negative are wanted, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value >> 1, at
        shift += 7


class PageStream:
    """Decompresses pages in order, all at once if they are no more than a block.  Mutable."""

    def __init__(self, pages: Sequence[PageBytes]) -> None:
        size = sum([p.size for p in pages])
        joined = b"".join([p.body for p in pages])
        self._block: Bytes | None = None
        self._at = 0
        if size <= BLOCK_BYTES:
            self._block = np.frombuffer(pa.decompress(joined, size, "zstd"), np.uint8)
        else:
            self._stream = pa.CompressedInputStream(pa.BufferReader(joined), "zstd")

    def take(self, pages: Sequence[PageBytes], into: Bytes | None = None) -> Bytes:
        """The bytes of the next pages; of more than a block in the memory of ``into`` if that has room.

        Raises ValueError if there are fewer than announced, or pyarrow's errors.
        """
        size = sum([p.size for p in pages])
        if self._block is not None:
            self._at += size
            return self._block[self._at - size : self._at]
        data = np.empty(size, np.uint8) if into is None or len(into) < size else into[:size]
        if self._stream.readinto(data) != size:
            raise ValueError("pages are shorter than their headers say")
        return data

    def at_end(self) -> bool:
        """Whether nothing is left."""
        if self._block is not None:
            return self._at == len(self._block)
        return not self._stream.read(1)


class Gatherer:
    """Gathers the chosen rows of one flat column, block after block.  Mutable: holds what was gathered."""

    def __init__(self, node: SchemaNode, kind: pa.DataType) -> None:
        self._optional = node.repetition == OPTIONAL
        self._physical = node.physical
        self._kind = kind
        self._found: list[Any] = []
        self._lengths: list[tuple[int, int]] = []

    @staticmethod
    def can(node: SchemaNode, kind: pa.DataType) -> bool:
        """Whether a column of this node that pyarrow reads as ``kind`` can be gathered."""
        if node.physical is None:
            return False
        if node.physical == BYTE_ARRAY:
            return kind in (pa.string(), pa.binary())
        if pa.types.is_decimal128(kind):
            return node.physical in (INT32, INT64)
        if pa.types.is_timestamp(kind):
            return node.physical == INT64 and kind.unit == _UNITS.get(_stored_unit(node))
        return any(kind == k for k in _SAME.get(node.physical, ()))

    def add(self, block: Bytes, page: PageBytes, start: int, chosen: slice | Int64s) -> bool:
        """Gather the ``chosen`` rows (sorted, from 0) of a page that was decompressed to ``block``, from ``start`` on.

        False if the page has a NULL, or texts of several lengths up to these rows: the column is then not to be
        gathered.
        """
        stop = start + page.size
        if self._optional:
            begin = after_valid(block, page, start)
            if begin is None:
                return False
            start = begin
        if self._physical == BYTE_ARRAY:
            length = int.from_bytes(block[start : start + 4].tobytes(), "little")
            width = length + 4
            if page.values * width != stop - start:
                return False
            high = chosen.stop if isinstance(chosen, slice) else int(chosen[-1]) + 1
            lengths: Any = np.ndarray(high, "<u4", block, start, (width,))
            if (lengths != length).any():
                return False
            # As opaque values numpy copies them three times as fast as a matrix of bytes.
            begin = start + 4 if length else start
            texts: Any = np.ndarray(page.values, f"V{length or 1}", block, begin, (width,))
            taken = texts[chosen]
            self._found.append(taken.tobytes() if length else b"")
            self._lengths.append((length, len(taken)))
            return True
        assert self._physical is not None
        number: Any = NUMBERS[self._physical]
        if page.values * number.itemsize != stop - start:
            return False
        # Copied, as the texts are: the block's memory is used again.
        self._found.append(np.ndarray(page.values, number, block, start)[chosen].copy())
        return True

    def array(self) -> pa.Array | None:
        """Return the gathered values, in order; None if they do not fit into one array."""
        if self._physical == BYTE_ARRAY:
            texts = b"".join(self._found)
            if len(texts) >= 1 << 31:
                return None
            offsets = self._offsets()
            count = len(offsets) - 1
            return pa.Array.from_buffers(self._kind, count, [None, pa.py_buffer(offsets), pa.py_buffer(texts)])
        values = np.concatenate(self._found) if len(self._found) != 1 else self._found[0]
        return fixed_array(values, self._kind)

    def _offsets(self) -> np.ndarray[Any, np.dtype[np.int32]]:
        """Where each text begins, and the end."""
        length = self._lengths[0][0]
        if all(other == length for other, _ in self._lengths):
            return np.arange(sum([rows for _, rows in self._lengths]) + 1, dtype=np.int32) * np.int32(length)
        lengths = np.repeat(*np.array(self._lengths, np.int64).T)
        offsets = np.zeros(len(lengths) + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        return offsets


def fixed_array(values: np.ndarray[Any, Any], kind: pa.DataType) -> pa.Array:
    """Numbers as they are stored, as the Arrow array that pyarrow reads them as."""
    if pa.types.is_decimal128(kind):
        wide = np.empty((len(values), 2), np.int64)
        wide[:, 0] = values
        np.right_shift(wide[:, 0], 63, out=wide[:, 1])
        values = wide
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def blocks(pages: Sequence[PageBytes]) -> list[tuple[int, int]]:
    """Split pages into ranges ``[first, last)`` that are decompressed together."""
    ranges = []
    first = size = 0
    for i, page in enumerate(pages):
        if size and size + page.size > BLOCK_BYTES:
            ranges.append((first, i))
            first, size = i, 0
        size += page.size
    ranges.append((first, len(pages)))
    return ranges


@lru_cache(256)
def _all_valid(values: int) -> bytes:
    """Definition levels that say that no value is NULL, as every writer has them: one run."""
    runs = varint(values << 1) + b"\x01"
    return len(runs).to_bytes(4, "little") + runs


def after_valid(block: Bytes, page: PageBytes, start: int) -> int | None:
    """Where the values of a page at ``start`` begin, behind levels that say that none is NULL; None if they do not."""
    levels = _all_valid(page.values)
    stop = start + len(levels)
    return stop if block[start:stop].tobytes() == levels else None


_UNITS = {1: "ms", 2: "us", 3: "ns"}


def _stored_unit(node: SchemaNode) -> int:
    """The unit of a TIMESTAMP as Thrift numbers them, 0 for none."""
    if node.logical is not None:
        stamp = node.logical.get(8)
        unit = stamp.get(2) if isinstance(stamp, dict) else None
        return next(iter(unit), 0) if isinstance(unit, dict) else 0
    return {9: 1, 10: 2}.get(node.converted or 0, 0)


# --- dictionary pages -------------------------------------------------------------------------------------------------

_FEW_TEXTS = 64
_FEW_RUNS = 24
_MAX_BITS = 16
_FEW_ROWS = 16
"""If at most one row in ``_FEW_ROWS`` is chosen, unpacking its code alone is cheaper than unpacking all codes."""


class CodedGatherer:
    """Gathers the chosen rows of one flat column whose pages are all coded.  Mutable: holds what was gathered."""

    def __init__(self, node: SchemaNode, kind: pa.DataType) -> None:
        self._optional = node.repetition == OPTIONAL
        self._physical = node.physical
        self._kind = kind
        self._dictionary: Any = None
        self._codes: list[Codes] = []
        """Codes of the rows that were chosen under this dictionary."""
        self._found: list[Any] = []

    def dictionary(self, block: Bytes, page: PageBytes, start: int) -> bool:
        """Take the dictionary for the pages that follow; False if it is not for this class, or damaged."""
        self._look_up()
        count, stop = page.values, start + page.size
        if page.encoding not in (PLAIN, PLAIN_DICTIONARY):
            return False
        if self._physical == BYTE_ARRAY:
            self._dictionary = _texts(block[start:stop].tobytes(), count, self._kind)
            return self._dictionary is not None
        assert self._physical is not None
        number: Any = NUMBERS[self._physical]
        if count * number.itemsize != page.size:
            return False
        self._dictionary = np.ndarray(count, number, block, start).copy()
        return True

    def add(self, block: Bytes, page: PageBytes, start: int, chosen: slice | Int64s) -> bool:
        """Gather the ``chosen`` rows (a slice or places) of a page that was decompressed to ``block`` at ``start``.

        False if the page has a NULL, many runs, or is damaged: the column is then not to be gathered.
        """
        stop = start + page.size
        if self._optional:
            begin = after_valid(block, page, start)
            if begin is None:
                return False
            start = begin
        codes = _codes(block[start:stop].tobytes(), page.values, chosen)
        if codes is None or int(codes.max(initial=0)) >= len(self._dictionary):
            return False
        self._codes.append(codes)
        return True

    def _look_up(self) -> None:
        """Put the values of the codes that were gathered to what was found: once a dictionary, not once a page."""
        if not self._codes:
            return
        codes = self._codes[0] if len(self._codes) == 1 else np.concatenate(self._codes)
        self._codes = []
        if self._physical == BYTE_ARRAY:
            places = pa.Array.from_buffers(pa.int32(), len(codes), [None, pa.py_buffer(np.ascontiguousarray(codes))])
            self._found.append(pc.take(self._dictionary, places, boundscheck=False))
        else:
            self._found.append(self._dictionary[codes])

    def array(self) -> pa.Array | pa.ChunkedArray:
        """Return the gathered values, in order."""
        self._look_up()
        if self._physical == BYTE_ARRAY:
            return self._found[0] if len(self._found) == 1 else pa.chunked_array(self._found, self._kind)
        return fixed_array(np.concatenate(self._found) if len(self._found) != 1 else self._found[0], self._kind)


def _texts(data: bytes, count: int, kind: pa.DataType) -> pa.Array | None:
    """The ``count`` texts of a dictionary page; None if they are many, or do not fill it."""
    if count > _FEW_TEXTS:
        return None
    offsets = [0]
    parts = []
    at = 0
    for _ in range(count):
        length = int.from_bytes(data[at : at + 4], "little")
        at += 4 + length
        if at > len(data):
            return None
        parts.append(data[at - length : at])
        offsets.append(offsets[-1] + length)
    if at != len(data):
        return None
    buffers = [None, pa.py_buffer(np.array(offsets, np.int32)), pa.py_buffer(b"".join(parts))]
    return pa.Array.from_buffers(kind, count, buffers)


@dataclass(frozen=True, slots=True)
class _Runs:
    """The runs of a page: where each begins, and the end; of each its code, or -1 and where its packed codes begin."""

    bits: int
    firsts: list[int]
    codes: list[int]
    starts: list[int]


def _codes(data: bytes, count: int, chosen: slice | Int64s) -> Codes | None:
    """The codes of the ``chosen`` of a page's ``count`` values; None if it has many runs, or they are damaged."""
    runs = _runs(data, count)
    if runs is None:
        return None
    if not isinstance(chosen, slice) and len(chosen) * _FEW_ROWS <= count and runs.bits:
        return _codes_at(data, runs, chosen)
    found: list[Any] = []
    for first, stop, code, start in zip(runs.firsts, runs.firsts[1:], runs.codes, runs.starts):
        if code < 0:
            size = -(-(stop - first) * runs.bits // 8)
            found.append(_unpacked(data[start : start + size], runs.bits, stop - first))
        else:
            found.append(np.full(stop - first, code, np.int32))
    codes: Codes = found[0] if len(found) == 1 else np.concatenate(found)
    return codes[chosen]


def _runs(data: bytes, count: int) -> _Runs | None:
    """The runs that hold a page's ``count`` values; None if they are many, or damaged."""
    bits = data[0] if data else _MAX_BITS + 1
    if bits > _MAX_BITS:
        return None
    runs = _Runs(bits, [0], [], [])
    at, row = 1, 0
    while row < count:
        header = shift = 0
        while True:
            if at >= len(data) or shift > 28:
                return None
            byte = data[at]
            at += 1
            header |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        packed = header & 1
        size = (header >> 1) * bits if packed else (bits + 7) // 8
        if size > len(data) - at or len(runs.codes) == _FEW_RUNS:
            return None
        runs.codes.append(-1 if packed else int.from_bytes(data[at : at + size], "little"))
        runs.starts.append(at)
        at += size
        row = min(count, row + (header >> 1) * (8 if packed else 1))
        runs.firsts.append(row)
    return runs if runs.codes else None


def _codes_at(data: bytes, runs: _Runs, places: Int64s) -> Codes:
    """The codes of these values (sorted): of each the three bytes that it is in, shifted."""
    number = np.searchsorted(runs.firsts, places, "right") - 1
    bit = (places - np.array(runs.firsts)[number]) * runs.bits
    at = np.array(runs.starts)[number] + (bit >> 3)
    known = np.array(runs.codes)[number]
    at[known >= 0] = 0
    padded: Any = np.frombuffer(data + b"\0\0", np.uint8).astype(np.int32)
    codes: Any = padded[at] | padded[at + 1] << 8 | padded[at + 2] << 16
    codes = codes >> (bit & 7).astype(np.int32) & (1 << runs.bits) - 1
    return np.where(known < 0, codes, known).astype(np.int32)


def _unpacked(data: bytes, bits: int, count: int) -> Codes:
    """Unpack the first ``count`` numbers of ``bits`` bits each, packed from the lowest bit on."""
    if bits == 0:
        return np.zeros(count, np.int32)
    flags = np.unpackbits(np.frombuffer(data, np.uint8), count=count * bits, bitorder="little")
    if bits <= 8:
        padded = np.zeros((count, 8), np.uint8)
        padded[:, :bits] = flags.reshape(count, bits)
        return np.packbits(padded, axis=1, bitorder="little").ravel().astype(np.int32)
    padded = np.zeros((count, 16), np.uint8)
    padded[:, :bits] = flags.reshape(count, bits)
    return np.packbits(padded, axis=1, bitorder="little").view("<u2").ravel().astype(np.int32)
