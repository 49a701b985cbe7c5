"""TPC-H through ``lake.sql`` beside the same queries over plain Parquet that Spark wrote, in one session.

Needs tpchgen-cli (``pip install tpchgen-cli``); without it there is nothing to measure, which is said.
"""

from __future__ import annotations

import math
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.measure import Result, interleaved, timed
from bench.tpch_queries import QUERIES

if TYPE_CHECKING:
    from bench.cases import Bench

TABLES = ("lineitem", "orders", "customer", "part", "partsupp", "supplier", "nation", "region")
SCALE = 1
_NAMES = re.compile(rf"\b({'|'.join(TABLES)})\b")


def tpch(bench: Bench) -> list[Result]:
    """How long do the 22 queries of TPC-H at scale 1 take, ÷ the same SQL over plain Parquet?"""
    source = tpch_source(bench)
    if source is None:
        return []
    bench.lake.sql("CREATE DATABASE IF NOT EXISTS tpch")
    for name in TABLES:
        bench.spark.read.parquet(str(source / f"{name}.parquet")).createOrReplaceTempView(f"tpch_source_{name}")
        plain = bench.folder / "tpch-plain" / name
        rows = bench.spark.table(f"tpch_source_{name}")
        rows.write.mode("overwrite").option("compression", "zstd").parquet(str(plain))
        bench.spark.read.parquet(str(plain)).createOrReplaceTempView(f"plain_{name}")
        bench.lake.sql(f"DROP TABLE IF EXISTS tpch.{name}")
        bench.lake.sql(f"CREATE TABLE tpch.{name} AS SELECT * FROM tpch_source_{name}")
    found = [_query(bench, number) for number in QUERIES]
    mean = math.exp(sum(math.log(r.value) for r in found) / len(found))
    worst = max(found, key=lambda r: r.value)
    note = f"worst: {worst.name} {worst.value:.2f}"
    told = "TPC-H scale 1, geometric mean of the ratios"
    return [*found, Result(told, "", mean, None, "", 1.0, bench.rounds, note)]


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


def _query(bench: Bench, number: int) -> Result:
    text = QUERIES[number]
    theirs = _NAMES.sub(r"plain_\1", text)
    answers: dict[str, Any] = {}

    def run_ours() -> float:
        bench.lake.sql("USE tpch")
        return timed(lambda: answers.update(ours=bench.lake.sql(text).collect()))

    def run_theirs() -> float:
        return timed(lambda: answers.update(theirs=bench.spark.sql(theirs).collect()))

    m = interleaved({"ours": run_ours, "theirs": run_theirs}, bench.rounds)
    bench.lake.sql("USE default")
    if not _same(answers["ours"], answers["theirs"]):
        raise AssertionError(f"TPC-H query {number}: the answers differ")
    bench.say(f"tpch: query {number}: {m['ours']:.2f} s, plain {m['theirs']:.2f} s")
    return Result(f"TPC-H query {number}", "s", m["ours"], m["theirs"], "plain Parquet", 1.3, bench.rounds)


def _same(a: list[Any], b: list[Any]) -> bool:
    def plain(rows: list[Any]) -> list[list[Any]]:
        return [[round(v, 6) if isinstance(v, float) else v for v in r] for r in rows]

    return plain(a) == plain(b)
