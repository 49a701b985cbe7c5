"""The sources of a SELECT: tables, derived tables and common table expressions, and how they are joined."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sqlglot import exp

from bitlake.metadata.names import Names
from bitlake.sql.cursor import table_name
from bitlake.sql.statements import TableName

_PLAIN_TABLE = frozenset({"this", "db", "catalog", "alias"})
_PLAIN_SUBQUERY = frozenset({"this", "alias"})
_PLAIN_SELECT = frozenset(
    {"expressions", "from_", "joins", "laterals", "where", "order", "sort", "cluster", "distribute", "hint", "with_"}
)
_KNOWN_SELECT = _PLAIN_SELECT | {"group", "having", "limit", "offset", "distinct", "windows", "qualify"}
_UNSTABLE = re.compile(
    r"\b(rand\w*|uuid|uniform|shuffle|monotonically_increasing_id|spark_partition_id|input_file_\w+|row_number)\b", re.I
)

Lookup = Callable[[str], exp.Column | None]
"""From an output column's key (:meth:`Names.key`) to the inner column it plainly is."""


@dataclass(slots=True, eq=False)
class Source:
    """One item of a FROM clause.

    ``fields`` (key → the schema's name) for a lake table, ``inner`` and ``lookup`` for a derived table whose
    rows may be filtered inside; neither for anything else.  ``position`` 0 is FROM's own item, n that of join n.
    """

    node: exp.Expr
    alias: str
    position: int
    qualified: TableName | None = None
    fields: Mapping[str, str] | None = None
    inner: exp.Select | None = None
    lookup: Lookup | None = None


@dataclass(slots=True, eq=False)
class Join:
    """A join by its kind: INNER, LEFT, RIGHT, FULL, SEMI, ANTI, or '' for one not understood."""

    kind: str
    on: exp.Expr | None
    using: frozenset[str]


def join_of(node: exp.Join, names: Names = Names.FOLDED) -> Join:
    """What kind of join a node is."""
    side, kind, method = (str(node.args.get(k) or "").upper() for k in ("side", "kind", "method"))
    using = frozenset(names.key(u.name) for u in node.args.get("using") or [])
    on = node.args.get("on")
    known = {"this", "on", "using", "side", "kind", "hint"}
    if method or any(value for key, value in node.args.items() if key not in known):
        return Join("", on, using)
    if kind in ("SEMI", "ANTI"):
        return Join("" if side == "RIGHT" else kind, on, using)
    if side in ("LEFT", "RIGHT", "FULL"):
        return Join(side if kind in ("", "OUTER") else "", on, using)
    return Join("INNER" if kind in ("", "INNER", "CROSS") and not side else "", on, using)


def is_natural(node: exp.Join) -> bool:
    """Whether a join compares all columns of the same name."""
    return str(node.args.get("method") or "").upper() == "NATURAL"


def only(node: exp.Expr, allowed: frozenset[str] | set[str]) -> bool:
    """Whether nothing but these arguments of a node is set."""
    return not any(value for key, value in node.args.items() if key not in allowed)


def understood(select: exp.Select) -> bool:
    """Whether every clause of a SELECT is one whose meaning for filters is known."""
    return only(select, _KNOWN_SELECT)


def name_of(table: exp.Table) -> TableName | None:
    """The name of a table node; None for functions and names of four parts."""
    if not all(isinstance(table.args.get(k), exp.Identifier | None) for k in ("this", "db", "catalog")):
        return None
    if not isinstance(table.this, exp.Identifier):
        return None
    return table_name([p.name for p in (table.args.get("catalog"), table.args.get("db"), table.this) if p is not None])


def span_of(table: exp.Table) -> tuple[int, int] | None:
    """Where a table's name stands in the text, as ``[start, end)``."""
    parts = [p for p in (table.args.get("catalog"), table.args.get("db"), table.this) if p is not None]
    if not all("start" in p.meta and "end" in p.meta for p in parts):
        return None
    return min(p.meta["start"] for p in parts), max(p.meta["end"] for p in parts) + 1


def cte_of(table: exp.Table, names: Names = Names.FOLDED) -> exp.CTE | None:
    """The common table expression a table node names, by Spark's scoping: the innermost one, defined before."""
    if table.args.get("db") is not None or not isinstance(table.this, exp.Identifier):
        return None
    name = table.name
    child: exp.Expr = table
    node = table.parent
    while node is not None:
        with_: exp.With | None = None
        limit: exp.Expr | None = None
        if isinstance(node, exp.With):
            with_, limit = node, child
        elif isinstance(node.args.get("with_"), exp.With) and node.args["with_"] is not child:
            with_ = node.args["with_"]
        if with_ is not None:
            found = _visible(with_, name, limit, names)
            if found is not None:
                return found
        child, node = node, node.parent
    return None


def _visible(with_: exp.With, name: str, limit: exp.Expr | None, names: Names) -> exp.CTE | None:
    found: exp.CTE | None = None
    for cte in with_.find_all(exp.CTE):
        if cte.parent is not with_:
            continue
        if cte is limit:
            if with_.args.get("recursive") and names.same(cte.alias, name):
                found = cte
            break
        if names.same(cte.alias, name):
            found = cte
    return found


def plain_source(node: exp.Expr) -> bool:
    """Whether a source is just a table or bracketed query with an alias: no sample, pivot, join or column names."""
    allowed = _PLAIN_TABLE if isinstance(node, exp.Table) else _PLAIN_SUBQUERY
    alias = node.args.get("alias")
    return only(node, allowed) and (alias is None or only(alias, {"this"}))


def plain_query(node: exp.Expr) -> exp.Select | None:
    """The SELECT of a derived table if a filter above it is the same as one inside: no grouping, limit, window …"""
    while isinstance(node, exp.Subquery) and only(node, {"this"}):
        node = node.this
    if not isinstance(node, exp.Select) or not only(node, _PLAIN_SELECT):
        return None
    for projection in node.expressions:
        if projection.find(exp.Window) is not None or _UNSTABLE.search(projection.sql(dialect="spark")):
            return None
    return node


def outputs(select: exp.Select, names: Names = Names.FOLDED) -> Lookup:
    """How the output columns of a plain SELECT are named inside it."""
    explicit: dict[str, list[exp.Column | None]] = {}
    stars: list[exp.Identifier | None] = []
    unclear = False
    for projection in select.expressions:
        inner = projection.unalias()
        if isinstance(inner, exp.Star) or (isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star)):
            star = inner if isinstance(inner, exp.Star) else inner.this
            unclear = unclear or not only(star, frozenset()) or len(getattr(inner, "parts", [])) > 2
            stars.append(inner.args.get("table") if isinstance(inner, exp.Column) else None)
        elif projection.alias_or_name:
            plain = inner if isinstance(inner, exp.Column) else None
            explicit.setdefault(names.key(projection.alias_or_name), []).append(plain)

    def lookup(name: str) -> exp.Column | None:
        if name in explicit:
            return explicit[name][0] if len(explicit[name]) == 1 else None
        if len(stars) != 1 or unclear:
            return None
        table = stars[0]
        return exp.column(exp.to_identifier(name, quoted=True), table=None if table is None else table.copy())

    return lookup
