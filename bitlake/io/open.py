"""Open the store of a path by its scheme, and a store over several stores.

:class:`ResolvingStore` sends each path to the store of its scheme and bucket or host, which it opens at the first use:
for tables with external paths in another store, and for catalogs with tables in several stores.
"""

from __future__ import annotations

import builtins
import threading
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from bitlake.errors import InvalidRequest, UnsupportedFeature
from bitlake.io.base import WHOLE_FILE_BYTES, FileInfo, Store, scheme_of


def open_store(
    uri: str, options: Mapping[str, str] | None = None, *, configured: Mapping[str, str] | None = None
) -> Store:
    """Open the store of a plain path or a URI: ``file:``, ``s3://``, ``gs://``, ``abfss://``, ``az://``, ``hdfs://``,
    ``webhdfs://``, ``memory://``.

    ``options`` are the store's options (:mod:`bitlake.io.object_store`, :mod:`bitlake.io.webhdfs`); ``configured`` is
    a larger configuration, such as a Spark session's, from which the options for this store are taken.

    Raises :class:`UnsupportedFeature` for any other scheme, and :class:`InvalidRequest` for unknown options.
    """
    # Stores are imported lazily: their libraries (obstore, pyarrow, urllib3) take longer to load than a command needs.
    scheme = scheme_of(uri)
    if scheme == "file":
        from bitlake.io.local import LocalStore

        if options:
            raise InvalidRequest(f"local files take no storage options; '{next(iter(options))}' was given")
        return LocalStore()
    from bitlake.io.object_store import KINDS

    if scheme in KINDS:
        from bitlake.io.object_store import ObjectStore

        return ObjectStore(uri, options, configured)
    if scheme in ("hdfs", "webhdfs", "swebhdfs"):
        from bitlake.io.webhdfs import names_webhdfs

        if scheme == "hdfs" and find_spec("hdfs_native") and not names_webhdfs(options or {}, configured or {}):
            from bitlake.io.hdfs import NativeHdfsStore

            return NativeHdfsStore(uri, options, configured)
        from bitlake.io.hdfs import WebHdfsStore

        return WebHdfsStore(uri, options, configured)
    raise UnsupportedFeature(
        f"storage scheme '{scheme}://' of '{uri}' is not supported; use a local path, file:/path, file:///path or one "
        f"of {', '.join(f'{k}://' for k in (*KINDS, 'hdfs', 'webhdfs'))}"
    )


# --- a store over several stores --------------------------------------------------------------------------------------

_COPY_BYTES = 8 << 20


class ResolvingStore(Store):
    """The :class:`~bitlake.io.base.Store` of any path.

    ``options`` and ``configured`` are as in :func:`bitlake.io.open_store`; with ``home``, a path, the options are
    for the store of its scheme; other stores take their own options from them, as from ``configured``.
    """

    def __init__(
        self, options: Mapping[str, str] | None, configured: Mapping[str, str] | None, home: str | None = None
    ) -> None:
        self._options = dict(options or {})
        self._configured = dict(configured or {})
        self._home = home
        self._stores: dict[tuple[str, str], Store] = {}
        self._lock = threading.Lock()
        if home is not None:
            self._at(home)  # detects wrong options immediately

    def __repr__(self) -> str:
        return f"ResolvingStore({self._home!r})"

    @property
    def identity(self) -> tuple[object, ...]:
        """See :attr:`Store.identity`."""
        return (self._home, sorted(self._options.items()), sorted(self._configured.items()))

    def __getstate__(self) -> Any:
        return self._options, self._configured, self._home

    def __setstate__(self, state: Any) -> None:
        ResolvingStore.__init__(self, *state)

    def _at(self, path: str) -> Store:
        scheme = "file" if path[:1] == "/" else scheme_of(path)
        key = (scheme, "" if scheme == "file" else urlsplit(path).netloc)
        store = self._stores.get(key)
        if store is None:
            with self._lock:
                store = self._stores.get(key)
                if store is None:
                    store = self._stores[key] = self._open(path, scheme)
        return store

    def _open(self, path: str, scheme: str) -> Store:
        if scheme == "file":
            return open_store(path)
        if self._home is not None and scheme != scheme_of(self._home):
            return open_store(path, {}, configured={**self._configured, **self._options})
        return open_store(path, self._options, configured=self._configured)

    def read(self, path: str, limit: int = WHOLE_FILE_BYTES) -> bytes:
        """The whole file."""
        return self._at(path).read(path, limit)

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Exactly ``length`` bytes from ``offset``."""
        return self._at(path).read_range(path, offset, length)

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        """Several ranges."""
        return self._at(path).read_ranges(path, ranges)

    def read_start(self, path: str, length: int) -> tuple[bytes, int]:
        """The first bytes, and the size."""
        return self._at(path).read_start(path, length)

    def size(self, path: str) -> int:
        """The file's size in bytes."""
        return self._at(path).size(path)

    def exists(self, path: str) -> bool:
        """Whether a file exists."""
        return self._at(path).exists(path)

    def dir_exists(self, path: str) -> bool:
        """Whether a folder exists."""
        return self._at(path).dir_exists(path)

    def list(self, directory: str) -> builtins.list[FileInfo]:
        """The entries of a folder."""
        return self._at(directory).list(directory)

    def names(self, directory: str) -> builtins.list[str]:
        """The names of a folder's entries."""
        return self._at(directory).names(directory)

    def create(self, path: str, data: bytes) -> bool:
        """Create a file if it is absent."""
        return self._at(path).create(path, data)

    def write(self, path: str, data: bytes) -> None:
        """Write or replace a file."""
        self._at(path).write(path, data)

    def delete(self, path: str) -> None:
        """Delete a file."""
        self._at(path).delete(path)

    def delete_all(self, paths: Sequence[str]) -> None:
        """Delete many files, those of one store together."""
        groups: dict[int, tuple[Store, builtins.list[str]]] = {}
        for path in paths:
            store = self._at(path)
            groups.setdefault(id(store), (store, []))[1].append(path)
        for store, names in groups.values():
            store.delete_all(names)

    def delete_dir(self, path: str) -> None:
        """Delete a folder."""
        self._at(path).delete_dir(path)

    def make_dirs(self, path: str) -> None:
        """Create a folder and its parents."""
        self._at(path).make_dirs(path)

    def local_path(self, path: str) -> str | None:
        """The path in the local file system; None if there is none."""
        return self._at(path).local_path(path)

    def open_output(self, path: str) -> Any:
        """A writable file."""
        return self._at(path).open_output(path)

    def open_input(self, path: str, size: int | None = None) -> Any:
        """A readable Arrow file."""
        return self._at(path).open_input(path, size)

    def copy_dir(self, source: str, target: str) -> None:
        """Copy a folder within one store."""
        self._at(source).copy_dir(source, target)

    def rename(self, source: str, target: str) -> None:
        """Move a file; from one store to another it is copied, and the source deleted."""
        origin, place = self._at(source), self._at(target)
        if origin is place:
            origin.rename(source, target)
            return
        try:
            with origin.open_input(source) as opened, place.open_output(target) as out:
                while part := opened.read(_COPY_BYTES):
                    out.write(part)
        except BaseException:
            place.delete(target)
            raise
        origin.delete(source)
