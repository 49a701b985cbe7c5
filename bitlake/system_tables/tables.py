"""Open a system table as a read-only table.

Most are metadata gathered into Arrow.  ``$audit_log``, ``$binlog`` and ``$ro`` are other scans of the table's rows: its
changes with their row kinds, or only compacted files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NoReturn

import pyarrow as pa

from bitlake.errors import InvalidRequest, NotFound
from bitlake.expressions.condition import Where
from bitlake.expressions.evaluate import filter_table
from bitlake.expressions.tree import Predicate, sources_of
from bitlake.file_store_table import FileStoreTable
from bitlake.formats.conform import retyped
from bitlake.metadata import options as opt
from bitlake.metadata.schema import TableSchema, near
from bitlake.scan.change_scan import ChangeScan
from bitlake.scan.incremental import FilesState
from bitlake.scan.metadata_only import ScanAggregates
from bitlake.scan.plan import Plan, ScanMetrics
from bitlake.scan.scan import TableScan
from bitlake.snapshot.state import TableState
from bitlake.snapshot.time_travel import Moment, When
from bitlake.system_tables import files, history
from bitlake.system_tables.rows import Metadata


def audit_log(scan: TableScan) -> TableScan:
    """``$audit_log``: rows with their kinds, deleted ones too while files hold them."""
    return ChangeScan.of(scan, kinded=True)


def binlog(scan: TableScan) -> TableScan:
    """``$binlog``: rows with their kinds, each value in an array."""
    return ChangeScan.of(scan, kinded=True, packed=True)


def read_optimized(scan: TableScan) -> TableScan:
    """``$ro``: of tables with a primary key only files of the last level, which need no merging."""
    state = scan.state
    if not state.schema.primary_keys:
        return scan
    last = _last_level(state.schema)
    files = tuple(e for e in state.entries() if e.file.level == last)
    made = FilesState(state.name, state.paths, state.store, state.schema, state.snapshot, files)
    return replace(scan, state=made, _planned=[])


def _last_level(schema: TableSchema) -> int:
    levels = schema.opts.of(opt.NUM_LEVELS)
    return (levels if levels is not None else schema.opts.of(opt.COMPACTION_TRIGGER) + 1) - 1


VIEWS: dict[str, Callable[[TableScan], TableScan]] = {
    "audit_log": audit_log,
    "binlog": binlog,
    "read_optimized": read_optimized,
    "ro": read_optimized,
}


TABLES: dict[str, Metadata] = {
    **history.HISTORY_TABLES,
    **files.FILE_TABLES,
}
"""System tables that are gathered from metadata, by name."""


@dataclass(frozen=True, slots=True)
class SystemScan(TableScan):
    """Rows of a system table: gathered when they are asked for, filtered as any others."""

    gather: Callable[[], pa.Table] | None = None

    def plan(self) -> Plan:
        """A plan without data files."""
        return Plan(
            table=self.state.name,
            root=self.state.paths.root,
            schema=self.state.schema,
            schemas={},
            snapshot_id=self.state.snapshot_id,
            columns=self.columns,
            predicate=self.predicate,
            limit=self.row_limit,
            files=(),
            metrics=ScanMetrics(),
        )

    def count(self, column: str | None = None) -> int:
        """How many rows there are, or how many are not NULL in a column."""
        name = self.state.schema.fields[0].name if column is None else column
        rows = pa.concat_tables(self.select([name])._tables())
        return int(rows.num_rows - (0 if column is None else rows.column(0).null_count))

    def exists(self) -> bool:
        """Whether there is a row at all."""
        return self.count() > 0

    def aggregates(self, may_read: bool = True) -> ScanAggregates:
        """Raise InvalidRequest: a system table does not have data files with indexes."""
        raise InvalidRequest(f"'{self.state.name}' is a system table: read its rows, and aggregate those")

    def _tables(self, at_most: int | None = None, bounded: bool = True) -> Iterator[pa.Table]:
        assert self.gather is not None
        rows = self.gather()
        if self.predicate is not None:
            needed = sorted(sources_of(self.predicate))
            rows = filter_table(self.predicate, rows, self.state.schema.fields) if needed else rows
        if self.order:
            raise InvalidRequest(f"'{self.state.name}' is a system table: read its rows, and sort those")
        if self.row_limit is not None:
            rows = rows.slice(0, self.row_limit)
        yield retyped(rows.select(list(self.columns)), self.schema)


class SystemTable(FileStoreTable):
    """``t$name``: read as any table, by :meth:`scan`; everything that writes raises :class:`InvalidRequest`."""

    def __init__(self, table: FileStoreTable, system: str) -> None:
        if system not in TABLES and system not in VIEWS:
            known = sorted((*TABLES, *VIEWS))
            raise NotFound(f"table '{table.name}' has no system table '{system}'{near(system, known)}")
        self._table = table
        self._system = system
        super().__init__(
            f"{table.name}${system}",
            table.path,
            table.store,
            timezone=table.timezone,
            to_spark=table.to_spark,
            branch=table.paths.branch,
        )

    @property
    def base(self) -> FileStoreTable:
        """The table that the system table describes."""
        return self._table

    @property
    def system(self) -> str:
        """The name of the system table: ``snapshots``, ``audit_log`` …."""
        return self._system

    def state(self) -> TableState:
        """The system table's columns, with no files of its own."""
        return self._virtual(self._table.state())

    def _virtual(self, state: TableState) -> TableState:
        if self._system in VIEWS:
            schema = VIEWS[self._system](self._table.scan_of(state)).state.schema
        else:
            schema = TABLES[self._system].schema
        return replace(state, name=self.name, schema=schema, snapshot=None)

    def scan_of(self, state: TableState, where: Where | Predicate | None = None) -> TableScan:
        """The rows at a state of the table."""
        if self._system in VIEWS:
            scan = VIEWS[self._system](self._table.scan_of(state))
        else:
            scan = self._gathered(state)
        return scan if where is None else scan.where(where)

    def _gathered(self, state: TableState) -> TableScan:
        metadata = TABLES[self._system]
        virtual = self._virtual(state)
        return SystemScan(
            state=virtual,
            store=self.store,
            columns=virtual.schema.field_names,
            timezone=self.timezone,
            _to_spark=self.to_spark,
            gather=lambda: metadata.table(state),
        )

    def at(self, when: When) -> TableState:
        """The table below, at a moment."""
        return when.of(self._table.state(), self.timezone)

    def query_scan(self, when: When) -> TableScan:
        """The rows at a moment of the table below."""
        return self.scan_of(self.at(when)).for_query(when)

    def changes(
        self, start: Moment, end: Moment | None = None, *, mode: str = "auto", kinds: bool = True, packed: bool = False
    ) -> TableScan:
        """What changed between two moments, with all kinds of rows: of ``$audit_log`` and ``$binlog`` only."""
        if self._system not in ("audit_log", "binlog"):
            self._refuse()
        return self._table.changes(start, end, mode=mode, kinds=True, packed=packed or self._system == "binlog")

    def check_writable(self, state: TableState, keyed: bool = False) -> None:
        """Raises: a system table cannot be written."""
        self._refuse()

    def _change_schema(self, step: Callable[[TableState], TableSchema]) -> TableSchema:
        self._refuse()

    def partition_files(self, state: TableState, where: str | None = None) -> NoReturn:
        """Raises: a system table has no files."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise InvalidRequest(f"'{self.name}' is a system table, which can only be read; use '{self._table.name}'")
