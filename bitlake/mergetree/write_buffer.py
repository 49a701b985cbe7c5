"""Rows on their way to level 0: put in key order, numbered, and the rows of one key in a batch made one.

Inside a batch, rows of a key merge by ``sequence.field``, then in the order they came.  The row that is left gets its
number after that: numbers then ascend with the keys in a file, which compresses well, and no row of a bucket that was
written earlier has a higher one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from bitlake.codec.binary_row import encode_row_with_arity
from bitlake.codec.bucket import bucket_of
from bitlake.codec.hashing import Int32s
from bitlake.errors import InvalidRequest
from bitlake.formats.column_bounds import physical_values
from bitlake.lazy_arrow import compute as pc
from bitlake.merge.engine import merge_rows
from bitlake.merge.keys import Int64s, group_rows, in_order, key_columns, order_codes, stable_argsort
from bitlake.mergetree.bucket_assignment import key_hashes
from bitlake.metadata import options as opt
from bitlake.metadata.schema import TableSchema
from bitlake.schema.merge_spec import SEQUENCE_NUMBER, VALUE_KIND, MergeSpec
from bitlake.write.writer import group_codes

_HELD_ROWS = 1 << 16


def sorted_rows(spec: MergeSpec, rows: pa.Table, first_sequence: int) -> pa.Table:
    """All rows in key order, those of a key in the order in which they merge, numbered from ``first_sequence``.

    ``rows`` are in the order they came, with ``_VALUE_KIND``; the result has ``_SEQUENCE_NUMBER`` before all columns.
    """
    rows = one_chunk(rows)
    ordering = [order_codes(rows.column(c), spec.descending) for c in spec.sequence]
    arrival = np.arange(rows.num_rows, dtype=np.int64)
    groups = group_rows([rows.column(k) for k in spec.keys], [*ordering, arrival], key_order=True)
    if not np.array_equal(groups.order, arrival):
        rows = rows.take(pa.array(groups.order))
    return numbered(rows, first_sequence)


def sorted_merged(spec: MergeSpec, rows: pa.Table, first_sequence: int) -> pa.Table:
    """One row for each key, in key order, numbered from ``first_sequence``; deletes are rows too.

    ``rows`` are in the order they came, with ``_VALUE_KIND``.  Raises :class:`InvalidRequest` for rows that the merge
    engine cannot take.
    """
    return merged(spec, numbered(one_chunk(rows), first_sequence), first_sequence)


def merged(spec: MergeSpec, rows: pa.Table, first_sequence: int) -> pa.Table:
    """Numbered rows, merged by key and numbered anew."""
    columns = [f.name for f in spec.fields]
    out = merge_rows(spec, rows, columns, keep_deletes=True)
    return out if out.num_rows == rows.num_rows == 1 else numbered(out, first_sequence)


def one_chunk(rows: pa.Table) -> pa.Table:
    """The rows with one chunk in each column; Arrow copies a column of one chunk when asked to combine it."""
    return rows if all(c.num_chunks <= 1 for c in rows.columns) else rows.combine_chunks()


def numbered(rows: pa.Table, first: int) -> pa.Table:
    """The rows with ``_SEQUENCE_NUMBER`` from ``first`` on as their first column."""
    column = pa.array(np.arange(first, first + rows.num_rows, dtype=np.int64))
    if SEQUENCE_NUMBER in rows.column_names:
        return rows.set_column(rows.column_names.index(SEQUENCE_NUMBER), SEQUENCE_NUMBER, column)
    return rows.add_column(0, SEQUENCE_NUMBER, column)


@dataclass(slots=True)
class SortedMerge:
    """Merges a stream of rows that comes in key order, in batches whose borders may part the rows of a key.

    Mutable: it holds back the rows of the last key seen.  ``next_sequence`` numbers what comes.
    """

    spec: MergeSpec
    next_sequence: int
    _held: list[pa.Table] = field(default_factory=list)

    def add(self, rows: pa.Table) -> tuple[pa.Table, pa.Table | None]:
        """(the rows numbered, what is merged for good); ``rows`` have ``_VALUE_KIND``.

        Raises :class:`InvalidRequest` if the rows do not ascend.
        """
        # In the order of columns that merged rows have.
        names = [SEQUENCE_NUMBER, VALUE_KIND, *(f.name for f in self.spec.fields)]
        rows = numbered(rows, self.next_sequence).select(names)
        self.next_sequence += rows.num_rows
        if not rows.num_rows:
            return rows, None
        merged = []
        fresh = one_chunk(rows)
        if self._held and self._parted(fresh):
            # Nearly always a batch begins with another key; then nothing of it need be copied.
            merged.append(self._merge(pa.concat_tables(self._held)))
        elif self._held:
            fresh = one_chunk(pa.concat_tables([*self._held, fresh]))
        keys = key_columns([fresh.column(k) for k in self.spec.keys])
        if not in_order(keys):
            raise _unsorted()
        tail = self._last_key(keys, fresh.num_rows)
        self._held = [fresh.slice(tail)]
        if fresh.num_rows - tail > _HELD_ROWS:
            self._held = [self._merge(fresh.slice(tail))]
        if tail:
            merged.append(self._merge(fresh.slice(0, tail)))
        return rows, pa.concat_tables(merged) if merged else None

    def _parted(self, rows: pa.Table) -> bool:
        """Whether the rows begin with another key than the one held, which must be smaller."""
        held = self._held[-1]
        ends = pa.concat_tables([held.slice(held.num_rows - 1), rows.slice(0, 1)]).select(list(self.spec.keys))
        keys = key_columns([ends.column(k) for k in self.spec.keys])
        if not in_order(keys):
            raise _unsorted()
        return not all(_same(k, 0, 1) for k in keys)

    def finish(self) -> pa.Table | None:
        """What is left: the last key's row."""
        held, self._held = self._held, []
        return self._merge(pa.concat_tables(held)) if held else None

    def _merge(self, rows: pa.Table) -> pa.Table:
        return merge_rows(self.spec, rows, [f.name for f in self.spec.fields], keep_deletes=True)

    def _last_key(self, keys: list[object], rows: int) -> int:
        """The first row of the last key."""
        low, high = 0, rows - 1
        # Rows ascend, so the last key's are together: a search by halves looks at few rows.
        while low < high:
            middle = (low + high) // 2
            if all(_same(k, middle, rows - 1) for k in keys):
                high = middle
            else:
                low = middle + 1
        return low


def _unsorted() -> InvalidRequest:
    return InvalidRequest("rows that should come in key order do not; this is an error in how they were sorted")


def _same(column: object, a: int, b: int) -> bool:
    if isinstance(column, np.ndarray):
        return bool(column[a] == column[b])
    assert isinstance(column, pa.Array)
    return bool(column[a] == column[b])


# --- spread ---
# The rows of a batch by partition and bucket, each bucket's in key order: one sort and one gather for all.

Assign = Callable[[bytes, Int32s], Int32s]
"""(partition row, hashes of keys in order of arrival) → their buckets."""


@dataclass(frozen=True, slots=True)
class Share:
    """The rows of a batch that belong to one bucket, in key order, and the hashes of their keys as they came.

    There are hashes for dynamic buckets only.
    """

    partition: bytes
    bucket: int
    rows: pa.Table
    hashes: Int32s | None = None


def partitions_of(rows: pa.Table, schema: TableSchema) -> set[bytes]:
    """The partitions that rows are of, as BinaryRows with arity."""
    codes = group_codes(rows, schema.partition_fields, np.zeros(rows.num_rows, np.int32))
    return set(_partitions(rows, schema, np.unique(codes, return_index=True)[1]))


def spread(
    rows: pa.Table, schema: TableSchema, assign: Assign | None = None, buckets: Int32s | None = None
) -> Iterator[Share]:
    """Give rows their buckets: those given, else the hash of fixed ones, ``assign``'s for dynamic ones.

    Rows of one key stay in their order.
    """
    if not rows.num_rows:
        return
    rows = one_chunk(rows)
    partitions = group_codes(rows, schema.partition_fields, np.zeros(rows.num_rows, np.int32))
    hashes = None
    if buckets is not None:
        pass
    elif assign is None:
        fields = schema.bucket_fields
        columns = [rows.column(f.name) for f in fields]
        function = schema.opts.of(opt.BUCKET_FUNCTION)
        buckets = bucket_of([f.type for f in fields], columns, schema.num_buckets, function)
    else:
        hashes = key_hashes(schema, rows)
        buckets = _assigned(rows, schema, partitions, hashes, assign)
    order = _ordered(rows, schema, [partitions, buckets.astype(np.int64)])
    place, at = partitions[order], buckets[order]
    starts = np.flatnonzero(np.concatenate(([True], (place[1:] != place[:-1]) | (at[1:] != at[:-1]))))
    gathered = rows if _is_range(order) else rows.take(pa.array(order))
    names = _partitions(gathered, schema, starts)
    for i, (start, end) in enumerate(zip(starts.tolist(), [*starts[1:].tolist(), len(order)], strict=True)):
        came = None if hashes is None else hashes[np.sort(order[start:end])]
        yield Share(names[i], int(at[start]), gathered.slice(start, end - start), came)


def _assigned(rows: pa.Table, schema: TableSchema, partitions: Int64s, hashes: Int32s, assign: Assign) -> Int32s:
    order = np.argsort(partitions, kind="stable")
    starts = np.flatnonzero(np.concatenate(([True], np.diff(partitions[order]) != 0)))
    out = np.empty(len(order), np.int32)
    named = _partitions(rows, schema, order[starts])
    for name, chosen in zip(named, np.split(order, starts[1:]), strict=True):
        out[chosen] = assign(name, hashes[chosen])
    return out


def _ordered(rows: pa.Table, schema: TableSchema, groups: list[Int64s]) -> Int64s:
    """Row numbers by group, then by key, then as they came."""
    columns: list[Any] = [*groups, *key_columns([rows.column(k) for k in schema.trimmed_primary_keys])]
    if in_order(columns):
        return np.arange(rows.num_rows, dtype=np.int64)
    if all(isinstance(c, np.ndarray) for c in columns):
        return stable_argsort(columns)
    names = [str(i) for i in range(len(columns))]
    found = pc.sort_indices(pa.table(columns, names=names), sort_keys=[(n, "ascending") for n in names])
    order: Int64s = found.to_numpy(zero_copy_only=False).astype(np.int64)
    return order


def _is_range(order: Int64s) -> bool:
    return bool((np.diff(order) == 1).all()) and (not len(order) or order[0] == 0)


def _partitions(rows: pa.Table, schema: TableSchema, at: Int64s) -> list[bytes]:
    """The partitions of some rows, as BinaryRows with arity."""
    fields = schema.partition_fields
    types = [f.type for f in fields]
    first = rows.select([f.name for f in fields]).take(pa.array(at)) if fields else None
    if first is None:
        return [encode_row_with_arity((), ())] * len(at)
    values = zip(*[physical_values(first.column(f.name)) for f in fields], strict=True)
    return [encode_row_with_arity(types, v) for v in values]
