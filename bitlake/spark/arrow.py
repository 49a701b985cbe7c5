"""Arrow's view of Spark types, whatever PySpark calls it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.pandas import types as pandas_types

from bitlake.formats.conform import retyped

_ZONE: dict[str, Any] = (
    {"timezone": "UTC"} if "timezone" in inspect.signature(pandas_types.to_arrow_schema).parameters else {}
)
"""PySpark 4.3 asks for the zone of timestamps, 4.1 takes UTC without being told."""
_BATCH_ROWS = 10_000


def spark_arrow_schema(types: T.StructType, **options: Any) -> pa.Schema:
    """The Arrow schema in which PySpark exchanges rows of these types; timestamps are in UTC."""
    return pandas_types.to_arrow_schema(types, **_ZONE, **options)


def spark_batches(table: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """A table's rows under a schema of :func:`spark_arrow_schema`; timestamps lose what is below a microsecond.

    A table without columns stays as it is: under a schema it would lose the number of its rows.
    """
    made = retyped(table, schema) if schema.names else table
    yield from made.to_batches(max_chunksize=_BATCH_ROWS)
