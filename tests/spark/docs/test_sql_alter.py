"""Paimon's Spark documentation, page "Altering Tables"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import bitlake
from bitlake.errors import InvalidRequest, UnsupportedFeature

pytestmark = pytest.mark.spark

Run = Callable[[str], list[list[Any]]]


def _columns(lake: bitlake.Lake, name: str = "my_table") -> list[str]:
    return [f"{f.name} {f.type}" for f in lake.table(name).schema.fields]


def test_properties_and_comment(run: Run, lake: bitlake.Lake) -> None:
    run("CREATE TABLE my_table (a INT)")
    run(
        """
        ALTER TABLE my_table SET TBLPROPERTIES (
            'write-buffer-size' = '256 MB'
        );
        """
    )
    assert lake.table("my_table").schema.options == {"write-buffer-size": "256 MB"}
    run("ALTER TABLE my_table UNSET TBLPROPERTIES ('write-buffer-size');")
    assert lake.table("my_table").schema.options == {}
    run(
        """
        ALTER TABLE my_table SET TBLPROPERTIES (
            'comment' = 'table comment'
            );
        """
    )
    assert lake.table("my_table").schema.comment == "table comment"
    run("ALTER TABLE my_table UNSET TBLPROPERTIES ('comment');")
    assert lake.table("my_table").schema.comment is None


def test_rename(run: Run, lake: bitlake.Lake) -> None:
    run("CREATE TABLE my_table (a INT)")
    run("ALTER TABLE my_table RENAME TO my_table_new;")
    assert lake.tables() == ["my_table_new"]
    run("CREATE DATABASE database")
    run("ALTER TABLE paimon.default.my_table_new RENAME to database.test2")
    assert lake.tables() == [] and lake.tables("database") == ["test2"]
    with pytest.raises(InvalidRequest, match="another catalog"):
        run("ALTER TABLE paimon.database.test2 RENAME to catalog.database.test3")


def test_columns(run: Run, lake: bitlake.Lake) -> None:
    run("CREATE TABLE my_table (c0 INT, b INT)")
    run("ALTER TABLE my_table RENAME COLUMN c0 TO c1;")
    run("ALTER TABLE my_table DROP COLUMN c1")
    run(
        """
        ALTER TABLE my_table ADD COLUMNS (
            c1 INT,
            c2 STRING
        );
        """
    )
    assert _columns(lake) == ["b INT", "c1 INT", "c2 STRING"]
    run("ALTER TABLE my_table DROP COLUMNS (c1, c2);")
    assert _columns(lake) == ["b INT"]
    run("ALTER TABLE my_table ADD COLUMN c INT FIRST;")
    assert _columns(lake) == ["c INT", "b INT"]
    run("ALTER TABLE my_table DROP COLUMN c")
    run("ALTER TABLE my_table ADD COLUMN c INT AFTER b;")
    assert _columns(lake) == ["b INT", "c INT"]


@pytest.mark.parametrize(
    ("before", "inside", "around"),
    [
        ("STRUCT<f1: STRING, f2: INT>", "v.", "ROW<{}>"),
        ("ARRAY<STRUCT<f1: STRING, f2: INT>>", "v.element.", "ARRAY<ROW<{}>>"),
        ("MAP<INT, STRUCT<f1: STRING, f2: INT>>", "v.value.", "MAP<INT NOT NULL, ROW<{}>>"),
    ],
    ids=["struct", "array", "map"],
)
def test_nested_columns(run: Run, lake: bitlake.Lake, before: str, inside: str, around: str) -> None:
    run(f"CREATE TABLE my_table (k INT, v {before})")
    run(f"ALTER TABLE my_table ADD COLUMN {inside}f3 STRING;")
    assert _columns(lake)[1] == "v " + around.format("`f1` STRING, `f2` INT, `f3` STRING")
    run(f"ALTER TABLE my_table RENAME COLUMN {inside}f1 to f100;")
    run(f"ALTER TABLE my_table ALTER COLUMN {inside}f2 TYPE BIGINT;")
    assert _columns(lake)[1] == "v " + around.format("`f100` STRING, `f2` BIGINT, `f3` STRING")
    run(f"ALTER TABLE my_table DROP COLUMN {inside}f2;")
    assert _columns(lake)[1] == "v " + around.format("`f100` STRING, `f3` STRING")


def test_column_comment_position_and_type(run: Run, lake: bitlake.Lake) -> None:
    run("CREATE TABLE my_table (col_b INT, buy_count INT, col_a INT)")
    run("ALTER TABLE my_table ALTER COLUMN buy_count COMMENT 'buy count';")
    assert lake.table("my_table").schema.field("buy_count").description == "buy count"
    run("ALTER TABLE my_table ALTER COLUMN col_a FIRST;")
    assert _columns(lake) == ["col_a INT", "col_b INT", "buy_count INT"]
    run("ALTER TABLE my_table ALTER COLUMN col_a AFTER col_b;")
    assert _columns(lake) == ["col_b INT", "col_a INT", "buy_count INT"]
    run("INSERT INTO my_table VALUES (1, 2, 3)")
    run("ALTER TABLE my_table ALTER COLUMN col_a TYPE DOUBLE;")
    assert run("SELECT * FROM my_table") == [[1, 2.0, 3]]


def test_dropping_partitions(run: Run) -> None:
    run("CREATE TABLE my_table (a INT, id INT, name STRING) PARTITIONED BY (id, name)")
    run("INSERT INTO my_table VALUES (1, 1, 'paimon'), (2, 1, 'x'), (3, 2, 'paimon')")
    run("ALTER TABLE my_table DROP PARTITION (`id` = 1, `name` = 'paimon');")
    assert sorted(run("SELECT a FROM my_table")) == [[2], [3]]
    run("ALTER TABLE my_table DROP PARTITION (`id` = 1)")
    assert run("SELECT a FROM my_table") == [[3]]


def test_databases_of_a_filesystem_catalog_have_no_properties(run: Run) -> None:
    run("CREATE DATABASE my_database")
    with pytest.raises(UnsupportedFeature, match="jdbc"):
        run("ALTER DATABASE my_database SET DBPROPERTIES ('a' = 'b')")
    with pytest.raises(UnsupportedFeature, match="folder"):
        run("ALTER DATABASE my_database SET LOCATION 'file:/temp/my_database.db'")
