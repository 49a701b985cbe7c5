"""``bitlake compact``: small files merged, deleted rows taken out, sorted runs of keys merged."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bitlake.cli.output import Screen
from bitlake.cli.run import Run, TableName, command


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "compact", compact)


def compact(
    run: Run,
    table: TableName,
    full: Annotated[bool, typer.Option("--full", help="Everything, not only what is due.")] = False,
    where: Annotated[
        str | None, typer.Option("--where", "-w", help="A condition on partition columns.", metavar="CONDITION")
    ] = None,
) -> None:
    """Merge a table's small files, and take out rows that are deleted; runs in this process.

    For very large tables CALL sys.compact runs the same on Spark.
    """
    found = run.table(table)
    before = _size(found)
    snapshot = found.compact(full=full, where=where)
    document = {
        "table": found.name,
        "snapshot": None if snapshot is None else snapshot.id,
        "before": before,
        "after": before if snapshot is None else _size(found),
    }
    run.out.result(document, lambda screen: _show(screen, document, full))


def _size(table: Any) -> dict[str, int]:
    entries = table.state().entries()
    return {"files": len(entries), "bytes": sum(e.file.file_size for e in entries)}


def _show(screen: Screen, document: dict[str, Any], full: bool) -> None:
    from bitlake.words import human_bytes

    if document["snapshot"] is None:
        more = "" if full else "; --full merges what is not due, too"
        screen.line(f"{document['table']}: nothing to compact{more}")
        return
    before, after = document["before"], document["after"]
    screen.line(
        f"{document['table']}: {before['files']:,} files ({human_bytes(before['bytes'])}) became {after['files']:,} "
        f"({human_bytes(after['bytes'])}) in snapshot {document['snapshot']}"
    )
