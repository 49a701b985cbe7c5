"""Queries whose whole shape is known: answered from metadata and indexes, or with a scan of just the first rows.

Names, types and nullability of the result are Spark's own: it analyses the query over an empty relation of the table's
columns.  Where a data file would have to be opened, the query runs as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from bitlake.engine.target import exact_scan, is_plain
from bitlake.scan.metadata_only import NeedsData, ScanAggregates
from bitlake.scan.reader import DRIVER_FILES
from bitlake.scan.scan import TableScan
from bitlake.spark.context import EngineContext
from bitlake.spark.read.local_relation import held_frame, is_simple, local_frame
from bitlake.spark.read.scan import choose, frame_schema
from bitlake.spark.types import spark_type
from bitlake.sql import aggregate_pushdown as sh
from bitlake.sql.text import Edit
from bitlake.types import arrow_type

MAX_GROUPS = 100_000
"""More groups than this are Spark's to count: they would all pass through the driver."""
JUDGED_ROWS = 10_000
"""The most rows judged here to find the first n of an order that survive a filter; beyond it Spark sorts all."""
Rewritten = Callable[[Sequence[DataFrame], Sequence[Edit]], DataFrame]
"""Runs the query with a DataFrame in its one table's place, and with edits of its text."""


def usable(shape: sh.Aggregates | sh.TopRows | None, scans: Sequence[TableScan]) -> bool:
    """Whether a query's shape speaks of no column whose order or equality Spark may see otherwise."""
    if isinstance(shape, sh.TopRows):
        used = {c for c, _, _ in shape.order}
    elif shape is not None:
        used = {i.column for i in shape.items if i.column is not None} | ({shape.key} if shape.key else set())
    else:
        return False
    by_name = {f.name: f for f in scans[0].state.schema.fields}
    return all(is_plain(by_name[c].type) for c in used)


def first_rows(context: EngineContext, shape: sh.TopRows, scan: TableScan) -> TableScan | None:
    """A scan of the rows that a query with a LIMIT can show, or None."""
    exact = exact_scan(context, scan, shape.predicate)
    if exact is None:
        return None
    if not shape.order:
        return exact.limit(shape.rows)
    words = [
        (c, "desc" if descending else "asc", "first" if nulls_first else "last")
        for c, descending, nulls_first in shape.order
    ]
    return exact.top_n(words, shape.rows)


def sorted_rows(context: EngineContext, shape: sh.TopRows, scan: TableScan, run: Rewritten) -> DataFrame | None:
    """The result of a query of first rows, if few enough to be read here: in order, so that Spark has none to make."""
    if scan.row_limit is None or (shape.order and shape.edits is None):
        return None
    if shape.outputs is not None and {c for c, _ in shape.outputs} <= set(scan.columns):
        columns = [c for c, _ in shape.outputs]
        names = [name for _, name in shape.outputs]
        plain = frame_schema(scan.select(columns)).fields
        types = T.StructType(
            [T.StructField(n, f.dataType, f.nullable, f.metadata) for n, f in zip(names, plain, strict=True)]
        )
        if is_simple(types):
            rows = _read_here(scan)
            if rows is None:
                return None
            rows = rows.slice(shape.offset)
            return held_frame(context.spark, rows.select(columns).rename_columns(names), types)
    if shape.edits is None or not scan.columns:
        return None
    rows = _read_here(scan)
    if rows is None:
        return None
    return run([local_frame(context.spark, rows.slice(shape.offset), frame_schema(scan))], shape.edits)


def _read_here(scan: TableScan) -> pa.Table | None:
    """The rows of a limited scan, if few need be read for them; else None."""
    plan = scan.plan()
    if not plan.files or choose(plan, limited=True).driver:
        return scan.to_arrow()
    # Many are left to a filter, but the best that survive it may be soon found.
    return scan.to_arrow_within(JUDGED_ROWS) if scan.order and len(plan.files) <= DRIVER_FILES else None


def answer(context: EngineContext, shape: sh.Aggregates, scan: TableScan, run: Rewritten) -> DataFrame | None:
    """The aggregates as a local relation, or None where data would have to be read."""
    exact = exact_scan(context, scan, shape.predicate)
    if exact is None:
        return None
    try:
        columns = _columns(shape, exact.aggregates(may_read=False), exact)
    except NeedsData:
        return None
    if columns is None:
        return None
    exact.record("spark")
    types = run([context.spark.createDataFrame([], frame_schema(exact))], ()).schema
    names = [f.name for f in types.fields]
    wanted = [T.LongType() if kind is None else kind for kind, _ in columns]
    if shape.edits is not None:
        return _rest(context, shape, columns, wanted, types, run)
    if len(types.fields) != len(columns) or len(set(names)) != len(names):
        return None
    if [f.dataType for f in types.fields] != wanted:
        return None
    return local_frame(context.spark, pa.table([c for _, c in columns], names=names), types)


def _rest(
    context: EngineContext,
    shape: sh.Aggregates,
    columns: Sequence[tuple[T.DataType | None, pa.ChunkedArray]],
    kinds: Sequence[T.DataType],
    types: T.StructType,
    run: Rewritten,
) -> DataFrame | None:
    """What the query makes of its aggregates, by Spark; ``types``: its result's."""
    assert shape.edits is not None
    names = [shape.key if i.kind == sh.KEY and shape.key else sh.item_name(n) for n, i in enumerate(shape.items)]
    made = T.StructType([T.StructField(n, kind, True) for n, kind in zip(names, kinds, strict=True)])
    found = run([local_frame(context.spark, pa.table([c for _, c in columns], names=names), made)], shape.edits)
    if [f.dataType for f in found.schema.fields] != [f.dataType for f in types.fields]:
        return None
    return found if found.columns == types.names else found.toDF(*types.names)


def _columns(
    shape: sh.Aggregates, answers: ScanAggregates, scan: TableScan
) -> list[tuple[T.DataType | None, pa.ChunkedArray]] | None:
    """The output columns: Spark type (None: LONG) and values."""
    fields = {f.name: f for f in scan.state.schema.fields}
    out: list[tuple[T.DataType | None, pa.ChunkedArray]] = []
    if shape.key is not None:
        plain = all(i.kind == sh.KEY for i in shape.items)
        if plain:
            values = pa.chunked_array([answers.distinct(shape.key)])
            counts = pa.chunked_array([], pa.int64())
        else:
            counted = answers.group_count(shape.key)
            values, counts = counted.column(0), counted.column(1)
        if len(values) > MAX_GROUPS:
            return None
        for item in shape.items:
            if item.kind == sh.KEY:
                out.append((spark_type(fields[shape.key].type), values))
            elif item.kind == sh.COUNT_ROWS:
                out.append((None, counts))
            else:  # COUNT(key): 0 for the group of NULL
                zero = pa.scalar(0, pa.int64())
                out.append((None, pc.if_else(values.is_valid(), counts, zero)))
        return out
    extremes: dict[str, tuple[pa.Scalar, pa.Scalar]] = {}
    for item in shape.items:
        if item.kind in (sh.MIN, sh.MAX):
            assert item.column is not None
            if item.column not in extremes:
                extremes[item.column] = answers.min_max(item.column)
            kind = arrow_type(fields[item.column].type)
            end = extremes[item.column][item.kind == sh.MAX]
            out.append((spark_type(fields[item.column].type), pa.chunked_array([_array(end)], kind)))
            continue
        if item.kind in (sh.EXISTS, sh.NOT_EXISTS):
            there = answers.exists() is (item.kind == sh.EXISTS)
            out.append((T.BooleanType(), pa.chunked_array([pa.array([there])])))
            continue
        number = answers.count(item.column) if item.kind != sh.COUNT_DISTINCT else _distinct(answers, item.column)
        out.append((None, pa.chunked_array([pa.array([number], pa.int64())])))
    return out


def _array(value: pa.Scalar) -> pa.Array:
    """One value as an array; Arrow makes none of nanoseconds by way of Python."""
    return pa.repeat(value, 1) if value.is_valid else pa.nulls(1, value.type)


def _distinct(answers: ScanAggregates, column: str | None) -> int:
    assert column is not None
    values = answers.distinct(column)
    return len(values) - int(values.null_count)
