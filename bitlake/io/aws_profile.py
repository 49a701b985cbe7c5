"""Credentials of an AWS profile: keys in files, SSO, assumed roles and credential processes, through obstore and boto3.

obstore itself finds keys in the environment, web identity tokens, and the roles of containers and instances.  What
AWS's own tools keep in ``~/.aws`` takes boto3 (the extra ``aws``): it is asked where options or ``AWS_PROFILE`` name a
profile, or where the default profile has credentials and nothing in the environment comes first.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bitlake.errors import AccessDenied, InvalidRequest
from bitlake.lazy_modules import install_command

_FIRST = ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI")
"""Set where a cluster gives its programs a role, which precedes the default profile."""
_OTHER_WAYS = {"access_key_id", "skip_signature", "role_arn", "web_identity_token_file", "metadata_endpoint"}
_CREDENTIALS = {"aws_access_key_id", "sso_session", "sso_start_url", "role_arn", "credential_process", "login_session"}
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
        if settings.has_section("default") and _CREDENTIALS & set(settings.options("default")):
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
