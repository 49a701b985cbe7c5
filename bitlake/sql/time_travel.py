"""Time travel in SQL: relations that name a table at one time, or the changes between two.

``t VERSION AS OF 3``, ``t TIMESTAMP AS OF expression``, both also with FOR and as SYSTEM_VERSION / SYSTEM_TIME, and
Paimon's table functions.  They are taken out of the text before anything else reads it: a plain name stands in the
place of each, so that what follows it, an alias or a join, means the same.  ``t@branch_b`` becomes ``t$branch_b``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlglot import Token, TokenType

from bitlake.errors import InvalidRequest, UnsupportedFeature
from bitlake.expressions.spark_dialect import caret
from bitlake.metadata.schema import Names
from bitlake.sql.parser import parse_table_name
from bitlake.sql.table_references import CLAUSES_AFTER_TABLE, TableUse, find_names
from bitlake.sql.text import STRINGS, Cursor, Edit, SqlText, TableName, arguments, quote_name

PLACE = "__bitlake_relation_"
"""Names that stand for relations begin so; a number follows."""

FUNCTIONS = {
    "paimon_incremental_query": 3,
    "paimon_incremental_between_timestamp": 3,
    "paimon_incremental_to_auto_tag": 2,
}
"""Paimon's table functions, and how many arguments each takes."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A table at a version (a snapshot's id as a number, or text) or at a time (an SQL expression, as written)."""

    table: TableName
    version: int | str | None = None
    timestamp: str | None = None


@dataclass(frozen=True, slots=True)
class Changes:
    """A table function's call; the arguments after the table's name are Python values."""

    function: str
    table: TableName
    arguments: tuple[Any, ...]


Relation = Moment | Changes


def take_relations(
    text: SqlText, known: Callable[[TableName], bool], names: Names = Names.FOLDED
) -> tuple[SqlText, dict[str, Relation]]:
    """The text with a name in place of each relation, and what each name stands for.

    ``known`` tells the lake's tables from others, whose moments are left to Spark.  Raises :class:`InvalidRequest` for
    a moment or a call that is not well formed, and :class:`UnsupportedFeature` for those of Delta Lake.
    """
    try:
        text = _branches(text)
    except InvalidRequest:
        return text, {}
    _refuse_delta(text)
    edits: list[Edit] = []
    relations: dict[str, Relation] = {}

    def place(start: int, end: int, relation: Relation, alias: str) -> None:
        name = f"{PLACE}{len(relations)}"
        relations[name] = relation
        edits.append((start, end, name + alias))

    for use in find_names(text, names):
        if use.travels and use.name.catalog is None and known(use.name):
            relation, end, aliased = _moment(text, use)
            place(use.start, end, relation, "" if aliased else f" AS {quote_name(use.name.table)}")
    for at, (token, word) in enumerate(zip(text.tokens, text.words, strict=True)):
        if word.lower() in FUNCTIONS and text.words[at + 1 : at + 2] == ["("]:
            cursor = Cursor(text, text.tokens[at + 1 :])
            changes = _changes(text, token, word.lower(), *arguments(cursor))
            place(token.start, cursor.end, changes, "")
    return text.edit(edits), relations


def _branches(text: SqlText) -> SqlText:
    """The text with ``t$branch_b`` for ``t@branch_b``."""
    edits = []
    for before, sign, after in zip(text.tokens, text.tokens[1:], text.tokens[2:], strict=False):
        joined = before.end + 1 == sign.start and sign.end + 1 == after.start
        if sign.text == "@" and joined and after.text.lower().startswith("branch_"):
            edits.append((before.start, after.end + 1, quote_name(f"{text.name(before)}${after.text}")))
    return text.edit(edits)


_DELTA_VERSION = re.compile(r"[vV](\d+)")
_DELTA_TIME = re.compile(r"(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)\d{3}")
"""``t@v3`` and ``t@20240601000000000``: a version, and a time as yyyyMMddHHmmssSSS."""


def _refuse_delta(text: SqlText) -> None:
    """Raise :class:`UnsupportedFeature` for Delta Lake's ``t@v3`` and ``table_changes(…)``, with bitlake's way."""
    words = text.words
    for at, (before, sign, after) in enumerate(zip(text.tokens, text.tokens[1:], text.tokens[2:], strict=False)):
        if sign.text not in ("@", "("):
            continue
        version, time = _DELTA_VERSION.fullmatch(after.text), _DELTA_TIME.fullmatch(after.text)
        joined = before.end + 1 == sign.start and sign.end + 1 == after.start
        if sign.text == "@" and joined and (version or time):
            first = at
            while first >= 2 and words[first - 1] == ".":
                first -= 2
            table = text[text.tokens[first].start : before.end + 1]
            way = "" if version is None else f"VERSION AS OF {version[1]} reads a snapshot (their numbers begin with 1)"
            if time is not None:
                way = "TIMESTAMP AS OF '{}-{}-{} {}:{}:{}' reads the table at a time".format(*time.groups())
            raise UnsupportedFeature(
                f"'{text[text.tokens[first].start : after.end + 1]}' is Delta Lake's way to name a version. "
                f"In bitlake, SELECT * FROM {table} {way}"
            )
        if (
            before.text.lower() == "table_changes"
            and sign.text == "("
            and at
            and words[at - 1] in ("FROM", "JOIN", ",")
        ):
            table = after.text if after.token_type in STRINGS else "t"
            database, dot, name = table.rpartition(".")
            log = f"{database}{dot}`{name.strip('`')}$audit_log`"
            raise UnsupportedFeature(
                "table_changes(…) is a Delta Lake function. In bitlake, SELECT * FROM "
                f"paimon_incremental_query('{table}', 3, 7) returns the rows added after snapshot 3, up to 7, and "
                f"paimon_incremental_query('{log}', 3, 7) also deleted ones, with their row kinds"
            )


def _moment(text: SqlText, use: TableUse) -> tuple[Moment, int, bool]:
    """The moment that follows a name, where it ends, and whether an alias follows it."""
    tokens, words = text.tokens, text.words
    at = next(i for i, t in enumerate(tokens) if t.end + 1 >= use.end) + 1
    at += words[at] == "FOR"
    by_time = words[at] in ("TIMESTAMP", "SYSTEM_TIME")
    at += 3
    if at >= len(tokens):
        raise InvalidRequest(
            f"AS OF must be followed by a {'time' if by_time else 'version'}: {caret(text, use.start)}"
        )
    if by_time:
        end = _expression_end(text, at)
        if end == at:
            raise InvalidRequest(f"AS OF must be followed by a time: {caret(text, tokens[at].start)}")
        last = tokens[end - 1].end + 1
        return Moment(use.name, timestamp=text[tokens[at].start : last]), last, _alias_at(text, end)
    token = tokens[at]
    version: int | str
    if token.token_type in STRINGS:
        version = token.text
    elif token.token_type is TokenType.NUMBER and token.text.rstrip("lL").isdigit():
        version = int(token.text.rstrip("lL"))
        if at + 1 < len(tokens) and tokens[at + 1].start == token.end + 1 and words[at + 1] == "L":
            at += 1  # 1L
    else:
        raise InvalidRequest(f"VERSION AS OF takes a snapshot's id or a tag in quotes: {caret(text, token.start)}")
    return Moment(use.name, version=version), tokens[at].end + 1, _alias_at(text, at + 1)


_UNITS = frozenset(
    f"{unit}{many}" for unit in ("YEAR", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND") for many in ("", "S")
)
_TIMES = ("DATE", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ")
_JOINING = frozenset(("+", "-", "*", "/", "%", "||", "::", ".", "AND", "OR", "NOT", "INTERVAL", *_TIMES))


def _expression_end(text: SqlText, at: int) -> int:
    """The index after an expression: at a comma, a closing bracket, a clause, or an alias, outside brackets."""
    words = text.words
    depth = 0
    start = at
    while at < len(words):
        word = words[at]
        if depth == 0 and at > start:
            if word in (",", ")", "AS", ";") or (word in CLAUSES_AFTER_TABLE and word not in _JOINING):
                break
            operand = not word or (word.replace("_", "a").isalnum() and word not in _JOINING)
            before = words[at - 1]
            joins = before in _JOINING and not (before in _TIMES and words[at - 2] == "::")
            if operand and not joins and before != "(" and word not in _UNITS:
                break  # two values side by side: the second is an alias
        depth += (word in ("(", "[")) - (word in (")", "]"))
        at += 1
    return at


def _alias_at(text: SqlText, at: int) -> bool:
    if at >= len(text.tokens):
        return False
    word = text.words[at]
    if word == "TABLESAMPLE":
        return True  # no alias may stand before it
    quoted = text.tokens[at].token_type is TokenType.IDENTIFIER
    return word == "AS" or quoted or (word.replace("_", "a").isalnum() and word not in CLAUSES_AFTER_TABLE)


def _changes(text: SqlText, token: Token, function: str, positional: tuple[Any, ...], named: dict[str, Any]) -> Changes:
    wanted = FUNCTIONS[function]
    if named or len(positional) != wanted or not isinstance(positional[0], str):
        shown = {
            "paimon_incremental_query": "('table', start, end): snapshot ids or tags",
            "paimon_incremental_between_timestamp": "('table', start, end): times, or milliseconds, as text",
            "paimon_incremental_to_auto_tag": "('table', 'tag')",
        }[function]
        raise InvalidRequest(f"call it as {function}{shown}; {caret(text, token.start)}")
    return Changes(function, parse_table_name(positional[0]), tuple(positional[1:]))
