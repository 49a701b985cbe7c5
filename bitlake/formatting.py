"""Numbers, times and long texts as people read them, and a registry of functions that show the core's values."""

from __future__ import annotations

import importlib
import re
from datetime import UTC, datetime
from typing import Any

# C0 but tab and line feed, DEL and C1; marks that change the direction of text; line separators; halves of pairs.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


DAY_MS = 86_400_000


def printable(text: str, *, one_line: bool = False) -> str:
    """The text with control characters as escapes such as ``\\x1b``: what a terminal would obey, it shows.

    Names, comments and values come from the author of a table.  ``one_line``: line feeds and tabs are escaped too.
    """
    if text.isascii() and text.isprintable():
        return text
    shown = _CONTROLS.sub(_escaped, text)
    return shown.replace("\n", "\\n").replace("\t", "\\t") if one_line else shown


def printable_json(text: str) -> str:
    """JSON's text with the characters of :func:`printable` as JSON escapes: it says the same."""
    return text if text.isascii() else _CONTROLS.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def _escaped(found: re.Match[str]) -> str:
    return found.group().encode("unicode_escape", "surrogatepass").decode("ascii")


def human_bytes(size: float) -> str:
    """Bytes: ``1536`` is ``1.5 KB``; a KB is 1024."""
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if abs(size) < 1023.95:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} PB"


def counted(number: int, one: str) -> str:
    """A number with what is counted: ``1 file``, ``2,000 files``, ``2 branches``, ``3 queries``."""
    if number == 1:
        return f"1 {one}"
    if one.endswith(("x", "ch")):
        return f"{number:,} {one}es"
    if one.endswith("ry"):
        return f"{number:,} {one[:-1]}ies"
    return f"{number:,} {one}s"


def shortened(text: str, most: int) -> str:
    """Shorten a text to at most ``most`` characters; ``…`` stands for what is left out."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def one_line(text: str, most: int) -> str:
    """Join the lines of a text, such as a statement, into one line of at most ``most`` characters."""
    return shortened(" ".join(text.split()), most)


def share_words(part: float, whole: float) -> str:
    """How much of the whole, in percent; never 0 or 100 % unless it is."""
    if not whole:
        return "–"
    percent = 100 * part / whole
    if 0 < percent < 0.1:
        return "< 0.1 %"
    if 99.9 < percent < 100:
        return "> 99.9 %"
    return f"{percent:.1f} %".replace(".0 %", " %")


def time_words(time_ms: int) -> str:
    """A moment (ms since the epoch), UTC, to the second."""
    try:
        return datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"


def span_words(ms: float) -> str:
    """How long: ``850 ms``, ``12 s``, ``3 min``, ``5 h``, ``2 days``."""
    if ms < 1000:
        return f"{ms:.0f} ms"
    for unit, length, most in (("s", 1000, 120), ("min", 60_000, 120), ("h", 3_600_000, 48)):
        if ms / length < most:
            return f"{ms / length:.0f} {unit}"
    return f"{ms / DAY_MS:.0f} days"


_representations: dict[str, str] = {}


def register(name: str, function: str) -> None:
    """Register the function that shows one kind of value, as ``module:function``: the core imports no tools.

    ``bitlake/__init__.py`` registers functions of :mod:`bitlake.tools`; one is imported when it is first used.

    >>> register("length", "builtins:len")
    >>> render("length", [1, 2])
    2
    """
    _representations[name] = function


def render(name: str, *args: Any) -> Any:
    """Call the function that was registered under ``name``; raises :class:`KeyError` if there is none."""
    module, _, function = _representations[name].partition(":")
    return getattr(importlib.import_module(module), function)(*args)
