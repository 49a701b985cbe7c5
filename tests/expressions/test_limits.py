"""Limits of expressions, from both sides: the last value that is accepted, and the first that is not."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bitlake.errors import EvaluationFailed, InvalidRequest
from bitlake.expressions.assignment import new_values
from bitlake.expressions.binder import bind
from bitlake.expressions.evaluate import evaluate
from bitlake.expressions.parser import parse_predicate, parse_term
from bitlake.expressions.spark_dialect import caret, literal
from bitlake.expressions.sql_text import to_sql
from bitlake.expressions.statistics import ColumnBounds, Form, NotVectorised, judge_leaf
from bitlake.expressions.term_binder import KERNELS, TermBinder
from bitlake.expressions.terms import evaluate_term
from bitlake.expressions.tree import FALSE, And, Comparison, In, Op, Or
from bitlake.types import DataField, parse_type
from bitlake.types.arrow import arrow_type
from bitlake.types.time_zone import stored_times

TYPES = {
    "i": "INT",
    "y": "TINYINT",
    "b": "BIGINT",
    "f": "FLOAT",
    "x": "DOUBLE",
    "d": "DATE",
    "n": "TIMESTAMP(6)",
    "s": "STRING",
    "s3": "VARCHAR(3)",
    "v": "BYTES",
    "t": "TIMESTAMP(9)",
    "m": "TIMESTAMP(3)",
    "p1": "DECIMAL(3, 1)",
    "p2": "DECIMAL(7, 5)",
    "p3": "DECIMAL(12, 0)",
    "p4": "DECIMAL(10, 10)",
    "p15": "DECIMAL(15, 2)",
    "p16": "DECIMAL(16, 2)",
    "p18": "DECIMAL(18, 2)",
    "p19": "DECIMAL(19, 2)",
    "p38": "DECIMAL(38, 2)",
    "ts": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
}
FIELDS = [DataField(i, name, parse_type(kind)) for i, (name, kind) in enumerate(TYPES.items())]


def value(sql: str, **columns: pa.Array) -> Any:
    """The value of a term in the first row of some columns."""
    term = TermBinder(FIELDS, "UTC").bind(parse_term(sql, "UTC"))
    return evaluate_term(term, columns, 1, KERNELS)[0].as_py()


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("2147483647", "INT"),
        ("-2147483648", "INT"),
        ("2147483648", "BIGINT"),
        ("-2147483649", "BIGINT"),
        ("9223372036854775807", "BIGINT"),
        ("9223372036854775808", "DECIMAL(19, 0)"),
        ("1.50", "DECIMAL(3, 2)"),
        ("0.001", "DECIMAL(3, 3)"),
    ],
)
def test_numbers_have_the_smallest_type_that_holds_them(sql: str, expected: str) -> None:
    assert str(TermBinder(FIELDS, "UTC").bind(parse_term(sql, "UTC")).type) == expected


@pytest.mark.parametrize("operator", ["+", "-", "*", "/"])
@pytest.mark.parametrize("right", ["p1", "p2", "p3", "p4"])
@pytest.mark.parametrize("left", ["p1", "p2", "p3", "p4"])
def test_decimals_have_the_digits_of_spark_s_rules(left: str, right: str, operator: str) -> None:
    """The table in Spark's ``DecimalPrecisionTypeCoercion``, for results of up to 38 digits."""
    (p1, s1), (p2, s2) = (map(int, TYPES[n][8:-1].split(", ")) for n in (left, right))
    precision, scale = {
        "+": (max(s1, s2) + max(p1 - s1, p2 - s2) + 1, max(s1, s2)),
        "-": (max(s1, s2) + max(p1 - s1, p2 - s2) + 1, max(s1, s2)),
        "*": (p1 + p2 + 1, s1 + s2),
        "/": (p1 - s1 + s2 + max(6, s1 + p2 + 1), max(6, s1 + p2 + 1)),
    }[operator]
    term, binder = parse_term(f"{left} {operator} {right}", "UTC"), TermBinder(FIELDS, "UTC")
    if operator == "/" and precision > 18:
        with pytest.raises(InvalidRequest, match="more than 18 digits"):
            binder.bind(term)
        return
    found = binder.bind(term)
    assert str(found.type) == f"DECIMAL({precision}, {scale})"


@pytest.mark.parametrize(
    ("sql", "given", "expected"),
    [
        ("CAST(x AS INT)", 2147483647.9, 2147483647),
        ("CAST(x AS INT)", -2147483648.9, -2147483648),
        ("CAST(x AS INT)", 2147483648.0, None),
        ("CAST(x AS INT)", -2147483649.0, None),
        ("CAST(x AS TINYINT)", 127.5, 127),
        ("CAST(x AS TINYINT)", 128.0, None),
        ("CAST(x AS BIGINT)", 9223372036854774784.0, 9223372036854774784),
        ("CAST(x AS BIGINT)", 9223372036854775808.0, None),
        ("CAST(x AS BIGINT)", -9223372036854775808.0, -(2**63)),
        ("CAST(s AS INT)", "2147483647", 2147483647),
        ("CAST(s AS INT)", "-2147483648", -2147483648),
        ("CAST(s AS INT)", "2147483648", None),
        ("CAST(s AS TINYINT)", "127", 127),
        ("CAST(s AS TINYINT)", "-129", None),
        ("i + 1", 2147483646, 2147483647),
        ("i + 1", 2147483647, None),
        ("i * 2", -1073741824, -2147483648),
        ("i * 2", 1073741824, None),
        ("-y", 127, -127),
        ("-y", -128, None),
        ("abs(b)", -(2**63) + 1, 2**63 - 1),
        ("abs(b)", -(2**63), None),
    ],
)
def test_a_number_that_does_not_fit_is_an_error(sql: str, given: Any, expected: int | None) -> None:
    name = next(c for c in sql.replace("CAST", "").replace("abs", "") if c in "xiybs")
    kinds = {"s": pa.string(), "x": pa.float64(), "i": pa.int32(), "y": pa.int8(), "b": pa.int64()}
    row = {name: pa.array([given], kinds[name])}
    if expected is None:
        with pytest.raises(EvaluationFailed):
            value(sql, **row)
    else:
        assert value(sql, **row) == expected


def test_days_beyond_four_bytes_are_an_error() -> None:
    row = {"d": pa.array([0, None], pa.int32()).cast(pa.date32()), "i": pa.array([2**31 - 1, 1], pa.int32())}
    term = TermBinder(FIELDS, "UTC").bind(parse_term("date_add(d, i)", "UTC"))
    assert evaluate_term(term, row, 2, KERNELS).cast(pa.int32()).to_pylist() == [2**31 - 1, None]
    row["d"] = pa.array([1, None], pa.int32()).cast(pa.date32())
    with pytest.raises(EvaluationFailed):
        evaluate_term(term, row, 2, KERNELS)


@pytest.mark.parametrize(
    ("accepted", "refused"),
    [
        ("i = CAST('1234567890' AS DECIMAL)", "i = CAST('12345678901' AS DECIMAL)"),
        ("i = CAST(100 AS INT) + CAST(100 AS INT)", "i = CAST(100 AS TINYINT) + CAST(100 AS TINYINT)"),
        ("i = 2147483646 + 1", "i = 2147483647 + 1"),
        ("CAST(i AS BOOLEAN)", "CAST(i AS DATE) IS NULL"),
        ("CAST(p15 AS DOUBLE) > 1", "CAST(p16 AS DOUBLE) > 1"),
        ("CAST(p18 AS INT) > 1", "CAST(p19 AS INT) > 1"),
        # 1.00000005 is 0.42 steps of a FLOAT above 1, 1.00000006 is 0.503.
        ("f = CAST('1.00000005' AS FLOAT)", "f = CAST('1.000000059604644775390625' AS FLOAT)"),
        ("x = '1.5'", "x = 'one'"),
        ("f = '1.5'", "f = '0.1'"),
        ("f = 16777216", "f = 16777217"),
        ("f > '1.5'", "f > 'x'"),
        ("CAST(s AS STRING) = '1'", "TRY_CAST(s AS INT) = 1"),
        ("n IN ('2026-01-01 00:00:00', '2026-01-02 01:30:00.5')", "n IN ('2026-01-01 00:00:00', 'x')"),
        ("n IN ('2026-01-01 00:00:00', '2026-01-02 00:00:00')", "n IN ('2026-01-01 00:00:00', '2026-01-02 00:00:00Z')"),
        ("d IN ('2026-01-05', '2026-01-06')", "d IN ('2026-01-05', '2026-1-6')"),
        ("d IN ('2026-01-05', '2026-01-06')", "d IN ('2026-01-05', 'x')"),
        ("i IN ('7', '8')", "i IN ('7', '08')"),
        ("d = date_add(DATE '2026-01-05', 3)", "d = date_add(DATE '2026-01-05', 1.5)"),
    ],
)
def test_constants_are_taken_as_far_as_their_meaning_is_certain(accepted: str, refused: str) -> None:
    bind(parse_predicate(accepted, "UTC"), FIELDS, "UTC")
    with pytest.raises(InvalidRequest):
        bind(parse_predicate(refused, "UTC"), FIELDS, "UTC")


@pytest.mark.parametrize(
    ("given", "sql"),
    [
        (dt.timedelta(0), "INTERVAL '0 00:00:00.000000' DAY TO SECOND"),
        (dt.timedelta(microseconds=-1), "INTERVAL '-0 00:00:00.000001' DAY TO SECOND"),
        (dt.timedelta(days=1), "INTERVAL '1 00:00:00.000000' DAY TO SECOND"),
        (dt.timedelta(days=400_000), "INTERVAL '400000 00:00:00.000000' DAY TO SECOND"),
        (
            dt.timedelta(days=2, hours=23, minutes=59, seconds=58, microseconds=7),
            "INTERVAL '2 23:59:58.000007' DAY TO SECOND",
        ),
        (dt.date(2026, 1, 5), "DATE '2026-01-05'"),
    ],
)
def test_parameters_are_written_as_literals(given: object, sql: str) -> None:
    assert literal(given) == sql


def test_a_text_is_as_long_as_its_column() -> None:
    rows = pa.table({"s": ["ab", None, "abc"], "s3": ["x", "y", "z"]})
    made = new_values({"s3": parse_term("upper(s)", "UTC")}, FIELDS, "UTC")["s3"]
    assert made(rows).to_pylist() == ["AB", None, "ABC"]
    assert made(pa.table({"s": pa.array([None], pa.string()), "s3": ["z"]})).to_pylist() == [None]
    with pytest.raises(EvaluationFailed, match="length 4"):
        made(pa.table({"s": ["abcd"], "s3": ["z"]}))


def test_whole_decimals_are_compared_with_whole_numbers() -> None:
    rows = pa.table({"p3": pa.array([5, 50, None], pa.decimal128(12, 0))})
    bound = bind(parse_predicate("p3 = 5", "UTC"), FIELDS, "UTC")
    assert evaluate(bound, rows, FIELDS).to_pylist() == [True, False, None]


def test_zeros_of_either_sign_are_equal() -> None:
    rows = pa.table({"x": [0.0, -0.0, 1.0, None]})
    for zero in (0.0, -0.0):
        for leaf in (In("x", (zero, 2.0)), Comparison("x", Op.EQ, zero)):
            assert evaluate(leaf, rows, FIELDS).to_pylist() == [True, True, False, None]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("coalesce(d, n)", "TIMESTAMP(6)"),
        ("coalesce(n, d)", "TIMESTAMP(6)"),
        ("coalesce(d, ts)", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
        ("coalesce(ts, n)", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
        ("coalesce(d, d)", "DATE"),
        ("greatest(n, n)", "TIMESTAMP(6)"),
        ("coalesce(y, i, b)", "BIGINT"),
        ("coalesce(f, f)", "FLOAT"),
        ("coalesce(b, f)", "DOUBLE"),
    ],
)
def test_several_values_have_the_widest_type(sql: str, expected: str) -> None:
    assert str(TermBinder(FIELDS, "UTC").bind(parse_term(sql, "UTC")).type) == expected


@pytest.mark.parametrize("sql", ["coalesce(d, s)", "coalesce(i, d)", "greatest(o, i)", "coalesce(n, i)"])
def test_values_of_unlike_types_are_refused(sql: str) -> None:
    fields = [*FIELDS, DataField(99, "o", parse_type("BOOLEAN"))]
    with pytest.raises(InvalidRequest, match="cast one of them"):
        TermBinder(fields, "UTC").bind(parse_term(sql, "UTC"))


def test_texts_and_bytes_with_long_offsets() -> None:
    for name, of_column, plain in (("s", pa.large_string(), "a"), ("v", pa.large_binary(), b"a")):
        rows = pa.table({name: pa.array([plain, plain * 2, None], of_column)})
        for leaf in (Comparison(name, Op.EQ, plain), In(name, (plain, plain * 3))):
            assert evaluate(leaf, rows, FIELDS).to_pylist() == [True, False, None]


def test_a_caret_stands_below_its_character() -> None:
    assert caret("ab\ncd", 0) == "line 1, column 1\n  ab\n  ^"
    assert caret("ab\ncd", 4) == "line 2, column 2\n  cd\n   ^"
    assert caret("\nab", 1) == "line 2, column 1\n  ab\n  ^"
    assert caret("ab", 9) == "line 1, column 3\n  ab\n    ^"


def test_brackets_are_printed_where_they_change_the_meaning() -> None:
    a, b, c = (Comparison("i", Op.EQ, i) for i in range(3))
    assert to_sql(And((And((a, b)), c)), FIELDS) == "i = 0 AND i = 1 AND i = 2"
    assert to_sql(Or((Or((a, b)), c)), FIELDS) == "i = 0 OR i = 1 OR i = 2"
    assert to_sql(Or((And((a, b)), c)), FIELDS) == "i = 0 AND i = 1 OR i = 2"
    assert to_sql(And((Or((a, b)), c)), FIELDS) == "(i = 0 OR i = 1) AND i = 2"


@pytest.mark.parametrize("literal_", [2**63, -(2**63) - 1, 1.5, "a"])
def test_literals_that_eight_bytes_do_not_hold_are_compared_one_by_one(literal_: Any) -> None:
    known, number = np.ones(2, bool), np.array([0, 5])
    bounds = ColumnBounds(Form.INTEGER, number, number, known, known, np.zeros(2, np.int64), False)
    with pytest.raises(NotVectorised):
        judge_leaf(Comparison("b", Op.EQ, literal_), bounds, np.ones(2, np.int64))
    for inside in (2**63 - 1, -(2**63)):
        assert judge_leaf(Comparison("b", Op.EQ, inside), bounds, np.ones(2, np.int64)).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("condition", "implied"),
    [
        ("d + 3 = DATE '2026-01-05'", "d = DATE '2026-01-02'"),
        ("d - 3 = DATE '2026-01-05'", "d = DATE '2026-01-08'"),
        ("date_add(d, 3) < DATE '2026-01-05'", "d <= DATE '2026-01-01'"),
        ("y + 1 >= 128", "y >= 127"),
        ("y + 1 > 128", "FALSE"),
        ("y + 1 <= -100", "y <= -101"),
        ("y + 1 < -127", "FALSE"),
        ("y + 1 >= -127", None),
        ("y + 1 <= 128", None),
        ("y + 1 >= -126", "y >= -127"),
        ("y + 1 <= 127", "y <= 126"),
        ("x + 1 = 3", None),
        (
            "CAST(t AS DATE) = DATE '2026-01-05'",
            "t >= TIMESTAMP_NTZ '2026-01-05 00:00:00' AND t <= TIMESTAMP_NTZ '2026-01-05 23:59:59.999999999'",
        ),
        (
            "CAST(m AS DATE) = DATE '2026-01-05'",
            "m >= TIMESTAMP_NTZ '2026-01-05 00:00:00' AND m <= TIMESTAMP_NTZ '2026-01-05 23:59:59.999'",
        ),
        ("CAST(m AS DATE) > DATE '2026-01-05'", "m >= TIMESTAMP_NTZ '2026-01-06 00:00:00'"),
        ("CAST(m AS DATE) <= DATE '2026-01-05'", "m <= TIMESTAMP_NTZ '2026-01-05 23:59:59.999'"),
        ("CAST(t AS DATE) > DATE '2026-01-05'", "t >= TIMESTAMP_NTZ '2026-01-06 00:00:00'"),
        ("CAST(t AS DATE) <= DATE '2026-01-05'", "t <= TIMESTAMP_NTZ '2026-01-05 23:59:59.999999999'"),
        ("CAST(n AS DATE) >= DATE '2026-01-05'", "n >= TIMESTAMP_NTZ '2026-01-05 00:00:00'"),
        ("CAST(n AS DATE) < DATE '2026-01-05'", "n <= TIMESTAMP_NTZ '2026-01-04 23:59:59.999999'"),
        ("year(d) IN (2024, 2026)", "d >= DATE '2024-01-01' AND d <= DATE '2026-12-31'"),
        ("year(d) > 2026", "d >= DATE '2027-01-01'"),
        ("year(d) <= 2026", "d <= DATE '2026-12-31'"),
        ("year(d) NOT IN (2024, 2026)", None),
        ("trunc(d, 'WEEK') = DATE '2026-01-05'", "d >= DATE '2026-01-05' AND d <= DATE '2026-01-11'"),
        ("trunc(d, 'MONTH') <= DATE '2026-01-01'", "d <= DATE '2026-01-31'"),
        ("trunc(d, 'QUARTER') = DATE '2026-07-01'", "d >= DATE '2026-07-01' AND d <= DATE '2026-09-30'"),
        ("trunc(d, 'YEAR') = DATE '2024-01-01'", "d >= DATE '2024-01-01' AND d <= DATE '2024-12-31'"),
        ("trunc(d, 'YEAR') > DATE '2024-01-01'", "d >= DATE '2024-01-02'"),
        ("d + INTERVAL 3 DAYS > DATE '2026-01-05'", "d >= DATE '2026-01-03'"),
        (
            "n - INTERVAL 1 SECOND < TIMESTAMP_NTZ '2026-01-05 00:00:00'",
            "n <= TIMESTAMP_NTZ '2026-01-05 00:00:00.999999'",
        ),
        ("d + INTERVAL 1 MONTH > DATE '2026-01-05'", None),
        ("3 + i = 5", "i = 2"),
        ("3 - i = 5", None),
        ("i + i = 5", None),
        ("CAST(i AS BIGINT) > 5", "i >= 6"),
        ("CAST(b AS INT) > 5", None),
        ("d = DATE '2026-01-05' + INTERVAL 1 QUARTER", "d = DATE '2026-04-05'"),
        ("d = DATE '2026-01-05' - INTERVAL 2 YEARS", "d = DATE '2024-01-05'"),
        ("d = DATE '2026-01-31' + INTERVAL 1 MONTH", "d = DATE '2026-02-28'"),
    ],
)
def test_sums_imply_ranges_of_their_column(condition: str, implied: str | None) -> None:
    bound = bind(parse_predicate(condition, "UTC"), FIELDS, "UTC", on_unsupported="true")
    found = None if to_sql(bound, FIELDS) == "TRUE" else to_sql(bound, FIELDS)
    assert found == (None if implied is None else implied)
    assert (bound == FALSE) == (implied == "FALSE")


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("trunc(d, 5)", r"5 is not one of the units month, quarter, week, year"),
        ("trunc(d, 'DAY')", r"'DAY' is not one of the units month, quarter, week, year"),
        ("trunc(d, 'Q')", r"'Q' is not one of the units month, quarter, week, year"),
        ("trunc(d, s)", "s is not one of the units"),
        ("date_trunc('w', ts)", "'w' is not one of the units"),
        ("date_trunc(upper(s), ts)", "is not one of the units day, hour, microsecond"),
        ("last_day(s)", "s is STRING, and not a date or timestamp"),
        ("last_day(5)", "5 is INT, and not a date or timestamp"),
        ("add_months(d, b)", "b is BIGINT, and not an INT"),
        ("d + b", "b is BIGINT, and not an INT"),
        ("d + 1.5", r"1.5 is DECIMAL\(2, 1\), and not an INT"),
        ("d - d", "d is DATE, and not an INT"),
        ("datediff(MONTH, d, d)", "it does not take that number of arguments"),
        ("dayof(d)", "it has no function 'dayof'; did you mean [a-z]+, [a-z]+, [a-z]+[?]"),
    ],
)
def test_operands_that_a_function_does_not_take_are_named(sql: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        TermBinder(FIELDS, "UTC").bind(parse_term(sql, "UTC"))


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        *(("d + y", [4, None, None, None]), ("d - y", [-2, None, None, None])),
        *(("date_add(d, y)", [4, None, None, None]), ("date_sub(d, y)", [-2, None, None, None])),
        *(("add_months(d, y)", [91, None, None, None]), ("datediff(d, d)", [0, None, 0, None])),
        ("CAST(CAST(y AS DECIMAL(3, 0)) AS INT)", [3, 0, None, None]),
    ],
)
def test_a_row_is_null_where_an_operand_is(sql: str, expected: list[int | None]) -> None:
    row = {
        "d": pa.array([1, None, 2, None], pa.int32()).cast(pa.date32()),
        "y": pa.array([3, 0, None, None], pa.int8()),
    }
    term = TermBinder(FIELDS, "UTC").bind(parse_term(sql, "UTC"))
    assert evaluate_term(term, row, 4, KERNELS).cast(pa.int32()).to_pylist() == expected


@pytest.mark.parametrize("sql", ["i / y", "i % y", "i div y", "f / y", "f % y"])
def test_null_by_zero_is_null(sql: str) -> None:
    row = {"i": pa.array([None], pa.int32()), "f": pa.array([None], pa.float32()), "y": pa.array([0], pa.int8())}
    assert value(sql, **row) is None
    row |= {"i": pa.array([1], pa.int32()), "f": pa.array([1], pa.float32())}
    with pytest.raises(EvaluationFailed, match="division by zero"):
        value(sql, **row)
    row["y"] = pa.array([None], pa.int8())
    assert value(sql, **row) is None


@pytest.mark.parametrize("kind", ["TINYINT", "SMALLINT", "INT", "BIGINT"])
def test_a_text_is_cast_to_the_numbers_of_the_type_alone(kind: str) -> None:
    top = 2 ** {"TINYINT": 7, "SMALLINT": 15, "INT": 31, "BIGINT": 63}[kind]
    for inside in (-top, top - 1, 0):
        assert value(f"CAST(s AS {kind})", s=pa.array([str(inside)])) == inside
    for outside in (-top - 1, top, 2 * top - 1, -2 * top, "x"):
        with pytest.raises(EvaluationFailed, match=f"a value '{outside}' of STRING cannot be cast to {kind}"):
            value(f"CAST(s AS {kind})", s=pa.array([str(outside)]))


@pytest.mark.parametrize("kind", ["TINYINT", "SMALLINT", "INT"])
def test_a_double_that_no_number_of_the_type_is_near_is_named(kind: str) -> None:
    top = 2.0 ** {"TINYINT": 7, "SMALLINT": 15, "INT": 31}[kind]
    for inside in (-top - 0.5, top - 0.5, -0.5):
        assert value(f"CAST(x AS {kind})", x=pa.array([inside])) == math.trunc(inside)
    for outside in (-top - 1, top, 2 * top, math.nan, math.inf):
        with pytest.raises(EvaluationFailed, match=f"a value {outside} of DOUBLE cannot be cast to {kind}"):
            value(f"CAST(x AS {kind})", x=pa.array([outside]))


def test_nanoseconds_are_cut_down_to_whole_microseconds() -> None:
    nanos = [-1_000_000_001, -1, 0, 999, 1_000, 1_999_999, 1_000_000_000_999, None]
    for made in (nanos, nanos[:-1]):
        found = evaluate_term(
            TermBinder(FIELDS, "UTC").bind(parse_term("t", "UTC")),
            {"t": pa.array(made, pa.timestamp("ns"))},
            len(made),
            KERNELS,
        )
        assert found.type == pa.timestamp("us")
        assert found.cast(pa.int64()).to_pylist() == [None if n is None else n // 1000 for n in made]


def test_null_days_and_clocks_are_raw_zeros() -> None:
    assert stored_times(pa.array([None, 5, -1], pa.int32()).cast(pa.date32())).tolist() == [0, 5, -1]
    assert stored_times(pa.array([2**40, None], pa.timestamp("us"))).tolist() == [2**40, 0]


def test_a_comparison_with_null_is_null_whatever_its_other_side_does() -> None:
    rows = pa.table({"i": pa.array([7], pa.int32())})
    for text in ("i / (i - 7) > NULL", "NULL <= i / (i - 7)", "i / (i - 7) = NULL", "(i % (i - 7)) <> NULL"):
        bound = bind(parse_predicate(f"coalesce({text}, TRUE)", "UTC"), FIELDS, "UTC")
        assert evaluate(bound, rows, FIELDS).to_pylist() == [True], text
    with pytest.raises(EvaluationFailed, match="division by zero"):
        evaluate(bind(parse_predicate("i / (i - 7) <=> NULL", "UTC"), FIELDS, "UTC"), rows, FIELDS)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        *(
            ("right(s, 0)", ""),
            ("right(s, -1)", ""),
            ("right(s, 1)", "ß"),
            ("right(s, 2)", "éß"),
            ("right(s, 9)", "aéß"),
        ),
        *(("left(s, 0)", ""), ("left(s, -1)", ""), ("left(s, 2)", "aé"), ("left(s, 9)", "aéß")),
        *(("instr(s, 'ß')", 3), ("instr(s, 'a')", 1), ("instr(s, 'x')", 0), ("instr(s, '')", 1)),
    ],
)
def test_ends_and_places_are_counted_in_characters(sql: str, expected: object) -> None:
    assert value(sql, s=pa.array(["aéß"])) == expected
    assert value(sql, s=pa.array([None], pa.string())) is None


def test_a_caret_in_an_empty_line() -> None:
    assert caret("\nab", 0) == "line 1, column 1\n  \n  ^"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (") a", "unexpected token: line 1, column 1\n  ) a\n  ^"),
        ("a = 1 2", "unexpected token: line 1, column 7\n  a = 1 2\n        ^"),
        ("a = = 2", "a part is missing: line 1, column 5\n  a = = 2\n      ^"),
        ("a = (1", "expected ): line 1, column 6\n  a = (1\n       ^"),
    ],
)
def test_a_syntax_error_says_what_is_wrong_and_where(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as e:
        parse_predicate(text)
    assert str(e.value) == message


@pytest.mark.parametrize("literal_", [1 << 127, -(1 << 127) - 1, 1.5, "a"])
def test_literals_that_sixteen_bytes_do_not_hold_are_compared_one_by_one(literal_: Any) -> None:
    """The numbers that are held, from the least to the greatest, have the order of their bytes."""
    numbers = [-(1 << 127), -1, 0, 1, (1 << 127) - 1]
    held = pa.array([(n + (1 << 127)).to_bytes(16, "big") for n in numbers], pa.large_binary())
    known = np.ones(5, bool)
    bounds = ColumnBounds(Form.WIDE, held, held, known, known, np.zeros(5, np.int64), False)
    with pytest.raises(NotVectorised):
        judge_leaf(Comparison("b", Op.EQ, literal_), bounds, np.ones(5, np.int64))
    for i, number in enumerate(numbers):
        found = judge_leaf(Comparison("b", Op.LE, number), bounds, np.ones(5, np.int64)).tolist()
        assert found == [2] * (i + 1) + [0] * (4 - i)


@pytest.mark.parametrize(("precision", "accepted"), [(17, True), (18, False)])
def test_a_decimal_has_at_most_38_digits(precision: int, accepted: bool) -> None:
    fields = [
        DataField(0, "l", parse_type("DECIMAL(20, 0)")),
        DataField(1, "r", parse_type(f"DECIMAL({precision}, 0)")),
    ]
    term, binder = parse_term("l * r", "UTC"), TermBinder(fields, "UTC")
    if accepted:
        assert str(binder.bind(term).type) == "DECIMAL(38, 0)"
    else:
        with pytest.raises(InvalidRequest, match="more than 38 digits"):
            binder.bind(term)


@pytest.mark.parametrize(
    ("sql", "given", "expected"),
    [
        ("CAST(i AS FLOAT)", 16777217, 16777216.0),
        ("CAST(i AS DOUBLE)", 16777217, 16777217.0),
        ("CAST(x AS FLOAT)", 1e300, math.inf),
        ("CAST(x AS FLOAT)", 0.1, 0.10000000149011612),
        ("CAST(f AS DOUBLE)", 0.5, 0.5),
        ("CAST(p1 AS DECIMAL(3, 0))", Decimal("99.5"), Decimal(100)),
        ("CAST(p1 AS DECIMAL(3, 0))", Decimal("-99.5"), Decimal(-100)),
        ("CAST(p1 AS DECIMAL(3, 0))", Decimal("99.4"), Decimal(99)),
        ("CAST(p2 AS DECIMAL(4, 2))", Decimal("9.99499"), Decimal("9.99")),
        ("CAST(p2 AS DECIMAL(4, 2))", Decimal("-9.99500"), Decimal("-10.00")),
        ("CAST(p1 AS DECIMAL(4, 2))", Decimal("99.9"), Decimal("99.90")),
        ("CAST(p38 AS DECIMAL(38, 1))", Decimal("9" * 35 + ".95"), Decimal(10**35)),
    ],
)
def test_numbers_are_cast_to_the_nearest_of_their_new_type(sql: str, given: Any, expected: Any) -> None:
    name = sql[5 : sql.index(" AS")]
    types = {f.name: arrow_type(f.type) for f in FIELDS}
    term = TermBinder(FIELDS, "UTC").bind(parse_term(sql, "UTC"))
    found = evaluate_term(term, {name: pa.array([given, None], types[name])}, 2, KERNELS)
    assert found.type == arrow_type(term.type) and found.to_pylist() == [expected, None]
