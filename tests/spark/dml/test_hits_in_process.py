"""DELETE and UPDATE whose conditions compute: found in this process where plain Spark finds the same rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from long import exhaustive
from spark_jobs import jobs_of

import bitlake
from bitlake.errors import InvalidRequest
from bitlake.spark.dml import delete_update
from bitlake.spark.dml.target import Target

pytestmark = pytest.mark.spark

VECTORS = {"deletion-vectors.enabled": "true"}
KEYED = VECTORS | {"primary-key": "id", "bucket": "1"}
COLUMNS = "id BIGINT NOT NULL, a INT, d DECIMAL(9, 2), b STRING, day DATE, at TIMESTAMP, c CHAR(4)"
FOUND_HERE = [
    "id % 100 = 7",
    "t.id % 100 = 8 AND a > 3",
    "a * 2 + 1 BETWEEN 5 AND 6 OR id = 4",
    "NOT (a - 5 < d)",
    "-a = -3",
    "id DIV 7 = 11",
    "a / 4 > 2.3",
    "b || 'x' = 'b3x'",
    "CAST(b AS STRING) || CAST(a AS STRING) LIKE 'b%4'",
    "day + INTERVAL 3 DAYS >= DATE '2025-02-27'",
    "CAST(at AS DATE) = DATE '2025-01-02' AND a + id > 40",
    "a % 3 IN (1, 2) AND b = 'b1'",
    "a + 1 IS NULL",
    f"id % 3000 IN ({', '.join(str(7 * i + 5) for i in range(300))})",
    "CAST(a AS DECIMAL(5, 1)) / 2 = 3.5 AND a::DECIMAL(5, 1) < 8",
    "CASE WHEN a % 2 = 0 THEN id % 5 ELSE a END = 0",
]
LEFT_TO_SPARK = [
    "c || '' = 'c1  ' AND id < 3000",
    "(a & 3) = 1 AND id < 2000",
    "id % 7 = (SELECT 3)",
    "abs(a - 6) = 2 AND id < 5000",
    "mod(id, 19) = 4",
    "`mod`(id, 13) = 4",
    "int(a) = 6",
    "date(at) = DATE '2025-02-21'",
    "year(day) = 2025 AND a % 2 = 0",
]


def create_rows(lake: bitlake.Lake, options: dict[str, str], rows: int = 400) -> None:
    properties = ", ".join(f"'{k}' = '{v}'" for k, v in options.items())
    lake.sql(f"CREATE TABLE t ({COLUMNS})" + (f" TBLPROPERTIES ({properties})" if properties else ""))
    lake.sql(
        "INSERT INTO t SELECT id, IF(id % 13 = 0, NULL, id % 11), id / 8, concat('b', id % 5), "
        "date_add(DATE '2025-01-01', int(id % 60)), timestamp_seconds(1735689600 + id * 977), concat('c', id % 3) "
        f"FROM range({rows})"
    )


class SparkSearches:
    """How often Spark was asked to find rows."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        gather = delete_update.gather

        def counted(*args: Any, **named: Any) -> Any:
            self.count += 1
            return gather(*args, **named)

        monkeypatch.setattr(delete_update, "gather", counted)


@pytest.mark.parametrize("options", [VECTORS, exhaustive(KEYED), exhaustive({})], ids=["vectors", "keyed", "rewrite"])
def test_rows_are_those_of_plain_spark(
    lake: bitlake.Lake, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    create_rows(lake, options, 6000)
    lake.sql("DELETE FROM t WHERE id IN (4, 107)")
    lake.spark.createDataFrame(lake.table("t").to_arrow()).createOrReplaceTempView("plain_rows")
    remaining = {r.id for r in lake.spark.table("plain_rows").select("id").collect()}
    searches = SparkSearches(monkeypatch)
    for condition in FOUND_HERE + LEFT_TO_SPARK:
        written = condition.replace("t.id", "plain_rows.id")
        deleted = {r.id for r in lake.spark.sql(f"SELECT id FROM plain_rows WHERE {written}").collect()} & remaining
        assert deleted, condition
        searches.count = 0
        assert lake.sql(f"DELETE FROM t WHERE {condition}").collect()[0][0] == len(deleted), condition
        assert searches.count == (condition in LEFT_TO_SPARK), condition
        remaining -= deleted
        assert sorted(lake.table("t").to_arrow(["id"])["id"].to_pylist()) == sorted(remaining), condition


def test_update_and_delete_that_compute_find_rows_without_a_job(
    lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_rows(lake, VECTORS)
    deleted, jobs = jobs_of(lake.spark, lambda: lake.sql("DELETE FROM t WHERE id % 100 = 7").collect()[0][0])
    assert (deleted, jobs) == (4, 0)
    searches = SparkSearches(monkeypatch)
    assert lake.sql("UPDATE t SET b = 'new' WHERE id % 100 = 8").collect()[0][0] == 4
    assert searches.count == 0
    assert lake.table("t").count("b = 'new'") == 4


def test_spark_finds_rows_where_its_session_decides_what_an_operator_gives(
    lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_rows(lake, VECTORS)
    lake.spark.conf.set("spark.sql.ansi.enabled", "false")
    searches = SparkSearches(monkeypatch)
    try:
        assert lake.sql("DELETE FROM t WHERE id / (id - 5) IS NULL").collect()[0][0] == 1
    finally:
        lake.spark.conf.unset("spark.sql.ansi.enabled")
    assert searches.count == 1


def test_spark_finds_rows_by_a_function_that_the_session_replaced(lake: bitlake.Lake) -> None:
    create_rows(lake, VECTORS)
    lake.spark.udf.register("abs", lambda value: -1 if value == 3 else 1, "int")
    try:
        lake.spark.createDataFrame(lake.table("t").to_arrow()).createOrReplaceTempView("plain_rows")
        (expected,) = lake.spark.sql("SELECT count(*) FROM plain_rows WHERE abs(a) IN (-1, 5)").collect()
        assert lake.sql("DELETE FROM t WHERE abs(a) IN (-1, 5)").collect()[0][0] == expected[0] > 0
    finally:
        lake.spark.sql("DROP TEMPORARY FUNCTION abs")


@pytest.mark.parametrize("options", [VECTORS, exhaustive(KEYED)], ids=["vectors", "keyed"])
def test_a_value_that_cannot_be_computed_fails_as_in_spark(lake: bitlake.Lake, options: dict[str, str]) -> None:
    create_rows(lake, options)
    with pytest.raises(InvalidRequest, match="Remainder by zero"):
        lake.sql("DELETE FROM t WHERE 1 % (id - 5) = 3")
    assert lake.table("t").count() == 400
    lake.sql("DELETE FROM t WHERE id = 5")
    assert lake.sql("DELETE FROM t WHERE 10 / (id - 5) = 10").collect()[0][0] == 1


def test_spark_finds_rows_of_a_table_of_more_rows(lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    create_rows(lake, VECTORS)
    searches = SparkSearches(monkeypatch)
    monkeypatch.setattr(delete_update, "MOST_COMPUTED_ROWS", 399)
    assert lake.sql("DELETE FROM t WHERE id % 100 = 7").collect()[0][0] == 4
    assert searches.count == 1


def test_a_statement_counts_rows_that_another_writer_left(lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of the second try are found in the files of that time."""
    create_rows(lake, KEYED)
    original = delete_update.hits_in_process

    def beside_a_writer(target: Target, condition: Any) -> Any:
        hits = original(target, condition)
        monkeypatch.setattr(delete_update, "hits_in_process", original)
        table = lake.table("t")
        table.upsert(pa.Table.from_pylist([{"id": 7, "a": 1}, {"id": 1007, "a": 2}], table.arrow_schema))
        return hits

    monkeypatch.setattr(delete_update, "hits_in_process", beside_a_writer)
    assert lake.sql("DELETE FROM t WHERE id % 100 = 7").collect()[0][0] == 5
    assert lake.table("t").count("id % 100 = 7") == 0
    assert lake.table("t").count() == 396
