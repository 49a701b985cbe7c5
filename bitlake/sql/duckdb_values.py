"""Expressions in DuckDB's SQL with the type that Spark gives them; casts and divisions that give Spark's values.

Where the two engines differ for some values only, the SQL checks each value and raises an error for these, so that no
other value is returned: ``bitlake sql --engine auto`` then runs the query on Spark.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from sqlglot import exp

from bitlake.errors import InvalidRequest, UnsupportedFeature
from bitlake.expressions import literals
from bitlake.expressions.spark_dialect import SparkSql
from bitlake.metadata.schema import MissingColumn
from bitlake.sql import spark_types as ty
from bitlake.sql.spark_types import SparkType
from bitlake.types.datatypes import AtomicType, DataType, Root, RowType
from bitlake.types.time_zone import RULE_YEARS

_EXACT_DIGITS = 15
"""Decimals of that many digits have a double that prints as them."""
_DIVIDED_SCALE = 39
"""Spark rounds a quotient of decimals to that many places first, then to those of its type."""
RULE_YEARS_SQL = "BETWEEN TIMESTAMPTZ '{}-01-01 00:00:00+00' AND TIMESTAMPTZ '{}-01-01 00:00:00+00'".format(*RULE_YEARS)
"""SQL: an instant lies in the years in which the rules of zones are compared with Spark's before a query runs."""
ZONE_DIFFERS = "this process and Spark have different rules for the session's time zone"
_PLAIN = re.compile(r"(?!current_|session_|local|all$|user$|now$|grouping__id$)[a-z]\w*")
"""Names that are not Spark's own, as those of metadata columns and of functions that are called without brackets."""
_TEXT_FORMS = {
    "DOUBLE": "-?[0-9]{1,15}(\\.[0-9]{1,15})?",
    "DATE": "[0-9]{4}-[0-9]{2}-[0-9]{2}",
    "TIMESTAMP_NTZ": "[0-9]{4}-[0-9]{2}-[0-9]{2} ([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?",
    "BOOLEAN": "(?i)true|false",
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT"), "-?[0-9]{1,18}"),
}
"""Texts that both engines cast to the same value."""


class LeftToSpark(UnsupportedFeature):
    """A query that cannot run without Spark, which may be able to run it."""


class NotTranslatable(LeftToSpark):
    """Part of a query has no DuckDB equivalent with the same result."""

    def __init__(self, node: exp.Expr | str, why: str) -> None:
        self.part = str(node) if isinstance(node, str) else node.sql(dialect=SparkSql)
        self.why = why
        super().__init__(f"DuckDB cannot run '{self.part}' as Spark does: {why}; use engine='spark'")


class NotParsed(LeftToSpark):
    """A query that cannot be parsed without Spark, which may know its syntax."""

    def __init__(self, error: InvalidRequest) -> None:
        super().__init__(f"cannot parse the query; if Spark can, use engine='spark': {error}")


class UnknownColumn(NotTranslatable):
    """A query names a column that is not found where Spark may find one.

    ``sources`` are the tables and derived tables beside it: their aliases, and the names of their columns.
    """

    def __init__(self, node: exp.Column, sources: Sequence[tuple[str, Sequence[str]]]) -> None:
        super().__init__(node, "no column has this name")
        self.node, self.sources = node, sources

    def missing(self, tree: exp.Expr, columns: Collection[str]) -> MissingColumn | None:
        """The error where Spark, too, has no such column; None where that is not certain.

        ``tree`` is that of the whole query, and ``columns`` are those of all its tables.  What may name a column
        elsewhere in the query, such as an alias or a parameter of a lambda function, leaves it open.
        """
        name, qualifier = self.node.name.lower(), self.node.table.lower()
        others = {
            i.name.lower() for i in tree.find_all(exp.Identifier) if not isinstance(i.parent, exp.Column | exp.Join)
        }
        columns = {c.lower() for c in columns}
        aliases = {alias.lower() for alias, _ in self.sources}
        known = all(c for _, names in self.sources for c in names) and (
            not qualifier or (qualifier not in columns and (qualifier in aliases or qualifier not in others))
        )
        if not known or name in columns or name in others or not _PLAIN.fullmatch(name):
            return None
        alone = len(self.sources) == 1 and not qualifier
        offered = [c if alone else f"{alias}.{c}" for alias, names in self.sources for c in names]
        return MissingColumn(self.node.name if not qualifier else f"{self.node.table}.{self.node.name}", offered)


@dataclass(frozen=True, slots=True)
class Value:
    """An expression: its SQL, its type by Spark, and the name that Spark gives to a column of it, if known.

    ``literal``: the value of a number or text that is written out, which Spark types by its digits.  ``char``: the
    length of a column of type CHAR, with which Spark compares texts that are as long.  ``nested``: the type of a column
    of arrays, maps or structs.
    """

    sql: str
    type: SparkType
    name: str | None = None
    literal: int | Decimal | str | None = None
    char: int = 0
    nested: DataType | None = None

    def named(self, name: str | None) -> Value:
        """The value under another name."""
        return replace(self, name=name)


def text(value: str) -> str:
    """A text as a literal of DuckDB's."""
    return "'" + value.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """A name in DuckDB's quotes."""
    return '"' + name.replace('"', '""') + '"'


def cast_sql(sql: str, kind: SparkType) -> str:
    """A cast in DuckDB's SQL."""
    return f"CAST({sql} AS {kind.duckdb})"


def stored_value(sql: str, kind: DataType, name: str) -> Value:
    """A stored value, such as a column's, in Spark's type: Arrow's wall clocks of milliseconds are a type of DuckDB."""
    if not isinstance(kind, AtomicType):
        return Value(sql, ty.OPAQUE, name, nested=kind)
    made = ty.of_column(kind)
    char = kind.length or 1 if kind.root is Root.CHAR else 0
    return Value(cast_sql(sql, made) if made == ty.TIMESTAMP_NTZ else sql, made, name, char=char)


def struct_field(struct: Value, name: str) -> Value | None:
    """A field of a struct by its name in any case; None if there is none, or several."""
    if not isinstance(struct.nested, RowType):
        return None
    fields = [f for f in struct.nested.fields if f.name.lower() == name.lower()]
    if len(fields) != 1:
        return None
    return stored_value(f"struct_extract({struct.sql}, {text(fields[0].name)})", fields[0].type, fields[0].name)


def number(value: int | Decimal, kind: SparkType | None = None, name: str | None = None) -> Value:
    """A number that is written out."""
    made = kind or (ty.of_integer(value) if isinstance(value, int) else ty.of_decimal(value))
    digits = text(format(value, "f")) if isinstance(value, Decimal) else str(value)
    return Value(cast_sql(digits, made), made, name, value)


def checked(sql: str, fails: str, why: str) -> str:
    """The expression, or an error where a condition holds."""
    return f"CASE WHEN {fails} THEN error({text(why)}) ELSE {sql} END"


def as_in_spark(sql: str, differs: str, why: str) -> str:
    """Return the expression; raise an error where Spark's value differs."""
    return checked(sql, differs, f"{why}; use engine='spark'")


def widen(node: exp.Expr, value: Value, to: SparkType) -> str:
    """The SQL of a value in the common type of several, where Spark casts it without being asked."""
    if value.type == to:
        return value.sql
    if isinstance(value.literal, int) and to.kind == "DECIMAL":
        return cast_sql(str(value.literal), to)
    return cast(node, value, to)


def cast(node: exp.Expr, value: Value, to: SparkType) -> str:
    """The SQL of ``CAST(value AS to)``; raises :class:`NotTranslatable` for casts that give other values."""
    source, sql = value.type, value.sql
    if source == to or source == ty.NULL:
        return cast_sql(sql, to) if source == ty.NULL else sql
    if to == ty.OPAQUE or source == ty.OPAQUE:
        raise NotTranslatable(node, "the type is not known")
    if source.is_integer:
        if to.kind == "BOOLEAN":
            return f"({sql} <> 0)"
        if to.is_number or to == ty.STRING:
            return cast_sql(sql, to)
    elif source.kind == "DECIMAL":
        return _of_decimal(node, value, to)
    elif source.is_floating:
        if to.is_floating:
            return cast_sql(sql, to)
        if to.is_integer:
            return cast_sql(f"trunc({sql})", to)
    elif source == ty.BOOLEAN and (to.is_integer or to == ty.STRING):
        return cast_sql(sql, to)
    elif source == ty.STRING:
        return _of_text(node, value, to)
    elif source.is_time:
        return _of_time(node, value, to)
    raise NotTranslatable(node, f"casts from {source.sql} to {to.sql} give other values")


def _of_decimal(node: exp.Expr, value: Value, to: SparkType) -> str:
    source, sql = value.type, value.sql
    if to.kind == "DECIMAL":
        return cast_sql(sql, to)
    if to.is_integer:
        return cast_sql(f"trunc({sql})", to)
    if to == ty.STRING and source.precision < ty.MAX_PRECISION:
        # Without a digit before the point, DuckDB writes .05
        return cast_sql(cast_sql(sql, ty.decimal(source.precision + 1, source.scale)), to)
    if to == ty.DOUBLE:
        return cast_sql(sql if source.precision <= _EXACT_DIGITS else f"CAST({sql} AS VARCHAR)", to)
    raise NotTranslatable(node, f"casts from {source.sql} to {to.sql} give other values")


def _of_text(node: exp.Expr, value: Value, to: SparkType) -> str:
    if isinstance(value.literal, str) and to.is_time:
        return time_literal(node, value.literal, to)
    if to.is_floating and value.literal in ("NaN", "Infinity", "-Infinity"):
        return cast_sql(value.sql, to)
    form = _TEXT_FORMS.get(to.kind)
    if to.kind == "DECIMAL":
        whole = min(to.precision - to.scale, 18)
        form = f"-?[0-9]{{1,{whole}}}(\\.[0-9]{{1,{to.scale}}})?" if whole and to.scale else None
    if form is None:
        raise NotTranslatable(node, f"casts of texts to {to.sql} differ")
    why = f"a text may mean another {to.sql} to Spark"
    return as_in_spark(cast_sql(value.sql, to), f"NOT regexp_full_match({value.sql}, {text(form)})", why)


def time_literal(node: exp.Expr, value: str, to: SparkType) -> str:
    """A text that is written out as a date or a wall clock, if both engines read it alike."""
    if to == ty.DATE:
        date = literals.parse_date(value)
        if date is not None:
            return f"DATE '{date.isoformat()}'"
    elif to == ty.TIMESTAMP_NTZ:
        stamp = literals.parse_timestamp(value)
        if stamp is not None and stamp.tzinfo is None:
            return f"TIMESTAMP '{stamp.isoformat(' ')}'"
    raise NotTranslatable(node, f"'{value}' may mean another {to.sql} to Spark")


def _of_time(node: exp.Expr, value: Value, to: SparkType) -> str:
    source, sql = value.type, value.sql
    if source == ty.TIMESTAMP and to == ty.DATE:
        return in_rule_years(cast_sql(sql, to), value)
    if {source, to} == {ty.DATE, ty.TIMESTAMP_NTZ}:
        return cast_sql(sql, to)
    if source != ty.TIMESTAMP and to == ty.STRING:
        return as_in_spark(
            cast_sql(sql, to), f"year({sql}) NOT BETWEEN 1 AND 9999", "Spark writes this year with a sign"
        )
    raise NotTranslatable(node, f"casts from {source.sql} to {to.sql} depend on the session's zone")


def in_rule_years(sql: str, value: Value) -> str:
    """What is made of a value, or an error for an instant of years in which zones may have other rules."""
    if value.type != ty.TIMESTAMP:
        return sql
    why = "the session's zone may have other rules in this year"
    return f"({as_in_spark(sql, f'{value.sql} NOT {RULE_YEARS_SQL}', why)})"


def divided(dividend: str, a: SparkType, divisor: str, b: SparkType, to: SparkType) -> str:
    """The quotient of two decimals, rounded half up to the places of a type, as whole numbers of 128 bits."""
    shift = to.scale + b.scale - a.scale
    if shift < 0 or shift > ty.MAX_PRECISION:
        raise NotTranslatable(dividend, "its type has fewer places than its operands")
    n = f"(CAST({_unscaled(dividend, a)} AS HUGEINT) * {10**shift}::HUGEINT)"
    d = _unscaled(divisor, b)
    # The remainder decides; a quotient rounded twice, as Spark's is, differs for longer divisors only.
    up = (
        f"CASE WHEN abs({n} % {d}) >= abs({d}) - abs({n} % {d}) THEN sign({n})::HUGEINT * sign({d})::HUGEINT ELSE 0 END"
    )
    whole = f"CAST({n} // {d} + {up} AS DECIMAL({ty.MAX_PRECISION}, 0))"
    unit = number(Decimal(1).scaleb(-to.scale)).sql
    made = cast_sql(f"{whole} * {unit}" if to.scale else whole, to)
    if b.precision > _DIVIDED_SCALE - to.scale:
        made = as_in_spark(made, f"abs({d}) >= {10 ** (_DIVIDED_SCALE - to.scale)}::HUGEINT", "the divisor is too long")
    return made


def _unscaled(sql: str, kind: SparkType) -> str:
    """A decimal as the whole number of its last places."""
    if not kind.scale:
        return f"CAST({sql} AS HUGEINT)"
    power = ty.decimal(kind.scale + 1, 0)
    return f"CAST({sql} * CAST({10**kind.scale} AS {power.duckdb}) AS HUGEINT)"
