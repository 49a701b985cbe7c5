"""Functions of Spark SQL → DuckDB's: of texts, numbers, dates and timestamps; aggregates and windows.

Each has the type that Spark's result has.  For functions that DuckDB lacks, it calls bitlake's kernels, a vector at a
time.
"""

from __future__ import annotations

import atexit
import os
import re
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from bitlake.errors import EvaluationFailed
from bitlake.expressions.json_path import json_values, path_names
from bitlake.expressions.numeric_functions import HASH_SEED, spark_hash
from bitlake.expressions.terms import Refused
from bitlake.sql import scope
from bitlake.sql import spark_types as ty
from bitlake.sql.duckdb_expressions import Expressions, calculated, call_name, named, translates
from bitlake.sql.duckdb_predicates import TOKEN_TESTS, arrays_overlap, token_test
from bitlake.sql.duckdb_values import (
    NotTranslatable,
    Value,
    as_in_spark,
    cast,
    cast_sql,
    checked,
    divided,
    in_rule_years,
    text,
)
from bitlake.sql.spark_types import SparkType
from bitlake.types.datatypes import Root

_ROUND_LIMIT = "1e15"
_LETTERS = {
    exp.Upper: r"[\x00-\x{DE}\x{E0}-\x{148}\x{14A}-\x{17F}\x{391}-\x{3A9}\x{3B1}-\x{3C9}\x{400}-\x{481}]*",
    exp.Lower: r"[\x00-\x{12F}\x{131}-\x{17F}\x{391}-\x{3A1}\x{3A4}-\x{3A9}\x{3B1}-\x{3C9}\x{400}-\x{481}]*",
}
"""Texts of characters that both engines map to the same other case: not ß, nor Greek's last sigma."""


# --- texts ------------------------------------------------------------------------------------------------------------


def _text(e: Expressions, node: exp.Expr, operand: Any) -> Value:
    """A text; what else is given is written as Spark writes it."""
    value = e.value(operand)
    if value.type == ty.STRING:
        return value
    if value.type == ty.NULL:
        return Value("CAST(NULL AS VARCHAR)", ty.STRING, value.name)
    if value.type.is_integer or value.type in (ty.BOOLEAN, ty.DATE) or value.type.kind == "DECIMAL":
        return Value(cast(node, value, ty.STRING), ty.STRING, value.name)
    raise NotTranslatable(node, f"it differs for values of type {value.type.sql}")


def _only_text(e: Expressions, node: exp.Expr, operand: Any) -> Value:
    return e.require(node, e.value(operand), "STRING")


def _whole(e: Expressions, node: exp.Expr, operand: Any) -> tuple[int, str | None]:
    """A whole number that is written out, and its name."""
    value = e.value(operand)
    if not isinstance(value.literal, int) or value.type != ty.INT:
        raise NotTranslatable(node, "only a whole number that is written out is known to mean the same")
    return value.literal, value.name


@translates(exp.Upper, exp.Lower, args="this")
def _case(e: Expressions, node: exp.Upper | exp.Lower) -> Value:
    value = _only_text(e, node, node.this)
    function = "upper" if isinstance(node, exp.Upper) else "lower"
    differs = f"strlen({value.sql}) <> length({value.sql}) AND "
    differs += f"NOT regexp_full_match({value.sql}, {text(_LETTERS[type(node)])}, 's')"
    sql = as_in_spark(f"{function}({value.sql})", differs, "the case of a letter differs")
    return Value(f"({sql})", ty.STRING, call_name(e, node, value))


@translates(exp.Length, args="this")
def _length(e: Expressions, node: exp.Length) -> Value:
    value = _text(e, node, node.this)
    return Value(cast_sql(f"length({value.sql})", ty.INT), ty.INT, call_name(e, node, value))


@translates(exp.DPipe, args="this expression safe")
def _pipe(e: Expressions, node: exp.DPipe) -> Value:
    if any(isinstance(o, exp.Add | exp.Sub) for o in (node.left, node.right)):
        raise NotTranslatable(node, "brackets are needed to say what belongs together")
    left, right = (_text(e, node, o) for o in (node.left, node.right))
    return Value(f"({left.sql} || {right.sql})", ty.STRING, named("concat({}, {})", left, right))


@translates(exp.Concat, args="expressions safe")
def _concat(e: Expressions, node: exp.Concat) -> Value:
    values = [_text(e, node, o) for o in node.expressions]
    if e.word(node) is None:  # literals side by side
        joined = "".join(str(v.literal) for v in values)
        return Value(text(joined), ty.STRING, joined, joined)
    return Value(f"({' || '.join(v.sql for v in values)})", ty.STRING, call_name(e, node, *values))


@translates(exp.ConcatWs, args="expressions safe")
def _concat_ws(e: Expressions, node: exp.ConcatWs) -> Value:
    values = [_text(e, node, o) for o in node.expressions]
    return Value(f"concat_ws({', '.join(v.sql for v in values)})", ty.STRING, call_name(e, node, *values))


@translates(exp.Substring, args="this start length")
def _substring(e: Expressions, node: exp.Substring) -> Value:
    value = _only_text(e, node, node.this)
    start, name = _whole(e, node, node.args["start"])
    length = node.args.get("length")
    count, count_name = ((1 << 31) - 1, "2147483647") if length is None else _whole(e, node, length)
    sql = _part(value.sql, start, count)
    word = e.word(node, ("substring", "substr"))
    known = value.name is not None and word is not None
    return Value(sql, ty.STRING, f"{str(word).lower()}({value.name}, {name}, {count_name})" if known else None)


def _part(sql: str, start: int, count: int) -> str:
    """``count`` characters from a place on; places before the first one count, too."""
    if start >= 0:
        return f"substring({sql}, {max(start, 1)}, {max(count, 0)})"
    first = f"length({sql}) - {-start}"
    return f"substring({sql}, greatest({first}, 0) + 1, greatest({first} + {count} - greatest({first}, 0), 0))"


@translates(exp.Left, exp.Right)
def _side(e: Expressions, node: exp.Left | exp.Right) -> Value:
    value = _only_text(e, node, node.this)
    count, name = _whole(e, node, node.expression)
    word = "left" if isinstance(node, exp.Left) else "right"
    start = 1 if isinstance(node, exp.Left) or count <= 0 else -count
    return Value(
        _part(value.sql, start, count), ty.STRING, None if value.name is None else f"{word}({value.name}, {name})"
    )


@translates(exp.Trim, args="this expression position")
def _trim(e: Expressions, node: exp.Trim) -> Value:
    value = _only_text(e, node, node.this)
    characters = node.args.get("expression")
    cut = "' '" if characters is None else _only_text(e, node, characters).sql
    function = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position") or "").upper(), "trim")
    name = named(f"{function}({{}})", value) if characters is None else None
    return Value(f"{function}({value.sql}, {cut})", ty.STRING, name)


@translates(exp.Replace, args="this expression replacement")
def _replace(e: Expressions, node: exp.Replace) -> Value:
    new = node.args.get("replacement")
    values = [_only_text(e, node, o) for o in (node.this, node.expression, new) if o is not None]
    if len(values) == 2:
        values.append(Value("''", ty.STRING, ""))
    return Value(f"replace({', '.join(v.sql for v in values)})", ty.STRING, call_name(e, node, *values))


@translates(exp.StrPosition, args="this substr")
def _position(e: Expressions, node: exp.StrPosition) -> Value:
    value, part = (_only_text(e, node, o) for o in (node.this, node.args["substr"]))
    word = (e.word(node) or "").lower()
    name = {"instr": named("instr({}, {})", value, part), "locate": named("locate({}, {}, 1)", part, value)}.get(word)
    return Value(cast_sql(f"instr({value.sql}, {part.sql})", ty.INT), ty.INT, name)


@translates(exp.StartsWith, exp.EndsWith, exp.Contains)
def _has(e: Expressions, node: exp.Func) -> Value:
    value, part = (_only_text(e, node, o) for o in (node.this, node.expression))
    function = {exp.StartsWith: "starts_with", exp.EndsWith: "ends_with", exp.Contains: "contains"}[type(node)]
    return Value(f"{function}({value.sql}, {part.sql})", ty.BOOLEAN, call_name(e, node, value, part))


@translates(exp.Pad, args="this expression fill_pattern is_left")
def _pad(e: Expressions, node: exp.Pad) -> Value:
    value = _only_text(e, node, node.this)
    length, name = _whole(e, node, node.expression)
    fill = Value("' '", ty.STRING, " ", " ")
    if node.args.get("fill_pattern") is not None:
        fill = _only_text(e, node, node.args["fill_pattern"])
    if length < 0 or not fill.literal:
        raise NotTranslatable(node, "only a text that is written out is known to mean the same")
    word = "lpad" if node.args.get("is_left") else "rpad"
    return Value(
        f"{word}({value.sql}, {length}, {fill.sql})", ty.STRING, named(f"{word}({{}}, {name}, {{}})", value, fill)
    )


@translates(exp.Repeat, args="this times")
def _repeat(e: Expressions, node: exp.Repeat) -> Value:
    value = _only_text(e, node, node.this)
    times, name = _whole(e, node, node.args["times"])
    return Value(f"repeat({value.sql}, {max(times, 0)})", ty.STRING, named(f"repeat({{}}, {name})", value))


@translates(exp.Reverse, args="this")
def _reverse(e: Expressions, node: exp.Reverse) -> Value:
    value = _only_text(e, node, node.this)
    sql = as_in_spark(
        f"reverse({value.sql})", f"strlen({value.sql}) <> length({value.sql})", "characters are counted differently"
    )
    return Value(f"({sql})", ty.STRING, call_name(e, node, value))


# --- numbers ----------------------------------------------------------------------------------------------------------


@translates(exp.Round, args="this decimals")
def _round(e: Expressions, node: exp.Round) -> Value:
    value = e.require(node, e.value(node.this), "number")
    decimals = node.args.get("decimals")
    places, name = (0, "0") if decimals is None else _whole(e, node, decimals)
    made = named(f"round({{}}, {name})", value)
    if places < 0 or places > 15 or value.type == ty.NULL:
        raise NotTranslatable(node, "it differs for such places")
    if value.type.is_integer:
        return Value(value.sql, value.type, made)
    if value.type.kind == "DECIMAL":
        scale = min(value.type.scale, places)
        to = ty.decimal(value.type.precision - value.type.scale + 1 + scale, scale)
        return Value(cast_sql(value.sql, to), to, made)
    # Spark rounds the digits that a double prints as.
    digits = cast_sql(cast_sql(f"CAST({value.sql} AS VARCHAR)", ty.decimal(38, places)), ty.STRING)
    large = f"NOT abs({value.sql}) < {_ROUND_LIMIT}"
    sql = as_in_spark(cast_sql(digits, ty.DOUBLE), large, "a number is too large to round")
    return Value(f"({sql})", ty.DOUBLE, made)


@translates(exp.Floor, exp.Ceil, args="this")
def _floor(e: Expressions, node: exp.Floor | exp.Ceil) -> Value:
    value = e.require(node, e.value(node.this), "number")
    word = "floor" if isinstance(node, exp.Floor) else "ceil"
    name = named(f"{(e.word(node) or word).upper()}({{}})", value)
    if value.type.kind == "DECIMAL":
        to = ty.decimal(value.type.precision - value.type.scale + 1, 0)
        return Value(cast_sql(f"{word}({value.sql})", to), to, name)
    return Value(
        cast_sql(f"{word}({cast(node, value, ty.DOUBLE)})" if value.type == ty.DOUBLE else value.sql, ty.BIGINT),
        ty.BIGINT,
        name,
    )


@translates(exp.IntDiv)
def _whole_division(e: Expressions, node: exp.IntDiv) -> Value:
    left, right = (e.require(node, e.value(o), "integer") for o in (node.left, node.right))
    if ty.NULL in (left.type, right.type) or right.literal == 0:
        raise NotTranslatable(node, "division by zero is an error in Spark alone")
    sql = f"{cast(node, left, ty.BIGINT)} // nullif({cast(node, right, ty.BIGINT)}, 0)"
    sql = sql if right.literal is not None else checked(sql, f"{right.sql} = 0", "division by zero")
    return Value(f"({sql})", ty.BIGINT, named("({} div {})", left, right))


@translates(exp.Sqrt, args="this")
def _root(e: Expressions, node: exp.Sqrt) -> Value:
    value = e.require(node, e.value(node.this), "number")
    return Value(f"sqrt({cast(node, value, ty.DOUBLE)})", ty.DOUBLE, named("SQRT({})", value))


@translates(exp.Sign, args="this")
def _sign(e: Expressions, node: exp.Sign) -> Value:
    value = e.require(node, e.value(node.this), "number")
    as_it_is = cast(node, value, ty.DOUBLE)  # 0, -0.0, NaN
    number = f"NOT isnan({value.sql}) AND " if value.type == ty.DOUBLE else ""
    sql = f"(CASE WHEN {number}{value.sql} > 0 THEN 1e0 WHEN {value.sql} < 0 THEN -1e0 ELSE {as_it_is} END)"
    return Value(cast_sql(sql, ty.DOUBLE), ty.DOUBLE, call_name(e, node, value))


@translates(exp.WidthBucket, args="this min_value max_value num_buckets")
def _width_bucket(e: Expressions, node: exp.WidthBucket) -> Value:
    names = ("this", "min_value", "max_value", "num_buckets")
    operands = [e.require(node, e.value(node.args[name]), "number") for name in names]
    if not operands[3].type.is_integer:
        raise NotTranslatable(node, "the number of buckets must be an integer")
    v, start, end = (cast(node, o, ty.DOUBLE) for o in operands[:3])
    n = cast(node, operands[3], ty.BIGINT)
    nulls = " OR ".join(f"{x} IS NULL" for x in (v, start, end, n))
    nulls += f" OR {n} <= 0 OR {n} = {2**63 - 1} OR {start} = {end}"
    nulls += f" OR isnan({v}) OR NOT isfinite({start}) OR NOT isfinite({end})"

    def bucket(before: str, after: str, inside: str) -> str:
        place = f"CAST(trunc(CAST({n} AS DOUBLE) * {inside}) AS BIGINT) + 1"
        return f"CASE WHEN {before} THEN 0 WHEN {after} THEN {n} + 1 ELSE {place} END"

    up = bucket(f"{v} < {start}", f"{v} >= {end}", f"({v} - {start}) / ({end} - {start})")
    down = bucket(f"{v} > {start}", f"{v} <= {end}", f"({start} - {v}) / ({start} - {end})")
    sql = f"(CASE WHEN {nulls} THEN NULL WHEN {start} < {end} THEN {up} ELSE {down} END)"
    return Value(cast_sql(sql, ty.BIGINT), ty.BIGINT, call_name(e, node, *operands))


# --- dates and timestamps ---------------------------------------------------------------------------------------------

_FIELDS = {
    exp.Year: "year",
    exp.Month: "month",
    exp.Day: "day",
    exp.DayOfMonth: "day",
    exp.Quarter: "quarter",
    exp.DayOfYear: "dayofyear",
    exp.WeekOfYear: "weekofyear",
    exp.DayOfWeek: "dayofweek",
}
_EXTRACTED = ("YEAR", "MONTH", "DAY", "QUARTER", "WEEK", "DAYOFWEEK", "DOW", "DOY")
_CLOCK = {exp.Hour: "hour", exp.Minute: "minute", exp.Second: "second"}


def _date(e: Expressions, node: exp.Expr, operand: Any) -> Value:
    """A date; of a timestamp that of the session's zone, of a text what is written out."""
    while isinstance(operand, exp.TsOrDsToDate) and e.word(operand) is None and not operand.args.get("format"):
        operand = operand.this
    value = e.value(operand)
    if value.type not in (ty.DATE, ty.TIMESTAMP, ty.TIMESTAMP_NTZ, ty.STRING):
        raise NotTranslatable(node, f"it differs for values of type {value.type.sql}")
    return Value(f"({cast(node, value, ty.DATE)})", ty.DATE, value.name)


def _field(field: str, sql: str) -> str:
    return cast_sql(f"{field}({sql})" + (" + 1" if field == "dayofweek" else ""), ty.INT)


@translates(*_FIELDS, args="this")
def _part_of_date(e: Expressions, node: exp.Func) -> Value:
    date = _date(e, node, node.this)
    return Value(_field(_FIELDS[type(node)], date.sql), ty.INT, call_name(e, node, date))


@translates(*_CLOCK, args="this")
def _part_of_time(e: Expressions, node: exp.Func) -> Value:
    value = e.require(node, e.value(node.this), "TIMESTAMP_NTZ", "TIMESTAMP")
    sql = _field(_CLOCK[type(node)], value.sql)
    return Value(in_rule_years(sql, value), ty.INT, call_name(e, node, value))


@translates(exp.Extract)
def _extract(e: Expressions, node: exp.Extract) -> Value:
    field = node.this.name.upper()
    if field not in _EXTRACTED:
        raise NotTranslatable(node, "this field differs")
    date = _date(e, node, node.expression)
    function = {"DOW": "dayofweek", "DOY": "dayofyear", "WEEK": "weekofyear"}.get(field, field.lower())
    return Value(_field(function, date.sql), ty.INT)


@translates(exp.TsOrDsToDate, exp.Date, args="this safe")
def _to_date(e: Expressions, node: exp.Func) -> Value:
    return _date(e, node, node.this).named(call_name(e, node, e.value(node.this)))


@translates(exp.TsOrDsAdd, args="this expression unit")
def _add_days(e: Expressions, node: exp.TsOrDsAdd) -> Value:
    unit, days = node.args.get("unit"), node.expression
    if unit is not None and unit.name.upper() != "DAY":
        raise NotTranslatable(node, "only days are added")
    subtracts = (e.word(node) or "").lower() == "date_sub" and isinstance(days, exp.Mul)
    date = _date(e, node, node.this)
    count = e.require(node, e.value(days.this if subtracts else days), "INT", "SMALLINT", "TINYINT")
    sql = f"{date.sql} {'-' if subtracts else '+'} {cast(node, count, ty.INT)}"
    return Value(cast_sql(sql, ty.DATE), ty.DATE, call_name(e, node, date, count))


@translates(exp.AddMonths)
def _add_months(e: Expressions, node: exp.AddMonths) -> Value:
    date, count = _date(e, node, node.this), e.require(node, e.value(node.expression), "INT", "SMALLINT", "TINYINT")
    sql = f"{date.sql} + to_months({cast(node, count, ty.INT)})"
    return Value(cast_sql(sql, ty.DATE), ty.DATE, call_name(e, node, date, count))


@translates(exp.DateDiff, args="this expression")
def _days_between(e: Expressions, node: exp.DateDiff) -> Value:
    if (e.word(node) or "").lower() not in ("datediff", "date_diff"):
        raise NotTranslatable(node, "this unit differs")
    end, start = _date(e, node, node.this), _date(e, node, node.expression)
    return Value(cast_sql(f"{end.sql} - {start.sql}", ty.INT), ty.INT, call_name(e, node, end, start))


@translates(exp.LastDay, args="this")
def _last_day(e: Expressions, node: exp.LastDay) -> Value:
    date = _date(e, node, node.this)
    return Value(f"last_day({date.sql})", ty.DATE, call_name(e, node, date))


_UNITS = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), "year"),
    **dict.fromkeys(("MONTH", "MM", "MON"), "month"),
    "QUARTER": "quarter",
    "WEEK": "week",
}


@translates(exp.DateTrunc, exp.TimestampTrunc, args="this unit")
def _truncated(e: Expressions, node: exp.DateTrunc | exp.TimestampTrunc) -> Value:
    word = (e.word(node) or "").lower()
    written = node.args["unit"].name
    unit = _UNITS.get(written.upper())
    if unit is None or (word == "date_trunc" and e.timezone != "UTC") or word not in ("trunc", "date_trunc"):
        raise NotTranslatable(node, "it depends on the session's zone")
    date = _date(e, node, node.this)
    if word == "date_trunc":
        return Value(cast_sql(f"date_trunc('{unit}', {date.sql})", ty.TIMESTAMP), ty.TIMESTAMP)
    name = None if date.name is None else f"trunc({date.name}, {written})"
    return Value(cast_sql(f"date_trunc('{unit}', {date.sql})", ty.DATE), ty.DATE, name)


_PATTERNS = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}


@translates(exp.TimeToStr, args="this format")
def _formatted(e: Expressions, node: exp.TimeToStr) -> Value:
    operand = node.this.this if isinstance(node.this, exp.TimeStrToTime) else node.this
    value, pattern = e.value(operand), e.pattern(node)
    parts = re.findall("[A-Za-z]+|[^A-Za-z]+", pattern or "")
    letters = {p for p in parts if p[0].isalpha()}
    known = letters and letters <= _PATTERNS.keys() and not set("'[]{}#%") & set(pattern or "")
    e.require(node, value, "DATE", "TIMESTAMP_NTZ")
    if value.type == ty.NULL or not known:
        raise NotTranslatable(node, "patterns of this kind differ")
    written = "".join(_PATTERNS.get(p, p) for p in parts)
    sql = f"strftime(CAST({value.sql} AS TIMESTAMP), {text(written)})"
    sql = as_in_spark(sql, f"year({value.sql}) NOT BETWEEN 1 AND 9999", "Spark writes this year with a sign")
    return Value(f"({sql})", ty.STRING, named(f"date_format({{}}, {pattern})", value))


@translates(exp.JSONExtractScalar)
def _json_value(e: Expressions, node: exp.JSONExtractScalar) -> Value:
    value, path = _only_text(e, node, node.this), e.value(node.expression)
    if not isinstance(path.literal, str):
        raise NotTranslatable(node, "only a path that is written out is known to mean the same")
    try:
        path_names(path.literal)
    except Refused as refused:
        raise NotTranslatable(node, str(refused)) from refused
    return Value(f"{JSON_VALUE}({value.sql}, {text(path.literal)})", ty.STRING, call_name(e, node, value, path))


# --- functions that sqlglot knows by name only ------------------------------------------------------------------------


def _hash(node: exp.Expr, values: Sequence[Value], name: str | None) -> Value:
    """Spark's hash: each value's hash is the seed of the next one's."""
    sql = str(HASH_SEED)
    for value in values:
        kind = value.type
        if kind == ty.NULL:
            continue
        if kind.is_integer or kind == ty.BOOLEAN:
            wide = ty.BIGINT if kind == ty.BIGINT else ty.INT
            argument = cast_sql(value.sql, wide)
        elif kind == ty.DATE:
            wide, argument = ty.INT, cast_sql(f"datediff('day', DATE '1970-01-01', {value.sql})", ty.INT)
        elif kind == ty.STRING and not value.char:
            wide, argument = kind, value.sql
        else:
            raise NotTranslatable(node, f"it differs for values of type {kind.sql}")
        sql = f"{HASHES[wide.duckdb][0]}({argument}, {sql})"
    return Value(sql, ty.INT, name)


@translates(exp.Anonymous, args="this expressions")
def _by_name(e: Expressions, node: exp.Anonymous) -> Value:
    word = str(node.this).lower()
    if word in TOKEN_TESTS:
        return token_test(e, node)
    if word == "arrays_overlap":
        return arrays_overlap(e, node)
    values = e.values(node.expressions)
    name = call_name(e, node, *values)
    match word, values:
        case "isnull" | "isnotnull", [value]:
            negated = " NOT" if word == "isnotnull" else ""
            return Value(f"({value.sql} IS{negated} NULL)", ty.BOOLEAN, named(f"({{}} IS{negated} NULL)", value))
        case "pmod", [left, right] if left.type.is_integer and right.type.is_integer:
            rest = calculated(node, "%", left, right)
            by = cast(node, right, rest.type)
            sql = f"(CASE WHEN {rest.sql} < 0 THEN ({rest.sql} + {by}) % {by} ELSE {rest.sql} END)"
            return Value(cast_sql(sql, rest.type), rest.type, name)
        case "hash", [_, *_]:
            return _hash(node, values, name)
        case "make_date", [_, _, _] if all(v.type.is_integer for v in values):
            parts = ", ".join(cast(node, v, ty.INT) for v in values)
            return Value(f"make_date({parts})", ty.DATE, name)
    raise NotTranslatable(node, "it is not among the expressions that mean the same in both")


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
    if not nodes or nodes[0] is None:
        raise NotTranslatable(node, "it has no argument")
    if isinstance(node, exp.Count) and isinstance(nodes[0], exp.Star):
        if distinct or len(nodes) > 1 or not scope.only(nodes[0], set()):
            raise NotTranslatable(node, "its star stands for columns")
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


JSON_VALUE = "bitlake_get_json_object"


def register_kernels(instance: Any) -> None:
    """Register the functions in an instance of DuckDB, for all of its cursors."""
    instance.create_function(
        JSON_VALUE, _json_kernel, ["VARCHAR", "VARCHAR"], "VARCHAR", type="arrow", null_handling="special"
    )
    for kind, (name, function) in HASHES.items():
        instance.create_function(name, function, [kind, "INTEGER"], "INTEGER", type="arrow", null_handling="special")
    # DuckDB reports a leak on stderr if an instance with such functions is open when the interpreter ends.
    atexit.register(_close, weakref.ref(instance), os.getpid())


def _close(instance: weakref.ref[Any], process: int) -> None:
    opened = instance()
    if opened is not None and process == os.getpid():  # not the parent's
        opened.close()


def _json_kernel(texts: pa.ChunkedArray, paths: pa.ChunkedArray) -> pa.Array:
    array = texts.combine_chunks()
    if not len(array):
        return pa.array([], pa.string())
    path = paths[0].as_py()  # a constant
    values, unknown = json_values(array, path_names(path))
    if unknown.any():
        raise EvaluationFailed(f"only Spark can tell the value at '{path}' of some row")
    return values


def _hash_of(root: Root) -> Callable[[pa.ChunkedArray, pa.ChunkedArray], pa.Array]:
    def of_vector(values: pa.ChunkedArray, seeds: pa.ChunkedArray) -> pa.Array:
        return pa.array(spark_hash(values.combine_chunks(), root, seeds.to_numpy().astype(np.int32)))

    return of_vector


HASHES = {
    "INTEGER": ("bitlake_hash_int", _hash_of(Root.INT)),
    "BIGINT": ("bitlake_hash_bigint", _hash_of(Root.BIGINT)),
    "VARCHAR": ("bitlake_hash_text", _hash_of(Root.VARCHAR)),
}
"""By the type of the value: the name of the function of a value and a seed, and the function.

They last as long as the process: DuckDB calls them for relations that outlive the instance they were registered with.
"""
