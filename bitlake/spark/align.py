"""Rows of a query made to fit a table before they are written: names, types, lengths and NOT NULL, as INSERT does.

Casts follow Spark's ANSI store assignment: what could lose meaning by type is refused here, what could by value fails
the job with the column's name.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from bitlake.errors import InvalidRequest
from bitlake.spark.types import spark_type
from bitlake.types import AtomicType, DataField, Root
from bitlake.types.datatypes import MAX_LENGTH

_NUMERIC = (T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType, T.DecimalType)
_TIMES = (T.DateType, T.TimestampType, T.TimestampNTZType)


def by_position(table: str, frame: DataFrame, fields: Sequence[DataField]) -> DataFrame:
    """Name the frame's columns after ``fields``, in order; raises :class:`InvalidRequest` if the counts differ."""
    have = frame.columns
    if len(have) != len(fields):
        raise InvalidRequest(
            f"table '{table}' takes {len(fields)} columns ({', '.join(f.name for f in fields)}) "
            f"and the query gives {len(have)} ({', '.join(have)})"
        )
    return frame.toDF(*[f.name for f in fields])


def by_name(table: str, frame: DataFrame, fields: Sequence[DataField]) -> DataFrame:
    """Pick the frame's columns by name, ignoring case; a missing nullable column is NULL."""
    have: dict[str, str] = {}
    for name in frame.columns:
        if name.lower() in have:
            raise InvalidRequest(f"table '{table}': the query gives column '{name}' twice")
        have[name.lower()] = name
    known = {f.name.lower() for f in fields}
    extra = [n for low, n in have.items() if low not in known]
    if extra:
        raise InvalidRequest(
            f"table '{table}' has no column '{extra[0]}'; its columns are {', '.join(f.name for f in fields)}"
        )
    columns = []
    for f in fields:
        if f.name.lower() in have:
            columns.append(F.col(_quoted(have[f.name.lower()])).alias(f.name))
        else:
            columns.append(_default(f).alias(f.name))
    return frame.select(*columns)


def store_columns(table: str, frame: DataFrame, fields: Sequence[DataField]) -> list[Column]:
    """The frame's columns (named after ``fields``) cast to the table's types and checked, with Parquet field ids."""
    out = []
    for source, f in zip(frame.schema.fields, fields, strict=True):
        wanted = spark_type(f.type)
        _check_assignable(table, f.name, source.dataType, wanted)
        column = F.col(_quoted(source.name))
        if source.dataType != wanted:
            column = column.cast(wanted)
        column = _fit_length(table, column, f)
        if not f.type.nullable and source.nullable:
            message = f"table '{table}': NULL in column '{f.name}', which is NOT NULL"
            column = F.when(column.isNull(), F.raise_error(F.lit(message)).cast(wanted)).otherwise(column)
        out.append(column.alias(f.name, metadata={"parquet.field.id": f.id}))
    return out


def _default(field: DataField) -> Column:
    if field.default_value is not None:
        return F.expr(field.default_value).cast(spark_type(field.type))
    return F.lit(None).cast(spark_type(field.type))


def _fit_length(table: str, column: Column, field: DataField) -> Column:
    """CHAR(n) is padded with blanks and VARCHAR(n) checked, both counting characters, as Spark stores them."""
    made = field.type
    if not isinstance(made, AtomicType) or made.length is None or made.length == MAX_LENGTH:
        return column
    if made.root not in (Root.CHAR, Root.VARCHAR):
        return column
    message = f"table '{table}': a value is longer than column '{field.name}' {made} allows"
    too_long = F.raise_error(F.lit(message)).cast(T.StringType())
    fitted = F.rpad(column, made.length, " ") if made.root is Root.CHAR else column
    # Trailing blanks beyond the length are dropped rather than refused, in CHAR and VARCHAR alike.
    trimmed = (
        F.rpad(F.rtrim(column), made.length, " ") if made.root is Root.CHAR else F.substring(column, 1, made.length)
    )
    return (
        F.when(F.char_length(column) <= made.length, fitted)
        .when(F.char_length(F.rtrim(column)) <= made.length, trimmed)
        .when(column.isNull(), F.lit(None).cast(T.StringType()))
        .otherwise(too_long)
    )


def _check_assignable(table: str, name: str, source: T.DataType, wanted: T.DataType) -> None:
    if not _assignable(source, wanted):
        raise InvalidRequest(
            f"table '{table}', column '{name}': cannot store {source.simpleString()} into {wanted.simpleString()} "
            f"without risk of losing meaning; write CAST(… AS {wanted.simpleString().upper()}) if you mean it"
        )


def _assignable(source: T.DataType, wanted: T.DataType) -> bool:
    if source == wanted or isinstance(source, T.NullType):
        return True
    if isinstance(source, T.StringType) and isinstance(wanted, T.StringType):
        return True
    if isinstance(wanted, T.StringType):
        return isinstance(source, (*_NUMERIC, *_TIMES, T.BooleanType))
    if isinstance(source, _NUMERIC):
        return isinstance(wanted, _NUMERIC)
    if isinstance(source, _TIMES):
        return isinstance(wanted, _TIMES)
    if isinstance(source, T.ArrayType) and isinstance(wanted, T.ArrayType):
        return _assignable(source.elementType, wanted.elementType)
    if isinstance(source, T.MapType) and isinstance(wanted, T.MapType):
        return _assignable(source.keyType, wanted.keyType) and _assignable(source.valueType, wanted.valueType)
    if isinstance(source, T.StructType) and isinstance(wanted, T.StructType):
        return len(source) == len(wanted) and all(
            _assignable(a.dataType, b.dataType) for a, b in zip(source.fields, wanted.fields, strict=True)
        )
    return False


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
