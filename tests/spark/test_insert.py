"""INSERT in the forms of Spark and Paimon, against plain Spark over a Parquet table of the same columns.

Columns of PARTITION went where the clause named them and not where the table has them; a default took the type of the
query's column; and several forms of Spark were refused.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from answers import rows_of
from long import exhaustive, long

import bitlake
from bitlake.errors import BitlakeError, InvalidRequest, UnsupportedFeature

pytestmark = pytest.mark.spark

PLAIN = "insert_plain"


@pytest.fixture
def plain(spark: Any, lake: bitlake.Lake, tmp_path: Path) -> Iterator[Any]:
    """Runs a statement on lake tables and on Parquet tables of Spark's own, in which ``$`` is the name's beginning."""
    made: list[str] = []

    def both(text: str) -> None:
        if text.startswith("CREATE"):
            name = text.split("$")[1].split()[0]
            made.append(f"spark_catalog.default.{PLAIN}_{name}")
            spark.sql(f"DROP TABLE IF EXISTS {made[-1]}")
            spark.sql(text.replace("$", f"{PLAIN}_").replace(")", f") USING parquet LOCATION '{tmp_path / name}'", 1))
        else:
            spark.sql(text.replace("$", f"{PLAIN}_"))
        lake.sql(text.replace("$", ""))

    yield both
    for name in made:
        spark.sql(f"DROP TABLE {name}")


def rows(lake: bitlake.Lake, table: str) -> list[Any]:
    return sorted(rows_of(lake.sql(f"SELECT * FROM {table}")), key=repr)


def same(lake: bitlake.Lake, spark: Any, table: str = "t") -> list[Any]:
    """The rows of a table, which Spark's own has as well."""
    own = sorted((list(r) for r in spark.sql(f"SELECT * FROM {PLAIN}_{table}").collect()), key=repr)
    found = rows(lake, table)
    assert found == own
    return found


PARTITIONED = (
    "INSERT INTO $t PARTITION (y, x) SELECT 1, 'a', 10, 20",
    "INSERT INTO $t PARTITION (x = 7, y) SELECT 2, 'a', 11",
    "INSERT INTO $t PARTITION (y = 8, x = '7') SELECT 2, 'b'",
    "INSERT INTO $t PARTITION (y, x) (b, a, y, x) SELECT 'l', 4, 3, 4",
    "INSERT INTO $t PARTITION (x = NULL, y = 1) SELECT 2, 'null'",
    "INSERT OVERWRITE $t PARTITION (x = 7, y) SELECT 7, 'q', 3",
    "INSERT OVERWRITE $t PARTITION (x = 7, y = 3) IF NOT EXISTS SELECT 8, 'exists'",
    "INSERT OVERWRITE $t PARTITION (x = 7, y = 4) IF NOT EXISTS SELECT 9, 'new'",
    "INSERT OVERWRITE $t PARTITION (y, x) SELECT 1, 'all', 30, 40",
)


@pytest.mark.exhaustive
def test_partition_columns_go_where_the_table_has_them(lake: bitlake.Lake, spark: Any, plain: Any) -> None:
    plain("CREATE TABLE $t (a INT, b STRING, x INT, y INT) PARTITIONED BY (x, y)")
    for text in PARTITIONED:
        plain(text)
        found = same(lake, spark)
    assert found == [[1, "all", 30, 40]]


@pytest.mark.parametrize("key", ["", exhaustive("TBLPROPERTIES ('primary-key' = 'x,a,y', 'bucket' = '1')")])
def test_partition_columns_that_are_not_the_last(lake: bitlake.Lake, key: str) -> None:
    # Paimon and Spark's tables of other sources take a query's columns in the table's order, wherever partitions are.
    lake.sql(f"CREATE TABLE t (x INT, a INT, y INT, b STRING) PARTITIONED BY (x, y) {key}")
    lake.sql("INSERT INTO t PARTITION (y, x) SELECT 1, 2, 3, 'dynamic'")
    lake.sql("INSERT INTO t PARTITION (x = 4, y) SELECT 5, 6, 'mixed'")
    lake.sql("INSERT INTO t PARTITION (y = 9, x = 8) SELECT 7, 'static'")
    lake.sql("INSERT INTO t PARTITION (y) (b, y, a, x) SELECT 'listed', 3, 2, 10")
    assert rows(lake, "t") == [[1, 2, 3, "dynamic"], [10, 2, 3, "listed"], [4, 5, 6, "mixed"], [8, 7, 9, "static"]]
    lake.sql("INSERT OVERWRITE t PARTITION (x = 4, y) SELECT 0, 6, 'again'")
    assert [4, 0, 6, "again"] in rows(lake, "t") and len(rows(lake, "t")) == 4


@pytest.mark.exhaustive
def test_dynamic_overwrites(lake: bitlake.Lake, spark: Any, plain: Any) -> None:
    plain("CREATE TABLE $t (a INT, x INT, y INT) PARTITIONED BY (x, y)")
    plain("INSERT INTO $t VALUES (5, 1, 2), (6, 1, 3), (7, 2, 3)")
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        # Of a partition whose columns all have values, nothing is dynamic: it is emptied.
        plain("INSERT OVERWRITE $t PARTITION (x = 1, y = 2) SELECT 7 WHERE false")
        assert len(same(lake, spark)) == 2
        plain("INSERT OVERWRITE $t PARTITION (x = 1, y) SELECT 8, 4")
        plain("INSERT OVERWRITE $t SELECT 9, 2, 3")
        assert same(lake, spark) == [[6, 1, 3], [8, 1, 4], [9, 2, 3]]
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")


@pytest.mark.exhaustive
def test_defaults(lake: bitlake.Lake, spark: Any, plain: Any) -> None:
    plain("CREATE TABLE $s (k INT, v STRING)")
    plain("INSERT INTO $s VALUES (1, 'a'), (2, 'b')")
    plain("CREATE TABLE $t (a INT, b STRING DEFAULT 'dd', p INT DEFAULT 7)")
    plain("INSERT INTO $t SELECT k, DEFAULT, DEFAULT FROM $s WHERE k = 1")
    plain("INSERT INTO $t SELECT *, default FROM $s WHERE k = 2")
    plain("INSERT INTO $t VALUES (9, DEFAULT, 3), (10, 'x', DEFAULT)")
    plain("INSERT INTO $t (p, a) VALUES (DEFAULT, 11), (4, DEFAULT)")
    plain("WITH c AS (SELECT 3 k) INSERT INTO $t (b, a) WITH d AS (SELECT k FROM c) SELECT 'w', k FROM d")
    plain("FROM $s INSERT INTO $t SELECT k + 100, DEFAULT, k WHERE k = 2")
    assert len(same(lake, spark)) == 8


def test_a_default_keeps_its_columns_type(lake: bitlake.Lake) -> None:
    """The default was cast to the type of the query's column: 'dd' to INT, and the write failed."""
    lake.sql("CREATE TABLE t (a INT, b STRING DEFAULT 'dd', c DECIMAL(5, 2) DEFAULT 1.25, d DATE DEFAULT '2024-02-29')")
    day = dt.date(2024, 2, 29)
    lake.sql("INSERT INTO t SELECT 1, IF(id = 0, 5, NULL), IF(id = 0, 7, NULL), NULL FROM range(2)")
    found = [[r[0], r[1], str(r[2]), r[3]] for r in rows(lake, "t")]
    assert found == [[1, "5", "7.00", day], [1, "dd", "1.25", day]]
    lake.sql("UPDATE t SET b = NULL, c = DEFAULT WHERE b = '5'")
    lake.sql("UPDATE t SET b = IF(a = 1, NULL, 6), a = 2")
    assert [[r[0], r[1], str(r[2])] for r in rows(lake, "t")] == [[2, "dd", "1.25"], [2, "dd", "1.25"]]
    lake.sql(
        "MERGE INTO t USING (SELECT 3 a, CAST(NULL AS INT) b) s ON t.a = s.a "
        "WHEN NOT MATCHED THEN INSERT (a, b, c) VALUES (s.a, s.b, DEFAULT)"
    )
    assert [[r[0], r[1], str(r[2]), r[3]] for r in rows(lake, "t")][-1] == [3, "dd", "1.25", day]


def test_several_inserts_of_one_source(lake: bitlake.Lake, spark: Any, plain: Any) -> None:
    plain("CREATE TABLE $s (k INT, v STRING)")
    plain("INSERT INTO $s VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    plain("CREATE TABLE $t (a INT, p INT) PARTITIONED BY (p)")
    plain("CREATE TABLE $u (a INT, b STRING)")
    plain("FROM $s INSERT INTO $t PARTITION (p = 1) SELECT k INSERT OVERWRITE $u SELECT k * 10, upper(v) WHERE k > 1")
    plain("FROM (SELECT * FROM $s WHERE k = 1) q INSERT INTO $u SELECT q.k, q.v INSERT INTO $u (b, a) SELECT v, k")
    plain("WITH c AS (SELECT 5 k) FROM c INSERT INTO $u SELECT k, 'x' INSERT INTO $t SELECT k, 2")
    assert len(same(lake, spark, "t")) == 4 and len(same(lake, spark, "u")) == 5
    counts = rows_of(lake.sql("FROM s INSERT INTO t SELECT k, 3 INSERT INTO u SELECT k, v WHERE k > 2"))
    assert counts == [[3, 3], [1, 1]]


def test_replace_where(lake: bitlake.Lake) -> None:
    lake.sql("CREATE TABLE t (a INT, p INT, q STRING) PARTITIONED BY (p, q)")
    values = "VALUES (1, 1, 'x'), (2, 1, 'y'), (3, 2, 'x'), (4, NULL, 'x')"
    lake.sql(f"INSERT INTO t {values}")
    lake.sql("INSERT INTO t REPLACE WHERE p = 1 SELECT 10, 1, 'z'")
    assert rows(lake, "t") == [[10, 1, "z"], [3, 2, "x"], [4, None, "x"]]
    lake.sql("INSERT INTO t BY NAME REPLACE WHERE p IS NULL AND q = 'x' SELECT 'x' AS q, 11 AS a")
    assert rows(lake, "t") == [[10, 1, "z"], [11, None, "x"], [3, 2, "x"]]
    with pytest.raises(InvalidRequest, match="not one of those that REPLACE WHERE p = 2 replaces"):
        lake.sql("INSERT INTO t REPLACE WHERE p = 2 SELECT 10, 3, 'z'")
    for condition in ("p > 1", "p IS NOT NULL", "a = 1", "p = 1 OR q = 'x'", "p = 1 AND p = 2"):
        with pytest.raises(UnsupportedFeature, match="only equalities of partition columns"):
            lake.sql(f"INSERT INTO t REPLACE WHERE {condition} SELECT 10, 1, 'z'")
    assert len(rows(lake, "t")) == 3
    lake.sql("INSERT INTO t REPLACE WHERE true SELECT 1, 1, 'only'")
    assert rows(lake, "t") == [[1, 1, "only"]]


def test_schema_evolution(lake: bitlake.Lake) -> None:
    lake.sql("CREATE TABLE t (a INT, b STRING)")
    lake.sql("INSERT WITH SCHEMA EVOLUTION INTO t SELECT 1 AS x, 'b' AS y, 3 AS c")
    lake.sql("INSERT INTO t WITH ('write.merge-schema' = 'true') BY NAME SELECT 4 AS d, 2 AS a")
    with pytest.raises(UnsupportedFeature, match="and not 'file.format'"):
        lake.sql("INSERT INTO t WITH ('file.format' = 'orc') SELECT 1")
    lake.sql(
        "MERGE WITH SCHEMA EVOLUTION INTO t USING (SELECT 1 a, 'm' b, true e) s ON t.a = s.a "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    assert lake.table("t").schema.field_names == ("a", "b", "c", "d", "e")
    assert rows(lake, "t") == [[1, "m", 3, None, True], [2, None, None, 4, None]]


CASTS = (
    ("INT", "'12'", 12, "'abc'"),
    ("INT", "true", 1, "3000000000"),
    ("DATE", "'2024-02-29'", dt.date(2024, 2, 29), "'2024-02-30'"),
    ("DATE", "TIMESTAMP '2024-02-29 23:00:00'", dt.date(2024, 2, 29), "'soon'"),
    ("TIMESTAMP_NTZ", "'2024-02-29 01:02:03'", dt.datetime(2024, 2, 29, 1, 2, 3), "'29.2.2024'"),
    ("BOOLEAN", "'true'", True, "'maybe'"),
    ("BOOLEAN", "1", True, "'2'"),
    ("DOUBLE", "'1e3'", 1000.0, "'1,5'"),
    ("BINARY", "'abc'", bytearray(b"abc"), None),
    ("STRING", "X'6162'", "ab", None),
    ("ARRAY<INT>", "array('1', NULL)", [1, None], "array('1', 'x')"),
    ("MAP<INT, DATE>", "map('1', '2024-02-29')", {1: dt.date(2024, 2, 29)}, "map('1', 'x')"),
    ("STRUCT<a: INT, b: STRING>", "named_struct('a', '1', 'b', 2)", (1, "2"), "named_struct('a', 'x', 'b', 2)"),
)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("ansi", "step"), [("true", 1), ("false", 4), long("false", 1)])
def test_values_are_cast_as_paimon_casts_them(lake: bitlake.Lake, spark: Any, ansi: str, step: int) -> None:
    """``step``: of the values that are refused, every how many-th is written."""
    lake.sql(f"CREATE TABLE t ({', '.join(f'c{n} {kind}' for n, (kind, *_) in enumerate(CASTS))})")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        lake.sql(f"INSERT INTO t SELECT {', '.join(value for _, value, *_ in CASTS)}")
        for number, (*_, bad) in list(enumerate(CASTS))[::step]:
            if bad is not None:
                with pytest.raises(InvalidRequest, match=f"column 'c{number}.*does not fit"):
                    lake.sql(f"INSERT INTO t (c{number}) SELECT {bad}")
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    assert [tuple(r) for r in lake.sql("SELECT * FROM t").collect()] == [tuple(stored for _, _, stored, _ in CASTS)]
    for number, value in ((2, "12"), (0, "DATE '2024-01-01'"), (9, "array(1)"), (8, "1")):
        with pytest.raises(InvalidRequest, match="for which SQL has no cast"):
            lake.sql(f"INSERT INTO t (c{number}) SELECT {value}")


NESTED = "i INT, s STRUCT<a: INT, b: INT>, r ARRAY<STRUCT<a: INT, b: INT>>, m MAP<STRING, STRUCT<p: INT, q: INT>>"


@pytest.mark.exhaustive
@pytest.mark.parametrize("key", ["", exhaustive("TBLPROPERTIES ('primary-key' = 'i', 'bucket' = '1')")])
def test_members_of_structs_are_assigned_by_name(lake: bitlake.Lake, key: str) -> None:
    """UPDATE and MERGE assigned members by position: a and b were exchanged, in arrays and maps too."""
    lake.sql(f"CREATE TABLE t ({NESTED}) {key}")
    lake.sql("INSERT INTO t (i) VALUES (1), (2)")

    def values(n: int) -> list[str]:
        pair = f"named_struct('b', {n}L, 'A', '{n - 1}')"
        return [pair, f"array({pair}, NULL)", f"map('k', named_struct('q', {n}, 'p', {n - 1}))"]

    def source(n: int) -> str:
        return ", ".join(f"{value} {name}" for value, name in zip(values(n), "srm", strict=True))

    def stored(n: int) -> list[Any]:
        return [[n - 1, n], [[n - 1, n], None], {"$map": [["k", [n - 1, n]]]}]

    s, r, m = values(20)
    lake.sql(f"UPDATE t SET s = {s}, r = {r}, m = {m} WHERE i = 1")
    assert rows(lake, "t") == [[1, *stored(20)], [2, None, None, None]]
    lake.sql(
        f"MERGE INTO t USING (SELECT 1 i, {source(30)}) q ON t.i = q.i WHEN MATCHED THEN UPDATE SET s = q.s, m = q.m"
    )
    assert rows(lake, "t")[0] == [1, stored(30)[0], stored(20)[1], stored(30)[2]]
    lake.sql(
        f"MERGE INTO t USING (SELECT explode(array(2, 3)) i, {source(40)}) q ON t.i = q.i "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT (i, m, r) VALUES (q.i, q.m, q.r)"
    )
    assert rows(lake, "t")[1:] == [[2, *stored(40)], [3, None, *stored(40)[1:]]]
    for statement in (
        "UPDATE t SET s = struct(1, 2)",
        "UPDATE t SET r = array(named_struct('a', 1, 'b', 2, 'c', 3))",
        "MERGE INTO t USING (SELECT 1 i, named_struct('a', 1) s) q ON t.i = q.i WHEN MATCHED THEN UPDATE SET s = q.s",
    ):
        with pytest.raises(InvalidRequest, match="no member"):
            lake.sql(statement)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("door", "key"), [long("path", ""), ("uri", ", 'primary-key' = 'id,x,y', 'bucket' = '2'")])
def test_a_table_of_many_files(spark: Any, tmp_path: Path, door: str, key: str) -> None:
    """INSERT, UPDATE and MERGE over several files and more than 1 MB, as Spark reads and writes them itself."""
    folder = tmp_path / "lake"
    lake = bitlake.connect(str(folder) if door == "path" else folder.as_uri(), spark=spark)
    lake.sql(
        f"CREATE TABLE t (y INT, id BIGINT, s STRUCT<a: BIGINT, b: STRING>, x INT DEFAULT 7) PARTITIONED BY (x, y) "
        f"TBLPROPERTIES ('target-file-size' = '1 mb'{key})"
    )
    lake.sql(
        "INSERT INTO t PARTITION (x, y) SELECT CAST(id % 2 AS STRING), id, "
        "named_struct('a', id, 'b', sha2(CAST(id AS STRING), 256)), IF(id % 3 = 0, NULL, '1') FROM range(40000)"
    )
    files = lake.sql("SELECT count(*), sum(file_size_in_bytes) FROM `t$files`").collect()[0]
    assert files[0] >= 4 and files[1] > 1 << 20
    lake.sql("UPDATE t SET s = named_struct('b', 'u', 'a', -id) WHERE id % 10 = 0")
    lake.sql(
        "MERGE INTO t USING (SELECT id, named_struct('b', 'm', 'a', id) s, 1 x, '1' y FROM range(39999, 40011, 2)) q "
        "ON t.id = q.id WHEN MATCHED THEN UPDATE SET s = q.s WHEN NOT MATCHED THEN INSERT *"
    )
    found = lake.sql(
        "SELECT count(*), count_if(s.b = 'u' AND s.a = -id), count_if(s.b = 'm' AND s.a = id), "
        "count_if(y = id % 2), count_if(x = 7 AND id % 3 = 0), count_if(length(s.b) = 64 AND s.a = id) FROM t"
    ).collect()
    assert list(found[0]) == [40005, 4000, 6, 40005, 13334, 35999]


def test_a_bad_value_leaves_nothing(lake: bitlake.Lake) -> None:
    lake.sql("CREATE TABLE t (i INT)")
    before = lake.table("t").snapshot
    with pytest.raises(BitlakeError, match="does not fit"):
        lake.sql("INSERT INTO t SELECT IF(id = 9999, 'x', CAST(id AS STRING)) FROM range(10000)")
    assert lake.table("t").snapshot == before and rows(lake, "t") == []
