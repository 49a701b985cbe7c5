"""Statements that change what there is: databases, tables, options."""

from __future__ import annotations

import logging

from pyspark.sql import DataFrame

from bitlake.errors import InvalidRequest, NotFound
from bitlake.metadata.schema import near
from bitlake.metadata.schema_change import SetTableComment
from bitlake.spark.context import EngineContext
from bitlake.sql import statements as st
from bitlake.sql.statements import AlterDatabase, AlterTag, RefreshTable, TagChange
from bitlake.table.catalog import DEFAULT_DATABASE
from bitlake.table.relation import Identifier, relation_exists
from bitlake.table.table import Table

log = logging.getLogger("bitlake")

_COMMENT = "comment"


def create_database(context: EngineContext, statement: st.CreateDatabase) -> DataFrame:
    """CREATE DATABASE."""
    properties = dict(statement.properties)
    if statement.comment is not None:
        properties[_COMMENT] = statement.comment
    context.catalog.create_database(statement.name, if_not_exists=statement.if_not_exists, properties=properties)
    return context.nothing()


def alter_database(context: EngineContext, statement: AlterDatabase) -> DataFrame:
    """ALTER DATABASE … SET DBPROPERTIES."""
    context.catalog.alter_database(statement.name, statement.properties)
    return context.nothing()


def drop_database(context: EngineContext, statement: st.DropDatabase) -> DataFrame:
    """DROP DATABASE."""
    context.catalog.drop_database(statement.name, if_exists=statement.if_exists, cascade=statement.cascade)
    return context.nothing()


def use_database(context: EngineContext, statement: st.UseDatabase) -> DataFrame:
    """USE."""
    if not context.catalog.database_exists(statement.name):
        if statement.or_catalog:
            context.database = DEFAULT_DATABASE
            return context.nothing()
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
    context.table(context.identify(statement.table)).alter(*statement.changes, names=context.names)
    return context.nothing()


def rename_table(context: EngineContext, statement: st.RenameTable) -> DataFrame:
    """ALTER TABLE … RENAME TO; without a database the table stays in its own."""
    old = context.identify(statement.table)
    if statement.new_name.catalog is not None:
        raise InvalidRequest(f"table '{old}' cannot move to another catalog, '{statement.new_name.catalog}'")
    new = Identifier(statement.new_name.database or old.database, statement.new_name.table)
    context.catalog.rename_table(old, new)
    return context.nothing()


def refresh_table(context: EngineContext, statement: RefreshTable) -> DataFrame:
    """REFRESH TABLE: nothing of a table is kept from statement to statement that another writer could make wrong."""
    name = context.identify(statement.table)
    if not relation_exists(context.catalog, name, context.names):
        context.catalog.load_schema(name)  # says what there is
    return context.nothing()


def alter_tag(context: EngineContext, statement: AlterTag) -> DataFrame:
    """ALTER TABLE … CREATE, REPLACE, DELETE or RENAME TAG."""
    table = context.table(context.identify(statement.table))
    snapshot, retained = statement.snapshot, statement.retained_ms
    match statement.change:
        case TagChange.CREATE:
            table.create_tag(statement.tag, snapshot, retained_ms=retained, if_not_exists=statement.lenient)
        case TagChange.REPLACE:
            table.replace_tag(statement.tag, snapshot, retained_ms=retained)
        case TagChange.CREATE_OR_REPLACE:
            if not table.create_tag(statement.tag, snapshot, retained_ms=retained, if_not_exists=True):
                table.replace_tag(statement.tag, snapshot, retained_ms=retained)
        case TagChange.DELETE:
            delete_tags(table, statement.tag, statement.lenient)
        case TagChange.RENAME:
            table.rename_tag(statement.tag, statement.new_name or "")
    return context.nothing()


def delete_tags(table: Table, given: str, lenient: bool = False) -> None:
    """Delete tags whose names are between commas; one that does not exist is a warning, as in Paimon.

    ``lenient``: not even that.
    """
    have = table.tags()
    names = [given] if given in have else [n.strip() for n in given.split(",") if n.strip()]
    for name in names:
        if not table.delete_tag(name, if_exists=True) and not lenient:
            log.warning("table '%s' has no tag '%s'; its tags: %s", table.name, name, ", ".join(have) or "none")
