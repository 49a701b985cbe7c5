"""DEFAULT as a value in INSERT: Spark knows the word only where it knows the table."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import TokenType

from bitlake.expressions.spark_dialect import tokenize
from bitlake.sql.edits import spliced

_QUOTED = (TokenType.IDENTIFIER, TokenType.STRING, TokenType.RAW_STRING)
_BEFORE_VALUE = ("(", ",", "VALUES")
_BEFORE_ITEM = ("SELECT", "DISTINCT", "ALL", ",")
_AFTER_LIST = (
    ("", "FROM", "WHERE", "GROUP", "HAVING", "WINDOW", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET")
    + ("LATERAL", "UNION", "EXCEPT", "MINUS", "INTERSECT")
)  # fmt: skip


def default_as_null(text: str) -> str:
    """The query of an INSERT with NULL for each DEFAULT: a column with a default stores it for NULL.

    DEFAULT is a value of a VALUES clause, or an item of the query's own SELECT list.
    """
    tokens = tokenize(text)
    words = ["" if t.token_type in _QUOTED else text[t.start : t.end + 1].upper() for t in tokens]
    if "DEFAULT" not in words:
        return text
    places = _in_values(words) if words[0] == "VALUES" else _in_select(words)
    return spliced(text, [(tokens[at].start, tokens[at].end + 1, "NULL") for at in places])


def _in_values(words: Sequence[str]) -> list[int]:
    """Where DEFAULT stands alone between two commas or brackets of a VALUES clause."""
    out, depth = [], 0
    for at, word in enumerate(words):
        depth += (word == "(") - (word == ")")
        if word != "DEFAULT":
            continue
        before, after = words[at - 1], words[at + 1] if at + 1 < len(words) else ""
        bracketed = before == "(" and after == ")" and words[at - 2] in _BEFORE_VALUE
        if (depth <= 1 and before in _BEFORE_VALUE and after in (")", ",", "")) or (depth <= 2 and bracketed):
            out.append(at)
    return out


def _in_select(words: Sequence[str]) -> list[int]:
    """Where DEFAULT is an item of the first SELECT list outside brackets; none in a set operation, as in Spark."""
    depth, items, listed, done = 0, [], False, False
    for at, word in enumerate(words):
        depth += (word == "(") - (word == ")")
        if depth:
            continue
        if word in ("UNION", "EXCEPT", "MINUS", "INTERSECT"):
            return []
        if word == "SELECT" and not done:
            listed = True
        elif listed and word in _AFTER_LIST:
            listed, done = False, True
        elif listed and word == "DEFAULT" and words[at - 1] in _BEFORE_ITEM:
            after = words[at + 1] if at + 1 < len(words) else ""
            if after == "," or after in _AFTER_LIST:
                items.append(at)
    return items
