"""Aggregate functions of the aggregation and partial-update merge engines: accumulators with a state for each group.

An accumulator takes one row of many groups at a time.  ``groups`` and ``rows`` are int64 arrays of one length: row
``rows[i]`` of the input column goes into group ``groups[i]``, which occurs at most once in a call.  A group has at most
one row for each file that holds its key, so there are few calls, each over whole arrays.

The state of a function that selects one of its inputs is a row number; values are read once, at the end.  The states
of ``sum``, ``product``, ``bool_and`` and ``bool_or`` are numbers; other functions hold Python values.  Integers are
exact, and an overflow is an error.  A sum of a DECIMAL of up to 18 digits is an error if it has more digits than its
type; sums of wider decimals, and products, then become NULL, as in Paimon.  Floats are added in their own precision.

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

from bitlake.codec.hashing import Int64s
from bitlake.codec.roaring import Bools
from bitlake.codec.sketches import sketch_union
from bitlake.errors import CorruptError, InvalidRequest, UnsupportedFeature
from bitlake.merge.keys import order_codes
from bitlake.schema.merge_spec import Function
from bitlake.types.datatypes import COMPACT_DIGITS
from bitlake.types.utf8 import is_blank


class Accumulator(Protocol):
    """The state of one column for all groups."""

    def agg(self, groups: Int64s, rows: Int64s) -> None:
        """Add rows."""

    def agg_reversed(self, groups: Int64s, rows: Int64s) -> None:
        """Add rows that are older than the state."""

    def retract(self, groups: Int64s, rows: Int64s) -> None:
        """Retract rows; raises :class:`InvalidRequest` if the function cannot."""

    def set(self, groups: Int64s, rows: Int64s) -> None:
        """Replace the state by the rows' values."""

    def finish(self) -> pa.Array:
        """Return one value for each group."""


def retract_error(name: str) -> InvalidRequest:
    """Return the error of a function that cannot retract rows."""
    return InvalidRequest(
        f"aggregate function '{name}' cannot retract rows (-U, -D); set fields.<column>.ignore-retract = true"
    )


class CannotRetract:
    """A function that has no way back."""

    _name: str

    def retract(self, groups: Int64s, rows: Int64s) -> None:
        """Raise :class:`InvalidRequest`: the function cannot retract."""
        if len(rows):
            raise retract_error(self._name)


class Choice:
    """Base of functions that select one of their inputs, and ``last_value``; the state is a row, -1 for NULL."""

    def __init__(self, column: pa.Array, groups: int, name: str = "") -> None:
        self._column = column
        self._name = name
        self._valid: Bools = column.is_valid().to_numpy(zero_copy_only=False)
        self.row = np.full(groups, -1, np.int64)

    def set(self, groups: Int64s, rows: Int64s) -> None:
        """Take the rows' values, NULL included."""
        self.row[groups] = np.where(self._valid[rows], rows, -1)

    def clear(self, groups: Int64s) -> None:
        """Make the groups NULL."""
        self.row[groups] = -1

    def agg(self, groups: Int64s, rows: Int64s) -> None:
        """Take the rows' values, NULL included."""
        self.set(groups, rows)

    def agg_reversed(self, groups: Int64s, rows: Int64s) -> None:
        """Keep the state: later rows win."""

    def retract(self, groups: Int64s, rows: Int64s) -> None:
        """Make the groups NULL."""
        self.row[groups] = -1

    def finish(self) -> pa.Array:
        """Return the selected values."""
        return self._column.take(pa.array(self.row, mask=self.row < 0))


class PrimaryKeyValue(Choice):
    """``primary-key``: always the input."""

    def retract(self, groups: Int64s, rows: Int64s) -> None:
        """Take the input, as always."""
        self.set(groups, rows)


class LastNonNull(Choice):
    """``last_non_null_value``."""

    def agg(self, groups: Int64s, rows: Int64s) -> None:
        """Take values that are not NULL."""
        good = self._valid[rows]
        self.row[groups[good]] = rows[good]

    def agg_reversed(self, groups: Int64s, rows: Int64s) -> None:
        """Take an older value where the group has none."""
        good = self._valid[rows] & (self.row[groups] < 0)
        self.row[groups[good]] = rows[good]

    def retract(self, groups: Int64s, rows: Int64s) -> None:
        """Make the group NULL if the row's value is not NULL."""
        self.row[groups[self._valid[rows]]] = -1


class FirstValue(CannotRetract, Choice):
    """``first_value`` and ``first_non_null_value``."""

    def __init__(self, column: pa.Array, groups: int, name: str, non_null: bool) -> None:
        super().__init__(column, groups, name)
        self._non_null = non_null
        self._begun = np.zeros(groups, bool)

    def agg(self, groups: Int64s, rows: Int64s) -> None:
        """Take the first value only."""
        fresh = ~self._begun[groups]
        if self._non_null:
            fresh &= self._valid[rows]
        self._begun[groups[fresh]] = True
        super().set(groups[fresh], rows[fresh])

    def agg_reversed(self, groups: Int64s, rows: Int64s) -> None:
        """Take the older value as the first, if the group has one."""
        begun = self._begun[groups].copy()
        ready = ~begun if not self._non_null else ~begun & (self.row[groups] >= 0)
        self._begun[groups[ready]] = True
        super().set(groups[~ready], rows[~ready])


class Extreme(CannotRetract, Choice):
    """``min`` and ``max``; of equal values the later one."""

    def __init__(self, column: pa.Array, groups: int, name: str) -> None:
        super().__init__(column, groups, name)
        self._codes = order_codes(column, descending=name == "max")

    def agg(self, groups: Int64s, rows: Int64s) -> None:
        """Take values that are more extreme than the state, or equal to it."""
        held = self.row[groups]
        good = self._valid[rows] & ((held < 0) | (self._codes[rows] <= self._codes[held]))
        self.row[groups[good]] = rows[good]

    def agg_reversed(self, groups: Int64s, rows: Int64s) -> None:
        """Take values that are more extreme than the state."""
        held = self.row[groups]
        good = self._valid[rows] & ((held < 0) | (self._codes[rows] < self._codes[held]))
        self.row[groups[good]] = rows[good]


class PythonValues:
    """Functions over values without a numpy type (lists, maps, text lists): Python values, row by row.

    Only rows of keys that are in several files are processed.  ``agg`` takes (state, input); either may be None.
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
        """Retract rows; raises :class:`InvalidRequest` if the function cannot."""
        if self._retract is None:
            if len(rows):
                raise retract_error(self._name)
            return
        self._each(groups, rows, self._retract)

    def set(self, groups: Int64s, rows: Int64s) -> None:
        """Take the rows' values."""
        self._each(groups, rows, lambda held, new: new)

    def finish(self) -> pa.Array:
        """Return the values as an Arrow array."""
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
        """Ignore the rows."""


_EXACT = Context(prec=100, rounding=ROUND_HALF_UP)


class Numbers:
    """Base of functions whose state is an array of numbers or booleans, and which groups have a value."""

    def __init__(self, column: pa.Array, groups: int, name: str) -> None:
        self._type = column.type
        self._name = name
        self._valid = column.is_valid().to_numpy(zero_copy_only=False)
        self._input: npt.NDArray[Any] = column.fill_null(pa.scalar(0).cast(column.type)).to_numpy(zero_copy_only=False)
        self._state = np.zeros(groups, self._input.dtype)
        self._has_value = np.zeros(groups, bool)

    def set(self, groups: Int64s, rows: Int64s) -> None:
        """Take the rows' values."""
        self._state[groups] = self._input[rows]
        self._has_value[groups] = self._valid[rows]

    def finish(self) -> pa.Array:
        """Return the results."""
        return pa.array(self._state, self._type, mask=~self._has_value)


class Arithmetic(Numbers):
    """``sum`` and ``product`` of integers and floats."""

    def agg(self, groups: Int64s, rows: Int64s) -> None:
        """Add or multiply."""
        self._change(groups, rows, self._name)

    agg_reversed = agg

    def retract(self, groups: Int64s, rows: Int64s) -> None:
        """Subtract or divide; retracted from NULL, a sum becomes the negative value, and a product stays NULL."""
        if self._name == "sum":
            self._change(groups, rows, "minus")
        else:
            has_value = self._has_value[groups]
            self._change(groups[has_value], rows[has_value], "divide")

    def _change(self, groups: Int64s, rows: Int64s, how: str) -> None:
        valid = self._valid[rows]
        groups, rows = groups[valid], rows[valid]
        fresh = ~self._has_value[groups]
        new = self._input[rows]
        # -0.0 is what leaves every float unchanged, -0.0 too.
        old = np.where(fresh, new.dtype.type(-0.0 if how in ("sum", "minus") else 1), self._state[groups])
        if how in ("product", "divide"):
            new = np.where(fresh, new, self._multiplied(old, new, how))
        else:
            new = self._added(old, new, how)
        self._state[groups] = new
        self._has_value[groups] = True

    def _added(self, old: npt.NDArray[Any], new: npt.NDArray[Any], how: str) -> npt.NDArray[Any]:
        with np.errstate(all="ignore"):
            result: npt.NDArray[Any] = old + new if how == "sum" else old - new
            if result.dtype.kind != "f":
                # Overflow: the result's sign is impossible for the operands' signs.
                other = new if how == "sum" else ~new
                self._check(((old ^ result) & (other ^ result)) < 0)
        return result

    def _multiplied(self, old: npt.NDArray[Any], new: npt.NDArray[Any], how: str) -> npt.NDArray[Any]:
        with np.errstate(all="ignore"):
            if old.dtype.kind == "f":
                result: npt.NDArray[Any] = old * new if how == "product" else old / new
                return result
            if how == "divide":
                if not new.all():
                    raise InvalidRequest("aggregate function 'product' cannot retract a row with 0")
                size = np.abs(old.astype(object)) // np.abs(new.astype(object))
                exact = np.where((old < 0) ^ (new < 0), -size, size)
            else:
                exact = old.astype(object) * new.astype(object)
            limits = np.iinfo(old.dtype)
            self._check(np.array((exact < limits.min) | (exact > limits.max), bool))
        return np.asarray(exact).astype(old.dtype)

    def _check(self, over: npt.NDArray[np.bool_]) -> None:
        if over.any():
            raise _too_large(self._name, self._type)


def _decimal_functions(column: pa.Array, name: str) -> tuple[Any, Any]:
    """The ``agg`` and ``retract`` functions of ``sum`` or ``product`` over Python decimals of the column's type.

    A result that is too large becomes NULL, as in Paimon.  Sums of a DECIMAL of up to 18 digits may have more digits
    before all rows are added, also as in Paimon, as long as 64 bits hold them.
    """
    step = Decimal(1).scaleb(-column.type.scale)
    compact = name == "sum" and column.type.precision <= COMPACT_DIGITS
    limit = Decimal(1 << 63).scaleb(-column.type.scale) if compact else _limit(column.type)

    def fit(value: Decimal) -> Decimal | None:
        rounded = value.quantize(step, context=_EXACT)
        return rounded if rounded.copy_abs() < limit else None

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
            raise InvalidRequest("aggregate function 'product' cannot retract a row with 0")
        assert held is not None
        return fit(_EXACT.divide(held, new))

    return agg, retract


class Decimals(PythonValues):
    """``sum`` and ``product`` of decimals."""

    def finish(self) -> pa.Array:
        """Return the results; raises :class:`InvalidRequest` for one that has more digits than the column."""
        limit = _limit(self._column.type)
        if any(value is not None and value.copy_abs() >= limit for value in self._values):
            raise _too_large(self._name, self._column.type)
        return super().finish()


def _limit(kind: pa.DataType) -> Decimal:
    """The least positive decimal that has too many digits for a type."""
    return Decimal(1).scaleb(kind.precision - kind.scale)


def _too_large(name: str, kind: pa.DataType) -> InvalidRequest:
    return InvalidRequest(
        f"aggregate function '{name}': the result is too large for {kind}; give the column a wider type"
    )


class Booleans(CannotRetract, Numbers):
    """``bool_and`` and ``bool_or``."""

    def agg(self, groups: Int64s, rows: Int64s) -> None:
        """Combine the values by AND or OR."""
        valid = self._valid[rows]
        groups, new = groups[valid], self._input[rows[valid]]
        old, has_value = self._state[groups], self._has_value[groups]
        combined = old & new if self._name == "bool_and" else old | new
        self._state[groups] = np.where(has_value, combined, new)
        self._has_value[groups] = True

    agg_reversed = agg


_Change = Callable[[Any, Any], Any]


def accumulator(function: Function, column: pa.Array, groups: int) -> Accumulator:
    """Return the accumulator of a column's function for a number of groups.

    Raises :class:`UnsupportedFeature` for an unknown function and :class:`InvalidRequest` for a column of a type that
    the function does not support.
    """
    inner = _accumulator(function, column, groups)
    return IgnoreRetract(inner) if function.ignore_retract else inner


def _accumulator(function: Function, column: pa.Array, groups: int) -> Accumulator:
    name = function.name
    kind = column.type
    if name == "primary-key":
        return PrimaryKeyValue(column, groups)
    if name == "last_value":
        return Choice(column, groups)
    if name == "last_non_null_value":
        return LastNonNull(column, groups)
    if name in ("first_value", "first_non_null_value", "first_not_null_value"):
        return FirstValue(column, groups, name, name != "first_value")
    if name in ("min", "max"):
        return Extreme(column, groups, name)
    if name in ("sum", "product"):
        if pa.types.is_decimal(kind):
            return Decimals(column, groups, name, *_decimal_functions(column, name))
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            return Arithmetic(column, groups, name)
        raise _wrong_type(name, "numbers", kind)
    if name in ("bool_and", "bool_or"):
        if not pa.types.is_boolean(kind):
            raise _wrong_type(name, "BOOLEAN", kind)
        return Booleans(column, groups, name)
    if name == "listagg":
        return PythonValues(column, groups, name, _listagg(function))
    if name == "collect":
        agg, retract = _collect(function)
        return PythonValues(column, groups, name, agg, retract, reverse=False)
    if name == "merge_map":
        return PythonValues(column, groups, name, _merge_map, _unmerge_map)
    if name == "merge_map_with_keytime":
        return PythonValues(column, groups, name, _with_keytime(function, kind))
    if name == "nested_update":
        return PythonValues(column, groups, name, *_nested_update(function))
    if name == "nested_partial_update":
        return PythonValues(column, groups, name, _nested_partial(function))
    if name in ("rbm32", "rbm64"):
        return PythonValues(column, groups, name, _bitmap_union(BitMap if name == "rbm32" else BitMap64))
    if name in ("theta_sketch", "hll_sketch"):
        return PythonValues(column, groups, name, sketch_union(name))
    raise UnsupportedFeature(f"this version does not support the aggregate function '{name}'")


def _wrong_type(name: str, supported: str, kind: pa.DataType) -> InvalidRequest:
    return InvalidRequest(f"aggregate function '{name}' needs a column of {supported}, and the column is {kind}")


# --- text -------------------------------------------------------------------------------------------------------------


def _listagg(function: Function) -> _Change:
    delimiter = function.options.get("list-agg-delimiter", ",")
    separator = delimiter or " "
    distinct = function.flag("distinct")

    def agg(held: str | None, new: str | None) -> str | None:
        if new is None or is_blank(new):
            return held
        if held is None or is_blank(held):
            return new
        if not distinct:
            return f"{held}{delimiter}{new}"
        parts = dict.fromkeys(held.split(separator))
        more = [t for t in dict.fromkeys(new.split(separator)) if t not in parts and not is_blank(t)]
        return delimiter.join([held, *more])

    return agg


# --- lists ------------------------------------------------------------------------------------------------------------


def _collect(function: Function) -> tuple[_Change, _Change]:
    distinct = function.flag("distinct")

    def agg(held: list[Any] | None, new: list[Any] | None) -> list[Any] | None:
        if held is None and new is None:
            return None
        values = [*(held or []), *(new or [])]
        return _unique(values) if distinct else values

    def retract(held: list[Any] | None, old: list[Any] | None) -> list[Any] | None:
        if held is None or not old:
            return held
        to_remove = [_frozen(value) for value in old]
        kept = []
        for value in held:
            if _frozen(value) in to_remove:
                to_remove.remove(_frozen(value))
            else:
                kept.append(value)
        return kept

    return agg, retract


def _frozen(value: Any) -> Hashable:
    """A hashable key of a value; equal for equal values, NaN included."""
    if isinstance(value, dict):
        return tuple((k, _frozen(v)) for k, v in value.items())
    if isinstance(value, list | tuple):
        return tuple(_frozen(v) for v in value)
    return "NaN" if isinstance(value, float) and value != value else (type(value).__name__, value)


def _unique(values: Iterable[Any]) -> list[Any]:
    """The values without repetitions, each where it comes first."""
    first: dict[Hashable, Any] = {}
    for value in values:
        first.setdefault(_frozen(value), value)
    return list(first.values())


# --- maps, which Arrow returns as lists of pairs ----------------------------------------------------------------------


def _merge_map(held: Any, new: Any) -> Any:
    if held is None or new is None:
        return new if held is None else held
    return list({_frozen(k): (k, v) for k, v in [*held, *new]}.values())


def _unmerge_map(held: Any, old: Any) -> Any:
    if held is None or not old:
        return held
    keys = {_frozen(k) for k, _ in old}
    return [(k, v) for k, v in held if _frozen(k) not in keys]


def _with_keytime(function: Function, kind: pa.DataType) -> _Change:
    if not pa.types.is_map(kind) or not pa.types.is_struct(kind.item_type):
        raise _wrong_type("merge_map_with_keytime", "maps of rows", kind)
    time = function.options.get("ts-field") or kind.item_type.field(kind.item_type.num_fields - 1).name

    def agg(held: Any, new: Any) -> Any:
        if held is None or new is None:
            return new if held is None else held
        entries = {_frozen(k): (k, v) for k, v in held}
        for key, value in new:
            code = _frozen(key)
            if value is None:
                entries.pop(code, None)
            elif value[time] is not None:
                old = entries.get(code, (None, None))[1]
                if old is None or old[time] is None or value[time] > old[time]:
                    entries[code] = (key, value)
        return list(entries.values())

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

    def sequence(row: Any) -> tuple[Any, ...]:
        return tuple((row[n] is not None, row[n]) if row[n] is not None else (False, 0) for n in order)

    def put(by_key: dict[Hashable, Any], rows: Any, limited: bool) -> None:
        for row in rows:
            code = None if row is None else key(row)
            if code is None:
                continue
            if code in by_key:
                if not order or sequence(row) >= sequence(by_key[code]):
                    by_key[code] = row
            elif not limited or len(by_key) < limit:
                by_key[code] = row

    def agg(held: Any, new: Any) -> Any:
        if new is None:
            return held
        if not keyed:
            before = [r for r in held or [] if r is not None]
            return [*before, *[r for r in new if r is not None][: max(0, limit - len(before))]]
        by_key: dict[Hashable, Any] = {}
        put(by_key, held or [], False)
        put(by_key, new, True)
        return list(by_key.values())

    def retract(held: Any, old: Any) -> Any:
        if held is None or old is None:
            return held
        code_of = key if keyed else _frozen
        codes = {code_of(r) for r in old if r is not None}
        kept = [r for r in held if r is not None and (not keyed or code_of(r) is not None)]
        return [r for r in kept if code_of(r) not in codes]

    return agg, retract


def _nested_partial(function: Function) -> _Change:
    key = _nested_key(function)

    def agg(held: Any, new: Any) -> Any:
        if new is None:
            return held
        by_key: dict[Hashable, Any] = {}
        for row in [*(held or []), *new]:
            code = None if row is None else key(row)
            if code is None:
                continue
            merged = by_key.setdefault(code, dict.fromkeys(row))
            merged.update({k: v for k, v in row.items() if v is not None})
        return list(by_key.values())

    return agg


def _bitmap_union(kind: Any) -> _Change:
    def read(data: bytes) -> Any:
        try:
            return kind.deserialize(data)
        except Exception as e:  # pyroaring raises nearly anything for damaged bytes
            raise CorruptError(f"invalid Roaring bitmap: {e}") from e

    def agg(held: bytes | None, new: bytes | None) -> bytes | None:
        if held is None or new is None:
            return new if held is None else held
        union = read(held) | read(new)
        union.run_optimize()
        return bytes(union.serialize())

    return agg
