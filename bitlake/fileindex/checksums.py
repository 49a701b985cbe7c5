"""Checksums of an index container, in the head's redundant bytes, where every other reader skips them.

The block is the end of the head (a rewrite's mark may stand before it in the redundant bytes)::

    size   type   name          meaning
    4 * n  u4     chunk sums    xxh32 (seed 0) of each chunk of the body; the last chunk may be short
    1      u1     chunk bits    a chunk has 2^bits bytes, 8 … 24; 0: no sums of the body, n is 0
    4      bytes  magic         "BLx1"
    4      u4     head sum      xxh32 (seed 0) of all bytes of the head before it

All integers big-endian; n = the body's bytes / the chunk's, rounded up, so it is not stored.  A chunk is verified when
bytes of it are first fetched; a reader that wants 10 bytes fetches 4 KB, and never the whole payload.  A body of more
than 4 MB gets none: its sums would be read before the first value could be looked up, which may take 64 KB in all.
``docs/decisions/0005-index-checksums.md`` has the reasons and numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import xxhash

from bitlake.errors import CorruptError

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
    """The sums of a container's body, which starts at ``start`` and ends at ``end``."""

    start: int
    end: int
    chunk: int
    sums: Sequence[int]

    def bounds(self, low: int, high: int) -> tuple[int, int]:
        """``[low, high)`` of the container, widened to whole chunks where it is in the body."""
        if high <= self.start:
            return low, high
        first = low if low < self.start else self.start + (low - self.start) // self.chunk * self.chunk
        last = self.start - (self.start - high) // self.chunk * self.chunk
        return first, min(last, self.end)

    def verify(self, part: memoryview, at: int) -> int:
        """Check the whole chunks of ``part``, which begins ``at`` a chunk's start or before the body.

        Returns how many bytes of it are good to use; raises :class:`CorruptError` naming the first chunk that is not.
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
    """Bytes of the block for a body of so many bytes."""
    return (4 * -(-body // (1 << CHUNK_BITS)) if body <= MOST_BODY else 0) + _LEAST


def encode_block(head: bytes, body: bytes) -> bytes:
    """The block for a body, and for the head's bytes before the block."""
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
    """The checksums of the body, at the end of a container's head, or None if it has none.

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
    count = -(-body // (1 << bits)) if bits in _BITS else -1
    if count < 0 or 4 * count > redundant - _LEAST:
        raise CorruptError(f"the file index has no checksums for a body of {body} bytes: it was cut or grown", at)
    sums = struct.unpack_from(f">{count}I", head, at - 4 * count)
    return Checksums(len(head), size, 1 << bits, sums)
