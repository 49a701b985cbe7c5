"""Tuples in queries on DuckDB: the rows that a scan, or the terms one by one, find."""

from __future__ import annotations

import math
import random
from typing import Any

import pyarrow as pa
import pytest
from long import every

import bitlake
from bitlake.sql.duckdb_values import NotTranslatable

ROWS = 2000


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> bitlake.Lake:
    rng = random.Random(3)

    def some(*values: Any) -> list[Any]:
        return [rng.choice([None, *values]) for _ in range(ROWS)]

    columns = {
        "id": pa.array(range(ROWS), pa.int64()),
        "a": pa.array(some(*range(30)), pa.int32()),
        "c": pa.array(some(*range(40)), pa.int64()),
        "s": pa.array(some("x", "y", "z z", "1")),
        "d": pa.array(some(0.0, -0.0, 1.5, math.nan), pa.float64()),
        "day": pa.array(some(20454, 20455), pa.int32()).cast(pa.date32()),
    }
    lake = bitlake.connect(str(tmp_path_factory.mktemp("tuples")))
    lake.create_table("t", pa.table(columns))
    return lake


def pairs(count: int, seed: int, more: str = "") -> str:
    rng = random.Random(seed)
    return " OR ".join(
        rng.choice(
            [
                f"(a = {rng.randrange(30)} AND c = {rng.randrange(40)}{more})",
                f"({rng.randrange(40)} = t.c AND (a = {rng.randrange(30)}){more})",
            ]
        )
        for _ in range(count)
    )


LIST = ", ".join(f"({i % 30}, {i % 40}L)" for i in range(0, 900, 7))
CONDITIONS = [
    "(a, c) IN ((1, 2L), (3, CAST(NULL AS BIGINT)), (CAST(NULL AS INT), CAST(NULL AS BIGINT)))",
    "(a, c) NOT IN ((1, 2L), (3, CAST(NULL AS BIGINT)), (CAST(NULL AS INT), CAST(NULL AS BIGINT)))",
    "NOT ((d, s) IN ((double('NaN'), 'x'), (0.0D, 'z z'), (CAST(NULL AS DOUBLE), CAST(NULL AS STRING))))",
    "(day, a) IN ((DATE '2026-01-01', 4), (DATE '2026-01-02', CAST(NULL AS INT))) OR (a, c) NOT IN ((7, 7L))",
    f"(a, c) IN ({LIST})",
    f"(a, c) NOT IN ({LIST}) AND c > 3",
]


@pytest.mark.parametrize("condition", CONDITIONS, ids=range(len(CONDITIONS)))
def test_lists_of_tuples(lake: bitlake.Lake, condition: str) -> None:
    found = lake.sql(f"SELECT id FROM t WHERE {condition} ORDER BY id", engine="duckdb").to_arrow_table()
    expected = lake.table("t").scan(columns=["id"], where=condition).to_arrow()
    assert 0 < found.num_rows < ROWS
    assert found.column("id").to_pylist() == expected.column("id").to_pylist()
    each = lake.sql(f"SELECT id, {condition} AS chosen FROM t ORDER BY id", engine="duckdb").fetchall()
    assert [row[0] for row in each if row[1]] == found.column("id").to_pylist()
    assert all(row[1] is not None for row in each) or "c > 3" in condition


OR_CONDITIONS = [
    pairs(300, 1),
    f"({pairs(300, 2)} OR (s = 'x' AND a = 3) OR a = 29) AND id > 100",
    pairs(40, 3, " AND s = 'x'"),
    f"NOT ({pairs(300, 4)})",
    " OR ".join(f"(s = '{i % 3}' AND c = {i})" for i in range(99)),
    " OR ".join(f"(s = {i % 3} AND c = {i})" for i in range(99)),
    " OR ".join(f"(d = {i % 3} AND c = {i})" for i in range(99)),
    f"CASE WHEN {pairs(60, 5)} THEN true END IS NULL",
]


@pytest.mark.parametrize("condition", every(2, OR_CONDITIONS), ids=range(len(OR_CONDITIONS)))
def test_pairs_joined_by_or(lake: bitlake.Lake, condition: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(note: str) -> Any:
        made = f"SELECT t.id FROM t WHERE {condition} ORDER BY t.id -- {note}"
        try:
            return lake.sql(made, engine="duckdb").fetchall()
        except NotTranslatable as e:
            return e.why

    grouped = found("grouped")
    monkeypatch.setattr("bitlake.sql.duckdb_lists.MANY", 10**6)
    assert grouped == found("as written")


def test_pairs_are_a_table(lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB took 2.9 s for 1,000 pairs, and 20 s for 3,000."""
    from bitlake.sql import duckdb_engine

    made: list[Any] = []
    translate = duckdb_engine.translate
    monkeypatch.setattr(duckdb_engine, "translate", lambda *rest: made.append(translate(*rest)) or made[-1])
    lake.sql(f"SELECT count(*) AS n FROM t WHERE s > 'a' AND ({pairs(500, 8)})", engine="duckdb").fetchall()
    assert len(made[0].sql) < 600 and sum(t.num_rows for t in made[0].lists.values()) == 500


@pytest.mark.parametrize("condition", ["(a, c) IN ((1, 2))", "(a, c) IN ((1, NULL))", "(a, c) IN ((1, 2L, 3))"])
def test_other_types_are_refused(lake: bitlake.Lake, condition: str) -> None:
    with pytest.raises(NotTranslatable, match="equal types"):
        lake.sql(f"SELECT id FROM t WHERE {condition}", engine="duckdb")
