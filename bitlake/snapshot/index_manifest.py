"""Read index manifests: which table index files (deletion vectors, HASH) a snapshot has, and their paths.

:mod:`bitlake.snapshot.index_files`, which needs numpy, reads the files themselves.  Index manifests never change, so
decoded ones are cached by path.
"""

from __future__ import annotations

from bitlake.errors import CorruptError
from bitlake.metadata import options as opt
from bitlake.metadata.index_manifest import IndexFileEntry, decode_index_manifest
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import Snapshot
from bitlake.runtime import CacheName
from bitlake.snapshot.partitions import PartitionReader
from bitlake.snapshot.table_files import TableFiles

_INDEX_MANIFESTS: CacheName[str, tuple[IndexFileEntry, ...]] = CacheName("index manifests")
_ENTRY_BYTES, _RANGE_BYTES = 600, 200
"""What an entry takes in memory, and each of its ranges."""


def read_index_manifest(table: TableFiles, name: str) -> tuple[IndexFileEntry, ...]:
    """The entries of an index manifest, cached; raises :class:`CorruptError` naming the file."""
    path = table.paths.manifest(name)
    cache = table.store.caches[_INDEX_MANIFESTS]
    entries = cache.get(path)
    if entries is None:
        try:
            entries = tuple(decode_index_manifest(table.store.read(path)))
        except CorruptError as e:
            raise e if e.path else e.within(path) from e
        cache.put(path, entries, len(path) + sum(_ENTRY_BYTES + _RANGE_BYTES * len(e.ranges or ()) for e in entries))
    return entries


def index_entries(table: TableFiles, snapshot: Snapshot | None) -> list[IndexFileEntry]:
    """All table index files of a snapshot; none without a snapshot."""
    if snapshot is None or snapshot.index_manifest is None:
        return []
    return list(read_index_manifest(table, snapshot.index_manifest))


def index_path(paths: TablePaths, schema: TableSchema, entry: IndexFileEntry) -> str:
    """The full path of an index file: external, beside the data (``index-file-in-data-file-dir``), or in ``index/``."""
    if entry.external_path is not None:
        return paths.external(entry.external_path, "index file")
    if not schema.opts.of(opt.INDEX_IN_DATA_DIR):
        return paths.index(entry.file_name)
    return f"{PartitionReader(schema, paths).bucket_dir(entry.partition, entry.bucket)}/{entry.file_name}"


def new_index_file(
    paths: TablePaths, schema: TableSchema, partition: bytes, bucket: int, name: str
) -> tuple[str, str | None]:
    """The path of a new index file of a bucket by the table's options, and its external path, None if it has none."""
    if not schema.opts.of(opt.INDEX_IN_DATA_DIR):
        return paths.index(name), None
    return PartitionReader(schema, paths).new_file(partition, bucket, name)
