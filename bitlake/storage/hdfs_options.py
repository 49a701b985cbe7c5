"""How to reach an HDFS cluster: Hadoop's settings and a few short names become one value that shows no secret."""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from bitlake.errors import InvalidRequest
from bitlake.storage.base import number_option
from bitlake.storage.http import MAX_RETRIES, RETRY_SECONDS, TIMEOUT

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
_HOST = re.compile(r"^[A-Za-z0-9._-]+(:\d{1,5})?$|^\[[0-9a-fA-F:]+\](:\d{1,5})?$")
_EXAMPLES = "dfs.namenode.http-address, dfs.namenode.https-address, hadoop.user.name, delegation-token, max_retries, "


@dataclass(frozen=True, slots=True, repr=False)
class HdfsOptions:
    """A cluster: its name in paths, the addresses of its namenodes, and who asks.  Its text shows no token."""

    authority: str
    addresses: tuple[str, ...]
    """``http://host:port`` or ``https://host:port``, of which any may be the active one."""
    user: str | None
    token: str | None = None
    max_retries: int = MAX_RETRIES
    retry_seconds: float = RETRY_SECONDS
    timeout: float = TIMEOUT

    def __repr__(self) -> str:
        return f"HdfsOptions({self.authority!r}, {', '.join(self.addresses)}, user={self.user!r})"


def hdfs_options(uri: str, given: Mapping[str, str], lenient: Mapping[str, str] | None = None) -> HdfsOptions:
    """The options for the cluster of ``uri``; ``given`` first, then ``lenient`` (a Spark session's settings).

    ``hdfs://host:8020`` names the port of Hadoop's own protocol: without an address in the options, WebHDFS is looked
    for at the same host's port 9870.  Raises :class:`InvalidRequest`, which shows no values.
    """
    parts = urlsplit(uri)
    scheme, authority = parts.scheme.lower(), parts.netloc
    if "@" in authority:
        raise InvalidRequest("an HDFS path may name no user, or it would be shown wherever it is: give the option user")
    found: dict[str, str] = {}
    addresses: dict[str, list[str]] = {}
    for strict, options in ((True, given), (False, lenient or {})):
        here: dict[str, list[str]] = {}
        for key, value in options.items():
            text = key.removeprefix("spark.hadoop.").removeprefix("hdfs.")
            address, name = _ADDRESS.match(text), _NAMES.get(text.replace("_", "-"))
            if not strict and not key.startswith("spark.hadoop."):
                continue
            if address is not None:
                if address["service"] in (None, authority):
                    here.setdefault(address[1], []).extend(value.split(","))
            elif name in ("http-address", "https-address"):
                here.setdefault(name.removesuffix("-address"), []).extend(value.split(","))
            elif name is not None:
                found.setdefault(name, value)
            elif strict:
                raise InvalidRequest(f"'{key}' is no storage option for {scheme}://: take {_EXAMPLES}timeout")
        addresses = addresses or here
    user = found.get("user") or os.environ.get("HADOOP_USER_NAME") or _login()
    return HdfsOptions(
        authority,
        _addresses(scheme, authority, addresses),
        None if found.get("delegation-token") else user,
        found.get("delegation-token"),
        int(number_option("max_retries", found.get("max-retries"), MAX_RETRIES)),
        number_option("retry_timeout", found.get("retry-timeout"), RETRY_SECONDS),
        number_option("timeout", found.get("timeout"), TIMEOUT),
    )


def _addresses(scheme: str, authority: str, configured: Mapping[str, list[str]]) -> tuple[str, ...]:
    """Base URLs of namenodes.  An address 0.0.0.0, as servers' configurations have it, is the path's host."""
    host = authority.rpartition(":")[0] if re.search(r":\d+$", authority) else authority
    if scheme != "hdfs" and authority:
        secure = scheme == "swebhdfs"
        port = "" if host != authority else f":{HTTPS_PORT if secure else HTTP_PORT}"
        found = [(secure, authority + port)]
    elif configured:
        kind = "http" if configured.get("http") else "https"
        found = [(kind == "https", a.strip()) for a in configured[kind] if a.strip()]
        found = [(secure, re.sub(r"^0\.0\.0\.0(?=:|$)", host or "localhost", a)) for secure, a in found]
    elif authority:
        found = [(False, f"{host}:{HTTP_PORT}")]
    else:
        raise InvalidRequest(
            f"{scheme}:/// names no namenode: write {scheme}://host:port/folder, or give the storage option "
            "dfs.namenode.http-address"
        )
    for _, address in found:
        if not _HOST.match(address):
            raise InvalidRequest(f"'{address}' is no address of a namenode: it is like host:{HTTP_PORT}")
    return tuple(f"{'https' if secure else 'http'}://{address}" for secure, address in found)


def _login() -> str | None:
    """Whom the operating system takes this process for, as Hadoop's own clients ask it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None
