"""NOT NULL columns of a table are NOT NULL in its DataFrames; every column was nullable."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import bitlake
from bitlake.spark.source.data_source import register

pytestmark = pytest.mark.spark

FORCED = "spark.paimon.read.spark-path"


def _nullable(frame: Any) -> dict[str, bool]:
    return {f.name: f.nullable for f in frame.schema.fields}


def test_each_way_to_read_keeps_not_null(lake: bitlake.Lake, spark: Any) -> None:
    lake.sql("CREATE TABLE t (id INT NOT NULL, s STRING NOT NULL, v INT, p STRING NOT NULL) PARTITIONED BY (p)")
    lake.sql("INSERT INTO t SELECT id, concat('s', id), IF(id = 3, NULL, id), 'a' FROM range(0, 100, 1, 1)")
    lake.sql("CREATE TABLE k (id INT, v INT) TBLPROPERTIES ('primary-key' = 'id', 'bucket' = '1')")
    lake.sql("INSERT INTO k VALUES (1, 1), (2, NULL)")
    wanted = {"id": False, "s": False, "v": True, "p": False}
    try:
        for way in ("driver", "spark", "workers"):
            spark.conf.set(FORCED, way)
            frame = lake.sql("SELECT * FROM t WHERE id = 3")
            assert (way, _nullable(frame)) == (way, wanted)
            assert frame.collect() == [(3, "s3", None, "a")]
            assert _nullable(lake.sql("SELECT * FROM k")) == {"id": False, "v": True}
            joined = lake.sql("SELECT k.id, t.id AS other, t.s FROM k LEFT JOIN t ON t.id = k.id AND t.id = 2")
            assert _nullable(joined) == {"id": False, "other": True, "s": True}
            assert sorted(joined.collect()) == [(1, None, None), (2, 2, "s2")]
            if way == "spark":
                plan = frame._jdf.queryExecution().executedPlan().toString()
                assert "PushedFilters: [EqualTo(id,3)]" in plan
    finally:
        spark.conf.unset(FORCED)
    assert _nullable(lake.read("t")) == wanted
    assert _nullable(lake.table("t").scan().to_spark()) == wanted
    register(spark)
    loaded = spark.read.format("bitlake").load(lake.table("t").path)
    assert _nullable(loaded) == wanted
    assert loaded.where("id = 3").collect() == [(3, "s3", None, "a")]


def test_a_column_that_became_not_null_may_hold_null(lake: bitlake.Lake, spark: Any) -> None:
    """Files from before hold NULL, which a NOT NULL column of Spark would show as 0."""
    lake.sql("CREATE TABLE t (id INT NOT NULL, v INT)")
    lake.sql("INSERT INTO t VALUES (1, NULL)")
    folder = Path(lake.table("t").path.removeprefix("file:")) / "schema"
    schema = json.loads((folder / "schema-0").read_text())
    schema["id"], schema["fields"][1]["type"] = 1, "INT NOT NULL"  # as Paimon does, which does not look for NULL
    (folder / "schema-1").write_text(json.dumps(schema))
    for way in ("spark", "workers"):  # the driver refuses such a file
        spark.conf.set(FORCED, way)
        try:
            frame = lake.sql("SELECT * FROM t")
            assert (frame.collect(), _nullable(frame)) == ([(1, None)], {"id": False, "v": True})
        finally:
            spark.conf.unset(FORCED)
