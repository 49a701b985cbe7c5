"""Writing a DataFrame into a table: Spark's own Parquet writer into a staging folder, then the files are adopted.

Spark shuffles, sorts, encodes and schedules; nothing of the data passes through the driver.  Measured on the 4M-row
orders (2 cores): Spark's writer 2.9 s, the same rows through ``mapInArrow`` and pyarrow 3.8 s, so the rows stay in the
JVM and Python reads back only the columns that are indexed.  ``docs/decisions/0003-spark-writes.md`` has the numbers.

Path of a row: query → (partitioned or bucketed tables: a group column and ``REBALANCE`` by it, so that a task writes
few groups and a large group is split over tasks) → Parquet files in ``<table>/.staging/<uuid>`` → :func:`try_adopt` on
the executors (statistics, indexes, rename) → commit on the driver.  Object stores are unknown to the JVM and cannot
rename: there Python workers write the files where they belong (:mod:`bitlake.spark.write_formats`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from bitlake import _clock
from bitlake.expressions.sql_text import quoted
from bitlake.fileindex.registry import parse_index_options
from bitlake.io import Store, has_cheap_rename
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.schema import TableSchema
from bitlake.runtime import LocalRunner
from bitlake.spark.align import store_columns
from bitlake.spark.errors import spark_errors
from bitlake.spark.hadoop_path import hadoop_path
from bitlake.spark.key_hash import bucket_column
from bitlake.spark.runner import SparkRunner
from bitlake.spark.write_formats import write_files
from bitlake.table.adopt import AdoptContext, StagedFile, try_adopt
from bitlake.table.data_file import file_format
from bitlake.table.data_paths import DataPaths
from bitlake.table.orphans import STAGING
from bitlake.table.partitions import discard_entries
from bitlake.table.sizing import page_rows, rows_per_file
from bitlake.table.state import TableState

log = logging.getLogger("bitlake")

GROUP = "__bitlake_group"
# Reading this many footers on the driver is quicker than starting Python workers; with indexes to build it never is.
_DRIVER_FOOTERS = 32
# Spark reads these from the session when the write is planned, so they are set there for that moment only.
_CONF = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.fieldId.write.enabled": "true",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}
_conf_lock = threading.RLock()


class SparkWriter:
    """Writes DataFrames of one session as new data files of a table; committing them is the caller's."""

    def __init__(self, spark: SparkSession, store: Store) -> None:
        self._spark = spark
        self._store = store

    def write(
        self, state: TableState, frame: DataFrame, *, order: Sequence[Column] = (), tasks: int = 1
    ) -> list[ManifestEntry]:
        """Write the rows of ``frame`` (columns named and ordered as the schema's) and return the new files.

        ``order``: sorted so by ``tasks`` tasks, over all files of a partition.
        Raises :class:`bitlake.errors.InvalidRequest` for rows that do not fit the table; then nothing is left behind.
        """
        schema = state.schema
        staging = f"{state.paths.root}/{STAGING}/{_clock.new_uuid()}"
        context = AdoptContext.of(state, self._store)
        moves = has_cheap_rename(self._store, staging)
        try:
            if file_format(schema) != "parquet" or not moves:
                prepared = self._prepared(state, frame, order, tasks)
                columns = [f.name for f in schema.fields]
                aside = moves and not DataPaths(state.paths, schema).is_external
                return write_files(self._store, context, prepared, columns, staging if aside else None)
            self._stage(state, self._prepared(state, frame, order, tasks), staging)
            staged = list(self._staged(staging))
            return self._adopt(schema, context, staged)
        finally:
            if moves:
                self._store.delete_dir(staging)

    def _prepared(self, state: TableState, frame: DataFrame, order: Sequence[Column], tasks: int) -> DataFrame:
        """The rows as the table takes them, brought together by partition and bucket (with a group column) if any."""
        prepared = frame.select(*store_columns(state.name, frame, state.schema.fields))
        group = group_column(state.schema)
        if order:
            grouped = prepared if group is None else prepared.withColumn(GROUP, group)
            first = [] if group is None else [F.col(GROUP)]
            # Spark's writer keeps the order of rows that come sorted by its folders' column.
            return grouped.repartitionByRange(tasks, *first, *order).sortWithinPartitions(*first, *order)
        return prepared if group is None else prepared.withColumn(GROUP, group).hint("rebalance", F.col(GROUP))

    def _stage(self, state: TableState, prepared: DataFrame, staging: str) -> None:
        schema = state.schema
        options = opt.Options(schema.options)
        writer = (
            prepared.write.mode("append")
            .option("compression", options.get(opt.FILE_COMPRESSION))
            .option("parquet.compression.codec.zstd.level", str(options.get(opt.ZSTD_LEVEL)))
            .option("parquet.page.row.count.limit", str(page_rows(schema)))
            .option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
            .option("maxRecordsPerFile", str(rows_per_file(state)))
        )
        if page_bytes := options.of(opt.PARQUET_PAGE_SIZE):
            # Parquet (Java) looks at a page's bytes only now and then unless told to.
            often = str(max(1, min(100, page_bytes // 64)))
            writer = writer.option("parquet.page.size", str(page_bytes))
            for bound in ("min", "max"):
                writer = writer.option(f"parquet.page.size.row.check.{bound}", often)
        if GROUP in prepared.columns:
            writer = writer.partitionBy(GROUP)
        with spark_errors(f"writing to table '{state.name}'"), session_conf(self._spark, _CONF), tagged(self._spark):
            writer.parquet(hadoop_path(staging))

    def _staged(self, folder: str) -> Iterator[StagedFile]:
        for found in self._store.list(folder):
            if found.is_dir:
                yield from self._staged(f"{folder}/{found.name}")
            elif found.name.endswith(".parquet") and not found.name.startswith((".", "_")):
                yield StagedFile(f"{folder}/{found.name}", found.size)

    def _adopt(self, schema: TableSchema, context: AdoptContext, staged: Sequence[StagedFile]) -> list[ManifestEntry]:
        indexed = bool(parse_index_options(schema.options, schema.fields))
        local = not indexed and len(staged) <= _DRIVER_FOOTERS
        runner = LocalRunner() if local else SparkRunner(self._spark)
        numbered = [(context.file_name(i), f) for i, f in enumerate(sorted(staged, key=lambda f: f.path))]
        done = runner.run(numbered, partial(try_adopt, self._store, context))
        entries = [entry for adopted in done for entry in adopted.entries]
        failed = [adopted.error for adopted in done if adopted.error is not None]
        if failed:
            discard_entries(self._store, context.paths, schema, entries)
            raise failed[0]
        for problem in (p for adopted in done for p in adopted.problems):
            log.warning("%s", problem)
        return context.in_sequence(entries)


def group_column(schema: TableSchema) -> Column | None:
    """A text naming a row's partition and bucket; None for a table with neither.

    Values are spelt in hexadecimal with a mark for NULL, since Spark's own partition folders take NULL and the empty
    string for the same.
    """
    parts: list[Column] = []
    for key in schema.partition_keys:
        text = F.hex(F.col(quoted(key)).cast("string"))
        parts.append(F.coalesce(F.concat(F.lit("v"), text), F.lit("n")))
    bucket = bucket_column(schema)
    if bucket is not None:
        parts.append(bucket.cast("string"))
    if not parts:
        return None
    return F.sha2(F.concat_ws("_", *parts), 256) if schema.partition_keys else parts[0]


def is_local(table: str, frame: DataFrame) -> bool:
    """Whether the rows are constants in the query itself: then a Spark job would only add its start-up time."""
    plan = getattr(frame, "_jdf", None)
    if plan is None:
        return False
    with spark_errors(f"writing to table '{table}'"):
        return bool(plan.queryExecution().optimizedPlan().getClass().getSimpleName() == "LocalRelation")


@contextmanager
def tagged(spark: SparkSession) -> Iterator[None]:
    """Stop the jobs started in the block when it is left by Ctrl-C: Spark itself would go on writing."""
    tag = f"bitlake-{_clock.new_uuid()}"
    spark.addTag(tag)
    try:
        yield
    except KeyboardInterrupt:
        spark.interruptTag(tag)
        raise
    finally:
        spark.removeTag(tag)


@contextmanager
def session_conf(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    """Set a session's configuration for the length of a block; one block at a time."""
    with _conf_lock:
        get: Callable[[str, None], str | None] = spark.conf.get  # the stubs say that it is never None
        before = {name: get(name, None) for name in settings}
        try:
            for name, value in settings.items():
                spark.conf.set(name, value)
            yield
        finally:
            for name, old in before.items():
                if old is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, old)


__all__ = ["SparkWriter", "group_column", "is_local", "session_conf", "tagged"]
