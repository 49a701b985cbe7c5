"""Files to import, read as a stream of Arrow batches: Parquet, CSV and JSON (one object per line).

An empty CSV field is NULL and a quoted empty field (``""``) is an empty string, as in PostgreSQL's COPY.
"""

from __future__ import annotations

import glob
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pyarrow as pa

from bitlake.errors import CorruptError, InvalidRequest, NotFound, StorageUnavailable
from bitlake.io import open_store
from bitlake.io.base import scheme_of

_BLOCK = 16 << 20
"""Bytes of text parsed at a time."""
_DAY = r"^\d{4}-\d{2}-\d{2}$"
_COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}


class Format(StrEnum):
    """The format of a file."""

    PARQUET = "parquet"
    CSV = "csv"
    JSON = "json"


_FORMATS = {
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
    _held: list[bytes] = field(default_factory=list, repr=False, compare=False)
    """The content of stdin, once :meth:`schema` has read it."""

    def batches(self, expected: pa.Schema | None) -> Iterator[pa.RecordBatch]:
        """Read the rows.

        Text is parsed by the schema ``expected``, whose column names match in any case; without it, types are inferred
        from the first rows.  Raises :class:`InvalidRequest` with the file, row and column of a value that does not fit.
        """
        try:
            with self._opened() as file:
                if self.format is Format.PARQUET:
                    yield from _parquet(file)
                else:
                    reader = self._csv(file, expected) if self.format is Format.CSV else self._json(file, expected)
                    yield from reader
        except pa.ArrowInvalid as e:
            raise InvalidRequest(f"{self.path}: {self._parse_error(e, expected)}") from e
        except (pa.ArrowException, EOFError) as e:
            raise CorruptError(f"{self.path} cannot be read as {self.format}: {_message(e)}") from e
        except FileNotFoundError as e:
            raise NotFound(f"file not found: {self.path}") from e
        except IsADirectoryError as e:
            raise InvalidRequest(
                f"{self.path} is a folder: name files in it, such as '{self.path}/*.{self.format}'"
            ) from e
        except OSError as e:
            raise StorageUnavailable(f"{self.path} cannot be read: {e.strerror or e}") from e

    def schema(self) -> pa.Schema:
        """The file's schema: declared by Parquet, inferred from the first rows of text."""
        if self.path == "-":
            self._held[:] = [sys.stdin.buffer.read()]
        batches = self.batches(None)
        first = next(batches, None)
        batches.close()  # type: ignore[attr-defined]
        if first is None:
            raise InvalidRequest(f"{self.path} has no rows to infer column types from: create the table first")
        return self._with_dates(first.schema) if self.format is Format.JSON else first.schema

    def _with_dates(self, schema: pa.Schema) -> pa.Schema:
        """Make timestamp columns DATE if all their first values are days: Arrow infers timestamps from both."""
        from pyarrow import compute as pc
        from pyarrow import json

        times = [f.name for f in schema if pa.types.is_timestamp(f.type)]
        if not times:
            return schema
        texts = pa.schema([(name, pa.string()) for name in times])
        parse = json.ParseOptions(explicit_schema=texts, unexpected_field_behavior="ignore")
        with self._opened() as file:
            reader = json.open_json(file, read_options=json.ReadOptions(block_size=_BLOCK), parse_options=parse)
            first = reader.read_next_batch()
        for name in times:
            if pc.all(pc.match_substring_regex(first.column(name), _DAY), min_count=1).as_py():
                schema = schema.set(schema.get_field_index(name), pa.field(name, pa.date32()))
        return schema

    def _opened(self) -> Any:
        if self.path == "-":
            return pa.BufferReader(self._held[0]) if self._held else pa.PythonFile(sys.stdin.buffer, "r")
        if scheme_of(self.path) != "file":
            raw = open_store(self.path, self.options).open_input(self.path)
        else:
            raw = pa.OSFile(self.path.removeprefix("file://"), "rb")
        kind = _COMPRESSED.get(os.path.splitext(self.path)[1])
        return raw if kind is None or self.format is Format.PARQUET else pa.CompressedInputStream(raw, kind)

    def _csv(self, file: Any, expected: pa.Schema | None) -> Iterator[pa.RecordBatch]:
        from pyarrow import csv

        style = self.style
        delimiter = style.delimiter or ("\t" if ".tsv" in self.path else ",")
        names = None if style.header or expected is None else expected.names
        types = {}
        if expected is not None:
            nested = [f.name for f in expected if pa.types.is_nested(f.type)]
            if nested:
                raise InvalidRequest(f"{self.path}: column '{nested[0]}' is nested, which CSV cannot hold; use JSON")
            if style.header:
                file, names = _header(file, self.path, delimiter, style.quote, expected)
            types = {f.name: f.type for f in expected}
        try:
            yield from csv.open_csv(
                file,
                read_options=csv.ReadOptions(
                    block_size=_BLOCK, column_names=names, autogenerate_column_names=not style.header and names is None
                ),
                parse_options=csv.ParseOptions(delimiter=delimiter, quote_char=style.quote, newlines_in_values=True),
                convert_options=csv.ConvertOptions(
                    column_types=types,
                    null_values=["", *style.null],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid as e:
            if expected is not None and "Empty CSV file" in str(e):
                return  # a header without rows
            raise InvalidRequest(f"{self.path}{_in_column(_message(e), names)}") from e

    def _json(self, file: Any, expected: pa.Schema | None) -> Iterator[pa.RecordBatch]:
        from pyarrow import json

        behaviour = "infer" if expected is None else "error"
        schema = None if expected is None else pa.schema([f.with_type(_json_type(f.type)) for f in expected])
        parse = json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=behaviour)
        try:
            reader = json.open_json(file, read_options=json.ReadOptions(block_size=_BLOCK), parse_options=parse)
            return reader if expected is None else (self._cast(batch, expected) for batch in reader)
        except pa.ArrowInvalid as e:
            if "Column() changed from object to array" in str(e):
                raise InvalidRequest(
                    f"{self.path} is one JSON array; write one object per line, with jq -c '.[]'"
                ) from e
            raise

    def _parse_error(self, error: Exception, expected: pa.Schema | None) -> str:
        """Arrow's message, or the name of a JSON column that the table does not have."""
        if expected is None or "unexpected field" not in str(error):
            return _message(error)
        from pyarrow import json

        unknown: list[str] = []
        if self.path != "-":
            with self._opened() as file, suppress(pa.ArrowInvalid):
                unknown = [n for n in json.open_json(file).schema.names if n not in expected.names]
        subject = f"column '{unknown[0]}' is" if unknown else "a column is"
        return f"{subject} not among the table's columns, {', '.join(expected.names)}"

    def _cast(self, batch: pa.RecordBatch, expected: pa.Schema) -> pa.RecordBatch:
        """Cast the strings of date and time columns."""
        for i, f in enumerate(batch.schema):
            data_type = expected.field(f.name).type
            if data_type != f.type:
                try:
                    batch = batch.set_column(i, f.name, batch.column(i).cast(data_type))
                except pa.ArrowInvalid as e:
                    raise InvalidRequest(f"{self.path}: column '{f.name}': {_message(e)}") from e
        return batch


def _json_type(data_type: pa.DataType) -> pa.DataType:
    """The type to parse JSON with: strings for dates and times, which Arrow parses from numbers only."""
    return pa.string() if pa.types.is_date(data_type) or pa.types.is_time(data_type) else data_type


def _parquet(file: Any) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(file) as parquet:
        yield from parquet.iter_batches(batch_size=128 * 1024)


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


def _in_column(text: str, names: Sequence[str] | None) -> str:
    """Arrow's message, with a column name in place of its number."""
    match = re.match(r"In CSV column #(\d+): (?:Row #\d+: )?", text)
    if match is None or names is None or int(match.group(1)) >= len(names):
        return f": {text}"
    return f", column '{names[int(match.group(1))]}': {text[match.end() :]}"


def _message(error: Exception) -> str:
    return " ".join(str(error).split()).removeprefix("Invalid: ")


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
    return [Source(name, format or _format_of(name), style, options) for name in names]


def _format_of(path: str) -> Format:
    stem, ending = os.path.splitext(path.lower())
    if ending in _COMPRESSED:
        ending = os.path.splitext(stem)[1]
    format = _FORMATS.get(ending)
    if format is None:
        name = "stdin" if path == "-" else path
        raise InvalidRequest(f"unknown format of {name}: use --format parquet, csv or json")
    return format
