"""The HTTP side of a REST catalog: addresses, who asks, pages, what errors mean, and what is tried again.

Source: Paimon's ``docs/static/rest-catalog-open-api.yaml``; what it leaves open is as in Paimon's clients::

    GET /v1/config?warehouse=…   → {"defaults": {…}, "overrides": {…}}: options below and above the client's own; the
                                   option ``prefix`` begins all other paths: /v1/<prefix>/databases/…
    lists                        → {"databases": […], "nextPageToken": …}; ?pageToken=… asks for what follows
    failures                     → {"message", "resourceType", "resourceName", "code"}
    401 403 → AccessDenied   400 → InvalidRequest   404 → NotFound   409 → AlreadyExists   501 → UnsupportedFeature
    429 503 → tried again, after ``Retry-After`` if that is there            anything else → StorageUnavailable

A request that changes something is sent again only if the server cannot have seen it, or answered 429 or 503.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from bitlake.errors import (
    AccessDenied,
    AlreadyExists,
    BitlakeError,
    InvalidRequest,
    NotFound,
    StorageUnavailable,
    UnsupportedFeature,
)
from bitlake.io.http import MAX_RETRIES, RETRY_SECONDS, Answer, Broken, Unreachable, attempts, exchange

_HEADER = "header."
_TAKEN = ("token", "token.provider", "prefix")
_LONGEST_REASON = 500
_LONGEST_WAIT = 10.0
_MOST_PAGES = 100_000


@dataclass(frozen=True, slots=True, repr=False)
class RestOptions:
    """Where a catalog is and who asks.  Its text shows neither token nor headers."""

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
    """Check the options of a catalog: ``token``, ``token.provider`` (``bear``) and ``header.*``.

    Raises :class:`InvalidRequest` and :class:`UnsupportedFeature`, which show no values but a provider's name.
    """
    text = uri.strip().rstrip("/")
    if "://" not in text:
        text = f"http://{text}"
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidRequest("a REST catalog's uri is like http://host:port or https://host")
    if parts.username or parts.password or parts.query:
        raise InvalidRequest("a REST catalog's uri may hold no credentials: give the catalog option 'token'")
    if not warehouse.strip():
        raise InvalidRequest("a REST catalog takes the name of its warehouse as the path")
    wrong = [k for k in given if k not in _TAKEN and not k.startswith(_HEADER)]
    if wrong:
        raise InvalidRequest(f"'{wrong[0]}' is no option of the rest catalog; it takes token, token.provider, header.*")
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
        self._base = f"{options.uri}/v1"
        found = self._call("GET", f"config?{urlencode({'warehouse': options.warehouse}, quote_via=quote)}")
        defaults, overrides = (_texts(found.get(name)) for name in ("defaults", "overrides"))
        self.settings = {**defaults, **options.given, **overrides}
        """The catalog's options: the server's defaults, the client's, the server's overrides."""
        prefix = self.settings.get("prefix", "").strip("/")
        self._base = f"{options.uri}/v1/{prefix}" if prefix else f"{options.uri}/v1"

    def __repr__(self) -> str:
        return f"RestClient({self.options!r})"

    def get(self, *path: str) -> dict[str, Any]:
        """What is at a path, whose parts are names, not yet quoted."""
        return self._call("GET", _joined(path))

    def pages(self, member: str, *path: str) -> list[str]:
        """All names of a list, page by page."""
        out: list[str] = []
        token, seen = "", set()
        for _ in range(_MOST_PAGES):
            query = f"?{urlencode({'pageToken': token}, quote_via=quote)}" if token else ""
            found = self._call("GET", _joined(path) + query)
            names = found.get(member) or []
            if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
                raise self._odd(f"'{member}' is no list of names")
            out += names
            token = str(found.get("nextPageToken") or "")
            if not token or not names:
                return out
            if token in seen:
                break
            seen.add(token)
        raise self._odd("the same page comes again and again")

    def post(self, body: Mapping[str, Any], *path: str, repeatable: bool = True) -> dict[str, Any]:
        """Change something; what is not ``repeatable`` is never sent twice if the server may have seen it."""
        return self._call("POST", _joined(path), json.dumps(body).encode(), repeatable)

    def delete(self, *path: str) -> None:
        """Delete what is at a path; raises :class:`NotFound`."""
        self._call("DELETE", _joined(path))

    # --- one request -----------------------------------------------------------------------------------------------

    def _call(self, method: str, path: str, body: bytes | None = None, repeatable: bool = True) -> dict[str, Any]:
        options = self.options
        headers = {"Accept": "application/json", **options.headers}
        if options.token:
            headers["Authorization"] = f"Bearer {options.token}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        failed: StorageUnavailable | None = None
        unknown = False
        for _ in attempts(options.max_retries, options.retry_seconds):
            try:
                answer = exchange(method, f"{self._base}/{path}", body, headers)
            except Unreachable as e:
                failed = StorageUnavailable(f"the catalog at {options.uri} cannot be reached: {e}")
                continue
            except Broken as e:
                failed = StorageUnavailable(f"the catalog at {options.uri} did not answer: {e}")
                if method == "POST":
                    raise StorageUnavailable(f"{failed}; whether it did what it was asked to is unknown") from None
                unknown = True
                continue
            if answer.status in (429, 503):
                failed = StorageUnavailable(self._told(answer))
                if not repeatable:
                    raise failed
                unknown = True
                time.sleep(_retry_after(answer))
                continue
            if answer.status < 300:
                return self._parsed(answer)
            meaning = self._meaning(answer)
            if method == "DELETE" and unknown and isinstance(meaning, NotFound):
                return {}  # the try whose answer got lost has done it
            raise meaning
        raise failed or StorageUnavailable(f"the catalog at {options.uri} was not asked")

    def _parsed(self, answer: Answer) -> dict[str, Any]:
        if not answer.body.strip():
            return {}
        try:
            found = json.loads(answer.body)
        except (ValueError, RecursionError):
            raise self._odd("it is no JSON; is this the address of a Paimon REST catalog?") from None
        if not isinstance(found, dict):
            raise self._odd("it is no JSON object")
        return found

    def _meaning(self, answer: Answer) -> BitlakeError:
        code, told = _error(answer)[0], self._told(answer)
        if code in (401, 403):
            return AccessDenied(f"{told}; check the catalog option 'token', and what it allows")
        kinds = {400: InvalidRequest, 404: NotFound, 409: AlreadyExists, 501: UnsupportedFeature}
        return kinds.get(code, StorageUnavailable)(told)

    def _told(self, answer: Answer) -> str:
        code, message = _error(answer)
        if self.options.token:
            message = message.replace(self.options.token, "***")
        request = answer.headers.get("x-request-id")
        return (
            f"the catalog at {self.options.uri} answered {code}"
            + (f": {message[:_LONGEST_REASON]}" if message else "")
            + (f" (request {request[:80]})" if request else "")
        )

    def _odd(self, what: str) -> StorageUnavailable:
        return StorageUnavailable(f"an answer of the catalog at {self.options.uri} makes no sense: {what}")


def _joined(path: tuple[str, ...]) -> str:
    return "/".join(quote(part, safe="") for part in path)


def _error(answer: Answer) -> tuple[int, str]:
    """The code and message of a failure; a code in the body is nearer to the cause than a proxy's status."""
    try:
        found = json.loads(answer.body)
        code = found.get("code")
        message = str(found.get("message") or "").strip()
    except (ValueError, AttributeError, RecursionError):
        code, message = None, answer.body[: 2 * _LONGEST_REASON].decode("utf-8", "replace").strip()
    return (code if isinstance(code, int) and 400 <= code < 600 else answer.status), " ".join(message.split())


def _texts(found: object) -> dict[str, str]:
    return {str(k): str(v) for k, v in found.items() if v is not None} if isinstance(found, dict) else {}


def _retry_after(answer: Answer) -> float:
    """Seconds that the server wants one to wait, within reason; a date is passed over."""
    text = answer.headers.get("retry-after", "")
    return min(float(text), _LONGEST_WAIT) if text.isdigit() else 0.0
