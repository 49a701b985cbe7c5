from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from bitlake.codec import roaring
from bitlake.codec.roaring import EMPTY, bitmap_of, deserialize, positions_of, serialize, serialize_many, serialize_mask
from bitlake.errors import BitlakeError, CorruptError


def check(groups: list[list[int]]) -> None:
    bounds = np.concatenate(([0], np.cumsum([len(g) for g in groups]))).astype(np.int64)
    positions = np.array([p for g in groups for p in g], np.int64)
    data, offsets = serialize_many(positions, bounds)
    assert len(offsets) == len(groups) + 1 and offsets[-1] == len(data)
    for g, rows in enumerate(groups):
        assert data[offsets[g] : offsets[g + 1]] == serialize(BitMap(rows)), g
        if len(rows) == 0 or rows[-1] < 2**30:
            mask = np.zeros(rows[-1] + 1 if rows else 0, bool)
            mask[rows] = True
            assert serialize_mask(mask) == serialize(BitMap(rows)), g


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sets(st.integers(0, 400_000) | st.integers(0, 60) | st.integers(65530, 65545), max_size=80)))
def test_many_small_groups_equal_croaring(groups: list[set[int]]) -> None:
    check([sorted(g) for g in groups])


def test_runs_bitsets_and_offset_headers_equal_croaring() -> None:
    rng = random.Random(3)
    far = [sorted(rng.sample(range(70000 * k, 70000 * k + 3000), 2000)) for k in range(6)]
    check(
        [
            list(range(5)),
            list(range(4)),
            [0, 1, 2, 3, 9, 10, 11, 12, 13],
            list(range(4096)),
            list(range(4097)),
            [],
            sorted(rng.sample(range(65536), 4096)),
            sorted(rng.sample(range(65536), 4097)),
            sorted(rng.sample(range(300_000), 60_000)),
            list(range(65000, 66000)),
            [65535, 65536],
            [p + 65536 * k for k in range(3) for p in range(10)],
            [p + 65536 * k for k in range(4) for p in range(10)],
            [p + 65536 * k for k in range(9) for p in (range(10) if k % 2 else (1, 5))],
            [p + 65536 * k for k in range(20) for p in (range(10) if k % 3 else (1, 5))],
            [p for part in far for p in part],
            [2**31 - 1],
            [p for p in range(200_000) if p % 5],
            [p for p in range(200_000) if p % 64 not in (0, 63)],
            [p for p in range(70_000) if p % 1000 < 900],
        ]
    )
    check([])
    check([[], []])


@pytest.mark.parametrize("rows", [[], [0], list(range(9)), [1, 70000], list(range(0, 20000, 2)), list(range(300000))])
def test_round_trip(rows: list[int]) -> None:
    data = serialize(BitMap(rows))
    bitmap, size = deserialize(data + b"more", 300000)
    assert bitmap == BitMap(rows) and size == len(data)
    assert positions_of(bitmap).tolist() == rows
    assert bitmap_of(np.array(rows, np.int64)) == bitmap


def test_positions_beyond_the_file_are_corrupt() -> None:
    for rows in ([5], list(range(10)), list(range(0, 20000, 2))):
        deserialize(serialize(BitMap(rows)), rows[-1] + 1)
        with pytest.raises(CorruptError, match=f"row {rows[-1]}"):
            deserialize(serialize(BitMap(rows)), rows[-1])


def test_mutated_bytes_are_refused_or_read() -> None:
    rng = random.Random(5)
    seeds = [serialize(BitMap(r)) for r in ([1, 5, 9], list(range(50)), list(range(0, 200000, 7)), [1, 70000, 140000])]
    seeds.append(serialize(BitMap([p + 65536 * k for k in range(5) for p in range(10)])))
    for _ in range(3000):
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(min(len(data), 64))] = rng.randrange(256)
        cut = bytes(data[: rng.randint(0, len(data))] if rng.random() < 0.3 else data)
        try:
            bitmap, _ = deserialize(cut, 300_000)
        except BitlakeError:
            continue
        rows = positions_of(bitmap)
        assert len(rows) == len(bitmap) and (np.diff(rows) > 0).all() and (len(rows) == 0 or rows[-1] < 300_000)


def test_empty() -> None:
    assert serialize(BitMap()) == EMPTY


def test_the_check_of_few_positions_says_what_the_whole_check_says() -> None:
    rng = random.Random(1)
    quick = 0
    for _ in range(3000):
        base = rng.choice([0, 3 * 65536])
        bad = bytearray(BitMap(rng.sample(range(base, base + 300), rng.randrange(1, 80))).serialize())
        for _ in range(rng.choice([0, 0, 1, 2])):
            bad[rng.randrange(len(bad))] = rng.choice([0, 1, 255, rng.randrange(256)])
        data, limit = bytes(bad) + b"more", rng.choice([4 * 65536, 200, 300])
        found = roaring._checked_few(data, limit)
        if found:
            assert found == roaring._checked_size(np.frombuffer(data, np.uint8), limit)
            quick += 1
    assert quick > 500


@pytest.mark.parametrize(
    "rows", [[0, 9], list(range(10)), [p + 65536 * k for k in range(5) for p in range(3 * k, 3 * k + 9)], [1, 70000]]
)
def test_every_cut_is_refused(rows: list[int]) -> None:
    """A bitmap that ends early is damage, wherever it ends; bytes after its end are not its own."""
    data = serialize(BitMap(rows))
    for end in range(len(data)):
        with pytest.raises(CorruptError):
            deserialize(memoryview(data[:end]), 2**31)
    found, size = deserialize(memoryview(data + b"\1\2\3"), 2**31)
    assert size == len(data) and list(found) == rows
    with pytest.raises(CorruptError, match=f"row {rows[-1]} of {rows[-1]} rows"):
        deserialize(memoryview(data), rows[-1])
    assert deserialize(memoryview(data), rows[-1] + 1)[1] == len(data)
