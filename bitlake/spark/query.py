"""Any Spark query over lake tables: each lake table in it becomes a view of just the rows and columns it needs.

The text itself stays as it was written, but for the tables' names; Spark parses, optimises and runs it, filters and
all.  sqlglot only tells where the tables are, which columns they need and which conditions may prune them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from bitlake.errors import InvalidRequest, NotFound, UnsupportedFeature
from bitlake.metadata.schema import near
from bitlake.predicate.bind import bind
from bitlake.spark.context import EngineContext
from bitlake.spark.errors import MissingTable, spark_errors
from bitlake.spark.scan import SparkReader, choose, looked_at
from bitlake.spark.shortcut import answer, first_rows, shape_of, sorted_rows
from bitlake.sql import statements as st
from bitlake.sql.analyse import QueryAnalysis, TableUse, analyse_query, replace_tables
from bitlake.sql.edits import Edit
from bitlake.sql.parse import parse_statement
from bitlake.sql.rest import edited
from bitlake.sql.shape import Aggregates, TopRows
from bitlake.sql.statements import TableName
from bitlake.table.scan import Scan
from bitlake.types import DataField

_PAIMON_SETTING = re.compile(r"^(\s*(?:SET|RESET)\s+)(spark\.paimon\.[^=\s`]+)", re.I)
"""Spark takes keys with dashes and stars in backquotes only; Paimon's are written without."""


@dataclass(frozen=True, slots=True)
class PreparedQuery:
    """A query taken apart: its tables' scans, in the order they stand in the text."""

    analysis: QueryAnalysis
    scans: tuple[Scan, ...]
    shape: Aggregates | TopRows | None = None


def prepare(context: EngineContext, text: str) -> PreparedQuery:
    """Find the lake tables of a query and describe what each must give; nothing is read."""

    def resolve(name: TableName) -> Sequence[DataField] | None:
        if not context.has(name):
            return None
        found = scans_by_name[name] = context.scan(name)
        return found.state.schema.fields

    scans_by_name: dict[TableName, Scan] = {}
    analysis = analyse_query(text, resolve, context.timezone)
    scans = tuple(_scan(context, use, scans_by_name[use.name]) for use in analysis.tables)
    plain = all(type(scan) is Scan for scan in scans)  # what metadata can answer
    shape = shape_of(context, analysis, scans) if plain else None
    if isinstance(shape, TopRows):
        first = first_rows(context, shape, scans[0])
        scans = scans if first is None else (first,)
    return PreparedQuery(analysis, scans, shape)


def _scan(context: EngineContext, use: TableUse, scan: Scan) -> Scan:
    if use.columns is not None:
        columns = use.columns
        if type(scan) is not Scan:
            # Rows of system tables have no place in files; and without a column, nothing would tell their number.
            known = scan.state.schema.field_names
            columns = tuple(c for c in columns if c in known) or known[:1]
        scan = scan.select(columns)
    if use.predicate is None:
        return scan
    bound = bind(use.predicate, scan.state.schema.fields, context.timezone, on_unsupported="true")
    return scan.where_bound(bound)


def query(context: EngineContext, text: str) -> DataFrame:
    """Run a query; returns Spark's lazy DataFrame."""
    prepared = prepare(context, text)
    if isinstance(prepared.shape, Aggregates):
        run = functools.partial(_edited, context, prepared)
        answered = answer(context, prepared.shape, prepared.scans[0], run)
        if answered is not None:
            return answered
    if isinstance(prepared.shape, TopRows):
        few = sorted_rows(context, prepared.shape, prepared.scans[0], functools.partial(_edited, context, prepared))
        if few is not None:
            return few
    reader = SparkReader(context.spark, context.catalog.store)
    return _run(context, prepared, [reader.frame(scan, exact=False) for scan in prepared.scans])


def _edited(context: EngineContext, prepared: PreparedQuery, frame: DataFrame, edits: Sequence[Edit]) -> DataFrame:
    """The query, edited, over a frame in its one table's place."""
    return _run(context, replace(prepared, analysis=edited(prepared.analysis, edits)), [frame])


def _run(context: EngineContext, prepared: PreparedQuery, frames: Sequence[DataFrame]) -> DataFrame:
    """The query over these frames in the places of its tables."""
    try:
        with spark_errors("running the query"):
            uses = prepared.analysis.tables
            return context.over(frames, lambda names: replace_tables(prepared.analysis.text, uses, names))
    except MissingTable as e:
        raise MissingTable(e.name, _near_table(context, e.name)) from e.__cause__
    except NotFound as e:
        raise NotFound(f"{e}{_columns(prepared)}") from e.__cause__


def _columns(prepared: PreparedQuery) -> str:
    """The columns that a query's lake tables have: Spark only knows those that the text needs."""
    known = {scan.state.name: ", ".join(scan.state.schema.field_names) for scan in prepared.scans}
    return "".join(f"\ntable '{table}' has columns {names}" for table, names in known.items())


def _near_table(context: EngineContext, name: str) -> str:
    database, _, table = name.rpartition(".")
    database = database or context.database
    if not context.catalog.database_exists(database):
        return f": there is no database '{database}'{near(database, context.catalog.databases())}"
    return near(table, context.catalog.tables(database))


def create_view(context: EngineContext, statement: st.CreateView) -> DataFrame:
    """CREATE TEMPORARY VIEW … AS: the view keeps the tables' files as they are now."""
    frame = query(context, statement.query)
    with spark_errors(f"creating view '{statement.name}'"):
        if statement.replace:
            frame.createOrReplaceTempView(statement.name)
        else:
            frame.createTempView(statement.name)
    return context.nothing()


def other(context: EngineContext, text: str) -> DataFrame:
    """A statement that is Spark's own; raises :class:`UnsupportedFeature` if it names a lake table."""
    try:
        uses = prepare(context, text).analysis.tables
    except InvalidRequest:
        uses = ()  # not a query, so Spark has the word
    if uses:
        raise UnsupportedFeature(
            f"this statement cannot be run on lake table '{uses[0].name}'; "
            f"make a view of it first: CREATE TEMPORARY VIEW v AS SELECT * FROM {uses[0].name}"
        )
    context.forget_settings()
    with spark_errors("running the statement"):
        return context.spark.sql(_PAIMON_SETTING.sub(r"\1`\2`", text))


def explain(context: EngineContext, statement: st.Explain) -> DataFrame:
    """EXPLAIN: what each lake table's scan prunes and how it is read, then Spark's own plan."""
    if not isinstance(parse_statement(statement.query), st.Query):
        raise UnsupportedFeature(f"EXPLAIN takes a query, and this is another statement: {statement.query[:60]}")
    prepared = prepare(context, statement.query)
    parts = []
    if isinstance(prepared.shape, Aggregates):
        run = functools.partial(_edited, context, prepared)
        if answer(context, prepared.shape, prepared.scans[0], run) is not None:
            parts.append("  answered   from metadata and indexes; no data file is opened")
    here = False
    if isinstance(prepared.shape, TopRows):
        run = functools.partial(_edited, context, prepared)
        here = sorted_rows(context, prepared.shape, prepared.scans[0], run) is not None
    for scan in prepared.scans:
        seen = looked_at(scan) if type(scan) is Scan else scan
        choice = choose(seen.plan(), seen.row_limit is not None)
        how = [
            f"{len(files)} {text}"
            for files, text in (
                (choice.driver, "read here, page by page, into a local relation (no Spark job)"),
                (choice.native, "by Spark's own Parquet reader"),
                (choice.selective, "page by page in Python workers"),
            )
            if files
        ]
        how = ["the first rows are read here, in order (no Spark job)"] if here else how
        # Changes between snapshots and system tables are not told by steps and pages.
        details = f"\n\n{scan.explanation().details()}" if type(scan) is Scan else ""
        parts.append(f"{scan.explain()}\n  read       {'; '.join(how) or 'nothing'}{details}")
    frame = query(context, statement.query)
    mode = {"": "simple"}.get(statement.mode, statement.mode)
    parts.append(spark_plan(frame, mode))
    return context.rows([("plan", T.StringType())], [("\n\n".join(parts),)])


def spark_plan(frame: DataFrame, mode: str = "simple") -> str:
    """Spark's plan of a DataFrame as text; ``mode`` as EXPLAIN's."""
    java = getattr(frame, "_jdf", None)
    if java is None:
        connected: Any = frame
        return str(connected._explain_string(mode=mode))
    jvm: Any = frame.sparkSession._jvm
    kind = jvm.org.apache.spark.sql.execution.ExplainMode.fromString(mode)
    return str(java.queryExecution().explainString(kind))
