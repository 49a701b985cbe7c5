"""Queries whose whole shape is known: answered from metadata and indexes, or with a scan of just the first rows.

Both engines ask here.  Where metadata and indexes do not suffice, the engine runs the query, or
:func:`answer_from_rows` computes the aggregates for a caller that knows the rows to be few.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from bitlake.engine.session import Session
from bitlake.engine.target import exact_scan, is_plain, is_plain_column
from bitlake.errors import EvaluationFailed, InvalidRequest, NotFound, reading_table
from bitlake.expressions.binder import bind
from bitlake.expressions.indexed import indexed_expression, judged_by_indexes
from bitlake.expressions.term_binder import TermBinder
from bitlake.expressions.terms import BOOLEAN, Term
from bitlake.expressions.tree import IndexedExpression, Predicate, has_computed
from bitlake.expressions.tree import columns_of as columns_judged
from bitlake.fileindex.registry import indexed_expressions, known_index_type, usable_indexes
from bitlake.lazy_modules import compute as pc
from bitlake.metadata import options as opt
from bitlake.metadata.schema import TableSchema
from bitlake.scan.aggregate_values import (
    AVG,
    COUNT,
    COUNT_DISTINCT,
    COUNT_ROWS,
    MAX,
    MIN,
    SUM,
    Aggregate,
    GroupKey,
    Unordered,
    result_type,
)
from bitlake.scan.aggregation import ReadLimit, aggregate, are_indexed
from bitlake.scan.metadata_only import NeedsData, ScanAggregates
from bitlake.scan.scan import TableScan
from bitlake.scan.sort_order import Order
from bitlake.sql import aggregate_pushdown as sh
from bitlake.sql.analyzer import QueryAnalysis
from bitlake.sql.text import SqlText
from bitlake.types import AtomicType, DataField, DataType, arrow_type
from bitlake.types.datatypes import TIMESTAMPS

if TYPE_CHECKING:
    from bitlake.engine.join_filters import JoinFilter

MAX_GROUPS = 100_000
"""More groups than this are an engine's to count: they would all pass through memory here."""


@dataclass(frozen=True, slots=True)
class PreparedQuery:
    """A query taken apart: its tables' scans, in the order they stand in the text.

    ``shape``: that of a query which metadata may answer, or of which only the first rows are scanned.
    ``join_filters``: the join filter of each scan, or None; empty if no tables are joined.
    """

    analysis: QueryAnalysis
    scans: tuple[TableScan, ...]
    shape: sh.Aggregates | sh.TopRows | None = None
    join_filters: tuple[JoinFilter | None, ...] = ()


def prepare(session: Session, text: SqlText) -> PreparedQuery:
    """Find the lake tables of a query and describe what each must give.

    Nothing is read, except the keys of small tables that choose the files of large ones.
    """
    analysis, scans = session.scans(text)
    # What metadata can answer, unless a way to read the files is forced.
    plain = all(type(scan) is TableScan and scan.state.schema.opts.of(opt.SPARK_READ_PATH) == "auto" for scan in scans)
    plain = plain and not analysis.by_spark and not any(use.file_metadata for use in analysis.tables)
    shape = analysis.shape if plain and _is_usable(analysis.shape, scans) else None
    if isinstance(shape, sh.TopRows):
        first = _first_rows(session, shape, scans[0])
        scans = scans if first is None else (first,)
    if not analysis.links:
        return PreparedQuery(analysis, scans, shape)
    # Imported lazily: only joins need it (tests/cli/test_startup.py).
    from bitlake.engine.join_filters import add_join_filters

    scans, filters = add_join_filters(analysis, scans, session.picks_rows)
    return PreparedQuery(analysis, scans, shape, filters)


def columns_of(scans: Sequence[TableScan]) -> dict[str, Sequence[str]]:
    """The names of the columns of each table: a scan's own columns are those that a query's text needs."""
    return {scan.state.name: scan.state.schema.field_names for scan in scans}


def _is_usable(shape: sh.Aggregates | sh.TopRows | None, scans: Sequence[TableScan]) -> bool:
    """Whether a query's shape speaks of no column whose order or equality an engine may see otherwise."""
    if isinstance(shape, sh.TopRows):
        used = {c for c, _, _ in shape.order if isinstance(c, str)}
    elif shape is not None:
        used = columns_of_aggregates(shape)
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
    orders: list[Order] = []
    for item, descending, nulls_first in shape.order:
        column = item if isinstance(item, str) else _ranked_expression(session, item, scan.state.schema)
        if column is None:
            return None
        orders.append(Order(column, descending, nulls_first))
    return exact.sorted_by(orders, shape.rows)


def _ranked_expression(session: Session, term: Term, schema: TableSchema) -> IndexedExpression | None:
    """The expression of a term whose values a declared index ranks; None where an engine sorts as well."""
    if not session.matches_engine:
        return None
    try:
        expression = indexed_expression(TermBinder(schema.fields, session.timezone).bind(term))
        specs = usable_indexes(schema.options, schema.fields)
    except (InvalidRequest, NotFound):
        return None
    ranked = [spec.column for spec in specs if known_index_type(spec.index_type).ranks_rows]
    return expression if expression in ranked else None


# --- aggregates -------------------------------------------------------------------------------------------------------

_MIXED = ReadLimit(rows=1_000_000, share=0.25)
"""Where indexes answer for most rows, the data files of a few are read here: up to 1M rows take 0.1 s."""
_MICROSECONDS = 6


@dataclass(frozen=True, slots=True)
class Answer:
    """The values of a query's aggregates: a column for each item of its shape, a row for each group (or one).

    ``scan`` has the plan that answered.  The key has its column's name, and item ``i`` is :func:`item_name` ``(i)``.
    """

    fields: tuple[DataField, ...]
    rows: pa.Table
    scan: TableScan


def answer(session: Session, shape: sh.Aggregates, scan: TableScan, engine: str) -> Answer | None:
    """The aggregates of a query, or None where an engine is to read the data; ``engine`` is for the log of scans."""
    computes = shape.predicate is not None and has_computed(shape.predicate)
    exact = _indexed_scan(session, scan, shape.predicate) if computes else exact_scan(session, scan, shape.predicate)
    if exact is None:
        return None
    by_name = {f.name: f for f in exact.state.schema.fields}
    try:
        columns: list[pa.ChunkedArray] | None
        if _is_counted(shape):
            columns = _columns(shape, exact, by_name)
        else:
            exact, columns = _aggregated(session, shape, exact)
    except (NeedsData, Unordered, EvaluationFailed, InvalidRequest):
        return None  # an engine finds the same error, if there is one
    return None if columns is None else _answer(shape, exact, columns, engine)


def answer_from_rows(
    session: Session, shape: sh.Aggregates, exact: TableScan, engine: str, most_groups: int
) -> Answer | None:
    """Compute a query's aggregates from the rows of ``exact``, whose condition is the whole WHERE.

    None for more than ``most_groups`` groups, and where an engine may get another result.  Floats are added in the
    order of the rows; engines define none.
    """
    exact = exact.apart()
    try:
        keys, measures = _grouping(session, shape, exact)
        with reading_table(exact.state.name):
            rows = aggregate(exact.aggregates(exact=False), keys, measures, most_groups=most_groups, strict=True)
    except (NeedsData, Unordered, EvaluationFailed, InvalidRequest):
        return None  # an engine finds the same error, if there is one
    return _answer(shape, exact, _by_item(shape, keys, measures, rows), engine)


def is_computable(session: Session, shape: sh.Aggregates, exact: TableScan) -> bool:
    """Whether :func:`answer_from_rows` may answer a query: told before anything is read."""
    computes = exact.predicate is not None and has_computed(exact.predicate)
    if computes and not session.matches_engine:
        return False
    if any(i.kind in (sh.EXISTS, sh.NOT_EXISTS) for i in shape.items):
        return False
    try:
        _grouping(session, shape, exact)
    except (NeedsData, InvalidRequest):
        return False
    return True


def columns_of_aggregates(shape: sh.Aggregates) -> set[str]:
    """The columns that a query's aggregates and groups take; those of WHERE are not among them."""
    return {k.column for k in shape.keys} | {i.column for i in shape.items if i.column is not None}


def result_fields(shape: sh.Aggregates, scan: TableScan) -> tuple[DataField, ...]:
    """The columns of an :class:`Answer`."""
    by_name = {f.name: f for f in scan.state.schema.fields}
    fields = []
    for number, item in enumerate(shape.items):
        name = item.column if item.kind == sh.KEY and item.column else sh.item_name(number)
        fields.append(DataField(number, name, _type_of(item, by_name)))
    return tuple(fields)


def _answer(shape: sh.Aggregates, exact: TableScan, columns: Sequence[pa.ChunkedArray], engine: str) -> Answer:
    exact.record(engine)
    fields = result_fields(shape, exact)
    return Answer(fields, pa.table(columns, names=[f.name for f in fields]), exact)


def _indexed_scan(session: Session, scan: TableScan, predicate: Predicate | None) -> TableScan | None:
    """The scan with a WHERE that computes, if declared indexes can evaluate all of it exactly; else None."""
    schema = scan.state.schema
    expressions = indexed_expressions(schema.options, schema.fields)
    if predicate is None or not expressions or not session.matches_engine:
        return None
    try:
        bound = bind(predicate, schema.fields, session.timezone)
    except InvalidRequest:
        return None
    judged = judged_by_indexes(bound)
    if not judged.exact or has_computed(judged.predicate):
        return None
    for column in columns_judged(judged.predicate):
        is_exact = column in expressions if isinstance(column, IndexedExpression) else is_plain_column(column, schema)
        if not is_exact:
            return None
    return replace(scan, predicate=None, _planned=[]).where_bound(bound)


def _type_of(item: sh.Item, fields: Mapping[str, DataField]) -> DataType:
    if item.kind in (sh.EXISTS, sh.NOT_EXISTS):
        return BOOLEAN
    kind = None if item.column is None else fields[item.column].type
    if item.kind == sh.KEY:
        assert kind is not None
        return kind
    return result_type(Aggregate(item.kind, item.column), kind)


def _is_counted(shape: sh.Aggregates) -> bool:
    """Whether the aggregates are counts of one key's values, or without a key, other than sums."""
    if not shape.keys:
        return not any(i.kind in (SUM, AVG) for i in shape.items)
    key = shape.keys[0].column
    counts = (sh.Item(sh.KEY, key), sh.Item(COUNT, key), sh.Item(COUNT_ROWS, None))
    return len(shape.keys) == 1 and not shape.keys[0].terms and all(i in counts for i in shape.items)


def _columns(shape: sh.Aggregates, scan: TableScan, fields: dict[str, DataField]) -> list[pa.ChunkedArray] | None:
    """The columns of the items, where they are counted; None where there are too many groups."""
    aggregates = scan.aggregates(may_read=False)
    return _groups(shape, shape.keys[0].column, aggregates) if shape.keys else _row(shape, aggregates, fields)


def _aggregated(session: Session, shape: sh.Aggregates, scan: TableScan) -> tuple[TableScan, list[pa.ChunkedArray]]:
    """The columns of the items, of which a part of the files may be read, and the scan whose plan answered.

    That is not ``scan``: if indexes do not answer, the query reads by the plan that reading is worth.
    """
    keys, measures = _grouping(session, shape, scan)
    if not are_indexed(scan.aggregates(exact=False), keys, measures, _MIXED):
        raise NeedsData
    exact = scan.apart()
    rows = aggregate(
        exact.aggregates(), keys, measures, limit=_MIXED, most_groups=MAX_GROUPS, strict=True, sums_floats=False
    )
    return exact, _by_item(shape, keys, measures, rows)


def _grouping(session: Session, shape: sh.Aggregates, scan: TableScan) -> tuple[list[GroupKey], list[Aggregate]]:
    """The keys and aggregates of a query; raises :class:`NeedsData` where Spark groups in another way."""
    fields = {f.name: f for f in scan.state.schema.fields}
    grouped = {k.column for k in shape.keys} | {i.column for i in shape.items if i.kind == COUNT_DISTINCT and i.column}
    for column in grouped:
        kind = fields[column].type
        if isinstance(kind, AtomicType) and kind.root in TIMESTAMPS and (kind.precision or 0) > _MICROSECONDS:
            raise NeedsData  # Spark cuts them, and groups what is left
    if any(key.terms for key in shape.keys) and not session.matches_engine:
        raise NeedsData
    binder = TermBinder(scan.state.schema.fields, session.timezone)
    keys = [GroupKey(k.column, tuple(binder.bind(term) for term in k.terms)) for k in shape.keys]
    return keys, list(dict.fromkeys(Aggregate(i.kind, i.column) for i in shape.items if i.kind != sh.KEY))


def _by_item(
    shape: sh.Aggregates, keys: Sequence[GroupKey], measures: Sequence[Aggregate], rows: pa.Table
) -> list[pa.ChunkedArray]:
    """The columns of the items of a query, of which some may be the same."""
    places = {sh.Item(sh.KEY, key.column): i for i, key in enumerate(keys)}
    places |= {sh.Item(a.kind, a.column): len(keys) + i for i, a in enumerate(measures)}
    return [rows.column(places[item]) for item in shape.items]


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
        if item.kind == COUNT:  # of the key: 0 for the group of NULL
            columns.append(pc.if_else(values.is_valid(), counts, pa.scalar(0, pa.int64())))
        else:
            columns.append(values if item.kind == sh.KEY else counts)
    return columns


def _row(shape: sh.Aggregates, aggregates: ScanAggregates, fields: dict[str, DataField]) -> list[pa.ChunkedArray]:
    """The columns of one row."""
    extremes: dict[str, tuple[pa.Scalar, pa.Scalar]] = {}
    columns = []
    for item in shape.items:
        if item.kind in (MIN, MAX):
            assert item.column is not None
            if item.column not in extremes:
                extremes[item.column] = aggregates.min_max(item.column)
            end = extremes[item.column][item.kind == MAX]
            columns.append(pa.chunked_array([_array(end)], arrow_type(fields[item.column].type)))
        elif item.kind in (sh.EXISTS, sh.NOT_EXISTS):
            exists = aggregates.exists() is (item.kind == sh.EXISTS)
            columns.append(pa.chunked_array([pa.array([exists])]))
        else:
            count = item.kind == COUNT_DISTINCT
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
