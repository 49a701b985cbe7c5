"""What bounds and null counts prove about a bound predicate: no row, some rows, or all rows.

NONE and ALL are proofs; everything else is SOME.  What makes a bound no proof:

* text and binary bounds may be cut (``truncated``): they still bound, but need not be values of the column;
* a float column may hold NaN whatever its bounds say (Parquet writers leave NaN out), and NaN is the greatest value;
  a NaN bound says nothing at all;
* Paimon cuts U+D7FF at the end of a maximum to ``?`` (table-format spec, trap 19): its upper bound is then raised.
"""

from __future__ import annotations

import enum
import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bitlake.expressions.like import like_pieces, like_prefix
from bitlake.expressions.tree import And, Comparison, Constant, In, IsNull, Like, MapKey, Op, Or, Predicate


class Verdict(enum.Enum):
    """How many rows a predicate is TRUE for, as far as it can be proved."""

    NONE = 0
    SOME = 1
    ALL = 2


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """Physical bounds of a column's non-NULL values, or None where unknown, and how many rows are NULL.

    With ``truncated``, ``min`` is a lower and ``max`` an upper bound that need not be values of the column.
    """

    min: Any
    max: Any
    null_count: int | None
    truncated: bool = False


UNKNOWN = ColumnStats(None, None, None)


def test_stats(bound: Predicate, stats: Mapping[str, ColumnStats], row_count: int) -> Verdict:
    """What the statistics prove; a column missing from ``stats`` is unknown."""
    if row_count == 0:
        return Verdict.NONE
    match bound:
        case Constant(value):
            return Verdict.ALL if value else Verdict.NONE
        case And(children):
            # A NONE ends it; min() over the enum's order is the weakest claim that holds for all.
            return Verdict(min((test_stats(c, stats, row_count).value for c in children), default=2))
        case Or(children):
            return Verdict(max((test_stats(c, stats, row_count).value for c in children), default=0))
        case IsNull(column, negated):
            return _nulls(_of(column, stats), row_count, negated)
        case Comparison() | In() | Like():
            return _leaf(bound, _of(bound.column, stats), row_count)
        case _:
            return Verdict.SOME


def _of(column: str, stats: Mapping[str, ColumnStats]) -> ColumnStats:
    # Nobody keeps statistics of a map's values, and a column may be called 'm[a]'.
    return UNKNOWN if isinstance(column, MapKey) else stats.get(column, UNKNOWN)


test_stats.__test__ = False  # type: ignore[attr-defined]  # pytest: not a test


def _nulls(stats: ColumnStats, row_count: int, negated: bool) -> Verdict:
    if stats.null_count is None:
        return Verdict.SOME
    if stats.null_count == 0:
        return Verdict.ALL if negated else Verdict.NONE
    if stats.null_count >= row_count:
        return Verdict.NONE if negated else Verdict.ALL
    return Verdict.SOME


def _leaf(leaf: Comparison | In | Like, stats: ColumnStats, row_count: int) -> Verdict:
    if stats.null_count is not None and stats.null_count >= row_count:
        return Verdict.NONE
    known = bounds_of(stats)
    match leaf:
        case Comparison(_, op, value):
            truth = _compare(op, value, known)
        case In(_, values, negated):
            truth = _member(values, negated, known)
        case Like():
            truth = _like(leaf, known)
    if truth is Verdict.ALL and stats.null_count != 0:
        return Verdict.SOME
    return truth


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of the values other than NaN; ``single`` if both are one value that occurs."""

    low: Any
    high: Any
    single: bool


def bounds_of(stats: ColumnStats) -> Bounds:
    """The bounds as far as they are proofs: a NaN is none, a maximum that Paimon cut too low is raised."""
    low, high = (None if isinstance(b, float) and math.isnan(b) else b for b in (stats.min, stats.max))
    if stats.truncated and isinstance(high, str) and high.endswith("?"):
        high = high[:-1] + "\ue000"
    return Bounds(low, high, low is not None and low == high and not stats.truncated)


def _verdict(none: bool, every: bool) -> Verdict:
    """NONE or ALL if proved; were both (bounds that contradict each other), then nothing is."""
    return Verdict.SOME if none == every else Verdict.NONE if none else Verdict.ALL


def _compare(op: Op, value: Any, b: Bounds) -> Verdict:
    """Over the values that are not NULL."""
    is_float = isinstance(value, float)
    if is_float and math.isnan(value):
        # x <= NaN holds for every value and x > NaN for none; the rest depends on NaNs nobody counted.
        return Verdict.ALL if op is Op.LE else Verdict.NONE if op is Op.GT else Verdict.SOME
    under = b.high is not None and b.high < value  # all below
    upto = b.high is not None and b.high <= value
    over = b.low is not None and b.low > value
    from_ = b.low is not None and b.low >= value
    same = b.single and b.low == value
    match op:
        case Op.EQ:
            return _verdict(under or over, same and not is_float)
        case Op.NE:
            # NaN differs from every number, so for floats a single value does not prove NONE, but a gap proves ALL.
            return _verdict(same and not is_float, under or over)
        case Op.LT:
            return _verdict(from_, under and not is_float)
        case Op.LE:
            return _verdict(over, upto and not is_float)
        case Op.GT:
            return _verdict(upto and not is_float, over)
        case Op.GE:
            return _verdict(under and not is_float, from_)


def _member(values: tuple[Any, ...], negated: bool, b: Bounds) -> Verdict:
    is_float = bool(values) and isinstance(values[0], float)
    numbers = tuple(v for v in values if not math.isnan(v)) if is_float else values
    has_nan = len(numbers) < len(values)
    first = 0 if b.low is None else bisect_left(numbers, b.low)
    last = len(numbers) if b.high is None else bisect_right(numbers, b.high)
    outside = first >= last
    inside = b.single and not outside and not is_float
    if negated:
        return _verdict(inside, outside and not has_nan)
    return _verdict(outside and not has_nan, inside)


def _like(leaf: Like, b: Bounds) -> Verdict:
    prefix, pure = like_prefix(like_pieces(leaf.pattern, leaf.escape))
    if not prefix:
        return Verdict.SOME
    # Every string that starts with the prefix lies in [prefix, …]; those above it all differ within its length.
    apart = (b.high is not None and b.high < prefix) or (b.low is not None and b.low[: len(prefix)] > prefix)
    every = pure and b.low is not None and b.high is not None and b.low.startswith(prefix) and b.high.startswith(prefix)
    return _verdict(every, apart) if leaf.negated else _verdict(apart, every)
