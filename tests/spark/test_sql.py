"""Lake tables in Spark SQL: what is created, written, asked and shown, and what is refused."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from answers import rows_of
from builders import EVERY_TYPE, every_type
from fixtures import copy_warehouse
from long import exhaustive
from pyspark.sql import Row
from pyspark.sql.functions import lit, udtf
from pyspark.sql.types import TimestampType

import bitlake
from bitlake.demo import ALTER_ORDERS, ORDERS, QUERIES, USER_EVENTS
from bitlake.errors import AlreadyExists, BitlakeError, InvalidRequest, NotFound, UnsupportedFeature

pytestmark = pytest.mark.spark


def ask(lake: bitlake.Lake, text: str) -> list[list[Any]]:
    return rows_of(lake.sql(text))


def staged(lake: bitlake.Lake) -> list[Path]:
    return [p for p in Path(lake.path).rglob("*") if ".staging" in p.parts and p.is_file()]


def test_the_article_runs_as_it_stands(lake: bitlake.Lake, caplog: Any) -> None:
    """Without the bucket key that the demo adds."""
    with caplog.at_level(logging.WARNING, "bitlake"):
        for text in (*USER_EVENTS, *ORDERS[:-1]):
            lake.sql(text.replace("    'bucket-key' = 'order_id',\n", ""))
    assert "bucket-key" in caplog.text
    found = [sorted(r[0] for r in ask(lake, q)) for q in QUERIES]
    assert found == [[1, 3, 6], [1, 3, 4, 6], [2, 4, 5], [], [1, 2, 3, 4, 5, 6], [1, 3], [1, 3, 5, 6]]
    (plan,) = lake.plans(QUERIES[0])
    assert [f.selection.positions(f.row_count).tolist() for f in plan.files] == [[0, 2, 5]]
    assert [f.index_place for f in plan.files] == ["embedded"]
    assert lake.plans(QUERIES[3])[0].files == ()
    pending = ask(lake, ORDERS[-1])
    assert sorted(r[0] for r in pending) == [1001, 1003, 1006, 1009]
    assert lake.table("orders").schema.bucket_keys == (
        "order_id",
        "user_id",
        "status",
        "region",
        "amount",
        "order_date",
    )
    (plan,) = lake.plans(ORDERS[-1])
    assert plan.chosen_rows == 4
    results = [ask(lake, text) for text in ALTER_ORDERS]
    assert results[1] == [["", 1, 0, "", 0]], "nothing to build: the options did not change"
    assert results[3][0][:4] == ["", 1, 1, "bloom-filter(user_id)"]
    assert [r[0] for r in results[4]] == [3]
    assert results[5] == []
    assert lake.plans("SELECT * FROM user_events WHERE user_id = 4711 OR user_id = 5")[0].files


def test_every_type_through_sql(lake: bitlake.Lake) -> None:
    rows = every_type()
    columns = [n for n in EVERY_TYPE.names if n != "c_ts3"]
    lake.spark.createDataFrame(rows.select(columns)).createOrReplaceTempView("source_rows")
    lake.sql("CREATE TABLE t AS SELECT * FROM source_rows")
    assert ask(lake, "SELECT * FROM t") == ask(lake, "SELECT * FROM source_rows")
    lake.sql("INSERT INTO t SELECT * FROM source_rows")
    assert ask(lake, "SELECT count(*) FROM t") == [[8]]
    assert lake.table("t").scan().count() == 8


def test_databases(lake: bitlake.Lake) -> None:
    lake.sql("CREATE DATABASE IF NOT EXISTS sales COMMENT 'x'")
    with pytest.raises(AlreadyExists):
        lake.sql("CREATE DATABASE sales")
    assert ask(lake, "SHOW DATABASES") == [["default"], ["sales"]]
    assert ask(lake, "SHOW DATABASES LIKE 's*'") == [["sales"]]
    lake.sql("USE sales")
    lake.sql("CREATE TABLE t (id INT)")
    assert ask(lake, "SHOW TABLES") == [["sales", "t", False]]
    assert ask(lake, "SHOW TABLES IN default") == []
    with pytest.raises(InvalidRequest, match="CASCADE"):
        lake.sql("DROP DATABASE sales")
    lake.sql("DROP DATABASE sales CASCADE")
    lake.sql("DROP DATABASE IF EXISTS sales")
    with pytest.raises(NotFound):
        lake.sql("DROP DATABASE sales")
    with pytest.raises(NotFound, match="nope"):
        lake.sql("USE nope")


def test_show_create_makes_the_same_table(lake: bitlake.Lake) -> None:
    lake.sql(
        "CREATE TABLE a (id BIGINT NOT NULL COMMENT 'it''s', `odd name` STRING, d DECIMAL(10,2), "
        "s STRUCT<x: INT, y: ARRAY<STRING>>, m MAP<STRING, INT>, dt DATE, c CHAR(3), v VARCHAR(9), t TIMESTAMP_NTZ) "
        "PARTITIONED BY (dt) COMMENT 'a table' TBLPROPERTIES ('file-index.bitmap.columns' = 'v')"
    )
    ((text,),) = ask(lake, "SHOW CREATE TABLE a")
    lake.sql(text.replace("default.a", "default.b"))
    a, b = lake.table("a").schema, lake.table("b").schema
    assert (a.fields, a.partition_keys, a.options, a.comment) == (b.fields, b.partition_keys, b.options, b.comment)
    described = ask(lake, "DESCRIBE a")
    assert described[0] == ["id", "bigint", "it's"]
    assert ["dt", "date", None] in described[9:]
    assert any(r[0] == "Location" for r in ask(lake, "DESCRIBE EXTENDED a"))
    assert ask(lake, "SHOW TBLPROPERTIES a") == [["file-index.bitmap.columns", "v"]]
    assert ask(lake, "SHOW TBLPROPERTIES a ('file-index.bitmap.columns')") == [["file-index.bitmap.columns", "v"]]


def test_insert_in_all_its_forms(lake: bitlake.Lake) -> None:
    lake.sql("CREATE TABLE t (id INT, name STRING, dt DATE, hr INT) PARTITIONED BY (dt, hr)")
    assert ask(lake, "INSERT INTO t VALUES (1, 'a', DATE '2024-01-01', 1)") == [[1, 1]]
    lake.sql("INSERT INTO t (hr, dt, id) VALUES (2, DATE '2024-01-01', 2)")
    lake.sql("INSERT INTO t PARTITION (dt = '2024-01-02', hr = 3) VALUES (3, 'c')")
    lake.sql("INSERT INTO t PARTITION (dt = '2024-01-02', hr) SELECT 4, 'd', 4")
    lake.sql("INSERT INTO t BY NAME SELECT 5 AS hr, 'e' AS name, 5 AS id, DATE '2024-01-03' AS dt")
    lake.sql("INSERT INTO TABLE t SELECT * FROM t WHERE id = 1")
    day = dt.date
    assert sorted(ask(lake, "SELECT * FROM t")) == [
        [1, "a", day(2024, 1, 1), 1],
        [1, "a", day(2024, 1, 1), 1],
        [2, None, day(2024, 1, 1), 2],
        [3, "c", day(2024, 1, 2), 3],
        [4, "d", day(2024, 1, 2), 4],
        [5, "e", day(2024, 1, 3), 5],
    ]
    assert ask(lake, "SHOW PARTITIONS t") == [
        ["dt=2024-01-01/hr=1"],
        ["dt=2024-01-01/hr=2"],
        ["dt=2024-01-02/hr=3"],
        ["dt=2024-01-02/hr=4"],
        ["dt=2024-01-03/hr=5"],
    ]
    assert len(ask(lake, "SHOW PARTITIONS t PARTITION (dt = '2024-01-02')")) == 2
    lake.sql("INSERT OVERWRITE t PARTITION (dt = '2024-01-01', hr = 1) VALUES (9, 'z')")
    lake.sql("TRUNCATE TABLE t PARTITION (dt = '2024-01-02')")
    assert sorted(r[0] for r in ask(lake, "SELECT * FROM t")) == [2, 5, 9]
    lake.spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        lake.sql("INSERT OVERWRITE t VALUES (7, 'q', DATE '2024-01-03', 5)")
    finally:
        lake.spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert sorted(r[0] for r in ask(lake, "SELECT * FROM t")) == [2, 7, 9]
    lake.sql("INSERT OVERWRITE t VALUES (8, 'all', NULL, NULL)")
    assert ask(lake, "SELECT id FROM t") == [[8]]
    lake.sql("TRUNCATE TABLE t")
    assert ask(lake, "SELECT * FROM t") == []


def test_large_inserts_go_through_spark_and_leave_no_staging(lake: bitlake.Lake) -> None:
    lake.sql("CREATE TABLE plain (id BIGINT, k INT) TBLPROPERTIES ('file-index.bitmap.columns' = 'k')")
    lake.sql("INSERT INTO plain SELECT id, CAST(id % 10 AS INT) FROM range(100000)")
    lake.sql(
        "CREATE TABLE parted (id BIGINT, k STRING) PARTITIONED BY (k) TBLPROPERTIES ('bucket' = '2', "
        "'bucket-key' = 'id')"
    )
    lake.sql(
        "INSERT INTO parted SELECT id, CASE id % 5 WHEN 0 THEN NULL WHEN 1 THEN '' ELSE concat('a/', "
        "id % 5) END FROM range(1000)"
    )
    assert ask(lake, "SELECT count(*), sum(id) FROM plain WHERE k = 3") == [[10000, sum(range(3, 100000, 10))]]
    assert lake.table("plain").scan(where="k = 3").plan().chosen_rows == 10000
    counts = ask(lake, "SELECT k, count(*) FROM parted GROUP BY k ORDER BY k")
    assert counts == [[None, 200], ["", 200], ["a/2", 200], ["a/3", 200], ["a/4", 200]]
    assert {f.entry.bucket for f in lake.table("parted").scan().plan().files} == {0, 1}
    for value in (0, 17, 999):
        plan = lake.table("parted").scan(where=f"id = {value}").plan()
        assert len({f.entry.bucket for f in plan.files}) == 1
        assert lake.table("parted").scan(where=f"id = {value}").count() == 1
    assert staged(lake) == []


def test_files_follow_the_target_size_on_spark(lake: bitlake.Lake) -> None:
    lake.sql("CREATE TABLE t (id BIGINT, x STRING) TBLPROPERTIES ('target-file-size' = '300 kb')")
    lake.sql("INSERT INTO t SELECT id, sha2(cast(id AS string), 256) FROM range(0, 60000, 1, 1)")
    sizes = [f.entry.file.file_size for f in lake.table("t").scan().plan().files]
    assert len(sizes) > 3
    assert max(sizes) <= 2.1 * 300 * 1024
    assert ask(lake, "SELECT count(*), count(DISTINCT id) FROM t") == [[60000, 60000]]


@pytest.mark.exhaustive
def test_any_query_of_spark(lake: bitlake.Lake) -> None:
    for text in (*USER_EVENTS, *ORDERS[:-1]):
        lake.sql(text)
    lake.spark.createDataFrame(
        [("US", "America"), ("EU", "Europe")], "code string, title string"
    ).createOrReplaceTempView("regions")
    assert ask(
        lake,
        "WITH recent AS (SELECT * FROM orders WHERE order_date >= DATE '2024-01-02') "
        "SELECT r.title, count(*) AS n, sum(o.amount) FROM recent o JOIN regions r ON o.region = r.code "
        "WHERE o.status <> 'CANCELLED' GROUP BY r.title ORDER BY n DESC, r.title",
    ) == [["America", 2, 520], ["Europe", 1, 300]]
    assert ask(
        lake,
        "SELECT user_id FROM user_events WHERE user_id IN (SELECT user_id FROM orders WHERE status = "
        "'PENDING') ORDER BY 1",
    ) == [[1], [3], [6]]
    assert ask(
        lake,
        "SELECT e.user_id FROM user_events e LEFT JOIN orders o ON e.user_id = o.user_id AND "
        "o.status = 'PENDING' WHERE o.order_id IS NULL ORDER BY 1",
    ) == [[2], [4], [5]]
    assert ask(
        lake,
        "SELECT user_id, row_number() OVER (PARTITION BY region ORDER BY user_id) FROM User_Events "
        "WHERE REGION = 'US' ORDER BY 1",
    ) == [[1, 1], [3, 2], [5, 3]]
    assert ask(lake, "SELECT count(*) FROM default.orders") == [[10]]
    assert ask(lake, "SELECT orders.status FROM orders WHERE orders.order_id = 1001") == [["PENDING"]]
    assert (
        ask(
            lake,
            "SELECT * FROM (SELECT status s FROM orders UNION ALL SELECT event_type FROM "
            "user_events) WHERE s = 'login' OR s = 'PENDING'",
        )
        == [["PENDING"]] * 4 + [["login"]] * 3
    )
    assert ask(
        lake,
        "SELECT a.order_id FROM orders a, orders b WHERE a.user_id = b.user_id + 1 AND b.status = "
        "'CANCELLED' ORDER BY 1",
    ) == [[1005], [1009]]
    assert ask(lake, "SELECT 1 + 1") == [[2]]
    lake.spark.createDataFrame([(1,)], "orders int").createOrReplaceTempView("orders")
    try:
        assert ask(lake, "SELECT * FROM orders") == [[1]], "a temporary view shadows a table, as in Spark"
    finally:
        lake.spark.catalog.dropTempView("orders")


def test_temporary_views_follow_their_tables(lake: bitlake.Lake) -> None:
    """Plain Spark keeps a view's text, and resolves its tables in each query."""
    spark, database = lake.spark, ask(lake, "SELECT current_database()")[0][0]
    lake.sql("CREATE TABLE t (id INT, at TIMESTAMP)")
    lake.sql("INSERT INTO t VALUES (1, TIMESTAMP '2024-01-01 00:00:00Z'), (2, TIMESTAMP '2024-01-02 00:00:00Z')")
    lake.sql("CREATE TEMPORARY VIEW rows AS SELECT id FROM t")
    lake.sql("CREATE TEMPORARY VIEW counted AS SELECT count(*) AS n FROM rows")
    lake.sql("CREATE TEMPORARY VIEW former AS SELECT id FROM t VERSION AS OF 1")
    lake.sql("CREATE TEMPORARY VIEW late AS SELECT id FROM t WHERE at >= TIMESTAMP '2024-01-02 00:00:00'")
    lake.sql("CREATE TEMPORARY VIEW altered AS SELECT 1")
    lake.sql("ALTER VIEW altered AS SELECT max(id) FROM t")
    lake.sql("CREATE TEMPORARY VIEW old_name AS SELECT count(*) FROM t")
    lake.sql("ALTER VIEW old_name RENAME TO new_name")
    try:
        lake.sql("INSERT INTO t SELECT id + 2, at FROM t")
        assert lake.sql("DELETE FROM t WHERE id IN (SELECT n - 3 FROM counted)").collect()[0][0] == 1
        assert sorted(ask(lake, "SELECT * FROM rows")) == [[2], [3], [4]]
        assert ask(lake, "SELECT * FROM counted") == ask(lake, "SELECT * FROM new_name") == [[3]]
        lake.sql("CREATE TABLE copy (id INT)")
        lake.sql("INSERT INTO copy TABLE rows")
        lake.sql("UPDATE t SET id = 5 WHERE id = 4")
        merged = "MERGE INTO copy USING rows ON copy.id = rows.id WHEN NOT MATCHED THEN INSERT *"
        assert lake.sql(merged).collect()[0]["num_inserted_rows"] == 1
        lake.sql("UPDATE t SET id = 4 WHERE id = 5")
        assert sorted(ask(lake, "SELECT * FROM former")) == [[1], [2]]
        assert ask(lake, "SELECT * FROM altered") == [[4]]
        lake.sql("CREATE DATABASE elsewhere")
        lake.sql("USE elsewhere")
        lake.sql(f"INSERT INTO {database}.t VALUES (5, TIMESTAMP '2024-01-01 23:30:00Z')")
        spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
        assert ask(lake, "SELECT * FROM `Counted`") == [[4]]
        assert sorted(ask(lake, "SELECT * FROM late")) == [[2], [4]], "the view's time is in the zone of its creation"
        assert spark.conf.get("spark.sql.session.timeZone") == "Europe/Berlin"
        assert ask(lake, "SELECT current_database()") == [["elsewhere"]]
        counted = "SELECT count(*) AS n FROM rows"
        lake.sql(f"CREATE OR REPLACE TEMPORARY VIEW counted AS {counted} UNION ALL SELECT n FROM counted")
        lake.sql(f"INSERT INTO {database}.t VALUES (6, NULL)")
        assert ask(lake, "SELECT * FROM counted") == [[4], [4]], "a view that read its former self stays as it was"
        lake.sql(f"CREATE OR REPLACE TEMPORARY VIEW counted AS {counted}")
        spark.range(7).createOrReplaceTempView("rows")
        lake.sql(f"INSERT INTO {database}.t VALUES (7, NULL)")
        assert ask(lake, "SELECT count(*) FROM rows") == [[7]], "Spark replaced the view"
        assert ask(lake, "SELECT * FROM counted") == [[7]]
        lake.sql(f"DROP TABLE {database}.t")
        with pytest.raises(NotFound, match="t"):
            lake.sql("SELECT * FROM late")
        assert ask(lake, "SELECT 1 AS late") == [[1]]
        lake.sql("DROP VIEW late")
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        for name in ("rows", "counted", "former", "late", "altered", "old_name", "new_name"):
            spark.catalog.dropTempView(name)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM t WHERE id = 1",
        exhaustive("UPDATE t SET id = 5"),
        exhaustive("MERGE INTO t USING (SELECT 1 AS k) s ON id = k WHEN MATCHED THEN DELETE"),
        "INSERT INTO t VALUES (1)",
        exhaustive("INSERT OVERWRITE t VALUES (1)"),
        exhaustive("TRUNCATE TABLE t"),
        "ALTER TABLE t ADD COLUMN b INT",
        exhaustive("ALTER TABLE t RENAME TO u"),
        exhaustive("ALTER TABLE t SET TBLPROPERTIES ('a' = 'b')"),
        exhaustive("CREATE INDEX by_id ON t USING bitmap (id)"),
        exhaustive("ANALYZE TABLE t COMPUTE STATISTICS"),
    ],
)
def test_a_temporary_view_hides_a_table_from_statements_too(lake: bitlake.Lake, statement: str) -> None:
    """Plain Spark refuses each of them for a view."""
    lake.sql("CREATE TABLE t (id INT)")
    lake.sql("INSERT INTO t VALUES (1), (2)")
    lake.spark.range(1).createOrReplaceTempView("t")
    database = lake.sql("SELECT current_database()").collect()[0][0]
    try:
        for engine in ("spark", "duckdb"):
            with pytest.raises(InvalidRequest, match=f"'t' is a temporary view, .* `{database}`.`t` is one"):
                lake.sql(statement, engine=engine)
        assert ask(lake, f"SELECT * FROM {database}.t ORDER BY id") == [[1], [2]]
        assert lake.table("t").schema.field_names == ("id",)
        lake.sql("CREATE TABLE copied AS SELECT * FROM t")
        assert ask(lake, "SELECT * FROM copied") == [[0]]
        assert lake.sql(f"DELETE FROM {database}.t WHERE id = 1").collect()[0][0] == 1
        lake.sql("DROP TABLE t")  # the view, as in Spark
        assert ask(lake, "SELECT * FROM t") == [[2]]
    finally:
        lake.spark.catalog.dropTempView("t")


def test_statements_that_describe_a_temporary_view(lake: bitlake.Lake) -> None:
    """Bug: they described the table that the view hides, and found no view without such a table."""
    lake.sql("CREATE TABLE hidden (b INT) TBLPROPERTIES ('file-index.bitmap.columns' = 'b')")
    plain = lake.spark
    for name in ("hidden", "alone"):
        plain.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS SELECT 1 AS vv, 'q' AS ww")
    try:
        for name in ("hidden", "alone"):
            for text in (f"DESCRIBE {name}", f"DESCRIBE TABLE {name} vv", f"SHOW COLUMNS IN {name}"):
                expected = [tuple(row) for row in plain.sql(text).collect()]
                assert [tuple(row) for row in lake.sql(text).collect()] == expected, text
            assert lake.sql(f"SHOW TBLPROPERTIES {name}").collect() == []
            extended = lake.sql(f"DESCRIBE EXTENDED {name}").collect()
            assert [tuple(row)[:2] for row in extended[:2]] == [("vv", "int"), ("ww", "string")]
        for statement in ("SHOW INDEXES IN hidden", "SHOW PARTITIONS hidden"):
            with pytest.raises(InvalidRequest, match="'hidden' is a temporary view"):
                lake.sql(statement)
        assert [tuple(row)[:2] for row in lake.sql("DESCRIBE default.hidden").collect()] == [("b", "int")]
        assert lake.sql("SHOW INDEXES IN default.hidden").count() == 1
    finally:
        for name in ("hidden", "alone"):
            plain.catalog.dropTempView(name)


def test_timestamp_is_the_type_that_the_session_says(lake: bitlake.Lake) -> None:
    spark = lake.spark
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    gap, later = dt.datetime(2024, 3, 31, 2, 30), dt.datetime(2024, 3, 31, 3, 30)
    try:
        lake.sql("CREATE TABLE n (id INT, x TIMESTAMP, y TIMESTAMP_LTZ, timestamp TIMESTAMP)")
        lake.sql("ALTER TABLE n ADD COLUMN z ARRAY<TIMESTAMP>")
        shown = [row[1] for row in ask(lake, "DESCRIBE n")]
        assert shown == ["int", "timestamp_ntz", "timestamp", "timestamp_ntz", "array<timestamp_ntz>"]
        # In Berlin there is no 02:30: as an instant it is 03:30.
        lake.sql(f"INSERT INTO n (id, x) VALUES (1, TIMESTAMP'{gap}'), (2, CAST('{later}' AS TIMESTAMP))")
        for value in (f"TIMESTAMP'{gap}'", f"CAST('{gap}' AS TIMESTAMP)", f"'{gap}'::TIMESTAMP"):
            for engine in ("spark", "duckdb"):
                rows = lake.sql(f"SELECT id, x FROM n WHERE x = {value}", engine=engine)
                found = rows.collect() if engine == "spark" else rows.fetchall()
                assert [tuple(r) for r in found] == [(1, gap)], (engine, value)
        assert lake.sql(f"DELETE FROM n WHERE x = TIMESTAMP'{later}'").collect()[0][0] == 1
        assert ask(lake, "SELECT id FROM n") == [[1]]
        value = lit(dt.datetime(2024, 1, 1, tzinfo=dt.UTC))
        assert lake.sql("SELECT :v AS v", {"v": value}).schema["v"].dataType == TimestampType()
    finally:
        for name in ("spark.sql.session.timeZone", "spark.sql.timestampType"):
            spark.conf.unset(name)


def test_or_and_in_are_pushed_and_residuals_stay(lake: bitlake.Lake) -> None:
    lake.sql("CREATE TABLE t (id BIGINT, a STRING, b STRING) TBLPROPERTIES ('file-index.bitmap.columns' = 'a,b')")
    lake.sql("INSERT INTO t SELECT id, concat('a', id % 7), concat('b', id % 11) FROM range(1000)")
    for where in (
        "a = 'a1' OR b = 'b2'",
        "a IN ('a1','a2') AND b <> 'b3'",
        "NOT (a = 'a1') AND id < 100",
        "a LIKE 'a1%' AND upper(b) = 'B5'",
    ):
        (plan,) = lake.plans(f"SELECT id FROM t WHERE {where}")
        assert plan.predicate is not None
        lake.sql("SELECT id FROM t").createOrReplaceTempView("copied")
        found = ask(lake, f"SELECT id FROM t WHERE {where} ORDER BY id")
        brute = [[i] for i in range(1000) if _holds(where, i)]
        assert found == brute
    assert lake.plans("SELECT id FROM t WHERE a = 'a1' OR b = 'b2'")[0].chosen_rows < 300


def _holds(where: str, i: int) -> bool:
    a, b = f"a{i % 7}", f"b{i % 11}"
    return {
        "a = 'a1' OR b = 'b2'": a == "a1" or b == "b2",
        "a IN ('a1','a2') AND b <> 'b3'": a in ("a1", "a2") and b != "b3",
        "NOT (a = 'a1') AND id < 100": a != "a1" and i < 100,
        "a LIKE 'a1%' AND upper(b) = 'B5'": a.startswith("a1") and b == "b5",
    }[where]


def test_options_are_set_and_unset(lake: bitlake.Lake) -> None:
    lake.sql("CREATE TABLE t (id INT)")
    lake.sql("ALTER TABLE t SET TBLPROPERTIES ('file-index.bloom-filter.columns' = 'id', 'x.y' = '1')")
    assert lake.table("t").schema.options == {"file-index.bloom-filter.columns": "id", "x.y": "1"}
    lake.sql("ALTER TABLE t UNSET TBLPROPERTIES ('x.y')")
    with pytest.raises(NotFound, match=r"x\.y"):
        lake.sql("ALTER TABLE t UNSET TBLPROPERTIES ('x.y')")
    lake.sql("ALTER TABLE t UNSET TBLPROPERTIES IF EXISTS ('x.y')")
    assert lake.table("t").schema.options == {"file-index.bloom-filter.columns": "id"}


def test_explain_names_the_files_and_the_way_they_are_read(lake: bitlake.Lake) -> None:
    for text in USER_EVENTS:
        lake.sql(text)
    ((text,),) = ask(lake, "EXPLAIN SELECT * FROM user_events WHERE event_type = 'login'")
    assert "rows 0, 2, 5" in text
    assert "local relation" in text
    assert "Physical Plan" in text


def test_explain_of_a_statement_runs_only_its_query(lake: bitlake.Lake) -> None:
    for text in USER_EVENTS:
        lake.sql(text)
    found = "WHERE event_type = 'login'"
    for text, purpose in (
        (f"DELETE FROM user_events {found}", "DELETE FROM default.user_events: deletes"),
        (f"UPDATE user_events AS e SET event_type = 'x' {found}", "UPDATE default.user_events: changes"),
        (f"INSERT INTO user_events SELECT * FROM user_events {found}", "INSERT INTO default.user_events: writes"),
        (f"CREATE TABLE other AS SELECT * FROM user_events {found}", "CREATE TABLE other: writes"),
    ):
        ((plan,),) = ask(lake, f"EXPLAIN {text}")
        assert plan.startswith(purpose) and "rows 0, 2, 5" in plan and "Physical Plan" in plan
    assert "rows 0, 2, 5" in lake.explain(f"DELETE FROM user_events {found}")
    assert len(lake.table("user_events").history.snapshots()) == 1 and "other" not in str(lake.tables())


def test_a_failed_write_leaves_nothing(lake: bitlake.Lake) -> None:
    lake.sql("CREATE TABLE t (id INT NOT NULL, v VARCHAR(3))")
    for query in (
        "SELECT CAST(NULL AS INT), 'a'",
        "SELECT IF(id = 50000, NULL, CAST(id AS INT)), 'a' FROM range(100000)",
        "SELECT CAST(id AS INT), 'long' FROM range(100000)",
        "SELECT id + 3000000000, 'a' FROM range(100000)",
        "SELECT 1, 2, 3",
        "SELECT 'text', 'a'",
        "SELECT 1 / 0, 'a' FROM range(100000)",
    ):
        with pytest.raises(InvalidRequest):
            lake.sql(f"INSERT INTO t {query}")
    assert lake.table("t").snapshot is None
    assert staged(lake) == []
    assert not list(Path(lake.table("t").path).rglob("*.parquet"))
    with pytest.raises(BitlakeError):
        lake.sql("CREATE TABLE broken AS SELECT 1 / 0 AS x FROM range(10)")
    assert lake.tables() == ["t"]


@pytest.mark.parametrize(
    ("text", "error", "parts"),
    [
        ("SELEC 1", InvalidRequest, ["SELEC"]),
        ("SELECT * FROM nope", NotFound, ["nope"]),
        ("SELECT nope FROM t", NotFound, ["nope"]),
        ("SELECT id FROM t WHERE (", InvalidRequest, []),
        ("INSERT INTO nope VALUES (1)", NotFound, ["nope"]),
        ("INSERT INTO t (nope) VALUES (1)", NotFound, ["nope"]),
        ("INSERT INTO t PARTITION (nope = 1) VALUES (1)", InvalidRequest, ["nope"]),
        ("CREATE TABLE t (id INT)", AlreadyExists, ["t"]),
        ("CREATE TABLE x (id INTERVAL)", UnsupportedFeature, ["INTERVAL"]),
        ("CREATE TABLE x (id INT, ID STRING)", InvalidRequest, ["ID"]),
        ("CREATE TABLE x (id INT) USING parquet", InvalidRequest, ["parquet"]),
        (
            "CREATE TABLE x (d DECIMAL(5,2)) TBLPROPERTIES ('file-index.bloom-filter.columns'='d')",
            InvalidRequest,
            ["DECIMAL"],
        ),
        ("CREATE TABLE x (d BINARY) TBLPROPERTIES ('file-index.bitmap.columns'='d')", InvalidRequest, ["d"]),
        ("CREATE TABLE x (id INT) TBLPROPERTIES ('bucket'='many')", InvalidRequest, ["bucket", "many"]),
        ("CALL sys.rewrite_index('t')", NotFound, ["rewrite_file_index"]),
        ("CALL sys.rewrite_file_index()", InvalidRequest, ["table"]),
        ("CALL sys.rewrite_file_index(tabel => 't')", InvalidRequest, ["tabel"]),
        ("CALL sys.rewrite_file_index('t', 'id = 1')", InvalidRequest, ["partition"]),
        ("CALL sys.rewrite_file_index('nope')", NotFound, ["nope"]),
        ("DROP TABLE nope", NotFound, ["nope"]),
        ("DELETE FROM t WHERE nope = 1", NotFound, ["nope"]),
        ("SHOW PARTITIONS t", InvalidRequest, ["partition"]),
        ("TRUNCATE TABLE nope", NotFound, ["nope"]),
    ],
)
def test_mistakes_are_told_in_bitlakes_own_errors(
    lake: bitlake.Lake, text: str, error: type[BitlakeError], parts: list[str]
) -> None:
    lake.sql("CREATE TABLE t (id INT)")
    with pytest.raises(error) as caught:
        lake.sql(text).collect()
    assert all(p in str(caught.value) for p in parts), caught.value
    assert lake.tables() == ["t"]


def test_tables_of_paimon_are_written_on(spark: Any, tmp_path: Path) -> None:
    lake = bitlake.connect(str(copy_warehouse(tmp_path, "bitmap_v2", "partitioned")), spark=spark)
    before = ask(lake, "SELECT count(*) FROM bitmap_v2")[0][0]
    lake.sql("INSERT INTO bitmap_v2 SELECT * FROM bitmap_v2 WHERE c_str = 'login'")
    assert ask(lake, "SELECT count(*) FROM bitmap_v2 WHERE c_str = 'login'") == [[66]]
    assert ask(lake, "SELECT count(*) FROM bitmap_v2") == [[before + 33]]
    lake.sql(
        "INSERT OVERWRITE partitioned PARTITION (dt = '2024-01-02') SELECT * EXCEPT (dt) FROM "
        "partitioned WHERE dt = DATE '2024-01-02' AND id % 2 = 0"
    )
    assert ask(lake, "SELECT count(*) FROM partitioned WHERE dt = DATE '2024-01-02' AND id % 2 = 1") == [[0]]


def test_scans_become_dataframes(lake: bitlake.Lake) -> None:
    for text in USER_EVENTS:
        lake.sql(text)
    table = lake.table("user_events")
    frame = table.scan(columns=["user_id"], where="event_type = 'login'").to_spark()
    assert sorted(rows_of(frame)) == [[1], [3], [6]]
    assert rows_of(table.scan(columns=["user_id", "__paimon_row_index"], where="region = 'EU'").to_spark()) == [
        [2, 1],
        [6, 5],
    ]


def test_views_over_lake_tables(lake: bitlake.Lake) -> None:
    for text in USER_EVENTS:
        lake.sql(text)
    lake.sql("CREATE TEMPORARY VIEW logins AS SELECT user_id FROM user_events WHERE event_type = 'login'")
    try:
        assert sorted(ask(lake, "SELECT * FROM logins")) == [[1], [3], [6]]
        with pytest.raises(InvalidRequest):
            lake.sql("CREATE TEMPORARY VIEW logins AS SELECT 1")
        lake.sql("CREATE OR REPLACE TEMP VIEW logins AS SELECT count(*) AS n FROM user_events")
        assert ask(lake, "SELECT * FROM logins") == [[6]]
    finally:
        lake.spark.catalog.dropTempView("logins")
    with pytest.raises(UnsupportedFeature, match="user_events"):
        lake.sql("CREATE TEMPORARY FUNCTION events() RETURNS BIGINT RETURN (SELECT count(*) FROM user_events)")
    lake.sql("SET spark.sql.shuffle.partitions = 2")
    assert ask(lake, "DESCRIBE user_events user_id")[1] == ["data_type", "int"]
    lake.sql("CREATE TABLE k (id INT, v INT, PRIMARY KEY (id) NOT ENFORCED)")
    assert lake.table("k").schema.primary_keys == ("id",)
    assert "'primary-key' = 'id'" in ask(lake, "SHOW CREATE TABLE k")[0][0]
    assert ["Primary key", "id", ""] in ask(lake, "DESCRIBE EXTENDED k")
    with pytest.raises(InvalidRequest, match="given twice"):
        lake.sql("CREATE TABLE k2 (id INT, PRIMARY KEY (id) NOT ENFORCED) TBLPROPERTIES ('primary-key' = 'id')")


def test_dataframes_are_written_by_name(lake: bitlake.Lake) -> None:
    frame = lake.spark.createDataFrame([("b", 1), ("a", 2)], "P string, id int")
    assert lake.write(frame, "t", partition_by=["P"], options={"file-index.bitmap.columns": "id"}) == 2
    assert lake.write(lake.spark.createDataFrame([(3,)], "ID int"), "t") == 1
    assert sorted(rows_of(lake.read("t")), key=repr) == [["a", 2], ["b", 1], [None, 3]]
    with pytest.raises(AlreadyExists):
        lake.write(frame, "t", "error")
    assert lake.write(frame, "t", "ignore") == 0
    lake.write(frame.limit(0), "t", "overwrite")
    assert rows_of(lake.read("t")) == []
    with pytest.raises(InvalidRequest, match="nope"):
        lake.write(frame.withColumn("nope", frame.id), "t")
    with pytest.raises(InvalidRequest, match="sometimes"):
        lake.write(frame, "t", "sometimes")


def test_lists_of_char_with_null_are_not_padded(lake: bitlake.Lake) -> None:
    """As in Spark: conditions of scans found rows that queries do not."""
    spark = lake.spark
    lake.sql("CREATE TABLE t (id INT, c CHAR(5))")
    lake.sql("INSERT INTO t VALUES (1, 'a'), (2, 'ab'), (3, NULL)")
    spark.sql("CREATE TABLE plain_chars (id INT, c CHAR(5)) USING parquet")
    try:
        spark.sql("INSERT INTO plain_chars VALUES (1, 'a'), (2, 'ab'), (3, NULL)")
        for listed in ("'a', 'ab', NULL", "'a    ', 'ab', NULL", "'a', 'ab'", "'a     ', NULL"):
            for condition in (f"c IN ({listed})", f"NOT c IN ({listed})", f"c IN ({listed}) OR id = 2"):
                plain = rows_of(spark.sql(f"SELECT id FROM plain_chars WHERE {condition} ORDER BY id"))
                assert ask(lake, f"SELECT id FROM t WHERE {condition} ORDER BY id") == plain, condition
                found = lake.table("t").scan(where=condition, columns=["id"]).to_arrow()["id"].to_pylist()
                assert sorted(found) == [row[0] for row in plain], condition
    finally:
        spark.sql("DROP TABLE plain_chars")


def test_char_columns_compare_as_sql_says(lake: bitlake.Lake) -> None:
    lake.sql("CREATE TABLE t (c CHAR(5), v VARCHAR(5))")
    lake.sql("INSERT INTO t VALUES ('ab', 'ab'), ('cd   ', 'cd'), (NULL, NULL)")
    assert ask(lake, "SELECT * FROM t WHERE c = 'ab'") == [["ab   ", "ab"]]
    assert ask(lake, "SELECT v FROM t WHERE c IN ('cd', 'x')") == [["cd"]]
    assert lake.table("t").scan(columns=["v"], where="c = 'cd'").to_arrow().to_pylist() == [{"v": "cd"}]
    for where, expected in (("BETWEEN 'ab' AND 'ab'", []), ("NOT BETWEEN 'ab' AND 'ab'", ["ab", "cd"])):
        # Spark pads no end of BETWEEN: a Parquet table of its own gives these rows.
        assert ask(lake, f"SELECT v FROM t WHERE c {where} ORDER BY v") == [[v] for v in expected]
        assert sorted(lake.table("t").to_arrow(["v"], f"c {where}").column("v").to_pylist()) == expected
    lake.sql("CREATE TABLE u AS SELECT * FROM t")
    assert [str(f.type) for f in lake.table("u").schema.fields] == ["CHAR(5)", "VARCHAR(5)"]
    with pytest.raises(InvalidRequest, match="longer"):
        lake.sql("INSERT INTO t VALUES ('123456', 'x')")


def test_views_of_whole_files_are_kept_and_few(lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bitlake.spark.read.scan.DRIVER_BYTES", -1)
    monkeypatch.setattr("bitlake.spark.context._KEPT_VIEWS", 2)
    for i in range(3):
        lake.sql(f"CREATE TABLE t{i} AS SELECT id, {i} AS k FROM range(100)")
        query = f"SELECT count(*), max(a.k) FROM t{i} a JOIN t{i} b ON a.id = b.id WHERE a.id + b.id > 9"
        assert ask(lake, query) == ask(lake, query) == [[95, i]]
    names = [t.name for t in lake.spark.catalog.listTables() if t.name.startswith("__bitlake_")]
    assert 0 < len(names) <= 2, "of all lakes of the session together"
    parts = " UNION ALL ".join(f"SELECT max(id + k) AS m FROM t{i} WHERE id + k > {i}" for i in (*range(2, -1, -1), 0))
    assert ask(lake, f"SELECT count(*), max(m) FROM ({parts})") == [[4, 101]], "more views than are kept"


def test_all_temporary_views_are_dropped(lake: bitlake.Lake) -> None:
    """A notebook cleans up; the views that queries share are among what it drops."""
    lake.sql("CREATE TABLE t AS SELECT id, CAST(id AS STRING) AS s FROM range(100)")
    queries = (
        "SELECT max(id), count(*) FROM t",
        "SELECT sum(id + 1) FROM t WHERE s < '5'",
        "SELECT * FROM t WHERE id < 0",
    )
    before = [ask(lake, query) for query in queries]
    for view in lake.spark.catalog.listTables():
        if view.isTemporary:
            lake.spark.catalog.dropTempView(view.name)
    assert [ask(lake, query) for query in queries] == before


def test_show_partitions_escapes_values_as_spark_does(lake: bitlake.Lake) -> None:
    # Timestamps came with raw colons, which DROP PARTITION and tools that split paths cannot take apart.
    lake.sql("CREATE TABLE p (v INT, `a/b` STRING, t TIMESTAMP_NTZ, z TIMESTAMP) PARTITIONED BY (`a/b`, t, z)")
    times = "TIMESTAMP_NTZ '2024-01-02 03:04:05.120', TIMESTAMP '2024-01-02 03:04:00Z'"
    lake.sql(f"INSERT INTO p VALUES (1, 'x=y: %{{é}}', {times}), (2, NULL, {times})")
    spark = lake.spark
    zone = spark.conf.get("spark.sql.session.timeZone")
    assert zone is not None
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        found = ask(lake, "SHOW PARTITIONS p")
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    tail = "t=2024-01-02 03%3A04%3A05.12/z=2024-01-02 12%3A04%3A00"
    assert found == [[f"a%2Fb=null/{tail}"], ["a%2Fb=x%3Dy%3A %25%7Bé}/" + tail]]


def test_a_table_made_of_a_query_refuses_collations(lake: bitlake.Lake) -> None:
    # They were dropped in silence, so that the stored column compares other values as equal than the query's does.
    for kind in ("'a' COLLATE UTF8_LCASE", "array(named_struct('a', 'a' COLLATE UTF8_LCASE))"):
        with pytest.raises(UnsupportedFeature, match="column 'c' is .*collat.*cast it"):
            lake.sql(f"CREATE TABLE t AS SELECT {kind} AS c")
        with pytest.raises(UnsupportedFeature, match="column 'c' is .*collat.*cast it"):
            lake.write(lake.spark.sql(f"SELECT {kind} AS c"), "t")
    assert lake.tables() == []
    lake.sql("CREATE TABLE t AS SELECT CAST('A' COLLATE UTF8_LCASE AS STRING) AS c")
    lake.sql("INSERT INTO t SELECT 'b' COLLATE UTF8_LCASE")
    assert sorted(r[0] for r in lake.sql("SELECT c FROM t").collect()) == ["A", "b"]


def test_functions_of_tables_take_lake_tables(lake: bitlake.Lake) -> None:
    # TABLE(t) in brackets was not seen as a table's name: Spark did not find it.
    class Total:
        def __init__(self) -> None:
            self.key: Any = None
            self.total = 0

        def eval(self, row: Row) -> None:
            self.key, self.total = row["k"], self.total + row["v"]

        def terminate(self) -> Iterator[tuple[Any, int]]:
            yield self.key, self.total

    lake.spark.udtf.register("total_of", udtf(Total, returnType="k: string, total: bigint"))
    lake.sql("CREATE TABLE rows_of_keys (k STRING, v BIGINT)")
    try:
        lake.sql("INSERT INTO rows_of_keys VALUES ('a', 1), ('b', 2), ('a', 3)")
        for argument, key in (
            ("TABLE(rows_of_keys)", "k"),
            ("TABLE(default.rows_of_keys)", "rows_of_keys.k"),
            ("row => TABLE(rows_of_keys)", "rows_of_keys.k"),
            ("TABLE(SELECT * FROM rows_of_keys WHERE v < 9)", "k"),
        ):
            found = lake.sql(f"SELECT * FROM total_of({argument} PARTITION BY {key}) ORDER BY k")
            assert [tuple(r) for r in found.collect()] == [("a", 4), ("b", 2)], argument
        whole = lake.sql("SELECT total FROM total_of(TABLE(rows_of_keys) WITH SINGLE PARTITION)")
        assert whole.collect() == [(6,)]
    finally:
        lake.sql("DROP TABLE rows_of_keys")
