"""The Spark data source: ``spark.read.format("bitlake")``, ``spark.readStream``, ``df.write``, ``df.writeStream``.

PySpark makes an instance in a Python process beside the driver, which plans; readers and writers travel to the
executors.  None of these processes has a session: their options are all they know.

Tasks of a write make files, their messages name them, and the driver's Python commits.  A failed task deletes what it
made; for a failed job Spark lists the tasks that succeeded, and their files are deleted unless a snapshot names them:
the connection may have been lost in mid-commit.  Tasks that were killed leave files that nothing names, for orphan
cleaning.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import types as T
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    WriterCommitMessage,
)

from bitlake.errors import BitlakeError, InvalidRequest, NotFound
from bitlake.file_store_table import FileStoreTable
from bitlake.io.base import request_runner
from bitlake.mergetree import task_writes
from bitlake.metadata.schema import TableSchema
from bitlake.schema.create import ColumnSpec
from bitlake.schema.evolution import MergeSchema
from bitlake.snapshot.state import TableState
from bitlake.snapshot.versions import load_snapshot, snapshot_ids
from bitlake.spark.errors import one_message
from bitlake.spark.read.scan import frame_schema
from bitlake.spark.runner import dumps, loads
from bitlake.spark.session import register_functions
from bitlake.spark.source.options import IN_SPARKS_CATALOG, MERGING, ONLY_STREAM, READ, SourceOptions, parse_partition
from bitlake.spark.source.read import BatchReader, batch_scan, check_options, stream_reader, stream_scan
from bitlake.spark.types import comment_of, stored_type
from bitlake.spark.write.insert_cast import merged_with
from bitlake.sql.text import SqlText, outside_brackets
from bitlake.types import arrow_type
from bitlake.write.commit import is_committed
from bitlake.write.commit_plan import BatchCommitted, Overwrite, overwrite_scope, physical_partition

_QUERY = "sql.streaming.queryId"
"""The task property in which Spark says of which streaming query a task is; a checkpoint keeps it."""


@dataclass(frozen=True, slots=True)
class Message(WriterCommitMessage):
    """The pickled result of a task, its streaming query, and the id of the schema that its files were written with."""

    result: bytes
    query: str | None
    schema_id: int

    def load(self) -> task_writes.TaskResult:
        """Return the result of the task."""
        found: task_writes.TaskResult = loads(self.result)
        return found


class _Writing:
    """The common part of both writers: a table, and tasks that write to it."""

    def __init__(self, options: SourceOptions, types: T.StructType, fresh: bool = False) -> None:
        self._options = options
        kinds = options.get("row-kind-column")
        table, self._created = _opened(options, types, kinds)
        with self._dropping():
            state = table.state()
            table.check_writable(state, keyed=True)
            state = merged(table, state, types, kinds, options)
            self._job = task_writes.TaskJob(state, table.publisher(state).user, fresh, kinds)
            task_writes.check_tasks(self._job)
            check_columns(table, state.schema, types, self._job.kinds)

    @contextlib.contextmanager
    def _dropping(self) -> Iterator[None]:
        """Drop a table that this write created, if the block fails."""
        try:
            yield
        except BaseException:
            if self._created:
                self._options.drop_table()
            raise

    @one_message()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        """One task's rows become files."""
        context = TaskContext.get()
        number = 0 if context is None else context.partitionId()
        result = task_writes.write_task(self._job, number, iterator)
        query = None if context is None else context.getLocalProperty(_QUERY)
        return Message(dumps(result), query, self._job.state.schema.id)


class BatchWriter(_Writing, DataSourceArrowWriter):
    """``df.write.format("bitlake")``: appends, or replaces all rows or some partitions."""

    def __init__(self, options: SourceOptions, types: T.StructType, overwrite: bool) -> None:
        super().__init__(options, types, overwrite)
        with self._dropping():
            self._overwrite = _scope(options, self._job.state.schema, self._job.state.name) if overwrite else None
            if not overwrite:
                for name in ("partition", "partition-overwrite-mode"):
                    if options.get(name) is not None:
                        raise InvalidRequest(f"option '{name}' goes with mode 'overwrite'")

    @one_message()
    def commit(self, messages: list[Any]) -> None:
        """Make the files of all tasks visible at once."""
        table = self._table()
        results = [m.load() for m in messages if m is not None]
        task_writes.commit_tasks(table, self._job, results, self._overwrite)

    def abort(self, messages: list[Any]) -> None:
        """Delete the files of tasks that succeeded, unless the commit may have taken place."""
        state = self._job.state
        if _committed_nothing(state, self._job.user):
            task_writes.discard_tasks(state, [m.load() for m in messages if m is not None])
            if self._created:
                self._options.drop_table()

    def _table(self) -> FileStoreTable:
        prefixed = self._options.table()
        return _exactly(prefixed, self._job.user)


class StreamWriter(_Writing, DataSourceStreamArrowWriter):
    """``df.writeStream.format("bitlake")``: each batch is committed once, whatever is killed and started again."""

    def __init__(self, options: SourceOptions, types: T.StructType, overwrite: bool) -> None:
        if overwrite:
            raise InvalidRequest(
                "outputMode 'complete' replaces all rows in every batch; the source takes 'append' (also for upserts)"
            )
        super().__init__(options, types)

    @one_message()
    def commit(self, messages: list[Any], batchId: int) -> None:
        """Make the files of a batch visible, or delete them if the batch is in the table already."""
        results = [m.load() for m in messages if m is not None]
        if not any(results):
            return
        table = self._options.table().written_by(self._user(messages))
        state = table.state()
        if is_committed(state, table.publisher(state).user, batchId):
            task_writes.discard_tasks(self._job.state, results)
            task_writes.compact_touched(table, results, batchId)
            return
        # Another process made the writer whose state the tasks were planned on.  If the table was altered since, the
        # commit must compare the schema that they wrote with.
        [schema] = state.schemas({m.schema_id for m in messages if m is not None}).values()
        state = replace(state, schema=schema)
        job = task_writes.TaskJob(state, self._job.user, False, self._job.kinds)
        with contextlib.suppress(BatchCommitted):  # by a process that Spark takes for dead; these files are deleted
            task_writes.commit_tasks(table, job, results, None, batchId)

    def abort(self, messages: list[Any], batchId: int) -> None:
        """Delete the files of tasks that succeeded, unless the batch may be in the table."""
        state = self._job.state
        done = [m for m in messages if m is not None]
        if not done:
            return
        table = self._options.table().written_by(self._user(done))
        try:
            committed = is_committed(table.state(), table.publisher(state).user, batchId)
        except BitlakeError:
            return  # the outcome is unknown; if the commit failed, orphan removal deletes the files later
        if not committed:
            task_writes.discard_tasks(state, [m.load() for m in done])

    def _user(self, messages: Sequence[Any]) -> str:
        given = self._options.get("commit-user")
        queries = {m.query for m in messages if m is not None and m.query}
        if given is None and len(queries) != 1:
            raise InvalidRequest("Spark did not name the query that writes; set the stream's option 'commit-user'")
        return given or f"spark-{queries.pop()}"


def _opened(options: SourceOptions, types: T.StructType, kinds: str | None) -> tuple[FileStoreTable, bool]:
    """The table that the options name, and whether it was created for the rows."""
    given = options.table_options
    try:
        table = options.table()
    except NotFound:
        if options.names_branch:
            raise
        fields = [f for f in types.fields if kinds is None or f.name.lower() != kinds.lower()]
        options.create_table([ColumnSpec(f.name, stored_type(f), comment_of(f)) for f in fields])
        return options.table(), True
    if given:
        raise InvalidRequest(f"table '{table.name}' already exists: option '{next(iter(given))}' is for a new table")
    return table, False


def merged(
    table: FileStoreTable, state: TableState, types: T.StructType, kinds: str | None, options: SourceOptions
) -> TableState:
    """The table's state, with the columns that the rows bring where ``write.merge-schema`` lets them.

    The table is altered as the writer is made, before any task runs.
    """
    given = {name: value for name in MERGING if (value := options.get(name)) is not None}
    rows = T.StructType([f for f in types.fields if kinds is None or f.name.lower() != kinds.lower()])
    return merged_with(table, state, rows, MergeSchema.of({**state.schema.options, **given}))


def _exactly(table: FileStoreTable, user: str) -> FileStoreTable:
    """The table for a writer of a name that has its prefix already."""
    writer = table.written_by(user)
    state = writer.state()
    prefix = writer.publisher(state).user.removesuffix(user)
    return table.written_by(user.removeprefix(prefix)) if prefix else writer


def _committed_nothing(state: TableState, user: str) -> bool:
    """Whether a user that began to write at a state has certainly committed no snapshot; False if that is unknown.

    After a rollback or a replacement of the table, the user's snapshot may have a lower id than the state's.
    """
    try:
        ids = snapshot_ids(state.table_files)
        if ids and ids[0] > (state.snapshot_id or 0) + 1:
            return False  # the user's snapshot may have expired, while its files are still live
        load = functools.partial(load_snapshot, state.table_files)
        return all(s.commit_user != user for s in request_runner(state.store, state.paths.root).run(ids, load))
    except BitlakeError:
        return False


def _scope(options: SourceOptions, schema: TableSchema, table: str) -> Overwrite:
    """Return the scope of an overwrite: all, the partitions of the rows, or those that option ``partition`` names."""
    spec = options.get("partition")
    mode = (options.get("partition-overwrite-mode") or "static").lower()
    if mode not in ("static", "dynamic"):
        raise InvalidRequest(f"option 'partition-overwrite-mode' is static or dynamic, and not '{mode}'")
    if spec is None:
        return overwrite_scope(schema, {} if mode == "dynamic" else None)
    if mode == "dynamic":
        raise InvalidRequest("option 'partition' names partitions; partition-overwrite-mode = dynamic finds them")
    values: dict[str, Any] = {}
    for name, text in parse_partition(spec).items():
        field = schema.field(name)
        try:
            values[field.name] = pa.array([text], pa.string()).cast(arrow_type(field.type))[0].as_py()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
            raise InvalidRequest(
                f"option 'partition': '{text}' is not a valid {field.type} for column '{field.name}'"
            ) from e
    return overwrite_scope(schema, physical_partition(table, schema, values))


def check_columns(table: FileStoreTable, schema: TableSchema, types: T.StructType, kinds: str | None) -> None:
    """Raise :class:`InvalidRequest` for columns that the table does not have, or lacks; before any task runs."""
    given = [n.lower() for n in types.names]
    if kinds is not None:
        if kinds.lower() not in given:
            raise InvalidRequest(f"table '{table.name}': the rows have no column '{kinds}' for their kinds")
        given.remove(kinds.lower())
    known = {f.name.lower() for f in schema.fields}
    extra = next((n for n in given if n not in known), None)
    if extra is not None:
        raise InvalidRequest(
            f"table '{table.name}' has no column '{extra}'; its columns are {', '.join(schema.field_names)}"
        )
    missing = [f for f in schema.fields if f.name.lower() not in given]
    needed = next((f.name for f in missing if not f.type.nullable and f.default_value is None), None)
    if needed is not None:
        raise InvalidRequest(f"table '{table.name}': the rows lack column '{needed}', which is NOT NULL")


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

    def streamReader(self, schema: T.StructType) -> DataSourceStreamReader:
        """A reader of the table's changes; of a table or options that cannot be streamed, one that says so."""
        return stream_reader(self.options, schema)

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
        register_functions(spark)
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
