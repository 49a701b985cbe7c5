"""Stores: files on disk, in object stores and on HDFS; nothing else in bitlake opens a path.

:func:`open_store` opens the store of a path by its scheme.  :class:`ResolvingStore` sends each path to the store of its
scheme and bucket or host, which it opens at the first use: for tables with external paths in another store, and for
catalogs with tables in several stores.
"""

from __future__ import annotations

import builtins
import threading
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from bitlake.errors import InvalidRequest, UnsupportedFeature
from bitlake.io.base import DelegatingStore, FileInfo, HistoryServer, Store, has_cheap_rename, scheme_of
from bitlake.io.local import LocalStore

__all__ = ["FileInfo", "HistoryServer", "Store", "has_cheap_rename", "open_store"]


def open_store(
    uri: str,
    options: Mapping[str, str] | None = None,
    *,
    configured: Mapping[str, str] | None = None,
    checks_cache: bool = True,
) -> Store:
    """Open the store of a plain path or a URI: ``file:``, ``s3://``, ``gs://``, ``abfss://``, ``az://``, ``hdfs://``,
    ``webhdfs://``, ``memory://``.

    ``options`` are the store's options (:mod:`bitlake.io.object_store_options`, :mod:`bitlake.io.webhdfs`), and those
    of a local cache of its files (:mod:`bitlake.io.local_cache`);
    ``configured`` is a larger configuration, such as a Spark session's, from which the options for this store are
    taken.

    Raises :class:`UnsupportedFeature` for any other scheme, and :class:`InvalidRequest` for unknown options and, with
    ``checks_cache``, for a local cache whose folder cannot be written.
    """
    scheme = scheme_of(uri)
    if scheme == "file":
        if options:
            raise InvalidRequest(f"local files take no storage options; '{next(iter(options))}' was given")
        return LocalStore()
    # Stores are imported lazily: their libraries (obstore, pyarrow, urllib3) take longer to load than a command needs.
    from bitlake.io import local_cache

    cache = local_cache.cache_options(options or {}, configured or {})
    store = _open_remote(uri, scheme, local_cache.without_cache(options or {}), configured)
    if cache is None or scheme == "memory":
        return store
    if checks_cache:
        local_cache.check_folder(cache)
    return local_cache.CachedStore(store, cache)


def _open_remote(uri: str, scheme: str, options: Mapping[str, str], configured: Mapping[str, str] | None) -> Store:
    from bitlake.io.object_store_options import KINDS

    if scheme in KINDS:
        from bitlake.io import object_store

        return object_store.ObjectStore(uri, options, configured)
    if scheme in ("hdfs", "webhdfs", "swebhdfs"):
        from bitlake.io import hdfs, webhdfs

        over_http = webhdfs.names_webhdfs(options, configured or {})
        native = scheme == "hdfs" and find_spec("hdfs_native") and not over_http
        return (hdfs.NativeHdfsStore if native else hdfs.WebHdfsStore)(uri, options, configured)
    raise UnsupportedFeature(
        f"storage scheme '{scheme}://' of '{uri}' is not supported; use a local path, file:/path, file:///path or one "
        f"of {', '.join(f'{k}://' for k in (*KINDS, 'hdfs', 'webhdfs'))}"
    )


# --- a store over several stores --------------------------------------------------------------------------------------

_COPY_BYTES = 8 << 20


class ResolvingStore(DelegatingStore):
    """The :class:`~bitlake.io.base.Store` of any path.

    ``options`` and ``configured`` are as in :func:`bitlake.io.open_store`; with ``home``, a path, the options are
    for the store of its scheme; other stores take their own options from them, as from ``configured``.
    """

    def __init__(
        self,
        options: Mapping[str, str] | None,
        configured: Mapping[str, str] | None,
        home: str | None = None,
        checks_cache: bool = True,
    ) -> None:
        self._options = dict(options or {})
        self._configured = dict(configured or {})
        self._home = home
        self._checks_cache = checks_cache
        self._stores: dict[tuple[str, str], Store] = {}
        self._lock = threading.Lock()
        if home is not None:
            self.store_at(home)  # detects wrong options immediately

    def __repr__(self) -> str:
        return f"ResolvingStore({self._home!r})"

    @property
    def identity(self) -> tuple[object, ...]:
        """See :attr:`Store.identity`."""
        return (self._home, sorted(self._options.items()), sorted(self._configured.items()))

    @property
    def uncached(self) -> Store:
        """See :attr:`Store.uncached`."""
        from bitlake.io.local_cache import without_cache

        options, configured = without_cache(self._options), without_cache(self._configured)
        if (options, configured) == (self._options, self._configured):
            return self
        other = object.__new__(type(self))  # copy() would pickle it, which leaves the clients of catalogs behind
        vars(other).update(vars(self), _options=options, _configured=configured, _stores={})
        return other

    def __getstate__(self) -> Any:
        return self._options, self._configured, self._home

    def __setstate__(self, state: Any) -> None:
        options, configured, home = state
        ResolvingStore.__init__(self, options, configured, home, False)  # the machine of a task has another disk

    def store_at(self, path: str) -> Store:
        """The store of a path's scheme and bucket or host, opened at the first use."""
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
            options, configured = {}, {**self._configured, **self._options}
        else:
            options, configured = self._options, self._configured
        return open_store(path, options, configured=configured, checks_cache=self._checks_cache)

    def delete_all(self, paths: Sequence[str]) -> None:
        """Delete many files, those of one store together."""
        groups: dict[int, tuple[Store, builtins.list[str]]] = {}
        for path in paths:
            store = self.store_at(path)
            groups.setdefault(id(store), (store, []))[1].append(path)
        for store, names in groups.values():
            store.delete_all(names)

    def rename(self, source: str, target: str) -> None:
        """Move a file; from one store to another it is copied, and the source deleted."""
        origin, place = self.store_at(source), self.store_at(target)
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
