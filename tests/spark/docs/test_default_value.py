"""Paimon's Spark documentation, page "Default Value"."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bitlake
from bitlake.errors import BitlakeError

pytestmark = pytest.mark.spark

Run = Callable[[str], list[list[Any]]]


def _map(**pairs: str) -> dict[str, Any]:
    return {"$map": sorted([k, v] for k, v in pairs.items())}


def test_defaults_of_every_kind(run: Run) -> None:
    run(
        """
        CREATE TABLE my_table (
            a BIGINT,
            b STRING DEFAULT 'my_value',
            c INT DEFAULT 5,
            tags ARRAY<STRING> DEFAULT ARRAY('tag1', 'tag2', 'tag3'),
            properties MAP<STRING, STRING> DEFAULT MAP('key1', 'value1', 'key2', 'value2'),
            nested STRUCT<x: INT, y: STRING> DEFAULT STRUCT(42, 'default_value')
        );
        INSERT INTO my_table (a) VALUES (1), (2);
        """
    )
    rest: list[Any] = ["my_value", 5, ["tag1", "tag2", "tag3"], _map(key1="value1", key2="value2")]
    nested = [42, "default_value"]
    rows = [[1, *rest, nested], [2, *rest, nested]]
    assert sorted(run("SELECT * FROM my_table;"), key=str) == rows
    run("ALTER TABLE my_table ALTER COLUMN tags SET DEFAULT ARRAY('new_tag1', 'new_tag2');")
    run("INSERT INTO my_table (a) VALUES (3);")
    rest[2] = ["new_tag1", "new_tag2"]
    rows += [[3, *rest, nested]]
    assert sorted(run("SELECT * FROM my_table;"), key=str) == rows
    run("ALTER TABLE my_table ALTER COLUMN properties SET DEFAULT MAP('new_key', 'new_value');")
    run("INSERT INTO my_table (a) VALUES (4);")
    rest[3] = _map(new_key="new_value")
    rows += [[4, *rest, nested]]
    assert sorted(run("SELECT * FROM my_table;"), key=str) == rows


def test_changing_a_default(run: Run) -> None:
    run("CREATE TABLE T (a INT, b INT DEFAULT 2);")
    run("INSERT INTO T (a) VALUES (1);")
    assert run("SELECT * FROM T") == [[1, 2]]
    run("ALTER TABLE T ALTER COLUMN b SET DEFAULT 3;")
    run("INSERT INTO T (a) VALUES (2);")
    assert sorted(run("SELECT * FROM T")) == [[1, 2], [2, 3]]


def test_default_and_null_as_values(run: Run) -> None:
    """Both words become the default, in INSERT, UPDATE and MERGE."""
    run("CREATE TABLE T (a INT, b INT DEFAULT 2)")
    run("INSERT INTO T VALUES (1, DEFAULT), (2, NULL), (3, 4)")
    assert sorted(run("SELECT * FROM T")) == [[1, 2], [2, 2], [3, 4]]
    run("UPDATE T SET b = DEFAULT WHERE a = 3")
    run("INSERT INTO T VALUES (4, 4); UPDATE T SET b = NULL WHERE a = 4")
    assert sorted(run("SELECT * FROM T")) == [[1, 2], [2, 2], [3, 2], [4, 2]]
    run("MERGE INTO T USING (SELECT 5 AS a) AS s ON T.a = s.a WHEN NOT MATCHED THEN INSERT (a, b) VALUES (s.a, NULL)")
    assert run("SELECT b FROM T WHERE a = 5") == [[2]]


def test_no_new_column_with_a_default(run: Run) -> None:
    run("CREATE TABLE T (a INT)")
    with pytest.raises(BitlakeError, match="default"):
        run("ALTER TABLE T ADD COLUMN d INT DEFAULT 5;")


def test_describe_extended_shows_defaults_as_spark_does(run: Run, lake: bitlake.Lake, tmp_path: Path) -> None:
    columns = "a BIGINT, b STRING DEFAULT 'it''s', c ARRAY<INT> DEFAULT array(1, 2), d DATE DEFAULT current_date()"
    run(f"CREATE TABLE described ({columns})")
    plain = lake.spark
    plain.sql(f"CREATE TABLE spark_catalog.default.described_plain ({columns}) USING parquet LOCATION '{tmp_path}/p'")
    try:
        rows = [tuple(r) for r in plain.sql("DESCRIBE EXTENDED spark_catalog.default.described_plain").collect()]
    finally:
        plain.sql("DROP TABLE spark_catalog.default.described_plain")
    defaults = rows[rows.index(("# Column Default Values", "", "")) - 1 :]
    assert len(defaults) == 5
    for engine in ("spark", "duckdb"):
        shown = lake.sql("DESCRIBE EXTENDED described", engine=engine)  # type: ignore[call-overload]
        found = (
            [tuple(r.values()) for r in shown.to_pylist()] if engine == "duckdb" else list(map(tuple, shown.collect()))
        )
        assert found[-5:] == defaults
    run("ALTER TABLE described ALTER COLUMN b DROP DEFAULT")
    assert [r[0] for r in run("DESCRIBE EXTENDED described")[-2:]] == ["c", "d"]
