"""Batch reads of the data source: planned by the driver's Python, read by tasks as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from bitlake.spark.source.filters import pushed
from bitlake.spark.source.options import SourceOptions
from bitlake.spark.source.reading import batch_scan, packed, parts_of, read_partition
from bitlake.table.scan import Scan


class BatchReader(DataSourceReader):
    """Reads a scan; what Spark's filters rule out is not read where statistics and indexes can tell."""

    def __init__(self, options: SourceOptions, types: T.StructType) -> None:
        self._options = options
        self._types = types
        self._filters: list[Filter] = []
        # Spark fails a read whose reader overrides this method unless spark.sql.python.filterPushdown.enabled is true,
        # which it is not by default.  It tells by the function below; without pushed filters the source works as well.
        self.pushFilters = _PushFilters(self)  # type: ignore[method-assign]

    def _scan(self) -> Scan:
        scan = batch_scan(self._options)
        if scan.row_limit is not None:
            return scan  # a filter above a limit must not choose which rows are within it
        found = pushed(self._filters, scan.state.schema.fields)
        return scan if found is None else scan.where_bound(found)

    def push(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take all filters to heart, and ask Spark to judge the rows again."""
        self._filters = list(filters)
        return self._filters

    def partitions(self) -> Sequence[InputPartition]:
        """A partition for every so many bytes of files."""
        return packed(parts_of(self._scan()))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition."""
        return read_partition(partition, self._types)


class _PushFilters:
    """``pushFilters`` of a reader, which to Spark looks as if it were not overridden."""

    def __init__(self, reader: BatchReader) -> None:
        self._reader = reader
        self.__func__: Any = DataSourceReader.pushFilters  # of the instance: a class's would be bound, and another one

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._reader.push(filters)
