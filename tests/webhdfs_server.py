"""A namenode and a datanode of HDFS, as far as WebHDFS shows them: two HTTP servers over a tree in memory.

Behaviour (statuses, exceptions, redirects, when a file is seen) is that of Hadoop 3.5, checked against its
MiniDFSCluster by running tests/io/test_hdfs.py with BITLAKE_WEBHDFS=host:port.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

PASS, DROP, LOSE_ANSWER, UNAVAILABLE, STANDBY, REFUSE, CUT, KERBEROS, REPEAT = (
    "pass",
    "drop before it is done",
    "done, but the answer is lost",
    "503",
    "standby",
    "403",
    "half of the answer",
    "401",
    "done twice",
)
Plan = Callable[[str, str, int], str]
"""(operation, path, how many requests of this operation came before) → what to do.  A datanode's are DATA-CREATE …"""


@dataclass
class Cluster:
    """The files of a cluster by path (None: a folder), and what was asked of it."""

    files: dict[str, bytes | None] = field(default_factory=lambda: {"/": None})
    plan: Plan | None = None
    seen: list[tuple[str, str]] = field(default_factory=list)
    queries: list[dict[str, str]] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)
    namenode: str = ""
    datanode: str = ""

    def put(self, files: dict[str, bytes]) -> None:
        """Put files there without a request."""
        with self.lock:
            for path, data in files.items():
                _make_folders(self.files, path.rpartition("/")[0])
                self.files[path] = data

    def count(self, op: str) -> int:
        return sum(o == op for o, _ in self.seen)


class Failure(Exception):
    def __init__(self, status: int, kind: str, message: str = "") -> None:
        self.status, self.kind, self.message = status, kind, message


@contextmanager
def running() -> Iterator[Cluster]:
    """A cluster as long as the block."""
    cluster = Cluster()
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), _handler(cluster, data)) for data in (False, True)]
    cluster.namenode, cluster.datanode = (f"127.0.0.1:{s.server_address[1]}" for s in servers)
    threads = [threading.Thread(target=s.serve_forever, args=(0.02,), daemon=True) for s in servers]
    for thread in threads:
        thread.start()
    try:
        yield cluster
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


def _handler(cluster: Cluster, data: bool) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def _serve(self) -> None:
            parts = urlsplit(self.path)
            query = dict(parse_qsl(parts.query))
            path = unquote(parts.path.removeprefix("/webhdfs/v1")).rstrip("/") or "/"
            op = ("DATA-" if data else "") + query["op"]
            body = self._body()
            with cluster.lock:
                todo = PASS if cluster.plan is None else cluster.plan(op, path, cluster.count(op))
                cluster.seen.append((op, path))
                cluster.queries.append(query)
            if body is None or todo == DROP:
                self.connection.close()
                return
            try:
                if todo == STANDBY:
                    raise Failure(403, "StandbyException", "Operation category READ is not supported in state standby")
                if todo == REFUSE:
                    raise Failure(403, "AccessControlException", "Permission denied: user=me, access=WRITE")
                if todo == KERBEROS:
                    answer: tuple[int, dict[str, str], bytes] = (401, {"WWW-Authenticate": "Negotiate"}, b"")
                elif todo == UNAVAILABLE:
                    answer = (503, {}, b"too busy")
                else:
                    with cluster.lock:
                        if todo == REPEAT:
                            _answer(cluster, op, path, query, body, parts.query)
                        answer = _answer(cluster, op, path, query, body, parts.query)
            except Failure as e:
                told = {"exception": e.kind, "javaClassName": f"org.apache.{e.kind}", "message": e.message}
                answer = (e.status, {}, json.dumps({"RemoteException": told}).encode())
            if todo == LOSE_ANSWER:
                self.connection.close()
                return
            status, headers, out = answer
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(out)))
            self.end_headers()
            self.wfile.write(out[: len(out) // 2] if todo == CUT else out)

        def _body(self) -> bytes | None:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            out = b""
            while True:
                line = self.rfile.readline()
                if not line:
                    return None
                size = int(line, 16)
                out += self.rfile.read(size)
                self.rfile.readline()
                if not size:
                    return out

        do_GET = do_PUT = do_DELETE = _serve

    return Handler


def _answer(
    cluster: Cluster, op: str, path: str, query: dict[str, str], body: bytes, text: str
) -> tuple[int, dict[str, str], bytes]:
    files = cluster.files
    there = path in files
    folder = there and files[path] is None
    if op in ("CREATE", "OPEN"):
        if op == "OPEN":
            _file(files, path)
            size = len(files[path] or b"")
            if int(query["offset"]) >= size > 0:
                raise Failure(403, "IOException", f"Offset={query['offset']} out of the range [0, {size}); OPEN, path=")
        elif folder or (there and query["overwrite"] == "false"):
            raise Failure(403, "FileAlreadyExistsException", f"{path} already exists")
        elif not _can_hold(files, path):
            raise Failure(403, "ParentNotDirectoryException", f"{path} (a parent is not a directory)")
        return 307, {"Location": f"http://{cluster.datanode}/webhdfs/v1{quote(path)}?{text}"}, b""
    if op == "DATA-CREATE":
        if there and query["overwrite"] == "false":
            raise Failure(403, "FileAlreadyExistsException", f"{path} already exists")
        _make_folders(files, path.rpartition("/")[0])
        files[path] = body
        return 201, {}, b""
    if op == "DATA-OPEN":
        _file(files, path)
        start = int(query["offset"])
        end = start + int(query["length"]) if "length" in query else None
        return 200, {}, (files[path] or b"")[start:end]
    if op == "GETFILESTATUS":
        if not there:
            raise Failure(404, "FileNotFoundException", f"File does not exist: {path}")
        return _json({"FileStatus": _status("", files[path])})
    if op == "LISTSTATUS":
        if not there:
            raise Failure(404, "FileNotFoundException", f"File {path} does not exist.")
        names = sorted(p for p in files if p != "/" and (p.rpartition("/")[0] or "/") == path)
        found = [_status(p.rpartition("/")[2], files[p]) for p in names] if folder else [_status("", files[path])]
        return _json({"FileStatuses": {"FileStatus": found}})
    if op == "MKDIRS":
        if there and not folder:
            raise Failure(403, "FileAlreadyExistsException", f"Path is not a directory: {path}")
        _make_folders(files, path)
        return _json({"boolean": True})
    if op == "DELETE":
        below = [p for p in files if p.startswith(f"{path}/")]
        if below and query["recursive"] == "false":
            raise Failure(403, "PathIsNotEmptyDirectoryException", f"`{path} is non empty': Directory is not empty")
        for p in below:
            del files[p]
        if there and path != "/":
            del files[path]
        return _json({"boolean": there})
    if op == "RENAME":
        return _rename(files, path, query["destination"], query.get("renameoptions"))
    raise Failure(400, "IllegalArgumentException", f'Invalid value for webhdfs parameter "op": {op}')


def _rename(files: dict[str, bytes | None], path: str, to: str, how: str | None) -> tuple[int, dict[str, str], bytes]:
    if how is None:  # as a gateway that knows no options
        if path not in files or to in files or to.rpartition("/")[0] not in files:
            return _json({"boolean": False})
    elif path not in files:
        raise Failure(404, "FileNotFoundException", f"rename source {path} is not found.")
    elif to in files and (how == "NONE" or files[to] is None):
        raise Failure(403, "FileAlreadyExistsException", f"rename destination {to} already exists")
    elif to.rpartition("/")[0] not in files:
        raise Failure(404, "FileNotFoundException", f"rename destination parent {to} not found.")
    for p in [p for p in files if p == path or p.startswith(f"{path}/")]:
        files[to + p[len(path) :]] = files.pop(p)
    return (200, {}, b"") if how is not None else _json({"boolean": True})


def _file(files: dict[str, bytes | None], path: str) -> None:
    if path not in files:
        raise Failure(404, "FileNotFoundException", f"File {path} not found.")
    if files[path] is None:
        raise Failure(404, "FileNotFoundException", f"Path is not a file: {path}")


def _can_hold(files: dict[str, bytes | None], path: str) -> bool:
    parts = path.split("/")
    parents = ["/".join(parts[:i]) for i in range(2, len(parts))]
    return all(files.get(p) is None for p in parents)


def _make_folders(files: dict[str, bytes | None], path: str) -> None:
    if not _can_hold(files, f"{path}/x"):
        raise Failure(403, "ParentNotDirectoryException", f"{path} (is not a directory)")
    parts = path.split("/")
    for i in range(2, len(parts) + 1):
        files.setdefault("/".join(parts[:i]), None)


def _status(name: str, data: bytes | None) -> dict[str, Any]:
    kind = "DIRECTORY" if data is None else "FILE"
    now = time.time_ns() // 1_000_000
    return {"pathSuffix": name, "type": kind, "length": len(data or b""), "modificationTime": now}


def _json(value: Any) -> tuple[int, dict[str, str], bytes]:
    return 200, {"Content-Type": "application/json"}, json.dumps(value).encode()
