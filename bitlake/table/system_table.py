"""A system table, such as ``t$files``, opened as a read-only table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NoReturn

from bitlake.errors import InvalidRequest, NotFound
from bitlake.expressions.tree import Predicate
from bitlake.metadata.schema import TableSchema, near
from bitlake.scan.scan import Scan
from bitlake.snapshot.state import TableState
from bitlake.system_tables.tables import TABLES, VIEWS, SystemScan
from bitlake.table.history import Moment, When
from bitlake.table.table import Table


class SystemTable(Table):
    """``t$name``: read as any table, by :meth:`scan`; everything that writes raises :class:`InvalidRequest`."""

    def __init__(self, table: Table, system: str) -> None:
        if system not in TABLES and system not in VIEWS:
            known = sorted((*TABLES, *VIEWS))
            hint = near(system, known)
            raise NotFound(f"table '{table.name}' has no system table '{system}'{hint}; there are {', '.join(known)}")
        self._table = table
        self._system = system
        super().__init__(
            f"{table.name}${system}",
            table.path,
            table.store,
            timezone=table._timezone,
            to_spark=table._to_spark,
            branch=table._paths.branch,
        )

    @property
    def base(self) -> Table:
        """The table that it tells of."""
        return self._table

    @property
    def system(self) -> str:
        """What it tells: ``snapshots``, ``audit_log`` …."""
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

    def scan_of(self, state: TableState, where: str | Predicate | None = None) -> Scan:
        """The rows at a state of the table."""
        if self._system in VIEWS:
            scan = VIEWS[self._system](self._table.scan_of(state))
        else:
            scan = self._gathered(state)
        return scan if where is None else scan.where(where)

    def _gathered(self, state: TableState) -> Scan:
        metadata = TABLES[self._system]
        virtual = self._virtual(state)
        return SystemScan(
            state=virtual,
            store=self.store,
            columns=virtual.schema.field_names,
            timezone=self._timezone,
            _to_spark=self._to_spark,
            gather=lambda: metadata.table(state),
        )

    def at(self, when: When) -> TableState:
        """The table below, at a moment."""
        return when.of(self._table.state(), self._timezone)

    def query_scan(self, when: When) -> Scan:
        """The rows at a moment of the table below."""
        return self.scan_of(self.at(when)).for_query(when)

    def changes(
        self, start: Moment, end: Moment | None = None, *, mode: str = "auto", kinds: bool = True, packed: bool = False
    ) -> Scan:
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
