"""Which buckets can hold rows that satisfy a predicate, and literals as Arrow arrays, which are hashed to tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from bitlake.codec.bucket import bucket_of
from bitlake.expressions.tree import Predicate, named_values
from bitlake.metadata import options as opt
from bitlake.metadata.schema import TableSchema
from bitlake.schema.evolution import same_columns
from bitlake.types import DataField, arrow_type

_MAX_COMBINATIONS = 1000


class BucketFilter:
    """Which buckets can hold rows whose bucket key equals the predicate's literals.

    ``terms`` are the predicate's conjuncts.
    """

    def __init__(self, schema: TableSchema, terms: Sequence[Predicate]) -> None:
        self._values: list[tuple[Any, ...]] = []
        self._possible: dict[int, frozenset[int]] = {}
        self._fields = [schema.field(k) for k in schema.bucket_keys]
        self._function = opt.Options(schema.options).get(opt.BUCKET_FUNCTION)
        combinations = 1
        for key in schema.bucket_keys:
            found = named_values(terms, key)
            # 0.0 and -0.0 are equal but hash apart, and so do two NaNs.
            if found is None or any(isinstance(v, float) and (v == 0 or v != v) for v in found):
                self._values = []
                return
            combinations *= len(found)
            self._values.append(found)
        if combinations > _MAX_COMBINATIONS:
            self._values = []

    @property
    def asked(self) -> bool:
        """Whether the predicate names values of the whole bucket key."""
        return bool(self._values)

    def possible(self, total: int, file_schema: TableSchema) -> frozenset[int] | None:
        """The buckets of ``total`` that can hold such rows; None: any.

        ``total`` is each entry's own bucket count, never the table's current option.
        """
        if not self._values or total <= 0:
            return None
        if not same_columns(self._fields, file_schema.fields):
            # The rows were spread by the hash of another type's values.
            return None
        possible = self._possible.get(total)
        if possible is None:
            grid = np.meshgrid(*[np.arange(len(v)) for v in self._values], indexing="ij")
            arrays = [
                physical_array(f, values).take(pa.array(g.ravel()))
                for f, values, g in zip(self._fields, self._values, grid, strict=True)
            ]
            numbers = bucket_of([f.type for f in self._fields], arrays, total, self._function)
            possible = self._possible[total] = frozenset(numbers.tolist())
        return possible


def physical_array(column: DataField, values: Sequence[Any]) -> pa.Array:
    """An Arrow array of a column's type from physical values (see :mod:`bitlake.expressions.tree`)."""
    wanted = arrow_type(column.type)
    if pa.types.is_decimal(wanted):
        words = b"".join(b"\0" * 16 if v is None else int(v).to_bytes(16, "little", signed=True) for v in values)
        mask = pa.array([v is not None for v in values], pa.bool_()).buffers()[1]
        return pa.Array.from_buffers(wanted, len(values), [mask, pa.py_buffer(words)])
    if pa.types.is_timestamp(wanted):
        return pa.array(values, pa.int64()).cast(wanted)
    if pa.types.is_date(wanted) or pa.types.is_time(wanted):
        return pa.array(values, pa.int32()).cast(wanted)
    return pa.array(values, wanted)
