"""``write.merge-schema``: rows written by name may bring columns that the table does not have yet."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from bitlake.catalog.identifier import Identifier
from bitlake.errors import AlreadyExists
from bitlake.file_store_table import FileStoreTable
from bitlake.metadata.names import Names
from bitlake.schema.evolution import PREFIX, MergeSchema, merged_changes
from bitlake.snapshot.state import TableState
from bitlake.spark.context import EngineContext
from bitlake.spark.read.time_travel import session_options
from bitlake.spark.types import from_spark_field


def merging(
    context: EngineContext, name: Identifier, table: FileStoreTable, given: Mapping[str, str] | None = None
) -> MergeSchema:
    """What the write's own options, else the session's, else the table's say of merging schemas."""
    session = session_options(context, name.database, name.table)
    return MergeSchema.of({**table.schema.options, **session, **(given or {})})


def evolution(on: bool) -> dict[str, str]:
    """What WITH SCHEMA EVOLUTION says of merging schemas."""
    return {PREFIX: "true"} if on else {}


def merged_state(
    context: EngineContext, table: FileStoreTable, state: TableState, frame: DataFrame, how: MergeSchema
) -> TableState:
    """The table's state, with the columns that the rows bring if they may; the table is altered before the write."""
    return merged_with(table, state, frame.schema, how, context.names)


def merged_with(
    table: FileStoreTable, state: TableState, types: T.StructType, how: MergeSchema, names: Names = Names.FOLDED
) -> TableState:
    """:func:`merged_state` for rows of which only the columns are known yet."""
    columns = [(f.name, from_spark_field(f)) for f in types.fields] if how.on else []
    changes = merged_changes(table.name, state.schema, columns, how, names)
    if not changes:
        return state
    try:
        table.alter(*changes, names=names)
    except AlreadyExists:  # another writer brought the same columns first
        table.alter(*merged_changes(table.name, table.schema, columns, how, names), names=names)
    return table.state()
