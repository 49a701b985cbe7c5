"""Write a DataFrame into data files: with Spark's Parquet writer, or with Python workers.

Spark shuffles, sorts, encodes and schedules; no rows pass through the driver, except a little constant data.
Measured on the 4M-row orders (2 cores): Spark's writer 2.9 s, the same rows through ``mapInArrow`` and pyarrow
3.8 s.  So Parquet rows stay in the JVM, and Python reads back only the indexed columns
(``docs/decisions/0003-spark-writes.md``).

Path of a row: query → (partitioned or bucketed tables: a group column and ``REBALANCE`` by it, so that a task writes
few groups and a large group is split over tasks) → Parquet files in ``<table>/.staging/<uuid>`` →
:func:`try_register_file` on the executors (statistics, indexes) → renames and commit on the driver.

Python workers write ORC and Avro, and every file of an object store: Spark's own writers know neither Paimon's type
attributes (ORC) nor its timestamps and maps (Avro), and the JVM does not know the store.  Rows go as Arrow batches to
:class:`DataFileWriter`.  Each task writes complete data files with statistics and indexes into the staging folder,
laid out like the table; the driver then moves them into place.  Where moving is copying, tasks write into place at
once; a killed task then leaves files that no snapshot names, which orphan cleaning removes.  If a task runs twice,
its files have other names, and only the successful run counts.

The bucket of a row needs Paimon's hash of its key.  Spark's ``hash`` of a binary value is Murmur3 with seed 42, as
Paimon's of a BinaryRow.  Where all key columns are integers or dates and NOT NULL, Spark builds the row's bytes and
hashes them.  Python workers hash other keys: no slower by itself, but the rest of each row waits in the JVM
meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.functions import arrow_udf

from bitlake import _clock
from bitlake.codec.binary_row import null_bytes
from bitlake.codec.bucket import bucket_of, row_hash
from bitlake.errors import StorageUnavailable
from bitlake.expressions.sql_text import quoted
from bitlake.file_store_table import FileStoreTable
from bitlake.fileindex.registry import UnwrittenIndex, usable_indexes, warn_of_unwritten
from bitlake.io import Store, has_cheap_rename
from bitlake.mergetree.postpone_bucket import bucket_numbers
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.schema import TableSchema
from bitlake.runtime import REQUESTS, LocalRunner, Runner
from bitlake.schema.data_paths import DataPaths
from bitlake.snapshot.orphan_files import STAGING
from bitlake.snapshot.partitions import PartitionReader, discard_entries
from bitlake.snapshot.state import TableState
from bitlake.snapshot.table_files import TableFiles, discard_files
from bitlake.spark.context import EngineContext
from bitlake.spark.errors import spark_errors
from bitlake.spark.hadoop_path import hadoop_path
from bitlake.spark.runner import SparkRunner, dumps, loads
from bitlake.spark.write.insert_cast import has_not_null_inside, store_columns, stored
from bitlake.types import AtomicType, DataField, Root
from bitlake.write.data_file_writer import DataFileFactory, GroupWriters, file_format, page_rows, rows_per_file
from bitlake.write.register_files import RegisterContext, StagedFile, move_file, try_register_file
from bitlake.write.writer import fit, write_groups, write_rows

GROUP = "__bitlake_group"
_ATTEMPTS = "_temporary"
"""Spark's folder for attempts of tasks; an attempt that is killed late may create it again after the job ended."""
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
        context = RegisterContext.of(state, self._store)
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
                with suppress(StorageUnavailable):  # orphan removal deletes the folder later
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
        for info in self._store.list(folder):
            if info.is_dir:
                if info.name != _ATTEMPTS and not info.name.startswith("."):
                    yield from self._staged(f"{folder}/{info.name}")
            elif info.name.endswith(".parquet") and not info.name.startswith((".", "_")):
                yield StagedFile(f"{folder}/{info.name}", info.size)

    def _adopt(
        self, schema: TableSchema, context: RegisterContext, staged: Sequence[StagedFile]
    ) -> list[ManifestEntry]:
        indexed = bool(usable_indexes(schema.options, schema.fields))
        local = not indexed and len(staged) <= _DRIVER_FOOTERS
        runner: Runner = LocalRunner() if local else SparkRunner(self._spark)
        numbered = [(context.file_name(i), f) for i, f in enumerate(sorted(staged, key=lambda f: f.path))]
        done = runner.run(numbered, partial(try_register_file, self._store, context))
        entries = [entry for adopted in done for entry in adopted.entries]
        try:
            for adopted in done:
                if adopted.error is not None:
                    raise adopted.error
            # A rename is one request, but a move to an external path may copy the file.
            mover = runner if DataPaths(context.paths, schema).is_external else LocalRunner(REQUESTS)
            mover.run([a.move for a in done if a.move is not None], partial(move_file, self._store))
        except BaseException:
            discard_entries(TableFiles(self._store, context.paths), schema, entries)
            raise
        warn_of_unwritten(context.paths.root, (p for adopted in done for p in adopted.problems))
        return context.in_sequence(entries)


def group_column(schema: TableSchema) -> Column | None:
    """A text naming a row's partition and bucket; None for a table with neither.

    Values are spelt in hexadecimal with a mark for NULL, since Spark's own partition folders take NULL and the empty
    string for the same.  Instants are numbers: the text of two can be the same when clocks are set back.
    """
    parts: list[Column] = []
    for field in schema.partition_fields:
        column = F.col(quoted(field.name))
        is_instant = isinstance(field.type, AtomicType) and field.type.root is Root.TIMESTAMP_LTZ
        text = F.hex((F.unix_micros(column) if is_instant else column).cast("string"))
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


def write_frame(
    context: EngineContext, table: FileStoreTable, state: TableState, frame: DataFrame
) -> list[ManifestEntry]:
    """Write rows whose columns are the table's, in order; little constant data is written right here."""
    # Arrow cannot cast a NULL struct to one with NOT NULL fields, so such rows go through Spark's writer.
    if is_local(table.name, frame) and not has_not_null_inside(state.schema.fields):
        with spark_errors(f"writing to table '{table.name}'"):
            rows = stored(table.name, frame, state.schema.fields).toArrow()
        return write_rows(state, iter([rows]) if rows.num_rows else iter(()), table.store)
    return SparkWriter(context.spark, table.store).write(state, frame)


Written = tuple[list[ManifestEntry], list[UnwrittenIndex]]
"""The entries of a task's files, and indexes that could not be made, with the reason."""


def write_files(
    store: Store, context: RegisterContext, frame: DataFrame, columns: list[str], staging: str | None
) -> list[ManifestEntry]:
    """Write the frame's ``columns`` (grouped by partition and bucket already) and return the new files' entries.

    ``staging`` is a folder for files on their way; None to write them into place.

    Raises what the writer raised on an executor, as it is; files already moved into place are then deleted.
    """
    schema, table = context.schema, context.table
    call = dumps((store, schema, table, context.paths if staging is None else TablePaths(staging)))
    with spark_errors(f"writing to table '{table}'"):
        results = attempt_tasks(frame, columns, _attempt, call)
    done: list[Written] = [written for error, written in results if error is None]
    entries = [entry for new_entries, _ in done for entry in new_entries]
    error = next((error for error, _ in results if error is not None), None)
    if error is not None:
        if staging is None:
            discard_entries(TableFiles(store, context.paths), schema, entries)
        raise error
    warn_of_unwritten(context.paths.root, (p for _, problems in done for p in problems))
    return context.in_sequence(entries) if staging is None else _move(store, context, entries, staging)


def _attempt(call: bytes, batches: Iterator[pa.RecordBatch]) -> bytes:
    try:
        store, schema, table, paths = loads(call)
        return dumps((None, _write(store, schema, table, paths, batches)))
    except Exception as e:  # noqa: BLE001 - carried to the driver, where it is raised with its own type
        return dumps((e, None))


def _write(
    store: Store, schema: TableSchema, table: str, paths: TablePaths, batches: Iterator[pa.RecordBatch]
) -> Written:
    """One task: its rows as data files of a table at ``paths``."""
    maker = DataFileFactory(paths, schema, store)
    names = RegisterContext(table, maker.paths, schema, _clock.new_uuid(), ()).file_names()
    writers = GroupWriters(schema.opts.of(opt.WRITE_BUFFER_SIZE))
    try:
        write_groups(writers, (fit(table, pa.table(batch), schema) for batch in batches), maker, names)
        entries = [entry for group in writers.finish().values() for entry in group]
        return entries, writers.problems
    except BaseException:
        writers.abort()
        raise


def _move(store: Store, context: RegisterContext, entries: list[ManifestEntry], staging: str) -> list[ManifestEntry]:
    """Rename every file, and its index, from the staging folder to where the table has it."""
    staged, placed = (PartitionReader(context.schema, paths) for paths in (TablePaths(staging), context.paths))
    moved: list[str] = []
    try:
        for entry in entries:
            source, target = (reader.data_path(entry).rpartition("/")[0] for reader in (staged, placed))
            for name in (entry.file.file_name, *entry.file.extra_files):
                store.rename(f"{source}/{name}", f"{target}/{name}")
                moved.append(f"{target}/{name}")
    except BaseException:
        discard_files(store, moved)
        raise
    return context.in_sequence(entries)


_BITS = {Root.TINYINT: 8, Root.SMALLINT: 16, Root.INT: 32, Root.DATE: 32, Root.BIGINT: 64}
"""Types whose value fills the low bits of its slot, and how many."""


def quoted_columns(name: str) -> Column:
    """A column by its exact name."""
    return F.col(quoted(name))


def attempt_tasks(
    frame: DataFrame, columns: Sequence[str], attempt: Callable[[bytes, Iterator[pa.RecordBatch]], bytes], call: bytes
) -> list[tuple[Exception | None, Any]]:
    """Run ``attempt(call, batches)`` in each task over its rows of the columns.

    Returns what the tasks returned, pickled: an error or None, and the result.
    """

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"result": pa.array([attempt(call, batches)], pa.binary())})

    results = map_columns(frame, columns, work, "result binary").toArrow().column("result")
    return [loads(value) for value in results.to_pylist()]


def map_columns(
    frame: DataFrame,
    columns: Sequence[str],
    work: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    result: T.StructType | str,
) -> DataFrame:
    """``mapInArrow`` of columns with any names.

    PySpark's own looks columns up by their names, in which it reads a dot as the way to a struct's member.
    """
    names = list(columns)

    def named(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return work(batch.rename_columns(names) for batch in batches)

    numbered = [quoted_columns(c).alias(f"c{i}") for i, c in enumerate(names)]
    return frame.select(*numbered).mapInArrow(named, result)


def hash_column(fields: Sequence[DataField]) -> Column:
    """The hash of each row's BinaryRow of these columns: an INT, never NULL."""
    if all(isinstance(f.type, AtomicType) and f.type.root in _BITS and not f.type.nullable for f in fields):
        return F.hash(F.concat(F.lit(bytes(null_bytes(len(fields)))), *[_slot(f) for f in fields]))
    types = [f.type for f in fields]

    def hashes(*columns: pa.Array) -> pa.Array:
        return pa.array(row_hash(types, list(columns)).view("int32"), pa.int32())

    return _in_python(hashes, fields)


def bucket_column(schema: TableSchema) -> Column | None:
    """The bucket of a row in a table of fixed buckets; None for other tables."""
    options = schema.opts
    total = options.of(opt.BUCKET)
    if total <= 0:
        return None
    if total == 1:
        return F.lit(0)
    fields = schema.bucket_fields
    function = options.of(opt.BUCKET_FUNCTION)
    if function == "default":
        return F.abs(hash_column(fields) % F.lit(total))
    if function == "mod":
        return F.pmod(quoted_columns(fields[0].name), F.lit(total)).cast("int")
    types = [f.type for f in fields]

    def number(*columns: pa.Array) -> pa.Array:
        return pa.array(bucket_of(types, list(columns), total, function), pa.int32())

    return _in_python(number, fields)


def differing_bucket_column(schema: TableSchema, counts: Mapping[bytes, int]) -> Column:
    """The bucket of a row where partitions differ in their number of buckets: ``counts``, else the schema's."""
    fields = list({f.name: f for f in (*schema.partition_fields, *schema.bucket_fields)}.values())
    names = [f.name for f in fields]

    def number(*columns: pa.Array) -> pa.Array:
        return pa.array(bucket_numbers(pa.table(list(columns), names=names), schema, counts), pa.int32())

    return _in_python(number, fields)


def _slot(field: DataField) -> Column:
    """The eight bytes of a value in a BinaryRow: little-endian, zeros above."""
    assert isinstance(field.type, AtomicType)
    bits = _BITS[field.type.root]
    column = quoted_columns(field.name)
    value = F.unix_date(column) if field.type.root is Root.DATE else column
    value = value.cast("bigint")
    swapped: Column | None = None
    for at in range(0, bits, 8):
        # Only the lowest byte is left of what is shifted to the top.
        byte = F.shiftrightunsigned(value, at).bitwiseAND(F.lit(255).cast("bigint"))
        byte = F.shiftleft(byte, 56 - at)
        swapped = byte if swapped is None else swapped.bitwiseOR(byte)
    assert swapped is not None
    return F.unhex(F.lpad(F.hex(swapped), 16, "0"))


def _in_python(function: Any, fields: Sequence[DataField]) -> Column:
    call: Any = arrow_udf(function, T.IntegerType())  # type: ignore[call-overload]
    column: Column = call(*[quoted_columns(f.name) for f in fields])
    return column
