"""Commits: each publishes one new snapshot, or nothing.

Order of writes, and what a crash *after* each step leaves behind:

1. data and index files (by the writer, before it calls :func:`commit`): orphans, which no reader sees;
2. merged deletion vector files, if another writer's must be merged with; delta manifests; merged manifests, the base
   list, the delta list; changelog manifests and list; the index manifest: orphans too;
3. ``snapshot-<id>``, created only if absent: **the commit**.  Before it readers see the old table, after it the new;
4. nothing is written: the base snapshot is read again, and must be the one of step 2 (below);
5. the EARLIEST hint (first commit only), then LATEST: without them readers list the folder; a LATEST that is too low
   is noticed because the next snapshot exists.  A hint is never written before its snapshot is known to be part of the
   table, and it is deleted if that snapshot was rolled back meanwhile;
6. the tags that the table's options ask for (:mod:`bitlake.snapshot.tags`), and Iceberg metadata
   (:mod:`bitlake.snapshot.iceberg_metadata`): the next commit makes up for them;
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
nothing is deleted, and the snapshot's ``uuid``, which no other commit has, shows later whether it took place.

Another writer may win step 3.  The attempt is then repeated on the snapshot that won: conflicts are checked again, and
what an overwrite deletes is computed again (:mod:`bitlake.write.commit_plan`).  Losing a race is not a failure: it may
happen far more often than ``commit.max-retries``, which counts failures of the storage.

Streams commit each batch once: a snapshot's commit user and identifier name the batch of a stream.  A stream that was
killed writes its last batch again and asks :func:`is_committed` first (observed behaviour of Paimon's streaming
writers).
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from bitlake import _clock
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
from bitlake.snapshot.iceberg_metadata import publish_commit
from bitlake.snapshot.index_files import IndexFiles
from bitlake.snapshot.manifests import ManifestWriter, snapshot_manifests
from bitlake.snapshot.partitions import mark_written
from bitlake.snapshot.removal_markers import create_snapshot, has_expired, load_line, on_base
from bitlake.snapshot.schema_commit import write_schema
from bitlake.snapshot.state import TableState
from bitlake.snapshot.table_files import TableFiles, check_history, read_hint
from bitlake.snapshot.tags import tag_commit
from bitlake.snapshot.vector_mode import is_settled, schema_before_switch, with_vector_mode_of
from bitlake.snapshot.versions import (
    find_snapshot,
    is_same_table,
    latest_schema_id,
    latest_snapshot,
    load_schema,
    load_snapshot,
    snapshot_ids,
)
from bitlake.write.commit_plan import CommitPlan, Delta, PlanResolver

WRITER = "bitlake"
"""``writerVersion`` of our snapshots."""
COMPACT_TRIES = 10
"""Attempts of work that changes no row, such as a compaction, while other writers keep changing its files."""
_MOST_RACES = 10_000
"""Lost races after which a commit gives up: only a broken store causes that many."""
_MOST_STALLS = 50
"""Lost races without a new snapshot after which a commit gives up: about 8 seconds."""
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

    A plan that changes nothing creates no snapshot (unless ``commit.force-create-snapshot``): the latest one is
    returned, None if there is none.  ``options`` default to the schema's.

    Raises :class:`CommitConflict` when a file to delete is no longer live or another writer's change cannot be combined
    with this one, :class:`InvalidRequest` for a plan that can never be committed, and :class:`StorageUnavailable` when
    the storage keeps failing: as :class:`OutcomeUnknown` if the snapshot may exist; otherwise nothing is visible.

    ``on_failure`` is called before any exception leaves, an interrupt included, if **surely** nothing is visible.  It
    is the place to delete the files that ``plan`` adds: data, changelog and index files.
    """
    if operation is not None and operation not in OPERATIONS:
        raise InvalidRequest(f"unknown snapshot operation '{operation}'; expected one of {', '.join(OPERATIONS)}")
    resolver = PlanResolver(store, paths, plan, schema)
    committer = _Committer(resolver, commit_user, identifier, operation, Options(options or schema.options))
    try:
        snapshot = committer.run()
    except BaseException:
        if on_failure is not None and not committer.uncertain:
            on_failure()
        raise
    state = TableState(paths.root, paths, store, schema, snapshot)
    tag_commit(state, plan.kind, operation)
    publish_commit(state, committer.changes_of(snapshot))
    if plan.kind in ("APPEND", "OVERWRITE"):
        mark_written(state, plan.adds)
    return snapshot


class OutcomeUnknown(StorageUnavailable):
    """The storage failed while the snapshot was being published: whether a snapshot with ``uuid`` exists is unknown."""

    def __init__(self, message: str, uuid: str) -> None:
        self.uuid = uuid
        super().__init__(message)


class _Lost(Exception):
    """Another writer created the snapshot with this id first."""


class _Unknown(Exception):
    """Publishing failed, and its outcome could not be looked up either."""


@dataclass(slots=True)
class _Committer:
    """One call of :func:`commit`; mutable."""

    resolver: PlanResolver
    user: str
    identifier: int
    operation: str | None
    options: Options
    uuid: str = field(default_factory=_clock.new_uuid)
    tried: dict[int, Snapshot | None] = field(default_factory=dict)
    """Ids whose publication has an unknown outcome, and the snapshots that these attempts were based on."""
    uncertain: bool = False
    """Whether the commit may have taken place, as far as is known."""
    base: Snapshot | None = None
    """The snapshot that the attempt is based on."""
    stalls: int = 0
    """Races lost in a row without a new snapshot of another writer."""
    delta: tuple[tuple[ManifestEntry, ...], list[ManifestFileMeta]] | None = None
    """The entries last written as delta manifests, and those manifests: a lost race seldom changes them."""

    @property
    def table_files(self) -> TableFiles:
        """The store and the paths of the table."""
        return self.resolver.table_files

    @property
    def store(self) -> Store:
        """The table's store."""
        return self.resolver.store

    @property
    def paths(self) -> TablePaths:
        """The table's paths."""
        return self.resolver.paths

    def changes_of(self, snapshot: Snapshot | None) -> tuple[ManifestEntry, ...] | None:
        """The entries that a snapshot added, if it is surely of the last attempt; else None."""
        is_ours = snapshot is not None and snapshot.uuid == self.uuid and not self.tried
        return self.delta[0] if is_ours and self.delta is not None else None

    def run(self) -> Snapshot | None:
        check_history(self.store, self.paths)
        self.resolver.check_plan()
        types = [f.type for f in self.resolver.schema.partition_fields]
        writer = ManifestWriter(self.table_files, types, self.options)
        started, failures, races, base = _clock.now_ms(), 0, 0, self.base
        # Seeded by the commit's own id, so that writers do not wait in step.
        jitter = random.Random(self.uuid)
        while True:
            try:
                return self._attempt(writer, merge=races == 0)
            except _Lost:
                races += 1
                self.stalls = self.stalls + 1 if self.base == base else 0
                base = self.base
                failed: Exception | None = None
                wait = jitter.uniform(0, min(self.options.of(opt.COMMIT_MIN_WAIT) << min(races, 5), _RACE_WAIT_MS))
            except OutcomeUnknown:
                raise
            except (AccessDenied, StorageFull) as e:  # a retry cannot help
                self._discard_all(writer)
                if self.uncertain:
                    raise self._unknown(f"commit to {self.paths.root} failed ({e}); ") from e
                raise
            except (StorageUnavailable, _Unknown) as e:
                self._discard_all(writer)
                failures += 1
                failed = e
                growing = self.options.of(opt.COMMIT_MIN_WAIT) << min(failures - 1, 20)
                wait = min(growing, self.options.of(opt.COMMIT_MAX_WAIT)) * jitter.uniform(1, 1.2)
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
            raise StorageUnavailable(message + "no change is visible") from failed
        if self.stalls > _MOST_STALLS:
            self._discard_all(writer)
            path = self.paths.snapshot(1 if self.base is None else self.base.id + 1)
            raise StorageUnavailable(
                f"commit to {self.paths.root}: the store refused {self.stalls} times to create {path} because it "
                "existed, but shows no such file; no change is visible; check the store, or a proxy in front of it, "
                "and try again"
            )
        if late or races > _MOST_RACES:
            self._discard_all(writer)
            raise CommitConflict(
                f"commit to {self.paths.root}: other writers committed first {races} times"
                + (f" and 'commit.timeout' = {timeout} ms passed" if late else "")
                + "; no change is visible, try again"
            )

    def _unknown(self, message: str) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"{message}whether it took place is unknown, and its files are kept; before writing the rows again, check "
            f"whether a snapshot has the uuid {self.uuid} (in <table>/snapshot, or Table.snapshots())",
            self.uuid,
        )

    def _discard_all(self, writer: ManifestWriter) -> None:
        writer.discard()
        self.delta = None

    # --- one attempt -------------------------------------------------------------------------------------------------

    def _attempt(self, writer: ManifestWriter, *, merge: bool) -> Snapshot | None:
        try:
            return self._attempt_once(writer, merge=merge)
        except NotFound as e:
            if self.uncertain or not has_expired(self.table_files, None if self.base is None else self.base.id):
                raise
            self._discard_all(writer)
            raise _Lost from e  # others committed, and expired the snapshot that this attempt was based on

    def _attempt_once(self, writer: ManifestWriter, *, merge: bool) -> Snapshot | None:
        if self.tried:
            published = self._find_ours()
            if published is not None:
                self._confirm(published)
                return published
            self.uncertain = False  # every id tried is free or taken by another commit
        self.base = latest = latest_snapshot(self.table_files)
        schema_id = self._schema_id()
        if not self._is_same_table():
            raise CommitConflict(
                f"table {self.paths.root} was dropped, replaced or renamed after its schema was read; no change is "
                "visible: open the table again and write the rows again"
            )
        delta = self.resolver.delta(latest)
        changelog = self.resolver.plan.changelog
        statistics = self.resolver.plan.statistics is not None
        if not delta and not changelog and not statistics and not self.options.of(opt.FORCE_SNAPSHOT):
            return latest
        try:
            return self._publish_delta(writer, latest, schema_id, delta, merge)
        except _Unknown:
            raise  # the snapshot may exist and name the index files
        except BaseException:
            if delta.index is not None and not self.uncertain:
                self._index_files.discard(delta.index.written)
            raise

    @property
    def _index_files(self) -> IndexFiles:
        return IndexFiles(self.store, self.paths, self.resolver.schema)

    def _publish_delta(
        self, writer: ManifestWriter, latest: Snapshot | None, schema_id: int, delta: Delta, merge: bool
    ) -> Snapshot:
        if self.delta is None or self.delta[0] != delta.entries:
            writer.discard()
            self.delta = (delta.entries, writer.write(delta.entries))
        mark = writer.mark()
        snapshot = self._write_lists(writer, latest, schema_id, delta, merge)
        # From here on the snapshot may exist, whatever exception ends this: its files must not be deleted.
        released = writer.release()
        self.uncertain = True
        try:
            self._publish(snapshot)
            self._confirm(snapshot)
        except (_Lost, AccessDenied, StorageFull, CommitConflict):
            self.uncertain = False
            writer.take_back(released)
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
        plan = self.resolver.plan
        before = [] if latest is None else snapshot_manifests(self.table_files, latest)
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
        snapshot = Snapshot(
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
        return on_base(snapshot, latest)

    def _publish(self, snapshot: Snapshot) -> None:
        """Create the snapshot file; raises :class:`_Lost` or :class:`_Unknown` unless it exists now and is ours."""
        if self._is_past(snapshot.id):
            raise _Lost
        try:
            if create_snapshot(self.table_files, snapshot, self.base):
                return
        except (AccessDenied, StorageFull):
            raise  # a store that refuses a write has not performed it
        except (StorageUnavailable, NotFound) as e:
            self.tried[snapshot.id] = self.base
            raise _Unknown from e
        # The existing snapshot may be an earlier attempt of ours whose outcome was unknown.
        if snapshot.id not in self.tried or not self._is_ours(snapshot.id):
            raise _Lost

    def _find_ours(self) -> Snapshot | None:
        for snapshot_id in self.tried:
            if self._is_ours(snapshot_id):
                return load_snapshot(self.table_files, snapshot_id)
        return None

    def _is_ours(self, snapshot_id: int) -> bool:
        snapshot = find_snapshot(self.table_files, snapshot_id)
        return snapshot is not None and snapshot.uuid == self.uuid and snapshot.commit_user == self.user

    def _is_past(self, snapshot_id: int) -> bool:
        """Whether a snapshot with this id existed and has expired: its name is free, but must not be taken.

        Checked right before the name is taken.  To slip between the two steps, others would need two commits and an
        expiry that keeps fewer than those.  Expiry moves the EARLIEST hint on before it deletes.
        """
        first = read_hint(self.store, self.paths.earliest_hint)
        return first is not None and first > snapshot_id and self.store.exists(self.paths.snapshot(first))

    def _confirm(self, snapshot: Snapshot) -> None:
        """Check that the commit is part of the table that it was computed for, and write the hints.

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
        with contextlib.suppress(StorageUnavailable, UnsupportedFeature):  # a server keeps the hint itself
            if not self.store.exists(self.paths.snapshot(snapshot.id)):
                self.store.delete(self.paths.latest_hint)  # it was rolled back meanwhile, and Paimon trusts a hint

    def _follows(self, base: Snapshot | None, snapshot: Snapshot) -> bool:
        """Whether the snapshot's predecessor is the one that it was computed from, or has expired since."""
        if base is None:
            return self._is_same_table()
        current = find_snapshot(self.table_files, base.id)
        if current is not None:
            return current == base
        kept = load_line(self.table_files).kept
        # Expiry deletes from the first snapshot on, and this one too if later ones exist.
        return bool(kept) and kept[0] >= snapshot.id and self._is_same_table()

    def _withdraw(self, snapshot: Snapshot) -> bool:
        """Delete the snapshot if it still exists; False where a server keeps the history: it has checked the base."""
        try:
            if self._is_ours(snapshot.id):
                self.store.delete(self.paths.snapshot(snapshot.id))
            elif not self._is_same_table():  # the table may have been renamed, with the snapshot
                raise self._unknown(f"table {self.paths.root} was dropped or renamed during a commit; ")
            self.store.delete(self.paths.latest_hint)  # readers list the folder
        except UnsupportedFeature:
            return False
        return True

    def _is_same_table(self) -> bool:
        """Whether the schema that the rows were written with still exists, and is not another table's."""
        return is_same_table(self.table_files, self.resolver.schema)

    def _schema_id(self) -> int:
        latest = latest_schema_id(self.table_files)
        if latest is not None and self.base is not None and latest != self.base.schema_id:
            schema = load_schema(self.table_files, latest)
            if undo_unsafe_switch(TableState(self.paths.root, self.paths, self.store, schema, self.base)):
                latest = latest_schema_id(self.table_files)
        required = self.resolver.plan.requires_schema
        if required is not None and latest is not None and latest != required:
            raise CommitConflict(
                f"table {self.paths.root} changed from schema {required} to {latest} meanwhile; read it again and retry"
            )
        if latest is not None and latest != self.resolver.schema.id:
            self.resolver.check_options(load_schema(self.table_files, latest), self.base)
        return self.resolver.schema.id if latest is None else max(latest, self.resolver.schema.id)


def undo_unsafe_switch(state: TableState) -> bool:
    """Switch deletion vectors back if the latest snapshot would be read wrongly since they were switched on or off.

    Another writer, which had read the schema before, committed the snapshot right after the switch
    (:mod:`bitlake.mergetree.deletion_vector_mode`).  On top of it, a snapshot with the new schema would show deleted
    rows, or keys twice.  Returns whether the switch was undone.
    """
    old = schema_before_switch(state)
    if old is None or is_settled(replace(state, schema=old), level_0=True):
        return False
    # If another commit has undone the switch meanwhile, this creates nothing.
    write_schema(state, state.schema.next(options=with_vector_mode_of(state.schema, old).options))
    return True


# --- batches of streams -----------------------------------------------------------------------------------------------


def last_identifier(state: TableState, user: str) -> int | None:
    """Return the identifier of a user's last commit among the retained snapshots; None if there is none.

    One batch may create several snapshots (rows, then their compaction) with the same identifier.
    """
    for number in reversed(snapshot_ids(state.table_files)):
        snapshot = find_snapshot(state.table_files, number)
        if snapshot is None:  # expired meanwhile, like all before it
            return None
        if snapshot.commit_user == user and snapshot.commit_identifier != BATCH_IDENTIFIER:
            return snapshot.commit_identifier
    return None


def is_committed(state: TableState, user: str, identifier: int) -> bool:
    """Return whether a stream's batch is in the table; batches are committed in the order of their identifiers."""
    last = last_identifier(state, user)
    return last is not None and last >= identifier
