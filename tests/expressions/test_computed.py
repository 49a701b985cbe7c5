"""Computed leaves: tests of whole rows, which only evaluation decides and which no metadata prunes by."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bitlake.errors import InvalidRequest
from bitlake.expressions.binder import bind
from bitlake.expressions.evaluate import evaluate, filter_table
from bitlake.expressions.parser import parse_predicate
from bitlake.expressions.sql_text import to_sql
from bitlake.expressions.statistics import ColumnStats, Verdict, judge, test_stats
from bitlake.expressions.tree import (
    FALSE,
    TRUE,
    And,
    Comparison,
    Computed,
    IsNull,
    MapKey,
    Not,
    Op,
    Or,
    Predicate,
    columns_of,
    computed_tests,
    conjuncts,
    has_computed,
    leaves_of,
    sources_of,
    terms_on,
)
from bitlake.schema.evolution import map_fields, map_predicate
from bitlake.tools.scan_log import ScanTerm, condition_text, terms_of
from bitlake.types import DataField, parse_type

FIELDS = [DataField(0, "a", parse_type("INT")), DataField(1, "b", parse_type("INT"))]
ROWS = pa.table({"a": pa.array([1, 6, None, 8, 9], pa.int32()), "b": pa.array([1, 2, 3, 0, 3], pa.int32())})


@dataclass(frozen=True, slots=True)
class Divides:
    """``a % b = 0``; a zero is an error."""

    shown: bool = True

    @property
    def columns(self) -> frozenset[str]:
        return frozenset(("a", "b"))

    def bound(self, fields: Sequence[DataField], timezone: str, negated: bool) -> Predicate:
        if not self.columns <= {f.name for f in fields}:
            raise InvalidRequest("no such columns")
        return Computed(self, negated)

    def mask(self, table: pa.Table, fields: Sequence[DataField]) -> pa.BooleanArray:
        assert table.column_names == [f.name for f in fields] == ["a", "b"]
        a, b = (table.column(n).combine_chunks().cast(pa.int64()) for n in ("a", "b"))
        try:
            whole = pc.divide_checked(a, b)
        except pa.ArrowInvalid as e:
            raise InvalidRequest("division by zero") from e
        return pc.equal(pc.subtract(a, pc.multiply(whole, b)), 0)

    def sql(self) -> str | None:
        return "a % b = 0" if self.shown else None


TEST = Divides()
NOT_ZERO = Comparison("b", Op.NE, 0)


def test_its_columns_are_those_of_the_predicate() -> None:
    tree = And((Computed(TEST), Or((IsNull("c"), Comparison(MapKey("m", "k"), Op.EQ, 1)))))
    assert columns_of(tree) == {"a", "b", "c", "m[k]"}
    assert sources_of(tree) == {"a", "b", "c", "m"}
    assert terms_on(tree, ["a", "b"]) == (Computed(TEST),)
    assert terms_on(tree, ["a"]) == ()


def test_it_is_no_leaf_about_one_column() -> None:
    tree = And((NOT_ZERO, Computed(TEST)))
    assert leaves_of(tree) == [NOT_ZERO]
    assert conjuncts(tree) == (NOT_ZERO, Computed(TEST))
    assert computed_tests(Not(tree)) == (TEST,)
    assert has_computed(tree) and not has_computed(NOT_ZERO)


def test_it_is_a_value() -> None:
    leaf = Computed(TEST, negated=True)
    assert pickle.loads(pickle.dumps(leaf)) == leaf
    assert len({leaf, Computed(Divides(), True), Computed(TEST)}) == 2


def test_binding_pushes_not_into_it() -> None:
    assert bind(Computed(TEST), FIELDS) == Computed(TEST)
    assert bind(Not(And((Computed(TEST), NOT_ZERO))), FIELDS) == Or(
        (Computed(TEST, negated=True), Comparison("b", Op.EQ, 0))
    )
    assert bind(Not(Computed(TEST, negated=True)), FIELDS) == Computed(TEST)
    with pytest.raises(InvalidRequest, match="no such columns"):
        bind(Computed(TEST), FIELDS[:1])
    assert bind(Computed(TEST), FIELDS[:1], on_unsupported="true") == TRUE


def test_it_is_printed_as_its_test() -> None:
    assert to_sql(And((NOT_ZERO, Computed(TEST)))) == "b <> 0 AND a % b = 0"
    assert to_sql(Or((NOT_ZERO, Computed(TEST, True)))) == "b <> 0 OR NOT (a % b = 0)"
    assert to_sql(Computed(Divides(shown=False))) == "Divides(shown=False)"


def test_statistics_prove_nothing_of_it() -> None:
    stats = {"a": ColumnStats(1, 1, 0), "b": ColumnStats(1, 1, 0)}
    assert test_stats(Computed(TEST), stats, 3) is Verdict.SOME
    assert test_stats(Computed(TEST, True), stats, 3) is Verdict.SOME
    assert test_stats(And((Computed(TEST), Comparison("a", Op.EQ, 2))), stats, 3) is Verdict.NONE
    assert test_stats(Or((Computed(TEST), Comparison("a", Op.EQ, 1))), stats, 3) is Verdict.ALL
    rows = np.array([0, 3], np.int64)
    assert judge(Computed(TEST), rows, lambda leaf: pytest.fail(f"{leaf} is not asked"), {}).tolist() == [0, 1]


def test_a_file_of_another_schema_is_not_pruned_by_it() -> None:
    old = [DataField(0, "x", parse_type("INT")), FIELDS[1]]
    mapped = map_predicate(And((Computed(TEST), NOT_ZERO)), FIELDS, map_fields(FIELDS, old))
    assert mapped.predicate == And((NOT_ZERO,))
    assert not mapped.exact


def test_evaluation_is_three_valued_and_sees_only_undecided_rows() -> None:
    both = bind(And((Computed(TEST), NOT_ZERO)), FIELDS)
    assert evaluate(both, ROWS, FIELDS).to_pylist() == [True, True, None, False, True]
    other = bind(Not(And((Computed(TEST), NOT_ZERO))), FIELDS)
    assert evaluate(other, ROWS, FIELDS).to_pylist() == [False, False, None, True, False]
    either = bind(Or((Computed(TEST), Comparison("b", Op.EQ, 0))), FIELDS)
    assert evaluate(either, ROWS, FIELDS).to_pylist() == [True, True, None, True, True]
    nested = bind(And((Or((Computed(TEST), IsNull("a"))), NOT_ZERO, Comparison("a", Op.GT, 6))), FIELDS)
    assert evaluate(nested, ROWS, FIELDS).to_pylist() == [False, False, None, False, True]
    with pytest.raises(InvalidRequest, match="division by zero"):
        evaluate(Computed(TEST), ROWS, FIELDS)


def test_evaluation_of_no_rows_and_of_chunks() -> None:
    none = ROWS.slice(0, 0)
    assert evaluate(And((NOT_ZERO, Computed(TEST))), none, FIELDS).to_pylist() == []
    assert filter_table(Computed(TEST), none, FIELDS).num_rows == 0
    chunks = pa.concat_tables([ROWS.slice(0, 3), ROWS.slice(4)])
    assert evaluate(Computed(TEST, True), chunks, FIELDS).to_pylist() == [False, False, None, False]
    batch = ROWS.slice(0, 2).to_batches()[0]
    assert evaluate(Computed(TEST), batch, FIELDS).to_pylist() == [True, True]
    assert evaluate(And((FALSE, Computed(TEST))), ROWS, FIELDS).to_pylist() == [False] * 5


def test_the_log_of_scans_names_its_columns_and_keeps_what_can_be_read_again() -> None:
    tree = And((NOT_ZERO, Computed(TEST, True)))
    assert terms_of(tree) == (ScanTerm("b", "<>"), ScanTerm("a", "computed"), ScanTerm("b", "computed"))
    assert condition_text(tree, FIELDS) == "b <> 0 AND NOT (a % b = 0)"
    assert condition_text(Computed(Divides(shown=False)), FIELDS) is None


def test_null_tests_of_constants_are_decided_at_once() -> None:
    # A scan evaluated them over a table without columns, which has no rows.
    for text, expected in {
        "abs(-3) IS NOT NULL": TRUE,
        "(12 % -7) IS NULL": FALSE,
        "nullif(1, 1) IS NULL": TRUE,
    }.items():
        assert bind(parse_predicate(text), FIELDS) == expected, text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a <= 9223372036854775808", TRUE),
        ("a < 9223372036854775808.5", TRUE),
        ("a > 9223372036854775808", FALSE),
        ("a >= -9223372036854775809", TRUE),
        ("a < -9223372036854775808.1", FALSE),
        ("NOT (a >= 9223372036854775808)", TRUE),
        ("a <= 9223372036854775807", IsNull("a", True)),
        ("a >= -9223372036854775808", IsNull("a", True)),
        ("a = 9223372036854775808", FALSE),
    ],
)
def test_spark_answers_for_null_where_a_literal_lies_beyond_bigint(text: str, expected: Predicate) -> None:
    assert bind(parse_predicate(text), FIELDS) == expected
