"""Arrow's view of Spark types, whatever PySpark calls it."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
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
_BATCH_BYTES = 8 << 20
"""Of wide rows, fewer tables share a batch."""


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
