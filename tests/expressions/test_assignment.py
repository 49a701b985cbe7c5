"""Values of SET in an UPDATE, in the type of their column."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from bitlake.errors import EvaluationFailed, InvalidRequest, NotFound
from bitlake.expressions.assignment import new_values
from bitlake.expressions.parser import parse_term
from bitlake.types import DataField, arrow_type, parse_type

TYPES = {
    "i": "INT",
    "y": "TINYINT",
    "b": "BOOLEAN",
    "x": "DOUBLE",
    "p": "DECIMAL(10, 2)",
    "q": "DECIMAL(4, 1)",
    "s": "STRING",
    "s3": "VARCHAR(3)",
    "c3": "CHAR(3)",
    "v": "BYTES",
    "v3": "VARBINARY(3)",
    "k3": "BINARY(3)",
    "d": "DATE",
    "t": "TIME",
    "n": "TIMESTAMP(6)",
    "n0": "TIMESTAMP(0)",
    "n3": "TIMESTAMP(3)",
    "n9": "TIMESTAMP(9)",
    "ts": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    "j": "VARIANT",
}
FIELDS = [DataField(i, name, parse_type(kind)) for i, (name, kind) in enumerate(TYPES.items())]
KINDS = {f.name: arrow_type(f.type) for f in FIELDS}


def updated(column: str, sql: str, rows: int = 1, **old: list[Any]) -> list[Any]:
    """The new values of a column, of a table with some old ones."""
    count = len(next(iter(old.values()))) if old else rows
    table = pa.table({n: pa.array(old.get(n, [None] * count), kind) for n, kind in KINDS.items()})
    made = new_values({column: parse_term(sql, "UTC")}, FIELDS, "UTC")[column](table)
    assert made.type == KINDS[column]
    values: list[Any] = made.to_pylist()
    return values


@pytest.mark.parametrize("rows", [0, 1, 3])
@pytest.mark.parametrize(
    ("column", "sql", "expected"),
    [
        ("i", "7", 7),
        ("s", "'a'", "a"),
        ("s3", "'abc'", "abc"),
        ("d", "DATE '2026-01-05'", dt.date(2026, 1, 5)),
        ("n3", "TIMESTAMP_NTZ '2026-01-05 01:02:03.456789'", dt.datetime(2026, 1, 5, 1, 2, 3, 456000)),
        ("i", "NULL", None),
        ("s3", "NULL", None),
        ("n3", "NULL", None),
    ],
)
def test_a_constant_is_the_value_of_every_row(column: str, sql: str, expected: Any, rows: int) -> None:
    assert updated(column, sql, rows) == [expected] * rows


def test_no_rows_have_no_new_values() -> None:
    assert updated("i", "i + 1", i=[]) == []
    assert updated("s3", "upper(s3)", s3=[]) == []


_INSTANT = dt.datetime(2026, 1, 5, 1, 2, 3, 456789)


@pytest.mark.parametrize(
    ("column", "sql", "old", "expected"),
    [
        ("i", "i + y", {"i": [1, None], "y": [2, 3]}, [3, None]),
        ("y", "i", {"i": [127, -128, None]}, [127, -128, None]),
        ("i", "x", {"x": [2.9, -2.9]}, [2, -2]),
        ("x", "i", {"i": [2, None]}, [2.0, None]),
        ("q", "p", {"p": [Decimal("1.25"), Decimal("-1.25"), None]}, [Decimal("1.3"), Decimal("-1.3"), None]),
        ("s", "upper(s)", {"s": ["aß", None]}, ["ASS", None]),
        ("v", "v3", {"v3": [b"abc", None]}, [b"abc", None]),
        ("b", "i > 1", {"i": [1, 2, None]}, [False, True, None]),
        ("n", "d", {"d": [dt.date(2026, 1, 5), None]}, [dt.datetime(2026, 1, 5), None]),
        ("d", "n", {"n": [_INSTANT, None]}, [_INSTANT.date(), None]),
        (
            "n",
            "n3",
            {"n3": [dt.datetime(1969, 12, 31, 23, 59, 59, 999000)]},
            [dt.datetime(1969, 12, 31, 23, 59, 59, 999000)],
        ),
    ],
)
def test_a_value_is_converted_to_the_type_of_its_column(
    column: str, sql: str, old: dict[str, list[Any]], expected: list[Any]
) -> None:
    assert updated(column, sql, **old) == expected


@pytest.mark.parametrize(
    ("column", "micros", "stored"),
    [
        ("n3", 1_999, 1),
        ("n3", -1, -1),
        ("n3", -1_000, -1),
        ("n3", -1_001, -2),
        ("n", -1, -1),
        ("n9", -1, -1_000),
        ("n9", 9_223_372_036_854_775, 9_223_372_036_854_775_000),
        ("n9", -9_223_372_036_854_775, -9_223_372_036_854_775_000),
    ],
)
def test_a_timestamp_is_cut_down_to_the_precision_of_its_column(column: str, micros: int, stored: int) -> None:
    """Paimon's ``Timestamp.fromMicros`` rounds milliseconds down."""
    rows = pa.table({"n": pa.array([micros, None], pa.int64()).cast(KINDS["n"])})
    made = new_values({column: parse_term("n", "UTC")}, FIELDS, "UTC")[column](rows)
    assert made.type == KINDS[column]
    assert made.cast(pa.int64()).to_pylist() == [stored, None]


@pytest.mark.parametrize("micros", [9_223_372_036_854_776, -9_223_372_036_854_776])
def test_a_timestamp_of_nanoseconds_has_only_64_bits(micros: int) -> None:
    rows = pa.table({"n": pa.array([micros], pa.int64()).cast(KINDS["n"])})
    made = new_values({"n9": parse_term("n", "UTC")}, FIELDS, "UTC")["n9"]
    with pytest.raises(EvaluationFailed, match=r"UPDATE: column 'n9': a value does not fit TIMESTAMP\(9\)"):
        made(rows)


@pytest.mark.parametrize(
    ("column", "sql", "old"),
    [
        ("y", "i", {"i": [128]}),
        ("i", "x", {"x": [2147483648.0]}),
        ("q", "p", {"p": [Decimal("999.95")]}),
        ("i", "10 / i", {"i": [0]}),
    ],
)
def test_a_value_that_does_not_fit_its_column_is_an_error(column: str, sql: str, old: dict[str, list[Any]]) -> None:
    with pytest.raises(EvaluationFailed, match=f"UPDATE: column '{column}': "):
        updated(column, sql, **old)


@pytest.mark.parametrize(
    ("column", "source", "fits", "longer", "length"),
    [
        ("s3", "s", "äöü", "äöüß", 4),
        ("s3", "s", "abc", "\U0001f600bcde", 5),
        ("v3", "v", b"abc", b"abcd", 4),
    ],
)
def test_the_length_of_text_is_in_characters_and_of_binaries_in_bytes(
    column: str, source: str, fits: Any, longer: Any, length: int
) -> None:
    assert updated(column, source, **{source: [fits, None, fits[:0]]}) == [fits, None, fits[:0]]
    with pytest.raises(EvaluationFailed, match=f"a value of length {length} does not fit VAR[A-Z]+.3."):
        updated(column, source, **{source: [fits, longer, None]})


@pytest.mark.parametrize("column", ["c3", "k3", "t", "j"])
def test_values_of_some_types_are_not_computed(column: str) -> None:
    for sql in ("NULL", column):
        with pytest.raises(InvalidRequest, match=f"values of column '{column}' of type .* are not computed"):
            new_values({column: parse_term(sql, "UTC")}, FIELDS, "UTC")


@pytest.mark.parametrize(
    ("column", "sql"),
    [("i", "s"), ("s", "i"), ("i", "b"), ("b", "i"), ("d", "s"), ("s", "d"), ("d", "i"), ("i", "d"), ("v", "s")],
)
def test_a_value_of_another_kind_needs_a_cast(column: str, sql: str) -> None:
    with pytest.raises(InvalidRequest, match=rf"UPDATE: column '{column}' is .*; write CAST\({sql} AS"):
        new_values({column: parse_term(sql, "UTC")}, FIELDS, "UTC")


def test_an_unknown_column_has_no_values() -> None:
    for column, sql in (("other", "1"), ("i", "other")):
        with pytest.raises(NotFound, match="other"):
            new_values({column: parse_term(sql, "UTC")}, FIELDS, "UTC")
    with pytest.raises(NotFound, match="^UPDATE: "):
        new_values({"other": parse_term("1", "UTC")}, FIELDS, "UTC")
