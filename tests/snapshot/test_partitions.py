"""The greatest partition, and what its text looks like."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bitlake
from bitlake.errors import InvalidRequest
from bitlake.snapshot.partitions import max_partition
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
