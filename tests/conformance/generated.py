"""Random queries on the lake and on plain Spark over the same rows as Parquet: ``make sql-conformance``.

``python tests/conformance/generated.py --statements 600 [--seed 7] [--seconds 240] [--jobs 2]``: prints the seed, each
disagreement, and counts.  A statement of a run is made again with its own seed, which is printed: ``--only SEED``.
"""

from __future__ import annotations

import argparse
import itertools
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import bitlake

sys.path.insert(0, str(Path(__file__).resolve().parent))

from compare import Answer
from queries import Generator, Statement
from quick_session import QUICK, start

DRIVER_QUERIES = "spark.paimon.read.driver-queries"
MANY = 5000
"""Statements that take long enough for Java's optimising compiler."""
_WORDS = ["'a'", "'b'", "'c'", "'B'", "''", "'aa'", "'x%'", "'o''k'", "NULL"]
_DEFINITIONS = {
    "t1": (
        "id INT, k INT, s STRING, n DECIMAL(10, 2), d DATE, ts TIMESTAMP, b BOOLEAN, p STRING",
        "PARTITIONED BY (p) TBLPROPERTIES ('file-index.bitmap.columns' = 's,k', 'file-index.bsi.columns' = 'id', "
        "'deletion-vectors.enabled' = 'true')",
    ),
    "t2": (
        "id INT, k INT, s STRING, `Mixed Name` INT",
        "TBLPROPERTIES ('primary-key' = 'id', 'bucket' = '2', 'file-index.bloom-filter.columns' = 's')",
    ),
    "t3": ("id INT, st STRUCT<a: INT, b: STRING>, arr ARRAY<INT>, m MAP<STRING, INT>, k INT", ""),
    "db2.t1": ("id INT, k INT, extra STRING", ""),
}


def _rows() -> dict[str, list[list[str]]]:
    """Rows of each table, a commit at a time, as VALUES."""

    def null(i: int, every: int, text: str) -> str:
        return "NULL" if i % every == every - 1 else text

    t1 = [
        f"({i}, {null(i, 7, str(i % 6))}, {_WORDS[i % 9]}, {null(i, 5, f'{i}.{i % 100:02}')}, "
        f"{null(i, 8, f'''DATE '2024-{i % 12 + 1:02}-{i % 28 + 1:02}' ''')}, "
        f"{null(i, 9, f'''TIMESTAMP '2024-{i % 12 + 1:02}-{i % 28 + 1:02} {i % 24:02}:30:00' ''')}, "
        f"{null(i, 4, 'TRUE' if i % 3 else 'FALSE')}, '{'xyz'[i % 3]}')"
        for i in range(60)
    ]
    t2 = [f"({i % 25}, {null(i, 6, str(i % 5))}, {_WORDS[(i * 2) % 9]}, {null(i, 9, str(i * 3))})" for i in range(40)]
    t3 = [
        f"({i}, {null(i, 6, f'''named_struct('a', {i % 4}, 'b', {_WORDS[i % 8]})''')}, "
        f"{null(i, 5, f'array({i}, NULL, {i % 3})')}, {null(i, 4, f'''map('a', {i % 5}, 'b', NULL)''')}, {i % 5})"
        for i in range(20)
    ]
    other = [f"({i}, {i % 4}, 'e{i % 3}')" for i in range(12)]
    return {"t1": [t1[:20], t1[20:45], t1[45:]], "t2": [t2[:25], t2[25:]], "t3": [t3], "db2.t1": [other]}


class Both:
    """A lake and a catalog of Spark's with the same tables."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        # Temporary views and variables of one are not the other's; settings are made in both.
        self.plain = spark.newSession()
        self.spark = spark
        self.lake = bitlake.connect(f"{folder}/lake", spark=spark)
        self.plain.sql(f"CREATE DATABASE IF NOT EXISTS db2 LOCATION '{folder}/db2'")
        self.lake.sql("CREATE DATABASE db2")
        self._before = {k: spark.conf.get(k, None) for k in (*QUICK, DRIVER_QUERIES)}
        for session, (key, value) in itertools.product((spark, self.plain), QUICK.items()):
            session.conf.set(key, value)
        for (name, commits), (columns, rest) in zip(_rows().items(), _DEFINITIONS.values(), strict=True):
            self.lake.sql(f"CREATE TABLE {name} ({columns}) {rest}")
            for values in commits:
                self.lake.sql(f"INSERT INTO {name} VALUES {', '.join(values)}")
        self.lake.sql("DELETE FROM t1 WHERE id IN (3, 21, 50)")
        for name in _DEFINITIONS:
            path = f"{folder}/parquet/{name}"
            self.lake.sql(f"SELECT * FROM {name}").coalesce(1).write.parquet(path)
            self.plain.sql(f"DROP TABLE IF EXISTS {name}")
            self.plain.sql(f"CREATE TABLE {name} USING parquet LOCATION '{path}'")

    def close(self) -> None:
        """Take the tables out of Spark's catalog."""
        for name in _DEFINITIONS:
            self.plain.sql(f"DROP TABLE IF EXISTS {name}")
        self.plain.sql("DROP DATABASE IF EXISTS db2 CASCADE")
        for key, value in self._before.items():
            self.spark.conf.unset(key) if value is None else self.spark.conf.set(key, value)

    @cached_property
    def local(self) -> SparkSession:
        """A session of Spark's with the same rows as local relations, which the lake makes of small tables."""
        session = self.spark.newSession()
        for key, value in QUICK.items():
            session.conf.set(key, value)
        for name in _DEFINITIONS:
            rows = self.plain.table(name)
            if "." not in name:
                session.createDataFrame(rows.toArrow(), rows.schema).createOrReplaceTempView(name)
        return session

    def is_sparks_error(self, statement: Statement, ours: Answer, sparks: Answer) -> bool:
        """Whether one answer is an internal error of Spark's planner, which depends on where it finds the rows.

        One of the lake's is Spark's own if Spark has it over local relations, too.
        """
        if "INTERNAL_ERROR" not in (ours.condition, sparks.condition):
            return False
        if ours.condition != "INTERNAL_ERROR":
            return True
        args: Any = {} if statement.args is None else {"args": statement.args}
        for key, value in statement.settings.items():
            self.local.conf.set(key, value)
        again = Answer(lambda: self.local.sql(statement.text, **args), statement.ordered)
        for key in statement.settings:
            self.local.conf.unset(key)
        return again.condition == "INTERNAL_ERROR"

    @contextmanager
    def under(self, settings: dict[str, str]) -> Iterator[None]:
        """Both sessions with some settings."""
        sessions = (self.spark, self.plain)
        before = {(i, k): s.conf.get(k, None) for i, s in enumerate(sessions) for k in settings}
        try:
            for session, (key, value) in itertools.product(sessions, settings.items()):
                session.conf.set(key, value)
            yield
        finally:
            for (i, key), old in before.items():
                sessions[i].conf.unset(key) if old is None else sessions[i].conf.set(key, old)

    def answers(self, statement: Statement, in_driver: bool) -> tuple[Answer, Answer]:
        """What the lake and what Spark answers; DuckDB may compute the lake's answer in the driver, or never."""
        self.spark.conf.set(DRIVER_QUERIES, str(in_driver).lower())
        args: Any = {} if statement.args is None else {"args": statement.args}
        with self.under(statement.settings):
            ours = Answer(lambda: self.lake.sql(statement.text, statement.args), statement.ordered)
            return ours, Answer(lambda: self.plain.sql(statement.text, **args), statement.ordered)


def compare(
    both: Both, seeds: range, seconds: float
) -> tuple[int, int, int, list[tuple[int, Statement, Answer, Answer]]]:
    """Run the statements of some seeds.

    How many ran, how many both refused, how many are internal errors of Spark's planner, and where the answers differ.
    """
    ran = refused = internal = 0
    differ: list[tuple[int, Statement, Answer, Answer]] = []
    started = time.monotonic()
    end = started + seconds
    for seed in seeds:
        if time.monotonic() > end:
            break
        statement = Generator(seed).statement()
        ours, sparks = both.answers(statement, seed % 2 == 0)
        ran += 1
        if ran % 100 == 0:
            rate = ran / (time.monotonic() - started)
            print(f"{ran} statements, {len(differ)} differ, {rate:.1f} a second", flush=True)
        refused += ours.error is not None and sparks.error is not None
        if ours.agrees(sparks):
            continue
        if both.is_sparks_error(statement, ours, sparks):
            internal += 1
            print(f"--- seed {seed}: an internal error of Spark's planner", flush=True)
        else:
            differ.append((seed, statement, ours, sparks))
            print(
                f"--- seed {seed}\n{statement.text}\n  args {statement.args}, settings {statement.settings}\n"
                f"  lake:  {ours}\n  Spark: {sparks}",
                flush=True,
            )
    return ran, refused, internal, differ


def _share(given: argparse.Namespace) -> int:
    """Run the statements in processes of their own; 1 if one of them fails."""
    seed = int(time.time()) if given.seed is None else given.seed
    ends = [given.statements * i // given.jobs for i in range(given.jobs + 1)]
    limit = [] if given.seconds is None else ["--seconds", str(given.seconds)]
    started = [
        subprocess.Popen(
            [sys.executable, __file__, "--seed", str(seed), "--skip", str(a), "--statements", str(b - a), *limit]
        )
        for a, b in itertools.pairwise(ends)
    ]
    codes = [process.wait() for process in started]
    return int(any(codes))


def main() -> int:
    """Compare; 1 if an answer differs, or if fewer statements ran than asked for and no time limit was given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--statements", type=int, default=600)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=None, help="start no statement after this time")
    parser.add_argument("--only", type=int, default=None, help="the statement of this seed, and both answers")
    parser.add_argument("--jobs", type=int, default=1, help="that many processes, each with a share of the statements")
    parser.add_argument("--skip", type=int, default=0, help="leave out the first statements of the seed")
    given = parser.parse_args()
    if given.jobs > 1:
        return _share(given)
    seed = int(time.time()) if given.seed is None else given.seed
    first = given.only if given.only is not None else seed * 1_000_000 + given.skip
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        spark = start(folder, given.statements >= MANY)
        both = Both(spark, folder)
        started = time.monotonic()
        count = 1 if given.only is not None else given.statements
        ran, refused, internal, differ = compare(both, range(first, first + count), given.seconds or math.inf)
        if given.only is not None:
            statement = Generator(first).statement()
            print(statement.text, *both.answers(statement, first % 2 == 0), sep="\n")
        took = time.monotonic() - started
        print(
            f"{ran} of {count} statements in {took:.0f} s: {len(differ)} differ, {refused} refused by both, "
            f"{internal} internal errors of Spark's planner; seed {seed}"
        )
        spark.stop()
    return int(bool(differ) or ran == 0 or (ran < count and given.seconds is None))


if __name__ == "__main__":
    sys.exit(main())
