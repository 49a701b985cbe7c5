"""The scan planner: from a snapshot's live files to the rows of files to read.

First the files of a primary-key table are split by how they are read (:func:`split_files`; index-format spec, sections
9.5 and 10):

* with deletion vectors, and with first-row: level 0 is not read before it is compacted; upper levels are read directly;
* else, with ``deletion-vectors.merge-on-read``, and for statements that must know the newest rows: the files of a
  bucket fall into sections by key range.  A file that is alone in its section and holds no deletes is read directly;
  the others are merged section by section.

Files that are read directly may be pruned by any column, those that are merged only by conditions on key columns:
another version of a row may satisfy what this one does not.

Then steps, each a function from files to a :class:`bitlake.scan.plan.PlanStep`, cheapest first, each given what the one
before kept:

1. partition values, bucket numbers, statistics (:class:`MetadataPruning`): what manifests hold;
2. file indexes (:mod:`bitlake.scan.index_pruning`): embedded, or ``.index`` files opened in parallel;
3. deletion vectors (:mod:`bitlake.scan.deletion_vectors`);
4. page bounds (:mod:`bitlake.scan.page_pruning`), of few large files;
5. the first N in order (:mod:`bitlake.scan.top_n`), or a limit.

Files that are merged by key go through steps 1 to 4 with the conditions on key columns alone.  The plan's metrics are
computed from the steps' results.

What manifests hold is judged for all files at once, cheapest first, by functions from the files left (a mask over the
snapshot's files) to those they skip.  A column's bounds of 100,000 files are arrays, decoded once per snapshot
(:mod:`bitlake.snapshot.manifests`), so this costs a few operations on arrays.  Skipped files are described, as text,
only when they are looked at.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from bitlake.codec.binary_row import EMPTY_ROW
from bitlake.codec.bucket import bucket_of
from bitlake.errors import CorruptError, UnsupportedFeature
from bitlake.expressions.evaluate import physical_array
from bitlake.expressions.sql_text import to_sql, value_to_sql
from bitlake.expressions.statistics import (
    Bools,
    ColumnStats,
    Int64s,
    NotVectorised,
    Verdict,
    Verdicts,
    judge,
    judge_leaf,
    test_stats,
)
from bitlake.expressions.tree import (
    And,
    IndexedExpression,
    Leaf,
    Predicate,
    all_of,
    columns_of,
    conjuncts,
    named_values,
    terms_on,
)
from bitlake.fileindex.selection import Selection
from bitlake.io import Store
from bitlake.lazy_modules import compute as pc
from bitlake.merge.interval_partition import KeyRanges, interval_partition
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import EMPTY_STATS, DataFileMeta, EntryKind, ManifestEntry
from bitlake.metadata.paths import POSTPONE_BUCKET, TablePaths
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import Snapshot
from bitlake.metadata.stats import column_stats
from bitlake.scan.deletion_vectors import DeletionVectors
from bitlake.scan.index_pruning import prune_by_index
from bitlake.scan.page_pruning import prune_by_pages
from bitlake.scan.plan import (
    MergedFiles,
    Plan,
    PlannedFile,
    PlannedFiles,
    PlanStep,
    ScanMetrics,
    SkippedFile,
    SkippedFiles,
    SkipReason,
    StepName,
    chosen_rows,
)
from bitlake.scan.reader import ROW_INDEX
from bitlake.scan.sort_order import Order
from bitlake.scan.top_n import FileRanges, TopNRequest, plan_top_n
from bitlake.schema.evolution import MappedPredicate, map_fields, map_predicate, same_columns
from bitlake.schema.merge_spec import FIRST_ROW
from bitlake.snapshot.file_columns import ColumnarFiles, FileColumns, FileGroup, columns_of_files
from bitlake.snapshot.partitions import PartitionReader
from bitlake.types import DataField

if TYPE_CHECKING:
    import numpy.typing as npt

# --- what manifests hold ----------------------------------------------------------------------------------------------

MANY_PLANNED = 10_000
"""From this many files on that a plan keeps of a table held by column, they are made when they are looked at."""
_KEPT = 0
REASONS: tuple[SkipReason | None, ...] = (None, SkipReason.PARTITION, SkipReason.BUCKET, SkipReason.STATS)


class MetadataPruning:
    """Finds the files of a snapshot that can hold rows for which a predicate, bound to ``schema``, is TRUE."""

    def __init__(
        self,
        files: FileColumns,
        schema: TableSchema,
        schemas: Mapping[int, TableSchema],
        paths: TablePaths,
        predicate: Predicate | None,
        *,
        by_statistics: bool = True,
    ) -> None:
        """``schemas`` are the schemas that the files were written with, by id.

        Without ``by_statistics``, only partitions and buckets are judged.
        """
        self._files = files
        self._schema = schema
        self._schemas = schemas
        self.partitions = PartitionReader(schema, paths)
        self.mapped: dict[int, MappedPredicate] = {}
        """The predicate in the names of each schema that files were written with."""
        self.whole: Bools = np.zeros(len(files), bool)
        """The files of which every row satisfies the predicate."""
        self.codes: npt.NDArray[np.int8] = np.zeros(len(files), np.int8)
        """0 for each file that is kept, else the place in :data:`REASONS` of what proves that it is skipped."""
        self._on_partition = And(())
        if predicate is None:
            return
        self._on_partition = And(terms_on(predicate, schema.partition_keys))
        self._buckets = BucketFilter(schema, conjuncts(predicate))
        for group in files.groups:
            if group.schema_id not in self.mapped:
                mapping = map_fields(schema.fields, schemas[group.schema_id].fields)
                self.mapped[group.schema_id] = map_predicate(predicate, schema.fields, mapping)
        left = np.ones(len(files), bool)
        steps: list[Callable[[Bools], Bools | None]] = [self._by_partition, self._by_bucket]
        if by_statistics:
            steps.append(self._by_statistics)
        for code, step in enumerate(steps, 1):
            skipped = step(left)
            if skipped is not None:
                self.codes[skipped] = code
                left &= ~skipped

    # --- the result --------------------------------------------------------------------------------------------------

    @property
    def kept(self) -> Int64s:
        """The numbers of the files that are kept, ascending."""
        return np.flatnonzero(self.codes == _KEPT)

    @property
    def skipped(self) -> Int64s:
        """The numbers of the files that are skipped, ascending."""
        return np.flatnonzero(self.codes != _KEPT)

    def step(self, started: float) -> PlanStep:
        """The result as a step that began at ``started``: files kept with all their rows, and those skipped."""
        kept, partitions = self.kept, self.partitions

        def planned() -> Iterator[PlannedFile]:
            for entry, whole in zip(self._files.take(kept), self.whole[kept].tolist(), strict=True):
                path, partition = partitions.data_path(entry), partitions.values(entry.partition)
                yield PlannedFile(entry, path, partition, Selection.all(exact=whole))

        files: Sequence[PlannedFile]
        if len(kept) >= MANY_PLANNED and isinstance(self._files.entries, ColumnarFiles):
            files = PlannedFiles(len(kept), int(self._files.rows[kept].sum()), planned, lambda: self._paths(kept))
        else:
            files = list(planned())
        numbers = self.skipped
        skipped = SkippedFiles(len(numbers), lambda i: self.describe(int(numbers[i])), self.counts, self._sizes)
        return PlanStep(StepName.METADATA, files, skipped, ms=(time.perf_counter() - started) * 1000)

    def _paths(self, numbers: Int64s) -> list[str]:
        """The paths of the files at ascending positions.  Only entries with external paths are decoded."""
        files, partitions = self._files, self.partitions
        slots, codes = files.slots
        used, of = np.unique(codes[numbers], return_inverse=True)
        folders = pa.array([partitions.bucket_dir(*slots[code]) for code in used.tolist()], pa.large_string())
        names, separator = files.names(numbers).combine_chunks(), pa.scalar("/", pa.large_string())
        paths = pc.binary_join_element_wise(folders.take(pa.array(of)), names, separator)
        listed: list[str] = paths.to_numpy(zero_copy_only=False).tolist()
        external = np.flatnonzero(files.has_external_path[numbers])
        for place, entry in zip(external.tolist(), files.take(numbers[external]), strict=True):
            listed[place] = partitions.data_path(entry)
        return listed

    def counts(self) -> dict[SkipReason, int]:
        """The number of skipped files by reason."""
        counted = np.bincount(self.codes, minlength=len(REASONS)).tolist()
        return {reason: n for reason, n in zip(REASONS, counted, strict=True) if reason is not None and n}

    def _sizes(self) -> dict[SkipReason, int]:
        sizes: Counter[SkipReason] = Counter()
        numbers = self.skipped
        for number, size in zip(numbers.tolist(), self._files.sizes[numbers].tolist(), strict=True):
            sizes[self._reason(number)] += size
        return sizes

    def describe(self, number: int) -> SkippedFile:
        """Why one of :attr:`skipped` is skipped."""
        entry, reason = self._files.entries[number], self._reason(number)
        return SkippedFile(entry, self.partitions.data_path(entry), reason, self._detail(entry, reason))

    def _reason(self, number: int) -> SkipReason:
        reason = REASONS[int(self.codes[number])]
        assert reason is not None
        return reason

    def _detail(self, entry: ManifestEntry, reason: SkipReason) -> str:
        if reason is SkipReason.PARTITION:
            title = self.partitions.title(entry.partition)
            return f"partition {title} fails {to_sql(self._on_partition, self._schema.fields)}"
        if reason is SkipReason.BUCKET:
            return f"bucket {entry.bucket} holds none of the key's values"
        fields = self._schemas[entry.file.schema_id].fields
        return _stats_detail(
            self.mapped[entry.file.schema_id].predicate, self._stats_of(entry), entry.file.row_count, fields
        )

    # --- the steps ---------------------------------------------------------------------------------------------------

    def _by_partition(self, left: Bools) -> Bools | None:
        if not self._on_partition.children:
            return None
        rows, codes = self._files.partitions
        verdicts = [test_stats(self._on_partition, self.partitions.stats(r), 1) is Verdict.NONE for r in rows]
        return np.array(verdicts, bool)[codes]

    def _by_bucket(self, left: Bools) -> Bools | None:
        if not self._buckets.names_key:
            return None
        skipped = np.zeros(len(left), bool)
        pairs = self._files.buckets
        for group in self._files.groups:
            of = group.places[left[group.places]]
            totals = pairs[of, 1]
            for total in np.unique(totals).tolist():
                possible = self._buckets.possible(total, self._schemas[group.schema_id])
                if possible is not None:
                    same_total = of[totals == total]
                    skipped[same_total[~np.isin(pairs[same_total, 0], list(possible))]] = True
        return skipped

    def _by_statistics(self, left: Bools) -> Bools:
        skipped = np.zeros(len(left), bool)
        for group in self._files.groups:
            of = group.places if left.all() else group.places[left[group.places]]
            if not len(of):
                continue
            mapped = self.mapped[group.schema_id]
            try:
                verdicts = self._judge(group, mapped.predicate, of)
            except (CorruptError, NotVectorised):
                # One by one: either nothing is wrong with the files in question, or the right one is blamed.
                verdicts = self._judge_each(mapped.predicate, of)
            skipped[of[verdicts == Verdict.NONE.value]] = True
            if mapped.exact:
                self.whole[of[verdicts == Verdict.ALL.value]] = True
        return skipped

    def _judge(self, group: FileGroup, predicate: Predicate, of: Int64s) -> Verdicts:
        keys = frozenset(self._schema.partition_keys)
        columns = sorted(columns_of(predicate) - keys)
        fields = self._schemas[group.schema_id].fields
        bounds = group.bounds(self._files, fields, columns, of)
        every = len(of) == len(self._files)
        rows = self._files.rows if every else self._files.rows[of]

        def leaf(leaf: Leaf) -> Verdicts:
            if isinstance(leaf.column, IndexedExpression):
                return judge_leaf(leaf, None, rows)
            if leaf.column not in keys:
                return judge_leaf(leaf, bounds[leaf.column], rows)
            # All rows of a file have the partition's value, so a file is judged as its partition is.
            distinct, codes = self._files.partitions
            verdicts = [test_stats(leaf, self.partitions.stats(r), 1).value for r in distinct]
            return np.array(verdicts, np.int8)[codes if every else codes[of]]

        return judge(predicate, rows, leaf, {c: b for c, b in bounds.items() if c not in keys})

    def _judge_each(self, predicate: Predicate, of: Int64s) -> Verdicts:
        entries = self._files.take(of)
        verdicts = [test_stats(predicate, self._stats_of(e), e.file.row_count).value for e in entries]
        return np.array(verdicts, np.int8)

    def _stats_of(self, entry: ManifestEntry) -> Mapping[str, ColumnStats]:
        stats: Mapping[str, ColumnStats] = column_stats(entry.file, self._schemas[entry.file.schema_id].fields)
        if not self._schema.partition_keys:
            return stats
        of_partition = self.partitions.stats(entry.partition)
        rows = entry.file.row_count
        return {**stats, **{n: replace(s, null_count=rows) if s.null_count else s for n, s in of_partition.items()}}


def _stats_detail(
    predicate: Predicate, stats: Mapping[str, ColumnStats], rows: int, fields: Sequence[DataField]
) -> str:
    """Name the first term that statistics exclude, and the range that excludes it."""
    excluded = (term for term in conjuncts(predicate) if test_stats(term, stats, rows) is Verdict.NONE)
    term = next(excluded, predicate)
    for column in sorted(columns_of(term)):
        of_column = stats.get(column)
        if of_column is not None and (of_column.min is not None or of_column.null_count is not None):
            low, high = (value_to_sql(column, value, fields) for value in (of_column.min, of_column.max))
            nulls = of_column.null_count
            return f"{column} is in [{low}, {high}] with {nulls} NULLs: {to_sql(term, fields)} is never true"
    return f"{to_sql(term, fields)} is never true"


_MAX_COMBINATIONS = 1000
"""The most keys that are hashed to find their buckets."""


class BucketFilter:
    """Finds the buckets that can hold rows whose bucket key equals the predicate's literals.

    ``terms`` are the predicate's conjuncts.
    """

    def __init__(self, schema: TableSchema, terms: Sequence[Predicate]) -> None:
        self._values: list[tuple[Any, ...]] = []
        self._possible: dict[int, frozenset[int]] = {}
        self._fields = [schema.field(k) for k in schema.bucket_keys]
        self._function = opt.Options(schema.options).get(opt.BUCKET_FUNCTION)
        combinations = 1
        for key in schema.bucket_keys:
            values = named_values(terms, key)
            # 0.0 and -0.0 are equal but hash apart, and so do two NaNs.
            if values is None or any(isinstance(v, float) and (v == 0 or v != v) for v in values):
                self._values = []
                return
            combinations *= len(values)
            self._values.append(values)
        if combinations > _MAX_COMBINATIONS:
            self._values = []

    @property
    def names_key(self) -> bool:
        """Whether the predicate names values of the whole bucket key."""
        return bool(self._values)

    def possible(self, total: int, file_schema: TableSchema) -> frozenset[int] | None:
        """The buckets of ``total`` that can hold such rows; None: any.

        ``total`` is each entry's own bucket count, never the table's current option.
        """
        if not self._values or total <= 0:
            return None
        if not same_columns(self._fields, file_schema.fields):
            # The rows were spread by the hash of another type's values.
            return None
        possible = self._possible.get(total)
        if possible is None:
            arrays = [physical_array(f, values) for f, values in zip(self._fields, self._values, strict=True)]
            if len(arrays) > 1:
                grid = np.meshgrid(*[np.arange(len(a)) for a in arrays], indexing="ij")
                arrays = [a.take(pa.array(g.ravel())) for a, g in zip(arrays, grid, strict=True)]
            numbers = bucket_of([f.type for f in self._fields], arrays, total, self._function)
            possible = self._possible[total] = frozenset(numbers.tolist())
        return possible


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


def split_files(schema: TableSchema, entries: Sequence[ManifestEntry], *, level_0: bool = False) -> SplitFiles:
    """Split live files by how they are read; all files of a table without primary keys are read directly.

    ``level_0``: merge level 0 in, whatever the table's options say.
    """
    if not schema.primary_keys:
        return SplitFiles(entries)
    options = opt.Options(schema.options)
    upper_only = options.of(opt.DV_ENABLED) or options.of(opt.MERGE_ENGINE) == FIRST_ROW
    # Above level 0 no row of a key needs merging: only buckets with files in level 0 are merged.
    fresh: set[tuple[bytes, int]] = set()
    merged_in = level_0 or (options.of(opt.DV_MERGE_ON_READ) and options.of(opt.MERGE_ENGINE) != FIRST_ROW)
    if upper_only and merged_in:
        fresh = {(e.partition, e.bucket) for e in entries if e.file.level == 0}
    hidden: list[tuple[ManifestEntry, SkipReason]] = []
    direct: list[ManifestEntry] = []
    merged: list[Section] = []
    buckets: dict[tuple[bytes, int], list[ManifestEntry]] = {}
    for entry in entries:
        if entry.bucket == POSTPONE_BUCKET:
            hidden.append((entry, SkipReason.POSTPONED))
        elif not upper_only or (entry.partition, entry.bucket) in fresh:
            buckets.setdefault((entry.partition, entry.bucket), []).append(entry)
        elif entry.file.level == 0:
            hidden.append((entry, SkipReason.LEVEL_0))
        elif _may_delete(entry):
            merged.append((entry,))
        else:
            direct.append(entry)
    if len(direct) == len(entries):
        return SplitFiles(entries)  # their columns and statistics are cached with them
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
    level_0: bool = False
    """Whether level 0 is merged in where readers skip it until it is compacted."""


def plan_table(
    request: ScanRequest,
    entries: Sequence[ManifestEntry],
    schemas: Mapping[int, TableSchema],
    store: Store,
    snapshot: Snapshot | None,
) -> Plan:
    """Decide for every live file of a snapshot whether it is read, and which of its rows.

    ``schemas`` are the schemas that the files were written with, by id.  Raises :class:`UnsupportedFeature` for a table
    with ``query-auth.enabled``, and for files that lack columns (``data-evolution.enabled``).
    """
    _refuse_unsupported_reads(request, entries)
    index_manifest = None if snapshot is None else snapshot.index_manifest
    vectors = DeletionVectors(store, request.paths, request.schema, index_manifest)
    pruning = _Pruning(request, schemas, store, vectors)
    split = split_files(request.schema, entries, level_0=request.level_0)
    exact = request.exact or request.limit is not None
    steps = pruning.steps(split.direct, request.predicate, exact)
    merged, merge_steps = _plan_merged(pruning, split)
    files: Sequence[PlannedFile] = [*steps[-1].kept, *merged] if merged else steps[-1].kept
    if request.limit is not None:
        steps.append(_first_n(request, files, schemas, store) if request.order else _limited(request, files))
        files = steps[-1].kept
    steps += merge_steps
    metrics = ScanMetrics.of_steps(steps)
    columns = columns_of_files(entries)
    metrics.files, metrics.rows, metrics.data_bytes = len(entries), int(columns.rows.sum()), columns.total_bytes
    metrics.files_read, metrics.rows_chosen = len(files), chosen_rows(files)
    return Plan(
        table=request.table,
        root=request.paths.root,
        schema=request.schema,
        schemas=schemas,
        snapshot_id=request.snapshot_id,
        columns=request.columns,
        predicate=request.predicate,
        limit=request.limit,
        files=files if isinstance(files, PlannedFiles) else tuple(files),
        metrics=metrics,
        order=request.order,
        steps=tuple(steps),
    )


def _refuse_unsupported_reads(request: ScanRequest, entries: Sequence[ManifestEntry]) -> None:
    options = request.schema.opts
    if options.of(opt.QUERY_AUTH):
        raise UnsupportedFeature(
            f"table '{request.table}': with '{opt.QUERY_AUTH.name}' the catalog filters and masks rows, which "
            f"bitlake does not do; {_OTHER_ENGINE}"
        )
    # Only tables with this option have such files, so other plans do not look at each file.
    if options.of(opt.DATA_EVOLUTION) and any(e.file.write_cols is not None for e in entries):
        raise UnsupportedFeature(
            f"table '{request.table}': with '{opt.DATA_EVOLUTION.name}' some files hold only some columns of their "
            f"rows, which bitlake cannot join; {_OTHER_ENGINE}"
        )


_OTHER_ENGINE = "read the table with Paimon's own connectors"


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
        step = pruning.step(started)
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
