"""Strings to values, the way Spark's casts read them, where that is certain.

Every function returns None for a text it is not sure Spark reads as exactly this value; callers then do not push.
Formats: Spark's ``SparkDateTimeUtils.stringToDate`` and ``stringToTimestamp``.
"""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal, InvalidOperation
from typing import Any

from bitlake.types.time_zone import find_zone

EPOCH_DAY = dt.date(1970, 1, 1).toordinal()

_DATE = re.compile(r"\s*(\d{4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?\s*", re.ASCII)
_TIMESTAMP = re.compile(
    r"\s*(\d{4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?\s*(\S+)?)?\s*", re.ASCII
)
_TIME = re.compile(r"\s*(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,6}))?)?\s*", re.ASCII)
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


def parse_date(text: str) -> dt.date | None:
    """The date of ``yyyy``, ``yyyy-[m]m`` or ``yyyy-[m]m-[d]d``."""
    if len(text) == 10 and text[4] == text[7] == "-":  # a long list may have 100,000 of these
        try:
            return dt.date.fromisoformat(text)
        except ValueError:
            pass
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
    if len(text) == 19 and text[4] + text[7] + text[10] + text[13] + text[16] == "-- ::" and text[11:13] != "24":
        try:
            return dt.datetime.fromisoformat(text)
        except ValueError:
            pass
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        date = parse_date(text)
        return None if date is None else dt.datetime(date.year, date.month, date.day)
    year, month, day, hour, minute, second, fraction, where = match.groups()
    tz: dt.tzinfo | None = None
    if where is not None:
        tz = find_zone(where)
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
