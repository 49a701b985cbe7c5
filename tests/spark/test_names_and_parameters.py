"""Names, parameters and session syntax in SQL: what Spark answers over views of the same rows, the lake answers."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from answers import rows_of
from long import every
from pyspark.sql import Row
from pyspark.sql import functions as F

import bitlake
from bitlake.errors import BitlakeError, InvalidRequest, NotFound

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def lake(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> bitlake.Lake:
    lake = bitlake.connect(str(tmp_path_factory.mktemp("names")), spark=spark)
    lake.sql("CREATE TABLE t (a INT, b STRING, d DOUBLE)")
    lake.sql("INSERT INTO t VALUES (1, 'x', 1.0), (2, 'y', NULL), (3, 'z', 3.0), (NULL, 'n', NULL)")
    lake.sql("CREATE TABLE u (a INT, c STRING)")
    lake.sql("INSERT INTO u VALUES (1, 'p'), (3, 'q')")
    lake.sql("CREATE TABLE sales (id INT, amount INT)")
    lake.sql("INSERT INTO sales VALUES (1, 10)")
    lake.sql("CREATE DATABASE other")
    lake.sql("CREATE TABLE other.t (a INT, c STRING)")
    lake.sql("INSERT INTO other.t VALUES (1, 'other')")
    return lake


def ask(lake: bitlake.Lake, text: str, args: Any = None) -> list[list[Any]]:
    return sorted(rows_of(lake.sql(text, args)), key=repr)


ONE = [1, "x", 1.0]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        # Stars and column lists of relations in brackets: only the columns named elsewhere came back.
        ("SELECT x.* FROM (t) x WHERE a = 1", [ONE]),
        ("SELECT x.* FROM (t JOIN u USING (a)) x WHERE x.a = 1", [[*ONE, "p"]]),
        ("SELECT x.k FROM (t) AS x(k, l, m) WHERE x.k = 1", [[1]]),
        ("SELECT x.m FROM (t JOIN u USING (a)) x(k, l, m, n) WHERE k = 3", [[3.0]]),
        ("SELECT y.k FROM (((t))) y(k, l, m) WHERE k = 2", [[2]]),
        # Columns with their database, also of the current one and of two tables with one name.
        ("SELECT default.t.b FROM t WHERE default.t.a = 1", [["x"]]),
        ("SELECT paimon.default.t.b FROM t WHERE a = 1", [["x"]]),
        ("SELECT default.t.* FROM t WHERE a = 1", [ONE]),
        ("SELECT default.t.b, other.t.c FROM t JOIN other.t ON other.t.a = default.t.a", [["x", "other"]]),
        ("SELECT t.b, other.t.c FROM t JOIN other.t ON other.t.a = default.t.a", [["x", "other"]]),
        # TABLE takes no alias, so that t.a did not resolve.
        ("TABLE t |> WHERE t.a = 1 |> SELECT t.b", [["x"]]),
        ("FROM t |> WHERE a = 1", [ONE]),
        ("TABLE t ORDER BY t.d DESC LIMIT 1", [[3, "z", 3.0]]),
        ("SELECT a FROM t WHERE a IN (TABLE u |> SELECT u.a)", [[1], [3]]),
        # A name that is a string.
        ("SELECT * FROM IDENTIFIER('t') WHERE a = 1", [ONE]),
        ("SELECT IDENTIFIER('a') FROM IDENTIFIER('default' || '.t') WHERE IDENTIFIER('t.a') = 1", [[1]]),
        (
            # The CTE is used twice, once by a string: the filter of one use was pushed into both.
            "WITH c AS (SELECT a FROM t) SELECT a FROM c WHERE a = 1 UNION ALL SELECT a FROM IDENTIFIER('c')",
            [[1], [1], [2], [3], [None]],
        ),
    ],
)  # fmt: skip
def test_names(lake: bitlake.Lake, query: str, expected: list[list[Any]]) -> None:
    assert ask(lake, query) == expected


def test_names_of_strings_in_other_statements(lake: bitlake.Lake) -> None:
    lake.sql("CREATE TABLE IDENTIFIER('made') (a INT)")
    lake.sql("INSERT INTO IDENTIFIER('made') VALUES (1), (2)")
    lake.sql("DELETE FROM IDENTIFIER('default.made') WHERE a = 1")
    lake.sql("DECLARE OR REPLACE VARIABLE name STRING DEFAULT 'made'")
    assert ask(lake, "SELECT * FROM IDENTIFIER(name)") == [[2]]
    lake.sql("DROP TABLE IDENTIFIER('made')")
    assert "made" not in lake.tables()


@pytest.mark.parametrize("condition", ["a <=> 'NaN'", "a <=> '99999999999'", "NOT (NOT (a <=> 'x'))"])
def test_a_null_safe_comparison_with_a_text_that_is_no_number(lake: bitlake.Lake, condition: str) -> None:
    # Without ANSI mode the text is cast to NULL, and NULL <=> NULL is true: the row was dropped.
    lake.spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        assert ask(lake, f"SELECT a, b FROM t WHERE {condition}") == [[None, "n"]]
        joined = (
            f"SELECT u.c FROM u LEFT JOIN t ON t.a = u.a + 2 WHERE t.{condition.removeprefix('NOT (NOT (').rstrip(')')}"
        )
        assert ask(lake, joined) == [["q"]]
    finally:
        lake.spark.conf.unset("spark.sql.ansi.enabled")


def test_current_database_follows_use(lake: bitlake.Lake) -> None:
    # Spark's own catalog was asked, which knows nothing of USE.
    lake.sql("USE other")
    try:
        found = lake.sql("SELECT current_database(), current_schema() AS s, upper(current_database()) AS u FROM t")
        assert found.columns == ["current_schema()", "s", "u"]
        assert rows_of(found) == [["other", "other", "OTHER"]]
        assert ask(lake, "SHOW CURRENT NAMESPACE") == [["bitlake", "other"]]
        assert ask(lake, "SELECT c FROM t WHERE current_database() = 'other'") == [["other"]]
        assert ask(lake, "SELECT current_catalog()") == [["bitlake"]]
    finally:
        lake.sql("USE default")
    assert ask(lake, "SELECT x.current_database FROM (SELECT a AS current_database FROM u) x") == [[1], [3]]


@pytest.mark.parametrize(
    ("query", "args"),
    [
        ("SELECT b FROM t WHERE a = :p", {"p": 1, "unused": 2}),
        ("SELECT b FROM t WHERE a = ? AND d > ?", [1, -0.5]),
        ("SELECT b FROM t WHERE b = :s", {"s": "x"}),
        ("SELECT b FROM IDENTIFIER(:name) WHERE a=:p", {"name": "default.t", "p": Decimal("1.00")}),
        ("SELECT b FROM t WHERE array_contains(?, a) LIMIT ?", [[1, 7], 5]),
        ("SELECT b FROM t WHERE a = element_at(:m, 'k')", {"m": {"k": 1}}),
        ("SELECT b FROM t WHERE a = 1 AND :d = DATE '2024-02-29'", {"d": dt.date(2024, 2, 29)}),
        (
            "SELECT b FROM t WHERE a = 1 AND :t + :i = TIMESTAMP '2024-03-01 00:00:00Z'",
            {"t": dt.datetime(2024, 2, 29, 22, tzinfo=dt.UTC), "i": dt.timedelta(hours=2)},
        ),
    ],
)
def test_parameters(lake: bitlake.Lake, query: str, args: Any) -> None:
    assert ask(lake, query, args) == [["x"]]


def test_parameters_are_typed_and_quoted_as_spark_does(lake: bitlake.Lake) -> None:
    values = [
        None,
        True,
        7,
        -7,
        1 << 40,
        1.5,
        float("nan"),
        "it's \\ 'q'",
        b"\x00\xff",
        Decimal("-12.50"),
        Decimal("1E+3"),
    ]
    text = "SELECT " + ", ".join("?" for _ in values)
    ours, sparks = lake.sql(text, values), lake.spark.sql(text, args=values)
    assert [f.dataType for f in ours.schema] == [f.dataType for f in sparks.schema]
    assert repr(ours.collect()[0][:]) == repr(sparks.collect()[0][:])


def test_columns_as_parameters_are_spark_s(lake: bitlake.Lake) -> None:
    moment = F.lit(dt.datetime(2024, 3, 31, 0, 30)).alias("timestamp")
    values = [
        F.struct(F.lit(1).alias("a"), F.lit("x").alias("b c"), moment),
        F.array(F.struct(F.lit("it's").alias("q`r"), F.struct().alias("none"))),
        F.create_map(F.lit("k"), F.struct(F.lit(Decimal("1.50")).alias("timestamp_ntz"))),
        F.struct(F.lit(dt.timedelta(days=1)).alias("i"), F.array(F.lit(b"\x00")).alias("z")),
        F.lit(float("nan")),
    ]
    text = "SELECT " + ", ".join("?" for _ in values)
    ours, sparks = lake.sql(text, values), lake.spark.sql(text, args=values)
    assert [f.dataType.simpleString() for f in ours.schema] == [f.dataType.simpleString() for f in sparks.schema]
    assert repr(ours.collect()[0][:]) == repr(sparks.collect()[0][:])


def test_columns_that_spark_refuses_as_parameters_keep_their_types(lake: bitlake.Lake) -> None:
    kinds = {
        "struct<a:int,b:array<timestamp>>": F.lit(None).cast("struct<a:int,b:array<timestamp>>"),
        "array<struct<x:float>>": F.array().cast("array<struct<x:float>>"),
        "map<string,date>": F.create_map().cast("map<string,date>"),
        "timestamp_ntz": F.lit("2024-03-31 02:30:00").cast("timestamp_ntz"),
    }
    lake.spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        found = lake.sql("SELECT ?, ?, ?, ?", list(kinds.values()))
        assert [f.dataType.simpleString() for f in found.schema] == list(kinds)
        assert rows_of(found) == [[None, [], {"$map": []}, dt.datetime(2024, 3, 31, 2, 30)]]
    finally:
        lake.spark.conf.unset("spark.sql.session.timeZone")


def test_rows_as_parameters_are_structs(lake: bitlake.Lake) -> None:
    lake.sql("CREATE TABLE w (id INT, s STRUCT<a: INT, b: STRING>)")
    lake.sql("INSERT INTO w VALUES (1, :s), (2, NULL)", {"s": Row(a=1, b="x")})
    lake.sql("UPDATE w SET s = :s WHERE id = 2", {"s": F.struct(F.lit("y").alias("b"), F.lit(2).alias("a"))})
    rows = [Row(a=1, b="x"), Row(a=2, b="z")]
    assert ask(lake, "SELECT id, s.a, s.b FROM w WHERE s IN (?, ?)", rows) == [[1, 1, "x"]]
    assert ask(lake, "SELECT s.b FROM w WHERE id = 2") == [["y"]]
    lake.sql("DROP TABLE w")


def test_parameters_of_statements_that_write(lake: bitlake.Lake) -> None:
    lake.sql("CREATE TABLE w (a INT, b STRING)")
    lake.sql("INSERT INTO w VALUES (:a, :b), (2, ':a')", {"a": 1, "b": "o'clock ?"})
    lake.sql("UPDATE w SET b = ? WHERE a = ?", ["two", 2])
    assert ask(lake, "SELECT * FROM w") == [[1, "o'clock ?"], [2, "two"]]
    lake.sql("DROP TABLE w")


def test_a_parameter_without_a_value_is_named(lake: bitlake.Lake) -> None:
    with pytest.raises(InvalidRequest, match="':p' has no value"):
        lake.sql("SELECT * FROM t WHERE a = :p", {"q": 1})
    with pytest.raises(InvalidRequest, match="2 parameters, but args has 1 values"):
        lake.sql("SELECT * FROM t WHERE a = ? AND b = ?", [1])
    with pytest.raises(InvalidRequest, match="cannot be a parameter's value"):
        lake.sql("SELECT ?", [object()])


def test_execute_immediate(lake: bitlake.Lake) -> None:
    assert ask(lake, "EXECUTE IMMEDIATE 'SELECT b FROM t WHERE a = ?' USING 1") == [["x"]]
    lake.sql("DECLARE OR REPLACE VARIABLE q STRING DEFAULT 'SELECT max(b), count(*) FROM t WHERE a >= :low'")
    lake.sql("DECLARE OR REPLACE VARIABLE greatest_b STRING")
    lake.sql("DECLARE OR REPLACE VARIABLE n BIGINT")
    lake.sql("EXECUTE IMMEDIATE q INTO greatest_b, n USING (1 + 1 AS low)")
    assert ask(lake, "SELECT greatest_b, n") == [["z", 2]]
    for wrong in ("SELECT 1 WITH abc", "SELECT 1 JOIN SELECT 2", "SELECT 1) = (SELECT 1"):
        # Brackets were put around it, in which Spark failed in other words, or ran the last one.
        with pytest.raises(InvalidRequest, match="PARSE_SYNTAX_ERROR|closes no '\\("):
            lake.sql(f"EXECUTE IMMEDIATE '{wrong}' INTO n")
    lake.sql("EXECUTE IMMEDIATE 'CREATE TABLE ex (a INT)'")
    lake.sql("EXECUTE IMMEDIATE 'INSERT INTO ex VALUES (?)' USING 5")
    assert ask(lake, "SELECT * FROM ex") == [[5]]
    lake.sql("DROP TABLE ex")


@pytest.mark.exhaustive
def test_execute_immediate_takes_constants_and_variables(lake: bitlake.Lake) -> None:
    # The values went into the statement as they were written, where columns and subqueries were found in them.
    lake.sql("DECLARE OR REPLACE VARIABLE a INT DEFAULT 2")
    lake.sql("DECLARE OR REPLACE VARIABLE p INT DEFAULT 2")
    for name in ("a", "session.a", "`a`", "system.session.A"):
        assert ask(lake, f"EXECUTE IMMEDIATE 'SELECT b FROM t WHERE a = ?' USING {name}") == [["y"]]
    assert ask(lake, "EXECUTE IMMEDIATE 'SELECT a FROM t WHERE a = :p' USING p") == [[2]]
    assert ask(lake, "EXECUTE IMMEDIATE 'SELECT a FROM t WHERE a = :low' USING a AS low") == [[2]]
    assert ask(lake, "EXECUTE IMMEDIATE 'SELECT ?, ?, typeof(?)' USING TRUE, NULL, 5Y") == [[True, None, "tinyint"]]
    assert ask(lake, "EXECUTE IMMEDIATE 'SELECT b FROM t WHERE a = ?' USING abs(-p)") == [["y"]]
    joined = "EXECUTE IMMEDIATE 'SELECT concat(:low ''1'', b) FROM t WHERE a = 1' USING 'c' AS low"
    assert ask(lake, joined) == [["c1x"]]
    for using in ("(1 + 1)", "(1 + 1) AS low", "(2 AS low)", "(2) AS low"):
        mark = ":low" if "low" in using else "?"
        assert ask(lake, f"EXECUTE IMMEDIATE 'SELECT b FROM t WHERE a = {mark}' USING {using}") == [["y"]]
    assert ask(lake, "EXECUTE IMMEDIATE 'SELECT ?, ?' USING (1, 'x')") == [[1, "x"]]
    for using in ("b", "(SELECT 1)", "missing"):
        with pytest.raises(BitlakeError):
            lake.sql(f"EXECUTE IMMEDIATE 'SELECT a FROM t WHERE ? = b' USING {using}")
    with pytest.raises(InvalidRequest, match="have names, or none has"):
        lake.sql("EXECUTE IMMEDIATE 'SELECT a FROM t WHERE a = :p' USING p, 'p'")
    for variable in "ap":
        lake.sql(f"DROP TEMPORARY VARIABLE {variable}")


def test_comments_of_columns_are_kept(lake: bitlake.Lake) -> None:
    # A query's columns had none, so that a table made of a query lost them; Paimon keeps them.
    lake.sql("CREATE TABLE commented (k INT COMMENT 'the key', v STRING)")
    described = [["k", "int", "the key"], ["v", "string", None]]
    assert ask(lake, "DESCRIBE QUERY WITH s AS (SELECT * FROM commented) SELECT * FROM s") == described
    lake.sql("CREATE TABLE copied AS SELECT * FROM commented")
    lake.write(lake.read("copied"), "written")
    for name in ("copied", "written"):
        assert ask(lake, f"DESCRIBE {name}") == described
        lake.sql(f"DROP TABLE {name}")
    lake.sql("DROP TABLE commented")


def test_variables_from_lake_tables(lake: bitlake.Lake) -> None:
    lake.sql("DECLARE OR REPLACE VARIABLE most INT")
    lake.sql("SET VAR most = (SELECT max(a) FROM t)")
    assert ask(lake, "SELECT b FROM t WHERE a = most") == [["z"]]


def test_double_quoted_names(lake: bitlake.Lake) -> None:
    lake.spark.conf.set("spark.sql.ansi.doubleQuotedIdentifiers", "true")
    try:
        assert ask(lake, 'SELECT "a" FROM "t" WHERE "b" = \'x\'') == [[1]]
        assert ask(lake, 'SELECT max("default"."t"."a") FROM t') == [[3]]
    finally:
        lake.spark.conf.unset("spark.sql.ansi.doubleQuotedIdentifiers")
    assert ask(lake, 'SELECT a FROM t WHERE b = "x"') == [[1]]


def test_quoted_patterns_of_columns(lake: bitlake.Lake) -> None:
    # A pattern without * + ? or | was taken for a name, and the table had no column that it matches.
    lake.spark.conf.set("spark.sql.parser.quotedRegexColumnNames", "true")
    try:
        assert ask(lake, "SELECT `.` FROM t WHERE a = 1") == [ONE]
        assert ask(lake, "SELECT `[ab]` FROM t WHERE a = 1") == [[1, "x"]]
        assert ask(lake, "SELECT t.`(a)?+.+` FROM t WHERE a = 1") == [["x", 1.0]]
    finally:
        lake.spark.conf.unset("spark.sql.parser.quotedRegexColumnNames")


@pytest.mark.parametrize(
    "text", ["DESCRIBE QUERY SELECT a, b FROM t", "DESC SELECT a, b FROM t", "DESCRIBE FROM t SELECT a, b"]
)
def test_describe_query(lake: bitlake.Lake, text: str) -> None:
    assert rows_of(lake.sql(text)) == [["a", "int", None], ["b", "string", None]]


def test_a_cached_table_is_read_once_and_never_stale(lake: bitlake.Lake) -> None:
    lake.sql("CREATE TABLE kept (a INT, b STRING)")
    lake.sql("INSERT INTO kept VALUES (1, 'x'), (2, 'y')")
    lake.sql("CACHE TABLE kept")
    (file,) = Path(lake.table("kept").path).glob("bucket-0/*.parquet")
    away = file.rename(file.with_suffix(".away"))
    assert ask(lake, "SELECT b FROM kept WHERE a = 1") == [["x"]]
    assert ask(lake, "SELECT k.* FROM kept k JOIN t ON k.a = t.a") == [[1, "x"], [2, "y"]]
    away.rename(file)
    lake.sql("INSERT INTO kept VALUES (3, 'z')")
    assert ask(lake, "SELECT b FROM kept WHERE a > 1") == [["y"], ["z"]]
    assert ask(lake, "SELECT b FROM kept VERSION AS OF 1 WHERE a > 1") == [["y"]]
    lake.sql("UNCACHE TABLE kept")
    lake.clear_cache()  # they hold the footer of the file, and all its data with it
    file.rename(away)
    with pytest.raises(BitlakeError):
        lake.sql("SELECT b FROM kept WHERE a = 1").collect()
    away.rename(file)
    lake.sql("CACHE LAZY TABLE kept_view AS SELECT b FROM kept")
    assert ask(lake, "SELECT count(*) FROM kept_view") == [[3]]
    lake.sql("CLEAR CACHE")
    lake.sql("DROP VIEW kept_view")
    lake.sql("DROP TABLE kept")


def test_alter_view(lake: bitlake.Lake) -> None:
    lake.sql("CREATE OR REPLACE TEMP VIEW v AS SELECT a FROM t WHERE a = 1")
    lake.sql("ALTER VIEW v AS SELECT b FROM t WHERE a = 2")
    assert ask(lake, "SELECT * FROM v") == [["y"]]
    lake.sql("DROP VIEW v")


def test_system_tables_need_no_backticks(lake: bitlake.Lake) -> None:
    assert ask(lake, "SELECT snapshot_id FROM other.t$snapshots") == [[1]]
    assert ask(lake, "SELECT t$snapshots.commit_kind, a FROM t$snapshots JOIN t ON a = snapshot_id") == [["APPEND", 1]]
    assert [r.col_name for r in lake.sql("DESCRIBE t$tags").collect()][:2] == ["tag_name", "snapshot_id"]
    with pytest.raises(BitlakeError, match=r"'default\.t' has no system table 'snapshot'; did you mean snapshots"):
        lake.sql("SELECT * FROM t$snapshot")


@pytest.mark.parametrize(
    ("text", "column", "meant"),
    every(
        2,
        [
            ("SELECT count(amout) FROM sales", "amout", "'amount'"),
            ("SELECT id FROM sales ORDER BY amout LIMIT 3", "amout", "'amount'"),
            ("SELECT s.amout FROM sales s JOIN t ON s.id = t.a", "s.amout", "'s.amount'"),
            ("SELECT x.id FROM sales", "x.id", "'sales.id'"),
            ("SELECT id FROM sales JOIN u USING (idd)", "idd", "'id'"),
            ("WITH q AS (SELECT id AS ident FROM sales) SELECT idnt FROM q", "idnt", "'ident' or 'id'"),
            ("TABLE sales |> WHERE amout = 1", "amout", "'amount'"),
            ("UPDATE sales SET amount = amout + 1", "amout", "'amount'"),
            ("DELETE FROM sales WHERE amout = 1", "amout", "'amount'"),
            ("MERGE INTO sales USING t ON sales.idd = t.a WHEN MATCHED THEN DELETE", "sales.idd", "'id'"),
            ("CREATE TABLE copied AS SELECT amout FROM sales", "amout", "'amount'"),
            ("SELECT zzz FROM sales", "zzz", None),
        ],
    ),
)
def test_a_misspelt_column_is_answered_with_the_tables_own(
    lake: bitlake.Lake, text: str, column: str, meant: str | None
) -> None:
    """DELETE offered `__paimon_file_path`, ORDER BY no column but the one it selected."""
    with pytest.raises(NotFound) as raised:
        lake.sql(text)
    first, *tables = str(raised.value).splitlines()
    assert first == f"no column '{column}'" + (f"; did you mean {meant}?" if meant else "")
    assert "table 'default.sales' has columns id, amount" in tables
    assert "__" not in str(raised.value)


def test_a_misspelt_column_to_set(lake: bitlake.Lake) -> None:
    with pytest.raises(NotFound, match=r"table 'default\.t' has no column 'bb'; did you mean b\?"):
        lake.sql("UPDATE t SET bb = 1")


def test_system_tables_by_their_names_in_iceberg(lake: bitlake.Lake) -> None:
    with pytest.raises(NotFound, match=re.escape("'t' is a table, and its system tables are named t$snapshots")):
        lake.sql("SELECT * FROM t.snapshots")
