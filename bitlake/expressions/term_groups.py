"""Groups of similar terms of a long OR or AND: a group is evaluated at once instead of term by term.

* :class:`Ranges`: terms about one column, such as ``k BETWEEN 1 AND 5 OR k > 90 OR …``;
* :class:`Tuples`: terms that compare the same columns with one value each: ``(a = 1 AND c = 2) OR …``.

The tree keeps the terms; only evaluation calls :func:`grouped_terms`.  ``(a, c) IN ((1, 2), …)`` is one leaf of a tree,
which is evaluated as such a group, too (:func:`tuples_of`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from bitlake.expressions.tree import (
    And,
    Comparison,
    In,
    IsNull,
    Op,
    Or,
    Predicate,
    TupleIn,
    derived_from,
    sorted_points,
)
from bitlake.lazy_modules import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Bools: TypeAlias = npt.NDArray[np.bool_]
    Int64s: TypeAlias = npt.NDArray[np.int64]

MANY = 16
"""Least number of similar terms that are evaluated as a group."""


@dataclass(frozen=True, slots=True, eq=False)
class Ranges:
    """Comparisons of one column, joined by OR or AND, as the ranges of values for which they are TRUE.

    ``points`` are the ends of all ranges, distinct and sorted.  They cut the order of values into parts: part
    ``2 * i + 1`` is point i, and part ``2 * i`` holds the values between point i - 1 and point i.  So the part of a
    value is the number of points < value plus the number of points <= value.
    """

    column: str
    terms: tuple[Predicate, ...]
    conjunction: bool
    points: In
    inside: Bools
    """For each part, whether its values are selected."""
    term_parts: Int64s
    """For each term the first and the last part where it can be TRUE."""


@dataclass(frozen=True, slots=True, eq=False)
class Tuples:
    """Terms of an OR that compare the same columns with one value each, as tuples of values; or a :class:`TupleIn`.

    ``negated``: terms of an AND, each TRUE for rows that differ from a tuple.  Their NULL tests make a row with NULL
    differ from a tuple without.  A tuple holds indexes into the lists of ``columns``; the length of a list stands for
    NULL.
    """

    negated: bool
    columns: tuple[In, ...]
    """For each column the sorted list of its values in the tuples."""
    places: Int64s
    """The tuples: an array of shape (tuples, columns)."""
    steps: tuple[Int64s, ...]
    """A trie of the tuples: for each column the distinct prefixes that end there, sorted.

    A prefix is ``index of the prefix before it * (values + 1) + index of the value``; the empty one has index 0.
    """

    def terms(self) -> Predicate:
        """The OR, or AND, of a term for each tuple."""
        made = tuple(self._term(tuple_) for tuple_ in self.places.tolist())
        return And(made) if self.negated else Or(made)

    def _term(self, places: Sequence[int]) -> Predicate:
        parts: list[Predicate] = []
        for listed, place in zip(self.columns, places, strict=True):
            name, null = listed.column, len(listed.values)
            if place == null:
                parts.append(IsNull(name, self.negated))
            elif self.negated:
                parts += [IsNull(name), Comparison(name, Op.NE, listed.values[place])]
            else:
                parts.append(Comparison(name, Op.EQ, listed.values[place]))
        return Or(tuple(parts)) if self.negated else And(tuple(parts))


Group: TypeAlias = "Ranges | Tuples"


def grouped_terms(node: And | Or) -> Sequence[Predicate | Group]:
    """The terms of an OR or AND, with many similar terms replaced by their group; computed once for each node."""
    if len(node.children) < MANY:
        return node.children
    return derived_from(node, "groups", lambda: _grouped(node.children, isinstance(node, And)))


def _grouped(terms: Iterable[Predicate], conjunction: bool) -> tuple[Predicate | Group, ...]:
    others: list[Predicate | Group] = []
    alike: dict[Any, list[tuple[Predicate, Any]]] = {}
    for term in terms:
        ranges = _ranges_of(term)
        values = None if ranges is not None else _tuple_of(term, conjunction)
        if ranges is not None:
            alike.setdefault(ranges[0], []).append((term, ranges[1]))
        elif values is not None:
            alike.setdefault(tuple(sorted(values)), []).append((term, values))
        else:
            others.append(term)
    for key, group in alike.items():
        if len(group) < MANY:
            others.extend(term for term, _ in group)
        elif isinstance(key, str):
            others.append(_ranges(key, group, conjunction))
        else:
            others.append(_tuples(key, [[values[name] for _, values in group] for name in key], conjunction))
    return tuple(others)


# --- ranges -----------------------------------------------------------------------------------------------------------


class _Range(NamedTuple):
    """``low <(=) value <(=) high``; an end that is None is open."""

    low: Any = None
    low_in: bool = False
    high: Any = None
    high_in: bool = False


_RANGE_OF: dict[Op, Callable[[Any], tuple[_Range, ...]]] = {
    Op.EQ: lambda v: (_Range(v, True, v, True),),
    Op.NE: lambda v: (_Range(high=v), _Range(low=v)),
    Op.LT: lambda v: (_Range(high=v),),
    Op.LE: lambda v: (_Range(high=v, high_in=True),),
    Op.GT: lambda v: (_Range(low=v),),
    Op.GE: lambda v: (_Range(low=v, low_in=True),),
}


def _ranges_of(term: Predicate) -> tuple[str, tuple[_Range, ...]] | None:
    """The column and the ranges of a term about one column; None for another term."""
    match term:
        case Comparison(column, op, value) if type(column) is str:
            return column, _RANGE_OF[op](value)
        case And((Comparison() as one, Comparison() as other)) | Or((Comparison() as one, Comparison() as other)):
            if one.column != other.column or type(one.column) is not str or type(other.column) is not str:
                return None
            first, second = _RANGE_OF[one.op](one.value), _RANGE_OF[other.op](other.value)
            if isinstance(term, Or):
                return one.column, first + second
            if len(first) == len(second) == 1 and {one.op, other.op} in _BOTH_ENDS:
                low, high = (first[0], second[0]) if first[0].high is None else (second[0], first[0])
                return one.column, (_Range(low.low, low.low_in, high.high, high.high_in),)
    return None


_BOTH_ENDS = [{low, high} for low in (Op.GT, Op.GE) for high in (Op.LT, Op.LE)]


def _ranges(column: str, group: Sequence[tuple[Predicate, tuple[_Range, ...]]], conjunction: bool) -> Ranges:
    points = sorted_points(end for _, ranges in group for r in ranges for end in (r.low, r.high) if end is not None)
    place = _places(points)
    last = 2 * len(points)
    changes = np.zeros(last + 2, np.int64)
    term_parts = np.empty((len(group), 2), np.int64)
    for i, (_, ranges) in enumerate(group):
        parts = [
            (
                0 if r.low is None else 2 * place(r.low) + (1 if r.low_in else 2),
                last if r.high is None else 2 * place(r.high) + (1 if r.high_in else 0),
            )
            for r in ranges
        ]
        term_parts[i] = min(p[0] for p in parts), max(p[1] for p in parts)
        for start, end in _disjoint(parts):
            changes[start] += 1
            changes[end + 1] -= 1
    covered = np.cumsum(changes)[:-1]
    inside = covered == len(group) if conjunction else covered > 0
    return Ranges(column, tuple(t for t, _ in group), conjunction, In(column, tuple(points)), inside, term_parts)


def _disjoint(parts: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The union of a term's ranges without common parts."""
    disjoint: list[tuple[int, int]] = []
    for start, end in sorted(p for p in parts if p[0] <= p[1]):
        if disjoint and start <= disjoint[-1][1]:
            disjoint[-1] = (disjoint[-1][0], max(disjoint[-1][1], end))
        else:
            disjoint.append((start, end))
    return disjoint


def _places(points: Sequence[Any]) -> Callable[[Any], int]:
    """A function from a value to its index in ``points``: NaN is the last, and -0.0 equals 0.0."""
    places = {p: i for i, p in enumerate(points)}
    return lambda v: len(points) - 1 if isinstance(v, float) and math.isnan(v) else places[v]


# --- tuples -----------------------------------------------------------------------------------------------------------


def _tuple_of(term: Predicate, negated: bool) -> dict[str, Any] | None:
    """The values by column of a term that compares each of several columns with one value; None for another term."""
    if not isinstance(term, Or if negated else And):
        return None
    values: dict[str, Any] = {}
    nulls: dict[str, bool] = {}
    for part in term.children:
        if not isinstance(part, Comparison | IsNull) or type(part.column) is not str:
            return None
        if isinstance(part, Comparison):
            if part.op is not (Op.NE if negated else Op.EQ) or part.column in values:
                return None
            values[part.column] = part.value
        else:
            if part.column in nulls:
                return None
            nulls[part.column] = part.negated == negated
    if any(is_null != (column not in values) for column, is_null in nulls.items()):
        return None
    if negated and len(nulls) < len(values.keys() | nulls.keys()):
        return None  # whether a <> 1 OR c <> 2 is TRUE for a row with NULL depends on its other value
    values.update((column, None) for column, is_null in nulls.items() if is_null)
    return values if len(values) > 1 else None


def tuples_of(node: TupleIn) -> Tuples:
    """The tuples of a bound ``(a, b) IN (…)``; computed once for each node."""
    return derived_from(node, "tuples", lambda: _tuples(node.columns, node.values, node.negated))


def _tuples(names: Sequence[str], values: Sequence[Sequence[Any]], negated: bool) -> Tuples:
    """``values``: those of each column in all tuples."""
    columns: list[In] = []
    places = np.empty((len(values[0]), len(names)), np.int64)
    for c, (name, named) in enumerate(zip(names, values, strict=True)):
        points = sorted_points(v for v in named if v is not None)
        place = _places(points)
        places[:, c] = [len(points) if v is None else place(v) for v in named]
        columns.append(In(name, tuple(points)))
    steps: list[Int64s] = []
    state = np.zeros(len(places), np.int64)
    for c, column in enumerate(columns):
        distinct, state = np.unique(state * (len(column.values) + 1) + places[:, c], return_inverse=True)
        steps.append(distinct)
    return Tuples(negated, tuple(columns), places, tuple(steps))
