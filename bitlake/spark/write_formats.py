"""Writing a DataFrame with Python workers: rows go as Arrow batches to :class:`DataFileWriter` on the executors.

So ORC and Avro files are written, and all files of object stores, which Spark's JVM does not know.

Spark's own writers of these formats know neither Paimon's type attributes (ORC) nor its timestamps and maps (Avro), so
the rows leave the JVM here, unlike for Parquet (``docs/decisions/0003-spark-writes.md``).  Each task writes complete
data files with statistics and indexes into ``<table>/.staging/<uuid>``, laid out like the table; the driver then moves
them into place.  Where moving is copying, they are written into place at once; a task that is killed then leaves files
that nothing names, for orphan cleaning.  A task that runs twice writes under other names, and only its successful run
counts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame

from bitlake import _clock
from bitlake.deletion import discard_files
from bitlake.expressions.sql_text import quoted
from bitlake.io import Store
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.schema import TableSchema
from bitlake.spark.errors import spark_errors
from bitlake.spark.pickling import dumps, loads
from bitlake.table.adopt import AdoptContext
from bitlake.table.data_file import DataFileWriter, FileMaker
from bitlake.table.partitions import PartitionReader, discard_entries
from bitlake.table.write import fit, slot_of, split_groups

log = logging.getLogger("bitlake")

Written = tuple[list[ManifestEntry], list[str]]
"""The entries of a task's files, and indexes that could not be made, with the reason."""


def write_files(
    store: Store, context: AdoptContext, frame: DataFrame, columns: list[str], staging: str | None
) -> list[ManifestEntry]:
    """Write the frame's ``columns`` (grouped by partition and bucket already) and return the new files' entries.

    ``staging`` is a folder for files on their way; None to write them into place.

    Raises what the writer raised on an executor, as it is; files already moved into place are then deleted.
    """
    schema, table = context.schema, context.table
    call = dumps((store, schema, table, context.paths if staging is None else TablePaths(staging)))

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"result": pa.array([_attempt(call, batches)], pa.binary())})

    with spark_errors(f"writing to table '{table}'"):
        found = frame.select(*[quoted(c) for c in columns]).mapInArrow(work, "result binary")
        results = [loads(value) for value in found.toArrow().column("result").to_pylist()]
    done: list[Written] = [written for error, written in results if error is None]
    entries = [entry for made, _ in done for entry in made]
    error = next((error for error, _ in results if error is not None), None)
    if error is not None:
        if staging is None:
            discard_entries(store, context.paths, schema, entries)
        raise error
    for problem in (p for _, problems in done for p in problems):
        log.warning("%s", problem)
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
    maker = FileMaker.of(paths, schema, store)
    writers: dict[tuple[str, int], DataFileWriter] = {}
    names = AdoptContext(table, maker.paths, schema, _clock.new_uuid(), ()).file_names()
    try:
        for batch in batches:
            for partition, bucket, part in split_groups(fit(table, pa.table(batch), schema), schema):
                writer = writers.get(slot := slot_of(partition, bucket))
                if writer is None:
                    writer = writers[slot] = DataFileWriter(maker, partition, bucket, names)
                writer.write(part)
        entries = [entry for w in writers.values() for entry in w.finish()]
        return entries, [p for w in writers.values() for p in w.problems]
    except BaseException:
        for w in writers.values():
            w.abort()
        raise


def _move(store: Store, context: AdoptContext, entries: list[ManifestEntry], staging: str) -> list[ManifestEntry]:
    """Rename every file, and its index, from the staging folder to where the table has it."""
    here, there = (PartitionReader(context.schema, paths) for paths in (TablePaths(staging), context.paths))
    moved: list[str] = []
    try:
        for entry in entries:
            source, target = (reader.data_path(entry).rpartition("/")[0] for reader in (here, there))
            for name in (entry.file.file_name, *entry.file.extra_files):
                store.rename(f"{source}/{name}", f"{target}/{name}")
                moved.append(f"{target}/{name}")
    except BaseException:
        discard_files(store, moved)
        raise
    return context.in_sequence(entries)
