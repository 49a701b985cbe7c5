"""Texts as values, where it is certain what Spark reads in them."""

from __future__ import annotations

import pytest

from bitlake.expressions.literals import parse_integer


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), (" -7 ", -7), ("+7", 7), ("007", 7), ("", None), ("-", None), ("7.0", None), ("7e1", None), ("٧", None)],
)
def test_integers(text: str, value: int | None) -> None:
    assert parse_integer(text) == value


def test_an_integer_has_less_than_60_characters() -> None:
    """BIGINT has 19 digits; of thousands Python makes no number, and of many it is slow."""
    assert parse_integer("0" * 58 + "5") == 5 and parse_integer(" " * 58 + "5") == 5
    assert parse_integer("9" * 59) == 10**59 - 1
    for length in (60, 4301, 1_000_000):
        assert parse_integer("9" * length) is None
