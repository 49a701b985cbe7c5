"""Read option values from text: integers, booleans, memory sizes, durations, words, statistics modes, time patterns."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, TypeVar

from bitlake.errors import InvalidRequest
from bitlake.metadata.paths import Location, is_file_name

T = TypeVar("T")

_MEMORY_UNITS = {
    **dict.fromkeys(("", "b", "bytes"), 1),
    **dict.fromkeys(("k", "kb", "kibibytes"), 1 << 10),
    **dict.fromkeys(("m", "mb", "mebibytes"), 1 << 20),
    **dict.fromkeys(("g", "gb", "gibibytes"), 1 << 30),
    **dict.fromkeys(("t", "tb", "tebibytes"), 1 << 40),
}
# In nanoseconds; a bare number is milliseconds, as in Paimon.
_DURATION_UNITS = {
    **dict.fromkeys(("ns", "nano", "nanos", "nanosecond", "nanoseconds"), 1),
    **dict.fromkeys(("µs", "micro", "micros", "microsecond", "microseconds"), 1_000),
    **dict.fromkeys(("", "ms", "milli", "millis", "millisecond", "milliseconds"), 1_000_000),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1_000_000_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60 * 1_000_000_000),
    **dict.fromkeys(("h", "hour", "hours"), 3600 * 1_000_000_000),
    **dict.fromkeys(("d", "day", "days"), 86400 * 1_000_000_000),
}
_QUANTITY = re.compile(r"\s*([0-9]{1,19})\s*([A-Za-zµ]*)\s*")
_INT = re.compile(r"[+-]?[0-9]{1,19}")
_STATS = re.compile(r"^\s*(none|counts|full|truncate\(\s*(\d{1,9})\s*\))\s*$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class StatsMode:
    """What of a column goes into the manifest: ``none``, ``counts``, ``full``, or ``truncate`` to ``length`` units."""

    kind: str
    length: int = 0

    def __str__(self) -> str:
        return f"truncate({self.length})" if self.kind == "truncate" else self.kind


@dataclass(frozen=True)  # no slots, as below
class Kind(Generic[T]):
    """What an option takes: ``parse`` raises ``ValueError`` for other text, ``allowed`` describes it in words."""

    parse: Callable[[str], T]
    allowed: str


@dataclass(frozen=True)  # no slots: typing's Option[int](…) sets an attribute, which slots break on Python 3.11
class Option(Generic[T]):
    """One table option, declared once.

    ``parse`` turns text into the value and raises ``ValueError`` otherwise; ``allowed`` says in words what it takes;
    ``default`` is the value when unset (None: unset is a state of its own).  ``immutable``: it cannot change once the
    table has a snapshot.  ``default_text`` is the default as a person would write it.  ``former_names``: older
    names; a table that does not set ``name`` has the value of the first of these that it sets.
    """

    name: str
    parse: Callable[[str], T]
    default: T
    allowed: str
    default_text: str | None = None
    immutable: bool = False
    former_names: tuple[str, ...] = ()

    def read(self, text: str, name: str | None = None) -> T:
        """Parse ``text``; raises :class:`InvalidRequest` with the option, value and allowed values.

        ``name``: the former name that the table sets instead of the option's.
        """
        try:
            return self.parse(text)
        except (ValueError, AttributeError, TypeError) as e:
            name = name or self.name
            raise InvalidRequest(f"option '{name}' = '{text}' is not allowed; it takes {self.allowed}") from e


def parse_int(text: str) -> int:
    """A decimal integer."""
    if not _INT.fullmatch(text):
        raise ValueError(text)
    return int(text)


def parse_directory(text: str) -> str | None:
    """A folder relative to the table's, without needless slashes and dots."""
    names = [n for n in text.strip().split("/") if n not in ("", ".")]
    if text.strip().startswith("/") or not all(map(is_file_name, names)) or ":" in text:
        raise ValueError(text)
    return "/".join(names) or None


def parse_external_paths(text: str) -> tuple[str, ...]:
    """Roots of external paths; each names its scheme."""
    out = []
    for part in map(str.strip, text.split(",")):
        Location.of(part)
        if part.startswith("/"):
            raise ValueError(part)
        out.append(part.rstrip("/"))
    return tuple(out)


def parse_weights(text: str) -> tuple[int, ...]:
    """Positive whole numbers between commas."""
    return tuple(map(at_least(1).parse, text.split(",")))


def parse_file_prefix(text: str) -> str:
    """The beginning of file names: no separator, so that a file stays in the folder it is made in."""
    if not is_file_name(f"{text}x"):
        raise ValueError(text)
    return text


def parse_bool(text: str) -> bool:
    """``true`` or ``false`` in any case."""
    word = text.lower()
    if word not in ("true", "false"):
        raise ValueError(text)
    return word == "true"


def parse_memory(text: str) -> int:
    """A size such as ``128 mb`` in bytes; a bare number is bytes, units are powers of 1024."""
    return _quantity(text, _MEMORY_UNITS, 1)


def parse_duration_ms(text: str) -> int:
    """A duration such as ``1 h`` in whole milliseconds; a bare number is milliseconds."""
    return _quantity(text, _DURATION_UNITS, 1_000_000)


def timedelta_of(ms: int) -> timedelta:
    """Milliseconds as a timedelta; more than 2.7 million years, which it cannot hold, are as many."""
    return timedelta(milliseconds=min(ms, timedelta.max // timedelta(milliseconds=1)))


def _quantity(text: str, units: dict[str, int], divisor: int) -> int:
    """A number times its unit, divided by ``divisor``; number and result must fit in Java's long, as in Paimon."""
    match = _QUANTITY.fullmatch(text)
    unit = None if match is None else units.get(match[2].lower())
    if match is None or unit is None:
        raise ValueError(text)
    number = int(match[1])
    if max(number, number * unit // divisor) > LONG_MAX:
        raise ValueError(text)
    return number * unit // divisor


def parse_stats_mode(text: str) -> StatsMode:
    """``none``, ``counts``, ``full`` or ``truncate(n)`` with n > 0."""
    match = _STATS.match(text)
    if match is None:
        raise ValueError(text)
    if match.group(2) is None:
        return StatsMode(match.group(1).lower())
    if int(match.group(2)) < 1:
        raise ValueError(text)
    return StatsMode("truncate", int(match.group(2)))


def parse_column_list(text: str) -> tuple[str, ...]:
    """Names between commas, as written: Paimon trims no blanks around bucket keys."""
    names = tuple(text.split(","))
    if not all(names):
        raise ValueError(text)
    return names


def parse_ratio(text: str) -> float:
    """A number from 0 to 1."""
    value = float(text)
    if not 0 <= value <= 1:
        raise ValueError(text)
    return value


def parse_bucket(text: str) -> int:
    """A number of buckets, -1 or -2."""
    value = between(-2, 2**31 - 1).parse(text)
    if value == 0:
        raise ValueError(text)
    return value


def word(*allowed: str) -> Kind[str]:
    """One of some words, in any case; the value is the word as declared."""
    by_key = {w.lower(): w for w in allowed}

    def parse(text: str) -> str:
        if text.lower() not in by_key:
            raise ValueError(text)
        return by_key[text.lower()]

    return Kind(parse, "one of " + ", ".join(allowed))


INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1
"""The largest values of Paimon's options of the types int and long."""


def between(low: int, high: int) -> Kind[int]:
    """Whole numbers from ``low`` to ``high``."""
    return Kind(_within(low, high, parse_int), f"a whole number from {low} to {high}")


def at_least(low: int, high: int = INT_MAX) -> Kind[int]:
    """Whole numbers from ``low`` on that an option of Paimon's type int can hold, or of long with its ``high``."""
    return between(low, high)


def _within(low: int, high: int, parse: Callable[[str], int]) -> Callable[[str], int]:
    def parsed(text: str) -> int:
        value = parse(text)
        if not low <= value <= high:
            raise ValueError(text)
        return value

    return parsed


def by_level(value: Kind[T], example: str) -> Kind[Mapping[int, T]]:
    """Values by level, such as ``0:lz4,1:zstd``."""

    def parse(text: str) -> Mapping[int, T]:
        out = {}
        for item in filter(None, map(str.strip, text.split(","))):
            level, colon, shown = item.partition(":")
            if not colon:
                raise ValueError(text)
            out[at_least(0).parse(level)] = value.parse(shown.strip())
        return out

    return Kind(parse, f"level:value pairs such as '{example}'")


def text(allowed: str) -> Kind[str]:
    """Any text; ``allowed`` describes it."""
    return Kind(str, allowed)


TEXT = text("text")
ZONE = text("the name of a time zone, such as 'Europe/Berlin' or 'UTC+02:00'")
BOOL = Kind(parse_bool, "true or false")
SIZE = Kind(parse_memory, "a size such as '128 mb' (b, kb, mb, gb, tb)")
SIZE_ABOVE_0 = Kind(_within(1, LONG_MAX, parse_memory), "a size such as '128 mb', above 0")
DURATION = Kind(parse_duration_ms, "a duration such as '10 ms', '5 s', '2 min', '1 h' or '7 d'")
RATIO = Kind(parse_ratio, "a number from 0 to 1")
HOUR = Kind(between(-1, 23).parse, "an hour, 0 to 23, or -1")
BUCKET = Kind(parse_bucket, "a number > 0 of buckets, -1 (unaware or dynamic) or -2 (postpone)")
CODEC = Kind(lambda name: name.strip().lower(), "a codec name")
STATS_MODE = Kind(parse_stats_mode, "none, counts, full or truncate(n) with n ≥ 1")
COLUMN_LIST = Kind(parse_column_list, "column names between commas")
FILE_PREFIX = Kind(parse_file_prefix, "text without '/', '\\' or NUL")
DIRECTORY = Kind(parse_directory, "a path below the table's folder such as 'data', without '..'")
EXTERNAL_PATHS = Kind(
    parse_external_paths, "absolute URIs with commas between, such as 's3://bucket/folder', without '..'"
)
WEIGHTS = Kind(parse_weights, "whole numbers ≥ 1 with commas between")


_PARTS = {
    "yyyy": r"(?P<year>\d{4})", "uuuu": r"(?P<year>\d{4})", "yy": r"(?P<year>\d{2})",
    "MM": r"(?P<month>\d{2})", "M": r"(?P<month>\d{1,2})", "dd": r"(?P<day>\d{2})", "d": r"(?P<day>\d{1,2})",
    "HH": r"(?P<hour>\d{2})", "H": r"(?P<hour>\d{1,2})",
    "mm": r"(?P<minute>\d{2})", "m": r"(?P<minute>\d{1,2})", "ss": r"(?P<second>\d{2})", "s": r"(?P<second>\d{1,2})",
    "SSS": r"(?P<fraction>\d{3})",
}  # fmt: skip
"""The parts of a Java date-time formatter that are understood, as regular expressions."""
_WORDS = re.compile(r"'([^']*)'|([A-Za-z])\2*|[^A-Za-z']", re.DOTALL)


def time_pattern(java: str) -> re.Pattern[str]:
    """Translate a Java date-time formatter to a regular expression with a group for each part.

    A part of two or more letters has as many digits, and one of one letter one or two; text stands in quotes.  Raises
    :class:`InvalidRequest` for what is not understood, such as optional sections, and for a part that comes twice.
    """
    if java.count("'") % 2 or "''" in java or any(c in "[]{}#" for c in re.sub("'[^']*'", "", java)):
        raise InvalidRequest(f"timestamp formatter '{java}': write text in quotes, without [], {{}} or #")
    groups: list[str] = []
    text = ""
    for m in _WORDS.finditer(java):
        if m.group(2) is None:
            text += re.escape(m.group() if m.group(1) is None else m.group(1))
            continue
        if m.group() not in _PARTS:
            raise InvalidRequest(
                f"timestamp formatter '{java}': '{m.group()}' is not understood; use {', '.join(_PARTS)}"
            )
        groups.append(m.group(2))
        text += _PARTS[m.group()]
    if len(set(groups)) < len(groups):
        raise InvalidRequest(f"timestamp formatter '{java}' has a part twice")
    return re.compile(text, re.ASCII)
