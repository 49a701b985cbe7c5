"""Stream offsets: positions in a table's history, how far a step of a stream goes, and the changes between two of them.

A stream reads step by step.  A :class:`StreamOffset` names the next unit of a snapshot to read, and identifies the last
snapshot read, since a rollback gives ids to other snapshots, and so does a table created again.  The units of a
snapshot are its new files in the order of its manifests (of a primary-key table: the files of a bucket together, since
their rows belong together), or with ``full`` all files that were live in it.  Snapshots never change, so an offset
stays valid; checkpoints keep it.  The end of the first step also holds the start of that step: a restarted query reads
the step again, and newer snapshots would give it another start.  The new files of a snapshot are those of its changelog
where the table wrote one then, else those that an APPEND added; COMPACT and OVERWRITE snapshots have none.  Where keys
are unique over partitions, all new files of a snapshot are one unit: a key that moves is in several of them.  If the
table's options ask for overwrites, the new files of an OVERWRITE are those that it added; a stream of a primary-key
table first takes back the rows of the files that it removed.

A changelog producer that waits for compactions has not emitted the rows of lower levels.  When the table gets another
producer, the next snapshot's new files include the files of these levels.  When the table gets a producer that waits
for compactions, the stream has read rows before their compaction, but the new changelog lists changes of what
compactions have emitted.  So the next snapshot first takes these rows back.

The changes of snapshots that have expired come from their long-lived changelogs
(:mod:`bitlake.snapshot.versions`), where the table has these.

Source: the observed behaviour of Paimon's streaming readers.  They read postponed rows (``bucket`` = -2) of tables
without a changelog at once and one by one; where there is a changelog, these rows come with the compaction that brings
them to their buckets.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from bitlake import _clock
from bitlake.codec.hashing import Int64s
from bitlake.errors import InvalidRequest, NotFound
from bitlake.merge.keys import group_rows
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import ManifestEntry, by_bucket
from bitlake.metadata.paths import POSTPONE_BUCKET
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import Snapshot
from bitlake.scan.incremental import (
    ADDED,
    ROW_KIND,
    ChangeScan,
    FilesState,
    SnapshotRange,
    changed_files,
    files_of_changes,
    mode_of,
    of_files,
    overwritten_files,
)
from bitlake.scan.scan import TableScan
from bitlake.schema.merge_spec import KIND_NAMES, is_cross_partition, max_level
from bitlake.snapshot import versions
from bitlake.snapshot.manifests import live_entries, read_manifest_list, read_manifests
from bitlake.snapshot.removal_markers import name_of
from bitlake.snapshot.state import TableState, state_at
from bitlake.snapshot.time_travel import first_snapshot_from, state_of
from bitlake.snapshot.vector_mode import with_vector_mode_of
from bitlake.snapshot.versions import find_changelog, first_changelog_from

_COMPACTED = ("lookup", "full-compaction")
"""Changelog producers that emit a row only when it is compacted."""


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The next unit to read: the ``index``-th of a snapshot's new files or, if ``full``, of all its files."""

    snapshot: int
    index: int = 0
    full: bool = False
    read: str | None = field(default=None, compare=False)
    """The identity of the snapshot :attr:`last_read`; None if it is unknown."""
    first: StreamOffset | None = field(default=None, compare=False)
    """In the offset at which the first step of a stream ends: where the step began.  None in all other offsets."""

    @property
    def last_read(self) -> int:
        """The last snapshot that was read before, or is being read."""
        return self.snapshot if self.full or self.index else self.snapshot - 1

    def to_dict(self) -> dict[str, Any]:
        """The offset as a checkpoint stores it."""
        stored: dict[str, Any] = {"snapshot": self.snapshot, "index": self.index, "full": int(self.full)}
        if self.read is not None:
            stored["read"] = self.read
        if self.first is not None:
            stored["first"] = self.first.to_dict()
        return stored

    @staticmethod
    def from_dict(stored: Mapping[str, Any]) -> StreamOffset:
        """The offset of :meth:`to_dict`; raises :class:`InvalidRequest` for anything else."""
        numbers = [stored.get(n) for n in ("snapshot", "index", "full")]
        read, first = stored.get("read"), stored.get("first")
        valid = len(stored) == 3 + ("read" in stored) + ("first" in stored)
        valid = valid and (read is None or isinstance(read, str)) and (first is None or isinstance(first, dict))
        if not valid or not all(isinstance(n, int) and n >= 0 for n in numbers):
            raise InvalidRequest(f"invalid stream offset {dict(stored)}; is this the checkpoint of another source?")
        began = None if first is None else StreamOffset.from_dict(first)
        return StreamOffset(int(stored["snapshot"]), int(stored["index"]), bool(stored["full"]), read, began)


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that a step reads; it reads at least one unit.  None: unlimited."""

    files: int | None = None
    bytes: int | None = None
    rows: int | None = None


class StreamedTable(Protocol):
    """A table whose changes are streamed."""

    name: str

    def state(self) -> TableState:
        """The table's latest state."""

    def scan_of(self, state: TableState) -> TableScan:
        """A scan of all columns of a state."""


@dataclass(frozen=True, slots=True)
class StreamUnit:
    """Files that are read together or not at all.

    ``between_levels``: names of those that only the former or only the new changelog producer has emitted.
    ``removed``: files of a primary-key table whose rows an overwrite removed.
    """

    files: tuple[ManifestEntry, ...]
    between_levels: frozenset[str] = frozenset()
    removed: tuple[ManifestEntry, ...] = ()

    @property
    def rows(self) -> int:
        """The number of rows in the files."""
        return sum(e.file.row_count for e in (*self.removed, *self.files))

    @property
    def size(self) -> int:
        """The bytes of the files."""
        return sum(e.file.file_size for e in (*self.removed, *self.files))

    @property
    def count(self) -> int:
        """The number of files."""
        return len(self.removed) + len(self.files)


@dataclass(frozen=True, slots=True)
class StreamStep:
    """One step of a stream: its end, and the number of rows up to it."""

    end: StreamOffset
    rows: int


class ChangeStream:
    """The changes of one table from any offset on; ``kinds``: with the column ``rowkind``, and retractions."""

    def __init__(self, table: StreamedTable, *, kinds: bool) -> None:
        self._table = table
        self._kinds = kinds

    # --- where to begin ----------------------------------------------------------------------------------------------

    def latest(self) -> StreamOffset:
        """The offset after the latest snapshot."""
        state = self._table.state()
        return _identified(state, StreamOffset((versions.latest_snapshot_id(state.table_files) or 0) + 1))

    def at(self, snapshot: int, *, full: bool = False) -> StreamOffset:
        """The offset of a snapshot's changes or, if ``full``, of all its rows and then the changes after it.

        Raises :class:`NotFound` for a snapshot that has expired without a long-lived changelog, or is more than one
        ahead.
        """
        state = self._table.state()
        ids = versions.snapshot_ids(state.table_files)
        if not full and ids and snapshot < ids[0] and find_changelog(state.table_files, snapshot) is not None:
            return StreamOffset(snapshot)
        low, high = (ids[0], ids[-1] + (0 if full else 1)) if ids else (1, 1)
        if not low <= snapshot <= high:
            raise NotFound(
                f"table '{self._table.name}': a stream cannot begin at snapshot {snapshot}: {versions.kept_words(ids)}"
            )
        at = StreamOffset(snapshot, 0, full)
        return _identified(state, at) if full else at

    def full(self, *, earliest: bool = False) -> StreamOffset:
        """The offset of all rows of the latest snapshot (or the earliest), then the changes after it.

        Of a table without snapshots, all rows of the first one, which may be an overwrite: that has no changes.
        """
        state = self._table.state()
        ids = versions.snapshot_ids(state.table_files)
        return _identified(state, StreamOffset(ids[0 if earliest else -1] if ids else 1, 0, True))

    def since(self, millis: int) -> StreamOffset:
        """The offset of the first snapshot committed at or after a time (ms since the epoch); else after the latest."""
        state = self._table.state()
        first = first_snapshot_from(state, millis)
        if first is not None and first.id == versions.snapshot_ids(state.table_files)[0]:
            changelog = first_changelog_from(state.table_files, millis)
            first = changelog if changelog is not None and changelog.id < first.id else first
        return self.latest() if first is None else StreamOffset(first.id)

    # --- how far -----------------------------------------------------------------------------------------------------

    def step(self, start: StreamOffset, limits: Limits | None = None, until: StreamOffset | None = None) -> StreamStep:
        """The next step from ``start``; without new files it ends at ``start``.

        Without ``limits`` it ends after the latest snapshot, or at ``until``, and the rows are not counted.  It ends
        before snapshots that are younger than ``streaming.read.snapshot.delay``.
        Raises :class:`NotFound` if snapshots after ``start`` have expired, or were rolled back.
        """
        state = self._table.state()
        last = (versions.latest_snapshot_id(state.table_files) or 0) + 1
        if start.snapshot > last or (start.full and start.snapshot == last > 1):
            raise NotFound(
                f"table '{state.name}': the stream stands at snapshot {start.snapshot}, and {last - 1} is the latest: "
                "the table was rolled back, or is another one; start again with another checkpoint"
            )
        _check_read(state, start)
        if start.full and start.snapshot == last:  # the table has no snapshot yet
            return StreamStep(start, 0)
        stop = self._first_delayed(state, last)
        if stop <= start.snapshot and not start.full:
            return StreamStep(start, 0)
        end = StreamOffset(stop) if until is None or until.snapshot >= stop else until
        if start.full and end.snapshot <= start.snapshot:  # a snapshot was committed after ``until`` was taken
            end = StreamOffset(start.snapshot + 1)
        if limits is None:
            # A step without news ends at the very same offset, whether or not that identifies a snapshot.
            return StreamStep(start if start == end else _identified(state, end), 0)
        files = size = rows = 0
        at = start
        while at.snapshot < end.snapshot:
            units = self._units(state, self._then(state, at), at)
            for number in range(at.index, len(units)):
                unit = units[number]
                over = (
                    (limits.files is not None and files + unit.count > limits.files)
                    or (limits.bytes is not None and size + unit.size > limits.bytes)
                    or (limits.rows is not None and rows + unit.rows > limits.rows)
                )
                if over and files:
                    return StreamStep(_identified(state, StreamOffset(at.snapshot, number, at.full)), rows)
                files, size, rows = files + unit.count, size + unit.size, rows + unit.rows
            at = StreamOffset(at.snapshot + 1)
        return StreamStep(start if at == start else _identified(state, at), rows)

    def _first_delayed(self, state: TableState, last: int) -> int:
        """The id of the first snapshot that is younger than the delay; ``last``, the next id, if none is."""
        delay = state.schema.opts.of(opt.STREAMING_DELAY)
        young = first_snapshot_from(state, _clock.now_ms() - delay + 1) if delay else None
        return last if young is None else young.id

    def scans(self, start: StreamOffset, end: StreamOffset) -> Iterator[TableScan]:
        """The changes between two offsets, snapshot by snapshot, as scans of all columns.

        Raises :class:`NotFound` if snapshots between them have expired, or were rolled back.
        """
        state = self._table.state()
        _check_read(state, start)
        _check_read(state, end)  # the step may be read again after a rollback of the snapshot at which it ended
        at = start
        while (at.snapshot, at.index) < (end.snapshot, end.index):
            then = self._then(state, at)
            units = self._units(state, then, at)
            stop = end.index if at.snapshot == end.snapshot else len(units)
            if stop > len(units) or (at.index and at.index >= len(units)):
                raise InvalidRequest(
                    f"table '{state.name}': snapshot {at.snapshot} has {len(units)} units, and the checkpoint speaks "
                    f"of unit {max(stop, at.index)}; it is of another table, or was written by another version"
                )
            files = [e for u in units[at.index : stop] for e in u.files]
            removed = [e for u in units[at.index : stop] for e in u.removed]
            between_levels = frozenset[str]().union(*(u.between_levels for u in units[at.index : stop]))
            if between_levels:
                data = [e for e in files if e.file.file_name in between_levels]
                files = [e for e in files if e.file.file_name not in between_levels]
                yield self._at_new_level(state, then, data)
            if removed and self._kinds:
                yield self._retractions(state, then, removed)
            placed = [e for e in files if e.bucket != POSTPONE_BUCKET]
            if placed:
                yield self._scan(state, then, at, placed)
            if len(placed) < len(files):
                # Postponed rows have no order of keys yet: they come one by one, as they were written.
                postponed = [e for e in files if e.bucket == POSTPONE_BUCKET]
                postponed.sort(key=lambda e: e.file.creation_time or 0)
                base = self._table.scan_of(of_files(state, postponed, merged=False))
                yield ChangeScan.of(base, kinded=self._kinds)
            at = StreamOffset(at.snapshot + 1)

    def moves_keys(self, start: StreamOffset, end: StreamOffset) -> bool:
        """Whether a key may be in one bucket of its partition at ``start`` and in another one before ``end``.

        Overwrites place keys in buckets again (a rescale is one).  Postponed rows are not in the bucket of their key.
        """
        state = self._table.state()
        if not state.schema.primary_keys or state.schema.num_buckets == POSTPONE_BUCKET:
            return bool(state.schema.primary_keys)
        between = range(start.snapshot + 1, end.snapshot)
        return any(s.commit_kind == "OVERWRITE" for s in versions.existing_snapshots(state.table_files, between))

    def _units(self, state: TableState, then: TableState, at: StreamOffset) -> list[StreamUnit]:
        unit = self._whole_unit(state, then, at)
        if not state.schema.primary_keys:
            return [StreamUnit((e,)) for e in unit.files]
        if unit.count and not at.full and is_cross_partition(state.schema):
            return [unit]
        files, removed = by_bucket(unit.files), by_bucket(unit.removed)
        # Postponed rows are newer than those that a compaction has brought to their buckets.
        slots = sorted({**files, **removed}, key=lambda slot: slot[1] == POSTPONE_BUCKET)
        return [StreamUnit(tuple(files.get(s, ())), unit.between_levels, tuple(removed.get(s, ()))) for s in slots]

    def _whole_unit(self, state: TableState, then: TableState, at: StreamOffset) -> StreamUnit:
        """All files of an offset's snapshot as one unit."""
        try:
            if at.full:
                level = _first_emitted_level(then.schema)
                postponed = _emits_postponed(then.schema)
                entries = (e for e in then.entries() if postponed or e.bucket != POSTPONE_BUCKET)
                return StreamUnit(tuple(e for e in entries if e.file.level >= level))
            between = SnapshotRange(at.snapshot - 1, at.snapshot)
            mode = mode_of(then, between, "auto")
            try:
                files = changed_files(state, between, mode)
            except NotFound:
                changelog = find_changelog(state.table_files, at.snapshot)
                if changelog is None:
                    raise
                files = files_of_changes(state, [changelog], mode)
            others = self._between_levels(state, then, at)
            names = frozenset(e.file.file_name for e in others if e.bucket != POSTPONE_BUCKET)
            added, removed = overwritten_files(state, self._overwrite(state, at))
            return StreamUnit((*others, *files, *added), names, tuple(removed))
        except NotFound as e:
            raise self._expired(state, at) from e

    def _overwrite(self, state: TableState, at: StreamOffset) -> Snapshot | None:
        """The snapshot of an offset, or its long-lived changelog, if the table's options ask for overwrites."""
        keyed = bool(state.schema.primary_keys)
        if not state.schema.opts.of(opt.STREAMING_OVERWRITE if keyed else opt.STREAMING_APPEND_OVERWRITE):
            return None
        return versions.find_snapshot(state.table_files, at.snapshot) or find_changelog(state.table_files, at.snapshot)

    def _between_levels(self, state: TableState, then: TableState, at: StreamOffset) -> list[ManifestEntry]:
        """Files of the levels that only the former or only the new changelog producer has emitted.

        Empty unless the changelog producer was changed with this snapshot.  If the table has given up its changelog,
        they include the postponed files, since compactions emit nothing any more.
        """
        if at.full or not state.schema.primary_keys or not then.schema.id or then.snapshot_id != at.snapshot:
            return []
        try:
            before = _state_before(state, then)
        except NotFound:
            if self._keeps_producer(state, then):
                return []
            raise
        low, high = sorted((_first_emitted_level(then.schema), _first_emitted_level(before.schema)))
        postponed = not _emits_postponed(before.schema) and _emits_postponed(then.schema)
        if low == high and not postponed:
            return []
        return [
            e
            for e in before.entries()
            if (postponed if e.bucket == POSTPONE_BUCKET else e.bucket >= 0 and low <= e.file.level < high)
        ]

    def _keeps_producer(self, state: TableState, changelog: TableState) -> bool:
        """Whether the producers of a long-lived changelog and of the one before it, if kept, emit the same levels."""
        assert changelog.snapshot is not None
        if versions.find_snapshot(state.table_files, changelog.snapshot.id) is not None:
            return False
        before = find_changelog(state.table_files, changelog.snapshot.id - 1)
        schemas = [changelog.schema] if before is None else [state_of(state, before).schema, changelog.schema]
        return len({(_first_emitted_level(s), _emits_postponed(s)) for s in schemas}) == 1

    def _at_new_level(self, state: TableState, then: TableState, files: list[ManifestEntry]) -> TableScan:
        """The changes from the rows that the former changelog producer has emitted to those of the new one.

        ``files`` are those between the two levels.  If the new producer does not wait for compactions, all their rows
        are such changes.
        """
        if then.schema.opts.of(opt.CHANGELOG_PRODUCER) not in _COMPACTED:
            base = self._table.scan_of(of_files(state, files, merged=True)).with_level_0()
            return ChangeScan.of(base, kinded=True) if self._kinds else base
        before = _state_before(state, then)
        schema = with_vector_mode_of(state.schema, before.schema)
        buckets = {(e.partition, e.bucket) for e in files}
        entries = [e for e in before.entries() if (e.partition, e.bucket) in buckets]

        def emitted_by(producer: TableSchema) -> TableScan:
            level = _first_emitted_level(producer)
            emitted = tuple(e for e in entries if e.file.level >= level)
            scan = self._table.scan_of(
                FilesState(state.name, state.paths, state.store, schema, before.snapshot, emitted)
            )
            return scan if level else scan.with_level_0()

        return ChangeScan.of(emitted_by(then.schema), emitted_by(before.schema), kinded=self._kinds)

    def _retractions(self, state: TableState, then: TableState, removed: list[ManifestEntry]) -> TableScan:
        """The rows of files that an overwrite removed, as -D."""
        assert then.snapshot_id is not None
        if versions.find_snapshot(state.table_files, then.snapshot_id - 1) is not None:
            before = _state_before(state, then)
            schema = with_vector_mode_of(state.schema, before.schema)
            below = FilesState(state.name, state.paths, state.store, schema, before.snapshot, tuple(removed))
        else:  # the deletion vectors of that snapshot have expired
            below = of_files(state, removed, merged=True)
        nothing = self._table.scan_of(of_files(state, (), merged=True))
        return ChangeScan.of(nothing, self._table.scan_of(below).with_level_0(), kinded=True)

    def _expired(self, state: TableState, at: StreamOffset) -> NotFound:
        kept = versions.kept_words(versions.snapshot_ids(state.table_files))
        return NotFound(
            f"table '{state.name}': the stream stands at snapshot {at.snapshot}, which has expired ({kept}): what "
            "came with it is lost to the stream; start again with another checkpoint, and keep snapshots longer, "
            "or give the stream a 'consumer-id', which holds expiry back"
        )

    def _scan(self, state: TableState, then: TableState, at: StreamOffset, files: list[ManifestEntry]) -> TableScan:
        if at.full:
            schema = with_vector_mode_of(state.schema, then.schema)
            below = FilesState(state.name, state.paths, state.store, schema, then.snapshot, tuple(files))
            base = self._table.scan_of(below)
            if state.schema.primary_keys and not _first_emitted_level(then.schema):
                base = base.with_level_0()
            if not self._kinds:
                return base
            scan = ChangeScan.of(base, kinded=True)
            # The deletion in a key's old partition must not be applied after the key's row in its new partition.
            return scan.where(f"{ROW_KIND} IN ('+I', '+U')") if is_cross_partition(state.schema) else scan
        between = SnapshotRange(at.snapshot - 1, at.snapshot)
        overwritten = then.snapshot is not None and then.snapshot.commit_kind == "OVERWRITE"
        delta = overwritten or mode_of(then, between, "auto") == "delta"
        base = self._table.scan_of(of_files(state, files, merged=delta)).with_level_0()
        return base if delta and not self._kinds else ChangeScan.of(base, kinded=self._kinds)

    def _then(self, state: TableState, at: StreamOffset) -> TableState:
        """The table at an offset's snapshot or its long-lived changelog; ``state`` for an unused id."""
        if not at.full and not state.schema.primary_keys:
            return state
        try:
            return state_at(state, at.snapshot)
        except NotFound as e:
            if at.full:
                raise self._expired(state, at) from e
            changelog = find_changelog(state.table_files, at.snapshot)
            return state if changelog is None else state_of(state, changelog)


def _state_before(state: TableState, then: TableState) -> TableState:
    """The table at the snapshot before the one of ``then``.

    If that snapshot has expired, the later one names its files, and the newest of these has its schema.
    """
    assert then.snapshot is not None
    with contextlib.suppress(NotFound):  # it has expired, or ids have a gap
        return state_at(state, then.snapshot.id - 1)
    ids = [i for i in versions.snapshot_ids(state.table_files) if i < then.snapshot.id]
    if ids:
        with contextlib.suppress(NotFound):  # it has expired since it was listed
            return state_at(state, ids[-1])
    with then.reading_manifests():
        manifests = read_manifest_list(state.table_files, then.snapshot.base_manifest_list)
        entries = live_entries(read_manifests(state.table_files, manifests))
    newest = max((e.file.schema_id for e in entries), default=then.schema.id)
    schema = state.schemas([newest])[newest]
    return FilesState(state.name, state.paths, state.store, schema, then.snapshot, tuple(entries))


def _identified(state: TableState, offset: StreamOffset) -> StreamOffset:
    """The offset with what identifies the last snapshot read."""
    if state.snapshot is not None and state.snapshot.id == offset.last_read:
        return replace(offset, read=name_of(state.snapshot))
    ids = [offset.last_read] if offset.last_read else []
    snapshot = next(versions.existing_snapshots(state.table_files, ids), None)
    return replace(offset, read=None if snapshot is None else name_of(snapshot))


def _check_read(state: TableState, offset: StreamOffset) -> None:
    """Raise :class:`NotFound` if the last snapshot read is not part of the table's history any more.

    One that has expired is not checked.
    """
    now = _identified(state, offset).read
    if offset.read is None or offset.read == now:
        return
    ids = versions.snapshot_ids(state.table_files)
    if now is not None or not ids or offset.last_read > ids[0]:
        raise NotFound(
            f"table '{state.name}': the stream stands at snapshot {offset.snapshot}, and the snapshot "
            f"{offset.last_read} that it has read is not in the table's history: the table was rolled back, or is "
            "another one; start again with another checkpoint"
        )


def _first_emitted_level(schema: TableSchema) -> int:
    """The lowest level whose rows the changelog has emitted; rows of lower levels are emitted later."""
    if not schema.primary_keys or schema.opts.of(opt.CHANGELOG_PRODUCER) not in _COMPACTED:
        return 0
    return 1 if schema.opts.of(opt.CHANGELOG_PRODUCER) == "lookup" else max_level(schema.opts)


def _emits_postponed(schema: TableSchema) -> bool:
    """Whether streams read postponed rows before a compaction brings them to their buckets."""
    return schema.opts.of(opt.CHANGELOG_PRODUCER) == "none"


def moved_last(rows: pa.Table, places: Int64s, keys: Sequence[str]) -> pa.Table:
    """Rows with their kinds, ordered so that of each key the rows of the place where it is now come last.

    ``places`` has a number for each row.  A place's rows of a key are in order and stay so.
    """
    groups = group_rows([pa.array(places), *(rows.column(k) for k in keys)], [np.arange(len(places))])
    added = np.isin(rows.column(ROW_KIND).to_numpy(), [KIND_NAMES[kind] for kind in ADDED])
    present = np.empty(len(places), bool)
    present[groups.order] = np.repeat(added[groups.last], groups.sizes)
    return rows.take(pa.array(np.argsort(present, kind="stable")))
