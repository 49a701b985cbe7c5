"""``bitlake explain``: why each file and page is read or skipped."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bitlake.cli.failures import Usage
from bitlake.cli.run import OptionalTable, Run, SnapshotOption, TagOption, WhenOption, Where, command


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "explain", explain)


def explain(
    run: Run,
    table: OptionalTable = None,
    where: Where = None,
    columns: Annotated[str | None, typer.Option("--columns", "-c", help="Of these columns: a,b,c.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=0, help="Of at most so many rows.")] = None,
    sql: Annotated[str | None, typer.Option("--sql", help="Explain a query instead; starts Spark.")] = None,
    analyze: Annotated[bool, typer.Option("--analyze", help="Read the rows too, and tell what that took.")] = False,
    files: Annotated[bool, typer.Option("--files", help="Only the plan: every file with its rows.")] = False,
    html: Annotated[str | None, typer.Option("--html", metavar="FILE", help="Write a page with pictures.")] = None,
    snapshot: SnapshotOption = None,
    tag: TagOption = None,
    timestamp: WhenOption = None,
) -> None:
    """Why each file and page is read or skipped for a question, and what index would have helped.

    Nothing of the data is read without --analyze.
    """
    if (table is None) == (sql is None):
        raise Usage("name a TABLE, or a query with --sql '…'")
    if files and (analyze or html or sql):
        raise Usage("--files is the plan alone: it goes without --analyze, --html and --sql")
    told: Any
    if sql is not None:
        if where or columns or limit is not None or snapshot is not None or tag or timestamp:
            raise Usage("a query says all of it: --sql goes without --where, --columns, --limit and moments")
        told = run.lake().explanation(sql, analyze=analyze)
    else:
        names = [c.strip() for c in columns.split(",")] if columns else None
        assert table is not None
        scan = run.scan(table, snapshot, tag, timestamp)
        scan = scan if where is None else scan.where(where)
        scan = (scan if names is None else scan.select(names)).limit(limit)
        if files:
            run.out.result(scan.explain("dict"), lambda screen: screen.text(scan.explain()))
            return
        told = scan.explanation(analyze=analyze)
    if html is not None:
        with open(html, "w", encoding="utf-8") as page:
            page.write(told.to_html())
        run.out.note(f"wrote {html}: open it in a browser")
        if not run.out.json:
            return
    run.out.result(told.to_dict(), lambda screen: screen.text(told.text()))
