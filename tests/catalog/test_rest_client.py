from __future__ import annotations

import json
import pickle
import socket
from pathlib import Path

import pytest
import rest_server
from catalog.conftest import OPTIONS, first, lake_of

from bitlake.catalog.catalog import Identifier
from bitlake.catalog.rest_client import RestClient, rest_options
from bitlake.errors import (
    AccessDenied,
    AlreadyExists,
    InvalidRequest,
    NotFound,
    StorageUnavailable,
    UnsupportedFeature,
)
from bitlake.io.http import Response
from bitlake.lake import Lake, connect


def test_the_servers_settings_and_headers_count(server: rest_server.Server) -> None:
    lake = lake_of(server, **{"header.X-Mine": "yes"})
    assert lake._catalog._client.settings["x"] == "default"  # type: ignore[attr-defined]
    lake.databases()
    assert all(h["X-Mine"] == "yes" and h["Authorization"] == f"Bearer {rest_server.TOKEN}" for h in server.headers)


def test_the_token_is_in_no_text(lake: Lake, server: rest_server.Server) -> None:
    texts = [repr(lake), repr(lake._catalog), repr(lake._catalog.store), repr(rest_options(server.uri, "w", OPTIONS))]
    for status, kind in ((400, InvalidRequest), (401, AccessDenied), (403, AccessDenied), (404, NotFound)):
        server.plan = lambda method, name, number, status=status: status
        with pytest.raises(kind) as e:
            lake.databases()
        texts += [str(e.value), repr(e.value.__cause__)]
    for status, kind in ((409, AlreadyExists), (500, StorageUnavailable), (501, UnsupportedFeature)):
        server.plan = lambda method, name, number, status=status: status
        with pytest.raises(kind, match=f"answered {status}: it failed, Bearer \\*\\*\\*") as e:
            lake.databases()
        texts.append(str(e.value))
    assert not [t for t in texts if rest_server.TOKEN in t]
    assert rest_server.TOKEN.encode() not in pickle.dumps(lake._catalog.store), "executors need no token"
    server.plan = lambda method, name, number: rest_server.PASS
    with pytest.raises(AccessDenied, match="who are you"):
        lake_of(server, token="wrong")


def test_a_token_that_is_a_word_does_not_spoil_messages() -> None:
    body = json.dumps({"message": "no table 'test': Bearer test is not allowed"}).encode()
    client, long = object.__new__(RestClient), object.__new__(RestClient)  # which ask no server
    client.options = rest_options("http://test:1", "w", {"token": "test"})
    text = str(client._error(Response(404, {}, body)))
    assert text.startswith("the catalog at http://test:1 answered 404: no table 'test': Bearer *** is not allowed")
    long.options = rest_options("http://test:1", "w", {"token": "a-token-of-some-length"})
    body = json.dumps({"message": "a-token-of-some-length?"}).encode()
    assert "some-length" not in str(long._error(Response(404, {}, body)))


def test_which_requests_are_sent_again(lake: Lake, server: rest_server.Server) -> None:
    lake.create_database("a")
    for what in (503, 429, rest_server.DROP, rest_server.LOSE_ANSWER, (503, {"Retry-After": "0"})):
        start = len(server.seen)
        server.plan = lambda method, name, number, what=what, start=start: (
            what if number < start + 2 else rest_server.PASS
        )
        assert lake.databases() == ["a"]
        assert len(server.seen) == start + 3
    server.plan = first("a", rest_server.LOSE_ANSWER)
    lake.drop_database("a")
    assert lake.databases() == []
    server.plan = first("databases", rest_server.LOSE_ANSWER)
    with pytest.raises(StorageUnavailable, match="is unknown"):
        lake.create_database("b")
    assert lake.databases() == ["b"]


def test_dropping_a_missing_table_after_a_429(lake: Lake, server: rest_server.Server) -> None:
    """Bug: the 429 counted as a try that may have deleted the table, so that the drop succeeded."""
    lake.create_database("a")
    server.plan = first("t", 429)
    with pytest.raises(NotFound, match="t"):
        lake._catalog.drop_table(Identifier("a", "t"))
    server.plan = first("t", 503)  # which a gateway may send for a request that it has passed on
    lake._catalog.drop_table(Identifier("a", "t"))


def test_a_prefix_is_quoted(server: rest_server.Server) -> None:
    server.settings["defaults"]["prefix"] = "lake #1 50%"
    lake = lake_of(server)
    server.plan = lambda method, name, number: 501
    with pytest.raises(UnsupportedFeature):
        lake.databases()
    assert server.seen[-1] == ("GET", "lake%20%231%2050%25/databases")


@pytest.mark.parametrize(
    ("uri", "options", "match"),
    [
        (None, {}, "takes a uri"),
        ("http://me:secret@h", {}, "may hold no credentials"),
        ("http://me@h", {}, "may hold no credentials"),
        ("ftp://h", {}, "like http://host:port"),
        ("http://", {}, "like http://host:port"),
        ("https:///path", {}, "like http://host:port"),
        ("http://h:0", {}, "like http://host:port"),
        ("http://h /x", {}, "like http://host:port"),
        ("http://h/x?token=secret", {}, r"must not contain '\?' or '#'"),
        ("http://h/?", {}, r"must not contain '\?' or '#'"),
        ("http://h/x#secret", {}, r"must not contain '\?' or '#'"),
        ("http://[::1", {}, "like http://host:port"),
        ("http://h:port", {}, "like http://host:port"),
        ("http://h/\udcff", {}, "bytes that are not UTF-8"),
        ("http://h", {"token.provider": "dlf"}, "'dlf' is not supported"),
        ("http://h", {"token.provider": "bear"}, "takes the catalog option 'token'"),
        ("http://h", {"jdbc.user": "x"}, "unknown rest catalog option 'jdbc.user'"),
    ],
)
def test_invalid_options(uri: str | None, options: dict[str, str], match: str) -> None:
    with pytest.raises((InvalidRequest, UnsupportedFeature), match=match) as e:
        connect("w", catalog="rest", uri=uri, catalog_options=options)
    assert "secret" not in str(e.value)


@pytest.mark.parametrize(("host", "base"), [("127.0.0.1", ""), ("127.0.0.1", "/gate/one"), ("::1", ""), ("::1", "/a")])
@pytest.mark.parametrize("end", ["", "/", "//"])
def test_addresses(tmp_path: Path, host: str, base: str, end: str) -> None:
    if ":" in host:
        with socket.socket(socket.AF_INET6) as probe:
            try:
                probe.bind((host, 0))
            except OSError:
                pytest.skip("this machine has no IPv6")
    with rest_server.running(tmp_path, host, base) as server:
        server.uri += end
        lake = lake_of(server)
        lake.create_database("d")
        assert lake.databases() == ["d"]
        assert all(path == "config" or path.startswith(rest_server.PREFIX) for _, path in server.seen)


def test_invalid_responses(lake: Lake, server: rest_server.Server) -> None:
    server.settings = ["no object"]  # type: ignore[assignment]
    with pytest.raises(StorageUnavailable, match="not a JSON object"):
        lake_of(server)
    server.settings = {"defaults": {"prefix": rest_server.PREFIX}}
    with pytest.raises(NotFound, match="no such warehouse"):
        connect("other", catalog="rest", uri=server.uri, catalog_options=OPTIONS)
