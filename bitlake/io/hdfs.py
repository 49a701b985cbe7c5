"""HDFS stores: files of HDFS over WebHDFS (:mod:`bitlake.io.webhdfs`) or Hadoop's own protocol.

Atomic creation: the bytes go to a hidden file in the same folder, which is then renamed; HDFS renames in one step and
refuses a name that is taken.  A response may get lost.  The hidden name holds a uuid, so a second try detects what
became of the first: a hidden file that no longer exists was renamed, by us.

Hadoop's own protocol (namenodes, datanodes, Kerberos) needs the optional package hdfs-native, which silently repeats a
call whose connection broke.  A rename that had already taken place then raises FileNotFoundError, because its source no
longer exists.  The hidden file of a creation belongs to its writer alone, so the target shows the outcome: if it holds
the same bytes, the rename took place.
"""

from __future__ import annotations

import builtins
import contextlib
import os
import re
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple
from typing import Any

from bitlake._clock import new_uuid
from bitlake.errors import (
    AccessDenied,
    AlreadyExists,
    BitlakeError,
    CorruptError,
    InvalidRequest,
    NotFound,
    StorageFull,
    StorageUnavailable,
)
from bitlake.io import webhdfs
from bitlake.io.base import GAP, WHOLE_FILE_BYTES, FileInfo, Store, check_ends, check_ranges, check_whole
from bitlake.io.http import attempts
from bitlake.io.remote_files import PART_BYTES, UploadFile, ranged_input

_AT_A_TIME = 8
"""Requests on their way at once, of those that one call needs."""


class HdfsStore(Store):
    """The :class:`~bitlake.io.base.Store` of one HDFS cluster, by either protocol."""

    _authority: str
    """The cluster in paths: a host and a port, or the name of a name service."""

    # --- reading ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def _fetch(self, path: str, offset: int, length: int) -> bytes:
        """Bytes of a file, fewer only where it ends."""

    @abstractmethod
    def _exactly(self, path: str, offset: int, length: int, ranges: Sequence[tuple[int, int]]) -> bytes:
        """All these bytes; raises :class:`CorruptError` for the first of ``ranges`` that leads beyond the file."""

    @abstractmethod
    def _status(self, path: str) -> FileInfo:
        """Return the status of a path; raises :class:`NotFound`."""

    @abstractmethod
    def _entries(self, directory: str) -> builtins.list[FileInfo]:
        """The entries of a folder; a file is its own entry, without a name.  Raises :class:`NotFound`."""

    def read(self, path: str, limit: int = WHOLE_FILE_BYTES) -> bytes:
        """The whole file."""
        data = self._fetch(path, 0, limit + 1)
        check_whole(path, len(data), limit)
        return data

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        """Several ranges, eight requests at a time; one request for ranges that are not far apart."""
        check_ranges(path, ranges)
        if not any(length for _, length in ranges):
            check_ends(path, ranges, self.size(path))
        merged = _merged(ranges)
        parts = _side_by_side(lambda r: self._exactly(path, r[0], r[1] - r[0], ranges), merged)
        starts = [start for start, _ in merged]
        out = []
        for offset, length in ranges:
            i = bisect_right(starts, offset) - 1
            out.append(parts[i][offset - starts[i] : offset - starts[i] + length] if length else b"")
        return out

    def read_part(self, path: str, offset: int, length: int) -> tuple[bytes, int]:
        """The bytes that the file has, and its size."""
        size = self.size(path)
        wanted = min(length, size - offset)
        return (self.read_range(path, offset, wanted) if wanted > 0 else b""), size

    def size(self, path: str) -> int:
        """The file's size in bytes."""
        status = self._status(path)
        if status.is_dir:
            raise NotFound(f"no such file: {path} is a folder")
        return status.size

    def dir_exists(self, path: str) -> bool:
        """Whether a folder is there."""
        try:
            return self._status(path).is_dir
        except NotFound:
            return False

    def list(self, directory: str) -> builtins.list[FileInfo]:
        """The entries of a folder, sorted by name; empty when it is missing."""
        try:
            entries = self._entries(directory)
        except NotFound:
            return []
        return sorted((f for f in entries if f.name), key=lambda f: f.name)

    def open_input(self, path: str, size: int | None = None) -> Any:
        """An Arrow file that reads ranges."""
        return ranged_input(self.read_range, path, self.size(path) if size is None else size)

    # --- writing ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def open_output(self, path: str) -> Any:
        """A file whose bytes go to the cluster as they are written."""

    @abstractmethod
    def _write_aside(self, path: str, data: bytes) -> str:
        """Write a hidden file in the same folder; return its path."""

    @abstractmethod
    def _renamed(self, source: str, target: str, how: str) -> bool:
        """Rename (NONE or OVERWRITE); False when the new name is taken.  Raises :class:`NotFound` for the source."""

    @abstractmethod
    def _delete(self, path: str, recursive: bool) -> None:
        """Delete what is at a path, if anything is."""

    @abstractmethod
    def _forget(self, path: str) -> None:
        """Delete a hidden file if the cluster answers; a failure is ignored."""

    @abstractmethod
    def _make_folder(self, path: str) -> None:
        """Make a folder and its parents; raises :class:`AlreadyExists` and :class:`NotFound` where files are."""

    def create(self, path: str, data: bytes) -> bool:
        """Create the file if it is absent, atomically.

        Raises :class:`StorageUnavailable` when the outcome stays unknown.
        """
        return self._published(data, path, "NONE")

    def write(self, path: str, data: bytes) -> None:
        """Write or replace the file, atomically."""
        if not self._published(data, path, "OVERWRITE"):
            raise StorageUnavailable(f"cannot write {path}: the cluster did not replace it; is it a folder?")

    def delete(self, path: str) -> None:
        """Delete a file; a missing one is fine."""
        self._delete(path, False)

    def delete_all(self, paths: Sequence[str]) -> None:
        """Delete files, some at a time; missing ones are fine."""
        _side_by_side(self.delete, paths)

    def delete_dir(self, path: str) -> None:
        """Delete a folder with all it holds; a missing one is fine."""
        if not self._place(path).strip("/"):
            raise InvalidRequest(f"'{path}' is the whole file system: delete it with its own tools")
        self._delete(path, True)

    def make_dirs(self, path: str) -> None:
        """Make a folder and its parents."""
        try:
            self._make_folder(path)
        except (AlreadyExists, NotFound) as e:
            raise StorageUnavailable(f"cannot make folder {path}: a file has its name, or a parent's") from e

    def copy_dir(self, source: str, target: str) -> None:
        """Copy a folder, its ``schema`` folder last; the bytes come through this process."""
        if not self.dir_exists(source):
            raise NotFound(f"no such file: {source}")
        files = self._files(source)
        for last in (False, True):
            part = [f for f in files if f.startswith("schema/") is last]
            _side_by_side(lambda name: self._copy(f"{source}/{name}", f"{target}/{name}"), part)

    def rename(self, source: str, target: str) -> None:
        """Move a file or folder, in one step."""
        self._status(source)
        self.make_dirs(target.rpartition("/")[0])
        if not self._renamed(source, target, "NONE"):
            raise AlreadyExists(f"cannot move {source} to {target}: that already exists")

    def _published(self, data: bytes, path: str, how: str) -> bool:
        """Make a hidden file and rename it; False when the name is taken."""
        aside = self._write_aside(path, data)
        done = False
        try:
            done = self._renamed(aside, path, how)
        except NotFound as e:  # a request that was sent twice finds no hidden file
            with contextlib.suppress(NotFound):
                done = self._fetch(path, 0, len(data) + 1) == data
            if not done:
                raise StorageUnavailable(f"cannot create {path}: whether it was renamed is unknown ({e})") from e
        finally:
            if not done:
                self._forget(aside)  # also where it may have been renamed, which then stays
        return done

    def _files(self, folder: str) -> builtins.list[str]:
        """The names of all files below a folder, relative to it."""
        out: builtins.list[str] = []
        waiting: builtins.list[str] = [""]
        while waiting:
            below = waiting.pop()
            for entry in self.list(f"{folder}/{below}".rstrip("/")):
                (waiting if entry.is_dir else out).append(f"{below}{entry.name}" + ("/" if entry.is_dir else ""))
        return out

    def _copy(self, source: str, target: str) -> None:
        with self.open_input(source) as from_, self.open_output(target) as to:
            while part := from_.read(PART_BYTES):
                to.write(part)

    def _place(self, path: str) -> str:
        """The path inside the cluster: nothing is decoded, as everywhere."""
        scheme, separator, rest = path.partition("://")
        authority, _, tail = rest.partition("/")
        if not separator or scheme.lower() not in webhdfs.SCHEMES or authority != self._authority:
            raise InvalidRequest(f"{path} is not in this cluster, which is {self._authority or 'the default'}")
        return "/" + tail.strip("/")


def _merged(ranges: Sequence[tuple[int, int]]) -> builtins.list[tuple[int, int]]:
    """Ranges ``[start, end)`` that cover these, those with small gaps together."""
    out: builtins.list[tuple[int, int]] = []
    for offset, length in sorted(r for r in ranges if r[1]):
        if out and offset <= out[-1][1] + GAP:
            out[-1] = (out[-1][0], max(out[-1][1], offset + length))
        else:
            out.append((offset, offset + length))
    return out


def _side_by_side(work: Any, items: Sequence[Any]) -> builtins.list[Any]:
    if len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(_AT_A_TIME, len(items)), "bitlake-hdfs") as pool:
        return builtins.list(pool.map(work, items))


# --- WebHDFS ----------------------------------------------------------------------------------------------------------


class WebHdfsStore(HdfsStore):
    """A cluster by WebHDFS."""

    def __init__(self, uri: str, options: Mapping[str, str] | None = None, lenient: Mapping[str, str] | None = None):
        self.__setstate__(webhdfs.hdfs_options(uri, options or {}, lenient))

    def __repr__(self) -> str:
        return f"WebHdfsStore({self._options!r})"

    @property
    def identity(self) -> tuple[object, ...]:
        """See :attr:`Store.identity`."""
        return ("webhdfs", *astuple(self._options))

    def __getstate__(self) -> webhdfs.HdfsOptions:
        return self._options

    def __setstate__(self, state: webhdfs.HdfsOptions) -> None:
        self._options, self._authority = state, state.authority
        self._client = webhdfs.WebHdfs(state)

    def _fetch(self, path: str, offset: int, length: int) -> bytes:
        place = self._place(path)
        return self._client.call("read", path, lambda: self._client.fetch(place, path, offset, length))

    def _exactly(self, path: str, offset: int, length: int, ranges: Sequence[tuple[int, int]]) -> bytes:
        place = self._place(path)

        def fetch() -> bytes:
            found = self._client.fetch(place, path, offset, length)
            if len(found) != length:
                check_ends(path, ranges, self.size(path))
                raise webhdfs.TryAgain("fewer bytes came than were asked for", unknown=False)
            return found

        try:
            return self._client.call("read", path, fetch)
        except CorruptError:
            check_ends(path, ranges, self.size(path))  # says by how much
            raise

    def _status(self, path: str) -> FileInfo:
        place = self._place(path)
        answer = self._client.call("stat", path, lambda: self._client.ask("GET", "GETFILESTATUS", place, path))
        return _webhdfs_file_info(webhdfs.member(answer, "FileStatus"))

    def _entries(self, directory: str) -> builtins.list[FileInfo]:
        place = self._place(directory)
        answer = self._client.call("list", directory, lambda: self._client.ask("GET", "LISTSTATUS", place, directory))
        return [_webhdfs_file_info(status) for status in webhdfs.member(answer, "FileStatuses", "FileStatus")]

    def open_output(self, path: str) -> Any:
        """A file whose bytes go to a datanode as they are written."""
        place = self._place(path)
        upload = self._client.call("write", path, lambda: self._client.upload(place, path))
        return HdfsOutput(upload, lambda: self._forget(path))

    def _write_aside(self, path: str, data: bytes) -> str:
        folder, _, name = path.rpartition("/")
        options, last = self._options, ""
        for _ in attempts(options.max_retries, options.retry_seconds):
            # Another name each time: a try that was given up may still be on its way, and must not touch this one.
            aside = f"{folder}/.{name}.{new_uuid()}.tmp"
            try:
                self._client.put(self._place(aside), path, data)
            except webhdfs.TryAgain as e:
                last = str(e)
                self._forget(aside)
            except NotFound as e:
                raise StorageUnavailable(f"cannot create {path}: no folder can be made there ({e})") from e
            else:
                return aside
        raise self._client.gave_up("create", path, last)

    def _renamed(self, source: str, target: str, how: str) -> bool:
        origin, place = self._place(source), self._place(target)
        unknown, last = False, ""
        for _ in attempts(self._options.max_retries, self._options.retry_seconds):
            try:
                answer = self._client.ask("PUT", "RENAME", origin, target, destination=place, renameoptions=how)
            except webhdfs.TryAgain as e:
                unknown, last = unknown or e.unknown, str(e)
                continue
            except AlreadyExists:
                return False
            except (AccessDenied, StorageFull) as e:
                if unknown:  # a refusal now does not show what the earlier attempt did
                    raise StorageUnavailable(str(e)) from e
                raise
            except NotFound:
                if unknown:
                    return True  # it was there: the try whose answer got lost has moved it
                raise
            if not answer.body.strip() or webhdfs.member(answer, "boolean"):
                return True
            # A gateway that knows no rename options.
            if unknown and not self._there(source):
                return True
            if how == "OVERWRITE":
                self.delete(target)
                last = "the name is taken again and again"
                continue
            return False
        raise self._client.gave_up("rename to", target, last)

    def _there(self, path: str) -> bool:
        try:
            self._status(path)
        except NotFound:
            return False
        return True

    def _delete(self, path: str, recursive: bool) -> None:
        place, below = self._place(path), "true" if recursive else "false"
        with contextlib.suppress(NotFound):
            self._client.call(
                "delete", path, lambda: self._client.ask("DELETE", "DELETE", place, path, recursive=below)
            )

    def _make_folder(self, path: str) -> None:
        place = self._place(path)
        self._client.call("make folder", path, lambda: self._client.ask("PUT", "MKDIRS", place, path))

    def _forget(self, path: str) -> None:
        with contextlib.suppress(webhdfs.TryAgain, NotFound, StorageUnavailable):
            self._client.ask("DELETE", "DELETE", self._place(path), path, recursive="false")


class HdfsOutput(UploadFile):
    """A file being written, which goes away again when it is not finished."""

    def __init__(self, upload: Any, forget: Any) -> None:
        super().__init__(upload, contextlib.nullcontext)
        self._upload = upload
        self._forget = forget

    def write(self, data: Any) -> int:
        """Send the bytes, in parts."""
        view = memoryview(data).cast("B")
        try:
            for start in range(0, len(view), PART_BYTES):
                super().write(view[start : start + PART_BYTES])
        except StorageUnavailable:
            self._forget()
            raise
        return len(view)

    def discard(self) -> None:
        """Close without making the file."""
        open_ = self._writer is not None
        super().discard()
        if open_:
            self._upload.abort()
            self._forget()


def _webhdfs_file_info(status: Any) -> FileInfo:
    """An entry as LISTSTATUS and GETFILESTATUS tell it."""
    try:
        folder = status["type"] == "DIRECTORY"
        size = 0 if folder else int(status["length"])
        return FileInfo(str(status["pathSuffix"]), size, folder, int(status["modificationTime"]))
    except (KeyError, TypeError, ValueError):
        raise StorageUnavailable("the namenode's answer is not a file status; is this WebHDFS?") from None


# --- Hadoop's own protocol, through hdfs-native -----------------------------------------------------------------------

_PORT = 8020
"""Where a namenode answers Hadoop's protocol unless its configuration says otherwise."""
_RPC = re.compile(r'^(?:Fatal)?RPCError\("(?:[\w.]+[.$])?(\w+)", "((?:[^"\\]|\\[^n])*)')
_SECURITY = ("SASLError", "GSSAPIError", "NoSASLMechanism")


class _Passing(StorageUnavailable):
    """A failure that may pass."""


class NativeHdfsStore(HdfsStore):
    """Access a cluster by Hadoop's own protocol.  A forked process reconnects."""

    def __init__(self, uri: str, options: Mapping[str, str] | None = None, lenient: Mapping[str, str] | None = None):
        settings, own = webhdfs.hadoop_settings(options or {}, lenient or {})
        self.__setstate__((webhdfs.hdfs_options(uri, own, addressed=False), settings))

    def __repr__(self) -> str:
        return f"NativeHdfsStore({self._authority!r})"

    @property
    def identity(self) -> tuple[object, ...]:
        """See :attr:`Store.identity`."""
        return ("hdfs", *astuple(self._options), sorted(self._settings.items()))

    def __getstate__(self) -> tuple[webhdfs.HdfsOptions, dict[str, str]]:
        return self._options, self._settings

    def __setstate__(self, state: tuple[webhdfs.HdfsOptions, dict[str, str]]) -> None:
        self._options, self._settings = state
        self._authority = self._options.authority
        self._connected: tuple[int, Any] | None = None

    @property
    def _client(self) -> Any:
        if self._connected is None or self._connected[0] != os.getpid():
            self._connected = os.getpid(), self._connect()
        return self._connected[1]

    def _connect(self) -> Any:
        import hdfs_native  # optional

        options = self._options
        settings = {
            "dfs.client.failover.max.attempts": str(options.max_retries),
            "dfs.client.failover.sleep.max.millis": "3000",
            "dfs.client.socket-timeout": str(int(1000 * options.timeout)),
            **self._settings,
        }
        for authority in dict.fromkeys((self._authority, f"{self._authority}:{_PORT}")):
            try:
                return hdfs_native.Client(f"hdfs://{authority}/", settings)
            except RuntimeError as e:
                text = str(e)
                if "No NameNode hosts found" not in text or ":" in self._authority:
                    break
        raise InvalidRequest(
            f"hdfs://{self._authority}/ names no namenode ({text[:200]}): write hdfs://host:port/folder, or set "
            "HADOOP_CONF_DIR, or give dfs.ha.namenodes.* and dfs.namenode.rpc-address.* as storage options"
        )

    # --- reading ---------------------------------------------------------------------------------------------------

    def _fetch(self, path: str, offset: int, length: int) -> bytes:
        with self._failures("read", path):
            file = self._client.read(self._place(path))
            return bytes(file.read_range(offset, max(0, min(length, len(file) - offset))))

    def _exactly(self, path: str, offset: int, length: int, ranges: Sequence[tuple[int, int]]) -> bytes:
        with self._failures("read", path):
            file = self._client.read(self._place(path))
            check_ends(path, ranges, len(file))
            return bytes(file.read_range(offset, length))

    def _status(self, path: str) -> FileInfo:
        with self._failures("stat", path):
            return _native_file_info(self._client.get_file_info(self._place(path)), "")

    def _entries(self, directory: str) -> builtins.list[FileInfo]:
        place = self._place(directory)
        with self._failures("list", directory):
            return [_native_file_info(status, place) for status in self._client.list_status(place)]

    # --- writing ---------------------------------------------------------------------------------------------------

    def open_output(self, path: str) -> Any:
        """A file whose bytes go to the datanodes as they are written."""
        return HdfsOutput(_Upload(self, path, overwrite=True), lambda: self._forget(path))

    def _write_aside(self, path: str, data: bytes) -> str:
        folder, _, name = path.rpartition("/")
        last: _Passing | None = None
        for _ in attempts(self._options.max_retries, self._options.retry_seconds):
            aside = f"{folder}/.{name}.{new_uuid()}.tmp"
            try:
                upload = _Upload(self, aside, overwrite=False)
                upload.write(memoryview(data))
                upload.close()
            except NotFound as e:
                raise StorageUnavailable(f"cannot create {path}: no folder can be made there ({e})") from e
            except _Passing as e:
                self._forget(aside)
                last = e
            else:
                return aside
        raise last or StorageUnavailable(f"cannot create {path}")

    def _renamed(self, source: str, target: str, how: str) -> bool:
        try:
            with self._failures("rename to", target):
                self._client.rename(self._place(source), self._place(target), how == "OVERWRITE")
        except AlreadyExists:
            return False
        return True

    def _delete(self, path: str, recursive: bool) -> None:
        with contextlib.suppress(NotFound), self._failures("delete", path):
            self._client.delete(self._place(path), recursive)

    def _forget(self, path: str) -> None:
        with contextlib.suppress(BitlakeError):
            self._delete(path, False)

    def _make_folder(self, path: str) -> None:
        with self._failures("make folder", path):
            self._client.mkdirs(self._place(path), create_parent=True)

    # --- failures --------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _failures(self, action: str, shown: str) -> Iterator[None]:
        """Errors of bitlake for those of hdfs-native."""
        try:
            yield
        except BitlakeError:
            raise
        except (FileNotFoundError, IsADirectoryError) as e:
            raise NotFound(f"no such file: {shown}") from e
        except UnicodeEncodeError as e:
            raise NotFound(f"no file can have this name: {shown!r}") from e
        except FileExistsError as e:
            raise AlreadyExists(f"{shown} already exists") from e
        except OSError as e:
            text = f"cannot {action} {shown}: {e}; is the namenode at {self._authority or 'fs.defaultFS'}?"
            raise _Passing(text) from e
        except BaseException as e:
            if not isinstance(e, RuntimeError) and type(e).__name__ != "PanicException":
                raise
            raise self._error(action, shown, str(e)) from e

    def _error(self, action: str, shown: str, text: str) -> BitlakeError:
        rpc = _RPC.match(text)
        kind, message = (rpc[1], rpc[2]) if rpc else ("", text.partition("\n")[0][:300])
        detail = f"{kind}: {message}" if kind else message
        if kind in ("ParentNotDirectoryException", "PathIsNotDirectoryException"):
            return NotFound(f"no such file: {shown}")
        if kind in ("InvalidPathException", "IllegalArgumentException", "HadoopIllegalArgumentException"):
            return NotFound(f"no file can have this name: {shown!r} ({detail})")
        if kind.startswith(webhdfs.REFUSED) or text.startswith(_SECURITY):
            return AccessDenied(
                f"cannot {action} {shown}: the cluster refused this user ({detail}); is `kinit` needed?"
            )
        kind_of = (
            StorageFull if kind.endswith(webhdfs.QUOTA) else _Passing if kind in webhdfs.LATER else StorageUnavailable
        )
        return kind_of(f"cannot {action} {shown}: {detail}")


class _Upload:
    """A file being written; what hdfs-native raises becomes errors of bitlake."""

    def __init__(self, store: NativeHdfsStore, path: str, *, overwrite: bool) -> None:
        import hdfs_native  # optional

        self._store, self._path = store, path
        options = hdfs_native.WriteOptions(overwrite=overwrite, create_parent=True)
        with store._failures("write", path):
            self._file = store._client.create(store._place(path), options)

    def write(self, data: memoryview) -> None:
        with self._store._failures("write", self._path):
            self._file.write(data)

    def close(self) -> None:
        with self._store._failures("write", self._path):
            self._file.close()

    def abort(self) -> None:
        with contextlib.suppress(BitlakeError):
            self.close()


def _native_file_info(status: Any, folder: str) -> FileInfo:
    """An entry of a folder; the folder itself has no name."""
    name = "" if status.path.rstrip("/") == folder.rstrip("/") else status.path.rpartition("/")[2]
    return FileInfo(name, 0 if status.isdir else status.length, status.isdir, status.modification_time)
