"""``$snapshots``, ``$schemas``, ``$options``, ``$tags``, ``$branches``, ``$consumers``, ``$statistics``.

Times are the local wall clock, as in Paimon.  Source: the columns of Paimon's system tables.

``$statistics`` shows what ANALYZE found, from the last snapshot that names a statistics file.  The file
``statistics/<name>`` is JSON: ``snapshotId``, ``schemaId``, ``mergedRecordCount``, ``mergedRecordSize``, and
``colStats``: by column ``colId``, ``distinctCount``, ``min``, ``max`` (text), ``nullCount``, ``avgLen``, ``maxLen``.
Source: Paimon's statistics files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from bitlake.errors import NotFound
from bitlake.metadata.java_json import dumps, flat, load_object
from bitlake.snapshot.consumers import consumers
from bitlake.snapshot.state import TableState
from bitlake.snapshot.tags import list_tags
from bitlake.snapshot.versions import existing_snapshots, load_schema, schema_ids, snapshot_ids
from bitlake.system_tables.rows import gathered, listed, local_time
from bitlake.types.datatypes import field_to_json

_SNAPSHOTS = listed(
    lambda state: existing_snapshots(state.table_files, snapshot_ids(state.table_files)),
    ("snapshot_id BIGINT NOT NULL", lambda s: s.id),
    "schema_id BIGINT NOT NULL, commit_user STRING NOT NULL, commit_identifier BIGINT NOT NULL",
    "commit_kind STRING NOT NULL",
    ("commit_time TIMESTAMP(3) NOT NULL", lambda s: local_time(s.time_millis)),
    "base_manifest_list STRING NOT NULL, delta_manifest_list STRING NOT NULL, changelog_manifest_list STRING",
    "total_record_count BIGINT, delta_record_count BIGINT, changelog_record_count BIGINT, watermark BIGINT",
    "next_row_id BIGINT, operation STRING, writer_version STRING",
)
_SCHEMAS = listed(
    lambda state: (load_schema(state.table_files, i) for i in schema_ids(state.table_files)),
    ("schema_id BIGINT NOT NULL", lambda s: s.id),
    ("fields STRING NOT NULL", lambda s: flat([field_to_json(f) for f in s.fields])),
    ("partition_keys STRING NOT NULL", lambda s: flat(list(s.partition_keys))),
    ("primary_keys STRING NOT NULL", lambda s: flat(list(s.primary_keys))),
    ("options STRING NOT NULL", lambda s: flat(dict(s.options))),
    "comment STRING",
    ("update_time TIMESTAMP(3) NOT NULL", lambda s: local_time(s.time_millis)),
)
_TAGS = listed(
    list_tags,
    ("tag_name STRING NOT NULL", lambda t: t.name),
    ("snapshot_id BIGINT NOT NULL", lambda t: t.snapshot.id),
    ("schema_id BIGINT NOT NULL", lambda t: t.snapshot.schema_id),
    ("commit_time TIMESTAMP(3) NOT NULL", lambda t: local_time(t.snapshot.time_millis)),
    ("record_count BIGINT", lambda t: t.snapshot.total_record_count),
    ("create_time TIMESTAMP(3)", lambda t: t.created_ms),
    ("time_retained STRING", lambda t: None if t.retained_ms is None else _duration(t.retained_ms)),
)


def _duration(millis: int) -> str:
    """A duration as Java prints it: ``PT24H``, ``PT1M30.5S``."""
    seconds, rest = divmod(millis, 1000)
    hours, seconds = divmod(seconds, 3600)
    minutes, seconds = divmod(seconds, 60)
    text = f"{hours}H" if hours else ""
    text += f"{minutes}M" if minutes else ""
    if seconds or rest:
        text += f"{seconds}" + (f".{rest:03d}".rstrip("0") if rest else "") + "S"
    return "PT" + (text or "0S")


@gathered("key STRING NOT NULL, value STRING NOT NULL")
def _options(state: TableState) -> Iterable[Sequence[Any]]:
    return sorted(state.schema.options.items())


@gathered("consumer_id STRING NOT NULL, next_snapshot_id BIGINT NOT NULL")
def _consumers(state: TableState) -> Iterable[Sequence[Any]]:
    return sorted(consumers(state.table_files).items())


@gathered("branch_name STRING NOT NULL, create_time TIMESTAMP(3) NOT NULL")
def _branches(state: TableState) -> Iterable[Sequence[Any]]:
    # Object stores have no time for folders: that of the branch's first schema, written when it was made.
    found = [f for f in state.store.list(f"{state.paths.root}/branch") if f.name.startswith("branch-")]
    rows = []
    for folder in found:
        made = folder.mtime_ms
        if not made:
            inside = state.store.list(f"{state.paths.root}/branch/{folder.name}/schema")
            made = min((f.mtime_ms for f in inside), default=0)
        rows.append((folder.name.removeprefix("branch-"), local_time(made)))
    return rows


@gathered(
    "snapshot_id BIGINT NOT NULL, schema_id BIGINT NOT NULL, mergedRecordCount BIGINT, mergedRecordSize BIGINT, "
    "colstat STRING"
)
def _statistics(state: TableState) -> Iterable[Sequence[Any]]:
    if state.snapshot is None or state.snapshot.statistics is None:
        return ()
    path = state.paths.statistics(state.snapshot.statistics)
    try:
        found = load_object(state.store.read(path), path)
    except NotFound as e:
        raise NotFound(
            f"table '{state.name}': its statistics file {path} is gone; ANALYZE TABLE makes a new one"
        ) from e
    counts = (found.maybe_int("mergedRecordCount"), found.maybe_int("mergedRecordSize"))
    stats = dumps(found.value.get("colStats") or {})
    return [(found.int("snapshotId"), found.int("schemaId"), *counts, stats)]


HISTORY_TABLES = {
    "snapshots": _SNAPSHOTS,
    "schemas": _SCHEMAS,
    "options": _options,
    "tags": _TAGS,
    "branches": _branches,
    "consumers": _consumers,
    "statistics": _statistics,
}
