"""``spark.sql.caseSensitive``: names mean to bitlake what they mean to plain Spark, whatever the setting is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from long import exhaustive, long

import bitlake
from bitlake.errors import AlreadyExists, BitlakeError, InvalidRequest, NotFound
from bitlake.metadata.schema import Names
from bitlake.spark.write.insert_cast import by_name

pytestmark = pytest.mark.spark
SETTING = "spark.sql.caseSensitive"
PRIMARY_KEY = "TBLPROPERTIES ('primary-key' = 'id', 'bucket' = '1')"
ROWS = "(1, 10, 100), (2, 20, 200), (3, NULL, 300), (4, 40, NULL)"
REFUSED = "refused"


@pytest.fixture
def exact(spark: Any) -> Iterator[Any]:
    """The session, with names compared as written."""
    spark.conf.set(SETTING, "true")
    yield spark
    spark.conf.unset(SETTING)


@pytest.fixture
def lake(tmp_path: Any, spark: Any) -> Any:
    return bitlake.connect(str(tmp_path / "wh"), spark=spark)


def answer(sql: Any, text: str) -> Any:
    """The rows of a query in any order, or :data:`REFUSED`."""
    try:
        return sorted((tuple(r) for r in sql(text).collect()), key=repr)
    except BitlakeError:
        return REFUSED
    except Exception as e:
        if type(e).__name__ != "AnalysisException":
            raise
        return REFUSED


def plain(spark: Any, texts: Sequence[str], **views: str) -> list[Any]:
    """Plain Spark's answers over temporary views, which are gone afterwards; the same question is asked once."""
    asked = (spark.conf.get(SETTING, None), *texts, *views.items())
    if asked not in _answers:
        for name, query in views.items():
            spark.sql(query).createOrReplaceTempView(name)
        try:
            _answers[asked] = [answer(spark.sql, text) for text in texts]
        finally:
            for name in views:
                spark.catalog.dropTempView(name)
    return _answers[asked]


_answers: dict[Any, list[Any]] = {}


def twins(lake: Any, options: str = "") -> str:
    """The lake's table ``t`` with columns ``a`` and ``A``; returns the query of the same rows for plain Spark."""
    lake.sql(f"CREATE TABLE t (id INT, a INT, A INT) {options}")
    lake.sql(f"INSERT INTO t VALUES {ROWS}")
    return f"SELECT * FROM VALUES {ROWS} AS v(id, a, A)"


QUERIES = (
    "SELECT * FROM t",
    "SELECT a FROM t",
    "SELECT A FROM t WHERE a = 20",
    "SELECT a FROM t WHERE A = 200",
    "SELECT id FROM t WHERE a = 10 AND A = 100",
    "SELECT id FROM t WHERE a IS NULL",
    "SELECT id FROM t WHERE A IS NULL",
    "SELECT ID FROM t",
    "SELECT id FROM t WHERE ID = 1",
    "SELECT T.id FROM t",
    "SELECT COUNT(*), COUNT(a), COUNT(A), MIN(a), MAX(A) FROM t",
    "SELECT COUNT(*) FROM t WHERE A = 100",
    "SELECT COUNT(*) FROM t WHERE ID = 1",
    "SELECT MAX(Id) FROM t",
    "SELECT A, COUNT(*) FROM t GROUP BY A",
    "SELECT DISTINCT a FROM t",
    "SELECT a AS A, A AS a FROM t ORDER BY A DESC LIMIT 2",
    "SELECT * FROM t ORDER BY A DESC LIMIT 2",
    "SELECT id AS n FROM t ORDER BY N LIMIT 2",
    "SELECT id FROM (SELECT id, a AS A FROM t) WHERE A = 10",
    "SELECT id FROM (SELECT id, a AS b FROM t) WHERE B = 10",
    "SELECT x.id FROM t AS x JOIN t AS X ON x.a = X.A / 10 WHERE X.A = 100",
    "SELECT id, x.a FROM t AS x JOIN (SELECT id, a AS z FROM t) AS y USING (id) WHERE x.A = 200",
    "SELECT x.id FROM t AS x WHERE EXISTS (SELECT 1 FROM t AS X WHERE X.a = 10 AND x.A = 200)",
    "SELECT * FROM (SELECT 100 AS q, 1 AS B) AS v WHERE EXISTS (SELECT 1 FROM (SELECT a AS b FROM t) WHERE B = 1)",
    "WITH T AS (SELECT 7 AS q), U AS (SELECT a FROM t WHERE A = 100) SELECT * FROM T JOIN U",
    "WITH T AS (SELECT 7 AS q) SELECT q FROM t",
    "SELECT t.A FROM t WHERE t.a = 10",
)


@pytest.mark.parametrize(("options", "step"), [exhaustive("", 1), (PRIMARY_KEY, 3), long(PRIMARY_KEY, 1)])
def test_queries_tell_columns_apart_that_differ_in_case(lake: Any, exact: Any, options: str, step: int) -> None:
    """``step``: of the queries, every how many-th is asked."""
    wanted = plain(exact, QUERIES, t=twins(lake, options))
    assert REFUSED in wanted and len(QUERIES) > 2 * wanted.count(REFUSED)
    found = {q: answer(lake.sql, q) for q in QUERIES[::step]}
    assert found == {q: w for q, w in zip(QUERIES, wanted, strict=True) if q in found}


@pytest.mark.parametrize("setting", ["true", exhaustive("false")])
def test_queries_of_other_tables(lake: Any, spark: Any, setting: str) -> None:
    """A name in another case than the column's: Spark's answer or its refusal, with either setting."""
    lake.sql("CREATE TABLE t (id INT, a INT, s STRUCT<x: INT>)")
    lake.sql("INSERT INTO t VALUES (1, 10, named_struct('x', 5)), (2, 20, NULL)")
    lake.sql("CREATE TABLE u (id INT, A INT)")
    lake.sql("INSERT INTO u VALUES (1, 20), (2, 30)")
    texts = [
        "SELECT A FROM t",
        "SELECT s.X FROM t",
        "SELECT id FROM t WHERE A = 10",
        "SELECT P.id FROM t AS p",
        "SELECT COUNT(A) FROM t",
        "SELECT COUNT(*) FROM T",
        "SELECT A, COUNT(*) FROM t GROUP BY a",
        "SELECT id FROM t ORDER BY ID LIMIT 1",
        "WITH C AS (SELECT id FROM t) SELECT * FROM c",
        # The inner A is u's where names are folded, and t's own column is a.
        "SELECT t.id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE A = 10)",
        "SELECT u.id FROM u WHERE EXISTS (SELECT 1 FROM t WHERE A = 20)",
        "SELECT u.id FROM u WHERE EXISTS (SELECT 1 FROM (SELECT a FROM t) WHERE A = 20)",
        "SELECT * FROM t JOIN u ON t.id = u.id WHERE A = 20",
        "SELECT * FROM t NATURAL JOIN u",
    ]
    views = {
        "t": "SELECT * FROM VALUES (1, 10, named_struct('x', 5)), (2, 20, NULL) AS v(id, a, s)",
        "u": "SELECT * FROM VALUES (1, 20), (2, 30) AS v(id, A)",
    }
    spark.conf.set(SETTING, setting)
    try:
        wanted = plain(spark, texts, **views)
        assert dict(zip(texts, (answer(lake.sql, q) for q in texts), strict=True)) == dict(
            zip(texts, wanted, strict=True)
        )
    finally:
        spark.conf.unset(SETTING)


CHANGES = (
    ("UPDATE t SET a = A + 1 WHERE A > 100", "SELECT id, CASE WHEN A > 100 THEN A + 1 ELSE a END, A FROM t"),
    ("UPDATE t SET A = 0, a = 1 WHERE a = 20", "SELECT id, IF(a <=> 20, 1, a), IF(a <=> 20, 0, A) FROM t"),
    ("UPDATE t SET t.A = a WHERE rand() < 2 AND A IS NULL", "SELECT id, a, IF(A IS NULL, a, A) FROM t"),
    ("DELETE FROM t WHERE A = 100", "SELECT * FROM t WHERE NOT (A <=> 100)"),
    ("DELETE FROM t WHERE a = 100", "SELECT * FROM t"),
    ("DELETE FROM t WHERE a + 0 = A / 10", "SELECT * FROM t WHERE NOT ((a + 0) <=> (A / 10))"),
    ("INSERT INTO t (id, A, a) VALUES (9, 1, 2)", "SELECT * FROM t UNION ALL SELECT 9, 2, 1"),
    ("INSERT INTO t BY NAME SELECT 1 AS A, 2 AS a, 9 AS id", "SELECT * FROM t UNION ALL SELECT 9, 2, 1"),
    ("INSERT INTO t (id, A) VALUES (9, 1)", "SELECT * FROM t UNION ALL SELECT 9, NULL, 1"),
    (
        "MERGE INTO t USING (SELECT 100 AS A, 5 AS a, 1 AS id) AS s "
        "ON t.id = s.id AND t.A = s.A WHEN MATCHED THEN UPDATE SET *",
        "SELECT id, IF(id = 1, 5, a), A FROM t",
    ),
    (
        "MERGE INTO t USING (SELECT 20 AS k, 7 AS v UNION ALL SELECT 50, 8) AS s ON t.a = s.k "
        "WHEN MATCHED THEN UPDATE SET A = v WHEN NOT MATCHED THEN INSERT (id, A, a) VALUES (k, v, k)",
        "SELECT id, a, IF(a <=> 20, 7, A) FROM t UNION ALL SELECT 50, 50, 8",
    ),
    (
        "MERGE INTO t USING (SELECT 200 AS A) AS s ON t.A = s.A WHEN MATCHED AND t.a = 20 THEN DELETE",
        "SELECT * FROM t WHERE NOT (A <=> 200)",
    ),
)


@pytest.mark.parametrize(("options", "step"), [exhaustive("", 1), ("", 3), (PRIMARY_KEY, 2), long(PRIMARY_KEY, 1)])
def test_statements_change_the_column_that_they_name(lake: Any, exact: Any, options: str, step: int) -> None:
    """``step``: of the statements, every how many-th is executed."""
    query = twins(lake, options)
    wanted = plain(exact, [text for _, text in CHANGES], t=query)
    for (statement, _), rows in list(zip(CHANGES, wanted, strict=True))[::step]:
        lake.sql(f"INSERT OVERWRITE t VALUES {ROWS}")
        lake.sql(statement)
        assert rows == answer(lake.sql, "SELECT * FROM t"), statement


WRONG = (
    "INSERT INTO t (ID, a, p, s) VALUES (1, 2, 3, named_struct('x', 1))",
    "INSERT INTO t BY NAME SELECT 1 AS ID, 2 AS a, 3 AS p, named_struct('x', 1) AS s",
    "INSERT INTO t BY NAME SELECT 1 AS id, 2 AS a, 3 AS p, named_struct('X', 1) AS s",
    "INSERT INTO t PARTITION (P = 3) SELECT 1, 2, named_struct('x', 1)",
    "INSERT INTO T VALUES (1, 2, 3, named_struct('x', 1))",
    "UPDATE t SET A = 1",
    "UPDATE t SET a = A",
    "UPDATE t SET s.X = 1",
    "UPDATE t SET a = 1 WHERE A = 2",
    "UPDATE t SET T.a = 1",
    "UPDATE T SET a = 1",
    "DELETE FROM t WHERE A = 2",
    "DELETE FROM t WHERE T.a = 2",
    "DELETE FROM t AS x WHERE X.a = 2",
    "DELETE FROM T",
    "MERGE INTO t USING (SELECT 1 AS k) AS s ON t.ID = s.k WHEN MATCHED THEN DELETE",
    "MERGE INTO t USING (SELECT 1 AS k) AS s ON t.id = S.k WHEN MATCHED THEN DELETE",
    "MERGE INTO t USING (SELECT 1 AS k) AS q ON t.id = q.k WHEN MATCHED THEN UPDATE SET A = 1",
    "MERGE INTO t USING (SELECT 9 AS k) AS q ON t.id = q.k WHEN NOT MATCHED THEN INSERT (ID) VALUES (k)",
    "MERGE INTO t USING (SELECT 1 AS ID, 2 AS a, 3 AS p, named_struct('x', 1) AS s) AS q ON t.id = q.ID "
    "WHEN MATCHED THEN UPDATE SET *",
    "ALTER TABLE t ALTER COLUMN A COMMENT 'x'",
    "ALTER TABLE t RENAME COLUMN A TO b",
    "ALTER TABLE t DROP COLUMN A",
    "ALTER TABLE t ALTER COLUMN s.X COMMENT 'x'",
    "ALTER TABLE t DROP PARTITION (P = 3)",
    "ALTER TABLE T ADD COLUMNS (z INT)",
    "SHOW PARTITIONS t PARTITION (P = 3)",
    "DESCRIBE t ID",
    "ANALYZE TABLE t COMPUTE STATISTICS FOR COLUMNS ID",
    "TRUNCATE TABLE t PARTITION (P = 3)",
    "DROP TABLE T",
)


@pytest.mark.exhaustive
@pytest.mark.parametrize("statement", WRONG)
def test_wrong_case_is_refused_only_with_the_setting(lake: Any, spark: Any, statement: str) -> None:
    lake.sql("CREATE TABLE t (id INT, a INT, p INT, s STRUCT<x: INT>) PARTITIONED BY (p)")
    lake.sql("INSERT INTO t VALUES (1, 2, 3, named_struct('x', 1))")
    before = lake.table("t").to_arrow()
    spark.conf.set(SETTING, "true")
    try:
        with pytest.raises((NotFound, InvalidRequest)):
            lake.sql(statement)
        assert lake.table("t").to_arrow() == before
    finally:
        spark.conf.unset(SETTING)
    lake.sql(statement)


def test_alter_tells_columns_apart(lake: Any, exact: Any) -> None:
    lake.sql("CREATE TABLE t (id INT, a INT)")
    lake.sql("INSERT INTO t VALUES (1, 2)")
    lake.sql("ALTER TABLE t ADD COLUMNS (A STRING)")
    lake.sql("INSERT INTO t VALUES (3, 4, 'five')")
    assert answer(lake.sql, "SELECT a, A FROM t") == [(2, None), (4, "five")]
    with pytest.raises(AlreadyExists, match="'A' already exists"):
        lake.sql("ALTER TABLE t ADD COLUMNS (A INT)")
    lake.sql("ALTER TABLE t ALTER COLUMN a TYPE BIGINT")
    lake.sql("ALTER TABLE t RENAME COLUMN A TO ID")
    assert answer(lake.sql, "SELECT id, ID FROM t WHERE ID = 'five'") == [(3, "five")]
    lake.sql("ALTER TABLE t DROP COLUMN ID")
    assert lake.table("t").schema.field_names == ("id", "a")


def test_keys_and_partitions_that_differ_in_case(lake: Any, exact: Any) -> None:
    lake.sql(
        "CREATE TABLE t (k INT, K INT, p INT, P INT, v INT) PARTITIONED BY (p, P) "
        "TBLPROPERTIES ('primary-key' = 'k,K,p,P', 'bucket' = '2')"
    )
    lake.sql("INSERT INTO t VALUES (1, 2, 3, 4, 5), (1, 1, 4, 3, 6)")
    lake.sql("INSERT INTO t VALUES (1, 2, 3, 4, 7)")
    assert answer(lake.sql, "SELECT v FROM t WHERE P = 4") == [(7,)]
    assert answer(lake.sql, "SELECT v FROM t WHERE p = 4 AND K = 1") == [(6,)]
    assert answer(lake.sql, "SHOW PARTITIONS t PARTITION (P = 3)") == [("p=4/P=3",)]
    lake.sql("INSERT OVERWRITE t PARTITION (P = 3, p = 4) SELECT 8, 9, 10")
    lake.sql("ALTER TABLE t DROP PARTITION (p = 3, P = 4)")
    assert answer(lake.sql, "SELECT * FROM t") == [(8, 9, 4, 3, 10)]


def test_columns_twice(lake: Any, spark: Any) -> None:
    with pytest.raises(InvalidRequest, match="appears twice"):
        lake.sql("CREATE TABLE t (a INT, A INT)")
    with pytest.raises(InvalidRequest, match="'s': its struct has two members named 'A'"):
        lake.sql("CREATE TABLE t (s STRUCT<a: INT, A: INT>)")
    with pytest.raises(InvalidRequest, match="'s': its struct has two members named 'a'"):
        lake.sql("CREATE TABLE t AS SELECT named_struct('a', 1, 'a', 2) AS s")
    with pytest.raises(InvalidRequest, match="'P' is named twice"):
        lake.sql("CREATE TABLE t (a INT, p INT) PARTITIONED BY (p, P)")
    lake.sql("CREATE TABLE t (a INT, p INT) PARTITIONED BY (p)")
    with pytest.raises(InvalidRequest, match="given twice"):
        lake.sql("INSERT INTO t PARTITION (p = 1, P = 2) SELECT 1")
    spark.conf.set(SETTING, "true")
    try:
        with pytest.raises(InvalidRequest, match="twice"):
            lake.sql("CREATE TABLE u (a INT, a INT)")
        lake.sql("CREATE TABLE v (s STRUCT<a: INT, A: INT>)")
        with pytest.raises(InvalidRequest, match="'P' is not among"):
            lake.sql("CREATE TABLE u (a INT, p INT) PARTITIONED BY (P)")
    finally:
        spark.conf.unset(SETTING)


def test_tables_that_differ_in_case(lake: Any, exact: Any) -> None:
    lake.sql("CREATE TABLE t (v INT)")
    with pytest.raises(NotFound):
        lake.sql("SELECT * FROM T")
    lake.sql("CREATE TABLE T (v INT)")
    lake.sql("INSERT INTO t VALUES (1)")
    lake.sql("INSERT INTO T VALUES (2)")
    assert answer(lake.sql, "SELECT v FROM t") == [(1,)]
    assert answer(lake.sql, "SELECT T.v, t.v FROM T JOIN t ON T.v = t.v + 1") == [(2, 1)]
    assert answer(lake.sql, "SELECT default.T.v, default.t.v FROM T CROSS JOIN t") == [(2, 1)]
    assert answer(lake.sql, "SELECT v FROM T VERSION AS OF 1") == [(2,)]
    assert answer(lake.sql, "SELECT * FROM T WHERE v IN (SELECT v + 1 FROM t)") == [(2,)]
    lake.sql("UPDATE T SET v = 3")
    lake.sql("MERGE INTO t USING T ON t.v = T.v WHEN NOT MATCHED THEN INSERT *")
    assert answer(lake.sql, "SELECT * FROM t") == [(1,), (3,)]
    assert answer(lake.sql, "SELECT COUNT(*) FROM `T$snapshots`") == [(2,)]
    lake.sql("DROP TABLE T")
    with pytest.raises(NotFound):
        lake.sql("SELECT * FROM `T$snapshots`")
    assert lake.tables() == ["t"]


def test_a_session_that_folds_refuses_what_it_cannot_tell_apart(lake: Any, spark: Any) -> None:
    spark.conf.set(SETTING, "true")
    try:
        twins(lake)
    finally:
        spark.conf.unset(SETTING)
    before = lake.table("t").scan().to_arrow()
    for text in (
        "INSERT INTO t VALUES (7, 8, 9)",
        "UPDATE t SET a = 1",
        "DELETE FROM t WHERE a = 10",
        "MERGE INTO t USING (SELECT 1 AS i) AS s ON id = i WHEN MATCHED THEN UPDATE SET a = 3",
        "SELECT a FROM t",
        "SELECT id FROM t WHERE A = 100",
        "ALTER TABLE t ADD COLUMNS (ID INT)",
    ):
        with pytest.raises((InvalidRequest, AlreadyExists)):
            lake.sql(text)
    with pytest.raises(InvalidRequest, match="columns 'a' and 'A', which this session cannot tell apart"):
        by_name("t", spark.sql("SELECT 1 AS a"), lake.table("t").schema.fields, Names.FOLDED)
    assert lake.table("t").scan().to_arrow() == before
    assert answer(lake.sql, "SELECT id FROM t WHERE id > 3") == [(4,)]


def test_in_process_an_exact_name_comes_first(lake: Any, exact: Any) -> None:
    twins(lake)
    table = lake.table("t")
    assert table.scan(where="A = 100").to_arrow().column("a").to_pylist() == [10]
    assert table.scan(where="a = 10").to_arrow().column("A").to_pylist() == [100]
    assert table.scan(where="ID = 2").to_arrow().num_rows == 1
    table.append(pa.table({"A": [500], "a": [50], "ID": [5]}))
    assert answer(lake.sql, "SELECT * FROM t WHERE id = 5") == [(5, 50, 500)]


def test_dataframes_are_written_by_exact_names(lake: Any, exact: Any) -> None:
    twins(lake)
    lake.write(exact.sql("SELECT 5 AS A, 6 AS a, 7 AS id"), "t")
    assert answer(lake.sql, "SELECT * FROM t WHERE id = 7") == [(7, 6, 5)]
    with pytest.raises(InvalidRequest, match="no column 'ID'"):
        lake.write(exact.sql("SELECT 5 AS ID"), "t")
    lake.write(exact.sql("SELECT 1 AS b, 2 AS B"), "u")
    assert answer(lake.sql, "SELECT B FROM u WHERE b = 1") == [(2,)]


def test_schemas_are_merged_by_exact_names(lake: Any, exact: Any) -> None:
    lake.sql("CREATE TABLE t (id INT, a INT) TBLPROPERTIES ('write.merge-schema' = 'true')")
    lake.sql("INSERT INTO t BY NAME SELECT 1 AS id, 'x' AS A")
    assert answer(lake.sql, "SELECT id, a, A FROM t") == [(1, None, "x")]


@pytest.mark.parametrize("path", ["spark", "workers", "driver"])
def test_every_way_to_read_tells_columns_apart(lake: Any, exact: Any, path: str) -> None:
    twins(lake, f"TBLPROPERTIES ('read.spark-path' = '{path}')")
    assert answer(lake.sql, "SELECT A FROM t WHERE a > 10") == [(200,), (None,)]
    assert answer(lake.sql, "SELECT id, a FROM t WHERE A = 300") == [(3, None)]
