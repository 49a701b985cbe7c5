"""The client of a REST catalog: its address and credentials, requests, retries, and what failures mean.

Requests and responses::

    GET /v1/config?warehouse=…   → {"defaults": {…}, "overrides": {…}}: options below and above the client's own; the
                                   option ``prefix`` begins all other paths: /v1/<prefix>/databases/…
    lists                        → {"databases": […], "nextPageToken": …}; ?pageToken=… asks for what follows
    failures                     → {"message", "resourceType", "resourceName", "code"}
    401 403 → AccessDenied   400 → InvalidRequest   404 → NotFound   409 → AlreadyExists   501 → UnsupportedFeature
    anything else → StorageUnavailable

:class:`~bitlake.io.http.HttpClient` retries: reads and deletions after lost connections, 429 and 503, anything else
only where the server cannot have acted on it, both after ``Retry-After`` if the server sends it.

Source: ``docs/static/rest-catalog-open-api.yaml`` in Paimon's repository; what it leaves open is as in Paimon's
clients.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from bitlake import arguments
from bitlake.errors import (
    AccessDenied,
    AlreadyExists,
    BitlakeError,
    InvalidRequest,
    NotFound,
    StorageUnavailable,
    UnsupportedFeature,
)
from bitlake.io.base import MAX_RETRIES, RETRY_SECONDS
from bitlake.io.http import Broken, HttpClient, Response, Unreachable

_HEADER = "header."
_LONG_TOKEN = 12
"""A token of at least this length does not occur in a message by chance."""
_OPTIONS = ("token", "token.provider", "prefix")
_MAX_MESSAGE_CHARS = 500
_MAX_PAGES = 100_000


@dataclass(frozen=True, slots=True, repr=False)
class RestOptions:
    """The address of a catalog, and the credentials.  Its text shows neither token nor headers."""

    uri: str
    warehouse: str
    token: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, hash=False)
    given: Mapping[str, str] = field(default_factory=dict, hash=False)
    max_retries: int = MAX_RETRIES
    retry_seconds: float = RETRY_SECONDS

    def __repr__(self) -> str:
        return f"RestOptions({self.uri!r}, {self.warehouse!r})"


def rest_options(uri: str, warehouse: str, given: Mapping[str, str]) -> RestOptions:
    """Check the options of a catalog: ``token``, ``token.provider`` (``bear``), ``prefix`` and ``header.*``.

    Raises :class:`InvalidRequest` and :class:`UnsupportedFeature`, which show no values but a provider's name.
    """
    text = arguments.text("a REST catalog's uri", uri).strip()
    if "://" not in text:
        text = f"http://{text}"
    try:
        parts = urlsplit(text)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or any(c.isspace() or not c.isprintable() for c in text):
        raise InvalidRequest(
            "a REST catalog's uri is like http://host:port, http://[::1]:port or https://host/path, without blanks"
        )
    if "@" in parts.netloc:
        raise InvalidRequest("a REST catalog's uri may hold no credentials: give the catalog option 'token'")
    if "?" in text or "#" in text:
        raise InvalidRequest(
            "a REST catalog's uri must not contain '?' or '#', since the paths of requests are appended to it; "
            "give credentials as the catalog option 'token'"
        )
    text = text.rstrip("/")
    if not warehouse.strip():
        raise InvalidRequest("a REST catalog takes the name of its warehouse as the path")
    unknown = [k for k in given if k not in _OPTIONS and not k.startswith(_HEADER)]
    if unknown:
        raise InvalidRequest(
            f"unknown rest catalog option '{unknown[0]}'; it takes {', '.join(_OPTIONS)} and {_HEADER}*"
        )
    provider = given.get("token.provider", "bear")
    if provider not in ("bear", "bearer"):
        raise UnsupportedFeature(f"token.provider '{provider}' is not supported; bear is, with the option 'token'")
    if "token.provider" in given and not given.get("token"):
        raise InvalidRequest("token.provider 'bear' takes the catalog option 'token'")
    headers = {k.removeprefix(_HEADER): v for k, v in given.items() if k.startswith(_HEADER)}
    own = {k: v for k, v in given.items() if k == "prefix"}
    return RestOptions(text, warehouse, given.get("token"), headers, own)


class RestClient:
    """One warehouse of a REST catalog.  Safe to share between threads."""

    def __init__(self, options: RestOptions) -> None:
        self.options = options
        self._http = HttpClient(max_retries=options.max_retries, retry_seconds=options.retry_seconds, proxies=True)
        self._base = f"{options.uri}/v1"
        config = self._call("GET", f"config?{urlencode({'warehouse': options.warehouse}, quote_via=quote)}")
        defaults, overrides = (as_options(config.get(name)) for name in ("defaults", "overrides"))
        self.settings = {**defaults, **options.given, **overrides}
        """The catalog's options: the server's defaults, the client's, the server's overrides."""
        prefix = self.settings.get("prefix", "").strip("/")
        self._base = f"{options.uri}/v1/{quote(prefix)}" if prefix else f"{options.uri}/v1"

    def __repr__(self) -> str:
        return f"RestClient({self.options!r})"

    def get(self, *path: str) -> dict[str, Any]:
        """Get the object at a path, whose parts are names, not yet quoted."""
        return self._call("GET", _joined(path))

    def pages(self, member: str, *path: str) -> list[str]:
        """Get all names of a list, page by page."""
        out: list[str] = []
        token, seen = "", set()
        for _ in range(_MAX_PAGES):
            query = f"?{urlencode({'pageToken': token}, quote_via=quote)}" if token else ""
            page = self._call("GET", _joined(path) + query)
            names = page.get(member) or []
            if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
                raise self._invalid(f"'{member}' is not a list of names")
            out += names
            token = str(page.get("nextPageToken") or "")
            if not token or not names:
                return out
            if token in seen:
                break
            seen.add(token)
        raise self._invalid("it repeats a page token")

    def post(self, body: Mapping[str, Any], *path: str) -> dict[str, Any]:
        """Send a change.  The server receives the request at most once, unless it refuses it by 429.

        Raises :class:`StorageUnavailable` if the outcome stays unknown.
        """
        return self._call("POST", _joined(path), json.dumps(body).encode())

    def delete(self, *path: str) -> None:
        """Delete what is at a path; raises :class:`NotFound`."""
        self._call("DELETE", _joined(path))

    # --- one request -----------------------------------------------------------------------------------------------

    def _call(self, method: str, path: str, body: bytes | None = None) -> dict[str, Any]:
        options = self.options
        headers = {"Accept": "application/json", **options.headers}
        if options.token:
            headers["Authorization"] = f"Bearer {options.token}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            response = self._http.request(method, f"{self._base}/{path}", body, headers)
        except Unreachable as e:
            raise StorageUnavailable(f"the catalog at {options.uri} cannot be reached: {e}") from None
        except Broken as e:
            unknown = "; whether it made the change is unknown" if method == "POST" else ""
            raise StorageUnavailable(f"the catalog at {options.uri} did not answer: {e}{unknown}") from None
        if response.status < 300:
            return self._parsed(response)
        error = self._error(response)
        if method == "DELETE" and response.repeated and isinstance(error, NotFound):
            return {}  # an earlier try, whose response got lost, deleted it
        raise error

    def _parsed(self, response: Response) -> dict[str, Any]:
        if not response.body.strip():
            return {}
        try:
            value = json.loads(response.body)
        except (ValueError, RecursionError):
            raise self._invalid("it is not JSON; is this the address of a Paimon REST catalog?") from None
        if not isinstance(value, dict):
            raise self._invalid("it is not a JSON object")
        return value

    def _error(self, response: Response) -> BitlakeError:
        code, message = _failure(response)[0], self._message(response)
        if code in (401, 403):
            return AccessDenied(f"{message}; check the catalog option 'token', and what it allows")
        kinds = {400: InvalidRequest, 404: NotFound, 409: AlreadyExists, 501: UnsupportedFeature}
        return kinds.get(code, StorageUnavailable)(message)

    def _message(self, response: Response) -> str:
        code, message = _failure(response)
        if self.options.token:
            # A server may quote the header.  The token alone may be a word of the message, unless it is a long one.
            message = message.replace(f"Bearer {self.options.token}", "Bearer ***")
            if len(self.options.token) >= _LONG_TOKEN and self.options.token in message:
                message = ""
        request = response.headers.get("x-request-id")
        return (
            f"the catalog at {self.options.uri} answered {code}"
            + (f": {message[:_MAX_MESSAGE_CHARS]}" if message else "")
            + (f" (request {request[:80]})" if request else "")
        )

    def _invalid(self, what: str) -> StorageUnavailable:
        return StorageUnavailable(f"the catalog at {self.options.uri} sent an invalid response: {what}")


def _joined(path: tuple[str, ...]) -> str:
    for name in path:
        if name in ("", ".", ".."):  # clients and servers take such a part for another folder: DELETE would reach it
            raise InvalidRequest(f"invalid name '{name}': a REST catalog has no database, table or view of this name")
    return "/".join(quote(part, safe="") for part in path)


def _failure(response: Response) -> tuple[int, str]:
    """The code and message of a failure; a code in the body is nearer to the cause than a proxy's status."""
    try:
        error = json.loads(response.body)
        code = error.get("code")
        message = str(error.get("message") or "").strip()
    except (ValueError, AttributeError, RecursionError):
        code, message = None, response.body[: 2 * _MAX_MESSAGE_CHARS].decode("utf-8", "replace").strip()
    return (code if isinstance(code, int) and 400 <= code < 600 else response.status), " ".join(message.split())


def as_options(member: object) -> dict[str, str]:
    """A JSON object of a response as options: each value as text, without null values."""
    return {str(k): str(v) for k, v in member.items() if v is not None} if isinstance(member, dict) else {}
