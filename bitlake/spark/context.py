"""The context of an SQL session over a lake: catalog, current database, views, session options and cached tables.

The session's settings are read once for each statement, because each look is a round trip to the JVM.

CACHE TABLE keeps a table's rows in Spark until the table changes (:class:`CachedTables`).

Options of the session (``spark.paimon.*``) and relations of a statement choose what a table stands for: its latest
state, a moment, or the changes between two moments (:func:`table_scan`, :func:`relation_scan`).
"""

from __future__ import annotations

import itertools
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from bitlake.catalog.catalog import Catalog, identifier_exists
from bitlake.catalog.identifier import Identifier
from bitlake.errors import InvalidRequest, NotFound
from bitlake.expressions.sql_text import quote, quoted
from bitlake.file_store_table import FileStoreTable
from bitlake.io import Store
from bitlake.metadata import options as opt
from bitlake.metadata.schema import Names
from bitlake.scan.fallback_branch import listed_entries
from bitlake.scan.scan import TableScan
from bitlake.schema.validation import check_honoured
from bitlake.snapshot.branches import MAIN
from bitlake.snapshot.partitions import max_partition
from bitlake.snapshot.state import TableState
from bitlake.snapshot.time_travel import When
from bitlake.spark.errors import spark_errors
from bitlake.spark.read.local_relation import held_frame, is_simple
from bitlake.spark.read.scan import SparkReader, is_lasting
from bitlake.spark.runner import SparkRunner
from bitlake.spark.session import SessionConf
from bitlake.spark.types import spark_arrow_schema
from bitlake.sql.parser import parse_table_name
from bitlake.sql.rewrite import expand_views, normalize, take_max_pt
from bitlake.sql.text import SqlText, TableName
from bitlake.sql.time_travel import Changes, Relation, take_relations
from bitlake.table.history import TableHistory
from bitlake.table.opening import open_table

_numbers = itertools.count()
_KEPT_VIEWS = 16
Columns = Mapping[str, type | T.DataType]
"""The columns of a small result with their types, Python's or Spark's."""
_SPARK_TYPES: dict[Any, Any] = {
    str: T.StringType(), int: T.LongType(), float: T.DoubleType(), bool: T.BooleanType()
}  # fmt: skip


class EngineContext:
    """State of one SQL session over a lake."""

    def __init__(self, catalog: Catalog, spark: SparkSession, database: str) -> None:
        self.catalog = catalog
        self.spark = spark
        self.database = database
        self._views: Any = None
        # The session owns them: it has the views of all lakes, and may outlive many.
        self._kept: OrderedDict[int, tuple[DataFrame, str]] = vars(spark).setdefault("_bitlake_views", OrderedDict())
        self._relations: dict[str, Relation] = {}
        self._moments: dict[str, TableScan] = {}
        self.conf = SessionConf(spark)
        self.cached = CachedTables(spark, catalog.store)
        self.original = SqlText("")
        """The text of the statement, as it came to :meth:`begin`."""
        self.timezone = "UTC"
        """The session's time zone, in which zone-less timestamp literals are read; as of :meth:`begin`."""

    def begin(self, text: str = "") -> SqlText:
        """Look at the session's settings once for a statement: each look is a round trip to the JVM.

        Returns the statement's text with a plain name for each moment of a table and each table function in it; these
        names are :meth:`scan`'s to resolve, until the next statement begins.
        """
        self.conf.refresh()
        self.timezone = self.conf.timezone
        self._moments, self._relations = {}, {}
        double_quoted = self.conf.is_true("spark.sql.ansi.doubleQuotedIdentifiers") and self.conf.is_true(
            "spark.sql.ansi.enabled", default=True
        )
        made = normalize(SqlText(text), self.database, double_quoted=double_quoted, evaluate=self.evaluate)
        self.original = made
        if self.catalog.keeps_views:
            made = expand_views(made, self.view, self.names)
        made = take_max_pt(made, self._max_pt)
        made, self._relations = take_relations(made, self.has, self.names)
        return made

    @property
    def names(self) -> Names:
        """How the session compares names, as of :meth:`begin`."""
        return self.conf.names

    def evaluate(self, expression: str) -> str | None:
        """The text of a constant expression of Spark's, session variables among them; None for NULL.

        Raises :class:`InvalidRequest` for an expression that is not constant.
        """
        with spark_errors(f"evaluating {expression}"):
            value = self.spark.sql(f"SELECT CAST(({expression}) AS STRING)").collect()[0][0]
        return None if value is None else str(value)

    def view(self, name: TableName) -> str | None:
        """The query of a view that the catalog keeps; None for other names, and one that a temporary view hides."""
        if name.catalog is not None or (name.database is None and self.is_view(name.table)):
            return None
        return self.catalog.find_view(Identifier(name.database or self.database, name.table))

    def _max_pt(self, given: str) -> str:
        """The greatest value of a table's first partition column, as text."""
        state = self.table(self.identify(parse_table_name(given))).state()
        return max_partition(state, listed_entries(state))

    def has(self, name: TableName) -> bool:
        """Whether a name is a lake table's, and no temporary view's, which would shadow it as it does in Spark."""
        if name.catalog is not None:
            return False
        if name.table in self._relations:
            return True
        if not identifier_exists(self.catalog, self.identify(name), self.names):
            return False
        return name.database is not None or not self.is_view(name.table)

    def scan(self, name: TableName) -> TableScan:
        """The rows that a name in a query stands for; of a moment the same ones throughout a statement."""
        relation = self._relations.get(name.table) if name.database is None else None
        if relation is None:
            identifier = self.identify(name)
            options = session_options(self, identifier.database, identifier.table)
            return table_scan(self, self.table(on_branch(identifier, options)), options)
        found = self._moments.get(name.table)
        if found is None:
            found = self._moments[name.table] = relation_scan(self, relation)
        return found

    def identify(self, name: TableName) -> Identifier:
        """The table's full name, in the current database unless it says another, by :attr:`names`."""
        if name.table in self._relations:
            raise InvalidRequest(
                f"'{self._relations[name.table].table}' AS OF an earlier moment, or its changes, can only be queried"
            )
        return self.catalog.find(Identifier(name.database or self.database, name.table), self.names)

    def table(self, name: Identifier) -> FileStoreTable:
        """The table; raises :class:`bitlake.errors.NotFound`."""
        reader = SparkReader(self.spark, self.catalog.store)
        return open_table(
            self.catalog,
            name,
            timezone=self.timezone,
            to_spark=reader.frame,
            runner=lambda: SparkRunner(self.spark),
            names=self.names,
        )

    def session_table(self, name: Identifier) -> FileStoreTable:
        """The table with the options that the session sets, for statements that write; time travel is for reading."""
        options = session_options(self, name.database, name.table)
        check_honoured({k: v for k, v in options.items() if k.startswith("write.")})
        table = self.table(on_branch(name, options))
        return table.with_options(writing_options(options)) if options else table

    @property
    def classic(self) -> bool:
        """Whether the session is in this process's JVM, and not on the other side of Spark Connect."""
        return getattr(self.spark, "_jsparkSession", None) is not None

    def over(self, frames: Sequence[DataFrame], text: Callable[[Sequence[str]], str]) -> DataFrame:
        """A query over frames, lazy; ``text`` makes it of the names under which it can name them, in order."""
        if self.classic:
            with self.views(frames) as names:
                return self.spark.sql(text(names))
        # Spark Connect looks views up when rows are asked for: the frames go with the query, in braces.
        names = [f"__bitlake_{next(_numbers)}_" for _ in frames]
        query = text(names)
        if names:
            query = query.replace("{", "{{").replace("}", "}}")
        for name in names:
            query = query.replace(name, f"{{{name}}}")
        given: dict[str, Any] = dict(zip(names, frames, strict=True))
        made = self.spark.sql(query, **given)
        _ = made.schema  # what is wrong is to be said now, as a classic session does
        return made

    @contextmanager
    def views(self, frames: Sequence[DataFrame]) -> Iterator[list[str]]:
        """Names under which a query can name these frames, in order, in the block.

        Frames of whole files keep theirs for the next query over the same files: making and dropping a view costs
        some 10 ms.
        """
        names: list[str] = []
        passing: list[tuple[DataFrame, str]] = []
        try:
            for frame in frames:
                kept = self._kept.get(id(frame))
                name = f"__bitlake_{next(_numbers)}" if kept is None else kept[1]
                if kept is None:
                    frame.createOrReplaceTempView(name)
                    if is_lasting(self.catalog.store.caches, frame):
                        self._kept[id(frame)] = (frame, name)
                    else:
                        passing.append((frame, name))
                else:
                    self._kept.move_to_end(id(frame))
                names.append(name)
            yield names
        finally:
            # A DataFrame over them is analysed by now and holds their plans itself; on Spark Connect it is not.
            for frame, name in passing:
                if self.classic:
                    self.spark.catalog.dropTempView(name)
                else:
                    self._kept[id(frame)] = (frame, name)
            # Not before: a query may name more views than are kept.
            while len(self._kept) > _KEPT_VIEWS:
                _, (_, old) = self._kept.popitem(last=False)
                self.spark.catalog.dropTempView(old)

    def is_view(self, name: str) -> bool:
        """Whether the session has a temporary view of this name."""
        session: Any = getattr(self.spark, "_jsparkSession", None)
        if session is None:
            shown = quoted(name)
            return self.spark.catalog.tableExists(shown) and self.spark.catalog.getTable(shown).isTemporary
        # Ten times quicker than tableExists(), which looks for a table too and fails in the JVM if there is none.
        if self._views is None:
            self._views = session.sessionState().catalog()
        return bool(self._views.getTempView(name).isDefined())

    def rows(self, columns: Columns, rows: Sequence[Sequence[Any]]) -> DataFrame:
        """A small result as a DataFrame."""
        schema = T.StructType([T.StructField(name, _SPARK_TYPES.get(kind, kind)) for name, kind in columns.items()])
        if not is_simple(schema):
            return self.spark.createDataFrame([tuple(r) for r in rows], schema)
        # Callers that only collect or show the result of a statement need not wait for a Spark job.
        arrow = spark_arrow_schema(schema)
        arrays = [pa.array([r[i] for r in rows], f.type) for i, f in enumerate(arrow)]
        return held_frame(self.spark, pa.Table.from_arrays(arrays, schema=arrow), schema)

    def nothing(self) -> DataFrame:
        """The empty result of a statement that returns none."""
        return held_frame(self.spark, pa.table({}), T.StructType([]))


# --- cached tables ----------------------------------------------------------------------------------------------------


class CachedTables:
    """The tables that a session cached.  One that was changed since is cached again by the next query that reads it."""

    def __init__(self, spark: SparkSession, store: Store) -> None:
        self._reader = SparkReader(spark, store)
        self._entries: dict[str, tuple[TableState, DataFrame]] = {}

    def add(self, scan: TableScan) -> DataFrame:
        """Cache all rows of a table; they are read when the frame that is returned first is."""
        self.remove(scan.state)
        frame = self._reader.frame(scan.select(scan.state.schema.field_names)).persist()
        self._entries[scan.state.name] = (scan.state, frame)
        return frame

    def remove(self, state: TableState) -> bool:
        """Free the rows of a table; returns whether it was cached."""
        entry = self._entries.pop(state.name, None)
        if entry is not None:
            entry[1].unpersist()
        return entry is not None

    def clear(self) -> None:
        """Free the rows of all tables."""
        for state, _ in list(self._entries.values()):
            self.remove(state)

    def frame(self, scan: TableScan) -> DataFrame | None:
        """The columns of a scan from the cache, all rows of them; None for what is not cached."""
        entry = self._entries.get(scan.state.name) if self._entries and type(scan) is TableScan else None
        if entry is None or not set(scan.columns) <= set(scan.state.schema.field_names):
            return None
        state, frame = entry
        if state != scan.state:
            if (scan.state.snapshot_id or 0, scan.state.schema.id) < (state.snapshot_id or 0, state.schema.id):
                return None  # an earlier moment
            frame = self.add(TableScan(scan.state, scan.store, scan.state.schema.field_names))
        return frame.select([frame[f"`{c.replace('`', '``')}`"] for c in scan.columns])


# --- options of the session -------------------------------------------------------------------------------------------

_CONF = "spark.paimon."
_READING = frozenset((opt.SCAN_IGNORE_CORRUPT.name, opt.SCAN_IGNORE_LOST.name))
_MOMENTS = {"scan.snapshot-id": "snapshot", "scan.tag-name": "tag", "scan.version": "version"}


def session_options(context: EngineContext, database: str, table: str) -> dict[str, str]:
    """The table options that the session sets: ``spark.paimon.<option>``, those of catalog.database.table above."""
    if not context.conf.paimon:
        return {}
    every: dict[str, str] = {}
    own: dict[str, str] = {}
    for name, value in context.conf.paimon.items():
        key = name.removeprefix(_CONF)
        parts = key.split(".", 3)
        if len(parts) == 4 and (parts[0] == "*" or parts[0] in ("bitlake", "paimon")):
            if parts[1] in ("*", database) and parts[2] in ("*", table):
                own[parts[3]] = value
        else:
            every[key] = value
    return {**every, **own}


def on_branch(name: Identifier, options: Mapping[str, str]) -> Identifier:
    """The table, or the branch of it that the session's option ``branch`` chooses."""
    branch = options.get("branch", MAIN)
    return name if branch == MAIN or "$" in name.table else Identifier(name.database, f"{name.table}$branch_{branch}")


def table_scan(context: EngineContext, table: FileStoreTable, options: Mapping[str, str]) -> TableScan:
    """A scan of a table with options of the session: a moment, changes, or options of reading."""
    if not options:
        return table.scan()
    asked = {_MOMENTS[k]: v for k, v in options.items() if k in _MOMENTS}
    if "snapshot" in asked and not asked["snapshot"].strip().isdigit():
        raise InvalidRequest(f"option 'scan.snapshot-id' = '{asked['snapshot']}' is not allowed; it takes a number")
    time: int | None = None
    if "scan.timestamp-millis" in options:
        time = _number(options, "scan.timestamp-millis")
    elif "scan.timestamp" in options:
        time = _time(context, options["scan.timestamp"])
    version: int | str | None = asked.get("version")
    if "scan.watermark" in options:
        version = f"watermark-{_number(options, 'scan.watermark')}"
    when = When(int(asked["snapshot"]) if "snapshot" in asked else None, asked.get("tag"), time, version)
    mode = options.get("incremental-between-scan-mode", "auto").strip().lower()
    between = options.get("incremental-between")
    by_time = options.get("incremental-between-timestamp")
    if between is not None or by_time is not None:
        start, comma, end = (between or by_time or "").partition(",")
        if when != When() or not comma or (between is not None and by_time is not None):
            raise InvalidRequest(f"table '{table.name}': incremental-between takes 'start,end', and no moment beside")
        if between is not None:
            return table.changes(start.strip(), end.strip(), mode=mode, kinds=False)
        return table.changes_by_time(_time(context, start), _time(context, end), mode=mode, kinds=False)
    try:
        state = table.at(when)
    except NotFound as e:
        raise NotFound(f"{e}; the session's options ask for it ({_CONF}…)") from e
    ignored = {k: v for k, v in options.items() if k in _READING}
    scan = table.scan_of(state.with_options({**writing_options(options), **ignored}))
    return scan.for_query(when, None if when == When() else table.state().schema.options)


def writing_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options that are left when those that choose a state to read, or belong to Spark's writer, are taken away."""
    return {k: v for k, v in options.items() if not k.startswith(("scan.", "incremental-", "write.")) and k != "branch"}


def _number(options: Mapping[str, str], name: str) -> int:
    text = options[name].strip()
    if not text.lstrip("-").isdigit():
        raise InvalidRequest(f"option '{name}' = '{text}' is not allowed; it takes a number")
    return int(text)


# --- moments and changes that a statement names -----------------------------------------------------------------------

_PERIODS = (r"\d{4}-\d\d-\d\d", r"\d{8}", r"\d{4}-\d\d-\d\d \d\d", r"\d{8} \d\d", r"\d{4}-\d\d-\d\d \d\d:\d\d")
"""How Paimon names tags that it makes by the day, the hour or the minutes; text order is the order of time."""


def relation_scan(context: EngineContext, relation: Relation) -> TableScan:
    """The scan of a relation; raises :class:`NotFound` for tables, snapshots and tags that are not there."""
    table = context.table(context.identify(relation.table))
    if isinstance(relation, Changes):
        return _changes(context, table, relation)
    if relation.timestamp is not None:
        return table.scan(timestamp=_millis(context, relation.timestamp))
    return table.query_scan(When(version=relation.version))


def _changes(context: EngineContext, table: FileStoreTable, relation: Changes) -> TableScan:
    if relation.function == "paimon_incremental_to_auto_tag":
        return _to_tag(table, str(relation.arguments[0]))
    start, end = relation.arguments
    if relation.function == "paimon_incremental_query":
        return table.changes(_moment(table, start), _moment(table, end), kinds=False)
    return table.changes_by_time(_time(context, start), _time(context, end), kinds=False)


def _to_tag(table: FileStoreTable, tag: str) -> TableScan:
    period = next((p for p in _PERIODS if re.fullmatch(p, tag)), None)
    if period is None:
        raise InvalidRequest(f"table '{table.name}': '{tag}' is not the name of an automatic tag, such as '2024-12-04'")
    names = sorted(TableHistory(table).tags())
    earlier = [n for n in names if re.fullmatch(period, n) and n < tag]
    if tag not in names or not earlier:
        return table.scan().where("false")
    return table.changes(earlier[-1], tag, kinds=False)


def _moment(table: FileStoreTable, value: Any) -> int | str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise InvalidRequest(f"table '{table.name}': changes are between snapshot ids or tags, and not {value!r}")
    return value


def _time(context: EngineContext, value: Any) -> int:
    text = str(value).strip()
    if text.isdigit():
        return int(text)
    return _millis(context, quote(text))


def _millis(context: EngineContext, expression: str) -> int:
    """A time as Spark understands it, in ms since the epoch: numbers are seconds, text is in the session's zone."""
    with spark_errors(f"reading the time {expression}"):
        rows = context.spark.sql(f"SELECT unix_millis(CAST(({expression}) AS TIMESTAMP))").collect()
    millis = rows[0][0]
    if millis is None:
        raise InvalidRequest(f"AS OF takes a time, and {expression} is NULL")
    return int(millis)
