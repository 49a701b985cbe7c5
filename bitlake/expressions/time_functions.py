"""Functions of dates and timestamps, with Spark's meaning.

A TIMESTAMP (with the session's zone) is seen as that zone's wall clock.  Where a result is an instant again
(``date_trunc``, ``+ INTERVAL 1 DAY``) the zone must have one offset: UTC, or one such as ``+02:00``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from bitlake.errors import EvaluationFailed
from bitlake.expressions import wall_clock
from bitlake.expressions.casts import cast_typed
from bitlake.expressions.terms import (
    DATE,
    INT,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Bound,
    Function,
    Kernel,
    Refused,
    Typed,
    mask_of,
)
from bitlake.expressions.wall_clock import MICROS_PER_DAY, civil, days_from_civil, month_length
from bitlake.lazy_modules import compute as pc
from bitlake.types.arrow import arrow_type
from bitlake.types.datatypes import INTEGERS, TIMESTAMPS, Root

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
        return pa.array(part(wall_clock.raw(a)).astype(np.int32), pa.int32(), mask=mask_of(a))

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
        found = wall_clock.wall_micros(a, root, term.parameter) // divisor % modulus
        return pa.array(found.astype(np.int32), pa.int32(), mask=mask_of(a))

    return Function(bind, kernel)


# --- dates ------------------------------------------------------------------------------------------------------------


def _bind_days(arguments: Sequence[Typed], zone: str) -> Bound:
    a, amount = arguments
    if amount.root not in (Root.TINYINT, Root.SMALLINT, Root.INT):
        raise Refused(f"{amount.sql} is {amount.type}, and not an INT")
    return [as_date(a, zone), cast_typed(amount, INT, zone)], DATE, None


def _add_days(sign: int) -> Kernel:
    def kernel(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
        a, amount = (array.view(pa.int32()).cast(pa.int64()) for array in arrays)
        total = pc.add(a, pc.multiply(amount, sign))
        return wall_clock.dates((total.fill_null(0)).to_numpy(), total, term.sql)

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
    year, month, _ = civil(wall_clock.raw(arrays[0]))
    last = days_from_civil(year, month, month_length(year, month))
    return wall_clock.dates(last, arrays[0], term.sql)


def _bind_months(arguments: Sequence[Typed], zone: str) -> Bound:
    a, amount = arguments
    if amount.root not in (Root.TINYINT, Root.SMALLINT, Root.INT):
        raise Refused(f"{amount.sql} is {amount.type}, and not an INT")
    return [as_date(a, zone), cast_typed(amount, INT, zone)], DATE, None


def _months_later(days: Any, amount: Any) -> Any:
    year, month, day = civil(days)
    total = year * 12 + month - 1 + amount
    year, month = total // 12, total % 12 + 1
    return days_from_civil(year, month, np.minimum(day, month_length(year, month)))


def _add_months(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    both = pc.and_(arrays[0].is_valid(), arrays[1].is_valid())
    days, amount = wall_clock.raw(arrays[0]), wall_clock.raw(arrays[1])
    return wall_clock.dates(_months_later(days, amount), pc.if_else(both, True, None), term.sql)


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
    text = term.parameter if term.is_literal and isinstance(term.parameter, str) else ""
    unit = words.get(text.lower())
    if unit is None:
        raise Refused(f"{term.sql} is not one of the units {', '.join(sorted(set(words.values())))}")
    return unit


def _bind_trunc(arguments: Sequence[Typed], zone: str) -> Bound:
    a, unit = arguments
    return [as_date(a, zone)], DATE, _unit_of(unit, _WORDS)


def _trunc(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    return wall_clock.dates(truncated_days(wall_clock.raw(arrays[0]), term.parameter), arrays[0], term.sql)


def _bind_date_trunc(arguments: Sequence[Typed], zone: str) -> Bound:
    unit, a = arguments
    if a.root not in (Root.DATE, *TIMESTAMPS):
        raise Refused(f"{a.sql} is {a.type}, and not a timestamp")
    if not wall_clock.is_fixed(zone):
        raise Refused(f"a wall clock of {zone} is not always one instant")
    return [cast_typed(a, TIMESTAMP, zone)], TIMESTAMP, (_unit_of(unit, {**_WORDS, **_CLOCK_WORDS}), zone)


def _date_trunc(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    unit, zone = term.parameter
    wall = wall_clock.wall_micros(arrays[0], Root.TIMESTAMP_LTZ, zone)
    if unit in CLOCK_UNITS:
        cut = wall // CLOCK_UNITS[unit] * CLOCK_UNITS[unit]
    else:
        days = wall // MICROS_PER_DAY
        cut = (days if unit == "day" else truncated_days(days, unit)) * MICROS_PER_DAY
    found = cut - wall_clock.fixed_offset(zone)
    if bool(np.any(found > wall_clock.raw(arrays[0]))):  # wrapped around
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
    if term.root is Root.TIMESTAMP_LTZ and not wall_clock.is_fixed(zone) and (months or abs(micros) >= MICROS_PER_DAY):
        raise Refused(f"days of {zone} are not all of one length")
    made = TIMESTAMP if term.root is Root.TIMESTAMP_LTZ else TIMESTAMP_NTZ
    return Typed("shift", made, (term,), (months, micros, zone), sql)


def _shift(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    months, micros, zone = term.parameter
    (a,) = arrays
    if term.root is Root.DATE:
        days = wall_clock.raw(a)
        moved = _months_later(days, months) if months else days + micros // MICROS_PER_DAY
        return wall_clock.dates(moved, a, term.sql)
    assert term.root is not None
    if months:
        wall = wall_clock.wall_micros(a, term.root, zone)
        days = wall // MICROS_PER_DAY
        later = _months_later(days, months)
        values = later * MICROS_PER_DAY + (wall - days * MICROS_PER_DAY)
        if bool(np.any(values // MICROS_PER_DAY != later)):
            raise EvaluationFailed(f"{term.sql}: the timestamp is out of range in some row")
        if term.root is Root.TIMESTAMP_LTZ:
            values = values - wall_clock.fixed_offset(zone)
        return pa.array(values, pa.int64(), mask=mask_of(a)).view(arrow_type(term.type))
    try:
        return pc.add_checked(a.view(pa.int64()), micros).view(arrow_type(term.type))
    except pa.ArrowInvalid as e:
        raise EvaluationFailed(f"{term.sql}: the timestamp is out of range in some row") from e


SHIFT: Kernel = _shift


def bind_date_sum(arguments: Sequence[Typed], sign: int, zone: str) -> Bound:
    """``date + integer`` and ``date - integer``."""
    a, amount = arguments
    if a.root is not Root.DATE or amount.root not in INTEGERS:
        raise Refused(f"{a.type} and {amount.type} are not added")
    return _bind_days([a, amount], zone)


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
    "date_add": Function(_bind_days, _add_days(1)),
    "date_sub": Function(_bind_days, _add_days(-1)),
    "datediff": Function(_bind_difference, _difference),
    "last_day": Function(_bind_last_day, _last_day),
    "add_months": Function(_bind_months, _add_months),
    "trunc": Function(_bind_trunc, _trunc),
    "date_trunc": Function(_bind_date_trunc, _date_trunc),
}
