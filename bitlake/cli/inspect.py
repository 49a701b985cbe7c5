"""``bitlake inspect`` and ``verify``: show the parts of a file, and check every file of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from bitlake.cli.failures import Usage
from bitlake.cli.run import Integer, Run, argument, command, limit_option, pairs, table_argument, yes_option
from bitlake.io import open_store
from bitlake.io.base import scheme_of


@command("inspect")
@argument("file", "A path or URI, or with --table a file name.")
@click.option("--table", "-t", metavar="TABLE", help="The table that the file belongs to.")
@click.option("--column", "-c", metavar="NAME", help="Show this column's pages in Parquet, or its values in an index.")
@click.option("--value", metavar="VALUE", help="With --column: show the rows that have this value in the index.")
@click.option("--offset", type=Integer(min=0), default=0, metavar="N", help="Skip the first N entries of each list.")
@limit_option("Show at most N entries of each list.", 20)
@click.option("--hex", metavar="AT:LENGTH", help="Show these bytes instead: 0:64, 0x1f0:128.")
def inspect(
    run: Run,
    file: str,
    table: str | None,
    column: str | None,
    value: str | None,
    offset: int,
    limit: int,
    hex: str | None,
) -> None:
    """Show a file of a table as a tree with offsets: snapshot, manifest, index, deletion vectors or data.

    Of a damaged file, the tree ends at the fault, and the exit code is 1. --value NULL selects rows without a value.

    Example: bitlake inspect /data/lake/default.db/orders/snapshot/snapshot-1
    """
    from bitlake.tools.inspect.inspection import ANY, inspect_file

    if value is not None and column is None:
        raise Usage("--value requires --column")
    if table is not None:
        state = run.state(table)
        store, paths = state.store, state.paths
    else:
        options = pairs("--option", run.options.option)
        store, paths = open_store(file, options if scheme_of(file) != "file" else None), None
    inspection = inspect_file(
        file,
        store=store,
        table=paths,
        offset=offset,
        limit=limit,
        column=column,
        value=ANY if value is None else None if value.upper() == "NULL" else value,
        hex=None if hex is None else _region(hex),
        timezone=run.options.timezone,
    )
    if run.out.json:
        run.out.result(inspection.to_dict(), lambda screen: None)
    else:
        run.out.screen.text(inspection.text(run.out.screen.width if run.out.is_terminal else 0))
    if inspection.faults:
        run.out.problems()


def _region(text: str) -> tuple[int, int]:
    at, sign, length = text.partition(":")
    try:
        return int(at, 0), int(length, 0) if sign else 256
    except ValueError as e:
        raise Usage(f"--hex expects AT:LENGTH such as 0:64 or 0x1f0:128; got '{text}'") from e


@command("verify")
@table_argument()
@click.option("--quick", is_flag=True, help="Check metadata, sizes and footers only, without reading data.")
@click.option("--snapshot", type=int, multiple=True, metavar="ID", help="Check this snapshot only; repeatable.")
@click.option("--spark", is_flag=True, help="Read data on Spark's executors, for large tables.")
@click.option("--repair", is_flag=True, help="Then rebuild damaged hints and indexes; shows a plan and asks.")
@click.option("--drop-indexes", is_flag=True, help="With --repair: drop damaged file indexes instead.")
@yes_option("With --repair: do not ask for confirmation.")
def verify(
    run: Run,
    table: str,
    quick: bool,
    snapshot: Sequence[int],
    spark: bool,
    repair: bool,
    drop_indexes: bool,
    yes: bool,
) -> None:
    """Check every file that snapshots, tags and branches need against the metadata that describes it.

    The exit code is 1 if readers would fail or return wrong rows, and 0 if there are only warnings. --repair never
    changes rows.

    Example: bitlake verify orders
    """
    if (drop_indexes or yes) and not repair:
        raise Usage("--drop-indexes and --yes require --repair")
    options: dict[str, Any] = {"snapshots": list(snapshot)} if snapshot else {}
    report = run.lake().verify(table, not quick, distributed=spark, **options)
    document: dict[str, Any] = report.to_dict()
    if not run.out.json:
        run.out.screen.text(report.text())
    sound = report.ok
    if repair and report.findings:
        target = run.table(table)
        mode: Any = "drop" if drop_indexes else "rebuild"
        plan = target.maintenance.repair(report, indexes=mode)
        if not run.out.json:
            _show_repair(run, plan)
        if plan.actions and run.confirmed("Repair these?", yes):
            plan = target.maintenance.repair(report, dry_run=False, indexes=mode)
            sound = not any(f.severity == "error" for f in plan.left)
            if not run.out.json:
                snapshot_text = f" in snapshot {plan.snapshot}; older snapshots are unchanged" if plan.snapshot else ""
                run.out.screen.line(f"repaired{snapshot_text}", "bold")
        elif plan.actions and not run.out.json:
            run.out.screen.line("nothing repaired; --yes carries out the plan", "bold")
        document["repair"] = plan.to_dict()
    if run.out.json:
        run.out.result(document, lambda screen: None)
    if not sound:
        run.out.problems()


def _show_repair(run: Run, plan: Any) -> None:
    screen = run.out.screen
    screen.line()
    if not plan.actions:
        sound = all(f.past for f in plan.left)
        message = "nothing to repair: the latest snapshot is sound"
        screen.line(message if sound else "none of these faults can be repaired without changing rows", "bold")
    for action in plan.actions:
        screen.line(f"repair   {action.what}: {action.path}")
