"""Stores for tests: one counts calls and bytes, one fails on purpose, one loses the responses of requests."""

from __future__ import annotations

import builtins
import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from unittest import mock

from bitlake.errors import StorageUnavailable
from bitlake.io.base import WHOLE_FILE_BYTES, FileInfo, HistoryServer, Store
from bitlake.io.local import LocalStore
from bitlake.runtime import Caches


class WrappingStore:
    """What wrappers pass on without counting or failing: it sends no request."""

    inner: Store

    @property
    def caches(self) -> Caches:
        """Those of the store below."""
        return self.inner.caches

    @property
    def identity(self) -> tuple[object, ...]:
        """As the store below."""
        return self.inner.identity

    @property
    def location(self) -> tuple[object, ...]:
        """As the store below."""
        return self.inner.location

    @property
    def uncached(self) -> Any:
        """This store: the one below has no local cache."""
        return self

    def drop_cached(self, path: str) -> None:
        """Nothing: the store below has no local cache."""

    def history_server(self, folder: str) -> HistoryServer | None:
        """The server of the store below."""
        return self.inner.history_server(folder)

    def keeps_schemas(self, folder: str) -> bool:
        """As the store below."""
        return self.inner.keeps_schemas(folder)


class CountingStore(WrappingStore):
    """Counts every call, and passes it on.

    ``calls`` maps a method name to the number of calls; ``bytes_read`` and ``bytes_written`` count payload bytes
    (not those written through :meth:`open_output`); ``paths`` lists (method, path) in order.
    """

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self._lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        """Start counting from nothing."""
        self.calls: Counter[str] = Counter()
        self.paths: builtins.list[tuple[str, str]] = []
        self.bytes_read = 0
        self.bytes_written = 0

    def _count(self, name: str, path: str, read: int = 0, written: int = 0) -> None:
        with self._lock:
            self.calls[name] += 1
            self.paths.append((name, path))
            self.bytes_read += read
            self.bytes_written += written

    def read(self, path: str, limit: int = WHOLE_FILE_BYTES) -> bytes:
        """Counted :meth:`Store.read`."""
        data = self.inner.read(path, limit)
        self._count("read", path, read=len(data))
        return data

    def read_tagged(self, path: str, limit: int = WHOLE_FILE_BYTES) -> tuple[bytes, str | None]:
        """Counted as :meth:`read`: the same request."""
        data, tag = self.inner.read_tagged(path, limit)
        self._count("read", path, read=len(data))
        return data, tag

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Counted :meth:`Store.read_range`."""
        self._count("read_range", path, read=length)
        return self.inner.read_range(path, offset, length)

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        """Counted :meth:`Store.read_ranges`: one call, however many ranges."""
        self._count("read_ranges", path, read=sum(length for _, length in ranges))
        return self.inner.read_ranges(path, ranges)

    def read_part(self, path: str, offset: int, length: int) -> tuple[bytes, int]:
        """Counted :meth:`Store.read_part`."""
        data, size = self.inner.read_part(path, offset, length)
        self._count("read_part", path, read=len(data))
        return data, size

    def size(self, path: str) -> int:
        """Counted :meth:`Store.size`."""
        self._count("size", path)
        return self.inner.size(path)

    def exists(self, path: str) -> bool:
        """Counted :meth:`Store.exists`."""
        self._count("exists", path)
        return self.inner.exists(path)

    def dir_exists(self, path: str) -> bool:
        """Counted :meth:`Store.dir_exists`."""
        self._count("dir_exists", path)
        return self.inner.dir_exists(path)

    def list(self, directory: str) -> builtins.list[FileInfo]:
        """Counted :meth:`Store.list`."""
        self._count("list", directory)
        return self.inner.list(directory)

    def names(self, directory: str) -> builtins.list[str]:
        """Counted as :meth:`list`: the same request to most stores."""
        self._count("list", directory)
        return self.inner.names(directory)

    def list_below(
        self, directory: str, names: Sequence[str]
    ) -> builtins.list[tuple[str, builtins.list[FileInfo]]] | None:
        """Counted where it sends a request."""
        if names:
            self._count("list_below", directory)
        return self.inner.list_below(directory, names)

    def list_page(self, directory: str) -> builtins.list[FileInfo] | None:
        """Counted as :meth:`list` unless it returns None, which most stores do without a request."""
        found = self.inner.list_page(directory)
        if found is not None:
            self._count("list", directory)
        return found

    def create(self, path: str, data: bytes) -> bool:
        """Counted :meth:`Store.create`."""
        self._count("create", path, written=len(data))
        return self.inner.create(path, data)

    def write(self, path: str, data: bytes) -> None:
        """Counted :meth:`Store.write`."""
        self._count("write", path, written=len(data))
        self.inner.write(path, data)

    def delete(self, path: str) -> None:
        """Counted :meth:`Store.delete`."""
        self._count("delete", path)
        self.inner.delete(path)

    def delete_all(self, paths: Sequence[str]) -> None:
        """Counted :meth:`Store.delete_all`: one call, whatever it deletes."""
        for path in paths[:1]:
            self._count("delete_all", path)
        self.inner.delete_all(paths)

    def delete_dir(self, path: str) -> None:
        """Counted :meth:`Store.delete_dir`."""
        self._count("delete_dir", path)
        self.inner.delete_dir(path)

    def make_dirs(self, path: str) -> None:
        """Counted :meth:`Store.make_dirs`."""
        self._count("make_dirs", path)
        self.inner.make_dirs(path)

    def local_path(self, path: str) -> str | None:
        """Not counted: it touches no storage."""
        return self.inner.local_path(path)

    def open_output(self, path: str) -> Any:
        """Counted :meth:`Store.open_output`."""
        self._count("open_output", path)
        return self.inner.open_output(path)

    def open_input(self, path: str, size: int | None = None) -> Any:
        """Counted :meth:`Store.open_input`."""
        self._count("open_input", path)
        return self.inner.open_input(path, size)

    def copy_dir(self, source: str, target: str) -> None:
        """Counted :meth:`Store.copy_dir`."""
        self._count("copy_dir", target)
        self.inner.copy_dir(source, target)

    def rename(self, source: str, target: str) -> None:
        """Counted :meth:`Store.rename`."""
        self._count("rename", target)
        self.inner.rename(source, target)


T = TypeVar("T")
WRITES = frozenset({"create", "write", "delete", "delete_dir", "make_dirs", "open_output", "copy_dir", "rename"})
"""Methods that change the store."""


class FaultyStore(WrappingStore):
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

    def read_tagged(self, path: str, limit: int = WHOLE_FILE_BYTES) -> tuple[bytes, str | None]:
        """May fail."""
        return self._call("read", path, lambda: self.inner.read_tagged(path, limit))

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """May fail."""
        return self._call("read_range", path, lambda: self.inner.read_range(path, offset, length))

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        """May fail."""
        return self._call("read_ranges", path, lambda: self.inner.read_ranges(path, ranges))

    def read_part(self, path: str, offset: int, length: int) -> tuple[bytes, int]:
        """May fail."""
        return self._call("read_part", path, lambda: self.inner.read_part(path, offset, length))

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

    def list_below(
        self, directory: str, names: Sequence[str]
    ) -> builtins.list[tuple[str, builtins.list[FileInfo]]] | None:
        """May fail."""
        return self._call("list", directory, lambda: self.inner.list_below(directory, names))

    def list_page(self, directory: str) -> builtins.list[FileInfo] | None:
        """May fail."""
        return self._call("list", directory, lambda: self.inner.list_page(directory))

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
        """May fail before each file: a deletion of many files can stop at any of them."""
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


class ResponseLost(LocalStore):
    """Creates each file, but raises :class:`StorageUnavailable` for those whose path contains ``part``.

    ``lost`` counts these responses.
    """

    def __init__(self, part: str) -> None:
        self.part = part
        self.lost = 0

    def create(self, path: str, data: bytes) -> bool:
        """Create a file; its response may be lost."""
        created = super().create(path, data)
        if self.part in path:
            self.lost += 1
            raise StorageUnavailable("connection reset")
        return created


class RequestsRepeated(LocalStore):
    """Links each file twice and returns the second response, as NFS may."""

    def create(self, path: str, data: bytes) -> bool:
        """Create a file; the second link fails, since the file exists by then."""
        link = os.link

        def twice(source: str, target: str) -> None:
            link(source, target)
            link(source, target)

        with mock.patch("os.link", twice):
            return super().create(path, data)
