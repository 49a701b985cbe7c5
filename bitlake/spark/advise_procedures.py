"""``CALL sys.advise``: what indexes and layout a table should have, from a sample that executors look at."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from bitlake.spark.context import EngineContext
from bitlake.spark.procedure import PARALLELISM, TABLE, Parameter, Procedure, flag, table_of, text, workers
from bitlake.spark.runner import SparkRunner
from bitlake.sql.advising import advise_for

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
]


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
    rows: list[tuple[Any, ...]] = []
    for c in advice.columns:
        e = c.chosen
        word = c.index if c.action in ("add", "replace") else c.action
        known = (
            (None,) * 4 if e is None else (e.index_bytes, e.build_seconds, round(e.bytes_before), round(e.bytes_after))
        )
        rows.append((c.column, ", ".join(c.now) or None, word, *known, c.reason, None))
    for item in advice.layout:
        sizes = [None if s is None else round(s) for s in (item.bytes_before, item.bytes_after)]
        rows.append((item.kind, None, item.value, None, None, *sizes, item.reason, "; ".join(item.statements)))
    rows += [("statement", None, None, None, None, None, None, None, s) for s in advice.statements()]
    return context.rows(_COLUMNS, rows)


PROCEDURES = (
    Procedure(
        "advise",
        (
            TABLE,
            Parameter("queries", False, "SQL queries with ; between them, or a condition; default: typical ones"),
            Parameter("recorded", False, "true: the scans that the lake recorded, too"),
            Parameter("sample", False, "about how many rows are looked at; default: 500000"),
            PARALLELISM,
        ),
        "Say which indexes and which layout a table should have, and why: a row for each column; changes nothing.",
        _advise,
    ),
)
"""By Procedure's own names, for :mod:`bitlake.spark.procedures`."""
