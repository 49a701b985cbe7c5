"""Rows from any library as Arrow tables: Arrow, pandas, Polars, DuckDB, readers and iterables of batches.

Whatever offers the Arrow C stream interface is read batch by batch, and the Arrow C array interface offers one batch.
Three things are not streamed: a pandas DataFrame, whose stream would bring its index as columns (an index with a name
is refused, since its values would be lost); a Polars LazyFrame,
which is collected in batches; and a Spark DataFrame, which Spark itself writes (:func:`is_spark_frame`).
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from bitlake.errors import AlreadyExists, InvalidRequest

Rows: TypeAlias = Any
"""An Arrow table, record batch, reader or dataset, a data frame, a DuckDB relation, or an iterable of tables, batches
or data frames."""
_KINDS = "an Arrow table, a record batch, a data frame of pandas, Polars or DuckDB, or an iterable of these"


def arrow_tables(rows: Rows) -> Iterator[pa.Table]:
    """Yield rows of any kind as Arrow tables; raises :class:`InvalidRequest` for other values."""
    if isinstance(rows, pa.Table):
        yield rows
    elif isinstance(rows, pa.RecordBatch):
        yield pa.Table.from_batches([rows])
    elif _is_of(rows, "pandas", "DataFrame"):
        yield _from_pandas(rows)
    elif _is_of(rows, "polars", "DataFrame"):
        yield _from_polars(rows)
    elif _is_of(rows, "polars", "LazyFrame"):
        yield _from_polars(rows.head(0).collect())  # a query may have no batch, and has columns
        batches = rows.collect_batches() if hasattr(rows, "collect_batches") else [rows.collect()]
        yield from map(_from_polars, batches)
    elif is_spark_frame(rows):  # its own stream would bring all rows here
        raise InvalidRequest("a Spark DataFrame is written by Spark: use lake.write(frame, name)")
    elif hasattr(rows, "__arrow_c_stream__"):
        yield from map(_streamed, _reader(rows))
    elif hasattr(rows, "__arrow_c_array__"):
        yield pa.Table.from_batches([_record_batch(rows)])
    elif hasattr(rows, "to_batches"):  # an Arrow dataset, scanner or fragment
        _check_unique(_dataset_schema(rows).names, "dataset")  # Arrow cannot read columns of one name
        yield from (pa.Table.from_batches([b]) for b in rows.to_batches())
    elif isinstance(rows, Iterable) and not isinstance(rows, Mapping | str | bytes):
        for part in rows:  # such as the chunks of pandas.read_csv
            if not (_is_data_frame(part) or hasattr(part, "__arrow_c_stream__") or hasattr(part, "__arrow_c_array__")):
                raise _not_rows(part, "from_pylist" if isinstance(part, Mapping) else None)
            yield from arrow_tables(part)
    else:
        raise _not_rows(rows, "from_pydict" if isinstance(rows, Mapping) else None)


def counted(tables: Iterable[pa.Table], count: Callable[[int], None]) -> Iterator[pa.Table]:
    """The same tables; ``count`` gets the number of rows of each."""
    for table in tables:
        count(table.num_rows)
        yield table


def is_to_write(name: object, exists: bool, mode: str, partition_by: Sequence[str], options: Mapping[str, str]) -> bool:
    """Whether a data frame is to be written in a mode: ``append``, ``overwrite``, ``error`` or ``ignore``.

    Raises :class:`AlreadyExists` for a table that ``error`` wants not to exist, and :class:`InvalidRequest` for an
    unknown mode, and for partitioning and options of a table that exists.
    """
    if mode not in ("append", "overwrite", "error", "errorifexists", "ignore"):
        raise InvalidRequest(f"unknown mode '{mode}'; expected append, overwrite, error or ignore")
    if exists and mode in ("error", "errorifexists"):
        raise AlreadyExists(f"table '{name}' already exists: use mode 'append' or 'overwrite'")
    if exists and mode != "ignore" and (partition_by or options):
        raise InvalidRequest(f"table '{name}' already exists; its partitioning and options are its own")
    return not (exists and mode == "ignore")


def with_schema(rows: Rows) -> tuple[pa.Schema, Iterator[pa.Table]]:
    """The schema of rows of any kind, and the rows as Arrow tables.

    Raises :class:`InvalidRequest` for rows without a schema: an iterable of no batch.
    """
    streams = hasattr(rows, "__arrow_c_stream__") and not _is_data_frame(rows)
    if streams and not isinstance(rows, pa.Table):
        rows = _reader(rows)
        return rows.schema, arrow_tables(rows)
    tables = arrow_tables(rows)
    first = next(tables, None)
    if first is None and hasattr(rows, "to_batches"):
        return _dataset_schema(rows), tables
    if first is None:
        raise InvalidRequest(
            "cannot tell the schema of an iterable without batches; create the table with an Arrow schema"
        )
    return first.schema, itertools.chain([first], tables)


def is_repeatable(rows: Rows) -> bool:
    """Whether rows can be read a second time, after a conflict."""
    return _is_data_frame(rows) or isinstance(rows, pa.Table | pa.RecordBatch | Sequence)


def is_spark_frame(rows: Any) -> bool:
    """Whether rows are a Spark DataFrame, classic or of Spark Connect."""
    return type(rows).__module__.startswith("pyspark.sql") and type(rows).__name__ == "DataFrame"


def _is_data_frame(rows: Any) -> bool:
    return _is_of(rows, "pandas", "DataFrame") or _is_of(rows, "polars", "DataFrame")


def _is_of(rows: Any, package: str, name: str) -> bool:
    """Whether a value is of a library's class, which is not imported for the question."""
    module = sys.modules.get(package)
    return module is not None and isinstance(rows, getattr(module, name, ()))


def _from_pandas(frame: Any) -> pa.Table:
    _check_unique(frame.columns, "data frame")
    lost = [name for name in frame.index.names if name is not None and name not in frame.columns]
    if lost:
        raise InvalidRequest(
            f"the data frame's index '{lost[0]}' is not a column, and would not be written: frame.reset_index() makes "
            "a column of it, and frame.reset_index(drop=True) drops it"
        )
    try:
        table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata()
        return _in_microseconds(table)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as e:
        raise InvalidRequest(f"the data frame's values have no Arrow type: {e}") from e


def _dataset_schema(dataset: Any) -> pa.Schema:
    """The schema of the batches of an Arrow dataset, scanner or fragment."""
    for name in ("schema", "projected_schema"):
        if hasattr(dataset, name):
            return getattr(dataset, name)
    return dataset.physical_schema


def _check_unique(names: Iterable[Any], rows: str) -> None:
    """Raise :class:`InvalidRequest`, which names the kind of rows, if two columns have one name; case counts."""
    seen = set()
    for name in names:
        if name in seen:
            raise InvalidRequest(f"the {rows} has more than one column '{name}'; rename or drop one of them")
        seen.add(name)


def _in_microseconds(table: pa.Table) -> pa.Table:
    """The table with timestamps in microseconds where none has more digits: pandas counts nanoseconds throughout."""
    for i, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type) and field.type.unit == "ns":
            with contextlib.suppress(pa.ArrowInvalid):
                column = table.column(i).cast(pa.timestamp("us", field.type.tz))
                table = table.set_column(i, field.name, column)
    return table


def _from_polars(frame: Any) -> pa.Table:
    import polars

    objects = [name for name, kind in frame.schema.items() if kind == polars.Object]
    if objects:
        raise InvalidRequest(f"the data frame's column '{objects[0]}' holds Python objects; cast it to another type")
    wide = [name for name, kind in frame.schema.items() if kind == getattr(polars, "Int128", None)]
    try:
        if wide:  # Arrow has no integers of 128 bits
            frame = frame.with_columns(polars.col(wide).cast(polars.Decimal(38, 0)))
        return frame.to_arrow(compat_level=polars.CompatLevel.oldest())
    except (pa.ArrowException, polars.exceptions.PolarsError) as e:
        raise InvalidRequest(f"the data frame's values have no Arrow type: {e}") from e


def _reader(rows: Any) -> pa.RecordBatchReader:
    """A reader of an Arrow stream of record batches."""
    try:
        return pa.RecordBatchReader.from_stream(rows)
    except pa.ArrowException as e:
        raise InvalidRequest(f"rows must be {_KINDS}, not {type(rows).__name__}: {e}") from e


def _record_batch(rows: Any) -> pa.RecordBatch:
    """A record batch of an Arrow array of structs, as other libraries hand over their record batches."""
    try:
        return pa.record_batch(rows)
    except (pa.ArrowException, ValueError, TypeError) as e:
        raise InvalidRequest(f"rows must be {_KINDS}, not {type(rows).__name__}: {e}") from e


def _streamed(batch: pa.RecordBatch) -> pa.Table:
    """A stream's batch as a table.  Arrow gives an empty slice from a stream buffers that end before its offset."""
    return pa.Table.from_batches([batch]) if batch.num_rows else batch.schema.empty_table()


def _not_rows(value: object, constructor: str | None) -> InvalidRequest:
    hint = "" if constructor is None else f"; pa.Table.{constructor}(…, schema=table.arrow_schema) makes a table"
    return InvalidRequest(f"rows must be {_KINDS}, not {type(value).__name__}{hint}")
