"""``bitlake explain``, ``advise`` and ``report``: what a scan reads, which indexes help, and an HTML report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from bitlake.cli.failures import Usage
from bitlake.cli.run import (
    Integer,
    Run,
    argument,
    columns_option,
    command,
    limit_option,
    table_argument,
    time_travel_options,
    where_option,
    yes_option,
)
from bitlake.errors import NotFound


@command("explain")
@table_argument(required=False)
@where_option()
@columns_option("Explain a scan of these columns: a,b,c.")
@limit_option("Explain a scan of at most N rows.")
@click.option("--sql", metavar="QUERY", help="Explain a query instead; starts Spark.")
@click.option("--analyze", is_flag=True, help="Also read the rows, and report time and bytes of each phase.")
@click.option("--files", is_flag=True, help="Print the plan only: every file with its chosen rows.")
@click.option("--html", metavar="FILE", help="Write an HTML page with charts.")
@time_travel_options
def explain(
    run: Run,
    table: str | None,
    where: str | None,
    columns: str | None,
    limit: int | None,
    sql: str | None,
    analyze: bool,
    files: bool,
    html: str | None,
    snapshot: int | None,
    tag: str | None,
    timestamp: str | None,
) -> None:
    """Show why a scan reads or skips each file and page, and which index would help.

    The command reads metadata and indexes only; --analyze also reads data.

    Example: bitlake explain orders -w "status = 'NEW'"
    """
    if (table is None) == (sql is None):
        raise Usage("name either a TABLE or a query with --sql '…'")
    if files and (analyze or html or sql):
        raise Usage("--files cannot be combined with --analyze, --html or --sql")
    explanation: Any
    if sql is not None:
        if where or columns or limit is not None or snapshot is not None or tag or timestamp:
            raise Usage("--sql cannot be combined with options of a scan: write conditions and columns into the query")
        explanation = run.lake().explanation(sql, analyze=analyze)
    else:
        assert table is not None
        scan = run.scan(table, snapshot, tag, timestamp, where, columns).limit(limit)
        if files:
            run.out.result(scan.explain("dict"), lambda screen: screen.text(scan.explain()))
            return
        explanation = scan.explanation(analyze=analyze)
    if html is not None:
        with open(html, "w", encoding="utf-8") as page:
            page.write(explanation.to_html())
        run.out.note(f"wrote {html}: open it in a browser")
        if not run.out.json:
            return
    run.out.result(explanation.to_dict(), lambda screen: screen.text(explanation.text()))


@command("advise")
@table_argument()
@click.option("--query", "-q", multiple=True, metavar="QUERY", help="A SELECT or a condition; repeatable.")
@click.option("--queries", metavar="FILE", help="A file of SELECT statements, separated by semicolons.")
@click.option("--recorded", is_flag=True, help="Use the scans that the lake recorded (BITLAKE_RECORD_SCANS=1).")
@click.option("--sample", type=Integer(min=1), metavar="N", help="Examine about N rows.")
@click.option(
    "--engine", type=click.Choice(("spark", "python")), default="spark", help="Estimate reads of this engine."
)
@click.option("--apply", is_flag=True, help="Build the advised indexes in this process, and measure their effect.")
@click.option("--layout", is_flag=True, help="With --apply: also rewrite the rows in the advised order, on Spark.")
@yes_option("With --apply: do not ask for confirmation.")
def advise(
    run: Run,
    table: str,
    query: Sequence[str],
    queries: str | None,
    recorded: bool,
    sample: int | None,
    engine: str,
    apply: bool,
    layout: bool,
    yes: bool,
) -> None:
    """Recommend indexes, sort order, buckets and page sizes for a table, from a sample of its rows.

    Without queries, typical ones are assumed. The advice ends with the SQL statements that carry it out; the table
    changes only with --apply.

    Example: bitlake advise orders --query "status = 'NEW'"
    """
    if (yes or layout) and not apply:
        raise Usage(f"--{'yes' if yes else 'layout'} requires --apply")
    workload = [*query, *([_read_queries(queries)] if queries else [])]
    options: dict[str, Any] = {} if sample is None else {"sample": sample}
    advice = run.lake().advise(table, workload or None, recorded=recorded, engine=engine, **options)
    width = run.out.screen.width if run.out.is_terminal else 0
    if not run.out.json:
        run.out.screen.text(advice.text(width))
    rewrite = layout and bool(advice.layout)
    if apply and (advice.statements() or rewrite):
        if run.confirmed("Rewrite the rows in the advised order?" if rewrite else "Build these indexes?", yes):
            advice = advice.apply(run.lake().sql if rewrite else None, layout=rewrite)
            if not run.out.json and advice.measured is not None:
                run.out.screen.text("\n" + advice.measured.text())
        elif not run.out.json:
            run.out.screen.line("no changes made; --yes applies the advice", "bold")
    if run.out.json:
        run.out.result(advice.to_dict(), lambda screen: None)


def _read_queries(file: str) -> str:
    try:
        with open(file, encoding="utf-8") as f:
            return f.read()
    except FileNotFoundError as e:
        raise NotFound(f"file not found: {file}") from e


_SCANS = 1000
"""The report covers at most this many recorded scans, the latest ones."""


@command("report")
@table_argument()
@argument("file", "The page to write; default: TABLE.html in this folder.", required=False)
@click.option("--top", type=Integer(min=1), default=15, metavar="N", help="List the N largest partitions.")
def report(run: Run, table: str, file: str | None, top: int) -> None:
    """Write an HTML report about a table: sizes, small files, indexes, snapshots, and recommended actions.

    The command reads metadata only. With --json it prints the report, and writes a page only if FILE is given.

    Example: bitlake report orders orders.html
    """
    from bitlake.tools.report import gather
    from bitlake.tools.scan_log import default_log

    state = run.state(table)
    recorder = run.catalog().runtime.recorder
    if recorder is None:
        log = default_log(state.paths, state.store)
    else:  # a recorder may keep its logs elsewhere
        log = recorder.log_of(state.name, state.paths, state.store)
    table_report = gather(state, log.read(_SCANS), top=top)
    if file is None and not run.out.json:
        file = f"{state.name.rsplit('.', 1)[-1]}.html"
    if file is not None:
        with open(file, "w", encoding="utf-8") as page:
            page.write(table_report.to_html())
    run.out.result(table_report.to_dict(), lambda screen: screen.line(f"wrote {file}: the report of {state.name}"))
