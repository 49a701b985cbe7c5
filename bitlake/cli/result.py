"""Rows of a result as text: a table, CSV, JSON lines or Parquet.  Imported lazily: it loads pyarrow.

JSON is made column by column, with no Python loop over rows.  Texts are escaped as RFC 8259 asks; whole numbers and
finite floats are numbers; decimals are texts, so that readers lose no digit, and NaN and infinities too, since JSON has
none; times are ISO 8601, in UTC with ``Z`` where they are instants; binary is hexadecimal digits; structs are objects,
lists arrays, maps objects whose keys are texts.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv

from bitlake.cli.output import Output, Screen
from bitlake.errors import InvalidRequest

if TYPE_CHECKING:
    from bitlake.lake import Lake

NULL = "NULL"


def cells(rows: pa.Table) -> list[list[str]]:
    """One text for each value of the rows that are shown, row by row; binary as hexadecimal digits."""
    columns = [[_cell(v) for v in column.to_pylist()] for column in rows.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def numeric(made: pa.DataType) -> bool:
    """Whether values of a type are set to the right."""
    return bool(pa.types.is_integer(made) or pa.types.is_floating(made) or pa.types.is_decimal(made))


def _cell(value: Any) -> str:
    if value is None:
        return NULL
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {_cell(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        if value and all(isinstance(v, tuple) and len(v) == 2 for v in value):
            return "{" + ", ".join(f"{_cell(k)}: {_cell(v)}" for k, v in value) + "}"
        return "[" + ", ".join(map(_cell, value)) + "]"
    text = str(value)
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text) if not text.isprintable() else text


_ESCAPES = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"), ("\b", "\\b"), ("\f", "\\f"))
_REST = "[\x00-\x1f]"


def json_lines(rows: pa.RecordBatch | pa.Table) -> bytes:
    """The rows as UTF-8 text, each line ended."""
    out = []
    batches = rows.to_batches() if isinstance(rows, pa.Table) else [rows]
    for batch in batches:
        if batch.num_rows:
            out.append(_joined(_objects(batch.schema.names, batch.columns)) + b"\n")
    return b"".join(out)


def _joined(lines: pa.Array) -> bytes:
    whole = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
    return pc.binary_join(whole, "\n")[0].as_py().encode()  # type: ignore[no-any-return]


def _objects(names: list[str], columns: list[pa.Array]) -> pa.Array:
    """One object per row, of values that are side by side."""
    if not columns:
        return pa.array([], pa.string())
    parts: list[pa.Array | pa.Scalar] = []
    for i, (name, column) in enumerate(zip(names, columns, strict=True)):
        head = ("{" if i == 0 else ",") + json.dumps(name, ensure_ascii=False) + ":"
        parts += [pa.scalar(head), _values(column)]
    return pc.binary_join_element_wise(*parts, pa.scalar("}"), "")


def _values(column: pa.Array) -> pa.Array:
    """Every value as JSON text, NULL as ``null``; one per row."""
    return pc.fill_null(_present(column), "null").cast(pa.string())


def _present(column: pa.Array) -> pa.Array:
    """JSON text where there is a value, NULL where there is none."""
    made = column.type
    if pa.types.is_dictionary(made):
        return _present(column.cast(made.value_type))
    if pa.types.is_struct(made):
        return _where_valid(column, _objects([f.name for f in made], column.flatten()) if made.num_fields else "{}")
    if pa.types.is_map(made):
        return _map(column)
    if pa.types.is_list(made) or pa.types.is_large_list(made):
        return _list(column, _values(column.flatten()), "[", "]")
    if pa.types.is_null(made):
        return pa.nulls(len(column), pa.string())
    if pa.types.is_boolean(made) or pa.types.is_integer(made):
        return column.cast(pa.string())
    if pa.types.is_floating(made):
        text = column.cast(pa.string())
        return pc.if_else(pc.is_finite(column), text, _quoted(text))
    return _quoted(_escaped(_text(column)))


def _text(column: pa.Array) -> pa.Array:
    made = column.type
    if pa.types.is_binary(made) or pa.types.is_large_binary(made) or pa.types.is_fixed_size_binary(made):
        return hexadecimal(column)
    if pa.types.is_timestamp(made):
        text = pc.replace_substring(column.cast(pa.timestamp(made.unit)).cast(pa.string()), " ", "T")
        return text if made.tz is None else pc.binary_join_element_wise(text, pa.scalar("Z"), "")
    return column.cast(pa.string())


def _escaped(text: pa.Array) -> pa.Array:
    for raw, safe in _ESCAPES:
        text = pc.replace_substring(text, raw, safe)
    if pc.any(pc.match_substring_regex(text, _REST)).as_py():
        for code in set(range(32)) - {8, 9, 10, 12, 13}:
            text = pc.replace_substring(text, chr(code), f"\\u{code:04x}")
    return text


def _quoted(text: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(pa.scalar('"'), text, pa.scalar('"'), "")


def _list(column: pa.Array, items: pa.Array, left: str, right: str) -> pa.Array:
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))).astype(np.int32))
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, items), ",")
    return _where_valid(column, pc.binary_join_element_wise(pa.scalar(left), joined, pa.scalar(right), ""))


def _map(column: pa.Array) -> pa.Array:
    entries = column.cast(pa.list_(pa.struct([("key", column.type.key_type), ("value", column.type.item_type)])))
    flat = entries.flatten()
    keys = _quoted(_escaped(_text(flat.field("key"))))
    items = pc.binary_join_element_wise(keys, _values(flat.field("value")), ":")
    return _list(entries, items, "{", "}")


def _where_valid(column: pa.Array, text: pa.Array | str) -> pa.Array:
    return pc.if_else(pc.is_valid(column), text, pa.scalar(None, pa.string()))


_DIGITS = np.array([f"{i:02x}".encode() for i in range(256)], "S2")


def hexadecimal(column: pa.Array) -> pa.Array:
    """Binary values as texts of two digits a byte."""
    whole = pc.fill_null(column.cast(pa.large_binary()), b"")
    offsets = np.frombuffer(whole.buffers()[1], np.int64, len(whole) + 1, whole.offset * 8)
    data = whole.buffers()[2]
    taken = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]] if data is not None else np.empty(0, np.uint8)
    digits = pa.py_buffer(_DIGITS[taken].tobytes())
    places = pa.py_buffer(((offsets - offsets[0]) * 2).astype(np.int64))
    text = pa.LargeStringArray.from_buffers(len(whole), places, digits).cast(pa.string())
    return pc.if_else(pc.is_valid(column), text, pa.scalar(None, pa.string()))


def starting(out: Output) -> None:
    """Tell a person that Spark takes a moment."""
    if out.watched and "pyspark" not in sys.modules:
        out.note("starting Spark …")


class Result:
    """What a statement returned: its rows (at most a limit), and how long it took."""

    def __init__(self, text: str, rows: pa.Table, more: bool, seconds: float) -> None:
        self.text = text
        self.rows = rows
        self.more = more
        self.seconds = seconds

    @staticmethod
    def of(lake: Lake, text: str, limit: int) -> Result:
        """Run a statement and fetch its rows: all of them for a limit of 0."""
        started = time.perf_counter()
        frame = lake.sql(text)
        if not frame.columns:
            return Result(text, pa.table({}), False, time.perf_counter() - started)
        rows = (frame.limit(limit + 1) if limit else frame).toArrow()
        more = 0 < limit < rows.num_rows
        return Result(text, rows.slice(0, limit) if more else rows, more, time.perf_counter() - started)

    @property
    def has_rows(self) -> bool:
        """Whether it is a table at all: statements that change something return none."""
        return bool(self.rows.num_columns)

    def document(self) -> dict[str, Any]:
        """As JSON: columns with their types, rows as lists in that order."""
        names = [str(i) for i in range(self.rows.num_columns)]  # names may be there twice
        lines = json_lines(self.rows.rename_columns(names)).splitlines() if self.has_rows else []
        return {
            "statement": self.text,
            "columns": [{"name": f.name, "type": str(f.type)} for f in self.rows.schema],
            "rows": [list(json.loads(line).values()) for line in lines],
            "truncated": self.more,
            "seconds": round(self.seconds, 3),
        }


def show_table(screen: Screen, result: Result) -> None:
    """Rows as a table; one below the other, column by column, where a line would hold too little of each."""
    rows, names = cells(result.rows), result.rows.column_names
    widths = [max([len(n), *(len(r[i]) for r in rows)]) for i, n in enumerate(names)]
    if sum(min(w, 24) + 2 for w in widths) - 2 > screen.width:
        for number, row in enumerate(rows, 1):
            screen.line(f"row {number}", "dim")
            screen.pairs(zip(names, row, strict=True), empty=True)
    else:
        right = [numeric(f.type) for f in result.rows.schema]
        kinds = [">" if r else "*" if w > 24 else "" for r, w in zip(right, widths, strict=True)]
        screen.table([k + n for k, n in zip(kinds, names, strict=True)], rows, empty="no rows")
    if result.more:
        screen.line(f"the first {result.rows.num_rows:,} rows; --limit 0 shows all", "dim")


def _show_csv(screen: Screen, result: Result) -> None:
    sys.stdout.flush()
    write(sys.stdout.buffer, "csv", result.rows.schema, result.rows.to_batches())
    sys.stdout.buffer.flush()


def _show_json(screen: Screen, result: Result) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(json_lines(result.rows))
    sys.stdout.buffer.flush()


SHOW = {"table": show_table, "csv": _show_csv, "json": _show_json}
"""What draws a result, by the value of --format."""


def write(sink: Any, format: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    """Write all batches; returns the number of rows."""
    rows = 0
    if format == "json":
        for batch in batches:
            sink.write(json_lines(batch))
            rows += batch.num_rows
        return rows
    with _writer(sink, format, schema) as writer:
        for batch in batches:
            writer.write_batch(_texts(batch) if format == "csv" else batch)
            rows += batch.num_rows
    return rows


def _writer(sink: Any, format: str, schema: pa.Schema) -> Any:
    if format == "parquet":
        return pq.ParquetWriter(sink, schema, compression="zstd")
    nested = next((f.name for f in schema if pa.types.is_nested(f.type)), None)
    if nested is not None:
        raise InvalidRequest(f"column '{nested}' is nested, which CSV cannot hold: write JSON, or choose --columns")
    return csv.CSVWriter(sink, pa.schema([f.with_type(pa.string()) if _binary(f.type) else f for f in schema]))


def _binary(made: pa.DataType) -> bool:
    return bool(pa.types.is_binary(made) or pa.types.is_large_binary(made) or pa.types.is_fixed_size_binary(made))


def _texts(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows for CSV: binary columns as hexadecimal digits."""
    for i, f in enumerate(batch.schema):
        if _binary(f.type):
            batch = batch.set_column(i, f.name, hexadecimal(batch.column(i)))
    return batch
