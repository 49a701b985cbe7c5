"""CALL sys.compact: what is due, everything, chosen partitions and buckets, and rows sorted anew."""

from __future__ import annotations

import pytest
from long import long
from pyspark.sql import SparkSession

import bitlake
from bitlake.errors import InvalidRequest


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> bitlake.Lake:
    made = bitlake.connect(str(tmp_path_factory.mktemp("lake")), spark=spark)
    made.sql("CREATE DATABASE d")
    made.sql("USE d")
    return made


def levels(lake: bitlake.Lake) -> dict[tuple[int, int], int]:
    """How many files each (bucket, level) has."""
    out: dict[tuple[int, int], int] = {}
    for e in lake.table("d.t")._core.state().entries():
        out[e.bucket, e.file.level] = out.get((e.bucket, e.file.level), 0) + 1
    return out


def test_buckets_of_keys(lake: bitlake.Lake) -> None:
    lake.sql("DROP TABLE IF EXISTS t")
    lake.sql(
        "CREATE TABLE t (id BIGINT, p STRING, v INT, PRIMARY KEY (id, p) NOT ENFORCED) PARTITIONED BY (p) "
        "TBLPROPERTIES ('bucket' = '2', 'write-only' = 'true', 'deletion-vectors.enabled' = 'true')"
    )
    for turn in range(3):
        rows = ", ".join(f"({i}, '{'ab'[i % 2]}', {turn})" for i in range(20))
        lake.sql(f"INSERT INTO t VALUES {rows}")
    assert levels(lake) == {(0, 0): 6, (1, 0): 6}
    assert lake.sql("SELECT * FROM t").count() == 0
    lake.sql("CALL sys.compact('d.t', 'p=a')")
    assert sorted(r["p"] for r in lake.sql("SELECT DISTINCT p FROM t").collect()) == ["a"]
    lake.sql("CALL sys.compact(table => 'd.t', where => \"p = 'b'\", buckets => '1')")
    assert levels(lake) == {(0, 0): 3, (0, 5): 1, (1, 5): 2}
    assert lake.sql("CALL sys.compact(table => 'd.t', compact_strategy => 'minor')").collect()[0]["result"]
    assert levels(lake) == {(0, 5): 2, (1, 5): 2}
    assert [tuple(r) for r in lake.sql("SELECT count(*), min(v) FROM t").collect()] == [(20, 2)]


def test_small_files_of_append_tables(lake: bitlake.Lake) -> None:
    lake.sql("DROP TABLE IF EXISTS t")
    lake.sql("CREATE TABLE t (id BIGINT, p STRING) PARTITIONED BY (p)")
    for i in range(4):
        lake.sql(f"INSERT INTO t VALUES ({i}, 'a'), ({i}, 'b')")
    lake.sql("CALL sys.compact(table => 'd.t', partition_idle_time => '1 h')")
    assert len(lake.table("d.t")._core.state().entries()) == 8
    lake.sql("CALL sys.compact(table => 'd.t', compact_strategy => 'minor', partitions => 'p=a')")
    assert len(lake.table("d.t")._core.state().entries()) == 8, "four files are too few"
    options = "options => 'compaction.min.file-num=2'"
    lake.sql(f"CALL sys.compact(table => 'd.t', compact_strategy => 'minor', partitions => 'p=a', {options})")
    assert len(lake.table("d.t")._core.state().entries()) == 5
    lake.sql("CALL sys.compact('d.t')")
    assert len(lake.table("d.t")._core.state().entries()) == 2
    assert lake.sql("SELECT * FROM t").count() == 8
    assert "compaction.min.file-num" not in lake.table("d.t").schema.options


@pytest.mark.exhaustive
@pytest.mark.parametrize("strategy", ["order", long("zorder"), "hilbert"])
def test_rows_sorted_anew(lake: bitlake.Lake, spark: SparkSession, strategy: str) -> None:
    lake.sql("DROP TABLE IF EXISTS t")
    lake.sql(
        "CREATE TABLE t (x INT, y STRING, p STRING) PARTITIONED BY (p) TBLPROPERTIES "
        "('deletion-vectors.enabled' = 'true', 'target-file-size' = '1 kb')"
    )
    x, y = "CAST(id * 37 % 64 AS INT) AS x", "lpad(CAST((id DIV 64) * 21 % 64 AS STRING), 2, '0') AS y"
    spark.range(16384).selectExpr(x, y, "'p' || id % 2 AS p").createOrReplaceTempView("source_rows")
    lake.sql("INSERT INTO t SELECT * FROM source_rows")
    lake.sql("DELETE FROM t WHERE x = 5")
    before = sorted(tuple(r) for r in lake.sql("SELECT * FROM t").collect())
    lake.sql(f"CALL sys.compact(table => 'd.t', order_strategy => '{strategy}', order_by => 'x,y')")
    table = lake.table("d.t")
    assert table.snapshot is not None and table.snapshot.commit_kind == "COMPACT"
    assert sorted(tuple(r) for r in lake.sql("SELECT * FROM t").collect()) == before
    files = table._core.state().entries()
    assert sum(e.file.row_count for e in files) == len(before), "deleted rows are gone for good"
    assert {e.file.file_source for e in files} == {1}
    # Along a curve, either column alone leaves files out; sorted by both, only the first does.
    share = {c: len(table.scan(where=w).plan().files) / len(files) for c, w in (("x", "x = 9"), ("y", "y = '09'"))}
    assert len(files) >= 4
    assert share["x"] < 0.8
    if strategy != "order":
        assert share["y"] < 0.8


def test_what_cannot_be_asked_for(lake: bitlake.Lake) -> None:
    lake.sql("DROP TABLE IF EXISTS t")
    lake.sql(
        "CREATE TABLE t (id BIGINT, p STRING, PRIMARY KEY (id, p) NOT ENFORCED) PARTITIONED BY (p) "
        "TBLPROPERTIES ('bucket' = '2')"
    )
    for arguments, message in (
        ("order_strategy => 'zorder', order_by => 'id'", "by bucket"),
        ("order_by => 'id'", "order_by"),
        ("order_strategy => 'zorder', order_by => 'p'", "partition column"),
        ("order_strategy => 'spiral', order_by => 'id'", "spiral"),
        ("compact_strategy => 'some'", "full, minor"),
        ("partitions => 'p=a', where => \"p = 'a'\"", "either"),
        ("partitions => 'p'", "name=value"),
        ("where => 'id = 3'", "partition columns"),
        ("options => 'bucket=4'", "bucket"),
        ("options => 'merge-engine=first-row'", "merge-engine"),
        ("buckets => '2'", "buckets 0 to 1"),
        ("partition_idle_time => 'soon'", "duration"),
    ):
        with pytest.raises(InvalidRequest, match=message):
            lake.sql(f"CALL sys.compact(table => 'd.t', {arguments})")
