"""Tables that bitlake writes through Spark SQL, read by Paimon (Java) and pypaimon."""

from __future__ import annotations

import decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from interop.every_type import ATOMIC, BITMAP_COLUMNS, BLOOM_COLUMNS, NESTED, atomic_rows, nested_rows
from interop.rows import rows_of, same_rows

import bitlake

pytestmark = [pytest.mark.interop, pytest.mark.spark]

DDL = """
CREATE TABLE db.t (id BIGINT, c_bool BOOLEAN, c_tiny TINYINT, c_small SMALLINT, c_int INT, c_big BIGINT, c_float FLOAT,
  c_double DOUBLE, c_dec9 DECIMAL(9, 2), c_dec18 DECIMAL(18, 4), c_dec38 DECIMAL(38, 10), c_str STRING, c_bin BINARY,
  c_date DATE, c_ts TIMESTAMP, c_ntz TIMESTAMP_NTZ)
"""
ROWS = 230


@pytest.fixture
def lake(spark: Any, tmp_path: Path) -> Any:
    """A lake in a folder of its own, with a database and the rows of every type as a view."""
    made = bitlake.connect(str(tmp_path), spark=spark)
    made.sql("CREATE DATABASE db")
    spark.createDataFrame(atomic_rows(ROWS)).createOrReplaceTempView("every_type")
    return made


@pytest.fixture(params=["java", "pypaimon"])
def peer(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize(
    "layout",
    [
        "",
        "PARTITIONED BY (c_bool)",
        "PARTITIONED BY (c_date, c_str)",
        "TBLPROPERTIES ('bucket' = '3', 'bucket-key' = 'c_str,c_dec38')",
        "PARTITIONED BY (c_tiny) TBLPROPERTIES ('bucket' = '2', 'bucket-key' = 'id')",
        "TBLPROPERTIES ('target-file-size' = '16 kb')",
    ],
)
def test_every_type_in_every_layout(lake: Any, peer: ModuleType, tmp_path: Path, layout: str) -> None:
    lake.sql(DDL + layout)
    lake.sql("INSERT INTO db.t SELECT * FROM every_type")
    order = [f.name for f in lake.table("db.t").schema.fields]
    want = rows_of(atomic_rows(ROWS).select(order))
    same_rows(peer.dump(tmp_path, "db.t"), want)
    same_rows(rows_of(lake.table("db.t").scan().to_arrow()), want)


def test_char_and_varchar(lake: Any, peer: ModuleType, tmp_path: Path) -> None:
    lake.sql("CREATE TABLE db.c (id INT NOT NULL, c CHAR(4), v VARCHAR(4))")
    lake.sql("INSERT INTO db.c VALUES (1, 'ab', 'ab'), (2, '日本', '日本語😀'), (3, NULL, '')")
    same_rows(peer.dump(tmp_path, "db.c"), [(1, "ab  ", "ab"), (2, "日本  ", "日本語😀"), (3, None, "")])


def test_nested_types(lake: Any, spark: Any, peer: ModuleType, tmp_path: Path) -> None:
    lake.sql(
        "CREATE TABLE db.n (id BIGINT, ints ARRAY<INT>, names MAP<STRING, BIGINT>, "
        "deep STRUCT<at: TIMESTAMP_NTZ, price: DECIMAL(12, 3), tags: ARRAY<STRUCT<k: STRING, v: BINARY>>>)"
    )
    rows = nested_rows(40)
    assert rows.schema.equals(NESTED)
    spark.createDataFrame(rows).createOrReplaceTempView("nested")
    lake.sql("INSERT INTO db.n SELECT * FROM nested")
    same_rows(peer.dump(tmp_path, "db.n"), rows_of(rows))


def test_indexes_made_while_writing_and_later(lake: Any, java: ModuleType, tmp_path: Path) -> None:
    """Java finds exactly the matches through bitmaps, whether the write made them or rewrite_file_index."""
    indexes = (
        f"'file-index.bitmap.columns' = '{','.join(BITMAP_COLUMNS)}', "
        f"'file-index.bloom-filter.columns' = '{','.join(BLOOM_COLUMNS)}'"
    )
    lake.sql(f"{DDL} TBLPROPERTIES ({indexes})")
    lake.sql(DDL.replace("db.t", "db.later"))
    for table in ("db.t", "db.later"):
        lake.sql(f"INSERT INTO {table} SELECT * FROM every_type")
    lake.sql(f"ALTER TABLE db.later SET TBLPROPERTIES ({indexes})")
    lake.sql("CALL sys.rewrite_file_index('db.later')").collect()
    rows = rows_of(atomic_rows(ROWS))
    for column in ("c_str", "c_int", "c_date", "c_ts", "c_bool"):
        at = ATOMIC.get_field_index(column)
        for value in sorted({r[at] for r in rows if r[at] is not None})[:8]:
            want = [r for r in rows if r[at] == value]
            for table in ("db.t", "db.later"):
                same_rows(java.dump(tmp_path, table, **{column: value}), want)
    same_rows(java.dump(tmp_path, "db.later"), rows)


def test_buckets_of_every_column_where_no_key_was_given(lake: Any, java: ModuleType, tmp_path: Path) -> None:
    """'bucket' without 'bucket-key', which Paimon refuses to create: the key we wrote into the schema lets it read."""
    lake.sql(
        "CREATE TABLE db.o (order_id BIGINT, user_id BIGINT, status STRING, amount DECIMAL(10, 2)) "
        "TBLPROPERTIES ('bucket' = '4', 'file-index.bitmap.columns' = 'status')"
    )
    lake.sql("INSERT INTO db.o VALUES (1, 7, 'PENDING', 9.90), (2, 8, 'SHIPPED', 19.00), (3, 9, 'PENDING', NULL)")
    pending = [(1, 7, "PENDING", decimal.Decimal("9.90")), (3, 9, "PENDING", None)]
    same_rows(java.dump(tmp_path, "db.o", status="PENDING"), pending)
    assert len(java.dump(tmp_path, "db.o")) == 3


def test_overwrites(lake: Any, peer: ModuleType, tmp_path: Path) -> None:
    lake.sql("CREATE TABLE db.w (id INT, p STRING) PARTITIONED BY (p)")
    lake.sql("INSERT INTO db.w VALUES (1, 'a'), (2, 'b'), (3, NULL)")
    lake.sql("INSERT OVERWRITE db.w PARTITION (p = 'a') SELECT 9")
    same_rows(peer.dump(tmp_path, "db.w"), [(9, "a"), (2, "b"), (3, None)])
    lake.sql("TRUNCATE TABLE db.w")
    assert peer.dump(tmp_path, "db.w") == []


@pytest.mark.parametrize("file_format", ["orc", "avro"])
@pytest.mark.parametrize("layout", ["", "PARTITIONED BY (c_bool)", "BUCKETS"])
def test_orc_and_avro(lake: Any, spark: Any, java: ModuleType, tmp_path: Path, file_format: str, layout: str) -> None:
    from interop.test_orc_and_avro import storable

    rows = storable(atomic_rows(ROWS), file_format)
    spark.createDataFrame(rows).createOrReplaceTempView("storable")
    buckets = ", 'bucket' = '3', 'bucket-key' = 'c_str'" if layout == "BUCKETS" else ""
    options = f"TBLPROPERTIES ('file.format' = '{file_format}', 'file-index.bitmap.columns' = 'c_str'{buckets})"
    lake.sql(f"{DDL}{'' if buckets else layout} {options}")
    lake.sql("INSERT INTO db.t SELECT * FROM storable")
    order = [f.name for f in lake.table("db.t").schema.fields]
    want = rows_of(rows.select(order))
    assert {p.suffix for p in tmp_path.rglob("data-*") if ".index" not in p.name} == {f".{file_format}"}
    same_rows(java.dump(tmp_path, "db.t"), want)
    same_rows(rows_of(lake.table("db.t").scan().to_arrow()), want)
    same_rows(rows_of(lake.sql("SELECT * FROM db.t").toArrow()), want)
