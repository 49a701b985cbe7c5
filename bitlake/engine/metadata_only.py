"""Queries whose whole shape is known: answered from metadata and indexes, or with a scan of just the first rows.

Both engines decide here what metadata answer.  Where a data file would have to be opened, the query runs as any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from bitlake.engine.session import Session
from bitlake.engine.target import exact_scan, is_plain
from bitlake.lazy_modules import compute as pc
from bitlake.metadata import options as opt
from bitlake.scan.metadata_only import NeedsData, ScanAggregates
from bitlake.scan.scan import TableScan
from bitlake.sql import aggregate_pushdown as sh
from bitlake.sql.analyzer import QueryAnalysis
from bitlake.sql.text import SqlText
from bitlake.types import AtomicType, DataField, Root, arrow_type

MAX_GROUPS = 100_000
"""More groups than this are an engine's to count: they would all pass through memory here."""


@dataclass(frozen=True, slots=True)
class PreparedQuery:
    """A query taken apart: its tables' scans, in the order they stand in the text.

    ``shape``: that of a query which metadata may answer, or of which only the first rows are scanned.
    """

    analysis: QueryAnalysis
    scans: tuple[TableScan, ...]
    shape: sh.Aggregates | sh.TopRows | None = None


def prepare(session: Session, text: SqlText) -> PreparedQuery:
    """Find the lake tables of a query and describe what each must give; nothing is read."""
    analysis, scans = session.scans(text)
    # What metadata can answer, unless a way to read the files is forced.
    plain = all(type(scan) is TableScan and scan.state.schema.opts.of(opt.SPARK_READ_PATH) == "auto" for scan in scans)
    plain = plain and not analysis.by_spark and not any(use.file_metadata for use in analysis.tables)
    shape = analysis.shape if plain and _is_usable(analysis.shape, scans) else None
    if isinstance(shape, sh.TopRows):
        first = _first_rows(session, shape, scans[0])
        scans = scans if first is None else (first,)
    return PreparedQuery(analysis, scans, shape)


def columns_of(scans: Sequence[TableScan]) -> dict[str, Sequence[str]]:
    """The names of the columns of each table: a scan's own columns are those that a query's text needs."""
    return {scan.state.name: scan.state.schema.field_names for scan in scans}


def _is_usable(shape: sh.Aggregates | sh.TopRows | None, scans: Sequence[TableScan]) -> bool:
    """Whether a query's shape speaks of no column whose order or equality an engine may see otherwise."""
    if isinstance(shape, sh.TopRows):
        used = {c for c, _, _ in shape.order}
    elif shape is not None:
        used = {i.column for i in shape.items if i.column is not None} | ({shape.key} if shape.key else set())
    else:
        return False
    by_name = {f.name: f for f in scans[0].state.schema.fields}
    return all(is_plain(by_name[c].type) for c in used)


def _first_rows(session: Session, shape: sh.TopRows, scan: TableScan) -> TableScan | None:
    """A scan of the rows that a query with a LIMIT can show, or None."""
    exact = exact_scan(session, scan, shape.predicate)
    if exact is None:
        return None
    if not shape.order:
        return exact.limit(shape.rows)
    words = [
        (c, "desc" if descending else "asc", "first" if nulls_first else "last")
        for c, descending, nulls_first in shape.order
    ]
    return exact.top_n(words, shape.rows)


# --- aggregates -------------------------------------------------------------------------------------------------------

_BIGINT, _BOOLEAN = AtomicType(Root.BIGINT), AtomicType(Root.BOOLEAN)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a query's aggregates came to: a column for each item of its shape, a row for each group (or one).

    ``scan`` has the plan that answered.  The key has its column's name, and item ``i`` is :func:`item_name` ``(i)``.
    """

    fields: tuple[DataField, ...]
    rows: pa.Table
    scan: TableScan


def answer(session: Session, shape: sh.Aggregates, scan: TableScan, engine: str) -> Answer | None:
    """The aggregates of a query, or None where data would have to be read; ``engine`` is for the log of scans."""
    exact = exact_scan(session, scan, shape.predicate)
    if exact is None:
        return None
    by_name = {f.name: f for f in exact.state.schema.fields}
    try:
        aggregates = exact.aggregates(may_read=False)
        columns = _row(shape, aggregates, by_name) if shape.key is None else _groups(shape, shape.key, aggregates)
    except NeedsData:
        return None
    if columns is None:
        return None
    exact.record(engine)
    fields = []
    for number, item in enumerate(shape.items):
        name = shape.key if item.kind == sh.KEY and shape.key else sh.item_name(number)
        kind = by_name[item.column].type if item.column and item.kind in (sh.KEY, sh.MIN, sh.MAX) else _BIGINT
        fields.append(DataField(number, name, _BOOLEAN if item.kind in (sh.EXISTS, sh.NOT_EXISTS) else kind))
    return Answer(tuple(fields), pa.table(columns, names=[f.name for f in fields]), exact)


def _groups(shape: sh.Aggregates, key: str, aggregates: ScanAggregates) -> list[pa.ChunkedArray] | None:
    """The columns of a row for each value of the key; None if there are too many."""
    if all(i.kind == sh.KEY for i in shape.items):
        values = pa.chunked_array([aggregates.distinct(key)])
        counts = pa.chunked_array([], pa.int64())
    else:
        counted = aggregates.group_count(key)
        values, counts = counted.column(0), counted.column(1)
    if len(values) > MAX_GROUPS:
        return None
    columns = []
    for item in shape.items:
        if item.kind == sh.COUNT:  # of the key: 0 for the group of NULL
            columns.append(pc.if_else(values.is_valid(), counts, pa.scalar(0, pa.int64())))
        else:
            columns.append(values if item.kind == sh.KEY else counts)
    return columns


def _row(shape: sh.Aggregates, aggregates: ScanAggregates, fields: dict[str, DataField]) -> list[pa.ChunkedArray]:
    """The columns of one row."""
    extremes: dict[str, tuple[pa.Scalar, pa.Scalar]] = {}
    columns = []
    for item in shape.items:
        if item.kind in (sh.MIN, sh.MAX):
            assert item.column is not None
            if item.column not in extremes:
                extremes[item.column] = aggregates.min_max(item.column)
            end = extremes[item.column][item.kind == sh.MAX]
            columns.append(pa.chunked_array([_array(end)], arrow_type(fields[item.column].type)))
        elif item.kind in (sh.EXISTS, sh.NOT_EXISTS):
            exists = aggregates.exists() is (item.kind == sh.EXISTS)
            columns.append(pa.chunked_array([pa.array([exists])]))
        else:
            count = item.kind == sh.COUNT_DISTINCT
            number = _distinct(aggregates, item.column) if count else aggregates.count(item.column)
            columns.append(pa.chunked_array([pa.array([number], pa.int64())]))
    return columns


def _array(value: pa.Scalar) -> pa.Array:
    """One value as an array; Arrow makes none of nanoseconds by way of Python."""
    return pa.repeat(value, 1) if value.is_valid else pa.nulls(1, value.type)


def _distinct(aggregates: ScanAggregates, column: str | None) -> int:
    assert column is not None
    values = aggregates.distinct(column)
    return len(values) - int(values.null_count)
