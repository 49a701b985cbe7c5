"""Python values as literals of Spark SQL, and where they stand."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from bitlake.errors import InvalidRequest
from bitlake.expressions.parser import parse_predicate, parse_term
from bitlake.expressions.spark_dialect import literal, with_values
from bitlake.expressions.term_binder import TermBinder
from bitlake.expressions.tree import Comparison, Op


def kind(value: Any) -> str:
    """The type of a value's literal."""
    return str(TermBinder([], "UTC").bind(parse_term(literal(value))).type)


@pytest.mark.parametrize(
    ("limit", "inside", "outside"),
    [(1 << 31, "INT", "BIGINT"), (1 << 63, "BIGINT", "DECIMAL(19, 0)")],
)
def test_integers_have_the_types_of_lit(limit: int, inside: str, outside: str) -> None:
    for value, expected in ((limit - 1, inside), (-limit, inside), (limit, outside), (-limit - 1, outside)):
        assert kind(value) == expected
        assert parse_predicate(with_values("a = ?", [value])) == Comparison("a", Op.EQ, value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0"),
        (-7, "(-7)"),
        (0.0, "0.0D"),
        (-0.0, "(-0.0D)"),
        (-1e300, "(-1e+300D)"),
        (float("inf"), "CAST('inf' AS DOUBLE)"),
        (Decimal("0"), "CAST('0' AS DECIMAL(1, 0))"),
        (Decimal("0.00"), "CAST('0.00' AS DECIMAL(2, 2))"),
        (Decimal("-0.05"), "CAST('-0.05' AS DECIMAL(2, 2))"),
        (Decimal("100"), "CAST('100' AS DECIMAL(3, 0))"),
        (Decimal("1E+3"), "CAST('1000' AS DECIMAL(4, 0))"),
        (Decimal("123.450"), "CAST('123.450' AS DECIMAL(6, 3))"),
        (Decimal("12E-1"), "CAST('1.2' AS DECIMAL(2, 1))"),
        ([1, None, [-2]], "array(1, NULL, array((-2)))"),
        ({"a": -1}, "map('a', (-1))"),
        (bytearray(b"\x00\xff"), "X'00ff'"),
    ],
)
def test_literals(value: Any, expected: str) -> None:
    assert literal(value) == expected


def test_a_negative_number_stays_one_operand() -> None:
    assert with_values("5-?", [-1]) == "5-(-1)"


def test_values_in_order() -> None:
    """More values than parameters are allowed, as in Spark."""
    assert with_values("a = ? AND b = ?", [1, "x", 3]) == "a = 1 AND b = 'x'"
    with pytest.raises(InvalidRequest, match=r"2 parameters, but args has 1 values: line 1, column 15\n"):
        with_values("a = ? AND b = ?", [1])
    for args in ("ab", b"ab", 5):
        with pytest.raises(InvalidRequest, match="args is a mapping"):
            with_values("a = ?", args)  # type: ignore[arg-type]
