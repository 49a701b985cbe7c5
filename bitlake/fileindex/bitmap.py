"""The ``bitmap`` index: for each value the rows that have it.  Versions 1 and 2.

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

Integers are big-endian, keys as :mod:`bitlake.fileindex.keys` tells, bitmaps portable Roaring.  An offset counts from
the body's start; a negative one is a single row at ``-1 - offset`` that has no bitmap (its length then is -1, but a
single NULL's length is that of the bitmap it would have had).  Version 1 has no lengths: a bitmap ends where the next
begins.  Bodies stand in the order of a Java hash map.  Source: index-format spec, section 3.

This module writes; :mod:`bitlake.fileindex.bitmap_read` reads.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bitlake.codec.hashing import Int64s, compute_if_absent_order
from bitlake.codec.roaring import serialize_many, serialize_mask
from bitlake.errors import InvalidRequest, UnsupportedFeature
from bitlake.fileindex.codes import Coded, Coder, first_rows, rows_by_group
from bitlake.fileindex.entries import pack
from bitlake.fileindex.keys import Keys, keys_of
from bitlake.fileindex.settings import IndexOption, integer, memory
from bitlake.types import DataType, Root
from bitlake.types.datatypes import BINARIES

VERSION: IndexOption[int] = IndexOption("version", integer(1, 2), 2, "Layout to write: 1 or 2.")
BLOCK_SIZE: IndexOption[int] = IndexOption(
    "index-block-size", memory, 16 * 1024, "Most bytes of a block of values (version 2); a lookup reads one block."
)
OPTIONS = (VERSION, BLOCK_SIZE)
WHY_NOT = "bitmap takes strings, BOOLEAN, integers, FLOAT, DOUBLE, DATE, TIME and timestamps"
_UNSUPPORTED = frozenset({Root.DECIMAL, Root.VARIANT}) | BINARIES
_MAX = 2**31 - 1
_I4 = struct.Struct(">i")
_II = struct.Struct(">ii")
_HEAD = struct.Struct(">BiiB")


def supports(kind: DataType) -> bool:
    """Whether values of this type can be indexed by bitmaps."""
    keys = keys_of(kind)
    return keys is not None and keys.type.root not in _UNSUPPORTED


class BitmapWriter:
    """Gathers a column's values; ``add`` any number of times, then ``finish`` once."""

    def __init__(self, kind: DataType, options: Mapping[str, str]) -> None:
        keys = keys_of(kind)
        if keys is None or not supports(kind):
            raise InvalidRequest(f"{WHY_NOT}; not {kind}")
        self._keys = keys
        self._version = VERSION.of(options)
        self._block_size = BLOCK_SIZE.of(options) or 0
        self._coder = Coder(keys)

    def add(self, column: pa.Array | pa.ChunkedArray) -> None:
        """Append a column's rows."""
        self._coder.add(column)

    def finish(self) -> bytes:
        """The payload."""
        coded = self._coder.finish()
        body = _Body(self._keys, coded)
        head = [_HEAD.pack(self._version or 2, len(coded.codes), coded.cardinality, body.nulls > 0)]
        if self._version == 1:
            head.append(_I4.pack(body.null_offset) if body.nulls else b"")
            head.append(pack(self._keys, coded.dictionary.take(pa.array(body.order)), body.offsets[body.order])[0])
        else:
            head.append(_II.pack(body.null_offset, body.null_length) if body.nulls else b"")
            head.append(_blocks(self._keys, coded, body, self._block_size))
        return b"".join([*head, body.data])


_SINGLE_BYTES = 18
"""Of a Roaring bitmap with one row."""
_FEW_GROUPS, _MANY_ROWS = 24, 1 << 16
"""With few values and many rows a mask for each value beats sorting the rows (4M rows, 5 values: half the time)."""
_Grouped = tuple[Int64s, Int64s, bytes, Int64s]
"""Per group: rows, first row; then the bitmaps of groups with more than one row, and their offsets."""


class _Body:
    """The bitmaps of a column and where they are; arrays are indexed by code."""

    def __init__(self, keys: Keys, coded: Coded) -> None:
        n = coded.cardinality
        self.order = _java_order(keys, coded)
        # Group 0 are the NULLs (their bitmap comes first), then the values in Java's order.
        group = np.zeros(n + 1, np.int32)
        group[self.order] = np.arange(1, n + 1, dtype=np.int32)
        small = group.astype(np.uint8) if n < 1 << 8 else group.astype(np.uint16) if n < 1 << 16 else group
        few = n < _FEW_GROUPS and len(coded.codes) >= _MANY_ROWS
        grouped = _by_masks if few else _by_sorting
        counts, first, self.data, cuts = grouped(small[coded.codes], n + 1)
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


def _by_sorting(groups: npt.NDArray[np.integer], n: int) -> _Grouped:
    positions, bounds = rows_by_group(groups, n)
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


def _java_order(keys: Keys, coded: Coded) -> Int64s:
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


def _blocks(keys: Keys, coded: Coded, body: _Body, block_size: int) -> bytes:
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
