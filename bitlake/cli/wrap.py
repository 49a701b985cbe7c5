"""Lines that a terminal's width does not hold, wrapped at words: what goes on stands below the text, not the label.

A terminal cuts long lines itself, in the middle of words and without any indent.
"""

from __future__ import annotations

import os
import re

_LABEL = re.compile(r"( *\S(?:\S| (?! )){0,22} {2,})(?=\S)")
"""A short text and two blanks or more, as in ``  files      3 of 40 read``: what follows is the line's text."""
_MARK = re.compile(r" *(?:[-+*•→✗…] )?")
_LEAST = 20
"""Characters that are left for the text, however narrow the terminal is."""


def terminal_width(descriptor: int) -> int:
    """The characters in a line of the terminal behind a file descriptor; ``COLUMNS`` says otherwise."""
    told = os.environ.get("COLUMNS", "")
    if told.isdigit() and int(told):
        return int(told)
    try:
        return os.get_terminal_size(descriptor).columns or 80
    except OSError:
        return 80


def wrapped(text: str, width: int) -> str:
    """The text without a line of more than ``width`` characters.

    Paths that are longer than a line are broken behind a ``/``.
    """
    return "\n".join(part for line in text.split("\n") for part in _wrap(line, width))


def _wrap(line: str, width: int) -> list[str]:
    if len(line) <= width:
        return [line]
    indent = _indent(line, width)
    out: list[str] = []
    now, empty = line[:indent], True
    for word in re.findall(r" *\S+", line[indent:]):
        if not empty and len(now) + len(word) > width:
            out.append(now.rstrip())
            now, empty = " " * indent, True
        word = word if not empty or not out else word.lstrip()
        while len(now) + len(word) > width:
            room = width - len(now)
            cut = word.rfind("/", 1, room) + 1 or room
            out.append(now + word[:cut])
            now, word = " " * indent, word[cut:]
        now, empty = now + word, False
    return [*out, now]


def _indent(line: str, width: int) -> int:
    label = _LABEL.match(line)
    if label is not None and label.end() <= width - _LEAST:
        return label.end()
    mark = _MARK.match(line)
    lead = mark.end() if mark is not None else 0
    lead += 2 * (lead == len(line) - len(line.lstrip()))  # no mark: what goes on is further in than what begins
    return min(lead, max(0, width - _LEAST))
