"""Queries of Spark SQL → DuckDB's SQL, where both give the same rows.

sqlglot resolves and types the query, and writes it in DuckDB's dialect.  Many things that both engines understand mean
different things: the type of ``sum``, division by zero, a string compared with a number, ``LIKE`` with a backslash,
timestamps without a zone.  So a query is translated only if every node of its tree is one that is known to mean the
same, on operands of types for which it does: :data:`_SUPPORTED_NODES` and the checks below it.  Everything else raises
:class:`NotTranslatable`, with the part and the reason.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.qualify import qualify

from bitlake.errors import UnsupportedFeature
from bitlake.expressions import literals
from bitlake.expressions.folding import NotConstant, constant
from bitlake.expressions.spark_dialect import SparkSql
from bitlake.sql.text import SqlText
from bitlake.types.datatypes import AtomicType, DataField, Root

_TYPES = {
    Root.BOOLEAN: "BOOLEAN",
    Root.TINYINT: "TINYINT",
    Root.SMALLINT: "SMALLINT",
    Root.INT: "INT",
    Root.BIGINT: "BIGINT",
    Root.FLOAT: "FLOAT",
    Root.DOUBLE: "DOUBLE",
    Root.VARCHAR: "STRING",
    Root.BINARY: "BINARY",
    Root.VARBINARY: "BINARY",
    Root.DATE: "DATE",
}
"""Column types whose values both engines compare alike.  Others can be shown, not used: the family of OPAQUE."""
_OPAQUE = "UNKNOWN"
_TIMESTAMPS = {Root.TIMESTAMP: "TIMESTAMP_NTZ", Root.TIMESTAMP_LTZ: "TIMESTAMP_LTZ"}
_FAMILIES = {
    **dict.fromkeys(("INT", "BIGINT"), "integer"),
    **dict.fromkeys(("TINYINT", "SMALLINT"), "small integer"),
    "DECIMAL": "decimal",
    "DOUBLE": "double",
    "FLOAT": "float",
    **dict.fromkeys(("TEXT", "VARCHAR"), "string"),
    "DATE": "date",
    "BOOLEAN": "boolean",
    "BINARY": "binary",
    "TIMESTAMPNTZ": "timestamp_ntz",
    **dict.fromkeys(("TIMESTAMPTZ", "TIMESTAMPLTZ"), "timestamp"),
    "NULL": "null",
}
_TIMES = frozenset(("date", "timestamp", "timestamp_ntz"))
_NUMBERS = frozenset(("integer", "small integer", "decimal", "double"))
_MOST_DIGITS = 38
_SUPPORTED_NODES: tuple[type[exp.Expr], ...] = (
    *(exp.Select, exp.From, exp.Join, exp.Where, exp.Group, exp.Having, exp.Order, exp.Ordered, exp.Limit, exp.Offset),
    *(exp.Distinct, exp.Subquery, exp.With, exp.CTE, exp.TableAlias, exp.Alias, exp.Table, exp.Identifier, exp.Column),
    *(exp.Star, exp.Paren, exp.Tuple, exp.Union, exp.Intersect, exp.Except, exp.Rollup, exp.Cube, exp.GroupingSets),
    *(exp.Exists, exp.In, exp.Between, exp.And, exp.Or, exp.Not, exp.Is, exp.Null, exp.Boolean, exp.Literal),
    *(exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Like, exp.Case, exp.If),
    *(exp.Coalesce, exp.Nullif, exp.Greatest, exp.Least, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.Neg),
    *(exp.Count, exp.Sum, exp.Min, exp.Max, exp.Avg, exp.Filter, exp.Window, exp.RowNumber, exp.Rank, exp.DenseRank),
    *(exp.Length, exp.DPipe, exp.Substring, exp.Abs, exp.Year, exp.Month, exp.Day),
    *(exp.TsOrDsToDate, exp.Cast, exp.TryCast, exp.DataType, exp.DataTypeParam),
)
"""Nodes that mean the same in both, on operands that pass their check in _CHECKS."""
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ)
_JOINS = frozenset(("", "INNER", "CROSS", "LEFT", "RIGHT", "FULL", "SEMI", "ANTI", "OUTER"))


_GROUPS = (exp.Literal, exp.Rollup, exp.Cube, exp.GroupingSets, exp.Tuple, exp.Paren)
"""Parts of GROUP BY whose columns are checked one by one."""
_AS_INT = (exp.Length, exp.Year, exp.Month, exp.Day, exp.RowNumber, exp.Rank, exp.DenseRank)


class NotTranslatable(UnsupportedFeature):
    """Part of a query has no DuckDB equivalent with the same result."""

    def __init__(self, node: exp.Expr | str, why: str) -> None:
        part = node if isinstance(node, str) else node.sql(dialect=SparkSql)
        super().__init__(f"DuckDB cannot run '{part}' as Spark does: {why}; use engine='spark'")


def translate(text: SqlText, tables: Mapping[str, Sequence[DataField]], timezone: str = "UTC") -> tuple[str, list[str]]:
    """A query in DuckDB's SQL, and the names of its columns as Spark has them.

    ``tables``: the columns of each table that the text names.  Raises :class:`NotTranslatable`.
    """
    if not isinstance(text.tree, exp.Query):
        raise NotTranslatable(text, "it is not a query that can be parsed")
    _check_statement(text.tree, tables)
    tree = text.tree.transform(lambda node: _folded(node, timezone))
    assert isinstance(tree, exp.Query)
    _check_nodes(tree)
    _check_aliases(tree, {f.name.lower() for fields in tables.values() for f in fields})
    schema: dict[str, object] = {name: {f.name: _type_name(f) for f in fields} for name, fields in tables.items()}
    names = _output_names(tree)
    try:
        typed = qualify(tree.copy(), schema=schema, dialect=SparkSql, quote_identifiers=True)
        typed = annotate_types(typed, schema=schema, dialect=SparkSql)
    except (SqlglotError, RecursionError, KeyError, ValueError) as e:
        raise NotTranslatable(text, f"its columns cannot be resolved ({e})") from e
    assert isinstance(typed, exp.Query)
    for node in list(typed.walk()):
        check = _CHECKS.get(type(node))
        if check is not None:
            check(node)
    _check_outputs(typed)
    spelled = {f.name.lower(): f.name for fields in tables.values() for f in fields}
    given = [s.alias_or_name for s in typed.selects]
    named = [names.get(i) or spelled.get(n.lower(), n) for i, n in enumerate(given)]
    return _with_types(typed).sql(dialect="duckdb"), named


def _type_name(field: DataField) -> str:
    kind = field.type
    if isinstance(kind, AtomicType) and kind.root is Root.DECIMAL:
        return f"DECIMAL({kind.precision}, {kind.scale or 0})"
    if isinstance(kind, AtomicType) and kind.root in _TIMESTAMPS and (kind.precision or 6) <= 6:
        return _TIMESTAMPS[kind.root]  # Spark's timestamps have microseconds
    return _TYPES.get(kind.root, _OPAQUE) if isinstance(kind, AtomicType) else _OPAQUE


def _check_statement(tree: exp.Query, tables: Mapping[str, Any]) -> None:
    """Refuse tables that are not the lake's, and clauses that only one of the engines has."""
    ctes = {c.alias.lower() for c in tree.find_all(exp.CTE)}
    for table in tree.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier) or (table.name not in tables and table.name.lower() not in ctes):
            raise NotTranslatable(table, "it is not a table of the lake")
        if {k for k, v in table.args.items() if v} - {"this", "alias", "db", "joins"}:
            raise NotTranslatable(table, "only Spark reads a table this way")
    if any(w.recursive for w in tree.find_all(exp.With)):
        raise NotTranslatable("WITH RECURSIVE", "limits on its depth differ")


def _folded(node: exp.Expr, timezone: str) -> exp.Expr:
    """A constant date or timestamp, computed with intervals and functions, as a literal."""
    if isinstance(node, exp.Add | exp.Sub | exp.TsOrDsAdd | exp.AddMonths | exp.Cast | exp.TsOrDsToDate):
        try:
            value = constant(node, timezone)
        except (NotConstant, RecursionError):
            return node
        if isinstance(value, dt.datetime):
            return _timestamp(value)
        if isinstance(value, dt.date):
            return exp.cast(exp.Literal.string(value.isoformat()), "DATE")
    return node


def _timestamp(value: dt.datetime) -> exp.Cast:
    """The literal of an instant, or of a wall clock."""
    if value.tzinfo is None:
        return exp.cast(exp.Literal.string(value.isoformat(" ")), "TIMESTAMPNTZ")
    return exp.cast(exp.Literal.string(value.astimezone(dt.UTC).isoformat(" ")), "TIMESTAMPTZ")


def _check_nodes(tree: exp.Expr) -> None:
    for node in tree.walk():
        if type(node) not in _SUPPORTED_NODES:
            raise NotTranslatable(node, "it is not among the expressions that mean the same in both")
        if isinstance(node, exp.Select) and (
            node.args.get("kind") or node.args.get("hint") or node.args.get("laterals") or node.args.get("pivots")
        ):
            raise NotTranslatable(node, "only Spark has one of its clauses")
        if isinstance(node, exp.Join) and (
            {node.side.upper(), node.kind.upper()} - _JOINS or node.args.get("method") or node.args.get("using")
        ):
            raise NotTranslatable(node, "joins of this kind differ in their columns")


def _check_aliases(tree: exp.Query, columns: set[str]) -> None:
    """Refuse names that one engine takes for an alias of the SELECT list, and the other for a column."""
    for select in tree.find_all(exp.Select):
        aliases = {
            s.alias.lower()
            for s in select.selects
            if isinstance(s, exp.Alias)
            and not (isinstance(s.this, exp.Column) and s.this.name.lower() == s.alias.lower())
        }
        for column in select.find_all(exp.Column):
            name = column.name.lower()
            if column.table or name not in aliases or column.find_ancestor(exp.Select) is not select:
                continue
            alias = column.find_ancestor(exp.Alias)
            ordered = column.parent if isinstance(column.parent, exp.Ordered) else None
            in_output = ordered is not None and ordered.find_ancestor(exp.Window) is None
            own = alias is not None and alias.alias.lower() == name
            if in_output or own or (name not in columns and column.find_ancestor(exp.Group, exp.Having) is not None):
                continue
            raise NotTranslatable(column, "it may be the alias or a column")
    for union in tree.find_all(exp.SetOperation):
        order = union.args.get("order")
        for ordered in order.expressions if order is not None else ():
            if not isinstance(ordered.this, exp.Column | exp.Literal):
                raise NotTranslatable(ordered, "set operations are sorted by columns")


def _output_names(tree: exp.Query) -> dict[int, str]:
    """The names that Spark gives to the columns of a query, by position; none after a star."""
    names: dict[int, str] = {}
    for i, select in enumerate(tree.selects):
        if select.is_star or (isinstance(select, exp.Column) and isinstance(select.this, exp.Star)):
            return {}
        named = isinstance(select, exp.Alias | exp.Column)
        names[i] = select.alias_or_name if named else _spark_name(select)
    return names


def _spark_name(node: exp.Expr) -> str:
    if isinstance(node, exp.Count) and isinstance(node.this, exp.Star):
        return "count(1)"
    text = node.sql(dialect=SparkSql, normalize_functions="lower")
    return f"({text})" if isinstance(node, exp.Binary) else text


# --- what operands a node may have ------------------------------------------------------------------------------------


def _family(node: exp.Expr) -> str:
    """What kind of values a typed node has, of which all members compare alike in both engines."""
    node = node.unnest()
    if isinstance(node, exp.Query) and node.selects:
        return _family(node.selects[0])
    if isinstance(node, exp.Alias):
        return _family(node.this)
    if isinstance(node, exp.Literal) and not node.is_string and "." in node.this and "e" not in node.this.lower():
        return "decimal"  # a DOUBLE to sqlglot
    kind = node.type
    name = kind.this.name if kind is not None and isinstance(kind.this, exp.DataType.Type) else _OPAQUE
    return _FAMILIES.get(name, "opaque")


def _same_family(node: exp.Expr, operands: Sequence[exp.Expr]) -> None:
    """Operands that both engines compare in one type, after writing texts that stand for dates as dates."""
    families = {_family(o) for o in operands} - {"null"}
    if len(families) == 2 and "string" in families and families & _TIMES:
        (kind,) = families - {"string"}
        for operand in operands:
            if _family(operand) == "string":
                _as_time(operand, kind)
        return
    if len(families) > 1 and not families <= _NUMBERS:
        raise NotTranslatable(node, f"{' and '.join(sorted(families))} are compared in different types")
    if families & {"opaque", "float"}:
        raise NotTranslatable(node, "values of this type are compared differently")
    if "decimal" in families and "double" not in families:
        digits = [_decimal_digits(o) for o in operands if _family(o) != "null"]
        if None in digits or max(d[0] for d in digits if d) + max(d[1] for d in digits if d) > _MOST_DIGITS:
            raise NotTranslatable(node, f"their common type needs more than {_MOST_DIGITS} digits, or is not known")


def _decimal_digits(node: exp.Expr) -> tuple[int, int] | None:
    """The digits before and after the point that a number of a known type may have."""
    node = node.unnest()
    node = node.this.unnest() if isinstance(node, exp.Neg) else node
    if isinstance(node, exp.Literal) and not node.is_string:
        whole, _, fraction = node.this.partition(".")
        return (len(whole), len(fraction)) if whole.isdigit() or not whole else None
    if _family(node) in ("integer", "small integer"):
        return 19, 0
    if isinstance(node, exp.Column) and node.type is not None and len(node.type.expressions) == 2:
        precision, scale = (int(p.name) for p in node.type.expressions)
        return precision - scale, scale
    return None


def _as_time(operand: exp.Expr, kind: str) -> None:
    """Write a text that is compared with dates or wall clocks as one of these."""
    made: exp.Cast | None = None
    if isinstance(operand, exp.Literal) and kind == "date":
        date = literals.parse_date(operand.this)
        made = None if date is None else exp.cast(exp.Literal.string(date.isoformat()), "DATE")
    elif isinstance(operand, exp.Literal) and kind == "timestamp_ntz":
        stamp = literals.parse_timestamp(operand.this)
        made = None if stamp is None or stamp.tzinfo is not None else _timestamp(stamp)
    if made is None:
        raise NotTranslatable(operand, f"only a literal is compared with values of type {kind}")
    annotate_types(made, dialect=SparkSql)
    operand.replace(made)


def _check_comparison(node: Any) -> None:
    _same_family(node, [node.this, node.expression])


def _check_in(node: exp.In) -> None:
    query = node.args.get("query")
    others = [query] if query is not None else node.expressions
    if node.args.get("unnest") or node.args.get("field") or isinstance(node.this, exp.Tuple):
        raise NotTranslatable(node, "IN of tuples and arrays differs")
    _same_family(node, [node.this, *others])


def _check_between(node: exp.Between) -> None:
    if node.args.get("symmetric"):
        raise NotTranslatable(node, "Spark alone has SYMMETRIC")
    _same_family(node, [node.this, node.args["low"], node.args["high"]])


def _check_like(node: exp.Like) -> None:
    pattern = node.expression
    if not (isinstance(pattern, exp.Literal) and pattern.is_string and "\\" not in pattern.this):
        raise NotTranslatable(node, "escapes in LIKE differ")
    _require(node, [node.this], {"string"})


def _require(node: exp.Expr, operands: Sequence[exp.Expr | None], families: set[str] | frozenset[str]) -> None:
    for operand in operands:
        if operand is not None and _family(operand) not in families | {"null"}:
            raise NotTranslatable(node, f"it differs for values of type {_family(operand)}")


def _check_arithmetic(node: Any) -> None:
    numbers = {"integer", "double", "decimal"} if isinstance(node, exp.Neg | exp.Abs) else {"integer", "double"}
    _require(node, [node.this, node.args.get("expression")], numbers)


def _check_division(node: exp.Div | exp.Mod) -> None:
    divisor = node.expression.unnest()
    if not (isinstance(divisor, exp.Literal) and not divisor.is_string and float(divisor.this)):
        raise NotTranslatable(node, "division by zero is an error in Spark alone")
    _require(node, [node.this, divisor], {"integer", "double"} if isinstance(node, exp.Div) else {"integer"})


def _check_substring(node: exp.Substring) -> None:
    _require(node, [node.this], {"string"})
    for number in (node.args.get("start"), node.args.get("length")):
        if not (isinstance(number, exp.Literal) and number.this.isdigit() and int(number.this)):
            raise NotTranslatable(node, "places before the first character differ")


def _check_sum(node: exp.Sum | exp.Avg) -> None:
    inner = node.this.expressions[0] if isinstance(node.this, exp.Distinct) else node.this
    if isinstance(node, exp.Avg) and inner.type is not None and inner.type.this.name == "BIGINT":
        raise NotTranslatable(node, "the average of large BIGINT values is rounded differently")
    _require(node, [inner], _NUMBERS if isinstance(node, exp.Sum) else _NUMBERS - {"decimal"})


def _check_extreme(node: exp.Min | exp.Max) -> None:
    if node.expressions:
        raise NotTranslatable(node, "it takes one argument")
    _require(node, [node.this], _NUMBERS | _TIMES | {"string", "boolean"})


def _check_count(node: exp.Count) -> None:
    distinct = isinstance(node.this, exp.Distinct)
    arguments = node.this.expressions if distinct else [node.this, *node.expressions]
    if len(arguments) > 1:
        raise NotTranslatable(node, "count of several arguments is not supported")
    if distinct:
        _check_group_keys(node, arguments)


def _check_group_keys(node: exp.Expr, keys: Sequence[exp.Expr]) -> None:
    for key in keys:
        if _family(key) in ("opaque", "float", "double"):  # -0.0 is another value in DuckDB's result
            raise NotTranslatable(node, "values of this type are grouped differently")


def _require_boolean(node: exp.Expr, conditions: Sequence[exp.Expr]) -> None:
    if any(_family(c) != "boolean" for c in conditions):
        raise NotTranslatable(node, "Spark takes conditions of type BOOLEAN")


def _check_branches(node: Any) -> None:
    if isinstance(node, exp.Case):
        results = [*(i.args["true"] for i in node.args["ifs"]), node.args.get("default")]
        conditions = [i.this for i in node.args["ifs"]]
        if node.this is not None:
            _same_family(node, [node.this, *conditions])
        else:
            _require_boolean(node, conditions)
    elif isinstance(node, exp.If):
        if isinstance(node.parent, exp.Case):
            return
        _require_boolean(node, [node.this])
        results = [node.args["true"], node.args.get("false")]
    else:
        results = [node.this, *node.expressions, node.args.get("expression")]
    families = {_family(r) for r in results if r is not None} - {"null"}
    if len(families) > 1 or families & {"opaque", "float", "decimal"}:
        raise NotTranslatable(node, "its branches have different types")


def _check_text(node: Any) -> None:
    _require(node, [node.this, node.args.get("expression")], {"string"})


def _check_date(node: Any) -> None:
    _require(node, [node.this], {"date"})


def _check_cast(node: exp.Cast) -> None:
    to = _FAMILIES.get(node.to.this.name, "opaque")
    source = _family(node.this)
    literal = isinstance(node.this, exp.Literal) and _is_folded(node)
    widens = source in ("integer", "small integer") and to in ("integer", "double") and node.to.this.name != "INT"
    if isinstance(node.this, exp.Null) or (to == "decimal" and _is_wider(node)):
        return
    if not (widens or (literal and to in _TIMES)):  # literals of time are those that were folded
        raise NotTranslatable(node, "casts fail and round differently")


def _is_wider(node: exp.Cast) -> bool:
    """Whether a type of decimals holds every value that is cast to it."""
    precision, scale = ([int(p.name) for p in node.to.expressions] + [10, 0])[:2]
    number = node.this.unnest()
    number = number.this if isinstance(number, exp.Neg) else number
    if isinstance(number, exp.Literal) and not number.is_string and number.this.replace(".", "").isdigit():
        whole, _, fraction = number.this.partition(".")
        return len(fraction) <= scale and len(whole) <= precision - scale
    kind = number.type
    if _family(number) != "decimal" or kind is None or len(kind.expressions) != 2:
        return False
    digits, places = (int(p.name) for p in kind.expressions)
    return places <= scale and digits - places <= precision - scale


def _is_folded(node: exp.Cast) -> bool:
    """Whether a cast of a text is a literal as both engines read it."""
    try:
        return constant(node, "UTC") is not None
    except NotConstant:
        return False


def _check_window(node: exp.Window) -> None:
    if node.args.get("spec") is not None:
        raise NotTranslatable(node, "frames of windows may differ")
    if node.this.find(exp.Distinct) is not None:
        raise NotTranslatable(node, "Spark has no DISTINCT in windows")
    _check_group_keys(node, node.args.get("partition_by") or [])


def _check_order(node: exp.Ordered) -> None:
    if _family(node.this) == "opaque":
        raise NotTranslatable(node, "values of this type are sorted differently")


def _check_group(node: exp.Group) -> None:
    if node.args.get("all"):
        raise NotTranslatable(node, "GROUP BY ALL chooses other columns")
    _check_group_keys(node, [e for e in node.expressions if not isinstance(e, _GROUPS)])
    _check_group_keys(node, list(node.find_all(exp.Column)))


def _check_union(node: Any) -> None:
    for left, right in zip(node.left.selects, node.right.selects, strict=False):
        families = {_family(left), _family(right)} - {"null"}
        if len(families) > 1 or (families & {"opaque", "float"}):
            raise NotTranslatable(node, "it would combine columns of different types")
    if node.args.get("by_name"):
        raise NotTranslatable(node, "columns are matched by name")


def _check_condition(node: exp.Where | exp.Having) -> None:
    _require_boolean(node, [node.this])


def _check_join(node: exp.Join) -> None:
    condition = node.args.get("on")
    if condition is not None:
        _require_boolean(node, [condition])


def _check_logic(node: Any) -> None:
    _require(node, [node.this, node.args.get("expression")], {"boolean"})


def _check_is(node: exp.Is) -> None:
    if not isinstance(node.expression, exp.Null):
        _require(node, [node.this], {"boolean"})


def _check_select(node: exp.Select) -> None:
    if node.args.get("distinct"):
        _check_group_keys(node, node.selects)
        if node.args.get("order") is not None:
            raise NotTranslatable(node, "Spark sorts distinct rows by their own columns alone")


_CHECKS: dict[type[exp.Expr], Callable[[Any], None]] = {
    **dict.fromkeys(_COMPARISONS, _check_comparison),
    exp.In: _check_in,
    exp.Between: _check_between,
    exp.Like: _check_like,
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Neg, exp.Abs), _check_arithmetic),
    exp.Div: _check_division,
    exp.Mod: _check_division,
    exp.Substring: _check_substring,
    exp.Sum: _check_sum,
    exp.Avg: _check_sum,
    exp.Min: _check_extreme,
    exp.Max: _check_extreme,
    exp.Count: _check_count,
    **dict.fromkeys((exp.Case, exp.If, exp.Coalesce, exp.Nullif, exp.Greatest, exp.Least), _check_branches),
    **dict.fromkeys((exp.Length, exp.DPipe), _check_text),
    **dict.fromkeys((exp.Year, exp.Month, exp.Day), _check_date),
    exp.Cast: _check_cast,
    exp.TryCast: _check_cast,
    exp.Window: _check_window,
    exp.Ordered: _check_order,
    exp.Group: _check_group,
    **dict.fromkeys((exp.Union, exp.Intersect, exp.Except), _check_union),
    exp.Select: _check_select,
    **dict.fromkeys((exp.And, exp.Or, exp.Not), _check_logic),
    exp.Is: _check_is,
    exp.Where: _check_condition,
    exp.Having: _check_condition,
    exp.Join: _check_join,
}


def _check_outputs(tree: exp.Query) -> None:
    for select in tree.selects:
        inner = select.unalias()
        if _family(inner) == "opaque" and not isinstance(inner, exp.Column):
            raise NotTranslatable(inner, "the type of its result is not known")


# --- types of results -------------------------------------------------------------------------------------------------


def _with_types(tree: exp.Expr) -> exp.Expr:
    """Results in Spark's types: sums of integers as BIGINT, lengths, ranks and parts of dates as INT."""

    def typed(node: exp.Expr) -> exp.Expr:
        call = node.this if isinstance(node, exp.Window | exp.Filter) else node
        call = call.this if isinstance(call, exp.Filter) else call
        if isinstance(call, _AS_INT) and (node is not call or not isinstance(node.parent, exp.Window)):
            return exp.cast(node, "INT")
        if not isinstance(call, exp.Sum) or (node is call and isinstance(node.parent, exp.Window | exp.Filter)):
            return node
        if isinstance(node, exp.Filter) and isinstance(node.parent, exp.Window):
            return node
        inner = call.this.expressions[0] if isinstance(call.this, exp.Distinct) else call.this
        return exp.cast(node, "BIGINT") if _family(inner) in ("integer", "small integer") else node

    return tree.transform(typed)
