"""Reads of the data source: options as a scan, and scans or streams as partitions that executors read.

Rows leave as Arrow batches of the schema that Spark expects: none becomes Python objects.

Filters are not pushed.  Spark (4.1 to 4.3) keeps the partitions that it planned with pushed filters in the relation,
and reads them again for every other query, branch of a union and side of a join over the same DataFrame or view: rows
are lost without an error.  The option ``where`` prunes instead.

A stream's reader lives in a Python process beside the driver as long as the query runs; Spark keeps its offsets
(:class:`bitlake.scan.stream_offsets.StreamOffset`) in the checkpoint.  The reader decides where a query begins, how
much a micro-batch takes, and what its tasks read.  Rows of one bucket are read by one task, in the order of their
snapshots; where keys have moved between the buckets of a partition, so are all rows of the partition.  Where keys are
unique over partitions, one task reads all changes, and of a key that moves the rows of its new partition last.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from bitlake import _clock
from bitlake.codec.hashing import Int64s
from bitlake.errors import InvalidRequest, NotFound, reading_table
from bitlake.file_store_table import FileStoreTable
from bitlake.io import Store
from bitlake.metadata.schema import TableSchema
from bitlake.scan.column_reader import FileTask, ReadCounts
from bitlake.scan.incremental import (
    ROW_KIND,
    ChangeScan,
    ChangeTask,
    read_changes,
)
from bitlake.scan.read_ahead import files_at_once, read_in_order
from bitlake.scan.reader import ReadRequest, read_file, tasks_of
from bitlake.scan.scan import TableScan
from bitlake.scan.stream_offsets import ChangeStream, Limits, StreamOffset, moved_last
from bitlake.schema.merge_spec import is_cross_partition
from bitlake.snapshot.consumers import Progress, progress, reset_consumer
from bitlake.snapshot.time_travel import When, epoch_millis
from bitlake.spark.errors import one_message
from bitlake.spark.runner import TARGET_BYTES, dumps, loads
from bitlake.spark.source.options import MOMENT, SourceOptions
from bitlake.spark.types import spark_arrow_schema, spark_batches
from bitlake.system_tables.tables import SystemTable

# --- scans of batch reads ---------------------------------------------------------------------------------------------


def batch_scan(options: SourceOptions) -> TableScan:
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


def _rows(options: SourceOptions, table: FileStoreTable) -> TableScan:
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


def refined(scan: TableScan, options: SourceOptions) -> TableScan:
    """The scan with the options ``where`` and ``columns``; ``rowkind`` is the first column unless they name it."""
    where = options.get("where")
    scan = scan if where is None else scan.where(where)
    columns = options.names("columns")
    if columns is None:
        return scan
    if options.flag("row-kind") and ROW_KIND not in map(str.lower, columns):
        # Without it a deleted row would look like one that was added.
        columns = [ROW_KIND, *columns]
    return scan.select(columns)


def _time(text: str) -> int | str:
    """A time: milliseconds since the epoch, or ISO text."""
    text = text.strip()
    return int(text) if text.lstrip("-").isdigit() else text


def time_option(options: SourceOptions) -> int | str | None:
    """The option ``timestamp``."""
    text = options.get("timestamp")
    return None if text is None else _time(text)


# --- partitions, and the batch reader ---------------------------------------------------------------------------------

OPEN_BYTES = 1 << 20
"""What opening a file counts for: 128 small files are a task.  A worker begins and ends one in the time of 40 files."""


@dataclass(frozen=True, slots=True)
class Part:
    """Something that one task reads by itself, and about how many bytes it is."""

    store: Store
    table: str
    how: Any
    """A :class:`ReadRequest`, or a change scan's spec; None: ``what`` is a whole scan."""
    what: FileTask | ChangeTask | TableScan
    size: int

    def tables(self) -> Iterator[pa.Table]:
        """Its rows."""
        with reading_table(self.table):
            if isinstance(self.what, TableScan):
                yield from self.what._tables()
            elif isinstance(self.what, ChangeTask):
                yield from read_changes(self.store, self.what, self.how)
            else:
                yield from read_file(self.store, self.what, self.how, ReadCounts())


@dataclass(frozen=True, slots=True)
class MovedKeys:
    """The changes of a snapshot in which keys may move between partitions, and about how many bytes they are."""

    parts: tuple[Part, ...]
    keys: tuple[str, ...]
    size: int

    def tables(self) -> Iterator[pa.Table]:
        """The rows; those of a key's new partition come after those of the others."""
        places: dict[object, int] = {}
        tables: list[pa.Table] = []
        numbers: list[Int64s] = []
        for part in self.parts:
            place = places.setdefault(_place(part, True), len(places))
            for table in part.tables():
                tables.append(table)
                numbers.append(np.full(table.num_rows, place))
        if tables:
            yield moved_last(pa.concat_tables(tables), np.concatenate(numbers), self.keys)


class Parts(InputPartition):
    """The files that one Spark task reads, in order."""

    def __init__(self, parts: Sequence[Part | MovedKeys]) -> None:
        super().__init__(dumps(list(parts)))

    def batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows as Spark takes them."""
        parts: list[Part | MovedKeys] = loads(self.value)
        files = [(p.store, p.what) for p in parts if isinstance(p, Part) and isinstance(p.what, FileTask)]
        all_files = files and len(files) == len(parts)
        at_once = files_at_once(files[0][0], [task for _, task in files], least=1) if all_files else 1
        tables = read_in_order([part.size for part in parts], lambda i: parts[i].tables(), at_once=at_once)
        yield from spark_batches(tables, schema)


def read_partition(partition: InputPartition, types: T.StructType) -> Iterator[pa.RecordBatch]:
    """What ``read`` of a reader yields; Spark makes an empty partition up where a plan has none."""
    with one_message():
        if isinstance(partition, Parts):
            yield from partition.batches(spark_arrow_schema(types))


def parts_of(scan: TableScan) -> list[Part]:
    """The parts of a scan; one whose rows depend on each other (a limit, an order) is a single part."""
    store, name = scan.store, scan.state.name
    scan = replace(scan, _to_spark=None, _executors=None, _planned=[])
    if scan.row_limit is not None or (type(scan) is not TableScan and not isinstance(scan, ChangeScan)):
        return [Part(store, name, None, scan, 0)]
    if isinstance(scan, ChangeScan):
        spec = scan.spec()
        return [Part(store, name, spec, t, t.size) for t in scan.tasks()]
    plan = scan.plan()
    request = ReadRequest(scan.state.schema, scan.columns, scan.predicate, scan.timezone, scan.ignored)
    return [Part(store, name, request, t, t.chosen_bytes) for t in tasks_of(plan.files, plan.schemas)]


def packed(parts: Sequence[Part]) -> list[Parts]:
    """Parts put together until a task has enough to read."""
    return packed_groups([[part] for part in parts])


def packed_groups(groups: Sequence[Sequence[Part | MovedKeys]]) -> list[Parts]:
    """As :func:`packed`; the parts of a group are read by one task, in their order."""
    out: list[Parts] = []
    current: list[Part | MovedKeys] = []
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

    @one_message()
    def partitions(self) -> Sequence[InputPartition]:
        """Pack the files into partitions of about :data:`TARGET_BYTES` each."""
        return packed(parts_of(batch_scan(self._options)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition."""
        return read_partition(partition, self._types)


# --- streams ----------------------------------------------------------------------------------------------------------

admission: Any = None
"""PySpark's module of limits; PySpark 4.1 has none: it lets no Python source read less than all."""
with contextlib.suppress(ImportError):
    admission = importlib.import_module("pyspark.sql.streaming.datasource")

if TYPE_CHECKING or admission is None:

    class _AvailableNow:
        """The base class of a reader that Spark can ask to stop at the data available now."""

else:
    _AvailableNow = admission.SupportsTriggerAvailableNow

_LIMITS = ("maxfilespertrigger", "maxbytespertrigger", "maxrowspertrigger")
_STARTS = ("latest", "latest-full", "earliest", "from-snapshot", "from-snapshot-full", "from-timestamp", "default")


def stream_table(options: SourceOptions) -> tuple[FileStoreTable, bool]:
    """The table that a stream reads, and whether with the kinds of rows: ``t$audit_log`` is ``t`` with these."""
    table = options.table()
    kinds = options.flag("row-kind")
    if isinstance(table, SystemTable):
        if table.system != "audit_log":
            raise InvalidRequest(f"'{table.name}' cannot be streamed; of the system tables only $audit_log can")
        return table.base, True
    return table, kinds


def stream_scan(options: SourceOptions) -> TableScan:
    """A scan with the columns that a stream gives."""
    table, kinds = stream_table(options)
    scan = table.scan()
    return refined(ChangeScan.of(scan, kinded=True) if kinds else scan, options)


def check_options(options: SourceOptions) -> None:
    """Raise :class:`InvalidRequest` for options of a stream that do not go together."""
    start = (options.get("start") or "default").lower()
    if start not in _STARTS:
        raise InvalidRequest(f"option 'start' is one of {', '.join(_STARTS)}, and not '{start}'")
    options.only_one(("snapshot", "timestamp"))
    if (options.get("snapshot") is None) != (not start.startswith("from-snapshot")) and start != "default":
        raise InvalidRequest(f"option 'snapshot' goes with start = from-snapshot, and start is '{start}'")
    if (options.get("timestamp") is None) != (start != "from-timestamp") and start != "default":
        raise InvalidRequest(f"option 'timestamp' goes with start = from-timestamp, and start is '{start}'")
    if options.get("consumer.ignore-progress") is not None and options.get("consumer-id") is None:
        raise InvalidRequest("option 'consumer.ignore-progress' goes with 'consumer-id'")
    limited = [n for n in (*_LIMITS, "minrowspertrigger") if options.number(n, 1) is not None]
    if limited and admission is None:
        raise InvalidRequest(f"option '{limited[0]}' needs PySpark 4.2: earlier ones ask no Python source for less")
    if (options.number("minrowspertrigger", 1) is None) != (options.number("maxtriggerdelayms", 1) is None):
        raise InvalidRequest("options 'minRowsPerTrigger' and 'maxTriggerDelayMs' go together")


class _StreamReader(DataSourceStreamReader):
    """The methods of a stream's reader that every PySpark calls."""

    def __init__(self, options: SourceOptions, types: T.StructType) -> None:
        check_options(options)
        self._options = options
        self._types = types
        self._table, kinds = stream_table(options)
        self._feed = ChangeStream(self._table, kinds=kinds)
        self._fields = {f.name: f for f in self._table.schema.fields}
        self._initial: StreamOffset | None = None
        self._until: StreamOffset | None = None
        self._recorded: Progress | None = None
        self._last_ms = _clock.now_ms()

    @one_message()
    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins.

        Spark asks for it twice: before it plans the first micro-batch, and before it reads it.
        """
        return self._initial_offset().to_dict()

    def _initial_offset(self) -> StreamOffset:
        if self._initial is None:
            self._initial = self._find_initial()
        return self._initial

    def _find_initial(self) -> StreamOffset:
        options, feed = self._options, self._feed
        consumer = options.get("consumer-id")
        if consumer is not None and not options.flag("consumer.ignore-progress"):
            state = self._table.state()
            known = progress(state.table_files).get(consumer)
            if known is not None:
                # At 1 it has read nothing, and snapshot 1 may be an overwrite.
                return feed.at(known.next_snapshot, full=known.full or known.next_snapshot == 1)
        start = (options.get("start") or "default").lower()
        snapshot, time = options.number("snapshot", 1), time_option(options)
        if snapshot is not None:
            return feed.at(snapshot, full=start == "from-snapshot-full")
        if time is not None:
            return feed.since(epoch_millis(time, options.timezone))
        if start == "latest":
            return feed.latest()
        return feed.full(earliest=start == "earliest")

    @one_message()
    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        """Return the parts that the tasks of a micro-batch read."""
        last = StreamOffset.from_dict(end)
        first = self._start_of_batch(StreamOffset.from_dict(start), last)
        schema = self._table.schema
        keyed, moved = bool(schema.primary_keys), self._feed.moves_keys(first, last)
        apart = last
        if is_cross_partition(schema) and not last.full:
            apart = StreamOffset(first.snapshot + 1) if first.full else first
        groups: dict[object, list[Part | MovedKeys]] = {}
        for scan in self._scans(first, apart):
            for part in parts_of(scan):
                groups.setdefault(_place(part, moved) if keyed else len(groups), []).append(part)
        changes = [part for scan in self._scans(apart, last) for part in self._changes(scan)]
        self._record_progress(first)
        return packed_groups([*groups.values(), *([changes] if changes else [])])

    def _start_of_batch(self, start: StreamOffset, end: StreamOffset) -> StreamOffset:
        """Where the micro-batch that ends at ``end`` starts; ``start`` is what Spark gives as its start.

        To read the first micro-batch again after a restart, Spark asks for the initial offset again, which newer
        snapshots may have moved.  So the end of the first micro-batch holds its start.  On PySpark 4.1 it does not,
        since the reader cannot know which micro-batch is the first one: one that begins with all rows then takes those
        of the last snapshot before its end.
        """
        if start.first is None and end.first is not None:
            return end.first
        if start.full and not end.full and start.snapshot >= end.snapshot > 1:
            return self._feed.at(end.snapshot - 1, full=True)
        return start

    def _scans(self, start: StreamOffset, end: StreamOffset) -> Iterator[TableScan]:
        where = self._options.get("where")
        for scan in self._feed.scans(start, end) if start != end else ():
            yield (scan if where is None else scan.where(where)).select(self._names_in(scan.state.schema))

    def _names_in(self, schema: TableSchema) -> list[str]:
        """The names that the query's columns have in a schema, which may be newer than the query."""
        fields = {f.id: f for f in schema.fields}
        names: list[str] = []
        for name in self._types.names:
            old = self._fields.get(name)
            if old is None:  # the row kind, or a metadata column
                names.append(name)
                continue
            field = fields.get(old.id)
            if field is None or replace(field.type, nullable=True) != replace(old.type, nullable=True):
                change = "was dropped" if field is None else f"became {field.type} (it was {old.type})"
                raise InvalidRequest(
                    f"table '{self._table.name}': column '{name}' {change} while the query ran; start the query again "
                    "with the same checkpoint, to continue with the table's columns as they are now"
                )
            names.append(field.name)
        return names

    def _changes(self, scan: TableScan) -> Sequence[Part | MovedKeys]:
        """The parts of one snapshot's changes of a table whose keys are unique over partitions."""
        parts, keys = parts_of(scan), self._table.schema.primary_keys
        compared = isinstance(scan, ChangeScan) and scan.before is not None
        retracts = compared or any(e.file.delete_row_count != 0 for e in scan.state.entries())
        if len(parts) < 2 or not retracts or not {ROW_KIND, *keys} <= set(self._types.names):
            return parts
        return [MovedKeys(tuple(parts), keys, sum(part.size for part in parts))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition."""
        return read_partition(partition, self._types)

    @one_message()
    def commit(self, end: Mapping[str, Any]) -> None:
        """Record the progress: all micro-batches up to ``end`` are done."""
        self._record_progress(StreamOffset.from_dict(end))

    def _record_progress(self, at: StreamOffset) -> None:
        """Record an offset up to which all micro-batches are done: expiry no longer keeps the snapshots before it.

        Spark calls :meth:`commit` only when it plans the next micro-batch, so not for the last one of a query.  The
        micro-batches that it plans and asks for start at such offsets, too.
        """
        consumer = self._options.get("consumer-id")
        now = Progress(at.snapshot, at.full)
        if consumer is not None and now != self._recorded:
            reset_consumer(self._table.state(), consumer, now.next_snapshot, full=now.full)
            self._recorded = now


def _place(part: Part, moved: bool) -> object:
    """The bucket that a part is of; where keys have ``moved``, its partition."""
    what = part.what
    task = (*what.files, *(what.before or ()))[0] if isinstance(what, ChangeTask) else what
    return task.partition, None if moved else task.bucket  # type: ignore[union-attr]


class AllAtOnceReader(_StreamReader):
    """For PySpark 4.1: a micro-batch takes all that there is."""

    @one_message()
    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        """Return the offset after all data available now."""
        # Before later snapshots are committed; a query with a checkpoint does not need it, and it may have expired.
        initial = None
        with contextlib.suppress(NotFound):
            initial = self._initial_offset()
        end = self._feed.latest()
        if initial is not None and initial.full and initial.snapshot == end.snapshot:  # the table has no snapshot yet
            end = initial
        return end.to_dict()


class LimitedReader(_StreamReader, _AvailableNow):
    """For PySpark from 4.2 on: limits for each micro-batch, and an end to what is available now."""

    def getDefaultReadLimit(self) -> Any:
        """One of the limits given; Spark asks for one, and :meth:`latestOffset` heeds all."""
        numbers = {n: self._options.number(n, 1) for n in (*_LIMITS, "minrowspertrigger")}
        makers = (admission.ReadMaxFiles, admission.ReadMaxBytes, admission.ReadMaxRows, admission.ReadMinRows)
        for number, maker in zip(numbers.values(), makers, strict=True):
            if number is not None:
                return maker(number)
        return admission.ReadAllAvailable()

    @one_message()
    def latestOffset(self, start: Mapping[str, Any], limit: Any) -> dict[str, Any]:
        """Where the next micro-batch ends; ``start`` if there is nothing to read, or not enough yet."""
        at = StreamOffset.from_dict(start)
        end = self._end_of_batch(at, limit)
        self._record_progress(at)
        is_first = at == self._initial and at.first is None and end != at
        return (replace(end, first=at) if is_first else end).to_dict()

    def _end_of_batch(self, at: StreamOffset, limit: Any) -> StreamOffset:
        if isinstance(limit, admission.ReadAllAvailable):
            return self._feed.step(at, None, self._until).end
        limits = Limits(*[self._options.number(n, 1) for n in _LIMITS])
        step = self._feed.step(at, limits, self._until)
        least, delay = (self._options.number(n, 1) for n in ("minrowspertrigger", "maxtriggerdelayms"))
        if least is not None and delay is not None and self._until is None:
            now = _clock.now_ms()
            if step.rows < least and now - self._last_ms < delay:
                return at
            self._last_ms = now
        return step.end

    @one_message()
    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the offset after all data available now, for the query's progress report."""
        return self._feed.latest().to_dict()

    @one_message()
    def prepareForTriggerAvailableNow(self) -> None:
        """Read no further than the data available now."""
        self._until = self._feed.latest()


class RefusedReader(_AvailableNow, DataSourceStreamReader):
    """Stands for a reader that cannot be made: whatever Spark calls first raises the reason.

    PySpark's worker replaces an error that is raised as the reader is made with an ``UnboundLocalError`` of its own.
    """

    def __init__(self, error: Exception) -> None:
        self._error = error

    @one_message()
    def _refuse(self, *_: Any) -> Any:
        raise self._error

    initialOffset = latestOffset = partitions = read = commit = _refuse  # type: ignore[assignment]
    getDefaultReadLimit = prepareForTriggerAvailableNow = reportLatestOffset = _refuse


def stream_reader(given: Mapping[str, str], types: T.StructType) -> DataSourceStreamReader:
    """The reader that the PySpark at hand can use."""
    reader = AllAtOnceReader if admission is None else LimitedReader
    try:
        return reader(SourceOptions.of(given, "stream read"), types)
    except Exception as e:  # noqa: BLE001 - raised by the methods
        return RefusedReader(e)
