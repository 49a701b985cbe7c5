"""Changes of a statement's text, by places in it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

Edit: TypeAlias = tuple[int, int, str]
"""From a place up to another the text is to be this."""


def spliced(text: str, edits: Iterable[Edit]) -> str:
    """The text with all edits, which do not overlap, applied."""
    out, done = [], 0
    for start, end, new in sorted(edits, key=lambda e: e[:2]):
        out += [text[done:start], new]
        done = end
    return "".join([*out, text[done:]])
