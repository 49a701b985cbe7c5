from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from expressions.oracle import truth
from hypothesis import given, settings
from hypothesis import strategies as st

from bitlake.errors import InvalidRequest
from bitlake.expressions.binder import bind
from bitlake.expressions.evaluate import evaluate, filter_table
from bitlake.expressions.parser import parse_predicate
from bitlake.expressions.statistics import ColumnStats, Verdict
from bitlake.expressions.statistics import test_stats as prove
from bitlake.expressions.tree import And, Comparison, Constant, In, IsNull, Like, Op, Or, Predicate
from bitlake.types import DataField, arrow_type, parse_type

FLOATS = [float("nan"), -0.0, 0.0, 1.5, -1.5, float("inf"), float("-inf")]
TEXTS = ["", "a", "ab", "b%", "a_b", "ä", "\U0001f600", "a\nb", "?", "z\ud7ff"]
KINDS: dict[str, tuple[str, list[Any]]] = {
    "i": ("INT", [-2, -1, 0, 1, 2, 2**31 - 1]),
    "d": ("DOUBLE", FLOATS),
    "f": ("FLOAT", FLOATS),
    "s": ("STRING", TEXTS),
    "b": ("BOOLEAN", [True, False]),
    "x": ("BYTES", [b"", b"\x00", b"\xff", b"a"]),
    "dec": ("DECIMAL(20, 2)", [-100, 0, 5, 10**19]),
    "day": ("DATE", [-1, 0, 18000]),
    "ts": ("TIMESTAMP(6)", [-1, 0, 1, 10**15]),
    "ns": ("TIMESTAMP(9) WITH LOCAL TIME ZONE", [-1, 0, 1, 10**18 + 1]),
}
FIELDS = [DataField(i, n, parse_type(k)) for i, (n, (k, _)) in enumerate(KINDS.items())]
NAMES = list(KINDS)


def column(name: str, values: list[Any], encode: bool = False) -> pa.Array:
    kind = arrow_type(next(f.type for f in FIELDS if f.name == name))
    if pa.types.is_decimal(kind):
        from decimal import Decimal

        made = pa.array([None if v is None else Decimal(v).scaleb(-2) for v in values], kind)
    elif pa.types.is_date32(kind):
        made = pa.array(values, pa.int32()).cast(kind)
    elif pa.types.is_timestamp(kind):
        made = pa.array(values, pa.int64()).cast(kind)
    else:
        made = pa.array(values, kind)
    return made.dictionary_encode() if encode else made


@st.composite
def leaves(draw: st.DrawFn) -> Predicate:
    name = draw(st.sampled_from(NAMES))
    value = st.sampled_from(KINDS[name][1]).map(lambda v: v + 0.0 if isinstance(v, float) else v)
    negated = draw(st.booleans())
    which = draw(st.integers(0, 3))
    if which == 0:
        return IsNull(name, negated)
    if which == 1:
        distinct = list({repr(v): v for v in draw(st.lists(value, min_size=1, max_size=4))}.values())
        plain = sorted(v for v in distinct if v == v)
        return In(name, tuple(plain + [v for v in distinct if v != v]), negated)
    if which == 2 and name == "s":
        return Like(name, draw(st.sampled_from(["a%", "%b", "%a%", "a_b", "_", "%", "a\\_b", "ä%", "z%"])), negated)
    return Comparison(name, draw(st.sampled_from(list(Op))), draw(value))


TREES = st.recursive(
    leaves() | st.sampled_from([Constant(True), Constant(False), Constant(None)]),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda c: And(tuple(c)))
        | st.lists(inner, max_size=3).map(lambda c: Or(tuple(c)))
    ),
    max_leaves=6,
)


@st.composite
def tables(draw: st.DrawFn) -> dict[str, list[Any]]:
    rows = draw(st.integers(0, 6))
    return {n: [draw(st.none() | st.sampled_from(v)) for _ in range(rows)] for n, (_, v) in KINDS.items()}


@given(TREES, tables(), st.booleans())
@settings(max_examples=200, deadline=None)
def test_every_row_as_the_oracle_says(tree: Predicate, data: dict[str, list[Any]], encode: bool) -> None:
    data = {n: ["?" if v == "z\ud7ff" else v for v in vs] for n, vs in data.items()}
    rows = len(data["i"])
    whole = pa.table({n: column(n, v, encode) for n, v in data.items()})
    split = pa.concat_tables([whole.slice(0, rows // 2), whole.slice(rows // 2)])
    expected = [truth(tree, {n: v[r] for n, v in data.items()}) for r in range(rows)]
    for table in (whole, split):
        made = evaluate(tree, table, FIELDS)
        assert isinstance(made, pa.BooleanArray)
        assert made.to_pylist() == expected
    assert filter_table(tree, whole, FIELDS).num_rows == sum(e is True for e in expected)


def _bounds(values: list[Any], cut: bool) -> ColumnStats:
    known = [v for v in values if v is not None]
    nulls = len(values) - len(known)
    numbers = [v for v in known if not (isinstance(v, float) and math.isnan(v))]
    if not numbers:
        return ColumnStats(None, None, nulls)
    low, high = min(numbers), max(numbers)
    if cut and isinstance(low, str):
        high = high[:-1] + "?" if high.endswith("\ud7ff") else high + "x"
        return ColumnStats(low[:1], high, nulls, True)
    if cut and isinstance(low, bytes):
        return ColumnStats(low[:1], high + b"\x01", nulls, True)
    return ColumnStats(low, high, nulls)


@given(TREES, tables(), st.booleans(), st.sets(st.sampled_from(NAMES)))
@settings(max_examples=300, deadline=None)
def test_statistics_never_lie(tree: Predicate, data: dict[str, list[Any]], cut: bool, unknown: set[str]) -> None:
    """Law: NONE only where no row is TRUE, ALL only where every row is."""
    rows = len(data["i"])
    verdict = prove(tree, {n: _bounds(v, cut) for n, v in data.items() if n not in unknown}, rows)
    answers = [truth(tree, {n: v[r] for n, v in data.items()}) is True for r in range(rows)]
    if verdict is Verdict.NONE:
        assert not any(answers)
    if verdict is Verdict.ALL:
        assert all(answers)


def test_long_lists_are_one_kernel() -> None:
    table = pa.table({"i": pa.array([None, *range(10_000)], pa.int32())})
    text = f"i IN ({', '.join(str(v) for v in range(0, 10_000, 2))})"
    assert filter_table(bind(parse_predicate(text), FIELDS), table, FIELDS).num_rows == 5000


def test_types_that_hold_the_same_values() -> None:
    for kind in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())):
        table = pa.table({"s": pa.array(["a", "ab", None], pa.string()).cast(kind)})
        for tree in (Comparison("s", Op.EQ, "a"), In("s", ("a", "b")), Like("s", "a")):
            assert evaluate(tree, table, FIELDS).to_pylist() == [True, False, None]
    table = pa.table({"i": pa.array([1, None], pa.int64())})
    assert evaluate(Comparison("i", Op.EQ, 1), table, FIELDS).to_pylist() == [True, None]
    batch = pa.record_batch({"i": pa.array([1, None], pa.int32())})
    assert evaluate(Comparison("i", Op.NE, 1), batch, FIELDS).to_pylist() == [False, None]


def test_missing_column() -> None:
    with pytest.raises(InvalidRequest, match="no column 's'"):
        evaluate(IsNull("s"), pa.table({"i": pa.array([1])}), FIELDS)


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_nan_is_the_greatest_number_and_equals_itself(kind: pa.DataType) -> None:
    """As in Spark, against numbers as well as against itself; NULL is neither."""
    name = "f" if kind == pa.float32() else "d"
    values = [-math.inf, 0.0, math.inf, math.nan, None]
    table = pa.table({name: pa.array(values, kind)})
    nothing = [False, False, False]
    for op, expected in {
        Op.EQ: [*nothing, True, None],
        Op.NE: [True, True, True, False, None],
        Op.LT: [True, True, True, False, None],
        Op.LE: [True, True, True, True, None],
        Op.GT: [*nothing, False, None],
        Op.GE: [*nothing, True, None],
    }.items():
        assert evaluate(Comparison(name, op, math.nan), table, FIELDS).to_pylist() == expected, op
    assert evaluate(Comparison(name, Op.GT, 0.0), table, FIELDS).to_pylist() == [False, False, True, True, None]
    assert evaluate(Comparison(name, Op.LE, 0.0), table, FIELDS).to_pylist() == [True, True, False, False, None]
