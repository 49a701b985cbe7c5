"""Bloom filters in files that Spark wrote deny no value that Spark stored, and nearly all others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from bitlake.formats.parquet.footer import read_footer
from bitlake.formats.parquet.page_index import groups_that_may_hold, plain_bytes

ROWS = 4_000


def test_filters_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 2 * ROWS, 2, 1).selectExpr("id", "CAST(id AS INT) AS n", "concat('k', id, 'é') AS s")
    writer = frame.write.option("parquet.bloom.filter.enabled", "true").option("parquet.enable.dictionary", "false")
    for name in ("id", "n", "s"):
        writer = writer.option(f"parquet.bloom.filter.expected.ndv#{name}", str(ROWS))
    writer.parquet(str(tmp_path / "t"))
    (file,) = (tmp_path / "t").glob("*.parquet")
    data = file.read_bytes()
    footer = read_footer(lambda offset, n: data[offset : offset + n], len(data))

    def fetch(ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return [data[offset : offset + n] for offset, n in ranges]

    def held(name: str, value: int) -> bool:
        leaf = footer.column(name).leaf
        encoded = plain_bytes(footer.leaves[leaf].physical or 0, f"k{value}é" if name == "s" else value)
        assert encoded is not None
        groups = groups_that_may_hold(footer, leaf, [encoded], fetch)
        assert groups is not None
        return any(groups)

    for name in ("id", "n", "s"):
        assert all(held(name, value) for value in range(0, 2 * ROWS, 20))
        assert sum(held(name, value) for value in range(1, 2 * ROWS, 20)) < 20
