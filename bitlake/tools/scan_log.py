"""The scan log: conditions, bytes read and files skipped of each scan, recorded if the lake enables it.

A log is a folder of text files, by default ``<table>/scans``::

    scan-log-<ms since the epoch, 13 digits>-<8 hex digits>.jsonl     one JSON object for each scan, one on each line

A process writes files of its own, so that no two write one.  They hold up to 256 KB each, and the oldest beyond 64 go:
a log takes 16 MB at most.  Readers skip a line that is not a record (torn, or of a later version): only
advice and reports depend on the log.

Recording never delays a scan and never fails one: a scan hands over its plan, and a background thread encodes and
stores it within seconds, and what is left at the end of the process.  If storing fails, it only logs a message to the
log ``bitlake``.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self

from bitlake import _clock, arguments
from bitlake.errors import BitlakeError, InvalidRequest, NotFound
from bitlake.expressions import tree
from bitlake.expressions.sql_text import to_sql
from bitlake.io import Store, open_store
from bitlake.metadata.paths import TablePaths, is_scan_log, scan_log_name
from bitlake.scan.plan import Plan
from bitlake.types import DataField

if TYPE_CHECKING:
    from bitlake.file_store_table import FileStoreTable

FILE_BYTES = 256 * 1024
MOST_FILES = 64
_MOST_TEXT = 4096
_MOST_VALUES = 200
_VERSION = 1
COMPUTED = "computed"
"""The operator of a term that no index can judge, such as ``length(s) > 3``, for each column it is about."""


@dataclass(frozen=True, slots=True)
class ScanTerm:
    """A condition's test of one column: ``=``, ``<``, ``IN``, ``LIKE``, ``IS NULL`` …, with no value."""

    column: str
    op: str


@dataclass(frozen=True, slots=True)
class ScanRecord:
    r"""One scan, as it was recorded.

    ``where``: the condition as Spark SQL, None without one, and where it was masked or too long to keep; ``terms``
    tell in any case which columns it asks how.  ``columns``: those that the scan gave, None: all of the table's.
    Sizes are bytes, ``files_skipped`` counts files by what proved them needless (``statistics``, ``file index`` …).
    ``bytes_read`` is None where Spark's executors read: the sizes of the files left to read, ``bytes_left``, are known.

    >>> rows = table.to_arrow(["order_id"], "status = 'SENT'")
    >>> record = table.indexes.scans()[0]
    >>> record.where, record.files_read, record.files_total
    ("status = 'SENT'", 1, 3)
    >>> record.bytes_touched > 0, record.skipping_rate > 0.9
    (True, True)
    >>> record.to_json()
    '{"v":1,"table":"default.orders","time_ms":1767528000000,"snapshot":2,"where":"status = \'SENT\'"...
    """

    table: str
    time_ms: int
    snapshot: int | None
    where: str | None
    terms: tuple[ScanTerm, ...]
    columns: tuple[str, ...] | None
    limit: int | None
    order_by: tuple[str, ...]
    files_total: int
    files_read: int
    files_skipped: Mapping[str, int]
    rows_total: int
    rows_chosen: int
    rows_returned: int | None
    bytes_total: int
    bytes_left: int
    bytes_read: int | None
    index_bytes: int
    plan_ms: float
    read_ms: float
    engine: str = "python"

    @property
    def bytes_touched(self) -> int:
        """Bytes of data and indexes that were read; of the files left to read where that is all that is known."""
        return (self.bytes_left if self.bytes_read is None else self.bytes_read) + self.index_bytes

    @property
    def skipping_rate(self) -> float:
        """The share of the table's bytes that was not read, 0 to 1."""
        return max(0.0, 1 - self.bytes_touched / self.bytes_total) if self.bytes_total else 0.0

    def to_json(self) -> str:
        """One line of a log."""
        members = {k: v for k, v in asdict(self).items() if v is not None}
        members["terms"] = [[t.column, t.op] for t in self.terms]
        return json.dumps({"v": _VERSION, **members}, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str | bytes) -> Self | None:
        """The record of a line; None for a line that is none."""
        try:
            members = json.loads(line)
            if members.pop("v") != _VERSION:
                return None
            terms = tuple(ScanTerm(_text(c), _text(op)) for c, op in members.pop("terms"))
            columns = members.get("columns")
            numbers: dict[str, Any] = {k: int(members[k]) for k in _COUNTS}
            numbers.update({k: None if members.get(k) is None else int(members[k]) for k in _OPTIONAL})
            return cls(
                table=_text(members["table"]),
                where=None if members.get("where") is None else _text(members["where"]),
                terms=terms,
                columns=None if columns is None else tuple(_text(c) for c in columns),
                order_by=tuple(_text(o) for o in members["order_by"]),
                files_skipped={_text(k): int(v) for k, v in members["files_skipped"].items()},
                plan_ms=float(members["plan_ms"]),
                read_ms=float(members["read_ms"]),
                engine=_text(members["engine"]),
                **numbers,
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None


_COUNTS = (
    *("time_ms", "files_total", "files_read", "rows_total", "rows_chosen"),
    *("bytes_total", "bytes_left", "index_bytes"),
)
_OPTIONAL = ("snapshot", "limit", "rows_returned", "bytes_read")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def terms_of(predicate: tree.Predicate | None) -> tuple[ScanTerm, ...]:
    """The comparisons of a condition by column, each once, in their order."""
    terms: dict[ScanTerm, None] = {}
    waiting: deque[tree.Predicate] = deque([] if predicate is None else [predicate])
    while waiting:
        node = waiting.popleft()
        match node:
            case tree.And(children) | tree.Or(children):
                waiting.extendleft(reversed(children))
            case tree.Not(child):
                waiting.appendleft(child)
            case tree.Constant():
                pass
            case tree.Comparison(column, op, _):
                terms[ScanTerm(str(column), op.value)] = None
            case tree.In(column, _, negated):
                terms[ScanTerm(str(column), "NOT IN" if negated else "IN")] = None
            case tree.TupleIn(columns, _, negated):
                terms.update({ScanTerm(str(column), "NOT IN" if negated else "IN"): None for column in columns})
            case tree.Like(column, _, negated):
                terms[ScanTerm(str(column), "NOT LIKE" if negated else "LIKE")] = None
            case tree.IsNull(column, negated):
                terms[ScanTerm(str(column), "IS NOT NULL" if negated else "IS NULL")] = None
            case tree.Computed(test):
                terms.update({ScanTerm(column, COMPUTED): None for column in sorted(test.columns)})
            case _:
                terms[ScanTerm(str(node.column), "BETWEEN")] = None
    return tuple(terms)


def condition_text(predicate: tree.Predicate, fields: Sequence[DataField]) -> str | None:
    """Return a condition as Spark SQL; None if it has no such form or is too long: half of it is another condition."""
    if any(test.sql() is None for test in tree.computed_tests(predicate)):
        return None
    text = to_sql(predicate, fields, _MOST_VALUES)
    return None if len(text) > _MOST_TEXT or "… " in text else text


def record_of(plan: Plan, *, time_ms: int, engine: str, was_read: bool, masked: bool) -> ScanRecord:
    """The record of a plan that was carried out; ``masked``: without its condition's values."""
    m = plan.metrics
    where = None if plan.predicate is None or masked else condition_text(plan.predicate, plan.schema.fields)
    names = plan.schema.field_names
    return ScanRecord(
        table=plan.table,
        time_ms=time_ms,
        snapshot=plan.snapshot_id,
        where=where,
        terms=terms_of(plan.predicate),
        columns=None if tuple(plan.columns) == tuple(names) else tuple(plan.columns),
        limit=plan.limit,
        order_by=tuple(str(o) for o in plan.order),
        files_total=m.files,
        files_read=m.files_read,
        files_skipped=dict(m.files_skipped),
        rows_total=m.rows,
        rows_chosen=m.rows_chosen,
        rows_returned=m.rows_returned if was_read else None,
        bytes_total=m.data_bytes,
        bytes_left=sum(f.entry.file.file_size for f in plan.files),
        bytes_read=m.data_bytes_read if was_read else None,
        index_bytes=m.index_bytes_read,
        plan_ms=round(m.plan_ms, 3),
        read_ms=round(m.read_ms, 3),
        engine=engine,
    )


@dataclass(frozen=True, slots=True)
class ScanLog:
    """One table's log: a folder of a store."""

    store: Store
    folder: str

    def read(self, most: int | None = None, since_ms: int | None = None) -> list[ScanRecord]:
        """The records, oldest first: of a time and after, and no more than the last ``most`` of them.

        Empty where nothing was recorded.  Raises :class:`bitlake.errors.StorageUnavailable`.
        """
        most = None if most is None else arguments.whole("most", most)
        found: list[ScanRecord] = []
        for name in sorted((n for n in self.store.names(self.folder) if is_scan_log(n)), reverse=True):
            try:
                lines = self.store.read(f"{self.folder}/{name}").splitlines()
            except NotFound:
                continue  # it was the oldest of too many
            records = (ScanRecord.from_json(line) for line in lines)
            found += [r for r in records if r is not None and (since_ms is None or r.time_ms >= since_ms)]
            if most is not None and len(found) >= most + FILE_BYTES // 100:
                break  # other processes' files overlap this one in time by a file's records at most
        found.sort(key=lambda r: r.time_ms)
        return found if most is None else found[max(0, len(found) - most) :]

    def tidy(self) -> None:
        """Delete the oldest files beyond :data:`MOST_FILES`."""
        names = sorted(n for n in self.store.names(self.folder) if is_scan_log(n))
        if len(names) > MOST_FILES:
            self.store.delete_all([f"{self.folder}/{n}" for n in names[: len(names) - MOST_FILES]])


def default_log(paths: TablePaths, store: Store) -> ScanLog:
    """The log in a table's folder."""
    return ScanLog(store, paths.scan_log_dir)


# --- recording --------------------------------------------------------------------------------------------------------

log = logging.getLogger("bitlake")

_WAITING = 4096
"""Scans that may wait to be stored; beyond that the oldest are forgotten."""
_MANY = 64
"""Waiting scans that are stored at once, because each holds its plan in memory."""
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
                    record = record_of(plan, time_ms=time_ms, engine=engine, was_read=was_read, masked=self.masked)
                except (BitlakeError, ValueError, TypeError, RecursionError) as e:
                    log.debug("a scan of %s is not recorded: %s", plan.table, e)
                    continue
                by_folder.setdefault(place.folder, (place, []))[1].append(record.to_json().encode() + b"\n")
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
        # No two files of a process have the same time, so that names sort by age.
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
    while (log_recorder := recorder()) is not None:
        log_recorder.flush()
        del log_recorder
        wake.wait(_SECONDS)
        wake.clear()


def _last(recorder: weakref.ref[ScanRecorder]) -> None:
    if (log_recorder := recorder()) is not None:
        log_recorder.flush()


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


def scan_log_of(table: FileStoreTable) -> ScanLog:
    """The log of a table's scans; scans that wait to be stored are stored first."""
    recorder = table.runtime.recorder
    if recorder is None:
        return default_log(table.paths, table.store)
    recorder.flush()
    log: ScanLog = recorder.log_of(table.name, table.paths, table.store)
    return log
