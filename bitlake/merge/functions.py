"""Aggregate functions: their names, and accumulators with one state for each group.

Accumulators are fed with one row of many groups at a time.  ``groups`` and ``rows`` are int64 arrays of one length: row
``rows[i]`` of the input column goes into group ``groups[i]``, which occurs at most once in a call.  A group is as deep
as the number of files that hold its key, so there are few calls, and each handles whole arrays.

Where a function only chooses among its inputs, the state is a row number, and values are touched once, at the end.
``sum``, ``product``, ``bool_and`` and ``bool_or`` have states that are numbers.  Integers are exact, an overflow is an
error; decimals of more digits than the type has become NULL, as in Paimon; floats are added in their own precision.

Source of what each function does: index-format spec, section 10.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap, BitMap64

from bitlake.codec.sketches import sketch_union
from bitlake.errors import CorruptError, InvalidRequest, UnsupportedFeature
from bitlake.merge.keys import Int64s, order_codes
from bitlake.schema.merge_spec import Function

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


_Change = Callable[[Any, Any], Any]


def accumulator(function: Function, column: pa.Array, groups: int) -> Accumulator:
    """The state of a column's function; raises :class:`UnsupportedFeature` for one that is not known."""
    made = _accumulator(function, column, groups)
    return IgnoreRetract(made) if function.ignore_retract else made


def _accumulator(function: Function, column: pa.Array, groups: int) -> Accumulator:
    name = function.name
    kind = column.type
    if name == "primary-key":
        return Key(column, groups)
    if name == "last_value":
        return Choice(column, groups)
    if name == "last_non_null_value":
        return LastNonNull(column, groups)
    if name in ("first_value", "first_non_null_value", "first_not_null_value"):
        return First(column, groups, name, name != "first_value")
    if name in ("min", "max"):
        return Extreme(column, groups, name)
    if name in ("sum", "product"):
        if pa.types.is_decimal(kind):
            return Objects(column, groups, name, *decimal_functions(column, name))
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            return Numbers(column, groups, name)
        raise _wrong(name, "numbers", kind)
    if name in ("bool_and", "bool_or"):
        if not pa.types.is_boolean(kind):
            raise _wrong(name, "BOOLEAN", kind)
        return Truth(column, groups, name)
    if name == "listagg":
        return Objects(column, groups, name, _listagg(function))
    if name == "collect":
        agg, retract = _collect(function)
        return Objects(column, groups, name, agg, retract, reverse=False)
    if name == "merge_map":
        return Objects(column, groups, name, _merge_map, _unmerge_map)
    if name == "merge_map_with_keytime":
        return Objects(column, groups, name, _with_keytime(function, kind))
    if name == "nested_update":
        return Objects(column, groups, name, *_nested_update(function))
    if name == "nested_partial_update":
        return Objects(column, groups, name, _nested_partial(function))
    if name in ("rbm32", "rbm64"):
        return Objects(column, groups, name, _bitmaps(BitMap if name == "rbm32" else BitMap64))
    if name in ("theta_sketch", "hll_sketch"):
        return Objects(column, groups, name, sketch_union(name))
    raise UnsupportedFeature(f"aggregate function '{name}' is not one that this version can merge")


def _wrong(name: str, wanted: str, kind: pa.DataType) -> InvalidRequest:
    return InvalidRequest(f"aggregate function '{name}' takes {wanted}, and the column is {kind}")


# --- text -------------------------------------------------------------------------------------------------------------


def _blank(text: str | None) -> bool:
    return text is None or not text.strip()


def _listagg(function: Function) -> _Change:
    delimiter = function.options.get("list-agg-delimiter", ",")
    distinct = function.flag("distinct")

    def agg(held: str | None, new: str | None) -> str | None:
        if new is None or _blank(new):
            return held
        if held is None or _blank(held):
            return new
        if not distinct:
            return f"{held}{delimiter}{new}"
        known = dict.fromkeys(held.split(delimiter))
        more = [t for t in dict.fromkeys(new.split(delimiter)) if t not in known and not _blank(t)]
        return delimiter.join([held, *more])

    return agg


# --- lists ------------------------------------------------------------------------------------------------------------


def _collect(function: Function) -> tuple[_Change, _Change]:
    distinct = function.flag("distinct")

    def agg(held: list[Any] | None, new: list[Any] | None) -> list[Any] | None:
        if held is None and new is None:
            return None
        both = [*(held or []), *(new or [])]
        return _unique(both) if distinct else both

    def retract(held: list[Any] | None, gone: list[Any] | None) -> list[Any] | None:
        if held is None or not gone:
            return held
        left = [_frozen(g) for g in gone]
        kept = []
        for value in held:
            if _frozen(value) in left:
                left.remove(_frozen(value))
            else:
                kept.append(value)
        return kept

    return agg, retract


def _frozen(value: Any) -> Hashable:
    """A value that can be compared and hashed whatever it holds."""
    if isinstance(value, dict):
        return tuple((k, _frozen(v)) for k, v in value.items())
    if isinstance(value, list | tuple):
        return tuple(_frozen(v) for v in value)
    return "NaN" if isinstance(value, float) and value != value else (type(value).__name__, value)


def _unique(values: Iterable[Any]) -> list[Any]:
    return list({_frozen(v): v for v in reversed(list(values))}.values())[::-1]


# --- maps: Arrow gives them as lists of pairs -------------------------------------------------------------------------


def _merge_map(held: Any, new: Any) -> Any:
    if held is None or new is None:
        return new if held is None else held
    return list({_frozen(k): (k, v) for k, v in [*held, *new]}.values())


def _unmerge_map(held: Any, gone: Any) -> Any:
    if held is None or not gone:
        return held
    keys = {_frozen(k) for k, _ in gone}
    return [(k, v) for k, v in held if _frozen(k) not in keys]


def _with_keytime(function: Function, kind: pa.DataType) -> _Change:
    if not pa.types.is_map(kind) or not pa.types.is_struct(kind.item_type):
        raise _wrong("merge_map_with_keytime", "maps of rows", kind)
    time = function.options.get("ts-field") or kind.item_type.field(kind.item_type.num_fields - 1).name

    def agg(held: Any, new: Any) -> Any:
        if held is None or new is None:
            return new if held is None else held
        found = {_frozen(k): (k, v) for k, v in held}
        for key, value in new:
            code = _frozen(key)
            if value is None:
                found.pop(code, None)
            elif value[time] is not None:
                old = found.get(code, (None, None))[1]
                if old is None or old[time] is None or value[time] > old[time]:
                    found[code] = (key, value)
        return list(found.values())

    return agg


# --- lists of rows ----------------------------------------------------------------------------------------------------


def _nested_key(function: Function) -> Callable[[Any], Hashable | None]:
    """The key of a nested row; None: the row is left out."""
    names = [n.strip() for n in function.options.get("nested-key", "").split(",") if n.strip()]
    strategy = function.options.get("nested-key-null-strategy", "merge").strip().lower()

    def key(row: Any) -> Hashable | None:
        values = tuple(_frozen(row[n]) for n in names)
        if any(row[n] is None for n in names):
            if strategy == "error":
                raise InvalidRequest(f"aggregate function '{function.name}': a nested row has NULL in its key")
            if strategy == "ignore":
                return None
        return values

    return key


def _nested_update(function: Function) -> tuple[_Change, _Change]:
    keyed = bool(function.options.get("nested-key", "").strip())
    key = _nested_key(function)
    order = [n.strip() for n in function.options.get("nested-sequence-field", "").split(",") if n.strip()]
    limit = int(function.options.get("count-limit", 2**31 - 1))

    def place(row: Any) -> tuple[Any, ...]:
        return tuple((row[n] is not None, row[n]) if row[n] is not None else (False, 0) for n in order)

    def put(found: dict[Hashable, Any], rows: Any, limited: bool) -> None:
        for row in rows:
            code = None if row is None else key(row)
            if code is None:
                continue
            if code in found:
                if not order or place(row) >= place(found[code]):
                    found[code] = row
            elif not limited or len(found) < limit:
                found[code] = row

    def agg(held: Any, new: Any) -> Any:
        if new is None:
            return held
        if not keyed:
            before = [r for r in held or [] if r is not None]
            return [*before, *[r for r in new if r is not None][: max(0, limit - len(before))]]
        found: dict[Hashable, Any] = {}
        put(found, held or [], False)
        put(found, new, True)
        return list(found.values())

    def retract(held: Any, gone: Any) -> Any:
        if held is None or gone is None:
            return held
        code_of = key if keyed else _frozen
        codes = {code_of(r) for r in gone if r is not None}
        kept = [r for r in held if r is not None and (not keyed or code_of(r) is not None)]
        return [r for r in kept if code_of(r) not in codes]

    return agg, retract


def _nested_partial(function: Function) -> _Change:
    key = _nested_key(function)

    def agg(held: Any, new: Any) -> Any:
        if new is None:
            return held
        found: dict[Hashable, Any] = {}
        for row in [*(held or []), *new]:
            code = None if row is None else key(row)
            if code is None:
                continue
            old = found.setdefault(code, dict.fromkeys(row))
            old.update({k: v for k, v in row.items() if v is not None})
        return list(found.values())

    return agg


def _bitmaps(kind: Any) -> _Change:
    def read(data: bytes) -> Any:
        try:
            return kind.deserialize(data)
        except Exception as e:  # pyroaring raises nearly anything for damaged bytes
            raise CorruptError(f"a value is no Roaring bitmap: {e}") from e

    def agg(held: bytes | None, new: bytes | None) -> bytes | None:
        if held is None or new is None:
            return new if held is None else held
        both = read(held) | read(new)
        both.run_optimize()
        return bytes(both.serialize())

    return agg
