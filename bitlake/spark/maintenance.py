"""Table maintenance by Spark jobs: ANALYZE TABLE, and sort compaction.

ANALYZE TABLE: Spark aggregates the columns, one row comes back, and the table keeps it as statistics.

Sort compaction orders the rows of an append table by columns, or along a curve through several.  Spark sorts and writes
(:mod:`bitlake.write.z_order` has the curves); the new files replace the old ones in one COMPACT snapshot.  Rows that
others append meanwhile stay as they are; if others replaced a file or deleted rows of it, nothing changes and the
compaction runs again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.functions import arrow_udf

from bitlake.errors import InvalidRequest, UnsupportedFeature
from bitlake.expressions.sql_text import quoted
from bitlake.file_store_table import FileStoreTable
from bitlake.metadata.manifest import FileSource, ManifestEntry
from bitlake.metadata.snapshot import Snapshot
from bitlake.scan.scan import TableScan
from bitlake.snapshot.state import TableState
from bitlake.spark.context import EngineContext
from bitlake.spark.errors import spark_errors
from bitlake.spark.read.scan import SparkReader
from bitlake.spark.write.append import SparkWriter, quoted_columns
from bitlake.types import AtomicType, Root
from bitlake.write.analyze import ColumnStatistics, save_statistics
from bitlake.write.append_compaction import commit_replacement
from bitlake.write.data_file_writer import target_file_size
from bitlake.write.z_order import bits_for, bounds_of, hilbert, ranks, zorder

_LENGTHS = {
    Root.BOOLEAN: 1,
    Root.TINYINT: 1,
    Root.SMALLINT: 2,
    Root.INT: 4,
    Root.BIGINT: 8,
    Root.FLOAT: 4,
    Root.DOUBLE: 8,
    Root.DATE: 4,
    Root.TIMESTAMP: 8,
    Root.TIMESTAMP_LTZ: 8,
}
"""Types with a length of their own, and with a smallest and largest value; DECIMAL is beside them."""
_TEXTS = (Root.CHAR, Root.VARCHAR, Root.BINARY, Root.VARBINARY)


def analyzable(table: FileStoreTable) -> tuple[str, ...]:
    """The columns that can have statistics."""
    return tuple(f.name for f in table.schema.fields if _kind(table, f.name) is not None)


def analyze_table(table: FileStoreTable, names: Sequence[str]) -> None:
    """Find and keep statistics of a table and these columns; nothing is done for a table without a snapshot.

    Raises :class:`UnsupportedFeature` for a column whose type has no order and no length.
    """
    unlike = [n for n in names if _kind(table, n) is None]
    if unlike:
        kind = table.schema.field(unlike[0]).type
        raise UnsupportedFeature(f"table '{table.name}': column '{unlike[0]}' is {kind}, which cannot be analyzed")
    state = table.state()
    if state.snapshot is None:
        return
    asked: list[Column] = [F.count(F.lit(1))]
    for name in names:
        asked += _aggregates(table, name)
    frame = table.scan_of(state).select(names).to_spark() if names else None
    with spark_errors(f"analyzing table '{table.name}'"):
        row: list[Any] = [table.scan_of(state).count()] if frame is None else list(frame.agg(*asked).collect()[0])
    facts = {}
    for i, name in enumerate(names):
        nulls, distinct, low, high, average, most = row[1 + 6 * i : 7 + 6 * i]
        facts[name] = ColumnStatistics(
            distinct, _stored(table, name, low), _stored(table, name, high), nulls, average, most
        )
    save_statistics(state, int(row[0]), facts, table.commit_user())


def _kind(table: FileStoreTable, name: str) -> Root | None:
    made = table.schema.field(name).type
    if isinstance(made, AtomicType) and (made.root in _LENGTHS or made.root in _TEXTS or made.root is Root.DECIMAL):
        return made.root
    return None


def _aggregates(table: FileStoreTable, name: str) -> list[Column]:
    column = F.col(quoted(name))
    made = table.schema.field(name).type
    if not isinstance(made, AtomicType):
        raise InvalidRequest(f"column '{name}' cannot be analyzed")
    nothing = F.lit(None).cast(T.LongType())
    nulls = F.count(F.lit(1)) - F.count(column)
    distinct = F.approx_count_distinct(column)
    if made.root in _TEXTS:
        length = F.octet_length(column).cast(T.LongType())
        average = F.coalesce(F.ceil(F.avg(length)), F.lit(0).cast(T.LongType()))
        most = F.coalesce(F.max(length), F.lit(0).cast(T.LongType()))
        return [nulls, distinct, nothing.cast(T.StringType()), nothing.cast(T.StringType()), average, most]
    size = F.lit(_LENGTHS.get(made.root) or (8 if (made.precision or 10) <= 18 else 16)).cast(T.LongType())
    bounds = [_text(made.root, f(column)) for f in (F.min, F.max)]
    return [nulls, distinct, *bounds, size, size]


def _text(root: Root, bound: Column) -> Column:
    """A value as Paimon's statistics have it: days for DATE, UTC for a moment, else as SQL writes it."""
    match root:
        case Root.DATE:
            bound = F.unix_date(bound)
        case Root.TIMESTAMP_LTZ:
            start = F.lit("1970-01-01 00:00:00").cast("timestamp_ntz")
            bound = F.timestamp_add("MICROSECOND", F.unix_micros(bound), start)
    return bound.cast(T.StringType())


def _stored(table: FileStoreTable, name: str, text: str | None) -> str | None:
    """A bound with as many digits of a second as its type has: Spark leaves out zeros at the end, Paimon does not."""
    made = table.schema.field(name).type
    if text is None or not isinstance(made, AtomicType) or made.root not in (Root.TIMESTAMP, Root.TIMESTAMP_LTZ):
        return text
    whole, _, digits = text.partition(".")
    digits = digits.ljust(6 if made.precision is None else made.precision, "0")
    return f"{whole}.{digits}" if digits else whole


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
