"""The one narrow interface between bitlake and the place where a table's files are.

Paths are strings: absolute local paths, or URIs exactly as the user gave them.  Nothing is percent-decoded, because
partition folders legitimately hold ``%3A`` and Paimon treats paths as plain text too.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from bitlake.errors import CorruptError, InvalidRequest, NotFound

WHOLE_FILE_BYTES = 1 << 30
"""The most that a file read as a whole may take: a manifest, a HASH index."""
_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):(//|/)")


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One entry of a folder: its bare name, size in bytes (0 for folders) and modification time (epoch ms).

    ``is_link``: it is a symbolic link; the other members describe what it leads to.
    """

    name: str
    size: int
    is_dir: bool
    mtime_ms: int
    is_link: bool = False


class Store(Protocol):
    """Files of one storage system.

    Every method raises :class:`~bitlake.errors.StorageUnavailable` when the system fails or refuses; reading methods
    raise :class:`~bitlake.errors.NotFound` for a missing file.  Implementations are safe to share between threads.
    """

    def read(self, path: str, limit: int = WHOLE_FILE_BYTES) -> bytes:
        """The whole file; raises ``CorruptError`` if it has more than ``limit`` bytes, without reading them."""
        ...

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Exactly ``length`` bytes from ``offset``; raises ``CorruptError`` if the file ends before."""
        ...

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Several ``(offset, length)`` ranges of one file, in the order asked, each as by :meth:`read_range`."""
        ...

    def read_start(self, path: str, length: int) -> tuple[bytes, int]:
        """The first ``length`` bytes of a file (fewer if it is shorter), and its size: one request of a bucket."""
        ...

    def size(self, path: str) -> int:
        """The file's size in bytes."""
        ...

    def exists(self, path: str) -> bool:
        """Whether a file is there; ask :meth:`dir_exists` about folders, which object stores do not have.

        This answer is for the stores that inherit it; a local folder has a size too.
        """
        try:
            self.size(path)
        except NotFound:
            return False
        return True

    def dir_exists(self, path: str) -> bool:
        """Whether a folder is there; in an object store, whether any file is in it."""
        ...

    def list(self, directory: str) -> list[FileInfo]:
        """The entries of a folder, sorted by name; empty when the folder is missing."""
        ...

    def names(self, directory: str) -> builtins.list[str]:
        """The names of a folder's entries, in any order; empty when the folder is missing."""
        return [f.name for f in self.list(directory)]

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

    def delete_all(self, paths: Sequence[str]) -> None:
        """Delete many files, with as few requests as the system can; missing ones are fine."""
        ...

    def delete_dir(self, path: str) -> None:
        """Delete a folder with all it holds; a missing one is fine.  Links are removed, and never followed."""
        ...

    def make_dirs(self, path: str) -> None:
        """Make a folder and its parents; an existing one is fine."""
        ...

    def local_path(self, path: str) -> str | None:
        """The same file as a path of this machine's file system, or None if it has none."""
        ...

    def open_output(self, path: str) -> Any:
        """A writable binary file (an Arrow ``NativeFile`` or alike) for a new, possibly large file; parents are made.

        The file may be visible before it is closed: nothing may refer to it before that.  Where the result has a
        method ``discard``, it closes without making the file.
        """
        ...

    def open_input(self, path: str, size: int | None = None) -> Any:
        """An Arrow ``NativeFile`` to read a file from start to end or at random; a context manager.

        ``size``, where it is known, is what a store need not ask for.
        """
        ...

    def copy_dir(self, source: str, target: str) -> None:
        """Copy a folder with all it holds to a name that nobody uses yet, a table's ``schema`` folder last.

        Until that is there, nobody takes the copy for a table.  Raises :class:`NotFound` for a missing source.
        """
        ...

    def rename(self, source: str, target: str) -> None:
        """Move a file or folder to a name that nobody uses yet; missing parent folders of the target are made.

        An object store copies and then deletes: see :func:`has_cheap_rename`.
        """
        ...


def check_whole(path: str, size: int, limit: int) -> None:
    """Raise ``CorruptError`` for a file that is too large to be read as a whole."""
    if size > limit:
        raise CorruptError(f"the file has {size:,} bytes; files of its kind are read up to {limit:,} bytes", None, path)


def scheme_of(uri: str) -> str:
    """The lower-case scheme of a URI, ``file`` for a plain path."""
    match = _SCHEME.match(uri)
    return "file" if match is None else match.group(1).lower()


def has_cheap_rename(store: Store, path: str) -> bool:
    """Whether files can be written anywhere and then moved; else writers put them where they belong at once.

    Also whether Spark's JVM finds these files by itself: the plain PySpark wheel has no jar for any object store.
    """
    return store.local_path(path) is not None


def number_option(name: str, value: str | None, default: float) -> float:
    """A storage option that is a number, also of seconds (``30s``); raises :class:`InvalidRequest` for another text."""
    if value is None:
        return default
    try:
        number = float(value.strip().lower().removesuffix("s"))
    except ValueError:
        number = -1
    if not 0 <= number < 1e6:
        raise InvalidRequest(f"the storage option '{name}' takes a number that is not negative, and not '{value}'")
    return number


Range = tuple[int, int]


def check_ranges(path: str, ranges: Iterable[Range]) -> None:
    """Raise :class:`InvalidRequest` for a range that begins before the file or is shorter than nothing."""
    for offset, length in ranges:
        if offset < 0 or length < 0:
            raise InvalidRequest(f"range [{offset}, +{length}) of {path} is negative")


def check_ends(path: str, ranges: Iterable[Range], size: int) -> None:
    """Raise :class:`CorruptError` for a range that goes beyond a file of ``size`` bytes."""
    for offset, length in ranges:
        missing = offset + length - size
        if missing > 0:
            raise CorruptError(f"the file ends {missing} bytes before the end of a range of {length}", offset, path)
