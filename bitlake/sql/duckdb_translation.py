"""Queries of Spark SQL → DuckDB's SQL, where both give the same rows, names and types.

sqlglot parses the text.  Names are resolved here by Spark's rules, and every column gets a name of its own, so that no
rule of DuckDB's decides what a name means.  Types are Spark's (:mod:`bitlake.sql.spark_types`), and every operand is
cast to them.  Many things that both engines understand mean different things; so a query is translated only if every
node of its tree, and every argument of a node, is known to mean the same on operands of its types.  Everything else
raises :class:`NotTranslatable`, with the part and the reason.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from sqlglot import exp

from bitlake._clock import now_ms
from bitlake.errors import InvalidRequest
from bitlake.sql import duckdb_functions as _functions  # noqa: F401  (registers the functions)
from bitlake.sql import duckdb_lists as _lists  # noqa: F401  (registers IN, AND and OR)
from bitlake.sql import spark_types as ty
from bitlake.sql.duckdb_expressions import Expressions, Scope, Source, alike
from bitlake.sql.duckdb_functions import direction, group_key, is_aggregate, ordered
from bitlake.sql.duckdb_values import ZONE_DIFFERS, NotTranslatable, Value, identifier, stored_value, widen
from bitlake.sql.spark_types import SparkType
from bitlake.sql.text import STRINGS, SqlText
from bitlake.types import time_zone
from bitlake.types.datatypes import DataField

_JOINS = {
    **dict.fromkeys(("", "INNER"), "JOIN"),
    **dict.fromkeys(("LEFT", "LEFT OUTER"), "LEFT JOIN"),
    **dict.fromkeys(("RIGHT", "RIGHT OUTER"), "RIGHT JOIN"),
    **dict.fromkeys(("FULL", "FULL OUTER", "OUTER"), "FULL JOIN"),
    "CROSS": "CROSS JOIN",
    "LEFT SEMI": "SEMI JOIN",
    "SEMI": "SEMI JOIN",
    **dict.fromkeys(("LEFT ANTI", "ANTI"), "ANTI JOIN"),
}
_CLAUSES = frozenset(
    ("expressions", "from_", "joins", "where", "group", "having", "order", "limit", "offset", "distinct", "with_")
    + ("windows", "hint")
)
"""The clauses of a SELECT; hints are Spark's planner's alone."""
_SET_CLAUSES = frozenset(("this", "expression", "distinct", "order", "limit", "offset", "with_"))
_WORDS = {exp.Union: "UNION", exp.Intersect: "INTERSECT", exp.Except: "EXCEPT"}


UNNAMED: tuple[str, ...] = ()
"""Stands for the names of a result that its caller names."""


@dataclass(frozen=True, slots=True)
class Translation:
    """A query in DuckDB's SQL, with its columns' names and types in Spark.

    ``lists``: the tables of constants that the SQL names.
    """

    sql: str
    names: tuple[str, ...]
    types: tuple[SparkType, ...]
    lists: Mapping[str, pa.Table] = field(default_factory=dict)


def translate(
    text: SqlText,
    tables: Mapping[str, Sequence[DataField]],
    timezone: str = "UTC",
    names: Sequence[str] | None = None,
) -> Translation:
    """A query in DuckDB's SQL; ``tables``: the columns of each table that the text names.

    ``names``: those of the result, where they are not what Spark calls its columns; with :data:`UNNAMED`, columns whose
    name in Spark is not known here are called by their place.  Raises :class:`NotTranslatable`.
    """
    if not isinstance(text.tree, exp.Query):
        raise NotTranslatable(text, "it is not a query that can be parsed")
    if text.tree.find(exp.Placeholder) is not None:
        raise NotTranslatable(text, "':' and '?' stand for members of a VARIANT or for parameters without values")
    queries = _Queries(text, tables, timezone)
    try:
        query = queries.query(text.tree, None, {})
    except RecursionError as e:
        raise NotTranslatable(text, "it is nested too deeply") from e
    except InvalidRequest as e:
        if timezone != time_zone.ENGINE_ONLY or isinstance(e, NotTranslatable):
            raise
        raise NotTranslatable(text, ZONE_DIFFERS) from e  # a literal of the session's zone
    called = [c.name for c in query.columns] if names is None else names
    if names == UNNAMED:
        called = [c.name or f"c{i}" for i, c in enumerate(query.columns)]
    for i, (name, column) in enumerate(zip(called, query.columns, strict=True), 1):
        if not name or column.type == ty.NULL:
            why = "Spark's name or type for it is not known; give it an alias, or cast it"
            raise NotTranslatable(f"column {i} of the result", why)
    return Translation(query.sql, tuple(map(str, called)), tuple(c.type for c in query.columns), queries.lists)


def today(timezone: str) -> dt.date | None:
    """The session's date; None if only the engine knows the time zone."""
    if timezone == time_zone.ENGINE_ONLY:
        return None
    return dt.datetime.fromtimestamp(now_ms() / 1000, time_zone.zone(timezone)).date()


@dataclass(frozen=True, slots=True)
class _Query:
    """A translated query: its columns are called c0, c1 … in the SQL, and as Spark calls them in ``columns``."""

    sql: str
    columns: tuple[Value, ...]

    def columns_of(self, alias: str) -> tuple[tuple[str, Value], ...]:
        """The columns, where the query is a source in FROM."""
        return tuple(
            (c.name or "", replace(c, sql=f'{alias}."c{i}"', literal=None)) for i, c in enumerate(self.columns)
        )


_Ctes = Mapping[str, tuple[str, _Query]]


class _Queries:
    """Translates the queries of one text."""

    def __init__(self, text: SqlText, tables: Mapping[str, Sequence[DataField]], timezone: str) -> None:
        self.tables = tables
        self.timezone = timezone
        self.today = today(timezone)
        self.text = text
        self.count = 0
        self.lists: dict[str, pa.Table] = {}

    def new(self, prefix: str) -> str:
        """A name that occurs nowhere else."""
        self.count += 1
        return f"{prefix}{self.count}"

    def word(self, node: exp.Expr, names: Sequence[str] = ()) -> str | None:
        """The name of a function as it is written; where the parser keeps no place, the one of ``names`` in the text.

        None if that is not certain.
        """
        start, end = node.meta.get("start"), node.meta.get("end")
        if start is not None and end is not None:
            return str(self.text[start : end + 1])
        calls = {t.text.lower() for i, t in enumerate(self.text.tokens) if i + 1 in self.text.closing}
        written = [call for call in calls if call in names]
        return written[0] if len(written) == 1 else None

    def pattern(self, node: exp.Expr) -> str | None:
        """The last text in a function's brackets as it is written."""
        tokens, start = self.text.tokens, node.meta.get("start")
        at = next((i for i, t in enumerate(tokens) if t.start == start), None)
        if at is None or at + 1 not in self.text.closing:
            return None
        last = tokens[self.text.closing[at + 1] - 1]
        return last.text if last.token_type in STRINGS else None

    def query(self, node: exp.Expr, parent: Scope | None, ctes: _Ctes) -> _Query:
        """A query with its WITH, ORDER BY and LIMIT."""
        if isinstance(node, exp.Subquery):
            more = {k for k, v in node.args.items() if v} - {"this", "alias"}
            if more & {"with_", "order", "limit", "offset"} and not more - {"with_", "order", "limit", "offset"}:
                return self._bracketed(node, parent, ctes)
            if more:
                raise NotTranslatable(node, _unknown(more))
            return self.query(node.this, parent, ctes)
        known = _CLAUSES if isinstance(node, exp.Select) else _SET_CLAUSES
        unknown = {k for k, v in node.args.items() if v} - known
        if not isinstance(node, (exp.Select, *_WORDS)) or unknown:
            raise NotTranslatable(node, _unknown(unknown))
        defined, ctes = self._with(node, ctes)
        made = self._select(node, parent, ctes) if isinstance(node, exp.Select) else self._set(node, parent, ctes)
        return replace(made, sql=defined + made.sql)

    def _with(self, node: exp.Expr, ctes: _Ctes) -> tuple[str, _Ctes]:
        clause = node.args.get("with_")
        if clause is None:
            return "", ctes
        if clause.recursive:
            raise NotTranslatable("WITH RECURSIVE", "limits on its depth differ")
        known = dict(ctes)
        defined: list[str] = []
        for cte in clause.expressions:
            if {k for k, v in cte.args.items() if v} - {"this", "alias"}:
                raise NotTranslatable(cte, "only Spark has one of its clauses")
            if any(cte.alias.lower() == other.alias.lower() for other in clause.expressions[: len(defined)]):
                raise NotTranslatable(cte, "another query of this WITH has the same name")
            query = _renamed(cte, self.query(cte.this, None, known))
            name = self.new("w")
            known[cte.alias.lower()] = (name, query)
            defined.append(f"{name} AS ({query.sql})")
        return f"WITH {', '.join(defined)} ", known

    # --- set operations ---

    def _bracketed(self, node: exp.Subquery, parent: Scope | None, ctes: _Ctes) -> _Query:
        """A query in brackets with an ORDER BY or LIMIT of its own."""
        defined, ctes = self._with(node, ctes)
        made = self.query(node.this, parent, ctes)
        return replace(made, sql=defined + self._outer(node, made, ctes))

    def _outer(self, node: exp.Expr, made: _Query, ctes: _Ctes) -> str:
        """A query with the ORDER BY and LIMIT that come after it."""
        alias = self.new("s")
        columns = made.columns_of(alias)
        scope = Scope([Source("", columns)])
        ends = self._end(node, self._expressions(scope, ctes), {}, columns)
        listed = ", ".join(f'{value.sql} AS "c{i}"' for i, (_, value) in enumerate(columns))
        return f"SELECT {listed} FROM ({made.sql}) AS {alias}{ends}" if ends else made.sql

    def _set(self, node: Any, parent: Scope | None, ctes: _Ctes) -> _Query:
        left, right = (self.query(side, parent, ctes) for side in (node.left, node.right))
        if len(left.columns) != len(right.columns):
            raise NotTranslatable(node, "its sides have different numbers of columns")
        distinct = node.args.get("distinct")
        if distinct not in (True, False):
            raise NotTranslatable(node, "only Spark has one of its clauses")
        kinds = []
        for a, b in zip(left.columns, right.columns, strict=True):
            kind = ty.common_type((a.type, b.type)) or ty.OPAQUE
            apart = a.type != b.type and kind == ty.TIMESTAMP
            if (
                kind in (ty.OPAQUE, ty.NULL)
                or a.char
                or b.char
                or apart
                or (kind != ty.STRING and ty.STRING in (a.type, b.type))
            ):
                raise NotTranslatable(node, "it would combine columns of different types")
            kinds.append(kind)
        normal = distinct or not isinstance(node, exp.Union)
        sides = [self._side(node, side, kinds, normal) for side in (left, right)]
        word = _WORDS[type(node)] + ("" if distinct else " ALL")
        columns = tuple(Value(f'"c{i}"', k, c.name) for i, (c, k) in enumerate(zip(left.columns, kinds, strict=True)))
        made = _Query(f"({sides[0]}) {word} ({sides[1]})", columns)
        return replace(made, sql=self._outer(node, made, ctes))

    def _side(self, node: exp.Expr, side: _Query, kinds: Sequence[SparkType], normal: bool) -> str:
        """One side of a set operation in the types of the result."""
        alias = self.new("s")
        listed = []
        for i, ((_, value), kind) in enumerate(zip(side.columns_of(alias), kinds, strict=True)):
            made = Value(widen(node, value, kind), kind)
            listed.append(f'{group_key(made) if normal else made.sql} AS "c{i}"')
        return f"SELECT {', '.join(listed)} FROM ({side.sql}) AS {alias}"

    # --- FROM ---

    def _expressions(self, scope: Scope, ctes: _Ctes) -> Expressions:
        def subquery(node: exp.Expr, parent: Scope | None) -> tuple[str, Sequence[Value]]:
            made = self.query(node, parent, ctes)
            return made.sql, made.columns

        return Expressions(scope, subquery, self.timezone, self.word, self.pattern, self.today, lists=self.lists)

    def _source(self, node: exp.Expr, ctes: _Ctes) -> tuple[str, Source]:
        alias = self.new("s")
        while isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table | exp.Subquery) and _bare(node):
            inner = node.this.copy()
            inner.set("alias", node.args.get("alias") or inner.args.get("alias"))
            node = inner  # a table, or a query, in more brackets
        if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Query):
            more = {k for k, v in node.args.items() if v} - {"this", "alias"}
            if more:
                raise NotTranslatable(node, _unknown(more))
            made = _renamed(node, self.query(node.this, None, ctes))
            return f"({made.sql}) AS {alias}", Source(node.alias, made.columns_of(alias))
        if isinstance(node, exp.Values):
            made = _renamed(node, self._values(node, ctes))
            return f"({made.sql}) AS {alias}", Source(node.alias, made.columns_of(alias))
        if isinstance(node, exp.TableAlias):  # FROM t |> AS a
            node = exp.Table(this=node.this)
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            raise NotTranslatable(node, "it is not a table of the lake")
        if {k for k, v in node.args.items() if v} - {"this", "alias"}:
            raise NotTranslatable(node, "only Spark reads a table this way")
        known = ctes.get(node.name.lower())
        if known is not None:
            name, query = known
            return f"{name} AS {alias}", Source(node.alias or node.name, _renamed(node, query).columns_of(alias))
        if node.name not in self.tables:
            raise NotTranslatable(node.name, "it is not a table of the lake")
        columns = [stored_value(f"{alias}.{identifier(f.name)}", f.type, f.name) for f in self.tables[node.name]]
        made = _renamed(node, _Query("", tuple(columns)))
        named = tuple((c.name or "", c) for c in made.columns)
        return f"{identifier(node.name)} AS {alias}", Source(node.alias or node.name, named)

    def _values(self, node: exp.Values, ctes: _Ctes) -> _Query:
        """VALUES, whose columns are called col1, col2 … and have the types that set operations give them."""
        if {k for k, v in node.args.items() if v} - {"expressions", "alias"}:
            raise NotTranslatable(node, "only Spark has one of its clauses")
        e = self._expressions(Scope(), ctes)
        rows = [e.values(row.expressions if isinstance(row, exp.Tuple) else [row]) for row in node.expressions]
        if len({len(row) for row in rows}) != 1:
            raise NotTranslatable(node, "its rows have different numbers of columns")
        kinds = []
        for column in zip(*rows, strict=True):
            types = {v.type for v in column} - {ty.NULL}
            kind = ty.common_type(types) or ty.OPAQUE
            mixed = len(types) > 1 and kind in (ty.STRING, ty.TIMESTAMP)
            if kind in (ty.OPAQUE, ty.NULL) or mixed:
                raise NotTranslatable(node, "it would combine values of different types")
            kinds.append(kind)
        cells = [[widen(node, v, k) for v, k in zip(row, kinds, strict=True)] for row in rows]
        names = ", ".join(f'"c{i}"' for i in range(len(kinds)))
        listed = ", ".join(f"({', '.join(row)})" for row in cells)
        columns = tuple(Value(f'"c{i}"', k, f"col{i + 1}") for i, k in enumerate(kinds))
        return _Query(f"SELECT * FROM (VALUES {listed}) AS {self.new('s')}({names})", columns)

    def _from(self, node: exp.Select, scope: Scope, ctes: _Ctes) -> tuple[str, list[tuple[str, Value]]]:
        """FROM with its joins, and the columns that a star stands for."""
        clause = node.args.get("from_")
        if clause is None:
            return "", []
        sql, source = self._source(clause.this, ctes)
        scope.sources.append(source)
        stars = list(source.columns)
        comma = False
        for join in node.args.get("joins") or ():
            kind = " ".join(filter(None, (join.side.upper(), join.kind.upper())))
            using = [i.name for i in join.args.get("using") or ()]
            unknown = {k for k, v in join.args.items() if v} - {"this", "side", "kind", "on", "using", "method"}
            word = _JOINS.get(kind)
            natural = str(join.args.get("method") or "").upper()
            if comma and (using or natural):
                raise NotTranslatable(join, "after a comma, Spark takes the columns of the last table alone")
            comma = comma or (kind == "CROSS" and not join.args.get("on"))
            if word is None or unknown or natural not in ("", "NATURAL") or (comma and word[0] in "RF"):
                raise NotTranslatable(join, "joins of this kind differ")
            right_sql, right = self._source(join.this, ctes)
            if natural:
                ours = {c.lower() for c, _ in stars}
                using = [c for c, _ in right.columns if c.lower() in ours]
            sql, stars = self._join(join, word, sql, (right_sql, right), using, scope, stars, ctes)
        return f" FROM {sql}", stars

    def _join(
        self,
        join: exp.Join,
        word: str,
        left_sql: str,
        right: tuple[str, Source],
        using: Sequence[str],
        scope: Scope,
        stars: list[tuple[str, Value]],
        ctes: _Ctes,
    ) -> tuple[str, list[tuple[str, Value]]]:
        right_sql, source = right
        before = list(scope.sources)
        condition = join.args.get("on")
        if using:
            made, merged = _using(join, word, using, stars, before, source)
            on = f" ON {made}"
        scope.sources.append(source)
        if not using:
            on = "" if condition is None else f" ON {self._expressions(scope, ctes).condition(condition).sql}"
            merged = {}
        if not on and word not in ("JOIN", "CROSS JOIN"):
            raise NotTranslatable(join, "the join has no condition")
        semi = word in ("SEMI JOIN", "ANTI JOIN")
        if word == "CROSS JOIN" and on:
            word = "JOIN"
        sql = f"{left_sql} {word if on or semi else 'CROSS JOIN'} {right_sql}{on}"
        if semi:
            scope.sources[:] = before
            return sql, stars
        scope.merged.update({k.lower(): v for k, v in merged.items()})
        names = {u.lower() for u in using}
        first = [(n, merged[n]) for n in merged]
        return sql, [
            *first,
            *(s for s in stars if s[0].lower() not in names),
            *(c for c in source.columns if c[0].lower() not in names),
        ]

    # --- SELECT ---

    def _select(self, node: exp.Select, parent: Scope | None, ctes: _Ctes) -> _Query:
        _inline_windows(node)
        scope = Scope(parent=parent)
        from_sql, stars = self._from(node, scope, ctes)
        rows = self._expressions(scope, ctes)
        where = node.args.get("where")
        where_sql = "" if where is None else f" WHERE {replace(rows, selects=True).condition(where.this).sql}"
        items = [i for item in node.expressions for i in self._expanded(item, scope, stars)]
        group, having, order = (node.args.get(k) for k in ("group", "having", "order"))
        grouped = group is not None or having is not None or _has_aggregate([*node.expressions, order])
        keys, group_sql = self._group(node, rows, items) if grouped else (None, "")
        e = replace(rows, keys=keys, aggregates=grouped, windows=True)
        columns: list[Value] = []
        aliases: dict[str, Value | None] = {}
        for item in items:
            made = item if isinstance(item, Value) else self._item(replace(e, aliases=dict(aliases)), item)
            if isinstance(item, Value) and keys is not None:
                raise NotTranslatable(node, "a star is neither grouped nor in an aggregate")
            columns.append(made)
            if isinstance(item, exp.Alias):
                aliases[item.alias.lower()] = None if item.alias.lower() in aliases else made
        having_sql = ""
        if having is not None:
            checks = replace(e, aliases=aliases, clash="refuse", windows=False)
            having_sql = f" HAVING {checks.condition(having.this).sql}"
        if group is not None and group.find(exp.Rollup, exp.Cube, exp.GroupingSets):
            if not group.find(exp.Column):
                raise NotTranslatable(group, "Spark may return one group for an empty input")
            # Of no rows Spark makes no groups, not even the one of all.
            having_sql = f"{having_sql} AND count(*) > 0" if having_sql else " HAVING count(*) > 0"
        distinct = node.args.get("distinct")
        if distinct is not None and distinct.args.get("on"):
            raise NotTranslatable(node, "Spark has no DISTINCT ON")
        if distinct is not None and any(c.type in (ty.OPAQUE, ty.NULL) for c in columns):
            raise NotTranslatable(node, "values of this type are grouped differently")
        listed = [f'{group_key(c) if distinct is not None else c.sql} AS "c{i}"' for i, c in enumerate(columns)]
        outputs = [(c.name or "", c) for c in columns]
        ends = self._end(node, e, aliases, outputs, distinct is not None)
        word = "SELECT DISTINCT" if distinct is not None else "SELECT"
        if not listed:
            raise NotTranslatable(node, "it has no columns")
        sql = f"{word} {', '.join(listed)}{from_sql}{where_sql}{group_sql}{having_sql}{ends}"
        return _Query(sql, tuple(columns))

    def _expanded(self, item: exp.Expr, scope: Scope, stars: Sequence[tuple[str, Value]]) -> list[exp.Expr | Value]:
        """An item of the SELECT list, or the columns that a star stands for."""
        if isinstance(item, exp.Star) and not any(item.args.values()):
            return [v.named(n) for n, v in stars]
        if isinstance(item, exp.Column) and isinstance(item.this, exp.Star) and not any(item.this.args.values()):
            sources = [s for s in scope.sources if s.alias.lower() == item.table.lower()]
            if len(sources) != 1:
                raise NotTranslatable(item, "the table is not known")
            return [v.named(n) for n, v in sources[0].columns]
        return [item]

    def _item(self, e: Expressions, item: exp.Expr) -> Value:
        value = e.value(item.unalias())
        if isinstance(item, exp.Cast) and isinstance(item.this.unnest(), exp.Column):
            return value.named(item.this.unnest().name)  # Spark keeps the name of a column that is cast
        if isinstance(item, exp.Column):
            return value.named(item.name)  # and calls the field of a struct by its own name
        return value.named(item.alias) if isinstance(item, exp.Alias) else value

    def _group(
        self, node: exp.Select, rows: Expressions, items: Sequence[exp.Expr | Value]
    ) -> tuple[dict[str, Value], str]:
        """Translate the grouping keys and GROUP BY."""
        group = node.args.get("group")
        if group is None:
            return {}, ""
        if {k for k, v in group.args.items() if v} - {"expressions", "rollup", "cube"}:
            raise NotTranslatable(group, "GROUP BY ALL chooses other columns")
        keys: dict[str, Value] = {}

        def key(item: exp.Expr) -> str:
            made = self._key(rows, item.unnest(), items)
            if made.type in (ty.OPAQUE, ty.NULL):
                raise NotTranslatable(node, "values of this type are grouped differently")
            sql = group_key(made)
            keys[made.sql] = replace(made, sql=sql)
            keys[sql] = keys[made.sql]
            return sql

        def part(item: exp.Expr, inner: bool = True) -> str:
            if isinstance(item, exp.Tuple) and inner:
                return f"({', '.join(map(key, item.expressions))})"
            if isinstance(item, exp.Rollup | exp.Cube | exp.GroupingSets):
                word = {exp.Rollup: "ROLLUP", exp.Cube: "CUBE", exp.GroupingSets: "GROUPING SETS"}[type(item)]
                return f"{word} ({', '.join(map(part, item.expressions))})"
            return key(item)

        listed = [part(i, False) for i in group.expressions]
        for word in ("rollup", "cube"):
            if group.args.get(word):
                if any(e.expressions for e in group.args[word]):
                    raise NotTranslatable(group, "groups of this kind differ")
                listed = [f"{word.upper()} ({', '.join(listed)})"]
        return keys, f" GROUP BY {', '.join(listed)}"

    def _key(self, rows: Expressions, item: exp.Expr, items: Sequence[exp.Expr | Value]) -> Value:
        """Resolve an item of GROUP BY: a place in the SELECT list, a column, or an alias of the list."""
        if isinstance(item, exp.Literal) and item.is_int:
            place = int(item.name) - 1
            if not 0 <= place < len(items):
                raise NotTranslatable(item, "the SELECT list has fewer columns")
            chosen = items[place]
            return chosen if isinstance(chosen, Value) else rows.value(chosen.unalias())
        if isinstance(item, exp.Column) and not item.table and rows.scope.find(item) is None:
            named = [i for i in items if isinstance(i, exp.Alias) and i.alias.lower() == item.name.lower()]
            if len(named) == 1:
                return rows.value(named[0].this)
        return rows.value(item)

    def _end(
        self,
        node: exp.Expr,
        e: Expressions,
        aliases: Mapping[str, Value | None],
        outputs: Sequence[tuple[str, Value]],
        distinct: bool = False,
    ) -> str:
        """ORDER BY, LIMIT and OFFSET."""
        out = ""
        order = node.args.get("order")
        if order is not None:
            if {k for k, v in order.args.items() if v} - {"expressions"}:
                raise NotTranslatable(order, "Spark has no such ORDER BY")
            sorts = replace(e, aliases=aliases, clash="alias")
            out = f" ORDER BY {', '.join(self._order(sorts, o, outputs, distinct) for o in order.expressions)}"
        for word in ("limit", "offset"):
            clause = node.args.get(word)
            if clause is None:
                continue
            count = clause.expression
            if not isinstance(count, exp.Literal) or not count.is_int or clause.expressions:
                raise NotTranslatable(clause, "it is not a number that is written out")
            out += f" {word.upper()} {count.name}"
        return out

    def _order(self, e: Expressions, item: exp.Ordered, outputs: Sequence[tuple[str, Value]], distinct: bool) -> str:
        node = item.this
        place = None
        if isinstance(node, exp.Literal) and node.is_int:
            place = int(node.name) - 1
            if not 0 <= place < len(outputs):
                raise NotTranslatable(item, "the SELECT list has fewer columns")
        elif isinstance(node, exp.Column) and not node.table:
            named = [i for i, (name, _) in enumerate(outputs) if name.lower() == node.name.lower()]
            if len({outputs[i][1].sql for i in named}) > 1:
                raise NotTranslatable(node, "there are several columns of this name")
            place = named[0] if named else None
        if place is None and distinct:
            made = e.value(node).sql
            places = [i for i, (_, value) in enumerate(outputs) if value.sql == made]
            if not places:
                raise NotTranslatable(item, "Spark sorts distinct rows by their own columns alone")
            place = places[0]
        if place is None:
            if isinstance(node, exp.Literal | exp.Var):
                raise NotTranslatable(item, "it sorts by no column")
            return ordered(e, item)[0]
        value = outputs[place][1]
        if value.type in (ty.OPAQUE, ty.NULL):
            raise NotTranslatable(item, "values of this type are sorted differently")
        if value.type.is_floating and not distinct:
            return f"{group_key(value)} {direction(item)}"
        return f"{place + 1} {direction(item)}"


def _bare(node: exp.Subquery) -> bool:
    """Whether brackets hold one source, whose own alias is hidden by that of the brackets."""
    inner = node.this.args.get("alias")
    renames = inner is not None and bool(inner.args.get("columns"))
    return not ({k for k, v in node.args.items() if v} - {"this", "alias"} or (node.args.get("alias") and renames))


def _unknown(clauses: set[str]) -> str:
    return f"only Spark has one of its clauses ({', '.join(sorted(clauses)) or 'VALUES'})"


def _has_aggregate(nodes: Sequence[exp.Expr | None]) -> bool:
    """Whether an aggregate stands in expressions of a query itself, not of a subquery in them."""
    for node in nodes:
        if node is None:
            continue
        for found in node.walk(prune=lambda n: isinstance(n, exp.Query)):
            if not isinstance(found, exp.Query) and is_aggregate(found):
                return True
    return False


def _inline_windows(node: exp.Select) -> None:
    """Refuse named windows, whose frames may be extended."""
    if node.args.get("windows"):
        raise NotTranslatable(node, "named windows are not supported")


def _renamed(node: exp.Expr, query: _Query) -> _Query:
    """A source with the column names of its alias, as in ``AS t(a, b)``."""
    alias = node.args.get("alias")
    names = [c.name for c in alias.args.get("columns") or ()] if isinstance(alias, exp.TableAlias) else []
    if not names:
        return query
    if len(names) != len(query.columns):
        raise NotTranslatable(node, "it names another number of columns")
    return replace(query, columns=tuple(c.named(n) for c, n in zip(query.columns, names, strict=True)))


def _using(
    join: exp.Join,
    word: str,
    names: Sequence[str],
    stars: Sequence[tuple[str, Value]],
    sources: Sequence[Source],
    right: Source,
) -> tuple[str, dict[str, Value]]:
    """The condition of a join by columns of the same name, and these columns as the join gives them."""
    conditions, merged = [], {}
    for name in names:
        left = [(n, v) for n, v in stars if n.lower() == name.lower()]
        other = [(n, v) for n, v in right.columns if n.lower() == name.lower()]
        if not left and not other:
            raise Scope([*sources, right]).unknown(exp.column(name))
        if len(left) != 1 or len(other) != 1:
            raise NotTranslatable(join, "a column of USING is not in both, or there several times")
        if left[0][1].char != other[0][1].char:
            raise NotTranslatable(join, "texts of type CHAR are compared differently")
        (a, b), kind = alike(join, [left[0][1], other[0][1]], compares=False)
        conditions.append(f"{a} = {b}")
        value = Value(f"coalesce({a}, {b})", kind)
        if word != "FULL JOIN":
            value = other[0][1] if word == "RIGHT JOIN" else left[0][1]
        merged[left[0][0] if word != "RIGHT JOIN" else other[0][0]] = value
    return " AND ".join(conditions), merged
