"""The facts and recommendations of a table report, from metadata alone.

Facts come from manifests, snapshots, the headers of some index files (embedded indexes are in the manifests) and the
scan log; no row is read.  Lists are bounded: the largest or last partitions, columns and commits are named, the rest is
summed up.

Recorded scans show how much of the table indexes skipped, and which conditions were used.  The next compaction is
predicted with the compactor's own policy.  Each recommendation follows from one threshold, which the page names, and
comes with the SQL to run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain

from bitlake import _clock
from bitlake.errors import BitlakeError
from bitlake.expressions.sql_text import quote
from bitlake.fileindex.named_index import named_keys
from bitlake.fileindex.registry import unusable_indexes, usable_indexes
from bitlake.formatting import counted, human_bytes, share_words
from bitlake.mergetree.bucket import bucket_states, merge_tree_context
from bitlake.mergetree.compaction import pending_unit
from bitlake.mergetree.postpone_bucket import postponed_files
from bitlake.metadata import options as opt
from bitlake.metadata.index_manifest import DELETION_VECTORS, vectors_by_file
from bitlake.metadata.manifest import ManifestEntry, has_index
from bitlake.metadata.options import PartitionAge
from bitlake.metadata.snapshot import Snapshot
from bitlake.runtime import REQUESTS, LocalRunner
from bitlake.scan.index_pruning import open_file_index
from bitlake.scan.scan import TableScan
from bitlake.snapshot.expiry import expired_partitions
from bitlake.snapshot.manifests import index_entries, snapshot_manifests
from bitlake.snapshot.partitions import PartitionReader
from bitlake.snapshot.removal_markers import load_line
from bitlake.snapshot.state import TableState
from bitlake.snapshot.tags import list_tags
from bitlake.snapshot.versions import branch_names, existing_snapshots
from bitlake.tools.advise import policy
from bitlake.tools.advise.policy import IndexFacts, ScanCost
from bitlake.tools.report.page import render
from bitlake.tools.scan_log import ScanRecord
from bitlake.write.append_compaction import pending_groups
from bitlake.write.data_file_writer import target_file_size


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When something is recommended; shares are 0 to 1.  What is compacted says the table's options, and not these.

    ``deleted``: deleted rows that only a full compaction takes out.  ``snapshots``: that are kept.  ``manifests``:
    files that planning opens.  Which indexes are recommended is decided by :mod:`bitlake.tools.advise.policy`.
    """

    deleted: float = 0.1
    snapshots: int = 100
    manifests: int = 100


@dataclass(frozen=True, slots=True)
class Action:
    """Something to do: what, why, and the statements that do it."""

    title: str
    why: str
    sql: tuple[str, ...]


def actions(report: TableReport, state: TableState) -> TableReport:
    """The report with what it recommends, the most urgent first."""
    name = quote(report.name)
    actions_due = [
        *_index_actions(report),
        *_unusable_declarations(state, report.name),
        *_files(report, name),
        *_history(report, state, name),
        *_scans(report, state),
    ]
    return replace(report, actions=tuple(actions_due))


def _files(report: TableReport, table: str) -> list[Action]:
    limits, total, actions_due = report.thresholds, report.total, []
    if report.due.files or report.due.postponed:
        call = f"CALL sys.compact(table => {table}, compact_strategy => 'minor')"
        actions_due.append(Action(*_due(report), (call,)))
    elif report.due_full.deleted >= limits.deleted * max(total.rows, 1):
        share = share_words(report.due_full.deleted, total.rows)
        why = f"{counted(report.due_full.deleted, 'row')} ({share}) are deleted, and still stored"
        call = f"CALL sys.compact(table => {table}, compact_strategy => 'full')"
        actions_due.append(Action("Take deleted rows out", why, (call,)))
    if report.manifests[0] > limits.manifests and report.manifests[1] / report.manifests[0] < (2 << 20):
        why = f"planning opens {report.manifests[0]:,} manifests of {human_bytes(report.manifests[1])} together"
        actions_due.append(Action("Put manifests together", why, (f"CALL sys.compact_manifest(table => {table})",)))
    return actions_due


def _due(report: TableReport) -> tuple[str, str]:
    """Describe what a pending compaction does, and why."""
    due, total = report.due, report.total
    some = f"{counted(due.files, 'file')} of {total.files:,} ({human_bytes(due.size)})"
    if due.postponed:
        waiting = f"the rows of {counted(due.postponed, 'file')} have no bucket yet, and are not read before they do"
        return "Compact the table", waiting
    if report.primary_keys:
        level = f", of which {human_bytes(due.level_0)} are on level 0" if due.level_0 else ""
        return "Merge the newest files", f"{some} are due to be merged by key{level}: until then reading merges them"
    deleted = f"{counted(due.deleted, 'row')} of them are deleted, and still stored" if due.deleted else ""
    if deleted and not due.small:
        return "Take deleted rows out", f"of {some} {deleted}"
    why = f"{some} are to be put together: each is opened, and has statistics and an index of its own"
    return "Put small files together", f"{why}; {deleted}" if deleted else why


def _index_actions(report: TableReport) -> list[Action]:
    build = (policy.rebuild_call(report.name),)
    actions_due = []
    if report.index_problems:
        why = f"an index cannot be read, so its file is always scanned: {report.index_problems[0]}"
        actions_due.append(Action("Rebuild damaged indexes", why, build))
    missing = policy.unbuilt(report.indexes, report.total.files)
    left = policy.undeclared(report.indexes)
    if missing:
        why = policy.lacking_words(min(missing, key=lambda i: i.files), report.total.files)
        actions_due.append(Action("Build indexes that are missing", why, build))
    elif left:
        size = sum(i.size for i in left)
        names = ", ".join(f"{i.kind} of {i.column}" for i in left[:3])
        why = f"the table's options do not declare {names}: {human_bytes(size)}"
        actions_due.append(Action("Drop undeclared indexes", why, build))
    return actions_due


def _unusable_declarations(state: TableState, table: str) -> list[Action]:
    unusable = unusable_indexes(state.schema.options, state.schema.fields)
    if not unusable:
        return []
    name = policy.sql_name(table)
    drop = [f"DROP INDEX {policy.sql_name(spec.name)} ON {name}" for spec, _ in unusable if spec.name]
    nameless = ", ".join(map(quote, named_keys(state.schema.options, "")))
    unset = [f"ALTER TABLE {name} UNSET TBLPROPERTIES ({nameless})"] if nameless else []
    why = f"an index that is neither built nor used: {unusable[0][1]}"
    return [Action("Drop declarations that cannot be used", why, (*drop, *unset))]


def _history(report: TableReport, state: TableState, table: str) -> list[Action]:
    actions_due = []
    if report.snapshots > report.thresholds.snapshots:
        keep = min(state.schema.opts.of(opt.SNAPSHOT_RETAINED_MIN), report.thresholds.snapshots)
        why = f"{report.snapshots:,} snapshots are kept, and every file that any of them needs; none expires by itself"
        call = f"CALL sys.expire_snapshots(table => {table}, retain_max => {keep}"
        actions_due.append(Action("Expire old snapshots", why, (f"{call}, dry_run => true)", f"{call})")))
    age = PartitionAge.of(state.schema.options)
    if age is not None and report.partition_keys:
        old = expired_partitions(state, age)
        if old:
            why = f"{counted(len(old), 'partition')} are older than '{opt.PARTITION_EXPIRATION_TIME.name}' says"
            call = f"CALL sys.expire_partitions(table => {table}"
            actions_due.append(Action("Expire old partitions", why, (f"{call}, dry_run => true)", f"{call})")))
    over = [t for t in list_tags(state) if t.expired(_clock.local_ms())]
    if over:
        why = f"the time of {counted(len(over), 'tag')} is over, and they still keep their files"
        actions_due.append(Action("Delete tags that are over", why, (f"CALL sys.expire_tags(table => {table})",)))
    return actions_due


def _scans(report: TableReport, state: TableState) -> list[Action]:
    asked = () if report.scans is None else report.scans.asked
    files = TableScan(state, state.store, ()).plan().files if asked else ()
    poor = [a for a in asked if policy.could_save(a.cost) and policy.indexable(state.schema, a.columns, files)]
    if not poor:
        return []
    why = (
        f"scans that ask '{poor[0].what}' read {share_words(poor[0].bytes_touched, poor[0].bytes_total)} of the table: "
        "an index or an order of rows may help; the advisor tries which"
    )
    return [Action("Ask for advice on indexes", why, (policy.advisor_call(report.name, "recorded => true"),))]


_NAMED = 12


@dataclass(frozen=True, slots=True)
class Asked:
    """Scans that ask the same columns the same way (``status =``); sums over them, sizes in bytes.

    ``columns``: those of their conditions; ``cost``: what one of them reads, for :mod:`bitlake.tools.advise.policy`.
    """

    what: str
    scans: int
    bytes_total: int
    bytes_touched: int
    ms: float
    columns: tuple[str, ...]
    cost: ScanCost

    @property
    def skipped(self) -> float:
        """The share of the table's bytes that they did not read, 0 to 1."""
        return max(0.0, 1 - self.bytes_touched / self.bytes_total) if self.bytes_total else 0.0


@dataclass(frozen=True, slots=True)
class ScanFacts:
    """All recorded scans: in sum, by what they asked (those that read most first), and files by what skipped them."""

    all: Asked
    first_ms: int
    last_ms: int
    asked: tuple[Asked, ...]
    more: int
    files_read: int
    files_skipped: tuple[tuple[str, int], ...]


def scan_facts(scans: Sequence[ScanRecord]) -> ScanFacts | None:
    """The scans summed up; None if none was recorded."""
    if not scans:
        return None
    groups: dict[str, list[ScanRecord]] = {}
    skipped: dict[str, int] = {}
    for s in scans:
        terms = sorted({f"{t.column} {t.op}" for t in s.terms})
        groups.setdefault(" and ".join(terms) or "no condition", []).append(s)
        for why, files in s.files_skipped.items():
            skipped[why] = skipped.get(why, 0) + files
    groups_read = sorted((_asked(what, some) for what, some in groups.items()), key=lambda a: -a.bytes_touched)
    times = [s.time_ms for s in scans]
    return ScanFacts(
        _asked("all", scans),
        min(times),
        max(times),
        tuple(groups_read[:_NAMED]),
        len(groups_read[_NAMED:]),
        sum(s.files_read for s in scans),
        tuple(sorted(skipped.items(), key=lambda item: -item[1])),
    )


def _asked(what: str, scans: Iterable[ScanRecord]) -> Asked:
    records = list(scans)
    return Asked(
        what,
        len(records),
        sum(s.bytes_total for s in records),
        sum(min(s.bytes_touched, s.bytes_total) for s in records),
        sum(s.plan_ms + s.read_ms for s in records),
        tuple(sorted({t.column for s in records for t in s.terms})),
        policy.recorded_cost(records),
    )


@dataclass(frozen=True, slots=True)
class Due:
    """Files that a compaction would merge or rewrite: how many, their bytes, and how many of their rows are deleted.

    ``small``: those below the size that ``compaction.small-file-ratio`` says; ``level_0``: bytes of them on level 0, of
    tables with a primary key; ``postponed``: files whose rows have no bucket yet.
    """

    files: int = 0
    size: int = 0
    small: int = 0
    deleted: int = 0
    level_0: int = 0
    postponed: int = 0


def due(state: TableState, small: int, gone: Mapping[str, int | None], full: bool = False) -> Due:
    """Return the pending compaction, or with ``full`` what a full compaction would rewrite.

    ``small``: bytes below which a file is; ``gone``: deleted rows by data file.
    """
    entries = state.entries()
    files = _keyed(state, full) if state.schema.primary_keys else _append(state, entries, full)
    waiting = sum(len(held) for held in postponed_files(entries).values())
    return Due(
        len(files),
        sum(e.file.file_size for e in files),
        sum(e.file.file_size < small for e in files),
        sum(gone.get(e.file.file_name) or 0 for e in files),
        sum(e.file.file_size for e in files if e.file.level == 0) if state.schema.primary_keys else 0,
        waiting,
    )


def _append(state: TableState, entries: Sequence[ManifestEntry], full: bool) -> list[ManifestEntry]:
    return [e for group in pending_groups(state, entries, full) for e in group]


def _keyed(state: TableState, full: bool) -> list[ManifestEntry]:
    context = merge_tree_context(state)
    units = (pending_unit(context, b, full) for b in bucket_states(state).values() if b.bucket >= 0)
    return [e for unit in units if unit is not None for e in unit.files]


_SAMPLED = 64
"""Index files whose headers are read; for a table with more, the contents of all are estimated from this sample."""
_SNAPSHOTS = 500
_COLUMNS = 60
_COMMITS = 12


@dataclass(frozen=True, slots=True)
class Part:
    """Live files of a partition (or of all the others together), sizes in bytes.

    ``levels``: bytes by level, of tables with a primary key; ``deleted``: rows that deletion vectors take out.
    """

    name: str
    files: int
    rows: int
    size: int
    small_files: int
    small_size: int
    deleted: int
    levels: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Commit:
    """A snapshot that is kept; ``kind`` as Paimon names it, ``operation`` where it says more."""

    id: int
    time_ms: int
    kind: str
    operation: str | None
    user: str
    delta_rows: int
    total_rows: int


@dataclass(frozen=True, slots=True)
class TableReport:
    """The facts of a report; sizes in bytes, times in ms since the epoch.

    ``sizes``: how many files, and their bytes, by the power of two that they are below.  ``index_sample``: index files
    whose headers were read, and how many there are; where that is less than all, ``indexes`` is an estimate.
    ``due``: what a compaction would take now, ``due_full``: a full one.
    ``timeline``: commits by kind in spans of equal length between the first and the last of ``snapshots_read``.

    >>> report = table.maintenance.report()
    >>> report.total.files, report.total.rows, report.commits[0].kind
    (3, 6, 'APPEND')
    >>> page, text = report.to_html(), report.to_json()
    >>> report.to_dict()["partition_keys"]
    ('day',)
    """

    name: str
    path: str
    branch: str | None
    made_ms: int
    snapshot: Commit | None
    primary_keys: tuple[str, ...]
    partition_keys: tuple[str, ...]
    columns: int
    total: Part
    parts: tuple[Part, ...]
    rest: Part | None
    part_count: int
    buckets: int
    target_size: int
    small_below: int
    sizes: tuple[tuple[int, int, int], ...]
    unknown_deleted: int
    vector_files: tuple[int, int]
    hash_files: tuple[int, int]
    indexes: tuple[IndexFacts, ...]
    index_files: int
    index_sample: tuple[int, int]
    index_problems: tuple[str, ...]
    manifests: tuple[int, int]
    snapshots: int
    snapshots_read: int
    commits: tuple[Commit, ...]
    due: Due
    due_full: Due
    timeline: tuple[Mapping[str, int], ...]
    timeline_span: tuple[int, int]
    tags: int
    branches: int
    scans: ScanFacts | None
    thresholds: Thresholds
    actions: tuple[Action, ...] = ()

    def __repr__(self) -> str:
        return f"TableReport({self.name})"

    def to_dict(self) -> dict[str, object]:
        """The report as plain values."""
        return asdict(self)

    def to_json(self) -> str:
        """The report as JSON."""
        return json.dumps(asdict(self), ensure_ascii=False, indent=2)

    def to_html(self) -> str:
        """The report as a page that needs nothing else."""
        return render(self)

    def _repr_html_(self) -> str:
        return render(self, whole=False)


def gather(
    state: TableState, scans: Sequence[ScanRecord] = (), *, top: int = 15, thresholds: Thresholds | None = None
) -> TableReport:
    """The report of a state; ``top``: how many partitions are named.

    Raises :class:`bitlake.errors.BitlakeError` if metadata cannot be read; an index that cannot is named in the report.
    """
    files, snapshot = state.table_files, state.snapshot
    entries = state.entries()
    target = target_file_size(state.schema)
    small = int(target * state.schema.opts.of(opt.SMALL_FILE_RATIO))
    tables = index_entries(files, snapshot)
    gone = {name: place.cardinality for name, (_, place) in vectors_by_file(tables).items()}
    part = partial(_part, small=small, gone=gone, keyed=bool(state.schema.primary_keys))
    parts, rest, part_count = _parts(state, part, top)
    vectors = [t.file_size for t in tables if t.index_type == DELETION_VECTORS]
    hashes = [t.file_size for t in tables if t.index_type != DELETION_VECTORS]
    indexes, sample, problems = index_facts(state, entries)
    metas = [] if snapshot is None else snapshot_manifests(files, snapshot)
    ids = load_line(files).kept
    read = list(existing_snapshots(files, ids[-_SNAPSHOTS:]))
    kinds, span = _timeline(read)
    report = TableReport(
        name=state.name,
        path=state.paths.root,
        branch=state.paths.branch,
        made_ms=_clock.now_ms(),
        snapshot=None if snapshot is None else _commit(snapshot),
        primary_keys=tuple(state.schema.primary_keys),
        partition_keys=tuple(state.schema.partition_keys),
        columns=len(state.schema.fields),
        total=part("all", entries),
        parts=tuple(parts),
        rest=rest,
        part_count=part_count,
        buckets=len({(e.partition, e.bucket) for e in entries}),
        target_size=target,
        small_below=small,
        sizes=_sizes(entries),
        unknown_deleted=sum(c is None for c in gone.values()),
        vector_files=(len(vectors), sum(vectors)),
        hash_files=(len(hashes), sum(hashes)),
        indexes=indexes,
        index_files=sum(has_index(e.file) for e in entries),
        index_sample=sample,
        index_problems=problems,
        manifests=(len(metas), sum(m.file_size for m in metas)),
        snapshots=len(ids),
        snapshots_read=len(read),
        commits=tuple(_commit(s) for s in reversed(read[-_COMMITS:])),
        due=due(state, small, gone),
        due_full=due(state, small, gone, full=True),
        timeline=kinds,
        timeline_span=span,
        tags=len(list_tags(state)),
        branches=len(branch_names(files)),
        scans=scan_facts(scans),
        thresholds=thresholds or Thresholds(),
    )
    return actions(report, state)


def _commit(s: Snapshot) -> Commit:
    return Commit(
        s.id, s.time_millis, s.commit_kind, s.operation, s.commit_user, s.delta_record_count, s.total_record_count
    )


# --- files ------------------------------------------------------------------------------------------------------------


def _part(
    name: str, entries: Sequence[ManifestEntry], *, small: int, gone: Mapping[str, int | None], keyed: bool
) -> Part:
    levels: dict[int, int] = {}
    for e in entries if keyed else ():
        levels[e.file.level] = levels.get(e.file.level, 0) + e.file.file_size
    sizes = [e.file.file_size for e in entries]
    few = [size for size in sizes if size < small]
    return Part(
        name=name,
        files=len(entries),
        rows=sum(e.file.row_count for e in entries),
        size=sum(sizes),
        small_files=len(few),
        small_size=sum(few),
        deleted=sum(gone.get(e.file.file_name) or 0 for e in entries),
        levels=dict(sorted(levels.items())),
    )


def _parts(
    state: TableState, part: Callable[[str, Sequence[ManifestEntry]], Part], top: int
) -> tuple[list[Part], Part | None, int]:
    """The largest partitions, all the others together (None if there are none), and how many there are."""
    reader = PartitionReader(state.schema, state.paths)
    by_partition: dict[bytes, list[ManifestEntry]] = {}
    for e in state.entries():
        by_partition.setdefault(e.partition, []).append(e)
    parts = [(part(reader.title(raw) or "whole table", entries), entries) for raw, entries in by_partition.items()]
    parts.sort(key=lambda p: (-p[0].size, p[0].name))
    named = parts if len(parts) <= top + 1 else parts[:top]
    others = [entries for _, entries in parts[len(named) :]]
    rest = part(f"{len(others):,} more", list(chain.from_iterable(others))) if others else None
    return [p for p, _ in named], rest, len(parts)


def _sizes(entries: Sequence[ManifestEntry]) -> tuple[tuple[int, int, int], ...]:
    """(power of two, files below it, their bytes), without gaps between the least and the greatest."""
    sizes: dict[int, list[int]] = {}
    for e in entries:
        held = sizes.setdefault(max(e.file.file_size, 1).bit_length(), [0, 0])
        held[0] += 1
        held[1] += e.file.file_size
    if not sizes:
        return ()
    return tuple((1 << b, *sizes.get(b, (0, 0))) for b in range(min(sizes), max(sizes) + 1))


# --- indexes ----------------------------------------------------------------------------------------------------------


def index_facts(
    state: TableState, entries: Sequence[ManifestEntry]
) -> tuple[tuple[IndexFacts, ...], tuple[int, int], tuple[str, ...]]:
    """Indexes by column and kind, the numbers of headers (read, all), and the problems found in them."""
    having = [e for e in entries if has_index(e.file)]
    inside = [e for e in having if e.file.embedded_index is not None]
    beside = [e for e in having if e.file.embedded_index is None]
    step = max(1, math.ceil(len(beside) / _SAMPLED))
    read = [*inside, *beside[::step]]
    schemas = state.schemas({e.file.schema_id for e in read})
    reader = PartitionReader(state.schema, state.paths)

    def look(e: ManifestEntry) -> tuple[list[tuple[str, str, int]], list[str]]:
        try:
            opened = open_file_index(state.store, reader.data_path(e), e.file, schemas[e.file.schema_id])
        except BitlakeError as error:
            return [], [str(error)]
        assert opened is not None
        return [(c, k, length) for c, kinds in opened.columns.items() for k, (_, length) in kinds.items()], [
            *opened.problems
        ]

    counts: dict[tuple[str, str], list[float]] = {}
    problems: list[str] = []
    factor = len(beside) / max(len(beside[::step]), 1)
    for e, (told, wrong) in zip(read, LocalRunner(REQUESTS).run(read, look), strict=True):
        weight = 1.0 if e.file.embedded_index is not None else factor
        problems += wrong
        for column, kind, length in told:
            held = counts.setdefault((column, kind), [0.0, 0.0])
            held[0] += weight
            held[1] += weight * length
    wanted = {(s.column, s.index_type) for s in usable_indexes(state.schema.options, state.schema.fields)}
    for key in wanted:
        counts.setdefault(key, [0.0, 0.0])
    coverage = [
        IndexFacts(column, kind, min(round(n), len(entries)), round(size), (column, kind) in wanted)
        for (column, kind), (n, size) in counts.items()
    ]
    coverage.sort(key=lambda i: (-i.size, i.column, i.kind))
    return tuple(coverage), (len(beside[::step]), len(beside)), tuple(dict.fromkeys(problems))[:5]


# --- history ----------------------------------------------------------------------------------------------------------


def _timeline(read: Sequence[Snapshot]) -> tuple[tuple[Mapping[str, int], ...], tuple[int, int]]:
    if not read:
        return (), (0, 0)
    times = [s.time_millis for s in read]
    first, last = min(times), max(times)
    spans: list[dict[str, int]] = [{} for _ in range(min(_COLUMNS, max(len(read), 1)))]
    for s in read:
        at = (s.time_millis - first) * len(spans) // max(last - first, 1)
        held = spans[min(at, len(spans) - 1)]
        held[s.commit_kind] = held.get(s.commit_kind, 0) + 1
    return tuple(spans), (first, last)
