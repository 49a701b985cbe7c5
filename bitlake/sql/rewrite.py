"""Rewrite a statement's text before it is parsed, where its meaning depends on the session or the catalog.

* ``"a"`` becomes `` `a` `` where the session's double quotes are identifiers;
* ``IDENTIFIER(expression)`` becomes the name that the expression gives;
* ``current_database()``, ``current_schema()`` and ``current_catalog()`` become the lake's, which Spark does not know;
* ``sys.max_pt('table')``, Paimon's function, becomes a literal;
* DEFAULT as a value of INSERT becomes NULL: Spark knows the word only where it knows the table;
* a catalog view's name becomes its query.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sqlglot
from sqlglot import Token, TokenType
from sqlglot.errors import SqlglotError

from bitlake.errors import InvalidRequest, NotFound
from bitlake.expressions.folding import NotConstant, constant
from bitlake.expressions.spark_dialect import SparkSql, caret, tokenize
from bitlake.expressions.sql_text import quoted
from bitlake.metadata.schema import Names
from bitlake.sql.statements import TableName, quote_name
from bitlake.sql.table_references import find_names, upper_words
from bitlake.sql.text import STRINGS, Cursor, Edit, spliced

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


def take_max_pt(text: str, find: Callable[[str], str]) -> str:
    """Return the text with a string literal for each call; ``find`` returns the last partition of a named table.

    Raises :class:`InvalidRequest` unless the argument is a table's name in quotes, and what ``find`` raises.
    """
    if "max_pt" not in text.lower():
        return text
    try:
        tokens = tokenize(text)
    except InvalidRequest:
        return text  # the parser reports the error
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


_STARTS = frozenset(
    ("SELECT", "WITH", "FROM", "VALUES", "(", "INSERT", "CREATE", "EXPLAIN", "MERGE", "COPY", "REPLACE")
    + ("ALTER", "CACHE", "DECLARE", "DESC", "DESCRIBE", "SET")
)
_DEEPEST = 30


def expand_views(text: str, find: Callable[[TableName], str | None], names: Names = Names.FOLDED) -> str:
    """A statement with ``(query) AS name`` for each view that it reads, views inside of views too.

    ``find`` gives a view's query, whose names are whole (:func:`whole_names`), or None for other names.  Raises
    :class:`InvalidRequest` for views that name each other in a circle.
    """
    for _ in range(_DEEPEST):
        try:
            tokens = tokenize(text)
        except InvalidRequest:
            return text  # the parser reports the error
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
