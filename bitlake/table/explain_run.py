"""Planning a scan, and for ``analyze`` reading it, with everything measured."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bitlake.errors import BitlakeError, reading_table
from bitlake.snapshot.partitions import files_to_plan
from bitlake.table.explain_meter import BOUNDS, Meter, MeteringStore
from bitlake.table.fetch import FileTask, footer_of, has_pages
from bitlake.table.plan import Plan
from bitlake.table.read import ReadCounts, ReadRequest, read_file, tasks_of
from bitlake.table.topn import FileRanges
from bitlake.table.topn_read import Ranking, read_top_n

if TYPE_CHECKING:
    from bitlake.table.scan import Scan

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
class Run:
    """A plan, how long each phase took, and of files that were read the ranges (offset, length)."""

    plan: Plan
    phases: tuple[Phase, ...]
    ranges: dict[str, list[tuple[int, int]]]
    was_read: bool


def run_scan(scan: Scan, read: bool) -> Run:
    """Plan a scan anew, with ``read`` also read it: file after file, so that times add up; rows are let go."""
    meter = Meter(phase="manifests")
    store = MeteringStore(scan.store, meter)
    fresh = replace(scan, state=replace(scan.state, store=store), store=store, _planned=[], _recorder=None)
    if scan.other is not None:
        fresh = replace(fresh, other=replace(scan.other, state=replace(scan.other.state, store=store)))
    started = time.perf_counter()
    files_to_plan(fresh.state, fresh.predicate)
    manifests = (time.perf_counter() - started) * 1000
    meter.phase = "indexes"  # and vectors; of data files footers, for bounds or to weigh an index
    started = time.perf_counter()
    plan = fresh.plan()
    planned = (time.perf_counter() - started) * 1000
    m = plan.metrics
    asked, bounds, listed = meter.of("indexes"), meter.of(BOUNDS), meter.of("manifests")
    rest = max(0.0, planned - m.prune_ms - m.index_ms - m.pages_ms - m.top_n_ms)
    phases = [
        Phase("manifests", manifests, listed.bytes, listed.requests),
        Phase("statistics", m.prune_ms),
        Phase("indexes", m.index_ms, asked.bytes, asked.requests),
        Phase("top n", m.top_n_ms),
        Phase("deletion vectors", rest),
        Phase(BOUNDS, m.pages_ms, bounds.bytes, bounds.requests),
    ]
    if read:
        phases += _read(fresh, plan, store, meter)
    return Run(plan, tuple(p for p in phases if p.ms or p.bytes), dict(meter.ranges), read)


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
