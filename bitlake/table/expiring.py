"""Snapshots whose expiry has begun: nobody may start to rely on them, and whoever expires next goes on with them.

``snapshot/.expiring-<end>-<uuid>`` beside the snapshots says that all before ``<end>`` are going; its text is the id of
the first one that was there.  Each expiry has a file of its own: who gives up takes back no other's word.  It is
written before tags, branches and consumers are looked at, and deleted after the last of these snapshots.  Whoever makes
a tag or moves a consumer looks for it *after* writing the tag: so one of the two sees the other, and either the files
stay or the tag is refused.  Paimon passes over the name.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from bitlake import _clock
from bitlake.errors import NotFound
from bitlake.metadata.paths import TablePaths, parse_hint, parse_id
from bitlake.storage import Store

PREFIX = ".expiring-"
T = TypeVar("T")
_LOOKS = 20
_PAUSE = 0.006  # seconds; all pauses together are a second and a bit


@dataclass(frozen=True, slots=True)
class Line:
    """A line of snapshots as its folder was: the ids there, ascending, and the expiries that have begun."""

    ids: tuple[int, ...]
    markers: tuple[str, ...]
    """The names of their files."""

    @property
    def end(self) -> int:
        """The snapshots before this one are going."""
        return max(map(end_of, self.markers), default=0)

    @property
    def kept(self) -> list[int]:
        """The snapshots that nobody is deleting."""
        return [i for i in self.ids if i >= self.end]


def load_line(store: Store, paths: TablePaths) -> Line:
    """The snapshots of a table or branch and what is known of their going, by one listing."""
    names = store.names(paths.snapshot_dir)
    ids = (parse_id(name, "snapshot-") for name in names)
    return Line(tuple(sorted(i for i in ids if i is not None)), tuple(n for n in names if end_of(n)))


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
