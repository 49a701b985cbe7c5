"""Queries of Spark SQL, run by DuckDB in this process: no JVM is started.

Each table of a query is bound as the rows and columns that the query needs (:mod:`bitlake.sql.duckdb_binding`), planned
with bitlake's indexes from the whole WHERE, as for Spark; DuckDB runs the rest (:mod:`bitlake.sql.duckdb_translation`).
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bitlake.errors import REPORTED, BitlakeError, EvaluationFailed
from bitlake.formats.conform import rebased
from bitlake.runtime import CacheName, Caches
from bitlake.scan.scan import TableScan
from bitlake.sql.analyzer import QueryAnalysis
from bitlake.sql.duckdb_translation import Translation, today, translate
from bitlake.sql.duckdb_values import NotTranslatable, identifier
from bitlake.sql.spark_types import OPAQUE
from bitlake.sql.table_references import replace_tables
from bitlake.sql.text import Edit
from bitlake.types import DataField, time_zone

if TYPE_CHECKING:
    from bitlake.sql.duckdb_binding import DirectView

_Columns = tuple[tuple[str, tuple[DataField, ...]], ...]
_Key = tuple[str, _Columns, str, tuple[str, ...] | None, dt.date]
_TRANSLATIONS: CacheName[_Key, Translation] = CacheName("translated queries")
"""By text, columns, zone, names of the result, and the date, which a text may ask for; one takes 3 to 10 ms to make."""
_OURS = re.compile(
    r"Invalid Input Error: reading the stream registered as '\w+' failed: \w+(?: error)?: (?P<message>.*)"
    r"\. Detail: Python exception: .*\nbitlake\.errors\.(?P<kind>\w+): .*",
    re.DOTALL,
)
"""DuckDB's text for an error of a scan: it has no other trace of the exception."""
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
    return 1000 + 4 * len(query.sql) + sum(_VALUE_BYTES * len(values.values) for values in query.lists)


def import_duckdb() -> Any:
    """The ``duckdb`` module; raises :class:`InvalidRequest` where it is not installed."""
    # Imported lazily: Arrow's datasets take 0.1 s, and what metadata answer needs none.
    from bitlake.scan import dataset

    return dataset.import_duckdb()


def run(query: Translation, tables: Mapping[str, TableScan | pa.Table], timezone: str, caches: Caches) -> Any:
    """A translated query over tables as a DuckDB relation, which is evaluated when rows are fetched.

    DuckDB gives columns of one name a number.  Raises :class:`NotTranslatable` where types would differ from Spark's.
    """
    from bitlake.sql.duckdb_binding import bind_scans  # DuckDB is optional

    connection = _connection(timezone, caches)
    for values in query.lists:
        connection.register(values.table, pa.table({"v": pa.array(values.values)}))
    scans = {name: t for name, t in tables.items() if isinstance(t, TableScan)}
    for name, table in tables.items():
        if name not in scans:
            connection.register(name, rebased(table))
    relation = _relation(connection, query, scans, bind_scans(connection, scans))
    for name, ours, sparks in zip(query.names, relation.types, query.types, strict=True):
        if sparks != OPAQUE and str(ours) != sparks.duckdb:
            raise NotTranslatable(name, f"the column would be {ours}, which is {sparks.sql} in Spark")
    return relation


def _relation(connection: Any, query: Translation, scans: Mapping[str, TableScan], views: dict[str, DirectView]) -> Any:
    from bitlake.sql.duckdb_binding import can_read, register, with_views  # DuckDB is optional

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


def _connection(timezone: str, caches: Caches) -> Any:
    duckdb = import_duckdb()
    from bitlake.sql.duckdb_binding import connect

    connection = connect(caches)
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
