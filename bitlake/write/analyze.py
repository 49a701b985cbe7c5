"""Statistics of a table's columns, found by an engine, written beside the table and named by a snapshot.

``statistics/stat-<uuid>-0`` is JSON (see :mod:`bitlake.system_tables.history`); the snapshot that names it is of kind
ANALYZE and changes nothing else.  Source: Paimon's statistics files.
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
class ColumnFacts:
    """What is known of a column; ``min`` and ``max`` as text, lengths in bytes, None: not known."""

    distinct_count: int | None = None
    min: str | None = None
    max: str | None = None
    null_count: int | None = None
    avg_length: int | None = None
    max_length: int | None = None


def save_statistics(state: TableState, rows: int, columns: Mapping[str, ColumnFacts], user: str) -> Snapshot:
    """Write statistics of a state's rows and make a snapshot that names them.

    ``rows``: how many there are once merged.  Raises :class:`NotFound` for a table without a snapshot.
    """
    snapshot = state.snapshot
    if snapshot is None:
        raise NotFound(f"table '{state.name}' has no snapshot to analyze yet")
    size = sum(e.file.file_size for e in state.entries())
    stored = sum(e.file.row_count for e in state.entries())
    merged = size * rows // stored if stored else 0
    found: dict[str, Any] = {
        "snapshotId": snapshot.id,
        "schemaId": snapshot.schema_id,
        "mergedRecordCount": rows,
        "mergedRecordSize": merged,
        "colStats": {name: _facts(state, name, facts) for name, facts in columns.items()},
    }
    name = f"stat-{_clock.new_uuid()}-0"
    path = state.paths.statistics(name)
    state.store.write(path, dumps(found).encode())
    plan = CommitPlan("ANALYZE", statistics=name)
    try:
        made = commit(state.store, state.paths, plan, state.schema, user)
    except OutcomeUnknown:
        raise  # the snapshot may be there and name the file
    except BitlakeError:
        state.store.delete(path)
        raise
    assert made is not None
    return made


def _facts(state: TableState, name: str, facts: ColumnFacts) -> dict[str, Any]:
    members = {
        "colId": state.schema.field(name).id,
        "distinctCount": facts.distinct_count,
        "min": facts.min,
        "max": facts.max,
        "nullCount": facts.null_count,
        "avgLen": facts.avg_length,
        "maxLen": facts.max_length,
    }
    return {k: v for k, v in members.items() if v is not None}
