"""MERGE of many rows by keys: pairs found in this process against Spark's join, over the same tables."""

from __future__ import annotations

import random
from typing import Any

import pytest
from long import exhaustive

import bitlake
from bitlake.errors import BitlakeError, InvalidRequest
from bitlake.spark.dml import key_pairs, merge

pytestmark = pytest.mark.spark

COLUMNS = "id INT, big BIGINT, k STRING, a INT, p STRING"
VALUES = (
    "int(IF(id % 17 = 0, NULL, id)), id * 3000000000, concat('k', id % 90), int(id % 7), IF(id % 2 = 0, 'even', 'odd')"
)
TABLES = {
    "vectors": "TBLPROPERTIES ('deletion-vectors.enabled' = 'true')",
    "copy-on-write": "",
    "partitioned": "PARTITIONED BY (p) TBLPROPERTIES ('deletion-vectors.enabled' = 'true')",
}
BY_KEYS = [
    "t.id = s.id",
    "s.id = t.id AND t.big = s.big",
    "(t.k = s.k) AND (t.id = s.wide)",
    "t.p = s.p AND t.id = s.id",
    "t.big = s.wide",
]
BY_SPARK = [
    "t.id = s.id AND t.id = s.wide",
    "t.id = s.id AND t.a > 2",
    "t.id <=> s.id",
    "t.id = s.id + 1",
    "t.id = s.id OR t.big = 0",
]
CLAUSES = [
    "WHEN MATCHED THEN UPDATE SET id = s.id, big = s.big, k = s.k, a = s.n",
    "WHEN MATCHED THEN UPDATE SET a = s.n WHEN NOT MATCHED THEN INSERT (id, k, a, p) VALUES (s.id, s.k, s.n, s.p)",
    "WHEN MATCHED THEN UPDATE SET a = t.a + s.n WHEN NOT MATCHED AND s.n > 3 THEN INSERT (id, a) VALUES (id, n)",
    "WHEN MATCHED THEN DELETE",
    "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, big, p) VALUES (s.id, s.big, 'new')",
    "WHEN MATCHED THEN UPDATE SET k = concat(s.k, 'x') WHEN NOT MATCHED BY SOURCE AND t.a = 3 THEN DELETE",
    "WHEN MATCHED AND s.n > 2 THEN UPDATE SET a = s.n WHEN MATCHED THEN DELETE",
]


def outcome(lake: bitlake.Lake, table: str, text: str) -> tuple[Any, ...]:
    """What a MERGE returns or raises, and the table's rows after it."""
    try:
        done: Any = tuple(lake.sql(text.format(table)).collect()[0])
    except BitlakeError as e:
        done = type(e)
    return done, sorted(map(repr, lake.table(table).to_arrow().to_pylist()))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", TABLES)
def test_pairs_are_those_of_sparks_join(lake: bitlake.Lake, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "merge_few", lambda *_: None)
    found: list[bool] = []
    original = key_pairs.key_pairs

    def recorded(*arguments: Any) -> Any:
        pairs = original(*arguments)
        found.append(pairs is not None)
        return pairs

    monkeypatch.setattr(merge, "key_pairs", recorded)
    for table in ("here", "there"):
        lake.sql(f"CREATE TABLE {table} ({COLUMNS}) {TABLES[name]}")
        for first in (0, 200):
            lake.sql(f"INSERT INTO {table} SELECT {VALUES} FROM range({first}, {first + 200})")
        lake.sql(f"DELETE FROM {table} WHERE id IN (5, 205, 206)")
    pick = random.Random(name)
    for turn, on in enumerate([*BY_KEYS, *BY_SPARK, *BY_KEYS]):
        ids = pick.sample(range(-20, 450), 60)
        rows = [
            (
                pick.choice([None, i, i, i]),
                i * 3_000_000_000,
                f"k{i % 90}",
                pick.randrange(6),
                i,
                "odd" if i % 2 else "even",
            )
            for i in ids
        ]
        rows += rows[:1] if turn % 5 == 4 else []  # a key twice
        source = lake.spark.createDataFrame(rows, "id INT, big BIGINT, k STRING, n INT, wide BIGINT, p STRING")
        source.repartition(3).createOrReplaceTempView("changes")
        clauses = CLAUSES[turn % len(CLAUSES)]
        text = f"MERGE INTO {{}} AS t USING changes AS s ON {on} {clauses}"
        monkeypatch.setattr(key_pairs, "MOST_SOURCE_ROWS", 1000)
        found.clear()
        here = outcome(lake, "here", text)
        if clauses.count("WHEN MATCHED") == 1 and turn % 5 != 4:
            assert found == [on in BY_KEYS], text
        monkeypatch.setattr(key_pairs, "MOST_SOURCE_ROWS", -1)
        assert here == outcome(lake, "there", text), text


def test_rows_that_several_source_rows_match(lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "merge_few", lambda *_: None)
    lake.sql("CREATE TABLE t (id INT, a INT) TBLPROPERTIES ('deletion-vectors.enabled' = 'true')")
    lake.sql("INSERT INTO t SELECT id, 1 FROM range(10)")
    doubled = "MERGE INTO t USING (SELECT id % 5 AS id FROM range(8)) AS s ON t.id = s.id WHEN MATCHED THEN"
    with pytest.raises(InvalidRequest, match="matched by several source rows"):
        lake.sql(f"{doubled} UPDATE SET a = 2")
    assert tuple(lake.sql(f"{doubled} DELETE").collect()[0]) == (5, 0, 5, 0)
    # One source row may match several rows.
    lake.sql("INSERT INTO t VALUES (7, 70), (7, 71)")
    one = "MERGE INTO t USING (SELECT 7 AS id, 9 AS a) AS s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *"
    assert tuple(lake.sql(one).collect()[0]) == (3, 3, 0, 0)
    assert lake.sql("SELECT count(*) FROM t WHERE id = 7 AND a = 9").collect()[0][0] == 3


def test_a_session_may_make_strings_large(lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "merge_few", lambda *_: None)
    lake.sql("CREATE TABLE t (k STRING, a INT)")
    lake.sql("INSERT INTO t SELECT concat('k', id), 1 FROM range(10)")
    source = "(SELECT concat('k', id) AS k FROM range(5, 15)) AS s"
    lake.spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "true")
    try:
        done = lake.sql(f"MERGE INTO t USING {source} ON t.k = s.k WHEN MATCHED THEN DELETE").collect()
    finally:
        lake.spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")
    assert tuple(done[0]) == (5, 0, 5, 0)


@pytest.mark.parametrize(
    "limit", [exhaustive("MOST_SOURCE_ROWS"), exhaustive("MOST_TARGET_ROWS"), "MOST_BYTES", "DRIVER_FILES"]
)
def test_spark_finds_pairs_of_larger_tables(lake: bitlake.Lake, limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "merge_few", lambda *_: None)
    monkeypatch.setattr(key_pairs, limit, 4 if limit.startswith("MOST") else 0)
    joined = []
    original = merge.gather
    monkeypatch.setattr(merge, "gather", lambda *a, **n: joined.append(1) or original(*a, **n))
    lake.sql("CREATE TABLE t (id INT, a INT)")
    lake.sql("INSERT INTO t SELECT id, 1 FROM range(10)")
    text = "MERGE INTO t USING (SELECT id FROM range(5, 15)) AS s ON t.id = s.id WHEN MATCHED THEN DELETE"
    assert tuple(lake.sql(text).collect()[0]) == (5, 0, 5, 0)
    assert joined == [1]
