"""What is left to do of a query of aggregates once these are known: HAVING, ORDER BY, LIMIT, and expressions over them.

The text stays as it is but for three edits, and runs over a small relation that has a row for each group (or one):
the key under its own name, and in further columns what the aggregates came to.

* ``COUNT(…)`` becomes ``coalesce(max(<its column>), 0L)``, ``MIN(…)`` and ``MAX(…)`` become ``max(<its column>)``: of
  a group of one row that is the value, with the type (and for COUNT the NOT NULL) that it had;
* WHERE goes, for the rows that it leaves are counted;
* GROUP BY stays, and groups rows that are groups.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import sqlglot
from sqlglot import Token, TokenType, exp

from bitlake.expressions.spark_dialect import SparkSql, tokenize
from bitlake.sql.edits import Edit
from bitlake.sql.uses import QueryAnalysis

AGGREGATES = (exp.Count, exp.Min, exp.Max)
_NAMES = ("count", "min", "max")
_CLAUSES = {
    TokenType.WHERE: "where",
    TokenType.GROUP_BY: "group",
    TokenType.HAVING: "having",
    TokenType.ORDER_BY: "order",
    TokenType.LIMIT: "limit",
    TokenType.OFFSET: "offset",
}
_OVER = (
    exp.Binary,
    exp.Unary,
    exp.Between,
    exp.In,
    exp.Literal,
    exp.Boolean,
    exp.Null,
    exp.Identifier,
    exp.Alias,
    exp.Cast,
    exp.DataType,
    exp.Case,
    exp.If,
    exp.Coalesce,
    exp.Upper,
    exp.Lower,
    exp.Length,
    exp.Abs,
    exp.Round,
    exp.Concat,
    exp.Having,
    exp.Order,
    exp.Ordered,
)
"""What may stand over aggregates and the key: a row in, a row out."""


def plain_over(node: exp.Expr, column: Callable[[exp.Column], bool]) -> int | None:
    """How many aggregates an expression holds; None if there is more in it than is known to be row by row.

    ``column``: whether a column outside of them may stand there.
    """
    if isinstance(node, AGGREGATES):
        return 1
    if isinstance(node, exp.Column):
        return 0 if column(node) else None
    if not isinstance(node, _OVER):
        return None
    found = 0
    for child in node.iter_expressions():
        inner = plain_over(child, column)
        if inner is None:
            return None
        found += inner
    return found


def aggregate_spans(text: str) -> list[tuple[int, int, exp.Expr]] | None:
    """Where calls of COUNT, MIN and MAX stand in a text, each with what it is; None if one cannot be read."""
    tokens = tokenize(text)
    out: list[tuple[int, int, exp.Expr]] = []
    for i, token in enumerate(tokens[:-1]):
        if token.text.lower() not in _NAMES or tokens[i + 1].token_type is not TokenType.L_PAREN:
            continue
        end = _closing(tokens, i + 1)
        if end is None:
            return None
        node = sqlglot.parse_one(text[token.start : end], dialect=SparkSql)
        if not isinstance(node, AGGREGATES):
            return None
        out.append((token.start, end, node))
    return out


def _closing(tokens: Sequence[Token], start: int) -> int | None:
    depth = 0
    for token in tokens[start:]:
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if depth == 0:
            return int(token.end) + 1
    return None


def without_where(text: str, clauses: Collection[str]) -> list[Edit] | None:
    """The edit that takes WHERE out of a plain SELECT with these clauses; None if it is not clear where it ends."""
    tokens = tokenize(text)
    starts: dict[str, list[int]] = {}
    for token in tokens:
        if token.token_type in _CLAUSES:
            starts.setdefault(_CLAUSES[token.token_type], []).append(token.start)
    # A column may be called like a clause; then there are more such words than clauses.
    if any(len(starts.get(name, ())) != (name in clauses) for name in _CLAUSES.values()):
        return None
    if "where" not in clauses:
        return []
    (start,) = starts["where"]
    ends = [t.start for t in tokens if t.token_type is TokenType.SEMICOLON] + [len(text)]
    return [(start, min(s for s in [*(s for (s,) in starts.values()), *ends] if s > start), "")]


def edited(analysis: QueryAnalysis, edits: Sequence[Edit]) -> QueryAnalysis:
    """A query of one table with edits beside the table's name applied."""
    (use,) = analysis.tables
    text, moved = analysis.text, 0
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
        moved += len(new) - (end - start) if start < use.start else 0
    moved_use = replace(use, start=use.start + moved, end=use.end + moved, alias_at=use.alias_at + moved)
    return replace(analysis, tables=(moved_use,), text=text)
