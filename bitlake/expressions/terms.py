"""Terms: values computed of a row, such as ``length(s)``, ``a * 2`` or ``addr.city``, with Spark's meaning.

A term is *unbound* as parsed (:data:`Term`) and *typed* after binding to a schema (:class:`Typed`): columns are the
schema's own, every function is chosen, and implicit casts are written out as Spark's ANSI mode adds them.  A function
(:class:`Function`) has two parts: ``bind`` finds argument and result types, or refuses; ``kernel`` computes Arrow
arrays.  Values have the Arrow type of their Paimon type; timestamps have microseconds, as in Spark.

A kernel raises :class:`EvaluationFailed` where Spark fails in ANSI mode: overflow, division by zero, invalid casts.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from bitlake.errors import EvaluationFailed, InvalidRequest
from bitlake.lazy_modules import compute as pc
from bitlake.lazy_modules import numpy as np
from bitlake.types.arrow import arrow_type
from bitlake.types.datatypes import MAX_LENGTH, AtomicType, DataType, Root

# --- unbound ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ColumnTerm:
    """A column, a struct's member (``addr.city``) or a map's value (a :class:`MapKey`), by its name as written."""

    name: str


@dataclass(frozen=True, slots=True)
class LiteralTerm:
    """A constant with its Spark type; without a type it is NULL."""

    value: Any
    type: AtomicType | None
    is_literal: bool = True
    """Whether Spark sees a literal, whose digits are its precision, and not a folded expression."""


@dataclass(frozen=True, slots=True)
class IntervalTerm:
    """An interval literal: months, or microseconds."""

    months: int
    micros: int
    sql: str


@dataclass(frozen=True, slots=True)
class CallTerm:
    """A function or operator, by Spark's name in lower case."""

    function: str
    arguments: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class CastTerm:
    """``CAST(term AS type)``."""

    term: Term
    to: AtomicType


Term = ColumnTerm | LiteralTerm | IntervalTerm | CallTerm | CastTerm


def names_in(term: Term) -> frozenset[str]:
    """The columns of a term, as written."""
    match term:
        case ColumnTerm(name):
            return frozenset((name,))
        case CallTerm(_, arguments):
            return frozenset().union(*map(names_in, arguments))
        case CastTerm(inner):
            return names_in(inner)
    return frozenset()


# --- typed ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Typed:
    """A bound term.  ``function`` names its kernel; ``parameter`` is what the kernel needs besides arrays."""

    function: str
    type: DataType
    arguments: tuple[Typed, ...]
    parameter: Any
    sql: str
    """As Spark SQL, with brackets where an operator's operand needs them."""

    @property
    def root(self) -> Root | None:
        """The root of its atomic type; None for another type."""
        return self.type.root if isinstance(self.type, AtomicType) else None

    @property
    def is_null(self) -> bool:
        """Whether it is the literal NULL."""
        return self.is_literal and self.parameter is None

    @property
    def is_literal(self) -> bool:
        """Whether it is a constant; Spark takes the digits of a literal, and not of a folded one, for precision."""
        return self.function in ("literal", "folded")


def columns_in(term: Typed) -> frozenset[str]:
    """The table's columns that a bound term reads."""
    if term.function == "column":
        return frozenset((str(term.parameter),))
    return frozenset().union(*map(columns_in, term.arguments))


class Refused(Exception):
    """A term that cannot be evaluated exactly, with the reason."""


def text_argument(term: Typed) -> Typed:
    """Return an argument that must be a STRING; raise :class:`Refused` for any other."""
    if term.root is not Root.VARCHAR:
        raise Refused(f"{term.sql} is {term.type}, and not a STRING")
    return term


Kernel = Callable[[Typed, Sequence[pa.Array], int], pa.Array]
Bound = tuple[Sequence[Typed], DataType, Any]
"""The arguments with their casts, the result's type, and the kernel's parameter."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function: what it takes (``bind``, which raises :class:`Refused`) and how it is computed."""

    bind: Callable[[Sequence[Typed], str], Bound]
    """From the arguments and the session's time zone."""
    kernel: Kernel


BOOLEAN = AtomicType(Root.BOOLEAN)
INT = AtomicType(Root.INT)
BIGINT = AtomicType(Root.BIGINT)
FLOAT = AtomicType(Root.FLOAT)
DOUBLE = AtomicType(Root.DOUBLE)
STRING = AtomicType(Root.VARCHAR, length=MAX_LENGTH)
BINARY = AtomicType(Root.VARBINARY, length=MAX_LENGTH)
DATE = AtomicType(Root.DATE)
TIMESTAMP_NTZ = AtomicType(Root.TIMESTAMP, precision=6)
TIMESTAMP = AtomicType(Root.TIMESTAMP_LTZ, precision=6)


def decimal_type(precision: int, scale: int) -> AtomicType:
    """DECIMAL(precision, scale); refused where Spark would cut digits."""
    if precision > 38:
        raise Refused(f"DECIMAL({precision}, {scale}) has more than 38 digits, where Spark rounds")
    return AtomicType(Root.DECIMAL, precision=precision, scale=scale)


def literal_type(value: Any) -> AtomicType | None:
    """The type that Spark gives a constant; None for NULL, and for values without a literal."""
    match value:
        case None:
            return None
        case bool():
            return BOOLEAN
        case int():
            if -(1 << 31) <= value < 1 << 31:
                return INT
            fits = -(1 << 63) <= value < 1 << 63
            return BIGINT if fits else AtomicType(Root.DECIMAL, precision=len(str(abs(value))), scale=0)
        case Decimal():
            _, digits, exponent = value.as_tuple()
            assert isinstance(exponent, int)
            return AtomicType(Root.DECIMAL, precision=max(len(digits), -exponent), scale=max(0, -exponent))
        case float():
            return DOUBLE
        case str():
            return STRING
        case bytes():
            return BINARY
        case dt.datetime():
            return TIMESTAMP_NTZ if value.tzinfo is None else TIMESTAMP
        case dt.date():
            return DATE
    return FLOAT if isinstance(value, np.float32) else None


def failing(condition: pa.Array, what: str) -> None:
    """Raise :class:`EvaluationFailed` if any row's condition is TRUE."""
    if pc.any(condition).as_py():
        raise EvaluationFailed(what)


# --- evaluation -------------------------------------------------------------------------------------------------------

Rows = Mapping[str, pa.Array]
"""Columns of a table by name, of equal length."""


def evaluate_term(term: Typed, rows: Rows, count: int, kernels: Mapping[str, Function]) -> pa.Array:
    """The values of a typed term for each row; raises :class:`EvaluationFailed` where it fails for one."""
    match term.function:
        case "column":
            return stored_values(rows[term.parameter], term.type)
        case "member":
            return _member(evaluate_term(term.arguments[0], rows, count, kernels), term)
        case "map value":
            column = evaluate_term(term.arguments[0], rows, count, kernels)
            return pc.map_lookup(column, pa.scalar(term.parameter, column.type.key_type), "first")
        case "literal" | "folded":
            return pa.repeat(pa.scalar(term.parameter, arrow_type(term.type)), count)
        case "and" | "or" | "coalesce" | "case":
            return _in_order(term, rows, count, kernels)
    arrays = [evaluate_term(a, rows, count, kernels) for a in term.arguments]
    try:
        return kernels[term.function].kernel(term, arrays, count)
    except (UnicodeError, pa.ArrowInvalid) as e:  # stored text need not be UTF-8
        raise EvaluationFailed(f"{term.sql}: {e}") from e


def stored_values(array: pa.Array, kind: DataType) -> pa.Array:
    """A column's values in the Arrow type of a term; nanoseconds are cut to microseconds, as in Spark."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    wanted = arrow_type(kind)
    if array.type == wanted or not isinstance(kind, AtomicType):
        return array
    if pa.types.is_timestamp(wanted):
        plain = array.cast(pa.timestamp(array.type.unit)).view(pa.int64())
        if array.type.unit == "ns":
            return floor_divide(plain, 1000).view(pa.timestamp("us")).cast(wanted)
        return array.cast(wanted)
    return array.cast(wanted)


def floor_divide(array: pa.Array, by: int) -> pa.Array:
    """An int64 array divided by a positive number, rounded down."""
    values = array.fill_null(0).to_numpy() if array.null_count else array.to_numpy()
    return pa.array(values // by, pa.int64(), mask=mask_of(array))


def mask_of(array: pa.Array) -> Any:
    """A numpy mask of the NULLs; None without any."""
    return array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None


def _member(structs: pa.Array, term: Typed) -> pa.Array:
    index = structs.type.get_field_index(term.parameter)
    if index < 0:
        raise InvalidRequest(f"the rows to filter have no struct member '{term.parameter}'")
    member = structs.flatten()[index]  # NULL where the struct is
    return stored_values(member, term.type)


def _in_order(term: Typed, rows: Rows, count: int, kernels: Mapping[str, Function]) -> pa.Array:
    """Operands that are evaluated one after the other, each for the rows that the ones before leave undecided."""

    def among(part: Typed, chosen: pa.Array) -> pa.Array:
        few = chosen.true_count
        if few == count:
            return evaluate_term(part, rows, count, kernels)
        left = {name: array.filter(chosen) for name, array in rows.items() if name in columns_in(part)}
        found = evaluate_term(part, left, few, kernels)
        return spread(found, chosen, count)

    first, *others = term.arguments
    found = evaluate_term(first, rows, count, kernels)
    match term.function:
        case "and" | "or":
            decisive = term.function == "or"
            join = pc.or_kleene if decisive else pc.and_kleene
            for part in others:
                open_rows = pc.fill_null(pc.not_equal(found, decisive), True)
                if open_rows.true_count:
                    found = join(found, among(part, open_rows))
            return found
        case "coalesce":
            for part in others:
                missing = found.is_null()
                if missing.true_count:
                    found = pc.if_else(missing, among(part, missing), found)
            return found
    # CASE: condition, value, condition, value, …, default
    parts = term.arguments
    open_rows = pa.repeat(pa.scalar(True), count)
    values = pa.nulls(count, arrow_type(term.type))
    for condition, value in zip(parts[:-1:2], parts[1::2], strict=True):
        if not open_rows.true_count:
            return values
        true = pc.and_(open_rows, pc.fill_null(among(condition, open_rows), False))
        if true.true_count:
            values = pc.if_else(true, among(value, true), values)
        open_rows = pc.and_(open_rows, pc.invert(true))
    return pc.if_else(open_rows, among(parts[-1], open_rows), values) if open_rows.true_count else values


def spread(values: pa.Array, chosen: pa.Array, count: int) -> pa.Array:
    """Values of the chosen rows, in place among ``count`` rows; the others are NULL."""
    places = pc.cumulative_sum(chosen.cast(pa.int64()))
    places = pc.subtract(places, 1)
    return values.take(pc.if_else(chosen, places, pa.scalar(None, pa.int64())))
