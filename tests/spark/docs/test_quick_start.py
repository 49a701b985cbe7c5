"""Paimon's Spark documentation, page "Quick Start": its statements, and its table of types."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from answers import rows_of

import bitlake

pytestmark = pytest.mark.spark

Run = Callable[[str], list[list[Any]]]


def test_create_insert_query(run: Run, lake: bitlake.Lake) -> None:
    run("USE paimon; USE default;")
    run(
        """
        create table my_table (
            k int,
            v string
        ) tblproperties (
            'primary-key' = 'k'
        );
        INSERT INTO my_table VALUES (1, 'Hi'), (2, 'Hello');
        """
    )
    assert sorted(run("SELECT * FROM my_table;")) == [[1, "Hi"], [2, "Hello"]]
    assert lake.database == "default"


def test_using_paimon_and_a_frame(run: Run, lake: bitlake.Lake) -> None:
    """The frame is written and read by the lake: Spark's own catalog, which saveAsTable asks, knows no lake."""
    run(
        """
        create table my_table (
            k int,
            v string
        ) USING paimon
        tblproperties (
            'primary-key' = 'k'
        );
        """
    )
    lake.write(lake.spark.createDataFrame([(1, "Hi"), (2, "Hello")], "k int, v string"), "my_table", "append")
    assert sorted(rows_of(lake.read("my_table"))) == [[1, "Hi"], [2, "Hello"]]


_TYPES = {  # Spark's word: a value's text, Paimon's type, the value
    "STRUCT<a: INT, b: STRING>": ("struct(1, 'x')", "ROW<`a` INT, `b` STRING>", [1, "x"]),
    "MAP<STRING, INT>": ("map('k', 1)", "MAP<STRING NOT NULL, INT>", {"$map": [["k", 1]]}),
    "ARRAY<INT>": ("array(1, 2)", "ARRAY<INT>", [1, 2]),
    "BOOLEAN": ("true", "BOOLEAN", True),
    "TINYINT": ("1Y", "TINYINT", 1),
    "SMALLINT": ("2S", "SMALLINT", 2),
    "INT": ("3", "INT", 3),
    "BIGINT": ("4L", "BIGINT", 4),
    "FLOAT": ("1.5F", "FLOAT", 1.5),
    "DOUBLE": ("2.5D", "DOUBLE", 2.5),
    "STRING": ("'s'", "STRING", "s"),
    "VARCHAR(5)": ("'v'", "VARCHAR(5)", "v"),
    "CHAR(3)": ("'c'", "CHAR(3)", "c  "),
    "DATE": ("DATE '2024-02-29'", "DATE", dt.date(2024, 2, 29)),
    "TIMESTAMP": (
        "TIMESTAMP '2024-02-29 01:02:03'",
        "TIMESTAMP(6) WITH LOCAL TIME ZONE",
        dt.datetime(2024, 2, 29, 1, 2, 3),
    ),
    "TIMESTAMP_NTZ": ("TIMESTAMP_NTZ '2024-02-29 01:02:03'", "TIMESTAMP(6)", dt.datetime(2024, 2, 29, 1, 2, 3)),
    "DECIMAL(10, 2)": ("1.25BD", "DECIMAL(10, 2)", Decimal("1.25")),
    "BINARY": ("X'0102'", "BYTES", b"\x01\x02"),
}


def test_types(run: Run, lake: bitlake.Lake) -> None:
    run(f"CREATE TABLE t ({', '.join(f'c{i} {name}' for i, name in enumerate(_TYPES))})")
    assert [str(f.type) for f in lake.table("t").schema.fields] == [paimon for _, paimon, _ in _TYPES.values()]
    run(f"INSERT INTO t VALUES ({', '.join(text for text, _, _ in _TYPES.values())})")
    assert run("SELECT * FROM t") == [[value for _, _, value in _TYPES.values()]]
