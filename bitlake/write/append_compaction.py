"""Compaction of append tables: small files become larger ones, and deleted rows go from files that have many of them.

Without buckets, files of a partition that are small (below ``target-file-size`` x ``compaction.small-file-ratio``) or
of which more than ``compaction.delete-ratio-threshold`` is deleted are put together: those with vectors always, the
others when there are ``compaction.min.file-num`` of them or twice the target size.  With buckets the order of rows is
kept: neighbours by sequence number are merged.  Source: index-format spec, section 9.8.

Groups of files are written anew through the runner, many at a time, and swapped in a COMPACT snapshot with the change
of their vectors.  Another writer may be first: groups whose files or vectors are no longer what they were are written
again with what is left of them, or given up; the others are committed as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from bitlake.errors import CommitConflict
from bitlake.fileindex.selection import Selection
from bitlake.formatting import human_bytes
from bitlake.metadata import mergetree_options as lsm
from bitlake.metadata import options as opt
from bitlake.metadata.index_manifest import vectors_by_file
from bitlake.metadata.manifest import FileSource, ManifestEntry
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import Snapshot
from bitlake.progress import say
from bitlake.runtime import Runner
from bitlake.snapshot.partitions import discard_entries
from bitlake.snapshot.state import TableState
from bitlake.tableindex.deletion_vectors import DeletionVector
from bitlake.write.append_dml import discard_index, read_all, rewrite, unaware, vector_change, vector_files, vectors_of
from bitlake.write.commit import commit
from bitlake.write.commit_plan import CommitPlan, IndexChange
from bitlake.write.rolling_files import target_file_size

BATCH_BYTES = 16 << 30
"""Files of about this size are written anew before they are committed: a killed compaction loses no more."""
_TRIES = 10
_FEWEST_FULL = 3
"""A full compaction of a bucket without vectors wants this many files, as Paimon does."""

Deleted = Mapping[str, int | None]
"""How many rows of a data file are deleted, None if that is not known; files without a vector are not there."""


# --- what to compact --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rules:
    """When files of an append table are compacted; sizes in bytes."""

    target: int
    small: float
    delete_ratio: float
    fewest: int
    open_cost: int
    every_file: bool
    vectors: bool
    bucketed: bool

    @classmethod
    def of(cls, schema: TableSchema) -> Rules:
        """As a table's options say."""
        options, target = schema.opts, target_file_size(schema)
        return cls(
            target,
            target * options.of(lsm.SMALL_FILE_RATIO),
            options.of(lsm.DELETE_RATIO),
            options.of(lsm.MIN_FILES),
            options.of(lsm.OPEN_FILE_COST),
            options.of(lsm.FORCE_REWRITE_ALL),
            options.of(opt.DV_ENABLED),
            not unaware(schema),
        )


def pick_append(
    rules: Rules, files: Sequence[ManifestEntry], deleted: Deleted, full: bool, index_of: Mapping[str, str]
) -> list[tuple[ManifestEntry, ...]]:
    """The groups of files to be written anew, of the live files of one partition and bucket.

    ``index_of`` names the index file of each data file's vector.  ``full``: also what ``compaction.min.file-num`` and
    the delete ratio would leave as it is.
    """
    if rules.bucketed:
        ordered = sorted(files, key=attrgetter("file.min_sequence_number"))
        return _full_bucket(rules, ordered, deleted) if full else _neighbours(rules, ordered)
    chosen = [e for e in files if _due(rules, e, deleted, full)]
    marked: dict[str, list[ManifestEntry]] = {}
    rest = []
    for entry in chosen:
        index = index_of.get(entry.file.file_name)
        if index is None:
            rest.append(entry)
        else:
            # Files that share an index file go together, or two groups would both replace it.
            marked.setdefault(index, []).append(entry)
    groups = _packed(rules, sorted(marked.values(), key=_size), fewest=1)
    fewest = 2 if full else max(2, rules.fewest)
    groups += _packed(rules, [[e] for e in sorted(rest, key=attrgetter("file.file_size"))], fewest)
    place = {id(e): i for i, e in enumerate(files)}
    return [tuple(sorted(g, key=lambda e: place[id(e)])) for g in groups]


def _due(rules: Rules, entry: ManifestEntry, deleted: Deleted, full: bool) -> bool:
    file = entry.file
    if file.file_size < rules.small or (full and rules.every_file):
        return True
    if file.file_name not in deleted:
        return False
    count = deleted[file.file_name]
    return full or count is None or count > file.row_count * rules.delete_ratio


def _size(files: Sequence[ManifestEntry]) -> int:
    return sum(e.file.file_size for e in files)


def _packed(rules: Rules, parts: Sequence[Sequence[ManifestEntry]], fewest: int) -> list[list[ManifestEntry]]:
    """Parts put together until each group has twice the target size; what is left over if it has enough files."""
    out: list[list[ManifestEntry]] = []
    group: list[ManifestEntry] = []
    size = 0
    for part in parts:
        group += part
        size += _size(part) + rules.open_cost * len(part)
        if len(group) > 1 and size >= 2 * rules.target:
            out.append(group)
            group, size = [], 0
    if group and len(group) >= fewest:
        out.append(group)
    return out


def _neighbours(rules: Rules, files: Sequence[ManifestEntry]) -> list[tuple[ManifestEntry, ...]]:
    """Runs of ``compaction.min.file-num`` neighbours that together are smaller than twice the target size."""
    out = []
    run: list[ManifestEntry] = []
    for entry in files:
        run.append(entry)
        if len(run) >= max(2, rules.fewest):
            out.append(tuple(run))
            run = []
        elif _size(run) >= 2 * rules.target:
            run = run[1:]
    return out


def _full_bucket(rules: Rules, files: Sequence[ManifestEntry], deleted: Deleted) -> list[tuple[ManifestEntry, ...]]:
    """All files of a bucket but the large ones it begins with, if that is worth it."""
    first = 0
    if not rules.every_file:
        while first < len(files) and (
            files[first].file.file_size >= rules.small and files[first].file.file_name not in deleted
        ):
            first += 1
    left = tuple(files[first:])
    small = sum(e.file.file_size < rules.small for e in left)
    marked = any(e.file.file_name in deleted for e in left)
    worth = rules.every_file or marked or len(left) > 1 if rules.vectors else rules.every_file
    worth = worth or (2 * small > len(left) and len(left) >= _FEWEST_FULL)
    return [left] if left and worth else []


# --- compacting -------------------------------------------------------------------------------------------------------


def compact_append(
    state: TableState,
    entries: Sequence[ManifestEntry],
    now: Callable[[], TableState],
    runner: Runner,
    user: str,
    full: bool = False,
) -> Snapshot | None:
    """Compact the live files ``entries`` of an append table; ``now`` loads the table anew.

    Returns the last snapshot made, None if there was nothing to do.  Raises :class:`CommitConflict` when other writers
    keep changing the files of a batch.
    """
    last: Snapshot | None = None
    groups = due_groups(state, entries, full)
    total, passed = sum(map(_size, groups)), 0
    while groups:
        if total > BATCH_BYTES:
            say(f"after {human_bytes(passed)} of {human_bytes(total)}")
        size, count = 0, 0
        while count < len(groups) and (not count or size < BATCH_BYTES):
            size += _size(groups[count])
            count += 1
        made = _batch(state, groups[:count], now, runner, user)
        last = made or last
        passed += size
        groups = groups[count:]
        if groups:
            state = now()
    return last


def due_groups(
    state: TableState, entries: Sequence[ManifestEntry], full: bool = False
) -> list[tuple[ManifestEntry, ...]]:
    """The groups of live files that a compaction of an append table would write anew."""
    rules = Rules.of(state.schema)
    places = vectors_by_file(vectors_of(state))
    deleted = {name: place.cardinality for name, (_, place) in places.items()}
    index_of = {name: index.file_name for name, (index, _) in places.items()}
    buckets: dict[tuple[bytes, int], list[ManifestEntry]] = {}
    for entry in entries:
        buckets.setdefault((entry.partition, entry.bucket), []).append(entry)
    return [g for files in buckets.values() for g in pick_append(rules, files, deleted, full, index_of)]


@dataclass(frozen=True, slots=True)
class _Done:
    """A group that was written anew, the vectors whose rows were left out, and the schema it was written under."""

    before: tuple[ManifestEntry, ...]
    after: tuple[ManifestEntry, ...]
    vectors: Mapping[str, DeletionVector]
    schema_id: int


def _batch(
    state: TableState,
    groups: Sequence[tuple[ManifestEntry, ...]],
    now: Callable[[], TableState],
    runner: Runner,
    user: str,
) -> Snapshot | None:
    """Write groups anew and commit them, again for those that lost to another writer."""
    done: list[_Done] = []
    waiting = [g for g in groups if g]
    made: list[IndexChange] = []

    def discard() -> None:
        for d in done:
            discard_entries(state.store, state.paths, state.schema, d.after)
        discard_index(state, [e for c in made for e in c.new])

    for left in range(_TRIES - 1, -1, -1):
        try:
            done, waiting = _still(state, done, waiting)
            done += _rewrite(state, waiting, runner)
            waiting = []
            if not done:
                return None
            made = _without_vectors(state, [e for d in done for e in d.before])
            plan = CommitPlan(
                kind="COMPACT",
                adds=tuple(e for d in done for e in d.after),
                deletes=tuple(e for d in done for e in d.before),
                index=tuple(made),
                requires_schema=state.schema.id,
            )
        except BaseException:
            discard()
            raise
        lost = False

        def given_up() -> None:
            nonlocal lost
            lost = True

        try:
            return commit(state.store, state.paths, plan, state.schema, user, on_failure=given_up)
        except CommitConflict:
            if not left:
                discard()
                raise
            discard_index(state, [e for c in made for e in c.new])
            made = []
        except BaseException:
            if lost:
                discard()
            raise
        state = now()
    raise AssertionError("the last try returns or raises")


def swap(
    state: TableState, before: Sequence[ManifestEntry], after: Sequence[ManifestEntry], user: str
) -> Snapshot | None:
    """Commit files that hold the undeleted rows of others in their place; on failure they are deleted.

    Raises :class:`CommitConflict` if another writer replaced a file or deleted rows of it since ``state``.
    """
    made = _without_vectors(state, before)

    def discard() -> None:
        discard_entries(state.store, state.paths, state.schema, after)
        discard_index(state, [e for c in made for e in c.new])

    plan = CommitPlan(
        kind="COMPACT",
        adds=tuple(after),
        deletes=tuple(before),
        index=tuple(made),
        requires_schema=state.schema.id,
    )
    return commit(state.store, state.paths, plan, state.schema, user, on_failure=discard)


def _still(
    state: TableState, done: Sequence[_Done], waiting: Sequence[tuple[ManifestEntry, ...]]
) -> tuple[list[_Done], list[tuple[ManifestEntry, ...]]]:
    """What of earlier work still fits the table, and the groups to be written: the others, without files that are gone.

    Work that does not fit is deleted.
    """
    live = {e.identity for e in state.entries()}
    again = [tuple(e for e in g if e.identity in live) for g in waiting]
    gone = _rows_gone(state, [e for d in done for e in d.before])
    kept = []
    for d in done:
        files = tuple(e for e in d.before if e.identity in live)
        now = {e.file.file_name: gone[e.file.file_name].rows for e in files if e.file.file_name in gone}
        then = {name: vector.rows for name, vector in d.vectors.items()}
        if len(files) == len(d.before) and now == then and d.schema_id == state.schema.id:
            kept.append(d)
            continue
        discard_entries(state.store, state.paths, state.schema, d.after)
        # A single file of which nothing is deleted would come out as it is.
        again.append(files if len(files) > 1 or now else ())
    return kept, [g for g in again if g]


def _rows_gone(state: TableState, files: Sequence[ManifestEntry]) -> dict[str, DeletionVector]:
    """The vectors of data files that have one, by name."""
    counts = {e.file.file_name: e.file.row_count for e in files}
    indexes = [e for e in vectors_of(state) if any(r.data_file in counts for r in e.ranges or ())]
    found = read_all(state, indexes, counts)
    return {name: vector for name, vector in found.items() if name in counts}


def _rewrite(state: TableState, groups: Sequence[tuple[ManifestEntry, ...]], runner: Runner) -> list[_Done]:
    if not groups:
        return []
    gone = _rows_gone(state, [e for g in groups for e in g])
    selections = {
        e.file.file_name: Selection.all().minus(gone[e.file.file_name].rows, e.file.row_count)
        for g in groups
        for e in g
        if e.file.file_name in gone
    }
    made = rewrite(state, groups, selections, runner, FileSource.COMPACT)
    out = []
    for group, after in zip(groups, made, strict=True):
        names = {e.file.file_name for e in group}
        out.append(_Done(group, after, {n: v for n, v in gone.items() if n in names}, state.schema.id))
    return out


def _without_vectors(state: TableState, before: Sequence[ManifestEntry]) -> list[IndexChange]:
    """The index files without the vectors of files that were written anew."""
    slots: dict[tuple[bytes, int], set[str]] = {}
    for e in before:
        slots.setdefault((e.partition, e.bucket), set()).add(e.file.file_name)
    out: list[IndexChange] = []
    try:
        for slot, names in slots.items():
            mine = [e for e in vectors_of(state) if (e.partition, e.bucket) == slot]
            base = vector_files(state, mine, names)
            if not any(r.data_file in names for e in base for r in e.ranges or ()):
                continue
            left = {n: v for n, v in read_all(state, base, {}).items() if n not in names}
            out.append(vector_change(state, slot, base, left))
    except BaseException:
        discard_index(state, [e for c in out for e in c.new])
        raise
    return out
