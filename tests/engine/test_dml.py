"""INSERT, DELETE, UPDATE and CREATE TABLE AS in this process: rows, errors, and what is left to Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bitlake
from bitlake.errors import BitlakeError, EvaluationFailed, InvalidRequest, NotFound, UnsupportedFeature


@pytest.fixture
def lake(tmp_path: Path) -> bitlake.Lake:
    lake = bitlake.connect(tmp_path / "lake")
    lake.create_table("t", pa.table({"id": pa.array([1, 2, 3], pa.int32()), "s": ["a", "b", None]}))
    lake.create_table("k", pa.table({"id": [1, 2], "n": [10, 20]}), primary_key=["id"], options={"bucket": "-1"})
    return lake


def run(lake: bitlake.Lake, text: str, args: Any = None) -> Any:
    return lake.sql(text, args, engine="duckdb")


def rows(lake: bitlake.Lake, name: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(r.values()) for r in lake.table(name).to_arrow().to_pylist()), key=str)


def test_one_commit_for_each_statement(lake: bitlake.Lake) -> None:
    done = run(lake, "INSERT INTO t VALUES (4, 'd'), (?, ?)", [5, "e"])
    assert done.to_pylist() == [{"num_affected_rows": 2, "num_inserted_rows": 2}]
    assert run(lake, "DELETE FROM t WHERE id > 3 AND s = 'e'").to_pylist() == [{"num_affected_rows": 1}]
    assert run(lake, "UPDATE t SET s = 'new' WHERE s IS NULL").to_pylist() == [{"num_affected_rows": 1}]
    run(lake, "INSERT INTO k SELECT id, id * 100 FROM t WHERE id <> 2")
    assert rows(lake, "t") == [(1, "a"), (2, "b"), (3, "new"), (4, "d")]
    assert rows(lake, "k") == [(1, 100), (2, 20), (3, 300), (4, 400)]
    assert [s.id for s in lake.table("t").history.snapshots()] == [1, 2, 3, 4]


def test_a_query_is_read_before_its_own_table_is_replaced(lake: bitlake.Lake) -> None:
    run(lake, "INSERT OVERWRITE t SELECT id + 1, s FROM t")
    run(lake, "INSERT INTO t SELECT id * 2, s FROM t VERSION AS OF 1 WHERE id = 3")
    assert rows(lake, "t") == [(2, "a"), (3, "b"), (4, None), (6, None)]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("INSERT INTO t VALUES ('x', 'y')", "column 'id': the cast of 'x' to INT"),
        ("INSERT INTO t VALUES (1.5, 'y')", "the cast of Decimal('1.5') to INT"),
        ("INSERT INTO t VALUES (1, 'a'), (2, 3)", "column 's': VALUES of several types"),
        ("INSERT INTO t SELECT n / 2, 'a' FROM k", "the cast of double to INT"),
        ("INSERT INTO t SELECT id, explode(array(s)) FROM t", "mean the same in both"),
        ("FROM t INSERT INTO t SELECT id, s INSERT INTO k SELECT id, id", "FROM … needs Spark"),
        ("CREATE TABLE m AS SELECT count(*) FROM t", "a table with the columns of SELECT count(*) FROM t"),
        (
            "CREATE TABLE m AS SELECT a.id, b.id FROM t a JOIN t b ON a.id = b.id",
            "storing columns of one name",
        ),
        ("DELETE FROM t WHERE id IN (SELECT id FROM k)", "table 'default.t': WHERE id IN (SELECT id FROM k)"),
        ("DELETE FROM t WHERE id = '1x'", "WHERE id = '1x'"),
        ("UPDATE t SET s = (SELECT max(n) FROM k)", "SET … = (SELECT max(n) FROM k)"),
        ("UPDATE t SET id = s", "SET id"),
        ("WITH x AS (SELECT 1) DELETE FROM t", "WITH before a statement"),
        ("MERGE INTO k USING t ON k.id = t.id WHEN MATCHED THEN DELETE", "MERGE … needs Spark"),
    ],
)
def test_what_is_left_to_spark_changes_nothing(lake: bitlake.Lake, text: str, what: str) -> None:
    before = lake.table("t").snapshot, lake.table("k").snapshot, lake.tables()
    with pytest.raises(UnsupportedFeature) as caught:
        run(lake, text)
    assert what in str(caught.value) and "engine='spark'" in str(caught.value)
    assert (lake.table("t").snapshot, lake.table("k").snapshot, lake.tables()) == before


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("INSERT INTO t SELECT n * 1000000000, 'a' FROM k", InvalidRequest),
        ("INSERT INTO t SELECT id FROM t", InvalidRequest),
        ("INSERT INTO missing VALUES (1)", NotFound),
        ("DELETE FROM t WHERE idd = 1", NotFound),
        ("UPDATE t SET idd = 1", NotFound),
        ("UPDATE t SET s = nope", NotFound),
        ("UPDATE t SET id = id + 2147483647", EvaluationFailed),
        ("UPDATE k SET id = 1", InvalidRequest),
    ],
)
def test_errors_are_the_statements_own(lake: bitlake.Lake, text: str, error: type[BitlakeError]) -> None:
    before = lake.table("t").snapshot, lake.table("k").snapshot
    with pytest.raises(error):
        run(lake, text)
    assert (lake.table("t").snapshot, lake.table("k").snapshot) == before


def test_create_table_as(lake: bitlake.Lake) -> None:
    assert run(lake, "CREATE TABLE m AS SELECT id AS a, s FROM t WHERE id < 3").to_pylist()[0]["num_inserted_rows"] == 2
    assert str(lake.table("m").schema) == "TableSchema(0: a INT, s STRING)" and rows(lake, "m") == [(1, "a"), (2, "b")]
    with pytest.raises(InvalidRequest):
        run(lake, "CREATE TABLE bad PARTITIONED BY (nope) AS SELECT id FROM t")
    assert "bad" not in lake.tables()
