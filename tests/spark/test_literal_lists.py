"""Statements with long lists of literals change the same rows on Spark as in this process, and are not parsed whole."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from engine.test_literal_lists import STATEMENTS, rows
from long import every, exhaustive

import bitlake
from bitlake.spark import engine
from bitlake.spark.read import query as spark_query
from bitlake.spark.read import scan as spark_scan

CHANGES = [s for s, short in STATEMENTS if short and s.startswith(("INSERT", "MERGE")) and "missing" not in s]


@pytest.mark.parametrize("statement", every(3, CHANGES), ids=range(len(CHANGES)))
def test_statements_change_the_same_rows(
    spark: Any, tmp_path: Path, statement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[str] = []
    parse = engine.parse_statement
    monkeypatch.setattr(engine, "parse_statement", lambda text, **a: parsed.append(text) or parse(text, **a))
    changed = []
    for name in ("spark", "duckdb"):
        lake = bitlake.connect(str(tmp_path / name), spark=spark)
        lake.create_table("t", rows())
        lake.sql(statement, engine=name)
        changed.append(lake.table("t").to_arrow().sort_by("id"))
    assert changed[0] == changed[1]
    assert [len(text) < 400 for text in parsed] == [True]


ROWS = 20_000
NUMBERS = ", ".join(str(i * 31) for i in range(600))
OTHERS = ", ".join(str(i * 3) for i in range(600))
TEXTS = ", ".join(f"'v{i * 17}'" for i in range(600))
QUERIES = [
    f"SELECT count(*), sum(v) FROM t WHERE id IN ({NUMBERS})",
    f"SELECT count(*), sum(v) FROM t WHERE id NOT IN ({NUMBERS})",
    f"SELECT count(*), sum(x.v) FROM t AS x WHERE x.id IN ({NUMBERS}) AND x.v % 2 = 0",
    f"SELECT count(*), max(s) FROM t WHERE s IN ({TEXTS})",
    f"SELECT count(*), max(s) FROM t WHERE s IN ({TEXTS}) AND id IN ({NUMBERS})",
    f"SELECT count(*), max(s) FROM t WHERE id IN ({NUMBERS}) OR v < 9",
    f"SELECT * FROM t WHERE id IN ({NUMBERS}) ORDER BY v DESC, id LIMIT 5",
    f"SELECT count(*), sum(a.v) FROM t AS a JOIN d AS d ON a.v = d.k WHERE a.id IN ({NUMBERS}) AND d.k IN ({OTHERS})",
    f"SELECT count(*), count(a.id) FROM d AS d LEFT JOIN t AS a ON a.v = d.k WHERE a.id IN ({NUMBERS})",
    f"SELECT count(*), sum(b.v) FROM t AS a JOIN t AS b ON a.id = b.v WHERE a.id IN ({NUMBERS})",
    f"SELECT count(*) FROM (SELECT id FROM t WHERE id IN ({NUMBERS})) AS x WHERE x.id > 100",
]


@pytest.fixture(scope="module")
def listed(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[bitlake.Lake, Any]:
    """A lake with tables ``t`` and ``d``, and a function that runs a query over the same rows on plain Spark."""
    lake = bitlake.connect(str(tmp_path_factory.mktemp("lists")), spark=spark)
    order = np.random.default_rng(3).permutation(ROWS)
    tables = {
        "t": pa.table({"id": order, "v": order % 997, "s": [f"v{i}" for i in order]}),
        "d": pa.table({"k": np.arange(500) * 3}),
    }
    tables["t"] = pa.concat_tables([tables["t"], pa.table({"id": [None, 31], "v": [1, 2], "s": ["v17", None]})])
    for name, table in tables.items():
        lake.create_table(name, table.schema).append(table)
        spark.createDataFrame(table).createOrReplaceTempView(f"plain_{name}")
    names = re.compile(r"(FROM|JOIN) ([td])\b")
    return lake, lambda query: spark.sql(names.sub(r"\1 plain_\2", query))


@pytest.fixture
def as_if_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many rows as the driver reads only if few of them match, and lists that Spark takes long to join."""
    monkeypatch.setattr(spark_scan, "DRIVER_ROWS", ROWS // 2)
    monkeypatch.setattr(spark_scan, "RANGE_ROWS", ROWS // 2)
    monkeypatch.setattr(spark_scan, "LONG_LIST", 500)
    monkeypatch.setattr(spark_query, "is_soon_read", lambda *_: False)


@pytest.mark.usefixtures("as_if_large")
@pytest.mark.parametrize("query", every(3, QUERIES), ids=range(len(QUERIES)))
def test_queries_with_long_lists_find_the_rows_that_spark_finds(
    listed: Any, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, plain = listed
    wanted = plain(query).collect()
    assert lake.sql(query).collect() == wanted
    monkeypatch.setattr(spark_query, "is_soon_read", lambda *_: True)
    assert lake.sql(query).collect() == wanted


@pytest.mark.usefixtures("as_if_large")
def test_few_rows_of_a_long_list_are_read_here_and_joined_with_nothing(
    listed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, _ = listed

    def plan(query: str) -> str:
        found = lake.sql(query)
        return str(found._jdf.queryExecution().optimizedPlan().toString())

    assert "Join" not in (few := plan(QUERIES[0])) and "LocalRelation" in few
    assert "Join" not in plan(QUERIES[2])
    assert "Join" not in plan(QUERIES[4])
    assert "LeftSemi" not in plan(QUERIES[7])
    monkeypatch.setattr(spark_scan, "LOCAL_ROWS", 301)
    assert "Join" not in plan(QUERIES[0])
    monkeypatch.setattr(spark_scan, "LOCAL_ROWS", 300)
    assert "Join LeftSemi" in plan(QUERIES[0]), "more rows than 300 and half of the list are Spark's"


@pytest.mark.usefixtures("as_if_large")
@pytest.mark.parametrize("test", ["IN", exhaustive("NOT IN")])
def test_lists_of_the_same_values_filter_each_table(listed: Any, monkeypatch: pytest.MonkeyPatch, test: str) -> None:
    """The list of a table that Spark reads was left out where the rows of another came from the driver."""
    lake, plain = listed
    monkeypatch.setattr(spark_scan, "LOCAL_ROWS", 100)
    few = pa.table({"id": np.arange(900) * 31, "w": np.arange(900)})
    lake.create_table("e", few.schema, if_not_exists=True).overwrite(few)
    lake.spark.createDataFrame(few).createOrReplaceTempView("plain_e")
    query = (
        "SELECT count(*), sum(e.w) FROM t AS a JOIN {}e AS e ON a.v = e.w "
        f"WHERE a.id {test} ({NUMBERS}) AND e.id IN "
        "({})"
    )
    again = NUMBERS.replace(", ", ",")
    assert lake.sql(query.format("", again)).collect() == plain(query.format("plain_", again)).collect()


@pytest.mark.usefixtures("as_if_large")
def test_spark_reads_char_next_to_columns_that_are_not_null(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark pads CHAR in a projection above the relation, which was copied like the relation itself."""
    monkeypatch.setattr(spark_scan, "DRIVER_ROWS", 10)
    monkeypatch.setattr(spark_scan, "LOCAL_ROWS", 10)
    lake = bitlake.connect(str(tmp_path), spark=spark)
    lake.sql("CREATE TABLE c (id BIGINT NOT NULL, word CHAR(4))")
    lake.sql("INSERT INTO c SELECT id, concat('w', id % 9) FROM range(1000)")
    assert lake.sql("SELECT count(*), max(id) FROM c WHERE word = 'w3'").collect() == [(111, 993)]
    found = lake.sql(f"SELECT count(*), min(word) FROM c WHERE id IN ({NUMBERS})").collect()
    assert found == [(33, "w0  ")]
