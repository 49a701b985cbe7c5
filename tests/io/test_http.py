"""The HTTP client of REST catalogs and WebHDFS: what is sent twice, what never is, and whom it trusts."""

from __future__ import annotations

import datetime
import ipaddress
import multiprocessing
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from faults import noted_sleep

from bitlake.io import http
from bitlake.io.http import Broken, HttpClient, TooLarge, Unreachable

OK, LOSE, CUT, DROP = 200, "act, then close the socket", "half of the body", "close the socket at once"


class Server:
    """A server that keeps connections open, acts on what it receives, and then does the next thing of ``plan``."""

    def __init__(self) -> None:
        self.plan: list[Any] = []
        self.acted: list[tuple[str, str]] = []
        self.connections: set[Any] = set()
        self.body = b"0123456789"
        self.address = ""


@contextmanager
def serving(wrap: Callable[[Any], Any] | None = None) -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            state.connections.add(self.client_address)
            todo = state.plan.pop(0) if state.plan else OK
            self.close_connection = self.close_connection or isinstance(todo, str)
            if todo == DROP:
                return
            state.acted.append((self.command, self.path))
            if todo == LOSE:
                return
            status, extra = todo if isinstance(todo, tuple) else (OK if todo == CUT else todo, {})
            self.send_response(status)
            for name, value in extra.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(state.body)))
            self.end_headers()
            self.wfile.write(state.body[:5] if todo == CUT else state.body)

        do_GET = do_POST = do_PUT = do_DELETE = answer

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if wrap is not None:
        server.socket = wrap(server.socket)
    state.address = f"127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as made:
        yield made


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What retries wait, without waiting."""
    out: list[float] = []
    monkeypatch.setattr("time.sleep", noted_sleep(out))
    return out


def test_reads_share_connections_and_changes_take_new_ones(server: Server) -> None:
    client, url = HttpClient(), f"http://{server.address}/x"
    for _ in range(3):
        assert client.request("GET", url).body == server.body
    assert len(server.connections) == 1
    for _ in range(3):
        assert client.request("POST", url, b"{}").status == 200
    assert len(server.connections) == 4


@pytest.mark.parametrize("what", [LOSE, DROP, CUT, 429, 503, (429, {"Retry-After": "1"}), (503, {"Retry-After": "?"})])
@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_what_may_be_sent_twice_is(server: Server, waits: list[float], method: str, what: Any) -> None:
    server.plan = [what, what, what]
    response = HttpClient().request(method, f"http://{server.address}/x")
    refused = what == 429 or (isinstance(what, tuple) and what[0] == 429)  # the server did not act on it
    assert (response.status, response.body, response.repeated) == (200, server.body, not refused)
    assert len(waits) >= 2


@pytest.mark.parametrize("what", [LOSE, CUT])
@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_change_whose_response_is_lost_is_not_sent_again(server: Server, method: str, what: str) -> None:
    server.plan = [what]
    with pytest.raises(Broken, match="dropped|broke off"):
        HttpClient().request(method, f"http://{server.address}/create", b"{}")
    assert server.acted == [(method, "/create")]


def test_a_change_is_sent_again_only_where_the_server_did_not_act(server: Server, waits: list[float]) -> None:
    url = f"http://{server.address}/create"
    server.plan = [429, (429, {"Retry-After": "2"})]
    assert HttpClient().request("POST", url, b"{}").status == 200
    assert len(server.acted) == 3 and 2 in waits
    for status in (500, 502, 503, 504):
        server.plan, before = [(status, {"Retry-After": "1"})], len(server.acted)
        assert HttpClient().request("POST", url, b"{}").status == status
        assert len(server.acted) == before + 1
    tries: list[float] = []
    waits.clear()
    with pytest.raises(Unreachable, match="refused"):
        HttpClient().request("POST", "http://127.0.0.1:1/create", b"{}")
    assert len(waits) == http.MAX_RETRIES - 1 and not tries, "the first retry comes at once"


def test_retries_end_and_no_server_makes_one_wait_for_hours(server: Server, waits: list[float]) -> None:
    url = f"http://{server.address}/x"
    server.plan = [(503, {"Retry-After": "86400"})] * 99
    assert HttpClient(max_retries=3).request("GET", url).status == 503
    assert len(server.acted) == 4 and waits == [10, 10, 10]
    server.acted.clear()
    assert HttpClient(retry_seconds=0).request("GET", url).status == 503
    assert len(server.acted) == 1
    server.plan = [DROP] * 99
    with pytest.raises(Broken, match="connection was dropped"):
        HttpClient(max_retries=0).request("GET", url)


def test_one_request_is_sent_once_whatever_it_is(server: Server) -> None:
    server.plan = [LOSE]
    with pytest.raises(Broken):
        HttpClient().send("GET", f"http://{server.address}/x")
    assert len(server.acted) == 1


def test_a_silent_server_is_given_up(server: Server) -> None:
    held = threading.Event()
    with serving(lambda s: s) as slow:
        slow.plan = [_Held(held)]
        try:
            with pytest.raises(Broken, match="no response in time"):
                HttpClient(timeout=0.2).send("GET", f"http://{slow.address}/x")
        finally:
            held.set()


class _Held(tuple[int, dict[str, str]]):
    """A plan that waits before the answer."""

    def __new__(cls, held: threading.Event) -> _Held:
        made = super().__new__(cls, (200, {}))
        made.held = held  # type: ignore[attr-defined]
        return made

    def __iter__(self) -> Iterator[Any]:
        self.held.wait(10)  # type: ignore[attr-defined]
        return super().__iter__()


def test_responses_have_a_limit(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"http://{server.address}/x"
    assert HttpClient().send("GET", url, limit=10).body == server.body
    with pytest.raises(TooLarge, match="more than 9 bytes"):
        HttpClient().send("GET", url, limit=9)
    monkeypatch.setattr(http, "MAX_RESPONSE_BYTES", 9)
    server.acted.clear()
    with pytest.raises(TooLarge):
        HttpClient().request("GET", url)
    assert len(server.acted) == 1, "it would be as large the next time"


def test_redirects_are_not_followed(server: Server) -> None:
    server.plan = [(307, {"Location": "/elsewhere"}), (302, {"Location": "http://127.0.0.1:1/"})]
    assert HttpClient().request("GET", f"http://{server.address}/a").headers["location"] == "/elsewhere"
    assert HttpClient().request("POST", f"http://{server.address}/b").status == 302
    assert server.acted == [("GET", "/a"), ("POST", "/b")]


def test_errors_name_no_part_of_the_address(server: Server) -> None:
    server.plan = [DROP] * 9
    for url in (f"http://{server.address}/p?delegation=secret", "http://127.0.0.1:1/?s=secret", "http://secret:x/"):
        with pytest.raises((Broken, Unreachable)) as e:
            HttpClient(max_retries=0).request("GET", url)
        assert "secret" not in f"{e.value}{e.value.__cause__}"


def test_proxies_of_the_environment(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://{server.address}")
    monkeypatch.setenv("no_proxy", "inside.example")
    assert HttpClient(proxies=True).request("GET", "http://catalog.example/v1/x").status == 200
    assert server.acted == [("GET", "http://catalog.example/v1/x")]
    for client, url in (
        (HttpClient(proxies=True, max_retries=0), "http://inside.example:1/"),
        (HttpClient(max_retries=0), "http://127.0.0.1:1/"),
    ):
        with pytest.raises(Unreachable):
            client.request("GET", url)
    assert len(server.acted) == 1
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with pytest.raises(Unreachable):
        HttpClient(proxies=True, max_retries=0).request("POST", f"http://{server.address}/x")


def _certificate(folder: Path, address: str) -> tuple[Path, Path]:
    """A certificate signed by itself, and its key."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "catalog")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), False)
        .add_extension(x509.BasicConstraints(True, None), True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        .sign(key, hashes.SHA256())
    )
    pem, private = folder / "cert.pem", folder / "key.pem"
    pem.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    kinds = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    private.write_bytes(key.private_bytes(*kinds))
    return pem, private


def test_certificates_are_verified(tmp_path: Path, waits: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    for address, trusted in (("127.0.0.1", True), ("127.0.0.2", False)):
        pem, key = _certificate(tmp_path, address)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem, key)
        monkeypatch.delenv("SSL_CERT_FILE", raising=False)
        with serving(lambda s, context=context: context.wrap_socket(s, server_side=True)) as server:
            for method in ("GET", "POST"):
                with pytest.raises(Unreachable, match="certificate is not trusted"):
                    HttpClient().request(method, f"https://{server.address}/x")
            assert not waits, "it would not be trusted the next time either"
            monkeypatch.setenv("SSL_CERT_FILE", str(pem))
            if trusted:
                assert HttpClient().request("GET", f"https://{server.address}/x").body == server.body
            else:
                with pytest.raises(Unreachable, match="not trusted: .*127.0.0.1"):
                    HttpClient().request("GET", f"https://{server.address}/x")


def test_a_change_whose_response_is_lost_by_tls_is_not_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A TLS stream that ends without a goodbye is another kind of error in urllib3."""
    pem, key = _certificate(tmp_path, "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, key)
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    with serving(lambda s: context.wrap_socket(s, server_side=True)) as server:
        server.plan = [LOSE]
        with pytest.raises(Broken):
            HttpClient().request("POST", f"https://{server.address}/x", b"{}")
        assert len(server.acted) == 1
        server.plan = [LOSE]
        assert HttpClient().request("GET", f"https://{server.address}/x").status == 200


def test_a_fork_has_its_own_connections(server: Server) -> None:
    client, url = HttpClient(), f"http://{server.address}/x"
    client.request("GET", url)
    context = multiprocessing.get_context("fork")
    child = context.Process(target=client.request, args=("GET", url))
    child.start()
    child.join(20)
    assert child.exitcode == 0
    assert client.request("GET", url).status == 200
    assert len(server.connections) == 2
