"""Queries of Spark SQL on lake tables, run by DuckDB in this process: no JVM is started.

Each table of a query is bound as the rows and columns that the query needs (:mod:`bitlake.sql.duckdb_binding`), planned
with bitlake's indexes from the whole WHERE, as for Spark; DuckDB runs the rest (:mod:`bitlake.sql.duckdb_translation`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from bitlake.errors import EvaluationFailed
from bitlake.metadata.schema import near
from bitlake.runtime import Caches
from bitlake.scan.dataset import import_duckdb
from bitlake.scan.scan import TableScan
from bitlake.sql import statements as st
from bitlake.sql.analyzer import analyse_query, narrowed
from bitlake.sql.duckdb_binding import bind_scan, connect
from bitlake.sql.duckdb_translation import translate
from bitlake.sql.duckdb_values import NotTranslatable, UnknownColumn, identifier
from bitlake.sql.parser import parse_statement
from bitlake.sql.rewrite import normalize
from bitlake.sql.spark_types import OPAQUE
from bitlake.sql.table_references import find_names, replace_tables
from bitlake.sql.text import SqlText, TableName
from bitlake.types import DataField

OpenScan = Callable[[TableName], TableScan | None]
"""Opens a scan of all rows of a table; None for a name that is not one of the lake's tables."""


def run_query(text: str, open_scan: OpenScan, database: str, timezone: str, caches: Caches) -> Any:
    """The rows of a query as a DuckDB relation, which is evaluated when rows are fetched.

    Raises :class:`NotTranslatable` for other statements and for queries that DuckDB would answer in another way.
    """
    duckdb = import_duckdb()
    written = normalize(SqlText(text), database)
    statement = parse_statement(written)
    if not isinstance(statement, st.Query):
        raise NotTranslatable(text, f"{type(statement).__name__} is not a query")
    if any(use.travels for use in find_names(statement.text)):
        raise NotTranslatable(text, "time travel in SQL is read by Spark")
    scans: dict[TableName, TableScan] = {}

    def resolve(name: TableName) -> Sequence[DataField] | None:
        scan = open_scan(name)
        if scan is None:
            return None
        scans[name] = scan
        return scan.state.schema.fields

    analysis = analyse_query(statement.text, resolve, timezone, caches=caches)
    if analysis.by_spark or any(use.file_metadata for use in analysis.tables):
        raise NotTranslatable(text, "only Spark knows the file of a row")
    bound = [_with_a_column(narrowed(use, scans[use.name], timezone)) for use in analysis.tables]
    names = _unused_names(str(analysis.text), len(bound))
    replaced = replace_tables(analysis.text, analysis.tables, names, database)
    fields = {name: _fields(scan) for name, scan in zip(names, bound, strict=True)}
    try:
        query = translate(replaced, fields, timezone)
    except UnknownColumn as e:
        known = {f.name for scan in scans.values() for f in scan.state.schema.fields}
        raise UnknownColumn(e.node, near(e.node.name, sorted(known))) from e
    connection = connect(caches)
    try:
        connection.execute("SET TimeZone = ?", [timezone])
    except duckdb.Error as e:
        raise NotTranslatable(text, f"DuckDB has no time zone '{timezone}'") from e
    for name, scan in zip(names, bound, strict=True):
        bind_scan(connection, name, scan)
    listed = ", ".join(map(identifier, query.names))
    try:
        relation = connection.sql(f"SELECT * FROM ({query.sql}) AS q({listed})")
    except duckdb.Error as e:
        raise NotTranslatable(text, f"DuckDB refuses it ({e})") from e
    for name, ours, sparks in zip(query.names, relation.types, query.types, strict=True):
        if sparks != OPAQUE and str(ours) != sparks.duckdb:
            raise NotTranslatable(text, f"column '{name}' would be {ours}, which is {sparks.sql} in Spark")
    return relation


def fetch(relation: Any, limit: int = 0) -> pa.Table:
    """The first ``limit`` rows of a relation, or all.

    Raises :class:`EvaluationFailed` for an error of DuckDB's, such as an overflow of a type that Spark has wider.
    """
    try:
        return (relation.limit(limit) if limit else relation).to_arrow_table()
    except import_duckdb().IOException as e:
        raise EvaluationFailed(f"DuckDB cannot read the files; if snapshots expired, query again: {e}") from e
    except import_duckdb().Error as e:
        raise EvaluationFailed(f"DuckDB cannot run the query: {e}") from e


def _unused_names(text: str, count: int) -> list[str]:
    """Names of tables that do not occur in a text."""
    prefix = "lake_table"
    while prefix in text.lower():
        prefix += "_"
    return [f"{prefix}_{i}" for i in range(count)]


def _with_a_column(scan: TableScan) -> TableScan:
    """The scan with a column at least, by which rows are counted."""
    return scan if scan.columns else scan.select(scan.state.schema.field_names[:1])


def _fields(scan: TableScan) -> list[DataField]:
    return [f for f in scan.state.schema.fields if f.name in scan.columns]
