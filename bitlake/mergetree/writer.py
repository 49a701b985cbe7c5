"""Writing rows to primary-key tables in this process: assigned to buckets, written, compacted, ready to commit.

:func:`prepare_rows` conforms rows to the table and adds their kinds; :func:`write_changes` writes them.  Rows are
buffered up to ``write-buffer-size`` bytes, for all buckets together, and then become a sorted run of each bucket.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from bitlake import _clock
from bitlake.codec.binary_row import encode_row_with_arity
from bitlake.codec.hashing import Int32s
from bitlake.errors import InvalidRequest
from bitlake.formats.conform import in_pieces
from bitlake.mergetree.bucket import BucketChange, LiveBuckets, hash_index_states
from bitlake.mergetree.bucket_assignment import DynamicBucketAssigner, hash_index_change
from bitlake.mergetree.bucket_writer import BucketRows, BucketWriter, split_by_bucket
from bitlake.mergetree.commit import discard_changes
from bitlake.mergetree.cross_partition import KeyPlacement, stored_row_counts
from bitlake.mergetree.key_value_file import KeyValueWriter
from bitlake.mergetree.postpone_bucket import bucket_numbers, fixed_buckets, postpone_writer, without_sequence
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import Slot
from bitlake.metadata.paths import POSTPONE_BUCKET
from bitlake.metadata.schema import TableSchema
from bitlake.progress import of_items
from bitlake.runtime import LocalRunner
from bitlake.schema.merge_spec import is_cross_partition, with_kinds
from bitlake.snapshot.state import TableState
from bitlake.write.writer import fit, split_groups


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
) -> list[BucketChange]:
    """Write rows (:func:`prepare_rows`) into files of their buckets; returns the change of each bucket.

    ``fresh``: treat the table as empty, for an overwrite.  ``compact`` is as in :meth:`BucketWriter.finish`, and
    ``reserved`` as in :class:`BucketState` (for fixed buckets).  On an error all new files are deleted.
    """
    fixed = fixed_buckets(state, 1)
    if fixed is not None:
        state, compact = fixed.state, False
    writing = _Writing(state, user, fresh, reserved, {} if fixed is None else fixed.counts)
    try:
        for rows in batches:
            writing.write(rows)
        return writing.finish(compact)
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
        self._postponed: dict[bytes, KeyValueWriter] = {}
        self._hashes: dict[Slot, list[Int32s]] = {}
        self._pending: list[pa.Table] = []
        self._bytes = 0
        self._limit = self._schema.opts.of(opt.WRITE_BUFFER_SIZE)
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
        writer = self._postponed.get(partition)
        if writer is None:
            context, store = self._live.context, self._state.store
            writer = self._postponed[partition] = postpone_writer(context, store, partition, self._user, self._number)
        writer.write(without_sequence(rows))

    def finish(self, compact: bool | None) -> list[BucketChange]:
        self._flush()
        slots = list(self._writers)

        def one(slot: Slot) -> BucketChange:
            change = self._writers[slot].finish(compact)
            # Kept for abort(): if another bucket fails, the files of this one's compaction are deleted too.
            self._finished.append(change)
            return self._indexed(slot, change)

        of_items("buckets written")
        changes = LocalRunner().run(slots, one)
        for partition, postponed in self._postponed.items():
            entries = tuple(postponed.finish())
            rows = sum(e.file.row_count for e in entries)
            changes.append(BucketChange(partition, POSTPONE_BUCKET, entries, rows=rows))
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
        for postponed in self._postponed.values():
            postponed.abort()
        discard_changes(self._state, self._finished)
