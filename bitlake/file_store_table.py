"""The core's table: one table or branch of a catalog, with what scans, commits and schema changes share.

Every call looks at the table as it is then.  The facade :class:`bitlake.table.table.Table`, the system tables and the
Spark layer work on this class; users do not see it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Self

from bitlake import _clock, arguments
from bitlake.errors import AlreadyExists, BitlakeError, CommitConflict, InvalidRequest, NotFound, StorageUnavailable
from bitlake.expressions.condition import Where
from bitlake.expressions.tree import TRUE, IsNull, Predicate
from bitlake.fileindex.named_index import index_name
from bitlake.io import Store
from bitlake.mergetree import dml
from bitlake.mergetree.commit import Publisher, stream_batch
from bitlake.mergetree.deletion_vector_mode import check_lookup_change
from bitlake.metadata import options as opt
from bitlake.metadata.evolve import evolve
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.paths import TablePaths, check_roots
from bitlake.metadata.schema import Names, SchemaChange, TableSchema
from bitlake.metadata.snapshot import BATCH_IDENTIFIER, Snapshot
from bitlake.progress import tracked
from bitlake.runtime import Runner, Runtime
from bitlake.scan import incremental
from bitlake.scan.fallback_branch import check_branch_option
from bitlake.scan.incremental import ChangeScan
from bitlake.scan.scan import TableScan, ToSpark
from bitlake.schema.create import check_schema_options, warn_of_misspelt
from bitlake.schema.evolution import check_evolved, made_not_null
from bitlake.schema.validation import check_partition_expiry, check_reading
from bitlake.snapshot.expiry import expire_after_commit
from bitlake.snapshot.partitions import discard_entries, files_of_partitions, partitions_where
from bitlake.snapshot.schema_commit import check_postponed, write_schema
from bitlake.snapshot.state import TableState, load_state, state_at
from bitlake.snapshot.table_files import TableFiles, check_history
from bitlake.snapshot.tags import Tag, load_tag
from bitlake.snapshot.time_travel import Moment, Time, When, epoch_millis, snapshot_at_time, state_of
from bitlake.snapshot.vector_mode import with_vector_mode_of
from bitlake.snapshot.versions import branch_names, has_schema, snapshot_ids, tag_names
from bitlake.write.append_compaction import compact_append
from bitlake.write.append_dml import RowDeletion, discard_statement, retrying
from bitlake.write.commit import commit
from bitlake.write.commit_plan import CommitPlan, Overwrite, overwrite_scope
from bitlake.write.index_rewrite import Rewritten, backfill

_ALTER_TRIES = 20


class FileStoreTable:
    """A table or branch by name and folder.

    ``timezone``: the zone of timestamp literals without one.  ``to_spark`` makes a DataFrame of a scan.  ``runtime`` is
    what it shares with the lake's other tables.  ``external_roots``: folders that may hold files of the table besides
    its own.  ``opened``: whether the table is known to exist; else the constructor raises :class:`NotFound` if it does
    not.
    """

    def __init__(
        self,
        name: str,
        root: str,
        store: Store,
        *,
        timezone: str = "UTC",
        to_spark: ToSpark | None = None,
        runtime: Runtime | None = None,
        branch: str | None = None,
        opened: bool = False,
        external_roots: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.store = store
        self.paths = TablePaths(root, branch, check_roots(external_roots))
        self.timezone = timezone
        self.to_spark = to_spark
        self.runtime = Runtime(store.caches) if runtime is None else runtime
        self._options: Mapping[str, str] = {}
        if not opened:
            self.state()

    def __repr__(self) -> str:
        return f"FileStoreTable({self.name!r}, {self.paths.root!r})"

    @property
    def path(self) -> str:
        """The table's folder."""
        return self.paths.root

    @property
    def shows_progress(self) -> bool:
        """Whether long jobs may show a progress bar."""
        return self.runtime.shows_progress

    def runner(self) -> Runner:
        """A runner of heavy work."""
        return self.runtime.runner()

    @cached_property
    def _user(self) -> str:
        """The user of the table's commits; tables that are only read need none."""
        return _clock.new_uuid()

    # --- state -------------------------------------------------------------------------------------------------------

    def with_options(self, options: Mapping[str, str]) -> Self:
        """The same table under options that are not stored, such as a session's; ``alter`` does not store them.

        Raises :class:`InvalidRequest` for options that cannot change once the table has data.
        """
        table = copy.copy(self)
        table._options = {**self._options, **options}
        table.state()
        return table

    def state(self) -> TableState:
        """The table now; raises :class:`NotFound` if it is gone."""
        state = self.stored_state()
        return state.with_options(self._options) if self._options else state

    def stored_state(self) -> TableState:
        """The table now under its own options, without those of :meth:`with_options`."""
        files = TableFiles(self.store, self.paths)
        state = load_state(self.name, files)
        if state is None and self.paths.branch is not None:
            names = ", ".join(branch_names(files)) or "only main"
            raise NotFound(f"table '{self.name}' has no branch '{self.paths.branch}'; its branches: {names}")
        if state is None:
            raise NotFound(f"table '{self.name}' does not exist: {self.paths.root} holds no schema")
        return state

    @property
    def schema(self) -> TableSchema:
        """The latest schema."""
        return self.state().schema

    @property
    def snapshot(self) -> Snapshot | None:
        """The latest snapshot; None before the first commit."""
        return self.state().snapshot

    def at(self, when: When) -> TableState:
        """The table at a moment."""
        return when.of(self.state(), self.timezone)

    # --- scans -------------------------------------------------------------------------------------------------------

    def scan(self, when: When | None = None) -> TableScan:
        """A scan of the table, or of what it was at a moment, which is recorded; see :meth:`query_scan`."""
        scan, recorder = self.query_scan(when or When()), self.runtime.recorder
        return scan if recorder is None else replace(scan, _recorder=recorder)

    def scan_of(self, state: TableState, where: Where | Predicate | None = None) -> TableScan:
        """A scan of the table as it was at some time; see :meth:`scan`."""
        scan = TableScan.of_state(state, self.timezone, self.to_spark, self.runtime.executors)
        return scan if where is None else scan.where(where)

    def query_scan(self, when: When) -> TableScan:
        """A scan of the table at a moment, as its options ask of queries."""
        return TableScan.at(self.state(), when, self.timezone, self.to_spark, self.runtime.executors)

    def changes(
        self, start: Moment, end: Moment | None = None, *, mode: str = "auto", kinds: bool = True, packed: bool = False
    ) -> TableScan:
        """What was committed after ``start`` up to ``end`` (default: the latest snapshot).

        Both are snapshot ids, or tags.  ``mode`` is ``delta``, ``changelog``, ``diff`` or ``auto`` (see
        :mod:`bitlake.scan.incremental`).  With ``kinds``, rows begin with a column ``rowkind`` and include
        those that were deleted or replaced; without it, only existing rows are returned.  ``packed``: rows are as
        ``$binlog`` shows them.  Raises :class:`NotFound` for snapshots and tags that do not exist (any more).
        """
        state = self.state()
        return self.changes_between(state, self._between(state, start, end), mode, kinds=kinds, packed=packed)

    def changes_by_time(
        self, start: Time, end: Time | None = None, *, mode: str = "auto", kinds: bool = True, packed: bool = False
    ) -> TableScan:
        """As :meth:`changes`, of the snapshots committed after one time up to another."""
        state = self.state()
        ids = snapshot_ids(state.table_files)
        if not ids:
            return self._changed(state.schema, incremental.of_files(state, (), merged=False), None, kinds, packed)
        first = snapshot_at_time(state, epoch_millis(start, self.timezone))
        last = None if end is None else snapshot_at_time(state, epoch_millis(end, self.timezone))
        if end is not None and last is None:
            last_id = ids[0] - 1  # all snapshots are younger: nothing had been committed yet
        else:
            last_id = ids[-1] if last is None else last.id
        if first is not None:
            start_id = first.id
        else:
            # If snapshots have expired, the rows before the earliest one are unknown: compare with the earliest.
            start_id = ids[0] if mode == "diff" and ids[0] > 1 else ids[0] - 1
            last_id = max(last_id, start_id)
        between = incremental.SnapshotRange(start_id, last_id)
        if between.end < between.start:
            raise InvalidRequest(f"table '{self.name}': changes run from an earlier time to a later one")
        return self.changes_between(state, between, mode, kinds=kinds, packed=packed)

    def changes_between(
        self, state: TableState, between: incremental.SnapshotRange, mode: str, *, kinds: bool, packed: bool = False
    ) -> TableScan:
        """The changes between two moments of a state's table."""
        how = incremental.mode_of(state, between, mode)
        if how != "diff":
            below = incremental.of_files(state, incremental.changed_files(state, between, how), merged=False)
            return self._changed(state.schema, below, None, kinds, packed)
        if between.tags is not None:
            old, new = (state_of(state, s) for s in between.tags)
            if new.snapshot_id is not None and old.snapshot_id is not None and new.snapshot_id < old.snapshot_id:
                raise InvalidRequest(f"table '{self.name}': changes run from an earlier tag to a later one")
        else:
            incremental.check_range(state, between)
            if between.start == between.end:
                return self._changed(state.schema, incremental.of_files(state, (), merged=False), None, kinds, packed)
            new = state_at(state, between.end)
            old = state_at(state, between.start) if between.start else replace(new, snapshot=None)
        # Rows of both are read with the latest columns, as in Paimon, and each with its own deletion-vector mode.
        columns = incremental.columns_of_difference(state.schema, new.schema)
        schema = with_vector_mode_of(columns, new.schema)
        if not new.schema.primary_keys:
            added = tuple(incremental.new_files(old.entries(), new.entries()))
            below = incremental.FilesState(new.name, new.paths, new.store, schema, new.snapshot, added)
            return self._changed(new.schema, below, None, kinds, packed)
        before, after = incremental.differing_files(old, new)
        old_schema = with_vector_mode_of(columns, old.schema)
        earlier = incremental.FilesState(old.name, old.paths, old.store, old_schema, old.snapshot, tuple(before))
        later = incremental.FilesState(new.name, new.paths, new.store, schema, new.snapshot, tuple(after))
        return self._changed(new.schema, later, earlier, kinds, packed)

    def _changed(
        self,
        schema: TableSchema,
        after: incremental.FilesState,
        before: incremental.FilesState | None,
        kinds: bool,
        packed: bool,
    ) -> TableScan:
        if packed and not kinds:
            raise InvalidRequest(f"table '{self.name}': packed rows begin with their kind; leave kinds=False out")
        base = self.scan_of(after)
        if not kinds and not schema.primary_keys:
            return base  # appended rows are all additions, and indexes may help
        earlier = None if before is None else self.scan_of(before)
        return ChangeScan.of(base, earlier, kinded=kinds, packed=packed)

    def _between(self, state: TableState, start: Moment, end: Moment | None) -> incremental.SnapshotRange:
        names = set(tag_names(state.table_files))
        if isinstance(start, str) and isinstance(end, str) and start in names and end in names:
            old, new = load_tag(state, start).snapshot, load_tag(state, end).snapshot
            return incremental.SnapshotRange(old.id, new.id, (old, new))
        last = state.snapshot_id or 0
        return incremental.SnapshotRange(
            self._snapshot_id(state, start), last if end is None else self._snapshot_id(state, end)
        )

    def _snapshot_id(self, state: TableState, moment: Moment) -> int:
        if isinstance(moment, Tag):
            return moment.snapshot.id
        if not isinstance(moment, bool) and hasattr(moment, "__index__"):
            return arguments.whole(f"table '{self.name}': a snapshot id", moment)
        text = arguments.text(f"table '{self.name}': a snapshot id or tag", moment).strip()
        if text.isdigit() and text.isascii():
            return int(text)
        return load_tag(state, text).snapshot.id

    def partition_files(self, state: TableState, where: str | None) -> Sequence[ManifestEntry]:
        """The live files of the partitions for which a condition holds; raises :class:`InvalidRequest` for others."""
        return files_of_partitions(state, where, self.timezone)

    # --- schema ------------------------------------------------------------------------------------------------------

    def alter_options(self, set: Mapping[str, str] | None = None, unset: Sequence[str] = ()) -> TableSchema:
        """Set and unset options by writing a new schema; raises :class:`InvalidRequest` for what Paimon forbids."""

        def step(state: TableState) -> TableSchema:
            schema = state.schema
            options = dict(schema.with_options(texts, unset).options)
            opt.check_stored(self.name, {n: v for n, v in options.items() if n not in texts})
            before = opt.replace_invalid(schema.options, options)
            opt.check_alter(before, options, state.snapshot is not None)
            check_reading(texts)
            check_branch_option(state, options)
            if before != dict(schema.options):
                state = replace(state, schema=replace(schema, options=before))
            check_postponed(state, options)
            check_lookup_change(state, options)
            declares = any(index_name(key) is not None for key in texts)
            check_schema_options(self.name, schema, options, declares=declares)
            check_partition_expiry(texts, schema.partition_keys)
            return schema if options == dict(schema.options) else schema.next(options=options)

        texts = opt.option_texts(set)
        warn_of_misspelt(self.name, texts)
        return self._change_schema(step)

    def alter(self, *changes: SchemaChange, names: Names = Names.FOLDED) -> TableSchema:
        """Change columns, all at once or not at all, by writing a new schema; no data file is touched.

        ``names``: which names are the same column.

        Raises :class:`NotFound`, :class:`AlreadyExists`, and :class:`InvalidRequest` for what Paimon forbids.
        """

        def step(state: TableState) -> TableSchema:
            try:
                new = evolve(state.schema, changes, has_snapshot=state.snapshot is not None, names=names)
            except (AlreadyExists, InvalidRequest, NotFound) as e:
                raise type(e)(f"table '{self.name}': {e}") from e
            check_evolved(self.name, state.schema, new)
            for column in made_not_null(state.schema, new):
                # Paimon takes the caller's word for it, and readers then stumble over the NULLs.
                if self.scan_of(state, IsNull(column)).exists():
                    raise InvalidRequest(
                        f"table '{self.name}': column '{column}' holds NULL: it cannot become NOT NULL"
                    )
            return new

        return self._change_schema(step)

    def _change_schema(self, step: Callable[[TableState], TableSchema]) -> TableSchema:
        """Write the schema that ``step`` makes of the table as it is, again for each schema that came in between."""
        for _ in range(_ALTER_TRIES):
            state = self.stored_state()
            new = step(state)
            check_history(self.store, self.paths)
            if new is state.schema or write_schema(state, new):
                return new
        raise CommitConflict(
            f"table '{self.name}': other writers changed its schema {_ALTER_TRIES} times in a row; try again"
        )

    # --- commits -----------------------------------------------------------------------------------------------------

    def written_by(self, user: str) -> Self:
        """The same table for a writer that comes again under the same name, such as a stream."""
        table = copy.copy(self)
        table._user = user
        return table

    def commit_user(self, state: TableState | None = None) -> str:
        """The user that this handle's commits name, with the prefix that the table's options ask for."""
        prefix = (state or self.state()).schema.opts.of(opt.COMMIT_USER_PREFIX)
        return self._user if prefix is None else f"{prefix}_{self._user}"

    def publisher(self, state: TableState, identifier: int = BATCH_IDENTIFIER) -> Publisher:
        """Return the publisher, which commits the files that are written to buckets."""
        return Publisher(self.state, self.commit_user(state), self.runner(), self.expire_due, identifier)

    def check_writable(self, state: TableState, keyed: bool = False) -> None:
        """Raise for tables that this version can read but must not write; ``keyed`` allows those with a primary key."""
        schema = state.schema
        if schema.primary_keys and not keyed:
            raise InvalidRequest(f"table '{self.name}' has a primary key; only append tables can be written so")
        check_schema_options(self.name, schema, declares=False)

    def commit_files(
        self,
        state: TableState,
        files: Sequence[ManifestEntry],
        operation: str,
        overwrite: Overwrite | None = None,
        identifier: int = BATCH_IDENTIFIER,
    ) -> Snapshot | None:
        """Make new data files visible in one snapshot; they are deleted if surely none is made.

        Raises :class:`bitlake.write.commit.OutcomeUnknown`, and keeps the files, if it may have been made all the same.
        """
        if not files and (overwrite is None or overwrite.dynamic):
            self.expire_due(state, identifier)
            return None
        kind = "APPEND" if overwrite is None else "OVERWRITE"
        batch = stream_batch(state, self.commit_user(state), identifier)
        plan = CommitPlan(kind=kind, adds=tuple(files), overwrite=overwrite, batch=batch)
        snapshot = self._commit(state, plan, operation, partial(self.discard, state, files), identifier)
        if operation != "TRUNCATE":  # expiry drops partitions by it, and in Paimon it expires none either
            self.expire_due(state, identifier)
        return snapshot

    def commit_rows(
        self, state: TableState, deletion: RowDeletion, operation: str, files: Sequence[ManifestEntry] = ()
    ) -> Snapshot | None:
        """Commit a deletion of rows and new files in one snapshot; on failure the files of both are deleted."""
        discard = partial(discard_statement, state, deletion, files)
        snapshot = self._commit(state, deletion.plan(state.schema, files), operation, discard)
        self.expire_due(state)
        return snapshot

    def _commit(
        self,
        state: TableState,
        plan: CommitPlan,
        operation: str,
        discard: Callable[[], None],
        identifier: int = BATCH_IDENTIFIER,
    ) -> Snapshot | None:
        return commit(
            self.store,
            state.paths,
            plan,
            state.schema,
            self.commit_user(state),
            identifier=identifier,
            operation=operation,
            on_failure=discard,
        )

    def discard(self, state: TableState, files: Sequence[ManifestEntry]) -> None:
        """Delete new data files, and their indexes, that no commit will name.  Storage errors are suppressed."""
        discard_entries(state.table_files, state.schema, files)

    def expire_due(self, state: TableState, identifier: int = BATCH_IDENTIFIER) -> None:
        """Expire partitions after a commit to ``state``, if the table asks for it; a failure is logged."""
        expire_after_commit(self.state, self.truncate, state, identifier)

    def truncate(
        self, partition: Mapping[str, Any] | None = None, *others: Mapping[str, Any] | None
    ) -> Snapshot | None:
        """Delete all rows, or those of the partitions that match one of the (physical) specs, in one snapshot."""
        state = self.state()
        self.check_writable(state, keyed=True)
        if partition is not None and not all((partition, *others)):
            raise InvalidRequest(f"table '{self.name}': TRUNCATE with an empty partition names nothing")
        return self.commit_files(state, [], "TRUNCATE", _scope_of(state.schema, partition, *others))

    def delete_partitions(self, scan: TableScan) -> int:
        """Drop the files of the partitions that a scan's condition selects, in one snapshot; returns the rows deleted.

        No row is written, and the changelog lacks the deletion, as in Paimon: see
        :func:`bitlake.mergetree.dml.deletes_partitions`.
        """
        state = scan.state
        self.check_writable(state, keyed=True)
        whole = scan.predicate is None or scan.predicate == TRUE
        if whole:
            specs: Sequence[Mapping[str, Any] | None] = [None] if state.entries() else []
        else:
            specs = partitions_where(state, scan.predicate or TRUE)
        if not specs:
            return 0
        rows = dml.latest_rows(scan).count()
        uuid = None if state.snapshot is None else state.snapshot.uuid
        scope = replace(_scope_of(state.schema, *specs), computed_on=state.snapshot_id, computed_uuid=uuid)
        self.commit_files(state, [], "DELETE", scope)
        return rows

    @tracked("compacting")
    def compact(self, full: bool = False, where: str | None = None) -> Snapshot | None:
        """Compact what is due, or with ``full`` everything: buckets of keys, or small files and deleted rows.

        ``where`` may narrow partitions.  Returns the last COMPACT snapshot; None if there was nothing to do.
        """

        def step(state: TableState) -> Snapshot | None:
            files = self.partition_files(state, where)
            if state.schema.primary_keys:
                made = dml.compact(self, state, files, full)
            else:
                self.check_writable(state)
                made = compact_append(state, files, self.state, self.runner(), self.commit_user(state), full)
            self.expire_due(state)
            return made

        return retrying(self.state, step)

    @tracked("rewriting the file indexes of")
    def rebuild_indexes(self, where: str | None = None) -> list[Rewritten]:
        """Build the file indexes that the options declare and files lack; ``where`` narrows partitions."""
        state = self.state()
        self.check_writable(state, keyed=True)
        # Postponed rows have no bucket yet: their files are rewritten before any index of them is read.
        entries = [e for e in self.partition_files(state, where) if e.bucket >= 0]
        return backfill(state, entries, self.state, self.runner(), self.commit_user(state))

    # --- history -----------------------------------------------------------------------------------------------------

    @contextmanager
    def changing_history(self) -> Iterator[TableState]:
        """The table now, for what changes its history; raises :class:`StorageUnavailable` if it is gone afterwards.

        A rename moves what was created, and takes away what the operation looks at next: it may then report a failure
        though it took place, or a success though its last step did not.
        """
        state = self.state()
        check_history(state.store, state.paths)
        try:
            yield state
        except BitlakeError as e:
            if not has_schema(state.table_files):
                raise self._gone_meanwhile() from e
            raise
        if not has_schema(state.table_files):
            raise self._gone_meanwhile()

    def _gone_meanwhile(self) -> StorageUnavailable:
        return StorageUnavailable(
            f"table '{self.name}' was dropped or renamed meanwhile: whether the change of its history took place is "
            "unknown; if it was renamed, look at its tags, branches and snapshots under the new name"
        )


def _scope_of(schema: TableSchema, *partitions: Mapping[str, Any] | None) -> Overwrite:
    """An overwrite of the partitions that match one of the specs (physical values by column); None: all files."""
    first, *others = (overwrite_scope(schema, spec, filled=False) for spec in partitions)
    return replace(first, others=tuple(s.partition for s in others if s.partition))
