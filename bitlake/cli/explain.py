"""``bitlake explain``: why each file is read or skipped."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bitlake.cli.failures import Usage
from bitlake.cli.output import Screen
from bitlake.cli.run import OptionalTable, Run, SnapshotOption, TagOption, WhenOption, Where, command


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "explain", explain)


def explain(
    run: Run,
    table: OptionalTable = None,
    where: Where = None,
    columns: Annotated[str | None, typer.Option("--columns", "-c", help="Of these columns: a,b,c.")] = None,
    limit: Annotated[int | None, typer.Option(min=0, help="Of at most so many rows.")] = None,
    sql: Annotated[str | None, typer.Option("--sql", help="Explain a query instead; starts Spark.")] = None,
    read: Annotated[bool, typer.Option("--read", help="Read the rows too, and tell what that took.")] = False,
    snapshot: SnapshotOption = None,
    tag: TagOption = None,
    timestamp: WhenOption = None,
) -> None:
    """Why each file of a table is read or skipped for a question, and what its indexes say.

    Nothing of the data is read without --read.
    """
    from bitlake.table.explain import explain_dict, explain_text

    if (table is None) == (sql is None):
        raise Usage("name a TABLE, or a query with --sql '…'")
    if sql is not None:
        plans = run.lake().plans(sql)
    else:
        names = [c.strip() for c in columns.split(",")] if columns else None
        assert table is not None
        scan = run.table(table).scan(names, where, limit, snapshot=snapshot, tag=tag, timestamp=timestamp)
        if read:
            for _ in scan.to_batches():
                pass
        plans = [scan.plan()]
    document: dict[str, Any] = {"query": sql, "plans": [explain_dict(p) for p in plans]}

    def show(screen: Screen) -> None:
        for plan in plans:
            screen.line(explain_text(plan))
        if not plans:
            screen.line("the query reads no table of the lake")

    run.out.result(document, show)
