"""Making changes visible: one commit is one new snapshot, or nothing at all.

Order of writes, and what a crash *after* each step leaves behind:

1. data and index files (by the writer, before it calls :func:`commit`): orphans, which no reader sees;
2. merged deletion vector files, if another writer's must be merged with; delta manifests; merged manifests, the base
   list, the delta list; changelog manifests and list; the index manifest: orphans too;
3. ``snapshot-<id>``, created only if absent: **the commit**.  Before it readers see the old table, after it the new;
4. nothing is written: the base snapshot is read again, and must be the one of step 2 (below);
5. the EARLIEST hint (first commit only), then LATEST: without them readers list the folder; a LATEST that is too low
   is noticed because the next snapshot exists.  None is ever written before its snapshot is known to be part of the
   table, and it is deleted if that snapshot was rolled back meanwhile;
6. the tags that the table's options ask for (:mod:`bitlake.snapshot.tags`): the next commit makes up for them;
   the marks of complete partitions (:mod:`bitlake.snapshot.partitions`): the next write to them makes up for them.

Steps 2 and 3 are right only for the table and the base snapshot that they started from.  Others may have replaced the
table (DROP and CREATE, a rename) or its history (rollback, fast-forward) since.  A table is identified by the schema
that the rows were written with: the file's columns, keys and creation time.  It is compared before step 2, and the base
snapshot in step 4 (the schema again for a first commit).  A replacement of history changes or deletes the
latest snapshot *before* looking for later ones a last time.  So either that look finds this commit, which then came
first, or step 4 finds the base changed: the snapshot is withdrawn and the attempt repeated, or refused for another
table.  A death between 3 and 4 leaves the snapshot.  If its base was removed, it is a stray, and readers ignore it
(:mod:`bitlake.snapshot.removal_markers`).

A failed attempt deletes what it wrote in step 2.  If step 3 *fails* instead of answering, its outcome is unknown:
nothing is deleted, and the snapshot's ``uuid``, which no other commit has, tells later whether it took place.

Another writer may win step 3.  The attempt is then repeated on the snapshot that won: conflicts are checked again, and
what an overwrite deletes is computed anew (:mod:`bitlake.write.commit_plan`).  Losing a race is no failure: it may
happen far more often than ``commit.max-retries``, which counts failures of the storage.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bitlake import _clock
from bitlake.deletion import check_history
from bitlake.errors import (
    AccessDenied,
    CommitConflict,
    InvalidRequest,
    NotFound,
    StorageFull,
    StorageUnavailable,
    UnsupportedFeature,
)
from bitlake.formatting import counted
from bitlake.io import Store
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import EntryKind, ManifestEntry, ManifestFileMeta
from bitlake.metadata.options import Options
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import BATCH_IDENTIFIER, OPERATIONS, Snapshot
from bitlake.snapshot.index_files import IndexFiles
from bitlake.snapshot.manifests import ManifestWriter, snapshot_manifests
from bitlake.snapshot.partitions import mark_written
from bitlake.snapshot.removal_markers import create_snapshot, has_expired, load_line, on_base
from bitlake.snapshot.state import TableState
from bitlake.snapshot.tags import tag_commit
from bitlake.snapshot.versions import (
    is_same_table,
    latest_schema_id,
    latest_snapshot,
    load_schema,
    load_snapshot,
    read_hint,
    snapshot_ids,
)
from bitlake.write.commit_plan import Changes, CommitPlan, Delta, IndexChange, Overwrite

__all__ = ["CommitPlan", "IndexChange", "OutcomeUnknown", "Overwrite", "commit"]

WRITER = "bitlake"
"""What ``writerVersion`` of our snapshots says."""
_MOST_RACES = 10_000
"""Lost races after which a commit gives up: only a broken store can cause so many."""
_RACE_WAIT_MS = 320
"""Longest wait after a lost race; the winner is done by then, so waiting longer only idles."""


def commit(
    store: Store,
    paths: TablePaths,
    plan: CommitPlan,
    schema: TableSchema,
    commit_user: str,
    *,
    identifier: int = BATCH_IDENTIFIER,
    operation: str | None = None,
    options: Mapping[str, str] | None = None,
    on_failure: Callable[[], None] | None = None,
) -> Snapshot | None:
    """Publish ``plan`` as the next snapshot and return it.

    A plan that changes nothing makes no snapshot (unless ``commit.force-create-snapshot``): the latest one is returned,
    None if there is none.  ``options`` default to the schema's.

    Raises :class:`CommitConflict` when a file to delete is gone or another writer's change cannot be combined with
    this one, :class:`InvalidRequest` for a plan that can never be committed, and :class:`StorageUnavailable` when the
    storage keeps failing: as :class:`OutcomeUnknown` if the snapshot may be there, and else nothing is visible.

    ``on_failure`` is called before any exception leaves, an interrupt included, if **surely** nothing is visible: the
    place to delete the files that ``plan`` adds: data, changelog and index files.
    """
    if operation is not None and operation not in OPERATIONS:
        raise InvalidRequest(f"a snapshot cannot be of operation '{operation}'; it is one of {', '.join(OPERATIONS)}")
    changes = Changes(store, paths, plan, schema)
    made = _Committer(changes, commit_user, identifier, operation, Options(options or schema.options))
    try:
        snapshot = made.run()
    except BaseException:
        if on_failure is not None and not made.uncertain:
            on_failure()
        raise
    state = TableState(paths.root, paths, store, schema, snapshot)
    tag_commit(state, plan.kind, operation)
    if plan.kind in ("APPEND", "OVERWRITE"):
        mark_written(state, plan.adds)
    return snapshot


class OutcomeUnknown(StorageUnavailable):
    """The storage failed while the snapshot was being published: it may be there or not, and ``uuid`` would tell."""

    def __init__(self, message: str, uuid: str) -> None:
        self.uuid = uuid
        super().__init__(message)


class _Lost(Exception):
    """Another writer made the snapshot with this id first."""


class _Unknown(Exception):
    """Publishing failed, and looking for the result did too."""


@dataclass(slots=True)
class _Committer:
    """One call of :func:`commit`; mutable."""

    changes: Changes
    user: str
    identifier: int
    operation: str | None
    options: Options
    uuid: str = field(default_factory=_clock.new_uuid)
    tried: dict[int, Snapshot | None] = field(default_factory=dict)
    """Ids whose publication has an unknown outcome, and the snapshots that these attempts were based on."""
    uncertain: bool = False
    """Whether the commit may have taken place, for all that is known now."""
    base: Snapshot | None = None
    """The snapshot that the attempt is based on."""
    delta: tuple[tuple[ManifestEntry, ...], list[ManifestFileMeta]] | None = None
    """The entries last written as delta manifests, and these: a lost race seldom changes them."""

    @property
    def store(self) -> Store:
        """Where the table is."""
        return self.changes.store

    @property
    def paths(self) -> TablePaths:
        """The table's paths."""
        return self.changes.paths

    def run(self) -> Snapshot | None:
        check_history(self.store, self.paths)
        self.changes.check_plan()
        types = [f.type for f in self.changes.schema.partition_fields]
        writer = ManifestWriter(self.store, self.paths, types, self.options)
        started, failures, races = _clock.now_ms(), 0, 0
        # Seeded by the commit's own id: writers must not wait in step with each other.
        chance = random.Random(self.uuid)
        while True:
            try:
                return self._attempt(writer, merge=races == 0)
            except _Lost:
                races += 1
                failed: Exception | None = None
                wait = chance.uniform(0, min(self.options.of(opt.COMMIT_MIN_WAIT) << min(races, 5), _RACE_WAIT_MS))
            except OutcomeUnknown:
                raise
            except (AccessDenied, StorageFull) as e:  # waiting changes nothing
                self._discard_all(writer)
                if self.uncertain:
                    raise self._unknown(f"commit to {self.paths.root} failed ({e}); ") from e
                raise
            except (StorageUnavailable, _Unknown) as e:
                self._discard_all(writer)
                failures += 1
                failed = e
                growing = self.options.of(opt.COMMIT_MIN_WAIT) << min(failures - 1, 20)
                wait = min(growing, self.options.of(opt.COMMIT_MAX_WAIT)) * chance.uniform(1, 1.2)
            except BaseException:
                self._discard_all(writer)
                raise
            self._give_up_late(writer, started, failures, races, failed)
            time.sleep(wait / 1000)

    def _give_up_late(
        self, writer: ManifestWriter, started: int, failures: int, races: int, failed: Exception | None
    ) -> None:
        timeout = self.options.of(opt.COMMIT_TIMEOUT)
        late = timeout is not None and _clock.now_ms() - started > timeout
        if failed is not None and (late or failures > self.options.of(opt.COMMIT_MAX_RETRIES)):
            why = failed if isinstance(failed, StorageUnavailable) else failed.__cause__ or failed
            message = f"commit to {self.paths.root} failed {counted(failures, 'time')} ({why}); "
            if self.uncertain:
                raise self._unknown(message) from failed
            raise StorageUnavailable(message + "nothing of it is visible") from failed
        if late or races > _MOST_RACES:
            self._discard_all(writer)
            raise CommitConflict(
                f"commit to {self.paths.root}: other writers were first {races} times"
                + (f" and 'commit.timeout' = {timeout} ms passed" if late else "")
                + "; nothing is visible, try again"
            )

    def _unknown(self, message: str) -> OutcomeUnknown:
        said = (
            f"{message}whether it took place is unknown: its files are kept; before writing the rows again, look "
            f"whether a snapshot has the uuid {self.uuid} (in <table>/snapshot, or Table.snapshots())"
        )
        return OutcomeUnknown(said, self.uuid)

    def _discard_all(self, writer: ManifestWriter) -> None:
        writer.discard()
        self.delta = None

    # --- one attempt -------------------------------------------------------------------------------------------------

    def _attempt(self, writer: ManifestWriter, *, merge: bool) -> Snapshot | None:
        try:
            return self._attempt_once(writer, merge=merge)
        except NotFound as e:
            if self.uncertain or not has_expired(self.store, self.paths, None if self.base is None else self.base.id):
                raise
            self._discard_all(writer)
            raise _Lost from e  # others committed, and expired what this was based on

    def _attempt_once(self, writer: ManifestWriter, *, merge: bool) -> Snapshot | None:
        if self.tried:
            found = self._find_ours()
            if found is not None:
                self._confirm(found)
                return found
            self.uncertain = False  # every id tried is free or somebody else's
        self.base = latest = latest_snapshot(self.store, self.paths)
        schema_id = self._schema_id()
        if not self._is_same_table():
            raise CommitConflict(
                f"table {self.paths.root} was dropped, replaced or renamed after its schema was read; nothing is "
                "visible: open the table again and write the rows again"
            )
        delta = self.changes.delta(latest)
        changelog = self.changes.plan.changelog
        statistics = self.changes.plan.statistics is not None
        if not delta and not changelog and not statistics and not self.options.of(opt.FORCE_SNAPSHOT):
            return latest
        try:
            return self._publish_delta(writer, latest, schema_id, delta, merge)
        except _Unknown:
            raise  # the snapshot may be there and name the index files
        except BaseException:
            if delta.index is not None and not self.uncertain:
                self._index_files.discard(delta.index.written)
            raise

    @property
    def _index_files(self) -> IndexFiles:
        return IndexFiles(self.store, self.paths, self.changes.schema)

    def _publish_delta(
        self, writer: ManifestWriter, latest: Snapshot | None, schema_id: int, delta: Delta, merge: bool
    ) -> Snapshot:
        if self.delta is None or self.delta[0] != delta.entries:
            writer.discard()
            self.delta = (delta.entries, writer.write(delta.entries))
        mark = writer.mark()
        snapshot = self._write_lists(writer, latest, schema_id, delta, merge)
        # From here on the snapshot may exist, whatever exception ends this: nobody may delete its files.
        held = writer.release()
        self.uncertain = True
        try:
            self._publish(snapshot)
            self._confirm(snapshot)
        except (_Lost, AccessDenied, StorageFull):
            self.uncertain = False
            writer.take_back(held)
            writer.discard(mark)
            raise
        except _Unknown:
            self.delta = None
            raise
        if delta.index is not None and not self.tried:
            self._index_files.discard(delta.index.superseded)
        return snapshot

    def _write_lists(
        self,
        writer: ManifestWriter,
        latest: Snapshot | None,
        schema_id: int,
        delta: Delta,
        merge: bool,
    ) -> Snapshot:
        assert self.delta is not None
        plan = self.changes.plan
        before = [] if latest is None else snapshot_manifests(self.store, self.paths, latest)
        base, base_size = writer.write_list(writer.merge(before) if merge else before)
        changes, changes_size = writer.write_list(self.delta[1])
        changelog, changelog_size = writer.write_list(writer.write(plan.changelog)) if plan.changelog else (None, None)
        index = None if latest is None else latest.index_manifest
        if delta.index is not None:
            index = writer.write_index(delta.index.entries) if delta.index.entries else None
        rows = sum(e.file.row_count * (1 if e.kind is EntryKind.ADD else -1) for e in delta.entries)
        statistics = plan.statistics
        if statistics is None and latest is not None and latest.schema_id == schema_id:
            statistics = latest.statistics
        made = Snapshot(
            uuid=self.uuid,
            id=1 if latest is None else latest.id + 1,
            schema_id=schema_id,
            base_manifest_list=base,
            base_manifest_list_size=base_size,
            delta_manifest_list=changes,
            delta_manifest_list_size=changes_size,
            changelog_manifest_list=changelog,
            changelog_manifest_list_size=changelog_size,
            index_manifest=index,
            commit_user=self.user,
            writer_version=WRITER,
            commit_identifier=self.identifier,
            commit_kind="OVERWRITE" if plan.kind == "APPEND" and plan.checked else plan.kind,
            time_millis=_clock.now_ms(),
            total_record_count=rows + (0 if latest is None else latest.total_record_count),
            delta_record_count=rows,
            changelog_record_count=sum(e.file.row_count for e in plan.changelog) if plan.changelog else None,
            watermark=None if latest is None else latest.watermark,
            statistics=statistics,
            next_row_id=(None if latest is None else latest.next_row_id) or 0,
            operation=self.operation,
        )
        return on_base(made, latest)

    def _publish(self, snapshot: Snapshot) -> None:
        """Create the snapshot file; raises :class:`_Lost` or :class:`_Unknown` unless it is there now and is ours."""
        if self._is_past(snapshot.id):
            raise _Lost
        try:
            if create_snapshot(self.store, self.paths, snapshot, self.base):
                return
        except (AccessDenied, StorageFull):
            raise  # a store that refuses has not done it
        except (StorageUnavailable, NotFound) as e:
            self.tried[snapshot.id] = self.base
            raise _Unknown from e
        # An earlier try of ours with an unknown outcome may be what is there.
        if snapshot.id not in self.tried or not self._is_ours(snapshot.id):
            raise _Lost

    def _find_ours(self) -> Snapshot | None:
        for snapshot_id in self.tried:
            if self._is_ours(snapshot_id):
                return load_snapshot(self.store, self.paths, snapshot_id)
        return None

    def _is_ours(self, snapshot_id: int) -> bool:
        try:
            found = load_snapshot(self.store, self.paths, snapshot_id)
        except NotFound:
            return False
        return found.uuid == self.uuid and found.commit_user == self.user

    def _is_past(self, snapshot_id: int) -> bool:
        """Whether a snapshot of this id was there and has expired: its name is free, but would be of the past.

        Looked at right before the name is taken: what others do between these two steps is not seen, and must take two
        commits and an expiry that keeps fewer than those.  Expiry moves the EARLIEST hint on before it deletes.
        """
        first = read_hint(self.store, self.paths.earliest_hint)
        return first is not None and first > snapshot_id and self.store.exists(self.paths.snapshot(first))

    def _confirm(self, snapshot: Snapshot) -> None:
        """Check that the commit is part of the table that it was made for, and write the hints.

        Raises :class:`_Lost` after withdrawing a snapshot whose base was replaced, and :class:`_Unknown`.
        """
        base = self.tried.get(snapshot.id, self.base)
        try:
            follows = self._follows(base, snapshot) or not self._withdraw(snapshot)
        except OutcomeUnknown:
            raise
        except StorageUnavailable as e:
            self.tried[snapshot.id] = base
            raise _Unknown from e
        if not follows:
            self.tried.pop(snapshot.id, None)
            raise _Lost
        self._write_hints(snapshot)

    def _write_hints(self, snapshot: Snapshot) -> None:
        """Write the hints; the commit stands if that fails."""
        hints = [self.paths.latest_hint] if snapshot.id > 1 else [self.paths.earliest_hint, self.paths.latest_hint]
        for hint in hints:
            with contextlib.suppress(StorageUnavailable):
                self.store.write(hint, str(snapshot.id).encode())
        with contextlib.suppress(StorageUnavailable):
            if not self.store.exists(self.paths.snapshot(snapshot.id)):
                self.store.delete(self.paths.latest_hint)  # it was rolled back meanwhile, and Paimon believes a hint

    def _follows(self, base: Snapshot | None, snapshot: Snapshot) -> bool:
        """Whether the snapshot's predecessor is the one that it was made from, or has expired since."""
        if base is None:
            return self._is_same_table()
        try:
            return load_snapshot(self.store, self.paths, base.id) == base
        except NotFound:
            kept = load_line(self.store, self.paths).kept
            # Expiry deletes from the first snapshot on, this one included if there are later ones.
            return bool(kept) and kept[0] >= snapshot.id and self._is_same_table()

    def _withdraw(self, snapshot: Snapshot) -> bool:
        """Delete the snapshot unless it is gone; False where a server keeps the history: it has checked the base."""
        try:
            if self._is_ours(snapshot.id):
                self.store.delete(self.paths.snapshot(snapshot.id))
            elif not self._is_same_table():  # it may have been renamed with the snapshot
                raise self._unknown(f"table {self.paths.root} was dropped or renamed during a commit; ")
            self.store.delete(self.paths.latest_hint)  # readers list the folder
        except UnsupportedFeature:
            return False
        return True

    def _is_same_table(self) -> bool:
        """Whether the schema that the rows were written with is still there, and not another table's."""
        return is_same_table(self.store, self.paths, self.changes.schema)

    def _schema_id(self) -> int:
        latest = latest_schema_id(self.store, self.paths)
        required = self.changes.plan.requires_schema
        if required is not None and latest is not None and latest != required:
            raise CommitConflict(
                f"table {self.paths.root} changed from schema {required} to {latest} meanwhile; read it again and retry"
            )
        if latest is not None and latest != self.changes.schema.id:
            self.changes.check_mode(load_schema(self.store, self.paths, latest))
        return self.changes.schema.id if latest is None else max(latest, self.changes.schema.id)


# --- stream_commits ---
# Commits of streams, each batch once: a snapshot's commit user and identifier say which batch of which stream it is.
#
# A stream that was killed writes its last batch again and asks here first whether it is there already.  Source: the
# observed behaviour of Paimon's streaming writers.


def last_identifier(state: TableState, user: str) -> int | None:
    """The identifier of a user's last commit among the snapshots that are kept; None if there is none.

    One batch may make several snapshots (rows, then their compaction) of the same identifier.
    """
    for number in reversed(snapshot_ids(state.store, state.paths)):
        try:
            snapshot = load_snapshot(state.store, state.paths, number)
        except NotFound:  # expired meanwhile, and so are all before it
            return None
        if snapshot.commit_user == user and snapshot.commit_identifier != BATCH_IDENTIFIER:
            return snapshot.commit_identifier
    return None


def is_committed(state: TableState, user: str, identifier: int) -> bool:
    """Whether a stream's batch is in the table; its batches are committed in the order of their numbers."""
    last = last_identifier(state, user)
    return last is not None and last >= identifier
