"""What a compaction would do to a table now: told by the very rules that compactions go by, of metadata alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bitlake.metadata.manifest import ManifestEntry
from bitlake.table.append_compact import due_groups
from bitlake.table.lsm.bucket import due_unit
from bitlake.table.lsm.postpone import postponed
from bitlake.table.lsm.states import bucket_states, lsm_context
from bitlake.table.state import TableState


@dataclass(frozen=True, slots=True)
class Due:
    """Files that a compaction would merge or write anew: how many, their bytes, and how many of their rows are deleted.

    ``small``: those below the size that ``compaction.small-file-ratio`` says; ``level_0``: bytes of them on level 0, of
    tables with a primary key; ``postponed``: files whose rows have no bucket yet.
    """

    files: int = 0
    size: int = 0
    small: int = 0
    deleted: int = 0
    level_0: int = 0
    postponed: int = 0


def due(state: TableState, small: int, gone: Mapping[str, int | None], full: bool = False) -> Due:
    """What is due now, or with ``full`` what a full compaction would take.

    ``small``: bytes below which a file is; ``gone``: deleted rows by data file.
    """
    entries = state.entries()
    files = _keyed(state, full) if state.schema.primary_keys else _append(state, entries, full)
    waiting = sum(len(held) for held in postponed(entries).values())
    return Due(
        len(files),
        sum(e.file.file_size for e in files),
        sum(e.file.file_size < small for e in files),
        sum(gone.get(e.file.file_name) or 0 for e in files),
        sum(e.file.file_size for e in files if e.file.level == 0) if state.schema.primary_keys else 0,
        waiting,
    )


def _append(state: TableState, entries: Sequence[ManifestEntry], full: bool) -> list[ManifestEntry]:
    return [e for group in due_groups(state, entries, full) for e in group]


def _keyed(state: TableState, full: bool) -> list[ManifestEntry]:
    context = lsm_context(state)
    units = (due_unit(context, b, full) for b in bucket_states(state).values() if b.bucket >= 0)
    return [e for unit in units if unit is not None for e in unit.files]
