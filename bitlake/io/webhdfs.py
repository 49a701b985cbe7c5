"""WebHDFS: the file operations of HDFS as HTTP requests to a namenode, and bytes to and from its datanodes.

::

    PUT    /webhdfs/v1/<path>?op=CREATE&overwrite=…         → 307, Location: a datanode;  PUT bytes there → 201
    GET    /webhdfs/v1/<path>?op=OPEN&offset=…&length=…     → 307, Location: a datanode;  GET there → 200 and the bytes
    GET    /webhdfs/v1/<path>?op=GETFILESTATUS              → {"FileStatus": {"type", "length", "modificationTime", …}}
    GET    /webhdfs/v1/<path>?op=LISTSTATUS                 → {"FileStatuses": {"FileStatus": [{"pathSuffix", …}, …]}}
    PUT    /webhdfs/v1/<path>?op=MKDIRS                     → {"boolean": true}
    PUT    /webhdfs/v1/<path>?op=RENAME&destination=…&renameoptions=NONE|OVERWRITE  → nothing
    DELETE /webhdfs/v1/<path>?op=DELETE&recursive=…         → {"boolean": whether it was there}

A failure is a status of 400 and above with {"RemoteException": {"exception", "message", …}}.  With ``renameoptions``
a rename answers by exceptions and never moves into a folder that has the new name; HttpFS gateways pass the option
over and answer {"boolean": …}.  Source: "WebHDFS REST API" in Hadoop's documentation.

:class:`HdfsOptions` says how to reach a cluster: one value made from Hadoop's settings and a few short names.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import re
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from bitlake.errors import (
    AccessDenied,
    AlreadyExists,
    BitlakeError,
    CorruptError,
    InvalidRequest,
    NotFound,
    StorageFull,
    StorageUnavailable,
)
from bitlake.io import http
from bitlake.io.base import MAX_RETRIES, RETRY_SECONDS, number_option

T = TypeVar("T")
REFUSED = ("AccessControlException", "SecurityException", "AuthorizationException", "InvalidToken", "SecretManager")
QUOTA = ("QuotaExceededException", "QuotaByStorageTypeExceededException")
_ELSEWHERE = ("StandbyException", "ObserverRetryOnActiveException")
LATER = ("RetriableException", "SafeModeException", "ServerTooBusy", "NoRouteToHostException", "ConnectException")
_LONGEST_REASON = 300
_REDIRECTS = (302, 303, 307)
_ERROR_BYTES = 1 << 20
_PIPE_BYTES = 1 << 20


class TryAgain(Exception):
    """A failure that may pass; ``unknown`` when the request may have been carried out all the same."""

    def __init__(self, text: str, unknown: bool) -> None:
        self.unknown = unknown
        super().__init__(text)


class WebHdfs:
    """The namenodes of one cluster.  Safe to share between threads."""

    def __init__(self, options: HdfsOptions) -> None:
        self.options = options
        self._active = 0
        self._http = http.HttpClient(options.timeout)

    # --- asking ----------------------------------------------------------------------------------------------------

    def call(self, action: str, shown: str, work: Callable[[], T]) -> T:
        """The result of ``work``, tried again as long as it raises :class:`TryAgain`: it must be safe to repeat.

        ``action`` (a verb) and ``shown`` (the path) are for the :class:`StorageUnavailable` that ends it.
        """
        options, last = self.options, ""
        for _ in http.attempts(options.max_retries, options.retry_seconds):
            try:
                return work()
            except TryAgain as e:
                last = str(e)
        raise self.gave_up(action, shown, last)

    def gave_up(self, action: str, shown: str, why: str) -> StorageUnavailable:
        """The error of an operation that was tried often enough."""
        where = " and ".join(self.options.addresses)
        return StorageUnavailable(
            f"cannot {action} {shown}: {why}; is WebHDFS of the namenode at {where} (dfs.namenode.http-address)?"
        )

    def ask(self, method: str, op: str, path: str, shown: str, **arguments: str) -> http.Response:
        """One request to a namenode, once; raises :class:`TryAgain` or what the answer means."""
        return self.checked(self._send(method, op, path, shown, arguments), op, shown)

    def fetch(self, path: str, shown: str, offset: int, length: int) -> bytes:
        """Bytes of a file from ``offset`` on, fewer only where it ends."""
        answer = self._send("GET", "OPEN", path, shown, {"offset": str(offset), "length": str(length)})
        if answer.status in _REDIRECTS:
            # What is longer than asked for is an error's text, or no datanode's answer.
            answer = self.once("GET", _location(answer), limit=max(length, _ERROR_BYTES))
        return self.checked(answer, "OPEN", shown).body

    def put(self, path: str, shown: str, data: bytes) -> None:
        """Make a file with these bytes, in which parents are made; raises :class:`AlreadyExists`.

        Not atomic: who looks sees the file before its bytes are there.
        """
        answer = self._send("PUT", "CREATE", path, shown, {"overwrite": "false"})
        if answer.status in _REDIRECTS:
            answer = self.once("PUT", _location(answer), data)
        self.checked(answer, "CREATE", shown)

    def upload(self, path: str, shown: str) -> Upload:
        """Begin a file, replacing an existing one; its bytes follow."""
        answer = self._send("PUT", "CREATE", path, shown, {"overwrite": "true"})
        if answer.status not in _REDIRECTS:
            self.checked(answer, "CREATE", shown)
            raise StorageUnavailable(f"cannot write {shown}: the namenode did not say to which datanode")
        return Upload(self, _location(answer), shown)

    def _send(self, method: str, op: str, path: str, shown: str, arguments: dict[str, str]) -> http.Response:
        who = {"delegation": self.options.token} if self.options.token else {"user.name": self.options.user}
        query = urlencode({"op": op, **{k: v for k, v in who.items() if v}, **arguments}, quote_via=quote)
        try:
            place = quote(path or "/", safe="/")
        except UnicodeEncodeError:
            raise NotFound(f"no file can have this name: {shown!r}") from None
        number = self._active
        address = self.options.addresses[number % len(self.options.addresses)]
        try:
            answer = self.once(method, f"{address}/webhdfs/v1{place}?{query}")
        except TryAgain:
            self._active = number + 1
            raise
        if answer.status >= 400 and _remote(answer)[0] in _ELSEWHERE:
            self._active = number + 1
        return answer

    def once(self, method: str, url: str, body: Any = None, limit: int = http.MAX_RESPONSE_BYTES) -> http.Response:
        """One request, whatever its answer means; raises :class:`TryAgain` for a lost connection."""
        headers = {} if body is None else {"Content-Type": "application/octet-stream"}
        try:
            return self._http.send(method, url, body, headers, limit)
        except http.TooLarge as e:
            raise StorageUnavailable(f"cannot use an answer of the cluster: {e}; is this WebHDFS?") from None
        except http.Unreachable as e:
            raise TryAgain(str(e), unknown=False) from None
        except http.Broken as e:
            raise TryAgain(str(e), unknown=True) from None

    def checked(self, answer: http.Response, op: str, shown: str) -> http.Response:
        """The answer, unless it is a failure; raises :class:`TryAgain` or what the failure means."""
        if answer.status < 300:
            return answer
        kind, message = _remote(answer)
        if kind in _ELSEWHERE or kind in LATER or (answer.status >= 500 and not kind) or answer.status == 429:
            raise TryAgain(self._message(kind, message, answer.status), unknown=answer.status >= 500)
        raise self._error(kind, message, answer, op, shown)

    def _error(self, kind: str, message: str, answer: http.Response, op: str, shown: str) -> BitlakeError:
        description = self._message(kind, message, answer.status)
        if kind == "FileAlreadyExistsException":
            return AlreadyExists(f"{shown} already exists")
        if kind in ("FileNotFoundException", "ParentNotDirectoryException", "PathIsNotDirectoryException"):
            return NotFound(f"no such file: {shown}")
        if answer.status == 401 and "negotiate" in answer.headers.get("www-authenticate", "").lower():
            return AccessDenied(
                f"cannot {op.lower()} {shown}: the cluster wants Kerberos; get a delegation token with "
                "`hdfs fetchdt` and give it as storage option 'delegation-token'"
            )
        if kind.startswith(REFUSED) or answer.status == 401 or (answer.status == 403 and not kind):
            who = "the delegation token" if self.options.token else f"user '{self.options.user}'"
            return AccessDenied(f"cannot {op.lower()} {shown}: the cluster refused {who} ({description})")
        if kind in ("IllegalArgumentException", "InvalidPathException", "HadoopIllegalArgumentException"):
            return NotFound(f"no file can have this name: {shown!r} ({description})")
        if op == "OPEN" and "out of the range" in message:
            return CorruptError("the file ends before the bytes that were asked for", None, shown)
        kind_of = StorageFull if kind.endswith(QUOTA) else StorageUnavailable
        return kind_of(f"cannot {op.lower()} {shown}: {description}")

    def _message(self, kind: str, message: str, status: int) -> str:
        text = f"{kind}: {message}" if kind else f"the answer was {status}"
        return text.replace(self.options.token, "***") if self.options.token else text


class Upload:
    """A file on its way to a datanode: a thread sends, in chunks, what is written into a pipe."""

    def __init__(self, client: WebHdfs, location: str, shown: str) -> None:
        self._client = client
        self._shown = shown
        self._answer: Future[http.Response] = Future()
        source, sink = os.pipe()
        self._sink = open(sink, "wb", _PIPE_BYTES)  # noqa: SIM115 - closed by close()
        threading.Thread(target=self._send, args=(location, source), name="bitlake-hdfs-upload", daemon=True).start()

    def _send(self, location: str, source: int) -> None:
        # The pipe's end closes with the request, so that the writer notices when the reader has gone.
        try:
            with open(source, "rb", 0) as body:
                answer = self._client.once("PUT", location, body)
        except BaseException as e:  # noqa: BLE001 - raised where the answer is asked for
            self._answer.set_exception(e)
        else:
            self._answer.set_result(answer)

    def write(self, data: memoryview) -> None:
        """Send bytes; raises :class:`StorageUnavailable`."""
        try:
            self._sink.write(data)
        except OSError:
            self.close()
            raise StorageUnavailable(f"cannot write {self._shown}: the datanode ended the request") from None

    def close(self) -> None:
        """Send the end and wait until the datanodes have it all; raises :class:`StorageUnavailable`."""
        with contextlib.suppress(OSError):  # of which the answer says more
            self._sink.close()
        try:
            self._client.checked(self._answer.result(), "write", self._shown)
        except TryAgain as e:
            raise StorageUnavailable(f"cannot write {self._shown}: {e}") from None

    def abort(self) -> None:
        """Give up: what was sent stays under the file's name until it is deleted.

        The file is ended, for a datanode that is just left makes it later than a namenode deletes it.
        """
        with contextlib.suppress(BitlakeError):
            self.close()


def _location(answer: http.Response) -> str:
    """Where a redirect leads.  It may hold a token, so no text shows it."""
    place = answer.headers.get("location", "")
    if not re.match(r"https?://[^/]+/", place):
        raise StorageUnavailable("the namenode's answer names no datanode; is this the address of WebHDFS?")
    return place


def _remote(answer: http.Response) -> tuple[str, str]:
    """The exception's bare name and the first line of its message; two empty texts for another kind of answer."""
    try:
        exception = json.loads(answer.body)["RemoteException"]
        lines = str(exception.get("message") or "").strip().splitlines()
        kind, message = str(exception["exception"]), lines[0] if lines else ""
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return "", ""
    # A namenode wraps the message of another layer.
    inner = re.match(r"^(?:[\w.]+\.)?(StandbyException|SafeModeException|InvalidToken)\b", message)
    return (inner.group(1) if inner else kind), message[:_LONGEST_REASON]


def member(answer: http.Response, *path: str) -> Any:
    """A member of a JSON answer; raises :class:`StorageUnavailable` when it is not there."""
    try:
        body = json.loads(answer.body)
        for name in path:
            body = body[name]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise StorageUnavailable(f"the namenode's answer has no {'.'.join(path)}; is this WebHDFS?") from None
    return body


# --- options of a cluster ---------------------------------------------------------------------------------------------

SCHEMES = ("hdfs", "webhdfs", "swebhdfs")
HTTP_PORT, HTTPS_PORT = 9870, 9871
"""Where a namenode of Hadoop 3 answers HTTP and HTTPS unless its configuration says otherwise."""
_ADDRESS = re.compile(r"^dfs\.namenode\.(https?)-address(?:\.(?P<service>[^.]+)(?:\.(?P<node>[^.]+))?)?$")
_NAMES = {
    "http-address": "http-address",
    "https-address": "https-address",
    "hadoop.user.name": "user",
    "user": "user",
    "delegation-token": "delegation-token",
    "max-retries": "max-retries",
    "retry-timeout": "retry-timeout",
    "timeout": "timeout",
}
_HADOOP = ("dfs.", "fs.", "hadoop.", "ipc.")
_HOST = re.compile(r"^[A-Za-z0-9._-]+(:\d{1,5})?$|^\[[0-9a-fA-F:]+\](:\d{1,5})?$")
_EXAMPLES = "dfs.namenode.http-address, dfs.namenode.https-address, hadoop.user.name, delegation-token, max_retries, "


@dataclass(frozen=True, slots=True, repr=False)
class HdfsOptions:
    """A cluster: its name in paths, the addresses of its namenodes, and the user.  Its ``repr`` shows no token.

    Options have Hadoop's names (``dfs.namenode.http-address``, ``dfs.namenode.https-address``, also of one name service
    and namenode; ``hadoop.user.name``), also with ``spark.hadoop.`` or ``hdfs.`` before them; or are one of
    ``delegation-token``, ``max_retries``, ``retry_timeout`` and ``timeout``.  ``http-address``, ``https-address`` and
    ``user`` are short names.  Without a user, ``HADOOP_USER_NAME`` or the login name is taken.
    """

    authority: str
    addresses: tuple[str, ...]
    """``http://host:port`` or ``https://host:port``, of which any may be the active one."""
    user: str | None
    token: str | None = None
    max_retries: int = MAX_RETRIES
    retry_seconds: float = RETRY_SECONDS
    timeout: float = http.TIMEOUT

    def __repr__(self) -> str:
        return f"HdfsOptions({self.authority!r}, {', '.join(self.addresses)}, user={self.user!r})"


def hadoop_settings(given: Mapping[str, str], lenient: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Hadoop's own settings among the options, for a client that reads them, and the remaining options given."""
    settings: dict[str, str] = {}
    rest: dict[str, str] = {}
    for options, out in ((lenient, dict[str, str]()), (given, rest)):
        for key, value in options.items():
            name = key.removeprefix("spark.hadoop.")
            hadoop = name.startswith(_HADOOP) and name.replace("_", "-") not in _NAMES
            (settings if hadoop else out)[name if hadoop else key] = value
    return settings, rest


def session_options(configuration: Mapping[str, str]) -> dict[str, str]:
    """The options of a Spark session's settings that both clients of HDFS know."""
    found = {}
    for key, value in configuration.items():
        name = key.removeprefix("spark.hadoop.")
        if name != key and (_ADDRESS.match(name) or name.replace("_", "-") in _NAMES):
            found[key] = value
    return found


def names_webhdfs(given: Mapping[str, str], lenient: Mapping[str, str]) -> bool:
    """Whether an option is WebHDFS's own: an HTTP address, a user to name, a delegation token."""
    for key in (*given, *(k for k in lenient if k.startswith("spark.hadoop."))):
        text = key.removeprefix("spark.hadoop.").removeprefix("hdfs.")
        name = _NAMES.get(text.replace("_", "-"))
        if _ADDRESS.match(text) or name in ("http-address", "https-address", "user", "delegation-token"):
            return True
    return False


def hdfs_options(
    uri: str, given: Mapping[str, str], lenient: Mapping[str, str] | None = None, *, addressed: bool = True
) -> HdfsOptions:
    """The options for the cluster of ``uri``; ``given`` first, then ``lenient`` (a Spark session's settings).

    ``addressed``: whether the namenodes' HTTP addresses are needed.

    ``hdfs://host:8020`` names the port of Hadoop's own protocol: without an address in the options, WebHDFS is looked
    for at the same host's port 9870.  Raises :class:`InvalidRequest`, which shows no values.
    """
    parts = urlsplit(uri)
    scheme, authority = parts.scheme.lower(), parts.netloc
    if "@" in authority:
        raise InvalidRequest("an HDFS path may name no user, or it would be shown wherever it is: give the option user")
    options_found: dict[str, str] = {}
    addresses: dict[str, list[str]] = {}
    for strict, options in ((True, given), (False, lenient or {})):
        nodes: dict[str, list[str]] = {}
        for key, value in options.items():
            text = key.removeprefix("spark.hadoop.").removeprefix("hdfs.")
            address, name = _ADDRESS.match(text), _NAMES.get(text.replace("_", "-"))
            if not strict and not key.startswith("spark.hadoop."):
                continue
            if address is not None:
                if address["service"] in (None, authority):
                    nodes.setdefault(address[1], []).extend(value.split(","))
            elif name in ("http-address", "https-address"):
                nodes.setdefault(name.removesuffix("-address"), []).extend(value.split(","))
            elif name is not None:
                options_found.setdefault(name, value)
            elif strict:
                raise InvalidRequest(f"unknown storage option '{key}' for {scheme}://; take {_EXAMPLES}timeout")
        addresses = addresses or nodes
    user = options_found.get("user") or os.environ.get("HADOOP_USER_NAME") or _login()
    return HdfsOptions(
        authority,
        _addresses(scheme, authority, addresses) if addressed else (),
        None if options_found.get("delegation-token") else user,
        options_found.get("delegation-token"),
        int(number_option("max_retries", options_found.get("max-retries"), MAX_RETRIES)),
        number_option("retry_timeout", options_found.get("retry-timeout"), RETRY_SECONDS),
        number_option("timeout", options_found.get("timeout"), http.TIMEOUT),
    )


def _addresses(scheme: str, authority: str, configured: Mapping[str, list[str]]) -> tuple[str, ...]:
    """Base URLs of namenodes.  An address 0.0.0.0, as servers' configurations have it, is the path's host."""
    host = authority.rpartition(":")[0] if re.search(r":\d+$", authority) else authority
    if scheme != "hdfs" and authority:
        secure = scheme == "swebhdfs"
        port = "" if host != authority else f":{HTTPS_PORT if secure else HTTP_PORT}"
        addresses = [(secure, authority + port)]
    elif configured:
        kind = "http" if configured.get("http") else "https"
        addresses = [(kind == "https", a.strip()) for a in configured[kind] if a.strip()]
        addresses = [(secure, re.sub(r"^0\.0\.0\.0(?=:|$)", host or "localhost", a)) for secure, a in addresses]
    elif authority:
        addresses = [(False, f"{host}:{HTTP_PORT}")]
    else:
        addresses = []
    if not addresses:
        raise InvalidRequest(
            f"{scheme}:/// names no namenode: write {scheme}://host:port/folder, or give the storage option "
            "dfs.namenode.http-address"
        )
    for _, address in addresses:
        if not _HOST.match(address):
            raise InvalidRequest(f"invalid namenode address '{address}'; expected a form such as host:{HTTP_PORT}")
    return tuple(f"{'https' if secure else 'http'}://{address}" for secure, address in addresses)


def _login() -> str | None:
    """Whom the operating system takes this process for, as Hadoop's own clients ask it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None
