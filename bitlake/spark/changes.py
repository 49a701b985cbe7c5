"""Rows with their kinds as a DataFrame: little is read here, the rest by Python workers, a task for each part."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from bitlake.spark.arrow import spark_batches
from bitlake.spark.local import local_frame
from bitlake.spark.pickling import dumps, loads
from bitlake.spark.runner import pack
from bitlake.spark.types import worker_schema
from bitlake.table.change_scan import ChangeScan, read_changes


def changes_frame(spark: SparkSession, scan: ChangeScan, types: T.StructType, here: bool) -> DataFrame:
    """The scan's rows; read now if ``here``."""
    if here:
        return local_frame(spark, scan.to_arrow(), types)
    spec, store = scan.spec(), scan.store
    reads = scan.tasks()
    tasks = [dumps(reads[r.start : r.stop]) for r in pack(spark, [t.size for t in reads])]

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = worker_schema(types)
        numbers = (n for batch in batches for n in batch.column(0).to_pylist())
        changes = (task for n in numbers for task in loads(tasks[n]))
        yield from spark_batches((t for task in changes for t in read_changes(store, task, spec)), schema)

    frame = spark.range(0, len(tasks), 1, max(1, len(tasks))).mapInArrow(work, types)
    return frame if scan.row_limit is None else frame.limit(scan.row_limit)
