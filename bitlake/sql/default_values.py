"""DEFAULT as a value in INSERT … VALUES: Spark knows the word only where it knows the table."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import TokenType

from bitlake.predicate.dialect import tokenize
from bitlake.sql.edits import spliced

_QUOTED = (TokenType.IDENTIFIER, TokenType.STRING, TokenType.RAW_STRING)


def replace_defaults(text: str, defaults: Sequence[str]) -> str:
    """A query with what each column's default is in place of the word, if it is a VALUES clause.

    ``defaults`` are SQL expressions, in the order of the values.
    """
    tokens = tokenize(text)
    words = ["" if t.token_type in _QUOTED else text[t.start : t.end + 1].upper() for t in tokens]
    if not words or words[0] != "VALUES" or "DEFAULT" not in words:
        return text
    edits = []
    depth = column = 0
    for at, word in enumerate(words):
        if word == "(":
            depth += 1
            column = 0 if depth == 1 else column
        elif word == ")":
            depth -= 1
        elif word == "," and depth == 1:
            column += 1
        elif word == "DEFAULT" and depth <= 1 and column < len(defaults) and _alone(words, at):
            place = defaults[column] if depth == 1 else defaults[0]
            edits.append((tokens[at].start, tokens[at].end + 1, place))
    return spliced(text, edits)


def _alone(words: Sequence[str], at: int) -> bool:
    """Whether a word is all there is between two commas or brackets."""
    before = words[at - 1]
    after = words[at + 1] if at + 1 < len(words) else ""
    return before in ("(", ",", "VALUES") and after in (")", ",", "")
