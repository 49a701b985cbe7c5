"""Rewrite a statement's text before it is parsed, where its meaning depends on the session or the catalog.

* ``t$snapshots`` becomes `` `t$snapshots` ``;
* ``"a"`` becomes `` `a` `` where the session's double quotes are identifiers;
* ``IDENTIFIER(expression)`` becomes the name that the expression gives;
* ``current_database()``, ``current_schema()`` and ``current_catalog()`` become the lake's, which Spark does not know;
* ``sys.max_pt('table')``, Paimon's function, becomes a literal;
* DEFAULT as a value of INSERT becomes NULL: Spark knows the word only where it knows the table;
* a catalog view's name becomes its query;
* parameters, ``:name`` and ``?``, become literals, as Spark substitutes them: a condition with parameters prunes as one
  with literals does, and statements that Spark never sees take them too.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence

from sqlglot import TokenType

from bitlake.errors import InvalidRequest, NotFound
from bitlake.expressions.folding import NotConstant, constant
from bitlake.expressions.spark_dialect import Args, caret, edits, named_places
from bitlake.expressions.sql_text import quote, quoted
from bitlake.metadata.schema import Names
from bitlake.sql.table_references import find_names
from bitlake.sql.text import (
    AFTER_FROM,
    QUOTED,
    SET_OPERATORS,
    STRINGS,
    Cursor,
    Edit,
    SqlText,
    TableName,
    outside_brackets,
    quote_name,
)

CATALOG = "bitlake"
"""The name of the lake as a catalog."""
_CURRENT = {
    "CURRENT_DATABASE": "current_schema()",
    "CURRENT_SCHEMA": "current_schema()",
    "CURRENT_CATALOG": "current_catalog()",
}
_AFTER_LIST = AFTER_FROM | SET_OPERATORS | {"FROM", "LATERAL"}
_ENDS_ITEM = _AFTER_LIST | {",", ")", "|>", ";"}


def normalize(
    text: SqlText,
    database: str,
    *,
    double_quoted: bool = False,
    wall_clocks: bool = False,
    evaluate: Callable[[str], str | None] | None = None,
) -> SqlText:
    """The text in plain syntax; ``evaluate`` gives the text of a constant expression that is not a plain literal.

    ``wall_clocks``: TIMESTAMP means TIMESTAMP_NTZ, in literals and casts; types of columns are the parser's.
    """
    lower = text.lower()
    try:
        if "$" in text:
            text = text.edit(_dollar_names(text))
        if double_quoted and '"' in text:
            text = text.edit(_identifiers(text))
        if "identifier" in lower:
            text = _named(text, evaluate)
        if "current_" in lower:
            text = text.edit(_current(text, database))
        if wall_clocks and "timestamp" in lower:
            text = text.edit(_wall_clocks(text))
    except (InvalidRequest, NotFound):
        pass  # the parser, or Spark, reports what is wrong
    return text


_WALL_CLOCK = re.compile(r"\s*[+-]?\d+(-\d+){0,2}([ T]\d+(:\d+){0,2}(\.\d*)?)?\s*")
"""A timestamp's text without a time zone."""


def _wall_clocks(text: SqlText) -> list[Edit]:
    """TIMESTAMP_NTZ for TIMESTAMP in literals and casts; a literal with a time zone is TIMESTAMP_LTZ, as in Spark."""
    edits: list[Edit] = []
    brackets: list[tuple[bool, bool]] = []  # of a cast, and whether AS came before
    words = text.words
    for at, (token, word) in enumerate(zip(text.tokens, words, strict=True)):
        before = words[at - 1] if at else ""
        if word == "(":
            brackets.append((before in ("CAST", "TRY_CAST"), False))
        elif word == ")" and brackets:
            brackets.pop()
        elif word == "AS" and brackets:
            brackets[-1] = (brackets[-1][0], True)
        elif word == "TIMESTAMP":
            after = text.tokens[at + 1] if at + 1 < len(text.tokens) else None
            if after is not None and after.token_type in STRINGS:
                kind = "TIMESTAMP_NTZ" if _WALL_CLOCK.fullmatch(after.text) else "TIMESTAMP_LTZ"
                edits.append((token.start, token.end + 1, kind))
            elif before == "::" or (brackets and brackets[-1] == (True, True)):
                edits.append((token.start, token.end + 1, "TIMESTAMP_NTZ"))
    return edits


def _dollar_names(text: SqlText) -> list[Edit]:
    """Bare names with ``$`` in backticks: of system tables and branches, ``t$files`` and ``t$branch_b$files``."""
    edits: list[Edit] = []
    for before, sign, after in zip(text.tokens, text.tokens[1:], text.tokens[2:], strict=False):
        adjoining = before.end + 1 == sign.start and sign.end + 1 == after.start
        if not adjoining or text.raw(sign) != "$" or not text.raw(after).replace("_", "a").isalnum():
            continue
        if edits and edits[-1][1] == sign.start:  # t$branch_b, before another $
            start = edits.pop()[0]
        elif before.token_type not in QUOTED and text.raw(before).replace("_", "a").isalnum():
            start = before.start
        else:
            continue
        edits.append((start, after.end + 1, quoted(text[start : after.end + 1])))
    return edits


def _identifiers(text: SqlText) -> list[Edit]:
    return [
        (t.start, t.end + 1, quoted(text[t.start + 1 : t.end].replace('""', '"')))
        for t in text.tokens
        if t.token_type is TokenType.STRING and text[t.start] == '"'
    ]


def _named(text: SqlText, evaluate: Callable[[str], str | None] | None) -> SqlText:
    """The text without IDENTIFIER(…); the innermost one is replaced first."""
    while True:
        starts = [i for i, w in enumerate(text.words[:-1]) if w == "IDENTIFIER" and text.words[i + 1] == "("]
        edit = next(filter(None, (_name_of(text, at, evaluate) for at in reversed(starts))), None)
        if edit is None:
            return text
        text = text.edit([edit])


def _name_of(text: SqlText, at: int, evaluate: Callable[[str], str | None] | None) -> Edit | None:
    tokens, end = text.tokens, text.closing.get(at + 1, at + 2)
    if end == at + 2:
        return None
    expression = text.part(tokens[at + 2].start, tokens[end - 1].end + 1)
    value = _text_of(expression)
    if value is None and evaluate is not None:
        value = evaluate(expression)
    if value is None:
        return None
    cursor = Cursor(SqlText(value))
    parts = cursor.parts("a name")
    cursor.expect_end()
    return tokens[at].start, tokens[end].end + 1, ".".join(map(quoted, parts))


def _text_of(expression: SqlText) -> str | None:
    try:
        value = None if expression.tree is None else constant(expression.tree, "UTC")
    except (NotConstant, RecursionError):
        return None
    return value if isinstance(value, str) else None


def _current(text: SqlText, database: str) -> list[Edit]:
    words = text.words
    edits: list[Edit] = []
    clauses = [""]  # of each open bracket, the clause that has begun in it
    for at, word in enumerate(words):
        if word == "(":
            clauses.append("")
        elif word == ")" and len(clauses) > 1:
            clauses.pop()
        elif word == "SELECT" or (word in _ENDS_ITEM and word != ","):
            clauses[-1] = word
        name = _CURRENT.get(word)
        if name is None or words[at + 1 : at + 3] != ["(", ")"] or (at and words[at - 1] == "."):
            continue
        alone = (
            clauses[-1] == "SELECT"
            and words[at - 1] in ("SELECT", "DISTINCT", "ALL", ",")
            and set(words[at + 3 : at + 4]) <= _ENDS_ITEM
        )
        value = quote(CATALOG if word == "CURRENT_CATALOG" else database)
        edit = f"{value} AS {quoted(name)}" if alone else value
        edits.append((text.tokens[at].start, text.tokens[at + 2].end + 1, edit))
    return edits


def take_max_pt(text: SqlText, find: Callable[[str], str]) -> SqlText:
    """Return the text with a string literal for each call; ``find`` returns the last partition of a named table.

    Raises :class:`InvalidRequest` unless the argument is a table's name in quotes, and what ``find`` raises.
    """
    if "max_pt" not in text.lower():
        return text
    try:
        names = [text.name(t).lower() for t in text.tokens]
    except InvalidRequest:
        return text  # the parser reports the error
    edits = []
    for at, token in enumerate(text.tokens):
        if names[at : at + 4] != ["sys", ".", "max_pt", "("]:
            continue
        inner = text.tokens[at + 4 : at + 6]
        if len(inner) < 2 or inner[0].token_type not in STRINGS or inner[1].text != ")":
            raise InvalidRequest(f"call it as sys.max_pt('table'), with the name in quotes: {caret(text, token.start)}")
        edits.append((token.start, inner[1].end + 1, quote(find(inner[0].text))))
    return text.edit(edits)


_BEFORE_VALUE = ("(", ",", "VALUES")
_BEFORE_ITEM = ("SELECT", "DISTINCT", "ALL", ",")
_AFTER_ITEM = _AFTER_LIST.difference(("GROUP", "CLUSTER", "DISTRIBUTE")) | {","}
"""Words that follow a DEFAULT that Spark takes."""


def default_as_null(text: SqlText) -> SqlText:
    """The query of an INSERT with NULL for each DEFAULT: a column with a default stores it for NULL.

    DEFAULT is a value of a VALUES clause, or an item of the query's own SELECT list.
    """
    if "DEFAULT" not in text.words:
        return text
    places = _in_values(text.words) if text.words[0] == "VALUES" else _in_select(text.words)
    return text.edit([(text.tokens[at].start, text.tokens[at].end + 1, "NULL") for at in places])


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
    items, listed, done = [], False, False
    for at in outside_brackets(words):
        word, after = words[at], words[at + 1] if at + 1 < len(words) else ","
        if word in SET_OPERATORS:
            return []
        if word == "SELECT" and not done:
            listed = True
        elif listed and word in _AFTER_LIST:
            listed, done = False, True
        elif listed and word == "DEFAULT" and words[at - 1] in _BEFORE_ITEM and after in _AFTER_ITEM:
            items.append(at)
    return items


_STARTS = frozenset(
    ("SELECT", "WITH", "FROM", "VALUES", "(", "INSERT", "CREATE", "EXPLAIN", "MERGE", "COPY", "REPLACE")
    + ("ALTER", "CACHE", "DECLARE", "DELETE", "DESC", "DESCRIBE", "SET", "UPDATE")
)
_DEEPEST = 30


def expand_views(text: SqlText, find: Callable[[TableName], str | None], names: Names = Names.FOLDED) -> SqlText:
    """A statement with ``(query) AS name`` for each view that it reads, views inside of views too.

    ``find`` gives a view's query, whose names are whole (:func:`whole_names`), or None for other names.  Raises
    :class:`InvalidRequest` for views that name each other in a circle.
    """
    for _ in range(_DEEPEST):
        try:
            words = text.words
        except InvalidRequest:
            return text  # the parser reports the error
        if not words or words[0] not in _STARTS or (words[0] == "CREATE" and _is_kept_view(words)):
            return text
        edits = []
        target = _target_of_delete(text)
        for use in find_names(text, names):
            other = use.shadowed or use.bare or use.name.catalog is not None or use.start == target
            query = None if other else find(use.name)
            if query is not None:
                alias = "" if use.has_alias else f" AS {quote_name(use.name.table)}"
                edits.append((use.start, use.end, f"({query}){alias}"))
        if not edits:
            return text
        text = text.edit(edits)
    raise InvalidRequest(f"views are nested more than {_DEEPEST} deep, or in a circle: {text[:80]} …")


def _target_of_delete(text: SqlText) -> int | None:
    """Where the table's name begins in ``[EXPLAIN] DELETE FROM t``, which no query may replace."""
    for at, (word, after) in enumerate(itertools.pairwise(text.words[:4])):
        if (word, after) == ("DELETE", "FROM"):
            return text.tokens[at + 2].start if at + 2 < len(text.tokens) else None
    return None


def _is_kept_view(words: Sequence[str]) -> bool:
    """Whether a CREATE makes a view that the catalog keeps, which goes on naming the views that it reads."""
    return "VIEW" in words[1:4] and not {"TEMP", "TEMPORARY"} & set(words[1:4])


def whole_names(
    query: SqlText, database: str, known: Callable[[TableName], bool], names: Names = Names.FOLDED
) -> SqlText:
    """A view's query with the database before each table's name that has none: it means the same everywhere.

    ``known`` tells tables and views of the lake from others.
    """
    return query.edit(
        (use.start, use.end, f"{quote_name(database)}.{quote_name(use.name.table)}")
        for use in find_names(query, names)
        if not use.shadowed and use.name.database is None and known(use.name)
    )


# --- parameters -------------------------------------------------------------------------------------------------------

_VARIABLE = re.compile(r"(?:(?:system\s*\.\s*)?session\s*\.\s*)?(`(?:[^`]|``)+`|[A-Za-z_]\w*)", re.I)
_CONSTANTS = frozenset(
    "NULL TRUE FALSE CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP CURRENT_USER SESSION_USER USER LOCALTIMESTAMP "
    "CURRENT_CATALOG CURRENT_DATABASE CURRENT_SCHEMA".split()
)
"""Words that are values without brackets."""


def bind_parameters(text: str, args: Args) -> SqlText:
    """The text with each parameter replaced: ``:name`` by a mapping's values, ``?`` by those of a list, in order.

    Values are Python's, or :class:`Expression` for an expression as written.  Raises :class:`InvalidRequest` for a
    parameter without a value, and a value that has no SQL literal.
    """
    written = SqlText(text)
    return written.edit(edits(written, written.tokens, args))


def has_named(text: SqlText) -> bool:
    """Whether a statement has parameters ``:name``."""
    return any(True for _ in named_places(text, text.tokens))


def variable_name(expression: str) -> str | None:
    """The name of the session variable that an expression is; None for other expressions."""
    match = _VARIABLE.fullmatch(expression.strip())
    if match is None or match.group(1).upper() in _CONSTANTS:
        return None
    name = match.group(1)
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def in_brackets(expression: SqlText) -> SqlText:
    """The expression in brackets, unless it is one literal: Spark joins strings that stand side by side."""
    return expression if len(expression.tokens) == 1 else SqlText(f"({expression})")
