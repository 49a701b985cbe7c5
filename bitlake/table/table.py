"""A table: scan it, append to it, change its options, keep its indexes."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from bitlake import _clock
from bitlake.deletion import check_history
from bitlake.errors import AlreadyExists, CommitConflict, InvalidRequest, NotFound
from bitlake.expressions.tree import IsNull, Predicate
from bitlake.io import Store
from bitlake.mergetree.deletion_vector_mode import switch_deletion_vectors
from bitlake.mergetree.rescale import rescale
from bitlake.metadata import options as opt
from bitlake.metadata.evolve import evolve
from bitlake.metadata.locations import check_roots
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.names import Names
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.schema_change import AddColumn, DropColumn, RenameColumn, SchemaChange
from bitlake.metadata.snapshot import Snapshot
from bitlake.progress import tracked
from bitlake.runtime import LocalRunner, Recorder, Runner
from bitlake.scan.fallback_branch import check_branch_option
from bitlake.scan.scan import Scan, ToSpark
from bitlake.schema.create import check_options, warn_of_misspelt
from bitlake.schema.evolution import (
    ColumnName,
    ColumnType,
    check_evolved,
    column_changes,
    made_not_null,
    path_of,
    position_of,
    type_of,
)
from bitlake.schema.validation import check_reading
from bitlake.snapshot.expiry import Expiry, Retention, expire, plan_expiry
from bitlake.snapshot.partitions import files_of_partitions
from bitlake.snapshot.schema_commit import check_postponed, write_schema
from bitlake.snapshot.state import TableState, load_state
from bitlake.snapshot.table_files import TableFiles
from bitlake.snapshot.time_travel import Time
from bitlake.snapshot.versions import branch_names
from bitlake.table.history import Moment, When
from bitlake.table.maintenance import TableMaintenance
from bitlake.table.writes import TableWrites
from bitlake.tools.notebook import table_html
from bitlake.tools.scan_log import ScanLog, ScanRecord, default_log
from bitlake.types import arrow_schema
from bitlake.write.index_rewrite import Rewritten, backfill

if TYPE_CHECKING:
    from bitlake.tools.inspect.inspection import Inspection
    from bitlake.tools.report import TableReport

_ALTER_TRIES = 20

if TYPE_CHECKING:
    from bitlake.tools.advise.advice import Advice
    from bitlake.tools.advise.advisor import Given


class Table(TableWrites, TableMaintenance):
    """A handle on a table by name; every call looks at the table as it is then."""

    _options: Mapping[str, str] = {}

    def __init__(
        self,
        name: str,
        root: str,
        store: Store,
        *,
        timezone: str = "UTC",
        to_spark: ToSpark | None = None,
        runner: Callable[[], Runner] = LocalRunner,
        branch: str | None = None,
        opened: bool = False,
        recorder: Recorder | None = None,
        external_roots: Sequence[str] = (),
    ) -> None:
        """``opened``: whether the table is known to be there; ``recorder`` takes its scans down.

        ``external_roots``: folders that may hold files of the table besides its own.
        """
        self.name = name
        self.store = store
        self._paths = TablePaths(root, branch, check_roots(external_roots))
        self._timezone = timezone
        self._to_spark = to_spark
        self._runner = runner
        self._recorder = recorder
        self._user = _clock.new_uuid()
        if not opened:
            self.state()

    def __repr__(self) -> str:
        return f"Table({self.name!r}, {self._paths.root!r})"

    _repr_html_ = table_html

    # --- what it is --------------------------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        """The table's folder."""
        return self._paths.root

    def with_options(self, options: Mapping[str, str]) -> Self:
        """The same table under options that are not stored, such as a session's; ``alter`` does not store them.

        Raises :class:`InvalidRequest` for options that cannot change once the table has data.
        """
        made = copy.copy(self)
        made._options = {**self._options, **options}
        made.state()
        return made

    def state(self) -> TableState:
        """The table now; raises :class:`NotFound` if it is gone."""
        state = self.stored_state()
        return state.with_options(self._options) if self._options else state

    def stored_state(self) -> TableState:
        """The table now under its own options, without those of :meth:`with_options`."""
        state = load_state(self.name, TableFiles(self.store, self._paths))
        if state is None and self._paths.branch is not None:
            names = ", ".join(branch_names(TableFiles(self.store, self._paths))) or "only main"
            raise NotFound(f"table '{self.name}': there is no branch '{self._paths.branch}'; its branches: {names}")
        if state is None:
            raise NotFound(f"table '{self.name}' does not exist: {self._paths.root} holds no schema")
        return state

    @property
    def schema(self) -> TableSchema:
        """The latest schema."""
        return self.state().schema

    @property
    def arrow_schema(self) -> pa.Schema:
        """The latest schema as Arrow's."""
        return arrow_schema(self.schema.fields)

    @property
    def snapshot(self) -> Snapshot | None:
        """The latest snapshot; None before the first commit."""
        return self.state().snapshot

    # --- reading -----------------------------------------------------------------------------------------------------

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: str | Predicate | None = None,
        limit: int | None = None,
        *,
        snapshot: int | None = None,
        tag: str | None = None,
        timestamp: Time | None = None,
        incremental_between: tuple[Moment, Moment] | None = None,
        mode: str = "auto",
    ) -> Scan:
        """Describe rows to read: these columns (default: all), where this holds, at most so many.

        ``where`` is a Spark SQL condition.  One of ``snapshot`` (an id), ``tag`` and ``timestamp`` (the last snapshot
        committed at or before it): the table as it was then, with the columns it had.  ``incremental_between`` two
        snapshot ids or tags: rows that came between them, by ``mode`` (see :meth:`changes`).
        Nothing of the data is read before the scan is asked for it.  Raises :class:`NotFound` for a snapshot that has
        expired, or never was.
        """
        when = When(snapshot, tag, timestamp)
        if incremental_between is None:
            scan = replace(self.query_scan(when), _recorder=self._recorder)
        elif when != When():
            raise InvalidRequest(f"table '{self.name}': give incremental_between or a moment, not both")
        else:
            scan = self.changes(*incremental_between, mode=mode, kinds=False)
        scan = scan if where is None else scan.where(where)
        if columns is not None:
            scan = scan.select(columns)
        return scan.limit(limit)

    def scan_of(self, state: TableState, where: str | Predicate | None = None) -> Scan:
        """A scan of the table as it was at some time; see :meth:`scan`."""
        scan = Scan(
            state=state,
            store=self.store,
            columns=state.schema.field_names,
            timezone=self._timezone,
            _to_spark=self._to_spark,
        )
        return scan if where is None else scan.where(where)

    def recorded_scans(self, most: int | None = 1000, since_ms: int | None = None) -> list[ScanRecord]:
        """The scans of this table that were recorded (``connect(record_scans=True)``), oldest first; the last ``most``.

        ``since_ms``: only those of this time and after, in milliseconds since the epoch.
        """
        return self.scan_log().read(most, since_ms)

    def advise(
        self,
        queries: Given | str | None = None,
        *,
        sample: int | None = None,
        runner: Runner | None = None,
        engine: str = "spark",
    ) -> Advice:
        """What indexes, order, buckets and pages this table should have, and why; nothing is changed.

        ``queries``: conditions (Spark SQL text, predicate trees, or :class:`bitlake.tools.advise.questions.Query` with
        columns and weights), recorded scans, or ``"recorded"`` for those of the table's own log.  Without, typical ones
        are taken: one value, some values, ranges.  ``sample``: about how many rows are looked at, by ``runner``.
        ``engine``: whose reading is weighed, ``spark`` (SQL) or ``python`` (scans in this process).
        ``print`` what is returned, and ``apply()`` it to have the indexes built and the gain measured.
        """
        from bitlake.tools.advise.advisor import advise

        return advise(self, queries, sample, runner or self._runner(), engine)

    def report(self, path: str | os.PathLike[str] | None = None, *, top: int = 15) -> TableReport:
        """Where this table's bytes are, and what to do about it: ``to_html()``, ``to_dict()``; of metadata alone.

        ``path``: a local file to save the page in.  ``top``: how many partitions are named.
        """
        from bitlake.tools.report import gather

        found = gather(self.state(), self.recorded_scans(), top=top)
        if path is not None:
            Path(path).write_text(found.to_html(), encoding="utf-8")
        return found

    @property
    def timezone(self) -> str:
        """The zone of timestamp literals without one."""
        return self._timezone

    def scan_log(self) -> ScanLog:
        """Where the scans of this table are recorded, if they are; what waits to be stored is stored now."""
        if self._recorder is None:
            return default_log(self._paths, self.store)
        self._recorder.flush()
        log: ScanLog = self._recorder.log_of(self.name, self._paths, self.store)
        return log

    def inspect(self, path: str, **asked: Any) -> Inspection:
        """What is in a file of the table: a path, one relative to the table's folder, or just a name.

        ``asked``: ``offset`` and ``limit`` of the entries to show, ``column``, ``value``, ``hex``; see
        :func:`bitlake.tools.inspect.inspection.inspect_file`.
        """
        from bitlake.tools.inspect.inspection import inspect_file

        asked = {"timezone": self._timezone, **asked}
        return inspect_file(path, store=self.store, table=self._paths, **asked)

    # --- maintenance -------------------------------------------------------------------------------------------------

    @tracked("expiring snapshots of")
    def expire_snapshots(
        self,
        retention: Retention | None = None,
        *,
        dry_run: bool = False,
        options: Mapping[str, str] | None = None,
    ) -> Expiry:
        """Delete old snapshots and the files that only they needed; returns what went, or with ``dry_run`` would go.

        What ``retention`` leaves out the options ``snapshot.*`` say, those of ``options`` before the table's.
        """
        state = self.state()
        schema = state.schema.with_options(options) if options else state.schema
        work = plan_expiry if dry_run else expire
        return work(state.table_files, schema, retention or Retention())

    # --- options -----------------------------------------------------------------------------------------------------

    def alter_options(self, set: Mapping[str, str] | None = None, unset: Sequence[str] = ()) -> TableSchema:
        """Set and unset options by writing a new schema; raises :class:`InvalidRequest` for what Paimon forbids."""

        def step(state: TableState) -> TableSchema:
            changed = state.schema.with_options(set, unset)
            opt.check_alter(state.schema.options, changed.options, state.snapshot is not None)
            options = dict(changed.options)
            check_reading(set or {})
            check_branch_option(state, options)
            check_postponed(state, options)
            schema = state.schema
            check_options(self.name, options, schema.fields, schema.partition_keys, schema.primary_keys)
            return state.schema if options == dict(state.schema.options) else state.schema.next(options=options)

        warn_of_misspelt(self.name, set or {})
        return self._change_schema(step)

    @tracked("switching deletion vectors on for")
    def enable_deletion_vectors(self) -> TableSchema:
        """Switch deletion vectors on, with data there: compacts fully, so that readers see the same rows all along.

        Raises :class:`InvalidRequest` if other options do not go with them, :class:`CommitConflict` if other writers
        leave no moment for it.
        """
        return switch_deletion_vectors(self, True)

    @tracked("switching deletion vectors off for")
    def disable_deletion_vectors(self) -> TableSchema:
        """Switch deletion vectors off: compacts fully, since without them deleted rows would come back."""
        return switch_deletion_vectors(self, False)

    @tracked("rescaling")
    def rescale(self, buckets: int) -> None:
        """Spread the rows over another number of fixed buckets, by an overwrite with the table's own rows.

        Raises :class:`InvalidRequest` for a table without fixed buckets.
        """
        rescale(self, buckets)

    # --- columns -----------------------------------------------------------------------------------------------------

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

    def add_column(
        self,
        name: ColumnName,
        type: ColumnType,
        *,
        comment: str | None = None,
        first: bool = False,
        after: str | None = None,
    ) -> TableSchema:
        """Add a nullable column, or a member to a struct (``"s.x"``); rows that are there read NULL."""
        path = path_of(self.schema, name)
        return self.alter(AddColumn(path, type_of(type), comment, position_of(first, after)))

    def drop_column(self, name: ColumnName, *, if_exists: bool = False) -> TableSchema:
        """Drop a column, or a struct's member, and the indexes that options declare on it."""
        return self.alter(DropColumn(path_of(self.schema, name), if_exists))

    def rename_column(self, name: ColumnName, new_name: str) -> TableSchema:
        """Rename a column, or a struct's member; options that name it follow."""
        return self.alter(RenameColumn(path_of(self.schema, name), new_name))

    def alter_column(
        self,
        name: ColumnName,
        *,
        type: ColumnType | None = None,
        nullable: bool | None = None,
        comment: str | None = None,
        default: str | None = None,
        first: bool = False,
        after: str | None = None,
    ) -> TableSchema:
        """Change what is given: type (values are cast when read), NOT NULL, comment, default (SQL text), place.

        An empty ``comment`` or ``default`` takes it away.
        """
        path = path_of(self.schema, name)
        return self.alter(*column_changes(path, type, nullable, comment, default, position_of(first, after)))

    def _change_schema(self, step: Callable[[TableState], TableSchema]) -> TableSchema:
        """Write the schema that ``step`` makes of the table as it is, again for each schema that came in between."""
        for _ in range(_ALTER_TRIES):
            state = self.stored_state()
            new = step(state)
            check_history(self.store, self._paths)
            if new is state.schema or write_schema(state, new):
                return new
        raise CommitConflict(
            f"table '{self.name}': other writers changed its schema {_ALTER_TRIES} times in a row; try again"
        )

    # --- indexes -----------------------------------------------------------------------------------------------------

    @tracked("rewriting the file indexes of")
    def rewrite_file_index(self, where: str | None = None) -> list[Rewritten]:
        """Build the file indexes that the options ask for and files lack; ``where`` may narrow partitions.

        Returns what became of each file.  Large tables are committed a batch of files at a time: a backfill that was
        killed goes on where it was when it is called again.
        """
        state = self.state()
        self.check_writable(state, keyed=True)
        # Postponed rows have no bucket yet: nothing is read of their files before they are written anew.
        entries = [e for e in self.partition_files(state, where) if e.bucket >= 0]
        return backfill(state, entries, self.state, self._runner(), self._commit_user(state))

    def partition_files(self, state: TableState, where: str | None) -> list[ManifestEntry]:
        """The live files of the partitions for which a condition holds; raises :class:`InvalidRequest` for others."""
        return files_of_partitions(state, where, self._timezone)
