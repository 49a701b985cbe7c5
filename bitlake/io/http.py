"""HTTP through urllib3: pooled connections, responses of bounded size, and retries of idempotent requests.

:class:`urllib3.util.Retry` counts and paces the retries.  Reads and deletions are retried after any failure that may
pass.  Any other request is sent again only if the server cannot have acted on it: no connection was made, or the
answer was 429.  Such a request always takes a new connection: on a pooled one that the server is just closing, a
request that never arrived looks like a response that got lost.

Servers' certificates are verified against the system's authorities (OpenSSL's ``SSL_CERT_FILE`` and ``SSL_CERT_DIR``
choose others).  Redirects are not followed.
"""

from __future__ import annotations

import http.client
import os
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    InvalidHeader,
    LocationValueError,
    ProxyError,
    ReadTimeoutError,
    SSLError,
)
from urllib3.util import Retry, Timeout, make_headers

from bitlake.io.base import MAX_RETRIES, RETRY_SECONDS

TIMEOUT = 60.0
"""Seconds to wait for a connection, and for each read of a response."""
MAX_RESPONSE_BYTES = 256 << 20
"""Limit of a response's size unless the caller gives another."""
_IDEMPOTENT = frozenset({"GET", "HEAD", "DELETE"})
_MAX_WAIT = 10
_POOLED = 8
"""Idle connections kept for each server."""
_BLOCK_BYTES = 1 << 20


class Unreachable(Exception):
    """The service has not received the request: no connection was made."""


class Broken(Exception):
    """The connection failed after the request may have arrived: whether it was carried out is unknown."""


class TooLarge(Broken):
    """The response is larger than the limit: it is not retried."""


@dataclass(frozen=True, slots=True)
class Response:
    """A status, headers under lower-case names, and the body."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    repeated: bool = False
    """Whether the server may have acted on an earlier try of the same request."""


class HttpClient:
    """Connections to the servers of one service.  Safe to share between threads; a forked process opens its own.

    ``proxies``: whether the environment's ``http_proxy``, ``https_proxy`` and ``no_proxy`` apply.  Errors name no part
    of a URL, which may hold a secret.
    """

    def __init__(
        self,
        timeout: float = TIMEOUT,
        max_retries: int = MAX_RETRIES,
        retry_seconds: float = RETRY_SECONDS,
        *,
        proxies: bool = False,
    ) -> None:
        self._timeout = timeout
        self._max_retries = max_retries
        self._retry_seconds = retry_seconds
        self._proxies = proxies
        self._owner = os.getpid()
        self._managers: dict[str | None, urllib3.PoolManager] = {}

    def request(
        self, method: str, url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Send a request and return the response, whatever its status; retry what may be sent twice.

        Raises :class:`Unreachable` and :class:`Broken` for the last try.  The last of several refusals is returned.
        """
        retry = _retry(self._max_retries, method)
        deadline = time.monotonic() + self._retry_seconds
        repeated = False
        while True:
            raw, error = None, None
            try:
                raw = self._open(method, url, body, headers)
                response = replace(_read(raw, MAX_RESPONSE_BYTES), repeated=repeated)
                if response.status != 429 and not retry.is_retry(method, response.status):
                    return response
            except HTTPError as e:
                error = e
            try:
                if not _untrusted(error):
                    retry = retry.increment(method, url, raw, error)
                    repeated = repeated or not (_unsent(error) or (raw is not None and raw.status == 429))
                    if _wait(retry, deadline, raw):
                        continue
            except HTTPError:  # no retry is left, or none is allowed
                pass
            if error is None:
                return response
            raise _failure(error)

    def send(
        self,
        method: str,
        url: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        limit: int = MAX_RESPONSE_BYTES,
    ) -> Response:
        """Send one request, once, and return the response.  ``body``: bytes, or a file that is sent in chunks.

        Raises :class:`Unreachable` and :class:`Broken`.
        """
        try:
            return _read(self._open(method, url, body, headers), limit)
        except HTTPError as e:
            raise _failure(e) from None

    def _open(self, method: str, url: str, body: Any, headers: Mapping[str, str] | None) -> urllib3.BaseHTTPResponse:
        once = method not in _IDEMPOTENT
        return self._manager(url, once).request(
            method,
            url,
            body=body,
            headers={**(headers or {}), **({"Connection": "close"} if once else {})},
            redirect=False,
            retries=False,
            preload_content=False,
            decode_content=False,
        )

    def _manager(self, url: str, once: bool) -> urllib3.PoolManager:
        """The connections for a URL; a request that must not be sent twice gets new ones, which are not kept.

        A kept connection that the server is about to close could be taken again, and lose the next request.
        """
        if self._owner != os.getpid():  # the parent's connections are not for two processes
            self._managers, self._owner = {}, os.getpid()
        proxy = _proxy(url) if self._proxies else None
        manager = None if once else self._managers.get(proxy)
        if manager is None:
            timeout = Timeout(connect=self._timeout, read=self._timeout)
            how: dict[str, Any] = {"timeout": timeout, "maxsize": _POOLED, "blocksize": _BLOCK_BYTES}
            made = urllib3.PoolManager(**how) if proxy is None else _proxy_manager(proxy, how)
            manager = made if once else self._managers.setdefault(proxy, made)
        return manager


def attempts(max_retries: int = MAX_RETRIES, seconds: float = RETRY_SECONDS) -> Iterator[None]:
    """One item for each try of an operation of several requests, with a growing wait before each but the first."""
    retry = _retry(max_retries, "GET")
    deadline = time.monotonic() + seconds
    yield
    for _ in range(max_retries):
        retry = retry.increment()
        if not _wait(retry, deadline, None):
            return
        yield


def _retry(max_retries: int, method: str) -> Retry:
    return Retry(
        max_retries,
        # Failures that are neither of the connection nor of reading, such as a TLS stream cut off behind the request.
        other=None if method in _IDEMPOTENT else 0,
        redirect=0,
        allowed_methods=_IDEMPOTENT,
        status_forcelist=(429, 503),
        backoff_factor=0.1,
        backoff_jitter=0.1,
        backoff_max=_MAX_WAIT,
        retry_after_max=_MAX_WAIT,
    )


def _wait(retry: Retry, deadline: float, response: urllib3.BaseHTTPResponse | None) -> bool:
    """Wait before a retry; False if it would begin after the deadline."""
    if time.monotonic() + retry.get_backoff_time() > deadline:
        return False
    try:
        retry.sleep(response)
    except InvalidHeader:  # Retry-After is neither a number nor a date
        retry.sleep()
    return True


def _read(response: urllib3.BaseHTTPResponse, limit: int) -> Response:
    try:
        # Only a read of everything notices that fewer bytes came than the header names.
        all_of_it = (response.length_remaining or limit + 1) <= limit
        body = response.read() if all_of_it else response.read(limit + 1)
        if len(body) > limit:
            response.close()  # the rest of the body is still on this connection
            raise TooLarge(f"the response has more than {limit} bytes")
    finally:
        response.release_conn()
    return Response(response.status, {k.lower(): v for k, v in response.headers.items()}, body)


def _failure(error: HTTPError) -> Unreachable | Broken:
    return (Unreachable if _unsent(error) else Broken)(_reason(error))


def _unsent(error: HTTPError | None) -> bool:
    """Whether the server has not received the request."""
    cause = error.original_error if isinstance(error, ProxyError) else error
    return isinstance(cause, ConnectTimeoutError | LocationValueError) or _untrusted(cause)


def _untrusted(error: BaseException | None) -> bool:
    return isinstance(error, SSLError) and any(isinstance(e, ssl.SSLCertVerificationError) for e in error.args)


def _reason(error: HTTPError) -> str:
    """Describe a failure in a few words."""
    chain: list[Any] = [error]
    for e in chain:
        if isinstance(e, BaseException) and len(chain) < 20:
            chain += [*e.args, e.__cause__]
    for e in chain:
        if isinstance(e, ConnectionResetError | BrokenPipeError):
            return "the connection was dropped"
        if isinstance(e, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted: {e.verify_message}"
        if isinstance(e, http.client.IncompleteRead):
            return "the response broke off"
        if isinstance(e, OSError) and e.strerror:
            return str(e.strerror)
    if any(isinstance(e, ReadTimeoutError | ConnectTimeoutError | TimeoutError) for e in chain):
        return "no response in time"
    return type(error).__name__


def _proxy(url: str) -> str | None:
    """The proxy that the environment names for a URL."""
    parts = urlsplit(url)
    proxy = getproxies().get(parts.scheme)
    return None if not proxy or proxy_bypass(parts.netloc.rpartition("@")[2]) else proxy


def _proxy_manager(proxy: str, how: dict[str, Any]) -> urllib3.ProxyManager:
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username else None
    address = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    return urllib3.ProxyManager(address, proxy_headers=make_headers(proxy_basic_auth=credentials), **how)
