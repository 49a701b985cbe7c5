"""``bitlake tables``: what is in the lake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from bitlake.cli.output import Screen, iso, when
from bitlake.cli.run import Run, command

if TYPE_CHECKING:
    from bitlake.lake import Lake


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "tables", tables)


def tables(
    run: Run,
    names: Annotated[bool, typer.Option("--names", help="Only names: no table is opened.")] = False,
) -> None:
    """The tables of the lake, by database, with their rows and last commit.

    All databases are listed, or the one of --database.
    """
    from bitlake.table.runner import REQUESTS, LocalRunner

    lake = run.lake()
    databases = [run.options.database] if run.options.database else lake.databases()
    if not databases or run.options.database:
        run.check_folder()
    found = [(d, t) for d in databases for t in sorted(lake.tables(d))]
    if names:
        rows = [{"database": d, "table": t} for d, t in found]
        run.out.result({"lake": lake.path, "tables": rows}, lambda screen: _names(screen, rows))
        return
    rows = LocalRunner(REQUESTS).run(found, lambda name: _table(lake, *name))
    run.out.result({"lake": lake.path, "tables": rows}, lambda screen: _show(screen, rows))
    if any(r["error"] for r in rows):
        run.out.problems()


def _table(lake: Lake, database: str, name: str) -> dict[str, Any]:
    from bitlake.errors import BitlakeError
    from bitlake.table.catalog import Identifier
    from bitlake.table.opening import open_state

    row: dict[str, Any] = {"database": database, "table": name, "error": None}
    try:
        state = open_state(lake.catalog, Identifier(database, name))
    except BitlakeError as e:
        return {**row, "error": str(e)}
    schema, snapshot = state.schema, state.snapshot
    return {
        **row,
        "columns": len(schema.fields),
        "primary_key": list(schema.primary_keys),
        "partitioned_by": list(schema.partition_keys),
        "snapshot": state.snapshot_id,
        "rows": snapshot.total_record_count if snapshot else 0,
        "committed_at": iso(snapshot.time_millis) if snapshot else None,
        "comment": schema.comment,
    }


def _names(screen: Screen, rows: list[dict[str, Any]]) -> None:
    for r in rows:
        screen.line(f"{r['database']}.{r['table']}")


def _show(screen: Screen, rows: list[dict[str, Any]]) -> None:
    shown: list[tuple[Any, ...]] = [
        (
            f"{r['database']}.{r['table']}",
            ", ".join(r["primary_key"]) or None,
            ", ".join(r["partitioned_by"]) or None,
            r["rows"],
            when(r["committed_at"]),
        )
        if not r["error"]
        else (f"{r['database']}.{r['table']}", None, None, None, f"error: {r['error']}")
        for r in rows
    ]
    columns = ["table", "*primary key", "*partitioned by", ">rows", "last commit"]
    for i in (2, 1):
        if not any(row[i] for row in shown):
            del columns[i]
            shown = [(*row[:i], *row[i + 1 :]) for row in shown]
    screen.table(columns, shown, empty="no tables yet")
