"""CREATE, ALTER, DROP, SHOW and DESCRIBE of the views that a catalog keeps.

A view is a query in Spark SQL.  Its names are kept with their databases, so that it means the same in every session;
in both engines, :func:`bitlake.sql.rewrite.expand_views` puts the query in place of the view's name.
Spark keeps temporary views and those of its own catalog (:meth:`Session.spark_view`).
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from bitlake.catalog.catalog import View
from bitlake.catalog.identifier import Identifier
from bitlake.engine.session import Session, nothing, result
from bitlake.engine.show import DESCRIBED, like_names, shown_type
from bitlake.engine.show import describe as describe_table
from bitlake.errors import AlreadyExists, InvalidRequest, NotFound
from bitlake.metadata.schema import assign_ids, near
from bitlake.sql import statements as st
from bitlake.sql.parser import parse_statement
from bitlake.sql.rewrite import expand_views, whole_names
from bitlake.sql.text import SqlText, TableName
from bitlake.types import DataType


def create_view(session: Session, statement: st.CreateKeptView) -> Any:
    """CREATE VIEW: the query must be one that can be run now; its names are kept with their database."""
    name = _identifier(session, statement.name)
    if not session.catalog.keeps_views:
        return session.spark_view(statement)
    if session.catalog.find_view(name) is not None and not statement.replace:
        if statement.if_not_exists:
            return nothing()
        raise AlreadyExists(f"view '{name}' exists already; use CREATE OR REPLACE VIEW")
    written = parse_statement(session.original)  # the statement may have names in place of moments and views
    text = written.query if isinstance(written, st.CreateKeptView | st.AlterView) else statement.query
    whole, columns = checked_query(session, text)
    if statement.replace:
        _check_reads_others(session, name, whole)
    fields, _ = assign_ids([(column, kind, None) for column, kind in columns])
    session.catalog.create_view(name, View(whole, fields, statement.comment), replace=statement.replace)
    return nothing()


def checked_query(session: Session, text: SqlText) -> tuple[SqlText, list[tuple[str, DataType]]]:
    """A view's query with the database of each name, and its columns; it must be one that can be run now."""

    def known(table: TableName) -> bool:
        return session.view(table) is not None or session.has(table)

    whole = whole_names(text, session.database, known, session.names)
    return whole, session.query_columns(session.begin(whole))


def _check_reads_others(session: Session, name: Identifier, query: SqlText) -> None:
    """Refuse a query that reads its own view, itself or in the views that it reads."""

    def find(used: TableName) -> str | None:
        if used.catalog is None and _identifier(session, used) == name:
            raise InvalidRequest(
                f"view '{name}' cannot read itself, directly or by another view; read its tables instead"
            )
        return session.view(used)

    expand_views(query, find, session.names)


def alter_view(session: Session, statement: st.AlterView) -> Any:
    """ALTER VIEW … AS: another query for the session's view of that name, or for the catalog's."""
    name = _identifier(session, statement.name)
    if _is_temporary(session, statement.name) or not session.catalog.keeps_views:
        return session.spark_view(statement)
    if session.catalog.find_view(name) is None:
        raise NotFound(f"view '{name}' does not exist{near(name.table, session.catalog.views(name.database))}")
    return create_view(session, st.CreateKeptView(statement.name, statement.query, replace=True))


def drop_view(session: Session, statement: st.DropView) -> Any:
    """DROP VIEW: the session's, if it has one of that name, else the catalog's."""
    if session.view(statement.name) is not None:
        session.catalog.drop_view(_identifier(session, statement.name))
        return nothing()
    if _is_temporary(session, statement.name) or not session.catalog.keeps_views:
        return session.spark_view(statement)
    if statement.if_exists:
        return nothing()
    views = session.catalog.views(statement.name.database or session.database)
    raise NotFound(f"view '{statement.name}' does not exist{near(statement.name.table, views)}")


def show_views(session: Session, statement: st.ShowViews) -> pa.Table:
    """SHOW VIEWS: those of a database of the catalog (if it keeps none, Spark's own), and those of the session."""
    database = statement.database or session.database
    views = [(database, name, False) for name in session.catalog.views(database)]
    views += [v for v in session.spark_views() if v[2] or not session.catalog.keeps_views]
    shown = set(like_names([name for _, name, _ in views], statement.like))
    columns = {"namespace": str, "viewName": str, "isTemporary": bool}
    return result(columns, [v for v in views if v[1] in shown])


def describe(session: Session, statement: st.Describe) -> pa.Table:
    """DESCRIBE of a table (:func:`bitlake.engine.show.describe`), or of a view that the catalog keeps."""
    name = statement.table
    view = session.catalog.find_view(_identifier(session, name)) if session.catalog.keeps_views else None
    if view is None:
        return describe_table(session, statement)
    return _describe_view(_identifier(session, name), view, statement)


def _describe_view(name: Identifier, view: View, statement: st.Describe) -> pa.Table:
    """The columns it had when it was created; EXTENDED adds its query and options."""
    if statement.partition is not None or statement.column is not None:
        raise InvalidRequest(f"'{name}' is a view: DESCRIBE takes neither a PARTITION nor a column with it")
    rows = [(f.name, shown_type(f), f.description) for f in view.fields]
    if statement.extended:
        options = ", ".join(f"{k}={v}" for k, v in sorted(view.options.items()))
        rows += [
            ("", "", ""),
            ("# Detailed View Information", "", ""),
            ("Name", str(name), ""),
            ("Comment", view.comment or "", ""),
            ("View Text", view.query, ""),
            ("View Query Output Columns", f"[{', '.join(f.name for f in view.fields)}]", ""),
            ("View Properties", f"[{options}]", ""),
        ]
    return result(DESCRIBED, rows)


def _identifier(session: Session, name: TableName) -> Identifier:
    return Identifier(name.database or session.database, name.table)


def _is_temporary(session: Session, name: TableName) -> bool:
    return name.database is None and session.is_view(name.table)
