"""Rows of ``bucket`` = -2 tables given their buckets on the executors: read by file, shuffled and sorted as others.

The driver sees descriptions of files only.  Where Spark lacks one of the table's types (TIME, for example), the driver
streams the rows instead, a write buffer at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.snapshot import Snapshot
from bitlake.spark.arrow import spark_batches
from bitlake.spark.context import EngineContext
from bitlake.spark.lsm_write import ARRIVAL, write_placed
from bitlake.spark.pickling import dumps, loads
from bitlake.spark.runner import pack
from bitlake.spark.types import has_counterpart, nullable, spark_type, worker_schema
from bitlake.table import keyed
from bitlake.table.lsm.model import BucketChange
from bitlake.table.lsm.postpone import read_postponed, with_buckets
from bitlake.table.lsm.publish import Publisher, discard_changes, lsm_context
from bitlake.table.merge.spec import VALUE_KIND
from bitlake.table.partition_files import entries_of
from bitlake.table.state import TableState

_FILE_SHIFT = 40
"""A row's arrival is its file's number, and below these bits its place there."""


def place_postponed(
    context: EngineContext, publisher: Publisher, state: TableState, waiting: Mapping[bytes, Sequence[ManifestEntry]]
) -> Snapshot | None:
    """Write postponed rows into level 0 of their buckets, in place of their files; partitions of one count together.

    Returns the snapshot that has them.  Raises :class:`bitlake.errors.CommitConflict` if another writer placed them
    meanwhile, and :class:`bitlake.errors.CorruptError` for a file that cannot be read; then nothing is left behind.
    """
    if not all(has_counterpart(f.type) for f in state.schema.fields):
        return keyed.place_postponed(publisher, state, waiting)
    live = entries_of(state, waiting)
    counts: dict[int, list[ManifestEntry]] = {}
    for partition, files in waiting.items():
        counts.setdefault(with_buckets(state.schema, partition, files, live).num_buckets, []).extend(files)
    changes: list[BucketChange] = []
    try:
        for count, files in counts.items():
            real = replace(state, schema=state.schema.with_options({"bucket": str(count)}))
            changes += write_placed(context, real, _rows(context, state, files), publisher.user)
        return publisher.replace_files(state, [e for files in waiting.values() for e in files], changes)
    except BaseException:
        discard_changes(state, changes)
        raise


def _rows(context: EngineContext, state: TableState, files: Sequence[ManifestEntry]) -> DataFrame:
    """The rows of files, with their kinds, numbered as they came."""
    call = dumps((lsm_context(state, files), state.store))
    packed = pack(context.spark, [e.file.file_size for e in files])
    sent = [dumps([(n, files[n]) for n in numbers]) for numbers in packed]

    fields = [T.StructField(f.name, nullable(spark_type(f.type)), True) for f in state.schema.fields]
    types = T.StructType([*fields, T.StructField(VALUE_KIND, T.ByteType()), T.StructField(ARRIVAL, T.LongType())])

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        lsm, store = loads(call)
        schema = worker_schema(types)

        def numbered(number: int, entry: ManifestEntry) -> Iterator[pa.Table]:
            at = number << _FILE_SHIFT
            for rows in read_postponed(lsm, store, entry.partition, [entry]):
                places = pa.array(np.arange(at, at + rows.num_rows, dtype=np.int64))
                at += rows.num_rows
                yield rows.append_column(ARRIVAL, places).select(schema.names)

        entries = (e for batch in batches for i in batch.column(0).to_pylist() for e in loads(sent[i]))
        yield from spark_batches((rows for e in entries for rows in numbered(*e)), schema)

    return context.spark.range(0, len(sent), 1, len(sent)).mapInArrow(work, types)
