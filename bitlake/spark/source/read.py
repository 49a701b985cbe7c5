"""Batch reads of the data source: options as a scan, and the scan as partitions that executors read.

Rows leave as Arrow batches of the schema that Spark expects: none becomes Python objects.

Filters are not pushed.  Spark (4.1 to 4.3) keeps the partitions that it planned with pushed filters in the relation,
and reads them again for every other query, branch of a union and side of a join over the same DataFrame or view: rows
are lost without an error.  The option ``where`` prunes instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.datasource import DataSourceReader, InputPartition

from bitlake.errors import InvalidRequest, reading_table
from bitlake.file_store_table import FileStoreTable
from bitlake.io import Store
from bitlake.scan.change_scan import ChangeScan, ChangeTask, read_changes
from bitlake.scan.column_reader import FileTask, ReadCounts
from bitlake.scan.reader import ReadRequest, bytes_to_read, read_file, tasks_of
from bitlake.scan.scan import Scan
from bitlake.snapshot.time_travel import When
from bitlake.spark.runner import TARGET_BYTES, dumps, loads
from bitlake.spark.source.options import MOMENT, SourceOptions
from bitlake.spark.types import spark_arrow_schema, spark_batches

OPEN_BYTES = 1 << 20
"""What opening a file counts for: 128 small files are a task.  A worker begins and ends one in the time of 40 files."""


def batch_scan(options: SourceOptions) -> Scan:
    """The scan that options of a batch read ask for.

    Raises :class:`InvalidRequest` for options that contradict each other, and what opening and scanning raise.
    """
    options.only_one((*MOMENT, "incremental-between", "incremental-between-timestamp"))
    options.only_one(("limit", "topn"))
    table = options.table()
    scan = refined(_rows(options, table), options)
    top = options.order()
    if top is not None:
        return scan.top_n(*top)
    return scan.limit(options.number("limit"))


def _rows(options: SourceOptions, table: FileStoreTable) -> Scan:
    """Rows of a moment, or that came between two."""
    kinds = options.flag("row-kind")
    between, by_time = options.get("incremental-between"), options.get("incremental-between-timestamp")
    if between is None and by_time is None:
        if options.get("incremental-mode") is not None:
            raise InvalidRequest("option 'incremental-mode' goes with 'incremental-between'")
        time = options.get("timestamp")
        when = When(
            options.number("snapshot", 1), options.get("tag"), _time(time) if time else None, options.get("version")
        )
        scan = table.scan() if when == When() else table.query_scan(when)
        return ChangeScan.of(scan, kinded=True) if kinds else scan
    mode = options.get("incremental-mode") or "auto"
    name = "incremental-between" if between is not None else "incremental-between-timestamp"
    start, comma, end = (between or by_time or "").partition(",")
    if not comma or not start.strip() or not end.strip():
        raise InvalidRequest(f"option '{name}' is 'start,end', and not '{between or by_time}'")
    if between is not None:
        return table.changes(start.strip(), end.strip(), mode=mode, kinds=kinds)
    return table.changes_by_time(_time(start), _time(end), mode=mode, kinds=kinds)


def refined(scan: Scan, options: SourceOptions) -> Scan:
    """The scan with the options ``where`` and ``columns``; ``rowkind`` stays the first column."""
    where = options.get("where")
    scan = scan if where is None else scan.where(where)
    columns = options.names("columns")
    return scan if columns is None else scan.select(columns)


def _time(text: str) -> int | str:
    """A time: milliseconds since the epoch, or ISO text."""
    text = text.strip()
    return int(text) if text.lstrip("-").isdigit() else text


def time_option(options: SourceOptions) -> int | str | None:
    """The option ``timestamp``."""
    text = options.get("timestamp")
    return None if text is None else _time(text)


# --- parts ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Part:
    """Something that one task reads by itself, and about how many bytes it is."""

    store: Store
    table: str
    how: Any
    """A :class:`ReadRequest`, or a change scan's spec; None: ``what`` is a whole scan."""
    what: FileTask | ChangeTask | Scan
    size: int

    def tables(self) -> Iterator[pa.Table]:
        """Its rows."""
        with reading_table(self.table):
            if isinstance(self.what, Scan):
                yield from self.what._tables()
            elif isinstance(self.what, ChangeTask):
                yield from read_changes(self.store, self.what, self.how)
            else:
                yield from read_file(self.store, self.what, self.how, ReadCounts())


class Parts(InputPartition):
    """What one Spark task reads, in order."""

    def __init__(self, parts: Sequence[Part]) -> None:
        super().__init__(dumps(list(parts)))

    def batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows as Spark takes them."""
        yield from spark_batches((table for part in loads(self.value) for table in part.tables()), schema)


def read_partition(partition: InputPartition, types: T.StructType) -> Iterator[pa.RecordBatch]:
    """What ``read`` of a reader yields; Spark makes an empty partition up where a plan has none."""
    if isinstance(partition, Parts):
        yield from partition.batches(spark_arrow_schema(types))


def parts_of(scan: Scan) -> list[Part]:
    """The parts of a scan; one whose rows depend on each other (a limit, an order) is a single part."""
    store, name = scan.store, scan.state.name
    scan = replace(scan, _to_spark=None, _planned=[])
    if scan.row_limit is not None or (type(scan) is not Scan and not isinstance(scan, ChangeScan)):
        return [Part(store, name, None, scan, 0)]
    if isinstance(scan, ChangeScan):
        spec = scan.spec()
        return [Part(store, name, spec, t, t.size) for t in scan.tasks()]
    plan = scan.plan()
    request = ReadRequest(scan.state.schema, scan.columns, scan.predicate, scan.timezone, scan.ignored)
    return [Part(store, name, request, t, bytes_to_read(t)) for t in tasks_of(plan.files, plan.schemas)]


def packed(parts: Sequence[Part]) -> list[Parts]:
    """Parts put together until a task has enough to read."""
    return packed_groups([[part] for part in parts])


def packed_groups(groups: Sequence[Sequence[Part]]) -> list[Parts]:
    """As :func:`packed`; the parts of a group are read by one task, in their order."""
    out: list[Parts] = []
    current: list[Part] = []
    held = 0
    for group in groups:
        size = sum(max(part.size, OPEN_BYTES) for part in group)
        if current and held + size > TARGET_BYTES:
            out.append(Parts(current))
            current, held = [], 0
        current += group
        held += size
    return [*out, Parts(current)] if current else out


class BatchReader(DataSourceReader):
    """Reads a scan."""

    def __init__(self, options: SourceOptions, types: T.StructType) -> None:
        self._options = options
        self._types = types

    def partitions(self) -> Sequence[InputPartition]:
        """Pack the files into partitions of about :data:`TARGET_BYTES` each."""
        return packed(parts_of(batch_scan(self._options)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition."""
        return read_partition(partition, self._types)
