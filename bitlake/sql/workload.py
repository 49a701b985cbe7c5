"""Queries that people run, as what they ask of one table: for advice on its indexes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bitlake.errors import BitlakeError, InvalidRequest
from bitlake.formatting import one_line
from bitlake.sql import statements as st
from bitlake.sql.analyse import Resolve, analyse_query
from bitlake.sql.parse import parse_statement, split_statements
from bitlake.sql.statements import TableName
from bitlake.table.advise.questions import Query
from bitlake.types import DataField

_SHORT = 80


@dataclass(frozen=True, slots=True)
class Workload:
    """What queries ask of a table, and what became of those that ask nothing of it."""

    queries: tuple[Query, ...]
    elsewhere: int = 0
    """Queries of other tables."""
    no_queries: int = 0
    """Statements that write, or are no queries."""
    unread: tuple[str, ...] = ()


def read_workload(texts: Sequence[str], table: Sequence[DataField], resolve: Resolve, timezone: str) -> Workload:
    """What these queries ask of the table with just these ``table`` columns (the same object that ``resolve`` gives).

    A text may hold several statements.  One that does not begin as a statement is a condition on the table.
    """
    queries: list[Query] = []
    unread: list[str] = []
    elsewhere = others = 0
    for given in texts:
        try:
            parts = split_statements(given)
        except InvalidRequest as e:
            unread.append(f"{one_line(given, _SHORT)}: {e}")
            continue
        for text in parts:
            made = _statement(text)
            if made is None:
                queries.append(Query(text))
            elif not made:
                others += 1
            else:
                asked = _uses(text, table, resolve, timezone)
                queries += asked
                elsewhere += not asked
    return Workload(tuple(queries), elsewhere, others, tuple(unread))


def _statement(text: str) -> bool | None:
    """Whether a text is a query; None if it is no statement at all, which conditions are not."""
    try:
        if text.startswith("(") and "select" not in text.lower():
            return None
        return isinstance(parse_statement(text), st.Query)
    except BitlakeError as e:
        # A word that begins no statement is a column's name.
        return None if str(e).startswith("unknown statement") else False


def _uses(text: str, table: Sequence[DataField], resolve: Resolve, timezone: str) -> list[Query]:
    fields: dict[TableName, Sequence[DataField] | None] = {}

    def remembered(name: TableName) -> Sequence[DataField] | None:
        fields[name] = resolve(name)
        return fields[name]

    found = analyse_query(text, remembered, timezone)
    return [Query(use.predicate, use.columns) for use in found.tables if fields.get(use.name) is table]
