"""Whether two rows of a column hold the same value, against Python's own comparison of nested values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bitlake.merge.keys import same_values

STRUCT = pa.struct([("x", pa.int32()), ("y", pa.string())])
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "number": (pa.int64(), [None, 0, 1, -1]),
    "text": (pa.string(), [None, "", "a", "ab"]),
    "struct": (STRUCT, [None, {"x": None, "y": None}, {"x": 1, "y": None}, {"x": 1, "y": "a"}, {"x": 2, "y": "a"}]),
    "array": (pa.list_(pa.int32()), [None, [], [None], [1], [1, 2], [2, 1], [1, None]]),
    "map": (
        pa.map_(pa.string(), pa.int32()),
        [None, [], [("a", 1)], [("a", None)], [("b", 1)], [("a", 1), ("b", 2)], [("a", 2), ("b", 2)]],
    ),
    "nested": (pa.list_(STRUCT), [None, [], [None], [{"x": 1, "y": "a"}], [{"x": 1, "y": "b"}, None], [None, None]]),
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("shape", ["array", "slice", "chunks"])
def test_every_pair_of_rows(name: str, shape: str) -> None:
    kind, distinct = COLUMNS[name]
    values = [*distinct, *reversed(distinct)]
    column: Any = pa.array(values, kind)
    if shape == "slice":
        column = pa.array([values[-1], *values, values[0]], kind).slice(1, len(values))
    if shape == "chunks":
        column = pa.chunked_array([pa.array(values[:3], kind), pa.array(values[3:], kind)])
    rows = np.arange(len(values))
    left, right = np.repeat(rows, len(rows)), np.tile(rows, len(rows))
    expected = [values[a] == values[b] for a, b in zip(left.tolist(), right.tolist(), strict=True)]
    assert same_values(column, left, right).tolist() == expected
    assert same_values(column, left[:0], right[:0]).tolist() == []
    both_null = np.array([0]), np.array([len(values) - 1])
    assert same_values(column, *both_null).tolist() == [True]


def test_what_lies_below_a_null_does_not_count() -> None:
    numbers = pa.array([1, 2, 1, 3, 4], pa.int32())
    mask = pa.array([True, True, False, False, True])
    rows = np.arange(len(mask))
    left, right = np.repeat(rows, len(rows)), np.tile(rows, len(rows))
    offsets = pa.array([0, 1, 1, 2, 4, 5], pa.int32())
    for column in (
        pa.StructArray.from_arrays([numbers], ["x"], mask=mask),
        pa.ListArray.from_arrays(offsets, numbers, mask=mask),
    ):
        values = column.to_pylist()
        expected = [values[a] == values[b] for a, b in zip(left.tolist(), right.tolist(), strict=True)]
        assert same_values(column, left, right).tolist() == expected
