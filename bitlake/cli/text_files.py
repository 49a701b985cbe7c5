"""Text files to import: CSV and JSON lines, read in blocks, and the rows that ``--skip-bad`` leaves out.

A text file is read once, in blocks of whole rows, each parsed by Arrow at once.  A block that fails is halved until the
bad rows stand alone, so that every good row is kept and every bad one is named.  A CSV value of such a block stays text
until the block is split into records; the text is then converted by Arrow's CSV converter, so that it means the same as
in a block without bad rows.

Arrow's own readers of streams read ahead in threads.  Such a thread may still hold a Python file, standard input for
instance, when the interpreter ends, which aborts the process; and the text of rows that it cannot parse is gone.  Here
the thread that asks for rows reads the file, and has the text of the block at hand.

JSON files have one object on each line.  Arrow's parser takes no MAP columns, and no NaN or infinities.  Python parses
the columns that have them, value by value, since Arrow has no function for them; Arrow parses all other columns.  As in
Spark, a FLOAT or DOUBLE may be ``NaN``, ``Infinity``, ``+Infinity``, ``+INF``, ``-Infinity`` or ``-INF``, with or
without quotes.  It may also be ``"nan"``, ``"inf"`` or ``"-inf"``, which ``export`` writes.  A MAP is an object, whose
keys are the text of the map's keys.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from json import dumps, loads
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from pyarrow import csv, json

from bitlake.errors import InvalidRequest
from bitlake.formatting import counted, human_bytes
from bitlake.types.arrow import holds


class StandardInput:
    """Standard input, whose start can be read again after :meth:`rewind`."""

    def __init__(self) -> None:
        self._head = io.BytesIO()
        self._keeps = True

    def read(self, size: int = -1) -> bytes:
        """The next bytes, at most ``size``; none at the end."""
        data = self._head.read(size)
        if not data:
            data = sys.stdin.buffer.read(size)
            if self._keeps:
                self._head.write(data)
        return data

    def rewind(self) -> None:
        """Read again from the start; what is read after that is not kept."""
        self._head.seek(0)
        self._keeps = False

    def __enter__(self) -> StandardInput:
        return self

    def __exit__(self, *error: object) -> None:
        """Standard input stays open."""


def arrow_reader(text: bytes | memoryview) -> pa.BufferReader:
    """A reader of a copy of ``text`` in Arrow's memory, for Arrow's parsers.

    A thread of a parser may let go of its input after the parser has returned.  An input that belongs to Python takes
    the interpreter's lock for that, which aborts the process if the interpreter has ended by then.
    """
    copy = pa.allocate_buffer(len(text))
    memoryview(copy).cast("B")[:] = text
    return pa.BufferReader(copy)


def json_blocks(file: Any, size: int) -> Iterator[bytes]:
    """Blocks of about ``size`` bytes that end with a line.  Raises :class:`pyarrow.ArrowInvalid` for a longer line."""
    return _blocks(file, size, lambda text: text.rfind(b"\n") + 1, "")


def csv_blocks(file: Any, size: int, delimiter: str, quote: str) -> Iterator[bytes]:
    """Blocks of about ``size`` bytes that end with a record, which may have line breaks in quotes.

    Raises :class:`pyarrow.ArrowInvalid` for a longer record.
    """
    between = np.zeros(256, bool)
    between[list(f"{delimiter}\r\n{quote}".encode())] = True
    d, q = (re.escape(c.encode()) for c in (delimiter, quote))
    # Before Python 3.11.5 a possessive repeat takes a half of its group for a match: hence the look ahead.
    value = rb"(?:%(q)s(?:[^%(q)s]++|(?=%(q)s%(q)s)%(q)s%(q)s)*+%(q)s[^%(d)s\r\n]*+|[^%(q)s%(d)s\r\n][^%(d)s\r\n]*+)?"
    record = rb"(?:%(v)s(?:%(d)s%(v)s)*(?:\r?\n|\r(?!\Z)))*"
    parts = {b"d": d, b"q": q}
    records = re.compile(record % {**parts, b"v": value % parts})

    def end(text: bytes) -> int:
        letters = np.frombuffer(text, np.uint8)
        quotes = np.flatnonzero(letters == ord(quote))
        opening = quotes[2 if text.startswith(quote.encode()) else 0 :: 2]
        if not between[letters[opening - 1]].all():  # a quote inside an unquoted value is a character like others
            match = records.match(text)
            return 0 if match is None else match.end()
        at = len(text)
        while at > 0:
            at = max(text.rfind(b"\n", 0, at), text.rfind(b"\r", 0, min(at, len(text) - 1)))
            inside = int(np.searchsorted(quotes, at))
            if at < 0 or inside % 2 == 0:
                break
            at = int(quotes[inside - 1])
        return at + 1 if at > 0 else 0

    return _blocks(file, size, end, "; a quote may not be closed")


def _blocks(file: Any, size: int, end_of: Any, hint: str) -> Iterator[bytes]:
    rest = b""
    while data := file.read(size):
        text = rest + data
        end = end_of(text)
        if not end and len(text) > 2 * size:
            raise pa.ArrowInvalid(f"a row is longer than {human_bytes(2 * size)}{hint}")
        if end:
            yield text[:end]
        rest = text[end:]
    if rest:
        yield rest


_SHOWN = 20
"""Skipped rows that are kept to be shown."""


@dataclass(slots=True)
class BadRows:
    """The rows of a file that were left out so far, at most ``limit`` of all files.  Mutable."""

    limit: int
    count: int = 0
    shown: list[str] = field(default_factory=list)
    """The first of them, as ``FILE, column 'NAME': why (row N)``."""

    def add(self, text: str) -> None:
        """Count a row.  Raises :class:`InvalidRequest` with ``text`` if no more may be left out."""
        self.count += 1
        if self.count > self.limit:
            allowed = f"; --skip-bad leaves out at most {counted(self.limit, 'row')}" if self.limit else ""
            raise InvalidRequest(text + allowed)
        if len(self.shown) < _SHOWN:
            self.shown.append(text)


Check = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Returns rows as they are, or raises :class:`InvalidRequest`."""


class Block(Protocol):
    """Rows that can be halved: a record batch, or lines of text."""

    def __len__(self) -> int: ...
    def __getitem__(self, part: slice) -> Any: ...


def good_rows(
    path: str,
    block: Block,
    numbers: np.ndarray,
    convert: Callable[[Any], pa.RecordBatch],
    bad: BadRows,
) -> Iterator[pa.RecordBatch]:
    """Convert a block without its bad rows, which are added to ``bad``; ``numbers`` are the file's row numbers."""
    try:
        yield convert(block)
    except (InvalidRequest, pa.ArrowInvalid) as e:
        if len(block) > 1:
            half = len(block) // 2
            yield from good_rows(path, block[:half], numbers[:half], convert, bad)
            yield from good_rows(path, block[half:], numbers[half:], convert, bad)
        else:
            bad.add(f"{path}{_reason(e)} (row {numbers[0]})")


def message(error: Exception) -> str:
    """The text of an error on one line, without Arrow's prefix."""
    return " ".join(str(error).split()).removeprefix("Invalid: ")


def _reason(error: Exception) -> str:
    """``, column 'a': why``, or ``: why``."""
    text = message(error)
    place = re.match(r"JSON parse error: Column\(/([^)/]+)[^)]*\) ", text)
    if place is not None:
        return f", column '{place.group(1)}': {re.sub(r' in row [0-9]+$', '', text[place.end() :])}"
    named = re.match(r"(?:table '[^']*': )?column '([^']*)'(?: is|:) ", text)
    return f": {text}" if named is None else f", column '{named.group(1)}': {text[named.end() :]}"


Parse = Callable[[bytes], pa.RecordBatch]
"""Returns the rows of a block; raises :class:`pyarrow.ArrowInvalid`."""


class Split(Protocol):
    """Splits a block into rows that need not be right."""

    def __call__(self, block: bytes, first: int) -> tuple[Block, np.ndarray, int]:
        """The rows, their numbers, and the number of the row after the block; ``first`` is that of its first row."""


def good_blocks(
    path: str,
    blocks: Iterable[bytes],
    first: int,
    parse: Parse,
    split: Split,
    convert: Callable[[Any], pa.RecordBatch],
    count: Callable[[bytes, pa.RecordBatch], int],
    bad: BadRows,
) -> Iterator[pa.RecordBatch]:
    """Parse blocks of text without their bad rows, which are added to ``bad``.

    ``parse`` takes a whole block; one that it fails on is split into rows, which are converted by ``convert``.
    ``count`` is by how much a block without bad rows moves the row number, which begins at ``first``.
    """
    for block in blocks:
        try:
            rows = parse(block)
        except (InvalidRequest, pa.ArrowInvalid):
            records, numbers, first = split(block, first)
            yield from good_rows(path, records, numbers, convert, bad)
        else:
            first += count(block, rows)
            yield rows


def whole(table: pa.Table) -> pa.RecordBatch:
    """The rows of a table as one batch."""
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)


# --- CSV --------------------------------------------------------------------------------------------------------------


def csv_splitter(
    path: str, names: Sequence[str], parsing: dict[str, Any], conversion: dict[str, Any], bad: BadRows
) -> Split:
    """A function that splits a block of CSV into records of text.

    Records with too few or too many columns are added to ``bad``.
    """

    def split(block: bytes, first: int) -> tuple[pa.RecordBatch, np.ndarray, int]:
        wrong: list[int] = []
        failed: list[InvalidRequest] = []  # Arrow drops what a handler raises

        def skip(row: Any) -> str:
            wrong.append(row.number + first - 1)
            text = f"Expected {row.expected_columns} columns, got {row.actual_columns}: {row.text}"
            try:
                bad.add(f"{path}: CSV parse error: {text} (row {wrong[-1]})")
            except InvalidRequest as e:
                failed.append(e)
                return "error"
            return "skip"

        try:
            table = csv.read_csv(
                arrow_reader(block),
                csv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=names),
                csv.ParseOptions(**parsing, invalid_row_handler=skip),
                csv.ConvertOptions(**conversion, column_types=dict.fromkeys(names, pa.string())),
            )
        except pa.ArrowInvalid as e:
            if failed:
                raise failed[0] from e
            raise
        end = first + table.num_rows + len(wrong)
        numbers = np.arange(first, end)
        return whole(table), numbers[~np.isin(numbers, wrong)], end

    return split


def csv_parser(names: Sequence[str] | None, options: dict[str, Any], parsing: dict[str, Any]) -> Parse:
    """A function that parses a block of CSV; ``options`` are those of conversion.

    Without ``names``, they stand in the block's first line.
    """
    convert = csv.ConvertOptions(**options)

    def parse(block: bytes) -> pa.RecordBatch:
        read = csv.ReadOptions(column_names=names)
        return whole(csv.read_csv(arrow_reader(block), read, csv.ParseOptions(**parsing), convert))

    return parse


def csv_converter(expected: pa.Schema) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """A function that converts columns of text to the types of a table."""

    def convert(texts: pa.RecordBatch) -> pa.RecordBatch:
        names = [n for n in texts.schema.names if expected.field(n).type != pa.string()]
        if not names:
            return texts
        # NULL is an empty field and a text is quoted, as in the file.
        out = io.BytesIO()
        csv.write_csv(texts.select(names), out, csv.WriteOptions(include_header=False, quoting_style="all_valid"))
        try:
            table = csv.read_csv(
                arrow_reader(out.getbuffer()),
                csv.ReadOptions(column_names=names, use_threads=False),
                csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
                csv.ConvertOptions(
                    column_types={n: expected.field(n).type for n in names},
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            ).combine_chunks()
        except pa.ArrowInvalid as e:
            place = re.match(r"In CSV column #(\d+): (?:Row #\d+: )?", str(e))
            if place is None:
                raise
            raise InvalidRequest(f"column '{names[int(place.group(1))]}': {str(e)[place.end() :]}") from e
        columns = [table.column(n).combine_chunks() if n in names else texts.column(n) for n in texts.schema.names]
        return pa.record_batch(columns, names=texts.schema.names)

    return convert


ARRAY = "Column() changed from object to array"
"""Arrow's error for a file that is not lines of objects."""
ARRAY_HINT = "the file is one JSON array; write one object per line, with jq -c '.[]'"


def json_lines(block: bytes, first: int) -> tuple[list[bytes], np.ndarray, int]:
    """Split a block into lines that are not blank."""
    lines = block.removesuffix(b"\n").split(b"\n")
    numbers = [first + i for i, line in enumerate(lines) if line.strip()]
    return [line for line in lines if line.strip()], np.array(numbers), first + len(lines)


def json_parser(parse: json.ParseOptions) -> Parse:
    """A function that parses a block of JSON."""

    def parsed(block: bytes) -> pa.RecordBatch:
        return whole(read_json(block, parse))

    return parsed


def json_converter(parse: json.ParseOptions) -> Callable[[list[bytes]], pa.RecordBatch]:
    """A function that parses lines of JSON."""

    def convert(lines: list[bytes]) -> pa.RecordBatch:
        text = b"\n".join(lines)
        read = json.ReadOptions(use_threads=False, block_size=len(text) + 1)
        try:
            table = read_json(text, parse, read).combine_chunks()
        except pa.ArrowInvalid as e:
            if ARRAY in str(e):
                raise InvalidRequest(ARRAY_HINT) from e
            known = parse.explicit_schema.names
            unknown = [n for n in _names(lines[0]) if n not in known] if len(lines) == 1 else []
            if not unknown:
                raise
            raise InvalidRequest(f"column '{unknown[0]}' is not among the table's columns, {', '.join(known)}") from e
        if table.num_rows != len(lines):
            raise InvalidRequest("a line holds more than one JSON object")
        return table.to_batches()[0]

    return convert


def _names(line: bytes) -> list[str]:
    try:
        row = loads(line)
    except ValueError:
        return []
    return list(row) if isinstance(row, dict) else []


# --- values that Python parses ----------------------------------------------------------------------------------------

_NON_FINITE = {
    **dict.fromkeys(("NaN", "nan"), float("nan")),
    **dict.fromkeys(("Infinity", "+Infinity", "+INF", "inf"), float("inf")),
    **dict.fromkeys(("-Infinity", "-INF", "-inf"), float("-inf")),
}
_NON_FINITE_TEXT = re.compile(rb'"(?:' + b"|".join(re.escape(name.encode()) for name in _NON_FINITE) + rb')"')
_STRING_OR_NON_FINITE = re.compile(rb'"(?:[^"\\]|\\.)*"|(NaN|Infinity|[+-](?:Infinity|INF))')
"""A string, or outside of strings (group 1) a value that is not finite."""
_SHOWN_CHARS = 50
Convert = Callable[[Any], Any]


def _with_quotes(text: bytes) -> bytes:
    """Put quotes around NaN and infinities, which the parsers take as text only."""
    if not any(word in text for word in (b"NaN", b"Inf", b"INF")):
        return text
    return _STRING_OR_NON_FINITE.sub(lambda m: m[0] if m[1] is None else b'"%b"' % m[1], text)


def without_non_finite(text: bytes) -> bytes:
    """Replace NaN and infinities in lines of JSON, quoted or not, with null; also in columns of text."""
    return _NON_FINITE_TEXT.sub(b"null", _with_quotes(text))


def with_doubles(schema: pa.Schema, text: bytes) -> pa.Schema:
    """Make integers DOUBLE in the columns that have NaN or infinities in these lines of JSON."""
    rows = _rows(_with_quotes(text))
    return pa.schema(
        [f.with_type(_doubles(f.type)) if any(_has_non_finite(r.get(f.name)) for r in rows) else f for f in schema]
    )


def _has_non_finite(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(_has_non_finite, value.values() if isinstance(value, dict) else value))
    return isinstance(value, str) and value in _NON_FINITE


def _doubles(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_integer(kind):
        return pa.float64()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_doubles(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(_doubles(f.type)) for f in kind])
    return kind


def read_json(text: bytes, parse: json.ParseOptions, read: json.ReadOptions | None = None) -> pa.Table:
    """Parse lines of JSON as Arrow does, with MAP columns, NaN and infinities.

    Raises :class:`pyarrow.ArrowInvalid`, and :class:`InvalidRequest` naming the column.
    """
    schema = parse.explicit_schema
    by_python = [f for f in schema if holds(f.type, pa.types.is_map)]
    floats = [f for f in schema if f not in by_python and holds(f.type, pa.types.is_floating)]
    if not by_python:
        try:
            return json.read_json(arrow_reader(text), read, parse)
        except pa.ArrowInvalid:
            text = _with_quotes(text) if floats else b""
            if not _NON_FINITE_TEXT.search(text):
                raise
    else:
        text = _with_quotes(text)
    if _NON_FINITE_TEXT.search(text):
        by_python += floats
    rows = _rows(text)
    if not set().union(*rows) <= set(schema.names):
        raise pa.ArrowInvalid("JSON parse error: unexpected field")
    columns = {f.name: _column(f, [row.get(f.name) for row in rows]) for f in by_python}
    rest = pa.schema([f for f in schema if f.name not in columns])
    if len(rest):
        others = json.ParseOptions(explicit_schema=rest, unexpected_field_behavior="ignore")
        table = json.read_json(arrow_reader(text), read, others)
        columns |= {name: table.column(name) for name in rest.names}
    return pa.table({f.name: columns[f.name] for f in schema}, schema)


def _rows(text: bytes) -> list[dict[str, Any]]:
    lines = [line for line in text.split(b"\n") if line.strip()]
    try:
        rows = loads(b"[" + b",".join(lines) + b"]", parse_float=Decimal)  # a float would round a DECIMAL
    except (ValueError, RecursionError) as e:
        raise pa.ArrowInvalid(f"JSON parse error: {e}") from e
    if len(rows) != len(lines) or not all(isinstance(row, dict) for row in rows):
        raise pa.ArrowInvalid("JSON parse error: a line is not one JSON object")
    return rows  # type: ignore[no-any-return]


def _column(field: pa.Field, values: list[Any]) -> pa.Array:
    convert = _converter(field.type)
    try:
        return pa.array([convert(v) for v in values], _parsed_type(field.type)).cast(field.type)
    except (pa.ArrowException, OverflowError) as e:
        raise InvalidRequest(f"column '{field.name}': {' '.join(str(e).split())}") from e


def _parsed_type(kind: pa.DataType) -> pa.DataType:
    """The type of parsed values: text for times and decimals, which Arrow casts from text."""
    if pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
        return pa.string()
    if pa.types.is_map(kind):
        return pa.map_(_parsed_type(kind.key_type), _parsed_type(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_parsed_type(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(_parsed_type(f.type)) for f in kind])
    return kind


def _converter(kind: pa.DataType) -> Convert:
    """A function that checks a JSON value and converts it to a value of :func:`_parsed_type`; None stays None."""
    if pa.types.is_map(kind):
        key, item = _key_converter(kind.key_type), _converter(kind.item_type)

        def entries(value: dict[str, Any]) -> list[tuple[Any, Any]]:
            converted = {key(k): item(v) for k, v in value.items()}
            if len(converted) < len(value):
                raise _mismatch(value, kind)
            return list(converted.items())

        return _checked(kind, dict, entries)
    if pa.types.is_list(kind):
        item = _converter(kind.value_type)
        return _checked(kind, list, lambda v: [item(value) for value in v])
    if pa.types.is_struct(kind):
        members = {f.name: _converter(f.type) for f in kind}

        def struct(value: dict[str, Any]) -> dict[str, Any]:
            if not value.keys() <= members.keys():
                raise _mismatch(value, kind)
            return {name: convert(value.get(name)) for name, convert in members.items()}

        return _checked(kind, dict, struct)
    if pa.types.is_floating(kind):
        return _checked(kind, (int, float, Decimal, str), lambda v: _number(v, kind))
    if pa.types.is_decimal(kind):
        return _checked(kind, (int, float, Decimal, str), str)
    if pa.types.is_boolean(kind):
        return _checked(kind, bool, bool)
    return _checked(kind, int if pa.types.is_integer(kind) else str, lambda v: v)


def _key_converter(kind: pa.DataType) -> Convert:
    """A function that converts a key of a JSON object: text, or the text of another JSON value."""
    convert = _converter(kind)
    if pa.types.is_string(kind) or pa.types.is_temporal(kind):
        return convert

    def converted(key: str) -> Any:
        try:
            value = loads(_with_quotes(key.encode()), parse_float=Decimal)
        except ValueError:
            value = key
        if value is None:
            raise _mismatch(value, kind)
        return convert(value)

    return converted


def _checked(kind: pa.DataType, accepted: type | tuple[type, ...], convert: Convert) -> Convert:
    def checked(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, accepted) or (isinstance(value, bool) and accepted is not bool):
            raise _mismatch(value, kind)
        return convert(value)

    return checked


def _number(value: Any, kind: pa.DataType) -> float:
    if not isinstance(value, str):
        return float(value)
    number = _NON_FINITE.get(value)
    if number is None:
        raise _mismatch(value, kind)
    return number


def _mismatch(value: Any, kind: pa.DataType) -> pa.ArrowInvalid:
    text = dumps(value, ensure_ascii=False, default=float)
    shown = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
    return pa.ArrowInvalid(f"{shown} is not a value of type {kind}")
