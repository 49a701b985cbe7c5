"""Spark SQL expressions → unbound predicate trees.

The tree is TRUE, FALSE and NULL exactly where the expression is.  What it cannot say — two columns, functions of a
column, subqueries, clocks — is not expressible: :func:`parse_predicate` then fails, :func:`from_sqlglot` gives None.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from bitlake.errors import InvalidRequest
from bitlake.expressions.folding import NotConstant, constant
from bitlake.expressions.spark_dialect import SparkSql, syntax_error
from bitlake.expressions.tree import (
    And,
    Between,
    Comparison,
    Constant,
    In,
    IsNull,
    Like,
    MapKey,
    Not,
    Op,
    Or,
    Predicate,
    all_of,
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


class _Inexpressible(Exception):
    """Some part has no form as a predicate tree."""

    def __init__(self, node: exp.Expr, why: str) -> None:
        self.node = node
        self.why = why
        super().__init__(why)


def parse_predicate(text: str, timezone: str = "UTC") -> Predicate:
    """The predicate of a Spark SQL expression; TIMESTAMP literals without a zone are wall clocks of ``timezone``.

    A dotted column keeps its dots (``t.a``): binding finds whether that is a table's column or a struct's member.
    Raises :class:`InvalidRequest` with line and column for bad syntax, and for expressions a scan cannot evaluate.

    >>> parse_predicate("a > 1 AND b IS NULL")
    And(children=(Comparison(column='a', op=<Op.GT: '>'>, value=1), IsNull(column='b', negated=False)))
    """
    if not text.strip():
        raise InvalidRequest("the condition is empty; write an SQL expression such as \"status = 'PENDING'\"")
    return _parse_known(text, timezone) if len(text) <= _KEPT_TEXT else _parse(text, timezone)


def _parse(text: str, timezone: str) -> Predicate:
    try:
        tree = sqlglot.parse_one(text, dialect=SparkSql)
    except SqlglotError as e:
        raise syntax_error(e, text) from e
    except RecursionError as e:
        raise InvalidRequest("the condition is nested too deeply; use IN for long lists of values") from e
    try:
        return _convert(tree, timezone, dotted, False)
    except _Inexpressible as e:
        shown = e.node.sql(dialect=SparkSql)
        raise InvalidRequest(f"a scan cannot evaluate '{shown}' ({e.why}); filter it in SQL or after the scan") from e


# The same few conditions come again and again, trees never change, and no expression taken here depends on the time.
_KEPT_TEXT = 2000
_parse_known = functools.lru_cache(maxsize=256)(_parse)


def from_sqlglot(
    expression: exp.Expr, timezone: str, column_of: ColumnOf, *, partial: bool = False
) -> Predicate | None:
    """The predicate of a parsed expression, or None where it has none.

    ``column_of`` names a column of the tree, or gives None for one that is not to be used.  With ``partial``, terms
    of an AND that cannot be expressed are left out, also below OR: the answer is TRUE wherever the expression is.
    """
    try:
        return _convert(expression, timezone, column_of, partial)
    except (_Inexpressible, InvalidRequest, RecursionError):
        return None  # InvalidRequest: a time zone only Java knows


def dotted(column: exp.Column) -> str:
    """The name of a column as written, parts joined by dots."""
    return ".".join(part.name for part in column.parts)


def _convert(node: exp.Expr, tz: str, column_of: ColumnOf, partial: bool) -> Predicate:
    def again(inner: exp.Expr, some: bool = partial) -> Predicate:
        return _convert(inner, tz, column_of, some)

    match node:
        case exp.Paren():
            return again(node.this)
        case exp.And():
            return _and(list(node.flatten()), again, partial)
        case exp.Or():
            return Or(tuple(again(c) for c in node.flatten()))
        case exp.Not():
            if partial and node.this.find(exp.Not) and node.this.find(exp.NullSafeEQ, exp.NullSafeNEQ, exp.EqualNull):
                raise _Inexpressible(node, "a null-safe comparison below two negations")
            return _not(again(node.this, False))
        case exp.Boolean():
            return Constant(bool(node.this))
        case exp.Null():
            return Constant(None)
        case exp.Column():
            return Comparison(_name(node, column_of), Op.EQ, True)
        case exp.Is():
            return _is(node, column_of)
        case exp.NullSafeEQ() | exp.EqualNull():
            return _null_safe(node, tz, column_of, partial)
        case exp.NullSafeNEQ():
            return _not(_null_safe(node, tz, column_of, False))
        case exp.In():
            return _in(node, tz, column_of)
        case exp.Between() if not node.args.get("symmetric"):
            low, high = _value(node.args["low"], tz), _value(node.args["high"], tz)
            return Between(_name(node.this, column_of), low, high)
        case exp.Like() | exp.Escape():
            return _like(node, tz, column_of)
        case exp.StartsWith() | exp.EndsWith() | exp.Contains():
            return _affix(node, tz, column_of)
        case exp.Anonymous() if node.name.lower() in ("isnull", "isnotnull") and len(node.expressions) == 1:
            return IsNull(_name(node.expressions[0], column_of), node.name.lower() == "isnotnull")
        case _ if type(node) in _OPS:
            return _comparison(node, tz, column_of)
    raise _Inexpressible(node, "not a comparison of a column with a value")


def _and(terms: list[exp.Expr], again: Callable[[exp.Expr], Predicate], partial: bool) -> Predicate:
    made: list[Predicate] = []
    missing: _Inexpressible | None = None
    for term in terms:
        try:
            made.append(again(term))
        except _Inexpressible as e:
            if not partial:
                raise
            missing = e
    if not made and missing is not None:
        raise missing
    return all_of(made)


def _not(inner: Predicate) -> Predicate:
    if isinstance(inner, IsNull):
        return IsNull(inner.column, not inner.negated)
    return Not(inner)


def _name(node: exp.Expr, column_of: ColumnOf) -> str:
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.Bracket) and len(node.expressions) == 1:
        key = node.expressions[0]
        # m['a'] and element_at(m, 'a'); binding finds whether m is a map.
        if isinstance(key, exp.Literal) and key.is_string:
            column = _name(node.this, column_of)
            if isinstance(column, MapKey):
                raise _Inexpressible(node, "only a map that is a column can be looked up")
            return MapKey(column, key.this)
    if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
        raise _Inexpressible(node, "only plain columns can be compared")
    name = column_of(node)
    if name is None:
        raise _Inexpressible(node, "not a column of this table")
    return name


def _value(node: exp.Expr, tz: str) -> Any:
    try:
        return constant(node, tz)
    except NotConstant as e:
        raise _Inexpressible(node, "not a constant") from e


def _comparison(node: exp.Expr, tz: str, column_of: ColumnOf) -> Predicate:
    op, left, right = _OPS[type(node)], node.this, node.expression
    try:
        value = constant(left, tz)
    except NotConstant:
        return Comparison(_name(left, column_of), op, _value(right, tz))
    try:
        other = constant(right, tz)
    except NotConstant:
        return Comparison(_name(right, column_of), op.swapped, value)
    return _both_constant(node, op, value, other)


def _both_constant(node: exp.Expr, op: Op, a: Any, b: Any) -> Predicate:
    """``1 = 1`` and the like, for kinds whose order is plain."""
    if a is None or b is None:
        return Constant(None)
    if type(a) is not type(b) or not isinstance(a, int | str):
        raise _Inexpressible(node, "compares two constants")
    return Constant({Op.EQ: a == b, Op.NE: a != b, Op.LT: a < b, Op.LE: a <= b, Op.GT: a > b, Op.GE: a >= b}[op])


def _is(node: exp.Is, column_of: ColumnOf) -> Predicate:
    name, right = _name(node.this, column_of), node.expression
    if isinstance(right, exp.Null):
        return IsNull(name)
    if isinstance(right, exp.Boolean):
        return And((IsNull(name, True), Comparison(name, Op.EQ, bool(right.this))))
    raise _Inexpressible(node, "IS takes NULL, TRUE or FALSE")


def _null_safe(node: exp.Expr, tz: str, column_of: ColumnOf, partial: bool) -> Predicate:
    left, right = node.this, node.expression
    try:
        value = constant(left, tz)
        left = right
    except NotConstant:
        value = _value(right, tz)
    name = _name(left, column_of)
    equal = Comparison(name, Op.EQ, value)
    if partial and isinstance(value, str):
        # Without ANSI mode a text that is not a value of the column's type is cast to NULL, which equals NULL.
        return Or((equal, IsNull(name)))
    return IsNull(name) if value is None else And((IsNull(name, True), equal))


def _in(node: exp.In, tz: str, column_of: ColumnOf) -> Predicate:
    if any(node.args.get(key) for key in ("query", "unnest", "field")):
        raise _Inexpressible(node, "IN of a subquery")
    if not node.expressions:
        raise _Inexpressible(node, "IN of nothing")
    return In(_name(node.this, column_of), tuple(_value(e, tz) for e in node.expressions))


def _like(node: exp.Like | exp.Escape, tz: str, column_of: ColumnOf) -> Predicate:
    escape = "\\"
    like: exp.Expr = node
    if isinstance(node, exp.Escape):
        like = node.this
        escape = _value(node.expression, tz)
        if not isinstance(escape, str) or len(escape) != 1:
            raise _Inexpressible(node, "ESCAPE takes one character")
    if not isinstance(like, exp.Like):
        raise _Inexpressible(node, "only LIKE can be evaluated")
    name, negated = _name(like.this, column_of), bool(like.args.get("negate"))
    right = like.expression
    if isinstance(right, exp.Any | exp.All):
        inner = right.this.unnest() if isinstance(right.this, exp.Paren) else right.this
        items = inner.expressions if isinstance(inner, exp.Tuple) else [inner]
        each = tuple(_one_like(node, name, _value(i, tz), negated, escape) for i in items)
        return Or(each) if isinstance(right, exp.Any) else And(each)
    return _one_like(node, name, _value(right, tz), negated, escape)


def _one_like(node: exp.Expr, name: str, pattern: Any, negated: bool, escape: str) -> Predicate:
    if pattern is None:
        return Constant(None)
    if not isinstance(pattern, str):
        raise _Inexpressible(node, "LIKE takes a string")
    return Like(name, pattern, negated, escape)


def _affix(node: exp.StartsWith | exp.EndsWith | exp.Contains, tz: str, column_of: ColumnOf) -> Predicate:
    text = _value(node.expression, tz)
    if not isinstance(text, str):
        raise _Inexpressible(node, "takes a string")
    quoted = "".join("\\" + c if c in "%_\\" else c for c in text)
    before = "" if isinstance(node, exp.StartsWith) else "%"
    after = "" if isinstance(node, exp.EndsWith) else "%"
    return Like(_name(node.this, column_of), before + quoted + after)
