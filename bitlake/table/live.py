"""What a table consists of now: its latest schema and snapshot, and the live files of a snapshot.

Live set (table-format spec, section 4): the ADD entries of base and delta manifests whose identity no DELETE entry
repeats.  Manifests never change once written, so decoded ones are kept in a process-wide cache by full path.
Schemas and snapshots are :mod:`bitlake.table.versions`, whose functions can be had from here too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from bitlake.errors import CorruptError, UnsupportedFeature
from bitlake.io import Store
from bitlake.metadata.manifest import (
    EntryKind,
    ManifestEntry,
    ManifestFileMeta,
    decode_manifest,
    decode_manifest_list,
)
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.snapshot import Snapshot
from bitlake.runtime import Cache
from bitlake.table.live_files import LiveFiles
from bitlake.table.versions import (
    clear_versions,
    earliest_snapshot_id,
    latest_schema,
    latest_schema_id,
    latest_snapshot,
    latest_snapshot_id,
    load_schema,
    load_snapshot,
    snapshot_ids,
)

__all__ = [
    "MANY_ENTRIES",
    "PartitionFilter",
    "clear_caches",
    "earliest_snapshot_id",
    "is_cached",
    "latest_schema",
    "latest_schema_id",
    "latest_snapshot",
    "latest_snapshot_id",
    "live_entries",
    "live_files",
    "load_schema",
    "load_snapshot",
    "read_manifest",
    "read_manifest_list",
    "read_manifests",
    "snapshot_ids",
    "snapshot_manifests",
]

T = TypeVar("T")
_READERS = 8
"""Manifests fetched at a time."""
MANY_ENTRIES = 5_000
"""Of a manifest with so many, only the partitions that are asked for are decoded."""

# About 1 kB an entry: 200 MB at the very most, reached only by tables of that many files.
_manifests: Cache[str, tuple[ManifestEntry, ...]] = Cache(200_000)
_lists: Cache[str, tuple[ManifestFileMeta, ...]] = Cache(100_000)
_live: Cache[tuple[str, frozenset[bytes] | None], LiveFiles] = Cache(400_000)


def clear_caches() -> None:
    """Forget all cached metadata of this process; for tests and measurements."""
    for cache in (_manifests, _lists, _live):
        cache.clear()
    clear_versions()


# --- manifests and files ----------------------------------------------------------------------------------------------


def read_manifest_list(
    store: Store, paths: TablePaths, name: str, size: int | None = None
) -> tuple[ManifestFileMeta, ...]:
    """The manifests of a list, cached; ``size``: the bytes that its snapshot says it has, None if unknown.

    Raises :class:`CorruptError` naming the file.
    """

    def decode(data: bytes) -> list[ManifestFileMeta]:
        found = decode_manifest_list(data)
        if size is not None and len(data) != size:
            raise CorruptError(f"the manifest list has {len(data):,} bytes, and its snapshot says {size:,}")
        return found

    return _read(store, paths.manifest(name), _lists, decode)


def read_manifest(
    store: Store, paths: TablePaths, name: str, partitions: frozenset[bytes] | None = None
) -> tuple[ManifestEntry, ...]:
    """The entries of a manifest, cached; with ``partitions`` at least theirs, which are not cached.

    Raises :class:`CorruptError` naming the file.
    """
    path = paths.manifest(name)
    if partitions is None:
        return _read(store, path, _manifests, decode_manifest)
    found = _manifests.get(path)
    return _decoded(store, path, lambda data: decode_manifest(data, partitions)) if found is None else found


def _read(
    store: Store, path: str, cache: Cache[str, tuple[T, ...]], decode: Callable[[bytes], list[T]]
) -> tuple[T, ...]:
    found = cache.get(path)
    if found is None:
        found = _decoded(store, path, decode)
        cache.put(path, found, len(found) + 1)
    return found


def _decoded(store: Store, path: str, decode: Callable[[bytes], list[T]]) -> tuple[T, ...]:
    try:
        return tuple(decode(store.read(path)))
    except CorruptError as e:
        raise e.within(path) from e
    except UnsupportedFeature as e:
        raise UnsupportedFeature(f"{path}: {e}") from e


def read_manifests(
    store: Store, paths: TablePaths, metas: Iterable[ManifestFileMeta], partitions: frozenset[bytes] | None = None
) -> list[tuple[ManifestEntry, ...]]:
    """The entries of several manifests in their order; those not cached are fetched side by side.

    Raises :class:`CorruptError` for one that holds other numbers of added and deleted files than its list says.

    With ``partitions`` at least their entries: of a large manifest that is not cached no others are decoded.
    """
    asked = list(metas)
    missing = [m for m in asked if _manifests.get(paths.manifest(m.file_name)) is None]

    def read(meta: ManifestFileMeta) -> tuple[ManifestEntry, ...]:
        some = partitions if meta.num_added_files + meta.num_deleted_files >= MANY_ENTRIES else None
        entries = read_manifest(store, paths, meta.file_name, some)
        if some is None:
            _check_counts(paths, meta, entries)
        return entries

    if len(missing) > 1:
        with ThreadPoolExecutor(min(_READERS, len(missing)), "bitlake-manifests") as pool:
            fetched = dict(zip([m.file_name for m in missing], pool.map(read, missing)))
        return [fetched[m.file_name] if m.file_name in fetched else read(m) for m in asked]
    return [read(m) for m in asked]


def _check_counts(paths: TablePaths, meta: ManifestFileMeta, entries: tuple[ManifestEntry, ...]) -> None:
    """Refuse a manifest that was cut between two blocks, or in which an added file became a deleted one."""
    deleted = sum(e.kind is EntryKind.DELETE for e in entries)
    if (len(entries) - deleted, deleted) != (meta.num_added_files, meta.num_deleted_files):
        raise CorruptError(
            f"the manifest adds {len(entries) - deleted:,} and deletes {deleted:,} files, and its list says "
            f"{meta.num_added_files:,} and {meta.num_deleted_files:,}",
            None,
            paths.manifest(meta.file_name),
        )


def snapshot_manifests(store: Store, paths: TablePaths, snapshot: Snapshot) -> list[ManifestFileMeta]:
    """All manifests of a snapshot: its base list, then its delta list."""
    return [
        *read_manifest_list(store, paths, snapshot.base_manifest_list, snapshot.base_manifest_list_size),
        *read_manifest_list(store, paths, snapshot.delta_manifest_list, snapshot.delta_manifest_list_size),
    ]


@dataclass(frozen=True, slots=True)
class PartitionFilter:
    """Some of a table's partitions."""

    meets: Callable[[ManifestFileMeta], bool]
    """False only for manifests whose partition statistics, which cover DELETE entries too, exclude all of them."""
    rows: frozenset[bytes] | None = None
    """The partitions' rows; None: they are not known one by one."""


def live_files(
    store: Store, paths: TablePaths, snapshot: Snapshot, partitions: PartitionFilter | None = None
) -> LiveFiles:
    """The live files of a snapshot, as ADD entries in manifest order; with ``partitions`` at least theirs.

    This is the very object that is cached, which planning keeps its columns in: a second call for the same snapshot
    reads nothing.  Raises :class:`CorruptError` and :class:`NotFound` naming the file: a missing manifest usually means
    that the snapshot has expired meanwhile.
    """
    key = _live_key(paths, snapshot)
    rows = None if partitions is None else partitions.rows
    live = _live.get((key, None))
    if live is None and rows is not None:
        live = _live.get((key, rows))
    if live is not None:
        return live
    metas = snapshot_manifests(store, paths, snapshot)
    kept = metas if partitions is None else [m for m in metas if partitions.meets(m)]
    found = live_entries(read_manifests(store, paths, kept, rows))
    live = LiveFiles(found if rows is None else (e for e in found if e.partition in rows))
    if rows is not None or len(kept) == len(metas):
        _live.put((key, rows), live, len(live) + 1)
    return live


def is_cached(paths: TablePaths, snapshot: Snapshot) -> bool:
    """Whether all live files of a snapshot are known without reading anything."""
    return _live.get((_live_key(paths, snapshot), None)) is not None


def _live_key(paths: TablePaths, snapshot: Snapshot) -> str:
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
    # File names decide nearly always; the whole identity is made only for names that are in question.
    names = {d.file.file_name for d in deletes}
    gone = {d.identity for d in deletes}
    return [e for e in adds if e.file.file_name not in names or e.identity not in gone]
