"""``CAST`` in Spark's ANSI mode, where its result is certain: a value that does not fit is an error, not NULL.

Refused: casts to text of numbers with a fraction, of timestamps and of binaries (Spark's formatting is its own);
DECIMAL to DOUBLE above 15 digits (rounded twice); wall clocks to instants in zones whose offset changes.
Text is read by :mod:`bitlake.expressions.literals`, once per distinct value.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from bitlake.codec.binary_row import decimal_words, null_mask
from bitlake.errors import EvaluationFailed
from bitlake.expressions import literals
from bitlake.expressions.sql_text import sql_type
from bitlake.expressions.terms import Kernel, Refused, Typed, mask_of
from bitlake.lazy_modules import compute as pc
from bitlake.types import time_zone
from bitlake.types.arrow import arrow_type
from bitlake.types.datatypes import BINARIES, FLOATS, INTEGER_BITS, INTEGERS, AtomicType, Root

_DAY = time_zone.MICROS_PER_DAY
_FIRST_DAY, _LAST_DAY = literals.days(dt.date.min), literals.days(dt.date.max)


def cast_typed(term: Typed, to: AtomicType, zone: str, explicit: bool = False) -> Typed:
    """``term`` in another type; raises :class:`Refused` where the cast is not certain."""
    if term.is_null:
        return Typed("literal", to, (), None, term.sql)
    if not isinstance(term.type, AtomicType) or term.type.root is Root.CHAR:
        raise Refused(f"{term.sql} is {term.type}, which is not cast")
    source = term.type
    sql = f"CAST({term.sql} AS {sql_type(to)})" if explicit else term.sql
    if _same(source, to):
        return Typed(term.function, to, term.arguments, term.parameter, sql) if explicit else term
    if _converter(source, to) is None:
        raise Refused(f"a cast of {source} to {to} is not evaluated")
    if {source.root, to.root} & {Root.TIMESTAMP_LTZ} and to.root is not Root.DATE and not time_zone.is_fixed(zone):
        raise Refused(f"a wall clock of {zone} is not always one instant")
    return Typed("cast", to, (term,), zone, sql)


def _same(source: AtomicType, to: AtomicType) -> bool:
    if source.root is not to.root:
        return source.root in BINARIES and to.root in BINARIES
    return to.root is not Root.DECIMAL or (source.precision, source.scale) == (to.precision, to.scale)


def _cast(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    (argument,) = term.arguments
    assert isinstance(argument.type, AtomicType) and isinstance(term.type, AtomicType)
    convert = _converter(argument.type, term.type)
    assert convert is not None
    try:
        return convert(arrays[0], argument.type, term.type, term.parameter)
    except (pa.ArrowInvalid, _Unfit) as e:
        shown = f" {e.value!r}" if isinstance(e, _Unfit) else ""
        raise EvaluationFailed(f"{term.sql}: a value{shown} of {argument.type} cannot be cast to {term.type}") from e


CAST: Kernel = _cast
_Convert = Callable[[pa.Array, AtomicType, AtomicType, str], pa.Array]


class _Unfit(Exception):
    def __init__(self, value: Any) -> None:
        self.value = value
        super().__init__(value)


def _converter(source: AtomicType, to: AtomicType) -> _Convert | None:
    """Return the conversion of values of one type to another; None where it is not certain."""
    a, b = source.root, to.root
    if a in INTEGERS:
        if b in INTEGERS or b is Root.VARCHAR:
            return _by_arrow
        if b in FLOATS:
            return _nearest
        if b is Root.DECIMAL:
            return _by_arrow
        return _non_zero if b is Root.BOOLEAN else None
    if a is Root.BOOLEAN:
        return _by_arrow if b in INTEGERS or b is Root.VARCHAR else None
    if a in FLOATS:
        if b in FLOATS:
            return _nearest
        return _truncated if b in INTEGERS else None
    if a is Root.DECIMAL:
        if b is Root.DECIMAL:
            return _rounded
        if b is Root.DOUBLE and (source.precision or 10) <= 15:
            return _decimal_to_double
        if b in INTEGERS and (source.precision or 10) <= 18:
            return _decimal_to_integer
        return None
    if a is Root.VARCHAR:
        return _read_text if b in INTEGERS or b in (Root.DOUBLE, Root.DATE, Root.BOOLEAN) else None
    return _time_converter(a, b)


def _time_converter(a: Root, b: Root) -> _Convert | None:
    match a, b:
        case (Root.DATE, Root.VARCHAR):
            return _date_to_text
        case (Root.DATE, Root.TIMESTAMP | Root.TIMESTAMP_LTZ):
            return _date_to_timestamp
        case (Root.TIMESTAMP | Root.TIMESTAMP_LTZ, Root.DATE):
            return _to_date
        case (Root.TIMESTAMP, Root.TIMESTAMP_LTZ) | (Root.TIMESTAMP_LTZ, Root.TIMESTAMP):
            return _between_timestamps
    return None


def _by_arrow(array: pa.Array, source: AtomicType, to: AtomicType, zone: str) -> pa.Array:
    if to.root is Root.DECIMAL and source.root in INTEGERS:
        array = array.cast(pa.int64()).cast(pa.decimal128(19, 0))  # which asks for as many digits as the type may have
    return array.cast(arrow_type(to))


def _nearest(array: pa.Array, source: AtomicType, to: AtomicType, zone: str) -> pa.Array:
    with np.errstate(over="ignore"):
        values = (array.fill_null(0) if array.null_count else array).to_numpy()
        return pa.array(values.astype(np.float64 if to.root is Root.DOUBLE else np.float32), mask=mask_of(array))


def _non_zero(array: pa.Array, source: AtomicType, to: AtomicType, zone: str) -> pa.Array:
    return pc.not_equal(array, pa.scalar(0, array.type))


def _truncated(array: pa.Array, source: AtomicType, to: AtomicType, zone: str) -> pa.Array:
    bits = INTEGER_BITS[to.root]
    values = (array.fill_null(0) if array.null_count else array).to_numpy().astype(np.float64)
    cut = np.trunc(values)
    fits = (cut >= -(2.0 ** (bits - 1))) & (cut < 2.0 ** (bits - 1))  # NaN does not fit either
    if not fits.all():
        raise _Unfit(float(values[~fits][0]))
    return pa.array(cut.astype(np.int64), pa.int64(), mask=mask_of(array)).cast(arrow_type(to))


def _rounded(array: pa.Array, source: AtomicType, to: AtomicType, zone: str) -> pa.Array:
    """Fewer decimal places, half up; the rounded number may have one digit more.  More places change nothing."""
    wide = array.cast(pa.decimal128(38, source.scale or 0))
    return pc.round(wide, to.scale or 0, "half_towards_infinity").cast(arrow_type(to))


def _decimal_to_double(array: pa.Array, source: AtomicType, to: AtomicType, zone: str) -> pa.Array:
    # Both numbers are exact doubles, so their quotient is the nearest one.
    return pa.array(unscaled(array).astype(np.float64) / 10.0 ** (source.scale or 0), mask=mask_of(array))


def unscaled(array: pa.Array) -> Any:
    """The unscaled values of decimals of at most 18 digits; 0 where NULL."""
    return decimal_words(array, null_mask(array))[:, 0].view(np.int64)


def scaled(values: Any, kind: pa.DataType, mask: Any) -> pa.Array:
    """Decimals of unscaled 64-bit values."""
    words = np.stack([values, values >> 63], axis=1).astype(np.int64)
    valid = None if mask is None else pa.array(~mask, pa.bool_()).buffers()[1]
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(words.tobytes())])


def _decimal_to_integer(array: pa.Array, source: AtomicType, to: AtomicType, zone: str) -> pa.Array:
    values = unscaled(array)
    cut = np.abs(values) // 10 ** (source.scale or 0) * np.sign(values)
    return pa.array(cut, pa.int64(), mask=mask_of(array)).cast(arrow_type(to))


def _date_to_text(array: pa.Array, source: AtomicType, to: AtomicType, zone: str) -> pa.Array:
    days = time_zone.stored_times(array)
    if len(days) and (int(days.min()) < _FIRST_DAY or int(days.max()) > _LAST_DAY):
        raise _Unfit("date before year 1 or after 9999")
    return array.cast(pa.string())


def _read_text(array: pa.Array, source: AtomicType, to: AtomicType, zone: str) -> pa.Array:
    encoded = array.dictionary_encode()
    read = _READERS[to.root] if to.root not in INTEGERS else literals.parse_integer
    bits = INTEGER_BITS.get(to.root)
    values = []
    for text in encoded.dictionary.to_pylist():
        value: Any = read(text)
        if value is None or (bits is not None and not -(1 << bits - 1) <= value < 1 << bits - 1):
            raise _Unfit(text)
        values.append(value)
    return pa.array(values, arrow_type(to)).take(encoded.indices)


_READERS: dict[Root, Callable[[str], Any]] = {
    Root.DOUBLE: literals.parse_double,
    Root.DATE: literals.parse_date,
    Root.BOOLEAN: literals.parse_bool,
}


def _date_to_timestamp(array: pa.Array, source: AtomicType, to: AtomicType, zone: str) -> pa.Array:
    days = array.view(pa.int32()).cast(pa.int64())
    wall = pc.multiply_checked(days, _DAY)
    if to.root is Root.TIMESTAMP_LTZ:
        wall = pc.subtract_checked(wall, time_zone.fixed_offset(zone))
    return wall.view(pa.timestamp("us")).view(arrow_type(to))


def _to_date(array: pa.Array, source: AtomicType, to: AtomicType, zone: str) -> pa.Array:
    return time_zone.days_of(array, source.root, zone)


def _between_timestamps(array: pa.Array, source: AtomicType, to: AtomicType, zone: str) -> pa.Array:
    offset = time_zone.fixed_offset(zone)
    move = pc.subtract_checked if to.root is Root.TIMESTAMP_LTZ else pc.add_checked
    return move(array.view(pa.int64()), offset).view(arrow_type(to))
