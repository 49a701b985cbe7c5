"""What passes between the writing of primary-key tables and those who commit it: plain values, picklable.

A *bucket* is the unit of all of it.  A write gives each bucket it touches a :class:`BucketState` (what is live there)
and gets back a :class:`BucketChange`: what the APPEND commit and the COMPACT commit after it are to publish.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bitlake.metadata.index_manifest import IndexFileEntry
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.schema import TableSchema
from bitlake.snapshot.index_files import IndexChange


@dataclass(frozen=True, slots=True)
class LsmContext:
    """What every bucket of one write or compaction needs; made on the driver, sent to the executors.

    ``schemas`` holds the schema of every live file by id, the table's own among them.
    """

    table: str
    paths: TablePaths
    schema: TableSchema
    schemas: Mapping[int, TableSchema]


@dataclass(frozen=True, slots=True)
class BucketState:
    """What is live in one bucket of a snapshot.

    ``partition`` is a BinaryRow with arity, as in manifests.  ``total_buckets`` goes into new files' entries: -1 for
    dynamic buckets.  ``vectors`` and ``hashes`` are the bucket's index files, if it has any.
    """

    partition: bytes
    bucket: int
    total_buckets: int
    files: tuple[ManifestEntry, ...] = ()
    vectors: IndexFileEntry | None = None
    hashes: IndexFileEntry | None = None
    reserved: int = 0
    """How many sequence numbers are left to others, which write to the bucket at the same time."""

    @property
    def next_sequence(self) -> int:
        """The sequence number of the next row to be written."""
        return max((e.file.max_sequence_number for e in self.files), default=-1) + 1 + self.reserved


@dataclass(frozen=True, slots=True)
class Compaction:
    """What one compaction of a bucket replaces: entries taken out and put in, its changelog, its index files.

    An upgraded file is in both ``before`` (old level) and ``after`` (new level) under the same name; ``made`` are the
    files written anew, to be deleted if nothing is committed.
    """

    before: tuple[ManifestEntry, ...] = ()
    after: tuple[ManifestEntry, ...] = ()
    changelog: tuple[ManifestEntry, ...] = ()
    index: tuple[IndexChange, ...] = ()

    @property
    def made(self) -> tuple[ManifestEntry, ...]:
        """The files that this compaction wrote."""
        old = {e.file.file_name for e in self.before}
        return (*(e for e in self.after if e.file.file_name not in old), *self.changelog)

    def __bool__(self) -> bool:
        return bool(self.before or self.after or self.changelog or self.index)


@dataclass(frozen=True, slots=True)
class BucketChange:
    """What a write did to one bucket: new level-0 files, input changelog and HASH index, and the compaction after."""

    partition: bytes
    bucket: int
    new_files: tuple[ManifestEntry, ...] = ()
    changelog: tuple[ManifestEntry, ...] = ()
    index: tuple[IndexChange, ...] = ()
    compaction: Compaction = field(default_factory=Compaction)
    rows: int = 0
    problems: tuple[str, ...] = ()
