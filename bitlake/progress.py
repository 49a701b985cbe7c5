"""Progress of long jobs: a bar of ``rich.progress`` in a terminal, HTML in a notebook, nothing elsewhere.

A statement or a method of a table opens a :func:`job`; a runner counts its items for the job that is open in its
context (:func:`counting`).  The open job is a context variable: a runner counts items for the job, but runners that run
inside those items do not.  Readers and writers count each batch's rows (:func:`count_rows`), so that a job over one
large file shows that it goes on.  A job object exists only while progress is shown; otherwise each call costs one
look-up of a variable.

If stderr is neither a terminal nor a notebook's, or with ``BITLAKE_PROGRESS=0``, no thread starts, and rich is not
imported.  One thread draws all jobs that have run for more than a second.  If drawing fails, it stops; the job goes on.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

from bitlake.formatting import counted, human_bytes, printable

if TYPE_CHECKING:
    from rich.progress import TaskID

Item = TypeVar("Item")
Result = TypeVar("Result")
Owner = TypeVar("Owner")
Arguments = ParamSpec("Arguments")

_open: ContextVar[Job | None] = ContextVar("bitlake_job", default=None)
_working_for: ContextVar[Job | None] = ContextVar("bitlake_job_of_items", default=None)
"""The job whose item this thread runs: its rows are the job's, but jobs that it opens are its own."""


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of items: in ``unit`` (``files``), each as one or as ``each(item)``, with ``size(item)`` bytes."""

    unit: str = ""
    each: Callable[[Any], int] | None = None
    size: Callable[[Any], int] | None = None

    def of(self, items: Sequence[Any]) -> tuple[int, int]:
        """The count and bytes of some items; 0 bytes if sizes are unknown."""
        count = len(items) if self.each is None else sum(map(self.each, items))
        return count, 0 if self.size is None else sum(map(self.size, items))


_ONE_EACH = Weights()


class Job:
    """The progress of a job.  Mutable; threads may share it.

    Of the current ``step``: ``done`` of ``total`` ``unit`` (None if unknown), and ``read`` of ``size`` bytes (0 if
    unknown).  Of the whole job: ``rows_written`` and ``rows_read``, which grow by the batch within a file.
    ``look``, if set, is called before the job is drawn and updates it from another source, such as Spark.
    """

    def __init__(self, label: str) -> None:
        self.label = label
        self.began = time.monotonic()
        self.step = ""
        self.unit = ""
        self.total: int | None = None
        self.done = self.size = self.read = 0
        self.rows_written = self.rows_read = 0
        self.look: Callable[[Job], None] | None = None
        self.counts = False
        """Whether a runner is counting items; then ``look`` is not called."""
        self.weights = _ONE_EACH
        """How to count the items of the next run."""
        self._current = _ONE_EACH
        self._lock = threading.Lock()

    def begin(self, items: Sequence[Any]) -> None:
        """Start counting these items."""
        self._current, self.weights = self.weights, _ONE_EACH
        total, size = self._current.of(items)
        with self._lock:
            self.unit, self.total, self.done, self.size, self.read = self._current.unit, total, 0, size, 0
            self.counts = True

    def tick(self, item: Any) -> None:
        """Count an item as done."""
        count, size = self._current.of((item,))
        with self._lock:
            self.done += count
            self.read += size

    def add_rows(self, written: int, read: int) -> None:
        """Count rows of a batch."""
        with self._lock:
            self.rows_written += written
            self.rows_read += read

    def end(self) -> None:
        """Stop counting: all items are done, or one failed."""
        with self._lock:
            self.unit, self.total, self.done, self.size, self.read = "", None, 0, 0, 0
            self.counts = False


@contextlib.contextmanager
def job(label: str, enabled: bool = True) -> Iterator[Job | None]:
    """Show the progress of a block.

    Yields the job, or None if progress is not shown, or if the block is part of a job that is already open.
    """
    if not enabled or _open.get() is not None or place() is None:
        yield None
        return
    opened = Job(label)
    token = _open.set(opened)
    board.add(opened)
    try:
        yield opened
    finally:
        board.remove(opened)
        _open.reset(token)


@contextlib.contextmanager
def counting(items: Sequence[Item], fn: Callable[[Item], Result]) -> Iterator[Callable[[Item], Result]]:
    """Yield the function to call for each item, from any thread; it also counts the item for the open job."""
    current = _open.get()
    if current is None or current.counts:
        yield fn
        return

    def counting_item(item: Item) -> Result:
        token = _working_for.set(current)
        try:
            result = fn(item)
        finally:
            _working_for.reset(token)
        current.tick(item)
        return result

    current.begin(items)
    try:
        yield counting_item
    finally:
        current.end()


def count_rows(*, written: int = 0, read: int = 0) -> None:
    """Count a batch's rows for the open job; call it once a batch, from a thread that runs one of the job's items."""
    current = _open.get() or _working_for.get()
    if current is not None:
        current.add_rows(written, read)


def say(step: str) -> None:
    """Set the open job's current step: ``batch 2 of 4``."""
    current = _open.get()
    if current is not None and not current.counts:
        current.step = step


def of_items(unit: str, *, each: Callable[[Any], int] | None = None, size: Callable[[Any], int] | None = None) -> None:
    """Set how the open job counts the items of the next run: see :class:`Weights`."""
    current = _open.get()
    if current is not None and not current.counts:
        current.weights = Weights(unit, each, size)


class Watched(Protocol):
    """A table with methods that are jobs."""

    @property
    def name(self) -> str:
        """The name that the job is labelled with."""

    @property
    def shows_progress(self) -> bool:
        """Whether to show the progress of its jobs."""


def _itself(owner: Any) -> Any:
    return owner


def tracked(
    verb: str, of: Callable[[Any], Watched] = _itself
) -> Callable[[Callable[Concatenate[Owner, Arguments], Result]], Callable[Concatenate[Owner, Arguments], Result]]:
    """Make a method a job, labelled with a verb and the table's name; ``of`` gets the table of the method's object."""

    def wrap(
        method: Callable[Concatenate[Owner, Arguments], Result],
    ) -> Callable[Concatenate[Owner, Arguments], Result]:
        def run(self: Owner, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            table = of(self)
            with job(f"{verb} {table.name}", table.shows_progress):
                return method(self, *args, **kwargs)

        functools.update_wrapper(run, method)
        return run

    return wrap


ENVIRONMENT = "BITLAKE_PROGRESS"
_OFF = ("0", "false", "no", "off")
_AFTER = 1.0
"""Seconds: jobs that end earlier are not shown."""
_EVERY = 0.2


class Screen(Protocol):
    """A display of jobs."""

    def draw(self, jobs: list[Job]) -> None:
        """Show the current state of these jobs, and no others."""

    def close(self) -> None:
        """Remove the display."""


def place() -> Callable[[], Screen] | None:
    """The class of the display for this process; None if progress is not shown."""
    if os.environ.get(ENVIRONMENT, "").strip().lower() in _OFF:
        return None
    if in_notebook():
        return Notebook
    try:
        terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    except (AttributeError, ValueError):  # stderr does not exist or is closed
        return None
    return Terminal if terminal else None


def in_notebook() -> bool:
    """Whether this process is a Jupyter kernel, or a product's that is built on Jupyter."""
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return get_ipython is not None and getattr(get_ipython(), "kernel", None) is not None


class Board:
    """The running jobs of all threads, and the thread that draws them.  Mutable."""

    def __init__(self) -> None:
        self._jobs: list[Job] = []
        self._changed = threading.Condition(threading.Lock())
        self._screen: Screen | None = None
        self._broken = False
        self._thread: threading.Thread | None = None

    def add(self, started: Job) -> None:
        """Add a job that starts."""
        with self._changed:
            self._jobs.append(started)
            if self._thread is None and not self._broken:
                self._thread = threading.Thread(target=self._run, name="bitlake-progress", daemon=True)
                self._thread.start()

    def remove(self, finished: Job) -> None:
        """Remove a job that ended; it is no longer shown when this returns."""
        with self._changed:
            self._jobs.remove(finished)
            if self._screen is not None:
                self._draw()
            if not self._jobs:
                self._changed.notify()

    def _run(self) -> None:
        with self._changed:
            while self._jobs and not self._broken:
                self._draw()
                now = time.monotonic()
                delay = min(j.began for j in self._jobs) + _AFTER - now if self._screen is None else 0.0
                self._changed.wait(max(delay, _EVERY))
            self._thread = None

    def _draw(self) -> None:
        """Draw the jobs that have run long enough."""
        if self._broken:
            return
        now = time.monotonic()
        due = [j for j in self._jobs if now - j.began >= _AFTER]
        try:
            for running in due:
                if running.look is not None and not running.counts:
                    running.look(running)
            if due and self._screen is None:
                display = place()
                self._screen = None if display is None else display()
            if self._screen is not None and due:
                self._screen.draw(due)
            elif self._screen is not None:
                screen, self._screen = self._screen, None
                screen.close()
        except Exception:  # noqa: BLE001 - a job must not fail because its terminal was closed
            self._broken = True
            if self._screen is not None:
                with contextlib.suppress(Exception):
                    self._screen.close()
            self._screen = None


board = Board()
"""The board of this process."""


def heading(job: Job) -> str:
    """The job's label and step: ``compacting default.t, batch 2 of 4``."""
    return f"{job.label}, {job.step}" if job.step else job.label


def amounts(job: Job, sizes: bool = True) -> str:
    """``37/200 files``, bytes and rows as far as they are counted; without ``sizes``, only the first of these."""
    parts = []
    if job.total is not None:
        parts.append(f"{job.done:,}/{job.total:,} {job.unit}".rstrip())
        if job.size:
            parts.append(f"{human_bytes(job.read)}/{human_bytes(job.size)}")
    # What is written was read by the same job.
    if job.rows_written:
        parts.append(counted(job.rows_written, "row"))
    elif job.rows_read:
        parts.append(f"{counted(job.rows_read, 'row')} read")
    return "  ".join(parts if sizes else parts[:1])


def elapsed(job: Job) -> str:
    """``1:02``, ``1:00:02``."""
    minutes, seconds = divmod(int(time.monotonic() - job.began), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


_WIDE, _NARROW = 100, 60
"""Terminals of fewer columns get a short bar; still narrower ones no bar and no bytes, so that the label has room."""


class Terminal:
    """Draws a line with a bar for each job on stderr, with ``rich.progress``.  Mutable.

    rich is imported here, because a process that does not show progress must not load it.
    """

    def __init__(self) -> None:
        from rich.console import Console
        from rich.markup import escape
        from rich.progress import BarColumn, Progress, TextColumn
        from rich.table import Column

        console = Console(stderr=True)
        bars = [BarColumn(bar_width=30 if console.width >= _WIDE else 10)] if console.width >= _NARROW else []
        self._escape = escape
        self._sizes = console.width >= _NARROW
        self._progress = Progress(
            TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
            *bars,
            TextColumn("{task.fields[amounts]}"),
            TextColumn("{task.fields[elapsed]}", style="dim"),
            console=console,
            auto_refresh=False,
            expand=True,
            transient=True,
            # Warnings appear above the bar; stdout belongs to the program, and may be a pipe.
            redirect_stdout=False,
        )
        self._tasks: dict[Job, TaskID] = {}
        self._totals: dict[TaskID, int | None] = {}
        self._progress.start()

    def draw(self, jobs: list[Job]) -> None:
        """Show the current state of these jobs, and no others."""
        for finished in [j for j in self._tasks if j not in jobs]:
            self._progress.remove_task(self._tasks.pop(finished))
        for job in jobs:
            fields: dict[str, Any] = {"amounts": amounts(job, self._sizes), "elapsed": elapsed(job)}
            label = self._escape(printable(heading(job), one_line=True))
            task = self._tasks.get(job)
            # rich reads a total of None as "unchanged": a job that stops counting gets a new task, whose bar pulses.
            if task is not None and job.total is None and self._totals.get(task) is not None:
                self._progress.remove_task(task)
                task = None
            if task is None:
                task = self._tasks[job] = self._progress.add_task(label, True, job.total, job.done, **fields)
            else:
                self._progress.update(task, description=label, total=job.total, completed=job.done, **fields)
            self._totals[task] = job.total
        self._progress.refresh()

    def close(self) -> None:
        """Remove the bars."""
        self._progress.stop()


def html_of(jobs: list[Job]) -> str:
    """A line for each job with the browser's progress element, which follows light and dark themes."""
    lines = []
    for job in jobs:
        # An element without a value shows an indeterminate bar.
        value = "" if job.total is None else f' max="{max(job.total, 1)}" value="{job.done}"'
        text = "  ".join(filter(None, (amounts(job), elapsed(job))))
        lines.append(
            f'<div style="display: flex; gap: 0.8em; align-items: center"><span>{escape(heading(job))}</span>'
            f'<progress{value}></progress><span style="white-space: pre">{escape(text)}</span></div>'
        )
    return "".join(lines)


class Notebook:
    """Shows jobs as HTML in a notebook's cell.  Mutable."""

    def __init__(self) -> None:
        self._ipython = import_module("IPython.display")
        self._handle: Any = None

    def draw(self, jobs: list[Job]) -> None:
        """Show the current state of these jobs, and no others."""
        page = self._ipython.HTML(html_of(jobs))
        if self._handle is None:
            self._handle = self._ipython.display(page, display_id=True)
        else:
            self._handle.update(page)

    def close(self) -> None:
        """Remove the bars."""
        if self._handle is not None:
            self._handle.update(self._ipython.HTML(""))
