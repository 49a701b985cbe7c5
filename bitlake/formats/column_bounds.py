"""Column statistics counted from the Arrow data itself, for formats whose footers do not tell them (ORC, Avro)."""

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


class ColumnBounds:
    """Smallest and largest value and NULLs of each column: :meth:`add` tables in the fields' Arrow types, then ask.

    As in a Parquet footer: a column that holds NaN has no bounds, nor has a nested one, whose NULLs are unknown too.
    """

    def __init__(self, fields: Sequence[DataField]) -> None:
        self._fields = tuple(fields)
        self._plain = [isinstance(f.type, AtomicType) and f.type.root is not Root.VARIANT for f in fields]
        self._known = list(self._plain)
        self._mins: list[Any] = [None] * len(self._fields)
        self._maxs: list[Any] = [None] * len(self._fields)
        self._nulls = [0] * len(self._fields)

    def add(self, table: pa.Table) -> None:
        """Count rows; the columns are the fields, in order."""
        for i, column in enumerate(table.columns):
            if not self._plain[i]:
                continue
            self._nulls[i] += column.null_count
            if not self._known[i] or column.null_count == len(column):
                continue
            if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
                self._known[i] = False
                self._mins[i] = self._maxs[i] = None
                continue
            both = pc.min_max(column)
            low, high = physical_values(pa.array([both["min"], both["max"]], column.type))
            if isinstance(low, float):
                # 0.0 and -0.0 are equal here but not in a Java comparison of bounds.
                low, high = (-0.0 if low == 0 else low), (0.0 if high == 0 else high)
            self._mins[i] = low if self._mins[i] is None else min(self._mins[i], low)
            self._maxs[i] = high if self._maxs[i] is None else max(self._maxs[i], high)

    def result(self) -> tuple[tuple[Any, ...], tuple[Any, ...], tuple[int | None, ...]]:
        """(mins, maxs, null counts), physical and untruncated; None where unknown."""
        nulls = tuple(n if plain else None for n, plain in zip(self._nulls, self._plain, strict=True))
        return tuple(self._mins), tuple(self._maxs), nulls
