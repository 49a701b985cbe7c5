"""Statements as jobs that are watched: how many tasks of theirs Spark has done.

A classic session is asked: the statement's jobs carry a tag, and the status tracker knows their stages.  On Spark
Connect the server tells with its answers.  Nothing of it is set up where nobody watches.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql import SparkSession

from bitlake import _clock
from bitlake.formatting import one_line
from bitlake.progress import Job, job

_WORDS = 60
"""Characters of a statement that say what it is."""
_EVERY = 0.5
"""Seconds between two looks at Spark, each some calls into the JVM."""


@contextlib.contextmanager
def watched(spark: SparkSession, text: str, enabled: bool) -> Iterator[None]:
    """A statement that may take long; see :func:`bitlake.progress.job`."""
    with job(one_line(text, _WORDS), enabled) as made:
        if made is None:
            yield
        elif getattr(spark, "_jsparkSession", None) is None:
            with _told(spark, made):
                yield
        else:
            with _asked(spark, made):
                yield


# --- a session in this process's JVM ----------------------------------------------------------------------------------


@contextlib.contextmanager
def _asked(spark: SparkSession, made: Job) -> Iterator[None]:
    context = spark.sparkContext
    tag = f"bitlake-progress-{_clock.new_uuid()}"
    context.addJobTag(tag)
    made.look = _Tracker(context, tag).look
    try:
        yield
    finally:
        made.look = None
        context.removeJobTag(tag)


class _Tracker:
    """Asks for the tasks of all jobs with a tag; of those that are over only once.  Mutable."""

    def __init__(self, context: Any, tag: str) -> None:
        self._context, self._tag = context, tag
        self._over: dict[int, tuple[int, int]] = {}
        self._last = 0.0

    def look(self, made: Job) -> None:
        """Tell a job how many tasks are done."""
        now = time.monotonic()
        if now - self._last < _EVERY:
            return
        self._last = now
        tracker = self._context.statusTracker()
        counts = dict(self._over)
        for number in self._context._jsc.sc().statusTracker().getJobIdsForTag(self._tag):
            info = None if number in self._over else tracker.getJobInfo(number)
            if info is None:
                continue
            stages = [found for found in map(tracker.getStageInfo, info.stageIds) if found is not None]
            finished = sum(s.numCompletedTasks for s in stages)
            counts[number] = finished, sum(s.numTasks for s in stages)
            if info.status != "RUNNING":
                # What is left are stages whose output was there already.
                counts[number] = self._over[number] = finished, finished
        _count(made, counts.values())


# --- Spark Connect ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _told(spark: SparkSession, made: Job) -> Iterator[None]:
    connected: Any = spark
    operations: dict[str | None, tuple[int, int]] = {}

    def handler(stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        known = list(stages or ())
        finished = sum(s.num_completed_tasks for s in known)
        # As above: when all is done, stages that are left had their output already.
        operations[operation_id] = finished, finished if done else sum(s.num_tasks for s in known)
        _count(made, operations.values())

    connected.registerProgressHandler(handler)
    try:
        yield
    finally:
        connected.removeProgressHandler(handler)


def _count(made: Job, counts: Iterable[tuple[int, int]]) -> None:
    found = list(counts)
    total = sum(c[1] for c in found)
    if total and not made.counts:
        made.unit, made.total, made.done = "tasks", total, sum(c[0] for c in found)
