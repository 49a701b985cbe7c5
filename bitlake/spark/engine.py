"""SQL on lake tables through a Spark session: statements about them are done here, everything else is Spark's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession

from bitlake.catalog.catalog import Catalog
from bitlake.catalog.identifier import Identifier
from bitlake.errors import InvalidRequest
from bitlake.expressions.parameters import Args, literal
from bitlake.expressions.sql_text import quoted
from bitlake.scan.scan import TableScan
from bitlake.spark import ddl, partitions, show
from bitlake.spark.analyze import analyze
from bitlake.spark.context import EngineContext
from bitlake.spark.dml import insert
from bitlake.spark.dml.copy_into import copy_into_folder, copy_into_table
from bitlake.spark.dml.delete_update import delete, update
from bitlake.spark.dml.merge import merge
from bitlake.spark.errors import spark_errors
from bitlake.spark.procedures.call import call, show_procedures
from bitlake.spark.procedures.maintenance import vacuum
from bitlake.spark.read import query
from bitlake.spark.read.scan import SparkReader
from bitlake.spark.runner import watched
from bitlake.sql import statements as st
from bitlake.sql.parser import parse_statement
from bitlake.sql.rewrite import bind_parameters, has_named, in_brackets, variable_name
from bitlake.sql.statements import CopyIntoFolder, CopyIntoTable
from bitlake.sql.text import SqlText

Handler = Callable[[EngineContext, Any], DataFrame]

_HANDLERS: dict[type[Any], Handler] = {
    st.CreateDatabase: ddl.create_database,
    st.DropDatabase: ddl.drop_database,
    st.UseDatabase: ddl.use_database,
    st.CreateTable: ddl.create_table,
    st.CreateView: query.create_view,
    st.DropTable: ddl.drop_table,
    st.AlterTableSet: ddl.alter_set,
    st.AlterTableUnset: ddl.alter_unset,
    st.AlterColumns: ddl.alter_columns,
    st.RenameTable: ddl.rename_table,
    st.Truncate: partitions.truncate,
    st.InsertInto: insert.insert,
    st.MultiInsert: insert.insert_all,
    st.DeleteFrom: delete,
    st.Update: update,
    st.MergeInto: merge,
    st.Call: call,
    st.Vacuum: vacuum,
    st.Explain: query.explain,
    st.Query: lambda context, statement: query.query(context, statement.text),
    st.ShowDatabases: show.databases,
    st.ShowTables: show.tables,
    st.ShowCreateTable: show.create_table,
    st.ShowPartitions: show.partitions,
    st.ShowTblProperties: show.properties,
    st.ShowProcedures: show_procedures,
    st.Analyze: analyze,
    st.Describe: show.describe,
    st.AlterDatabase: ddl.alter_database,
    st.DescribeDatabase: show.describe_database,
    st.CreateTableLike: ddl.create_table_like,
    st.CreateKeptView: ddl.create_view,
    st.DropView: ddl.drop_view,
    st.ShowViews: ddl.show_views,
    st.AlterTag: ddl.alter_tag,
    st.ShowTags: show.tags,
    st.DropPartitions: partitions.drop_partitions,
    st.AddPartitions: partitions.add_partitions,
    st.ShowColumns: show.columns,
    st.ShowTableExtended: show.extended,
    st.RefreshTable: ddl.refresh_table,
    st.AlterView: ddl.alter_view,
    st.DescribeQuery: query.describe_query,
    st.ShowCurrentNamespace: show.current_namespace,
    st.CacheTable: query.cache_table,
    st.UncacheTable: query.uncache_table,
    st.ClearCache: query.clear_cache,
    CopyIntoTable: copy_into_table,
    CopyIntoFolder: copy_into_folder,
}


class SparkEngine:
    """Runs SQL text on a lake's tables and a session's views."""

    def __init__(self, catalog: Catalog, spark: SparkSession, database: str) -> None:
        self.context = EngineContext(catalog, spark, database)

    @property
    def spark(self) -> SparkSession:
        """The session."""
        return self.context.spark

    def sql(self, text: str, args: Args | None = None) -> DataFrame:
        """Run one statement; queries are lazy as in Spark, everything else has happened when this returns.

        ``args`` are the values of its parameters, by name or in order: Python's, or Spark's columns of literals.
        Raises a subclass of :class:`bitlake.errors.BitlakeError`, chosen by what the caller can do about it; nothing is
        half-done then.
        """
        if args is not None:
            text = bind_parameters(text, self._literals(args))
        with self._watched(text):
            return self._run(self.context.begin(text))

    def _literals(self, args: Any) -> Any:
        """Parameters' values, those that are Spark's columns as SQL text."""
        if isinstance(args, Mapping):
            return {name: self._literal(value) for name, value in args.items()}
        return [self._literal(value) for value in args] if isinstance(args, list | tuple) else args

    def _literal(self, value: Any) -> Any:
        if not isinstance(value, Column):
            return value
        frame = self.spark.range(1).select(value)
        return SqlText(f"CAST({literal(frame.collect()[0][0])} AS {frame.schema[0].dataType.simpleString()})")

    def _run(self, text: SqlText) -> DataFrame:
        statement = parse_statement(text)
        if isinstance(statement, st.ExecuteImmediate):
            return self._run(self.context.begin(self._immediate(statement)))
        handler = _HANDLERS.get(type(statement))
        if handler is not None:
            return handler(self.context, statement)
        if isinstance(statement, st.Other):
            return query.other(self.context, statement.text)
        raise InvalidRequest(f"cannot run {type(statement).__name__}: {text}")

    def _immediate(self, statement: st.ExecuteImmediate) -> SqlText:
        """The statement that EXECUTE IMMEDIATE runs, its parameters replaced, as one that sets variables with INTO."""
        evaluated = self.context.evaluate(statement.statement)
        if evaluated is None:
            raise InvalidRequest(f"EXECUTE IMMEDIATE {statement.statement}: the statement is NULL")
        text = SqlText(evaluated)
        if statement.using:
            text = bind_parameters(text, self._parameters(statement.using, has_named(text)))
        if not statement.into:
            return text
        if not isinstance(parse_statement(text), st.Query):
            raise InvalidRequest(f"EXECUTE IMMEDIATE … INTO takes a query, and this is another statement: {text}")
        with spark_errors("running the statement"):
            # Spark parses it alone: in the brackets of SET VAR it may mean something else, or fail in other words.
            _ = self.spark.sql(f"EXPLAIN {text}").schema
        return SqlText(f"SET VAR ({', '.join(statement.into)}) = ({text})")

    def _parameters(self, using: Sequence[tuple[str | None, SqlText]], named: bool) -> Args:
        """The values of USING: constants and variables, of which one without an alias has its own name if ``named``."""
        listed = ", ".join(value for _, value in using)
        with spark_errors(f"USING {listed}"):
            # Spark refuses columns and subqueries, which it would find in the statement that the values go into.
            _ = self.spark.sql(f"EXECUTE IMMEDIATE 'SELECT {', '.join('?' * len(using))}' USING {listed}").schema
        names = [name or (variable_name(value) if named else None) for name, value in using]
        if any(names) and not all(names):
            raise InvalidRequest("EXECUTE IMMEDIATE: parameters in USING have names, or none has")
        # In the statement, a column comes before a variable of its name.
        variables = [variable_name(value) for _, value in using]
        values = [
            in_brackets(value) if variable is None else SqlText(f"system.session.{quoted(variable)}")
            for variable, (_, value) in zip(variables, using, strict=True)
        ]
        return {str(n): v for n, v in zip(names, values, strict=True)} if names[0] else values

    def _watched(self, text: str) -> AbstractContextManager[None]:
        """What is done in the block, said by ``text``, shows how far it is."""
        return watched(self.spark, text, self.context.catalog.runtime.shows_progress)

    def write(
        self, name: Identifier, frame: DataFrame, mode: str, partition_by: Sequence[str], options: Mapping[str, str]
    ) -> int:
        """Write a DataFrame into a table; see :func:`bitlake.spark.dml.insert.write_dataframe`."""
        self.context.begin()
        with self._watched(f"writing to {name}"):
            return insert.write_dataframe(self.context, name, frame, mode, partition_by, options)

    def scans(self, text: str) -> tuple[TableScan, ...]:
        """The scans of a query's lake tables, in the order they stand in the text."""
        begun = self.context.begin(text)
        statement = parse_statement(begun)
        if not isinstance(statement, st.Query):
            raise InvalidRequest(f"only a query has scans, and this is {type(statement).__name__}: {begun}")
        return query.prepare(self.context, statement.text).scans

    def frame(self, scan: TableScan) -> DataFrame:
        """A scan as a DataFrame."""
        return SparkReader(self.context.spark, scan.store).frame(scan)
