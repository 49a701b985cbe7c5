"""Progress of long jobs: a bar in a terminal or a notebook, nothing elsewhere.

A statement or a method of a table opens a :func:`job`; a runner counts its items for the job that is open where it runs
(:func:`counting`).  The open job is a context variable: a runner that runs items for a job counts them, runners inside
the items do not.  A job exists only where its progress is shown; elsewhere all of this is one look at a variable.

Where progress is not shown (standard error is neither a terminal nor a notebook's, or ``BITLAKE_PROGRESS=0``) there is
no thread, and rich is not imported.  One thread draws the jobs that have run for a second.  If drawing fails, it stops;
jobs never fail because of it.
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

from bitlake.formatting import human_bytes, printable

if TYPE_CHECKING:
    from rich.progress import TaskID

Item = TypeVar("Item")
Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")

_open: ContextVar[Job | None] = ContextVar("bitlake_job", default=None)


@dataclass(frozen=True, slots=True)
class Weights:
    """What items stand for: ``unit`` things (``files``), of which each is one or ``each`` tells how many, and bytes."""

    unit: str = ""
    each: Callable[[Any], int] | None = None
    size: Callable[[Any], int] | None = None

    def of(self, items: Sequence[Any]) -> tuple[int, int]:
        """How many things and bytes some items are; 0 bytes where that is not known."""
        things = len(items) if self.each is None else sum(map(self.each, items))
        return things, 0 if self.size is None else sum(map(self.size, items))


_PLAIN = Weights()


class Job:
    """How far a job is.  Mutable; threads may share it.

    ``done`` of ``total`` ``unit`` (None: not known), ``read`` of ``size`` bytes (0: not known), of the ``step`` that
    runs now.  ``look`` is called before the job is drawn, where its state must be asked for.
    """

    def __init__(self, label: str) -> None:
        self.label = label
        self.began = time.monotonic()
        self.step = ""
        self.unit = ""
        self.total: int | None = None
        self.done = self.size = self.read = 0
        self.look: Callable[[Job], None] | None = None
        self.counts = False
        """Whether items are counted now, so that ``look`` has no say."""
        self.weights = _PLAIN
        """Of the items that come next."""
        self._now = _PLAIN
        self._lock = threading.Lock()

    def begin(self, items: Sequence[Any]) -> None:
        """The next step is to run these items."""
        self._now, self.weights = self.weights, _PLAIN
        total, size = self._now.of(items)
        with self._lock:
            self.unit, self.total, self.done, self.size, self.read = self._now.unit, total, 0, size, 0
            self.counts = True

    def tick(self, item: Any) -> None:
        """One of them is done."""
        things, size = self._now.of((item,))
        with self._lock:
            self.done += things
            self.read += size

    def end(self) -> None:
        """All are, or one failed: what comes next is not counted."""
        with self._lock:
            self.unit, self.total, self.done, self.size, self.read = "", None, 0, 0, 0
            self.counts = False


@contextlib.contextmanager
def job(label: str, enabled: bool = True) -> Iterator[Job | None]:
    """A block that may take long: yields its job if somebody watches and none is open already, of which it is part."""
    if not enabled or _open.get() is not None or place() is None:
        yield None
        return
    made = Job(label)
    token = _open.set(made)
    board.add(made)
    try:
        yield made
    finally:
        board.remove(made)
        _open.reset(token)


@contextlib.contextmanager
def counting(items: Sequence[Item], fn: Callable[[Item], Result]) -> Iterator[Callable[[Item], Result]]:
    """What to call for each item, in any thread, so that the open job counts those that are done."""
    found = _open.get()
    if found is None or found.counts:
        yield fn
        return

    def counted(item: Item) -> Result:
        result = fn(item)
        found.tick(item)
        return result

    found.begin(items)
    try:
        yield counted
    finally:
        found.end()


def say(step: str) -> None:
    """Tell what the open job does now: ``batch 2 of 4``."""
    found = _open.get()
    if found is not None and not found.counts:
        found.step = step


def of_items(unit: str, *, each: Callable[[Any], int] | None = None, size: Callable[[Any], int] | None = None) -> None:
    """Tell what the next items to be counted stand for: see :class:`Weights`."""
    found = _open.get()
    if found is not None and not found.counts:
        found.weights = Weights(unit, each, size)


class Watched(Protocol):
    """What has methods that are jobs."""

    name: str

    @property
    def shows_progress(self) -> bool:
        """Whether its jobs may be shown."""


Owner = TypeVar("Owner", bound=Watched)


def tracked(
    verb: str,
) -> Callable[[Callable[Concatenate[Owner, Arguments], Result]], Callable[Concatenate[Owner, Arguments], Result]]:
    """Makes a method of a table a job, labelled by what it does and the table's name."""

    def wrap(
        method: Callable[Concatenate[Owner, Arguments], Result],
    ) -> Callable[Concatenate[Owner, Arguments], Result]:
        def run(self: Owner, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            with job(f"{verb} {self.name}", self.shows_progress):
                return method(self, *args, **kwargs)

        functools.update_wrapper(run, method)
        return run

    return wrap


ENVIRONMENT = "BITLAKE_PROGRESS"
_OFF = ("0", "false", "no", "off")
_AFTER = 1.0
"""Seconds: what is over by then was no long job."""
_EVERY = 0.2


class Screen(Protocol):
    """Where jobs are drawn."""

    def draw(self, jobs: list[Job]) -> None:
        """Show these jobs as they are now, and no others."""

    def close(self) -> None:
        """Take away what is shown."""


def place() -> Callable[[], Screen] | None:
    """Where jobs would be shown now; None where they are not."""
    if os.environ.get(ENVIRONMENT, "").strip().lower() in _OFF:
        return None
    if in_notebook():
        return Notebook
    try:
        watched = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    except (AttributeError, ValueError):  # no standard error, or it is closed
        return None
    return Terminal if watched else None


def in_notebook() -> bool:
    """Whether this is a kernel of Jupyter, or of what is built on it."""
    made = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return made is not None and getattr(made(), "kernel", None) is not None


def _terminal() -> Screen:

    return Terminal()


def _notebook() -> Screen:

    return Notebook()


class Board:
    """The jobs that run now, of all threads.  Mutable."""

    def __init__(self) -> None:
        self._jobs: list[Job] = []
        self._changed = threading.Condition(threading.Lock())
        self._screen: Screen | None = None
        self._broken = False
        self._thread: threading.Thread | None = None

    def add(self, made: Job) -> None:
        """A job begins."""
        with self._changed:
            self._jobs.append(made)
            if self._thread is None and not self._broken:
                self._thread = threading.Thread(target=self._run, name="bitlake-progress", daemon=True)
                self._thread.start()

    def remove(self, gone: Job) -> None:
        """A job ends, and is shown no more when this returns."""
        with self._changed:
            self._jobs.remove(gone)
            if self._screen is not None:
                self._draw()
            if not self._jobs:
                self._changed.notify()

    def _run(self) -> None:
        with self._changed:
            while self._jobs and not self._broken:
                self._draw()
                now = time.monotonic()
                due = min(j.began for j in self._jobs) + _AFTER - now if self._screen is None else 0.0
                self._changed.wait(max(due, _EVERY))
            self._thread = None

    def _draw(self) -> None:
        """Draw the jobs that are due."""
        if self._broken:
            return
        now = time.monotonic()
        due = [j for j in self._jobs if now - j.began >= _AFTER]
        try:
            for one in due:
                if one.look is not None and not one.counts:
                    one.look(one)
            if due and self._screen is None:
                made = place()
                self._screen = None if made is None else made()
            if self._screen is not None and due:
                self._screen.draw(due)
            elif self._screen is not None:
                screen, self._screen = self._screen, None
                screen.close()
        except Exception:  # noqa: BLE001 - a terminal that went away is no reason for a job to fail
            self._broken = True
            if self._screen is not None:
                with contextlib.suppress(Exception):
                    self._screen.close()
            self._screen = None


board = Board()
"""That of this process."""


def heading(job: Job) -> str:
    """What it does: ``compacting default.t, batch 2 of 4``."""
    return f"{job.label}, {job.step}" if job.step else job.label


def amounts(job: Job) -> str:
    """``37/200 files``, with bytes where they are known; empty where nothing is counted."""
    if job.total is None:
        return ""
    count = f"{job.done:,}/{job.total:,} {job.unit}".rstrip()
    return f"{count}  {human_bytes(job.read)}/{human_bytes(job.size)}" if job.size else count


def elapsed(job: Job) -> str:
    """``1:02``, ``1:00:02``."""
    minutes, seconds = divmod(int(time.monotonic() - job.began), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


class Terminal:
    """Draws a line with a bar for each job on standard error, with rich.  Mutable.

    rich is imported here: a process that shows no progress does not load it.
    """

    def __init__(self) -> None:
        from rich.console import Console
        from rich.markup import escape
        from rich.progress import BarColumn, Progress, TextColumn

        self._escape = escape
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[amounts]}"),
            TextColumn("{task.fields[elapsed]}", style="dim"),
            console=Console(stderr=True),
            auto_refresh=False,
            transient=True,
            # Warnings stand above the bar; standard output is the program's own, and may be a pipe.
            redirect_stdout=False,
        )
        self._tasks: dict[Job, TaskID] = {}
        self._totals: dict[TaskID, int | None] = {}
        self._bars.start()

    def draw(self, jobs: list[Job]) -> None:
        """Show these jobs as they are now, and no others."""
        for gone in [j for j in self._tasks if j not in jobs]:
            self._bars.remove_task(self._tasks.pop(gone))
        for job in jobs:
            words: dict[str, Any] = {"amounts": amounts(job), "elapsed": elapsed(job)}
            label = self._escape(printable(heading(job), one_line=True))
            task = self._tasks.get(job)
            # rich takes a total of None for "leave it": what is no longer counted gets a new bar, which pulses.
            if task is not None and job.total is None and self._totals.get(task) is not None:
                self._bars.remove_task(task)
                task = None
            if task is None:
                task = self._tasks[job] = self._bars.add_task(label, True, job.total, job.done, **words)
            else:
                self._bars.update(task, description=label, total=job.total, completed=job.done, **words)
            self._totals[task] = job.total
        self._bars.refresh()

    def close(self) -> None:
        """Take the bars away."""
        self._bars.stop()


def html_of(jobs: list[Job]) -> str:
    """Each job as a line with the browser's own progress element, which follows light and dark."""
    lines = []
    for job in jobs:
        # An element without a value says: at work, nobody knows how long.
        known = "" if job.total is None else f' max="{max(job.total, 1)}" value="{job.done}"'
        words = "  ".join(filter(None, (amounts(job), elapsed(job))))
        lines.append(
            f'<div style="display: flex; gap: 0.8em; align-items: center"><span>{escape(heading(job))}</span>'
            f'<progress{known}></progress><span style="white-space: pre">{escape(words)}</span></div>'
        )
    return "".join(lines)


class Notebook:
    """Shows HTML with IPython.  Mutable."""

    def __init__(self) -> None:
        self._ipython = import_module("IPython.display")
        self._shown: Any = None

    def draw(self, jobs: list[Job]) -> None:
        """Show these jobs as they are now, and no others."""
        made = self._ipython.HTML(html_of(jobs))
        if self._shown is None:
            self._shown = self._ipython.display(made, display_id=True)
        else:
            self._shown.update(made)

    def close(self) -> None:
        """Take them away."""
        if self._shown is not None:
            self._shown.update(self._ipython.HTML(""))
