"""Functions of arrays and maps: ``array_contains``, ``arrays_overlap``, ``map_contains_key`` and ``size``.

They search for constants, which are not NULL.  The result is Spark's: TRUE if a value occurs, else NULL if the array
is NULL or has a NULL element, else FALSE.  ``exists(a, x -> x = 1)`` is ``array_contains(a, 1)``, and with IN it is
``arrays_overlap``.  ``size`` of NULL is NULL, as in ANSI mode.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bitlake.expressions import literals
from bitlake.expressions.terms import BOOLEAN, INT, Bound, Function, Refused, Typed, mask_of
from bitlake.lazy_modules import compute as pc
from bitlake.types.arrow import arrow_type
from bitlake.types.datatypes import INTEGER_BITS, INTEGERS, ArrayType, AtomicType, DataType, MapType, Root

CONTAINS = frozenset({"array_contains", "arrays_overlap", "map_contains_key"})
"""The functions that search for constants."""
MEMBERS = {"element": "array_contains", "keys": "map_contains_key"}
"""The terms that only indexes use, each with a function that such an index evaluates."""


def member_type(kind: DataType) -> AtomicType | None:
    """The type of an array's elements or of a map's keys; None for another type, and for members that are not atomic.

    Their values are compared as they are: not CHAR, which is padded, and not timestamps and floats.
    """
    inner = kind.element if isinstance(kind, ArrayType) else kind.key if isinstance(kind, MapType) else None
    if not isinstance(inner, AtomicType):
        return None
    return inner if inner.root in (Root.VARCHAR, Root.DATE, Root.BOOLEAN, *INTEGERS) else None


def members(array: pa.Array | pa.ChunkedArray) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """The elements of lists, or the keys of maps, and the row of each, ascending; NULL rows have none."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
        if isinstance(array, pa.ChunkedArray):
            array = array.chunk(0) if array.num_chunks else pa.array([], array.type)
    offsets = array.offsets.to_numpy()
    values = array.keys if pa.types.is_map(array.type) else array.values
    values = values.slice(offsets[0], offsets[-1] - offsets[0])
    rows = np.repeat(np.arange(len(array), dtype=np.int64), np.diff(offsets))
    if array.null_count:
        kept = array.is_valid().to_numpy(zero_copy_only=False)[rows]
        if not kept.all():
            values, rows = values.filter(pa.array(kept)), rows[kept]
    return values, rows


def _bind_contains(arguments: Sequence[Typed], zone: str) -> Bound:
    column, *sought = arguments
    kind = member_type(column.type)
    if kind is None:
        raise Refused(f"{column.sql} is {column.type}, in which no constant is looked for")
    if not sought:
        raise Refused("it needs a value to search for")
    return [column], BOOLEAN, tuple(_constant(term, kind) for term in sought)


def _bind_array(arguments: Sequence[Typed], zone: str) -> Bound:
    if not arguments:
        raise Refused("it needs an array")
    if not isinstance(arguments[0].type, ArrayType):
        raise Refused(f"{arguments[0].sql} is {arguments[0].type}, and not an ARRAY")
    return _bind_contains(arguments, zone)


def _bind_map(arguments: Sequence[Typed], zone: str) -> Bound:
    if not arguments:
        raise Refused("it needs a map")
    if not isinstance(arguments[0].type, MapType):
        raise Refused(f"{arguments[0].sql} is {arguments[0].type}, and not a MAP")
    return _bind_contains(arguments, zone)


def _constant(term: Typed, kind: AtomicType) -> Any:
    value = term.parameter
    if not term.is_literal or value is None:
        raise Refused(f"{term.sql} is not a constant")
    if kind.root in INTEGERS:
        bound = 1 << (INTEGER_BITS[kind.root] - 1)
        fits = term.root in INTEGERS and -bound <= value < bound
    else:
        fits = term.root is kind.root
    if not fits:
        raise Refused(f"{term.sql} is {term.type}, and the values are {kind}")
    return value


def physical(value: Any) -> Any:
    """A constant as predicates hold it."""
    return literals.days(value) if isinstance(value, dt.date) else value


def _contains(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    (array,) = arrays
    kind = member_type(term.arguments[0].type)
    assert kind is not None
    values, parents = members(array)
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    arrow_kind = arrow_type(kind)
    values = values if values.type == arrow_kind else values.cast(arrow_kind)
    hit = pc.is_in(values, value_set=pa.array(term.parameter, arrow_kind)).to_numpy(zero_copy_only=False)
    matches = np.zeros(len(array), bool)
    matches[parents[hit]] = True
    unknown = array.is_null().to_numpy(zero_copy_only=False)
    if values.null_count:
        unknown = unknown.copy()
        unknown[parents[values.is_null().to_numpy(zero_copy_only=False)]] = True
    return pa.array(matches, pa.bool_(), mask=unknown & ~matches)


def _bind_size(arguments: Sequence[Typed], zone: str) -> Bound:
    (a,) = arguments
    if not isinstance(a.type, ArrayType | MapType):
        raise Refused(f"{a.sql} is {a.type}, and neither an ARRAY nor a MAP")
    return arguments, INT, None


def _size(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    (array,) = arrays
    return pa.array(np.diff(array.offsets.to_numpy()).astype(np.int32), pa.int32(), mask=mask_of(array))


ARRAY_FUNCTIONS = {
    "array_contains": Function(_bind_array, _contains),
    "arrays_overlap": Function(_bind_array, _contains),
    "map_contains_key": Function(_bind_map, _contains),
    "size": Function(_bind_size, _size),
}
