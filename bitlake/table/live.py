"""What a table consists of now: its latest schema and snapshot, and the live files of a snapshot.

Live set (table-format spec, section 4): the ADD entries of base and delta manifests whose identity no DELETE entry
repeats.  Manifests never change once written, so decoded ones are kept in a process-wide cache by full path.
Source for the hints: table-format spec, section 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from bitlake.errors import CorruptError, NotFound, UnsupportedFeature
from bitlake.metadata.manifest import (
    EntryKind,
    ManifestEntry,
    ManifestFileMeta,
    decode_manifest,
    decode_manifest_list,
)
from bitlake.metadata.paths import TablePaths, parse_hint, parse_id
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import Snapshot
from bitlake.storage import Store
from bitlake.table.cache import Cache
from bitlake.table.file_columns import LiveFiles

T = TypeVar("T")
_READERS = 8
"""Manifests fetched at a time."""
MANY_ENTRIES = 5_000
"""Of a manifest with so many, only the partitions that are asked for are decoded."""

# About 1 kB an entry: 200 MB at the very most, reached only by tables of that many files.
_manifests: Cache[str, tuple[ManifestEntry, ...]] = Cache(200_000)
_lists: Cache[str, tuple[ManifestFileMeta, ...]] = Cache(100_000)
_live: Cache[tuple[str, frozenset[bytes] | None], LiveFiles] = Cache(400_000)
_schemas: Cache[tuple[str, bytes], TableSchema] = Cache(4_000_000)
_snapshots: Cache[tuple[str, bytes], Snapshot] = Cache(4_000_000)


def clear_caches() -> None:
    """Forget all cached metadata of this process; for tests and measurements."""
    for cache in (_manifests, _lists, _live, _schemas, _snapshots):
        cache.clear()


# --- snapshots --------------------------------------------------------------------------------------------------------


def snapshot_ids(store: Store, paths: TablePaths) -> list[int]:
    """The ids of all snapshot files, ascending; names that are no snapshots are ignored."""
    found = (parse_id(name, "snapshot-") for name in store.names(paths.snapshot_dir))
    return sorted(i for i in found if i is not None)


def latest_snapshot_id(store: Store, paths: TablePaths) -> int | None:
    """The last snapshot's id, None before the first.

    The LATEST hint is believed only if its snapshot exists and the next one does not; else the folder is listed.
    (Paimon believes it without the first check: a hint too high makes a table unreadable there, here it is harmless.)
    """
    hint = _read_hint(store, paths.latest_hint)
    if hint and not store.exists(paths.snapshot(hint + 1)) and store.exists(paths.snapshot(hint)):
        return hint
    return max(snapshot_ids(store, paths), default=None)


def earliest_snapshot_id(store: Store, paths: TablePaths) -> int | None:
    """The first snapshot's id, None if there is none; the EARLIEST hint is believed if its snapshot exists."""
    hint = _read_hint(store, paths.earliest_hint)
    if hint and store.exists(paths.snapshot(hint)):
        return hint
    return min(snapshot_ids(store, paths), default=None)


def _read_hint(store: Store, path: str) -> int | None:
    try:
        return parse_hint(store.read(path))
    except NotFound:
        return None


def load_snapshot(store: Store, paths: TablePaths, snapshot_id: int) -> Snapshot:
    """One snapshot; raises :class:`NotFound`.

    The file is read each time and only its parsing is cached, by content: a rollback may reuse its id.
    """
    path = paths.snapshot(snapshot_id)
    data = store.read(path)
    return _snapshots.get_or((path, data), lambda: Snapshot.from_json(data, path), lambda _: len(data))


def latest_snapshot(store: Store, paths: TablePaths) -> Snapshot | None:
    """The table as it is now; None before the first commit.

    Believes the hint as :func:`latest_snapshot_id` does; that its snapshot exists shows when it is read.
    """
    hint = _read_hint(store, paths.latest_hint)
    if hint and not store.exists(paths.snapshot(hint + 1)):
        try:
            return load_snapshot(store, paths, hint)
        except NotFound:
            pass
    latest = max(snapshot_ids(store, paths), default=None)
    return None if latest is None else load_snapshot(store, paths, latest)


# --- schemas ----------------------------------------------------------------------------------------------------------


def latest_schema_id(store: Store, paths: TablePaths) -> int | None:
    """The highest schema id; None if the table has no schema, that is, does not exist."""
    found = (parse_id(name, "schema-") for name in store.names(paths.schema_dir))
    return max((i for i in found if i is not None), default=None)


def load_schema(store: Store, paths: TablePaths, schema_id: int) -> TableSchema:
    """One schema version; raises :class:`NotFound`.

    The file is read each time and only its parsing is cached, by content: a table dropped and made anew has other
    schemas under the same names.
    """
    path = paths.schema(schema_id)
    data = store.read(path)
    return _schemas.get_or((path, data), lambda: TableSchema.from_json(data, path), lambda _: len(data))


def latest_schema(store: Store, paths: TablePaths) -> TableSchema | None:
    """The current schema; None if the table does not exist."""
    latest = latest_schema_id(store, paths)
    return None if latest is None else load_schema(store, paths, latest)


# --- manifests and files ----------------------------------------------------------------------------------------------


def read_manifest_list(store: Store, paths: TablePaths, name: str) -> tuple[ManifestFileMeta, ...]:
    """The manifests of a list, cached; raises :class:`CorruptError` naming the file."""
    return _read(store, paths.manifest(name), _lists, decode_manifest_list)


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

    With ``partitions`` at least their entries: of a large manifest that is not cached no others are decoded.
    """
    asked = list(metas)
    missing = [m for m in asked if _manifests.get(paths.manifest(m.file_name)) is None]

    def read(meta: ManifestFileMeta) -> tuple[ManifestEntry, ...]:
        some = partitions if meta.num_added_files + meta.num_deleted_files >= MANY_ENTRIES else None
        return read_manifest(store, paths, meta.file_name, some)

    if len(missing) > 1:
        with ThreadPoolExecutor(min(_READERS, len(missing)), "bitlake-manifests") as pool:
            fetched = dict(zip([m.file_name for m in missing], pool.map(read, missing)))
        return [fetched[m.file_name] if m.file_name in fetched else read(m) for m in asked]
    return [read(m) for m in asked]


def snapshot_manifests(store: Store, paths: TablePaths, snapshot: Snapshot) -> list[ManifestFileMeta]:
    """All manifests of a snapshot: its base list, then its delta list."""
    return [
        *read_manifest_list(store, paths, snapshot.base_manifest_list),
        *read_manifest_list(store, paths, snapshot.delta_manifest_list),
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
