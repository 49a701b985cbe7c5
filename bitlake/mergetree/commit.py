"""Committing a write to a primary-key table: an APPEND snapshot, then a COMPACT snapshot of its compactions.

Order, and what a crash after each step leaves behind:

1. the writers' files, those of their compactions too: orphans;
2. the APPEND commit: **the rows are written**.  Level 0 waits for a compaction, as after any write to a
   ``write-only`` table; the compactions' files are orphans;
3. the COMPACT commit.

A compaction is computed on one snapshot.  If another writer changed the bucket's files, the bucket is compacted again
on the latest snapshot; after :data:`COMPACT_TRIES` level 0 is left to the next writer, and no row is lost.

Rows of one key are ordered by their sequence numbers, and two writers that start from the same snapshot number their
rows alike.  The one that commits second must come after the first for all its rows; otherwise some of them would win
over the first one's and others would lose.  So its level-0 files are written again with higher sequence numbers
(:func:`renumber_file`), or the commit fails with :class:`bitlake.write.commit_plan.SequenceTaken`.

An overwrite is one commit: its compactions are part of the OVERWRITE snapshot (:func:`with_compactions`), and without
compactions its files go to the highest level where they do not overlap, since no file is below them
(:func:`upgrade_levels`).
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar

from bitlake import _clock
from bitlake.errors import BitlakeError, CommitConflict, NotFound, StorageUnavailable
from bitlake.io import Store
from bitlake.merge.engine import with_higher_sequence
from bitlake.merge.interval_partition import KeyRanges, interval_partition
from bitlake.mergetree.bucket import (
    BucketChange,
    BucketReader,
    BucketState,
    Compaction,
    MergeTreeContext,
    bucket_states,
    merge_tree_context,
)
from bitlake.mergetree.compaction import compact_bucket
from bitlake.mergetree.key_value_file import KeyValueWriter
from bitlake.metadata import options as opt
from bitlake.metadata.index_manifest import HASH, IndexFileEntry
from bitlake.metadata.manifest import ManifestEntry, Slot, by_bucket
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import BATCH_IDENTIFIER, Snapshot
from bitlake.progress import of_items
from bitlake.runtime import Runner
from bitlake.schema.merge_spec import is_cross_partition, max_level, needs_lookup
from bitlake.snapshot.index_files import IndexChange, IndexFiles
from bitlake.snapshot.manifests import index_entries
from bitlake.snapshot.partitions import discard_entries
from bitlake.snapshot.state import TableState
from bitlake.write.commit import COMPACT_TRIES, commit
from bitlake.write.commit_plan import CommitPlan, Overwrite, SequenceTaken, StreamBatch, WritableTable

log = logging.getLogger("bitlake")
Item = TypeVar("Item")
Result = TypeVar("Result")

_WAIT_MS = 50
FREE_NUMBERS = 1 << 20
"""Sequence numbers left free when files are renumbered a second time: a writer of large files, or one whose jobs take a
second to start, was overtaken by quick writers at each of its tries."""


# --- publishing -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _SureFailure:
    """Notes the call of ``on_failure`` of a commit: nothing is visible, so the commit's files may be deleted."""

    noted: bool = False

    def __call__(self) -> None:
        self.noted = True


@dataclass(frozen=True, slots=True)
class Publisher:
    """Commits what writers and compactions of one table return.

    ``now`` loads the latest state, ``user`` is the commit user, ``runner`` runs compactions again, ``written`` is
    called after the commits of a write with the state that it was computed on and its identifier.
    """

    now: Callable[[], TableState]
    user: str
    runner: Runner
    written: Callable[[TableState, int], None]
    identifier: int = BATCH_IDENTIFIER

    def publish(
        self,
        state: TableState,
        changes: Iterable[BucketChange],
        *,
        operation: str,
        overwrite: Overwrite | None = None,
        renumber: bool = True,
    ) -> Snapshot | None:
        """Commit a write computed on ``state``; returns the last snapshot, None if there was nothing to do.

        Raises :class:`CommitConflict` if the rows cannot be added any more (a bucket's HASH index has changed, for
        example), and what :func:`bitlake.write.commit.commit` raises; all files are then deleted, unless the rows may
        have been committed.  Once they are, a failing compaction is only logged.

        ``renumber``: if another writer added rows to the same buckets, write the files again with higher sequence
        numbers.  False for rows that were computed from the rows they replace: then :class:`SequenceTaken` is raised,
        and :class:`CommitConflict` if another writer removed such rows.
        """
        snapshot = self._publish(state, tuple(changes), operation, overwrite, renumber)
        self.written(state, self.identifier)
        return snapshot

    def _publish(
        self,
        state: TableState,
        changes: Sequence[BucketChange],
        operation: str,
        overwrite: Overwrite | None,
        renumber: bool,
    ) -> Snapshot | None:
        if overwrite is not None:
            changes = with_compactions(state, changes, overwrite)
        compactions = {(c.partition, c.bucket): c.compaction for c in changes if c.compaction}
        try:
            appended, renumbered = self._append(state, changes, operation, overwrite, renumber)
        except BaseException:
            discard_compactions(state, compactions.values())
            raise
        if not compactions:
            return appended
        try:
            if renumbered:
                discard_compactions(state, compactions.values())
                state = self.now()
                buckets = bucket_states(state, compactions.keys())
                compactions = compact_buckets(state, list(buckets.values()), self.runner)
            compacted = self.compact(state, compactions, operation=operation) if compactions else None
        except (StorageUnavailable, NotFound) as e:  # NotFound: the snapshot it was computed on has expired
            log.warning("%s: the rows are written, but not yet compacted: %s", state.name, e)
            return appended
        return compacted or appended

    def compact(
        self,
        state: TableState,
        compactions: Mapping[Slot, Compaction],
        *,
        operation: str | None,
        full: bool = False,
    ) -> Snapshot | None:
        """Commit compactions computed on ``state`` and the rows appended since; returns None without a commit.

        ``full``: whether they are full compactions, should they be computed again.
        """
        base, current = state, dict(compactions)
        base_states = bucket_states(base, current.keys())
        jitter = random.Random(_clock.new_uuid())
        for tries_left in reversed(range(COMPACT_TRIES)):
            try:
                return self._commit_compactions(base, current, operation)
            except CommitConflict as e:
                discard_compactions(base, () if tries_left else current.values())
                if not tries_left:
                    log.warning("%s: level 0 is left to the next writer: %s", base.name, e)
                    return None
            time.sleep(jitter.uniform(0, _WAIT_MS << min(COMPACT_TRIES - tries_left, 4)) / 1000)
            latest = self.now()
            states = bucket_states(latest, current.keys())
            stale = [s for s in current if not _is_current(current[s], base_states.get(s), states.get(s))]
            stale = stale if stale and _compact_alike(base.schema, latest.schema) else list(current)
            discard_compactions(base, [current[s] for s in stale])
            recomputed = self._recompute(latest, [states[s] for s in stale if s in states], full, current, stale)
            current = {**{s: c for s, c in current.items() if s not in stale}, **recomputed}
            base, base_states = latest, states
            if not any(current.values()):
                return None
        raise AssertionError("the last try returns")

    def replace_files(
        self, state: TableState, old: Sequence[ManifestEntry], changes: Sequence[BucketChange]
    ) -> Snapshot | None:
        """Commit files written from the rows of files ``old`` in their place; deletes them if it surely failed."""
        adds = [e for c in changes for e in c.new_files]
        plan = CommitPlan(
            kind="COMPACT",
            adds=tuple(adds),
            deletes=tuple(old),
            changelog=tuple(e for c in changes for e in c.changelog),
            sequences=_first_sequences(adds),
        )
        return self._commit_in_order(state, plan, None)[0]

    # --- the two commits ---------------------------------------------------------------------------------------------

    def _append(
        self,
        state: TableState,
        changes: Sequence[BucketChange],
        operation: str,
        overwrite: Overwrite | None,
        renumber: bool,
    ) -> tuple[Snapshot | None, bool]:
        """Make the first commit; returns the snapshot, and whether the files it adds were renumbered."""
        adds = [e for c in changes for e in c.new_files]
        changelog = [e for c in changes for e in c.changelog]
        index = tuple(i for c in changes for i in c.index)
        if overwrite is not None:
            adds = upgrade_levels(state.schema, adds)
        if not adds and not changelog and not index and (overwrite is None or overwrite.dynamic):
            return None, False
        plan = CommitPlan(
            kind="APPEND" if overwrite is None else "OVERWRITE",
            adds=tuple(adds),
            overwrite=overwrite,
            changelog=tuple(changelog),
            index=index,
            hash_indexes=_used_hash_indexes(state, adds, index) if overwrite is None else (),
            sequences=_first_sequences(adds) if overwrite is None else {},
            alone_since=state.snapshot_id or 0 if overwrite is None and is_cross_partition(state.schema) else None,
            computed_from=None if renumber else state.snapshot_id or 0,
            read_uuid=None if state.snapshot is None else state.snapshot.uuid,
            batch=stream_batch(state, self.user, self.identifier),
        )
        return self._commit_in_order(state, plan, operation, renumber)

    def _commit_in_order(
        self, state: TableState, plan: CommitPlan, operation: str | None, renumber: bool = True
    ) -> tuple[Snapshot | None, bool]:
        """Commit a plan whose new rows come after those of other writers; returns whether its files were renumbered.

        Deletes its files if it surely failed.
        """
        for tries_left in reversed(range(COMPACT_TRIES)):
            renumbered: list[ManifestEntry] | None = None
            failed = _SureFailure()
            try:
                return self._commit(state, plan, operation, failed), tries_left < COMPACT_TRIES - 1
            except SequenceTaken:
                if not tries_left or not renumber:
                    raise
                renumbered = self._renumber(state, plan.adds, FREE_NUMBERS if tries_left < COMPACT_TRIES - 1 else 0)
            finally:
                if failed.noted:
                    kept = set() if renumbered is None else {e.identity for e in (*renumbered, *plan.changelog)}
                    unused = [e for e in (*plan.adds, *plan.changelog) if e.identity not in kept]
                    discard_entries(state.table_files, state.schema, unused)
                if failed.noted and renumbered is None:
                    IndexFiles(state.store, state.paths, state.schema).discard([e for i in plan.index for e in i.new])
            plan = replace(plan, adds=tuple(renumbered), sequences=_first_sequences(renumbered))
        raise AssertionError("the last try returns or raises")

    def _renumber(self, state: TableState, adds: Sequence[ManifestEntry], free: int) -> list[ManifestEntry]:
        """Write files again with sequence numbers after all live rows of their buckets; unaffected files stay.

        ``free`` numbers between them are for rows of writers that commit in the meantime.
        """
        states = bucket_states(self.now(), {(e.partition, e.bucket) for e in adds})
        first, kept, jobs = _first_sequences(adds), [], []
        for e in adds:
            slot = (e.partition, e.bucket)
            shift = states[slot].next_sequence - first[slot] if slot in states and slot in first else 0
            if shift > 0:
                jobs.append(Renumbering(e, shift + free))
            else:
                kept.append(e)

        def undo(results: Iterable[tuple[ManifestEntry, ...]]) -> None:
            discard_entries(state.table_files, state.schema, [e for entries in results for e in entries])

        work = partial(renumber_file, merge_tree_context(state, adds), state.store)
        return [*kept, *(e for entries in _run_all(self.runner, jobs, work, undo) for e in entries)]

    def _commit_compactions(
        self, state: TableState, compactions: Mapping[Slot, Compaction], operation: str | None
    ) -> Snapshot | None:
        every = list(compactions.values())
        plan = CommitPlan(
            kind="COMPACT",
            adds=tuple(e for c in every for e in c.after),
            deletes=tuple(e for c in every for e in c.before),
            changelog=tuple(e for c in every for e in c.changelog),
            index=tuple(i for c in every for i in c.index),
            computed_on=state.snapshot_id if needs_lookup(state.schema) else None,
            read_uuid=None if state.snapshot is None else state.snapshot.uuid,
        )
        failed = _SureFailure()
        try:
            return self._commit(state, plan, operation, failed)
        except CommitConflict:
            raise  # the caller tries again with the compactions that are still valid
        except BaseException:
            if failed.noted:
                discard_compactions(state, every)
            raise

    def _commit(
        self, state: TableState, plan: CommitPlan, operation: str | None, discard: Callable[[], None] | None
    ) -> Snapshot | None:
        return commit(
            state.store,
            state.paths,
            plan,
            state.schema,
            self.user,
            identifier=self.identifier,
            operation=operation,
            on_failure=discard,
        )

    def _recompute(
        self,
        state: TableState,
        buckets: Sequence[BucketState],
        full: bool,
        current: Mapping[Slot, Compaction],
        stale: Collection[Slot],
    ) -> dict[Slot, Compaction]:
        try:
            return compact_buckets(state, buckets, self.runner, full)
        except BaseException:
            discard_compactions(state, [c for s, c in current.items() if s not in stale])
            raise


class MergeTreeTable(WritableTable, Protocol):
    """A table whose buckets are written and compacted."""

    def publisher(self, state: TableState, identifier: int = BATCH_IDENTIFIER) -> Publisher:
        """Return the publisher that commits to the table."""


def publish(
    table: MergeTreeTable,
    state: TableState,
    changes: Iterable[BucketChange],
    *,
    operation: str,
    identifier: int = BATCH_IDENTIFIER,
    overwrite: Overwrite | None = None,
    renumber: bool = True,
) -> Snapshot | None:
    """Call :meth:`Publisher.publish` of a table's publisher."""
    publisher = table.publisher(state, identifier)
    return publisher.publish(state, changes, operation=operation, overwrite=overwrite, renumber=renumber)


def stream_batch(state: TableState, user: str, identifier: int) -> StreamBatch | None:
    """Return a stream's batch that was searched for in ``state``, for the commit to check; None for other writes."""
    return None if identifier == BATCH_IDENTIFIER else StreamBatch(user, identifier, state.snapshot_id or 0)


def _first_sequences(adds: Iterable[ManifestEntry]) -> dict[Slot, int]:
    """The lowest sequence number of new files by bucket; postponed rows have no sequence numbers."""
    out: dict[Slot, int] = {}
    for e in adds:
        if e.bucket >= 0:
            slot = (e.partition, e.bucket)
            out[slot] = min(out.get(slot, 2**63), e.file.min_sequence_number)
    return out


def compact_buckets(
    state: TableState, buckets: Sequence[BucketState], runner: Runner, full: bool = False
) -> dict[Slot, Compaction]:
    """Compact buckets through a runner; returns the compactions that are not empty.

    Raises the first error, after deleting the files of the others.
    """
    work = partial(
        compact_bucket, merge_tree_context(state, [f for b in buckets for f in b.files]), state.store, full=full
    )
    of_items("buckets", size=lambda bucket: sum(e.file.file_size for e in bucket.files))
    results = _run_all(runner, buckets, work, lambda completed: discard_compactions(state, completed))
    return {(b.partition, b.bucket): c for b, c in zip(buckets, results, strict=True) if c}


def discard_compactions(state: TableState, compactions: Iterable[Compaction]) -> None:
    """Delete the files of compactions that no commit will name."""
    compactions = list(compactions)
    discard_entries(state.table_files, state.schema, [e for c in compactions for e in c.new_files])
    files = IndexFiles(state.store, state.paths, state.schema)
    files.discard([e for c in compactions for i in c.index for e in i.new])


def discard_changes(state: TableState, changes: Iterable[BucketChange]) -> None:
    """Delete the files of writes that no commit will name."""
    changes = list(changes)
    new_files = [e for c in changes for e in (*c.new_files, *c.changelog)]
    discard_entries(state.table_files, state.schema, new_files)
    files = IndexFiles(state.store, state.paths, state.schema)
    files.discard([e for c in changes for i in c.index for e in i.new])
    discard_compactions(state, [c.compaction for c in changes])


def _run_all(
    runner: Runner,
    items: Sequence[Item],
    work: Callable[[Item], Result],
    undo: Callable[[list[Result]], None],
) -> list[Result]:
    """Run work over items; if one fails, undo the others and raise its error."""
    results = runner.run(items, partial(_or_error, work))
    completed = [r for r in results if not isinstance(r, BitlakeError)]
    error = next((r for r in results if isinstance(r, BitlakeError)), None)
    if error is not None:
        undo(completed)
        raise error
    return completed


def _or_error(work: Callable[[Item], Result], item: Item) -> Result | BitlakeError:
    """Return an error as a value: the caller needs the other results, to delete their files."""
    try:
        return work(item)
    except BitlakeError as e:
        return e


def _compact_alike(one: TableSchema, other: TableSchema) -> bool:
    """Whether compactions write the same with both schemas, such as deletion vectors for old rows of a key."""
    options: tuple[opt.Option[Any], ...] = (opt.DV_ENABLED, opt.CHANGELOG_PRODUCER)
    same = all(one.opts.of(o) == other.opts.of(o) for o in options)
    return same and opt.changed_lookup(one.options, other.options) is None


def _is_current(compaction: Compaction, base: BucketState | None, now: BucketState | None) -> bool:
    """Whether a compaction is still valid after another commit: all files that it read or searched are unchanged."""
    if now is None:
        return False
    live = {e.identity for e in now.files}
    upper = {e.identity for e in base.files if e.file.level > 0} if base is not None else set()
    vectors = None if base is None else base.vectors
    return (
        all(e.identity in live for e in compaction.before)
        and upper == {e.identity for e in now.files if e.file.level > 0}
        and vectors == now.vectors
    )


# --- sequence numbers and levels of new files -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Renumbering:
    """A file of level 0 that no snapshot names yet, and the number to add to its sequence numbers."""

    entry: ManifestEntry
    shift: int


def renumber_file(context: MergeTreeContext, store: Store, job: Renumbering) -> tuple[ManifestEntry, ...]:
    """Write a file's rows into new files with higher sequence numbers; the old file stays.

    On an error the new files are deleted.
    """
    entry = job.entry
    reader = BucketReader(context, store, entry.partition, {})
    writer = KeyValueWriter(
        context, store, entry.partition, entry.bucket, entry.file.level, total_buckets=entry.total_buckets
    )
    with writer:
        for rows in reader.read(entry, reader.columns):
            writer.write(with_higher_sequence(rows, job.shift))
        return tuple(replace(e, kind=entry.kind) for e in writer.finish())


def _used_hash_indexes(
    state: TableState, adds: Sequence[ManifestEntry], index: Sequence[IndexChange]
) -> tuple[IndexFileEntry, ...]:
    """The HASH indexes of a state in the buckets of new files, where these bring no key that an index lacks."""
    if state.schema.num_buckets != -1:
        return ()
    slots = {(e.partition, e.bucket) for e in adds} - {c.slot for c in index if c.index_type == HASH}
    entries = index_entries(state.table_files, state.snapshot) if slots else ()
    return tuple(e for e in entries if e.index_type == HASH and (e.partition, e.bucket) in slots)


def with_compactions(
    state: TableState, changes: Iterable[BucketChange], overwrite: Overwrite
) -> tuple[BucketChange, ...]:
    """Return an overwrite's changes with the files that its compactions wrote in place of those that they read.

    Paimon commits these compactions as a second snapshot.  Readers of a table with deletion vectors skip level 0, so
    the table would look empty in between, and for good if the writer died there.  As in Paimon, an overwrite publishes
    no changelog.  Files that no snapshot will name are deleted.
    """
    out, unused = [], []
    for change in changes:
        done = change.compaction
        unused += [*change.changelog, *done.changelog]
        change = replace(change, changelog=(), compaction=Compaction())
        # A dynamic overwrite replaces the partitions that its files are in: one must stay where no row is left.
        if done.after or not overwrite.dynamic:
            before, names = {e.identity for e in done.before}, {e.file.file_name for e in done.after}
            unused += [e for e in change.new_files if e.identity in before and e.file.file_name not in names]
            kept = [e for e in change.new_files if e.identity not in before]
            change = replace(change, new_files=(*kept, *done.after), index=(*change.index, *done.index))
        out.append(change)
    discard_entries(state.table_files, state.schema, unused)
    return tuple(out)


def upgrade_levels(schema: TableSchema, adds: Sequence[ManifestEntry]) -> list[ManifestEntry]:
    """Move an overwrite's files to the highest level where those of a bucket do not overlap (``overwrite-upgrade``)."""
    if not schema.opts.of(opt.OVERWRITE_UPGRADE) or any(e.bucket < 0 or e.file.level for e in adds):
        return list(adds)
    top, out = max_level(schema.opts), []
    for entries in by_bucket(adds).values():
        disjoint = len(interval_partition(entries, KeyRanges(schema))) == len(entries)
        if disjoint and not any(e.file.delete_row_count for e in entries):
            entries = [replace(e, file=replace(e.file, level=top)) for e in entries]
        out += entries
    return out
