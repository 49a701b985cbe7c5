"""Open the file index of a data file, embedded in the manifest or beside the data, and keep what it answered.

Only the parts of an index that a predicate needs are read.  Data files and their indexes never change, so open indexes
and the results of predicates stay cached: the next plan with the same predicate opens no index.
"""

from __future__ import annotations

from dataclasses import dataclass

from bitlake.fileindex.reader import FileIndexReader, open_index
from bitlake.fileindex.selection import Selection
from bitlake.io import Store
from bitlake.metadata.manifest import DataFileMeta, index_name
from bitlake.metadata.schema import TableSchema
from bitlake.runtime import CacheName

_INDEXES: CacheName[tuple[str, str], FileIndexReader] = CacheName("file indexes")
_START = 32 * 1024
"""Bytes of an index file fetched together with its size: its header, and all of a small index.  On an object store this
saves the requests for the size, the header's length and the header; on a disk it costs nothing."""
_OPENED = 8 * 1024
"""An estimate of the memory of an open index beside its own bytes; for 100,000 small ones this is most of it."""
_RESULTS: CacheName[tuple[str, str, str], IndexResult] = CacheName("index results")
_RESULT = 512
"""An estimate of the memory of a result beside its rows."""


@dataclass(frozen=True, slots=True)
class IndexResult:
    """The rows that a file's index selects for a predicate, the indexes used, and why others were not read."""

    selection: Selection
    used: tuple[str, ...]
    unused: tuple[str, ...] = ()


def open_file_index(store: Store, data_path: str, file: DataFileMeta, schema: TableSchema) -> FileIndexReader | None:
    """Open the index of a data file written with ``schema``; None if it has none.

    Open indexes stay cached.  An index with problems is opened again each time, so that a storage failure passes and a
    lasting problem shows up in every plan that it concerns.  Raises :class:`bitlake.errors.BitlakeError` for an index
    file that does not exist or whose size cannot be read.
    """
    if file.embedded_index is not None:
        return _open_embedded(store, data_path, file, file.embedded_index, schema)
    name = index_name(file)
    if name is None:
        return None
    path = f"{data_path.rsplit('/', 1)[0]}/{name}"
    cache, key = store.caches[_INDEXES], (path, "")
    index = cache.get(key)
    if index is None or index.problems:
        start, length = store.read_start(path, _START)

        def fetch(offset: int, size: int) -> bytes:
            inside = offset >= 0 and offset + size <= len(start)
            return start[offset : offset + size] if inside else store.read_range(path, offset, size)

        index = open_index(fetch, length, schema.fields, file.row_count)
        cache.put(key, index, length + _OPENED)
    return index


def _open_embedded(
    store: Store, data_path: str, file: DataFileMeta, content: bytes, schema: TableSchema
) -> FileIndexReader:
    # Small ones are quicker to parse again than the garbage collector is to look through all of them.
    small = len(content) < _OPENED
    key = (data_path, _identity(file))
    index = None if small else store.caches[_INDEXES].get(key)
    if index is None or index.problems:
        index = open_index(
            lambda offset, length: content[offset : offset + length], len(content), schema.fields, file.row_count
        )
        if not small:
            store.caches[_INDEXES].put(key, index, len(content) + _OPENED)
    return index


def _identity(file: DataFileMeta) -> str:
    """Tells the indexes of a data file apart: rewriting an index leaves the data file's name as it is."""
    content = file.embedded_index
    return index_name(file) or "" if content is None else f"embedded:{len(content)}:{hash(content)}"


def cached_result(store: Store, data_path: str, file: DataFileMeta, predicate_key: str) -> IndexResult | None:
    """The result that :func:`cache_result` kept, or None; the key tells predicates on the file's columns apart."""
    return store.caches[_RESULTS].get((data_path, _identity(file), predicate_key))


def cache_result(store: Store, data_path: str, file: DataFileMeta, predicate_key: str, result: IndexResult) -> None:
    """Keep a result without problems: the next plan with the same predicate does not open the index."""
    rows = result.selection.rows
    size = 0 if rows is None else min(8 * len(rows), file.row_count // 8 + 64)
    store.caches[_RESULTS].put((data_path, _identity(file), predicate_key), result, _RESULT + size)


def forget_indexes(store: Store) -> None:
    """Drop cached indexes and results, to measure what reading them takes."""
    store.caches[_INDEXES].clear()
    store.caches[_RESULTS].clear()
