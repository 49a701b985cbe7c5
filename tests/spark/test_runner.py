"""How work items become Spark tasks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T

import bitlake
from bitlake.spark.runner import OPEN_BYTES, TARGET_BYTES, pack, read_packed
from bitlake.spark.types import spark_batches

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
        # Opening files makes at most four tasks for each core, and large files as many as they need.
        ([0] * 5000, 4),
        ([0] * 5000 + [TARGET_BYTES // 2] * 20, None),
    ],
)
def test_pack(spark: Any, sizes: list[int], tasks: Any) -> None:
    cores = spark.sparkContext.defaultParallelism
    found = pack(spark, sizes)
    assert [i for task in found for i in task] == list(range(len(sizes))), "each item once, in order"
    if isinstance(tasks, int):
        assert tasks * cores <= len(found) <= tasks * cores + 1
    elif tasks is None:
        assert max(sum(sizes[i] for i in task) for task in found) <= TARGET_BYTES + TARGET_BYTES // 2
    elif cores == 2:
        assert found == tasks


@pytest.mark.parametrize("at_once", [1, 3])
def test_a_task_reads_items_in_parallel(spark: Any, at_once: int) -> None:
    def read(number: int, item: str) -> Iterator[pa.Table]:
        threads = sum(thread.name.startswith("bitlake-read") for thread in threading.enumerate())
        yield pa.table({"item": [f"{number}{item}"], "threads": pa.array([threads], pa.int32())})

    types = T.StructType([T.StructField("item", T.StringType()), T.StructField("threads", T.IntegerType())])
    rows = read_packed(spark, "abcdefgh", [1] * 8, types, read, at_once=at_once).collect()
    assert [row.item for row in rows] == ["0a", "1b", "2c", "3d", "4e", "5f", "6g", "7h"]
    assert max(row.threads for row in rows) == (0 if at_once == 1 else at_once)


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


def test_listing_many_small_files_takes_few_tasks(spark: Any, tmp_path: Path) -> None:
    """Spark's reader looked at each given path in a task of its own: 5,000 files took half a minute to plan."""
    lake = bitlake.connect(str(tmp_path), spark=spark, progress=False)
    schema = pa.schema([("id", pa.int64())])
    table = lake.create_table("t", schema, options={"bucket": "100", "bucket-key": "id"})
    table.append(pa.table({"id": range(1000)}))
    context = spark.sparkContext
    context.setJobGroup("listing", "files of a table")
    setting = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
    lake.sql("SET spark.paimon.read.spark-path = spark")
    try:
        frame = lake.sql("SELECT id FROM t WHERE id >= 0")
        status = context.statusTracker()
        stages = [s for j in status.getJobIdsForGroup("listing") for s in status.getJobInfo(j).stageIds]
        tasks = sum(info.numTasks for s in stages if (info := status.getStageInfo(s)) is not None)
        assert 0 < tasks <= 4 * context.defaultParallelism
        assert spark.conf.get(setting) == "10000", "the session is left as it was"
        assert sorted(frame.toArrow()["id"].to_pylist()) == list(range(1000))
    finally:
        lake.sql("RESET spark.paimon.read.spark-path")
        context.setLocalProperty("spark.jobGroup.id", None)


def test_small_tables_share_a_batch() -> None:
    """Each file of a few rows was a batch of its own, which costs Spark as much as a thousand rows."""
    schema = pa.schema([("id", pa.int64()), ("s", pa.string())])
    small = [pa.table({"id": [i], "s": [str(i)]}) for i in range(25_000)]
    batches = list(spark_batches(iter(small), schema))
    assert [b.num_rows for b in batches] == [10_000, 10_000, 5_000]
    assert pa.Table.from_batches(batches).equals(pa.concat_tables(small).cast(schema))
    wide = [pa.table({"id": [i], "s": ["x" * (3 << 20)]}) for i in range(4)]
    assert [b.num_rows for b in spark_batches(iter(wide), schema)] == [3, 1]
    assert list(spark_batches(iter([]), schema)) == []
    counted = [pa.table({"": pa.nulls(n)}).select([]) for n in (2, 3)]
    assert sum(b.num_rows for b in spark_batches(iter(counted), pa.schema([]))) == 5
