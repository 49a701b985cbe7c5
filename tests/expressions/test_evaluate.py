from __future__ import annotations

import math
import pickle
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from expressions.oracle import truth
from hypothesis import given, settings
from hypothesis import strategies as st
from long import exhaustive, long

from bitlake.errors import InvalidRequest
from bitlake.expressions import evaluate as evaluation
from bitlake.expressions.binder import bind
from bitlake.expressions.evaluate import evaluate, filter_table, physical_array
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


@pytest.mark.parametrize("examples", [30, exhaustive(80), long(200)])
def test_every_row_as_the_oracle_says(examples: int) -> None:
    settings(max_examples=examples, deadline=None)(given(TREES, tables(), st.booleans())(check_each_row))()


def check_each_row(tree: Predicate, data: dict[str, list[Any]], encode: bool) -> None:
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


@pytest.mark.parametrize("examples", [40, exhaustive(100), long(300)])
def test_statistics_never_lie(examples: int) -> None:
    """Law: NONE only where no row is TRUE, ALL only where every row is."""

    @given(TREES, tables(), st.booleans(), st.sets(st.sampled_from(NAMES)))
    @settings(max_examples=examples, deadline=None)
    def run(tree: Predicate, data: dict[str, list[Any]], cut: bool, unknown: set[str]) -> None:
        rows = len(data["i"])
        verdict = prove(tree, {n: _bounds(v, cut) for n, v in data.items() if n not in unknown}, rows)
        answers = [truth(tree, {n: v[r] for n, v in data.items()}) is True for r in range(rows)]
        if verdict is Verdict.NONE:
            assert not any(answers)
        if verdict is Verdict.ALL:
            assert all(answers)

    run()


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


def test_every_row_and_no_row() -> None:
    table = pa.table({"i": pa.array([1, None], pa.int32())})
    for constant, rows in ((True, 2), (False, 0), (None, 0)):
        assert filter_table(Constant(constant), table, FIELDS).num_rows == rows


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("DECIMAL(38, 0)", [0, 10**38 - 1, -(10**38) + 1, -1, 5]),
        ("DECIMAL(20, 2)", [0, 10**20 - 1, -(10**20) + 1, -1, 5]),
        ("DATE", [0, -(2**31), 2**31 - 1, 20000]),
        ("TIME", [0, 86_399_999, 1]),
        ("TIMESTAMP(3)", [0, -1, 2**63 - 1, -(2**63)]),
        ("TIMESTAMP(6)", [0, -1, 2**63 - 1, -(2**63)]),
        ("TIMESTAMP(9) WITH LOCAL TIME ZONE", [0, -1, 2**63 - 1, -(2**63)]),
        ("INT", [0, -(2**31), 2**31 - 1]),
        ("STRING", ["", "a", "b" * 1000, "c" * 1001]),
        ("BYTES", [b"", b"\xff"]),
    ],
)
def test_a_value_equals_itself_alone(kind: str, values: list[Any]) -> None:
    """Also where Python's own dates and times end."""
    field = DataField(0, "c", parse_type(kind))
    given = [*values, None]
    array = physical_array(field, given)
    assert array.type == arrow_type(field.type)
    table = pa.table({"c": array})
    for value in values:
        expected = [v == value if v is not None else None for v in given]
        assert evaluate(Comparison("c", Op.EQ, value), table, [field]).to_pylist() == expected
        assert evaluate(In("c", (value,)), table, [field]).to_pylist() == expected
    assert evaluate(In("c", tuple(values[1:])), table, [field]).to_pylist() == [False, *[True] * (len(given) - 2), None]


def test_physical_values_as_arrow_has_them() -> None:
    made = physical_array(DataField(0, "c", parse_type("DECIMAL(5, 2)")), [-12345, None, 5])
    assert made.to_pylist() == [Decimal("-123.45"), None, Decimal("0.05")] and made.null_count == 1
    for kind, bits in (("DATE", np.int32), ("TIME", np.int32), ("TIMESTAMP(3)", np.int64), ("DATE", np.int64)):
        made = physical_array(DataField(0, "c", parse_type(kind)), np.array([1, 2], bits))
        assert made.cast(pa.int64() if "STAMP" in kind else pa.int32()).to_pylist() == [1, 2]


@pytest.mark.parametrize("name", ["s", "x"])
def test_text_and_binaries_of_any_layout(name: str) -> None:
    plain = ["a", "ab", None] if name == "s" else [b"a", b"ab", None]
    kinds = [pa.string(), pa.large_string(), pa.string_view()]
    if name == "x":
        kinds = [pa.binary(), pa.large_binary(), pa.binary_view()]
    for kind in kinds:
        table = pa.table({name: pa.array(plain, kind)})
        for leaf in (Comparison(name, Op.EQ, plain[0]), In(name, (plain[0], 2 * plain[1]))):
            assert evaluate(leaf, table, FIELDS).to_pylist() == [True, False, None], kind


@pytest.mark.parametrize(("name", "layout"), [("s", pa.large_string()), ("x", pa.large_binary())])
def test_a_column_beyond_2_gib_is_evaluated_as_it_is(name: str, layout: pa.DataType) -> None:
    """Of its bytes only the last are touched: the system hands out the others on demand."""
    offsets = np.array([2**31, 2**31 + 1], np.int64)
    data = np.zeros(2**31 + 1, np.uint8)
    data[-1] = ord("a")
    array = pa.Array.from_buffers(layout, 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    table = pa.table({name: array})
    value: Any = "a" if name == "s" else b"a"
    assert evaluate(Comparison(name, Op.EQ, value), table, FIELDS).to_pylist() == [True]
    assert evaluate(Comparison(name, Op.LT, value), table, FIELDS).to_pylist() == [False]


def test_not_a_number_in_a_list() -> None:
    table = pa.table({"d": pa.array([math.nan, 1.0, 2.0, None])})
    assert evaluate(In("d", (1.0, math.nan)), table, FIELDS).to_pylist() == [True, True, False, None]
    assert evaluate(In("d", (1.0, math.nan), True), table, FIELDS).to_pylist() == [False, False, True, None]
    assert evaluate(In("d", (1.0, 2.0)), table, FIELDS).to_pylist() == [False, True, True, None]


@pytest.mark.parametrize("leaf", [Comparison("s", Op.EQ, "a\ud800"), In("s", ("a\ud800",)), Like("s", "%a\ud800%")])
def test_a_text_with_a_surrogate_is_refused(leaf: Predicate) -> None:
    with pytest.raises(InvalidRequest, match="surrogate"):
        evaluate(leaf, pa.table({"s": ["a"]}), FIELDS)


LONG = {
    "i": [7 * n - 9000 for n in range(3000)],
    "d": [n / 8 for n in range(-1500, 1500)] + [-0.0, float("nan"), float("inf")],
    "f": [n / 8 for n in range(-1500, 1500)] + [-0.0, float("nan"), float("inf")],
    "s": [f"t{n} é" for n in range(3000)],
    "x": [b"%d" % n for n in range(3000)],
    "dec": [10**18 + n for n in range(-1500, 1500)] + [-100, 0],
    "day": list(range(-1500, 1500)),
    "ts": [37 * n for n in range(-1500, 1500)],
    "ns": [10**18 + 37 * n for n in range(-1500, 1500)],
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("negated", [False, True])
@pytest.mark.parametrize("name", LONG)
def test_lists_longer_than_the_rows(name: str, negated: bool) -> None:
    rows = [*LONG[name][::40], *KINDS[name][1], None]
    leaf = In(name, tuple(v + 0.0 if isinstance(v, float) else v for v in LONG[name]), negated)
    for encode in (False, True):
        table = pa.table({name: column(name, rows, encode)})
        expected = [truth(leaf, {name: v}) for v in rows]
        assert evaluate(leaf, table, FIELDS).to_pylist() == expected
        assert evaluate(leaf, table.slice(0, 0), FIELDS).to_pylist() == []


def test_the_values_of_a_list_become_an_array_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file of a scan made an array of 100,000 values, one scalar after another for DECIMAL and TIMESTAMP."""
    leaf = In("ts", tuple(LONG["ts"]))
    table = pa.table({"ts": column("ts", [0, 37, 1])})
    assert evaluate(leaf, table, FIELDS).to_pylist() == [True, True, False]
    monkeypatch.setattr(evaluation, "values_array", None)
    assert evaluate(leaf, table, FIELDS).to_pylist() == [True, True, False]
    assert leaf == In("ts", tuple(LONG["ts"])) and "arrays" not in repr(leaf)
    pickled = pickle.dumps(leaf)
    assert len(pickled) <= len(pickle.dumps(In("ts", tuple(LONG["ts"])))) and pickle.loads(pickled) == leaf
