"""Index backfill of a whole table: batches of files, each rewritten somewhere and made visible by its own commit.

A batch that loses a file to another writer (a compaction, an overwrite, another backfill) starts again with what is
left of it; what was committed before stays.  A killed backfill loses one batch, and the next call skips what is done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bitlake.deletion import discard_files
from bitlake.errors import CommitConflict, reading_table
from bitlake.metadata.manifest import ManifestEntry
from bitlake.progress import say
from bitlake.runtime import Runner
from bitlake.snapshot.partitions import PartitionReader
from bitlake.snapshot.state import TableState
from bitlake.table.commit import CommitPlan, commit
from bitlake.table.rewrite_index import Rewritten, rewrite_all

BATCH_FILES = 256
"""Files a commit: at 0.1 to 2 s a file, minutes of work on a small cluster, and few snapshots on a large table."""
_TRIES = 10


def backfill(
    state: TableState,
    entries: Sequence[ManifestEntry],
    now: Callable[[], TableState],
    runner: Runner,
    user: str,
    batch_files: int = BATCH_FILES,
) -> list[Rewritten]:
    """Bring the indexes of these files in line with the table's options; ``now`` loads the table anew.

    Raises :class:`CommitConflict` when other writers keep taking a batch's files away.
    """
    done: list[Rewritten] = []
    for start in range(0, len(entries), batch_files):
        if len(entries) > batch_files:
            say(f"batch {start // batch_files + 1:,} of {-(-len(entries) // batch_files):,}")
        done += _batch(state, entries[start : start + batch_files], now, runner, user)
    return done


def _batch(
    state: TableState, entries: Sequence[ManifestEntry], now: Callable[[], TableState], runner: Runner, user: str
) -> list[Rewritten]:
    for left in range(_TRIES, 0, -1):
        with reading_table(state.name):
            done = rewrite_all(state, entries, state.store, runner)
        try:
            _commit(state, [d for d in done if d.new is not None], user)
            return done
        except CommitConflict:
            if left == 1:
                raise
        state = now()
        names = {e.file.file_name for e in entries}
        entries = [e for e in state.entries() if e.file.file_name in names]
    raise AssertionError("the last try returns or raises")


def _commit(state: TableState, changed: Sequence[Rewritten], user: str) -> None:
    if not changed:
        return
    adds = tuple(d.new for d in changed if d.new is not None)
    plan = CommitPlan(kind="COMPACT", adds=adds, deletes=tuple(d.old for d in changed))
    commit(state.store, state.paths, plan, state.schema, user, on_failure=lambda: _discard(state, changed))


def _discard(state: TableState, changed: Sequence[Rewritten]) -> None:
    partitions = PartitionReader(state.schema, state.paths)
    for d in changed:
        assert d.new is not None
        folder = partitions.data_path(d.new).rsplit("/", 1)[0]
        new = [n for n in d.new.file.extra_files if n not in d.old.file.extra_files]
        discard_files(state.store, [f"{folder}/{n}" for n in new])
