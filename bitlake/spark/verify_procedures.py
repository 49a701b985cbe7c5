"""``CALL sys.verify``: a table's files checked on executors, and what can be repaired."""

from __future__ import annotations

from typing import Any, cast

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from bitlake.errors import InvalidRequest
from bitlake.spark.context import EngineContext
from bitlake.spark.procedure import PARALLELISM, TABLE, Parameter, Procedure, flag, table_of, text, workers
from bitlake.spark.runner import SparkRunner
from bitlake.table.verify.repair import Indexes, Repair

_COLUMNS: list[tuple[str, T.DataType]] = [
    ("severity", T.StringType()),
    ("code", T.StringType()),
    ("file", T.StringType()),
    ("what", T.StringType()),
    ("column", T.StringType()),
    ("offset", T.LongType()),
    ("snapshots", T.StringType()),
    ("remedy", T.StringType()),
]


def _verify(context: EngineContext, a: dict[str, Any]) -> DataFrame:
    table = table_of(context, a["table"])
    runner = SparkRunner(context.spark, workers(a))
    deep = True if a.get("deep") is None else flag(a, "deep")
    report = table.verify(deep, runner=runner, snapshots=_snapshots(a))
    rows: list[tuple[Any, ...]] = [
        (f.severity, f.code, f.path, f.what, f.column, f.offset, ", ".join(f.snapshots), f.remedy)
        for f in report.findings
    ]
    if flag(a, "repair"):
        dry_run = True if a.get("dry_run") is None else flag(a, "dry_run")
        rows += _repaired(table.repair(report, dry_run=dry_run, indexes=_indexes(a), runner=runner))
    return context.rows(_COLUMNS, rows)


def _repaired(done: Repair) -> list[tuple[Any, ...]]:
    """A row for each repair, after those of the findings."""
    word = "repaired" if done.done else "would repair"
    made = None if done.snapshot is None else f"snapshot {done.snapshot}"
    return [(word, a.code, a.path, a.what, None, None, made, None) for a in done.actions]


def _snapshots(a: dict[str, Any]) -> list[int] | None:
    given = text(a, "snapshots")
    if given is None:
        return None
    try:
        return [int(part) for part in given.split(",")]
    except ValueError as e:
        raise InvalidRequest(f"'snapshots' are ids between commas, such as '3,4', and not '{given}'") from e


def _indexes(a: dict[str, Any]) -> Indexes:
    given = text(a, "indexes") or "rebuild"
    if given in ("rebuild", "drop"):
        return cast("Indexes", given)
    raise InvalidRequest(f"'indexes' is rebuild or drop, not '{given}'")


PROCEDURES = (
    Procedure(
        "verify",
        (
            TABLE,
            Parameter("deep", False, "false: only metadata, sizes and footers; default: data and indexes, too"),
            Parameter("snapshots", False, "only these, as '3,4', without tags, branches and hints"),
            Parameter("repair", False, "true: also repair what can be made anew from what is sound"),
            Parameter("dry_run", False, "with repair: false carries it out; default: only say what would be done"),
            Parameter("indexes", False, "with repair: 'rebuild' damaged file indexes (the default) or 'drop' them"),
            PARALLELISM,
        ),
        "Check every file of a table against all that is told of it; a row for each fault, none if there is none.",
        _verify,
    ),
)
"""By Procedure's own names, for :mod:`bitlake.spark.procedures`."""
