"""``bitlake head`` and ``count``: the first rows of a table, and how many there are, read in this process."""

from __future__ import annotations

import time

import click

from bitlake.cli.parameters import columns_option, limit_option, table_argument, time_travel_options, where_option
from bitlake.cli.run import Run, command


@command("head")
@table_argument()
@where_option()
@columns_option()
@limit_option("Return at most N rows.", 10)
@click.option(
    "--format", type=click.Choice(("table", "csv", "json")), default="table", help="table, csv, or json: one per line."
)
@time_travel_options
def head(
    run: Run,
    table: str,
    where: str | None,
    columns: str | None,
    limit: int,
    format: str,
    snapshot: int | None,
    tag: str | None,
    timestamp: str | None,
) -> None:
    """Show rows of a table that match a condition, without starting Spark.

    Example: bitlake head orders -w "status = 'NEW'" -c order_id,amount -n 5
    """
    scan = run.scan(table, snapshot, tag, timestamp, where, columns)
    # Imported lazily: loads pyarrow, which is not needed to report a wrong name or condition.
    from bitlake.cli.result import SHOW, Result

    started = time.perf_counter()
    rows = scan.limit(limit).to_arrow()
    result = Result(f"head {table}", rows, False, time.perf_counter() - started)
    run.out.result(result.document(), lambda screen: SHOW[format](screen, result))


@command("count")
@table_argument()
@where_option()
@time_travel_options
def count(
    run: Run, table: str, where: str | None, snapshot: int | None, tag: str | None, timestamp: str | None
) -> None:
    """Count the rows of a table that match a condition, from metadata and indexes where they suffice.

    Example: bitlake count orders -w "status = 'NEW'"
    """
    rows = run.scan(table, snapshot, tag, timestamp, where).count()
    run.out.result({"table": table, "rows": rows}, lambda screen: screen.line(str(rows)))
