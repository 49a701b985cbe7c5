"""Spark SQL expressions → unbound predicate trees.

The tree is TRUE, FALSE and NULL exactly where the expression is.  Conditions of a scan may compute: functions,
arithmetic and comparisons of columns become :class:`Computed` leaves, clocks become the time of parsing.  What is not
expressible, such as a subquery, fails in :func:`parse_predicate`.  Conditions of statements are only pruned by
(:func:`from_sqlglot`): computed parts, which Spark evaluates, are not expressible there, unless the caller asks for
them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from bitlake import _clock, arguments
from bitlake.errors import InvalidRequest
from bitlake.expressions.folding import NotConstant, constant
from bitlake.expressions.literal_lists import (
    ListNode,
    LiteralList,
    count_markers,
    has_markers,
    list_of,
    reading,
    take_lists,
    without_lists,
)
from bitlake.expressions.spark_dialect import SparkSql, syntax_error
from bitlake.expressions.sql_text import name as column_sql
from bitlake.expressions.term_binder import VALUE, BooleanTest, TermTest, refusal
from bitlake.expressions.term_parser import (
    Inexpressible,
    asks_the_time,
    nondeterministic_part,
    term_of,
    tuple_columns,
    tuple_fields,
    with_time,
)
from bitlake.expressions.terms import CallTerm, Term
from bitlake.expressions.tree import (
    And,
    Between,
    Comparison,
    Computed,
    Constant,
    In,
    IsNull,
    Leaf,
    Like,
    MapKey,
    Not,
    Op,
    Or,
    Predicate,
    TupleIn,
    all_of,
    like_literal,
)

ColumnOf = Callable[[exp.Column], str | None]

_OPS: dict[type[exp.Expr], Op] = {
    exp.EQ: Op.EQ,
    exp.NEQ: Op.NE,
    exp.LT: Op.LT,
    exp.LTE: Op.LE,
    exp.GT: Op.GT,
    exp.GTE: Op.GE,
}


def parse_predicate(text: str, timezone: str = "UTC", column_of: ColumnOf | None = None) -> Predicate:
    """The predicate of a Spark SQL expression; TIMESTAMP literals without a zone are wall clocks of ``timezone``.

    A dotted column keeps its dots (``t.a``): binding finds whether that is a table's column or a struct's member.
    ``column_of`` names columns in another way; what it gives None for is refused.
    ``current_date()`` and ``current_timestamp()`` are the time of this call, in ``timezone``.
    Raises :class:`InvalidRequest` with line and column for bad syntax, and for expressions a scan cannot evaluate.

    >>> parse_predicate("a > 1 AND b IS NULL")
    And(children=(Comparison(column='a', op=<Op.GT: '>'>, value=1), IsNull(column='b', negated=False)))
    """
    if not arguments.text("a condition", text).strip():
        raise InvalidRequest("the condition is empty; write an SQL expression such as \"status = 'PENDING'\"")
    if len(text) > _KEPT_TEXT or asks_the_time(text) or column_of is not None or has_markers(text):
        return _parse(text, timezone, column_of)
    return _parse_known(text, timezone)


def _parse(text: str, timezone: str, column_of: ColumnOf | None = None) -> Predicate:
    if len(text) > _KEPT_TEXT:
        shorter, lists = without_lists(text)
        if lists:
            try:
                tree = _syntax_tree(shorter, timezone)
                with reading(lists):
                    taken = take_lists(tree)
                if taken == len(lists):
                    return _convert(tree, _Context(timezone, column_of or dotted, computes=True), False)
            except (InvalidRequest, Inexpressible):
                pass  # the error is to show the text as written
    tree, marked = _syntax_tree(text, timezone), count_markers(text)
    if marked and take_lists(tree) != marked:
        # The caller catches it, and reads the text as written.
        raise InvalidRequest(f"a long list stands where its literals are needed: {text}")
    try:
        return _convert(tree, _Context(timezone, column_of or dotted, computes=True), False)
    except Inexpressible as e:
        raise refusal(e.node.sql(dialect=SparkSql), e.why) from e


def parse_term(text: str, timezone: str = "UTC", column_of: ColumnOf | None = None) -> Term:
    """The term of a Spark SQL expression that is a value, as in ``SET amount = amount * 2``.

    ``column_of`` is as in :func:`parse_predicate`.
    """
    if not text.strip():
        raise InvalidRequest('the expression is empty; write SQL such as "amount * 2"')
    tree, marked = _syntax_tree(text, timezone), count_markers(text)
    if marked and take_lists(tree) != marked:
        # The caller catches it, and reads the text as written.
        raise InvalidRequest(f"a long list stands where its literals are needed: {text}")
    try:
        return term_of(tree, timezone, lambda column: _name(column, column_of or dotted))
    except Inexpressible as e:
        raise refusal(e.node.sql(dialect=SparkSql), e.why) from e


def why_nondeterministic(text: str) -> str | None:
    """Return the part of an expression that one row does not determine, and why; None if one row determines all.

    >>> why_nondeterministic("year(current_date()) - year(born)")
    "'CURRENT_DATE' has another value each time it is computed"
    """
    return nondeterministic_part(_parsed(text))


def renamed_columns(text: str, rename: Callable[[str], str | None]) -> str | None:
    """An expression's text with columns under their new names; None if a column that it names has none any more.

    Members of structs keep their names.  Raises :class:`InvalidRequest` for text that is not an expression.
    """
    tree = _syntax_tree(text, "UTC")
    places: list[tuple[int, int, str]] = []
    for column in tree.find_all(exp.Column):
        top = column.parts[0]
        new = rename(top.name)
        if new is None:
            return None
        if new != top.name:
            places.append((top.meta["start"], top.meta["end"] + 1, column_sql(new)))
    for start, end, new in sorted(places, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _syntax_tree(text: str, timezone: str) -> exp.Expr:
    tree = _parsed(text)
    return with_time(tree, _clock.now_ms(), timezone) if asks_the_time(text) else tree


def _parsed(text: str) -> exp.Expr:
    try:
        return sqlglot.parse_one(text, dialect=SparkSql)
    except SqlglotError as e:
        raise syntax_error(e, text) from e
    except RecursionError as e:
        raise InvalidRequest("the condition is nested too deeply; use IN for long lists of values") from e
    except ValueError as e:  # sqlglot's, for a function that lacks its first argument
        raise InvalidRequest(f"cannot read the SQL: a function lacks an argument in {text}") from e


# The same few conditions come again and again, and trees never change.  Those that depend on the time are not kept.
_KEPT_TEXT = 2000
_parse_known = functools.lru_cache(maxsize=256)(_parse)


@dataclass(frozen=True, slots=True)
class _Context:
    timezone: str
    column_of: ColumnOf
    computes: bool
    """Whether computed conditions are taken."""

    def term(self, node: exp.Expr) -> Term:
        if node.find(ListNode) is not None:  # a condition is also shown, and sent to tasks
            raise Inexpressible(node, "a long list stands in it")
        return term_of(node, self.timezone, lambda column: _name(column, self.column_of))

    def boolean(self, node: exp.Expr, why: str) -> Predicate:
        """A condition that is a term."""
        if not self.computes:
            raise Inexpressible(node, why)
        return Computed(BooleanTest(self.term(node)))

    def leaf(self, node: exp.Expr, make: Callable[[str], Leaf]) -> Predicate:
        """A leaf about a column, or about the value of a term."""
        try:
            return make(_name(node, self.column_of))
        except Inexpressible:
            if not self.computes or _is_column(node):
                raise
        return Computed(TermTest(self.term(node), make(VALUE)))


def from_sqlglot(
    expression: exp.Expr, timezone: str, column_of: ColumnOf, *, partial: bool = False, computes: bool = False
) -> Predicate | None:
    """The predicate of a parsed expression, or None where it has none.

    ``column_of`` names a column of the tree, or gives None for one that is not to be used.  With ``partial``, terms
    of an AND that cannot be expressed are left out, also below OR: the answer is TRUE wherever the expression is.
    ``computes``: computed conditions are expressed, too.
    """
    try:
        return _convert(expression, _Context(timezone, column_of, computes), partial)
    except (Inexpressible, InvalidRequest, RecursionError):
        return None  # InvalidRequest: a time zone that only Java knows, or whose rules it knows differently


def dotted(column: exp.Column) -> str:
    """The name of a column as written, parts joined by dots."""
    return ".".join(part.name for part in column.parts)


def _convert(node: exp.Expr, to: _Context, partial: bool) -> Predicate:
    def again(inner: exp.Expr, some: bool = partial) -> Predicate:
        return _convert(inner, to, some)

    match node:
        case exp.Paren():
            return again(node.this)
        case exp.And():
            return _and(list(node.flatten()), again, partial)
        case exp.Or():
            return Or(tuple(again(c) for c in node.flatten()))
        case exp.Not():
            if partial and node.this.find(exp.Not) and node.this.find(exp.NullSafeEQ, exp.NullSafeNEQ, exp.EqualNull):
                raise Inexpressible(node, "a null-safe comparison below two negations")
            return _not(again(node.this, False))
        case exp.Boolean():
            return Constant(bool(node.this))
        case exp.Null():
            return Constant(None)
        case exp.Column():
            return Comparison(_name(node, to.column_of), Op.EQ, True)
        case exp.Is():
            return _is(node, to)
        case exp.EQ() | exp.NEQ() | exp.NullSafeEQ() if isinstance(node.this.unnest(), exp.Tuple):
            equal = _tuple_in(node, [node.expression], to)
            return _not(equal) if isinstance(node, exp.NEQ) else equal
        case exp.NullSafeEQ() | exp.EqualNull():
            return _null_safe(node, to, partial)
        case exp.NullSafeNEQ():
            return _not(_null_safe(node, to, False))
        case exp.In():
            return _in(node, to)
        case exp.Between() if not node.args.get("symmetric"):
            return _between(node, to)
        case exp.Like() | exp.ILike() | exp.Escape():
            return _like(node, to)
        case exp.StartsWith() | exp.EndsWith() | exp.Contains():
            return _affix(node, to)
        case exp.Anonymous() if node.name.lower() in ("isnull", "isnotnull") and len(node.expressions) == 1:
            return to.leaf(node.expressions[0], lambda name: IsNull(name, node.name.lower() == "isnotnull"))
        case _ if type(node) in _OPS:
            return _comparison(node, to)
    return to.boolean(node, "not a comparison of a column with a value")


def _and(terms: list[exp.Expr], again: Callable[[exp.Expr], Predicate], partial: bool) -> Predicate:
    parts: list[Predicate] = []
    missing: Inexpressible | InvalidRequest | None = None
    for term in terms:
        try:
            parts.append(again(term))
        except (Inexpressible, InvalidRequest) as e:
            if not partial:
                raise
            missing = e
    if not parts and missing is not None:
        raise missing
    return all_of(parts)


def _not(inner: Predicate) -> Predicate:
    if isinstance(inner, IsNull):
        return IsNull(inner.column, not inner.negated)
    return Not(inner)


def _is_column(node: exp.Expr) -> bool:
    return isinstance(node.unnest(), exp.Column | exp.Bracket)


def _name(node: exp.Expr, column_of: ColumnOf) -> str:
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.Bracket) and len(node.expressions) == 1:
        key = node.expressions[0]
        # m['a'] and element_at(m, 'a'); binding finds whether m is a map.
        if isinstance(key, exp.Literal) and key.is_string:
            column = _name(node.this, column_of)
            if isinstance(column, MapKey):
                raise Inexpressible(node, "only a map that is a column can be looked up")
            return MapKey(column, key.this)
    if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
        raise Inexpressible(node, "only plain columns can be compared")
    name = column_of(node)
    if name is None:
        raise Inexpressible(node, "not a column of this table")
    return name


def _value(node: exp.Expr, tz: str) -> Any:
    try:
        return constant(node, tz)
    except NotConstant as e:
        raise Inexpressible(node, "not a constant") from e


def _comparison(node: exp.Expr, to: _Context) -> Predicate:
    op, left, right = _OPS[type(node)], node.this, node.expression
    try:
        value = constant(left, to.timezone)
    except NotConstant:
        try:
            value = constant(right, to.timezone)
        except NotConstant:
            return to.boolean(node, "not a constant")
        return to.leaf(left, lambda name: Comparison(name, op, value))
    try:
        other = constant(right, to.timezone)
    except NotConstant:
        return to.leaf(right, lambda name: Comparison(name, op.swapped, value))
    try:
        return _both_constant(node, op, value, other)
    except Inexpressible as e:
        return to.boolean(node, e.why)


def _both_constant(node: exp.Expr, op: Op, a: Any, b: Any) -> Predicate:
    """``1 = 1`` and the like, for kinds whose order is plain."""
    if a is None or b is None:
        return Constant(None)
    if type(a) is not type(b) or not isinstance(a, int | str):
        raise Inexpressible(node, "compares two constants")
    return Constant({Op.EQ: a == b, Op.NE: a != b, Op.LT: a < b, Op.LE: a <= b, Op.GT: a > b, Op.GE: a >= b}[op])


def _is(node: exp.Is, to: _Context) -> Predicate:
    right = node.expression
    if isinstance(right, exp.Null):
        return to.leaf(node.this, IsNull)
    if isinstance(right, exp.Boolean):
        true = bool(right.this)
        equal = to.leaf(node.this, lambda name: Comparison(name, Op.EQ, true))
        return And((to.leaf(node.this, lambda name: IsNull(name, True)), equal))
    raise Inexpressible(node, "IS takes NULL, TRUE or FALSE")


def _null_safe(node: exp.Expr, to: _Context, partial: bool) -> Predicate:
    left, right = node.this, node.expression
    try:
        value = constant(left, to.timezone)
        left = right
    except NotConstant:
        try:
            value = constant(right, to.timezone)
        except NotConstant:
            return to.boolean(exp.NullSafeEQ(this=left, expression=right), "not a constant")
    equal = to.leaf(left, lambda name: Comparison(name, Op.EQ, value))
    if partial and isinstance(value, str):
        # Without ANSI mode a text that is not a value of the column's type is cast to NULL, which equals NULL.
        return Or((equal, to.leaf(left, IsNull)))
    if value is None:
        return to.leaf(left, IsNull)
    return And((to.leaf(left, lambda name: IsNull(name, True)), equal))


def _in(node: exp.In, to: _Context) -> Predicate:
    if any(node.args.get(key) for key in ("query", "unnest", "field")):
        raise Inexpressible(node, "IN of a subquery")
    if not node.expressions:
        raise Inexpressible(node, "IN of nothing")
    cut = list_of(node)
    if isinstance(node.this.unnest(), exp.Tuple):
        return _tuple_in(node, cut or node.expressions, to)
    try:
        values = (
            tuple(constant(e, to.timezone) for e in node.expressions) if cut is None else cut.constants(to.timezone)
        )
    except NotConstant:
        return to.boolean(node, "not a constant")
    return to.leaf(node.this, lambda name: In(name, values, False, {} if cut is None else cut.derived))


def _tuple_in(node: exp.Expr, tuples: list[exp.Expr] | LiteralList, to: _Context) -> Predicate:
    """``(a, b) IN ((1, 2), …)``, and ``(a, b) = (1, 2)``, which is TRUE for NULLs in the same places, too."""
    fields = tuple_fields(node.this)
    names = tuple(_name(field, to.column_of) for field in fields)
    if any(isinstance(name, MapKey) for name in names):
        raise Inexpressible(node, "only columns can be compared in tuples")
    try:
        columns = tuple_columns(tuples, len(fields), to.timezone)
    except NotConstant as e:
        why = f"each tuple must have {len(fields)} constants, of the same types in all tuples; NULL is CAST(NULL AS …)"
        raise Inexpressible(node, why) from e
    values, types = zip(*columns, strict=True)
    return TupleIn(names, tuple(map(tuple, values)), False, types)


def _between(node: exp.Between, to: _Context) -> Predicate:
    try:
        low, high = (constant(node.args[end], to.timezone) for end in ("low", "high"))
    except NotConstant:
        return to.boolean(node, "not a constant")
    if not to.computes or _is_column(node.this):
        return Between(_name(node.this, to.column_of), low, high)
    ends = ((Op.GE, low), (Op.LE, high))
    return And(tuple(Computed(TermTest(to.term(node.this), Comparison(VALUE, op, end))) for op, end in ends))


def _like(node: exp.Like | exp.ILike | exp.Escape, to: _Context) -> Predicate:
    escape = "\\"
    like: exp.Expr = node
    if isinstance(node, exp.Escape):
        like = node.this
        escape = _value(node.expression, to.timezone)
        if not isinstance(escape, str) or len(escape) != 1:
            raise Inexpressible(node, "ESCAPE takes one character")
    if not isinstance(like, exp.Like | exp.ILike) or (isinstance(like, exp.ILike) and not to.computes):
        raise Inexpressible(node, "only LIKE can be evaluated")
    negated = bool(like.args.get("negate"))

    def one(pattern: exp.Expr) -> Predicate:
        text = _value(pattern, to.timezone)
        if text is None:
            return Constant(None)
        if not isinstance(text, str):
            raise Inexpressible(node, "LIKE takes a string")
        if isinstance(like, exp.ILike):  # Spark compares the lower case of both
            lower = CallTerm("lower", (to.term(like.this),))
            return Computed(TermTest(lower, Like(VALUE, text.lower(), negated, escape)))
        return to.leaf(like.this, lambda name: Like(name, text, negated, escape))

    right = like.expression
    if isinstance(right, exp.Any | exp.All):
        inner = right.this.unnest() if isinstance(right.this, exp.Paren) else right.this
        items = inner.expressions if isinstance(inner, exp.Tuple) else [inner]
        each = tuple(map(one, items))
        return Or(each) if isinstance(right, exp.Any) else And(each)
    return one(right)


def _affix(node: exp.StartsWith | exp.EndsWith | exp.Contains, to: _Context) -> Predicate:
    text = _value(node.expression, to.timezone)
    if not isinstance(text, str):
        raise Inexpressible(node, "takes a string")
    before = "" if isinstance(node, exp.StartsWith) else "%"
    after = "" if isinstance(node, exp.EndsWith) else "%"
    return to.leaf(node.this, lambda name: Like(name, before + like_literal(text) + after))
