"""What bounds prove about a bound predicate, for many files at once: the rules of ``statistics`` as array operations.

A verdict is the number of :class:`bitlake.expressions.statistics.Verdict` (0 NONE, 1 SOME, 2 ALL) in an int8 array.
What has no vectorised form raises :class:`NotVectorised`; the caller then judges file by file.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bitlake.expressions.like import like_pieces, like_prefix
from bitlake.expressions.statistics import test_stats
from bitlake.expressions.tree import And, Comparison, Constant, In, IsNull, Leaf, Like, Op, Or, Predicate
from bitlake.lazy_arrow import compute as pc

Verdicts = npt.NDArray[np.int8]
Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]
Values: TypeAlias = Any
"""A numpy array, or an Arrow array of ``large_binary`` without NULL."""
_NONE, _SOME, _ALL = np.int8(0), np.int8(1), np.int8(2)
_WIDE_BYTES = 16
_FEW = 8
"""Files up to which comparing their texts one by one costs less than calling a kernel."""


class NotVectorised(Exception):
    """These bounds and this literal can only be compared one by one; never leaves the planner."""


class Form(Enum):
    """How bounds are held."""

    INTEGER = "int64: booleans, integers, dates, times, timestamps, decimals of up to 18 digits"
    FLOAT = "float64, never NaN where known"
    TEXT = "Arrow binary, UTF-8"
    BINARY = "Arrow binary"
    WIDE = "Arrow binary: wide decimals as 16 big-endian bytes above -2^127"


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """One column's statistics of n files: :class:`bitlake.expressions.statistics.ColumnStats` by column.

    ``low`` and ``high`` hold anything where ``has_low`` and ``has_high`` are false; ``nulls`` is -1 where unknown.
    """

    form: Form
    low: Values
    high: Values
    has_low: Bools
    has_high: Bools
    nulls: Int64s
    truncated: bool

    def take(self, places: Int64s) -> ColumnBounds:
        """Those of some of the files."""
        low, high = (
            a[places] if isinstance(a, np.ndarray) else a.take(pa.array(places)) for a in (self.low, self.high)
        )
        return ColumnBounds(
            self.form, low, high, self.has_low[places], self.has_high[places], self.nulls[places], self.truncated
        )


def judge(predicate: Predicate, rows: Int64s, leaf: Callable[[Leaf], Verdicts]) -> Verdicts:
    """The verdicts of a bound predicate over files of ``rows`` rows each, from those of its leaves."""
    found = _judge(predicate, len(rows), leaf)
    found[rows == 0] = _NONE
    return found


def _judge(predicate: Predicate, count: int, leaf: Callable[[Leaf], Verdicts]) -> Verdicts:
    match predicate:
        case Constant(value):
            return np.full(count, _ALL if value else _NONE)
        case And(children):
            found = np.full(count, _ALL)
            for child in children:
                np.minimum(found, _judge(child, count, leaf), out=found)
            return found
        case Or(children):
            found = np.full(count, _NONE)
            for child in children:
                np.maximum(found, _judge(child, count, leaf), out=found)
            return found
        case Comparison() | In() | Like() | IsNull():
            return leaf(predicate)
        case _:
            return np.full(count, _SOME)


def judge_leaf(leaf: Leaf, bounds: ColumnBounds | None, rows: Int64s) -> Verdicts:
    """A leaf's verdicts; ``bounds`` None: nothing is known of its column.  Raises :class:`NotVectorised`."""
    if bounds is None:
        return np.full(len(rows), test_stats(leaf, {}, 1).value, np.int8)
    nulls = bounds.nulls
    full = (nulls >= 0) & (nulls >= rows)
    if isinstance(leaf, IsNull):
        truth = np.full(len(rows), _SOME)
        truth[full] = _NONE if leaf.negated else _ALL
        truth[nulls == 0] = _ALL if leaf.negated else _NONE
        return truth
    match leaf:
        case Comparison(_, op, value):
            truth = _compare(op, value, bounds)
        case In(_, values, negated):
            truth = _member(values, negated, bounds)
        case Like():
            truth = _like(leaf, bounds)
    truth[(truth == _ALL) & (nulls != 0)] = _SOME
    truth[full] = _NONE
    return truth


def _verdicts(none: Bools, every: Bools) -> Verdicts:
    made: Verdicts = (_SOME - none.view(np.int8) + every.view(np.int8)).astype(np.int8, copy=False)
    return made


def _compare(op: Op, value: Any, b: ColumnBounds) -> Verdicts:
    literal = _literal(value, b.form)
    is_float = b.form is Form.FLOAT
    if is_float and math.isnan(value):
        # As for one file: x <= NaN holds for every value and x > NaN for none.
        return np.full(len(b.nulls), _ALL if op is Op.LE else _NONE if op is Op.GT else _SOME)
    nothing = np.zeros(len(b.nulls), bool)
    under = b.has_high & _less(b.high, literal)
    upto = under if op in (Op.EQ, Op.NE, Op.LT) else b.has_high & ~_greater(b.high, literal)
    over = b.has_low & _greater(b.low, literal)
    from_ = over if op in (Op.EQ, Op.NE, Op.GT) else b.has_low & ~_less(b.low, literal)
    match op:
        case Op.EQ:
            return _verdicts(under | over, nothing if is_float else _single(b) & _equal(b.low, literal))
        case Op.NE:
            return _verdicts(nothing if is_float else _single(b) & _equal(b.low, literal), under | over)
        case Op.LT:
            return _verdicts(from_, nothing if is_float else under)
        case Op.LE:
            return _verdicts(over, nothing if is_float else upto)
        case Op.GT:
            return _verdicts(nothing if is_float else upto, over)
        case Op.GE:
            return _verdicts(nothing if is_float else under, from_)


def _member(values: tuple[Any, ...], negated: bool, b: ColumnBounds) -> Verdicts:
    is_float = b.form is Form.FLOAT
    numbers = [_literal(v, b.form) for v in values]
    if is_float:
        numbers = [v for v in numbers if not math.isnan(v)]
    has_nan = len(numbers) < len(values)
    first = np.where(b.has_low, _places(numbers, b.low, "left"), 0)
    last = np.where(b.has_high, _places(numbers, b.high, "right"), len(numbers))
    outside = first >= last
    inside = np.zeros(len(outside), bool) if is_float else _single(b) & ~outside
    sure = np.zeros(len(outside), bool) if has_nan else outside
    return _verdicts(inside, sure) if negated else _verdicts(sure, inside)


def _places(values: Sequence[Any], bounds: Values, side: Any) -> Int64s:
    if isinstance(bounds, np.ndarray):
        return np.searchsorted(np.array(values, bounds.dtype), bounds, side).astype(np.int64, copy=False)
    sought = np.empty(len(values), object)
    sought[:] = values
    # A bound is often shared by many files, and comparing objects is slow: each distinct one is sought once.
    encoded = bounds.dictionary_encode()
    distinct = np.empty(len(encoded.dictionary), object)
    distinct[:] = encoded.dictionary.to_pylist()
    found: Int64s = np.searchsorted(sought, distinct, side)[encoded.indices.to_numpy()]
    return found


def _like(leaf: Like, b: ColumnBounds) -> Verdicts:
    prefix, pure = like_prefix(like_pieces(leaf.pattern, leaf.escape))
    if not prefix:
        return np.full(len(b.nulls), _SOME)
    if b.form is not Form.TEXT:
        raise NotVectorised
    text = prefix.encode("utf-8", "surrogatepass")
    low_starts, high_starts = (_bools(pc.starts_with(a, pattern=text)) for a in (b.low, b.high))
    apart = (b.has_high & _less(b.high, text)) | (b.has_low & _greater(b.low, text) & ~low_starts)
    every = b.has_low & b.has_high & low_starts & high_starts if pure else np.zeros(len(apart), bool)
    return _verdicts(every, apart) if leaf.negated else _verdicts(apart, every)


def _single(b: ColumnBounds) -> Bools:
    """Where both bounds are one value that occurs."""
    if b.truncated:
        return np.zeros(len(b.nulls), bool)
    if isinstance(b.low, np.ndarray):
        same: Bools = b.low == b.high
    elif len(b.low) <= _FEW:
        same = np.array([low == high for low, high in zip(b.low.to_pylist(), b.high.to_pylist(), strict=True)], bool)
    else:
        same = _bools(pc.equal(b.low, b.high))
    made: Bools = b.has_low & b.has_high & same
    return made


def _literal(value: Any, form: Form) -> Any:
    match form:
        case Form.INTEGER if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
            return int(value)
        case Form.FLOAT if isinstance(value, float):
            return value
        case Form.TEXT if isinstance(value, str):
            return value.encode("utf-8", "surrogatepass")
        case Form.BINARY if isinstance(value, bytes):
            return value
        case Form.WIDE if isinstance(value, int) and -(1 << 127) <= value < 1 << 127:
            return (value + (1 << 127)).to_bytes(_WIDE_BYTES, "big")
    raise NotVectorised


def _less(values: Values, literal: Any) -> Bools:
    return _compared(values, literal, operator.lt, "less")


def _greater(values: Values, literal: Any) -> Bools:
    return _compared(values, literal, operator.gt, "greater")


def _equal(values: Values, literal: Any) -> Bools:
    return _compared(values, literal, operator.eq, "equal")


def _compared(values: Values, literal: Any, op: Callable[[Any, Any], Any], kernel: str) -> Bools:
    if isinstance(values, np.ndarray):
        made: Bools = op(values, literal)
        return made
    if len(values) <= _FEW:
        return np.array([op(v, literal) for v in values.to_pylist()], bool)
    return _bools(pc.call_function(kernel, [values, pa.scalar(literal, pa.large_binary())]))


def _bools(array: pa.Array) -> Bools:
    made: Bools = array.to_numpy(zero_copy_only=False)
    return made
