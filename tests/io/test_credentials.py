"""Credentials that the clouds' own tools keep are found, and no credential is in any message."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import credential_server
import pytest
from botocore import credentials, tokens
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given, settings
from hypothesis import strategies as st
from long import exhaustive, long

from bitlake.errors import AccessDenied, BitlakeError, InvalidRequest, StorageUnavailable
from bitlake.io import open_store
from bitlake.io.object_store import ObjectStore
from bitlake.io.object_store_options import profile_to_use, store_options
from bitlake.lazy_modules import install_command

PATH = "s3://lake/x"


@pytest.fixture(scope="module")
def server() -> Iterator[credential_server.Server]:
    with credential_server.running() as made:
        yield made


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder, and an environment without credentials."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "MSI_", "IDENTITY_")) and name != "AWS_CA_BUNDLE":
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".aws").mkdir()
    return tmp_path


def asker(server: credential_server.Server, options: Mapping[str, str] | None = None) -> str:
    """The key that a read with these options is signed with."""
    server.askers.clear()
    given = {"endpoint": server.endpoint, "max_retries": "0", **(options or {})}
    assert open_store(PATH, given).read(f"{PATH}/f") == credential_server.DATA
    return server.askers[0].partition("Credential=")[2].partition("/")[0]


def profile(home: Path, text: str, file: str = "config") -> None:
    (home / ".aws" / file).write_text(text)


KEYS = "aws_access_key_id = {}\naws_secret_access_key = s\n"


def test_keys_in_the_credentials_file(home: Path, server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    profile(home, f"[default]\n{KEYS.format('DEFAULT')}[other]\n{KEYS.format('OTHER')}", "credentials")
    profile(home, "[profile other]\nregion = eu-central-1\n")
    assert asker(server) == "DEFAULT"
    assert asker(server, {"profile": "other"}) == asker(server, {"s3.profile": "other"}) == "OTHER"
    assert "/eu-central-1/s3/" in server.askers[0]
    monkeypatch.setenv("AWS_PROFILE", "other")
    assert asker(server) == "OTHER"
    assert asker(server, {"access_key_id": "GIVEN", "secret_access_key": "s"}) == "GIVEN"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ENVIRONMENT")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    assert asker(server) == "ENVIRONMENT"
    assert asker(server, {"profile": "other"}) == "OTHER"


def test_roles_and_processes_of_a_profile(home: Path, server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", server.endpoint)
    process = json.dumps({"Version": 1, "AccessKeyId": "PROCESS", "SecretAccessKey": "s"})
    (home / "keys.json").write_text(process)
    profile(
        home,
        f"[profile process]\ncredential_process = cat {home}/keys.json\n"
        "[profile assumed]\nregion = us-east-1\nrole_arn = arn:aws:iam::1:role/r\nsource_profile = process\n",
    )
    assert asker(server, {"profile": "process"}) == "PROCESS"
    assert asker(server, {"profile": "assumed"}) == "ASSUMED"


def test_single_sign_on(home: Path, server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_SSO", server.endpoint)
    profile(
        home,
        "[default]\nsso_session = work\nsso_account_id = 1\nsso_role_name = reader\n"
        "[sso-session work]\nsso_region = us-east-1\nsso_start_url = https://work.example\n",
    )
    # botocore reads HOME when it is imported.
    for source in (credentials.SSOProvider, tokens.SSOTokenProvider):
        monkeypatch.setattr(source, "_SSO_TOKEN_CACHE_DIR", str(home / "sso"))
    with pytest.raises(
        AccessDenied, match=r"cannot read .*: AWS profile 'default': .*run `aws sso login --profile def"
    ):
        asker(server)
    cache = home / "sso"
    cache.mkdir()
    token = {"startUrl": "https://work.example", "accessToken": "x", "expiresAt": "2099-01-01T00:00:00Z"}
    (cache / (hashlib.sha1(b"work").hexdigest() + ".json")).write_text(json.dumps({**token, "region": "us-east-1"}))
    assert asker(server) == "SSO"


def test_web_identity_containers_and_instances(home: Path, server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asker(server, {"metadata_endpoint": server.endpoint}) == "INSTANCE"
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{server.endpoint}/container")
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(home / "token"))
    (home / "token").write_text("identity")
    assert asker(server) == "CONTAINER"
    profile(home, f"[default]\n{KEYS.format('DEFAULT')}", "credentials")
    assert asker(server) == "CONTAINER", "before the default profile, as in AWS's own tools"
    monkeypatch.delenv("AWS_CONTAINER_CREDENTIALS_FULL_URI")
    assert asker(server) == "DEFAULT"
    identity = f"role_arn = arn:aws:iam::1:role/r\nweb_identity_token_file = {home}/token\n"
    profile(home, f"[profile identity]\nregion = us-east-1\n{identity}")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", server.endpoint)
    assert asker(server, {"profile": "identity"}) == "WEBIDENTITY"
    # obstore itself exchanges a token of the environment, by HTTPS only.
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(home / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/r")
    assert profile_to_use({}) is None
    with pytest.raises(StorageUnavailable):
        asker(server)


def test_executors_get_the_credentials_of_a_profile(home: Path, server: Any) -> None:
    profile(home, f"[default]\nregion = eu-west-1\n{KEYS.format('DEFAULT')}", "credentials")
    packed = pickle.dumps(open_store(PATH, {"endpoint": server.endpoint}))
    (home / ".aws" / "credentials").unlink()
    server.askers.clear()
    assert pickle.loads(packed).read(f"{PATH}/f") == credential_server.DATA
    assert "Credential=DEFAULT/" in server.askers[0] and "/eu-west-1/" in server.askers[0]


def test_a_default_profile_without_credentials_changes_nothing(home: Path) -> None:
    profile(home, "[default]\nregion = eu-central-1\n")
    assert profile_to_use({}) is None
    profile(home, "not a file of settings")
    assert profile_to_use({}) is None
    profile(home, f"[default]\n{KEYS.format('DEFAULT')}", "credentials")
    assert profile_to_use({}) == "default" and profile_to_use({"skip_signature": "true"}) is None


def test_a_profile_that_cannot_be_used(home: Path, server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AccessDenied, match="AWS profile 'gone': ~/.aws/config and ~/.aws/credentials lack it"):
        asker(server, {"profile": "gone"})
    profile(home, "[profile process]\ncredential_process = sh -c 'echo hidden-text >&2; exit 1'\n")
    with pytest.raises(AccessDenied, match=r"cannot be had \(CredentialRetrievalError\); try `aws sts") as e:
        asker(server, {"profile": "process"})
    assert "hidden-text" not in str(e.value)
    monkeypatch.setitem(__import__("sys").modules, "boto3", None)
    monkeypatch.setitem(__import__("sys").modules, "boto3.session", None)
    with pytest.raises(InvalidRequest, match=re.escape(f"'process' needs boto3: `{install_command('aws')}`")):
        asker(server, {"profile": "process"})


def test_google_and_azure_defaults(home: Path, server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    adc = home / ".config" / "gcloud"
    adc.mkdir(parents=True)
    pem = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    account = {"type": "service_account", "private_key": pem.decode(), "private_key_id": "i", "client_email": "me@x"}
    account["disable_oauth"] = True  # type: ignore[assignment]
    (adc / "application_default_credentials.json").write_text(json.dumps(account))
    google = {"base_url": server.endpoint, "allow_http": "true", "max_retries": "0"}
    assert open_store("gs://lake/x", google).read("gs://lake/x/f") == credential_server.DATA
    (home / "bin").mkdir()
    (home / "bin" / "az").write_text(
        '#!/bin/sh\necho \'{"accessToken": "LOGIN", "expiresOn": "2099-01-01 00:00:00.000000", '
        '"subscription": "s", "tenant": "t", "tokenType": "Bearer"}\'\n'
    )
    (home / "bin" / "az").chmod(0o755)
    (home / ".azure").mkdir()
    (home / ".azure" / "azureProfile.json").write_text("{}")
    monkeypatch.setenv("PATH", f"{home / 'bin'}:{os.environ['PATH']}")
    options = {"endpoint": server.endpoint, "account_name": "acc", "max_retries": "0"}
    server.askers.clear()
    open_store("az://lake/x", options).read("az://lake/x/f")
    monkeypatch.setenv("IDENTITY_ENDPOINT", f"{server.endpoint}/msi")
    monkeypatch.setenv("IDENTITY_HEADER", "h")
    open_store("az://lake/x", options).read("az://lake/x/f")
    assert server.askers == ["Bearer LOGIN", "Bearer MSI"]


def test_the_page_about_s3(home: Path, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "s3.md").read_text()
    for name, value in (("ENDPOINT_URL", s3_endpoint), ("ACCESS_KEY_ID", "k"), ("SECRET_ACCESS_KEY", "s")):
        monkeypatch.setenv(f"AWS_{name}", value)
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        exec(block.replace("my-bucket", "lake").replace("http://localhost:9000", s3_endpoint), names)
    assert names["lake"].table("orders").count("status = 'NEW'") == 2


# --- messages ---------------------------------------------------------------------------------------------------------


def failure(work: Callable[[], object]) -> BitlakeError:
    with pytest.raises(BitlakeError) as e:
        work()
    assert e.value.__cause__ is None and (e.value.__suppress_context__ or e.value.__context__ is None)
    return e.value


def test_short_secrets_do_not_spoil_messages() -> None:
    keys = {"access_key_id": "test", "secret_access_key": "test", "endpoint": "http://localhost.localstack.test:9"}
    text = str(failure(lambda: open_store("s3://test/x", {**keys, "max_retries": "0"}).read("s3://test/x/test")))
    assert "cannot read s3://test/x/test: http://localhost.localstack.test:9 cannot be reached" in text


SECRETS = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/=%&:@ ", min_size=12, max_size=40)
PLACES = {
    "s3": ["secret_access_key", "session_token", "endpoint", "virtual_hosted_style_request", "allow_http", "timeout"],
    "gs": ["service_account_key", "bearer_token", "skip_signature", "base_url"],
    "az": ["account_key", "sas_key", "token", "client_secret", "endpoint", "use_emulator", "connect_timeout"],
}


@given(SECRETS, st.sampled_from([(s, n) for s, names in PLACES.items() for n in names]), st.booleans())
@settings(max_examples=150, deadline=None)
def test_no_option_s_value_is_in_a_message(secret: str, place: tuple[str, str], in_address: bool) -> None:
    """A secret in any option, even one where it does not belong, or in an address."""
    scheme, name = place
    value = f"http://user:{secret.strip('/')}@127.0.0.1:9" if in_address else secret
    given = {"max_retries": "0", name: value, **({"account_name": "acc"} if scheme == "az" else {})}
    if scheme == "s3":
        given = {"access_key_id": "key", "secret_access_key": "s", "region": "r", **given}
    for text in _texts(scheme, given):
        assert secret not in text and secret.strip() not in text


def _texts(scheme: str, options: dict[str, str]) -> list[str]:
    try:
        found = store_options(f"{scheme}://lake/x", options)
        return [repr(found), repr(ObjectStore(f"{scheme}://lake/x", options))]
    except BitlakeError as e:
        return [str(e), repr(e), str(e.__cause__)]


@pytest.mark.parametrize("examples", [8, exhaustive(20), long(60)])
def test_what_a_server_repeats_is_in_no_message(server: Any, examples: int) -> None:
    """A proxy or a store that quotes the request, with its key."""

    @settings(max_examples=examples, deadline=None)
    @given(SECRETS, st.sampled_from([400, 404, 411, 500, 503, 507]))
    def run(secret: str, status: int) -> None:
        is_not_repeated(server, secret, status)

    run()


def is_not_repeated(server: Any, secret: str, status: int) -> None:
    quoted = secret.replace("&", "&amp;")
    body = f"<Error><Code>Odd</Code><Message>Authorization: {quoted}</Message></Error>{quoted}"
    server.answer = status, body
    try:
        options = {"endpoint": server.endpoint, "max_retries": "0", "access_key_id": "k", "secret_access_key": secret}
        store = open_store(PATH, options)
        for work in (lambda: store.read(f"{PATH}/f"), lambda: store.create(f"{PATH}/f", b""), lambda: store.list(PATH)):
            assert secret.strip() not in str(failure(work))
    finally:
        server.answer = None
