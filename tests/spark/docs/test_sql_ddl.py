"""Paimon's Spark documentation, page "SQL DDL"."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bitlake
from bitlake.errors import AlreadyExists, InvalidRequest, NotFound, UnsupportedFeature

pytestmark = pytest.mark.spark

Run = Callable[[str], list[list[Any]]]


def test_create_table(run: Run, lake: bitlake.Lake) -> None:
    run(
        """
        USE paimon.default;
        CREATE TABLE my_table (
            user_id BIGINT,
            item_id BIGINT,
            behavior STRING,
            dt STRING,
            hh STRING
        ) TBLPROPERTIES (
            'primary-key' = 'dt,hh,user_id'
        );
        """
    )
    assert lake.table("my_table").schema.primary_keys == ("dt", "hh", "user_id")
    run(
        """
        DROP TABLE my_table;
        CREATE TABLE my_table (
            user_id BIGINT,
            item_id BIGINT,
            behavior STRING,
            dt STRING,
            hh STRING
        ) PARTITIONED BY (dt, hh) TBLPROPERTIES (
            'primary-key' = 'dt,hh,user_id'
        );
        """
    )
    schema = lake.table("my_table").schema
    assert schema.partition_keys == ("dt", "hh") and schema.primary_keys == ("dt", "hh", "user_id")


def test_a_location_needs_a_hive_catalog(run: Run) -> None:
    with pytest.raises(UnsupportedFeature, match="LOCATION"):
        run("CREATE TABLE my_table (user_id BIGINT) LOCATION '/path/to/table'")
    with pytest.raises(UnsupportedFeature, match="LOCATION"):
        run("CREATE TABLE my_table LOCATION '/path/to/table'")


def test_create_table_as_select(run: Run, lake: bitlake.Lake) -> None:
    run(
        """
        CREATE TABLE my_table (
             user_id BIGINT,
             item_id BIGINT
        );
        INSERT INTO my_table VALUES (1, 2);
        CREATE TABLE my_table_as AS SELECT * FROM my_table;
        """
    )
    assert run("SELECT * FROM my_table_as") == [[1, 2]]
    run(
        """
        CREATE TABLE my_table_partition (
              user_id BIGINT,
              item_id BIGINT,
              behavior STRING,
              dt STRING,
              hh STRING
        ) PARTITIONED BY (dt, hh);
        INSERT INTO my_table_partition VALUES (1, 2, 'pv', '2024-01-01', '10');
        CREATE TABLE my_table_partition_as PARTITIONED BY (dt) AS SELECT * FROM my_table_partition;

        CREATE TABLE my_table_options (
               user_id BIGINT,
               item_id BIGINT
        ) TBLPROPERTIES ('file.format' = 'orc');
        CREATE TABLE my_table_options_as TBLPROPERTIES ('file.format' = 'parquet') AS SELECT * FROM my_table_options;
        """
    )
    assert lake.table("my_table_partition_as").schema.partition_keys == ("dt",)
    assert run("SHOW PARTITIONS my_table_partition_as") == [["dt=2024-01-01"]]
    assert lake.table("my_table_options_as").schema.options == {"file.format": "parquet"}
    run(
        """
        CREATE TABLE my_table_pk (
             user_id BIGINT,
             item_id BIGINT,
             behavior STRING,
             dt STRING,
             hh STRING
        ) TBLPROPERTIES (
            'primary-key' = 'dt,hh,user_id'
        );
        CREATE TABLE my_table_pk_as TBLPROPERTIES ('primary-key' = 'dt') AS SELECT * FROM my_table_pk;

        CREATE TABLE my_table_all (
            user_id BIGINT,
            item_id BIGINT,
            behavior STRING,
            dt STRING,
            hh STRING
        ) PARTITIONED BY (dt, hh) TBLPROPERTIES (
            'primary-key' = 'dt,hh,user_id'
        );
        CREATE TABLE my_table_all_as PARTITIONED BY (dt) TBLPROPERTIES ('primary-key' = 'dt,hh')
        AS SELECT * FROM my_table_all;
        """
    )
    assert lake.table("my_table_pk_as").schema.primary_keys == ("dt",)
    schema = lake.table("my_table_all_as").schema
    assert schema.primary_keys == ("dt", "hh") and schema.partition_keys == ("dt",)


def test_replace_table(run: Run, lake: bitlake.Lake) -> None:
    run(
        """
        CREATE TABLE my_table (
            user_id BIGINT,
            item_id BIGINT,
            behavior STRING
        ) TBLPROPERTIES (
            'primary-key' = 'user_id',
            'bucket' = '2'
        );

        INSERT INTO my_table VALUES (1, 10, 'pv');

        REPLACE TABLE my_table (
            user_id BIGINT,
            item_id BIGINT,
            category STRING
        ) TBLPROPERTIES (
            'primary-key' = 'user_id',
            'bucket' = '4'
        );
        """
    )
    assert run("SELECT * FROM my_table;") == []
    assert lake.sql("SELECT * FROM my_table").columns == ["user_id", "item_id", "category"]
    assert run("SELECT * FROM my_table VERSION AS OF 1;") == [[1, 10, "pv"]]
    assert lake.sql("SELECT * FROM my_table VERSION AS OF 1").columns == ["user_id", "item_id", "behavior"]
    run("INSERT INTO my_table VALUES (2, 20, 'c')")
    run("CREATE TABLE source_table (user_id BIGINT, item_id BIGINT, behavior STRING)")
    run("INSERT INTO source_table VALUES (7, 70, 'cart'), (8, 80, 'pv')")
    run(
        """
        CREATE OR REPLACE TABLE my_table
        TBLPROPERTIES (
            'primary-key' = 'user_id',
            'bucket' = '4'
        )
        AS SELECT user_id, item_id, behavior FROM source_table;
        """
    )
    assert sorted(run("SELECT * FROM my_table")) == [[7, 70, "cart"], [8, 80, "pv"]]
    assert run("SELECT * FROM my_table VERSION AS OF 1") == [[1, 10, "pv"]]
    run("CREATE OR REPLACE TABLE my_table (x INT)")  # a key and buckets can go, too
    run("INSERT INTO my_table VALUES (5)")
    assert run("SELECT * FROM my_table") == [[5]]


def test_replacing_nothing_or_failing(run: Run, lake: bitlake.Lake) -> None:
    with pytest.raises(NotFound, match="my_table"):
        run("REPLACE TABLE my_table (x INT)")
    run("CREATE OR REPLACE TABLE my_table (x INT, p INT) PARTITIONED BY (p)")
    run("INSERT INTO my_table VALUES (1, 2)")
    with pytest.raises(UnsupportedFeature, match="partition columns"):
        run("REPLACE TABLE my_table AS SELECT 1 AS x")
    with pytest.raises(UnsupportedFeature, match="partition columns"):
        run("REPLACE TABLE my_table (x INT)")
    boom = "CAST(raise_error('boom') AS INT) AS y"
    with pytest.raises(InvalidRequest, match="boom"):
        run(f"CREATE OR REPLACE TABLE my_table PARTITIONED BY (p) AS SELECT {boom}, 2 AS p")
    assert run("SELECT * FROM my_table") == [[1, 2]]
    assert lake.table("my_table")._core.state().snapshot_id == 1


def test_create_table_like(run: Run, lake: bitlake.Lake) -> None:
    run(
        """
        CREATE TABLE source_tbl (
            id INT,
            name STRING,
            pt STRING
        ) COMMENT 'source comment'
        PARTITIONED BY (pt)
        TBLPROPERTIES ('primary-key' = 'id,pt', 'bucket' = '5');

        -- target inherits the source provider
        CREATE TABLE target_tbl LIKE source_tbl;
        CREATE TABLE IF NOT EXISTS target_tbl LIKE source_tbl;
        CREATE TABLE other LIKE source_tbl USING paimon TBLPROPERTIES ('bucket' = '2');
        """
    )
    source, made = lake.table("source_tbl").schema, lake.table("target_tbl").schema
    assert (made.fields, made.partition_keys, made.primary_keys, made.options, made.comment) == (
        source.fields,
        ("pt",),
        ("id", "pt"),
        source.options,
        "source comment",
    )
    assert lake.table("other").schema.options["bucket"] == "2"
    with pytest.raises(AlreadyExists):
        run("CREATE TABLE target_tbl LIKE source_tbl")
    with pytest.raises(NotFound, match="source_tbl"):
        run("CREATE TABLE x LIKE source_tb")


def test_views(run: Run) -> None:
    """Views of a session; kept ones need a hive, rest or jdbc catalog (in Paimon's filesystem catalog, too)."""
    run("CREATE TABLE t1 (a INT); INSERT INTO t1 VALUES 1")
    run("CREATE TEMPORARY VIEW v1 AS SELECT * FROM t1")
    run("CREATE OR REPLACE TEMPORARY VIEW v1 AS SELECT a + 1 AS b FROM t1")
    assert run("SELECT * FROM v1") == [[2]]
    run("DROP VIEW v1")
    with pytest.raises(NotFound, match="v1"):
        run("SELECT * FROM v1")
    with pytest.raises(UnsupportedFeature, match="view"):
        run("CREATE VIEW v1 AS SELECT * FROM t1")


def test_tags(run: Run) -> None:
    run("CREATE TABLE T (id INT); INSERT INTO T VALUES 1; INSERT INTO T VALUES 2; INSERT INTO T VALUES 3")
    run(
        """
        -- create a tag based on the latest snapshot and no retention.
        ALTER TABLE T CREATE TAG `TAG-1`;

        -- create a tag based on the latest snapshot and no retention if it doesn't exist.
        ALTER TABLE T CREATE TAG IF NOT EXISTS `TAG-1`;

        -- create a tag based on the latest snapshot and retain it for 7 day.
        ALTER TABLE T CREATE TAG `TAG-2` RETAIN 7 DAYS;

        -- create a tag based on snapshot-1 and no retention.
        ALTER TABLE T CREATE TAG `TAG-3` AS OF VERSION 1;

        -- create a tag based on snapshot-2 and retain it for 12 hour.
        ALTER TABLE T CREATE TAG `TAG-4` AS OF VERSION 2 RETAIN 12 HOURS;
        """
    )
    facts = "SELECT tag_name, snapshot_id, time_retained FROM `T$tags` ORDER BY 1"
    made = [["TAG-1", 3, None], ["TAG-2", 3, "PT168H"], ["TAG-3", 1, None], ["TAG-4", 2, "PT12H"]]
    assert run(facts) == made
    run(
        """
        -- replace a existed tag with new snapshot id and new retention
        ALTER TABLE T REPLACE TAG `TAG-4` AS OF VERSION 2 RETAIN 24 HOURS;

        -- create or replace a tag, create tag if it not exist, replace tag if it exists.
        ALTER TABLE T CREATE OR REPLACE TAG `TAG-5` AS OF VERSION 2 RETAIN 24 HOURS;
        """
    )
    assert run(facts) == [*made[:3], ["TAG-4", 2, "PT24H"], ["TAG-5", 2, "PT24H"]]
    assert run("SHOW TAGS T;") == [["TAG-1"], ["TAG-2"], ["TAG-3"], ["TAG-4"], ["TAG-5"]]
    with pytest.raises(AlreadyExists):
        run("ALTER TABLE T CREATE TAG `TAG-1`")
    run(
        """
        -- delete a tag.
        ALTER TABLE T DELETE TAG `TAG-1`;

        -- delete a tag if it exists.
        ALTER TABLE T DELETE TAG IF EXISTS `TAG-1`
        """
    )
    # A tag that does not exist is a warning, as in Paimon, and the others of the list are deleted.
    run("-- delete multiple tags, delimiter is ','.\nALTER TABLE T DELETE TAG `TAG-1,TAG-5`;")
    assert run("SHOW TAGS T") == [["TAG-2"], ["TAG-3"], ["TAG-4"]]
    run("ALTER TABLE T DELETE TAG `TAG-4,TAG-3`")
    run("ALTER TABLE T RENAME TAG `TAG-2` TO `TAG-1`;")
    assert run("SHOW TAGS T") == [["TAG-1"]]


def test_a_jdbc_catalog(spark: Any, tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'names.db'}"
    lake = bitlake.connect(str(tmp_path / "lake"), spark=spark, catalog="jdbc", uri=uri)
    lake.sql("CREATE DATABASE db COMMENT 'mine' WITH DBPROPERTIES ('a' = 'b')")
    lake.sql("ALTER DATABASE db SET DBPROPERTIES ('a' = 'c', 'd' = 'e')")
    rows = [list(r) for r in lake.sql("DESCRIBE DATABASE EXTENDED db").collect()]
    assert ["Comment", "mine"] in rows and ["Properties", "((a,c), (d,e))"] in rows
    lake.sql("USE paimon.default")
