"""Rows that Python workers read have the types that Spark wants, whatever the unit of a timestamp in Arrow is."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import bitlake
from bitlake.spark.read import scan as spark_scan

INNER = pa.struct([pa.field("at", pa.timestamp("ms")), pa.field("all", pa.list_(pa.timestamp("ms", "UTC")))])
ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "at": pa.array([1, None, -1], pa.timestamp("ms")),
        "zoned": pa.array([None, 10**12 + 1, 3], pa.timestamp("ms", "UTC")),
        "deep": pa.array([{"at": 5, "all": [6, None]}, None, {"at": None, "all": None}], INNER),
        "named": pa.array([[("a", 7)], [], None], pa.map_(pa.string(), pa.timestamp("ms"))),
    }
)
SCHEMA = ROWS.schema.set(0, pa.field("id", pa.int64(), nullable=False))


def test_milliseconds_read_by_workers(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = bitlake.connect(str(tmp_path_factory.mktemp("lake")), spark=spark)
    lake.create_database("d")
    options = {"primary-key": "id", "bucket": "1", "changelog-producer": "input"}
    table = lake.create_table("d.t", SCHEMA, options=options)
    table.upsert(ROWS.cast(SCHEMA))
    wanted = [tuple(r) for r in lake.sql("SELECT * FROM d.t ORDER BY id").collect()]
    assert [row[0] for row in wanted] == [1, 2, 3] and wanted[0][1].microsecond == 1000
    changes = "SELECT * FROM paimon_incremental_query('d.`t$audit_log`', '0', '1') ORDER BY id"
    logged = [tuple(r) for r in lake.sql(changes).collect()]
    assert [row[:2] for row in logged] == [("+I", i) for i in (1, 2, 3)]
    table.upsert(ROWS.cast(SCHEMA).slice(0, 1))  # so that files are to be merged
    monkeypatch.setattr(spark_scan, "DRIVER_ROWS", -1)
    assert [tuple(r) for r in lake.sql("SELECT * FROM d.t WHERE id > 0 ORDER BY id").collect()] == wanted
    assert [tuple(r) for r in lake.sql(changes).collect()] == logged
