"""Settled tables: readers with and without deletion vectors see the same rows.

With deletion vectors readers take the files above level 0 as they are, minus vectors; without, they merge all files and
ignore vectors (index-format spec, section 9.6).  A table is settled if every key has one row, above level 0, and no
vector deletes any row.
"""

from __future__ import annotations

from bitlake.merge.interval_partition import KeyRanges, interval_partition
from bitlake.metadata import options as opt
from bitlake.metadata.index_manifest import vectors_by_file
from bitlake.metadata.manifest import ManifestEntry, by_bucket
from bitlake.metadata.schema import TableSchema
from bitlake.snapshot.manifests import index_entries
from bitlake.snapshot.state import TableState


def is_settled(state: TableState, *, level_0: bool = False) -> bool:
    """Return whether readers with and without deletion vectors see the same rows.

    ``level_0``: ignore rows of level 0, which readers with vectors do not see.
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
    return do_not_overlap(state.schema, upper)


def do_not_overlap(schema: TableSchema, files: list[ManifestEntry]) -> bool:
    """Return whether the key ranges of a bucket's files do not overlap, so that each key has one row."""
    ranges = KeyRanges(schema)
    return all(len(interval_partition(entries, ranges)) == len(entries) for entries in by_bucket(files).values())
