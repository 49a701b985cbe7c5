"""What the tables of a lake share in one process: caches under one budget, the recorder of scans, progress, the runner.

Caches hold what never changes once written, such as manifests, footers and indexes; docs/decisions/0017-caches.md says
who owns them.  The local runner is the in-process half of the seam ``run(items, fn)``; :mod:`bitlake.spark.runner` is
the other half.
"""

from __future__ import annotations

import functools
import hashlib
import heapq
import itertools
import os
import threading
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast

from bitlake.errors import InvalidRequest
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


# --- caches -----------------------------------------------------------------------------------------------------------

DEFAULT_CACHE_BYTES = 3 << 29
"""1.5 GiB: the metadata of more than a million files, or of fewer with their indexes and footers."""

_lock = threading.RLock()
"""Held by whatever changes a cache of this process, and across a fork.  Reentrant: freed values may run finalizers."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


@dataclass(frozen=True, eq=False)
class CacheName(Generic[Key, Value]):
    """The name of a cache, with the types of its keys and values: a constant of the module that fills the cache.

    ``limit``: its entries take at most these bytes of another process's memory, such as a JVM's, and none of this one.
    """

    name: str
    limit: int | None = None


class CacheBudget:
    """Bytes that several caches share: when they are used up, the least recently used entry is dropped."""

    def __init__(self, size: int = DEFAULT_CACHE_BYTES) -> None:
        self.size = size
        self.used = 0
        self.tick = itertools.count().__next__
        """Numbers the uses of entries."""
        self._queue: list[tuple[int, _Entry]] = []
        """A heap with one item for each entry: the number of its last use, or of an earlier one."""

    @classmethod
    def of(cls, size: object) -> CacheBudget:
        """Return a budget of a caller's number of bytes; raises :class:`InvalidRequest` for anything else."""
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise InvalidRequest(f"cache_bytes must be a number of bytes (0: no caching), and is {size!r}")
        return cls(size)

    def __reduce__(self) -> tuple[Any, ...]:
        return CacheBudget, (self.size,)  # entries stay in their process; Python 3.14 cannot pickle the counter

    def add(self, entry: _Entry) -> None:
        """Count a new entry, which :meth:`make_room` may drop."""
        self.used += entry.size
        heapq.heappush(self._queue, (entry.tick, entry))

    def make_room(self) -> list[object]:
        """Drop entries until the budget is kept; returns their values."""
        dropped = []
        while self.used > self.size:
            tick, entry = self._queue[0]
            if entry.tick != tick:  # used since: only now does the item move
                heapq.heapreplace(self._queue, (entry.tick, entry))
                continue
            heapq.heappop(self._queue)
            self.used -= entry.size
            dropped.append(entry.drop())
        return dropped

    def remove(self, entries: Collection[_Entry]) -> None:
        """Forget entries that were dropped."""
        self.used -= sum(e.size for e in entries)
        removed = set(entries)
        self._queue = [item for item in self._queue if item[1] not in removed]
        heapq.heapify(self._queue)


@dataclass(slots=True, eq=False)
class _Entry:
    entries: dict[Any, _Entry]
    key: Hashable
    value: Any
    size: int
    tick: int

    def drop(self) -> object:
        del self.entries[self.key]
        return self.value


class Cache(Generic[Key, Value]):
    """Keeps values that never change, each with the size in bytes that its maker states.  Threads may share it."""

    def __init__(self, budget: CacheBudget) -> None:
        self._budget = budget
        self._tick = budget.tick
        self._entries: dict[Key, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def used(self) -> int:
        """The bytes of all entries."""
        return sum(e.size for e in list(self._entries.values()))

    def get(self, key: Key) -> Value | None:
        """The value, which becomes the most recently used one, or None."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        entry.tick = self._tick()
        return entry.value  # type: ignore[no-any-return]

    def put(self, key: Key, value: Value, size: int) -> None:
        """Keep a value of about ``size`` bytes; others make room.  One that is larger than the budget is not kept."""
        size = max(1, size)
        with _lock:
            entry = self._entries.get(key)
            if size > self._budget.size:
                dropped = self._remove([] if entry is None else [entry])
            elif entry is None:
                entry = self._entries[key] = _Entry(self._entries, key, value, size, self._tick())
                self._budget.add(entry)
                dropped = self._budget.make_room()
            else:
                replaced, entry.value, entry.tick = entry.value, value, self._tick()
                self._budget.used += size - entry.size
                entry.size = size
                dropped = [replaced, *self._budget.make_room()]
        del dropped  # without the lock: to free much memory takes a while

    def resize(self, key: Key, value: Value, size: int) -> None:
        """State the size of a value that has grown since :meth:`put`, if it is still there."""
        entry = self._entries.get(key)
        if entry is not None and entry.value is value and entry.size != size:
            self.put(key, value, size)

    def get_or(self, key: Key, make: Callable[[], Value], size_of: Callable[[Value], int]) -> Value:
        """The cached value, or what ``make`` returns (two threads may both make it; the last one is kept)."""
        value = self.get(key)
        if value is None:
            value = make()
            self.put(key, value, size_of(value))
        return value

    def discard(self, key: Key) -> None:
        """Drop the value of a key, if there is one."""
        with _lock:
            entry = self._entries.get(key)
            dropped = self._remove([] if entry is None else [entry])
        del dropped

    def clear(self) -> None:
        """Drop all entries."""
        with _lock:
            dropped = self._remove(list(self._entries.values()))
        del dropped

    def _remove(self, entries: Collection[_Entry]) -> list[object]:
        if entries:
            self._budget.remove(entries)
        return [e.drop() for e in entries]


class Caches:
    """The caches of what was read through one store, by name.  Several stores may share a budget, never an entry."""

    def __init__(self, budget: CacheBudget | None = None) -> None:
        self.budget = CacheBudget() if budget is None else budget
        self._caches: dict[CacheName[Any, Any], Cache[Any, Any]] = {}

    def __repr__(self) -> str:
        return f"Caches({self.budget.used:,} of {self.budget.size:,} bytes)"

    def __reduce__(self) -> tuple[Any, ...]:
        return Caches, (self.budget,)  # entries stay in their process; some hold locks

    def __getitem__(self, name: CacheName[Key, Value]) -> Cache[Key, Value]:
        cache = self._caches.get(name)
        return self._add(name) if cache is None else cache

    def _add(self, name: CacheName[Key, Value]) -> Cache[Key, Value]:
        own = None if name.limit is None else CacheBudget(min(name.limit, self.budget.size))
        with _lock:
            return self._caches.setdefault(name, Cache(own or self.budget))

    def sizes(self) -> dict[str, int]:
        """The bytes of each cache, by its name."""
        return {name.name: cache.used for name, cache in list(self._caches.items())}

    def clear(self) -> None:
        """Drop all entries."""
        for cache in list(self._caches.values()):
            cache.clear()


class _ProcessCaches:
    """The caches of stores that came to this process from another one: a Spark worker's, kept from task to task."""

    def __init__(self) -> None:
        self._budget = CacheBudget(0)
        self._caches: dict[bytes, Caches] = {}

    def of(self, owner: object, size: int) -> Caches:
        """See :func:`process_caches`."""
        # A digest: options of stores hold secrets, which should not stay in memory longer than a store.
        key = hashlib.sha256(repr(owner).encode()).digest()
        with _lock:
            self._budget.size = max(self._budget.size, size)
            return self._caches.setdefault(key, Caches(self._budget))


@functools.cache
def _of_process() -> _ProcessCaches:
    return _ProcessCaches()


def process_caches(owner: object, size: int) -> Caches:
    """The caches in this process of all stores that equal ``owner``: they stay when such a store is gone.

    For processes in which no lake lives long enough to own caches.  All of them share one budget, the largest ``size``
    that was given; with ``size`` 0 nothing is cached.
    """
    return _of_process().of(owner, size) if size else Caches(CacheBudget(0))


# --- memoisation ------------------------------------------------------------------------------------------------------

_MOST_REMEMBERED = 256


def by_identity(function: _Function) -> _Function:
    """Remember a pure function's results by which objects it was given: to hash a schema takes longer than to use it.

    For positional arguments that never change, and that come again as the very same objects; they live on as long as
    the result is remembered (256 results at most).
    """
    known: dict[int | tuple[int, ...], tuple[tuple[Any, ...], Any]] = {}

    @functools.wraps(function)
    def remembered(*objects: Any) -> Any:
        key = id(objects[0]) if len(objects) == 1 else tuple(map(id, objects))
        value = known.get(key)
        if value is None:
            if len(known) >= _MOST_REMEMBERED:
                known.clear()
            # The objects are kept, so that no other can get their identity.
            value = known[key] = (objects, function(*objects))
        return value[1]

    return cast("_Function", remembered)


Item = TypeVar("Item")
Result = TypeVar("Result")
REQUESTS = 16
"""Requests of a store at a time: object stores and network disks answer slowly, and each call is independent."""


def at_least(least: int, items: Iterable[Item], size: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Yield consecutive items in lists of at least this size together; only the last may be smaller.

    >>> list(at_least(3, [1, 1, 2, 5, 1], int))
    [[1, 1, 2], [5], [1]]
    """
    together: list[Item] = []
    total = 0
    for item in items:
        together.append(item)
        total += size(item)
        if total >= least:
            yield together
            together, total = [], 0
    if together:
        yield together


def at_most(most: int, items: Iterable[Item], size: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Yield consecutive items in lists of at most this size together, or of one larger item.

    >>> list(at_most(3, [1, 1, 2, 5, 1], int))
    [[1, 1], [2], [5], [1]]
    """
    together: list[Item] = []
    total = 0
    for item in items:
        if together and total + size(item) > most:
            yield together
            together, total = [], 0
        together.append(item)
        total += size(item)
    if together:
        yield together


class Runner(Protocol):
    """Runs a function over work items somewhere."""

    def run(self, items: Sequence[Item], fn: Callable[[Item], Result]) -> list[Result]:
        """Return ``[fn(item) for item in items]``, in order, raising the first error."""


class Executors(Runner, Protocol):
    """A runner whose items run in other processes; items, functions and results are pickled."""

    @property
    def cores(self) -> int:
        """The cores that run items at the same time."""


class LocalRunner:
    """Runs in this process, on as many threads as there are cores: numpy and Arrow release the interpreter lock.

    ``few``: lists of at most this length run on the calling thread, as to start threads takes longer than they save.
    """

    def __init__(self, threads: int | None = None, few: int = 1) -> None:
        self.threads = threads or os.cpu_count() or 2
        self.few = few

    def run(self, items: Sequence[Item], fn: Callable[[Item], Result]) -> list[Result]:
        """Return ``[fn(item) for item in items]``, in order, raising the first error."""
        with counting(items, fn) as counted:
            if len(items) <= self.few or self.threads == 1:
                return [counted(item) for item in items]
            with ThreadPoolExecutor(min(self.threads, len(items)), thread_name_prefix="bitlake") as pool:
                return list(pool.map(counted, items))


@dataclass(frozen=True, slots=True)
class Runtime:
    """The values that a lake's tables share in one process; owned by the lake's catalog."""

    caches: Caches
    recorder: Recorder | None = None
    """Records scans; None: scans are not recorded."""
    shows_progress: bool = True
    """Whether long jobs may show a progress bar."""
    runner: Callable[[], Runner] = LocalRunner
    """Makes the runner of heavy work."""
    executors: Callable[[], Executors] | None = None
    """Makes what decodes very many manifests for scans; None: this process does."""
