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
from typing import Protocol

from bitlake import _clock
from bitlake.errors import BitlakeError, CommitConflict, InvalidRequest, StorageUnavailable
from bitlake.metadata import lsm_options as lsm
from bitlake.metadata.index_manifest import DELETION_VECTORS, HASH, IndexFileEntry
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import BATCH_IDENTIFIER, Snapshot
from bitlake.storage import Store
from bitlake.table.commit import CommitPlan, OutcomeUnknown, Overwrite, commit
from bitlake.table.index_changes import IndexFiles
from bitlake.table.index_files import index_entries
from bitlake.table.key_ranges import KeyRanges
from bitlake.table.lsm.bucket import compact_bucket
from bitlake.table.lsm.model import BucketChange, BucketState, Compaction, LsmContext
from bitlake.table.lsm.pick import max_level, needs_lookup
from bitlake.table.merge.sections import sections
from bitlake.table.partitions import discard_entries
from bitlake.table.runner import Runner
from bitlake.table.state import TableState

log = logging.getLogger("bitlake")

Slot = tuple[bytes, int]
"""A partition row and a bucket's number."""

COMPACT_TRIES = 10
"""How often a compaction is computed in all when other writers keep changing its buckets."""
_WAIT_MS = 50


# --- what is there ----------------------------------------------------------------------------------------------------


def lsm_context(state: TableState) -> LsmContext:
    """What writers and compactions of a table need, as it is in ``state``."""
    ids = {state.schema.id, *(e.file.schema_id for e in state.entries())}
    return LsmContext(state.name, state.paths, state.schema, dict(state.schemas(ids)))


def bucket_states(state: TableState, only: Collection[Slot] | None = None) -> dict[Slot, BucketState]:
    """The buckets of a table that hold anything, or those of them in ``only``."""
    files: dict[Slot, list[ManifestEntry]] = {}
    for e in state.entries():
        slot = (e.partition, e.bucket)
        if only is None or slot in only:
            files.setdefault(slot, []).append(e)
    indexes: dict[Slot, dict[str, IndexFileEntry]] = {}
    for i in index_entries(state.store, state.paths, state.snapshot):
        slot = (i.partition, i.bucket)
        if only is None or slot in only:
            indexes.setdefault(slot, {})[i.index_type] = i
    out = {}
    for slot in {**files, **indexes}:
        live, index = tuple(files.get(slot, ())), indexes.get(slot, {})
        total = live[0].total_buckets if live else state.schema.num_buckets
        out[slot] = BucketState(*slot, total, live, index.get(DELETION_VECTORS), index.get(HASH))
    return out


def state_of(states: Mapping[Slot, BucketState], schema: TableSchema, slot: Slot) -> BucketState:
    """The state of a bucket that is to be written, empty if nothing is there yet.

    Raises :class:`InvalidRequest` if its files are of another number of buckets than the table has by now: a key would
    be looked for in the wrong one.
    """
    found = states.get(slot)
    if found is None:
        return BucketState(*slot, schema.num_buckets)
    if found.total_buckets > 0 and schema.num_buckets > 0 and found.total_buckets != schema.num_buckets:
        raise InvalidRequest(
            f"bucket {found.bucket} is one of {found.total_buckets}, and 'bucket' = '{schema.num_buckets}' by now; "
            "INSERT OVERWRITE the table (or this partition) with its own rows before writing others"
        )
    return found


# --- publishing -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Publisher:
    """Who commits: the table's latest state on demand, the commit user, and where compactions run again."""

    now: Callable[[], TableState]
    user: str
    runner: Runner
    identifier: int = BATCH_IDENTIFIER

    def publish(
        self,
        state: TableState,
        changes: Iterable[BucketChange],
        *,
        operation: str,
        overwrite: Overwrite | None = None,
    ) -> Snapshot | None:
        """Commit what a write computed on ``state`` made; returns the last snapshot, None if there was nothing to do.

        Raises :class:`CommitConflict` if the rows cannot be added any more (a bucket's HASH index has changed, say),
        and as :func:`bitlake.table.commit.commit` does; all files are deleted then, unless the rows may have been
        committed all the same.  Once they are committed, a compaction that fails is only warned of.
        """
        changes = tuple(changes)
        compactions = {(c.partition, c.bucket): c.compaction for c in changes if c.compaction}
        try:
            appended = self._append(state, changes, operation, overwrite)
        except BaseException:
            self._discard(state, compactions.values())
            raise
        if not compactions:
            return appended
        base = state if overwrite is None else replace(state, snapshot=None)
        try:
            compacted = self.compact(base, compactions, operation=operation)
        except StorageUnavailable as e:
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
                self._discard(base, () if left else current.values())
                if not left:
                    log.warning("%s: level 0 is left to the next writer: %s", base.name, e)
                    return None
            time.sleep(chance.uniform(0, _WAIT_MS << min(COMPACT_TRIES - left, 4)) / 1000)
            latest = self.now()
            states = bucket_states(latest, current.keys())
            stale = [s for s in current if not _still_good(current[s], seen.get(s), states.get(s))]
            stale = stale or list(current)
            self._discard(base, [current[s] for s in stale])
            made = self._again(latest, [states[s] for s in stale if s in states], full, current, stale)
            current = {**{s: c for s, c in current.items() if s not in stale}, **made}
            base, seen = latest, states
            if not any(current.values()):
                return None
        raise AssertionError("the last try returns")

    # --- the two commits ---------------------------------------------------------------------------------------------

    def _append(
        self, state: TableState, changes: Sequence[BucketChange], operation: str, overwrite: Overwrite | None
    ) -> Snapshot | None:
        adds = [e for c in changes for e in c.new_files]
        changelog = [e for c in changes for e in c.changelog]
        index = tuple(i for c in changes for i in c.index)
        if overwrite is not None:
            # Paimon's overwrites publish no changelog either.
            discard_entries(state.store, state.paths, state.schema, changelog)
            changelog = []
            if not any(c.compaction for c in changes):
                adds = upgraded(state.schema, adds)
        if not adds and not changelog and not index and (overwrite is None or overwrite.dynamic):
            return None

        def discard() -> None:
            discard_entries(state.store, state.paths, state.schema, [*adds, *changelog])
            IndexFiles(state.store, state.paths, state.schema).discard([e for i in index for e in i.new])

        plan = CommitPlan(
            kind="APPEND" if overwrite is None else "OVERWRITE",
            adds=tuple(adds),
            overwrite=overwrite,
            changelog=tuple(changelog),
            index=index,
        )
        return self._commit(state, plan, operation, discard)

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
        )
        try:
            return self._commit(state, plan, operation, None)
        except (CommitConflict, OutcomeUnknown):
            raise
        except BaseException:
            self._discard(state, every)
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
            self._discard(state, [c for s, c in current.items() if s not in stale])
            raise

    def _discard(self, state: TableState, compactions: Iterable[Compaction]) -> None:
        discard_compactions(state, compactions)


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
) -> Snapshot | None:
    """:meth:`Publisher.publish` as a table's own."""
    return table.publisher(state, identifier).publish(state, changes, operation=operation, overwrite=overwrite)


def compact_buckets(
    state: TableState, buckets: Sequence[BucketState], runner: Runner, full: bool = False
) -> dict[Slot, Compaction]:
    """Compact several buckets side by side, wherever the runner runs; only what came of it.

    Raises the first error, after deleting what the others made.
    """
    done = runner.run(buckets, partial(_try_compact, lsm_context(state), state.store, full))
    error = next((d for d in done if isinstance(d, BaseException)), None)
    good = {(b.partition, b.bucket): d for b, d in zip(buckets, done, strict=True) if isinstance(d, Compaction)}
    if error is not None:
        discard_compactions(state, good.values())
        raise error
    return {slot: c for slot, c in good.items() if c}


def discard_compactions(state: TableState, compactions: Iterable[Compaction]) -> None:
    """Delete the files of compactions that no commit will name."""
    compactions = list(compactions)
    discard_entries(state.store, state.paths, state.schema, [e for c in compactions for e in c.made])
    files = IndexFiles(state.store, state.paths, state.schema)
    files.discard([e for c in compactions for i in c.index for e in i.new])


def discard_changes(state: TableState, changes: Iterable[BucketChange]) -> None:
    """Delete the files of writes that no commit will name."""
    changes = list(changes)
    made = [e for c in changes for e in (*c.new_files, *c.changelog)]
    discard_entries(state.store, state.paths, state.schema, made)
    files = IndexFiles(state.store, state.paths, state.schema)
    files.discard([e for c in changes for i in c.index for e in i.new])
    discard_compactions(state, [c.compaction for c in changes])


def _try_compact(context: LsmContext, store: Store, full: bool, bucket: BucketState) -> Compaction | BitlakeError:
    """:func:`compact_bucket`, with its error as a value: what was made beside it must still be told, to be deleted."""
    try:
        return compact_bucket(context, store, bucket, full)
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
        apart = len(sections(entries, KeyRanges(schema))) == len(entries)
        if apart and not any(e.file.delete_row_count for e in entries):
            entries = [replace(e, file=replace(e.file, level=top)) for e in entries]
        out += entries
    return out


__all__ = ["Publisher", "bucket_states", "compact_buckets", "lsm_context", "publish", "state_of", "upgraded"]
