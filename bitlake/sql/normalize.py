"""Syntax whose meaning depends on the session, replaced by plain syntax before a statement is parsed.

* ``"a"`` becomes `` `a` `` where the session's double quotes are identifiers;
* ``IDENTIFIER(expression)`` becomes the name that the expression gives;
* ``current_database()``, ``current_schema()`` and ``current_catalog()`` become the lake's, which Spark does not know.
"""

from __future__ import annotations

from collections.abc import Callable

import sqlglot
from sqlglot import Token, TokenType
from sqlglot.errors import SqlglotError

from bitlake.errors import InvalidRequest, NotFound
from bitlake.expressions.folding import NotConstant, constant
from bitlake.expressions.spark_dialect import SparkSql, tokenize
from bitlake.expressions.sql_text import quoted
from bitlake.sql.cursor import Cursor
from bitlake.sql.edits import Edit, spliced
from bitlake.sql.names import upper_words

CATALOG = "bitlake"
"""The name of the lake as a catalog."""
_CURRENT = {
    "CURRENT_DATABASE": "current_schema()",
    "CURRENT_SCHEMA": "current_schema()",
    "CURRENT_CATALOG": "current_catalog()",
}
_ENDS_ITEM = frozenset(
    (",", ")", "FROM", "WHERE", "GROUP", "HAVING", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET")
    + ("UNION", "INTERSECT", "EXCEPT", "MINUS", "WINDOW", "LATERAL", "|>", ";")
)


def normalize(
    text: str, database: str, *, double_quoted: bool = False, evaluate: Callable[[str], str | None] | None = None
) -> str:
    """The text in plain syntax; ``evaluate`` gives the text of a constant expression that is not a plain literal."""
    lower = text.lower()
    quotes = double_quoted and '"' in text
    if not quotes and "identifier" not in lower and "current_" not in lower:
        return text
    try:
        if quotes:
            text = spliced(text, _identifiers(text, tokenize(text)))
        if "identifier" in lower:
            text = _named(text, evaluate)
        if "current_" in lower:
            text = spliced(text, _current(text, tokenize(text), database))
    except (InvalidRequest, NotFound):
        return text  # the parser, or Spark, reports what is wrong
    return text


def _identifiers(text: str, tokens: list[Token]) -> list[Edit]:
    return [
        (t.start, t.end + 1, quoted(text[t.start + 1 : t.end].replace('""', '"')))
        for t in tokens
        if t.token_type is TokenType.STRING and text[t.start] == '"'
    ]


def _named(text: str, evaluate: Callable[[str], str | None] | None) -> str:
    """The text without IDENTIFIER(…); the innermost one is replaced first."""
    while True:
        tokens = tokenize(text)
        words = upper_words(text, tokens)
        starts = [i for i, w in enumerate(words[:-1]) if w == "IDENTIFIER" and words[i + 1] == "("]
        edit = next(filter(None, (_name_of(text, tokens, words, at, evaluate) for at in reversed(starts))), None)
        if edit is None:
            return text
        text = spliced(text, [edit])


def _name_of(
    text: str, tokens: list[Token], words: list[str], at: int, evaluate: Callable[[str], str | None] | None
) -> Edit | None:
    depth, end = 0, at + 1
    while end < len(tokens):
        depth += (words[end] == "(") - (words[end] == ")")
        if depth == 0:
            break
        end += 1
    if end >= len(tokens) or end == at + 2:
        return None
    expression = text[tokens[at + 2].start : tokens[end - 1].end + 1]
    value = _text_of(expression)
    if value is None and evaluate is not None:
        value = evaluate(expression)
    if value is None:
        return None
    cursor = Cursor(value)
    parts = cursor.parts("a name")
    cursor.expect_end()
    return tokens[at].start, tokens[end].end + 1, ".".join(map(quoted, parts))


def _text_of(expression: str) -> str | None:
    try:
        value = constant(sqlglot.parse_one(expression, dialect=SparkSql), "UTC")
    except (SqlglotError, NotConstant, RecursionError):
        return None
    return value if isinstance(value, str) else None


def _current(text: str, tokens: list[Token], database: str) -> list[Edit]:
    words = upper_words(text, tokens)
    edits: list[Edit] = []
    clauses = [""]  # of each open bracket, the clause that has begun in it
    for at, token in enumerate(tokens):
        word = words[at]
        if word == "(":
            clauses.append("")
        elif word == ")" and len(clauses) > 1:
            clauses.pop()
        elif word == "SELECT" or (word in _ENDS_ITEM and word != ","):
            clauses[-1] = word
        name = _CURRENT.get(word)
        if name is None or words[at + 1 : at + 3] != ["(", ")"] or (at and words[at - 1] == "."):
            continue
        value = CATALOG if word == "CURRENT_CATALOG" else database
        alone = (
            clauses[-1] == "SELECT"
            and words[at - 1] in ("SELECT", "DISTINCT", "ALL", ",")
            and set(words[at + 3 : at + 4]) <= _ENDS_ITEM
        )
        literal = "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        edits.append((token.start, tokens[at + 2].end + 1, f"{literal} AS {quoted(name)}" if alone else literal))
    return edits
