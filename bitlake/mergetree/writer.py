"""Writing rows to primary-key tables in this process: spread over buckets, written, compacted, ready to be published.

Rows are gathered in memory up to ``write-buffer-size``, whatever buckets they belong to, and then become a sorted run
of each.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from bitlake import _clock
from bitlake.codec.binary_row import encode_row_with_arity
from bitlake.codec.hashing import Int32s
from bitlake.errors import InvalidRequest
from bitlake.mergetree.bucket_assignment import DynamicAssigner, hash_change
from bitlake.mergetree.bucket_states import LiveBuckets, Slot
from bitlake.mergetree.bucket_writer import BucketWriter
from bitlake.mergetree.commit import discard_changes
from bitlake.mergetree.commit_message import BucketChange
from bitlake.mergetree.cross_partition import CrossPlaces
from bitlake.mergetree.key_value_file import KeyValueWriter
from bitlake.mergetree.postpone_bucket import bucket_numbers, fixed_buckets, postpone_writer, unnumbered
from bitlake.mergetree.write_buffer import Share, partitions_of, spread
from bitlake.metadata import mergetree_options as lsm
from bitlake.metadata.paths import POSTPONE_BUCKET
from bitlake.metadata.schema import TableSchema
from bitlake.progress import of_items
from bitlake.runtime import LocalRunner
from bitlake.schema.merge_spec import is_cross_partition, with_kinds
from bitlake.snapshot.state import TableState
from bitlake.write.writer import fit, split_groups

Rows: TypeAlias = pa.Table | pa.RecordBatch | Iterable[pa.RecordBatch | pa.Table]


def prepared(table: str, schema: TableSchema, batches: Iterable[pa.Table], kinds: Any = None) -> Iterator[pa.Table]:
    """Rows as the table's columns and types, with ``_VALUE_KIND``.

    ``kinds``: an array of as many row kinds as there are rows in all, the name of the column in ``batches`` that holds
    them, or None: +I.  Raises :class:`InvalidRequest` for rows that do not fit, a NULL in the key included.
    """
    start = 0
    for batch in batches:
        given = None
        if isinstance(kinds, str):
            if kinds not in batch.column_names:
                raise InvalidRequest(f"table '{table}': the rows have no column '{kinds}' for their kinds")
            given, batch = batch.column(kinds), batch.drop_columns([kinds])
        elif kinds is not None:
            given = kinds[start : start + batch.num_rows]
        start += batch.num_rows
        yield with_kinds(table, schema, fit(table, batch, schema), given)
    if kinds is not None and not isinstance(kinds, str) and len(kinds) != start:
        raise InvalidRequest(f"table '{table}': {len(kinds)} row kinds are given for {start} rows")


def write_changes(
    state: TableState,
    batches: Iterable[pa.Table],
    user: str,
    *,
    fresh: bool = False,
    compact: bool | None = None,
    reserved: int = 0,
) -> list[BucketChange]:
    """Write rows (:func:`prepared`) into the files of their buckets; on an error nothing is left behind.

    ``fresh``: as if the table were empty, for an overwrite.  ``compact`` as :meth:`BucketWriter.finish` takes it.
    ``reserved`` as in :class:`BucketState`, for fixed buckets.
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
    """One write: a writer for each bucket met so far.  Mutable."""

    def __init__(self, state: TableState, user: str, fresh: bool, reserved: int, counts: Mapping[bytes, int]) -> None:
        self._state = state
        self._reserved = reserved
        self._schema = state.schema
        self._user = user
        # Keys that are unique over partitions may be in any of them.
        later = False if is_cross_partition(self._schema) else None
        self._live = LiveBuckets.of(state, fresh=fresh, later=later, counts=counts)
        self._writers: dict[Slot, BucketWriter] = {}
        self._postponed: dict[bytes, KeyValueWriter] = {}
        self._hashes: dict[Slot, list[Int32s]] = {}
        self._pending: list[pa.Table] = []
        self._bytes = 0
        self._limit = self._schema.opts.of(lsm.WRITE_BUFFER_SIZE)
        self._done: list[BucketChange] = []
        self._number = random.Random(_clock.new_uuid()).randrange(2**31 - 1)
        self._assigner: DynamicAssigner | None = None
        self._places: CrossPlaces | None = None
        if is_cross_partition(self._schema):
            self._places = CrossPlaces(state, self._live.states)
        elif self._schema.num_buckets == -1:
            self._assigner = DynamicAssigner(self._live.context, state.store, self._live.states)

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
        """Write what waits: a sorted run for each of its buckets, side by side."""
        if not self._pending:
            return
        rows = pa.concat_tables(self._pending)
        self._pending, self._bytes = [], 0
        if self._live.later:
            found = self._live.look_at(partitions_of(rows, self._schema))
            if self._assigner is not None:
                self._assigner.know(found)
        if self._places is not None:
            rows, buckets = self._places.place(rows)
            shares = list(spread(rows, self._schema, buckets=buckets))
        elif self._live.counts:
            shares = list(spread(rows, self._schema, buckets=bucket_numbers(rows, self._schema, self._live.counts)))
        else:
            shares = list(spread(rows, self._schema, None if self._assigner is None else self._assigner.assign))
        for share in shares:
            slot = (share.partition, share.bucket)
            if share.hashes is not None:
                self._hashes.setdefault(slot, []).append(share.hashes)
            if slot not in self._writers:
                bucket = replace(self._live[slot], reserved=self._reserved)
                self._writers[slot] = BucketWriter(self._live.context, self._state.store, bucket)
        of_items("buckets written")
        LocalRunner().run(shares, self._put)

    def _put(self, share: Share) -> None:
        writer = self._writers[share.partition, share.bucket]
        writer.write(share.rows)
        writer.flush()

    def _postpone(self, partition: bytes, rows: pa.Table) -> None:
        writer = self._postponed.get(partition)
        if writer is None:
            context, store = self._live.context, self._state.store
            writer = self._postponed[partition] = postpone_writer(context, store, partition, self._user, self._number)
        writer.write(unnumbered(rows))

    def finish(self, compact: bool | None) -> list[BucketChange]:
        self._flush()
        slots = list(self._writers)

        def one(slot: Slot) -> BucketChange:
            change = self._writers[slot].finish(compact)
            # If another bucket fails, this one's compaction must be known to be deleted.
            self._done.append(change)
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
        made = hash_change(self._live.context, self._state.store, self._live[slot], arrived)
        if made is None:
            return change
        change = replace(change, index=(made,))
        self._done.append(change)
        return change

    def abort(self) -> None:
        for writer in self._writers.values():
            writer.abort()
        for postponed in self._postponed.values():
            postponed.abort()
        discard_changes(self._state, self._done)


def batches_of(rows: Rows) -> Iterator[pa.Table]:
    """Arrow rows of any kind as tables; raises :class:`InvalidRequest` for what is none."""
    if isinstance(rows, pa.Table):
        yield rows
    elif isinstance(rows, pa.RecordBatch):
        yield pa.Table.from_batches([rows])
    elif hasattr(rows, "__arrow_c_stream__"):
        yield from (pa.Table.from_batches([b]) for b in pa.RecordBatchReader.from_stream(rows))
    elif isinstance(rows, Iterable) and not isinstance(rows, Mapping):
        for batch in rows:
            if not isinstance(batch, pa.Table | pa.RecordBatch):
                raise _no_rows(batch, "from_pylist(" if isinstance(batch, Mapping) else "from_batches(")
            yield batch if isinstance(batch, pa.Table) else pa.Table.from_batches([batch])
    else:
        raise _no_rows(rows, "from_pydict(")


def _no_rows(given: object, maker: str) -> InvalidRequest:
    return InvalidRequest(
        f"rows are an Arrow table, a data frame, record batches or an iterable of these, and not "
        f"{type(given).__name__}; pa.Table.{maker}…, schema=table.arrow_schema) makes a table"
    )


def can_repeat(rows: Rows) -> bool:
    """Whether rows can be gone through a second time."""
    return isinstance(rows, pa.Table | pa.RecordBatch | Sequence)
