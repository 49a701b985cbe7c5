"""Tests of texts → DuckDB's: RLIKE, ILIKE and bitlake's functions of tokens; patterns and tokens are written out."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from bitlake.expressions.java_regex import java_regex
from bitlake.expressions.terms import Refused
from bitlake.expressions.text_functions import TOKEN_LISTS, separator_regex, separators, token_regex, tokens_of
from bitlake.sql import spark_types as ty
from bitlake.sql.duckdb_expressions import Expressions, named, translates
from bitlake.sql.duckdb_values import NotTranslatable, Value, text
from bitlake.types import AtomicType, Root
from bitlake.types.datatypes import MAX_LENGTH, ArrayType

_PIECES = ArrayType(AtomicType(Root.VARCHAR, length=MAX_LENGTH, nullable=False))
TOKEN_TESTS = frozenset({"has_token", *TOKEN_LISTS})


@translates(exp.RegexpLike, args="this expression")
def _rlike(e: Expressions, node: exp.RegexpLike) -> Value:
    value, pattern = (e.require(node, e.value(o), "STRING") for o in (node.this, node.expression))
    if not isinstance(pattern.literal, str):
        raise NotTranslatable(node, "only a pattern that is written out is known to mean the same")
    try:
        regex = java_regex(pattern.literal)
    except Refused as refused:
        raise NotTranslatable(node, str(refused)) from refused
    name = named("RLIKE({}, {})", value, pattern) if e.word(node) is None else None
    return Value(f"regexp_matches({value.sql}, {text(regex.re2)})", ty.BOOLEAN, name)


@translates(exp.ILike, args="this expression negate")
def _ilike(e: Expressions, node: exp.ILike) -> Value:
    pattern = e.require(node, e.value(node.expression), "STRING").literal
    if not isinstance(pattern, str):
        raise NotTranslatable(node, "only a pattern that is written out is known to mean the same")
    like = exp.Like(this=exp.Lower(this=node.this.copy()), expression=exp.Literal.string(pattern.lower()))
    like.set("negate", node.args.get("negate"))
    return e.value(like).named(None)


@translates(exp.RegexpSplit, args="this expression")
def _split(e: Expressions, node: exp.RegexpSplit) -> Value:
    value, pattern = (e.require(node, e.value(o), "STRING") for o in (node.this, node.expression))
    if not isinstance(pattern.literal, str):
        raise NotTranslatable(node, "only a pattern that is written out is known to mean the same")
    try:
        regex = separator_regex(pattern.literal)
    except Refused as refused:
        raise NotTranslatable(node, str(refused)) from refused
    function, by = ("string_split_regex", regex) if regex else ("string_split", separators(pattern.literal))
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
