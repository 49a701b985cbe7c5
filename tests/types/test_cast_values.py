"""Casts of stored values, by example; tests/interop/test_evolved_tables.py holds them all against Paimon (Java)."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal as D
from typing import Any

import pyarrow as pa
import pytest

from bitlake.types import ArrayType, DataField, DataType, MapType, RowType, arrow_type, parse_type
from bitlake.types.casts import cast_values

T = dt.datetime
NAN, INF = float("nan"), float("inf")
LTZ = "TIMESTAMP(6) WITH LOCAL TIME ZONE"
NANOS, NANOS_LTZ, LAST = "TIMESTAMP(9)", "TIMESTAMP(9) WITH LOCAL TIME ZONE", (1 << 63) - 1

CASES: list[tuple[str, str, list[Any], list[Any]]] = [
    # Java's primitive casts
    ("INT", "TINYINT", [1, 300, -129], [1, 44, 127]),
    ("BIGINT", "INT", [2**31, -(2**31) - 1], [-(2**31), 2**31 - 1]),
    ("DOUBLE", "INT", [1.9, -1.9, NAN, 1e30, -1e30], [1, -1, 0, 2**31 - 1, -(2**31)]),
    ("DOUBLE", "BIGINT", [1e30, 9.3e18, -INF], [2**63 - 1, 2**63 - 1, -(2**63)]),
    ("DOUBLE", "TINYINT", [300.7, 1e30], [44, -1]),
    ("BIGINT", "FLOAT", [1, 2**53 + 1], [1.0, float(2**53)]),
    ("INT", "BOOLEAN", [0, 5], [False, True]),
    ("BOOLEAN", "DECIMAL(3, 1)", [True, False], [D("1.0"), D("0.0")]),
    # decimals
    ("DECIMAL(10, 2)", "INT", [D("1.99"), D("-99.99")], [1, -99]),
    ("DECIMAL(10, 2)", "TINYINT", [D("300.00")], [44]),
    ("DECIMAL(30, 2)", "BIGINT", [D(2**64 + 7)], [7]),
    ("DECIMAL(10, 2)", "DECIMAL(3, 1)", [D("1.55"), D("-1.55"), D("-99.95")], [D("1.6"), D("-1.6"), None]),
    ("DECIMAL(38, 0)", "DECIMAL(38, 30)", [D(7), D(10**8)], [D(7), None]),
    ("INT", "DECIMAL(5, 2)", [5, 1000, -999], [D(5), None, D(-999)]),
    ("DOUBLE", "DECIMAL(5, 2)", [0.1, 1.005, 1e30], [D("0.10"), D("1.01"), None]),
    ("DECIMAL(10, 5)", "DOUBLE", [D("0.1")], [0.1]),
    ("DECIMAL(30, 10)", "DOUBLE", [D("12345678901234567890.5")], [12345678901234567890.5]),
    # to text
    ("DOUBLE", "STRING", [1.5, 1e10, 1e-5, -0.0, NAN, -INF], ["1.5", "1.0E10", "1.0E-5", "-0.0", "NaN", "-Infinity"]),
    ("FLOAT", "STRING", [0.10000000149011612], ["0.1"]),
    ("DECIMAL(20, 10)", "STRING", [D("0.0000000001")], ["0.0000000001"]),
    ("BIGINT", "VARCHAR(2)", [123, -1], ["12", "-1"]),
    ("BOOLEAN", "CHAR(5)", [True, False], ["true ", "false"]),
    ("DATE", "STRING", [dt.date(1969, 12, 31)], ["1969-12-31"]),
    ("TIMESTAMP(3)", "STRING", [T(2024, 2, 29, 1, 2, 3, 4000)], ["2024-02-29 01:02:03.004"]),
    ("TIMESTAMP(0)", "STRING", [T(1969, 12, 31, 23, 59, 59)], ["1969-12-31 23:59:59"]),
    ("TIMESTAMP(4)", "STRING", [T(2024, 2, 29, 1, 2, 3, 450000)], ["2024-02-29 01:02:03.4500"]),
    ("TIME(3)", "STRING", [dt.time(1, 2, 3, 450000), dt.time(1, 2)], ["01:02:03.45", "01:02:00.0"]),
    ("STRING", "CHAR(3)", ["héllo", "a"], ["hél", "a  "]),
    ("BYTES", "STRING", [b"abc", b"\xff", b"\xed\xaa"], ["abc", "\ufffd", "\ufffd"]),
    ("VARBINARY(3)", "BINARY(2)", [b"a", b"abc"], [b"a\0", b"ab"]),
    # from text
    ("STRING", "INT", ["1", "+2.9", "-003", "."], [1, 2, -3, 0]),
    ("STRING", "DOUBLE", [" 1.5 ", "NaN", "-Infinity", "1e3f", "2d"], [1.5, NAN, -INF, 1000.0, 2.0]),
    ("STRING", "DECIMAL(5, 2)", ["1.005", "1E2", "99999", "1E999999999"], [D("1.01"), D(100), None, None]),
    ("STRING", "DECIMAL(38, 0)", ["9" * 38, "-" + "9" * 38, "9" * 39], [D("9" * 38), D("-" + "9" * 38), None]),
    ("STRING", "BOOLEAN", ["T", "no", "1"], [True, False, True]),
    (
        "STRING",
        "DATE",
        ["2024-02-29", "2024-1", "19000", "-5"],
        [dt.date(2024, 2, 29), dt.date(2024, 1, 1), dt.date(2022, 1, 8), dt.date(1969, 12, 27)],
    ),
    (
        "STRING",
        "TIMESTAMP(3)",
        ["2024-02-29 01:02:03.4567", "1000", "-1"],
        [T(2024, 2, 29, 1, 2, 3, 456000), T(1970, 1, 1, 0, 0, 1), T(1969, 12, 31, 23, 59, 59, 999000)],
    ),
    ("STRING", "TIME(3)", ["01:02:03.4", "1:2"], [dt.time(1, 2, 3, 400000), dt.time(1, 2)]),
    ("STRING", "BYTES", ["é"], ["é".encode()]),
    # times
    ("TIMESTAMP(6)", "TIMESTAMP(3)", [T(1969, 12, 31, 23, 59, 58, 500999)], [T(1969, 12, 31, 23, 59, 58, 500000)]),
    ("TIMESTAMP(6)", "TIMESTAMP(4)", [T(1969, 12, 31, 23, 59, 58, 500999)], [T(1969, 12, 31, 23, 59, 58, 500900)]),
    ("TIMESTAMP(6)", "TIMESTAMP(0)", [T(1969, 12, 31, 23, 59, 58, 500000)], [T(1969, 12, 31, 23, 59, 59)]),
    ("TIMESTAMP(6)", "BIGINT", [T(1969, 12, 31, 23, 59, 58, 500000), T(1970, 1, 1, 0, 1)], [-1, 60]),
    ("TIMESTAMP(6)", "DATE", [T(1969, 12, 31, 23, 59, 58)], [dt.date(1969, 12, 31)]),
    ("INT", "TIMESTAMP(3)", [5], [T(1970, 1, 1, 0, 0, 5)]),
    ("DATE", "TIMESTAMP(6)", [dt.date(2024, 7, 1)], [T(2024, 7, 1)]),
    ("TIME(3)", "TIMESTAMP(6)", [dt.time(1, 2)], [T(1970, 1, 1, 1, 2)]),
    ("STRING", "TIMESTAMP(3)", ["2024-04-31 01:00:00", "2023-02-31"], [T(2024, 4, 30, 1), T(2023, 2, 28)]),
    # in Tokyo, nine hours ahead
    ("INT", LTZ, [5], [T(1970, 1, 1, 9, 0, 5, tzinfo=dt.UTC)]),
    ("TIME(3)", LTZ, [dt.time(1, 2)], [T(1970, 1, 1, 1, 2, tzinfo=dt.UTC)]),
    (LTZ, "TIMESTAMP(6)", [T(2024, 7, 1, 22, tzinfo=dt.UTC)], [T(2024, 7, 2, 7)]),
    (LTZ, "DATE", [T(2024, 7, 1, 22, tzinfo=dt.UTC)], [dt.date(2024, 7, 2)]),
    (LTZ, "STRING", [T(2024, 7, 1, 22, tzinfo=dt.UTC)], ["2024-07-02 07:00:00.000000"]),
    ("TIMESTAMP(6)", LTZ, [T(2024, 7, 1, 22)], [T(2024, 7, 1, 13, tzinfo=dt.UTC)]),
    ("DATE", LTZ, [dt.date(2024, 7, 1)], [T(2024, 6, 30, 15, tzinfo=dt.UTC)]),
    ("STRING", LTZ, ["2024-07-01 22:00:00"], [T(2024, 7, 1, 13, tzinfo=dt.UTC)]),
]


@pytest.mark.parametrize(("source", "target", "values", "wanted"), CASES, ids=[f"{c[0]} to {c[1]}" for c in CASES])
def test_values(source: str, target: str, values: list[Any], wanted: list[Any]) -> None:
    kind, to = parse_type(source), parse_type(target)
    array = pa.array([None, *values, None, values[0]], arrow_type(kind))
    found = cast_values(array, kind, to, "Asia/Tokyo")
    assert found.type == arrow_type(to)
    assert repr(found.to_pylist()) == repr(pa.array([None, *wanted, None, wanted[0]], arrow_type(to)).to_pylist())
    # Slices have offsets of their own.
    assert repr(cast_values(array.slice(1, 2), kind, to, "Asia/Tokyo").to_pylist()) == repr(found.to_pylist()[1:3])
    assert cast_values(array.slice(0, 0), kind, to).to_pylist() == []
    assert cast_values(array.slice(0, 1), kind, to).to_pylist() == [None]


BAD = [
    ("INT", ["", "-", "x", "1.x", "2147483648"]),
    ("TINYINT", ["128"]),
    ("DOUBLE", ["", "one", "0x", "inf", "-infinity", "nan"]),
    ("DECIMAL(5, 2)", ["", " 1", "1,5"]),
    ("BOOLEAN", ["", "2", "maybe"]),
    ("DATE", ["", "2024-02-30", "x", "9" * 10, "9" * 30, "9" * 5_000, "99999999999-1-1", "\u0661-1-1"]),
    ("TIME(3)", ["25:00:00", "x", "9" * 10, "\u0661:00"]),
    ("TIMESTAMP(6)", ["", "2024-13-01", "2024-01-01 25:00:00", "9" * 30, "\u0661" * 4 + "-01-01"]),
    ("TIMESTAMP(9)", ["9999-12-31", "1677-09-21", "9" * 20]),
    (LTZ, ["1000"]),
]


@pytest.mark.parametrize(("target", "texts"), BAD, ids=[b[0] for b in BAD])
def test_texts_that_are_no_value(target: str, texts: list[str]) -> None:
    for text in texts:
        with pytest.raises(ValueError):
            cast_values(pa.array([text]), parse_type("STRING"), parse_type(target))


@pytest.mark.parametrize(
    ("source", "target", "value"),
    [
        ("DATE", "TIMESTAMP(9)", dt.date(9999, 12, 31)),
        ("TIMESTAMP(3)", "TIMESTAMP(7)", T(1600, 1, 1)),
        (LTZ, "TIMESTAMP(9) WITH LOCAL TIME ZONE", T(3000, 1, 1, tzinfo=dt.UTC)),
        ("BIGINT", "TIMESTAMP(6)", 1 << 50),
        ("BIGINT", "TIMESTAMP(0)", -(1 << 63)),
    ],
)
def test_times_that_64_bits_do_not_hold(source: str, target: str, value: Any) -> None:
    """They came out as other times: 9999-12-31 in 1816."""
    kind = parse_type(source)
    with pytest.raises(ValueError, match="seconds after 1970-01-01 is out of the range of .*seconds in 64 bits"):
        cast_values(pa.array([None, value], arrow_type(kind)), kind, parse_type(target))


@pytest.mark.parametrize(
    ("source", "target", "count"),
    [
        (NANOS, NANOS_LTZ, -LAST),
        (NANOS_LTZ, NANOS, LAST),
        (NANOS_LTZ, "TIMESTAMP(6)", LAST),
        (NANOS_LTZ, "DATE", LAST),
        (NANOS_LTZ, "STRING", LAST),
    ],
)
def test_clocks_that_64_bits_do_not_hold(source: str, target: str, count: int) -> None:
    """They wrapped around: hours after 2262-04-11 were in 1677."""
    kind = parse_type(source)
    array = pa.array([None, count], pa.int64()).cast(arrow_type(kind))
    with pytest.raises(ValueError, match="(in|from) Asia/Tokyo is out of the range of nanoseconds in 64 bits"):
        cast_values(array, kind, parse_type(target), "Asia/Tokyo")


def test_the_first_nanosecond_in_microseconds() -> None:
    """It came out as the last one."""
    kind = parse_type(NANOS)
    array = pa.array([-LAST, LAST], pa.int64()).cast(arrow_type(kind))
    micros = cast_values(array, kind, parse_type("TIMESTAMP(6)")).cast(pa.int64())
    assert micros.to_pylist() == [-LAST // 1000, LAST // 1000]


def test_nested_values_as_text() -> None:
    ints = ArrayType(parse_type("INT"))
    pairs = MapType(parse_type("STRING NOT NULL"), parse_type("DOUBLE"))
    row = RowType((DataField(1, "x", parse_type("INT")), DataField(2, "y", ints)))
    cases: list[tuple[DataType, list[Any], list[str | None]]] = [
        (ints, [[1, None], None, [], [3]], ["[1, null]", None, "[]", "[3]"]),
        (pairs, [[("a", 1.0), ("b", None)], None, []], ["{a -> 1.0, b -> null}", None, "{}"]),
        (row, [{"x": 1, "y": [1]}, None, {"x": None, "y": None}], ["{1, [1]}", None, "{null, null}"]),
    ]
    for kind, values, wanted in cases:
        array = pa.array(values, arrow_type(kind))
        assert cast_values(array, kind, parse_type("STRING")).to_pylist() == wanted
        assert cast_values(array.slice(2), kind, parse_type("STRING")).to_pylist() == wanted[2:]
