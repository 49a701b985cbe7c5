"""Rollback: make an earlier snapshot the latest again, beside writers, an expiry, other rollbacks and readers.

Order of writes, for a rollback from snapshot L to snapshot T, and what a death *after* each step leaves:

1. ``snapshot/.rolling-back-<T>-<millis>-<id>``, the **hold**, whose text is snapshot T.  Expiry takes no snapshot from
   T on and no file that T names while there is a hold.  Expiry announces itself before it looks for holds, and rollback
   looks for announcements after the hold: one of the two sees the other, and a rollback to a snapshot that is expiring
   is refused.  The journal of a fast-forward is such an announcement, too: rollback looks for it after creating the
   hold, fast-forward looks for holds after creating the journal.  So the two never run at once, and no step below meets
   a history that is being replaced.  If rollback dies, its hold remains: expiry ignores it after a day, fast-forward
   after ten minutes, and therefore a rollback that has run for five minutes skips the rest of steps 5 to 9;
2. ``snapshot-<L+1>``, the **fence**, created only if absent: **the rollback**.  It has the files of T and nothing else.
   Before it readers see L, after it T.  A writer that started from L loses the race for this id and starts again from
   the fence; a commit that takes the id first is one more snapshot to roll back;
3. the LATEST hint names the fence;
4. ``snapshot/.removed-<millis>-<id>`` records the snapshots T+1 to L
   (:mod:`bitlake.snapshot.removal_markers`): their ids may be
   used again, and a writer that based a commit on one of them may die and leave a stray;
5. ``snapshot-<T+1>`` is replaced by a copy of the fence, the **filler**: a writer that started from T long ago cannot
   commit below the fence.  Readers of older snapshots see T there;
6. snapshots L down to T+2 are deleted.  Nobody reuses their ids while the fence exists.  A death leaves a part of
   them, which no reader of the latest snapshot sees and which expire;
7. unless a commit follows the fence already, the fence is recorded as well, snapshot T and the EARLIEST hint are
   written where only a tag still has T, and the LATEST hint and then the fence are deleted.  Otherwise the fence and
   the filler stay, and the ids between them stay unused;
8. snapshots that do not follow T without a gap are recorded and deleted, and strays are deleted: their writers started
   from the fence before it went.  These commits took place before the rollback ended, and were rolled back.  A writer
   that checks its base snapshot after that (:mod:`bitlake.write.commit`) withdraws its snapshot and starts again;
9. the same is done with the filler: T is the latest snapshot, and the next commit is T+1.  A filler that a commit
   follows stays;
10. the hint LATEST is written, long-lived changelogs of later snapshots (:mod:`bitlake.snapshot.versions`) and then
    the hold are deleted.

A second call after a death finds the fence as the latest snapshot, or what was committed on it, and rolls that back in
the same way.  A rollback that finds its fence gone stops: another one has replaced it.  Before each deletion it looks;
what happens between this look and the deletion is not seen, and must take another whole rollback and a commit.

Iceberg metadata follows the table's options (:mod:`bitlake.snapshot.iceberg_metadata`): the snapshot that is the latest
then is published.

Of a table whose history a catalog's server changes (:meth:`~bitlake.io.base.Store.history_server`), the server does all
of this in its own way.

Paimon reads the fence as a snapshot of its own (as it writes one when it rolls back "as latest"), and passes over the
hold.  Files that only snapshots after T name become orphans.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from bitlake import _clock
from bitlake.errors import CommitConflict, InvalidRequest, NotFound, StorageUnavailable
from bitlake.io import HistoryServer
from bitlake.metadata.snapshot import Snapshot
from bitlake.runtime import REQUESTS, LocalRunner
from bitlake.snapshot import removal_markers, versions
from bitlake.snapshot.fast_forward import check_no_fast_forward, is_switch
from bitlake.snapshot.iceberg_metadata import publish_history
from bitlake.snapshot.manifests import restore_snapshot, rolled_back_to
from bitlake.snapshot.state import TableState
from bitlake.snapshot.table_files import TableFiles, read_hint
from bitlake.snapshot.versions import delete_changelogs_after

_LONGEST_MS = removal_markers.ROLLBACK_MS // 2
"""The longest time that a rollback changes snapshots: half of the time for which fast-forward respects its hold."""


def rollback(state: TableState, snapshot: Snapshot) -> list[int]:
    """Make an earlier snapshot the latest again; returns the ids of the snapshots that were rolled back.

    ``snapshot`` may be one that only a tag still holds.  Raises :class:`InvalidRequest` if a tag holds a later
    snapshot or an expiry of the snapshot has begun, and :class:`NotFound` if another rollback removed it meanwhile.
    """
    check_no_fast_forward(state.table_files, state.name, "rollback")
    _check_tags(state, snapshot)
    server = state.store.history_server(state.paths.branch_root)
    if server is not None:
        deleted = _roll_back_by_server(server, state, snapshot)
        publish_history(state)
        return deleted
    uuid = _clock.new_uuid()
    hold = f"{state.paths.snapshot_dir}/{removal_markers.new_hold(snapshot.id, uuid)}"
    state.store.create(hold, snapshot.to_json().encode())
    try:
        deleted = _Rollback(state, snapshot, uuid).run()
        delete_changelogs_after(state.table_files, snapshot.id)
    finally:
        state.store.delete(hold)
    publish_history(state)
    return deleted


def _roll_back_by_server(server: HistoryServer, state: TableState, target: Snapshot) -> list[int]:
    """Ask a catalog's server for the rollback; it writes the files, and rejects commits on snapshots that are gone."""
    table = state.table_files
    later = [i for i in versions.snapshot_ids(table) if i > target.id]
    exists = _loaded(table, target.id) == target
    if exists and not later:
        return []
    tags = () if exists else versions.tag_names(table)
    tag = next((t for t in tags if versions.tag_snapshot(table, t) == target), None)
    if not exists and tag is None:  # the server would take another snapshot that has this id now
        raise NotFound(
            f"table '{state.name}': snapshot {target.id} was rolled back, or expired, after it was read; choose another"
        )
    try:
        server.roll_back(target.id, tag)
    except StorageUnavailable:
        if versions.latest_snapshot(table) != target:
            raise
    return later


class _Rollback:
    """One call of :func:`rollback`; ``uuid`` identifies its fence and its filler."""

    def __init__(self, state: TableState, target: Snapshot, uuid: str) -> None:
        self._state = state
        self._table = state.table_files
        self._store = state.store
        self._paths = state.paths
        self._target = target
        self._uuid = uuid
        self._removed = removal_markers.RemovalRecord(state.paths, uuid, state.store.write)
        self._only_tagged = False
        self._began_ms = _clock.now_ms()

    def run(self) -> list[int]:
        fence = self._publish_fence()
        if fence is None:
            return []
        store, paths = self._store, self._paths
        store.write(paths.latest_hint, str(fence.id).encode())
        deleted = [i for i in versions.snapshot_ids(self._table) if self._target.id < i < fence.id]
        self._removed.add(s for s in self._load(deleted) if s is not None)
        if self._clear(deleted, fence):
            self._remove_fence(fence)
        self._check_hint()
        return deleted

    def _clear(self, gone: Sequence[int], fence: Snapshot) -> bool:
        """Delete the snapshots between the target and the fence; False if interrupted.

        Another rollback may have replaced the fence, or this one has run for too long.
        """
        filler = self._make_filler(fence)
        if filler is not None and not self._is_overdue() and self._is_there(fence):
            self._store.write(self._paths.snapshot(filler.id), filler.to_json().encode())
        for number in reversed(gone):
            if self._is_overdue() or not self._is_there(fence):
                return False
            if filler is None or number != filler.id:
                self._store.delete(self._paths.snapshot(number))
        return True

    def _make_filler(self, fence: Snapshot) -> Snapshot | None:
        """The copy of the fence that follows the target; None where only a tag has the target."""
        if not self._is_there(self._target):
            return None
        return removal_markers.on_base(replace(fence, id=self._target.id + 1), self._target)

    def _publish_fence(self) -> Snapshot | None:
        """The fence, once it is the latest snapshot; None if the target is the latest one already."""
        while True:
            # After the hold was created: a fast-forward that begins later finds it and is refused.
            check_no_fast_forward(self._table, self._state.name, "rollback")
            if self._is_overdue():
                raise CommitConflict(
                    f"table '{self._state.name}': rollback took longer than {_LONGEST_MS // 60_000} minutes; nothing "
                    "was changed; try again"
                )
            latest = versions.latest_snapshot(self._table)
            self._check_target()
            if latest is None or latest == self._target:
                return None
            fence = self._make_fence(latest)
            if not removal_markers.create_snapshot(self._table, fence, latest):
                continue  # a writer was first: its commit is rolled back as well
            if self._is_there(latest) or not self._is_there(fence):
                return fence
            # Another rollback removed the snapshot that this fence follows.
            self._store.delete(self._paths.snapshot(fence.id))

    def _check_target(self) -> None:
        state, target = self._state, self._target
        _check_not_expiring(state, target.id)
        line = versions.snapshot_ids(self._table)
        later = self._load(i for i in line if i > target.id)
        ends = [rolled_back_to(s) for s in later if s is not None]
        rolled_back = any(end is not None and end < target.id for end in ends)
        tagged = any(versions.tag_snapshot(self._table, t) == target for t in versions.tag_names(self._table))
        exists = self._is_there(target)
        self._only_tagged = tagged and not exists
        if (rolled_back or not exists) and not tagged:
            raise NotFound(
                f"table '{state.name}': snapshot {target.id} was rolled back or expired meanwhile: "
                f"{versions.kept_words(line)}"
            )

    def _make_fence(self, latest: Snapshot) -> Snapshot:
        state, target = self._state, self._target
        fence = restore_snapshot(self._table, state.schema, target, latest.id + 1, self._uuid, _clock.now_ms())
        rows = [n for n in (latest.next_row_id, target.next_row_id) if n is not None]
        return replace(removal_markers.on_base(fence, latest), next_row_id=max(rows, default=None))

    def _remove_fence(self, fence: Snapshot) -> None:
        """Make the target the latest snapshot, unless there are commits after the fence."""
        store, paths, target = self._store, self._paths, self._target
        if self._is_overdue() or versions.snapshot_ids(self._table)[-1:] != [fence.id] or not self._is_there(fence):
            return
        self._removed.add([fence])
        if self._only_tagged:
            store.create(paths.snapshot(target.id), target.to_json().encode())
            store.write(paths.earliest_hint, str(target.id).encode())
        # Without the hint readers list the folder, and see the fence until it goes.
        store.delete(paths.latest_hint)
        store.delete(paths.snapshot(fence.id))
        self._delete_after_gap()
        filler = self._make_filler(fence)
        if filler is not None and versions.snapshot_ids(self._table)[-1:] == [filler.id] and self._is_there(filler):
            self._removed.add([filler])
            store.delete(paths.snapshot(filler.id))
            self._delete_after_gap()
        # A commit that checked its base before the fence went is a stray now, which listings leave out; its writer, who
        # thinks that it is the latest, is about to write the hint.
        removal_markers.delete_strays(self._table, removal_markers.load_line(self._table).announced)
        store.write(paths.latest_hint, str(max(versions.snapshot_ids(self._table), default=target.id)).encode())

    def _delete_after_gap(self) -> None:
        """Delete the snapshots later than the target that do not follow it without a gap."""
        store, paths = self._store, self._paths
        while strays := _after_gap(versions.snapshot_ids(self._table), self._target.id):
            self._removed.add(s for s in self._load(strays) if s is not None)
            for number in reversed(strays):
                store.delete(paths.snapshot(number))

    def _check_hint(self) -> None:
        """Delete a hint that names a snapshot which another rollback removed: Paimon believes it."""
        hint = read_hint(self._store, self._paths.latest_hint)
        if hint is not None and not self._store.exists(self._paths.snapshot(hint)):
            self._store.delete(self._paths.latest_hint)

    def _load(self, ids: Iterable[int]) -> list[Snapshot | None]:
        return LocalRunner(REQUESTS).run(list(ids), partial(_loaded, self._table))

    def _is_overdue(self) -> bool:
        """Whether a fast-forward may soon take the hold for one that a death left."""
        return _clock.now_ms() > self._began_ms + _LONGEST_MS

    def _is_there(self, snapshot: Snapshot) -> bool:
        return _loaded(self._table, snapshot.id) == snapshot


def are_unused(snapshot: Snapshot, first: int) -> bool:
    """Whether the ids from ``first`` to a snapshot were given up: by the rollback or fast-forward that created it.

    There is nothing between the files that the table had before ``first`` and those of this snapshot.
    """
    end = rolled_back_to(snapshot)
    return is_switch(snapshot) or (end is not None and end < first)


def _after_gap(ids: Sequence[int], target: int) -> list[int]:
    """The snapshots later than ``target`` that do not follow it without a gap."""
    later = [i for i in ids if i > target]
    return [number for place, number in enumerate(later, target + 1) if number != place]


def _loaded(table: TableFiles, snapshot_id: int) -> Snapshot | None:
    return next(versions.existing_snapshots(table, [snapshot_id]), None)


def _check_tags(state: TableState, snapshot: Snapshot) -> None:
    later = [
        t for t in versions.tag_names(state.table_files) if versions.tag_snapshot(state.table_files, t).id > snapshot.id
    ]
    if later:
        raise InvalidRequest(
            f"table '{state.name}' cannot go back to snapshot {snapshot.id}: tags {', '.join(later)} hold later ones; "
            "delete these tags first"
        )


def _check_not_expiring(state: TableState, snapshot_id: int) -> None:
    end = removal_markers.load_line(state.table_files).announced
    if snapshot_id < end:
        raise InvalidRequest(
            f"table '{state.name}' cannot go back to snapshot {snapshot_id}: an expiry of the snapshots before {end} "
            "has begun, and their files may be gone; complete it with expire_snapshots (CALL sys.expire_snapshots, "
            "bitlake expire), then go back to a snapshot that is kept, or to a tag"
        )
