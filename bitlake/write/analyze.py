"""Column statistics of a snapshot: a JSON file, published by a snapshot of kind ANALYZE.

An engine computes the statistics (:class:`ColumnStatistics`).  :func:`save_statistics` writes them to
``statistics/stat-<uuid>-0`` and commits a snapshot that names the file and changes nothing else.  The members of the
file are listed in :mod:`bitlake.system_tables.tables`.  Source: Paimon's statistics files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bitlake import _clock
from bitlake.errors import BitlakeError, NotFound
from bitlake.metadata.java_json import dumps
from bitlake.metadata.snapshot import Snapshot
from bitlake.snapshot.state import TableState
from bitlake.write.commit import OutcomeUnknown, commit
from bitlake.write.commit_plan import CommitPlan


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """Statistics of one column: ``min`` and ``max`` as text, lengths in bytes; None means unknown."""

    distinct_count: int | None = None
    min: str | None = None
    max: str | None = None
    null_count: int | None = None
    avg_length: int | None = None
    max_length: int | None = None


def save_statistics(state: TableState, rows: int, columns: Mapping[str, ColumnStatistics], user: str) -> Snapshot:
    """Write statistics of a table state and return the ANALYZE snapshot that names them.

    ``rows`` is the number of rows after merging; ``user`` is the commit user.  Raises :class:`NotFound` for a table
    without a snapshot, and what :func:`bitlake.write.commit.commit` raises; the statistics file is then deleted unless
    the snapshot may exist.
    """
    snapshot = state.snapshot
    if snapshot is None:
        raise NotFound(f"table '{state.name}' has no snapshot to analyze yet")
    stored_bytes = sum(e.file.file_size for e in state.entries())
    stored_rows = sum(e.file.row_count for e in state.entries())
    content: dict[str, Any] = {
        "snapshotId": snapshot.id,
        "schemaId": snapshot.schema_id,
        "mergedRecordCount": rows,
        "mergedRecordSize": stored_bytes * rows // stored_rows if stored_rows else 0,
        "colStats": {name: _column_members(state, name, statistics) for name, statistics in columns.items()},
    }
    name = f"stat-{_clock.new_uuid()}-0"
    path = state.paths.statistics(name)
    state.store.write(path, dumps(content).encode())
    plan = CommitPlan("ANALYZE", statistics=name)
    try:
        published = commit(state.store, state.paths, plan, state.schema, user)
    except OutcomeUnknown:
        raise  # the snapshot may exist and name the file
    except BitlakeError:
        state.store.delete(path)
        raise
    assert published is not None
    return published


def _column_members(state: TableState, name: str, statistics: ColumnStatistics) -> dict[str, Any]:
    members = {
        "colId": state.schema.field(name).id,
        "distinctCount": statistics.distinct_count,
        "min": statistics.min,
        "max": statistics.max,
        "nullCount": statistics.null_count,
        "avgLen": statistics.avg_length,
        "maxLen": statistics.max_length,
    }
    return {k: v for k, v in members.items() if v is not None}
