"""Values that pass between writers of primary-key tables and the commit; all are picklable.

The unit is the *bucket*.  A writer receives the :class:`BucketState` (the live files) of each bucket that it writes to
and returns a :class:`BucketChange`: the files that the APPEND commit, and the COMPACT commit after it, publish.
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
class MergeTreeContext:
    """What all buckets of one write or compaction share; created on the driver, sent to the executors.

    ``schemas`` holds the schemas of all live files by id, and the table's own.
    """

    table: str
    paths: TablePaths
    schema: TableSchema
    schemas: Mapping[int, TableSchema]


@dataclass(frozen=True, slots=True)
class BucketState:
    """The live files of one bucket of a snapshot.

    ``partition`` is a BinaryRow with arity, as in manifests.  ``total_buckets`` goes into the entries of new files: -1
    for dynamic buckets.  ``vectors`` and ``hashes`` are the bucket's index files, if it has any.
    """

    partition: bytes
    bucket: int
    total_buckets: int
    files: tuple[ManifestEntry, ...] = ()
    vectors: IndexFileEntry | None = None
    hashes: IndexFileEntry | None = None
    reserved: int = 0
    """Sequence numbers left to other tasks that write to the bucket at the same time."""

    @property
    def next_sequence(self) -> int:
        """The sequence number of the next row."""
        return max((e.file.max_sequence_number for e in self.files), default=-1) + 1 + self.reserved


@dataclass(frozen=True, slots=True)
class Compaction:
    """The result of compacting a bucket: entries removed and added, changelog files, changes of index files.

    An upgraded file is in both ``before`` (old level) and ``after`` (new level) under the same name; ``new_files`` are
    the files written, to be deleted if nothing is committed.
    """

    before: tuple[ManifestEntry, ...] = ()
    after: tuple[ManifestEntry, ...] = ()
    changelog: tuple[ManifestEntry, ...] = ()
    index: tuple[IndexChange, ...] = ()

    @property
    def new_files(self) -> tuple[ManifestEntry, ...]:
        """The files that this compaction wrote."""
        old = {e.file.file_name for e in self.before}
        return (*(e for e in self.after if e.file.file_name not in old), *self.changelog)

    def __bool__(self) -> bool:
        return bool(self.before or self.after or self.changelog or self.index)


@dataclass(frozen=True, slots=True)
class BucketChange:
    """The result of writing to one bucket: new level-0 files, input changelog, HASH index, and the compaction after."""

    partition: bytes
    bucket: int
    new_files: tuple[ManifestEntry, ...] = ()
    changelog: tuple[ManifestEntry, ...] = ()
    index: tuple[IndexChange, ...] = ()
    compaction: Compaction = field(default_factory=Compaction)
    rows: int = 0
    problems: tuple[str, ...] = ()
