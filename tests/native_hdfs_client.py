"""A stand-in for hdfs-native: its client's interface over a tree in memory, and the errors it raises.

What it answers was taken from hdfs-native 0.14.7 against Hadoop 3.4's MiniDFSCluster; tests/io/test_hdfs.py runs
against such a cluster with BITLAKE_HDFS=host:port.
"""

from __future__ import annotations

import sys
import threading
import time
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

LOST = "done, and its answer is lost"
BROKEN = "connection lost, and repeated in vain"
Plan = Callable[[str, int], "str | BaseException | None"]
"""(call, how many of it came before) → what goes wrong."""


class PanicException(BaseException):
    """What hdfs-native raises for a read beyond a file's end."""


@dataclass
class WriteOptions:
    overwrite: bool = False
    create_parent: bool = False


class State:
    def __init__(self) -> None:
        self.files: dict[str, bytes | None] = {"/": None}
        self.lock = threading.RLock()
        self.plan: Plan = lambda call, number: None
        self.calls: list[str] = []
        self.made: list[tuple[str, dict[str, str]]] = []


def install(monkeypatch: Any) -> State:
    """Put the stand-in in the place of the package."""
    state = State()
    module = types.ModuleType("hdfs_native")
    module.__spec__ = types.SimpleNamespace(name="hdfs_native")  # type: ignore[assignment]
    module.WriteOptions = WriteOptions  # type: ignore[attr-defined]
    module.Client = lambda url, config: Client(state, url, config)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "hdfs_native", module)
    return state


def rpc(kind: str, message: str) -> RuntimeError:
    return RuntimeError(f'RPCError("{kind}", "{message}\\n\\tat org.apache.hadoop.X(X.java:1)\\n")')


class Client:
    def __init__(self, state: State, url: str, config: dict[str, str]) -> None:
        self._state = state
        state.made.append((url, config))
        authority = url.removeprefix("hdfs://").rstrip("/")
        if not authority and "fs.defaultFS" not in config:
            raise RuntimeError('InvalidArgument("No fs.defaultFS setting found")')
        if authority and ":" not in authority and f"dfs.ha.namenodes.{authority}" not in config:
            raise RuntimeError('InvalidArgument("No NameNode hosts found")')

    def _call(self, call: str, work: Callable[[], Any]) -> Any:
        state = self._state
        with state.lock:
            what = state.plan(call, state.calls.count(call))
            state.calls.append(call)
            if isinstance(what, BaseException):
                raise what
            if what == LOST:  # the client repeats it
                work()
            elif what == BROKEN:
                work()
                raise OSError("RPC listener disconnected")
            return work()

    def get_file_info(self, path: str) -> Any:
        path.encode()
        return self._call("stat", lambda: self._status(path))

    def _status(self, path: str) -> Any:
        if path not in self._state.files:
            raise FileNotFoundError(path)
        data = self._state.files[path]
        now = time.time_ns() // 1_000_000
        return types.SimpleNamespace(
            path=path, length=len(data or b""), isdir=data is None, modification_time=0 if data is None else now
        )

    def list_status(self, path: str) -> list[Any]:
        def work() -> list[Any]:
            if not self._status(path).isdir:
                return [self._status(path)]
            below = [p for p in self._state.files if p != "/" and (p.rpartition("/")[0] or "/") == path]
            return [self._status(p) for p in below]

        return self._call("list", work)

    def read(self, path: str) -> Reader:
        def work() -> Reader:
            path.encode()
            data = self._state.files.get(path, None)
            if data is None:
                raise FileNotFoundError(f"File does not exist: {path}\n\tat org.apache")
            return Reader(data)

        return self._call("read", work)

    def create(self, path: str, options: WriteOptions) -> Writer:
        def work() -> Writer:
            self._parents(path)
            if path in self._state.files and (self._state.files[path] is None or not options.overwrite):
                raise FileExistsError(f"{path} already exists")
            if ":" in path.rpartition("/")[2] and "/a:" in path:
                raise rpc("org.apache.hadoop.fs.InvalidPathException", f"Invalid path name {path}")
            self._state.files[path] = b""
            return Writer(self, path)

        return self._call("create", work)

    def _parents(self, path: str) -> None:
        files = self._state.files
        parts = path.split("/")
        parents = ["/".join(parts[:i]) or "/" for i in range(1, len(parts))]
        for parent in parents:
            if files.get(parent) is not None:
                raise rpc("org.apache.hadoop.fs.ParentNotDirectoryException", f"{parent} (is not a directory)")
        for parent in parents:
            files.setdefault(parent, None)

    def mkdirs(self, path: str, permission: int = 0o755, create_parent: bool = False) -> None:
        def work() -> None:
            if self._state.files.get(path) is not None:
                raise FileExistsError(f"Path is not a directory: {path}")
            self._parents(f"{path}/x")

        self._call("mkdirs", work)

    def rename(self, source: str, target: str, overwrite: bool = False) -> None:
        def work() -> None:
            files = self._state.files
            if source not in files:
                raise FileNotFoundError(f"rename source {source} is not found.")
            if target in files and not overwrite:
                raise FileExistsError(f"rename destination {target} already exists")
            if target in files and files[target] is None:
                raise rpc("java.io.IOException", f"Source {source} and destination {target} must both be directories")
            if target.rpartition("/")[0] not in files:
                raise FileNotFoundError(f"rename destination parent {target} not found.")
            for p in [p for p in files if p == source or p.startswith(f"{source}/")]:
                files[target + p[len(source) :]] = files.pop(p)

        self._call("rename", work)

    def delete(self, path: str, recursive: bool = False) -> bool:
        def work() -> bool:
            below = [p for p in self._state.files if p.startswith(f"{path}/")]
            if below and not recursive:
                raise rpc("org.apache.hadoop.fs.PathIsNotEmptyDirectoryException", f"`{path} is non empty'")
            for p in below:
                del self._state.files[p]
            return self._state.files.pop(path, b"") != b""

        return self._call("delete", work)


class Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def read_range(self, offset: int, length: int) -> bytes:
        if offset + length > len(self._data):
            raise PanicException("Cannot read past end of the file")
        return self._data[offset : offset + length]


class Writer:
    def __init__(self, client: Client, path: str) -> None:
        self._client, self._path, self._data = client, path, b""

    def write(self, data: Any) -> int:
        self._data += bytes(data)
        return len(data)

    def close(self) -> None:
        def work() -> None:
            self._client._state.files[self._path] = self._data

        self._client._call("close", work)
