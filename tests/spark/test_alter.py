"""ALTER TABLE through Spark SQL: what is read after it, written after it, shown after it, and refused."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from answers import rows_of
from long import exhaustive

import bitlake
from bitlake.errors import AlreadyExists, InvalidRequest, NotFound
from bitlake.spark.read import scan as spark_scan

pytestmark = pytest.mark.spark


@pytest.fixture(params=[exhaustive("driver"), "executors"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Small tables come through the driver; here they also go the way that large ones take."""
    if request.param == "executors":
        monkeypatch.setattr(spark_scan, "DRIVER_BYTES", -1)
    return str(request.param)


def ask(lake: bitlake.Lake, text: str) -> list[list[Any]]:
    return rows_of(lake.sql(text))


def test_an_evolved_table_is_read_and_written(lake: bitlake.Lake, reader: str) -> None:
    for text in (
        "CREATE TABLE t (id INT, a INT, b STRING, s STRUCT<x: INT, y: STRING>, l ARRAY<STRUCT<x: INT>>) "
        "TBLPROPERTIES ('file-index.bitmap.columns' = 'a,b')",
        "INSERT INTO t VALUES (1, 300, 'u', named_struct('x', 1, 'y', 'p'), array(named_struct('x', 5))), "
        "(2, NULL, 'v', NULL, NULL)",
        "ALTER TABLE t RENAME COLUMN b TO bb",
        "ALTER TABLE t ADD COLUMNS (n DECIMAL(5, 2) COMMENT 'new' AFTER id, s.z DATE FIRST, l.element.k STRING)",
        "ALTER TABLE t ALTER COLUMN a TYPE BIGINT, s.x TYPE STRING",
        "INSERT INTO t VALUES (3, 1.25, 5000000000, 'w', "
        "named_struct('z', DATE'2024-02-29', 'x', 'q', 'y', 'r'), array(named_struct('x', 6, 'k', 'kk')))",
        "INSERT INTO t (bb, id) VALUES ('u', 4)",
    ):
        lake.sql(text)
    assert ask(lake, "SELECT * FROM t ORDER BY id") == [
        [1, None, 300, "u", [None, "1", "p"], [[5, None]]],
        [2, None, None, "v", None, None],
        [3, Decimal("1.25"), 5000000000, "w", [dt.date(2024, 2, 29), "q", "r"], [[6, "kk"]]],
        [4, None, None, "u", None, None],
    ]
    assert ask(lake, "SELECT id FROM t WHERE a = 300") == [[1]]
    assert ask(lake, "SELECT id FROM t WHERE a > 300") == [[3]]
    assert ask(lake, "SELECT id, s.x FROM t WHERE bb = 'u' ORDER BY id") == [[1, "1"], [4, None]]
    assert ask(lake, "SELECT count(*), count(n), max(l[0].k) FROM t") == [[4, 1, "kk"]]
    frame = lake.sql("SELECT a, n, s FROM t")
    assert [f.simpleString() for f in frame.schema] == [
        "a:bigint",
        "n:decimal(5,2)",
        "s:struct<z:date,x:string,y:string>",
    ]


def test_a_dropped_name_added_again_is_another_column(lake: bitlake.Lake, reader: str) -> None:
    for text in (
        "CREATE TABLE t (id INT, a STRING, b INT)",
        "INSERT INTO t VALUES (1, 'old', 5)",
        "ALTER TABLE t DROP COLUMN IF EXISTS a, nope",
        "ALTER TABLE t ADD COLUMN A STRING FIRST",
        "ALTER TABLE t CHANGE COLUMN b b STRING COMMENT 'text now' FIRST",
    ):
        lake.sql(text)
    assert lake.sql("SELECT * FROM t").columns == ["b", "A", "id"]
    assert ask(lake, "SELECT * FROM t") == [["5", None, 1]]
    assert ask(lake, "SELECT a FROM t WHERE a IS NULL AND b = '5'") == [[None]]
    lake.sql("INSERT INTO t VALUES ('x', 'new', 2)")
    assert ask(lake, "SELECT id, a FROM t ORDER BY id") == [[1, None], [2, "new"]]
    assert ask(lake, "SELECT id FROM t WHERE a = 'old'") == []


def test_old_files_that_only_lack_columns_go_to_sparks_reader(lake: bitlake.Lake) -> None:
    table = lake.create_table("t", pa.schema([("id", pa.int64()), ("v", pa.string())]))
    table.append(pa.table({"id": range(3), "v": list("abc")}))
    table.add_column("n", pa.int32())
    assert spark_scan.choose(lake.table("t").scan().plan()).driver  # little: read at once
    plan = lake.table("t").scan().plan()
    assert spark_scan._same_columns(plan, 0)
    reader = spark_scan.SparkReader(lake.spark, table._core.store)
    native = reader._native(plan, plan.files, spark_scan.frame_schema(lake.table("t")._core.scan()), None)
    assert sorted(rows_of(native)) == [[0, "a", None], [1, "b", None], [2, "c", None]]
    table.drop_column("v")
    table.add_column("V", pa.string())
    plan = lake.table("t").scan().plan()
    assert not spark_scan._same_columns(plan, 0)


def test_defaults_and_nullability(lake: bitlake.Lake) -> None:
    lake.sql("CREATE TABLE t (id INT NOT NULL, d DATE, n DECIMAL(5, 2) DEFAULT 1.5)")
    lake.sql("INSERT INTO t (id) VALUES (1)")
    lake.sql("ALTER TABLE t ALTER COLUMN d SET DEFAULT '2024-02-29'")
    lake.sql("ALTER TABLE t ALTER COLUMN n DROP DEFAULT")
    lake.sql("ALTER TABLE t ALTER COLUMN id DROP NOT NULL")
    lake.sql("INSERT INTO t (id) VALUES (2), (NULL)")
    assert ask(lake, "SELECT * FROM t ORDER BY id NULLS LAST") == [
        [1, None, Decimal("1.50")],
        [2, dt.date(2024, 2, 29), None],
        [None, dt.date(2024, 2, 29), None],
    ]
    lake.table("t").append(pa.table({"id": pa.array([9], pa.int32())}))
    assert ask(lake, "SELECT d FROM t WHERE id = 9") == [[dt.date(2024, 2, 29)]]
    with pytest.raises(InvalidRequest, match="alter-column-null-to-not-null"):
        lake.sql("ALTER TABLE t ALTER COLUMN id SET NOT NULL")
    lake.sql("ALTER TABLE t SET TBLPROPERTIES ('alter-column-null-to-not-null.disabled' = 'false')")
    with pytest.raises(InvalidRequest, match="column 'n' holds NULL"):
        lake.sql("ALTER TABLE t ALTER COLUMN n SET NOT NULL")
    lake.sql("INSERT OVERWRITE t VALUES (1, NULL, 2.5)")
    lake.sql("ALTER TABLE t ALTER COLUMN n SET NOT NULL")
    with pytest.raises(InvalidRequest, match="'n'"):
        lake.sql("INSERT INTO t (id) VALUES (3)")
    assert ask(lake, "SELECT n FROM t WHERE n IS NOT NULL") == [[Decimal("2.50")]]


def test_it_is_shown_and_can_be_made_again(lake: bitlake.Lake) -> None:
    lake.sql("CREATE TABLE t (id INT, s STRUCT<x: INT>, v STRING) TBLPROPERTIES ('file-index.bitmap.columns' = 'v')")
    lake.sql("ALTER TABLE t ADD COLUMN s.y DECIMAL(4, 1) COMMENT 'in s' FIRST")
    lake.sql("ALTER TABLE t RENAME COLUMN v TO `a b`")
    lake.sql("ALTER TABLE t ALTER COLUMN id TYPE BIGINT COMMENT 'wide'")
    lake.sql("ALTER TABLE t ALTER COLUMN id SET DEFAULT 7")
    assert ask(lake, "DESCRIBE t") == [
        ["id", "bigint", "wide"],
        ["s", "struct<y:decimal(4,1),x:int>", None],
        ["a b", "string", None],
    ]
    assert ask(lake, "DESCRIBE t ID") == [["col_name", "id"], ["data_type", "bigint"], ["comment", "wide"]]
    shown = ask(lake, "SHOW CREATE TABLE t")[0][0]
    lake.sql("ALTER TABLE t RENAME TO u")
    lake.sql(shown)
    again, before = lake.table("t").schema, lake.table("u").schema
    assert [(f.name, f.description, f.default_value) for f in again.fields] == [
        (f.name, f.description, f.default_value) for f in before.fields
    ]
    assert again.options == before.options == {"file-index.bitmap.columns": "a b"}


def test_the_tables_comment(lake: bitlake.Lake) -> None:
    lake.sql("CREATE TABLE t (a INT) COMMENT 'one'")
    lake.sql("ALTER TABLE t SET TBLPROPERTIES ('comment' = 'two', 'x' = 'y')")
    assert (lake.table("t").schema.comment, lake.table("t").schema.options) == ("two", {"x": "y"})
    lake.sql("COMMENT ON TABLE t IS 'three'")
    assert ["Comment", "three", ""] in ask(lake, "DESCRIBE EXTENDED t")
    lake.sql("ALTER TABLE t SET TBLPROPERTIES ('comment' = '')")
    assert ["Comment", "", ""] in ask(lake, "DESCRIBE EXTENDED t"), "an empty one is one, as in Paimon"
    lake.sql("ALTER TABLE t UNSET TBLPROPERTIES ('comment', 'x')")
    assert (lake.table("t").schema.comment, lake.table("t").schema.options) == (None, {})


def test_tables_are_renamed(lake: bitlake.Lake) -> None:
    lake.sql("CREATE TABLE t AS SELECT 1 AS a")
    lake.sql("CREATE DATABASE d")
    lake.sql("ALTER TABLE t RENAME TO d.u")
    assert ask(lake, "SELECT a FROM d.u") == [[1]]
    lake.sql("ALTER TABLE d.u RENAME TO v")
    assert ask(lake, "SELECT a FROM d.v") == [[1]]
    with pytest.raises(NotFound):
        lake.sql("SELECT * FROM t")
    lake.sql("CREATE TABLE d.w (a INT)")
    with pytest.raises(AlreadyExists):
        lake.sql("ALTER TABLE d.w RENAME TO v")


REFUSED = [
    ("ADD COLUMN n INT NOT NULL", InvalidRequest, "cannot be added as NOT NULL"),
    ("ADD COLUMN ID INT", AlreadyExists, "'ID' already exists"),
    ("DROP COLUMN p", InvalidRequest, "partition column 'p'"),
    ("RENAME COLUMN p TO q", InvalidRequest, "partition column 'p'"),
    ("DROP COLUMN nope", NotFound, "no column 'nope'"),
    ("ALTER COLUMN v TYPE ARRAY<INT>", InvalidRequest, "STRING cannot become ARRAY<INT>"),
    ("ALTER COLUMN id TYPE DATE", InvalidRequest, "INT cannot become DATE"),
    ("ALTER COLUMN id AFTER id", InvalidRequest, "after itself"),
]


def test_what_paimon_forbids_is_refused(lake: bitlake.Lake) -> None:
    lake.sql("CREATE TABLE t (id INT, v STRING, p INT) PARTITIONED BY (p)")
    before = lake.table("t").schema
    for text, kind, message in REFUSED:
        with pytest.raises(kind, match=message):
            lake.sql(f"ALTER TABLE t {text}")
    assert lake.table("t").schema == before
