"""Run work items on the executors: ``run(items, fn)`` as a Spark job, with pickling and job progress.

PySpark's own cloudpickle pickles functions and work items.  Progress counts the tasks that Spark has finished: a
classic session tags the statement's jobs, and the status tracker knows their stages; on Spark Connect the server
reports progress with its answers.  Where no progress is shown, nothing is set up.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from bitlake import _clock
from bitlake.formatting import one_line
from bitlake.progress import Job, job
from bitlake.scan.read_ahead import read_in_order
from bitlake.spark.errors import spark_errors
from bitlake.spark.types import decimals_from_longs, spark_batches, transfer_types, transferred, worker_schema

Item = TypeVar("Item")
Result = TypeVar("Result")

TARGET_BYTES = 128 << 20
"""Bytes of files that one task reads, if there are more."""
OPEN_BYTES = 4 << 20
"""Bytes that opening a file counts for, as in Paimon and Spark."""
# More tasks than cores even out items of unequal cost; many more only add scheduling.
_TASKS_PER_CORE = 4


class SparkRunner:
    """Runs a function over work items on the executors.

    Items and results travel pickled: they are descriptions (paths, positions, file metadata), never data.  The items
    go with the task's closure, which Spark broadcasts once it is large, so that no shuffle stage is needed.
    """

    def __init__(self, spark: SparkSession, tasks: int | None = None) -> None:
        """``tasks``: the most tasks of a job; default: a few for each core."""
        self._spark = spark
        self._tasks = tasks

    @property
    def cores(self) -> int:
        """The cores of the executors, by Spark's default parallelism."""
        return _cores(self._spark)

    def run(self, items: Sequence[Item], fn: Callable[[Item], Result]) -> list[Result]:
        """Return ``[fn(item) for item in items]``, in order; an error that ``fn`` raises is raised here as it is."""
        if not items:
            return []
        tasks = min(len(items), self._tasks or _TASKS_PER_CORE * _cores(self._spark))
        packed = [dumps(item) for item in items]
        call = dumps(fn)

        def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return _work(call, packed, tasks, batches)

        with spark_errors("running Python tasks"):
            found = self._spark.range(0, tasks, 1, tasks).mapInArrow(work, "result binary").toArrow()
        results: list[Any] = [None] * len(items)
        for value in found.column("result").to_pylist():
            index, error, result = loads(value)
            if error is not None:
                raise error
            results[index] = result
        return results


def pack(spark: SparkSession, sizes: Sequence[int]) -> list[range]:
    """Consecutive work items for each task, by how many bytes each item reads, as Spark packs files into tasks.

    Opening an item counts for 4 MB.  A task takes 128 MB, or less where cores would be idle, and at least one item.
    Of very many items, opening counts for less, and makes at most four tasks for each core: 5,000 small files took 13 s
    of processor time in 157 tasks, and 6 s in 16, since a Python worker begins and ends each task in some 40 ms.
    """
    if not len(sizes):
        return []
    cores = _cores(spark)
    opening = min(OPEN_BYTES, _TASKS_PER_CORE * cores * TARGET_BYTES // len(sizes))
    costs = np.asarray(sizes, dtype=np.int64) + opening
    most = min(TARGET_BYTES, max(OPEN_BYTES, -(-int(costs.sum()) // cores)))
    tasks = (np.cumsum(costs) - costs) // most
    starts = [*np.flatnonzero(np.diff(tasks, prepend=-1)).tolist(), len(costs)]
    return [range(a, b) for a, b in pairwise(starts)]


def read_packed(
    spark: SparkSession,
    items: Sequence[Item],
    sizes: Sequence[int],
    types: T.StructType,
    read: Callable[[int, Item], Iterator[pa.Table]],
    share: float = 1.0,
    at_once: int = 1,
) -> DataFrame:
    """Return a DataFrame of the rows of work items, read in Python workers; ``sizes`` are their bytes (:func:`pack`).

    ``read(number, item)`` yields an item's rows with columns ``types``.  The items of a task are pickled together, so
    that they share their schemas in the worker too.  ``share``: the part of the bytes that the columns
    take, from which Spark estimates whether the rows are few enough to be broadcast.  ``at_once``: the number of items
    that a task reads in parallel.
    """
    tasks = [dumps([(n, items[n], sizes[n]) for n in numbers]) for numbers in pack(spark, sizes)]
    sent = transfer_types(spark, types)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = worker_schema(sent)
        given = [item for batch in batches for task in batch.column(0).to_pylist() for item in loads(tasks[task])]
        tables = read_in_order([size for _, _, size in given], lambda i: read(*given[i][:2]), at_once=at_once)
        rows = spark_batches(tables, worker_schema(types))
        yield from rows if sent == types else (transferred(batch, schema) for batch in rows)

    return decimals_from_longs(_task_numbers(spark, len(tasks), int(sum(sizes) * share)).mapInArrow(work, sent), types)


def _task_numbers(spark: SparkSession, tasks: int, size: int) -> DataFrame:
    """A row for each task, with its number; Spark estimates the output of ``mapInArrow`` over them as ``size`` bytes.

    Spark assumes that the output has as many bytes as the input, and that a range has 8 bytes a number.  With a number
    for each task, it broadcast any table, and a join of large tables failed for lack of memory.  So the range has
    ``size`` / 8 numbers, of which one per task is kept.  Spark's generated code drops the others, 16 million in 20 ms.
    """
    step = max(1, min(size, _MAX_ESTIMATE_BYTES) // (_NUMBER_BYTES * max(1, tasks)))
    numbers = spark.range(0, tasks * step, 1, max(1, tasks))
    return numbers if step == 1 else numbers.where(f"id % {step} = 0").selectExpr(f"id div {step} AS id")


_NUMBER_BYTES = 8
_MAX_ESTIMATE_BYTES = 128 << 20
"""Bytes beyond which no table is broadcast: by default, Spark broadcasts up to 10 MB."""

_LISTING = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
_LISTING_DEFAULT = "10000"
_SERIAL_PATHS = 32
"""Spark looks at up to this many paths without a job (``…parallelPartitionDiscovery.threshold``)."""
_listing_lock = threading.Lock()


@contextmanager
def few_listing_tasks(spark: SparkSession, paths: int) -> Iterator[None]:
    """In the block, Spark's readers look at ``paths`` given paths in a few tasks, unless the session has a setting.

    By default each path is a task: for 5,000 small files, planning took 37 s instead of 3 s on two busy cores.  Spark
    Connect looks at them after the block, with the session's settings.
    """
    if paths <= _SERIAL_PATHS:
        yield
        return
    with _listing_lock:
        ours = spark.conf.get(_LISTING) == _LISTING_DEFAULT
        if ours:
            spark.conf.set(_LISTING, str(_TASKS_PER_CORE * _cores(spark)))
        try:
            yield
        finally:
            if ours:
                spark.conf.unset(_LISTING)


def _cores(spark: SparkSession) -> int:
    cores = int(spark.conf.get("spark.default.parallelism", "0") or 0)
    try:
        return cores or int(spark.sparkContext.defaultParallelism)
    except Exception:  # noqa: BLE001 - Spark Connect has no context; any small number of tasks per core will do
        return 8


def _work(call: bytes, packed: list[bytes], tasks: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    fn = loads(call)
    for batch in batches:
        for task in batch.column(0).to_pylist():
            for index in range(task, len(packed), tasks):
                done = _attempt(fn, index, loads(packed[index]))
                yield pa.record_batch({"result": pa.array([done], pa.binary())})


def _attempt(fn: Callable[[Any], Any], index: int, item: Any) -> bytes:
    try:
        return dumps((index, None, fn(item)))
    except Exception as e:  # noqa: BLE001 - carried to the driver, where it is raised with its own type
        return dumps((index, e, None))


def dumps(value: object) -> bytes:
    """The value as bytes; functions and classes defined in a script or a notebook go by value."""
    return bytes(cloudpickle.dumps(value))  # type: ignore[no-untyped-call]


def loads(data: bytes) -> Any:
    """The value of :func:`dumps`."""
    return cloudpickle.loads(data)


_LABEL_LENGTH = 60
"""Characters of a statement in the label of its job."""
_EVERY = 0.5
"""Seconds between two queries of Spark's status tracker, each some calls into the JVM."""


@contextlib.contextmanager
def watched(spark: SparkSession, text: str, enabled: bool) -> Iterator[None]:
    """Show the progress of a statement in Spark tasks; see :func:`bitlake.progress.job`."""
    with job(one_line(text, _LABEL_LENGTH), enabled) as statement:
        if statement is None:
            yield
        elif getattr(spark, "_jsparkSession", None) is None:
            with _connect_progress(spark, statement):
                yield
        else:
            with _classic_progress(spark, statement):
                yield


# --- a session in this process's JVM ----------------------------------------------------------------------------------


@contextlib.contextmanager
def _classic_progress(spark: SparkSession, statement: Job) -> Iterator[None]:
    context = spark.sparkContext
    tag = f"bitlake-progress-{_clock.new_uuid()}"
    context.addJobTag(tag)
    statement.look = _Tracker(context, tag).look
    try:
        yield
    finally:
        statement.look = None
        context.removeJobTag(tag)


class _Tracker:
    """Counts the tasks of all Spark jobs with a tag, and queries finished jobs only once.  Mutable."""

    def __init__(self, context: Any, tag: str) -> None:
        self._context, self._tag = context, tag
        self._finished: dict[int, tuple[int, int]] = {}
        self._last = 0.0

    def look(self, statement: Job) -> None:
        """Update the job's number of finished tasks."""
        now = time.monotonic()
        if now - self._last < _EVERY:
            return
        self._last = now
        tracker = self._context.statusTracker()
        counts = dict(self._finished)
        for number in self._context._jsc.sc().statusTracker().getJobIdsForTag(self._tag):
            info = None if number in self._finished else tracker.getJobInfo(number)
            if info is None:
                continue
            stages = [stage for stage in map(tracker.getStageInfo, info.stageIds) if stage is not None]
            completed = sum(s.numCompletedTasks for s in stages)
            counts[number] = completed, sum(s.numTasks for s in stages)
            if info.status != "RUNNING":
                # Spark skipped the other tasks: the output of their stages already existed.
                counts[number] = self._finished[number] = completed, completed
        _count(statement, counts.values())


# --- Spark Connect ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _connect_progress(spark: SparkSession, statement: Job) -> Iterator[None]:
    session: Any = spark
    operations: dict[str | None, tuple[int, int]] = {}

    def handler(stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        reported = list(stages or ())
        completed = sum(s.num_completed_tasks for s in reported)
        # As above: when the operation is done, Spark skipped the other tasks.
        operations[operation_id] = completed, completed if done else sum(s.num_tasks for s in reported)
        _count(statement, operations.values())

    session.registerProgressHandler(handler)
    try:
        yield
    finally:
        session.removeProgressHandler(handler)


def _count(statement: Job, counts: Iterable[tuple[int, int]]) -> None:
    """Show finished and all tasks, unless a runner of our own is counting its items."""
    pairs = list(counts)
    total = sum(tasks for _, tasks in pairs)
    if total and not statement.counts:
        statement.unit, statement.total, statement.done = "tasks", total, sum(completed for completed, _ in pairs)
