"""``bitlake verify``: whether every file of a table is there, sound, and as others say."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bitlake.cli.failures import Usage
from bitlake.cli.run import Run, TableName, command


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "verify", verify)


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
            _plan(run, plan)
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


def _plan(run: Run, plan: Any) -> None:
    screen = run.out.screen
    screen.line()
    if not plan.actions:
        past = all(f.past for f in plan.left)
        what = "nothing to repair: the latest snapshot is sound" if past else ""
        screen.line(what or "nothing of this can be repaired without touching rows", "bold")
    for action in plan.actions:
        screen.line(f"repair   {action.what}: {action.path}")
