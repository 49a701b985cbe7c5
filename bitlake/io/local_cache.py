"""Paimon's local cache: blocks of remote files in a folder of the local disk, or in memory.

A file of a remote store is cut into blocks of ``local-cache.block-size`` bytes.  A read takes blocks from the cache,
and fetches the missing ones as whole blocks, so that they can be kept.

Layout of the folder ``local-cache.dir``, which any number of processes may share::

    bitlake-blocks-1/<first 2 digits>/<64 hexadecimal digits>

The digits are the SHA-256 of the store's location, the file's path, the block size and the block's number, with a NUL
between them.  A block's file of ``n + 12`` bytes:

    ==========  ========================================================================
    bytes       content
    ==========  ========================================================================
    ``n``       the block: bytes from ``number * block_size`` on; shorter at a file's end
    8           the size of the remote file, little-endian
    4           the CRC-32 of all bytes before, little-endian
    ==========  ========================================================================

A block whose CRC-32 differs is deleted and fetched again.  Files are written under a hidden name and renamed.  A file's
modification time is when its block was last used, give or take a minute; when the blocks take more than
``local-cache.max-size``, the least recently used ones are deleted.

Only files that never change are cached: those with a UUID in their names, such as manifests and data files.  Snapshots,
schemas, tags and hints have none, and are always read from the store.

Options and kinds of files are those of Paimon (``FileType``, ``CachingFileIO``).  Paimon's own blocks have other names
and no checksum, and are neither read nor deleted.
"""

from __future__ import annotations

import builtins
import functools
import hashlib
import os
import re
import threading
import zlib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from bitlake import _clock
from bitlake.errors import BitlakeError, InvalidRequest, StorageUnavailable
from bitlake.io.base import WHOLE_FILE_BYTES, Range, Store, by_path, check_ends, check_ranges, check_whole, scheme_of
from bitlake.io.remote_files import ranged_input
from bitlake.metadata.option_types import parse_bool, parse_memory
from bitlake.runtime import Cache, CacheBudget

PREFIX = "local-cache."
"""The prefix of the options, as of Paimon's catalogs."""
SESSION_PREFIX = "spark.bitlake." + PREFIX
"""The prefix of the same options as settings of a Spark session."""
KINDS = ("meta", "global-index", "bucket-index", "data", "file-index")
"""Kinds of files, by the names that Paimon gives them in ``local-cache.whitelist``."""
_DEFAULT_KINDS = "meta,global-index"
_DEFAULT_BLOCK = 1 << 20
_BLOCK_SIZES = (4 << 10, 64 << 20)
"""The least and the largest block: every block is a request, and is decoded as a whole."""
_MEMORY_BYTES = 256 << 20
_DISK_BYTES = 10 << 30
"""The size of a cache without ``local-cache.max-size``, as in pypaimon.  Paimon's Java engines have no limit then."""
_NAMES = ("enabled", "dir", "max-size", "block-size", "whitelist")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_FOLDER = "bitlake-blocks-1"
_BLOCK_NAME = re.compile(r"[0-9a-f]{64}")
_TRAILER = 12
_USED_SECONDS = 60.0
"""A block's modification time is renewed if it is older."""
_LOOKED, _LOOK_SECONDS = "looked", 600.0
"""A process looks at a folder when it first writes a block, if none has done so for ten minutes."""
_LEFTOVER_SECONDS = 3600.0
"""A hidden file of this age is left by a process that was killed."""
_PATIENCE_SECONDS = 60.0
"""A thread waits for another one's fetch at most so long, then fetches itself."""
_SIZES_KEPT = 100_000


class Block(NamedTuple):
    """A block's bytes, and the size of its file."""

    data: bytes
    file_size: int


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """Where blocks are kept, and of which files: ``local-cache.*``.

    ``folder`` None keeps them in this process's memory.
    """

    folder: str | None
    max_size: int
    block_size: int
    kinds: frozenset[str]


def cache_options(given: Mapping[str, str], configured: Mapping[str, str]) -> CacheOptions | None:
    """Return the options of a local cache; None where it is not enabled.

    ``given`` are storage options, which precede ``configured``, a Spark session's settings (``spark.bitlake.…``) or
    more storage options.  Raises :class:`InvalidRequest` for an unknown option or an invalid value.

    >>> cache_options({"local-cache.enabled": "true", "local-cache.dir": "/cache"}, {}).folder
    '/cache'
    """
    values: dict[str, str] = {}
    for options in (configured, given):
        for key, value in options.items():
            name = _option_name(key)
            if name is not None:
                values[name] = str(value).strip()
    for name in values:
        if name not in _NAMES:
            expected = ", ".join(PREFIX + n for n in _NAMES)
            raise InvalidRequest(f"unknown storage option '{PREFIX}{name}'; expected one of {expected}")
    if not _parsed(values, "enabled", parse_bool, False, "true or false"):
        return None
    folder = _folder(values["dir"]) if values.get("dir") else None
    default = _MEMORY_BYTES if folder is None else _DISK_BYTES
    size = _parsed(values, "max-size", parse_memory, default, "a size such as 2 gb")
    block = _parsed(values, "block-size", parse_memory, _DEFAULT_BLOCK, "a size such as 1 mb")
    if not _BLOCK_SIZES[0] <= block <= _BLOCK_SIZES[1]:
        raise InvalidRequest(f"the storage option '{PREFIX}block-size' must be from 4 kb to 64 mb, not {block:,} bytes")
    if size < 8 * block:
        raise InvalidRequest(
            f"the storage option '{PREFIX}max-size' must be at least eight blocks of '{PREFIX}block-size', not "
            f"{size:,} bytes with blocks of {block:,}"
        )
    kinds = frozenset(k.strip().lower() for k in values.get("whitelist", _DEFAULT_KINDS).split(",") if k.strip())
    if kinds - set(KINDS):
        raise InvalidRequest(
            f"the storage option '{PREFIX}whitelist' lists kinds of files, of {', '.join(KINDS)}; "
            f"'{min(kinds - set(KINDS))}' is none of them"
        )
    return CacheOptions(folder, size, block, kinds)


def session_options(settings: Mapping[str, str]) -> dict[str, str]:
    """Return a Spark session's settings of a local cache as storage options."""
    return {
        PREFIX + key[len(SESSION_PREFIX) :]: value
        for key, value in settings.items()
        if key.lower().startswith(SESSION_PREFIX)
    }


def without_cache(options: Mapping[str, str]) -> dict[str, str]:
    """Return storage options without those of a local cache."""
    return {k: v for k, v in options.items() if _option_name(k) is None}


def _folder(given: str) -> str:
    if scheme_of(given) != "file" or "\0" in given:
        raise InvalidRequest(f"the storage option '{PREFIX}dir' must be a folder of the local disk, not {given!r}")
    path = re.sub("^file:(//(localhost)?(?=/))?", "", given, flags=re.IGNORECASE)
    return os.path.abspath(os.path.expanduser(path))


def _option_name(key: str) -> str | None:
    """The part of an option's name after its prefix; None for other options."""
    text = key.strip().lower()
    prefix = next((p for p in (PREFIX, SESSION_PREFIX) if text.startswith(p)), None)
    return None if prefix is None else text[len(prefix) :]


def _parsed(values: Mapping[str, str], name: str, parse: Any, default: Any, expected: str) -> Any:
    if not values.get(name):
        return default
    try:
        return parse(values[name])
    except ValueError:
        raise InvalidRequest(f"the storage option '{PREFIX}{name}' must be {expected}, not '{values[name]}'") from None


def file_kind(path: str) -> str | None:
    """Return the kind of a file that never changes, of :data:`KINDS`; None for files that may be replaced.

    >>> file_kind("s3://b/t/bucket-0/data-6f9619ff-8b86-d011-b42d-00c04fc964ff-0.parquet")
    'data'
    >>> file_kind("s3://b/t/snapshot/snapshot-1") is None
    True
    """
    name = path.rpartition("/")[2]
    if _UUID.search(name) is None or name.startswith((".", "tag-", "consumer-", "service-")):
        return None
    if name.endswith(".index"):
        return "global-index" if "global-index-" in name else "file-index"
    if "manifest" in name or name.startswith("stat-"):
        return "meta"
    return "bucket-index" if name.startswith("index-") else "data"


# --- where blocks are kept --------------------------------------------------------------------------------------------


class Blocks(Protocol):
    """Keeps blocks by a key.  Threads may share it."""

    def get(self, key: str) -> Block | None:
        """The block; None if it is not kept."""

    def put(self, key: str, block: Block) -> None:
        """Keep a block, if there is room; never raises an error of the disk."""

    def discard(self, key: str) -> None:
        """Drop a block, if it is kept."""

    @property
    def is_failing(self) -> bool:
        """Whether blocks cannot be kept now, so that fetching whole ones would be in vain."""


class MemoryBlocks:
    """Blocks in this process's memory."""

    def __init__(self, size: int) -> None:
        self._cache: Cache[str, Block] = Cache(CacheBudget(size))

    def get(self, key: str) -> Block | None:
        """See :meth:`Blocks.get`."""
        return self._cache.get(key)

    def put(self, key: str, block: Block) -> None:
        """See :meth:`Blocks.put`."""
        self._cache.put(key, block, len(block.data) + len(key))

    def discard(self, key: str) -> None:
        """See :meth:`Blocks.discard`."""
        self._cache.discard(key)

    @property
    def is_failing(self) -> bool:
        """Never."""
        return False

    def clear(self) -> None:
        """Drop all blocks."""
        self._cache.clear()


class DiskBlocks:
    """Blocks in a folder of the local disk; the layout is this module's.

    Processes that share the folder count what they write themselves, and look at the folder again after an eighth of
    its size: together they may exceed it by that much each.
    """

    def __init__(self, folder: str, size: int) -> None:
        self._root = f"{folder}/{_FOLDER}"
        self._most = size
        self._lock = threading.Lock()
        self._unseen: int | None = None
        """Bytes written since the folder was last looked at; None: nothing was written yet."""
        self._failed_ms: int | None = None
        """When a block could not be written; None: the last one could."""

    def get(self, key: str) -> Block | None:
        """See :meth:`Blocks.get`."""
        path = self._path(key)
        try:
            with open(path, "rb") as file:
                raw = file.read()
                used = os.fstat(file.fileno()).st_mtime
        except OSError:
            return None
        if _clock.now_ms() / 1000 - used > _USED_SECONDS:
            with suppress(OSError):  # the folder may be readable only
                os.utime(path)
        data, size, checksum = raw[:-_TRAILER], raw[-_TRAILER:-4], raw[-4:]
        if len(raw) < _TRAILER or zlib.crc32(size, zlib.crc32(data)) != int.from_bytes(checksum, "little"):
            self.discard(key)
            return None
        return Block(data, int.from_bytes(size, "little"))

    def put(self, key: str, block: Block) -> None:
        """See :meth:`Blocks.put`."""
        size = block.file_size.to_bytes(8, "little")
        checksum = zlib.crc32(size, zlib.crc32(block.data)).to_bytes(4, "little")
        length = len(block.data) + _TRAILER
        path = self._path(key)
        folder, _, name = path.rpartition("/")
        hidden = f"{folder}/.{name}.{os.getpid()}-{threading.get_ident()}.tmp"
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            try:
                with open(hidden, "wb") as file:
                    file.writelines((block.data, size, checksum))
                os.replace(hidden, path)
            except OSError:
                with suppress(OSError):
                    os.unlink(hidden)
                raise
        except OSError:
            self._failed_ms = _clock.now_ms()  # such as a full disk: the block is fetched again when it is wanted
            return
        self._failed_ms = None
        self._wrote(length)

    def discard(self, key: str) -> None:
        """See :meth:`Blocks.discard`."""
        with suppress(OSError):
            os.unlink(self._path(key))

    @property
    def is_failing(self) -> bool:
        """Whether a block could not be written a moment ago; after that, another one is tried."""
        return self._failed_ms is not None and _clock.now_ms() - self._failed_ms < 1000 * _USED_SECONDS

    def _path(self, key: str) -> str:
        return f"{self._root}/{key[:2]}/{key}"

    def _wrote(self, length: int) -> None:
        with self._lock:
            first = self._unseen is None
            self._unseen = (self._unseen or 0) + length
            if self._unseen <= self._most // 8 and not (first and self._is_due()):
                return
            self._unseen = 0
        self._evict()

    def _is_due(self) -> bool:
        """Whether no process has looked at the folder lately."""
        try:
            seen = os.stat(f"{self._root}/{_LOOKED}").st_mtime
        except OSError:
            return True
        return _clock.now_ms() / 1000 - seen > _LOOK_SECONDS

    def _evict(self) -> None:
        """If less than an eighth of the size is free, delete the least recently used blocks until a quarter is."""
        found: list[tuple[float, int, str]] = []
        with suppress(OSError), open(f"{self._root}/{_LOOKED}", "w") as mark:
            mark.write("The time of this file is when a process last looked at the sizes of all blocks.\n")
        now = _clock.now_ms() / 1000
        for path, state in self._files():
            if _BLOCK_NAME.fullmatch(path.rpartition("/")[2]):
                found.append((state.st_mtime, state.st_size, path))
            elif path.endswith(".tmp") and now - state.st_mtime > _LEFTOVER_SECONDS:
                with suppress(OSError):
                    os.unlink(path)
        total = sum(size for _, size, _ in found)
        if total <= self._most - self._most // 8:
            return
        for _, size, path in sorted(found):
            if total <= self._most * 3 // 4:
                return
            with suppress(OSError):
                os.unlink(path)
            total -= size

    def _files(self) -> Iterable[tuple[str, os.stat_result]]:
        with suppress(OSError):
            for folder in os.scandir(self._root):
                if len(folder.name) != 2 or not folder.is_dir(follow_symlinks=False):
                    continue
                with suppress(OSError):
                    for file in os.scandir(folder.path):
                        with suppress(OSError):  # another process deletes, too
                            if file.is_file(follow_symlinks=False):
                                yield file.path, file.stat(follow_symlinks=False)


class _Shared:
    """What stores with equal options share in this process, also the stores of one Spark worker's tasks."""

    def __init__(self, options: CacheOptions) -> None:
        self.blocks: Blocks = (
            MemoryBlocks(options.max_size) if options.folder is None else DiskBlocks(options.folder, options.max_size)
        )
        self.lock = threading.Lock()
        self.fetches: dict[str, Future[dict[str, Block]]] = {}
        """Running fetches by the key of each of their blocks, for other threads that want these."""
        self.sizes: dict[str, int] = {}
        """Sizes of files, by the key of their first block."""


@functools.cache
def _of_process() -> dict[tuple[int, CacheOptions], _Shared]:
    """By process, since a fork has neither the threads nor the state of the locks of its parent."""
    return {}


def _shared(options: CacheOptions) -> _Shared:
    key = os.getpid(), replace(options, kinds=frozenset())
    return _of_process().get(key) or _of_process().setdefault(key, _Shared(options))


class _Found(threading.local):
    """Bytes that a thread read from local caches; of reads that found some of their blocks, a share."""

    bytes = 0


_found = _Found()


def _count_found(size: int) -> None:
    _found.bytes += size


def found_bytes() -> int:
    """Return how many bytes this thread has read from local caches."""
    return _found.bytes


def clear_memory() -> None:
    """Drop the blocks in this process's memory."""
    for shared in list(_of_process().values()):
        if isinstance(shared.blocks, MemoryBlocks):
            shared.blocks.clear()


def check_folder(options: CacheOptions) -> None:
    """Create the folder of a cache; raises :class:`InvalidRequest` if it cannot be written."""
    if options.folder is None:
        return
    root = f"{options.folder}/{_FOLDER}"
    try:
        os.makedirs(root, mode=0o700, exist_ok=True)
        writable = os.access(root, os.W_OK | os.X_OK)
    except OSError as e:
        raise InvalidRequest(f"the folder of '{PREFIX}dir', {options.folder}, cannot be created: {e.strerror}") from e
    if not writable:
        raise InvalidRequest(f"the folder of '{PREFIX}dir', {options.folder}, cannot be written")


# --- the store --------------------------------------------------------------------------------------------------------


class CachedStore(Store):
    """A remote :class:`~bitlake.io.base.Store` whose unchanging files are read through a local cache."""

    def __init__(self, store: Store, options: CacheOptions) -> None:
        self._store = store
        self._options = options
        self._place = repr(store.location)

    def __repr__(self) -> str:
        return f"CachedStore({self._store!r})"

    def __getstate__(self) -> Any:
        return self._store, self._options

    def __setstate__(self, state: Any) -> None:
        CachedStore.__init__(self, *state)

    @property
    def identity(self) -> tuple[object, ...]:
        """See :attr:`Store.identity`."""
        return (*self._store.identity, self._options)

    @property
    def location(self) -> tuple[object, ...]:
        """See :attr:`Store.location`."""
        return self._store.location

    @property
    def uncached(self) -> Store:
        """The store below, with the same caches of what was read."""
        self._store.caches = self.caches
        return self._store

    def _at(self, path: str | Sequence[str]) -> Store:
        return self._store

    read_tagged = by_path("read_tagged")
    size = by_path("size")
    exists = by_path("exists")
    dir_exists = by_path("dir_exists")
    list = by_path("list")
    names = by_path("names")
    list_below = by_path("list_below")
    list_page = by_path("list_page")
    create = by_path("create")
    write = by_path("write")
    delete = by_path("delete")
    delete_all = by_path("delete_all")
    delete_dir = by_path("delete_dir")
    make_dirs = by_path("make_dirs")
    local_path = by_path("local_path")
    open_output = by_path("open_output")
    copy_dir = by_path("copy_dir")
    rename = by_path("rename")

    # --- reading ---------------------------------------------------------------------------------------------------

    def _is_kept(self, path: str) -> bool:
        return file_kind(path) in self._options.kinds

    def read(self, path: str, limit: int = WHOLE_FILE_BYTES) -> bytes:
        """The whole file: from blocks if the first one is kept, else by one request."""
        if not self._is_kept(path):
            return self._store.read(path, limit)
        kept = _shared(self._options).blocks
        first = kept.get(self._key(path, 0))
        if first is None:
            data = self._store.read(path, limit)
            size = self._options.block_size
            for number in range(max(1, -(-len(data) // size))):
                block = Block(data[number * size : (number + 1) * size], len(data))
                kept.put(self._key(path, number), block)
            return data
        check_whole(path, first.file_size, limit)
        if len(first.data) < first.file_size:
            return self.read_range(path, 0, first.file_size)
        _count_found(first.file_size)
        return first.data

    def read_ranges(self, path: str, ranges: Sequence[Range]) -> builtins.list[bytes]:
        """Several ranges; the missing blocks are fetched together."""
        if not self._is_kept(path) or not any(length for _, length in ranges):
            return self._store.read_ranges(path, ranges)
        check_ranges(path, ranges)
        blocks = self._read(path, ranges)
        if blocks is None:
            return self._store.read_ranges(path, ranges)
        check_ends(path, ranges, next(iter(blocks.values())).file_size)
        return [self._cut(blocks, each) for each in ranges]

    def read_part(self, path: str, offset: int, length: int) -> tuple[bytes, int]:
        """The bytes that the file has, and its size."""
        if not self._is_kept(path):
            return self._store.read_part(path, offset, length)
        wanted = (offset, max(1, length))
        blocks = self._read(path, [wanted])
        if blocks is None:
            return self._store.read_part(path, offset, length)
        return self._cut(blocks, wanted)[:length], next(iter(blocks.values())).file_size

    def open_input(self, path: str, size: int | None = None) -> Any:
        """An Arrow file that reads ranges."""
        if not self._is_kept(path):
            return self._store.open_input(path, size)
        return ranged_input(self.read_range, path, self.size(path) if size is None else size)

    def _numbers(self, each: Range) -> range:
        """The numbers of the blocks with a range's bytes."""
        (offset, length), size = each, self._options.block_size
        return range(offset // size, -(-(offset + length) // size)) if length else range(0)

    def _cut(self, blocks: Mapping[int, Block], each: Range) -> bytes:
        """The bytes of a range, of which all blocks are there."""
        numbers = self._numbers(each)
        if not numbers:
            return b""
        start, (offset, length) = numbers[0] * self._options.block_size, each
        data = blocks[numbers[0]].data if len(numbers) == 1 else b"".join(blocks[n].data for n in numbers)
        return data[offset - start : offset - start + length]

    def _key(self, path: str, number: int) -> str:
        parts = (self._place, path, str(self._options.block_size), str(number))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def forget(self, path: str) -> None:
        """Drop the blocks of a file."""
        if not self._is_kept(path):
            return
        shared, first = _shared(self._options), self._key(path, 0)
        block, size = shared.blocks.get(first), shared.sizes.pop(first, 0)
        size = max(size, 0 if block is None else block.file_size)
        with suppress(BitlakeError):  # a file that is gone, or that cannot be reached
            size = max(size, self._store.size(path))
        for number in self._numbers((0, max(1, size))):
            shared.blocks.discard(self._key(path, number))

    # --- missing blocks --------------------------------------------------------------------------------------------

    def _read(self, path: str, ranges: Sequence[Range]) -> dict[int, Block] | None:
        """Return the blocks of ranges; those beyond the file's end are empty.

        None if blocks are missing, and could not be kept.
        """
        shared = _shared(self._options)
        keys = {n: self._key(path, n) for n in sorted({n for each in ranges for n in self._numbers(each)})}
        blocks = {n: block for n, key in keys.items() if (block := shared.blocks.get(key)) is not None}
        missing = {n: key for n, key in keys.items() if n not in blocks}
        if missing and shared.blocks.is_failing:
            return None
        _count_found(sum(length for _, length in ranges if length) * len(blocks) // len(keys))
        if missing:
            known = next(iter(blocks.values())).file_size if blocks else shared.sizes.get(self._key(path, 0))
            blocks |= self._fetched(shared, path, missing, known)
        return blocks

    def _fetched(
        self, shared: _Shared, path: str, missing: Mapping[int, str], file_size: int | None
    ) -> dict[int, Block]:
        """Fetch blocks, or wait for other threads that fetch them already."""
        fetch: Future[dict[str, Block]] = Future()
        others: dict[int, Future[dict[str, Block]]] = {}
        own: builtins.list[int] = []
        blocks: dict[int, Block] = {}
        try:
            with shared.lock:
                for n, key in missing.items():
                    running = shared.fetches.get(key)
                    if running is None or running.done():
                        shared.fetches[key] = fetch
                        own.append(n)
                    else:
                        others[n] = running
            if own:
                blocks = self._fetch(path, own, file_size)
                if len(shared.sizes) >= _SIZES_KEPT:
                    shared.sizes.clear()
                shared.sizes[self._key(path, 0)] = blocks[min(own)].file_size
            for n in own:
                if blocks[n].data or not n:  # not what lies beyond the file's end
                    shared.blocks.put(missing[n], blocks[n])
        finally:  # also where the user interrupts a query: others must not wait for it
            fetch.set_result({missing[n]: block for n, block in blocks.items()})
            with shared.lock:
                for n in own:
                    if shared.fetches.get(missing[n]) is fetch:
                        del shared.fetches[missing[n]]
        blocks |= {n: block for n, f in others.items() if (block := _awaited(f).get(missing[n])) is not None}
        failed = [n for n in others if n not in blocks]
        return blocks | (self._fetch(path, failed, file_size) if failed else {})

    def _fetch(self, path: str, numbers: Sequence[int], file_size: int | None) -> dict[int, Block]:
        """Read blocks of the store: neighbours by one request; the first request tells an unknown size."""
        size = self._options.block_size
        runs = _runs(numbers)
        parts: builtins.list[bytes] = []
        if file_size is None:
            offset, length = runs[0].start * size, len(runs[0]) * size
            data, file_size = self._store.read_part(path, offset, length)
            if len(data) != min(length, max(0, file_size - offset)):
                raise StorageUnavailable(
                    f"cannot read {path}: the store returned fewer bytes than requested; try again"
                )
            parts.append(data)
        cuts = [(run.start * size, min(run.stop * size, file_size) - run.start * size) for run in runs[len(parts) :]]
        within = [cut if cut[1] > 0 else (0, 0) for cut in cuts]
        parts += self._store.read_ranges(path, within) if any(length for _, length in within) else [b"" for _ in cuts]
        return {
            n: Block(part if len(run) == 1 else part[i * size : (i + 1) * size], file_size)
            for run, part in zip(runs, parts)
            for i, n in enumerate(run)
        }


def _awaited(fetch: Future[dict[str, Block]]) -> dict[str, Block]:
    """The blocks of another thread's fetch; none if it failed or does not end."""
    try:
        return fetch.result(_PATIENCE_SECONDS)
    except TimeoutError:
        return {}


def _runs(numbers: Sequence[int]) -> list[range]:
    """Increasing numbers as ranges of neighbours.

    >>> _runs([1, 2, 3, 7])
    [range(1, 4), range(7, 8)]
    """
    runs: list[range] = []
    for n in numbers:
        if runs and runs[-1].stop == n:
            runs[-1] = range(runs[-1].start, n + 1)
        else:
            runs.append(range(n, n + 1))
    return runs
