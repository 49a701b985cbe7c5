"""Values as the text Paimon makes of them, and values read from such text.

Kernels where Arrow's text is Java's; else each **distinct** value is converted once in Python, which only columns that
changed between a number and a text ever need.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bitlake.types import arrow_type
from bitlake.types.casts import java_float
from bitlake.types.datatypes import INTEGERS, TIMESTAMPS, AtomicType, Root

Array = Any
"""A pyarrow Array (pyarrow has no type stubs)."""

_TRUE = ("t", "true", "y", "yes", "1")
_FALSE = ("f", "false", "n", "no", "0")
_INTEGER = r"^[+-]?[0-9]*(\.[0-9]*)?$"
_DIGITS = re.compile(r"[0-9]+")
_DOUBLE = re.compile(r"[+-]?(NaN|Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?)[fFdD]?")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_DATE = re.compile(r"\s*([+-]?\d+)\s*(?:-\s*(\d+)\s*(?:-\s*(\d+)\s*)?)?")
_TIME = re.compile(r"\s*(\d{1,2})\s*(?::\s*(\d{1,2})\s*(?::\s*(\d{1,2})(?:\.(\d+))?\s*)?)?")
_TIMESTAMP = re.compile(r"(\d{4,9})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{0,9}))?)?")
_EPOCH = dt.date(1970, 1, 1).toordinal()
_CONTEXT = Context(prec=100, rounding=ROUND_HALF_UP)


def to_text(array: Array, source: AtomicType) -> Array:
    """Numbers, booleans, dates and times (LTZ ones as local times already) as Java prints them."""
    root = source.root
    if root in (Root.FLOAT, Root.DOUBLE):
        single = root is Root.FLOAT
        return by_distinct(array, lambda v: java_float(v, single=single), pa.string())
    if root is Root.DECIMAL:
        words = array.cast(pa.string())
        if pc.any(pc.match_substring(words, "E")).as_py():  # BigDecimal's plain text has no exponent
            words = by_distinct(words, lambda v: f"{Decimal(v):f}", pa.string())
        return words
    if root is Root.TIME:
        digits = source.precision or 0
        return by_distinct(array.cast(pa.int32()), lambda v: _clock(v, digits), pa.string())
    if root in TIMESTAMPS:
        precision = 6 if source.precision is None else source.precision
        shown = array.cast(pa.timestamp("s"), safe=False) if precision == 0 else array
        words = pc.strftime(shown, "%Y-%m-%d %H:%M:%S")
        full = {"s": 0, "ms": 3, "us": 6, "ns": 9}[shown.type.unit]
        return pc.utf8_slice_codeunits(words, 0, -(full - precision)) if full > precision else words
    if root is Root.DATE:
        return pc.strftime(array, "%Y-%m-%d")
    return array.cast(pa.string())


def _clock(ms: int, digits: int) -> str:
    seconds, rest = divmod(ms % 86_400_000, 1000)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    if not digits:
        return text
    fraction = f"{rest:03d}"[: min(digits, 3)]
    return f"{text}.{fraction.rstrip('0') or '0'}"


def by_distinct(array: Array, convert: Callable[[Any], Any], wanted: pa.DataType) -> Array:
    """Convert each distinct value once; raises the :class:`ValueError` of ``convert``."""
    encoded = array.dictionary_encode()
    made = pa.array([convert(v) for v in encoded.dictionary.to_pylist()], wanted)
    return made.take(encoded.indices)


def parse(array: Array, target: AtomicType) -> Array:
    """Texts as ``target``; timestamps without a zone.

    What is no such value raises :class:`ValueError`, as Paimon then fails to read it.
    """
    root = target.root
    array = array.cast(pa.string())
    if root is Root.BOOLEAN:
        return _booleans(array)
    if root in INTEGERS:
        return _integers(array, target)
    if root in (Root.FLOAT, Root.DOUBLE):
        return _doubles(array, target)
    if root is Root.DECIMAL:
        return by_distinct(array, lambda t: _decimal(t, target), arrow_type(target))
    if root is Root.DATE:
        return by_distinct(array, _date, pa.int32()).cast(pa.date32())
    if root is Root.TIME:
        return by_distinct(array, _time, pa.int32()).cast(arrow_type(target))
    unit = arrow_type(target).unit
    precision = 6 if target.precision is None else target.precision
    local = root is Root.TIMESTAMP
    return by_distinct(array, lambda t: _timestamp(t, precision, unit, local), pa.int64()).cast(pa.timestamp(unit))


def decimals_of(array: Array, target: AtomicType) -> Array:
    """DOUBLE values as decimals, through their shortest text as Java does."""
    return by_distinct(array, lambda v: _decimal(repr(v), target), arrow_type(target))


def text_of_bytes(array: Array) -> Array:
    """Bytes taken for UTF-8; what is not, is replaced."""
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        return by_distinct(array.cast(pa.binary()), lambda b: b.decode("utf-8", "replace"), pa.string())


def _booleans(array: Array) -> Array:
    lower = pc.utf8_lower(array)
    true = pc.is_in(lower, pa.array(_TRUE))
    known = pc.or_(true, pc.is_in(lower, pa.array(_FALSE)))
    _all_good(array, known, "BOOLEAN")
    return pc.if_else(array.is_valid(), true, pa.scalar(None, pa.bool_()))


def _integers(array: Array, target: AtomicType) -> Array:
    good = pc.and_(pc.match_substring_regex(array, _INTEGER), pc.match_substring_regex(array, r"[0-9.]"))
    _all_good(array, good, target.root.value)
    whole = pc.replace_substring_regex(array, r"\..*$", "")
    whole = pc.replace_substring_regex(whole, r"^([+-]?)0*", r"\1")
    whole = pc.replace_substring_regex(whole, r"^\+", "")
    whole = pc.if_else(pc.is_in(whole, pa.array(["", "-"])), "0", whole)
    try:
        return whole.cast(arrow_type(target))
    except pa.ArrowInvalid as e:
        raise ValueError(f"a number is too large for {target.root.value}: {e}") from e


def _doubles(array: Array, target: AtomicType) -> Array:
    try:
        return array.cast(arrow_type(target))
    except pa.ArrowInvalid:
        return by_distinct(array, _double, pa.string()).cast(arrow_type(target))


def _double(text: str) -> str:
    """What Java's parseDouble takes, without blanks around it and without a type's letter."""
    stripped = text.strip()
    if not _DOUBLE.fullmatch(stripped):
        raise ValueError(f"'{text}' is no number")
    if stripped.lstrip("+-").startswith(("NaN", "Infinity")):
        return stripped.rstrip("fd") if stripped.endswith(("yf", "yd", "Nf", "Nd")) else stripped
    return stripped.rstrip("fFdD").lstrip("+")


def _decimal(text: str, target: AtomicType) -> Decimal | None:
    if not _DECIMAL.fullmatch(text):
        raise ValueError(f"'{text}' is no decimal number")
    try:
        made = Decimal(text).quantize(Decimal(1).scaleb(-(target.scale or 0)), context=_CONTEXT)
    except InvalidOperation:
        return None  # far more digits than any column has
    return made if made.copy_abs() < Decimal(10) ** ((target.precision or 10) - (target.scale or 0)) else None


def _date(text: str) -> int:
    if _DIGITS.fullmatch(text):
        return int(text)  # epoch days, as Paimon takes a bare number
    match = _DATE.fullmatch(text.split(" ")[0] if text.find(" ") > 0 else text)
    if match is None:
        raise ValueError(f"'{text}' is no date")
    year, month, day = (int(part or 1) for part in match.groups())
    return dt.date(year, month, day).toordinal() - _EPOCH


def _time(text: str) -> int:
    if _DIGITS.fullmatch(text):
        return int(text)
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"'{text}' is no time")
    hour, minute, second = (int(part or 0) for part in match.groups()[:3])
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"'{text}' is no time")
    return ((hour * 60 + minute) * 60 + second) * 1000 + int((match[4] or "").ljust(3, "0")[:3])


def _timestamp(text: str, precision: int, unit: str, local: bool) -> int:
    """Counts of ``unit``, truncated to the precision; a bare number counts units of the precision."""
    per_second = {"ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}[unit]
    if local and _DIGITS.fullmatch(text):
        if precision not in (0, 3, 6, 9):
            raise ValueError(f"'{text}' cannot be read as a TIMESTAMP of precision {precision}")
        return int(text) * per_second // int(10**precision)
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise ValueError(f"'{text}' is no timestamp")
    year, month, day = (int(part) for part in match.groups()[:3])
    hour, minute, second = (int(part or 0) for part in match.groups()[3:6])
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"'{text}' is no timestamp")
    days = dt.date(year, month, day).toordinal() - _EPOCH
    nanos = int((match[7] or "").ljust(9, "0")[:precision].ljust(9, "0"))
    return (days * 86_400 + hour * 3600 + minute * 60 + second) * per_second + nanos * per_second // 10**9


def _all_good(array: Array, good: Array, what: str) -> None:
    bad = pc.and_(array.is_valid(), pc.invert(pc.fill_null(good, False)))
    if pc.any(bad).as_py():
        raise ValueError(f"'{array.filter(bad)[0].as_py()}' cannot be read as {what}")


__all__ = ["by_distinct", "decimals_of", "parse", "text_of_bytes", "to_text"]
