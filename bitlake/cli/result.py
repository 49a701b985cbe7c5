"""Rows of a result as a table, CSV, JSON or Parquet."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from bitlake.cli.cells import cells, numeric
from bitlake.cli.json_lines import hexadecimal, json_lines
from bitlake.cli.output import Output, Screen
from bitlake.errors import InvalidRequest

if TYPE_CHECKING:
    from bitlake.lake import Lake


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
