"""``bitlake advise``: which indexes and which layout a table should have."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bitlake.cli.failures import Usage
from bitlake.cli.run import Run, TableName, command


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "advise", advise)


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
    asked = [*(query or ()), *([_text(queries)] if queries else [])]
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


def _text(file: str) -> str:
    from bitlake.errors import NotFound

    try:
        with open(file, encoding="utf-8") as f:
            return f.read()
    except FileNotFoundError as e:
        raise NotFound(f"there is no file {file}") from e
