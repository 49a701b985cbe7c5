"""Read files in parallel and yield their tables in the order of the files, in bounded memory.

Each of a few threads reads a file and queues its tables.  The file whose tables come next is never stopped; the others
stop while the queues hold ``READ_AHEAD_BYTES``, and large files are read two at a time.  So a scan's memory is the
queues, and for each thread what decoding its row group takes, whatever the size and number of files.

In a remote store, more files are read in parallel if little of each is fetched (:func:`files_at_once`), since reading a
few rows of one takes three requests, each after the one before.

Measured with ``tests/memory/measure.py`` (10 files of 256 MB, 4 GB decoded, row groups of 128 MB of Arrow memory,
2 cores), peak resident memory beyond that of the imports: all columns 2,240 → 215 MB, with a filter that most rows pass
1,920 → 395 MB; processor time of all columns of 5 files: 5.4 → 3.3 s, since memory is used again.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Generic, TypeVar

import pyarrow as pa

from bitlake.io import Store
from bitlake.runtime import REQUESTS
from bitlake.scan.column_reader import FileTask

READ_AHEAD_FILES = 4
"""Files read in parallel: feeds two to four cores."""
_AT_ONCE_BYTES = 64 << 20
"""Stored bytes to fetch of the files of a remote store that are read in parallel, if they are more than usual."""
READ_AHEAD_BYTES = 64 << 20
"""Arrow bytes of tables that wait for the caller: half a row group as bitlake writes it."""
_QUEUED_BYTES = 1 << 20
"""Arrow bytes that a thread gathers before it queues them: for fewer, locking takes longer than decoding."""
_OPEN_BYTES = 256 << 20
"""Stored bytes of the files being read: two files of default size, each with a row group being decoded."""

MERGE_THREADS = min(4, os.cpu_count() or 1)
"""Chunks of one bucket that are merged at the same time."""

ReadFile = Callable[[int], Iterator[pa.Table]]
Item = TypeVar("Item")
Result = TypeVar("Result")


def files_at_once(store: Store, tasks: Sequence[FileTask], least: int = READ_AHEAD_FILES) -> int:
    """Return how many files to read in parallel: ``least``, or more of a remote store.

    More are read if all are small, or few of their pages are read.
    """
    if not tasks or store.local_path(tasks[0].path) is not None:
        return least
    largest = max(task.page_bytes for task in tasks)
    return max(least, min(REQUESTS, _AT_ONCE_BYTES // max(1, largest)))


def threads_for(store: Store, tasks: Sequence[FileTask]) -> int:
    """Return how many threads read whole files whose rows are not kept: one for each core, or two for large files."""
    most = _OPEN_BYTES // max(1, *(task.size for task in tasks)) if tasks else 0
    return files_at_once(store, tasks, max(2, min(os.cpu_count() or 2, most)))


def read_in_order(
    sizes: Sequence[int],
    read: ReadFile,
    *,
    row_limit: int | None = None,
    bounded: bool = True,
    at_once: int = READ_AHEAD_FILES,
) -> Iterator[pa.Table]:
    """Yield what ``read(0)``, ``read(1)``, … yield, in order; an error is raised where its file's rows end.

    ``sizes``: the stored bytes of each file.  Not ``bounded``: all tables are read ahead, for a caller that keeps them
    anyway.  With a ``row_limit`` nothing is read ahead.  Closing the iterator stops the threads at their next table.
    ``at_once``: the number of files that are read in parallel.
    """
    count = len(sizes)
    if row_limit is not None:
        for table in (t for i in range(count) for t in read(i)):
            # Arrow takes a slice of a table without columns to have as many rows as were asked for.
            yield table if table.num_rows <= row_limit else table.slice(0, row_limit)
            row_limit -= min(row_limit, table.num_rows)
            if row_limit == 0:
                return
        return
    threads = min(at_once, count)
    if threads <= 1:
        for i in range(count):
            yield from read(i)
        return
    if not bounded:
        for tables in map_ahead((i for i in range(count)), lambda number: list(read(number)), threads):
            yield from tables
        return
    ahead = _ReadAhead(sizes, read, threads)
    with _threads(threads, ahead.work, ahead.close):
        yield from ahead.tables()


def map_ahead(
    items: Generator[Item, None, None], work: Callable[[Item], Result], threads: int
) -> Generator[Result, None, None]:
    """Yield ``work(item)`` for each item, in order, while threads take the next items and work on them.

    With one thread, items are worked on one after the other.  At most ``threads`` + 3 items or results wait or are
    worked on.  The first two items are taken in the caller's thread, and a single one is worked on there.
    """
    with closing(items):
        first = list(islice(items, 2))
        if len(first) < 2:
            yield from map(work, first)
            return
        ahead = _MapAhead(chain(first, items), work, threads + 3)
        del first
        with _threads(threads, ahead.work, ahead.close):
            yield from ahead.results()


class _MapAhead(Generic[Item, Result]):
    """Threads take items, one at a time, and work on them; the caller takes the results in order."""

    def __init__(self, items: Iterator[Item], work: Callable[[Item], Result], most: int) -> None:
        self._items, self._work, self._most = items, work, most
        self._taking = threading.Lock()
        self._changed = threading.Condition()
        self._results: dict[int, tuple[Result, None] | tuple[None, BaseException]] = {}
        self._taken = 0
        """The number of items that threads took."""
        self._head = 0
        """The item whose result comes next."""
        self._ended = False
        self._closed = False

    def work(self) -> None:
        """Take items and work on them until none is left; each thread runs this."""
        while (taken := self._take()) is not None:
            number, item = taken
            del taken
            try:
                self._finish(number, (self._work(item), None))
            except BaseException as e:  # noqa: BLE001 - raised in the thread that asked for the results
                self._finish(number, (None, e))
            del item

    def _take(self) -> tuple[int, Item] | None:
        with self._taking:
            with self._changed:
                self._changed.wait_for(lambda: self._is_over() or self._taken < self._head + self._most)
                if self._is_over():
                    return None
                number = self._taken
                self._taken += 1
            try:
                return number, next(self._items)
            except StopIteration:
                with self._changed:
                    self._taken -= 1
                    self._end()
            except BaseException as e:  # noqa: BLE001 - as an error of the work
                self._finish(number, (None, e))
                with self._changed:
                    self._end()
            return None

    def _is_over(self) -> bool:
        return self._closed or self._ended

    def _end(self) -> None:
        self._ended = True
        self._changed.notify_all()

    def _finish(self, number: int, outcome: tuple[Result, None] | tuple[None, BaseException]) -> None:
        with self._changed:
            self._results[number] = outcome
            self._changed.notify_all()

    def results(self) -> Iterator[Result]:
        """All results; an error is raised where its item's result would be."""
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._head in self._results or self._closed or (self._ended and self._head >= self._taken)
                )
                if self._head not in self._results:
                    return
                result, error = self._results.pop(self._head)
                self._head += 1
                self._changed.notify_all()
            if error is not None:
                raise error
            yield result  # type: ignore[misc]  # None only beside an error
            del result

    def close(self) -> None:
        """Let the threads stop, and drop what waits."""
        with self._changed:
            self._closed = True
            self._results.clear()
            self._changed.notify_all()


@contextmanager
def _threads(count: int, work: Callable[[], None], close: Callable[[], None]) -> Iterator[None]:
    """Run ``work`` in threads as long as the block; ``close`` lets them stop."""
    # Daemons: Python waits for other threads before it calls atexit, and these wait for a caller that asks no more.
    threads = [threading.Thread(target=work, name=f"bitlake-read-{i}", daemon=True) for i in range(count)]
    process = os.getpid()

    def stop() -> None:
        if process == os.getpid():  # a fork has no threads of its parent
            close()
            # The garbage collector may close an iterator in one of its own threads.
            for thread in () if threading.current_thread() in threads else threads:
                thread.join()

    atexit.register(stop)  # a program may end with an iterator of rows that is neither read to its end nor closed
    try:
        for thread in threads:
            thread.start()
        yield
    finally:
        atexit.unregister(stop)
        stop()


@dataclass(slots=True)
class _File:
    """Tables that wait, with their bytes; ``error`` comes after them."""

    tables: deque[tuple[pa.Table, int]] = field(default_factory=deque)
    done: bool = False
    error: BaseException | None = None


class _ReadAhead:
    def __init__(self, sizes: Sequence[int], read: ReadFile, at_once: int) -> None:
        self._sizes, self._read, self._at_once = sizes, read, at_once
        self._changed = threading.Condition()
        self._files: dict[int, _File] = {}
        self._next = 0
        """The first file that no thread has begun."""
        self._head = 0
        """The file whose tables come next."""
        self._held = 0
        """Bytes that wait, and about the bytes that threads are decoding."""
        self._open = 0
        """Stored bytes of the files that threads read."""
        self._closed = False

    def tables(self) -> Iterator[pa.Table]:
        """All tables, in the order of the files."""
        for number in range(len(self._sizes)):
            with self._changed:
                self._head = number
                self._changed.notify_all()
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._closed or self._ready(number))  # noqa: B023
                    if self._closed:
                        return  # the program ends, and a thread of an outer reader waits here
                    file = self._files[number]
                    if not file.tables:
                        break
                    table, size = file.tables.popleft()
                    self._held -= size
                    self._changed.notify_all()
                yield table
                del table
            if file.error is not None:
                raise file.error
            del self._files[number]

    def close(self) -> None:
        """Let the threads stop, and drop what waits."""
        with self._changed:
            self._closed = True
            self._files.clear()
            self._changed.notify_all()

    def work(self) -> None:
        """Read files one after the other until none is left; each thread runs this."""
        while True:
            with self._changed:
                self._changed.wait_for(self._begins)
                if self._closed or self._next >= len(self._sizes):
                    return
                number = self._next
                self._next += 1
                self._open += self._sizes[number]
                file = self._files[number] = _File()
            try:
                self._fill(number, file)
            except BaseException as e:  # noqa: BLE001 - raised in the thread that asked for the tables
                file.error = e
            with self._changed:
                file.done = True
                self._open -= self._sizes[number]
                self._changed.notify_all()

    def _fill(self, number: int, file: _File) -> None:
        tables = self._read(number)
        expected = 0
        more = True
        while more:
            with self._changed:
                self._changed.wait_for(lambda: self._admits(number, file))
                if self._closed:
                    break
                self._held += expected
            gathered: list[tuple[pa.Table, int]] = []
            size = 0
            try:
                while more and size < _QUEUED_BYTES:
                    table = next(tables, None)
                    if table is None:
                        more = False
                    else:
                        gathered.append((table, table.nbytes))
                        size += table.nbytes
            finally:  # tables read before an error are yielded, too
                with self._changed:
                    self._held += size - expected
                    file.tables.extend(gathered)
                    self._changed.notify_all()
            expected = size
            table = None
            gathered.clear()
        # Not left to the garbage collector: the file is open.
        close = getattr(tables, "close", None)
        if close is not None:
            close()

    def _ready(self, number: int) -> bool:
        file = self._files.get(number)
        return file is not None and (bool(file.tables) or file.done)

    def _begins(self) -> bool:
        """Whether a thread may begin the next file, or stop because all are begun."""
        if self._closed or self._next >= len(self._sizes) or self._next == self._head:
            return True
        fits = self._open + self._sizes[self._next] <= _OPEN_BYTES
        return self._next < self._head + self._at_once and (fits or self._next == self._head + 1)

    def _admits(self, number: int, file: _File) -> bool:
        """Whether a thread may decode another table of a file."""
        if self._closed or self._held < READ_AHEAD_BYTES:
            return True
        return number == self._head and not file.tables
