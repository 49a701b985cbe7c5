"""Casts of columns, with the values that ANSI Spark gives."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from bitlake.errors import EvaluationFailed, InvalidRequest
from bitlake.expressions.parser import parse_term
from bitlake.expressions.term_binder import KERNELS, TermBinder
from bitlake.expressions.terms import evaluate_term
from bitlake.types import DataField, arrow_type, parse_type

TYPES = {
    "i": "INT",
    "l": "BIGINT",
    "f": "FLOAT",
    "x": "DOUBLE",
    "b": "BOOLEAN",
    "s": "STRING",
    "c": "CHAR(3)",
    "v": "BYTES",
    "k": "BINARY(2)",
    "d": "DATE",
    "n": "TIMESTAMP(6)",
    "ts": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    "p1": "DECIMAL(3, 1)",
    "p2": "DECIMAL(5, 2)",
    "p0": "DECIMAL(12, 0)",
    "big": "DECIMAL(38, 2)",
}
FIELDS = [DataField(i, name, parse_type(kind)) for i, (name, kind) in enumerate(TYPES.items())]
_BIG = "9" * 35


def cast(column: str, to: str, values: list[Any], zone: str = "UTC") -> pa.Array:
    """Values of a column in another type."""
    term = TermBinder(FIELDS, zone).bind(parse_term(f"CAST({column} AS {to})", zone))
    kind = arrow_type(next(f.type for f in FIELDS if f.name == column))
    found = evaluate_term(term, {column: pa.array(values, kind)}, len(values), KERNELS)
    assert found.type == arrow_type(term.type)
    return found


@pytest.mark.parametrize(
    ("column", "to", "values", "expected"),
    [
        ("i", "BOOLEAN", [0, 1, -5, None], [False, True, True, None]),
        ("i", "DECIMAL(12, 1)", [2**31 - 1, -(2**31), None], [Decimal(2**31 - 1), Decimal(-(2**31)), None]),
        ("l", "DECIMAL(19, 0)", [2**63 - 1, -(2**63)], [Decimal(2**63 - 1), Decimal(-(2**63))]),
        ("i", "DOUBLE", [16777217, 0, None], [16777217.0, 0.0, None]),
        ("i", "FLOAT", [16777217, 0, None], [16777216.0, 0.0, None]),
        ("i", "STRING", [-5, None], ["-5", None]),
        ("f", "DOUBLE", [0.5, None], [0.5, None]),
        ("x", "FLOAT", [1e300, 0.5, None], [float("inf"), 0.5, None]),
        ("x", "INT", [1.9, -1.9, None], [1, -1, None]),
        ("x", "BIGINT", [-(2.0**63), 2.0**62], [-(2**63), 2**62]),
        ("b", "INT", [True, False, None], [1, 0, None]),
        ("b", "STRING", [True, None], ["true", None]),
        ("p1", "DECIMAL(3, 1)", [Decimal("1.5"), None], [Decimal("1.5"), None]),
        ("p1", "DECIMAL(7, 5)", [Decimal("1.5"), Decimal("-99.9")], [Decimal("1.5"), Decimal("-99.9")]),
        (
            "p1",
            "DECIMAL(3, 0)",
            [Decimal("1.5"), Decimal("-1.5"), Decimal("99.9")],
            [Decimal(2), Decimal(-2), Decimal(100)],
        ),
        ("p2", "DECIMAL(4, 1)", [Decimal("1.25"), Decimal("1.24"), None], [Decimal("1.3"), Decimal("1.2"), None]),
        ("p0", "DECIMAL(14, 2)", [Decimal(5), None], [Decimal("5.00"), None]),
        ("big", "DECIMAL(38, 1)", [Decimal(_BIG + ".25")], [Decimal(_BIG + ".3")]),
        ("p0", "DOUBLE", [Decimal(5), Decimal(10**12 - 1), None], [5.0, 999999999999.0, None]),
        ("p2", "DOUBLE", [Decimal("1.25"), None], [1.25, None]),
        ("p0", "INT", [Decimal(5), Decimal(-5), None], [5, -5, None]),
        ("p2", "INT", [Decimal("1.99"), Decimal("-1.99"), None], [1, -1, None]),
        ("s", "TINYINT", ["127", " -128 ", None], [127, -128, None]),
        ("s", "BIGINT", ["9223372036854775807", "-9223372036854775808"], [2**63 - 1, -(2**63)]),
        ("s", "DOUBLE", ["1.5", "Infinity", None], [1.5, float("inf"), None]),
        ("s", "DATE", ["2026-01-05", "2026", None], [dt.date(2026, 1, 5), dt.date(2026, 1, 1), None]),
        ("s", "BOOLEAN", ["yes", "f", None], [True, False, None]),
        ("s", "STRING", ["a", None], ["a", None]),
        ("v", "BINARY", [b"a", None], [b"a", None]),
        ("k", "BINARY", [b"ab", None], [b"ab", None]),
        ("d", "DATE", [dt.date(2026, 1, 5), None], [dt.date(2026, 1, 5), None]),
        ("d", "STRING", [dt.date.min, dt.date.max, None], ["0001-01-01", "9999-12-31", None]),
        ("d", "STRING", [], []),
        ("d", "TIMESTAMP_NTZ", [dt.date(1969, 12, 31), None], [dt.datetime(1969, 12, 31), None]),
        ("n", "DATE", [dt.datetime(1969, 12, 31, 23, 59, 59, 999999), None], [dt.date(1969, 12, 31), None]),
    ],
)
def test_values_in_another_type(column: str, to: str, values: list[Any], expected: list[Any]) -> None:
    assert cast(column, to, values).to_pylist() == expected
    assert cast(column, to, [*values, None]).to_pylist() == [*expected, None]


def test_wall_clocks_of_a_zone_with_one_offset() -> None:
    noon, zone = dt.datetime(2026, 1, 5, 12), "+05:30"
    earlier = (noon - dt.timedelta(hours=5, minutes=30)).replace(tzinfo=dt.UTC)
    assert cast("n", "TIMESTAMP", [noon, None], zone).to_pylist() == [earlier, None]
    assert cast("ts", "TIMESTAMP_NTZ", [earlier, None], zone).to_pylist() == [noon, None]
    midnight = dt.datetime(2026, 1, 4, 18, 30, tzinfo=dt.UTC)
    assert cast("d", "TIMESTAMP", [dt.date(2026, 1, 5), None], zone).to_pylist() == [midnight, None]
    assert cast("ts", "DATE", [midnight, None], zone).to_pylist() == [dt.date(2026, 1, 5), None]


@pytest.mark.parametrize(
    ("column", "to", "unfit", "shown"),
    [
        *(
            ("s", to, str(value), str(value))
            for to, bits in (("TINYINT", 8), ("SMALLINT", 16), ("INT", 32), ("BIGINT", 64))
            for value in (2 ** (bits - 1), -(2 ** (bits - 1)) - 1)
        ),
        ("s", "INT", "1.5", "1.5"),
        ("s", "DATE", "x", "x"),
        ("x", "TINYINT", 128.0, "128.0"),
        ("x", "TINYINT", -129.0, "-129.0"),
        ("x", "BIGINT", 1e19, "1e[+]19"),
        ("x", "BIGINT", -1e19, "-1e[+]19"),
        ("x", "INT", float("nan"), "nan"),
    ],
)
def test_a_value_that_does_not_fit_is_shown(column: str, to: str, unfit: Any, shown: str) -> None:
    with pytest.raises(EvaluationFailed, match=f"a value '?{shown}'? of .* cannot be cast to {to}"):
        cast(column, to, [unfit, None])


@pytest.mark.parametrize(
    ("column", "to", "unfit"),
    [
        ("p1", "DECIMAL(2, 1)", Decimal("10.0")),
        ("p2", "DECIMAL(3, 1)", Decimal("99.95")),
        ("p0", "INT", Decimal(2**31)),
        ("i", "DECIMAL(2, 0)", 100),
    ],
)
def test_a_number_of_too_many_digits_is_an_error(column: str, to: str, unfit: Any) -> None:
    with pytest.raises(EvaluationFailed, match="cannot be cast"):
        cast(column, to, [unfit])


@pytest.mark.parametrize("days", [-719163, 2932897])
def test_a_date_before_year_1_or_after_9999_has_no_text(days: int) -> None:
    dates = pa.array([0, days], pa.int32()).cast(pa.date32())
    term = TermBinder(FIELDS, "UTC").bind(parse_term("CAST(d AS STRING)", "UTC"))
    with pytest.raises(EvaluationFailed, match="before year 1 or after 9999"):
        evaluate_term(term, {"d": dates}, 2, KERNELS)


@pytest.mark.parametrize(
    ("column", "to"),
    [
        ("v", "STRING"),
        ("s", "BINARY"),
        ("k", "STRING"),
        ("c", "STRING"),
        ("x", "STRING"),
        ("i", "DATE"),
        ("d", "INT"),
        ("s", "TIMESTAMP"),
        ("b", "DOUBLE"),
        ("big", "DOUBLE"),
        ("big", "INT"),
        ("x", "DECIMAL(5, 1)"),
    ],
)
def test_casts_that_are_not_certain_are_refused(column: str, to: str) -> None:
    with pytest.raises(InvalidRequest, match=rf"CAST\({column} AS|which is not cast|is not evaluated"):
        cast(column, to, [None])
