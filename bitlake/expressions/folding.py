"""Constant expressions of Spark SQL → Python values, where the value is certain.

A value is an ``int``, :class:`decimal.Decimal` (Spark's ``1.5``), ``float`` (DOUBLE), :class:`numpy.float32` (FLOAT),
``str``, ``bytes``, ``bool``, ``date``, ``datetime`` (aware: an instant; naive: TIMESTAMP_NTZ) or None for NULL.
What is not certain to mean the same to Spark (overflow, casts that may fail, sessions' clocks) raises
:class:`NotConstant`.
"""

from __future__ import annotations

import calendar
import datetime as dt
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any

import numpy as np
from sqlglot import exp

from bitlake.expressions import literals
from bitlake.types import time_zone

_WIDE = Context(prec=76, traps=[InvalidOperation, Inexact])
_INT_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
_UNITS = {
    "MICROSECOND": dt.timedelta(microseconds=1),
    "MILLISECOND": dt.timedelta(milliseconds=1),
    "SECOND": dt.timedelta(seconds=1),
    "MINUTE": dt.timedelta(minutes=1),
    "HOUR": dt.timedelta(hours=1),
}
_FEW_DIGITS = 30
"""A number of at most this many characters fits every limit."""
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_DAYS = {"DAY": 1, "WEEK": 7}


class NotConstant(Exception):
    """The expression is not a constant whose value is certain."""


def constant(node: exp.Expr, timezone: str) -> Any:
    """The value of a constant expression; raises :class:`NotConstant`."""
    try:
        return _constant(node, timezone)
    except (ValueError, OverflowError, ArithmeticError) as e:
        raise NotConstant from e


def _constant(node: exp.Expr, tz: str) -> Any:
    match node:
        case exp.Paren():
            return _constant(node.this, tz)
        case exp.Null():
            return None
        case exp.Boolean():
            return bool(node.this)
        case exp.RawString():
            return str(node.this)
        case exp.HexString():
            text = str(node.this)
            return bytes.fromhex(text if len(text) % 2 == 0 else "0" + text)
        case exp.Literal():
            return str(node.this) if node.is_string else number_of(str(node.this))
        case exp.Concat():
            return _concat(node, tz)
        case exp.Neg():
            return negative(_constant(node.this, tz))
        case exp.Cast():
            return cast(_constant(node.this, tz), node.to, tz)
        case exp.TsOrDsToDate() if node.args.get("format") is None:
            return cast(_constant(node.this, tz), exp.DataType.build("DATE"), tz)
        case exp.TsOrDsAdd() | exp.AddMonths():
            return _date_function(node, tz)
        case exp.Add() | exp.Sub() | exp.Mul():
            return _arithmetic(node, tz)
    raise NotConstant


def number_of(text: str) -> int | Decimal | float:
    """The value of a number without a sign; raises :class:`NotConstant`."""
    if len(text) <= _FEW_DIGITS and text.replace(".", "").isdecimal():
        return int(text) if "." not in text else Decimal(text)
    if "e" in text.lower():
        value = float(text)
        if value in (float("inf"), float("-inf")):
            raise NotConstant
        return value
    if "." in text:
        number = literals.parse_decimal(text)
        if number is None:
            raise NotConstant
        return number
    if len(text) > 38:
        raise NotConstant
    return int(text)


def _concat(node: exp.Concat, tz: str) -> str:
    # Adjoining string literals; CONCAT() of strings means the same.
    parts = [_constant(e, tz) for e in node.expressions]
    if not all(isinstance(p, str) for p in parts):
        raise NotConstant
    return "".join(parts)


def negative(value: Any) -> Any:
    """``-value`` of a constant; raises :class:`NotConstant`."""
    if value is None or (isinstance(value, int | float | Decimal | np.float32) and not isinstance(value, bool)):
        # Spark reads -128Y and -0.0 through the negated literal as well.
        # Exactly: the usual arithmetic of decimals rounds to 28 digits.
        return None if value is None else _WIDE.minus(value) if isinstance(value, Decimal) else -value
    raise NotConstant


def cast(value: Any, to: exp.DataType, tz: str) -> Any:
    """``CAST(value AS to)`` where it cannot fail or round; raises :class:`NotConstant`."""
    if value is None:
        return None
    kind = to.this.name if isinstance(to.this, exp.DataType.Type) else ""
    if kind in _INT_BITS:
        return _to_int(value, _INT_BITS[kind])
    if kind in ("FLOAT", "DOUBLE"):
        number = literals.parse_double(value) if isinstance(value, str) else value
        if number is None or isinstance(number, bool) or not isinstance(number, int | float | Decimal | np.float32):
            raise NotConstant
        return float(number) if kind == "DOUBLE" else _float32(number)
    if kind == "DECIMAL":
        return _to_decimal(value, to)
    if kind == "TEXT" and isinstance(value, str | int) and not isinstance(value, bool):
        return str(value)
    if kind in ("BINARY", "VARBINARY") and isinstance(value, str | bytes):
        return value.encode() if isinstance(value, str) else value
    if kind == "BOOLEAN" and isinstance(value, bool | str):
        made = value if isinstance(value, bool) else literals.parse_bool(value)
        if made is None:
            raise NotConstant
        return made
    if kind in ("DATE", "DATETIME", "TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ", "TIMESTAMPNTZ"):
        return _to_time(value, kind, tz)
    raise NotConstant


def _float32(number: Any) -> np.float32:
    # A decimal text rounded to double first may round differently; only take what both ways agree on.
    made = np.float32(float(number))
    if np.isfinite(made):
        # The distance to the next value; that of the largest one is as for others near it, since the next is infinite.
        half = Decimal(float(np.spacing(np.minimum(np.abs(made), np.float32(3e38))))) / 2
        if abs(Decimal(float(made)) - Decimal(str(number))) >= half:
            raise NotConstant
    return made


def _to_int(value: Any, bits: int) -> int:
    if isinstance(value, str):
        value = literals.parse_integer(value)
    if isinstance(value, Decimal) and value == value.to_integral_value():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise NotConstant
    return value


def _to_decimal(value: Any, to: exp.DataType) -> Decimal:
    numbers = [int(p.name) for p in to.expressions]
    precision, scale = (numbers + [0])[:2] if numbers else (10, 0)
    if isinstance(value, str):
        value = literals.parse_decimal(value)
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise NotConstant
    made = _WIDE.quantize(Decimal(value), Decimal(1).scaleb(-scale))
    if made.copy_abs() >= Decimal(10) ** (precision - scale):
        raise NotConstant
    return made


def _to_time(value: Any, kind: str, tz: str) -> dt.date | dt.datetime:
    instant = kind not in ("DATE", "TIMESTAMPNTZ", "DATETIME")
    if isinstance(value, str):
        parsed = literals.parse_date(value) if kind == "DATE" else literals.parse_timestamp(value)
        if parsed is None:
            raise NotConstant
        value = parsed
        if isinstance(value, dt.datetime) and value.tzinfo is not None and not instant:
            raise NotConstant
    if kind == "DATE":
        if isinstance(value, dt.datetime) or not isinstance(value, dt.date):
            raise NotConstant
        return value
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        value = dt.datetime(value.year, value.month, value.day)
    if not isinstance(value, dt.datetime):
        raise NotConstant
    if instant:
        return value if value.tzinfo is not None else time_zone.at_zone(value, time_zone.zone(tz))
    if value.tzinfo is not None:
        raise NotConstant
    return value


def _date_function(node: exp.TsOrDsAdd | exp.AddMonths, tz: str) -> dt.date:
    value = cast(_constant(node.this, tz), exp.DataType.build("DATE"), tz)
    amount = _constant(node.expression, tz)
    if value is None or not isinstance(amount, int) or isinstance(amount, bool):
        raise NotConstant
    if isinstance(node, exp.AddMonths):
        date = _add_months(value, amount)
        assert isinstance(date, dt.date)
        return date
    if node.text("unit").upper() != "DAY":
        raise NotConstant
    date = value + dt.timedelta(days=amount)
    assert isinstance(date, dt.date)
    return date


def _arithmetic(node: exp.Add | exp.Sub | exp.Mul, tz: str) -> Any:
    left, right = node.left, node.right
    sign = -1 if isinstance(node, exp.Sub) else 1
    if isinstance(left, exp.Interval) and isinstance(node, exp.Add):
        left, right = right, left
    if isinstance(right, exp.Interval) and not isinstance(node, exp.Mul):
        return _shift(_constant(left, tz), right, sign, tz)
    a, b = _constant(left, tz), _constant(right, tz)
    if isinstance(a, dt.date) and not isinstance(a, dt.datetime) and type(b) is int and not isinstance(node, exp.Mul):
        return a + dt.timedelta(days=sign * b)
    if type(a) is int and type(b) is int:
        if any(c.to.this.name in ("TINYINT", "SMALLINT") for c in node.find_all(exp.Cast)):
            raise NotConstant  # overflows earlier
        result = a * b if isinstance(node, exp.Mul) else a + sign * b
        wide = max(32 if -(1 << 31) <= v < 1 << 31 else 64 if -(1 << 63) <= v < 1 << 63 else 128 for v in (a, b))
        if wide == 128 or not -(1 << wide - 1) <= result < 1 << wide - 1:
            raise NotConstant  # Spark fails or wraps around
        return result
    if type(a) in (int, Decimal) and type(b) in (int, Decimal):
        x, y = Decimal(a), Decimal(b)
        work = _WIDE.multiply if isinstance(node, exp.Mul) else _WIDE.add if sign == 1 else _WIDE.subtract
        total = work(x, y)
        digits = total.as_tuple()
        if len(digits.digits) > 30 or not isinstance(digits.exponent, int) or digits.exponent < -6:
            raise NotConstant  # Spark may cut the scale to fit 38 digits
        return total
    if type(a) is float and type(b) is float:
        return a * b if isinstance(node, exp.Mul) else a + sign * b
    raise NotConstant


def _shift(value: Any, interval: exp.Interval, sign: int, tz: str) -> Any:
    if not isinstance(value, dt.date):
        raise NotConstant
    unit = interval.args.get("unit")
    if not isinstance(unit, exp.Var) or interval.this is None:
        raise NotConstant
    amount = _constant(interval.this, tz)
    if isinstance(amount, str):
        amount = literals.parse_integer(amount)
    if type(amount) is not int:
        raise NotConstant
    name = unit.name.upper().removesuffix("S")
    if name in _UNITS:
        if not isinstance(value, dt.datetime):
            raise NotConstant  # Spark makes a timestamp of the date
        if value.tzinfo is None:
            return value + sign * amount * _UNITS[name]
        return value.astimezone(dt.UTC) + sign * amount * _UNITS[name]
    if not isinstance(value, dt.datetime) or value.tzinfo is None:
        return _calendar(value, name, sign * amount)
    zone = time_zone.zone(tz)
    wall = value.astimezone(zone)
    moved = _calendar(wall.replace(tzinfo=None), name, sign * amount)
    assert isinstance(moved, dt.datetime)
    late = moved.replace(tzinfo=zone, fold=1).utcoffset()
    if moved.replace(tzinfo=zone, fold=0).utcoffset() != late:
        raise NotConstant  # a gap or an overlap of the clock: Java keeps the former offset where it can
    return time_zone.at_zone(moved, zone)


def _calendar(value: dt.date, unit: str, amount: int) -> dt.date:
    if unit in _DAYS:
        return value + dt.timedelta(days=_DAYS[unit] * amount)
    if unit in _MONTHS:
        return _add_months(value, _MONTHS[unit] * amount)
    raise NotConstant


def _add_months(value: dt.date, amount: int) -> dt.date:
    year, month = divmod(value.year * 12 + value.month - 1 + amount, 12)
    last = calendar.monthrange(year, month + 1)[1]
    return value.replace(year=year, month=month + 1, day=min(value.day, last))
