"""What is shown of jobs, and where: one thread draws those that have run for a second.

Where nobody watches (standard error is neither a terminal nor a notebook's, or ``BITLAKE_PROGRESS=0``) there are no
jobs, no thread, and rich is not even imported.  A drawing that fails is the last one: jobs never fail for it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from bitlake.progress.jobs import Job

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
        return _notebook
    try:
        watched = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    except (AttributeError, ValueError):  # no standard error, or it is closed
        return None
    return _terminal if watched else None


def in_notebook() -> bool:
    """Whether this is a kernel of Jupyter, or of what is built on it."""
    made = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return made is not None and getattr(made(), "kernel", None) is not None


def _terminal() -> Screen:
    from bitlake.progress.terminal import Terminal

    return Terminal()


def _notebook() -> Screen:
    from bitlake.progress.notebook import Notebook

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
