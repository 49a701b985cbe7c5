"""Spark DataFrames through the methods that take rows of any library: Spark writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import bitlake
from bitlake.errors import InvalidRequest, UnsupportedFeature
from bitlake.file_store_table import FileStoreTable
from bitlake.table.table import Table

pytestmark = pytest.mark.spark


def test_a_spark_frame_is_appended_upserted_and_created(spark: Any, tmp_path: Path) -> None:
    lake = bitlake.connect(tmp_path / "lake", spark=spark)
    frame = spark.range(5).selectExpr("id", "concat('s', id) AS s")
    table = lake.create_table("t", frame, options={"file-index.bitmap.columns": "s"}, comment="five")
    assert table.count() == 5 and table.schema.options["file-index.bitmap.columns"] == "s"
    snapshot = table.append(frame.where("id > 2"))
    assert snapshot is not None and snapshot.id == 2 and table.count() == 7
    assert table.overwrite(frame.where("id = 1")) is not None and table.to_arrow(["id"]).to_pylist() == [{"id": 1}]
    keyed = lake.create_table("k", frame, primary_key=["id"])
    keyed.upsert(frame.where("id < 2").selectExpr("id", "'new' AS s"))
    assert keyed.count("s = 'new'") == 2 and keyed.count() == 5


def test_a_spark_frame_is_written_to_a_branch_by_its_name(spark: Any, tmp_path: Path) -> None:
    lake = bitlake.connect(tmp_path / "lake", spark=spark)
    table = lake.create_table("t", spark.range(2))
    table.history.create_tag("two")
    table.history.create_branch("dev", tag="two")
    assert lake.write(spark.range(3), "T$branch_dev") == 3
    assert lake.tables() == ["t"] and table.count() == 2 and lake.table("t$branch_dev").count() == 5
    with pytest.raises(InvalidRequest, match="is a system table, which can only be read"):
        lake.write(spark.range(3), "t$files")
    with pytest.raises(InvalidRequest, match=r"partition_by must be a list of names, such as \['id'\]"):
        lake.write(spark.range(3), "u", partition_by="id")
    assert lake.tables() == ["t"]


def test_a_table_without_a_lake_refuses_a_spark_frame(spark: Any, tmp_path: Path) -> None:
    lake = bitlake.connect(tmp_path / "lake", spark=spark)
    core = lake.create_table("t", spark.range(1))._core
    assert isinstance(core, FileStoreTable)
    with pytest.raises(InvalidRequest, match=r"opened without Spark: use lake\.write\(frame, name\)"):
        Table(core).append(spark.range(1))
    with pytest.raises(InvalidRequest, match=r"use lake\.write\(frame, name\)"):
        lake.table("t").overwrite(spark.range(1), {})


def test_duckdb_takes_no_table_for_a_temporary_view(spark: Any, tmp_path: Path) -> None:
    lake = bitlake.connect(tmp_path / "lake", spark=spark)
    lake.create_table("shadowed", spark.range(3))
    query = "SELECT count(*) FROM shadowed"
    assert lake.sql(query, engine="duckdb").fetchall() == [(3,)]
    lake.sql("CREATE TEMPORARY VIEW shadowed AS SELECT 99 AS x")
    try:
        with pytest.raises(UnsupportedFeature, match="is not a table of the lake"):
            lake.sql(query, engine="duckdb")
        assert lake.sql(query).collect()[0][0] == 1
    finally:
        spark.catalog.dropTempView("shadowed")
