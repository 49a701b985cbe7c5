"""Sorting an append table's rows anew: by columns, or along a curve through several (:mod:`bitlake.table.curves`).

Spark sorts and writes; the new files replace the old in one COMPACT snapshot.  Rows that others append meanwhile stay
as they are; if others replaced a file or deleted rows of it, nothing is changed and it is done again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import types as T
from pyspark.sql.pandas.functions import arrow_udf

from bitlake.errors import InvalidRequest
from bitlake.metadata.manifest import FileSource, ManifestEntry
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import Snapshot
from bitlake.spark.context import EngineContext
from bitlake.spark.errors import spark_errors
from bitlake.spark.key_hash import quoted
from bitlake.spark.scan import SparkReader
from bitlake.spark.write import SparkWriter
from bitlake.table.append_compact import swap
from bitlake.table.curves import bits_for, bounds_of, hilbert, ranks, zorder
from bitlake.table.scan import Scan
from bitlake.table.sizing import target_file_size
from bitlake.table.state import TableState
from bitlake.table.table import Table
from bitlake.types import AtomicType, Root

STRATEGIES = ("order", "zorder", "hilbert")
_SAMPLE_ROWS = 100_000
"""Enough to cut a column into thousands of even shares; they come to the driver."""


def order_columns(table: str, schema: TableSchema, text: str) -> list[str]:
    """The columns of ``order_by``; raises :class:`InvalidRequest` for those that rows cannot be sorted by."""
    out: list[str] = []
    for part in text.split(","):
        field = schema.field(part.strip())
        if field.name in schema.partition_keys:
            raise InvalidRequest(f"table '{table}': sorting by partition column '{field.name}' would change nothing")
        if not isinstance(field.type, AtomicType) or field.type.root is Root.VARIANT:
            raise InvalidRequest(f"table '{table}': rows cannot be sorted by '{field.name}', which is {field.type}")
        if field.name in out:
            raise InvalidRequest(f"table '{table}': '{field.name}' is named twice in order_by")
        out.append(field.name)
    return out


def sort_compact(
    context: EngineContext,
    table: Table,
    state: TableState,
    entries: Sequence[ManifestEntry],
    scan: Scan,
    strategy: str,
    columns: Sequence[str],
) -> Snapshot | None:
    """Write the rows of files anew in another order; ``scan`` finds just the rows of ``entries``.

    Raises :class:`bitlake.errors.CommitConflict` if another writer changed them meanwhile.
    """
    if not entries:
        return None
    frame = SparkReader(context.spark, state.store).frame(scan.select(state.schema.field_names))
    order = _order(table.name, frame, strategy, columns, sum(e.file.row_count for e in entries))
    files = max(1, math.ceil(sum(e.file.file_size for e in entries) / target_file_size(state.schema)))
    made = SparkWriter(context.spark, state.store).write(state, frame, order=order, tasks=files)
    made = [replace(e, file=replace(e.file, file_source=FileSource.COMPACT)) for e in made]
    return swap(state, entries, made, table.publisher(state).user)


def _order(table: str, frame: DataFrame, strategy: str, columns: Sequence[str], rows: int) -> list[Column]:
    if strategy == "order":
        return [quoted(c).asc_nulls_first() for c in columns]
    bits = bits_for(len(columns))
    chosen = frame.select(*[quoted(c) for c in columns])
    with spark_errors(f"sampling table '{table}'"):
        share = min(1.0, _SAMPLE_ROWS / max(1, rows))
        sample = (chosen if share == 1.0 else chosen.sample(fraction=share, seed=1)).limit(2 * _SAMPLE_ROWS).toArrow()
    bounds = [bounds_of(sample.column(c).combine_chunks(), bits) for c in columns]
    curve = zorder if strategy == "zorder" else hilbert

    def place(*values: pa.Array) -> pa.Array:
        found = [ranks(v, b.cast(v.type), bits) for v, b in zip(values, bounds, strict=True)]
        return pa.array(curve(found, bits))

    call: Any = arrow_udf(place, T.LongType())  # type: ignore[call-overload]
    made: Column = call(*[quoted(c) for c in columns])
    return [made.asc()]
