"""Long lists of literals in ``IN (…)``, read without the parser: it takes some 50 µs for each literal.

:func:`without_lists` cuts lists of whole numbers or plain strings out of an expression's text and puts a marker in
place of each.  The parser then meets ``x IN ('<marker>')``, for which :meth:`LiteralLists.take` gives the values.  A
marker that it does not meet there, for example one in a comment, makes :attr:`LiteralLists.all_taken` false, and the
caller parses the whole text.
"""

from __future__ import annotations

import re
from typing import Any

from sqlglot import exp

_LEAST_CHARACTERS = 500
"""The parser reads shorter lists."""
_MARK = "\ue000"
_RAW_STRING = re.compile(r"\br['\"]", re.I)
_PIECE = re.compile(
    r"""  '(?:[^'\\]|\\.)*+'
        | "(?:[^"\\]|\\.)*+"
        | `[^`]*+`
        | --[^\n]*+
        | /\*.*?\*/
        | (?P<head>\bIN\s*\()(?P<list>[-\d,\s]++|\s*+'[^'\\]*+'(?:\s*+,\s*+'[^'\\]*+')*+\s*+)(?=\))""",
    re.I | re.S | re.X,
)
_NUMBERS = re.compile(r"\s*-?\d{1,18}\s*(?:,\s*-?\d{1,18}\s*)*+")
_TEXT = re.compile(r"'([^']*)'")


class LiteralLists:
    """The lists that were cut out of a text.  Mutable: it remembers which were taken."""

    def __init__(self) -> None:
        self._lists: dict[str, tuple[Any, ...]] = {}
        self._taken: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._lists)

    def add(self, values: tuple[Any, ...]) -> str:
        """Keep a list; returns its marker."""
        marker = f"{_MARK}{len(self._lists)}"
        self._lists[marker] = values
        return marker

    def take(self, node: exp.In) -> tuple[Any, ...] | None:
        """The values that a marker stands for in ``x IN ('<marker>')``."""
        only = node.expressions[0] if len(node.expressions) == 1 else None
        if not isinstance(only, exp.Literal) or not only.is_string or only.this not in self._lists:
            return None
        self._taken.add(only.this)
        return self._lists[only.this]

    @property
    def all_taken(self) -> bool:
        """Whether every list was taken."""
        return len(self._taken) == len(self._lists)


def without_lists(text: str) -> tuple[str, LiteralLists]:
    """A text with markers in place of long lists, and the lists; without lists where the text may mean more.

    >>> text, lists = without_lists(f"a IN ({', '.join(['7'] * 1000)}) AND b > 1")
    >>> text == f"a IN ('{chr(0xE000)}0') AND b > 1"
    True
    """
    lists = LiteralLists()
    if _MARK in text or _RAW_STRING.search(text):
        return text, lists
    parts, end = [], 0
    for piece in _PIECE.finditer(text):
        listed = piece["list"]
        values = None if listed is None or len(listed) < _LEAST_CHARACTERS else _values(listed)
        if values is not None:
            parts += [text[end : piece.start("list")], f"'{lists.add(values)}'"]
            end = piece.end("list")
    return "".join([*parts, text[end:]]), lists


def _values(listed: str) -> tuple[Any, ...] | None:
    if "'" in listed:
        return tuple(_TEXT.findall(listed))
    return tuple(map(int, listed.split(","))) if _NUMBERS.fullmatch(listed) else None
