"""Write a DataFrame into a primary-key table: Spark groups rows by bucket and sorts them.

Python workers write the files, run pending compactions, and report to the driver what to commit.

Path of a row: query → its bucket (:mod:`bitlake.spark.write.append`, or an assigner) → one shuffle by (partition,
bucket) → a sort by key, ``sequence.field``, arrival, which spills → Arrow batches →
:class:`bitlake.mergetree.writer.BucketWriter`. Memory holds a batch of a bucket at a time; only descriptions
of files
come back to the driver.  In a table of many files each task looks up the entries of its own partitions, or of its own
buckets if the table lacks partitions; the driver learns from the results which are written, and makes objects of no
others' entries.
``docs/decisions/0009-primary-key-writes.md`` has the measurements.

Dynamic buckets, and keys that are unique over partitions, need an assigner.  Rows are shuffled so that equal keys
meet in one task, whose worker knows the existing keys (:mod:`bitlake.mergetree.bucket_assignment`,
:mod:`bitlake.mergetree.cross_partition`).  Rows are sorted within a task first: a task that runs twice must give a
key the same bucket, whatever order the shuffle brings.

Postponed rows (``bucket`` = -2) get their buckets on the executors: read by file, then shuffled and sorted as others.
The driver sees descriptions of files only.  Where Spark lacks one of the table's types (TIME, for example), the
driver streams the rows, a write buffer at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.functions import arrow_udf

from bitlake.codec.hashing import Int32s
from bitlake.file_store_table import FileStoreTable
from bitlake.fileindex.registry import warn_of_unwritten
from bitlake.formats.conform import conform
from bitlake.mergetree import cross_partition, dml
from bitlake.mergetree import writer as upsert
from bitlake.mergetree.bucket import BucketChange, LiveBuckets, hash_index_states, merge_tree_context
from bitlake.mergetree.bucket_assignment import AssignerLayout, DynamicBucketAssigner, hash_index_change
from bitlake.mergetree.commit import Publisher, discard_changes
from bitlake.mergetree.key_value_file import KeyValueWriter
from bitlake.mergetree.postpone_bucket import (
    fixed_buckets,
    postpone_writer,
    read_postponed,
    schema_with_buckets,
    without_sequence,
)
from bitlake.mergetree.writer import BucketWriter
from bitlake.metadata.manifest import ManifestEntry, Slot
from bitlake.metadata.paths import POSTPONE_BUCKET
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import Snapshot
from bitlake.scan.reader import BUCKET as BUCKET_COLUMN
from bitlake.scan.reader import DRIVER_BYTES
from bitlake.schema.merge_spec import VALUE_KIND, MergeSpec, is_cross_partition, with_kinds
from bitlake.snapshot.partitions import entries_of
from bitlake.snapshot.state import TableState
from bitlake.spark.context import EngineContext
from bitlake.spark.errors import spark_errors
from bitlake.spark.read.scan import SparkReader
from bitlake.spark.runner import dumps, loads, read_packed
from bitlake.spark.types import has_counterpart, nullable, spark_type
from bitlake.spark.write.append import (
    attempt_tasks,
    bucket_column,
    differing_bucket_column,
    hash_column,
    is_local,
    map_columns,
    quoted_columns,
    tagged,
)
from bitlake.spark.write.insert_cast import has_not_null_inside, store_columns
from bitlake.types import AtomicType, arrow_schema
from bitlake.types.datatypes import FLOATS
from bitlake.write.writer import group_codes, rebatched

ARRIVAL = "__bitlake_arrival"
_MOST_ROWS = 1 << 19
"""Rows of one task that may come to the driver."""
_TOO_MANY = "bitlake: these rows are too many for the driver"
_BATCH_ROWS = 1 << 16
"""Rows handed to a writer at a time: Spark's own batches of 10,000 make the work around them visible."""


def write_changes(
    context: EngineContext,
    table: FileStoreTable,
    state: TableState,
    frame: DataFrame,
    kind_column: str | None = None,
    *,
    fresh: bool = False,
    compact: bool | None = None,
) -> list[BucketChange]:
    """Write rows into the buckets of a primary-key table; committing what is returned is the caller's.

    ``frame`` has the table's columns, named and ordered as in the schema, and may have ``kind_column`` (0 to 3 for +I,
    -U, +U, -D).  ``fresh``: as if the table were empty, for an overwrite.  ``compact`` false leaves level 0
    as it is; None: unless the table is ``write-only``.  On an error it tries to delete all files that it wrote.
    """
    schema = state.schema
    rows = frame if kind_column is None else frame.drop(kind_column)
    columns = store_columns(table.name, rows, schema.fields)
    if kind_column is not None:
        columns.append(quoted_columns(kind_column).cast("tinyint").alias(VALUE_KIND))
    aligned = frame.select(*columns)
    in_driver = not has_not_null_inside(schema.fields) and not is_cross_partition(schema)
    local = _little(context, table.name, frame, aligned) if in_driver else None
    if local is not None:
        batches = upsert.prepare_rows(table.name, schema, [local], None if kind_column is None else VALUE_KIND)
        return upsert.write_changes(state, batches, table.publisher(state).user, fresh=fresh, compact=compact)
    fixed = fixed_buckets(state, parallelism(context))
    counts: Mapping[bytes, int] = {}
    if fixed is not None:
        state, counts, compact = fixed.state, fixed.counts, False
        schema = state.schema
    live = LiveBuckets.of(state, fresh=fresh, counts=counts)
    job = WriteJob(live, table.publisher(state).user, compact)
    rows = aligned.withColumn(ARRIVAL, F.monotonically_increasing_id())
    with spark_errors(f"writing to table '{table.name}'"), tagged(context.spark):
        if is_cross_partition(schema):
            stored = {} if fresh else cross_partition.stored_row_counts(state)
            rows = rerouted(context, table, state, stored, rows)
        elif schema.num_buckets == -1:
            rows = assigned(context, job.live, rows)
            job = replace(job, hashed=True)
        else:
            bucket = differing_bucket_column(schema, counts) if counts else bucket_column(schema)
            rows = rows.withColumn(cross_partition.NEW_BUCKET, F.lit(POSTPONE_BUCKET) if bucket is None else bucket)
        return _written(state, job, *_brought_together(schema, rows, parallelism(context)))


def write_placed(context: EngineContext, state: TableState, rows: DataFrame, user: str) -> list[BucketChange]:
    """Write rows of a table of fixed buckets into level 0; committing what is returned is the caller's.

    ``rows`` has the columns as they are stored, ``_VALUE_KIND`` as it is to be, and :data:`ARRIVAL`.
    """
    job = WriteJob(LiveBuckets.of(state), user, False, settled=True)
    with spark_errors(f"writing to table '{state.name}'"), tagged(context.spark):
        bucket = bucket_column(state.schema)
        assert bucket is not None
        placed = rows.withColumn(cross_partition.NEW_BUCKET, bucket)
        return _written(state, job, *_brought_together(state.schema, placed, parallelism(context)))


def _little(context: EngineContext, table: str, frame: DataFrame, aligned: DataFrame) -> pa.Table | None:
    """The rows, if they are constants or Spark thinks that they are few: no tasks of Python workers for these.

    At most :data:`bitlake.scan.reader.DRIVER_BYTES` come through the driver, as elsewhere.  Spark's estimate may be
    wrong, so tasks that find more rows than that stop the job.  Measured on 200,000 rows (14 MB) with deletion
    vectors, compaction included: 1.9 s of processor time, and 2.4 s through a shuffle and Python workers.
    """
    with spark_errors(f"writing to table '{table}'"):
        if is_local(table, frame):
            return aligned.toArrow()
        plan = getattr(frame, "_jdf", None)
        if plan is None or int(str(plan.queryExecution().optimizedPlan().stats().sizeInBytes())) > DRIVER_BYTES:
            return None
        number = F.monotonically_increasing_id().bitwiseAND(F.lit((1 << 33) - 1))
        enough = F.when(number < _MOST_ROWS, F.lit(True)).otherwise(F.raise_error(F.lit(_TOO_MANY)).cast("boolean"))
        try:
            with tagged(context.spark):
                return aligned.where(enough).toArrow()
        except PySparkException as e:
            if _TOO_MANY not in str(e):
                raise
            return None


def _brought_together(schema: TableSchema, rows: DataFrame, most: int) -> tuple[DataFrame, bool]:
    """Rows of a bucket in one task, sorted; and whether a task gets several buckets."""
    parts = [quoted_columns(k) for k in schema.partition_keys]
    total = schema.num_buckets
    tasks = min(total, most) if total > 0 else 1 if total == POSTPONE_BUCKET else most
    if parts:
        # By columns, without a number: small shares are then put into one task.
        rows = rows.repartition(*parts, F.col(cross_partition.NEW_BUCKET))
    else:
        rows = rows.repartitionById(tasks, F.pmod(F.col(cross_partition.NEW_BUCKET), F.lit(tasks)))
    # Where a task has one bucket, its number need not be compared before the keys.
    grouped = bool(parts) or total not in (tasks, POSTPONE_BUCKET)
    before = [*parts, F.col(cross_partition.NEW_BUCKET)] if grouped else []
    return rows.sortWithinPartitions(*before, *_order(schema), F.col(ARRIVAL)), grouped


def _written(state: TableState, job: WriteJob, rows: DataFrame, grouped: bool) -> list[BucketChange]:
    sent = [c for c in (*state.schema.field_names, VALUE_KIND, cross_partition.NEW_BUCKET) if c in rows.columns]
    call = dumps(replace(job, grouped=grouped))
    results = attempt_tasks(rows, [*sent, KEY_HASH] if job.hashed else sent, _attempt, call)
    changes = [change for _, of_task in results for change in of_task]
    error = next((e for e, _ in results if e is not None), None)
    if error is not None:
        discard_changes(state, changes)
        raise error
    warn_of_unwritten(state.paths.root, (p for c in changes for p in c.problems))
    return changes


def _order(schema: TableSchema) -> list[Column]:
    """Key order, then the order in which rows of a key merge; postponed rows stay in the order they came."""
    if schema.num_buckets == POSTPONE_BUCKET:
        return []
    out = []
    for name in schema.trimmed_primary_keys:
        kind = schema.field(name).type
        out.append(quoted_columns(name).asc_nulls_first())
        if isinstance(kind, AtomicType) and kind.root in FLOATS:
            # 0.0 and -0.0 are one value to Spark's order and two keys to Paimon; as text, the minus comes first.
            out.append(quoted_columns(name).cast("string"))
    spec = MergeSpec.of(schema)
    for name in spec.sequence:
        out.append(
            quoted_columns(name).desc_nulls_first() if spec.descending else quoted_columns(name).asc_nulls_first()
        )
    return out


# --- on the executors -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WriteJob:
    """What a task must know to write its buckets; ``live`` grows as it looks at partitions or buckets.

    ``grouped``: rows of several partitions or buckets come, one after the other, and not just of one; ``hashed``: rows
    bring the hash of their key; ``settled``: their kinds stay as they are, whatever the table's options make of kinds.
    """

    live: LiveBuckets
    user: str
    compact: bool | None
    grouped: bool = False
    hashed: bool = False
    settled: bool = False


def _attempt(call: bytes, batches: Iterator[pa.RecordBatch]) -> bytes:
    """(an error or None, the changes made); an error keeps its own type on the way to the driver."""
    job: WriteJob = loads(call)
    task = _Task(job)
    try:
        for rows in rebatched(batches, _BATCH_ROWS):
            task.write(rows)
        return dumps((None, task.finish()))
    except Exception as e:  # noqa: BLE001 - raised by the driver
        task.abort()
        return dumps((e, []))
    except BaseException:
        task.abort()
        raise


@dataclass(slots=True)
class _Task:
    """Writes the rows of one task, bucket by bucket.  Mutable."""

    job: WriteJob
    _slot: Slot | None = None
    _writer: BucketWriter | None = None
    _postponed: KeyValueWriter | None = None
    _hashes: list[Int32s] = field(default_factory=list)
    _done: list[BucketChange] = field(default_factory=list)

    def write(self, rows: pa.Table) -> None:
        for slot, part in self._groups(rows):
            if slot != self._slot:
                self._close()
                self._open(slot)
            schema, table = self.job.live.context.schema, self.job.live.context.table
            if self.job.hashed:
                self._hashes.append(part.column(KEY_HASH).to_numpy())
            kinds = part.column(VALUE_KIND) if VALUE_KIND in part.column_names else None
            fitted = conform(part.select(schema.field_names), schema.fields, arrow_schema(schema.fields))
            if self.job.settled:
                made = fitted.append_column(VALUE_KIND, kinds)
            else:
                made = with_kinds(table, schema, fitted, kinds)
            if self._writer is not None:
                self._writer.write(made)
            else:
                assert self._postponed is not None
                self._postponed.write(without_sequence(made))

    def finish(self) -> list[BucketChange]:
        self._close()
        return self._done

    def abort(self) -> None:
        if self._writer is not None:
            self._writer.abort()
        if self._postponed is not None:
            self._postponed.abort()
        discard_changes(self.job.live.state, self._done)

    def _open(self, slot: Slot) -> None:
        job, live = self.job, self.job.live
        self._slot = slot
        if slot[1] == POSTPONE_BUCKET:
            attempt = TaskContext.get()
            number = 0 if attempt is None else attempt.taskAttemptId()
            self._postponed = postpone_writer(live.context, live.state.store, slot[0], job.user, int(number))
        else:
            self._writer = BucketWriter(live.context, live.state.store, live[slot], sorted=True)

    def _close(self) -> None:
        job, live, slot = self.job, self.job.live, self._slot
        if self._writer is not None and slot is not None:
            change = self._writer.finish(job.compact)
            self._writer = None
            self._done.append(change)
            if self._hashes:
                hashes = np.concatenate(self._hashes)
                self._hashes = []
                made = hash_index_change(live.context, live.state.store, live[slot], hashes)
                if made is not None:
                    self._done[-1] = replace(change, index=(*change.index, made))
        if self._postponed is not None and slot is not None:
            entries = tuple(self._postponed.finish())
            self._postponed = None
            self._done.append(BucketChange(*slot, entries, rows=sum(e.file.row_count for e in entries)))

    def _groups(self, rows: pa.Table) -> Iterator[tuple[Slot, pa.Table]]:
        """Runs of rows of one bucket, in the order they come."""
        schema = self.job.live.context.schema
        buckets = rows.column(cross_partition.NEW_BUCKET).to_numpy()
        if self.job.grouped:
            codes = group_codes(rows, schema.partition_fields, buckets)
            starts = np.flatnonzero(np.concatenate(([True], codes[1:] != codes[:-1])))
        else:
            starts = np.zeros(1, np.int64)
        ends = [*starts[1:].tolist(), rows.num_rows]
        partitions = cross_partition.partitions_of_rows(schema, rows, starts)
        slots = list(zip(partitions, buckets[starts].tolist(), strict=True))
        self.job.live.load(slots)
        for slot, start, end in zip(slots, starts.tolist(), ends, strict=True):
            yield slot, rows.slice(start, end - start)


KEY_HASH = "__bitlake_hash"
"""The hash of a row's key, as the HASH index holds it."""
_CHANNEL = "__bitlake_channel"


def parallelism(context: EngineContext) -> int:
    """Return the number of tasks of a shuffle."""
    return max(1, int(context.spark.conf.get("spark.sql.shuffle.partitions", "200") or 200))


# --- dynamic buckets --------------------------------------------------------------------------------------------------


def assigned(context: EngineContext, live: LiveBuckets, rows: DataFrame) -> DataFrame:
    """Rows with :data:`NEW_BUCKET` and :data:`KEY_HASH`; for tables of dynamic buckets."""
    schema = live.context.schema
    how = AssignerLayout.of(schema, parallelism(context))
    partition = [quoted_columns(k) for k in schema.partition_keys]
    start = F.pmod(F.hash(*partition), F.lit(how.channels)) if partition else F.lit(0)
    rows = rows.withColumn(KEY_HASH, hash_column([schema.field(k) for k in schema.trimmed_primary_keys]))
    own = F.abs(F.col(KEY_HASH).cast("bigint") % F.lit(how.assigners))
    rows = rows.withColumn(_CHANNEL, ((start + own) % F.lit(how.channels)).cast("int"))
    rows = rows.repartitionById(how.channels, F.col(_CHANNEL)).sortWithinPartitions(KEY_HASH)
    call = dumps(AssignJob(live, how))

    def buckets(batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        job: AssignJob = loads(call)
        yield from job.run(batches)

    udf: Any = arrow_udf(buckets, T.IntegerType())  # type: ignore[call-overload]
    return rows.withColumn(cross_partition.NEW_BUCKET, udf(F.col(_CHANNEL), F.col(KEY_HASH), *partition)).drop(_CHANNEL)


@dataclass(frozen=True, slots=True)
class AssignJob:
    """What a task must know to give rows their buckets."""

    live: LiveBuckets
    how: AssignerLayout

    def run(self, batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        """The buckets of batches of (channel, key hash, partition columns …)."""
        context, store = self.live.context, self.live.state.store
        schema = context.schema
        names = schema.partition_keys
        states = hash_index_states(self.live.state) if self.live.lazy else self.live.states
        assigners: dict[int, DynamicBucketAssigner] = {}
        for channels, hashed, *columns in batches:
            numbers: Int32s = channels.to_numpy()
            hashes: Int32s = hashed.to_numpy()
            out = np.empty(len(hashes), np.int32)
            rows = pa.table([pa.array(numbers), *columns], names=[_CHANNEL, *names])
            codes = group_codes(rows, schema.partition_fields, numbers)
            order = np.argsort(codes, kind="stable")
            cuts = np.flatnonzero(np.diff(codes[order])) + 1
            named = cross_partition.partitions_of_rows(
                schema, rows, order[np.concatenate(([0], cuts))] if len(order) else order
            )
            for chosen, partition in zip(np.split(order, cuts) if len(order) else (), named, strict=True):
                channel = int(numbers[chosen[0]])
                assigner = assigners.get(channel)
                if assigner is None:
                    made = DynamicBucketAssigner(context, store, states, self.how, channel)
                    assigner = assigners[channel] = made
                # Where the partition's assigners begin, from any of its rows: Spark's hash of it chose the channel.
                own = abs(int(np.fmod(np.int64(hashes[chosen[0]]), self.how.assigners)))
                start = (channel - own) % self.how.channels
                out[chosen] = assigner.assign(partition, hashes[chosen], start)
            yield pa.array(out)


# --- keys that are unique over partitions -----------------------------------------------------------------------------


def rerouted(
    context: EngineContext,
    table: FileStoreTable,
    state: TableState,
    stored: Mapping[bytes, Mapping[int, int]],
    rows: DataFrame,
) -> DataFrame:
    """Rows, and deletes of their old places, with :data:`NEW_BUCKET`; for keys that are unique over partitions.

    The table's live keys are read with their places (their columns only) and joined to the rows.  ``stored`` is
    :func:`bitlake.mergetree.cross_partition.stored_row_counts`; empty: the table has no rows to keep.
    """
    schema = state.schema
    how = AssignerLayout.of(schema, parallelism(context))
    keys = list(schema.primary_keys)
    if VALUE_KIND not in rows.columns:
        rows = rows.withColumn(VALUE_KIND, F.lit(0).cast("tinyint"))
    if stored:
        wanted = [*dict.fromkeys([*keys, *schema.partition_keys]), BUCKET_COLUMN]
        scan = table.scan_of(state).with_level_0().select(wanted)
        live = SparkReader(context.spark, state.store).frame(scan)
        old = live.select(
            *[quoted_columns(k) for k in keys],
            *[quoted_columns(p).alias(cross_partition.OLD_PREFIX + p) for p in schema.partition_keys],
            quoted_columns(BUCKET_COLUMN).alias(cross_partition.OLD_BUCKET),
        )
        rows = rows.join(old, keys, "left")
    else:
        for p in schema.partition_keys:
            rows = rows.withColumn(cross_partition.OLD_PREFIX + p, F.lit(None).cast(spark_type(schema.field(p).type)))
        rows = rows.withColumn(cross_partition.OLD_BUCKET, F.lit(None).cast("int"))
    hashed = hash_column([schema.field(k) for k in keys])
    rows = rows.withColumn(_CHANNEL, F.abs(hashed.cast("bigint") % F.lit(how.assigners)).cast("int"))
    rows = rows.repartitionById(how.assigners, F.col(_CHANNEL))
    rows = rows.sortWithinPartitions(*[quoted_columns(k) for k in keys], ARRIVAL)
    places = [cross_partition.OLD_BUCKET, *[cross_partition.OLD_PREFIX + p for p in schema.partition_keys]]
    columns = (*schema.field_names, VALUE_KIND, ARRIVAL, *places, _CHANNEL)
    rows = rows.select(*[quoted_columns(c) for c in columns])
    call = dumps((schema, how, stored))

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema, how, counts = loads(call)
        rerouter: cross_partition.Rerouter | None = None
        for batch in batches:
            part = pa.Table.from_batches([batch])
            if not part.num_rows:
                continue
            if rerouter is None:
                rerouter = cross_partition.Rerouter(schema, how, counts, part.column(_CHANNEL)[0].as_py())
            done = rerouter.add(part.drop_columns([_CHANNEL]))
            if done is not None:
                yield from done.to_batches()
        rest = None if rerouter is None else rerouter.finish()
        if rest is not None:
            yield from rest.to_batches()

    out = [f for f in rows.schema.fields if f.name not in (*places, _CHANNEL)]
    out.append(T.StructField(cross_partition.NEW_BUCKET, T.IntegerType()))
    return map_columns(rows, columns, work, T.StructType(out))


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
        return dml.place_postponed(publisher, state, waiting)
    live = entries_of(state, waiting)
    counts: dict[int, list[ManifestEntry]] = {}
    for partition, files in waiting.items():
        counts.setdefault(schema_with_buckets(state.schema, partition, files, live).num_buckets, []).extend(files)
    changes: list[BucketChange] = []
    try:
        for count, files in counts.items():
            real = replace(state, schema=state.schema.with_options({"bucket": str(count)}))
            changes += write_placed(context, real, _rows(context, state, files), publisher.user)
    except BaseException:
        discard_changes(state, changes)
        raise
    return publisher.replace_files(state, [e for files in waiting.values() for e in files], changes)


def _rows(context: EngineContext, state: TableState, files: Sequence[ManifestEntry]) -> DataFrame:
    """The rows of files, with their kinds, numbered in order of arrival."""
    bucket_context, store = merge_tree_context(state, files), state.store
    fields = [T.StructField(f.name, nullable(spark_type(f.type)), True) for f in state.schema.fields]
    types = T.StructType([*fields, T.StructField(VALUE_KIND, T.ByteType()), T.StructField(ARRIVAL, T.LongType())])

    def rows_of(number: int, entry: ManifestEntry) -> Iterator[pa.Table]:
        at = number << _FILE_SHIFT
        for rows in read_postponed(bucket_context, store, entry.partition, [entry]):
            arrivals = pa.array(np.arange(at, at + rows.num_rows, dtype=np.int64))
            at += rows.num_rows
            yield rows.append_column(ARRIVAL, arrivals).select(types.names)

    return read_packed(context.spark, files, [e.file.file_size for e in files], types, rows_of)
