"""AWS and Azure on loopback as far as credentials go: each way of getting them, and a store that notes who asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

DATA = b"who asked is in the header"
_LATER = "2099-01-01T00:00:00Z"


class Server:
    """``askers`` are the Authorization headers of those who asked for objects, in order; ``answer``, a status and a
    body, stands in for every object.
    """

    def __init__(self) -> None:
        self.endpoint = ""
        self.askers: list[str] = []
        self.answer: tuple[int, str] | None = None


def _keys(name: str) -> dict[str, str]:
    return {"AccessKeyId": name, "SecretAccessKey": "s", "Token": "t", "Expiration": _LATER}


def _assumed(action: str, name: str) -> str:
    return (
        f'<{action}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><{action}Result><Credentials>'
        f"<AccessKeyId>{name}</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>"
        f"<Expiration>{_LATER}</Expiration></Credentials><AssumedRoleUser><Arn>arn:aws:sts::1:assumed-role/r/s</Arn>"
        f"<AssumedRoleId>r:s</AssumedRoleId></AssumedRoleUser></{action}Result></{action}Response>"
    )


def _answer(server: Server, method: str, path: str, body: str, authorization: str) -> tuple[int, str]:
    if path == "/latest/api/token":
        return 200, "imds-token"
    if path == "/latest/meta-data/iam/security-credentials/":
        return 200, "the-role"
    if path == "/latest/meta-data/iam/security-credentials/the-role":
        return 200, json.dumps({"Code": "Success", "Type": "AWS-HMAC", "LastUpdated": _LATER, **_keys("INSTANCE")})
    if path == "/container":
        return 200, json.dumps(_keys("CONTAINER"))
    if path == "/federation/credentials":
        keys = {"accessKeyId": "SSO", "secretAccessKey": "s", "sessionToken": "t", "expiration": 4_070_908_800_000}
        return 200, json.dumps({"roleCredentials": keys})
    if "AssumeRoleWithWebIdentity" in body or "AssumeRoleWithWebIdentity" in path:
        return 200, _assumed("AssumeRoleWithWebIdentity", "WEBIDENTITY")
    if "AssumeRole" in body:
        return 200, _assumed("AssumeRole", "ASSUMED")
    if path == "/msi":
        return 200, json.dumps({"access_token": "MSI", "expires_on": "4070908800", "token_type": "Bearer"})
    server.askers.append(authorization)
    return server.answer or (200, DATA.decode())


@contextmanager
def running() -> Iterator[Server]:
    """A server that runs as long as the block."""
    server = Server()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode(errors="replace")
            asked = urlsplit(self.path)
            found = _answer(server, self.command, asked.path, body + asked.query, self.headers.get("Authorization", ""))
            data = found[1].encode()
            self.send_response(found[0])
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Last-Modified", formatdate(0, usegmt=True))
            self.send_header("ETag", '"e"')
            self.end_headers()
            self.wfile.write(data)

        do_PUT = do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.endpoint = f"http://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
