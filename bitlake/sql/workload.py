"""Queries as a workload: what they read of one table, and the advice on its indexes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bitlake import arguments
from bitlake.catalog.catalog import Catalog, Identifier
from bitlake.errors import BitlakeError, InvalidRequest
from bitlake.expressions.binder import bind
from bitlake.expressions.tree import Predicate, all_of, conjuncts
from bitlake.file_store_table import FileStoreTable
from bitlake.formatting import one_line
from bitlake.runtime import Runner
from bitlake.sql import statements as st
from bitlake.sql.analyzer import Resolve, analyse_query
from bitlake.sql.parser import parse_statement, split_statements
from bitlake.sql.table_references import TableUse
from bitlake.sql.text import SqlText, TableName
from bitlake.tools.advise.advice import Advice
from bitlake.tools.advise.advisor import advise
from bitlake.tools.advise.questions import Query, not_understood
from bitlake.tools.scan_log import ScanRecord, scan_log_of
from bitlake.types import DataField

_SHORT = 80


@dataclass(frozen=True, slots=True)
class Workload:
    """The conditions of queries on a table, and the queries that do not read it."""

    queries: tuple[Query, ...]
    elsewhere: int = 0
    """Queries of other tables."""
    no_queries: int = 0
    """Statements that write, or are otherwise not queries."""
    unread: tuple[str, ...] = ()


def read_workload(texts: Sequence[str], table: Sequence[DataField], resolve: Resolve, timezone: str) -> Workload:
    """The conditions of these queries on the table with these ``table`` columns (the object that ``resolve`` returns).

    A text may hold several statements.  One that does not begin as a statement is a condition on the table.
    """
    queries: list[Query] = []
    unread: list[str] = []
    elsewhere = others = 0
    for given in texts:
        arguments.text("a query", given)
        try:
            parts = split_statements(given)
        except InvalidRequest as e:
            unread.append(f"{one_line(given, _SHORT)}: {e}")
            continue
        for text in parts:
            statement = _statement(text)
            if statement is None:
                queries.append(Query(text))
            elif not statement:
                others += 1
            else:
                asked = _uses(text, table, resolve, timezone)
                queries += asked
                elsewhere += not asked
    return Workload(tuple(queries), elsewhere, others, tuple(unread))


def _statement(text: str) -> bool | None:
    """Return whether a text is a query; None if it is not a statement, but a condition, say."""
    try:
        if text.startswith("(") and "select" not in text.lower():
            return None
        return isinstance(parse_statement(text), st.Query)
    except BitlakeError as e:
        # A word that begins no statement is a column's name.
        return None if str(e).startswith("unknown statement") else False


def _uses(text: SqlText, table: Sequence[DataField], resolve: Resolve, timezone: str) -> list[Query]:
    fields: dict[TableName, Sequence[DataField] | None] = {}

    def remembered(name: TableName) -> Sequence[DataField] | None:
        fields[name] = resolve(name)
        return fields[name]

    analysis = analyse_query(text, remembered, timezone)
    return [
        Query(_condition(use, table, timezone), use.columns) for use in analysis.tables if fields.get(use.name) is table
    ]


def _condition(use: TableUse, table: Sequence[DataField], timezone: str) -> Predicate | None:
    """The condition of a query on a table's rows, without terms that only Spark evaluates."""
    terms = [] if use.predicate is None else [use.predicate]
    for term in () if use.computed is None else conjuncts(use.computed):
        try:
            bind(term, table, timezone)
        except BitlakeError:
            continue
        terms.append(term)
    return all_of(terms) if terms else None


def advise_for(
    catalog: Catalog,
    table: FileStoreTable,
    queries: Sequence[str] | None,
    database: str,
    recorded: bool,
    sample: int | None,
    engine: str = "spark",
    runner: Runner | None = None,
) -> Advice:
    """:meth:`bitlake.table.indexes.TableIndexes.advise` for SQL text; names without a database are of ``database``."""
    if queries is None:
        return advise(table, "recorded" if recorded else None, sample, runner or table.runner(), engine)
    queries = arguments.listed(f"table '{table.name}': queries", queries, "texts")
    fields = table.schema.fields

    def resolve(name: TableName) -> Sequence[DataField] | None:
        try:
            schema = catalog.find(Identifier(name.database or database, name.table))
            return fields if str(schema) == table.name else catalog.load_schema(schema).fields
        except BitlakeError:
            return None

    work = read_workload(queries, fields, resolve, table.timezone)
    asked: list[str | Predicate | Query | ScanRecord] = [*work.queries]
    if recorded:
        asked += scan_log_of(table).read(None)
    advice = advise(table, asked, sample, runner or table.runner(), engine)
    notes = [not_understood(text) for text in work.unread[:10]]
    if work.elsewhere:
        notes.append(f"of other tables, and passed over: {work.elsewhere:,} of the queries")
    if work.no_queries:
        notes.append(f"no queries, and passed over: {work.no_queries:,} of the statements")
    return replace(advice, notes=(*advice.notes, *notes))
