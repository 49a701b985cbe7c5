"""Batch reads of the data source: planned by the driver's Python, read by tasks as Arrow batches.

Filters are not pushed.  Spark (4.1 to 4.3) keeps the partitions that it planned with pushed filters in the relation,
and reads them again for every other query, branch of a union and side of a join over the same DataFrame or view: rows
are lost without an error.  The option ``where`` prunes instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.datasource import DataSourceReader, InputPartition

from bitlake.spark.source.options import SourceOptions
from bitlake.spark.source.reading import batch_scan, packed, parts_of, read_partition


class BatchReader(DataSourceReader):
    """Reads a scan."""

    def __init__(self, options: SourceOptions, types: T.StructType) -> None:
        self._options = options
        self._types = types

    def partitions(self) -> Sequence[InputPartition]:
        """A partition for every so many bytes of files."""
        return packed(parts_of(batch_scan(self._options)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition."""
        return read_partition(partition, self._types)
