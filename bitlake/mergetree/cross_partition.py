"""Keys that are unique over all partitions of a table: where a row goes when its key is in another partition already.

By merge engine (index-format spec, section 7.5):

* deduplicate: the row goes to its own partition, and a -D to where the key was;
* partial-update, aggregation: the row goes to where the key is, and takes that partition's values;
* first-row: the row is dropped.

Paimon keeps a local key-value store of all keys for this.  Here the live keys with their places are joined to the rows,
and :class:`Rerouter` goes through the result, which comes in key order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from bitlake.codec.binary_row import EMPTY_ROW, encode_row_with_arity
from bitlake.codec.hashing import Int32s, Int64s
from bitlake.expressions.tree import And, Comparison, In, Op
from bitlake.formats.column_bounds import physical_values
from bitlake.lazy_arrow import compute as pc
from bitlake.mergetree.bucket_assignment import Assigners, PartitionAssigner, key_hashes
from bitlake.mergetree.commit_message import BucketState
from bitlake.metadata import options as opt
from bitlake.metadata.schema import TableSchema
from bitlake.scan.reader import BUCKET as BUCKET_COLUMN
from bitlake.scan.scan import Scan
from bitlake.schema.merge_spec import DEDUPLICATE, DELETE, FIRST_ROW, VALUE_KIND
from bitlake.snapshot.state import TableState
from bitlake.types import arrow_schema
from bitlake.write.writer import group_codes, rebatched

OLD = "__bitlake_old_"
"""Before a partition column's name: the value that the live row of the key has."""
OLD_BUCKET = "__bitlake_old_bucket"
"""The bucket of the live row of the key; NULL where there is none."""
BUCKET = "__bitlake_bucket"


def row_counts(states: Mapping[tuple[bytes, int], BucketState]) -> dict[bytes, dict[int, int]]:
    """Rows stored in each bucket by partition, superseded ones too: what buckets have taken of their target."""
    out: dict[bytes, dict[int, int]] = {}
    for (partition, bucket), state in states.items():
        out.setdefault(partition, {})[bucket] = sum(e.file.row_count for e in state.files)
    return out


@dataclass(slots=True)
class Rerouter:
    """Gives rows that are joined with their keys' old places their partitions and buckets.  Mutable, one thread.

    Rows come in key order, those of a key in order of arrival, as tables of the table's columns, ``_VALUE_KIND``,
    :data:`OLD_BUCKET` and an :data:`OLD` column for each partition column; a batch may end within a key.  They come
    back with :data:`BUCKET` in place of the old places.  New keys fill buckets as
    :class:`bitlake.mergetree.bucket_assignment.PartitionAssigner` has it; ``counts`` is :func:`row_counts`.
    """

    schema: TableSchema
    how: Assigners
    counts: Mapping[bytes, Mapping[int, int]]
    channel: int = 0
    _held: pa.Table | None = None
    _partitions: dict[bytes, PartitionAssigner] = field(default_factory=dict)

    def add(self, rows: pa.Table) -> pa.Table | None:
        """What can be said of the rows so far: all but those of the last key."""
        if not rows.num_rows:
            return None
        # Fields that forbid NULL in one table and not in another are different to Arrow.
        rows = pa.table(rows.columns, names=rows.column_names)
        both = rows if self._held is None else pa.concat_tables([self._held, rows])
        starts = self._starts(both)
        self._held = both.slice(int(starts[-1]))
        return self._route(both.slice(0, int(starts[-1]))) if starts[-1] else None

    def finish(self) -> pa.Table | None:
        """The rows of the last key."""
        held, self._held = self._held, None
        return None if held is None else self._route(held)

    # --- one batch of whole keys --------------------------------------------------------------------------------------

    def _starts(self, rows: pa.Table) -> Int64s:
        """Where keys begin."""
        # The whole key, with such partition columns as are in it.
        codes = group_codes(rows, [self.schema.field(k) for k in self.schema.primary_keys], _zeros(rows))
        starts: Int64s = np.flatnonzero(np.concatenate(([True], codes[1:] != codes[:-1])))
        return starts

    def _route(self, rows: pa.Table) -> pa.Table:
        rows = rows.combine_chunks()
        engine = self.schema.opts.of(opt.MERGE_ENGINE)
        starts = self._starts(rows)
        lengths = np.diff(np.append(starts, rows.num_rows))
        known = rows.column(OLD_BUCKET).is_valid().to_numpy()
        if engine == DEDUPLICATE:
            return self._moved(rows, starts, lengths, known)
        # The first row of a new key decides for all of them.
        first = np.repeat(starts, lengths)
        home = _place(rows, self.schema, known, first)
        if engine == FIRST_ROW:
            same = self._same(rows, home)
            rows, home, known = (rows.filter(pa.array(same)), home.filter(pa.array(same)), known[same])
        names = self.schema.partition_keys
        for name in names:
            rows = rows.set_column(rows.column_names.index(name), name, home.column(name))
        return self._placed(rows, known)

    def _moved(self, rows: pa.Table, starts: Int64s, lengths: Int64s, known: np.ndarray) -> pa.Table:
        """Rows of keys that stay, or that go where their last row goes, and a -D where they were."""
        last = np.repeat(starts + lengths - 1, lengths)
        codes = self._codes(rows)
        # Rows that went to another partition than the last one would be taken back at once.
        kept = codes == codes[last]
        target = rows.filter(pa.array(kept))
        old = _old_rows(rows, self.schema)
        elsewhere = known & ~self._same(rows, old)
        moves = kept & elsewhere
        ends = np.zeros(rows.num_rows, bool)
        ends[starts + lengths - 1] = True
        gone_at = moves & ends
        out = self._placed(target, (known & ~elsewhere)[kept])
        if not gone_at.any():
            return out
        gone = old.filter(pa.array(gone_at))
        kinds = pa.array(np.full(gone.num_rows, DELETE, np.int8))
        gone = gone.set_column(gone.column_names.index(VALUE_KIND), VALUE_KIND, kinds)
        buckets = gone.column(OLD_BUCKET)
        gone = _without_old(gone, self.schema).append_column(BUCKET, buckets)
        return pa.concat_tables([gone, out.select(gone.column_names)])

    def _placed(self, rows: pa.Table, at_home: np.ndarray) -> pa.Table:
        """Rows with their buckets: the old ones of keys that stay, others as they come free."""
        buckets = rows.column(OLD_BUCKET).fill_null(-1).to_numpy().astype(np.int32)
        new = np.flatnonzero(~at_home)
        if len(new):
            fresh = rows.take(pa.array(new))
            hashes = key_hashes(self.schema, fresh)
            codes = self._codes(fresh)
            order = np.argsort(codes, kind="stable")
            cuts = np.flatnonzero(np.diff(codes[order])) + 1
            named = partitions_at(self.schema, fresh, order[np.concatenate(([0], cuts))])
            for chosen, partition in zip(np.split(order, cuts), named, strict=True):
                buckets[new[chosen]] = self._assigner(partition).assign(hashes[chosen])
        return _without_old(rows, self.schema).append_column(BUCKET, pa.array(buckets))

    def _assigner(self, partition: bytes) -> PartitionAssigner:
        found = self._partitions.get(partition)
        if found is None:
            counts = self.counts.get(partition, {})
            found = self._partitions[partition] = PartitionAssigner.counted(self.how, counts, self.channel)
        return found

    def _codes(self, rows: pa.Table) -> Int64s:
        codes: Int64s = group_codes(rows, self.schema.partition_fields, _zeros(rows))
        return codes

    def _same(self, rows: pa.Table, others: pa.Table) -> np.ndarray:
        """Whether rows have the partition of those beside them."""
        names = self.schema.partition_keys
        both = self._codes(pa.concat_tables([rows.select(names), others.select(names)]))
        same: np.ndarray = both[: rows.num_rows] == both[rows.num_rows :]
        return same


def partitions_at(schema: TableSchema, rows: pa.Table, at: Int64s) -> list[bytes]:
    """The partitions of some rows, as BinaryRows with arity; timestamps may be finer than the table's."""
    fields = schema.partition_fields
    if not fields:
        return [EMPTY_ROW] * len(at)
    first = rows.select([f.name for f in fields]).take(pa.array(at))
    columns = [physical_values(first.column(a.name).cast(a.type)) for a in arrow_schema(fields)]
    types = [f.type for f in fields]
    return [encode_row_with_arity(types, values) for values in zip(*columns, strict=True)]


def _place(rows: pa.Table, schema: TableSchema, known: np.ndarray, first: Int64s) -> pa.Table:
    """The partition values that each row's key is to have: its old ones, else those of its first row."""
    opening = rows.select(schema.partition_keys).take(pa.array(first))
    old = pa.array(known)
    columns = [pc.if_else(old, rows.column(OLD + p), opening.column(p)) for p in schema.partition_keys]
    return pa.table(columns, names=list(schema.partition_keys))


def _old_rows(rows: pa.Table, schema: TableSchema) -> pa.Table:
    """The rows with the partition values that their keys have now."""
    for name in schema.partition_keys:
        rows = rows.set_column(rows.column_names.index(name), name, rows.column(OLD + name))
    return rows


def _without_old(rows: pa.Table, schema: TableSchema) -> pa.Table:
    return rows.drop_columns([OLD_BUCKET, *[OLD + p for p in schema.partition_keys]])


def _zeros(rows: pa.Table) -> Int32s:
    return np.zeros(rows.num_rows, np.int32)


# --- cross_places ---
# Where the keys of a batch are now, for tables whose keys are unique over partitions, in this process.
#
# The table's key and partition columns are read, of files whose key range meets the batch's, and what the same write
# has placed before is remembered (its keys, partitions and buckets; Paimon keeps them on disk).  Spark joins instead
# (:mod:`bitlake.spark.write.primary_key`).  Source: index-format spec, section 7.5.

_FEW = 256
"""So many keys are asked for one by one, which indexes and statistics understand."""
_GATHERED = 1 << 20
"""Rows of the table that are compared with the batch at a time."""


class CrossPlaces:
    """Gives rows their partitions and buckets; mutable, one thread.  ``states``: the buckets, none for an overwrite."""

    def __init__(self, state: TableState, states: Mapping[tuple[bytes, int], BucketState]) -> None:
        self._state = state
        self._schema = state.schema
        self._rerouter = Rerouter(state.schema, Assigners.of(state.schema), row_counts(states))
        self._look = bool(states)
        self._written: list[pa.Table] = []

    def place(self, rows: pa.Table) -> tuple[pa.Table, Int32s]:
        """Rows to write (moved, dropped, or joined by -D rows for where their keys were), and their buckets."""
        joined = self._joined(rows)
        parts = [p for p in (self._rerouter.add(joined), self._rerouter.finish()) if p is not None]
        names = [*rows.column_names, BUCKET]
        placed = pa.concat_tables([p.select(names) for p in parts])
        self._written.append(self._places(placed, BUCKET))
        buckets: Int32s = placed.column(BUCKET).to_numpy().astype(np.int32)
        return placed.drop_columns([BUCKET]), buckets

    def _joined(self, rows: pa.Table) -> pa.Table:
        """Rows beside the places of their keys, those of a key together and in order of arrival."""
        known = [*(self._live(rows) if self._look else ()), *self._written]
        keys = list(self._schema.primary_keys)
        both = pa.concat_tables([_plain(t.select(keys)) for t in (rows, *known)])
        fields = [self._schema.field(k) for k in keys]
        codes = group_codes(both, fields, np.zeros(both.num_rows, np.int32))
        asked, there = codes[: rows.num_rows], codes[rows.num_rows :]
        at = np.full(int(codes.max()) + 1, -1, np.int64)
        at[there] = np.arange(len(there))  # of a key that is there twice, the last: what was written here
        found = at[asked]
        places = [OLD_BUCKET, *(OLD + p for p in self._schema.partition_keys)]
        if known:
            old = pa.concat_tables([t.select(places) for t in known]).take(pa.array(found, mask=found < 0))
        else:
            kinds = [pa.int32(), *(rows.schema.field(p).type for p in self._schema.partition_keys)]
            old = pa.table([pa.nulls(rows.num_rows, t) for t in kinds], names=places)
        for name in places:
            rows = rows.append_column(name, old.column(name))
        return rows.take(pa.array(np.argsort(asked, kind="stable")))

    def _live(self, rows: pa.Table) -> Iterator[pa.Table]:
        """The places of the table's live keys, of the batch's keys and maybe some others."""
        schema = self._schema
        keys = list(schema.primary_keys)
        scan = Scan(self._state, self._state.store, schema.field_names).with_level_0()
        wanted = {k: pc.unique(rows.column(k)) for k in keys}
        for name, values in wanted.items():
            if pa.types.is_floating(values.type):
                continue  # NaN and -0.0 are keys of their own, and not to a condition
            if len(values) <= _FEW:
                scan = scan.where_bound(In(name, tuple(sorted(physical_values(values)))))
            else:
                ends = pc.min_max(values)
                low, high = (physical_values(pa.array([ends[e].as_py()], values.type))[0] for e in ("min", "max"))
                scan = scan.where_bound(And((Comparison(name, Op.GE, low), Comparison(name, Op.LE, high))))
        scan = scan.select([*dict.fromkeys([*keys, *schema.partition_keys]), BUCKET_COLUMN])
        for part in rebatched(scan.to_batches(), _GATHERED):
            chosen = None
            for name, values in wanted.items():
                here = pc.is_in(part.column(name), value_set=values)
                chosen = here if chosen is None else pc.and_(chosen, here)
            yield self._places(part.filter(chosen), BUCKET_COLUMN)

    def _places(self, rows: pa.Table, bucket: str) -> pa.Table:
        """Keys, and their places under the names that :class:`Rerouter` knows."""
        keys, parts = self._schema.primary_keys, self._schema.partition_keys
        columns = [*(rows.column(k) for k in keys), rows.column(bucket), *(rows.column(p) for p in parts)]
        return pa.table(columns, names=[*keys, OLD_BUCKET, *(OLD + p for p in parts)])


def _plain(rows: pa.Table) -> pa.Table:
    """Without NOT NULL, which would make tables of the same columns different."""
    return pa.table(rows.columns, names=rows.column_names)
