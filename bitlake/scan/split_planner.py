"""Split the live files of a primary-key table by how they are read: directly, merged by key, or not yet.

Index-format spec, sections 9.5 and 10:

* with deletion vectors, and with first-row: level 0 is not read before it is compacted; upper levels are read directly;
* else, and with ``deletion-vectors.merge-on-read``: the files of a bucket fall into sections by key range.  A file that
  is alone in its section and holds no deletes is read directly; the others are merged section by section.

Files that are read directly may be pruned by any column, those that are merged only by conditions on key columns:
another version of a row may satisfy what this one does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bitlake.codec.binary_row import EMPTY_ROW
from bitlake.expressions.tree import Predicate, all_of, terms_on
from bitlake.fileindex.selection import Selection
from bitlake.merge.interval_partition import KeyRanges, interval_partition
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import EMPTY_STATS, DataFileMeta, EntryKind, ManifestEntry
from bitlake.metadata.paths import POSTPONE_BUCKET
from bitlake.metadata.schema import TableSchema
from bitlake.scan.plan import MergedFiles, PlannedFile, SkippedFile, SkipReason
from bitlake.schema.merge_spec import FIRST_ROW
from bitlake.snapshot.partitions import PartitionReader

Section = Sequence[ManifestEntry]
"""Files of a bucket whose key ranges overlap, directly or through others."""

_HIDDEN = {
    SkipReason.LEVEL_0: "not compacted yet, which it must be before readers of this table see it",
    SkipReason.POSTPONED: "not assigned to buckets yet",
}


@dataclass(frozen=True, slots=True)
class SplitFiles:
    """A table's files by how they are read: ``direct``, ``merged`` by section, and ``hidden`` with the reason."""

    direct: Sequence[ManifestEntry]
    merged: Sequence[Section] = ()
    hidden: Sequence[tuple[ManifestEntry, SkipReason]] = ()

    def skipped(self, partitions: PartitionReader) -> list[SkippedFile]:
        """The hidden files, as a plan lists them."""
        return [SkippedFile(e, partitions.data_path(e), reason, _HIDDEN[reason]) for e, reason in self.hidden]


def split_files(schema: TableSchema, entries: Sequence[ManifestEntry]) -> SplitFiles:
    """Split live files by how they are read; all files of a table without primary keys are read directly."""
    if not schema.primary_keys:
        return SplitFiles(entries)
    options = opt.Options(schema.options)
    vectors = options.of(opt.DV_ENABLED)
    upper_only = options.of(opt.MERGE_ENGINE) == FIRST_ROW or (vectors and not options.of(opt.DV_MERGE_ON_READ))
    hidden: list[tuple[ManifestEntry, SkipReason]] = []
    direct: list[ManifestEntry] = []
    merged: list[Section] = []
    buckets: dict[tuple[bytes, int], list[ManifestEntry]] = {}
    for entry in entries:
        if entry.bucket == POSTPONE_BUCKET:
            hidden.append((entry, SkipReason.POSTPONED))
        elif not upper_only:
            buckets.setdefault((entry.partition, entry.bucket), []).append(entry)
        elif entry.file.level == 0:
            hidden.append((entry, SkipReason.LEVEL_0))
        elif _may_delete(entry):
            merged.append((entry,))
        else:
            direct.append(entry)
    ranges = KeyRanges(schema)
    for files in buckets.values():
        for section in interval_partition(files, ranges):
            if len(section) == 1 and not _may_delete(section[0]):
                direct += section
            else:
                merged.append(section)
    return SplitFiles(direct, merged, hidden)


def _may_delete(entry: ManifestEntry) -> bool:
    return entry.file.delete_row_count != 0


def key_predicate(schema: TableSchema, predicate: Predicate | None) -> Predicate | None:
    """The part of a predicate that is about primary key columns alone: all versions of a row agree on it."""
    terms = terms_on(predicate, schema.primary_keys)
    return all_of(terms) if terms else None


def merged_files(
    parts: Sequence[Section], files: Sequence[PlannedFile], predicate: Predicate | None
) -> list[PlannedFile]:
    """One planned file for each section that has any of ``files``; ``predicate`` is about key columns alone."""
    by_entry = {id(f.entry): f for f in files}
    out = []
    for section in parts:
        members = tuple(by_entry[id(e)] for e in section if id(e) in by_entry)
        if members:
            out.append(_merged_file(members, predicate))
    return out


def _merged_file(files: tuple[PlannedFile, ...], predicate: Predicate | None) -> PlannedFile:
    """The planned file that stands for files to merge, with their partition, bucket and total size."""
    first = files[0].entry
    meta = DataFileMeta(
        file_name=first.file.file_name,
        file_size=sum(f.entry.file.file_size for f in files),
        row_count=sum(f.row_count for f in files),
        min_key=EMPTY_ROW,
        max_key=EMPTY_ROW,
        key_stats=EMPTY_STATS,
        value_stats=EMPTY_STATS,
        min_sequence_number=min(f.entry.file.min_sequence_number for f in files),
        max_sequence_number=max(f.entry.file.max_sequence_number for f in files),
        schema_id=first.file.schema_id,
        level=first.file.level,
        value_stats_cols=(),
    )
    entry = ManifestEntry(EntryKind.ADD, first.partition, first.bucket, first.total_buckets, meta)
    merge = MergedFiles(files, predicate)
    return PlannedFile(entry, files[0].path, files[0].partition, Selection.all(), merge=merge)
