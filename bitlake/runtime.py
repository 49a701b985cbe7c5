"""What tables share in one process: a bounded, thread-safe cache, and the local runner.

The cache holds what never changes once written: footers, index headers and payloads.  The runner is the in-process half
of the seam ``run(items, fn)``; :mod:`bitlake.spark.runner` is the other half.
"""

from __future__ import annotations

import functools
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, Protocol, TypeVar, cast

from bitlake.progress import counting

_Function = TypeVar("_Function", bound=Callable[..., Any])
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Recorder(Protocol):
    """Records scans, where a lake wants that (:mod:`bitlake.tools.scan_log`)."""

    def add(self, plan: Any, paths: Any, store: Any, *, engine: str = "python", was_read: bool = True) -> None:
        """Record a :class:`~bitlake.scan.plan.Plan` after its rows were read; returns at once."""

    def flush(self) -> None:
        """Store what was recorded so far."""

    def log_of(self, table: str, paths: Any, store: Any) -> Any:
        """The :class:`~bitlake.tools.scan_log.ScanLog` of a table."""


_MOST_REMEMBERED = 256


class Cache(Generic[Key, Value]):
    """Keeps the most recently used values up to ``capacity`` units, each weighing what ``put`` says."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._used = 0
        self._values: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Key) -> Value | None:
        """The value, which becomes the most recently used one, or None."""
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def put(self, key: Key, value: Value, weight: int = 1) -> None:
        """Keep a value; the least recently used ones make room.  One heavier than the cache stays alone."""
        with self._lock:
            old = self._values.pop(key, None)
            if old is not None:
                self._used -= old[1]
            self._values[key] = (value, weight)
            self._used += weight
            while self._used > self._capacity and len(self._values) > 1:
                _, (_, dropped) = self._values.popitem(last=False)
                self._used -= dropped

    def get_or(self, key: Key, make: Callable[[], Value], weigh: Callable[[Value], int] = lambda _: 1) -> Value:
        """The cached value, or what ``make`` returns (two threads may both make it; the last one is kept)."""
        found = self.get(key)
        if found is None:
            found = make()
            self.put(key, found, weigh(found))
        return found

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._values.clear()
            self._used = 0


def by_identity(function: _Function) -> _Function:
    """Remember a pure function's results by which objects it was given: to hash a schema takes longer than to use it.

    For positional arguments that never change, and that come again as the very same objects; they live on as long as
    the result is remembered (256 results at most).
    """
    known: dict[tuple[int, ...], tuple[tuple[Any, ...], Any]] = {}

    @functools.wraps(function)
    def remembered(*objects: Any) -> Any:
        key = tuple(map(id, objects))
        found = known.get(key)
        if found is None:
            if len(known) >= _MOST_REMEMBERED:
                known.clear()
            # The objects are kept, so that no other can get their identity.
            found = known[key] = (objects, function(*objects))
        return found[1]

    return cast("_Function", remembered)


Item = TypeVar("Item")
Result = TypeVar("Result")
REQUESTS = 16
"""Requests of a store at a time: object stores and network disks answer slowly, and each call is independent."""


class Runner(Protocol):
    """Runs a function over work items somewhere."""

    def run(self, items: Sequence[Item], fn: Callable[[Item], Result]) -> list[Result]:
        """Return ``[fn(item) for item in items]``, in order, raising the first error."""


class LocalRunner:
    """Runs in this process, on as many threads as there are cores: numpy and Arrow release the interpreter lock."""

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or os.cpu_count() or 2

    def run(self, items: Sequence[Item], fn: Callable[[Item], Result]) -> list[Result]:
        """Return ``[fn(item) for item in items]``, in order, raising the first error."""
        with counting(items, fn) as counted:
            if len(items) <= 1 or self.threads == 1:
                return [counted(item) for item in items]
            with ThreadPoolExecutor(min(self.threads, len(items)), thread_name_prefix="bitlake") as pool:
                return list(pool.map(counted, items))
