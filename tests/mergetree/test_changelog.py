"""Which rows are the same, whatever their types, and the order of changelog rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bitlake.mergetree.compaction import ChangelogMaker, same_rows

NAN = float("nan")
PAIRS = pa.map_(pa.string(), pa.int64())
ROW = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])
COLUMNS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int64(), [None, 0, 1]),
    (pa.float64(), [None, 0.5, NAN, float("inf")]),
    (pa.string(), [None, "", "a"]),
    (pa.binary(), [None, b"", b"a"]),
    (pa.bool_(), [None, True, False]),
    (pa.list_(pa.int64()), [None, [], [1], [1, None], [None, 1], [1, 2]]),
    (pa.list_(pa.list_(pa.float64())), [None, [], [[]], [None], [[NAN]], [[NAN], [1.0]]]),
    (PAIRS, [None, [], [("a", 1)], [("a", None)], [("b", 1)], [("a", 1), ("b", 1)]]),
    (ROW, [None, {"a": None, "b": None}, {"a": 1, "b": []}, {"a": 1, "b": ["x"]}, {"a": 1, "b": [None]}]),
    (pa.list_(ROW), [None, [], [None], [{"a": 1, "b": ["x"]}], [{"a": 1, "b": ["y"]}]]),
    (pa.map_(pa.int32(), ROW), [None, [], [(1, None)], [(1, {"a": 1, "b": ["x"]})]]),
]


@pytest.mark.parametrize(("kind", "values"), COLUMNS, ids=lambda c: str(c) if isinstance(c, pa.DataType) else "")
def test_rows_are_the_same_if_their_values_are(kind: pa.DataType, values: list[Any]) -> None:
    left, right = np.meshgrid(np.arange(len(values)), np.arange(len(values)))
    column = pa.array(values, kind)
    tables = [pa.table({"c": column.take(pa.array(i.ravel()))}) for i in (left, right)]
    assert np.array_equal(same_rows(*tables, ["c"]), (left == right).ravel())
    sliced = [t.slice(2, 3) for t in tables]
    assert np.array_equal(same_rows(*sliced, ["c"]), (left == right).ravel()[2:5])


def rows(values: list[tuple[int, str, int]]) -> pa.Table:
    columns = [[v[i] for v in values] for i in range(3)]
    return pa.table({"k": columns[0], "v": columns[1], "_VALUE_KIND": pa.array(columns[2], pa.int8())})


def test_an_empty_list_equals_one_whatever_follows() -> None:
    left, right = (pa.table({"c": pa.array([[], [n], []], pa.list_(pa.int64()))}) for n in (1, 2))
    assert same_rows(left, right, ["c"]).tolist() == [True, False, True]


def test_changes_come_in_key_order_old_before_new() -> None:
    before = rows([(9, "nothing", 3), (1, "gone", 0), (2, "old", 2), (3, "same", 0)])
    after = rows(
        [(0, "new", 0), (1, "", 3), (2, "now", 0), (3, "same", 2), (4, "never", 3), (5, "kept", 0), (6, "back", 0)]
    )
    place = np.array([-1, 1, 2, 3, -1, 3, 0])
    asked = np.array([True, True, True, True, True, False, True])
    found = [
        [tuple(r.values()) for r in ChangelogMaker(compared).rows(before, place, after, asked).to_pylist()]
        for compared in (None, ("k", "v"))
    ]
    same = [(3, "same", 1), (3, "same", 2)]
    wanted = [(0, "new", 0), (1, "gone", 3), (2, "old", 1), (2, "now", 2), *same, (6, "back", 0)]
    assert found == [wanted, [w for w in wanted if w not in same]]
    none = ChangelogMaker(None).rows(before, place, after, np.zeros(7, bool))
    assert none.num_rows == 0 and none.schema == after.schema


def test_an_old_row_that_is_a_delete_is_none_and_a_single_change_is_enough() -> None:
    before, after = rows([(1, "gone", 3), (2, "undone", 1)]), rows([(1, "a", 0), (2, "b", 3), (3, "c", 2)])
    maker, every = ChangelogMaker(None), np.ones(3, bool)
    found = maker.rows(before, np.array([0, 1, -1]), after, every)
    assert [tuple(r.values()) for r in found.to_pylist()] == [(1, "a", 0), (3, "c", 0)]
    for place in range(2):  # a key that is not in the changelog is not in it, whatever the others are
        chosen = np.arange(3) == 2 * place
        found = maker.rows(before, np.array([0, 1, -1]), after, chosen)
        assert found.column("k").to_pylist() == [1 + 2 * place]
    nothing = maker.rows(before, np.array([0, 1, -1]), after, np.arange(3) == 1)
    assert nothing.num_rows == 0 and nothing.schema == after.schema
