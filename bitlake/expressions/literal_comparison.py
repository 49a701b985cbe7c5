"""One column, or a computed value, compared with literals exactly as Spark decides it, in physical values.

For every type except strings, binaries and floats the physical values are integers, and Spark's conversion of them to
the type it compares in keeps order.  A literal is then a *span* ``[low, high)`` of the physical values equal to it: one
value, none (``3.5`` for an INT), or several (a DOUBLE for a DECIMAL(38) column).  Every operator follows from the
span's two ends.

A test of a computed value also implies comparisons of the column in it, which metadata can prune by
(:func:`implied_comparisons`): ``CAST(ts AS DATE) = DATE '2026-01-31'`` holds only for timestamps of that day, and
``year(day) = 2026`` only for dates of that year.  A test gives a range of the value; each function that keeps order
gives a range of its argument that holds every value with a result in it, and maybe more: the test itself is evaluated
as well.
"""

from __future__ import annotations

import datetime as dt
import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow
from fractions import Fraction
from typing import Any

import numpy as np

from bitlake.errors import InvalidRequest
from bitlake.expressions import literals
from bitlake.expressions.functions import CLOCK_UNITS
from bitlake.expressions.terms import Typed
from bitlake.expressions.tree import (
    FALSE,
    TRUE,
    And,
    Comparison,
    In,
    IsNull,
    Like,
    Op,
    Or,
    Predicate,
    TupleIn,
    Wild,
    derived_from,
    like_pieces,
    sorted_points,
)
from bitlake.types import time_zone
from bitlake.types.arrow import timestamp_unit
from bitlake.types.datatypes import (
    BINARIES,
    FLOATS,
    INTEGER_BITS,
    INTEGERS,
    MAX_LENGTH,
    STRINGS,
    TIMESTAMPS,
    AtomicType,
    DataField,
    Root,
    is_scalar,
)
from bitlake.types.time_zone import MICROS_PER_DAY, days_from_civil


def bound_leaf(node: Comparison | In | Like | IsNull, field: DataField, negated: bool, timezone: str) -> Predicate:
    """An unbound leaf, or its negation, over a column or value of a known type."""
    if isinstance(node, IsNull):
        return IsNull(field.name, node.negated != negated)
    kind = field.type
    if not is_scalar(kind):
        raise InvalidRequest(f"column '{field.name}' of type {kind} can only be tested for NULL")
    match node:
        case Comparison(_, op, value):
            if value is None:
                return FALSE
            op = op.negated if negated else op
            if kind.root in INTEGERS and op in _UPWARDS and beyond_long(value):
                return TRUE if (value > 0) is _UPWARDS[op] else FALSE
            return comparison(field, kind, op, value, timezone)
        case In(_, values, inner):
            use = field.name, kind, inner != negated, timezone  # a statement binds its condition several times
            return derived_from(node, use, lambda: _bound_list(field, kind, values, inner != negated, timezone))
        case Like(_, pattern, inner, escape):
            return like(field, kind, pattern, inner != negated, escape)


def _bound_list(field: DataField, kind: AtomicType, values: Sequence[Any], negated: bool, timezone: str) -> Predicate:
    known = [v for v in values if v is not None]
    if kind.root is Root.CHAR and len(known) < len(values):
        # Spark pads the texts of a list for CHAR only if none of them is NULL.
        known = [v for v in known if not isinstance(v, str) or len(v) == (kind.length or 1)]
    found = membership(field, kind, known, negated, timezone)  # also checks the types
    # x NOT IN (…, NULL) is FALSE or NULL
    return FALSE if negated and len(known) < len(values) else found


_UPWARDS = {Op.LT: True, Op.LE: True, Op.GT: False, Op.GE: False}
"""Whether an operator holds for all values below its literal."""


def beyond_long(value: Any) -> bool:
    """Whether an exact number lies outside of BIGINT.

    Spark decides ``<``, ``<=``, ``>`` and ``>=`` of an integer and such a literal without looking at the rows, for NULL
    as well (``DecimalPrecisionTypeCoercion.integralAndDecimalLiteral``).
    """
    return isinstance(value, int | Decimal) and not -(1 << 63) <= value < 1 << 63


def spark_rounds(kind: AtomicType, values: Sequence[Any]) -> bool:
    """Whether Spark would compare a DECIMAL column with one of these literals in a type too narrow for both.

    Then it rounds.  The common type has the digits of either before and after the point, but never more than 38.
    """
    return kind.root is Root.DECIMAL and any(_is_too_wide(kind, v) for v in values)


def _is_too_wide(kind: AtomicType, value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return False
    _, digits, exponent = Decimal(value).as_tuple()
    assert isinstance(exponent, int)
    scale = kind.scale or 0
    before = max((kind.precision or 0) - scale, len(digits) + exponent)
    return before + max(scale, -exponent) > 38


def like(field: DataField, kind: AtomicType, pattern: str, negated: bool, escape: str) -> Predicate:
    """``field [NOT] LIKE pattern``."""
    if kind.root not in STRINGS:
        raise InvalidRequest(f"column '{field.name}' of type {kind} cannot be compared by LIKE; it is not a string")
    pieces = like_pieces(pattern, escape)
    if all(isinstance(p, str) for p in pieces):
        # CHAR columns too: LIKE compares the value as stored, without padding.
        return Comparison(field.name, Op.NE if negated else Op.EQ, "".join(str(p) for p in pieces))
    if pieces and all(p is Wild.MANY for p in pieces):
        return FALSE if negated else IsNull(field.name, True)
    return Like(field.name, pattern, negated, escape)


_FLOAT_EXACT = 1 << 24
Span = tuple[int, int]


def comparison(field: DataField, kind: AtomicType, op: Op, value: Any, timezone: str) -> Predicate:
    """``field op value`` over physical values; raises :class:`InvalidRequest` where Spark's answer is not certain."""
    if isinstance(value, np.generic) and not isinstance(value, np.float32):
        value = value.item()
    if kind.root in FLOATS:
        return _float(field, kind, op, value)
    if kind.root in STRINGS:
        return _string(field, kind, op, value)
    if kind.root is Root.BOOLEAN:
        made = literals.parse_bool(value) if isinstance(value, str) else value
        return Comparison(field.name, op, _of_type(field, value, made, bool))
    if kind.root in BINARIES:
        return Comparison(field.name, op, _of_type(field, value, value, bytes))
    (low, high), (least, greatest) = span(field, kind, value, timezone), limits(kind)
    if kind.root in TIMESTAMPS and timestamp_unit(kind.precision) == "ns" and (low > greatest or high <= least):
        return _beyond_nanoseconds(field.name, op, greatest if low > greatest else least)
    return _between(field, op, (low, high), (least, greatest))


def _beyond_nanoseconds(name: str, op: Op, limit: int) -> Predicate:
    """A comparison with a time beyond ``limit``, the first or the last one that nanoseconds in 64 bits represent.

    Files of other engines may hold such times.  The predicate selects these files, so that reading one raises an error.
    """
    towards = Op.GE if limit > 0 else Op.LE
    if op in (Op.EQ, towards, Op.GT if limit > 0 else Op.LT):
        return Comparison(name, towards, limit)
    return IsNull(name, True)


def membership(field: DataField, kind: AtomicType, values: Sequence[Any], negated: bool, timezone: str) -> Predicate:
    """``field [NOT] IN (values)``; single values as ``=``, the others distinct and sorted."""
    plain = _plain_points(kind, values)
    if plain is not None:
        points = _distinct_points(field, plain, negated)
        return points[0] if points else IsNull(field.name, True) if negated else FALSE
    values = _common(field, kind, values)
    leaves = [comparison(field, kind, Op.EQ, v, timezone) for v in values]
    single: list[Any] = []
    others: list[Predicate] = []
    for leaf in leaves:
        if isinstance(leaf, Comparison) and leaf.op is Op.EQ:
            single.append(leaf.value)
        elif leaf != FALSE:
            others.append(leaf)
    parts = _distinct_points(field, sorted_points(single), negated)
    if not negated:
        return _one_or(Or, parts + list(dict.fromkeys(others)), FALSE)
    ends = [p for o in dict.fromkeys(others) for p in _outside(o)]
    return _one_or(And, parts + ends, IsNull(field.name, True))


def bound_tuples(node: TupleIn, fields: Sequence[DataField], negated: bool) -> Predicate:
    """``(a, b) [NOT] IN ((1, 2), …)`` over physical values.

    Spark compares tuples only if the types of their fields are equal.  Raises :class:`InvalidRequest` for others, and
    for types whose values are not compared as they are stored.
    """
    columns: list[list[Any]] = []
    for field, values, literal in zip(fields, node.values, node.types, strict=True):
        if literal is None or _type_in_tuples(field) != literal:
            raise InvalidRequest(
                f"column '{field.name}' of type {field.type} is compared in tuples with values of type "
                f"{'VOID' if literal is None else literal}, but the types must be equal; write literals of the "
                "column's type, such as 2L for BIGINT, or CAST(…)"
            )
        columns.append(_tuple_points(field, literal, values))
    kept = tuple(map(tuple, columns))
    if any(_ABSENT in column for column in columns):
        kept = tuple(zip(*(row for row in zip(*columns, strict=True) if _ABSENT not in row), strict=True))
    negated = node.negated != negated
    if not kept:
        return TRUE if negated else FALSE
    return TupleIn(tuple(f.name for f in fields), kept, negated)


_ABSENT = object()
"""A literal that no value of its column equals."""
_NOT_IN_TUPLES = (Root.CHAR, Root.TIME, Root.VARIANT)
"""Types of columns that tuples are not compared with."""


def _type_in_tuples(field: DataField) -> AtomicType | None:
    """The type that Spark has for a column, without lengths; None if its values are not compared as they are stored."""
    kind = field.type
    if not isinstance(kind, AtomicType) or kind.root in _NOT_IN_TUPLES:
        return None
    if kind.root in TIMESTAMPS:
        return None if timestamp_unit(kind.precision) == "ns" else AtomicType(kind.root, precision=6)
    if kind.root is Root.DECIMAL:
        return AtomicType(kind.root, precision=kind.precision, scale=kind.scale)
    if kind.root in STRINGS:
        return AtomicType(Root.VARCHAR, length=MAX_LENGTH)
    return AtomicType(Root.VARBINARY, length=MAX_LENGTH) if kind.root in BINARIES else AtomicType(kind.root)


def _tuple_points(field: DataField, kind: AtomicType, values: Sequence[Any]) -> list[Any]:
    """The physical values of a column's literals, each in its place; NULL stays None."""
    if kind.root in (*INTEGERS, Root.VARCHAR, Root.VARBINARY, Root.BOOLEAN):
        return list(values)
    if kind.root in FLOATS:
        return [None if v is None else float(v) + 0.0 for v in values]
    points: dict[Any, Any] = {None: None}
    for value in set(values) - {None}:
        low, high = span(field, kind, value, "UTC")
        points[value] = low if high > low else _ABSENT
    return [points[v] for v in values]


def _plain_points(kind: AtomicType, values: Sequence[Any]) -> list[Any] | None:
    """The distinct physical values of an IN, sorted; None if its literals are not of the column's own type.

    The values are those of :func:`comparison` for each literal, in at most a microsecond each.
    """
    types, root = set(map(type, values)), kind.root
    points: set[Any]
    if types == {int} and root in INTEGERS:
        points = set(values)
    elif (types == {str} and root is Root.VARCHAR) or (types == {bytes} and root in BINARIES):
        return sorted(set(values))
    elif types <= {int, Decimal} and (root in INTEGERS or root is Root.DECIMAL):
        try:
            points = _unscaled(values, kind.scale or 0)
        except ArithmeticError:
            return None
    elif types == {dt.date} and root is Root.DATE:
        points = set(map(literals.days, values))
    elif types == {dt.datetime} and {v.tzinfo is None for v in values} == {root is Root.TIMESTAMP}:
        if root not in TIMESTAMPS or timestamp_unit(kind.precision) == "ns":
            return None  # several nanoseconds equal one literal
        points = set(map(time_zone.micros_of, values))
        if timestamp_unit(kind.precision) == "ms":
            points = {micros // 1000 for micros in points if micros % 1000 == 0}
    elif types == {float} and root in FLOATS:
        exact = values if root is Root.DOUBLE else [v for v in values if _is_single(v)]
        return sorted_points(v + 0.0 for v in exact)
    else:
        return None
    low, high = limits(kind)
    distinct = sorted(points)
    return distinct[bisect_left(distinct, low) : bisect_right(distinct, high)]


_EXACT = Context(prec=100, traps=[Inexact, InvalidOperation, Overflow])


def _unscaled(values: Sequence[int | Decimal], scale: int) -> set[int]:
    """Numbers times ``10 ** scale``, without those that are not whole then."""
    unit = 10**scale
    points = set()
    for value in values:
        if isinstance(value, int):
            points.add(value * unit)
        else:
            number = value.scaleb(scale, _EXACT)
            if number == (whole := int(number)):
                points.add(whole)
    return points


def _distinct_points(field: DataField, distinct: list[Any], negated: bool) -> list[Predicate]:
    """``field [NOT] IN (distinct)``, or ``=`` for a single value; no predicate for no value."""
    if not distinct:
        return []
    if len(distinct) == 1:
        return [Comparison(field.name, Op.NE if negated else Op.EQ, distinct[0])]
    return [In(field.name, tuple(distinct), negated)]


def _outside(leaf: Predicate) -> list[Predicate]:
    """The negation of a range that stands for one literal of an IN."""
    match leaf:
        case And((Comparison(column, Op.GE, low), Comparison(_, Op.LE, high))):
            return [Or((Comparison(column, Op.LT, low), Comparison(column, Op.GT, high)))]
        case Comparison(column, op, value):
            return [Comparison(column, op.negated, value)]
    return [FALSE]


def _one_or(kind: type[And] | type[Or], parts: list[Predicate], empty: Predicate) -> Predicate:
    if not parts:
        return empty
    return parts[0] if len(parts) == 1 else kind(tuple(parts))


def _common(field: DataField, kind: AtomicType, values: Sequence[Any]) -> Sequence[Any]:
    """An IN's values in the one type Spark compares all of them in; mixed kinds are refused."""
    if any(isinstance(v, np.generic) for v in values):
        values = [v.item() if isinstance(v, np.generic) and not isinstance(v, np.float32) else v for v in values]
    kinds = {_kind_of(v) for v in values}
    if len(kinds) > 1:
        raise InvalidRequest(
            f"column '{field.name}': the values of IN are of different kinds ({', '.join(sorted(kinds))})"
        )
    if kinds == {"string"} and kind.root not in STRINGS:
        # With ANSI off Spark compares them as strings: take only values that both ways agree on.
        for v in values:
            if _canonical(kind, v) is False:
                raise _cannot(field, v, "write it as a literal of the column's type")
    if kinds == {"number"} and kind.root not in FLOATS and any(isinstance(v, float | np.float32) for v in values):
        return [float(v) for v in values]
    return values


def _canonical(kind: AtomicType, text: str) -> bool:
    if kind.root in INTEGERS:
        number = literals.parse_integer(text)
        return number is not None and str(number) == text
    if kind.root is Root.DATE:
        date = literals.parse_date(text)
        return date is not None and date.isoformat() == text
    if kind.root is Root.TIME:
        return literals.parse_time(text) is not None
    if kind.root in TIMESTAMPS:
        stamp = literals.parse_timestamp(text)
        if stamp is None or stamp.tzinfo is not None:
            return False
        fraction = f".{stamp.microsecond:06}".rstrip("0").rstrip(".")
        return f"{stamp.replace(microsecond=0).isoformat(' ')}{fraction}" == text
    return False


def _kind_of(value: Any) -> str:
    if isinstance(value, np.float32):
        return "number"
    match value:
        case bool():
            return "boolean"
        case int() | float() | Decimal():
            return "number"
        case str():
            return "string"
        case bytes():
            return "binary"
        case dt.datetime():
            return "timestamp_ntz" if value.tzinfo is None else "timestamp"
        case dt.date():
            return "date"
        case dt.time():
            return "time"
    return type(value).__name__


def _cannot(field: DataField, value: Any, remedy: str = "") -> InvalidRequest:
    kind = _kind_of(value)
    text = f"column '{field.name}' of type {field.type} cannot be compared with the {kind} {value!r}"
    return InvalidRequest(f"{text}; {remedy or 'cast the literal'}")


def _of_type(field: DataField, value: Any, made: Any, kind: type) -> Any:
    if not isinstance(made, kind):
        raise _cannot(field, value)
    return made


def limits(kind: AtomicType) -> Span:
    """The smallest and the largest physical value of an integer-like type."""
    if kind.root in INTEGERS:
        top = 1 << (INTEGER_BITS[kind.root] - 1)
        return -top, top - 1
    if kind.root is Root.DECIMAL:
        top = 10 ** (kind.precision or 10) - 1
        return -top, top
    if kind.root is Root.TIME:
        return 0, 86_399_999
    top = 1 << (31 if kind.root is Root.DATE else 63)
    return -top, top - 1


def _between(field: DataField, op: Op, found: Span, limit: Span) -> Predicate:
    name, (first, last) = field.name, limit
    low, high = (min(max(v, first), last + 1) for v in found)
    if high == low + 1:
        return _ordered(name, op, low, limit)
    never, always = FALSE, IsNull(name, True)
    below = never if low == first else always if low > last else Comparison(name, Op.LE, low - 1)
    above = never if high > last else always if high == first else Comparison(name, Op.GE, high)
    upto = never if high == first else always if high > last else Comparison(name, Op.LE, high - 1)
    from_ = never if low > last else always if low == first else Comparison(name, Op.GE, low)
    match op:
        case Op.LT:
            return below
        case Op.LE:
            return upto
        case Op.GT:
            return above
        case Op.GE:
            return from_
        case Op.EQ:
            return FALSE if low == high else And((Comparison(name, Op.GE, low), Comparison(name, Op.LE, high - 1)))
        case Op.NE:
            if low == high:
                return always
            return _one_or(Or, [p for p in (below, above) if p != FALSE], FALSE)


def _ordered(name: str, op: Op, value: int, limit: Span) -> Predicate:
    """An exact literal: the comparison itself, unless it holds for no or for every value of the type."""
    first, last = limit
    if (op is Op.LT and value == first) or (op is Op.GT and value == last):
        return FALSE
    if (op is Op.GE and value == first) or (op is Op.LE and value == last):
        return IsNull(name, True)
    return Comparison(name, op, value)


def span(field: DataField, kind: AtomicType, value: Any, timezone: str) -> Span:
    """The physical values of an integer-like column that equal a literal, as ``[low, high)``; may be out of range."""
    if kind.root in INTEGERS or kind.root is Root.DECIMAL:
        return _number_span(field, kind, value)
    if kind.root is Root.DATE:
        return _date_span(field, value, timezone)
    if kind.root in TIMESTAMPS:
        return _timestamp_span(field, kind, value, timezone)
    if isinstance(value, str) and literals.parse_time(value) is not None:
        value = literals.parse_time(value)
    if isinstance(value, dt.time) and value.tzinfo is None:
        micros = ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
        return _scaled(micros, 1000)
    raise _cannot(field, value, "write a time as 'HH:MM:SS'")


def _scaled(value: int, divisor: int) -> Span:
    low, rest = divmod(value, divisor)
    return (low, low + 1) if rest == 0 else (low + 1, low + 1)


def _number_span(field: DataField, kind: AtomicType, value: Any) -> Span:
    scale = kind.scale or 0
    if isinstance(value, str):
        # Spark reads the string as BIGINT for integers and as DOUBLE for decimals.
        number = literals.parse_integer(value) if kind.root in INTEGERS else literals.parse_double(value)
        if number is None or (kind.root in INTEGERS and not -(1 << 63) <= number < 1 << 63):
            raise _cannot(field, value)
        value = number
    if isinstance(value, np.float32):
        if kind.root not in (Root.TINYINT, Root.SMALLINT):
            raise _cannot(field, value, "write a DECIMAL or DOUBLE literal")
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise _cannot(field, value)
    if isinstance(value, float):
        return _double_span(value, scale, limits(kind))
    if isinstance(value, int):
        return (value * 10**scale, value * 10**scale + 1)
    exact = Fraction(value) * 10**scale
    low = math.ceil(exact)
    return (low, low + 1) if low == exact else (low, low)


def _double_span(value: float, scale: int, limit: Span) -> Span:
    """Values that, divided by ``10 ** scale`` and rounded to a double, equal ``value``; NaN is above everything."""
    unit = 10**scale
    return (
        _first(lambda v: v / unit >= value, limit),
        _first(lambda v: v / unit > value, limit),
    )


def _first(holds: Callable[[int], bool], limit: Span) -> int:
    """The first value in the limits for which a monotone condition holds, or the one after the last."""
    low, high = limit
    while low <= high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle - 1
        else:
            low = middle + 1
    return low


def _date_span(field: DataField, value: Any, timezone: str) -> Span:
    if isinstance(value, str):
        parsed = literals.parse_date(value)
        if parsed is None:
            raise _cannot(field, value, "the date is invalid: write YYYY-MM-DD")
        value = parsed
    if isinstance(value, dt.datetime):
        if value.tzinfo is None:
            return _scaled(time_zone.micros_of(value), MICROS_PER_DAY)
        return _midnight_span(value, time_zone.zone(timezone))
    if isinstance(value, dt.date):
        day = literals.days(value)
        return day, day + 1
    raise _cannot(field, value)


def _midnight_span(instant: dt.datetime, tz: dt.tzinfo) -> Span:
    # Spark compares the date's first instant in the session's zone.
    try:
        day = instant.astimezone(tz).date() - dt.timedelta(days=2)
        while _midnight(day, tz) < instant:
            day += dt.timedelta(days=1)
        low = literals.days(day)
        return (low, low + 1) if _midnight(day, tz) == instant else (low, low)
    except OverflowError:
        # At the ends of the calendar Python has no day to step to; clocks do not change there.
        away = dt.timedelta(days=4 if instant.year == 1 else -4)
        offset = (instant + away).astimezone(tz).utcoffset() or dt.timedelta()
        return _scaled(time_zone.micros_of(instant) + offset // time_zone.MICRO, MICROS_PER_DAY)


def _midnight(day: dt.date, tz: dt.tzinfo) -> dt.datetime:
    return time_zone.at_zone(dt.datetime(day.year, day.month, day.day), tz)


def _timestamp_span(field: DataField, kind: AtomicType, value: Any, timezone: str) -> Span:
    tz = time_zone.zone(timezone)
    local = kind.root is Root.TIMESTAMP
    if isinstance(value, str):
        parsed = literals.parse_timestamp(value)
        if parsed is None or (local and parsed.tzinfo is not None):
            raise _cannot(field, value)
        value = parsed
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        value = dt.datetime(value.year, value.month, value.day)
    if not isinstance(value, dt.datetime):
        raise _cannot(field, value)
    if value.tzinfo is None and not local:
        value = time_zone.at_zone(value, tz)
    micros = time_zone.micros_of(value)
    if value.tzinfo is not None and local:
        # Spark turns the column into instants, which keeps order only away from changes of the clock.
        offset = time_zone.steady_offset(value, tz)
        if offset is None:
            raise _cannot(field, value, "write a TIMESTAMP_NTZ literal")
        micros += offset // time_zone.MICRO
    unit = timestamp_unit(kind.precision)
    if unit == "ms":
        return _scaled(micros, 1000)
    # Spark's timestamps end at microseconds: several nanoseconds equal one literal.
    return (micros, micros + 1) if unit == "us" else (micros * 1000, micros * 1000 + 1000)


def _string(field: DataField, kind: AtomicType, op: Op, value: Any) -> Predicate:
    text: str = _of_type(field, value, value, str)
    name = field.name
    if kind.root is not Root.CHAR:
        return Comparison(name, op, text)
    length = kind.length or 1
    cut = text.rstrip(" ")
    if len(cut) <= length:
        return Comparison(name, op, cut.ljust(length))
    if op is Op.EQ:
        return FALSE
    if op is Op.NE:
        return IsNull(name, True)
    raise _cannot(field, value, f"the literal is longer than {length} characters")


def _float(field: DataField, kind: AtomicType, op: Op, value: Any) -> Predicate:
    single = kind.root is Root.FLOAT
    if isinstance(value, str):
        number = literals.parse_double(value)
        if number is None or (single and not _is_single(number)):
            raise _cannot(field, value)
        value = number
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | np.float32):
        raise _cannot(field, value)
    if single and isinstance(value, int) and abs(value) > _FLOAT_EXACT:
        raise _cannot(field, value, "write a DOUBLE literal")
    double = float(value) + 0.0  # -0.0 becomes 0.0
    if not single or _is_single(double):
        return Comparison(field.name, op, double)
    if op is Op.EQ:
        return FALSE
    if op is Op.NE:
        return IsNull(field.name, True)
    with np.errstate(over="ignore"):
        near = np.float32(double)
    if op in (Op.LT, Op.LE):
        below = near if float(near) < double else np.nextafter(near, np.float32("-inf"))
        return Comparison(field.name, Op.LE, float(below) + 0.0)
    above = near if float(near) > double else np.nextafter(near, np.float32("inf"))
    return Comparison(field.name, Op.GE, float(above) + 0.0)


def _is_single(value: float) -> bool:
    if math.isnan(value) or math.isinf(value):
        return True
    with np.errstate(over="ignore"):
        return float(np.float32(value)) == value


Range = tuple[int | None, int | None]
"""The least and the greatest physical value; None: there is none."""
_LONGEST = {"week": 7, "month": 31, "quarter": 92, "year": 366, "day": 1}


def implied_comparisons(term: Typed, leaf: Predicate, fields: Sequence[DataField]) -> list[Predicate]:
    """Bound comparisons of a column that are TRUE wherever ``leaf`` is TRUE of the term's value."""
    found = _range_of(leaf)
    column: Typed | None = term
    while found is not None and found != (None, None) and column is not None and column.function != "column":
        found, column = _argument_range(column, *found)
    if found is None or column is None or found == (None, None) or term.function == "column":
        return []
    return _comparisons(next(f for f in fields if f.name == column.parameter), *found)


def _range_of(leaf: Predicate) -> Range | None:
    match leaf:
        case Comparison(_, op, int() as value):
            return {
                Op.EQ: (value, value),
                Op.LT: (None, value - 1),
                Op.LE: (None, value),
                Op.GT: (value + 1, None),
                Op.GE: (value, None),
            }.get(op)
        case In(_, (int(), *_) as values, negated=False):
            return min(values), max(values)
        case And(children):
            ranges = [r for r in map(_range_of, children) if r is not None]
            lows = [low for low, _ in ranges if low is not None]
            highs = [high for _, high in ranges if high is not None]
            return max(lows, default=None), min(highs, default=None)
    return None


def _argument_range(term: Typed, low: int | None, high: int | None) -> tuple[Range | None, Typed | None]:
    """The range of the argument that the term's range comes from, and the argument."""
    first = term.arguments[0] if term.arguments else None
    match term.function:
        case "cast" if first is not None:
            return _cast_range(first, term, low, high), first
        case "year":
            return (
                None if low is None else int(days_from_civil(low, 1, 1)),
                None if high is None else int(days_from_civil(high, 12, 31)),
            ), first
        case "+" | "-" | "date_add" | "date_sub":
            return _sum_range(term, low, high)
        case "trunc":
            return (low, None if high is None else high + _LONGEST[term.parameter] - 1), first
        case "date_trunc":
            unit = term.parameter[0]
            longest = CLOCK_UNITS.get(unit) or _LONGEST[unit] * MICROS_PER_DAY
            return (low, None if high is None else high + longest - 1), first
        case "shift" if not term.parameter[0] and first is not None:
            by = term.parameter[1] // MICROS_PER_DAY if term.root is Root.DATE else term.parameter[1]
            return _moved(low, high, -by), first
    return None, None


def _moved(low: int | None, high: int | None, by: int) -> Range:
    return None if low is None else low + by, None if high is None else high + by


def _sum_range(term: Typed, low: int | None, high: int | None) -> tuple[Range | None, Typed | None]:
    if term.root not in INTEGERS and term.root is not Root.DATE:
        return None, None
    a, b = term.arguments
    adds = term.function in ("+", "date_add")
    if _constant(b) is not None:
        amount = _constant(b) or 0
        return _moved(low, high, -amount if adds else amount), a
    if adds and _constant(a) is not None:
        return _moved(low, high, -(_constant(a) or 0)), b
    return None, None


def _constant(term: Typed) -> int | None:
    while term.function == "cast":
        term = term.arguments[0]
    return term.parameter if term.is_literal and type(term.parameter) is int else None


def _cast_range(source: Typed, to: Typed, low: int | None, high: int | None) -> Range | None:
    if source.root in INTEGERS and to.root in INTEGERS:
        # A cast to a narrower type fails for what does not fit, which pruning would hide.
        return (low, high) if INTEGER_BITS[source.root] <= INTEGER_BITS[to.root] else None
    if source.root not in TIMESTAMPS or to.root is not Root.DATE:
        return None
    first = None if low is None else low * MICROS_PER_DAY
    last = None if high is None else (high + 1) * MICROS_PER_DAY - 1
    if source.root is Root.TIMESTAMP:
        return first, last
    if time_zone.is_fixed(to.parameter):
        return _moved(first, last, -time_zone.fixed_offset(to.parameter))
    # No clock is a day away from UTC.
    return None if first is None else first - MICROS_PER_DAY, None if last is None else last + MICROS_PER_DAY


def _comparisons(field: DataField, low: int | None, high: int | None) -> list[Predicate]:
    kind = field.type
    if not isinstance(kind, AtomicType):
        return []
    if kind.root in TIMESTAMPS:
        unit = timestamp_unit(kind.precision)
        if unit == "ms":
            low, high = None if low is None else -(-low // 1000), None if high is None else high // 1000
        elif unit == "ns":
            low, high = None if low is None else low * 1000, None if high is None else high * 1000 + 999
    elif kind.root not in INTEGERS and kind.root is not Root.DATE:
        return []
    least, greatest = limits(kind)
    if (low is not None and low > greatest) or (high is not None and high < least):
        return [FALSE]
    if low is not None and low == high:
        return [Comparison(field.name, Op.EQ, low)]
    comparisons: list[Predicate] = []
    if low is not None and low > least:
        comparisons.append(Comparison(field.name, Op.GE, low))
    if high is not None and high < greatest:
        comparisons.append(Comparison(field.name, Op.LE, high))
    return comparisons
