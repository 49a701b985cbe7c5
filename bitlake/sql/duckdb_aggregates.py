"""Aggregates and windows of Spark SQL → DuckDB's, each with the type that Spark's result has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from bitlake.sql import spark_types as ty
from bitlake.sql.duckdb_expressions import Expressions, named, translates
from bitlake.sql.duckdb_values import NotTranslatable, Value, cast, cast_sql, divided
from bitlake.sql.spark_types import SparkType

AGGREGATES = (exp.Count, exp.CountIf, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.LogicalOr, exp.LogicalAnd)
STATISTICS: dict[type[exp.Expr], str] = {
    exp.Stddev: "stddev_samp",
    exp.StddevSamp: "stddev_samp",
    exp.StddevPop: "stddev_pop",
}
STATISTICS |= {exp.Variance: "var_samp", exp.VariancePop: "var_pop"}
_RANKS = {exp.RowNumber: "row_number", exp.Rank: "rank", exp.DenseRank: "dense_rank"}
_SHARES = {exp.PercentRank: "percent_rank", exp.CumeDist: "cume_dist"}
_NEIGHBOURS = {exp.Lag: "lag", exp.Lead: "lead"}
_ENDS = {exp.FirstValue: "first_value", exp.LastValue: "last_value"}
_SUM_DIGITS, _AVG_DIGITS = 10, 4


def is_aggregate(node: exp.Expr) -> bool:
    """Whether a node makes one value of many rows, and is not a window."""
    if not isinstance(node, (*AGGREGATES, *STATISTICS, exp.Filter, exp.Grouping)):
        return False
    parent = node.parent.parent if isinstance(node.parent, exp.Filter) else node.parent
    return not isinstance(parent, exp.Window) or (node.arg_key != "this" and not isinstance(node.parent, exp.Filter))


def group_key(value: Value) -> str:
    """The SQL by which values are grouped: 0.0 and -0.0 are one group, shown as 0.0."""
    return f"({value.sql} + CAST(0 AS {value.type.duckdb}))" if value.type.is_floating else value.sql


@translates(*AGGREGATES, *STATISTICS, args="this expressions")
def _aggregate(e: Expressions, node: exp.Expr) -> Value:
    if not e.aggregates:
        raise NotTranslatable(node, "an aggregate cannot stand here")
    return _called(e.rows, node)


@translates(exp.Filter)
def _filtered(e: Expressions, node: exp.Filter) -> Value:
    if not e.aggregates or not isinstance(node.this, (*AGGREGATES, *STATISTICS)):
        raise NotTranslatable(node, "an aggregate cannot stand here")
    condition = e.rows.condition(node.expression.this)
    made = _called(e.rows, node.this, f" FILTER (WHERE {condition.sql})")
    return made.named(named("{} FILTER (WHERE {})", made, condition))


@translates(exp.Grouping, args="expressions")
def _grouping(e: Expressions, node: exp.Grouping) -> Value:
    if not e.aggregates or e.keys is None or len(node.expressions) != 1:
        raise NotTranslatable(node, "it needs one column of GROUP BY")
    key = e.value(node.expressions[0])
    if key.sql not in e.keys:
        raise NotTranslatable(node, "it needs one column of GROUP BY")
    return Value(cast_sql(f"grouping({key.sql})", ty.TINYINT), ty.TINYINT, named("grouping({})", key))


def _called(e: Expressions, node: Any, after: str = "") -> Value:
    """A call of an aggregate with what comes after: FILTER, or OVER."""
    distinct = isinstance(node.this, exp.Distinct)
    nodes = node.this.expressions if distinct else [node.this, *node.expressions]
    word = e.word(node) or type(node).__name__
    if isinstance(node, exp.Count) and isinstance(nodes[0], exp.Star):
        return Value(f"count(*){after}", ty.BIGINT, f"{word.lower()}(1)")
    values = e.values(nodes)
    listed = named(", ".join("{}" for _ in values), *values)
    name = None if listed is None else f"{word.lower()}({'DISTINCT ' if distinct else ''}{listed})"
    if distinct and " OVER " in after:
        raise NotTranslatable(node, "Spark has no DISTINCT in windows")
    if isinstance(node, exp.Count):
        return Value(f"count({_counted(node, values, distinct)}){after}", ty.BIGINT, name)
    if len(values) != 1:
        raise NotTranslatable(node, "it takes one argument")
    return _of_one(e, node, values[0], "DISTINCT " if distinct else "", after).named(name)


def _counted(node: exp.Expr, values: Sequence[Value], distinct: bool) -> str:
    if distinct and any(v.type == ty.OPAQUE for v in values):
        raise NotTranslatable(node, "values of this type are grouped differently")
    if len(values) == 1:
        return f"DISTINCT {group_key(values[0])}" if distinct else values[0].sql
    present = " AND ".join(f"{v.sql} IS NOT NULL" for v in values)
    row = f"row({', '.join(map(group_key, values))})" if distinct else "1"
    return f"{'DISTINCT ' if distinct else ''}CASE WHEN {present} THEN {row} END"


def _of_one(e: Expressions, node: exp.Expr, value: Value, distinct: str, after: str) -> Value:
    kind = value.type
    if isinstance(node, exp.CountIf):
        e.require(node, value, "BOOLEAN")
        return Value(f"count(CASE WHEN {value.sql} THEN 1 END){after}", ty.BIGINT)
    if isinstance(node, exp.LogicalOr | exp.LogicalAnd):
        e.require(node, value, "BOOLEAN")
        return Value(f"bool_{'or' if isinstance(node, exp.LogicalOr) else 'and'}({value.sql}){after}", ty.BOOLEAN)
    if isinstance(node, exp.Min | exp.Max):
        if kind in (ty.OPAQUE, ty.NULL):
            raise NotTranslatable(node, f"it differs for values of type {kind.sql}")
        return Value(f"{'min' if isinstance(node, exp.Min) else 'max'}({value.sql}){after}", kind)
    if not kind.is_number:
        raise NotTranslatable(node, f"it differs for values of type {kind.sql}")
    if isinstance(node, exp.Sum):
        to = ty.decimal(kind.precision + _SUM_DIGITS, kind.scale) if kind.kind == "DECIMAL" else ty.DOUBLE
        to = ty.BIGINT if kind.is_integer else to
        argument = cast(node, value, ty.DOUBLE) if kind == ty.FLOAT else value.sql
        return Value(cast_sql(f"sum({distinct}{argument}){after}", to), to)
    if isinstance(node, exp.Avg) and kind.kind == "DECIMAL":
        return Value(_average(value, distinct, after), _average_type(kind))
    function = "avg" if isinstance(node, exp.Avg) else STATISTICS[type(node)]
    return Value(f"{function}({distinct}{cast(node, value, ty.DOUBLE)}){after}", ty.DOUBLE)


def _average_type(kind: SparkType) -> SparkType:
    return ty.decimal(kind.precision + _AVG_DIGITS, kind.scale + _AVG_DIGITS)


def _average(value: Value, distinct: str, after: str) -> str:
    total = ty.SparkType("DECIMAL", ty.MAX_PRECISION, value.type.scale)
    count = f"nullif(count({distinct}{value.sql}){after}, 0)"
    to = _average_type(value.type)
    return divided(f"(sum({distinct}{value.sql}){after})", total, count, ty.decimal(20, 0), to)


# --- windows ----------------------------------------------------------------------------------------------------------


@translates(exp.Window, args="this partition_by order spec over")
def _window(e: Expressions, node: exp.Window) -> Value:
    if not e.windows:
        raise NotTranslatable(node, "a window cannot stand here")
    inner = replace(e, windows=False)
    function, condition = node.this, ""
    if isinstance(function, exp.Filter):
        condition = f" FILTER (WHERE {inner.condition(function.expression.this).sql})"
        function = function.this
    order = node.args.get("order")
    keys = [] if order is None else [ordered(inner, o) for o in order.expressions]
    parts = inner.values(node.args.get("partition_by") or [])
    if any(p.type in (ty.OPAQUE, ty.NULL) for p in parts):
        raise NotTranslatable(node, "values of this type are grouped differently")
    by = f"PARTITION BY {', '.join(map(group_key, parts))}" if parts else ""
    sort = f"ORDER BY {', '.join(sql for sql, _ in keys)}" if keys else ""
    frame = _frame(node)
    over = f"{condition} OVER ({' '.join(filter(None, (by, sort, frame)))})"
    plain = isinstance(function, (*AGGREGATES, *STATISTICS))
    made = _called(inner, function, over) if plain else _ranking(inner, node, function, over, frame, bool(keys))
    names = [f"PARTITION BY {', '.join(p.name or '' for p in parts)}"] if parts else []
    names += [f"ORDER BY {', '.join(name or '' for _, name in keys)}"] if keys else []
    names.append(frame or _default_frame(function, bool(keys)))
    unknown = condition or made.name is None or None in [*(p.name for p in parts), *(name for _, name in keys)]
    return made.named(None if unknown else f"{made.name} OVER ({' '.join(names)})")


def _default_frame(function: exp.Expr, sorts: bool) -> str:
    if isinstance(function, exp.Lag | exp.Lead):
        offset = function.args.get("offset")
        rows = offset.name if offset is not None else "1"
        place = f"-{rows} FOLLOWING" if isinstance(function, exp.Lag) else f"{rows} FOLLOWING"
        return f"ROWS BETWEEN {place} AND {place}"
    if not sorts:
        return "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
    ranks = isinstance(function, (*_RANKS, exp.PercentRank, exp.Ntile))
    return f"{'ROWS' if ranks else 'RANGE'} BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"


def _frame(node: exp.Window) -> str:
    spec = node.args.get("spec")
    if spec is None:
        return ""
    kind = str(spec.args.get("kind") or "").upper()
    start, end = (_bound(spec, side) for side in ("start", "end"))
    known = {"UNBOUNDED PRECEDING", "UNBOUNDED FOLLOWING", "CURRENT ROW"}
    if kind not in ("ROWS", "RANGE") or spec.args.get("exclude") or (kind == "RANGE" and not {start, end} <= known):
        raise NotTranslatable(node, "frames of this kind may differ")
    return f"{kind} BETWEEN {start} AND {end}"


def _bound(spec: exp.Expr, side: str) -> str:
    value = spec.args.get(side)
    if value is None and side == "end":
        return "CURRENT ROW"
    if value in ("CURRENT ROW", "UNBOUNDED"):
        return "CURRENT ROW" if value == "CURRENT ROW" else f"UNBOUNDED {str(spec.args[f'{side}_side']).upper()}"
    if not isinstance(value, exp.Literal) or not value.name.isdigit():
        raise NotTranslatable(spec, "frames of this kind may differ")
    return f"{value.name} {str(spec.args[f'{side}_side']).upper()}"


def _ranking(e: Expressions, node: exp.Window, function: Any, over: str, frame: str, sorts: bool) -> Value:
    """Functions that windows alone have."""
    kind = type(function)
    if kind in _ENDS:
        if function.expressions or {k for k, v in function.args.items() if v} - {"this"}:
            raise NotTranslatable(node, "it takes one argument")
        value = e.value(function.this)
        return Value(f"{_ENDS[kind]}({value.sql}){over}", value.type, named(f"{_ENDS[kind]}({{}})", value))
    if frame or not sorts or "FILTER" in over:
        raise NotTranslatable(node, "it needs ORDER BY, and no frame")
    if kind in _RANKS or kind in _SHARES:
        word = _RANKS.get(kind) or _SHARES[kind]
        to = ty.DOUBLE if kind in _SHARES else ty.INT
        return Value(cast_sql(f"{word}(){over}", to), to, f"{word.upper() if 'rank' in word else word}()")
    if kind is exp.Ntile and isinstance(function.this, exp.Literal) and function.this.is_int:
        count = function.this.name
        return Value(cast_sql(f"ntile({count}){over}", ty.INT), ty.INT, f"ntile({count})")
    if kind not in _NEIGHBOURS:
        raise NotTranslatable(function, "it is not among the expressions that mean the same in both")
    return _neighbour(e, function, over)


def _neighbour(e: Expressions, function: exp.Lag | exp.Lead, over: str) -> Value:
    value = e.value(function.this)
    offset, default = function.args.get("offset"), function.args.get("default")
    rows = "1" if offset is None else offset.name
    if not (rows.isdigit() and (offset is None or isinstance(offset, exp.Literal))) or value.type == ty.NULL:
        raise NotTranslatable(function, "only a whole number of rows is known to mean the same")
    other, last = "", "NULL"
    if default is not None:
        made = e.value(default)
        if made.type not in (value.type, ty.NULL):
            raise NotTranslatable(function, "its branches have different types")
        other, last = f", {cast(function, made, value.type)}", made.name or ""
    word = _NEIGHBOURS[type(function)]
    return Value(f"{word}({value.sql}, {rows}{other}){over}", value.type, named(f"{word}({{}}, {rows}, {last})", value))


def ordered(e: Expressions, node: exp.Ordered) -> tuple[str, str | None]:
    """An item of ORDER BY with where NULL comes, and its name."""
    value = e.value(node.this)
    if value.type in (ty.OPAQUE, ty.NULL):
        raise NotTranslatable(node, "values of this type are sorted differently")
    words = direction(node)
    return f"{group_key(value)} {words}", None if value.name is None else f"{value.name} {words}"


def direction(node: exp.Ordered) -> str:
    """The direction of an item of ORDER BY."""
    if node.args.get("with_fill"):
        raise NotTranslatable(node, "Spark has no WITH FILL")
    return f"{'DESC' if node.args.get('desc') else 'ASC'} NULLS {'FIRST' if node.args.get('nulls_first') else 'LAST'}"
