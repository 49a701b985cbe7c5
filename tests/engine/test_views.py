"""Views that a jdbc catalog keeps, without Spark: made, changed, shown, and read by DuckDB."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bitlake
from bitlake.cli.result import Result
from bitlake.errors import AlreadyExists, BitlakeError, CorruptError, InvalidRequest, NotFound, UnsupportedFeature
from bitlake.lake import lake_has_spark

pytest.importorskip("duckdb")


def connect(folder: Path) -> bitlake.Lake:
    return bitlake.connect(folder / "lake", catalog="jdbc", uri=f"sqlite:///{folder / 'names.db'}")


@pytest.fixture
def lake(tmp_path: Path) -> bitlake.Lake:
    lake = connect(tmp_path)
    lake.create_database("d")
    rows = pa.table({"a": [1, 2, 3], "b": ["x", "y", None], "m": pa.array([150, 2, 3], pa.decimal128(9, 2))})
    lake.create_table("d.t", rows.schema, options={"file-index.bitmap.columns": "b"}).append(rows)
    run(lake, "USE d")
    return lake


def run(lake: bitlake.Lake, text: str) -> list[Any]:
    answer = lake.sql(text, engine="duckdb")
    return answer.to_pylist() if isinstance(answer, pa.Table) else answer.to_arrow_table().to_pylist()


def test_a_view_is_made_read_and_dropped(lake: bitlake.Lake, tmp_path: Path) -> None:
    run(lake, "CREATE VIEW v COMMENT 'some' AS SELECT a, b, m FROM t WHERE b IS NOT NULL")
    run(lake, "CREATE VIEW early AS SELECT a FROM t VERSION AS OF 1")
    run(lake, "INSERT INTO t VALUES (4, 'z', 0.5)")
    run(lake, "CREATE VIEW inner_view AS SELECT v.b, count(*) AS n FROM v GROUP BY v.b")
    run(lake, "INSERT INTO t SELECT a + 10, b, m FROM v WHERE a = 1")
    other = connect(tmp_path)  # another session, whose current database is another
    assert run(other, "WITH t AS (SELECT 1 AS a) SELECT b, n FROM d.inner_view x WHERE n > 1") == [{"b": "x", "n": 2}]
    assert run(other, "SELECT count(*) AS n FROM d.v JOIN d.early USING (a)") == [{"n": 2}]
    assert [r["viewName"] for r in run(other, "SHOW VIEWS IN d LIKE 'e*|v'")] == ["early", "v"]
    assert run(other, "SHOW VIEWS") == []
    assert run(other, "DESCRIBE d.inner_view") == [
        {"col_name": "b", "data_type": "string", "comment": None},
        {"col_name": "n", "data_type": "bigint", "comment": None},
    ]
    extended = {r["col_name"]: r["data_type"] for r in run(other, "DESCRIBE EXTENDED d.v")}
    assert extended["m"] == "decimal(9,2)" and extended["Comment"] == "some"
    assert extended["View Text"] == "SELECT a, b, m FROM d.t WHERE b IS NOT NULL"
    plan = run(other, "EXPLAIN SELECT a FROM d.v WHERE b = 'nothing'")[0]["plan"]
    assert "d.t" in plan and "0 of 3" in plan
    run(lake, "ALTER VIEW v AS SELECT a, 'new' AS b FROM t WHERE a = 1")
    assert run(lake, "SELECT * FROM inner_view") == [{"b": "new", "n": 1}]
    run(lake, "DROP VIEW v")
    run(lake, "DROP VIEW IF EXISTS v")
    with pytest.raises(NotFound, match="view 'v' does not exist"):
        run(lake, "DROP VIEW v")
    with pytest.raises(NotFound, match="view 'd.earl' does not exist; did you mean early"):
        run(lake, "ALTER VIEW earl AS SELECT 1 AS a")
    assert not lake_has_spark(lake) and not lake_has_spark(other)


def test_a_view_is_renamed_with_all_that_it_has(lake: bitlake.Lake) -> None:
    lake.create_database("e")
    run(lake, "CREATE VIEW v COMMENT 'some' AS SELECT a FROM t WHERE a < 3")
    run(lake, "CALL sys.alter_view_dialect('d.v', 'add', 'flink', 'SELECT 1')")
    before = lake._catalog._database.rows("SELECT view_schema FROM paimon_views")  # type: ignore[attr-defined]
    run(lake, "ALTER VIEW v RENAME TO e.w")
    assert lake._catalog._database.rows("SELECT view_schema FROM paimon_views") == before  # type: ignore[attr-defined]
    assert run(lake, "SELECT count(*) AS n FROM e.w") == [{"n": 2}] and run(lake, "SHOW VIEWS IN d") == []
    run(lake, "ALTER VIEW e.w RENAME TO x")  # in its own database
    assert [r["viewName"] for r in run(lake, "SHOW VIEWS IN e")] == ["x"]
    lake.create_table("d.u", pa.schema([("a", pa.int64())]))
    for new, kind, message in (
        ("x", AlreadyExists, "view 'e.x' already exists; drop it first"),
        ("d.u", AlreadyExists, "table 'd.u' already exists; drop it first"),
        ("spark_catalog.e.z", InvalidRequest, "view 'e.x' cannot move to another catalog, 'spark_catalog'"),
        ("no.z", NotFound, "database 'no' does not exist"),
    ):
        with pytest.raises(kind, match=message):
            run(lake, f"ALTER VIEW e.x RENAME TO {new}")
    lake.create_table("d.gone", pa.schema([("a", pa.int64())]))
    run(lake, "CREATE VIEW reads AS SELECT a FROM d.gone")
    lake.drop_table("d.gone")
    with pytest.raises(InvalidRequest, match="view 'd.gone' cannot read itself"):
        run(lake, "ALTER VIEW reads RENAME TO gone")
    with pytest.raises(NotFound, match="table 'e.x' does not exist: it is a view; use SELECT, ALTER VIEW or DROP VIEW"):
        run(lake, "DROP TABLE e.x")


def test_a_view_names_its_columns(lake: bitlake.Lake, tmp_path: Path) -> None:
    """As Spark's own catalog; the names are in the query, for other readers of the view."""
    text = "SELECT b, sum(a) AS s FROM t WHERE b IS NOT NULL GROUP BY b -- per b"
    run(lake, f"CREATE VIEW v (`the b` COMMENT 'it''s b', total) COMMENT 'some' AS {text}")
    other = connect(tmp_path)
    assert sorted(run(other, "SELECT * FROM d.v"), key=str) == [{"the b": "x", "total": 1}, {"the b": "y", "total": 2}]
    assert run(other, "SELECT v.total FROM d.v WHERE `the b` = 'y'") == [{"total": 2}]
    described = [(r["col_name"], r["comment"]) for r in run(other, "DESCRIBE d.v")]
    assert described == [("the b", "it's b"), ("total", None)]
    with sqlite3.connect(tmp_path / "names.db") as database:
        ((stored,),) = database.execute("SELECT view_schema FROM paimon_views").fetchall()
    document = json.loads(stored)
    assert [(f["name"], f.get("description")) for f in document["fields"]] == [("the b", "it's b"), ("total", None)]
    assert document["comment"] == "some"
    run(lake, "CREATE OR REPLACE VIEW v (x) AS SELECT count(*) AS n FROM t")
    assert run(lake, "SELECT x FROM v") == [{"x": 3}]
    for columns, message in (
        ("n", r"lists 1 columns \(n\), and its query has 2 \(a, b\)"),
        ("n, N", "lists a column twice"),
    ):
        with pytest.raises(InvalidRequest, match=f"view 'd.w' {message}"):
            run(lake, f"CREATE VIEW w ({columns}) AS SELECT a, b FROM t")


def test_the_columns_of_a_view_when_its_table_gets_more(lake: bitlake.Lake) -> None:
    run(lake, "CREATE VIEW v (x, y, z) AS SELECT * FROM t")
    run(lake, "CREATE VIEW w (z, y) AS SELECT m, b FROM (SELECT * FROM t)")
    before = run(lake, "SELECT * FROM v ORDER BY x")
    assert before and set(before[0]) == {"x", "y", "z"}
    run(lake, "ALTER TABLE t ADD COLUMN c INT")
    assert run(lake, "SELECT * FROM v ORDER BY x") == before
    assert run(lake, "SELECT z, y FROM w ORDER BY z") == run(lake, "SELECT z, y FROM v ORDER BY z")
    with pytest.raises(InvalidRequest, match="lists 3 columns"):
        run(lake, "CREATE VIEW x (x, y, z) AS SELECT * FROM t")


def test_what_is_refused(lake: bitlake.Lake, tmp_path: Path) -> None:
    run(lake, "CREATE VIEW v AS SELECT a FROM t")
    run(lake, "CREATE VIEW IF NOT EXISTS v AS SELECT b FROM t")
    for text, kind, message in (
        ("CREATE VIEW v AS SELECT b FROM t", AlreadyExists, "view 'd.v' already exists"),
        ("CREATE VIEW t AS SELECT b FROM t", AlreadyExists, "a table has this name"),
        ("CREATE TABLE v (a INT)", AlreadyExists, "a view has this name"),
        ("CREATE VIEW w AS SELECT nope FROM t", NotFound, "nope"),
        ("CREATE VIEW w AS SELECT a FROM nothing", BitlakeError, "nothing"),
        ("CREATE VIEW w AS SELECT explode(array(a)) AS x FROM t", UnsupportedFeature, "EXPLODE"),
        ("CREATE VIEW w AS SELECT m * 2 AS m FROM t", UnsupportedFeature, "needs Spark"),
        ("CREATE TEMPORARY VIEW w AS SELECT a FROM t", UnsupportedFeature, "needs Spark"),
        ("SELECT b FROM v", BitlakeError, "'b'"),
        ("DESCRIBE v a", InvalidRequest, "'d.v' is a view"),
        ("DROP DATABASE d", InvalidRequest, "1 views"),
    ):
        with pytest.raises(kind, match=message):
            run(lake, text)
    assert [r["viewName"] for r in run(lake, "SHOW VIEWS")] == ["v"]
    with sqlite3.connect(tmp_path / "names.db") as database:
        database.execute(
            "UPDATE paimon_views SET view_schema = ?", (json.dumps({"fields": [{"id": 0}], "query": "x"}),)
        )
    with pytest.raises(CorruptError, match="the catalog's entry of view 'd.v' cannot be parsed"):
        run(lake, "SELECT * FROM v")


def test_folders_keep_no_views(tmp_path: Path) -> None:
    """SHOW VIEWS is then about the session, which has none; auto needs no Spark for it."""
    lake = bitlake.connect(tmp_path)
    assert Result.of(lake, "SHOW VIEWS", 0, "auto").rows.to_pylist() == []
    with pytest.raises(UnsupportedFeature, match="view 'v', which the lake's catalog does not keep, needs Spark"):
        run(lake, "CREATE VIEW v AS SELECT 1 AS a")
    assert not lake_has_spark(lake)


@pytest.mark.parametrize("change", ["CREATE OR REPLACE VIEW v AS", "ALTER VIEW v AS"])
@pytest.mark.parametrize(
    "query", ["SELECT a FROM w", "SELECT a FROM d.v WHERE a > 2", "SELECT a FROM t WHERE a IN (SELECT a FROM w)"]
)
def test_a_view_does_not_read_itself(lake: bitlake.Lake, change: str, query: str) -> None:
    run(lake, "CREATE VIEW v AS SELECT a FROM t WHERE a > 1")
    run(lake, "CREATE VIEW w AS SELECT a FROM v")
    with pytest.raises(InvalidRequest, match="view 'd.v' cannot read itself"):
        run(lake, f"{change} {query}")
    assert run(lake, "SELECT a FROM w ORDER BY a") == [{"a": 2}, {"a": 3}]
    run(lake, f"{change} SELECT a FROM t WHERE a > 2")
    assert run(lake, "SELECT a FROM w") == [{"a": 3}]
