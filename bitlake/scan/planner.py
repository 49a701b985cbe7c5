"""The scan planner: from a snapshot's live files to the rows of files to read.

First the files of a primary-key table are split by how they are read (:func:`split_files`; index-format spec, sections
9.5 and 10):

* with deletion vectors, and with first-row: level 0 is not read before it is compacted; upper levels are read directly;
* else, and with ``deletion-vectors.merge-on-read``: the files of a bucket fall into sections by key range.  A file that
  is alone in its section and holds no deletes is read directly; the others are merged section by section.

Files that are read directly may be pruned by any column, those that are merged only by conditions on key columns:
another version of a row may satisfy what this one does not.

Then steps, each a function from files to a :class:`bitlake.scan.plan.PlanStep`, cheapest first, each given what the one
before kept:

1. partition values, bucket numbers, statistics (:mod:`bitlake.scan.metadata_pruning`): what manifests hold;
2. file indexes (:mod:`bitlake.scan.index_pruning`): embedded, or ``.index`` files opened in parallel;
3. deletion vectors (:mod:`bitlake.scan.deletion_vectors`);
4. page bounds (:mod:`bitlake.scan.page_pruning`), of few large files;
5. the first N in order (:mod:`bitlake.scan.top_n`), or a limit.

Files that are merged by key go through steps 1 to 4 with the conditions on key columns alone.  The plan's metrics are
computed from the steps' results.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyroaring import BitMap

from bitlake.codec.binary_row import EMPTY_ROW
from bitlake.expressions.tree import Predicate, all_of, terms_on
from bitlake.fileindex.selection import Selection
from bitlake.io import Store
from bitlake.merge.interval_partition import KeyRanges, interval_partition
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import EMPTY_STATS, DataFileMeta, EntryKind, ManifestEntry
from bitlake.metadata.paths import POSTPONE_BUCKET, TablePaths
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import Snapshot
from bitlake.scan.deletion_vectors import DeletionVectors
from bitlake.scan.index_pruning import prune_by_index
from bitlake.scan.metadata_pruning import MetadataPruning
from bitlake.scan.page_pruning import prune_by_pages
from bitlake.scan.plan import MergedFiles, Plan, PlannedFile, PlanStep, ScanMetrics, SkippedFile, SkipReason, StepName
from bitlake.scan.reader import ROW_INDEX
from bitlake.scan.sort_order import Order
from bitlake.scan.top_n import FileRanges, TopNRequest, plan_top_n
from bitlake.schema.merge_spec import FIRST_ROW
from bitlake.snapshot.manifests import columns_of_files
from bitlake.snapshot.partitions import PartitionReader

# --- direct, merged and hidden files ----------------------------------------------------------------------------------

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


# --- planning ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """A request for rows of a table; the predicate is bound to ``schema``."""

    table: str
    paths: TablePaths
    schema: TableSchema
    snapshot_id: int | None
    columns: tuple[str, ...]
    predicate: Predicate | None
    limit: int | None
    use_index: bool
    order: tuple[Order, ...]
    exact: bool
    """Whether matching rows must be known exactly where possible, as for counting: then no index is too unselective."""


def plan_table(
    request: ScanRequest,
    entries: Sequence[ManifestEntry],
    schemas: Mapping[int, TableSchema],
    store: Store,
    snapshot: Snapshot | None,
) -> Plan:
    """Decide for every live file of a snapshot whether it is read, and which of its rows.

    ``schemas`` are the schemas that the files were written with, by id.
    """
    index_manifest = None if snapshot is None else snapshot.index_manifest
    vectors = DeletionVectors(store, request.paths, request.schema, index_manifest)
    pruning = _Pruning(request, schemas, store, vectors)
    split = split_files(request.schema, entries)
    exact = request.exact or request.limit is not None
    steps = pruning.steps(split.direct, request.predicate, exact)
    merged, merge_steps = _plan_merged(pruning, split)
    files = [*steps[-1].kept, *merged]
    if request.limit is not None:
        steps.append(_first_n(request, files, schemas, store) if request.order else _limited(request, files))
        files = list(steps[-1].kept)
    steps += merge_steps
    metrics = ScanMetrics.of_steps(steps)
    columns = columns_of_files(entries)
    metrics.files, metrics.rows, metrics.data_bytes = len(entries), int(columns.rows.sum()), columns.total_bytes
    metrics.files_read, metrics.rows_chosen = len(files), sum(f.chosen_rows for f in files)
    return Plan(
        table=request.table,
        root=request.paths.root,
        schema=request.schema,
        schemas=schemas,
        snapshot_id=request.snapshot_id,
        columns=request.columns,
        predicate=request.predicate,
        limit=request.limit,
        files=tuple(files),
        metrics=metrics,
        order=request.order,
        steps=tuple(steps),
    )


@dataclass(frozen=True, slots=True)
class _Pruning:
    """The steps that judge each file by itself."""

    request: ScanRequest
    schemas: Mapping[int, TableSchema]
    store: Store
    vectors: DeletionVectors

    def steps(self, entries: Sequence[ManifestEntry], predicate: Predicate | None, exact: bool) -> list[PlanStep]:
        """Run the steps one after the other; the last one's ``kept`` is what is left."""
        schema, schemas = self.request.schema, self.schemas
        started = time.perf_counter()
        pruning = MetadataPruning(columns_of_files(entries), schema, schemas, self.request.paths, predicate)
        step = replace(pruning.step(), ms=(time.perf_counter() - started) * 1000)
        steps = [step]
        asks_indexes = predicate is not None and self.request.use_index
        if asks_indexes:
            options = opt.Options(schema.options)
            step = prune_by_index(step.kept, pruning.mapped, schemas, options, self.store, exact=exact)
            steps.append(step)
        step = self.vectors.prune(step.kept)
        steps.append(step)
        if predicate is not None and asks_indexes:
            steps.append(prune_by_pages(predicate, step.kept, schema, schemas, self.store))
        return steps


def _plan_merged(pruning: _Pruning, split: SplitFiles) -> tuple[list[PlannedFile], list[PlanStep]]:
    """The sections to merge, each as one planned file, and the steps that pruned their files by the key."""
    request = pruning.request
    steps: list[PlanStep] = []
    merged: list[PlannedFile] = []
    if split.merged:
        predicate = key_predicate(request.schema, request.predicate)
        steps = pruning.steps(_entries(split.merged), predicate, request.exact)
        kept = steps[-1].kept
        merged = merged_files(split.merged, kept, predicate)
        if ROW_INDEX in request.columns and predicate is not None:
            # A merged row's position counts all rows before it: a section that can hold a matching row is read whole.
            possible = {id(f.entry) for f in kept}
            sections = [s for s in split.merged if any(id(e) in possible for e in s)]
            entries = _entries(sections)
            merged = merged_files(sections, pruning.steps(entries, None, request.exact)[-1].kept, None)
            read = {id(e) for e in entries}
            steps = [replace(s, skipped=[f for f in s.skipped if id(f.entry) not in read]) for s in steps]
    if split.hidden:
        partitions = PartitionReader(request.schema, request.paths)
        steps.append(PlanStep(StepName.MERGED, merged, split.skipped(partitions)))
    return merged, steps


def _entries(sections: Sequence[Sequence[ManifestEntry]]) -> list[ManifestEntry]:
    return [e for section in sections for e in section]


def _first_n(
    request: ScanRequest, files: Sequence[PlannedFile], schemas: Mapping[int, TableSchema], store: Store
) -> PlanStep:
    """Keep the files that can hold one of the first N rows in the request's order."""
    assert request.limit is not None
    top_n = TopNRequest(request.order, request.limit, request.predicate is not None, request.use_index)
    ranges = FileRanges(request.order[0], request.schema, schemas, request.paths)
    return plan_top_n(top_n, files, ranges, schemas, store)


def _limited(request: ScanRequest, files: Sequence[PlannedFile]) -> PlanStep:
    """Drop files, and rows of the last one, beyond the point where rows known to match reach the limit."""
    assert request.limit is not None
    kept: list[PlannedFile] = []
    skipped: list[SkippedFile] = []
    matching = 0  # rows of the files so far that are known to match
    for file in files:
        if matching >= request.limit:
            detail = f"the {len(kept)} files before it hold {matching} matching rows, and the limit is {request.limit}"
            skipped.append(SkippedFile(file.entry, file.path, SkipReason.LIMIT, detail))
            continue
        if file.sure(request.predicate):
            missing = request.limit - matching
            if file.chosen_rows > missing:
                rows = BitMap(range(missing)) if file.selection.rows is None else file.selection.rows[:missing]
                file = replace(file, selection=Selection.of(rows, True))
            matching += file.chosen_rows
        kept.append(file)
    return PlanStep(StepName.LIMIT, kept, skipped)
