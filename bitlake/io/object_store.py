"""Object stores (S3 and its compatibles, GCS, Azure, this process's memory) through obstore.

Differences from a file system:

* folders do not exist: names contain slashes, and ``list`` shows their prefixes as folders.  So that a database without
  tables is visible, :meth:`ObjectStore.make_dirs` creates an empty object ``.folder``;
* objects cannot be renamed: :meth:`ObjectStore.rename` copies, then deletes.  Writers write files to their final place
  instead;
* an object appears as a whole when its upload ends.  *Conditional* creation (``If-None-Match: *``) is the atomic step
  that a commit needs.  Some servers refuse it, and older ones ignore the header and overwrite.  So the first creation
  in a bucket of a server that is not AWS's is preceded by a trial, and such servers are refused;
* a response may get lost, and a proxy may send a request twice.  Reads, replacements and deletions are retried.  A
  conditional creation must not count an object of its own first attempt as another writer's: each call of
  :meth:`ObjectStore.create` stores an id in the object's metadata and, where the name is taken, compares the ids.

Keys are the text of the path, not decoded: names of partition folders may contain ``%3A``.

Errors: obstore's messages may quote a whole response of the server, with a key id or a signed address.  So they are
neither shown nor kept as the cause.  bitlake's errors are built from parts that contain no secret: the path, names of
options, the endpoint (which must not have a password), a status, a code, the names of obstore's own errors, and an
error of the operating system.
"""

from __future__ import annotations

import builtins
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import astuple, replace
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

import obstore
from obstore import exceptions as ob
from obstore import store as stores

from bitlake._clock import new_uuid
from bitlake.errors import (
    AccessDenied,
    BitlakeError,
    InvalidRequest,
    NotFound,
    StorageFull,
    StorageUnavailable,
    UnsupportedFeature,
)
from bitlake.formatting import counted
from bitlake.io import base
from bitlake.io.object_store_options import KINDS, ProfileCredentials, StoreOptions, store_options
from bitlake.io.remote_files import PART_BYTES, PARTS_AT_A_TIME, UploadFile, ranged_input

FOLDER_MARK = ".folder"
"""The empty object that makes a folder without files visible; hidden, as all names that begin with a dot."""
_SERVER_OPTIONS = ("endpoint", "base_url", "account_name", "region")
"""The options that say which server a bucket is on."""
_HOST = re.compile(r"[A-Za-z0-9._@:$-]+")
"""A bucket, or Azure's container and host."""
_COPIES = 16
"""Concurrent server-side copies."""
_PAGE = 1000
"""Objects of one response to a listing: S3's limit."""
_DELETES = 1000
"""Keys in one bulk request: S3's limit."""

_CREATION = "creation"
"""The user metadata that names the call of :meth:`ObjectStore.create` which created an object."""
_TRIAL_NAME = ".if-none-match-trial.tmp"
"""The name of the trial object, in the folder of the first file that a process creates in a bucket.

The object is deleted after the trial or, if its process is killed or must not delete, with orphan files.
"""
_TRIAL_CREATIONS = 3
"""Creations in one trial, the last of which must fail: another process's trial may delete the object in between."""
_conditional_buckets: set[tuple[str, str]] = set()
"""The endpoint and bucket of servers that passed the trial.

It describes servers, so all stores of the process share it: a REST catalog opens one for each table and token.
"""

T = TypeVar("T")
_memories: dict[str, Any] = {}
"""memory://NAME/… by name: one store for the whole process, as a disk is."""
_memory_lock = threading.Lock()
_started_in: int | None = None
"""The process that started obstore's threads.  One forked from it lacks them, and would wait for a reply forever."""


class ObjectStore(base.Store):
    """The :class:`~bitlake.io.base.Store` of one kind of object store; all buckets share the options."""

    def __init__(self, uri: str, options: Mapping[str, str] | None = None, lenient: Mapping[str, str] | None = None):
        self._check(uri)
        self._options = store_options(uri, options or {}, lenient=lenient)
        self._clients: dict[tuple[str, bool], Any] = {}
        self._lock = threading.Lock()
        self._profile: ProfileCredentials | None = None
        self._client(uri.split("://", 1)[1].split("/", 1)[0], True)  # detects wrong options immediately

    def __repr__(self) -> str:
        return f"ObjectStore({self._options!r})"

    @property
    def identity(self) -> tuple[object, ...]:
        """See :attr:`Store.identity`."""
        return astuple(self._options)

    @property
    def location(self) -> tuple[object, ...]:
        """See :attr:`Store.location`: a bucket's name is known to one server, or to one cloud of a region."""
        return (self._options.kind, *(self._options.get(name) for name in _SERVER_OPTIONS))

    def __getstate__(self) -> StoreOptions:
        if self._options.kind == "memory":
            raise InvalidRequest(
                "memory:// exists in this process only, and Spark's executors cannot read it; "
                "connect to a folder or a bucket to run SQL on executors"
            )
        if self._profile is None:
            return self._options
        # Executors have no profiles: they get what the profile's credentials are now.
        keys = self._profile()
        names = {"access_key_id": "access_key_id", "secret_access_key": "secret_access_key", "token": "session_token"}
        found = dict(self._options.values) | {n: keys[k] for k, n in names.items() if keys.get(k)}
        if self._profile.region is not None:
            found.setdefault("region", self._profile.region)
        return replace(self._options, values=tuple(sorted(found.items())), profile=None)

    def __setstate__(self, state: StoreOptions) -> None:
        self._options = state
        self._clients = {}
        self._lock = threading.Lock()
        self._profile = None

    # --- reading ---------------------------------------------------------------------------------------------------

    def read(self, path: str, limit: int = base.WHOLE_FILE_BYTES) -> bytes:
        """The whole object."""
        return self.read_tagged(path, limit)[0]

    def read_tagged(self, path: str, limit: int = base.WHOLE_FILE_BYTES) -> tuple[bytes, str | None]:
        """The whole object and its ETag."""
        client, key = self._at(path)
        with self._mapped("read", path):
            response = obstore.get(client, key)
            base.check_whole(path, int(response.meta["size"]), limit)
            return response.bytes().to_bytes(), _etag(response.meta)

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        """Several ranges, by ten concurrent requests; ranges close together share a request."""
        base.check_ranges(path, ranges)
        full = [r for r in ranges if r[1]]
        if not full:
            size = self.size(path)
            base.check_ends(path, ranges, size)
            return [b""] * len(ranges)
        client, key = self._at(path)
        with self._mapped("read", path):
            try:
                starts, lengths = [o for o, _ in full], [n for _, n in full]
                found = obstore.get_ranges(client, key, starts=starts, lengths=lengths, coalesce=self._options.gap)
            except FAILURES as e:
                if is_short(e):
                    base.check_ends(path, ranges, self.size(path))
                raise
        parts = [part.to_bytes() for part in found]
        if any(len(part) != length for part, (_, length) in zip(parts, full)):
            base.check_ends(path, ranges, self.size(path))
            raise StorageUnavailable(f"cannot read {path}: the store returned fewer bytes than requested; try again")
        rest = iter(parts)
        return [next(rest) if length else b"" for _, length in ranges]

    def read_part(self, path: str, offset: int, length: int) -> tuple[bytes, int]:
        """The bytes that the object has, and its size, which the response to a range contains."""
        client, key = self._at(path)
        with self._mapped("read", path):
            try:
                response = obstore.get(client, key, options={"range": (offset, offset + max(1, length))})
                return response.bytes().to_bytes()[:length], int(response.meta["size"])
            except FAILURES as e:
                if not is_short(e):
                    raise
        return b"", self.size(path)  # the range begins at the end or later

    def size(self, path: str) -> int:
        """The object's size in bytes."""
        client, key = self._at(path)
        with self._mapped("stat", path):
            return int(obstore.head(client, key)["size"])

    def dir_exists(self, path: str) -> bool:
        """Whether any object's name begins with this folder's."""
        client, key = self._at(path)
        return self._repeated(
            "list", path, lambda: any(len(chunk) for chunk in obstore.list(client, prefix=key or None, chunk_size=1))
        )

    def list(self, directory: str) -> builtins.list[base.FileInfo]:
        """The entries of a folder, sorted by name; empty when it is missing."""
        client, key = self._at(directory)
        listing = self._repeated("list", directory, lambda: obstore.list_with_delimiter(client, key or None))
        skip = len(key) + 1 if key else 0
        folders = [base.FileInfo(name[skip:], 0, True, 0) for name in listing["common_prefixes"]]
        out = [*folders, *(_info(entry, skip) for entry in listing["objects"])]
        # Some servers list an object, or a prefix, on two pages.  Hadoop creates an object with the folder's name and a
        # slash.
        return [f for _, f in sorted({(f.name, f.is_dir): f for f in out if f.name}.items())]

    def list_page(self, directory: str) -> builtins.list[base.FileInfo] | None:
        """The files of a folder, without folders in it; None if there are more than a page, or without ETags."""
        client, key = self._at(directory)
        entries: Sequence[Mapping[str, Any]] = self._repeated(
            "list", directory, lambda: next(iter(obstore.list(client, prefix=key, chunk_size=_PAGE)), ())
        )
        found = [_info(entry, len(key) + 1) for entry in entries]
        if len(found) >= _PAGE or any(f.etag is None for f in found):
            return None
        return [f for f in found if f.name and "/" not in f.name]

    def list_below(
        self, directory: str, names: Sequence[str]
    ) -> builtins.list[tuple[str, builtins.list[base.FileInfo]]] | None:
        """The files below these folders: all keys from the first folder's to the last one's.

        Azure lists from the beginning of a prefix only.
        """
        if self._options.kind == "azure":
            return None
        client, key = self._at(directory)
        root = f"{key}/" if key else ""
        starts = sorted(f"{root}{name}/".encode() for name in names)
        if not starts:
            return []
        wanted = set(names)

        def listed() -> builtins.list[tuple[str, builtins.list[base.FileInfo]]]:
            folders: dict[str, builtins.list[base.FileInfo]] = {}
            for chunk in obstore.list(client, prefix=key or None, offset=starts[0].decode(), chunk_size=_PAGE):
                for entry in chunk:
                    path = entry["path"][len(root) :]
                    if path.partition("/")[0] in wanted and "/" in path:
                        folder = path.rpartition("/")[0]
                        info = _info(entry, len(root) + len(folder) + 1)
                        folders.setdefault(f"{directory}/{folder}", []).append(info)
                last = chunk[-1]["path"].encode() if len(chunk) else b""
                if last > starts[-1] and not last.startswith(starts[-1]):
                    break
            return [*folders.items()]

        return self._repeated("list", directory, listed)

    def open_input(self, path: str, size: int | None = None) -> Any:
        """An Arrow file that reads ranges."""
        return ranged_input(self.read_range, path, self.size(path) if size is None else size)

    # --- writing ---------------------------------------------------------------------------------------------------

    def create(self, path: str, data: bytes) -> bool:
        """Create the object if it is absent, atomically.

        Raises :class:`StorageUnavailable` if the outcome is unknown, :class:`AccessDenied` and
        :class:`StorageFull` only if certainly nothing was created.
        """
        self._check_conditional_writes(path)
        return self._create(path, data)

    def _create(self, path: str, data: bytes) -> bool:
        client, key = self._at(path, retries=False)
        creation = new_uuid()
        options = self._options
        unknown = False
        started = time.monotonic()
        for attempt in range(options.max_retries + 1):
            try:
                obstore.put(client, key, data, mode="create", use_multipart=False, attributes={_CREATION: creation})
                return True
            except ob.AlreadyExistsError:
                return self._was_created_by(creation, path, data if unknown else None)
            except FAILURES as e:
                failed = translated(e, "create", path, _bucket(path), options)
                if not unknown and isinstance(failed, AccessDenied | InvalidRequest | StorageFull):
                    raise failed from None
                if isinstance(failed, NotFound) or lacks_bucket(e):  # so no object can exist
                    raise failed from None
                # A refusal after an unknown outcome does not decide it.
                unknown = True
                if isinstance(failed, AccessDenied | StorageFull):
                    failed = StorageUnavailable(str(failed))
            if not self._wait(attempt, started):
                break
        raise failed

    def _wait(self, attempt: int, started: float) -> bool:
        """Pause before another attempt; False, without a pause, if there should be none."""
        options = self._options
        pause = min(10.0, 0.1 * 2**attempt) * random.uniform(0.5, 1.0)
        if attempt == options.max_retries or time.monotonic() + pause - started > options.retry_seconds:
            return False
        time.sleep(pause)
        return True

    def _repeated(self, action: str, path: str, request: Callable[[], T]) -> T:
        """Return what a listing or a deletion returns; repeat it if the connection broke.

        obstore does not: it repeats a listing only up to the first byte of the response, and no deletion of several
        objects, since that is a POST.
        """
        started, attempt = time.monotonic(), 0
        while True:
            with self._mapped(action, path):
                try:
                    return request()
                except FAILURES as e:
                    if not _is_broken(e) or not self._wait(attempt, started):
                        raise
            attempt += 1

    def _was_created_by(self, creation: str, path: str, data: bytes | None) -> bool:
        """Whether an existing object has the id ``creation``; without any id, whether it contains ``data``."""
        client, key = self._at(path)
        try:
            with self._mapped("read", path):
                response = obstore.get(client, key)
                actual = response.attributes.get(_CREATION)
                return actual == creation if actual is not None else response.bytes().to_bytes() == data
        except NotFound:  # deleted meanwhile
            return False
        except AccessDenied as e:  # the object may have been created
            raise StorageUnavailable(str(e)) from e

    def _check_conditional_writes(self, path: str) -> None:
        """Raise :class:`AccessDenied` if the server overwrites objects that are to be created only if absent."""
        endpoint = self._options.get("endpoint")
        if self._options.kind != "s3" or not endpoint or _is_aws(endpoint):
            return
        place = (endpoint, _bucket(path))
        if place in _conditional_buckets:
            return
        trial = f"{path.rpartition('/')[0]}/{_TRIAL_NAME}"
        created = False
        try:
            for _ in range(_TRIAL_CREATIONS):
                if not self._create(trial, b""):
                    break
                created = True
            else:
                raise _no_conditions(path, self._options)
        finally:
            if created:
                with suppress(BitlakeError):
                    self.delete(trial)
        _conditional_buckets.add(place)

    def write(self, path: str, data: bytes) -> None:
        """Write or replace the object."""
        client, key = self._at(path)
        with self._mapped("write", path):
            obstore.put(client, key, data)

    def open_output(self, path: str) -> Any:
        """Open a file whose parts are uploaded as they fill; closing it creates the object."""
        client, key = self._at(path)
        with self._mapped("write", path):
            writer = obstore.open_writer(client, key, buffer_size=PART_BYTES, max_concurrency=PARTS_AT_A_TIME)
        return UploadFile(writer, lambda: self._mapped("write", path))

    def delete(self, path: str) -> None:
        """Delete an object, if it exists."""
        self.delete_all([path])

    def delete_all(self, paths: Sequence[str]) -> None:
        """Delete objects, if they exist, a thousand per request."""
        by_client: dict[int, tuple[Any, builtins.list[str], str]] = {}
        for path in paths:
            client, key = self._at(path)
            by_client.setdefault(id(client), (client, [], path))[1].append(key)
        for client, keys, path in by_client.values():
            self._delete(client, keys, path)

    def _delete(self, client: Any, keys: Sequence[str], path: str) -> None:
        for start in range(0, len(keys), _DELETES):
            part = builtins.list(keys[start : start + _DELETES])
            try:
                self._repeated("delete", path, partial(obstore.delete, client, part))
            except NotFound:
                # Stores that fail for a missing key may have stopped there: delete one by one.
                for key in part if len(part) > 1 else ():
                    self._delete(client, [key], path)

    def delete_dir(self, path: str) -> None:
        """Delete all objects whose names begin with this folder's."""
        client, key = self._at(path)
        if not key:
            raise InvalidRequest(f"'{path}' is a whole bucket; delete it with the store's own tools")
        self._delete(client, self._keys(client, key, path), path)

    def make_dirs(self, path: str) -> None:
        """Make a folder visible, by an empty object in it."""
        if not self.dir_exists(path):
            self.write(f"{path}/{FOLDER_MARK}", b"")

    def copy_dir(self, source: str, target: str) -> None:
        """Copy all objects whose names begin with this folder's, within the store; the ``schema`` folder last."""
        first, last = self._keys_in_order(source)
        client, key = self._at(source)
        other, to = self._at(target)
        if other is not client:
            raise InvalidRequest(f"cannot move {source} to {target}: they are in different buckets")
        with self._mapped("move", source), ThreadPoolExecutor(_COPIES, "bitlake-copies") as pool:
            for part in (first, last):
                for _ in pool.map(lambda k: obstore.copy(client, k, to + k[len(key) :]), part):
                    pass

    def rename(self, source: str, target: str) -> None:
        """Copy an object, or all of a folder, within the store, then delete the source.  Not one atomic step.

        The ``schema`` folder of a table, without which it is not a table, is copied last and deleted first, so that
        neither name ever shows a table with half of its files.
        """
        client, key = self._at(source)
        other, to = self._at(target)
        if other is client and self.exists(source):
            with self._mapped("move", source):
                obstore.copy(client, key, to)
                obstore.delete(client, key)
            return
        self.copy_dir(source, target)
        for part in reversed(self._keys_in_order(source)):
            self._delete(client, part, source)

    def _keys(self, client: Any, prefix: str, folder: str) -> builtins.list[str]:
        """All keys below a folder's."""
        return self._repeated(
            "list",
            folder,
            lambda: [entry["path"] for chunk in obstore.list(client, prefix=prefix) for entry in chunk],
        )

    def _keys_in_order(self, folder: str) -> tuple[builtins.list[str], builtins.list[str]]:
        """The keys of a folder: those outside its ``schema`` folder, and those in it."""
        client, key = self._at(folder)
        keys = self._keys(client, key, folder)
        if not keys:
            raise NotFound(f"no such file: {folder}")
        schemas = [k for k in keys if k.startswith(f"{key}/schema/")]
        return [k for k in keys if not k.startswith(f"{key}/schema/")], schemas

    # --- clients ---------------------------------------------------------------------------------------------------

    def _check(self, uri: str) -> None:
        scheme, separator, rest = uri.partition("://")
        host = rest.split("/", 1)[0]
        if not separator or scheme.lower() not in KINDS or not host:
            raise InvalidRequest(
                f"invalid path of an object store, without a bucket: {scheme}://; expected s3://bucket/folder"
            )
        if KINDS[scheme.lower()] != "memory" and not _HOST.fullmatch(host):
            raise InvalidRequest(f"the bucket of {uri} has characters that no bucket's name has")
        if ("@" in host or ":" in host) and KINDS[scheme.lower()] != "azure":
            raise InvalidRequest(
                f"a path must not contain credentials, because paths are shown; for {scheme}:// paths give "
                "storage_options instead"
            )

    def _at(self, path: str, retries: bool = True) -> tuple[Any, str]:
        """The client of a path's bucket, and the key in it."""
        scheme, separator, rest = path.partition("://")
        if not separator or KINDS.get(scheme.lower()) != self._options.kind:
            raise InvalidRequest(f"{path} is not in this store, whose kind is {self._options.kind}")
        if self._options.kind != "memory":
            _check_process(path)
        bucket, _, key = rest.partition("/")
        return self._client(bucket, retries), key.strip("/")

    def _client(self, bucket: str, retries: bool) -> Any:
        with self._lock:
            client = self._clients.get((bucket, retries))
            if client is None:
                client = self._clients[bucket, retries] = self._new_client(bucket, retries)
            return client

    def _new_client(self, bucket: str, retries: bool) -> Any:
        options = self._options
        if options.kind == "memory":
            with _memory_lock:
                return _memories.setdefault(bucket, stores.MemoryStore())
        settings: dict[str, Any] = {
            "config": dict(options.values),
            "client_options": dict(options.client),
            "retry_config": options.retry() if retries else {**options.retry(), "max_retries": 0},
        }
        if options.profile is not None:
            if self._profile is None:
                self._profile = ProfileCredentials(options.profile)
            settings["credential_provider"] = self._profile
            if self._profile.region is not None:
                settings["config"].setdefault("region", self._profile.region)
        elif options.kind == "s3" and os.environ.get("AWS_SESSION_TOKEN") and options.get("session_token") is None:
            # obstore would add the token of the environment to the keys of the options.
            keys = {name: options.get(name) for name in ("access_key_id", "secret_access_key")}
            if all(keys.values()):
                settings["credential_provider"] = lambda: {**keys, "token": None, "expires_at": None}
        try:
            if options.kind == "s3":
                return stores.S3Store(bucket, **settings)
            if options.kind == "gcs":
                return stores.GCSStore(bucket, **settings)
            return stores.AzureStore(bucket.partition("@")[0], **settings)
        except FAILURES as e:
            raise InvalidRequest(f"the storage options for '{bucket}' do not fit: {_misfit(str(e), options)}") from None

    def _mapped(self, action: str, path: str) -> AbstractContextManager[None]:
        return mapped(action, path, _bucket(path), self._options)


def _info(entry: Mapping[str, Any], skip: int) -> base.FileInfo:
    """A listed object; its name in the folder begins after ``skip`` characters of the key."""
    changed = int(entry["last_modified"].timestamp() * 1000)
    return base.FileInfo(entry["path"][skip:], entry["size"], False, changed, etag=_etag(entry))


def _etag(about: Mapping[str, Any]) -> str | None:
    """The ETag in an object's description, with its size and time: some servers give all objects the same ETag.

    Azure puts an ETag in quotes only in a response to a read, where times have no milliseconds.
    """
    etag: str | None = about.get("e_tag")
    if etag is None:
        return None
    seconds = int(about["last_modified"].timestamp())
    return " ".join((etag.removeprefix("W/").strip('"'), str(about["size"]), str(seconds)))


def _check_process(path: str) -> None:
    """Raise :class:`UnsupportedFeature` in a process that was forked after an object store was used."""
    global _started_in
    process = os.getpid()
    if _started_in is None:
        _started_in = process
    elif _started_in != process:
        raise UnsupportedFeature(
            f"cannot access {path}: this process was forked from one that had used an object store, and lacks its "
            "client's threads; start processes with multiprocessing.get_context('spawn')"
        )


def _bucket(path: str) -> str:
    return path.partition("://")[2].split("/", 1)[0]


# --- errors -----------------------------------------------------------------------------------------------------------

FAILURES = (ob.BaseError, OSError, ValueError)
"""Everything obstore raises."""

_CONDITIONS_REFUSED = re.compile(r"status code: (501|405)")
_CODE = re.compile(r"<Code>([A-Za-z0-9]+)</Code>")
_STATUS = re.compile(r"status code: (\d{3} [A-Za-z -]+)")
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
_REPEATED = re.compile(r"after \d+ retries|(?<!max_)retries: [1-9]")
_SERVER = re.compile(r"https?://[^/\s?,]+")
_CAUSE = re.compile(r"""(?:message|error): "([^"]{1,200})\"""")
_PROFILE = re.compile(r"External AWS credential provider: AccessDenied: (.*)")
"""An error of :class:`ProfileCredentials`, in whose text obstore puts it."""
_NAME = re.compile(r"^ *(?:source: )?([A-Z][A-Za-z]+)(?: \{|,|\()", re.MULTILINE)
"""A name of obstore's own code in its description of an error, in which texts of others are quoted and escaped."""
_UNPARSED = re.compile(r'failed to parse "(.*)" as (\w+)')
_MISFITS = {
    "MissingSecretAccessKey": "an access key without a secret key",
    "MissingAccessKeyId": "a secret key without an access key",
    "InvalidAccessKey": "account_key is not base64",
    "MissingSasComponent": "sas_key is not a list of name=value with & between",
    "Credential": "the service account's file or key cannot be read, or is not one",
}
_CAUSES = {
    "NotPartial": "the server returned a whole object for a range of it; check whether it, or a proxy in front of it, "
    "supports the Range header",
    "BareRedirect": "the server redirected the request without an address; set the region of the bucket, or its "
    "endpoint, in storage_options",
}
"""What happened and what to do, by the name that obstore gives the cause of an error."""
_WHERE_FROM = {
    "s3": "set AWS_PROFILE or run `aws configure`",
    "gcs": "run `gcloud auth application-default login`",
    "azure": "run `az login`",
}
_WRITES = ("create", "write", "delete", "move")


def translated(error: Exception, action: str, path: str, bucket: str, options: StoreOptions) -> BitlakeError:
    """Convert an error of obstore; ``action`` is a verb, ``path`` the full path."""
    text = str(error)
    found = _CODE.search(text)
    code = "" if found is None else found.group(1)
    if lacks_bucket(error):
        return StorageUnavailable(
            f"cannot {action} {path}: bucket '{bucket}' does not exist; create it or correct the path"
        )
    if isinstance(error, FileNotFoundError):
        return NotFound(f"no such file: {path}")
    if isinstance(error, ob.InvalidPathError) or (isinstance(error, ValueError) and "ath" in text):
        return NotFound(f"no file can have this name: {path!r}")
    profile = _PROFILE.search(text)
    if profile is not None:
        return AccessDenied(f"cannot {action} {path}: {profile.group(1)}")
    if any(sign in text for sign in ("169.254.169.254", "MissingSecretAccessKey", "MissingAccessKeyId", "AzureCli")):
        return AccessDenied(
            f"cannot {action} {path}: no credentials were found; {_WHERE_FROM[options.kind]}, or give them as "
            "storage_options or in the Spark session's configuration"
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
    if action == "create" and (code == "NotImplemented" or _CONDITIONS_REFUSED.search(text)):
        return _no_conditions(path, options)
    kind = StorageFull if code in _FULL or "status code: 507" in text else StorageUnavailable
    return kind(f"cannot {action} {path}: {_reason(text, code)}")


def _is_aws(endpoint: str) -> bool:
    host = urlsplit(endpoint).hostname or ""
    return host.endswith((".amazonaws.com", ".amazonaws.com.cn"))


def _no_conditions(path: str, options: StoreOptions) -> AccessDenied:
    return AccessDenied(
        f"cannot create {path}: {options.get('endpoint') or 'the store'} does not support conditional writes "
        "(If-None-Match), so one writer could overwrite the commit of another; nothing was changed: use a server that "
        "supports them, or a REST catalog, whose server commits"
    )


def lacks_bucket(error: Exception) -> bool:
    """Whether the error means that the bucket does not exist."""
    text = str(error)
    return "NoSuchBucket" in text or "ContainerNotFound" in text or "The specified bucket does not exist" in text


def is_short(error: Exception) -> bool:
    """Whether the error means that a range begins beyond the end of the file."""
    text = str(error)
    return "416" in text or "InvalidRange" in text or "out of range" in text.lower() or "range" in text.lower()


def _is_broken(error: Exception) -> bool:
    """Whether the connection broke, and obstore has not repeated the request."""
    text = str(error)
    broken = _BROKEN.search(text)
    return broken is not None and broken.group(1) in ("Interrupted", "Request") and not _REPEATED.search(text)


def _reason(text: str, code: str) -> str:
    status = _STATUS.search(text)
    retries = re.search(r"after (\d+) retries", text)
    tries = "" if retries is None else f", after {counted(int(retries.group(1)), 'retry')}"
    if status is not None:
        return f"the store answered {status.group(1).strip()}" + (f" {code}" if code else "") + tries
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
    source = text.rpartition("\nDebug source:\n")[2]
    for name, words in _CAUSES.items():
        if re.search(rf"^ *(?:source|inner): {name},$", source, re.MULTILINE):
            return words
    return f"{_own_words(text)}{tries}; check the storage options"


def _own_words(text: str) -> str:
    """Describe an error of obstore by its names, in words of our own for common ones."""
    names = _NAME.findall(text.rpartition("\nDebug source:\n")[2])
    known = [_MISFITS[n] for n in names if n in _MISFITS]
    return known[0] if known else f"obstore failed ({names[-1] if names else 'without a reason'})"


def _misfit(text: str, options: StoreOptions) -> str:
    """Why obstore does not take options.  Its text may quote a value, which is named by its option instead."""
    quoted = _UNPARSED.search(text)
    if quoted is not None:
        value, type = quoted.groups()
        names = [name for name, v in (*options.values, *options.client) if v == value]
        return f"{' or '.join(names) or 'one of them'} must be a {type.lower()}"
    given = ", ".join(name for name, _ in (*options.values, *options.client)) or "none"
    return f"{_own_words(text)}; given: {given}"


@contextmanager
def mapped(action: str, path: str, bucket: str, options: StoreOptions) -> Iterator[None]:
    """Convert obstore's errors in the block; ``from None``, because the cause may quote secrets."""
    try:
        yield
    except FAILURES as e:
        raise translated(e, action, path, bucket, options) from None
