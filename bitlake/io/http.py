"""One HTTP request and its whole answer, and when to try again; for the few services that are spoken to directly.

A connection serves one request: metadata services are asked seldom, and a connection that was kept may be gone just
when it is needed, which for a request that must not be sent twice cannot be told from a lost answer.
"""

from __future__ import annotations

import http.client
import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

MAX_RETRIES = 6
"""Tries after the first one, with growing waits between them; as many as for object stores."""
RETRY_SECONDS = 60.0
"""No retry begins later than this after the first try."""
TIMEOUT = 60.0
"""Seconds to wait for a connection, and for each answer."""


class Unreachable(Exception):
    """No connection: the service has not seen the request."""


class Broken(Exception):
    """The connection failed after the request may have arrived: whether it was carried out is unknown."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A status, headers under lower-case names, and the body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def exchange(
    method: str, url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None, timeout: float = TIMEOUT
) -> Answer:
    """Send one request and read the answer, whatever its status; redirects are not followed.

    Raises :class:`Unreachable` and :class:`Broken`, whose texts hold no part of the URL (it may hold a secret).
    """
    parts = urlsplit(url)
    connection = connect(url, timeout)
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request(method, target, body, dict(headers or {}))
        return read_answer(connection)
    except (OSError, http.client.HTTPException) as e:
        raise Broken(reason(e)) from None
    finally:
        connection.close()


def connect(url: str, timeout: float = TIMEOUT) -> http.client.HTTPConnection:
    """A connection to a URL's server, made; raises :class:`Unreachable`."""
    try:
        parts = urlsplit(url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=timeout)
        connection.connect()
    except (OSError, http.client.HTTPException, ValueError) as e:
        raise Unreachable(reason(e)) from None
    return connection


def read_answer(connection: http.client.HTTPConnection) -> Answer:
    """The answer to the request that was sent; raises what :mod:`http.client` does."""
    response = connection.getresponse()
    return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())


def reason(error: Exception) -> str:
    """What went wrong, in a few words."""
    if isinstance(error, http.client.RemoteDisconnected | ConnectionResetError | BrokenPipeError):
        return "the connection was dropped"
    if isinstance(error, http.client.IncompleteRead):
        return "the answer broke off"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return (error.strerror if isinstance(error, OSError) else None) or type(error).__name__


def attempts(max_retries: int = MAX_RETRIES, seconds: float = RETRY_SECONDS) -> Iterator[int]:
    """Numbers of tries from 0 on, with a growing wait before each but the first; ends when there should be no more."""
    started = time.monotonic()
    for number in range(max_retries + 1):
        if number:
            wait = min(10.0, 0.1 * 2 ** (number - 1)) * random.uniform(0.5, 1.0)
            if time.monotonic() + wait - started > seconds:
                return
            time.sleep(wait)
        yield number
