"""Views that the catalog keeps: CREATE VIEW, DROP VIEW, SHOW VIEWS.  Those of the session are Spark's."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from bitlake.errors import AlreadyExists, InvalidRequest, NotFound
from bitlake.metadata.schema import assign_ids, near
from bitlake.spark.context import EngineContext
from bitlake.spark.errors import spark_errors
from bitlake.spark.query import other, query
from bitlake.spark.show import like_names
from bitlake.spark.types import from_spark_field
from bitlake.sql import statements as st
from bitlake.sql.parser import parse_statement
from bitlake.sql.rewrite import whole_names
from bitlake.sql.statements import TableName
from bitlake.table.jdbc_views import View
from bitlake.table.relation import Identifier

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

    def known(table: TableName) -> bool:
        return context.view(table) is not None or context.has(table)

    whole = whole_names(text, context.database, known, context.names)
    fields = query(context, context.begin(whole)).schema.fields
    columns, _ = assign_ids([(f.name, from_spark_field(f), None) for f in fields])
    context.catalog.create_view(name, View(whole, columns, statement.comment), replace=statement.replace)
    return context.nothing()


def alter_dialect(context: EngineContext, name: TableName, action: str, engine: str, text: str | None) -> None:
    """Add, update or drop what a kept view is to an engine; Spark's own query must be one that can be run now."""
    if action not in ("add", "update", "drop"):
        raise InvalidRequest(f"a view's dialect is added, updated or dropped: 'add', 'update', 'drop', not '{action}'")
    if (action == "drop") != (text is None):
        raise InvalidRequest(f"'{action}' goes {'without' if action == 'drop' else 'with'} a query")
    if text is not None and engine == "spark":

        def known(table: TableName) -> bool:
            return context.view(table) is not None or context.has(table)

        text = whole_names(text, context.database, known, context.names)
        _ = query(context, context.begin(text)).schema
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
    columns = [("namespace", _TEXT), ("viewName", _TEXT), ("isTemporary", T.BooleanType())]
    return context.rows(columns, rows)
