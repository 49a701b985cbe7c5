"""Spark SQL expressions that are computed → unbound terms (:mod:`bitlake.expressions.terms`)."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
from sqlglot import exp
from sqlglot.errors import SqlglotError

from bitlake.errors import InvalidRequest
from bitlake.expressions import literals
from bitlake.expressions.folding import NotConstant, constant
from bitlake.expressions.literal_lists import LiteralList, Literals, constants_of, list_of
from bitlake.expressions.spark_dialect import SparkSql
from bitlake.expressions.terms import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    CallTerm,
    CastTerm,
    ColumnTerm,
    IntervalTerm,
    LiteralTerm,
    Term,
    literal_type,
)
from bitlake.expressions.text_functions import TOKEN_LISTS
from bitlake.types import time_zone
from bitlake.types.datatypes import AtomicType, Root

NameOf = Callable[[exp.Expr], str]
"""The name of a column, a member or a map's value; raises :class:`Inexpressible` for another expression."""


class Inexpressible(Exception):
    """Some part has no form as a predicate tree."""

    def __init__(self, node: exp.Expr, why: str) -> None:
        self.node = node
        self.why = why
        super().__init__(why)


_BINARY: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.IntDiv: "div",
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
    exp.EqualNull: "<=>",
    exp.And: "and",
    exp.Or: "or",
    exp.Left: "left",
    exp.Right: "right",
    exp.Nullif: "nullif",
    exp.DateDiff: "datediff",
    exp.AddMonths: "add_months",
}
_UNARY: dict[type[exp.Expr], str] = {
    exp.Neg: "negative",
    exp.Not: "not",
    exp.Length: "length",
    exp.Lower: "lower",
    exp.Upper: "upper",
    exp.Abs: "abs",
    exp.Sign: "sign",
    exp.IsNan: "isnan",
    exp.Year: "year",
    exp.Quarter: "quarter",
    exp.Month: "month",
    exp.Day: "day",
    exp.DayOfMonth: "day",
    exp.DayOfYear: "dayofyear",
    exp.DayOfWeek: "dayofweek",
    exp.WeekOfYear: "weekofyear",
    exp.Hour: "hour",
    exp.Minute: "minute",
    exp.Second: "second",
    exp.LastDay: "last_day",
}
_LISTS: dict[type[exp.Expr], str] = {exp.Coalesce: "coalesce", exp.Greatest: "greatest", exp.Least: "least"}
_SYNONYMS = {"octet_length": "octet_length", "weekday": "weekday", "btrim": "trim", "dayofmonth": "day"}
_SYNONYMS |= {"regexp": "rlike"}
_SYNONYMS |= {"isnull": "is null", "isnotnull": "is not null"}
_CASTS: dict[str, AtomicType] = {
    "BOOLEAN": BOOLEAN,
    "TINYINT": AtomicType(Root.TINYINT),
    "SMALLINT": AtomicType(Root.SMALLINT),
    "INT": INT,
    "BIGINT": BIGINT,
    "FLOAT": FLOAT,
    "DOUBLE": DOUBLE,
    "TEXT": STRING,
    "DATE": DATE,
    "TIMESTAMP": TIMESTAMP,
    "TIMESTAMPTZ": TIMESTAMP,
    "TIMESTAMPLTZ": TIMESTAMP,
    "TIMESTAMPNTZ": TIMESTAMP_NTZ,
    "DATETIME": TIMESTAMP_NTZ,
}
_MONTHS = {"MONTH": 1, "YEAR": 12}
_MICROS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}


def term_of(node: exp.Expr, tz: str, name_of: NameOf) -> Term:
    """The term of an expression; raises :class:`Inexpressible` with the part that has none."""

    def again(inner: exp.Expr | None) -> Term:
        if inner is None:
            raise Inexpressible(node, "it does not take that number of arguments")
        return term_of(inner, tz, name_of)

    match node:
        case exp.Paren():
            return again(node.this)
        case exp.Column() | exp.Bracket():
            return ColumnTerm(name_of(node))
        case exp.Interval():
            return _interval(node)
    literal = _literal(node, tz)
    if literal is not None:
        return literal
    call = _call(node)
    if call is not None:
        if not _READ.issuperset(k for k, v in node.args.items() if v) or (node.args.get("unit") and _is_listed(node)):
            raise Inexpressible(node, "it does not take that number of arguments")
        function, arguments = call
        return CallTerm(function, tuple(map(again, arguments)))
    return _special(node, tz, again)


def _literal(node: exp.Expr, tz: str) -> LiteralTerm | None:
    """A constant with its type.  Arithmetic of integers is not folded: its type decides whether it overflows."""
    if node.find(exp.Column, exp.Bracket):
        return None
    if isinstance(node, exp.Placeholder):
        raise Inexpressible(node, "a parameter without a value; name it in args")
    # The negative of a cast may overflow the cast's type.
    inner = node.this if isinstance(node, exp.Neg) and not isinstance(node.this, exp.Cast) else node
    if not isinstance(inner, exp.Literal | exp.Null | exp.Boolean | exp.RawString | exp.HexString | exp.Cast):
        return _folded(node, tz)
    try:
        value = constant(node, tz)
    except NotConstant as e:
        raise Inexpressible(node, "the value of this constant is not certain") from e
    if isinstance(inner, exp.Cast) and value is not None:
        kind = _cast_type(inner)
        return None if kind is None else LiteralTerm(value, kind, is_literal=False)
    return LiteralTerm(value, literal_type(value))


def tuple_columns(tuples: Sequence[exp.Expr] | LiteralList, width: int, tz: str) -> list[tuple[Sequence[Any], Any]]:
    """The constants in tuples and their type, for each place in a tuple.

    Raises :class:`NotConstant` for other expressions, and if the constants of a place are of different types.
    """
    if isinstance(tuples, LiteralList):
        if tuples.width != width:
            raise NotConstant
        whole = tuples.whole_columns()
        if whole is not None and all(_is_typed(*column) for column in whole):
            return [(numbers, BIGINT if suffix else INT) for numbers, suffix in whole]
        return [_typed_literals(column, tz) for column in tuples.columns()]
    rows = [tuple_fields(t) for t in tuples]
    if any(len(row) != width for row in rows):
        raise NotConstant
    return [_of_one_type(_typed_constant(node, tz) for node in column) for column in zip(*rows, strict=True)]


def tuple_fields(node: exp.Expr) -> list[exp.Expr]:
    """The expressions in a tuple; an expression that is none, as the only one."""
    inner = node.unnest()
    return [e.unnest() for e in inner.expressions] if isinstance(inner, exp.Tuple) else [inner]


def _of_one_type(constants: Iterable[tuple[Any, Any]]) -> tuple[Sequence[Any], Any]:
    values, types = zip(*constants, strict=True)
    if len(set(types)) > 1:
        raise NotConstant
    return values, types[0]


def _typed_constant(node: exp.Expr, tz: str) -> tuple[Any, AtomicType | None]:
    if isinstance(node, exp.Cast) and isinstance(node.this.unnest(), exp.Null):
        return None, _cast_type(node)
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Cast):
        return constant(node, tz), _cast_type(node.this)
    try:
        literal = _literal(node, tz)
    except Inexpressible as e:
        raise NotConstant from e
    if literal is None:
        raise NotConstant
    return literal.value, literal.type


_SUFFIXES = {"L": BIGINT, "S": AtomicType(Root.SMALLINT), "Y": AtomicType(Root.TINYINT), "D": DOUBLE, "F": FLOAT}


def _is_typed(numbers: Sequence[int], suffix: str) -> bool:
    """Whether numbers are all of type BIGINT, with the suffix, or all of type INT."""
    types = {literal_type(min(numbers)), literal_type(max(numbers))}
    return types <= {INT, BIGINT} if suffix else types == {INT}


def _typed_literals(literals: Literals, tz: str) -> tuple[Sequence[Any], AtomicType | None]:
    """The values of literals of one type, and the type."""
    texts = literals.plain_texts()
    if texts is not None:
        return texts, STRING
    values = list(constants_of(literals, tz))
    types = {
        literal_type(v)
        for v, suffix, null in zip(values, literals.suffixes, literals.null_types, strict=True)
        if not suffix and not null
    }
    types |= {_SUFFIXES[suffix.upper()] for suffix in set(literals.suffixes) if suffix}
    types |= {parse_cast_type(kind) for kind in set(literals.null_types) if kind}
    if len(types) > 1:
        raise NotConstant
    return values, types.pop()


_FOLDED = (exp.Add, exp.Sub, exp.Mul, exp.Cast, exp.TsOrDsAdd, exp.AddMonths, exp.TsOrDsToDate)
"""Nodes that :func:`constant` computes."""


def _folded(node: exp.Expr, tz: str) -> LiteralTerm | None:
    try:
        value = constant(node, tz)
    except NotConstant as e:
        if all(isinstance(n, _FOLDED) or not isinstance(n, exp.Func | exp.Binary) for n in node.walk()):
            raise Inexpressible(node, "the value of this constant is not certain") from e
        return None
    if isinstance(value, int | float | Decimal | np.floating) and not isinstance(value, bool):
        return None
    return LiteralTerm(value, literal_type(value), is_literal=False)


def _call(node: exp.Expr) -> tuple[str, list[exp.Expr]] | None:
    """A function with its arguments in Spark's order."""
    if type(node) in _BINARY:
        return _BINARY[type(node)], [_date(node.this), _date(node.expression)]
    if type(node) in _UNARY:
        return _UNARY[type(node)], [_date(node.this)]
    if type(node) in _LISTS:
        return _LISTS[type(node)], [node.this, *node.expressions]
    match node:
        case exp.Concat():
            return "concat", list(node.expressions)
        case exp.DPipe():
            return "concat", [node.this, node.expression]
        case exp.Substring():
            numbers = [n for n in (node.args.get("start"), node.args.get("length")) if n is not None]
            return "substring", [node.this, *numbers]
        case exp.Replace():
            return "replace", [n for n in (node.this, node.args["expression"], node.args.get("replacement")) if n]
        case exp.StrPosition() if node.args.get("position") is None and node.args.get("occurrence") is None:
            return "instr", [node.this, node.args["substr"]]
        case exp.Trim() if node.args.get("expression") is None:
            return {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(node.args.get("position") or "", "trim"), [node.this]
        case exp.TimestampTrunc():
            return "date_trunc", [exp.Literal.string(node.args["unit"].name), node.this]
        case exp.DateTrunc():
            return "trunc", [node.this, exp.Literal.string(node.args["unit"].name)]
        case exp.TsOrDsAdd() if node.text("unit").upper() in ("", "DAY"):
            amount = node.expression
            if isinstance(amount, exp.Mul) and amount.expression == exp.Neg(this=exp.Literal.number(1)):
                return "date_sub", [node.this, amount.this]
            return "date_add", [node.this, amount]
        case exp.If() | exp.Nvl2():
            name = "if" if isinstance(node, exp.If) else "nvl2"
            return name, [node.this, node.args["true"], node.args.get("false") or exp.Null()]
        case exp.WidthBucket() if node.args.get("num_buckets") is not None:
            return "width_bucket", [node.this, *(node.args[n] for n in ("min_value", "max_value", "num_buckets"))]
        case exp.Extract() if node.name.upper() != "SECOND":  # EXTRACT's has a fraction, second() none
            part = {"DAYOFMONTH": "day", "WEEK": "weekofyear", "DOY": "dayofyear"}.get(node.name.upper())
            return part or node.name.lower(), [node.expression]
        case exp.ArrayContains() | exp.MapContainsKey():
            return _ARRAYS[type(node)], [node.this, *_present(node, [node.args.get("key") or node.expression])]
        case exp.ArraySize():
            return "size", [node.this]
        case exp.Exists(expression=exp.Lambda() as condition):
            return _any_element(node, condition)
        case exp.Anonymous(expressions=[array, exp.Array() as others]) if str(node.this).lower() == "arrays_overlap":
            return "arrays_overlap", [array, *_present(node, others.expressions)]
        case exp.RegexpSplit() | exp.JSONExtractScalar() | exp.RegexpLike() if not node.args.get("flag"):
            return _TEXTS[type(node)], [node.this, node.expression]
        case exp.Anonymous(expressions=[text, exp.Array() as tokens]) if str(node.this).lower() in TOKEN_LISTS:
            return str(node.this).lower(), [text, *tokens.expressions]
        case exp.Anonymous():
            name = str(node.this).lower()
            if name in TOKEN_LISTS:
                raise Inexpressible(node, f"{name} takes a string and an array of tokens, such as array('a', 'b')")
            if name == "arrays_overlap":
                raise Inexpressible(node, f"{name} takes an array and an array of constants, such as array('a', 'b')")
            return _SYNONYMS.get(name, name), list(node.expressions)
    return None


_ARRAYS = {exp.ArrayContains: "array_contains", exp.MapContainsKey: "map_contains_key"}
_TEXTS = {exp.RegexpSplit: "split", exp.JSONExtractScalar: "get_json_object", exp.RegexpLike: "rlike"}


def _any_element(node: exp.Expr, condition: exp.Lambda) -> tuple[str, list[exp.Expr]]:
    """``exists(a, x -> x = 1)`` or ``x IN (1, 2)`` as the function that looks for the constants."""
    names, test = condition.expressions, condition.this

    def is_element(part: exp.Expr | None) -> bool:
        return isinstance(part, exp.Identifier) and len(names) == 1 and part.name == names[0].name

    match test:
        case exp.EQ(this=value, expression=other) if is_element(value) != is_element(other):
            return "array_contains", [node.this, *_present(node, [other if is_element(value) else value])]
        case exp.In(this=value, expressions=[_, *_] as values) if is_element(value):
            return "arrays_overlap", [node.this, *_present(node, values)]
    raise Inexpressible(node, "only exists(a, x -> x = constant) and IN are computed")


def _present(node: exp.Expr, values: list[exp.Expr]) -> list[exp.Expr]:
    """Constants that are looked for, which are not NULL."""
    if any(isinstance(v.unnest(), exp.Null | exp.Identifier) for v in values):
        raise Inexpressible(node, "NULL is not looked for, and only constants are")
    return values


_READ = frozenset(
    (
        "this",
        "expression",
        "expressions",
        "start",
        "length",
        "replacement",
        "substr",
        "key",
        "unit",
        "true",
        "false",
        "position",
        "min_value",
        "max_value",
        "num_buckets",
    )
    + ("safe", "typed", "ignore_nulls")
)
"""Arguments of the dialect's functions that :func:`_call` reads, and flags that change nothing."""


def _is_listed(node: exp.Expr) -> bool:
    return type(node) in _BINARY or type(node) in _UNARY


def _date(node: exp.Expr) -> exp.Expr:
    """An operand without the conversion to a date that the dialect adds."""
    return node.this if isinstance(node, exp.TsOrDsToDate) and not node.args.get("safe") else node


def _special(node: exp.Expr, tz: str, again: Callable[[exp.Expr], Term]) -> Term:
    match node:
        case exp.Cast():
            kind = _cast_type(node)
            if kind is None or node.args.get("safe"):
                raise Inexpressible(node, "this cast is not evaluated")
            return CastTerm(again(node.this), kind)
        case exp.TsOrDsToDate() if node.args.get("format") is None:
            return CastTerm(again(node.this), DATE)
        case exp.Case():
            return CallTerm("case", tuple(_branches(node, again)))
        case exp.Is() if isinstance(node.expression, exp.Null):
            return CallTerm("is null", (again(node.this),))
        case exp.Between() if not node.args.get("symmetric"):
            low, high = (
                CallTerm(op, (again(node.this), again(node.args[e]))) for op, e in ((">=", "low"), ("<=", "high"))
            )
            return CallTerm("and", (low, high))
        case exp.In() if (cut := list_of(node)) is not None and cut.is_plain and node.find(exp.Column):
            return CallTerm("in", (again(node.this), LiteralTerm(cut, None)))
        case exp.In() if node.expressions and not any(node.args.get(k) for k in ("query", "unnest", "field")):
            each = tuple(CallTerm("=", (again(node.this), again(e))) for e in node.expressions)
            return each[0] if len(each) == 1 else CallTerm("or", each)
        case exp.Array():
            raise Inexpressible(node, "a list is not one value; give IN a parameter for each, or use col(…).isin(…)")
    raise Inexpressible(node, "it is none of the functions that a scan computes")


def _branches(node: exp.Case, again: Callable[[exp.Expr], Term]) -> Iterator[Term]:
    for branch in node.args["ifs"]:
        condition = again(branch.this)
        yield condition if node.this is None else CallTerm("=", (again(node.this), condition))
        yield again(branch.args["true"])
    default = node.args.get("default")
    yield LiteralTerm(None, None) if default is None else again(default)


def parse_cast_type(text: str) -> AtomicType:
    """The type that a CAST names; raises :class:`InvalidRequest` for one that conditions do not cast to.

    >>> parse_cast_type("decimal(10, 2)")
    AtomicType(DECIMAL(10, 2))
    """
    try:
        kind = _cast_type(exp.Cast(this=exp.Null(), to=exp.DataType.build(text, dialect=SparkSql)))
    except (SqlglotError, ValueError):
        kind = None
    if kind is None:
        raise InvalidRequest(
            f"a condition cannot cast to '{text}'; expected a type of Spark SQL, such as 'bigint' or 'decimal(10, 2)'"
        )
    return kind


def _cast_type(node: exp.Cast) -> AtomicType | None:
    to = node.to
    kind = to.this.name if isinstance(to.this, exp.DataType.Type) else ""
    if kind == "DECIMAL":
        numbers = [int(p.name) for p in to.expressions]
        precision, scale = (numbers + [0])[:2] if numbers else (10, 0)
        return AtomicType(Root.DECIMAL, precision=precision, scale=scale)
    if to.expressions:
        return None
    if kind in ("BINARY", "VARBINARY"):
        return BINARY
    return _CASTS.get(kind)


def _interval(node: exp.Interval) -> IntervalTerm:
    unit = node.args.get("unit")
    amount = literals.parse_integer(node.this.name) if isinstance(node.this, exp.Literal) else None
    if not isinstance(unit, exp.Var) or amount is None:
        raise Inexpressible(node, "an interval is a whole number of one unit")
    name = unit.name.upper().removesuffix("S")
    sql = f"INTERVAL '{amount}' {name}"
    if name in _MONTHS:
        return IntervalTerm(amount * _MONTHS[name], 0, sql)
    if name in _MICROS:
        return IntervalTerm(0, amount * _MICROS[name], sql)
    raise Inexpressible(node, f"intervals of {name} are not computed")


# --- clocks -----------------------------------------------------------------------------------------------------------

_CLOCK = re.compile(r"\b(current_date|curdate|current_timestamp|localtimestamp|now)\b", re.IGNORECASE)


def asks_the_time(text: str) -> bool:
    """Whether a text may depend on the clock."""
    return _CLOCK.search(text) is not None


_SEVERAL_ROWS = (exp.AggFunc, exp.Window, exp.Subquery, exp.Select, exp.Explode, exp.Posexplode, exp.Inline, exp.Stack)
_VARYING = (exp.Rand, exp.Randn, exp.Uuid, exp.Shuffle, exp.CurrentDate, exp.CurrentTimestamp, exp.Localtimestamp)
_VARYING_NAMES = frozenset(
    ("now", "monotonicallyincreasingid", "sparkpartitionid", "inputfilename", "randstr", "uniform")
    + ("currentuser", "sessionuser", "currenttimezone", "currentcatalog", "currentdatabase", "currentschema")
)
"""Other functions whose value depends on more than the row, without underscores."""


def nondeterministic_part(tree: exp.Expr) -> str | None:
    """Return the part of an expression that one row does not determine, and why; None if one row determines all.

    ``tree`` is as parsed, before :func:`with_time`.
    """
    for node in tree.walk():
        name = (node.name if isinstance(node, exp.Anonymous) else type(node).key).lower().replace("_", "")
        if isinstance(node, _SEVERAL_ROWS):
            return f"'{node.sql(dialect=SparkSql)}' is not computed from one row"
        if isinstance(node, _VARYING) or name in _VARYING_NAMES:
            return f"'{node.sql(dialect=SparkSql)}' has another value each time it is computed"
    return None


def with_time(tree: exp.Expr, now_ms: int, tz: str) -> exp.Expr:
    """An expression whose clocks are literals of one moment, as the clocks of ``tz`` show it."""
    instant = dt.datetime.fromtimestamp(now_ms / 1000, dt.UTC)
    wall = instant.astimezone(time_zone.zone(tz)).replace(tzinfo=None)

    def fixed(node: exp.Expr) -> exp.Expr:
        name = node.name.lower() if isinstance(node, exp.Anonymous) and not node.expressions else ""
        if isinstance(node, exp.CurrentTimestamp) or name == "now":
            return _typed(f"{instant.replace(tzinfo=None).isoformat(' ')}Z", "TIMESTAMP")
        if isinstance(node, exp.CurrentDate):
            return _typed(wall.date().isoformat(), "DATE")
        if isinstance(node, exp.Localtimestamp):
            return _typed(wall.isoformat(" "), "TIMESTAMP_NTZ")
        return node

    return tree.transform(fixed)


def _typed(text: str, kind: str) -> exp.Expr:
    return exp.Cast(this=exp.Literal.string(text), to=exp.DataType.build(kind, dialect=SparkSql))
