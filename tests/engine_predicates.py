"""Random predicates for engines that read datasets, each as bitlake, DuckDB, Polars and DataFusion write it."""

from __future__ import annotations

import functools
import math
import operator
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa

import bitlake
from bitlake.expressions.condition import Condition

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_JOINS: dict[str, Callable[[Any, Any], Any]] = {"AND": operator.and_, "OR": operator.or_}
COUNTED = ["comparison", "IN", "NULL test", "AND", "OR"]


@dataclass(frozen=True)
class Term:
    """A comparison, IN or NULL test of a column with constants of its type, or AND, OR, NOT of other terms."""

    kind: str
    column: str = ""
    type: Any = None
    operator: str = ""
    values: tuple[Any, ...] = ()
    parts: tuple[Term, ...] = ()

    def nodes(self) -> Iterator[Term]:
        """The term and all those below it."""
        yield self
        for part in self.parts:
            yield from part.nodes()

    def columns(self) -> set[str]:
        """The columns that the term reads."""
        return {n.column for n in self.nodes() if n.column}

    def __str__(self) -> str:
        return in_sql(self)


def random_term(rng: random.Random, rows: pa.Table, columns: Sequence[str], depth: int) -> Term:
    """A term whose constants are values of the rows, NaN and infinities less often than others."""
    if depth:
        kind = rng.choice(["AND", "AND", "OR", "OR", "NOT"])
        count = 1 if kind == "NOT" else rng.choice([2, 2, 3])
        return Term(kind, parts=tuple(random_term(rng, rows, columns, rng.randrange(depth)) for _ in range(count)))
    column = rng.choice(columns)
    type = rows.schema.field(column).type
    values = [v for v in rows.column(column).take(rng.sample(range(len(rows)), 4)).to_pylist() if v is not None]
    values = [v for v in values if not isinstance(v, float) or math.isfinite(v) or rng.random() < 0.2]
    kind = rng.choice(["comparison"] * 4 + ["IN", "IN", "NULL test"])
    if kind == "NULL test" or not values:
        return Term("NULL test", column, type, rng.choice(["IS NULL", "IS NOT NULL"]))
    if kind == "IN":
        return Term(kind, column, type, rng.choice(["IN", "NOT IN"]), tuple(values))
    return Term(kind, column, type, rng.choice(["=", *OPERATORS]), (values[0],))


def in_bitlake(term: Term) -> Condition:
    """The term as a condition of a scan."""
    return _built(
        term,
        bitlake.col,
        lambda value, type: value,
        lambda column, term: column.isin(term.values),
        lambda column: column.is_null(),
    )


def in_polars(term: Term) -> pl.Expr:
    """The term as an expression of Polars."""
    return _built(
        term,
        pl.col,
        lambda value, type: pl.lit(value) if isinstance(value, bytes) else value,
        lambda column, term: column.is_in(term.values),
        lambda column: column.is_null(),
        negated_null=lambda column: column.is_not_null(),
    )


def in_datafusion(term: Term) -> Any:
    """The term as an expression of DataFusion."""
    import datafusion  # tests run without it

    def literal(value: Any, type: Any) -> Any:
        return datafusion.literal(pa.scalar(value, type))

    return _built(
        term,
        datafusion.col,
        literal,
        lambda column, term: datafusion.functions.in_list(column, [literal(v, term.type) for v in term.values], False),
        lambda column: column.is_null(),
        negated_null=lambda column: column.is_not_null(),
    )


def _built(
    term: Term,
    column: Callable[[str], Any],
    literal: Callable[[Any, Any], Any],
    isin: Callable[[Any, Term], Any],
    is_null: Callable[[Any], Any],
    negated_null: Callable[[Any], Any] | None = None,
) -> Any:
    """The term in a language whose expressions overload operators."""

    def built(term: Term) -> Any:
        if term.kind == "NOT":
            return ~built(term.parts[0])
        if term.kind in _JOINS:
            return functools.reduce(_JOINS[term.kind], map(built, term.parts))
        name = column(term.column)
        if term.operator == "IS NOT NULL" and negated_null is not None:
            return negated_null(name)
        if term.kind == "NULL test":
            return is_null(name) if term.operator == "IS NULL" else ~is_null(name)
        if term.kind == "IN":
            return isin(name, term) if term.operator == "IN" else ~isin(name, term)
        return OPERATORS[term.operator](name, literal(term.values[0], term.type))

    return built(term)


def in_sql(term: Term, spark: bool = False) -> str:
    """The term as SQL of DuckDB or Spark."""
    if term.kind == "NOT":
        return f"NOT ({in_sql(term.parts[0], spark)})"
    if term.kind in _JOINS:
        return f" {term.kind} ".join(f"({in_sql(p, spark)})" for p in term.parts)
    constants = [(_in_spark if spark else _in_duckdb)(v, term.type) for v in term.values]
    if term.kind == "IN":
        return f"{term.column} {term.operator} ({', '.join(constants)})"
    return " ".join([term.column, term.operator, *constants])


def _in_spark(value: Any, type: pa.DataType) -> str:
    """A constant, written as a user of Spark would."""
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if pa.types.is_decimal(type):
        return f"{value:f}BD"
    if pa.types.is_floating(type):
        if not math.isfinite(value):
            name = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
            return f"{'FLOAT' if type == pa.float32() else 'DOUBLE'}('{name}')"
        return f"CAST({value!r}D AS FLOAT)" if type == pa.float32() else f"{value!r}D"
    if pa.types.is_date(type):
        return f"DATE '{value}'"
    if pa.types.is_timestamp(type):
        return f"TIMESTAMP{'' if type.tz else '_NTZ'} '{value}'"
    return str(value)


def _in_duckdb(value: Any, type: pa.DataType) -> str:
    """A constant, written as a user of DuckDB would."""
    if isinstance(value, bytes):
        return "'" + "".join(f"\\x{b:02X}" for b in value) + "'::BLOB"
    if isinstance(value, str):
        return "'" + value.replace("'", "''").replace("\0", "' || chr(0) || '") + "'"
    if pa.types.is_decimal(type):
        return f"{value:f}"
    if pa.types.is_floating(type):
        return f"'{value}'::{'FLOAT' if type == pa.float32() else 'DOUBLE'}"
    if pa.types.is_date(type):
        return f"DATE '{value}'"
    if pa.types.is_timestamp(type):
        return f"TIMESTAMP{'TZ' if type.tz else ''} '{value}'"
    return str(value)
