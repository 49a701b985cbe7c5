"""A query's lake tables: where they are named, which columns they must give, which rows matter.

The text is Spark's to run; sqlglot's reading of it only helps to read less.  Where sqlglot cannot parse it, or the
tree lacks a table that the tokens name, every table gives all columns and rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from sqlglot import exp

from bitlake.errors import InvalidRequest
from bitlake.expressions.binder import bind
from bitlake.metadata.schema import Names
from bitlake.runtime import CacheName, Caches
from bitlake.scan.scan import TableScan
from bitlake.sql import scope
from bitlake.sql.aggregate_pushdown import Aggregates, TopRows, shape_of
from bitlake.sql.file_metadata import FUNCTIONS, METADATA, WORDS, FileMetadata, take_file_metadata
from bitlake.sql.pushdown import Pushdown
from bitlake.sql.scope import Mentions, unnamed_tables, without_metadata
from bitlake.sql.table_references import TableUse, find_names
from bitlake.sql.text import SqlText, TableName
from bitlake.types import DataField


@dataclass(frozen=True, slots=True)
class QueryAnalysis:
    """The lake tables of a query, in the order they stand in the text.

    ``by_spark``: the text has ``input_file_name()`` or the like, which only Spark's own file reader sets.  ``named``
    is a query of the same columns under the names that Spark makes of the text, where an edit changed these.
    ``projects_subqueries``: an expression outside WHERE has a subquery, or may have one.  ``shape`` is that of a whole
    query of one table.
    """

    tables: tuple[TableUse, ...]
    text: SqlText
    by_spark: bool = False
    named: QueryAnalysis | None = None
    projects_subqueries: bool = False
    shape: Aggregates | TopRows | None = None

    def over(self, text: SqlText) -> QueryAnalysis:
        """The same analysis without what was read of its texts; ``text`` is the one that was analysed."""
        named = None if self.named is None else self.named.over(text)
        return replace(self, text=text if text == self.text else SqlText(str(self.text)), named=named)


_Key: TypeAlias = tuple[str, str, bool, Names]
_Known: TypeAlias = dict[TableName, tuple[DataField, ...] | None]
_ANALYSES: CacheName[_Key, tuple[_Known, QueryAnalysis]] = CacheName("query analyses")
"""To parse a query of TPC-H takes 10 to 30 ms."""
_CHARACTER_BYTES = 40
"""What an analysis takes in memory for each character of the query, without the tokens and the tree of its text."""

Resolve = Callable[[TableName], Sequence[DataField] | None]
"""The columns of a lake table, or None for a name that is none (a view, a file, another catalog's table)."""


def analyse_query(
    text: SqlText,
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
    key = (str(text), timezone, quoted_patterns, names)
    found = None if caches is None else caches[_ANALYSES].get(key)
    if found is not None and all(_columns(resolve, name) == columns for name, columns in found[0].items()):
        return found[1].over(text)
    tables = _Tables(resolve, names)
    made = _analyse(text, tables, timezone, quoted_patterns)
    if caches is not None:
        unread = made.over(SqlText(key[0]))
        caches[_ANALYSES].put(key, (tables.known, unread), 1000 + _CHARACTER_BYTES * len(text))
    return made


def _columns(resolve: Resolve, name: TableName) -> tuple[DataField, ...] | None:
    made = resolve(name)
    return None if made is None else tuple(made)


def _analyse(text: SqlText, tables: _Tables, timezone: str, quoted_patterns: bool) -> QueryAnalysis:
    try:
        mentions = Mentions(text, quoted_patterns)
    except InvalidRequest:
        return QueryAnalysis((), text)
    if mentions.metadata:
        uses = find_names(text, tables.names)
        if len(uses) == 1 and tables.fields(uses[0].name) is not None:
            text = without_metadata(text, uses[0].start, mentions.metadata)
    if mentions.words.isdisjoint(WORDS):
        return _analyse_text(text, mentions, tables, timezone)
    taken = _file_metadata(text, mentions, tables)
    made = _analyse_text(taken.text, mentions, tables, timezone)
    uses = [replace(u, file_metadata=taken.fields.get(u.start, ())) for u in made.tables]
    named = None if taken.named is None else _analyse_text(taken.named, mentions, tables, timezone)
    return replace(made, tables=tuple(uses), by_spark=taken.by_spark, named=named)


def _file_metadata(text: SqlText, mentions: Mentions, tables: _Tables) -> FileMetadata:
    """The query with the file of each row as a column, where it names it."""
    tree = _query_tree(text, find_names(text, tables.names))
    if tree is None:
        return FileMetadata(text, by_spark=not mentions.words.isdisjoint(FUNCTIONS))

    def is_lake(table: exp.Table) -> bool:
        name = scope.name_of(table)
        if name is None or scope.cte_of(table, tables.names) is not None:
            return False
        known = tables.fields(name)
        return known is not None and METADATA not in known

    return take_file_metadata(text, tree, is_lake, tables.names)


def _analyse_text(text: SqlText, mentions: Mentions, tables: _Tables, timezone: str) -> QueryAnalysis:
    uses = find_names(text, tables.names)
    tree = _query_tree(text, uses)
    if tree is None:
        found = [(u, False) for u in uses if not u.shadowed and tables.fields(u.name) is not None]
    else:
        found = _from_tree(tree, uses, tables, timezone)
    alone = len(found) == 1
    made = tuple(_with_columns(use, named, alone, mentions, tables) for use, named in found)
    # Without a tree, any query in brackets may be one.
    subqueries = "(" in text if tree is None else scope.projects_subqueries(tree)
    shape = None
    if alone:
        columns, fields = tables.columns(made[0].name) or (), tables.fields(made[0].name) or {}
        if len(columns) == len(fields):  # else a star stands for columns that no name means
            shape = shape_of(text, made[0], fields, timezone, tables.names)
    return QueryAnalysis(made, text, projects_subqueries=subqueries, shape=shape)


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


def _query_tree(text: SqlText, uses: Sequence[TableUse]) -> exp.Expr | None:
    """The tree, if it is a query and knows every name that the tokens know."""
    if "|>" in text.words or any(u.bare for u in uses) or not isinstance(text.tree, exp.Query):
        return None
    spans = {scope.span_of(t) for t in _table_nodes(text.tree)}
    return None if None in spans or any((u.start, u.end) not in spans for u in uses) else text.tree


def _table_nodes(tree: exp.Expr) -> list[exp.Table]:
    return [t for t in scope.named_tables(tree) if isinstance(t.this, exp.Identifier)]


def _from_tree(tree: exp.Expr, uses: Sequence[TableUse], tables: _Tables, timezone: str) -> list[tuple[TableUse, bool]]:
    """The uses of lake tables, with the rows that matter, and whether the text names all the columns of each."""
    pushdown = Pushdown(tree, tables.fields, timezone, tables.names)
    unnamed = unnamed_tables(tree)
    by_start = {u.start: u for u in uses}
    out: dict[int, tuple[TableUse, bool]] = {}
    for node in _table_nodes(tree):
        name, span = scope.name_of(node), scope.span_of(node)
        if name is None or span is None or scope.cte_of(node, tables.names) is not None or tables.fields(name) is None:
            continue
        use = by_start.get(span[0]) or TableUse(name, *span, bool(node.alias), span[1])
        out[use.start] = replace(use, predicate=pushdown.predicate_of(node)), id(node) not in unnamed
    return [out[start] for start in sorted(out)]


def _with_columns(use: TableUse, named: bool, alone: bool, mentions: Mentions, tables: _Tables) -> TableUse:
    """A use with the columns that it needs; ``named``: the text names them all."""
    columns: tuple[str, ...] | None = None
    known = [c.name for c in tables.columns(use.name) or ()]
    if not named and mentions.metadata and alone:
        columns = (*known, *mentions.metadata)
    if named and not mentions.all:
        columns = (*(name for name in known if name.lower() in mentions.words), *mentions.metadata)
    return replace(use, columns=columns, metadata=mentions.metadata)


def narrowed(use: TableUse, scan: TableScan, timezone: str) -> TableScan:
    """The scan of the rows and columns that a query needs of a table."""
    if use.columns is not None:
        columns = use.columns
        if type(scan) is not TableScan:
            # Rows of system tables have no place in files; and without a column, nothing would tell their number.
            known = scan.state.schema.field_names
            columns = tuple(c for c in columns if c in known) or known[:1]
        scan = scan.select(columns)
    if use.predicate is None:
        return scan
    bound = bind(use.predicate, scan.state.schema.fields, timezone, on_unsupported="true")
    return scan.where_bound(bound)
