"""How work items become Spark tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bitlake
from bitlake.spark.runner import OPEN_BYTES, TARGET_BYTES, pack

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("sizes", "tasks"),
    [
        ([], []),
        ([0], [range(1)]),
        # Two cores: each has half of the bytes.
        ([OPEN_BYTES] * 4, [range(2), range(2, 4)]),
        # An item that is larger than a task is read whole by one.
        ([TARGET_BYTES * 3, 0, 0], [range(1), range(1, 3)]),
        ([0] * 5000, 157),
    ],
)
def test_pack(spark: Any, sizes: list[int], tasks: Any) -> None:
    cores = spark.sparkContext.defaultParallelism
    found = pack(spark, sizes)
    assert [i for task in found for i in task] == list(range(len(sizes))), "each item once, in order"
    if isinstance(tasks, int):
        assert len(found) == tasks
    elif cores == 2:
        assert found == tasks


@pytest.mark.parametrize("key", [(), ("id",)], ids=["chosen rows", "merge on read"])
def test_many_small_files_are_few_tasks(spark: Any, tmp_path: Path, key: tuple[str, ...]) -> None:
    """Each file was a task: the table of a read of 5,000 small files took minutes to schedule."""
    lake = bitlake.connect(str(tmp_path), spark=spark, progress=False)
    options = {"bucket": "100", **({} if key else {"bucket-key": "id"})}
    table = lake.create_table("t", pa.schema([("id", pa.int64())]), primary_key=key, options=options)
    rows = pa.table({"id": range(1000)})
    for _ in range(2 if key else 1):
        table.upsert(rows) if key else table.append(rows)
    lake.sql("SET spark.paimon.read.spark-path = workers")
    try:
        frame = lake.sql("SELECT id FROM t WHERE id >= 0")
        assert frame.rdd.getNumPartitions() == 4
        assert sorted(frame.toArrow()["id"].to_pylist()) == list(range(1000))
    finally:
        lake.sql("RESET spark.paimon.read.spark-path")
