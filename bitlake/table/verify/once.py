"""Buckets whose files are read without merging: above level 0 a key has one row that no vector deletes.

So it is with deletion vectors and with ``first-row``.  A vector that got lost shows as a key that is there twice: the
old row came back beside the new one.  Memory: 16 bytes for each row above level 0 of one bucket.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bitlake.codec.binary_row_arrays import encode_rows
from bitlake.codec.hashing import UInt64s, xxh64
from bitlake.errors import BitlakeError
from bitlake.io import Store
from bitlake.table.verify.findings import Finding
from bitlake.table.verify.hashes import KeyFile, key_batches
from bitlake.tableindex.deletion_vectors import decode_frame, frame_bytes
from bitlake.tableindex.vector_range import VectorRange


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A data file above level 0, and where its deletion vector is: path and size of the index file, and the range."""

    keys: KeyFile
    row_count: int
    vector: tuple[str, int, VectorRange] | None = None


@dataclass(frozen=True, slots=True)
class OnceTask:
    """The files above level 0 of one bucket."""

    files: tuple[LiveFile, ...]


def check_once(store: Store, task: OnceTask) -> tuple[Finding, ...]:
    """Check one bucket; runs in this process or on an executor.  What cannot be read is told by others."""
    try:
        parts = [_left(store, file) for file in task.files]
    except (BitlakeError, pa.ArrowException):
        return ()
    hashes = np.concatenate([np.zeros(0, np.uint64), *parts])
    owners = np.repeat(np.arange(len(parts)), [len(p) for p in parts])
    order = np.argsort(hashes, kind="stable")
    twice = np.flatnonzero(hashes[order][1:] == hashes[order][:-1])
    if not len(twice):
        return ()
    first, second = (task.files[int(owners[order[twice[0] + i]])].keys.path for i in (0, 1))
    name = second.rsplit("/", 1)[1]
    what = f"{len(twice):,} of its bucket's keys have two rows that no vector deletes, one of them also in {name}"
    return (Finding("key-in-two-files", first, what),)


def _left(store: Store, file: LiveFile) -> UInt64s:
    """A 64-bit hash of the key of each row that no vector deletes."""
    types = [f.type for f in file.keys.fields]
    parts: list[UInt64s] = [np.zeros(0, np.uint64)]
    for columns in key_batches(store, file.keys):
        data, offsets = encode_rows(types, columns)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        parts.append(xxh64(pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)))
    hashes: UInt64s = np.concatenate(parts)
    if file.vector is None:
        return hashes
    path, size, place = file.vector
    frame = store.read_range(path, place.offset, frame_bytes(place, size))
    gone = decode_frame(frame, place, file.row_count).positions()
    kept: UInt64s = np.delete(hashes, gone)
    return kept
