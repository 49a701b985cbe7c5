"""Bitmaps through packed masks against the same made position by position."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from long import exhaustive
from pyroaring import BitMap

from bitlake.codec import roaring
from bitlake.codec.roaring import bitmap_of_any, contains, mask_of

_ranges = st.lists(
    st.tuples(st.integers(0, 40 * 65536), st.integers(1, 3 * 65536), st.integers(1, 200)), min_size=0, max_size=4
)


def _positions(ranges: list[tuple[int, int, int]]) -> np.ndarray:
    return np.concatenate([np.zeros(0, np.int64), *(np.arange(a, a + n, step) for a, n, step in ranges)])


@settings(max_examples=60, deadline=None)
@given(_ranges, st.sampled_from([np.int64, np.uint32, np.int32]), st.booleans(), st.integers(0, 9))
def test_a_bitmap_of_any_positions_is_the_one_made_position_by_position(ranges, dtype, shuffle, seed):
    positions = _positions(ranges).astype(dtype)
    if shuffle:
        np.random.default_rng(seed).shuffle(positions)
    made = bitmap_of_any(positions)
    assert made == BitMap(np.unique(positions).astype(np.uint32))
    made.run_optimize()
    plain = BitMap(np.unique(positions).astype(np.uint32))
    plain.run_optimize()
    assert made.serialize() == plain.serialize()


@settings(max_examples=60, deadline=None)
@given(_ranges, _ranges, st.booleans(), st.sampled_from([100, 5000, 1 << 18]), st.booleans())
def test_contains_agrees_with_set_membership(held, asked, shuffle, chunk, whole):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(roaring, "_CHUNK", chunk)
        patch.setattr(roaring, "_WHOLE", 1 << 25 if whole else -1)
        _check_contains(held, asked, shuffle)


def _check_contains(held, asked, shuffle):
    bitmap = BitMap(_positions(held).astype(np.uint32))
    positions = _positions(asked)
    if shuffle:
        np.random.default_rng(3).shuffle(positions)
    assert np.array_equal(contains(bitmap, positions), np.isin(positions, _positions(held)))


@pytest.mark.parametrize("last", [65535, 65536, 131_071, 140_000])
def test_contains_of_positions_beyond_the_last_row(last):
    bitmap = BitMap(range(last // 2, last + 1))
    positions = np.arange(last + 100_000)
    assert np.array_equal(np.flatnonzero(contains(bitmap, positions)), np.arange(last // 2, last + 1))
    assert not contains(BitMap(), positions).any() and len(contains(bitmap, positions[:0])) == 0


@settings(max_examples=60, deadline=None)
@given(_ranges, _ranges, st.integers(0, (1 << 32) - 50 * 65536), st.sampled_from([1, 4]))
def test_a_bitmap_is_serialized_in_windows_as_at_once(dense, others, start, few):
    """Arrays, bit sets and runs, beside each other in windows or alone, and gaps of whole windows between them."""
    bitmap = BitMap(_positions(dense).astype(np.uint32))
    bitmap |= BitMap((_positions(others) + start).astype(np.uint32))
    bitmap.run_optimize()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(roaring, "_WINDOW", 7 * 65536 if start < 1 << 27 else 4096 * 65536)
        patch.setattr(roaring, "_FEW_WINDOWS", few)
        assert roaring.serialize_after(b"head", bitmap) == b"head" + bitmap.serialize()


@pytest.mark.parametrize("start", [0, exhaustive(5), 65536, exhaustive(70_000), 200_000])
@pytest.mark.parametrize("step", [1, 2, 3, 50])
@pytest.mark.parametrize("stop", [4 * 65536 + 17, 4 * 65536, 4 * 65536 + 30_000])
def test_a_mask_of_part_of_a_bitmap(start, step, stop, monkeypatch):
    monkeypatch.setattr(roaring, "_WINDOW", 2 * 65536)
    rows = np.arange(10, 5 * 65536, step)
    mask = mask_of(BitMap(rows.astype(np.uint32)), start, stop)
    assert len(mask) == stop - start
    assert np.array_equal(np.flatnonzero(mask) + start, rows[(rows >= start) & (rows < stop)])


@pytest.mark.parametrize("cards", [(4096, 4096), (4097, 4095), (5000, 4096), (4097, 4097)])
def test_containers_of_the_size_of_a_bit_set_that_are_none(cards):
    random = np.random.default_rng(1)
    parts = [np.sort(random.choice(65536, n, replace=False)) + 65536 * k for k, n in enumerate(cards)]
    rows = np.concatenate(parts)
    bitmap = BitMap(rows.astype(np.uint32))
    assert np.array_equal(np.flatnonzero(mask_of(bitmap, 0, 2 * 65536)), rows)


def test_positions_up_to_the_last_that_a_bitmap_can_hold():
    positions = np.array([(1 << 32) - 1, 0, (1 << 32) - 65536], np.int64)
    assert sorted(bitmap_of_any(positions)) == [0, (1 << 32) - 65536, (1 << 32) - 1]
    dense = np.arange((1 << 32) - 200_000, 1 << 32)
    assert len(bitmap_of_any(dense)) == 200_000 and bitmap_of_any(dense).max() == (1 << 32) - 1


def _dense(*keys: int) -> np.ndarray:
    """Positions of containers that are bit sets."""
    return np.concatenate([np.arange(0, 65536, 3) + 65536 * key for key in keys])


@pytest.mark.parametrize("keys", [(0,), (0, 1), (0, 2), (1, 2), (2,), (0, 1, 3)])
@pytest.mark.parametrize(("start", "stop"), [(0, 4 * 65536), (65536, 4 * 65536), (5, 2 * 65536 + 9), (3, 3), (9, 5)])
def test_masks_of_bit_sets_with_gaps_between(keys, start, stop):
    rows = _dense(*keys)
    mask = mask_of(BitMap(rows.astype(np.uint32)), start, stop)
    assert len(mask) == max(0, stop - start)
    assert np.array_equal(np.flatnonzero(mask) + start, rows[(rows >= start) & (rows < stop)])


@pytest.mark.parametrize("base", [0, exhaustive(5 * 65536)])
def test_positions_of_any_order_near_and_far(base):
    """Repeated, two alone, and dense beside sparse, each at the start of a container and inside of one."""
    dense = np.arange(base + 70, base + 140_000)
    for positions in (
        np.array([base, base]), np.array([base + 9, base]), np.array([base]), np.array([], np.int64),
        np.repeat(dense, 2), dense[::-1], np.r_[dense, dense[:5]], np.r_[dense[-1:], base],
        np.r_[dense, base + 60 * 65536, base + 70 * 65536 + np.arange(100_000)],
        np.r_[base + 70 * 65536 + np.arange(100_000), dense, base + 60 * 65536],
    ):  # fmt: skip
        assert bitmap_of_any(positions) == BitMap(np.unique(positions).astype(np.uint32))
        asked = np.r_[positions, positions + 1, base + 1_000_000][::-1]
        assert np.array_equal(contains(BitMap(dense.astype(np.uint32)), asked), np.isin(asked, dense))
