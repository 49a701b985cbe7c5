from __future__ import annotations

import pytest
import sqlglot

from bitlake.errors import InvalidRequest, UnsupportedFeature
from bitlake.expressions.spark_dialect import SparkSql
from bitlake.sql import statements as st
from bitlake.sql.ddl import parse_ddl_type
from bitlake.sql.parser import parse_statement, parse_table_name, split_statements
from bitlake.sql.statements import ColumnDef, Statement
from bitlake.sql.text import SqlNull, SqlText, SqlTime, TableName

T = TableName(None, "t")
DB_T = TableName("db", "t")
INT, STRING = parse_ddl_type("INT"), parse_ddl_type("STRING")

CASES: list[tuple[str, Statement]] = [
    ("CREATE DATABASE x", st.CreateDatabase("x")),
    (
        "CREATE SCHEMA IF NOT EXISTS `x` COMMENT 'y' WITH DBPROPERTIES ('a' = 'b')",
        st.CreateDatabase("x", True, "y", {"a": "b"}),
    ),
    ("DROP DATABASE IF EXISTS x CASCADE;", st.DropDatabase("x", True, True)),
    ("drop schema x restrict", st.DropDatabase("x")),
    ("USE x", st.UseDatabase("x")),
    ("USE DATABASE x", st.UseDatabase("x")),
    ("USE paimon.x", st.UseDatabase("x")),
    ("DROP TABLE t", st.DropTable(T)),
    ("DROP TABLE IF EXISTS paimon.db.`t` PURGE", st.DropTable(DB_T, True)),
    ("CREATE TABLE t (a INT)", st.CreateTable(T, columns=(ColumnDef("a", INT),))),
    (
        "CREATE TABLE IF NOT EXISTS db.t (a INT NOT NULL COMMENT 'it''s', `b c` STRING DEFAULT concat('x', ',') )\n"
        "USING paimon PARTITIONED BY (`b c`) COMMENT 'c' TBLPROPERTIES ('k' = 'v', bucket = 4, a.b-c = true)",
        st.CreateTable(
            DB_T,
            True,
            (
                ColumnDef("a", parse_ddl_type("INT").__class__(INT.root, False), "it's"),
                ColumnDef("b c", STRING, default_sql="concat('x', ',')"),
            ),
            ("b c",),
            "c",
            {"k": "v", "bucket": "4", "a.b-c": "true"},
            using="paimon",
        ),
    ),
    (
        "CREATE TABLE t (a INT) PARTITIONED BY (p STRING, a)",
        st.CreateTable(T, columns=(ColumnDef("a", INT), ColumnDef("p", STRING)), partitioned_by=("p", "a")),
    ),
    (
        "CREATE TABLE t (a INT, PRIMARY KEY (a) NOT ENFORCED) WITH ('bucket' = '4')",
        st.CreateTable(T, columns=(ColumnDef("a", INT),), properties={"bucket": "4"}, primary_key=("a",)),
    ),
    ("CREATE TABLE t AS SELECT 1 AS a", st.CreateTable(T, query="SELECT 1 AS a")),
    (
        "CREATE TABLE t PARTITIONED BY (a) TBLPROPERTIES ('x'='y') AS WITH c AS (SELECT 1 a) TABLE c",
        st.CreateTable(T, partitioned_by=("a",), properties={"x": "y"}, query="WITH c AS (SELECT 1 a) TABLE c"),
    ),
    ("CREATE TEMPORARY VIEW v AS SELECT 1", st.CreateView("v", "SELECT 1")),
    ("CREATE OR REPLACE TEMP VIEW v AS SELECT 1", st.CreateView("v", "SELECT 1", replace=True)),
    ("CREATE TEMP VIEW v (a) AS SELECT 1", st.Other("CREATE TEMP VIEW v (a) AS SELECT 1")),
    ("INSERT INTO t VALUES (1), (2);", st.InsertInto(T, "VALUES (1), (2)")),
    ("INSERT INTO TABLE t SELECT ';' -- the end", st.InsertInto(T, "SELECT ';'")),
    ("INSERT INTO t (a, `b`) VALUES (1, 2)", st.InsertInto(T, "VALUES (1, 2)", ("a", "b"))),
    ("INSERT INTO t (SELECT a FROM u)", st.InsertInto(T, "(SELECT a FROM u)")),
    ("INSERT INTO t (`values`, map) TABLE u", st.InsertInto(T, "TABLE u", ("values", "map"))),
    ("INSERT INTO t BY NAME SELECT 1 a", st.InsertInto(T, "SELECT 1 a", by_name=True)),
    (
        "INSERT OVERWRITE t PARTITION (a = 1, b, c = NULL, d = DATE '2020-01-01', e = -1) (x) SELECT 2",
        st.InsertInto(
            T,
            "SELECT 2",
            ("x",),
            {"a": 1, "b": None, "c": SqlNull.NULL, "d": SqlTime(SqlText("DATE '2020-01-01'")), "e": -1},
            True,
        ),
    ),
    (
        "INSERT OVERWRITE t PARTITION (a = 1) IF NOT EXISTS (x) SELECT 2",
        st.InsertInto(T, "SELECT 2", ("x",), {"a": 1}, True, if_not_exists=True),
    ),
    (
        "INSERT INTO t BY NAME REPLACE WHERE a = 1 AND (b = 'SELECT') SELECT 2",
        st.InsertInto(T, "SELECT 2", by_name=True, replace_where="a = 1 AND (b = 'SELECT')"),
    ),
    ("INSERT WITH SCHEMA EVOLUTION INTO t SELECT 1", st.InsertInto(T, "SELECT 1", evolve=True)),
    ("FROM u INSERT INTO t SELECT a", st.InsertInto(T, "FROM u SELECT a")),
    (
        "WITH c AS (SELECT 1) INSERT INTO t WITH d AS (SELECT 2) SELECT 3",
        st.InsertInto(T, "WITH c AS (SELECT 1) (WITH d AS (SELECT 2) SELECT 3)"),
    ),
    ("INSERT INTO t WITH ('a.b' = 'c') SELECT 1", st.InsertInto(T, "SELECT 1", options={"a.b": "c"})),
    (
        "WITH c AS (SELECT 1 a) FROM c INSERT INTO t SELECT a INSERT OVERWRITE t (b) SELECT a WHERE a > 1",
        st.MultiInsert(
            (
                st.InsertInto(T, "WITH c AS (SELECT 1 a) FROM c SELECT a"),
                st.InsertInto(T, "WITH c AS (SELECT 1 a) FROM c SELECT a WHERE a > 1", ("b",), overwrite=True),
            )
        ),
    ),
    ("WITH c AS (SELECT 1) INSERT INTO t SELECT * FROM c", st.InsertInto(T, "WITH c AS (SELECT 1) SELECT * FROM c")),
    ("ALTER TABLE t SET TBLPROPERTIES ('a' = 'b', 'c' '1')", st.AlterTableSet(T, {"a": "b", "c": "1"})),
    ("ALTER TABLE t UNSET TBLPROPERTIES IF EXISTS ('a', b.c)", st.AlterTableUnset(T, ("a", "b.c"), True)),
    ("SHOW DATABASES", st.ShowDatabases()),
    ("SHOW SCHEMAS LIKE 'a*'", st.ShowDatabases("a*")),
    ("SHOW TABLES", st.ShowTables()),
    ("SHOW TABLES IN db LIKE 'a*'", st.ShowTables("db", "a*")),
    ("SHOW TABLES FROM db 'a*'", st.ShowTables("db", "a*")),
    ("SHOW CREATE TABLE db.t", st.ShowCreateTable(DB_T)),
    ("SHOW PARTITIONS t", st.ShowPartitions(T)),
    ("SHOW PARTITIONS t PARTITION (a = 1)", st.ShowPartitions(T, {"a": 1})),
    ("SHOW TBLPROPERTIES t ('bucket')", st.ShowTblProperties(T, "bucket")),
    ("SHOW FUNCTIONS", st.Other("SHOW FUNCTIONS")),
    ("DESCRIBE t", st.Describe(T)),
    ("DESC TABLE EXTENDED db.t", st.Describe(DB_T, True)),
    ("DESCRIBE t a", st.Describe(T, column="a")),
    ("DESCRIBE FUNCTION abs", st.Other("DESCRIBE FUNCTION abs")),
    ("TRUNCATE TABLE t", st.Truncate(T)),
    ("TRUNCATE TABLE t PARTITION (a = 'x')", st.Truncate(T, {"a": "x"})),
    ("CALL sys.rewrite_file_index('db.t')", st.Call("sys.rewrite_file_index", ("db.t",))),
    (
        "CALL paimon.SYS.compact(`table` => 'db.t', options => map('a', 'b'), n => -1, x => NULL)",
        st.Call("sys.compact", (), {"table": "db.t", "options": {"a": "b"}, "n": -1, "x": None}),
    ),
    ("CALL sys.p('a', b => true)", st.Call("sys.p", ("a",), {"b": True})),
    ("EXPLAIN SELECT 1", st.Explain("SELECT 1")),
    ("EXPLAIN FORMATTED TABLE t", st.Explain("TABLE t", "formatted")),
    ("/* c */ SELECT 1 -- x\n;", st.Query("SELECT 1")),
    ("(SELECT 1) UNION (SELECT 2)", st.Query("(SELECT 1) UNION (SELECT 2)")),
    ("VALUES (1)", st.Query("VALUES (1)")),
    ("FROM t SELECT a", st.Query("FROM t SELECT a")),
    ("SET a = b", st.Other("SET a = b")),
    ("DROP TABLE spark_catalog.db.t", st.Other("DROP TABLE spark_catalog.db.t")),
]


@pytest.mark.parametrize(("text", "expected"), CASES, ids=[c[0] for c in CASES])
def test_statement(text: str, expected: Statement) -> None:
    assert parse_statement(text) == expected


WRONG = [
    ("", "empty"),
    ("-- nothing", "empty"),
    ("SELCT 1", "did you mean SELECT"),
    ("SELECT 1; SELECT 2", "one statement at a time"),
    ("CREATE TABLE t (a INT b STRING)", r"expected ',' or '\)'.*line 1, column 23\n"),
    ("CREATE TABLE t (a INT, a STRING)", "'a' is given twice"),
    ("CREATE TABLE t (a FOO)", "unknown data type 'FOO'"),
    ("CREATE TABLE t (a DECIMAL(39, 2))", "precision of 1 to 38"),
    ("CREATE TABLE t (a ARRAY<INT)", "expected >"),
    ("CREATE TABLE t (a VARCHAR)", "length"),
    ("CREATE TABLE t", "the columns of table"),
    ("CREATE TABLE t (a INT) AS SELECT 1", "leave the column list out"),
    ("CREATE TABLE t (a INT) TBLPROPERTIES ('a' = 'b', 'a' = 'c')", "'a' is given twice"),
    ("CREATE TABLE t (a INT) TBLPROPERTIES ('a')", "a value of property 'a'"),
    ("CREATE TABLE t (a INT) FOO", "expected USING"),
    ("CREATE TABLE (a INT)", "a table name"),
    ("CREATE TABLE a.b.c.d (a INT)", "three parts"),
    ("INSERT INTO t", "expected SELECT"),
    ("INSERT t SELECT 1", "expected INTO"),
    ("INSERT INTO t PARTITION (a = 1) IF NOT EXISTS SELECT 1", "takes no IF NOT EXISTS"),
    ("INSERT OVERWRITE t PARTITION (a) IF NOT EXISTS SELECT 1", "'a' has none"),
    ("INSERT INTO t PARTITION (a = b) SELECT 1", "not a constant"),
    ("TRUNCATE t", "expected TABLE"),
    ("TRUNCATE TABLE t PARTITION (a)", "a value for partition column 'a'"),
    ("CALL sys.p", r"expected \("),
    ("CALL sys.p(a => 1, 2)", "a named argument"),
    ("CALL sys.p(f(x))", "not a constant"),
    ("DROP TABLE t u", "expected the end"),
    ("ALTER TABLE t SET TBLPROPERTIES ('a' = 'b'", r"expected \)"),
    ("SELECT 'x", "cannot read the SQL"),
    ("EXPLAIN", "a query"),
]


@pytest.mark.parametrize(("text", "message"), WRONG, ids=[w[0] for w in WRONG])
def test_wrong_statements_say_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        parse_statement(text)


@pytest.mark.parametrize(
    "text",
    [
        "ALTER TABLE t ADD PARTITION (x = 1) LOCATION '/x'",
        "ALTER TABLE t REPLACE COLUMNS (x INT)",
        "CREATE TABLE t (a INT) LOCATION '/x'",
        "CREATE TABLE t (a INT) PARTITIONED BY (bucket(4, a))",
        "CREATE TABLE t (a INT GENERATED ALWAYS AS (1))",
        "CREATE TABLE t (a INTERVAL)",
        "INSERT INTO t REPLACE USING (a) SELECT 1",
    ],
)
def test_what_is_not_implemented_says_so(text: str) -> None:
    with pytest.raises(UnsupportedFeature):
        parse_statement(text)


def test_scripts_split_outside_quotes_and_comments() -> None:
    script = "select ';'; -- a;b\nselect `;` ;;\n/* ; */ select 3\n"
    assert split_statements(script) == ["select ';'", "-- a;b\nselect `;`", "/* ; */ select 3"]
    assert split_statements(" -- nothing\n;") == []


def test_table_names() -> None:
    assert parse_table_name("db.`a.b`") == TableName("db", "a.b")
    assert parse_table_name("bitlake.db.t") == DB_T
    assert str(TableName("my db", "t`x")) == "`my db`.`t``x`"
    assert parse_table_name(str(TableName("my db", "t`x"))) == TableName("my db", "t`x")
    for wrong in ("", "a.", "a b", "a.b.c.d"):
        with pytest.raises(InvalidRequest):
            parse_table_name(wrong)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ALTER TABLE t CREATE TAG `a-1`", st.AlterTag(T, st.TagChange.CREATE, "a-1")),
        (
            "ALTER TABLE t CREATE TAG IF NOT EXISTS x AS OF VERSION 3 RETAIN 2 HOURS",
            st.AlterTag(T, st.TagChange.CREATE, "x", True, 3, 7_200_000),
        ),
        (
            "ALTER TABLE t CREATE OR REPLACE TAG x RETAIN 1 DAY",
            st.AlterTag(T, st.TagChange.CREATE_OR_REPLACE, "x", retained_ms=86_400_000),
        ),
        ("ALTER TABLE t DELETE TAG IF EXISTS `a,b`", st.AlterTag(T, st.TagChange.DELETE, "a,b", True)),
        ("ALTER TABLE t RENAME TAG a TO b", st.AlterTag(T, st.TagChange.RENAME, "a", new_name="b")),
        (
            "ALTER TABLE t DROP IF EXISTS PARTITION (p = 1), PARTITION (p = NULL)",
            st.DropPartitions(T, ({"p": 1}, {"p": SqlNull.NULL}), True),
        ),
        ("ALTER DATABASE d SET DBPROPERTIES ('a' = 'b')", st.AlterDatabase("d", {"a": "b"})),
        ("DESCRIBE DATABASE EXTENDED paimon.d", st.DescribeDatabase("d", True)),
        ("SHOW TAGS t", st.ShowTags(T)),
        ("SHOW COLUMNS IN t FROM d", st.ShowColumns(TableName("d", "t"))),
        ("SHOW TABLE EXTENDED IN d LIKE 't*' PARTITION (p = 1)", st.ShowTableExtended("t*", "d", {"p": 1})),
        ("REFRESH TABLE t", st.RefreshTable(T)),
        ("USE paimon", st.UseDatabase("paimon", or_catalog=True)),
        ("USE DATABASE paimon", st.UseDatabase("paimon")),
        ("CREATE TABLE t LIKE d.s", st.CreateTableLike(T, TableName("d", "s"))),
    ],
)
def test_ddl_statements(text: str, expected: object) -> None:
    assert parse_statement(text) == expected


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("ALTER TABLE t CREATE TAG x RETAIN 2", "DAYS, HOURS"),
        ("ALTER TABLE t CREATE TAG x AS OF VERSION y", "snapshot's id"),
        ("REPLACE TABLE t LIKE s", "neither LIKE"),
        ("SHOW TABLE EXTENDED IN d", "LIKE"),
    ],
)
def test_ddl_statements_that_are_not_whole(text: str, wanted: str) -> None:
    with pytest.raises(InvalidRequest, match=wanted):
        parse_statement(text)


def test_statements_that_only_spark_reads_are_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    sqlglot.parse("SET spark.paimon.*.db.t.scan.snapshot-id=3", dialect=SparkSql)
    assert not caplog.records
