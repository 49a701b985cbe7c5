"""What Spark takes rows that Python workers read for: with bytes of a few task numbers, it broadcast any table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from long import exhaustive

import bitlake
from bitlake.spark import runner
from bitlake.spark.read import scan as spark_scan


@pytest.fixture
def lake(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bitlake.Lake:
    if not hasattr(spark, "_jsparkSession"):
        pytest.skip("Spark Connect shows no statistics")
    monkeypatch.setattr(spark_scan, "DRIVER_ROWS", 0)
    monkeypatch.setattr(spark_scan, "SMALL_BYTES", 0)
    made = bitlake.connect(str(tmp_path / "lake"), spark=spark)
    rows = pa.table({"id": pa.array(range(200_000), pa.int64()), "v": [f"{i * 7919:x}" for i in range(200_000)]})
    for name, way in (("workers", "workers"), ("plain", "spark")):
        table = made.create_table(name, rows.schema, options={"read.spark-path": way, "target-file-row-num": "40000"})
        table.append(rows)
    return made


def size(lake: bitlake.Lake, query: str) -> int:
    frame = lake.sql(query)
    return int(str(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))


@pytest.mark.parametrize("columns", [exhaustive("*"), "id", exhaustive("v")])
def test_they_are_taken_for_as_many_bytes_as_those_of_sparks_reader(lake: bitlake.Lake, columns: str) -> None:
    workers, plain = (size(lake, f"SELECT {columns} FROM {name}") for name in ("workers", "plain"))
    assert 0.5 < workers / plain < 2
    assert lake.sql(f"SELECT {columns} FROM workers").count() == 200_000


def test_a_large_table_is_not_broadcast(lake: bitlake.Lake, spark: Any) -> None:
    query = "SELECT count(*) FROM workers a JOIN plain b ON a.id = b.id"
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "1000")
    try:
        plan = lake.sql(f"EXPLAIN {query}").collect()[0][0]
        assert "SortMergeJoin" in plan and "BroadcastHashJoin" not in plan
        assert lake.sql(query).collect()[0][0] == 200_000
    finally:
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")


@pytest.mark.parametrize(("tasks", "bytes"), [(1, 0), (1, 7), (3, 1000), (7, 10**6), (5, 10**12), (0, 10)])
def test_each_task_gets_its_number(spark: Any, tasks: int, bytes: int) -> None:
    numbers = runner._task_numbers(spark, tasks, bytes)
    assert [row.id for row in numbers.collect()] == list(range(tasks))
    if tasks and hasattr(spark, "_jsparkSession"):
        places = numbers.selectExpr("id", "spark_partition_id() AS p").collect()
        assert [row.p for row in places] == list(range(tasks)), "one for each"
