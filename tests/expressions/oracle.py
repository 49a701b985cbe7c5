"""Slow, plain Python truth: the oracle that vectorised and statistical answers are held against."""

from __future__ import annotations

import functools
import math
import re
from typing import Any

from bitlake.expressions.tree import (
    And,
    Comparison,
    Constant,
    In,
    IsNull,
    Like,
    Op,
    Or,
    Predicate,
    TupleIn,
    like_pieces,
    like_regex,
)


@functools.total_ordering
class Spark:
    """A value in Spark's order: NaN equals NaN and is above all, -0.0 equals 0.0."""

    def __init__(self, value: Any) -> None:
        nan = isinstance(value, float) and math.isnan(value)
        self.key = (1, 0) if nan else (0, value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spark) and self.key == other.key

    def __lt__(self, other: Spark) -> bool:
        return self.key < other.key

    def __hash__(self) -> int:
        return hash(self.key)


def compare(op: Op, a: Any, b: Any) -> bool:
    x, y = Spark(a), Spark(b)
    return {Op.EQ: x == y, Op.NE: x != y, Op.LT: x < y, Op.LE: x <= y, Op.GT: x > y, Op.GE: x >= y}[op]


def truth(node: Predicate, row: dict[str, Any]) -> bool | None:
    """Three-valued truth of a bound predicate for one row of physical values."""
    match node:
        case Constant(value):
            return value
        case And(children):
            parts = [truth(c, row) for c in children]
            return False if False in parts else None if None in parts else True
        case Or(children):
            parts = [truth(c, row) for c in children]
            return True if True in parts else None if None in parts else False
        case IsNull(column, negated):
            return (row[column] is None) != negated
        case TupleIn(columns, values, negated):
            own = [Spark(row[column]) for column in columns]
            return any([Spark(v) for v in tuple_] == own for tuple_ in zip(*values, strict=True)) != negated
    value = row[node.column]
    if value is None:
        return None
    match node:
        case Comparison(_, op, literal):
            return compare(op, value, literal)
        case In(_, values, negated):
            return any(compare(Op.EQ, value, v) for v in values) != negated
        case Like(_, pattern, negated, escape):
            regex = like_regex(like_pieces(pattern, escape)).replace(r"\z", r"\Z")
            return (re.match(regex, value) is not None) != negated
    raise AssertionError(node)
