"""What a report tells: numbers of a table's live files, indexes, snapshots and recorded scans.

Nothing of the data is read: all comes from manifests, snapshots, the headers of some index files (embedded indexes are
in the manifests), and the log of scans.  Lists are bounded: of partitions, columns and commits the largest or last are
named and the rest is summed up.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from bitlake import _clock
from bitlake.errors import BitlakeError
from bitlake.fileindex.registry import parse_index_options
from bitlake.metadata import mergetree_options as lsm
from bitlake.metadata.index_manifest import DELETION_VECTORS, vectors_by_file
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.snapshot import Snapshot
from bitlake.runtime import REQUESTS, LocalRunner
from bitlake.table.expiring import load_line
from bitlake.table.index_access import has_index, open_for
from bitlake.table.index_entries import index_entries
from bitlake.table.live import snapshot_manifests
from bitlake.table.partitions import PartitionReader
from bitlake.table.references import branch_names, existing_snapshots
from bitlake.table.report.advice import Action, Thresholds, actions
from bitlake.table.report.due import Due, due
from bitlake.table.report.scans import ScanFacts, scan_facts
from bitlake.table.scan_log import ScanRecord
from bitlake.table.sizing import target_file_size
from bitlake.table.state import TableState
from bitlake.table.tags import list_tags

_SAMPLED = 64
"""Index files whose headers are read: of a table of more, what they hold is estimated from so many."""
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
class IndexFacts:
    """An index of a column: ``files`` have it, of ``size`` bytes together; ``wanted``: the options ask for it."""

    column: str
    kind: str
    files: int
    size: int
    wanted: bool


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
    """All that a report says; sizes in bytes, times in ms since the epoch.

    ``sizes``: how many files, and their bytes, by the power of two that they are below.  ``index_sample``: index files
    whose headers were read, and how many there are; where that is less than all, ``indexes`` is an estimate.
    ``due``: what a compaction would take now, ``due_full``: a full one.
    ``timeline``: commits by kind in spans of equal length between the first and the last of ``snapshots_read``.
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

    def to_dict(self) -> dict[str, object]:
        """The report as plain values."""
        return asdict(self)

    def to_json(self) -> str:
        """The report as JSON."""
        return json.dumps(asdict(self), ensure_ascii=False, indent=2)

    def to_html(self) -> str:
        """The report as a page that needs nothing else."""
        from bitlake.table.report.render import render

        return render(self)

    def _repr_html_(self) -> str:
        from bitlake.table.report.render import render

        return render(self, whole=False)


def gather(
    state: TableState, scans: Sequence[ScanRecord] = (), *, top: int = 15, thresholds: Thresholds | None = None
) -> TableReport:
    """The report of a state; ``top``: how many partitions are named.

    Raises :class:`bitlake.errors.BitlakeError` if metadata cannot be read; an index that cannot is named in the report.
    """
    limits = thresholds or Thresholds()
    store, paths, snapshot = state.store, state.paths, state.snapshot
    entries = state.entries()
    target = target_file_size(state.schema)
    small = int(target * state.schema.opts.of(lsm.SMALL_FILE_RATIO))
    tables = index_entries(store, paths, snapshot)
    gone = {name: place.cardinality for name, (_, place) in vectors_by_file(tables).items()}
    parts = _parts(state, entries, small, gone)
    ordered = sorted(parts, key=lambda p: (-p.size, p.name))
    named = ordered if len(ordered) <= top + 1 else ordered[:top]
    others = ordered[len(named) :]
    vectors = [t.file_size for t in tables if t.index_type == DELETION_VECTORS]
    hashes = [t.file_size for t in tables if t.index_type != DELETION_VECTORS]
    indexes, sample, problems = _indexes(state, entries)
    metas = [] if snapshot is None else snapshot_manifests(store, paths, snapshot)
    ids = load_line(store, paths).kept
    read = list(existing_snapshots(store, paths, ids[-_SNAPSHOTS:]))
    kinds, span = _timeline(read)
    found = TableReport(
        name=state.name,
        path=paths.root,
        branch=paths.branch,
        made_ms=_clock.now_ms(),
        snapshot=None if snapshot is None else _commit(snapshot),
        primary_keys=tuple(state.schema.primary_keys),
        partition_keys=tuple(state.schema.partition_keys),
        columns=len(state.schema.fields),
        total=_sum("all", parts),
        parts=tuple(named),
        rest=_sum(f"{len(others):,} more", others) if others else None,
        part_count=len(parts),
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
        branches=len(branch_names(store, paths)),
        scans=scan_facts(scans),
        thresholds=limits,
    )
    return actions(found, state)


def _commit(s: Snapshot) -> Commit:
    return Commit(
        s.id, s.time_millis, s.commit_kind, s.operation, s.commit_user, s.delta_record_count, s.total_record_count
    )


# --- files ------------------------------------------------------------------------------------------------------------


class _Sums:
    """A partition's sums; mutable."""

    def __init__(self) -> None:
        self.files = self.rows = self.size = self.small_files = self.small_size = self.deleted = 0
        self.levels: dict[int, int] = {}

    def part(self, name: str) -> Part:
        sums = (self.files, self.rows, self.size, self.small_files, self.small_size)
        return Part(name, *sums, self.deleted, self.levels)


def _parts(
    state: TableState, entries: Sequence[ManifestEntry], small: int, gone: Mapping[str, int | None]
) -> list[Part]:
    reader = PartitionReader(state.schema, state.paths)
    keyed = bool(state.schema.primary_keys)
    sums: dict[bytes, _Sums] = {}
    for e in entries:
        file = e.file
        s = sums.get(e.partition)
        if s is None:
            s = sums[e.partition] = _Sums()
        s.files += 1
        s.rows += file.row_count
        s.size += file.file_size
        if file.file_size < small:
            s.small_files += 1
            s.small_size += file.file_size
        s.deleted += gone.get(file.file_name) or 0
        if keyed:
            s.levels[file.level] = s.levels.get(file.level, 0) + file.file_size
    return [s.part(reader.folder(raw) or "whole table") for raw, s in sums.items()]


def _sum(name: str, parts: Sequence[Part]) -> Part:
    levels: dict[int, int] = {}
    for p in parts:
        for level, size in p.levels.items():
            levels[level] = levels.get(level, 0) + size

    def add(member: str) -> int:
        return sum(getattr(p, member) for p in parts)

    return Part(
        name=name,
        files=add("files"),
        rows=add("rows"),
        size=add("size"),
        small_files=add("small_files"),
        small_size=add("small_size"),
        deleted=add("deleted"),
        levels=dict(sorted(levels.items())),
    )


def _sizes(entries: Sequence[ManifestEntry]) -> tuple[tuple[int, int, int], ...]:
    """(power of two, files below it, their bytes), without gaps between the least and the greatest."""
    found: dict[int, list[int]] = {}
    for e in entries:
        held = found.setdefault(max(e.file.file_size, 1).bit_length(), [0, 0])
        held[0] += 1
        held[1] += e.file.file_size
    if not found:
        return ()
    return tuple((1 << b, *found.get(b, (0, 0))) for b in range(min(found), max(found) + 1))


# --- indexes ----------------------------------------------------------------------------------------------------------


def _indexes(
    state: TableState, entries: Sequence[ManifestEntry]
) -> tuple[tuple[IndexFacts, ...], tuple[int, int], tuple[str, ...]]:
    """Indexes by column and kind, how many headers of how many were read, and what was wrong with them."""
    having = [e for e in entries if has_index(e.file)]
    inside = [e for e in having if e.file.embedded_index is not None]
    beside = [e for e in having if e.file.embedded_index is None]
    step = max(1, math.ceil(len(beside) / _SAMPLED))
    read = [*inside, *beside[::step]]
    schemas = state.schemas({e.file.schema_id for e in read})
    reader = PartitionReader(state.schema, state.paths)

    def look(e: ManifestEntry) -> tuple[list[tuple[str, str, int]], list[str]]:
        try:
            opened = open_for(state.store, reader.data_path(e), e.file, schemas[e.file.schema_id])
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
    wanted = {(s.column, s.index_type) for s in parse_index_options(state.schema.options, state.schema.fields)}
    for key in wanted:
        counts.setdefault(key, [0.0, 0.0])
    found = [
        IndexFacts(column, kind, min(round(n), len(entries)), round(size), (column, kind) in wanted)
        for (column, kind), (n, size) in counts.items()
    ]
    found.sort(key=lambda i: (-i.size, i.column, i.kind))
    return tuple(found), (len(beside[::step]), len(beside)), tuple(dict.fromkeys(problems))[:5]


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


__all__ = ["Commit", "IndexFacts", "Part", "TableReport", "gather"]
