"""Checks of callers' arguments: an error names the argument, what it must be, and what was given.

Each check returns the value.  All raise :class:`bitlake.errors.InvalidRequest`.

>>> text("a table name", "orders")
'orders'
>>> whole("limit", "ten")
Traceback (most recent call last):
bitlake.errors.InvalidRequest: limit must be a whole number, and is 'ten'
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping
from typing import Any

from bitlake.errors import InvalidRequest

_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a character: Python has one in place of each byte of a command line that is not UTF-8."""


def text(what: str, value: Any) -> str:
    """Return a value that must be text."""
    if not isinstance(value, str):
        raise InvalidRequest(f"{what} must be text, and is {value!r}")
    if not value.isascii() and _SURROGATE.search(value):
        raise InvalidRequest(f"{what} must be valid Unicode, and has bytes that are not UTF-8: {value[:200]!r}")
    return value


def whole(what: str, value: Any) -> int:
    """Return a value that must be a whole number, also NumPy's, as an int."""
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:  # NumPy arrays have an __index__ that raises it
        pass
    raise InvalidRequest(f"{what} must be a whole number, and is {value!r}")


def listed(what: str, values: Any, items: str = "names") -> tuple[Any, ...]:
    """Return values that must be a list, of any type of items; a text is refused, though it is a sequence of letters.

    ``items``: what the error says that the list holds.
    """
    if isinstance(values, str):
        raise InvalidRequest(f"{what} must be a list of {items}, such as [{values!r}]")
    if isinstance(values, bytes) or not isinstance(values, Iterable):
        raise InvalidRequest(f"{what} must be a list of {items}, and is {values!r}")
    return tuple(values)


def names(what: str, values: Any) -> tuple[str, ...]:
    """Return values that must be a list of names."""
    return tuple(text(f"a name in {what}", value) for value in listed(what, values))


def optional_names(what: str, values: Any) -> tuple[str, ...]:
    """Return values that must be a list of names or None, which is an empty list."""
    return () if values is None else names(what, values)


def wholes(what: str, values: Any) -> tuple[int, ...]:
    """Return values that must be a list of whole numbers."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InvalidRequest(f"{what} must be a list of whole numbers, and is {values!r}")
    return tuple(whole(f"a number in {what}", value) for value in values)


def mapping(what: str, value: Any) -> Mapping[Any, Any]:
    """Return a value that must be a mapping, such as a dict."""
    if not isinstance(value, Mapping):
        raise InvalidRequest(f"{what} must be a dict, and is {value!r}")
    return value
