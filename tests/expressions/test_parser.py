from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
import sqlglot

from bitlake.errors import InvalidRequest
from bitlake.expressions.binder import bind
from bitlake.expressions.parser import from_sqlglot, parse_predicate
from bitlake.expressions.spark_dialect import SparkSql
from bitlake.expressions.tree import And, Between, Comparison, Constant, In, IsNull, Like, Not, Op, Or, Predicate

UTC = dt.UTC


def eq(value: Any, column: str = "a") -> Comparison:
    return Comparison(column, Op.EQ, value)


CASES: list[tuple[str, Predicate]] = [
    ("a = 1", eq(1)),
    ("a == 1", eq(1)),
    ("1 = a", eq(1)),
    ("5 < a", Comparison("a", Op.GT, 5)),
    ("5 >= a", Comparison("a", Op.LE, 5)),
    ("a <> 1", Comparison("a", Op.NE, 1)),
    ("a != 1", Comparison("a", Op.NE, 1)),
    ("a = -2147483648", eq(-2147483648)),
    ("a = 1.5", eq(Decimal("1.5"))),
    ("a = 1.5BD", eq(Decimal("1.5"))),
    ("a = -12345678901234567890123456789.5", eq(Decimal("-12345678901234567890123456789.5"))),
    (f"a = CAST('-{'9' * 38}' AS DECIMAL(38, 0))", eq(Decimal("-" + "9" * 38))),
    ("a = 1L", eq(1)),
    ("a = 1e3", eq(1000.0)),
    ("a = -1.5D", eq(-1.5)),
    ("a = 0.1F", eq(np.float32(0.1))),
    ("a = X'00fF'", eq(b"\x00\xff")),
    ("a = 'it''s'", eq("it's")),
    ("a = 'x' 'y'", eq("xy")),
    ('a = "it\'s"', eq("it's")),
    (r"a = 'q\'\n\u0041'", eq("q'\nA")),
    (r"a = r'\n'", eq(r"\n")),
    ("a = true", eq(True)),
    ("a", eq(True)),
    ("NOT a", Not(eq(True))),
    ("a = NULL", eq(None)),
    ("`a b` = 1", eq(1, "a b")),
    ("t.a = 1", eq(1, "t.a")),
    ("a = DATE '2020-01-31' + INTERVAL 1 MONTH", eq(dt.date(2020, 2, 29))),
    ("a = DATE '2020-03-01' - INTERVAL '1' DAY", eq(dt.date(2020, 2, 29))),
    ("a = DATE '2020-03-01' - 1", eq(dt.date(2020, 2, 29))),
    ("a = date_add('2020-02-28', 1)", eq(dt.date(2020, 2, 29))),
    ("a = date_sub(DATE '2020-03-01', 1)", eq(dt.date(2020, 2, 29))),
    ("a = to_date('2020-03-01')", eq(dt.date(2020, 3, 1))),
    ("a = '2020-03-01'::date", eq(dt.date(2020, 3, 1))),
    ("a = TIMESTAMP '2020-01-01 00:00:00'", eq(dt.datetime(2019, 12, 31, 23, tzinfo=UTC))),
    ("a = TIMESTAMP '2020-01-01T00:00:00Z'", eq(dt.datetime(2020, 1, 1, tzinfo=UTC))),
    ("a = TIMESTAMP_NTZ '2020-01-01 00:00:00.123456789'", eq(dt.datetime(2020, 1, 1, microsecond=123456))),
    (
        "a > TIMESTAMP '2020-01-01' - INTERVAL 2 HOURS",
        Comparison("a", Op.GT, dt.datetime(2019, 12, 31, 21, tzinfo=UTC)),
    ),
    ("a = CAST('5' AS INT)", eq(5)),
    ("a = CAST(1 AS DECIMAL(10, 2))", eq(Decimal("1.00"))),
    ("a = 2 * 3 - 1", eq(5)),
    ("a = 1.5 + 1", eq(Decimal("2.5"))),
    ("a <=> NULL", IsNull("a")),
    ("a <=> 5", And((IsNull("a", True), eq(5)))),
    ("a IS NOT DISTINCT FROM 5", And((IsNull("a", True), eq(5)))),
    ("NOT (a <=> NULL)", IsNull("a", True)),
    ("a IS NULL", IsNull("a")),
    ("a IS NOT NULL", IsNull("a", True)),
    ("isnotnull(a)", IsNull("a", True)),
    ("a IS TRUE", And((IsNull("a", True), eq(True)))),
    ("a IN (1, NULL)", In("a", (1, None))),
    ("a NOT IN (1, 2)", Not(In("a", (1, 2)))),
    ("a BETWEEN 1 AND 2", Between("a", 1, 2)),
    ("a NOT BETWEEN 1 AND 2", Not(Between("a", 1, 2))),
    ("a LIKE 'p%'", Like("a", "p%")),
    ("a NOT LIKE 'p/%' ESCAPE '/'", Like("a", "p/%", True, "/")),
    ("a LIKE ANY ('x%', 'y')", Or((Like("a", "x%"), Like("a", "y")))),
    ("startswith(a, 'x_')", Like("a", "x\\_%")),
    ("a <=> 1", And((IsNull("a", True), eq(1)))),
    ("NOT (a <=> 1)", Not(And((IsNull("a", True), eq(1))))),
    ("a IS DISTINCT FROM 1", Not(And((IsNull("a", True), eq(1))))),
    ("a IS DISTINCT FROM 'x'", Not(And((IsNull("a", True), eq("x"))))),
    ("a IS DISTINCT FROM NULL", IsNull("a", True)),
    ("a = 1 AND b = 2 AND c = 3", And((eq(1), eq(2, "b"), eq(3, "c")))),
    ("a = 1 OR b = 2 AND c = 3", Or((eq(1), And((eq(2, "b"), eq(3, "c")))))),
    ("TRUE", Constant(True)),
    ("NULL", Constant(None)),
    ("1 = 2", Constant(False)),
]


@pytest.mark.parametrize(("text", "expected"), CASES, ids=[c[0] for c in CASES])
def test_parse(text: str, expected: Predicate) -> None:
    assert parse_predicate(text, "Europe/Paris") == expected


@pytest.mark.parametrize(
    "text",
    [
        "soundex(a) = 'X'",
        "a = 1 AND a = (SELECT 1)",
        "a IN (SELECT 1)",
        "m[1] = 1",
        "m['k']['l'] = 1",
        "a = 2147483647 + 1",  # overflows in Spark
        "a = CAST(1.25 AS DECIMAL(2, 1))",
        "a = DATE '2020-01-01' + INTERVAL 5 HOURS",
        "regexp_like(a, 'x', 'i')",
        "SELECT 1",
        "a = 1; DROP TABLE t",
        "rand() < 0.5",
        "a = CAST('abc' AS INT)",
        "a LIKE b",
        "a LIKE 'x%' ESCAPE ''",
        "a LIKE 'x%' ESCAPE '//'",
        "a LIKE 'x%' ESCAPE NULL",
    ],
)
def test_what_a_scan_cannot_evaluate_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot evaluate"):
        parse_predicate(text)


def test_a_syntax_error_shows_its_place() -> None:
    with pytest.raises(InvalidRequest, match=r"line 2, column 5\n  b = = 2\n      \^"):
        parse_predicate("a = 1 AND\nb = = 2")


@pytest.mark.parametrize("text", ["", "  ", "a = 'x", "a = (1", "a = 1 2", "/* x"])
def test_syntax_errors(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_predicate(text)


def test_days_move_the_wall_clock_across_a_change_of_the_clock() -> None:
    made = parse_predicate("a = TIMESTAMP '2024-03-30 12:00:00' + INTERVAL 1 DAY", "Europe/Berlin")
    assert made == eq(dt.datetime(2024, 3, 31, 10, tzinfo=UTC))


def test_a_syntax_error_points_at_the_first_letter_of_a_long_word() -> None:
    with pytest.raises(InvalidRequest, match=r"line 1, column 11\n  a = 12345 67890\n            \^$"):
        parse_predicate("a = 12345 67890")
    with pytest.raises(InvalidRequest, match=r"line 3, column 5\n  b = ,,\n      \^$"):
        parse_predicate("a = 1\nAND\nb = ,,\n")


def test_columns_are_named_by_the_caller() -> None:
    """Also where the same text was read before without names."""
    assert parse_predicate("a = 1") == eq(1)
    assert parse_predicate("a = 1", column_of=lambda column: f"x{column.name}") == eq(1, "xa")
    with pytest.raises(InvalidRequest, match="not a column of this table"):
        parse_predicate("a = 1", column_of=lambda column: None)
    assert parse_predicate("a = 1") == eq(1)


@pytest.mark.parametrize("op", ["=", "<>", "<", "<=", ">", ">="])
@pytest.mark.parametrize(("low", "high"), [("1", "2"), ("'a'", "'b'"), ("-3000000000", "0"), ("FALSE", "TRUE")])
def test_two_constants_are_compared(low: str, high: str, op: str) -> None:
    below, equal, above = op in ("<", "<=", "<>"), op in ("=", "<=", ">="), op in (">", ">=", "<>")
    assert parse_predicate(f"{low} {op} {high}") == Constant(below)
    assert parse_predicate(f"{low} {op} {low}") == Constant(equal)
    assert parse_predicate(f"{high} {op} {low}") == Constant(above)
    assert parse_predicate(f"{low} {op} NULL") == parse_predicate(f"NULL {op} {low}") == Constant(None)
    with pytest.raises(InvalidRequest, match="cast one of them"):
        bind(parse_predicate(f"{low} {op} X'00'"), [])


def test_constants_whose_order_is_spark_s_own() -> None:
    for text in ("double('NaN') = double('NaN')", "double('NaN') > 1.5D", "1.5 = 1.50", "X'00' < X'0000'"):
        assert bind(parse_predicate(text), []) == Constant(True), text


LENGTHS = "length(b) = 2"
"""A part that only Spark evaluates in a statement."""


@pytest.mark.parametrize(
    ("text", "whole", "part"),
    [
        ("a = 1", eq(1), eq(1)),
        ("a = 1 AND b = 2", And((eq(1), eq(2, "b"))), And((eq(1), eq(2, "b")))),
        (f"a = 1 AND {LENGTHS}", None, eq(1)),
        (f"{LENGTHS} AND a = 1", None, eq(1)),
        ("a = 1 AND secret = 1", None, eq(1)),
        ("secret = 1", None, None),
        (f"{LENGTHS} AND {LENGTHS}", None, None),
        (f"a = 1 OR {LENGTHS}", None, None),
        (f"a = 1 OR (b = 2 AND {LENGTHS})", None, Or((eq(1), eq(2, "b")))),
        ("NOT (a = 1)", Not(eq(1)), Not(eq(1))),
        (f"NOT (a = 1 AND {LENGTHS})", None, None),
        (f"b = 2 AND NOT (a = 1 AND {LENGTHS})", None, eq(2, "b")),
        (f"NOT ({LENGTHS})", None, None),
        (f"{LENGTHS} IS TRUE", None, None),
        ("length(b) BETWEEN 1 AND 2", None, None),
        ("length(b) IN (1)", None, None),
        ("length(b) IS NULL", None, None),
        ("a > b", None, None),
        ("a IN (b)", None, None),
        ("a BETWEEN 1 AND 2", Between("a", 1, 2), Between("a", 1, 2)),
        ("a <=> 1", And((IsNull("a", True), eq(1))), And((IsNull("a", True), eq(1)))),
        # A text that is no value of the column's type is NULL without ANSI mode.
        ("a <=> 'x'", And((IsNull("a", True), eq("x"))), Or((eq("x"), IsNull("a")))),
        ("NOT (a <=> 'x')", *[Not(And((IsNull("a", True), eq("x"))))] * 2),
        ("NOT (NOT (a <=> 'x'))", Not(Not(And((IsNull("a", True), eq("x"))))), None),
        ("NOT (NOT (a = 1))", Not(Not(eq(1))), Not(Not(eq(1)))),
        ("a <=> NULL", IsNull("a"), IsNull("a")),
        ("a = TIMESTAMP '2026-01-01 00:00:00'", None, None),
    ],
)
def test_conditions_of_statements(text: str, whole: Predicate | None, part: Predicate | None) -> None:
    """Without ``partial`` the whole condition or nothing; with it, what is TRUE wherever the condition is."""
    tree = sqlglot.parse_one(text, dialect=SparkSql)
    names = {"a": "a", "b": "b"}
    zone = "Mars/Olympus" if "TIMESTAMP" in text else "UTC"  # a zone that only Java knows
    assert from_sqlglot(tree, zone, lambda column: names.get(column.name)) == whole
    assert from_sqlglot(tree, zone, lambda column: names.get(column.name), partial=True) == part
