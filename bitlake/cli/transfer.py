"""``bitlake import`` and ``export``: rows of files into a table, and a table's rows into a file."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bitlake.cli.failures import Usage
from bitlake.cli.output import Screen
from bitlake.cli.run import Command, Run, SnapshotOption, TableName, TagOption, WhenOption, Where, command, pairs
from bitlake.formatting import counted

if TYPE_CHECKING:
    import pyarrow as pa

    from bitlake.cli.sources import Source
    from bitlake.table.table import Table


def register(app: typer.Typer, name: str) -> None:
    """Add one of these commands."""
    commands: dict[str, Command] = {"import": import_files, "export": export}
    command(app, name, commands[name])


def import_files(
    run: Run,
    table: TableName,
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Files, folders, patterns ('d/*.csv'), URIs; - is stdin.")
    ],
    format: Annotated[
        str | None, typer.Option("--format", "-f", help="parquet, csv or json; default: by the name's ending.")
    ] = None,
    create: Annotated[bool, typer.Option("--create", help="Make the table, with the files' columns.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the rows that are there.")] = False,
    primary_key: Annotated[str | None, typer.Option(help="With --create: the key columns, a,b.")] = None,
    partition_by: Annotated[str | None, typer.Option(help="With --create: the partition columns, a,b.")] = None,
    type: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN=TYPE", help="With --create: a column's SQL type.")
    ] = None,
    table_option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="With --create: an option of the table.")
    ] = None,
    delimiter: Annotated[str | None, typer.Option(help="Of CSV; default: a comma, a tab for .tsv.")] = None,
    quote: Annotated[str, typer.Option(help="The quote of CSV.")] = '"',
    no_header: Annotated[bool, typer.Option("--no-header", help="CSV begins with a row, not names.")] = False,
    null: Annotated[
        list[str] | None, typer.Option(help="A text that means NULL in CSV, as an empty field does.")
    ] = None,
) -> None:
    """Add the rows of Parquet, CSV or JSON files to a table, all in one commit; no Spark is started.

    JSON is one object a line. CSV and JSON may be compressed (.gz, .zst, .bz2). Rows of a table with a primary key
    replace those of the same key.
    """
    from bitlake.cli.sources import CsvStyle, Format, find_sources
    from bitlake.errors import AlreadyExists, NotFound

    if format is not None and format not in list(Format):
        raise Usage(f"--format is one of {', '.join(Format)}, and not '{format}'")
    if not create and (primary_key or partition_by or type or table_option):
        raise Usage("--primary-key, --partition-by, --type and --table-option go with --create")
    style = CsvStyle(_character("--delimiter", delimiter), quote, not no_header, tuple(null or ()))
    options = pairs("--option", run.options.option)
    sources = find_sources(files, None if format is None else Format(format), style, options)
    made = False
    try:
        target = run.table(table)
        if primary_key or partition_by or type or table_option:
            raise AlreadyExists(
                f"table '{target.name}' is there already: --primary-key, --partition-by, --type and --table-option are "
                "for a new one"
            )
    except NotFound as e:
        if not create:
            raise NotFound(f"{e}; --create makes it, with the columns of the files") from e
        target, made = _create(run, table, sources[0], primary_key, partition_by, type, table_option), True
    started = time.perf_counter()
    try:
        written, snapshot = _write_rows(target, sources, overwrite)
    except BaseException:
        if made:
            run.lake().drop_table(table)
        raise
    document = {
        "table": target.name,
        "created": made,
        "files": len(sources),
        "rows": written,
        "snapshot": snapshot,
        "seconds": round(time.perf_counter() - started, 3),
    }
    run.out.result(document, lambda screen: _show_import(screen, document))


def _write_rows(table: Table, sources: list[Source], overwrite: bool) -> tuple[int, int | None]:
    """Write all rows in one commit; returns how many, and the snapshot."""
    from bitlake.types import arrow_schema

    schema = arrow_schema(table.schema.fields)
    wanted = _nullable(schema)
    passed = 0

    def rows() -> Iterator[pa.RecordBatch]:
        nonlocal passed
        for source in sources:
            for batch in source.batches(wanted):
                passed += batch.num_rows
                yield batch

    snapshot = table.overwrite(rows()) if overwrite else table.append(rows())
    return passed, None if snapshot is None else snapshot.id


def _nullable(schema: pa.Schema) -> pa.Schema:
    """What text is read as: a missing value is the table's to refuse, which says so better than a parser."""
    import pyarrow as pa

    return pa.schema([f.with_nullable(True).remove_metadata() for f in schema])


def _create(
    run: Run,
    name: str,
    source: Source,
    primary_key: str | None,
    partition_by: str | None,
    types: list[str] | None,
    options: list[str] | None,
) -> Table:
    import pyarrow as pa

    from bitlake.errors import InvalidRequest
    from bitlake.types import arrow_type, from_arrow, parse_type

    schema = _storable(source.schema())
    for column, text in pairs("--type", types).items():
        at = schema.get_field_index(column)
        if at < 0:
            raise InvalidRequest(f"{source.path} has no column '{column}'; it has {', '.join(schema.names)}")
        made = arrow_type(parse_type(text))
        if from_arrow(made) != parse_type(text):
            raise Usage(f"--type {column}={text}: make the table first, by bitlake sql 'CREATE TABLE …'")
        schema = schema.set(at, pa.field(column, made))
    return run.lake().create_table(
        name,
        schema,
        primary_key=_column_names(primary_key),
        partition_by=_column_names(partition_by),
        options=pairs("--table-option", options),
    )


def _storable(schema: pa.Schema) -> pa.Schema:
    """A file's columns as a table can have them: no dictionaries, microseconds, and text where only NULLs were seen."""
    import pyarrow as pa

    def stored(made: pa.DataType) -> pa.DataType:
        if pa.types.is_null(made):
            return pa.string()
        if pa.types.is_dictionary(made):
            return stored(made.value_type)
        if pa.types.is_timestamp(made):
            return pa.timestamp("us", made.tz)
        if pa.types.is_time(made):
            return pa.time32("ms")
        if pa.types.is_list(made) or pa.types.is_large_list(made):
            return pa.list_(stored(made.value_type))
        if pa.types.is_struct(made):
            return pa.struct([pa.field(f.name, stored(f.type)) for f in made])
        return made

    return pa.schema([pa.field(f.name, stored(f.type), f.nullable) for f in schema])


def _column_names(text: str | None) -> list[str]:
    return [n.strip() for n in text.split(",") if n.strip()] if text else []


def _character(option: str, text: str | None) -> str | None:
    """One character; ``\\t`` and ``tab`` are a tab."""
    if text in ("\\t", "tab"):
        return "\t"
    if text is not None and len(text) != 1:
        raise Usage(f"{option} is one character, and not '{text}'")
    return text


def _show_import(screen: Screen, document: dict[str, Any]) -> None:
    made = "created, " if document["created"] else ""
    files = counted(document["files"], "file")
    place = "nothing to commit" if document["snapshot"] is None else f"snapshot {document['snapshot']}"
    screen.line(
        f"{document['table']}: {made}{document['rows']:,} rows of {files}, {place}, {document['seconds']:.1f} s"
    )


_FORMATS = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}


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
    run.out.result(document, lambda screen: _show_export(screen, document))


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


def _show_export(screen: Screen, document: dict[str, Any]) -> None:
    from bitlake.formatting import human_bytes

    screen.line(
        f"{document['file']}: {document['rows']:,} rows, {human_bytes(document['bytes'])} of {document['format']} in "
        f"{document['seconds']:.1f} s"
    )
