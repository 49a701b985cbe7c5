"""Where a query uses tables, and the query with other names in their places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import Token, TokenType

from bitlake.errors import InvalidRequest
from bitlake.predicate.dialect import caret, quoted, tokenize
from bitlake.predicate.tree import Predicate
from bitlake.sql.cursor import LAKE_CATALOGS
from bitlake.sql.edits import Edit, spliced
from bitlake.sql.statements import TableName


@dataclass(frozen=True, slots=True)
class TableUse:
    """One place in a query's text that names a lake table.

    ``start`` and ``end`` span the name with its database and backticks.  ``columns`` are the schema's names, a
    superset of what the query can need from here, or None for all; ``metadata`` are the ``__paimon_…`` columns that
    are mentioned.  ``predicate`` is unbound; rows for which it is not TRUE may be left out of this use without a change
    of the query's result.  With ``alias_needed`` the use has no alias of its own, and ``alias_at`` is where one goes.
    """

    name: TableName
    start: int
    end: int
    columns: tuple[str, ...] | None
    predicate: Predicate | None
    alias_needed: bool
    alias_at: int
    metadata: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QueryAnalysis:
    """The lake tables of a query, in the order they stand in the text."""

    tables: tuple[TableUse, ...]
    text: str


def replace_tables(text: str, uses: Sequence[TableUse], names: Sequence[str]) -> str:
    """The text with each use's table replaced by the (unquoted) name of the same index.

    A use without an alias gets its table's own name as alias, so that ``t.a`` means the same; ``db.t.a`` is shortened
    to ``t.a``.  Raises :class:`InvalidRequest` where ``db.t.a`` would become ambiguous by that.
    """
    if len(uses) != len(names):
        raise ValueError(f"{len(uses)} uses but {len(names)} names")
    edits: list[Edit] = []
    for use, name in zip(uses, names, strict=True):
        edits.append((use.start, use.end, quoted(name)))
        if use.alias_needed:
            edits.append((use.alias_at, use.alias_at, f" AS {quoted(use.name.table)}"))
    edits += _shortened(text, uses)
    return spliced(text, edits)


def _shortened(text: str, uses: Sequence[TableUse]) -> list[Edit]:
    """Deletions of ``db.`` in references ``db.t.column`` to uses that now go by their alias ``t``."""
    plain = [u for u in uses if u.alias_needed and u.name.database is not None]
    if not plain:
        return []
    databases: dict[str, set[str]] = {}
    for use in plain:
        databases.setdefault(use.name.table.lower(), set()).add((use.name.database or "").lower())
    spans = {u.start for u in uses}
    edits = []
    for chain in _chains(text):
        if chain[0].start in spans:
            continue
        words = [_word(t, text).lower() for t in chain[::2]]
        first = 1 if len(words) > 3 and words[0] in LAKE_CATALOGS else 0
        if len(words) < first + 3 or words[first] not in databases.get(words[first + 1], ()):
            continue
        if len(databases[words[first + 1]]) > 1:
            raise InvalidRequest(
                f"two tables '{words[first + 1]}' of different databases are used; give them aliases and name columns "
                f"by these: {caret(text, chain[0].start)}"
            )
        edits.append((chain[0].start, chain[2 * first + 2].start, ""))
    return edits


def _chains(text: str) -> list[list[Token]]:
    """The runs ``a.b.c`` (or ``a.b.*``) of a text, as their tokens with the dots."""
    out: list[list[Token]] = []
    run: list[Token] = []
    for token in tokenize(text):
        dot = token.token_type is TokenType.DOT
        part = token.token_type in (TokenType.IDENTIFIER, TokenType.STAR) or _word(token, text)[:1].isalpha()
        joined = bool(run) and (run[-1].token_type is TokenType.DOT) != dot
        if joined and (dot or part):
            run.append(token)
            continue
        if len(run) > 2:
            out.append(run)
        run = [token] if part and not dot else []
    return [*out, run] if len(run) > 2 else out


def _word(token: Token, text: str) -> str:
    return token.text if token.token_type is TokenType.IDENTIFIER else text[token.start : token.end + 1]
