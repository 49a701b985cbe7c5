"""The sources of a SELECT (tables, derived tables, common table expressions), and the columns that it can need.

A query needs the columns that it mentions, or all where a star or the like takes them unnamed.  Every identifier of the
text counts, wherever it stands: too many columns cost a little, one too few breaks the query.  Since no table loses a
column whose name is mentioned, every name resolves as it did before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from sqlglot import TokenType, exp

from bitlake.metadata.schema import Names
from bitlake.sql.text import QUOTED, SqlText, TableName

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
    rows may be filtered inside; neither for anything else.  ``origin`` is the SELECT of any derived table, which may
    group or limit.  ``qualifiers`` may stand before its columns.  ``position`` 0 is FROM's own item, n that of join n.
    """

    node: exp.Expr
    qualifiers: set[tuple[str, ...]]
    position: int
    fields: Mapping[str, str] | None = None
    inner: exp.Select | None = None
    lookup: Lookup | None = None
    origin: exp.Select | None = None


@dataclass(slots=True, eq=False)
class Join:
    """A join by its kind: INNER, LEFT, RIGHT, FULL, SEMI, ANTI, or '' for one not understood."""

    kind: str
    on: exp.Expr | None
    using: frozenset[str]


def join_of(node: exp.Join, names: Names = Names.FOLDED) -> Join:
    """Return the kind of a join."""
    side, kind, method = (str(node.args.get(k) or "").upper() for k in ("side", "kind", "method"))
    using = frozenset(names.key(u.name) for u in node.args.get("using") or [])
    on = node.args.get("on")
    if method or not only(node, {"this", "on", "using", "side", "kind", "hint"}):
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


def _parts(table: exp.Table) -> list[exp.Identifier]:
    """The identifiers that a table node's name is made of; none for a function, say."""
    parts = [p for p in (table.args.get("catalog"), table.args.get("db"), table.this) if p is not None]
    return parts if all(isinstance(p, exp.Identifier) for p in parts) else []


def name_of(table: exp.Table) -> TableName | None:
    """The name of a table node; None for functions and names of four parts."""
    parts = _parts(table)
    return TableName.of([p.name for p in parts]) if parts else None


def span_of(table: exp.Table) -> tuple[int, int] | None:
    """Where a table's name stands in the text, as ``[start, end)``."""
    parts = _parts(table)
    if not parts or not all("start" in p.meta and "end" in p.meta for p in parts):
        return None
    return min(p.meta["start"] for p in parts), max(p.meta["end"] for p in parts) + 1


def column_key(
    node: exp.Expr, qualifiers: Collection[tuple[str, ...]], names: Names, taken: Collection[str] = ()
) -> str | None:
    """The key of a column's name (:meth:`Names.key`), if one of these qualifiers stands before it, or none.

    ``taken`` are the names that mean another column if no qualifier stands before them.
    """
    if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier):
        return None
    *before, key = (names.key(p.name) for p in node.parts)
    return key if (tuple(before) in qualifiers if before else key not in taken) else None


def cte_of(table: exp.Table, names: Names = Names.FOLDED) -> exp.CTE | None:
    """The common table expression a table node names, by Spark's scoping: the innermost one, defined before."""
    if table.args.get("db") is not None or not isinstance(table.this, exp.Identifier):
        return None
    child: exp.Expr = table
    while child.parent is not None:
        node = child.parent
        with_ = node if isinstance(node, exp.With) else node.args.get("with_")
        if with_ is not None and with_ is not child:
            cte = _visible(with_, table.name, child, names)
            if cte is not None:
                return cte
        child = node
    return None


def _visible(with_: exp.Expr, name: str, inside: exp.Expr, names: Names) -> exp.CTE | None:
    """The last common table expression of a name that is defined before the one that the name stands ``inside``."""
    visible: exp.CTE | None = None
    for cte in with_.expressions:
        if names.same(cte.alias, name) and (cte is not inside or with_.args.get("recursive")):
            visible = cte
        if cte is inside:
            break
    return visible


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


def select_of(node: exp.Expr) -> exp.Select | None:
    """The SELECT in brackets; None for set operations, and brackets with an order or a limit of their own."""
    while isinstance(node, exp.Subquery) and only(node, {"this"}):
        node = node.this
    return node if isinstance(node, exp.Select) else None


def outputs(select: exp.Select, names: Names = Names.FOLDED) -> Lookup:
    """Return the names of the output columns of a plain SELECT inside it."""
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


_WORD = re.compile(r"\w+")


class Mentions:
    """The identifiers of a text in lower case, or everything (``all``) where names are not in the text.

    Lower case also where names are compared as written: a column too many costs little.
    """

    def __init__(self, text: SqlText, quoted_patterns: bool = False) -> None:
        words: set[str] = set()
        self.all = False
        for at, token in enumerate(text.tokens):
            if token.token_type is TokenType.IDENTIFIER:
                words.add(token.text.lower())
                # With spark.sql.parser.quotedRegexColumnNames a quoted name is a pattern.
                self.all = self.all or (quoted_patterns and _WORD.fullmatch(token.text) is None)
            elif token.token_type not in QUOTED:
                words.update(_WORD.findall(text.raw(token).lower()))
                if text.words[at : at + 2] == ["IDENTIFIER", "("]:
                    self.all = True  # IDENTIFIER('a'): a name made of a string
        self.words = words

    @property
    def metadata(self) -> tuple[str, ...]:
        """The metadata columns that are mentioned."""
        return tuple(sorted(w for w in self.words if w.startswith("__paimon_")))


def without_metadata(text: SqlText, place: int, metadata: tuple[str, ...]) -> SqlText:
    """A query in which the stars of one SELECT leave these metadata columns out: a star never means them.

    ``place`` is where the query's one table is named, in that SELECT.  It will have the columns, for they are named.
    """
    stars: dict[int, list[int]] = {}
    opened, home, words = [-1], -1, ["", *text.words, ","]
    for at, token in enumerate(text.tokens):
        before, word, after = words[at : at + 3]
        if token.start == place:
            home = opened[-1]
        if word == "(":
            opened.append(at)
        elif word == ")" and len(opened) > 1:
            opened.pop()
        elif word == "*" and before in ("SELECT", "DISTINCT", "ALL", ",", ".") and after in ("FROM", ","):
            stars.setdefault(opened[-1], []).append(token.end + 1)
    return text.edit([(end, end, f" EXCEPT ({', '.join(metadata)})") for end in stars.get(home, ())])


def named_tables(tree: exp.Expr) -> list[exp.Table]:
    """The tables and table functions below a node, without those that a hint names."""
    return [t for t in tree.find_all(exp.Table) if t.find_ancestor(exp.Hint) is None]


def own(select: exp.Expr | None, within: exp.Expr, *kinds: type[exp.Expr]) -> Iterator[exp.Expr]:
    """The nodes of these kinds ``within`` a node that are parts of a SELECT itself, and not of a query inside it."""
    return (node for node in within.find_all(*kinds) if node.find_ancestor(exp.Select) is select)


def pivots(select: exp.Select) -> bool:
    """Whether a SELECT has a PIVOT or UNPIVOT of its own."""
    return any(True for _ in own(select, select, exp.Pivot))


def unnamed_tables(tree: exp.Expr) -> set[int]:
    """The table nodes (by id) whose columns are needed without being named: stars, NATURAL, PIVOT, column aliases."""
    tables = named_tables(tree)
    # The tables of a relation in brackets, without those inside of a query there.
    brackets = {s: list(own(s.find_ancestor(exp.Select), s, exp.Table)) for s in tree.find_all(exp.Subquery)}
    of_select: dict[int, list[exp.Table]] = {}
    out: set[int] = set()
    for table in tables:
        select = table.find_ancestor(exp.Select)
        of_select.setdefault(id(select), []).append(table)
        if select is None or renames(table):
            out.add(id(table))
    for bracket, inside in brackets.items():
        if renames(bracket):
            out.update(map(id, inside))
    for node in tree.find_all(exp.Star, exp.Join, exp.Pivot, exp.QueryTransform):
        if isinstance(node, exp.Join) and not is_natural(node):
            continue
        if isinstance(node, exp.Star) and (isinstance(node.parent, exp.Count) or _is_exists_star(node.parent)):
            continue
        if isinstance(node, exp.Star) and isinstance(node.parent, exp.Column) and node.parent.parts[:-1]:
            # q.* of a table of that name anywhere, or of a bracket; the columns of a derived table are named in it.
            name = node.parent.parts[-2].name.lower()
            named = [t for t in tables if name in (t.alias.lower(), t.name.lower())]
            opened = [inside for bracket, inside in brackets.items() if bracket.alias.lower() == name]
            found = [*named, *(t for inside in opened for t in inside)]
            out.update(map(id, found if named or opened else tables))  # else a struct, or not understood
            continue
        select = node.find_ancestor(exp.Select)
        out.update(id(t) for t in of_select.get(id(select), ()))
    return out


def _is_exists_star(select: exp.Expr | None) -> bool:
    """Whether this is the ``SELECT *`` of an EXISTS, which asks whether there are rows and not for their values."""
    return (
        isinstance(select, exp.Select)
        and isinstance(select.parent, exp.Exists)
        and len(select.expressions) == 1
        and only(select, {"expressions", "from_", "joins", "where"})
    )


def projects_subqueries(tree: exp.Expr) -> bool:
    """Whether an expression outside WHERE has a subquery: a scalar one, EXISTS or IN."""
    return any(
        not isinstance(node.find_ancestor(exp.Where, exp.Select), exp.Where)
        for node in tree.find_all(exp.Exists, exp.In, exp.Subquery)
        if _is_subquery_expression(node)
    )


def _is_subquery_expression(node: exp.Expr) -> bool:
    if isinstance(node, exp.In):
        return node.args.get("query") is not None
    relations = (exp.From, exp.Join, exp.Lateral, exp.CTE, exp.SetOperation, exp.Subquery)
    return not (isinstance(node, exp.Subquery) and (node.parent is None or isinstance(node.parent, relations)))


_MORE_THAN_A_SCAN = (exp.Join, exp.Group, exp.AggFunc, exp.Distinct, exp.Order, exp.Window, exp.SetOperation)


def only_scans(tree: exp.Expr) -> bool:
    """Whether a query of one table only filters its rows and computes others of each."""
    return tree.find(*_MORE_THAN_A_SCAN) is None


def unreduced_tables(tree: exp.Expr, names: Names) -> list[exp.Table]:
    """The tables of a query's FROM, all of whose rows may be in its result: nothing groups, limits or counts them.

    Those of derived tables and common table expressions are among them; those of subqueries in expressions, of the
    right side of a SEMI or ANTI join and of EXCEPT are not.
    """
    tables: list[exp.Table] = []
    sources, seen = [tree], set[int]()
    while sources:
        source = sources.pop()
        if id(source) in seen or _reduces_rows(source):
            continue
        seen.add(id(source))
        if isinstance(source, exp.Table):
            cte = cte_of(source, names)
            if cte is None:
                tables.append(source)
            else:
                sources.append(cte.this)
        elif isinstance(source, exp.Union):
            sources += [source.this, source.expression]
        elif isinstance(source, exp.SetOperation | exp.Subquery | exp.Paren):
            sources.append(source.this)
        from_ = source.args.get("from_")
        sources += [] if from_ is None else [from_.this]
        sources += [join.this for join in source.args.get("joins") or () if join.kind not in ("SEMI", "ANTI")]
    return tables


def _reduces_rows(tree: exp.Expr) -> bool:
    """Whether a query at its end groups or limits its rows, or drops repeated ones, so that few may be left."""
    if tree.args.get("limit") is not None:
        return True
    if not isinstance(tree, exp.Select):
        return False
    if tree.args.get("group") is not None or tree.args.get("distinct") is not None:
        return True
    aggregates = (node for e in tree.expressions for node in e.find_all(exp.AggFunc))
    return any(node.find_ancestor(exp.Window, exp.Query) is tree for node in aggregates)


def renames(source: exp.Expr) -> bool:
    """Whether an alias names columns too, by their position."""
    alias = source.args.get("alias")
    return alias is not None and not only(alias, {"this"})
