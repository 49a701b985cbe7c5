"""Keys that are unique over partitions, and tables whose buckets come later: rows end up as in a plain dictionary."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pyspark.sql import SparkSession

import bitlake


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> bitlake.Lake:
    made = bitlake.connect(str(tmp_path_factory.mktemp("lake")), spark=spark)
    made.sql("CREATE DATABASE d")
    made.sql("USE d")
    return made


def rows_of(lake: bitlake.Lake) -> list[tuple[Any, ...]]:
    return sorted(tuple(r) for r in lake.sql("SELECT * FROM t").collect())


def insert(lake: bitlake.Lake, spark: SparkSession, rows: list[tuple[Any, ...]]) -> None:
    spark.createDataFrame(rows, "id bigint, p string, v int").coalesce(1).createOrReplaceTempView("source_rows")
    lake.sql("INSERT INTO t SELECT * FROM source_rows WHERE v > -1000000")


def create(lake: bitlake.Lake, options: str, key: str = "id") -> None:
    lake.sql("DROP TABLE IF EXISTS t")
    lake.sql(
        f"CREATE TABLE t (id BIGINT, p STRING, v INT, PRIMARY KEY ({key}) NOT ENFORCED) PARTITIONED BY (p) "
        f"TBLPROPERTIES ('bucket' = '-1', 'dynamic-bucket.target-row-num' = '10', {options})"
    )


@pytest.mark.parametrize("vectors", ["false", "true"])
def test_a_key_moves_to_its_new_partition(lake: bitlake.Lake, spark: SparkSession, vectors: str) -> None:
    create(lake, f"'deletion-vectors.enabled' = '{vectors}'")
    rng, model = random.Random(1), {}
    for turn in range(3):
        # Keys come several times in a batch, in several partitions.
        rows = [(rng.randrange(60), rng.choice("abc"), turn * 100 + i) for i in range(70)]
        insert(lake, spark, rows)
        model.update({k: (p, v) for k, p, v in rows})
        assert rows_of(lake) == sorted((k, p, v) for k, (p, v) in model.items())
    lake.sql("INSERT INTO t VALUES (1, 'z', -1), (1000, 'z', -2)")
    model.update({1: ("z", -1), 1000: ("z", -2)})
    assert rows_of(lake) == sorted((k, p, v) for k, (p, v) in model.items())
    assert {e.total_buckets for e in lake.table("d.t").state().entries()} == {-1}


def test_partial_updates_go_to_where_the_key_is(lake: bitlake.Lake, spark: SparkSession) -> None:
    create(lake, "'merge-engine' = 'partial-update'")
    rng, model = random.Random(2), {}
    for turn in range(2):
        rows = [(rng.randrange(40), rng.choice("ab"), turn * 100 + i) for i in range(50)]
        insert(lake, spark, rows)
        for k, p, v in rows:
            model[k] = (model.get(k, (p,))[0], v)
    assert rows_of(lake) == sorted((k, p, v) for k, (p, v) in model.items())


def test_first_rows_stay_where_they_are(lake: bitlake.Lake, spark: SparkSession) -> None:
    create(lake, "'merge-engine' = 'first-row'")
    rng, model = random.Random(3), {}
    for turn in range(2):
        rows = [(rng.randrange(40), rng.choice("ab"), turn * 100 + i) for i in range(50)]
        insert(lake, spark, rows)
        for k, p, v in rows:
            model.setdefault(k, (p, v))
    assert rows_of(lake) == sorted((k, p, v) for k, (p, v) in model.items())


def test_postponed_rows_are_seen_once_compacted(lake: bitlake.Lake, spark: SparkSession) -> None:
    lake.sql("DROP TABLE IF EXISTS t")
    lake.sql(
        "CREATE TABLE t (id BIGINT, p STRING, v INT, PRIMARY KEY (id, p) NOT ENFORCED) PARTITIONED BY (p) "
        "TBLPROPERTIES ('bucket' = '-2')"
    )
    model: dict[tuple[int, str], int] = {}
    for turn in range(2):
        rows = [(i % 30, "ab"[i % 2], turn * 100 + i) for i in range(60)]
        insert(lake, spark, rows)
        model.update({(k, p): v for k, p, v in rows})
    entries = lake.table("d.t").state().entries()
    assert {e.bucket for e in entries} == {-2} and sum(e.file.row_count for e in entries) == 120
    assert rows_of(lake) == []
    lake.sql("CALL sys.compact(table => 'd.t')")
    assert rows_of(lake) == sorted((k, p, v) for (k, p), v in model.items())
