"""Expiring snapshots: which may go, which files only they needed, and deleting these.

A snapshot that expires takes with it, unless something kept needs them (the first kept snapshot, every tag, every
branch's snapshots and tags):

* data files, and what is beside them, that the snapshots after the first expired one up to the first kept one deleted;
  a file that one of them both deleted and added only changed its level;
* changelog files of the expired snapshots;
* their manifests, manifest lists, index manifests, table index files and statistics.

Order of deletion: data and changelog files, metadata, snapshot files from the first on, then the EARLIEST hint.  Killed
at any step it leaves a table whose kept snapshots are whole, and the next expiry does the rest: what is gone already is
passed over.  Folders stay, empty ones too, as Paimon leaves them by default: a writer may be about to use one.

Source: table-format spec, section 10; which snapshots go is Paimon's rule (``snapshot.*`` options).
"""

from __future__ import annotations

from dataclasses import dataclass

from bitlake import _clock
from bitlake.errors import InvalidRequest
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import EntryKind, ManifestEntry
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.schema import TableSchema
from bitlake.storage import Store
from bitlake.table.consumers import least_next_snapshot
from bitlake.table.live import earliest_snapshot_id, latest_snapshot_id, load_snapshot
from bitlake.table.partitions import PartitionReader
from bitlake.table.references import Needed, existing_snapshots, listed_entries, metadata_files, removed_files
from bitlake.table.runner import REQUESTS, LocalRunner, delete_files


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


def plan_expiry(store: Store, paths: TablePaths, schema: TableSchema, retention: Retention) -> Expiry:
    """What expiring now would delete; raises :class:`InvalidRequest` for numbers that contradict each other."""
    first, end = _range(store, paths, schema, retention)
    if end <= first:
        return Expiry(first, first)
    expired = list(existing_snapshots(store, paths, range(first, end)))
    kept = load_snapshot(store, paths, end)
    partitions = PartitionReader(schema, paths)
    needed = Needed.beside(store, paths, kept)
    data: dict[str, None] = {}
    for snapshot in [*expired[1:], kept]:
        for entry in removed_files(store, paths, snapshot.delta_manifest_list):
            if not needed.data_file(entry):
                _take(partitions, entry, data)
    for snapshot in expired:
        if snapshot.changelog_manifest_list is not None:
            for entry in listed_entries(store, paths, snapshot.changelog_manifest_list):
                if entry.kind is EntryKind.ADD and not needed.changelog(snapshot.changelog_manifest_list):
                    _take(partitions, entry, data)
    metadata: dict[str, None] = {}
    for snapshot in expired:
        metadata |= dict.fromkeys(metadata_files(store, paths, schema, snapshot, needed))
    return Expiry(first, end, tuple(s.id for s in expired), tuple(data), tuple(metadata))


def expire(store: Store, paths: TablePaths, expiry: Expiry) -> None:
    """Delete what was planned; raises :class:`StorageUnavailable` if the store refuses, and may be called again."""
    if expiry.end <= expiry.first:
        return
    runner = LocalRunner(REQUESTS)
    delete_files(store, expiry.data_files, runner)
    delete_files(store, expiry.metadata_files, runner)
    for number in expiry.snapshots:
        store.delete(paths.snapshot(number))
    store.write(paths.earliest_hint, str(expiry.end).encode())


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
        following = next(existing_snapshots(store, paths, [number + 1]), None)
        if following is not None and following.time_millis >= older:
            return first, number
    return first, max(end, first)


# --- which files ------------------------------------------------------------------------------------------------------


def _take(partitions: PartitionReader, entry: ManifestEntry, data: dict[str, None]) -> None:
    path = partitions.data_path(entry)
    folder = path.rsplit("/", 1)[0]
    data[path] = None
    data.update(dict.fromkeys(f"{folder}/{extra}" for extra in entry.file.extra_files))


__all__ = ["Expiry", "Retention", "expire", "plan_expiry"]
