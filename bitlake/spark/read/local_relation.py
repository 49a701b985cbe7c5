"""Rows that are here already, as a DataFrame that Spark first hears of when it has something to do with them.

Handing ten rows to the JVM, planning their query there and fetching them back takes 50 ms and more; callers that
just collect them need not wait for it.  All else that a DataFrame can do goes through the JVM, as ever.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import types as T
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.conversion import ArrowTableToRowsConversion

from bitlake.formats.conform import retyped
from bitlake.html import rows_html
from bitlake.spark.types import spark_arrow_schema

_COLLECTED = (
    T.BooleanType,
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.FloatType,
    T.DoubleType,
    T.DecimalType,
    T.StringType,
    T.DateType,
)
"""Types of which pyspark makes the same Python values in every way of collecting."""
_SIMPLE = (*_COLLECTED, T.BinaryType, T.TimestampType, T.TimestampNTZType)


def local_frame(spark: SparkSession, table: pa.Table, types: T.StructType) -> DataFrame:
    """An Arrow table as a local relation of the given Spark types."""
    if table.num_rows == 0 and (getattr(spark, "_jsparkSession", None) is None or not types.fields):
        return spark.createDataFrame([], types)
    # Without rows it is an empty local relation, which Spark's optimiser knows to be empty; of a list it makes an RDD.
    # One chunk: Spark's Arrow stream reader stops at the first empty batch, and chunked tables may hold some.
    # A table that lost all rows to a filter has no chunk at all, of which PySpark makes no struct.
    return spark.createDataFrame(table.combine_chunks() if table.num_rows else table.schema.empty_table(), types)


def is_simple(types: T.StructType) -> bool:
    """Whether :func:`held_frame` takes columns of these types."""
    return bool(types.fields) and all(isinstance(f.dataType, _SIMPLE) for f in types.fields)


def travels(types: T.StructType) -> bool:
    """Whether :func:`local_frame` gives the rows of a query of these types back to Spark as they were."""
    return bool(types.fields) and all(_travels(f.dataType) for f in types.fields)


def _travels(kind: T.DataType) -> bool:
    match kind:
        case T.StructType():
            return bool(kind.fields) and all(f.nullable and _travels(f.dataType) for f in kind.fields)
        case T.ArrayType():
            return kind.containsNull and _travels(kind.elementType)
        case T.StringType():
            return kind == T.StringType()
    return isinstance(kind, _SIMPLE)


def held_frame(spark: SparkSession, table: pa.Table, types: T.StructType) -> DataFrame:
    """As :func:`local_frame`, made in the JVM when it is first needed there.  Requires simple types."""
    if getattr(spark, "_jsparkSession", None) is None:  # Spark Connect is lazy itself
        return local_frame(spark, table, types)
    return HeldFrame(spark, table, types)


def without_rows(frame: DataFrame) -> DataFrame:
    """The same query, known to give no rows if Spark's optimiser knows it: then no job fetches or counts them."""
    java: Any = getattr(frame, "_jdf", None)
    if java is None or not is_simple(frame.schema):
        return frame
    try:
        plan = java.queryExecution().optimizedPlan()
        empty = plan.getClass().getSimpleName() == "LocalRelation" and plan.data().isEmpty()
    except Exception:  # noqa: BLE001 - an error of the query is raised where its rows are asked for
        return frame
    if not empty:
        return frame
    rows = spark_arrow_schema(T.StructType(list(frame.schema.fields))).empty_table()
    return HeldFrame(frame.sparkSession, rows, frame.schema, java)


class HeldFrame(ClassicDataFrame):
    """A DataFrame of the rows of an Arrow table; see :func:`held_frame`."""

    def __new__(cls, spark: SparkSession, table: pa.Table, types: T.StructType, made: Any = None) -> HeldFrame:
        """An object, and no more: PySpark's own would call what initialises it with other arguments."""
        return object.__new__(cls)

    def __init__(self, spark: SparkSession, table: pa.Table, types: T.StructType, made: Any = None) -> None:
        self._table = table
        self._types = T.StructType(list(types.fields))
        self.__dict__["schema"] = types  # where the cached property looks first
        self._made: Any = None
        super().__init__(made, spark)  # without ``made``, what it keeps as _jdf is made later

    @property
    def _jdf(self) -> Any:
        if self._made is None:
            self._made = local_frame(self._session, self._table, self._types)._jdf
        return self._made

    @_jdf.setter
    def _jdf(self, made: Any) -> None:
        self._made = made

    @property
    def columns(self) -> list[str]:
        """The columns' names."""
        return list(self._types.names)

    def count(self) -> int:
        """Return the number of rows."""
        return int(self._table.num_rows)

    def collect(self) -> list[Row]:
        """All rows."""
        if not all(isinstance(f.dataType, _COLLECTED) for f in self._types.fields):
            return super().collect()
        return ArrowTableToRowsConversion.convert(self._table, self._types)

    def _repr_html_(self) -> str | None:
        """A table of its rows, at most as many as eager evaluation shows: they are here, so nothing is run for it."""
        return super()._repr_html_() if not is_simple(self._types) else rows_html(self._types.names, self._table)

    def toArrow(self) -> pa.Table:
        """All rows as an Arrow table of the types that Spark gives them."""
        large = self._session.conf.get("spark.sql.execution.arrow.useLargeVarTypes") == "true"
        return retyped(self._table, spark_arrow_schema(self._types, prefers_large_types=large))
