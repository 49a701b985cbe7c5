"""A Spark query over lake tables: each table becomes a view of the rows and columns that the query needs.

Only the tables' names change in the text; Spark parses, optimises and runs the query with all its filters.  sqlglot
finds the tables, the columns that the query needs, and the conditions that may prune rows.

Some queries need no Spark job: metadata and indexes answer them, or the driver reads few rows and adds them up, or it
reads only the first rows, or DuckDB computes them there (:mod:`bitlake.spark.read.driver_query`).  Names, types and
nullability of the result are Spark's own: it analyses the query over an empty relation of the table's columns.  All
other queries run on Spark.

The explanation of a query has a scan for each lake table, and Spark's plan.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T
from sqlglot import exp

from bitlake.engine.explain import binding, details, explain_answer, explained, join_filter_line
from bitlake.engine.metadata_only import (
    Answer,
    PreparedQuery,
    answer,
    answer_from_rows,
    columns_of,
    columns_of_aggregates,
    is_computable,
    prepare,
    result_fields,
)
from bitlake.engine.session import nothing, result
from bitlake.engine.target import exact_scan
from bitlake.errors import InvalidRequest, NotFound, UnsupportedFeature
from bitlake.expressions.binder import bind
from bitlake.expressions.literal_lists import LiteralList
from bitlake.expressions.sql_text import quoted
from bitlake.expressions.tree import In, conjuncts
from bitlake.metadata.schema import MissingColumn, MissingTable
from bitlake.scan.plan import SkipReason
from bitlake.scan.reader import DRIVER_FILES
from bitlake.scan.scan import TableScan
from bitlake.spark.context import EngineContext
from bitlake.spark.errors import spark_errors
from bitlake.spark.read.driver_query import QUERY_SECONDS, DriverQuery, driver_query
from bitlake.spark.read.literal_list_views import joinable_lists, list_frame, with_first_literals, with_list_views
from bitlake.spark.read.local_relation import held_frame, is_simple, local_frame, without_rows
from bitlake.spark.read.scan import LOCAL_ROWS, SparkReader, choose, frame_schema, is_soon_read, looked_at
from bitlake.spark.read.temporary_views import follow
from bitlake.spark.types import comment_of, spark_type
from bitlake.sql import aggregate_pushdown as sh
from bitlake.sql import statements as st
from bitlake.sql.aggregate_pushdown import Aggregates, TopRows
from bitlake.sql.analyzer import QueryAnalysis
from bitlake.sql.parser import parse_statement
from bitlake.sql.statements import CacheTable, ClearCache, DescribeQuery, UncacheTable
from bitlake.sql.table_references import replace_tables
from bitlake.sql.text import Edit, SqlText
from bitlake.tools.explain.explanation import QueryExplanation, explain_scan
from bitlake.tools.explain.text import explain_text

_RUN_AT_ONCE = re.compile(r"(SET|DECLARE|INSERT|(CREATE|CREATE\s+OR\s+REPLACE|REPLACE)\s+TABLE)\b", re.I)
"""Statements of Spark's that read the tables they name when they are run, and keep no name of them."""
_PAIMON_SETTING = re.compile(r"^(\s*(?:SET|RESET)\s+)(spark\.paimon\.[^=\s`]+)", re.I)
"""Spark takes keys with dashes and stars in backquotes only; Paimon's are written without."""


_FULL_SCAN = "spark.paimon.read.allow.fullScan"
_PRUNED = (SkipReason.PARTITION, SkipReason.BUCKET, SkipReason.STATS)


def query(context: EngineContext, text: SqlText, *, computes: bool = True) -> DataFrame:
    """Run a query.  Returns a DataFrame: lazy, except for aggregates, first rows and driver queries.

    Without ``computes`` no rows are read to compute it here: for callers that want its columns.
    """
    return _query(context, prepare(context, text), computes=computes)


def _query(context: EngineContext, prepared: PreparedQuery, *, computes: bool = True) -> DataFrame:
    """The query's DataFrame; without ``computes`` no rows are read to compute it here: for its types, or a view."""
    aggregates = _aggregates(context, prepared, computes)
    if aggregates is not None:
        return aggregates[1]
    if computes:
        query_or_reason = _driver_query(context, prepared)
        frame = None if isinstance(query_or_reason, str) else query_or_reason.frame(context)
        if frame is not None:
            return frame
    return _rows_of(context, prepared)


def _driver_query(context: EngineContext, prepared: PreparedQuery) -> DriverQuery | str:
    """A query that DuckDB computes in the driver, or why Spark is to run it."""
    if isinstance(prepared.shape, TopRows):
        return "it takes the first rows of a table"
    query_or_reason = driver_query(context, prepared, functools.partial(_analysed, context, prepared))
    if not isinstance(query_or_reason, str):
        _check_full_scan(context, prepared.scans)
    return query_or_reason


def _rows_of(context: EngineContext, prepared: PreparedQuery) -> DataFrame:
    """The DataFrame of a query whose aggregates, if it has any, Spark computes."""
    _check_full_scan(context, prepared.scans)
    if isinstance(prepared.shape, TopRows):
        few = sorted_rows(context, prepared.shape, prepared.scans[0], functools.partial(_run, context, prepared))
        if few is not None:
            return few
    try:
        return _over_tables(context, prepared)
    except (InvalidRequest, NotFound):
        whole = _whole(prepared)
        if whole == prepared:
            raise
    # Spark may need columns that the analysis did not find in the text; it then says so, or what else is wrong.
    return _over_tables(context, whole)


def _aggregates(
    context: EngineContext, prepared: PreparedQuery, computes: bool = True
) -> tuple[Answer, DataFrame] | None:
    """Compute a query's aggregates from metadata and indexes, or with ``computes`` from few rows.

    Returns the answer and its DataFrame; None if Spark is to run the query.
    """
    shape = prepared.shape
    if not isinstance(shape, Aggregates):
        return None
    # The frames given to ``run`` hold only rows that meet the scan's condition.
    run = functools.partial(_run, context, prepared, filtered=prepared.scans)
    (scan,) = prepared.scans
    found, exact = answer(context, shape, scan, "spark"), None
    if found is None:
        exact = _few_rows(context, shape, scan) if computes else None
        if exact is None:
            return None
    types = _result_types(context, shape, prepared)
    if exact is not None and types is not None:
        found = answer_from_rows(context, shape, exact, "spark", LOCAL_ROWS)
    if found is None or types is None:
        return None
    frame = _answered(context, shape, found, types, run)
    return None if frame is None else (found, frame)


def _few_rows(context: EngineContext, shape: Aggregates, scan: TableScan) -> TableScan | None:
    """The scan with the whole WHERE, if the driver reads its rows sooner than a job would start; else None."""
    exact = exact_scan(context, scan, shape.predicate)
    if exact is None or context.cached.frame(scan) is not None or not is_computable(context, shape, exact):
        return None
    if not is_soon_read(exact, columns_of_aggregates(shape)):
        return None
    _check_full_scan(context, [exact])
    return exact


def _over_tables(context: EngineContext, prepared: PreparedQuery) -> DataFrame:
    frames, filtered = [], []
    analysis = prepared.analysis
    reader = SparkReader(context.spark, context.catalog.store, projects_subqueries=analysis.projects_subqueries)
    for use, scan in zip(analysis.tables, prepared.scans, strict=True):
        if use.file_metadata or analysis.by_spark:
            frames.append(reader.frame_with_files(scan, use.file_metadata, analysis.by_spark))
            continue
        cached = context.cached.frame(scan)
        frame, just = reader.candidates(scan) if cached is None else (cached, False)
        frames.append(frame)
        filtered += [scan] if just else []
    frame = _run(context, prepared, frames, filtered=filtered)
    if analysis.named is None:
        empty = any(type(s) is TableScan and not s.plan().files for s in prepared.scans)
        return without_rows(frame) if empty else frame
    named = replace(prepared, analysis=analysis.named)
    return frame.toDF(*_run(context, named, frames, filtered=filtered).columns)


def _analysed(context: EngineContext, prepared: PreparedQuery) -> DataFrame:
    """The query over relations without rows: Spark tells its columns, and what is wrong with it."""
    reader = SparkReader(context.spark, context.catalog.store)
    return _run(context, prepared, [reader.without_rows(frame_schema(s)) for s in prepared.scans], types_only=True)


def _whole(prepared: PreparedQuery) -> PreparedQuery:
    """The query over all columns of its tables, beside the metadata columns that it names."""
    scans = tuple(
        s.select((*s.state.schema.field_names, *(c for c in s.columns if c not in s.state.schema.field_names)))
        for s in prepared.scans
    )
    return replace(prepared, scans=scans)


def _check_full_scan(context: EngineContext, scans: Sequence[TableScan]) -> None:
    """With the session's ``read.allow.fullScan`` = false, refuse to read all files of a partitioned table.

    As in Paimon's connector, what counts is whether partitions, buckets or statistics left out any file.
    """
    if context.options.get(_FULL_SCAN, "true").strip().lower() != "false":
        return
    for scan in scans:
        if type(scan) is TableScan and scan.state.schema.partition_keys:
            plan = scan.plan()
            if plan.files and not any(plan.metrics.files_skipped.get(r.value) for r in _PRUNED):
                raise InvalidRequest(
                    f"table '{scan.state.name}': the query reads all {len(plan.files):,} files, and '{_FULL_SCAN}' = "
                    f"false forbids it; filter by {', '.join(scan.state.schema.partition_keys)}"
                )


def _run(
    context: EngineContext,
    prepared: PreparedQuery,
    frames: Sequence[DataFrame],
    edits: Sequence[Edit] = (),
    filtered: Sequence[TableScan] = (),
    types_only: bool = False,
) -> DataFrame:
    """The query, edited, over these frames in the places of its tables.

    The frames of scans that are ``filtered`` have just the rows that meet their condition.  With ``types_only`` the
    result's names and types are the query's, its rows need not be.
    """
    uses, compared = prepared.analysis.tables, context.names
    text, database = prepared.analysis.text, context.database
    listed = {} if types_only else joinable_lists(context, prepared)
    settled = {
        values: column
        for values, column in listed.items()
        if _is_applied(context, values, column, prepared.scans, filtered)
    }
    lists = [values for values in listed if values not in settled]

    def over(names: Sequence[str]) -> str:
        edited = str(replace_tables(text, uses, names[: len(frames)], database, compared, edits))
        for values, column in settled.items():
            edited = edited.replace(f"'{values}'", ".".join(quoted(part.name) for part in column.parts))
        if types_only:
            return with_first_literals(edited, text)
        return with_list_views(edited, lists, names[len(frames) :])

    try:
        with spark_errors("running the query"):
            return context.over([*frames, *(list_frame(context, values) for values in lists)], over)
    except MissingTable as e:
        raise context.catalog.missing_table(e.name, context.database) from e.__cause__
    except MissingColumn as e:
        raise e.among(columns_of(prepared.scans)) from e.__cause__


def _is_applied(
    context: EngineContext,
    values: LiteralList,
    column: exp.Column,
    scans: Sequence[TableScan],
    filtered: Sequence[TableScan],
) -> bool:
    """Whether the one frame with this column has just rows for which ``column IN (values)`` is TRUE.

    Where several scans have columns of the name, whose the list's is stays open.
    """
    named = [(s, f) for s in scans for f in s.state.schema.fields if context.names.same(f.name, column.name)]
    if len(named) != 1:
        return False
    ((scan, field),) = named
    if scan.predicate is None or not any(scan is just for just in filtered):
        return False
    try:
        leaf = bind(In(field.name, values.values, False, values.derived), [field], context.literal_zone)
    except InvalidRequest:  # literals that only Spark can evaluate
        return False
    return leaf in conjuncts(scan.predicate)


def create_view(context: EngineContext, statement: st.CreateView) -> pa.Table:
    """CREATE TEMPORARY VIEW … AS: a view that follows its tables (:mod:`bitlake.spark.read.temporary_views`)."""
    prepared = _create_view(context, statement)
    follow(context, statement.name, statement.query, prepared.analysis.tables, prepared.scans)
    return nothing()


def _create_view(context: EngineContext, statement: st.CreateView) -> PreparedQuery:
    """Make a view of the tables' files as they are now."""
    prepared = prepare(context, statement.query)
    # Queries that are not known yet read the DataFrame under a name.
    prepared = replace(prepared, analysis=replace(prepared.analysis, projects_subqueries=True))
    # The view is not computed here: each statement creates the views of changed tables again.
    frame = _query(context, prepared, computes=False)
    with spark_errors(f"creating view '{statement.name}'"):
        if statement.replace:
            frame.createOrReplaceTempView(statement.name)
        else:
            frame.createTempView(statement.name)
    return prepared


def other(context: EngineContext, text: SqlText, remedy: str | None = None) -> DataFrame:
    """A statement that is Spark's own, over lake tables if it names some and needs them only now.

    Raises :class:`UnsupportedFeature` where Spark would keep the names of lake tables, which it does not know.
    ``remedy`` ends that message; the default is to create a temporary view of the table.
    """
    try:
        prepared = prepare(context, text)
    except InvalidRequest:
        prepared = PreparedQuery(QueryAnalysis((), text), ())  # not a query, so Spark has the word
    uses = prepared.analysis.tables
    if uses and not _RUN_AT_ONCE.match(text):
        remedy = remedy or f"make a view of it first: CREATE TEMPORARY VIEW v AS SELECT * FROM {uses[0].name}"
        raise UnsupportedFeature(f"this statement cannot be run on lake table '{uses[0].name}'; {remedy}")
    if uses:
        return _over_tables(context, prepared)
    with spark_errors("running the statement"):
        return context.spark.sql(_PAIMON_SETTING.sub(r"\1`\2`", text))


def describe_query(context: EngineContext, statement: DescribeQuery) -> pa.Table:
    """DESCRIBE QUERY: the columns that a query returns."""
    frame = _query(context, prepare(context, statement.query), computes=False)
    rows = [(f.name, f.dataType.simpleString(), comment_of(f)) for f in frame.schema.fields]
    return result(dict.fromkeys(("col_name", "data_type", "comment"), str), rows)


def cache_table(context: EngineContext, statement: CacheTable) -> DataFrame | pa.Table:
    """CACHE TABLE of the lake's, of Spark's, or of a view that the statement makes."""
    if statement.query is not None:
        _create_view(context, st.CreateView(statement.table.table, statement.query))
        lazy = "LAZY " if statement.lazy else ""
        with spark_errors("running the statement"):
            return context.spark.sql(f"CACHE {lazy}TABLE {quoted(statement.table.table)}")
    if not context.has(statement.table):
        return other(context, statement.text)
    frame = context.cached.add(context.scan(statement.table))
    if not statement.lazy:
        with spark_errors(f"caching table '{statement.table}'"):
            frame.count()
    return nothing()


def uncache_table(context: EngineContext, statement: UncacheTable) -> DataFrame | pa.Table:
    """UNCACHE TABLE; one that is not cached is left as it is."""
    if not context.has(statement.table):
        return other(context, statement.text)
    context.cached.remove(context.scan(statement.table).state)
    return nothing()


def clear_cache(context: EngineContext, statement: ClearCache) -> pa.Table:
    """CLEAR CACHE: of the lake's tables and of Spark's."""
    context.cached.clear()
    context.spark.catalog.clearCache()
    return nothing()


def explain(context: EngineContext, statement: st.Explain) -> pa.Table:
    """EXPLAIN: what each lake table's scan prunes and how it is read, then Spark's own plan."""
    explained_query = explained(context, statement.query)
    prepared = prepare(context, explained_query.query)
    parts, scans = [], prepared.scans
    aggregates = _aggregates(context, prepared)
    if aggregates is not None:
        parts, scans = [explain_answer(aggregates[0])], ()
    query_or_reason = None if aggregates is not None else _driver_query(context, prepared)
    in_driver = isinstance(query_or_reason, DriverQuery)
    for place, scan in enumerate(scans):
        plan = f"{explain_text(scan.plan())}{join_filter_line(prepared, place)}"
        read = binding(scan) if in_driver else _read_by_spark(context, prepared, scan)
        parts.append(f"{plan}\n{read}{details(scan)}")
    if in_driver:
        parts.append(_BY_DUCKDB)
    elif query_or_reason and not prepared.analysis.only_scans and not isinstance(prepared.shape, TopRows):
        parts.append(f"Spark computes the query: {query_or_reason}.")
    if not in_driver or statement.mode != "simple":
        frame = _rows_of(context, prepared) if aggregates is None else aggregates[1]
        parts.append(spark_plan(frame, statement.mode))
    return result({"plan": str}, [(explained_query.text("\n\n".join(parts)),)])


_BY_DUCKDB = (
    "DuckDB computes this query in the driver (no Spark job). Spark computes it if DuckDB fails, takes more than "
    f"{QUERY_SECONDS:.0f} s, or returns more than {LOCAL_ROWS:,} rows."
)


def _read_by_spark(context: EngineContext, prepared: PreparedQuery, scan: TableScan) -> str:
    """Describe how a scan's rows come to Spark."""
    if isinstance(prepared.shape, TopRows):
        run = functools.partial(_run, context, prepared)
        if sorted_rows(context, prepared.shape, scan, run) is not None:
            return "  read       the first rows are read here, in order (no Spark job)"
    seen = looked_at(scan) if type(scan) is TableScan else scan
    choice = SparkReader(context.spark, context.catalog.store).choose(seen)
    how = [
        f"{len(files)} {text}"
        for files, text in (
            (choice.driver, "read here, page by page, into a local relation (no Spark job)"),
            (choice.native, "by Spark's own Parquet reader"),
            (choice.masked, "by Spark's own Parquet reader, with a filter that leaves out deleted rows"),
            (choice.selective, "page by page in Python workers"),
        )
        if files
    ]
    return f"  read       {'; '.join(how) or 'nothing'}"


def spark_plan(frame: DataFrame, mode: str = "simple") -> str:
    """Spark's plan of a DataFrame as text; ``mode`` as EXPLAIN's."""
    java = getattr(frame, "_jdf", None)
    if java is None:
        connected: Any = frame
        return str(connected._explain_string(mode=mode))
    jvm: Any = frame.sparkSession._jvm
    kind = jvm.org.apache.spark.sql.execution.ExplainMode.fromString(mode)
    return str(java.queryExecution().explainString(kind))


def explain_query(context: EngineContext, text: str, analyze: bool) -> QueryExplanation:
    """Explain what finds a statement's rows; with ``analyze`` that is read (here, not by Spark), and let go.

    Raises :class:`UnsupportedFeature` for a statement without one.
    """
    written = context.begin(text)
    statement = parse_statement(written)
    if isinstance(statement, st.Explain):
        written = statement.query
    explained_query = explained(context, written)
    prepared = prepare(context, explained_query.query)
    scans = prepared.scans
    plain = tuple(explain_scan(s, analyze) for s in scans if type(s) is TableScan)
    # Changes between snapshots and system tables have no plan by file and page.
    others = [explain_text(s.plan()) for s in scans if type(s) is not TableScan]
    others += [f"Join filter: {join_filter}" for join_filter in prepared.join_filters if join_filter is not None]
    plan = "\n\n".join([*others, _plan_text(context, prepared)])
    return QueryExplanation(explained_query.query, plain, plan)


def _plan_text(context: EngineContext, prepared: PreparedQuery) -> str:
    """Spark's plan of a query, or that it has none, since the driver adds rows up or DuckDB computes it there."""
    aggregates = _aggregates(context, prepared, computes=False)
    if aggregates is not None:
        return spark_plan(aggregates[1])
    if isinstance(prepared.shape, Aggregates) and _few_rows(context, prepared.shape, prepared.scans[0]) is not None:
        return "No Spark job: the driver reads these rows and adds them up."
    if isinstance(_driver_query(context, prepared), DriverQuery):
        return _BY_DUCKDB
    return spark_plan(_rows_of(context, prepared))


JUDGED_ROWS = 10_000
"""The most rows judged here to find the first n of an order that survive a filter; beyond it Spark sorts all."""
Rewritten = Callable[[Sequence[DataFrame], Sequence[Edit]], DataFrame]
"""Runs the query with a DataFrame in its one table's place, and with edits of its text."""


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


def _result_types(context: EngineContext, shape: sh.Aggregates, prepared: PreparedQuery) -> T.StructType | None:
    """The names and types that Spark gives a query's result; None if its aggregates would have others."""
    types = _analysed(context, prepared).schema
    if shape.edits is None:
        kinds = [spark_type(f.type) for f in result_fields(shape, prepared.scans[0])]
        if len(set(types.names)) != len(types.names) or [f.dataType for f in types.fields] != kinds:
            return None
    return types


def _answered(
    context: EngineContext, shape: sh.Aggregates, answer: Answer, types: T.StructType, run: Rewritten
) -> DataFrame | None:
    """A local relation of the aggregates, or Spark's result of the rest of the query over them.

    None if that has other types than the query.
    """
    if shape.edits is None:
        rows = answer.rows.rename_columns(types.names)
        return held_frame(context.spark, rows, types) if is_simple(types) else local_frame(context.spark, rows, types)
    stored = {f.name: f for f in frame_schema(answer.scan).fields}
    fields = [T.StructField(f.name, spark_type(f.type), True) for f in answer.fields]
    # A key is NOT NULL and has a comment if its column does.
    keys = [stored.get(f.name) if item.kind == sh.KEY else None for f, item in zip(fields, shape.items, strict=True)]
    types_of_answer = T.StructType([key or f for key, f in zip(keys, fields, strict=True)])
    frame = run([local_frame(context.spark, answer.rows, types_of_answer)], shape.edits)
    if [f.dataType for f in frame.schema.fields] != [f.dataType for f in types.fields]:
        return None
    return frame if frame.columns == types.names else frame.toDF(*types.names)
