"""``sum``, ``product``, ``bool_and`` and ``bool_or``: states that are numbers.

Integers are exact, an overflow is an error; decimals of more digits than the type has become NULL, as in Paimon; floats
are added in their own precision.
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bitlake.errors import InvalidRequest
from bitlake.table.merge.accumulate import no_retract
from bitlake.table.merge.order import Int64s

_EXACT = Context(prec=100, rounding=ROUND_HALF_UP)


class Numbers:
    """``sum`` and ``product`` of integers and floats."""

    def __init__(self, column: pa.Array, groups: int, name: str) -> None:
        self._type = column.type
        self._name = name
        self._valid = column.is_valid().to_numpy(zero_copy_only=False)
        self._float = pa.types.is_floating(column.type)
        self._input: npt.NDArray[Any] = column.fill_null(0).to_numpy(zero_copy_only=False)
        self._state = np.zeros(groups, self._input.dtype)
        self._known = np.zeros(groups, bool)

    def agg(self, groups: Int64s, rows: Int64s) -> None:
        """Add or multiply."""
        self._change(groups, rows, self._name)

    agg_reversed = agg

    def retract(self, groups: Int64s, rows: Int64s) -> None:
        """Subtract or divide; taken back from nothing, a sum is the negative, and a product stays nothing."""
        if self._name == "sum":
            self._change(groups, rows, "minus")
        else:
            known = self._known[groups]
            self._change(groups[known], rows[known], "divide")

    def set(self, groups: Int64s, rows: Int64s) -> None:
        """Take the rows' values."""
        self._state[groups] = self._input[rows]
        self._known[groups] = self._valid[rows]

    def finish(self) -> pa.Array:
        """The results."""
        return pa.array(self._state, self._type, mask=~self._known)

    def _change(self, groups: Int64s, rows: Int64s, how: str) -> None:
        good = self._valid[rows]
        groups, rows = groups[good], rows[good]
        fresh = ~self._known[groups]
        new = self._input[rows]
        old = np.where(fresh, new.dtype.type(0 if how in ("sum", "minus") else 1), self._state[groups])
        if how in ("product", "divide"):
            new = np.where(fresh, new, self._multiplied(old, new, how))
        else:
            new = self._added(old, new, how)
        self._state[groups] = new
        self._known[groups] = True

    def _added(self, old: npt.NDArray[Any], new: npt.NDArray[Any], how: str) -> npt.NDArray[Any]:
        with np.errstate(all="ignore"):
            result: npt.NDArray[Any] = old + new if how == "sum" else old - new
            if not self._float:
                # Overflow: the result's sign differs from what the operands' signs allow.
                other = new if how == "sum" else ~new
                self._check(((old ^ result) & (other ^ result)) < 0)
        return result

    def _multiplied(self, old: npt.NDArray[Any], new: npt.NDArray[Any], how: str) -> npt.NDArray[Any]:
        with np.errstate(all="ignore"):
            if self._float:
                result: npt.NDArray[Any] = old * new if how == "product" else old / new
                return result
            if how == "divide":
                if not new.all():
                    raise InvalidRequest("aggregate function 'product': a row with 0 cannot be taken back")
                size = np.abs(old.astype(object)) // np.abs(new.astype(object))
                exact = np.where((old < 0) ^ (new < 0), -size, size)
            else:
                exact = old.astype(object) * new.astype(object)
            limits = np.iinfo(old.dtype)
            self._check(np.array((exact < limits.min) | (exact > limits.max), bool))
        return np.asarray(exact).astype(old.dtype)

    def _check(self, over: npt.NDArray[np.bool_]) -> None:
        if over.any():
            raise InvalidRequest(f"aggregate function '{self._name}': the result is too large for {self._type}")


def decimal_functions(column: pa.Array, name: str) -> tuple[Any, Any]:
    """``agg`` and ``retract`` of ``sum`` or ``product`` over Python decimals of the column's type."""
    step = Decimal(1).scaleb(-column.type.scale)
    limit = Decimal(10) ** (column.type.precision - column.type.scale)

    def fit(value: Decimal) -> Decimal | None:
        rounded = value.quantize(step, context=_EXACT)
        return rounded if abs(rounded) < limit else None

    def agg(held: Decimal | None, new: Decimal | None) -> Decimal | None:
        if held is None or new is None:
            return new if held is None else held
        return fit(_EXACT.add(held, new) if name == "sum" else _EXACT.multiply(held, new))

    def retract(held: Decimal | None, new: Decimal | None) -> Decimal | None:
        if new is None or (held is None and name == "product"):
            return held
        if name == "sum":
            return fit(_EXACT.subtract(held or Decimal(0), new))
        if not new:
            raise InvalidRequest("aggregate function 'product': a row with 0 cannot be taken back")
        assert held is not None
        return fit(_EXACT.divide(held, new))

    return agg, retract


class Truth:
    """``bool_and`` and ``bool_or``."""

    def __init__(self, column: pa.Array, groups: int, name: str) -> None:
        self._name = name
        self._valid = column.is_valid().to_numpy(zero_copy_only=False)
        self._input = column.fill_null(False).to_numpy(zero_copy_only=False)
        self._state = np.zeros(groups, bool)
        self._known = np.zeros(groups, bool)

    def agg(self, groups: Int64s, rows: Int64s) -> None:
        """And, or or."""
        good = self._valid[rows]
        groups, new = groups[good], self._input[rows[good]]
        old, known = self._state[groups], self._known[groups]
        both = old & new if self._name == "bool_and" else old | new
        self._state[groups] = np.where(known, both, new)
        self._known[groups] = True

    agg_reversed = agg

    def retract(self, groups: Int64s, rows: Int64s) -> None:
        """Not possible."""
        if len(rows):
            raise no_retract(self._name)

    def set(self, groups: Int64s, rows: Int64s) -> None:
        """Take the rows' values."""
        self._state[groups] = self._input[rows]
        self._known[groups] = self._valid[rows]

    def finish(self) -> pa.Array:
        """The results."""
        return pa.array(self._state, pa.bool_(), mask=~self._known)
