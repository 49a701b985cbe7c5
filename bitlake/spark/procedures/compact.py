"""``CALL sys.compact`` and ``sys.rescale``: compaction, sort compaction, and a new number of buckets.

``sys.compact`` takes Paimon's parameters.  It compacts the buckets of a primary-key table, or small files and deleted
rows of an append table, or sorts all rows.  The work runs on the executors, bucket by bucket and group by group;
options of the call hold for it alone.

Sort compaction orders an append table by columns, or along a curve through several (:mod:`bitlake.write.z_order`).
Spark sorts and writes; the new files replace the old ones in one COMPACT snapshot.  Rows that others append meanwhile
stay as they are; if others replaced a file or deleted rows of it, nothing changes and the compaction runs again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import types as T
from pyspark.sql.pandas.functions import arrow_udf

from bitlake import _clock
from bitlake.errors import InvalidRequest
from bitlake.expressions.sql_text import quote, quoted
from bitlake.file_store_table import FileStoreTable
from bitlake.mergetree import dml
from bitlake.mergetree.rescale import rescale, rescale_partitions
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import FileSource, ManifestEntry
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import Snapshot
from bitlake.scan.scan import TableScan
from bitlake.snapshot.state import TableState
from bitlake.spark.context import EngineContext
from bitlake.spark.errors import spark_errors
from bitlake.spark.procedures.procedure import OPTIONS, PROCEDURES, TABLE, Arguments, Parameter, procedure
from bitlake.spark.read.scan import SparkReader
from bitlake.spark.runner import SparkRunner
from bitlake.spark.write.append import SparkWriter, quoted_columns, write_frame
from bitlake.spark.write.primary_key import place_postponed, write_changes
from bitlake.types import AtomicType, Root
from bitlake.write.append_compaction import commit_replacement, compact_append
from bitlake.write.append_dml import retrying
from bitlake.write.commit_plan import Overwrite
from bitlake.write.data_file_writer import target_file_size
from bitlake.write.z_order import bits_for, bounds_of, hilbert, ranks, zorder


@procedure(
    TABLE,
    Parameter("partitions", False, "partitions, as 'a=1,b=2;a=3': commas are AND, semicolons OR"),
    Parameter("compact_strategy", False, "'full' (the default): everything; 'minor': what is due"),
    Parameter("order_strategy", False, "'order', 'zorder', 'hilbert' or 'none'"),
    Parameter("order_by", False, "columns to sort by, between commas"),
    Parameter("where", False, "a condition on partition columns, instead of partitions"),
    OPTIONS,
    Parameter("partition_idle_time", False, "only partitions without a new file for this long, as '1 h'"),
    Parameter("buckets", False, "only these fixed buckets, as '0,2-4'"),
)
def _compact(a: Arguments) -> None:
    """Compact a table's buckets or its small files, or sort its rows."""
    compact(a, a.table())


def compact(a: Arguments, table: FileStoreTable) -> None:
    """Run the procedure on a table with the other arguments."""
    context = a.context
    given = {p.name: (a.text(p.name) or "").strip() or None for p in PROCEDURES["compact"].parameters}
    full = _word("compact_strategy", given["compact_strategy"] or "full", ("full", "minor")) == "full"
    strategy = _word("order_strategy", given["order_strategy"] or "none", ("none", *STRATEGIES))
    where, idle, buckets = (
        given["where"],
        given["partition_idle_time"] and a.duration("partition_idle_time"),
        given["buckets"],
    )
    if given["partitions"]:
        if where:
            raise InvalidRequest("sys.compact takes either 'partitions' or 'where', not both")
        where = partition_condition(given["partitions"])
    if (strategy == "none") != (not given["order_by"]):
        raise InvalidRequest("sys.compact: 'order_by' goes with the 'order_strategy' order, zorder or hilbert")
    if strategy != "none" and (idle or buckets):
        raise InvalidRequest("sys.compact: 'partition_idle_time' and 'buckets' do not go with an 'order_strategy'")
    table = _Overridden(table, a.options())

    def step(state: TableState) -> None:
        table.check_writable(state, keyed=True)
        entries = table.partition_files(state, where)
        if strategy != "none":
            columns = order_columns(table.name, state.schema, given["order_by"] or "")
            if state.schema.primary_keys or state.schema.num_buckets != -1:
                raise InvalidRequest(
                    f"table '{table.name}' keeps its rows by bucket; only append tables without buckets can be sorted"
                )
            sort_compact(context, table, state, entries, table.scan_of(state, where), strategy, columns)
            return
        if idle:
            entries = _idle(entries, _clock.local_ms() - round(idle.total_seconds() * 1000))
        if buckets:
            wanted = _numbers(table.name, state.schema, buckets)
            entries = [e for e in entries if e.bucket in wanted]
        if state.schema.primary_keys:
            dml.compact(table, state, entries, full, partial(place_postponed, context))
        else:
            user = table.publisher(state).user
            compact_append(state, entries, table.state, SparkRunner(context.spark), user, full)

    def expiring(state: TableState) -> None:
        step(state)
        table.expire_due(state)

    retrying(table.state, expiring)


class _Overridden(FileStoreTable):
    """A table with some options changed, for one call; they are not stored."""

    def __init__(self, table: FileStoreTable, options: Mapping[str, str]) -> None:
        self.__dict__.update(table.__dict__)
        self._extra = options
        if opt.BUCKET.name in self._extra:
            raise InvalidRequest("a compaction cannot change 'bucket'; INSERT OVERWRITE the table with its own rows")
        stored = super().state().schema.options
        opt.check_alter(stored, {**stored, **self._extra}, True)

    def state(self) -> TableState:
        """The table now, with the options changed."""
        found = super().state()
        return replace(found, schema=found.schema.with_options(self._extra))


def _word(name: str, text: str, allowed: Sequence[str]) -> str:
    if text.lower() not in allowed:
        raise InvalidRequest(f"sys.compact: '{name}' is one of {', '.join(allowed)}, not '{text}'")
    return text.lower()


def partition_condition(text: str) -> str:
    """``a=1,b=2;a=3`` as a condition: commas are AND, semicolons OR."""
    either = []
    for partition in filter(None, (p.strip() for p in text.split(";"))):
        both = []
        for pair in partition.split(","):
            name, sign, value = pair.partition("=")
            if not sign:
                raise InvalidRequest(f"'partitions' are name=value, and '{pair.strip()}' is not")
            value = quote(value.strip().strip("'\""))
            both.append(f"{quoted(name.strip())} = {value}")
        either.append(f"({' AND '.join(both)})")
    return " OR ".join(either)


def _idle(entries: Sequence[ManifestEntry], before: int) -> list[ManifestEntry]:
    """The files of partitions that got none since a time."""
    last: dict[bytes, int] = {}
    for e in entries:
        last[e.partition] = max(last.get(e.partition, 0), e.file.creation_time or 0)
    return [e for e in entries if last[e.partition] <= before]


def _numbers(table: str, schema: TableSchema, text: str) -> set[int]:
    """``0,2-4`` as bucket numbers."""
    total = schema.num_buckets
    if total <= 0:
        raise InvalidRequest(f"table '{table}' has no fixed buckets to choose from")
    out: set[int] = set()
    for part in text.split(","):
        low, sign, high = part.strip().partition("-")
        try:
            first = int(low)
            last = int(high) if sign else first
        except ValueError as e:
            raise InvalidRequest(f"sys.compact: 'buckets' are numbers and ranges such as 0,2-4, not '{text}'") from e
        if not 0 <= first <= last < total:
            raise InvalidRequest(f"sys.compact: table '{table}' has buckets 0 to {total - 1}, not '{part.strip()}'")
        out.update(range(first, last + 1))
    return out


STRATEGIES = ("order", "zorder", "hilbert")
_SAMPLE_ROWS = 100_000
"""Enough to cut a column into thousands of even shares; they come to the driver."""


def order_columns(table: str, schema: TableSchema, text: str) -> list[str]:
    """The columns of ``order_by``; raises :class:`InvalidRequest` for those that rows cannot be sorted by."""
    out: list[str] = []
    for part in text.split(","):
        field = schema.field(part.strip())
        if field.name in schema.partition_keys:
            raise InvalidRequest(f"table '{table}': sorting by partition column '{field.name}' would change nothing")
        if not isinstance(field.type, AtomicType) or field.type.root is Root.VARIANT:
            raise InvalidRequest(f"table '{table}': rows cannot be sorted by '{field.name}', which is {field.type}")
        if field.name in out:
            raise InvalidRequest(f"table '{table}': '{field.name}' is named twice in order_by")
        out.append(field.name)
    return out


def sort_compact(
    context: EngineContext,
    table: FileStoreTable,
    state: TableState,
    entries: Sequence[ManifestEntry],
    scan: TableScan,
    strategy: str,
    columns: Sequence[str],
) -> Snapshot | None:
    """Rewrite the rows of files in another order; ``scan`` finds just the rows of ``entries``.

    Raises :class:`bitlake.errors.CommitConflict` if another writer changed them meanwhile.
    """
    if not entries:
        return None
    frame = SparkReader(context.spark, state.store).frame(scan.select(state.schema.field_names))
    order = _order(table.name, frame, strategy, columns, sum(e.file.row_count for e in entries))
    files = max(1, math.ceil(sum(e.file.file_size for e in entries) / target_file_size(state.schema)))
    made = SparkWriter(context.spark, state.store).write(state, frame, order=order, tasks=files)
    made = [replace(e, file=replace(e.file, file_source=FileSource.COMPACT)) for e in made]
    return commit_replacement(state, entries, made, table.publisher(state).user)


def _order(table: str, frame: DataFrame, strategy: str, columns: Sequence[str], rows: int) -> list[Column]:
    if strategy == "order":
        return [quoted_columns(c).asc_nulls_first() for c in columns]
    bits = bits_for(len(columns))
    chosen = frame.select(*[quoted_columns(c) for c in columns])
    with spark_errors(f"sampling table '{table}'"):
        share = min(1.0, _SAMPLE_ROWS / max(1, rows))
        sample = (chosen if share == 1.0 else chosen.sample(fraction=share, seed=1)).limit(2 * _SAMPLE_ROWS).toArrow()
    bounds = [bounds_of(sample.column(c).combine_chunks(), bits) for c in columns]
    curve = zorder if strategy == "zorder" else hilbert

    def place(*values: pa.Array) -> pa.Array:
        found = [ranks(v, b.cast(v.type), bits) for v, b in zip(values, bounds, strict=True)]
        return pa.array(curve(found, bits))

    call: Any = arrow_udf(place, T.LongType())  # type: ignore[call-overload]
    made: Column = call(*[quoted_columns(c) for c in columns])
    return [made.asc()]


@procedure(
    TABLE,
    Parameter("bucket_num", False, "how many buckets; without it, as many as the option says by now"),
    Parameter("partitions", False, "only these partitions, as 'a=1,b=2;a=3,b=4'; the option stays"),
    Parameter("where", False, "a condition on partition columns, instead of partitions"),
)
def _rescale(a: Arguments) -> None:
    """Spread a table's rows over another number of fixed buckets."""
    table, wanted, where = a.table(), a.integer("bucket_num"), a.text("where")
    if a.get("partitions"):
        if where:
            raise InvalidRequest("sys.rescale takes either 'partitions' or 'where', not both")
        where = partition_condition(a.needed("partitions"))

    def rewrite(state: TableState, overwrite: Overwrite) -> object:
        frame = table.scan_of(state, where).with_level_0().to_spark()
        if state.schema.primary_keys:
            changes = write_changes(a.context, table, state, frame, fresh=True)
            return table.publisher(state).publish(state, changes, operation="OVERWRITE", overwrite=overwrite)
        files = write_frame(a.context, table, state, frame)
        return table.commit_files(state, files, "OVERWRITE", overwrite)

    number = table.schema.num_buckets if wanted is None else wanted
    if where is None:
        rescale(table, number, rewrite)
    else:
        rescale_partitions(table, number, where, rewrite)
