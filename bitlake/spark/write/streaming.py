"""Streams into tables of any kind: each micro-batch is written as INSERT would, by bucket and key, and committed once.

The function given to ``foreachBatch`` shuffles rows to their buckets, which a data source cannot ask Spark for
(``docs/decisions/0015-streams.md``).  It may run in another process than the one that started the stream (on Spark
Connect it does), and so carries all that it needs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from bitlake.catalog.catalog import Catalog, Identifier, identifier_exists
from bitlake.engine import SessionState
from bitlake.engine.insert import merging
from bitlake.errors import BitlakeError, CorruptError, InvalidRequest
from bitlake.file_store_table import FileStoreTable
from bitlake.io import open_store
from bitlake.mergetree.commit import publish
from bitlake.schema.evolution import PREFIX
from bitlake.schema.merge_spec import KIND_NAMES
from bitlake.snapshot.state import TableState
from bitlake.spark.context import EngineContext
from bitlake.spark.dml.insert import columns_of_frame
from bitlake.spark.write.append import quoted_columns, write_frame
from bitlake.spark.write.insert_cast import by_name, merged_state, with_defaults
from bitlake.spark.write.primary_key import write_changes
from bitlake.types import DataField
from bitlake.types.datatypes import parse_type
from bitlake.write.append_dml import retrying
from bitlake.write.commit import is_committed
from bitlake.write.frames import is_to_write


@dataclass(frozen=True, slots=True)
class StreamTarget:
    """Where a stream's batches go; picklable if the catalog is.

    ``kinds`` names the column of row kinds (``+I -U +U -D``, or 0 to 3).  ``user`` is the commit user; None: after the
    query, whose id its checkpoint keeps.  ``options`` are ``write.merge-schema`` and what belongs to it.
    """

    catalog: Catalog
    name: Identifier
    checkpoint: str
    kinds: str | None = None
    user: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Write one batch; what ``foreachBatch`` calls."""
        context = EngineContext(self.catalog, frame.sparkSession, SessionState(self.name.database))
        context.begin()
        table = context.session_table(self.name).written_by(self.user or f"spark-{query_id(self.checkpoint)}")
        write_batch(context, table, frame, batch, self)

    def create(
        self, spark: SparkSession, frame: DataFrame, partition_by: Sequence[str], options: Mapping[str, str]
    ) -> bool:
        """Create the table for a stream's rows; returns False if it exists."""
        exists = identifier_exists(self.catalog, self.name)
        if is_to_write(self.name, exists, "append", partition_by, {}) and exists:
            return False
        context = EngineContext(self.catalog, spark, SessionState(self.name.database))
        context.begin()
        columns = columns_of_frame(frame if self.kinds is None else frame.drop(self.kinds))
        return self.catalog.create_table(
            self.name, columns, partition_keys=partition_by, options=options, if_not_exists=True, names=context.names
        )

    def check(self, spark: SparkSession, frame: DataFrame) -> None:
        """Raise before a stream starts for what no batch could be written with."""
        context = EngineContext(self.catalog, spark, SessionState(self.name.database))
        context.begin()
        table = context.session_table(self.name)
        state = table.state()
        table.check_writable(state, keyed=True)
        if self.kinds is not None and not state.schema.primary_keys:
            raise InvalidRequest(f"table '{table.name}' has no primary key: its rows have no kinds")
        if self.kinds is not None and self.kinds not in frame.columns:
            raise InvalidRequest(f"table '{table.name}': the stream has no column '{self.kinds}' for row kinds")
        same = [n for n in state.schema.field_names if self.kinds is not None and context.names.same(self.kinds, n)]
        if same:
            raise InvalidRequest(
                f"table '{table.name}': column '{same[0]}' has the name of the stream's column of row kinds; rename "
                "that one in the stream, and pass its new name as kinds="
            )
        unknown = next((o for o in self.options if not o.startswith(PREFIX)), None)
        if unknown is not None:
            raise InvalidRequest(
                f"table '{table.name}': '{unknown}' is not an option of a streaming write; {PREFIX} is"
            )
        if not merging(context, self.name, table, self.options).on:
            by_name(table.name, frame, self.fields(state), context.names)

    def fields(self, state: TableState) -> list[DataField]:
        """The columns that are taken from a batch: the table's, and that of the kinds."""
        kinds = [] if self.kinds is None else [DataField(-1, self.kinds, parse_type("STRING"))]
        return [*state.schema.fields, *kinds]


def write_batch(
    context: EngineContext, table: FileStoreTable, frame: DataFrame, batch: int, target: StreamTarget
) -> None:
    """Write a batch of the stream whose commit user the table is written by, unless it is there already."""
    user, kinds = table.publisher(table.state()).user, target.kinds
    how = merging(context, target.name, table, target.options)

    def step(state: TableState) -> None:
        state = merged_state(context, table, state, frame if kinds is None else frame.drop(kinds), how)
        if is_committed(state, user, batch):
            return
        named = by_name(table.name, frame, target.fields(state), context.names, fill=how.on)
        named = with_defaults(table.name, named, target.fields(state))
        if not state.schema.primary_keys:
            table.commit_files(state, write_frame(context, table, state, named), "WRITE", None, batch)
            return
        if kinds is not None and isinstance(named.schema[kinds].dataType, T.StringType):
            given, known = quoted_columns(kinds), ", ".join(KIND_NAMES)
            position = F.array_position(F.array(*[F.lit(w) for w in KIND_NAMES]), given) - 1
            message = F.format_string(
                f"table '%s': invalid row kind '%s'; expected one of {known}", F.lit(table.name), given
            )
            code = F.when(position < 0, F.raise_error(message)).otherwise(position)
            named = named.withColumn(kinds, code.cast("tinyint"))
        changes = write_changes(context, table, state, named, kinds)
        publish(table, state, changes, operation="WRITE", identifier=batch)

    retrying(table.state, step)


def query_id(checkpoint: str) -> str:
    """The id of the query that a checkpoint is of: Spark writes it there before the first batch, and keeps it."""
    path = f"{checkpoint.rstrip('/')}/metadata"
    try:
        stored_id = json.loads(open_store(path).read(path))["id"]
    except (BitlakeError, ValueError, KeyError, TypeError) as e:
        if isinstance(e, BitlakeError) and not isinstance(e, CorruptError):
            raise InvalidRequest(
                f"checkpoint '{checkpoint}' cannot be read from here ({e}), to know whose batches they are; "
                "give the stream a commit user of its own"
            ) from e
        raise CorruptError("a checkpoint's metadata is JSON with the query's id", None, path=path) from e
    return str(stored_id)


def start_stream(
    spark: SparkSession,
    target: StreamTarget,
    frame: DataFrame,
    trigger: Mapping[str, Any] | None,
    query: str | None,
    partition_by: Sequence[str] = (),
) -> Any:
    """Start a query that writes ``frame`` into the target; returns Spark's ``StreamingQuery``.

    A missing table is created with the options that are not those of merging schemas.
    """
    if not frame.isStreaming:
        raise InvalidRequest(f"the rows for '{target.name}' are not a stream; use lake.write() to write them")
    merge = {k: v for k, v in target.options.items() if k.startswith(PREFIX)}
    created = target.create(spark, frame, partition_by, {k: v for k, v in target.options.items() if k not in merge})
    target = replace(target, options=merge) if created else target
    try:
        target.check(spark, frame)
        writer = frame.writeStream.option("checkpointLocation", target.checkpoint).foreachBatch(target)
        if query is not None:
            writer = writer.queryName(query)
        return (writer.trigger(**trigger) if trigger else writer).start()
    except Exception:  # not an interrupt, after which the query may run
        if created:
            target.catalog.drop_unwritten(target.name)
        raise
