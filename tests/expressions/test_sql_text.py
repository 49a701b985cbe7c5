from __future__ import annotations

import pytest

from bitlake.expressions.binder import bind
from bitlake.expressions.parser import parse_predicate
from bitlake.expressions.sql_text import to_sql
from bitlake.expressions.tree import In
from bitlake.types import DataField, parse_type

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
