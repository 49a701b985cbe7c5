"""Rows that Python workers read have the types that Spark wants: timestamps of any unit, decimals as longs."""

from __future__ import annotations

import random
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

import bitlake
from bitlake.spark.read import scan as spark_scan
from bitlake.spark.types import spark_batches, transferred, worker_schema

INNER = pa.struct([pa.field("at", pa.timestamp("ms")), pa.field("all", pa.list_(pa.timestamp("ms", "UTC")))])
ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "at": pa.array([1, None, -1], pa.timestamp("ms")),
        "zoned": pa.array([None, 10**12 + 1, 3], pa.timestamp("ms", "UTC")),
        "deep": pa.array([{"at": 5, "all": [6, None]}, None, {"at": None, "all": None}], INNER),
        "named": pa.array([[("a", 7)], [], None], pa.map_(pa.string(), pa.timestamp("ms"))),
    }
)
SCHEMA = ROWS.schema.set(0, pa.field("id", pa.int64(), nullable=False))


def test_milliseconds_read_by_workers(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = bitlake.connect(str(tmp_path_factory.mktemp("lake")), spark=spark)
    lake.create_database("d")
    options = {"primary-key": "id", "bucket": "1", "changelog-producer": "input"}
    table = lake.create_table("d.t", SCHEMA, options=options)
    table.upsert(ROWS.cast(SCHEMA))
    wanted = [tuple(r) for r in lake.sql("SELECT * FROM d.t ORDER BY id").collect()]
    assert [row[0] for row in wanted] == [1, 2, 3] and wanted[0][1].microsecond == 1000
    changes = "SELECT * FROM paimon_incremental_query('d.`t$audit_log`', '0', '1') ORDER BY id"
    logged = [tuple(r) for r in lake.sql(changes).collect()]
    assert [row[:2] for row in logged] == [("+I", i) for i in (1, 2, 3)]
    table.upsert(ROWS.cast(SCHEMA).slice(0, 1))  # so that files are to be merged
    monkeypatch.setattr(spark_scan, "DRIVER_ROWS", -1)
    assert [tuple(r) for r in lake.sql("SELECT * FROM d.t WHERE id > 0 ORDER BY id").collect()] == wanted
    assert [tuple(r) for r in lake.sql(changes).collect()] == logged


def decimals(digits: int, scale: int, count: int) -> list[Decimal | None]:
    """Numbers of up to so many digits, with NULLs, zeros, and the largest and smallest."""
    rng, most = random.Random(digits * 40 + scale), 10**digits - 1
    chosen = [most, -most, 0, None, 1, -1, *(rng.randint(-most, most) for _ in range(count - 6))]
    return [None if n is None or (i > 6 and n % 11 == 0) else Decimal(f"{n}E-{scale}") for i, n in enumerate(chosen)]


@pytest.mark.exhaustive
def test_decimals_are_what_sparks_reader_gives(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> None:
    kinds = [(1, 0), (5, 5), (10, 2), (17, 0), (18, 0), (18, 18), (19, 2), (38, 10)]
    columns = {f"d{p}_{s}": pa.array(decimals(p, s, 12_000), pa.decimal128(p, s)) for p, s in kinds}
    sure = pa.array([Decimal(i).scaleb(-2) for i in range(12_000)], pa.decimal128(9, 2))
    rows = pa.table({**columns, "sure": sure, "l": pa.array([[v] for v in sure[:5].to_pylist()] * 2400)})
    schema = rows.schema.set(len(kinds), pa.field("sure", sure.type, nullable=False))
    lake = bitlake.connect(str(tmp_path_factory.mktemp("lake")), spark=spark)
    for way in ("workers", "spark"):
        options = {"read.spark-path": way, "target-file-row-num": "5000"}
        lake.create_table(way, schema, options=options).append(rows.cast(schema))
    sums = ", ".join(f"count({n}), try_sum({n}), min({n}), max({n})" for n in columns)
    for query in (
        "SELECT * FROM {} WHERE d10_2 > 12345.67 AND d18_0 IS NOT NULL ORDER BY sure",
        f"SELECT {sums}, sum(sure) FROM {{}}",
        "SELECT d5_5 + sure AS x, CAST(d18_18 AS STRING) AS s, d1_0 FROM {} WHERE sure < 50 ORDER BY sure",
        "SELECT a.d17_0, b.l FROM {0} a JOIN {0} b ON a.sure = b.sure AND a.d10_2 < b.d10_2 + 1 WHERE a.d1_0 = 7",
    ):
        ours, plain = (lake.sql(query.format(way)) for way in ("workers", "spark"))
        assert ours.schema == plain.schema, "NOT NULL columns, too"
        assert sorted(map(repr, ours.collect())) == sorted(map(repr, plain.collect()))


def test_digits_of_sliced_decimals() -> None:
    values = [*decimals(12, 3, 40), None, None]
    column = pa.chunked_array([pa.array(part, pa.decimal128(12, 3)) for part in (values[:9], [], values[9:], [None])])
    schemas = (worker_schema(T.StructType([T.StructField("v", t)])) for t in (T.DecimalType(12, 3), T.LongType()))
    given, longs = schemas
    for start, stop in ((0, 43), (3, 12), (8, 10), (40, 43), (5, 5)):
        sliced = pa.table({"v": column.slice(start, stop - start)})
        batches = [transferred(batch, longs) for batch in spark_batches([sliced], given)]
        got = [v for batch in batches for v in batch.column(0).to_pylist()]
        assert got == [None if v is None else int(v.scaleb(3)) for v in [*values, None][start:stop]]


def test_a_schema_that_a_user_gives_casts_decimals(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """They are not taken for the longs that workers send: 1.00 is 1, and not 100."""
    lake = bitlake.connect(str(tmp_path_factory.mktemp("lake")), spark=spark)
    table = lake.create_table("t", pa.schema([("d", pa.decimal128(9, 2))]))
    table.append(pa.table({"d": pa.array([Decimal("1.00"), None, Decimal("-20.00")], pa.decimal128(9, 2))}))
    found = spark.read.format("bitlake").schema("d BIGINT").load(table.path)
    assert {row.d for row in found.collect()} == {1, None, -20}
