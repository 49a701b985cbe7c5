from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bitlake.expressions.binder import bind
from bitlake.expressions.parser import parse_predicate
from bitlake.expressions.statistics import ColumnBounds, ColumnStats, Form, Verdict, judge, judge_leaf
from bitlake.expressions.statistics import test_stats as prove
from bitlake.expressions.tree import And, Comparison, In, Like, Op, Or
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


_TRUTH: dict[Op, Callable[[Any, Any], bool]] = {
    Op.EQ: operator.eq,
    Op.NE: operator.ne,
    Op.LT: operator.lt,
    Op.LE: operator.le,
    Op.GT: operator.gt,
    Op.GE: operator.ge,
}
Leaf = Comparison | In | Like
NUMBERS = list(range(6))
WORDS = ["a", "az", "b", "ba", "bz", "c", "ca"]


def _holds(leaf: Leaf, value: Any) -> bool:
    match leaf:
        case Comparison(_, op, literal):
            return _TRUTH[op](value, literal)
        case In(_, values, negated):
            return (value in values) != negated
        case Like(_, pattern, negated):
            return value.startswith(pattern[:-1]) != negated


def _leaves(values: list[Any]) -> list[Leaf]:
    literals = [-1, *values, 6] if values is NUMBERS else ["A", *values[::2], "d"]
    made: list[Leaf] = [Comparison("x", op, v) for op in Op for v in literals]
    made += [In("x", tuple(literals[i::k]), negated) for i in range(4) for k in (3, 4) for negated in (False, True)]
    if values is WORDS:
        made += [Like("x", f"{p}%", negated, "\\") for p in ("a", "b", "bz", "d") for negated in (False, True)]
    return made


def _expected(leaf: Leaf, low: Any, high: Any, values: list[Any], nulls: int | None) -> Verdict:
    """By trying every value between the bounds.  A list of values proves ALL or NONE only of a single value."""
    if nulls == 3:
        return NONE
    beyond = [-2, -1, *values, 6, 7] if values is NUMBERS else ["", "A", "A1", *values, "d", "d1"]
    found = {_holds(leaf, v) for v in beyond if (low is None or low <= v) and (high is None or v <= high)}
    if isinstance(leaf, In) and low != high and found == {not leaf.negated}:
        return SOME
    return SOME if len(found) == 2 else ALL if found == {True} and nulls == 0 else SOME if found == {True} else NONE


@pytest.mark.parametrize("values", [NUMBERS, WORDS], ids=["numbers", "words"])
def test_verdicts_are_as_sharp_as_the_bounds_allow(values: list[Any]) -> None:
    files = [(low, high, n) for i, low in enumerate(values) for high in [*values[i:], None] for n in (0, 1, 3, None)]
    files += [(None, high, n) for high in [*values, None] for n in (0, 1, None)]
    for leaf in _leaves(values):
        expected = [_expected(leaf, *f[:2], values, f[2]) for f in files]
        assert [prove(leaf, {"x": ColumnStats(*f)}, 3) for f in files] == expected, leaf
        for together in (5, len(files)):
            found: list[int] = []
            for start in range(0, len(files), together):
                some = files[start : start + together]
                found += judge_leaf(leaf, _bounds(some, values), np.full(len(some), 3)).tolist()
            assert found == [e.value for e in expected], (leaf, together)


def _bounds(files: list[tuple[Any, Any, int | None]], values: list[Any]) -> ColumnBounds:
    """The bounds of files, with a value that proves much in place of one that is not known."""
    known = [np.array([f[i] is not None for f in files]) for i in (0, 1)]
    nulls = np.array([-1 if n is None else n for _, _, n in files], np.int64)
    if values is NUMBERS:
        low, high = (np.array([3 if f[i] is None else f[i] for f in files], np.int64) for i in (0, 1))
        return ColumnBounds(Form.INTEGER, low, high, *known, nulls, False)
    texts = [pa.array([("b" if f[i] is None else f[i]).encode() for f in files], pa.large_binary()) for i in (0, 1)]
    return ColumnBounds(Form.TEXT, *texts, *known, nulls, False)


def test_texts_with_zero_characters_in_a_list() -> None:
    """The texts of a list are encoded together, and zero characters separate them."""
    for listed in (("a\0b", "c"), ("a", "b\0"), ("\0",), ("\0a", "\ud800", "\ud800\0\udc00")):
        for value in ("a", "a\0b", "b", "b\0", "c", "\0", "\0a"):
            stored = pa.array([value.encode()], pa.large_binary())
            known, nulls = np.ones(1, bool), np.zeros(1, np.int64)
            bounds = ColumnBounds(Form.TEXT, stored, stored, known, known, nulls, False)
            (verdict,) = judge_leaf(In("x", tuple(sorted(listed))), bounds, np.full(1, 3)).tolist()
            assert verdict == (ALL if value in listed else NONE).value, (listed, value)


def test_a_maximum_that_was_cut_may_stand_for_longer_texts() -> None:
    # Paimon cuts texts to 16 characters and adds one to the last; "?" is what it leaves where that cannot be encoded.
    cut = {"x": ColumnStats("a", "b?", 0, truncated=True)}
    assert prove(Comparison("x", Op.GT, "b\ud7ff"), cut, 3) is SOME
    assert prove(Comparison("x", Op.GT, "b\ue001"), cut, 3) is NONE
    assert prove(Comparison("x", Op.GT, "b\ue000"), cut, 3) is NONE
    assert prove(Comparison("x", Op.EQ, "b\ue000"), cut, 3) is SOME
    whole = {"x": ColumnStats("a", "b?", 0)}
    assert prove(Comparison("x", Op.GT, "b?"), whole, 3) is NONE


def test_what_unknown_bounds_hold_decides_nothing() -> None:
    """Where a bound is unknown, the arrays may hold anything, such as a text with the prefix."""
    some = pa.array([b"pa"] * 3, pa.large_binary())
    low, high = np.array([False, True, False]), np.array([True, False, False])
    for together in (1, 20):  # few and many are compared in different ways
        arrays = pa.concat_arrays([some] * together)
        bounds = ColumnBounds(
            Form.TEXT,
            arrays,
            arrays,
            np.tile(low, together),
            np.tile(high, together),
            np.zeros(3 * together, int),
            False,
        )
        for leaf in (Like("x", "p%"), Comparison("x", Op.EQ, "pa"), In("x", ("pa", "q"))):
            assert judge_leaf(leaf, bounds, np.full(3 * together, 3)).tolist() == [SOME.value] * 3 * together
    known = np.ones(3, bool)
    both = ColumnBounds(Form.TEXT, some, some, known, known, np.zeros(3, int), False)
    assert judge_leaf(Like("x", "p%"), both, np.full(3, 3)).tolist() == [ALL.value] * 3


def test_a_file_without_rows_has_no_row() -> None:
    none, number = np.zeros(2, np.int64), np.array([1, 5])
    bounds = ColumnBounds(Form.INTEGER, number, number, none == 0, none == 0, none, False)
    assert judge_leaf(Comparison("x", Op.EQ, 1), bounds, np.array([0, 1])).tolist() == [NONE.value, NONE.value]
    assert judge_leaf(Comparison("x", Op.GT, 0), bounds, np.array([0, 1])).tolist() == [NONE.value, ALL.value]


def test_all_and_any_of_nothing() -> None:
    rows = np.array([0, 7])
    for predicate, verdict in ((And(()), ALL), (Or(()), NONE)):
        assert prove(predicate, {}, 7) is verdict and prove(predicate, {}, 0) is NONE
        assert judge(predicate, rows, lambda leaf: np.full(2, SOME.value, np.int8), {}).tolist() == [0, verdict.value]
