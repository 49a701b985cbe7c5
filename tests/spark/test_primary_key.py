"""INSERT, CTAS and DataFrames into primary-key tables on Spark: rows end up as in a plain dictionary."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from long import exhaustive, few
from pyspark.sql import SparkSession

import bitlake
from bitlake.errors import InvalidRequest
from bitlake.spark.write import primary_key

KINDS = {
    "fixed": "'bucket' = '3'",
    "fixed, vectors": "'bucket' = '3', 'deletion-vectors.enabled' = 'true'",
    "dynamic": "'bucket' = '-1', 'dynamic-bucket.target-row-num' = '20'",
    "dynamic, vectors": "'bucket' = '-1', 'dynamic-bucket.target-row-num' = '20', 'deletion-vectors.enabled' = 'true'",
    "one bucket, merged later": "'bucket' = '1', 'write-only' = 'true'",
}


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> bitlake.Lake:
    made = bitlake.connect(str(tmp_path_factory.mktemp("lake")), spark=spark)
    made.sql("CREATE DATABASE d")
    made.sql("USE d")
    return made


@pytest.fixture(autouse=True)
def _on_executors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows would come to the driver and be written there, as constants are."""
    monkeypatch.setattr(primary_key, "DRIVER_BYTES", -1)


def rows_of(lake: bitlake.Lake, table: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(r) for r in lake.sql(f"SELECT * FROM {table}").collect())


def frame_of(spark: SparkSession, rows: list[tuple[Any, ...]], types: str, partitions: int = 2) -> str:
    """A view that Spark really computes: constants would be written without a job."""
    spark.createDataFrame(rows, types).repartition(partitions).createOrReplaceTempView("source_rows")
    return "source_rows"


def changes_of(rng: random.Random, turn: int, keys: int) -> list[tuple[int, str, int]]:
    """Distinct keys: two rows of one key have no order once Spark has shuffled them."""
    chosen = rng.sample(range(keys), keys // 2)
    return [(k, "ab"[k % 2], turn * 1000 + k) for k in chosen]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("kind", "partitioned"),
    few(
        [(k, p) for k in KINDS for p in (False, True) if p or k != "dynamic, vectors"],
        *[("fixed", True), ("fixed, vectors", False), ("dynamic", False), ("dynamic, vectors", True)],
        ("one bucket, merged later", True),
    ),
)
def test_upserts_end_as_in_a_dictionary(lake: bitlake.Lake, spark: SparkSession, kind: str, partitioned: bool) -> None:
    lake.sql("DROP TABLE IF EXISTS t")
    by = "PARTITIONED BY (p)" if partitioned else ""
    lake.sql(
        f"CREATE TABLE t (id BIGINT, p STRING, v INT, PRIMARY KEY (id, p) NOT ENFORCED) {by} "
        f"TBLPROPERTIES ({KINDS[kind]})"
    )
    rng, model = random.Random(kind), {}
    for turn in range(2):
        rows = changes_of(rng, turn, 200)
        done = lake.sql(f"INSERT INTO t SELECT * FROM {frame_of(spark, rows, 'id bigint, p string, v int')}").collect()
        assert done[0]["num_affected_rows"] == len(rows)
        model.update({(k, p): v for k, p, v in rows})
        if turn == 0:
            lake.sql("INSERT INTO t VALUES (7, 'b', -1), (7, 'b', -2), (900, 'zz', 3)")
            model.update({(7, "b"): -2, (900, "zz"): 3})
    assert rows_of(lake, "t") == sorted((k, p, v) for (k, p), v in model.items())


def test_rows_of_one_key_merge_in_the_order_they_come(lake: bitlake.Lake, spark: SparkSession) -> None:
    lake.sql("DROP TABLE IF EXISTS t")
    lake.sql("CREATE TABLE t (id BIGINT, v BIGINT, PRIMARY KEY (id) NOT ENFORCED) TBLPROPERTIES ('bucket' = '2')")
    spark.range(0, 3000, 1, 3).selectExpr("id % 100 AS id", "id AS v").createOrReplaceTempView("source_rows")
    assert lake.sql("INSERT INTO t SELECT * FROM source_rows").collect()[0][0] == 3000
    assert rows_of(lake, "t") == [(k, 2900 + k) for k in range(100)]


@pytest.mark.exhaustive
def test_sequence_fields_decide_over_arrival(lake: bitlake.Lake, spark: SparkSession) -> None:
    for order, best in (("ascending", max), ("descending", min)):
        lake.sql("DROP TABLE IF EXISTS t")
        lake.sql(
            "CREATE TABLE t (id STRING, at INT, v INT, PRIMARY KEY (id) NOT ENFORCED) TBLPROPERTIES ('bucket' = '2', "
            f"'sequence.field' = 'at', 'sequence.field.sort-order' = '{order}')"
        )
        rng = random.Random(5)
        model: dict[str, tuple[int, int]] = {}
        for turn in range(2):
            rows = [(f"k{i % 40}", at, turn * 1000 + i) for i, at in enumerate(rng.sample(range(-500, 500), 200))]
            for k, at, v in rows:
                model[k] = best(model.get(k, (at, v)), (at, v))
            lake.sql(f"INSERT INTO t SELECT * FROM {frame_of(spark, rows, 'id string, at int, v int')}")
        assert rows_of(lake, "t") == sorted((k, *row) for k, row in model.items())


def test_a_float_keys_zeros_are_two_keys(lake: bitlake.Lake, spark: SparkSession) -> None:
    lake.sql("DROP TABLE IF EXISTS t")
    lake.sql("CREATE TABLE t (id DOUBLE, v INT, PRIMARY KEY (id) NOT ENFORCED) TBLPROPERTIES ('bucket' = '1')")
    rows = [(0.0 if i % 2 else -0.0, i) for i in range(20)] + [(1.5, 99), (float("nan"), 98)]
    spark.createDataFrame(rows, "id double, v int").coalesce(1).createOrReplaceTempView("source_rows")
    lake.sql("INSERT INTO t SELECT * FROM source_rows WHERE v >= 0")
    assert sorted(r[1] for r in lake.sql("SELECT * FROM t").collect()) == [18, 19, 98, 99]


@pytest.mark.parametrize("kind", ["fixed, vectors", exhaustive("dynamic")])
def test_overwrites(lake: bitlake.Lake, spark: SparkSession, kind: str) -> None:
    lake.sql("DROP TABLE IF EXISTS t")
    lake.sql(
        "CREATE TABLE t (id BIGINT, p STRING, v INT, PRIMARY KEY (id, p) NOT ENFORCED) PARTITIONED BY (p) "
        f"TBLPROPERTIES ({KINDS[kind]})"
    )
    first = [(i, "abc"[i % 3], i) for i in range(90)]
    lake.sql(f"INSERT INTO t SELECT * FROM {frame_of(spark, first, 'id bigint, p string, v int')}")
    model = {(i, p): v for i, p, v in first}
    frame_of(spark, [(1, "a", -1), (2, "a", -2)], "id bigint, p string, v int")
    lake.sql("INSERT OVERWRITE t PARTITION (p = 'a') SELECT id, v FROM source_rows")
    model = {k: v for k, v in model.items() if k[1] != "a"} | {(1, "a"): -1, (2, "a"): -2}
    assert rows_of(lake, "t") == sorted((k, p, v) for (k, p), v in model.items())
    frame_of(spark, [(5, "b", -5), (6, "new", -6)], "id bigint, p string, v int")
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        lake.sql("INSERT OVERWRITE t SELECT * FROM source_rows")
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    model = {k: v for k, v in model.items() if k[1] != "b"} | {(5, "b"): -5, (6, "new"): -6}
    assert rows_of(lake, "t") == sorted((k, p, v) for (k, p), v in model.items())
    frame_of(spark, [(1, "x", 1)], "id bigint, p string, v int")
    lake.sql("INSERT OVERWRITE t SELECT * FROM source_rows")
    assert rows_of(lake, "t") == [(1, "x", 1)]
    lake.sql(f"INSERT INTO t SELECT * FROM {frame_of(spark, first, 'id bigint, p string, v int')}")
    assert len(rows_of(lake, "t")) == 91


def test_a_bucket_count_changes_by_overwrite_only(lake: bitlake.Lake, spark: SparkSession) -> None:
    lake.sql("DROP TABLE IF EXISTS t")
    lake.sql("CREATE TABLE t (id BIGINT, v INT, PRIMARY KEY (id) NOT ENFORCED) TBLPROPERTIES ('bucket' = '2')")
    rows = frame_of(spark, [(i, i) for i in range(50)], "id bigint, v int")
    lake.sql(f"INSERT INTO t SELECT * FROM {rows}")
    lake.sql("ALTER TABLE t SET TBLPROPERTIES ('bucket' = '5')")
    with pytest.raises(bitlake.BitlakeError, match="INSERT OVERWRITE"):
        lake.sql(f"INSERT INTO t SELECT id, v + 1 FROM {rows}")
    assert rows_of(lake, "t") == [(i, i) for i in range(50)]
    lake.sql("INSERT OVERWRITE t SELECT id, v + 1 FROM t")
    assert rows_of(lake, "t") == [(i, i + 1) for i in range(50)]
    assert {e.total_buckets for e in lake.table("d.t")._core.state().entries()} == {5}


def test_tables_made_by_queries_and_frames(lake: bitlake.Lake, spark: SparkSession) -> None:
    for name in ("c", "f"):
        lake.sql(f"DROP TABLE IF EXISTS {name}")
    spark.range(100).selectExpr("id % 10 AS k", "id AS v").createOrReplaceTempView("source_rows")
    options = "'primary-key' = 'k', 'bucket' = '2', 'deletion-vectors.enabled' = 'true'"
    done = lake.sql(f"CREATE TABLE c TBLPROPERTIES ({options}) AS SELECT * FROM source_rows").collect()
    assert done[0][0] == 100
    assert rows_of(lake, "c") == [(k, 90 + k) for k in range(10)]
    made = {"primary-key": "k", "bucket": "-1"}
    assert lake.write(spark.table("source_rows"), "d.f", "error", options=made) == 100
    assert rows_of(lake, "f") == [(k, 90 + k) for k in range(10)]
    assert lake.write(spark.range(3).selectExpr("id AS k", "-id AS v"), "d.f") == 3
    assert rows_of(lake, "f")[:4] == [(0, 0), (1, -1), (2, -2), (3, 93)]


def test_keys_that_move_between_partitions_count_once(lake: bitlake.Lake, spark: SparkSession) -> None:
    lake.sql("DROP TABLE IF EXISTS t")
    lake.sql("CREATE TABLE t (k INT, p INT) PARTITIONED BY (p) TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '-1')")
    assert lake.write(spark.range(4).selectExpr("CAST(id AS INT) AS k", "1 AS p"), "d.t") == 4
    assert lake.write(spark.range(1, 5).selectExpr("CAST(id AS INT) AS k", "2 AS p"), "d.t") == 4
    assert lake.sql("INSERT INTO t VALUES (0, 3), (9, 3)").collect() == [(2, 2)]
    assert lake.sql("INSERT INTO t VALUES (0, 4), (9, 3)", engine="duckdb").to_pylist() == [
        {"num_affected_rows": 2, "num_inserted_rows": 2}
    ]
    assert rows_of(lake, "t") == [(0, 4), (1, 2), (2, 2), (3, 2), (4, 2), (9, 3)]


def test_what_is_little_is_written_by_the_driver_unless_the_estimate_is_wrong(
    lake: bitlake.Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.sql("DROP TABLE IF EXISTS t")
    lake.sql("CREATE TABLE t (id BIGINT, v BIGINT, PRIMARY KEY (id) NOT ENFORCED) TBLPROPERTIES ('bucket' = '2')")
    monkeypatch.setattr(primary_key, "DRIVER_BYTES", 1 << 20)
    jobs: list[str] = []
    run = primary_key._written

    def told(*arguments: Any) -> Any:
        jobs.append("executors")
        return run(*arguments)

    monkeypatch.setattr(primary_key, "_written", told)
    spark.range(100).selectExpr("id", "id AS v").createOrReplaceTempView("source_rows")
    assert lake.sql("INSERT INTO t SELECT * FROM source_rows").collect()[0][0] == 100
    assert not jobs
    monkeypatch.setattr(primary_key, "_MOST_ROWS", 10)
    assert lake.sql("INSERT INTO t SELECT id, v + 1 FROM source_rows").collect()[0][0] == 100
    assert jobs == ["executors"]
    assert rows_of(lake, "t") == [(i, i + 1) for i in range(100)]


def test_a_null_key_writes_nothing(lake: bitlake.Lake, spark: SparkSession, tmp_path: Path) -> None:
    lake.sql("DROP TABLE IF EXISTS t")
    lake.sql("CREATE TABLE t (id BIGINT, v INT, PRIMARY KEY (id) NOT ENFORCED) TBLPROPERTIES ('bucket' = '2')")
    rows = frame_of(spark, [(i if i != 77 else None, i) for i in range(100)], "id bigint, v int")
    with pytest.raises(InvalidRequest, match="NULL in column 'id'"):
        lake.sql(f"INSERT INTO t SELECT * FROM {rows}")
    table = lake.table("d.t")
    assert table.snapshot is None
    assert not list(Path(table.path).rglob("data-*"))


def test_an_executors_error_is_told_and_its_files_are_gone(lake: bitlake.Lake, spark: SparkSession) -> None:
    lake.sql("DROP TABLE IF EXISTS t")
    lake.sql(
        "CREATE TABLE t (id BIGINT, kind STRING, PRIMARY KEY (id) NOT ENFORCED) "
        "TBLPROPERTIES ('bucket' = '2', 'rowkind.field' = 'kind')"
    )
    rows = frame_of(spark, [(i, "+I" if i != 50 else "?") for i in range(100)], "id bigint, kind string")
    with pytest.raises(InvalidRequest, match=r"invalid row kind \?"):
        lake.sql(f"INSERT INTO t SELECT * FROM {rows}")
    table = lake.table("d.t")
    assert table.snapshot is None
    assert not list(Path(table.path).rglob("data-*"))


@pytest.mark.parametrize(
    "table",
    [
        "PARTITIONED BY (p) TBLPROPERTIES ('primary-key' = 'p,k.x', 'bucket' = '2')",
        exhaustive("PARTITIONED BY (p) TBLPROPERTIES ('primary-key' = 'k.x', 'bucket' = '-1')"),
        exhaustive("TBLPROPERTIES ('primary-key' = 'k.x', 'bucket' = '-1')"),
        exhaustive("TBLPROPERTIES ('file.format' = 'orc')"),
    ],
    ids=["fixed", "keys over partitions", "dynamic", "orc"],
)
def test_names_with_dots_and_backquotes(lake: bitlake.Lake, spark: SparkSession, table: str) -> None:
    """PySpark itself reads a dot in a column's name as the way to a struct's member."""
    lake.sql("DROP TABLE IF EXISTS dotted")
    lake.sql(f"CREATE TABLE dotted (k STRUCT<x: INT>, `k.x` INT NOT NULL, p INT, `a``b` INT) {table}")
    rows = frame_of(spark, [((7, 7), 1, 1, 1), ((8, 8), 2, 1, 2)], "k STRUCT<x: INT, y: INT>, i INT, p INT, j INT")
    lake.sql(f"INSERT INTO dotted SELECT named_struct('x', k.x), i, p, j FROM {rows}")
    lake.sql(f"INSERT INTO dotted SELECT named_struct('x', k.x), i + 1, p + 1, j FROM {rows} WHERE i = 2")
    assert rows_of(lake, "dotted") == [((7,), 1, 1, 1), ((8,), 2, 1, 2), ((8,), 3, 2, 2)]
