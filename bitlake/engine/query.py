"""Queries in this process: answered from metadata and indexes, else run by DuckDB, with Spark's names and types."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlglot import exp

from bitlake.engine.metadata_only import Answer, PreparedQuery, answer, columns_of, prepare
from bitlake.engine.session import NeedsSpark, Session
from bitlake.errors import BitlakeError
from bitlake.metadata.schema import Names
from bitlake.scan.scan import TableScan
from bitlake.sql import spark_types as ty
from bitlake.sql.aggregate_pushdown import Aggregates
from bitlake.sql.duckdb_engine import failed, fetch, import_duckdb, relation_of, run, translate_over, with_arrow_zones
from bitlake.sql.duckdb_translation import Translation
from bitlake.sql.duckdb_values import NotParsed, NotTranslatable, UnknownColumn
from bitlake.sql.scope import cte_of, name_of, named_tables
from bitlake.sql.spark_types import SparkType
from bitlake.sql.text import SqlText
from bitlake.types import DataField


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The rows of a query: an Arrow table, or a DuckDB relation that is evaluated when rows are fetched.

    ``names`` are Spark's, of which several may be the same.
    """

    session: Session
    names: tuple[str, ...]
    rows: Any

    def fetch(self, limit: int = 0) -> pa.Table:
        """The first ``limit`` rows, or all; raises as :func:`bitlake.sql.duckdb_engine.fetch` does."""
        if isinstance(self.rows, pa.Table):
            return self.rows.slice(0, limit) if limit else self.rows
        return fetch(self.rows, limit).rename_columns(self.names)

    @property
    def schema(self) -> pa.Schema:
        """The columns, for which no row is computed."""
        rows = self.rows if isinstance(self.rows, pa.Table) else fetch(self.rows.limit(0)).rename_columns(self.names)
        return rows.schema

    def batches(self, size: int) -> Iterator[pa.Table]:
        """All rows in batches, computed again by each call; raises as :meth:`fetch` does."""
        if isinstance(self.rows, pa.Table):
            yield self.rows
            return
        try:
            for batch in self.rows.to_arrow_reader(size):
                yield with_arrow_zones(pa.Table.from_batches([batch])).rename_columns(self.names)
        except import_duckdb().Error as e:
            raise failed(e) from e

    def relation(self) -> Any:
        """The rows as a DuckDB relation, which gives columns of one name a number."""
        if not isinstance(self.rows, pa.Table):
            return self.rows
        return relation_of(self.rows, self.session.timezone, self.session.catalog.store.caches)


def run_query(session: Session, text: SqlText) -> QueryResult:
    """The rows of a query.

    Raises :class:`NotTranslatable` for a query that DuckDB would answer in another way, and :class:`NeedsSpark`.
    """
    session.check_meaning()
    if session.names is Names.EXACT:
        raise NeedsSpark("a query whose names are case-sensitive")
    prepared = prepare(session, text)
    if prepared.analysis.by_spark or any(use.file_metadata for use in prepared.analysis.tables):
        raise NotTranslatable(text, "only Spark knows the file of a row")
    scans = [s if s.columns else s.select(s.state.schema.field_names[:1]) for s in prepared.scans]  # rows are counted
    try:
        query, names = _translated(session, prepared, [_fields(s) for s in scans])
    except UnknownColumn as e:
        raise _missing_column(session, prepared, e) from e
    except NotTranslatable as e:
        error = unknown_name(session, prepared) or _not_parsed(text)
        if error is None:
            raise
        raise error from e
    if isinstance(prepared.shape, Aggregates):
        answered = answer(session, prepared.shape, prepared.scans[0], "python")
        rows = None if answered is None else _answered(session, prepared, prepared.shape, answered, query)
        if rows is not None:
            return QueryResult(session, query.names, rows)
    tables = dict(zip(names, scans, strict=True))
    return QueryResult(session, query.names, run(query, tables, session.timezone, session.catalog.store.caches))


def _translated(
    session: Session, prepared: PreparedQuery, fields: list[list[DataField]]
) -> tuple[Translation, tuple[str, ...]]:
    return translate_over(prepared.analysis, fields, session.database, session.timezone, session.catalog.store.caches)


def _missing_column(session: Session, prepared: PreparedQuery, error: UnknownColumn) -> BitlakeError:
    """The error of a misspelt column with those like it; ``error`` where Spark may find a column."""
    columns, tree = columns_of(prepared.scans), prepared.analysis.text.tree
    try:  # the error knows the columns that the text needs
        _translated(session, prepared, [list(s.state.schema.fields) for s in prepared.scans])
    except UnknownColumn as e:
        error = e
    missing = None if tree is None else error.missing(tree, [c for names in columns.values() for c in names])
    return error if missing is None else missing.among(columns)


_SPARKS_DATABASES = frozenset(
    ("parquet", "orc", "csv", "json", "xml", "text", "avro", "binaryfile", "libsvm", "delta", "iceberg", "hudi")
    + ("global_temp", "session", "system", "builtin")
)
"""Qualifiers of a table name that have their own meaning in Spark, such as a file format in ``csv.`path```."""


def unknown_name(session: Session, prepared: PreparedQuery) -> BitlakeError | None:
    """The error for a table or column that cannot exist; None if Spark may resolve every name."""
    if session.state.spark is not None:
        return None
    return _missing_table(session, prepared.analysis.text) or _unknown_column(prepared)


def _missing_table(session: Session, text: SqlText) -> BitlakeError | None:
    """The error for a table or view that neither the lake nor the session has; None if all of them may exist."""
    for node in () if text.tree is None else named_tables(text.tree):
        name = name_of(node)
        if name is None or name.catalog is not None or "/" in name.table or cte_of(node) is not None:
            continue
        if name.database is not None and name.database.lower() in _SPARKS_DATABASES:
            continue
        if not session.has(name) and session.view(name) is None:
            written = name.table if name.database is None else f"{name.database}.{name.table}"
            return session.catalog.missing_table(written, session.database)
    return None


_NAMERS = (exp.Values, exp.Lateral, exp.Pivot, exp.Lambda, exp.Kwarg, exp.PropertyEQ, exp.Collate, exp.QueryTransform)
"""Nodes that define names of their own: a name below them need not be a column of a table."""
_DATE_UNITS = frozenset(
    "year years quarter quarters month months week weeks day days dayofyear hour hours minute minutes second seconds "
    "millisecond milliseconds microsecond microseconds nanosecond yyyy yy mm mon dd decade century".split()
)
"""Units that date functions take without quotes; they look like columns."""


def _unknown_column(prepared: PreparedQuery) -> BitlakeError | None:
    """The error for a column that no table has, in a single SELECT that was not translated for another reason."""
    tree, scans = prepared.analysis.text.tree, prepared.scans
    if not isinstance(tree, exp.Select) or tree.find(*_NAMERS):
        return None
    tables, queries = named_tables(tree), list(tree.find_all(exp.Query))
    if len(tables) != len(scans) or None in map(name_of, tables) or len(queries) > 1:
        return None
    columns = columns_of(scans)
    known = [c for names in columns.values() for c in names]
    sources = [(t.alias_or_name, known) for t in tables]
    for node in tree.find_all(exp.Column):
        # ORDER BY may also name a column of a generator, such as explode.
        if node.find_ancestor(exp.Order, exp.Hint) is None and node.name.lower() not in _DATE_UNITS:
            missing = UnknownColumn(node, sources).missing(tree, known)
            if missing is not None:
                return missing.among(columns)
    return None


def _not_parsed(text: SqlText) -> BitlakeError | None:
    """The syntax error of a query, with its line and column; None if it can be parsed."""
    error = text.syntax_error if text.tree is None else None
    return None if error is None else NotParsed(error)


def _fields(scan: TableScan) -> list[DataField]:
    return [f for f in scan.state.schema.fields if f.name in scan.columns]


def _answered(session: Session, prepared: PreparedQuery, shape: Aggregates, found: Answer, query: Translation) -> Any:
    """The rows of a query whose aggregates are known; None where they would have other types."""
    if shape.edits is None:
        kinds = tuple(ty.of_column(f.type) for f in found.fields)
        if kinds != query.types or ty.OPAQUE in kinds:
            return None
        columns = [_typed(c, kind, session.timezone) for c, kind in zip(found.rows.columns, kinds, strict=True)]
        return pa.table(columns, names=query.names)
    try:
        rest, (name,) = translate_over(
            prepared.analysis,
            [found.fields],
            session.database,
            session.timezone,
            session.catalog.store.caches,
            shape.edits,
            query.names,
        )
    except NotTranslatable:
        return None
    if rest.types != query.types:
        return None
    return run(rest, {name: found.rows}, session.timezone, session.catalog.store.caches)


def _typed(values: pa.ChunkedArray, kind: SparkType, timezone: str) -> pa.ChunkedArray:
    """A column of the Arrow type that DuckDB gives it."""
    if kind == ty.TIMESTAMP:
        return values.cast(pa.timestamp("us", timezone))
    return values.cast(pa.timestamp("us")) if kind == ty.TIMESTAMP_NTZ else values
