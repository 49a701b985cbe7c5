"""The store of local files.

Atomic creation: the bytes go to a temporary file in the same folder, which is then hard-linked to its final name:
``link`` fails if the name exists, and the name never shows half a file.  Temporary names begin with a dot, which
Paimon, Spark and this package ignore when listing.  File systems without hard links fall back to an exclusive create
(``O_EXCL``): still never overwrites, but a crash in the middle may leave a short file.

A crash of the process loses no created file.  As in Paimon's local storage, data is not forced to disk (``fsync``).
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bitlake._clock import new_uuid
from bitlake.errors import (
    AccessDenied,
    BitlakeError,
    CorruptError,
    InvalidRequest,
    NotFound,
    StorageFull,
    StorageUnavailable,
)
from bitlake.io.base import WHOLE_FILE_BYTES, FileInfo, Store, check_ends, check_ranges, check_whole, scheme_of

_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS, errno.EXDEV, errno.EACCES}

# A FIFO without a writer opens at once with O_NONBLOCK, which does nothing to regular files.
_READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS, errno.EISDIR, errno.ENOTDIR, errno.ELOOP}
_FULL = {errno.ENOSPC, errno.EDQUOT}


def strip_scheme(path: str) -> str:
    """The local path of a plain path or ``file:`` URI (``file:/p``, ``file:///p``, ``file://localhost/p``)."""
    if path.startswith("/"):
        return path
    if not path.startswith("file:"):
        if scheme_of(path) != "file":
            raise InvalidRequest(f"'{path}' is not a local path")
        return path
    rest = path[len("file:") :]
    if not rest.startswith("//"):
        return rest
    host, slash, tail = rest[2:].partition("/")
    if host not in ("", "localhost"):
        raise InvalidRequest(f"'{path}' names the host '{host}'; local files take file:///path")
    return slash + tail


class _Mapped:
    """Converts errors of the operating system.  A class: a generator takes three times as long to enter and leave."""

    __slots__ = ("_action", "_path")

    def __init__(self, action: str, path: str) -> None:
        self._action, self._path = action, path

    def __enter__(self) -> None:
        """Convert errors from here on."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError | ValueError):
            mapped = _mapped_error(self._action, self._path, error)
            if mapped is not None:
                try:
                    raise mapped from error
                finally:
                    del mapped  # its traceback has this frame: the cycle would keep what all callers hold


def _mapped_error(action: str, path: str, error: OSError | ValueError) -> BitlakeError | None:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        if action not in ("create", "write", "make folder"):
            return NotFound(f"no such file: {path}")
        if isinstance(error, FileNotFoundError):
            return StorageUnavailable(f"cannot {action} {path}: no folder can be made there")
        return AccessDenied(f"cannot {action} {path}: its parent is not a folder")
    if isinstance(error, OSError):
        return _too_long(action, path) if error.errno == errno.ENAMETOOLONG else failure(action, path, error)
    if "\0" not in path and not isinstance(error, UnicodeError):
        return None
    # A name read from damaged metadata, which no file can have.
    return NotFound(f"no file can have this name: {path!r}")


def failure(action: str, path: str, error: Exception) -> StorageUnavailable:
    """Convert an error of the operating system, or Arrow's; its type shows whether a retry can help."""
    number = getattr(error, "errno", None)
    why = os.strerror(number) if number else str(error)
    if number in _FULL:
        return StorageFull(f"cannot {action} {path}: {why}; free space (or raise the quota), then try again")
    return (AccessDenied if number in _REFUSED else StorageUnavailable)(f"cannot {action} {path}: {why}")


def _too_long(action: str, path: str) -> InvalidRequest | NotFound:
    """The error for a name that is too long: a table's, tag's or branch's, a partition value, or damaged metadata."""
    longest = max(path.split("/"), key=len)
    if action in ("read", "stat", "look at", "list", "delete"):
        return NotFound(f"no file can have a name as long as '{longest[:40]}…': {path}")
    return InvalidRequest(
        f"cannot {action} {path}: '{longest[:40]}…' is too long for the name of a file or folder (255 bytes, of which "
        "a file's own name needs some); choose a shorter name, or other columns for the partition"
    )


class LocalStore(Store):
    """The :class:`~bitlake.io.base.Store` of local paths and ``file:`` URIs."""

    def __repr__(self) -> str:
        return "LocalStore()"

    def read(self, path: str, limit: int = WHOLE_FILE_BYTES) -> bytes:
        """The whole file."""
        with _Mapped("read", path), _Opened(path) as (fd, size):
            check_whole(path, size, limit)
            # One byte more detects the end; of a file that grows meanwhile, the bytes at opening are returned.
            data = os.read(fd, size + 1)
            return data if len(data) == size else _pread(fd, path, 0, size, size)

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        """Several ranges through one open file."""
        out = []
        with _Mapped("read", path), _Opened(path) as (fd, size):
            for offset, length in ranges:
                out.append(_pread(fd, path, offset, length, size))
        return out

    def read_part(self, path: str, offset: int, length: int) -> tuple[bytes, int]:
        """The bytes that the file has, and its size."""
        with _Mapped("read", path), _Opened(path) as (fd, size):
            wanted = min(length, size - offset)
            return (_pread(fd, path, offset, wanted, size) if wanted > 0 else b""), size

    def size(self, path: str) -> int:
        """The file's size in bytes."""
        with _Mapped("stat", path):
            return os.stat(strip_scheme(path)).st_size

    def dir_exists(self, path: str) -> bool:
        """Whether a folder exists."""
        try:
            with _Mapped("look at", path):
                return stat.S_ISDIR(os.stat(strip_scheme(path)).st_mode)
        except NotFound:
            return False

    def list(self, directory: str) -> builtins.list[FileInfo]:
        """The entries of a folder, sorted by name; empty when it is missing."""
        out = []
        try:
            with _Mapped("list", directory), os.scandir(strip_scheme(directory)) as entries:
                for entry in entries:
                    # An entry may be deleted after it was listed.
                    with contextlib.suppress(FileNotFoundError):
                        info = entry.stat()
                        folder = entry.is_dir()
                        size = 0 if folder else info.st_size
                        link = entry.is_symlink()
                        out.append(FileInfo(entry.name, size, folder, info.st_mtime_ns // 1_000_000, link))
        except NotFound:
            return []
        return sorted(out, key=lambda f: f.name)

    def names(self, directory: str) -> builtins.list[str]:
        """The names of a folder's entries; without sizes and times, this takes half the time."""
        try:
            with _Mapped("list", directory):
                return os.listdir(strip_scheme(directory))
        except NotFound:
            return []

    def create(self, path: str, data: bytes) -> bool:
        """Create the file if it is absent, atomically."""
        target = strip_scheme(path)
        with _Mapped("create", path):
            aside = self._write_aside(target, data)
            try:
                os.link(aside, target)
            except FileExistsError:
                return os.stat(aside).st_nlink > 1  # NFS may send a request twice, and return the second response
            except OSError as e:
                if e.errno not in _NO_LINKS:
                    raise
                return self._create_exclusive(target, data)
            finally:
                os.unlink(aside)
            return True

    def write(self, path: str, data: bytes) -> None:
        """Write or replace the file, atomically."""
        target = strip_scheme(path)
        with _Mapped("write", path):
            aside = self._write_aside(target, data)
            try:
                os.replace(aside, target)
            except OSError:
                os.unlink(aside)
                raise

    def delete(self, path: str) -> None:
        """Delete a file, if it exists."""
        with contextlib.suppress(NotFound), _Mapped("delete", path):
            os.unlink(strip_scheme(path))

    def delete_all(self, paths: Sequence[str]) -> None:
        """Delete files, if they exist."""
        for path in paths:
            self.delete(path)

    def delete_dir(self, path: str) -> None:
        """Delete a folder with its contents, if it exists."""
        local = strip_scheme(path).rstrip("/")
        with contextlib.suppress(NotFound), _Mapped("delete", path):
            if os.path.islink(local):
                os.unlink(local)
            else:
                _remove_tree(local)

    def make_dirs(self, path: str) -> None:
        """Create a folder and its parents."""
        with _Mapped("make folder", path):
            os.makedirs(strip_scheme(path), exist_ok=True)

    def local_path(self, path: str) -> str | None:
        """The path without its ``file:`` scheme."""
        return strip_scheme(path)

    def open_output(self, path: str) -> Any:
        """An Arrow file open for writing."""
        target = strip_scheme(path)
        with _Mapped("create", path):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            import pyarrow as pa  # imported lazily: slow to load, and metadata does not need it

            return pa.OSFile(target, "wb")

    def open_input(self, path: str, size: int | None = None) -> Any:
        """An Arrow file open for reading; its ``size`` costs nothing."""
        with _Mapped("read", path):
            import pyarrow as pa

            local = strip_scheme(path)
            _check_regular(path, os.stat(local))
            return pa.OSFile(local, "rb")

    def copy_dir(self, source: str, target: str) -> None:
        """Copy a folder, its ``schema`` folder last."""
        from_, to = strip_scheme(source), strip_scheme(target)
        with _Mapped(f"copy {source} to", target):
            shutil.copytree(from_, to, ignore=lambda folder, _: ["schema"] if folder == from_ else [])
            if os.path.isdir(f"{from_}/schema"):
                shutil.copytree(f"{from_}/schema", f"{to}/schema")

    def rename(self, source: str, target: str) -> None:
        """Move a file within the file system."""
        to = strip_scheme(target)
        with _Mapped(f"move {source} to", target):
            os.makedirs(os.path.dirname(to), exist_ok=True)
            try:
                os.rename(strip_scheme(source), to)
            except OSError as e:
                if e.errno != errno.EXDEV or os.path.isdir(strip_scheme(source)):
                    raise
                self._move_across(strip_scheme(source), to)

    def _move_across(self, source: str, target: str) -> None:
        """Move a file to another file system: the target gets its name when it is complete."""
        folder, name = os.path.split(target)
        aside = os.path.join(folder, f".{name}.{new_uuid()}.tmp")
        try:
            shutil.copyfile(source, aside)
            os.replace(aside, target)
        except OSError:
            Path(aside).unlink(missing_ok=True)
            raise
        os.unlink(source)

    def _write_aside(self, target: str, data: bytes) -> str:
        folder, name = os.path.split(target)
        aside = os.path.join(folder, f".{name}.{new_uuid()}.tmp")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            fd = os.open(aside, flags, 0o666)
        except FileNotFoundError:
            os.makedirs(folder, exist_ok=True)
            fd = os.open(aside, flags, 0o666)
        self._fill(fd, aside, data)
        return aside

    def _create_exclusive(self, target: str, data: bytes) -> bool:
        try:
            fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            return False
        self._fill(fd, target, data)
        return True

    def _fill(self, fd: int, path: str, data: bytes) -> None:
        try:
            with open(fd, "wb") as f:
                f.write(data)
        except OSError:
            # If the disk is full, no partial file may stay under a name that readers use.
            Path(path).unlink(missing_ok=True)
            raise


class _Opened:
    """A regular file open for reading, and its size.  Opening a FIFO would wait, and reading a device never end."""

    __slots__ = ("_fd", "_path")

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> tuple[int, int]:
        self._fd = os.open(strip_scheme(self._path), _READ)
        try:
            status = os.fstat(self._fd)
            _check_regular(self._path, status)
        except BaseException:
            os.close(self._fd)
            raise
        return self._fd, status.st_size

    def __exit__(self, *error: object) -> None:
        os.close(self._fd)


_TREE_TRIES = 20
"""How often a folder is deleted while others add files to it, or delete files from it."""


def _remove_tree(path: str) -> None:
    """Delete a folder with its contents, also if other processes add and delete files in it meanwhile."""
    for tries in range(_TREE_TRIES, 0, -1):
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            if not os.path.lexists(path):
                raise
            if tries == 1:
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY)) from None
        except OSError as e:
            if e.errno != errno.ENOTEMPTY or tries == 1:
                raise
        else:
            return


def _check_regular(path: str, found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(found.st_mode):
        kind = "a FIFO" if stat.S_ISFIFO(found.st_mode) else "a device or socket"
        raise CorruptError(f"it is {kind}; only regular files are read", None, path)


def _pread(fd: int, path: str, offset: int, length: int, size: int) -> bytes:
    check_ranges(path, [(offset, length)])
    check_ends(path, [(offset, length)], size)
    parts = []
    while length > 0:
        part = os.pread(fd, length, offset)
        if not part:
            raise CorruptError(f"the file became shorter; {length} bytes are missing", offset, path)
        parts.append(part)
        offset, length = offset + len(part), length - len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
