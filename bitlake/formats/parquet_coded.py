"""Take rows out of a column's dictionary pages: few values in few runs, which is what small pages mostly hold.

A dictionary page and a data page (version 1) of a flat column, decompressed::

    dictionary   PLAIN values side by side; of BYTE_ARRAY 4 bytes length, little-endian, then the bytes, each
    data         optional column: definition levels, as :mod:`bitlake.formats.parquet_plain` draws them
                 1 byte: bits of a code; then runs, until there is a code for every value:
                   varint n << 1       n times one code, in as many bytes as its bits need, little-endian
                   varint n << 1 | 1   8 n codes, packed from the lowest bit on (the last ones may be padding)

pyarrow takes some 40 µs to set up a column; a page of a thousand codes is decoded here in 10.  Dictionaries of many
texts, pages of many runs and NULLs are pyarrow's: the loops here are over a few of either.  Of few chosen rows only
their own codes are unpacked: 41 of 4,096 rows in nine runs of three bits take 25 µs, and all of them 90.

Source: the Apache Parquet format (``Encodings.md``: PLAIN, RLE_DICTIONARY).
"""

from __future__ import annotations

from dataclasses import dataclass
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
_FEW_ROWS = 16
"""If at most one row in so many is chosen, its code is cheaper to unpack alone than with all the others."""
Codes: TypeAlias = np.ndarray[Any, np.dtype[np.int32]]


class CodedGatherer:
    """Gathers the chosen rows of one flat column whose pages are all coded.  Mutable: holds what was gathered."""

    def __init__(self, node: SchemaNode, kind: pa.DataType) -> None:
        self._optional = node.repetition == OPTIONAL
        self._physical = node.physical
        self._kind = kind
        self._dictionary: Any = None
        self._codes: list[Codes] = []
        """Of the rows that were chosen under this dictionary."""
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
        """What was gathered, in order."""
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


def _codes(data: bytes, count: int, chosen: slice | Ints) -> Codes | None:
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


def _codes_at(data: bytes, runs: _Runs, places: Ints) -> Codes:
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
