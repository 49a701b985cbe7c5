"""How an index describes its payload to ``inspect``: a tree of sections with offsets, lengths, facts and faults.

Codecs fill sections and know nothing of how they are shown; :mod:`bitlake.tools.inspect` renders them.
Only light modules are imported here, because inspecting text files needs no arrays.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from bitlake.errors import BitlakeError, CorruptError, NotFound

DAMAGE = (
    LookupError,
    TypeError,
    ValueError,
    ArithmeticError,
    AttributeError,
    struct.error,
    MemoryError,
    RecursionError,
)
"""What a parser of damaged bytes may raise besides bitlake's own errors."""
_MOST_TEXT = 200


@dataclass(frozen=True, slots=True)
class Page:
    """Which entries of a list to show: ``limit`` entries from number ``offset`` on."""

    offset: int = 0
    limit: int = 20

    def of(self, count: int) -> range:
        """Return the numbers of the entries to show of a list of ``count``."""
        return range(min(self.offset, count), min(self.offset + self.limit, count))

    def left(self, count: int) -> int:
        """Return how many entries of a list of ``count`` are not shown."""
        return count - len(self.of(count))


class Offset(int):
    """A fact that is a position in the payload; ``inspect`` shows the position in the file."""


@dataclass(slots=True)
class Section:
    """One part of a payload.  Mutable while the payload is read.

    ``offset`` and ``size`` in bytes, counted from the payload's start; None where a part has no place of its own.
    ``facts``: what the part states, plain values by name.  ``more``: entries that are not shown.  ``fault``: where
    reading this part ended, as (what is wrong, offset or None).
    """

    name: str
    offset: int | None = None
    size: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    children: list[Section] = field(default_factory=list)
    more: int | None = 0
    fault: tuple[str, int | None] | None = None

    def add(
        self, name: str, offset: int | None = None, size: int | None = None, facts: Mapping[str, Any] | None = None
    ) -> Section:
        """Append and return a new part."""
        section = Section(name, offset, size, dict(facts or {}))
        self.children.append(section)
        return section

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Turn an error caused by damaged bytes into this section's fault."""
        try:
            yield
        except Exception as e:
            self.fault = fault_of(e)
            if self.fault is None:
                raise


def fault_of(error: Exception) -> tuple[str, int | None] | None:
    """Return (what is wrong, offset or None) for an error that damaged bytes cause.  None for any other error."""
    match error:
        case NotFound():
            return None  # a missing file is not a fault of the one being read
        case CorruptError():
            return error.what, error.offset
        case BitlakeError():
            return str(error), None
        case Exception() if _is_damage(error):
            return f"cannot be understood: {type(error).__name__}: {str(error)[:_MOST_TEXT]}", None
    return None


def _is_damage(error: Exception) -> bool:
    import pyarrow as pa  # imported lazily: text files are inspected without Arrow unless they are damaged

    return isinstance(error, (*DAMAGE, pa.ArrowException, OSError))
