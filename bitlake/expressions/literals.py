"""Strings to values, the way Spark's casts read them, where that is certain.

Every function returns None for a text it is not sure Spark reads as exactly this value; callers then do not push.
Formats: Spark's ``SparkDateTimeUtils.stringToDate`` and ``stringToTimestamp``.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import re
import zoneinfo
from decimal import Decimal, InvalidOperation
from typing import Any

from bitlake import arguments
from bitlake.errors import InvalidRequest

UTC = dt.UTC
EPOCH = dt.datetime(1970, 1, 1)
EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
MICRO = dt.timedelta(microseconds=1)

_DATE = re.compile(r"\s*(\d{4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?\s*", re.ASCII)
_TIMESTAMP = re.compile(
    r"\s*(\d{4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?\s*(\S+)?)?\s*", re.ASCII
)
_TIME = re.compile(r"\s*(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,6}))?)?\s*", re.ASCII)
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
_INTEGER = re.compile(r"\s*[+-]?\d+\s*", re.ASCII)
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
_SPECIAL = {
    "nan": float("nan"),
    "infinity": float("inf"),
    "inf": float("inf"),
    "+infinity": float("inf"),
    "+inf": float("inf"),
    "-infinity": float("-inf"),
    "-inf": float("-inf"),
}


_OF_UTC = ("Z", "UTC", "GMT", "UT", "Etc/UTC")
_OF_THE_MACHINE = ("localtime", "posixrules")
"""Files beside those of the zones, which Java does not know."""


def zone(name: str) -> dt.tzinfo:
    """The time zone of a name or offset (``UTC``, ``Europe/Paris``, ``+02:00``, ``GMT+8``), as Spark reads them.

    Raises :class:`InvalidRequest` if it is unknown.
    """
    known_zone = _zone(arguments.text("a time zone", name))
    if known_zone is None:
        raise InvalidRequest(
            f"unknown time zone '{name}'; give a name such as 'Europe/Paris' or an offset like '+02:00'"
        )
    return known_zone


def _zone(name: str) -> dt.tzinfo | None:
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


def parse_date(text: str) -> dt.date | None:
    """The date of ``yyyy``, ``yyyy-[m]m`` or ``yyyy-[m]m-[d]d``."""
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    year, month, day = match.groups()
    try:
        return dt.date(int(year), int(month or 1), int(day or 1))
    except ValueError:
        return None


def parse_timestamp(text: str) -> dt.datetime | None:
    """The wall clock of a text, aware if it names a time zone; nanoseconds are cut off as Spark does."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        date = parse_date(text)
        return None if date is None else dt.datetime(date.year, date.month, date.day)
    year, month, day, hour, minute, second, fraction, where = match.groups()
    tz: dt.tzinfo | None = None
    if where is not None:
        tz = _zone(where)
        if tz is None:
            return None
    micros = int((fraction or "0")[:6].ljust(6, "0"))
    try:
        return dt.datetime(
            int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0), micros, tz
        )
    except ValueError:
        return None


def parse_time(text: str) -> dt.time | None:
    """The time of day of ``[h]h:[m]m[:[s]s[.ffffff]]``."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    hour, minute, second, fraction = match.groups()
    try:
        return dt.time(int(hour), int(minute), int(second or 0), int((fraction or "0").ljust(6, "0")))
    except ValueError:
        return None


def parse_integer(text: str) -> int | None:
    """The integer of a text of digits with an optional sign."""
    return int(text) if _INTEGER.fullmatch(text) and len(text) < 60 else None


def parse_bool(text: str) -> bool | None:
    """The boolean of one of the words Spark knows."""
    word = text.strip().lower()
    if word in ("t", "true", "y", "yes", "1"):
        return True
    return False if word in ("f", "false", "n", "no", "0") else None


def parse_double(text: str) -> float | None:
    """The double of a decimal or scientific text, NaN and the infinities included."""
    if _NUMBER.fullmatch(text):
        return float(text)
    return _SPECIAL.get(text.strip().lower())


def parse_decimal(text: str) -> Decimal | None:
    """The exact decimal of a text of at most 38 digits."""
    if not _NUMBER.fullmatch(text):
        return None
    try:
        value = Decimal(text.strip())
    except InvalidOperation:
        return None
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or exponent < -76 or len(digits) + max(0, exponent) > 38:
        return None
    return Decimal((sign, digits, exponent))


def days(value: dt.date) -> int:
    """Days since the epoch."""
    return value.toordinal() - EPOCH_DAY


def micros_of(value: dt.datetime) -> int:
    """Microseconds since the epoch: of the instant if aware, else of the wall clock as if it were UTC."""
    offset = value.utcoffset() or dt.timedelta()  # the instant may be before year 1 or after 9999
    return (value.replace(tzinfo=None) - EPOCH - offset) // MICRO


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


def is_missing(value: Any) -> bool:
    """Whether a value is None, or pandas' or NumPy's missing value.

    >>> is_missing(None), is_missing(0)
    (True, False)
    """
    name = type(value).__name__
    return value is None or name in ("NaTType", "NAType") or (name == "datetime64" and value != value)


def python_value(value: Any) -> Any:
    """A scalar of Arrow, numpy or pandas as Python's; raises :class:`ValueError` for one that Python cannot hold."""
    if isinstance(value, Decimal) and not value.is_finite():
        raise ValueError("the value is not a finite number")
    if isinstance(value, str | bytes | bool | int | float | Decimal | dt.time | None):
        return value
    if is_missing(value):
        raise ValueError("the value is missing")
    if hasattr(value, "to_pydatetime"):  # pandas' timestamps
        return value.to_pydatetime()
    if isinstance(value, dt.date):
        return value
    if type(value).__name__ == "datetime64":
        moment = value.astype("datetime64[us]")
        if moment != value:
            raise ValueError("it has more digits than microseconds")
        return moment.item()
    convert = getattr(value, "as_py", None) or getattr(value, "item", None)  # Arrow's and numpy's scalars
    return value if convert is None else python_value(convert())
