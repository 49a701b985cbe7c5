"""The session of SQL statements over a lake: catalog, current database, settings, and what a table's name stands for.

:class:`Session` carries statements out in this process.  Spark's session is a subclass of it, which overrides what
Spark does in another way, and what this process cannot do: the methods that raise :class:`NeedsSpark` here.

Options of the session (``spark.paimon.*``) and relations of a statement choose what a table stands for: its latest
state, a moment, or the changes between two moments (:func:`table_scan`, :func:`relation_scan`).  SET and RESET change
those settings that statements honour in this process.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import SqlglotError

from bitlake.catalog.catalog import Catalog, Identifier, identifier_exists
from bitlake.engine import SessionState
from bitlake.errors import BitlakeError, InvalidRequest, NotFound, UnsupportedFeature
from bitlake.expressions.folding import NotConstant, cast, constant
from bitlake.expressions.literal_lists import with_lists
from bitlake.expressions.sql_text import quote, quoted
from bitlake.file_store_table import FileStoreTable
from bitlake.formats.conform import fit_length, null_column
from bitlake.io.base import run_at_once
from bitlake.mergetree import dml
from bitlake.mergetree.commit import Publisher
from bitlake.mergetree.rescale import Rewrite
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.schema import Names
from bitlake.metadata.snapshot import Snapshot
from bitlake.runtime import Executors, LocalRunner, Runner
from bitlake.scan.fallback_branch import listed_entries
from bitlake.scan.scan import TableScan, ToSpark
from bitlake.schema.create import ColumnSpec
from bitlake.schema.validation import check_honoured
from bitlake.snapshot.branches import MAIN
from bitlake.snapshot.partitions import max_partition
from bitlake.snapshot.state import TableState
from bitlake.snapshot.tags import earlier_automatic_tag
from bitlake.snapshot.time_travel import When
from bitlake.sql import statements as st
from bitlake.sql.analyzer import QueryAnalysis, analyse_query, narrowed
from bitlake.sql.ddl import type_to_ddl
from bitlake.sql.parser import parse_table_name
from bitlake.sql.rewrite import expand_views, normalize, take_max_pt
from bitlake.sql.table_references import find_names
from bitlake.sql.text import QUOTED, SqlNull, SqlText, SqlTime, TableName
from bitlake.sql.time_travel import Changes, Relation, take_relations
from bitlake.table import open_table
from bitlake.table.history import TableHistory
from bitlake.types import AtomicType, DataField, DataType, Root, arrow_type, time_zone
from bitlake.types.arrow import physical_values
from bitlake.types.time_zone import zone
from bitlake.write.commit_plan import Overwrite

if TYPE_CHECKING:
    from bitlake.write.analyze import ColumnStatistics

Columns = Mapping[str, type | pa.DataType]
"""The columns of a small result with their types, Python's or Arrow's."""
_ARROW_TYPES: dict[Any, pa.DataType] = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
TIME_ZONE = "spark.sql.session.timeZone"
COUNTS: Columns = {"num_affected_rows": int, "num_inserted_rows": int}
"""The result of a statement that writes rows."""
CASE_SENSITIVE = "spark.sql.caseSensitive"
_STRING_SETTINGS = {
    "spark.sql.legacy.consecutiveStringLiterals.enabled": ("''", '""'),
    "spark.sql.parser.escapedStringLiterals": ("\\",),
}
"""Settings that change the value of string literals which contain one of these."""
TIMESTAMP_TYPE = "spark.sql.timestampType"
PARTITION_OVERWRITE = "spark.sql.sources.partitionOverwriteMode"
OPTION = "spark.paimon."
"""The settings that are options of tables begin so."""


class NeedsSpark(UnsupportedFeature):
    """A statement, or a part of it, that this process cannot carry out alone; nothing was changed."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} needs Spark: use engine='spark'")


def result(columns: Columns, rows: Sequence[Sequence[Any]]) -> pa.Table:
    """A small result."""
    schema = pa.schema([(name, _ARROW_TYPES.get(kind, kind)) for name, kind in columns.items()])
    return pa.Table.from_arrays([pa.array([r[i] for r in rows], f.type) for i, f in enumerate(schema)], schema=schema)


def nothing() -> pa.Table:
    """The empty result of a statement that returns none."""
    return pa.table({})


def counts(**rows: int) -> pa.Table:
    """Return a statement's result: numbers of rows by name."""
    schema = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in rows])
    return pa.table({name: [count] for name, count in rows.items()}, schema)


def exact_value(table: str, column: DataField, value: Any, timezone: str) -> pa.Array:
    """One constant as a column's value, cast as Spark does; raises :class:`NeedsSpark` where that is not certain."""
    wanted = arrow_type(column.type)
    if value is None:
        return null_column(1, wanted)
    try:
        if not isinstance(column.type, AtomicType):
            raise NotConstant
        text = column.type.root in (Root.CHAR, Root.VARCHAR)
        kind = exp.DataType.build("STRING" if text else type_to_ddl(column.type), dialect="spark")
        return pa.array([cast(value, kind, timezone)], wanted)
    except (NotConstant, ValueError, ArithmeticError, SqlglotError, pa.ArrowException) as e:
        raise NeedsSpark(f"table '{table}', column '{column.name}': the cast of {value!r} to {column.type}") from e


class Session:
    """A session of SQL statements over a lake."""

    picks_rows = False
    """Whether the engine gains from rows that indexes choose in files that it reads anyway."""

    def __init__(self, catalog: Catalog, state: SessionState, to_spark: ToSpark | None = None) -> None:
        self.catalog = catalog
        self.state = state
        self.original = SqlText("")
        """The text of the statement, as it came to :meth:`begin`."""
        self._to_spark = to_spark
        self._relations: dict[str, Relation] = {}
        self._moments: dict[str, TableScan] = {}
        self._written: set[Identifier] = set()
        self._existing: dict[TableName, Identifier] = {}
        """The tables that :meth:`has` found, by name; they stay in the statement, also if it drops and creates them."""

    @property
    def database(self) -> str:
        """The current database."""
        return self.state.database

    @database.setter
    def database(self, name: str) -> None:
        self.state.database = name

    # --- a statement's text ------------------------------------------------------------------------------------------

    def begin(self, text: str = "") -> SqlText:
        """Look at the session's settings once for a statement.

        Returns the statement's text with a plain name for each moment of a table and each table function in it; these
        names are :meth:`scan`'s to resolve, until the next statement begins.
        """
        self.refresh()
        self._moments, self._relations, self._written, self._existing = {}, {}, set(), {}
        double_quoted = self.is_on("spark.sql.ansi.doubleQuotedIdentifiers") and self.is_ansi
        written = SqlText(text)
        self._check_string_literals(written)
        made = normalize(
            written,
            self.database,
            double_quoted=double_quoted,
            wall_clocks=self.wall_clocks,
            evaluate=self.evaluate,
        )
        self.original = made
        if self.catalog.keeps_views:
            made = expand_views(made, self.view, self.names)
        made = take_max_pt(made, self._max_pt)
        made, self._relations = take_relations(made, self.has, self.names)
        return made

    def _check_string_literals(self, text: SqlText) -> None:
        for setting, changed in _STRING_SETTINGS.items():
            if not self.is_on(setting):
                continue
            whole = SqlText(with_lists(text))
            for token in whole.tokens:
                if token.token_type in QUOTED and any(part in whole.raw(token)[1:-1] for part in changed):
                    raise UnsupportedFeature(
                        f"with '{setting}' = true, Spark reads {whole.raw(token)} as another text than bitlake does; "
                        "set it to false"
                    )

    def _max_pt(self, given: str) -> str:
        """The greatest value of a table's first partition column, as text."""
        state = self.table(self.identify(parse_table_name(given))).state()
        return max_partition(state, listed_entries(state))

    def evaluate(self, expression: str) -> str | None:
        """The text of a constant expression, session variables among them; None for NULL.

        Raises :class:`InvalidRequest` for an expression that is not constant.
        """
        raise NeedsSpark(f"the expression {expression}")

    # --- settings ----------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Look at the settings, where they are another session's."""
        if self.state.spark is not None:
            self.state.spark.refresh()

    @property
    def settings(self) -> Mapping[str, str]:
        """The settings that are not at their defaults, as of :meth:`begin`."""
        return self.state.settings if self.state.spark is None else self.state.spark.settings

    @property
    def options(self) -> Mapping[str, str]:
        """The settings that begin with ``spark.paimon.``."""
        return {k: v for k, v in self.settings.items() if k.startswith(OPTION)}

    def is_on(self, name: str, default: bool = False) -> bool:
        """A setting of true or false that was set, else the default."""
        return self.settings.get(name, str(default)).strip().lower() == "true"

    @property
    def is_ansi(self) -> bool:
        """Whether expressions follow ANSI SQL: ``spark.sql.ansi.enabled``, which is true by default.

        Where it is not set, the variable SPARK_ANSI_SQL_MODE=false of the environment makes it false, as in Spark.
        """
        return self.is_on("spark.sql.ansi.enabled", default=os.environ.get("SPARK_ANSI_SQL_MODE") != "false")

    @property
    def matches_engine(self) -> bool:
        """Whether this process evaluates terms as the engine does: in ANSI mode, and by the same time zone rules."""
        return self.is_ansi

    @property
    def timezone(self) -> str:
        """The time zone in which literals of time without a zone are read."""
        return self.settings.get(TIME_ZONE, self.state.timezone)

    @property
    def literal_zone(self) -> str:
        """The time zone for literals that this process evaluates; ``ENGINE_ONLY`` if the engine's rules for it differ.

        Conditions on such literals are then left to the engine.
        """
        return self.timezone

    @property
    def wall_clocks(self) -> bool:
        """Whether the type TIMESTAMP is TIMESTAMP_NTZ."""
        return self.settings.get(TIMESTAMP_TYPE, "").strip().upper() == "TIMESTAMP_NTZ"

    @property
    def names(self) -> Names:
        """How the session compares names."""
        return Names.EXACT if self.is_on(CASE_SENSITIVE) else Names.FOLDED

    def set(self, name: str, value: str | None) -> None:
        """Change a setting; None for its default."""
        if self.state.spark is not None:
            self.state.spark.set(name, value)
        elif value is None:
            self.state.settings.pop(name, None)
        else:
            self.state.settings[name] = value

    # --- names -------------------------------------------------------------------------------------------------------

    def is_view(self, name: str) -> bool:
        """Whether the session has a temporary view of this name."""
        return self.state.spark is not None and self.state.spark.is_view(name)

    def is_temporary(self, name: TableName) -> bool:
        """Whether a name means a temporary view of the session."""
        return name.catalog is None and name.database is None and self.is_view(name.table)

    def view(self, name: TableName) -> str | None:
        """The query of a view that the catalog keeps; None for other names, and one that a temporary view hides."""
        if name.catalog is not None or (name.database is None and self.is_view(name.table)):
            return None
        if self.has(name):  # most names are tables', and this lookup is cached for the statement
            return None
        view = self.catalog.find_view(Identifier(name.database or self.database, name.table))
        return None if view is None else view.query

    def has(self, name: TableName) -> bool:
        """Whether a name is a lake table's, and no temporary view's, which would shadow it as it does in Spark."""
        if name.catalog is not None:
            return False
        if name.table in self._relations:
            return True
        if name not in self._existing:
            identifier, exists = self.catalog.find_existing(
                Identifier(name.database or self.database, name.table), self.names
            )
            if not exists and not ("$" in identifier.table and identifier_exists(self.catalog, identifier, self.names)):
                return False
            self._existing[name] = identifier
        return name.database is not None or not self.is_view(name.table)

    def scan(self, name: TableName) -> TableScan:
        """The rows that a name in a query stands for; of a moment the same ones throughout a statement.

        Of a table that the statement writes they are the latest (:func:`bitlake.mergetree.dml.latest_rows`).
        """
        relation = self._relations.get(name.table) if name.database is None else None
        if relation is None:
            identifier = self.identify(name)
            options = session_options(self, identifier.database, identifier.table)
            exists = name in self._existing and "$" not in identifier.table
            scan = table_scan(self, self.table(on_branch(identifier, options), exists=exists), options)
            at_moment = any(k.startswith(_CHOOSING) for k in options)
            return dml.latest_rows(scan) if identifier in self._written and not at_moment else scan
        moment = self._moments.get(name.table)
        if moment is None:
            moment = self._moments[name.table] = relation_scan(self, relation)
        return moment

    def identify(self, name: TableName) -> Identifier:
        """The table's full name, in the current database unless it says another, by :attr:`names`."""
        if name.table in self._relations:
            raise InvalidRequest(
                f"'{self._relations[name.table].table}' AS OF an earlier moment, or its changes, can only be queried"
            )
        known = self._existing.get(name)
        return known or self.catalog.find(Identifier(name.database or self.database, name.table), self.names)

    def identify_table(self, name: TableName) -> Identifier:
        """As :meth:`identify`, in a statement that takes tables alone.

        Raises :class:`InvalidRequest` for a temporary view, which hides a table of its name, as in Spark.
        """
        if self.is_temporary(name):
            table = quoted(self.database, name.table)
            raise InvalidRequest(f"'{name}' is a temporary view, and the statement takes a table: {table} is one")
        return self.identify(name)

    def identify_written(self, name: TableName, *, created: bool = False) -> Identifier:
        """As :meth:`identify_table`, of a table that the statement writes: its queries then read the latest rows.

        ``created``: a temporary view may have the name.
        """
        identifier = self.identify(name) if created else self.identify_table(name)
        self._written.add(identifier)
        return identifier

    def table(self, name: Identifier, exists: bool = False) -> FileStoreTable:
        """The table; raises :class:`bitlake.errors.NotFound`.  ``exists``: it was just found to."""
        return open_table(
            self.catalog,
            name,
            timezone=self.timezone,
            to_spark=self._to_spark,
            runner=self.runner,
            executors=self.executors,
            names=self.names,
            exists=exists,
        )

    def session_table(self, name: Identifier) -> FileStoreTable:
        """The table with the options that the session sets, for statements that write; time travel is for reading."""
        options = session_options(self, name.database, name.table)
        check_honoured({k: v for k, v in options.items() if k.startswith("write.")})
        table = self.table(on_branch(name, options))
        return table.with_options(writing_options(options)) if options else table

    def check_meaning(self) -> None:
        """Raise :class:`NeedsSpark` if the session gives expressions another meaning than Spark's default, ANSI's."""
        if not self.is_ansi:
            is_set = "spark.sql.ansi.enabled" in self.settings
            reason = "'spark.sql.ansi.enabled' = false" if is_set else "SPARK_ANSI_SQL_MODE=false"
            raise NeedsSpark(f"an expression with {reason}")

    def scans(self, text: SqlText) -> tuple[QueryAnalysis, tuple[TableScan, ...]]:
        """Return a scan for each lake table of a query, in the order of its text; nothing is read."""
        scans: dict[TableName, TableScan] = {}

        def resolve(name: TableName) -> Sequence[DataField] | None:
            if name not in scans:
                if not self.has(name):
                    return None
                scans[name] = self.scan(name)
            return scans[name].state.schema.fields

        self._load_together(text, resolve)
        patterns = self.is_on("spark.sql.parser.quotedRegexColumnNames")
        analysis = analyse_query(
            text,
            resolve,
            self.literal_zone,
            quoted_patterns=patterns,
            names=self.names,
            caches=self.catalog.store.caches,
        )
        return analysis, tuple(narrowed(use, scans[use.name], self.literal_zone) for use in analysis.tables)

    def _load_together(self, text: SqlText, resolve: Callable[[TableName], object]) -> None:
        """Load a query's tables at the same time, where they are remote: each takes four requests in three steps."""
        if self.catalog.store.local_path(self.catalog.warehouse) is not None:
            return

        def load(name: TableName) -> None:
            with contextlib.suppress(BitlakeError):  # raised again where the query needs the table
                resolve(name)

        names = {use.name for use in find_names(text, self.names) if not use.shadowed}
        plain = [name for name in names if name.catalog is None and "/" not in name.table]
        if len(plain) > 1:
            run_at_once([partial(load, name) for name in plain])

    # --- work --------------------------------------------------------------------------------------------------------

    @property
    def executors(self) -> Callable[[], Executors] | None:
        """Makes what decodes very many manifests for scans; None: this process does."""
        return None

    def runner(self, workers: int | None = None) -> Runner:
        """Runs heavy work, as much at a time as asked for."""
        return LocalRunner(workers)

    def partition_spec(self, state: TableState, given: Mapping[str, Any] | None) -> dict[str, Any]:
        """A PARTITION clause by the schema's own names; raises :class:`InvalidRequest` for other columns."""
        keys = {self.names.key(k): k for k in state.schema.partition_keys}
        spec: dict[str, Any] = {}
        for name, value in (given or {}).items():
            key = keys.get(self.names.key(name))
            if key is None:
                have = ", ".join(keys.values()) or "none"
                raise InvalidRequest(f"table '{state.name}': '{name}' is not a partition column; they are: {have}")
            if key in spec:
                raise InvalidRequest(f"table '{state.name}': partition column '{key}' is given twice")
            spec[key] = value
        return spec

    def whole_partition(self, state: TableState, given: Mapping[str, Any] | None) -> dict[str, Any]:
        """The physical values of all partition columns, in key order; raises :class:`InvalidRequest` if one lacks."""
        spec = self.partition_spec(state, given)
        missing = [k for k in state.schema.partition_keys if spec.get(k) is None]
        if missing or not spec:
            lacks = f"'{missing[0]}' has none" if missing else "the table is not partitioned"
            raise InvalidRequest(
                f"table '{state.name}': PARTITION needs a value of every partition column, and {lacks}"
            )
        return self.partition_values(state, {k: spec[k] for k in state.schema.partition_keys})

    def partition_arrays(self, state: TableState, spec: Mapping[str, Any]) -> dict[str, pa.Array]:
        """Literals of a PARTITION clause, each as one value of its column, cast as Spark casts them."""

        def value(literal: Any) -> Any:
            if isinstance(literal, SqlTime):
                return literal.value(self.timezone)
            return None if isinstance(literal, SqlNull) else literal

        fields = [state.schema.field(k) for k in spec]
        return {
            f.name: exact_value(state.name, f, value(v), self.timezone)
            for f, v in zip(fields, spec.values(), strict=True)
        }

    def partition_values(self, state: TableState, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Literals of a PARTITION clause as the columns' own values (physical), padded as columns of CHAR are."""
        arrays = self.partition_arrays(state, spec)
        fields = map(state.schema.field, arrays)
        fitted = [fit_length(state.name, array, f) for array, f in zip(arrays.values(), fields, strict=True)]
        return {name: physical_values(array)[0] for name, array in zip(arrays, fitted, strict=True)}

    def millis(self, expression: str) -> int:
        """A time as Spark understands it, in ms since the epoch: numbers are seconds, text is in the session's zone."""
        tree = SqlText(expression).tree
        try:
            if tree is None:
                raise NotConstant
            value = constant(tree, self.timezone)
            if isinstance(value, int) and not isinstance(value, bool):
                return value * 1000
            at = cast(value, exp.DataType.build("TIMESTAMP", dialect="spark"), self.timezone)
        except (NotConstant, ValueError, ArithmeticError) as e:
            raise NeedsSpark(f"the time {expression}") from e
        if at is None:
            raise InvalidRequest(f"AS OF takes a time, and {expression} is NULL")
        return time_zone.micros_of(at) // 1000

    # --- what Spark does in another way, or alone --------------------------------------------------------------------

    def place_postponed(
        self, publisher: Publisher, state: TableState, waiting: Mapping[bytes, Sequence[ManifestEntry]]
    ) -> Snapshot | None:
        """Write postponed rows into level 0 of their buckets and commit that in place of their files."""
        return dml.place_postponed(publisher, state, waiting)

    def rewriter(self, table: FileStoreTable, where: str | None) -> Rewrite | None:
        """Return a function that overwrites a table, or chosen partitions, with their own rows; None: the core's."""
        if where is None:
            return None
        raise NeedsSpark(f"table '{table.name}': rescaling some partitions")

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
        raise NeedsSpark(f"table '{table.name}': sort compaction")

    def column_statistics(self, scan: TableScan, columns: Sequence[str]) -> tuple[int, dict[str, ColumnStatistics]]:
        """The number of rows of a scan, and statistics of these columns."""
        # Imported lazily: only ANALYZE needs it.
        from bitlake.write.analyze import scan_statistics

        return scan_statistics(scan, columns)

    def query_rows(self, text: SqlText) -> Rows:
        """The rows of a query."""
        raise NeedsSpark(f"the query {text}")

    def scanned_rows(self, scan: TableScan) -> Rows:
        """The rows of a scan."""
        raise NeedsSpark(f"copying table '{scan.state.name}'")

    def query_columns(self, text: SqlText) -> list[tuple[str, DataType]]:
        """The columns of a query: names, and types as a view keeps them."""
        return [(column.name, column.type) for column in self.query_rows(text).columns]

    def spark_view(self, statement: st.CreateKeptView | st.AlterView | st.RenameView | st.DropView) -> Any:
        """Carry out a statement about a view of Spark's session or of Spark's own catalog."""
        raise NeedsSpark(f"view '{statement.name}', which the lake's catalog does not keep,")

    def spark_views(self) -> list[tuple[str, str, bool]]:
        """Views of Spark's session and of its current database: namespace, name, whether it is temporary."""
        return [] if self.state.spark is None else self.state.spark.spark_views()

    def spark_rows(self, text: str, doing: str) -> list[Any]:
        """The rows of a statement about Spark's own catalog."""
        raise NeedsSpark(doing)


class Rows(Protocol):
    """The rows of a query, to be stored."""

    @property
    def columns(self) -> list[ColumnSpec]:
        """Columns of a table for these rows."""

    def store(
        self, table: FileStoreTable, state: TableState, operation: str, overwrite: Overwrite | None = None
    ) -> int:
        """Write the rows, whose columns are the table's by position, and commit them; returns how many."""

    def insert(self, insertion: Any) -> int:
        """Write the rows as a :class:`bitlake.engine.insert.Insertion` asks, and commit them; returns how many."""


# --- options of the session -------------------------------------------------------------------------------------------

_READING = frozenset((opt.SCAN_IGNORE_CORRUPT.name, opt.SCAN_IGNORE_LOST.name))
_CHOOSING = ("scan.", "incremental-")
"""Options that choose a state to read begin so."""
_UNSUPPORTED = ("scan.creation-time-millis", "scan.file-creation-time-millis")
"""Options of these that bitlake does not support."""
_MODES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("full", "latest", "latest-full"), ()),
    "from-timestamp": ("scan.timestamp", "scan.timestamp-millis"),
    "from-snapshot": ("scan.snapshot-id", "scan.tag-name", "scan.version", "scan.watermark"),
    "from-snapshot-full": ("scan.snapshot-id",),
    "incremental": ("incremental-between", "incremental-between-timestamp", "incremental-to-auto-tag"),
}
"""Values of ``scan.mode``, each with the options of which it needs one; the first three exclude all of them."""
_MOMENTS = {"scan.snapshot-id": "snapshot", "scan.tag-name": "tag", "scan.version": "version"}


def session_options(session: Session, database: str, table: str) -> dict[str, str]:
    """The table options that the session sets: ``spark.paimon.<option>``, those of catalog.database.table above."""
    if not session.options:
        return {}
    every: dict[str, str] = {}
    own: dict[str, str] = {}
    for name, value in session.options.items():
        key = name.removeprefix(OPTION)
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


def table_scan(session: Session, table: FileStoreTable, options: Mapping[str, str]) -> TableScan:
    """A scan of a table with options of the session: a moment, changes, or options of reading."""
    if not options:
        return table.scan()
    moment = {_MOMENTS[k]: v for k, v in options.items() if k in _MOMENTS}
    if "snapshot" in moment and not moment["snapshot"].strip().isdigit():
        raise InvalidRequest(f"option 'scan.snapshot-id' = '{moment['snapshot']}' is not allowed; it takes a number")
    time: int | None = None
    if "scan.timestamp-millis" in options:
        time = _number(options, "scan.timestamp-millis")
    elif "scan.timestamp" in options:
        time = _time(session, options["scan.timestamp"])
    version: int | str | None = moment.get("version")
    if "scan.watermark" in options:
        version = f"watermark-{_number(options, 'scan.watermark')}"
    when = When(int(moment["snapshot"]) if "snapshot" in moment else None, moment.get("tag"), time, version)
    _check_chosen(table, options)
    changes = _changes_of_session(session, table, options, when != When())
    if changes is not None:
        return changes
    try:
        state = table.at(when)
    except NotFound as e:
        raise NotFound(f"{e}; the session's options ask for it ({OPTION}…)") from e
    ignored = {k: v for k, v in options.items() if k in _READING}
    scan = table.scan_of(state.with_options({**writing_options(options), **ignored}))
    return scan.for_query(when, None if when == When() else table.state().schema.options)


def _check_chosen(table: FileStoreTable, options: Mapping[str, str]) -> None:
    """Raise :class:`UnsupportedFeature` for an option that chooses rows and is not supported.

    Raises :class:`InvalidRequest` for a ``scan.mode`` that the other options contradict.
    """
    mode = options.get("scan.mode", "default").strip().lower().replace("_", "-")
    for name in (*_UNSUPPORTED, *(() if mode in ("default", *_MODES) else ("scan.mode",))):
        if name in options:
            raise UnsupportedFeature(
                f"table '{table.name}': this version of bitlake does not support the session's option '{name}' = "
                f"'{options[name]}'; RESET it ({OPTION}…{name}), and give the query VERSION AS OF or TIMESTAMP AS OF"
            )
    if mode == "default":
        return
    chosen = {name for names in _MODES.values() for name in names if name in options}
    if (chosen and not _MODES[mode]) or (_MODES[mode] and not chosen & set(_MODES[mode])):
        needed = f"needs {' or '.join(_MODES[mode])}" if _MODES[mode] else f"excludes {', '.join(sorted(chosen))}"
        raise InvalidRequest(f"table '{table.name}': the session's option 'scan.mode' = '{mode}' {needed}")


def _changes_of_session(
    session: Session, table: FileStoreTable, options: Mapping[str, str], has_moment: bool
) -> TableScan | None:
    """The changes that options of the session ask for; None if they ask for none."""
    mode = options.get("incremental-between-scan-mode", "auto").strip().lower()
    between = options.get("incremental-between")
    by_time = options.get("incremental-between-timestamp")
    to_tag = options.get("incremental-to-auto-tag")
    given = [text for text in (between, by_time, to_tag) if text is not None]
    if not given:
        return None
    start, comma, end = (part.strip() for part in given[0].partition(","))
    if has_moment or len(given) > 1 or (to_tag is None and not comma):
        raise InvalidRequest(
            f"table '{table.name}': the session may set one of incremental-between = 'start,end', "
            "incremental-between-timestamp = 'start,end' and incremental-to-auto-tag = 'tag', and beside it no option "
            "that chooses a snapshot, tag or time"
        )
    if to_tag is not None:
        return _to_tag(table, to_tag.strip())
    if by_time is not None:
        return table.changes_by_time(_time(session, start), _time(session, end), mode=mode, kinds=False)
    as_snapshots = options.get("incremental-between-tag-to-snapshot", "false").strip().lower() == "true"
    tags = TableHistory(table).tags() if as_snapshots else {}
    if start in tags and end in tags:
        return table.changes(tags[start].snapshot.id, tags[end].snapshot.id, mode=mode, kinds=False)
    return table.changes(start, end, mode=mode, kinds=False)


def writing_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options that are left when those that choose a state to read, or belong to Spark's writer, are taken away."""
    return {k: v for k, v in options.items() if not k.startswith((*_CHOOSING, "write.")) and k != "branch"}


def _number(options: Mapping[str, str], name: str) -> int:
    text = options[name].strip()
    if not text.lstrip("-").isdigit():
        raise InvalidRequest(f"option '{name}' = '{text}' is not allowed; it takes a number")
    return int(text)


# --- moments and changes that a statement names -----------------------------------------------------------------------


def relation_scan(session: Session, relation: Relation) -> TableScan:
    """The scan of a relation; raises :class:`NotFound` for tables, snapshots and tags that are not there."""
    table = session.table(session.identify(relation.table))
    if isinstance(relation, Changes):
        return _changes(session, table, relation)
    if relation.timestamp is not None:
        return table.scan(When(timestamp=session.millis(relation.timestamp)))
    return table.query_scan(When(version=relation.version))


def _changes(session: Session, table: FileStoreTable, relation: Changes) -> TableScan:
    if relation.function == "paimon_incremental_to_auto_tag":
        return _to_tag(table, str(relation.arguments[0]))
    start, end = relation.arguments
    if relation.function == "paimon_incremental_query":
        return table.changes(_moment(table, start), _moment(table, end), kinds=False)
    return table.changes_by_time(_time(session, start), _time(session, end), kinds=False)


def _to_tag(table: FileStoreTable, tag: str) -> TableScan:
    state = table.state()
    earlier = earlier_automatic_tag(state, tag)
    if earlier is not None:
        return table.changes(earlier, tag, kinds=False)
    # An empty range of snapshots, since a query's own condition would replace a condition that is false.
    last = state.snapshot_id
    return table.scan() if last is None else table.changes(last, last, kinds=False)


def _moment(table: FileStoreTable, value: Any) -> int | str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise InvalidRequest(f"table '{table.name}': changes are between snapshot ids or tags, and not {value!r}")
    return value


def _time(session: Session, value: Any) -> int:
    text = str(value).strip()
    if text.isdigit():
        return int(text)
    return session.millis(quote(text))


_ZONE = re.compile(r"SET\s+TIME\s+ZONE\s+'([^']*)'\s*", re.I)
_SET = re.compile(r"SET\s+`?(spark\.[^\s=`]+)`?\s*=(.*)", re.I | re.S)
_RESET = re.compile(r"RESET\s+`?(spark\.[^\s`]+)`?\s*", re.I)
_VALUES = {CASE_SENSITIVE: ("true", "false"), PARTITION_OVERWRITE: ("static", "dynamic")}


def change_setting(session: Session, statement: st.Other) -> pa.Table:
    """SET name = value, SET TIME ZONE, RESET name; raises :class:`NeedsSpark` for all else that is Spark's."""
    text = statement.text.strip()
    reset, zoned, given = _RESET.fullmatch(text), _ZONE.fullmatch(text), _SET.fullmatch(text)
    if reset is not None and _is_honoured(reset[1]):
        session.set(reset[1], None)
        return nothing()
    if zoned is not None:
        name, value = TIME_ZONE, zoned[1]
    elif given is not None and _is_honoured(given[1]):
        name, value = given[1], given[2].strip()
    else:
        raise NeedsSpark(text[:60])
    _check(name, value)
    session.set(name, value)
    return result({"key": str, "value": str}, [(name, value)])


def _is_honoured(name: str) -> bool:
    return name.startswith(OPTION) or name in (TIME_ZONE, *_VALUES)


def _check(name: str, value: str) -> None:
    allowed = _VALUES.get(name)
    if allowed is not None and value.lower() not in allowed:
        raise InvalidRequest(f"'{name}' is {' or '.join(allowed)}, not '{value}'")
    if name == TIME_ZONE:
        zone(value)  # raises for one that is unknown
