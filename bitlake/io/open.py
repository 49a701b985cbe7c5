"""Open the store of a path by its scheme."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from bitlake.errors import InvalidRequest, UnsupportedFeature
from bitlake.io.base import Store, scheme_of


def open_store(
    uri: str, options: Mapping[str, str] | None = None, *, configured: Mapping[str, str] | None = None
) -> Store:
    """Open the store of a plain path or a URI: ``file:``, ``s3://``, ``gs://``, ``abfss://``, ``az://``, ``hdfs://``,
    ``webhdfs://``, ``memory://``.

    ``options`` are the store's options (:mod:`bitlake.io.object_options`, :mod:`bitlake.io.webhdfs`); ``configured`` is
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
    from bitlake.io.object_options import KINDS

    if scheme in KINDS:
        from bitlake.io.object_store import ObjectStore

        return ObjectStore(uri, options, configured)
    if scheme in ("hdfs", "webhdfs", "swebhdfs"):
        from bitlake.io.webhdfs import names_webhdfs

        if scheme == "hdfs" and find_spec("hdfs_native") and not names_webhdfs(options or {}, configured or {}):
            from bitlake.io.native_hdfs import NativeHdfsStore

            return NativeHdfsStore(uri, options, configured)
        from bitlake.io.hdfs import WebHdfsStore

        return WebHdfsStore(uri, options, configured)
    raise UnsupportedFeature(
        f"storage scheme '{scheme}://' of '{uri}' is not supported; use a local path, file:/path, file:///path or one "
        f"of {', '.join(f'{k}://' for k in (*KINDS, 'hdfs', 'webhdfs'))}"
    )
