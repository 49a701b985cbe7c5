"""Paimon's Spark documentation, page "SQL DDL", views: of a session, and those that a jdbc catalog keeps."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from answers import rows_of

import bitlake
from bitlake.errors import AlreadyExists, BitlakeError, InvalidRequest, NotFound

pytestmark = pytest.mark.spark


def test_views_of_a_jdbc_catalog(spark: Any, tmp_path: Path) -> None:
    names = tmp_path / "names.db"
    lake = bitlake.connect(str(tmp_path / "lake"), spark=spark, catalog="jdbc", uri=f"sqlite:///{names}")

    def ask(text: str, over: bitlake.Lake = lake) -> list[list[Any]]:
        return rows_of(over.sql(text))

    for text in ("CREATE DATABASE mydb", "USE mydb", "CREATE TABLE t1 (a INT, b STRING)"):
        lake.sql(text)
    lake.sql("INSERT INTO t1 VALUES (1, 'x'), (2, 'y')")
    lake.sql("CREATE VIEW mydb.v1 AS SELECT * FROM t1")
    with pytest.raises(AlreadyExists, match=r"mydb\.v1"):
        lake.sql("CREATE VIEW mydb.v1 AS SELECT 1 AS a")
    lake.sql("CREATE VIEW IF NOT EXISTS v1 AS SELECT 1 AS a")
    lake.sql("CREATE VIEW early AS SELECT a FROM t1 VERSION AS OF 1")
    lake.sql("INSERT INTO t1 VALUES (3, 'z')")
    assert ask("SELECT * FROM mydb.v1 ORDER BY a") == [[1, "x"], [2, "y"], [3, "z"]]
    assert sorted(ask("SELECT * FROM early")) == [[1], [2]]
    lake.sql("CREATE VIEW v2 AS SELECT v1.b, count(*) AS n FROM v1 GROUP BY v1.b")
    # Another session, and another current database: names in a view are those of its own.
    other = bitlake.connect(str(tmp_path / "lake"), spark=spark, catalog="jdbc", uri=f"sqlite:///{names}")
    assert sorted(ask("WITH t1 AS (SELECT 1) SELECT x.b, n FROM mydb.v2 x WHERE b > 'x'", other)) == [
        ["y", 1],
        ["z", 1],
    ]
    assert ask("SELECT count(*) FROM mydb.v1 JOIN mydb.early USING (a)", other) == [[2]]
    assert ask("SHOW VIEWS IN mydb LIKE 'v*'", other) == [["mydb", "v1", False], ["mydb", "v2", False]]
    lake.sql("CREATE OR REPLACE VIEW mydb.v1 AS SELECT a, 'new' AS b FROM t1 WHERE a = 1")
    assert ask("SELECT * FROM v2") == [["new", 1]]
    with sqlite3.connect(names) as database:
        text = database.execute("SELECT view_schema FROM paimon_views WHERE view_name = 'v1'").fetchone()[0]
    kept = json.loads(text)
    assert kept["query"] == kept["dialects"]["spark"] == "SELECT a, 'new' AS b FROM mydb.t1 WHERE a = 1"
    assert [(f["id"], f["name"], f["type"]) for f in kept["fields"]] == [(0, "a", "INT"), (1, "b", "STRING")]
    # The calls of page "Procedures".
    call = "CALL sys.alter_view_dialect"
    lake.sql(f"{call}(`view` => 'mydb.v1', `action` => 'update', `query` => 'SELECT a, b FROM t1 WHERE a = 2')")
    assert ask("SELECT * FROM mydb.v1", other) == [[2, "y"]]
    lake.sql(f"{call}('mydb.v1', 'add', 'flink', 'SELECT of_flink')")
    with pytest.raises(AlreadyExists, match="already has a query for 'flink'"):
        lake.sql(f"{call}('mydb.v1', 'add', 'flink', 'SELECT 2')")
    with pytest.raises(NotFound, match="no query for 'trino'; it has: flink, spark"):
        lake.sql(f"{call}('mydb.v1', 'drop', 'trino')")
    with pytest.raises(InvalidRequest, match="'update' goes with a query"):
        lake.sql(f"{call}('mydb.v1', 'update', 'spark')")
    with pytest.raises(NotFound, match=r"mydb\.v9"):
        lake.sql(f"{call}(`view` => 'mydb.v9', `action` => 'drop')")
    assert ask(f"{call}(`view` => 'mydb.v1', `action` => 'drop')") == [[True]]
    assert ask("SELECT * FROM v1") == [[1, "new"]], "the query without a dialect"
    with sqlite3.connect(names) as database:
        text = database.execute("SELECT view_schema FROM paimon_views WHERE view_name = 'v1'").fetchone()[0]
    assert json.loads(text)["dialects"] == {"flink": "SELECT of_flink"} and json.loads(text)["query"] == kept["query"]
    with pytest.raises(AlreadyExists, match="a view has this name"):
        lake.sql("CREATE TABLE v1 (a INT)")
    with pytest.raises(AlreadyExists, match="a table has this name"):
        lake.sql("CREATE VIEW t1 AS SELECT 1 AS a")
    with pytest.raises(BitlakeError, match="nothing"):
        lake.sql("CREATE VIEW v3 AS SELECT * FROM nothing")
    with pytest.raises(InvalidRequest, match="views"):
        lake.sql("DROP DATABASE mydb")
    lake.sql("DROP VIEW mydb.v1")
    lake.sql("DROP VIEW IF EXISTS mydb.v1")
    with pytest.raises(NotFound, match="v1"):
        lake.sql("DROP VIEW mydb.v1")
    lake.sql("CREATE OR REPLACE VIEW v1 AS SELECT b, 1 AS a FROM t1")
    lake.sql("CREATE OR REPLACE VIEW early AS SELECT * FROM v2")
    with pytest.raises(InvalidRequest, match="cannot read itself"):  # as Spark refuses a recursive view
        lake.sql("CREATE OR REPLACE VIEW v1 AS SELECT b, 1 AS a FROM early")
    lake.sql(f"{call}('mydb.v1', 'update', 'spark', 'SELECT b, 1 AS a FROM mydb.early')")
    with pytest.raises(InvalidRequest, match="circle"):
        ask("SELECT * FROM v1")
    lake.sql("DROP DATABASE mydb CASCADE")
    with pytest.raises(NotFound):
        ask("SHOW VIEWS IN mydb")


def test_listed_columns_of_a_view_whose_query_repeats_names_or_lacks_them(spark: Any, tmp_path: Path) -> None:
    """As in Spark's own catalog, which finds the columns of the query by name and number when the table gets more."""
    uri = f"sqlite:///{tmp_path / 'names.db'}"
    lake = bitlake.connect(str(tmp_path / "lake"), spark=spark, catalog="jdbc", uri=uri)
    for text in ("CREATE DATABASE d", "USE d", "CREATE TABLE t (a INT, b STRING)", "INSERT INTO t VALUES (1, 'x')"):
        lake.sql(text)
    queries = {
        "SELECT *, 1 FROM t": [1, "x", 1],
        "SELECT 2, * FROM d.t WHERE a > 0": [2, 1, "x"],
        "SELECT *, a FROM t": [1, "x", 1],
        "SELECT t.*, u.* FROM t JOIN t u ON t.a = u.a": [1, "x", 1, "x"],
        "SELECT t.a, u.*, u.a + 1 FROM t JOIN (SELECT * FROM t) AS u ON t.a = u.a": [1, 1, "x", 2],
    }
    for number, (query, row) in enumerate(queries.items()):
        lake.sql(f"CREATE VIEW v{number} ({', '.join(f'c{i}' for i in range(len(row)))}) AS {query}")
    lake.sql("ALTER TABLE t ADD COLUMN c INT")
    lake.sql("ALTER TABLE t ADD COLUMN first INT FIRST")
    for number, row in enumerate(queries.values()):
        frame = lake.sql(f"SELECT * FROM v{number}")
        assert frame.columns == [f"c{i}" for i in range(len(row))] and rows_of(frame) == [row]
