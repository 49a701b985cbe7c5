"""JSON files with one object on each line, including MAP columns, and NaN and infinities as text.

Arrow's parser does not accept these values.  Python parses the columns that have them, value by value, since Arrow has
no function for them; Arrow parses all other columns.  As in Spark, a MAP is an object whose keys are text, and a FLOAT
or DOUBLE may be ``"NaN"``, ``"Infinity"``, ``"+Infinity"``, ``"+INF"``, ``"-Infinity"`` or ``"-INF"``.  It may also be
``"nan"``, ``"inf"`` or ``"-inf"``, which ``export`` writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from json import dumps, loads
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import json

from bitlake.cli.bad_rows import Parse, arrow_reader, whole
from bitlake.errors import InvalidRequest
from bitlake.types.arrow import holds

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
_SHOWN_CHARS = 50
Convert = Callable[[Any], Any]


def check_map_keys(schema: pa.Schema) -> None:
    """Raise :class:`InvalidRequest` for a MAP whose keys are not text."""
    for f in schema:
        if holds(f.type, lambda kind: pa.types.is_map(kind) and not pa.types.is_string(kind.key_type)):
            raise InvalidRequest(
                f"column '{f.name}' has a MAP whose keys are not text, which JSON cannot hold; use Parquet"
            )


def read_json(text: bytes, parse: json.ParseOptions, read: json.ReadOptions | None = None) -> pa.Table:
    """Parse lines of JSON as Arrow does, with MAP columns, and NaN and infinities as text.

    Raises :class:`pyarrow.ArrowInvalid`, and :class:`InvalidRequest` naming the column.
    """
    schema = parse.explicit_schema
    by_python = [f for f in schema if holds(f.type, pa.types.is_map)]
    floats = [f for f in schema if f not in by_python and holds(f.type, pa.types.is_floating)]
    if not by_python:
        try:
            return json.read_json(arrow_reader(text), read, parse)
        except pa.ArrowInvalid:
            if not floats or not _NON_FINITE_TEXT.search(text):
                raise
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
        return pa.map_(kind.key_type, _parsed_type(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_parsed_type(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(_parsed_type(f.type)) for f in kind])
    return kind


def _converter(kind: pa.DataType) -> Convert:
    """A function that checks a JSON value and converts it to a value of :func:`_parsed_type`; None stays None."""
    if pa.types.is_map(kind):
        item = _converter(kind.item_type)
        return _checked(kind, dict, lambda v: [(key, item(value)) for key, value in v.items()])
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
