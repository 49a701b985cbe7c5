"""Types of Spark's expressions: what two operands are cast to, and what arithmetic returns (ANSI mode).

Spark decides each type before a query runs: ``DECIMAL(15,2) * INT`` is a ``DECIMAL(26,2)``, whatever the values are.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import NamedTuple

from bitlake.types.datatypes import AtomicType, DataType, Root

MAX_PRECISION = 38
_MIN_ADJUSTED_SCALE = 6
_INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_DIGITS = {"TINYINT": 3, "SMALLINT": 5, "INT": 10, "BIGINT": 20}
_DUCKDB = {"INT": "INTEGER", "STRING": "VARCHAR", "BINARY": "BLOB", "TIMESTAMP_NTZ": "TIMESTAMP"}
_DUCKDB["TIMESTAMP"] = "TIMESTAMP WITH TIME ZONE"


class SparkType(NamedTuple):
    """A type by Spark's name; OPAQUE is one whose values are only handed on."""

    kind: str
    precision: int = 0
    scale: int = 0

    @property
    def sql(self) -> str:
        """The type as Spark writes it."""
        return f"DECIMAL({self.precision},{self.scale})" if self.kind == "DECIMAL" else self.kind

    @property
    def duckdb(self) -> str:
        """The type as DuckDB writes it."""
        return _DUCKDB.get(self.kind, self.sql)

    @property
    def is_integer(self) -> bool:
        """Whether values are whole numbers of a fixed size."""
        return self.kind in _INTEGERS

    @property
    def is_number(self) -> bool:
        """Whether Spark calculates with values."""
        return self.is_integer or self.kind in ("DECIMAL", "FLOAT", "DOUBLE")

    @property
    def is_floating(self) -> bool:
        """Whether there are NaN and -0.0."""
        return self.kind in ("FLOAT", "DOUBLE")

    @property
    def is_time(self) -> bool:
        """Whether values are dates or timestamps."""
        return self.kind in ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ")


BOOLEAN, TINYINT, SMALLINT, INT, BIGINT = map(SparkType, ("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT"))
FLOAT, DOUBLE, STRING, BINARY = map(SparkType, ("FLOAT", "DOUBLE", "STRING", "BINARY"))
DATE, TIMESTAMP, TIMESTAMP_NTZ = map(SparkType, ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ"))
NULL, OPAQUE = SparkType("VOID"), SparkType("OPAQUE")
_BY_ROOT = {
    Root.BOOLEAN: BOOLEAN,
    Root.TINYINT: TINYINT,
    Root.SMALLINT: SMALLINT,
    Root.INT: INT,
    Root.BIGINT: BIGINT,
    Root.FLOAT: FLOAT,
    Root.DOUBLE: DOUBLE,
    Root.CHAR: STRING,
    Root.VARCHAR: STRING,
    Root.BINARY: BINARY,
    Root.VARBINARY: BINARY,
    Root.DATE: DATE,
}
_TIMESTAMPS = {Root.TIMESTAMP: TIMESTAMP_NTZ, Root.TIMESTAMP_LTZ: TIMESTAMP}


def decimal(precision: int, scale: int) -> SparkType:
    """A type of decimals with these digits, of at most 38."""
    return SparkType("DECIMAL", min(precision, MAX_PRECISION), min(scale, MAX_PRECISION))


def of_column(kind: DataType) -> SparkType:
    """The type that a column of a table has in Spark."""
    if not isinstance(kind, AtomicType):
        return OPAQUE
    if kind.root is Root.DECIMAL:
        return decimal(kind.precision or 10, kind.scale or 0)
    if kind.root in _TIMESTAMPS:  # Spark's timestamps have microseconds
        return _TIMESTAMPS[kind.root] if (kind.precision or 6) <= 6 else OPAQUE
    return _BY_ROOT.get(kind.root, OPAQUE)


def of_integer(value: int) -> SparkType:
    """The type of a literal without a point."""
    for kind, bits in ((INT, 31), (BIGINT, 63)):
        if -(1 << bits) <= value < 1 << bits:
            return kind
    return of_decimal(Decimal(value))


def of_decimal(value: Decimal) -> SparkType:
    """The type of a literal with a point; also what Spark makes of a whole one beside a decimal."""
    digits, exponent = value.as_tuple()[1:]
    scale = max(-int(exponent), 0)
    return SparkType("DECIMAL", max(len(digits) + max(int(exponent), 0), scale), scale)


def as_decimal(kind: SparkType) -> SparkType:
    """The decimals that hold all values of an integer type."""
    return decimal(_DIGITS[kind.kind], 0) if kind.is_integer else kind


def common_type(kinds: Iterable[SparkType]) -> SparkType | None:
    """Return the type to which Spark casts compared values, or branches of one expression; None: not known here."""
    common: SparkType | None = NULL
    for kind in kinds:
        common = None if common is None else _wider(common, kind)
    return common


def _wider(a: SparkType, b: SparkType) -> SparkType | None:
    if OPAQUE in (a, b):
        return None
    if a == b or b == NULL:
        return a
    if a == NULL:
        return b
    if a.is_integer and b.is_integer:
        return max(a, b, key=lambda t: _INTEGERS.index(t.kind))
    if a.is_number and b.is_number:
        if a.is_floating or b.is_floating:
            return DOUBLE
        a, b = as_decimal(a), as_decimal(b)
        scale = max(a.scale, b.scale)
        whole = max(a.precision - a.scale, b.precision - b.scale)
        # Digits before the point come first.
        return decimal(whole + scale, max(min(scale, MAX_PRECISION - whole), 0))
    if {a, b} == {DATE, TIMESTAMP_NTZ}:
        return TIMESTAMP_NTZ
    return TIMESTAMP if {a, b} == {DATE, TIMESTAMP} else None


def arithmetic_type(operator: str, a: SparkType, b: SparkType) -> SparkType | None:
    """The type of ``a operator b`` for operands of decimal types, one of ``+ - * / %``; None: not known here."""
    whole_a, whole_b = a.precision - a.scale, b.precision - b.scale
    scale = max(a.scale, b.scale)
    match operator:
        case "+" | "-":
            precision = max(whole_a, whole_b) + scale + 1
        case "*":
            precision, scale = a.precision + b.precision + 1, a.scale + b.scale
        case "/":
            scale = max(_MIN_ADJUSTED_SCALE, a.scale + b.precision + 1)
            precision = whole_a + b.scale + scale
        case "%":
            precision = min(whole_a, whole_b) + scale
        case _:
            return None
    return _adjusted(precision, scale)


def _adjusted(precision: int, scale: int) -> SparkType:
    """A type of at most 38 digits, of which digits after the point are given up first, down to 6."""
    if precision <= MAX_PRECISION:
        return SparkType("DECIMAL", precision, scale)
    whole = precision - scale
    return SparkType("DECIMAL", MAX_PRECISION, max(MAX_PRECISION - whole, min(scale, _MIN_ADJUSTED_SCALE)))
