"""Queries of Spark SQL, run by DuckDB in this process: no JVM is started.

Each table of a query is bound as the rows and columns that the query needs, planned with bitlake's indexes from the
whole WHERE, as for Spark; DuckDB runs the rest (:mod:`bitlake.sql.duckdb_translation`).

A table is bound (:func:`bind_scans`) as files for DuckDB's own Parquet reader, or as the scan.  DuckDB reads Parquet in
less time than it takes rows from Arrow (docs/benchmarks.md), and knows the number of rows, by which it orders joins.
It reads the planned files itself if their rows are the scan's:

* all rows of each file are read, or many rows side by side by the bounds of their pages: no deletion vector, no merging
  by key, no rows chosen by an index;
* the files are Parquet on local disk, under names without the characters of DuckDB's patterns;
* the query's columns are stored under their names, with the types that the table has now, and DuckDB has these types.

If some files do not qualify, these alone are a source, and a view is the union of both; the others must have enough
rows for that.
Rows that the scan's predicate excludes are filtered by the query, whose WHERE always stays in its text.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from bitlake.errors import REPORTED, BitlakeError, EvaluationFailed
from bitlake.formats.conform import rebased
from bitlake.formats.file_format import format_of
from bitlake.runtime import CacheName, Caches
from bitlake.scan.column_reader import FileTask, footer_of
from bitlake.scan.plan import PlannedFile
from bitlake.scan.reader import tasks_of
from bitlake.scan.scan import TableScan
from bitlake.schema.evolution import map_fields
from bitlake.sql import spark_types as ty
from bitlake.sql.analyzer import QueryAnalysis
from bitlake.sql.duckdb_functions import register_kernels
from bitlake.sql.duckdb_translation import Translation, today, translate
from bitlake.sql.duckdb_values import RULE_YEARS_SQL, NotTranslatable, identifier, text
from bitlake.sql.table_references import replace_tables
from bitlake.sql.text import Edit
from bitlake.types import DataField, arrow_type, time_zone

if TYPE_CHECKING:
    from bitlake.codec.hashing import Int64s
    from bitlake.types.time_zone import Offsets

_Columns = tuple[tuple[str, tuple[DataField, ...]], ...]
_Key = tuple[str, _Columns, str, tuple[str, ...] | None, dt.date | None]
_TRANSLATIONS: CacheName[_Key, Translation] = CacheName("translated queries")
"""By text, columns, zone, names of the result, and the date, which a text may ask for; one takes 3 to 10 ms to make."""
_ZONES: CacheName[tuple[str, str], bool] = CacheName("time zones")
"""Whether DuckDB has other rules for a zone than a source."""
_OURS = re.compile(
    r"Invalid Input Error: reading the stream registered as '\w+' failed: \w+(?: error)?: (?P<message>.*)"
    r"\. Detail: Python exception: .*\nbitlake\.errors\.(?P<kind>\w+): .*",
    re.DOTALL,
)
"""DuckDB's text for an error of a scan: it has no other trace of the exception."""
_VECTOR = 2048
"""Rows of DuckDB's vectors."""
_VALUE_BYTES = 80
"""Bytes of a literal of a long list in memory, with its place in the list and its text."""


def translate_over(
    analysis: QueryAnalysis,
    fields: Sequence[Sequence[DataField]],
    database: str,
    timezone: str,
    caches: Caches,
    edits: Sequence[Edit] = (),
    names: Sequence[str] | None = None,
) -> tuple[Translation, tuple[str, ...]]:
    """A query in DuckDB's SQL over tables with these columns, in the order of its tables; and the tables' names in it.

    ``edits`` change the text beside its tables, and ``names`` are then those of the result.
    Raises :class:`NotTranslatable`.
    """
    tables = _unused_names(str(analysis.text), len(fields))
    replaced = replace_tables(analysis.text, analysis.tables, tables, database, edits=edits)
    columns = dict(zip(tables, map(tuple, fields), strict=True))
    called = None if names is None else tuple(names)
    key = (str(replaced), tuple(columns.items()), timezone, called, today(timezone))
    translation = caches[_TRANSLATIONS].get_or(key, lambda: translate(replaced, columns, timezone, called), _memory)
    return translation, tables


def _memory(query: Translation) -> int:
    values: int = sum(t.num_rows * t.num_columns for t in query.lists.values())
    return 1000 + 4 * len(query.sql) + _VALUE_BYTES * values


def import_duckdb() -> Any:
    """The ``duckdb`` module; raises :class:`InvalidRequest` where it is not installed."""
    # Imported lazily: Arrow's datasets take 0.1 s, and what metadata answer needs none.
    from bitlake.scan import dataset

    return dataset.import_duckdb()


def run(query: Translation, tables: Mapping[str, TableScan | pa.Table], timezone: str, caches: Caches) -> Any:
    """A translated query over tables as a DuckDB relation, which is evaluated when rows are fetched.

    DuckDB gives columns of one name a number.  Raises :class:`NotTranslatable` where types would differ from Spark's.
    """
    rules = partial(time_zone.offsets_of_instants, timezone)
    if needs_zone_rules(query) and zone_differs(timezone, "this system", lambda: rules, caches):
        raise NotTranslatable(timezone, "DuckDB and this system have other rules for this time zone")
    return _evaluated(_connection(timezone, caches), query, tables)


def needs_zone_rules(query: Translation) -> bool:
    """Whether a query makes dates or clocks of instants."""
    return RULE_YEARS_SQL in query.sql


def zone_differs(timezone: str, source: str, rules: Callable[[], Offsets], caches: Caches) -> bool:
    """Return whether DuckDB has other rules for a zone than a source, whose name says which; compared once."""
    if time_zone.is_fixed(timezone):
        return False
    connection = _connection(timezone, caches, limited=True)

    def ours(instants: Int64s) -> Int64s:
        times = pa.table({"t": pa.array(instants).cast(pa.timestamp("us", "UTC"))})
        connection.register("lake_instants", times)
        try:
            made = connection.sql("SELECT epoch_us(CAST(t AS TIMESTAMP)) - epoch_us(t) AS o FROM lake_instants")
            offsets: Int64s = made.to_arrow_table().column("o").to_numpy()
        finally:
            connection.unregister("lake_instants")
        return offsets

    return caches[_ZONES].get_or((timezone, source), lambda: time_zone.rules_differ(ours, rules()), lambda _: 200)


def rows_within(
    query: Translation,
    tables: Mapping[str, TableScan | pa.Table],
    timezone: str,
    caches: Caches,
    most_rows: int,
    most_bytes: int,
    seconds: float,
) -> pa.Table | None:
    """The rows of a translated query; None for more than ``most_rows`` or bytes, and where they take too long.

    DuckDB can be interrupted between two vectors of rows only, so that it may take longer than ``seconds``.  It has at
    most :data:`LIMITED_MEMORY`.  Raises :class:`EvaluationFailed` and the errors of scans.
    """
    connection = _connection(timezone, caches, limited=True)
    done, late = threading.Event(), threading.Event()

    def interrupt() -> None:
        if not done.wait(seconds):
            late.set()
            while not done.wait(0.02):  # an interrupt between two steps of the query has no effect
                connection.interrupt()

    threading.Thread(target=interrupt, name="bitlake-query-limit", daemon=True).start()
    try:
        return _first_rows(_evaluated(connection, query, tables), most_rows, most_bytes, late)
    except (BitlakeError, import_duckdb().Error) as e:
        if late.is_set():
            return None
        if isinstance(e, BitlakeError):
            raise
        raise failed(e) from e
    finally:
        done.set()


def _first_rows(relation: Any, most_rows: int, most_bytes: int, late: threading.Event) -> pa.Table | None:
    """All rows of a relation; None if they are more, or ``late`` is set before the last."""
    batches: list[pa.RecordBatch] = []
    rows = size = 0
    reader = relation.to_arrow_reader(_VECTOR)
    for batch in reader:
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows > most_rows or size > most_bytes or late.is_set():
            return None
        batches.append(batch)
    return with_arrow_zones(pa.Table.from_batches(batches, reader.schema))


def _evaluated(connection: Any, query: Translation, tables: Mapping[str, TableScan | pa.Table]) -> Any:
    for name, values in query.lists.items():
        connection.register(name, values)
    scans = {name: t for name, t in tables.items() if isinstance(t, TableScan)}
    for name, table in tables.items():
        if name not in scans:
            connection.register(name, rebased(table))
    relation = _relation(connection, query, scans, bind_scans(connection, scans))
    for name, ours, sparks in zip(query.names, relation.types, query.types, strict=True):
        if sparks != ty.OPAQUE and str(ours) != sparks.duckdb:
            raise NotTranslatable(name, f"the column would be {ours}, which is {sparks.sql} in Spark")
    return relation


def _relation(connection: Any, query: Translation, scans: Mapping[str, TableScan], views: dict[str, DirectView]) -> Any:
    try:
        relation = _named(connection, f"({query.sql})", query.names, with_views(views))
    except import_duckdb().Error as e:
        unreadable = {name for name, view in views.items() if not can_read(connection, view)}
        if not unreadable:
            raise NotTranslatable(query.sql, f"DuckDB refuses it ({e})") from e
        for name in unreadable:
            register(connection, name, scans[name])
        return _relation(connection, query, scans, {n: v for n, v in views.items() if n not in unreadable})
    for name, view in views.items():
        if not view.mixed:
            scans[name].record("duckdb", was_read=False)
    return relation


def relation_of(table: pa.Table, timezone: str, caches: Caches) -> Any:
    """An Arrow table, in which columns may share a name, as a relation."""
    connection = _connection(timezone, caches)
    connection.register("answer", rebased(table.rename_columns([f"c{i}" for i in range(table.num_columns)])))
    return _named(connection, "answer", table.schema.names)


def _connection(timezone: str, caches: Caches, limited: bool = False) -> Any:
    duckdb = import_duckdb()
    connection = connect(caches, limited)
    try:
        connection.execute("SET TimeZone = ?", [_zone_name(timezone)])
    except duckdb.Error as e:
        raise NotTranslatable(timezone, "DuckDB has no such time zone") from e
    return connection


_OFFSET = re.compile(r"^GMT([+-]\d\d:\d\d)$")


def _zone_name(timezone: str) -> str:
    """Return DuckDB's name of a time zone.

    DuckDB accepts an offset only in the form ``GMT+02:00``.  ``fetchall`` looks the zone up in Python, which does not
    know that form, so offsets of whole hours are named ``Etc/GMT-2``, which both know.
    """
    zone = time_zone.zone(timezone)
    if not isinstance(zone, dt.timezone):
        return getattr(zone, "key", timezone)
    minutes, seconds = divmod(int(zone.utcoffset(None).total_seconds()), 60)
    if seconds:
        raise NotTranslatable(timezone, "DuckDB has no time zones with seconds")
    if not minutes:
        return "UTC"
    hours, rest = divmod(minutes, 60)
    if not rest and -12 <= hours <= 14:
        return f"Etc/GMT{-hours:+}"  # the sign of POSIX: west of Greenwich is positive
    return f"GMT{time_zone.offset_text(minutes)}"


def _named(connection: Any, source: str, names: Sequence[str], with_clause: str = "") -> Any:
    return connection.sql(f"{with_clause}SELECT * FROM {source} AS q({', '.join(map(identifier, names))})")


def fetch(relation: Any, limit: int = 0) -> pa.Table:
    """The first ``limit`` rows of a relation, or all.

    Raises :class:`EvaluationFailed` for an error of DuckDB's, such as an overflow of a type that Spark has wider, and
    the errors of scans.
    """
    try:
        return with_arrow_zones((relation.limit(limit) if limit else relation).to_arrow_table())
    except import_duckdb().Error as e:
        raise failed(e) from e


def with_arrow_zones(rows: pa.Table) -> pa.Table:
    """The rows with zones such as ``+05:30`` in place of DuckDB's ``GMT+05:30``, which Arrow and Python do not know."""
    types = [_with_arrow_zone(f.type) for f in rows.schema]
    if types == rows.schema.types:
        return rows
    return rows.cast(pa.schema([f.with_type(kind) for f, kind in zip(rows.schema, types, strict=True)]))


def _with_arrow_zone(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, _OFFSET.sub(r"\1", kind.tz))
    if pa.types.is_map(kind):
        return pa.map_(_with_arrow_zone(kind.key_type), _with_arrow_zone(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_with_arrow_zone(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(_with_arrow_zone(f.type)) for f in kind])
    return kind


def failed(error: Exception) -> BitlakeError:
    """An error of DuckDB's while it computes rows, or bitlake's while DuckDB reads a scan."""
    ours = _OURS.fullmatch(str(error))
    if ours is not None:
        return REPORTED.get(ours["kind"], EvaluationFailed)(ours["message"])
    if isinstance(error, import_duckdb().IOException):
        return EvaluationFailed(f"DuckDB cannot read the files; if snapshots expired, query again: {error}")
    if "is not valid UTF8" in str(error):  # DuckDB names the file and the value
        return EvaluationFailed(f"DuckDB cannot read text that is not UTF-8; query it with engine='spark': {error}")
    return EvaluationFailed(f"DuckDB cannot run the query: {error}")


def _unused_names(text: str, count: int) -> tuple[str, ...]:
    """Names of tables that do not occur in a text."""
    prefix = "lake_table"
    while prefix in text.lower():
        prefix += "_"
    return tuple(f"{prefix}_{i}" for i in range(count))


_PATTERN = frozenset("*?[]{}\\")
"""DuckDB reads a path with one of these as a pattern."""
_OPTIONS = "hive_partitioning = false, union_by_name = false, can_have_nan = true"
"""Partition values are columns of the files; and bounds of FLOAT and DOUBLE leave out NaN, the largest number."""
RANGE_ROWS = 50_000
"""Of more rows side by side, DuckDB reads row groups faster than Arrow reads pages.  CPU, 6M lines by their key:
600,000 lines 29 and 208 ms, 80,000 lines 15 and 21 ms, 20,000 lines 13 and 10 ms; 5 keys far apart 91 and 17 ms."""
_INSTANCES: CacheName[tuple[int, bool], Any] = CacheName("instances of DuckDB")
"""By process, for a fork cannot use its parent's instance, whose threads it lacks; and whether memory is limited."""
LIMITED_MEMORY = "1 GB"
"""The memory of an instance that is limited, which writes nothing to disk instead."""
_INSTANCE_BYTES = 4 << 20
"""Bytes of an instance in memory, roughly, with the footers that it keeps."""


def connect(caches: Caches, limited: bool = False) -> Any:
    """A connection with names and settings of its own, in an instance of DuckDB of the lake: to start one takes 17 ms.

    ``limited``: the instance has at most :data:`LIMITED_MEMORY`.
    """

    def start() -> Any:
        instance = import_duckdb().connect()
        instance.execute("SET GLOBAL parquet_metadata_cache = true")  # footers, by path and time of change
        if limited:
            instance.execute(f"SET GLOBAL memory_limit = '{LIMITED_MEMORY}'")
            instance.execute("SET GLOBAL temp_directory = ''")
        register_kernels(instance)
        return instance

    return caches[_INSTANCES].get_or((os.getpid(), limited), start, lambda _: _INSTANCE_BYTES).cursor()


class DirectView(NamedTuple):
    """Rows of a table as a query over files that DuckDB reads itself, and over a source of the rest, if any."""

    sql: str
    mixed: bool


def bind_scans(connection: Any, scans: Mapping[str, TableScan]) -> dict[str, DirectView]:
    """Give scans names in a DuckDB connection as sources; those not named are returned as views of files, by name.

    A view is text for the WITH clause of a query (:func:`with_views`): creating a view in the connection takes longer
    than planning most queries.
    """
    views = {}
    for name, scan in scans.items():
        view = _direct_view(connection, name, scan)
        if view is None:
            register(connection, name, scan)
        else:
            views[name] = view
    return views


def with_views(views: Mapping[str, DirectView]) -> str:
    """The WITH clause that names views in a query, or an empty text."""
    # Unlike a view, DuckDB would compute a query in WITH once and keep its rows if it is named twice.
    named = (f"{identifier(name)} AS NOT MATERIALIZED ({view.sql})" for name, view in views.items())
    return f"WITH {', '.join(named)} " if views else ""


def can_read(connection: Any, view: DirectView) -> bool:
    """Whether DuckDB can open a view's files; one that is gone or damaged is reported by reading it here."""
    try:
        connection.sql(view.sql)
    except import_duckdb().Error:
        return False
    return True


def _direct_view(connection: Any, name: str, scan: TableScan) -> DirectView | None:
    files = direct_files(scan)
    columns = ", ".join(map(identifier, scan.columns))
    if isinstance(files, list):
        return DirectView(f"SELECT {columns} FROM {_read_parquet(files)}", mixed=False)
    mixed = mixed_files(scan)
    if mixed is None:
        return None
    try:
        from bitlake.scan.duckdb_source import ScanSource, take_none  # DuckDB is optional
    except ImportError:
        return None  # a dataset would plan again, and read all files
    source = f"{name}_source"
    connection._register_arrow_source(source, ScanSource(mixed[1], take_none))
    direct = f"SELECT {columns} FROM {_read_parquet(mixed[0])}"
    return DirectView(f"{direct} UNION ALL SELECT {columns} FROM {identifier(source)}", mixed=True)


def _read_parquet(files: list[str]) -> str:
    return f"read_parquet([{', '.join(map(text, files))}], {_OPTIONS})"


def register(connection: Any, name: str, scan: TableScan) -> None:
    """Register a scan as a source, and as a dataset where DuckDB's protocol of sources is not the one known here."""
    try:
        from bitlake.scan.duckdb_source import ScanSource, take_join_keys  # DuckDB is optional
    except ImportError:
        from bitlake.scan.dataset import ScanDataset  # loads pyarrow.dataset

        connection.register(name, ScanDataset(scan))
        return
    connection._register_arrow_source(name, ScanSource(scan, take_join_keys))


def direct_files(scan: TableScan) -> list[str] | str:
    """The local paths of a scan's files if DuckDB may read them itself, or why it may not."""
    fields = _readable_fields(scan)
    if isinstance(fields, str):
        return fields
    try:
        plan = scan.plan()
        if not plan.files:
            return "no file is read"
        if not all(f.whole or (plan.chosen_rows > RANGE_ROWS and _is_range(f)) for f in plan.files):
            return "rows are chosen by indexes or page bounds, deleted, or merged by key"
        return _local_files(scan, fields, tasks_of(plan.files, plan.schemas))
    except BitlakeError:
        return "a file cannot be read"  # reading reports it


def mixed_files(scan: TableScan) -> tuple[list[str], TableScan] | None:
    """Split a scan that :func:`direct_files` refuses: the files that DuckDB may read itself, and a scan of the others.

    None if the files that DuckDB may read have too few rows to gain by it.
    """
    fields = _readable_fields(scan)
    if isinstance(fields, str):
        return None
    try:
        plan = scan.plan()
        if sum(f.row_count for f in plan.files if f.whole) <= RANGE_ROWS:
            return None
        direct: dict[str, int] = {}
        rest = []
        for file, task in zip(plan.files, tasks_of(plan.files, plan.schemas), strict=True):
            local = _local_files(scan, fields, [task]) if file.whole else ""
            if isinstance(local, list):
                direct[local[0]] = file.row_count
            else:
                rest.append(file)
    except BitlakeError:
        return None  # reading reports it
    if not rest or sum(direct.values()) <= RANGE_ROWS:
        return None
    return list(direct), replace(scan, _planned=[replace(plan, files=tuple(rest))])


def _readable_fields(scan: TableScan) -> list[DataField] | str:
    """The columns of a scan of which DuckDB may read files itself, or why it may not."""
    if type(scan) is not TableScan or scan.other is not None:
        return "the rows are not those of one branch's files"
    if scan.row_limit is not None or scan.ignored is not None:
        return "the scan limits rows or leaves out unreadable files"
    fields = [f for f in scan.state.schema.fields if f.name in scan.columns]
    for field in fields:
        if ty.of_column(field.type) == ty.OPAQUE:
            return f"column '{field.name}' is {field.type}"
    return fields if len(fields) == len(scan.columns) else "columns of metadata are read"


def _is_range(file: PlannedFile) -> bool:
    """Whether only page bounds chose a file's rows, all side by side."""
    if file.deleted or file.merge is not None or not file.by_pages:
        return False
    rows = file.selection.positions(file.row_count)
    return int(rows[-1] - rows[0]) < len(rows)


def _local_files(scan: TableScan, fields: list[DataField], tasks: list[FileTask]) -> list[str] | str:
    paths = []
    for task in tasks:
        path = scan.store.local_path(task.path)
        if path is None:
            return "the files are not on local disk"
        if _PATTERN.intersection(path):
            return f"DuckDB would read the path as a pattern: {path}"
        if format_of(path) != "parquet":
            return "the files are not Parquet"
        if not _stored_as_is(scan, fields, task):
            return f"columns have changed since a file was written, or it stores them in another way: {path}"
        paths.append(path)
    return paths


def _stored_as_is(scan: TableScan, fields: list[DataField], task: FileTask) -> bool:
    """Whether a file has the columns by their names, as values of just the types of the table."""
    if task.file_schema.id != scan.state.schema.id and not map_fields(fields, task.file_schema.fields).identical:
        return False
    footer = footer_of(scan.store, task)
    if len({name.lower() for name in footer.columns}) < len(footer.columns):
        return False  # names are the same to DuckDB if they differ by case only
    for field in fields:
        column = footer.columns.get(field.name)
        if column is None or footer.schema.field(field.name).type != arrow_type(field.type):
            return False
        # DuckDB also trusts bounds of writers that compared texts and decimals as signed bytes.
        if not footer.type_ordered[column.leaf]:
            return False
    return True
