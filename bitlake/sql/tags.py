"""ALTER TABLE … TAG, in Paimon's words: AS OF VERSION says which snapshot, RETAIN how long the tag stays."""

from __future__ import annotations

from bitlake.errors import InvalidRequest
from bitlake.expressions.spark_dialect import caret
from bitlake.sql.cursor import Cursor
from bitlake.sql.ddl_statements import AlterTag, TagChange
from bitlake.sql.statements import TableName

_UNITS = {"DAY": 86_400_000, "HOUR": 3_600_000, "MINUTE": 60_000}


def alter_tag(c: Cursor, table: TableName) -> AlterTag | None:
    """What follows ``ALTER TABLE name`` if it is about a tag; None, nothing taken, if it is not."""
    if c.accept("CREATE", "OR", "REPLACE", "TAG"):
        return _made(c, table, TagChange.CREATE_OR_REPLACE)
    if c.accept("CREATE", "TAG"):
        return _made(c, table, TagChange.CREATE, c.accept("IF", "NOT", "EXISTS"))
    if c.accept("REPLACE", "TAG"):
        return _made(c, table, TagChange.REPLACE)
    if c.accept("DELETE", "TAG"):
        lenient = c.accept("IF", "EXISTS")
        return AlterTag(table, TagChange.DELETE, c.name("a tag's name"), lenient)
    if c.accept("RENAME", "TAG"):
        old = c.name("a tag's name")
        c.expect("TO")
        return AlterTag(table, TagChange.RENAME, old, new_name=c.name("the tag's new name"))
    return None


def _made(c: Cursor, table: TableName, change: TagChange, lenient: bool = False) -> AlterTag:
    name = c.name("a tag's name")
    snapshot = _number(c, "a snapshot's id") if c.accept("AS", "OF", "VERSION") else None
    retained = _retention(c) if c.accept("RETAIN") else None
    return AlterTag(table, change, name, lenient, snapshot, retained)


def _retention(c: Cursor) -> int:
    number = _number(c, "how long to retain the tag, as in RETAIN 7 DAYS")
    unit = c.word().removesuffix("S")
    if unit not in _UNITS:
        c.fail("DAYS, HOURS or MINUTES")
    c.i += 1
    return number * _UNITS[unit]


def _number(c: Cursor, what: str) -> int:
    word = c.word()
    if not word.isdigit():
        c.fail(what)
    if len(word) > 18:
        raise InvalidRequest(f"{word} is too large a number: {caret(c.text, c.position)}")
    c.i += 1
    return int(word)
