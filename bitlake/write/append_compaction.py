"""Compaction of append tables: merges small files, and removes deleted rows from files that have many.

Without buckets, files of a partition are combined if they are small (below ``target-file-size`` x
``compaction.small-file-ratio``) or if more than ``compaction.delete-ratio-threshold`` of their rows is deleted: files
with vectors always, the others when there are ``compaction.min.file-num`` of them or twice the target size.  With
buckets the order of rows is kept: neighbours by sequence number are merged.  Source: index-format spec, section 9.8.

1. :func:`pending_groups` chooses groups of files, from metadata alone (:class:`CompactionRules`).
2. The runner rewrites groups side by side, about :data:`BATCH_BYTES` before each commit.
3. A COMPACT snapshot replaces the files and drops their vectors.

Another writer may commit first.  Groups whose files or vectors changed are then written again with the remaining files,
or dropped; the others are committed as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from bitlake.errors import CommitConflict
from bitlake.fileindex.selection import Selection
from bitlake.formatting import human_bytes
from bitlake.lazy_modules import numpy as np
from bitlake.metadata import options as opt
from bitlake.metadata.index_manifest import vectors_by_file
from bitlake.metadata.manifest import FileSource, ManifestEntry, by_bucket
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import Snapshot
from bitlake.progress import say
from bitlake.runtime import Runner
from bitlake.snapshot.file_columns import columns_of_files
from bitlake.snapshot.index_files import IndexChange
from bitlake.snapshot.partitions import discard_entries, entries_of
from bitlake.snapshot.state import TableState
from bitlake.tableindex.deletion_vectors import DeletionVector
from bitlake.write.append_dml import (
    discard_index_files,
    is_bucket_unaware,
    read_vectors_of,
    replaced_index_files,
    rewrite,
    vector_change,
    vector_index_files,
    vectors_of_files,
)
from bitlake.write.commit import COMPACT_TRIES, commit
from bitlake.write.commit_plan import CommitPlan
from bitlake.write.data_file_writer import target_file_size

BATCH_BYTES = 16 << 30
"""Bytes of files that are rewritten before a commit: a killed compaction loses no more."""
_FEWEST_FULL = 3
"""The fewest files of a full compaction of a bucket without vectors, as in Paimon."""

DeletedRows = Mapping[str, int | None]
"""Deleted rows by name of the data file, None if unknown; files without a vector are absent."""


# --- choosing files ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CompactionRules:
    """When files of an append table are compacted: its options; sizes in bytes."""

    target: int
    small: float
    delete_ratio: float
    fewest: int
    open_cost: int
    every_file: bool
    vectors: bool
    bucketed: bool

    @classmethod
    def of(cls, schema: TableSchema) -> CompactionRules:
        """Read the rules from a table's options."""
        options, target = schema.opts, target_file_size(schema)
        return cls(
            target,
            target * options.of(opt.SMALL_FILE_RATIO),
            options.of(opt.DELETE_RATIO),
            options.of(opt.MIN_FILES),
            options.of(opt.OPEN_FILE_COST),
            options.of(opt.FORCE_REWRITE_ALL),
            options.of(opt.DV_ENABLED),
            not is_bucket_unaware(schema),
        )


def pick_groups(
    rules: CompactionRules,
    files: Sequence[ManifestEntry],
    deleted: DeletedRows,
    full: bool,
    index_of: Mapping[str, str],
) -> list[tuple[ManifestEntry, ...]]:
    """Choose the groups of files to rewrite among the live files of one partition and bucket.

    ``index_of`` names the index file of each data file's vector.  ``full``: ignore ``compaction.min.file-num`` and the
    delete ratio.
    """
    if rules.bucketed:
        ordered = sorted(files, key=attrgetter("file.min_sequence_number"))
        return _full_bucket_group(rules, ordered, deleted) if full else _neighbour_groups(rules, ordered)
    with_vector: dict[str, list[ManifestEntry]] = {}
    without_vector = []
    for entry in files:
        if not _is_pending(rules, entry, deleted, full):
            continue
        index = index_of.get(entry.file.file_name)
        if index is None:
            without_vector.append(entry)
        else:
            # Files that share an index file go together, or two groups would both replace it.
            with_vector.setdefault(index, []).append(entry)
    groups = _pack_groups(rules, sorted(with_vector.values(), key=_total_size), fewest=1)
    fewest = 2 if full else max(2, rules.fewest)
    groups += _pack_groups(rules, [[e] for e in sorted(without_vector, key=attrgetter("file.file_size"))], fewest)
    order = {id(e): i for i, e in enumerate(files)}
    return [tuple(sorted(g, key=lambda e: order[id(e)])) for g in groups]


def _is_pending(rules: CompactionRules, entry: ManifestEntry, deleted: DeletedRows, full: bool) -> bool:
    file = entry.file
    if file.file_size < rules.small or (full and rules.every_file):
        return True
    if file.file_name not in deleted:
        return False
    count = deleted[file.file_name]
    return full or count is None or count > file.row_count * rules.delete_ratio


def _total_size(files: Sequence[ManifestEntry]) -> int:
    return sum(e.file.file_size for e in files)


def _pack_groups(
    rules: CompactionRules, parts: Sequence[Sequence[ManifestEntry]], fewest: int
) -> list[list[ManifestEntry]]:
    """Combine parts into groups of twice the target size; the rest is a group if it has ``fewest`` files."""
    out: list[list[ManifestEntry]] = []
    group: list[ManifestEntry] = []
    size = 0
    for part in parts:
        group += part
        size += _total_size(part) + rules.open_cost * len(part)
        if len(group) > 1 and size >= 2 * rules.target:
            out.append(group)
            group, size = [], 0
    if group and len(group) >= fewest:
        out.append(group)
    return out


def _neighbour_groups(rules: CompactionRules, files: Sequence[ManifestEntry]) -> list[tuple[ManifestEntry, ...]]:
    """Runs of ``compaction.min.file-num`` neighbours that together are smaller than twice the target size."""
    out = []
    run: list[ManifestEntry] = []
    for entry in files:
        run.append(entry)
        if len(run) >= max(2, rules.fewest):
            out.append(tuple(run))
            run = []
        elif _total_size(run) >= 2 * rules.target:
            run = run[1:]
    return out


def _full_bucket_group(
    rules: CompactionRules, files: Sequence[ManifestEntry], deleted: DeletedRows
) -> list[tuple[ManifestEntry, ...]]:
    """All files of a bucket except the large ones it begins with, if compacting them is worth its cost."""
    first = 0
    if not rules.every_file:
        while first < len(files) and (
            files[first].file.file_size >= rules.small and files[first].file.file_name not in deleted
        ):
            first += 1
    group = tuple(files[first:])
    small = sum(e.file.file_size < rules.small for e in group)
    has_vector = any(e.file.file_name in deleted for e in group)
    worth = rules.every_file or has_vector or len(group) > 1 if rules.vectors else rules.every_file
    worth = worth or (2 * small > len(group) and len(group) >= _FEWEST_FULL)
    return [group] if group and worth else []


# --- compacting -------------------------------------------------------------------------------------------------------


def compact_append(
    state: TableState,
    entries: Sequence[ManifestEntry],
    now: Callable[[], TableState],
    runner: Runner,
    user: str,
    full: bool = False,
) -> Snapshot | None:
    """Compact the live files ``entries`` of an append table; ``now`` loads the latest state.

    Returns the last COMPACT snapshot, None if there was nothing to do.  Raises :class:`CommitConflict` when other
    writers keep changing the files of a batch.
    """
    last: Snapshot | None = None
    groups = pending_groups(state, entries, full)
    total, done = sum(map(_total_size, groups)), 0
    while groups:
        if total > BATCH_BYTES:
            say(f"after {human_bytes(done)} of {human_bytes(total)}")
        size, count = 0, 0
        while count < len(groups) and (not count or size < BATCH_BYTES):
            size += _total_size(groups[count])
            count += 1
        last = _compact_batch(state, groups[:count], now, runner, user) or last
        done += size
        groups = groups[count:]
        if groups:
            state = now()
    return last


def pending_groups(
    state: TableState, entries: Sequence[ManifestEntry], full: bool = False
) -> list[tuple[ManifestEntry, ...]]:
    """Return the groups of live files that a compaction of an append table would rewrite."""
    rules = CompactionRules.of(state.schema)
    indexes = vector_index_files(state)
    if not rules.bucketed and not (full and rules.every_file):
        entries = _small_or_marked(rules, entries, {i.partition for i in indexes})
    vectors = vectors_by_file(indexes)
    deleted = {name: vector.cardinality for name, (_, vector) in vectors.items()}
    index_of = {name: index.file_name for name, (index, _) in vectors.items()}
    return [g for files in by_bucket(entries).values() for g in pick_groups(rules, files, deleted, full, index_of)]


def _small_or_marked(
    rules: CompactionRules, entries: Sequence[ManifestEntry], marked: Collection[bytes]
) -> Sequence[ManifestEntry]:
    """The small files, and the files of partitions in which rows are marked as deleted: no other one is pending.

    Of a million large files, no entry is created.
    """
    files = columns_of_files(entries)
    wanted = files.sizes < rules.small
    if marked:
        partitions, codes = files.partitions
        wanted |= np.array([p in marked for p in partitions], bool)[codes]
    return list(files.take(np.flatnonzero(wanted)))


@dataclass(frozen=True, slots=True)
class _RewrittenGroup:
    """A rewritten group: files before and after, the vectors whose rows were left out, the schema of the new files."""

    before: tuple[ManifestEntry, ...]
    after: tuple[ManifestEntry, ...]
    vectors: Mapping[str, DeletionVector]
    schema_id: int


def _compact_batch(
    state: TableState,
    groups: Sequence[tuple[ManifestEntry, ...]],
    now: Callable[[], TableState],
    runner: Runner,
    user: str,
) -> Snapshot | None:
    """Rewrite groups and commit them; those that lost to another writer are rewritten again."""
    rewritten: list[_RewrittenGroup] = []
    waiting = [g for g in groups if g]
    changes: list[IndexChange] = []

    def discard() -> None:
        for group in rewritten:
            discard_entries(state.table_files, state.schema, group.after)
        discard_index_files(state, [e for c in changes for e in c.new])

    for tries_left in reversed(range(COMPACT_TRIES)):
        try:
            rewritten, waiting = _reusable_work(state, rewritten, waiting)
            rewritten += _rewrite_groups(state, waiting, runner)
            waiting = []
            if not rewritten:
                return None
            changes = _drop_vectors(state, [e for g in rewritten for e in g.before])
            plan = CommitPlan(
                kind="COMPACT",
                adds=tuple(e for g in rewritten for e in g.after),
                deletes=tuple(e for g in rewritten for e in g.before),
                index=tuple(changes),
                requires_schema=state.schema.id,
            )
        except BaseException:
            discard()
            raise
        surely_failed = False

        def failed() -> None:
            nonlocal surely_failed
            surely_failed = True

        try:
            return commit(state.store, state.paths, plan, state.schema, user, on_failure=failed)
        except CommitConflict:
            if not tries_left:
                discard()
                raise
            discard_index_files(state, [e for c in changes for e in c.new])
            changes = []
        except BaseException:
            if surely_failed:
                discard()
            raise
        state = now()
    raise AssertionError("the last try returns or raises")


def commit_replacement(
    state: TableState, before: Sequence[ManifestEntry], after: Sequence[ManifestEntry], user: str
) -> Snapshot | None:
    """Commit files ``after`` that hold the live rows of files ``before`` in their place; on failure they are deleted.

    Raises :class:`CommitConflict` if another writer replaced one of the files, or deleted rows in it, since ``state``.
    """
    changes = _drop_vectors(state, before)

    def discard() -> None:
        discard_entries(state.table_files, state.schema, after)
        discard_index_files(state, [e for c in changes for e in c.new])

    plan = CommitPlan(
        kind="COMPACT",
        adds=tuple(after),
        deletes=tuple(before),
        index=tuple(changes),
        requires_schema=state.schema.id,
    )
    return commit(state.store, state.paths, plan, state.schema, user, on_failure=discard)


def _reusable_work(
    state: TableState, rewritten: Sequence[_RewrittenGroup], waiting: Sequence[tuple[ManifestEntry, ...]]
) -> tuple[list[_RewrittenGroup], list[tuple[ManifestEntry, ...]]]:
    """Return the rewritten groups that still match the table, and the groups of live files to rewrite.

    The files of groups that no longer match are deleted.
    """
    before = [e for g in waiting for e in g] + [e for r in rewritten for e in r.before]
    live = {e.identity for e in entries_of(state, {e.partition for e in before})}
    to_rewrite = [tuple(e for e in g if e.identity in live) for g in waiting]
    vectors = vectors_of_files(state, [e for g in rewritten for e in g.before])
    reusable = []
    for group in rewritten:
        files = tuple(e for e in group.before if e.identity in live)
        now = {e.file.file_name: vectors[e.file.file_name].rows for e in files if e.file.file_name in vectors}
        then = {name: vector.rows for name, vector in group.vectors.items()}
        if len(files) == len(group.before) and now == then and group.schema_id == state.schema.id:
            reusable.append(group)
            continue
        discard_entries(state.table_files, state.schema, group.after)
        # Rewriting a single file without deleted rows would not change it.
        to_rewrite.append(files if len(files) > 1 or now else ())
    return reusable, [g for g in to_rewrite if g]


def _rewrite_groups(
    state: TableState, groups: Sequence[tuple[ManifestEntry, ...]], runner: Runner
) -> list[_RewrittenGroup]:
    if not groups:
        return []
    vectors = vectors_of_files(state, [e for g in groups for e in g])
    selections = {
        e.file.file_name: Selection.all().minus(vectors[e.file.file_name].rows, e.file.row_count)
        for g in groups
        for e in g
        if e.file.file_name in vectors
    }
    results = rewrite(state, groups, selections, runner, FileSource.COMPACT)
    out = []
    for group, after in zip(groups, results, strict=True):
        names = {e.file.file_name for e in group}
        out.append(_RewrittenGroup(group, after, {n: v for n, v in vectors.items() if n in names}, state.schema.id))
    return out


def _drop_vectors(state: TableState, before: Sequence[ManifestEntry]) -> list[IndexChange]:
    """Write the index files again without the vectors of rewritten files; returns the changes for the commit."""
    slots: dict[tuple[bytes, int], set[str]] = {}
    for e in before:
        slots.setdefault((e.partition, e.bucket), set()).add(e.file.file_name)
    out: list[IndexChange] = []
    try:
        for slot, names in slots.items():
            index_files = [e for e in vector_index_files(state) if (e.partition, e.bucket) == slot]
            base = replaced_index_files(state, index_files, names)
            if not any(r.data_file in names for e in base for r in e.ranges or ()):
                continue
            kept = {n: v for n, v in read_vectors_of(state, base, {}).items() if n not in names}
            out.append(vector_change(state, slot, base, kept))
    except BaseException:
        discard_index_files(state, [e for c in out for e in c.new])
        raise
    return out
