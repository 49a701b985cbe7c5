"""A store that measures what a scan asks of the one below: bytes, requests and time, and which ranges of each file."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from bitlake.io import Store
from bitlake.io.base import WHOLE_FILE_BYTES

BOUNDS = "page bounds"


@dataclass(slots=True)
class Measured:
    """What was read of one kind of file in one phase; ``seconds`` spent waiting for the store, by all threads."""

    requests: int = 0
    bytes: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Meter:
    """What a :class:`MeteringStore` saw: by phase, and of each file the ranges (offset, length).  Threads add to it."""

    phase: str = "plan"
    by_phase: dict[str, Measured] = field(default_factory=dict)
    ranges: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, path: str, ranges: Sequence[tuple[int, int]], seconds: float) -> None:
        """Take down a request."""
        size = sum(n for _, n in ranges)
        # Planning reads footers, and bounds of pages that lie before them; all else is of indexes.
        phase = BOUNDS if self.phase == "indexes" and path.endswith(".parquet") else self.phase
        with self._lock:
            found = self.by_phase.setdefault(phase, Measured())
            found.requests += 1
            found.bytes += size
            found.seconds += seconds
            if self.phase == "read":
                self.ranges.setdefault(path, []).extend(ranges)

    def of(self, phase: str) -> Measured:
        """What a phase took; nothing if it did not come."""
        return self.by_phase.get(phase, Measured())


class MeteringStore:
    """Passes every call on; reading ones are measured by ``meter``."""

    def __init__(self, inner: Store, meter: Meter) -> None:
        self._inner = inner
        self._meter = meter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def read(self, path: str, limit: int = WHOLE_FILE_BYTES) -> bytes:
        """Measured :meth:`Store.read`."""
        started = time.perf_counter()
        data = self._inner.read(path, limit)
        self._meter.add(path, [(0, len(data))], time.perf_counter() - started)
        return data

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Measured :meth:`Store.read_range`."""
        started = time.perf_counter()
        data = self._inner.read_range(path, offset, length)
        self._meter.add(path, [(offset, length)], time.perf_counter() - started)
        return data

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Measured :meth:`Store.read_ranges`."""
        started = time.perf_counter()
        data = self._inner.read_ranges(path, ranges)
        self._meter.add(path, ranges, time.perf_counter() - started)
        return data

    def read_start(self, path: str, length: int) -> tuple[bytes, int]:
        """Measured :meth:`Store.read_start`."""
        started = time.perf_counter()
        data, size = self._inner.read_start(path, length)
        self._meter.add(path, [(0, len(data))], time.perf_counter() - started)
        return data, size

    def open_input(self, path: str, size: int | None = None) -> Any:
        """An Arrow file whose reads are measured."""
        started = time.perf_counter()
        inner = self._inner.open_input(path, size)
        self._meter.add(path, [], time.perf_counter() - started)
        return pa.PythonFile(_MeteredFile(inner, path, self._meter), mode="r")


class _MeteredFile(io.RawIOBase):
    """A Python file over an Arrow one."""

    def __init__(self, inner: Any, path: str, meter: Meter) -> None:
        self._inner, self._path, self._meter = inner, path, meter

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        started = time.perf_counter()
        at = self._inner.tell()
        data: bytes = self._inner.read(None if size is None or size < 0 else size)
        self._meter.add(self._path, [(at, len(data))], time.perf_counter() - started)
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._inner.seek(offset, whence))

    def tell(self) -> int:
        return int(self._inner.tell())

    def size(self) -> int:
        return int(self._inner.size())

    def close(self) -> None:
        if not self.closed:
            self._inner.close()
        super().close()
