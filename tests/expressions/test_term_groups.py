"""Many terms of an OR or AND: together they select the rows that they select one by one."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from expressions.oracle import truth
from expressions.test_evaluate import FIELDS, KINDS, NAMES, _bounds, column
from hypothesis import given, settings
from hypothesis import strategies as st
from long import exhaustive, long

from bitlake.expressions import evaluate as evaluation
from bitlake.expressions import statistics
from bitlake.expressions.evaluate import evaluate
from bitlake.expressions.statistics import ColumnBounds, ColumnStats, Form, NotVectorised, Verdict, judge, judge_leaf
from bitlake.expressions.statistics import test_stats as prove
from bitlake.expressions.term_groups import MANY, Ranges, Tuples, grouped_terms
from bitlake.expressions.tree import And, Comparison, Constant, IsNull, Leaf, Op, Or, Predicate, TupleIn, columns_of

RANGES, NULLS = [Op.LT, Op.LE, Op.GT, Op.GE, Op.EQ, Op.NE], [IsNull(n, negated) for n in NAMES for negated in (0, 1)]


def values(name: str) -> st.SearchStrategy[Any]:
    return st.sampled_from(KINDS[name][1]).map(lambda v: v + 0.0 if isinstance(v, float) else v)


def compared(name: str) -> st.SearchStrategy[Predicate]:
    return st.builds(Comparison, st.just(name), st.sampled_from(RANGES), values(name))


@st.composite
def ranges(draw: st.DrawFn, conjunction: bool) -> list[Predicate]:
    name = draw(st.sampled_from(NAMES))
    one = compared(name)
    two = st.tuples(one, one).map(Or if conjunction else And) | st.tuples(one, one).map(Or)
    return draw(st.lists(one | two, min_size=MANY, max_size=MANY + 6))


@st.composite
def tuples(draw: st.DrawFn, conjunction: bool) -> list[Predicate]:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=2, max_size=3, unique=True))
    safe = conjunction or draw(st.booleans())
    terms: list[Predicate] = []
    for _ in range(draw(st.integers(MANY, MANY + 6))):
        parts: list[Predicate] = []
        for name in draw(st.permutations(names)):
            value = draw(values(name) if not safe else st.none() | values(name))
            if value is None:
                parts.append(IsNull(name, conjunction))
            else:
                parts += [IsNull(name, not conjunction)] * safe
                parts.append(Comparison(name, Op.NE if conjunction else Op.EQ, value))
        terms.append((Or if conjunction else And)(tuple(parts)))
    return terms


@st.composite
def tuple_in(draw: st.DrawFn) -> Predicate:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=2, max_size=3))
    rows = draw(st.lists(st.tuples(*(st.none() | values(n) for n in names)), min_size=1, max_size=8))
    return TupleIn(tuple(names), tuple(zip(*rows, strict=True)), draw(st.booleans()))


@st.composite
def trees(draw: st.DrawFn) -> Predicate:
    conjunction = draw(st.booleans())
    terms = draw(ranges(conjunction) | tuples(conjunction) | tuple_in().map(lambda node: [node]))
    others = draw(st.lists(st.sampled_from(NULLS) | st.just(Constant(conjunction)), max_size=2))
    return (And if conjunction else Or)(tuple(draw(st.permutations(terms + others))))


@st.composite
def tables(draw: st.DrawFn, columns: frozenset[str]) -> dict[str, list[Any]]:
    rows = draw(st.integers(0, 8))
    return {n: [draw(st.none() | st.sampled_from(KINDS[n][1])) for _ in range(rows)] for n in sorted(columns)}


def answers(tree: Predicate, data: dict[str, list[Any]]) -> list[bool]:
    rows = len(next(iter(data.values())))
    return [truth(tree, {n: v[r] for n, v in data.items()}) is True for r in range(rows)]


@pytest.mark.parametrize("examples", [40, exhaustive(120), long(400)])
def test_every_row_as_the_oracle_says(examples: int) -> None:
    @given(st.data(), trees(), st.booleans())
    @settings(max_examples=examples, deadline=None)
    def run(data: st.DataObject, tree: Predicate, encode: bool) -> None:
        rows = data.draw(tables(columns_of(tree)))
        rows = {n: ["?" if v == "z\ud7ff" else v for v in vs] for n, vs in rows.items()}
        whole = pa.table({n: column(n, v, encode) for n, v in rows.items()})
        half = whole.num_rows // 2
        expected = answers(tree, rows)
        for table in (whole, pa.concat_tables([whole.slice(0, half), whole.slice(half)])):
            assert evaluate(tree, table, FIELDS).fill_null(False).to_pylist() == expected

    run()


FORMS = {"d": Form.FLOAT, "f": Form.FLOAT, "s": Form.TEXT, "x": Form.BINARY, "dec": Form.WIDE}


def bounds_of(name: str, stats: list[ColumnStats]) -> ColumnBounds:
    form = FORMS.get(name, Form.INTEGER)

    def ends(found: list[Any]) -> Any:
        if form in (Form.INTEGER, Form.FLOAT):
            return np.array([0 if v is None else v for v in found], np.int64 if form is Form.INTEGER else np.float64)
        return pa.array([b"" if v is None else statistics._literal(v, form) for v in found], pa.large_binary())

    lows, highs = [s.min for s in stats], [s.max for s in stats]
    has = [np.array([v is not None for v in found], bool) for found in (lows, highs)]
    nulls = np.array([-1 if s.null_count is None else s.null_count for s in stats], np.int64)
    return ColumnBounds(form, ends(lows), ends(highs), *has, nulls, any(s.truncated for s in stats))


@pytest.mark.parametrize("examples", [40, exhaustive(120), long(400)])
def test_statistics_prove_at_least_as_much_and_never_lie(examples: int) -> None:
    @given(st.data(), trees(), st.booleans(), st.booleans())
    @settings(max_examples=examples, deadline=None)
    def run(data: st.DataObject, tree: Predicate, cut: bool, unknown: bool) -> None:
        files = [f for f in data.draw(st.lists(tables(columns_of(tree)), min_size=1, max_size=4)) if any(f.values())]
        if not files or any("z\ud7ff" in found for f in files for found in f.values()):
            return  # the raised maximum of such a text is made before
        rows = np.array([len(next(iter(f.values()))) for f in files], np.int64)
        stats = {n: [_bounds(f[n], cut) for f in files] for n in files[0]}
        bounds: dict[str, ColumnBounds | None] = {n: bounds_of(n, s) for n, s in stats.items()}
        if unknown:
            bounds[min(bounds)] = None

        def leaf(leaf: Leaf) -> statistics.Verdicts:
            return judge_leaf(leaf, bounds[leaf.column], rows)

        try:
            verdicts = judge(tree, rows, leaf, bounds).tolist()
        except NotVectorised:
            return
        for i, (file, verdict) in enumerate(zip(files, verdicts, strict=True)):
            true = answers(tree, file)
            assert verdict != Verdict.NONE.value or not any(true)
            assert verdict != Verdict.ALL.value or all(true)
            known = {n: s[i] for n, s in stats.items() if bounds[n] is not None}
            alone = prove(tree, known, int(rows[i]))
            assert verdict == alone.value or alone is Verdict.SOME

    run()


def test_a_file_of_nulls_has_no_tuple_with_nan() -> None:
    pairs = Or(tuple(And((Comparison("i", Op.EQ, n), Comparison("d", Op.EQ, math.nan))) for n in range(99)))
    stats = {"i": [ColumnStats(1, 1, 0)] * 2, "d": [ColumnStats(None, None, 3), ColumnStats(None, None, 2)]}
    bounds: dict[str, ColumnBounds | None] = {n: bounds_of(n, s) for n, s in stats.items()}
    found = judge(pairs, np.array([3, 3]), lambda leaf: pytest.fail(f"{leaf} is judged by itself"), bounds)
    assert found.tolist() == [Verdict.NONE.value, Verdict.SOME.value]


MANY_OF = range(99)


@pytest.mark.parametrize(
    ("tree", "kinds"),
    [
        (
            Or(tuple(And((Comparison("k", Op.GE, 9 * i), Comparison("k", Op.LE, 9 * i + 3))) for i in range(99))),
            [Ranges],
        ),
        (
            And(tuple(Or((Comparison("k", Op.LT, 9 * i), Comparison("k", Op.GT, 9 * i + 3))) for i in range(99))),
            [Ranges],
        ),
        (Or(tuple(And((Comparison("a", Op.EQ, i), Comparison("c", Op.EQ, i % 7))) for i in range(99))), [Tuples]),
        (Or(tuple(Comparison(f"c{i}", Op.GT, 5) for i in range(20))), [Comparison] * 20),
        (Or(tuple(Comparison("k", Op.GT, i) for i in range(MANY - 1))), [Comparison] * (MANY - 1)),
    ],
)
def test_like_terms_are_one_group(tree: And | Or, kinds: list[type]) -> None:
    assert [type(g) for g in grouped_terms(tree)] == kinds
    assert grouped_terms(tree) is grouped_terms(tree)
    assert pickle.loads(pickle.dumps(tree)) == tree


def test_no_term_is_evaluated_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    leaf: Callable[..., Any] = evaluation._leaf

    def only_ranges(node: Any, *rest: Any) -> Any:
        assert type(node) is Ranges, "a term is evaluated by itself"
        return leaf(node, *rest)

    monkeypatch.setattr(evaluation, "_leaf", only_ranges)
    rows = pa.table({"i": pa.array([None, *range(200)], pa.int32()), "d": [None, *(float(n % 10) for n in range(200))]})
    pairs = tuple(And((Comparison("i", Op.EQ, n), Comparison("d", Op.EQ, float(n % 9)))) for n in range(100))
    between = tuple(And((Comparison("i", Op.GE, 20 * n), Comparison("i", Op.LT, 20 * n + 2))) for n in range(100))
    expected = sum((n < 100 and n % 9 == n % 10) or n % 20 < 2 for n in range(200))
    assert evaluate(Or(pairs + between), rows, FIELDS).true_count == expected
    above = Or(tuple(Comparison("d", Op.GT, v) for v in [*map(float, range(100, 120)), math.nan]))
    found = evaluate(above, pa.table({"d": [math.nan, 100.0, 101.0, None]}), FIELDS)
    assert found.to_pylist() == [True, False, True, None]
