"""Time travel: the state of a table at a snapshot id, tag, time or watermark, with the schema of that time.

A version (``VERSION AS OF v``, option ``scan.version``) is, in this order: the name of a tag, ``watermark-<n>``, or the
id of a snapshot.  A time selects the last snapshot committed at or before it; a watermark the first snapshot with at
least this watermark.  Source: the observed behaviour of Paimon's readers.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime

from bitlake import arguments
from bitlake.errors import InvalidRequest, NotFound
from bitlake.expressions.literals import python_value
from bitlake.metadata.snapshot import Snapshot
from bitlake.snapshot.state import TableState, state_at
from bitlake.snapshot.tags import Tag, load_tag
from bitlake.snapshot.versions import load_snapshot, snapshot_ids, tag_names
from bitlake.types.time_zone import zone

Time = int | str | datetime | date
"""A time: milliseconds since the epoch, ISO text, or a Python value; without a zone, it is in the table's zone."""
Moment = int | str | Tag
"""A snapshot id, the name of a tag, or a tag."""

_WATERMARK = "watermark-"


@dataclass(frozen=True, slots=True)
class When:
    """A point in a table's history; at most one member is set, and none means the latest state."""

    snapshot: int | None = None
    tag: str | None = None
    timestamp: Time | None = None
    version: str | int | None = None

    def of(self, state: TableState, timezone: str) -> TableState:
        """The table at that point; raises :class:`NotFound`, and :class:`InvalidRequest` if two members are set."""
        given = [n for n in ("snapshot", "tag", "timestamp", "version") if getattr(self, n) is not None]
        if len(given) > 1:
            raise InvalidRequest(f"table '{state.name}': give one of {' and '.join(given)}, not both")
        if self.snapshot is not None:
            return state_at(state, arguments.whole("snapshot", self.snapshot))
        if self.tag is not None:
            return state_at_tag(state, arguments.text("tag", self.tag))
        if self.version is not None:
            return state_at_version(state, self.version)
        if self.timestamp is not None:
            return state_at_time(state, epoch_millis(self.timestamp, timezone))
        return state


def state_of(state: TableState, snapshot: Snapshot) -> TableState:
    """The table at a snapshot, with the schema of that time."""
    schema = state.schemas([snapshot.schema_id])[snapshot.schema_id]
    return replace(state, snapshot=snapshot, schema=schema)


def state_at_tag(state: TableState, tag: str) -> TableState:
    """The table at a tag; raises :class:`NotFound`, naming the existing tags."""
    return state_of(state, load_tag(state, tag).snapshot)


def state_at_time(state: TableState, millis: int) -> TableState:
    """The table at a time (ms since the epoch); raises :class:`NotFound` if all snapshots are later."""
    snapshot = snapshot_at_time(state, millis)
    if snapshot is None:
        ids = snapshot_ids(state.table_files)
        if not ids:
            raise NotFound(f"table '{state.name}' has no snapshot yet")
        first = time_text(load_snapshot(state.table_files, ids[0]).time_millis)
        raise NotFound(
            f"table '{state.name}' has no snapshot as old as {time_text(millis)}: the first one kept, {ids[0]}, "
            f"is of {first}; ask for a later time, or a tag"
        )
    return state_of(state, snapshot)


def state_at_version(state: TableState, version: str | int) -> TableState:
    """The table at a version; raises :class:`NotFound`, naming the existing tags and snapshots."""
    text = str(version).strip()
    if text in tag_names(state.table_files):
        return state_at_tag(state, text)
    if text.startswith(_WATERMARK) and text.removeprefix(_WATERMARK).lstrip("-").isdigit():
        return state_at_watermark(state, int(text.removeprefix(_WATERMARK)))
    if text.isdigit() and text.isascii():
        return state_at(state, int(text))
    have = ", ".join(tag_names(state.table_files)) or "none"
    raise NotFound(
        f"table '{state.name}' has no version '{text}': a version is a tag (its tags: {have}), a snapshot's id, "
        "or watermark-<number>"
    )


def state_at_watermark(state: TableState, watermark: int) -> TableState:
    """The table at the first snapshot with at least this watermark; raises :class:`NotFound`."""
    ids = snapshot_ids(state.table_files)
    for number in ids:
        snapshot = load_snapshot(state.table_files, number)
        if snapshot.watermark is not None and snapshot.watermark >= watermark:
            return state_of(state, snapshot)
    raise NotFound(f"table '{state.name}' has no snapshot with a watermark of {watermark} or more")


def snapshot_at_time(state: TableState, millis: int) -> Snapshot | None:
    """The last snapshot committed at or before a time (ms since the epoch), by binary search."""
    ids = snapshot_ids(state.table_files)
    at = bisect.bisect_right(ids, millis, key=_times(state))
    return load_snapshot(state.table_files, ids[at - 1]) if at else None


def first_snapshot_from(state: TableState, millis: int) -> Snapshot | None:
    """The first snapshot committed at or after a time (ms since the epoch)."""
    ids = snapshot_ids(state.table_files)
    at = bisect.bisect_left(ids, millis, key=_times(state))
    return load_snapshot(state.table_files, ids[at]) if at < len(ids) else None


def epoch_millis(value: Time, timezone: str) -> int:
    """Convert a time to milliseconds since the epoch; raises :class:`InvalidRequest` for an invalid one."""
    try:
        at: object = python_value(value)
    except ValueError as e:
        raise InvalidRequest(f"invalid timestamp {value!r}: {e}") from e
    if isinstance(at, int) and not isinstance(at, bool):
        return at
    if isinstance(value, str):
        try:
            at = datetime.fromisoformat(value.strip())
        except ValueError as e:
            raise InvalidRequest(f"invalid timestamp '{value}'; expected ISO text such as '2024-01-31 12:00:00'") from e
    if isinstance(at, date) and not isinstance(at, datetime):
        at = datetime(at.year, at.month, at.day)
    if not isinstance(at, datetime):
        raise InvalidRequest(f"invalid timestamp {value!r}; expected text, a datetime, or milliseconds since the epoch")
    return round((at if at.tzinfo else at.replace(tzinfo=zone(timezone))).timestamp() * 1000)


def _times(state: TableState) -> Callable[[int], int]:
    return lambda number: load_snapshot(state.table_files, number).time_millis


def time_text(millis: int) -> str:
    """Format a time in UTC, to the millisecond; a number beyond the calendar is returned as ``<n> ms``."""
    try:
        return datetime.fromtimestamp(millis / 1000, UTC).isoformat(" ", "milliseconds")
    except (OverflowError, ValueError, OSError):
        return f"{millis} ms"
