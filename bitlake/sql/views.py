"""Views that the catalog keeps, in a statement's text: the query of each takes the place of its name."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import Token

from bitlake.errors import InvalidRequest
from bitlake.expressions.spark_dialect import tokenize
from bitlake.metadata.names import Names
from bitlake.sql.edits import Edit, spliced
from bitlake.sql.names import find_names, upper_words
from bitlake.sql.statements import TableName, quote_name

_STARTS = frozenset(
    ("SELECT", "WITH", "FROM", "VALUES", "(", "INSERT", "CREATE", "EXPLAIN", "MERGE", "COPY", "REPLACE")
    + ("ALTER", "CACHE", "DECLARE", "DESC", "DESCRIBE", "SET")
)
_DEEPEST = 30


def expand_views(text: str, find: Callable[[TableName], str | None], names: Names = Names.FOLDED) -> str:
    """A statement with ``(query) AS name`` for each view that it reads, views inside of views too.

    ``find`` gives a view's query, whose names are whole (:func:`whole_names`), or None for what is no view.  Raises
    :class:`InvalidRequest` for views that name each other in a circle.
    """
    for _ in range(_DEEPEST):
        try:
            tokens = tokenize(text)
        except InvalidRequest:
            return text  # whoever parses the statement says so
        words = upper_words(text, tokens)
        if not words or words[0] not in _STARTS or (words[0] == "CREATE" and _is_kept_view(words)):
            return text
        edits = _edits(text, tokens, find, names)
        if not edits:
            return text
        text = spliced(text, edits)
    raise InvalidRequest(f"views are nested more than {_DEEPEST} deep, or in a circle: {text[:80]} …")


def _is_kept_view(words: list[str]) -> bool:
    """Whether a CREATE makes a view that the catalog keeps, which goes on naming the views that it reads."""
    return "VIEW" in words[1:4] and not {"TEMP", "TEMPORARY"} & set(words[1:4])


def _edits(text: str, tokens: list[Token], find: Callable[[TableName], str | None], names: Names) -> list[Edit]:
    edits = []
    for use in find_names(text, tokens, names):
        query = None if use.shadowed or use.bare or use.name.catalog is not None else find(use.name)
        if query is not None:
            alias = "" if use.has_alias else f" AS {quote_name(use.name.table)}"
            edits.append((use.start, use.end, f"({query}){alias}"))
    return edits


def whole_names(query: str, database: str, known: Callable[[TableName], bool], names: Names = Names.FOLDED) -> str:
    """A view's query with the database before each table's name that has none: it means the same everywhere.

    ``known`` tells tables and views of the lake from others.
    """
    edits = []
    for use in find_names(query, tokenize(query), names):
        name = use.name
        if use.shadowed or name.database is not None or not known(name):
            continue
        edits.append((use.start, use.end, f"{quote_name(database)}.{quote_name(name.table)}"))
    return spliced(query, edits)
