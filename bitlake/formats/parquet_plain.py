"""Take rows out of a column's PLAIN pages without decoding their other rows, and decompress many pages at once.

A data page (version 1) of a flat column, as one lies in the file::

    PageHeader, Thrift   15 type  15 uncompressed size  15 compressed size  2C (15 values  15 encoding  …) …
    compressed:          optional column: 4 bytes length, little-endian, then the definition levels as RLE runs;
                         where no value is NULL that is one run: varint(values << 1), 01
                         PLAIN values: side by side; of BYTE_ARRAY 4 bytes length, then the bytes, each

pyarrow decodes every value of a page, and makes a zstd context for every page, which takes 16 µs where a hypervisor
catches the CPUID instruction in it (as on the machine of the measurements).  Here one context decompresses all pages;
of fixed widths, and of texts of one length, the chosen rows are then gathered, as those of small dictionary pages are
(:mod:`bitlake.formats.parquet_coded`).  Everything else (NULLs, texts of many lengths) goes to pyarrow, decompressed
already.

Measured: 61 rows in 57 pages of 4,096 rows, 7 columns, one file of bench/selective.py: 43 → 28 ms of CPU, of which 20
are zstd's (payload 21 → 16, texts in dictionaries 5.5 → 1.8, integers 4.2 → 3.0 each).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from bitlake.codec.bytes import varint
from bitlake.formats import thrift
from bitlake.formats.parquet_footer import BYTE_ARRAY, DOUBLE, FLOAT, INT32, INT64, OPTIONAL, SchemaNode

Ints = np.ndarray[Any, np.dtype[np.int64]]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]

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
    head = bytes(page[:_HEAD])
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
    start = len(page) - compressed
    if start <= at or page[start : start + 4] != _MAGIC:
        return None
    return PageBytes(kind, size, page[at:start], page[start:], values, encoding)


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

    def add(self, block: Bytes, page: PageBytes, start: int, chosen: slice | Ints) -> bool:
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
        """What was gathered, in order; None if it does not fit into one array."""
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
    """Which pages ``[first, last)`` to decompress at a time."""
    found = []
    first = size = 0
    for i, page in enumerate(pages):
        if size and size + page.size > BLOCK_BYTES:
            found.append((first, i))
            first, size = i, 0
        size += page.size
    found.append((first, len(pages)))
    return found


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
