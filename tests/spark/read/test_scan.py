"""Which of the three ways a scan is read."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from spark_jobs import jobs_of

import bitlake
from bitlake.scan import page_pruning
from bitlake.scan import page_pruning as page_planning
from bitlake.spark.read import scan as spark_scan

pytestmark = pytest.mark.spark

ROWS, PAGE = 20_000, 100


def test_rows_that_bounds_of_pages_leave_few_of_are_found_here(
    lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of keys in a table in order of them: each is in a page of its own, and no file is read whole."""
    for module in (page_planning, page_pruning):
        monkeypatch.setattr(module, "WORTH_ROWS", 0)
    monkeypatch.setattr(page_planning, "WORTH_BYTES", 0)
    monkeypatch.setattr(spark_scan, "DRIVER_ROWS", 1_000)
    monkeypatch.setattr(spark_scan, "PAGE_ROWS", PAGE)
    order = np.arange(ROWS)
    made = lake.create_table(
        "t", pa.schema([("id", pa.int64()), ("v", pa.string())]), options={"parquet.page.row.count.limit": str(PAGE)}
    )
    for half in (order[::2], order[1::2]):
        made.append(pa.table({"id": half, "v": [f"v{i}" for i in half]}))
    keys = [i * 997 for i in range(20)]
    listed = f"id IN ({', '.join(map(str, keys))})"
    chosen = made._core.scan().where(listed).plan().chosen_rows
    assert 1_000 < chosen <= 2 * 20 * PAGE, "too many to be read before they are judged"
    seen = spark_scan.looked_at(made._core.scan().where(listed)).plan()
    assert seen.chosen_rows == 20 and all(f.selection.exact for f in seen.files)
    assert len(spark_scan.choose(seen).driver) == 2
    found = lake.sql(f"SELECT v FROM t WHERE {listed} AND v <> 'v997'").collect()
    assert sorted(r.v for r in found) == sorted(f"v{i}" for i in keys if i != 997)
    assert "2 read here" in lake.sql(f"EXPLAIN SELECT v FROM t WHERE {listed}").collect()[0][0]
    # Pages side by side surely hold many rows that match: Spark's own reader leaves the others out as well.
    many = made._core.scan().where("id BETWEEN 500 AND 2999")
    assert spark_scan.looked_at(many) is many and len(spark_scan.choose(many.plan()).native) == 2
    assert lake.sql("SELECT count(DISTINCT v) FROM t WHERE id BETWEEN 500 AND 2999").collect()[0][0] == 2500
    # So it is below what may be read here, unless few rows turn out to match, or are wanted.
    monkeypatch.setattr(spark_scan, "DRIVER_ROWS", 10_000)
    monkeypatch.setattr(spark_scan, "RANGE_ROWS", 1_000)
    monkeypatch.setattr(spark_scan, "LOCAL_ROWS", 1_000)
    assert spark_scan.looked_at(many) is many and len(spark_scan.choose(many.plan()).native) == 2
    assert len(spark_scan.choose(many.plan(), limited=True).driver) == 2
    few = spark_scan.looked_at(made._core.scan().where("id BETWEEN 500 AND 2999 AND v LIKE '%701'")).plan()
    assert few.chosen_rows == 3 and len(spark_scan.choose(few).driver) == 1
    some = lake.sql("SELECT count(*) FROM t WHERE id BETWEEN 500 AND 2999 AND v LIKE 'v7%'").collect()[0][0]
    assert some == sum(str(i).startswith("7") for i in range(500, 3000))


def test_whole_files_of_many_rows_are_read_by_spark(lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """However few bytes they have: each row takes time on its way through the driver."""
    made = lake.create_table("t", pa.schema([("id", pa.int64()), ("v", pa.string())]))
    made.append(pa.table({"id": np.arange(ROWS), "v": ["v"] * ROWS}))
    scan = made._core.scan()
    assert len(spark_scan.choose(scan.plan()).driver) == 1
    monkeypatch.setattr(spark_scan, "RANGE_ROWS", ROWS - 1)
    assert len(spark_scan.choose(scan.plan()).native) == 1
    assert len(spark_scan.choose(scan.plan(), limited=True).driver) == 1, "few of them are taken"
    assert len(spark_scan.choose(scan.select([]).plan()).driver) == 1, "rows without columns are a number"
    picked = scan.where("id = 7").plan()
    assert picked.chosen_rows == ROWS, "statistics leave the file whole"
    assert len(spark_scan.choose(picked).native) == 1
    # Unless few rows match, which the condition's column tells.
    few = spark_scan.looked_at(scan.where("id = 7")).plan()
    assert few.chosen_rows == 1 and len(spark_scan.choose(few).driver) == 1
    assert lake.sql("SELECT * FROM t WHERE id = 7").collect() == [(7, "v")]
    assert "1 read here" in lake.sql("EXPLAIN SELECT * FROM t WHERE id = 7").collect()[0][0]
    monkeypatch.setattr(spark_scan, "LOCAL_ROWS", 1_000)
    most = scan.where("id > 6")
    assert spark_scan.looked_at(most) is most
    assert lake.sql("SELECT v, count(*) FROM t WHERE id > 6 GROUP BY v").collect()[0][:] == ("v", ROWS - 7)
    monkeypatch.setattr(spark_scan, "DRIVER_ROWS", ROWS - 1)
    monkeypatch.setattr(spark_scan, "POINT_ROWS", ROWS - 1)
    assert len(spark_scan.choose(spark_scan.looked_at(scan.where("id = 7")).plan()).native) == 1, "many rows to look at"


def test_rows_of_a_value_are_found_among_rows_that_are_left_of_files(
    lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After MERGEs each file has rows for every range of keys, and a deletion vector: Spark ran a job for one key."""
    monkeypatch.setattr(spark_scan, "DRIVER_ROWS", 1_000)
    monkeypatch.setattr(spark_scan, "RANGE_ROWS", 1_000)
    made = lake.create_table(
        "t", pa.schema([("id", pa.int64()), ("v", pa.string())]), options={"deletion-vectors.enabled": "true"}
    )
    for third in range(3):
        ids = np.arange(third, ROWS, 3)
        made.append(pa.table({"id": ids, "v": [f"v{i % 10}" for i in ids]}))
    assert lake.sql("DELETE FROM t WHERE id % 5 = 1").collect()[0][0] == len(range(1, ROWS, 5))
    where = "id IN (8, 13, 16) AND v <> 'v8'"
    scan = made._core.scan().where(where)
    assert scan.plan().chosen_rows > 1_000 and len(spark_scan.choose(scan.plan()).masked) == 3
    seen = spark_scan.looked_at(scan).plan()
    assert seen.chosen_rows == 1 and len(spark_scan.choose(seen).driver) == 1
    rows, jobs = jobs_of(lake.spark, lambda: lake.sql(f"SELECT * FROM t WHERE {where}").collect())
    assert (rows, jobs) == ([(13, "v3")], 0)
    # Many rows have this value.
    monkeypatch.setattr(spark_scan, "LOCAL_ROWS", 100)
    many = made._core.scan().where("v = 'v3'")
    assert spark_scan.looked_at(many) is many
    counted = lake.sql("SELECT count(*), count(DISTINCT id) FROM t WHERE v = 'v3'").collect()
    assert counted == [(len(range(3, ROWS, 10)),) * 2]


def test_spark_knows_that_a_table_of_which_nothing_is_left_is_empty(lake: bitlake.Lake) -> None:
    # The rows came as an RDD without partitions, of which Spark's optimiser knows nothing.
    made = lake.create_table("t", pa.schema([("id", pa.int64()), ("s", pa.struct([("a", pa.list_(pa.string()))]))]))
    made.append(pa.table({"id": [1], "s": [{"a": ["x"]}]}))
    frame = lake.sql("SELECT t.id, t.s FROM t JOIN (SELECT 5 AS id) x ON t.id = x.id WHERE t.id > 7")
    assert frame.collect() == []
    assert [f.name for f in frame.schema.fields] == ["id", "s"]
    plan = lake.sql("EXPLAIN EXTENDED SELECT id, s FROM t WHERE id > 7").collect()[0][0]
    assert "LocalRelation <empty>" in plan and "LogicalRDD" not in plan
    assert lake.sql("SELECT count(*), max(id) FROM t WHERE id > 7 AND id < 100").collect()[0][:] == (0, None)


@pytest.mark.exhaustive
def test_subqueries_are_selected_from_files_that_are_read_in_two_ways(lake: bitlake.Lake) -> None:
    """Over a UNION ALL Spark's optimiser fails for a projection with a correlated subquery: "key not found"."""
    lake.sql("CREATE TABLE t (id INT, k INT) TBLPROPERTIES ('deletion-vectors.enabled' = 'true')")
    lake.sql("INSERT INTO t VALUES (1, 1), (2, 9), (3, 3)")
    lake.sql("INSERT INTO t VALUES (4, 4), (5, 8)")
    lake.sql("CREATE TABLE u (id INT)")
    lake.sql("INSERT INTO u VALUES (1), (2), (4), (8)")
    lake.sql("DELETE FROM t WHERE id = 3")
    lake.spark.conf.set("spark.paimon.read.spark-path", "spark")
    try:
        lake.sql("CREATE OR REPLACE TEMPORARY VIEW v AS SELECT * FROM t")
        for name in ("t", "v"):
            for expression, expected in (
                ("EXISTS (SELECT 1 FROM u WHERE u.id = x.k)", [True, False, True, True]),
                ("k IN (SELECT u.id FROM u WHERE u.id < x.id + 4)", [True, False, True, True]),
                ("(SELECT max(u.id) FROM u WHERE u.id < x.k)", [None, 8, 2, 4]),
                ("count(*) OVER (PARTITION BY (SELECT max(u.id) FROM u WHERE u.id < x.k))", [1, 1, 1, 1]),
            ):
                rows = lake.sql(f"SELECT id, {expression} FROM {name} x ORDER BY id").collect()
                assert [r[1] for r in rows] == expected, (name, expression)
        pipe = lake.sql("FROM t x |> SELECT id, EXISTS (SELECT 1 FROM u WHERE u.id = x.k) AS e |> ORDER BY id")
        assert [r.e for r in pipe.collect()] == [True, False, True, True]
        # Filters and columns still reach the files.
        plan = lake.sql("EXPLAIN SELECT id IN (SELECT id FROM u) FROM t WHERE k = 4").collect()[0][0]
        assert "EqualTo(k,4)" in plan
    finally:
        lake.spark.conf.unset("spark.paimon.read.spark-path")
        lake.sql("DROP VIEW IF EXISTS v")
