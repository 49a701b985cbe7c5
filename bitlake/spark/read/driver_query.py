"""Driver queries: queries of few rows that DuckDB computes in Spark's driver, without a Spark job.

For a join of small tables Spark runs several jobs, of 20 to 200 ms each, however few rows there are.  DuckDB computes
the same in some ten milliseconds.  It computes a query if

* all that the query reads are tables of the lake, and few rows of them: :data:`QUERY_ROWS` and the limits beside it;
* the query joins, groups, sorts or the like, and few rows can be its result;
* every part of it means the same in DuckDB (:mod:`bitlake.sql.duckdb_translation`), and the session has no setting and
  no function that may change what it means;
* Spark, which analyses the query over relations without rows, gives the result the types that DuckDB gives it;
* DuckDB has its rows, at most :data:`LOCAL_ROWS`, within :data:`QUERY_SECONDS`.

Spark runs every other query, and each that fails in DuckDB, so that errors of its rows are Spark's.  Queries of a
session of Spark Connect are Spark's: there the tables need not be within reach of this process.
"""

from __future__ import annotations

import copy
import hashlib
import importlib.util
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from bitlake.engine.metadata_only import PreparedQuery
from bitlake.errors import BitlakeError
from bitlake.formats.file_format import format_of
from bitlake.formatting import one_line
from bitlake.io.base import run_at_once
from bitlake.metadata import options as opt
from bitlake.metadata.schema import Names
from bitlake.runtime import CacheName, Caches
from bitlake.scan.column_reader import footer_of
from bitlake.scan.plan import PlannedFile
from bitlake.scan.reader import DRIVER_BYTES, DRIVER_FILES, tasks_of
from bitlake.scan.scan import TableScan
from bitlake.spark.context import EngineContext
from bitlake.spark.java_zones import java_offsets
from bitlake.spark.read.local_relation import held_frame, is_simple
from bitlake.spark.read.scan import LOCAL_ROWS, frame_schema, read_bytes, small_key
from bitlake.spark.types import spark_arrow_schema
from bitlake.sql.duckdb_engine import needs_zone_rules, rows_within, translate_over, zone_differs
from bitlake.sql.duckdb_translation import UNNAMED, Translation
from bitlake.sql.duckdb_values import NotTranslatable
from bitlake.types import AtomicType, time_zone
from bitlake.types.datatypes import BINARIES, STRINGS

QUERY_ROWS = 2_000_000
"""The most rows that are read of all tables of a query.  DuckDB groups or joins two million in 0.1 to 0.3 s.  On two
cores Spark takes 1 to 2 s for them, and on many cores as long as its jobs take to start."""
QUERY_BYTES = 2 * DRIVER_BYTES
"""The most bytes of the columns that are read."""
QUERY_SECONDS = 2.0
"""A join of few rows may have many: Spark runs a query that takes longer here."""
RESULT_BYTES = DRIVER_BYTES
"""The most bytes of a result."""
ROW_BYTES = 16 << 10
"""The most bytes of text in a row, on the average: DuckDB works on 2,048 rows at a time, and joins repeat them."""
RESULT_ROWS = 200_000
"""The most rows of a table that a query neither groups nor limits: most of them may be in its result."""
_MERGED_TIMES, _OTHER_FORMAT_TIMES = 3, 6
"""Weights of a row: one that is merged by key; one that is stored in ORC or Avro."""

_HARMLESS = tuple(
    f"spark.sql.{name}"
    for name in (
        *("adaptive.", "artifact.", "autoBroadcastJoinThreshold", "broadcastTimeout", "cache.", "catalog."),
        *("catalogImplementation", "cbo.", "codegen.", "csv.", "debug.", "event.", "exchange.", "execution."),
        *("files.", "hive.", "inMemoryColumnarStorage.", "join.", "leafNodeDefaultParallelism"),
        *("limit.", "maxMetadata", "maxPlan", "optimizer.", "orc.", "parquet.", "pyspark.", "python."),
        *("queryExecution", "redaction.", "repl.", "session.timeZone", "shuffle.", "sort.", "sources.", "statistics."),
        *("storeAssignmentPolicy", "streaming.", "subexpressionElimination.", "subquery.", "thriftServer."),
        *("ui.", "warehouse.", "window.", "planChangeValidation", "lightweightPlanChangeValidation"),
    )
)
"""Settings that change how a query runs and not what it means, and the time zone, which the translation knows."""
_EXTENSIONS = ("io.delta.", "org.apache.iceberg.", "org.apache.hudi.", "org.apache.paimon.")
"""Packages of ``spark.sql.extensions`` that leave queries as they are."""
_DEFAULTS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.timestampType": "timestamp_ltz",
}
_RESULT_TYPES: CacheName[bytes, T.StructType] = CacheName("types of results")
"""The names and types that Spark gives queries.  It takes 10 to 30 ms to analyse one of TPC-H."""
_GIVEN_UP: CacheName[tuple[str, str], float] = CacheName("queries that DuckDB gave up")
"""When, by database and text: those that had too many rows or took too long."""
_RETRY_SECONDS = 600.0
_SMALL_TABLES: CacheName[tuple[object, ...], pa.Table] = CacheName("rows of small tables")
"""Of tables in object stores, so that a dimension is not read for each query."""
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class DriverQuery:
    """A query that DuckDB computes.

    ``text`` is the query, ``translation`` the same in DuckDB's SQL, ``tables`` are the scans by their names in it, and
    ``types`` are the names and types that Spark gives the result.
    """

    text: str
    translation: Translation
    tables: Mapping[str, TableScan]
    types: T.StructType

    def frame(self, context: EngineContext) -> DataFrame | None:
        """The result as a local relation; None where Spark is to run the query after all."""
        caches, limits = context.catalog.store.caches, (LOCAL_ROWS, RESULT_BYTES, QUERY_SECONDS)
        try:
            tables = _read_remote_tables(self.tables)
            rows = rows_within(self.translation, tables, context.timezone, caches, *limits)
            if rows is None:
                caches[_GIVEN_UP].put((context.database, self.text), time.monotonic(), 200 + len(self.text))
                return None
            rows = rows.rename_columns(self.types.names).cast(spark_arrow_schema(self.types))
        except (BitlakeError, pa.ArrowException, ValueError):  # a NULL where Spark says that there is none
            return None
        return held_frame(context.spark, rows, self.types)


def driver_query(
    context: EngineContext, prepared: PreparedQuery, analysed: Callable[[], DataFrame]
) -> DriverQuery | str:
    """A query that DuckDB may compute in the driver, or why Spark is to run it.

    ``analysed`` is the query over relations without rows, for the names and types of its result.  Plans the scans, and
    reads no row.
    """
    # Rows are counted by a column.
    scans = [s if s.columns else s.select(s.state.schema.field_names[:1]) for s in prepared.scans]
    reason = _obstacle(context, prepared) or _exceeded_limit(context, prepared, scans)
    if reason is not None:
        return reason
    text = str(prepared.analysis.text)
    defined = context.temporary_functions() & set(_WORD.findall(text.lower()))
    if defined:
        return f"the session defines the function '{min(defined)}'"
    fields = [[f for f in s.state.schema.fields if f.name in s.columns] for s in scans]
    caches = context.catalog.store.caches
    try:
        translation, names = translate_over(
            prepared.analysis, fields, context.database, context.literal_zone, caches, names=UNNAMED
        )
        kept = caches[_RESULT_TYPES].get_or(_types_key(context, prepared), lambda: analysed().schema, _memory)
    except NotTranslatable as e:
        return f"DuckDB cannot run '{one_line(e.part, 60)}' as Spark does: {e.why}"
    except BitlakeError:
        return "Spark cannot analyse it"  # where it runs, it says why
    types = copy.deepcopy(kept)  # a DataFrame's schema can be changed
    if len(types.fields) != len(translation.types):
        return "DuckDB gives it other columns"
    if needs_zone_rules(translation) and _zone_differs(context, caches):
        return f"DuckDB and Java have different rules for the time zone {context.timezone}"
    for field, kind in zip(types.fields, translation.types, strict=True):
        if kind.sql.lower() != field.dataType.simpleString() or not is_simple(T.StructType([field])):
            return f"DuckDB gives column '{field.name}' another type than {field.dataType.simpleString()}"
    return DriverQuery(text, translation, dict(zip(names, scans, strict=True)), types)


def _zone_differs(context: EngineContext, caches: Caches) -> bool:
    return zone_differs(context.timezone, "Java", partial(java_offsets, context.spark, context.timezone), caches)


def _read_remote_tables(tables: Mapping[str, TableScan]) -> dict[str, TableScan | pa.Table]:
    """The tables, with the rows of those in object stores, which DuckDB would read one after the other."""
    remote = {n: s for n, s in tables.items() if any(s.store.local_path(f.path) is None for f in s.plan().files)}
    rows = run_at_once([partial(_cached_rows, scan) for scan in remote.values()]) if remote else []
    return {**tables, **dict(zip(remote, rows, strict=True))}


def _cached_rows(scan: TableScan) -> pa.Table:
    key, scan = small_key(scan), replace(scan, checks_text=True)
    if key is None:
        return scan.to_arrow()
    return scan.store.caches[_SMALL_TABLES].get_or(key, scan.to_arrow, lambda rows: int(rows.nbytes))


def _types_key(context: EngineContext, prepared: PreparedQuery) -> bytes:
    """What the types of a result follow from, where each table is the lake's and each function is Spark's own."""
    tables = [frame_schema(scan).json() for scan in prepared.scans]
    parts = (context.database, str(prepared.analysis.text), tables, sorted(context.settings.items()))
    return hashlib.blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _memory(types: T.StructType) -> int:
    return 2000 + 500 * len(types.fields)


def _obstacle(context: EngineContext, prepared: PreparedQuery) -> str | None:
    """Why DuckDB may not compute a query, by all but its rows; None if it may."""
    analysis = prepared.analysis
    if analysis.only_scans or not prepared.scans:
        return "it only scans a table, or cannot be parsed"
    if not context.classic:
        return "the session is one of Spark Connect"
    if not _has_duckdb():
        return "DuckDB is not installed (pip install 'bitlake[duckdb]')"
    given_up = context.catalog.store.caches[_GIVEN_UP].get((context.database, str(analysis.text)))
    if given_up is not None and time.monotonic() - given_up < _RETRY_SECONDS:
        return "DuckDB gave it up before: its result had too many rows, or took too long"
    if analysis.by_spark or any(use.file_metadata for use in analysis.tables):
        return "it asks for the file of a row"
    if context.names is Names.EXACT:
        return "names are case-sensitive"
    unknown = sorted(key for key, value in context.settings.items() if not _keeps_meaning(key, value))
    if unknown:
        return f"the setting '{unknown[0]}' may change what it means"
    if not context.is_ansi:
        return "SPARK_ANSI_SQL_MODE is false"
    if time_zone.find_zone(context.timezone) is None:
        return f"only Java knows the time zone {context.timezone}"
    for scan in prepared.scans:
        table, opts = f"table '{scan.state.name}'", scan.state.schema.opts
        if type(scan) is not TableScan:
            return f"'{scan.state.name}' is a system table or an incremental read"
        if opts.of(opt.SPARK_READ_PATH) != "auto":
            return f"{table}: '{opt.SPARK_READ_PATH.name}' forces a way to read"
        if not opts.of(opt.READ_DRIVER_QUERIES):
            return f"{table}: '{opt.READ_DRIVER_QUERIES.name}' is false"
        if context.cached.frame(scan) is not None:
            return f"{table} is cached by Spark"
    return None


@cache
def _has_duckdb() -> bool:
    return importlib.util.find_spec("duckdb") is not None


def _keeps_meaning(key: str, value: str) -> bool:
    """Whether a setting leaves what a query means as it is by default."""
    if not key.startswith("spark.sql.") or key.startswith(_HARMLESS):
        return True
    if key == "spark.sql.extensions":
        return all(name.strip().startswith(_EXTENSIONS) for name in value.split(",") if name.strip())
    return _DEFAULTS.get(key) == value.strip().lower()


def _exceeded_limit(context: EngineContext, prepared: PreparedQuery, scans: Sequence[TableScan]) -> str | None:
    """The limit that a query exceeds, of rows, bytes or files to read, or of rows in its result; None for no limit."""
    rows = size = 0.0
    for place, scan in enumerate(scans):
        table, snapshot = f"table '{scan.state.name}'", scan.state.snapshot
        is_result = place in prepared.analysis.unreduced
        most = RESULT_ROWS if is_result else QUERY_ROWS
        of_result = " that may all be in its result" if is_result else ""
        why = f"it reads more than {most:,} rows of {table}{of_result}"
        if scan.predicate is None and snapshot is not None and (snapshot.total_record_count or 0) > most:
            return why  # what is large is not planned here
        plan = scan.planned_by(context.executors).plan()
        if len(plan.files) > DRIVER_FILES:
            return f"it reads {len(plan.files):,} files of {table}, more than {DRIVER_FILES}"
        weight = sum(map(_weight, plan.files))
        if weight > most:
            return why if plan.chosen_rows > most else f"to read {table} costs as much as {weight:,} rows of Parquet"
        rows, size = rows + weight, size + read_bytes(scan, scan.columns, QUERY_ROWS)
    if rows > QUERY_ROWS:
        return f"it reads more than {QUERY_ROWS:,} rows"
    if size > QUERY_BYTES:
        return f"it reads about {int(size) >> 20:,} MB, more than {QUERY_BYTES >> 20}"
    return _long_texts(scans)


def _long_texts(scans: Sequence[TableScan]) -> str | None:
    """The table whose rows have more text than :data:`ROW_BYTES`; asks footers, which are kept for reading."""
    for scan in scans:
        try:
            if _text_bytes(scan) > ROW_BYTES:
                return f"rows of table '{scan.state.name}' have more than {ROW_BYTES:,} bytes of text"
        except BitlakeError:
            return f"a file of table '{scan.state.name}' cannot be read"
    return None


def _text_bytes(scan: TableScan) -> float:
    """About the bytes of text of a row, on the average: by footers, less where a file stores equal texts once.

    Of files that are merged by key, and of other formats than Parquet, the bytes that are stored.
    """
    fields = [f for f in scan.state.schema.fields if f.name in scan.columns]
    texts = [f.name for f in fields if isinstance(f.type, AtomicType) and f.type.root in STRINGS | BINARIES]
    if not texts:
        return 0.0
    plan, size, rows = scan.plan(), 0, 0
    for file, task in zip(plan.files, tasks_of(plan.files, plan.schemas), strict=True):
        rows += file.row_count
        if file.merge is not None or format_of(file.path) != "parquet":
            size += file.entry.file.file_size
            continue
        footer = footer_of(scan.store, task)
        leaves = [column.leaf for column in map(footer.columns.get, texts) if column is not None]
        size += sum(group.chunks[leaf].uncompressed for group in footer.row_groups for leaf in leaves)
    return size / max(1, rows)


def _weight(file: PlannedFile) -> int:
    """The rows of a file, as many as Parquet's that take as long to read."""
    times = _MERGED_TIMES if file.merge is not None else 1
    return file.chosen_rows * (times if format_of(file.path) == "parquet" else times * _OTHER_FORMAT_TIMES)
