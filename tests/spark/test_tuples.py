"""``(a, b) IN ((1, 2), …)``: the rows, and the refusals, of plain Spark."""

from __future__ import annotations

import math
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from long import every
from pyspark.errors import AnalysisException

import bitlake
from bitlake.errors import InvalidRequest

ROWS = 400
OPTIONS = {
    "file-index.bitmap.columns": "a,s",
    "file-index.bloom-filter.columns": "c",
    "file-index.bsi.columns": "h",
    "file-index.range-bitmap.columns": "day",
}
LITERALS = {
    "a": ["1", "2", "3", "- 4", "CAST(NULL AS INT)", "2147483647"],
    "c": ["1L", "2L", "-3L", "3000000000", "CAST(NULL AS BIGINT)"],
    "h": ["1S", "2S", "CAST(NULL AS SMALLINT)"],
    "s": ["'x'", "''", "'it''s'", "'é'", "CAST(NULL AS STRING)"],
    "d": ["0.0D", "-0.0D", "1.5D", "double('NaN')", "CAST(NULL AS DOUBLE)"],
    "f": ["0.5F", "float('NaN')", "CAST(NULL AS FLOAT)"],
    "m": ["123.45", "CAST(1.5 AS DECIMAL(5, 2))", "CAST(NULL AS DECIMAL(5, 2))"],
    "day": ["DATE '2026-01-01'", "DATE '2026-01-02'", "CAST(NULL AS DATE)"],
    "ts": ["TIMESTAMP_NTZ '2026-01-01 10:00:00'", "CAST(NULL AS TIMESTAMP_NTZ)"],
    "b": ["true", "false", "CAST(NULL AS BOOLEAN)"],
    "x": ["X'00ff'", "X''", "CAST(NULL AS BINARY)"],
}
REFUSED = [
    "(a, c) IN ((1, 2))",
    "(a, c) IN ((1, 2L), (3, 4))",
    "(a, c) IN ((1, 2L), (3, NULL))",
    "(a, c) IN ((1, 2L, 3L))",
    "(a, c) IN ((1))",
    "(a, c) IN (1, 2L)",
    "(a, s) IN ((1, 5))",
    "(a, s) IN (('1', 'x'))",
    "(d, a) IN ((1.0, 1))",
    "(m, a) IN ((1.50, 1))",
    "(day, a) IN (('2026-01-01', 1))",
    "(a, c) = (1, 2)",
    "(a, c) NOT IN ((1, 2L), NULL)",
]


def rows() -> pa.Table:
    rng = random.Random(7)

    def some(*values: Any) -> list[Any]:
        return [rng.choice([None, *values]) for _ in range(ROWS)]

    stamp = pa.scalar("2026-01-01 10:00:00").cast(pa.timestamp("us")).as_py()
    return pa.table(
        {
            "id": pa.array(range(ROWS), pa.int32()),
            "a": pa.array(some(1, 2, 3, -4, 5), pa.int32()),
            "c": pa.array(some(1, 2, -3, 3000000000), pa.int64()),
            "h": pa.array(some(1, 2), pa.int16()),
            "s": pa.array(some("x", "", "it's", "é", "1")),
            "d": pa.array(some(0.0, -0.0, 1.5, math.nan), pa.float64()),
            "f": pa.array(some(0.5, math.nan), pa.float32()),
            "m": pa.array(some(Decimal("123.45"), Decimal("1.50")), pa.decimal128(5, 2)),
            "day": pa.array(some(20454, 20455), pa.int32()).cast(pa.date32()),
            "ts": pa.array(some(stamp), pa.timestamp("us")),
            "b": pa.array(some(True, False)),
            "x": pa.array(some(b"\x00\xff", b""), pa.binary()),
        }
    )


def conditions() -> list[str]:
    rng = random.Random(11)
    made = []
    for i in range(60):
        names = rng.sample(sorted(LITERALS), rng.choice([2, 2, 3]))
        count = rng.choice([1, 2, 5, 80])
        tuples = [f"({', '.join(rng.choice(LITERALS[n]) for n in names)})" for _ in range(count)]
        listed = ", ".join(tuples)
        made.append(f"({', '.join(names)}) {'NOT ' if i % 3 == 0 else ''}IN ({listed})")
    return [
        *made,
        *(f"{one} AND a > 1" for one in made[:5]),
        *(f"NOT ({one}) OR h = 1" for one in made[:5]),
        "(a, c) = (1, 2L)",
        "(a, d) <> (1, double('NaN'))",
        "(a, c) <=> (CAST(NULL AS INT), 1L)",
        "((a, c)) IN (((1, 2L)), (2, 1L))",
        "((a), (c)) IN (((1), (2L)))",
        "(a, a) IN ((1, 1), (2, 1))",
    ]


@pytest.fixture(scope="module")
def lake(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> bitlake.Lake:
    folder = tmp_path_factory.mktemp("tuples")
    lake = bitlake.connect(str(folder / "lake"), spark=spark)
    data = rows()
    table = lake.create_table("t", data.schema, options=OPTIONS)
    for start in range(0, ROWS, 100):
        table.append(data.slice(start, 100))
    pq.write_table(data, folder / "rows.parquet")
    spark.read.parquet(str(folder / "rows.parquet")).coalesce(1).createOrReplaceTempView("plain_tuples")
    return lake


def plain(spark: Any, condition: str) -> list[int]:
    found = spark.sql(f"SELECT id FROM plain_tuples WHERE {condition} ORDER BY id").collect()
    return [row[0] for row in found]


@pytest.mark.exhaustive
def test_scans_find_the_rows_that_spark_finds(spark: Any, lake: bitlake.Lake) -> None:
    table, every = lake.table("t"), conditions()
    columns = ", ".join(f"({condition}) AS c{i}" for i, condition in enumerate(every))
    answers = spark.sql(f"SELECT id, {columns} FROM plain_tuples ORDER BY id").toArrow()
    selective = 0
    for i, condition in enumerate(every):
        expected = answers.column("id").filter(answers.column(i + 1)).to_pylist()
        found = table.scan(columns=["id"], where=condition).to_arrow().column("id").to_pylist()
        assert found == expected, condition
        selective += 0 < len(found) < ROWS
    assert selective > 40


def test_scans_refuse_what_spark_refuses(spark: Any, lake: bitlake.Lake) -> None:
    for condition in REFUSED:
        with pytest.raises(AnalysisException, match="DATATYPE_MISMATCH"):
            plain(spark, condition)
        with pytest.raises(InvalidRequest, match="types must be equal|constants, of the same types"):
            lake.table("t").scan(where=condition).to_arrow()


@pytest.mark.parametrize("number", every(2, range(0, 60, 12)))
def test_queries_of_spark_prune_by_tuples(spark: Any, lake: bitlake.Lake, number: int) -> None:
    condition = conditions()[number]
    found = lake.sql(f"SELECT id FROM t WHERE {condition} ORDER BY id").collect()
    assert [row[0] for row in found] == plain(spark, condition)
