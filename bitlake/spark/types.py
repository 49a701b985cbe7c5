"""Paimon types ↔ Spark types, and Spark types as Arrow types.

Python workers give Spark decimals of up to 18 digits as unscaled longs.  For each value of an Arrow column of decimals
Spark creates a BigDecimal, in some 50 ns, and for longs none: the sum of 24 million took 1.9 s, and 0.75 s.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas import types as pandas_types

from bitlake.errors import InvalidRequest, UnsupportedFeature
from bitlake.expressions.spark_dialect import literal
from bitlake.expressions.sql_text import quote, quoted
from bitlake.formats.conform import retyped
from bitlake.types import (
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    Root,
    RowType,
)
from bitlake.types.datatypes import MAX_LENGTH, STRINGS, parse_type

CHAR_VARCHAR = "__CHAR_VARCHAR_TYPE_STRING"
"""Spark's own name of the column metadata that says CHAR(n) or VARCHAR(n)."""

_TO_SPARK: dict[Root, T.DataType] = {
    Root.BOOLEAN: T.BooleanType(),
    Root.TINYINT: T.ByteType(),
    Root.SMALLINT: T.ShortType(),
    Root.INT: T.IntegerType(),
    Root.BIGINT: T.LongType(),
    Root.FLOAT: T.FloatType(),
    Root.DOUBLE: T.DoubleType(),
    Root.CHAR: T.StringType(),
    Root.VARCHAR: T.StringType(),
    Root.BINARY: T.BinaryType(),
    Root.VARBINARY: T.BinaryType(),
    Root.DATE: T.DateType(),
    Root.TIMESTAMP: T.TimestampNTZType(),
    Root.TIMESTAMP_LTZ: T.TimestampType(),
}
_FROM_SPARK: dict[type[T.DataType], AtomicType] = {
    **{type(spark): AtomicType(root) for root, spark in _TO_SPARK.items()},
    T.StringType: AtomicType(Root.VARCHAR, length=MAX_LENGTH),
    T.BinaryType: AtomicType(Root.VARBINARY, length=MAX_LENGTH),
    T.TimestampType: AtomicType(Root.TIMESTAMP_LTZ, precision=6),
    T.TimestampNTZType: AtomicType(Root.TIMESTAMP, precision=6),
}


def spark_type(made: DataType) -> T.DataType:
    """The Spark type that reads and writes a Paimon type's values; CHAR and VARCHAR are plain strings here."""
    if isinstance(made, AtomicType):
        if made.root is Root.DECIMAL:
            return T.DecimalType(made.precision or 10, made.scale or 0)
        simple = _TO_SPARK.get(made.root)
        if simple is None:
            raise InvalidRequest(f"type {made} has no counterpart in Spark; read the table through scan() instead")
        return simple
    if isinstance(made, ArrayType):
        return T.ArrayType(spark_type(made.element), made.element.nullable)
    if isinstance(made, MapType):
        return T.MapType(spark_type(made.key), spark_type(made.value), made.value.nullable)
    if isinstance(made, MultisetType):
        return T.MapType(spark_type(made.element), T.IntegerType(), False)
    return T.StructType([T.StructField(f.name, spark_type(f.type), f.type.nullable) for f in made.fields])


def has_counterpart(made: DataType) -> bool:
    """Whether :func:`spark_type` knows a Paimon type; TIME, for example, it does not."""
    if isinstance(made, AtomicType):
        return made.root is Root.DECIMAL or made.root in _TO_SPARK
    if isinstance(made, (ArrayType, MultisetType)):
        return has_counterpart(made.element)
    if isinstance(made, MapType):
        return has_counterpart(made.key) and has_counterpart(made.value)
    return all(has_counterpart(f.type) for f in made.fields)


def char_metadata(made: DataType) -> dict[str, str] | None:
    """Return metadata that mark a string column as CHAR(n) or VARCHAR(n): Spark pads literals compared with CHAR."""
    if isinstance(made, AtomicType) and made.root in STRINGS and made.length != MAX_LENGTH:
        return {CHAR_VARCHAR: f"{made.root.value.lower()}({made.length})"}
    return None


def comment_of(field: T.StructField) -> str | None:
    """The comment of a query's column, which is that of the table's column where the query takes it as it is."""
    comment = (field.metadata or {}).get("comment")
    return None if comment is None else str(comment)


def from_spark_field(field: T.StructField) -> DataType:
    """The Paimon type of a query's column: :func:`from_spark`, and CHAR(n) or VARCHAR(n) where Spark marks it so.

    NULL is allowed everywhere inside, as in Spark's CREATE TABLE AS: NOT NULL in a query's type describes its rows.
    """
    marked = (field.metadata or {}).get(CHAR_VARCHAR)
    if marked is not None and isinstance(field.dataType, T.StringType):
        return parse_type(marked)
    return from_spark(nullable(field.dataType), True)


def stored_type(field: T.StructField) -> DataType:
    """:func:`from_spark_field` for a column of a new table.

    Raises :class:`UnsupportedFeature` for a collation, which CREATE TABLE with columns refuses, too.
    """
    if _is_collated(field.dataType):
        raise UnsupportedFeature(
            f"column '{field.name}' is {field.dataType.simpleString()}, and collations are not supported by the table "
            "format; cast it to a plain STRING"
        )
    return from_spark_field(field)


def _is_collated(made: T.DataType) -> bool:
    if isinstance(made, T.StructType):
        return any(_is_collated(f.dataType) for f in made.fields)
    if isinstance(made, T.ArrayType):
        return _is_collated(made.elementType)
    if isinstance(made, T.MapType):
        return _is_collated(made.keyType) or _is_collated(made.valueType)
    return type(made) is T.StringType and not made.isUTF8BinaryCollation()


def spark_schema(fields: Iterable[DataField]) -> T.StructType:
    """The Spark schema of a list of columns."""
    return T.StructType([T.StructField(f.name, spark_type(f.type), f.type.nullable) for f in fields])


def worker_schema(types: T.StructType) -> pa.Schema:
    """The Arrow schema in which Python workers give Spark rows of these types: timestamps are of microseconds."""
    return spark_arrow_schema(T.StructType([T.StructField(f.name, nullable(f.dataType), True) for f in types.fields]))


_LONG_DIGITS = 18
"""The most digits of a decimal that Spark holds as a long: ``Decimal.MAX_LONG_DIGITS``."""


def transfer_types(spark: SparkSession, types: T.StructType) -> T.StructType:
    """The types in which Python workers give Spark rows of these types, by :func:`transferred`.

    With Spark Connect, which has no expression that makes decimals of longs, the types stay unchanged.
    """
    if getattr(spark, "_jvm", None) is None:
        return types
    return T.StructType([T.StructField(f.name, T.LongType(), f.nullable) if _is_long(f) else f for f in types.fields])


def decimals_from_longs(frame: DataFrame, types: T.StructType) -> DataFrame:
    """The rows of Python workers, which have the :func:`transfer_types` of ``types``, with ``types``."""
    if transfer_types(frame.sparkSession, types) == types:
        return frame
    jvm: Any = frame.sparkSession._jvm
    expressions = jvm.org.apache.spark.sql.classic.ExpressionUtils
    output = frame._jdf.queryExecution().analyzed().output()  # names may differ in case alone
    columns = []
    for at, field in enumerate(types.fields):
        column = output.apply(at)
        if _is_long(field):
            digits, scale = field.dataType.precision, field.dataType.scale  # type: ignore[attr-defined]
            column = jvm.org.apache.spark.sql.catalyst.expressions.MakeDecimal(column, digits, scale, False)
        made = Column(expressions.column(column))
        columns.append(made.alias(field.name, metadata=field.metadata) if _is_long(field) else made)
    return frame.select(*columns)


def _is_long(field: T.StructField) -> bool:
    return isinstance(field.dataType, T.DecimalType) and field.dataType.precision <= _LONG_DIGITS


def transferred(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch of rows with unscaled longs for decimals where ``schema``, of :func:`transfer_types`, has longs."""
    columns = [
        column if column.type == field.type else _unscaled(column)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _unscaled(decimals: pa.Array) -> pa.Array:
    """Decimals as unscaled longs: the lower half of each value, which is a number of 128 bits."""
    _, values = decimals.buffers()
    words = np.frombuffer(values or b"", np.int64)
    lower = np.ascontiguousarray(words[2 * decimals.offset : 2 * (decimals.offset + len(decimals)) : 2])
    return pa.array(lower, mask=decimals.is_null().to_numpy(False) if decimals.null_count else None)


def from_spark(made: T.DataType, nullable: bool = True) -> DataType:
    """The Paimon type of a Spark type, as CREATE TABLE maps it; struct members get the id -1 to be numbered later."""
    if isinstance(made, T.DecimalType):
        return AtomicType(Root.DECIMAL, nullable, precision=made.precision, scale=made.scale)
    if isinstance(made, (T.CharType, T.VarcharType)):
        root = Root.CHAR if isinstance(made, T.CharType) else Root.VARCHAR
        return AtomicType(root, nullable, length=made.length)
    if isinstance(made, T.ArrayType):
        return ArrayType(from_spark(made.elementType, made.containsNull), nullable)
    if isinstance(made, T.MapType):
        return MapType(from_spark(made.keyType, False), from_spark(made.valueType, made.valueContainsNull), nullable)
    if isinstance(made, T.StructType):
        return RowType(tuple(DataField(-1, f.name, from_spark(f.dataType, f.nullable)) for f in made.fields), nullable)
    simple = _FROM_SPARK.get(type(made))
    if simple is None:
        raise InvalidRequest(f"Spark type {made.simpleString()} has no counterpart in a Paimon table; cast the column")
    return AtomicType(simple.root, nullable, simple.length, simple.precision, simple.scale)


def nullable(made: T.DataType) -> T.DataType:
    """The type with NULL allowed everywhere inside: Spark casts nothing that may be NULL to NOT NULL."""
    if isinstance(made, T.StructType):
        return T.StructType([T.StructField(f.name, nullable(f.dataType), True) for f in made.fields])
    if isinstance(made, T.ArrayType):
        return T.ArrayType(nullable(made.elementType), True)
    if isinstance(made, T.MapType):
        return T.MapType(nullable(made.keyType), nullable(made.valueType), True)
    return made


def literal_of(value: Any, made: T.DataType) -> str:
    """A value of Spark's as SQL text of its type, nested ones by constructors of their members."""
    if value is None:
        return f"CAST(NULL AS {_type_text(made)})"
    match made:
        case T.StructType():
            pairs = zip(value, made.fields, strict=True)
            return f"named_struct({', '.join(f'{quote(f.name)}, {literal_of(v, f.dataType)}' for v, f in pairs)})"
        case T.ArrayType():
            text = f"array({', '.join(literal_of(v, made.elementType) for v in value)})"
            return text if value else f"CAST({text} AS {_type_text(made)})"
        case T.MapType():
            items = (f"{literal_of(k, made.keyType)}, {literal_of(v, made.valueType)}" for k, v in value.items())
            text = f"map({', '.join(items)})"
            return text if value else f"CAST({text} AS {_type_text(made)})"
        case T.TimestampNTZType():
            return f"TIMESTAMP_NTZ '{value.isoformat(sep=' ')}'"
    return f"CAST({literal(value)} AS {_type_text(made)})"


def _type_text(made: T.DataType) -> str:
    match made:
        case T.StructType():
            return f"STRUCT<{', '.join(f'{quoted(f.name)}: {_type_text(f.dataType)}' for f in made.fields)}>"
        case T.ArrayType():
            return f"ARRAY<{_type_text(made.elementType)}>"
        case T.MapType():
            return f"MAP<{_type_text(made.keyType)}, {_type_text(made.valueType)}>"
        case T.TimestampType():
            return "TIMESTAMP_LTZ"  # what TIMESTAMP means is a setting
    return made.simpleString().upper()


_ZONE: dict[str, Any] = (
    {"timezone": "UTC"} if "timezone" in inspect.signature(pandas_types.to_arrow_schema).parameters else {}
)
"""PySpark 4.3 asks for the zone of timestamps, 4.1 takes UTC without being told."""
_BATCH_ROWS = 10_000
_BATCH_BYTES = 8 << 20
"""Batches of wide rows have fewer rows."""


def spark_arrow_schema(types: T.StructType, **options: Any) -> pa.Schema:
    """The Arrow schema in which PySpark exchanges rows of these types; timestamps are in UTC."""
    return pandas_types.to_arrow_schema(types, **_ZONE, **options)


def spark_batches(tables: Iterable[pa.Table], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows under a schema of :func:`spark_arrow_schema`; timestamps lose what is below a microsecond.

    Small tables, as many small files give them, share a batch: Spark takes about as long for a batch as for a thousand
    rows.  A table without columns stays as it is: under a schema it would lose the number of its rows.
    """
    gathered: list[pa.Table] = []
    rows = size = 0
    for table in tables:
        if not schema.names:
            yield from table.to_batches(max_chunksize=_BATCH_ROWS)
            continue
        typed = retyped(table, schema)
        rows, size = rows + typed.num_rows, size + typed.nbytes
        gathered.append(typed)
        if rows >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield from _together(gathered)
            gathered, rows, size = [], 0, 0
    if gathered:
        yield from _together(gathered)


def _together(tables: list[pa.Table]) -> Iterator[pa.RecordBatch]:
    table = tables[0] if len(tables) == 1 else pa.concat_tables(tables).combine_chunks()
    yield from table.to_batches(max_chunksize=_BATCH_ROWS)
