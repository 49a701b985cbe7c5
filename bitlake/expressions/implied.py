"""What a test of a term implies for the column in it: comparisons that metadata can prune by.

``CAST(ts AS DATE) = DATE '2026-01-31'`` holds only for timestamps of that day, and ``year(day) = 2026`` only for dates
of that year.  A test gives a range of the term's values; each function that keeps order gives a range of its argument's
that holds every value with a result in it, and maybe more: the test itself is evaluated as well.
"""

from __future__ import annotations

from collections.abc import Sequence

from bitlake.expressions import wall_clock
from bitlake.expressions.literal_comparison import limits
from bitlake.expressions.terms import Typed
from bitlake.expressions.time_functions import CLOCK_UNITS
from bitlake.expressions.tree import FALSE, And, Comparison, In, Op, Predicate
from bitlake.expressions.wall_clock import MICROS_PER_DAY, days_from_civil
from bitlake.types.arrow import timestamp_unit
from bitlake.types.datatypes import INTEGER_BITS, INTEGERS, TIMESTAMPS, AtomicType, DataField, Root

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
    if wall_clock.is_fixed(to.parameter):
        return _moved(first, last, -wall_clock.fixed_offset(to.parameter))
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
    found: list[Predicate] = []
    if low is not None and low > least:
        found.append(Comparison(field.name, Op.GE, low))
    if high is not None and high < greatest:
        found.append(Comparison(field.name, Op.LE, high))
    return found
