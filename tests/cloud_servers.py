"""GCS (its XML interface) and Azure Blob on loopback: as much of them as bitlake asks, over one dictionary.

Not a judge of their every rule, but of ours: which requests obstore makes for what bitlake does with ``gs://`` and
``abfss://``, and what becomes of their answers.  Conditional creation is atomic, as both promise.  Both list in pages
of :data:`PAGE`.  Any request for the bucket ``closed`` is refused.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

PAGE = 7
_TIME = "2024-05-01T10:00:00.000Z"


class Cloud:
    """What both servers hold: objects by ``bucket/key``, and the parts of uploads that are not finished."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.parts: dict[tuple[str, str], bytes] = {}
        self.lock = threading.Lock()
        self.seen: list[tuple[str, str]] = []

    def names(self, bucket: str, prefix: str, delimiter: str, after: str) -> tuple[list[str], list[str], str]:
        """A page of keys and of common prefixes, and where the next begins ('' after the last)."""
        keys = sorted(k[len(bucket) + 1 :] for k in self.objects if k.startswith(f"{bucket}/{prefix}"))
        found: dict[str, bool] = {}
        for key in keys:
            rest = key[len(prefix) :]
            cut = rest.find(delimiter) if delimiter else -1
            found[key if cut < 0 else prefix + rest[: cut + 1]] = cut >= 0
        left = [n for n in sorted(found) if n > after]
        page = left[:PAGE]
        more = page[-1] if len(left) > PAGE else ""
        return [n for n in page if not found[n]], [n for n in page if found[n]], more


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16
    cloud: Cloud

    def log_message(self, *args: object) -> None:
        """Say nothing."""

    def _answer(self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        given = {"ETag": '"1"', "Last-Modified": formatdate(1_714_557_600, usegmt=True), **(headers or {})}
        for name, value in {"Content-Length": str(len(body)), **given}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _error(self, status: int, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        name, query = unquote(parts.path).lstrip("/"), {k: v[0] for k, v in parse_qs(parts.query, True).items()}
        with self.cloud.lock:
            self.cloud.seen.append((self.command, name))
            if name.split("/")[0] == "closed":
                self._error(403, self.refusal)
            elif self.command in ("GET", "HEAD") and "/" in name:
                self._get(name)
            else:
                self._do(name, query, body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle
    refusal = missing = ""

    def _get(self, name: str) -> None:
        data = self.cloud.objects.get(name)
        if data is None:
            return self._error(404, self.missing)
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or self.headers.get("x-ms-range") or "")
        if asked is None:
            return self._answer(200, data)
        start, end = int(asked[1]), min(int(asked[2] or len(data)) + 1, len(data))
        if start >= len(data):
            return self._error(416, "InvalidRange")
        where = {"Content-Range": f"bytes {start}-{end - 1}/{len(data)}"}
        return self._answer(206, data[start:end], where)

    def _put(self, name: str, data: bytes, *, only_new: bool, status: int = 200) -> bool:
        """Whether it was stored; else a refusal was answered."""
        if only_new and name in self.cloud.objects:
            return False
        self.cloud.objects[name] = data
        self._answer(status, b"", {"x-goog-generation": "1"})
        return True

    def _do(self, name: str, query: dict[str, str], body: bytes) -> None:
        raise NotImplementedError


class _Gcs(_Handler):
    refusal, missing = "AccessDenied", "NoSuchKey"

    def _do(self, name: str, query: dict[str, str], body: bytes) -> None:
        cloud, made = self.cloud, f"{name}:{query.get('uploadId')}"
        if self.command == "GET":
            return self._list(name.strip("/"), query)
        if self.command == "DELETE":
            gone = cloud.objects.pop(name, None)
            return self._answer(204) if gone is not None else self._error(404, self.missing)
        if "uploads" in query:
            tag = "InitiateMultipartUploadResult"
            return self._answer(200, f"<{tag}><UploadId>{len(cloud.seen)}</UploadId></{tag}>".encode())
        if "partNumber" in query:
            cloud.parts[made, query["partNumber"].zfill(6)] = body
            return self._answer(200)
        if "uploadId" in query:
            numbers = sorted(n for key, n in cloud.parts if key == made)
            cloud.objects[name] = b"".join(cloud.parts.pop((made, n)) for n in numbers)
            return self._answer(200, b'<CompleteMultipartUploadResult><ETag>"1"</ETag></CompleteMultipartUploadResult>')
        source = self.headers.get("x-goog-copy-source")
        if source is not None:
            found = cloud.objects.get(unquote(source).lstrip("/"))
            if found is None:
                return self._error(404, self.missing)
            body = found
        if not self._put(name, body, only_new=self.headers.get("x-goog-if-generation-match") == "0"):
            self._error(412, "PreconditionFailed")
        return None

    def _list(self, bucket: str, query: dict[str, str]) -> None:
        after = query.get("continuation-token", query.get("start-after", ""))
        keys, folders, more = self.cloud.names(bucket, query.get("prefix", ""), query.get("delimiter", ""), after)
        out = ["<ListBucketResult>"]
        for k in keys:
            size = len(self.cloud.objects[f"{bucket}/{k}"])
            out.append(
                f"<Contents><Key>{escape(k)}</Key><LastModified>{_TIME}</LastModified><Size>{size}</Size>"
                '<ETag>"1"</ETag></Contents>'
            )
        out += [f"<CommonPrefixes><Prefix>{escape(f)}</Prefix></CommonPrefixes>" for f in folders]
        if more:
            out.append(f"<NextContinuationToken>{escape(more)}</NextContinuationToken>")
        self._answer(200, "".join([*out, "</ListBucketResult>"]).encode())


class _Azure(_Handler):
    refusal, missing = "AuthorizationFailure", "BlobNotFound"

    def _do(self, name: str, query: dict[str, str], body: bytes) -> None:
        cloud = self.cloud
        if query.get("comp") == "list":
            return self._list(name.strip("/"), query)
        if query.get("comp") == "batch":
            return self._batch(body)
        if self.command == "DELETE":
            gone = cloud.objects.pop(name, None)
            return self._answer(202) if gone is not None else self._error(404, self.missing)
        if query.get("comp") == "block":
            cloud.parts[name, query["blockid"]] = body
            return self._answer(201)
        if query.get("comp") == "blocklist":
            order = re.findall(r"<(?:Latest|Uncommitted)>([^<]+)<", body.decode())
            cloud.objects[name] = b"".join(cloud.parts.pop((name, block)) for block in order)
            return self._answer(201)
        source = self.headers.get("x-ms-copy-source")
        if source is not None:
            found = cloud.objects.get(unquote(urlsplit(source).path).lstrip("/"))
            if found is None:
                return self._error(404, self.missing)
            cloud.objects[name] = found
            return self._answer(202, b"", {"x-ms-copy-status": "success"})
        if not self._put(name, body, only_new=self.headers.get("If-None-Match") == "*", status=201):
            self._error(409, "BlobAlreadyExists")
        return None

    def _batch(self, body: bytes) -> None:
        out = []
        for number, path in enumerate(re.findall(rb"DELETE (\S+) HTTP", body)):
            gone = self.cloud.objects.pop(unquote(urlsplit(path.decode()).path).lstrip("/"), None)
            lost = f"404 The specified blob does not exist.\r\nx-ms-error-code: {self.missing}"
            status = lost if gone is None else "202 Accepted"
            out.append(
                f"--b\r\nContent-Type: application/http\r\nContent-ID: {number}\r\n\r\nHTTP/1.1 {status}\r\n"
                "Content-Length: 0\r\n\r\n"
            )
        text = "".join([*out, "--b--\r\n"])
        self._answer(202, text.encode(), {"Content-Type": "multipart/mixed; boundary=b"})

    def _list(self, bucket: str, query: dict[str, str]) -> None:
        marker = query.get("marker", "")
        keys, folders, more = self.cloud.names(bucket, query.get("prefix", ""), query.get("delimiter", ""), marker)
        out = ["<EnumerationResults><Blobs>"]
        for k in keys:
            size = len(self.cloud.objects[f"{bucket}/{k}"])
            out.append(
                f"<Blob><Name>{escape(k)}</Name><Properties><Last-Modified>{formatdate(1_714_557_600, usegmt=True)}"
                f"</Last-Modified><Content-Length>{size}</Content-Length><Content-Type>x</Content-Type><Etag>1</Etag>"
                "</Properties></Blob>"
            )
        out += [f"<BlobPrefix><Name>{escape(f)}</Name></BlobPrefix>" for f in folders]
        out.append(f"</Blobs><NextMarker>{escape(more)}</NextMarker></EnumerationResults>")
        self._answer(200, "".join(out).encode())


@contextmanager
def running(kind: str) -> Iterator[tuple[Cloud, str, dict[str, str]]]:
    """A server of ``gcs`` or ``azure``: what it holds, a bucket's address, and the storage options for it."""
    cloud = Cloud()
    handler = type("Handler", ({"gcs": _Gcs, "azure": _Azure}[kind],), {"cloud": cloud})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    common = {"skip_signature": "true", "allow_http": "true", "max_retries": "2"}
    try:
        if kind == "gcs":
            key = {"disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
            options = {"service_account_key": json.dumps(key), "base_url": endpoint, **common}
            yield cloud, "gs://lake", {k: v for k, v in options.items() if k != "skip_signature"}
        else:
            address = "abfss://lake@account.dfs.core.windows.net"
            yield cloud, address, {**common, "azure_endpoint": endpoint, "account_name": "account"}
    finally:
        server.shutdown()
        server.server_close()
