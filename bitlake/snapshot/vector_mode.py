"""Deletion-vector mode: in which mode a snapshot is read after deletion vectors were switched on or off.

With deletion vectors readers take the files above level 0 as they are, minus vectors; without, they merge all files and
ignore vectors (index-format spec, section 9.6).  A table is settled if both see the same rows.

A switch changes only the schema.  A writer that read the schema before may commit in the old mode right after it, and
the process that switches may die before it has closed the table to such writers.  The next commit looks at the
snapshot, and undoes the switch if it is unsafe (:func:`bitlake.write.commit.undo_unsafe_switch`).
"""

from __future__ import annotations

from dataclasses import replace

from bitlake.errors import CorruptError, NotFound
from bitlake.merge.interval_partition import KeyRanges, interval_partition
from bitlake.metadata import options as opt
from bitlake.metadata.index_manifest import vectors_by_file
from bitlake.metadata.manifest import ManifestEntry, by_bucket
from bitlake.metadata.schema import TableSchema
from bitlake.runtime import CacheName
from bitlake.snapshot.manifests import index_entries
from bitlake.snapshot.state import TableState
from bitlake.snapshot.versions import load_schemas

_SCHEMAS: CacheName[tuple[str, str], TableSchema] = CacheName("schemas of snapshots")
"""By the schema's path and the snapshot's delta manifest list, which a table that is created again does not share."""
_FIELD_BYTES = 500
"""Estimated bytes of a field in memory."""


def with_vector_mode_of(schema: TableSchema, snapshot_schema: TableSchema) -> TableSchema:
    """A schema with the deletion-vector mode of another."""
    return schema.with_options({opt.DV_ENABLED.name: str(snapshot_schema.opts.of(opt.DV_ENABLED)).lower()})


def schema_before_switch(state: TableState) -> TableSchema | None:
    """The schema of the latest snapshot, if deletion vectors were switched on or off since; else None."""
    new = state.schema
    snapshot = state.snapshot if state.is_snapshot else None
    if snapshot is None or snapshot.schema_id == new.id:
        return None
    files, number = state.table_files, snapshot.schema_id
    cache, key = state.store.caches[_SCHEMAS], (files.paths.schema(number), snapshot.delta_manifest_list)
    try:
        old = cache.get_or(
            key, lambda: load_schemas(files, [number])[number], lambda s: _FIELD_BYTES * (1 + len(s.fields))
        )
    except (NotFound, CorruptError):
        return None  # the schema was lost or damaged: an overwrite repairs the table
    # By setting 'deletion-vectors.modifiable', a user of another engine accepted wrong rows.
    before = opt.Options(opt.replace_invalid(old.options, new.options))
    if before.of(opt.DV_ENABLED) == new.opts.of(opt.DV_ENABLED) or new.opts.of(opt.DV_MODIFIABLE):
        return None
    is_replaced = {f.id for f in old.fields}.isdisjoint(f.id for f in new.fields)
    return None if is_replaced else old  # REPLACE TABLE is about to remove the rows


def in_readable_mode(state: TableState) -> TableState:
    """The state in the deletion-vector mode in which its snapshot is read right.

    Right after a switch, that is the mode before it: with vectors on, rows of level 0 would be missing, and with
    vectors off, deleted rows would come back.  A settled table is read without vectors, which also shows level 0.
    """
    old = schema_before_switch(state)
    if old is None or (old.opts.of(opt.DV_ENABLED) and is_settled(replace(state, schema=old), level_0=True)):
        return state
    return replace(state, schema=with_vector_mode_of(state.schema, old))


def is_settled(state: TableState, *, level_0: bool = False) -> bool:
    """Return whether readers with and without deletion vectors see the same rows.

    So every key must have one row, above level 0, and no vector may delete any row.  ``level_0``: ignore rows of level
    0, which readers with vectors do not see.
    """
    entries = [e for e in state.entries() if e.bucket >= 0]
    vectors = vectors_by_file(index_entries(state.table_files, state.snapshot))
    if state.schema.opts.of(opt.DV_ENABLED) and any(e.file.file_name in vectors for e in entries):
        return False
    if not state.schema.primary_keys:
        return True
    upper = [e for e in entries if e.file.level > 0]
    if any(e.file.delete_row_count for e in upper) or not (level_0 or len(upper) == len(entries)):
        return False
    return key_ranges_are_disjoint(state.schema, upper)


def key_ranges_are_disjoint(schema: TableSchema, files: list[ManifestEntry]) -> bool:
    """Return whether the key ranges of a bucket's files do not overlap, so that each key has one row."""
    ranges = KeyRanges(schema)
    return all(len(interval_partition(entries, ranges)) == len(entries) for entries in by_bucket(files).values())
