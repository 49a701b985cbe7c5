"""Expressions of Spark SQL → DuckDB's, each with Spark's type: names, logic, comparisons, arithmetic, CASE.

Functions, aggregates and windows are in :mod:`bitlake.sql.duckdb_functions`, tests of texts, arrays and maps in
:mod:`bitlake.sql.duckdb_predicates`; a node that none of them lists is refused.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Literal

import pyarrow as pa
from sqlglot import exp

from bitlake.expressions.folding import NotConstant, constant
from bitlake.expressions.literal_comparison import beyond_long
from bitlake.sql import spark_types as ty
from bitlake.sql.duckdb_values import (
    ZONE_DIFFERS,
    NotTranslatable,
    UnknownColumn,
    Value,
    cast,
    cast_sql,
    checked,
    divided,
    number,
    struct_field,
    text,
    time_literal,
    widen,
)
from bitlake.sql.spark_types import SparkType
from bitlake.types import time_zone

_CAST_TYPES = {
    **{k: SparkType(k) for k in ("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DATE")},
    "TEXT": ty.STRING,
    "BINARY": ty.BINARY,
    "TIMESTAMPNTZ": ty.TIMESTAMP_NTZ,
    **dict.fromkeys(("TIMESTAMPTZ", "TIMESTAMPLTZ"), ty.TIMESTAMP),
}
_UNSAID = frozenset(("big_int", "coalesce", "nested", "nulls_first", "ignore_nulls", "flatten", "typed"))
"""Arguments that sqlglot sets of every node of a kind, and that say nothing of a query."""


# --- names ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Source:
    """A table of a FROM clause: its alias, and its columns with the names they have."""

    alias: str
    columns: tuple[tuple[str, Value], ...]


@dataclass
class Scope:
    """The columns that names may mean.  ``parent``: those around a subquery."""

    sources: list[Source] = field(default_factory=list)
    parent: Scope | None = None
    merged: dict[str, Value] = field(default_factory=dict)
    """Columns of USING by their name without a source."""
    grouped: bool = False

    def find(self, node: exp.Column) -> Value | None:
        """The column of a name in this scope; raises :class:`NotTranslatable` where there are several."""
        name, table = node.name.lower(), node.table.lower()
        if not table and name in self.merged:
            return self.merged[name]
        if node.args.get("db"):
            return None
        values = [
            value
            for source in self.sources
            if not table or source.alias.lower() == table
            for column, value in source.columns
            if column.lower() == name
        ]
        if len(values) > 1:
            raise NotTranslatable(node, "there are several columns of this name")
        return values[0] if values else None

    def field(self, node: exp.Column) -> Value | None:
        """The field of a struct that ``column.field`` or ``table.column.field`` names, which Spark calls that way."""
        *parts, last = node.parts
        if not parts or not isinstance(last, exp.Identifier):
            return None
        outer = exp.Column(**dict(zip(("this", "table", "db", "catalog"), reversed(parts), strict=False)))
        column = self.find(outer)
        struct = self.field(outer) if column is None else column.named(outer.name)
        made = None if struct is None else struct_field(struct, last.name)
        return None if made is None or struct is None else made.named(f"{struct.name}.{last.name}")

    def unknown(self, node: exp.Column) -> UnknownColumn:
        """The error that no column has a name; one that names a source around a subquery is looked for there."""
        aliases = {s.alias.lower() for s in self.sources}
        if node.table and node.table.lower() not in aliases and self.parent is not None:
            return self.parent.unknown(node)
        return UnknownColumn(node, [(s.alias, [name for name, _ in s.columns]) for s in self.sources])


# --- expressions ------------------------------------------------------------------------------------------------------

Translator = Callable[["Expressions", Any], Value]
TRANSLATORS: dict[type[exp.Expr], tuple[Translator, frozenset[str]]] = {}
"""The translator of each kind of node, and the arguments that it reads."""


def translates(*kinds: type[exp.Expr], args: str = "this expression") -> Callable[[Translator], Translator]:
    """Register the translation of nodes that have none but these arguments."""

    def register(function: Translator) -> Translator:
        TRANSLATORS.update(dict.fromkeys(kinds, (function, frozenset(args.split()))))
        return function

    return register


@dataclass(frozen=True)
class Expressions:
    """Translates the expressions of a clause.

    ``aliases`` are the columns of the SELECT list; ``clash`` says what a name means that is a column of FROM, too:
    that (`column`), the alias (`alias`), or neither (`refuse`; `hidden`: no alias at all).  ``keys``: what a grouped
    query groups by, by its SQL; a column must be part of one, or of an aggregate.  ``query`` translates a subquery;
    ``word`` and ``pattern`` are a function's name and its last text as they are written.
    """

    scope: Scope
    query: Callable[[exp.Expr, Scope | None], tuple[str, Sequence[Value]]]
    timezone: str
    word: Callable[..., str | None]
    pattern: Callable[[exp.Expr], str | None]
    today: dt.date | None
    """None if only the engine knows the session's time zone."""
    aliases: Mapping[str, Value | None] = field(default_factory=dict)
    clash: Literal["column", "alias", "refuse", "hidden"] = "column"
    keys: Mapping[str, Value] | None = None
    aggregates: bool = False
    windows: bool = False
    selects: bool = False
    """Whether it is WHERE, or a term of its AND and OR: there FALSE and NULL mean the same."""
    lists: dict[str, pa.Table] = field(default_factory=dict)
    """The tables of constants that the translation names; all expressions of a query share them."""

    @property
    def rows(self) -> Expressions:
        """The same for expressions over single rows, such as an aggregate's arguments."""
        clashing = {} if self.clash == "column" else self.aliases
        return replace(self, aliases=clashing, clash="hidden", keys=None, aggregates=False, windows=False)

    def value(self, node: exp.Expr) -> Value:
        """The translation of an expression."""
        if self.selects and not isinstance(node, exp.And | exp.Or | exp.Paren):
            return replace(self, selects=False).value(node)
        if self.keys and not isinstance(node, exp.Paren | exp.Literal | exp.Subquery):
            key = self._key(node)
            if key is not None:
                return key
        known = TRANSLATORS.get(type(node))
        if known is None:
            raise NotTranslatable(node, "it is not among the expressions that mean the same in both")
        translator, args = known
        more = {k for k, v in node.args.items() if v not in (None, False, [])} - args - _UNSAID
        if more:
            raise NotTranslatable(node, f"{', '.join(sorted(more))} may mean something else")
        return translator(self, node)

    def _key(self, node: exp.Expr) -> Value | None:
        """Return the grouping key of a grouped query, if it is the expression."""
        assert self.keys is not None
        try:
            made = self.rows.value(node)
        except NotTranslatable:
            return None
        return self.keys[made.sql].named(made.name) if made.sql in self.keys else None

    def column(self, node: exp.Column) -> Value:
        """The column that a name means."""
        if not isinstance(node.this, exp.Identifier):
            raise NotTranslatable(node, "the column is not known")
        own = self.scope.find(node)
        field = self.scope.field(node) if own is None else None
        if field is not None and self.keys is None:
            return field
        if node.args.get("db") or node.args.get("catalog"):
            raise NotTranslatable(node, "the column is not known")
        known = "" if node.table else node.name.lower()
        alias = self.aliases.get(known)
        if alias is None and known in self.aliases and (own is None or self.clash != "column"):
            raise NotTranslatable(node, "there are several columns of this name")
        if alias is not None and own is not None and alias.sql != own.sql:
            if self.clash in ("refuse", "hidden"):
                raise NotTranslatable(node, "it may be the alias or a column")
            alias = alias if self.clash == "alias" else None
        if alias is not None and self.clash != "hidden" and (own is None or self.clash == "alias"):
            return replace(alias, name=node.name, literal=None)  # to Spark a column, which has no literal's digits
        if own is not None or field is not None:
            if self.keys is not None or own is None:
                raise NotTranslatable(node, "it is neither grouped nor in an aggregate")
            return own.named(node.name)
        outer = None if self.scope.parent is None else self.scope.parent.find(node)
        if outer is None:
            raise self.scope.unknown(node)
        if self.scope.parent is not None and self.scope.parent.grouped:
            raise NotTranslatable(node, "it is a column of a grouped query around this one")
        return outer.named(node.name)

    def values(self, nodes: Sequence[exp.Expr | None]) -> list[Value]:
        """The translations of several expressions."""
        return [self.value(n) for n in nodes if n is not None]

    def require(self, node: exp.Expr, value: Value, *kinds: str) -> Value:
        """The value, whose type must be one of these (or NULL); ``number`` is any but FLOAT."""
        kind = value.type
        if kind.kind in kinds or kind == ty.NULL:
            return value
        if "number" in kinds and kind.is_number and kind != ty.FLOAT:
            return value
        if "integer" in kinds and kind.is_integer:
            return value
        raise NotTranslatable(node, f"it differs for values of type {kind.sql}")

    def condition(self, node: exp.Expr) -> Value:
        """An expression that must be of type BOOLEAN."""
        value = self.value(node)
        if value.type != ty.BOOLEAN:
            raise NotTranslatable(node, "Spark takes conditions of type BOOLEAN")
        return value


def alike(node: exp.Expr, values: Sequence[Value], *, compares: bool = True) -> tuple[list[str], SparkType]:
    """Values in their common type.

    In comparisons, texts that are written out become dates and wall clocks beside these, and whole numbers beside
    decimals are as long as they are written.
    """
    kinds = {v.type for v in values} - {ty.NULL}
    times = {k for k in kinds if k.is_time}
    if compares and len(times) == 1 and kinds - times == {ty.STRING}:
        (kind,) = times
        return [_text_as_time(node, v, kind) if v.type == ty.STRING else widen(node, v, kind) for v in values], kind
    kind = ty.common_type(_literal_type(v, kinds) if compares else v.type for v in values) or ty.OPAQUE
    if kind == ty.OPAQUE or ((kind == ty.TIMESTAMP) and len(kinds) > 1):
        raise NotTranslatable(node, why_apart(kinds))
    return [widen(node, v, kind) for v in values], kind


def padded(node: exp.Expr, values: Sequence[Value]) -> list[Value]:
    """Texts as Spark compares them: filled up with spaces to the length of the longest, where one is of type CHAR."""
    if not any(v.char for v in values):
        return list(values)
    if not values[0].char or not all(v.char or isinstance(v.literal, str) for v in values):
        if len(values) == 2 and all(v.char or v.type == ty.STRING for v in values):
            if all(v.char or v.literal is None for v in values):
                if not isinstance(node, exp.Binary) or any(n.find(exp.Column) is None for n in (node.left, node.right)):
                    raise NotTranslatable(node, "a constant beside a column of type CHAR is written out")
                return list(values)  # Spark pads constants alone
            return padded(node, values[::-1])[::-1]
        raise NotTranslatable(node, "texts of type CHAR are compared differently")
    length = max(v.char or len(str(v.literal)) for v in values)
    return [
        replace(v, sql=text(v.literal.ljust(length)), literal=v.literal.ljust(length))
        if isinstance(v.literal, str)
        else v
        if v.char == length
        else replace(v, sql=f"rpad({v.sql}, {length}, ' ')")
        for v in values
    ]


def _literal_type(value: Value, kinds: set[SparkType]) -> SparkType:
    """The type of a whole number that is written out, beside decimals: its digits."""
    if isinstance(value.literal, int) and any(k.kind == "DECIMAL" for k in kinds):
        return ty.of_decimal(Decimal(value.literal))
    return value.type


def why_apart(kinds: set[SparkType]) -> str:
    """Return why values of several types are not compared."""
    names = sorted(k.sql for k in kinds)
    if ty.OPAQUE in kinds:
        return "values of this type are compared differently"
    return f"{' and '.join(names)} are compared in different types"


def _text_as_time(node: exp.Expr, value: Value, kind: SparkType) -> str:
    if not isinstance(value.literal, str):
        raise NotTranslatable(node, f"only a literal is compared with values of type {kind.sql}")
    try:
        return time_literal(node, value.literal, kind)
    except NotTranslatable as e:
        raise NotTranslatable(node, f"only a literal is compared with values of type {kind.sql}, and {e.why}") from e


_LOOSE = (exp.Predicate, exp.Not, exp.And, exp.Or, exp.Escape)
"""Operands that sqlglot and Spark may read with other precedence, if they have no brackets."""


def check_operands(node: exp.Expr, *operands: exp.Expr | None) -> None:
    """Refuse chains such as ``a = b IS NULL``, which Spark reads from the left."""
    for operand in operands:
        if isinstance(operand, _LOOSE) and not isinstance(operand, exp.Exists | exp.SubqueryPredicate):
            raise NotTranslatable(node, "brackets are needed to say what belongs together")


def named(pattern: str, *values: Value) -> str | None:
    """The name of an expression, made of its parts' names; None if one is not known."""
    names = [v.name for v in values]
    return None if None in names else pattern.format(*names)


# --- names, literals, brackets ----------------------------------------------------------------------------------------


@translates(exp.Column, args="this table db catalog")
def _column(e: Expressions, node: exp.Column) -> Value:
    return e.column(node)


@translates(exp.Paren, args="this")
def _paren(e: Expressions, node: exp.Paren) -> Value:
    return e.value(node.this)


@translates(exp.Literal, args="this is_string")
def _literal(e: Expressions, node: exp.Literal) -> Value:
    written = str(node.this)
    if node.is_string:
        return Value(text(written), ty.STRING, written, written)
    if "e" in written.lower():
        return Value(cast_sql(text(written), ty.DOUBLE), ty.DOUBLE)
    value = Decimal(written)
    made = number(value if "." in written else int(written), None, written)
    if made.type.precision > ty.MAX_PRECISION:
        raise NotTranslatable(node, f"it has more than {ty.MAX_PRECISION} digits")
    return made


@translates(exp.Boolean, args="this")
def _boolean(e: Expressions, node: exp.Boolean) -> Value:
    written = "true" if node.this else "false"
    return Value(written, ty.BOOLEAN, written)


@translates(exp.HexString, args="this")
def _bytes(e: Expressions, node: exp.HexString) -> Value:
    digits = str(node.this)
    if len(digits) % 2:
        raise NotTranslatable(node, "it has an odd number of digits")
    escaped = re.sub("(..)", r"\\x\1", digits)
    return Value(f"'{escaped}'::BLOB", ty.BINARY)


@translates(exp.Null, args="")
def _null(e: Expressions, node: exp.Null) -> Value:
    return Value("NULL", ty.NULL, "NULL")


@translates(exp.CurrentDate, args="")
def _today(e: Expressions, node: exp.CurrentDate) -> Value:
    if e.today is None:
        raise NotTranslatable(node, ZONE_DIFFERS)
    return Value(f"DATE '{e.today.isoformat()}'", ty.DATE, "current_date()")


@translates(exp.Subquery, args="this")
def _scalar(e: Expressions, node: exp.Subquery) -> Value:
    sql, columns = e.query(node, replace(e.scope, grouped=e.keys is not None))
    if len(columns) != 1:
        raise NotTranslatable(node, "a subquery must have one column here")
    return Value(f"({sql})", columns[0].type)


# --- logic and comparisons --------------------------------------------------------------------------------------------


@translates(exp.Not, args="this")
def _not(e: Expressions, node: exp.Not) -> Value:
    inner = node.this
    made = e.require(node, e.value(inner), "BOOLEAN")
    if isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null):
        value = e.value(inner.this)
        return Value(f"({value.sql} IS NOT NULL)", ty.BOOLEAN, named("({} IS NOT NULL)", value))
    return Value(f"(NOT {made.sql})", ty.BOOLEAN, named("(NOT {})", made))


@translates(exp.Is)
def _is(e: Expressions, node: exp.Is) -> Value:
    check_operands(node, node.this)
    value = e.value(node.this)
    if isinstance(node.expression, exp.Null):
        return Value(f"({value.sql} IS NULL)", ty.BOOLEAN, named("({} IS NULL)", value))
    if not isinstance(node.expression, exp.Boolean):
        raise NotTranslatable(node, "it is not among the expressions that mean the same in both")
    e.require(node, value, "BOOLEAN")
    return Value(f"({value.sql} IS NOT DISTINCT FROM {e.value(node.expression).sql})", ty.BOOLEAN)


_OPERATORS = {
    exp.EQ: ("=", "="),
    exp.NEQ: ("<>", ""),
    exp.LT: ("<", "<"),
    exp.LTE: ("<=", "<="),
    exp.GT: (">", ">"),
    exp.GTE: (">=", ">="),
    exp.NullSafeEQ: ("IS NOT DISTINCT FROM", "<=>"),
    exp.NullSafeNEQ: ("IS DISTINCT FROM", ""),
}


_ORDERED = (exp.LT, exp.LTE, exp.GT, exp.GTE)


def _check_range(node: exp.Expr, value: Value, limit: Value) -> None:
    """Refuse an integer compared with a number beyond BIGINT: Spark answers it for NULL too."""
    for a, b in ((value, limit), (limit, value)):
        if a.type.is_integer and b.literal is not None and beyond_long(b.literal):
            raise NotTranslatable(node, "Spark compares NULL, too, with a number beyond BIGINT")


@translates(*_OPERATORS)
def _comparison(e: Expressions, node: exp.Binary) -> Value:
    check_operands(node, node.left, node.right)
    left, right = e.values([node.left, node.right])
    if isinstance(node, _ORDERED):
        _check_range(node, left, right)
    (a, b), _ = alike(node, padded(node, [left, right]))
    ours, sparks = _OPERATORS[type(node)]
    name = named(f"({{}} {sparks} {{}})", left, right) if sparks else None
    if isinstance(node, exp.NEQ):
        name = named("(NOT ({} = {}))", left, right)
    return Value(f"({a} {ours} {b})", ty.BOOLEAN, name)


@translates(exp.Between, args="this low high")
def _between(e: Expressions, node: exp.Between) -> Value:
    low, high = node.args["low"], node.args["high"]
    check_operands(node, node.this, low, high)
    values = e.values([node.this, low, high])
    for end in values[1:]:
        _check_range(node, values[0], end)
    # Spark compares with each end in a type of its own.
    (a, b), _ = alike(node, values[:2])
    (c, d), _ = alike(node, [values[0], values[2]])
    return Value(f"({a} >= {b} AND {c} <= {d})", ty.BOOLEAN, named("between({}, {}, {})", *values))


def exists_subquery(e: Expressions, node: exp.Exists) -> Value:
    """The translation of ``EXISTS (SELECT …)``."""
    try:
        return Value(f"EXISTS ({e.query(node.this, None)[0]})", ty.BOOLEAN, "exists()")
    except UnknownColumn:  # it may be one of the query around it, whose columns are part of Spark's name
        sql, _ = e.query(node.this, replace(e.scope, grouped=e.keys is not None))
        return Value(f"EXISTS ({sql})", ty.BOOLEAN)


@translates(exp.Like, args="this expression negate")
def _like(e: Expressions, node: exp.Like) -> Value:
    return _like_with(e, node, "\\")


@translates(exp.Escape)
def _escaped(e: Expressions, node: exp.Escape) -> Value:
    escape = node.expression
    if not (isinstance(node.this, exp.Like) and isinstance(escape, exp.Literal) and len(str(escape.this)) == 1):
        raise NotTranslatable(node, "escapes in LIKE differ")
    made = _like_with(e, node.this, str(escape.this))
    return made.named(None)


def _like_with(e: Expressions, node: exp.Like, escape: str) -> Value:
    check_operands(node, node.this, node.expression)
    value, pattern = (e.require(node, e.value(o), "STRING") for o in (node.this, node.expression))
    if not isinstance(pattern.literal, str):
        raise NotTranslatable(node, "escapes in LIKE differ")
    rest = pattern.literal.replace(escape * 2, "")
    if any(after not in ("%", "_") for after in (part[:1] for part in rest.split(escape)[1:])) or escape in "%_":
        raise NotTranslatable(node, "escapes in LIKE differ")
    word = "NOT LIKE" if node.args.get("negate") else "LIKE"
    name = named("{} LIKE {}", value, pattern)
    name = f"(NOT {name})" if name is not None and node.args.get("negate") else name
    # DuckDB compares with a compiled pattern only where no escape is given.
    escaped = f" ESCAPE {text(escape)}" if escape in pattern.literal else ""
    return Value(f"({value.sql} {word} {pattern.sql}{escaped})", ty.BOOLEAN, name)


# --- arithmetic -------------------------------------------------------------------------------------------------------

_SYMBOLS = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}


@translates(*_SYMBOLS, args="this expression safe")
def _arithmetic(e: Expressions, node: exp.Binary) -> Value:
    folded = _folded(e, node)
    if folded is not None:
        return folded
    if isinstance(node.right, exp.Interval) or isinstance(node.left, exp.Interval):
        return _shifted(e, node)
    check_operands(node, node.left, node.right)
    symbol = _SYMBOLS[type(node)]
    left, right = (e.require(node, e.value(o), "number", "FLOAT") for o in (node.left, node.right))
    name = named(f"({{}} {symbol} {{}})", left, right)
    if isinstance(node, exp.Mod) and "%" not in (e.word(node) or "%"):
        name = named("mod({}, {})", left, right)
    return calculated(node, symbol, left, right).named(name)


def calculated(node: exp.Expr, symbol: str, left: Value, right: Value) -> Value:
    """``left symbol right`` of two numbers, with Spark's type and its error for a divisor of zero."""
    kinds = {left.type, right.type}
    if ty.NULL in kinds:
        raise NotTranslatable(node, "the type of its result is not known")
    by_zero = None
    if symbol in "/%":
        if isinstance(right.literal, int | Decimal):
            if not right.literal:
                raise NotTranslatable(node, "division by zero is an error in Spark alone")
        else:
            by_zero = f"{right.sql} = 0"
            right = replace(right, sql=f"nullif({right.sql}, 0)")
    if any(k.kind == "DECIMAL" for k in kinds) and not any(k.is_floating for k in kinds):
        made = _of_decimals(node, symbol, left, right)
    else:
        kind = ty.DOUBLE if symbol == "/" else ty.common_type(kinds)
        if kind is None or kind == ty.FLOAT:
            raise NotTranslatable(node, "it differs for values of type FLOAT")
        made = Value(f"({widen(node, left, kind)} {symbol} {widen(node, right, kind)})", kind)
    if by_zero is None:
        return made
    return replace(made, sql=checked(made.sql, by_zero, "division by zero").join("()"))


def _of_decimals(node: exp.Expr, symbol: str, left: Value, right: Value) -> Value:
    a, b = (_as_decimal(node, v) for v in (left, right))
    kind = ty.arithmetic_type(symbol, a.type, b.type)
    assert kind is not None
    if symbol == "/":
        return Value(divided(a.sql, a.type, b.sql, b.type, kind), kind)
    if symbol == "*" and a.type.scale + b.type.scale > ty.MAX_PRECISION:
        raise NotTranslatable(node, f"the product has more than {ty.MAX_PRECISION} places")
    if symbol in "+-%":
        scale = max(a.type.scale, b.type.scale)
        # DuckDB's sum has one digit more than its operands, as Spark's, except that 38 is the most.
        digits = max(v.type.precision - v.type.scale for v in (a, b)) + scale
        operands = [cast(node, v, ty.decimal(digits, scale)) for v in (a, b)]
        return Value(cast_sql(f" {symbol} ".join(operands), kind), kind)
    return Value(cast_sql(f"{a.sql} {symbol} {b.sql}", kind), kind)


def _as_decimal(node: exp.Expr, value: Value) -> Value:
    kind = value.type
    if isinstance(value.literal, int):
        kind = ty.of_decimal(Decimal(value.literal))
    elif kind.is_integer and isinstance(node, exp.Binary) and _may_be_literal(node):
        raise NotTranslatable(node, "a number may be written with its type, which decides the digits of the result")
    kind = ty.as_decimal(kind)
    return Value(widen(node, value, kind), kind)


def _may_be_literal(node: exp.Binary) -> bool:
    """Whether an operand is a literal such as ``5L``, which sqlglot reads as a cast."""
    operands = (node.left.unnest(), node.right.unnest())
    return any(isinstance(o, exp.Cast) and isinstance(o.this.unnest(), exp.Literal) for o in operands)


@translates(exp.Neg, args="this")
def _negative(e: Expressions, node: exp.Neg) -> Value:
    inner = node.this.unnest()
    if isinstance(inner, exp.Literal) and not inner.is_string and "e" not in str(inner.this).lower():
        made = e.value(inner)
        assert isinstance(made.literal, int | Decimal)
        kind = made.type if isinstance(node.this, exp.Paren) else None
        # The minus operator of Decimal rounds to 28 digits; copy_negate does not.
        negated = made.literal.copy_negate() if isinstance(made.literal, Decimal) else -made.literal
        return number(negated, kind, f"-{made.name}" if kind is None else None)
    value = e.require(node, e.value(node.this), "number")
    return Value(cast_sql(f"-{value.sql}", value.type), value.type, named("(- {})", value))


@translates(exp.Abs, args="this")
def _absolute(e: Expressions, node: exp.Abs) -> Value:
    value = e.require(node, e.value(node.this), "number")
    return Value(cast_sql(f"abs({value.sql})", value.type), value.type, named("abs({})", value))


def _folded(e: Expressions, node: exp.Expr) -> Value | None:
    """A constant date or timestamp, computed with intervals and functions, as a literal."""
    try:
        value = constant(node, e.timezone)
    except (NotConstant, RecursionError):
        return None
    if isinstance(value, dt.datetime):
        if value.tzinfo is None:
            return Value(f"TIMESTAMP '{value.isoformat(' ')}'", ty.TIMESTAMP_NTZ)
        return Value(f"TIMESTAMPTZ '{time_zone.in_utc(value).isoformat(' ')}'", ty.TIMESTAMP)
    if isinstance(value, dt.date):
        return Value(f"DATE '{value.isoformat()}'", ty.DATE)
    return None


_CLOCK_UNITS = frozenset(("HOUR", "MINUTE", "SECOND"))
_DATE_UNITS = frozenset(("DAY", "MONTH", "YEAR"))


def _shifted(e: Expressions, node: exp.Binary) -> Value:
    """A date or timestamp with an interval of one unit added or taken off."""
    value, interval = (node.right, node.left) if isinstance(node.left, exp.Interval) else (node.left, node.right)
    unit = interval.args.get("unit")
    count = interval.this.unnest() if interval.this is not None else None
    word = unit.name.upper().removesuffix("S") if isinstance(unit, exp.Var) else ""
    written = str(count.this) if isinstance(count, exp.Literal) else ""
    if (isinstance(node, exp.Sub) and value is node.right) or not written.isdigit() or len(written) > 6:
        raise NotTranslatable(node, "only intervals of one unit are known to mean the same")
    made = e.require(node, e.value(value), "DATE", "TIMESTAMP_NTZ", "TIMESTAMP")
    units = {"DATE": _DATE_UNITS, "TIMESTAMP_NTZ": _DATE_UNITS | _CLOCK_UNITS, "TIMESTAMP": _CLOCK_UNITS}
    symbol = _SYMBOLS.get(type(node), "")
    if word not in units.get(made.type.kind, ()) or symbol not in ("+", "-"):
        raise NotTranslatable(node, "intervals of this unit depend on the session's zone")
    return Value(cast_sql(f"{made.sql} {symbol} INTERVAL '{written}' {word}", made.type), made.type)


# --- casts and branches -----------------------------------------------------------------------------------------------


@translates(exp.Cast, exp.TryCast, args="this to")
def _cast(e: Expressions, node: exp.Cast) -> Value:
    folded = _folded(e, node)
    if folded is not None:
        return folded
    to = cast_type(node)
    value = e.value(node.this)
    if isinstance(value.literal, str) and to.kind == "DECIMAL" and re.fullmatch(r"-?\d+(\.\d+)?", value.literal):
        made = Decimal(value.literal)  # 1.5BD, or a parameter
        if ty.of_decimal(made) == to:
            return number(made, to)
    name = None if value.literal is not None else named(f"CAST({{}} AS {to.sql})", value)
    return Value(cast(node, value, to), to, name)


def cast_type(node: exp.Cast) -> SparkType:
    """The type that values are cast to."""
    kind = node.to.this.name if isinstance(node.to.this, exp.DataType.Type) else ""
    if kind == "DECIMAL":
        numbers = [int(p.name) for p in node.to.expressions]
        return ty.SparkType("DECIMAL", *(numbers + [10, 0][len(numbers) :])[:2])
    if kind not in _CAST_TYPES or node.to.expressions:
        raise NotTranslatable(node, "casts to this type differ")
    return _CAST_TYPES[kind]


@translates(exp.Case, args="this ifs default")
def _case(e: Expressions, node: exp.Case) -> Value:
    ifs = node.args["ifs"]
    default = node.args.get("default")
    results = e.values([*(i.args["true"] for i in ifs), default])
    branches, kind = alike(node, results, compares=False)
    if node.this is None:
        conditions = [e.condition(i.this) for i in ifs]
        tests = [c.sql for c in conditions]
    else:
        subject, conditions = e.value(node.this), e.values([i.this for i in ifs])
        tests = [f"({a} = {b})" for a, b in (alike(node, padded(node, [subject, c]))[0] for c in conditions)]
    when = " ".join(f"WHEN {t} THEN {b}" for t, b in zip(tests, branches, strict=False))
    other = branches[-1] if default is not None else "NULL"
    parts = [x for pair in zip(conditions, results, strict=False) for x in pair]
    pattern = "CASE" + " WHEN {} THEN {}" * len(ifs) + (" ELSE {}" if default is not None else "") + " END"
    parts += results[len(ifs) :]
    name = named(pattern, *parts) if node.this is None else None
    return Value(f"(CASE {when} ELSE {other} END)", kind, name)


@translates(exp.If, args="this true false")
def _if(e: Expressions, node: exp.If) -> Value:
    condition = e.condition(node.this)
    results = e.values([node.args["true"], node.args.get("false")])
    branches, kind = alike(node, results, compares=False)
    other = branches[1] if len(branches) > 1 else "NULL"
    name = named("(IF({}, {}, {}))", condition, *results) if len(results) == 2 else None
    return Value(f"(CASE WHEN {condition.sql} THEN {branches[0]} ELSE {other} END)", kind, name)


@translates(exp.Coalesce, exp.Greatest, exp.Least, args="this expressions")
def _several(e: Expressions, node: exp.Func) -> Value:
    values = e.values([node.this, *node.expressions])
    made, kind = alike(node, values, compares=False)
    function = {exp.Coalesce: "coalesce", exp.Greatest: "greatest", exp.Least: "least"}[type(node)]
    return Value(f"{function}({', '.join(made)})", kind, call_name(e, node, *values))


@translates(exp.Nullif)
def _nullif(e: Expressions, node: exp.Nullif) -> Value:
    left, right = e.values([node.this, node.expression])
    if left.char or right.char:
        raise NotTranslatable(node, "it differs for values of type CHAR")
    (a, b), _ = alike(node, [left, right])
    return Value(
        f"(CASE WHEN {a} = {b} THEN NULL ELSE {left.sql} END)", left.type, named("nullif({}, {})", left, right)
    )


@translates(exp.Nvl2, args="this true false")
def _nvl2(e: Expressions, node: exp.Nvl2) -> Value:
    value = e.value(node.this)
    results = e.values([node.args["true"], node.args["false"]])
    (a, b), kind = alike(node, results, compares=False)
    sql = f"(CASE WHEN {value.sql} IS NOT NULL THEN {a} ELSE {b} END)"
    return Value(sql, kind, named("nvl2({}, {}, {})", value, *results))


def call_name(e: Expressions, node: exp.Expr, *values: Value) -> str | None:
    """The name of a call of a function, as it is written."""
    word = e.word(node)
    listed = named(", ".join("{}" for _ in values), *values)
    return None if word is None or listed is None else f"{word.lower()}({listed})"
