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
from array import array
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from bitlake import _clock
from bitlake.errors import BitlakeError, InvalidRequest, StorageUnavailable
from bitlake.io.base import (
    WHOLE_FILE_BYTES,
    DelegatingStore,
    Range,
    Store,
    absolute_path,
    check_ends,
    check_ranges,
    check_whole,
    scheme_of,
)
from bitlake.io.local import strip_scheme
from bitlake.io.remote_files import ranged_input
from bitlake.metadata.option_types import parse_bool, parse_memory
from bitlake.runtime import Cache, CacheBudget

PREFIX = "local-cache."
"""The prefix of the options, as of Paimon's catalogs."""
SESSION_PREFIX = "spark.bitlake." + PREFIX
"""The prefix of the same options as settings of a Spark session."""
FILE_KINDS = ("meta", "global-index", "bucket-index", "data", "file-index")
"""Kinds of files, by the names that Paimon gives them in ``local-cache.whitelist``."""
_DEFAULT_KINDS = "meta,global-index"
_DEFAULT_BLOCK = 1 << 20
_BLOCK_SIZES = (4 << 10, 64 << 20)
"""The least and the largest block: every block is a request, and is decoded as a whole."""
_MEMORY_BYTES = 256 << 20
_DISK_BYTES = 10 << 30
"""The size of a cache without ``local-cache.max-size``, as in pypaimon.  Paimon's Java engines have no limit then."""
_NAMES = ("enabled", "dir", "max-size", "block-size", "whitelist")
_REMEDY = f"choose another one as '{PREFIX}dir', or set '{PREFIX}enabled' to false"
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_FOLDER = "bitlake-blocks-1"
_BLOCK_NAME = re.compile(r"[0-9a-f]{64}")
_TRAILER = 12
_USED_SECONDS = 60.0
"""A block's modification time is renewed if it is older."""
_SCAN_MARKER, _SCAN_SECONDS = "looked", 600.0
"""A process looks at a folder when it first writes a block, if none has done so for ten minutes."""
_LEFTOVER_SECONDS = 3600.0
"""A hidden file of this age is left by a process that was killed."""
_FETCH_WAIT_SECONDS = 60.0
"""A thread waits this long for another thread's fetch, then fetches the blocks itself."""
_MAX_SIZES = 100_000


class Block(NamedTuple):
    """A block's bytes, and the size of its file.  ``is_hit``: the cache had it, and it was not fetched."""

    data: bytes
    file_size: int
    is_hit: bool = False


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
    kinds = frozenset(k.strip().lower() for k in (values.get("whitelist") or _DEFAULT_KINDS).split(",") if k.strip())
    if kinds - set(FILE_KINDS):
        raise InvalidRequest(
            f"unknown kind of file '{min(kinds - set(FILE_KINDS))}' in '{PREFIX}whitelist'; expected some of "
            f"{', '.join(FILE_KINDS)}"
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
    return strip_scheme(absolute_path(given, f"the storage option '{PREFIX}dir'"))


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
    """Return the kind of a file that never changes, of :data:`FILE_KINDS`; None for files that may be replaced.

    >>> file_kind("s3://b/t/bucket-0/data-6f9619ff-8b86-d011-b42d-00c04fc964ff-0.parquet")
    'data'
    >>> file_kind("s3://b/t/snapshot/snapshot-1") is None
    True
    """
    name = path.rpartition("/")[2]
    if _UUID.search(name) is None or name.startswith((".", "tag-", "consumer-", "service-")):
        return None
    if path.rpartition("/")[0].rpartition("/")[2].startswith("."):
        return None  # in a hidden folder are files of one job, which reads them once
    if name.endswith(".index"):
        return "global-index" if "global-index-" in name else "file-index"
    if "manifest" in name or name.startswith("stat-"):
        return "meta"
    return "bucket-index" if name.startswith("index-") else "data"


# --- where blocks are kept --------------------------------------------------------------------------------------------


class BlockCache(Protocol):
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


class MemoryBlockCache:
    """Keeps blocks in this process's memory."""

    def __init__(self, size: int) -> None:
        self._cache: Cache[str, Block] = Cache(CacheBudget(size))

    def get(self, key: str) -> Block | None:
        """See :meth:`BlockCache.get`."""
        return self._cache.get(key)

    def put(self, key: str, block: Block) -> None:
        """See :meth:`BlockCache.put`."""
        self._cache.put(key, block, len(block.data) + len(key))

    def discard(self, key: str) -> None:
        """See :meth:`BlockCache.discard`."""
        self._cache.discard(key)

    @property
    def is_failing(self) -> bool:
        """Never."""
        return False

    def clear(self) -> None:
        """Drop all blocks."""
        self._cache.clear()


class DiskBlockCache:
    """Keeps blocks in a folder of the local disk; the layout is this module's.

    Processes that share the folder count what they write themselves, and look at the folder again after an eighth of
    its size: together they may exceed it by that much each.
    """

    def __init__(self, folder: str, size: int, block_size: int) -> None:
        self._root = f"{folder}/{_FOLDER}"
        self._max_size = size
        self._longest = block_size + _TRAILER
        self._lock = threading.Lock()
        self._written_since_scan: int | None = None
        """Bytes written since the folder was last looked at; None: nothing was written yet."""
        self._failed_ms: int | None = None
        """When a block could not be written; None: the last one could."""

    def get(self, key: str) -> Block | None:
        """See :meth:`BlockCache.get`."""
        path = self._path(key)
        try:
            with open(path, "rb") as file:
                raw = file.read(self._longest + 1)
                used = os.fstat(file.fileno()).st_mtime
        except OSError:
            return None
        if _clock.now_ms() / 1000 - used > _USED_SECONDS:
            with suppress(OSError):  # the folder may be readable only
                os.utime(path)
        data, size, checksum = raw[:-_TRAILER], raw[-_TRAILER:-4], raw[-4:]
        valid = zlib.crc32(size, zlib.crc32(data)) == int.from_bytes(checksum, "little")
        if not valid or not _TRAILER <= len(raw) <= self._longest:
            self.discard(key)
            return None
        return Block(data, int.from_bytes(size, "little"))

    def put(self, key: str, block: Block) -> None:
        """See :meth:`BlockCache.put`."""
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
        """See :meth:`BlockCache.discard`."""
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
            first = self._written_since_scan is None
            self._written_since_scan = (self._written_since_scan or 0) + length
            if self._written_since_scan <= self._max_size // 8 and not (first and self._is_scan_due()):
                return
            self._written_since_scan = 0
        self._evict()

    def _is_scan_due(self) -> bool:
        """Whether no process has looked at the folder lately."""
        try:
            seen = os.stat(f"{self._root}/{_SCAN_MARKER}").st_mtime
        except OSError:
            return True
        return _clock.now_ms() / 1000 - seen > _SCAN_SECONDS

    def _evict(self) -> None:
        """If less than an eighth of the size is free, delete the least recently used blocks until a quarter is."""
        with suppress(OSError), open(f"{self._root}/{_SCAN_MARKER}", "w") as mark:
            mark.write("The time of this file is when a process last looked at the sizes of all blocks.\n")
        now = _clock.now_ms() / 1000
        times, sizes = array("d"), array("q")  # and no paths, of which there may be a million
        for path, state in self._files():
            if _BLOCK_NAME.fullmatch(path.rpartition("/")[2]):
                times.append(state.st_mtime)
                sizes.append(state.st_size)
            elif path.endswith(".tmp") and now - state.st_mtime > _LEFTOVER_SECONDS:
                with suppress(OSError):
                    os.unlink(path)
        excess = sum(sizes) - self._max_size * 3 // 4
        if excess <= self._max_size // 8:
            return
        used, order = np.frombuffer(times), np.argsort(times)
        removed = np.cumsum(np.frombuffer(sizes, np.int64)[order])
        latest = used[order[min(int(np.searchsorted(removed, excess)), len(order) - 1)]]
        for path, state in self._files():
            if excess <= 0:
                return
            if state.st_mtime <= latest and _BLOCK_NAME.fullmatch(path.rpartition("/")[2]):
                with suppress(OSError):
                    os.unlink(path)
                excess -= state.st_size

    def _files(self) -> Iterator[tuple[str, os.stat_result]]:
        with suppress(OSError), os.scandir(self._root) as folders:
            for folder in folders:
                if len(folder.name) == 2 and folder.is_dir(follow_symlinks=False):
                    yield from self._files_in(folder.path)

    def _files_in(self, folder: str) -> Iterator[tuple[str, os.stat_result]]:
        with suppress(OSError), os.scandir(folder) as files:
            for file in files:
                with suppress(OSError):  # another process deletes, too
                    if file.is_file(follow_symlinks=False):
                        yield file.path, file.stat(follow_symlinks=False)


class _Shared:
    """State that stores of this process share whose options are equal, ``kinds`` aside; it stays from task to task."""

    def __init__(self, options: CacheOptions) -> None:
        self.blocks: BlockCache = (
            MemoryBlockCache(options.max_size)
            if options.folder is None
            else DiskBlockCache(options.folder, options.max_size, options.block_size)
        )
        self.lock = threading.Lock()
        self.fetches: dict[str, Future[dict[str, Block]]] = {}
        """Running fetches by the key of each of their blocks, for other threads that want these."""
        self.sizes: dict[str, int] = {}
        """Sizes of files, by the key of their first block."""


@functools.cache
def _process_state() -> dict[tuple[int, CacheOptions], _Shared]:
    """By process, since a fork has neither the threads nor the state of the locks of its parent."""
    return {}


def _shared(options: CacheOptions) -> _Shared:
    key = os.getpid(), replace(options, kinds=frozenset())
    return _process_state().get(key) or _process_state().setdefault(key, _Shared(options))


class _Hits(threading.local):
    """Bytes that a thread read from local caches."""

    bytes = 0


_hits = _Hits()


def hit_bytes() -> int:
    """Return how many bytes this thread has read from local caches."""
    return _hits.bytes


def clear_memory() -> None:
    """Drop the blocks in this process's memory."""
    for shared in list(_process_state().values()):
        if isinstance(shared.blocks, MemoryBlockCache):
            shared.blocks.clear()


def check_folder(options: CacheOptions) -> None:
    """Create the folder of a cache; raises :class:`InvalidRequest` if it cannot be written.

    For the process that a user connects in; elsewhere such a folder serves the blocks that it has.
    """
    if options.folder is None:
        return
    root = f"{options.folder}/{_FOLDER}"
    try:
        os.makedirs(root, mode=0o700, exist_ok=True)
        writable = os.access(root, os.W_OK | os.X_OK)
    except OSError as e:
        raise InvalidRequest(f"cannot create the local cache's folder {options.folder}: {e.strerror}; {_REMEDY}") from e
    if not writable:
        raise InvalidRequest(f"cannot write the local cache's folder {options.folder}; {_REMEDY}")


# --- the store --------------------------------------------------------------------------------------------------------


class CachedStore(DelegatingStore):
    """A remote :class:`~bitlake.io.base.Store` whose unchanging files are read through a local cache."""

    def __init__(self, store: Store, options: CacheOptions) -> None:
        self._store = store
        self._options = options
        self._location = repr(store.location)

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

    def store_at(self, path: str) -> Store:
        """The store below."""
        return self._store

    def delete_all(self, paths: Sequence[str]) -> None:
        """See :meth:`Store.delete_all`."""
        self._store.delete_all(paths)

    def rename(self, source: str, target: str) -> None:
        """See :meth:`Store.rename`."""
        self._store.rename(source, target)

    # --- reading ---------------------------------------------------------------------------------------------------

    def _is_cacheable(self, path: str) -> bool:
        return file_kind(path) in self._options.kinds

    def read(self, path: str, limit: int = WHOLE_FILE_BYTES) -> bytes:
        """The whole file: from blocks if the first one is kept, else by one request.  Errors are the store's."""
        if not self._is_cacheable(path):
            return self._store.read(path, limit)
        kept = _shared(self._options).blocks
        first = kept.get(self._key(path, 0))
        if first is None:
            data = self._store.read(path, limit)
            size = self._options.block_size
            for number in range(0 if kept.is_failing else max(1, -(-len(data) // size))):
                block = Block(data[number * size : (number + 1) * size], len(data))
                kept.put(self._key(path, number), block)
            return data
        check_whole(path, first.file_size, limit)
        if len(first.data) < first.file_size:
            return self.read_range(path, 0, first.file_size)
        _hits.bytes += first.file_size
        return first.data

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """A range, as by :meth:`read_ranges`."""
        return self.read_ranges(path, [(offset, length)])[0]

    def read_ranges(self, path: str, ranges: Sequence[Range]) -> builtins.list[bytes]:
        """Several ranges; the missing blocks are fetched together.  Errors are the store's."""
        if not self._is_cacheable(path) or not any(length for _, length in ranges):
            return self._store.read_ranges(path, ranges)
        check_ranges(path, ranges)
        blocks = self._read(path, ranges)
        if blocks is None:
            return self._store.read_ranges(path, ranges)
        check_ends(path, ranges, next(iter(blocks.values())).file_size)
        return [self._cut(blocks, each) for each in ranges]

    def read_part(self, path: str, offset: int, length: int) -> tuple[bytes, int]:
        """The bytes that the file has, and its size."""
        if not self._is_cacheable(path):
            return self._store.read_part(path, offset, length)
        wanted = (offset, max(1, length))
        blocks = self._read(path, [wanted])
        if blocks is None:
            return self._store.read_part(path, offset, length)
        return self._cut(blocks, wanted)[:length], next(iter(blocks.values())).file_size

    def open_input(self, path: str, size: int | None = None) -> Any:
        """An Arrow file that reads ranges."""
        if not self._is_cacheable(path):
            return self._store.open_input(path, size)
        return ranged_input(self.read_range, path, self.size(path) if size is None else size)

    def _numbers(self, each: Range) -> range:
        """The numbers of the blocks with a range's bytes."""
        (offset, length), size = each, self._options.block_size
        return range(offset // size, -(-(offset + length) // size)) if length else range(0)

    def _cut(self, blocks: Mapping[int, Block], each: Range) -> bytes:
        """The bytes of a range, of which all blocks are there."""
        numbers, size, (offset, length) = self._numbers(each), self._options.block_size, each
        if not numbers:
            return b""
        for n in numbers:
            if blocks[n].is_hit:
                within = min(offset + length, n * size + len(blocks[n].data)) - max(offset, n * size)
                _hits.bytes += max(0, within)
        start = numbers[0] * size
        data = blocks[numbers[0]].data if len(numbers) == 1 else b"".join(blocks[n].data for n in numbers)
        return data[offset - start : offset - start + length]

    def _key(self, path: str, number: int) -> str:
        parts = (self._location, path, str(self._options.block_size), str(number))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def drop_cached(self, path: str) -> None:
        """Drop the blocks of a file."""
        if not self._is_cacheable(path):
            return
        shared, first = _shared(self._options), self._key(path, 0)
        block, size = shared.blocks.get(first), shared.sizes.pop(first, None)
        size = size if block is None else block.file_size
        if size is None:
            with suppress(BitlakeError):  # a file that is gone, or that cannot be reached
                size = self._store.size(path)
        for number in self._numbers((0, max(1, size or 0))):
            shared.blocks.discard(self._key(path, number))

    # --- missing blocks --------------------------------------------------------------------------------------------

    def _read(self, path: str, ranges: Sequence[Range]) -> dict[int, Block] | None:
        """Return the blocks of ranges; those beyond the file's end are empty.

        None if blocks are missing, and could not be kept.
        """
        shared = _shared(self._options)
        keys = {n: self._key(path, n) for n in sorted({n for each in ranges for n in self._numbers(each)})}
        stored = ((n, shared.blocks.get(key)) for n, key in keys.items())
        blocks = {n: block._replace(is_hit=True) for n, block in stored if block is not None}
        missing = {n: key for n, key in keys.items() if n not in blocks}
        if missing and shared.blocks.is_failing:
            return None
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
                    if running is None or (running.done() and key not in running.result()):
                        shared.fetches[key] = fetch
                        own.append(n)
                    else:
                        others[n] = running
            # Another thread may have fetched some since they were looked for.
            stored = ((n, shared.blocks.get(missing[n])) for n in own)
            blocks = {n: block for n, block in stored if block is not None}
            wanted = [n for n in own if n not in blocks]
            if wanted:
                blocks |= self._fetch(path, wanted, file_size)
                if len(shared.sizes) >= _MAX_SIZES:
                    shared.sizes.clear()
                shared.sizes[self._key(path, 0)] = blocks[wanted[0]].file_size
            fetch.set_result({missing[n]: block for n, block in blocks.items()})
            for n in wanted:
                if blocks[n].data or not n:  # not what lies beyond the file's end
                    shared.blocks.put(missing[n], blocks[n])
        finally:  # also where the user interrupts a query: others must not wait for it
            if not fetch.done():
                fetch.set_result({})
            with shared.lock:
                for n in own:
                    if shared.fetches.get(missing[n]) is fetch:
                        del shared.fetches[missing[n]]
        blocks |= {n: block for n, f in others.items() if (block := _awaited(f).get(missing[n])) is not None}
        failed = {n: missing[n] for n in others if n not in blocks}
        return blocks | (self._fetched(shared, path, failed, file_size) if failed else {})

    def _fetch(self, path: str, numbers: Sequence[int], file_size: int | None) -> dict[int, Block]:
        """Read blocks of the store, neighbours by one request.  The first request returns a size that is unknown."""
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
        return fetch.result(_FETCH_WAIT_SECONDS)
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
