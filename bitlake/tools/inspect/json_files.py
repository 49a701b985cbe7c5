"""Files of JSON: snapshots, tags, schemas, statistics, consumers; and hints, which are a number.

Members are found one after the other, each with its place, so that a file that is cut shows all before the cut.
"""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

from bitlake.errors import CorruptError
from bitlake.fileindex.description import Page
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import Snapshot
from bitlake.tools.inspect.tree import Source, Tree, reading

_DECODER = json.JSONDecoder()
_BLANK = " \t\r\n"
_MOST = 64 * 1024 * 1024


def json_tree(tree: Tree, source: Source, page: Page, kind: str) -> None:
    """Add a JSON file's members to ``tree``; ``kind`` ``snapshot`` and ``schema`` are checked to be one."""
    if source.size > _MOST:
        raise CorruptError(f"{source.size:,} bytes are too many for JSON of a table; look at a part as hex", 0)
    data = source.view(0, source.size)
    try:
        text = data.decode()
    except UnicodeDecodeError as e:
        _object(tree, data[: e.start].decode(), page)
        raise CorruptError("this is not UTF-8 text", e.start) from e
    _object(tree, text, page)
    if tree.fault is None and kind in ("snapshot", "tag", "changelog"):
        Snapshot.from_json(data, source.path)
    elif tree.fault is None and kind == "schema":
        TableSchema.from_json(data, source.path)


def hint_tree(tree: Tree, source: Source) -> None:
    """Add a hint's number."""
    text = source.view(0, min(source.size, 64)).decode("ascii", "replace")
    number = tree.add("id", 0, source.size, {"": text})
    if not text.isascii() or not text.strip().isdigit():
        with reading(number):
            raise CorruptError("a hint is a number in digits, and readers list the folder instead of this", 0)


class _Places:
    """From places in a text to those in its bytes, asked in ascending order."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = self._byte = 0

    def of(self, at: int) -> int:
        if at < self._at:
            self._at = self._byte = 0
        self._byte += len(self._text[self._at : at].encode())
        self._at = at
        return self._byte


def _object(tree: Tree, text: str, page: Page) -> None:
    places = _Places(text)
    with reading(tree):
        at = _skip(text, 0, places)
        if text[at : at + 1] == "{":
            _members(tree, text, at, page, places)
        else:
            _expected("a JSON object", text, at, places)


def _members(tree: Tree, text: str, at: int, page: Page, places: _Places) -> int:
    """Add the members of the object or list that starts at ``at``; the place after it."""
    listed = text[at] == "["
    stop = "]" if listed else "}"
    at = _skip(text, at + 1, places)
    number = 0
    while text[at : at + 1] != stop:
        if number:
            if text[at : at + 1] != ",":
                _expected(f"',' or '{stop}'", text, at, places)
            at = _skip(text, at + 1, places)
        start, name = at, str(number)
        if not listed:
            name, at = _value(text, at, places)
            if not isinstance(name, str):
                _expected("a name in quotes", text, start, places)
            at = _skip(text, at, places)
            if text[at : at + 1] != ":":
                _expected("':'", text, at, places)
            at = _skip(text, at + 1, places)
        # The top level is always shown; of what is inside of it, a page.
        shown = not (listed or tree.name == "options") or number in range(page.offset, page.offset + page.limit)
        at = _member(tree, name, text, start, at, page, places) if shown else _value(text, at, places)[1]
        tree.more = (tree.more or 0) + (not shown)
        at = _skip(text, at, places)
        number += 1
    return at + 1


def _member(tree: Tree, name: str, text: str, start: int, at: int, page: Page, places: _Places) -> int:
    nested = text[at : at + 1] in ("{", "[") and tree.name != "fields"
    child = tree.add(name, places.of(start))
    if nested:
        end = _members(child, text, at, page, places)
    else:
        value, end = _value(text, at, places)
        if isinstance(value, dict):
            child.name = str(value.get("name", name))
            child.facts = {k: v for k, v in value.items() if k != "name"}
        else:
            child.facts = {"": value}
            if name == "timeMillis" and isinstance(value, int) and abs(value) < 1 << 47:
                child.facts["is"] = f"{dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=value)} UTC"
    child.size = places.of(end) - (child.offset or 0)
    return end


def _value(text: str, at: int, places: _Places) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as e:
        raise CorruptError(f"not JSON: {e.msg}", places.of(e.pos)) from e


def _skip(text: str, at: int, places: _Places) -> int:
    while at < len(text) and text[at] in _BLANK:
        at += 1
    if at >= len(text):
        raise CorruptError("the JSON ends before its last bracket", places.of(len(text)))
    return at


def _expected(what: str, text: str, at: int, places: _Places) -> None:
    raise CorruptError(f"not JSON: {what} is expected, and {text[at : at + 1]!r} is there", places.of(at))
