"""ANALYZE TABLE: Spark aggregates the columns, one row comes back, and the table keeps what it says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from bitlake.errors import InvalidRequest, UnsupportedFeature
from bitlake.expressions.sql_text import quoted
from bitlake.file_store_table import FileStoreTable
from bitlake.spark.errors import spark_errors
from bitlake.types import AtomicType, Root
from bitlake.write.analyze import ColumnStatistics, save_statistics

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
