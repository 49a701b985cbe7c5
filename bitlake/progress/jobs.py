"""A long job and how far it is.

What is open is known by thread (a context variable): a runner that runs items for a job counts them, runners inside
the items do not.  A job is only made where somebody watches; elsewhere all of this is one look at a variable.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from bitlake.progress.board import board, place

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
