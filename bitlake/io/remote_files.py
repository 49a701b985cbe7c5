"""Files of an object store as Arrow reads and writes them: ranges fetched ahead, parts uploaded as they fill."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from bitlake.errors import CorruptError

PART_BYTES = 8 << 20
"""Size of an uploaded part; S3 takes 10,000 of them, so a file may have 80 GB."""
PARTS_AT_A_TIME = 4
"""Parts on their way at once: with the one being filled, memory holds five."""
_LEAST_FETCH = 128 << 10
"""Fewer bytes cost as much time: a request takes 10 to 100 ms, in which a connection carries a megabyte."""
_MOST_AHEAD = 8 << 20


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
        found = self._held(wanted)
        if found is None:
            self._fill(wanted)
            found = self._held(wanted)
        if found is None:
            raise CorruptError("the file became shorter", self._at, self._path)
        self._at += wanted
        return found

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer; what :class:`io.RawIOBase` wants."""
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def _held(self, wanted: int) -> bytes | None:
        offset = self._at - self._start
        if offset < 0 or offset + wanted > len(self._window):
            return None
        return self._window[offset : offset + wanted]

    def _fill(self, wanted: int) -> None:
        end = self._start + len(self._window)
        ordered = len(self._window) > 0 and self._start <= self._at <= end
        self._ahead = min(2 * self._ahead, _MOST_AHEAD) if ordered else _LEAST_FETCH
        # What the window holds of it already is not fetched again.
        kept = self._window[self._at - self._start :] if ordered else b""
        length = max(wanted - len(kept), self._ahead)
        length = min(length, self._size - self._at - len(kept))
        fetched = self._fetch(self._at + len(kept), length)
        self._window, self._start = kept + fetched if kept else fetched, self._at


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
        """How many bytes were written."""
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
