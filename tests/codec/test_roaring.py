from __future__ import annotations

import random
import struct

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
    check([[3], list(range(0, 10_000, 2)), [1, 2, 9], [], list(range(1, 20_000, 3)), [], [4]])


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


# --- at the limits of the layout --------------------------------------------------------------------------------------


def stretches(runs: int, rows: int, base: int = 0) -> list[int]:
    """``rows`` positions in so many runs, the last one the longest."""
    singles = [base + 2 * i for i in range(runs - 1)]
    return singles + list(range(base + 2 * runs, base + 2 * runs + rows - len(singles)))


def containers(count: int, first: int = 0) -> list[int]:
    """Positions in ``count`` containers, two runs in each but every third, which is an array."""
    parts = [(1, 5) if k % 3 == 2 else stretches(2, 11, 7 * k) for k in range(count)]
    return [p + 65536 * (first + k) for k, part in enumerate(parts) for p in part]


def test_runs_are_stored_from_the_size_on_from_which_they_are_smaller() -> None:
    """2 + 4·runs bytes against 2 a position, or 8,192 of a bit set, of which both sides of each equality are asked."""
    check([stretches(runs, rows) for runs in range(1, 12) for rows in range(2 * runs, 2 * runs + 5)])
    check([stretches(runs, rows) for runs in (2046, 2047, 2048, 2049) for rows in (4095, 4096, 4097, 4098, 9000)])
    kinds = {rows: serialize(BitMap(stretches(2047, rows)))[0] for rows in (4095, 4097)}
    assert kinds == {4095: 0x3A, 4097: 0x3B}, "8,190 bytes of runs equal 4,095 positions and save two of a bit set's"


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17])
@pytest.mark.parametrize("first", [0, 3])
def test_headers_of_each_number_of_containers(count: int, first: int) -> None:
    """Run flags come eight to a byte, offsets from four containers on."""
    rows = containers(count, first)
    check([rows, rows[:-1], rows])
    data = serialize(BitMap(rows))
    found, size = deserialize(data + b"more", rows[-1] + 1)
    assert found == BitMap(rows) and size == len(data)


@pytest.mark.parametrize("card", [4095, 4096, 4097, 5000])
def test_arrays_and_bit_sets_meet_at_4096_positions(card: int) -> None:
    rng = random.Random(card)
    rows = sorted(rng.sample(range(65536), card)) + [65536 + p for p in sorted(rng.sample(range(65536), card))]
    data = serialize(BitMap(rows))
    assert len(data) == 8 + 2 * 8 + 2 * (2 * card if card <= 4096 else 8192)
    found, size = deserialize(data + b"more", rows[-1] + 1)
    assert found == BitMap(rows) and size == len(data)
    with pytest.raises(CorruptError, match=f"row {rows[-1]} of"):
        deserialize(data, rows[-1])
    last_of_first = rows[card - 1]
    with pytest.raises(CorruptError, match=f"row {last_of_first} of"):
        deserialize(data, last_of_first)


def test_as_many_containers_as_there_are_keys() -> None:
    rows = bitmap_of(np.arange(0, 2**32, 65536))
    assert deserialize(rows.serialize(), 2**32)[0] == rows
    with pytest.raises(CorruptError, match="cannot have 65537 containers") as e:
        deserialize(struct.pack("<II", 12346, 65537) + bytes(65537 * 10), 2**32)
    assert e.value.offset == 4
    with pytest.raises(CorruptError, match="cannot start with 0x00003039") as e:
        deserialize(struct.pack("<II", 12345, 0), 9)
    assert e.value.offset == 0


def forged(kind: int, card: int, body: bytes) -> bytes:
    """A bitmap of one container: 0 array or bit set, 1 runs."""
    head = struct.pack("<IBHH", 12347, 1, 0, card - 1) if kind else struct.pack("<IIHHI", 12346, 1, 0, card - 1, 16)
    return head + body


@pytest.mark.parametrize(("card", "runs"), [
    (10, [(0, 5), (5, 3)]), (9, [(0, 5), (4, 2)]), (7, [(9, 3), (0, 2)]), (6, [(0, 5), (8, 0)]), (8, [(0, 5), (8, 0)]),
    (1, []), (2, [(65535, 1)]), (3, [(0, 0), (65535, 1)]),
])  # fmt: skip
def test_runs_that_overlap_or_miscount_are_refused(card: int, runs: list[tuple[int, int]]) -> None:
    body = struct.pack("<H", len(runs)) + b"".join(struct.pack("<HH", *run) for run in runs)
    with pytest.raises(CorruptError, match="not in order, or not as many as it says") as e:
        deserialize(forged(1, card, body), 2**17)
    assert e.value.offset == 9


def test_runs_that_touch_are_refused() -> None:
    """CRoaring would have made one of them."""
    with pytest.raises(CorruptError, match="is not valid") as e:
        deserialize(forged(1, 6, struct.pack("<5H", 2, 0, 2, 3, 2)), 9)
    assert e.value.offset == 0


def test_values_that_repeat_or_miscount_are_refused() -> None:
    wide = bytearray(forged(0, 5000, bytes(8192)))
    wide[16 : 16 + 625] = b"\xff" * 625
    assert len(deserialize(bytes(wide), 65536)[0]) == 5000
    wide[16] = 0x7F
    twice = [*range(100), 99, *range(101, 200)]
    for bad in (bytes(wide), forged(0, 200, struct.pack("<200H", *twice)), forged(0, 2, struct.pack("<2H", 7, 7))):
        with pytest.raises(CorruptError, match="not in order, or not as many as it says") as e:
            deserialize(bad, 65536)
        assert e.value.offset == 16


def test_a_container_is_where_its_offset_says() -> None:
    data = bytearray(serialize(BitMap([1, 70_000, 140_000])))
    data[8 + 3 * 4 + 4] += 1
    with pytest.raises(CorruptError, match="Roaring container 1 is said to be at 35") as e:
        deserialize(bytes(data), 200_000)
    assert e.value.offset == 34
    twice = serialize(BitMap([1, 65_537])).replace(b"\1\0\0\0\x18", b"\0\0\0\0\x18")
    with pytest.raises(CorruptError, match="not in order") as e:
        deserialize(twice, 200_000)
    assert e.value.offset == 8
    swapped = serialize(BitMap([1, 70_000])).replace(b"\0\0\0\0\1\0\0\0", b"\1\0\0\0\1\0\0\0")
    with pytest.raises(CorruptError, match="not in order") as e:
        deserialize(swapped, 200_000)
    assert e.value.offset == 8
