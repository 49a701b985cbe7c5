"""Files of deletion vectors: frame by frame, against what the index manifest says and the data files have.

The bytes are drawn in :mod:`bitlake.tableindex.deletion_vectors`.  Each vector is judged by itself, so that one that is
damaged does not hide the others.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bitlake.codec.bytes import Reader
from bitlake.errors import BitlakeError, NotFound
from bitlake.io import Store
from bitlake.metadata.index_manifest import IndexFileEntry
from bitlake.table.verify.findings import Finding, of_error
from bitlake.tableindex.deletion_vectors import EMPTY_FILE, FIRST_OFFSET, decode_vector
from bitlake.tableindex.vector_range import VectorRange

_AROUND = 8


@dataclass(frozen=True, slots=True)
class VectorTask:
    """A file of deletion vectors; ``rows`` tells the rows of the data files that are known."""

    path: str
    entry: IndexFileEntry
    rows: Mapping[str, int]


def check_vectors(store: Store, task: VectorTask) -> tuple[Finding, ...]:
    """Check one file of deletion vectors; runs in this process or on an executor."""
    path, entry = task.path, task.entry
    try:
        data = store.read(path)
    except NotFound:
        return (Finding("vectors-missing", path, "the file is not there"),)
    return tuple(_faults(task, data, entry, path))


def _faults(task: VectorTask, data: bytes, entry: IndexFileEntry, path: str) -> Iterator[Finding]:
    if len(data) != entry.file_size:
        what = f"the file has {len(data):,} bytes, and the index manifest says {entry.file_size:,}"
        yield Finding("vectors-size-wrong", path, what)
    if data[:1] != EMPTY_FILE:
        told = f"version {data[0]}" if data else "no version"
        yield Finding("vectors-unreadable", path, f"it is of {told}; only version 1 is known", offset=0)
        return
    if entry.ranges is None:
        yield Finding("vectors-unreadable", path, "the index manifest has no list of its vectors")
        return
    if len(entry.ranges) != entry.row_count:
        what = f"the index manifest lists {len(entry.ranges):,} vectors, and says that there are {entry.row_count:,}"
        yield Finding("vectors-count-wrong", path, what)
    end = FIRST_OFFSET
    for place in entry.ranges:
        end = max(end, place.offset + place.length)
        yield from _vector(task, data, place)
    if len(data) - end > _AROUND:  # of a 32-bit vector the length leaves so much out
        what = f"{len(data) - end:,} bytes follow the last vector that the index manifest lists"
        yield Finding("vectors-count-wrong", path, what, offset=end)


def _vector(task: VectorTask, data: bytes, place: VectorRange) -> Iterator[Finding]:
    def fault(code: str, what: str, more: int = 0) -> Finding:
        return Finding(code, task.path, f"the vector of {place.data_file} {what}", offset=place.offset + more)

    reader = Reader(memoryview(data)[max(0, place.offset) :], place.offset)
    try:
        size = reader.i4()
        body = reader.take(size)
        crc = reader.i4() & 0xFFFFFFFF
    except BitlakeError:
        yield fault("vector-unreadable", f"does not lie within the file of {len(data):,} bytes")
        return
    if size not in (place.length, place.length - _AROUND):
        yield fault("vector-unreadable", f"has {size:,} bytes, and the index manifest says {place.length:,}")
        return
    if zlib.crc32(body) != crc:
        yield fault("vector-checksum-wrong", "does not match its checksum", 4 + size)
        return
    try:
        vector = decode_vector(body)
    except BitlakeError as e:
        found = of_error("vector-unreadable", task.path, e)
        yield fault("vector-unreadable", f"cannot be read: {found.what}", 4 + (found.offset or 0))
        return
    if place.cardinality is not None and place.cardinality != vector.cardinality:
        what = f"deletes {vector.cardinality:,} rows, and the index manifest says {place.cardinality:,}"
        yield fault("vector-cardinality-wrong", what)
    rows = task.rows.get(place.data_file)
    positions = vector.positions()
    if rows is not None and len(positions) and int(positions[-1]) >= rows:
        yield fault("vector-out-of-range", f"deletes row {int(positions[-1]):,}, and the file has {rows:,}")
