"""Curves: ranks are shares of a sample, z-order is bits in turn, a Hilbert curve visits every point beside the last."""

from __future__ import annotations

import decimal
import itertools

import numpy as np
import pyarrow as pa
import pytest

from bitlake.write.z_order import bits_for, bounds_of, hilbert, ranks, zorder


@pytest.mark.parametrize(("dimensions", "bits"), [(1, 5), (2, 1), (2, 4), (3, 3), (4, 2)])
def test_a_hilbert_curve_takes_single_steps_through_every_point(dimensions: int, bits: int) -> None:
    points = np.array(list(itertools.product(range(1 << bits), repeat=dimensions)), np.int64)
    places = hilbert([points[:, i].copy() for i in range(dimensions)], bits)
    assert sorted(places.tolist()) == list(range(len(points)))
    steps = np.abs(np.diff(points[np.argsort(places)], axis=0))
    assert (steps.sum(axis=1) == 1).all()


def test_zorder_takes_bits_in_turn() -> None:
    rng = np.random.default_rng(1)
    a, b, c = (rng.integers(0, 16, 50) for _ in range(3))
    for x, y, z, got in zip(a.tolist(), b.tolist(), c.tolist(), zorder([a, b, c], 4).tolist(), strict=True):
        text = "".join(format(v, "04b")[i] for i in range(4) for v in (x, y, z))
        assert got == int(text, 2)


@pytest.mark.parametrize(
    "values",
    [
        [5, None, 3, 3, -7, 100, None, 8],
        ["b", None, "", "a long value", "a", "z"],
        [1.5, float("inf"), None, -2.0, 0.0],
        [decimal.Decimal("1.50"), None, decimal.Decimal("-3.25")],
        [True, False, None],
        [None, None],
    ],
)
def test_ranks_follow_the_order_of_values(values: list[object]) -> None:
    column = pa.array(values)
    bounds = bounds_of(column, 4)
    got = ranks(column, bounds, 4).tolist()
    assert max(got) < 16
    for (v, r), (w, s) in itertools.product(zip(values, got, strict=True), repeat=2):
        if v is None:
            assert r == 0
        elif w is not None:
            assert (r < s) == (v < w), "a sample of everything tells all values apart"  # type: ignore[operator]
            assert r > 0


def test_ranks_are_even_shares() -> None:
    values = pa.array(np.random.default_rng(2).lognormal(0, 3, 10_000))
    counts = np.bincount(ranks(values, bounds_of(values.slice(0, 2000), 3), 3))
    assert len(counts) <= 8 and counts[2:-1].min() > 1000


def test_columns_of_few_and_of_many_values_weigh_the_same() -> None:
    """Days of two years had ranks of ten bits beside numbers of sixteen, and so were hardly in any order."""
    random = np.random.default_rng(3)
    columns = [pa.array(random.integers(0, most, 64_000)) for most in (700, 1 << 40)]
    place = zorder([ranks(c, bounds_of(c, 16), 16) for c in columns], 16)
    for column in columns:
        pages = column.to_numpy()[np.argsort(place)].reshape(64, 1000)
        middle = np.median(column.to_numpy())
        held = ((pages.min(axis=1) <= middle) & (pages.max(axis=1) >= middle)).mean()
        assert held < 0.3, "one value is in about an eighth of 64 pages, and in some that lie across"


def test_ranks_of_all_columns_fit_one_number() -> None:
    assert [bits_for(n) for n in (1, 3, 4, 20, 63)] == [16, 16, 15, 3, 1]
