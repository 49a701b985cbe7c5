"""``write.merge-schema``: rows written by name may bring columns that the table does not have yet."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame

from bitlake.spark.context import EngineContext
from bitlake.spark.relations import session_options
from bitlake.spark.types import from_spark_field
from bitlake.table.catalog import Identifier
from bitlake.table.merge_schema import MergeSchema, merged_changes
from bitlake.table.state import TableState
from bitlake.table.table import Table


def merging(
    context: EngineContext, name: Identifier, table: Table, given: Mapping[str, str] | None = None
) -> MergeSchema:
    """What the write's own options, else the session's, else the table's say of merging schemas."""
    session = session_options(context, name.database, name.table)
    return MergeSchema.of({**table.schema.options, **session, **(given or {})})


def merged_state(table: Table, state: TableState, frame: DataFrame, how: MergeSchema) -> TableState:
    """The table's state, with the columns that the rows bring if they may; the table is altered before the write."""
    if not how.on:
        return state
    changes = merged_changes(
        table.name, state.schema, [(f.name, from_spark_field(f)) for f in frame.schema.fields], how
    )
    if not changes:
        return state
    table.alter(*changes)
    return table.state()
