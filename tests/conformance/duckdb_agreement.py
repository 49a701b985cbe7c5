"""Queries under ``--engine auto`` and on Spark: ``make sql-conformance ENGINE=duckdb``.

``python tests/conformance/duckdb_agreement.py --statements 1000 --seed 1``: random queries of analysts
(``analysts.py``) over the same rows as Parquet in plain Spark; and with ``--folder``, the queries of a folder's
``.sql`` files, such as TPC-H's, over small random tables.  Rows, names and types must be the same.  Prints each
difference, the share that ran on DuckDB, and how often each reason sent a query to Spark.
"""

from __future__ import annotations

import argparse
import collections
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

import bitlake
from bitlake.cli.result import Result
from bitlake.errors import EvaluationFailed, UnsupportedFeature
from bitlake.sql.parser import split_statements

sys.path.insert(0, str(Path(__file__).resolve().parent))

from analysts import Analyst, Query, rows
from compare import Answer, plain, same
from quick_session import QUICK, start
from tpch import make_tables


class Outcome:
    """How often what happened."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self.reasons: collections.Counter[str] = collections.Counter()
        self.differ: list[str] = []

    def __str__(self) -> str:
        made = ", ".join(f"{n} {what}" for what, n in sorted(self.counts.items()))
        reasons = "".join(f"\n  {n:4} {why}" for why, n in self.reasons.most_common())
        return f"{made}; {len(self.differ)} differ{reasons}"


def on_duckdb(lake: bitlake.Lake, text: str) -> tuple[pa.Table | None, str]:
    """A query's rows by DuckDB; or None, and why it would run on Spark under `auto`."""
    try:
        return Result.of(lake, text, 0, "duckdb").rows, ""
    except UnsupportedFeature as e:
        return None, re.sub(r"^.*? as Spark does: |; use engine='spark'$", "", str(e).replace("\n", " "))
    except EvaluationFailed as e:
        return None, "at run time: " + str(e).split("\n")[0]


def compare(lake: bitlake.Lake, run: Callable[[str], DataFrame], queries: Iterable[Query], outcome: Outcome) -> None:
    """Run queries on DuckDB where it takes them; its answers must be Spark's."""
    for query in queries:
        ours, why = on_duckdb(lake, query.text)
        if ours is None:
            # Under `auto` Spark answers, which is then right by itself; but what Spark refuses as well says nothing.
            refused = Answer(lambda text=query.text: run(text)).error is not None
            outcome.counts["refused by both" if refused else "ran on Spark"] += 1
            if not refused:
                outcome.reasons[why] += 1
            continue
        sparks = Answer(lambda text=query.text: run(text), query.ordered)
        outcome.counts["ran on DuckDB"] += 1
        problem = difference(ours, sparks, query.ordered)
        if problem:
            outcome.differ.append(f"{query.text}\n  {problem}")
            print(f"--- {outcome.differ[-1]}", flush=True)


def difference(ours: pa.Table, sparks: Answer, ordered: bool) -> str | None:
    """How a result of DuckDB's differs from Spark's answer."""
    if sparks.error is not None:
        return f"Spark: {sparks.error[:300]}"
    fields = from_arrow_schema(ours.schema, prefer_timestamp_ntz=True).fields
    columns = [(f.name, f.dataType.simpleString()) for f in fields]
    if columns != sparks.columns:
        return f"DuckDB: {columns}\n  Spark:  {sparks.columns}"
    table = list(zip(*(map(_naive, c.to_pylist()) for c in ours.columns), strict=True))
    made = [tuple(map(plain, row)) for row in table]
    made = made if ordered else sorted(made, key=repr)
    if same(made, sparks.rows):
        return None
    apart = [(a, b) for a, b in zip(made, sparks.rows, strict=False) if not same(a, b)]
    return f"{len(made)} and {len(sparks.rows)} rows; DuckDB and Spark: {apart[:3]}"


def _naive(value: Any) -> Any:
    """An instant of Arrow's as PySpark has it: without a zone, in this machine's."""
    zone = getattr(value, "tzinfo", None)
    return value.astimezone().replace(tzinfo=None) if zone is not None else value


def make_analysts_tables(lake: bitlake.Lake, plain_spark: SparkSession, folder: str) -> None:
    """The tables of the analysts' queries, in the lake and as Parquet."""
    options = {
        "sales": {"file-index.bitmap.columns": "status,item", "file-index.range-bitmap.columns": "price"},
        "items": {"bucket": "1"},
        "shops": {},
    }
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, table in rows().items():
        keys = ["item"] if name == "items" else []
        lake.create_table(name, table, primary_key=keys, options=options[name])
        pq.write_table(table, f"{folder}/{name}.parquet")
        plain_spark.read.parquet(f"{folder}/{name}.parquet").createOrReplaceTempView(name)


def file_queries(path: Path) -> list[Query]:
    """The queries of a file, or of each .sql file of a folder, separated by semicolons."""
    files = sorted(path.glob("*.sql")) if path.is_dir() else [path]
    return [Query(str(text)) for file in files for text in split_statements(file.read_text())]


def main() -> int:
    """Compare; 1 if an answer differs, or if less than 90 % of the generated queries ran on DuckDB."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--statements", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", default=None)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        spark = start(folder)
        plain_spark = spark.newSession()
        for key, value in QUICK.items():
            plain_spark.conf.set(key, value)
        lake = bitlake.connect(f"{folder}/lake", spark=spark)
        outcome, started = Outcome(), time.monotonic()
        if given.folder is None:
            make_analysts_tables(lake, plain_spark, f"{folder}/parquet")
            first = given.seed * 1_000_000
            made = (Analyst(seed).query() for seed in range(first, first + given.statements))
            compare(lake, plain_spark.sql, made, outcome)
        else:
            make_tables(lake)
            compare(lake, lake.sql, file_queries(Path(given.folder)), outcome)
        print(f"{outcome}\n{time.monotonic() - started:.0f} s; seed {given.seed}")
        spark.stop()
    total = sum(n for what, n in outcome.counts.items() if what != "refused by both")
    return int(bool(outcome.differ) or outcome.counts["ran on DuckDB"] < 0.9 * total)


if __name__ == "__main__":
    sys.exit(main())
