"""``bitlake import`` and ``export``: copy rows from files into a table, and from a table into a file.

Imported files are read as a stream of Arrow batches: Parquet, CSV and JSON (one object per line).  An empty CSV field
is NULL and a quoted empty field (``""``) is an empty string, as in PostgreSQL's COPY.
"""

from __future__ import annotations

import glob
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import pyarrow as pa

from bitlake.cli.failures import Usage
from bitlake.cli.output import Screen
from bitlake.cli.result import from_hexadecimal, write
from bitlake.cli.run import (
    Run,
    argument,
    column_names,
    columns_option,
    command,
    limit_option,
    pairs,
    table_argument,
    time_travel_options,
    where_option,
)
from bitlake.cli.text_files import (
    ARRAY,
    ARRAY_HINT,
    BadRows,
    Check,
    StandardInput,
    arrow_reader,
    csv_blocks,
    csv_converter,
    csv_parser,
    csv_splitter,
    good_blocks,
    good_rows,
    json_blocks,
    json_converter,
    json_lines,
    json_parser,
    message,
    whole,
    with_doubles,
    without_non_finite,
)
from bitlake.errors import AlreadyExists, CorruptError, InvalidRequest, NotFound, StorageUnavailable
from bitlake.formatting import counted, human_bytes
from bitlake.io import open_store
from bitlake.io.base import scheme_of
from bitlake.progress import say
from bitlake.types import arrow_schema, arrow_type, from_arrow, parse_type
from bitlake.types.arrow import holds
from bitlake.write.writer import fit

if TYPE_CHECKING:
    from bitlake.table.table import Table


# --- files to import --------------------------------------------------------------------------------------------------

_BLOCK = 16 << 20
"""Bytes of text parsed at a time."""
_ROWS = 128 * 1024
"""Rows of Parquet read at a time."""
_DAY = r"^\d{4}-\d{2}-\d{2}$"
_COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}


class Format(StrEnum):
    """The format of a file."""

    PARQUET = "parquet"
    CSV = "csv"
    JSON = "json"


_IMPORT_FORMATS = {
    ".parquet": Format.PARQUET, ".pq": Format.PARQUET, ".csv": Format.CSV, ".tsv": Format.CSV, ".json": Format.JSON,
    ".jsonl": Format.JSON, ".ndjson": Format.JSON,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class CsvStyle:
    """The dialect of a CSV file; ``delimiter`` None means a tab for ``.tsv`` files, else a comma."""

    delimiter: str | None = None
    quote: str = '"'
    header: bool = True
    null: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """A file to import: its path or URI (``-`` is stdin), its format, and the options of its store."""

    path: str
    format: Format
    style: CsvStyle = field(default_factory=CsvStyle)
    options: dict[str, str] = field(default_factory=dict)
    _stdin: StandardInput = field(default_factory=StandardInput, repr=False, compare=False)

    def batches(self, expected: pa.Schema, check: Check, bad: BadRows) -> Iterator[pa.RecordBatch]:
        """Read the rows once, and add those that are not as expected to ``bad``.

        Text is parsed by the schema ``expected``, whose column names match in any case.  ``check`` raises
        :class:`InvalidRequest` for rows that the table cannot store.
        """
        with self._errors(), self._opened() as file:
            if self.format is Format.PARQUET:
                at = 1
                for batch in _parquet(file):
                    numbers = np.arange(at, at := at + batch.num_rows)
                    yield from good_rows(self.path, batch, numbers, check, bad)
            elif self.format is Format.CSV:
                yield from self._csv(file, expected, check, bad)
            else:
                yield from self._json(file, expected, check, bad)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Name the file in errors."""
        try:
            yield
        except pa.ArrowInvalid as e:
            raise InvalidRequest(f"{self.path}: {message(e)}") from e
        except (pa.ArrowException, EOFError) as e:
            raise CorruptError(f"{self.path} cannot be read as {self.format}: {message(e)}") from e
        except FileNotFoundError as e:
            raise NotFound(f"file not found: {self.path}") from e
        except IsADirectoryError as e:
            raise InvalidRequest(
                f"{self.path} is a folder: name files in it, such as '{self.path}/*.{self.format}'"
            ) from e
        except OSError as e:
            raise StorageUnavailable(f"{self.path} cannot be read: {e.strerror or e}") from e

    def schema(self) -> pa.Schema:
        """The file's schema: declared by Parquet, inferred from the first block of text."""
        with self._errors(), self._opened() as file:
            first = next(self._first_rows(file), None)
        self._stdin.rewind()
        if first is None or not first.num_rows:
            raise InvalidRequest(f"{self.path} has no rows to infer column types from: create the table first")
        return first.schema

    def _first_rows(self, file: Any) -> Iterator[pa.RecordBatch]:
        """The first rows, with types inferred from text."""
        if self.format is Format.PARQUET:
            yield from _parquet(file)
        elif self.format is Format.CSV:
            from pyarrow import csv

            for block in self._csv_blocks(file):
                read = csv.ReadOptions(block_size=len(block) + 1, autogenerate_column_names=not self.style.header)
                parse, convert = csv.ParseOptions(**self._csv_parsing()), csv.ConvertOptions(**self._csv_conversion())
                yield whole(csv.read_csv(arrow_reader(block), read, parse, convert))
        else:
            yield from map(_with_dates, json_blocks(file, _BLOCK))

    def _opened(self) -> Any:
        if self.path == "-":
            # The footer of a Parquet file stands at its end.
            return arrow_reader(self._stdin.read()) if self.format is Format.PARQUET else self._stdin
        if scheme_of(self.path) != "file":
            raw = open_store(self.path, self.options).open_input(self.path)
        else:
            raw = pa.OSFile(os.fsencode(self.path.removeprefix("file://")), "rb")
        kind = _COMPRESSED.get(os.path.splitext(self.path)[1])
        return raw if kind is None or self.format is Format.PARQUET else pa.CompressedInputStream(raw, kind)

    def _csv(self, file: Any, expected: pa.Schema, check: Check, bad: BadRows) -> Iterator[pa.RecordBatch]:
        file, names = self._column_names(file, expected)
        parsing, conversion = self._csv_parsing(), self._csv_conversion()
        parsed = pa.schema([f.with_type(pa.string()) if pa.types.is_binary(f.type) else f for f in expected])
        types = {name: parsed.field(name).type for name in names}
        parse = csv_parser(names, {"column_types": types, **conversion}, parsing)
        convert = csv_converter(parsed)
        return good_blocks(
            self.path,
            self._csv_blocks(file),
            2 if self.style.header else 1,
            lambda block: check(_cast(parse(block), expected)),
            csv_splitter(self.path, names, parsing, conversion, bad),
            lambda rows: check(_cast(convert(rows), expected)),
            lambda block, rows: rows.num_rows,
            bad,
        )

    def _csv_blocks(self, file: Any) -> Iterator[bytes]:
        style = self._csv_parsing()
        blocks = csv_blocks(file, _BLOCK, style["delimiter"], style["quote_char"])
        return (block for block in blocks if block.strip(b"\r\n"))  # Arrow refuses text without a record

    def _csv_parsing(self) -> dict[str, Any]:
        delimiter = self.style.delimiter or ("\t" if ".tsv" in self.path else ",")
        return {"delimiter": delimiter, "quote_char": self.style.quote, "newlines_in_values": True}

    def _csv_conversion(self) -> dict[str, Any]:
        null = ["", *self.style.null]
        return {"null_values": null, "strings_can_be_null": True, "quoted_strings_can_be_null": False}

    def _column_names(self, file: Any, expected: pa.Schema) -> tuple[Any, list[str]]:
        """The rest of a CSV file after its header, and the table's names of the columns."""
        nested = [f.name for f in expected if pa.types.is_nested(f.type)]
        if nested:
            raise InvalidRequest(f"{self.path}: column '{nested[0]}' is nested, which CSV cannot hold; use JSON")
        if not self.style.header:
            return file, expected.names
        return _header(file, self.path, self._csv_parsing()["delimiter"], self.style.quote, expected)

    def _json(self, file: Any, expected: pa.Schema, check: Check, bad: BadRows) -> Iterator[pa.RecordBatch]:
        options = _json_parsing(expected)
        parse, convert = json_parser(options), json_converter(options)
        return good_blocks(
            self.path,
            json_blocks(file, _BLOCK),
            1,
            lambda block: check(_cast(parse(block), expected)),
            json_lines,
            lambda lines: check(_cast(convert(lines), expected)),
            lambda block, rows: block.count(b"\n"),
            bad,
        )


def _cast(batch: pa.RecordBatch, expected: pa.Schema) -> pa.RecordBatch:
    """Cast the strings of date, time and binary columns."""
    for i, f in enumerate(batch.schema):
        data_type = expected.field(f.name).type
        if data_type != f.type:
            try:
                batch = batch.set_column(i, f.name, _cast_text(batch.column(i), data_type))
            except pa.ArrowInvalid as e:
                raise pa.ArrowInvalid(f"column '{f.name}': {message(e)}") from e
    return batch


def _cast_text(text: pa.Array, data_type: pa.DataType) -> pa.Array:
    if pa.types.is_binary(data_type):
        return from_hexadecimal(text)
    if pa.types.is_time(data_type):  # Arrow parses times of day in CSV only
        from pyarrow import compute as pc

        day = pa.scalar("1970-01-01 ")
        return pc.binary_join_element_wise(day, text, "").cast(pa.timestamp("ms")).cast(data_type)
    return text.cast(data_type)


def _json_type(data_type: pa.DataType) -> pa.DataType:
    """The type to parse JSON with: strings for what Arrow parses from numbers only, and for hexadecimal digits."""
    is_text = pa.types.is_date(data_type) or pa.types.is_time(data_type) or pa.types.is_binary(data_type)
    return pa.string() if is_text else data_type


def _json_parsing(expected: pa.Schema) -> Any:
    from pyarrow import json

    inner = next((f for f in expected if pa.types.is_nested(f.type) and holds(f.type, pa.types.is_binary)), None)
    if inner is not None:
        raise InvalidRequest(f"column '{inner.name}' has binary values inside, which JSON cannot hold; use Parquet")
    schema = pa.schema([f.with_type(_json_type(f.type)) for f in expected])
    return json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")


def _with_dates(block: bytes) -> pa.RecordBatch:
    """Parse a block of JSON with inferred types.

    Only the types of the result are meant to be used: values that are not finite may be NULL.  Raises
    :class:`pyarrow.ArrowInvalid`.

    Arrow infers timestamps from days, too: such columns are DATE if all values are days.
    """
    from pyarrow import compute as pc
    from pyarrow import json

    def parsed(parse: json.ParseOptions) -> pa.RecordBatch:
        try:
            return whole(json.read_json(arrow_reader(block), json.ReadOptions(block_size=len(block) + 1), parse))
        except pa.ArrowInvalid as e:
            raise pa.ArrowInvalid(ARRAY_HINT) if ARRAY in str(e) else e from e

    try:
        rows = parsed(json.ParseOptions(unexpected_field_behavior="infer"))
    except pa.ArrowInvalid:
        finite = without_non_finite(block)  # a column of numbers may have "NaN" and "Infinity"
        if finite == block:
            raise
        given, block = block, finite
        rows = parsed(json.ParseOptions(unexpected_field_behavior="infer"))
        rows = whole(pa.Table.from_batches([rows]).cast(with_doubles(rows.schema, given)))
    times = [f.name for f in rows.schema if pa.types.is_timestamp(f.type)]
    if times:
        texts = pa.schema([(name, pa.string()) for name in times])
        written = parsed(json.ParseOptions(explicit_schema=texts, unexpected_field_behavior="ignore"))
        for name in times:
            if pc.all(pc.match_substring_regex(written.column(name), _DAY), min_count=1).as_py():
                at = rows.schema.get_field_index(name)
                rows = rows.set_column(at, name, rows.column(at).cast(pa.date32()))
    return rows


def _parquet(file: Any) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(file) as parquet:
        yield from parquet.iter_batches(batch_size=_ROWS)


def _header(file: Any, path: str, delimiter: str, quote: str, expected: pa.Schema) -> tuple[Any, list[str]]:
    """Read the header of a CSV file; return the rest of the file, and the table's names of the columns."""
    import csv as plain

    line = bytearray()
    while not line.endswith(b"\n"):
        byte = file.read(1)
        if not byte:
            break
        line += byte
    table_names = {n.lower(): n for n in expected.names}
    text = bytes(line).decode("utf-8-sig", "replace").strip("\r\n")
    if not text:
        raise InvalidRequest(f"{path} is empty: expected a line of column names; use --no-header for a file without it")
    names = next(plain.reader([text], delimiter=delimiter, quotechar=quote))
    unknown = [n for n in names if n.lower() not in table_names]
    if unknown:
        hint = "" if len(unknown) < len(names) else "; use --no-header if the first line is a row"
        likely = next((d for d in ";\t|" if len(names) == 1 and d in text), None)
        hint = hint if likely is None else f"; use --delimiter {'tab' if likely == chr(9) else repr(likely)}"
        raise InvalidRequest(f"{path} has a column '{unknown[0]}'; the table has {', '.join(expected.names)}{hint}")
    return file, [table_names[n.lower()] for n in names]


def find_sources(paths: Sequence[str], format: Format | None, style: CsvStyle, options: dict[str, str]) -> list[Source]:
    """The files that arguments name: paths, folders (their files), patterns such as ``data/*.csv``, URIs and ``-``.

    Raises :class:`NotFound` for an argument without files, :class:`InvalidRequest` for a file of unknown format.
    """
    names: list[str] = []
    for path in paths:
        if path == "-" or scheme_of(path) != "file":
            names.append(path)
        elif os.path.isdir(path):
            inside = sorted(n for n in os.listdir(path) if not n.startswith((".", "_")))
            files = [os.path.join(path, n) for n in inside if os.path.isfile(os.path.join(path, n))]
            if not files:
                raise NotFound(f"the folder {path} has no files")
            names += files
        else:
            matches = [path] if os.path.exists(path) else sorted(glob.glob(path, recursive=True))
            if not matches:
                raise NotFound(f"file not found: {path}")
            names += matches
    return [Source(name, format or _import_format(name), style, options) for name in names]


def _import_format(path: str) -> Format:
    stem, ending = os.path.splitext(path.lower())
    if ending in _COMPRESSED:
        ending = os.path.splitext(stem)[1]
    format = _IMPORT_FORMATS.get(ending)
    if format is None:
        name = "stdin" if path == "-" else path
        raise InvalidRequest(f"unknown format of {name}: use --format parquet, csv or json")
    return format


# --- import -----------------------------------------------------------------------------------------------------------

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
@click.option(
    "--skip-bad",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Leave out at most N rows that cannot be parsed or stored, and show them; default: 0.",
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
    skip_bad: int,
) -> None:
    """Add the rows of Parquet, CSV or JSON files to a table in one commit, without Spark.

    A JSON file has one object per line. CSV and JSON files may be compressed (.gz, .zst, .bz2). In a table with a
    primary key, imported rows replace the rows with the same key.

    Example: bitlake import orders june.csv july.csv --create
    """
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
        bad = BadRows(skip_bad)
        written, snapshot = _write_rows(target, sources, overwrite, bad)
    except BaseException:
        if created and target.snapshot is None:  # a snapshot holds another writer's rows, or ours after all
            run.lake().drop_table(table)
        raise
    document = {
        "table": target.name,
        "created": created,
        "files": len(sources),
        "rows": written,
        "skipped": bad.count,
        "skipped_rows": bad.shown,
        "snapshot": snapshot,
        "seconds": round(time.perf_counter() - started, 3),
    }
    run.out.result(document, lambda screen: _show_import(screen, document))


def _write_rows(table: Table, sources: list[Source], overwrite: bool, bad: BadRows) -> tuple[int, int | None]:
    """Write all rows in one commit; return their number and the snapshot's id."""
    nullable = _nullable(arrow_schema(table.schema.fields))
    count = 0

    def check(batch: pa.RecordBatch) -> pa.RecordBatch:
        fit(table.name, pa.Table.from_batches([batch]), table.schema)
        return batch

    def rows() -> Iterator[pa.RecordBatch]:
        nonlocal count
        for source in sources:
            for batch in source.batches(nullable, check, bad):
                count += batch.num_rows
                say(f"{count:,} rows")
                yield batch

    snapshot = table.overwrite(rows()) if overwrite else table.append(rows())
    return count, None if snapshot is None else snapshot.id


def _nullable(schema: pa.Schema) -> pa.Schema:
    """The schema to parse text with: the table, not the parser, refuses missing values, with a better message."""
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
    if document["skipped"]:
        screen.line(f"skipped {counted(document['skipped'], 'row')}:")
        for text in document["skipped_rows"]:
            screen.line(f"  {text}")
        if document["skipped"] > len(document["skipped_rows"]):
            screen.line(f"  … {document['skipped'] - len(document['skipped_rows']):,} more")


# --- export -----------------------------------------------------------------------------------------------------------

_EXPORT_FORMATS = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}


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

    Example: bitlake export orders new.parquet -w "status = 'NEW'"
    """
    format = format or _export_format(file)
    if file == "-" and run.out.json:
        raise Usage("--json cannot be combined with export to stdout")
    if file != "-" and os.path.exists(file) and not overwrite:
        raise AlreadyExists(f"{file} already exists; --overwrite replaces it")
    scan = run.scan(table, snapshot, tag, timestamp, where, columns).limit(limit)
    started = time.perf_counter()
    if file == "-":
        write(sys.stdout.buffer, format, scan.schema, scan.to_batches())
        return
    rows = _to_file(file, format, scan.schema, scan.to_batches())
    document = {
        "table": scan.plan().table,
        "snapshot": scan.plan().snapshot_id,
        "file": file,
        "format": format,
        "rows": rows,
        "bytes": os.path.getsize(file),
        "seconds": round(time.perf_counter() - started, 3),
    }
    run.out.result(document, lambda screen: _show_export(screen, document))


def _export_format(file: str) -> str:
    format = _EXPORT_FORMATS.get(os.path.splitext(file)[1].lower())
    if format is None:
        raise Usage(f"unknown format of {'stdout' if file == '-' else file}: use --format parquet, csv or json")
    return format


def _to_file(file: str, format: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    """Write a temporary file beside it, then rename: readers never see half a file."""
    folder = os.path.dirname(file)
    if folder and not os.path.isdir(folder):
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
    screen.line(
        f"{document['file']}: {document['rows']:,} rows, {human_bytes(document['bytes'])} of {document['format']} in "
        f"{document['seconds']:.1f} s"
    )
