"""What join filters bring: a star of selective dimensions, and TPC-H's queries, with and without them.

The fact table lies in order of its day and number, as rows arrive, and has a bitmap index on its store, whose values
are everywhere.  Runs with ``read.join-filters`` on and off take turns, on Spark and on DuckDB.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from bench.measure import Result, interleaved, timed
from bench.tpch import TABLES, tpch_source
from bench.tpch_queries import QUERIES

if TYPE_CHECKING:
    from bench.cases import Bench

FILES = 32
DAYS = 1_600
STORES = 20_000
_OPTION = "spark.paimon.read.join-filters"
_MEASURES = "count(*) AS n, sum(amount) AS amount, sum(units) AS units, max(note) AS note"
STAR = {
    "a month of days": f"SELECT {_MEASURES} FROM sales JOIN days ON sales.day = days.day WHERE month = 17",
    "a day by name": f"SELECT {_MEASURES} FROM sales JOIN days USING (day) WHERE title = 'day 801'",
    "days by store": f"SELECT store, {_MEASURES} FROM sales, days "
    "WHERE sales.day = days.day AND month = 3 GROUP BY store",
    "IN of days": f"SELECT {_MEASURES} FROM sales WHERE day IN (SELECT day FROM days WHERE month = 44)",
    "semi join of days": f"SELECT {_MEASURES} FROM sales LEFT SEMI JOIN days d ON d.day = sales.day AND d.month = 30",
    "a season of days": f"SELECT {_MEASURES} FROM sales JOIN days d ON d.day = sales.day JOIN months m "
    "ON d.month = m.month WHERE m.season = 'season 7'",
    "grouped days": f"WITH w AS (SELECT day, max(title) AS title FROM days WHERE month = 9 GROUP BY day) "
    f"SELECT {_MEASURES} FROM sales JOIN w ON sales.day = w.day",
    "returned sales": f"SELECT {_MEASURES} FROM sales JOIN returns ON sales.id = returns.sale "
    "WHERE reason = 'reason 3'",
    "stores of a city": f"SELECT {_MEASURES} FROM sales JOIN stores ON sales.store = stores.store "
    "WHERE city = 'city 77'",
    "days and stores": f"SELECT {_MEASURES} FROM sales JOIN days ON sales.day = days.day "
    "JOIN stores ON sales.store = stores.store WHERE month = 17 AND city = 'city 77'",
}


def join_filters(bench: Bench) -> list[Result]:
    """What do ten star joins, and TPC-H's queries, take with join filters, ÷ the same without?"""
    _star(bench)
    out = _measured(bench, "star", STAR, "star join", 0.3)
    source = tpch_source(bench)
    if source is None:
        return out
    bench.lake.sql("CREATE DATABASE IF NOT EXISTS tpch_joins")
    for name in TABLES:
        given = f"joins_source_{name}"
        bench.spark.read.parquet(str(source / f"{name}.parquet")).createOrReplaceTempView(given)
        bench.lake.sql(f"DROP TABLE IF EXISTS tpch_joins.{name}")
        bench.lake.sql(f"CREATE TABLE tpch_joins.{name} AS SELECT * FROM {given}")
    queries = {f"query {number}": text for number, text in QUERIES.items()}
    return out + _measured(bench, "tpch_joins", queries, "TPC-H", 1.05)


def _measured(bench: Bench, database: str, queries: Mapping[str, str], what: str, target: float) -> list[Result]:
    out: list[Result] = []
    for engine, rounds in (("spark", bench.rounds), ("duckdb", 3 * bench.rounds)):
        ratios = []
        for name, text in queries.items():
            m, filtered = _query(bench, database, text, engine, rounds)
            ratios.append(m["on"] / m["off"])
            note = "; ".join(filtered) or "no filter"
            told = f"{what}, {name}, {engine}: with join filters"
            out.append(Result(told, "s", m["on"], m["off"], "without", target, rounds, note))
            bench.say(f"{told} {m['on']:.3f} s, without {m['off']:.3f} s: {ratios[-1]:.2f} ({note})")
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        told, mean_target = f"{what}, {engine}: geometric mean of the ratios", 1.02 if target > 1 else target
        out.append(Result(told, "", mean, None, "", mean_target, rounds, f"worst {max(ratios):.2f}"))
    return out


def _query(bench: Bench, database: str, text: str, engine: str, rounds: int) -> tuple[dict[str, float], list[str]]:
    """Seconds with filters on and off, and what filters left; the answers must be the same."""
    answers: dict[str, Any] = {}

    def fetch() -> Any:
        found = bench.lake.sql(text, engine=engine)
        return found.collect() if engine == "spark" else found.fetchall()

    def way(name: str) -> Callable[[], float]:
        def run() -> float:
            bench.spark.conf.set(_OPTION, "true" if name == "on" else "false")
            return timed(lambda: answers.update({name: fetch()}))

        return run

    bench.lake.sql(f"USE {database}")
    try:
        m = interleaved({"on": way("on"), "off": way("off")}, rounds, warmups=2)
        bench.spark.conf.set(_OPTION, "true")
        (plan,) = bench.lake.sql(f"EXPLAIN {text}", engine="duckdb")["plan"].to_pylist()
    finally:
        bench.spark.conf.unset(_OPTION)
        bench.lake.sql("USE default")
    if len(answers["on"]) != len(answers["off"]):
        raise AssertionError(f"join filters change the answer of {text}")
    return m, [line.split(maxsplit=1)[1] for line in plan.splitlines() if line.startswith("  join  ")]


def _star(bench: Bench) -> None:
    """Make the tables of the star."""
    bench.lake.sql("CREATE DATABASE IF NOT EXISTS star")
    for name in ("sales", "days", "months", "stores", "returns"):
        bench.lake.sql(f"DROP TABLE IF EXISTS star.{name}")
    rng, rows = np.random.default_rng(7), bench.rows // FILES
    columns = {"id": pa.int64(), "day": pa.int32(), "store": pa.int32(), "amount": pa.float64(), "units": pa.int32()}
    schema = pa.schema([*columns.items(), ("note", pa.string())])
    sales = bench.lake.create_table("star.sales", schema, options={"file-index.bitmap.columns": "store"})
    notes = np.array([f"note {i} of a sale" for i in range(5_000)])
    for i in range(FILES):
        ids = np.arange(i * rows, (i + 1) * rows)
        sales.append(
            pa.table(
                {
                    "id": ids,
                    "day": pa.array(ids * DAYS // bench.rows, pa.int32()),
                    "store": pa.array(rng.integers(0, STORES, rows), pa.int32()),
                    "amount": rng.random(rows) * 100,
                    "units": pa.array(rng.integers(1, 9, rows), pa.int32()),
                    "note": notes[rng.integers(0, len(notes), rows)],
                },
                schema,
            )
        )
    days, stores, returned = np.arange(DAYS), np.arange(STORES), np.arange(2_000)
    bench.lake.create_table(
        "star.days", pa.table({"day": days, "month": days // 30, "title": [f"day {d}" for d in days]})
    )
    months = np.arange(DAYS // 30 + 1)
    bench.lake.create_table("star.months", pa.table({"month": months, "season": [f"season {m // 3}" for m in months]}))
    bench.lake.create_table("star.stores", pa.table({"store": stores, "city": [f"city {s // 20}" for s in stores]}))
    sale = returned * (bench.rows // 2_000)
    bench.lake.create_table(
        "star.returns", pa.table({"sale": sale, "reason": [f"reason {r // 100}" for r in returned]})
    )
