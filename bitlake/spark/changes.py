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
    tasks = [dumps(t) for t in reads]
    packed = pack(spark, [t.size for t in reads])

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = worker_schema(types)
        for batch in batches:
            for number in (n for i in batch.column(0).to_pylist() for n in packed[i]):
                for table in read_changes(store, loads(tasks[number]), spec):
                    yield from spark_batches(table, schema)

    frame = spark.range(0, len(packed), 1, max(1, len(packed))).mapInArrow(work, types)
    return frame if scan.row_limit is None else frame.limit(scan.row_limit)
