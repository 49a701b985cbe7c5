"""``bitlake files``: the data files of a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from bitlake.cli.output import Screen
from bitlake.cli.run import Run, SnapshotOption, TableName, TagOption, WhenOption, command
from bitlake.words import counted


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "files", files)


def files(
    run: Run,
    table: TableName,
    partitions: Annotated[
        str | None, typer.Option("--where", "-w", help="A condition on partition columns.", metavar="CONDITION")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="Show so many files; 0 for all.")] = 50,
    snapshot: SnapshotOption = None,
    tag: TagOption = None,
    timestamp: WhenOption = None,
) -> None:
    """The data files of a table: rows, size, level and index of each, and the sum.

    With --json all files are listed, whatever --limit says.
    """
    from bitlake.table.index_names import index_name
    from bitlake.table.partitions import PartitionReader, files_of_partitions
    from bitlake.table.travel import When

    state = When(snapshot, tag, timestamp).of(run.state(table), run.options.timezone)
    entries = files_of_partitions(state, partitions, run.options.timezone)
    reader = PartitionReader(state.schema, state.paths)
    rows = [
        {
            "partition": reader.folder(e.partition),
            "partition_values": reader.shown(e.partition),
            "bucket": e.bucket,
            "level": e.file.level,
            "rows": e.file.row_count,
            "bytes": e.file.file_size,
            "embedded_index_bytes": None if e.file.embedded_index is None else len(e.file.embedded_index),
            "index_file": index_name(e.file),
            "schema_id": e.file.schema_id,
            "path": reader.data_path(e),
        }
        for e in sorted(entries, key=lambda e: (reader.folder(e.partition), e.bucket, -e.file.level, e.file.file_name))
    ]
    document: dict[str, Any] = {
        "table": state.name,
        "snapshot": state.snapshot_id,
        "total": {
            "files": len(entries),
            "rows": sum(e.file.row_count for e in entries),
            "bytes": sum(e.file.file_size for e in entries),
        },
        "files": rows,
    }
    keyed = bool(state.schema.primary_keys)
    run.out.result(document, lambda screen: _show(screen, document, limit, keyed))


def _show(screen: Screen, document: dict[str, Any], limit: int, keyed: bool) -> None:
    from bitlake.words import human_bytes

    rows = document["files"]
    shown = rows[:limit] if limit else rows
    columns: dict[str, Callable[[dict[str, Any]], Any]] = {
        "~partition": lambda r: "/".join(f"{k}={v}" for k, v in r["partition_values"].items()),
        ">bucket": lambda r: r["bucket"],
        ">level": lambda r: r["level"],
        ">rows": lambda r: r["rows"],
        ">size": lambda r: human_bytes(r["bytes"]),
        "index": _index,
        "~file": lambda r: r["path"].rsplit("/", 1)[-1],
    }
    if not any(r["partition"] for r in rows):
        del columns["~partition"]
    if not keyed:
        del columns[">level"]
    if not any(_index(r) for r in rows):
        del columns["index"]
    screen.table(tuple(columns), [[made(r) for made in columns.values()] for r in shown], empty="no data files")
    total = document["total"]
    if rows:
        more = f" ({len(rows) - len(shown):,} not shown: --limit 0 shows all)" if len(shown) < len(rows) else ""
        screen.line(
            f"{counted(total['files'], 'file')}, {counted(total['rows'], 'row')}, {human_bytes(total['bytes'])}{more}",
            "dim",
        )


def _index(row: dict[str, Any]) -> str:
    from bitlake.words import human_bytes

    if row["embedded_index_bytes"] is not None:
        return f"in manifest, {human_bytes(row['embedded_index_bytes'])}"
    return ".index file" if row["index_file"] else ""
