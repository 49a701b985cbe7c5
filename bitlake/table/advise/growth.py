"""How the number of distinct values grows with the rows: what a sample knows of a table, or of a file.

Two ways in which values come, of which that is taken that foretells the rest of a sample better from its first part:

* from a fixed set of D values, each as likely as any other: n rows have ``D (1 - exp(-n / D))``;
* new ones as rows go on, as dates and keys come, or words of a language: ``c n^b``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_STEPS = 60
_MOST = 1e15


@dataclass(frozen=True, slots=True)
class Growth:
    """``fixed``: the size of the set that values come from, None: they grow with the ``power`` of the rows."""

    fixed: float | None
    power: float

    def distinct_in(self, rows: float, known_rows: float, known: float) -> float:
        """About how many distinct values so many rows have, where ``known_rows`` have ``known``."""
        if known <= 0 or known_rows <= 0:
            return 0.0
        if self.fixed is not None:
            return min(rows, max(drawn(rows, self.fixed), known if rows >= known_rows else 0.0))
        return min(rows, known * float((rows / known_rows) ** self.power))


def drawn(rows: float, values: float) -> float:
    """How many of a number of values so many draws find, on average."""
    return values * -math.expm1(-rows / values) if values else 0.0


def set_size(rows: float, distinct: float) -> float:
    """From how many values so many rows would have so many distinct ones, on average; huge where none is twice."""
    if distinct >= rows:
        return _MOST
    low, high = max(1.0, distinct), _MOST
    for _ in range(_STEPS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if drawn(rows, middle) < distinct else (low, middle)
    return high


def growth_of(runs: Sequence[tuple[int, int, tuple[int, int]]], union: float) -> Growth:
    """How values grow: of each run its rows, its distinct values, and those of its first 16th and quarter; ``union``:
    the distinct values of all runs together."""
    known = [r for r in runs if r[0] and r[1]]
    if not known:
        return Growth(1.0, 0.0)
    total = float(sum(r[0] for r in known))
    rows, distinct, sixteenth, quarter = (
        sum(values) / len(known) for values in zip(*((r[0], r[1], *r[2]) for r in known), strict=True)
    )
    if len(known) > 1 and union > 0:
        # Runs lie apart: what they have in common says more than the parts of one.
        steps = (rows / 4, quarter), (rows, distinct), (total, union)
    else:
        steps = (rows / 16, sixteenth), (rows / 4, quarter), (rows, distinct)
    (first_rows, first), (second_rows, second), (last_rows, last) = steps
    if min(first, second, last) <= 0 or second_rows <= first_rows or last_rows <= second_rows:
        return Growth(max(1.0, distinct), 0.0)
    by_set = drawn(last_rows, set_size(second_rows, second))
    slope = math.log(max(second / first, 1.0)) / math.log(second_rows / first_rows)
    by_power = second * (last_rows / second_rows) ** slope
    if abs(math.log(by_set / last)) <= abs(math.log(by_power / last)):
        return Growth(set_size(last_rows, last), 0.0)
    return Growth(None, min(1.0, max(0.0, math.log(max(last / second, 1.0)) / math.log(last_rows / second_rows))))
