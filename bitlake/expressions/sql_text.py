"""Predicates as SQL, for people: plans, explanations, messages."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np

from bitlake.expressions.tree import (
    And,
    Between,
    Comparison,
    Computed,
    Constant,
    In,
    IndexedExpression,
    IsNull,
    Like,
    MapKey,
    Not,
    Or,
    Predicate,
    TupleIn,
)
from bitlake.types import time_zone
from bitlake.types.arrow import UNITS_PER_SECOND, timestamp_unit
from bitlake.types.datatypes import TIMESTAMPS, AtomicType, DataField, MapType, Root

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MOST = 20


def to_sql(
    predicate: Predicate,
    fields: Iterable[DataField] | None = None,
    limit: int = _MOST,
    names: Mapping[str, str] | None = None,
) -> str:
    """The predicate as Spark SQL; lists of more than ``limit`` values are shortened with their count.

    With the ``fields`` a tree is bound to, physical dates, decimals and timestamps are printed as literals.  ``names``
    has the text of columns that are not printed by their names.

    >>> to_sql(And((Comparison("a", Op.GT, 1), Or((IsNull("b"), Like("b", "x%"))))))
    "a > 1 AND (b IS NULL OR b LIKE 'x%')"
    """
    return _Printer({f.name: f.type for f in fields or ()}, limit, names).print(predicate, 0)


def value_to_sql(column: str, value: Any, fields: Iterable[DataField]) -> str:
    """A physical value of one of these columns as a literal of Spark SQL."""
    return _Printer({f.name: f.type for f in fields}, _MOST).literal(column, value)


def quoted(*parts: str) -> str:
    """A name in backticks; of several parts, with dots between them."""
    return ".".join("`" + p.replace("`", "``") + "`" for p in parts)


class _Printer:
    def __init__(self, types: dict[str, Any], limit: int, names: Mapping[str, str] | None = None) -> None:
        self.types = types
        self.limit = limit
        self.names = names or {}

    def name(self, column: str) -> str:
        """A column as SQL."""
        return self.names.get(column) or name(column)

    def print(self, node: Predicate, level: int) -> str:
        """SQL text; ``level`` 0 stands free, 1 is inside OR, 2 inside AND, 3 below NOT."""
        match node:
            case Constant(value):
                return "NULL" if value is None else str(value).upper()
            case And(children) | Or(children):
                own = 2 if isinstance(node, And) else 1
                if not children:
                    return "TRUE" if own == 2 else "FALSE"
                text = (" AND " if own == 2 else " OR ").join(self.print(c, own) for c in children)
                return f"({text})" if level > own and len(children) > 1 else text
            case Not(child):
                return f"NOT ({self.print(child, 0)})"
            case Comparison(column, op, value):
                return f"{self.name(column)} {op.value} {self.literal(column, value)}"
            case IsNull(column, negated):
                return f"{self.name(column)} IS {'NOT ' if negated else ''}NULL"
            case Between(column, low, high, negated):
                between = f"{'NOT ' if negated else ''}BETWEEN"
                return f"{self.name(column)} {between} {self.literal(column, low)} AND {self.literal(column, high)}"
            case Like(column, pattern, negated, escape):
                tail = "" if escape == "\\" else f" ESCAPE {quote(escape)}"
                return f"{self.name(column)} {'NOT ' if negated else ''}LIKE {quote(pattern)}{tail}"
            case Computed(test, negated):
                text = test.sql() or str(test)
                return f"NOT ({text})" if negated else text
            case In(column, values, negated):
                shown = [self.literal(column, v) for v in values[: self.limit]]
                if len(values) > self.limit:
                    shown.append(f"… {len(values) - self.limit:,} more")
                return f"{self.name(column)} {'NOT ' if negated else ''}IN ({', '.join(shown)})"
            case TupleIn(columns, _, negated):
                return f"({', '.join(map(self.name, columns))}) {'NOT ' if negated else ''}IN {self.tuples(node)}"

    def tuples(self, node: TupleIn) -> str:
        """The list of tuples, with literals whose types are those of their columns."""
        types = node.types or tuple(map(self.types.get, node.columns))
        rows = [
            ", ".join(self._typed(*field) for field in zip(node.columns, types, row, strict=True))
            for row in zip(*(values[: self.limit] for values in node.values), strict=True)
        ]
        more = len(node.values[0]) - len(rows)
        return f"({', '.join([*(f'({row})' for row in rows), *([f'… {more:,} more'] if more else [])])})"

    def _typed(self, column: str, kind: Any, value: Any) -> str:
        text = self.literal(column, value)
        if not isinstance(kind, AtomicType):
            return text
        if value is None or kind.root is Root.DECIMAL:
            return f"CAST({text} AS {sql_type(replace(kind, nullable=True))})"
        if kind.root is Root.FLOAT:
            return f"{value}F" if np.isfinite(value) else f"float('{value}')"
        return text + _SUFFIXES.get(kind.root, "")

    def literal(self, column: str, value: Any) -> str:
        """The literal of a value, physical if the column's type is known."""
        kind = self.types.get(column.column if isinstance(column, MapKey) else column)
        if isinstance(column, IndexedExpression):
            kind = column.type
        if isinstance(column, MapKey):
            kind = kind.value if isinstance(kind, MapType) else None
        if isinstance(kind, AtomicType) and isinstance(value, int) and not isinstance(value, bool):
            return _physical(kind, value)
        return python_literal(value)


_SUFFIXES = {Root.BIGINT: "L", Root.SMALLINT: "S", Root.TINYINT: "Y"}


def name(column: str) -> str:
    """A column name, in backticks unless plain; a map's value as ``m['a']``, an expression as SQL."""
    if isinstance(column, MapKey):
        return f"{name(column.column)}[{quote(column.key)}]"
    if isinstance(column, IndexedExpression):
        return column.sql
    return column if _PLAIN.fullmatch(column) else quoted(column)


def quote(text: str) -> str:
    """A string literal that Spark reads back as ``text``."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def python_literal(value: Any) -> str:
    """A Python value as a literal of Spark SQL."""
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).upper()
        case str():
            return quote(value)
        case bytes():
            return f"X'{value.hex().upper()}'"
        case dt.datetime():
            if value.tzinfo is None:
                return f"TIMESTAMP_NTZ '{value.isoformat(' ')}'"
            return f"TIMESTAMP '{time_zone.in_utc(value).isoformat(' ').replace('+00:00', 'Z')}'"
        case dt.date():
            return f"DATE '{value.isoformat()}'"
        case float():
            return repr(value) + "D" if np.isfinite(value) else f"double('{value}')"
    if isinstance(value, np.float32):
        return f"{value}F"
    if isinstance(value, Decimal):
        return f"{value:f}"
    return str(value)


def sql_type(kind: AtomicType) -> str:
    """The type as Spark SQL names it in a CAST."""
    match kind.root:
        case Root.VARCHAR:
            return "STRING"
        case Root.VARBINARY:
            return "BINARY"
        case Root.TIMESTAMP:
            return "TIMESTAMP_NTZ"
        case Root.TIMESTAMP_LTZ:
            return "TIMESTAMP"
    return str(kind)


def _physical(kind: AtomicType, value: int) -> str:
    if kind.root is Root.DECIMAL:
        digits = str(abs(value)).rjust((kind.scale or 0) + 1, "0")
        whole, part = (digits, "") if not kind.scale else (digits[: -kind.scale], "." + digits[-kind.scale :])
        return ("-" if value < 0 else "") + whole + part
    try:
        if kind.root is Root.DATE:
            return f"DATE '{(dt.date(1970, 1, 1) + dt.timedelta(days=value)).isoformat()}'"
        if kind.root is Root.TIME:
            return f"'{(dt.datetime.min + dt.timedelta(milliseconds=value)).time().isoformat()}'"
        if kind.root in TIMESTAMPS:
            per = UNITS_PER_SECOND[timestamp_unit(kind.precision)]
            seconds, rest = divmod(value, per)
            wall = dt.datetime(1970, 1, 1) + dt.timedelta(seconds=seconds)
            fraction = f".{rest:0{len(str(per)) - 1}}" if rest else ""
            local = kind.root is Root.TIMESTAMP
            return (
                f"{'TIMESTAMP_NTZ' if local else 'TIMESTAMP'} '{wall.isoformat(' ')}{fraction}{'' if local else 'Z'}'"
            )
    except OverflowError:
        return str(value)
    return str(value)
