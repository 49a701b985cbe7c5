"""CREATE TABLE, REPLACE TABLE, AS SELECT or not, and CREATE TABLE … LIKE."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from bitlake.errors import InvalidRequest, NotFound
from bitlake.metadata import options as opt
from bitlake.metadata.schema import near
from bitlake.spark.align import by_position
from bitlake.spark.context import EngineContext
from bitlake.spark.dml import COUNTS, store
from bitlake.spark.query import query
from bitlake.spark.types import stored_type
from bitlake.sql import statements as st
from bitlake.sql.statements import CreateTableLike
from bitlake.table.create import ColumnSpec
from bitlake.table.partition_spec import overwrite_scope
from bitlake.table.relation import Identifier, open_state, relation_exists
from bitlake.table.replace import replaced_schema


def create_table(context: EngineContext, statement: st.CreateTable) -> DataFrame:
    """CREATE TABLE, with AS SELECT or without; a table whose query fails is not left behind."""
    name = context.identify(statement.name)
    _check_using(name, statement.using)
    there = context.catalog.table_exists(name)
    if statement.if_not_exists and there:
        return context.nothing()
    if statement.must_exist and not there:
        context.catalog.load_schema(name)  # says what there is
    columns: Sequence[ColumnSpec] = [ColumnSpec(c.name, c.type, c.comment, c.default_sql) for c in statement.columns]
    frame: DataFrame | None = None
    if statement.query is not None:
        frame = query(context, statement.query)
        columns = [ColumnSpec(f.name, stored_type(f)) for f in frame.schema.fields]
    if statement.replace and there:
        return _replace(context, name, statement, columns, frame)
    made = context.catalog.create_table(
        name,
        columns,
        partition_keys=statement.partitioned_by,
        primary_keys=statement.primary_key,
        options=statement.properties,
        comment=statement.comment,
        if_not_exists=statement.if_not_exists,
        names=context.names,
    )
    if frame is None or not made:
        return context.nothing()
    table = context.session_table(name)
    state = table.state()
    try:
        table.check_writable(state, keyed=True)
        named = by_position(table.name, frame, state.schema.fields)
        rows = store(context, table, state, named, "CREATE_TABLE_AS_SELECT")
    except BaseException:
        context.catalog.drop_table(name, if_exists=True)
        raise
    return context.rows(COUNTS, [(rows, rows)])


def _replace(
    context: EngineContext,
    name: Identifier,
    statement: st.CreateTable,
    columns: Sequence[ColumnSpec],
    frame: DataFrame | None,
) -> DataFrame:
    """The table's rows and schema replaced; what it was stays in its history."""
    table = context.table(name)
    old = table.state()
    table.check_writable(old, keyed=True)
    with replaced_schema(
        old,
        columns,
        partition_keys=statement.partitioned_by,
        primary_keys=statement.primary_key,
        options=statement.properties,
        comment=statement.comment,
        names=context.names,
    ):
        if frame is None:
            if old.snapshot is not None:
                table.truncate()
            return context.nothing()
        state = table.state()
        named = by_position(table.name, frame, state.schema.fields)
        rows = store(context, table, state, named, "OVERWRITE", overwrite_scope(state.schema, None))
    return context.rows(COUNTS, [(rows, rows)])


def create_table_like(context: EngineContext, statement: CreateTableLike) -> DataFrame:
    """CREATE TABLE … LIKE: columns, keys, comment and options of another table or branch; no rows."""
    name, source = context.identify(statement.name), context.identify(statement.source)
    _check_using(name, statement.using)
    if statement.source.catalog is not None or not relation_exists(context.catalog, source, context.names):
        known = context.catalog.tables(source.database) if context.catalog.database_exists(source.database) else []
        raise NotFound(f"table '{statement.source}' is not a table of the lake{near(source.table, known)}")
    schema = open_state(context.catalog, source, context.names).schema
    options = {k: v for k, v in schema.options.items() if k not in ("path", "owner", "external", "branch")}
    own = dict(statement.properties)
    keys = () if opt.PRIMARY_KEY.name in own else schema.primary_keys
    context.catalog.create_table(
        name,
        [ColumnSpec(f.name, f.type, f.description, f.default_value) for f in schema.fields],
        partition_keys=schema.partition_keys,
        primary_keys=keys,
        options={**options, **own},
        comment=schema.comment if statement.comment is None else statement.comment,
        if_not_exists=statement.if_not_exists,
        names=context.names,
    )
    return context.nothing()


def _check_using(name: Identifier, using: str | None) -> None:
    if using is not None and using.lower() not in ("paimon", "bitlake"):
        raise InvalidRequest(f"table '{name}': USING {using} makes no lake table; leave USING out, or say USING paimon")
