"""Planning a scan, and for ``analyze`` reading it, with everything measured."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from bitlake.errors import BitlakeError, reading_table
from bitlake.io import Store
from bitlake.io.base import WHOLE_FILE_BYTES
from bitlake.scan.column_reader import FileTask, ReadCounts, footer_of, has_pages
from bitlake.scan.plan import Plan, StepName
from bitlake.scan.reader import ReadRequest, read_file, tasks_of
from bitlake.scan.scan import Scan
from bitlake.scan.top_n_planner import FileRanges
from bitlake.scan.top_n_reader import Ranking, read_top_n
from bitlake.snapshot.partitions import files_to_plan

PHASES = (
    "manifests",
    "statistics",
    "indexes",
    "top n",
    "deletion vectors",
    "page bounds",
    "footers",
    "read",
    "decode",
    "filter",
)


@dataclass(frozen=True, slots=True)
class Phase:
    """One step of a scan: milliseconds, and what it asked of the store.

    ``decode`` is what reading took besides waiting for bytes (``read``) and judging rows (``filter``).
    """

    name: str
    ms: float
    bytes: int = 0
    requests: int = 0


@dataclass(frozen=True, slots=True)
class MeasuredScan:
    """A plan, how long each phase took, and of files that were read the ranges (offset, length)."""

    plan: Plan
    phases: tuple[Phase, ...]
    ranges: dict[str, list[tuple[int, int]]]
    was_read: bool


def run_scan(scan: Scan, read: bool) -> MeasuredScan:
    """Plan a scan again, and with ``read`` also read it: file by file, so that times add up; rows are discarded."""
    meter = Meter(phase="manifests")
    store = MeteringStore(scan.store, meter)
    fresh = replace(scan, state=replace(scan.state, store=store), store=store, _planned=[], _recorder=None)
    if scan.other is not None:
        fresh = replace(fresh, other=replace(scan.other, state=replace(scan.other.state, store=store)))
    started = time.perf_counter()
    files_to_plan(fresh.state, fresh.predicate)
    manifests = (time.perf_counter() - started) * 1000
    meter.phase = "indexes"  # and vectors; of data files footers, for bounds or to weigh an index
    plan = fresh.plan()
    m = plan.metrics
    asked, bounds, listed = meter.of("indexes"), meter.of(BOUNDS), meter.of("manifests")
    vectors = sum(s.ms for s in plan.steps if s.name is StepName.VECTORS)
    phases = [
        Phase("manifests", manifests, listed.bytes, listed.requests),
        Phase("statistics", m.prune_ms),
        Phase("indexes", m.index_ms, asked.bytes, asked.requests),
        Phase("top n", m.top_n_ms),
        Phase("deletion vectors", vectors),
        Phase(BOUNDS, m.pages_ms, bounds.bytes, bounds.requests),
    ]
    if read:
        phases += _read(fresh, plan, store, meter)
    return MeasuredScan(plan, tuple(p for p in phases if p.ms or p.bytes), dict(meter.ranges), read)


def _read(scan: Scan, plan: Plan, store: MeteringStore, meter: Meter) -> list[Phase]:
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
        Phase("footers", footers, footed.bytes, footed.requests),
        Phase("read", waited, fetched.bytes, fetched.requests),
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


# --- explain_meter ---
# A store that measures what a scan asks of the one below: bytes, requests and time, and which ranges of each file.

BOUNDS = "page bounds"


@dataclass(slots=True)
class Measured:
    """What was read of one kind of file in one phase; ``seconds`` spent waiting for the store, by all threads."""

    requests: int = 0
    bytes: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Meter:
    """What a :class:`MeteringStore` saw: by phase, and of each file the ranges (offset, length).  Threads add to it."""

    phase: str = "plan"
    by_phase: dict[str, Measured] = field(default_factory=dict)
    ranges: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, path: str, ranges: Sequence[tuple[int, int]], seconds: float) -> None:
        """Take down a request."""
        size = sum(n for _, n in ranges)
        # Planning reads footers, and bounds of pages that lie before them; all else is of indexes.
        phase = BOUNDS if self.phase == "indexes" and path.endswith(".parquet") else self.phase
        with self._lock:
            found = self.by_phase.setdefault(phase, Measured())
            found.requests += 1
            found.bytes += size
            found.seconds += seconds
            if self.phase == "read":
                self.ranges.setdefault(path, []).extend(ranges)

    def of(self, phase: str) -> Measured:
        """What a phase took; nothing if it did not come."""
        return self.by_phase.get(phase, Measured())


class MeteringStore:
    """Passes every call on; reading ones are measured by ``meter``."""

    def __init__(self, inner: Store, meter: Meter) -> None:
        self._inner = inner
        self._meter = meter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def read(self, path: str, limit: int = WHOLE_FILE_BYTES) -> bytes:
        """Measured :meth:`Store.read`."""
        started = time.perf_counter()
        data = self._inner.read(path, limit)
        self._meter.add(path, [(0, len(data))], time.perf_counter() - started)
        return data

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Measured :meth:`Store.read_range`."""
        started = time.perf_counter()
        data = self._inner.read_range(path, offset, length)
        self._meter.add(path, [(offset, length)], time.perf_counter() - started)
        return data

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Measured :meth:`Store.read_ranges`."""
        started = time.perf_counter()
        data = self._inner.read_ranges(path, ranges)
        self._meter.add(path, ranges, time.perf_counter() - started)
        return data

    def read_start(self, path: str, length: int) -> tuple[bytes, int]:
        """Measured :meth:`Store.read_start`."""
        started = time.perf_counter()
        data, size = self._inner.read_start(path, length)
        self._meter.add(path, [(0, len(data))], time.perf_counter() - started)
        return data, size

    def open_input(self, path: str, size: int | None = None) -> Any:
        """An Arrow file whose reads are measured."""
        started = time.perf_counter()
        inner = self._inner.open_input(path, size)
        self._meter.add(path, [], time.perf_counter() - started)
        return pa.PythonFile(_MeteredFile(inner, path, self._meter), mode="r")


class _MeteredFile(io.RawIOBase):
    """A Python file over an Arrow one."""

    def __init__(self, inner: Any, path: str, meter: Meter) -> None:
        self._inner, self._path, self._meter = inner, path, meter

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        started = time.perf_counter()
        at = self._inner.tell()
        data: bytes = self._inner.read(None if size is None or size < 0 else size)
        self._meter.add(self._path, [(at, len(data))], time.perf_counter() - started)
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
