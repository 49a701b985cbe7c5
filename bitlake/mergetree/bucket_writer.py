"""Writing to one bucket: rows become files of level 0, then the pending compaction of the bucket runs.

Rows in any order are buffered up to ``write-buffer-size`` bytes and become one sorted run at a time.  Rows in key order
(from a sort that spilled, for example) go straight into one sorted run of files, however many they are; memory then
holds one batch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from bitlake.io import Store
from bitlake.merge.engine import merge_rows
from bitlake.mergetree.commit_message import BucketChange, BucketState, Compaction, MergeTreeContext
from bitlake.mergetree.compaction import compact_unit
from bitlake.mergetree.key_value_file import KeyValueWriter
from bitlake.mergetree.record_expiry import RecordExpire
from bitlake.mergetree.universal_compaction import (
    CompactUnit,
    pick_compaction,
    pick_full_compaction,
    pick_mostly_deleted,
    sorted_runs,
)
from bitlake.mergetree.write_buffer import SortedMerge, sorted_merged, sorted_rows
from bitlake.metadata import mergetree_options as lsm
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import ManifestEntry
from bitlake.schema.merge_spec import VALUE_KIND, MergeSpec, with_kinds
from bitlake.snapshot.partitions import discard_entries
from bitlake.snapshot.table_files import TableFiles


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
        self._limit = context.schema.opts.of(lsm.WRITE_BUFFER_SIZE)
        self._sequence = state.next_sequence
        self._stream = SortedMerge(self._spec, self._sequence) if sorted else None
        self._pending: list[pa.Table] = []
        self._open: dict[bool, KeyValueWriter] = {}
        self._files: dict[bool, list[ManifestEntry]] = {False: [], True: []}
        self._problems: list[str] = []
        self._rows = 0
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

    def finish(self, compact: bool | None = None) -> BucketChange:
        """Return the files written and the result of the bucket's compaction.

        ``compact``: whether to compact; None: unless the table is ``write-only``.
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
            full = self._context.schema.opts.of(lsm.FULL_COMPACTION_COMMITS) is not None
            compaction = compact_bucket(self._context, self._store, state, full)
        return BucketChange(
            self._state.partition,
            self._state.bucket,
            new_files,
            tuple(self._files[True]),
            compaction=compaction,
            rows=self._rows,
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


def compact_bucket(context: MergeTreeContext, store: Store, state: BucketState, full: bool = False) -> Compaction:
    """Run the pending compaction of a bucket, or a ``full`` one; returns an empty result if there is nothing to do."""
    unit = pending_unit(context, state, full)
    return Compaction() if unit is None else compact_unit(context, store, state, unit)


def pending_unit(context: MergeTreeContext, state: BucketState, full: bool = False) -> CompactUnit | None:
    """Return the files of a bucket that the next compaction would take; None if there is nothing to do."""
    schema = context.schema
    runs = sorted_runs(state.files, schema)
    deleted = {r.data_file: r.cardinality for r in state.vectors.ranges or ()} if state.vectors is not None else {}
    if full:
        expire = RecordExpire.of(context)
        expired = expire.expired if expire is not None else lambda entry: False
        return pick_full_compaction(runs, schema, has_vector=deleted.__contains__, expired=expired)
    return pick_compaction(runs, schema) or pick_mostly_deleted(runs, schema, deleted)
