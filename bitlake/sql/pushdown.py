"""Which rows of each table a query can do without: conjuncts of WHERE and ON that speak of one table only.

Why a filter may move down to source *s* (left-deep joins, as Spark builds them):

* a WHERE term, if *s* is never padded with NULLs by an outer join; else only if the term is not TRUE for the padded
  row, for removing rows of *s* can create padded ones;
* an ON term of join *j*, if *j* drops rows that fail it: on the right side for INNER, LEFT, SEMI and ANTI, on the left
  for INNER, RIGHT and SEMI (padding by joins before *j* counts as above).  ON never filters a preserved side, nor
  the left of ANTI;
* into a derived table or a common table expression used once, if that is a plain SELECT and the column a plain one.

A column without qualifier belongs to *s* if *s* has it: were there another, Spark would refuse the query as ambiguous.
Columns of USING are merged from both sides and are left alone, as is everything beside a NATURAL join.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from bitlake.expressions.parser import from_sqlglot
from bitlake.expressions.tree import (
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
    all_of,
    conjuncts,
    sources_of,
)
from bitlake.metadata.schema import Names
from bitlake.sql import scope
from bitlake.sql.scope import Join, Source
from bitlake.sql.text import TableName

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
        self.above: dict[int, list[_Above]] = {}
        self.done: set[int] = set()
        self.uses: dict[int, list[exp.Table]] = {}
        for table in tree.find_all(exp.Table):
            cte = scope.cte_of(table, names)
            if cte is not None:
                self.uses.setdefault(id(cte), []).append(table)
        for select in tree.find_all(exp.Select):
            self._visit(select)

    def predicate_of(self, table: exp.Table) -> Predicate | None:
        """What rows of a table must satisfy to matter; None for all."""
        terms = list(dict.fromkeys(self.terms.get(id(table), ())))
        if not terms:
            return None
        return all_of(terms)

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
            found.push()

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
        made = Source(node, {(key(node.alias_or_name),)}, position)
        if not scope.plain_source(node):
            return made
        if isinstance(node, exp.Subquery):
            made.inner = scope.plain_query(node.this)
        elif isinstance(node, exp.Table):
            cte = scope.cte_of(node, self.names)
            if cte is None:
                name = scope.name_of(node)
                made.fields = None if name is None else self.fields(name)
                if name is not None and name.database is not None and not node.alias:
                    made.qualifiers.add((key(name.database), key(name.table)))
            elif len(self.uses[id(cte)]) == 1 and _unnamed(cte):
                made.inner = scope.plain_query(cte.this)
        if made.inner is not None:
            made.lookup = scope.outputs(made.inner, self.names)
        return made


def _unnamed(cte: exp.CTE) -> bool:
    """Whether a common table expression is not recursive and keeps its query's column names."""
    alias = cte.args.get("alias")
    if cte.parent is None or cte.parent.args.get("recursive"):
        return False
    return alias is not None and scope.only(alias, {"this"}) and scope.only(cte, {"this", "alias"})


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

        made = from_sqlglot(condition, self.owner.timezone, column_of, partial=True)
        if made is None:
            return
        padded = self._padded(source, number - 1)
        for term in conjuncts(made):
            if not (padded and of_nulls(term) is True):
                self._give(source, term, columns)

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
            raise AssertionError(f"SQL pushes down only leaves about one column: {predicate}")
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
