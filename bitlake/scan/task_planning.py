"""Planning in tasks: the manifests of a table of very many files are decoded on executors, which skip files.

A task decodes a few manifests to columns (:mod:`bitlake.metadata.manifest_columns`), judges their entries by what they
hold (:class:`bitlake.scan.planner.MetadataPruning`) and returns the columns of those that are left.  The driver lets
DELETE entries of one task cancel ADD entries of another, and plans what remains as any other files.

A task sees some manifests only, so it skips no more than what no other manifest can make the scan read:

* an ADD entry whose file holds no row for which the condition is TRUE;
* a DELETE entry of a partition that the condition excludes.  Its ADD entry, which has the same partition, is skipped
  wherever it is.  All other DELETE entries are returned, because a DELETE entry may lack statistics that its ADD has.

Of tables with primary keys (:func:`bitlake.scan.planner.split_files`) only files that are read directly, whatever other
files there are, are judged by all columns.  These are the files above level 0 that hold no deletes, of tables with
deletion vectors or first-row.  Files that are merged are judged by key columns, since all versions of a row have the
same key: a file without the key changes no row of it.  A section may then be read with fewer files, and its last file
directly.  Where a scan asks for places of rows, which a merge numbers, sections stay whole, and only partitions count.

Errors of statistics are left to the driver: an entry that cannot be judged is returned.

Numbers of skipped files are of live files.  A skipped ADD entry that a DELETE cancels was counted by its task; its
DELETE came back, cancels nothing, and is subtracted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter

import numpy as np

from bitlake.errors import BitlakeError
from bitlake.expressions.statistics import Int64s
from bitlake.expressions.tree import Predicate, all_of, terms_on
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import EntryKind, ManifestFileMeta
from bitlake.metadata.manifest_columns import ManifestColumns
from bitlake.metadata.paths import POSTPONE_BUCKET
from bitlake.metadata.schema import TableSchema
from bitlake.runtime import CacheName, Executors, at_most
from bitlake.scan.plan import SkipReason
from bitlake.scan.planner import REASONS, MetadataPruning
from bitlake.scan.reader import FILE_PATH, ROW_INDEX
from bitlake.schema.merge_spec import FIRST_ROW
from bitlake.snapshot import manifests
from bitlake.snapshot.file_columns import ColumnarFiles, live_columns
from bitlake.snapshot.partitions import FilesToPlan, manifests_of, rows_of
from bitlake.snapshot.state import TableState

MANY_ENTRIES = 5_000_000
"""From this many entries on, tasks decode them, unless the option ``read.spark-planning-entries`` gives another number.

The driver decodes fewer once, and keeps them in a cache of the default size.  The next condition on a million files
takes 0.08 s there, and 3 s in tasks (docs/scale.md)."""
_LEAST_CORES = 4
"""The cores of executors from which on that is done without the option: the driver decodes on one, in less time."""
_GROUP_ENTRIES, _LEAST_GROUP = 100_000, 10_000
"""The most entries of a work item, beyond which one manifest is one, and the fewest, unless there are no more."""
_JOB_BYTES, _ENTRY_BYTES = 512 << 20, 110
"""The most bytes that one job may return, half of Spark's default limit, and what an entry takes beside its record."""
_FILES, _ROWS, _BYTES = range(3)
_PARTITION, _BUCKET, _STATS = (REASONS.index(r) for r in (SkipReason.PARTITION, SkipReason.BUCKET, SkipReason.STATS))

_LEFT: CacheName[tuple[str, int, Conditions], FilesToPlan] = CacheName("files that conditions leave")


@dataclass(frozen=True, slots=True)
class Conditions:
    """By what a table's files are skipped, one by one: None, by nothing.

    ``direct`` files are read as they are, ``merged`` ones with others, ``hidden`` ones not at all.
    ``by_level``: only level 0 of a table with primary keys, and files with deletes, are not read directly.
    Each has the terms on partitions: an ADD entry and its DELETE are skipped by these together, or not at all.
    """

    direct: Predicate | None
    merged: Predicate | None
    hidden: Predicate | None
    by_level: bool

    @staticmethod
    def of(schema: TableSchema, predicate: Predicate, columns: Sequence[str], *, level_0: bool = False) -> Conditions:
        """The conditions of a scan of these columns; ``predicate`` is bound to ``schema``.

        ``level_0``: level 0 is merged in, whatever the table's options say.
        """
        terms = terms_on(predicate, schema.partition_keys)
        partitions = all_of(terms) if terms else None
        if not schema.primary_keys:
            return Conditions(predicate, None, None, False)
        options = opt.Options(schema.options)
        first_row = options.of(opt.MERGE_ENGINE) == FIRST_ROW
        by_level = first_row or (options.of(opt.DV_ENABLED) and not options.of(opt.DV_MERGE_ON_READ))
        by_level = by_level and not level_0
        keyed = terms_on(predicate, schema.primary_keys)
        if not by_level and (ROW_INDEX in columns or FILE_PATH in columns):
            keyed = ()
        both = tuple(dict.fromkeys((*keyed, *terms)))
        return Conditions(predicate if by_level else None, all_of(both) if both else None, partitions, by_level)

    @property
    def skip_nothing(self) -> bool:
        """Whether no file can be skipped."""
        return self.direct is None and self.merged is None

    def groups(self, schema: TableSchema, columns: ManifestColumns) -> Iterator[tuple[Int64s, Predicate | None]]:
        """The places of entries that are judged by one condition, and that condition."""
        if not schema.primary_keys:
            yield np.arange(len(columns)), self.direct
            return
        hidden = columns.bucket == POSTPONE_BUCKET
        direct = np.zeros(len(columns), bool)
        if self.by_level:
            hidden = hidden | (columns.level == 0)
            direct = ~hidden & (columns.deleted_rows == 0)
        yield np.flatnonzero(direct), self.direct
        yield np.flatnonzero(~hidden & ~direct), self.merged
        yield np.flatnonzero(hidden), self.hidden


def files_left_by_tasks(
    state: TableState, predicate: Predicate, columns: Sequence[str], executors: Executors, *, level_0: bool = False
) -> FilesToPlan | None:
    """The files of a state's snapshot that tasks left, cached; None where this process should decode the manifests.

    That is so for few entries, for known ones, for partitions that are looked for one by one, and for manifests that
    must be read entry by entry.  ``predicate`` is bound, ``columns`` are the scan's.  Raises what reading a manifest in
    this process raises.
    """
    snapshot = state.snapshot
    if snapshot is None or not state.is_snapshot or manifests.is_cached(state.table_files, snapshot):
        return None
    with state.reading_manifests():
        metas = manifests.snapshot_manifests(state.table_files, snapshot)
        least = state.schema.opts.of(opt.SPARK_PLANNING_ENTRIES)
        fewest = MANY_ENTRIES if least is None else least
        if sum(m.entry_count for m in metas) < fewest:
            return None
        conditions = Conditions.of(state.schema, predicate, columns, level_0=level_0)
        cache = state.store.caches[_LEFT]
        key = (manifests.live_name(state.paths, snapshot), state.schema.id, conditions)
        left = cache.get(key)
        if left is None:
            terms = terms_on(predicate, state.schema.partition_keys)
            chosen = manifests_of(state.schema, metas, terms) if terms else metas
            if conditions.skip_nothing or (terms and rows_of(state.schema, terms) is not None):
                return None
            if manifests.entries_to_decode(state.table_files, chosen) < fewest:
                return None
            if least is None and executors.cores < _LEAST_CORES:
                return None
            left = _run(state, conditions, metas, chosen, executors)
        if left is not None:
            cache.put(key, left, _memory(left))  # earlier plans may have added columns
        return left


def _memory(left: FilesToPlan) -> int:
    assert isinstance(left.files, ColumnarFiles)
    return left.files.memory + sum(part.memory for part, _ in left.files.parts)


# --- tasks ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Left:
    """The result of a task: the entries that are left, by manifest, and what it skipped.

    ``skipped`` has files, rows and bytes by :data:`REASONS`; of cancelled files, only those that DELETE entries of
    skipped partitions show are subtracted.  ``by_bucket`` has those of the DELETE entries in ``parts`` of buckets that
    are skipped.
    """

    parts: list[ManifestColumns]
    skipped: Int64s
    by_bucket: Int64s


def _prune(state: TableState, conditions: Conditions, metas: Sequence[ManifestFileMeta]) -> _Left | None:
    """In a task: judge the entries of some manifests; None if one of these must be read entry by entry."""
    decoded = manifests.manifest_columns(state.table_files, metas)
    if decoded is None:
        return None
    left = _Left([], np.zeros((len(REASONS), 3), np.int64), np.zeros(3, np.int64))
    for columns in decoded:
        codes = _codes(state, conditions, columns)
        added = columns.kind == EntryKind.ADD
        for code in range(1, len(REASONS)):
            left.skipped[code] += _sums(columns, np.flatnonzero(added & (codes == code)))
        left.skipped[_PARTITION] -= _sums(columns, np.flatnonzero(~added & (codes == _PARTITION)))
        left.by_bucket[:] += _sums(columns, np.flatnonzero(~added & (codes == _BUCKET)))
        kept = np.flatnonzero(np.where(added, codes == 0, codes != _PARTITION))
        if len(kept):
            left.parts.append(columns.taken(kept))
    return left


def _codes(state: TableState, conditions: Conditions, columns: ManifestColumns) -> Int64s:
    """What proves that each entry is skipped, as its place in :data:`REASONS`; 0 for those that are left.

    DELETE entries are judged by partition and bucket alone.
    """
    codes = np.zeros(len(columns), np.int64)
    added = columns.kind == EntryKind.ADD
    for places, predicate in conditions.groups(state.schema, columns):
        for is_add in (True, False):
            of = places[added[places] == is_add]
            if predicate is None or not len(of):
                continue
            files = ColumnarFiles([(columns, of)]).columns
            for by_statistics in (True, False) if is_add else (False,):
                try:
                    schemas = state.schemas(files.schema_ids)
                    pruning = MetadataPruning(
                        files, state.schema, schemas, state.paths, predicate, by_statistics=by_statistics
                    )
                except BitlakeError:
                    continue  # the driver knows whether the entry is live, and raises this then
                codes[of] = pruning.codes
                break
    return codes


def _sums(columns: ManifestColumns, places: Int64s) -> Int64s:
    """Numbers of files, rows and bytes."""
    return np.array([len(places), columns.row_count[places].sum(), columns.file_size[places].sum()], np.int64)


# --- the driver -------------------------------------------------------------------------------------------------------


def _run(
    state: TableState,
    conditions: Conditions,
    every: Sequence[ManifestFileMeta],
    chosen: Sequence[ManifestFileMeta],
    executors: Executors,
) -> FilesToPlan | None:
    """Run the tasks, and put their results together; the manifests in ``every`` but not in ``chosen`` are not read."""
    results: list[_Left | None] = []
    # What a job returns stays below Spark's limit.
    for groups in at_most(_JOB_BYTES, _groups(chosen, executors.cores), _most_bytes):
        results += executors.run(groups, partial(_prune, state, conditions))
    left = [r for r in results if r is not None]
    if len(left) < len(results):
        return None
    files = live_columns([part for r in left for part in r.parts])
    skipped = sum((r.skipped for r in left), np.zeros((len(REASONS), 3), np.int64))
    by_bucket = sum((r.by_bucket for r in left), np.zeros(3, np.int64))
    # DELETE entries that cancel nothing here cancel files that tasks skipped.
    others = np.zeros(3, np.int64) - by_bucket
    for result in left:
        for part in result.parts:
            deleted = part.kind == EntryKind.DELETE
            others += _sums(part, np.flatnonzero(deleted)) - _sums(part, np.flatnonzero(~deleted))
    for part, places in files.parts:
        others += _sums(part, places)
    skipped[_BUCKET] -= by_bucket
    skipped[_STATS] -= others
    numbers = {r.value: row for r, row in zip(REASONS, skipped.tolist(), strict=True) if r is not None and row[0] > 0}
    total = sum(m.num_added_files - m.num_deleted_files for m in every)
    unseen = total - len(files) - sum(row[_FILES] for row in numbers.values())
    if len(chosen) == len(every):
        return FilesToPlan(files, skipped=numbers)
    return FilesToPlan(files, max(0, unseen), len(every), len(chosen), numbers)


def _groups(metas: Sequence[ManifestFileMeta], cores: int) -> Iterator[list[ManifestFileMeta]]:
    """Work items: consecutive manifests, at least two items for each core if there are enough entries."""
    entries = sum(m.entry_count for m in metas)
    most = min(_GROUP_ENTRIES, max(_LEAST_GROUP, entries // (2 * cores)))
    return at_most(most, metas, attrgetter("entry_count"))


def _most_bytes(group: Sequence[ManifestFileMeta]) -> int:
    """The most bytes that the task of a work item returns: no entry is skipped."""
    return sum(_ENTRY_BYTES * m.entry_count + m.file_size for m in group)
