"""TPC-H through ``lake.sql`` beside the same queries over plain Parquet that Spark wrote, in one session.

The lake holds the tables twice: in the order they come in, as plain Parquet does, and once sorted by the date that most
queries ask for (``CALL sys.compact(…, order_strategy => 'order')``), so that statistics leave files out.  Plain Parquet
sorted likewise is a third, to tell what sorting alone gives.

Needs tpchgen-cli (``pip install tpchgen-cli``); without it there is nothing to measure, which is said.
"""

from __future__ import annotations

import math
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from bench.measure import Result, interleaved, timed
from bench.tpch_queries import QUERIES

if TYPE_CHECKING:
    from bench.cases import Bench

TABLES = ("lineitem", "orders", "customer", "part", "partsupp", "supplier", "nation", "region")
SCALE = 1
SORTED = {"lineitem": "l_shipdate", "orders": "o_orderdate"}
"""Tables that are sorted, and by what."""
_DATABASES = {"in the order given": "tpch", "sorted by date": "tpch_sorted"}
SORTED_FILES = "16 mb"
"""Small enough that a year of lineitem is in several files, and both cores have some."""
_NAMES = re.compile(rf"\b({'|'.join(TABLES)})\b")


def tpch(bench: Bench) -> list[Result]:
    """How long do the 22 queries of TPC-H at scale 1 take, ÷ the same SQL over plain Parquet?"""
    source = tpch_source(bench)
    if source is None:
        return []
    _load(bench, source)
    measured, by_duckdb = [], {}
    for number in QUERIES:
        medians, by_duckdb[number] = _query(bench, number)
        measured.append((number, medians))
    out: list[Result] = []
    for way, target in (("sorted by date", 0.9), ("in the order given", 0.97)):
        for number, m in measured:
            told = f"TPC-H query {number}, {way}"
            out.append(Result(told, "s", m[way], m["plain"], "plain Parquet", 1.3, bench.rounds))
        ratios = {number: m[way] / m["plain"] for number, m in measured}
        worst = max(ratios, key=lambda n: ratios[n])
        by_spark = [ratio for number, ratio in ratios.items() if way not in by_duckdb[number]]
        note = f"worst: query {worst}, {ratios[worst]:.2f}; {len(by_spark)} queries run on Spark: {_mean(by_spark):.3f}"
        told = f"TPC-H scale 1, {way}: geometric mean of the ratios"
        out.append(Result(told, "", _mean(ratios.values()), None, "", target, bench.rounds, note))
    sorted_too = _mean(m["sorted by date"] / m["plain, sorted"] for _, m in measured)
    told = "TPC-H scale 1, both sorted by date: geometric mean of the ratios"
    return [*out, Result(told, "", sorted_too, None, "", None, bench.rounds, "")]


def _mean(ratios: Iterable[float]) -> float:
    logs = [math.log(r) for r in ratios]
    return math.exp(sum(logs) / len(logs))


def _load(bench: Bench, source: Path) -> None:
    """Make databases ``tpch`` (tables as they come) and ``tpch_sorted``, and views of plain Parquet of either kind."""
    for database in ("tpch", "tpch_sorted"):
        bench.lake.sql(f"CREATE DATABASE IF NOT EXISTS {database}")
    for name in TABLES:
        given = f"tpch_source_{name}"
        bench.spark.read.parquet(str(source / f"{name}.parquet")).createOrReplaceTempView(given)
        rows = bench.spark.table(given)
        _plain(bench, rows, name, "plain")
        for database in ("tpch", "tpch_sorted"):
            bench.lake.sql(f"DROP TABLE IF EXISTS {database}.{name}")
        bench.lake.sql(f"CREATE TABLE tpch.{name} AS SELECT * FROM {given}")
        column = SORTED.get(name)
        _plain(bench, rows if column is None else rows.orderBy(column), name, "plain_sorted")
        options = "" if column is None else f"TBLPROPERTIES ('target-file-size' = '{SORTED_FILES}')"
        bench.lake.sql(f"CREATE TABLE tpch_sorted.{name} {options} AS SELECT * FROM {given}")
        if column is not None:
            bench.lake.sql(
                f"CALL sys.compact(table => 'tpch_sorted.{name}', order_strategy => 'order', order_by => '{column}')"
            )


def _plain(bench: Bench, rows: DataFrame, name: str, prefix: str) -> None:
    folder = bench.folder / f"tpch-{prefix}" / name
    rows.write.mode("overwrite").option("compression", "zstd").parquet(str(folder))
    bench.spark.read.parquet(str(folder)).createOrReplaceTempView(f"{prefix}_{name}")


def tpch_source(bench: Bench) -> Path | None:
    """The folder with TPC-H's tables, one Parquet file each, made if need be; None without tpchgen-cli."""
    folder = bench.folder / f"tpch-{SCALE}"
    if (folder / "lineitem.parquet").exists():
        return folder
    tool = shutil.which("tpchgen-cli") or shutil.which("tpchgen-cli", path=str(Path(sys.executable).parent))
    if tool is None:
        bench.say("TPC-H: tpchgen-cli is not installed (pip install tpchgen-cli); left out")
        return None
    made = folder.with_suffix(".part")
    shutil.rmtree(made, ignore_errors=True)
    subprocess.run([tool, "parquet", "-s", str(SCALE), "--output-dir", str(made)], check=True)
    made.rename(folder)
    return folder


def _query(bench: Bench, number: int) -> tuple[dict[str, float], set[str]]:
    """Seconds of a query by where its tables are, and where DuckDB computes it in the driver."""
    text = QUERIES[number]
    answers: dict[str, Any] = {}

    def of_lake(way: str) -> Callable[[], float]:
        def run() -> float:
            bench.lake.sql(f"USE {_DATABASES[way]}")
            return timed(lambda: answers.update({way: bench.lake.sql(text).collect()}))

        return run

    def of_parquet(way: str, prefix: str) -> Callable[[], float]:
        theirs = _NAMES.sub(rf"{prefix}_\1", text)
        return lambda: timed(lambda: answers.update({way: bench.spark.sql(theirs).collect()}))

    m = interleaved(
        {
            "in the order given": of_lake("in the order given"),
            "plain": of_parquet("plain", "plain"),
            "sorted by date": of_lake("sorted by date"),
            "plain, sorted": of_parquet("plain, sorted", "plain_sorted"),
        },
        bench.rounds,
    )
    by_duckdb = {way for way, database in _DATABASES.items() if _is_driver_query(bench, database, text)}
    bench.lake.sql("USE default")
    for way, rows in answers.items():
        if not _same(rows, answers["plain"]):
            raise AssertionError(f"TPC-H query {number}: the answers of plain Parquet and of the tables {way} differ")
    bench.say(f"tpch: query {number}: {', '.join(f'{way} {m[way]:.2f} s' for way in answers)}")
    return {way: m[way] for way in answers}, by_duckdb


def _is_driver_query(bench: Bench, database: str, text: str) -> bool:
    bench.lake.sql(f"USE {database}")
    return bench.lake.explain(text).spark.startswith("DuckDB computes")


def _same(a: list[Any], b: list[Any]) -> bool:
    def plain(rows: list[Any]) -> list[list[Any]]:
        return [[round(v, 6) if isinstance(v, float) else v for v in r] for r in rows]

    return plain(a) == plain(b)
