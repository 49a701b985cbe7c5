"""Sort compaction: the rows of an append table ordered by columns, or along a curve through several.

Spark sorts and writes (:mod:`bitlake.write.z_order` has the curves); the new files replace the old ones in one COMPACT
snapshot.  Rows that others append meanwhile stay as they are; if others replaced a file or deleted rows of it, nothing
changes and the compaction runs again.
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

from bitlake.file_store_table import FileStoreTable
from bitlake.metadata.manifest import FileSource, ManifestEntry
from bitlake.metadata.snapshot import Snapshot
from bitlake.scan.scan import TableScan
from bitlake.snapshot.state import TableState
from bitlake.spark.context import EngineContext
from bitlake.spark.errors import spark_errors
from bitlake.spark.read.scan import SparkReader
from bitlake.spark.write.append import SparkWriter, quoted_columns
from bitlake.write.append_compaction import commit_replacement
from bitlake.write.data_file_writer import target_file_size
from bitlake.write.z_order import bits_for, bounds_of, hilbert, ranks, zorder

_SAMPLE_ROWS = 100_000
"""Enough to cut a column into thousands of even shares; they come to the driver."""


def sort_compact(
    context: EngineContext,
    table: FileStoreTable,
    state: TableState,
    entries: Sequence[ManifestEntry],
    scan: TableScan,
    strategy: str,
    columns: Sequence[str],
) -> Snapshot | None:
    """Rewrite the rows of files in another order; ``scan`` finds just the rows of ``entries``.

    Raises :class:`bitlake.errors.CommitConflict` if another writer changed them meanwhile.
    """
    if not entries:
        return None
    frame = SparkReader(context.spark, state.store).frame(scan.select(state.schema.field_names))
    order = _order(table.name, frame, strategy, columns, sum(e.file.row_count for e in entries))
    files = max(1, math.ceil(sum(e.file.file_size for e in entries) / target_file_size(state.schema)))
    made = SparkWriter(context.spark, state.store).write(state, frame, order=order, tasks=files)
    made = [replace(e, file=replace(e.file, file_source=FileSource.COMPACT)) for e in made]
    return commit_replacement(state, entries, made, table.publisher(state).user)


def _order(table: str, frame: DataFrame, strategy: str, columns: Sequence[str], rows: int) -> list[Column]:
    if strategy == "order":
        return [quoted_columns(c).asc_nulls_first() for c in columns]
    bits = bits_for(len(columns))
    chosen = frame.select(*[quoted_columns(c) for c in columns])
    with spark_errors(f"sampling table '{table}'"):
        share = min(1.0, _SAMPLE_ROWS / max(1, rows))
        sample = (chosen if share == 1.0 else chosen.sample(fraction=share, seed=1)).limit(2 * _SAMPLE_ROWS).toArrow()
    bounds = [bounds_of(sample.column(c).combine_chunks(), bits) for c in columns]
    curve = zorder if strategy == "zorder" else hilbert

    def place(*values: pa.Array) -> pa.Array:
        found = [ranks(v, b.cast(v.type), bits) for v, b in zip(values, bounds, strict=True)]
        return pa.array(curve(found, bits))

    call: Any = arrow_udf(place, T.LongType())  # type: ignore[call-overload]
    made: Column = call(*[quoted_columns(c) for c in columns])
    return [made.asc()]
