"""Paths of files between bitlake's stores and Spark's JVM: the one place that converts them.

A store's path is plain text, absolute or relative, with or without ``file:``; nothing in it is percent-encoded
(:mod:`bitlake.io.base`).  Hadoop's ``Path`` is plain text, too, but differs in three ways:

* a path without a scheme belongs to ``fs.defaultFS``, which need not be this machine's file system;
* its working directory and its ``..`` are textual and the JVM's own, so a path must be absolute;
* the public readers of Spark expand ``* ? [ ] { }`` and take ``\\`` for an escape, unless globbing is off.

The paths in ``_metadata.file_path`` and ``input_file_name()`` are URIs with percent escapes; ``_metadata.file_name`` is
the last part of one.

Files of other systems are read by Hadoop's own clients ("connectors"), if the session has one: :class:`Connectors`.
PySpark's wheel has those of HDFS; ``s3a://`` needs the package ``hadoop-aws``.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
import unicodedata
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from bitlake.io.base import Store, scheme_of
from bitlake.io.local import strip_scheme
from bitlake.runtime import CacheName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("bitlake")

_PATTERN = re.compile(r"[\\{}\[\]*?]")
_QUOTED = re.compile(r"[^A-Za-z0-9_\-!.~'()*:@&=+$,;/]")
_PARENT = re.compile(r"(^|/)\.\.(/|$)")


def hadoop_path(path: str) -> str:
    """The text from which Hadoop makes the ``Path`` of the same file: an absolute path, always with its scheme."""
    if scheme_of(path) != "file":
        return path
    local = strip_scheme(path)
    # Hadoop would remove ".." as text, which is another folder where a symbolic link comes before it.
    return "file:" + (os.path.realpath(local) if _PARENT.search(local) else os.path.abspath(local))


def file_uri(path: str) -> str:
    """The URI of a file as ``_metadata.file_path`` has it: java.net.URI quotes less than most."""
    return _QUOTED.sub(_percent, hadoop_path(path))


def uri_name(path: str) -> str:
    """The name of a file as ``_metadata.file_name`` has it: the last part of :func:`file_uri`."""
    return _QUOTED.sub(_percent, path.rpartition("/")[2])


def _percent(found: re.Match[str]) -> str:
    char = found[0]
    quotes = char.isascii() or unicodedata.category(char) in ("Zs", "Zl", "Zp", "Cc")
    return quote(char, safe="") if quotes else char


def hadoop_pattern(path: str) -> str:
    """:func:`hadoop_path` for a reader that expands patterns: matches this path only."""
    return _PATTERN.sub(r"\\\g<0>", hadoop_path(path))


def is_hidden(path: str) -> bool:
    """Whether Spark's readers silently skip a file of this name."""
    name = path.rsplit("/", 1)[-1]
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")


_HADOOP_SCHEMES = {"s3": ("s3", "s3a"), "s3n": ("s3n", "s3a"), "gcs": ("gs",)}
"""The schemes of connectors by that of a path; all others are the same in Hadoop."""
_CONNECTORS: CacheName[tuple[int, str, str], tuple[str | None, float]] = CacheName("connectors", 64 << 10)
"""By session, scheme and bucket: the scheme of the connector, None without one, and until when that is believed."""
_CONNECTOR_BYTES = 256
_PROBE_SECONDS = 10.0
"""A connector that has not found a file by then is not used: some try for minutes."""
_BELIEVED_SECONDS = 60.0
"""After that a bucket without a connector is probed again: the file may have expired, or the session got settings."""


class Connectors:
    """Finds out which files a session's Hadoop connectors read.

    A connector has settings of its own (``spark.hadoop.fs.s3a.*``).  It is used for a bucket if it finds one of the
    table's files there, with the size that the manifest says; else, Python reads the bucket's files.
    """

    def __init__(self, spark: SparkSession, store: Store) -> None:
        self._spark = spark
        self._store = store

    def spark_path(self, path: str, size: int) -> str | None:
        """The path under which Spark reads a file of ``size`` bytes, for :func:`hadoop_path`; None if it does not."""
        scheme = scheme_of(path)
        if scheme == "file":
            return path
        _, _, rest = path.partition("://")
        bucket = rest.partition("/")[0]
        cache, key = self._store.caches[_CONNECTORS], (id(self._spark), scheme, bucket)
        path_of_spark = cache.get(key)
        if path_of_spark is None or (path_of_spark[0] is None and path_of_spark[1] < time.monotonic()):
            connector = self._probe(scheme, rest, size)
            path_of_spark = connector, time.monotonic() + _BELIEVED_SECONDS
            cache.put(key, path_of_spark, _CONNECTOR_BYTES)
        return None if path_of_spark[0] is None else f"{path_of_spark[0]}://{rest}"

    def _probe(self, scheme: str, rest: str, size: int) -> str | None:
        if getattr(self._spark, "_jvm", None) is None:
            return None  # Spark Connect
        for other in _HADOOP_SCHEMES.get(scheme, (scheme,)):
            uri = f"{other}://{rest}"
            answers: list[int | Exception] = []
            thread = threading.Thread(target=self._ask, args=(other, uri, answers), daemon=True)
            thread.start()
            thread.join(_PROBE_SECONDS)
            if answers == [size]:
                return other
            log.debug("Spark does not read %s: %s", uri, answers[0] if answers else f"no answer in {_PROBE_SECONDS} s")
        return None

    def _ask(self, scheme: str, uri: str, answers: list[int | Exception]) -> None:
        """Append the size of a file as Hadoop finds it, or the error."""
        jvm: Any = self._spark._jvm
        session: Any = self._spark
        try:
            hadoop = jvm.org.apache.hadoop.fs
            settings = session._jsparkSession.sessionState().newHadoopConf()
            hadoop.FileSystem.getFileSystemClass(scheme, settings)
            path = hadoop.Path(uri)
            answers.append(int(path.getFileSystem(settings).getFileStatus(path).getLen()))
        except Exception as e:  # noqa: BLE001 - connectors raise what they like; without one, Python reads
            answers.append(e)
