"""How many distinct values a column has, told by the smallest hashes of them: a KMV sketch.

Of hashes spread evenly over 0 to 2^64, the k-th smallest of n lies near k/n of the way: k - 1 divided by where it lies
estimates n, with a standard error of 1/sqrt(k - 2), 2.2 % for k = 2048.  Fewer than k hashes count exactly.  Two
sketches unite by keeping the k smallest of both, so files are looked at apart and in any order.
Source: Bar-Yossef et al., "Counting distinct elements in a data stream", 2002.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bitlake.codec.hashing import UInt64s, number_hash, xxh64

SIZE = 2048
_ALL = float(2**64)


@dataclass(frozen=True, slots=True)
class DistinctSketch:
    """The smallest :data:`SIZE` hashes (sorted, each once) of the values seen so far."""

    hashes: UInt64s

    @staticmethod
    def of(hashes: UInt64s) -> DistinctSketch:
        """The sketch of values with these hashes, in any order and any number of times."""
        if len(hashes) > 4 * SIZE:
            # Repeated values may stand among the smallest: more than enough of them are kept before sorting.
            limit = np.partition(hashes, 4 * SIZE - 1)[4 * SIZE - 1]
            few = np.unique(hashes[hashes <= limit])
            hashes = few if len(few) >= SIZE else hashes
        return DistinctSketch(np.unique(hashes)[:SIZE])

    @staticmethod
    def union(sketches: Iterable[DistinctSketch]) -> DistinctSketch:
        """The sketch of all values that any of them saw."""
        parts = [s.hashes for s in sketches]
        return DistinctSketch.of(np.concatenate(parts) if parts else np.zeros(0, np.uint64))

    @property
    def estimate(self) -> float:
        """About how many distinct values there were; exact below :data:`SIZE`."""
        if len(self.hashes) < SIZE:
            return float(len(self.hashes))
        return (SIZE - 1) / (float(self.hashes[-1]) / _ALL)


def hash_values(values: pa.Array) -> UInt64s:
    """64-bit hashes of flat values without NULL: uint64, one each; equal values of a type have equal hashes."""
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind):
        return _mixed(xxh64(values))
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return _mixed(xxh64(values.cast(pa.large_binary())))
    if pa.types.is_floating(kind):
        bits = values.cast(pa.float64()).to_numpy(zero_copy_only=False) + 0.0  # -0.0 is 0.0
        return _mixed(bits.view(np.uint64))
    if pa.types.is_boolean(kind):
        values = values.cast(pa.int8())
    elif pa.types.is_date32(kind) or pa.types.is_time32(kind):
        values = values.cast(pa.int32())
    elif pa.types.is_decimal(kind):
        return _mixed(xxh64(values.cast(pa.string())))
    return _mixed(values.cast(pa.int64()).to_numpy(zero_copy_only=False).view(np.uint64))


def _mixed(words: UInt64s) -> UInt64s:
    # Paimon's mix alone shifts arithmetically, which leaves small numbers' hashes a little uneven.
    with np.errstate(over="ignore"):
        mixed = number_hash(words.view(np.int64)).view(np.uint64)
        mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0x9E3779B185EBCA87)
        spread: UInt64s = mixed ^ (mixed >> np.uint64(29))
    return spread
