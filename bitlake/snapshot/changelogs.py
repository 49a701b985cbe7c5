"""Long-lived changelogs: the changes of snapshots that have expired, which streams can still read.

If a table's ``changelog.*`` options keep changelogs for longer than snapshots, Paimon's expiry copies a snapshot's file
to ``changelog/changelog-<id>`` before it deletes the snapshot.  It keeps the snapshot's changelog files or, without a
changelog producer, the files that an APPEND added.  Other files of the snapshot are gone.

Source: Paimon's ChangelogManager and ExpireSnapshotsImpl.
"""

from __future__ import annotations

import bisect

from bitlake.errors import NotFound
from bitlake.metadata.java_json import JSON_BYTES
from bitlake.metadata.paths import parse_id
from bitlake.metadata.snapshot import Snapshot
from bitlake.snapshot.state import TableState
from bitlake.snapshot.table_files import TableFiles

_PREFIX = "changelog-"


def changelog_path(table: TableFiles, snapshot_id: int) -> str:
    """The path of a snapshot's long-lived changelog."""
    return f"{table.paths.branch_root}/changelog/{_PREFIX}{snapshot_id}"


def changelog_ids(table: TableFiles) -> list[int]:
    """The ids of the snapshots whose changes are kept, ascending."""
    ids = (parse_id(name, _PREFIX) for name in table.store.names(f"{table.paths.branch_root}/changelog"))
    return sorted(i for i in ids if i is not None)


def find_changelog(table: TableFiles, snapshot_id: int) -> Snapshot | None:
    """The expired snapshot of that id, from its long-lived changelog; None if its changes are not kept."""
    path = changelog_path(table, snapshot_id)
    try:
        return Snapshot.from_json(table.store.read(path, JSON_BYTES), path)
    except NotFound:
        return None


def delete_changelogs_after(table: TableFiles, snapshot_id: int) -> None:
    """Delete the long-lived changelogs of the snapshots that a rollback to ``snapshot_id`` removed, as Paimon does.

    New snapshots get these ids.  Files that only these changelogs name become orphans.
    """
    later = [number for number in changelog_ids(table) if number > snapshot_id]
    if not later:
        return
    # Without the hints, Paimon lists the folder.
    for hint in ("LATEST", "EARLIEST"):
        table.store.delete(f"{table.paths.branch_root}/changelog/{hint}")
    for number in reversed(later):
        table.store.delete(changelog_path(table, number))


def first_changelog_from(state: TableState, millis: int) -> Snapshot | None:
    """The first snapshot with a long-lived changelog that was committed at or after a time (ms since the epoch)."""
    ids = changelog_ids(state.table_files)

    def committed(number: int) -> int:
        changelog = find_changelog(state.table_files, number)
        return -1 if changelog is None else changelog.time_millis

    at = bisect.bisect_left(ids, millis, key=committed)
    return find_changelog(state.table_files, ids[at]) if at < len(ids) else None
