"""Time zones: their names as Spark reads them, and their offsets at single timestamps and at whole columns.

Offsets of columns come from the same rules as those of single timestamps (:mod:`zoneinfo`), looked up once per change
of the clock and not per value.  Arrow's own kernels know neither Java's names of zones nor changes after 2037.

From the year 2400 on, the rules repeat every 400 years: that is the period of the calendar, a whole number of weeks.
Before the first change, clocks showed solar time.
"""

from __future__ import annotations

import bisect
import contextlib
import datetime as dt
import functools
import re
import zoneinfo
from typing import TYPE_CHECKING

from bitlake import arguments
from bitlake.errors import InvalidRequest
from bitlake.lazy_modules import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]

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
"""Java's short names of time zones, which Spark takes; EST, HST and MST are names of the tz database."""
_OF_UTC = ("Z", "UTC", "GMT", "UT", "Etc/UTC")
_OF_THE_MACHINE = ("localtime", "posixrules")
"""Files beside those of the zones, which Java does not know."""


def zone(name: str) -> dt.tzinfo:
    """The time zone of a name or offset (``UTC``, ``Europe/Paris``, ``+02:00``, ``GMT+8``), as Spark reads them.

    Raises :class:`InvalidRequest` if it is unknown.
    """
    known_zone = find_zone(arguments.text("a time zone", name))
    if known_zone is None:
        raise InvalidRequest(
            f"unknown time zone '{name}'; give a name such as 'Europe/Paris' or an offset like '+02:00'"
        )
    return known_zone


def find_zone(name: str) -> dt.tzinfo | None:
    """:func:`zone`; None if it is unknown."""
    if name in _OF_UTC:
        return UTC
    if name in _OF_THE_MACHINE or name.startswith(("posix/", "right/")):
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
    """The offset of such a zone, in microseconds."""
    return _micros(zone(name).utcoffset(None))


def _micros(offset: dt.timedelta | None) -> int:
    return (offset or dt.timedelta()) // MICRO


# --- single timestamps ------------------------------------------------------------------------------------------------


def micros_of(value: dt.datetime) -> int:
    """Microseconds since the epoch: of the instant if aware, else of the wall clock as if it were UTC."""
    # Without a step through UTC, in which the instant may be before year 1 or after 9999.
    return (value.replace(tzinfo=None) - EPOCH) // MICRO - _micros(value.utcoffset())


def at_zone(wall: dt.datetime, tz: dt.tzinfo) -> dt.datetime:
    """The instant of a wall clock in a zone: in a gap later by its length, in an overlap the earlier, as in Java."""
    return wall.replace(tzinfo=tz, fold=0).astimezone(UTC)


def steady_offset(instant: dt.datetime, tz: dt.tzinfo) -> dt.timedelta | None:
    """The zone's offset if it is the same for two days around an instant, so that order of wall clocks is kept."""
    offsets = set()
    for half_day in range(-4, 5):
        with contextlib.suppress(OverflowError):  # before year 1 or after 9999
            offsets.add((instant + dt.timedelta(hours=12 * half_day)).astimezone(tz).utcoffset())
    return offsets.pop() if len(offsets) == 1 else None


# --- columns ----------------------------------------------------------------------------------------------------------

_STEP = dt.timedelta(days=3)
"""No zone changes its clock twice within this time."""
_FIRST_YEAR, _PERIODIC_YEAR = 1840, 2400
_PERIOD = 146_097 * MICROS_PER_DAY
_PERIODIC = micros_of(dt.datetime(_PERIODIC_YEAR, 1, 1))


def offsets_of_instants(name: str, instants: Int64s) -> Int64s:
    """A zone's offsets at instants; all are int64 microseconds."""
    return _offsets(name, instants, False)


def offsets_of_clocks(name: str, clocks: Int64s) -> Int64s:
    """A zone's offsets at wall clocks, as :func:`at_zone` chooses them; all are int64 microseconds."""
    return _offsets(name, clocks, True)


def _offsets(name: str, times: Int64s, of_clocks: bool) -> Int64s:
    if is_fixed(name):
        return np.full(len(times), fixed_offset(name), np.int64)
    out = np.empty(len(times), np.int64)
    far = times >= _PERIODIC
    out[~far] = _looked_up(name, times[~far], of_clocks)
    out[far] = _looked_up(name, (times[far] - _PERIODIC) % _PERIOD + _PERIODIC, of_clocks)
    return out


def _looked_up(name: str, times: Int64s, of_clocks: bool) -> Int64s:
    if not len(times):
        return times
    # Whole decades, so that few different ranges are asked for.
    years = (1970 + int(time) // MICROS_PER_DAY * 400 // 146_097 for time in (times.min(), times.max()))
    first, last = (max(year, _FIRST_YEAR) for year in years)
    starts, offsets = _changes(name, (first - 1) // 10 * 10, (last + 1) // 10 * 10 + 10)
    if of_clocks:  # the former offset holds until the clock is past a gap, and to the end of an overlap
        starts = starts + np.maximum(offsets, np.concatenate([offsets[:1], offsets[:-1]]))
    return offsets[np.maximum(np.searchsorted(starts, times, "right") - 1, 0)]


@functools.lru_cache(64)
def _changes(name: str, first: int, last: int) -> tuple[Int64s, Int64s]:
    """The instants from which an offset holds between two years, and the offsets; the first holds before, too."""
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


def _change(tz: dt.tzinfo, low: dt.datetime, high: dt.datetime) -> dt.datetime:
    """The first second after ``low`` with the offset of ``high``."""
    before = low.astimezone(tz).utcoffset()

    def changed(seconds: int) -> bool:
        return (low + dt.timedelta(seconds=seconds)).astimezone(tz).utcoffset() != before

    return low + dt.timedelta(seconds=bisect.bisect(range(int((high - low).total_seconds())), False, key=changed))
