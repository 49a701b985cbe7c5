"""SQL text carried out in this process: statements that the core can do alone, and queries by DuckDB."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from bitlake.catalog.catalog import Catalog
from bitlake.engine import SessionState
from bitlake.engine.query import QueryResult, run_query
from bitlake.engine.session import NeedsSpark, Session, change_setting
from bitlake.errors import BitlakeError, CommitConflict, StorageUnavailable
from bitlake.expressions.literal_lists import has_markers, reading, without_lists
from bitlake.expressions.spark_dialect import Args, with_values
from bitlake.formatting import one_line
from bitlake.metadata.schema import MissingTable
from bitlake.progress import job
from bitlake.scan.scan import TableScan, ToSpark
from bitlake.sql import statements as st
from bitlake.sql.duckdb_values import LeftToSpark, NotTranslatable
from bitlake.sql.parser import parse_statement
from bitlake.sql.text import SqlText

if TYPE_CHECKING:
    from bitlake.engine import rows

Result = TypeVar("Result")
Handler = Callable[[Session, Any], pa.Table]


@cache
def handlers() -> Mapping[type[Any], Handler]:
    """Return the functions that carry out statements, in this process and on Spark."""
    # Imported lazily: a query needs none of them (tests/cli/test_startup.py).
    from bitlake.engine import ddl, insert, show
    from bitlake.engine.procedures import call, show_procedures
    from bitlake.engine.procedures.maintenance import vacuum

    return {
        st.CreateDatabase: ddl.create_database,
        st.DropDatabase: ddl.drop_database,
        st.AlterDatabase: ddl.alter_database,
        st.UseDatabase: ddl.use_database,
        st.CreateTable: ddl.create_table,
        st.CreateTableLike: ddl.create_table_like,
        st.DropTable: ddl.drop_table,
        st.RenameTable: ddl.rename_table,
        st.RefreshTable: ddl.refresh_table,
        st.AlterTableSet: ddl.alter_set,
        st.AlterTableUnset: ddl.alter_unset,
        st.AlterColumns: ddl.alter_columns,
        st.CreateIndex: ddl.create_index,
        st.DropIndex: ddl.drop_index,
        st.AlterTag: ddl.alter_tag,
        st.Analyze: ddl.analyze,
        st.InsertInto: insert.insert,
        st.Truncate: ddl.truncate,
        st.DropPartitions: ddl.drop_partitions,
        st.AddPartitions: ddl.add_partitions,
        st.Call: call,
        st.Vacuum: vacuum,
        st.ShowProcedures: show_procedures,
        st.ShowDatabases: show.databases,
        st.ShowCurrentNamespace: show.current_namespace,
        st.ShowTables: show.tables,
        st.ShowTableExtended: show.extended,
        st.ShowCreateTable: show.create_table,
        st.ShowPartitions: show.partitions,
        st.ShowTblProperties: show.properties,
        st.ShowColumns: show.columns,
        st.ShowIndexes: show.indexes,
        st.ShowTags: show.tags,
        st.CreateKeptView: ddl.create_view,
        st.AlterView: ddl.alter_view,
        st.RenameView: ddl.rename_view,
        st.DropView: ddl.drop_view,
        st.ShowViews: ddl.show_views,
        st.Describe: ddl.describe,
        st.DescribeDatabase: show.describe_database,
    }


@cache
def _handlers_here() -> Mapping[type[Any], Handler]:
    """Return the functions that only this process uses; Spark has its own."""
    from bitlake.engine import dml
    from bitlake.engine.explain import explain

    return {
        st.Explain: explain,
        st.Other: change_setting,
        st.DeleteFrom: dml.delete,
        st.Update: dml.update,
        st.MergeInto: dml.merge,
    }


VARIABLE = re.compile(r"\$\{(?:(\w+?):)?(\S+?)\}")
"""A variable in a text, of which Spark substitutes the value before it parses the text."""
_MAY_HAVE_MARKERS = re.compile(r"\s*(SELECT|WITH|DELETE|UPDATE|INSERT|MERGE)\b", re.I)


def with_short_lists(text: str, run: Callable[[str], Result]) -> Result:
    """Run a query, DELETE, UPDATE, INSERT or MERGE with markers in place of its long lists of literals.

    Where that fails, and the error may be due to a marker, the text is run as written.  For other statements, ``run``
    calls :func:`refuse_markers`.
    """
    short, lists = without_lists(text, timestamps=False) if _MAY_HAVE_MARKERS.match(text) else (text, ())
    if not lists:
        return run(text)
    try:
        with reading(lists):
            return run(short)
    except LeftToSpark:
        pass
    except BitlakeError as e:
        if not has_markers(str(e)) or isinstance(e, CommitConflict | StorageUnavailable):
            # After a commit was attempted, its outcome may be unknown, so it is not run again.
            raise
    return run(text)


def refuse_markers(text: str, statement: object) -> None:
    """Raise :class:`NotTranslatable` for a text with markers, unless it is a DELETE, UPDATE, INSERT or MERGE.

    The caller then runs the statement as written.
    """
    if has_markers(text) and not isinstance(statement, st.DeleteFrom | st.Update | st.InsertInto | st.MergeInto):
        raise NotTranslatable("a long list", "only queries and changes of rows are read without their lists")


class _CoreSession(Session):
    """The session, with the rows of queries in this process."""

    def query_rows(self, text: SqlText) -> rows.ArrowRows | rows.ConstantRows:
        """The rows of a query."""
        from bitlake.engine import rows

        return rows.query_rows(self, text)

    def scanned_rows(self, scan: TableScan) -> rows.ArrowRows:
        """The rows of a scan."""
        from bitlake.engine import rows

        return rows.scanned_rows(self, scan)


class CoreEngine:
    """Runs SQL text on a lake's tables in this process."""

    def __init__(self, catalog: Catalog, state: SessionState, to_spark: ToSpark) -> None:
        self.session = _CoreSession(catalog, state, to_spark)

    def sql(self, text: str, args: Args | None = None) -> Any:
        """Run one statement; a query returns a DuckDB relation, everything else an Arrow table.

        ``args`` are the values of its parameters, by name or in order.  Raises :class:`NeedsSpark`, and
        :class:`bitlake.sql.duckdb_values.NotTranslatable` for queries, before anything is done.
        """
        result = self.run(text, args)
        return result.relation() if isinstance(result, QueryResult) else result

    def run(self, text: str, args: Args | None = None) -> pa.Table | QueryResult:
        """As :meth:`sql`, where a query that needs no DuckDB is not handed to it."""
        variable = VARIABLE.search(text)
        if variable is not None and self.session.is_on("spark.sql.variable.substitute", default=True):
            raise NeedsSpark(f"{variable.group(0)}, for which a variable's value is substituted,")
        written = text if args is None else with_values(text, args)
        return with_short_lists(written, self._run)

    def _run(self, written: str) -> pa.Table | QueryResult:
        session = self.session
        begun = session.begin(written)
        statement = parse_statement(begun, wall_clocks=session.wall_clocks)
        if isinstance(statement, st.Query):
            return run_query(session, statement.text)
        refuse_markers(written, statement)
        handler = _handlers_here().get(type(statement)) or handlers().get(type(statement))
        if handler is None:
            raise NeedsSpark(f"{written.strip().split(maxsplit=1)[0].upper()} …")
        with job(one_line(written, 60), session.catalog.runtime.shows_progress):
            return handler(session, statement)


_SPARK_SETTINGS = frozenset(("SPARK_REMOTE", "SPARK_CONF_DIR", "SPARK_HOME", "PYSPARK_SUBMIT_ARGS"))
"""Environment variables that may give a new session other tables: a server, or settings that name a catalog."""


def is_left_to_spark(text: str, error: BitlakeError) -> bool:
    """Whether Spark may carry out what failed here: nothing was changed, and the error is not the statement's own."""
    if isinstance(error, MissingTable):
        return not _SPARK_SETTINGS.isdisjoint(os.environ)
    if isinstance(error, NeedsSpark | LeftToSpark) or isinstance(error.__cause__, ModuleNotFoundError):
        return True  # or DuckDB, which INSERT and MERGE may need, is not installed
    try:
        return isinstance(parse_statement(text), st.Query)
    except BitlakeError:
        return False
