"""Casts between column types: which ones Paimon allows, and the conversion of the values.

A column may change its type if the cast table allows it (implicitly, or explicitly unless
``disable-explicit-type-casting`` is set) and a conversion of values exists (:func:`why_not_cast`).

Conversions (:func:`cast_values`) are those of Java: integers wrap and floating point numbers saturate like Java's
primitive casts, decimals round half up and become NULL where they do not fit, timestamps lose digits by truncation,
text is cut to the new length.  TIMESTAMP and TIMESTAMP_LTZ are converted in ``timezone``: the session's, where Paimon
takes its process's default.

Between text and other types, Arrow's kernels are used where Arrow's text equals Java's; elsewhere each **distinct**
value is converted once in Python, which only columns that changed between a number and a text need.

numpy and pyarrow are imported when values are converted: metadata commands only ask which casts are allowed.

Source: table-format spec, section 2 (Evolution).
"""

from __future__ import annotations

import datetime as dt
import re
from calendar import monthrange
from collections.abc import Callable
from dataclasses import replace
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

from bitlake.formatting import DAY_MS
from bitlake.lazy_modules import compute as pc
from bitlake.lazy_modules import numpy as np
from bitlake.lazy_modules import pyarrow as pa
from bitlake.types import arrow_type, time_zone
from bitlake.types.arrow import UNITS_PER_SECOND
from bitlake.types.datatypes import (
    BINARIES,
    COMPACT_DIGITS,
    FLOATS,
    INTEGERS,
    MAX_LENGTH,
    STRINGS,
    TIMESTAMPS,
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    Root,
    RowType,
)
from bitlake.types.utf8 import decoded_text

_NUMERIC = INTEGERS | FLOATS | {Root.DECIMAL}
_DATETIME = TIMESTAMPS | {Root.DATE, Root.TIME}
_NARROWER = {
    Root.TINYINT: frozenset({Root.TINYINT}),
    Root.SMALLINT: frozenset({Root.TINYINT, Root.SMALLINT}),
    Root.INT: frozenset({Root.TINYINT, Root.SMALLINT, Root.INT}),
    Root.BIGINT: INTEGERS,
}
_IMPLICIT: dict[Root, frozenset[Root]] = {
    Root.CHAR: frozenset({Root.CHAR}),
    Root.VARCHAR: STRINGS,
    Root.BOOLEAN: frozenset({Root.BOOLEAN}),
    Root.BINARY: frozenset({Root.BINARY}),
    Root.VARBINARY: BINARIES,
    Root.DECIMAL: frozenset(_NUMERIC),
    **_NARROWER,
    Root.FLOAT: frozenset(INTEGERS | {Root.FLOAT, Root.DECIMAL}),
    Root.DOUBLE: frozenset(_NUMERIC),
    Root.DATE: frozenset({Root.DATE, Root.TIMESTAMP}),
    Root.TIME: frozenset({Root.TIME, Root.TIMESTAMP}),
    Root.TIMESTAMP: TIMESTAMPS,
    Root.TIMESTAMP_LTZ: TIMESTAMPS,
    Root.VARIANT: frozenset({Root.VARIANT}),
}
_TO_NUMBER = frozenset(_NUMERIC | STRINGS | {Root.BOOLEAN} | TIMESTAMPS)
_EXPLICIT: dict[Root, frozenset[Root]] = {
    Root.CHAR: frozenset(Root),
    Root.VARCHAR: frozenset(Root),
    Root.BOOLEAN: frozenset(STRINGS | INTEGERS),
    Root.BINARY: frozenset(STRINGS | {Root.VARBINARY}),
    Root.VARBINARY: frozenset(STRINGS | {Root.BINARY}),
    Root.DECIMAL: frozenset(STRINGS | {Root.BOOLEAN} | TIMESTAMPS),
    **dict.fromkeys((*INTEGERS, *FLOATS), _TO_NUMBER),
    Root.DATE: frozenset(TIMESTAMPS | STRINGS),
    Root.TIME: frozenset(TIMESTAMPS | STRINGS | {Root.TIME}),
    Root.TIMESTAMP: frozenset(_DATETIME | STRINGS | _NUMERIC),
    Root.TIMESTAMP_LTZ: frozenset(_DATETIME | STRINGS | _NUMERIC),
    Root.VARIANT: frozenset(),
}


def why_not_cast(source: DataType, target: DataType, *, explicit: bool) -> str | None:
    """Why a column of ``source`` cannot become one of ``target``; None if it can.  Nullability is not looked at.

    ``explicit``: casts that may lose information are allowed (Paimon's default).
    """
    if replace(source, nullable=True) == replace(target, nullable=True):
        return None
    if not isinstance(target, AtomicType):
        if type(source) is type(target):
            return f"change the parts of {_word(source)} one by one, by name ({_path(source)})"
        return f"{source} cannot become {target}"
    if not isinstance(source, AtomicType):
        if not explicit and target.root in STRINGS:
            return _explicit_only(source, target)
        if target.root in STRINGS and isinstance(source, (ArrayType, MapType, RowType)):
            return _no_text_of(source)
        return f"{source} cannot become {target}"
    if source.root not in _IMPLICIT[target.root]:
        if source.root not in _EXPLICIT[target.root]:
            return f"{source} cannot become {target}"
        if not explicit:
            return _explicit_only(source, target)
    if not _convertible(source, target):
        return f"{source} values cannot be converted to {target}"
    return None


def _explicit_only(source: DataType, target: DataType) -> str:
    return f"{source} to {target} may lose information, and 'disable-explicit-type-casting' is true"


def _word(made: DataType) -> str:
    return str(made).partition("<")[0]


def _path(made: DataType) -> str:
    if isinstance(made, RowType):
        return "column.member"
    return "column.element" if isinstance(made, ArrayType) else "column.value"


def _no_text_of(source: DataType) -> str | None:
    """Why some value inside a nested type has no text; None if all have."""
    text = AtomicType(Root.VARCHAR, length=MAX_LENGTH)
    inner: tuple[DataType, ...]
    match source:
        case ArrayType(element):
            inner = (element,)
        case MapType(key, value):
            inner = (key, value)
        case RowType(fields):
            inner = tuple(f.type for f in fields)
        case _:
            inner = ()
    for part in inner:
        why = why_not_cast(replace(part, nullable=True), text, explicit=True)
        if why is not None:
            return why
    return None


def _convertible(source: AtomicType, target: AtomicType) -> bool:
    """Whether Paimon has a rule that converts values of these types."""
    a, b = source.root, target.root
    if b in STRINGS:
        if a in _DATETIME:
            # Paimon's rule is for exactly the nullable STRING.
            return b is Root.VARCHAR and target.length == MAX_LENGTH and target.nullable
        return a is not Root.VARIANT
    if a in STRINGS:
        return b is not Root.VARIANT
    if b in TIMESTAMPS:
        return a in _DATETIME or a in (Root.INT, Root.BIGINT)
    if a in TIMESTAMPS:
        return b in _DATETIME or b in (Root.INT, Root.BIGINT)
    # What is left: numbers and booleans among themselves, binaries, and equal roots of another length.
    return a is not b or a in BINARIES or a is Root.DECIMAL


# --- casts of values --------------------------------------------------------------------------------------------------

Array = Any
"""A pyarrow Array (pyarrow has no type stubs)."""

_MAX_DIGITS = 4_300
"""The most digits of a number that Python reads from text by default."""
_LONG_MAX = (1 << 63) - 1
_UNIT_NAMES = {1: "seconds", 1_000: "milliseconds", 1_000_000: "microseconds", 1_000_000_000: "nanoseconds"}


def cast_values(array: Array, source: DataType, target: AtomicType, timezone: str = "UTC") -> Array:
    """An Arrow array of ``source`` values as ``target``; NULL stays NULL.

    Raises :class:`ValueError` for a value that has no counterpart, as Paimon fails to read it, and for types that
    :func:`why_not_cast` refuses.
    """
    if target.root not in STRINGS and (why := why_not_cast(source, target, explicit=True)) is not None:
        raise ValueError(why)  # the column had a third type in between, from and to which values can be cast
    if not isinstance(source, AtomicType):
        return _fit_text(_nested_text(array, source, timezone), target)
    a, b = source.root, target.root
    if b in STRINGS:
        if a in BINARIES:
            return text_of_bytes(array)
        return _fit_text(array if a in STRINGS else _to_text_in_zone(array, source, timezone), target)
    if b in BINARIES:
        return _fit_bytes(array.cast(pa.binary()), target)
    if a in STRINGS:
        parsed = parse(array, target)
        return parsed if b is not Root.TIMESTAMP_LTZ else _converted(parsed, timezone, to_clocks=False)
    if a in TIMESTAMPS or b in TIMESTAMPS or Root.TIME in (a, b):
        return _cast_times(array, source, target, timezone)
    if b is Root.DECIMAL:
        return _cast_to_decimal(array, source, target)
    return _cast_to_number(array, source, target)


# --- numbers ----------------------------------------------------------------------------------------------------------


def _cast_to_number(array: Array, source: AtomicType, target: AtomicType) -> Array:
    """BOOLEAN, integers, FLOAT and DOUBLE, from these and from DECIMAL."""
    wanted = arrow_type(target)
    if target.root is Root.BOOLEAN:
        return pc.not_equal(array, pa.scalar(0, array.type))
    numbers: np.ndarray[Any, Any]
    if source.root is Root.BOOLEAN:
        numbers = _numpy(array.cast(pa.int8()))
    elif source.root is Root.DECIMAL:
        numbers = _doubles_of(array, source) if target.root in FLOATS else _low_words(array)
    else:
        numbers = _numpy(array)
    if target.root in INTEGERS and numbers.dtype.kind == "f":
        wide = target.root is Root.BIGINT
        numbers = _saturated(numbers.astype(np.float64), 64 if wide else 32)
    with np.errstate(over="ignore"):
        return pa.array(numbers.astype(wanted.to_pandas_dtype()), wanted, mask=_nulls(array))


def _saturated(numbers: np.ndarray[Any, Any], bits: int) -> np.ndarray[Any, Any]:
    """Java's narrowing of a double to int or long: towards zero, NaN is 0, what is too large is the largest."""
    bound = 2.0 ** (bits - 1)
    whole = np.trunc(np.nan_to_num(numbers, nan=0.0, posinf=bound, neginf=-bound))
    inside = np.clip(whole, -bound, np.nextafter(bound, 0))
    out: np.ndarray[Any, Any] = inside.astype(np.int64)
    out[whole >= bound] = int(bound) - 1
    return out


def _doubles_of(array: Array, source: AtomicType) -> np.ndarray[Any, Any]:
    if (source.precision or 10) <= COMPACT_DIGITS:
        unscaled = _low_words(array, rescale=False).astype(np.float64)
        scaled: np.ndarray[Any, Any] = unscaled / float(10 ** (source.scale or 0))
        return scaled
    # Through text each is the double nearest to it, as BigDecimal.doubleValue is.
    return _numpy(array.cast(pa.string()).cast(pa.float64()))


def _low_words(array: Array, *, rescale: bool = True) -> np.ndarray[Any, Any]:
    """The low 64 bits of decimals: of the whole part (``rescale``), or of the unscaled number."""
    if rescale and array.type.scale:
        array = array.cast(pa.decimal128(38, 0), safe=False)
    if array.type.bit_width != 128:
        array = array.cast(pa.decimal128(38, array.type.scale))
    words = np.frombuffer(array.buffers()[1], np.int64)[::2]
    low: np.ndarray[Any, Any] = words[array.offset : array.offset + len(array)]
    return low


def _cast_to_decimal(array: Array, source: AtomicType, target: AtomicType) -> Array:
    if source.root in FLOATS:
        return decimals_of(array.cast(pa.float64()), target)
    scale = source.scale or 0
    if source.root is not Root.DECIMAL:
        array = array.cast(pa.int8() if source.root is Root.BOOLEAN else array.type)
        array, scale = array.cast(pa.int64()).cast(pa.decimal128(38, 0)), 0
    wide = array.cast(pa.decimal256(76, scale))
    if scale > (target.scale or 0):
        wide = pc.round(wide, target.scale or 0, round_mode="half_towards_infinity")
    # 38 digits before and 38 after the point always fit.
    wide = wide.cast(pa.decimal256(76, target.scale or 0), safe=False)
    bound = Decimal(10) ** ((target.precision or 10) - (target.scale or 0))
    limit = pa.scalar(bound, pa.decimal256(76, target.scale or 0))
    fits = pc.less(pc.abs(wide), limit)
    return pc.if_else(fits, wide, pa.scalar(None, wide.type)).cast(arrow_type(target))


# --- dates and times --------------------------------------------------------------------------------------------------


def _cast_times(array: Array, source: AtomicType, target: AtomicType, timezone: str) -> Array:
    a, b = source.root, target.root
    wanted = arrow_type(target)
    nulls = _nulls(array)
    if a not in TIMESTAMPS:
        counts = _numpy(array.cast(pa.int64() if a in INTEGERS else pa.int32())).astype(np.int64)
        moved = _from_unit(counts * (DAY_MS if a is Root.DATE else 1), 1 if a in INTEGERS else 1000, wanted, nulls)
        if b is Root.TIMESTAMP or a is Root.TIME:
            return moved
        # Paimon reads a number as an instant, and then takes its wall clock for the instant.
        return _converted(moved, timezone, to_clocks=a in INTEGERS).cast(wanted)
    if b in TIMESTAMPS:
        moved = array
        if a is not b:
            moved = _converted(array, timezone, to_clocks=b is Root.TIMESTAMP)
        return _truncated(moved, source, target)
    local = array if a is Root.TIMESTAMP or b in INTEGERS else _converted(array, timezone, to_clocks=True)
    ms = _milliseconds(local)
    if b is Root.DATE:
        return pa.array((ms // DAY_MS).astype(np.int32), pa.int32(), mask=nulls).cast(wanted)
    if b is Root.TIME:
        return pa.array((ms % DAY_MS).astype(np.int32), pa.int32(), mask=nulls).cast(wanted)
    seconds = _towards_zero(ms, 1000)
    return pa.array(seconds.astype(wanted.to_pandas_dtype()), wanted, mask=nulls)


def _truncated(array: Array, source: AtomicType, target: AtomicType) -> Array:
    """To the target's precision, as Paimon: to milliseconds downwards, from there towards zero."""
    wanted = arrow_type(target)
    have = 6 if source.precision is None else source.precision
    keep = 6 if target.precision is None else target.precision
    values = _numpy(array.cast(pa.int64()))
    unit = UNITS_PER_SECOND[array.type.unit]
    if have <= keep:
        return _from_unit(values, unit, wanted, _nulls(array))
    if keep <= 3:
        ms = values // (unit // 1000) if unit > 1000 else values
        return _from_unit(_towards_zero(ms, 10 ** (3 - keep)) * 10 ** (3 - keep), 1000, wanted, _nulls(array))
    # In the target's unit: the microsecond of the first nanosecond that 64 bits hold begins before it.
    to = UNITS_PER_SECOND[wanted.unit]
    step = to // 10**keep
    return _from_unit(values // (unit // to) // step * step, to, wanted, _nulls(array))


def _towards_zero(values: np.ndarray[Any, Any], step: int) -> np.ndarray[Any, Any]:
    return np.where(values < 0, -(-values // step), values // step)


def _milliseconds(array: Array) -> np.ndarray[Any, Any]:
    unit = UNITS_PER_SECOND[array.type.unit]
    values = _numpy(array.cast(pa.int64()))
    return values // (unit // 1000) if unit >= 1000 else values * 1000


def _from_unit(values: np.ndarray[Any, Any], unit: int, wanted: pa.DataType, nulls: np.ndarray[Any, Any]) -> Array:
    """Convert int64 counts of 1/``unit`` seconds to a timestamp type; raises :class:`ValueError` beyond its range."""
    to = UNITS_PER_SECOND[wanted.unit]
    if to < unit:
        return pa.array(values // (unit // to), pa.int64(), mask=nulls).cast(wanted)
    limit = _LONG_MAX // (to // unit)
    beyond = ((values > limit) | (values < -limit)) & ~nulls
    if beyond.any():
        raise _out_of_range(f"{values[beyond][0]} {_UNIT_NAMES[unit]} after 1970-01-01", wanted.unit)
    return pa.array(values * (to // unit), pa.int64(), mask=nulls).cast(wanted)


def _out_of_range(what: str, unit: str) -> ValueError:
    return ValueError(f"{what} is out of the range of {_UNIT_NAMES[UNITS_PER_SECOND[unit]]} in 64 bits")


def _converted(array: Array, timezone: str, *, to_clocks: bool) -> Array:
    """Convert instants to wall clocks of a zone, or wall clocks to instants, the first of two with one wall clock.

    Raises :class:`ValueError` for those beyond the range of the unit.
    """
    per_second, counts = UNITS_PER_SECOND[array.type.unit], _numpy(array.cast(pa.int64()))
    micros = counts // (per_second // 1_000_000) if per_second > 1_000_000 else counts * (1_000_000 // per_second)
    offsets = (time_zone.offsets_of_instants if to_clocks else time_zone.offsets_of_clocks)(timezone, micros)
    offsets = offsets // 1000 * (per_second // 1000)  # exact: offsets are whole seconds
    moved = counts + offsets if to_clocks else counts - offsets
    unit, nulls = array.type.unit, _nulls(array)
    wrapped = ((moved < counts) != (offsets < 0 if to_clocks else offsets > 0)) & ~nulls
    if wrapped.any():
        what = f"{counts[wrapped][0]} {_UNIT_NAMES[per_second]} after 1970-01-01"
        raise _out_of_range(f"{what} {'in' if to_clocks else 'from'} {timezone}", unit)
    return pa.array(moved, pa.int64(), mask=nulls).cast(pa.timestamp(unit, None if to_clocks else "UTC"))


# --- texts and bytes --------------------------------------------------------------------------------------------------


def _to_text_in_zone(array: Array, source: AtomicType, timezone: str) -> Array:
    if source.root is Root.TIMESTAMP_LTZ:
        array = _converted(array, timezone, to_clocks=True)
    return to_text(array, source)


def _nested_text(array: Array, source: DataType, timezone: str) -> Array:
    """``[a, b]``, ``{k -> v}`` and ``{a, b}``; NULL inside is ``null``."""

    def words(values: Array, kind: DataType) -> Array:
        if isinstance(kind, AtomicType):
            in_words = values if kind.root in STRINGS else _to_text_in_zone(values, kind, timezone)
        else:
            in_words = _nested_text(values, kind, timezone)
        return pc.fill_null(in_words.cast(pa.string()), "null")

    if isinstance(source, RowType):
        children = [words(pc.struct_field(array, i), f.type) for i, f in enumerate(source.fields)]
        inner = pc.binary_join_element_wise(*children, ", ")
        return _enclosed("{", inner, "}", array)
    offsets = array.offsets
    start, stop = offsets[0].as_py(), offsets[-1].as_py()
    if isinstance(source, MapType):
        keys = words(array.keys.slice(start, stop - start), source.key)
        values = words(array.items.slice(start, stop - start), source.value)
        parts, marks = pc.binary_join_element_wise(keys, values, " -> "), "{}"
    else:
        assert isinstance(source, ArrayType)
        parts, marks = words(array.values.slice(start, stop - start), source.element), "[]"
    lists = pa.ListArray.from_arrays(pc.subtract(offsets, offsets[0]), parts)
    return _enclosed(marks[0], pc.binary_join(lists, ", "), marks[1], array)


def _enclosed(opening: str, inner: Array, closing: str, array: Array) -> Array:
    whole = pc.binary_join_element_wise(opening, inner, closing, "")
    return pc.if_else(array.is_valid(), whole, pa.scalar(None, whole.type))


def _fit_text(array: Array, target: AtomicType) -> Array:
    """Cut to the length, which counts characters; CHAR is padded."""
    array = array.cast(pa.string())
    length = target.length or 1
    if len(array) and (pc.max(pc.utf8_length(array)).as_py() or 0) > length:
        array = pc.utf8_slice_codeunits(array, 0, length)
    return pc.utf8_rpad(array, length, " ") if target.root is Root.CHAR else array


def _fit_bytes(array: Array, target: AtomicType) -> Array:
    length = target.length or 1
    if len(array) and (pc.max(pc.binary_length(array)).as_py() or 0) > length:
        array = pc.binary_slice(array, 0, length)
    if target.root is Root.BINARY:
        array = by_distinct(array, lambda b: b.ljust(length, b"\0"), pa.binary())
    return array


# --- text as Java reads and prints it ---------------------------------------------------------------------------------

_TRUE = ("t", "true", "y", "yes", "1")
_FALSE = ("f", "false", "n", "no", "0")
_INTEGER = r"^[+-]?[0-9]*(\.[0-9]*)?$"
_WHOLE = re.compile(r"-?[0-9]+")
_NOT_FINITE = r"[nN]"
"""A letter of ``NaN`` and ``Infinity``, which Arrow also reads in spellings that Java refuses: ``nan``, ``inf``."""
_DOUBLE = re.compile(r"[+-]?(NaN|Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?)[fFdD]?")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_DATE = re.compile(r"\s*([+-]?\d+)\s*(?:-\s*(\d+)\s*(?:-\s*(\d+)\s*)?)?", re.ASCII)
_TIME = re.compile(r"\s*(\d{1,2})\s*(?::\s*(\d{1,2})\s*(?::\s*(\d{1,2})(?:\.(\d+))?\s*)?)?", re.ASCII)
_TIMESTAMP = re.compile(
    r"(\d{4,9})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{0,9}))?)?", re.ASCII
)
_EPOCH = dt.date(1970, 1, 1).toordinal()
_CONTEXT = Context(prec=100, rounding=ROUND_HALF_UP)


def java_float(value: float, *, single: bool = False) -> str:
    """A floating point number as Java prints it: ``0.1``, ``123456.789``, ``1.0E10``, ``NaN``, ``-Infinity``."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"

    shortest = np.format_float_scientific(np.float32(value) if single else np.float64(value), trim="0")
    mantissa, exponent = shortest.split("e")
    power = int(exponent)
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        sign = "-" if mantissa.startswith("-") else ""
        digits = mantissa.lstrip("-").replace(".", "")
        if power < 0:
            return f"{sign}0.{'0' * (-power - 1)}{digits.rstrip('0')}"
        whole = digits[: power + 1].ljust(power + 1, "0")
        return f"{sign}{whole}.{digits[power + 1 :].rstrip('0') or '0'}"
    return f"{mantissa}E{power}"


def to_text(array: Array, source: AtomicType) -> Array:
    """Numbers, booleans, dates and times (LTZ ones as local times already) as Java prints them."""
    root = source.root
    if root in FLOATS:
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
    converted = pa.array([convert(v) for v in encoded.dictionary.to_pylist()], wanted)
    return converted.take(encoded.indices)


def parse(array: Array, target: AtomicType) -> Array:
    """Texts as ``target``; timestamps without a zone.

    An invalid value raises :class:`ValueError`, because Paimon fails to read it, too.
    """
    root = target.root
    array = array.cast(pa.string())
    if root is Root.BOOLEAN:
        return _parse_booleans(array)
    if root in INTEGERS:
        return _parse_integers(array, target)
    if root in FLOATS:
        return _parse_doubles(array, target)
    if root is Root.DECIMAL:
        return by_distinct(array, lambda t: _parse_decimal(t, target), arrow_type(target))
    if root is Root.DATE:
        return by_distinct(array, _parse_date, pa.int32()).cast(pa.date32())
    if root is Root.TIME:
        return by_distinct(array, _parse_time, pa.int32()).cast(arrow_type(target))
    unit = arrow_type(target).unit
    precision = 6 if target.precision is None else target.precision
    local = root is Root.TIMESTAMP
    return by_distinct(array, lambda t: _parse_timestamp(t, precision, unit, local), pa.int64()).cast(
        pa.timestamp(unit)
    )


def decimals_of(array: Array, target: AtomicType) -> Array:
    """DOUBLE values as decimals, through their shortest text as Java does."""
    return by_distinct(array, lambda v: _parse_decimal(repr(v), target), arrow_type(target))


def text_of_bytes(array: Array) -> Array:
    """Decode bytes as UTF-8; other bytes are replaced, as in Java."""
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        return by_distinct(array.cast(pa.binary()), decoded_text, pa.string())


def _parse_booleans(array: Array) -> Array:
    lower = pc.utf8_lower(array)
    true = pc.is_in(lower, pa.array(_TRUE))
    known = pc.or_(true, pc.is_in(lower, pa.array(_FALSE)))
    _all_good(array, known, "BOOLEAN")
    return pc.if_else(array.is_valid(), true, pa.scalar(None, pa.bool_()))


def _parse_integers(array: Array, target: AtomicType) -> Array:
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


def _parse_doubles(array: Array, target: AtomicType) -> Array:
    try:
        if not pc.any(pc.match_substring_regex(array, _NOT_FINITE)).as_py():
            return array.cast(arrow_type(target))
    except pa.ArrowInvalid:
        pass
    return by_distinct(array, _parse_double, pa.string()).cast(arrow_type(target))


def _parse_double(text: str) -> str:
    """Parse a text as Java's parseDouble does, without blanks around it and without a type's letter."""
    stripped = text.strip()
    if not _DOUBLE.fullmatch(stripped):
        raise ValueError(f"invalid number '{text}'")
    if stripped.lstrip("+-").startswith(("NaN", "Infinity")):
        return stripped.rstrip("fd") if stripped.endswith(("yf", "yd", "Nf", "Nd")) else stripped
    return stripped.rstrip("fFdD").lstrip("+")


def _parse_decimal(text: str, target: AtomicType) -> Decimal | None:
    if not _DECIMAL.fullmatch(text):
        raise ValueError(f"invalid decimal number '{text}'")
    try:
        made = Decimal(text).quantize(Decimal(1).scaleb(-(target.scale or 0)), context=_CONTEXT)
    except InvalidOperation:
        return None  # far more digits than any column has
    return made if made.copy_abs() < Decimal(10) ** ((target.precision or 10) - (target.scale or 0)) else None


def _bare_number(text: str, bits: int) -> int:
    """Read a number without a unit, a count to Paimon; raises :class:`ValueError` unless ``bits`` bits hold it."""
    if len(text) > _MAX_DIGITS or not -(1 << bits - 1) <= int(text) < 1 << bits - 1:
        raise ValueError(f"'{text}' is out of the range of {bits} bits")
    return int(text)


def _parse_date(text: str) -> int:
    if _WHOLE.fullmatch(text):
        return _bare_number(text, 32)  # days since the epoch
    match = _DATE.fullmatch(text.split(" ")[0] if text.find(" ") > 0 else text)
    if match is None:
        raise ValueError(f"invalid date '{text}'; expected YYYY-MM-DD")
    return _epoch_day(text, *(int(part or 1) for part in match.groups()))


def _epoch_day(text: str, year: int, month: int, day: int) -> int:
    try:
        return dt.date(year, month, day).toordinal() - _EPOCH
    except (ValueError, OverflowError) as e:
        raise ValueError(f"invalid date in '{text}'; expected an existing day of the years 1 to 9999") from e


def _parse_time(text: str) -> int:
    if _WHOLE.fullmatch(text):
        return _bare_number(text, 32)  # milliseconds
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"invalid time '{text}'; expected HH:MM:SS")
    hour, minute, second = (int(part or 0) for part in match.groups()[:3])
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"invalid time '{text}'; expected HH:MM:SS")
    return ((hour * 60 + minute) * 60 + second) * 1000 + int((match[4] or "").ljust(3, "0")[:3])


def _parse_timestamp(text: str, precision: int, unit: str, local: bool) -> int:
    """Counts of ``unit``, truncated to the precision; a bare number counts units of the precision."""
    per_second = {"ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}[unit]
    if local and _WHOLE.fullmatch(text):
        if precision not in (0, 3, 6, 9):
            raise ValueError(f"'{text}' cannot be read as a TIMESTAMP of precision {precision}")
        return _in_range(text, _bare_number(text, 64) * per_second // int(10**precision), unit)
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise ValueError(f"invalid timestamp '{text}'; expected YYYY-MM-DD HH:MM:SS")
    year, month, day = (int(part) for part in match.groups()[:3])
    hour, minute, second = (int(part or 0) for part in match.groups()[3:6])
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"invalid timestamp '{text}'; expected YYYY-MM-DD HH:MM:SS")
    if 0 < month < 13 and day < 32:  # Java reads day 31 of a shorter month as its last day
        day = min(day, monthrange(year, month)[1])
    days = _epoch_day(text, year, month, day)
    nanos = int((match[7] or "").ljust(9, "0")[:precision].ljust(9, "0"))
    seconds = days * 86_400 + hour * 3600 + minute * 60 + second
    return _in_range(text, seconds * per_second + nanos * per_second // 10**9, unit)


def _in_range(text: str, count: int, unit: str) -> int:
    if not -_LONG_MAX <= count <= _LONG_MAX:
        raise _out_of_range(f"'{text}'", unit)
    return count


def _all_good(array: Array, good: Array, what: str) -> None:
    bad = pc.and_(array.is_valid(), pc.invert(pc.fill_null(good, False)))
    if pc.any(bad).as_py():
        raise ValueError(f"'{array.filter(bad)[0].as_py()}' cannot be read as {what}")


# --- Arrow and numpy --------------------------------------------------------------------------------------------------


def _nulls(array: Array) -> np.ndarray[Any, Any]:
    return array.is_null().to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _numpy(array: Array) -> np.ndarray[Any, Any]:
    """The values, 0 where they are NULL."""
    filled = array.fill_null(0) if array.null_count else array
    return filled.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
