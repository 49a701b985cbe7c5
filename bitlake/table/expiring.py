"""Snapshots whose expiry has begun: nobody may start to rely on them, and whoever expires next goes on with them.

``snapshot/.expiring-<end>-<uuid>`` beside the snapshots says that all before ``<end>`` are going; its text is the id of
the first one that was there.  Each expiry has a file of its own: who gives up takes back no other's word.  It is
written before tags, branches and consumers are looked at, and deleted after the last of these snapshots.  Whoever makes
a tag or moves a consumer looks for it *after* writing the tag: so one of the two sees the other, and either the files
stay or the tag is refused.  A rollback does the same with a *hold*, ``snapshot/.rolling-back-<id>-<millis>-<uuid>``,
whose text is the snapshot that it goes back to (:mod:`bitlake.table.rollback`).  Paimon passes over both names.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from bitlake import _clock
from bitlake.errors import NotFound
from bitlake.io import Store
from bitlake.metadata.paths import TablePaths, parse_hint, parse_id
from bitlake.table.strays import find_strays, is_record

PREFIX = ".expiring-"
HOLD = ".rolling-back-"
HOLD_MS = 86_400_000
"""After a day the rollback that made a hold has died."""
T = TypeVar("T")
_LOOKS = 20
_PAUSE = 0.006  # seconds; all pauses together are a second and a bit


@dataclass(frozen=True, slots=True)
class Line:
    """A line of snapshots as its folder was: the ids there, ascending, and the expiries that have begun.

    Strays (:mod:`bitlake.table.strays`) are left out.
    """

    ids: tuple[int, ...]
    markers: tuple[str, ...]
    """The names of their files."""
    holds: tuple[str, ...] = ()
    """The names of the files of rollbacks that are under way, or died."""
    records: tuple[str, ...] = ()
    """The names of the files that tell which snapshots are strays."""

    @property
    def held(self) -> int | None:
        """The first snapshot that a rollback under way needs; None without one."""
        since = _clock.now_ms() - HOLD_MS
        return min((target for target, ms in map(parse_hold, self.holds) if ms > since), default=None)

    @property
    def announced(self) -> int:
        """The snapshots before this one were announced to expire; 0 if no expiry has begun."""
        return max(map(end_of, self.markers), default=0)

    @property
    def end(self) -> int:
        """The snapshots before this one are going: never the latest one, whatever was announced before a rollback."""
        return min(self.announced, *self.ids[-1:])

    @property
    def kept(self) -> list[int]:
        """The snapshots that no expiry is deleting; always with the latest one."""
        return [i for i in self.ids if i >= self.end]


def load_line(store: Store, paths: TablePaths) -> Line:
    """The snapshots of a table or branch and what is known of their going, by one listing."""
    names = store.names(paths.snapshot_dir)
    ids = sorted(i for i in (parse_id(name, "snapshot-") for name in names) if i is not None)
    files = [name for name in names if name.startswith(".")]
    markers, holds = (tuple(n for n in files if n.startswith(prefix)) for prefix in (PREFIX, HOLD))
    records = tuple(n for n in files if is_record(n))
    line = Line(tuple(ids), tuple(n for n in markers if end_of(n)), holds, records)
    if not records:
        return line
    strays = find_strays(store, paths, records, ids, line.announced)
    return replace(line, ids=tuple(i for i in ids if i not in strays))


def has_expired(store: Store, paths: TablePaths, snapshot_id: int | None) -> bool:
    """Whether a snapshot that was there once is gone, or going: what it names may be missing, with no damage done."""
    return snapshot_id is not None and snapshot_id not in load_line(store, paths).kept


def end_of(name: str) -> int:
    """The snapshot before which a marker says that all are going; 0 for the name of another file."""
    end = parse_id(name.rpartition("-")[0], PREFIX)
    return 0 if end is None else end


def new_marker(end: int) -> str:
    """A name for a file that says that snapshots before ``end`` are going."""
    return f"{PREFIX}{end}-{_clock.new_uuid()[:8]}"


def new_hold(snapshot_id: int, uuid: str) -> str:
    """A name for the file that holds a snapshot for a rollback."""
    return f"{HOLD}{snapshot_id}-{_clock.now_ms()}-{uuid}"


def parse_hold(name: str) -> tuple[int, int]:
    """The snapshot that a hold holds, and when it was made (ms since the epoch); (0, 0) for another name."""
    target, _, rest = name.removeprefix(HOLD).partition("-")
    made = rest.partition("-")[0]
    return (int(target), int(made)) if target.isdecimal() and made.isdecimal() else (0, 0)


def begun_at(store: Store, paths: TablePaths, markers: tuple[str, ...]) -> int | None:
    """The first snapshot that expiries which have begun took; None if none has, or they are done by now."""
    firsts = []
    for name in markers:
        try:
            first = parse_hint(store.read(f"{paths.snapshot_dir}/{name}"))
        except NotFound:
            continue
        firsts.append(1 if first is None else first)
    return min(firsts, default=None)


def steadily(look: Callable[[], T]) -> T:
    """What ``look`` finds; it looks again, after a pause that grows, where something it was told of is not there.

    Snapshots may expire between their listing and their reading, and a tag of one that does is there until whoever
    makes it sees that and takes it back.  What stays missing is missing: raises :class:`NotFound`.
    """
    for tried in range(_LOOKS):
        try:
            return look()
        except NotFound:
            time.sleep(_PAUSE * tried)
    return look()
