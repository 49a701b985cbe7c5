"""``CALL sys.advise``: what indexes and layout a table should have, from a sample that executors look at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from bitlake.spark.context import EngineContext
from bitlake.spark.procedure import PARALLELISM, TABLE, Parameter, Procedure, flag, table_of, text, workers
from bitlake.spark.runner import SparkRunner
from bitlake.sql.workload import advise_for
from bitlake.table.advise.advice import Advice

_COLUMNS: list[tuple[str, T.DataType]] = [
    ("subject", T.StringType()),
    ("now", T.StringType()),
    ("advice", T.StringType()),
    ("index_bytes", T.LongType()),
    ("build_seconds", T.DoubleType()),
    ("bytes_before", T.LongType()),
    ("bytes_after", T.LongType()),
    ("reason", T.StringType()),
    ("statement", T.StringType()),
    ("real_index_bytes", T.LongType()),
    ("real_build_seconds", T.DoubleType()),
    ("real_bytes_before", T.LongType()),
    ("real_bytes_after", T.LongType()),
]
_NOT_MEASURED = (None,) * 4


def _advise(context: EngineContext, a: dict[str, Any]) -> DataFrame:
    table = table_of(context, a["table"])
    queries = text(a, "queries")
    advice = advise_for(
        context.catalog,
        table,
        None if queries is None else [queries],
        context.database,
        flag(a, "recorded"),
        workers(a, "sample"),
        runner=SparkRunner(context.spark, workers(a)),
    )
    if flag(a, "apply"):
        advice = advice.apply()
    return context.rows(_COLUMNS, [*_rows(advice)])


def _rows(advice: Advice) -> Iterator[tuple[Any, ...]]:
    done = advice.measured
    built = {} if done is None else {(i.column, i.index_type): i.bytes for i in done.indexes}
    for c in advice.columns:
        e = c.chosen
        word = c.index if c.action in ("add", "replace") else c.action
        known = (
            (None,) * 4 if e is None else (e.index_bytes, e.build_seconds, round(e.bytes_before), round(e.bytes_after))
        )
        real: tuple[Any, ...] = _NOT_MEASURED
        if done is not None and (c.column, c.index) in built:
            real = (built[c.column, c.index], None, *_rounded(done.bytes_of(c.column)))
        yield (c.column, ", ".join(c.now) or None, word, *known, c.reason, None, *real)
    for item in advice.layout:
        sizes = [None if s is None else round(s) for s in (item.bytes_before, item.bytes_after)]
        told = "; ".join(item.statements)
        yield (item.kind, None, item.value, None, None, *sizes, item.reason, told, *_NOT_MEASURED)
    if done is not None:
        expected = (done.estimated_index_bytes, done.estimated_seconds, *_rounded(done.expected_bytes_of()))
        said = "what the statements brought, beside the estimates"
        real = (done.index_bytes, done.seconds, *_rounded(done.bytes_of()))
        yield ("measured", None, None, *expected, said, None, *real)
    for s in advice.statements():
        yield ("statement", *(None,) * 7, s, *_NOT_MEASURED)


def _rounded(sizes: tuple[float, float] | None) -> tuple[int | None, int | None]:
    return (None, None) if sizes is None else (round(sizes[0]), round(sizes[1]))


PROCEDURES = (
    Procedure(
        "advise",
        (
            TABLE,
            Parameter("queries", False, "SQL queries with ; between them, or a condition; default: typical ones"),
            Parameter("recorded", False, "true: the scans that the lake recorded, too"),
            Parameter("sample", False, "about how many rows are looked at; default: 500000"),
            Parameter("apply", False, "true: add the indexes that are advised, and measure what they bring"),
            PARALLELISM,
        ),
        "Say which indexes and which layout a table should have, and why: a row for each column; changes nothing "
        "unless it is told to apply.",
        _advise,
    ),
)
"""By Procedure's own names, for :mod:`bitlake.spark.procedures`."""
