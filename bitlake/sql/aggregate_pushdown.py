"""Aggregate pushdown: queries of one table that few rows or none can answer, and the residual to evaluate.

* :class:`TopRows`: ``SELECT … FROM t [WHERE …] [ORDER BY columns] LIMIT n [OFFSET m]``, one row out for each row in:
  the table need only give the first n + m rows;
* :class:`Aggregates`: ``SELECT COUNT(*), MIN(c), SUM(d) … FROM t [WHERE …]``, ``SELECT c, COUNT(*), AVG(d) … GROUP BY
  c``, ``SELECT DISTINCT c`` and ``SELECT EXISTS(SELECT … FROM t [WHERE …])``: metadata and indexes may have the answer.
  The keys of GROUP BY are columns, and terms over one column each, such as ``date_trunc('MONTH', day)``.

Both need all of WHERE as a predicate, for rows that Spark would still drop must not be counted.  The WHERE of
Aggregates may compute: indexes of expressions may evaluate it.  A query that has neither shape runs as any other.

The residual is HAVING, ORDER BY, LIMIT, and expressions over the aggregates.  Its text is the query's with three edits,
and runs over a small relation that has a row for each group (or one): the key columns under their own names (with the
value of one row of the group, from which a term has the group's value), and in further columns what the aggregates came
to.

* ``COUNT(…)`` becomes ``coalesce(max(<its column>), 0L)``, ``MIN(…)``, ``MAX(…)``, ``SUM(…)`` and ``AVG(…)`` become
  ``max(<its column>)``: of a group of one row that is the value, with the type (and for COUNT the NOT NULL) it had;
* WHERE goes, for the rows that it leaves are counted;
* GROUP BY stays, and groups rows that are groups.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from sqlglot import TokenType, exp

from bitlake.errors import InvalidRequest
from bitlake.expressions.parser import from_sqlglot
from bitlake.expressions.term_parser import Inexpressible, term_of
from bitlake.expressions.terms import Term, names_in
from bitlake.expressions.tree import Predicate, has_computed
from bitlake.metadata.schema import Names
from bitlake.scan.aggregate_values import AVG, COUNT, COUNT_DISTINCT, COUNT_ROWS, MAX, MIN, SUM
from bitlake.sql import scope
from bitlake.sql.table_references import TableUse
from bitlake.sql.text import Edit, SqlText

AGGREGATES = (exp.Count, exp.Min, exp.Max, exp.Sum, exp.Avg)
_CLAUSES = {
    TokenType.WHERE: "where",
    TokenType.GROUP_BY: "group",
    TokenType.HAVING: "having",
    TokenType.ORDER_BY: "order",
    TokenType.LIMIT: "limit",
    TokenType.OFFSET: "offset",
}
_OVER = (
    exp.Binary,
    exp.Unary,
    exp.Between,
    exp.In,
    exp.Literal,
    exp.Boolean,
    exp.Null,
    exp.Identifier,
    exp.Alias,
    exp.Cast,
    exp.DataType,
    exp.Case,
    exp.If,
    exp.Coalesce,
    exp.Upper,
    exp.Lower,
    exp.Length,
    exp.Abs,
    exp.Round,
    exp.Concat,
    exp.Having,
    exp.Order,
    exp.Ordered,
)
"""Nodes that may stand over aggregates and the key: a row in, a row out."""


class _NoShape(Exception):
    """The query is something else."""


def _need(holds: bool) -> None:
    if not holds:
        raise _NoShape


def plain_over(node: exp.Expr, column: Callable[[exp.Column], bool], terms: Collection[exp.Expr] = ()) -> int:
    """How many aggregates an expression holds, in which there is nothing else than what is known to be row by row.

    ``column``: whether a column outside of them may stand there; ``terms``: what may stand there besides.
    """
    if isinstance(node, AGGREGATES):
        return 1
    if node in terms:
        return 0
    _need(column(node) if isinstance(node, exp.Column) else isinstance(node, _OVER))
    if isinstance(node, exp.Column):
        return 0
    return sum(plain_over(child, column, terms) for child in node.iter_expressions())


def aggregate_spans(text: SqlText, select: exp.Select) -> list[tuple[int, int, exp.Expr]]:
    """Where calls of aggregate functions stand in a text, each with its node."""
    at = {t.start: i for i, t in enumerate(text.tokens)}
    out: list[tuple[int, int, exp.Expr]] = []
    for node in select.find_all(*AGGREGATES):
        call = at.get(node.meta.get("start", -1), -1)
        _need(call >= 0 and call + 1 in text.closing)
        out.append((text.tokens[call].start, text.tokens[text.closing[call + 1]].end + 1, node))
    return sorted(out, key=lambda span: span[0])


def without_where(text: SqlText, clauses: Collection[str]) -> list[Edit]:
    """The edit that takes WHERE out of a plain SELECT with these clauses, if it is clear where it ends."""
    starts: dict[str, list[int]] = {}
    for token in text.tokens:
        if token.token_type in _CLAUSES:
            starts.setdefault(_CLAUSES[token.token_type], []).append(token.start)
    # A column may be called like a clause; then there are more such words than clauses.
    _need(all(len(starts.get(name, ())) == (name in clauses) for name in _CLAUSES.values()))
    if "where" not in clauses:
        return []
    (start,) = starts["where"]
    ends = [t.start for t in text.tokens if t.token_type is TokenType.SEMICOLON] + [len(text)]
    return [(start, min(s for s in [*(s for (s,) in starts.values()), *ends] if s > start), "")]


KEY, EXISTS, NOT_EXISTS = "key", "exists", "not exists"
"""Kinds of an :class:`Item` besides those of aggregates."""
_FUNCTIONS = {exp.Min: MIN, exp.Max: MAX, exp.Sum: SUM, exp.Avg: AVG}
_HINTS = re.compile(r"\b(limit|count|min|max|sum|avg|mean|distinct|group|exists)\b", re.I)
"""No shape without one of these words: most other queries need not be looked at."""
_ROWWISE = (
    exp.Add,
    exp.Sub,
    exp.Mul,
    exp.Neg,
    exp.Paren,
    exp.Literal,
    exp.Null,
    exp.Boolean,
    exp.Upper,
    exp.Lower,
    exp.Identifier,
    exp.TableAlias,
)
"""What a projection may be made of, besides columns, so that every row gives one row."""


@dataclass(frozen=True, slots=True)
class Item:
    """One output column of :class:`Aggregates`: what of which column (None for COUNT(*))."""

    kind: str
    column: str | None


@dataclass(frozen=True, slots=True)
class Key:
    """A grouping key of a query: a column, or unbound terms over it alone."""

    column: str
    terms: tuple[Term, ...] = ()


@dataclass(frozen=True, slots=True)
class Aggregates:
    """One row of aggregates; with ``keys``, one for each combination of their values.

    ``edits``: None if the items are just the query's columns; else what makes of the text a query over them, with
    the keys' columns under their names (as the first items) and item ``i`` as column :func:`item_name` ``(i)``.
    """

    predicate: Predicate | None
    items: tuple[Item, ...]
    keys: tuple[Key, ...] = ()
    edits: tuple[Edit, ...] | None = None


@dataclass(frozen=True, slots=True)
class TopRows:
    """The first ``rows`` rows by ``order``: (column or expression, descending, nulls first); no order: any rows.

    Of these the query leaves out the first ``offset``.  ``outputs``: its columns, each with its name in the result,
    where they are just columns of the table; else None.  ``edits``: what takes ORDER BY, LIMIT and OFFSET out of the
    text, for rows that are sorted; None without ORDER BY.
    """

    predicate: Predicate | None
    order: tuple[tuple[str | Term, bool, bool], ...]
    rows: int
    offset: int = 0
    outputs: tuple[tuple[str, str], ...] | None = None
    edits: tuple[Edit, ...] | None = None


def item_name(number: int) -> str:
    """Return the name of an item's column in the relation that the rest of a query runs over."""
    return f"__bitlake_item_{number}"


def shape_of(
    text: SqlText, use: TableUse, fields: Mapping[str, str], timezone: str, names: Names = Names.FOLDED
) -> Aggregates | TopRows | None:
    """The shape of a query, or None.

    ``use`` is the one lake table in it, and ``fields`` its columns by the key of their names (:meth:`Names.key`).
    Predicates are unbound.
    """
    if not _HINTS.search(text) or not isinstance(text.tree, exp.Select):
        return None
    kind, select = _exists(text.tree) or ("", text.tree)
    try:
        shaper = _Shaper(select, text, use, fields, timezone, names)
        return shaper.exists(kind) if kind else shaper.shape()
    except (RecursionError, _NoShape):
        return None


def _exists(outer: exp.Select) -> tuple[str, exp.Select] | None:
    """The query inside ``SELECT [NOT] EXISTS(…)``."""
    if not scope.only(outer, {"expressions"}) or len(outer.expressions) != 1:
        return None
    node = outer.expressions[0].unalias()
    negated = isinstance(node, exp.Not)
    if negated:
        node = node.this
    if not isinstance(node, exp.Exists) or not isinstance(node.this, exp.Select):
        return None
    return (NOT_EXISTS if negated else EXISTS), node.this


class _Shaper:
    def __init__(
        self,
        select: exp.Select,
        text: SqlText,
        use: TableUse,
        fields: Mapping[str, str],
        timezone: str,
        names: Names,
    ) -> None:
        self.key_of = names.key
        self.select = select
        self.fields = fields
        self.timezone = timezone
        allowed = {"expressions", "from_", "where", "group", "having", "order", "limit", "offset", "distinct"}
        start = select.args.get("from_")
        table = None if start is None else start.this
        if not isinstance(table, exp.Table) or not scope.plain_source(table):
            raise _NoShape
        _need(scope.only(select, allowed) and scope.span_of(table) == (use.start, use.end))
        _need(all(s is select for s in select.find_all(exp.Query, exp.Subquery)))
        own = tuple(self.key_of(p) for p in (use.name.database, use.name.table) if p is not None)
        self.qualifiers = {(self.key_of(table.alias),)} if table.alias else {own, own[-1:]}
        self.names = names
        self.text = text
        self.terms: list[exp.Expr] = []
        """The keys of GROUP BY besides columns, as they are written."""
        self.sorted_by: list[exp.Expr] = []
        """The expressions of ORDER BY."""
        self.metadata = bool(use.metadata)
        where = select.args.get("where")
        self.predicate = None if where is None else from_sqlglot(where.this, timezone, self.column_of, computes=True)
        _need(where is None or self.predicate is not None)

    def shape(self) -> Aggregates | TopRows:
        clauses = ("where", "group", "having", "order", "limit", "offset", "distinct")
        has = {k for k in clauses if self.select.args.get(k)}
        grouped = bool(has & {"group", "having", "distinct"})
        if "limit" in has and not grouped and not list(self.select.find_all(*AGGREGATES)):
            return self.top_rows()
        if "distinct" in has:
            plain, found = has <= {"where", "distinct"}, self.distinct()
        else:
            keys = self.keys()
            plain = has <= {"where", "group"} and all(self.is_item(e.unalias()) for e in self.select.expressions)
            known = tuple(Item(KEY, key.column) for key in keys)
            found = self.aggregates(keys) if plain else Aggregates(self.predicate, known, keys)
        return found if plain else self.rest(found, has)

    def exists(self, kind: str) -> Aggregates:
        _need(scope.only(self.select, {"expressions", "from_", "where", "limit"}))
        _need(not self.select.args.get("limit") or self.number("limit") > 0)
        self.check_rowwise()
        return Aggregates(self.predicate, (Item(kind, None),))

    # --- names ---

    def column_of(self, node: exp.Expr) -> str | None:
        """The schema's name of a column of the table, or None."""
        key = None if node.args.get("join_mark") else scope.column_key(node, self.qualifiers, self.names)
        return None if key is None else self.fields.get(key)

    def column(self, node: exp.Expr) -> str:
        found = self.column_of(node)
        if found is None:
            raise _NoShape
        return found

    # --- aggregates ---

    def keys(self) -> tuple[Key, ...]:
        """The keys of GROUP BY: by name, by their place among the projections, or by their name for them."""
        group = self.select.args.get("group")
        if group is None:
            return ()
        _need(scope.only(group, {"expressions"}) and bool(group.expressions))
        terms: dict[str, list[Term]] = {}
        columns = set()
        for expression in group.expressions:
            node = self.key_node(expression)
            if isinstance(node, exp.Column):
                columns.add(self.column(node))
                terms.setdefault(self.column(node), [])
                continue
            try:
                term = term_of(node, self.timezone, self.column)
            except (Inexpressible, InvalidRequest) as e:
                raise _NoShape from e
            names = names_in(term)
            _need(len(names) == 1)
            terms.setdefault(next(iter(names)), []).append(term)
            self.terms.append(node)
        # The terms of a column that is a key itself follow from it.
        return tuple(Key(c, () if c in columns else tuple(found)) for c, found in terms.items())

    def key_node(self, node: exp.Expr) -> exp.Expr:
        """The expression that an item of GROUP BY stands for."""
        projections = self.select.expressions
        if isinstance(node, exp.Literal) and node.is_int and 0 < int(node.name) <= len(projections):
            projection: exp.Expr = projections[int(node.name) - 1].unalias()
            return projection
        if isinstance(node, exp.Column) and len(node.parts) == 1 and self.key_of(node.name) not in self.fields:
            named = [e.unalias() for e in projections if self.key_of(e.alias) == self.key_of(node.name)]
            return named[0] if len(named) == 1 else node
        return node

    def distinct(self) -> Aggregates:
        _need(not self.select.args.get("group") and not self.select.args.get("having"))
        _need(scope.only(self.select.args["distinct"], set()))
        columns = [self.column(e.unalias()) for e in self.select.expressions]
        keys = tuple(Key(c) for c in dict.fromkeys(columns))
        return Aggregates(self.predicate, tuple(Item(KEY, c) for c in columns), keys)

    def is_item(self, node: exp.Expr) -> bool:
        return isinstance(node, (exp.Column, *AGGREGATES))

    def aggregates(self, keys: tuple[Key, ...]) -> Aggregates:
        items = tuple(self.item(e.unalias(), keys) for e in self.select.expressions)
        _need(bool(items))
        return Aggregates(self.predicate, items, keys)

    def rest(self, found: Aggregates, has: set[str]) -> Aggregates:
        """The aggregates of a query that does more with them, and the edits for that."""
        aliases = {self.key_of(e.alias) for e in self.select.expressions if e.alias}
        plain = {key.column for key in found.keys if not key.terms}

        def own(node: exp.Column) -> bool:
            return self.column_of(node) in plain

        def named(node: exp.Column) -> bool:
            alone = len(node.parts) == 1 and self.key_of(node.name) not in self.fields
            return own(node) or (alone and self.key_of(node.name) in aliases)

        for clause in ("limit", "offset"):
            if clause in has:
                self.number(clause)
        counts = [plain_over(e, own, self.terms) for e in self.select.expressions]
        counts += [plain_over(self.select.args[c], named, self.terms) for c in ("having", "order") if c in has]
        spans, edits = aggregate_spans(self.text, self.select), without_where(self.text, has)
        _need(sum(counts) == len(spans) and (bool(spans) or bool(found.keys)))
        items = list(dict.fromkeys(found.items))
        for start, end, node in spans:
            item = self.item(node, found.keys)
            if item not in items:
                items.append(item)
            value = f"max({item_name(items.index(item))})"
            counted = item.kind in (COUNT_ROWS, COUNT, COUNT_DISTINCT)
            edits.append((start, end, f"coalesce({value}, 0L)" if counted else value))
        return replace(found, items=tuple(items), edits=tuple(edits))

    def item(self, node: exp.Expr, keys: tuple[Key, ...]) -> Item:
        match node:
            case exp.Column() if Key(self.column(node)) in keys:
                return Item(KEY, self.column(node))
            case exp.Count() if node.this is not None and scope.only(node, {"this", "big_int"}):
                return self.count(node.this)
            case exp.Min() | exp.Max() | exp.Sum() | exp.Avg() if scope.only(node, {"this"}):
                return Item(_FUNCTIONS[type(node)], self.column(node.this))
        raise _NoShape

    def count(self, of: exp.Expr) -> Item:
        if (isinstance(of, exp.Star) and scope.only(of, set())) or (isinstance(of, exp.Literal) and not of.is_string):
            return Item(COUNT_ROWS, None)
        if isinstance(of, exp.Distinct):
            _need(scope.only(of, {"expressions"}) and len(of.expressions) == 1)
            return Item(COUNT_DISTINCT, self.column(of.expressions[0]))
        return Item(COUNT, self.column(of))

    # --- top rows ---

    def top_rows(self) -> TopRows:
        _need(self.predicate is None or not has_computed(self.predicate))
        offset = self.number("offset") if self.select.args.get("offset") else 0
        rows = self.number("limit") + offset
        order = self.select.args.get("order")
        if order is None:
            self.check_rowwise()
            return TopRows(self.predicate, (), rows, offset, self.outputs())
        _need(scope.only(order, {"expressions"}))
        by = tuple(self.ordered(o) for o in order.expressions)
        self.check_rowwise()
        starts = [t.start for t in self.text.tokens if t.token_type is TokenType.ORDER_BY]
        edits = ((starts[0], len(self.text), ""),) if len(starts) == 1 else None
        return TopRows(self.predicate, by, rows, offset, self.outputs(), edits)

    def outputs(self) -> tuple[tuple[str, str], ...] | None:
        """The projections as columns with their names in the result, if they are no more than that."""
        out: list[tuple[str, str]] = []
        for projection in self.select.expressions:
            node = projection.unalias()
            column = self.column_of(node)
            if isinstance(projection, exp.Star) and scope.only(projection, set()) and not self.metadata:
                out += [(c, c) for c in self.fields.values()]
            elif column is not None and (projection is not node or node.name == column):
                out.append((column, projection.alias_or_name))
            else:
                return None
        names = [name.lower() for _, name in out]
        return tuple(out) if out and len(set(names)) == len(names) else None

    def number(self, clause: str) -> int:
        node = self.select.args[clause]
        literal = node.expression
        if not scope.only(node, {"expression"}) or not isinstance(literal, exp.Literal) or not literal.is_int:
            raise _NoShape
        return int(literal.name)

    def check_rowwise(self) -> None:
        for projection in self.select.expressions:
            if projection.unalias() in self.sorted_by:
                continue  # indexes have values of rows alone
            for node in projection.unalias().walk():
                star = isinstance(node, exp.Star)
                _need(scope.only(node, set()) if star else isinstance(node, (*_ROWWISE, exp.Column)))

    def ordered(self, node: exp.Expr) -> tuple[str | Term, bool, bool]:
        if not isinstance(node, exp.Ordered) or not scope.only(node, {"this", "desc", "nulls_first"}):
            raise _NoShape
        descending = bool(node.args.get("desc"))
        nulls_first = node.args.get("nulls_first")
        return self.sort_key(node.this), descending, (not descending) if nulls_first is None else bool(nulls_first)

    def sort_key(self, node: exp.Expr) -> str | Term:
        """Resolve an item of ORDER BY: a column of the table, or an expression over output columns or the table's."""
        if not isinstance(node, exp.Column):
            return self.term(node, self.output)
        named = self.named(node)
        return self.column(named) if isinstance(named, exp.Column) else self.term(named, self.column)

    def term(self, node: exp.Expr, name_of: Callable[[exp.Expr], str]) -> Term:
        try:
            term = term_of(node, self.timezone, name_of)
        except (Inexpressible, InvalidRequest):
            raise _NoShape from None
        _need(bool(names_in(term)))  # a number is the place of an output column
        self.sorted_by.append(node)
        return term

    def output(self, node: exp.Expr) -> str:
        """The column of the table that a name in ORDER BY stands for."""
        return self.column(self.named(node))

    def named(self, node: exp.Expr) -> exp.Expr:
        """Resolve a name in ORDER BY: an output column first, then one of the table."""
        if not isinstance(node, exp.Column) or len(node.parts) > 1:
            return node
        _need(node.name.lower() != "all")  # ORDER BY ALL
        outputs = [
            e.unalias() for e in self.select.expressions if self.key_of(e.alias_or_name) == self.key_of(node.name)
        ]
        stars = sum(isinstance(e, exp.Star) or isinstance(e.this, exp.Star) for e in self.select.expressions)
        _need(len(outputs) + stars <= 1)
        return outputs[0] if outputs else node
