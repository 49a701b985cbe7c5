"""The Spark data source: ``spark.read.format("bitlake")``, ``spark.readStream``, ``df.write``, ``df.writeStream``.

PySpark makes an instance in a Python process beside the driver, which plans; readers and writers travel to the
executors.  None of these processes has a session: what they know, options told them.
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import types as T
from pyspark.sql.datasource import DataSource, DataSourceStreamReader

from bitlake.errors import NotFound
from bitlake.spark.read.scan import frame_schema
from bitlake.spark.source.options import ONLY_STREAM, READ, SourceOptions
from bitlake.spark.source.read import BatchReader, batch_scan, check_options, stream_reader, stream_scan
from bitlake.spark.source.write import BatchWriter, StreamWriter


class BitlakeDataSource(DataSource):
    """Tables of a lake."""

    @classmethod
    def name(cls) -> str:
        """The name in ``format(...)`` and ``USING``."""
        return "bitlake"

    def writer(self, schema: T.StructType, overwrite: bool) -> BatchWriter:
        """A writer of the table."""
        return BatchWriter(SourceOptions.of(self.options, "batch write"), schema, overwrite)

    def streamWriter(self, schema: T.StructType, overwrite: bool) -> StreamWriter:
        """A writer of a stream's batches."""
        return StreamWriter(SourceOptions.of(self.options, "stream write"), schema, overwrite)

    def streamReader(self, schema: T.StructType) -> DataSourceStreamReader:
        """A reader of the table's changes."""
        return stream_reader(SourceOptions.of(self.options, "stream read"), schema)

    def schema(self) -> T.StructType:
        """The columns that a read gives."""
        options = SourceOptions.of(self.options, READ)
        if any(options.get(n) is not None for n in ONLY_STREAM):
            check_options(options)
            return frame_schema(stream_scan(options))
        try:
            return frame_schema(batch_scan(options))
        except NotFound:
            # A stream that goes on from a checkpoint does not need where it once began; a batch read will miss it.
            if all(options.get(n) is None for n in ("snapshot", "timestamp")):
                raise
            return frame_schema(stream_scan(options))

    def reader(self, schema: T.StructType) -> BatchReader:
        """A reader of the table as the options have it."""
        return BatchReader(SourceOptions.of(self.options, "batch read"), schema)


class PaimonDataSource(BitlakeDataSource):
    """The same under Paimon's name, so that its examples run as they are."""

    @classmethod
    def name(cls) -> str:
        """The name in ``format(...)`` and ``USING``."""
        return "paimon"


def register(spark: SparkSession) -> None:
    """Make the source known to a session, under both names."""
    spark.dataSource.register(BitlakeDataSource)
    spark.dataSource.register(PaimonDataSource)
