"""Functions of arrays and maps: NULLs, empty arrays, slices, and what is refused."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from bitlake.errors import InvalidRequest
from bitlake.expressions.binder import bind
from bitlake.expressions.evaluate import evaluate
from bitlake.expressions.parser import parse_predicate
from bitlake.types import DataField, parse_type
from bitlake.types.datatypes import ArrayType, MapType

FIELDS = (
    DataField(0, "tags", ArrayType(parse_type("STRING"))),
    DataField(1, "days", ArrayType(parse_type("DATE"))),
    DataField(2, "m", MapType(parse_type("STRING"), parse_type("INT"))),
    DataField(3, "few", ArrayType(parse_type("TINYINT"))),
    DataField(4, "x", ArrayType(parse_type("DOUBLE"))),
)
DAY = dt.date(2026, 1, 2)
ROWS = pa.table(
    {
        "tags": pa.array([["a", "b"], [], None, ["b", None], [None], ["a", "a"]], pa.list_(pa.string())),
        "days": pa.array([[DAY], [], None, [None], [DAY, DAY], [DAY]], pa.list_(pa.date32())),
        "m": pa.array(
            [[("k", 1)], [], None, [("k", None)], [("x", 1)], [("x", 1), ("k", 2)]], pa.map_(pa.string(), pa.int32())
        ),
        "few": pa.array([[1], [], None, [None, 2], [3], [1, 2]], pa.list_(pa.int8())),
        "x": pa.array([None] * 6, pa.list_(pa.float64())),
    }
)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("array_contains(tags, 'a')", [True, False, None, None, None, True]),
        ("NOT array_contains(tags, 'a')", [False, True, None, None, None, False]),
        ("exists(tags, x -> x = 'a')", [True, False, None, None, None, True]),
        ("exists(tags, x -> 'b' = x)", [True, False, None, True, None, False]),
        ("exists(tags, x -> x IN ('z', 'b'))", [True, False, None, True, None, False]),
        ("arrays_overlap(tags, array('z', 'a'))", [True, False, None, None, None, True]),
        ("array_contains(days, DATE '2026-01-02')", [True, False, None, None, True, True]),
        ("array_contains(few, 2)", [False, False, None, True, False, True]),
        ("map_contains_key(m, 'k')", [True, False, None, True, False, True]),
        ("size(tags) > 0", [True, False, None, True, True, True]),
        ("size(m) = 2", [False, False, None, False, False, True]),
    ],
)
def test_results(condition: str, expected: list[Any]) -> None:
    bound = bind(parse_predicate(condition), FIELDS)
    assert evaluate(bound, ROWS, FIELDS).to_pylist() == expected
    assert evaluate(bound, ROWS.slice(1, 4), FIELDS).to_pylist() == expected[1:5]


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        ("array_contains(tags, 1)", "1 is INT, and the values are STRING"),
        ("array_contains(few, 300)", "300 is INT, and the values are TINYINT"),
        ("array_contains(x, 1.0D)", "in which no constant is looked for"),
        ("array_contains(m, 'k')", "and not an ARRAY"),
        ("array_contains(tags, NULL)", "NULL is not looked for"),
        ("map_contains_key(m, NULL)", "NULL is not looked for"),
        # Spark refuses it; a scan found no rows.
        ("array_contains(split(s, '%'), NULL)", "NULL is not looked for"),
        ("map_contains_key(tags, 'k')", "and not a MAP"),
        ("arrays_overlap(tags, array('a', NULL))", "NULL is not looked for"),
        ("arrays_overlap(tags, 'a')", "takes an array and an array of constants"),
        ("exists(tags, x -> x > 'a')", "only exists"),
        ("exists(tags, x -> x = x)", "only exists|only constants"),
        ("array_contains(tags, tags[0])", "not a constant|none of the functions|only"),
        ("size('a') > 0", "neither an ARRAY nor a MAP"),
    ],
)
def test_what_is_refused(condition: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        bind(parse_predicate(condition), FIELDS)
