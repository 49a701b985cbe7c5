"""Rows of a result as a table, CSV, JSON lines or Parquet.  Imported lazily by commands, since it loads pyarrow.

JSON is written column by column, without a Python loop over rows.  Strings are escaped by RFC 8259; integers and finite
floats are numbers; decimals are strings, so that readers lose no digits, and so are NaN and infinities, which JSON does
not have; times are ISO 8601, in UTC with ``Z`` for instants; binary is hexadecimal digits; structs are objects, lists
arrays, and maps objects with string keys.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import csv

from bitlake import arguments
from bitlake.cli.output import Output, Screen
from bitlake.cli.run import allow_pandas
from bitlake.errors import InvalidRequest, UnsupportedFeature
from bitlake.formats.conform import is_number
from bitlake.formatting import one_line
from bitlake.lake import core_engine, lake_has_spark
from bitlake.lazy_modules import compute as pc
from bitlake.lazy_modules import install_command
from bitlake.lazy_modules import parquet as pq
from bitlake.metadata.schema import MissingTable

if TYPE_CHECKING:
    from bitlake.lake import Lake

NULL = "NULL"


def cells(rows: pa.Table) -> list[list[str]]:
    """The values as strings, row by row; binary as hexadecimal digits."""
    # Python has no dates after the year 9999.
    texts = [c.cast(pa.string()) if pa.types.is_date(c.type) else c for c in rows.columns]
    columns = [[_cell(v) for v in column.to_pylist()] for column in texts]
    return [list(row) for row in zip(*columns, strict=True)]


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
    """The rows as UTF-8 text, one JSON object and a newline for each."""
    parts = []
    batches = rows.to_batches() if isinstance(rows, pa.Table) else [rows]
    for batch in batches:
        if batch.num_rows:
            parts.append(_joined(_objects(batch.schema.names, batch.columns)) + b"\n")
    return b"".join(parts)


def _joined(lines: pa.Array) -> bytes:
    single = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
    return pc.binary_join(single, "\n")[0].as_py().encode()  # type: ignore[no-any-return]


def _objects(names: list[str], columns: list[pa.Array]) -> pa.Array:
    """One JSON object per row."""
    if not columns:
        return pa.array([], pa.string())
    parts: list[pa.Array | pa.Scalar] = []
    for i, (name, column) in enumerate(zip(names, columns, strict=True)):
        head = ("{" if i == 0 else ",") + json.dumps(name, ensure_ascii=False) + ":"
        parts += [pa.scalar(head), _values(column)]
    return pc.binary_join_element_wise(*parts, pa.scalar("}"), "")


def _values(column: pa.Array) -> pa.Array:
    """Every value as JSON text, NULL as ``null``."""
    return pc.fill_null(_present(column), "null").cast(pa.string())


def _present(column: pa.Array) -> pa.Array:
    """Every value as JSON text; NULL stays NULL."""
    data_type = column.type
    if pa.types.is_dictionary(data_type):
        return _present(column.cast(data_type.value_type))
    if pa.types.is_struct(data_type):
        return _where_valid(
            column, _objects([f.name for f in data_type], column.flatten()) if data_type.num_fields else "{}"
        )
    if pa.types.is_map(data_type):
        return _map(column)
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        return _list(column, _values(column.flatten()), "[", "]")
    if pa.types.is_null(data_type):
        return pa.nulls(len(column), pa.string())
    if pa.types.is_boolean(data_type) or pa.types.is_integer(data_type):
        return column.cast(pa.string())
    if pa.types.is_floating(data_type):
        text = column.cast(pa.string())
        return pc.if_else(pc.is_finite(column), text, _quoted(text))
    return _quoted(_escaped(_text(column)))


def _text(column: pa.Array) -> pa.Array:
    data_type = column.type
    if pa.types.is_binary(data_type) or pa.types.is_large_binary(data_type) or pa.types.is_fixed_size_binary(data_type):
        return hexadecimal(column)
    if pa.types.is_timestamp(data_type):
        text = pc.replace_substring(column.cast(pa.timestamp(data_type.unit)).cast(pa.string()), " ", "T")
        return text if data_type.tz is None else pc.binary_join_element_wise(text, pa.scalar("Z"), "")
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
    """Binary values as strings of two hexadecimal digits per byte."""
    values = pc.fill_null(column.cast(pa.large_binary()), b"")
    offsets = np.frombuffer(values.buffers()[1], np.int64, len(values) + 1, values.offset * 8)
    data = values.buffers()[2]
    selected = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]] if data is not None else np.empty(0, np.uint8)
    digits = pa.py_buffer(_DIGITS[selected].tobytes())
    digit_offsets = pa.py_buffer(((offsets - offsets[0]) * 2).astype(np.int64))
    text = pa.LargeStringArray.from_buffers(len(values), digit_offsets, digits).cast(pa.string())
    return pc.if_else(pc.is_valid(column), text, pa.scalar(None, pa.string()))


def from_hexadecimal(text: pa.Array) -> pa.Array:
    """The inverse of :func:`hexadecimal`; raises :class:`pyarrow.ArrowInvalid` for other text."""
    wrong = text.filter(pc.invert(pc.match_substring_regex(text, r"\A(?:[0-9A-Fa-f]{2})*\z")))
    if len(wrong):
        raise pa.ArrowInvalid(f"'{wrong[0]}' is not binary, which is written as pairs of hexadecimal digits")
    digits = pc.fill_null(text.cast(pa.large_string()), "")
    offsets = np.frombuffer(digits.buffers()[1], np.int64, len(digits) + 1, digits.offset * 8)
    data = pa.py_buffer(bytes.fromhex(str(digits.buffers()[2] or b"", "ascii")[offsets[0] : offsets[-1]]))
    value_offsets = pa.py_buffer(((offsets - offsets[0]) // 2).astype(np.int64))
    values = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(digits), [None, value_offsets, data])
    return pc.if_else(pc.is_valid(text), values.cast(pa.binary()), pa.scalar(None, pa.binary()))


def starting(out: Output) -> None:
    """Print a note for a person before the seconds that Spark takes to start."""
    if out.watched and "pyspark" not in sys.modules:
        out.note("starting Spark …")


class Result:
    """The rows that a statement returned, at most a limit, and its duration."""

    def __init__(self, text: str, rows: pa.Table, more: bool, seconds: float) -> None:
        self.text = text
        self.rows = rows
        self.more = more
        self.seconds = seconds

    @staticmethod
    def of(lake: Lake, text: str, limit: int, engine: str = "auto", out: Output | None = None) -> Result:
        """Run a statement and fetch at most ``limit`` rows; 0 fetches all.

        With the engine ``auto``, this process carries out what it does as Spark does, until Spark has been started.
        Where DuckDB is missing, Spark runs queries.  Raises :class:`InvalidRequest` if Spark is not installed either,
        and for data errors, such as a division by zero.
        """
        arguments.text("a statement", text)
        started = time.perf_counter()
        if engine == "duckdb" or (engine == "auto" and not lake_has_spark(lake)):
            from bitlake.engine.engine import is_left_to_spark  # Spark's engine needs another

            try:
                result = core_engine(lake).run(text)
                rows = result if isinstance(result, pa.Table) else result.fetch(limit + 1 if limit else 0)
                more = 0 < limit < rows.num_rows
                return Result(text, rows.slice(0, limit) if more else rows, more, time.perf_counter() - started)
            except (UnsupportedFeature, InvalidRequest, MissingTable) as e:
                if engine == "duckdb" or not is_left_to_spark(text, e):
                    raise
                if importlib.util.find_spec("pyspark") is None:
                    install = f"Spark is not installed: `{install_command('spark')}`"
                    raise InvalidRequest(f"{e}; {install}") from e
        if out is not None:
            starting(out)
        allow_pandas()
        frame = lake.sql(text)
        if not frame.columns:
            return Result(text, pa.table({}), False, time.perf_counter() - started)
        from bitlake.spark.errors import spark_errors  # imports PySpark

        with spark_errors(f"running '{one_line(text, 60)}'"):
            rows = (frame.limit(limit + 1) if limit else frame).toArrow()
        more = 0 < limit < rows.num_rows
        return Result(text, rows.slice(0, limit) if more else rows, more, time.perf_counter() - started)

    @property
    def has_rows(self) -> bool:
        """Whether the statement returned a table; statements that change something do not."""
        return bool(self.rows.num_columns)

    def document(self) -> dict[str, Any]:
        """The result for JSON: columns with their types, and rows as lists of values."""
        names = [str(i) for i in range(self.rows.num_columns)]  # a result may have two columns of one name
        lines = json_lines(self.rows.rename_columns(names)).splitlines() if self.has_rows else []
        return {
            "statement": self.text,
            "columns": [{"name": f.name, "type": str(f.type)} for f in self.rows.schema],
            "rows": [list(json.loads(line).values()) for line in lines],
            "truncated": self.more,
            "seconds": round(self.seconds, 3),
        }


def show_table(screen: Screen, result: Result) -> None:
    """Draw rows as a table, or one column per line where the terminal is too narrow for a row.

    A result that is one text of several lines, such as that of EXPLAIN, is printed as it is.
    """
    only = result.rows.column(0)[0].as_py() if result.rows.shape == (1, 1) else None
    if isinstance(only, str) and "\n" in only:
        screen.text(only)
        return
    rows, names = cells(result.rows), result.rows.column_names
    widths = [max([len(n), *(len(r[i]) for r in rows)]) for i, n in enumerate(names)]
    if sum(min(w, 24) + 2 for w in widths) - 2 > screen.width:
        for number, row in enumerate(rows, 1):
            screen.line(f"row {number}", "dim")
            screen.pairs(zip(names, row, strict=True), empty=True)
    else:
        right = [is_number(f.type) for f in result.rows.schema]
        layouts = [">" if r else "*" if w > 24 else "" for r, w in zip(right, widths, strict=True)]
        screen.table([k + n for k, n in zip(layouts, names, strict=True)], rows, empty="no rows")
    if result.more:
        screen.line(f"first {result.rows.num_rows:,} rows; --limit 0 shows all", "dim")


def _show_csv(screen: Screen, result: Result) -> None:
    sys.stdout.flush()
    write(sys.stdout.buffer, "csv", result.rows.schema, result.rows.to_batches())
    sys.stdout.buffer.flush()


def _show_json(screen: Screen, result: Result) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(json_lines(result.rows))
    sys.stdout.buffer.flush()


SHOW = {"table": show_table, "csv": _show_csv, "json": _show_json}
"""The function that prints a result, by the value of --format."""


def write(sink: Any, format: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    """Write all batches; return the number of rows."""
    rows = 0
    if format == "json":
        for batch in batches:
            sink.write(json_lines(batch))
            rows += batch.num_rows
        return rows
    with _writer(sink, format, schema) as writer:
        for batch in batches:
            writer.write_batch(_csv_batch(batch) if format == "csv" else batch)
            rows += batch.num_rows
    return rows


def _writer(sink: Any, format: str, schema: pa.Schema) -> Any:
    if format == "parquet":
        return pq.ParquetWriter(sink, schema, compression="zstd")
    nested = next((f.name for f in schema if pa.types.is_nested(f.type)), None)
    if nested is not None:
        raise InvalidRequest(
            f"column '{nested}' is nested, which CSV does not support: use JSON, or leave the column out"
        )
    return csv.CSVWriter(sink, pa.schema([f.with_type(pa.string()) if _binary(f.type) else f for f in schema]))


def _binary(data_type: pa.DataType) -> bool:
    is_variable = pa.types.is_binary(data_type) or pa.types.is_large_binary(data_type)
    return bool(is_variable or pa.types.is_fixed_size_binary(data_type))


def _csv_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows for CSV, with binary columns as hexadecimal digits."""
    for i, f in enumerate(batch.schema):
        if _binary(f.type):
            batch = batch.set_column(i, f.name, hexadecimal(batch.column(i)))
    return batch
