"""Tests of texts, arrays and maps, and values of maps → DuckDB's.

In tests of texts (RLIKE, ILIKE, functions of tokens), patterns and tokens are written out.  Arrays are columns, what
they hold, and pieces of texts; a test is NULL where Spark's is: where the array is NULL, or does not hold the value but
a NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from sqlglot import exp

from bitlake.expressions.folding import NotConstant, constant
from bitlake.expressions.java_regex import java_regex
from bitlake.expressions.terms import Refused
from bitlake.expressions.text_functions import TOKEN_LISTS, separator_regex, separators, token_regex, tokens_of
from bitlake.sql import spark_types as ty
from bitlake.sql.duckdb_expressions import Expressions, call_name, exists_subquery, named, translates
from bitlake.sql.duckdb_values import (
    NotTranslatable,
    Value,
    stored_value,
    text,
)
from bitlake.types import AtomicType, Root
from bitlake.types.datatypes import MAX_LENGTH, ArrayType, DataType, MapType

T = TypeVar("T")
_SOUGHT = frozenset({"BOOLEAN", "STRING", "DATE", "TIMESTAMP"})
"""Types of elements, beside integers, that both engines compare alike; floating numbers have NaN and -0.0."""
_PIECES = ArrayType(AtomicType(Root.VARCHAR, length=MAX_LENGTH, nullable=False))


TOKEN_TESTS = frozenset({"has_token", *TOKEN_LISTS})


@translates(exp.ArrayContains, args="this expression")
def _array_contains(e: Expressions, node: exp.ArrayContains) -> Value:
    array, sought = e.value(node.this), _constant(e, node, node.expression)
    return _holds(node, array, [sought]).named(named("array_contains({}, {})", array, sought))


@translates(exp.MapContainsKey, args="this key")
def _map_contains_key(e: Expressions, node: exp.MapContainsKey) -> Value:
    value, key = e.value(node.this), _constant(e, node, node.args["key"])
    _check(node, _map(node, value).key, key)
    return Value(f"map_contains({value.sql}, {key.sql})", ty.BOOLEAN, named("map_contains_key({}, {})", value, key))


@translates(exp.Exists, args="this expression")
def _exists(e: Expressions, node: exp.Exists) -> Value:
    match node.expression:
        case None:
            return exists_subquery(e, node)
        case exp.Lambda(expressions=[exp.Identifier() as element], this=test):
            pass
        case _:
            raise NotTranslatable(node, "only tests of an element alone are known to mean the same")

    def is_element(part: exp.Expr) -> bool:
        return isinstance(part, exp.Identifier) and part.name.lower() == element.name.lower()

    match test:
        case exp.EQ(this=one, expression=other) if is_element(one) != is_element(other):
            return _holds(node, e.value(node.this), [_constant(e, node, other if is_element(one) else one)])
        case exp.In(this=one, expressions=[_, *_] as others) if is_element(one) and not test.args.get("query"):
            return _holds(node, e.value(node.this), [_constant(e, node, other) for other in others])
    raise NotTranslatable(node, "only = and IN of an element are known to mean the same")


def arrays_overlap(e: Expressions, node: exp.Anonymous) -> Value:
    """The translation of ``arrays_overlap(column, array(…))``, with an array of constants."""
    match node.expressions:
        case [array, exp.Array(expressions=[_, *_] as others)]:
            return _holds(node, e.value(array), [_constant(e, node, other) for other in others])
    raise NotTranslatable(node, "only an array of constants is known to mean the same")


@translates(exp.ArraySize, args="this")
def _size(e: Expressions, node: exp.ArraySize) -> Value:
    value = e.value(node.this)
    if not isinstance(value.nested, ArrayType | MapType):
        raise NotTranslatable(node, "it is not a column of arrays or maps")
    count = "len" if isinstance(value.nested, ArrayType) else "cardinality"
    return Value(f"CAST({count}({value.sql}) AS INTEGER)", ty.INT, call_name(e, node, value))


@translates(exp.Bracket, args="this expressions offset")
def _map_value(e: Expressions, node: exp.Bracket) -> Value:
    value = e.value(node.this)
    kind = _map(node, value)
    key = _constant(e, node, node.expressions[0])
    _check(node, kind.key, key)
    name = named("{}[{}]", value, key)
    return stored_value(f"map_extract_value({value.sql}, {key.sql})", kind.value, "").named(name)


def _holds(node: exp.Expr, array: Value, sought: Sequence[Value]) -> Value:
    """Whether an array holds one of some constants."""
    if not isinstance(array.nested, ArrayType):
        raise NotTranslatable(node, "it is not a column of arrays")
    for value in sought:
        _check(node, array.nested.element, value)
    holds = f"list_has_any({array.sql}, [{', '.join(v.sql for v in sought)}])"
    unknown = f"len({array.sql}) > list_count({array.sql})"
    return Value(
        f"CASE WHEN {array.sql} IS NULL THEN NULL WHEN {holds} THEN TRUE WHEN {unknown} THEN NULL ELSE FALSE END",
        ty.BOOLEAN,
    )


def _constant(e: Expressions, node: exp.Expr, sought: exp.Expr) -> Value:
    """The value of a constant; raises :class:`NotTranslatable` for others."""
    try:
        known = constant(sought, e.timezone) is not None
    except NotConstant:
        known = False
    if not known:
        raise NotTranslatable(node, "only constants are known to mean the same")
    return e.value(sought)


def _map(node: exp.Expr, value: Value) -> MapType:
    if not isinstance(value.nested, MapType):
        raise NotTranslatable(node, "it is not a column of maps")
    return value.nested


def _check(node: exp.Expr, kind: DataType, sought: Value) -> None:
    """Raise :class:`NotTranslatable` unless a constant compares with stored values of a type as in Spark."""
    stored = stored_value("", kind, "")
    integers = stored.type.is_integer and sought.type.is_integer
    if not integers and (stored.type != sought.type or stored.type.kind not in _SOUGHT or stored.char):
        raise NotTranslatable(node, f"it differs for {sought.type.sql} among values of type {kind}")


def _of_pattern(node: exp.Expr, pattern: Value, translate: Callable[[str], T]) -> T:
    """Translate a pattern; raises :class:`NotTranslatable` for one that is computed or refused."""
    if not isinstance(pattern.literal, str):
        raise NotTranslatable(node, "only a pattern that is written out is known to mean the same")
    try:
        return translate(pattern.literal)
    except Refused as refused:
        raise NotTranslatable(node, str(refused)) from refused


def _splitter(pattern: str) -> tuple[str, str]:
    """The function of DuckDB that splits at a pattern of Java's, and what it splits at."""
    regex = separator_regex(pattern)
    return ("string_split_regex", regex) if regex else ("string_split", separators(pattern))


@translates(exp.RegexpLike, args="this expression")
def _rlike(e: Expressions, node: exp.RegexpLike) -> Value:
    value, pattern = (e.require(node, e.value(o), "STRING") for o in (node.this, node.expression))
    regex = _of_pattern(node, pattern, java_regex)
    name = named("RLIKE({}, {})", value, pattern) if e.word(node) is None else None
    return Value(f"regexp_matches({value.sql}, {text(regex.re2)})", ty.BOOLEAN, name)


@translates(exp.ILike, args="this expression negate")
def _ilike(e: Expressions, node: exp.ILike) -> Value:
    pattern = _of_pattern(node, e.require(node, e.value(node.expression), "STRING"), str.lower)
    like = exp.Like(this=exp.Lower(this=node.this.copy()), expression=exp.Literal.string(pattern))
    like.set("negate", node.args.get("negate"))
    return e.value(like).named(None)


@translates(exp.RegexpSplit, args="this expression")
def _split(e: Expressions, node: exp.RegexpSplit) -> Value:
    value, pattern = (e.require(node, e.value(o), "STRING") for o in (node.this, node.expression))
    function, by = _of_pattern(node, pattern, _splitter)
    name = named("split({}, {}, -1)", value, pattern)
    return Value(f"{function}({value.sql}, {text(by)})", ty.OPAQUE, name, nested=_PIECES)


def token_test(e: Expressions, node: exp.Anonymous) -> Value:
    """The translation of a function of :data:`TOKEN_TESTS`."""
    word = str(node.this).lower()
    operands = list(node.expressions)
    if word in TOKEN_LISTS and len(operands) == 2 and isinstance(operands[1], exp.Array):
        operands[1:] = operands[1].expressions
    elif word in TOKEN_LISTS or len(operands) != 2:
        raise NotTranslatable(node, "it takes a text and a token, or an array of tokens")
    value = e.require(node, e.value(operands[0]), "STRING")
    tests = [f"regexp_matches({value.sql}, {text(token_regex(token))})" for token in _tokens(e, node, operands[1:])]
    return Value(f"({(' OR ' if word == 'has_any_token' else ' AND ').join(tests)})", ty.BOOLEAN)


def _tokens(e: Expressions, node: exp.Expr, operands: Sequence[exp.Expr]) -> list[str]:
    tokens = [e.value(operand).literal for operand in operands]
    if not tokens:
        raise NotTranslatable(node, "it needs at least one token")
    for token in tokens:
        if not isinstance(token, str) or tokens_of(token) != [token]:
            raise NotTranslatable(node, f"{token!r} is not one token that is written out")
    return [str(token) for token in tokens]
