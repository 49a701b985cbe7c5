from __future__ import annotations

import pytest

from bitlake.expressions.binder import bind
from bitlake.expressions.parser import parse_predicate
from bitlake.expressions.statistics import ColumnStats, Verdict
from bitlake.expressions.statistics import test_stats as prove
from bitlake.types import DataField, parse_type

FIELDS = [
    DataField(0, "i", parse_type("INT")),
    DataField(1, "d", parse_type("DOUBLE")),
    DataField(2, "s", parse_type("STRING")),
    DataField(3, "n", parse_type("INT")),
    DataField(4, "u", parse_type("INT")),
]
STATS = {
    "i": ColumnStats(10, 20, 0),
    "d": ColumnStats(1.0, 2.0, 0),
    "s": ColumnStats("pear", "plum", 0, truncated=True),
    "n": ColumnStats(None, None, 100),
}
NONE, SOME, ALL = Verdict.NONE, Verdict.SOME, Verdict.ALL

CASES = [
    ("i = 15", SOME),
    ("i = 9", NONE),
    ("i >= 10", ALL),
    ("i > 10", SOME),
    ("i > 20", NONE),
    ("i < 10", NONE),
    ("i BETWEEN 5 AND 25", ALL),
    ("i NOT IN (1, 2)", ALL),
    ("i IN (1, 2, 30)", NONE),
    ("i IN (1, 12)", SOME),
    ("i <> 5", ALL),
    ("i IS NULL", NONE),
    ("i IS NOT NULL", ALL),
    ("i = 9 OR i > 5", ALL),
    ("i = 9 AND u = 1", NONE),
    ("i > 5 AND u = 1", SOME),
    ("d > 2", SOME),  # a NaN may hide above the maximum
    ("d = double('NaN')", SOME),
    ("d <= double('NaN')", ALL),
    ("d < 3", SOME),
    ("d > 0", ALL),
    ("d < 1", NONE),
    ("d = 3", NONE),
    ("s LIKE 'p%'", ALL),
    ("s NOT LIKE 'p%'", NONE),
    ("s LIKE 'q%'", NONE),
    ("s LIKE 'a%'", NONE),
    ("s LIKE 'pl%'", SOME),
    ("s LIKE '%x'", SOME),
    ("s = 'pear'", SOME),
    ("s = 'zoo'", NONE),
    ("n = 1", NONE),
    ("n <> 1", NONE),
    ("n IS NULL", ALL),
    ("u = 1", SOME),
    ("u IS NULL", SOME),
    ("TRUE", ALL),
    ("FALSE", NONE),
]


@pytest.mark.parametrize(("text", "expected"), CASES, ids=[c[0] for c in CASES])
def test_verdict(text: str, expected: Verdict) -> None:
    assert prove(bind(parse_predicate(text), FIELDS), STATS, 100) is expected


def test_cut_bounds_that_meet_are_no_single_value() -> None:
    stats = {"s": ColumnStats("aaaa", "aaaa", 0, truncated=True)}
    assert prove(bind(parse_predicate("s = 'aaaa'"), FIELDS), stats, 5) is SOME
    assert prove(bind(parse_predicate("s <> 'aaaa'"), FIELDS), stats, 5) is SOME


def test_partition_values_decide() -> None:
    stats = {"i": ColumnStats(7, 7, 0), "s": ColumnStats(None, None, 3)}
    assert prove(bind(parse_predicate("i = 7"), FIELDS), stats, 3) is ALL
    assert prove(bind(parse_predicate("i NOT IN (7, 8)"), FIELDS), stats, 3) is NONE
    assert prove(bind(parse_predicate("s IS NULL AND i IN (7, 9)"), FIELDS), stats, 3) is ALL


def test_no_rows() -> None:
    assert prove(bind(parse_predicate("TRUE"), FIELDS), {}, 0) is NONE


def test_a_maximum_cut_at_the_last_character_before_the_surrogates() -> None:
    """Paimon writes U+D7FF + 1 as '?', a maximum below its values."""
    stats = {"s": ColumnStats("a", "b?", 0, truncated=True)}
    assert prove(bind(parse_predicate("s > 'b\ud7ff'"), FIELDS), stats, 5) is SOME
