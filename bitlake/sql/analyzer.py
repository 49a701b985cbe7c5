"""A query's lake tables: where they are named, which columns they must give, which rows matter.

The text is Spark's to run; sqlglot's reading of it only helps to read less.  Where sqlglot cannot parse it, or the
tree lacks a table that the tokens name, every table gives all columns and rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import sqlglot
from sqlglot import Token, TokenType, exp
from sqlglot.errors import SqlglotError

from bitlake.errors import InvalidRequest
from bitlake.expressions.spark_dialect import SparkSql, tokenize
from bitlake.expressions.tree import Predicate
from bitlake.metadata.schema import Names
from bitlake.runtime import CacheName, Caches
from bitlake.sql import scope
from bitlake.sql.file_metadata import FUNCTIONS, METADATA, WORDS, FileMetadata, take_file_metadata
from bitlake.sql.pushdown import Pushdown
from bitlake.sql.scope import Mentions, unnamed_tables, without_metadata
from bitlake.sql.statements import TableName
from bitlake.sql.table_references import NameUse, QueryAnalysis, TableUse, find_names, replace_tables
from bitlake.types import DataField

__all__ = ["QueryAnalysis", "Resolve", "TableUse", "analyse_query", "replace_tables"]

_Key: TypeAlias = tuple[str, str, bool, Names]
_Known: TypeAlias = dict[TableName, tuple[DataField, ...] | None]
_ANALYSES: CacheName[_Key, tuple[_Known, QueryAnalysis]] = CacheName("query analyses")
"""To parse a query of TPC-H takes 10 to 30 ms."""
_CHARACTER_BYTES = 40
"""What an analysis takes in memory for each character of the query."""

Resolve = Callable[[TableName], Sequence[DataField] | None]
"""The columns of a lake table, or None for a name that is none (a view, a file, another catalog's table)."""


def analyse_query(
    text: str,
    resolve: Resolve,
    timezone: str = "UTC",
    *,
    quoted_patterns: bool = False,
    names: Names = Names.FOLDED,
    caches: Caches | None = None,
) -> QueryAnalysis:
    """The lake tables a query uses, for :func:`replace_tables` to put other names in their places.

    ``timezone`` is the session's, for timestamp literals; with ``quoted_patterns`` quoted columns are patterns,
    and ``names`` says which names are the same.  What
    Spark would not parse is passed as it is: no error is raised here for wrong SQL.  Moments of tables are not names:
    :func:`bitlake.sql.time_travel.take_relations` comes before.

    With ``caches``, the analysis of a text is kept with what ``resolve`` returned, and used while it returns the same.
    """
    key = (text, timezone, quoted_patterns, names)
    found = None if caches is None else caches[_ANALYSES].get(key)
    if found is not None and all(_columns(resolve, name) == columns for name, columns in found[0].items()):
        return found[1]
    tables = _Tables(resolve, names)
    made = _analyse(text, tables, timezone, quoted_patterns)
    if caches is not None:
        caches[_ANALYSES].put(key, (tables.known, made), 1000 + _CHARACTER_BYTES * len(text))
    return made


def _columns(resolve: Resolve, name: TableName) -> tuple[DataField, ...] | None:
    made = resolve(name)
    return None if made is None else tuple(made)


def _analyse(text: str, tables: _Tables, timezone: str, quoted_patterns: bool) -> QueryAnalysis:
    try:
        tokens = tokenize(text)
    except InvalidRequest:
        return QueryAnalysis((), text)
    names = find_names(text, tokens, tables.names)
    mentions = Mentions(text, tokens, quoted_patterns)
    if mentions.metadata and len(names) == 1 and tables.fields(names[0].name) is not None:
        text = without_metadata(text, tokens, names[0].start, mentions.metadata)
        tokens = tokenize(text)
        names = find_names(text, tokens, tables.names)
    tree = _parse(text, tokens, names)
    if not mentions.words.isdisjoint(WORDS):
        taken = _file_metadata(text, tokens, tree, mentions, tables)
        made = _analyse_text(taken.text, mentions, tables, timezone)
        uses = tuple(replace(u, file_metadata=taken.fields.get(u.start, ())) for u in made.tables)
        named = None if taken.named is None else _analyse_text(taken.named, mentions, tables, timezone)
        return QueryAnalysis(uses, taken.text, taken.by_spark, named, made.projects_subqueries)
    return _analyse_tree(text, names, mentions, tree, tables, timezone)


def _analyse_text(text: str, mentions: Mentions, tables: _Tables, timezone: str) -> QueryAnalysis:
    tokens = tokenize(text)
    names = find_names(text, tokens, tables.names)
    return _analyse_tree(text, names, mentions, _parse(text, tokens, names), tables, timezone)


def _file_metadata(
    text: str, tokens: list[Token], tree: exp.Expr | None, mentions: Mentions, tables: _Tables
) -> FileMetadata:
    """The query with the file of each row as a column, where it names it."""
    if tree is None:
        return FileMetadata(text, by_spark=not mentions.words.isdisjoint(FUNCTIONS))

    def is_lake(table: exp.Table) -> bool:
        name = scope.name_of(table)
        if name is None or scope.cte_of(table, tables.names) is not None:
            return False
        known = tables.fields(name)
        return known is not None and METADATA not in known

    return take_file_metadata(text, tokens, tree, is_lake, tables.names)


def _analyse_tree(
    text: str, names: list[NameUse], mentions: Mentions, tree: exp.Expr | None, tables: _Tables, timezone: str
) -> QueryAnalysis:
    if tree is None:
        found = {
            use.start: _Found(use, False, None)
            for use in names
            if not use.shadowed and tables.fields(use.name) is not None
        }
    else:
        found = _from_tree(tree, names, tables, timezone)
    alone = len(found) == 1
    uses = tuple(_use(found[start], mentions, tables, alone) for start in sorted(found))
    # Without a tree, any query in brackets may be one.
    subqueries = text.count("(") > 0 if tree is None else scope.projects_subqueries(tree)
    return QueryAnalysis(uses, text, projects_subqueries=subqueries)


@dataclass(frozen=True, slots=True)
class _Found:
    """A lake table's place, whether its columns are all named in the text, and what may filter it."""

    use: NameUse
    named: bool
    predicate: Predicate | None


class _Tables:
    """Asks for each name once."""

    def __init__(self, resolve: Resolve, names: Names) -> None:
        self.resolve = resolve
        self.names = names
        self.known: dict[TableName, tuple[DataField, ...] | None] = {}

    def columns(self, name: TableName) -> tuple[DataField, ...] | None:
        """The columns of a lake table."""
        if name.catalog is not None or "/" in name.table:
            return None  # another catalog's table, or a file as in parquet.`/path`
        if name not in self.known:
            self.known[name] = _columns(self.resolve, name)
        return self.known[name]

    def fields(self, name: TableName) -> Mapping[str, str] | None:
        """The columns by :meth:`Names.key`, without those that share theirs."""
        columns = self.columns(name)
        if columns is None:
            return None
        return self.names.clear(c.name for c in columns)


def _parse(text: str, tokens: list[Token], names: list[NameUse]) -> exp.Expr | None:
    """The tree, if it is a query and knows every name that the tokens know."""
    if any(t.token_type is TokenType.PIPE_GT for t in tokens) or any(n.bare for n in names):
        return None
    try:
        trees = sqlglot.parse(text, dialect=SparkSql)
    except (SqlglotError, RecursionError):
        return None
    trees = [t for t in trees if t is not None and not isinstance(t, exp.Semicolon)]
    if len(trees) != 1 or not isinstance(trees[0], exp.Query):
        return None
    spans = {scope.span_of(t) for t in _table_nodes(trees[0])}
    if None in spans or any((n.start, n.end) not in spans for n in names):
        return None
    return trees[0]


def _table_nodes(tree: exp.Expr) -> list[exp.Table]:
    return [
        table
        for table in tree.find_all(exp.Table)
        if isinstance(table.this, exp.Identifier) and table.find_ancestor(exp.Hint) is None
    ]


def _from_tree(tree: exp.Expr, names: list[NameUse], tables: _Tables, timezone: str) -> dict[int, _Found]:
    pushdown = Pushdown(tree, tables.fields, timezone, tables.names)
    unnamed = unnamed_tables(tree)
    by_start = {n.start: n for n in names}
    out: dict[int, _Found] = {}
    for node in _table_nodes(tree):
        name, span = scope.name_of(node), scope.span_of(node)
        if name is None or span is None or scope.cte_of(node, tables.names) is not None or tables.fields(name) is None:
            continue
        use = by_start.get(span[0]) or NameUse(name, *span, bool(node.alias), span[1], False, False, False)
        out[use.start] = _Found(use, id(node) not in unnamed, pushdown.predicate_of(node))
    return out


def _use(found: _Found, mentions: Mentions, tables: _Tables, alone: bool) -> TableUse:
    use = found.use
    columns: tuple[str, ...] | None = None
    if not found.named and mentions.metadata and alone:
        columns = (*(c.name for c in tables.columns(use.name) or ()), *mentions.metadata)
    if found.named and not mentions.all:
        known = tables.columns(use.name) or ()
        columns = tuple(c.name for c in known if c.name.lower() in mentions.words) + mentions.metadata
    return TableUse(
        use.name,
        use.start,
        use.end,
        columns,
        found.predicate,
        not use.has_alias,
        use.alias_at,
        mentions.metadata,
        use.table_at,
    )
