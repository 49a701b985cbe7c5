"""A table: scan it, append to it, change its options, keep its indexes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from bitlake import _clock
from bitlake.errors import AlreadyExists, CommitConflict, InvalidRequest, NotFound
from bitlake.metadata import options as opt
from bitlake.metadata.evolve import evolve
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.schema_change import AddColumn, DropColumn, RenameColumn, SchemaChange
from bitlake.metadata.snapshot import Snapshot
from bitlake.predicate.bind import bind
from bitlake.predicate.parse import parse_predicate
from bitlake.predicate.stats import Verdict, test_stats
from bitlake.predicate.tree import IsNull, Predicate, columns_of
from bitlake.storage import Store
from bitlake.table.alter import (
    ColumnName,
    ColumnType,
    check_evolved,
    column_changes,
    made_not_null,
    path_of,
    position_of,
    type_of,
)
from bitlake.table.append_delete import RowsGone
from bitlake.table.append_update import delete_rows, discard_all, retrying, update_rows
from bitlake.table.backfill import backfill
from bitlake.table.commit import CommitPlan, Overwrite, commit
from bitlake.table.create import check_options
from bitlake.table.expire import Expiry, Retention, expire, plan_expiry
from bitlake.table.partition_spec import overwrite_scope as overwrite_scope
from bitlake.table.partition_spec import physical_partition
from bitlake.table.partitions import PartitionReader, discard_entries
from bitlake.table.rewrite_index import Rewritten
from bitlake.table.runner import LocalRunner, Runner
from bitlake.table.scan import Scan, ToSpark
from bitlake.table.state import TableState, load_state, state_at
from bitlake.table.write import write_rows
from bitlake.types import arrow_schema

_ALTER_TRIES = 20

Rows: TypeAlias = pa.Table | pa.RecordBatch | Iterable[pa.RecordBatch]


class Table:
    """A handle on a table by name; every call looks at the table as it is then."""

    def __init__(
        self,
        name: str,
        root: str,
        store: Store,
        *,
        timezone: str = "UTC",
        to_spark: ToSpark | None = None,
        runner: Callable[[], Runner] = LocalRunner,
    ) -> None:
        self.name = name
        self.store = store
        self._paths = TablePaths(root)
        self._timezone = timezone
        self._to_spark = to_spark
        self._runner = runner
        self._user = _clock.new_uuid()
        self.state()

    def __repr__(self) -> str:
        return f"Table({self.name!r}, {self._paths.root!r})"

    # --- what it is --------------------------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        """The table's folder."""
        return self._paths.root

    def state(self) -> TableState:
        """The table now; raises :class:`NotFound` if it is gone."""
        state = load_state(self.name, self._paths, self.store)
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
    ) -> Scan:
        """Describe rows to read: these columns (default: all), where this holds, at most so many.

        ``where`` is a Spark SQL condition; ``snapshot`` an id: the table as it was then, with the columns it had.
        Nothing of the data is read before the scan is asked for it.  Raises :class:`NotFound` for a snapshot that has
        expired, or never was.
        """
        state = self.state() if snapshot is None else state_at(self.state(), snapshot)
        scan = self.scan_of(state, where)
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

    # --- writing -----------------------------------------------------------------------------------------------------

    def append(self, rows: Rows) -> Snapshot | None:
        """Add Arrow rows; all of them become visible at once, or none.  Returns the snapshot (None for no rows)."""
        state = self.state()
        self.check_writable(state)
        return self.commit_files(state, write_rows(state, _tables(rows), self.store), "WRITE")

    def overwrite(self, rows: Rows, partition: Mapping[str, Any] | None = None) -> Snapshot | None:
        """Replace the table's rows, or with ``partition`` those of the partitions that match it.

        An empty ``partition`` replaces just the partitions that ``rows`` has.  Rows outside ``partition`` are an error.
        """
        state = self.state()
        self.check_writable(state)
        scope = overwrite_scope(state.schema, physical_partition(self.name, state.schema, partition))
        return self.commit_files(state, write_rows(state, _tables(rows), self.store), "OVERWRITE", scope)

    def delete(self, where: str | Predicate | None = None) -> int:
        """Delete the rows for which a Spark SQL condition is TRUE (all without one); returns how many.

        With ``deletion-vectors.enabled`` data files stay, else those with such rows are written anew.
        """

        def step(state: TableState) -> int:
            self.check_writable(state)
            return delete_rows(self.scan_of(state, where), self._runner(), self.commit_rows)

        return retrying(self.state, step)

    def update(self, values: Mapping[str, Any], where: str | Predicate | None = None) -> int:
        """Set columns of the rows for which a condition is TRUE; returns how many.

        A new value is a constant, or a function of the old rows (an Arrow table of all columns) that gives a column.
        """

        def step(state: TableState) -> int:
            self.check_writable(state)
            return update_rows(self.scan_of(state, where), values, self._runner(), self.commit_rows)

        return retrying(self.state, step)

    def commit_rows(
        self, state: TableState, gone: RowsGone, operation: str, files: Sequence[ManifestEntry] = ()
    ) -> Snapshot | None:
        """Publish rows taken out of an append table and new files in one snapshot; on failure all of it is deleted."""
        return commit(
            self.store,
            state.paths,
            gone.plan(state.schema, files),
            state.schema,
            self._commit_user(state),
            operation=operation,
            on_failure=lambda: discard_all(state, gone, files),
        )

    def truncate(self, partition: Mapping[str, Any] | None = None) -> Snapshot | None:
        """Delete all rows, or those of the partitions that match."""
        state = self.state()
        self.check_writable(state)
        if partition is not None and not partition:
            raise InvalidRequest(f"table '{self.name}': TRUNCATE with an empty partition names nothing")
        return self.commit_files(state, [], "TRUNCATE", overwrite_scope(state.schema, partition))

    def commit_files(
        self, state: TableState, files: Sequence[ManifestEntry], operation: str, overwrite: Overwrite | None = None
    ) -> Snapshot | None:
        """Make new data files visible in one snapshot; they are deleted if surely none is made.

        Raises :class:`bitlake.table.commit.OutcomeUnknown`, and keeps the files, if it may have been made all the same.
        """
        if not files and (overwrite is None or overwrite.dynamic):
            return None
        kind = "APPEND" if overwrite is None else "OVERWRITE"
        plan = CommitPlan(kind=kind, adds=tuple(files), overwrite=overwrite)
        return self._commit(state, plan, operation, files)

    def _commit(
        self, state: TableState, plan: CommitPlan, operation: str | None, made: Sequence[ManifestEntry]
    ) -> Snapshot | None:
        return commit(
            self.store,
            state.paths,
            plan,
            state.schema,
            self._commit_user(state),
            operation=operation,
            on_failure=lambda: self.discard(state, made),
        )

    def discard(self, state: TableState, files: Sequence[ManifestEntry]) -> None:
        """Delete new data files, and their indexes, that no commit will name, as well as can be."""
        discard_entries(self.store, state.paths, state.schema, files)

    def check_writable(self, state: TableState) -> None:
        """Raise for tables that this version can read but must not write."""
        schema = state.schema
        if schema.primary_keys:
            raise InvalidRequest(f"table '{self.name}' has a primary key; only append tables can be written")
        check_options(self.name, dict(schema.options), schema.fields, schema.partition_keys, schema.primary_keys)

    # --- maintenance -------------------------------------------------------------------------------------------------

    def expire_snapshots(self, retention: Retention | None = None, *, dry_run: bool = False) -> Expiry:
        """Delete old snapshots and the files that only they needed; returns what went, or with ``dry_run`` would go.

        What the options ``snapshot.*`` say holds for what ``retention`` leaves out.
        """
        state = self.state()
        expiry = plan_expiry(self.store, state.paths, state.schema, retention or Retention())
        if not dry_run:
            expire(self.store, state.paths, expiry)
        return expiry

    # --- options -----------------------------------------------------------------------------------------------------

    def alter_options(self, set: Mapping[str, str] | None = None, unset: Sequence[str] = ()) -> TableSchema:
        """Set and unset options by writing a new schema; raises :class:`InvalidRequest` for what Paimon forbids."""

        def step(state: TableState) -> TableSchema:
            changed = state.schema.with_options(set, unset)
            opt.check_alter(state.schema.options, changed.options, state.snapshot is not None)
            options = dict(changed.options)
            schema = state.schema
            check_options(self.name, options, schema.fields, schema.partition_keys, schema.primary_keys)
            return state.schema if options == dict(state.schema.options) else state.schema.next(options=options)

        return self._change_schema(step)

    # --- columns -----------------------------------------------------------------------------------------------------

    def alter(self, *changes: SchemaChange) -> TableSchema:
        """Change columns, all at once or not at all, by writing a new schema; no data file is touched.

        Raises :class:`NotFound`, :class:`AlreadyExists`, and :class:`InvalidRequest` for what Paimon forbids.
        """

        def step(state: TableState) -> TableSchema:
            try:
                new = evolve(state.schema, changes, has_snapshot=state.snapshot is not None)
            except (AlreadyExists, InvalidRequest, NotFound) as e:
                raise type(e)(f"table '{self.name}': {e}") from e
            check_evolved(self.name, state.schema, new)
            for column in made_not_null(state.schema, new):
                # Paimon takes the caller's word for it, and readers then stumble over the NULLs.
                if self.scan(where=IsNull(column)).exists():
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
            state = self.state()
            new = step(state)
            if new is state.schema or self.store.create(self._paths.schema(new.id), new.to_json().encode()):
                return new
        raise CommitConflict(
            f"table '{self.name}': other writers changed its schema {_ALTER_TRIES} times in a row; try again"
        )

    # --- indexes -----------------------------------------------------------------------------------------------------

    def rewrite_file_index(self, where: str | None = None) -> list[Rewritten]:
        """Build the file indexes that the options ask for and files lack; ``where`` may narrow partitions.

        Returns what became of each file.  Large tables are committed a batch of files at a time: a backfill that was
        killed goes on where it was when it is called again.
        """
        state = self.state()
        self.check_writable(state)
        entries = self._partition_files(state, where)
        return backfill(state, entries, self.state, self._runner(), self._commit_user(state))

    def _commit_user(self, state: TableState) -> str:
        prefix = state.schema.opts.of(opt.COMMIT_USER_PREFIX)
        return self._user if prefix is None else f"{prefix}_{self._user}"

    def _partition_files(self, state: TableState, where: str | None) -> list[ManifestEntry]:
        entries = state.entries()
        if where is None:
            return list(entries)
        predicate = bind(parse_predicate(where, self._timezone), state.schema.fields, self._timezone)
        others = columns_of(predicate) - frozenset(state.schema.partition_keys)
        if others:
            raise InvalidRequest(
                f"table '{self.name}': the condition names '{min(others)}', but only partition columns "
                f"({', '.join(state.schema.partition_keys) or 'there are none'}) can choose files"
            )
        partitions = PartitionReader(state.schema, state.paths)
        return [e for e in entries if test_stats(predicate, partitions.stats(e.partition), 1) is not Verdict.NONE]


def _tables(rows: Rows) -> Iterator[pa.Table]:
    if isinstance(rows, pa.Table):
        yield rows
    elif isinstance(rows, pa.RecordBatch):
        yield pa.Table.from_batches([rows])
    elif hasattr(rows, "__arrow_c_stream__"):
        yield from (pa.Table.from_batches([b]) for b in pa.RecordBatchReader.from_stream(rows))
    else:
        for batch in rows:
            yield batch if isinstance(batch, pa.Table) else pa.Table.from_batches([batch])
