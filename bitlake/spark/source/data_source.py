"""The Spark data source: ``spark.read.format("bitlake")``, ``spark.readStream``, ``df.write``, ``df.writeStream``.

PySpark makes an instance in a Python process beside the driver, which plans; readers and writers travel to the
executors.  None of these processes has a session: what they know, options told them.
"""

from __future__ import annotations

import functools
import re
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import types as T
from pyspark.sql.datasource import DataSource, DataSourceStreamReader

from bitlake.errors import InvalidRequest, NotFound
from bitlake.spark.errors import one_message
from bitlake.spark.read.scan import frame_schema
from bitlake.spark.source.options import IN_SPARKS_CATALOG, ONLY_STREAM, READ, SourceOptions
from bitlake.spark.source.read import BatchReader, batch_scan, check_options, stream_reader, stream_scan
from bitlake.spark.source.write import BatchWriter, StreamWriter
from bitlake.sql.text import SqlText, outside_brackets

_MAY_CREATE = re.compile(r"\bTABLE\b.*\bUSING\s+`?bitlake\b", re.I | re.S)


class BitlakeDataSource(DataSource):
    """Tables of a lake."""

    @classmethod
    def name(cls) -> str:
        """The name in ``format(...)`` and ``USING``."""
        return "bitlake"

    @one_message()
    def writer(self, schema: T.StructType, overwrite: bool) -> BatchWriter:
        """A writer of the table."""
        return BatchWriter(SourceOptions.of(self.options, "batch write"), schema, overwrite)

    @one_message()
    def streamWriter(self, schema: T.StructType, overwrite: bool) -> StreamWriter:
        """A writer of a stream's batches."""
        return StreamWriter(SourceOptions.of(self.options, "stream write"), schema, overwrite)

    @one_message()
    def streamReader(self, schema: T.StructType) -> DataSourceStreamReader:
        """A reader of the table's changes."""
        return stream_reader(SourceOptions.of(self.options, "stream read"), schema)

    @one_message()
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

    @one_message()
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
    """See :func:`bitlake.register`."""
    if "_bitlake_source" not in vars(spark):
        spark.dataSource.register(BitlakeDataSource)
        spark.dataSource.register(PaimonDataSource)
        vars(spark)["_bitlake_source"] = BitlakeDataSource
    refuse_tables(spark)


def refuse_tables(spark: SparkSession) -> None:
    """Refuse ``CREATE TABLE … USING bitlake`` in the session's ``sql``: Spark shows it to no Python data source."""
    if "sql" in vars(spark):
        return
    run = spark.sql

    @functools.wraps(run)
    def sql(sqlQuery: str, *args: Any, **kwargs: Any) -> Any:
        if _creates_table(sqlQuery):
            raise InvalidRequest(IN_SPARKS_CATALOG)
        return run(sqlQuery, *args, **kwargs)

    vars(spark)["sql"] = sql


def _creates_table(text: str) -> bool:
    """Whether a statement is a CREATE or REPLACE TABLE with ``USING bitlake``."""
    if not _MAY_CREATE.search(text):
        return False
    written = SqlText(text)
    try:
        words = written.words
    except InvalidRequest:
        return False  # Spark reports what is wrong
    used = next((at for at in outside_brackets(words) if words[at] == "USING"), len(words)) + 1
    table = words[:1] in (["CREATE"], ["REPLACE"]) and "TABLE" in words[1:4] and "TEMPORARY" not in words[1:4]
    return table and used < len(words) and written.name(written.tokens[used]).lower() == "bitlake"
