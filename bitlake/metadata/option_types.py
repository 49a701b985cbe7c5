"""How option values are read from text: integers, booleans, memory sizes, durations, words and statistics modes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
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
    **dict.fromkeys(("ns", "nano", "nanosecond", "nanoseconds"), 1),
    **dict.fromkeys(("µs", "us", "micro", "microsecond", "microseconds"), 1_000),
    **dict.fromkeys(("", "ms", "milli", "millisecond", "milliseconds"), 1_000_000),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1_000_000_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60 * 1_000_000_000),
    **dict.fromkeys(("h", "hour", "hours"), 3600 * 1_000_000_000),
    **dict.fromkeys(("d", "day", "days"), 86400 * 1_000_000_000),
}
_QUANTITY = re.compile(r"^\s*(\d+)\s*([A-Za-zµ]*)\s*$")
_INT = re.compile(r"^[+-]?\d{1,19}$")
_STATS = re.compile(r"^\s*(none|counts|full|truncate\(\s*(\d{1,9})\s*\))\s*$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class StatsMode:
    """What of a column goes into the manifest: ``none``, ``counts``, ``full``, or ``truncate`` to ``length`` units."""

    kind: str
    length: int = 0

    def __str__(self) -> str:
        return f"truncate({self.length})" if self.kind == "truncate" else self.kind


@dataclass(frozen=True)  # no slots: typing's Option[int](…) sets an attribute, which slots break on Python 3.11
class Option(Generic[T]):
    """One table option, declared once.

    ``parse`` turns text into the value and raises ``ValueError`` otherwise; ``allowed`` says in words what it takes;
    ``default`` is the value when unset (None: unset is a state of its own).  ``immutable``: it cannot change once the
    table has a snapshot.  ``default_text`` is the default as a person would write it.
    """

    name: str
    parse: Callable[[str], T]
    default: T
    allowed: str
    doc: str
    default_text: str | None = None
    immutable: bool = False

    def read(self, text: str) -> T:
        """Parse ``text``; raises :class:`InvalidRequest` naming option, value and what is allowed."""
        try:
            return self.parse(text)
        except (ValueError, AttributeError, TypeError) as e:
            raise InvalidRequest(f"option '{self.name}' = '{text}' is not allowed; it takes {self.allowed}") from e


def parse_int(text: str) -> int:
    """A decimal integer."""
    if not _INT.match(text.strip()):
        raise ValueError(text)
    return int(text)


DIRECTORY = "a path below the table's folder such as 'data', without '..'"
"""What :func:`parse_directory` takes."""


def parse_directory(text: str) -> str | None:
    """A folder relative to the table's, without needless slashes and dots."""
    names = [n for n in text.strip().split("/") if n not in ("", ".")]
    if text.strip().startswith("/") or not all(map(is_file_name, names)) or ":" in text:
        raise ValueError(text)
    return "/".join(names) or None


EXTERNAL = "absolute URIs with commas between, such as 's3://bucket/folder', without '..'"
"""What :func:`parse_external_paths` takes."""


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
    return tuple(map(at_least(1), text.split(",")))


FILE_PREFIX = "text without '/', '\\' or NUL"
"""What :func:`parse_file_prefix` takes."""


def parse_file_prefix(text: str) -> str:
    """The beginning of file names: no separator, so that a file stays in the folder it is made in."""
    if not is_file_name(f"{text}x"):
        raise ValueError(text)
    return text


def parse_bool(text: str) -> bool:
    """``true`` or ``false`` in any case."""
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ValueError(text)
    return word == "true"


def parse_memory(text: str) -> int:
    """A size such as ``128 mb`` in bytes; a bare number is bytes, units are powers of 1024."""
    return _quantity(text, _MEMORY_UNITS)


def parse_duration_ms(text: str) -> int:
    """A duration such as ``1 h`` in whole milliseconds; a bare number is milliseconds."""
    return _quantity(text, _DURATION_UNITS) // 1_000_000


def _quantity(text: str, units: dict[str, int]) -> int:
    match = _QUANTITY.match(text)
    if match is None or match.group(2).lower() not in units:
        raise ValueError(text)
    return int(match.group(1)) * units[match.group(2).lower()]


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


def words(*allowed: str) -> Callable[[str], str]:
    """A parser of one of some words, in any case; returns the word as declared."""
    by_key = {w.lower().replace("_", "-"): w for w in allowed}

    def parse(text: str) -> str:
        key = text.strip().lower().replace("_", "-")
        if key not in by_key:
            raise ValueError(text)
        return by_key[key]

    return parse


def between(low: int, high: int) -> Callable[[str], int]:
    """A parser of whole numbers from ``low`` to ``high``."""

    def parsed(text: str) -> int:
        value = parse_int(text)
        if not low <= value <= high:
            raise ValueError(text)
        return value

    return parsed


def at_least(low: int, parse: Callable[[str], int] = parse_int) -> Callable[[str], int]:
    """A parser of numbers not below ``low``."""

    def parsed(text: str) -> int:
        value = parse(text)
        if value < low:
            raise ValueError(text)
        return value

    return parsed
