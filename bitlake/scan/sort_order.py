"""ORDER BY as Spark sorts: NULLs first or last, NaN above all numbers, -0.0 = 0.0, strings by their bytes.

Two forms: kernels over Arrow columns (:func:`best_rows`), and *places*, single values as tuples that compare as their
rows would be sorted, to weigh files' bounds against each other.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bitlake import arguments
from bitlake.codec.hashing import Int64s
from bitlake.errors import InvalidRequest, NotFound
from bitlake.expressions.indexed import has_members, parse_indexed
from bitlake.expressions.terms import columns_in
from bitlake.expressions.tree import IndexedExpression, MapKey
from bitlake.fileindex.source import IndexSource
from bitlake.lazy_modules import compute as pc
from bitlake.metadata.schema import TableSchema
from bitlake.types import arrow_type
from bitlake.types.datatypes import is_scalar

Place: TypeAlias = tuple[int, Any]
OrderItem: TypeAlias = "str | tuple[str, str] | tuple[str, str, str]"

_DIRECTION = re.compile(r"(?i)\s(asc|desc)(\s+nulls\s+(first|last))?\s*$")
BEST: Place = (-1, 0)
"""Before every row: the place of rows without any bound."""
WORST: Place = (9, 0)
"""After every row."""

_MIN_REDUCTION = 4
"""Values of text are selected before they are ranked if there are at least this many times ``n`` of them."""


@dataclass(frozen=True, slots=True)
class Order:
    """One column, or expression over one row, to sort by."""

    column: str
    descending: bool
    nulls_first: bool

    def __str__(self) -> str:
        nulls = "" if self.nulls_first is not self.descending else f" NULLS {'FIRST' if self.nulls_first else 'LAST'}"
        return f"{self.sql}{' DESC' if self.descending else ''}{nulls}"

    @property
    def sql(self) -> str:
        """The column's name, or the expression as Spark SQL."""
        return self.column.sql if isinstance(self.column, IndexedExpression) else self.column

    @property
    def sources(self) -> tuple[str, ...]:
        """The columns that the values are computed from."""
        if isinstance(self.column, IndexedExpression):
            return tuple(sorted(columns_in(self.column.term)))
        return (self.column,)

    def place(self, value: Any) -> Place:
        """Where a physical value (None: NULL) stands: smaller tuples come first."""
        if value is None:
            return self.null_place
        if isinstance(value, float):
            value = (value != value, 0.0 if value != value else value + 0.0)
        if self.descending:
            value = -value if isinstance(value, int) else _Down(value)
        return 1, value

    @property
    def null_place(self) -> Place:
        """Where NULL stands."""
        return (0, 0) if self.nulls_first else (2, 0)


@functools.total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class _Down:
    """A value that sorts the other way round."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Down) and bool(self.value == other.value)

    def __lt__(self, other: _Down) -> bool:
        return bool(other.value < self.value)

    def __hash__(self) -> int:
        return hash(self.value)


_EXPECTED = "expected (column, 'asc' or 'desc', 'first' or 'last')"


def parse_order(items: Sequence[OrderItem], schema: TableSchema, timezone: str) -> tuple[Order, ...]:
    """Orders from ``"col"``, ``("col", "desc")`` or ``("col", "asc", "last")``; an expression may stand for a column.

    As in Spark, NULLs come first when ascending and last when descending, by default.  Raises
    :class:`InvalidRequest` for a word that is none of these, a column that has no order, or an expression that no index
    can be of, and :class:`bitlake.errors.NotFound` for an unknown column.
    """
    out: list[Order] = []
    for item in _items(items):
        if not all(isinstance(word, str) for word in item) or len(item) not in (2, 3):
            raise InvalidRequest(f"cannot order by {item!r}; {_EXPECTED}")
        name, direction, nulls = (*item, "")[:3]
        descending = direction.lower() == "desc"
        where = nulls.lower().removeprefix("nulls ").strip() or ("last" if descending else "first")
        if direction.lower() not in ("asc", "desc") or where not in ("first", "last"):
            raise InvalidRequest(f"cannot order by {item!r}; {_EXPECTED}")
        out.append(Order(_ordered(name, schema, timezone), descending, where == "first"))
    if not out:
        raise InvalidRequest("top_n needs at least one column to order by; use limit() for any rows")
    return tuple(out)


def _items(items: Any) -> list[tuple[Any, ...]]:
    """The items as tuples; raises :class:`InvalidRequest` for anything but a column or a list."""
    listed = arguments.listed("order_by", [items] if isinstance(items, str) else items, "columns")
    return [tuple(i) if isinstance(i, tuple | list) else (i, "asc") for i in listed]


def _ordered(name: str, schema: TableSchema, timezone: str) -> str:
    """A column's own name, or an expression; raises as :func:`parse_order`."""
    try:
        field = schema.field(name)
    except NotFound as missing:
        column = _parsed(name, schema, timezone, missing)
        if isinstance(column, IndexedExpression):
            return column
        field = schema.field(column)
    if not is_scalar(field.type):
        raise InvalidRequest(f"cannot order by column '{field.name}': {field.type} values have no order")
    return field.name


def _parsed(name: str, schema: TableSchema, timezone: str, missing: NotFound) -> str:
    """An expression, or a column whose name is quoted; ``missing``: the error for a name that no column has."""
    if _DIRECTION.search(name):
        raise InvalidRequest(f"cannot order by '{name}'; name the direction apart: ('<column>', 'desc', 'last')")
    try:
        expression = parse_indexed(name, schema.fields, timezone)
    except NotFound:
        if "(" not in name:
            raise missing from None
        raise
    except InvalidRequest as e:
        raise InvalidRequest(f"cannot order by '{name}', of which no index can be: {e}") from e
    if isinstance(expression, MapKey) or (isinstance(expression, IndexedExpression) and has_members(expression)):
        raise InvalidRequest(f"cannot order by '{name}'; expected a column, or an expression of one value") from None
    if isinstance(expression, IndexedExpression) and expression in schema.field_names:
        raise InvalidRequest(f"cannot order by '{name}': '{expression}' is also the name of a column") from None
    return expression


def with_expressions(table: pa.Table, orders: Sequence[Order]) -> pa.Table:
    """Rows with a column of values for each expression to sort by.

    Raises :class:`bitlake.errors.EvaluationFailed` where an expression fails for a row.
    """
    for order in orders:
        if isinstance(order.column, IndexedExpression):
            values = IndexSource(order.column, order.sources, order.column.type).values(table)
            table = table.append_column(order.column, values.cast(arrow_type(order.column.type)))
    return table


def best_rows(table: pa.Table, orders: Sequence[Order], n: int) -> Int64s:
    """The indices of the first ``n`` rows in order, sorted; rows that tie keep their order in the table."""
    rows = table.num_rows
    if n <= 0 or rows == 0:
        return np.zeros(0, np.int64)
    chosen = np.arange(rows, dtype=np.int64)
    if rows > n:
        first = orders[0]
        table = table.select(list(dict.fromkeys(o.column for o in orders)))
        possible = _candidate_rows(table.column(first.column), first, n)
        if possible is not None:
            chosen, table = possible, table.take(pa.array(possible))
        among = _first(*_sortable(table.column(first.column), first), n)
        chosen, table = chosen[among], table.take(pa.array(among))
    keys: list[npt.NDArray[Any]] = []
    for order in orders:
        nulls, values = _sortable(table.column(order.column), order)
        keys += [nulls, values]
    sorted_ = np.lexsort(keys[::-1])[:n]
    return chosen[sorted_]


def _candidate_rows(column: pa.ChunkedArray, order: Order, n: int) -> Int64s | None:
    """The rows of text, bytes or wide decimals that can be among the first ``n``, and NULLs; None to rank all rows.

    Ranks need all values to be sorted: of 100,000 texts, that takes 70 ms, and finding the first ten 6.
    """
    kind = column.type
    is_wide = (
        pa.types.is_string(kind) or pa.types.is_binary(kind) or (pa.types.is_decimal128(kind) and kind.precision > 18)
    )
    if not is_wide or n * _MIN_REDUCTION > len(column) - column.null_count:
        return None
    values = column.drop_null() if column.null_count else column
    direction = "descending" if order.descending else "ascending"
    first = values.take(pc.select_k_unstable(values, k=n, sort_keys=[("value", direction)]))
    ends = pc.min_max(first)
    mask = pc.greater_equal(column, ends["min"]) if order.descending else pc.less_equal(column, ends["max"])
    return np.flatnonzero(mask.fill_null(True).to_numpy())


def _first(nulls: npt.NDArray[np.int8], values: Int64s, n: int) -> Int64s:
    """The rows that can be among the first ``n`` by one column, with all that tie for the last place; ascending."""
    kept: list[Int64s] = []
    for group in (0, 1, 2):
        rows = np.flatnonzero(nulls == group)
        if group == 1 and len(rows) > n:
            worst = np.partition(values[rows], n - 1)[n - 1]
            rows = rows[values[rows] <= worst]
        kept.append(rows)
        n -= len(rows)
        if n <= 0:
            break
    return np.sort(np.concatenate(kept))


def _sortable(column: pa.ChunkedArray, order: Order) -> tuple[npt.NDArray[np.int8], Int64s]:
    """Each row's group (NULLs apart) and a number that ascends as the rows shall; 0 for NULL."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    values = _numbers(array)
    if order.descending:
        values = ~values
    groups = np.ones(len(array), np.int8)
    if array.null_count:
        null = array.is_null().to_numpy(zero_copy_only=False)
        groups[null] = order.null_place[0]
        values = np.where(null, 0, values)
    return groups, values


def _numbers(array: pa.Array) -> Int64s:
    """Integers in the order of the values; a NULL's is arbitrary."""
    kind = array.type
    if pa.types.is_floating(kind):
        floats = array.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0
        floats = np.where(np.isnan(floats), np.nan, floats)  # one NaN, and a positive one
        bits = np.ascontiguousarray(floats).view(np.int64)
        return bits ^ ((bits >> 63) & np.iinfo(np.int64).max)
    if pa.types.is_boolean(kind):
        array = array.cast(pa.int8())
    elif pa.types.is_temporal(kind):
        array = array.view(pa.int64() if kind.bit_width == 64 else pa.int32())
    if pa.types.is_decimal128(kind) and kind.precision <= 18:  # the low half holds the number
        words = np.frombuffer(array.buffers()[1], np.int64)[2 * array.offset : 2 * (array.offset + len(array))]
        return np.ascontiguousarray(words[::2])
    if pa.types.is_integer(array.type):
        filled: npt.NDArray[Any] = array.fill_null(0).to_numpy(zero_copy_only=False)
        return filled.astype(np.int64)
    encoded = array if pa.types.is_dictionary(kind) else array.dictionary_encode()
    ranks = np.empty(len(encoded.dictionary) + 1, np.int64)
    by_value = pc.sort_indices(encoded.dictionary).to_numpy()
    ranks[by_value] = np.arange(len(by_value))
    return ranks[encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)] if len(by_value) else _zeros(len(array))


def _zeros(n: int) -> Int64s:
    return np.zeros(n, np.int64)
