"""The manifest reader and writer: the live files of a snapshot, its index manifest, and new manifests at commit.

Live set (table-format spec, section 4): the ADD entries of base and delta manifests whose identity no DELETE entry
repeats.  Manifests never change once written, so decoded ones are cached by full path.

The live files of a snapshot are cached with their columns (:mod:`bitlake.snapshot.file_columns`), so that a second
plan decodes nothing.  Of a snapshot with many entries there are only columns.

The files of some partitions are found without decoding other blocks (:func:`live_files`), those of some buckets by the
columns of the manifests that may hold them (:func:`bucket_files`).

Merging keeps the number of manifests a reader opens small.  *Full*: once small or deleting manifests together reach
``manifest.full-compaction-threshold-size``, they are rewritten as ADD-only.  *Minor* otherwise: runs of manifests that
reach ``manifest.target-file-size`` become one; a last, smaller run only from ``manifest.merge-min-count`` on.  A
manifest of :data:`MOST_ENTRIES` is large enough, whatever its size.  Of a large manifest in a run, only the blocks with
partitions of DELETE entries, and those without a checksum, are decoded; the others are copied as they are stored.

Rollback and fast-forward create snapshots that have the files of an earlier one and nothing else.  Paimon reads them as
snapshots of their own, whose commits changed nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from bitlake.codec.avro import Block, decompress_zstd, has_checksum, most_bytes
from bitlake.codec.binary_row import decode_row, encode_row_with_arity
from bitlake.errors import CorruptError, StorageUnavailable, UnsupportedFeature
from bitlake.io import Store
from bitlake.io.base import in_parallel, request_runner
from bitlake.lazy_modules import numpy as np
from bitlake.metadata.index_manifest import (
    IndexFileEntry,
    decode_index_manifest,
    encode_index_manifest,
)
from bitlake.metadata.manifest import (
    EMPTY_STATS,
    KNOWN_SCHEMA,
    MANIFEST,
    NOT_DECODED,
    EntryKind,
    ManifestEntry,
    ManifestFileMeta,
    RecordDecoder,
    SimpleStats,
    decode_manifest,
    decode_manifest_list,
    encode_manifest,
    encode_manifest_list,
    encode_manifests,
    partition_finder,
    stored_blocks,
    stored_records,
)
from bitlake.metadata.manifest_columns import ManifestColumns, decode_columns
from bitlake.metadata.options import (
    MANIFEST_FULL_SIZE,
    MANIFEST_MERGE_MIN,
    MANIFEST_TARGET_SIZE,
    ZSTD_LEVEL,
    Options,
)
from bitlake.metadata.paths import ManifestNames, TablePaths, parse_id
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import BATCH_IDENTIFIER, VERSION, Snapshot
from bitlake.runtime import Cache, CacheName
from bitlake.snapshot.file_columns import ColumnarFiles, LiveFiles, in_buckets, live_columns, memory_of
from bitlake.snapshot.table_files import TableFiles
from bitlake.types import DataType

T = TypeVar("T")
_READERS = 8
"""Manifests that are read concurrently."""
MANY_ENTRIES = 5_000
"""From this many entries on, only the required partitions of a manifest are decoded."""

_MANIFESTS: CacheName[str, tuple[ManifestEntry, ...]] = CacheName("manifests")
_LISTS: CacheName[str, tuple[ManifestFileMeta, ...]] = CacheName("manifest lists")
_LIVE: CacheName[tuple[str, frozenset[bytes] | frozenset[int] | None], LiveFiles | ColumnarFiles] = CacheName(
    "live files"
)
"""By the names of the manifest lists, and the partitions or buckets; None: all."""
_META_BYTES = 400
"""Bytes of a manifest in a list in memory."""
MOST_ENTRIES = 50_000
"""A new manifest has no more entries, or a quarter more if blocks are copied into it.

To find a partition's files in one, all its blocks are decompressed: 50,000 are 21 MB, which takes 30 ms.  Entries that
compress as usual, to 160 bytes, reach the target size before.
"""
_LARGE = 2_000
"""From this many entries on, a manifest in a run is large: its blocks are copied."""
_MOST_JOINED = 1.25
"""The largest joined manifest, as a multiple of the target size and of :data:`MOST_ENTRIES`."""
COLUMNAR_ENTRIES = 10_000
"""From this many entries on, live files are held by column, and an entry is made when a plan chooses it."""
_COLUMNS: CacheName[str, ManifestColumns] = CacheName("columns of manifests")


# --- reading ----------------------------------------------------------------------------------------------------------


def read_manifest_list(table: TableFiles, name: str, size: int | None = None) -> tuple[ManifestFileMeta, ...]:
    """The manifests of a list, cached; ``size``: its bytes according to the snapshot, None if unknown.

    Raises :class:`CorruptError` naming the file.
    """

    def decode(data: bytes) -> list[ManifestFileMeta]:
        metas = decode_manifest_list(data)
        if size is not None and len(data) != size:
            raise CorruptError(f"the manifest list has {len(data):,} bytes; its snapshot expects {size:,}")
        return metas

    lists = table.store.caches[_LISTS]
    return _read(table.store, table.paths.manifest(name), lists, decode, lambda metas: _META_BYTES * len(metas))


def read_manifest(
    table: TableFiles, name: str, partitions: frozenset[bytes] | None = None, records: int | None = None
) -> tuple[ManifestEntry, ...]:
    """The entries of a manifest, cached; with ``partitions`` at least theirs, which are not cached.

    ``records``: the number of entries that its list records, checked where not all are decoded.
    Raises :class:`CorruptError` naming the file.
    """
    path = table.paths.manifest(name)
    if partitions is None:
        return _read(table.store, path, table.store.caches[_MANIFESTS], decode_manifest, memory_of)

    def decode(data: bytes) -> list[ManifestEntry]:
        held = stored_records(data)
        if records is not None and held is not None and held != records:
            # Truncated between two blocks: entries of these partitions may be missing.
            raise CorruptError(f"the manifest has {held:,} entries; its list records {records:,}")
        return decode_manifest(data, partitions)

    entries = table.store.caches[_MANIFESTS].get(path)
    return _decoded(table.store, path, decode) if entries is None else entries


def _read(
    store: Store,
    path: str,
    cache: Cache[str, tuple[T, ...]],
    decode: Callable[[bytes], list[T]],
    size_of: Callable[[Sequence[T]], int],
) -> tuple[T, ...]:
    return cache.get_or(path, lambda: _decoded(store, path, decode), lambda found: size_of(found) + len(path))


def _decoded(store: Store, path: str, decode: Callable[[bytes], list[T]]) -> tuple[T, ...]:
    try:
        return tuple(decode(store.read(path)))
    except CorruptError as e:
        store.drop_cached(path)
        raise e.within(path) from e
    except UnsupportedFeature as e:
        raise UnsupportedFeature(f"{path}: {e}") from e


def read_manifests(
    table: TableFiles, metas: Iterable[ManifestFileMeta], partitions: frozenset[bytes] | None = None
) -> list[tuple[ManifestEntry, ...]]:
    """The entries of several manifests in their order; uncached manifests are read concurrently.

    Raises :class:`CorruptError` if the added and deleted files of a manifest are not as many as its list records.

    With ``partitions`` at least their entries: of a large uncached manifest, only these are decoded.
    """
    requested = list(metas)
    cached = table.store.caches[_MANIFESTS]
    missing = [m for m in requested if cached.get(table.paths.manifest(m.file_name)) is None]

    def read(meta: ManifestFileMeta) -> tuple[ManifestEntry, ...]:
        some = partitions if meta.entry_count >= MANY_ENTRIES else None
        entries = read_manifest(table, meta.file_name, some, meta.entry_count)
        if some is None:
            _check_counts(table.paths, meta, entries)
        return entries

    if len(missing) <= request_runner(table.store, table.paths.root).few:
        return [read(m) for m in requested]
    with ThreadPoolExecutor(min(_READERS, len(missing)), "bitlake-manifests") as pool:
        fetched = dict(zip([m.file_name for m in missing], pool.map(read, missing)))
    return [fetched[m.file_name] if m.file_name in fetched else read(m) for m in requested]


def _check_counts(paths: TablePaths, meta: ManifestFileMeta, entries: tuple[ManifestEntry, ...]) -> None:
    """Detect a manifest that was truncated between two blocks, or whose entries changed from ADD to DELETE."""
    deleted = sum(e.kind is EntryKind.DELETE for e in entries)
    if (len(entries) - deleted, deleted) != (meta.num_added_files, meta.num_deleted_files):
        raise CorruptError(
            f"the manifest adds {len(entries) - deleted:,} and deletes {deleted:,} files; its list records "
            f"{meta.num_added_files:,} and {meta.num_deleted_files:,}",
            None,
            paths.manifest(meta.file_name),
        )


def snapshot_manifests(table: TableFiles, snapshot: Snapshot) -> list[ManifestFileMeta]:
    """All manifests of a snapshot: its base list, then its delta list.

    The base list of a table's first snapshot, whose rows are all new, is empty, and is not read.
    """
    base = partial(read_manifest_list, table, snapshot.base_manifest_list, snapshot.base_manifest_list_size)
    delta = partial(read_manifest_list, table, snapshot.delta_manifest_list, snapshot.delta_manifest_list_size)
    if snapshot.id == 1 and snapshot.total_record_count == snapshot.delta_record_count > 0:
        return list(delta())
    first, last = in_parallel(table.store, table.paths.root, base, delta)
    return [*first, *(last or ())]


@dataclass(frozen=True, slots=True)
class PartitionFilter:
    """A selection of a table's partitions."""

    meets: Callable[[ManifestFileMeta], bool]
    """False only for manifests whose partition statistics, which cover DELETE entries too, exclude all of them."""
    rows: frozenset[bytes] | None = None
    """The partition rows; None if they are not known individually."""


def live_files(
    table: TableFiles, snapshot: Snapshot, partitions: PartitionFilter | None = None
) -> LiveFiles | ColumnarFiles:
    """The live files of a snapshot, as ADD entries in manifest order; with ``partitions`` at least theirs.

    The result is the cached object, with which planning caches columns: a second call for the same snapshot reads
    nothing.  Raises :class:`CorruptError` and :class:`NotFound` naming the file: a missing manifest usually means
    that the snapshot has expired meanwhile.
    """
    cache = table.store.caches[_LIVE]
    name = live_name(table.paths, snapshot)
    rows = None if partitions is None else partitions.rows
    for key in [(name, None)] if rows is None else [(name, None), (name, rows)]:
        live = cache.get(key)
        if live is not None:
            cache.resize(key, live, live.memory)  # earlier plans may have added columns
            return live
    metas = snapshot_manifests(table, snapshot)
    kept = metas if partitions is None else [m for m in metas if partitions.meets(m)]
    live = _columnar_files(table, kept) if rows is None else None
    if live is None:
        entries = live_entries(read_manifests(table, kept, rows))
        live = LiveFiles(entries if rows is None else (e for e in entries if e.partition in rows))
    if rows is not None or len(kept) == len(metas):
        cache.put((name, rows), live, live.memory + len(name))
    return live


def bucket_files(table: TableFiles, snapshot: Snapshot, buckets: frozenset[int]) -> Sequence[ManifestEntry]:
    """The live files of some buckets, in all partitions, as ADD entries in manifest order; cached.

    Many entries are decoded to columns, and only those of the buckets become objects.  Manifests whose range of buckets
    excludes all of them are not read.  Raises as :func:`live_files`.
    """
    cache = table.store.caches[_LIVE]
    name = live_name(table.paths, snapshot)
    whole = cache.get((name, None))
    if whole is not None:
        return in_buckets(whole, buckets)
    live = cache.get((name, buckets))
    if live is None:
        metas = [m for m in snapshot_manifests(table, snapshot) if _may_hold(m, buckets)]
        live = LiveFiles(live_entries(_entries_of_buckets(table, metas, buckets)))
        cache.put((name, buckets), live, live.memory + len(name))
    return live


def _may_hold(meta: ManifestFileMeta, buckets: frozenset[int]) -> bool:
    """False only for manifests whose range of buckets, which covers DELETE entries too, excludes all of them."""
    low, high = meta.min_bucket, meta.max_bucket
    return low is None or high is None or any(low <= bucket <= high for bucket in buckets)


def _entries_of_buckets(
    table: TableFiles, metas: Sequence[ManifestFileMeta], buckets: frozenset[int]
) -> list[list[ManifestEntry]]:
    """The entries of some buckets, ADD and DELETE, manifest by manifest."""
    columns: list[ManifestColumns | None] = [None] * len(metas)
    if sum(m.entry_count for m in metas) >= COLUMNAR_ENTRIES:
        columns = _read_columns(table, metas)
    whole = iter(read_manifests(table, [m for m, part in zip(metas, columns, strict=True) if part is None]))
    numbers = np.array(sorted(buckets), np.int32)
    return [
        [e for e in next(whole) if e.bucket in buckets]
        if part is None
        else list(part.entries(np.flatnonzero(np.isin(part.bucket, numbers))))
        for part in columns
    ]


def _columnar_files(table: TableFiles, metas: Sequence[ManifestFileMeta]) -> ColumnarFiles | None:
    """The live files of many entries, by column; None if they are few, or some manifest must be read by entry."""
    if sum(m.entry_count for m in metas) < COLUMNAR_ENTRIES:
        return None
    parts = manifest_columns(table, metas)
    return None if parts is None else live_columns(parts)


def manifest_columns(table: TableFiles, metas: Sequence[ManifestFileMeta]) -> list[ManifestColumns] | None:
    """The entries of manifests by column, cached; None if some manifest must be read by entry.

    Such a manifest has another schema, is damaged, or has other numbers of entries than its list records.
    """
    columns = _read_columns(table, metas)
    parts = [part for part in columns if part is not None]
    return parts if len(parts) == len(columns) else None


def _read_columns(table: TableFiles, metas: Sequence[ManifestFileMeta]) -> list[ManifestColumns | None]:
    """The columns of manifests, cached; None for those that the other decoder reads, or reports what is wrong with."""
    cache = table.store.caches[_COLUMNS]
    paths = [table.paths.manifest(m.file_name) for m in metas]
    columns = {path: cache.get(path) for path in paths}
    missing = [path for path, cached in columns.items() if cached is None]
    data = request_runner(table.store, table.paths.root).run(missing, table.store.read)
    for path, decoded in zip(missing, decode_columns(data), strict=True):
        if decoded is not None:
            cache.put(path, decoded, decoded.memory + len(path))
        columns[path] = decoded
    return [_counted(columns[path], meta) for path, meta in zip(paths, metas, strict=True)]


def _counted(part: ManifestColumns | None, meta: ManifestFileMeta) -> ManifestColumns | None:
    """The columns, unless they have other numbers of added and deleted files than the manifest's list records."""
    if part is None:
        return None
    deleted = int((part.kind == EntryKind.DELETE).sum())
    return part if (len(part) - deleted, deleted) == (meta.num_added_files, meta.num_deleted_files) else None


def entries_to_decode(table: TableFiles, metas: Iterable[ManifestFileMeta]) -> int:
    """The entries of those manifests that no cache has."""
    columns, entries = table.store.caches[_COLUMNS], table.store.caches[_MANIFESTS]
    paths = ((table.paths.manifest(m.file_name), m) for m in metas)
    return sum(m.entry_count for path, m in paths if columns.get(path) is None and entries.get(path) is None)


def is_cached(table: TableFiles, snapshot: Snapshot) -> bool:
    """Whether all live files of a snapshot are cached."""
    return table.store.caches[_LIVE].get((live_name(table.paths, snapshot), None)) is not None


def live_name(paths: TablePaths, snapshot: Snapshot) -> str:
    """Return the key of a snapshot's live files in caches: its manifest lists."""
    return paths.manifest(f"{snapshot.base_manifest_list}\0{snapshot.delta_manifest_list}")


def live_entries(manifests: Iterable[Iterable[ManifestEntry]]) -> list[ManifestEntry]:
    """The ADD entries that no DELETE entry of any of the manifests cancels, in their order."""
    adds: list[ManifestEntry] = []
    deletes: list[ManifestEntry] = []
    for entries in manifests:
        for e in entries:
            (adds if e.kind is EntryKind.ADD else deletes).append(e)
    if not deletes:
        return adds
    # File names nearly always decide; the whole identity is compared only for deleted names.
    names = {d.file.file_name for d in deletes}
    deleted = {d.identity for d in deletes}
    return [e for e in adds if e.file.file_name not in names or e.identity not in deleted]


# --- writing and merging ----------------------------------------------------------------------------------------------


class ManifestWriter:
    """Writes the manifest files of one commit, and can delete those that the commit does not need."""

    def __init__(self, table: TableFiles, partition_types: Sequence[DataType], options: Options) -> None:
        self._table = table
        self._types = partition_types
        self._options = options
        self._names = ManifestNames()
        self._written: list[str] = []

    def write(self, entries: Sequence[ManifestEntry]) -> list[ManifestFileMeta]:
        """Write entries as manifests rolled at the target size; none for no entries."""
        metas = []
        target, level = self._options.of(MANIFEST_TARGET_SIZE), self._options.of(ZSTD_LEVEL)
        for first in range(0, len(entries), MOST_ENTRIES):
            for data, held in encode_manifests(entries[first : first + MOST_ENTRIES], target, level):
                name = self._names.manifest()
                self._put(name, data)
                metas.append(manifest_meta(name, len(data), held, self._types))
        return metas

    def write_list(self, metas: Sequence[ManifestFileMeta]) -> tuple[str, int]:
        """Write a manifest list; returns its name and size in bytes."""
        name = self._names.manifest_list()
        data = encode_manifest_list(metas, self._options.of(ZSTD_LEVEL))
        self._put(name, data)
        return name, len(data)

    def write_index(self, entries: Sequence[IndexFileEntry]) -> str:
        """Write an index manifest; returns its name."""
        name = self._names.index_manifest()
        self._put(name, encode_index_manifest(entries, self._options.of(ZSTD_LEVEL)))
        return name

    def _put(self, name: str, data: bytes) -> None:
        self._written.append(name)  # before the write: a failed write may leave a file
        self._table.store.write(self._table.paths.manifest(name), data)

    def mark(self) -> int:
        """The number of files written so far, for :meth:`discard`."""
        return len(self._written)

    def discard(self, since: int = 0) -> None:
        """Delete the files written after ``since``; if deleting fails, the files become orphan files."""
        while len(self._written) > since:
            try:
                self._table.store.delete(self._table.paths.manifest(self._written.pop()))
            except StorageUnavailable:
                continue

    def release(self) -> list[str]:
        """Forget what was written, so that it is never discarded, and return it."""
        held, self._written = self._written, []
        return held

    def take_back(self, held: list[str]) -> None:
        """Undo :meth:`release`."""
        self._written = held + self._written

    def merge(self, metas: Sequence[ManifestFileMeta]) -> list[ManifestFileMeta]:
        """The manifests of a new base list in place of ``metas``: the same live files and pending deletes."""
        full = self._merge_full(metas)
        return self._merge_minor(metas) if full is None else full

    def _merge_full(self, metas: Sequence[ManifestFileMeta]) -> list[ManifestFileMeta] | None:
        target = self._options.of(MANIFEST_TARGET_SIZE)
        candidates = [
            m for m in metas if m.num_deleted_files > 0 or (m.file_size < target and m.entry_count < MOST_ENTRIES)
        ]
        if sum(m.file_size for m in candidates) < max(1, self._options.of(MANIFEST_FULL_SIZE)):
            return None
        deleting = read_manifests(self._table, [m for m in candidates if m.num_deleted_files > 0])
        touched = PartitionSet(_deleted_partitions(deleting), self._types)
        small = {m.file_name for m in candidates}
        kept = [m for m in metas if m.file_name not in small and not touched.meets(m)]
        rewritten = [m for m in metas if m.file_name in small or touched.meets(m)]
        if len(rewritten) <= 1:
            return None
        # Every DELETE and every ADD that it can match are in the manifests read here, so exactly the live files remain.
        return kept + self.write(live_entries(read_manifests(self._table, rewritten)))

    def _merge_minor(self, metas: Sequence[ManifestFileMeta]) -> list[ManifestFileMeta]:
        target = self._options.of(MANIFEST_TARGET_SIZE)
        out: list[ManifestFileMeta] = []
        run: list[ManifestFileMeta] = []
        size = entries = 0
        for meta in metas:
            run.append(meta)
            size += meta.file_size
            entries += meta.entry_count
            if size >= target or entries >= MOST_ENTRIES:
                out += self._merge_run(run)
                run, size, entries = [], 0, 0
        return out + (self._merge_run(run) if len(run) >= self._options.of(MANIFEST_MERGE_MIN) else run)

    def _merge_run(self, run: list[ManifestFileMeta]) -> list[ManifestFileMeta]:
        if len(run) <= 1:
            return run
        joined = self._join(run)
        return self.write(merged_entries(read_manifests(self._table, run))) if joined is None else joined

    def _join(self, run: Sequence[ManifestFileMeta]) -> list[ManifestFileMeta] | None:
        """Write one manifest for a run in which some are large, or none if all entries cancel each other.

        Its statistics have the bounds of the run's: they may be wider than those of the entries that remain.
        None if the run has to be decoded and written again.
        """
        if sum(m.entry_count for m in run) > _MOST_JOINED * MOST_ENTRIES:
            return None  # more than one manifest
        if sum(m.file_size for m in run) > _MOST_JOINED * self._options.of(MANIFEST_TARGET_SIZE):
            return None
        if not any(map(_is_large, run)):
            return None
        stats = _joined_stats([m.partition_stats for m in run], self._types)
        parts = None if stats is None else self._parts(run)
        if stats is None or parts is None:
            return None
        kept = merged_entries(part for part in parts if not isinstance(part, Block))
        stats = _without_nulls_of(_removed(parts, kept), stats, self._types)
        level = self._options.of(ZSTD_LEVEL)
        blocks = _blocks_of(parts, kept, level)
        if not blocks:
            return []
        data = MANIFEST.encode_blocks(blocks, level, "zstandard")
        name = self._names.manifest()
        self._put(name, data)
        deleted = sum(e.kind is EntryKind.DELETE for e in kept)
        return [_joined_meta(name, len(data), sum(b.records for b in blocks) - deleted, deleted, stats, run)]

    def _parts(self, run: Sequence[ManifestFileMeta]) -> list[Sequence[ManifestEntry] | Block] | None:
        """Return the blocks of the large manifests of a run, and the entries of the others and of some blocks.

        None if one of the large ones has to be decoded.
        """
        small = read_manifests(self._table, [m for m in run if not _is_large(m)])
        deleted = _deleted_partitions(small)
        decoded = iter(small)
        parts: list[Sequence[ManifestEntry] | Block] = []
        for meta in run:
            if not _is_large(meta):
                parts.append(next(decoded))
                continue
            split = _split(self._table.store.read(self._table.paths.manifest(meta.file_name)), deleted)
            if split is None or sum(map(_entries_in, split)) != meta.entry_count:
                return None  # decoding reports what is wrong
            parts += split
        return parts


def _is_large(meta: ManifestFileMeta) -> bool:
    return meta.num_deleted_files == 0 and meta.entry_count >= _LARGE


def _deleted_partitions(manifests: Iterable[Iterable[ManifestEntry]]) -> set[bytes]:
    return {e.partition for entries in manifests for e in entries if e.kind is EntryKind.DELETE}


def merged_entries(manifests: Iterable[Iterable[ManifestEntry]]) -> list[ManifestEntry]:
    """Entries after an ADD and its DELETE cancelled each other; a DELETE whose ADD lies elsewhere is kept, first."""
    every = [tuple(entries) for entries in manifests]
    adds = {e.identity for entries in every for e in entries if e.kind is EntryKind.ADD}
    pending = [e for entries in every for e in entries if e.kind is EntryKind.DELETE and e.identity not in adds]
    return pending + live_entries(every)


def _split(data: bytes, partitions: set[bytes]) -> list[Sequence[ManifestEntry] | Block] | None:
    """Return a manifest's blocks in order; decode those that may hold ``partitions``, and those without a checksum.

    None for a manifest of another schema or codec, or a damaged one: checksums are verified.
    """
    holds = partition_finder(partitions)
    decoder, left = RecordDecoder(), most_bytes(len(data))
    parts: list[Sequence[ManifestEntry] | Block] = []
    try:
        for records, start, size in stored_blocks(data, KNOWN_SCHEMA):
            stored = data[start : start + size]
            block = decompress_zstd(stored, left)
            left -= len(block)
            if left < 0:
                return None
            if holds(block) or not has_checksum(stored):
                parts.append(decoder.entries(block, records))
            else:
                parts.append(Block(records, b"", stored, "zstandard"))
    except (*NOT_DECODED, CorruptError, UnsupportedFeature):
        return None
    return parts


def _encode_block(entries: Sequence[ManifestEntry], level: int) -> list[Block]:
    data = encode_manifest(entries, level) if entries else b""
    blocks = stored_blocks(data, KNOWN_SCHEMA) if entries else ()
    return [Block(records, b"", data[start : start + size], "zstandard") for records, start, size in blocks]


def _entries_in(part: Sequence[ManifestEntry] | Block) -> int:
    return part.records if isinstance(part, Block) else len(part)


def _removed(parts: Sequence[Sequence[ManifestEntry] | Block], kept: Sequence[ManifestEntry]) -> list[ManifestEntry]:
    remaining = set(map(id, kept))
    return [e for part in parts if not isinstance(part, Block) for e in part if id(e) not in remaining]


def _blocks_of(
    parts: Sequence[Sequence[ManifestEntry] | Block], kept: Sequence[ManifestEntry], level: int
) -> list[Block]:
    """Return the blocks of a manifest: pending DELETE entries first, then the parts in their order.

    No block that stays encoded holds an ADD that a DELETE in ``parts`` cancels.
    """
    live = {id(e) for e in kept if e.kind is EntryKind.ADD}
    blocks: list[Block] = []
    entries = [e for e in kept if e.kind is EntryKind.DELETE]
    for part in parts:
        if isinstance(part, Block):
            blocks += _encode_block(entries, level)
            blocks.append(part)
            entries = []
        else:
            entries += [e for e in part if id(e) in live]
    return blocks + _encode_block(entries, level)


def _joined_meta(
    name: str, size: int, added: int, deleted: int, stats: SimpleStats, run: Sequence[ManifestFileMeta]
) -> ManifestFileMeta:
    def bound(choose: Callable[[Iterable[int]], int], values: Iterable[int | None]) -> int | None:
        known = list(values)
        return None if None in known else choose(v for v in known if v is not None)

    return ManifestFileMeta(
        name,
        size,
        added,
        deleted,
        stats,
        max(m.schema_id for m in run),
        bound(min, (m.min_bucket for m in run)),
        bound(max, (m.max_bucket for m in run)),
        bound(min, (m.min_level for m in run)),
        bound(max, (m.max_level for m in run)),
        bound(min, (m.min_row_id for m in run)),
        bound(max, (m.max_row_id for m in run)),
    )


class PartitionSet:
    """A set of partitions; tests whether a manifest may have entries of any of them."""

    def __init__(self, rows: Iterable[bytes], types: Sequence[DataType]) -> None:
        self._types = types
        self._values = [decode_row(types, r) for r in rows]

    def meets(self, meta: ManifestFileMeta) -> bool:
        """False only if the manifest's partition statistics exclude every partition of the set."""
        if not self._values or not self._types:
            return bool(self._values)
        stats = meta.partition_stats
        if stats == EMPTY_STATS:
            return True  # another writer recorded none
        lows, highs = decode_row(self._types, stats.min), decode_row(self._types, stats.max)
        nulls = stats.null_counts or (None,) * len(lows)
        return any(
            all(_within(v, low, high, n) for v, low, high, n in zip(values, lows, highs, nulls))
            for values in self._values
        )


def _within(value: Any, low: Any, high: Any, nulls: int | None) -> bool:
    if low is None or high is None:
        # Partition statistics are never truncated: without bounds, every value is NULL.  Older versions of pypaimon
        # record no NULLs then.
        return value is None or nulls == 0
    if value is None:
        return nulls != 0
    return value != value or not (value < low or value > high)


def manifest_meta(
    name: str, size: int, entries: Sequence[ManifestEntry], partition_types: Sequence[DataType]
) -> ManifestFileMeta:
    """The list record of a manifest with these entries (at least one)."""
    added = sum(e.kind is EntryKind.ADD for e in entries)
    buckets = [e.bucket for e in entries]
    levels = [e.file.level for e in entries]
    rows = [(e.file.first_row_id, e.file.row_count) for e in entries]
    starts = [start for start, _ in rows if start is not None]
    ends = [start + count - 1 for start, count in rows if start is not None]
    tracked = len(starts) == len(entries)
    return ManifestFileMeta(
        name,
        size,
        added,
        len(entries) - added,
        partition_stats([e.partition for e in entries], partition_types),
        max(e.file.schema_id for e in entries),
        min(buckets),
        max(buckets),
        min(levels),
        max(levels),
        min(starts) if tracked else None,
        max(ends) if tracked else None,
    )


def partition_stats(rows: Sequence[bytes], types: Sequence[DataType]) -> SimpleStats:
    """Full bounds and null counts of partition rows, one row per entry."""
    if not types:
        return EMPTY_STATS
    counts: dict[bytes, int] = {}
    for row in rows:
        counts[row] = counts.get(row, 0) + 1
    decoded = [(decode_row(types, row), n) for row, n in counts.items()]
    lows, highs, nulls = [], [], []
    for i in range(len(types)):
        values = [values[i] for values, _ in decoded if values[i] is not None]
        lows.append(min(values, key=_order, default=None))
        highs.append(max(values, key=_order, default=None))
        nulls.append(sum(n for values, n in decoded if values[i] is None))
    return SimpleStats(encode_row_with_arity(types, lows), encode_row_with_arity(types, highs), tuple(nulls))


def _joined_stats(parts: Sequence[SimpleStats], types: Sequence[DataType]) -> SimpleStats | None:
    """Return the statistics of the entries of several manifests; None if some are not known."""
    if not types:
        return EMPTY_STATS
    try:
        lows, highs = ([decode_row(types, row) for row in rows] for rows in zip(*((p.min, p.max) for p in parts)))
    except CorruptError:
        return None
    for part, low, high in zip(parts, lows, highs, strict=True):
        counts = part.null_counts or ()
        if None in counts or len(counts) != len(types):
            return None
        if any((a is None or b is None) and n == 0 for a, b, n in zip(low, high, counts, strict=True)):
            return None  # of NULLs that older versions of pypaimon do not count, see _within

    def bounds(choose: Callable[..., Any], rows: Sequence[Sequence[Any]]) -> bytes:
        columns = ([row[i] for row in rows if row[i] is not None] for i in range(len(types)))
        return encode_row_with_arity(types, [choose(c, key=_order, default=None) for c in columns])

    nulls = (sum(n or 0 for n in column) for column in zip(*(part.null_counts or () for part in parts), strict=True))
    return SimpleStats(bounds(min, lows), bounds(max, highs), tuple(nulls))


def _without_nulls_of(removed: Sequence[ManifestEntry], stats: SimpleStats, types: Sequence[DataType]) -> SimpleStats:
    """Return statistics without the NULLs of some entries.

    Readers take all entries for NULL where there are as many NULLs as entries.
    """
    if not removed or not types:
        return stats
    nulls = partition_stats([e.partition for e in removed], types).null_counts or ()
    counts = tuple((a or 0) - (b or 0) for a, b in zip(stats.null_counts or (), nulls, strict=True))
    return replace(stats, null_counts=counts)


def _order(value: Any) -> tuple[bool, Any, float]:
    # As Java orders them: NaN last, and -0.0 before 0.0.
    return (value != value, value, math.copysign(1.0, value) if isinstance(value, float) else 0.0)


# --- snapshots with the files of an earlier one -----------------------------------------------------------------------

ROLLED_BACK_TO = "bitlake.rolled-back-to"
"""Their property: the snapshot whose files they have."""


def restore_snapshot(
    table: TableFiles, schema: TableSchema, source: Snapshot, number: int, uuid: str, time_millis: int
) -> Snapshot:
    """Write the manifest lists of snapshot ``number`` with the files of ``source``; the caller creates its file."""
    writer = ManifestWriter(table, [f.type for f in schema.partition_fields], Options(schema.options))
    base = writer.write_list(snapshot_manifests(table, source))
    delta = writer.write_list(())
    return replace(
        source.with_lists(base, delta),
        version=VERSION,
        id=number,
        uuid=uuid,
        commit_user=uuid,
        commit_identifier=BATCH_IDENTIFIER,
        writer_version="bitlake",
        time_millis=time_millis,
        delta_record_count=0,
        properties={**source.properties, ROLLED_BACK_TO: str(source.id)},
        operation=None,
    )


def rolled_back_to(snapshot: Snapshot) -> int | None:
    """The id of the snapshot whose files a fence or filler has; None for any other snapshot."""
    return parse_id(snapshot.properties.get(ROLLED_BACK_TO, ""), "")


# --- index manifests: which table index files (deletion vectors, HASH) a snapshot has ---------------------------------

_INDEX_MANIFESTS: CacheName[str, tuple[IndexFileEntry, ...]] = CacheName("index manifests")
_ENTRY_BYTES, _RANGE_BYTES = 600, 200
"""Bytes of an entry in memory, and of each of its ranges."""


def read_index_manifest(table: TableFiles, name: str) -> tuple[IndexFileEntry, ...]:
    """The entries of an index manifest, cached; raises :class:`CorruptError` naming the file."""
    path = table.paths.manifest(name)
    cache = table.store.caches[_INDEX_MANIFESTS]
    entries = cache.get(path)
    if entries is None:
        try:
            entries = tuple(decode_index_manifest(table.store.read(path)))
        except CorruptError as e:
            table.store.drop_cached(path)
            raise e if e.path else e.within(path) from e
        cache.put(path, entries, len(path) + sum(_ENTRY_BYTES + _RANGE_BYTES * len(e.ranges or ()) for e in entries))
    return entries


def index_entries(table: TableFiles, snapshot: Snapshot | None) -> list[IndexFileEntry]:
    """All table index files of a snapshot; none without a snapshot."""
    if snapshot is None or snapshot.index_manifest is None:
        return []
    return list(read_index_manifest(table, snapshot.index_manifest))
