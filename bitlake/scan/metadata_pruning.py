"""Prune files by metadata in manifests: partition values, bucket numbers and statistics; all files at once.

Three steps, cheapest first, each a function from the files left (a mask over the snapshot's files) to those it skips.
A column's bounds of 100,000 files are arrays, decoded once per snapshot (:mod:`bitlake.snapshot.manifests`), so a
step costs a few operations on arrays.  Skipped files are described, as text, only when they are looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from bitlake.codec.bucket import bucket_of
from bitlake.errors import CorruptError
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
from bitlake.expressions.tree import And, Leaf, Predicate, columns_of, conjuncts, named_values, terms_on
from bitlake.fileindex.selection import Selection
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.stats import column_stats
from bitlake.scan.plan import PlannedFile, PlanStep, SkippedFile, SkippedFiles, SkipReason, StepName
from bitlake.schema.evolution import MappedPredicate, map_fields, map_predicate, same_columns
from bitlake.snapshot.manifests import FileColumns, FileGroup
from bitlake.snapshot.partitions import PartitionReader
from bitlake.types import DataField

_KEPT = 0
_REASONS = (None, SkipReason.PARTITION, SkipReason.BUCKET, SkipReason.STATS)


class MetadataPruning:
    """Which of a snapshot's files can hold rows for which a predicate, bound to ``schema``, is TRUE."""

    def __init__(
        self,
        files: FileColumns,
        schema: TableSchema,
        schemas: Mapping[int, TableSchema],
        paths: TablePaths,
        predicate: Predicate | None,
    ) -> None:
        """``schemas`` are the schemas that the files were written with, by id."""
        self._files = files
        self._schema = schema
        self._schemas = schemas
        self.partitions = PartitionReader(schema, paths)
        self.mapped: dict[int, MappedPredicate] = {}
        """The predicate in the names of each schema that files were written with."""
        self.whole: Bools = np.zeros(len(files), bool)
        """The files of which every row satisfies the predicate."""
        self._reasons = np.zeros(len(files), np.int8)
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
        for code, step in enumerate((self._by_partition, self._by_bucket, self._by_statistics), 1):
            skipped = step(left)
            self._reasons[skipped] = code
            left = left & ~skipped

    # --- the result --------------------------------------------------------------------------------------------------

    @property
    def kept(self) -> Int64s:
        """The numbers of the files that are kept, ascending."""
        return np.flatnonzero(self._reasons == _KEPT)

    @property
    def skipped(self) -> Int64s:
        """The numbers of the files that are skipped, ascending."""
        return np.flatnonzero(self._reasons != _KEPT)

    def step(self) -> PlanStep:
        """The result as a planning step: files kept with all their rows, and those skipped."""
        entries, partitions = self._files.entries, self.partitions
        kept = self.kept
        files = []
        for number, whole in zip(kept.tolist(), self.whole[kept].tolist(), strict=True):
            entry = entries[number]
            path, partition = partitions.data_path(entry), partitions.values(entry.partition)
            files.append(PlannedFile(entry, path, partition, Selection.all(exact=whole)))
        numbers = self.skipped
        skipped = SkippedFiles(len(numbers), lambda i: self.describe(int(numbers[i])), self.counts, self._sizes)
        return PlanStep(StepName.METADATA, files, skipped)

    def counts(self) -> dict[SkipReason, int]:
        """The number of skipped files by reason."""
        counted = np.bincount(self._reasons, minlength=len(_REASONS)).tolist()
        return {reason: n for reason, n in zip(_REASONS, counted, strict=True) if reason is not None and n}

    def _sizes(self) -> dict[SkipReason, int]:
        sizes: Counter[SkipReason] = Counter()
        for number in self.skipped.tolist():
            sizes[self._reason(number)] += self._files.entries[number].file.file_size
        return sizes

    def describe(self, number: int) -> SkippedFile:
        """Why one of :attr:`skipped` is skipped."""
        entry, reason = self._files.entries[number], self._reason(number)
        return SkippedFile(entry, self.partitions.data_path(entry), reason, self._detail(entry, reason))

    def _reason(self, number: int) -> SkipReason:
        reason = _REASONS[self._reasons[number]]
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

    def _by_partition(self, left: Bools) -> Bools:
        if not self._on_partition.children:
            return np.zeros(len(left), bool)
        rows, codes = self._files.partitions
        verdicts = [test_stats(self._on_partition, self.partitions.stats(r), 1) is Verdict.NONE for r in rows]
        return np.array(verdicts, bool)[codes]

    def _by_bucket(self, left: Bools) -> Bools:
        skipped = np.zeros(len(left), bool)
        if not self._buckets.names_key:
            return skipped
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
        bounds = group.bounds(self._files.entries, fields, columns, of)
        every = len(of) == len(self._files)
        rows = self._files.rows if every else self._files.rows[of]

        def leaf(leaf: Leaf) -> Verdicts:
            if leaf.column not in keys:
                return judge_leaf(leaf, bounds[leaf.column], rows)
            # All rows of a file have the partition's value, so a file is judged as its partition is.
            distinct, codes = self._files.partitions
            verdicts = [test_stats(leaf, self.partitions.stats(r), 1).value for r in distinct]
            return np.array(verdicts, np.int8)[codes if every else codes[of]]

        return judge(predicate, rows, leaf)

    def _judge_each(self, predicate: Predicate, of: Int64s) -> Verdicts:
        entries = [self._files.entries[i] for i in of.tolist()]
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
    """Which buckets can hold rows whose bucket key equals the predicate's literals.

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
            grid = np.meshgrid(*[np.arange(len(v)) for v in self._values], indexing="ij")
            arrays = [
                physical_array(f, values).take(pa.array(g.ravel()))
                for f, values, g in zip(self._fields, self._values, grid, strict=True)
            ]
            numbers = bucket_of([f.type for f in self._fields], arrays, total, self._function)
            possible = self._possible[total] = frozenset(numbers.tolist())
        return possible
