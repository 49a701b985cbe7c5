"""``bitlake export``: a table's rows into a file."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bitlake.cli.failures import Usage
from bitlake.cli.output import Screen
from bitlake.cli.run import Run, SnapshotOption, TableName, TagOption, WhenOption, Where, command

if TYPE_CHECKING:
    import pyarrow as pa

_FORMATS = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "export", export)


def export(
    run: Run,
    table: TableName,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A new file; - is stdout.")],
    where: Where = None,
    columns: Annotated[str | None, typer.Option("--columns", "-c", help="Only these columns: a,b,c.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=0, help="At most so many rows.")] = None,
    format: Annotated[
        str | None, typer.Option("--format", "-f", help="parquet, csv or json; default: by the file's name.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that is there.")] = False,
    snapshot: SnapshotOption = None,
    tag: TagOption = None,
    timestamp: WhenOption = None,
) -> None:
    """Write a table's rows, or those that a condition chooses, into one Parquet, CSV or JSON file; no Spark is started.

    JSON is one object a line. The file is there when it is whole.
    """
    chosen = _format(file, format)
    if file == "-" and run.out.json:
        raise Usage("--json and a file on stdout do not go together")
    if file != "-" and os.path.exists(file) and not overwrite:
        from bitlake.errors import AlreadyExists

        raise AlreadyExists(f"{file} is there already; --overwrite replaces it")
    names = [c.strip() for c in columns.split(",")] if columns else None
    scan = replace(run.scan(table, snapshot, tag, timestamp), _recorder=run.lake().catalog.recorder)
    scan = scan if where is None else scan.where(where)
    scan = (scan if names is None else scan.select(names)).limit(limit)
    started = time.perf_counter()
    if file == "-":
        from bitlake.cli.result import write

        write(sys.stdout.buffer, chosen, scan.schema, scan.to_batches())
        return
    rows = _to_file(file, chosen, scan.schema, scan.to_batches())
    document = {
        "table": scan.state.name,
        "snapshot": scan.state.snapshot_id,
        "file": file,
        "format": chosen,
        "rows": rows,
        "bytes": os.path.getsize(file),
        "seconds": round(time.perf_counter() - started, 3),
    }
    run.out.result(document, lambda screen: _show(screen, document))


def _format(file: str, given: str | None) -> str:
    if given is not None:
        if given not in _FORMATS.values():
            raise Usage(f"--format is parquet, csv or json, and not '{given}'")
        return given
    found = _FORMATS.get(os.path.splitext(file)[1].lower())
    if found is None:
        raise Usage(f"as what shall {'stdout' if file == '-' else file} be written? Say --format parquet, csv or json")
    return found


def _to_file(file: str, format: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    """Write under another name beside it, then rename: nobody sees half a file."""
    from bitlake.cli.result import write

    folder = os.path.dirname(file)
    if folder and not os.path.isdir(folder):
        from bitlake.errors import NotFound

        raise NotFound(f"there is no folder {folder} to write {os.path.basename(file)} in; make it first")
    part = f"{file}.{os.getpid()}.part"
    try:
        with open(part, "wb") as sink:
            rows = write(sink, format, schema, batches)
        os.replace(part, file)
    except BaseException:
        with suppress(OSError):
            os.unlink(part)
        raise
    return rows


def _show(screen: Screen, document: dict[str, Any]) -> None:
    from bitlake.words import human_bytes

    screen.line(
        f"{document['file']}: {document['rows']:,} rows, {human_bytes(document['bytes'])} of {document['format']} in "
        f"{document['seconds']:.1f} s"
    )
