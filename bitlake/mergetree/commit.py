"""Making a write to a primary-key table visible: an APPEND snapshot, then a COMPACT snapshot of what was compacted.

Order, and what a crash after each step leaves behind:

1. the writers' files, those of their compactions too: orphans;
2. the APPEND (or OVERWRITE) commit: **the rows are written**.  Level 0 waits for a compaction, as after any write of a
   ``write-only`` table; the compaction's own files are orphans;
3. the COMPACT commit.

A compaction is computed on one snapshot.  If another writer changed what it was computed on, the buckets concerned are
compacted again on the latest snapshot; after some tries level 0 is left to the next writer, and nothing is lost.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, TypeVar

import pyarrow as pa

from bitlake import _clock
from bitlake.errors import BitlakeError, CommitConflict, NotFound, StorageUnavailable
from bitlake.io import Store
from bitlake.lazy_arrow import compute as pc
from bitlake.merge.interval_partition import KeyRanges, interval_partition
from bitlake.mergetree.bucket_reader import BucketReader
from bitlake.mergetree.bucket_states import Slot, bucket_states, lsm_context, state_of
from bitlake.mergetree.bucket_writer import compact_bucket
from bitlake.mergetree.commit_message import BucketChange, BucketState, Compaction, LsmContext
from bitlake.mergetree.key_value_file import KeyValueWriter
from bitlake.metadata import mergetree_options as lsm
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import BATCH_IDENTIFIER, Snapshot
from bitlake.progress import of_items
from bitlake.runtime import Runner
from bitlake.schema.merge_spec import SEQUENCE_NUMBER, is_cross_partition, max_level, needs_lookup
from bitlake.snapshot.index_files import IndexFiles
from bitlake.snapshot.partitions import discard_entries
from bitlake.snapshot.state import TableState
from bitlake.write.commit import OutcomeUnknown, commit
from bitlake.write.commit_plan import CommitPlan, Once, Overwrite, SequenceTaken

log = logging.getLogger("bitlake")
Item = TypeVar("Item")
Result = TypeVar("Result")

COMPACT_TRIES = 10
"""How often a compaction is computed in all when other writers keep changing its buckets."""
_WAIT_MS = 50


# --- publishing -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Publisher:
    """Who commits: the table's latest state on demand, the commit user, and where compactions run again."""

    now: Callable[[], TableState]
    user: str
    runner: Runner
    written: Callable[[TableState, int], None]
    """Called after the commits of a write, with the state that it was computed on and its identifier."""
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
        """Commit what a write computed on ``state`` made; returns the last snapshot, None if there was nothing to do.

        Raises :class:`CommitConflict` if the rows cannot be added any more (a bucket's HASH index has changed, say),
        and as :func:`bitlake.write.commit.commit` does; all files are deleted then, unless the rows may have been
        committed all the same.  Once they are committed, a compaction that fails is only warned of.

        If another writer added rows to the same buckets meanwhile, these rows must come after those: their files are
        written again with higher sequence numbers, or with ``renumber`` false :class:`SequenceTaken` is raised (for
        rows that were computed from what they are to replace).
        """
        made = self._publish(state, tuple(changes), operation, overwrite, renumber)
        self.written(state, self.identifier)
        return made

    def _publish(
        self,
        state: TableState,
        changes: Sequence[BucketChange],
        operation: str,
        overwrite: Overwrite | None,
        renumber: bool,
    ) -> Snapshot | None:
        compactions = {(c.partition, c.bucket): c.compaction for c in changes if c.compaction}
        try:
            appended, moved = self._append(state, changes, operation, overwrite, renumber)
        except BaseException:
            discard_compactions(state, compactions.values())
            raise
        if not compactions:
            return appended
        base = state if overwrite is None else replace(state, snapshot=None)
        try:
            if moved:
                discard_compactions(state, compactions.values())
                base = self.now()
                buckets = bucket_states(base, compactions.keys())
                compactions = compact_buckets(base, list(buckets.values()), self.runner)
            compacted = self.compact(base, compactions, operation=operation) if compactions else None
        except (StorageUnavailable, NotFound) as e:  # not found: what it was computed on expired meanwhile
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
        """Commit compactions computed on ``state`` and on what was appended since; None if nothing came of them.

        ``full``: what they were, and what they are to be if they must be computed again.
        """
        base, current = state, dict(compactions)
        seen = bucket_states(base, current.keys())
        chance = random.Random(_clock.new_uuid())
        for left in range(COMPACT_TRIES - 1, -1, -1):
            try:
                return self._commit_compactions(base, current, operation)
            except CommitConflict as e:
                discard_compactions(base, () if left else current.values())
                if not left:
                    log.warning("%s: level 0 is left to the next writer: %s", base.name, e)
                    return None
            time.sleep(chance.uniform(0, _WAIT_MS << min(COMPACT_TRIES - left, 4)) / 1000)
            latest = self.now()
            states = bucket_states(latest, current.keys())
            stale = [s for s in current if not _still_good(current[s], seen.get(s), states.get(s))]
            stale = stale or list(current)
            discard_compactions(base, [current[s] for s in stale])
            made = self._again(latest, [states[s] for s in stale if s in states], full, current, stale)
            current = {**{s: c for s, c in current.items() if s not in stale}, **made}
            base, seen = latest, states
            if not any(current.values()):
                return None
        raise AssertionError("the last try returns")

    def replace_files(
        self, state: TableState, old: Sequence[ManifestEntry], changes: Sequence[BucketChange]
    ) -> Snapshot | None:
        """Commit files written from the rows of ``old`` in their place; the caller deletes them if that fails."""
        plan = CommitPlan(
            kind="COMPACT",
            adds=tuple(e for c in changes for e in c.new_files),
            deletes=tuple(old),
            changelog=tuple(e for c in changes for e in c.changelog),
        )
        return self._commit(state, plan, None, None)

    # --- the two commits ---------------------------------------------------------------------------------------------

    def _append(
        self,
        state: TableState,
        changes: Sequence[BucketChange],
        operation: str,
        overwrite: Overwrite | None,
        renumber: bool,
    ) -> tuple[Snapshot | None, bool]:
        """The first commit, and whether the files it adds are not those of ``changes`` but renumbered ones."""
        adds = [e for c in changes for e in c.new_files]
        changelog = [e for c in changes for e in c.changelog]
        index = tuple(i for c in changes for i in c.index)
        if overwrite is not None:
            # Paimon's overwrites publish no changelog either.
            discard_entries(state.table_files, state.schema, changelog)
            changelog = []
            if not any(c.compaction for c in changes):
                adds = upgraded(state.schema, adds)
        if not adds and not changelog and not index and (overwrite is None or overwrite.dynamic):
            return None, False
        surely_not = False

        def failed() -> None:
            nonlocal surely_not
            surely_not = True

        for left in range(COMPACT_TRIES - 1, -1, -1):
            plan = CommitPlan(
                kind="APPEND" if overwrite is None else "OVERWRITE",
                adds=tuple(adds),
                overwrite=overwrite,
                changelog=tuple(changelog),
                index=index,
                sequences=_first_sequences(adds) if overwrite is None else {},
                alone_since=state.snapshot_id or 0 if overwrite is None and is_cross_partition(state.schema) else None,
                read_uuid=None if state.snapshot is None else state.snapshot.uuid,
                once=once_of(state, self.user, self.identifier),
            )
            moved: list[ManifestEntry] | None = None
            try:
                return self._commit(state, plan, operation, failed), left < COMPACT_TRIES - 1
            except SequenceTaken:
                if not left or not renumber:
                    raise
                moved = self._renumbered(state, adds)
            finally:
                if surely_not:
                    kept = set() if moved is None else {e.identity for e in (*moved, *changelog)}
                    gone = [e for e in (*adds, *changelog) if e.identity not in kept]
                    discard_entries(state.table_files, state.schema, gone)
                if surely_not and moved is None:
                    IndexFiles(state.store, state.paths, state.schema).discard([e for i in index for e in i.new])
            adds, surely_not = moved, False
        raise AssertionError("the last try returns or raises")

    def _renumbered(self, state: TableState, adds: Sequence[ManifestEntry]) -> list[ManifestEntry]:
        """The rows in files that come after all that is there now; files of buckets nobody wrote to stay."""
        now = bucket_states(self.now(), {(e.partition, e.bucket) for e in adds})
        first, kept, jobs = _first_sequences(adds), [], []
        for e in adds:
            slot = (e.partition, e.bucket)
            shift = now[slot].next_sequence - first[slot] if slot in now and slot in first else 0
            if shift > 0:
                jobs.append(Renumbering(e, shift))
            else:
                kept.append(e)

        def undo(done: Iterable[tuple[ManifestEntry, ...]]) -> None:
            discard_entries(state.table_files, state.schema, [e for entries in done for e in entries])

        work = partial(renumber_file, lsm_context(state, adds), state.store)
        return [*kept, *(e for entries in _all(self.runner, jobs, work, undo) for e in entries)]

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
            computed_on=(state.snapshot_id or 0) if needs_lookup(state.schema) else None,
            read_uuid=None if state.snapshot is None else state.snapshot.uuid,
        )
        try:
            return self._commit(state, plan, operation, None)
        except (CommitConflict, OutcomeUnknown):
            raise
        except BaseException:
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

    # --- computing again ---------------------------------------------------------------------------------------------

    def _again(
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


class Publishing(Protocol):
    """What :func:`publish` asks of a table."""

    def publisher(self, state: TableState, identifier: int = BATCH_IDENTIFIER) -> Publisher:
        """Who commits to it."""


def publish(
    table: Publishing,
    state: TableState,
    changes: Iterable[BucketChange],
    *,
    operation: str,
    identifier: int = BATCH_IDENTIFIER,
    overwrite: Overwrite | None = None,
    renumber: bool = True,
) -> Snapshot | None:
    """:meth:`Publisher.publish` as a table's own."""
    publisher = table.publisher(state, identifier)
    return publisher.publish(state, changes, operation=operation, overwrite=overwrite, renumber=renumber)


def once_of(state: TableState, user: str, identifier: int) -> Once | None:
    """What a commit must ask that is of a stream's batch, which was looked for in ``state``."""
    return None if identifier == BATCH_IDENTIFIER else Once(user, identifier, state.snapshot_id or 0)


def _first_sequences(adds: Iterable[ManifestEntry]) -> dict[Slot, int]:
    """The lowest sequence number of new files by bucket; postponed rows have none."""
    out: dict[Slot, int] = {}
    for e in adds:
        if e.bucket >= 0:
            slot = (e.partition, e.bucket)
            out[slot] = min(out.get(slot, 2**63), e.file.min_sequence_number)
    return out


def compact_buckets(
    state: TableState, buckets: Sequence[BucketState], runner: Runner, full: bool = False
) -> dict[Slot, Compaction]:
    """Compact several buckets side by side, wherever the runner runs; only what came of it.

    Raises the first error, after deleting what the others made.
    """
    work = partial(_compact_one, lsm_context(state, [f for b in buckets for f in b.files]), state.store, full)
    of_items("buckets", size=lambda bucket: sum(e.file.file_size for e in bucket.files))
    done = _all(runner, buckets, work, lambda good: discard_compactions(state, good))
    return {(b.partition, b.bucket): c for b, c in zip(buckets, done, strict=True) if c}


def discard_compactions(state: TableState, compactions: Iterable[Compaction]) -> None:
    """Delete the files of compactions that no commit will name."""
    compactions = list(compactions)
    discard_entries(state.table_files, state.schema, [e for c in compactions for e in c.made])
    files = IndexFiles(state.store, state.paths, state.schema)
    files.discard([e for c in compactions for i in c.index for e in i.new])


def discard_changes(state: TableState, changes: Iterable[BucketChange]) -> None:
    """Delete the files of writes that no commit will name."""
    changes = list(changes)
    made = [e for c in changes for e in (*c.new_files, *c.changelog)]
    discard_entries(state.table_files, state.schema, made)
    files = IndexFiles(state.store, state.paths, state.schema)
    files.discard([e for c in changes for i in c.index for e in i.new])
    discard_compactions(state, [c.compaction for c in changes])


def _compact_one(context: LsmContext, store: Store, full: bool, bucket: BucketState) -> Compaction:
    return compact_bucket(context, store, bucket, full)


def _all(
    runner: Runner,
    items: Sequence[Item],
    work: Callable[[Item], Result],
    undo: Callable[[list[Result]], None],
) -> list[Result]:
    """Run work over items; if one fails, undo what the others did and raise its error."""
    done = runner.run(items, partial(_or_error, work))
    good = [d for d in done if not isinstance(d, BitlakeError)]
    error = next((d for d in done if isinstance(d, BitlakeError)), None)
    if error is not None:
        undo(good)
        raise error
    return good


def _or_error(work: Callable[[Item], Result], item: Item) -> Result | BitlakeError:
    """The error as a value: what was made beside it must still be told, to be deleted."""
    try:
        return work(item)
    except BitlakeError as e:
        return e


def _still_good(compaction: Compaction, seen: BucketState | None, now: BucketState | None) -> bool:
    """Whether a compaction may be committed though another commit came between: nothing it looked at has changed."""
    if now is None:
        return False
    live = {e.identity for e in now.files}
    upper = {e.identity for e in seen.files if e.file.level > 0} if seen is not None else set()
    vectors = None if seen is None else seen.vectors
    return (
        all(e.identity in live for e in compaction.before)
        and upper == {e.identity for e in now.files if e.file.level > 0}
        and vectors == now.vectors
    )


__all__ = [
    "Publisher",
    "Slot",
    "bucket_states",
    "compact_buckets",
    "discard_changes",
    "lsm_context",
    "once_of",
    "publish",
    "state_of",
]


# --- renumber ---
# New level-0 files written again with higher sequence numbers, because another writer took theirs.
#
# Rows of one key are ordered by their sequence numbers.  Two writers that began on the same snapshot number their rows
# alike; unless the one that commits second comes after the first for good, some of its rows would win over the first
# one's and others lose to them.


@dataclass(frozen=True, slots=True)
class Renumbering:
    """A file of level 0 that no snapshot names yet, and what to add to its sequence numbers."""

    entry: ManifestEntry
    shift: int


def renumber_file(context: LsmContext, store: Store, job: Renumbering) -> tuple[ManifestEntry, ...]:
    """The new files with the rows of the old one, which stays; on an error nothing is left behind."""
    entry = job.entry
    reader = BucketReader(context, store, entry.partition, {})
    writer = KeyValueWriter(
        context, store, entry.partition, entry.bucket, entry.file.level, total_buckets=entry.total_buckets
    )
    with writer:
        for rows in reader.read(entry, reader.columns):
            at = rows.column_names.index(SEQUENCE_NUMBER)
            moved = pc.add(rows.column(at), pa.scalar(job.shift, pa.int64()))
            writer.write(rows.set_column(at, SEQUENCE_NUMBER, moved))
        return tuple(replace(e, kind=entry.kind) for e in writer.finish())


# --- upgrade ---
# Files of an overwrite need no compaction to be in the highest level: nothing is below them.


def upgraded(schema: TableSchema, adds: Sequence[ManifestEntry]) -> list[ManifestEntry]:
    """An overwrite's files, put into the highest level where those of a bucket do not overlap (``overwrite-upgrade``).

    Nothing can be below them.
    """
    if not schema.opts.of(lsm.OVERWRITE_UPGRADE) or any(e.bucket < 0 or e.file.level for e in adds):
        return list(adds)
    buckets: dict[Slot, list[ManifestEntry]] = {}
    for e in adds:
        buckets.setdefault((e.partition, e.bucket), []).append(e)
    top, out = max_level(schema.opts), []
    for entries in buckets.values():
        apart = len(interval_partition(entries, KeyRanges(schema))) == len(entries)
        if apart and not any(e.file.delete_row_count for e in entries):
            entries = [replace(e, file=replace(e.file, level=top)) for e in entries]
        out += entries
    return out
