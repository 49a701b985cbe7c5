"""SQL on lake tables through a Spark session: statements about them are done here, everything else is Spark's.

ANALYZE TABLE: Spark aggregates the columns, and one row comes back, which is kept as statistics.

Sort compaction orders the rows of an append table by columns, or along a curve through several.  Spark sorts and writes
(:mod:`bitlake.write.z_order` has the curves); the new files replace the old ones in one COMPACT snapshot.  Rows that
others append meanwhile stay as they are; if others replaced a file or deleted rows of it, nothing changes and the
compaction runs again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.functions import arrow_udf

from bitlake.catalog.catalog import Catalog, Identifier
from bitlake.engine import SessionState
from bitlake.engine.engine import handlers, refuse_markers, with_short_lists
from bitlake.engine.insert import Insertion, insert_all
from bitlake.engine.metadata_only import prepare
from bitlake.errors import InvalidRequest
from bitlake.expressions.spark_dialect import Args
from bitlake.expressions.sql_text import quoted
from bitlake.file_store_table import FileStoreTable
from bitlake.mergetree.commit import Publisher
from bitlake.mergetree.rescale import Rewrite
from bitlake.metadata.manifest import FileSource, ManifestEntry
from bitlake.metadata.snapshot import Snapshot
from bitlake.scan.scan import TableScan
from bitlake.schema.create import ColumnSpec
from bitlake.snapshot.state import TableState
from bitlake.spark.context import EngineContext
from bitlake.spark.dml import insert
from bitlake.spark.dml.copy_into import copy_into_folder, copy_into_table
from bitlake.spark.dml.delete_update import delete, update
from bitlake.spark.dml.merge import merge
from bitlake.spark.errors import spark_errors
from bitlake.spark.read import query
from bitlake.spark.read.scan import SparkReader
from bitlake.spark.read.temporary_views import follow_renamed, refresh
from bitlake.spark.runner import watched
from bitlake.spark.session import is_same_session, names_token_function, register_functions
from bitlake.spark.source.data_source import refuse_tables
from bitlake.spark.types import from_spark_field, literal_of
from bitlake.spark.variable_substitution import substituted
from bitlake.spark.write.append import SparkWriter, quoted_columns, write_frame
from bitlake.spark.write.insert_cast import by_position
from bitlake.spark.write.primary_key import place_postponed, write_changes
from bitlake.sql import statements as st
from bitlake.sql.parser import parse_statement
from bitlake.sql.rewrite import bind_parameters, has_named, in_brackets, variable_name
from bitlake.sql.statements import CopyIntoFolder, CopyIntoTable
from bitlake.sql.text import SqlText
from bitlake.types import AtomicType, DataType, Root
from bitlake.write.analyze import ColumnStatistics, analyzed_type, value_length
from bitlake.write.append_compaction import commit_replacement
from bitlake.write.commit_plan import Overwrite
from bitlake.write.data_file_writer import target_file_size
from bitlake.write.z_order import bits_for, bounds_of, hilbert, ranks, zorder

# --- ANALYZE TABLE ----------------------------------------------------------------------------------------------------


def column_statistics(scan: TableScan, names: Sequence[str]) -> tuple[int, dict[str, ColumnStatistics]]:
    """The number of rows of a scan, and the statistics of these columns, by one aggregation of Spark's."""
    if not names:
        return scan.count(), {}
    types = [scan.state.schema.field(name).type for name in names]
    aggregates: list[Column] = [F.count(F.lit(1))]
    for name, data_type in zip(names, types, strict=True):
        aggregates += _aggregates(F.col(quoted(name)), data_type)
    frame = scan.select(names).to_spark()
    with spark_errors(f"analyzing table '{scan.state.name}'"):
        row = list(frame.agg(*aggregates).collect()[0])
    facts = {}
    for i, (name, data_type) in enumerate(zip(names, types, strict=True)):
        nulls, distinct, low, high, average, most = row[1 + 6 * i : 7 + 6 * i]
        facts[name] = ColumnStatistics(
            distinct, _padded(low, data_type), _padded(high, data_type), nulls, average, most
        )
    return int(row[0]), facts


def _aggregates(column: Column, kind: DataType) -> list[Column]:
    data_type = analyzed_type(kind)
    assert data_type is not None
    nothing = F.lit(None).cast(T.LongType())
    nulls = F.count(F.lit(1)) - F.count(column)
    distinct = F.approx_count_distinct(column)
    size = value_length(data_type)
    if size is None:
        length = F.octet_length(column).cast(T.LongType())
        average = F.coalesce(F.ceil(F.avg(length)), F.lit(0).cast(T.LongType()))
        most = F.coalesce(F.max(length), F.lit(0).cast(T.LongType()))
        return [nulls, distinct, nothing.cast(T.StringType()), nothing.cast(T.StringType()), average, most]
    bounds = [_text(data_type.root, f(column)) for f in (F.min, F.max)]
    return [nulls, distinct, *bounds, *[F.lit(size).cast(T.LongType())] * 2]


def _text(root: Root, bound: Column) -> Column:
    """A value as Paimon's statistics have it: days for DATE, UTC for a moment, else as SQL writes it."""
    match root:
        case Root.DATE:
            bound = F.unix_date(bound)
        case Root.TIMESTAMP_LTZ:
            start = F.lit("1970-01-01 00:00:00").cast("timestamp_ntz")
            bound = F.timestamp_add("MICROSECOND", F.unix_micros(bound), start)
    return bound.cast(T.StringType())


def _padded(text: str | None, data_type: DataType) -> str | None:
    """A bound with as many digits of a second as its type has: Spark leaves out zeros at the end, Paimon does not."""
    if (
        text is None
        or not isinstance(data_type, AtomicType)
        or data_type.root not in (Root.TIMESTAMP, Root.TIMESTAMP_LTZ)
    ):
        return text
    whole, _, digits = text.partition(".")
    digits = digits.ljust(6 if data_type.precision is None else data_type.precision, "0")
    return f"{whole}.{digits}" if digits else whole


# --- sort compaction --------------------------------------------------------------------------------------------------

_SAMPLE_ROWS = 100_000
"""Enough to cut a column into thousands of even shares; they come to the driver."""


def sort_compact(
    context: EngineContext,
    table: FileStoreTable,
    state: TableState,
    entries: Sequence[ManifestEntry],
    scan: TableScan,
    strategy: str,
    columns: Sequence[str],
) -> Snapshot | None:
    """Rewrite the rows of files in another order; ``scan`` finds just the rows of ``entries``.

    Raises :class:`bitlake.errors.CommitConflict` if another writer changed them meanwhile.
    """
    if not entries:
        return None
    frame = SparkReader(context.spark, state.store).frame(scan.select(state.schema.field_names))
    order = _order(table.name, frame, strategy, columns, sum(e.file.row_count for e in entries))
    files = max(1, math.ceil(sum(e.file.file_size for e in entries) / target_file_size(state.schema)))
    files_written = SparkWriter(context.spark, state.store).write(state, frame, order=order, tasks=files)
    files_written = [replace(e, file=replace(e.file, file_source=FileSource.COMPACT)) for e in files_written]
    return commit_replacement(state, entries, files_written, table.publisher(state).user)


def _order(table: str, frame: DataFrame, strategy: str, columns: Sequence[str], rows: int) -> list[Column]:
    if strategy == "order":
        return [quoted_columns(c).asc_nulls_first() for c in columns]
    bits = bits_for(len(columns))
    chosen = frame.select(*[quoted_columns(c) for c in columns])
    with spark_errors(f"sampling table '{table}'"):
        share = min(1.0, _SAMPLE_ROWS / max(1, rows))
        sample = (chosen if share == 1.0 else chosen.sample(fraction=share, seed=1)).limit(2 * _SAMPLE_ROWS).toArrow()
    bounds = [bounds_of(sample.column(c).combine_chunks(), bits) for c in columns]
    curve = zorder if strategy == "zorder" else hilbert

    def place(*values: pa.Array) -> pa.Array:
        found = [ranks(v, b.cast(v.type), bits) for v, b in zip(values, bounds, strict=True)]
        return pa.array(curve(found, bits))

    call: Any = arrow_udf(place, T.LongType())  # type: ignore[call-overload]
    order: Column = call(*[quoted_columns(c) for c in columns])
    return [order.asc()]


# --- statements -------------------------------------------------------------------------------------------------------

Handler = Callable[[EngineContext, Any], DataFrame | pa.Table]

_HANDLERS: dict[type[Any], Handler] = {
    st.CreateView: query.create_view,
    st.MultiInsert: insert_all,
    st.DeleteFrom: delete,
    st.Update: update,
    st.MergeInto: merge,
    st.Explain: query.explain,
    st.Query: lambda context, statement: query.query(context, statement.text),
    st.DescribeQuery: query.describe_query,
    st.CacheTable: query.cache_table,
    st.UncacheTable: query.uncache_table,
    st.ClearCache: query.clear_cache,
    CopyIntoTable: copy_into_table,
    CopyIntoFolder: copy_into_folder,
}
"""Functions that carry out statements, besides :func:`bitlake.engine.engine.handlers`."""


class SparkRows:
    """The rows of a DataFrame, to be stored by Spark."""

    def __init__(self, context: EngineContext, frame: DataFrame) -> None:
        self._context = context
        self._frame = frame

    @property
    def columns(self) -> list[ColumnSpec]:
        """Columns of a table for these rows."""
        return insert.columns_of_frame(self._frame)

    def store(
        self, table: FileStoreTable, state: TableState, operation: str, overwrite: Overwrite | None = None
    ) -> int:
        """Write the rows, whose columns are the table's by position, and commit them; returns how many."""
        named = by_position(table.name, self._frame, state.schema.fields)
        return insert.store(self._context, table, state, named, operation, overwrite)

    def insert(self, insertion: Insertion) -> int:
        """Write the rows as an INSERT asks, and commit them; returns how many."""
        return insert.insert_frame(self._context, self._frame, insertion)


class _Context(EngineContext):
    """The session, with what Spark does by jobs over rows."""

    def place_postponed(
        self, publisher: Publisher, state: TableState, waiting: Mapping[bytes, Sequence[ManifestEntry]]
    ) -> Snapshot | None:
        """Write postponed rows into level 0 of their buckets and commit that in place of their files."""
        return place_postponed(self, publisher, state, waiting)

    def rewriter(self, table: FileStoreTable, where: str | None) -> Rewrite | None:
        """Return a function that overwrites a table, or chosen partitions, with their own rows."""

        def rewrite(state: TableState, overwrite: Overwrite) -> object:
            frame = table.scan_of(state, where).with_level_0().to_spark()
            if state.schema.primary_keys:
                changes = write_changes(self, table, state, frame, fresh=True)
                return table.publisher(state).publish(state, changes, operation="OVERWRITE", overwrite=overwrite)
            files = write_frame(self, table, state, frame)
            return table.commit_files(state, files, "OVERWRITE", overwrite)

        return rewrite

    def sort_compact(
        self,
        table: FileStoreTable,
        state: TableState,
        entries: Sequence[ManifestEntry],
        where: str | None,
        strategy: str,
        columns: Sequence[str],
    ) -> None:
        """Rewrite the rows of files, those that satisfy ``where``, in another order."""
        sort_compact(self, table, state, entries, table.scan_of(state, where), strategy, columns)

    def column_statistics(self, scan: TableScan, columns: Sequence[str]) -> tuple[int, dict[str, ColumnStatistics]]:
        """The number of rows of a scan, and statistics of these columns."""
        return column_statistics(scan, columns)

    def query_rows(self, text: SqlText) -> SparkRows:
        """The rows of a query."""
        return SparkRows(self, query.query(self, text))

    def scanned_rows(self, scan: TableScan) -> SparkRows:
        """The rows of a scan."""
        return SparkRows(self, scan.to_spark())

    def query_columns(self, text: SqlText) -> list[tuple[str, DataType]]:
        """The columns of a query: names, and types as a view keeps them."""
        return [(f.name, from_spark_field(f)) for f in query.query(self, text, computes=False).schema.fields]

    def spark_view(
        self, statement: st.CreateKeptView | st.AlterView | st.RenameView | st.DropView
    ) -> DataFrame | pa.Table:
        """Carry out a statement about a view of Spark's session or of Spark's own catalog."""
        if isinstance(statement, st.CreateKeptView):
            # Spark's own catalog may keep it, unless it reads lake tables.
            remedy = (
                f"a {self.catalog.kind} catalog has no views: use CREATE TEMPORARY VIEW, or connect with "
                "catalog='jdbc' or catalog='rest'"
            )
            return query.other(self, self.original, remedy)
        if isinstance(statement, st.AlterView):
            if statement.name.database is not None or not self.is_view(statement.name.table):
                return query.other(self, statement.text)
            return query.create_view(self, st.CreateView(statement.name.table, statement.query, replace=True))
        if isinstance(statement, st.RenameView):
            renamed = query.other(self, statement.text)
            follow_renamed(self, statement.name.table, statement.new_name.table)
            return renamed
        with spark_errors(f"dropping view '{statement.name}'"):
            return self.spark.sql(statement.text)

    def spark_views(self) -> list[tuple[str, str, bool]]:
        """Views of the session and of Spark's current database: namespace, name, whether it is temporary."""
        rows = self.spark_rows("SHOW VIEWS", "looking for views of the session")
        views = [(r["namespace"], r["viewName"], r["isTemporary"]) for r in rows]
        return [view for view in views if not view[1].startswith("__bitlake_")]

    def spark_rows(self, text: str, doing: str) -> list[Any]:
        """The rows of a statement about Spark's own catalog."""
        with spark_errors(doing):
            return self.spark.sql(text).collect()


_OTHER_SESSIONS = 8
"""Engines of other sessions that are kept."""


class SparkEngine:
    """Runs SQL text on a lake's tables and a session's views."""

    def __init__(self, catalog: Catalog, spark: SparkSession, state: SessionState) -> None:
        refuse_tables(spark)
        self.context = _Context(catalog, spark, state)
        self._others: list[SparkEngine] = []
        """The engines created last for other sessions."""

    @property
    def spark(self) -> SparkSession:
        """The session."""
        return self.context.spark

    def of_session(self, spark: SparkSession) -> SparkEngine:
        """The engine of a session, which alone finds its temporary views; Spark clones a session for each stream."""
        engines = [self, *self._others]
        engine = next((e for e in engines if is_same_session(e.spark, spark)), None)
        if engine is None:
            context = self.context
            engine = SparkEngine(context.catalog, spark, SessionState(context.database, context.timezone))
            self._others = [*self._others, engine][-_OTHER_SESSIONS:]
        return engine

    def sql(self, text: str, args: Args | None = None) -> DataFrame:
        """Run one statement; queries are lazy as in Spark, everything else has happened when this returns.

        ``args`` are the values of its parameters, by name or in order: Python's, or Spark's columns of literals.
        Raises a subclass of :class:`bitlake.errors.BitlakeError`, chosen by what the caller can do about it; nothing is
        half-done then.
        """
        if "${" in text and self._substitutes():
            text = substituted(self.spark, text)
        if args is not None:
            text = str(bind_parameters(text, self._literals(args)))
            if "${" in text and self._substitutes():  # in a value, which stays as it is
                text = text.replace("${", "\\u0024{")
        if names_token_function(text):
            register_functions(self.spark)

        def run(written: str) -> DataFrame:
            made = SqlText(written)  # read once, by both
            refresh(self.spark, made, query.create_view)
            return self._run(self.context.begin(made))

        with self._watched(text):
            return with_short_lists(text, run)

    def _substitutes(self) -> bool:
        """Whether Spark would substitute variables in a text that it gets from this process."""
        self.context.refresh()
        return self.context.classic and self.context.is_on("spark.sql.variable.substitute", default=True)

    def _literals(self, args: Any) -> Any:
        """Parameters' values, those that are Spark's columns as SQL text."""
        if isinstance(args, Mapping):
            return {name: self._literal(value) for name, value in args.items()}
        return [self._literal(value) for value in args] if isinstance(args, list | tuple) else args

    def _literal(self, value: Any) -> Any:
        if not isinstance(value, Column):
            return value
        with spark_errors("evaluating a parameter"):
            frame = self.spark.range(1).select(value)
            return SqlText(literal_of(frame.collect()[0][0], frame.schema[0].dataType))

    def _run(self, text: SqlText) -> DataFrame:
        statement = parse_statement(text, wall_clocks=self.context.wall_clocks)
        if not isinstance(statement, st.Query):
            refuse_markers(text, statement)
        if isinstance(statement, st.ExecuteImmediate):
            return self._run(self.context.begin(self._immediate(statement)))
        handler = _HANDLERS.get(type(statement)) or handlers().get(type(statement))
        if handler is not None:
            made = handler(self.context, statement)
            return self.context.frame(made) if isinstance(made, pa.Table) else made
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
        return prepare(self.context, statement.text).scans

    def frame(self, scan: TableScan) -> DataFrame:
        """A scan as a DataFrame."""
        return SparkReader(self.context.spark, scan.store).frame(scan)
