from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
import xxhash

from bitlake.codec.hashing import number_hash, string_buffers, xxh64

KINDS = [pa.binary(), pa.large_binary(), pa.binary_view()]


def plain(values: list[bytes]) -> list[int]:
    return [xxhash.xxh64_intdigest(v) for v in values]


@pytest.mark.parametrize("kind", KINDS)
def test_xxh64_of_many_lengths(kind: pa.DataType) -> None:
    rng = random.Random(1)
    values = [rng.randbytes(n) for n in range(140) for _ in range(60 if n % 3 else 5)]
    rng.shuffle(values)
    assert xxh64(pa.array(values, kind)).tolist() == plain(values)


def test_xxh64_of_one_length_empty_and_no_rows() -> None:
    values = [i.to_bytes(8, "big") for i in range(1000)]
    assert xxh64(pa.array(values)).tolist() == plain(values)
    assert xxh64(pa.array([""] * 100)).tolist() == plain([b""] * 100)
    assert xxh64(pa.array([], pa.string())).tolist() == []
    assert len(xxh64(pa.nulls(100, pa.string()))) == 100


def test_xxh64_of_slices_and_dictionaries() -> None:
    texts = [f"wért{i % 13}" * (i % 5) for i in range(500)]
    want = plain([t.encode() for t in texts])
    whole = pa.array(texts)
    assert xxh64(whole.slice(7, 300)).tolist() == want[7:307]
    assert xxh64(whole.dictionary_encode().slice(7, 300)).tolist() == want[7:307]
    holes = pa.array([None, "a", None]).dictionary_encode()
    assert xxh64(holes)[1] == xxhash.xxh64_intdigest(b"a")


def test_number_hash_against_a_plain_version() -> None:
    def wrap(v: int) -> int:
        return (v + 2**63) % 2**64 - 2**63

    def plain_hash(v: int) -> int:
        k = wrap(~v + wrap(v << 21))
        k ^= k >> 24
        k = wrap(k + (k << 3) + (k << 8))
        k ^= k >> 14
        k = wrap(k + (k << 2) + (k << 4))
        k ^= k >> 28
        return wrap(k + (k << 31))

    values = np.array([0, 1, -1, 2**63 - 1, -(2**63), 123456789, -42], np.int64)
    assert number_hash(values).tolist() == [plain_hash(int(v)) for v in values]
    assert values[1] == 1


@pytest.mark.parametrize("rows", [1, 47, 48, 49, 200])
def test_xxh64_of_values_that_end_with_their_buffer(rows: int) -> None:
    """No byte lies after the last value, and a column may have fewer bytes than a word."""
    for length in (0, 1, 2, 3, 4, 7, 8, 9, 31, 32, 33):
        values = [bytes((i + 37 * j) % 256 for j in range(length)) for i in range(rows)]
        data = b"".join(values)
        offsets = np.arange(rows + 1, dtype=np.int32) * length
        exact = pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
        assert xxh64(exact).tolist() == plain(values)


def test_xxh64_of_lengths_around_what_16_bits_hold() -> None:
    values = [bytes([i % 251]) * n for i, n in enumerate([65535, 0, 65536, 1, 65537, 0, 65536, 131072, 65535] * 2)]
    for some in (values, [v for v in values if len(v) < 65537], [v for v in values if len(v) < 65536]):
        assert xxh64(pa.array(some)).tolist() == plain(some)
    assert xxh64(pa.array([], pa.string()).dictionary_encode()).tolist() == []
    assert len(xxh64(pa.array([None, None], pa.string()).dictionary_encode())) == 2


def test_the_buffers_of_columns_without_rows() -> None:
    for array in (pa.array([], pa.string()), pa.array(["a", "b"]).slice(1, 0), pa.array([], pa.binary_view())):
        starts, data = string_buffers(array)
        assert starts.tolist() == [0] and len(data) == 0
