"""DataFrames written into tables, by INSERT and by :meth:`bitlake.lake.Lake.write`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from bitlake.catalog.catalog import Identifier, identifier_exists
from bitlake.engine.insert import Insertion, is_dynamic, merging
from bitlake.expressions.literal_lists import with_lists
from bitlake.expressions.sql_text import quoted
from bitlake.file_store_table import FileStoreTable
from bitlake.mergetree.bucket import inserted_rows
from bitlake.mergetree.commit import publish
from bitlake.schema.create import ColumnSpec
from bitlake.schema.evolution import PREFIX
from bitlake.snapshot.state import TableState
from bitlake.spark.context import EngineContext, partition_literal
from bitlake.spark.types import comment_of, spark_type, stored_type
from bitlake.spark.write.append import write_frame
from bitlake.spark.write.insert_cast import by_name, by_position, merged_state, with_defaults
from bitlake.spark.write.primary_key import write_changes
from bitlake.types import DataField
from bitlake.write.append_dml import retrying
from bitlake.write.commit_plan import Overwrite, overwrite_scope
from bitlake.write.frames import is_to_write


def insert_frame(context: EngineContext, frame: DataFrame, insertion: Insertion) -> int:
    """Write a frame's rows as an INSERT asks, and commit them; returns how many."""
    table, statement, how = insertion.table, insertion.statement, insertion.merging
    if how.on and not statement.by_name:
        frame = _leading_named(frame, insertion.targets(context.names))
        statement = replace(statement, by_name=True, columns=None)
    state = merged_state(context, table, insertion.state, frame, how)
    insertion = replace(insertion, state=state, statement=statement)
    frame = with_defaults(table.name, _named(context, frame, insertion), state.schema.fields)
    scope = insertion.scope(context)
    if statement.replace_where is not None:
        frame = _only_where(table.name, frame, state, statement.replace_where)
    return store(context, table, state, frame, "WRITE" if scope is None else "OVERWRITE", scope)


def _only_where(table: str, frame: DataFrame, state: TableState, condition: str) -> DataFrame:
    """The rows, of which one that REPLACE WHERE would not replace fails the job, as in Paimon."""
    if not state.schema.partition_keys:
        return frame
    message = f"table '{table}': a row is not one of those that REPLACE WHERE {condition} replaces"
    key = state.schema.partition_keys[0]
    column = F.col(quoted(key))
    kept = F.coalesce(F.expr(f"({with_lists(condition)})"), F.lit(False))
    wanted = frame.schema[key].dataType
    return frame.withColumn(key, F.when(kept, column).otherwise(F.raise_error(F.lit(message)).cast(wanted)))


def _leading_named(frame: DataFrame, targets: Sequence[DataField]) -> DataFrame:
    """The frame with its first columns named after ``targets``; those after them keep their names."""
    have = frame.columns
    return frame.toDF(*[f.name for f in targets[: len(have)]], *have[len(targets) :])


def columns_of_frame(frame: DataFrame) -> list[ColumnSpec]:
    """The columns of a table for a DataFrame's rows."""
    return [ColumnSpec(f.name, stored_type(f), comment_of(f)) for f in frame.schema.fields]


def write_dataframe(
    context: EngineContext,
    name: Identifier,
    frame: DataFrame,
    mode: str,
    partition_by: Sequence[str],
    options: Mapping[str, str],
) -> int:
    """Write a DataFrame's columns, by name, into a table; returns the number of rows.

    ``append`` and ``overwrite`` (all rows, or with Spark's dynamic partition mode those partitions that ``frame`` has)
    make the table if it is not there; ``error`` wants it not to be; ``ignore`` does nothing if it is.  ``options`` are
    those of a table to be made; ``write.merge-schema`` and what belongs to it are of this write.
    """
    exists = identifier_exists(context.catalog, name, context.names)
    merge = {k: v for k, v in options.items() if k.startswith(PREFIX)}
    options = {k: v for k, v in options.items() if k not in merge}
    if not is_to_write(name, exists, mode, partition_by, options):
        return 0
    if not exists:
        context.catalog.create_table(
            name, columns_of_frame(frame), partition_keys=partition_by, options=options, names=context.names
        )
    try:
        table = context.session_table(name)
        state = table.state()
        table.check_writable(state, keyed=True)
        how = merging(context, name, table, merge)
        context.names.check(table.name, state.schema.field_names)
        state = merged_state(context, table, state, frame, how)
        named = by_name(table.name, frame, state.schema.fields, context.names, fill=how.on)
        named = with_defaults(table.name, named, state.schema.fields)
        scope = (
            overwrite_scope(state.schema, {} if is_dynamic(context) else None)
            if mode == "overwrite" and exists
            else None
        )
        return store(context, table, state, named, "WRITE" if scope is None else "OVERWRITE", scope)
    except BaseException:
        if not exists:
            context.catalog.drop_unwritten(name)
        raise


def store(
    context: EngineContext,
    table: FileStoreTable,
    state: TableState,
    frame: DataFrame,
    operation: str,
    overwrite: Overwrite | None = None,
) -> int:
    """Write rows whose columns are the table's, in order, and commit them; returns how many."""
    if not state.schema.primary_keys:
        files = write_frame(context, table, state, frame)
        table.commit_files(state, files, operation, overwrite)
        return sum(e.file.row_count for e in files)
    tries = [state]

    def step(now: TableState) -> int:
        changes = write_changes(context, table, now, frame, fresh=overwrite is not None)
        publish(table, now, changes, operation=operation, overwrite=overwrite)
        return inserted_rows(changes)

    if state.schema.num_buckets > 0:
        return step(state)
    # The bucket of a key depends on the keys that exist: if another writer changed them, buckets are assigned again.
    return retrying(lambda: tries.pop() if tries else table.state(), step)


def _named(context: EngineContext, frame: DataFrame, insertion: Insertion) -> DataFrame:
    """The query's columns under the table's names: by name, by the column list, or by position."""
    table, names, fields, static = insertion.state.name, context.names, insertion.state.schema.fields, insertion.static
    rest = [f for f in fields if f.name not in static]
    if insertion.statement.by_name:
        named = by_name(table, frame, rest, names, fill=insertion.merging.on)
    else:
        named = by_position(table, frame, insertion.targets(names))
        if insertion.statement.columns is not None:
            named = by_name(table, named, rest, names, nested=False)
    if rest == list(fields):
        return named
    columns = []
    for f in fields:
        if f.name in static:
            columns.append(partition_literal(static[f.name]).cast(spark_type(f.type)).alias(f.name))
        else:
            columns.append(F.col(quoted(f.name)))
    return named.select(*columns)
