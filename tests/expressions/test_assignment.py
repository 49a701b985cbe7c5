"""Values of SET in an UPDATE, in the type of their column."""

from __future__ import annotations

import datetime as dt
import random
import re
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import pyarrow as pa
import pytest
from long import every

from bitlake.errors import EvaluationFailed, InvalidRequest, NotFound
from bitlake.expressions.assignment import UncertainValue, new_values, store_assignment
from bitlake.expressions.parser import parse_term
from bitlake.types import AtomicType, DataField, Root, arrow_type, from_arrow, parse_type
from bitlake.types.datatypes import MAX_LENGTH

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


def _stored(values: pa.Array, kind: AtomicType, timezone: str = "UTC") -> list[Any]:
    convert = store_assignment(DataField(0, "c", kind), from_arrow(values.type), timezone)
    return convert(pa.chunked_array([values])).to_pylist()


TEXT = AtomicType(Root.VARCHAR, length=MAX_LENGTH)


def test_values_stored_as_text() -> None:
    assert _stored(pa.array([1.0, -0.0, 1e7, 12345678.0, 9007199254740991.0, None]), TEXT) == [
        "1.0", "-0.0", "1.0E7", "1.2345678E7", "9.007199254740991E15", None,
    ]  # fmt: skip
    assert _stored(pa.array([float("inf"), float("nan")], pa.float32()), TEXT) == ["Infinity", "NaN"]
    assert _stored(pa.array([Decimal("0.0000001"), Decimal(-3)], pa.decimal128(12, 7)), TEXT) == [
        "0.0000001",
        "-3.0000000",
    ]
    times = [dt.datetime(2026, 7, 1, 10), dt.datetime(1, 1, 1, 0, 0, 0, 120), None]
    assert _stored(pa.array(times, pa.timestamp("us")), TEXT) == [
        "2026-07-01 10:00:00",
        "0001-01-01 00:00:00.00012",
        None,
    ]
    moment = pa.array([dt.datetime(2026, 7, 1, 10, tzinfo=dt.UTC)], pa.timestamp("us", "UTC"))
    assert _stored(moment, TEXT, "Europe/Berlin") == ["2026-07-01 12:00:00"]
    for value in (0.1, 2.0**53, float(2**24) + 0.5):
        with pytest.raises(UncertainValue, match=re.escape(f"the cast of {value!r} to ")):
            _stored(pa.array([1.0, None, value]), TEXT)
    with pytest.raises(EvaluationFailed, match="length 4 does not fit"):
        _stored(pa.array([10.0]), AtomicType(Root.VARCHAR, length=3))


@pytest.mark.parametrize("scale", every(2, [0, 2, 5, 20]))
def test_doubles_stored_as_decimals(scale: int) -> None:
    """Every text that reads as the value rounds to the same decimal, or the value is refused."""
    rng = random.Random(scale)
    kind, unit = AtomicType(Root.DECIMAL, precision=38, scale=scale), Decimal(1).scaleb(-scale)
    context = Context(prec=1200, rounding=ROUND_HALF_UP)
    values = [rng.uniform(-1, 1) * 10 ** rng.randrange(-12, 15) for _ in range(500)]
    values += [round(v, scale + 1) for v in values] + [n / 8 for n in range(-20, 20)] + [1e17, -0.0]
    refused = 0
    for value in values:
        try:
            (found,) = _stored(pa.array([value]), kind)
        except UncertainValue:
            refused += 1
            digits = context.quantize(Decimal(repr(value)), unit / 10)
            assert f"{digits:f}"[-1] in "45" or abs(value) * 10**scale > 2**45
            continue
        texts = [Decimal(repr(value)), Decimal(value)]
        assert {context.quantize(t, unit) for t in texts} == {found}, value
    assert refused < len(values) / (3 if scale < 20 else 1)
    with pytest.raises(UncertainValue):
        _stored(pa.array([float("nan")]), kind)
    with pytest.raises(EvaluationFailed, match="does not fit"):
        _stored(pa.array([1e38]), kind)
    with pytest.raises(EvaluationFailed, match="does not fit"):
        _stored(pa.array([123.0]), AtomicType(Root.DECIMAL, precision=4, scale=2))
    assert _stored(pa.array([None, 0.125, 2.5, None]), AtomicType(Root.DECIMAL, precision=4, scale=2)) == [
        None, Decimal("0.13"), Decimal("2.50"), None,
    ]  # fmt: skip
