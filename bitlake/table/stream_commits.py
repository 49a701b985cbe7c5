"""Commits of streams, each batch once: a snapshot's commit user and identifier say which batch of which stream it is.

A stream that was killed writes its last batch again and asks here first whether it is there already.  Source: the
observed behaviour of Paimon's streaming writers.
"""

from __future__ import annotations

from bitlake.errors import NotFound
from bitlake.metadata.snapshot import BATCH_IDENTIFIER
from bitlake.snapshot.state import TableState
from bitlake.snapshot.versions import load_snapshot, snapshot_ids


def last_identifier(state: TableState, user: str) -> int | None:
    """The identifier of a user's last commit among the snapshots that are kept; None if there is none.

    One batch may make several snapshots (rows, then their compaction) of the same identifier.
    """
    for number in reversed(snapshot_ids(state.store, state.paths)):
        try:
            snapshot = load_snapshot(state.store, state.paths, number)
        except NotFound:  # expired meanwhile, and so are all before it
            return None
        if snapshot.commit_user == user and snapshot.commit_identifier != BATCH_IDENTIFIER:
            return snapshot.commit_identifier
    return None


def is_committed(state: TableState, user: str, identifier: int) -> bool:
    """Whether a stream's batch is in the table; its batches are committed in the order of their numbers."""
    last = last_identifier(state, user)
    return last is not None and last >= identifier
