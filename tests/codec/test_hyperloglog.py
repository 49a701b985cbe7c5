"""How many distinct values a sketch counts, and how its hashes are Spark's."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
import xxhash

from bitlake.codec.sketches import DistinctSketch, sketch_hashes


def _expected(data: bytes) -> int:
    return xxhash.xxh64_intdigest(data, 42)


@pytest.mark.parametrize(
    ("array", "values"),
    [
        (pa.array([True, None, False]), [b"\1\0\0\0", bytes(4)]),
        (pa.array([-1, 7], pa.int8()), [b"\xff" * 4, b"\7\0\0\0"]),
        (pa.array([1], pa.date32()), [b"\1\0\0\0"]),
        (pa.array([-2], pa.int64()), [b"\xfe" + b"\xff" * 7]),
        (pa.array([-0.0, 0.0, float("nan")], pa.float32()), [bytes(4), bytes(4), b"\0\0\xc0\x7f"]),
        (pa.array([1, None, 3], pa.timestamp("ms")), [np.int64(1000).tobytes(), np.int64(3000).tobytes()]),
        (pa.array([-1], pa.timestamp("ns")), [b"\xff" * 8]),
        (
            pa.array([Decimal("-1.50"), Decimal("2.00")], pa.decimal128(18, 2)),
            [np.int64(n).tobytes() for n in (-150, 200)],
        ),
        (pa.array(["", "abc", "x" * 100]), [b"", b"abc", b"x" * 100]),
        (pa.array(["a", "b", "a"]).dictionary_encode(), [b"a", b"b", b"a"]),
    ],
)
def test_hashes(array: pa.Array, values: list[bytes]) -> None:
    assert sketch_hashes(array).tolist() == [_expected(v) for v in values]


def test_hashes_of_long_decimals() -> None:
    """Java's BigInteger.toByteArray: the fewest bytes with a sign bit."""
    unscaled = [0, 1, -1, 127, 128, -128, -129, 255, 256, 10**37, -(10**37), 2**63, -(2**63), 2**64]
    array = pa.array([Decimal(n) for n in unscaled], pa.decimal128(38, 0))
    expected = [n.to_bytes((n if n >= 0 else ~n).bit_length() // 8 + 1, "big", signed=True) for n in unscaled]
    assert sketch_hashes(array).tolist() == [_expected(b) for b in expected]
    assert sketch_hashes(array[3:6]).tolist() == [_expected(b) for b in expected[3:6]]


@pytest.mark.parametrize("count", [0, 1, 50, 400, 1_000, 1_500, 2_000, 2_600, 10_000, 1_000_000])
def test_estimates_are_right_on_average(count: int) -> None:
    """Of 20 sets of values, through linear counting, the corrected and the plain estimate."""
    rng = np.random.default_rng(count)
    estimates = []
    for _ in range(20):
        sketch, hashes = DistinctSketch(), rng.integers(0, 2**64, count, np.uint64)
        for part in (hashes, hashes[: count // 2]):  # values that are added again do not count
            sketch.add(part)
        estimates.append(sketch.estimate())
    assert abs(np.mean(estimates) - count) <= 0.025 * count
    assert max(abs(e - count) for e in estimates) <= 0.15 * count


def test_the_highest_bits() -> None:
    """The rank of a value is 56 if all bits but the register's are 0, and 1 if the first of them is set."""
    sketch = DistinctSketch()
    sketch.add(np.array([0, 2**55 - 1 + 2**55, 2**54 + 1, 2**54 - 1], np.uint64) | np.uint64(3 << 55))
    assert sketch._registers.tolist() == [0] * 3 + [56] + [0] * 508
    other = DistinctSketch()
    other.add(np.array([2**55 - 1, 2**54 - 1], np.uint64) | np.uint64(1 << 55))
    assert other._registers[1] == 2
