"""Notebook representations of a table, a scan and a plan: plain HTML, with all external text escaped."""

from __future__ import annotations

from typing import Protocol

from bitlake.catalog.catalog import Catalog
from bitlake.errors import BitlakeError
from bitlake.expressions.sql_text import to_sql
from bitlake.html import Child, Markup, grid, markup, more, remark, titled
from bitlake.scan.plan import Plan
from bitlake.scan.scan import TableScan
from bitlake.snapshot.state import TableState
from bitlake.snapshot.time_travel import time_text
from bitlake.tools.explain.text import explain_text


class _Shown(Protocol):
    """The parts of a table that are shown."""

    name: str

    @property
    def path(self) -> str: ...

    def state(self) -> TableState: ...


_MOST = 200
"""Columns that are shown of a table."""


def lake_html(path: str, catalog: Catalog, current: str) -> str:
    """A lake: the names of its tables by database."""
    try:
        rows: list[list[Child]] = []
        for database in catalog.databases():
            tables = catalog.tables(database)
            names = ", ".join(tables[:_MOST]) + (f" and {len(tables) - _MOST:,} more" if len(tables) > _MOST else "")
            rows.append([f"{database} (current)" if database == current else database, len(tables), names])
        tables_grid = grid(["database", "tables", ""], rows, [1]) if rows else remark("no tables yet")
    except BitlakeError as e:
        tables_grid = remark(str(e))
    return titled("Lake", path, tables_grid)


def table_html(table: _Shown) -> str:
    """A table: its columns, keys, options and latest snapshot, as of now."""
    try:
        state = table.state()
        return titled(f"Table {table.name}", table.path, _columns(state), _options(state), remark(_snapshot(state)))
    except BitlakeError as e:
        return titled(f"Table {table.name}", table.path, remark(str(e)))


def _columns(state: TableState) -> Markup:
    schema = state.schema
    rows: list[list[Child]] = []
    for field in schema.fields[:_MOST]:
        roles = [
            word
            for word, names in (("primary key", schema.primary_keys), ("partition", schema.partition_keys))
            if field.name in names
        ]
        kind = str(field.type)
        nullable = field.type.nullable
        rows.append([field.name, kind.removesuffix(" NOT NULL"), "" if nullable else "NOT NULL", ", ".join(roles)])
        rows[-1].append(field.description or "")
    columns_grid = grid(["column", "type", "", "key", "comment"], rows)
    left = len(schema.fields) - _MOST
    return markup("div", columns_grid, remark(f"and {left:,} more columns") if left > 0 else None)


def _options(state: TableState) -> Markup | None:
    options = sorted(state.schema.options.items())
    return more(f"options ({len(options)})", grid(["option", "value"], options)) if options else None


def _snapshot(state: TableState) -> str:
    snapshot = state.snapshot
    if snapshot is None:
        return "no snapshot yet: the table is empty"
    stored = "stored versions of rows" if state.schema.primary_keys else "rows"
    count = f"{snapshot.total_record_count or 0:,} {stored}"
    return f"snapshot {snapshot.id} ({snapshot.commit_kind}), {time_text(snapshot.time_millis)}: {count}"


def scan_html(scan: TableScan) -> str:
    """A scan, of which nothing is read for it."""
    facts: list[list[Child]] = [["columns", ", ".join(scan.columns) or "none: only counting"]]
    if scan.predicate is not None:
        facts.append(["where", to_sql(scan.predicate, scan.state.schema.fields)])
    if scan.row_limit is not None:
        facts.append(["limit", f"{scan.row_limit:,}"])
    at = "an empty table" if scan.state.snapshot is None else f"snapshot {scan.state.snapshot_id}"
    below = remark("nothing is read yet: .to_arrow() or .to_spark() gives the rows, .explain() says what is read")
    return titled(f"Scan of {scan.state.name}", at, grid(["", ""], facts), below)


def plan_html(plan: Plan) -> str:
    """A plan, as text."""
    return markup("pre", explain_text(plan))
