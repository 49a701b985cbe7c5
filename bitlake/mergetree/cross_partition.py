"""Cross-partition upsert: keys that are unique across all partitions of a table.

If a row's key is already in another partition, the merge engine decides (index-format spec, section 7.5):

* deduplicate: the row goes to its own partition, and a -D row to the old one;
* partial-update, aggregation: the row goes to the key's partition, and takes its partition values;
* first-row: the row is dropped.

Paimon keeps a local key-value store of all keys for this.  Here the partitions and buckets of live keys are joined to
the rows, and :class:`Rerouter` goes through the result, which comes in key order.  In this process
:class:`KeyPlacement` joins: it reads the table's key and partition columns, of the files whose key range meets the
batch's, and remembers what the same write has placed.  Spark joins by itself (:mod:`bitlake.spark.write.primary_key`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from bitlake.codec.binary_row import EMPTY_ROW, encode_row_with_arity
from bitlake.codec.hashing import Int32s, Int64s
from bitlake.expressions.tree import And, Comparison, In, Op
from bitlake.lazy_modules import compute as pc
from bitlake.mergetree.bucket_assignment import AssignerLayout, PartitionAssigner, key_hashes
from bitlake.metadata import options as opt
from bitlake.metadata.schema import TableSchema
from bitlake.scan.reader import BUCKET as BUCKET_COLUMN
from bitlake.scan.scan import TableScan
from bitlake.schema.merge_spec import DEDUPLICATE, DELETE, FIRST_ROW, VALUE_KIND
from bitlake.snapshot.file_columns import columns_of_files
from bitlake.snapshot.state import TableState
from bitlake.types import arrow_schema
from bitlake.types.arrow import physical_values
from bitlake.write.writer import group_codes, rebatched

OLD_PREFIX = "__bitlake_old_"
"""Prefix of a partition column's name: the column with the values of the key's live row."""
OLD_BUCKET = "__bitlake_old_bucket"
"""The column of the bucket of the key's live row; NULL without one."""
NEW_BUCKET = "__bitlake_bucket"


def stored_row_counts(state: TableState) -> dict[bytes, dict[int, int]]:
    """Return the rows stored in each bucket by partition, superseded rows included: how full the buckets are.

    Only the columns of the files are read.
    """
    files = columns_of_files(state.entries())
    slots, codes = files.slots
    rows = np.zeros(len(slots), np.int64)
    np.add.at(rows, codes, files.rows)
    out: dict[bytes, dict[int, int]] = {}
    for (partition, bucket), count in zip(slots, rows.tolist(), strict=True):
        out.setdefault(partition, {})[bucket] = count
    return out


@dataclass(slots=True)
class Rerouter:
    """Assigns partitions and buckets to rows joined with the old ones of their keys.  Mutable, one thread.

    Rows come in key order, those of a key in order of arrival, as tables of the table's columns, ``_VALUE_KIND``,
    :data:`OLD_BUCKET` and an :data:`OLD_PREFIX` column for each partition column; a batch may end within a key.  They
    are returned with :data:`NEW_BUCKET` in place of the old columns.  New keys fill buckets like
    :class:`bitlake.mergetree.bucket_assignment.PartitionAssigner`; ``counts`` is :func:`stored_row_counts`.
    """

    schema: TableSchema
    layout: AssignerLayout
    counts: Mapping[bytes, Mapping[int, int]]
    channel: int = 0
    _last_key: pa.Table | None = None
    _partitions: dict[bytes, PartitionAssigner] = field(default_factory=dict)

    def add(self, rows: pa.Table) -> pa.Table | None:
        """Return the routed rows so far, except those of the last key, which may continue; None without any."""
        if not rows.num_rows:
            return None
        rows = _nullable(rows)
        pending = rows if self._last_key is None else pa.concat_tables([self._last_key, rows])
        starts = self._starts(pending)
        self._last_key = pending.slice(int(starts[-1]))
        return self._route(pending.slice(0, int(starts[-1]))) if starts[-1] else None

    def finish(self) -> pa.Table | None:
        """Return the routed rows of the last key."""
        rows, self._last_key = self._last_key, None
        return None if rows is None else self._route(rows)

    # --- one batch of whole keys --------------------------------------------------------------------------------------

    def _starts(self, rows: pa.Table) -> Int64s:
        """The rows at which keys begin."""
        # The whole primary key, with the partition columns that are part of it.
        codes = group_codes(rows, [self.schema.field(k) for k in self.schema.primary_keys], _zeros(rows))
        starts: Int64s = np.flatnonzero(np.concatenate(([True], codes[1:] != codes[:-1])))
        return starts

    def _route(self, rows: pa.Table) -> pa.Table:
        rows = rows.combine_chunks()
        engine = self.schema.opts.of(opt.MERGE_ENGINE)
        starts = self._starts(rows)
        lengths = np.diff(np.append(starts, rows.num_rows))
        exists = rows.column(OLD_BUCKET).is_valid().to_numpy()
        if engine == DEDUPLICATE:
            return self._move_keys(rows, starts, lengths, exists)
        # The first row of a new key decides for all its rows.
        first = np.repeat(starts, lengths)
        home = _home_partitions(rows, self.schema, exists, first)
        if engine == FIRST_ROW:
            same = self._in_same_partition(rows, home)
            rows, home, exists = (rows.filter(pa.array(same)), home.filter(pa.array(same)), exists[same])
        for name in self.schema.partition_keys:
            rows = rows.set_column(rows.column_names.index(name), name, home.column(name))
        return self._with_buckets(rows, exists)

    def _move_keys(self, rows: pa.Table, starts: Int64s, lengths: Int64s, exists: np.ndarray) -> pa.Table:
        """Route each key to the partition of its last row, and a -D row to its old partition if that differs."""
        last = np.repeat(starts + lengths - 1, lengths)
        codes = self._codes(rows)
        # Rows of a key in another partition than its last row would be deleted again at once.
        kept = codes == codes[last]
        target = rows.filter(pa.array(kept))
        old = _old_rows(rows, self.schema)
        moved = exists & ~self._in_same_partition(rows, old)
        ends = np.zeros(rows.num_rows, bool)
        ends[starts + lengths - 1] = True
        needs_delete = kept & moved & ends
        routed = self._with_buckets(target, (exists & ~moved)[kept])
        if not needs_delete.any():
            return routed
        deletes = old.filter(pa.array(needs_delete))
        kinds = pa.array(np.full(deletes.num_rows, DELETE, np.int8))
        deletes = deletes.set_column(deletes.column_names.index(VALUE_KIND), VALUE_KIND, kinds)
        buckets = deletes.column(OLD_BUCKET)
        deletes = _without_old(deletes, self.schema).append_column(NEW_BUCKET, buckets)
        return pa.concat_tables([deletes, routed.select(deletes.column_names)])

    def _with_buckets(self, rows: pa.Table, at_home: np.ndarray) -> pa.Table:
        """Add the bucket column: the old bucket of keys that stay, an assigned one for the others."""
        buckets = rows.column(OLD_BUCKET).fill_null(-1).to_numpy().astype(np.int32)
        new = np.flatnonzero(~at_home)
        if len(new):
            new_rows = rows.take(pa.array(new))
            hashes = key_hashes(self.schema, new_rows)
            codes = self._codes(new_rows)
            order = np.argsort(codes, kind="stable")
            cuts = np.flatnonzero(np.diff(codes[order])) + 1
            partitions = partitions_of_rows(self.schema, new_rows, order[np.concatenate(([0], cuts))])
            for group, partition in zip(np.split(order, cuts), partitions, strict=True):
                buckets[new[group]] = self._assigner(partition).assign(hashes[group])
        return _without_old(rows, self.schema).append_column(NEW_BUCKET, pa.array(buckets))

    def _assigner(self, partition: bytes) -> PartitionAssigner:
        assigner = self._partitions.get(partition)
        if assigner is None:
            counts = self.counts.get(partition, {})
            assigner = PartitionAssigner.from_row_counts(self.layout, counts, self.channel)
            self._partitions[partition] = assigner
        return assigner

    def _codes(self, rows: pa.Table) -> Int64s:
        codes: Int64s = group_codes(rows, self.schema.partition_fields, _zeros(rows))
        return codes

    def _in_same_partition(self, rows: pa.Table, others: pa.Table) -> np.ndarray:
        """Return a mask of the rows that have the same partition as the row at their position in ``others``."""
        names = self.schema.partition_keys
        codes = self._codes(pa.concat_tables([rows.select(names), others.select(names)]))
        same: np.ndarray = codes[: rows.num_rows] == codes[rows.num_rows :]
        return same


def partitions_of_rows(schema: TableSchema, rows: pa.Table, at: Int64s) -> list[bytes]:
    """Return the partitions of rows ``at``, as BinaryRows with arity; timestamps may be finer than the table's."""
    fields = schema.partition_fields
    if not fields:
        return [EMPTY_ROW] * len(at)
    first = rows.select([f.name for f in fields]).take(pa.array(at))
    columns = [physical_values(first.column(a.name).cast(a.type)) for a in arrow_schema(fields)]
    types = [f.type for f in fields]
    return [encode_row_with_arity(types, values) for values in zip(*columns, strict=True)]


def _home_partitions(rows: pa.Table, schema: TableSchema, exists: np.ndarray, first: Int64s) -> pa.Table:
    """The partition values of each row's key: its old ones if it exists, else those of its first row."""
    first_rows = rows.select(schema.partition_keys).take(pa.array(first))
    use_old = pa.array(exists)
    columns = [pc.if_else(use_old, rows.column(OLD_PREFIX + p), first_rows.column(p)) for p in schema.partition_keys]
    return pa.table(columns, names=list(schema.partition_keys))


def _old_rows(rows: pa.Table, schema: TableSchema) -> pa.Table:
    """The rows with the partition values of their keys' live rows."""
    for name in schema.partition_keys:
        rows = rows.set_column(rows.column_names.index(name), name, rows.column(OLD_PREFIX + name))
    return rows


def _without_old(rows: pa.Table, schema: TableSchema) -> pa.Table:
    return rows.drop_columns([OLD_BUCKET, *[OLD_PREFIX + p for p in schema.partition_keys]])


def _zeros(rows: pa.Table) -> Int32s:
    return np.zeros(rows.num_rows, np.int32)


# --- in this process --------------------------------------------------------------------------------------------------

_FEW_KEYS = 256
"""Up to this many distinct values become an IN condition, which indexes evaluate; more become a range."""
_BATCH_ROWS = 1 << 20
"""Rows of the table that are compared with a batch at a time."""


class KeyPlacement:
    """Assigns partitions and buckets to rows of one write.

    ``counts`` is :func:`stored_row_counts` of the table, empty for an overwrite.  Mutable, one thread.
    """

    def __init__(self, state: TableState, counts: Mapping[bytes, Mapping[int, int]]) -> None:
        self._state = state
        self._schema = state.schema
        self._rerouter = Rerouter(state.schema, AssignerLayout.of(state.schema), counts)
        self._has_rows = bool(counts)
        self._placed: list[pa.Table] = []

    def place(self, rows: pa.Table) -> tuple[pa.Table, Int32s]:
        """Return the rows to write, with moved, dropped and -D rows, and their buckets."""
        if not rows.num_rows:
            return rows, np.empty(0, np.int32)
        joined = self._join_old(rows)
        parts = [p for p in (self._rerouter.add(joined), self._rerouter.finish()) if p is not None]
        names = [*rows.column_names, NEW_BUCKET]
        routed = pa.concat_tables([p.select(names) for p in parts])
        self._placed.append(self._old_columns(routed, NEW_BUCKET))
        buckets: Int32s = routed.column(NEW_BUCKET).to_numpy().astype(np.int32)
        return routed.drop_columns([NEW_BUCKET]), buckets

    def _join_old(self, rows: pa.Table) -> pa.Table:
        """Join rows with the partitions and buckets of their keys; rows of a key are together, in order of arrival."""
        known = [*(self._live_keys(rows) if self._has_rows else ()), *self._placed]
        keys = list(self._schema.primary_keys)
        key_columns = pa.concat_tables([_nullable(t.select(keys)) for t in (rows, *known)])
        fields = [self._schema.field(k) for k in keys]
        codes = group_codes(key_columns, fields, np.zeros(key_columns.num_rows, np.int32))
        row_codes, known_codes = codes[: rows.num_rows], codes[rows.num_rows :]
        known_row = np.full(int(codes.max()) + 1, -1, np.int64)
        known_row[known_codes] = np.arange(len(known_codes))  # of a repeated key the last one, which this write placed
        old_row = known_row[row_codes]
        names = [OLD_BUCKET, *(OLD_PREFIX + p for p in self._schema.partition_keys)]
        if known:
            old = pa.concat_tables([t.select(names) for t in known]).take(pa.array(old_row, mask=old_row < 0))
        else:
            types = [pa.int32(), *(rows.schema.field(p).type for p in self._schema.partition_keys)]
            old = pa.table([pa.nulls(rows.num_rows, t) for t in types], names=names)
        for name in names:
            rows = rows.append_column(name, old.column(name))
        return rows.take(pa.array(np.argsort(row_codes, kind="stable")))

    def _live_keys(self, rows: pa.Table) -> Iterator[pa.Table]:
        """The batch's keys that are live in the table, with their partitions and buckets; may include other keys."""
        schema = self._schema
        keys = list(schema.primary_keys)
        scan = TableScan(self._state, self._state.store, schema.field_names).with_level_0()
        key_values = {k: pc.unique(rows.column(k)) for k in keys}
        for name, values in key_values.items():
            if pa.types.is_floating(values.type):
                continue  # as keys, NaN and -0.0 are distinct values; in a condition they are not
            if len(values) <= _FEW_KEYS:
                scan = scan.where_bound(In(name, tuple(sorted(physical_values(values)))))
            else:
                ends = pc.min_max(values)
                low, high = (physical_values(pa.array([ends[e].as_py()], values.type))[0] for e in ("min", "max"))
                scan = scan.where_bound(And((Comparison(name, Op.GE, low), Comparison(name, Op.LE, high))))
        scan = scan.select([*dict.fromkeys([*keys, *schema.partition_keys]), BUCKET_COLUMN])
        for part in rebatched(scan.to_batches(), _BATCH_ROWS):
            matches = None
            for name, values in key_values.items():
                matches_column = pc.is_in(part.column(name), value_set=values)
                matches = matches_column if matches is None else pc.and_(matches, matches_column)
            yield self._old_columns(part.filter(matches), BUCKET_COLUMN)

    def _old_columns(self, rows: pa.Table, bucket: str) -> pa.Table:
        """Keys with their partitions and buckets, under the names that :class:`Rerouter` expects."""
        keys, parts = self._schema.primary_keys, self._schema.partition_keys
        columns = [*(rows.column(k) for k in keys), rows.column(bucket), *(rows.column(p) for p in parts)]
        return pa.table(columns, names=[*keys, OLD_BUCKET, *(OLD_PREFIX + p for p in parts)])


def _nullable(rows: pa.Table) -> pa.Table:
    """Drop NOT NULL from all fields: to Arrow, tables that differ in it have different schemas."""
    return pa.table(rows.columns, names=rows.column_names)
