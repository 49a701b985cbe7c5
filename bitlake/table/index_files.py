"""Table index files of a snapshot (deletion vectors, HASH), read and written whole.

Their bytes are :mod:`bitlake.tableindex`'s; which of them a snapshot has, :mod:`bitlake.table.index_entries` tells.
Source: index-format spec, sections 7.1 and 8.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from bitlake import _clock
from bitlake.codec.hashing import Int32s
from bitlake.deletion import discard_files
from bitlake.errors import CorruptError, InvalidRequest, StorageUnavailable, UnsupportedFeature
from bitlake.io import Store
from bitlake.metadata import options as opt
from bitlake.metadata.index_manifest import DELETION_VECTORS, HASH, IndexFileEntry
from bitlake.metadata.paths import TablePaths, table_index_name
from bitlake.metadata.schema import TableSchema
from bitlake.table.index_entries import index_path, new_index_file
from bitlake.tableindex.deletion_vectors import (
    DeletionVector,
    decode_index_file,
    encode_index_file,
    encode_index_files,
)
from bitlake.tableindex.hash_index import decode_hashes, encode_hashes
from bitlake.tableindex.vector_range import VectorRange

# --- deletion vectors -------------------------------------------------------------------------------------------------


def write_vectors(
    store: Store,
    paths: TablePaths,
    schema: TableSchema,
    partition: bytes,
    bucket: int,
    vectors: Mapping[str, DeletionVector],
) -> IndexFileEntry:
    """One new index file of all vectors of a bucket, by data file name; for no vectors, the one-byte empty file.

    Vectors that delete nothing are left out; all get the width that ``deletion-vectors.bitmap64`` asks for.
    """
    data, places = encode_index_file(_as_written(schema, vectors))
    name = table_index_name(_clock.new_uuid(), 0)
    return _put_vectors(store, paths, schema, partition, bucket, name, data, places)


def write_vectors_rolling(
    store: Store,
    paths: TablePaths,
    schema: TableSchema,
    partition: bytes,
    bucket: int,
    vectors: Mapping[str, DeletionVector],
) -> tuple[IndexFileEntry, ...]:
    """New index files of vectors, rolled at ``deletion-vector.index-file.target-size``; none for no vectors.

    For append tables without buckets only: elsewhere a bucket has one file.
    """
    target, writer = schema.opts.of(opt.DV_TARGET_SIZE), _clock.new_uuid()
    return tuple(
        _put_vectors(store, paths, schema, partition, bucket, table_index_name(writer, i), data, places)
        for i, (data, places) in enumerate(encode_index_files(_as_written(schema, vectors), target))
    )


def _as_written(schema: TableSchema, vectors: Mapping[str, DeletionVector]) -> dict[str, DeletionVector]:
    """One width for all: Paimon refuses to merge a new vector of one width into an old one of the other."""
    wide = schema.opts.of(opt.DV_BITMAP64)
    return {n: v if v.wide == wide else replace(v, wide=wide) for n, v in vectors.items() if v.rows}


def _put_vectors(
    store: Store,
    paths: TablePaths,
    schema: TableSchema,
    partition: bytes,
    bucket: int,
    name: str,
    data: bytes,
    places: tuple[VectorRange, ...],
) -> IndexFileEntry:
    path, external = new_index_file(paths, schema, partition, bucket, name)
    _write_whole(store, path, data)
    return IndexFileEntry(partition, bucket, DELETION_VECTORS, name, len(data), len(places), places, external)


def _write_whole(store: Store, path: str, data: bytes) -> None:
    try:
        store.write(path, data)
    except StorageUnavailable:
        # It may be there all the same, and nobody else knows its name.
        discard_files(store, [path])
        raise


def read_vectors(
    store: Store,
    paths: TablePaths,
    schema: TableSchema,
    entry: IndexFileEntry,
    row_counts: Mapping[str, int] | None = None,
) -> dict[str, DeletionVector]:
    """All vectors of an index file by data file name, of either width.

    ``row_counts`` tells rows of data files, for those that are known: positions are checked against them.  Raises
    :class:`CorruptError` naming the file, and :class:`bitlake.errors.NotFound`.
    """
    path = index_path(paths, schema, entry)
    _check_type(entry, DELETION_VECTORS)
    known = row_counts or {}
    data = store.read(path)
    try:
        if len(data) != entry.file_size:
            raise CorruptError(f"the file has {len(data)} bytes, the index manifest says {entry.file_size}")
        found = decode_index_file(data, entry.ranges or (), known.get)
    except CorruptError as e:
        raise e if e.path else e.within(path) from e
    high = next((name for name, vector in found.items() if vector.high), None)
    if high is not None:
        raise UnsupportedFeature(f"{path}: the vector of {high} has positions from 2^32 on; such files are not read")
    return found


# --- hashes -----------------------------------------------------------------------------------------------------------


def write_hashes(
    store: Store, paths: TablePaths, schema: TableSchema, partition: bytes, bucket: int, hashes: Int32s
) -> IndexFileEntry:
    """A new HASH index file of a bucket: int32 hashes of its keys, each once, in the order given."""
    data = encode_hashes(hashes)
    name = table_index_name(_clock.new_uuid(), 0)
    path, external = new_index_file(paths, schema, partition, bucket, name)
    _write_whole(store, path, data)
    return IndexFileEntry(partition, bucket, HASH, name, len(data), len(hashes), None, external)


def read_hashes(store: Store, paths: TablePaths, schema: TableSchema, entry: IndexFileEntry) -> Int32s:
    """The hashes of a HASH index file in its order, as int32.

    Raises :class:`CorruptError` naming the file (a wrong length, a hash twice), and
    :class:`bitlake.errors.NotFound`.
    """
    path = index_path(paths, schema, entry)
    _check_type(entry, HASH)
    try:
        return np.asarray(decode_hashes(store.read(path), entry.row_count), np.int32)
    except CorruptError as e:
        raise e if e.path else e.within(path) from e


def _check_type(entry: IndexFileEntry, wanted: str) -> None:
    if entry.index_type != wanted:
        raise InvalidRequest(f"index file {entry.file_name} is of type {entry.index_type} and not {wanted}")
