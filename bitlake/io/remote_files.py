"""Files of an object store as Arrow reads and writes them: ranges fetched ahead, parts uploaded as they fill."""

from __future__ import annotations

import atexit
import io
import math
import os
import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa

from bitlake.errors import CorruptError
from bitlake.io.base import Store

PART_BYTES = 8 << 20
"""Size of an uploaded part; S3 takes 10,000 of them, so a file may have 80 GB."""
PARTS_AT_A_TIME = 4
"""Parts on their way at once: with the one being filled, memory holds five."""
_LEAST_FETCH = 128 << 10
"""Fewer bytes cost as much time: a request takes 10 to 100 ms, in which a connection carries a megabyte."""
_MOST_AHEAD = 8 << 20
_BLOCK_BYTES = 16 << 20
"""The most bytes of a prefetching request: fewer cost more requests, more leave fewer of them at a time."""
_INTERLEAVED_BYTES = 2 << 20
"""The same where reads of several ranges are interleaved, and memory holds a block of each."""
_PREFETCHED_BYTES = 32 << 20
_REQUESTS_OF_A_FILE = 8
_PAUSE = 0.005  # seconds

Tail = tuple[int, bytes]
"""The offset of bytes of a file that are in memory, and these bytes."""


def open_ranges(
    store: Store,
    path: str,
    size: int,
    groups: Sequence[Sequence[tuple[int, int]]],
    interleaved: bool = False,
    tail: Tail = (0, b""),
) -> Any:
    """Open a file of which these ranges will be read, as :meth:`Store.open_input` does: ahead, if it is remote.

    ``groups`` and ``tail``: see :class:`PrefetchedFile`.  A file whose ranges lie in the tail is not opened.
    """
    missing = [[cut for each in ranges if (cut := _before(each, tail))[1]] for ranges in groups]
    if not any(missing) and tail[0] == 0:
        return pa.BufferReader(tail[1])
    if any(missing) and store.local_path(path) is not None:
        return store.open_input(path, size)

    def fetch(offset: int, length: int) -> bytes:
        return store.read_range(path, offset, length)

    return pa.PythonFile(PrefetchedFile(fetch, size, path, missing, interleaved, tail), mode="r")


def _before(each: tuple[int, int], tail: Tail) -> tuple[int, int]:
    """The part of a range that is not in the tail, as (offset, length)."""
    (offset, length), (start, data) = each, tail
    return (offset, max(0, start - offset)) if start <= offset + length <= start + len(data) else each


def ranged_input(read_range: Callable[[str, int, int], bytes], path: str, size: int) -> Any:
    """An Arrow file over the ranges of a stored one."""
    return pa.PythonFile(RangedFile(lambda at, length: read_range(path, at, length), size, path), mode="r")


class RangedFile(io.RawIOBase):
    """A file that is read by ranges, some way ahead when it is read in order.

    The fetched window doubles with each read that goes on where the last one ended, and shrinks when one does not: a
    file read from start to end takes few requests, one read here and there moves little that nobody wants.  Memory
    holds one window.  Not safe to share between threads (Arrow takes turns).
    """

    def __init__(self, fetch: Callable[[int, int], bytes], size: int, path: str) -> None:
        self._fetch = fetch
        self._size = size
        self._path = path
        self._at = 0
        self._window = b""
        self._start = 0
        self._ahead = _LEAST_FETCH

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def size(self) -> int:
        """The file's size in bytes."""
        return self._size

    def tell(self) -> int:
        """Where the next read begins."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Choose where the next read begins."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """Up to ``size`` bytes, fewer only at the end of the file."""
        left = max(0, self._size - self._at)
        wanted = left if size is None or size < 0 else min(size, left)
        if not wanted:
            return b""
        data = self._bytes(wanted)
        if data is None:
            raise CorruptError("the file became shorter", self._at, self._path)
        self._at += wanted
        return data

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer; what :class:`io.RawIOBase` wants."""
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def _bytes(self, wanted: int) -> bytes | None:
        """The next bytes; None if there are not as many."""
        held = self._held(wanted)
        if held is None:
            self._fill(wanted)
            held = self._held(wanted)
        return held

    def _held(self, wanted: int) -> bytes | None:
        offset = self._at - self._start
        if offset < 0 or offset + wanted > len(self._window):
            return None
        return self._window[offset : offset + wanted]

    def _fill(self, wanted: int) -> None:
        end = self._start + len(self._window)
        ordered = len(self._window) > 0 and self._start <= self._at <= end
        self._ahead = min(2 * self._ahead, _MOST_AHEAD) if ordered else _LEAST_FETCH
        if self._size <= _LEAST_FETCH:  # one request, even if the reader begins at the end
            self._window, self._start = self._fetch(0, self._size), 0
            return
        # What the window holds of it already is not fetched again.
        kept = self._window[self._at - self._start :] if ordered else b""
        length = max(wanted - len(kept), self._ahead)
        length = min(length, self._size - self._at - len(kept))
        fetched = self._fetch(self._at + len(kept), length)
        self._window, self._start = kept + fetched if kept else fetched, self._at


@dataclass(slots=True)
class _Block:
    """Bytes ``[start, end)``; ``left`` of them were not read yet."""

    start: int
    end: int
    left: float
    data: Future[bytes] | None = None


def _in_memory(start: int, data: bytes) -> _Block:
    """A block that needs no request and is never dropped."""
    block = _Block(start, start + len(data), math.inf, Future())
    assert block.data is not None
    block.data.set_result(data)
    return block


class PrefetchedFile(RangedFile):
    """A file whose reads are known in advance: they are fetched ahead, by several requests at a time.

    ``groups`` of ranges (offset, length) are read one after the other, each byte once; those of a group in order, or
    ``interleaved``.  They are fetched in blocks.  A block is dropped once all of it was read, and one that is wanted is
    fetched before all others.  Memory holds up to ``_PREFETCHED_BYTES`` of blocks that were not read to their end, or
    the one block of each range that interleaved reads are in.  Before the first block was read it is half as much: a
    reader may want no more than its first rows.

    Bytes of ``tail``, which are in memory already, are not fetched, and may be read any number of times; no range
    overlaps it.
    """

    def __init__(
        self,
        fetch: Callable[[int, int], bytes],
        size: int,
        path: str,
        groups: Sequence[Sequence[tuple[int, int]]],
        interleaved: bool = False,
        tail: Tail = (0, b""),
    ) -> None:
        super().__init__(fetch, size, path)
        self._waiting = deque(
            block for ranges in groups for block in (_interleaved(ranges) if interleaved else _in_order(ranges))
        )
        kept = [_in_memory(*tail)] if tail[1] else []
        self._blocks = sorted([*self._waiting, *kept], key=lambda b: b.start)
        self._starts = [b.start for b in self._blocks]
        self._fetched = 0
        """Bytes of blocks that were fetched, or are, and not dropped."""
        self._most = _PREFETCHED_BYTES // 2
        self._lock = threading.Lock()
        self._asked: deque[tuple[_Block, Future[bytes]]] = deque()
        """Blocks that no thread has begun to fetch."""
        self._threads = 0
        self._process = os.getpid()
        self._fetch_ahead()

    def _bytes(self, wanted: int) -> bytes | None:
        if self.closed:
            raise ValueError("read of a closed file")
        parts, at, end = [], self._at, self._at + wanted
        number = bisect_right(self._starts, at) - 1
        while at < end:
            block = self._blocks[number] if 0 <= number < len(self._blocks) else None
            if block is None or not block.start <= at < block.end or block.left <= 0:
                return super()._bytes(wanted)  # of a range that was not announced, or is read again
            stop = min(end, block.end)
            data = self._data(block)
            parts.append(data if stop - at == len(data) else data[at - block.start : stop - block.start])
            block.left -= stop - at
            if block.left <= 0:
                self._fetched -= block.end - block.start
                self._most = _PREFETCHED_BYTES
                block.data = None
            at, number = stop, number + 1
        self._fetch_ahead()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _data(self, block: _Block) -> bytes:
        if block.data is None:
            self._ask(block, first=True)
        assert block.data is not None
        data = block.data.result()
        if len(data) < block.end - block.start:
            raise CorruptError("the file became shorter", block.start + len(data), self._path)
        return data

    def _fetch_ahead(self) -> None:
        while self._waiting and (self._fetched < self._most or self._waiting[0].data is not None):
            block = self._waiting.popleft()
            if block.data is None and block.left > 0:
                self._ask(block)

    def _ask(self, block: _Block, first: bool = False) -> None:
        block.data = Future()
        self._fetched += block.end - block.start
        if self._process != os.getpid():  # a fork has no threads of its parent
            self._threads, self._process = 0, os.getpid()
        with self._lock:
            (self._asked.appendleft if first else self._asked.append)((block, block.data))
            starts = self._threads < _REQUESTS_OF_A_FILE
            self._threads += starts
            if starts and self._threads == 1:
                atexit.register(self.join)
        if starts:
            try:
                threading.Thread(target=self._work, name="bitlake-prefetch", daemon=True).start()
            except RuntimeError:  # the program ends
                self._work()

    def _work(self) -> None:
        """Fetch blocks until none is asked for; each thread runs this."""
        while True:
            with self._lock:
                if not self._asked:
                    self._threads -= 1
                    if not self._threads:
                        atexit.unregister(self.join)
                    return
                block, data = self._asked.popleft()
            try:
                data.set_result(self._fetch(block.start, block.end - block.start))
            except BaseException as e:  # noqa: BLE001 - raised in the thread that reads the block
                data.set_exception(e)
            del block, data

    def join(self) -> None:
        """Wait for requests that run; at the end of the program, since a thread must not outlive it."""
        self.close()
        while self._threads and self._process == os.getpid():
            time.sleep(_PAUSE)

    def close(self) -> None:
        """Drop what was fetched; requests that run are not waited for."""
        super().close()
        with self._lock:
            self._waiting.clear()
            dropped = [data for _, data in self._asked]
            self._asked.clear()
        for data in dropped:
            data.cancel()  # a thread may wait for it


def _in_order(ranges: Sequence[tuple[int, int]]) -> Iterator[_Block]:
    """The ranges in blocks: those side by side are one, and long ones are several."""
    joined: list[tuple[int, int]] = []
    for start, length in ranges:
        if joined and start == sum(joined[-1]):
            joined[-1] = joined[-1][0], joined[-1][1] + length
        else:
            joined.append((start, length))
    for start, length in joined:
        yield from _split(start, length, _BLOCK_BYTES)


def _interleaved(ranges: Sequence[tuple[int, int]]) -> list[_Block]:
    """The blocks of all ranges, by their place in their range."""
    placed = [
        ((block.end - start) / length, block)
        for start, length in ranges
        for block in _split(start, length, _INTERLEAVED_BYTES)
    ]
    return [block for _, block in sorted(placed, key=lambda p: p[0])]


def _split(start: int, length: int, most: int) -> Iterator[_Block]:
    count = -(-length // most)
    for first, last in pairwise([start + length * n // count for n in range(count + 1)] if count else ()):
        yield _Block(first, last, last - first)


class UploadFile(io.RawIOBase):
    """A new file, uploaded part by part as it is written; it exists only after it is closed.

    If it is left by an exception, or closed after a failure, it is not created.
    """

    def __init__(self, writer: Any, guard: Callable[[], Any]) -> None:
        self._writer = writer
        self._guard = guard
        self._written = 0

    def writable(self) -> bool:
        """Always."""
        return True

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self._written

    def write(self, data: Any) -> int:
        """Take the bytes; some may be uploaded now."""
        view = memoryview(data).cast("B")
        if self._writer is None:
            raise ValueError("the file is closed")
        try:
            with self._guard():
                self._writer.write(view)
        except BaseException:
            self._writer = None
            raise
        self._written += len(view)
        return len(view)

    def close(self) -> None:
        """Upload the rest and make the file."""
        writer, self._writer = self._writer, None
        try:
            if writer is not None:
                with self._guard():
                    writer.close()
        finally:
            super().close()

    def discard(self) -> None:
        """Close without making the file."""
        self._writer = None
        super().close()

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        if kind is not None:
            self.discard()
        self.close()

    def __del__(self) -> None:
        # io's own would close, and so make, a file that nobody finished.
        self._writer = None
