from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bitlake.codec.binary_row import encode_row
from bitlake.codec.bucket import bucket_of, murmur_words, row_hash
from bitlake.errors import InvalidRequest
from bitlake.types import arrow_type, parse_type

M = 0xFFFFFFFF


def plain_murmur(data: bytes) -> int:
    h = 42
    for i in range(0, len(data), 4):
        w = int.from_bytes(data[i : i + 4], "little") * 0xCC9E2D51 & M
        w = (w << 15 | w >> 17) * 0x1B873593 & M
        h ^= w & M
        h = ((h << 13 | h >> 19) & M) * 5 + 0xE6546B64 & M
    h ^= len(data)
    h = (h ^ h >> 16) * 0x85EBCA6B & M
    h = (h ^ h >> 13) * 0xC2B2AE35 & M
    return h ^ h >> 16


# Worked values of Paimon's own function for 16 buckets: table-format spec, section 7.
@pytest.mark.parametrize(
    ("made", "value", "hashed", "bucket"),
    [
        ("INT", -42081, 493681470, 14),
        ("STRING", "k0", 340790665, 9),
        ("INT", None, -1748325344, 0),
        ("DECIMAL(20, 3)", None, -1380280760, 8),
        ("TIMESTAMP(6)", None, -340882661, 5),
    ],
)
def test_worked_values(made: str, value: Any, hashed: int, bucket: int) -> None:
    kind = parse_type(made)
    array = pa.array([value], arrow_type(kind))
    assert row_hash([kind], [array]).view(np.int32).tolist() == [hashed]
    assert bucket_of([kind], [array], 16).tolist() == [bucket]


def test_many_rows_of_many_lengths() -> None:
    rng = random.Random(5)
    kinds = [parse_type("STRING"), parse_type("BIGINT")]
    texts = [
        None if rng.random() < 0.1 else "x" * rng.choice([0, 3, 7, 8, 20, rng.randint(0, 300)]) for _ in range(400)
    ]
    texts.append("long" * 5000)
    numbers = [rng.randint(-(2**62), 2**62) for _ in texts]
    got = row_hash(kinds, [pa.array(texts), pa.array(numbers)]).tolist()
    assert got == [plain_murmur(encode_row(kinds, r)) for r in zip(texts, numbers)]


def test_few_rows_and_none() -> None:
    words = np.arange(10, dtype=np.uint32)
    got = murmur_words(words, np.array([0, 4, 10]))
    assert got.tolist() == [plain_murmur(words[:4].tobytes()), plain_murmur(words[4:].tobytes())]
    assert bucket_of([parse_type("INT")], [pa.array([], pa.int32())], 3).tolist() == []


def test_mod() -> None:
    kind = parse_type("INT")
    assert bucket_of([kind], [pa.array([-7, 7, None, 0], pa.int32())], 5, "mod").tolist() == [3, 2, 0, 0]
    with pytest.raises(InvalidRequest, match="mod"):
        bucket_of([parse_type("STRING")], [pa.array(["a"])], 5, "mod")


def java_decimal_hash(value: Decimal) -> int:
    if value == 0:
        return 0
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    unscaled, scale = int("".join(map(str, digits))), -exponent
    while scale > 0 and unscaled % 10 == 0:
        unscaled, scale = unscaled // 10, scale - 1
    h = 0
    for shift in (96, 64, 32, 0):
        h = (h * 31 + (unscaled >> shift & M)) & M
    return ((-h if sign else h) * 31 + scale) & M


def test_hive_against_a_plain_version() -> None:
    def text(b: bytes) -> int:
        h = 0
        for x in b:
            h = (h * 31 + (x - 256 if x > 127 else x)) & M
        return h

    texts = ["", "abc", "é😀 long text", None]
    kind = parse_type("DECIMAL(38, 6)")
    decimals = [Decimal("1.500000"), Decimal("-12345678901234567890123456789012.000100"), Decimal(0), None]
    numbers = [1, -1, 2**40, None]
    got = bucket_of(
        [parse_type("STRING"), kind, parse_type("BIGINT")],
        [pa.array(texts), pa.array(decimals, arrow_type(kind)), pa.array(numbers)],
        1000,
        "hive",
    ).tolist()
    want = []
    for t, d, n in zip(texts, decimals, numbers):
        h = text((t or "").encode())
        h = (h * 31 + (0 if d is None else java_decimal_hash(d))) & M
        n = n or 0
        h = (h * 31 + ((n & M) ^ (n >> 32 & M))) & M
        want.append((h & 0x7FFFFFFF) % 1000)
    assert got == want
    floats = pa.array([0.0, -0.0, 1.0], pa.float32())
    assert bucket_of([parse_type("FLOAT")], [floats], 7, "hive").tolist() == [0, 0, 0x3F800000 % 7]
    with pytest.raises(InvalidRequest, match="TIMESTAMP"):
        bucket_of([parse_type("TIMESTAMP(3)")], [pa.array([1], pa.timestamp("ms"))], 7, "hive")


def test_refusals() -> None:
    with pytest.raises(InvalidRequest, match="0 buckets"):
        bucket_of([parse_type("INT")], [pa.array([1], pa.int32())], 0)
    with pytest.raises(InvalidRequest, match="unknown bucket function"):
        bucket_of([parse_type("INT")], [pa.array([1], pa.int32())], 2, "crc")
