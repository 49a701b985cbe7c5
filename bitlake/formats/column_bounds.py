"""Column statistics computed from Arrow data, for formats whose footers have none (ORC, Avro)."""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from bitlake.lazy_modules import compute as pc
from bitlake.types.datatypes import AtomicType, DataField, Root

# Python's default context rounds to 28 digits; decimals here have up to 38.
_EXACT = decimal.Context(prec=100)


def physical_values(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Values of a column as the physical values of :mod:`bitlake.expressions.tree`; for few values only."""
    kind = array.type
    if pa.types.is_timestamp(kind):
        return array.cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_date(kind) or pa.types.is_time(kind):
        return array.cast(pa.int32()).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_decimal(kind):
        return [None if v is None else int(v.scaleb(kind.scale, _EXACT)) for v in array.to_pylist()]
    return array.to_pylist()  # type: ignore[no-any-return]


class Bounds:
    """Smallest and largest physical value of a column, and how many NULLs and NaNs it has; a nested one has neither."""

    def __init__(self, column: DataField) -> None:
        self.field = column
        self.plain = isinstance(column.type, AtomicType) and column.type.root is not Root.VARIANT
        self.low: Any = None
        self.high: Any = None
        self.nulls = self.nans = 0

    def add(self, column: Any) -> None:
        """Count a batch of the column, in the field's Arrow type."""
        self.nulls += column.null_count
        if not self.plain or column.null_count == len(column):
            return
        if pa.types.is_floating(column.type):
            nan = pc.is_nan(column)
            held = pc.sum(nan).as_py() or 0
            self.nans += held
            column = column.filter(pc.invert(nan)) if held else column
        both = pc.min_max(column)
        low, high = physical_values(pa.array([both["min"], both["max"]], column.type))
        if low is not None:
            self.low = low if self.low is None else min(self.low, low)
            self.high = high if self.high is None else max(self.high, high)


class ColumnBounds:
    """Smallest and largest value and NULLs of each column: :meth:`add` tables in the fields' Arrow types, then ask.

    As in a Parquet footer: a column that holds NaN has no bounds, nor has a nested one, whose NULLs are unknown too.
    """

    def __init__(self, fields: Sequence[DataField]) -> None:
        self._columns = [Bounds(f) for f in fields]

    def add(self, table: pa.Table) -> None:
        """Count rows; the columns are the fields, in order."""
        for bounds, column in zip(self._columns, table.columns, strict=True):
            bounds.add(column)

    def result(self) -> tuple[tuple[Any, ...], tuple[Any, ...], tuple[int | None, ...]]:
        """(mins, maxs, null counts), physical and untruncated; None where unknown."""
        lows = tuple(_bound(b, b.low, -0.0) for b in self._columns)
        highs = tuple(_bound(b, b.high, 0.0) for b in self._columns)
        return lows, highs, tuple(b.nulls if b.plain else None for b in self._columns)


def _bound(bounds: Bounds, value: Any, zero: float) -> Any:
    """A bound, None beside NaN.  0.0 and -0.0 are equal here but not in a Java comparison of bounds."""
    if bounds.nans:
        return None
    return zero if isinstance(value, float) and value == 0 else value
