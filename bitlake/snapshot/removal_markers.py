"""Marker files beside the snapshots: which were removed, which are strays, and which are expiring.

Strays
------
A stray is a snapshot whose base a rollback or fast-forward has removed, and whose writer died before it could see that.

A commit is right only on the base that it was computed from.  Its writer creates the snapshot, then looks at the base
again, and withdraws the snapshot if that is gone (:mod:`bitlake.write.commit`).  If it dies between these two steps,
the snapshot stays: after a gap in the ids, or, when later commits reach it, on a snapshot that it does not follow.
No caller saw the commit succeed, and the snapshot lacks later commits.  Readers therefore ignore it:

* each snapshot names its base in the property ``bitlake.base``: the uuid, or the delta manifest list of one without;
* an operation that removes snapshots whose ids may be used again first writes ``snapshot/.removed-<millis>-<uuid>``, a
  JSON object.  Its ``snapshots`` are the ids and names of the removed ones, and ``by`` is the uuid of the snapshots
  that take their place.  ``returned`` are those that a branch has kept, and that a fast-forward brings back.  Paimon
  ignores the file;
* a snapshot is a stray if others removed its base, and neither that base nor the snapshot itself has returned.

Listings leave strays out.  A commit that needs the id of one deletes it; so do expiry and orphan removal, which also
delete the records of a day ago: a writer that paused longer between its two steps is not detected.
``snapshot/.stray-<hash of the name>``, created only if absent, marks a stray that is being deleted: a second deletion
could delete the commit that takes its place.

Expiring snapshots
------------------
No new reference to a snapshot whose expiry has begun is allowed, and the next expiry continues with it.

``snapshot/.expiring-<end>-<uuid>`` beside the snapshots announces that all before ``<end>`` expire; its text is the id
of the first one at that time.  Each expiry has its own file, so that one that gives up deletes no other's announcement.
It is written before tags, branches and consumers are read, and deleted after the last of these snapshots.  A call that
creates a tag or moves a consumer looks for it *after* writing the tag: one of the two sees the other, and either the
files stay or the tag is refused.  A rollback does the same with a *hold*,
``snapshot/.rolling-back-<id>-<millis>-<uuid>``, whose text is the snapshot that it goes back to
(:mod:`bitlake.snapshot.rollback`).  Paimon ignores both names.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from bitlake import _clock
from bitlake.errors import CorruptError, NotFound
from bitlake.formatting import DAY_MS
from bitlake.metadata.java_json import JSON_BYTES, load_object
from bitlake.metadata.paths import TablePaths, parse_hint, parse_id
from bitlake.metadata.snapshot import Snapshot
from bitlake.runtime import REQUESTS, LocalRunner
from bitlake.snapshot.table_files import TableFiles, read_hint

BASE = "bitlake.base"
"""The property of a snapshot: the name of its base, as :func:`name_of` forms it."""
REMOVED = ".removed-"
_DELETING = ".stray-"
_KEPT_MS = DAY_MS
DEAD_MS = 600_000
"""After ten minutes a process that deletes a stray, or deletes or renames a branch, is dead: three requests."""
_Named = tuple[int, str]
"""The id and the name of a snapshot."""


def name_of(snapshot: Snapshot) -> str:
    """Return a snapshot's identity, independent of its id: the uuid, or the delta manifest list of one without."""
    return snapshot.uuid or snapshot.delta_manifest_list


def is_record(name: str) -> bool:
    """Whether a file in a snapshot folder records strays."""
    return name.startswith((REMOVED, _DELETING))


def on_base(snapshot: Snapshot, base: Snapshot | None) -> Snapshot:
    """The snapshot, naming the base that it was made from; None for the first one of a table."""
    properties = {k: v for k, v in snapshot.properties.items() if k != BASE}
    return replace(snapshot, properties=properties if base is None else {**properties, BASE: name_of(base)})


def create_snapshot(table: TableFiles, snapshot: Snapshot, base: Snapshot | None) -> bool:
    """Create a snapshot's file if it is absent, or a stray's; False if another snapshot has the id.

    ``base``: as the snapshot names it.  The caller checks the base again afterwards.
    """
    path, data = table.paths.snapshot(snapshot.id), snapshot.to_json().encode()
    store = table.store
    return store.create(path, data) or (_make_room(table, snapshot.id, base) and store.create(path, data))


class RemovalRecord:
    """The record of one rollback or fast-forward: what it removes, before it does."""

    def __init__(self, paths: TablePaths, uuid: str, write: Callable[[str, bytes], None]) -> None:
        self._path = f"{paths.snapshot_dir}/{REMOVED}{_clock.now_ms()}-{uuid}"
        self._uuid = uuid
        self._write = write
        self._removed: set[_Named] = set()
        self._returned: set[_Named] = set()

    def add(self, removed: Iterable[Snapshot], returned: Iterable[Snapshot] = ()) -> None:
        """Record snapshots that are about to be removed, or to return; no snapshots, no record."""
        count = len(self._removed) + len(self._returned)
        self._removed |= {(s.id, name_of(s)) for s in removed}
        self._returned |= {(s.id, name_of(s)) for s in returned}
        if len(self._removed) + len(self._returned) > count:
            record = {"by": self._uuid, "snapshots": sorted(self._removed), "returned": sorted(self._returned)}
            self._write(self._path, json.dumps(record).encode())


@dataclass(slots=True)
class _Removals:
    """The contents of all records in a folder; mutable."""

    removed: dict[_Named, set[str]] = field(default_factory=dict)
    """Removed snapshots, and the uuids of the snapshots that took their place."""
    returned: set[_Named] = field(default_factory=set)


def find_strays(table: TableFiles, names: Sequence[str], ids: Sequence[int], announced: int) -> dict[int, Snapshot]:
    """The strays among the snapshots ``ids`` of a folder with these ``names``.

    The snapshots before ``announced`` are expiring: they may go in any order.
    Raises :class:`CorruptError` for a record that cannot be read.
    """
    known = _read_records(table, names)
    removed, returned = known.removed, known.returned | known.removed.keys()
    existing, found = set(ids), dict[int, Snapshot]()
    candidates = sorted({number + 1 for number, _ in removed if number >= announced} & existing)
    for snapshot in LocalRunner(REQUESTS).run(candidates, partial(_read, table)):
        if snapshot is None or (snapshot.id, name_of(snapshot)) in returned:
            continue
        number, base = snapshot.id - 1, snapshot.properties.get(BASE)
        if base is None or snapshot.uuid in removed.get((number, base), {snapshot.uuid}):
            continue
        before = _read(table, number) if number in existing and number not in found else None
        if before is None or name_of(before) != base:
            found[snapshot.id] = snapshot
    return found


def _read_records(table: TableFiles, names: Iterable[str]) -> _Removals:
    removals = _Removals()
    for name in names:
        if name.startswith(REMOVED):
            path = f"{table.paths.snapshot_dir}/{name}"
            try:
                record = load_object(table.store.read(path, JSON_BYTES), path)
            except NotFound:
                continue
            by = record.text("by")
            for named in _named(record.list("snapshots"), "snapshots", path):
                removals.removed.setdefault(named, set()).add(by)
            removals.returned.update(_named(record.list("returned"), "returned", path))
    return removals


def _named(found: list[Any], member: str, path: str) -> Iterator[_Named]:
    for item in found:
        if type(item) is not list or [type(v) for v in item] != [int, str]:
            raise CorruptError(f"'{member}' must be ids, each with a name", None, path)
        yield item[0], item[1]


def delete_strays(table: TableFiles, announced: int, older_than_ms: int | None = None) -> None:
    """Delete the strays of a table or branch, then the records from before a time (default: a day ago)."""
    names = table.store.names(table.paths.snapshot_dir)
    records = [name for name in names if name.startswith(REMOVED)]
    ids = [i for i in (parse_id(name, "snapshot-") for name in names) if i is not None]
    for stray in find_strays(table, records, ids, announced).values():
        _delete(table, stray)
    since = _clock.now_ms() - _KEPT_MS if older_than_ms is None else older_than_ms
    for name in records:
        created = parse_id(name.removeprefix(REMOVED).partition("-")[0], "")
        if created is not None and created < since:
            table.store.delete(f"{table.paths.snapshot_dir}/{name}")
    for name in names:
        path = f"{table.paths.snapshot_dir}/{name}"
        if name.startswith(_DELETING) and (read_hint(table.store, path) or since) < since:
            table.store.delete(path)


def _make_room(table: TableFiles, number: int, base: Snapshot | None) -> bool:
    """Delete the snapshot that has an id if it is a stray; whether it was deleted."""
    snapshot = _read(table, number)
    if snapshot is None or BASE not in snapshot.properties or (base and snapshot.properties[BASE] == name_of(base)):
        return False
    names = table.store.names(table.paths.snapshot_dir)
    # The base of who calls is the latest snapshot: no expiry takes it.
    stray = find_strays(table, names, [i for i in (number - 1, number) if i], 0).get(number)
    return stray is not None and _delete(table, stray)


def _delete(table: TableFiles, stray: Snapshot) -> bool:
    lock = f"{table.paths.snapshot_dir}/{_DELETING}{hashlib.sha256(name_of(stray).encode()).hexdigest()[:32]}"
    if not table.store.create(lock, str(_clock.now_ms()).encode()):
        begun = read_hint(table.store, lock)
        if begun is not None and begun < _clock.now_ms() - DEAD_MS:
            table.store.delete(lock)  # who began died; the next call deletes the stray
        return False
    if _read(table, stray.id) != stray:
        return False
    table.store.delete(table.paths.snapshot(stray.id))
    return True


def _read(table: TableFiles, number: int) -> Snapshot | None:
    path = table.paths.snapshot(number)
    try:
        return Snapshot.from_json(table.store.read(path, JSON_BYTES), path)
    except NotFound:
        return None


PREFIX = ".expiring-"
HOLD = ".rolling-back-"
HOLD_MS = DAY_MS
"""After a day the rollback that made a hold has died."""
ROLLBACK_MS = 600_000
"""The age at which fast-forward ignores a rollback's hold; rollback changes nothing after half of it."""
T = TypeVar("T")
_LOOKS = 20
_PAUSE = 0.006  # seconds; all pauses together are a second and a bit


@dataclass(frozen=True, slots=True)
class Line:
    """A line of snapshots when its folder was listed: the ids, ascending, and the expiries that have begun.

    Strays are left out.
    """

    ids: tuple[int, ...]
    markers: tuple[str, ...]
    """The names of their files."""
    holds: tuple[str, ...] = ()
    """The names of the files of rollbacks that run, or died."""
    records: tuple[str, ...] = ()
    """The names of the files that record strays."""

    @property
    def held(self) -> int | None:
        """The first snapshot that a running rollback needs; None without one."""
        since = _clock.now_ms() - HOLD_MS
        return min((target for target, ms in map(parse_hold, self.holds) if ms > since), default=None)

    @property
    def has_rollback(self) -> bool:
        """Whether a hold shows that a rollback is running."""
        since = _clock.now_ms() - ROLLBACK_MS
        return any(parse_hold(name)[1] > since for name in self.holds)

    @property
    def announced(self) -> int:
        """The snapshots before this one were announced to expire; 0 if no expiry has begun."""
        return max(map(end_of, self.markers), default=0)

    @property
    def end(self) -> int:
        """The snapshots before this one expire: never the latest, whatever was announced before a rollback."""
        return min((self.announced, *self.ids[-1:]))

    @property
    def kept(self) -> list[int]:
        """The snapshots that no expiry is deleting; always with the latest one."""
        return [i for i in self.ids if i >= self.end]


def load_line(table: TableFiles) -> Line:
    """List the snapshots of a table or branch, with the markers of their expiry and removal."""
    names = table.store.names(table.paths.snapshot_dir)
    ids = sorted(i for i in (parse_id(name, "snapshot-") for name in names) if i is not None)
    files = [name for name in names if name.startswith(".")]
    markers, holds = (tuple(n for n in files if n.startswith(prefix)) for prefix in (PREFIX, HOLD))
    records = tuple(n for n in files if is_record(n))
    line = Line(tuple(ids), tuple(n for n in markers if end_of(n)), holds, records)
    if not records:
        return line
    strays = find_strays(table, records, ids, line.announced)
    return replace(line, ids=tuple(i for i in ids if i not in strays))


def has_expired(table: TableFiles, snapshot_id: int | None) -> bool:
    """Whether an earlier snapshot has expired or is expiring, so that its files may be missing without damage."""
    return snapshot_id is not None and snapshot_id not in load_line(table).kept


def end_of(name: str) -> int:
    """The snapshot before which a marker announces that all expire; 0 for the name of another file."""
    end = parse_id(name.rpartition("-")[0], PREFIX)
    return 0 if end is None else end


def new_marker(end: int) -> str:
    """The name of a new marker that announces the expiry of the snapshots before ``end``."""
    return f"{PREFIX}{end}-{_clock.new_uuid()[:8]}"


def new_hold(snapshot_id: int, uuid: str) -> str:
    """The name of a new file that holds a snapshot for a rollback."""
    return f"{HOLD}{snapshot_id}-{_clock.now_ms()}-{uuid}"


def parse_hold(name: str) -> tuple[int, int]:
    """The snapshot and the creation time (ms since the epoch) of a hold; (0, 0) for another name."""
    target, _, rest = name.removeprefix(HOLD).partition("-")
    created = rest.partition("-")[0]
    return (int(target), int(created)) if target.isdecimal() and created.isdecimal() else (0, 0)


def begun_at(table: TableFiles, markers: tuple[str, ...]) -> int | None:
    """The first snapshot of the expiries that have begun; None if none has begun, or all are complete."""
    firsts = []
    for name in markers:
        try:
            first = parse_hint(table.store.read(f"{table.paths.snapshot_dir}/{name}"))
        except NotFound:
            continue
        firsts.append(1 if first is None else first)
    return min(firsts, default=None)


def steadily(look: Callable[[], T]) -> T:
    """Return what ``look`` finds; repeat it, after growing pauses, while something that was listed is missing.

    Snapshots may expire between their listing and their reading, and a tag of an expired one exists until its creator
    notices that and deletes it.  What stays missing is missing: raises :class:`NotFound`.
    """
    for tried in range(_LOOKS):
        try:
            return look()
        except NotFound:
            time.sleep(_PAUSE * tried)
    return look()
