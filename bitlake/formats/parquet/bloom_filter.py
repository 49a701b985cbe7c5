"""Bloom filters of a Parquet file: whether a row group can hold a value, by a few bytes of the column's filter.

::

    BloomFilterHeader { 1: i32 bytes of the bit set, 2: algorithm { 1: split block }, 3: hash { 1: XxHash },
                        4: compression { 1: uncompressed } }
    bit set           blocks of 32 bytes: 8 words of 32 bits, little-endian

A value's hash is the XXH64 (seed 0) of its plain encoding, of a text without the length.  Its block is
``(hash >> 32) * blocks >> 32``; in word i it sets bit ``low 32 bits * SALT[i] >> 27`` (32 bits, wrapping).

Source: the Apache Parquet format (``BloomFilter.md``, ``parquet.thrift``).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import xxhash

from bitlake.errors import CorruptError
from bitlake.formats.parquet.footer import BYTE_ARRAY, INT32, INT64, FetchRanges, Footer
from bitlake.formats.parquet.thrift import ThriftReader

_SALT = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)
_BLOCK = 32
_HEADER_BYTES = 64
"""Bytes that are read for a header, which takes about 20."""
_WORDS = struct.Struct("<8I")
_PLAIN = {INT32: struct.Struct("<i"), INT64: struct.Struct("<q")}


def plain_bytes(physical: int, value: int | str) -> bytes | None:
    """Return the plain encoding of a value.  None if a leaf of that physical type cannot hold it."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass") if physical == BYTE_ARRAY else None
    layout = _PLAIN.get(physical)
    if layout is None or not -(1 << 8 * layout.size - 1) <= value < 1 << 8 * layout.size - 1:
        return None
    return layout.pack(value)


def groups_that_may_hold(footer: Footer, leaf: int, values: Sequence[bytes], fetch: FetchRanges) -> list[bool] | None:
    """Return for each row group whether it can hold one of some plain-encoded values.  None without a filter.

    Raises :class:`CorruptError` for a filter that breaks the format.
    """
    offsets = [group.chunks[leaf].bloom_offset for group in footer.row_groups]
    filtered = [(number, at) for number, at in enumerate(offsets) if at is not None]
    if not filtered:
        return None
    heads = fetch([(at, min(_HEADER_BYTES, footer.size - at)) for _, at in filtered])
    hashes = [xxhash.xxh64_intdigest(value) for value in values]
    groups: list[int] = []
    blocks: list[tuple[int, int]] = []
    for (number, at), head in zip(filtered, heads, strict=True):
        start, count = _bit_set(head, at, footer.size)
        groups += [number] * len(hashes)
        blocks += [(start + _BLOCK * ((h >> 32) * count >> 32), _BLOCK) for h in hashes]
    held = [at is None for at in offsets]
    for number, h, block in zip(groups, hashes * len(filtered), fetch(blocks), strict=True):
        held[number] = held[number] or _has(block, h & 0xFFFFFFFF)
    return held


def _bit_set(head: bytes | memoryview, at: int, size: int) -> tuple[int, int]:
    """Return where a filter's bit set begins, and its number of blocks."""
    reader = ThriftReader(bytes(head), 0, at)
    header = reader.struct()
    length = header.get(1)
    for part, what in ((2, "algorithm"), (3, "hash"), (4, "compression")):
        choice = header.get(part)
        if not isinstance(choice, dict) or list(choice) != [1]:
            raise CorruptError(f"the {what} of a bloom filter is not known", at)
    start = at + reader.position
    if not isinstance(length, int) or length < _BLOCK or length % _BLOCK or start + length > size:
        raise CorruptError(f"a bloom filter of {length} bytes does not fit in the file", at)
    return start, length // _BLOCK


def _has(block: bytes | memoryview, key: int) -> bool:
    words = _WORDS.unpack(block)
    return all(word >> ((key * salt & 0xFFFFFFFF) >> 27) & 1 for word, salt in zip(words, _SALT, strict=True))
