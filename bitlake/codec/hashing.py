"""Hashes of whole columns, and the iteration orders of Java hash maps that Paimon's writers leave in their files.

Bloom filters use XXH64 of strings and Paimon's 64-bit number hash; bucket hashes use Murmur3; Spark's sketches of
distinct values use XXH64, seed 42.  Everything wraps.

Orders of Java hash maps do not matter to readers; they are reproduced so that files equal those of Java byte for byte.
A bucket is ``(h ^ h >>> 16) & (capacity - 1)``, ascending; capacity starts at 16 and doubles above three quarters full;
a resize keeps the order inside a bucket.  ``put`` appends to its bucket and resizes after inserting;
``computeIfAbsent`` prepends, and resizes at the start of the *next* call.  (Buckets that Java turns into trees, eight
collisions in a map of 64 or more, may come out in another order than Java's.)

Source: index-format spec, sections 1.2, 2.2 and 3.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

UInt64s = npt.NDArray[np.uint64]
Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_FEW = 48
"""Values of one length below which a call of the C library per value beats some sixty numpy calls per length."""


def number_hash(values: Int64s) -> Int64s:
    """Paimon's hash of 64-bit integers; int64 in, int64 out, the input is left alone.

    Thomas Wang's mix; every shift right is arithmetic, as Paimon (Java) has it.
    """
    k: Int64s = (~values) + (values << 21)
    k ^= k >> 24
    k = k + (k << 3) + (k << 8)
    k ^= k >> 14
    k = k + (k << 2) + (k << 4)
    k ^= k >> 28
    k += k << 31
    return k


def xxh64(array: pa.Array, seed: int = 0) -> UInt64s:
    """XXH64 of every value of a string or binary array (also large and dictionary arrays, and slices).

    Returns one uint64 per row; a NULL's hash is that of whatever bytes lie under it, so mask NULLs out.
    """
    if isinstance(array, pa.DictionaryArray):
        hashes = xxh64(array.dictionary, seed)
        codes = array.indices.fill_null(0).to_numpy()
        if len(hashes) == 0:
            return np.zeros(len(codes), np.uint64)
        picked: UInt64s = hashes[codes]
        return picked
    starts, data = string_buffers(array)
    return xxh64_spans(data, starts[:-1], np.diff(starts), seed)


def xxh64_spans(data: npt.NDArray[np.uint8], starts: Int64s, lengths: Int64s, seed: int = 0) -> UInt64s:
    """XXH64 of spans of bytes: where in ``data`` each one starts, and how many bytes it has."""
    out = np.empty(len(lengths), np.uint64)
    if len(lengths) == 0:
        return out
    shortest, longest = int(lengths.min()), int(lengths.max())
    if shortest == longest:
        _hash_same_length(data, starts, shortest, out, slice(None), seed)
        return out
    narrow = lengths.astype(np.uint16) if longest < 65536 else lengths
    order = np.argsort(narrow, kind="stable")  # a radix sort for 16 bits
    ordered = lengths[order]
    cuts = np.flatnonzero(np.diff(ordered)) + 1
    for rows in np.split(order, cuts):
        _hash_same_length(data, starts[rows], int(lengths[rows[0]]), out, rows, seed)
    return out


def string_buffers(array: pa.Array) -> tuple[Int64s, npt.NDArray[np.uint8]]:
    """The (offsets, data) of a string or binary array, honouring slices: len+1 int64 offsets into the uint8 data."""
    kind = array.type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        array = array.cast(pa.large_binary())
        kind = array.type
    wide = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    _, offsets, data = array.buffers()
    if len(array) == 0:  # then even the first offset may be missing
        return np.zeros(1, np.int64), np.zeros(0, np.uint8)
    raw = np.frombuffer(offsets, np.int64 if wide else np.int32)
    starts = raw[array.offset : array.offset + len(array) + 1].astype(np.int64)
    return starts, np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)


def murmur_bytes(array: pa.Array, seed: int | Int32s = 42) -> Int32s:
    """Murmur3-32 of every value of a string or binary array, its last ``length % 4`` bytes mixed one by one, signed.

    That tail rule is Paimon's (a ``BinaryString``'s hash code) and Spark's, not the reference's.  int32 per row.
    ``seed`` is one for all rows, or one for each row.
    """
    starts, data = string_buffers(array)
    lengths = np.diff(starts)
    # Longest first: the rows that still have a word to mix are a prefix.
    order = np.argsort(-lengths, kind="stable")
    at, lengths = starts[:-1][order], lengths[order]
    words = _words(data, 4)
    h = np.broadcast_to(np.asarray(seed, np.int32), (len(at),))[order].view(np.uint32)
    whole = lengths // 4
    for i in range(int(whole[0]) if len(whole) else 0):
        n = int(np.searchsorted(-whole, -i, side="left"))
        h[:n] = _murmur_mix(h[:n], words[at[:n] + 4 * i])
    for i in range(3):
        rows = np.flatnonzero(lengths % 4 > i)
        signed = data[at[rows] + 4 * whole[rows] + i].view(np.int8).astype(np.int32)
        h[rows] = _murmur_mix(h[rows], signed.view(np.uint32))
    out = np.empty(len(h), np.int32)
    out[order] = _murmur_finalize(h, lengths.astype(np.uint32))
    return out


def murmur_numbers(values: npt.NDArray[Any], seed: int | Int32s = 42) -> Int32s:
    """Murmur3-32 of int32 values, or of int64 values as two words, the lower one first.

    ``seed`` is one for all rows, or one for each row.
    """
    seeds = np.broadcast_to(np.asarray(seed, np.int32), values.shape)
    words = np.ascontiguousarray(values).astype(f"<i{values.itemsize}", copy=False).view("<u4")
    h = seeds.copy().view(np.uint32)
    for word in words.reshape(len(values), values.itemsize // 4).T:
        h = _murmur_mix(h, word)
    return _murmur_finalize(h, np.uint32(values.itemsize))


def _murmur_finalize(h: npt.NDArray[np.uint32], lengths: npt.NDArray[np.uint32] | np.uint32) -> Int32s:
    """Mix in the lengths in bytes, and finalize (``fmix32``)."""
    h = h ^ lengths
    h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    h ^= h >> np.uint32(16)
    return h.view(np.int32)


def _words(data: npt.NDArray[np.uint8], size: int) -> npt.NDArray[Any]:
    """A view of every (unaligned) word of ``size`` bytes: word ``s`` starts at byte ``s``."""
    return np.ndarray((max(len(data) - size + 1, 0),), f"<u{size}", data, strides=(1,))


def _murmur_mix(h: npt.NDArray[np.uint32], word: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    k = word * np.uint32(0xCC9E2D51)
    k = ((k << np.uint32(15)) | (k >> np.uint32(17))) * np.uint32(0x1B873593)
    h = h ^ k
    h = (h << np.uint32(13)) | (h >> np.uint32(19))
    mixed: npt.NDArray[np.uint32] = h * np.uint32(5) + np.uint32(0xE6546B64)
    return mixed


def _hash_same_length(
    data: npt.NDArray[np.uint8],
    starts: Int64s,
    length: int,
    out: UInt64s,
    rows: slice | npt.NDArray[np.int64],
    seed: int,
) -> None:
    if len(starts) < _FEW:
        buffer = memoryview(data.data)
        values = [xxhash.xxh64_intdigest(buffer[s : s + length], seed) for s in starts.tolist()]
        out[rows] = np.array(values, np.uint64)
        return
    words8, words4 = _words(data, 8), _words(data, 4)
    at = 0
    if length >= 32:
        v3 = np.full(len(starts), seed, np.uint64)
        v2 = v3 + _P2
        v1 = v2 + _P1
        v4 = v3 - _P1
        while at + 32 <= length:
            v1 = _round(v1, words8[starts + at])
            v2 = _round(v2, words8[starts + (at + 8)])
            v3 = _round(v3, words8[starts + (at + 16)])
            v4 = _round(v4, words8[starts + (at + 24)])
            at += 32
        h = _rotl(v1, 1) + _rotl(v2, 7) + _rotl(v3, 12) + _rotl(v4, 18)
        for v in (v1, v2, v3, v4):
            h = (h ^ _round(np.zeros_like(v), v)) * _P1 + _P4
    else:
        h = np.full(len(starts), seed, np.uint64) + _P5
    h += np.uint64(length)
    while at + 8 <= length:
        h = _rotl(h ^ _round(np.zeros_like(h), words8[starts + at]), 27) * _P1 + _P4
        at += 8
    if at + 4 <= length:
        h = _rotl(h ^ (words4[starts + at].astype(np.uint64) * _P1), 23) * _P2 + _P3
        at += 4
    while at < length:
        h = _rotl(h ^ (data[starts + at].astype(np.uint64) * _P5), 11) * _P1
        at += 1
    h = (h ^ (h >> np.uint64(33))) * _P2
    h = (h ^ (h >> np.uint64(29))) * _P3
    out[rows] = h ^ (h >> np.uint64(32))


def _round(accumulator: UInt64s, word: UInt64s) -> UInt64s:
    return _rotl(accumulator + word * _P2, 31) * _P1


def _rotl(values: UInt64s, by: int) -> UInt64s:
    return (values << np.uint64(by)) | (values >> np.uint64(64 - by))


# --- orders of Java hash maps -----------------------------------------------------------------------------------------

_FIRST_CAPACITY = 16


def compute_if_absent_order(hashes: Int32s, called_again: bool) -> Int64s:
    """Iteration order of a map filled by ``computeIfAbsent``.

    ``hashes``: the distinct keys' Java hashes in order of their first insertion.  ``called_again``: whether any call
    (also for an existing key) followed the last insertion.  Returns indices into ``hashes``.
    """
    n = len(hashes)
    bucket = _buckets(hashes, n if called_again else n - 1)
    latest_first = np.arange(n, dtype=np.int64)[::-1]
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
