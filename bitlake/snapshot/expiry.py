"""Expire snapshots and partitions: find which are too old, and delete the files that only they needed.

With a snapshot expire, unless a kept snapshot, tag or branch needs them:

* data files, and the files beside them, that the snapshots from the second expired one to the first kept one deleted;
  a file that a snapshot both deletes and adds only changes its level;
* changelog files of the expired snapshots;
* their manifests, manifest lists, index manifests, table index files and statistics.

Order: a marker file announces which snapshots expire (:mod:`bitlake.snapshot.removal_markers`); consumers, rollbacks,
tags and branches are read; the EARLIEST hint is written; data and changelog files, metadata and snapshot files are
deleted, and last the marker.  If the process dies at any step, the kept snapshots are whole, and the next expiry
deletes the rest.  Empty folders stay, as in Paimon by default: a writer may be about to use one.

Consumers without progress for ``consumer.expiration-time`` expire first, so that they hold nothing back.

Source: table-format spec, section 9.4; which snapshots expire is Paimon's rule (``snapshot.*`` options).

Partitions expire by a time in their values, or by when their last file was written; the limits come from
:mod:`bitlake.metadata.options`.
"""

from __future__ import annotations

import logging
import re
from calendar import monthrange
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from itertools import pairwise
from typing import Any, TypeAlias

from bitlake import _clock
from bitlake.errors import BitlakeError, InvalidRequest, UnsupportedFeature
from bitlake.formatting import DAY_MS, counted
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import EntryKind
from bitlake.metadata.option_types import time_pattern
from bitlake.metadata.options import COLUMN, PartitionAge
from bitlake.metadata.paths import TablePaths, render_value
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import BATCH_IDENTIFIER, Snapshot
from bitlake.progress import of_items
from bitlake.runtime import REQUESTS, LocalRunner
from bitlake.snapshot import removal_markers
from bitlake.snapshot.consumers import delete_consumers_before, least_next_snapshot
from bitlake.snapshot.file_columns import columns_of_files
from bitlake.snapshot.iceberg_manifests import forget_expired
from bitlake.snapshot.manifests import PartitionFilter, rolled_back_to
from bitlake.snapshot.partitions import PartitionReader
from bitlake.snapshot.references import Needed, listed_entries, metadata_files, removed_files
from bitlake.snapshot.state import TableState
from bitlake.snapshot.table_files import TableFiles, check_history, delete_files
from bitlake.snapshot.versions import earliest_snapshot_id, existing_snapshots, load_snapshot
from bitlake.types import AtomicType


@dataclass(frozen=True, slots=True)
class Retention:
    """Limits of the snapshots that may expire; None means the value of the table's option."""

    retain_max: int | None = None
    retain_min: int | None = None
    older_than_ms: int | None = None
    max_deletes: int | None = None


@dataclass(frozen=True, slots=True)
class Expiry:
    """The deletions of an expiry: the snapshots from ``first`` to before ``end``, and files (full paths).

    >>> limits = {"retain_max": 1, "retain_min": 1, "older_than": timedelta(days=1)}
    >>> expiry = table.maintenance.expire_snapshots(**limits, dry_run=True)
    >>> expiry.snapshots, len(expiry.data_files), len(expiry.metadata_files)
    ((1,), 0, 2)
    """

    first: int
    end: int
    snapshots: tuple[int, ...] = ()
    data_files: tuple[str, ...] = ()
    metadata_files: tuple[str, ...] = ()

    def __repr__(self) -> str:
        files = len(self.data_files) + len(self.metadata_files)
        return f"Expiry({counted(len(self.snapshots), 'snapshot')} before {self.end}, {counted(files, 'file')})"


def plan_expiry(table: TableFiles, schema: TableSchema, retention: Retention) -> Expiry:
    """Find what an expiry would delete now; raises :class:`InvalidRequest` for limits that contradict each other."""
    return removal_markers.steadily(
        lambda: _plan(table, schema, _range(table, schema, retention, _consumers_since(schema)))
    )


def expire(table: TableFiles, schema: TableSchema, retention: Retention) -> Expiry:
    """Delete what :func:`plan_expiry` finds, also while others write, tag or expire; returns what was deleted.

    Raises :class:`StorageUnavailable` if the store fails; the next call resumes.
    """
    return removal_markers.steadily(lambda: _expire(table, schema, retention))


def _expire(table: TableFiles, schema: TableSchema, retention: Retention) -> Expiry:
    check_history(table.store, table.paths)
    line = removal_markers.load_line(table)
    if line.records:
        removal_markers.delete_strays(table, line.announced)
    since = _consumers_since(schema)
    if since is not None:
        delete_consumers_before(table, since)
    going = _range(table, schema, retention, since)
    if going.end <= going.first:
        return Expiry(going.first, going.first)
    own = _announce(table, going)
    try:
        # A consumer or rollback may have been created before it could see the announcement.
        needed = _first_needed(table, schema, since, removal_markers.load_line(table))
        if needed is not None and max(needed, going.begun) < going.end:
            fewer = going.until(max(needed, going.begun, going.first))
            first = own
            if fewer.end > fewer.first:
                own = _announce(table, fewer)
            table.store.delete(f"{table.paths.snapshot_dir}/{first}")
            going = fewer
        expiry = _plan(table, schema, going)
    except BaseException:
        table.store.delete(f"{table.paths.snapshot_dir}/{own}")
        raise
    if expiry.end > expiry.first:
        table.store.write(table.paths.earliest_hint, str(expiry.end).encode())
        runner = LocalRunner(REQUESTS)
        delete_files(table.store, expiry.data_files, runner, table.paths.roots)
        delete_files(table.store, expiry.metadata_files, runner, table.paths.roots)
        delete_files(
            table.store, [table.paths.snapshot(number) for number in expiry.snapshots], runner, table.paths.roots
        )
        for name in (*going.markers, own, *_dead_holds(table, going)):
            table.store.delete(f"{table.paths.snapshot_dir}/{name}")
        forget_expired(table, schema, expiry.end)
    return expiry


def _announce(table: TableFiles, going: _Going) -> str:
    name = removal_markers.new_marker(going.end)
    table.store.write(f"{table.paths.snapshot_dir}/{name}", str(going.first).encode())
    return name


# --- which snapshots --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Going:
    """The snapshots that expire, from ``first`` to before ``end``; ``markers`` are files of begun expiries."""

    first: int
    end: int
    markers: tuple[str, ...] = ()
    begun: int = 0
    """The snapshots before this one were announced by an earlier call."""
    ids: tuple[int, ...] = ()
    """All snapshots, ascending; there may be gaps."""
    holds: tuple[str, ...] = ()
    """The files of rollbacks that run, or died."""

    def until(self, end: int) -> _Going:
        """The same range up to ``end``, or to the first snapshot after it if that one does not exist."""
        return replace(self, end=next((i for i in self.ids if i >= end), end))


def _range(table: TableFiles, schema: TableSchema, retention: Retention, consumers_since: int | None) -> _Going:
    options = opt.Options(schema.options)
    most = retention.retain_max if retention.retain_max is not None else options.of(opt.SNAPSHOT_RETAINED_MAX)
    least = retention.retain_min if retention.retain_min is not None else options.of(opt.SNAPSHOT_RETAINED_MIN)
    if retention.retain_max is not None and retention.retain_min is None:
        least = min(least, most)
    if least < 1 or most < least:
        raise InvalidRequest(f"retain_max ({most}) must be at least retain_min ({least}), and retain_min at least 1")
    _check_changelogs(options, table.paths)
    limit = retention.max_deletes if retention.max_deletes is not None else options.of(opt.SNAPSHOT_EXPIRE_LIMIT)
    older = retention.older_than_ms
    if older is None:
        older = _clock.now_ms() - options.of(opt.SNAPSHOT_TIME_RETAINED)
    line = removal_markers.load_line(table)
    first = earliest_snapshot_id(table)
    if not line.ids or first is None:
        return _Going(0, 0)
    latest = line.ids[-1]
    first = max(first, line.end)
    end = min(latest - least + 1, first + limit)
    needed = _first_needed(table, schema, consumers_since, line)
    if needed is not None:
        end = min(end, needed)
    for number, successor in pairwise(line.ids):
        if not max(latest - most + 1, first) <= number < end:
            continue
        # A snapshot is the latest until its successor is committed: its age counts from then.
        following = next(existing_snapshots(table, [successor]), None)
        if following is not None and following.time_millis >= older:
            end = number
            break
    begun = removal_markers.begun_at(table, line.markers)
    if begun is None:
        return _Going(first, first, ids=line.ids, holds=line.holds).until(max(end, first))
    # Snapshots that a killed expiry announced are partly deleted, so they expire whatever the limits are now.
    return _Going(min(first, begun), first, line.markers, line.end, line.ids, line.holds).until(max(end, first))


def _first_needed(
    table: TableFiles, schema: TableSchema, consumers_since: int | None, line: removal_markers.Line
) -> int | None:
    """The first snapshot that a consumer or a running rollback needs; None if there is none."""
    ignored = schema.opts.of(opt.CONSUMER_CHANGELOG_ONLY)
    needed = (None if ignored else least_next_snapshot(table, consumers_since), line.held)
    return min((number for number in needed if number is not None), default=None)


def _consumers_since(schema: TableSchema) -> int | None:
    """The time since which a consumer must have made progress to be kept, in epoch milliseconds; None keeps all."""
    age = schema.opts.of(opt.CONSUMER_EXPIRATION_TIME)
    return None if age is None else _clock.now_ms() - age


def _fences(table: TableFiles, going: _Going) -> list[Snapshot]:
    """The fences of killed rollbacks after the expiring snapshots: each restores deleted files."""
    later = [i for i in going.ids if i >= going.end] if going.holds else []
    return [s for s in existing_snapshots(table, later) if rolled_back_to(s) is not None]


def _dead_holds(table: TableFiles, going: _Going) -> list[str]:
    """The holds of killed rollbacks without a fence."""
    live = [s.uuid for s in _fences(table, going)]
    since = _clock.now_ms() - removal_markers.HOLD_MS
    return [
        h
        for h in going.holds
        if removal_markers.parse_hold(h)[1] <= since and not any(h.endswith(f"-{uuid}") for uuid in live)
    ]


_LONGER = (
    (opt.CHANGELOG_RETAINED_MAX, opt.SNAPSHOT_RETAINED_MAX),
    (opt.CHANGELOG_RETAINED_MIN, opt.SNAPSHOT_RETAINED_MIN),
    (opt.CHANGELOG_TIME_RETAINED, opt.SNAPSHOT_TIME_RETAINED),
)


def _check_changelogs(options: opt.Options, paths: TablePaths) -> None:
    """Raise :class:`UnsupportedFeature` if changelogs outlive their snapshots: this expiry would delete them."""
    for changelog, snapshot in _LONGER:
        longer = options.of(changelog)
        if longer is not None and longer > options.of(snapshot):
            raise UnsupportedFeature(
                f"table {paths.root}: '{changelog.name}' keeps changelogs longer than '{snapshot.name}' keeps "
                "snapshots, and this expiry would delete them; raise the snapshots' option, unset the changelogs', or "
                "let "
                "Paimon expire this table"
            )


# --- which files ------------------------------------------------------------------------------------------------------


def _plan(table: TableFiles, schema: TableSchema, going: _Going) -> Expiry:
    first, end = going.first, going.end
    if end <= first:
        return Expiry(first, first)
    runner = LocalRunner(REQUESTS)
    expired = list(existing_snapshots(table, (i for i in going.ids if first <= i < end)))
    kept = load_snapshot(table, end)
    partitions = PartitionReader(schema, table.paths)
    deltas = [s.delta_manifest_list for s in [*expired[1:], kept]]
    of_items("snapshots looked at")
    removed = [e for found in runner.run(deltas, partial(removed_files, table)) for e in found]
    # Of a million live files, only those of partitions that lost files are compared.  Every manifest is read: wrong
    # statistics of another writer must not make a file look unneeded.
    only = PartitionFilter(lambda _: True, frozenset(e.partition for e in removed))
    needed = Needed.beside(table, kept, only)
    for fence in _fences(table, going):
        needed.add(fence)
    data: dict[str, None] = {}
    for entry in removed:
        if not needed.data_file(entry):
            data |= dict.fromkeys(partitions.file_paths(entry))
    changelogs = [s.changelog_manifest_list for s in expired if s.changelog_manifest_list is not None]
    changelogs = [name for name in changelogs if not needed.changelog(name)]
    of_items("changelogs looked at")
    for changes in runner.run(changelogs, lambda name: list(listed_entries(table, name))):
        for entry in changes:
            if entry.kind is EntryKind.ADD:
                data |= dict.fromkeys(partitions.file_paths(entry))
    metadata: dict[str, None] = {}
    of_items("snapshots looked at")
    for paths in runner.run(expired, lambda s: list(metadata_files(table, schema, s, needed))):
        metadata |= dict.fromkeys(paths)
    return Expiry(first, end, tuple(s.id for s in expired), tuple(data), tuple(metadata))


log = logging.getLogger("bitlake")

_MINUS = r"(?:-(?!0+(?!\d)))?"
_DEFAULT_TIME = re.compile(
    rf"(?P<year>{_MINUS}\d{{1,10}})-(?P<month>{_MINUS}\d{{1,2}})-(?P<day>{_MINUS}\d{{1,2}})"
    rf"(?: (?P<hour>{_MINUS}\d{{1,2}}):(?P<minute>{_MINUS}\d{{1,2}}):(?P<second>{_MINUS}\d{{1,2}})"
    r"(?:\.(?P<fraction>\d{1,9}))?)?",
    re.ASCII,
)
"""How partitions write their time where the table has no formatter.  A number may be negative, but not -0."""
_LAST_YEAR = 999_999_999
"""The last year of Java's dates; the first is -999,999,999."""


def expired_partitions(state: TableState, age: PartitionAge, most: int | None = None) -> list[dict[str, Any]]:
    """The partitions that are too old, the oldest first, as physical values by column; at most ``most``.

    A partition whose values are NULL or not a time does not expire.  Raises :class:`InvalidRequest` for options that
    do not fit the partition columns.
    """
    schema = state.schema
    if not schema.partition_keys:
        raise InvalidRequest(f"table '{state.name}' is not partitioned, so no partition can expire")
    age.check(schema.partition_keys)
    entries = state.entries()
    reader = PartitionReader(schema, state.paths)
    # Both times are the local wall clock, as if UTC.
    limit = _clock.local_ms() - age.limit_ms
    last: dict[bytes, int] = {}
    if age.strategy == "update-time":
        for e in entries:
            last[e.partition] = max(last.get(e.partition, 0), e.file.creation_time or 0)
    else:
        last = dict.fromkeys(columns_of_files(entries).partitions[0], 0)
    times = _PartitionTime(schema, age)
    expired = []
    for raw, written in last.items():
        values = reader.values(raw)
        at = written if age.strategy == "update-time" else times.of(values)
        if at is not None and at < limit:
            expired.append((at, reader.folder(raw), dict(zip(schema.partition_keys, values, strict=True))))
    expired.sort(key=lambda partition: partition[:2])
    return [values for _, _, values in expired[:most]]


def max_expired_partitions(schema: TableSchema) -> int | None:
    """The table option ``partition.expiration-max-num``; None, for all partitions, if the table does not set it."""
    limit = opt.PARTITION_EXPIRATION_MAX_NUM
    return schema.opts.of(limit) if limit.name in schema.options else None


DropPartitions: TypeAlias = Callable[..., object]
"""Deletes the rows of the given partitions (physical values by column) in one commit."""


def drop_expired(
    now: Callable[[], TableState], drop: DropPartitions, age: PartitionAge, most: int | None = None
) -> list[dict[str, Any]]:
    """Drop the partitions that are too old, at most ``most``; returns their values by column.

    ``now`` loads the table's state; ``drop`` deletes the rows of partitions in one commit.  As in Paimon, one commit
    drops ``partition.expiration-batch-size`` partitions, or all.
    """
    state = now()
    expired = expired_partitions(state, age, most)
    size = state.schema.opts.of(opt.PARTITION_EXPIRATION_BATCH_SIZE) or len(expired)
    dropped = []
    for start in range(0, len(expired), size or 1):
        batch = expired[start : start + size]
        if age.strategy == "update-time":  # a partition that was written to meanwhile is not old any more
            old = {tuple(values.values()) for values in expired_partitions(now(), age)}
            batch = [values for values in batch if tuple(values.values()) in old]
        if batch:
            drop(*batch)
        dropped += batch
    return dropped


def expire_after_commit(
    now: Callable[[], TableState], drop: DropPartitions, state: TableState, identifier: int
) -> None:
    """Expire partitions after a batch commit to ``state``, if ``end-input.check-partition-expire`` asks for it.

    As in Paimon, ``partition.expiration-check-interval`` does not matter then, and a table without partitions or
    without ``partition.expiration-time`` is not changed.  The caller's commit has taken place: a failure is logged, and
    the next commit tries again.
    """
    options = state.schema.opts
    if (
        identifier != BATCH_IDENTIFIER
        or not options.of(opt.END_INPUT_CHECK_PARTITION_EXPIRE)
        or not state.schema.partition_keys
    ):
        return
    try:
        age = PartitionAge.of(state.schema.options)
        for values in drop_expired(now, drop, age, options.of(opt.PARTITION_EXPIRATION_MAX_NUM)) if age else ():
            log.info("%s: partition %s expired", state.name, values)
    except BitlakeError as e:
        log.warning("%s: the commit succeeded, but expiring partitions failed: %s", state.name, e)


_EPOCH = date(1970, 1, 1).toordinal()


class _PartitionTime:
    """Parses the time in a partition's values: milliseconds of the wall clock, as if UTC.

    Source: Paimon's ``PartitionTimeExtractor``.
    """

    def __init__(self, schema: TableSchema, age: PartitionAge) -> None:
        self._fields = schema.partition_fields
        self._has_pattern = age.pattern is not None
        self._pattern = age.pattern or f"${self._fields[0].name}"
        self._time = _DEFAULT_TIME if age.formatter is None else time_pattern(age.formatter)
        self._lenient = age.formatter is None

    def of(self, values: tuple[Any, ...]) -> int | None:
        texts = {}
        for f, v in zip(self._fields, values, strict=True):
            assert isinstance(f.type, AtomicType)
            texts[f.name] = None if v is None else render_value(f.type, v, legacy=False)
        # As in Paimon, a pattern takes no partition with a NULL, even in a column that it does not name.
        if texts[self._fields[0].name] is None or (self._has_pattern and None in texts.values()):
            return None
        match = self._time.fullmatch(COLUMN.sub(lambda m: str(texts[m.group(1)]), self._pattern))
        return None if match is None else _millis(match.groupdict(), self._lenient)


def _millis(parts: Mapping[str, str | None], lenient: bool) -> int | None:
    """The time that parts name; None if the day is missing or a part is out of its range.

    Java's formatters take day 31 of a shorter month for its last day.  A ``lenient`` one carries over what is out of
    range: month 13 is the next January, month 0 the December before, and hour 25 the next day.
    """
    if not (parts.get("year") and parts.get("month") and parts.get("day")):
        return None
    year, month, day = (int(parts[n] or 0) for n in ("year", "month", "day"))
    hour, minute, second = (int(parts.get(n) or 0) for n in ("hour", "minute", "second"))
    clock = ((hour * 60 + minute) * 60 + second) * 1000 + int((parts.get("fraction") or "").ljust(3, "0")[:3])
    if lenient:
        if abs(year) > _LAST_YEAR:
            return None
        years, month = divmod(month - 1, 12)
        year, month = year + years, month + 1
        days = _days(year, month) + day - 1
        end = _days(_LAST_YEAR + 1, 1) * DAY_MS
        at = days * DAY_MS + clock
        return at if abs(year) <= _LAST_YEAR and _days(-_LAST_YEAR, 1) * DAY_MS <= at < end else None
    if 0 < month < 13 and 0 < day < 32 and minute < 60 and second < 60 and clock <= DAY_MS:
        year += 2000 if len(parts["year"] or "") == 2 else 0
        day = min(day, monthrange(year, month)[1])
    else:
        return None
    return (_days(year, month) + day - 1) * DAY_MS + clock if year > 0 else None


def _days(year: int, month: int) -> int:
    """The days from 1970-01-01 to the first day of a month of the Gregorian calendar, which repeats in 400 years."""
    cycles, rest = divmod(year, 400)
    return date(400 + rest, month, 1).toordinal() - _EPOCH + (cycles - 1) * 146_097
