"""Queries with long lists of literals on Spark: the same rows as plain Spark over the same table."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from long import every

import bitlake
from bitlake.expressions.literal_lists import with_lists
from bitlake.spark import context

NUMBERS = ", ".join(str(3 * i - 300) for i in range(400))
TEXTS = ", ".join(f"'k{2 * i}'" for i in range(200))
CONDITIONS = {
    f"id IN ({NUMBERS}) AND id < 500": True,
    f"small NOT IN ({NUMBERS})": True,
    f"NOT (t.k IN ({TEXTS})) AND (id NOT IN ({NUMBERS}))": True,
    f"k IN ({TEXTS}) OR id IN ({NUMBERS})": False,
    f"code IN ({NUMBERS})": False,
    f"id IN ({NUMBERS}) OR k IN (SELECT k FROM t WHERE id = 5)": False,
}


def lake_of(tmp_path: Any, spark: Any, path: str) -> bitlake.Lake:
    lake = bitlake.connect(str(tmp_path), spark=spark)
    rows = pa.table(
        {
            "id": pa.array([*range(900), 1 << 40], pa.int64()),
            "small": pa.array([None if i % 11 == 0 else i % 120 - 50 for i in range(901)], pa.int8()),
            "k": [None if i % 13 == 0 else f"k{i % 450}" for i in range(901)],
            "code": [f"0{i}" for i in range(901)],
        }
    )
    lake.create_table("t", rows, options={"read.spark-path": path})
    return lake


def joined(frame: Any) -> bool:
    return "Join" in frame._jdf.queryExecution().optimizedPlan().toString()


@pytest.mark.exhaustive
@pytest.mark.parametrize("condition", CONDITIONS, ids=range(len(CONDITIONS)))
def test_the_same_rows_as_plain_spark(tmp_path: Any, spark: Any, condition: str) -> None:
    lake = lake_of(tmp_path, spark, "spark")
    frame = lake.sql(f"SELECT id FROM t WHERE {condition}")
    assert sorted(frame.collect()) == by_plain_spark(lake, condition)
    # Only a list that WHERE requires is a table, compared by a join.
    assert joined(frame) is (CONDITIONS[condition] or "SELECT" in condition)


def test_spark_joins_nothing_with_a_list_whose_rows_the_driver_read(tmp_path: Any, spark: Any) -> None:
    lake = lake_of(tmp_path, spark, "auto")
    condition = f"id IN ({NUMBERS}) AND id < 500"
    frame = lake.sql(f"SELECT id FROM t WHERE {condition}")
    assert sorted(frame.collect()) == by_plain_spark(lake, condition)
    assert not joined(frame)


def by_plain_spark(lake: bitlake.Lake, condition: str) -> list[Any]:
    lake.spark.createDataFrame(lake.table("t").to_arrow()).createOrReplaceTempView("plain_rows")
    written = condition.replace("t.k", "plain_rows.k").replace("FROM t", "FROM plain_rows")
    return sorted(lake.spark.sql(f"SELECT id FROM plain_rows WHERE {written}").collect())


STATEMENTS = [
    f"DELETE FROM t WHERE id IN ({NUMBERS})",
    f"DELETE FROM t AS o WHERE o.id IN ({NUMBERS}) AND substring(o.code, 1, 1) = '0'",
    f"UPDATE t SET code = concat('x', id) WHERE id IN ({NUMBERS})",
    f"UPDATE t SET code = IF(id IN ({NUMBERS}), 'y', code)",
]


KEYS: dict[str, dict[str, Any]] = {
    "append": {},
    "merged": {"primary_key": ["id"]},
    "vectors": {"primary_key": ["id"], "options": {"deletion-vectors.enabled": "true"}},
}


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("statement", every(2, STATEMENTS), ids=range(len(STATEMENTS)))
def test_statements_change_the_listed_rows(
    tmp_path: Any, spark: Any, statement: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark takes 20 s to plan 100,000 literals: it gets those of SET, and none that WHERE requires."""
    lake = bitlake.connect(str(tmp_path), spark=spark)
    rows = pa.table({"id": pa.array(range(900), pa.int64()), "code": [f"0{i}" for i in range(900)]})
    table = lake.create_table("t", rows.schema, **KEYS[kind])
    table.append(rows.slice(0, 500))
    table.append(rows.slice(400))
    if kind == "append":
        lake.sql("DELETE FROM t WHERE id >= 400 AND id < 500")
        table.append(rows.slice(400, 100))
    given = []
    monkeypatch.setattr(context, "with_lists", lambda text: given.append(with_lists(text)) or given[-1])
    lake.sql(statement)
    assert any(NUMBERS in text for text in given) is ("IF(" in statement)
    listed = {int(n) for n in NUMBERS.split(",")}
    expected = [
        (n, f"x{n}" if "'x'" in statement else "y" if "'y'" in statement else f"0{n}") if n in listed else (n, f"0{n}")
        for n in range(900)
        if n not in listed or not statement.startswith("DELETE")
    ]
    kept = lake.table("t").to_arrow().sort_by("id")
    assert list(zip(*kept.to_pydict().values(), strict=True)) == expected
