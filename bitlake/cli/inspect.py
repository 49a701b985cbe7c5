"""``bitlake inspect`` and ``verify``: look into a file, and check every file of a table."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bitlake.cli.failures import Usage
from bitlake.cli.run import Command, Run, TableName, command, pairs


def register(app: typer.Typer, name: str) -> None:
    """Add one of these commands."""
    commands: dict[str, Command] = {"inspect": inspect, "verify": verify}
    command(app, name, commands[name])


def inspect(
    run: Run,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A path or URI; with --table also only a name.")],
    table: Annotated[str | None, typer.Option("--table", "-t", help="The table that the file is of.")] = None,
    column: Annotated[
        str | None, typer.Option("--column", "-c", help="Of Parquet its pages, of an index its values.")
    ] = None,
    value: Annotated[
        str | None, typer.Option("--value", help="With --column: the rows that have this value, as indexes tell.")
    ] = None,
    offset: Annotated[int, typer.Option(min=0, help="Show entries of lists from this one on.")] = 0,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="Show so many entries of each list.")] = 20,
    hex: Annotated[
        str | None, typer.Option("--hex", metavar="AT:LENGTH", help="Show these bytes instead: 0:64, 0x1f0:128.")
    ] = None,
) -> None:
    """Look into any file of a table: snapshot, manifest, index, deletion vectors, data; as a tree with offsets.

    A damaged file shows up to its fault, and the exit code is 1. --value NULL asks about NULL.
    """
    from bitlake.io import open_store
    from bitlake.io.base import scheme_of
    from bitlake.tools.inspect.inspection import ANY, inspect_file

    if value is not None and column is None:
        raise Usage("--value goes with --column")
    if table is not None:
        state = run.state(table)
        store, paths = state.store, state.paths
    else:
        options = pairs("--option", run.options.option)
        store, paths = open_store(file, options if scheme_of(file) != "file" else None), None
    found = inspect_file(
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
        run.out.result(found.to_dict(), lambda screen: None)
    else:
        run.out.screen.text(found.text(run.out.screen.width if run.out.is_terminal else 0))
    if found.faults:
        run.out.problems()


def _region(text: str) -> tuple[int, int]:
    at, sign, length = text.partition(":")
    try:
        return int(at, 0), int(length, 0) if sign else 256
    except ValueError as e:
        raise Usage(f"--hex takes AT:LENGTH, as in 0:64 or 0x1f0:128, and not '{text}'") from e


def verify(
    run: Run,
    table: TableName,
    quick: Annotated[bool, typer.Option("--quick", help="Only metadata, sizes and footers; no data is read.")] = False,
    snapshot: Annotated[
        list[int] | None, typer.Option(metavar="ID", help="Only this snapshot; may be repeated.")
    ] = None,
    spark: Annotated[bool, typer.Option("--spark", help="Read on Spark's executors: for large tables.")] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Then make anew what can be: hints and indexes. Shows what, and asks.")
    ] = False,
    drop_indexes: Annotated[
        bool, typer.Option("--drop-indexes", help="With --repair: drop damaged file indexes, do not rebuild them.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --repair: do it, do not ask.")] = False,
) -> None:
    """Check every file that snapshots, tags and branches need against all that is told of it.

    The exit code is 1 if readers would fail or answer wrongly; warnings alone leave it 0. --repair touches no row.
    """
    if (drop_indexes or yes) and not repair:
        raise Usage("--drop-indexes and --yes go with --repair")
    asked: dict[str, Any] = {"snapshots": snapshot} if snapshot else {}
    report = run.lake().verify(table, not quick, distributed=spark, **asked)
    document: dict[str, Any] = report.to_dict()
    if not run.out.json:
        run.out.screen.text(report.text())
    sound = report.ok
    if repair and report.findings:
        target = run.table(table)
        how: Any = "drop" if drop_indexes else "rebuild"
        plan = target.repair(report, indexes=how)
        if not run.out.json:
            _show_repair(run, plan)
        if plan.actions and run.agreed("Repair this?", yes):
            plan = target.repair(report, dry_run=False, indexes=how)
            sound = not any(f.severity == "error" for f in plan.left)
            if not run.out.json:
                where = f" in snapshot {plan.snapshot}; older ones stay as they are" if plan.snapshot else ""
                run.out.screen.line(f"repaired{where}", "bold")
        elif plan.actions and not run.out.json:
            run.out.screen.line("nothing was repaired; --yes does it", "bold")
        document["repair"] = plan.to_dict()
    if run.out.json:
        run.out.result(document, lambda screen: None)
    if not sound:
        run.out.problems()


def _show_repair(run: Run, plan: Any) -> None:
    screen = run.out.screen
    screen.line()
    if not plan.actions:
        past = all(f.past for f in plan.left)
        what = "nothing to repair: the latest snapshot is sound" if past else ""
        screen.line(what or "nothing of this can be repaired without touching rows", "bold")
    for action in plan.actions:
        screen.line(f"repair   {action.what}: {action.path}")
