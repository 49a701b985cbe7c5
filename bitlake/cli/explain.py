"""``bitlake explain``, ``advise`` and ``report``: what a scan reads, which indexes help, and a page about a table."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bitlake.cli.failures import Usage
from bitlake.cli.run import (
    Command,
    OptionalTable,
    Run,
    SnapshotOption,
    TableName,
    TagOption,
    WhenOption,
    Where,
    command,
)


def register(app: typer.Typer, name: str) -> None:
    """Add one of these commands."""
    commands: dict[str, Command] = {"explain": explain, "advise": advise, "report": report}
    command(app, name, commands[name])


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


def advise(
    run: Run,
    table: TableName,
    query: Annotated[
        list[str] | None, typer.Option("--query", "-q", help="A SELECT, or a condition; may be repeated.")
    ] = None,
    queries: Annotated[
        str | None, typer.Option("--queries", metavar="FILE", help="A file of SELECTs with ; between them.")
    ] = None,
    recorded: Annotated[
        bool, typer.Option("--recorded", help="The scans that the lake recorded (BITLAKE_RECORD_SCANS=1).")
    ] = False,
    sample: Annotated[int | None, typer.Option(min=1, help="Look at about so many rows.")] = None,
    engine: Annotated[str, typer.Option(help="Whose reading is weighed: spark or python.")] = "spark",
    apply: Annotated[
        bool, typer.Option("--apply", help="Build the indexes that are advised, here, and measure what they bring.")
    ] = False,
    layout: Annotated[
        bool, typer.Option("--layout", help="With --apply: lay the rows out anew, too, as advised; on Spark.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --apply: do not ask.")] = False,
) -> None:
    """Which indexes, order, buckets and pages a table should have, from a sample of its rows; changes nothing.

    Without queries typical ones are assumed. The statements that do what is advised are printed with it.
    """
    if engine not in ("spark", "python"):
        raise Usage(f"--engine is spark or python, and not '{engine}'")
    if (yes or layout) and not apply:
        raise Usage(f"--{'yes' if yes else 'layout'} goes with --apply")
    asked = [*(query or ()), *([_read_queries(queries)] if queries else [])]
    given: dict[str, Any] = {} if sample is None else {"sample": sample}
    advice = run.lake().advise(table, asked or None, recorded=recorded, engine=engine, **given)
    width = run.out.screen.width if run.out.is_terminal else 0
    if not run.out.json:
        run.out.screen.text(advice.text(width))
    anew = layout and bool(advice.layout)
    if apply and (advice.statements() or anew):
        if run.agreed("Lay the rows out anew?" if anew else "Build these indexes?", yes):
            advice = advice.apply(run.lake().sql if anew else None, layout=anew)
            if not run.out.json and advice.measured is not None:
                run.out.screen.text("\n" + advice.measured.text())
        elif not run.out.json:
            run.out.screen.line("nothing was changed; --yes does it", "bold")
    if run.out.json:
        run.out.result(advice.to_dict(), lambda screen: None)


def _read_queries(file: str) -> str:
    from bitlake.errors import NotFound

    try:
        with open(file, encoding="utf-8") as f:
            return f.read()
    except FileNotFoundError as e:
        raise NotFound(f"there is no file {file}") from e


_SCANS = 1000
"""Recorded scans that are looked at, the last ones."""


def report(
    run: Run,
    table: TableName,
    file: Annotated[str | None, typer.Argument(metavar="FILE", help="The page; default: TABLE.html here.")] = None,
    top: Annotated[int, typer.Option(min=1, help="So many partitions are named.")] = 15,
) -> None:
    """Write an HTML page about a table: its bytes, small files, indexes, snapshots, and what to do about them.

    It is made of metadata alone: no data is read. With --json the same is printed, and a page is only written to FILE.
    """
    from bitlake.tools.report import gather
    from bitlake.tools.scan_log import default_log

    found = run.state(table)
    recorder = run.lake().catalog.recorder
    if recorder is None:
        log = default_log(found.paths, found.store)
    else:  # which may keep its logs elsewhere
        log = recorder.log_of(found.name, found.paths, found.store)
    made = gather(found, log.read(_SCANS), top=top)
    if file is None and not run.out.json:
        file = f"{found.name.rsplit('.', 1)[-1]}.html"
    if file is not None:
        with open(file, "w", encoding="utf-8") as page:
            page.write(made.to_html())
    run.out.result(made.to_dict(), lambda screen: screen.line(f"wrote {file}: the report of {found.name}"))
