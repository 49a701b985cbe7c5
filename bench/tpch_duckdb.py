"""TPC-H through ``lake.sql(engine="duckdb")`` beside DuckDB over the very Parquet files of the same tables.

Each query is asked four ways in turns, in one process: DuckDB over the files; the lake, where DuckDB reads the files
itself; the lake with every table bound through Arrow, as tables with deleted or merged rows are; and a connection of
DuckDB's in which the tables' datasets are registered.  Times are of the whole call, with parsing and planning.  Needs
tpchgen-cli, as :mod:`bench.tpch`.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow.parquet as pq

from bench.measure import Result, samples
from bench.tpch import SCALE, TABLES, tpch_source
from bench.tpch_queries import QUERIES

if TYPE_CHECKING:
    from bench.cases import Bench

DATABASE = "tpch_duckdb"
WAYS = {
    "direct": ("files bound directly", 1.1),
    "dataset": ("through Arrow", 1.6),
    "registered": ("registered datasets", 1.6),
}


def tpch_duckdb(bench: Bench) -> list[Result]:
    """How long do TPC-H's queries take DuckDB over lake tables, ÷ DuckDB over the same files?"""
    import duckdb

    source = tpch_source(bench)
    if source is None:
        return []
    bench.lake.sql(f"CREATE DATABASE IF NOT EXISTS {DATABASE}", engine="duckdb")
    connection, over_datasets = duckdb.connect(), duckdb.connect()
    for name in TABLES:
        bench.lake.sql(f"DROP TABLE IF EXISTS {DATABASE}.{name}", engine="duckdb")
        bench.lake.write(pq.ParquetFile(source / f"{name}.parquet").iter_batches(), f"{DATABASE}.{name}")
        dataset = bench.lake.table(f"{DATABASE}.{name}").dataset()
        connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet({dataset.files!r})")
        over_datasets.register(name, dataset)
    bench.lake.sql(f"USE {DATABASE}", engine="duckdb")
    measured = {number: _query(bench, connection, over_datasets, number) for number in QUERIES}
    bench.lake.sql("USE default", engine="duckdb")
    out: list[Result] = []
    for way, (words, target) in WAYS.items():
        for kind in ("seconds", "CPU"):
            ratios = {n: m[way, kind] / m["plain", kind] for n, m in measured.items()}
            worst = max(ratios, key=lambda n: ratios[n])
            mean = math.exp(statistics.mean(map(math.log, ratios.values())))
            note = f"worst: query {worst}, {ratios[worst]:.2f}"
            told = f"TPC-H scale {SCALE} on DuckDB, {words}, {kind}: geometric mean of the ratios"
            out.append(Result(told, "", mean, None, "", target if kind == "seconds" else None, bench.rounds, note))
    return out


def _query(bench: Bench, connection: Any, over_datasets: Any, number: int) -> dict[tuple[str, str], float]:
    """Median seconds of a query, on the clock and of the processor, by way."""
    text = QUERIES[number]
    answers: dict[str, Any] = {}
    cpu: dict[str, list[float]] = {"plain": [], "direct": [], "dataset": [], "registered": []}

    def run(way: str, ask: Callable[[], Any]) -> Callable[[], float]:
        def once() -> float:
            began, started = time.process_time(), time.perf_counter()
            answers[way] = ask().to_arrow_table()
            seconds = time.perf_counter() - started
            cpu[way].append(time.process_time() - began)
            return seconds

        return once

    def through_dataset() -> Any:
        with mock.patch("bitlake.sql.duckdb_engine.direct_files", return_value="measured as a dataset"):
            return bench.lake.sql(text, engine="duckdb")

    runs = {
        "plain": run("plain", lambda: connection.sql(text)),
        "direct": run("direct", lambda: bench.lake.sql(text, engine="duckdb")),
        "dataset": run("dataset", through_dataset),
        "registered": run("registered", lambda: over_datasets.sql(text)),
    }
    m = {way: statistics.median(v) for way, v in samples(runs, bench.rounds).items()}
    if len({repr(_plain(rows)) for rows in answers.values()}) > 1:
        raise AssertionError(f"TPC-H query {number}: the lake's answers and DuckDB's over the files differ")
    processor = {way: statistics.median(v[1:]) for way, v in cpu.items()}
    shown = ", ".join(f"{way} {m[way]:.3f} s (CPU {processor[way]:.3f})" for way in m)
    bench.say(f"tpch_duckdb: query {number}: {shown}")
    return {(w, k): v[w] for k, v in (("seconds", m), ("CPU", processor)) for w in m}


def _plain(rows: Any) -> list[list[str]]:
    """Values to three places: DuckDB's average of decimals is a DOUBLE, Spark's a DECIMAL."""

    def digits(value: Any) -> str:
        return f"{float(value):.3f}" if hasattr(value, "__float__") else str(value)

    return [list(map(digits, row.values())) for row in rows.to_pylist()]
