"""Index options (``file-index.<type>.<column>.<option>``): each is declared once, in the codec that uses it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from bitlake.errors import InvalidRequest

T = TypeVar("T")
_SIZE = re.compile(r"^\s*(\d+)\s*([a-z]*)\s*$")
_UNITS = {
    **dict.fromkeys(("", "b", "bytes"), 0),
    **dict.fromkeys(("k", "kb", "kibibytes"), 1),
    **dict.fromkeys(("m", "mb", "mebibytes"), 2),
    **dict.fromkeys(("g", "gb", "gibibytes"), 3),
    **dict.fromkeys(("t", "tb", "tebibytes"), 4),
}


@dataclass(frozen=True, slots=True)
class IndexOption(Generic[T]):
    """One option; ``parse`` returns its value from text, or raises ValueError with the allowed values."""

    name: str
    parse: Callable[[str], T]
    default: T | None
    doc: str

    def of(self, options: Mapping[str, str]) -> T | None:
        """Return the value set in ``options``, or the default; raises :class:`InvalidRequest`."""
        text = options.get(self.name)
        if text is None:
            return self.default
        try:
            return self.parse(text)
        except ValueError as e:
            raise InvalidRequest(f"index option '{self.name}' = '{text}': {e}") from e


def integer(least: int, most: int) -> Callable[[str], int]:
    """Return a parser of whole numbers between two bounds, both included."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"\s*[+-]?\d+\s*", text) or not least <= int(text) <= most:
            raise ValueError(f"must be a whole number between {least} and {most}")
        return int(text)

    return parse


def fraction(text: str) -> float:
    """Parse a number between 0 and 1, both excluded."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise ValueError("must be a number between 0 and 1, both excluded")
    return value


def memory(text: str) -> int:
    """Parse a size such as ``16kb`` into bytes: 1024-based, any case, a bare number is bytes."""
    match = _SIZE.match(text.lower())
    if match is None or match[2] not in _UNITS:
        raise ValueError("must be a size such as '16kb' (units b, kb, mb, gb, tb)")
    size = int(match[1]) << (10 * _UNITS[match[2]])
    if size > 2**31 - 1:
        raise ValueError("must be below 2 gb")
    return size
