"""Accumulators of aggregate functions: one state for each group, fed with one row of many groups at a time.

``groups`` and ``rows`` are int64 arrays of one length: row ``rows[i]`` of the input column goes into group
``groups[i]``, which is there once at most.  Groups are as deep as there are files that hold their key, so there are few
such calls, and each handles whole arrays.

Where a function only chooses among its inputs, the state is a row number, and values are touched once, at the end.
Source of what each function does: index-format spec, section 10.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bitlake.errors import InvalidRequest
from bitlake.table.merge.order import Int64s, order_codes

Bools = npt.NDArray[np.bool_]


class Accumulator(Protocol):
    """The state of one column for all groups."""

    def agg(self, groups: Int64s, rows: Int64s) -> None:
        """Add rows."""

    def agg_reversed(self, groups: Int64s, rows: Int64s) -> None:
        """Add rows that are older than what is there."""

    def retract(self, groups: Int64s, rows: Int64s) -> None:
        """Take rows back."""

    def set(self, groups: Int64s, rows: Int64s) -> None:
        """Forget what was, and take the rows' values as they are."""

    def finish(self) -> pa.Array:
        """One value for each group."""


def no_retract(name: str) -> InvalidRequest:
    """The error for taking a row back from a function that cannot."""
    return InvalidRequest(
        f"aggregate function '{name}' cannot take rows back (-U, -D); set fields.<column>.ignore-retract = true"
    )


class Choice:
    """What functions share whose result is one of their inputs: the state is a row, -1 for NULL."""

    def __init__(self, column: pa.Array, groups: int, name: str = "") -> None:
        self._column = column
        self._name = name
        self._valid: Bools = column.is_valid().to_numpy(zero_copy_only=False)
        self.row = np.full(groups, -1, np.int64)

    def set(self, groups: Int64s, rows: Int64s) -> None:
        """Take the rows' values, NULL too."""
        self.row[groups] = np.where(self._valid[rows], rows, -1)

    def clear(self, groups: Int64s) -> None:
        """Make the groups NULL."""
        self.row[groups] = -1

    def agg(self, groups: Int64s, rows: Int64s) -> None:
        """Take the rows' values, NULL too."""
        self.set(groups, rows)

    def agg_reversed(self, groups: Int64s, rows: Int64s) -> None:
        """What came later stays."""

    def retract(self, groups: Int64s, rows: Int64s) -> None:
        """NULL."""
        self.row[groups] = -1

    def finish(self) -> pa.Array:
        """The chosen values."""
        return self._column.take(pa.array(self.row, mask=self.row < 0))


class Key(Choice):
    """``primary-key``: always the input."""

    def retract(self, groups: Int64s, rows: Int64s) -> None:
        """The input, as ever."""
        self.set(groups, rows)


class LastNonNull(Choice):
    """``last_non_null_value``."""

    def agg(self, groups: Int64s, rows: Int64s) -> None:
        """Take values that are not NULL."""
        good = self._valid[rows]
        self.row[groups[good]] = rows[good]

    def agg_reversed(self, groups: Int64s, rows: Int64s) -> None:
        """An older value counts where there is none."""
        good = self._valid[rows] & (self.row[groups] < 0)
        self.row[groups[good]] = rows[good]

    def retract(self, groups: Int64s, rows: Int64s) -> None:
        """NULL, if the row's value is not NULL."""
        self.row[groups[self._valid[rows]]] = -1


class First(Choice):
    """``first_value`` and ``first_non_null_value``."""

    def __init__(self, column: pa.Array, groups: int, name: str, non_null: bool) -> None:
        super().__init__(column, groups, name)
        self._non_null = non_null
        self._begun = np.zeros(groups, bool)

    def agg(self, groups: Int64s, rows: Int64s) -> None:
        """Only the first counts."""
        fresh = ~self._begun[groups]
        if self._non_null:
            fresh &= self._valid[rows]
        self._begun[groups[fresh]] = True
        super().set(groups[fresh], rows[fresh])

    def agg_reversed(self, groups: Int64s, rows: Int64s) -> None:
        """The older value is the first, once there was one."""
        begun = self._begun[groups].copy()
        ready = ~begun if not self._non_null else ~begun & (self.row[groups] >= 0)
        self._begun[groups[ready]] = True
        super().set(groups[~ready], rows[~ready])

    def retract(self, groups: Int64s, rows: Int64s) -> None:
        """Not possible."""
        if len(rows):
            raise no_retract(self._name)


class Extreme(Choice):
    """``min`` and ``max``; of equal values the later."""

    def __init__(self, column: pa.Array, groups: int, name: str) -> None:
        super().__init__(column, groups, name)
        self._codes = order_codes(column, descending=name == "max")

    def agg(self, groups: Int64s, rows: Int64s) -> None:
        """Take values no worse than what is there."""
        held = self.row[groups]
        good = self._valid[rows] & ((held < 0) | (self._codes[rows] <= self._codes[held]))
        self.row[groups[good]] = rows[good]

    def agg_reversed(self, groups: Int64s, rows: Int64s) -> None:
        """Take values better than what is there."""
        held = self.row[groups]
        good = self._valid[rows] & ((held < 0) | (self._codes[rows] < self._codes[held]))
        self.row[groups[good]] = rows[good]

    def retract(self, groups: Int64s, rows: Int64s) -> None:
        """Not possible."""
        if len(rows):
            raise no_retract(self._name)


class Objects:
    """Functions over values that numpy does not have (lists, maps, text of many parts): Python values, row by row.

    Only rows of keys that are in several files come here.  ``agg`` gets (accumulator, input), either may be None.
    """

    def __init__(
        self,
        column: pa.Array,
        groups: int,
        name: str,
        agg: Callable[[Any, Any], Any],
        retract: Callable[[Any, Any], Any] | None = None,
        reverse: bool = True,
    ) -> None:
        self._column = column
        self._name = name
        self._agg = agg
        self._retract = retract
        self._reverse = reverse
        self._values: list[Any] = [None] * groups

    def _each(self, groups: Int64s, rows: Int64s, change: Callable[[Any, Any], Any]) -> None:
        inputs = self._column.take(pa.array(rows)).to_pylist()
        for group, value in zip(groups.tolist(), inputs, strict=True):
            self._values[group] = change(self._values[group], value)

    def agg(self, groups: Int64s, rows: Int64s) -> None:
        """Add rows."""
        self._each(groups, rows, self._agg)

    def agg_reversed(self, groups: Int64s, rows: Int64s) -> None:
        """Add older rows."""
        self._each(groups, rows, (lambda held, new: self._agg(new, held)) if self._reverse else self._agg)

    def retract(self, groups: Int64s, rows: Int64s) -> None:
        """Take rows back."""
        if self._retract is None:
            if len(rows):
                raise no_retract(self._name)
            return
        self._each(groups, rows, self._retract)

    def set(self, groups: Int64s, rows: Int64s) -> None:
        """Take the rows' values."""
        self._each(groups, rows, lambda held, new: new)

    def finish(self) -> pa.Array:
        """The values as Arrow."""
        return pa.array(self._values, self._column.type)


class IgnoreRetract:
    """A function with ``ignore-retract``."""

    def __init__(self, inner: Accumulator) -> None:
        self._inner = inner
        self.agg = inner.agg
        self.agg_reversed = inner.agg_reversed
        self.set = inner.set
        self.finish = inner.finish

    def retract(self, groups: Int64s, rows: Int64s) -> None:
        """Nothing."""
