"""INSERT INTO, INSERT OVERWRITE and REPLACE WHERE; DataFrames written into tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from bitlake.catalog.identifier import Identifier
from bitlake.engine.ddl import COUNTS
from bitlake.engine.partitions import partition_spec, whole_partition
from bitlake.engine.session import result
from bitlake.errors import InvalidRequest, NotFound, UnsupportedFeature
from bitlake.expressions.binder import bind
from bitlake.expressions.parser import parse_predicate
from bitlake.expressions.sql_text import quoted
from bitlake.expressions.tree import Comparison, IsNull, Op, conjuncts
from bitlake.file_store_table import FileStoreTable
from bitlake.mergetree.commit import publish
from bitlake.metadata.schema import Names
from bitlake.schema.create import ColumnSpec
from bitlake.schema.evolution import PREFIX, MergeSchema
from bitlake.snapshot.partitions import files_by_partition
from bitlake.snapshot.state import TableState
from bitlake.spark.context import EngineContext, partition_literal
from bitlake.spark.read.query import query
from bitlake.spark.types import comment_of, spark_type, stored_type
from bitlake.spark.write.append import write_frame
from bitlake.spark.write.insert_cast import by_name, by_position, evolution, merged_state, merging, with_defaults
from bitlake.spark.write.primary_key import write_changes
from bitlake.sql import statements as st
from bitlake.sql.rewrite import default_as_null
from bitlake.types import DataField
from bitlake.write.append_dml import retrying
from bitlake.write.commit_plan import Overwrite, overwrite_scope
from bitlake.write.frames import is_to_write

_MODE = "spark.sql.sources.partitionOverwriteMode"


def insert(context: EngineContext, statement: st.InsertInto) -> pa.Table:
    """INSERT INTO / OVERWRITE; returns how many rows were written."""
    rows = _inserted(context, statement)
    return result(COUNTS, [(rows, rows)])


def insert_all(context: EngineContext, statement: st.MultiInsert) -> pa.Table:
    """FROM … INSERT … INSERT …: one after the other, each a commit; returns a row of counts for each."""
    counts = [_inserted(context, each) for each in statement.inserts]
    return result(COUNTS, [(rows, rows) for rows in counts])


def _inserted(context: EngineContext, statement: st.InsertInto) -> int:
    name = context.identify(statement.table)
    table = context.session_table(name)
    state = table.state()
    table.check_writable(state, keyed=True)
    spec = partition_spec(context, state, statement.partition)
    if statement.if_not_exists:
        partition = tuple(whole_partition(context, state, statement.partition or {}).values())
        if partition in files_by_partition(state):
            return 0
    context.names.check(table.name, state.schema.field_names)
    frame = query(context, statement.query if statement.by_name else default_as_null(statement.query))
    how = MergeSchema()
    given = {**_write_options(table.name, statement), **evolution(statement.evolve)}
    if statement.by_name or given:
        how = merging(context, name, table, given)
    if how.on and not statement.by_name:
        frame = _leading_named(frame, _targets(context, state, statement, spec))
        statement = replace(statement, by_name=True, columns=None)
    state = merged_state(context, table, state, frame, how)
    frame = _named(context, state, frame, statement, spec, how.on)
    frame = with_defaults(table.name, frame, state.schema.fields)
    scope = None
    if statement.replace_where is not None:
        scope = _replaced_scope(context, state, statement.replace_where)
        frame = _only_where(table.name, frame, state, statement.replace_where)
    elif statement.overwrite:
        scope = _overwritten_scope(context, state, spec)
    return store(context, table, state, frame, "WRITE" if scope is None else "OVERWRITE", scope)


def _overwritten_scope(context: EngineContext, state: TableState, spec: Mapping[str, Any]) -> Overwrite:
    """What INSERT OVERWRITE with a PARTITION clause replaces, by Spark's mode of partition overwrites."""
    static = {k: v for k, v in spec.items() if v is not None}
    dynamic = str(context.spark.conf.get(_MODE, "static")).lower() == "dynamic"
    if dynamic and len(static) < len(state.schema.partition_keys):
        return overwrite_scope(state.schema, {})
    # As in Spark, PARTITION (p) without a value narrows nothing: p is a column of the query.
    return overwrite_scope(state.schema, context.partition_values(state, static) if static else None)


def _replaced_scope(context: EngineContext, state: TableState, condition: str) -> Overwrite:
    """What REPLACE WHERE replaces; raises :class:`UnsupportedFeature` for other conditions than equalities of partition
    columns, which Paimon's overwrites do not take either.
    """
    keys = state.schema.partition_keys
    bound = bind(parse_predicate(condition, context.timezone), state.schema.fields, context.timezone)
    spec: dict[str, Any] = {}
    present: set[str] = set()  # what <=> has beside its equality
    understood = True
    for leaf in conjuncts(bound):
        match leaf:
            case Comparison(column, Op.EQ, value) if spec.get(column, value) == value:
                spec[column] = value
            case IsNull(column, False) if spec.get(column) is None:
                spec[column] = None
            case IsNull(column, True):
                present.add(column)
            case _:
                understood = False
    filled = {k for k, v in spec.items() if v is not None}
    if not understood or not present <= filled or not set(spec) <= set(keys):
        raise UnsupportedFeature(
            f"table '{state.name}', REPLACE WHERE {condition}: only equalities of partition columns "
            f"({', '.join(keys) or 'none'}), joined by AND, can be replaced; use DELETE and INSERT, or MERGE"
        )
    return overwrite_scope(state.schema, spec or None)


def _only_where(table: str, frame: DataFrame, state: TableState, condition: str) -> DataFrame:
    """The rows, of which one that REPLACE WHERE would not replace fails the job, as in Paimon."""
    if not state.schema.partition_keys:
        return frame
    message = f"table '{table}': a row is not one of those that REPLACE WHERE {condition} replaces"
    key = state.schema.partition_keys[0]
    column = F.col(quoted(key))
    kept = F.coalesce(F.expr(f"({condition})"), F.lit(False))
    wanted = frame.schema[key].dataType
    return frame.withColumn(key, F.when(kept, column).otherwise(F.raise_error(F.lit(message)).cast(wanted)))


def _write_options(table: str, statement: st.InsertInto) -> Mapping[str, str]:
    other = next((k for k in statement.options if not k.startswith(PREFIX)), None)
    if other is not None:
        raise UnsupportedFeature(
            f"table '{table}': INSERT INTO … WITH takes {PREFIX} and the options below it, and not '{other}'; set it "
            "as an option of the table"
        )
    return statement.options


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
    exists = context.catalog.table_exists(name)
    merge = {k: v for k, v in options.items() if k.startswith(PREFIX)}
    options = {k: v for k, v in options.items() if k not in merge}
    if not is_to_write(name, exists, mode, partition_by, options):
        return 0
    if not exists:
        context.catalog.create_table(
            name, columns_of_frame(frame), partition_keys=partition_by, options=options, names=context.names
        )
    table = context.session_table(name)
    state = table.state()
    try:
        table.check_writable(state, keyed=True)
        how = merging(context, name, table, merge)
        context.names.check(table.name, state.schema.field_names)
        state = merged_state(context, table, state, frame, how)
        named = by_name(table.name, frame, state.schema.fields, context.names, fill=how.on)
        named = with_defaults(table.name, named, state.schema.fields)
        dynamic = str(context.spark.conf.get(_MODE, "static")).lower() == "dynamic"
        scope = overwrite_scope(state.schema, {} if dynamic else None) if mode == "overwrite" and exists else None
        return store(context, table, state, named, "WRITE" if scope is None else "OVERWRITE", scope)
    except BaseException:
        if not exists:
            context.catalog.drop_table(name, if_exists=True)
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
        return sum(c.rows for c in changes)

    if state.schema.num_buckets > 0:
        return step(state)
    # The bucket of a key depends on the keys that exist: if another writer changed them, buckets are assigned again.
    return retrying(lambda: tries.pop() if tries else table.state(), step)


def _named(
    context: EngineContext,
    state: TableState,
    frame: DataFrame,
    statement: st.InsertInto,
    spec: Mapping[str, Any],
    fill: bool,
) -> DataFrame:
    """The query's columns under the table's names: by name, by the column list, or by position."""
    table, names = state.name, context.names
    fields = state.schema.fields
    static = {k: v for k, v in spec.items() if v is not None}
    rest = [f for f in fields if f.name not in static]
    if statement.by_name:
        named = by_name(table, frame, rest, names, fill=fill)
    else:
        targets = _targets(context, state, statement, spec)
        named = by_position(table, frame, targets)
        if statement.columns is not None:
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


def _targets(
    context: EngineContext, state: TableState, statement: st.InsertInto, spec: Mapping[str, Any]
) -> list[DataField]:
    """The columns that a query's columns go into, by position."""
    static = {k: v for k, v in spec.items() if v is not None}
    if statement.columns is not None:
        return _listed(state, statement.columns, static, context.names)
    # PARTITION (p) without a value changes nothing: p stands where the table has it, as in Paimon and Spark.
    return [f for f in state.schema.fields if f.name not in static]


def _listed(state: TableState, listed: Sequence[str], static: Mapping[str, Any], names: Names) -> list[DataField]:
    table = state.name
    try:
        fields = [state.schema.field(n, names) for n in listed]
    except NotFound as e:
        raise NotFound(f"table '{table}': {e}") from e
    for i, f in enumerate(fields):
        if f.name in [g.name for g in fields[:i]]:
            raise InvalidRequest(f"table '{table}': column '{f.name}' is listed twice")
        if f.name in static:
            raise InvalidRequest(f"table '{table}': column '{f.name}' has its value from PARTITION already")
    return fields
