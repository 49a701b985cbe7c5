"""Taking scans down while a lake is used, into the logs of :mod:`bitlake.table.scan_log`.

Writing never holds a scan up, and never fails one: a scan hands over its plan, a thread in the background makes text of
it and stores it within seconds, and at the end of the process what is left.  Where storing fails, a message for the
log ``bitlake`` is all that comes of it.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bitlake import _clock
from bitlake.errors import BitlakeError, InvalidRequest
from bitlake.io import Store, open_store
from bitlake.metadata.paths import TablePaths, scan_log_name
from bitlake.table.plan import Plan
from bitlake.table.scan_log import FILE_BYTES, ScanLog, default_log, record_of

log = logging.getLogger("bitlake")

_WAITING = 4096
"""Scans that may wait to be stored; beyond that the oldest are forgotten."""
_MANY = 64
"""Waiting scans hold their plans: so many are stored at once."""
_SECONDS = 5.0
ENVIRONMENT = "BITLAKE_RECORD_SCANS"
_WORDS = {
    **dict.fromkeys(("", "0", "false", "no", "off"), False),
    **dict.fromkeys(("1", "true", "yes", "on", "values", "masked"), True),
}


@dataclass(slots=True)
class _OpenFile:
    """The file that this process is filling of a log.  Mutable."""

    name: str = ""
    lines: list[bytes] = field(default_factory=list)
    size: int = 0


class ScanRecorder:
    """Takes scans of a lake's tables down.  Mutable; threads may share it.

    ``masked``: conditions are kept without their values.  ``folder``: where logs go instead of the tables' folders, a
    folder for each table in it (with the ``store`` that holds it).
    """

    def __init__(self, *, masked: bool = False, folder: str | None = None, store: Store | None = None) -> None:
        self.masked = masked
        self._place = None if folder is None or store is None else (store, folder.rstrip("/"))
        self._waiting: deque[tuple[Plan, ScanLog, int, str, bool]] = deque(maxlen=_WAITING)
        self._files: dict[str, _OpenFile] = {}
        self._last_ms = 0
        self._writing = threading.Lock()
        self._wake = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _nobody, ()  # executors record nothing: the driver does

    def log_of(self, table: str, paths: TablePaths, store: Store) -> ScanLog:
        """Where the scans of a table go: by its name, its paths, and the store that holds it."""
        if self._place is not None:
            return ScanLog(self._place[0], f"{self._place[1]}/{table.replace('/', '_')}")
        return default_log(paths, store)

    def add(
        self, plan: Plan, paths: TablePaths, store: Store, *, engine: str = "python", was_read: bool = True
    ) -> None:
        """Take a scan down, after it was read; a microsecond's work here."""
        self._waiting.append((plan, self.log_of(plan.table, paths, store), _clock.now_ms(), engine, was_read))
        if self._thread is None:
            self._start()
        if len(self._waiting) > _MANY:
            self._wake.set()

    def flush(self) -> None:
        """Store what was taken down so far."""
        with self._writing:
            by_folder: dict[str, tuple[ScanLog, list[bytes]]] = {}
            while self._waiting:
                try:
                    plan, place, time_ms, engine, was_read = self._waiting.popleft()
                except IndexError:
                    break
                try:
                    made = record_of(plan, time_ms=time_ms, engine=engine, was_read=was_read, masked=self.masked)
                except (BitlakeError, ValueError, TypeError, RecursionError) as e:
                    log.debug("a scan of %s is not recorded: %s", plan.table, e)
                    continue
                by_folder.setdefault(place.folder, (place, []))[1].append(made.to_json().encode() + b"\n")
            for place, lines in by_folder.values():
                try:
                    self._store(place, lines)
                except (BitlakeError, OSError, RuntimeError) as e:
                    log.debug("scans are not recorded in %s: %s", place.folder, e)

    def _store(self, place: ScanLog, lines: Sequence[bytes]) -> None:
        current = self._files.setdefault(place.folder, _OpenFile())
        for line in lines:
            if not current.name or current.size + len(line) > FILE_BYTES:
                self._put(place, current)
                current = self._files[place.folder] = _OpenFile(self._new_name())
            current.lines.append(line)
            current.size += len(line)
        self._put(place, current)
        place.tidy()

    def _new_name(self) -> str:
        # No two of a process have one time, so that the oldest are told from the others.
        self._last_ms = max(_clock.now_ms(), self._last_ms + 1)
        return scan_log_name(self._last_ms)

    def _put(self, place: ScanLog, current: _OpenFile) -> None:
        # Object stores cannot append: a file is written again as a whole while it grows.
        if current.lines:
            place.store.write(f"{place.folder}/{current.name}", b"".join(current.lines))

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=_work, args=(weakref.ref(self), self._wake), daemon=True)
                self._thread.start()
                atexit.register(_last, weakref.ref(self))


def _work(recorder: weakref.ref[ScanRecorder], wake: threading.Event) -> None:
    while (there := recorder()) is not None:
        there.flush()
        del there
        wake.wait(_SECONDS)
        wake.clear()


def _last(recorder: weakref.ref[ScanRecorder]) -> None:
    if (there := recorder()) is not None:
        there.flush()


def _nobody() -> None:
    return None


def open_recorder(wanted: bool | str | None, folder: str | None = None) -> ScanRecorder | None:
    """The recorder that ``connect(record_scans=…, scan_log=…)`` asks for; None: nothing is recorded.

    ``wanted`` None: as the environment's ``BITLAKE_RECORD_SCANS`` says.  Raises :class:`InvalidRequest` for other
    words, and what opening the folder's store raises.
    """
    given: object = os.environ.get(ENVIRONMENT, "") if wanted is None else wanted
    word = str(given).strip().lower()
    if word not in _WORDS:
        raise InvalidRequest(f"record_scans (or {ENVIRONMENT}) is true, false, 'values' or 'masked', and not {given!r}")
    if not _WORDS[word]:
        return None
    return ScanRecorder(masked=word == "masked", folder=folder, store=None if folder is None else open_store(folder))
