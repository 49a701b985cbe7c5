"""Files of an overwrite need no compaction to be in the highest level: nothing is below them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bitlake.merge.interval_partition import KeyRanges, sections
from bitlake.metadata import mergetree_options as lsm
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.schema import TableSchema
from bitlake.schema.merge_spec import max_level
from bitlake.table.lsm.states import Slot


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
