"""Queries over few rows, computed in the driver by DuckDB: no Spark job runs.

For a join of small tables Spark runs several jobs, of 20 to 200 ms each, however few rows there are.  DuckDB computes
the same in some ten milliseconds.  A query is computed here if

* all that it reads are tables of the lake, and few rows of them: :data:`QUERY_ROWS` and the limits beside it;
* it joins, groups, sorts or the like, and few rows can be its result;
* every part of it means the same in DuckDB (:mod:`bitlake.sql.duckdb_translation`), and the session has no setting and
  no function that may change what it means;
* Spark, which analyses the query over relations without rows, gives the result the types that DuckDB gives it;
* DuckDB has its rows, at most :data:`LOCAL_ROWS`, within :data:`QUERY_SECONDS`.

Spark runs every other query, and each that fails here, so that errors of its rows are Spark's.  Queries of a session of
Spark Connect are Spark's: there the tables need not be within reach of this process.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from bitlake.engine.metadata_only import PreparedQuery
from bitlake.errors import BitlakeError
from bitlake.expressions.tree import sources_of
from bitlake.formats.file_format import format_of
from bitlake.formatting import one_line
from bitlake.io.base import run_at_once
from bitlake.metadata import options as opt
from bitlake.metadata.schema import Names
from bitlake.runtime import CacheName
from bitlake.scan.plan import PlannedFile
from bitlake.scan.reader import DRIVER_BYTES, DRIVER_FILES
from bitlake.scan.scan import TableScan
from bitlake.spark.context import EngineContext
from bitlake.spark.read.local_relation import held_frame, is_simple
from bitlake.spark.read.scan import LOCAL_ROWS, chosen_bytes, frame_schema, small_key
from bitlake.spark.types import spark_arrow_schema
from bitlake.sql.duckdb_engine import rows_within, translate_over
from bitlake.sql.duckdb_translation import Translation
from bitlake.sql.duckdb_values import NotTranslatable

QUERY_ROWS = 2_000_000
"""The most rows that are read of all tables of a query.  DuckDB groups or joins two million in 0.1 to 0.3 s.  On two
cores Spark takes 1 to 2 s for them, and on many cores as long as its jobs take to start."""
QUERY_BYTES = 2 * DRIVER_BYTES
"""The most bytes of the columns that are read."""
QUERY_SECONDS = 2.0
"""A join of few rows may have many: Spark runs a query that takes longer here."""
RESULT_ROWS = 200_000
"""The most rows of a table that a query neither groups nor limits: most of them may be in its result."""
_MERGED_TIMES, _OTHER_FORMAT_TIMES = 3, 6
"""How many rows a row counts as that is merged by key, and one that is stored in another format than Parquet."""

_HARMLESS = tuple(
    f"spark.sql.{name}"
    for name in (
        *("adaptive.", "artifact.", "autoBroadcastJoinThreshold", "broadcastTimeout", "cache.", "catalog."),
        *("catalogImplementation", "cbo.", "codegen.", "csv.", "debug.", "event.", "exchange.", "execution."),
        *("extensions", "files.", "hive.", "inMemoryColumnarStorage.", "join.", "leafNodeDefaultParallelism"),
        *("limit.", "maxMetadata", "maxPlan", "optimizer.", "orc.", "parquet.", "pyspark.", "queryExecution"),
        *("redaction.", "repl.", "session.timeZone", "shuffle.", "sort.", "sources.", "statistics."),
        *("storeAssignmentPolicy", "streaming.", "subexpressionElimination.", "subquery.", "thriftServer."),
        *("ui.", "warehouse.", "window.", "planChangeValidation", "lightweightPlanChangeValidation"),
    )
)
"""Settings that change how a query runs and not what it means, and the time zone, which the translation knows."""
_DEFAULTS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.timestampType": "timestamp_ltz",
}
_Key = tuple[str, str, tuple[str, ...], frozenset[tuple[str, str]]]
_RESULT_TYPES: CacheName[_Key, T.StructType] = CacheName("types of results")
"""The names and types that Spark gives queries.  It takes 10 to 30 ms to analyse one of TPC-H."""
_Identity = tuple[str, str, tuple[int | None, ...]]
_GIVEN_UP: CacheName[_Identity, bool] = CacheName("queries given up by DuckDB")
"""By database, text and the tables' snapshots: those that had too many rows, took too long, or failed."""
_SMALL_TABLES: CacheName[tuple[object, ...], pa.Table] = CacheName("rows of small tables", 32 << 20)
"""Of tables in object stores, so that a dimension is not read for each query."""
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class DriverQuery:
    """A query that DuckDB computes.

    ``translation`` is in DuckDB's SQL, ``tables`` are the scans by their names in it, and ``types`` are the names and
    types that Spark gives the result.
    """

    identity: _Identity
    translation: Translation
    tables: Mapping[str, TableScan]
    types: T.StructType

    def frame(self, context: EngineContext) -> DataFrame | None:
        """The result as a local relation; None where Spark is to run the query after all."""
        caches = context.catalog.store.caches
        try:
            tables = _near(self.tables)
        except BitlakeError:
            return None
        rows = rows_within(self.translation, tables, context.timezone, caches, LOCAL_ROWS, QUERY_SECONDS)
        if rows is None:
            caches[_GIVEN_UP].put(self.identity, True, 200 + len(self.identity[1]))
            return None
        rows = rows.rename_columns(self.types.names).cast(spark_arrow_schema(self.types))
        return held_frame(context.spark, rows, self.types)


def driver_query(
    context: EngineContext, prepared: PreparedQuery, analysed: Callable[[], DataFrame]
) -> DriverQuery | str:
    """A query that may be computed here, or why Spark is to run it.

    ``analysed`` is the query over relations without rows, for the names and types of its result.  Plans the scans, and
    reads no row.
    """
    reason = _obstacle(context, prepared) or _excess(context, prepared)
    if reason is not None:
        return reason
    # Rows are counted by a column.
    scans = [s if s.columns else s.select(s.state.schema.field_names[:1]) for s in prepared.scans]
    fields = [[f for f in s.state.schema.fields if f.name in s.columns] for s in scans]
    caches = context.catalog.store.caches
    try:
        types = caches[_RESULT_TYPES].get_or(_key(context, prepared), lambda: analysed().schema, _memory)
        translation, names = translate_over(
            prepared.analysis, fields, context.database, context.timezone, caches, names=types.names
        )
    except NotTranslatable as e:
        return f"DuckDB cannot run '{one_line(e.part, 60)}' as Spark does: {e.why}"
    except BitlakeError:
        return "Spark refuses it"  # where it runs, it says why
    ours, sparks = [t.sql.lower() for t in translation.types], [f.dataType.simpleString() for f in types.fields]
    if ours != sparks or not is_simple(types):
        return "the result has types that DuckDB lacks"
    return DriverQuery(_identity(context, prepared), translation, dict(zip(names, scans, strict=True)), types)


def _identity(context: EngineContext, prepared: PreparedQuery) -> _Identity:
    return context.database, str(prepared.analysis.text), tuple(s.state.snapshot_id for s in prepared.scans)


def _near(tables: Mapping[str, TableScan]) -> dict[str, TableScan | pa.Table]:
    """The rows of what is in object stores, read at the same time; DuckDB reads one table after the other."""
    far = {n: s for n, s in tables.items() if any(s.store.local_path(f.path) is None for f in s.plan().files)}
    rows = run_at_once([partial(_rows, scan) for scan in far.values()]) if far else []
    return {**tables, **dict(zip(far, rows, strict=True))}


def _rows(scan: TableScan) -> pa.Table:
    key = small_key(scan)
    if key is None:
        return scan.to_arrow()
    return scan.store.caches[_SMALL_TABLES].get_or(key, scan.to_arrow, lambda rows: int(rows.nbytes))


def _key(context: EngineContext, prepared: PreparedQuery) -> _Key:
    """What the types of a result follow from, where each table is the lake's and each function is Spark's own."""
    tables = tuple(frame_schema(scan).json() for scan in prepared.scans)
    return context.database, str(prepared.analysis.text), tables, frozenset(context.settings.items())


def _memory(types: T.StructType) -> int:
    return 2000 + 500 * len(types.fields)


def _obstacle(context: EngineContext, prepared: PreparedQuery) -> str | None:
    """Why DuckDB may not compute a query, by its text and the session alone; None if it may."""
    analysis = prepared.analysis
    if analysis.only_scans or not prepared.scans:
        return "it only scans a table"
    if not context.classic:
        return "the session is one of Spark Connect"
    if not _has_duckdb():
        return "DuckDB is not installed (pip install 'bitlake[duckdb]')"
    if context.catalog.store.caches[_GIVEN_UP].get(_identity(context, prepared)):
        return "DuckDB did not compute it the last time: too many rows, too slow, or an error"
    if analysis.by_spark or any(use.file_metadata for use in analysis.tables):
        return "only Spark knows the file of a row"
    if context.names is Names.EXACT:
        return "names are case-sensitive"
    unknown = sorted(key for key, value in context.settings.items() if not _is_known(key, value))
    if unknown:
        return f"the setting '{unknown[0]}' may change what it means"
    for scan in prepared.scans:
        opts = scan.state.schema.opts
        if type(scan) is not TableScan:
            return f"'{scan.state.name}' is not a table of files"
        if opts.of(opt.SPARK_READ_PATH) != "auto":
            return f"table '{scan.state.name}': '{opt.SPARK_READ_PATH.name}' forces a way to read"
        if not opts.of(opt.READ_DRIVER_QUERIES):
            return f"table '{scan.state.name}': '{opt.READ_DRIVER_QUERIES.name}' is false"
        if context.cached.frame(scan) is not None:
            return f"table '{scan.state.name}' is cached by Spark"
    defined = context.temporary_functions() & set(_WORD.findall(str(analysis.text).lower()))
    return f"the session defines the function '{min(defined)}'" if defined else None


@cache
def _has_duckdb() -> bool:
    return importlib.util.find_spec("duckdb") is not None


def _is_known(key: str, value: str) -> bool:
    """Whether a setting leaves what a query means as it is by default."""
    if not key.startswith("spark.sql.") or key.startswith(_HARMLESS):
        return True
    return _DEFAULTS.get(key) == value.strip().lower()


def _excess(context: EngineContext, prepared: PreparedQuery) -> str | None:
    """What is too much of a query to be computed here: rows, bytes or files to read, rows of its result; or None."""
    rows = size = 0
    for place, scan in enumerate(prepared.scans):
        is_result = place in prepared.analysis.unreduced
        most = RESULT_ROWS if is_result else QUERY_ROWS
        of_result = " that may all be in its result" if is_result else ""
        why = f"more than {most:,} rows of table '{scan.state.name}'{of_result} are read"
        snapshot = scan.state.snapshot
        if scan.predicate is None and snapshot is not None and (snapshot.total_record_count or 0) > most:
            return why  # what is large is not planned here
        plan = scan.planned_by(context.executors).plan()
        if len(plan.files) > DRIVER_FILES:
            return f"{len(plan.files):,} files of table '{scan.state.name}' are read"
        used = {*scan.columns, *(() if scan.predicate is None else sources_of(scan.predicate))}
        size += sum(chosen_bytes(f, QUERY_ROWS) for f in plan.files) * len(used) // max(1, len(plan.schema.fields))
        weight = sum(map(_weight, plan.files))
        rows += weight
        if weight > most:
            return why
    if rows > QUERY_ROWS:
        return f"more than {QUERY_ROWS:,} rows are read"
    return f"about {size >> 20:,} MB are read" if size > QUERY_BYTES else None


def _weight(file: PlannedFile) -> int:
    """The rows of a file, as many as Parquet's that take as long to read."""
    times = _MERGED_TIMES if file.merge is not None else 1
    return file.chosen_rows * (times if format_of(file.path) == "parquet" else times * _OTHER_FORMAT_TIMES)
