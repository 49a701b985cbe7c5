"""Orders of Java hash maps, which Paimon's writers leave in their files.

Readers do not care about them; they are reproduced so that files come out byte for byte as Java writes them.  A bucket
is ``(h ^ h >>> 16) & (capacity - 1)``, ascending; capacity starts at 16 and doubles above three quarters full; a resize
keeps the order inside a bucket.  ``put`` appends to its bucket and resizes after inserting; ``computeIfAbsent``
prepends, and resizes at the start of the *next* call.  (Buckets that Java turns into trees, eight collisions in a map
of 64 or more, may come out in another order than Java's.)

Source: index-format spec, sections 1.2 and 3.4.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bitlake.codec.hashing import Int32s, Int64s

_FIRST_CAPACITY = 16


def compute_if_absent_order(hashes: Int32s, called_again: bool) -> Int64s:
    """Iteration order of a map filled by ``computeIfAbsent``.

    ``hashes``: the distinct keys' Java hashes in order of their first insertion.  ``called_again``: whether any call
    (also for a key that is there already) followed the last insertion.  Returns indices into ``hashes``.
    """
    n = len(hashes)
    bucket = _buckets(hashes, n if called_again else n - 1)
    latest_first = np.arange(n - 1, -1, -1, dtype=np.int64)
    order: Int64s = latest_first[np.argsort(bucket[::-1], kind="stable")]
    return order


def put_order(names: Sequence[str]) -> list[str]:
    """Iteration order of a map with string keys filled by ``put`` with these distinct names."""
    hashes = np.array([string_hash(n) for n in names], np.int32)
    return [names[i] for i in np.argsort(_buckets(hashes, len(names)), kind="stable")]


def absent_order(names: Sequence[str]) -> list[str]:
    """Iteration order of a map with string keys filled by ``computeIfAbsent`` with these names, repeats included."""
    distinct = list(dict.fromkeys(names))
    hashes = np.array([string_hash(n) for n in distinct], np.int32)
    called_again = bool(names) and names[-1] in names[:-1]
    return [distinct[i] for i in compute_if_absent_order(hashes, called_again)]


def string_hash(text: str) -> int:
    """``String.hashCode``: the 31-polynomial over UTF-16 units, a signed 32-bit integer."""
    h = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        h = (31 * h + (high << 8 | low)) & 0xFFFFFFFF
    return h - (1 << 32) if h >> 31 else h


def long_hashes(values: Int64s) -> Int32s:
    """``Long.hashCode`` of every value."""
    return (values ^ (values >> 32)).astype(np.int32)


def _buckets(hashes: Int32s, size_at_last_check: int) -> npt.NDArray[np.uint32]:
    capacity = _FIRST_CAPACITY
    while size_at_last_check * 4 > capacity * 3:
        capacity *= 2
    h = hashes.view(np.uint32)
    return (h ^ (h >> np.uint32(16))) & np.uint32(capacity - 1)
