"""Facts of a data file, gathered from its rows batch by batch: bounds, NULLs, keys, order, kinds, buckets.

Each gatherer takes batches in file order and keeps a few numbers; none keeps rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bitlake.codec.binary_row import encode_row_with_arity
from bitlake.codec.bucket import bucket_of
from bitlake.formats.column_bounds import physical_values
from bitlake.merge.keys import key_columns
from bitlake.metadata import options as opt
from bitlake.metadata.schema import TableSchema
from bitlake.schema.merge_spec import DELETE, KEY_PREFIX, SEQUENCE_NUMBER, UPDATE_BEFORE, VALUE_KIND, key_fields
from bitlake.types import AtomicType, DataField, Root

_KINDS = 4


class Bounds:
    """Smallest and largest physical value of a column, and how many NULLs and NaNs it has."""

    def __init__(self, column: DataField) -> None:
        self.field = column
        self.low: Any = None
        self.high: Any = None
        self.nulls = 0
        self.nans = 0
        self._plain = isinstance(column.type, AtomicType) and column.type.root is not Root.VARIANT

    def add(self, column: Any) -> None:
        """Count a batch of the column."""
        self.nulls += column.null_count
        if not self._plain or column.null_count == len(column):
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


class KeyFacts:
    """First and last key of a file, and the first rows that are out of order or repeat a key."""

    def __init__(self, schema: TableSchema) -> None:
        self._fields = key_fields(schema)
        self._last: pa.Table | None = None
        self._rows = 0
        self.first_key = self.last_key = b""
        self.unordered: int | None = None
        self.repeated: int | None = None

    def columns(self, batch: pa.Table) -> list[str]:
        """Which columns of a file hold its keys: its own ones, or in thin mode the table's."""
        return [KEY_PREFIX + f.name if KEY_PREFIX + f.name in batch.column_names else f.name for f in self._fields]

    def add(self, batch: pa.Table) -> None:
        """Look at the keys of a batch."""
        keys = batch.select(self.columns(batch))
        if self._last is None:
            self.first_key = self._encode(keys, 0)
        known = keys if self._last is None else pa.concat_tables([self._last, keys])
        start = self._rows - (self._last is not None)
        falls, same = _compared([c.combine_chunks() for c in known.columns])
        if self.unordered is None and falls.any():
            self.unordered = start + 1 + int(np.argmax(falls))
        if self.repeated is None and same.any():
            self.repeated = start + 1 + int(np.argmax(same))
        self._rows += keys.num_rows
        self._last = keys.slice(keys.num_rows - 1)

    def finish(self) -> None:
        """After the last batch."""
        if self._last is not None:
            self.last_key = self._encode(self._last, 0)

    def _encode(self, keys: pa.Table, at: int) -> bytes:
        values = [physical_values(c.slice(at, 1))[0] for c in keys.columns]
        return encode_row_with_arity([f.type for f in self._fields], values)


def _compared(columns: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Of each row but the first, whether its key is below the one before, and whether it is the same."""
    rows = len(columns[0])
    falls, same = np.zeros(max(rows - 1, 0), bool), np.ones(max(rows - 1, 0), bool)
    for column in key_columns(columns):
        if isinstance(column, np.ndarray):
            less, equal = column[1:] < column[:-1], column[1:] == column[:-1]
        else:
            pair = column[1:], column[:-1]
            less, equal = (f(*pair).to_numpy(zero_copy_only=False) for f in (pc.less, pc.equal))
        falls |= same & less
        same &= equal
    return falls, same


class RowFacts:
    """Sequence numbers and kinds of a primary-key file's rows."""

    def __init__(self) -> None:
        self.low: int | None = None
        self.high: int | None = None
        self.deletes = 0
        self.strange: int | None = None
        """A row kind that there is not, or -1 for NULL."""

    def add(self, batch: pa.Table) -> None:
        """Count a batch."""
        ends = pc.min_max(batch.column(SEQUENCE_NUMBER))
        low, high = ends["min"].as_py(), ends["max"].as_py()
        if low is not None:
            self.low = low if self.low is None else min(self.low, low)
            self.high = high if self.high is None else max(self.high, high)
        kinds = batch.column(VALUE_KIND)
        numbers = kinds.fill_null(-1).to_numpy().astype(np.int64)
        counts = np.bincount(np.clip(numbers, -1, _KINDS) + 1, minlength=_KINDS + 2)
        self.deletes += int(counts[UPDATE_BEFORE + 1] + counts[DELETE + 1])
        if self.strange is None and (counts[0] or counts[-1]):
            self.strange = int(numbers[(numbers < 0) | (numbers >= _KINDS)][0])


class BucketFacts:
    """The first row whose bucket, computed anew, is another than its file's."""

    def __init__(self, schema: TableSchema, bucket: int, buckets: int) -> None:
        self._fields = schema.bucket_fields
        self._function: str = schema.opts.of(opt.BUCKET_FUNCTION)
        self._bucket = bucket
        self._buckets = buckets
        self._rows = 0
        self.wrong: tuple[int, int] | None = None
        """The row, and the bucket that it belongs to."""

    def add(self, batch: pa.Table) -> None:
        """Look at a batch."""
        if self.wrong is None:
            columns = [batch.column(f.name) for f in self._fields]
            found = bucket_of([f.type for f in self._fields], columns, self._buckets, self._function)
            other = np.flatnonzero(found != self._bucket)
            if len(other):
                self.wrong = self._rows + int(other[0]), int(found[other[0]])
        self._rows += batch.num_rows
