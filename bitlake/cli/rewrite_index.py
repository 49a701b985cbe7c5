"""``bitlake rewrite-index``: the file indexes that options ask for and files lack."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from bitlake.cli.output import Screen
from bitlake.cli.run import Run, TableName, command


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "rewrite-index", rewrite_index)


def rewrite_index(
    run: Run,
    table: TableName,
    where: Annotated[
        str | None, typer.Option("--where", "-w", help="A condition on partition columns.", metavar="CONDITION")
    ] = None,
) -> None:
    """Build the file indexes that the table's options ask for, in the files that lack them.

    Which columns get one is said by options: ALTER TABLE t SET TBLPROPERTIES
    ('file-index.bitmap.columns' = 'status'). What was killed goes on where it was when it is run again.
    """
    found = run.table(table)
    started = time.perf_counter()
    done = found.rewrite_file_index(where)
    built = [r for r in done if r.new is not None]
    document = {
        "table": found.name,
        "files": len(done),
        "files_rewritten": len(built),
        "index_bytes": sum(r.index_bytes for r in built),
        "indexes": sorted({name for r in built for name in r.built}),
        "problems": [p for r in done for p in r.problems],
        "seconds": round(time.perf_counter() - started, 3),
    }
    run.out.result(document, lambda screen: _show(screen, document))
    if document["problems"]:
        run.out.problems()


def _show(screen: Screen, document: dict[str, Any]) -> None:
    from bitlake.words import human_bytes

    name = document["table"]
    if not document["files_rewritten"]:
        files = document["files"]
        what = "the one file has" if files == 1 else f"all {files:,} files have"
        screen.line(f"{name}: {what} the indexes that the options ask for")
        return
    what = ", ".join(document["indexes"]) or "indexes that no option asks for were dropped"
    screen.line(
        f"{name}: {document['files_rewritten']:,} of {document['files']:,} files, "
        f"{human_bytes(document['index_bytes'])} of indexes in {document['seconds']:.1f} s: {what}"
    )
