"""Recorded scans: what was asked of a table, what of it was read, and what was skipped; only where a lake wants it.

A log is a folder of text files, by default ``<table>/scans``::

    scan-log-<ms since the epoch, 13 digits>-<8 hex digits>.jsonl     one JSON object for each scan, one on each line

A process writes files of its own, so that no two write one.  They hold up to 256 KB each, and the oldest beyond 64 go:
a log takes 16 MB at most.  A line that is no record (torn, or of a later version) is passed over when the log is read:
nothing depends on it but advice and reports.

:mod:`bitlake.table.scan_recorder` writes them.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from bitlake.errors import NotFound
from bitlake.expressions.sql_text import to_sql
from bitlake.expressions.tree import And, Comparison, Constant, In, IsNull, Like, Not, Or, Predicate
from bitlake.io import Store
from bitlake.metadata.paths import TablePaths, is_scan_log
from bitlake.table.plan import Plan

FILE_BYTES = 256 * 1024
MOST_FILES = 64
_MOST_TEXT = 4096
_MOST_VALUES = 200
_VERSION = 1


@dataclass(frozen=True, slots=True)
class ScanTerm:
    """What a condition asks of one column: ``=``, ``<``, ``IN``, ``LIKE``, ``IS NULL`` …, with no value."""

    column: str
    op: str


@dataclass(frozen=True, slots=True)
class ScanRecord:
    """One scan, as it was recorded.

    ``where``: the condition as Spark SQL, None without one, and where it was masked or too long to keep; ``terms``
    tell in any case which columns it asks how.  ``columns``: those that the scan gave, None: all of the table's.
    Sizes are bytes, ``files_skipped`` counts files by what proved them needless (``statistics``, ``file index`` …).
    ``bytes_read`` is None where Spark's executors read: the sizes of the files left to read, ``bytes_left``, are known.
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
        """Which part of the table's bytes was not read, 0 to 1."""
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


def terms_of(predicate: Predicate | None) -> tuple[ScanTerm, ...]:
    """What a condition asks of which columns, each once, in its order."""
    found: dict[ScanTerm, None] = {}
    waiting: deque[Predicate] = deque([] if predicate is None else [predicate])
    while waiting:
        node = waiting.popleft()
        match node:
            case And(children) | Or(children):
                waiting.extendleft(reversed(children))
            case Not(child):
                waiting.appendleft(child)
            case Constant():
                pass
            case Comparison(column, op, _):
                found[ScanTerm(str(column), op.value)] = None
            case In(column, _, negated):
                found[ScanTerm(str(column), "NOT IN" if negated else "IN")] = None
            case Like(column, _, negated):
                found[ScanTerm(str(column), "NOT LIKE" if negated else "LIKE")] = None
            case IsNull(column, negated):
                found[ScanTerm(str(column), "IS NOT NULL" if negated else "IS NULL")] = None
            case _:
                found[ScanTerm(str(node.column), "BETWEEN")] = None
    return tuple(found)


def record_of(plan: Plan, *, time_ms: int, engine: str, was_read: bool, masked: bool) -> ScanRecord:
    """The record of a plan that was carried out; ``masked``: without its condition's values."""
    m = plan.metrics
    where = None
    if plan.predicate is not None and not masked:
        where = to_sql(plan.predicate, plan.schema.fields, _MOST_VALUES)
        if len(where) > _MOST_TEXT or "… " in where:
            where = None  # half a condition would be another one
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
        """Delete the oldest files beyond so many."""
        names = sorted(n for n in self.store.names(self.folder) if is_scan_log(n))
        if len(names) > MOST_FILES:
            self.store.delete_all([f"{self.folder}/{n}" for n in names[: len(names) - MOST_FILES]])


def default_log(paths: TablePaths, store: Store) -> ScanLog:
    """The log in a table's folder."""
    return ScanLog(store, paths.scan_log_dir)


@dataclass(frozen=True, slots=True)
class ScanSummary:
    """Many scans at a glance; ``skipping_rate``: which part of all bytes was not read, 0 to 1."""

    scans: int
    files_total: int
    files_read: int
    files_skipped: Mapping[str, int]
    bytes_total: int
    bytes_touched: int
    first_ms: int | None
    last_ms: int | None

    @property
    def skipping_rate(self) -> float:
        """Which part of the bytes of the tables that were scanned was not read, 0 to 1."""
        return max(0.0, 1 - self.bytes_touched / self.bytes_total) if self.bytes_total else 0.0


def summarise(records: Iterable[ScanRecord]) -> ScanSummary:
    """Counts of many scans, in any order."""
    found = list(records)
    skipped: dict[str, int] = {}
    for reason, count in ((k, n) for r in found for k, n in r.files_skipped.items()):
        skipped[reason] = skipped.get(reason, 0) + count
    times = [r.time_ms for r in found]
    return ScanSummary(
        len(found),
        sum(r.files_total for r in found),
        sum(r.files_read for r in found),
        dict(sorted(skipped.items())),
        sum(r.bytes_total for r in found),
        sum(r.bytes_touched for r in found),
        min(times, default=None),
        max(times, default=None),
    )
