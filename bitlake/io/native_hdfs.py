"""Files of HDFS by Hadoop's own protocol, through the optional package hdfs-native: namenodes, datanodes, Kerberos.

hdfs-native repeats a call whose connection broke, without a word.  A rename that was carried out is then answered by
FileNotFoundError: its source is gone.  The hidden file of a creation belongs to its writer alone, so the target tells
what became of it: with the same bytes, it was moved.
"""

from __future__ import annotations

import builtins
import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bitlake._clock import new_uuid
from bitlake.errors import (
    AccessDenied,
    AlreadyExists,
    BitlakeError,
    InvalidRequest,
    NotFound,
    StorageFull,
    StorageUnavailable,
)
from bitlake.io.base import FileInfo, check_ends
from bitlake.io.hdfs import HdfsOutput, HdfsStore
from bitlake.io.http import attempts
from bitlake.io.webhdfs import LATER, QUOTA, REFUSED, HdfsOptions, hadoop_settings, hdfs_options

_PORT = 8020
"""Where a namenode answers Hadoop's protocol unless its configuration says otherwise."""
_RPC = re.compile(r'^(?:Fatal)?RPCError\("(?:[\w.]+[.$])?(\w+)", "((?:[^"\\]|\\[^n])*)')
_SECURITY = ("SASLError", "GSSAPIError", "NoSASLMechanism")


class _Passing(StorageUnavailable):
    """A failure that may pass."""


class NativeHdfsStore(HdfsStore):
    """Access a cluster by Hadoop's own protocol.  A forked process reconnects."""

    def __init__(self, uri: str, options: Mapping[str, str] | None = None, lenient: Mapping[str, str] | None = None):
        settings, own = hadoop_settings(options or {}, lenient or {})
        self.__setstate__((hdfs_options(uri, own, addressed=False), settings))

    def __repr__(self) -> str:
        return f"NativeHdfsStore({self._authority!r})"

    def __getstate__(self) -> tuple[HdfsOptions, dict[str, str]]:
        return self._options, self._settings

    def __setstate__(self, state: tuple[HdfsOptions, dict[str, str]]) -> None:
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
            return _info(self._client.get_file_info(self._place(path)), "")

    def _entries(self, directory: str) -> builtins.list[FileInfo]:
        place = self._place(directory)
        with self._failures("list", directory):
            return [_info(status, place) for status in self._client.list_status(place)]

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

    def _published(self, data: bytes, path: str, how: str) -> bool:
        try:
            return super()._published(data, path, how)
        except NotFound as e:
            with contextlib.suppress(NotFound):
                if self._fetch(path, 0, len(data) + 1) == data:
                    return True
            raise StorageUnavailable(f"cannot create {path}: whether it was renamed is unknown ({e})") from e

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
            raise AlreadyExists(f"{shown} exists already") from e
        except OSError as e:
            text = f"cannot {action} {shown}: {e}; is the namenode at {self._authority or 'fs.defaultFS'}?"
            raise _Passing(text) from e
        except BaseException as e:
            if not isinstance(e, RuntimeError) and type(e).__name__ != "PanicException":
                raise
            raise self._meaning(action, shown, str(e)) from e

    def _meaning(self, action: str, shown: str, text: str) -> BitlakeError:
        found = _RPC.match(text)
        kind, message = (found[1], found[2]) if found else ("", text.partition("\n")[0][:300])
        told = f"{kind}: {message}" if kind else message
        if kind in ("ParentNotDirectoryException", "PathIsNotDirectoryException"):
            return NotFound(f"no such file: {shown}")
        if kind in ("InvalidPathException", "IllegalArgumentException", "HadoopIllegalArgumentException"):
            return NotFound(f"no file can have this name: {shown!r} ({told})")
        if kind.startswith(REFUSED) or text.startswith(_SECURITY):
            return AccessDenied(f"cannot {action} {shown}: the cluster refused this user ({told}); is `kinit` needed?")
        kind_of = StorageFull if kind.endswith(QUOTA) else _Passing if kind in LATER else StorageUnavailable
        return kind_of(f"cannot {action} {shown}: {told}")


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


def _info(status: Any, folder: str) -> FileInfo:
    """An entry of a folder; the folder itself has no name."""
    name = "" if status.path.rstrip("/") == folder.rstrip("/") else status.path.rpartition("/")[2]
    return FileInfo(name, 0 if status.isdir else status.length, status.isdir, status.modification_time)
