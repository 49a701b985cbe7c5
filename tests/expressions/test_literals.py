"""Texts as values, where it is certain what Spark reads in them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from sqlglot import parse_one

from bitlake.expressions.folding import NotConstant, constant
from bitlake.expressions.literals import (
    days,
    parse_bool,
    parse_date,
    parse_decimal,
    parse_double,
    parse_integer,
    parse_time,
    parse_timestamp,
)
from bitlake.types.time_zone import micros_of


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


def folded(text: str, timezone: str = "UTC") -> Any:
    return constant(parse_one(text, dialect="spark"), timezone)


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


def test_the_largest_float_is_a_constant() -> None:
    """NumPy warned that the next value is infinite."""
    for sign in ("", "-"):
        text = f"CAST({sign}3.4028234663852886e+38D AS FLOAT)"
        assert constant(parse_one(text, dialect="spark"), "UTC") == np.float32(f"{sign}3.4028235e38")


def test_an_integer_has_less_than_60_characters() -> None:
    """BIGINT has 19 digits; of thousands Python makes no number, and of many it is slow."""
    assert parse_integer("0" * 58 + "5") == 5 and parse_integer(" " * 58 + "5") == 5
    assert parse_integer("9" * 59) == 10**59 - 1
    for length in (60, 4301, 1_000_000):
        assert parse_integer("9" * length) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("9" * 38, 10**38 - 1),
        ("1.50", Decimal("1.50")),
        ("1e3", 1000.0),
        ("X'f'", b"\x0f"),
        ("X'00ff'", b"\x00\xff"),
        ("-NULL", None),
        ("-(1.5)", Decimal("-1.5")),
        ("-(" + "9" * 37 + ".5)", Decimal("-" + "9" * 37 + ".5")),
        ("-CAST(1.5 AS FLOAT)", np.float32(-1.5)),
        ("concat('a', 'b')", "ab"),
        ("CAST(NULL AS INT)", None),
        ("CAST('1.5' AS DOUBLE)", 1.5),
        ("CAST(2 AS DOUBLE)", 2.0),
        ("CAST(1.5 AS DOUBLE)", 1.5),
        ("CAST(1.5 AS FLOAT)", np.float32(1.5)),
        ("CAST('a' AS STRING)", "a"),
        ("CAST('abcd' AS VARCHAR(3))", "abcd"),
        ("CAST('a' AS CHAR(3))", "a"),
        ("CAST(-5 AS STRING)", "-5"),
        ("CAST('ä' AS BINARY)", b"\xc3\xa4"),
        ("CAST(X'00' AS BINARY)", b"\0"),
        ("CAST('yes' AS BOOLEAN)", True),
        ("CAST('0' AS BOOLEAN)", False),
        ("CAST(TRUE AS BOOLEAN)", True),
        ("CAST('5' AS INT)", 5),
        ("CAST(5.0 AS INT)", 5),
        ("CAST(1234567890 AS DECIMAL)", Decimal(1234567890)),
        ("CAST(12345 AS DECIMAL(5))", Decimal(12345)),
        ("CAST('99.9' AS DECIMAL(3, 1))", Decimal("99.9")),
        ("CAST(-99.9 AS DECIMAL(3, 1))", Decimal("-99.9")),
        ("CAST('2026-01-05' AS DATE)", dt.date(2026, 1, 5)),
        ("CAST(DATE '2026-01-05' AS DATE)", dt.date(2026, 1, 5)),
        ("CAST(DATE '2026-01-05' AS TIMESTAMP_NTZ)", dt.datetime(2026, 1, 5)),
        ("CAST(DATE '2026-01-05' AS TIMESTAMP)", dt.datetime(2026, 1, 5, tzinfo=dt.UTC)),
        ("CAST('2026-01-05 01:02' AS TIMESTAMP_NTZ)", dt.datetime(2026, 1, 5, 1, 2)),
        ("CAST('2026-01-05 01:02+01:00' AS TIMESTAMP)", dt.datetime(2026, 1, 5, 0, 2, tzinfo=dt.UTC)),
        ("date_add(DATE '2026-01-05', -5)", dt.date(2025, 12, 31)),
        ("date_sub('2026-01-05', 5)", dt.date(2025, 12, 31)),
        ("add_months(DATE '2026-01-31', 1)", dt.date(2026, 2, 28)),
        ("add_months(DATE '2026-01-31', -1)", dt.date(2025, 12, 31)),
        ("add_months('2023-11-30', 3)", dt.date(2024, 2, 29)),
        ("to_date('2026-01-05')", dt.date(2026, 1, 5)),
        ("DATE '2026-01-05' - 5", dt.date(2025, 12, 31)),
        ("DATE '2026-01-05' + 5", dt.date(2026, 1, 10)),
        ("-2147483647 - 1", -(2**31)),
        ("10 - 3", 7),
        ("46340 * 46340", 46340**2),
        ("-32768 * 65536", -(2**31)),
        ("-9223372036854775807 - 1", -(2**63)),
        ("9223372036854775806 + 1", 2**63 - 1),
        ("1 - 1.5", Decimal("-0.5")),
        ("1.5 * 2", Decimal("3.0")),
        ("0.000001 + 0.000001", Decimal("0.000002")),
        ("0.001 * 0.001", Decimal("0.000001")),
        ("12345678901234567890123456789.5 + 1.0", Decimal("12345678901234567890123456790.5")),
        ("1.5D + 2.25D", 3.75),
        ("1.5D - 0.5D", 1.0),
        ("1.5D * 0.5D", 0.75),
    ],
)
def test_constants(text: str, value: Any) -> None:
    """What Spark makes of them."""
    found = folded(text)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        "9" * 39,
        "1e999",
        "concat('a', 1)",
        "-TRUE",
        "-'1'",
        "-DATE '2026-01-05'",
        "CAST('x' AS DOUBLE)",
        "CAST(TRUE AS DOUBLE)",
        "CAST(X'01' AS DOUBLE)",
        "CAST(TRUE AS STRING)",
        "CAST(1.5 AS STRING)",
        "CAST(1 AS BINARY)",
        "CAST('x' AS BOOLEAN)",
        "CAST(1 AS BOOLEAN)",
        "CAST('5.5' AS INT)",
        "CAST(5.5 AS INT)",
        "CAST(5D AS INT)",
        "CAST(TRUE AS INT)",
        "CAST(100 AS DECIMAL(3, 1))",
        "CAST(-100 AS DECIMAL(3, 1))",
        "CAST(99.95 AS DECIMAL(3, 1))",
        "CAST(TRUE AS DECIMAL(3, 1))",
        "CAST(1.5D AS DECIMAL(3, 1))",
        "CAST('x' AS DECIMAL(3, 1))",
        "CAST(5 AS DATE)",
        "CAST('x' AS DATE)",
        "CAST(TIMESTAMP '2026-01-05 00:00:00' AS DATE)",
        "CAST(5 AS TIMESTAMP)",
        "CAST('x' AS TIMESTAMP)",
        "CAST(TIMESTAMP '2026-01-05 00:00:00' AS TIMESTAMP_NTZ)",
        "CAST('2026-01-05 00:00:00Z' AS TIMESTAMP_NTZ)",
        "to_date('2026-01-05', 'yyyy-MM-dd')",
        "date_add(NULL, 1)",
        "date_add(DATE '2026-01-05', TRUE)",
        "date_add(DATE '9999-12-31', 1)",
        "add_months(DATE '2026-01-05', 1.5)",
        "dateadd(MONTH, 1, DATE '2026-01-05')",
        "46341 * 46341",
        "9223372036854775807 * 2",
        "-9223372036854775809 + 9",
        "CAST(1 AS SMALLINT) + 1",
        "1 + 'a'",
        "'a' + 1",
        "1.5 + 'a'",
        "'a' - 1.5",
        "1 + 1.5D",
        "1.5D - 1",
        "1.5 * 1.5D",
        "1.5D + 'a'",
        "TRUE + 1",
        "0.0000001 + 0.0000001",
        "0.0001 * 0.001",
        "123456789012345678901234567890.5 + 1.0",
        "DATE '2026-01-05' * 2",
        "TIMESTAMP '2026-01-05 00:00:00' + 1",
        "DATE '2026-01-05' + INTERVAL 1 HOUR",
        "DATE '2026-01-05' + INTERVAL '5' DAY TO HOUR",
        "DATE '2026-01-05' + INTERVAL '1.5' DAY",
        "1 + INTERVAL 1 DAY",
        "'2026-01-05' + INTERVAL 1 DAY",
    ],
)
def test_expressions_that_are_not_certainly_constants(text: str) -> None:
    with pytest.raises(NotConstant):
        folded(text)


_NOON = dt.datetime(2026, 1, 31, 12)


@pytest.mark.parametrize(
    ("unit", "later", "earlier"),
    [
        ("MICROSECOND", _NOON + dt.timedelta(microseconds=3), _NOON - dt.timedelta(microseconds=3)),
        ("MILLISECONDS", _NOON + dt.timedelta(milliseconds=3), _NOON - dt.timedelta(milliseconds=3)),
        ("SECOND", _NOON + dt.timedelta(seconds=3), _NOON - dt.timedelta(seconds=3)),
        ("MINUTES", _NOON + dt.timedelta(minutes=3), _NOON - dt.timedelta(minutes=3)),
        ("HOUR", _NOON + dt.timedelta(hours=3), _NOON - dt.timedelta(hours=3)),
        ("DAYS", dt.datetime(2026, 2, 3, 12), dt.datetime(2026, 1, 28, 12)),
        ("WEEK", dt.datetime(2026, 2, 21, 12), dt.datetime(2026, 1, 10, 12)),
        ("MONTHS", dt.datetime(2026, 4, 30, 12), dt.datetime(2025, 10, 31, 12)),
        ("QUARTER", dt.datetime(2026, 10, 31, 12), dt.datetime(2025, 4, 30, 12)),
        ("YEARS", dt.datetime(2029, 1, 31, 12), dt.datetime(2023, 1, 31, 12)),
    ],
)
def test_intervals_of_every_unit(unit: str, later: dt.datetime, earlier: dt.datetime) -> None:
    for kind, tz in (("TIMESTAMP_NTZ", None), ("TIMESTAMP", dt.UTC)):
        start = f"{kind} '2026-01-31 12:00:00'"
        assert folded(f"{start} + INTERVAL 3 {unit}") == later.replace(tzinfo=tz)
        assert folded(f"INTERVAL '3' {unit} + {start}") == later.replace(tzinfo=tz)
        assert folded(f"{start} - INTERVAL 3 {unit}") == earlier.replace(tzinfo=tz)
    if later.date() != _NOON.date():
        assert folded(f"DATE '2026-01-31' + INTERVAL 3 {unit}") == later.date()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TIMESTAMP '2026-10-24 01:30:00' + INTERVAL 1 DAY", dt.datetime(2026, 10, 24, 23, 30)),
        ("TIMESTAMP '2026-10-24 02:30:00' + INTERVAL 1 DAY", None),  # twice
        ("TIMESTAMP '2026-10-24 03:00:00' + INTERVAL 1 DAY", dt.datetime(2026, 10, 25, 2)),
        ("TIMESTAMP '2026-03-28 01:59:59' + INTERVAL 1 DAY", dt.datetime(2026, 3, 29, 0, 59, 59)),
        ("TIMESTAMP '2026-03-28 02:30:00' + INTERVAL 1 DAY", None),  # never
        ("TIMESTAMP '2026-03-28 02:30:00' + INTERVAL 24 HOURS", dt.datetime(2026, 3, 29, 1, 30)),
        ("TIMESTAMP '2026-02-28 03:00:00' + INTERVAL 1 MONTH", dt.datetime(2026, 3, 28, 2)),
    ],
)
def test_days_that_end_in_a_change_of_the_clock_are_not_constants(text: str, expected: dt.datetime | None) -> None:
    if expected is None:
        with pytest.raises(NotConstant):
            folded(text, "Europe/Berlin")
    else:
        assert folded(text, "Europe/Berlin") == expected.replace(tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("text", "date"),
    [
        ("2026", dt.date(2026, 1, 1)),
        (" 2026-3 ", dt.date(2026, 3, 1)),
        ("2026-03-05", dt.date(2026, 3, 5)),
        ("2026-3-5", dt.date(2026, 3, 5)),
        ("2026-02-29", None),
        ("26-01-05", None),
        ("2026-01-05x", None),
    ],
)
def test_dates(text: str, date: dt.date | None) -> None:
    assert parse_date(text) == date
    if date is not None:
        assert parse_timestamp(text) == dt.datetime(date.year, date.month, date.day)


@pytest.mark.parametrize(
    ("text", "stamp"),
    [
        ("2026-3-5 1:2", dt.datetime(2026, 3, 5, 1, 2)),
        ("2026-03-05T01:02:03", dt.datetime(2026, 3, 5, 1, 2, 3)),
        ("2026-03-05 01:02:03.5", dt.datetime(2026, 3, 5, 1, 2, 3, 500000)),
        ("2026-03-05 01:02:03.123456789", dt.datetime(2026, 3, 5, 1, 2, 3, 123456)),
        ("2026-03-05 01:02:03 +00:00", dt.datetime(2026, 3, 5, 1, 2, 3, tzinfo=dt.UTC)),
        ("2026-03-05 01:02Z", dt.datetime(2026, 3, 5, 1, 2, tzinfo=dt.UTC)),
        ("2026-03-05 24:00:00", None),
        ("2026-03-05 01:02:03 Nowhere", None),
        ("2026-03-05 01", None),
    ],
)
def test_timestamps(text: str, stamp: dt.datetime | None) -> None:
    found = parse_timestamp(text)
    assert found == stamp and (found is None or stamp is None or found.utcoffset() == stamp.utcoffset())


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("1:2", dt.time(1, 2)),
        (" 23:59:58 ", dt.time(23, 59, 58)),
        ("23:59:58.5", dt.time(23, 59, 58, 500000)),
        ("24:00", None),
        ("1", None),
    ],
)
def test_times(text: str, time: dt.time | None) -> None:
    assert parse_time(text) == time


def test_words_that_are_booleans_and_doubles() -> None:
    for word in ("t", " TRUE ", "y", "Yes", "1"):
        assert parse_bool(word) is True
    for word in ("f", "False", " n ", "NO", "0"):
        assert parse_bool(word) is False
    assert parse_bool("on") is None and parse_bool("") is None
    assert parse_double(" 1.5e3 ") == 1500.0 and parse_double(" -Inf ") == float("-inf") and parse_double("x") is None


def test_the_epoch() -> None:
    assert days(dt.date(1970, 1, 2)) == 1 and days(dt.date(1969, 12, 31)) == -1
    assert micros_of(dt.datetime(1970, 1, 1, 0, 0, 1)) == 1_000_000
    assert micros_of(dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.timezone(dt.timedelta(hours=1)))) == -3_599_000_000


@pytest.mark.parametrize(
    ("text", "known"),
    [("0." + "0" * 37 + "1", True), ("1" + "0" * 38, False), ("12e36", True), ("12e37", False), ("x", False)],
)
def test_digits_of_a_decimal_are_those_before_its_exponent_and_the_zeros_it_adds(text: str, known: bool) -> None:
    assert parse_decimal(text) == (Decimal(text) if known else None)
