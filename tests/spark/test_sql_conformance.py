"""A slice of ``make sql-conformance``: random queries answer as plain Spark answers over the same rows as Parquet."""

from __future__ import annotations

import datetime as dt
import itertools
import sys
from pathlib import Path
from typing import Any

import pytest
from long import long

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "conformance"))

import analysts
from analysts import Analyst
from compare import Answer, plain, same
from duckdb_agreement import Outcome, file_queries, make_analysts_tables
from duckdb_agreement import compare as compare_engines
from generated import Both, compare
from queries import Generator
from quick_session import QUICK
from tpch import make_tables as make_tpch_tables

import bitlake
from bitlake.errors import UnsupportedFeature

pytestmark = pytest.mark.spark
STATEMENTS = 10
ON_DUCKDB = 64
ANALYSTS = 20


@pytest.mark.exhaustive
def test_random_queries_answer_as_spark_does(spark: Any, tmp_path: Path) -> None:
    """A few of those that ``make sql-conformance`` asks, 600 in each run of ``.ci/run``."""
    if getattr(spark, "_jsparkSession", None) is None:
        pytest.skip("the two sessions that are compared share a JVM")
    both = Both(spark, str(tmp_path))
    try:
        ran, refused, _, differ = compare(both, range(1, STATEMENTS + 1), 600)
    finally:
        both.close()
    assert ran == STATEMENTS
    assert refused <= STATEMENTS // 5
    assert [statement.text for _, statement, _, _ in differ] == []


@pytest.mark.exhaustive
def test_what_duckdb_answers_is_what_spark_answers(spark: Any, tmp_path: Path) -> None:
    """Queries that bitlake gives to DuckDB; of the generator's, which uses all that Spark has, a third."""
    if getattr(spark, "_jsparkSession", None) is None:
        pytest.skip("the two sessions that are compared share a JVM")
    both = Both(spark, str(tmp_path))
    try:
        answered = sum(_is_answered(both, Generator(seed).statement()) for seed in range(1000, 1000 + ON_DUCKDB))
    finally:
        both.close()
    assert answered >= ON_DUCKDB // 8


@pytest.mark.exhaustive
def test_analysts_queries_run_on_duckdb_as_on_spark(spark: Any, tmp_path: Path) -> None:
    """A slice of ``make sql-conformance ENGINE=duckdb``: rows, names and types, over columns of every atomic type."""
    session = spark.newSession()
    for key, value in QUICK.items():
        session.conf.set(key, value)
    lake, outcome = bitlake.connect(tmp_path / "lake", spark=spark), Outcome()
    make_analysts_tables(lake, session, str(tmp_path / "parquet"))
    compare_engines(lake, session.sql, (Analyst(seed).query() for seed in range(ANALYSTS)), outcome)
    rare, folder = Outcome(), Path(analysts.__file__).parent
    compare_engines(lake, session.sql, file_queries(folder / "rare_queries.sql"), rare)
    assert rare.differ == []
    assert dict(rare.counts) == {"ran on DuckDB": 30}, str(rare)
    assert outcome.differ == []
    assert outcome.counts["ran on DuckDB"] >= 0.9 * (ANALYSTS - outcome.counts["refused by both"]), str(outcome)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("step", "count"), [(3, 8), long(1, 22)])
def test_queries_of_tpch_kind_run_on_duckdb_as_on_spark(spark: Any, tmp_path: Path, step: int, count: int) -> None:
    """Each ``step``-th of 22 queries."""
    lake, outcome = bitlake.connect(tmp_path / "lake", spark=spark), Outcome()
    make_tpch_tables(lake)
    queries = file_queries(Path(analysts.__file__).with_name("market_queries.sql"))
    compare_engines(lake, lake.sql, itertools.islice(queries, 0, None, step), outcome)
    assert outcome.differ == []
    assert dict(outcome.counts) == {"ran on DuckDB": count}, str(outcome)


def _is_answered(both: Both, statement: Any) -> bool:
    if statement.settings:
        return False
    try:
        relation = both.lake.sql(statement.text, statement.args, engine="duckdb")
    except UnsupportedFeature:
        return False
    ours = [tuple(plain(_naive(value)) for value in row) for row in relation.fetchall()]
    sparks = Answer(lambda: both.plain.sql(statement.text, **_args(statement)), ordered=True)
    assert sparks.error is None, f"{statement.text}: {sparks.error}"
    if "LIMIT" in statement.text.upper() and not statement.ordered:
        assert len(ours) == len(sparks.rows), statement.text
        return True
    theirs = sparks.rows
    if not statement.ordered:
        ours, theirs = sorted(ours, key=repr), sorted(theirs, key=repr)
    assert _alike(ours, theirs), f"{statement.text}\n  DuckDB: {ours[:8]}\n  Spark:  {theirs[:8]}"
    return True


def _naive(value: Any) -> Any:
    """An instant of DuckDB's as PySpark has it: without a zone, in this machine's."""
    return value.astimezone().replace(tzinfo=None) if isinstance(value, dt.datetime) and value.tzinfo else value


def _args(statement: Any) -> dict[str, Any]:
    return {} if statement.args is None else {"args": statement.args}


def _alike(ours: Any, theirs: Any) -> bool:
    """Rows that are equal; a struct is a tuple on Spark, and a mapping, as `plain` has it, in DuckDB."""
    if isinstance(ours, tuple) and isinstance(theirs, tuple) and ours[:1] == ("map",) and theirs[:1] != ("map",):
        return _alike(tuple(value for _, value in ours[1:]), theirs)
    if isinstance(ours, tuple | list) and isinstance(theirs, tuple | list):
        return len(ours) == len(theirs) and all(map(_alike, ours, theirs))
    return same(ours, theirs)
