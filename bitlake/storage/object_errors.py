"""What an object store's failures mean, in bitlake's errors and without a secret.

obstore's messages may quote a whole answer of the server, and with it a key id or a signed address.  So none of them
is shown as it is, and none is kept as the cause: what matters of it is said anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from obstore import exceptions as ob

from bitlake.errors import AccessDenied, BitlakeError, NotFound, StorageFull, StorageUnavailable
from bitlake.formatting import counted
from bitlake.storage.object_options import StoreOptions

FAILURES = (ob.BaseError, OSError, ValueError)
"""Everything obstore raises."""

_CODE = re.compile(r"<Code>([A-Za-z0-9]+)</Code>")
_STATUS = re.compile(r"status code: (\d{3} [A-Za-z -]+)")
_TOLD = re.compile(r"<Message>([^<]{1,200})</Message>")
_REFUSED = (
    "AccessDenied",
    "AllAccessDisabled",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "InvalidToken",
    "AccountProblem",
)
_FULL = ("QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded")
_BROKEN = re.compile(r"HttpError \{\s*kind: (\w+)")
_SERVER = re.compile(r"https?://[^/\s?,]+")
_CAUSE = re.compile(r"""(?:message|error): "([^"]{1,200})\"""")
_WRITES = ("create", "write", "delete", "move")


def translated(error: Exception, action: str, path: str, bucket: str, options: StoreOptions) -> BitlakeError:
    """bitlake's error for one of obstore's; ``action`` is a verb, ``path`` the whole path."""
    text = str(error)
    found = _CODE.search(text)
    code = "" if found is None else found.group(1)
    if lacks_bucket(error):
        return StorageUnavailable(
            f"cannot {action} {path}: there is no bucket '{bucket}'; create it or correct the path"
        )
    if isinstance(error, FileNotFoundError):
        return NotFound(f"no such file: {path}")
    if isinstance(error, ob.InvalidPathError) or (isinstance(error, ValueError) and "ath" in text):
        return NotFound(f"no file can have this name: {path!r}")
    if "169.254.169.254" in text or "MissingSecretAccessKey" in text or "MissingAccessKeyId" in text:
        return AccessDenied(
            f"cannot {action} {path}: no credentials were found; give them as storage_options, in the environment, or "
            "in the Spark session's configuration"
        )
    if (
        isinstance(error, ob.PermissionDeniedError | ob.UnauthenticatedError | PermissionError)
        or code in _REFUSED
        or re.search(r"status code: 40[13]", text)
    ):
        why = "" if not code else f" ({code})"
        may = "write to" if action.split()[0] in _WRITES else "read"
        return AccessDenied(
            f"cannot {action} {path}: the store refused{why}; check the credentials, and that they may {may} '{bucket}'"
        )
    kind = StorageFull if code in _FULL or "status code: 507" in text else StorageUnavailable
    return kind(f"cannot {action} {path}: {options.scrubbed(_reason(text, code))}")


def lacks_bucket(error: Exception) -> bool:
    """Whether the store says that there is no such bucket."""
    text = str(error)
    return "NoSuchBucket" in text or "ContainerNotFound" in text or "The specified bucket does not exist" in text


def is_short(error: Exception) -> bool:
    """Whether a range was asked for that begins beyond the end of the file."""
    text = str(error)
    return "416" in text or "InvalidRange" in text or "out of range" in text.lower() or "range" in text.lower()


def _reason(text: str, code: str) -> str:
    status = _STATUS.search(text)
    retries = re.search(r"after (\d+) retries", text)
    tries = "" if retries is None else f", after {counted(int(retries.group(1)), 'retry')}"
    if status is not None:
        told = _TOLD.search(text)
        return (
            f"the store answered {status.group(1).strip()}"
            + (f" {code}" if code else "")
            + (f" ({told.group(1)})" if told is not None else "")
            + tries
        )
    broken = _BROKEN.search(text)
    if broken is not None:
        place = _SERVER.search(text)
        server = "the store" if place is None else place.group(0)
        causes = _CAUSE.findall(text)
        cause = f" ({causes[-1]})" if causes else ""
        what = {
            "Connect": f"{server} cannot be reached{cause}",
            "Timeout": f"{server} did not answer in time",
        }.get(broken.group(1), f"the connection to {server} broke{cause}")
        return f"{what}{tries}; check the endpoint and the network"
    first = text.strip().splitlines()[0] if text.strip() else "it failed without a reason"
    # An address may be signed: what follows its question mark goes.
    return re.sub(r"https?://\S+", lambda m: m.group(0).split("?")[0], first)[:300]


@contextmanager
def mapped(action: str, path: str, bucket: str, options: StoreOptions) -> Iterator[None]:
    """Raise bitlake's errors for obstore's in the block; ``from None``, since the cause may quote secrets."""
    try:
        yield
    except FAILURES as e:
        raise translated(e, action, path, bucket, options) from None
