"""Statements that change what there is: databases, tables, options."""

from __future__ import annotations

from pyspark.sql import DataFrame

from bitlake.errors import InvalidRequest, NotFound
from bitlake.metadata.schema import near
from bitlake.metadata.schema_change import SetTableComment
from bitlake.spark.context import EngineContext
from bitlake.sql import statements as st
from bitlake.table.catalog import Identifier

_COMMENT = "comment"


def create_database(context: EngineContext, statement: st.CreateDatabase) -> DataFrame:
    """CREATE DATABASE."""
    context.catalog.create_database(statement.name, if_not_exists=statement.if_not_exists)
    return context.nothing()


def drop_database(context: EngineContext, statement: st.DropDatabase) -> DataFrame:
    """DROP DATABASE."""
    context.catalog.drop_database(statement.name, if_exists=statement.if_exists, cascade=statement.cascade)
    return context.nothing()


def use_database(context: EngineContext, statement: st.UseDatabase) -> DataFrame:
    """USE."""
    if not context.catalog.database_exists(statement.name):
        known = context.catalog.databases()
        raise NotFound(f"database '{statement.name}' does not exist{near(statement.name, known)}")
    context.database = statement.name
    return context.nothing()


def drop_table(context: EngineContext, statement: st.DropTable) -> DataFrame:
    """DROP TABLE."""
    context.catalog.drop_table(context.identify(statement.name), if_exists=statement.if_exists)
    return context.nothing()


def alter_set(context: EngineContext, statement: st.AlterTableSet) -> DataFrame:
    """ALTER TABLE … SET TBLPROPERTIES."""
    table = context.table(context.identify(statement.table))
    options = dict(statement.properties)
    comment = options.pop(_COMMENT, None)
    if comment is not None:  # Spark's way to say what the table is, and no option
        table.alter(SetTableComment(comment))
    if options or comment is None:
        table.alter_options(options)
    return context.nothing()


def alter_unset(context: EngineContext, statement: st.AlterTableUnset) -> DataFrame:
    """ALTER TABLE … UNSET TBLPROPERTIES; without IF EXISTS every key must be set."""
    table = context.table(context.identify(statement.table))
    have = table.schema.options
    if _COMMENT in statement.keys and _COMMENT not in have:
        table.alter(SetTableComment(None))
    keys = [k for k in statement.keys if k != _COMMENT or k in have]
    missing = [k for k in keys if k not in have]
    if missing and not statement.if_exists:
        raise NotFound(f"table '{table.name}' has no property '{missing[0]}'{near(missing[0], have)}; or say IF EXISTS")
    table.alter_options(unset=keys)
    return context.nothing()


def alter_columns(context: EngineContext, statement: st.AlterColumns) -> DataFrame:
    """ALTER TABLE … ADD, DROP, RENAME, ALTER or CHANGE COLUMN."""
    context.table(context.identify(statement.table)).alter(*statement.changes)
    return context.nothing()


def rename_table(context: EngineContext, statement: st.RenameTable) -> DataFrame:
    """ALTER TABLE … RENAME TO; without a database the table stays in its own."""
    old = context.identify(statement.table)
    if statement.new_name.catalog is not None:
        raise InvalidRequest(f"table '{old}' cannot move to another catalog, '{statement.new_name.catalog}'")
    new = Identifier(statement.new_name.database or old.database, statement.new_name.table)
    context.catalog.rename_table(old, new)
    return context.nothing()
