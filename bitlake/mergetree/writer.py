"""Writing rows to primary-key tables: rows become sorted runs of level 0, then the pending compaction of a bucket runs.

:func:`prepare_rows` conforms rows to the table and adds their kinds; :func:`write_changes` writes them in this process:
assigned to buckets, written, compacted, ready to commit.  Rows are buffered up to ``write-buffer-size`` bytes, for all
buckets together, and then become a sorted run of each bucket.

:class:`BucketWriter` writes the rows of one bucket.  Rows in any order are buffered, too, and become one sorted run at
a time.  Rows in key order (from a sort that spilled, for example) go straight into one sorted run of files, however
many they are; memory then holds one batch.

A buffer sorts rows by key, assigns sequence numbers, and merges the rows of one key before they reach level 0:

* :func:`split_by_bucket` splits a batch by partition and bucket, each bucket's rows in key order: one sort and one
  gather for all buckets.
* :func:`sorted_merged` merges a buffered batch; :class:`SortedMerge` merges a stream that comes in key order.

Rows of a key merge by ``sequence.field``, then in the order in which they came.  The merged row gets its sequence
number afterwards: so numbers ascend with the keys in a file, which compresses well, and no earlier row of a bucket has
a higher number.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from bitlake import _clock
from bitlake.codec.binary_row import encode_row_with_arity
from bitlake.codec.bucket import bucket_of
from bitlake.codec.hashing import Int32s, Int64s
from bitlake.errors import InvalidRequest
from bitlake.fileindex.registry import UnwrittenIndex
from bitlake.formats.conform import in_pieces
from bitlake.io import Store
from bitlake.lazy_modules import compute as pc
from bitlake.merge.engine import merge_rows
from bitlake.merge.keys import group_rows, in_order, key_columns, order_codes, sort_columns
from bitlake.mergetree.bucket import (
    BucketChange,
    BucketState,
    Compaction,
    LiveBuckets,
    MergeTreeContext,
    hash_index_states,
)
from bitlake.mergetree.bucket_assignment import DynamicBucketAssigner, hash_index_change, key_hashes
from bitlake.mergetree.commit import discard_changes
from bitlake.mergetree.compaction import Deletion, compact_bucket
from bitlake.mergetree.cross_partition import KeyPlacement, partitions_of_rows, stored_row_counts
from bitlake.mergetree.key_value_file import KeyValueWriter
from bitlake.mergetree.postpone_bucket import bucket_numbers, fixed_buckets, postpone_writer, without_sequence
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import ManifestEntry, Slot
from bitlake.metadata.paths import POSTPONE_BUCKET
from bitlake.metadata.schema import TableSchema
from bitlake.progress import of_items
from bitlake.runtime import LocalRunner
from bitlake.schema.merge_spec import (
    DELETE,
    SEQUENCE_NUMBER,
    VALUE_KIND,
    MergeSpec,
    is_cross_partition,
    with_kinds,
)
from bitlake.snapshot.partitions import discard_entries
from bitlake.snapshot.state import TableState
from bitlake.snapshot.table_files import TableFiles
from bitlake.write.append_dml import Hits
from bitlake.write.data_file_writer import GroupWriters
from bitlake.write.writer import fit, group_codes, split_groups

# --- sorting and merging rows -----------------------------------------------------------------------------------------

_HELD_ROWS = 1 << 16
"""Rows of one key that :class:`SortedMerge` holds before it merges them."""


def sorted_rows(spec: MergeSpec, rows: pa.Table, first_sequence: int) -> pa.Table:
    """Sort rows by key, those of a key in the order in which they merge, numbered from ``first_sequence``.

    ``rows`` are in arrival order, with ``_VALUE_KIND``; the result has ``_SEQUENCE_NUMBER`` before all columns.
    """
    rows = one_chunk(rows)
    ordering = [order_codes(rows.column(c), spec.descending) for c in spec.sequence]
    arrival = np.arange(rows.num_rows, dtype=np.int64)
    groups = group_rows([rows.column(k) for k in spec.keys], [*ordering, arrival], key_order=True)
    if not np.array_equal(groups.order, arrival):
        rows = rows.take(pa.array(groups.order))
    return with_sequence(rows, first_sequence)


def sorted_merged(spec: MergeSpec, rows: pa.Table, first_sequence: int) -> pa.Table:
    """Merge rows to one for each key, in key order, numbered from ``first_sequence``; delete rows are kept.

    ``rows`` are in arrival order, with ``_VALUE_KIND``.  Raises :class:`InvalidRequest` for rows that the merge engine
    cannot merge.
    """
    return merge_numbered(spec, with_sequence(one_chunk(rows), first_sequence), first_sequence)


def merge_numbered(spec: MergeSpec, rows: pa.Table, first_sequence: int) -> pa.Table:
    """Merge numbered rows by key, and number the result from ``first_sequence``."""
    columns = [f.name for f in spec.fields]
    out = merge_rows(spec, rows, columns, keep_deletes=True)
    return out if out.num_rows == rows.num_rows == 1 else with_sequence(out, first_sequence)


def one_chunk(rows: pa.Table) -> pa.Table:
    """Return rows with one chunk in each column; calls Arrow only if needed, which copies even a single chunk."""
    return rows if all(c.num_chunks <= 1 for c in rows.columns) else rows.combine_chunks()


def with_sequence(rows: pa.Table, first: int) -> pa.Table:
    """Return the rows with ``_SEQUENCE_NUMBER`` counting from ``first``; a new column comes first."""
    column = pa.array(np.arange(first, first + rows.num_rows, dtype=np.int64))
    if SEQUENCE_NUMBER in rows.column_names:
        return rows.set_column(rows.column_names.index(SEQUENCE_NUMBER), SEQUENCE_NUMBER, column)
    return rows.add_column(0, SEQUENCE_NUMBER, column)


@dataclass(slots=True)
class SortedMerge:
    """Merges a stream of rows in key order; the rows of a key may be spread over batches.

    Mutable: it holds the rows of the last key.  ``next_sequence`` is the number of the next row.
    """

    spec: MergeSpec
    next_sequence: int
    _held: list[pa.Table] = field(default_factory=list)

    def add(self, rows: pa.Table) -> tuple[pa.Table, pa.Table | None]:
        """Return (the numbered rows, the merged rows of complete keys or None); ``rows`` have ``_VALUE_KIND``.

        Raises :class:`InvalidRequest` if the rows are not in key order.
        """
        # The columns are in the order of merged rows.
        names = [SEQUENCE_NUMBER, VALUE_KIND, *(f.name for f in self.spec.fields)]
        rows = with_sequence(rows, self.next_sequence).select(names)
        self.next_sequence += rows.num_rows
        if not rows.num_rows:
            return rows, None
        merged = []
        fresh = one_chunk(rows)
        if self._held and self._begins_new_key(fresh):
            # Nearly every batch begins with a new key; then no row of it is copied.
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

    def _begins_new_key(self, rows: pa.Table) -> bool:
        """Whether the rows begin with another key than the held one, which must be smaller."""
        held = self._held[-1]
        ends = pa.concat_tables([held.slice(held.num_rows - 1), rows.slice(0, 1)]).select(list(self.spec.keys))
        keys = key_columns([ends.column(k) for k in self.spec.keys])
        if not in_order(keys):
            raise _unsorted()
        return not all(_same(k, 0, 1) for k in keys)

    def finish(self) -> pa.Table | None:
        """Return the last key's merged row; None without rows."""
        held, self._held = self._held, []
        return self._merge(pa.concat_tables(held)) if held else None

    def _merge(self, rows: pa.Table) -> pa.Table:
        return merge_rows(self.spec, rows, [f.name for f in self.spec.fields], keep_deletes=True)

    def _last_key(self, keys: list[object], rows: int) -> int:
        """The first row of the last key."""
        low, high = 0, rows - 1
        # Rows ascend, so the last key's rows are adjacent, and a binary search finds the first.
        while low < high:
            middle = (low + high) // 2
            if all(_same(k, middle, rows - 1) for k in keys):
                high = middle
            else:
                low = middle + 1
        return low


def _unsorted() -> InvalidRequest:
    return InvalidRequest(
        "rows are not in key order, although they were to be sorted by key; this is an internal error"
    )


def _same(column: object, a: int, b: int) -> bool:
    if isinstance(column, np.ndarray):
        return bool(column[a] == column[b])
    assert isinstance(column, pa.Array)
    return bool(column[a] == column[b])


# --- splitting a batch by bucket --------------------------------------------------------------------------------------

AssignBuckets = Callable[[bytes, Int32s], Int32s]
"""(partition as BinaryRow, key hashes in order of arrival) → buckets."""


@dataclass(frozen=True, slots=True)
class BucketRows:
    """The rows of a batch in one bucket, in key order; for dynamic buckets their key hashes, in order of arrival."""

    partition: bytes
    bucket: int
    rows: pa.Table
    hashes: Int32s | None = None


def split_by_bucket(
    rows: pa.Table, schema: TableSchema, assign: AssignBuckets | None = None, buckets: Int32s | None = None
) -> Iterator[BucketRows]:
    """Split rows by partition and bucket; rows of one key keep their order.

    ``buckets`` holds the bucket of each row; None: ``assign`` chooses it (dynamic buckets), else the key's hash.
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
    partition, bucket = partitions[order], buckets[order]
    begins = (partition[1:] != partition[:-1]) | (bucket[1:] != bucket[:-1])
    starts = np.flatnonzero(np.concatenate(([True], begins)))
    gathered = rows if _is_range(order) else rows.take(pa.array(order))
    partition_rows = partitions_of_rows(schema, gathered, starts)
    for i, (start, end) in enumerate(zip(starts.tolist(), [*starts[1:].tolist(), len(order)], strict=True)):
        arrived = None if hashes is None else hashes[np.sort(order[start:end])]
        yield BucketRows(partition_rows[i], int(bucket[start]), gathered.slice(start, end - start), arrived)


def _assigned(rows: pa.Table, schema: TableSchema, partitions: Int64s, hashes: Int32s, assign: AssignBuckets) -> Int32s:
    order = np.argsort(partitions, kind="stable")
    starts = np.flatnonzero(np.concatenate(([True], np.diff(partitions[order]) != 0)))
    out = np.empty(len(order), np.int32)
    for partition, group in zip(
        partitions_of_rows(schema, rows, order[starts]), np.split(order, starts[1:]), strict=True
    ):
        out[group] = assign(partition, hashes[group])
    return out


def _ordered(rows: pa.Table, schema: TableSchema, groups: list[Int64s]) -> Int64s:
    """Row numbers by group, then by key, then in order of arrival."""
    columns: list[Any] = [*groups, *key_columns([rows.column(k) for k in schema.trimmed_primary_keys])]
    return np.arange(rows.num_rows, dtype=np.int64) if in_order(columns) else sort_columns(columns)


def _is_range(order: Int64s) -> bool:
    """Whether an order of all rows leaves them as they are."""
    return bool((np.diff(order) == 1).all())


# --- writing one bucket -----------------------------------------------------------------------------------------------


class BucketWriter:
    """Writes rows of one bucket; mutable.  Call :meth:`write` any number of times, then :meth:`finish` once.

    ``state`` describes the bucket's files.  ``sorted``: rows come in key order, those of a key in the order in which
    they merge, and a batch may end within a key.  A context manager: leaving it by an exception deletes every file.
    """

    def __init__(self, context: MergeTreeContext, store: Store, state: BucketState, *, sorted: bool = False) -> None:
        self._context = context
        self._store = store
        self._state = state
        self._spec = MergeSpec.of(context.schema)
        self._input_changelog = context.schema.opts.of(opt.CHANGELOG_PRODUCER) == "input"
        self._limit = context.schema.opts.of(opt.WRITE_BUFFER_SIZE)
        self._sequence = state.next_sequence
        self._stream = SortedMerge(self._spec, self._sequence) if sorted else None
        self._pending: list[pa.Table] = []
        self._open: dict[bool, KeyValueWriter] = {}
        self._files: dict[bool, list[ManifestEntry]] = {False: [], True: []}
        self._problems: list[UnwrittenIndex] = []
        self._rows = self._deletes = 0
        self._counts_deletes = is_cross_partition(context.schema) and not context.schema.opts.of(opt.ROWKIND_FIELD)
        self.held_bytes = 0
        """Bytes of buffered rows."""

    def __enter__(self) -> BucketWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        if kind is not None:
            self.abort()

    def write(self, rows: pa.Table, kinds: Any = None) -> None:
        """Add rows with all columns of the table in its Arrow types, and ``_VALUE_KIND`` or an array of ``kinds``."""
        if VALUE_KIND not in rows.column_names:
            rows = with_kinds(self._context.table, self._context.schema, rows, kinds)
        self._rows += rows.num_rows
        if self._counts_deletes:
            self._deletes += pc.sum(pc.equal(rows.column(VALUE_KIND), DELETE), min_count=0).as_py()
        if self._stream is not None:
            raw, merged = self._stream.add(rows)
            if self._input_changelog:
                self._put(raw, changelog=True)
            if merged is not None:
                self._put(merged)
            return
        self._pending.append(rows)
        self.held_bytes += rows.nbytes
        if self.held_bytes >= self._limit:
            self.flush()

    def flush(self) -> None:
        """Write the buffered rows as a sorted run of level 0."""
        if not self._pending:
            return
        rows = pa.concat_tables(self._pending)
        self._pending, self.held_bytes = [], 0
        if self._input_changelog:
            raw = sorted_rows(self._spec, rows, self._sequence)
            self._put(raw, changelog=True)
            merged = merge_rows(self._spec, raw, self._context.schema.field_names, keep_deletes=True)
            self._sequence += rows.num_rows
        else:
            merged = sorted_merged(self._spec, rows, self._sequence)
            self._sequence += merged.num_rows
        self._put(merged)
        # The run ends here: the next rows may have the same keys.
        self._close()

    def finish(self, compact: bool | None = None, hits: Hits | None = None) -> BucketChange:
        """Return the files written and the result of the bucket's compaction.

        ``compact``: whether to compact; None: unless the table is ``write-only``.  ``hits``: the rows of the table that
        the rows written delete; these are all of kind -D.
        """
        if self._stream is not None:
            last = self._stream.finish()
            if last is not None:
                self._put(last)
        self.flush()
        self._close()
        new_files = tuple(self._files[False])
        if compact is None:
            compact = not self._context.schema.opts.of(opt.WRITE_ONLY)
        compaction = Compaction()
        if compact:
            state = replace(self._state, files=(*self._state.files, *new_files))
            # As in Paimon, whose batch writers ignore the number: if the option is set, every write compacts fully.
            full = self._context.schema.opts.of(opt.FULL_COMPACTION_COMMITS) is not None
            deletion = None if hits is None else Deletion(frozenset(e.file.file_name for e in new_files), hits)
            compaction = compact_bucket(self._context, self._store, state, full, deletion)
        return BucketChange(
            self._state.partition,
            self._state.bucket,
            new_files,
            tuple(self._files[True]),
            compaction=compaction,
            rows=self._rows,
            deletes=self._deletes,
            problems=tuple(self._problems),
        )

    def abort(self) -> None:
        """Delete every file written."""
        for writer in self._open.values():
            writer.abort()
        self._open.clear()
        context = self._context
        discard_entries(
            TableFiles(self._store, context.paths), context.schema, [*self._files[False], *self._files[True]]
        )

    def _put(self, rows: pa.Table, *, changelog: bool = False) -> None:
        if not rows.num_rows:
            return
        writer = self._open.get(changelog)
        if writer is None:
            state = self._state
            writer = self._open[changelog] = KeyValueWriter(
                self._context,
                self._store,
                state.partition,
                state.bucket,
                0,
                changelog=changelog,
                total_buckets=state.total_buckets,
            )
        writer.write(rows)

    def _close(self) -> None:
        for changelog, writer in list(self._open.items()):
            self._files[changelog] += writer.finish()
            self._problems += writer.problems
            del self._open[changelog]


# --- writing all buckets ----------------------------------------------------------------------------------------------


def prepare_rows(table: str, schema: TableSchema, batches: Iterable[pa.Table], kinds: Any = None) -> Iterator[pa.Table]:
    """Yield rows with the table's columns and types, and ``_VALUE_KIND``.

    ``kinds``: an array with a row kind for each row of all batches, the name of the column in ``batches`` that holds
    them, or None: +I.  Raises :class:`InvalidRequest` for rows that the table cannot store, such as a NULL in the key.
    """
    start = 0
    for batch in batches:
        batch_kinds = None
        if isinstance(kinds, str):
            if kinds not in batch.column_names:
                raise InvalidRequest(f"table '{table}': the rows have no column '{kinds}' with row kinds")
            batch_kinds, batch = batch.column(kinds), batch.drop_columns([kinds])
        elif kinds is not None:
            if isinstance(kinds, Mapping) or not hasattr(kinds, "__getitem__"):
                raise InvalidRequest(f"table '{table}': kinds must be an array or a column's name, and is {kinds!r}")
            batch_kinds = kinds[start : start + batch.num_rows]
        start += batch.num_rows
        yield from in_pieces(with_kinds(table, schema, fit(table, batch, schema), batch_kinds))
    if kinds is not None and not isinstance(kinds, str) and len(kinds) != start:
        raise InvalidRequest(f"table '{table}': got {len(kinds)} row kinds for {start} rows")


def write_changes(
    state: TableState,
    batches: Iterable[pa.Table],
    user: str,
    *,
    fresh: bool = False,
    compact: bool | None = None,
    reserved: int = 0,
    hits: Hits | None = None,
) -> list[BucketChange]:
    """Write rows (:func:`prepare_rows`) into files of their buckets; returns the change of each bucket.

    ``fresh``: treat the table as empty, for an overwrite.  ``compact`` and ``hits`` are as in
    :meth:`BucketWriter.finish`, and ``reserved`` as in :class:`BucketState` (for fixed buckets).  On an error all new
    files are deleted.
    """
    fixed = fixed_buckets(state, 1)
    if fixed is not None:
        state, compact = fixed.state, False
    writing = _Writing(state, user, fresh, reserved, {} if fixed is None else fixed.counts)
    try:
        for rows in batches:
            writing.write(rows)
        return writing.finish(compact, hits)
    except BaseException:
        writing.abort()
        raise


class _Writing:
    """One write: a writer for each bucket seen so far.  Mutable."""

    def __init__(self, state: TableState, user: str, fresh: bool, reserved: int, counts: Mapping[bytes, int]) -> None:
        self._state = state
        self._reserved = reserved
        self._schema = state.schema
        self._user = user
        self._live = LiveBuckets.of(state, fresh=fresh, counts=counts)
        self._writers: dict[Slot, BucketWriter] = {}
        self._hashes: dict[Slot, list[Int32s]] = {}
        self._pending: list[pa.Table] = []
        self._bytes = 0
        self._limit = self._schema.opts.of(opt.WRITE_BUFFER_SIZE)
        self._postponed = GroupWriters(self._limit)
        self._finished: list[BucketChange] = []
        self._number = random.Random(_clock.new_uuid()).randrange(2**31 - 1)
        self._assigner: DynamicBucketAssigner | None = None
        self._placement: KeyPlacement | None = None
        if is_cross_partition(self._schema):
            self._placement = KeyPlacement(state, {} if fresh else stored_row_counts(state))
        elif self._schema.num_buckets == -1:
            states = hash_index_states(state) if self._live.lazy else self._live.states
            self._assigner = DynamicBucketAssigner(self._live.context, state.store, states)

    def write(self, rows: pa.Table) -> None:
        if self._schema.num_buckets == POSTPONE_BUCKET:
            types = [f.type for f in self._schema.partition_fields]
            for values, _, part in split_groups(rows, self._schema):
                self._postpone(encode_row_with_arity(types, values), part)
            return
        self._pending.append(rows)
        self._bytes += rows.nbytes
        if self._bytes >= self._limit:
            self._flush()

    def _flush(self) -> None:
        """Write the buffered rows: a sorted run for each bucket, side by side."""
        if not self._pending:
            return
        rows = pa.concat_tables(self._pending)
        self._pending, self._bytes = [], 0
        if self._placement is not None:
            rows, buckets = self._placement.place(rows)
            parts = split_by_bucket(rows, self._schema, buckets=buckets)
        elif self._live.counts:
            buckets = bucket_numbers(rows, self._schema, self._live.counts)
            parts = split_by_bucket(rows, self._schema, buckets=buckets)
        else:
            assign = None if self._assigner is None else self._assigner.assign
            parts = split_by_bucket(rows, self._schema, assign)
        bucket_rows = list(parts)
        self._live.load({(part.partition, part.bucket) for part in bucket_rows})
        for part in bucket_rows:
            slot = (part.partition, part.bucket)
            if part.hashes is not None:
                self._hashes.setdefault(slot, []).append(part.hashes)
            if slot not in self._writers:
                bucket = replace(self._live[slot], reserved=self._reserved)
                self._writers[slot] = BucketWriter(self._live.context, self._state.store, bucket)
        of_items("buckets written")
        LocalRunner().run(bucket_rows, self._put)

    def _put(self, part: BucketRows) -> None:
        writer = self._writers[part.partition, part.bucket]
        writer.write(part.rows)
        writer.flush()

    def _postpone(self, partition: bytes, rows: pa.Table) -> None:
        context, store = self._live.context, self._state.store
        new = partial(postpone_writer, context, store, partition, self._user, self._number)
        self._postponed.write(partition, without_sequence(rows), new)

    def finish(self, compact: bool | None, hits: Hits | None) -> list[BucketChange]:
        self._flush()
        slots = list(self._writers)

        def one(slot: Slot) -> BucketChange:
            change = self._writers[slot].finish(compact, hits)
            # Kept for abort(): if another bucket fails, the files of this one's compaction are deleted too.
            self._finished.append(change)
            return self._indexed(slot, change)

        of_items("buckets written")
        changes = LocalRunner().run(slots, one)
        for entries in filter(None, self._postponed.finish().values()):
            rows = sum(e.file.row_count for e in entries)
            changes.append(BucketChange(entries[0].partition, POSTPONE_BUCKET, tuple(entries), rows=rows))
        return changes

    def _indexed(self, slot: Slot, change: BucketChange) -> BucketChange:
        if slot not in self._hashes:
            return change
        arrived = np.concatenate(self._hashes[slot])
        index = hash_index_change(self._live.context, self._state.store, self._live[slot], arrived)
        if index is None:
            return change
        change = replace(change, index=(index,))
        self._finished.append(change)
        return change

    def abort(self) -> None:
        for writer in self._writers.values():
            writer.abort()
        self._postponed.abort()
        discard_changes(self._state, self._finished)
