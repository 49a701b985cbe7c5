"""Arithmetic and comparison in Spark's ANSI mode: result types, overflow and division by zero as errors, NaN above all.

Types, as Spark 4 widens them: integers take the wider type; an integer with FLOAT gives DOUBLE; anything with DOUBLE
gives DOUBLE; an integer with DECIMAL is a DECIMAL of its digits.  ``/`` is DOUBLE, ``div`` is BIGINT.  Decimals are
exact as long as Spark keeps all digits.  Refused: quotients of decimals beyond 64 bits, and DECIMAL with DOUBLE above
15 digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from bitlake.codec.hashing import Int32s, murmur_bytes, murmur_numbers
from bitlake.errors import EvaluationFailed
from bitlake.expressions.casts import cast_typed, scaled, unscaled
from bitlake.expressions.terms import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INT,
    Bound,
    Function,
    Kernel,
    Refused,
    Typed,
    decimal_type,
    failing,
    mask_of,
)
from bitlake.expressions.tree import Op
from bitlake.lazy_modules import compute as pc
from bitlake.types.arrow import arrow_type
from bitlake.types.datatypes import FLOATS, INTEGER_BITS, INTEGERS, TIMESTAMPS, AtomicType, Root

NUMBERS = frozenset((*INTEGERS, *FLOATS, Root.DECIMAL))
_DIGITS = {Root.TINYINT: 3, Root.SMALLINT: 5, Root.INT: 10, Root.BIGINT: 20}


def numeric(term: Typed) -> AtomicType:
    """The type of a number; refuses other terms."""
    if term.root not in NUMBERS or not isinstance(term.type, AtomicType):
        raise Refused(f"{term.sql} is {term.type}, and not a number")
    return term.type


def as_decimal(term: Typed) -> AtomicType:
    """The DECIMAL type that an integer or decimal operand has beside a decimal."""
    kind = numeric(term)
    if kind.root is Root.DECIMAL:
        return kind
    if term.function == "literal" and term.parameter is not None:
        return decimal_type(len(str(abs(term.parameter))), 0)
    return decimal_type(_DIGITS[kind.root], 0)


def common_number(a: Typed, b: Typed) -> AtomicType:
    """The type in which Spark compares or joins two numbers."""
    x, y = numeric(a), numeric(b)
    if x.root in INTEGERS and y.root in INTEGERS:
        return AtomicType(max((x.root, y.root), key=INTEGER_BITS.__getitem__))
    if x.root in FLOATS or y.root in FLOATS:
        return AtomicType(x.root) if x.root is y.root else DOUBLE
    p, q = as_decimal(a), as_decimal(b)
    scale = max(p.scale or 0, q.scale or 0)
    return decimal_type(max((t.precision or 10) - (t.scale or 0) for t in (p, q)) + scale, scale)


# --- arithmetic -------------------------------------------------------------------------------------------------------


def _operands(arguments: Sequence[Typed], kind: AtomicType, zone: str) -> list[Typed]:
    return [cast_typed(a, kind, zone) for a in arguments]


def _bind_sum(arguments: Sequence[Typed], zone: str) -> Bound:
    a, b = arguments
    if Root.DECIMAL in (numeric(a).root, numeric(b).root) and not {a.root, b.root} & set(FLOATS):
        p, q = as_decimal(a), as_decimal(b)
        scale = max(p.scale or 0, q.scale or 0)
        whole = max((t.precision or 10) - (t.scale or 0) for t in (p, q))
        made = decimal_type(whole + scale + 1, scale)
        return [cast_typed(a, p, zone), cast_typed(b, q, zone)], made, None
    kind = common_number(a, b)
    return _operands(arguments, kind, zone), kind, None


def _bind_product(arguments: Sequence[Typed], zone: str) -> Bound:
    a, b = arguments
    if Root.DECIMAL in (numeric(a).root, numeric(b).root) and not {a.root, b.root} & set(FLOATS):
        p, q = as_decimal(a), as_decimal(b)
        made = decimal_type((p.precision or 10) + (q.precision or 10) + 1, (p.scale or 0) + (q.scale or 0))
        return [cast_typed(a, p, zone), cast_typed(b, q, zone)], made, None
    kind = common_number(a, b)
    return _operands(arguments, kind, zone), kind, None


def _arithmetic(name: str) -> Kernel:
    def kernel(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
        exact = "" if term.root in FLOATS else "_checked"
        try:
            if term.root is Root.DECIMAL:
                return pc.call_function(name, list(arrays)).cast(arrow_type(term.type))
            return pc.call_function(name + exact, list(arrays))
        except pa.ArrowInvalid as e:
            raise EvaluationFailed(f"{term.sql}: the result overflows {term.type} in some row") from e

    return kernel


def _bind_quotient(arguments: Sequence[Typed], zone: str) -> Bound:
    roots = {numeric(a).root for a in arguments}
    if Root.DECIMAL in roots and not roots & set(FLOATS):
        return _bind_decimal_quotient(arguments, zone)
    return _operands(arguments, DOUBLE, zone), DOUBLE, None


def _bind_decimal_quotient(arguments: Sequence[Typed], zone: str) -> Bound:
    """Decimals whose quotient is one of 64-bit integers, as of ``amount / 2``."""
    p, q = map(as_decimal, arguments)
    (p1, s1), (p2, s2) = ((t.precision or 10, t.scale or 0) for t in (p, q))
    scale = max(6, s1 + p2 + 1)
    if p1 + scale - s1 + s2 > 18:  # the divisor has fewer
        raise Refused("Spark rounds a quotient of decimals, here to more than 18 digits; cast one side to DOUBLE")
    kind = decimal_type(p1 - s1 + s2 + scale, scale)
    return [cast_typed(a, t, zone) for a, t in zip(arguments, (p, q), strict=True)], kind, scale - s1 + s2


def _by_zero(term: Typed, arrays: Sequence[pa.Array]) -> None:
    zero = pc.and_(pc.equal(arrays[1], pa.scalar(0, arrays[1].type)), arrays[0].is_valid())
    failing(zero, f"{term.sql}: division by zero in some row")


def _quotient(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    _by_zero(term, arrays)
    if term.root is not Root.DECIMAL:
        return pc.divide(*arrays)
    a, b = map(unscaled, arrays)
    divisor = np.maximum(np.abs(b), 1)  # where NULL
    whole, rest = np.divmod(np.abs(a) * 10**term.parameter, divisor)
    quotient = (whole + (2 * rest >= divisor)) * np.sign(a) * np.sign(b)  # half up
    null = pc.or_(arrays[0].is_null(), arrays[1].is_null()).to_numpy(zero_copy_only=False)
    return scaled(quotient, arrow_type(term.type), null)


def _bind_whole(arguments: Sequence[Typed], zone: str) -> Bound:
    if any(numeric(a).root not in INTEGERS for a in arguments):
        raise Refused("div takes integers")
    return _operands(arguments, BIGINT, zone), BIGINT, None


def _whole(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    _by_zero(term, arrays)
    divisor = pc.if_else(pc.equal(arrays[1], 0), pa.scalar(None, pa.int64()), arrays[1])  # where the other is NULL
    try:
        return pc.divide_checked(arrays[0], divisor)
    except pa.ArrowInvalid as e:
        raise EvaluationFailed(f"{term.sql}: the result overflows BIGINT in some row") from e


def _bind_remainder(arguments: Sequence[Typed], zone: str) -> Bound:
    kind = common_number(*arguments)
    if kind.root is Root.DECIMAL:
        raise Refused("a remainder of decimals is not evaluated")
    return _operands(arguments, kind, zone), kind, None


def _numbers(array: pa.Array) -> Any:
    """The values, and a number where NULL."""
    return (array.fill_null(0) if array.null_count else array).to_numpy()


def _remainder(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    _by_zero(term, arrays)
    a, b = arrays
    with np.errstate(all="ignore"):  # where NULL
        # The sign is the dividend's; the least integer by -1 would overflow.
        remainder = np.fmod(_numbers(a), np.abs(_numbers(b)))
    null = pc.or_(a.is_null(), b.is_null()).to_numpy(zero_copy_only=False)
    return pa.array(remainder, arrow_type(term.type), mask=null)


def _bind_positive_remainder(arguments: Sequence[Typed], zone: str) -> Bound:
    a, divisor = arguments
    kind = common_number(a, divisor)
    number = divisor.parameter if divisor.is_literal else None
    if kind.root not in INTEGERS or not isinstance(number, int) or number < 1:
        raise Refused("it divides only integers, and only by a constant above 0")
    return _operands(arguments, kind, zone), kind, None


def _positive_remainder(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    a, divisor = arrays
    return pa.array(np.mod(_numbers(a), _numbers(divisor)), arrow_type(term.type), mask=mask_of(a))


def _bind_same(arguments: Sequence[Typed], zone: str) -> Bound:
    (a,) = arguments
    return arguments, numeric(a), None


# --- comparison -------------------------------------------------------------------------------------------------------


def compare(op: Op, a: pa.Array, b: pa.Array) -> pa.Array:
    """Two arrays of one type compared; NaN equals NaN and is above every number, -0.0 equals 0.0."""
    match op:
        case Op.NE:
            return pc.invert(compare(Op.EQ, a, b))
        case Op.GT:
            return compare(Op.LT, b, a)
        case Op.LE:
            return pc.invert(compare(Op.LT, b, a))
        case Op.GE:
            return pc.invert(compare(Op.LT, a, b))
    found = pc.equal(a, b) if op is Op.EQ else pc.less(a, b)
    if not pa.types.is_floating(a.type):
        return found
    above = pc.is_nan(b)
    also = pc.and_(pc.is_nan(a), above) if op is Op.EQ else pc.and_(pc.invert(pc.is_nan(a)), above)
    return pc.or_(found, also)


def _null_safe(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    a, b = arrays
    equal = pc.fill_null(compare(Op.EQ, a, b), False)
    return pc.or_(equal, pc.and_(a.is_null(), b.is_null()))


def comparison_kernel(op: Op) -> Kernel:
    """The kernel of an operator over operands of one type."""
    return lambda term, arrays, rows: compare(op, *arrays)


def _extreme(op: Op) -> Kernel:
    """GREATEST or LEAST: NULLs are passed over."""

    def kernel(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
        best = arrays[0]
        for other in arrays[1:]:
            better = pc.or_(pc.fill_null(compare(op, other, best), False), best.is_null())
            best = pc.if_else(better, other, best)
        return best

    return kernel


def _bind_nan(arguments: Sequence[Typed], zone: str) -> Bound:
    (a,) = arguments
    if a.root not in FLOATS:
        raise Refused("isnan takes FLOAT or DOUBLE")
    return arguments, BOOLEAN, None


def _is_nan(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    return pc.fill_null(pc.is_nan(arrays[0]), False)


def _negative(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    if term.root is Root.DECIMAL:
        return pc.negate(arrays[0]).cast(arrow_type(term.type))
    return _arithmetic("negate")(term, arrays, rows)


def _absolute(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    if term.root is Root.DECIMAL:
        return pc.abs(arrays[0]).cast(arrow_type(term.type))
    return _arithmetic("abs")(term, arrays, rows)


def _sign(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    (a,) = arrays
    numbers = _numbers(a)
    signs = np.copysign(np.sign(numbers), numbers)  # -0.0 keeps its sign
    return pa.array(signs, pa.float64(), mask=mask_of(a))


def _bind_sign(arguments: Sequence[Typed], zone: str) -> Bound:
    (a,) = arguments
    numeric(a)
    return [cast_typed(a, DOUBLE, zone)], DOUBLE, None


def _bind_bucket(arguments: Sequence[Typed], zone: str) -> Bound:
    value, low, high, buckets = arguments
    for a in arguments:
        numeric(a)
    if buckets.root not in INTEGERS:
        raise Refused(f"{buckets.sql} is {buckets.type}, and not a whole number")
    doubles = [cast_typed(a, DOUBLE, zone) for a in (value, low, high)]
    return [*doubles, cast_typed(buckets, BIGINT, zone)], BIGINT, None


def _width_bucket(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    """The bucket of equal width that a value is in: 0 before the first, the number of buckets + 1 after the last."""
    value, start, end = (a.fill_null(0.0).to_numpy() for a in arrays[:3])
    buckets = arrays[3].fill_null(0).to_numpy()
    none = (buckets <= 0) | (buckets == np.iinfo(np.int64).max) | (start == end)
    none |= np.isnan(value) | ~np.isfinite(start) | ~np.isfinite(end)
    for a in arrays:
        none |= a.is_null().to_numpy(zero_copy_only=False)
    low, high = np.minimum(start, end), np.maximum(start, end)
    ascending = start < end
    with np.errstate(all="ignore"):
        inside = buckets.astype(np.float64) * np.where(ascending, value - low, high - value) / (high - low)
    before = np.where(ascending, value < low, value > high)
    after = np.where(ascending, value >= high, value <= low)
    inside = np.where(none | before | after, 0.0, inside).astype(np.int64) + 1
    return pa.array(np.where(before, 0, np.where(after, buckets + 1, inside)), pa.int64(), mask=none)


# --- hashes -----------------------------------------------------------------------------------------------------------

HASH_SEED = 42
"""The seed of the first value."""
_SMALL = frozenset({Root.BOOLEAN, Root.TINYINT, Root.SMALLINT, Root.INT, Root.DATE})
_HASHED = frozenset((*_SMALL, Root.BIGINT, *FLOATS, Root.DECIMAL, *TIMESTAMPS, Root.VARCHAR, Root.VARBINARY))


def _bind_hash(arguments: Sequence[Typed], zone: str) -> Bound:
    if not arguments:
        raise Refused("it needs a value")
    for a in arguments:
        if a.root not in _HASHED or (a.root is Root.DECIMAL and (as_decimal(a).precision or 0) > 18):
            raise Refused(f"{a.sql} is {a.type}, of which no hash is computed")
    return arguments, INT, None


def _hash(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    """Spark's Murmur3 hash: each value's hash is the seed of the next one's, and a NULL leaves it as it is."""
    hashes = np.full(rows, HASH_SEED, np.int32)
    for argument, array in zip(term.arguments, arrays, strict=True):
        assert argument.root is not None
        hashes = spark_hash(array, argument.root, hashes)
    return pa.array(hashes)


def spark_hash(array: pa.Array, root: Root, seeds: Int32s) -> Int32s:
    """Spark's hash of each value of an array, from a seed for each; a NULL has its seed.

    ``array`` has the Arrow type of a term of type ``root``.
    """
    if root in (Root.VARCHAR, Root.VARBINARY):
        found = murmur_bytes(array, seeds)
    elif root is Root.DECIMAL:
        found = murmur_numbers(unscaled(array), seeds)
    elif root in FLOATS:
        numbers = _numbers(array) + 0.0  # -0.0 as 0.0
        numbers[np.isnan(numbers)] = np.nan
        found = murmur_numbers(numbers.view(np.int32 if root is Root.FLOAT else np.int64), seeds)
    else:
        if root is Root.BOOLEAN:
            array = array.cast(pa.int32())
        elif root is Root.DATE or root in TIMESTAMPS:
            array = array.view(pa.int32() if root is Root.DATE else pa.int64())
        found = murmur_numbers(_numbers(array).astype(np.int32 if root in _SMALL else np.int64), seeds)
    return np.where(array.is_null().to_numpy(zero_copy_only=False), seeds, found) if array.null_count else found


NUMERIC_FUNCTIONS = {
    "+": Function(_bind_sum, _arithmetic("add")),
    "-": Function(_bind_sum, _arithmetic("subtract")),
    "*": Function(_bind_product, _arithmetic("multiply")),
    "/": Function(_bind_quotient, _quotient),
    "div": Function(_bind_whole, _whole),
    "%": Function(_bind_remainder, _remainder),
    "pmod": Function(_bind_positive_remainder, _positive_remainder),
    "hash": Function(_bind_hash, _hash),
    "negative": Function(_bind_same, _negative),
    "abs": Function(_bind_same, _absolute),
    "sign": Function(_bind_sign, _sign),
    "isnan": Function(_bind_nan, _is_nan),
    "width_bucket": Function(_bind_bucket, _width_bucket),
}
NULL_SAFE: Kernel = _null_safe
GREATEST: Kernel = _extreme(Op.GT)
LEAST: Kernel = _extreme(Op.LT)
