"""``m['a']`` in predicates: parsed, bound, judged, printed, and handed on."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

from bitlake.errors import InvalidRequest
from bitlake.expressions.binder import bind
from bitlake.expressions.evaluate import evaluate, filter_table
from bitlake.expressions.parser import parse_predicate
from bitlake.expressions.sql_text import to_sql
from bitlake.expressions.statistics import ColumnStats, Verdict, test_stats
from bitlake.expressions.tree import Comparison, In, IsNull, MapKey, Op, columns_of, sources_of
from bitlake.types import AtomicType, DataField, MapType, Root, RowType

TEXT = AtomicType(Root.VARCHAR, length=2147483647)
FIELDS = (
    DataField(0, "M", MapType(TEXT, TEXT)),
    DataField(1, "days", MapType(TEXT, AtomicType(Root.DATE, nullable=False))),
    DataField(2, "numbered", MapType(AtomicType(Root.INT), TEXT)),
    DataField(3, "s", TEXT),
)
ROWS: list[Any] = [None, [], [("a", "x")], [("b", "x"), ("a", None)], [("b", "y"), ("a", "z")], [("", "e"), ("a", "x")]]


def table(chunked: bool = False) -> pa.Table:
    made = pa.table({"M": pa.array(ROWS, pa.map_(pa.string(), pa.string()))})
    return pa.concat_tables([made.slice(0, 2), made.slice(2, 1), made.slice(3)]) if chunked else made


@pytest.mark.parametrize("text", ["m['a'] = 'x'", "element_at(m, 'a') = 'x'", "'x' = t.m['a']", "(m['a']) = 'x'"])
def test_parsed_and_bound(text: str) -> None:
    bound = bind(parse_predicate(text), FIELDS)
    assert bound == Comparison("M[a]", Op.EQ, "x") and isinstance(bound, Comparison)
    key = bound.column
    assert isinstance(key, MapKey) and (key.column, key.key) == ("M", "a")
    assert columns_of(bound) == {"M[a]"} and sources_of(bound) == {"M"}
    again = pickle.loads(pickle.dumps(bound))
    assert again == bound and again.column.key == "a"
    assert to_sql(bound, FIELDS) == "M['a'] = 'x'"


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("m['a'] = 'x'", [2, 5]),
        ("m['a'] <> 'x'", [4]),
        ("m['a'] IN ('x', 'z')", [2, 4, 5]),
        ("m['a'] NOT IN ('x')", [4]),
        ("m['a'] IS NULL", [0, 1, 3]),
        ("m['a'] IS NOT NULL AND m['b'] = 'y'", [4]),
        ("m[''] = 'e'", [5]),
        ("m['a'] LIKE 'z%' OR m['b'] = 'x'", [3, 4]),
        ("m['a'] > 'x'", [4]),
        ("NOT (m['a'] = 'x')", [4]),
        ("m['none'] = 'x'", []),
    ],
)
@pytest.mark.parametrize("chunked", [False, True])
def test_judged_as_spark_does(text: str, rows: list[int], chunked: bool) -> None:
    bound = bind(parse_predicate(text), FIELDS)
    answers = evaluate(bound, table(chunked), FIELDS).to_pylist()
    assert [i for i, v in enumerate(answers) if v] == rows
    assert filter_table(bound, table(chunked), FIELDS).num_rows == len(rows)


def test_values_of_a_sliced_array_with_nulls_between() -> None:
    rows = [None, [("a", "1")], None, [("c", "2"), ("a", "3")], []] * 50
    whole = pa.table({"M": pa.array(rows, pa.map_(pa.string(), pa.string()))})
    bound = bind(parse_predicate("m['a'] = '3'"), FIELDS)
    for start, length in ((1, 9), (3, 1), (7, 140), (2, 1)):
        want = [dict(r).get("a") == "3" if r and dict(r).get("a") else None for r in rows[start : start + length]]
        assert evaluate(bound, whole.slice(start, length), FIELDS).to_pylist() == want


def test_literals_take_the_values_type() -> None:
    assert bind(parse_predicate("days['a'] > DATE'1970-01-03'"), FIELDS) == Comparison("days[a]", Op.GT, 2)
    assert bind(parse_predicate("days['a'] IN (DATE'1970-01-03')"), FIELDS) in (
        Comparison("days[a]", Op.EQ, 2),
        In("days[a]", (2,)),
    )
    assert to_sql(bind(parse_predicate("days['a'] > DATE'1970-01-03'"), FIELDS), FIELDS) == (
        "days['a'] > DATE '1970-01-03'"
    )
    # A missing key is NULL even where values are NOT NULL.
    assert bind(parse_predicate("days['a'] IS NULL"), FIELDS) == IsNull("days[a]")


@pytest.mark.parametrize("text", ["s['a'] = 'x'", "numbered['a'] = 'x'", "m[1] = 'x'", "m['a']['b'] = 'x'"])
def test_what_is_no_map_of_texts(text: str) -> None:
    with pytest.raises(InvalidRequest):
        bind(parse_predicate(text), FIELDS)


def test_statistics_say_nothing() -> None:
    bound = bind(parse_predicate("m['a'] = 'x'"), FIELDS)
    stats = {"M": ColumnStats(None, None, 6, False), "M[a]": ColumnStats("y", "z", 0, False)}
    assert test_stats(bound, stats, 6) is Verdict.SOME


INSIDE = (DataField(0, "s", RowType((DataField(1, "m", FIELDS[0].type), DataField(2, "n", FIELDS[2].type)))),)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("s.m['a'] = 'x'", [2, 5]),
        ("t.S.M['a'] <> 'x'", [4]),
        ("element_at(s.m, 'a') IN ('x', 'z')", [2, 4, 5]),
        ("s.m['a'] IS NULL", [0, 1, 3, 6]),
        ("NOT (s.m['a'] LIKE 'z%')", [2, 5]),
        ("s.m['b'] = 'y' AND upper(s.m['a']) = 'Z'", [4]),
        ("s.m['a'] < s.m['b']", []),
        ("s.m['a'] > s.m['b']", [4]),
    ],
)
def test_maps_inside_structs(text: str, rows: list[int]) -> None:
    """Bug: scans looked the map up as a column, did not find it, and refused the condition."""
    values = [{"m": m, "n": None} for m in ROWS] + [None]
    kind = pa.struct([("m", pa.map_(pa.string(), pa.string())), ("n", pa.map_(pa.int32(), pa.string()))])
    array = pa.array([None, *values], kind).slice(1)
    bound = bind(parse_predicate(text), INSIDE)
    answers = evaluate(bound, pa.table({"s": array}), INSIDE).to_pylist()
    assert [i for i, v in enumerate(answers) if v] == rows
    assert sources_of(bound) == {"s"}
    assert bind(parse_predicate(to_sql(bound, INSIDE)), INSIDE) == bound


def test_other_members_have_no_text_keys() -> None:
    for text in ("s.n['a'] = 'x'", "upper(s.n['a']) = 'X'"):
        with pytest.raises(InvalidRequest, match=r"'s.n' of type MAP<INT.* is not a map with STRING keys"):
            bind(parse_predicate(text), INSIDE)
