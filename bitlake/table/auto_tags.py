"""Tags by the period: the first snapshot after a day (an hour …) is over gets that day's tag.

The options ``tag.*`` say what a period is, how it is written, and how many such tags stay.  Source: Paimon's
TagAutoCreation and TagPeriodHandler.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from bitlake.errors import InvalidRequest
from bitlake.metadata import tag_options as to
from bitlake.metadata.options import Options
from bitlake.metadata.snapshot import Snapshot
from bitlake.table.live import load_snapshot, snapshot_ids
from bitlake.table.references import tag_names
from bitlake.table.state import TableState
from bitlake.table.tags import create_tag, delete_tag, load_tag

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


def create_automatic_tags(state: TableState) -> list[str]:
    """Make the tags that are due, and delete those that are too many; returns the names of the new ones.

    Raises :class:`InvalidRequest` for a delay as long as a period, and for time zones that there are not.
    """
    options = state.schema.opts
    mode = options.of(to.CREATION)
    if mode == "none":
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
