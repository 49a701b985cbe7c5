"""Expiring snapshots: which may go, which files only they needed, and deleting these.

A snapshot that expires takes with it, unless something kept needs them (the first kept snapshot, every tag, every
branch's snapshots and tags):

* data files, and what is beside them, that the snapshots after the first expired one up to the first kept one deleted;
  a file that one of them both deleted and added only changed its level;
* changelog files of the expired snapshots;
* their manifests, manifest lists, index manifests, table index files and statistics.

Order of deletion: data and changelog files, metadata, snapshot files from the first on, then the EARLIEST hint.  Killed
at any step it leaves a table whose kept snapshots are whole, and the next expiry does the rest: what is gone already is
passed over.

Source: table-format spec, section 10; which snapshots go is Paimon's rule (``snapshot.*`` options).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from bitlake import _clock
from bitlake.errors import InvalidRequest, NotFound, StorageUnavailable
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import EntryKind, ManifestEntry
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import Snapshot
from bitlake.storage import Store
from bitlake.table.consumers import least_next_snapshot
from bitlake.table.index_files import index_path, read_index_manifest
from bitlake.table.live import (
    earliest_snapshot_id,
    latest_snapshot_id,
    live_files,
    load_snapshot,
    read_manifest,
    read_manifest_list,
    snapshot_ids,
)
from bitlake.table.partitions import PartitionReader
from bitlake.table.runner import LocalRunner

_DELETERS = 16
"""Files deleted at a time: object stores and network disks answer slowly, and each call is independent."""


@dataclass(frozen=True, slots=True)
class Retention:
    """Which snapshots expiry may take; None takes the table's option."""

    retain_max: int | None = None
    retain_min: int | None = None
    older_than_ms: int | None = None
    max_deletes: int | None = None


@dataclass(frozen=True, slots=True)
class Expiry:
    """What an expiry deletes: snapshots ``first`` to ``end`` (not included) and these files (full paths)."""

    first: int
    end: int
    snapshots: tuple[int, ...] = ()
    data_files: tuple[str, ...] = ()
    metadata_files: tuple[str, ...] = ()
    folders: tuple[str, ...] = field(default=(), repr=False)


def plan_expiry(store: Store, paths: TablePaths, schema: TableSchema, retention: Retention) -> Expiry:
    """What expiring now would delete; raises :class:`InvalidRequest` for numbers that contradict each other."""
    first, end = _range(store, paths, schema, retention)
    if end <= first:
        return Expiry(first, first)
    expired = list(_snapshots(store, paths, range(first, end)))
    kept = load_snapshot(store, paths, end)
    protected = [kept, *pinned_snapshots(store, paths)]
    partitions = PartitionReader(schema, paths)
    needed = _Needed(store, paths, protected)
    data: dict[str, None] = {}
    folders: dict[str, None] = {}
    for snapshot in [*expired[1:], kept]:
        for entry in _gone(store, paths, snapshot.delta_manifest_list):
            if not needed.data_file(entry):
                _take(partitions, entry, data, folders)
    for snapshot in expired:
        if snapshot.changelog_manifest_list is not None:
            for entry in _entries(store, paths, snapshot.changelog_manifest_list):
                if entry.kind is EntryKind.ADD and not needed.changelog(snapshot.changelog_manifest_list):
                    _take(partitions, entry, data, folders)
    metadata: dict[str, None] = {}
    for snapshot in expired:
        metadata |= dict.fromkeys(_metadata_files(store, paths, schema, snapshot, needed))
    return Expiry(first, end, tuple(s.id for s in expired), tuple(data), tuple(metadata), tuple(folders))


def expire(store: Store, paths: TablePaths, expiry: Expiry) -> None:
    """Delete what was planned; raises :class:`StorageUnavailable` if the store refuses, and may be called again."""
    if expiry.end <= expiry.first:
        return
    _delete(store, expiry.data_files)
    for folder in expiry.folders:
        # Only empty ones go, and that is a courtesy.
        with contextlib.suppress(StorageUnavailable):
            if not store.list(folder):
                store.delete_dir(folder)
    _delete(store, expiry.metadata_files)
    for number in expiry.snapshots:
        store.delete(paths.snapshot(number))
    store.write(paths.earliest_hint, str(expiry.end).encode())


def pinned_snapshots(store: Store, paths: TablePaths) -> list[Snapshot]:
    """The snapshots that tags and branches hold, whatever expires."""
    out = [_tag(store, paths, name) for name in _tags(store, paths)]
    if paths.branch is None:
        for info in store.list(f"{paths.root}/branch"):
            if info.name.startswith("branch-"):
                branch = TablePaths(paths.root, info.name.removeprefix("branch-"), paths.data_directory)
                out += _snapshots(store, branch, snapshot_ids(store, branch))
                out += [_tag(store, branch, name) for name in _tags(store, branch)]
    return out


# --- which snapshots --------------------------------------------------------------------------------------------------


def _range(store: Store, paths: TablePaths, schema: TableSchema, retention: Retention) -> tuple[int, int]:
    options = opt.Options(schema.options)
    most = retention.retain_max if retention.retain_max is not None else options.of(opt.SNAPSHOT_RETAINED_MAX)
    least = retention.retain_min if retention.retain_min is not None else options.of(opt.SNAPSHOT_RETAINED_MIN)
    if retention.retain_max is not None and retention.retain_min is None:
        least = min(least, most)
    if least < 1 or most < least:
        raise InvalidRequest(f"retain_max ({most}) must be at least retain_min ({least}), and that at least 1")
    limit = retention.max_deletes if retention.max_deletes is not None else options.of(opt.SNAPSHOT_EXPIRE_LIMIT)
    older = retention.older_than_ms
    if older is None:
        older = _clock.now_ms() - options.of(opt.SNAPSHOT_TIME_RETAINED)
    latest, first = latest_snapshot_id(store, paths), earliest_snapshot_id(store, paths)
    if latest is None or first is None:
        return 0, 0
    end = min(latest - least + 1, first + limit)
    consumer = least_next_snapshot(store, paths)
    if consumer is not None:
        end = min(end, consumer)
    for number in range(max(latest - most + 1, first), end):
        # A snapshot was the latest until its successor came: its age counts from then.
        following = next(_snapshots(store, paths, [number + 1]), None)
        if following is not None and following.time_millis >= older:
            return first, number
    return first, max(end, first)


def _snapshots(store: Store, paths: TablePaths, ids: Iterable[int]) -> Iterator[Snapshot]:
    for number in ids:
        with contextlib.suppress(NotFound):
            yield load_snapshot(store, paths, number)


def _tags(store: Store, paths: TablePaths) -> list[str]:
    return [f.name.removeprefix("tag-") for f in store.list(paths.tag_dir) if f.name.startswith("tag-")]


def _tag(store: Store, paths: TablePaths, name: str) -> Snapshot:
    # Not to be passed over if it cannot be read: its files would go.
    return Snapshot.from_json(store.read(paths.tag(name)), paths.tag(name))


# --- which files ------------------------------------------------------------------------------------------------------


class _Needed:
    """What the protected snapshots need."""

    def __init__(self, store: Store, paths: TablePaths, protected: list[Snapshot]) -> None:
        self.names: set[str] = set()
        self._data: set[tuple[bytes, int, str]] = set()
        self._changelogs: set[str] = set()
        for snapshot in protected:
            for name in (snapshot.base_manifest_list, snapshot.delta_manifest_list):
                self.names.add(name)
                self.names.update(m.file_name for m in read_manifest_list(store, paths, name))
            if snapshot.changelog_manifest_list is not None:
                self._changelogs.add(snapshot.changelog_manifest_list)
                self.names.add(snapshot.changelog_manifest_list)
                listed = read_manifest_list(store, paths, snapshot.changelog_manifest_list)
                self.names.update(m.file_name for m in listed)
            if snapshot.index_manifest is not None:
                self.names.add(snapshot.index_manifest)
                self.names.update(e.file_name for e in read_index_manifest(store, paths, snapshot.index_manifest))
            if snapshot.statistics is not None:
                self.names.add(snapshot.statistics)
            self._data.update((e.partition, e.bucket, e.file.file_name) for e in live_files(store, paths, snapshot))

    def data_file(self, entry: ManifestEntry) -> bool:
        return (entry.partition, entry.bucket, entry.file.file_name) in self._data

    def changelog(self, manifest_list: str) -> bool:
        return manifest_list in self._changelogs


def _gone(store: Store, paths: TablePaths, delta: str) -> list[ManifestEntry]:
    """The files that a snapshot's delta removed: not those it only moved to another level."""
    removed: dict[tuple[bytes, int, str], ManifestEntry] = {}
    added: set[tuple[bytes, int, str]] = set()
    for entry in _entries(store, paths, delta):
        key = (entry.partition, entry.bucket, entry.file.file_name)
        if entry.kind is EntryKind.DELETE:
            removed[key] = entry
        else:
            added.add(key)
    return [e for key, e in removed.items() if key not in added]


def _entries(store: Store, paths: TablePaths, manifest_list: str) -> Iterator[ManifestEntry]:
    """The entries of a list's manifests; what an earlier expiry that was killed deleted already is passed over."""
    with contextlib.suppress(NotFound):
        for meta in read_manifest_list(store, paths, manifest_list):
            with contextlib.suppress(NotFound):
                yield from read_manifest(store, paths, meta.file_name)


def _take(partitions: PartitionReader, entry: ManifestEntry, data: dict[str, None], folders: dict[str, None]) -> None:
    path = partitions.data_path(entry)
    folder = path.rsplit("/", 1)[0]
    data[path] = None
    data.update(dict.fromkeys(f"{folder}/{extra}" for extra in entry.file.extra_files))
    if entry.file.external_path is None:
        folders[folder] = None


def _metadata_files(
    store: Store, paths: TablePaths, schema: TableSchema, snapshot: Snapshot, needed: _Needed
) -> Iterator[str]:
    lists = [snapshot.base_manifest_list, snapshot.delta_manifest_list, snapshot.changelog_manifest_list]
    for name in lists:
        if name is None:
            continue
        with contextlib.suppress(NotFound):
            for meta in read_manifest_list(store, paths, name):
                if meta.file_name not in needed.names:
                    yield paths.manifest(meta.file_name)
        if name not in needed.names:
            yield paths.manifest(name)
    if snapshot.index_manifest is not None:
        with contextlib.suppress(NotFound):
            for entry in read_index_manifest(store, paths, snapshot.index_manifest):
                if entry.file_name not in needed.names:
                    yield index_path(paths, schema, entry)
        if snapshot.index_manifest not in needed.names:
            yield paths.manifest(snapshot.index_manifest)
    if snapshot.statistics is not None and snapshot.statistics not in needed.names:
        yield paths.statistics(snapshot.statistics)


def _delete(store: Store, files: Iterable[str]) -> None:
    LocalRunner(_DELETERS).run(list(files), store.delete)


__all__ = ["Expiry", "Retention", "expire", "pinned_snapshots", "plan_expiry"]
