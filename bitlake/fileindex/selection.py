"""Selections: which rows of one data file can match a predicate, and whether that is exact.

A selection is always a **superset** of the rows for which the predicate is TRUE; ``exact`` means it is precisely
those.  So pruning with any selection is safe; answering from an index alone needs an exact one.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from bitlake.errors import InvalidRequest


class Kind(enum.Enum):
    """The shape of a selection."""

    ALL = "all"
    NONE = "none"
    ROWS = "rows"


ALL, NONE, ROWS = Kind.ALL, Kind.NONE, Kind.ROWS


@dataclass(frozen=True, slots=True)
class Selection:
    """All rows, no row, or the 0-based physical positions in ``rows`` (never empty, never to be changed).

    Build one with :meth:`all`, :meth:`none` or :meth:`of`.  NONE is always exact.
    """

    kind: Kind
    rows: BitMap | None
    exact: bool

    @staticmethod
    def all(exact: bool = False) -> Selection:
        """Every row can match (``exact``: does match)."""
        return _ALL_EXACT if exact else _ALL

    @staticmethod
    def none() -> Selection:
        """No row matches: the file need not be opened."""
        return _NONE

    @staticmethod
    def of(rows: BitMap, exact: bool) -> Selection:
        """Exactly these rows (``exact``), or a superset of the matching rows; an empty bitmap gives :meth:`none`."""
        return Selection(ROWS, rows, exact) if rows else _NONE

    @property
    def is_empty(self) -> bool:
        """Whether no row can match."""
        return self.kind is NONE

    def __and__(self, other: Selection) -> Selection:
        """Rows that can match both predicates."""
        if self.kind is NONE or other.kind is NONE:
            return _NONE
        exact = self.exact and other.exact
        if self.rows is None:
            return other if other.exact == exact else Selection(other.kind, other.rows, exact)
        if other.rows is None:
            return self if self.exact == exact else Selection(self.kind, self.rows, exact)
        return Selection.of(self.rows & other.rows, exact)

    def __or__(self, other: Selection) -> Selection:
        """Rows that can match either predicate."""
        if self.kind is NONE:
            return other
        if other.kind is NONE:
            return self
        if self.rows is None or other.rows is None:
            whole = (self.rows is None and self.exact) or (other.rows is None and other.exact)
            return Selection.all(whole)
        return Selection.of(self.rows | other.rows, self.exact and other.exact)

    def inexact(self) -> Selection:
        """The same rows, of which only some need match."""
        return self if self.kind is NONE or not self.exact else Selection(self.kind, self.rows, False)

    def both(self, other: Selection) -> Selection:
        """The intersection of two selections for the **same** predicate: exact if either is."""
        together = self & other
        if together.exact or not (self.exact or other.exact):
            return together
        return Selection(together.kind, together.rows, True)

    def minus(self, deleted: BitMap, row_count: int | None = None) -> Selection:
        """Return the selection without the ``deleted`` rows; ``row_count`` is needed to take rows out of ALL."""
        if self.kind is NONE or not deleted:
            return self
        if self.rows is not None:
            return Selection.of(self.rows - deleted, self.exact)
        if row_count is None:
            raise InvalidRequest("taking rows out of a selection of all rows needs the file's row count")
        return Selection.of(BitMap(range(row_count)) - deleted, self.exact)

    def count(self, row_count: int) -> int:
        """Return how many rows of a file of ``row_count`` rows are selected."""
        return row_count if self.kind is ALL else 0 if self.rows is None else len(self.rows)

    def positions(self, row_count: int) -> npt.NDArray[np.int64]:
        """Return the selected positions, ascending."""
        if self.kind is ALL:
            return np.arange(row_count, dtype=np.int64)
        if self.rows is None:
            return np.zeros(0, np.int64)
        return np.frombuffer(self.rows.to_array(), np.uint32).astype(np.int64)


_ALL = Selection(ALL, None, False)
_ALL_EXACT = Selection(ALL, None, True)
_NONE = Selection(NONE, None, True)
