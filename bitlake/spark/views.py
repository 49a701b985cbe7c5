"""Views on Spark: of the catalog, which keeps their text, and of the session."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from bitlake.catalog.catalog import View
from bitlake.catalog.identifier import Identifier
from bitlake.engine.session import nothing, result
from bitlake.engine.show import like_names
from bitlake.errors import AlreadyExists, NotFound
from bitlake.metadata.schema import assign_ids, near
from bitlake.spark.context import EngineContext
from bitlake.spark.errors import spark_errors
from bitlake.spark.read.query import other, query
from bitlake.spark.types import from_spark_field
from bitlake.sql import statements as st
from bitlake.sql.parser import parse_statement
from bitlake.sql.rewrite import whole_names
from bitlake.sql.text import SqlText, TableName


def create_view(context: EngineContext, statement: st.CreateKeptView) -> DataFrame | pa.Table:
    """CREATE VIEW: the query must be one that can be run now; its names are kept with their database."""
    name = Identifier(statement.name.database or context.database, statement.name.table)
    if not context.catalog.keeps_views:
        return other(context, context.original)  # Spark's own catalog may keep it, unless it reads lake tables
    if context.catalog.find_view(name) is not None and not statement.replace:
        if statement.if_not_exists:
            return nothing()
        raise AlreadyExists(f"view '{name}' exists already: say CREATE OR REPLACE VIEW")
    written = parse_statement(context.original)  # the statement may have names in place of moments and views
    text = written.query if isinstance(written, st.CreateKeptView | st.AlterView) else statement.query
    whole, fields = checked_query(context, text)
    columns, _ = assign_ids([(f.name, from_spark_field(f), None) for f in fields])
    context.catalog.create_view(name, View(whole, columns, statement.comment), replace=statement.replace)
    return nothing()


def checked_query(context: EngineContext, text: SqlText) -> tuple[SqlText, list[T.StructField]]:
    """A view's query with the database of each name, and its columns; it must be one that can be run now."""

    def known(table: TableName) -> bool:
        return context.view(table) is not None or context.has(table)

    whole = whole_names(text, context.database, known, context.names)
    return whole, query(context, context.begin(whole)).schema.fields


def alter_view(context: EngineContext, statement: st.AlterView) -> DataFrame | pa.Table:
    """ALTER VIEW … AS: another query for the session's view of that name, or for the catalog's."""
    name = Identifier(statement.name.database or context.database, statement.name.table)
    if statement.name.database is None and context.is_view(statement.name.table):
        with spark_errors(f"altering view '{statement.name}'"):
            query(context, statement.query).createOrReplaceTempView(statement.name.table)
        return nothing()
    if not context.catalog.keeps_views:
        return other(context, statement.text)
    if context.catalog.find_view(name) is None:
        raise NotFound(f"view '{name}' does not exist{near(name.table, context.catalog.views(name.database))}")
    return create_view(context, st.CreateKeptView(statement.name, statement.query, replace=True))


def drop_view(context: EngineContext, statement: st.DropView) -> DataFrame | pa.Table:
    """DROP VIEW: the session's, if it has one of that name, else the catalog's."""
    if context.view(statement.name) is not None:
        context.catalog.drop_view(Identifier(statement.name.database or context.database, statement.name.table))
        return nothing()
    session = statement.name.database is None and context.is_view(statement.name.table)
    if not session and context.catalog.keeps_views:
        if statement.if_exists:
            return nothing()
        known = context.catalog.views(statement.name.database or context.database)
        raise NotFound(f"view '{statement.name}' does not exist{near(statement.name.table, known)}")
    with spark_errors(f"dropping view '{statement.name}'"):
        return context.spark.sql(statement.text)


def show_views(context: EngineContext, statement: st.ShowViews) -> DataFrame | pa.Table:
    """SHOW VIEWS: those of a database of the catalog (if it keeps none, Spark's own), and those of the session."""
    database = statement.database or context.database
    views = [(database, name, False) for name in like_names(context.catalog.views(database), statement.like)]
    with spark_errors("looking for views of the session"):
        found = context.spark.sql("SHOW VIEWS").collect()
    for r in found:
        if r["viewName"].startswith("__bitlake_") or not like_names([r["viewName"]], statement.like):
            continue
        if r["isTemporary"] or not context.catalog.keeps_views:
            views.append((r["namespace"], r["viewName"], r["isTemporary"]))
    columns = {"namespace": str, "viewName": str, "isTemporary": bool}
    return result(columns, views)
