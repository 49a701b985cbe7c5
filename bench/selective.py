"""Selective reads: bitlake's through its indexes, and the same through pyarrow, DuckDB, pypaimon and Spark.

Every reader gets the same files.  Ours, and pypaimon's, opens the table, plans and reads; pyarrow and DuckDB are given
the names of the files.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import bitlake
from bench.headline import SMALL_PAGES
from bench.measure import Result, Run, noise, samples, timed
from bitlake.demo import SEED, USERS

if TYPE_CHECKING:
    from bench.cases import Bench

OPTIONS = {
    "file-index.range-bitmap.columns": "amount",
    "file-index.bitmap.columns": "status,region",
    "file-index.bloom-filter.columns": "user_id",
    "target-file-row-num": "500000",
}
TOP_N_TARGET = 1 / 20
_N = 10
_COLUMNS = "order_id,user_id,status,region,amount,order_date,payload"


@dataclass(frozen=True, slots=True)
class Question:
    """One filter in the words of each reader: SQL, a pyarrow expression, and pypaimon's (bench.pypaimon_timer)."""

    name: str
    sql: str
    arrow: pc.Expression
    paimon: list[Any]


def selective(bench: Bench) -> list[Result]:
    """What do selective reads and TopN take through indexes, beside pyarrow, DuckDB, pypaimon and a full sort?"""
    table = _table(bench, "bench.selective", OPTIONS)
    files = bench.parquet_files(table)
    results: list[Result] = []
    for question in _questions(files):
        bench.say(f"selective: {question.name}")
        results += _filter(bench, table, files, question)
    results += _small_pages(bench)
    for name, where in (("TopN 10", None), ("TopN 10 of region = 'US'", "region = 'US'")):
        bench.say(f"selective: {name}")
        results += _top_n(bench, table, files, name, where)
    return results


def _small_pages(bench: Bench) -> list[Result]:
    """The range once more on smaller pages: its rows are scattered, so a page is what each of them costs."""
    table = _table(bench, "bench.selective_small", OPTIONS | SMALL_PAGES)
    files = bench.parquet_files(table)
    question = replace(_questions(files)[0], name="range on a random column, 16 KB pages")
    bench.say(f"selective: {question.name}")
    return _filter(bench, table, files, question)


def _table(bench: Bench, name: str, options: dict[str, str]) -> str:
    lake = bitlake.connect(str(bench.warehouse))
    lake.create_database("bench", if_not_exists=True)
    lake.drop_table(name, if_exists=True)
    source = pq.ParquetFile(bench.source)
    table = lake.create_table(name, source.schema_arrow, options=options)
    table.append(source.iter_batches(128 * 1024))
    return name


def _questions(files: list[str]) -> list[Question]:
    """The literals come from the data, so that each finds what its name says."""
    known = ds.dataset(files).to_table(columns=["user_id", "amount"])
    users = np.unique(known.column("user_id").to_numpy())
    absent = int(np.setdiff1d(np.arange(USERS), users)[0])
    present = int(users[len(users) // 3])
    random = np.random.default_rng(SEED)
    picked = known.column("amount").take(pa.array(np.sort(random.choice(known.num_rows, 1_000, replace=False))))
    amounts = sorted({str(v) for v in picked.to_pylist()})
    amount, user, status = pc.field("amount"), pc.field("user_id"), pc.field("status")
    low, high, cheap = "50000.00", "50010.00", "1.50"
    kind = known.schema.field("amount").type

    def number(text: str) -> pa.Scalar:
        return pa.scalar(Decimal(text), kind)

    def in_paimon(text: str) -> dict[str, str]:
        return {"decimal": text}

    wanted = pa.array([Decimal(a) for a in amounts], kind)
    return [
        Question(
            "range on a random column",
            f"amount >= {low} AND amount < {high}",
            (amount >= number(low)) & (amount < number(high)),
            ["and", ["greater_or_equal", "amount", in_paimon(low)], ["less_than", "amount", in_paimon(high)]],
        ),
        Question("bloom hit", f"user_id = {present}", user == present, ["equal", "user_id", present]),
        Question("bloom miss", f"user_id = {absent}", user == absent, ["equal", "user_id", absent]),
        Question(
            "IN of 1,000",
            f"amount IN ({', '.join(amounts)})",
            amount.isin(wanted),
            ["is_in", "amount", [in_paimon(a) for a in amounts]],
        ),
        Question(
            "OR over two columns",
            f"status = 'PENDING' OR amount < {cheap}",
            (status == "PENDING") | (amount < number(cheap)),
            ["or", ["equal", "status", "PENDING"], ["less_than", "amount", in_paimon(cheap)]],
        ),
    ]


class _Counting:
    """Runs readers, and remembers how many rows each found: a fast wrong answer is no result."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}

    def run(self, name: str, read: Callable[[], Any]) -> Run:
        def once() -> float:
            def counted() -> None:
                self.rows[name] = read().num_rows

            return timed(counted)

        return once

    def check(self, what: str) -> int:
        if len(set(self.rows.values())) != 1:
            raise AssertionError(f"{what}: they read different numbers of rows: {self.rows}")
        return next(iter(self.rows.values()))


def _filter(bench: Bench, table: str, files: list[str], question: Question) -> list[Result]:
    counting = _Counting()
    peer = bench.peer

    def ours() -> pa.Table:
        return bitlake.connect(str(bench.warehouse)).table(table).scan(where=question.sql).to_arrow()

    def theirs(native: bool) -> float:
        assert peer is not None
        seconds, rows = peer.read_where(bench.warehouse, table, question.paimon, native)
        counting.rows[f"pypaimon {native}"] = rows
        return seconds

    runs: dict[str, Run] = {
        "bitlake": counting.run("bitlake", ours),
        "pyarrow dataset": counting.run("pyarrow", lambda: ds.dataset(files).to_table(filter=question.arrow)),
        "DuckDB": counting.run("duckdb", lambda: _duckdb(files, f"WHERE {question.sql}")),
    }
    if peer is not None:
        runs |= {"pypaimon": lambda: theirs(False), "pypaimon native (Rust)": lambda: theirs(True)}
    found = samples(runs, bench.rounds, warmups=2)
    rows = counting.check(question.name)
    scan = bitlake.connect(str(bench.warehouse)).table(table).scan(where=question.sql)
    scan.to_arrow()
    done = scan.plan().metrics
    note = (
        f"{rows:,} rows; {done.files_read} of {done.files} files, {done.data_bytes_read / 1024:,.0f} KB of data in "
        f"{done.data_requests} requests; {noise(found)}"
    )
    m = {k: statistics.median(v) for k, v in found.items()}
    results = []
    for name in list(runs)[1:]:
        results.append(Result(question.name, "s", m["bitlake"], m[name], name, None, bench.rounds, note))
        note = ""
    return results


def _top_n(bench: Bench, table: str, files: list[str], name: str, where: str | None) -> list[Result]:
    counting = _Counting()
    condition = f"WHERE {where}" if where else ""
    bench.spark.read.parquet(*files).createOrReplaceTempView("bench_selective")
    query = f"SELECT * FROM {{}} {condition} ORDER BY amount DESC LIMIT {_N}"
    answers: dict[str, list[Any]] = {}

    def kept(reader: str, rows: pa.Table) -> pa.Table:
        answers[reader] = rows.column("amount").to_pylist()
        return rows

    def ours() -> pa.Table:
        scan = bitlake.connect(str(bench.warehouse)).table(table).scan(where=where)
        return kept("scan", scan.top_n([("amount", "desc")], _N).to_arrow())

    def full_sort() -> pa.Table:
        chosen = None if where is None else pc.field("region") == "US"
        rows = ds.dataset(files).to_table(filter=chosen)
        return kept("sort", rows.sort_by([("amount", "descending")]).slice(0, _N))

    def spark_sort() -> pa.Table:
        return kept("spark", bench.spark.sql(query.format("bench_selective")).toArrow())

    runs: dict[str, Run] = {
        "scan.top_n": counting.run("scan", ours),
        "full sort (pyarrow)": counting.run("sort", full_sort),
        "DuckDB": counting.run("duckdb", lambda: _duckdb(files, f"{condition} ORDER BY amount DESC LIMIT {_N}")),
        "SQL": counting.run("sql", lambda: kept("sql", bench.lake.sql(query.format(table)).toArrow())),
        "Spark on the same files": counting.run("spark", spark_sort),
    }
    found = samples(runs, bench.rounds, warmups=2)
    counting.check(name)
    assert len({tuple(a) for a in answers.values()}) == 1, f"{name}: they found different rows: {answers}"
    m = {k: statistics.median(v) for k, v in found.items()}
    scan, sql, sort = m["scan.top_n"], m["SQL"], m["full sort (pyarrow)"]
    spark = m["Spark on the same files"]
    rounds, spread = bench.rounds, noise(found)
    return [
        Result(name, "s", scan, sort, "the full sort (pyarrow)", TOP_N_TARGET, rounds, spread),
        Result(name, "s", scan, m["DuckDB"], "DuckDB on the same files", None, rounds),
        Result(f"{name}, SQL", "s", sql, sort, "the full sort (pyarrow)", TOP_N_TARGET, rounds),
        Result(f"{name}, SQL", "s", sql, spark, "Spark's own on the same files", None, rounds),
    ]


def _duckdb(files: list[str], rest: str) -> pa.Table:
    found = duckdb.sql(f"SELECT {_COLUMNS} FROM read_parquet({files!r}) {rest}")
    assert found is not None  # as it would be for a statement that is no query
    return found.to_arrow_table()
