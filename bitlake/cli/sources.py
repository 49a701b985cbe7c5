"""Files that are imported, as Arrow batches: Parquet, CSV and JSON (one object a line), read piece by piece.

An empty CSV field is NULL and a quoted empty one (``""``) an empty text, as PostgreSQL's COPY has it.
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
    """What a file holds."""

    PARQUET = "parquet"
    CSV = "csv"
    JSON = "json"


_ENDINGS = {
    ".parquet": Format.PARQUET, ".pq": Format.PARQUET, ".csv": Format.CSV, ".tsv": Format.CSV, ".json": Format.JSON,
    ".jsonl": Format.JSON, ".ndjson": Format.JSON,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class CsvStyle:
    """How a CSV file is written; ``delimiter`` None is by the file's name: a tab for ``.tsv``, else a comma."""

    delimiter: str | None = None
    quote: str = '"'
    header: bool = True
    null: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """A file to import: its path or URI (``-`` is stdin), what it holds, and how its store is reached."""

    path: str
    format: Format
    style: CsvStyle = field(default_factory=CsvStyle)
    options: dict[str, str] = field(default_factory=dict)
    _held: list[bytes] = field(default_factory=list, repr=False, compare=False)
    """What stdin gave, once its columns were looked at."""

    def batches(self, wanted: pa.Schema | None) -> Iterator[pa.RecordBatch]:
        """The rows.

        Text is read as ``wanted`` says, a schema whose columns are found by name in upper or lower case; without it, as
        the first rows look.  Raises :class:`InvalidRequest` naming file, row and column of what does not fit.
        """
        try:
            with self._opened() as file:
                if self.format is Format.PARQUET:
                    yield from _parquet(file)
                else:
                    reader = self._csv(file, wanted) if self.format is Format.CSV else self._json(file, wanted)
                    yield from reader
        except pa.ArrowInvalid as e:
            raise InvalidRequest(f"{self.path}: {self._told(e, wanted)}") from e
        except (pa.ArrowException, EOFError) as e:
            raise CorruptError(f"{self.path} cannot be read as {self.format}: {_said(e)}") from e
        except FileNotFoundError as e:
            raise NotFound(f"there is no file {self.path}") from e
        except IsADirectoryError as e:
            raise InvalidRequest(f"{self.path} is a folder: name its files, as in '{self.path}/*.{self.format}'") from e
        except OSError as e:
            raise StorageUnavailable(f"{self.path} cannot be read: {e.strerror or e}") from e

    def schema(self) -> pa.Schema:
        """The columns as the file has them, or as its first rows look."""
        if self.path == "-":
            self._held[:] = [sys.stdin.buffer.read()]
        batches = self.batches(None)
        first = next(batches, None)
        batches.close()  # type: ignore[attr-defined]
        if first is None:
            raise InvalidRequest(f"{self.path} has no rows to tell the columns' types from: create the table first")
        return self._with_dates(first.schema) if self.format is Format.JSON else first.schema

    def _with_dates(self, schema: pa.Schema) -> pa.Schema:
        """JSON has no dates, and Arrow takes a day for a time: columns whose first texts all are days are DATE."""
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

    def _csv(self, file: Any, wanted: pa.Schema | None) -> Iterator[pa.RecordBatch]:
        from pyarrow import csv

        style = self.style
        delimiter = style.delimiter or ("\t" if ".tsv" in self.path else ",")
        names = None if style.header or wanted is None else wanted.names
        types = {}
        if wanted is not None:
            nested = [f.name for f in wanted if pa.types.is_nested(f.type)]
            if nested:
                raise InvalidRequest(f"{self.path}: column '{nested[0]}' is nested, which CSV cannot hold; use JSON")
            if style.header:
                file, names = _header(file, self.path, delimiter, style.quote, wanted)
            types = {f.name: f.type for f in wanted}
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
            if wanted is not None and "Empty CSV file" in str(e):
                return  # names of columns, and no row
            raise InvalidRequest(f"{self.path}{_in_column(_said(e), names)}") from e

    def _json(self, file: Any, wanted: pa.Schema | None) -> Iterator[pa.RecordBatch]:
        from pyarrow import json

        behaviour = "infer" if wanted is None else "error"
        asked = None if wanted is None else pa.schema([f.with_type(_as_read(f.type)) for f in wanted])
        parse = json.ParseOptions(explicit_schema=asked, unexpected_field_behavior=behaviour)
        try:
            reader = json.open_json(file, read_options=json.ReadOptions(block_size=_BLOCK), parse_options=parse)
            return reader if wanted is None else (self._of_texts(batch, wanted) for batch in reader)
        except pa.ArrowInvalid as e:
            if "Column() changed from object to array" in str(e):
                raise InvalidRequest(f"{self.path} is one JSON array; write one object a line: jq -c '.[]'") from e
            raise

    def _told(self, error: Exception, wanted: pa.Schema | None) -> str:
        """What Arrow says of the file; of a JSON column that the table has not, its name."""
        if wanted is None or "unexpected field" not in str(error):
            return _said(error)
        from pyarrow import json

        unknown: list[str] = []
        if self.path != "-":
            with self._opened() as file, suppress(pa.ArrowInvalid):
                unknown = [n for n in json.open_json(file).schema.names if n not in wanted.names]
        what = f"column '{unknown[0]}' is" if unknown else "a column is"
        return f"{what} not among the table's columns, {', '.join(wanted.names)}"

    def _of_texts(self, batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
        """The batch with the days and times of its texts."""
        for i, f in enumerate(batch.schema):
            made = wanted.field(f.name).type
            if made != f.type:
                try:
                    batch = batch.set_column(i, f.name, batch.column(i).cast(made))
                except pa.ArrowInvalid as e:
                    raise InvalidRequest(f"{self.path}: column '{f.name}': {_said(e)}") from e
        return batch


def _as_read(made: pa.DataType) -> pa.DataType:
    """Arrow reads days and times from numbers alone, which nobody writes into JSON."""
    return pa.string() if pa.types.is_date(made) or pa.types.is_time(made) else made


def _parquet(file: Any) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(file) as parquet:
        yield from parquet.iter_batches(batch_size=128 * 1024)


def _header(file: Any, path: str, delimiter: str, quote: str, wanted: pa.Schema) -> tuple[Any, list[str]]:
    """A CSV file after its first line, and the columns that it names, as the table writes them."""
    import csv as plain

    line = bytearray()
    while not line.endswith(b"\n"):
        byte = file.read(1)
        if not byte:
            break
        line += byte
    known = {n.lower(): n for n in wanted.names}
    text = bytes(line).decode("utf-8-sig", "replace").strip("\r\n")
    if not text:
        raise InvalidRequest(f"{path} is empty: a line with the columns' names is wanted, or say --no-header")
    names = next(plain.reader([text], delimiter=delimiter, quotechar=quote))
    unknown = [n for n in names if n.lower() not in known]
    if unknown:
        hint = "" if len(unknown) < len(names) else "; say --no-header if the first line is a row"
        other = next((d for d in ";\t|" if len(names) == 1 and d in text), None)
        hint = hint if other is None else f"; say --delimiter {'tab' if other == chr(9) else repr(other)}"
        raise InvalidRequest(f"{path} has a column '{unknown[0]}', and the table has {', '.join(wanted.names)}{hint}")
    return file, [known[n.lower()] for n in names]


def _in_column(text: str, names: Sequence[str] | None) -> str:
    """Arrow's words, with the name of the column that it numbers from 0."""
    found = re.match(r"In CSV column #(\d+): (?:Row #\d+: )?", text)
    if found is None or names is None or int(found.group(1)) >= len(names):
        return f": {text}"
    return f", column '{names[int(found.group(1))]}': {text[found.end() :]}"


def _said(error: Exception) -> str:
    return " ".join(str(error).split()).removeprefix("Invalid: ")


def find_sources(paths: Sequence[str], given: Format | None, style: CsvStyle, options: dict[str, str]) -> list[Source]:
    """The files that arguments name: paths, folders (their files), patterns as ``data/*.csv``, URIs, ``-``.

    Raises :class:`NotFound` for what names no file, :class:`InvalidRequest` where a format must be said.
    """
    names: list[str] = []
    for path in paths:
        if path == "-" or scheme_of(path) != "file":
            names.append(path)
        elif os.path.isdir(path):
            inside = sorted(n for n in os.listdir(path) if not n.startswith((".", "_")))
            files = [os.path.join(path, n) for n in inside if os.path.isfile(os.path.join(path, n))]
            if not files:
                raise NotFound(f"there are no files in {path}")
            names += files
        else:
            found = [path] if os.path.exists(path) else sorted(glob.glob(path, recursive=True))
            if not found:
                raise NotFound(f"there is no file {path}")
            names += found
    return [Source(name, given or _format_of(name), style, options) for name in names]


def _format_of(path: str) -> Format:
    stem, ending = os.path.splitext(path.lower())
    if ending in _COMPRESSED:
        ending = os.path.splitext(stem)[1]
    found = _ENDINGS.get(ending)
    if found is None:
        what = "stdin" if path == "-" else path
        raise InvalidRequest(f"what is in {what}? Say --format parquet, csv or json")
    return found
