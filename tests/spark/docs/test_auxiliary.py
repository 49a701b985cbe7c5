"""Paimon's Spark documentation, page "Auxiliary": SET, DESCRIBE, SHOW, ANALYZE, REFRESH."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import bitlake
from bitlake.errors import NotFound

pytestmark = pytest.mark.spark

Run = Callable[[str], list[list[Any]]]


def test_set_and_reset(run: Run, lake: bitlake.Lake) -> None:
    run("SET spark.sql.sources.partitionOverwriteMode=dynamic; SET spark.paimon.file.block-size=512M")
    assert lake.spark.conf.get("spark.paimon.file.block-size") == "512M"
    run("RESET spark.paimon.file.block-size")
    assert lake.spark.conf.get("spark.paimon.file.block-size", None) is None


def test_dynamic_options(run: Run) -> None:
    for name in ("T", "T1", "T2"):
        run(f"CREATE TABLE {name} (id INT); INSERT INTO {name} VALUES 1; INSERT INTO {name} VALUES 2")
    assert run("SET spark.paimon.*.default.T.scan.snapshot-id=1; SELECT * FROM default.T") == [[1]]
    run("RESET spark.paimon.*.default.T.scan.snapshot-id")
    assert run("SET spark.paimon.*.*.T.scan.snapshot-id=1; SELECT * FROM default.T") == [[1]]
    run("SET spark.paimon.scan.snapshot-id=1; SET spark.paimon.*.default.T1.scan.snapshot-id=2")
    assert run("SELECT * FROM default.T1 JOIN default.T2 ON T1.id = T2.id") == [[1, 1]]
    assert sorted(run("SELECT * FROM default.T1")) == [[1], [2]]


_TABLE = """
    CREATE TABLE my_table (id INT COMMENT 'its number', col1 STRING, dt STRING) PARTITIONED BY (dt)
    COMMENT 'about it' TBLPROPERTIES ('file.format' = 'parquet');
    INSERT INTO my_table VALUES (1, 'a', '20230817'), (2, 'b', '20230818');
"""


def test_describe_and_show(run: Run) -> None:
    run(_TABLE)
    columns = [["id", "int", "its number"], ["col1", "string", None], ["dt", "string", None]]
    partition = [["# Partition Information", "", ""], ["# col_name", "data_type", "comment"], ["dt", "string", None]]
    assert run("DESCRIBE TABLE my_table") == [*columns, *partition]
    facts = {row[0]: row[1] for row in run("DESCRIBE TABLE EXTENDED my_table;")}
    assert facts["Provider"] == "paimon" and facts["Comment"] == "about it"
    (text,) = run("SHOW CREATE TABLE my_table;")[0]
    run("DROP TABLE my_table")
    run(text)
    assert run("DESCRIBE TABLE my_table") == [*columns, *partition]
    assert run("SHOW CREATE TABLE my_table") == [[text]]
    assert run("SHOW COLUMNS FROM my_table;") == [["id"], ["col1"], ["dt"]]
    with pytest.raises(NotFound, match="my_tabl"):
        run("SHOW COLUMNS FROM my_tabl")


def test_partitions(run: Run) -> None:
    run(_TABLE)
    assert run("SHOW PARTITIONS my_table;") == [["dt=20230817"], ["dt=20230818"]]
    assert run("SHOW PARTITIONS my_table PARTITION (dt='20230817');") == [["dt=20230817"]]


def test_show_table_extended(run: Run) -> None:
    run("CREATE DATABASE db_name; USE db_name; CREATE TABLE test_a (a INT); CREATE TABLE test_b (b INT)")
    run("CREATE TABLE table_name (a INT, pt STRING) PARTITIONED BY (pt)")
    run("INSERT INTO table_name VALUES (1, '2024'), (2, '2024'), (3, '2025')")
    rows = run("SHOW TABLE EXTENDED IN db_name LIKE 'test*';")
    assert [row[:3] for row in rows] == [["db_name", "test_a", False], ["db_name", "test_b", False]]
    assert "Provider: paimon" in rows[0][3] and " |-- a: integer (nullable = true)" in rows[0][3]
    ((database, name, temporary, text),) = run(
        "SHOW TABLE EXTENDED IN db_name LIKE 'table_name' PARTITION(pt = '2024');"
    )
    assert [database, name, temporary] == ["db_name", "table_name", False]
    assert "Partition Values: [pt=2024]" in text and "recordCount=2" in text
    with pytest.raises(NotFound, match="no partition"):
        run("SHOW TABLE EXTENDED IN db_name LIKE 'table_name' PARTITION(pt = '2026')")


def test_show_views(run: Run) -> None:
    """Temporary views: a filesystem catalog has no others."""
    for _, name, _ in run("SHOW VIEWS"):
        run(f"DROP VIEW `{name}`")  # tests before this one left it in the session that all share
    run("CREATE TEMPORARY VIEW test_v AS SELECT 1 AS a; CREATE TEMPORARY VIEW other_v AS SELECT 1 AS a")
    assert [row[1] for row in run("SHOW VIEWS;")] == ["other_v", "test_v"]
    assert run("SHOW VIEWS LIKE 'test*';") == [["", "test_v", True]]
    run("DROP VIEW test_v; DROP VIEW other_v")


@pytest.mark.exhaustive
def test_analyze(run: Run) -> None:
    run(_TABLE)
    statistics = "SELECT snapshot_id, mergedRecordCount, colstat FROM `my_table$statistics`"
    run("ANALYZE TABLE my_table COMPUTE STATISTICS;")
    assert run(statistics) == [[1, 2, "{ }"]]
    run("ANALYZE TABLE my_table COMPUTE STATISTICS FOR COLUMNS col1;")
    assert '"distinctCount" : 2' in run(statistics)[0][2]
    run("ANALYZE TABLE my_table COMPUTE STATISTICS FOR ALL COLUMNS;")
    assert all(f'"{name}"' in run(statistics)[0][2] for name in ("id", "col1", "dt"))


def test_refresh(run: Run) -> None:
    run("CREATE TABLE table_identifier (a INT)")
    assert run("REFRESH TABLE table_identifier;") == []
    with pytest.raises(NotFound):
        run("REFRESH TABLE nothing")
