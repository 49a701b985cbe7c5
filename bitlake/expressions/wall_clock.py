"""Dates and wall clocks of whole columns: civil dates from days, and instants as a zone's clocks show them.

Dates are proleptic Gregorian, as in Spark.  Offsets of a zone come from the same rules as single timestamps do
(:mod:`zoneinfo`), looked up once per change of the clock and not per value.
"""

from __future__ import annotations

import bisect
import datetime as dt
import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from bitlake.errors import EvaluationFailed
from bitlake.expressions import literals
from bitlake.expressions.terms import mask_of
from bitlake.types.datatypes import Root

if TYPE_CHECKING:
    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]

MICROS_PER_DAY = 86_400_000_000
_STEP = dt.timedelta(days=3)
"""No zone changes its clock twice within this time."""
_FIRST, _LAST = dt.datetime(1840, 1, 1, tzinfo=dt.UTC), dt.datetime(9990, 1, 1, tzinfo=dt.UTC)
_LAST_MICROS = literals.micros_of(_LAST)


def is_fixed(zone: str) -> bool:
    """Whether a zone's offset from UTC is always the same."""
    return isinstance(literals.zone(zone), dt.timezone)


def fixed_offset(zone: str) -> int:
    """The offset of such a zone, in microseconds."""
    offset = literals.zone(zone).utcoffset(None)
    assert offset is not None
    return offset // literals.MICRO


# --- civil dates ------------------------------------------------------------------------------------------------------


def civil(days: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Year, month and day of days since 1970-01-01, of any size."""
    shifted = days + 719_468  # days since 0000-03-01
    era = shifted // 146_097
    of_era = shifted - era * 146_097
    year_of_era = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * of_year + 2) // 153
    day = of_year - (153 * shifted_month + 2) // 5 + 1
    month = shifted_month + np.where(shifted_month < 10, 3, -9)
    return year_of_era + era * 400 + (month <= 2), month, day


def days_from_civil(year: Any, month: Any, day: Any) -> Any:
    """Days since 1970-01-01 of dates; the inverse of :func:`civil`."""
    shifted_year = year - (month <= 2)
    era = shifted_year // 400
    year_of_era = shifted_year - era * 400
    of_year = (153 * (month + np.where(month > 2, -3, 9)) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + of_year - 719_468


def month_length(year: Int64s, month: Int64s) -> Int64s:
    """The number of days of months."""
    following = month % 12 + 1
    days: Int64s = days_from_civil(year + (month == 12), following, 1) - days_from_civil(year, month, 1)
    return days


# --- columns ----------------------------------------------------------------------------------------------------------


def raw(array: pa.Array) -> Int64s:
    """Days or microseconds of a DATE or timestamp array; 0 where NULL."""
    width = pa.int32() if array.type.bit_width == 32 else pa.int64()
    plain = array.view(width)
    numbers: Int64s = (plain.fill_null(0) if plain.null_count else plain).to_numpy().astype(np.int64)
    return numbers


def dates(days: Int64s, like: pa.Array, what: str) -> pa.Array:
    """A DATE array of days, NULL where ``like`` is."""
    if len(days) and (int(days.min()) < -(1 << 31) or int(days.max()) >= 1 << 31):
        raise EvaluationFailed(f"{what}: the date is out of range in some row")
    return pa.array(days.astype(np.int32), pa.int32(), mask=mask_of(like)).view(pa.date32())


def wall_micros(array: pa.Array, root: Root, zone: str) -> Int64s:
    """Microseconds of the wall clock: of TIMESTAMP as it is, of TIMESTAMP_LTZ in a zone."""
    values = raw(array)
    if root is not Root.TIMESTAMP_LTZ or not len(values):
        return values
    if is_fixed(zone):
        offset = fixed_offset(zone)
        return values if offset == 0 else _moved(values, np.int64(offset))
    low, high = int(values.min()), int(values.max())
    return _moved(values, _offsets(zone, values, low, high))


def _moved(values: Int64s, offsets: Any) -> Int64s:
    moved: Int64s = values + offsets
    if np.any((moved < values) != (offsets < 0)):
        raise EvaluationFailed("a timestamp is out of range in some row")
    return moved


def days_of(array: pa.Array, root: Root, zone: str) -> pa.Array:
    """The DATE of timestamps, by the wall clock."""
    return dates(wall_micros(array, root, zone) // MICROS_PER_DAY, array, "CAST AS DATE")


def _offsets(zone: str, values: Int64s, low: int, high: int) -> Int64s:
    """A zone's offset at each instant, in microseconds."""
    if high >= _LAST_MICROS:
        raise EvaluationFailed(f"timestamps after year 9989 have no wall clock in {zone}; use UTC or an offset")
    # Whole decades, so that few different ranges are asked for.  Before the first year clocks showed solar time.
    years = civil(np.array([low, high]) // MICROS_PER_DAY)[0]
    first, last = (max(int(year), _FIRST.year) // 10 * 10 for year in years)
    starts, offsets = _changes(zone, first, min(last + 10, _LAST.year))
    of_values: Int64s = offsets[np.maximum(np.searchsorted(starts, values, "right") - 1, 0)]
    return of_values


@functools.lru_cache(64)
def _changes(zone: str, first: int, last: int) -> tuple[Int64s, Int64s]:
    """The instants from which an offset holds between two years, and the offsets; the first holds before, too."""
    tz = literals.zone(zone)
    at, end = (dt.datetime(year, 1, 1, tzinfo=dt.UTC) for year in (first, last))
    offset = at.astimezone(tz).utcoffset()
    starts, offsets = [at], [offset]
    while at < end:
        following = at + _STEP
        then = following.astimezone(tz).utcoffset()
        if then != offset:
            starts.append(_change(tz, at, following))
            offsets.append(then)
            offset = then
        at = following
    micros = [literals.micros_of(s) for s in starts]
    return np.array(micros, np.int64), np.array([(o or dt.timedelta()) // literals.MICRO for o in offsets], np.int64)


def _change(tz: dt.tzinfo, low: dt.datetime, high: dt.datetime) -> dt.datetime:
    """The first second after ``low`` with the offset of ``high``."""
    before = low.astimezone(tz).utcoffset()

    def changed(seconds: int) -> bool:
        return (low + dt.timedelta(seconds=seconds)).astimezone(tz).utcoffset() != before

    return low + dt.timedelta(seconds=bisect.bisect(range(int((high - low).total_seconds())), False, key=changed))
