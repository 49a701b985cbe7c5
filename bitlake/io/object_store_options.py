"""Options of object stores by all of their names, and the credentials of AWS profiles.

An AWS profile has keys in files, SSO, assumed roles or credential processes.  obstore itself finds keys in the
environment, web identity tokens, and the roles of containers and instances.  What AWS's own tools keep in ``~/.aws``
takes boto3 (the extra ``aws``): it is asked where options or ``AWS_PROFILE`` name a profile, or where the default
profile has credentials and nothing in the environment comes first.
"""

from __future__ import annotations

import configparser
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bitlake.errors import AccessDenied, InvalidRequest
from bitlake.io import base
from bitlake.lazy_modules import install_command
from bitlake.metadata.option_types import parse_memory

KINDS = {
    **dict.fromkeys(("s3", "s3a", "s3n"), "s3"),
    **dict.fromkeys(("gs", "gcs"), "gcs"),
    **dict.fromkeys(("az", "abfs", "abfss", "wasb", "wasbs"), "azure"),
    "memory": "memory",
}
"""The kind of store by scheme."""
_NAMES = {
    "s3": {
        "endpoint": "endpoint",
        "access-key": "access_key_id",
        "secret-key": "secret_access_key",
        "session-token": "session_token",
        "session-key": "session_token",
        "region": "region",
        "endpoint-region": "region",
        "path-style-access": "path_style",
        "connection-ssl-enabled": "ssl",
        "profile": "profile",
        "vectored-read-min-seek-size": "min_seek_size",
    },
    "gcs": {
        "auth-service-account-json-keyfile": "application_credentials",
        "storage-root-url": "base_url",
    },
    "azure": {},
}
"""Paimon's and Hadoop's names, with every separator a hyphen and no prefix."""
_OWN = {
    "s3": "access_key_id secret_access_key session_token region default_region endpoint virtual_hosted_style_request "
    "skip_signature checksum_algorithm role_arn role_session_name web_identity_token_file "
    "server_side_encryption sse_kms_key_id request_payer disable_bulk_delete imdsv1_fallback metadata_endpoint "
    "unsigned_payload",
    "gcs": "service_account service_account_key application_credentials base_url bearer_token skip_signature",
    "azure": "account_name account_key client_id client_secret tenant_id authority_host sas_key token endpoint "
    "use_emulator use_azure_cli msi_endpoint object_id msi_resource_id federated_token_file skip_signature",
    "memory": "",
}
_READS = ("max_retries", "retry_timeout", "min_seek_size")
"""Options of how this process sends requests, for stores of all kinds but memory."""
_CLIENT = "allow_http allow_invalid_certificates timeout connect_timeout read_timeout proxy_url proxy_ca_certificate"
_PREFIXES = {
    "s3": ("fs.s3a.", "fs.s3.", "s3a.", "s3.", "aws_"),
    "gcs": ("fs.gs.", "google.cloud.", "gs.", "google_"),
    "azure": ("azure_",),
    "memory": (),
}
_ENVIRONMENT = {
    "s3": {
        "AWS_ACCESS_KEY_ID": "access_key_id",
        "AWS_SECRET_ACCESS_KEY": "secret_access_key",
        "AWS_SESSION_TOKEN": "session_token",
        "AWS_REGION": "region",
        "AWS_DEFAULT_REGION": "default_region",
        "AWS_ENDPOINT_URL_S3": "endpoint",
        "AWS_ENDPOINT_URL": "endpoint",
        "AWS_ENDPOINT": "endpoint",
        "AWS_ALLOW_HTTP": "allow_http",
    },
    "gcs": {"GOOGLE_APPLICATION_CREDENTIALS": "application_credentials", "GOOGLE_SERVICE_ACCOUNT": "service_account"},
    "azure": {
        "AZURE_STORAGE_ACCOUNT_NAME": "account_name",
        "AZURE_STORAGE_ACCOUNT_KEY": "account_key",
        "AZURE_STORAGE_SAS_TOKEN": "sas_key",
        "AZURE_STORAGE_TOKEN": "token",
        "AZURE_CLIENT_ID": "client_id",
        "AZURE_CLIENT_SECRET": "client_secret",
        "AZURE_TENANT_ID": "tenant_id",
    },
    "memory": {},
}
"""Environment variables that are sent to executors, as Spark does for its own S3 access.

If several variables set one option, the first one in this order is used.
"""
_AZURE_FIRST = ("AZURE_FEDERATED_TOKEN_FILE", "IDENTITY_ENDPOINT", "MSI_ENDPOINT")
"""Set where a cluster or a service of Azure gives its programs an identity."""
_AZURE_KEY = re.compile(r"^fs\.azure\.account\.key\.(?P<account>[^.]+)\..+$")
_CREDENTIALS = {
    "s3": ("access_key_id", "secret_access_key", "session_token", "profile"),
    "gcs": ("service_account", "service_account_key", "application_credentials", "bearer_token"),
    "azure": ("account_key", "sas_key", "token", "client_id", "client_secret"),
}


@dataclass(frozen=True, slots=True, repr=False)
class StoreOptions:
    """The options of one store, by obstore's names.  Its ``repr`` shows no value, so that logs and errors cannot.

    An option may be spelt as Paimon's (``s3.access-key``), as Hadoop's (``fs.s3a.access.key``, also with
    ``spark.hadoop.`` before it), or as obstore's own (``access_key_id``, ``aws_access_key_id``).  Missing options are
    read from the environment variables that each cloud's own tools use.
    """

    kind: str
    values: tuple[tuple[str, str], ...]
    client: tuple[tuple[str, str], ...] = ()
    profile: str | None = None
    """The AWS profile that has the credentials."""
    max_retries: int = base.MAX_RETRIES
    retry_seconds: float = base.RETRY_SECONDS
    gap: int = base.GAP
    """Ranges of a file at most this many bytes apart are one request."""

    def __repr__(self) -> str:
        return f"StoreOptions({self.kind!r}, {', '.join(k for k, _ in (*self.values, *self.client))})"

    def get(self, name: str) -> str | None:
        """An option's value."""
        return dict(self.values).get(name)

    def retry(self) -> dict[str, Any]:
        """The options as obstore's ``retry_config``."""
        return {
            "max_retries": self.max_retries,
            "retry_timeout": timedelta(seconds=self.retry_seconds),
            "backoff": {
                "init_backoff": timedelta(milliseconds=100),
                "max_backoff": timedelta(seconds=10),
                "base": 2,
            },
        }


def store_options(uri: str, given: Mapping[str, str], *, lenient: Mapping[str, str] | None = None) -> StoreOptions:
    """The options for the store of ``uri``: ``given`` first, then ``lenient``, then the environment.

    ``given`` must contain known options only; of ``lenient`` (a Spark session's configuration), options that are not
    for this kind of store are ignored.  Raises :class:`InvalidRequest`, which names options and never shows their
    values.
    """
    scheme = uri.split(":", 1)[0].lower()
    kind = KINDS[scheme]
    options_of_store: dict[str, str] = {}
    for key, value in given.items():
        name = _name(kind, key)
        if name is None:
            raise InvalidRequest(
                f"unknown storage option '{key}' for {scheme}://; expected {_examples(kind)}"
                if kind != "memory"
                else f"memory:// takes no storage options; '{key}' was given"
            )
        if not isinstance(value, str):
            raise InvalidRequest(f"the storage option '{key}' must be a string, not {type(value).__name__}")
        options_of_store[name] = value
    more = [(_name(kind, key, strict=True), value) for key, value in (lenient or {}).items()]
    more += [(name, os.environ.get(variable, "")) for variable, name in _ENVIRONMENT[kind].items()]
    # Credentials belong together: a given key must not be combined with a token of the environment.
    own = any(name in options_of_store for name in _CREDENTIALS.get(kind, ()))
    for name, value in more:
        if name is not None and value and not (own and name in _CREDENTIALS.get(kind, ())):
            options_of_store.setdefault(name, value)
    return _made(kind, uri, options_of_store)


def options_for(uri: str, configuration: Mapping[str, str], given: Mapping[str, str] | None = None) -> dict[str, str]:
    """The options of a larger configuration that are for the store of ``uri``; none for other stores.

    With ``given`` only those that complete these options: none that is given, and no credentials where some are.
    """
    kind = KINDS.get(base.scheme_of(uri))
    if kind is None:
        return {}
    taken = {_name(kind, key) for key in given or ()}
    secrets = set(_CREDENTIALS.get(kind, ()))
    taken |= secrets if taken & secrets else {None}
    named = ((key, _name(kind, key, strict=True)) for key in configuration)
    return {key: configuration[key] for key, name in named if name is not None and name not in taken}


def _name(kind: str, key: str, *, strict: bool = False) -> str | None:
    """obstore's (or our) name for a key; ``strict``: only for keys with the prefix of a store."""
    text = key.removeprefix("spark.hadoop.").removeprefix("hadoop.")
    if kind == "azure":
        account = _AZURE_KEY.match(text)
        if account is not None:
            return "account_key"
    prefix = next((p for p in _PREFIXES[kind] if text.lower().startswith(p)), "")
    if strict and not prefix:
        return None
    bare = text[len(prefix) :]
    plain = bare.lower().replace(".", "-").replace("_", "-")
    known = _NAMES.get(kind, {}).get(plain)
    if known is not None:
        return known
    own = plain.replace("-", "_")
    if own in _OWN[kind].split() or (kind != "memory" and own in (*_CLIENT.split(), *_READS)):
        return own
    return None


def _made(kind: str, uri: str, found: dict[str, str]) -> StoreOptions:
    retries, seconds, gap = (found.pop(name, None) for name in _READS)
    style, ssl = found.pop("path_style", None), found.pop("ssl", None)
    if kind == "azure" and "account_name" not in found:
        host = urlsplit(uri).netloc.rpartition("@")[2]
        if "@" in urlsplit(uri).netloc:
            found["account_name"] = host.split(".")[0]
    endpoint = found.get("endpoint")
    if endpoint and "://" not in endpoint:
        endpoint = found["endpoint"] = f"{'http' if ssl == 'false' else 'https'}://{endpoint}"
    for name in ("endpoint", "metadata_endpoint", "base_url"):
        _check_address(name, found.get(name))
    if endpoint and endpoint.startswith("http://"):
        found.setdefault("allow_http", "true")
    if kind == "s3" and style is not None and style.lower() == "false":
        found["virtual_hosted_style_request"] = "true"
        bucket = urlsplit(uri).netloc
        if endpoint and not urlsplit(endpoint).netloc.startswith(f"{bucket}."):
            found["endpoint"] = endpoint.replace("://", f"://{bucket}.", 1)
    client = tuple((k, found.pop(k)) for k in _CLIENT.split() if k in found)
    profile = profile_to_use(found) if kind == "s3" else None
    found.pop("profile", None)
    if kind == "azure" and _has_azure_login(found):
        found["use_azure_cli"] = "true"
    return StoreOptions(
        kind,
        tuple(sorted(found.items())),
        client,
        profile,
        int(base.number_option("max_retries", retries, base.MAX_RETRIES)),
        base.number_option("retry_timeout", seconds, base.RETRY_SECONDS),
        _bytes("min_seek_size", gap, base.GAP),
    )


def _bytes(name: str, value: str | None, default: int) -> int:
    try:
        return default if value is None else parse_memory(value)
    except ValueError:
        raise InvalidRequest(f"the storage option '{name}' must be a size such as 4 MB, not '{value}'") from None


def _check_address(name: str, address: str | None) -> None:
    """Refuse an address that is none, or that contains credentials: errors name the server."""
    try:
        parts = urlsplit(address or "http://none")
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        valid = False
    if not valid:
        raise InvalidRequest(f"the storage option '{name}' must be an address such as https://host:9000")
    if "@" in parts.netloc or parts.query:
        raise InvalidRequest(
            f"the storage option '{name}' must not contain credentials, because errors show it; "
            "give them as options of their own"
        )


def _has_azure_login(found: Mapping[str, str]) -> bool:
    """Whether nothing gives credentials except that somebody is logged in with Azure's command line tool."""
    given = {*_CREDENTIALS["azure"], "use_emulator", "use_azure_cli", "skip_signature", "federated_token_file"}
    if given & found.keys() or "msi_endpoint" in found or any(os.environ.get(v) for v in _AZURE_FIRST):
        return False
    folder = os.environ.get("AZURE_CONFIG_DIR") or os.path.expanduser("~/.azure")
    return os.path.exists(os.path.join(folder, "azureProfile.json")) and shutil.which("az") is not None


def _examples(kind: str) -> str:
    return {
        "s3": "s3.endpoint, s3.access-key, s3.secret-key, s3.session-token, s3.region, s3.path.style.access, their "
        "fs.s3a.* twins, profile, max_retries, retry_timeout, connect_timeout, min_seek_size or obstore's names",
        "gcs": "service_account, service_account_key, application_credentials, bearer_token, max_retries, "
        "retry_timeout, min_seek_size",
        "azure": "account_name, account_key, sas_key, token, client_id, client_secret, tenant_id, endpoint, "
        "fs.azure.account.key.ACCOUNT.dfs.core.windows.net, max_retries, retry_timeout, min_seek_size",
    }[kind]


# --- AWS profiles -----------------------------------------------------------------------------------------------------

_FIRST = ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI")
"""Set where a cluster gives its programs a role, which precedes the default profile."""
_OTHER_WAYS = {"access_key_id", "skip_signature", "role_arn", "web_identity_token_file", "metadata_endpoint"}
_OF_PROFILE = {
    "aws_access_key_id",
    "sso_session",
    "sso_start_url",
    "role_arn",
    "credential_process",
    "login_session",
}
"""Settings of a profile that give it credentials."""


def profile_to_use(options: Mapping[str, str]) -> str | None:
    """The name of the profile whose credentials an S3 store takes, by obstore's options; None: obstore's own ways."""
    if "profile" in options:
        return options["profile"]
    if _OTHER_WAYS & options.keys():
        return None
    named = os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE")
    if named:
        return named
    if any(os.environ.get(v) for v in _FIRST):
        return None
    return "default" if _default_has_credentials() else None


def _default_has_credentials() -> bool:
    for variable, name in (("AWS_SHARED_CREDENTIALS_FILE", "credentials"), ("AWS_CONFIG_FILE", "config")):
        file = os.environ.get(variable) or str(Path("~/.aws", name).expanduser())
        settings = configparser.RawConfigParser()
        try:
            settings.read(file)
        except (configparser.Error, UnicodeDecodeError, OSError):
            continue  # obstore's own ways may do
        if settings.has_section("default") and _OF_PROFILE & set(settings.options("default")):
            return True
    return False


class ProfileCredentials:
    """What obstore asks for a profile's credentials, again whenever they expire."""

    def __init__(self, profile: str) -> None:
        try:
            import boto3.session  # an optional dependency
            from botocore import exceptions
            from obstore.auth.boto3 import Boto3CredentialProvider
        except ModuleNotFoundError as e:
            raise InvalidRequest(
                f"the AWS profile '{profile}' needs boto3: `{install_command('aws')}`, or give keys as options"
            ) from e
        self._profile = profile
        self._failures = (exceptions.BotoCoreError, exceptions.ClientError, AssertionError, ValueError, OSError)
        try:
            self._provider = Boto3CredentialProvider(boto3.session.Session(profile_name=profile))
        except self._failures as e:
            raise self._failed(e) from None
        self.region: str | None = self._provider.config.get("region")

    def __call__(self) -> Any:
        """The credentials as obstore takes them; raises :class:`AccessDenied` with the reason."""
        try:
            return self._provider()
        except self._failures as e:
            raise self._failed(e) from None

    def _failed(self, error: Exception) -> AccessDenied:
        """The error by its kind: texts of AWS and of credential processes may quote anything."""
        kind = type(error).__name__
        response = getattr(error, "response", None)
        if isinstance(response, dict):
            kind = str(response.get("Error", {}).get("Code", kind))
        if kind == "ProfileNotFound":
            why = "~/.aws/config and ~/.aws/credentials lack it"
        elif "SSO" in kind or "Token" in kind:
            why = f"its session has ended or never begun ({kind}); run `aws sso login --profile {self._profile}`"
        else:
            why = f"its credentials cannot be had ({kind}); try `aws sts get-caller-identity --profile {self._profile}`"
        return AccessDenied(f"AWS profile '{self._profile}': {why}")
