"""Paimon's Spark documentation, pages "DataFrame" and "Structured Streaming": through format("paimon") and the lake.

``table(…)``, ``saveAsTable`` and ``insertInto`` ask Spark's own catalog, which knows no lake: tables are named by their
folders, as the pages do too, or the lake writes and reads them by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from answers import rows_of
from long import exhaustive

import bitlake
from bitlake.spark.source.data_source import register
from bitlake.spark.source.read import admission

pytestmark = pytest.mark.spark

Run = Callable[[str], list[list[Any]]]


@pytest.fixture(autouse=True)
def known(spark: Any) -> Iterator[None]:
    """The data source under its names, in this session; filters are pushed as they were before."""
    pushed = spark.conf.get("spark.sql.python.filterPushdown.enabled", "false")
    register(spark)
    yield
    spark.conf.set("spark.sql.python.filterPushdown.enabled", pushed)


@pytest.mark.exhaustive
def test_create_insert_query(run: Run, lake: bitlake.Lake) -> None:
    spark = lake.spark
    data = spark.createDataFrame([(1, "x1", "p1"), (2, "x2", "p2")], "a int, b string, pt string")
    options = {"primary-key": "a,pt", "k1": "v1", "bucket": "1"}
    lake.write(data, "test_tbl", partition_by=["pt"], options=options)
    schema = lake.table("test_tbl").schema
    assert schema.primary_keys == ("a", "pt") and schema.options["k1"] == "v1" and schema.partition_keys == ("pt",)
    path = f"{lake.path}/default.db/test_tbl"
    data.selectExpr("a + 2 AS a", "b", "pt").write.format("paimon").mode("append").save(path)
    assert sorted(rows_of(spark.read.format("paimon").load(path))) == [
        [1, "x1", "p1"],
        [2, "x2", "p2"],
        [3, "x1", "p1"],
        [4, "x2", "p2"],
    ]
    named = {"database": "default", "table": "test_tbl"}
    assert spark.read.format("paimon").options(**named, warehouse=lake.path).load().count() == 4
    assert spark.read.format("paimon").options(**named, catalog="paimon").load(path).count() == 4
    assert spark.read.format("paimon").option("scan.snapshot-id", 1).load(path).count() == 2
    some = data.where("pt = 'p1'").selectExpr("9 AS a", "b", "pt")
    some.write.format("paimon").mode("overwrite").option("partition-overwrite-mode", "dynamic").save(path)
    assert run("SELECT a FROM test_tbl ORDER BY a") == [[2], [4], [9]]
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    lake.write(some.selectExpr("8 AS a", "b", "pt"), "test_tbl", "overwrite")
    assert run("SELECT a FROM test_tbl ORDER BY a") == [[2], [4], [8]]
    some.write.format("paimon").mode("overwrite").save(path)
    assert run("SELECT a FROM test_tbl") == [[9]]


@pytest.mark.exhaustive
def test_a_stream_from_table_to_table(run: Run, lake: bitlake.Lake, tmp_path: Path) -> None:
    run("CREATE TABLE source (k INT, v STRING) TBLPROPERTIES ('bucket' = '1', 'bucket-key' = 'k')")
    run("CREATE TABLE T (k INT, v STRING)\nTBLPROPERTIES ('primary-key'='k', 'bucket'='3')")
    run("INSERT INTO source VALUES (1, 'Hi'), (2, 'Hello')")
    spark, place = lake.spark, f"{lake.path}/default.db"
    # PySpark 4.1 lets no Python source read less than all, and the option is refused there.
    limit = {} if admission is None else {"read.stream.maxBytesPerTrigger": "134217728"}

    def feed() -> None:
        """All there is since the last time; without options that say where to begin, the whole table first."""
        stream = (
            spark.readStream.format("paimon")
            .options(**limit)
            .option("consumer-id", "my-consumer")
            .load(f"{place}/source")
            .writeStream.outputMode("append")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .format("paimon")
            .trigger(availableNow=True)
            .start(f"{place}/T")
        )
        stream.awaitTermination()

    feed()
    assert run("SELECT * FROM T ORDER BY k") == [[1, "Hi"], [2, "Hello"]]
    run("INSERT INTO source VALUES (2, 'again'), (3, 'Hey')")
    feed()
    assert run("SELECT * FROM T ORDER BY k") == [[1, "Hi"], [2, "again"], [3, "Hey"]]
    assert run("SELECT consumer_id FROM `source$consumers`") == [["my-consumer"]]


@pytest.mark.parametrize("way", [exhaustive("audit_log"), "read.changelog"])
def test_kinds_of_rows_in_a_stream(run: Run, lake: bitlake.Lake, tmp_path: Path, way: str) -> None:
    run("CREATE TABLE table_name (k INT, v STRING) TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '1')")
    run("INSERT INTO table_name VALUES (1, 'Hi'), (2, 'Hello')")
    path = f"{lake.path}/default.db/table_name"
    reader = lake.spark.readStream.format("paimon")
    log = way == "audit_log"
    frame = reader.load(f"{path}$audit_log") if log else reader.option("read.changelog", "true").load(path)
    query = (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    query.awaitTermination()
    assert sorted(rows_of(lake.spark.read.parquet(str(tmp_path / "out")))) == [["+I", 1, "Hi"], ["+I", 2, "Hello"]]
