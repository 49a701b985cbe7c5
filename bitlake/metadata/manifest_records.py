"""Records of manifests whose schema is exactly the known one, decoded by hand: several times faster than by schema.

The layout is that of :mod:`bitlake.metadata.manifest` in Avro's encoding: numbers are zigzag varints; strings and bytes
are a length and their bytes; a union is the number of its branch (0 null) and its value; an array is blocks of a count
and its items, ended by 0.  Neighbouring records share most of their bytes (kind, partition and bucket; keys and their
statistics; schema and level; the lists of columns): each such section is compared with the last record's and only
decoded when it differs.

This decoder refuses whatever it does not expect by returning None: the general one then decodes, or says what is wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from typing import Any

from bitlake.codec.avro import MAGIC, SYNC, decompress_zstd
from bitlake.metadata.avro import most_bytes
from bitlake.metadata.paths import are_file_names

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_MAX_SHIFT = 63
_FEW = 4
"""Partitions that are looked for one by one in a block."""


class _Unexpected(Exception):
    """Bytes that the general decoder must judge."""


def decode_entries(
    data: bytes,
    schema: bytes,
    make_stats: Callable[[bytes, bytes, tuple[int | None, ...] | None], Any],
    make_file: Callable[..., Any],
    make_entry: Callable[[tuple[int, int, bytes, int, int], Any], Any],
    partitions: Collection[bytes] | None = None,
) -> list[Any] | None:
    """The entries of a manifest, or None where this decoder does not apply.

    With ``partitions`` at least the entries of these: a block of a hundred records or so in which none of the rows'
    bytes are is not decoded.  That search takes a hundredth of the time, and of many partitions a tenth.

    ``schema``: the header's text that it applies to.  ``make_file`` takes the fields of ``_FILE`` in their order,
    ``make_entry`` (version, kind, partition, bucket, total buckets) and the file.
    """
    try:
        out: list[Any] = []
        wanted = None if partitions is None else _finder(partitions)
        for count, block in _blocks(data, schema):
            if wanted is not None and not wanted(block):
                continue
            _records(block, count, make_stats, make_file, make_entry, out)
        return out
    except (_Unexpected, IndexError, UnicodeDecodeError, MemoryError, EOFError, zstd.ZstdError):
        return None


def _finder(partitions: Collection[bytes]) -> Callable[[bytes], bool]:
    """Whether any of these rows' bytes are in a block."""
    if len(partitions) <= _FEW:
        return lambda block: any(p in block for p in partitions)
    # Rows of one table begin alike, with their number of columns at least: one search for that finds all candidates.
    low, high = min(partitions), max(partitions)
    prefix = low[: next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))]
    rows = frozenset(partitions)
    lengths = {len(p) for p in rows}

    def holds(block: bytes) -> bool:
        at = block.find(prefix)
        while at >= 0:
            if any(block[at : at + n] in rows for n in lengths):
                return True
            at = block.find(prefix, at + 1)
        return False

    return holds


def _blocks(data: bytes, schema: bytes) -> Iterator[tuple[int, bytes]]:
    """The blocks of a container as (records, uncompressed bytes)."""
    if not data.startswith(MAGIC):
        raise _Unexpected
    at, meta = len(MAGIC), {}
    while True:
        pairs, at = _long(data, at)
        if pairs == 0:
            break
        if pairs < 0:
            raise _Unexpected
        for _ in range(pairs):
            key, at = _bytes(data, at)
            meta[key], at = _bytes(data, at)
    if meta.get(b"avro.schema") != schema or meta.get(b"avro.codec") != b"zstandard":
        raise _Unexpected
    sync = data[at : at + SYNC]
    left = most_bytes(len(data))
    at += SYNC
    if at > len(data):
        raise _Unexpected
    while at < len(data):
        count, at = _long(data, at)
        body, at = _bytes(data, at)
        if count < 0 or data[at : at + SYNC] != sync:
            raise _Unexpected
        at += SYNC
        block = decompress_zstd(body, left)
        left -= len(block)
        if left < 0:
            raise _Unexpected
        yield count, block


def _records(
    data: bytes,
    count: int,
    make_stats: Callable[..., Any],
    make_file: Callable[..., Any],
    make_entry: Callable[..., Any],
    out: list[Any],
) -> None:
    """Append the records of one block to ``out``.

    Slices never raise: a length beyond the end shows in the position, which only grows, at the record's end.
    """
    at, end = 0, len(data)
    starts = data.startswith
    # Nothing starts with these, so that the first record decodes every section.
    head_bytes = key_bytes = level_bytes = tail_bytes = counts_bytes = data + b"?"
    head: Any = None
    keys: Any = None
    level: Any = None
    tail: Any = None
    counts: Any = None
    names: list[str] = []
    for _ in range(count):
        if starts(head_bytes, at):
            at += len(head_bytes)
        else:
            head, stop = _head(data, at)
            head_bytes, at = data[at:stop], stop
        # _FILE_NAME … _ROW_COUNT
        size = data[at]
        at += 1
        if size >= 0x80 or size & 1:
            size, at = _long(data, at - 1)
            if size < 0:
                raise _Unexpected
        else:
            size >>= 1
        name = data[at : at + size].decode()
        names.append(name)
        file_size, at = _long(data, at + size)
        row_count, at = _long(data, at)
        if starts(key_bytes, at):
            at += len(key_bytes)
        else:
            keys, stop = _keys(data, at, make_stats)
            key_bytes, at = data[at:stop], stop
        # _VALUE_STATS
        low, at = _bytes(data, at)
        high, at = _bytes(data, at)
        if starts(counts_bytes, at):
            at += len(counts_bytes)
        else:
            counts, stop = _maybe(data, at, _null_counts)
            counts_bytes, at = data[at:stop], stop
        first_sequence, at = _long(data, at)
        last_sequence, at = _long(data, at)
        if starts(level_bytes, at):
            at += len(level_bytes)
        else:
            level, stop = _level(data, at)
            names += level[2]
            level_bytes, at = data[at:stop], stop
        created, at = _maybe(data, at, _long)
        deleted, at = _maybe(data, at, _long)
        index, at = _maybe(data, at, _bytes)
        if starts(tail_bytes, at):
            at += len(tail_bytes)
        else:
            tail, stop = _tail(data, at)
            tail_bytes, at = data[at:stop], stop
        if at > end:
            raise _Unexpected
        stats = make_stats(low, high, counts)
        file = make_file(
            name,
            file_size,
            row_count,
            *keys,
            stats,
            first_sequence,
            last_sequence,
            *level,
            created,
            deleted,
            index,
            *tail,
        )
        out.append(make_entry(head, file))
    if at != end or not are_file_names(names):
        raise _Unexpected


def _long(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint, and where it ends."""
    byte = data[at]
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    value = byte & 0x7F
    shift = 7
    while True:
        byte = data[at]
        at += 1
        if byte < 0x80:
            value |= byte << shift
            break
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift > _MAX_SHIFT:
            raise _Unexpected
    if value >> 64:
        raise _Unexpected
    return (value >> 1) ^ -(value & 1), at


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _long(data, at)
    if size < 0:
        raise _Unexpected
    return data[at : at + size], at + size


def _text(data: bytes, at: int) -> tuple[str, int]:
    found, at = _bytes(data, at)
    return found.decode(), at


def _maybe(data: bytes, at: int, read: Callable[[bytes, int], tuple[Any, int]]) -> tuple[Any, int]:
    branch = data[at]
    if branch == 2:
        return read(data, at + 1)
    if branch:
        raise _Unexpected
    return None, at + 1


def _array(data: bytes, at: int, read: Callable[[bytes, int], tuple[Any, int]]) -> tuple[tuple[Any, ...], int]:
    found: list[Any] = []
    while True:
        count, at = _long(data, at)
        if count == 0:
            return tuple(found), at
        if count < 0:
            raise _Unexpected
        for _ in range(count):
            value, at = read(data, at)
            found.append(value)


def _texts(data: bytes, at: int) -> tuple[tuple[Any, ...], int]:
    return _array(data, at, _text)


def _longs(data: bytes, at: int) -> tuple[tuple[Any, ...], int]:
    return _array(data, at, _long)


def _null_counts(data: bytes, at: int) -> tuple[tuple[Any, ...], int]:
    return _array(data, at, lambda d, a: _maybe(d, a, _long))


def _int(data: bytes, at: int) -> tuple[int, int]:
    value, at = _long(data, at)
    if not -(1 << 31) <= value < 1 << 31:
        raise _Unexpected
    return value, at


def _within(data: bytes, at: int) -> None:
    """A section that will be compared with must be there as a whole."""
    if at > len(data):
        raise _Unexpected


def _head(data: bytes, at: int) -> tuple[tuple[int, int, bytes, int, int], int]:
    """``_VERSION`` … ``_TOTAL_BUCKETS``."""
    version, at = _int(data, at)
    kind, at = _int(data, at)
    partition, at = _bytes(data, at)
    bucket, at = _int(data, at)
    total, at = _int(data, at)
    _within(data, at)
    return (version, kind, partition, bucket, total), at


def _keys(data: bytes, at: int, make_stats: Callable[..., Any]) -> tuple[tuple[bytes, bytes, Any], int]:
    """``_MIN_KEY``, ``_MAX_KEY``, ``_KEY_STATS``."""
    first, at = _bytes(data, at)
    last, at = _bytes(data, at)
    low, at = _bytes(data, at)
    high, at = _bytes(data, at)
    counts, at = _maybe(data, at, _null_counts)
    _within(data, at)
    return (first, last, make_stats(low, high, counts)), at


def _level(data: bytes, at: int) -> tuple[tuple[int, int, tuple[str, ...]], int]:
    """``_SCHEMA_ID``, ``_LEVEL``, ``_EXTRA_FILES``."""
    schema_id, at = _long(data, at)
    level, at = _int(data, at)
    extra, at = _texts(data, at)
    _within(data, at)
    return (schema_id, level, extra), at


def _tail(data: bytes, at: int) -> tuple[tuple[Any, ...], int]:
    """``_FILE_SOURCE`` … ``_WRITE_COLS_SEQUENCES``."""
    found = []
    for read in (_int, _texts, _text, _long, _texts, _longs):
        value, at = _maybe(data, at, read)
        found.append(value)
    _within(data, at)
    return tuple(found), at
