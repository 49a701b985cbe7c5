"""Take rows out of a column's dictionary pages: few values in few runs, which is what small pages mostly hold.

A dictionary page and a data page (version 1) of a flat column, decompressed::

    dictionary   PLAIN values side by side; of BYTE_ARRAY 4 bytes length, little-endian, then the bytes, each
    data         optional column: definition levels, as :mod:`bitlake.formats.parquet_plain` draws them
                 1 byte: bits of a code; then runs, until there is a code for every value:
                   varint n << 1       n times one code, in as many bytes as its bits need, little-endian
                   varint n << 1 | 1   8 n codes, packed from the lowest bit on (the last ones may be padding)

pyarrow takes some 40 µs to set up a column; a page of a thousand codes is decoded here in 10.  Dictionaries of many
texts, pages of many runs and NULLs are pyarrow's: the loops here are over a few of either.

Source: the Apache Parquet format (``Encodings.md``: PLAIN, RLE_DICTIONARY).
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bitlake.formats.parquet_footer import BYTE_ARRAY, OPTIONAL, SchemaNode
from bitlake.formats.parquet_plain import (
    NUMBERS,
    PLAIN,
    PLAIN_DICTIONARY,
    Bytes,
    Ints,
    PageBytes,
    after_valid,
    fixed_array,
)

_FEW_TEXTS = 64
_FEW_RUNS = 24
_MAX_BITS = 16
Codes: TypeAlias = np.ndarray[Any, np.dtype[np.int32]]


class CodedGatherer:
    """Gathers the chosen rows of one flat column whose pages are all coded.  Mutable: holds what was gathered."""

    def __init__(self, node: SchemaNode, kind: pa.DataType) -> None:
        self._optional = node.repetition == OPTIONAL
        self._physical = node.physical
        self._kind = kind
        self._dictionary: Any = None
        self._found: list[Any] = []

    def dictionary(self, block: Bytes, page: PageBytes, start: int) -> bool:
        """Take the dictionary for the pages that follow; False if it is not for this class, or damaged."""
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

    def add(self, block: Bytes, page: PageBytes, start: int, chosen: slice | Ints) -> bool:
        """Gather the ``chosen`` rows (a slice or places) of a page that was decompressed to ``block`` at ``start``.

        False if the page has a NULL, many runs, or is damaged: the column is then not to be gathered.
        """
        stop = start + page.size
        if self._optional:
            begin = after_valid(block, page, start)
            if begin is None:
                return False
            start = begin
        codes = _codes(block[start:stop].tobytes(), page.values)
        if codes is None:
            return False
        codes = codes[chosen]
        if int(codes.max(initial=0)) >= len(self._dictionary):
            return False
        if self._physical == BYTE_ARRAY:
            places = pa.Array.from_buffers(pa.int32(), len(codes), [None, pa.py_buffer(np.ascontiguousarray(codes))])
            self._found.append(pc.take(self._dictionary, places, boundscheck=False))
        else:
            self._found.append(self._dictionary[codes])
        return True

    def array(self) -> pa.Array | pa.ChunkedArray:
        """What was gathered, in order."""
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


def _codes(data: bytes, count: int) -> Codes | None:
    """The ``count`` codes of a page's values, as integers; None if that takes many runs, or they are damaged."""
    bits = data[0] if data else _MAX_BITS + 1
    if bits > _MAX_BITS:
        return None
    found: list[Any] = []
    at, left = 1, count
    for _ in range(_FEW_RUNS):
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
        if header & 1:
            size = (header >> 1) * bits
            if size > len(data) - at:
                return None
            found.append(_unpacked(data[at : at + size], bits, min(left, (header >> 1) * 8)))
        else:
            size = (bits + 7) // 8
            if size > len(data) - at:
                return None
            code = int.from_bytes(data[at : at + size], "little")
            found.append(np.full(min(left, header >> 1), code, np.int32))
        at += size
        left -= len(found[-1])
        if left <= 0:
            break
    else:
        return None
    if not found:
        return None
    return found[0] if len(found) == 1 else np.concatenate(found)


def _unpacked(data: bytes, bits: int, count: int) -> Codes:
    """The first ``count`` numbers of so many bits each, packed from the lowest bit on."""
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
