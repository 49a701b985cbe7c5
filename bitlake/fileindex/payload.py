"""Payload bytes of a file index: fetched lazily, verified by checksums, and described to ``inspect``.

The checksums are a block in the container head's redundant bytes, which other readers skip.  The block ends the head; a
rewrite's mark may precede it::

    size   type   name          meaning
    4 * n  u4     chunk sums    xxh32 (seed 0) of each chunk of the body; the last chunk may be short
    1      u1     chunk bits    a chunk has 2^bits bytes, 8 … 24; 0: no sums of the body, n is 0
    4      bytes  magic         "BLx1"
    4      u4     head sum      xxh32 (seed 0) of all bytes of the head before it

All integers big-endian; n = the body's bytes / the chunk's, rounded up, so it is not stored.  :class:`LazyBytes`
verifies a chunk when it first fetches it, then keeps it: a reader of 10 bytes fetches 4 KB, not the whole payload.  A
body of more than 4 MB has no sums: they would have to be read before the first lookup, which may read 64 KB in all.
``docs/decisions/0005-index-checksums.md`` has the reasons and numbers.

A description is a tree of :class:`Section` values with offsets, lengths, facts and faults.  Codecs fill them and do not
depend on how they are shown; :mod:`bitlake.tools.inspect` renders them.  Only light modules are imported here, because
inspecting text files needs no arrays.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Self

import xxhash

from bitlake.errors import BitlakeError, CorruptError, NotFound

Fetch = Callable[[int, int], bytes | memoryview]
"""``fetch(offset, length)`` returns exactly ``length`` bytes of an index."""

_NOTHING = memoryview(b"")


class LazyBytes:
    """A lazy view of ``length`` bytes behind ``fetch``.

    A fetch reads at least ``ahead`` bytes, because headers and neighbours are usually needed next, and never fewer than
    ``least``; fetched bytes are kept.  Every access is checked against ``length``.  Thread-safe.
    """

    __slots__ = ("_ahead", "_checksums", "_fetch", "_least", "_lock", "_parts", "_starts", "bytes_read", "length")

    def __init__(self, fetch: Fetch, length: int, ahead: int = 4096, least: int = 0) -> None:
        self._fetch = fetch
        self._ahead = ahead
        self._least = least
        self._lock = Lock()
        self._starts: list[int] = []
        self._parts: list[memoryview] = []
        self._checksums: Checksums | None = None
        self.length = length
        self.bytes_read = 0

    def check(self, checksums: Checksums) -> None:
        """Verify all bytes from now on; raises :class:`CorruptError` for bytes that were fetched already.

        Requires that at most one fetch, from the start, was made.
        """
        with self._lock:
            self._checksums = checksums
            for i, (start, part) in enumerate(zip(self._starts, self._parts, strict=True)):
                self._parts[i] = part[: checksums.verify(part, start)]

    def view(self, offset: int, n: int, ahead: int | None = None) -> memoryview:
        """Return bytes ``[offset, offset + n)``; raises :class:`CorruptError` outside the index or on a short fetch."""
        if offset < 0 or n < 0 or offset + n > self.length:
            raise CorruptError(f"{n} bytes at {offset} are outside of an index of {self.length} bytes", offset)
        head = _NOTHING
        with self._lock:
            i = bisect_right(self._starts, offset) - 1
            if i >= 0:
                at = offset - self._starts[i]
                if at + n <= len(self._parts[i]):
                    return self._parts[i][at : at + n]
                head = self._parts[i][at:]
        if n == 0:
            return _NOTHING
        if len(head):  # only what is missing is fetched
            rest = self.view(offset + len(head), n - len(head), ahead)
            return memoryview(b"".join((head, rest)))
        size = min(max(n, self._ahead if ahead is None else ahead, self._least), self.length - offset)
        start, end = offset, offset + size
        if self._checksums is not None:
            start, end = self._checksums.bounds(start, end)
        got = self._fetch(start, end - start)
        part = (got if isinstance(got, memoryview) else memoryview(got)).cast("B")
        skip = offset - start
        if len(part) < skip + n:
            raise CorruptError(f"the index ends after {start + len(part)} of {self.length} bytes", offset)
        if self._checksums is not None:
            self._checksums.verify(part, start)
        with self._lock:
            self.bytes_read += len(part)
            i = bisect_right(self._starts, start)
            self._starts.insert(i, start)
            self._parts.insert(i, part)
        return part[skip : skip + n]


# --- checksums --------------------------------------------------------------------------------------------------------

MAGIC = b"BLx1"
CHUNK_BITS = 12
MOST_BODY = 4 << 20
_NO_CHUNKS = 0
_TAIL = struct.Struct(">B4s")
_SUM = struct.Struct(">I")
_LEAST = _TAIL.size + _SUM.size
_BITS = range(8, 25)


@dataclass(frozen=True, slots=True)
class Checksums:
    """The checksums of a container's body, which starts at ``start`` and ends at ``end``."""

    start: int
    end: int
    chunk: int
    sums: Sequence[int]

    def bounds(self, low: int, high: int) -> tuple[int, int]:
        """Widen ``[low, high)`` of the container to whole chunks of the body."""
        if high <= self.start:
            return low, high
        first = low if low < self.start else self.start + (low - self.start) // self.chunk * self.chunk
        last = self.start - (self.start - high) // self.chunk * self.chunk
        return first, min(last, self.end)

    def verify(self, part: memoryview, at: int) -> int:
        """Verify the whole chunks of ``part``, which begins ``at`` a chunk's start or before the body.

        Returns how many bytes are verified; raises :class:`CorruptError` naming the first damaged chunk.
        """
        skip = max(0, self.start - at)
        number = (at + skip - self.start) // self.chunk
        while skip < len(part):
            size = min(self.chunk, self.end - at - skip)
            if skip + size > len(part) or size <= 0:
                break
            if xxhash.xxh32_intdigest(part[skip : skip + size]) != self.sums[number]:
                raise CorruptError(f"the checksum of {size} bytes of the index does not match", at + skip)
            skip += size
            number += 1
        return min(skip, len(part))


def block_length(body: int) -> int:
    """Return the length of the block for a body of ``body`` bytes."""
    return (4 * -(-body // (1 << CHUNK_BITS)) if body <= MOST_BODY else 0) + _LEAST


def encode_block(head: bytes, body: bytes) -> bytes:
    """Encode the block for a body, and for the head's bytes before the block."""
    view, chunk = memoryview(body), 1 << CHUNK_BITS
    if len(body) <= MOST_BODY:
        sums = [xxhash.xxh32_intdigest(view[at : at + chunk]) for at in range(0, len(body), chunk)]
        block = struct.pack(f">{len(sums)}I", *sums) + _TAIL.pack(CHUNK_BITS, MAGIC)
    else:
        block = _TAIL.pack(_NO_CHUNKS, MAGIC)
    whole = xxhash.xxh32(head)
    whole.update(block)
    return block + _SUM.pack(whole.intdigest())


def read_block(head: memoryview, redundant: int, size: int) -> Checksums | None:
    """Read the checksums at the end of a container's head.  None if it has none.

    ``redundant``: the redundant bytes at the head's end; ``size``: of the whole container.  Raises
    :class:`CorruptError` when the head's own checksum does not match.
    """
    if redundant < _LEAST:
        return None
    at = len(head) - _LEAST
    bits, magic = _TAIL.unpack_from(head, at)
    if magic != MAGIC:
        return None
    (expected,) = _SUM.unpack_from(head, at + _TAIL.size)
    if xxhash.xxh32_intdigest(head[: len(head) - _SUM.size]) != expected:
        raise CorruptError("the checksum of the file index header does not match", at + _TAIL.size)
    if bits == _NO_CHUNKS:
        return None
    body = max(0, size - len(head))
    count = -(-body >> bits) if bits in _BITS else -1
    if count < 0 or 4 * count > redundant - _LEAST:
        raise CorruptError(f"the file index has no checksums for a body of {body} bytes: it was cut or grown", at)
    sums = struct.unpack_from(f">{count}I", head, at - 4 * count)
    return Checksums(len(head), size, 1 << bits, sums)


# --- description of a payload -----------------------------------------------------------------------------------------

DAMAGE = (
    LookupError,
    TypeError,
    ValueError,
    ArithmeticError,
    AttributeError,
    struct.error,
    MemoryError,
    RecursionError,
)
"""Errors of a parser of damaged bytes besides bitlake's own."""
_MOST_TEXT = 200


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list to show: ``limit`` entries from number ``offset`` on."""

    offset: int = 0
    limit: int = 20

    def of(self, count: int) -> range:
        """Return the numbers of the entries to show of a list of ``count``."""
        return range(min(self.offset, count), min(self.offset + self.limit, count))

    def left(self, count: int) -> int:
        """Return how many entries of a list of ``count`` are not shown."""
        return count - len(self.of(count))


@dataclass(frozen=True, slots=True)
class Fault:
    """A defect of a payload, and its byte offset (None: not known)."""

    what: str
    offset: int | None

    def __str__(self) -> str:
        return self.what if self.offset is None else f"{self.what} (at byte {self.offset:,})"


@dataclass(slots=True)
class Section:
    """One part of a payload or file.  Mutable while it is read.

    ``offset`` and ``size`` in bytes; None where a part has no place of its own, as a record inside of a compressed
    block.  ``facts``: what the part states, plain values by name.  ``more``: parts that are not shown (None: there are
    some, how many is not known without reading on).  ``fault``: where reading this part ended.  ``base``: the offset
    that those given to :meth:`add` count from.
    """

    name: str
    offset: int | None = None
    size: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    children: list[Self] = field(default_factory=list)
    more: int | None = 0
    fault: Fault | None = None
    base: int = field(default=0, repr=False)

    def add(
        self, name: str, offset: int | None = None, size: int | None = None, facts: Mapping[str, Any] | None = None
    ) -> Self:
        """Append and return a new part; facts that are None are left out."""
        place = None if offset is None else self.base + offset
        known = {k: v for k, v in (facts or {}).items() if v is not None}
        self.children.append(type(self)(name, place, size, known, base=self.base))
        return self.children[-1]

    @contextmanager
    def reading(self, base: int | None = None) -> Iterator[None]:
        """Turn an error caused by damaged bytes into this part's fault; its offset counts from ``base``."""
        try:
            yield
        except Exception as e:
            fault = fault_of(e)
            if fault is None:
                raise
            what, offset = fault
            place = self.offset if offset is None else offset + (self.base if base is None else base)
            self.fault = Fault(what, place)


def fault_of(error: Exception) -> tuple[str, int | None] | None:
    """Return (what is wrong, offset or None) for an error that damaged bytes cause.  None for any other error."""
    match error:
        case NotFound():
            return None  # a missing file is not a fault of the one being read
        case CorruptError():
            return error.what, error.offset
        case BitlakeError():
            return str(error), None
        case Exception() if _is_damage(error):
            return f"cannot be understood: {type(error).__name__}: {str(error)[:_MOST_TEXT]}", None
    return None


def _is_damage(error: Exception) -> bool:
    import pyarrow as pa  # imported lazily: text files are inspected without Arrow unless they are damaged

    return isinstance(error, (*DAMAGE, pa.ArrowException, OSError))
