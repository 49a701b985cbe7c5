"""A TCP proxy on loopback that hurts chosen HTTP requests: answers 503, drops the connection, or is slow.

It reads one request at a time (obstore's are whole and carry a length), asks a plan what to do with it, and passes it
on over a connection of its own.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

(
    PASS,
    UNAVAILABLE,
    DROP,
    LOSE_ANSWER,
    SLOW,
    CUT,
    REFUSE,
    REPEAT,
    UNCONDITIONAL,
    UNKNOWN,
    REDIRECT,
    WHOLE,
    LISTED_TWICE,
) = (
    "pass",
    "503",
    "drop before it arrives",
    "done, but the answer is lost",
    "slow",
    "half of the answer",
    "403",
    "done twice, and the second answer returned",
    "done without looking at conditions",
    "501",
    "301",
    "done without looking at the range",
    "entries of a listing twice",
)
Plan = Callable[[str, str, int], str]
"""(method, path with query, how many requests of all came before) → what to do."""

_503 = (
    b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nContent-Length: 46\r\nConnection: close\r\n\r\n"
    b"<Error><Code>SlowDown</Code><Message/></Error>"
)
_501 = (
    b"HTTP/1.1 501 Not Implemented\r\nContent-Type: application/xml\r\nContent-Length: 52\r\nConnection: close\r\n\r\n"
    b"<Error><Code>NotImplemented</Code><Message/></Error>"
)
_403 = (
    b"HTTP/1.1 403 Forbidden\r\nContent-Type: application/xml\r\nContent-Length: 50\r\nConnection: close\r\n\r\n"
    b"<Error><Code>AccessDenied</Code><Message/></Error>"
)
_301 = b"HTTP/1.1 301 Moved Permanently\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_REFUSALS = {UNAVAILABLE: _503, REFUSE: _403, UNKNOWN: _501, REDIRECT: _301}
_IGNORED = {
    UNCONDITIONAL: re.compile(rb"(?i)(?<=\n)if-none-match:[^\n]*\n"),
    WHOLE: re.compile(rb"(?i)(?<=\n)range:[^\n]*\n"),
}
_ENTRY = re.compile(rb"<(Contents|CommonPrefixes)>.*?</\1>", re.DOTALL)


@dataclass
class Proxy:
    """What went through: (method, path, what was done), and bytes that came back in answers' bodies."""

    endpoint: str = ""
    plan: Plan = lambda method, path, number: PASS
    seen: list[tuple[str, str, str]] = field(default_factory=list)
    received: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, done: str) -> int:
        return sum(d == done for _, _, d in self.seen)


@contextmanager
def running(target: str) -> Iterator[Proxy]:
    """A proxy before ``target`` (http://host:port) that runs as long as the block."""
    to = (urlsplit(target).hostname, urlsplit(target).port)
    listener = socket.create_server(("127.0.0.1", 0))
    proxy = Proxy(f"http://127.0.0.1:{listener.getsockname()[1]}")

    def accept() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=_serve, args=(proxy, client, to), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        listener.close()


def _serve(proxy: Proxy, client: socket.socket, to: tuple[str | None, int | None]) -> None:
    with client:
        held = b""
        while True:
            try:
                request, held = _message(client, held)
            except OSError:
                return
            if request is None:
                return
            method, path, _ = request.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
            with proxy.lock:
                done = proxy.plan(method, path, len(proxy.seen))
                proxy.seen.append((method, path, done))
            try:
                if done == DROP:
                    return
                if done in _REFUSALS:
                    client.sendall(_REFUSALS[done])
                    return
                if done in _IGNORED:
                    request = _IGNORED[done].sub(b"", request)
                if done == REPEAT:
                    _ask(request, to, method)
                answer = _ask(request, to, method)
                if done == LOSE_ANSWER:
                    return
                if done == LISTED_TWICE:
                    body = _ENTRY.sub(rb"\g<0>\g<0>", answer.partition(b"\r\n\r\n")[2])
                    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
                if done == CUT:
                    client.sendall(answer[: len(answer) - max(1, len(answer) // 3)])
                    return
                if done == SLOW:
                    for start in range(0, len(answer), 2000):
                        client.sendall(answer[start : start + 2000])
                        time.sleep(0.01)
                else:
                    client.sendall(answer)
                with proxy.lock:
                    proxy.received += len(answer.partition(b"\r\n\r\n")[2])
            except OSError:
                return


def _ask(request: bytes, to: tuple[str | None, int | None], method: str) -> bytes:
    with socket.create_connection(to) as server:
        server.sendall(request)
        parts = []
        if method == "HEAD":
            data = b""
            while b"\r\n\r\n" not in data:
                data += server.recv(65536)
            return data
        whole, _ = _message(server, b"")
        parts.append(whole or b"")
        return b"".join(parts)


def _message(source: socket.socket, held: bytes) -> tuple[bytes | None, bytes]:
    """One message with its body, and what came after it; None at the end of the stream."""
    while b"\r\n\r\n" not in held:
        more = source.recv(65536)
        if not more:
            return None, b""
        held += more
    head, _, rest = held.partition(b"\r\n\r\n")
    length = 0
    chunked = False
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
        chunked = chunked or (name.lower() == b"transfer-encoding" and b"chunked" in value.lower())
    if chunked:
        body = bytearray(rest)
        while not body.endswith(b"0\r\n\r\n"):
            more = source.recv(1 << 20)
            if not more:
                break
            body += more
        return head + b"\r\n\r\n" + bytes(body), b""
    body = bytearray(rest)
    while len(body) < length:
        more = source.recv(1 << 20)
        if not more:
            break
        body += more
    return head + b"\r\n\r\n" + bytes(body[:length]), bytes(body[length:])
