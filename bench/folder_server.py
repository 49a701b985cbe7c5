"""A folder served as a bucket of S3, with the latency and the throughput of an object store.

    python -m bench.folder_server FOLDER [MILLISECONDS [MEGABYTES]]     prints its port, then serves until it is killed

Each request waits that many milliseconds before its response begins, and each connection carries that many megabytes a
second.  The first folder of a path is the bucket's name, of which there is one, ``lake``.  A response is sent from the
file by the kernel, so that the server takes little of the processor's time.  ``GET /-/requests`` returns the requests
since it was last asked, as JSON: method, key, bytes, start and end in seconds.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
import xml.sax.saxutils as xml
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

BUCKET = "lake"
KEY, SECRET = "AKIDTESTONLY", "test/secret+only"
_BLOCK = 256 << 10
_PAGE = 1000
"""Objects of one response to a listing without a delimiter."""
_RANGE = re.compile(r"bytes=(\d*)-(\d*)$")


@dataclass(frozen=True, slots=True)
class Request:
    """One request: ``received`` bytes of its response's body, from ``start`` to ``end`` in seconds."""

    method: str
    key: str
    received: int
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class FolderServer:
    """A running server."""

    port: int

    @property
    def endpoint(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def options(self) -> dict[str, str]:
        """Storage options with which bitlake reads it."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.access-key": KEY,
            "s3.secret-key": SECRET,
            "s3.path.style.access": "true",
            "region": "us-east-1",
        }

    def requests(self) -> list[Request]:
        """The requests since the last call."""
        connection = HTTPConnection("127.0.0.1", self.port)
        connection.request("GET", "/-/requests")
        found = json.loads(connection.getresponse().read())
        connection.close()
        return [Request(*each) for each in found]


def round_trips(requests: list[Request]) -> int:
    """The length of the longest chain of requests of which each began after the one before it had ended."""
    longest, last = 0, float("-inf")
    for each in sorted(requests, key=lambda r: r.end):
        if each.start >= last:
            longest, last = longest + 1, each.end
    return longest


@contextmanager
def running(folder: Path, milliseconds: float = 20, megabytes: float = 100) -> Iterator[FolderServer]:
    """A server of a folder in a process of its own that runs as long as the block."""
    command = [sys.executable, __file__, str(folder), str(milliseconds), str(megabytes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("port "), f"the server did not start: {line!r}"
            yield FolderServer(int(line.split()[1]))
        finally:
            process.kill()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16
    disable_nagle_algorithm = True
    folder: Path
    latency: float
    rate: float
    log: list[tuple[str, str, int, float, float]]
    lock: threading.Lock
    listed: dict[tuple[str, int], list[tuple[str, os.stat_result]]]

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed."""

    def _path(self) -> tuple[str, dict[str, list[str]]]:
        parts = urlsplit(self.path)
        key = unquote(parts.path).removeprefix("/")
        return key.partition("/")[2], parse_qs(parts.query, keep_blank_values=True)

    def do_GET(self) -> None:
        if self.path == "/-/requests":
            with self.lock:
                found = json.dumps(self.log)
                self.log.clear()
            self._send(200, found.encode())
            return
        start = time.monotonic()
        time.sleep(self.latency)
        key, query = self._path()
        sent = self._list(query) if "list-type" in query else self._object(key)
        self._logged(key or f"?prefix={query.get('prefix', [''])[0]}", sent, start)

    def do_HEAD(self) -> None:
        start = time.monotonic()
        time.sleep(self.latency)
        key, _ = self._path()
        self._object(key)
        self._logged(key, 0, start)

    def do_PUT(self) -> None:
        start = time.monotonic()
        key, _ = self._path()
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        time.sleep(self.latency + len(data) / self.rate)
        path = self.folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        with self.lock:
            if self.headers.get("If-None-Match") == "*" and path.exists():
                self._send(412, b"<Error><Code>PreconditionFailed</Code></Error>")
            else:
                path.write_bytes(data)
                self._send(200, b"", {"ETag": '"1"'})
        self._logged(key, 0, start)

    def _logged(self, key: str, sent: int, start: float) -> None:
        with self.lock:
            self.log.append((self.command, key, sent, start, time.monotonic()))

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> int:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()
        return len(body)

    def _object(self, key: str) -> int:
        path = self.folder / key
        if not path.is_file():
            return self._send(404, b"<Error><Code>NoSuchKey</Code><Message>none</Message></Error>")
        with open(path, "rb") as file:
            about = os.fstat(file.fileno())
            at, end = self._range(about.st_size)
            self.send_response(206 if "Range" in self.headers else 200)
            self.send_header("Content-Length", str(end - at))
            self.send_header("Content-Range", f"bytes {at}-{end - 1}/{about.st_size}")
            self.send_header("Last-Modified", self.date_time_string(int(about.st_mtime)))
            self.send_header("ETag", f'"{about.st_mtime_ns}"')
            self.end_headers()
            if self.command == "HEAD":
                self.wfile.flush()
                return 0
            self.wfile.flush()
            return self._body(file.fileno(), at, end)

    def _range(self, size: int) -> tuple[int, int]:
        found = _RANGE.match(self.headers.get("Range", ""))
        if found is None:
            return 0, size
        first, last = found.groups()
        if not first:
            return max(0, size - int(last)), size
        return int(first), min(size, int(last) + 1) if last else size

    def _body(self, file: int, at: int, end: int) -> int:
        began, first = time.monotonic(), at
        while at < end:
            at += os.sendfile(self.connection.fileno(), file, at, min(_BLOCK, end - at))
            ahead = (at - first) / self.rate - (time.monotonic() - began)
            if ahead > 0.001:
                time.sleep(ahead)
        return end - first

    def _below(self, prefix: str) -> list[tuple[str, os.stat_result]]:
        """All objects below a prefix, in the order of keys; of a folder that did not change they are kept."""
        stamp = (prefix, (self.folder / prefix).stat().st_mtime_ns)
        found = self.listed.get(stamp)
        if found is None:
            paths = [path for path in (self.folder / prefix).rglob("*") if path.is_file()]
            found = sorted((str(path.relative_to(self.folder)), path.stat()) for path in paths)
            if len(found) > _PAGE:  # the bench's own tables, which do not change once they are this large
                self.listed[stamp] = found
        return found

    def _list(self, query: dict[str, list[str]]) -> int:
        prefix = query.get("prefix", [""])[0]
        folders, objects, more = [], [], False
        root = self.folder / prefix
        if "delimiter" in query and root.is_dir():
            with os.scandir(root) as entries:
                for entry in sorted(entries, key=lambda e: e.name):
                    if entry.is_dir():
                        folders.append(f"{prefix}{entry.name}/")
                    else:
                        objects.append((f"{prefix}{entry.name}", entry.stat()))
        elif root.is_dir():
            objects = self._below(prefix)
        lines = [
            f"<Contents><Key>{xml.escape(name)}</Key><Size>{about.st_size}</Size><ETag>&quot;{about.st_mtime_ns}&quot;</ETag>"
            "<LastModified>"
            f"{datetime.fromtimestamp(int(about.st_mtime), UTC).strftime('%Y-%m-%dT%H:%M:%S.000Z')}"
            "</LastModified></Contents>"
            for name, about in objects
        ] + [f"<CommonPrefixes><Prefix>{xml.escape(name)}</Prefix></CommonPrefixes>" for name in folders]
        after = query.get("continuation-token", query.get("start-after", [""]))[0]
        if "delimiter" not in query:
            objects = [each for each in objects if each[0] > after]
            more = len(objects) > _PAGE
            objects = objects[:_PAGE]
        token = f"<NextContinuationToken>{xml.escape(objects[-1][0])}</NextContinuationToken>" if more else ""
        count = len(objects) + len(folders)
        text = (
            f"<ListBucketResult><Name>{BUCKET}</Name><Prefix>{xml.escape(prefix)}</Prefix><KeyCount>{count}</KeyCount>"
            f"<MaxKeys>1000000</MaxKeys><IsTruncated>{'true' if more else 'false'}</IsTruncated>"
            f"{token}{''.join(lines)}</ListBucketResult>"
        )
        return self._send(200, text.encode(), {"Content-Type": "application/xml"})


def main() -> None:
    """Serve until the process is killed."""
    folder, milliseconds, megabytes = [*sys.argv[1:], *("20", "100")[len(sys.argv) - 2 :]]
    _Handler.folder = Path(folder).resolve()
    _Handler.latency = float(milliseconds) / 1000
    _Handler.rate = float(megabytes) * 1e6
    _Handler.log = []
    _Handler.listed = {}
    _Handler.lock = threading.Lock()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    print(f"port {server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
