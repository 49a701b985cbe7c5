"""Planning any table: which of its files a reader sees as they are, which are merged by key, and which not at all.

Append tables: every file as it is, without the rows of its deletion vector.  Primary-key tables (index-format spec,
sections 9.5 and 10):

* with deletion vectors, and with first-row: level 0 is not seen before it is compacted, upper levels are as they are;
* else, and with ``deletion-vectors.merge-on-read``: the files of a bucket fall into sections by key range; a file that
  is alone in its section and holds no deletes is as it is, the others are merged section by section.

Files as they are are pruned by any column.  Those that are merged only by conditions on key columns: another version
of a row may satisfy what this one does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bitlake.codec.binary_row import EMPTY_ROW
from bitlake.expressions.tree import Predicate, all_of, terms_on
from bitlake.fileindex.selection import Selection
from bitlake.io import Store
from bitlake.merge.interval_partition import KeyRanges, interval_partition
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import EMPTY_STATS, DataFileMeta, EntryKind, ManifestEntry
from bitlake.metadata.paths import POSTPONE_BUCKET
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import Snapshot
from bitlake.scan.deletion_vectors import Vectors
from bitlake.scan.plan import MergedFiles, Plan, PlannedFile, SkippedFile, SkipReason
from bitlake.scan.planner import ScanRequest, plan_files
from bitlake.scan.reader import ROW_INDEX
from bitlake.schema.merge_spec import FIRST_ROW
from bitlake.snapshot.partitions import PartitionReader


def plan_table(
    request: ScanRequest,
    entries: Sequence[ManifestEntry],
    schemas: Mapping[int, TableSchema],
    store: Store,
    snapshot: Snapshot | None,
) -> Plan:
    """Plan a scan of the live files of a snapshot, whatever kind of table it is."""
    index_manifest = None if snapshot is None else snapshot.index_manifest
    request = replace(request, vectors=Vectors(store, request.paths, request.schema, index_manifest))
    if not request.schema.primary_keys:
        return plan_files(request, entries, schemas, store)
    arranged = arrange(request.schema, entries)
    if not arranged.sections and not arranged.hidden:
        return plan_files(request, entries, schemas, store)
    below = None
    if arranged.sections:
        every = [e for section in arranged.sections for e in section]
        on_key = key_condition(request.schema, request.predicate)
        wanted = replace(request, predicate=on_key, limit=None, order=())
        below = plan_files(wanted, every, schemas, store)
        merged = _merged(arranged.sections, below.files, on_key)
        if ROW_INDEX in request.columns and on_key is not None:
            # A merged row's position counts all rows before it: what can hold a wanted row is read whole.
            left = {id(f.entry) for m in merged if m.merge is not None for f in m.merge.files}
            whole = [part for part in arranged.sections if any(id(e) in left for e in part)]
            every = [e for part in whole for e in part]
            merged = _merged(whole, plan_files(replace(wanted, predicate=None), every, schemas, store).files, None)
        request = replace(request, merged=merged)
    plan = plan_files(request, arranged.plain, schemas, store)
    return _together(request, plan, below, arranged.hidden)


# --- which files are what ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arrangement:
    """A primary-key table's files: read as they are, merged together, and not seen (with the reason)."""

    plain: Sequence[ManifestEntry]
    sections: Sequence[Sequence[ManifestEntry]]
    hidden: Sequence[tuple[ManifestEntry, SkipReason]]


def arrange(schema: TableSchema, entries: Sequence[ManifestEntry]) -> Arrangement:
    """Sort the live files of a primary-key table by how they are read."""
    options = opt.Options(schema.options)
    vectors = options.of(opt.DV_ENABLED)
    upper_only = options.of(opt.MERGE_ENGINE) == FIRST_ROW or (vectors and not options.of(opt.DV_MERGE_ON_READ))
    hidden: list[tuple[ManifestEntry, SkipReason]] = []
    plain: list[ManifestEntry] = []
    parts: list[Sequence[ManifestEntry]] = []
    buckets: dict[tuple[bytes, int], list[ManifestEntry]] = {}
    for entry in entries:
        if entry.bucket == POSTPONE_BUCKET:
            hidden.append((entry, SkipReason.POSTPONED))
        elif not upper_only:
            buckets.setdefault((entry.partition, entry.bucket), []).append(entry)
        elif entry.file.level == 0:
            hidden.append((entry, SkipReason.LEVEL_0))
        elif _may_delete(entry):
            parts.append((entry,))
        else:
            plain.append(entry)
    ranges = KeyRanges(schema)
    for files in buckets.values():
        for section in interval_partition(files, ranges):
            if len(section) == 1 and not _may_delete(section[0]):
                plain += section
            else:
                parts.append(section)
    return Arrangement(plain, parts, hidden)


def _may_delete(entry: ManifestEntry) -> bool:
    return entry.file.delete_row_count != 0


def key_condition(schema: TableSchema, predicate: Predicate | None) -> Predicate | None:
    """What a predicate says of primary key columns alone: all versions of a row agree on it."""
    terms = terms_on(predicate, schema.primary_keys)
    return all_of(terms) if terms else None


# --- one plan of all --------------------------------------------------------------------------------------------------


def _merged(
    parts: Sequence[Sequence[ManifestEntry]], files: Sequence[PlannedFile], on_key: Predicate | None
) -> tuple[PlannedFile, ...]:
    left = {id(f.entry): f for f in files}
    out = []
    for part in parts:
        members = tuple(left[id(e)] for e in part if id(e) in left)
        if members:
            out.append(_stand_in(members, on_key))
    return tuple(out)


def _stand_in(files: tuple[PlannedFile, ...], on_key: Predicate | None) -> PlannedFile:
    """What a plan lists for files that are merged: nothing is known of the result but where it belongs."""
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
    merge = MergedFiles(files, on_key)
    return PlannedFile(entry, files[0].path, files[0].partition, Selection.all(), merge=merge)


def _together(
    request: ScanRequest, plan: Plan, below: Plan | None, hidden: Sequence[tuple[ManifestEntry, SkipReason]]
) -> Plan:
    """The plan, telling also of the files that are merged or hidden."""
    partitions = PartitionReader(request.schema, request.paths)
    more: list[SkippedFile] = [] if below is None else list(below.skipped)
    for entry, reason in hidden:
        detail = (
            "not compacted yet, which it must be before readers of this table see it"
            if reason is SkipReason.LEVEL_0
            else "not assigned to buckets yet"
        )
        file = entry.file
        more.append(SkippedFile(partitions.data_path(entry), reason, detail, file.row_count, file.file_size))
    m = plan.metrics
    if below is not None:
        m.index_bytes_read += below.metrics.index_bytes_read
        m.index_files_opened += below.metrics.index_files_opened
        m.unreadable_indexes += below.metrics.unreadable_indexes
        m.plan_ms += below.metrics.plan_ms
    m.files += sum(len(f.merge.files) for f in request.merged if f.merge is not None) + len(more)
    m.rows += sum(f.row_count for f in request.merged) + sum(s.row_count for s in more)
    m.data_bytes += sum(f.entry.file.file_size for f in request.merged) + sum(s.size for s in more)
    for s in more:
        m.files_skipped[s.reason.value] = m.files_skipped.get(s.reason.value, 0) + 1
    problems = (*plan.problems, *(below.problems if below is not None else ()))
    return replace(plan, skipped=(*plan.skipped, *more), problems=problems)
