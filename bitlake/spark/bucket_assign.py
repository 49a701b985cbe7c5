"""Buckets of rows that only an assigner can tell: dynamic buckets, and keys that are unique over partitions.

Rows are shuffled so that equal keys meet in one task, whose worker knows what is there already
(:mod:`bitlake.table.lsm.hash_buckets`, :mod:`bitlake.table.lsm.cross_partition`).  Within a task rows are sorted first:
a task that runs twice must give a key the same bucket, whatever order the shuffle brings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.functions import arrow_udf

from bitlake.codec.hashing import Int32s
from bitlake.spark.context import EngineContext
from bitlake.spark.key_hash import hash_column, quoted
from bitlake.spark.pickling import dumps, loads
from bitlake.spark.scan import SparkReader
from bitlake.spark.types import spark_type
from bitlake.table.lsm.assign import Assigners
from bitlake.table.lsm.cross_partition import BUCKET, OLD, OLD_BUCKET, Rerouter, partitions_at, row_counts
from bitlake.table.lsm.hash_buckets import DynamicAssigner
from bitlake.table.lsm.model import BucketState
from bitlake.table.lsm.states import LiveBuckets, Slot, hash_buckets
from bitlake.table.merge.spec import VALUE_KIND
from bitlake.table.read import BUCKET as BUCKET_COLUMN
from bitlake.table.state import TableState
from bitlake.table.table import Table
from bitlake.table.write import group_codes

KEY_HASH = "__bitlake_hash"
"""The hash of a row's key, as the HASH index holds it."""
_CHANNEL = "__bitlake_channel"


def parallelism(context: EngineContext) -> int:
    """How many tasks a shuffle has."""
    return max(1, int(context.spark.conf.get("spark.sql.shuffle.partitions", "200") or 200))


# --- dynamic buckets --------------------------------------------------------------------------------------------------


def assigned(context: EngineContext, live: LiveBuckets, rows: DataFrame) -> DataFrame:
    """Rows with :data:`BUCKET` and :data:`KEY_HASH`; for tables of dynamic buckets."""
    schema = live.context.schema
    how = Assigners.of(schema, parallelism(context))
    partition = [quoted(k) for k in schema.partition_keys]
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
    return rows.withColumn(BUCKET, udf(F.col(_CHANNEL), F.col(KEY_HASH), *partition)).drop(_CHANNEL)


@dataclass(frozen=True, slots=True)
class AssignJob:
    """What a task must know to give rows their buckets."""

    live: LiveBuckets
    how: Assigners

    def run(self, batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        """The buckets of batches of (channel, key hash, partition columns …)."""
        context, store = self.live.context, self.live.state.store
        schema = context.schema
        names = schema.partition_keys
        states = hash_buckets(self.live.state) if self.live.later else self.live.states
        assigners: dict[int, DynamicAssigner] = {}
        for channels, hashed, *columns in batches:
            numbers: Int32s = channels.to_numpy()
            hashes: Int32s = hashed.to_numpy()
            out = np.empty(len(hashes), np.int32)
            rows = pa.table([pa.array(numbers), *columns], names=[_CHANNEL, *names])
            codes = group_codes(rows, schema.partition_fields, numbers)
            order = np.argsort(codes, kind="stable")
            cuts = np.flatnonzero(np.diff(codes[order])) + 1
            named = partitions_at(schema, rows, order[np.concatenate(([0], cuts))] if len(order) else order)
            for chosen, partition in zip(np.split(order, cuts) if len(order) else (), named, strict=True):
                channel = int(numbers[chosen[0]])
                assigner = assigners.get(channel)
                if assigner is None:
                    made = DynamicAssigner(context, store, states, self.how, channel)
                    assigner = assigners[channel] = made
                # Where the partition's assigners begin, from any of its rows: Spark's hash of it chose the channel.
                own = abs(int(np.fmod(np.int64(hashes[chosen[0]]), self.how.assigners)))
                start = (channel - own) % self.how.channels
                out[chosen] = assigner.assign(partition, hashes[chosen], start)
            yield pa.array(out)


# --- keys that are unique over partitions -----------------------------------------------------------------------------


def rerouted(
    context: EngineContext,
    table: Table,
    state: TableState,
    states: Mapping[Slot, BucketState],
    rows: DataFrame,
    arrival: str,
) -> DataFrame:
    """Rows, and deletes of their old places, with :data:`BUCKET`; for keys that are unique over partitions.

    The table's live keys are read with their places (their columns only) and joined to the rows.
    """
    schema = state.schema
    how = Assigners.of(schema, parallelism(context))
    keys = list(schema.primary_keys)
    if VALUE_KIND not in rows.columns:
        rows = rows.withColumn(VALUE_KIND, F.lit(0).cast("tinyint"))
    if states:
        wanted = [*dict.fromkeys([*keys, *schema.partition_keys]), BUCKET_COLUMN]
        scan = table.scan_of(state).with_level_0().select(wanted)
        live = SparkReader(context.spark, state.store).frame(scan)
        old = live.select(
            *[quoted(k) for k in keys],
            *[quoted(p).alias(OLD + p) for p in schema.partition_keys],
            quoted(BUCKET_COLUMN).alias(OLD_BUCKET),
        )
        rows = rows.join(old, keys, "left")
    else:
        for p in schema.partition_keys:
            rows = rows.withColumn(OLD + p, F.lit(None).cast(spark_type(schema.field(p).type)))
        rows = rows.withColumn(OLD_BUCKET, F.lit(None).cast("int"))
    hashed = hash_column([schema.field(k) for k in keys])
    rows = rows.withColumn(_CHANNEL, F.abs(hashed.cast("bigint") % F.lit(how.assigners)).cast("int"))
    rows = rows.repartitionById(how.assigners, F.col(_CHANNEL))
    rows = rows.sortWithinPartitions(*[quoted(k) for k in keys], arrival)
    places = [OLD_BUCKET, *[OLD + p for p in schema.partition_keys]]
    rows = rows.select(*[quoted(c) for c in (*schema.field_names, VALUE_KIND, arrival, *places, _CHANNEL)])
    call = dumps((schema, how, row_counts(states)))

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema, how, counts = loads(call)
        rerouter: Rerouter | None = None
        for batch in batches:
            part = pa.Table.from_batches([batch])
            if not part.num_rows:
                continue
            if rerouter is None:
                rerouter = Rerouter(schema, how, counts, part.column(_CHANNEL)[0].as_py())
            done = rerouter.add(part.drop_columns([_CHANNEL]))
            if done is not None:
                yield from done.to_batches()
        rest = None if rerouter is None else rerouter.finish()
        if rest is not None:
            yield from rest.to_batches()

    out = [f for f in rows.schema.fields if f.name not in (*places, _CHANNEL)]
    return rows.mapInArrow(work, T.StructType([*out, T.StructField(BUCKET, T.IntegerType())]))
