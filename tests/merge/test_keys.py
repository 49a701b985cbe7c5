"""Keys and sequences as numbers, and sections of overlapping key ranges."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitlake.merge.interval_partition import interval_partition
from bitlake.merge.keys import equality_codes, group_rows, order_codes, stable_argsort

NAN = float("nan")
ORDERED = [
    pa.array([None, -(2**63), -1, 0, 2**63 - 1], pa.int64()),
    pa.array([None, float("-inf"), -1.5, -0.0, 0.0, 1.5, float("inf"), NAN], pa.float64()),
    pa.array([None, -1.5, -0.0, 0.0, 1.5, NAN], pa.float32()),
    pa.array([None, False, True]),
    pa.array([None, "", "a", "é", "\U0001f600"]),
    pa.array([None, b"", b"\x01", b"\xff"]),
    pa.array([None, Decimal("-9.9"), Decimal("0.0"), Decimal("9.9")], pa.decimal128(30, 1)),
    pa.array([None, date(1960, 1, 1), date(2020, 1, 1)]),
    pa.array([None, datetime(1960, 1, 1), datetime(2020, 1, 1)], pa.timestamp("us")),
]


@pytest.mark.parametrize("column", ORDERED, ids=lambda c: str(c.type))
def test_codes_are_ordered_as_the_values(column: pa.Array) -> None:
    rows = np.random.default_rng(3).permutation(np.repeat(np.arange(len(column)), 3))
    shuffled = pa.chunked_array([column.take(pa.array(rows))])
    codes = order_codes(shuffled)
    assert np.array_equal(np.unique(codes, return_inverse=True)[1], rows)
    equal = equality_codes(shuffled)
    assert len(np.unique(equal)) == len(column)
    assert all(len(np.unique(equal[rows == i])) == 1 for i in range(len(column)))
    down = order_codes(shuffled, descending=True)
    wanted = np.where(rows == 0, 0, len(column) - rows)  # NULL stays the smallest
    assert np.array_equal(np.unique(down, return_inverse=True)[1], wanted)


def test_rows_are_grouped_by_all_keys() -> None:
    keys = [pa.array([1, 1, 2, 1]), pa.array(["a", "b", "a", "a"])]
    groups = group_rows(keys, [np.array([3, 0, 0, 1])])
    assert sorted(groups.order[s : s + n].tolist() for s, n in zip(groups.starts, groups.sizes)) == [[1], [2], [3, 0]]
    assert sorted(groups.last.tolist()) == [0, 1, 2]


@pytest.mark.parametrize("columns", [(0,), (4,), (1, 4), (4, 6), (6,), (5, 0), (2, 3, 7)])
def test_groups_come_in_key_order(columns: tuple[int, ...]) -> None:
    random = np.random.default_rng(1)
    for sort in (False, True):
        made = [ORDERED[c].slice(1) for c in columns]  # keys are never NULL
        picks = [random.integers(0, len(m), 60) for m in made]
        if sort:
            order = np.lexsort(picks[::-1])
            picks = [p[order] for p in picks]
        keys = [m.take(pa.array(p)) for m, p in zip(made, picks, strict=True)]
        ordering = [random.integers(0, 3, 60), np.arange(60)[::-1]]
        groups = group_rows(keys, ordering, key_order=True)
        rows = list(zip(*[p.tolist() for p in picks], ordering[0].tolist(), ordering[1].tolist(), strict=True))
        assert [rows[i] for i in groups.order.tolist()] == sorted(rows)
        assert len(groups) == len({r[:-2] for r in rows})
        first = [rows[groups.order[s]][:-2] for s in groups.starts.tolist()]
        assert first == sorted(set(first))


@pytest.mark.parametrize("span", [1, 5, 2**20, 2**61, 2**63])
def test_rows_are_sorted_as_lexsort_does_packed_or_not(span: int) -> None:
    random = np.random.default_rng(span % 97)
    for rows in (0, 1, 2, 1000):
        codes = [random.integers(-span, span, rows, np.int64) for _ in range(2)]
        assert stable_argsort(codes).tolist() == np.lexsort(tuple(reversed(codes))).tolist()
        assert stable_argsort(codes[:1]).tolist() == np.argsort(codes[0], kind="stable").tolist()
        assert stable_argsort([codes[0] * 0]).tolist() == list(range(rows))


ranges = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6)).map(lambda p: (p[0], p[0] + p[1])), max_size=12)


@given(ranges)
def test_sections_share_no_key_and_are_as_small_as_can_be(made: list[tuple[int, int]]) -> None:
    found: list[list[tuple[int, int]]] = interval_partition(made, lambda r: ((r[0],), (r[1],)))
    assert sorted(x for s in found for x in s) == sorted(made)
    covered = [{k for low, high in s for k in range(low, high + 1)} for s in found]
    assert sum(map(len, covered)) == len(set().union(*covered))
    for keys in covered:
        assert all(any(low <= k and k + 1 <= high for low, high in made) for k in range(min(keys), max(keys)))


def test_keys_of_any_value_compare() -> None:
    made: list[Any] = [((None, 1.0), (None, NAN)), (("a", NAN), ("b", None)), (("c", 1.0), ("c", 2.0))]
    assert len(interval_partition(made, lambda r: r)) == 3
