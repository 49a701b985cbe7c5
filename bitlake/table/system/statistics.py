"""``$statistics``: what ANALYZE found, of the last snapshot that knows.

The file ``statistics/<name>`` is JSON: ``snapshotId``, ``schemaId``, ``mergedRecordCount``, ``mergedRecordSize``, and
``colStats``: by column ``colId``, ``distinctCount``, ``min``, ``max`` (text), ``nullCount``, ``avgLen``, ``maxLen``.
Source: Paimon's statistics files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bitlake.errors import NotFound
from bitlake.metadata.java_json import dumps, load_object
from bitlake.table.state import TableState
from bitlake.table.system.rows import Metadata, by_rows, columns

_STATISTICS = columns(
    "snapshot_id BIGINT NOT NULL",
    "schema_id BIGINT NOT NULL",
    "mergedRecordCount BIGINT",
    "mergedRecordSize BIGINT",
    "colstat STRING",
)


def _statistics(state: TableState) -> Mapping[str, Any]:
    if state.snapshot is None or state.snapshot.statistics is None:
        return by_rows(_STATISTICS, ())
    path = state.paths.statistics(state.snapshot.statistics)
    try:
        found = load_object(state.store.read(path), path)
    except NotFound as e:
        raise NotFound(
            f"table '{state.name}': its statistics file {path} is gone; ANALYZE TABLE makes a new one"
        ) from e
    counts = (found.maybe_int("mergedRecordCount"), found.maybe_int("mergedRecordSize"))
    stats = dumps(found.value.get("colStats") or {})
    return by_rows(_STATISTICS, [(found.int("snapshotId"), found.int("schemaId"), *counts, stats)])


TABLES = {"statistics": Metadata(_STATISTICS, _statistics)}
