"""Paimon's function ``sys.max_pt('table')`` in a statement's text; a literal takes its place."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import Token

from bitlake.errors import InvalidRequest
from bitlake.expressions.spark_dialect import caret, tokenize
from bitlake.sql.cursor import STRINGS
from bitlake.sql.edits import spliced


def take_max_pt(text: str, find: Callable[[str], str]) -> str:
    """The text with a string literal for each call; ``find`` gives the last partition of the table that it is told.

    Raises :class:`InvalidRequest` unless the argument is a table's name in quotes, and what ``find`` raises.
    """
    if "max_pt" not in text.lower():
        return text
    try:
        tokens = tokenize(text)
    except InvalidRequest:
        return text  # whoever parses the statement says so
    edits = []
    for at in range(len(tokens) - 3):
        if not _is_call(text, tokens[at : at + 4]):
            continue
        inner = tokens[at + 4 : at + 6]
        closed = len(inner) == 2 and inner[0].token_type in STRINGS and inner[1].text == ")"
        if not closed:
            raise InvalidRequest(
                f"call it as sys.max_pt('table'), with the name in quotes: {caret(text, tokens[at].start)}"
            )
        value = find(inner[0].text).replace("\\", "\\\\").replace("'", "\\'")
        edits.append((tokens[at].start, inner[1].end + 1, f"'{value}'"))
    return spliced(text, edits)


def _is_call(text: str, tokens: list[Token]) -> bool:
    words = [text[t.start : t.end + 1].strip("`").lower() for t in tokens]
    return words == ["sys", ".", "max_pt", "("]
