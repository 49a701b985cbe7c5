"""LIKE patterns: literal text and two wildcards."""

from __future__ import annotations

import enum
import re

from bitlake.errors import InvalidRequest


class Wild(enum.Enum):
    """A wildcard of a LIKE pattern."""

    MANY = "%"
    """Any characters, also none."""
    ONE = "_"
    """Exactly one character (code point)."""


Piece = str | Wild


def like_pieces(pattern: str, escape: str = "\\") -> tuple[Piece, ...]:
    """A pattern's literal texts (none empty) and wildcards, in order.

    Raises :class:`InvalidRequest` where the escape character stands before anything but ``%``, ``_`` or itself, as
    Spark does.

    >>> like_pieces("a%b_")
    ('a', <Wild.MANY: '%'>, 'b', <Wild.ONE: '_'>)
    """
    pieces: list[Piece] = []
    text: list[str] = []
    i = 0
    while i < len(pattern):
        c = pattern[i]
        i += 1
        if c == escape:
            if i == len(pattern) or pattern[i] not in ("%", "_", escape):
                raise InvalidRequest(f"LIKE pattern '{pattern}': '{escape}' may only stand before %, _ or itself")
            text.append(pattern[i])
            i += 1
        elif c in "%_":
            if text:
                pieces.append("".join(text))
                text.clear()
            pieces.append(Wild(c))
        else:
            text.append(c)
    if text:
        pieces.append("".join(text))
    return tuple(pieces)


def like_prefix(pieces: tuple[Piece, ...]) -> tuple[str, bool]:
    """The text every match starts with, and whether starting with it is all the pattern asks for."""
    if not pieces or not isinstance(pieces[0], str):
        return "", bool(pieces) and all(p is Wild.MANY for p in pieces)
    rest = pieces[1:]
    return pieces[0], bool(rest) and all(p is Wild.MANY for p in rest)


def like_regex(pieces: tuple[Piece, ...]) -> str:
    """A regular expression (RE2 and Python) that fully matches what the pattern matches."""
    body = "".join(re.escape(p) if isinstance(p, str) else (".*" if p is Wild.MANY else ".") for p in pieces)
    return rf"(?s)\A{body}\z"
