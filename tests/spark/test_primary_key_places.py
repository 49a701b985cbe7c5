"""Keys that are unique over partitions, and tables whose buckets come later: rows end up as in a plain dictionary."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from long import long
from pyspark.sql import SparkSession

import bitlake
from bitlake.errors import CorruptError
from bitlake.mergetree import dml
from bitlake.spark.write import primary_key


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


@pytest.mark.exhaustive
@pytest.mark.parametrize("vectors", ["false", "true"])
@pytest.mark.parametrize("turns", [2, long(3)])
def test_a_key_moves_to_its_new_partition(lake: bitlake.Lake, spark: SparkSession, vectors: str, turns: int) -> None:
    create(lake, f"'deletion-vectors.enabled' = '{vectors}'")
    rng, model = random.Random(1), {}
    for turn in range(turns):
        # Keys come several times in a batch, in several partitions.
        rows = [(rng.randrange(60), rng.choice("abc"), turn * 100 + i) for i in range(70)]
        insert(lake, spark, rows)
        model.update({k: (p, v) for k, p, v in rows})
        assert rows_of(lake) == sorted((k, p, v) for k, (p, v) in model.items())
    lake.sql("INSERT INTO t VALUES (1, 'z', -1), (1000, 'z', -2)")
    model.update({1: ("z", -1), 1000: ("z", -2)})
    assert rows_of(lake) == sorted((k, p, v) for k, (p, v) in model.items())
    assert {e.total_buckets for e in lake.table("d.t")._core.state().entries()} == {-1}


@pytest.mark.exhaustive
def test_partial_updates_go_to_where_the_key_is(lake: bitlake.Lake, spark: SparkSession) -> None:
    create(lake, "'merge-engine' = 'partial-update'")
    rng, model = random.Random(2), {}
    for turn in range(2):
        rows = [(rng.randrange(40), rng.choice("ab"), turn * 100 + i) for i in range(50)]
        insert(lake, spark, rows)
        for k, p, v in rows:
            model[k] = (model.get(k, (p,))[0], v)
    assert rows_of(lake) == sorted((k, p, v) for k, (p, v) in model.items())


@pytest.mark.exhaustive
def test_first_rows_stay_where_they_are(lake: bitlake.Lake, spark: SparkSession) -> None:
    create(lake, "'merge-engine' = 'first-row'")
    rng, model = random.Random(3), {}
    for turn in range(2):
        rows = [(rng.randrange(40), rng.choice("ab"), turn * 100 + i) for i in range(50)]
        insert(lake, spark, rows)
        for k, p, v in rows:
            model.setdefault(k, (p, v))
    assert rows_of(lake) == sorted((k, p, v) for k, (p, v) in model.items())


WAITING = {"primary-key": "id", "bucket": "-2", "postpone.batch-write-fixed-bucket": "false"}


def test_a_batch_write_gives_postponed_rows_buckets(
    lake: bitlake.Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INSERT into ``bucket`` = -2 showed no rows: ``postpone.batch-write-fixed-bucket`` did nothing."""
    monkeypatch.setattr(primary_key, "_little", lambda *_: None)  # through Python workers
    lake.sql("DROP TABLE IF EXISTS t")
    lake.sql(
        "CREATE TABLE t (id BIGINT, p STRING, v INT, PRIMARY KEY (id, p) NOT ENFORCED) PARTITIONED BY (p) "
        "TBLPROPERTIES ('bucket' = '-2', 'postpone.batch-write-fixed-bucket.max-parallelism' = '2')"
    )
    model = {(i, "a"): i for i in range(100)}
    insert(lake, spark, [(k, p, v) for (k, p), v in model.items()])
    assert rows_of(lake) == sorted((k, p, v) for (k, p), v in model.items())
    assert {e.total_buckets for e in lake.table("d.t")._core.state().entries()} == {2}
    assert [s.commit_kind for s in lake.table("d.t").history.snapshots()] == ["APPEND"]
    # Another partition gets the number that the option says now; the first keeps its own.
    lake.sql("ALTER TABLE t SET TBLPROPERTIES ('postpone.default-bucket-num' = '3')")
    lake.sql("ALTER TABLE t SET TBLPROPERTIES ('postpone.batch-write-fixed-bucket.max-parallelism' = '3')")
    rows = [(i, "ab"[i % 2], -i) for i in range(0, 300, 3)]
    insert(lake, spark, rows)
    model.update({(k, p): v for k, p, v in rows})
    assert rows_of(lake) == sorted((k, p, v) for (k, p), v in model.items())
    entries = lake.table("d.t")._core.state().entries()
    assert {e.total_buckets for e in entries} == {2, 3} and {e.bucket for e in entries} == {0, 1, 2}
    lake.sql("DELETE FROM t WHERE id < 50")
    lake.sql("CALL sys.compact(table => 'd.t', compact_strategy => 'full')")
    assert rows_of(lake) == sorted((k, p, v) for (k, p), v in model.items() if k >= 50)
    assert lake.table("d.t").maintenance.verify().ok


def test_postponed_rows_are_seen_once_compacted(
    lake: bitlake.Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dml, "place_postponed", None)  # the driver's way
    lake.sql("DROP TABLE IF EXISTS t")
    lake.sql(
        "CREATE TABLE t (id BIGINT, p STRING, v INT, PRIMARY KEY (id, p) NOT ENFORCED) PARTITIONED BY (p) "
        "TBLPROPERTIES ('bucket' = '-2', 'postpone.default-bucket-num' = '3', 'changelog-producer' = 'input', "
        "'postpone.batch-write-fixed-bucket' = 'false')"
    )
    model: dict[tuple[int, str], int] = {}
    for turn in range(2):
        rows = [(i % 30, "ab"[i % 2], turn * 100 + i) for i in range(60)]
        insert(lake, spark, rows)
        model.update({(k, p): v for k, p, v in rows})
    entries = lake.table("d.t")._core.state().entries()
    assert {e.bucket for e in entries} == {-2} and sum(e.file.row_count for e in entries) == 120
    assert rows_of(lake) == []
    lake.table("d.t").upsert(pa.table({"id": [3, 2], "p": ["b", "a"], "v": [0, -5]}), ["-D", "+U"])
    model.pop((3, "b"))
    model[2, "a"] = -5
    lake.sql("CALL sys.compact(table => 'd.t')")
    assert rows_of(lake) == sorted((k, p, v) for (k, p), v in model.items())
    after = lake.table("d.t")._core.state().entries()
    assert {e.total_buckets for e in after} == {3} and {e.bucket for e in after} == {0, 1, 2}
    lake.table("d.t").upsert(pa.table({"id": [3], "p": ["b"], "v": [7]}))
    lake.sql("CALL sys.compact(table => 'd.t')")
    assert rows_of(lake) == sorted([(k, p, v) for (k, p), v in model.items()] + [(3, "b", 7)])


def test_placed_rows_keep_kinds_and_values(lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dml, "place_postponed", None)
    inner = pa.struct([("x", pa.int32()), ("y", pa.list_(pa.timestamp("ms")))])
    rows = {
        "id": pa.array([0.0, -0.0, float("nan"), 1.5, 1.5], pa.float64()),
        "kind": pa.array(["+I", "+I", "+U", "+I", "-D"]),
        "at": pa.array([1, 2, 3, 4, 5], pa.timestamp("ms")),
        "zoned": pa.array([10**15 + 1, None, -1, 3, 4], pa.timestamp("us", "UTC")),
        "price": pa.array([Decimal("1.50"), None, Decimal("-9.99"), None, None], pa.decimal128(30, 2)),
        "deep": pa.array([{"x": 1, "y": [7, None]}, None, {"x": None, "y": None}, None, None], inner),
        "tags": pa.array([[("a", 1), ("b", None)], [], None, None, None], pa.map_(pa.string(), pa.int64())),
        "raw": pa.array([b"\0\xff", b"", None, None, None], pa.binary()),
    }
    made = pa.table(rows)
    schema = made.schema.set(0, pa.field("id", pa.float64(), nullable=False))
    options = {**WAITING, "rowkind.field": "kind", "postpone.default-bucket-num": "2"}
    table = lake.create_table("d.typed", schema, options=options)
    table.upsert(made.cast(schema))
    lake.sql("CALL sys.compact(table => 'd.typed')")
    assert {e.bucket for e in table._core.state().entries()} <= {0, 1}
    order = [("at", "ascending")]
    assert str(table.scan().to_arrow().sort_by(order).to_pydict()) == str(made.slice(0, 3).to_pydict())


def test_types_that_spark_lacks_do_not_pass_through_it(lake: bitlake.Lake) -> None:
    rows = pa.table({"id": pa.array([1, 2, 1]), "at": pa.array([1, 86_399_999, 3], pa.time32("ms"))})
    schema = rows.schema.set(0, pa.field("id", pa.int64(), nullable=False))
    table = lake.create_table("d.times", schema, options=WAITING)
    table.upsert(rows.cast(schema))
    lake.sql("CALL sys.compact(table => 'd.times')")
    found = table.scan().to_arrow().sort_by("id")
    assert found.column("at").cast(pa.int32()).to_pylist() == [3, 86_399_999]


def test_a_damaged_postponed_file_is_named(lake: bitlake.Lake) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
    table = lake.create_table("d.damaged", schema, options=WAITING)
    for turn in range(2):
        table.upsert(pa.table({"id": [1, 2], "v": ["a", str(turn)]}, schema=schema))
    last = max(Path(table.path).glob("bucket-postpone/*.avro"), key=lambda p: p.stat().st_mtime_ns)
    last.write_bytes(last.read_bytes()[:-20])
    before = {p for p in Path(table.path).rglob("*") if p.is_file()}
    with pytest.raises(CorruptError, match=last.name):
        lake.sql("CALL sys.compact(table => 'd.damaged')")
    assert {p for p in Path(table.path).rglob("*") if p.is_file()} == before
    assert table.snapshot is not None and table.snapshot.id == 2
