"""HASH index files of dynamic buckets: the key hashes of one (partition, bucket).

::

    i4 BE x n     distinct hashes, no header; n is the index manifest's row count

A hash is Murmur3 of the trimmed primary key's BinaryRow (:mod:`bitlake.codec.bucket`).  The order is that of a fastutil
open hash set.  Readers ignore it; it is reproduced so that files equal those that Java writes:

* capacity starts at ``array_size(expected)``, expected being 16, or the number of hashes restored from the old file;
* a hash's slot is ``mix(h) & (capacity - 1)`` or the next free one above, around the end;
* when an insertion finds the set at ``ceil(0.75 capacity)`` elements, it is inserted and then all are moved into a
  table for one more, from the highest slot to the lowest;
* the set is read from the highest slot to the lowest; 0 stands aside and comes first.

Source: index-format spec, section 7.1.
"""

from __future__ import annotations

import math

import numpy as np

from bitlake.codec.hashing import Int32s, Int64s
from bitlake.errors import CorruptError, InvalidRequest

_LOAD = 0.75
_EXPECTED = 16
_PHI = np.uint32(0x9E3779B9)


def decode_hashes(data: bytes, row_count: int | None = None) -> Int32s:
    """Return the hashes of a file in its order; ``row_count``: of the index manifest.

    Raises :class:`CorruptError` for a wrong size or a duplicate hash.
    """
    if len(data) % 4:
        raise CorruptError(f"a HASH index of {len(data)} bytes: hashes take 4 each", len(data) & ~3)
    if row_count is not None and len(data) != 4 * row_count:
        raise CorruptError(f"a HASH index of {len(data)} bytes cannot hold {row_count} hashes", 0)
    hashes = np.frombuffer(data, ">i4").astype(np.int32)
    ordered = np.sort(hashes)
    twice = np.flatnonzero(ordered[1:] == ordered[:-1])
    if len(twice):
        value = ordered[twice[0]]
        raise CorruptError(f"hash {value} is in a HASH index twice", 4 * int(np.flatnonzero(hashes == value)[1]))
    return hashes


def encode_hashes(hashes: Int32s) -> bytes:
    """Encode a file of the hashes in the given order; raises :class:`InvalidRequest` for a duplicate."""
    if len(np.unique(hashes)) != len(hashes):
        raise InvalidRequest("a HASH index holds every hash once")
    return hashes.astype(">i4").tobytes()


def java_order(arrived: Int32s, restored: Int32s | None = None) -> Int32s:
    """Return all hashes in the order in which Java writes them.

    ``arrived``: hashes in order of arrival, repeats allowed; ``restored``: the hashes of the bucket's last file, in its
    order.  All insertions between two resizes are placed together, not hash by hash.
    """
    before = np.zeros(0, np.int32) if restored is None else restored
    both = np.concatenate((before, arrived)).astype(np.int32)
    _, first = np.unique(both, return_index=True)
    queue = both[np.sort(first)]
    zero_at = np.flatnonzero(queue == 0)
    zero_at_index = int(zero_at[0]) if len(zero_at) else None
    capacity = _array_size(_EXPECTED if restored is None else len(before))
    table, size = np.zeros(0, np.int32), 0  # in the order of insertion into a table of this capacity
    while True:
        # The insertion that finds the set full is the last of its stage.
        fill = min(math.ceil(capacity * _LOAD), capacity - 1)
        stop = min(len(queue), fill + 1)
        table = np.concatenate((table, queue[size:stop][queue[size:stop] != 0]))
        placed = _place(table, capacity)
        size = stop
        if size <= fill:
            break
        capacity, table = _array_size(size + 1), placed
        if size == len(queue):
            placed = _place(table, capacity)
            break
    return placed if zero_at_index is None else np.concatenate((np.zeros(1, np.int32), placed))


def _array_size(expected: int) -> int:
    wanted = max(2, math.ceil(expected / _LOAD))
    return 1 << (wanted - 1).bit_length()


def _place(hashes: Int32s, capacity: int) -> Int32s:
    """Insert the (distinct, non-zero) hashes in order; returns them from the highest slot to the lowest.

    All hashes request their slot together, a slot keeps the earliest, the others request the next slot.  The result
    equals inserting one after the other, because earlier hashes win every slot.
    """
    if not len(hashes):
        return hashes
    mixed = hashes.view(np.uint32) * _PHI
    slots: Int64s = ((mixed ^ (mixed >> np.uint32(16))) & np.uint32(capacity - 1)).astype(np.int64)
    nobody = len(hashes)
    owner = np.full(capacity, nobody, np.int64)
    asking = np.arange(nobody)
    while len(asking):
        wanted = slots[asking]
        held = owner[wanted]
        np.minimum.at(owner, wanted, asking)
        lost = np.concatenate((asking[owner[wanted] != asking], held[(owner[wanted] != held) & (held != nobody)]))
        asking = np.unique(lost)
        slots[asking] = (slots[asking] + 1) & (capacity - 1)
    order = owner[::-1]
    placed: Int32s = hashes[order[order != nobody]]
    return placed
