from __future__ import annotations

import pytest

from bitlake.expressions.binder import bind
from bitlake.expressions.parser import parse_predicate
from bitlake.expressions.sql_text import to_sql, value_to_sql
from bitlake.expressions.tree import And, Comparison, In, MapKey, Not, Op, Or
from bitlake.types import DataField, MapType, parse_type

FIELDS = [DataField(0, "d", parse_type("DECIMAL(10, 2)")), DataField(1, "day", parse_type("DATE"))]


@pytest.mark.parametrize(
    "text",
    [
        "a = 1 AND (b = 'it\\'s' OR c IS NULL)",
        "a = 1 OR b = 2 AND c = 3",
        "NOT (a = 1 AND b = 2)",
        "a LIKE 'x/%' ESCAPE '/'",
        "a NOT LIKE 'x%'",
        "`a b` IN (1, NULL)",
        "a BETWEEN DATE '2020-01-01' AND DATE '2020-02-01'",
        "a = TIMESTAMP '2020-01-01 00:00:00Z'",
        "a = TIMESTAMP_NTZ '2020-01-01 00:00:00'",
        "a = 1.5 OR a = 1.5D OR a = X'00FF' OR a = TRUE OR a = 1.5F",
        "a = double('nan')",
    ],
)
def test_what_is_printed_reads_back(text: str) -> None:
    tree = parse_predicate(text)
    assert to_sql(tree) == text
    again = parse_predicate(to_sql(tree))
    assert again == tree or "nan" in text


def test_physical_values() -> None:
    bound = bind(parse_predicate("d = -0.05 AND day > '2020-01-01'"), FIELDS)
    assert to_sql(bound, FIELDS) == "d = -0.05 AND day > DATE '2020-01-01'"


def test_long_lists_are_cut() -> None:
    assert to_sql(In("a", tuple(range(1030))), limit=2) == "a IN (0, 1, … 1,028 more)"


def test_lists_are_cut_above_twenty_values() -> None:
    """Twenty values are printed whole, of more the count."""
    whole = to_sql(In("n", tuple(range(20))))
    assert whole == f"n IN ({', '.join(map(str, range(20)))})"
    assert to_sql(In("n", tuple(range(21)))) == whole.replace(")", ", … 1 more)")


def test_a_list_of_conditions_may_have_none_or_one() -> None:
    one, other = Comparison("a", Op.EQ, 1), Comparison("b", Op.EQ, 2)
    assert to_sql(And(())) == "TRUE" and to_sql(Or(())) == "FALSE"
    assert to_sql(And((Or((one,)), other))) == "a = 1 AND b = 2"
    assert to_sql(Not(Or((one, other)))) == "NOT (a = 1 OR b = 2)"


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("DECIMAL(3, 0)", 5, "5"),
        ("DECIMAL(3, 0)", -5, "-5"),
        ("DECIMAL(3, 2)", 0, "0.00"),
        ("DECIMAL(3, 2)", 1, "0.01"),
        ("DECIMAL(3, 2)", -100, "-1.00"),
        ("DECIMAL(3, 3)", 123, "0.123"),
        ("INT", 5, "5"),
        ("BOOLEAN", True, "TRUE"),
        ("DATE", 0, "DATE '1970-01-01'"),
        ("DATE", -719_162, "DATE '0001-01-01'"),
        ("DATE", -719_163, "-719163"),
        ("TIME(3)", 0, "'00:00:00'"),
        ("TIME(3)", 86_399_999, "'23:59:59.999000'"),
        ("TIMESTAMP(0)", 1500, "TIMESTAMP_NTZ '1970-01-01 00:00:01.500'"),
        ("TIMESTAMP(3)", -1, "TIMESTAMP_NTZ '1969-12-31 23:59:59.999'"),
        ("TIMESTAMP(4)", 1, "TIMESTAMP_NTZ '1970-01-01 00:00:00.000001'"),
        ("TIMESTAMP(6)", 86_400_000_000, "TIMESTAMP_NTZ '1970-01-02 00:00:00'"),
        ("TIMESTAMP(7)", 1, "TIMESTAMP_NTZ '1970-01-01 00:00:00.000000001'"),
        ("TIMESTAMP(9)", 10**9 + 20, "TIMESTAMP_NTZ '1970-01-01 00:00:01.000000020'"),
        ("TIMESTAMP(6) WITH LOCAL TIME ZONE", 1, "TIMESTAMP '1970-01-01 00:00:00.000001Z'"),
        ("TIMESTAMP(6)", 2**62, str(2**62)),
    ],
)
def test_physical_values_are_printed_by_their_type(kind: str, value: int, expected: str) -> None:
    """A value beyond Python's years is printed as the number that it is."""
    assert value_to_sql("x", value, [DataField(0, "x", parse_type(kind))]) == expected


def test_values_of_a_map_are_printed_by_their_type() -> None:
    fields = [DataField(0, "m", MapType(parse_type("STRING"), parse_type("DATE")))]
    assert to_sql(Comparison(MapKey("m", "a b"), Op.LT, 1), fields) == "m['a b'] < DATE '1970-01-02'"
