"""JSON text as Jackson's default pretty printer writes it, so that our files differ from Paimon's in nothing.

Objects break lines and indent by two blanks per enclosing object, ``"key" : value``; arrays stay inline, ``[ a, b ]``;
empty ones are ``{ }`` and ``[ ]``.  Also the checks that every metadata JSON file goes through when read.
"""

from __future__ import annotations

import json
import re
from typing import Any

from bitlake.errors import CorruptError

JSON_BYTES = 16 << 20
"""The most that a snapshot, a schema or a tag may take: as Python objects, JSON is up to thirty times as large."""
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_ESCAPED = re.compile(r'["\\\x00-\x1f]')


def _quote(text: str) -> str:
    return '"' + _ESCAPED.sub(lambda m: _SHORT.get(m.group(), f"\\u{ord(m.group()):04X}"), text) + '"'


def dumps(value: Any, depth: int = 0) -> str:
    """The text of a value made of dicts, lists, tuples, strings, integers, booleans and None."""
    if isinstance(value, str):
        return _quote(value)
    if isinstance(value, dict):
        if not value:
            return "{ }"
        pad = "  " * (depth + 1)
        inner = ",\n".join(f"{pad}{_quote(k)} : {dumps(v, depth + 1)}" for k, v in value.items())
        return f"{{\n{inner}\n{'  ' * depth}}}"
    if isinstance(value, (list, tuple)):
        return "[ " + ", ".join(dumps(v, depth) for v in value) + " ]" if value else "[ ]"
    return str(value) if type(value) is int else json.dumps(value)  # str is faster


def flat(value: Any) -> str:
    """The text of a value on one line, as Jackson writes it without its pretty printer."""
    if isinstance(value, str):
        return _quote(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{_quote(k)}:{flat(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(flat, value)) + "]"
    return json.dumps(value)


def load_object(data: bytes, path: str) -> JsonObject:
    """Parse one JSON object; raises :class:`CorruptError` naming ``path``."""
    if len(data) > JSON_BYTES:
        raise CorruptError(f"{len(data):,} bytes of JSON; files of its kind are read up to {JSON_BYTES:,}", None, path)
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as e:
        raise CorruptError(f"not JSON: {e}", None, path) from e
    if not isinstance(value, dict):
        raise CorruptError("not a JSON object", None, path)
    return JsonObject(value, path)


def camel_case(name: str) -> str:
    """A member's name of an attribute's: ``schema_id`` → ``schemaId``."""
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def check_members(found: JsonObject, known: frozenset[str]) -> None:
    """Refuse an unknown member whose name differs from a known one in one character: a damaged name, which would count
    as absent.  Other unknown members are those of later versions.
    """
    for name in found.value.keys() - known:
        for other in known - found.value.keys():
            if len(name) == len(other) and sum(a != b for a, b in zip(name, other, strict=True)) == 1:
                raise CorruptError(f"'{name}' is not a member; '{other}' is missing", None, found.path)


class JsonObject:
    """A parsed object whose members are read by type; an explicit null counts as absent."""

    def __init__(self, value: dict[str, Any], path: str) -> None:
        self.value = value
        self.path = path

    def _typed(self, name: str, kind: type, word: str) -> Any:
        found = self.value.get(name)
        if found is not None and (not isinstance(found, kind) or (kind is int and isinstance(found, bool))):
            raise CorruptError(f"'{name}' must be {word}, not {found!r}", None, self.path)
        return found

    def _required(self, name: str, found: Any) -> Any:
        if found is None:
            raise CorruptError(f"'{name}' is missing", None, self.path)
        return found

    def maybe_int(self, name: str) -> int | None:
        """An integer or None when absent."""
        found: int | None = self._typed(name, int, "a whole number")
        return found

    def int(self, name: str) -> int:
        """A required integer."""
        found: int = self._required(name, self.maybe_int(name))
        return found

    def maybe_text(self, name: str) -> str | None:
        """A string or None when absent."""
        found: str | None = self._typed(name, str, "text")
        return found

    def text(self, name: str) -> str:
        """A required string."""
        found: str = self._required(name, self.maybe_text(name))
        return found

    def list(self, name: str) -> list[Any]:
        """A list; empty when absent."""
        return self._typed(name, list, "a list") or []

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings; empty when absent."""
        found = self.list(name)
        if not all(isinstance(x, str) for x in found):
            raise CorruptError(f"'{name}' must be a list of texts", None, self.path)
        return tuple(found)

    def mapping(self, name: str) -> dict[str, str]:
        """A string map; empty when absent."""
        found: dict[str, Any] = self._typed(name, dict, "an object") or {}
        if not all(isinstance(x, str) for x in found.values()):
            raise CorruptError(f"'{name}' must map texts to texts", None, self.path)
        return found
