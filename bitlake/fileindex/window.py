"""Bytes of an index, fetched when first looked at and kept."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from threading import Lock

from bitlake.errors import CorruptError
from bitlake.fileindex.checksums import Checksums

Fetch = Callable[[int, int], bytes | memoryview]
"""``fetch(offset, length)`` gives exactly ``length`` bytes of an index."""

_NOTHING = memoryview(b"")


class Window:
    """A lazy view of ``length`` bytes behind ``fetch``.

    A fetch asks for at least ``ahead`` bytes, as headers and neighbours are usually wanted next; what was fetched is
    kept.  Every access is checked against ``length``.  Safe to share between threads.
    """

    __slots__ = ("_ahead", "_checksums", "_fetch", "_lock", "_parts", "_starts", "bytes_read", "length")

    def __init__(self, fetch: Fetch, length: int, ahead: int = 4096) -> None:
        self._fetch = fetch
        self._ahead = ahead
        self._lock = Lock()
        self._starts: list[int] = []
        self._parts: list[memoryview] = []
        self._checksums: Checksums | None = None
        self.length = length
        self.bytes_read = 0

    def check(self, checksums: Checksums) -> None:
        """From now on, verify what is looked at; raises :class:`CorruptError` for what was fetched already.

        Requires: nothing but one fetch from the start.
        """
        with self._lock:
            self._checksums = checksums
            for i, (start, part) in enumerate(zip(self._starts, self._parts, strict=True)):
                self._parts[i] = part[: checksums.verify(part, start)]

    def view(self, offset: int, n: int, ahead: int | None = None) -> memoryview:
        """Bytes ``[offset, offset + n)``; raises :class:`CorruptError` outside of the index or on a short fetch."""
        if offset < 0 or n < 0 or offset + n > self.length:
            raise CorruptError(f"{n} bytes at {offset} are outside of an index of {self.length} bytes", offset)
        head = _NOTHING
        with self._lock:
            i = bisect_right(self._starts, offset) - 1
            if i >= 0:
                at = offset - self._starts[i]
                if at + n <= len(self._parts[i]):
                    return self._parts[i][at : at + n]
                head = self._parts[i][at:]
        if n == 0:
            return _NOTHING
        if len(head):  # only what is missing is fetched
            rest = self.view(offset + len(head), n - len(head), ahead)
            return memoryview(b"".join((head, rest)))
        size = min(max(n, self._ahead if ahead is None else ahead), self.length - offset)
        start, end = offset, offset + size
        if self._checksums is not None:
            start, end = self._checksums.bounds(start, end)
        got = self._fetch(start, end - start)
        part = (got if isinstance(got, memoryview) else memoryview(got)).cast("B")
        skip = offset - start
        if len(part) < skip + n:
            raise CorruptError(f"the index ends after {start + len(part)} of {self.length} bytes", offset)
        if self._checksums is not None:
            self._checksums.verify(part, start)
        with self._lock:
            self.bytes_read += len(part)
            i = bisect_right(self._starts, start)
            self._starts.insert(i, start)
            self._parts.insert(i, part)
        return part[skip : skip + n]
