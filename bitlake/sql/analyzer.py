"""Analyse a query: its lake tables, the columns that it needs of each, and the conditions on their rows.

The text is Spark's to run; sqlglot's reading of it only helps to read less.  Where sqlglot cannot parse it, or the
tree lacks a table that the tokens name, every table gives all columns and rows.

The rows of a table that a query can do without follow from conjuncts of WHERE and ON that name columns of this table
alone.  Why a filter may move down to source *s* (left-deep joins, as Spark builds them):

* a WHERE term, if *s* is never padded with NULLs by an outer join; else only if the term is not TRUE for the padded
  row, for removing rows of *s* can create padded ones;
* an ON term of join *j*, if *j* drops rows that fail it: on the right side for INNER, LEFT, SEMI and ANTI, on the left
  for INNER, RIGHT and SEMI (padding by joins before *j* counts as above).  ON never filters a preserved side, nor
  the left of ANTI;
* into a derived table or a common table expression used once, if that is a plain SELECT and the column a plain one.

A column without qualifier belongs to *s* if *s* has it: were there another, Spark would refuse the query as ambiguous.
Columns of USING are merged from both sides and are left alone, as is everything beside a NATURAL join.

Equalities of columns of two tables are links (:class:`KeyLink`): a term ``f.a = d.b`` filters *f* where a term of *f*
alone would, by the values that ``b`` has in *d*.  The table below *d* stores all of these, whatever lies between: a
derived table may group, sort or limit.  ``f.a IN (SELECT b …)`` in WHERE is such a term.  NULL never matches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from sqlglot import exp

from bitlake.errors import InvalidRequest
from bitlake.expressions.binder import bind
from bitlake.expressions.literal_lists import with_lists
from bitlake.expressions.parser import from_sqlglot
from bitlake.expressions.tree import (
    TRUE,
    And,
    Between,
    Comparison,
    Computed,
    Constant,
    In,
    IsNull,
    Like,
    MapKey,
    Not,
    Or,
    Predicate,
    TupleIn,
    all_of,
    conjuncts,
    has_computed,
    sources_of,
)
from bitlake.fileindex.registry import indexed_expressions
from bitlake.metadata.schema import Names
from bitlake.runtime import CacheName, Caches
from bitlake.scan.scan import TableScan
from bitlake.sql import scope
from bitlake.sql.aggregate_pushdown import Aggregates, TopRows, shape_of
from bitlake.sql.file_metadata import FUNCTIONS, METADATA, WORDS, FileMetadata, take_file_metadata
from bitlake.sql.scope import Join, Mentions, Source, unnamed_tables, without_metadata
from bitlake.sql.table_references import TableUse, find_names
from bitlake.sql.text import SqlText, TableName
from bitlake.types import DataField


@dataclass(frozen=True, slots=True)
class KeyLink:
    """Rows of one table matter only if a column equals some value of another table's column.

    ``probe`` and ``build`` are places in :attr:`QueryAnalysis.tables`.  The values are those
    of the rows of ``build`` that meet its own predicate.
    """

    probe: int
    probe_column: str
    build: int
    build_column: str


@dataclass(frozen=True, slots=True)
class QueryAnalysis:
    """The lake tables of a query, in the order they stand in the text.

    ``by_spark``: the text has ``input_file_name()`` or the like, which only Spark's own file reader sets.  ``named``
    is a query of the same columns under the names that Spark makes of the text, where an edit changed these.
    ``projects_subqueries``: an expression outside WHERE has a subquery, or may have one.  ``shape`` is that of a whole
    query of one table.  ``links`` are equalities between columns of two tables.
    ``only_scans``: the query does no more than filter and compute the rows of one table, or nothing is known of it.
    ``unreduced``: the places of tables all of whose rows may be in its result.
    """

    tables: tuple[TableUse, ...]
    text: SqlText
    by_spark: bool = False
    named: QueryAnalysis | None = None
    projects_subqueries: bool = False
    shape: Aggregates | TopRows | None = None
    links: tuple[KeyLink, ...] = ()
    only_scans: bool = True
    unreduced: frozenset[int] = frozenset()

    def over(self, text: SqlText) -> QueryAnalysis:
        """The same analysis without what was read of its texts; ``text`` is the one that was analysed."""
        named = None if self.named is None else self.named.over(text)
        return replace(self, text=text if text == self.text else SqlText(str(self.text)), named=named)


_Key: TypeAlias = tuple[str, str, bool, Names]
_Known: TypeAlias = dict[TableName, tuple[DataField, ...] | None]
_ANALYSES: CacheName[_Key, tuple[_Known, QueryAnalysis]] = CacheName("query analyses")
"""To parse a query of TPC-H takes 10 to 30 ms."""
_CHARACTER_BYTES = 40
"""Bytes of an analysis in memory for each character of the query, without the tokens and the tree of its text."""

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
    cached = None if caches is None else caches[_ANALYSES].get(key)
    if cached is not None and all(_columns(resolve, name) == columns for name, columns in cached[0].items()):
        return cached[1].over(text)
    tables = _Tables(resolve, names)
    analysis = _analyse(text, tables, timezone, quoted_patterns)
    if caches is not None:
        unread = analysis.over(SqlText(key[0]))
        caches[_ANALYSES].put(key, (tables.known, unread), 1000 + _CHARACTER_BYTES * len(with_lists(text)))
    return analysis


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
    analysis = _analyse_text(taken.text, mentions, tables, timezone)
    uses = [replace(u, file_metadata=taken.fields.get(u.start, ())) for u in analysis.tables]
    named = None if taken.named is None else _analyse_text(taken.named, mentions, tables, timezone)
    return replace(analysis, tables=tuple(uses), by_spark=taken.by_spark, named=named)


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
    links: tuple[KeyLink, ...] = ()
    if tree is None:
        found = [(u, False) for u in uses if not u.shadowed and tables.fields(u.name) is not None]
    else:
        found, links = _from_tree(tree, uses, tables, timezone)
    alone = len(found) == 1
    made = tuple(_with_columns(use, named, alone, mentions, tables) for use, named in found)
    # Without a tree, any query in brackets may be one.
    subqueries = "(" in text if tree is None else scope.projects_subqueries(tree)
    shape = None
    if alone:
        columns, fields = tables.columns(made[0].name) or (), tables.fields(made[0].name) or {}
        if len(columns) == len(fields):  # else a star stands for columns that no name means
            shape = shape_of(text, made[0], fields, timezone, tables.names)
    return QueryAnalysis(
        made,
        text,
        projects_subqueries=subqueries,
        shape=shape,
        links=links,
        only_scans=tree is None or (alone and scope.only_scans(tree)),
        unreduced=_unreduced(tree, made, tables.names),
    )


def _unreduced(tree: exp.Expr | None, uses: Sequence[TableUse], names: Names) -> frozenset[int]:
    if tree is None:
        return frozenset(range(len(uses)))
    spans = [scope.span_of(table) for table in scope.unreduced_tables(tree, names)]
    starts = {span[0] for span in spans if span is not None}
    return frozenset(place for place, use in enumerate(uses) if use.start in starts)


class _Tables:
    """Looks up each name once."""

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


def _from_tree(
    tree: exp.Expr, uses: Sequence[TableUse], tables: _Tables, timezone: str
) -> tuple[list[tuple[TableUse, bool]], tuple[KeyLink, ...]]:
    """The uses of lake tables, with the rows that matter, and whether the text names all the columns of each; links."""
    pushdown = Pushdown(tree, tables.fields, timezone, tables.names)
    unnamed = unnamed_tables(tree)
    by_start = {u.start: u for u in uses}
    out: dict[int, tuple[TableUse, bool]] = {}
    starts: dict[int, int] = {}
    for node in _table_nodes(tree):
        name, span = scope.name_of(node), scope.span_of(node)
        if name is None or span is None or scope.cte_of(node, tables.names) is not None or tables.fields(name) is None:
            continue
        use = by_start.get(span[0]) or TableUse(name, *span, bool(node.alias), span[1])
        out[use.start] = _with_rows(use, pushdown, node), id(node) not in unnamed
        starts[id(node)] = use.start
    places = {start: place for place, start in enumerate(sorted(out))}
    links = pushdown.links({node: places[start] for node, start in starts.items()}) if len(places) > 1 else ()
    return [out[start] for start in sorted(out)], links


def _with_rows(use: TableUse, pushdown: Pushdown, node: exp.Table) -> TableUse:
    return replace(use, predicate=pushdown.predicate_of(node), computed=pushdown.computed_of(node))


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
    schema = scan.state.schema
    terms = () if use.predicate is None else (use.predicate,)
    indexed = frozenset[str]() if use.computed is None else indexed_expressions(schema.options, schema.fields)
    if use.computed is not None and indexed:
        terms = (*terms, use.computed)
    if not terms:
        return scan
    bound = bind(all_of(terms), schema.fields, timezone, on_unsupported="true", indexed=indexed)
    return scan.where_bound(bound) if use.predicate is not None or bound != TRUE else scan


Fields = Callable[[TableName], Mapping[str, str] | None]


@dataclass(slots=True)
class _Above:
    """A term that a query's consumer filters its output by."""

    predicate: Predicate
    columns: dict[str, exp.Column]


class Pushdown:
    """Collects, for each table node of a tree, the terms that may filter it."""

    def __init__(self, tree: exp.Expr, fields: Fields, timezone: str, names: Names = Names.FOLDED) -> None:
        self.names = names
        self.fields = fields
        self.timezone = timezone
        self.terms: dict[int, list[Predicate]] = {}
        self.computed: dict[int, list[Predicate]] = {}
        self.above: dict[int, list[_Above]] = {}
        self.done: set[int] = set()
        self.uses: dict[int, list[exp.Table]] = {}
        self.scopes: dict[int, _Scope] = {}
        for table in tree.find_all(exp.Table):
            cte = scope.cte_of(table, names)
            if cte is not None:
                self.uses.setdefault(id(cte), []).append(table)
        for select in tree.find_all(exp.Select):
            self._visit(select)

    def predicate_of(self, table: exp.Table) -> Predicate | None:
        """Return the condition that rows of a table must satisfy to matter; None for all."""
        return _joined(self.terms.get(id(table), ()))

    def computed_of(self, table: exp.Table) -> Predicate | None:
        """The computed conditions that rows of a table must also satisfy; None if there are none."""
        return _joined(self.computed.get(id(table), ()))

    def _visit(self, select: exp.Select) -> None:
        """Take a SELECT's terms down; its consumer first, whose terms it takes along."""
        if id(select) in self.done:
            return
        self.done.add(id(select))
        consumer = self._consumer(select)
        if consumer is not None:
            self._visit(consumer)
        found = self._scope(select)
        if found is not None:
            self.scopes[id(select)] = found
            found.push()

    def links(self, places: Mapping[int, int]) -> tuple[KeyLink, ...]:
        """The equalities between columns of two of these tables, which are places by the id of their nodes."""
        links: dict[KeyLink, None] = {}
        for each in self.scopes.values():
            for probe, build in each.equalities():
                if id(probe[0]) in places and id(build[0]) in places and probe[0] is not build[0]:
                    links[KeyLink(places[id(probe[0])], probe[1], places[id(build[0])], build[1])] = None
        return tuple(links)

    def _consumer(self, select: exp.Select) -> exp.Select | None:
        node = select.parent
        while isinstance(node, exp.Subquery) and scope.only(node, {"this"}) and node.parent is not None:
            if isinstance(node.parent, exp.From | exp.Join):
                break
            node = node.parent
        if isinstance(node, exp.CTE):
            uses = self.uses.get(id(node), ())
            return uses[0].find_ancestor(exp.Select) if len(uses) == 1 else None
        return node.find_ancestor(exp.Select) if isinstance(node, exp.Subquery) else None

    def _scope(self, select: exp.Select) -> _Scope | None:
        start = select.args.get("from_")
        if start is None or not scope.understood(select):
            return None
        nodes = [start.this, *(j.this for j in select.args.get("joins") or [])]
        joins = [scope.join_of(j, self.names) for j in select.args.get("joins") or []]
        if any(not j.kind for j in joins) or scope.pivots(select):
            return None
        sources = [self._source(node, position) for position, node in enumerate(nodes)]
        return _Scope(self, select, sources, joins)

    def _source(self, node: exp.Expr, position: int) -> Source:
        key = self.names.key
        source = Source(node, {(key(node.alias_or_name),)}, position)
        if not scope.plain_source(node):
            return source
        if isinstance(node, exp.Subquery):
            source.inner, source.origin = scope.plain_query(node.this), scope.select_of(node.this)
        elif isinstance(node, exp.Table):
            cte = scope.cte_of(node, self.names)
            if cte is None:
                name = scope.name_of(node)
                source.fields = None if name is None else self.fields(name)
                if name is not None and name.database is not None and not node.alias:
                    source.qualifiers.add((key(name.database), key(name.table)))
            elif _unnamed(cte):
                source.inner = scope.plain_query(cte.this) if len(self.uses[id(cte)]) == 1 else None
                source.origin = scope.select_of(cte.this)
        if source.inner is not None:
            source.lookup = scope.outputs(source.inner, self.names)
        return source


def _joined(terms: Iterable[Predicate]) -> Predicate | None:
    distinct = list(dict.fromkeys(terms))
    return all_of(distinct) if distinct else None


def _unnamed(cte: exp.CTE) -> bool:
    """Whether a common table expression is not recursive and keeps its query's column names."""
    alias = cte.args.get("alias")
    if cte.parent is None or cte.parent.args.get("recursive"):
        return False
    return alias is not None and scope.only(alias, {"this"}) and scope.only(cte, {"this", "alias"})


_Place: TypeAlias = tuple[exp.Expr, str]
"""A table's node, and the name of one of its columns."""


def _terms(node: exp.Expr) -> list[exp.Expr]:
    """The terms that AND joins."""
    while isinstance(node, exp.Paren):
        node = node.this
    return [t for side in (node.this, node.expression) for t in _terms(side)] if isinstance(node, exp.And) else [node]


class _Scope:
    """One SELECT's sources and joins."""

    def __init__(self, owner: Pushdown, select: exp.Select, sources: list[Source], joins: list[Join]) -> None:
        self.owner = owner
        self.select = select
        self.sources = sources
        self.joins = joins
        self.merged = frozenset().union(*(j.using for j in joins))

    def push(self) -> None:
        """Give every source the terms that may filter it."""
        where = self.select.args.get("where")
        every = len(self.joins) + 1
        for source in self.sources:
            if source.fields is None and source.lookup is None:
                continue
            if where is not None and self._outlives(source, every):
                self._take(source, where.this, every)
            for number, join in enumerate(self.joins, 1):
                if join.on is not None and self._dropped(source, number, join):
                    self._take(source, join.on, number)
            if self._outlives(source, every):
                for term in self.owner.above.get(id(self.select), ()):
                    self._pass_down(source, term)

    def equalities(self) -> Iterator[tuple[_Place, _Place]]:
        """Pairs of table columns of which the first is filtered by the values of the second."""
        every = len(self.joins) + 1
        for number, join in enumerate(self.joins, 1):
            terms = (
                [] if join.on is None else [(t.this, t.expression) for t in _terms(join.on) if isinstance(t, exp.EQ)]
            )
            probes = [s for s in self.sources if self._dropped(s, number, join)]
            yield from self._linked([*terms, *self._merged(number, join)], number, probes)
        where = self.select.args.get("where")
        if where is None:
            return
        probes, terms = [s for s in self.sources if self._outlives(s, every)], []
        for term in _terms(where.this):
            if isinstance(term, exp.EQ):
                terms.append((term.this, term.expression))
            elif isinstance(term, exp.In) and term.args.get("query") is not None:
                origin = self._selected(term.args["query"])
                found = [p for s in probes if origin is not None and (p := self._filtered(s, term.this, every))]
                yield from ((p, origin) for p in found if origin is not None)
        yield from self._linked(terms, every, probes)

    def _linked(
        self, terms: Iterable[tuple[exp.Expr, exp.Expr]], number: int, probes: Sequence[Source]
    ) -> Iterator[tuple[_Place, _Place]]:
        seen = [s for s in self.sources if s.position == number or (s.position < number and self._outlives(s, number))]
        for one, other in (pair for a, b in terms for pair in ((a, b), (b, a))):
            for source in probes:
                probe = self._filtered(source, one, number)
                build = None if probe is None else self._origin([s for s in seen if s is not source], other, number)
                if probe is not None and build is not None:
                    yield probe, build

    def _merged(self, number: int, join: Join) -> Iterator[tuple[exp.Expr, exp.Expr]]:
        """The columns that USING compares, where it is clear which table on the left has them."""
        left = [s for s in self.sources if s.position < number and self._outlives(s, number)]
        if any(s.fields is None for s in left):
            return
        for key in join.using - frozenset().union(*(j.using for j in self.joins[: number - 1])):
            having = [s for s in left if s.fields is not None and key in s.fields]
            if len(having) == 1:
                names = [s.node.alias_or_name for s in (having[0], self.sources[number])]
                mine, theirs = (exp.column(exp.to_identifier(key, quoted=True), table=name) for name in names)
                yield mine, theirs

    def _selected(self, query: exp.Expr) -> _Place | None:
        """Where the values of a query's one column are stored."""
        select = scope.select_of(query)
        inner = None if select is None else self.owner.scopes.get(id(select))
        if select is None or inner is None or len(select.expressions) != 1:
            return None
        return inner._origin_here(select.expressions[0].unalias())

    def _filtered(self, source: Source, node: exp.Expr, number: int) -> _Place | None:
        """The table and its column that a filter of a source's column can be moved down to."""
        columns: dict[str, exp.Column] = {}
        name = self._name(source, node, number, columns) if isinstance(node, exp.Column) else None
        if name is None or source.fields is not None:
            return None if name is None else (source.node, name)
        inner = None if source.inner is None else self.owner.scopes.get(id(source.inner))
        if inner is None:
            return None
        every = len(inner.joins) + 1
        found = (inner._filtered(s, columns[name], every) for s in inner.sources if inner._outlives(s, every))
        return next((f for f in found if f is not None), None)

    def _origin(self, sources: Sequence[Source], node: exp.Expr, number: int) -> _Place | None:
        """The table and its column that all values of a column come from, except NULL."""
        for source in sources:
            columns: dict[str, exp.Column] = {}
            if source.fields is None and source.origin is not None:
                source = replace(source, lookup=scope.outputs(source.origin, self.owner.names))
            name = self._name(source, node, number, columns) if isinstance(node, exp.Column) else None
            if name is not None and source.fields is not None:
                return source.node, name
            inner = None if name is None or source.origin is None else self.owner.scopes.get(id(source.origin))
            origin = None if inner is None or name is None else inner._origin_here(columns[name])
            if origin is not None:
                return origin
        return None

    def _origin_here(self, node: exp.Expr) -> _Place | None:
        every = len(self.joins) + 1
        return self._origin([s for s in self.sources if self._outlives(s, every)], node, every)

    def _outlives(self, source: Source, joins: int) -> bool:
        """Whether a source's columns can be seen after some joins; the right of a SEMI or ANTI join cannot."""
        own = source.position
        return own == 0 or own > joins or self.joins[own - 1].kind not in ("SEMI", "ANTI")

    def _dropped(self, source: Source, number: int, join: Join) -> bool:
        """Whether a join drops rows of a source that fail its ON."""
        if number == source.position:
            return join.kind in ("INNER", "LEFT", "SEMI", "ANTI")
        if number < source.position or not self._outlives(source, number):
            return False
        return join.kind in ("INNER", "RIGHT", "SEMI")

    def _padded(self, source: Source, before: int) -> bool:
        """Whether one of the joins up to ``before`` pads a source with NULLs."""
        for number, join in enumerate(self.joins[:before], 1):
            if number == source.position and join.kind in ("LEFT", "FULL"):
                return True
            if number > source.position and join.kind in ("RIGHT", "FULL"):
                return True
        return False

    def _take(self, source: Source, condition: exp.Expr, number: int) -> None:
        """Take a condition's terms that speak of one source; ``number``: its join, or one past all for WHERE."""
        columns: dict[str, exp.Column] = {}

        def column_of(column: exp.Column) -> str | None:
            return self._name(source, column, number, columns)

        predicate = from_sqlglot(condition, self.owner.timezone, column_of, partial=True)
        padded = self._padded(source, number - 1)
        if source.fields is not None and not padded:  # a computed term may be TRUE for the padded row
            self._take_computed(source, condition, number)
        if predicate is None:
            return
        for term in conjuncts(predicate):
            if not (padded and of_nulls(term) is True):
                self._give(source, term, columns)

    def _take_computed(self, source: Source, condition: exp.Expr, number: int) -> None:
        """Collect computed terms and those of fields of structs, which indexes of expressions may evaluate."""

        def column_of(column: exp.Column) -> str | None:
            return self._name(source, column, number, {}) or self._field(source, column, number)

        predicate = from_sqlglot(condition, self.owner.timezone, column_of, partial=True, computes=True)
        if predicate is not None:
            terms = [t for t in conjuncts(predicate) if has_computed(t) or any("." in n for n in sources_of(t))]
            self.owner.computed.setdefault(id(source.node), []).extend(terms)

    def _field(self, source: Source, column: exp.Column, number: int) -> str | None:
        """A field of a struct of a source, which ``column.field`` or ``table.column.field`` names."""
        key = self.owner.names.key
        parts = [p.name for p in column.parts]
        if len(parts) > 2 and (key(parts[0]),) in source.qualifiers:
            del parts[0]
        elif self._another_has(source, key(parts[0]), number) or any(
            (key(parts[0]),) in s.qualifiers for s in self.sources
        ):
            return None
        struct, *fields = parts
        if not fields or source.fields is None or key(struct) in self.merged or key(struct) not in source.fields:
            return None
        return ".".join((source.fields[key(struct)], *fields))

    def _name(self, source: Source, column: exp.Column, number: int, columns: dict[str, exp.Column]) -> str | None:
        name = scope.column_key(column, source.qualifiers, self.owner.names)
        if name is None:
            return None
        if len(column.parts) == 1 and (name in self.merged or self._another_has(source, name, number)):
            return None
        if source.fields is not None:
            return source.fields.get(name)
        inner = source.lookup(name) if source.lookup is not None else None
        if inner is None:
            return None
        columns[name] = inner
        return name

    def _another_has(self, source: Source, name: str, number: int) -> bool:
        return any(
            other is not source
            and other.position <= number
            and other.fields is not None
            and name in other.fields
            and (self._outlives(other, number) or other.position == number)
            for other in self.sources
        )

    def _pass_down(self, source: Source, above: _Above) -> None:
        """Hand a term of the consumer on to the one source all its columns come from."""
        names: dict[str, str] = {}
        columns: dict[str, exp.Column] = {}
        for outer, inner in above.columns.items():
            name = self._name(source, inner, len(self.joins) + 1, columns)
            if name is None:
                return
            names[outer] = name
        term = rename(above.predicate, names)
        if not (self._padded(source, len(self.joins)) and of_nulls(term) is True):
            self._give(source, term, columns)

    def _give(self, source: Source, term: Predicate, columns: Mapping[str, exp.Column]) -> None:
        if source.fields is not None:
            self.owner.terms.setdefault(id(source.node), []).append(term)
        elif source.inner is not None:
            used = {name: column for name, column in columns.items() if name in sources_of(term)}
            self.owner.above.setdefault(id(source.inner), []).append(_Above(term, used))


def rename(predicate: Predicate, names: Mapping[str, str]) -> Predicate:
    """The same predicate over other column names."""
    match predicate:
        case And(children):
            return And(tuple(rename(c, names) for c in children))
        case Or(children):
            return Or(tuple(rename(c, names) for c in children))
        case Not(child):
            return Not(rename(child, names))
        case Constant():
            return predicate
        case Computed():
            raise AssertionError(f"only leaves about columns are passed down: {predicate}")
        case TupleIn(columns):
            return replace(predicate, columns=tuple(names[c] for c in columns))
    column = predicate.column
    named = MapKey(names[column.column], column.key) if isinstance(column, MapKey) else names[column]
    return replace(predicate, column=named)


def of_nulls(predicate: Predicate) -> bool | None:
    """The truth of an unbound predicate for a row of NULLs."""
    match predicate:
        case Constant(value):
            return value
        case IsNull(_, negated):
            return not negated
        case TupleIn(_, values, negated):
            return any(all(v is None for v in row) for row in zip(*values, strict=True)) != negated
        case Not(child):
            inner = of_nulls(child)
            return None if inner is None else not inner
        case And(children) | Or(children):
            parts: Sequence[bool | None] = [of_nulls(c) for c in children]
            decisive = isinstance(predicate, Or)
            if decisive in parts:
                return decisive
            return None if None in parts else not decisive
        case Comparison() | In() | Like() | Between() | Computed():
            return None
