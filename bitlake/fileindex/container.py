"""The container of all indexes of one data file, stored as an ``.index`` file or embedded in a manifest.

======================  =====  ====================================================================
field                   type   value
======================  =====  ====================================================================
magic                   i8     1493475289347502
version                 i4     1
head length             i4     bytes from the start to the first body byte, magic included
column count            i4
per column: name        utf    modified UTF-8 with u2 length; map keys are ``col[key]``
· index count           i4
· · per index: type     utf    ``bloom-filter``, ``bitmap``, ``range-bitmap``, ``bsi``
· · start               i4     from the start of the container; -1 = the writer saw no row
· · length              i4     bytes of the payload; 0 when start is -1
redundant length        i4     bytes of the head after this field: a rewrite's mark of 8, then checksums, or none
body                           payloads in header order, no padding
======================  =====  ====================================================================

All integers big-endian.  Columns and types stand in the order of Java's hash maps.
The layout of the checksums is in :mod:`bitlake.fileindex.payload`.  Source: index-format spec, section 1.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bitlake import arguments
from bitlake.codec.bytes import INT_MAX as _MAX
from bitlake.codec.bytes import Reader, utf
from bitlake.codec.hashing import absent_order, compute_if_absent_order, put_order, string_hash
from bitlake.errors import CorruptError, InvalidRequest, UnsupportedFeature
from bitlake.fileindex.payload import Checksums, block_length, encode_block, read_block

MAGIC = 1493475289347502
VERSION = 1
EMPTY = (-1, 0)
"""The (start, length) of an index whose writer saw no row."""
_FIXED = struct.Struct(">qii")
FIXED_LENGTH = _FIXED.size
"""Bytes that :func:`header_length` takes."""
_I4 = struct.Struct(">i")
_RANGE = struct.Struct(">ii")


@dataclass(frozen=True, slots=True)
class ContainerHeader:
    """The place of each index: ``columns[column][index type] = (start, length)``, from the container's start."""

    columns: Mapping[str, Mapping[str, tuple[int, int]]]
    length: int
    checksums: Checksums | None = None


def split_map_key(name: str) -> tuple[str, str | None]:
    """Split ``m[k]`` into (``m``, ``k``): up to the first ``[``, and from there to the last character, a ``]``.

    Any other name gives (name, None).
    """
    if arguments.text("a column name", name).endswith("]") and "[" in name[1:]:
        top, _, key = name[:-1].partition("[")
        return top, key
    return name, None


def encode_container(
    indexes: Mapping[str, Mapping[str, bytes | None] | Mapping[str, bytes]],
    declared: Sequence[tuple[str, str]] | None = None,
    mark: bytes = b"",
    checksums: bool = False,
) -> bytes:
    """Encode the container of ``{column: {index type: payload}}``; a payload None is the empty marker.

    Columns and types are written in Java's order, which depends on the order in which the table options declare them:
    ``declared``, pairs (column, index type), default: the mapping's order.  ``mark`` makes containers of the same
    payloads differ; it and the ``checksums`` are stored as redundant bytes, which readers skip.
    """
    if declared is None:
        declared = [(column, kind) for column, inner in indexes.items() for kind in inner]
    ordered = {name: {t: indexes[name][t] for t in kinds} for name, kinds in java_order(declared).items()}
    names = {column: utf(column) for column in ordered}
    types = {t: utf(t) for inner in ordered.values() for t in inner}
    head = (
        FIXED_LENGTH
        + 8
        + len(mark)
        + sum(len(names[column]) + 4 + sum(len(types[t]) + 8 for t in inner) for column, inner in ordered.items())
    )
    if checksums:
        sizes = [len(payload) for inner in ordered.values() for payload in inner.values() if payload is not None]
        head += block_length(sum(sizes))
    at = head
    out = [_FIXED.pack(MAGIC, VERSION, head), _I4.pack(len(ordered))]
    body = []
    for column, inner in ordered.items():
        out += [names[column], _I4.pack(len(inner))]
        for kind, payload in inner.items():
            if payload is None:
                out += [types[kind], _RANGE.pack(*EMPTY)]
                continue
            if at + len(payload) > _MAX:
                raise InvalidRequest(f"the file index takes more than 2 GiB at column '{column}'; index fewer columns")
            out += [types[kind], _RANGE.pack(at, len(payload))]
            body.append(payload)
            at += len(payload)
    if not checksums:
        return b"".join([*out, _I4.pack(len(mark)), mark, *body])
    whole = b"".join(body)
    start = b"".join([*out, _I4.pack(len(mark) + block_length(len(whole))), mark])
    return b"".join((start, encode_block(start, whole), whole))


def java_order(declared: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the order in which Paimon (Java) writes indexes: column → its index types.

    Paimon's options, then its writer, then the collected payloads each go through a hash map.
    """
    types_of: dict[str, list[str]] = {}
    for column, kind in declared:
        types_of.setdefault(column, []).append(kind)
    columns = list(types_of)
    hashes = np.array([_column_hash(name) for name in columns], np.int32)
    called_again = len(declared) > 1 and declared[-1][0] in (name for name, _ in declared[:-1])
    calls: list[str] = []
    by_type: dict[str, dict[str, list[str]]] = {}
    for i in compute_if_absent_order(hashes, called_again):
        for kind in absent_order(types_of[columns[i]]):
            calls.append(kind)
            by_type.setdefault(kind, {}).setdefault(split_map_key(columns[i])[0], []).append(columns[i])
    names: list[str] = []
    kinds_of: dict[str, list[str]] = {}
    for kind in absent_order(calls):
        for top in put_order(list(by_type[kind])):
            full = by_type[kind][top]
            if split_map_key(full[0])[1] is not None:
                keys = put_order([split_map_key(name)[1] or "" for name in full])
                full = put_order([f"{top}[{key}]" for key in keys])
            for name in full:
                names.append(name)
                kinds_of.setdefault(name, []).append(kind)
    return {name: put_order(kinds_of[name]) for name in absent_order(names)}


def _column_hash(name: str) -> int:
    """Return ``Arrays.hashCode`` of Paimon's (column, map key or null, whether it is a map key)."""
    top, key = split_map_key(name)
    h = 31 + string_hash(top)
    h = 31 * h + (0 if key is None else string_hash(key))
    h = 31 * h + (1237 if key is None else 1231)
    return (h + (1 << 31)) % (1 << 32) - (1 << 31)


def header_length(prefix: bytes | memoryview) -> int:
    """Return the header's length, from the container's first :data:`FIXED_LENGTH` bytes.

    Raises :class:`CorruptError` for other bytes, :class:`UnsupportedFeature` for a newer version.
    """
    reader = Reader(prefix)
    magic, version, length = reader.i8(), reader.i4(), reader.i4()
    if magic != MAGIC:
        raise CorruptError("this is not a file index: the magic number is wrong", 0)
    if version != VERSION:
        raise UnsupportedFeature(f"file index version {version} is not known, only {VERSION}; rewrite the file's index")
    if length < FIXED_LENGTH + 8:
        raise CorruptError(f"the file index header cannot have {length} bytes", 12)
    return length


def read_header(view: bytes | memoryview, size: int | None = None) -> ContainerHeader:
    """Parse the header; ``view`` must hold all of it.

    ``size``: bytes of the whole container, which limits the place of every index (default: the view's).  Checksums, if
    the container has them, are verified for what ``view`` holds.
    """
    length = header_length(view)
    size = len(view) if size is None else size
    if length > len(view):
        raise CorruptError(f"the file index header has {length} bytes, {len(view)} are there", 12)
    reader = Reader(memoryview(view)[:length])
    reader.seek(FIXED_LENGTH)
    columns: dict[str, dict[str, tuple[int, int]]] = {}
    for _ in range(reader.count("the number of columns", 6)):
        at = reader.offset
        inner: dict[str, tuple[int, int]] = {}
        if columns.setdefault(reader.utf(), inner) is not inner:
            raise CorruptError("a file index names a column twice", at)
        for _ in range(reader.count("the number of indexes", 10)):
            kind = reader.utf()
            at = reader.offset
            start, n = reader.i4(), reader.i4()
            if (start, n) != EMPTY and (start < length or n < 0 or start + n > size):
                raise CorruptError(f"index '{kind}' is said to have {n} bytes at {start} of {size}", at)
            inner[kind] = (start, n)
    redundant = reader.count("the redundant length", 1)
    reader.take(redundant)
    if reader.offset != length:
        raise CorruptError(f"the file index header has {length} bytes, its members take {reader.offset}", 12)
    checksums = read_block(memoryview(view)[:length], redundant, size)
    if checksums is not None and len(view) == size:
        checksums.verify(memoryview(view), 0)
    return ContainerHeader(columns, length, checksums)
