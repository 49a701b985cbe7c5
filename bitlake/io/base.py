"""The interface of stores, through which bitlake reads and writes all files.

Paths are strings: absolute local paths, or URIs exactly as the user gave them.  Nothing is percent-decoded: names of
partition folders may contain ``%3A``, and Paimon treats paths as plain text, too.
"""

from __future__ import annotations

import builtins
import functools
import os
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar
from urllib.parse import SplitResult, urlsplit

from bitlake.errors import BitlakeError, CorruptError, InvalidRequest, NotFound
from bitlake.runtime import REQUESTS, Caches, LocalRunner, process_caches

WHOLE_FILE_BYTES = 1 << 30
"""The size limit of files that are read whole, such as manifests and HASH indexes, in bytes."""
GAP = 256 << 10
"""Ranges at most this many bytes apart are one request, unless an option says otherwise.

A connection transfers them in 3 ms, and a request takes 20 ms or more; but requests run concurrently, so that a larger
gap would save no time, and read pages that were left out.
"""
MAX_RETRIES = 6
"""Retries of a request after a transient failure, with exponential backoff."""
RETRY_SECONDS = 60.0
"""No retry begins later than this many seconds after the first attempt."""
First = TypeVar("First")
Second = TypeVar("Second")
_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):(//|/)")


@dataclass(frozen=True, slots=True)
class FileInfo:
    """An entry of a folder: its bare name, size in bytes (0 for folders) and modification time (epoch ms).

    ``is_link``: it is a symbolic link; the other members describe its target.  ``etag`` differs whenever the content
    does; None if the store has none.
    """

    name: str
    size: int
    is_dir: bool
    mtime_ms: int
    is_link: bool = False
    etag: str | None = None


class HistoryServer(Protocol):
    """A catalog's server, which alone creates the branches of a table and makes an earlier snapshot the latest again.

    Its methods raise :class:`~bitlake.errors.NotFound`, :class:`~bitlake.errors.AlreadyExists` and
    :class:`~bitlake.errors.AccessDenied`; and :class:`~bitlake.errors.StorageUnavailable` if the outcome is unknown.
    """

    def create_branch(self, name: str, tag: str | None) -> None:
        """Create a branch from a tag, or without a tag an empty one."""

    def delete_branch(self, name: str) -> None:
        """Delete a branch."""

    def rename_branch(self, name: str, new_name: str) -> None:
        """Rename a branch."""

    def fast_forward(self, name: str) -> None:
        """Replace main's snapshots, schemas and tags by a branch's."""

    def roll_back(self, snapshot_id: int, tag: str | None) -> None:
        """Make a snapshot the latest again; ``tag`` names the tag that holds it, if nothing else does."""


class Store(Protocol):
    """Files of one storage system.

    Every method raises :class:`~bitlake.errors.StorageUnavailable` when the system fails or refuses; reading methods
    raise :class:`~bitlake.errors.NotFound` for a missing file.  Implementations are safe to share between threads.
    """

    @functools.cached_property
    def caches(self) -> Caches:
        """The caches of what is read through the store; the budget of a lake's store is the lake's.

        A store that is sent to another process leaves them behind, and joins the caches of that process.
        """
        return Caches()

    @property
    def identity(self) -> tuple[object, ...]:
        """Equal for stores that find the same files at the same paths, with the same rights."""
        return (type(self).__name__,)

    @property
    def location(self) -> tuple[object, ...]:
        """Equal for stores that find the same files at the same paths, with whatever rights; has no credentials."""
        return (type(self).__name__,)

    @property
    def uncached(self) -> Store:
        """The same files without a local cache (:mod:`bitlake.io.local_cache`)."""
        return self

    def drop_cached(self, path: str) -> None:
        """Drop what a local cache keeps of a file that turned out to be damaged; someone may replace the file."""
        return

    def __reduce__(self) -> str | tuple[Any, ...]:
        state = self.__getstate__() or {}  # None without attributes
        if isinstance(state, dict):
            state = {name: value for name, value in state.items() if name != "caches"}
        return _reopened, (type(self), state, self.caches.budget.size)

    def read(self, path: str, limit: int = WHOLE_FILE_BYTES) -> bytes:
        """Read a whole file; raises ``CorruptError``, without reading, if it has more than ``limit`` bytes."""

    def read_tagged(self, path: str, limit: int = WHOLE_FILE_BYTES) -> tuple[bytes, str | None]:
        """Read a whole file as :meth:`read` does, with the ETag of what was read; None if the store has none."""
        return self.read(path, limit), None

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Read exactly ``length`` bytes from ``offset``; raises ``CorruptError`` if the file is shorter."""
        return self.read_ranges(path, [(offset, length)])[0]

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read several ``(offset, length)`` ranges of a file, in the given order, each as :meth:`read_range` does."""

    def read_part(self, path: str, offset: int, length: int) -> tuple[bytes, int]:
        """Read those of ``length`` bytes from ``offset`` that the file has, and its size; in one request."""

    def size(self, path: str) -> int:
        """The file's size in bytes."""

    def exists(self, path: str) -> bool:
        """Whether a file exists; for folders, which object stores do not have, see :meth:`dir_exists`.

        The default implementation asks for the size.
        """
        try:
            self.size(path)
        except NotFound:
            return False
        return True

    def dir_exists(self, path: str) -> bool:
        """Whether a folder exists; in an object store, whether it contains any file."""

    def list(self, directory: str) -> list[FileInfo]:
        """The entries of a folder, sorted by name; empty when the folder is missing."""

    def names(self, directory: str) -> builtins.list[str]:
        """The names of a folder's entries, in any order; empty when the folder is missing."""
        return [f.name for f in self.list(directory)]

    def list_page(self, directory: str) -> builtins.list[FileInfo] | None:
        """The files of a folder in any order, if one request lists all of them with their ETags; else None."""
        return None

    def list_below(
        self, directory: str, names: Sequence[str]
    ) -> builtins.list[tuple[str, builtins.list[FileInfo]]] | None:
        """The files in these subfolders of a folder and in all folders below: (path of a folder, its files).

        Listed in the order of keys, whatever the number of folders; None, also without ``names``, if the store lists
        folders one by one.
        """
        return None

    def create(self, path: str, data: bytes) -> bool:
        """Create the file if it is absent, as one atomic step: readers see nothing or all of it.

        Returns whether this call created the file, also where a request was sent twice: by a retry, or by a proxy that
        returns the second response, "already exists".  Missing parent folders are created.
        """

    def write(self, path: str, data: bytes) -> None:
        """Write or replace the file as one atomic step; missing parent folders are created."""

    def delete(self, path: str) -> None:
        """Delete a file, if it exists."""

    def delete_all(self, paths: Sequence[str]) -> None:
        """Delete files, if they exist, with as few requests as possible."""

    def delete_dir(self, path: str) -> None:
        """Delete a folder with its contents, if it exists.  Links are removed, never followed."""

    def make_dirs(self, path: str) -> None:
        """Create a folder and its parents, if they do not exist."""

    def local_path(self, path: str) -> str | None:
        """The file's path in the local file system; None if it has none, as files elsewhere."""
        return None

    def open_output(self, path: str) -> Any:
        """Open a new, possibly large file for writing: an Arrow ``NativeFile`` or similar; parents are created.

        The file may be visible before it is closed: nothing may refer to it before.  If the result has a method
        ``discard``, that method closes it without creating the file.
        """

    def open_input(self, path: str, size: int | None = None) -> Any:
        """Open a file for sequential or random reads: an Arrow ``NativeFile``, a context manager.

        ``size``: the file's size, if known, which saves the store a request.
        """

    def copy_dir(self, source: str, target: str) -> None:
        """Copy a folder with its contents to an unused name, a table's ``schema`` folder last.

        Before it has that folder, the copy is not a table.  Raises :class:`NotFound` for a missing source.
        """

    def rename(self, source: str, target: str) -> None:
        """Move a file or folder to an unused name; missing parent folders of the target are created.

        An object store copies and then deletes: see :func:`has_cheap_rename`.
        """

    def history_server(self, folder: str) -> HistoryServer | None:
        """The server that changes the history of the table, or of its branch, whose folder this is.

        None where writers change the history themselves, by files.
        """
        return None

    def keeps_schemas(self, folder: str) -> bool:
        """Whether a server creates the schemas of the table in this folder, so that none can be replaced or deleted."""
        return False


def _by_path(name: str) -> Any:
    def call(self: Any, path: str, *arguments: Any, **options: Any) -> Any:
        return getattr(self.store_at(path), name)(path, *arguments, **options)

    return call


class DelegatingStore(Store):
    """A store whose methods other stores carry out, each the one of its path."""

    def store_at(self, path: str) -> Store:
        """The store of a path."""
        raise NotImplementedError

    read = _by_path("read")
    read_tagged = _by_path("read_tagged")
    read_range = _by_path("read_range")
    read_ranges = _by_path("read_ranges")
    read_part = _by_path("read_part")
    size = _by_path("size")
    exists = _by_path("exists")
    dir_exists = _by_path("dir_exists")
    list = _by_path("list")
    names = _by_path("names")
    list_below = _by_path("list_below")
    list_page = _by_path("list_page")
    create = _by_path("create")
    write = _by_path("write")
    delete = _by_path("delete")
    delete_dir = _by_path("delete_dir")
    make_dirs = _by_path("make_dirs")
    local_path = _by_path("local_path")
    open_output = _by_path("open_output")
    open_input = _by_path("open_input")
    copy_dir = _by_path("copy_dir")
    drop_cached = _by_path("drop_cached")


def _reopened(kind: type[Any], state: Any, cache_bytes: int) -> Any:
    """A store of another process, in this one."""
    store: Any = object.__new__(kind)
    if hasattr(store, "__setstate__"):
        store.__setstate__(state)
    else:
        vars(store).update(state)
    store.caches = process_caches(store.identity, cache_bytes)
    return store


def check_whole(path: str, size: int, limit: int) -> None:
    """Raise ``CorruptError`` for a file that is too large to be read whole."""
    if size > limit:
        raise CorruptError(f"the file has {size:,} bytes; files of its kind are read up to {limit:,} bytes", None, path)


def scheme_of(uri: str) -> str:
    """The lower-case scheme of a URI, ``file`` for a plain path."""
    match = _SCHEME.match(uri)
    return "file" if match is None else match.group(1).lower()


def split_uri(uri: str, what: str) -> SplitResult:
    """The parts of a URI; raises :class:`InvalidRequest`, which does not show it, if its host has unpaired brackets."""
    try:
        return urlsplit(uri)
    except ValueError:
        raise InvalidRequest(f"{what} names no host: brackets are for IPv6 addresses, as in http://[::1]:80") from None


def absolute_path(path: str | os.PathLike[str], what: str) -> str:
    """Return a path that later changes of the working folder, which Spark's JVM never follows, cannot move.

    A leading ``~`` is the home folder.  URIs keep their text, with the scheme in lower case.  ``what`` names the path
    in the error.  Raises :class:`InvalidRequest` for anything else, and for a URI with one slash: ``pathlib.Path``
    makes ``s3:/bucket`` from ``s3://bucket``, and a local folder of that name would be used instead of the bucket.
    """
    given: object = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(given, str) or not given.strip():
        raise InvalidRequest(f"{what} must be a path or URI, and is {path!r}")
    split_uri(given, what)
    scheme, separator, rest = given.partition(":")
    if separator and scheme.lower() == "file":
        rest = rest.removeprefix("//localhost") if rest.startswith("//localhost/") else rest  # Hadoop takes no host
        return "file:" + (rest if rest.startswith("/") else os.path.abspath(os.path.expanduser(rest)))
    match = _SCHEME.match(given)
    if match is None or len(scheme) == 1:
        return os.path.abspath(os.path.expanduser(given))
    if match.group(2) != "//":
        raise InvalidRequest(
            f"{what} {given!r} has one slash after its scheme: write {scheme.lower()}://{rest.lstrip('/')} (as text: "
            f"pathlib.Path drops a slash), or ./{given} for a local folder"
        )
    return scheme.lower() + separator + rest


def has_cheap_rename(store: Store, path: str) -> bool:
    """Whether a rename is one cheap step; otherwise writers write files to their final place.

    Then Spark's JVM can also read these files itself: the plain PySpark wheel has no jar for any object store.
    """
    return store.local_path(path) is not None


def in_parallel(
    store: Store,
    path: str,
    first: Callable[[], First],
    second: Callable[[], Second],
    is_needed: Callable[[First], bool] = lambda _: True,
) -> tuple[First, Second | None]:
    """Return what two functions return; None for ``second`` if ``is_needed(first's)`` is False.

    If files near ``path`` are remote, both run at once, and an error of a ``second`` that is not needed is dropped.
    Else ``second`` runs only if it is needed.
    """
    if store.local_path(path) is not None:
        result = first()
        return result, second() if is_needed(result) else None
    result, later = run_at_once([first, partial(_outcome, second)])
    if not is_needed(result):
        return result, None
    if isinstance(later, BitlakeError):
        raise later
    return result, later


def _outcome(call: Callable[[], Second]) -> Second | BitlakeError:
    try:
        return call()
    except BitlakeError as e:
        return e


def run_at_once(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Return what functions return, each of which runs in a thread; raises the first error when all have ended.

    The threads are daemons, and where none can start, the calling thread runs the function: an executor takes no work
    once the main thread has ended, though other threads go on.
    """
    outcomes: dict[int, Any] = {}
    errors: dict[int, BaseException] = {}

    def run(number: int) -> None:
        try:
            outcomes[number] = calls[number]()
        except BaseException as e:  # noqa: BLE001 - raised below
            errors[number] = e

    threads = []
    for number in range(1, len(calls)):
        thread = threading.Thread(target=run, args=(number,), name="bitlake-request", daemon=True)
        try:
            thread.start()
            threads.append(thread)
        except RuntimeError:  # the program ends
            run(number)
    if calls:
        run(0)
    for thread in threads:
        thread.join()
    if errors:
        raise errors[min(errors)]
    return [outcomes[number] for number in range(len(calls))]


_FEW_LOCAL = 32
"""Local files that are read sooner one after another than by threads, which have to be started, and which wait for the
interpreter lock: 20 small manifests take 6 ms, and 18 ms by threads.  A table has up to some 30 of them until a commit
merges them."""


def request_runner(store: Store, path: str) -> LocalRunner:
    """The runner of independent requests for files near ``path``: many at a time, but a few local files in turn."""
    return LocalRunner(REQUESTS, 1 if store.local_path(path) is None else _FEW_LOCAL)


def number_option(name: str, value: str | None, default: float) -> float:
    """Parse a storage option that is a number, or seconds (``30s``); raises :class:`InvalidRequest`."""
    if value is None:
        return default
    try:
        number = float(value.strip().lower().removesuffix("s"))
    except ValueError:
        number = -1
    if not 0 <= number < 1e6:
        raise InvalidRequest(f"the storage option '{name}' must be a non-negative number, not '{value}'")
    return number


Range = tuple[int, int]


def check_ranges(path: str, ranges: Iterable[Range]) -> None:
    """Raise :class:`InvalidRequest` for a range with a negative offset or length."""
    for offset, length in ranges:
        if offset < 0 or length < 0:
            raise InvalidRequest(f"range [{offset}, +{length}) of {path} is negative")


def check_ends(path: str, ranges: Iterable[Range], size: int) -> None:
    """Raise :class:`CorruptError` for a range beyond the end of a file of ``size`` bytes."""
    for offset, length in ranges:
        missing = offset + length - size
        if missing > 0:
            raise CorruptError(f"the file ends {missing} bytes before the end of a range of {length}", offset, path)
