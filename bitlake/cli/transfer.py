"""``bitlake import`` and ``export``: copy rows from files into a table, and from a table into a file."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from bitlake.cli.failures import Usage
from bitlake.cli.output import Screen
from bitlake.cli.parameters import (
    argument,
    columns_option,
    limit_option,
    table_argument,
    time_travel_options,
    where_option,
)
from bitlake.cli.run import Run, column_names, command, pairs
from bitlake.formatting import counted

if TYPE_CHECKING:
    import pyarrow as pa

    from bitlake.cli.sources import Source
    from bitlake.table.table import Table


_FORMATS = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}
_format_option = click.option(
    "--format",
    "-f",
    type=click.Choice(("parquet", "csv", "json")),
    metavar="FORMAT",
    help="parquet, csv or json; default: by the extension of the file name.",
)


@command("import")
@table_argument()
@argument(
    "files", "Files, folders, patterns ('d/*.csv') or URIs; - is stdin.", nargs=-1, required=True, metavar="FILE..."
)
@_format_option
@click.option("--create", is_flag=True, help="Create the table with the columns of the files.")
@click.option("--overwrite", is_flag=True, help="Replace the table's rows.")
@click.option("--primary-key", metavar="NAMES", help="With --create: the key columns, a,b.")
@click.option("--partition-by", metavar="NAMES", help="With --create: the partition columns, a,b.")
@click.option(
    "--type", multiple=True, metavar="COLUMN=TYPE", help="With --create: the SQL type of a column; repeatable."
)
@click.option(
    "--table-option", multiple=True, metavar="NAME=VALUE", help="With --create: an option of the table; repeatable."
)
@click.option("--delimiter", metavar="CHARACTER", help="CSV delimiter; default: a comma, or a tab for .tsv files.")
@click.option("--quote", default='"', metavar="CHARACTER", help="CSV quote character.")
@click.option("--no-header", is_flag=True, help="The first line of a CSV file is a row, not column names.")
@click.option(
    "--null", multiple=True, metavar="TEXT", help="Read this text as NULL in CSV, like an empty field; repeatable."
)
def import_files(
    run: Run,
    table: str,
    files: Sequence[str],
    format: str | None,
    create: bool,
    overwrite: bool,
    primary_key: str | None,
    partition_by: str | None,
    type: Sequence[str],
    table_option: Sequence[str],
    delimiter: str | None,
    quote: str,
    no_header: bool,
    null: Sequence[str],
) -> None:
    """Add the rows of Parquet, CSV or JSON files to a table in one commit, without Spark.

    A JSON file has one object per line. CSV and JSON files may be compressed (.gz, .zst, .bz2). In a table with a
    primary key, imported rows replace the rows with the same key.
    """
    from bitlake.cli.sources import CsvStyle, Format, find_sources
    from bitlake.errors import AlreadyExists, NotFound

    if not create and (primary_key or partition_by or type or table_option):
        raise Usage("--primary-key, --partition-by, --type and --table-option require --create")
    style = CsvStyle(_character("--delimiter", delimiter), quote, not no_header, null)
    options = pairs("--option", run.options.option)
    sources = find_sources(files, None if format is None else Format(format), style, options)
    created = False
    try:
        target = run.table(table)
        if primary_key or partition_by or type or table_option:
            raise AlreadyExists(
                f"table '{target.name}' already exists: --primary-key, --partition-by, --type and --table-option "
                "apply to new tables only"
            )
    except NotFound as e:
        if not create:
            raise NotFound(f"{e}; --create creates it with the columns of the files") from e
        target, created = _create(run, table, sources[0], primary_key, partition_by, type, table_option), True
    started = time.perf_counter()
    try:
        written, snapshot = _write_rows(target, sources, overwrite)
    except BaseException:
        if created:
            run.lake().drop_table(table)
        raise
    document = {
        "table": target.name,
        "created": created,
        "files": len(sources),
        "rows": written,
        "snapshot": snapshot,
        "seconds": round(time.perf_counter() - started, 3),
    }
    run.out.result(document, lambda screen: _show_import(screen, document))


def _write_rows(table: Table, sources: list[Source], overwrite: bool) -> tuple[int, int | None]:
    """Write all rows in one commit; return their number and the snapshot's id."""
    from bitlake.types import arrow_schema

    schema = arrow_schema(table.schema.fields)
    nullable = _nullable(schema)
    count = 0

    def rows() -> Iterator[pa.RecordBatch]:
        nonlocal count
        for source in sources:
            for batch in source.batches(nullable):
                count += batch.num_rows
                yield batch

    snapshot = table.overwrite(rows()) if overwrite else table.append(rows())
    return count, None if snapshot is None else snapshot.id


def _nullable(schema: pa.Schema) -> pa.Schema:
    """The schema to parse text with: the table, not the parser, refuses missing values, with a better message."""
    import pyarrow as pa

    return pa.schema([f.with_nullable(True).remove_metadata() for f in schema])


def _create(
    run: Run,
    name: str,
    source: Source,
    primary_key: str | None,
    partition_by: str | None,
    types: Sequence[str],
    options: Sequence[str],
) -> Table:
    import pyarrow as pa

    from bitlake.errors import InvalidRequest
    from bitlake.types import arrow_type, from_arrow, parse_type

    schema = _storable(source.schema())
    for column, text in pairs("--type", types).items():
        index = schema.get_field_index(column)
        if index < 0:
            raise InvalidRequest(f"{source.path} has no column '{column}'; it has {', '.join(schema.names)}")
        data_type = arrow_type(parse_type(text))
        if from_arrow(data_type) != parse_type(text):
            raise Usage(
                f"--type {column}={text}: not supported here; create the table with bitlake sql 'CREATE TABLE …'"
            )
        schema = schema.set(index, pa.field(column, data_type))
    return run.lake().create_table(
        name,
        schema,
        primary_key=column_names(primary_key),
        partition_by=column_names(partition_by),
        options=pairs("--table-option", options),
    )


def _storable(schema: pa.Schema) -> pa.Schema:
    """The schema of a new table: dictionaries decoded, times in microseconds, STRING for columns of NULLs."""
    import pyarrow as pa

    def stored(data_type: pa.DataType) -> pa.DataType:
        if pa.types.is_null(data_type):
            return pa.string()
        if pa.types.is_dictionary(data_type):
            return stored(data_type.value_type)
        if pa.types.is_timestamp(data_type):
            return pa.timestamp("us", data_type.tz)
        if pa.types.is_time(data_type):
            return pa.time32("ms")
        if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
            return pa.list_(stored(data_type.value_type))
        if pa.types.is_struct(data_type):
            return pa.struct([pa.field(f.name, stored(f.type)) for f in data_type])
        return data_type

    return pa.schema([pa.field(f.name, stored(f.type), f.nullable) for f in schema])


def _character(option: str, text: str | None) -> str | None:
    """One character; ``\\t`` and ``tab`` are a tab."""
    if text in ("\\t", "tab"):
        return "\t"
    if text is not None and len(text) != 1:
        raise Usage(f"{option} expects one character, or tab; got '{text}'")
    return text


def _show_import(screen: Screen, document: dict[str, Any]) -> None:
    created = "created, " if document["created"] else ""
    files = counted(document["files"], "file")
    snapshot = "nothing to commit" if document["snapshot"] is None else f"snapshot {document['snapshot']}"
    screen.line(
        f"{document['table']}: {created}{document['rows']:,} rows of {files}, {snapshot}, {document['seconds']:.1f} s"
    )


@command("export")
@table_argument()
@argument("file", "The file to create; - is stdout.")
@where_option()
@columns_option("Write these columns only: a,b,c.")
@limit_option("Write at most N rows.")
@_format_option
@click.option("--overwrite", is_flag=True, help="Replace an existing file.")
@time_travel_options
def export(
    run: Run,
    table: str,
    file: str,
    where: str | None,
    columns: str | None,
    limit: int | None,
    format: str | None,
    overwrite: bool,
    snapshot: int | None,
    tag: str | None,
    timestamp: str | None,
) -> None:
    """Write a table's rows, or those that match a condition, to one Parquet, CSV or JSON file, without Spark.

    A JSON file has one object per line. The file appears under its name when it is complete.
    """
    format = format or _format_of(file)
    if file == "-" and run.out.json:
        raise Usage("--json cannot be combined with export to stdout")
    if file != "-" and os.path.exists(file) and not overwrite:
        from bitlake.errors import AlreadyExists

        raise AlreadyExists(f"{file} already exists; --overwrite replaces it")
    scan = replace(run.scan(table, snapshot, tag, timestamp), _recorder=run.lake().catalog.recorder)
    scan = scan if where is None else scan.where(where)
    scan = (scan.select(column_names(columns)) if columns else scan).limit(limit)
    started = time.perf_counter()
    if file == "-":
        from bitlake.cli.result import write

        write(sys.stdout.buffer, format, scan.schema, scan.to_batches())
        return
    rows = _to_file(file, format, scan.schema, scan.to_batches())
    document = {
        "table": scan.state.name,
        "snapshot": scan.state.snapshot_id,
        "file": file,
        "format": format,
        "rows": rows,
        "bytes": os.path.getsize(file),
        "seconds": round(time.perf_counter() - started, 3),
    }
    run.out.result(document, lambda screen: _show_export(screen, document))


def _format_of(file: str) -> str:
    format = _FORMATS.get(os.path.splitext(file)[1].lower())
    if format is None:
        raise Usage(f"unknown format of {'stdout' if file == '-' else file}: use --format parquet, csv or json")
    return format


def _to_file(file: str, format: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    """Write a temporary file beside it, then rename: readers never see half a file."""
    from bitlake.cli.result import write

    folder = os.path.dirname(file)
    if folder and not os.path.isdir(folder):
        from bitlake.errors import NotFound

        raise NotFound(f"folder not found: {folder}; create it before you export {os.path.basename(file)}")
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
