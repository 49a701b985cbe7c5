"""The greatest partition, what its text looks like, and the files of partitions that a condition chooses."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bitlake
from bitlake.errors import InvalidRequest
from bitlake.snapshot.partitions import files_of_partitions, max_partition
from bitlake.table.table import Table


def table_of(root: Path, kind: pa.DataType, *partitions: str) -> Table:
    schema = pa.schema([("p", kind), ("q", pa.int32()), ("v", pa.int32())])
    return bitlake.connect(str(root / "lake")).create_table("t", schema, partition_by=list(partitions))


def greatest(table: bitlake.Table) -> str:
    state = table._core.state()
    return max_partition(state, state.entries())


@pytest.mark.parametrize(("kind", "values", "text"), [
    (pa.int32(), [9, 10, -1], "10"),
    (pa.string(), ["9", "10", ""], "9"),
    (pa.date32(), [date(2024, 2, 1), date(1969, 12, 31), date(2023, 12, 31)], "2024-02-01"),
])  # fmt: skip
def test_the_greatest_value_of_the_first_column(
    tmp_path: Path, kind: pa.DataType, values: list[Any], text: str
) -> None:
    table = table_of(tmp_path, kind, "p", "q")
    for some in ([None], []):
        table.append(pa.table({"p": pa.array(some, kind), "q": pa.array([99] * len(some), pa.int32())}))
        with pytest.raises(InvalidRequest, match="has no partitions with rows"):
            greatest(table)
    numbers = pa.array(range(len(values)), pa.int32())
    table.append(pa.table({"p": pa.array(values, kind), "q": numbers, "v": numbers}))
    assert greatest(table) == text


def test_a_table_without_partitions_has_no_greatest(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="is not partitioned"):
        greatest(table_of(tmp_path, pa.int32()))


FILES = [(1, "a"), (1, None), (2, "a"), (None, "b"), (3, "c")]


@pytest.mark.parametrize(("where", "chosen"), [
    (None, [0, 1, 2, 3, 4]),
    ("p = 1", [0, 1]),
    ("p <> 1", [2, 4]),
    ("p = 1 AND q = 'a'", [0]),
    ("q IS NULL OR p IS NULL", [1, 3]),
    ("q = 'a'", [0, 2]),
    ("p + 1 = 3", [2]),
    ("p = 9", []),
    ("1 = 1", [0, 1, 2, 3, 4]),
    ("1 = 2", []),
])  # fmt: skip
def test_a_condition_chooses_the_files_of_partitions_for_which_it_is_true(
    tmp_path: Path, where: str | None, chosen: list[int]
) -> None:
    schema = pa.schema([("p", pa.int32()), ("q", pa.string()), ("v", pa.int32())])
    table = bitlake.connect(str(tmp_path / "lake")).create_table("t", schema, partition_by=["p", "q"])
    assert list(files_of_partitions(table._core.state(), where, "UTC")) == []
    for i, (p, q) in enumerate(FILES):
        table.append(pa.table({"p": [p], "q": [q], "v": [i]}, schema=schema))
    state = table._core.state()
    added = list(state.entries())
    assert list(files_of_partitions(state, where, "UTC")) == [added[i] for i in chosen]


def test_only_partition_columns_choose_files(tmp_path: Path) -> None:
    whole = table_of(tmp_path / "whole", pa.int32())
    columns = {n: pa.array([1], pa.int32()) for n in ("p", "q", "v")}
    whole.append(pa.table(columns))
    state = whole._core.state()
    with pytest.raises(InvalidRequest, match=r"t': the condition names 'p', .* columns \(there are none\) can"):
        files_of_partitions(state, "v = 1 AND p = 1", "UTC")
    assert list(files_of_partitions(state, "1 = 1", "UTC")) == list(state.entries())
    assert files_of_partitions(state, "1 = 2", "UTC") == []
    parted = table_of(tmp_path / "parted", pa.int32(), "p", "q")
    with pytest.raises(InvalidRequest, match=r"the condition names 'v', but only partition columns \(p, q\) can"):
        files_of_partitions(parted._core.state(), "v = 1 AND p = 1", "UTC")
