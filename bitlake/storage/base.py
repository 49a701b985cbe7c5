"""The one narrow interface between bitlake and the place where a table's files are.

Paths are strings: absolute local paths, or URIs exactly as the user gave them.  Nothing is percent-decoded, because
partition folders legitimately hold ``%3A`` and Paimon treats paths as plain text too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from bitlake.errors import UnsupportedFeature

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):(//|/)")


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One entry of a folder: its bare name, size in bytes (0 for folders) and modification time (epoch ms)."""

    name: str
    size: int
    is_dir: bool
    mtime_ms: int


class Store(Protocol):
    """Files of one storage system.

    Every method raises :class:`~bitlake.errors.StorageUnavailable` when the system fails or refuses; reading methods
    raise :class:`~bitlake.errors.NotFound` for a missing file.  Implementations are safe to share between threads.
    """

    def read(self, path: str) -> bytes:
        """The whole file."""
        ...

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Exactly ``length`` bytes from ``offset``; raises ``CorruptError`` if the file ends before."""
        ...

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Several ``(offset, length)`` ranges of one file, in the order asked, each as by :meth:`read_range`."""
        ...

    def size(self, path: str) -> int:
        """The file's size in bytes."""
        ...

    def exists(self, path: str) -> bool:
        """Whether a file or folder is there."""
        ...

    def list(self, directory: str) -> list[FileInfo]:
        """The entries of a folder, sorted by name; empty when the folder is missing."""
        ...

    def create(self, path: str, data: bytes) -> bool:
        """Create the file if it is absent, as one atomic step: readers see nothing or all of it.

        Returns False, changing nothing, when the file exists already.  Missing parent folders are made.
        """
        ...

    def write(self, path: str, data: bytes) -> None:
        """Write or replace the file as one atomic step; missing parent folders are made."""
        ...

    def delete(self, path: str) -> None:
        """Delete a file; a missing one is fine."""
        ...

    def delete_dir(self, path: str) -> None:
        """Delete a folder with all it holds; a missing one is fine."""
        ...

    def make_dirs(self, path: str) -> None:
        """Make a folder and its parents; an existing one is fine."""
        ...

    def local_path(self, path: str) -> str | None:
        """The same file as a path of this machine's file system, or None if it has none."""
        ...

    def open_output(self, path: str) -> Any:
        """A writable binary file (an Arrow ``NativeFile`` or alike) for a new, possibly large file; parents are made.

        The file may be visible before it is closed: nothing may refer to it before that.
        """
        ...

    def open_input(self, path: str) -> Any:
        """An Arrow ``NativeFile`` to read a file from start to end or at random; a context manager."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Move a file to a name that nobody uses yet; missing parent folders of the target are made."""
        ...


def scheme_of(uri: str) -> str:
    """The lower-case scheme of a URI, ``file`` for a plain path."""
    match = _SCHEME.match(uri)
    return "file" if match is None else match.group(1).lower()


def open_store(uri: str) -> Store:
    """The store that holds ``uri``: a plain path, ``file:/…`` or ``file:///…``.

    Raises :class:`UnsupportedFeature` for any other scheme.
    """
    scheme = scheme_of(uri)
    if scheme == "file":
        from bitlake.storage.local import LocalStore

        return LocalStore()
    raise UnsupportedFeature(
        f"storage scheme '{scheme}://' of '{uri}' is not supported; use a local path, file:/path or file:///path"
    )
