"""Queries over few rows that DuckDB computes in Spark's driver: rows, names and types as plain Spark's, and no job."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import s3_server
from long import long
from spark_jobs import jobs_of

import bitlake
from bitlake.errors import BitlakeError, InvalidRequest, StorageUnavailable
from bitlake.scan.scan import TableScan
from bitlake.spark.java_zones import differs_from_java, java_offsets
from bitlake.spark.read import driver_query
from bitlake.spark.read.local_relation import HeldFrame

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "conformance"))

from analysts import Analyst
from compare import Answer
from duckdb_agreement import make_analysts_tables

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("driver_queries")]
OPTION = "spark.paimon.read.driver-queries"
SALES, SHOPS = 300_000, 500
SALES_ROWS = (
    f"SELECT CAST(id AS INT) AS id, CAST(id % {SHOPS} AS INT) AS shop, CAST(id % 997 AS DECIMAL(12, 2)) AS amount, "
    "concat('s', id % 4) AS status, timestamp_seconds(id * 60) AS at, IF(id % 10 = 0, NULL, id % 7) AS grade "
    f"FROM range({SALES})"
)
SHOPS_ROWS = f"SELECT CAST(id AS INT) AS shop, concat('city ', id % 20) AS city FROM range({SHOPS})"
JOINED = "FROM {sales} AS s JOIN {shops} AS p ON s.shop = p.shop"
QUERIES = [
    f"SELECT p.city, count(*), sum(s.amount) AS total, avg(grade) {JOINED} WHERE status = 's1' GROUP BY p.city",
    f"SELECT status, count(DISTINCT city) AS n, max(at) AS last {JOINED} GROUP BY status HAVING n > 2 ORDER BY status",
    f"SELECT s.id, p.city, s.at {JOINED} ORDER BY s.amount DESC, s.id LIMIT 7",
    "SELECT shop, sum(amount * (1 + grade)) AS weighted FROM {sales} WHERE id % 3 = 1 GROUP BY shop",
    "SELECT count(*) FROM {sales} AS s WHERE NOT EXISTS (SELECT 1 FROM {shops} p WHERE p.shop = s.grade + 498)",
    "WITH best AS (SELECT shop, max(amount) AS top FROM {sales} GROUP BY shop) "
    "SELECT city, top FROM {shops} JOIN best USING (shop) WHERE top > (SELECT avg(top) FROM best)",
    "SELECT city FROM {shops} WHERE shop < 40 UNION SELECT status FROM {sales} WHERE id < 9",
    "SELECT shop, city, row_number() OVER (PARTITION BY city ORDER BY shop) AS place FROM {shops}",
    "SELECT DISTINCT status, grade FROM {sales}",
]


@pytest.fixture(scope="module")
def lake(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[bitlake.Lake]:
    """A lake with two tables, and their rows as views of Spark's."""
    if getattr(spark, "_jsparkSession", None) is None:
        pytest.skip("queries of Spark Connect are Spark's")
    made = bitlake.connect(str(tmp_path_factory.mktemp("driver") / "lake"), spark=spark)
    made.sql(f"CREATE TABLE sales AS {SALES_ROWS}")
    made.sql("CREATE TABLE shops (shop INT NOT NULL COMMENT 'its number', city STRING)")
    made.sql(f"INSERT INTO shops {SHOPS_ROWS}")
    for name, rows in (("sales", SALES_ROWS), ("shops", SHOPS_ROWS)):
        spark.sql(rows).createOrReplaceTempView(f"plain_{name}")
    yield made
    for name in ("sales", "shops"):
        spark.catalog.dropTempView(f"plain_{name}")


@pytest.fixture(autouse=True)
def by_default(spark: Any) -> Iterator[None]:
    """The option is unset after each test."""
    yield
    spark.conf.unset(OPTION)


def of(text: str, prefix: str = "") -> str:
    return text.replace("{sales}", f"{prefix}sales").replace("{shops}", f"{prefix}shops")


def is_here(frame: Any) -> bool:
    return isinstance(frame, HeldFrame)


def why(lake: bitlake.Lake, text: str) -> str:
    """Why Spark computes a query."""
    plan = lake.sql(f"EXPLAIN {text}").collect()[0][0]
    assert not is_here(lake.sql(text)), text
    return str(next(line for line in plan.splitlines() if line.startswith("Spark computes the query: ")))[26:]


@pytest.mark.parametrize("text", QUERIES)
def test_rows_names_and_types_are_sparks_and_no_job_runs(lake: bitlake.Lake, text: str) -> None:
    plain = lake.spark.sql(of(text, "plain_"))
    frame, jobs = jobs_of(lake.spark, lambda: lake.sql(of(text)))
    assert is_here(frame)
    rows, more_jobs = jobs_of(lake.spark, frame.collect)
    assert jobs == more_jobs == 0
    assert Answer(lambda: frame).agrees(Answer(lambda: plain))
    assert sorted(map(repr, rows)) == sorted(map(repr, plain.collect()))
    theirs = lake.sql(f"SELECT * FROM ({of(text)}) WHERE rand() > -1")  # rand(): Spark's
    assert not is_here(theirs)
    assert frame.schema == theirs.schema
    assert frame.toArrow().schema.types == plain.toArrow().schema.types
    assert frame.filter("true").count() == plain.count()


PIECES = {
    "a1": "VALUES (1, 1), (2, 2), (3, 3) AS t(a, x)",
    "b1": "VALUES (1, 5), (2, 6), (3, 7) AS t(id, b)",
    "c1": "VALUES (1, 2, 7), (2, 2, 8), (9, 3, 9) AS t(id, x, c)",
    "na": "VALUES (1, 1), (2, NULL), (NULL, 3), (4, 4) AS t(k, y)",
    "nb": "VALUES (2, 1), (NULL, 2), (5, 3) AS t(k, z)",
    "nc": "VALUES (2, 1), (5, 3) AS t(k, z)",
    "reals": "VALUES (1, 0.5D), (2, -0.0D), (3, DOUBLE('NaN')), (4, -DOUBLE('Infinity')) AS t(id, d)",
    "none": "SELECT 1 AS id WHERE false",
    "words": "VALUES ('abc'), (''), ('2'), ('3'), ('${x}'), ('2024-01-01 24:00:00') AS t(s)",
}
FOUND = [
    "SELECT * FROM a1, b1 NATURAL JOIN c1",
    "SELECT * FROM a1, b1 JOIN c1 USING (id)",
    "SELECT a.k, b.z FROM na a JOIN nb b ON a.k = b.k OR a.y NOT IN (SELECT z FROM nc)",
    "SELECT a.k, b.z FROM na a LEFT JOIN nb b ON a.y = b.z AND a.k NOT IN (SELECT k FROM nc)",
    "SELECT a.k, b.z FROM na a LEFT JOIN nb b ON a.y = b.z AND NOT (a.k IN (SELECT k FROM nb))",
    "SELECT a.k FROM na a LEFT ANTI JOIN nb b ON a.y = b.z AND a.k NOT IN (SELECT k FROM nc)",
    "SELECT a.k, b.z FROM na a JOIN nb b ON CASE WHEN a.k NOT IN (SELECT k FROM nc) THEN a.y = b.z ELSE true END",
    "SELECT a.k, b.z FROM na a JOIN nb b ON a.y = b.z AND a.k IN (SELECT k FROM nb)",
    "SELECT k FROM na WHERE k NOT IN (SELECT k FROM nc) OR y NOT IN (SELECT z FROM nb)",
    "SELECT a.id, sign(a.d) AS s, signum(-a.d) AS t FROM reals a JOIN reals b USING (id)",
    "SELECT k, 3 AS x, CAST(10.0 / x AS STRING) AS s FROM na JOIN nb USING (k)",
    "SELECT 7 AS x, length(CAST(1.000 / x AS STRING)) AS y, k FROM na JOIN nb USING (k)",
    "SELECT k, 2.50 AS x, CAST(x * 3 AS STRING) AS s FROM na JOIN nb USING (k) ORDER BY x / 3, k",
    "SELECT count(*) AS n FROM none GROUP BY GROUPING SETS (())",
    "SELECT count(*) AS n FROM none GROUP BY GROUPING SETS ((id), ())",
    "SELECT id, count(*) AS n FROM none GROUP BY ROLLUP (id)",
    "SELECT k, '${spark.sql.shuffle.partitions}' AS x, '${env:HOME}' AS h, '${no:x}' AS y FROM na JOIN nb USING (k)",
    "SELECT count(*) AS n, max('${x}') AS x FROM words WHERE s <> '${x}' GROUP BY length(s)",
    "SELECT s FROM words WHERE s = '${spark.sql.shuffle.partitions}'",
    "SELECT a.s, substring(a.s, -2000000000) AS y, substring(a.s, 2) AS z FROM words a JOIN words b USING (s)",
    "SELECT a.s, hour(CAST(a.s AS TIMESTAMP_NTZ)) AS h FROM words a JOIN words b USING (s) WHERE length(a.s) = 19",
]
"""Queries of reviewers that had other rows than in Spark, and some beside them."""


@pytest.fixture(scope="module")
def pieces(lake: bitlake.Lake) -> Iterator[bitlake.Lake]:
    """Small tables of the lake, and views of the same rows."""
    for name, rows in PIECES.items():
        text = rows if rows.startswith("SELECT") else f"SELECT * FROM {rows}"
        lake.sql(f"CREATE TABLE {name} AS {text}")
        lake.spark.sql(text).createOrReplaceTempView(f"plain_{name}")
    yield lake
    for name in PIECES:
        lake.sql(f"DROP TABLE {name}")
        lake.spark.catalog.dropTempView(f"plain_{name}")


@pytest.mark.parametrize("text", FOUND)
def test_rows_are_sparks_where_engines_differ(pieces: bitlake.Lake, text: str) -> None:
    theirs = re.sub(rf"\b(FROM|JOIN|,) ({'|'.join(PIECES)})\b", r"\1 plain_\2", text)
    assert theirs != text
    plain = pieces.spark.sql(theirs)
    assert Answer(lambda: pieces.sql(text)).agrees(Answer(lambda: plain)), pieces.sql(f"EXPLAIN {text}").collect()
    assert [f.dataType for f in pieces.sql(text).schema] == [f.dataType for f in plain.schema]


def test_variables_are_of_the_text_and_not_of_its_parameters(pieces: bitlake.Lake) -> None:
    text = "SELECT :v AS v, '${spark.sql.shuffle.partitions}' AS n, s FROM words WHERE s = :v OR s = '2' ORDER BY s"
    partitions = pieces.spark.conf.get("spark.sql.shuffle.partitions")
    value = "a${spark.sql.shuffle.partitions}"
    assert {tuple(r)[:2] for r in pieces.sql(text, args={"v": value}).collect()} == {(value, partitions)}
    pieces.spark.conf.set("spark.sql.variable.substitute", "false")
    try:
        assert pieces.sql("SELECT max(concat(s, '${x}')) AS x FROM words WHERE s = '2'").collect() == [("2${x}",)]
    finally:
        pieces.spark.conf.unset("spark.sql.variable.substitute")
    pieces.spark.conf.set("spark.loop", "${spark.loop}")
    try:
        with pytest.raises(InvalidRequest, match="contains itself"):
            pieces.sql("SELECT '${spark.loop}' AS x FROM words")
    finally:
        pieces.spark.conf.unset("spark.loop")


ZONES = ["Africa/Casablanca", "America/Vancouver", "America/Havana", "Asia/Tehran", "America/Tijuana", "Europe/Berlin"]
CLOCKS = (
    "SELECT id, CAST(t AS DATE) AS d, hour(t) AS h, minute(t) AS m, count(*) AS n "
    "FROM {0} JOIN {0} AS b USING (id, t) {1} GROUP BY 1, 2, 3, 4 ORDER BY id LIMIT 20000"
)


@contextmanager
def moments(lake: bitlake.Lake, rows: str, zone: str) -> Iterator[None]:
    """A table of these rows and a view of them, in a session of another time zone."""
    lake.sql(f"CREATE TABLE moments AS {rows}")
    lake.spark.sql(rows).createOrReplaceTempView("plain_moments")
    before = lake.spark.conf.get("spark.sql.session.timeZone")
    lake.spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        yield
    finally:
        lake.spark.conf.set("spark.sql.session.timeZone", before)
        lake.sql("DROP TABLE moments")
        lake.spark.catalog.dropTempView("plain_moments")


@pytest.mark.parametrize("zone", ZONES)
def test_clocks_are_sparks_in_zones_of_changing_rules(lake: bitlake.Lake, zone: str) -> None:
    rows = "SELECT id, timestamp_seconds(-1300000000 + id * 401477) AS t FROM range(8000)"
    with moments(lake, rows, zone):
        ours, plain = lake.sql(CLOCKS.format("moments", "")), lake.spark.sql(CLOCKS.format("plain_moments", ""))
        assert ours.collect() == plain.collect()
        recent = CLOCKS.format("moments", "WHERE id BETWEEN 4000 AND 8000")
        if zone == "Europe/Berlin":
            assert is_here(lake.sql(recent))
        elif not is_here(lake.sql(recent)):
            assert why(lake, recent).endswith(f"and Java have different rules for the time zone {zone}.")
        theirs = CLOCKS.format("plain_moments", "WHERE id BETWEEN 4000 AND 8000")
        assert lake.sql(recent).collect() == lake.spark.sql(theirs).collect()


def test_rules_of_java_are_those_of_its_zones(lake: bitlake.Lake) -> None:
    jvm: Any = lake.spark._jvm
    chance = np.random.default_rng(5)
    for zone in ["UTC", "Asia/Kolkata", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca"]:
        rules = jvm.java.time.ZoneId.of(zone).getRules()
        instants = np.sort(chance.integers(0, 2_114_380_800, 60))  # until 2037
        theirs = [rules.getOffset(jvm.java.time.Instant.ofEpochSecond(int(i))).getTotalSeconds() for i in instants]
        ours = java_offsets(lake.spark, zone)(instants * 1_000_000)
        assert (ours // 1_000_000).tolist() == theirs, zone


@pytest.mark.parametrize("zone", ["WET", "Asia/Tehran"])
def test_terms_are_not_evaluated_here_by_other_rules(lake: bitlake.Lake, zone: str) -> None:
    """Java has other rules for these zones in the seventies than Python, which would find and group other rows."""
    rows = "SELECT id, timestamp_seconds(200000000 + id * 25477) AS t FROM range(4000)"
    with moments(lake, rows, zone):
        for text in (
            "SELECT hour(t) AS h, count(*) AS n FROM {} GROUP BY hour(t) ORDER BY h",
            "SELECT count(*) AS n, min(id) AS i FROM {} WHERE hour(t) < 2",
            "SELECT id FROM {} WHERE CAST(t AS DATE) = DATE '1978-11-20'",
        ):
            theirs = lake.spark.sql(text.format("plain_moments")).collect()
            assert lake.sql(text.format("moments")).collect() == theirs, text


@pytest.mark.parametrize("zone", ["WET", "Asia/Tehran"])
def test_literals_are_not_read_here_by_other_rules(lake: bitlake.Lake, zone: str) -> None:
    """Statistics, indexes and this process's reader would leave out other rows than Spark."""
    rows = "SELECT id, timestamp_seconds(200000000 + id * 25477) AS t, id % 7 AS k FROM range(4000)"
    listed = ", ".join(f"TIMESTAMP '1978-11-{day} 00:30:37'" for day in range(12, 30))
    conditions = (
        "t >= TIMESTAMP '1978-11-20 00:00:00'",
        "t BETWEEN '1978-11-20' AND '1978-11-21 12:00:00'",
        f"t IN ({listed}) OR t < DATE '1976-06-01'",
        "id < 3000 AND NOT t < TIMESTAMP '1978-11-20 00:00:00'",
    )
    with moments(lake, rows, zone):
        for condition in conditions:
            for text in ("SELECT id FROM {} WHERE {} ORDER BY id LIMIT 9", "SELECT count(*), max(t) FROM {} WHERE {}"):
                theirs = lake.spark.sql(text.format("plain_moments", condition)).collect()
                assert lake.sql(text.format("moments", condition)).collect() == theirs, (text, condition)
        join = "SELECT k, count(*) FROM {0} JOIN {0} AS b USING (id, k) WHERE b.{1} GROUP BY k ORDER BY k"
        theirs = lake.spark.sql(join.format("plain_moments", conditions[0])).collect()
        assert lake.sql(join.format("moments", conditions[0])).collect() == theirs
        grouped = "SELECT k, sum(id * 2) AS s FROM {} WHERE id > 5 GROUP BY k ORDER BY k"
        assert is_here(lake.sql(grouped.format("moments")))
        assert (
            lake.sql(grouped.format("moments")).collect() == lake.spark.sql(grouped.format("plain_moments")).collect()
        )
        if differs_from_java(lake.spark, zone):  # not with every Java
            assert "have different rules for" in why(lake, join.format("moments", conditions[0]))
            explained = lake.sql(f"EXPLAIN SELECT * FROM moments WHERE {conditions[3]}").collect()[0].plan
            assert re.search(r"where +id < 3000\n", explained)  # the rest of the condition still leaves files out
            lake.sql("CREATE TABLE parts (id INT, p TIMESTAMP) PARTITIONED BY (p)")
            literal = "TIMESTAMP '1976-07-18 12:00:00'"
            with pytest.raises(
                InvalidRequest, match="different rules .* time zone; write timestamps with their offset"
            ):
                lake.sql(f"INSERT INTO parts REPLACE WHERE p = {literal} SELECT 2 AS id, {literal} AS p")
            lake.sql(f"INSERT INTO parts PARTITION (p = {literal}) SELECT 1 AS id")
            assert lake.sql(f"SELECT id FROM parts WHERE p = {literal}").collect() == [(1,)]
            lake.sql("DROP TABLE parts")
        lake.sql(f"DELETE FROM moments WHERE {conditions[1]}")
        lake.sql(f"UPDATE moments SET k = 100 WHERE {conditions[3]}")
        changed = f"SELECT id, IF({conditions[3]}, 100, k) AS k FROM plain_moments WHERE NOT ({conditions[1]})"
        ours, theirs = lake.sql("SELECT id, k FROM moments ORDER BY id"), lake.spark.sql(f"{changed} ORDER BY id")
        assert ours.collect() == theirs.collect()


def test_a_zone_that_only_java_knows(lake: bitlake.Lake) -> None:
    """Bug: every statement failed, also one without times."""
    zone = "SystemV/PST8"
    if not lake.spark._jvm.java.time.ZoneId.getAvailableZoneIds().contains(zone):
        pytest.skip("this Java does not know it either")
    with moments(lake, "SELECT id, timestamp_seconds(id * 25477) AS t, id % 7 AS k FROM range(4000)", zone):
        for text in (
            "SELECT count(*) FROM {} WHERE id > 7",
            "SELECT k, count(*), max(hour(t)) FROM {} WHERE t > TIMESTAMP '1970-02-01 00:00:00' GROUP BY k ORDER BY k",
            "SELECT id FROM {} WHERE t BETWEEN '1970-02-01' AND '1970-02-02' ORDER BY id",
        ):
            assert lake.sql(text.format("moments")).collect() == lake.spark.sql(text.format("plain_moments")).collect()
        lake.sql("DELETE FROM moments WHERE t >= TIMESTAMP '1970-02-01 00:00:00'")
        kept = lake.spark.sql("SELECT count(*) FROM plain_moments WHERE t < TIMESTAMP '1970-02-01 00:00:00'")
        assert lake.sql("SELECT count(*) FROM moments").collect() == kept.collect()


def test_a_variable_that_turns_ansi_mode_off_leaves_a_query_to_spark(
    lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_ANSI_SQL_MODE", "false")
    assert why(lake, of(QUERIES[0])) == "SPARK_ANSI_SQL_MODE is false."


def test_a_result_goes_on_as_any_dataframe(lake: bitlake.Lake) -> None:
    frame = lake.sql(of(QUERIES[0]))
    again = frame.groupBy().sum("total").collect()
    assert again == lake.spark.sql(of(QUERIES[0], "plain_")).groupBy().sum("total").collect()
    lake.sql(f"CREATE TABLE totals AS {of(QUERIES[3])}")
    assert lake.sql("SELECT count(*) FROM totals").collect() == [(SHOPS,)]
    lake.sql("DROP TABLE totals")


@pytest.mark.parametrize("seed", [3, *(long(seed) for seed in range(4))])
def test_analysts_queries_are_sparks(spark: Any, tmp_path: Path, seed: int) -> None:
    """Columns of every atomic type, of which one table is merged by key; 40 of 50 random queries run here."""
    lake, plain = bitlake.connect(tmp_path / "lake", spark=spark), spark.newSession()
    make_analysts_tables(lake, plain, str(tmp_path / "parquet"))
    here = 0
    for number in range(50):
        query = Analyst(1000 * (1 + seed) + number).query()
        ours = Answer(lambda text=query.text: lake.sql(text), query.ordered)
        assert ours.agrees(Answer(lambda text=query.text: plain.sql(text), query.ordered)), query.text
        here += ours.error is None and is_here(lake.sql(query.text))
    assert here >= 40


def test_deleted_merged_and_changed_rows_and_other_formats(lake: bitlake.Lake) -> None:
    spark = lake.spark
    kinds = {
        "deleted": "TBLPROPERTIES ('deletion-vectors.enabled' = 'true')",
        "keyed": "TBLPROPERTIES ('primary-key' = 'id', 'bucket' = '2')",
        "orc": "TBLPROPERTIES ('file.format' = 'orc')",
        "avro": "TBLPROPERTIES ('file.format' = 'avro')",
    }
    text = "SELECT p.city, count(*), sum(s.id), min(s.v) FROM {} s JOIN shops p ON s.id = p.shop GROUP BY p.city"
    for name, options in kinds.items():
        lake.sql(f"CREATE TABLE {name} (id INT, v STRING) {options}")
        lake.sql(f"INSERT INTO {name} SELECT id, concat('v', id) FROM range(400)")
        spark.sql("SELECT CAST(id AS INT) AS id, concat('v', id) AS v FROM range(400)").createOrReplaceTempView(
            "plain_kind"
        )
        if name in ("deleted", "keyed"):
            lake.sql(f"DELETE FROM {name} WHERE id % 7 = 1")
            spark.sql("SELECT * FROM plain_kind WHERE id % 7 <> 1").createOrReplaceTempView("plain_kind")
        lake.sql(f"ALTER TABLE {name} ALTER COLUMN v COMMENT 'text'")
        lake.sql(f"ALTER TABLE {name} ADD COLUMN w INT")
        frame = lake.sql(text.format(name))
        assert is_here(frame), why(lake, text.format(name))
        plain = spark.sql(text.format("plain_kind").replace("shops", "plain_shops"))
        assert sorted(frame.collect()) == sorted(plain.collect())
        earlier = lake.sql(text.format(f"{name} VERSION AS OF 1"))
        assert is_here(earlier) and sum(r[1] for r in earlier.collect()) == 400
        lake.sql(f"DROP TABLE {name}")
    spark.catalog.dropTempView("plain_kind")


def test_a_result_is_of_the_snapshot_of_the_call(lake: bitlake.Lake) -> None:
    lake.sql("CREATE TABLE growing (id INT)")
    lake.sql("INSERT INTO growing VALUES (1), (2)")
    text = "SELECT a.id, count(*) AS n FROM growing a JOIN growing b ON a.id <= b.id GROUP BY a.id ORDER BY a.id"
    before = lake.sql(text)
    lake.sql("INSERT INTO growing VALUES (3)")
    assert before.filter("n > 0").collect() == [(1, 2), (2, 1)]
    assert lake.sql(text).collect() == [(1, 3), (2, 2), (3, 1)]
    lake.sql("DROP TABLE growing")


def test_values_that_cannot_be_computed_are_sparks_errors(lake: bitlake.Lake) -> None:
    for value, condition in (("100 div (id - 3)", "DIVIDE_BY_ZERO"), ("CAST(status AS INT)", "CAST_INVALID_INPUT")):
        frame = lake.sql(f"SELECT shop, max({value}) AS x FROM sales WHERE id < 10 GROUP BY shop ORDER BY shop")
        assert not is_here(frame)
        with pytest.raises(Exception, match=condition):
            frame.collect()


def test_a_damaged_file_is_reported_as_spark_reports_it(lake: bitlake.Lake) -> None:
    lake.sql("CREATE TABLE damaged (id INT, v STRING)")
    lake.sql("INSERT INTO damaged SELECT id, concat('v', id) FROM range(1000)")
    for path in (Path(f.path) for f in lake.table("damaged").scan().plan().files):
        content = path.read_bytes()
        path.write_bytes(content[:4] + b"\xff" * (len(content) // 2) + content[4 + len(content) // 2 :])
    text = "SELECT a.v, count(*) FROM damaged a JOIN damaged b USING (id) GROUP BY a.v"

    def failure() -> str:
        with pytest.raises(Exception) as raised:
            lake.sql(text).collect()
        return type(raised.value).__name__

    found = failure()
    lake.sql(f"SET {OPTION} = false")
    assert found == failure()
    lake.sql(f"RESET {OPTION}")
    lake.sql("DROP TABLE damaged")


def test_explain_says_who_computes_a_query_and_why(lake: bitlake.Lake) -> None:
    plan = lake.sql(f"EXPLAIN {of(QUERIES[0])}").collect()[0][0]
    assert "DuckDB computes this query in the driver (no Spark job)" in plan
    assert plan.count("DuckDB     reads 2 files with its own Parquet reader") == 2, plan
    assert "Physical Plan" not in plan
    assert "Physical Plan" in lake.sql(f"EXPLAIN EXTENDED {of(QUERIES[0])}").collect()[0][0]
    assert "DuckDB computes this query" in str(lake.explain(of(QUERIES[0])))
    assert why(lake, f"SELECT city, rand() AS r {of(JOINED)} ORDER BY r LIMIT 3").startswith(
        "DuckDB cannot run 'RAND()' as Spark does"
    )
    # What only scans a table says nothing of it.
    assert "Spark computes" not in lake.sql("EXPLAIN SELECT id FROM sales WHERE amount > 5").collect()[0][0]


@pytest.mark.parametrize(
    ("setting", "value", "reason"),
    [
        ("spark.sql.ansi.enabled", "false", "the setting 'spark.sql.ansi.enabled' may change what it means"),
        ("spark.sql.caseSensitive", "true", "names are case-sensitive"),
        ("spark.sql.groupByOrdinal", "false", "the setting 'spark.sql.groupByOrdinal' may change what it means"),
        ("spark.sql.legacy.sizeOfNull", "true", "the setting 'spark.sql.legacy.sizeOfNull' may change what it means"),
        (OPTION, "false", "table 'default.sales': 'read.driver-queries' is false"),
        ("spark.paimon.read.spark-path", "spark", "table 'default.sales': 'read.spark-path' forces a way to read"),
    ],
)
def test_settings_leave_a_query_to_spark(lake: bitlake.Lake, setting: str, value: str, reason: str) -> None:
    lake.spark.conf.set(setting, value)
    try:
        assert why(lake, of(QUERIES[0])) == f"{reason}."
    finally:
        lake.spark.conf.unset(setting)
    lake.spark.conf.set("spark.sql.shuffle.partitions", "3")  # how it runs, and not what it means
    assert is_here(lake.sql(of(QUERIES[0])))
    lake.spark.conf.set("spark.sql.shuffle.partitions", "2")


def test_ordinals_are_not_taken_from_a_session_of_other_settings(lake: bitlake.Lake) -> None:
    """The kept types of a result are those of the settings."""
    text = "SELECT a.shop AS x, count(*) AS n FROM shops a JOIN shops b USING (shop) GROUP BY 1"
    assert is_here(lake.sql(text))
    lake.spark.conf.set("spark.sql.groupByOrdinal", "false")
    try:
        with pytest.raises(BitlakeError, match="shop"):
            lake.sql(text)
    finally:
        lake.spark.conf.unset("spark.sql.groupByOrdinal")


def test_tables_functions_and_places_leave_a_query_to_spark(lake: bitlake.Lake) -> None:
    spark, text = lake.spark, of(QUERIES[0])
    spark.udf.register("total", lambda x: x)  # a word of the query; PySpark 4.1 would replace a built-in one for good
    try:
        assert why(lake, text) == "the session defines the function 'total'."
    finally:
        spark.sql("DROP TEMPORARY FUNCTION total")
    lake.sql("CACHE TABLE shops")
    assert why(lake, text) == "table 'default.shops' is cached by Spark."
    lake.sql("UNCACHE TABLE shops")
    lake.sql("ALTER TABLE sales SET TBLPROPERTIES ('read.driver-queries' = 'false')")
    assert why(lake, text) == "table 'default.sales': 'read.driver-queries' is false."
    lake.sql("ALTER TABLE sales UNSET TBLPROPERTIES ('read.driver-queries')")
    assert why(lake, "SELECT max(_metadata.file_name) AS f FROM sales GROUP BY status").startswith(
        "it asks for the file of a row"
    )
    assert "is a system table or an incremental read" in why(
        lake, "SELECT max(a.snapshot_id) FROM `sales$snapshots` a JOIN shops b ON true"
    )
    spark.range(5).createOrReplaceTempView("ids")
    assert "DuckDB cannot run" in why(lake, "SELECT count(*) AS n FROM shops JOIN ids ON shop = id")
    spark.catalog.dropTempView("ids")
    assert is_here(lake.sql(text))


def test_much_to_read_or_to_return_leaves_a_query_to_spark(lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = f"SELECT s.id, p.city {of(JOINED)}"
    assert (
        why(lake, everything)
        == "it reads more than 200,000 rows of table 'default.sales' that may all be in its result."
    )
    groups = f"SELECT id, count(*) AS n {of(JOINED)} GROUP BY id"
    assert not is_here(lake.sql(groups))  # 300,000 of them
    assert why(lake, groups).startswith("DuckDB gave it up before")
    assert is_here(lake.sql(f"{everything} WHERE s.id < 5000"))
    assert not is_here(lake.sql(f"{everything} WHERE s.id % 10 = 1 AND s.id < 210000"))  # 21,000 rows
    text = of(QUERIES[0])
    monkeypatch.setattr(driver_query, "QUERY_ROWS", SALES)
    assert why(lake, text) == "it reads more than 300,000 rows."
    monkeypatch.setattr(driver_query, "QUERY_ROWS", SALES - 1)
    assert why(lake, text) == "it reads more than 299,999 rows of table 'default.sales'."
    monkeypatch.undo()
    monkeypatch.setattr(driver_query, "QUERY_BYTES", 1)
    assert why(lake, text) == "it reads about 1 MB, more than 0."
    monkeypatch.undo()
    monkeypatch.setattr(driver_query, "DRIVER_FILES", 0)
    assert why(lake, text).startswith("it reads 2 files of table")


def test_rows_that_are_dear_to_read_count_more(lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.sql("CREATE TABLE few (id INT) TBLPROPERTIES ('file.format' = 'avro')")
    lake.sql("INSERT INTO few SELECT id FROM range(100)")
    text = "SELECT count(*) AS n FROM few a JOIN few b USING (id) GROUP BY a.id % 3"
    assert is_here(lake.sql(text))
    monkeypatch.setattr(driver_query, "QUERY_ROWS", 500)
    assert why(lake, text) == "to read table 'default.few' costs as much as 600 rows of Parquet."
    lake.sql("DROP TABLE few")


def test_a_partitioned_table_is_not_read_as_a_whole_where_that_is_forbidden(lake: bitlake.Lake) -> None:
    lake.sql("CREATE TABLE parts (id INT, p INT) PARTITIONED BY (p)")
    lake.sql("INSERT INTO parts SELECT id, id % 3 FROM range(9)")
    text = "SELECT count(*) AS n FROM parts a JOIN shops s ON a.id = s.shop"
    lake.sql("SET spark.paimon.read.allow.fullScan = false")
    try:
        with pytest.raises(BitlakeError, match="reads all 3 files"):
            lake.sql(text)
        assert lake.sql(f"{text} WHERE p = 1").collect() == [(3,)]
    finally:
        lake.sql("RESET spark.paimon.read.allow.fullScan")
    lake.sql("DROP TABLE parts")


def test_the_instance_of_duckdb_is_left_alone_by_a_result(lake: bitlake.Lake) -> None:
    """A result holds its rows, and the tables of one query are not those of the next."""
    first = lake.sql("SELECT count(*) AS n FROM shops a JOIN shops b USING (shop)")
    second = lake.sql("SELECT sum(shop) AS n FROM shops JOIN sales USING (shop) WHERE id < 10")
    assert first.toArrow() == pa.table({"n": pa.array([SHOPS], pa.int64())}).cast(first.toArrow().schema)
    assert second.collect() == [(45,)]


def test_tables_in_a_bucket(lake: bitlake.Lake, spark: Any, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read at once, and small ones once for the same condition."""
    far = bitlake.connect("s3://lake/driver", spark=spark, storage_options=s3_server.options(s3_endpoint))
    for name in ("sales", "shops"):
        far.create_table(name, lake.table(name).to_arrow())
    read: list[str] = []
    to_arrow = TableScan.to_arrow

    def recorded(scan: TableScan) -> pa.Table:
        read.append(scan.state.name)
        return to_arrow(scan)

    monkeypatch.setattr(TableScan, "to_arrow", recorded)
    for text in QUERIES[:6]:
        frame = far.sql(of(text))
        assert is_here(frame)
        assert sorted(map(repr, frame.collect())) == sorted(map(repr, lake.sql(of(text)).collect()))
    read.clear()
    for _ in range(3):
        far.sql(of(QUERIES[0]))
    assert sorted(read) == ["default.sales"] * 3
    far.table("shops").append(pa.table({"shop": pa.array([1], pa.int32()), "city": ["new"]}))
    assert ("new",) in far.sql(f"SELECT DISTINCT city {of(JOINED)}").collect()


def test_a_bucket_that_fails_is_sparks_to_report(
    lake: bitlake.Lake, spark: Any, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = bitlake.connect("s3://lake/driver-fails", spark=spark, storage_options=s3_server.options(s3_endpoint))
    far.create_table("t", pa.table({"id": [1, 2]}))

    def lost(scan: TableScan) -> pa.Table:
        raise StorageUnavailable("the connection was lost")

    with monkeypatch.context() as patch:
        patch.setattr(driver_query, "_cached_rows", lost)
        frame = far.sql("SELECT a.id, count(*) AS n FROM t a JOIN t b ON a.id <= b.id GROUP BY a.id")
    assert not is_here(frame)
    assert sorted(frame.collect()) == [(1, 2), (2, 1)]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT status, count(*) FROM {sales} WHERE id IN ({numbers}) OR grade IS NULL GROUP BY status",
        "SELECT status, sum(grade + 1) AS n FROM {sales} WHERE NOT (id IN ({numbers}) OR grade = 3) GROUP BY status",
        "SELECT shop, count(*) AS n FROM {sales} GROUP BY shop HAVING n > 5 AND shop IN ({numbers})",
        "SELECT count(*) FROM {sales} s JOIN {shops} p ON s.shop = p.shop AND (p.city IN ({texts}) OR s.id < 9)",
        "SELECT count(*) FROM {sales} WHERE (id, grade) IN ({pairs}) OR id = 6",
        "SELECT shop IN ({numbers}), count(*) FROM {sales} GROUP BY shop IN ({numbers})",
        "SELECT count(*) FROM {sales} WHERE amount IN ({decimals}) OR grade = 2",
        "SELECT count(*) AS n FROM {sales} WHERE id NOT IN (NULL, {numbers}) OR grade = 2 GROUP BY status",
    ],
)
def test_long_lists_anywhere(lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Spark, which takes 0.2 ms to plan a literal, sees one of a condition's list."""
    numbers = ", ".join(str(7 * i % 100_003) for i in range(300))
    texts = ", ".join(f"'city {i}'" for i in range(3, 400, 3))
    pairs = ", ".join(f"({i}, {i % 5}L)" for i in range(1, 400))
    decimals = ", ".join(f"{i}.00" for i in range(0, 300, 3))
    text = text.replace("{numbers}", numbers).replace("{texts}", texts)
    text = text.replace("{pairs}", pairs).replace("{decimals}", decimals)
    plain = Answer(lambda: lake.spark.sql(of(text, "plain_")))
    seen: list[str] = []
    sql = lake.spark.sql

    def recorded(query: str, *args: Any, **named: Any) -> Any:
        seen.append(query)
        return sql(query, *args, **named)

    monkeypatch.setattr(lake.spark, "sql", recorded)
    frame = lake.sql(of(text))
    monkeypatch.undo()
    assert Answer(lambda: frame).agrees(plain)
    if not text.startswith("SELECT shop IN"):  # Spark names the column after the list
        assert is_here(frame)
        assert max(map(len, seen), default=0) < 400


def test_small_tables_of_a_bucket_follow_alter(lake: bitlake.Lake, spark: Any, s3_endpoint: str) -> None:
    """ALTER makes no snapshot: another column has the name of one whose rows are kept."""
    far = bitlake.connect("s3://lake/driver-alter", spark=spark, storage_options=s3_server.options(s3_endpoint))
    far.create_table("t", pa.table({"id": [1, 2], "old": ["x", "y"], "city": ["a", "b"]}))
    text = "SELECT a.id, max(b.city) AS city FROM t a JOIN t b ON a.id = b.id GROUP BY a.id ORDER BY a.id"
    assert far.sql(text).collect() == [(1, "a"), (2, "b")]
    far.sql("ALTER TABLE t DROP COLUMN city")
    far.sql("ALTER TABLE t RENAME COLUMN old TO city")
    frame = far.sql(text)
    assert is_here(frame) and frame.collect() == [(1, "x"), (2, "y")]


def test_local_relations_of_small_tables_follow_alter(lake: bitlake.Lake) -> None:
    lake.sql(f"SET {OPTION} = false")
    lake.sql("CREATE TABLE altered (id INT, old STRING, city STRING)")
    lake.sql("INSERT INTO altered VALUES (1, 'x', 'a')")
    text = "SELECT b.city FROM altered a JOIN altered b ON a.id = b.id"
    assert lake.sql(text).collect() == [("a",)]
    lake.sql("ALTER TABLE altered DROP COLUMN city")
    lake.sql("ALTER TABLE altered RENAME COLUMN old TO city")
    assert lake.sql(text).collect() == [("x",)]
    lake.sql("DROP TABLE altered")


def test_a_schema_that_is_changed_is_the_callers(lake: bitlake.Lake) -> None:
    text = "SELECT count(*) AS n FROM shops a JOIN shops b USING (shop)"
    lake.sql(text).schema.add("x", "integer")
    frame = lake.sql(text)
    assert is_here(frame) and frame.schema.names == ["n"]


def test_an_unnamed_filter_keeps_its_list(lake: bitlake.Lake) -> None:
    """Spark names the column after the expression, list included."""
    numbers = ", ".join(map(str, range(300)))
    text = f"SELECT shop % 2 AS odd, count(*) FILTER (WHERE shop IN ({numbers})) FROM {{shops}} GROUP BY shop % 2"
    plain = lake.spark.sql(of(text, "plain_"))
    assert lake.sql(of(text)).columns == plain.columns
    assert Answer(lambda: lake.sql(of(text))).agrees(Answer(lambda: plain))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT shop, grade IN (SELECT grade FROM {sales} WHERE id < 30) AS x FROM {sales} WHERE id BETWEEN 5 AND 20",
        "SELECT id FROM {sales} WHERE (grade IN (SELECT grade FROM {sales} WHERE id < 30)) IS NULL AND id < 50",
        "SELECT id FROM {sales} WHERE (grade NOT IN (SELECT shop FROM {shops}) OR id < 9) AND id < 50",
        "SELECT id, CASE WHEN grade IN (SELECT shop FROM {shops}) THEN 1 END AS x FROM {sales} WHERE id < 50",
        "SELECT id, CASE true WHEN grade IN (SELECT shop FROM {shops}) THEN 1 END AS x FROM {sales} WHERE id < 50",
        "SELECT count(grade IN (SELECT shop FROM {shops})) AS x FROM {sales} WHERE id < 50",
    ],
)
def test_in_of_a_query_is_never_null_as_a_value(lake: bitlake.Lake, text: str) -> None:
    plain = lake.spark.sql(of(text, "plain_"))
    assert Answer(lambda: lake.sql(of(text))).agrees(Answer(lambda: plain))


@pytest.mark.parametrize(
    "condition",
    [
        "c = 'ab'",
        "c = concat('a', 'b')",
        "'ab' || '' >= c",
        "c = lower('AB')",
        "c = v",
        "c = lower(v)",
        "c IN ('ab', v)",
    ],
)
def test_spark_pads_constants_beside_char(lake: bitlake.Lake, condition: str) -> None:
    lake.sql("CREATE TABLE chars (id INT, c CHAR(5), v VARCHAR(7))")
    lake.sql("INSERT INTO chars VALUES (1, 'ab', 'ab'), (2, 'ab   ', 'ab  '), (3, NULL, NULL)")
    text = f"SELECT id, count(*) AS n FROM chars WHERE {condition} GROUP BY id"
    rows = sorted(lake.sql(text).collect())
    lake.sql(f"SET {OPTION} = false")
    assert rows == sorted(lake.sql(text).collect())
    lake.sql("DROP TABLE chars")


def test_long_texts_and_large_results_leave_a_query_to_spark(lake: bitlake.Lake) -> None:
    lake.sql("CREATE TABLE docs AS SELECT id, repeat(concat('x', id), 30000) AS t FROM range(5)")
    text = "SELECT p.shop, d.t FROM shops p JOIN docs d ON p.shop < 100"
    assert why(lake, text) == "rows of table 'default.docs' have more than 16,384 bytes of text."
    assert not is_here(lake.sql("SELECT a.shop, repeat('x', 100000) AS t FROM shops a JOIN shops b USING (shop)"))
    lake.sql("DROP TABLE docs")
