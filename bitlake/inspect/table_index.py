"""Index files of a whole table: deletion vectors and the hashes of a bucket's keys.

The layouts are drawn in :mod:`bitlake.tableindex.deletion_vectors` and :mod:`bitlake.tableindex.hash_index`.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import numpy as np

from bitlake.errors import CorruptError
from bitlake.inspect.rows import runs_of
from bitlake.inspect.source import Source
from bitlake.inspect.tree import Page, Tree, reading
from bitlake.tableindex.deletion_vectors import EMPTY_FILE, FIRST_OFFSET, decode_vector
from bitlake.tableindex.vector_range import VectorRange

_HEAD = 8
"""Bytes of a frame that tell its size and kind."""
_MOST_FRAMES = 10_000
_MAGICS = {(1581511376).to_bytes(4, "big"): 32, (1681511377).to_bytes(4, "little"): 64}


def is_vectors(start: bytes, size: int) -> bool:
    """Whether the first bytes of a file of ``size`` bytes are those of deletion vectors."""
    return start[:1] == EMPTY_FILE and (size == 1 or start[5:9] in _MAGICS)


def vectors_tree(tree: Tree, source: Source, page: Page, places: Mapping[int, VectorRange]) -> None:
    """A deletion vector file; ``places`` are what the index manifest says of it, by offset."""
    version = source.view(0, 1)
    tree.add("version", 0, 1, {"": version[0]})
    if version != EMPTY_FILE:
        raise CorruptError(f"a deletion vector file of version {version[0]}, only 1 is known", 0)
    at, number = FIRST_OFFSET, 0
    while at < source.size and tree.more == 0:
        size = int.from_bytes(source.view(at, 4), "big", signed=True)
        if size < 4 or size > source.size - at - 8:
            raise CorruptError(f"a vector of {size:,} bytes, and {max(0, source.size - at - 8):,} are left", at)
        if page.offset <= number < page.offset + page.limit:
            place = places.get(at)
            frame = tree.add(place.data_file if place else f"vector {number}", at, size + 8)
            with reading(frame, at + 4):
                _frame(frame, source, at, size, place)
        at, number = at + size + 8, number + 1
        if number > page.offset + page.limit + _MOST_FRAMES:
            tree.more = None
    tree.facts["vectors"] = number
    if tree.more == 0:
        tree.more = page.left(number)


def _frame(frame: Tree, source: Source, at: int, size: int, place: VectorRange | None) -> None:
    frame.facts["bits"] = _MAGICS.get(source.view(at + 4, 4), "unknown")
    body = source.view(at + 4, size)
    crc = int.from_bytes(source.view(at + 4 + size, 4), "big")
    frame.add("size", at, 4, {"": size})
    frame.add("vector", at + 4, size)
    checked = frame.add("CRC-32", at + 4 + size, 4, {"": f"{crc:08x}"})
    if zlib.crc32(body) != crc:
        with reading(checked):
            raise CorruptError(f"the checksum is wrong: the vector's is {zlib.crc32(body):08x}", None)
    vector = decode_vector(body)
    positions = vector.positions()
    frame.facts["deleted"] = vector.cardinality
    runs, left = runs_of(positions, Page(0, 10))
    frame.facts["rows"] = runs
    if left:
        frame.facts["more runs"] = left
    if place is not None and place.cardinality not in (None, vector.cardinality):
        raise CorruptError(f"it deletes {vector.cardinality} rows, the index manifest says {place.cardinality}", None)


def hashes_tree(tree: Tree, source: Source, page: Page) -> None:
    """A HASH index: 4 bytes a hash."""
    count = source.size // 4
    tree.facts["hashes"] = count
    shown = page.of(count)
    if shown:
        values = np.frombuffer(source.view(4 * shown.start, 4 * len(shown)), ">i4").tolist()
        for number, value in zip(shown, values, strict=True):
            tree.add(str(number), 4 * number, 4, {"hash": value})
    tree.more = page.left(count)
    if source.size % 4:
        raise CorruptError(f"a HASH index of {source.size:,} bytes: hashes take 4 each", 4 * count)
