"""New level-0 files written again with higher sequence numbers, because another writer took theirs.

Rows of one key are ordered by their sequence numbers.  Two writers that began on the same snapshot number their rows
alike; unless the one that commits second comes after the first for good, some of its rows would win over the first
one's and others lose to them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from bitlake.io import Store
from bitlake.metadata.manifest import ManifestEntry
from bitlake.schema.merge_spec import SEQUENCE_NUMBER
from bitlake.table.lsm.bucket_read import BucketReader
from bitlake.table.lsm.kv_file import KeyValueWriter
from bitlake.table.lsm.model import LsmContext


@dataclass(frozen=True, slots=True)
class Renumbering:
    """A file of level 0 that no snapshot names yet, and what to add to its sequence numbers."""

    entry: ManifestEntry
    shift: int


def renumber_file(context: LsmContext, store: Store, job: Renumbering) -> tuple[ManifestEntry, ...]:
    """The new files with the rows of the old one, which stays; on an error nothing is left behind."""
    entry = job.entry
    reader = BucketReader(context, store, entry.partition, {})
    writer = KeyValueWriter(
        context, store, entry.partition, entry.bucket, entry.file.level, total_buckets=entry.total_buckets
    )
    with writer:
        for rows in reader.read(entry, reader.columns):
            at = rows.column_names.index(SEQUENCE_NUMBER)
            moved = pc.add(rows.column(at), pa.scalar(job.shift, pa.int64()))
            writer.write(rows.set_column(at, SEQUENCE_NUMBER, moved))
        return tuple(replace(e, kind=entry.kind) for e in writer.finish())
