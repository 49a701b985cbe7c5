"""CREATE, REPLACE, ALTER and DROP of databases, tables and catalog views.

Views of the catalog are here; Spark keeps the session's views.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from bitlake.catalog.catalog import View, identifier_exists, open_state
from bitlake.catalog.identifier import DEFAULT_DATABASE, Identifier
from bitlake.errors import AlreadyExists, InvalidRequest, NotFound
from bitlake.file_store_table import FileStoreTable
from bitlake.metadata import options as opt
from bitlake.metadata.schema import SetTableComment, assign_ids, near
from bitlake.schema.create import ColumnSpec
from bitlake.snapshot.schema_commit import replaced_schema
from bitlake.spark.context import EngineContext
from bitlake.spark.dml.insert import COUNTS, store
from bitlake.spark.errors import spark_errors
from bitlake.spark.read.query import other, query
from bitlake.spark.show import like_names
from bitlake.spark.types import comment_of, from_spark_field, stored_type
from bitlake.spark.write.insert_cast import by_position
from bitlake.sql import statements as st
from bitlake.sql.parser import parse_statement
from bitlake.sql.rewrite import whole_names
from bitlake.sql.statements import AlterDatabase, AlterTag, CreateTableLike, RefreshTable, TagChange
from bitlake.sql.text import SqlText, TableName
from bitlake.table.history import TableHistory
from bitlake.write.commit_plan import overwrite_scope

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
    if not identifier_exists(context.catalog, name, context.names):
        context.catalog.load_schema(name)  # says what there is
    return context.nothing()


def alter_tag(context: EngineContext, statement: AlterTag) -> DataFrame:
    """ALTER TABLE … CREATE, REPLACE, DELETE or RENAME TAG."""
    table = context.table(context.identify(statement.table))
    snapshot = statement.snapshot
    retain = None if statement.retained_ms is None else timedelta(milliseconds=statement.retained_ms)
    history = TableHistory(table)
    match statement.change:
        case TagChange.CREATE:
            history.create_tag(statement.tag, snapshot, retain=retain, if_not_exists=statement.lenient)
        case TagChange.REPLACE:
            history.replace_tag(statement.tag, snapshot, retain=retain)
        case TagChange.CREATE_OR_REPLACE:
            if not history.create_tag(statement.tag, snapshot, retain=retain, if_not_exists=True):
                history.replace_tag(statement.tag, snapshot, retain=retain)
        case TagChange.DELETE:
            delete_tags(table, statement.tag, statement.lenient)
        case TagChange.RENAME:
            history.rename_tag(statement.tag, statement.new_name or "")
    return context.nothing()


def delete_tags(table: FileStoreTable, given: str, lenient: bool = False) -> None:
    """Delete tags whose names are between commas; one that does not exist is a warning, as in Paimon.

    ``lenient``: not even that.
    """
    have = TableHistory(table).tags()
    names = [given] if given in have else [n.strip() for n in given.split(",") if n.strip()]
    for name in names:
        if not TableHistory(table).delete_tag(name, if_exists=True) and not lenient:
            log.warning("table '%s' has no tag '%s'; its tags: %s", table.name, name, ", ".join(have) or "none")


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
        columns = [ColumnSpec(f.name, stored_type(f), comment_of(f)) for f in frame.schema.fields]
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
    if statement.source.catalog is not None or not identifier_exists(context.catalog, source, context.names):
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


_TEXT = T.StringType()


def create_view(context: EngineContext, statement: st.CreateKeptView) -> DataFrame:
    """CREATE VIEW: the query must be one that can be run now; its names are kept with their database."""
    name = Identifier(statement.name.database or context.database, statement.name.table)
    if not context.catalog.keeps_views:
        return other(context, context.original)  # Spark's own catalog may keep it, unless it reads lake tables
    if context.catalog.find_view(name) is not None and not statement.replace:
        if statement.if_not_exists:
            return context.nothing()
        raise AlreadyExists(f"view '{name}' exists already: say CREATE OR REPLACE VIEW")
    written = parse_statement(context.original)  # the statement may have names in place of moments and views
    text = written.query if isinstance(written, st.CreateKeptView | st.AlterView) else statement.query
    whole, fields = _checked_query(context, text)
    columns, _ = assign_ids([(f.name, from_spark_field(f), None) for f in fields])
    context.catalog.create_view(name, View(whole, columns, statement.comment), replace=statement.replace)
    return context.nothing()


def _checked_query(context: EngineContext, text: SqlText) -> tuple[SqlText, list[T.StructField]]:
    """A view's query with the database of each name, and its columns; it must be one that can be run now."""

    def known(table: TableName) -> bool:
        return context.view(table) is not None or context.has(table)

    whole = whole_names(text, context.database, known, context.names)
    return whole, query(context, context.begin(whole)).schema.fields


def alter_dialect(context: EngineContext, name: TableName, action: str, engine: str, text: str | None) -> None:
    """Add, update or drop what a kept view is to an engine; Spark's own query must be one that can be run now."""
    if action not in ("add", "update", "drop"):
        raise InvalidRequest(f"a view's dialect is added, updated or dropped: 'add', 'update', 'drop', not '{action}'")
    if (action == "drop") != (text is None):
        raise InvalidRequest(f"'{action}' goes {'without' if action == 'drop' else 'with'} a query")
    if text is not None and engine == "spark":
        text, _ = _checked_query(context, SqlText(text))
    place = Identifier(name.database or context.database, name.table)
    context.catalog.alter_view_dialect(place, action, engine, text)


def alter_view(context: EngineContext, statement: st.AlterView) -> DataFrame:
    """ALTER VIEW … AS: another query for the session's view of that name, or for the catalog's."""
    name = Identifier(statement.name.database or context.database, statement.name.table)
    if statement.name.database is None and context.is_view(statement.name.table):
        with spark_errors(f"altering view '{statement.name}'"):
            query(context, statement.query).createOrReplaceTempView(statement.name.table)
        return context.nothing()
    if not context.catalog.keeps_views:
        return other(context, statement.text)
    if context.catalog.find_view(name) is None:
        raise NotFound(f"view '{name}' does not exist{near(name.table, context.catalog.views(name.database))}")
    return create_view(context, st.CreateKeptView(statement.name, statement.query, replace=True))


def drop_view(context: EngineContext, statement: st.DropView) -> DataFrame:
    """DROP VIEW: the session's, if it has one of that name, else the catalog's."""
    if context.view(statement.name) is not None:
        context.catalog.drop_view(Identifier(statement.name.database or context.database, statement.name.table))
        return context.nothing()
    session = statement.name.database is None and context.is_view(statement.name.table)
    if not session and context.catalog.keeps_views:
        if statement.if_exists:
            return context.nothing()
        known = context.catalog.views(statement.name.database or context.database)
        raise NotFound(f"view '{statement.name}' does not exist{near(statement.name.table, known)}")
    with spark_errors(f"dropping view '{statement.name}'"):
        return context.spark.sql(statement.text)


def show_views(context: EngineContext, statement: st.ShowViews) -> DataFrame:
    """SHOW VIEWS: those of a database of the catalog (if it keeps none, Spark's own), and those of the session."""
    database = statement.database or context.database
    rows = [(database, name, False) for name in like_names(context.catalog.views(database), statement.like)]
    with spark_errors("looking for views of the session"):
        found = context.spark.sql("SHOW VIEWS").collect()
    for r in found:
        if r["viewName"].startswith("__bitlake_") or not like_names([r["viewName"]], statement.like):
            continue
        if r["isTemporary"] or not context.catalog.keeps_views:
            rows.append((r["namespace"], r["viewName"], r["isTemporary"]))
    columns = {"namespace": str, "viewName": str, "isTemporary": bool}
    return context.rows(columns, rows)
