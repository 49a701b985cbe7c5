from __future__ import annotations

import random

import numpy as np
import pyarrow as pa

from bitlake.codec.hashing import (
    absent_order,
    compute_if_absent_order,
    long_hashes,
    murmur_bytes,
    put_order,
    string_hash,
)


class JavaMap:
    """A slow plain model of java.util.HashMap without trees."""

    def __init__(self) -> None:
        self.table: list[list[int]] = []
        self.size = 0

    def _resize(self) -> None:
        old = [k for b in self.table for k in b]
        self.table = [[] for _ in range(len(self.table) * 2 or 16)]
        for k in old:
            self._bucket(k).append(k)

    def _bucket(self, k: int) -> list[int]:
        h = k & 0xFFFFFFFF
        return self.table[(h ^ h >> 16) & (len(self.table) - 1)]

    def compute_if_absent(self, k: int) -> None:
        if not self.table or self.size > len(self.table) * 0.75:
            self._resize()
        if k not in self._bucket(k):
            self._bucket(k).insert(0, k)
            self.size += 1


def test_compute_if_absent_order_is_that_of_the_model() -> None:
    rng = np.random.default_rng(7)
    for n in [1, 2, 11, 12, 13, 14, 24, 25, 26, 100, 500]:
        for again in (False, True):
            keys = rng.choice(2**31, n, replace=False).astype(np.int32)
            model = JavaMap()
            for k in keys.tolist() + keys.tolist()[:1] * again:
                model.compute_if_absent(k)
            want = [k for b in model.table for k in b]
            assert keys[compute_if_absent_order(keys, again)].tolist() == want, (n, again)


def test_string_orders() -> None:
    assert string_hash("") == 0
    assert string_hash("status") == -892481550
    assert string_hash("bloom-filter") == string_hash("bloom-filter")
    # "Aa" and "BB" share a hash: put appends, computeIfAbsent prepends.
    assert put_order(["Aa", "BB"]) == ["Aa", "BB"]
    assert absent_order(["Aa", "BB"]) == ["BB", "Aa"]
    assert absent_order([]) == []


def test_hashes_of_strings_beyond_ascii() -> None:
    """31 times what came before plus each UTF-16 unit, of which a supplementary character has two."""
    assert string_hash("\u4e2d") == 0x4E2D and string_hash("\u4e2d\u6587") == 0x4E2D * 31 + 0x6587
    assert string_hash("\U0001f600") == 0xD83D * 31 + 0xDE00
    assert string_hash("\u4e2d" * 7) == (sum(0x4E2D * 31**i for i in range(7)) + 2**31) % 2**32 - 2**31


def test_absent_order_is_that_of_the_model() -> None:
    """Also with names that come again, last or before; the 13th of a map of 16 buckets makes it grow one call later."""
    rng = random.Random(5)
    for count in [1, 2, 3, 11, 12, 13, 14, 24, 25, 26, 60]:
        distinct = [f"column{rng.randrange(10**6)}" for _ in range(count)]
        for again in ([], distinct[-1:], distinct[:1], distinct[:3]):
            for names in (distinct + again, distinct[:-1] + again + distinct[-1:]):
                model = JavaMap()
                for name in names:
                    model.compute_if_absent(string_hash(name))
                assert [string_hash(n) for n in absent_order(names)] == [k for b in model.table for k in b], names


def test_number_hashes() -> None:
    assert long_hashes(np.array([1, -1, 1 << 32, -(1 << 63)], np.int64)).tolist() == [1, 0, 1, -(1 << 31)]


def test_murmur_of_known_strings_and_any_length() -> None:
    def plain(data: bytes) -> int:
        def mix(h: int, k: int) -> int:
            k = k * 0xCC9E2D51 & 0xFFFFFFFF
            k = (k << 15 | k >> 17) & 0xFFFFFFFF
            h ^= k * 0x1B873593 & 0xFFFFFFFF
            h = (h << 13 | h >> 19) & 0xFFFFFFFF
            return (h * 5 + 0xE6546B64) & 0xFFFFFFFF

        h, whole = 42, len(data) // 4 * 4
        for i in range(0, whole, 4):
            h = mix(h, int.from_bytes(data[i : i + 4], "little"))
        for b in data[whole:]:
            h = mix(h, (b - 256 if b > 127 else b) & 0xFFFFFFFF)
        h ^= len(data)
        h = (h ^ h >> 16) * 0x85EBCA6B & 0xFFFFFFFF
        h = (h ^ h >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
        h ^= h >> 16
        return h - (1 << 32) if h >> 31 else h

    rng = np.random.default_rng(1)
    values = [rng.bytes(n) for n in rng.integers(0, 40, 300)]
    assert murmur_bytes(pa.array(values)).tolist() == [plain(v) for v in values]
    assert murmur_bytes(pa.array([], pa.string())).tolist() == []
    for some in ([b""], [b"ab"], [b"abc"], [b"abcd"], [b"\xff"] * 3):
        data = pa.py_buffer(b"".join(some))
        offsets = pa.py_buffer(np.arange(len(some) + 1, dtype=np.int32) * len(some[0]))
        exact = pa.Array.from_buffers(pa.binary(), len(some), [None, offsets, data])
        assert murmur_bytes(exact).tolist() == [plain(v) for v in some]
