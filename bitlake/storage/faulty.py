"""A store that fails on purpose, to prove what a commit leaves behind when its storage does."""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from bitlake.errors import StorageUnavailable
from bitlake.storage.base import WHOLE_FILE_BYTES, FileInfo, Store

T = TypeVar("T")
WRITES = frozenset({"create", "write", "delete", "delete_dir", "make_dirs", "open_output", "copy_dir", "rename"})
"""Methods that change the store."""


class FaultyStore:
    """Fails the ``fail_at``-th call (from 0) with :class:`StorageUnavailable`.

    ``after=True`` does the work first and then fails: the caller cannot know the outcome.  ``dead=True`` fails every
    later call too, like a process that died.  ``only`` limits counting and failing to the methods named.
    ``count`` is the number of calls seen, ``failed`` whether a failure was raised.
    """

    def __init__(
        self,
        inner: Store,
        fail_at: int,
        *,
        after: bool = False,
        dead: bool = False,
        only: frozenset[str] | None = None,
    ) -> None:
        self.inner = inner
        self.fail_at = fail_at
        self.after = after
        self.dead = dead
        self.only = only
        self.count = 0
        self.failed = False
        self._lock = threading.Lock()

    def _call(self, name: str, path: str, work: Callable[[], T]) -> T:
        if self.only is not None and name not in self.only:
            if self.dead and self.failed:
                raise StorageUnavailable(f"the store is gone: {name} {path}")
            return work()
        with self._lock:
            number, self.count = self.count, self.count + 1
            fails = number == self.fail_at or (self.dead and self.failed)
            self.failed = self.failed or fails
        if fails and self.after and number == self.fail_at:
            work()
        if fails:
            raise StorageUnavailable(f"made to fail: call {number}, {name} {path}")
        return work()

    def read(self, path: str, limit: int = WHOLE_FILE_BYTES) -> bytes:
        """May fail."""
        return self._call("read", path, lambda: self.inner.read(path, limit))

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """May fail."""
        return self._call("read_range", path, lambda: self.inner.read_range(path, offset, length))

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        """May fail."""
        return self._call("read_ranges", path, lambda: self.inner.read_ranges(path, ranges))

    def read_start(self, path: str, length: int) -> tuple[bytes, int]:
        """May fail."""
        return self._call("read_start", path, lambda: self.inner.read_start(path, length))

    def size(self, path: str) -> int:
        """May fail."""
        return self._call("size", path, lambda: self.inner.size(path))

    def exists(self, path: str) -> bool:
        """May fail."""
        return self._call("exists", path, lambda: self.inner.exists(path))

    def dir_exists(self, path: str) -> bool:
        """May fail."""
        return self._call("dir_exists", path, lambda: self.inner.dir_exists(path))

    def list(self, directory: str) -> builtins.list[FileInfo]:
        """May fail."""
        return self._call("list", directory, lambda: self.inner.list(directory))

    def names(self, directory: str) -> builtins.list[str]:
        """May fail."""
        return self._call("names", directory, lambda: self.inner.names(directory))

    def create(self, path: str, data: bytes) -> bool:
        """May fail."""
        return self._call("create", path, lambda: self.inner.create(path, data))

    def write(self, path: str, data: bytes) -> None:
        """May fail."""
        self._call("write", path, lambda: self.inner.write(path, data))

    def delete(self, path: str) -> None:
        """May fail."""
        self._call("delete", path, lambda: self.inner.delete(path))

    def delete_all(self, paths: Sequence[str]) -> None:
        """May fail, before each file: what deletes many may be stopped at any of them."""
        for path in paths:
            self.delete(path)

    def delete_dir(self, path: str) -> None:
        """May fail."""
        self._call("delete_dir", path, lambda: self.inner.delete_dir(path))

    def make_dirs(self, path: str) -> None:
        """May fail."""
        self._call("make_dirs", path, lambda: self.inner.make_dirs(path))

    def local_path(self, path: str) -> str | None:
        """Never fails: it touches no storage."""
        return self.inner.local_path(path)

    def open_output(self, path: str) -> Any:
        """May fail."""
        return self._call("open_output", path, lambda: self.inner.open_output(path))

    def open_input(self, path: str, size: int | None = None) -> Any:
        """May fail."""
        return self._call("open_input", path, lambda: self.inner.open_input(path, size))

    def copy_dir(self, source: str, target: str) -> None:
        """May fail."""
        self._call("copy_dir", target, lambda: self.inner.copy_dir(source, target))

    def rename(self, source: str, target: str) -> None:
        """May fail."""
        self._call("rename", target, lambda: self.inner.rename(source, target))
