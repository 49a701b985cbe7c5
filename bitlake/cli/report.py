"""``bitlake report``: a table on one HTML page."""

from __future__ import annotations

from typing import Annotated

import typer

from bitlake.cli.run import Run, TableName, command

_SCANS = 1000
"""Recorded scans that are looked at, the last ones."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "report", report)


def report(
    run: Run,
    table: TableName,
    file: Annotated[str | None, typer.Argument(metavar="FILE", help="The page; default: TABLE.html here.")] = None,
    top: Annotated[int, typer.Option(min=1, help="So many partitions are named.")] = 15,
) -> None:
    """Write an HTML page about a table: its bytes, small files, indexes, snapshots, and what to do about them.

    It is made of metadata alone: no data is read. With --json the same is printed, and a page is only written to FILE.
    """
    from bitlake.table.report import gather
    from bitlake.table.scan_log import default_log

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
