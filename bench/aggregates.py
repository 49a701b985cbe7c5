"""Aggregates of groups from bitmaps and bit slices, beside DuckDB over the very same Parquet files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb

import bitlake
from bench.measure import Result, interleaved, timed

if TYPE_CHECKING:
    from bench.cases import Bench

SLICES = {"bsi": "file-index.bsi.columns", "range-bitmap": "file-index.range-bitmap.columns"}
QUERY = "SELECT region, count(*), sum(amount) FROM {} WHERE status = 'PENDING' GROUP BY region"
BITMAPS = {"file-index.bitmap.columns": "status,region"}


def aggregates(bench: Bench) -> list[Result]:
    """What does GROUP BY with SUM cost that indexes answer, beside DuckDB reading the columns?"""
    results = []
    for index, option in SLICES.items():
        name = f"sums_{index.replace('-', '_')}"
        bench.create(name, BITMAPS | {option: "amount"})
        bench.insert(name)
        results += _compared(bench, index, f"bench.{name}")
        bench.lake.sql(f"DROP TABLE bench.{name}")
    return results


def _compared(bench: Bench, index: str, name: str) -> list[Result]:
    lake = bitlake.connect(str(bench.warehouse))
    files = [f.path for f in lake.table(name).scan().plan().files]
    connection = duckdb.connect()
    answers: dict[str, Any] = {}

    def scan() -> None:
        plan = lake.table(name).scan(where="status = 'PENDING'")
        rows = plan.aggregate({"*": "count", "amount": "sum"}, group_by=["region"])
        answers["scan"] = _sorted(rows.rename_columns(["region", "n", "total"]))
        assert set(plan.plan().metrics.answered_by) == {"index"}  # no data file was opened

    def sql() -> None:
        answers["sql"] = _sorted(lake.sql(QUERY.format(name), engine="duckdb").to_arrow_table())

    def parquet() -> None:
        rows = connection.sql(QUERY.format(f"read_parquet({files!r})")).to_arrow_table()
        answers["parquet"] = _sorted(rows)

    rounds = 5 * bench.rounds
    runs = {"scan": lambda: timed(scan), "sql": lambda: timed(sql), "parquet": lambda: timed(parquet)}
    m = interleaved(runs, rounds, warmups=3)
    assert answers["scan"] == answers["sql"] == answers["parquet"], answers
    text, base = f"PENDING by region, sum(amount) by {index}", "DuckDB over the same Parquet"
    return [
        Result(f"{text}, scan.aggregate()", "s", m["scan"], m["parquet"], base, 1 / 20, rounds),
        Result(f"{text}, lake.sql on DuckDB", "s", m["sql"], m["parquet"], base, 1 / 20, rounds),
    ]


def _sorted(rows: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in rows.to_pylist())
