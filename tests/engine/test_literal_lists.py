"""Queries with long lists of literals on DuckDB: the same results as with the literals in the text."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from long import every

import bitlake
from bitlake.engine import engine
from bitlake.errors import BitlakeError
from bitlake.expressions.literal_lists import has_markers
from bitlake.sql import duckdb_engine

NUMBERS = ", ".join(str(3 * i - 300) for i in range(400))
OTHERS = ", ".join(str(5 * i) for i in range(400))
TEXTS = ", ".join(f"'k{2 * i}'" for i in range(200))
PRICES = ", ".join(f"{i}.5" for i in range(0, 300, 2))
ARABIC = ", ".join(chr(0x660 + i % 10) for i in range(300))
QUERIES = [
    f"SELECT count(*) AS n, sum(id) AS s FROM t WHERE id IN ({NUMBERS})",
    f"SELECT id FROM t WHERE small NOT IN ({NUMBERS}) ORDER BY id",
    f"SELECT id FROM t WHERE NOT (k IN ({TEXTS})) OR id = 7 ORDER BY id",
    f"SELECT id, k IN ({TEXTS}) AS there, small IN ({NUMBERS}) AS low FROM t ORDER BY id",
    f"SELECT sum(CASE WHEN id NOT IN ({NUMBERS}) THEN 1 ELSE 0 END) AS s FROM t GROUP BY k IN ({TEXTS}) ORDER BY s",
    f"SELECT id FROM t WHERE price IN ({NUMBERS}) OR k IN ({NUMBERS}, NULL) ORDER BY id",
    f"WITH w AS (SELECT id AS k FROM t WHERE id IN ({NUMBERS})) SELECT k FROM w WHERE k IN ({OTHERS}) ORDER BY k",
    f"SELECT a.id FROM t AS a LEFT JOIN t AS b ON a.id = b.id AND b.id IN ({NUMBERS}) WHERE b.id IS NULL ORDER BY a.id",
    f"SELECT id IN ({NUMBERS}) FROM t",
    f"SELECT id FROM t WHERE k = 'id IN ({NUMBERS})' OR missing IN ({NUMBERS})",
    f"SELECT id FROM t WHERE k IN ({NUMBERS}) ORDER BY id",
    f"SELECT id FROM t WHERE id IN ({ARABIC}) ORDER BY id",
    f"SELECT max(id) AS m FROM t WHERE 6 IN ({NUMBERS}) AND CAST(NULL AS INT) IN ({NUMBERS}) IS NULL",
]


def rows() -> pa.Table:
    return pa.table(
        {
            "id": pa.array([*range(900), 1 << 40], pa.int64()),
            "small": pa.array([None if i % 11 == 0 else i % 120 - 50 for i in range(901)], pa.int8()),
            "k": [None if i % 13 == 0 else f"k{i % 450}" for i in range(900)] + ["12"],
            "price": pa.array([Decimal(i) / 2 for i in range(901)], pa.decimal128(9, 2)),
        }
    )


@pytest.fixture
def lake(tmp_path: Any) -> bitlake.Lake:
    lake = bitlake.connect(str(tmp_path))
    lake.create_table("t", rows(), options={"file-index.bitmap.columns": "k", "file-index.bsi.columns": "small"})
    return lake


def outcome(lake: bitlake.Lake, query: str) -> Any:
    try:
        return lake.sql(query, engine="duckdb").to_arrow_table()
    except BitlakeError as e:
        return str(e)


@pytest.mark.parametrize("query", every(2, QUERIES), ids=range(len(QUERIES)))
def test_the_same_as_literals(lake: bitlake.Lake, query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = outcome(lake, query)
    assert not isinstance(found, str) or not has_markers(found)
    monkeypatch.setattr(engine, "without_lists", lambda text, **_: (text, ()))
    assert found == outcome(lake, query)


def test_neither_the_parser_nor_duckdb_sees_the_literals(lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    translated: list[Any] = []
    translate = duckdb_engine.translate

    def seen(text: Any, *rest: Any) -> Any:
        translated.append((text, translate(text, *rest)))
        return translated[-1][1]

    monkeypatch.setattr(duckdb_engine, "translate", seen)
    for _ in range(2):
        assert lake.sql(QUERIES[0], engine="duckdb").fetchall() == [(300, 134550)]
        assert lake.sql(QUERIES[0].replace(NUMBERS, OTHERS), engine="duckdb").fetchall() == [(180, 80550)]
    assert len(translated) == 2  # other literals are another query
    assert all(len(text) < 200 and len(made.sql) < 500 and len(made.lists) == 1 for text, made in translated)


def test_only_queries_lose_their_lists(lake: bitlake.Lake) -> None:
    lake.sql(f"DELETE FROM t WHERE id IN ({NUMBERS})", engine="duckdb")
    assert lake.table("t").count() == 601
    lake.sql(f"CREATE TABLE u AS SELECT id FROM t WHERE id IN ({OTHERS})", engine="duckdb")
    assert lake.table("u").count() == 120


OWN = ", ".join(f"({3 * i}L, 'k{3 * i}')" for i in range(99))
SOURCE = "USING (SELECT id, k FROM t WHERE id < 99) AS s ON t.id = s.id"
DAYS = ", ".join(f"DATE '2026-01-{i % 28 + 1:02}'" for i in range(100))
STATEMENTS = [
    (f"INSERT INTO t SELECT id + 5000, small, k, price FROM t WHERE id IN ({NUMBERS})", True),
    (f"INSERT INTO t SELECT 1, 2, CASE WHEN k IN ({TEXTS}) THEN 'in' ELSE 'out' END AS k, price FROM t", True),
    (f"INSERT OVERWRITE t SELECT * FROM t WHERE small NOT IN ({NUMBERS}) OR price IN ({PRICES})", True),
    (f"INSERT INTO t VALUES (1, 2, 'id IN ({NUMBERS})', 3)", False),
    (f"MERGE INTO t {SOURCE} WHEN MATCHED AND s.id IN ({NUMBERS}) THEN UPDATE SET small = 7", True),
    (f"MERGE INTO t {SOURCE} AND t.k NOT IN ({TEXTS}) WHEN MATCHED THEN DELETE", True),
    (f"MERGE INTO t {SOURCE} WHEN MATCHED THEN UPDATE SET k = CASE WHEN s.k IN ({TEXTS}) THEN 'in' END", True),
    (f"MERGE INTO t {SOURCE} WHEN NOT MATCHED BY SOURCE AND t.id IN ({NUMBERS}) THEN DELETE", True),
    (f"MERGE INTO t {SOURCE} WHEN MATCHED AND missing IN ({NUMBERS}) THEN DELETE", True),
    (f"DELETE FROM t WHERE (id, k) IN ({OWN})", True),
    (f"DELETE FROM t WHERE lower(upper(k)) IN ({TEXTS}) OR id + 1 NOT IN ({NUMBERS})", True),
    (f"DELETE FROM t WHERE id IN ({NUMBERS})", True),
    (f"DELETE FROM t WHERE k NOT IN ({TEXTS}) AND small > 3", True),
    (f"DELETE FROM t AS o WHERE o.price IN ({PRICES}, NULL) OR NOT (o.small IN ({NUMBERS}))", True),
    (f"UPDATE t SET small = 1, k = 'x' WHERE id IN ({NUMBERS})", True),
    (f"UPDATE t SET k = CASE WHEN id IN ({NUMBERS}) THEN 'in' ELSE 'out' END WHERE k IN ({TEXTS})", True),
    (f"UPDATE t SET k = CASE WHEN small NOT IN ({NUMBERS}) OR k IN ({TEXTS}) THEN 'in' END", True),
    (f"UPDATE t SET k = CASE k IN ({TEXTS}) WHEN true THEN 'in' WHEN false THEN 'out' ELSE 'NULL' END", True),
    (f"UPDATE t SET small = CASE WHEN price IN ({NUMBERS}) THEN 1 END", True),
    (f"UPDATE t SET small = CASE WHEN id IN ({NUMBERS}) THEN 300 ELSE 2 END", False),
    (f"UPDATE t SET small = CASE WHEN price IN ({PRICES}) THEN 1 ELSE 2 END", False),
    (f"UPDATE t SET small = CASE WHEN 6 IN ({NUMBERS}) THEN 1 END", False),
    (f"UPDATE t SET small = id IN ({NUMBERS})", True),
    (f"UPDATE t SET k = 'id IN ({NUMBERS})' WHERE id = 7", False),
    (f"DELETE FROM t WHERE CASE WHEN id IN ({NUMBERS}) THEN small = 1 ELSE id = 2 END", False),
    (f"DELETE FROM t WHERE missing IN ({NUMBERS})", True),
    (f"DELETE FROM t WHERE id IN ({DAYS})", False),
    (f"DELETE FROM t WHERE id IN ({NUMBERS}) AND k IN (SELECT k FROM t WHERE id IN ({OTHERS}))", False),
]


@pytest.mark.parametrize(("statement", "short"), every(3, STATEMENTS), ids=range(len(STATEMENTS)))
def test_statements_change_the_same_rows(
    lake: bitlake.Lake, statement: str, short: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Statements read 100,000 literals one by one: DELETE and UPDATE in about 3 s, MERGE and INSERT in a minute."""
    parsed: list[str] = []
    parse = engine.parse_statement
    monkeypatch.setattr(engine, "parse_statement", lambda text, **a: parsed.append(text) or parse(text, **a))
    snapshot = lake.table("t").snapshot.id

    def run() -> Any:
        found = changed()
        rows = lake.table("t").to_arrow().sort_by("id")
        lake.table("t").history.rollback(snapshot)
        return found, rows

    def changed() -> Any:
        try:
            return lake.sql(statement, engine="duckdb")
        except BitlakeError as e:
            return type(e), str(e)

    found = run()
    assert not has_markers(str(found[0]))
    assert (len(parsed) == 1 and len(parsed[0]) < 300) == short
    monkeypatch.setattr(engine, "without_lists", lambda text, **_: (text, ()))
    assert found == run()
