"""Queries answered from metadata and indexes, and first rows: as Spark answers, with its names and types."""

from __future__ import annotations

import datetime as dt
import functools
import shutil
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from answers import plain, rows_of
from builders import every_type
from long import every, exhaustive
from pyspark.sql.pandas.types import from_arrow_schema
from spark_jobs import jobs_of

import bitlake
from bitlake.cli.result import Result
from bitlake.scan.plan import SkipReason
from bitlake.spark.read import query as spark_query
from bitlake.spark.read import scan as spark_scan

pytestmark = pytest.mark.spark
Wanted = Callable[[str], tuple[list[Any], Any]]
OPTIONS = {
    "file-index.bitmap.columns": "status,flag,score",
    "file-index.range-bitmap.columns": "amount,day",
    "file-index.bsi.columns": "price,big",
}


def rows() -> pa.Table:
    n = 600
    return pa.table(
        {
            "id": pa.array(range(n), pa.int64()),
            "status": [None if i % 9 == 0 else f"S{i % 4}" for i in range(n)],
            "flag": [i % 3 == 0 for i in range(n)],
            "score": pa.array([None if i % 5 == 0 else (0.0, -0.0, float("nan"), 1.5)[i % 4] for i in range(n)]),
            "amount": pa.array([i * 7 % 501 for i in range(n)], pa.int32()),
            "day": [dt.date(2024, 1, 1) + dt.timedelta(i % 30) for i in range(n)],
            "price": pa.array(
                [None if i % 11 == 0 else Decimal(i * 7919 % 20_011 - 10_000).scaleb(-2) for i in range(n)],
                pa.decimal128(9, 2),
            ),
            "big": pa.array([(i - 300) * 2**30 for i in range(n)], pa.int64()),
        }
    )


@pytest.fixture(scope="module")
def lake(spark: Any, tmp_path_factory: Any) -> Iterator[bitlake.Lake]:
    folder = tmp_path_factory.mktemp("shortcut")
    lake = bitlake.connect(str(folder / "lake"), spark=spark)
    table = lake.create_table("t", rows().schema, options=OPTIONS)
    table.append(rows())
    table.append(rows().slice(0, 100))
    gone = lake.create_table("gone", rows().schema, options=OPTIONS)
    gone.append(rows())
    gone.append(rows().slice(0, 100))
    for path in Path(gone.path).rglob("*.parquet"):
        path.unlink()
    spark.createDataFrame(pa.concat_tables([rows(), rows().slice(0, 100)])).createOrReplaceTempView("plain_t")
    yield lake
    spark.catalog.dropTempView("plain_t")
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def wanted_of(lake: bitlake.Lake) -> Wanted:
    """Spark's rows and schema for a query over the rows as a view of Spark's own; each is asked once."""

    @functools.cache
    def wanted(text: str) -> tuple[list[Any], Any]:
        frame = lake.spark.sql(text.format("plain_t"))
        return rows_of(frame), frame.schema

    return wanted


AGGREGATES = [
    "SELECT COUNT(*) FROM {}",
    "SELECT count(1), count(Status) AS n, COUNT(DISTINCT status), min(amount), MAX(day) FROM {}",
    "SELECT COUNT(*), MIN(id), MAX(id) FROM {}",
    "SELECT COUNT(*) FROM {} WHERE status <> 'S1'",
    "SELECT COUNT(*), COUNT(status), MAX(amount), min(day) FROM {} WHERE amount BETWEEN 100 AND 200",
    "SELECT status, COUNT(*) FROM {} GROUP BY status",
    "SELECT COUNT(*) c, score, COUNT(score) FROM {} x WHERE x.flag GROUP BY x.score",
    "SELECT DISTINCT flag FROM {} WHERE status IN ('S2', 'S3')",
    "SELECT day, COUNT(*) FROM {} WHERE status IS NULL GROUP BY day",
    "SELECT MIN(status), MAX(status), COUNT(*) FROM {} WHERE status = 'nope'",
    "SELECT MAX(score), COUNT(DISTINCT score) FROM {}",
    "SELECT status, COUNT(*), SUM(amount), AVG(price), MIN(day), MAX(day) FROM {} WHERE flag GROUP BY status",
    "SELECT SUM(price), AVG(price), SUM(amount), AVG(amount), COUNT(price) FROM {} WHERE status <> 'S1'",
    "SELECT SUM(big), AVG(big) FROM {} WHERE amount < 60",
    "SELECT SUM(amount), AVG(price), MAX(big) FROM {} WHERE status = 'nope'",
    "SELECT flag, status, SUM(price), COUNT(DISTINCT day) FROM {} GROUP BY flag, status",
    "SELECT flag, COUNT(status), COUNT(DISTINCT score), MAX(score) FROM {} GROUP BY flag",
    "SELECT DISTINCT flag, status FROM {}",
    "SELECT amount, SUM(amount), MIN(amount) FROM {} WHERE day = DATE'2024-01-03' GROUP BY amount",
]


MORE_THAN_AGGREGATES = [
    "SELECT status, count(*) AS n FROM {} WHERE amount < 400 GROUP BY status HAVING n > 10 "
    "ORDER BY n DESC, status LIMIT 3",
    "SELECT Status, COUNT(status), count(*) + 1 FROM {} GROUP BY 1 ORDER BY count(*), status OFFSET 1",
    "SELECT upper(x.status) AS u, count(1) * 2.5 AS m FROM {} AS x GROUP BY x.status HAVING x.status IS NULL "
    "OR count(*) BETWEEN 100 AND 200 ORDER BY u NULLS LAST",
    "SELECT score, count(*) FROM {} WHERE flag AND score IS NOT NULL GROUP BY score ORDER BY score DESC",
    "SELECT max(amount) - min(amount) AS spread, count(DISTINCT status) = 4, CAST(count(*) AS STRING) FROM {}",
    "SELECT count(*) FROM {} WHERE status = 'nope' HAVING count(*) = 0",
    "SELECT min(day) FROM {} WHERE status = 'nope' LIMIT 5",
    "SELECT count(*) FROM {} LIMIT 0",
    "SELECT DISTINCT status FROM {} WHERE flag ORDER BY status DESC NULLS FIRST LIMIT 2 -- the last two",
    "SELECT status AS s, count(*) FROM {} GROUP BY s HAVING s LIKE 'S%' "
    "ORDER BY CASE WHEN s = 'S2' THEN 0 ELSE 1 END, s;",
    "SELECT weekofyear(day) AS w, count(*), sum(price) FROM {} GROUP BY w HAVING sum(price) > -1000 ORDER BY w",
    "SELECT trunc(x.day, 'MM'), status, avg(amount) + 1 FROM {} AS x WHERE flag GROUP BY 1, status ORDER BY 3, status",
    "SELECT date_trunc('MONTH', day) AS m, max(big) - min(big) FROM {} WHERE status IS NOT NULL GROUP BY m",
    "SELECT width_bucket(amount, 50, 450, 5) AS b, count(*), sum(amount) FROM {} GROUP BY b ORDER BY b",
    "SELECT width_bucket(amount, 400, 100, 3), max(day) FROM {} GROUP BY width_bucket(amount, 400, 100, 3) ORDER BY 1",
    "SELECT upper(status), round(sum(price) / count(price), 1) FROM {} GROUP BY upper(status) ORDER BY 1 NULLS LAST",
    "SELECT EXISTS(SELECT * FROM {} WHERE status = 'S3' AND amount > 490)",
    "SELECT EXISTS (SELECT id, 1 + 1 FROM {} WHERE status = 'nope') AS there",
    "SELECT NOT EXISTS(SELECT 1 FROM {} x WHERE x.day = DATE'2024-01-03' LIMIT 1)",
]


@pytest.mark.parametrize("text", every(5, MORE_THAN_AGGREGATES))
def test_what_is_made_of_aggregates_opens_no_data_file(lake: bitlake.Lake, wanted_of: Wanted, text: str) -> None:
    """HAVING, ORDER BY, LIMIT, expressions and EXISTS: over a table whose data files are gone, in order."""
    wanted, schema = wanted_of(text)
    found = lake.sql(text.format("gone"))
    assert rows_of(found) == wanted
    assert found.schema.names == [n.replace("plain_t", "gone") for n in schema.names]
    assert [f.dataType for f in found.schema] == [f.dataType for f in schema]
    (explained,) = rows_of(lake.sql("EXPLAIN " + text.format("gone")))[0]
    assert "answered   from metadata and indexes" in explained


@pytest.mark.parametrize("text", every(3, AGGREGATES))
def test_answers_without_data_files(lake: bitlake.Lake, wanted_of: Wanted, text: str) -> None:
    wanted, schema = wanted_of(text)
    found = lake.sql(text.format("gone"))
    assert sorted(rows_of(found), key=repr) == sorted(wanted, key=repr)
    assert found.schema.names == schema.names
    assert [f.dataType for f in found.schema] == [f.dataType for f in schema]


@pytest.mark.parametrize("text", AGGREGATES + [t for t in MORE_THAN_AGGREGATES if "EXISTS" not in t])
def test_without_spark_no_data_file_is_opened_either(lake: bitlake.Lake, wanted_of: Wanted, text: str) -> None:
    """Rows, names and types are those of Spark; of an EXISTS without alias the name is not known."""
    wanted, schema = wanted_of(text)
    found = Result.of(lake, text.format("gone"), 0, "duckdb").rows
    rows = [list(map(plain, row)) for row in zip(*(c.to_pylist() for c in found.columns), strict=True)]
    ordered = text in MORE_THAN_AGGREGATES
    assert (rows if ordered else sorted(rows, key=repr)) == (wanted if ordered else sorted(wanted, key=repr))
    assert found.schema.names == schema.names
    assert from_arrow_schema(found.schema).simpleString() == schema.simpleString()
    relation = lake.sql(text.format("gone"), engine="duckdb")
    assert relation.columns == found.schema.names and len(relation.fetchall()) == len(rows)
    (explained,) = lake.sql("EXPLAIN " + text.format("gone"), engine="duckdb")["plan"].to_pylist()
    assert "answered   from metadata and indexes" in explained and "files      0 of" in explained


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(*), MAX(id) FROM {} WHERE id % 7 = 3",
        exhaustive("SELECT id, COUNT(*) FROM {} WHERE id < 5 GROUP BY id"),
        "SELECT COUNT(*) FROM {} WHERE status LIKE '%1' AND amount > 3",
        exhaustive("SELECT status, COUNT(*) FROM {} WHERE id % 2 = 0 GROUP BY status HAVING COUNT(*) > 10"),
        exhaustive("SELECT status, COUNT(*), MAX(id) FROM {} GROUP BY status HAVING MAX(id) > 100 ORDER BY 1"),
        "SELECT status, SUM(amount) FROM {} GROUP BY status HAVING COUNT(*) > 100",
        "SELECT EXISTS(SELECT 1 FROM {} WHERE id = 3)",
        exhaustive("SELECT EXISTS(SELECT COUNT(*) FROM {} WHERE status = 'nope')"),
        "SELECT MIN(status) OVER (), id FROM {} WHERE id < 4",
    ],
)
def test_others_run_as_ever(lake: bitlake.Lake, text: str) -> None:
    wanted = sorted(rows_of(lake.spark.sql(text.format("plain_t"))), key=repr)
    assert sorted(rows_of(lake.sql(text.format("t"))), key=repr) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "SELECT amount FROM {} ORDER BY amount DESC LIMIT 5",
        "SELECT amount, id FROM {} WHERE status = 'S1' ORDER BY amount, id DESC LIMIT 7 OFFSET 3",
        "SELECT score, id FROM {} ORDER BY score DESC NULLS FIRST, id LIMIT 200",
        "SELECT score FROM {} WHERE score IS NOT NULL ORDER BY score LIMIT 4",
        "SELECT status, day, id FROM {} WHERE id % 2 = 0 ORDER BY status NULLS LAST, day DESC, id LIMIT 9",
        "SELECT id AS day, day AS id FROM {} ORDER BY day DESC LIMIT 3",
        "SELECT * FROM {} WHERE flag AND amount >= 400 ORDER BY id, amount LIMIT 6",
    ],
)
def test_first_rows_are_sparks(lake: bitlake.Lake, text: str) -> None:
    assert rows_of(lake.sql(text.format("t"))) == rows_of(lake.spark.sql(text.format("plain_t")))


def jobs(lake: bitlake.Lake, action: Any) -> int:
    """How many Spark jobs an action runs."""
    return jobs_of(lake.spark, action)[1]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT amount, id FROM {} ORDER BY amount DESC, id LIMIT 5 OFFSET 2",
        "SELECT id, amount * 2 + 1 AS amount, upper(status) FROM {} x WHERE flag ORDER BY x.day, id LIMIT 8 OFFSET 1;",
    ],
)
def test_first_rows_run_no_job(lake: bitlake.Lake, text: str) -> None:
    wanted = rows_of(lake.spark.sql(text.format("plain_t")))
    found: list[Any] = []
    assert jobs(lake, lambda: found.extend(rows_of(lake.sql(text.format("t"))))) == 0
    assert found == wanted
    assert jobs(lake, lambda: lake.spark.sql(text.format("plain_t")).collect()) > 0


def test_first_rows_are_a_data_frame_like_any(lake: bitlake.Lake) -> None:
    """Whatever is done with the result sees its rows, names and types, in order."""
    text = "SELECT Day AS d, id, status FROM {} WHERE amount >= 100 ORDER BY id DESC LIMIT 6 OFFSET 1"
    found, wanted = lake.sql(text.format("t")), lake.spark.sql(text.format("plain_t"))
    assert found.schema == wanted.schema and found.columns == wanted.columns and found.dtypes == wanted.dtypes
    assert found.collect() == wanted.collect() and found.count() == 6
    assert found.toArrow() == wanted.toArrow()
    assert found.toPandas().equals(wanted.toPandas())
    assert found.first() == wanted.first() and found.take(2) == wanted.take(2) and found.tail(2) == wanted.tail(2)
    assert [r.id for r in found.toLocalIterator()] == [r.id for r in wanted.toLocalIterator()]
    assert rows_of(found.orderBy("id").limit(2)) == rows_of(wanted.orderBy("id").limit(2))
    assert rows_of(found.filter(found.id % 2 == 0).select("id")) == rows_of(wanted.filter("id % 2 = 0").select("id"))
    other = lake.spark.range(1000)
    assert sorted(rows_of(other.join(found, "id"))) == sorted(rows_of(other.join(wanted, "id")))
    assert sorted(rows_of(found.join(other, "id"))) == sorted(rows_of(wanted.join(other, "id")))
    assert rows_of(found.groupBy("d").count().orderBy("d")) == rows_of(wanted.groupBy("d").count().orderBy("d"))
    assert rows_of(found.union(found).distinct().orderBy("id")) == rows_of(wanted.orderBy("id"))
    assert rows_of(lake.spark.sql("SELECT max(id) FROM {f}", f=found)) == [[wanted.first().id]]
    found.createOrReplaceTempView("first_rows")
    assert rows_of(lake.sql("SELECT * FROM first_rows")) == rows_of(wanted)
    lake.spark.catalog.dropTempView("first_rows")
    assert found.cache().count() == 6 and not found.unpersist().is_cached
    empty = lake.sql("SELECT day, id FROM t WHERE amount > 9999 ORDER BY id LIMIT 3")
    assert empty.collect() == [] and empty.toArrow().num_rows == 0 and empty.isEmpty()


@pytest.mark.exhaustive
def test_first_rows_of_every_type(lake: bitlake.Lake) -> None:
    """Values, Arrow types and schema are what Spark makes of them when it sorts them itself."""
    data = every_type()
    table = lake.create_table("each", data.schema)
    table.append(data)
    atomic = [n for n in data.schema.names if n not in ("c_array", "c_map", "c_row")]
    table.scan().to_spark().createOrReplaceTempView("plain_each")
    for names in (["*"], atomic, [n for n in atomic if n not in ("c_ts", "c_ts3", "c_bin", "c_ntz")]):
        text = f"SELECT {', '.join(names)} FROM {{}} ORDER BY c_int DESC NULLS FIRST LIMIT 4"
        found, wanted = lake.sql(text.format("each")), lake.spark.sql(text.format("plain_each"))
        assert rows_of(found) == rows_of(wanted), names
        assert [list(map(type, r)) for r in found.collect()] == [list(map(type, r)) for r in wanted.collect()]
        assert found.schema == wanted.schema
        assert found.toArrow().schema == wanted.toArrow().schema
        assert found.toArrow().to_pylist().__repr__() == wanted.toArrow().to_pylist().__repr__()
    lake.spark.catalog.dropTempView("plain_each")


OVERFLOWS = [
    "SELECT SUM(n) FROM {}",
    "SELECT k, SUM(n), COUNT(*) FROM {} GROUP BY k",
    "SELECT k, AVG(n) FROM {} WHERE k = 'a' GROUP BY k",
    "SELECT SUM(d), AVG(d) FROM {}",
]


@pytest.mark.parametrize("ansi", [exhaustive("true"), "false"])
def test_an_overflow_is_sparks_own(lake: bitlake.Lake, ansi: str) -> None:
    """Error, NULL or wrapped number: the same as without indexes, for a partial sum that overflows too."""
    kind = pa.decimal128(38, 0)
    far = pa.table(
        {
            "k": ["a", "a", "b"],
            "n": [2**63 - 1, 7, -5],
            "d": pa.array([Decimal(f"9{'9' * 37}"), Decimal(1), Decimal(1)], kind),
        }
    )
    name = f"far_{ansi}"
    options = {"file-index.bitmap.columns": "k", "file-index.bsi.columns": "n"}
    lake.create_table(name, far.schema, options=options).append(far)
    lake.spark.createDataFrame(far).createOrReplaceTempView("plain_far")
    lake.spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        for text in OVERFLOWS:
            answers = []
            for run in (lambda t: lake.spark.sql(t.format("plain_far")), lambda t: lake.sql(t.format(name))):
                try:
                    answers.append(sorted(rows_of(run(text)), key=repr))
                except Exception as e:  # noqa: BLE001
                    answers.append("overflow" if "OVERFLOW" in str(e) or "NUMERIC_VALUE_OUT_OF_RANGE" in str(e) else e)
            assert answers[0] == answers[1], text
    finally:
        lake.spark.conf.unset("spark.sql.ansi.enabled")


def test_a_few_files_without_index_are_read_here(lake: bitlake.Lake, monkeypatch: Any) -> None:
    """Indexes answer for most rows; where they do not, an engine reads."""
    monkeypatch.setattr(spark_scan, "DRIVER_ROWS", 0)
    table = lake.create_table("mixed", rows().schema, options=OPTIONS)
    table.append(rows())
    table.alter_options(unset=list(OPTIONS))
    table = lake.table("mixed")
    table.append(rows().slice(0, 100))
    text = "SELECT status, sum(price), max(day) FROM {} GROUP BY status"
    wanted = sorted(rows_of(lake.spark.sql(text.format("plain_t"))), key=repr)
    assert sorted(rows_of(lake.sql(text.format("mixed"))), key=repr) == wanted
    (explained,) = rows_of(lake.sql("EXPLAIN " + text.format("mixed")))[0]
    assert "answered   from metadata, indexes and 1 data file of 2" in explained
    table.append(rows())
    (explained,) = rows_of(lake.sql("EXPLAIN " + text.format("mixed")))[0]
    assert "answered   from" not in explained


OF_ROWS = [
    "SELECT sum(score), avg(score), count(score) FROM {} WHERE amount < 300 AND NOT isnan(score)",
    "SELECT status, avg(score), sum(score) / count(*) FROM {} WHERE id IN (3, 77, 78, 501) GROUP BY status ORDER BY 1",
    "SELECT count(*), sum(amount), min(status) FROM {} WHERE id = -1",
    "SELECT status, max(id) FROM {} WHERE id % 7 = 3 GROUP BY status",
    "SELECT sum(big * 2), count(DISTINCT id % 5) FROM {}",
    "SELECT sum(big) FILTER (WHERE flag) FROM {}",
    "SELECT max(length(status)), any_value(flag) FROM {} WHERE status = 'S1' AND flag",
    "SELECT EXISTS(SELECT * FROM {} WHERE id = 77)",
]
"""Some of these are Spark's, over rows that are read here."""


@pytest.fixture(scope="module")
def unindexed(lake: bitlake.Lake) -> bitlake.Lake:
    for name, options in {"unindexed": {}, "marked": {"deletion-vectors.enabled": "true"}}.items():
        table = lake.create_table(name, rows().schema, options=options)
        table.append(rows())
        table.append(rows().slice(0, 100))
    lake.table("marked").append(rows().slice(0, 300).set_column(0, "id", pa.array(range(1000, 1300))))
    lake.table("marked").delete("id >= 1000")
    return lake


@pytest.mark.parametrize("text", [*every(3, [*AGGREGATES, *MORE_THAN_AGGREGATES]), *OF_ROWS])
@pytest.mark.parametrize("name", ["unindexed", exhaustive("marked")])
def test_aggregates_of_few_rows_are_sparks(unindexed: bitlake.Lake, wanted_of: Wanted, text: str, name: str) -> None:
    wanted, schema = wanted_of(text)
    answer = unindexed.sql(text.format(name))
    got = rows_of(answer)
    assert answer.schema == schema
    assert got == wanted if "ORDER BY" in text else sorted(map(repr, got)) == sorted(map(repr, wanted))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT status, count(*), sum(price), avg(score), max(day) FROM {} WHERE amount < 300 GROUP BY status",
        "SELECT count(*), sum(amount) FROM {} WHERE id IN (3, 77, 501)",
        "SELECT DISTINCT flag, status FROM {} WHERE id > 50",
        "SELECT status, max(id) FROM {} WHERE id % 7 = 3 GROUP BY status",
    ],
)
def test_aggregates_of_few_rows_start_no_job(unindexed: bitlake.Lake, wanted_of: Wanted, text: str) -> None:
    asked = text.format("unindexed")
    got, jobs = jobs_of(unindexed.spark, lambda: rows_of(unindexed.sql(asked)))
    assert jobs == 0 and sorted(map(repr, got)) == sorted(map(repr, wanted_of(text)[0]))
    (explained,) = rows_of(unindexed.sql(f"EXPLAIN {asked}"))[0]
    assert "answered   from metadata, indexes and 2 data files of 2" in explained


def test_a_job_of_sparks_adds_up_many_rows_or_files(unindexed: bitlake.Lake, monkeypatch: Any) -> None:
    def here(where: str) -> bool:
        text = f"SELECT status, sum(amount) FROM unindexed WHERE {where} GROUP BY status"
        return "answered   from" in rows_of(unindexed.sql(f"EXPLAIN {text}"))[0][0]

    assert here("amount > 7") and here("amount = 7")
    monkeypatch.setattr(spark_scan, "DRIVER_ROWS", 349)
    assert not here("amount > 7") and here("amount = 7") and here("amount IN (1, 2)")
    monkeypatch.setattr(spark_scan, "DRIVER_ROWS", 139)
    assert not here("amount = 7")
    monkeypatch.setattr(spark_scan, "DRIVER_ROWS", 350)
    assert here("amount > 7")
    monkeypatch.setattr(spark_scan, "DRIVER_FILES", 1)
    assert not here("amount = 7")
    monkeypatch.setattr(spark_scan, "DRIVER_FILES", 2)
    monkeypatch.setattr(spark_scan, "DRIVER_BYTES", 100)
    assert not here("amount = 7")


UNITS = [
    "SELECT trunc(day, 'Q'), count(*), sum(id) FROM {} GROUP BY 1",
    "SELECT trunc(day, 'w') AS w, count(*) FROM {} GROUP BY w",
    "SELECT trunc(day, status), count(*) FROM {} GROUP BY trunc(day, status)",
    "SELECT date_trunc('Q', at), count(*), sum(id) FROM {} GROUP BY 1",
    "SELECT extract(SECOND FROM at) AS s, count(*), sum(id) FROM {} GROUP BY s",
    "SELECT count(*) FROM {} WHERE trunc(day, 'Y') IS NULL",
    "SELECT count(*) FROM {} WHERE trunc(day, 'Q') = DATE'2024-01-01'",
    "SELECT count(*) FROM {} WHERE extract(SECOND FROM at) = 1.25",
    "SELECT extract(MINUTE FROM at) AS m, trunc(day, 'mon'), max(id) FROM {} GROUP BY ALL",
]


@pytest.mark.parametrize("options", [{}, exhaustive({"file-index.bitmap.columns": "day,at"})])
def test_units_of_dates_are_what_spark_takes_them_for(lake: bitlake.Lake, spark: Any, options: dict[str, str]) -> None:
    """Spark gives NULL for Q, which the parser took for QUARTER; EXTRACT of seconds has their fraction."""
    name = f"units_{len(options)}"
    days = [dt.date(2024, 1, 1) + dt.timedelta(i * 17) for i in range(40)]
    at = [dt.datetime(2024, i % 12 + 1, 3, 10, 0, 1, i % 4 * 250_000) for i in range(40)]
    columns = {"id": range(40), "day": days, "at": pa.array(at, pa.timestamp("us")), "status": ["YEAR", "Q"] * 20}
    units = pa.table(columns)
    lake.create_table(name, units.schema, options=options).append(units)
    spark.createDataFrame(units).createOrReplaceTempView(f"plain_{name}")
    for text in UNITS:
        wanted = rows_of(spark.sql(text.format(f"plain_{name}")))
        assert sorted(rows_of(lake.sql(text.format(name))), key=repr) == sorted(wanted, key=repr), text


def test_results_keep_not_null_and_comments(lake: bitlake.Lake, monkeypatch: Any) -> None:
    lake.sql("CREATE TABLE noted (k INT NOT NULL COMMENT 'the key', v INT)")
    lake.sql("INSERT INTO noted VALUES (1, 2), (1, 3), (4, NULL)")
    texts = [
        "SELECT k, count(*) FROM noted WHERE v IS NULL OR v > 0 GROUP BY k ORDER BY k",
        "SELECT k AS kk, max(v) FROM noted GROUP BY k HAVING count(*) > 1",
        "SELECT k + 1, k > 3, count(v) FROM noted GROUP BY k",
        "SELECT DISTINCT k FROM noted ORDER BY k",
    ]
    here = [lake.sql(text) for text in texts]
    monkeypatch.setattr(spark_scan, "DRIVER_ROWS", -1)
    for text, answer in zip(texts, here, strict=True):
        assert answer.schema == lake.sql(text).schema
    assert here[0].schema["k"].metadata == {"comment": "the key"} and not here[0].schema["k"].nullable


def test_nothing_is_read_in_vain_or_twice(unindexed: bitlake.Lake, monkeypatch: Any) -> None:
    read: list[str] = []
    add = spark_query.answer_from_rows
    monkeypatch.setattr(spark_query, "answer_from_rows", lambda *a: read.append("read") or add(*a))
    counted = "SELECT status, sum(amount) FROM unindexed GROUP BY status"
    unindexed.sql(f"EXPLAIN {counted}")
    assert read == ["read"]
    assert [r.col_name for r in unindexed.sql(f"DESCRIBE QUERY {counted}").collect()] == ["status", "sum(amount)"]
    twice = "SELECT sum(amount) AS a, count(*) AS a FROM {} WHERE amount > 3"
    assert rows_of(unindexed.sql(twice.format("unindexed"))) == rows_of(unindexed.spark.sql(twice.format("plain_t")))
    assert read == ["read"], "no relation has two columns of a name"
    unindexed.sql("CACHE TABLE unindexed")
    unindexed.sql(counted).collect()
    assert read == ["read"]
    unindexed.sql("UNCACHE TABLE unindexed")
    monkeypatch.setattr(spark_query, "LOCAL_ROWS", 600)
    assert len(unindexed.sql("SELECT id, max(amount) FROM unindexed GROUP BY id").collect()) == 600
    explained = "EXPLAIN SELECT id, max(amount) FROM unindexed GROUP BY id"
    assert "answered   from" in unindexed.sql(explained).collect()[0][0]
    monkeypatch.setattr(spark_query, "LOCAL_ROWS", 599)
    read.clear()
    assert "answered   from" not in unindexed.sql(explained).collect()[0][0], "many groups are Spark's"
    assert read == ["read"]
    unindexed.sql("SELECT EXISTS(SELECT * FROM unindexed WHERE amount > 499)").collect()
    assert "No Spark job: the driver reads these rows and adds them up." in unindexed.explain(counted)
    assert read == ["read"]


def test_sums_of_floats_without_bounds(lake: bitlake.Lake, spark: Any) -> None:
    values = [float("inf"), float("-inf"), 1.7e308, 1.7e308, float("nan"), -0.0, None]
    table = pa.table({"k": [1, 1, 2, 2, 3, 4, 5], "v": values})
    lake.create_table("unbounded", table.schema).append(table)
    spark.createDataFrame(table).createOrReplaceTempView("plain_unbounded")
    text = "SELECT k, sum(v), avg(v), min(v), max(v) FROM {} GROUP BY k ORDER BY k"
    wanted = rows_of(spark.sql(text.format("plain_unbounded")))
    assert repr(rows_of(lake.sql(text.format("unbounded")))) == repr(wanted)


def test_an_overflow_is_sparks_own_error(lake: bitlake.Lake, spark: Any) -> None:
    table = lake.create_table("large", pa.schema([("k", pa.int64()), ("v", pa.int64())]))
    table.append(pa.table({"k": [1, 1, 2], "v": [2**63 - 1, 1, 5]}))
    text = "SELECT k, sum(v) FROM large WHERE k < 9 GROUP BY k"
    with pytest.raises(Exception, match="ARITHMETIC_OVERFLOW"):
        lake.sql(text).collect()
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        assert sorted(rows_of(lake.sql(text))) == [[1, -(2**63)], [2, 5]]
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


def test_first_rows_read_little(lake: bitlake.Lake) -> None:
    (plan,) = lake.plans("SELECT * FROM t ORDER BY amount DESC LIMIT 5")
    assert plan.chosen_rows == 5 and plan.order
    (plan,) = lake.plans("SELECT * FROM t WHERE status = 'S1' LIMIT 5")
    assert plan.chosen_rows == 5 and [s.reason for s in plan.skipped] == [SkipReason.LIMIT]
    (plan,) = lake.plans("SELECT * FROM t LIMIT 0")
    assert plan.files == () and rows_of(lake.sql("SELECT * FROM t LIMIT 0")) == []
    (plan,) = lake.plans("SELECT * FROM t WHERE length(status) = 2 LIMIT 5")
    assert plan.limit is None
    assert len(rows_of(lake.sql("SELECT * FROM t LIMIT 650"))) == 650
    assert "order by   amount DESC" in rows_of(lake.sql("EXPLAIN SELECT * FROM t ORDER BY amount DESC LIMIT 5"))[0][0]
    (text,) = rows_of(lake.sql("EXPLAIN SELECT status, COUNT(*) FROM gone GROUP BY status"))[0]
    assert "answered   from metadata and indexes" in text


def test_first_rows_under_a_filter_without_index(lake: bitlake.Lake, monkeypatch: Any) -> None:
    """Few of the best rows are judged here; where none survives, Spark sorts all of them."""
    import bitlake.spark.read.query as shortcut

    n = 20_000
    many = pa.table({"k": [i * 7919 % n for i in range(n)], "word": [f"w{i * 31 % 10}" for i in range(n)]})
    table = lake.create_table("many", many.schema, options={"file-index.range-bitmap.columns": "k"})
    table.append(many)
    monkeypatch.setattr(spark_scan, "DRIVER_ROWS", 100)
    lake.spark.createDataFrame(many).createOrReplaceTempView("plain_many")
    for text, most in (
        ("SELECT k, word FROM {} WHERE word > 'w4' ORDER BY k DESC LIMIT 5", 0),
        ("SELECT k + 1 AS k1 FROM {} WHERE word > 'w4' ORDER BY k LIMIT 5 OFFSET 2", 0),
        ("SELECT k FROM {} WHERE word LIKE '%x' ORDER BY k LIMIT 5", 9),
    ):
        found: list[Any] = []
        ran = jobs(lake, lambda: found.extend(rows_of(lake.sql(text.format("many")))))  # noqa: B023
        assert found == rows_of(lake.spark.sql(text.format("plain_many")))
        assert ran <= most
    explained = rows_of(lake.sql("EXPLAIN SELECT k FROM many WHERE word > 'w4' ORDER BY k LIMIT 5"))[0][0]
    assert "first rows are read here" in explained
    monkeypatch.setattr(shortcut, "JUDGED_ROWS", 3)
    assert jobs(lake, lambda: lake.sql("SELECT k FROM many WHERE word > 'w4' ORDER BY k LIMIT 5").collect()) > 0
    lake.spark.catalog.dropTempView("plain_many")


def test_to_spark_gives_what_the_scan_is(lake: bitlake.Lake, monkeypatch: Any) -> None:
    """Also where Spark's own reader, which filters nothing, would take the files."""
    import bitlake.spark.read.scan as spark_scan

    monkeypatch.setattr(spark_scan, "DRIVER_ROWS", 0)
    monkeypatch.setattr(spark_scan, "DRIVER_BYTES", 0)
    table = lake.table("t")
    scan = table.scan(["id", "amount"], where="amount > 400")
    assert sorted(rows_of(scan.to_spark())) == sorted([r["id"], r["amount"]] for r in scan.to_arrow().to_pylist())
    late = table.scan(["id", "status"], where="id >= 150")
    assert sorted(rows_of(late.to_spark()), key=repr) == sorted(
        ([r["id"], r["status"]] for r in late.to_arrow().to_pylist()), key=repr
    )
    top = table.scan(["id", "amount"]).top_n([("id", "desc"), "amount"], 150)
    assert rows_of(top.to_spark()) == [[r["id"], r["amount"]] for r in top.to_arrow().to_pylist()]
    assert len(rows_of(late.limit(3).to_spark())) == 3


def test_every_type_of_extreme(lake: bitlake.Lake) -> None:
    data = every_type()
    names = [n for n in data.schema.names if n not in ("c_array", "c_map", "c_row", "c_ts3")]
    table = lake.create_table("every", data.schema)
    table.append(data)
    table.scan().to_spark().createOrReplaceTempView("plain_every")
    for name in names:
        text = f"SELECT MIN({name}), MAX({name}), COUNT({name}) FROM "
        found, wanted = lake.sql(text + "every"), lake.spark.sql(text + "plain_every")
        assert rows_of(found) == rows_of(wanted), name
        assert found.schema.simpleString() == wanted.schema.simpleString()
    lake.spark.catalog.dropTempView("plain_every")
