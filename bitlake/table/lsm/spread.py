"""The rows of a batch by partition and bucket, each bucket's in key order: one sort and one gather for all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bitlake.codec.binary_row import encode_row_with_arity
from bitlake.codec.bucket import bucket_of
from bitlake.codec.hashing import Int32s
from bitlake.formats.column_bounds import physical_values
from bitlake.merge.keys import Int64s, in_order, key_columns, stable_argsort
from bitlake.metadata import options as opt
from bitlake.metadata.schema import TableSchema
from bitlake.table.lsm.assign import key_hashes
from bitlake.table.lsm.buffer import one_chunk
from bitlake.table.write import group_codes

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
