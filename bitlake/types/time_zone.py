"""Time zones and dates: names of zones as Spark reads them, offsets from UTC, wall clocks, and civil dates of columns.

Offsets of columns follow the same rules as those of single timestamps (:mod:`zoneinfo`); the rules are evaluated once
per change of the clock, not per value.  Arrow's kernels know neither Java's names of zones nor changes after 2037.

The calendar repeats every 400 years, which are a whole number of weeks, and so do the changes of the clock from the
year 2400 on.  Before the first change, clocks showed solar time.  Dates are proleptic Gregorian, as in Spark.
"""

from __future__ import annotations

import bisect
import contextlib
import datetime as dt
import functools
import re
import zoneinfo
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bitlake import arguments
from bitlake.errors import EvaluationFailed, InvalidRequest
from bitlake.lazy_modules import numpy as np
from bitlake.lazy_modules import pyarrow as pa
from bitlake.types.datatypes import Root

if TYPE_CHECKING:
    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]
    Offsets = Callable[[Int64s], Int64s]
    """The offsets of instants from UTC, both in microseconds."""

UTC = dt.UTC
EPOCH = dt.datetime(1970, 1, 1)
MICRO = dt.timedelta(microseconds=1)
MICROS_PER_DAY = 86_400_000_000

# --- names ------------------------------------------------------------------------------------------------------------

_OFFSET = re.compile(
    # Without colons, each part has two digits.  Spark also reads +8:5.
    r"(?:UTC|GMT|UT)?([+-])(\d\d?)(?:(:|(?<=\d\d))(\d\d|(?<=:)\d$)(?:\3(\d\d))?)?",
    re.ASCII,
)
_SHORT_ZONES = {
    "ACT": "Australia/Darwin",
    "AET": "Australia/Sydney",
    "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo",
    "AST": "America/Anchorage",
    "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare",
    "CNT": "America/St_Johns",
    "CST": "America/Chicago",
    "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris",
    "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia",
    "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
}
"""Java's short names of time zones, which Spark accepts; EST, HST and MST are names of the tz database."""
_UTC_NAMES = ("Z", "UTC", "GMT", "UT", "Etc/UTC")
_MACHINE_ZONES = ("localtime", "posixrules")
"""Files of the tz database that depend on the machine; Java knows no zones by these names."""


ENGINE_ONLY = "known to the engine only"
"""A placeholder for a zone whose rules only the engine knows; :func:`zone` raises :class:`InvalidRequest` for it."""


def zone(name: str) -> dt.tzinfo:
    """The time zone of a name or offset (``UTC``, ``Europe/Paris``, ``+02:00``, ``GMT+8``), as Spark reads them.

    Raises :class:`InvalidRequest` if it is unknown.
    """
    if name == ENGINE_ONLY:
        raise InvalidRequest(
            "this process and Spark have different rules for the session's time zone; write timestamps with their "
            "offset, such as '2026-12-01 12:00:00-07:00'"
        )
    known_zone = find_zone(arguments.text("a time zone", name))
    if known_zone is None:
        raise InvalidRequest(
            f"unknown time zone '{name}'; give a name such as 'Europe/Paris' or an offset like '+02:00'"
        )
    return known_zone


def find_zone(name: str) -> dt.tzinfo | None:
    """The time zone of a name or offset, as in :func:`zone`; None if it is unknown."""
    if name in _UTC_NAMES:
        return UTC
    if name in _MACHINE_ZONES or name.startswith(("posix/", "right/")):
        return None
    match = _OFFSET.fullmatch(name)
    if match is not None:
        sign, (hours, minutes, seconds) = match[1], (int(match[part] or 0) for part in (2, 4, 5))
        offset = dt.timedelta(hours=hours, minutes=minutes, seconds=seconds)
        if offset > dt.timedelta(hours=18) or minutes > 59 or seconds > 59:
            return None
        return dt.timezone(-offset if sign == "-" else offset)
    try:
        return zoneinfo.ZoneInfo(_SHORT_ZONES.get(name, name))
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return None


def is_fixed(name: str) -> bool:
    """Whether a zone's offset from UTC is always the same."""
    return isinstance(zone(name), dt.timezone)


def fixed_offset(name: str) -> int:
    """The offset from UTC, in microseconds, of a zone whose offset is always the same (:func:`is_fixed`)."""
    return _micros(zone(name).utcoffset(None))


def offset_text(minutes: int) -> str:
    """An offset from UTC as text, such as ``-03:30``."""
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"


def _micros(offset: dt.timedelta | None) -> int:
    return (offset or dt.timedelta()) // MICRO


# --- single timestamps ------------------------------------------------------------------------------------------------


def micros_of(value: dt.datetime) -> int:
    """Microseconds since the epoch: of the instant if aware, else of the wall clock as if it were UTC."""
    # Not by astimezone(UTC): in UTC the instant may be before year 1 or after year 9999, which datetime refuses.
    return (value.replace(tzinfo=None) - EPOCH) // MICRO - _micros(value.utcoffset())


def in_utc(instant: dt.datetime) -> dt.datetime:
    """A time in UTC, or with its own offset if it is before year 1 or after year 9999 in UTC.

    A naive time is a wall clock of this machine.
    """
    try:
        return instant.astimezone(UTC)
    except OverflowError:
        offset = instant.utcoffset()
        if offset is None:
            raise
        return instant.replace(tzinfo=dt.timezone(offset))


def at_zone(wall: dt.datetime, tz: dt.tzinfo) -> dt.datetime:
    """The instant of a wall clock in a zone: in a gap later by its length, in an overlap the earlier, as in Java."""
    return in_utc(wall.replace(tzinfo=tz, fold=0))


def steady_offset(instant: dt.datetime, tz: dt.tzinfo) -> dt.timedelta | None:
    """The zone's offset if it is the same for two days before and after an instant, else None.

    Wall clocks near the instant are then in the order of their instants.
    """
    offsets = set()
    for half_day in range(-4, 5):
        with contextlib.suppress(OverflowError):  # before year 1 or after year 9999
            offsets.add((instant + dt.timedelta(hours=12 * half_day)).astimezone(tz).utcoffset())
    return offsets.pop() if len(offsets) == 1 else None


# --- offsets of columns -----------------------------------------------------------------------------------------------

_STEP = dt.timedelta(days=3)
"""No zone changes its clock twice within this time."""
_FIRST_YEAR = 1840
"""Before this year, the clocks of all zones showed solar time."""
_PERIOD_DAYS = 146_097
"""Days of 400 years."""
_PERIOD = _PERIOD_DAYS * MICROS_PER_DAY
_PERIODIC_FROM = micros_of(dt.datetime(2400, 1, 1))


def offsets_of_instants(name: str, instants: Int64s) -> Int64s:
    """A zone's offsets from UTC at instants; all are int64 microseconds."""
    return _offsets(name, instants, of_clocks=False)


def offsets_of_clocks(name: str, clocks: Int64s) -> Int64s:
    """A zone's offsets from UTC at wall clocks, as :func:`at_zone` chooses them; all are int64 microseconds."""
    return _offsets(name, clocks, of_clocks=True)


def _offsets(name: str, times: Int64s, *, of_clocks: bool) -> Int64s:
    if is_fixed(name):
        return np.full(len(times), fixed_offset(name), np.int64)
    periodic = times >= _PERIODIC_FROM
    if not periodic.any():
        return _offsets_by_changes(name, times, of_clocks)
    out = np.empty(len(times), np.int64)
    out[~periodic] = _offsets_by_changes(name, times[~periodic], of_clocks)
    in_first_period = (times[periodic] - _PERIODIC_FROM) % _PERIOD + _PERIODIC_FROM
    out[periodic] = _offsets_by_changes(name, in_first_period, of_clocks)
    return out


def _offsets_by_changes(name: str, times: Int64s, of_clocks: bool) -> Int64s:
    if not len(times):
        return times
    # Whole decades, so that few different ranges are asked for.
    years = (1970 + int(time) // MICROS_PER_DAY * 400 // _PERIOD_DAYS for time in (times.min(), times.max()))
    first, last = (max(year, _FIRST_YEAR) for year in years)
    starts, offsets = _changes(name, (first - 1) // 10 * 10, (last + 1) // 10 * 10 + 10)
    if of_clocks:  # the former offset holds to the end of a gap or an overlap
        starts = starts + np.maximum(offsets, np.concatenate([offsets[:1], offsets[:-1]]))
    return offsets[np.maximum(np.searchsorted(starts, times, "right") - 1, 0)]


@functools.lru_cache(64)
def _changes(name: str, first: int, last: int) -> tuple[Int64s, Int64s]:
    """The instants from which each offset holds between two years, and the offsets; the first one also holds before."""
    tz = zone(name)
    at, end = (dt.datetime(year, 1, 1, tzinfo=UTC) for year in (first, last))
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
    return np.array([micros_of(s) for s in starts], np.int64), np.array([_micros(o) for o in offsets], np.int64)


RULE_YEARS = (1970, 2037)
"""Zone rules are compared from the first year to before the second: older data was often corrected, later years are
extrapolated."""
_COMPARED = 6 * 3_600_000_000


def rules_differ(ours: Offsets, theirs: Offsets) -> bool:
    """Return whether two sources of a zone's rules differ within :data:`RULE_YEARS`.

    DuckDB, Java and Python each have time zone data of their own, of different years.  Every six hours are compared,
    and both sides of each change by ``theirs``.
    """
    start, stop = (int(np.datetime64(str(year), "us").astype(np.int64)) for year in RULE_YEARS)
    instants = np.arange(start, stop, _COMPARED)
    offsets = theirs(instants)
    changes = np.flatnonzero(offsets[1:] != offsets[:-1])
    # All changes are searched for at once, by seconds.
    low, high, before = instants[changes], instants[changes + 1], offsets[changes]
    while len(low) and int((high - low).max()) > 1_000_000:
        middle = (low + high) // 2_000_000 * 1_000_000
        later = theirs(middle) == before
        low, high = np.where(later, middle, low), np.where(later, high, middle)
    instants = np.concatenate([instants, low, high])
    return not np.array_equal(ours(instants), theirs(instants))


def _change(tz: dt.tzinfo, low: dt.datetime, high: dt.datetime) -> dt.datetime:
    """The first second after ``low`` with the offset of ``high``."""
    before = low.astimezone(tz).utcoffset()

    def changed(seconds: int) -> bool:
        return (low + dt.timedelta(seconds=seconds)).astimezone(tz).utcoffset() != before

    return low + dt.timedelta(seconds=bisect.bisect(range(int((high - low).total_seconds())), False, key=changed))


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


# --- wall clocks of columns -------------------------------------------------------------------------------------------


def stored_times(array: pa.Array) -> Int64s:
    """Days or microseconds of a DATE or timestamp array; 0 where NULL."""
    width = pa.int32() if array.type.bit_width == 32 else pa.int64()
    plain = array.view(width)
    numbers: Int64s = (plain.fill_null(0) if plain.null_count else plain).to_numpy().astype(np.int64)
    return numbers


def date_array(days: Int64s, like: pa.Array, what: str) -> pa.Array:
    """A DATE array of days, NULL where ``like`` is."""
    if len(days) and (int(days.min()) < -(1 << 31) or int(days.max()) >= 1 << 31):
        raise EvaluationFailed(f"{what}: the date is out of range in some row")
    nulls = like.is_null().to_numpy(zero_copy_only=False) if like.null_count else None
    return pa.array(days.astype(np.int32), pa.int32(), mask=nulls).view(pa.date32())


def wall_micros(array: pa.Array, root: Root, zone: str) -> Int64s:
    """Microseconds of the wall clock: of TIMESTAMP as it is, of TIMESTAMP_LTZ in a zone."""
    values = stored_times(array)
    if root is not Root.TIMESTAMP_LTZ or not len(values):
        return values
    if is_fixed(zone) and not fixed_offset(zone):
        return values
    offsets = offsets_of_instants(zone, values)
    moved: Int64s = values + offsets
    if np.any((moved < values) != (offsets < 0)):
        raise EvaluationFailed("a timestamp is out of range in some row")
    return moved


def days_of(array: pa.Array, root: Root, zone: str) -> pa.Array:
    """The DATE of timestamps, by the wall clock."""
    return date_array(wall_micros(array, root, zone) // MICROS_PER_DAY, array, "CAST AS DATE")
