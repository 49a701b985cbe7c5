"""Explanation of a scan: files and bytes left after each step, why, how long it took, and what would help.

:meth:`bitlake.table.scan.Scan.explanation` makes one by planning the scan again, and for ``analyze`` reading it, with
everything measured; a scan that is not explained pays nothing for it.
"""

from __future__ import annotations

import io
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import pyarrow as pa

from bitlake.errors import BitlakeError, reading_table
from bitlake.formatting import counted, human_bytes, one_line, printable, render
from bitlake.io import Store
from bitlake.io.base import WHOLE_FILE_BYTES
from bitlake.io.local_cache import hit_bytes
from bitlake.scan.column_reader import FileTask, ReadCounts, footer_of, has_pages
from bitlake.scan.plan import Plan, SkipReason, StepName
from bitlake.scan.reader import ReadRequest, read_file, tasks_of
from bitlake.scan.scan import TableScan
from bitlake.scan.top_n import FileRanges, Ranking, read_top_n
from bitlake.tools.explain.advice import Advice, LeafStep, advice_of, asked_of, leaf_steps
from bitlake.tools.explain.pages import FileMap, maps_of
from bitlake.tools.explain.text import explain_dict, explain_text

T = TypeVar("T")

# --- a measured run ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Phase:
    """One step of a scan: milliseconds, and what it asked of the store.

    ``decode`` is what reading took besides waiting for bytes (``read``) and judging rows (``filter``).
    ``advice`` is the trial of indexes after the scan was read.
    """

    name: str
    ms: float
    bytes: int = 0
    requests: int = 0
    cached_bytes: int = 0
    """Those of the bytes that a local cache had."""


@dataclass(frozen=True, slots=True)
class MeasuredScan:
    """A plan, how long each phase took, and of files that were read the ranges (offset, length)."""

    plan: Plan
    phases: tuple[Phase, ...]
    ranges: dict[str, list[tuple[int, int]]]


def run_scan(scan: TableScan, read: bool) -> MeasuredScan:
    """Plan a scan again, and with ``read`` also read it: file by file, so that times add up; rows are discarded."""
    meter = Meter(phase="manifests")
    store = MeteringStore(scan.store, meter)
    fresh = replace(scan, state=replace(scan.state, store=store), store=store, _planned=[], _recorder=None)
    if scan.other is not None:
        fresh = replace(fresh, other=replace(scan.other, state=replace(scan.other.state, store=store)))
    started = time.perf_counter()
    fresh.files_to_plan()
    manifests = (time.perf_counter() - started) * 1000
    meter.phase = "indexes"  # and vectors; of data files footers, for bounds or to weigh an index
    plan = fresh.plan()
    m = plan.metrics
    asked, bounds, listed = meter.of("indexes"), meter.of(BOUNDS), meter.of("manifests")
    vectors = sum(s.ms for s in plan.steps if s.name is StepName.VECTORS)
    phases = [
        Phase("manifests", manifests, listed.bytes, listed.requests, listed.cached_bytes),
        Phase("statistics", m.prune_ms),
        Phase("indexes", m.index_ms, asked.bytes, asked.requests, asked.cached_bytes),
        Phase("top n", m.top_n_ms),
        Phase("deletion vectors", vectors),
        Phase(BOUNDS, m.pages_ms, bounds.bytes, bounds.requests, bounds.cached_bytes),
    ]
    if read:
        phases += _read(fresh, plan, store, meter)
    return MeasuredScan(plan, tuple(p for p in phases if p.ms or p.bytes), dict(meter.ranges))


def _read(scan: TableScan, plan: Plan, store: MeteringStore, meter: Meter) -> list[Phase]:
    meter.phase = "footers"
    tasks = tasks_of(plan.files, plan.schemas)
    footers = _footers(store, tasks)
    meter.phase = "read"
    request = ReadRequest(scan.state.schema, scan.columns, scan.predicate, scan.timezone, scan.ignored)
    counts = [ReadCounts() for _ in tasks]
    started = time.perf_counter()
    left = scan.row_limit
    with reading_table(scan.state.name):
        if scan.order and left is not None:
            ranges = FileRanges(scan.order[0], scan.state.schema, plan.schemas, scan.state.paths)
            ranking = Ranking(scan.order, left, ranges, scan.use_index, plan.metrics)
            read_top_n(store, plan.files, plan.schemas, request, ranking, counts, None)
        else:
            for task, counted in zip(tasks, counts, strict=True):
                if left is not None and left <= 0:
                    break
                for table in read_file(store, task, request, counted):
                    left = None if left is None else left - table.num_rows
                    if left is not None and left <= 0:
                        break
    total = (time.perf_counter() - started) * 1000
    plan.metrics.count_read({t.path: c.as_dict() for t, c in zip(tasks, counts, strict=True)})
    plan.metrics.read_ms = total
    fetched, footed = meter.of("read"), meter.of("footers")
    filtered = sum(c.filter_ns for c in counts) / 1e6
    waited = fetched.seconds * 1000
    return [
        Phase("footers", footers, footed.bytes, footed.requests, footed.cached_bytes),
        Phase("read", waited, fetched.bytes, fetched.requests, fetched.cached_bytes),
        Phase("decode", max(0.0, total - waited - filtered)),
        Phase("filter", filtered),
    ]


def _footers(store: MeteringStore, tasks: list[FileTask]) -> float:
    started = time.perf_counter()
    for task in flattened(tasks):
        if has_pages(task):
            try:
                footer_of(store, task)
            except BitlakeError:
                continue  # reading says what is wrong
    return (time.perf_counter() - started) * 1000


def flattened(tasks: list[FileTask]) -> list[FileTask]:
    """The tasks, with those of merged files in the place of what stands for them."""
    return [t for task in tasks for t in (flattened(list(task.merge.files)) if task.merge is not None else [task])]


# --- a store that measures --------------------------------------------------------------------------------------------

BOUNDS = "page bounds"


@dataclass(slots=True)
class Measured:
    """Reads of one kind of file in one phase; ``seconds`` spent waiting for the store, by all threads.

    ``requests`` without those that a local cache answered; ``cached_bytes``: what it had.
    """

    requests: int = 0
    bytes: int = 0
    cached_bytes: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Meter:
    """What a :class:`MeteringStore` saw: by phase, and of each file the ranges (offset, length).  Threads add to it."""

    phase: str = "plan"
    by_phase: dict[str, Measured] = field(default_factory=dict)
    ranges: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, path: str, ranges: Sequence[tuple[int, int]], seconds: float, cached_bytes: int) -> None:
        """Take down a request, of whose bytes a local cache had ``cached_bytes``."""
        size = sum(n for _, n in ranges)
        # Planning reads footers, and bounds of pages that lie before them; all else is of indexes.
        phase = BOUNDS if self.phase == "indexes" and path.endswith(".parquet") else self.phase
        with self._lock:
            measured = self.by_phase.setdefault(phase, Measured())
            measured.requests += not size or cached_bytes < size
            measured.bytes += size
            measured.cached_bytes += cached_bytes
            measured.seconds += seconds
            if self.phase == "read":
                self.ranges.setdefault(path, []).extend(ranges)

    def of(self, phase: str) -> Measured:
        """Return the cost of a phase; zero if it did not run."""
        return self.by_phase.get(phase, Measured())


def _passed_on(store: Store) -> Store:
    return store


class MeteringStore:
    """Passes every call on; ``meter`` measures the bytes, requests, time and ranges of reading ones."""

    def __init__(self, inner: Store, meter: Meter) -> None:
        self._inner = inner
        self._meter = meter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _passed_on, (self._inner,)  # what tasks read is not measured

    def read(self, path: str, limit: int = WHOLE_FILE_BYTES) -> bytes:
        """Measured :meth:`Store.read`."""
        return self._measured(path, lambda: self._inner.read(path, limit), lambda data: [(0, len(data))])

    def read_tagged(self, path: str, limit: int = WHOLE_FILE_BYTES) -> tuple[bytes, str | None]:
        """Measured :meth:`Store.read_tagged`."""
        return self._measured(path, lambda: self._inner.read_tagged(path, limit), lambda found: [(0, len(found[0]))])

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Measured :meth:`Store.read_range`."""
        return self._measured(path, lambda: self._inner.read_range(path, offset, length), lambda _: [(offset, length)])

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Measured :meth:`Store.read_ranges`."""
        return self._measured(path, lambda: self._inner.read_ranges(path, ranges), lambda _: ranges)

    def read_part(self, path: str, offset: int, length: int) -> tuple[bytes, int]:
        """Measured :meth:`Store.read_part`."""
        return self._measured(
            path, lambda: self._inner.read_part(path, offset, length), lambda found: [(offset, len(found[0]))]
        )

    def open_input(self, path: str, size: int | None = None) -> Any:
        """An Arrow file whose reads are measured."""
        inner = self._measured(path, lambda: self._inner.open_input(path, size), lambda _: [])
        return pa.PythonFile(_MeteredFile(inner, path, self._meter), mode="r")

    def _measured(self, path: str, call: Callable[[], T], ranges: Callable[[T], Sequence[tuple[int, int]]]) -> T:
        started, hits = time.perf_counter(), hit_bytes()
        result = call()
        self._meter.add(path, ranges(result), time.perf_counter() - started, hit_bytes() - hits)
        return result


class _MeteredFile(io.RawIOBase):
    """A Python file over an Arrow one."""

    def __init__(self, inner: Any, path: str, meter: Meter) -> None:
        self._inner, self._path, self._meter = inner, path, meter

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        started, hits = time.perf_counter(), hit_bytes()
        at = self._inner.tell()
        data: bytes = self._inner.read(None if size is None or size < 0 else size)
        self._meter.add(self._path, [(at, len(data))], time.perf_counter() - started, hit_bytes() - hits)
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._inner.seek(offset, whence))

    def tell(self) -> int:
        return int(self._inner.tell())

    def size(self) -> int:
        return int(self._inner.size())

    def close(self) -> None:
        if not self.closed:
            self._inner.close()
        super().close()


# --- the explanation --------------------------------------------------------------------------------------------------

MOST_FILES = 400
"""Files that are shown one by one."""
_ORDER = (
    SkipReason.PARTITION, SkipReason.BUCKET, SkipReason.LEVEL_0, SkipReason.POSTPONED, SkipReason.STATS,
    SkipReason.INDEX, SkipReason.DELETED, SkipReason.PAGES, SkipReason.TOP_N, SkipReason.LIMIT,
)  # fmt: skip
_ALWAYS = (SkipReason.STATS, SkipReason.INDEX)


@dataclass(frozen=True, slots=True)
class Step:
    """The bytes and files left after a step, whose name is ``name``.

    ``estimated``: from some of the files only, because there are too many footers to read.
    """

    name: str
    bytes: int
    files: int
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a scan reads what it reads.

    ``analyzed``: it was read, and ``phases``, bytes read and ``files`` are measured.  ``steps`` are the
    bytes left after each step, beginning with all of the table's.  ``leaves``: what each condition's indexes did
    (``leaves_left_out`` files were not asked again).  ``files``: at most :data:`MOST_FILES`, those to read first.
    ``str()`` is for people; notebooks show :meth:`_repr_html_`.

    >>> explanation = table.scan(["order_id"], "status = 'SENT'").explanation(analyze=True)
    >>> [(step.name, step.files) for step in explanation.steps[:4]]
    [('all files', 3), ('partition', 3), ('statistics', 1), ('file index', 1)]
    >>> explanation.bytes_read, explanation.files_left_out  # data of small files comes with their footers
    (0, 0)
    >>> print(explanation.text())
    Scan of default.orders at snapshot 2
      columns    order_id
      where      status = 'SENT'
      files      1 of 3 read; skipped by statistics: 2
      rows       1 of 6 chosen (17 %)
      data       ... in files to read, of ...
      planned in ... ms (...)
    ...
    >>> page, text = explanation.to_html(), explanation.to_json()
    >>> explanation.to_dict()["analyzed"]
    True
    """

    plan: Plan
    analyzed: bool
    steps: tuple[Step, ...]
    phases: tuple[Phase, ...]
    leaves: tuple[LeafStep, ...]
    leaves_left_out: int
    files: tuple[FileMap, ...]
    advice: tuple[Advice, ...]

    def __repr__(self) -> str:
        return f"Explanation({self.plan!r})"

    @property
    def files_left_out(self) -> int:
        """Files of the plan that :attr:`files` is without."""
        return max(0, self.plan.metrics.files - len(self.files))

    @property
    def bytes_read(self) -> int | None:
        """Bytes of data that were read, without footers and the data that came with them; None unless analyzed."""
        return next((p.bytes for p in self.phases if p.name == "read"), 0) if self.analyzed else None

    @property
    def read_more(self) -> str:
        """Why more was read than the pages that were needed; empty if it was not."""
        more = self.analyzed and len(self.steps) > 1 and self.steps[-1].bytes > self.steps[-2].bytes
        return "files that are read in order are read some way ahead" * more

    def text(self) -> str:
        """The explanation for people: the plan's text, then :meth:`details`."""
        return printable(f"{explain_text(self.plan)}\n\n{self.details()}")

    __str__ = text

    def details(self) -> str:
        """Return a text: what each step left, what conditions' indexes did, phases and advice."""
        lines = _table(
            ("left after", "files", "bytes"),
            [(s.name, f"{s.files:,}", f"{'about ' * s.estimated}{human_bytes(s.bytes)}") for s in self.steps],
        )
        if self.read_more:
            lines.append(f"  ({self.read_more})")
        if self.leaves:
            lines += ["", *(line for step in self.leaves for line in _leaf_lines(step))]
            for step in self.leaves:
                lines += [f"  {step.condition}: not asked in {n:,} files: {why}" for why, n in step.not_asked]
            if self.leaves_left_out:
                lines.append(f"  ({self.leaves_left_out:,} more files were not looked at for this)")
        lines += ["", *_table(*self._phase_table())]
        for advice in self.advice:
            lines += ["", f"  would have helped: {advice}", *(f"    {s}" for s in advice.statements)]
        return "\n".join(lines)

    def _phase_table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        head: tuple[str, ...] = ("phase", "time", "bytes", "requests")
        rows: list[tuple[str, ...]] = [
            (p.name, f"{p.ms:.1f} ms", human_bytes(p.bytes) if p.bytes else "", f"{p.requests:,}" if p.requests else "")
            for p in self.phases
        ]
        if not any(p.cached_bytes for p in self.phases):
            return head, rows
        found = [human_bytes(p.cached_bytes) if p.cached_bytes else "" for p in self.phases]
        return (*head, "in local cache"), [(*row, cached) for row, cached in zip(rows, found, strict=True)]

    def to_dict(self) -> dict[str, Any]:
        """The explanation as plain values: :func:`bitlake.tools.explain.text.explain_dict`'s, and more."""
        return {
            **explain_dict(self.plan),
            "analyzed": self.analyzed,
            "left_after": [
                {"step": s.name, "files": s.files, "bytes": s.bytes, "estimated": s.estimated} for s in self.steps
            ],
            "phases": [
                {"phase": p.name, "ms": p.ms, "bytes": p.bytes, "requests": p.requests, "cached_bytes": p.cached_bytes}
                for p in self.phases
            ],
            "conditions": [
                {
                    "condition": s.condition, "indexes": list(s.indexes), "files": s.files,
                    "files_without_index": s.files_without, "files_emptied": s.files_emptied,
                    "rows_before": s.rows_before, "rows_after": s.rows_after,
                    "not_asked": [{"why": why, "files": n} for why, n in s.not_asked],
                }
                for s in self.leaves
            ],
            "pages_of_files": [
                {
                    "path": m.path.removeprefix(self.plan.root).lstrip("/"), "rows": m.rows, "bytes": m.size,
                    "state": m.state, "why": m.why, "column": m.column, "column_bytes": m.column_bytes,
                    "page_bytes": m.page_bytes, "bytes_read": m.bytes_read, "pages": m.pages(),
                    "cells": [[c.first_row, c.rows, c.pages, c.state] for c in m.cells],
                }
                for m in self.files
            ],
            "files_left_out": self.files_left_out,
            "advice": [
                {
                    "column": a.column, "index": a.index, "condition": a.condition, "why": a.why, "files": a.files,
                    "bytes": a.bytes, "statements": list(a.statements),
                }
                for a in self.advice
            ],
        }  # fmt: skip

    def to_json(self) -> str:
        """:meth:`to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False)

    def to_html(self) -> str:
        """A page of its own, with pictures; it loads nothing."""
        return str(render("explanation html", [self], None, None, True))

    def _repr_html_(self) -> str:
        return str(render("explanation html", [self], None, None, False))


@dataclass(frozen=True, slots=True)
class QueryExplanation:
    """Explanations of the scans of a query, one for each lake table in it, and Spark's plan of the rest.

    >>> explanation = lake.explanation("SELECT order_id FROM orders WHERE status = 'SENT'")
    >>> print(explanation.text())
    Scan of default.orders at snapshot 2
      columns    order_id, status
      where      status = 'SENT'
      files      1 of 3 read; skipped by statistics: 2
      rows       1 of 6 chosen (17 %)
      data       ... in files to read, of ...
      planned in ... ms (...)
    ...
    >>> page, text = explanation.to_html(), explanation.to_json()
    >>> explanation.to_dict()["query"]
    "SELECT order_id FROM orders WHERE status = 'SENT'"
    """

    query: str
    scans: tuple[Explanation, ...]
    spark: str

    def __repr__(self) -> str:
        return f"QueryExplanation({counted(len(self.scans), 'scan')}: {one_line(self.query, 120)})"

    def text(self) -> str:
        """All of it for people."""
        return printable("\n\n".join([*(s.text() for s in self.scans), self.spark]))

    __str__ = text

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {"query": self.query, "scans": [s.to_dict() for s in self.scans], "spark": self.spark}

    def to_json(self) -> str:
        """:meth:`to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False)

    def to_html(self) -> str:
        """A page of its own, with pictures; it loads nothing."""
        return str(render("explanation html", self.scans, self.query, self.spark, True))

    def _repr_html_(self) -> str:
        return str(render("explanation html", self.scans, self.query, self.spark, False))


def explain_scan(scan: TableScan, analyze: bool) -> Explanation:
    """Plan a scan again and explain it; ``analyze`` also reads it and discards the rows."""
    run = run_scan(scan, analyze)
    plan = run.plan
    leaves, left_out = leaf_steps(plan, scan.store, scan.use_index)
    maps, column_bytes, page_bytes, seen = maps_of(plan, scan.store, run.ranges if analyze else None, MOST_FILES)
    steps = _steps(plan, bool(scan.state.schema.partition_keys))
    if maps:
        left, files = steps[-1].bytes, steps[-1].files
        # What was not looked at is taken to be like the rest.
        guessed, scale = seen < left, left / max(seen, 1)
        for name, size in (("columns that are needed", column_bytes), ("pages without a chosen row", page_bytes)):
            left = min(left, round(size * scale) if guessed else size)
            steps.append(Step(name, left, files, guessed))
    if analyze:
        opened = sum(1 for r in run.ranges.values() if r)
        steps += [Step("read", sum(p.bytes for p in run.phases if p.name == "read"), opened)]
    meter = Meter(phase="advice")
    tried, started = replace(scan, store=MeteringStore(scan.store, meter)), time.perf_counter()
    advice = advice_of(tried, plan, leaves, steps[-1].bytes if maps else 0, analyze)
    took, phases = meter.of("advice"), run.phases
    if took.requests:
        ms = (time.perf_counter() - started) * 1000
        phases = (*phases, Phase("advice", ms, took.bytes, took.requests, took.cached_bytes))
    skipped = _skipped(plan, MOST_FILES - len(maps))
    return Explanation(plan, analyze, tuple(steps), phases, tuple(leaves), left_out, (*maps, *skipped), tuple(advice))


def _steps(plan: Plan, partitioned: bool) -> list[Step]:
    """The files and bytes that are left after each reason to skip files, in the order of planning."""
    sizes: Counter[SkipReason] = Counter()
    counts: Counter[SkipReason] = Counter()
    for step in plan.steps:
        sizes.update(step.skipped_bytes())
        counts.update(step.skipped_files())
    m = plan.metrics
    sizes.update({SkipReason(reason): size for reason, size in m.bytes_unlisted.items()})
    counts.update({SkipReason(reason): files for reason, files in m.files_unlisted.items()})
    left, files = m.data_bytes, m.files - m.files_unseen
    steps = [Step("all files" if not m.files_unseen else "all files of these partitions", left, files)]
    for reason in _ORDER:
        shown = reason in counts or (plan.predicate is not None and reason in _ALWAYS)
        if shown or (reason is SkipReason.PARTITION and partitioned and plan.predicate is not None):
            left, files = left - sizes[reason], files - counts[reason]
            steps.append(Step(reason.value, left, files))
    return steps


def _skipped(plan: Plan, most: int) -> Sequence[FileMap]:
    return [FileMap(s.path, s.row_count, s.size, s.reason.value, s.detail) for s in plan.skipped[: max(0, most)]]


def _leaf_lines(step: LeafStep) -> list[str]:
    """A condition, and what asking its indexes left: two lines, as conditions are long."""
    line = f"{asked_of(step)}: {step.rows_after:,} of {counted(step.rows_before, 'row')} left"
    if step.files_emptied:
        line += f", {counted(step.files_emptied, 'file')} emptied"
    if step.files_without:
        line += f", {counted(step.files_without, 'file')} without an index of it"
    return [f"  {step.condition}", f"    {line}"]


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Aligned lines; the columns after the first are numbers, to the right."""
    wide = [max(len(r[i]) for r in (head, *rows)) for i in range(len(head))]
    lines = []
    for row in (head, *rows):
        cells = [f"{c:<{w}}" if i < 1 else f"{c:>{w}}" for i, (c, w) in enumerate(zip(row, wide, strict=True))]
        lines.append(("  " + "  ".join(cells)).rstrip())
    return lines
