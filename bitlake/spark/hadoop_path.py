"""Paths of files between bitlake's stores and Spark's JVM: the one place that converts them.

A store's path is plain text, absolute or relative, with or without ``file:``; nothing in it is percent-encoded
(:mod:`bitlake.io.base`).  Hadoop's ``Path`` is plain text, too, but differs in three ways:

* a path without a scheme belongs to ``fs.defaultFS``, which need not be this machine's file system;
* its working directory and its ``..`` are textual and the JVM's own, so a path must be absolute;
* the public readers of Spark expand ``* ? [ ] { }`` and take ``\\`` for an escape, unless globbing is off.

The paths in ``_metadata.file_path`` and ``input_file_name()`` are URIs with percent escapes; ``_metadata.file_name`` is
the last part of one.
"""

from __future__ import annotations

import os
import re
import unicodedata
from urllib.parse import quote

from bitlake.io.base import scheme_of
from bitlake.io.local import strip_scheme

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
