"""Tags: named snapshots, whose files are kept until the tag is deleted.

``tag/tag-<name>`` is a copy of the snapshot's file; with a retention it has two more members:
``tagCreateTime`` (local time as [year, month, day, hour, minute, second, nanosecond]) and ``tagTimeRetained`` (seconds
with nine decimals).

With ``tag.create-success-file`` there is ``tag/tag-success-file/<name>_SUCCESS`` beside each complete tag.

Deleting a tag deletes the files that only it kept, as in Paimon, except that files stay that another branch needs.

Each change of a tag is repeated as an Iceberg ref, where the table's options ask for Iceberg metadata
(:mod:`bitlake.snapshot.iceberg_metadata`).

Automatic tags
--------------
Commits can create tags: one per period, of the first snapshot after its end, or one that every write moves.

The options ``tag.*`` define the period, the tags' names, and how many of these tags are kept.  A commit takes place
before its tags are created: if that fails, the next commit creates them.

Sources: table-format spec, section 3; Paimon's TagAutoCreation, TagPeriodHandler, TagBatchCreation and TagTimeExpire,
and when its commits call them.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from bitlake import _clock, arguments
from bitlake.errors import AlreadyExists, BitlakeError, CorruptError, InvalidRequest, NotFound
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import EntryKind
from bitlake.metadata.options import TAG_DEFAULT_RETAINED, Options
from bitlake.metadata.snapshot import Snapshot
from bitlake.snapshot import versions
from bitlake.snapshot.iceberg_manifests import sync_refs
from bitlake.snapshot.manifests import live_files
from bitlake.snapshot.partitions import PartitionReader, write_success_file
from bitlake.snapshot.references import Needed, listed_entries, metadata_files
from bitlake.snapshot.removal_markers import load_line, steadily
from bitlake.snapshot.state import TableState
from bitlake.snapshot.table_files import discard_files, not_through_links
from bitlake.types import time_zone

log = logging.getLogger("bitlake")


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag and its snapshot; with a retention, its creation time and retention in milliseconds.

    >>> table.history.create_tag("january", retain=timedelta(days=365))
    True
    >>> tag = table.history.tags()["january"]
    >>> tag.snapshot.id, timedelta(milliseconds=tag.retained_ms)
    (2, datetime.timedelta(days=365))
    """

    name: str
    snapshot: Snapshot
    created_ms: int | None = None
    retained_ms: int | None = None

    def __repr__(self) -> str:
        return f"Tag({self.name}: snapshot {self.snapshot.id})"

    def expired(self, now_local_ms: int) -> bool:
        """Whether its retention is over; ``now_local_ms`` is as :func:`bitlake._clock.local_ms` gives it."""
        return (
            self.created_ms is not None
            and self.retained_ms is not None
            and self.created_ms + self.retained_ms < now_local_ms
        )


def list_tags(state: TableState, names: Iterable[str] | None = None) -> list[Tag]:
    """The tags with these names, all by default, without those deleted meanwhile.

    Raises :class:`CorruptError` naming one that cannot be read.
    """
    tags = []
    for name in versions.tag_names(state.table_files) if names is None else names:
        with contextlib.suppress(NotFound):
            tags.append(load_tag(state, name))
    return tags


def load_tag(state: TableState, name: str) -> Tag:
    """Load one tag; raises :class:`NotFound`, naming the existing tags."""
    path = state.paths.tag(name)
    try:
        data = state.store.read(path)
    except NotFound as e:
        have = ", ".join(versions.tag_names(state.table_files)) or "none"
        raise NotFound(f"table '{state.name}' has no tag '{name}'; its tags: {have}") from e
    snapshot = versions.parse_snapshot(state.table_files, path, data)
    members = json.loads(data)
    try:
        return Tag(name, snapshot, _created(members), _retained(members))
    except (TypeError, ValueError, OverflowError) as e:
        raise CorruptError(f"the retention of a tag cannot be parsed ({e})", 0, path=path) from e


def _created(members: dict[str, object]) -> int | None:
    parts = members.get("tagCreateTime")
    if not isinstance(parts, list):
        return None
    # Java leaves out seconds and nanoseconds that are 0.
    year, month, day, hour, minute, second, nanos = [*map(int, parts), 0, 0][:7]
    at = datetime(year, month, day, hour, minute, second, nanos // 1000, UTC)
    return int(at.timestamp() * 1000)


def _retained(members: dict[str, object]) -> int | None:
    seconds = members.get("tagTimeRetained")
    return None if seconds is None else round(float(str(seconds)) * 1000)


# --- creating, moving and deleting ------------------------------------------------------------------------------------


def create_tag(
    state: TableState,
    name: str,
    snapshot_id: int | None = None,
    *,
    retained_ms: int | None = None,
    if_not_exists: bool = False,
) -> bool:
    """Tag a snapshot (default: the latest); returns False if the tag exists and ``if_not_exists``.

    ``retained_ms``: the retention in milliseconds; None takes the option ``tag.default-time-retained``, or keeps the
    tag until it is deleted.

    Raises :class:`AlreadyExists`, :class:`NotFound` for a missing or expired snapshot, and :class:`InvalidRequest` for
    an invalid name.
    """
    if retained_ms is None:
        retained_ms = state.schema.opts.of(TAG_DEFAULT_RETAINED)
    data = _content(state, _checked(name), snapshot_id, retained_ms)
    if not state.store.create(state.paths.tag(name), data):
        if if_not_exists:
            return False
        raise AlreadyExists(
            f"table '{state.name}' already has a tag '{name}'; move it by replace_tag (bitlake tag move)"
        )
    _check_whole(state, name)
    _write_success_file(state, name)
    sync_refs(state)
    return True


def replace_tag(
    state: TableState, name: str, snapshot_id: int | None = None, *, retained_ms: int | None = None
) -> None:
    """Move a tag to another snapshot, or change its retention; raises :class:`NotFound`."""
    path = state.paths.tag(name)
    old = load_tag(state, name)
    before = state.store.read(path)
    state.store.write(path, _content(state, name, snapshot_id, retained_ms))
    try:
        whole = _is_whole(state, name)
        moved = versions.tag_snapshot(state.table_files, name).id
    except NotFound:  # another process has deleted or renamed the tag since
        return
    if not whole:
        if state.store.exists(state.paths.manifest(old.snapshot.base_manifest_list)):
            state.store.write(path, before)
        else:  # the table was replaced by another one
            state.store.delete(path)
        raise NotFound(f"table '{state.name}': snapshot {moved} expired while tag '{name}' was moved to it")
    _clean(state, old.snapshot)
    _write_success_file(state, name)
    sync_refs(state)


def rename_tag(state: TableState, name: str, new_name: str) -> None:
    """Rename a tag; the snapshot is kept at every moment."""
    load_tag(state, name)
    old, new = state.paths.tag(name), state.paths.tag(_checked(new_name))
    text = state.store.read(old)
    if not state.store.create(new, text):
        raise AlreadyExists(f"table '{state.name}' already has a tag '{new_name}'")
    if not state.store.exists(old):
        state.store.delete(new)
        raise NotFound(f"table '{state.name}': tag '{name}' was deleted while it was renamed to '{new_name}'")
    state.store.delete(old)
    _write_success_file(state, new_name)
    _delete_success_file(state, name)
    sync_refs(state)


def delete_tag(state: TableState, name: str, *, if_exists: bool = False) -> bool:
    """Delete a tag, and the files that only it kept; returns False if it does not exist and ``if_exists``.

    Files that a branch needs stay (Paimon deletes them, and with them the branch).
    """
    try:
        tag = load_tag(state, name)
    except NotFound:
        if if_exists:
            return False
        raise
    state.store.delete(state.paths.tag(name))
    _delete_success_file(state, name)
    _clean(state, tag.snapshot)
    sync_refs(state)
    return True


def expire_tags(
    state: TableState,
    older_than_ms: int | None = None,
    *,
    names: Iterable[str] | None = None,
    dry_run: bool = False,
) -> list[str]:
    """Delete the tags whose retention is over, and those created before ``older_than_ms``; returns their names.

    With ``names``, only these tags are looked at.
    ``older_than_ms`` is local time (:func:`bitlake._clock.local_ms`).  As in Paimon, a tag without a retention counts
    as created when its file was written.  ``dry_run`` deletes nothing.  If interrupted, call it again to resume.
    """
    now = _clock.local_ms()
    written: dict[str, int] = {}
    if older_than_ms is not None:
        offset = now - _clock.now_ms()
        written = {f.name: f.mtime_ms + offset for f in state.store.list(state.paths.tag_dir)}
    expired = []
    for tag in list_tags(state, names):
        created = tag.created_ms
        if created is None or tag.retained_ms is None:
            created = written.get(state.paths.tag(tag.name).rpartition("/")[2])
        is_older = older_than_ms is not None and created is not None and created < older_than_ms
        if is_older or tag.expired(now):
            if not dry_run:
                delete_tag(state, tag.name, if_exists=True)
            expired.append(tag.name)
    return expired


def _write_success_file(state: TableState, name: str) -> None:
    if state.schema.opts.of(opt.TAG_SUCCESS_FILE):
        write_success_file(state.store, state.paths.tag_success(name))


def _delete_success_file(state: TableState, name: str) -> None:
    if state.schema.opts.of(opt.TAG_SUCCESS_FILE):
        state.store.delete(state.paths.tag_success(name))


def _checked(name: str) -> str:
    if not arguments.text("a tag name", name).strip() or "/" in name or "\\" in name or name != name.strip():
        raise InvalidRequest(f"invalid tag name '{name}': it must not be blank, nor contain '/', '\\' or outer blanks")
    return name


def _content(state: TableState, name: str, snapshot_id: int | None, retained_ms: int | None) -> bytes:
    if snapshot_id is None:
        if state.snapshot is None:
            raise NotFound(f"table '{state.name}' has no snapshot yet, so there is nothing to tag")
        snapshot_id = state.snapshot.id
    try:
        data = state.store.read(state.paths.snapshot(snapshot_id))
    except NotFound as e:
        held = next((t for t in list_tags(state) if t.snapshot.id == snapshot_id), None)
        if held is None:
            ids = versions.snapshot_ids(state.table_files)
            raise NotFound(f"table '{state.name}' has no snapshot {snapshot_id}: {versions.kept_words(ids)}") from e
        data = held.snapshot.to_json().encode()
    if retained_ms is None:
        return data
    if retained_ms <= 0:
        raise InvalidRequest(f"tag '{name}': the retention must be longer than 0 ms")
    at = time_zone.EPOCH + timedelta(milliseconds=_clock.local_ms())
    parts = [at.year, at.month, at.day, at.hour, at.minute, at.second, at.microsecond * 1000]
    text = data.decode().rstrip().removesuffix("}").rstrip()
    created = ", ".join(map(str, parts))
    retained = f"{retained_ms // 1000}.{retained_ms % 1000:03}000000"
    return f'{text},\n  "tagCreateTime" : [ {created} ],\n  "tagTimeRetained" : {retained}\n}}'.encode()


def _check_whole(state: TableState, name: str) -> None:
    """Delete a new tag if its snapshot expired meanwhile, because its files may be deleted."""
    if not _is_whole(state, name):
        number = versions.tag_snapshot(state.table_files, name).id
        state.store.delete(state.paths.tag(name))
        raise NotFound(f"table '{state.name}': snapshot {number} expired while tag '{name}' was created")


def _is_whole(state: TableState, name: str) -> bool:
    """Whether the files of a new tag are kept: no expiry that began before the tag was visible deletes them."""
    snapshot = versions.tag_snapshot(state.table_files, name)
    if snapshot.id in load_line(state.table_files).kept:
        # A rollback may have removed the snapshot, and another one may have its id.
        current = next(versions.existing_snapshots(state.table_files, [snapshot.id]), None)
        if current is not None and current.uuid == snapshot.uuid:
            return True
    return any(t.name != name and t.snapshot.id == snapshot.id for t in list_tags(state))


def _clean(state: TableState, snapshot: Snapshot) -> None:
    """Delete the files that only a deleted tag kept; those left by concurrent expiries become orphan files."""
    with contextlib.suppress(NotFound):
        paths = steadily(lambda: _kept_by(state, snapshot))
        discard_files(state.store, not_through_links(state.store, state.paths.roots, paths))


def _kept_by(state: TableState, snapshot: Snapshot) -> list[str]:
    """The files that only a tag of a snapshot keeps; raises :class:`NotFound` if an expiry runs meanwhile."""
    table, store, paths = state.table_files, state.store, state.paths
    if store.exists(paths.snapshot(snapshot.id)):
        return []  # its files are deleted when it expires
    first = min(load_line(table).kept, default=None)
    needed = Needed.beside(table, None if first is None else versions.load_snapshot(table, first))
    partitions = PartitionReader(state.schema, paths)
    files = [e for e in live_files(table, snapshot) if not needed.data_file(e)]
    changelog = snapshot.changelog_manifest_list
    if changelog is not None and not needed.changelog(changelog):
        # Unlike Paimon, expiry keeps the changelog of a tagged snapshot.
        files += [e for e in listed_entries(table, changelog) if e.kind is EntryKind.ADD]
    data = [path for e in files for path in partitions.file_paths(e)]
    return [*data, *metadata_files(table, state.schema, snapshot, needed)]


# --- automatic tags ---------------------------------------------------------------------------------------------------

BATCH = "batch"
_BATCH_PREFIX = "batch-write-"
_NEVER = -(1 << 63)
_DAYS = {"with_dashes": "%Y-%m-%d", "without_dashes": "%Y%m%d", "without_dashes_and_spaces": "%Y%m%d"}
_HOURS = {"with_dashes": "%Y-%m-%d %H", "without_dashes": "%Y%m%d %H", "without_dashes_and_spaces": "%Y%m%d%H"}

_HOUR = re.compile(r" ([01]\d|2[0-3])$", re.ASCII)


@dataclass(frozen=True, slots=True)
class Periods:
    """The periods of automatic tags, and the names of their tags."""

    length: timedelta
    pattern: str

    @staticmethod
    def of(options: Options) -> Periods:
        """The periods of a table's options."""
        own = options.of(opt.TAG_CREATION_PERIOD_DURATION)
        if own is not None:
            return Periods(timedelta(milliseconds=max(own, 1)), "%Y%m%d%H%M")
        form = options.of(opt.TAG_PERIOD_FORMATTER)
        match options.of(opt.TAG_CREATION_PERIOD):
            case "daily":
                return Periods(timedelta(days=1), _DAYS[form])
            case "hourly":
                return Periods(timedelta(hours=1), _HOURS[form])
        return Periods(timedelta(hours=2), _HOURS["with_dashes"])

    def name(self, start: datetime) -> str:
        """The name of the tag of the period that begins at a time."""
        return start.strftime(self.pattern)

    def start(self, name: str) -> datetime | None:
        """The start of a tag's period; None if the name is not a period's.

        As in Paimon, tags by the hour, which former options created, count as tags of their day.  Paimon also accepts
        any other text after the blank, and may delete a tag that a user created.
        """
        if self.pattern in _DAYS.values():
            name = _HOUR.sub("", name)
        try:
            start = datetime.strptime(name, self.pattern)
        except ValueError:
            return None
        return start if self.name(start) == name else None  # strptime accepts '2024-1-2' too

    def before(self, time: datetime) -> datetime:
        """The start of the last period that ended before a time."""
        return time_zone.EPOCH + (time - time_zone.EPOCH) // self.length * self.length - self.length


def tag_commit(state: TableState, kind: str, operation: str | None) -> None:
    """After a commit of the snapshot of ``state``: create the tags that are due, and expire tags.

    The commit has taken place, so a failure is logged, not raised.
    """
    options = state.schema.opts
    mode, expires = options.of(opt.TAG_AUTOMATIC_CREATION), options.of(opt.TAG_TIME_EXPIRE)
    try:
        if mode == BATCH:
            # As in Paimon, dedicated compactions, ANALYZE and TRUNCATE create none.
            if kind in ("APPEND", "OVERWRITE", "COMPACT") and operation not in (None, "TRUNCATE"):
                move_batch_tag(state)
        elif mode != "none" and _may_be_due(state, mode):
            create_automatic_tags(state)
        if expires:
            expire_tags(state)
    except BitlakeError as e:
        log.warning("%s: snapshot %s is committed, but creating its tags failed: %s", state.name, state.snapshot_id, e)


def move_batch_tag(state: TableState) -> str | None:
    """Tag the snapshot of ``state`` by its day, or by ``tag.batch.customized-name``; returns the tag's name.

    Deletes the oldest tags named by day beyond ``tag.num-retained-max``.
    """
    options = state.schema.opts
    if state.snapshot is None:
        return None
    day = _time(state.snapshot, "process-time", _zone(options.of(opt.PROCESS_TIME_ZONE)))
    assert day is not None
    name = options.of(opt.TAG_BATCH_NAME) or f"{_BATCH_PREFIX}{day:%Y-%m-%d}"
    if not create_tag(state, name, if_not_exists=True):
        # Paimon deletes the tag first, and for a moment nothing keeps the snapshot.
        replace_tag(state, name, retained_ms=options.of(opt.TAG_DEFAULT_RETAINED))
    most = options.of(opt.TAG_NUM_RETAINED)
    if most is not None:
        # Paimon's documentation counts only these tags; its code also counts, and deletes, tags of the user.
        tags = sorted(n for n in versions.tag_names(state.table_files) if n.startswith(_BATCH_PREFIX))
        for old in tags[: max(0, len(tags) - most)]:
            delete_tag(state, old, if_exists=True)
    return name


def _may_be_due(state: TableState, mode: str) -> bool:
    """Whether the latest snapshot is late enough for another tag; then earlier snapshots may be as well."""
    periods, options = Periods.of(state.schema.opts), state.schema.opts
    zone = _zone(options.of(opt.PROCESS_TIME_ZONE) if mode == "process-time" else options.of(opt.WATERMARK_ZONE))
    time = None if state.snapshot is None else _time(state.snapshot, mode, zone)
    last = None if time is None else _last(state, periods)
    delay = timedelta(milliseconds=options.of(opt.TAG_CREATION_DELAY))
    return time is not None and (last is None or time - delay >= last[0] + 2 * periods.length)


def create_automatic_tags(state: TableState) -> list[str]:
    """Create the tags of periods that are due, and delete the oldest beyond the limit; returns the new tags' names.

    Raises :class:`InvalidRequest` for a delay as long as a period, and for unknown time zones.
    """
    options = state.schema.opts
    mode = options.of(opt.TAG_AUTOMATIC_CREATION)
    if mode in ("none", BATCH):
        return []
    periods, delay = Periods.of(options), timedelta(milliseconds=options.of(opt.TAG_CREATION_DELAY))
    if delay >= periods.length:
        raise InvalidRequest(f"table '{state.name}': 'tag.creation-delay' must be shorter than a period")
    zone = _zone(options.of(opt.PROCESS_TIME_ZONE) if mode == "process-time" else options.of(opt.WATERMARK_ZONE))
    last = _last(state, periods)
    due, first = (None, 0) if last is None else (last[0] + periods.length, load_tag(state, last[1]).snapshot.id + 1)
    created = []
    for number in versions.snapshot_ids(state.table_files):
        if number < first:
            continue
        time = _time(versions.load_snapshot(state.table_files, number), mode, zone)
        if time is None or (due is not None and time - delay < due + periods.length):
            continue
        start = due if due is not None and options.of(opt.TAG_AUTOMATIC_COMPLETION) else periods.before(time)
        if create_tag(state, periods.name(start), number, if_not_exists=True):
            created.append(periods.name(start))
        due = start + periods.length
        _trim(state, periods, options.of(opt.TAG_NUM_RETAINED))
    return created


def earlier_automatic_tag(state: TableState, name: str) -> str | None:
    """The automatic tag of the last tagged period before that of another one; None if either tag does not exist.

    Raises :class:`InvalidRequest` if, by the table's options, no automatic tag has that name.
    """
    periods = Periods.of(state.schema.opts)
    start = periods.start(name)
    if start is None:
        example = periods.name(datetime(2024, 12, 4))
        raise InvalidRequest(f"table '{state.name}': '{name}' is not the name of an automatic tag, such as '{example}'")
    starts = dict(_tags(state, periods))
    earlier = [(at, other) for other, at in starts.items() if at < start]
    return max(earlier)[1] if earlier and name in starts else None


def _last(state: TableState, periods: Periods) -> tuple[datetime, str] | None:
    """The start of the latest tagged period, and the name of its tag; these names sort by time."""
    tags = ((periods.start(name), name) for name in reversed(versions.tag_names(state.table_files)))
    return next(((start, name) for start, name in tags if start is not None), None)


def _tags(state: TableState, periods: Periods) -> list[tuple[str, datetime]]:
    starts = ((name, periods.start(name)) for name in versions.tag_names(state.table_files))
    return [(name, start) for name, start in starts if start is not None]


def _trim(state: TableState, periods: Periods, most: int | None) -> None:
    if most is None:
        return
    tags = sorted((load_tag(state, name).snapshot.id, name) for name, _ in _tags(state, periods))
    for _, name in tags[: max(0, len(tags) - most)]:
        delete_tag(state, name, if_exists=True)


def _time(snapshot: Snapshot, mode: str, zone: tzinfo | None) -> datetime | None:
    millis = snapshot.time_millis if mode == "process-time" else snapshot.watermark
    if millis is None or millis == _NEVER:
        return None
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=millis)).astimezone(zone).replace(tzinfo=None)


def _zone(name: str | None) -> tzinfo | None:
    """A time zone by name or offset; None is the local one."""
    return None if name is None else time_zone.zone(name.strip())
