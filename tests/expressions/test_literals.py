"""Texts as values, where it is certain what Spark reads in them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest
from sqlglot import parse_one

from bitlake.expressions.folding import NotConstant, constant
from bitlake.expressions.literals import parse_decimal, parse_integer


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), (" -7 ", -7), ("+7", 7), ("007", 7), ("", None), ("-", None), ("7.0", None), ("7e1", None), ("٧", None)],
)
def test_integers(text: str, value: int | None) -> None:
    assert parse_integer(text) == value


@pytest.mark.parametrize(
    ("text", "known"),
    [("1e-76", True), ("1e-77", False), ("9" * 38, True), ("9" * 39, False), ("1e37", True), ("1e38", False)],
)
def test_decimals_have_at_most_38_digits(text: str, known: bool) -> None:
    assert parse_decimal(text) == (Decimal(text) if known else None)


def test_constants_of_small_integer_types_end_at_their_bounds() -> None:
    for kind, bits in (("TINYINT", 8), ("SMALLINT", 16), ("INT", 32), ("BIGINT", 64)):
        top = 2 ** (bits - 1)
        for value in (top - 1, -top):
            assert constant(parse_one(f"CAST({value} AS {kind})", dialect="spark"), "UTC") == value
        for value in (top, -top - 1):
            with pytest.raises(NotConstant):
                constant(parse_one(f"CAST({value} AS {kind})", dialect="spark"), "UTC")


def folded(text: str) -> object:
    return constant(parse_one(text, dialect="spark"), "UTC")


def test_sums_of_constants_are_as_wide_as_the_wider_one() -> None:
    assert folded("2147483648 + 1") == 2**31 + 1 and folded("-2147483649 - 1") == -(2**31) - 2
    assert folded("2147483646 + 1") == 2**31 - 1
    for text in ("2147483647 + 1", "-2147483648 - 1", "9223372036854775807 + 1", "9223372036854775808 - 9"):
        with pytest.raises(NotConstant):
            folded(text)


def test_intervals_move_wall_clocks_and_dates() -> None:
    moved = folded("CAST('2024-03-31 01:30:00' AS TIMESTAMP_NTZ) - INTERVAL 5 HOURS")
    assert moved == dt.datetime(2024, 3, 30, 20, 30)
    assert folded("DATE '2024-03-31' - INTERVAL 4 MONTHS") == dt.date(2023, 11, 30)
    assert folded("DATE '2024-03-31' + INTERVAL 2 WEEKS") == dt.date(2024, 4, 14)


def test_floats_that_are_infinite_are_constants() -> None:
    assert folded("CAST('Infinity' AS FLOAT)") == float("inf")
    assert folded("CAST('-Infinity' AS FLOAT)") == float("-inf")


def test_an_integer_has_less_than_60_characters() -> None:
    """BIGINT has 19 digits; of thousands Python makes no number, and of many it is slow."""
    assert parse_integer("0" * 58 + "5") == 5 and parse_integer(" " * 58 + "5") == 5
    assert parse_integer("9" * 59) == 10**59 - 1
    for length in (60, 4301, 1_000_000):
        assert parse_integer("9" * length) is None
