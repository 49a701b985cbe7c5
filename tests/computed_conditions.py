"""Random conditions that compute, and rows of every atomic type to try them on: for tests with and without Spark."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from bitlake.types import DataField, parse_type
from bitlake.types.datatypes import AtomicType, MapType, Root, RowType

TYPES = {
    "id": "BIGINT",
    "y": "TINYINT",
    "h": "SMALLINT",
    "a": "INT",
    "a2": "INT",
    "b": "BIGINT",
    "b2": "BIGINT",
    "f": "FLOAT",
    "x": "DOUBLE",
    "x2": "DOUBLE",
    "p": "DECIMAL(10, 2)",
    "q": "DECIMAL(18, 4)",
    "s": "STRING",
    "t": "STRING",
    "v": "BYTES",
    "d": "DATE",
    "d2": "DATE",
    "n": "TIMESTAMP(6)",
    "ts": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    "ts2": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    "o": "BOOLEAN",
}
_MEMBERS = (DataField(101, "city", parse_type("STRING")), DataField(102, "zip", parse_type("INT")))
FIELDS = [DataField(i, name, parse_type(kind)) for i, (name, kind) in enumerate(TYPES.items())]
FIELDS.append(DataField(100, "addr", RowType(_MEMBERS)))
FIELDS.append(
    DataField(103, "m", MapType(AtomicType(Root.VARCHAR, nullable=False, length=2147483647), parse_type("INT")))
)

NAN, INF = float("nan"), float("inf")
TEXTS = ["", "a", "ab", " ab ", "Paris", "paris", "PARIS", "Straße", "STRASSE", "ΑΣ", "ας", "İstanbul", "ﬁn", "naïve"]
TEXTS += ["日本語", "a\u0301b", "😀x", "x%y_z\\", "\tq", "2026-01-05", "12", "Ǆ", "ŉ", "ΌΣΟΣ. Σ"]
_DAYS = [dt.date(1969, 12, 31), dt.date(2000, 2, 29), dt.date(2026, 1, 5), dt.date(1582, 10, 4), dt.date(2024, 12, 30)]
_DAYS += [dt.date(1900, 3, 1), dt.date(2026, 3, 29), dt.date(2026, 10, 25), dt.date(2038, 6, 1), dt.date(2026, 1, 31)]
_CLOCKS = [dt.time(0, 0), dt.time(23, 59, 59, 999_999), dt.time(1, 30), dt.time(12, 0, 0, 1), dt.time(22, 30)]
MILD: dict[str, Sequence[Any]] = {
    "TINYINT": [0, 1, -1, 3, 7],
    "SMALLINT": [0, 1, -5, 100, 12],
    "INT": [0, 1, -1, 7, -7, 2026, 1000],
    "BIGINT": [0, 1, -3, 4, 10_000, 2**33],
    "FLOAT": [0.0, -0.0, 1.5, -2.25, NAN, 0.1, INF],
    "DOUBLE": [0.0, -0.0, 1.5, -2.25, NAN, 0.1, 1e300, -INF],
    "DECIMAL(10, 2)": [Decimal("0.00"), Decimal("1.50"), Decimal("-3.25"), Decimal("99999999.99")],
    "DECIMAL(18, 4)": [Decimal("0.0000"), Decimal("1.5000"), Decimal("-3.2501"), Decimal("12345678901234.5678")],
    "STRING": TEXTS,
    "BYTES": [b"", b"a", b"\x00\xff", b"ab"],
    "DATE": _DAYS,
    "TIMESTAMP(6)": [dt.datetime.combine(d, c) for d in _DAYS for c in _CLOCKS],
    "BOOLEAN": [True, False],
}
EXTREME: dict[str, Sequence[Any]] = {
    **MILD,
    "TINYINT": [-128, 127, 0, 1],
    "SMALLINT": [-32768, 32767, 0],
    "INT": [-(2**31), 2**31 - 1, 0, 1],
    "BIGINT": [-(2**63), 2**63 - 1, 0, 2**53 + 1],
    "FLOAT": [3.4028234663852886e38, -3.4028234663852886e38, 1.401298464324817e-45, NAN, INF, -0.0],
    "DOUBLE": [1.7976931348623157e308, 5e-324, NAN, INF, -INF, -0.0, 9.223372036854775e18],
    "DATE": [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1970, 1, 1)],
    "TIMESTAMP(6)": [dt.datetime(1, 1, 3), dt.datetime(9989, 12, 29), dt.datetime(1969, 12, 31, 23, 59, 59, 999_999)],
}


def rows_of(values: dict[str, Sequence[Any]], count: int, seed: int) -> pa.Table:
    """Random rows of :data:`FIELDS`, a sixth of the values NULL."""
    choose = random.Random(seed)
    columns: dict[str, Any] = {}
    for name, kind in TYPES.items():
        if name == "id":
            columns[name] = pa.array(range(count), pa.int64())
            continue
        pool = values[kind.removesuffix(" WITH LOCAL TIME ZONE")]
        picked = [None if choose.random() < 1 / 6 else choose.choice(pool) for _ in range(count)]
        columns[name] = pa.array(picked, ARROW[kind])
    cities = [choose.choice([None, {"city": choose.choice([None, "Paris", "Köln"]), "zip": i}]) for i in range(count)]
    columns["addr"] = pa.array(cities, pa.struct([("city", pa.string()), ("zip", pa.int32())]))
    maps = [choose.choice([None, [], [("k", i)], [("l", 1), ("k", None)]]) for i in range(count)]
    columns["m"] = pa.array(maps, pa.map_(pa.string(), pa.int32()))
    return pa.table(columns)


ARROW = {
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "DECIMAL(10, 2)": pa.decimal128(10, 2),
    "DECIMAL(18, 4)": pa.decimal128(18, 4),
    "STRING": pa.string(),
    "BYTES": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP(6)": pa.timestamp("us"),
    "TIMESTAMP(6) WITH LOCAL TIME ZONE": pa.timestamp("us", "UTC"),
    "BOOLEAN": pa.bool_(),
}


class Conditions:
    """Random conditions as Spark SQL."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def condition(self, depth: int = 2) -> str:
        """A condition: a comparison, a test of a term, or several joined."""
        pick = self.random.random()
        if depth and pick < 0.12:
            return f"({self.condition(depth - 1)}) {self.one('AND', 'OR')} ({self.condition(depth - 1)})"
        if depth and pick < 0.18:
            return f"NOT ({self.condition(depth - 1)})"
        kind = self.one("number", "number", "text", "date", "instant", "clock", "boolean")
        left = self.term(kind, depth)
        if pick < 0.26:
            return f"{left} IS {self.one('', 'NOT ')}NULL"
        if kind == "text" and pick < 0.4:
            return f"{left} LIKE '{self.one('a%', '%b%', '_a%', 'Paris', '%s')}'"
        if pick < 0.5:
            return f"{left} {self.one('', 'NOT ')}IN ({self.literal(kind)}, {self.literal(kind)})"
        if pick < 0.58:
            return f"{left} BETWEEN {self.term(kind, 0)} AND {self.literal(kind)}"
        if pick < 0.62:
            return f"{left} <=> {self.term(kind, depth - 1 if depth else 0)}"
        right = self.literal(kind) if pick < 0.8 else self.term(kind, max(0, depth - 1))
        return f"{left} {self.one('=', '<>', '<', '<=', '>', '>=')} {right}"

    def one(self, *of: str) -> str:
        """One of some texts."""
        return self.random.choice(of)

    def term(self, kind: str, depth: int) -> str:
        """A value of a kind: a column, or a function of values."""
        if depth <= 0:
            return self.column(kind)
        return str(getattr(self, f"_{kind}")(depth - 1))

    def column(self, kind: str) -> str:
        """A column, a member or a map's value."""
        names = {
            "number": ("y", "h", "a", "a2", "b", "b2", "f", "x", "x2", "p", "q", "addr.zip", "m['k']"),
            "integer": ("y", "h", "a", "b", "addr.zip"),
            "text": ("s", "t", "addr.city"),
            "date": ("d", "d2"),
            "instant": ("ts", "ts2"),
            "clock": ("n",),
            "boolean": ("o",),
        }
        return self.one(*names[kind])

    def literal(self, kind: str) -> str:
        """A constant of a kind."""
        number = self.random.choice
        match kind:
            case "number" | "integer":
                texts = (
                    ("0", "1", "-1", "7", "2026", "100")
                    if kind == "integer"
                    else ("0", "1", "-3", "1.5", "2.25D", "100L")
                )
                return self.one(*texts)
            case "text":
                return "'" + str(number(TEXTS)).replace("\\", "\\\\").replace("'", "\\'") + "'"
            case "date":
                return f"DATE '{number(_DAYS)}'"
            case "instant":
                return f"TIMESTAMP '{number(_DAYS)} {self.one('00:00:00', '12:30:00', '23:59:59.999999')}'"
            case "clock":
                return f"TIMESTAMP_NTZ '{number(_DAYS)} {self.one('00:00:00', '12:30:00')}'"
        return self.one("TRUE", "FALSE")

    def _number(self, depth: int) -> str:
        a, b = self.term("number", depth), self.term("number", depth)
        date, text, instant = self.term("date", depth), self.term("text", depth), self.term("instant", depth)
        part = self.one("year", "month", "day", "quarter", "dayofweek", "weekday", "dayofyear", "weekofyear")
        return self.one(
            f"({a} {self.one('+', '-', '*')} {b})",
            f"({a} {self.one('+', '-', '*')} {self.literal('number')})",
            f"({a} / {self.one('2', '2.0D', '4')})",
            f"({self.term('integer', 0)} % {self.one('2', '3', '-7', '10L')})",
            f"({self.column('integer')} div {self.one('2', '-3')})",
            f"(-{self.column('number')})",
            f"abs({a})",
            f"length({text})",
            f"octet_length({text})",
            f"instr({text}, {self.one(chr(39) + 'a' + chr(39), chr(39) + 'ß' + chr(39), chr(39) * 2)})",
            f"{part}({self.one(date, instant, 'n')})",
            f"{self.one('hour', 'minute', 'second')}({self.one(instant, 'n')})",
            f"datediff({date}, {self.term('date', 0)})",
            f"coalesce({a}, {b})",
            f"nullif({self.column('integer')}, 1)",
            f"CASE WHEN {self.condition(0)} THEN {a} ELSE {self.literal('number')} END",
            f"if({self.condition(0)}, {a}, {b})",
            f"{self.one('greatest', 'least')}({a}, {b})",
            f"CAST({a} AS {self.one('DOUBLE', 'BIGINT', 'FLOAT', 'DECIMAL(20, 6)')})",
            f"CAST({self.column('integer')} AS {self.one('TINYINT', 'INT', 'BIGINT', 'DOUBLE', 'DECIMAL(12, 3)')})",
            "length(v)",
            f"hash({self.one('y', 'h', 'a', 'b', 'f', 'x', 'p', 'q', 's', 'v', 'd', 'n', 'ts', 'o')}, {a})",
            f"pmod(hash({text}), {self.one('2', '8', '5')})",
            f"pmod({self.column('integer')}, {self.one('3', '7L')})",
            f"sign({self.column('number')})",
            f"(p / {self.one('2', '-3', '1.5', '7')})",
            f"CAST({self.one('p', 'q', 'x')} AS {self.one('INT', 'BIGINT')})",
        )

    def _integer(self, depth: int) -> str:
        return self.column("integer")

    def _text(self, depth: int) -> str:
        a = self.term("text", depth)
        return self.one(
            *(f"{f}({a})" for f in ("lower", "upper", "trim", "ltrim", "rtrim")),
            f"substring({a}, {self.one('1', '2', '0', '-2', '-9')}, {self.one('1', '3', '0', '-1', '8')})",
            f"substring({a}, {self.one('2', '-3')})",
            f"{self.one('left', 'right')}({a}, {self.one('2', '0', '-1', '20')})",
            f"concat({a}, {self.term('text', 0)})",
            f"({a} || '-' || {self.column('text')})",
            f"replace({a}, {self.one(chr(39) + 'a' + chr(39), chr(39) * 2)}, 'ö')",
            f"coalesce({a}, {self.literal('text')})",
            f"CAST({self.column('integer')} AS STRING)",
            "CAST(o AS STRING)",
            f"CAST({self.column('date')} AS STRING)",
            f"CASE WHEN {self.condition(0)} THEN {a} END",
            f"{self.one('greatest', 'least')}({a}, {self.column('text')})",
        )

    def _date(self, depth: int) -> str:
        a = self.term("date", depth)
        return self.one(
            f"({a} + INTERVAL {self.one('1', '40')} {self.one('DAY', 'WEEK', 'MONTH', 'YEAR')})",
            f"({a} - INTERVAL 3 {self.one('DAYS', 'MONTHS')})",
            f"({a} {self.one('+', '-')} {self.one('7', 'y')})",
            f"{self.one('date_add', 'date_sub', 'add_months')}({a}, {self.one('3', 'h')})",
            f"last_day({a})",
            f"trunc({a}, '{self.one('YEAR', 'MM', 'week', 'quarter')}')",
            f"CAST({self.term('instant', depth)} AS DATE)",
            f"to_date({self.column('clock')})",
            f"coalesce({a}, d2)",
        )

    def _instant(self, depth: int) -> str:
        a = self.term("instant", depth)
        unit = self.one("year", "quarter", "month", "week", "DAY", "hour", "minute", "second", "millisecond")
        return self.one(
            f"date_trunc('{unit}', {a})",
            f"({a} {self.one('+', '-')} INTERVAL {self.one('1', '100')} {self.one('SECOND', 'HOUR', 'DAY', 'MONTH')})",
            f"CAST({self.column('date')} AS TIMESTAMP)",
            "CAST(n AS TIMESTAMP)",
            f"coalesce({a}, ts2)",
        )

    def _clock(self, depth: int) -> str:
        return self.one(
            f"(n {self.one('+', '-')} INTERVAL {self.one('1', '100')} {self.one('SECOND', 'HOUR', 'DAY', 'MONTH')})",
            "CAST(ts AS TIMESTAMP_NTZ)",
            "CAST(d AS TIMESTAMP_NTZ)",
            "n",
        )

    def _boolean(self, depth: int) -> str:
        return self.one(
            f"({self.condition(0)})",
            f"coalesce(o, {self.one('TRUE', 'FALSE')})",
            f"isnan({self.one('x', 'f')})",
            "o",
        )
