"""Functions of strings, binaries, dates, timestamps, arrays and maps, with Spark's meaning.

Positions in strings count code points, ``trim`` takes spaces alone, and ``lower`` and ``upper`` use Unicode's full
mappings (``ß`` becomes ``SS``; a final ``Σ`` becomes ``ς``), evaluated once per distinct value where text is not ASCII.

A TIMESTAMP (with the session's zone) is seen as that zone's wall clock.  Where a result is an instant again
(``date_trunc``, ``+ INTERVAL 1 DAY``) the zone must have one offset: UTC, or one such as ``+02:00``.

``array_contains``, ``arrays_overlap`` and ``map_contains_key`` search for constants, which are not NULL.  The result is
Spark's: TRUE if a value occurs, else NULL if the array is NULL or has a NULL element, else FALSE.  ``exists(a, x -> x =
1)`` is ``array_contains(a, 1)``, and with IN it is ``arrays_overlap``.  ``size`` of NULL is NULL, as in ANSI mode.
"""

from __future__ import annotations

import datetime as dt
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bitlake.errors import EvaluationFailed
from bitlake.expressions import literals
from bitlake.expressions.casts import cast_typed
from bitlake.expressions.terms import (
    BOOLEAN,
    DATE,
    INT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Bound,
    Function,
    Kernel,
    Refused,
    Typed,
    mask_of,
    text_argument,
)
from bitlake.lazy_modules import compute as pc
from bitlake.types import time_zone
from bitlake.types.arrow import arrow_type
from bitlake.types.datatypes import (
    BINARIES,
    INTEGER_BITS,
    INTEGERS,
    TIMESTAMPS,
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    Root,
)
from bitlake.types.time_zone import (
    MICROS_PER_DAY,
    civil,
    date_array,
    days_from_civil,
    month_length,
    stored_times,
    wall_micros,
)
from bitlake.types.utf8 import is_utf8


def _constant(term: Typed, kind: type[Any]) -> Any:
    value = term.parameter if term.is_literal else None
    if type(value) is not kind:
        raise Refused(f"{term.sql} is not a constant {'number' if kind is int else 'string'}")
    return value


def _of_text(kernel: Callable[[pa.Array], pa.Array]) -> Function:
    """A function from STRING to STRING."""

    def bind(arguments: Sequence[Typed], zone: str) -> Bound:
        (a,) = arguments
        return [text_argument(a)], STRING, None

    return Function(bind, lambda term, arrays, rows: kernel(arrays[0]))


def _of_case(kernel: Callable[[pa.Array], pa.Array]) -> Function:
    """LOWER or UPPER: of another one only the outer counts, as Spark's optimizer has it."""

    def bind(arguments: Sequence[Typed], zone: str) -> Bound:
        (a,) = arguments
        while a.function in ("lower", "upper"):
            (a,) = a.arguments
        return [text_argument(a)], STRING, None

    return Function(bind, lambda term, arrays, rows: kernel(arrays[0]))


_NEWER_UPPER = frozenset("\u019b\u0264\ua7d3\ua7d5")
"""Letters that have had an upper case since Unicode 16 and 17."""


def _known(text: str) -> str:
    """A text whose case this Python's Unicode knows; Spark's is Unicode 17."""
    for c in text:
        if unicodedata.category(c) == "Cn" or (c in _NEWER_UPPER and c.upper() == c):
            raise EvaluationFailed(f"the case of {c!r} (U+{ord(c):04X}) is of a newer Unicode than this Python has")
    return text


def _mapped(arrow_function: str, each: Callable[[str], str]) -> Callable[[pa.Array], pa.Array]:
    def kernel(array: pa.Array) -> pa.Array:
        # Not Arrow's ascii_lower and ascii_upper: they return other texts for a sliced array.
        if pc.all(pc.string_is_ascii(array)).as_py() is not False:
            return pc.call_function(arrow_function, [array])
        encoded = array.dictionary_encode()
        values = pa.array([each(_known(text)) for text in encoded.dictionary.to_pylist()], array.type)
        return values.take(encoded.indices)

    return kernel


def _bind_length(arguments: Sequence[Typed], zone: str) -> Bound:
    (a,) = arguments
    if a.root in BINARIES:
        return arguments, INT, None
    return [text_argument(a)], INT, None


def _length(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    (a,) = arrays
    return pc.binary_length(a) if term.arguments[0].root in BINARIES else pc.utf8_length(_characters(a))


def _characters(text: pa.Array) -> pa.Array:
    """The text, for a function that counts characters: in bytes that are not UTF-8 Spark counts by the first of each.

    Raises UnicodeError for such text.
    """
    if not is_utf8(text):
        raise UnicodeError("a text is not UTF-8")
    return text


def _byte_length(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    return pc.binary_length(arrays[0])


def _bind_concat(arguments: Sequence[Typed], zone: str) -> Bound:
    return [text_argument(a) for a in arguments], STRING, None


def _concat(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    return pc.binary_join_element_wise(*arrays, "", null_handling="emit_null")


def _bind_substring(arguments: Sequence[Typed], zone: str) -> Bound:
    a, *numbers = arguments
    start, *length = (_constant(n, int) for n in numbers)
    return [text_argument(a)], STRING, (start, length[0] if length else None)


def _substring(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    a = _characters(arrays[0])
    start, length = term.parameter
    if length is not None and length <= 0:
        return pc.utf8_slice_codeunits(a, 0, 0)
    if start >= 0:
        begin = max(start - 1, 0)
        return pc.utf8_slice_codeunits(a, begin, None if length is None else begin + length)
    if length is None or start + length >= 0:
        return pc.utf8_slice_codeunits(a, start)
    return pc.utf8_slice_codeunits(a, start, start + length)


def _bind_side(arguments: Sequence[Typed], zone: str) -> Bound:
    a, count = arguments
    return [text_argument(a)], STRING, max(0, _constant(count, int))


def _left(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    return pc.utf8_slice_codeunits(_characters(arrays[0]), 0, term.parameter)


def _right(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    count = term.parameter
    return pc.utf8_slice_codeunits(_characters(arrays[0]), -count) if count else _left(term, arrays, rows)


def _bind_replace(arguments: Sequence[Typed], zone: str) -> Bound:
    a, sought, *put = arguments
    return [text_argument(a)], STRING, (_constant(sought, str), _constant(put[0], str) if put else "")


def _replace(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    sought, put = term.parameter
    return pc.replace_substring(arrays[0], sought, put) if sought else arrays[0]


def _bind_position(arguments: Sequence[Typed], zone: str) -> Bound:
    a, sought = arguments
    return [text_argument(a)], INT, _constant(sought, str)


def _position(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    (a,) = arrays
    if not term.parameter:
        return pc.if_else(a.is_valid(), pa.scalar(1, pa.int32()), pa.scalar(None, pa.int32()))
    at = pc.find_substring(a, term.parameter)  # in bytes
    if pc.all(pc.string_is_ascii(a)).as_py() is not False:
        return pc.add(at, 1)
    split = pc.split_pattern(_characters(a), term.parameter, max_splits=1)
    before = pc.utf8_length(pc.list_element(split, 0))
    return pc.if_else(pc.less(at, 0), pa.scalar(0, pa.int32()), pc.add(before.cast(pa.int32()), 1))


TEXT_FUNCTIONS = {
    "length": Function(_bind_length, _length),
    "octet_length": Function(_bind_length, _byte_length),
    "lower": _of_case(_mapped("utf8_lower", str.lower)),
    "upper": _of_case(_mapped("utf8_upper", str.upper)),
    "trim": _of_text(lambda array: pc.utf8_trim(array, " ")),
    "ltrim": _of_text(lambda array: pc.utf8_ltrim(array, " ")),
    "rtrim": _of_text(lambda array: pc.utf8_rtrim(array, " ")),
    "concat": Function(_bind_concat, _concat),
    "substring": Function(_bind_substring, _substring),
    "left": Function(_bind_side, _left),
    "right": Function(_bind_side, _right),
    "replace": Function(_bind_replace, _replace),
    "instr": Function(_bind_position, _position),
}


CLOCK_UNITS = {"microsecond": 1, "millisecond": 1000, "second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000}
"""Microseconds of the units shorter than a day."""


def as_date(term: Typed, zone: str) -> Typed:
    """A date operand: a DATE, a timestamp's date, or a date in text."""
    if term.root not in (Root.DATE, *TIMESTAMPS) and not (term.is_literal and term.root is Root.VARCHAR):
        raise Refused(f"{term.sql} is {term.type}, and not a date or timestamp")
    return cast_typed(term, DATE, zone)


# --- fields -----------------------------------------------------------------------------------------------------------


def _of_date(part: Callable[[Any], Any]) -> Function:
    """A function of a date's days that gives an INT."""

    def bind(arguments: Sequence[Typed], zone: str) -> Bound:
        (a,) = arguments
        return [as_date(a, zone)], INT, None

    def kernel(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
        (a,) = arrays
        return pa.array(part(stored_times(a)).astype(np.int32), pa.int32(), mask=mask_of(a))

    return Function(bind, kernel)


def _day_of_year(days: Any) -> Any:
    year, _, _ = civil(days)
    return days - days_from_civil(year, np.int64(1), np.int64(1)) + 1


def _iso_week(days: Any) -> Any:
    thursday = days - (days + 3) % 7 + 3
    year, _, _ = civil(thursday)
    return (thursday - days_from_civil(year, np.int64(1), np.int64(1))) // 7 + 1


def _of_clock(divisor: int, modulus: int) -> Function:
    """A function of a timestamp's time of day that gives an INT."""

    def bind(arguments: Sequence[Typed], zone: str) -> Bound:
        (a,) = arguments
        if a.root not in TIMESTAMPS:
            raise Refused(f"{a.sql} is {a.type}, and not a timestamp")
        return arguments, INT, zone

    def kernel(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
        (a,) = arrays
        root = term.arguments[0].root
        assert root is not None
        found = wall_micros(a, root, term.parameter) // divisor % modulus
        return pa.array(found.astype(np.int32), pa.int32(), mask=mask_of(a))

    return Function(bind, kernel)


# --- dates ------------------------------------------------------------------------------------------------------------


def _bind_amount(arguments: Sequence[Typed], zone: str) -> Bound:
    a, amount = arguments
    if amount.root not in (Root.TINYINT, Root.SMALLINT, Root.INT):
        raise Refused(f"{amount.sql} is {amount.type}, and not an INT")
    return [as_date(a, zone), cast_typed(amount, INT, zone)], DATE, None


def _add_days(sign: int) -> Kernel:
    def kernel(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
        a, amount = (array.view(pa.int32()).cast(pa.int64()) for array in arrays)
        total = pc.add(a, pc.multiply(amount, sign))
        return date_array((total.fill_null(0)).to_numpy(), total, term.sql)

    return kernel


def _bind_difference(arguments: Sequence[Typed], zone: str) -> Bound:
    return [as_date(a, zone) for a in arguments], INT, None


def _difference(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    a, b = (array.view(pa.int32()) for array in arrays)
    try:
        return pc.subtract_checked(a, b)
    except pa.ArrowInvalid as e:
        raise EvaluationFailed(f"{term.sql}: the result overflows INT in some row") from e


def _bind_last_day(arguments: Sequence[Typed], zone: str) -> Bound:
    (a,) = arguments
    return [as_date(a, zone)], DATE, None


def _last_day(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    year, month, _ = civil(stored_times(arrays[0]))
    last = days_from_civil(year, month, month_length(year, month))
    return date_array(last, arrays[0], term.sql)


def _months_later(days: Any, amount: Any) -> Any:
    year, month, day = civil(days)
    total = year * 12 + month - 1 + amount
    year, month = total // 12, total % 12 + 1
    return days_from_civil(year, month, np.minimum(day, month_length(year, month)))


def _add_months(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    later = _months_later(*map(stored_times, arrays))
    return date_array(later, pc.if_else(arrays[1].is_valid(), arrays[0], None), term.sql)


# --- truncation -------------------------------------------------------------------------------------------------------

_WORDS = {"year": "year", "yyyy": "year", "yy": "year", "quarter": "quarter", "month": "month", "mon": "month"}
_WORDS |= {"mm": "month", "week": "week"}
_CLOCK_WORDS = {"day": "day", "dd": "day", **{unit: unit for unit in CLOCK_UNITS}}


def truncated_days(days: Any, unit: str) -> Any:
    """The first day of the week, month, quarter or year of days."""
    if unit == "week":
        return days - (days + 3) % 7
    year, month, _ = civil(days)
    first = {"month": month, "quarter": (month - 1) // 3 * 3 + 1, "year": np.ones_like(month)}[unit]
    return days_from_civil(year, first, np.int64(1))


def _unit_of(term: Typed, words: dict[str, str]) -> str:
    unit = words.get(term.parameter.lower()) if term.is_literal and isinstance(term.parameter, str) else None
    if unit is None:
        raise Refused(f"{term.sql} is not one of the units {', '.join(sorted(set(words.values())))}")
    return unit


def _bind_trunc(arguments: Sequence[Typed], zone: str) -> Bound:
    a, unit = arguments
    return [as_date(a, zone)], DATE, _unit_of(unit, _WORDS)


def _trunc(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    return date_array(truncated_days(stored_times(arrays[0]), term.parameter), arrays[0], term.sql)


def _bind_date_trunc(arguments: Sequence[Typed], zone: str) -> Bound:
    unit, a = arguments
    if a.root not in (Root.DATE, *TIMESTAMPS):
        raise Refused(f"{a.sql} is {a.type}, and not a timestamp")
    if not time_zone.is_fixed(zone):
        raise Refused(f"a wall clock of {zone} is not always one instant")
    return [cast_typed(a, TIMESTAMP, zone)], TIMESTAMP, (_unit_of(unit, {**_WORDS, **_CLOCK_WORDS}), zone)


def _date_trunc(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    unit, zone = term.parameter
    wall = wall_micros(arrays[0], Root.TIMESTAMP_LTZ, zone)
    if unit in CLOCK_UNITS:
        cut = wall // CLOCK_UNITS[unit] * CLOCK_UNITS[unit]
    else:
        days = wall // MICROS_PER_DAY
        cut = (days if unit == "day" else truncated_days(days, unit)) * MICROS_PER_DAY
    found = cut - time_zone.fixed_offset(zone)
    if bool(np.any(found > stored_times(arrays[0]))):  # wrapped around
        raise EvaluationFailed(f"{term.sql}: the timestamp is out of range in some row")
    return pa.array(found, pa.int64(), mask=mask_of(arrays[0])).view(arrow_type(TIMESTAMP))


# --- intervals --------------------------------------------------------------------------------------------------------


def shift_typed(term: Typed, months: int, micros: int, zone: str, sql: str) -> Typed:
    """A date or timestamp plus an interval."""
    if term.root is Root.DATE:
        if micros % MICROS_PER_DAY:
            raise Refused("a DATE plus a time is a TIMESTAMP")
        return Typed("shift", DATE, (term,), (months, micros, zone), sql)
    if term.root not in TIMESTAMPS:
        raise Refused(f"{term.sql} is {term.type}, to which no interval is added")
    if term.root is Root.TIMESTAMP_LTZ and not time_zone.is_fixed(zone) and (months or abs(micros) >= MICROS_PER_DAY):
        raise Refused(f"days of {zone} are not all of one length")
    kind = TIMESTAMP if term.root is Root.TIMESTAMP_LTZ else TIMESTAMP_NTZ
    return Typed("shift", kind, (term,), (months, micros, zone), sql)


def _shift(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    months, micros, zone = term.parameter
    (a,) = arrays
    if term.root is Root.DATE:
        days = stored_times(a)
        moved = _months_later(days, months) if months else days + micros // MICROS_PER_DAY
        return date_array(moved, a, term.sql)
    assert term.root is not None
    if months:
        wall = wall_micros(a, term.root, zone)
        days = wall // MICROS_PER_DAY
        later = _months_later(days, months)
        values = later * MICROS_PER_DAY + (wall - days * MICROS_PER_DAY)
        if bool(np.any(values // MICROS_PER_DAY != later)):
            raise EvaluationFailed(f"{term.sql}: the timestamp is out of range in some row")
        if term.root is Root.TIMESTAMP_LTZ:
            values = values - time_zone.fixed_offset(zone)
        return pa.array(values, pa.int64(), mask=mask_of(a)).view(arrow_type(term.type))
    try:
        return pc.add_checked(a.view(pa.int64()), micros).view(arrow_type(term.type))
    except pa.ArrowInvalid as e:
        raise EvaluationFailed(f"{term.sql}: the timestamp is out of range in some row") from e


SHIFT: Kernel = _shift


TIME_FUNCTIONS = {
    "year": _of_date(lambda days: civil(days)[0]),
    "quarter": _of_date(lambda days: (civil(days)[1] + 2) // 3),
    "month": _of_date(lambda days: civil(days)[1]),
    "day": _of_date(lambda days: civil(days)[2]),
    "dayofyear": _of_date(_day_of_year),
    "dayofweek": _of_date(lambda days: (days + 4) % 7 + 1),
    "weekday": _of_date(lambda days: (days + 3) % 7),
    "weekofyear": _of_date(_iso_week),
    "hour": _of_clock(3_600_000_000, 24),
    "minute": _of_clock(60_000_000, 60),
    "second": _of_clock(1_000_000, 60),
    "date_add": Function(_bind_amount, _add_days(1)),
    "date_sub": Function(_bind_amount, _add_days(-1)),
    "datediff": Function(_bind_difference, _difference),
    "last_day": Function(_bind_last_day, _last_day),
    "add_months": Function(_bind_amount, _add_months),
    "trunc": Function(_bind_trunc, _trunc),
    "date_trunc": Function(_bind_date_trunc, _date_trunc),
}


CONTAINS = frozenset({"array_contains", "arrays_overlap", "map_contains_key"})
"""The functions that search for constants."""
MEMBERS = {"element": "array_contains", "keys": "map_contains_key"}
"""The terms that only indexes use, each with a function that such an index evaluates."""


def member_type(kind: DataType) -> AtomicType | None:
    """The type of an array's elements or of a map's keys; None for another type, and for members that are not atomic.

    Their values are compared as they are: not CHAR, which is padded, and not timestamps and floats.
    """
    inner = kind.element if isinstance(kind, ArrayType) else kind.key if isinstance(kind, MapType) else None
    if not isinstance(inner, AtomicType):
        return None
    return inner if inner.root in (Root.VARCHAR, Root.DATE, Root.BOOLEAN, *INTEGERS) else None


def members(array: pa.Array | pa.ChunkedArray) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """The elements of lists, or the keys of maps, and the row of each, ascending; NULL rows have none."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
        if isinstance(array, pa.ChunkedArray):
            array = array.chunk(0) if array.num_chunks else pa.array([], array.type)
    offsets = array.offsets.to_numpy()
    values = array.keys if pa.types.is_map(array.type) else array.values
    values = values.slice(offsets[0], offsets[-1] - offsets[0])
    rows = np.repeat(np.arange(len(array), dtype=np.int64), np.diff(offsets))
    if array.null_count:
        kept = array.is_valid().to_numpy(zero_copy_only=False)[rows]
        if not kept.all():
            values, rows = values.filter(pa.array(kept)), rows[kept]
    return values, rows


def _bind_contains(arguments: Sequence[Typed], zone: str) -> Bound:
    column, *sought = arguments
    kind = member_type(column.type)
    if kind is None:
        raise Refused(f"{column.sql} is {column.type}, in which no constant is looked for")
    if not sought:
        raise Refused("it needs a value to search for")
    return [column], BOOLEAN, tuple(_sought_constant(term, kind) for term in sought)


def _bind_array(arguments: Sequence[Typed], zone: str) -> Bound:
    if not arguments:
        raise Refused("it needs an array")
    if not isinstance(arguments[0].type, ArrayType):
        raise Refused(f"{arguments[0].sql} is {arguments[0].type}, and not an ARRAY")
    return _bind_contains(arguments, zone)


def _bind_map(arguments: Sequence[Typed], zone: str) -> Bound:
    if not arguments:
        raise Refused("it needs a map")
    if not isinstance(arguments[0].type, MapType):
        raise Refused(f"{arguments[0].sql} is {arguments[0].type}, and not a MAP")
    return _bind_contains(arguments, zone)


def _sought_constant(term: Typed, kind: AtomicType) -> Any:
    value = term.parameter
    if not term.is_literal or value is None:
        raise Refused(f"{term.sql} is not a constant")
    if kind.root in INTEGERS:
        bound = 1 << (INTEGER_BITS[kind.root] - 1)
        fits = term.root in INTEGERS and -bound <= value < bound
    else:
        fits = term.root is kind.root
    if not fits:
        raise Refused(f"{term.sql} is {term.type}, and the values are {kind}")
    return value


def physical(value: Any) -> Any:
    """A constant as predicates hold it."""
    return literals.days(value) if isinstance(value, dt.date) else value


def _contains(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    (array,) = arrays
    kind = member_type(term.arguments[0].type)
    assert kind is not None
    values, parents = members(array)
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    arrow_kind = arrow_type(kind)
    values = values if values.type == arrow_kind else values.cast(arrow_kind)
    hit = pc.is_in(values, value_set=pa.array(term.parameter, arrow_kind)).to_numpy(zero_copy_only=False)
    matches = np.zeros(len(array), bool)
    matches[parents[hit]] = True
    unknown = array.is_null().to_numpy(zero_copy_only=False)
    if values.null_count:
        unknown = unknown.copy()
        unknown[parents[values.is_null().to_numpy(zero_copy_only=False)]] = True
    return pa.array(matches, pa.bool_(), mask=unknown & ~matches)


def _bind_size(arguments: Sequence[Typed], zone: str) -> Bound:
    (a,) = arguments
    if not isinstance(a.type, ArrayType | MapType):
        raise Refused(f"{a.sql} is {a.type}, and neither an ARRAY nor a MAP")
    return arguments, INT, None


def _size(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    (array,) = arrays
    return pa.array(np.diff(array.offsets.to_numpy()).astype(np.int32), pa.int32(), mask=mask_of(array))


ARRAY_FUNCTIONS = {
    "array_contains": Function(_bind_array, _contains),
    "arrays_overlap": Function(_bind_array, _contains),
    "map_contains_key": Function(_bind_map, _contains),
    "size": Function(_bind_size, _size),
}
