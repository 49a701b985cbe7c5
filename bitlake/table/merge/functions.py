"""The aggregate functions by name, and those over lists, maps, rows and joined text."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import pyarrow as pa
from pyroaring import BitMap, BitMap64

from bitlake.codec.sketches import sketch_union
from bitlake.errors import CorruptError, InvalidRequest, UnsupportedFeature
from bitlake.schema.merge_spec import Function
from bitlake.table.merge.accumulate import (
    Accumulator,
    Choice,
    Extreme,
    First,
    IgnoreRetract,
    Key,
    LastNonNull,
    Objects,
)
from bitlake.table.merge.numbers import Numbers, Truth, decimal_functions

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
