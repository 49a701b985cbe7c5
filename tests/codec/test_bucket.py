from __future__ import annotations

import random
import struct
from datetime import time
from decimal import Context, Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bitlake.codec.binary_row import encode_row
from bitlake.codec.bucket import bucket_of, murmur_words, row_hash
from bitlake.errors import InvalidRequest
from bitlake.types import arrow_type, parse_type

M = 0xFFFFFFFF
WIDE = Context(prec=60)


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


@pytest.mark.parametrize("lengths", [
    [3] * 7, [3] * 8, [3] * 9, [3] * 40, [*range(7)], [*range(8)], [*range(9)], [*range(40)], [0] * 9 + [5],
    [9] + [2] * 8, [2] * 9 + [50] * 8 + [60] * 9, [0, 0], [1],
])  # fmt: skip
def test_runs_of_words_of_any_lengths(lengths: list[int]) -> None:
    """Around the number of rows from which they are finished one by one, of one length and of several."""
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    words = (np.arange(offsets[-1] + 1, dtype=np.uint64) * 2654435761 + 99 & M).astype(np.uint32)
    want = [plain_murmur(words[a:b].tobytes()) for a, b in pairwise(offsets)]
    assert murmur_words(words, offsets).tolist() == want


@pytest.mark.parametrize("function", ["default", "mod", "hive"])
def test_one_bucket_takes_all_rows_and_each_column_has_its_type(function: str) -> None:
    kind = parse_type("BIGINT")
    assert bucket_of([kind], [pa.array([5, -3, None, 2**62])], 1, function).tolist() == [0] * 4
    with pytest.raises(ValueError, match="zip"):
        bucket_of([kind, kind], [pa.array([5])], 4, function)


def hive(kind: str, values: list[Any]) -> list[int]:
    """The hashes without their sign bit."""
    made = parse_type(kind)
    return bucket_of([made], [pa.array(values, arrow_type(made))], 2**31 - 1, "hive").tolist()


def kept(hashes: list[int]) -> list[int]:
    return [(h & 0x7FFFFFFF) % (2**31 - 1) for h in hashes]


@pytest.mark.parametrize(("precision", "scale"), [(38, 0), (38, 6), (38, 38), (20, 3), (10, 0), (10, 2)])
def test_hive_hashes_of_decimals_at_the_borders_of_their_words(precision: int, scale: int) -> None:
    unscaled = [v for bits in (0, 31, 32, 33, 63, 64, 65, 96, 120) for v in (2**bits - 1, 2**bits, 2**bits + 1)]
    unscaled += [10**n for n in range(precision)] + [5 * 2**64, 10 * 2**64, 1000 * 2**64, 123 * 10 ** (precision - 3)]
    values = [Decimal(s * v).scaleb(-scale, WIDE) for v in unscaled if v < 10**precision for s in (1, -1)]
    assert hive(f"DECIMAL({precision}, {scale})", [*values, None]) == kept([*map(java_decimal_hash, values), 0])


def test_hive_hashes_of_plain_columns() -> None:
    def bits(form: str, value: float) -> int:
        return int.from_bytes(struct.pack(form, value), "little")

    doubles = [0.0, -0.0, 1.0, -1.5, 1e300, None]
    words = [0 if not v else bits("<d", v) for v in doubles]
    assert hive("DOUBLE", doubles) == kept([(w ^ w >> 32) & M for w in words])
    floats = [0.0, -0.0, 1.0, -1.5, None]
    assert hive("FLOAT", floats) == kept([0 if not v else bits("<f", v) for v in floats])
    # Java's floatToIntBits and doubleToLongBits know one NaN.
    nans = pa.array([0x7FC00000, 0xFFC00000, 0x7F800001], pa.uint32()).view(pa.float32())
    assert bucket_of([parse_type("FLOAT")], [nans], 2**31 - 1, "hive").tolist() == kept([0x7FC00000] * 3)
    nans = pa.array([0x7FF8 << 48, 0xFFF8 << 48], pa.uint64()).view(pa.float64())
    assert bucket_of([parse_type("DOUBLE")], [nans], 2**31 - 1, "hive").tolist() == kept([0x7FF80000] * 2)
    for precision in (0, 3):  # an Integer in Java: milliseconds of the day
        assert hive(f"TIME({precision})", [time(0, 0, 1), time(23, 59, 59), None]) == [1000, 86_399_000, 0]
    assert hive("BOOLEAN", [True, False, None]) == [1, 0, 0]
    assert hive("BIGINT", [1, 2**32, -1, None, 2**63 - 1]) == kept([1, 1, 0, 0, 0x7FFFFFFF ^ M])
    for kind, most in (("TINYINT", 127), ("SMALLINT", 2**15 - 1), ("INT", 2**31 - 1)):
        assert hive(kind, [most, -most - 1, -1, None]) == kept([most, (-most - 1) & M, M, 0])
    assert hive("BYTES", [b"", b"\xff", b"a\xffb" * 9, None]) == kept([0, M, java_bytes(b"a\xffb" * 9), 0])
    assert hive("STRING", ["", None]) == [0, 0]


def java_bytes(data: bytes) -> int:
    h = 0
    for byte in data:
        h = (h * 31 + (byte - 256 if byte > 127 else byte)) & M
    return h
