"""Tags that commits make: of each period, the first snapshot after it is over; or a tag that every write moves.

The options ``tag.*`` say what a period is, how it is written, and how many such tags stay.  A commit is done before
its tags are made: if that fails, the next commit makes up for it.  Source: Paimon's TagAutoCreation, TagPeriodHandler,
TagBatchCreation and TagTimeExpire, and when its commits call them.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from bitlake.errors import BitlakeError, InvalidRequest
from bitlake.metadata import tag_options as to
from bitlake.metadata.options import Options
from bitlake.metadata.snapshot import Snapshot
from bitlake.table.live import load_snapshot, snapshot_ids
from bitlake.table.references import tag_names
from bitlake.table.state import TableState
from bitlake.table.tags import create_tag, delete_tag, expire_tags, load_tag, replace_tag

log = logging.getLogger("bitlake")

BATCH = "batch"
_BATCH_PREFIX = "batch-write-"
_EPOCH = datetime(1970, 1, 1)
_NEVER = -(1 << 63)
_OFFSET = re.compile(r"^(?:UTC|GMT)?([+-])(\d{1,2})(?::?(\d\d))?$")
_DAYS = {"with-dashes": "%Y-%m-%d", "without-dashes": "%Y%m%d", "without-dashes-and-spaces": "%Y%m%d"}
_HOURS = {"with-dashes": "%Y-%m-%d %H", "without-dashes": "%Y%m%d %H", "without-dashes-and-spaces": "%Y%m%d%H"}


@dataclass(frozen=True, slots=True)
class Periods:
    """How time is cut into periods, and what their tags are called."""

    length: timedelta
    pattern: str

    @staticmethod
    def of(options: Options) -> Periods:
        """What a table's options say."""
        own = options.of(to.DURATION)
        if own is not None:
            return Periods(timedelta(milliseconds=max(own, 1)), "%Y%m%d%H%M")
        form = options.of(to.FORMATTER)
        match options.of(to.PERIOD):
            case "daily":
                return Periods(timedelta(days=1), _DAYS[form])
            case "hourly":
                return Periods(timedelta(hours=1), _HOURS[form])
        return Periods(timedelta(hours=2), _HOURS["with-dashes"])

    def name(self, start: datetime) -> str:
        """The tag of the period that begins at a time."""
        return start.strftime(self.pattern)

    def start(self, name: str) -> datetime | None:
        """When the period of a tag begins; None for a name that is no period's."""
        try:
            made = datetime.strptime(name, self.pattern)
        except ValueError:
            return None
        return made if self.name(made) == name else None  # strptime takes '2024-1-2' too

    def before(self, time: datetime) -> datetime:
        """The start of the last period that is over at a time."""
        return _EPOCH + (time - _EPOCH) // self.length * self.length - self.length


def tag_commit(state: TableState, kind: str, operation: str | None) -> None:
    """What follows a commit, whose snapshot is that of ``state``: tags that are due, and those whose time is over.

    Never raises for what goes wrong, since the commit is done: it is logged.
    """
    options = state.schema.opts
    mode, expires = options.of(to.CREATION), options.of(to.TIME_EXPIRE)
    try:
        if mode == BATCH:
            # Compactions that no write asked for, statistics and TRUNCATE make none in Paimon either.
            if kind in ("APPEND", "OVERWRITE", "COMPACT") and operation not in (None, "TRUNCATE"):
                move_batch_tag(state)
        elif mode != "none" and _may_be_due(state, mode):
            create_automatic_tags(state)
        if expires:
            expire_tags(state)
    except BitlakeError as e:
        log.warning(
            "%s: snapshot %s is committed, but its tags could not be made: %s", state.name, state.snapshot_id, e
        )


def move_batch_tag(state: TableState) -> str | None:
    """Give the snapshot of ``state`` its day's tag, or that of ``tag.batch.customized-name``; returns its name.

    Of tags named by the day the oldest go, where there are more than ``tag.num-retained-max``.
    """
    options = state.schema.opts
    if state.snapshot is None:
        return None
    day = _time(state.snapshot, "process-time", _zone(options.of(to.PROCESS_ZONE)))
    assert day is not None
    name = options.of(to.BATCH_NAME) or f"{_BATCH_PREFIX}{day:%Y-%m-%d}"
    if not create_tag(state, name, if_not_exists=True):
        # Paimon deletes it first, and for a moment nothing holds the snapshot.
        replace_tag(state, name, retained_ms=options.of(to.DEFAULT_RETAINED))
    most = options.of(to.NUM_RETAINED)
    if most is not None:
        # By Paimon's documentation only such tags are counted; its code counts, and deletes, the users' own as well.
        made = sorted(n for n in tag_names(state.store, state.paths) if n.startswith(_BATCH_PREFIX))
        for old in made[: max(0, len(made) - most)]:
            delete_tag(state, old, if_exists=True)
    return name


def _may_be_due(state: TableState, mode: str) -> bool:
    """Whether the snapshot just committed is late enough for another tag: then so may be some before it."""
    periods, options = Periods.of(state.schema.opts), state.schema.opts
    zone = _zone(options.of(to.PROCESS_ZONE) if mode == "process-time" else options.of(to.WATERMARK_ZONE))
    time = None if state.snapshot is None else _time(state.snapshot, mode, zone)
    last = max((start for _, start in _tags(state, periods)), default=None)
    delay = timedelta(milliseconds=options.of(to.DELAY))
    return time is not None and (last is None or time - delay >= last + 2 * periods.length)


def create_automatic_tags(state: TableState) -> list[str]:
    """Make the tags of periods that are due, and delete those that are too many; returns the names of the new ones.

    Raises :class:`InvalidRequest` for a delay as long as a period, and for time zones that there are not.
    """
    options = state.schema.opts
    mode = options.of(to.CREATION)
    if mode in ("none", BATCH):
        return []
    periods, delay = Periods.of(options), timedelta(milliseconds=options.of(to.DELAY))
    if delay >= periods.length:
        raise InvalidRequest(f"table '{state.name}': 'tag.creation-delay' must be shorter than a period")
    zone = _zone(options.of(to.PROCESS_ZONE) if mode == "process-time" else options.of(to.WATERMARK_ZONE))
    last = _last(state, periods)
    due, first = (None, 0) if last is None else (last[0] + periods.length, last[1] + 1)
    made = []
    for number in snapshot_ids(state.store, state.paths):
        if number < first:
            continue
        time = _time(load_snapshot(state.store, state.paths, number), mode, zone)
        if time is None or (due is not None and time - delay < due + periods.length):
            continue
        start = due if due is not None and options.of(to.COMPLETION) else periods.before(time)
        if create_tag(state, periods.name(start), number, if_not_exists=True):
            made.append(periods.name(start))
        due = start + periods.length
        _trim(state, periods, options.of(to.NUM_RETAINED))
    return made


def _last(state: TableState, periods: Periods) -> tuple[datetime, int] | None:
    """The latest period that has a tag, and the snapshot this holds."""
    found = [(start, name) for name, start in _tags(state, periods)]
    if not found:
        return None
    start, name = max(found)
    return start, load_tag(state, name).snapshot.id


def _tags(state: TableState, periods: Periods) -> list[tuple[str, datetime]]:
    starts = ((name, periods.start(name)) for name in tag_names(state.store, state.paths))
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
    """A time zone by name; None is this machine's own."""
    if name is None:
        return None
    offset = _OFFSET.match(name.strip())
    if offset is not None:
        sign, hours, minutes = offset.groups()
        shift = timedelta(hours=int(hours), minutes=int(minutes or 0))
        return timezone(-shift if sign == "-" else shift)
    try:
        return ZoneInfo(name.strip())
    except (ZoneInfoNotFoundError, ValueError) as e:
        raise InvalidRequest(f"'{name}' is no time zone that is known here, such as 'Europe/Berlin'") from e
