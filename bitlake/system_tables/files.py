"""System tables of files and their indexes, and how the columns and rows of any system table are made.

``$files``, ``$file_key_ranges``, ``$partitions``, ``$buckets``, ``$manifests`` and ``$table_indexes`` are Paimon's: the
source is the columns of its system tables; texts of partitions, keys and bounds are as Java prints them.

``$file_indexes`` and ``$deletion_vectors`` are bitlake's own.  ``$file_indexes``: one row for each index of each live
data file; ``place`` is ``embedded`` (in the manifest) or the index file's path, ``bytes`` the payload's length,
``distinct_values`` what the index itself knows (NULL of those that keep no values).  ``$deletion_vectors``: one row for
each data file with deleted rows; ``width`` is 32 or 64 bits, ``ratio`` the share of the file's rows, ``first_deleted``
and ``last_deleted`` positions.

What is gathered into Arrow grows with metadata (snapshots, files), never with rows of data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa

from bitlake.codec.binary_row import EMPTY_ROW, decode_row
from bitlake.fileindex.capabilities import IndexReader, ValueLister
from bitlake.formats.file_format import format_of
from bitlake.metadata import options as opt
from bitlake.metadata.index_manifest import DELETION_VECTORS, IndexFileEntry
from bitlake.metadata.manifest import FileSource, ManifestEntry, index_name
from bitlake.metadata.paths import render_value
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.stats import column_stats
from bitlake.runtime import REQUESTS, LocalRunner
from bitlake.scan.fallback_branch import listed_entries
from bitlake.scan.index_pruning import open_file_index
from bitlake.schema.evolution import map_fields
from bitlake.schema.merge_spec import key_fields
from bitlake.snapshot.file_columns import columns_of_files
from bitlake.snapshot.manifests import index_entries, read_index_manifest, read_manifest_list, snapshot_manifests
from bitlake.snapshot.partitions import PartitionReader, index_path
from bitlake.snapshot.state import TableState
from bitlake.tableindex import VectorRange
from bitlake.tableindex.deletion_vectors import decode_frame, frame_bytes
from bitlake.types import ArrayType, AtomicType, DataField, DataType, RowType, arrow_schema
from bitlake.types.datatypes import parse_type


def columns(*specs: str | tuple[str, DataType]) -> tuple[DataField, ...]:
    """Fields of texts such as ``a BIGINT NOT NULL, b STRING``, or of a name and a type."""
    pairs: list[tuple[str, DataType]] = []
    for spec in specs:
        if isinstance(spec, str):
            parts = (column.split(" ", 1) for column in spec.split(", "))
            pairs += [(name, parse_type(kind)) for name, kind in parts]
        else:
            pairs.append(spec)
    return tuple(DataField(number, name, kind) for number, (name, kind) in enumerate(pairs))


@dataclass(frozen=True, slots=True)
class Metadata:
    """A system table that is gathered from a table's metadata."""

    fields: tuple[DataField, ...]
    gather: Callable[[TableState], Iterable[Sequence[Any]]]
    """The rows; times are ms since the epoch."""

    def table(self, state: TableState) -> pa.Table:
        """The rows."""
        schema = arrow_schema(self.fields)
        rows = list(self.gather(state))
        values = list(zip(*rows, strict=True)) or [()] * len(schema)
        return pa.Table.from_arrays([pa.array(v, f.type) for v, f in zip(values, schema, strict=True)], schema=schema)

    @property
    def schema(self) -> TableSchema:
        """The columns as a table's."""
        return TableSchema(0, self.fields, len(self.fields))


def gathered(*specs: str | tuple[str, DataType]) -> Callable[[Callable[[TableState], Iterable[Any]]], Metadata]:
    """Make a function that returns rows a system table with these :func:`columns`."""
    return lambda gather: Metadata(columns(*specs), gather)


def listed(items: Callable[[TableState], Iterable[Any]], *specs: str | tuple[str, Callable[[Any], Any]]) -> Metadata:
    """A system table with a row for each item: a column is the attribute of its name, or what a function returns."""
    fields, values = [], []
    for spec in specs:
        text, own = (spec, None) if isinstance(spec, str) else spec
        fields.append(text)
        values += [own or attrgetter(f.name) for f in columns(text)]
    return Metadata(columns(*fields), lambda state: ([v(item) for v in values] for item in items(state)))


def local_time(millis: int | None) -> int | None:
    """A time (ms since the epoch) as the local wall clock, which is how Paimon shows times, in ms as if UTC."""
    if millis is None:
        return None
    at = datetime.fromtimestamp(millis / 1000).astimezone()
    offset = at.utcoffset()
    return millis + (0 if offset is None else round(offset.total_seconds() * 1000))


def as_text(fields: Sequence[DataField], values: Sequence[Any]) -> str:
    """A partition or key as Paimon prints a row: ``{a, b}``."""
    return "{" + ", ".join(_text(f, v) for f, v in zip(fields, values, strict=True)) + "}"


def _text(field: DataField, value: Any) -> str:
    if value is None:
        return "null"
    assert isinstance(field.type, AtomicType)
    return render_value(field.type, value, legacy=False)


# --- files, partitions, buckets and manifests -------------------------------------------------------------------------

_KEY_RANGES = (
    "partition STRING, bucket INT NOT NULL, file_path STRING NOT NULL, file_format STRING NOT NULL, schema_id "
    "BIGINT NOT NULL, level INT NOT NULL, record_count BIGINT NOT NULL, file_size_in_bytes BIGINT NOT NULL, "
    "min_key STRING, max_key STRING"
)


class _Texts:
    """A state's partitions, keys and statistics as text, each partition once."""

    def __init__(self, state: TableState) -> None:
        self.state = state
        self.reader = PartitionReader(state.schema, state.paths)
        self._partitions: dict[bytes, str] = {}

    @cached_property
    def schemas(self) -> Mapping[int, TableSchema]:
        return self.state.schemas({e.file.schema_id for e in self.state.entries()})

    def partition(self, raw: bytes) -> str:
        values = self._partitions.get(raw)
        if values is None:
            fields = self.state.schema.partition_fields
            values = self._partitions[raw] = as_text(fields, self.reader.values(raw))
        return values

    def place(self, e: ManifestEntry) -> tuple[str, int, str]:
        return self.partition(e.partition), e.bucket, self.reader.data_path(e)

    def key_range(self, e: ManifestEntry) -> tuple[str | None, str | None]:
        fields = key_fields(self.schemas[e.file.schema_id])
        low, high = e.file.min_key, e.file.max_key
        return tuple(None if k == EMPTY_ROW or not fields else _key(fields, k) for k in (low, high))  # type: ignore[return-value]

    def common(self, e: ManifestEntry) -> tuple[Any, ...]:
        place, f = self.place(e), e.file
        counts = (f.schema_id, f.level, f.row_count, f.file_size)
        return (*place, format_of(place[2]), *counts, *self.key_range(e))

    def stats(self, e: ManifestEntry) -> tuple[str, str, str]:
        stored = self.schemas[e.file.schema_id]
        sources = map_fields(self.state.schema.fields, stored.fields).fields
        stats_by_name = column_stats(e.file, stored.fields)
        nulls, lows, highs = {}, {}, {}
        for field in sorted(self.state.schema.fields, key=lambda f: f.name):
            source = sources[field.name]
            stats = None if source is None else stats_by_name.get(source.name)
            if source is None:
                nulls[field.name], low, high = str(e.file.row_count), None, None
            else:
                count = None if stats is None else stats.null_count
                nulls[field.name] = "null" if count is None else str(count)
                low, high = (None, None) if stats is None else (stats.min, stats.max)
            lows[field.name], highs[field.name] = _value(source, low), _value(source, high)
        return _braces(nulls), _braces(lows), _braces(highs)


def _braces(values: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{k}={v}" for k, v in values.items()) + "}"


def _value(field: DataField | None, value: Any) -> str:
    if value is None or field is None:
        return "null"
    assert isinstance(field.type, AtomicType)
    return render_value(field.type, value)


def _key(fields: Sequence[DataField], raw: bytes) -> str:
    values = decode_row([f.type for f in fields], raw)
    return "[" + ", ".join(_value(f, v) for f, v in zip(fields, values, strict=True)) + "]"


@gathered(
    _KEY_RANGES,
    "null_value_counts STRING NOT NULL, min_value_stats STRING NOT NULL, max_value_stats STRING NOT NULL, "
    "min_sequence_number BIGINT, max_sequence_number BIGINT, creation_time TIMESTAMP(3), deleteRowCount BIGINT, "
    "file_source STRING, first_row_id BIGINT",
    ("write_cols", ArrayType(parse_type("STRING"))),
)
def _files(state: TableState) -> Iterable[Sequence[Any]]:
    texts = _Texts(state)

    def rows() -> Iterator[Sequence[Any]]:
        for e in state.entries():
            f = e.file
            source = None if f.file_source is None else FileSource(f.file_source).name
            columns_ = None if f.write_cols is None else list(f.write_cols)
            numbers = (f.min_sequence_number, f.max_sequence_number, f.creation_time, f.delete_row_count)
            yield (*texts.common(e), *texts.stats(e), *numbers, source, f.first_row_id, columns_)

    return rows()


@gathered(_KEY_RANGES, "first_row_id BIGINT")
def _file_key_ranges(state: TableState) -> Iterable[Sequence[Any]]:
    texts = _Texts(state)
    return ((*texts.common(e), e.file.first_row_id) for e in state.entries())


class _Totals:
    """Sums over groups of files: rows, bytes, number, and the last time one was made."""

    def __init__(self, entries: Sequence[ManifestEntry], codes: np.ndarray[Any, Any], groups: int) -> None:
        files = columns_of_files(entries)
        sizes = np.fromiter([e.file.file_size for e in entries], np.int64, len(entries))
        times = np.fromiter([e.file.creation_time or 0 for e in entries], np.int64, len(entries))
        self.rows = np.zeros(groups, np.int64)
        self.bytes, self.files, self.last = self.rows.copy(), self.rows.copy(), self.rows.copy()
        np.add.at(self.rows, codes, files.rows)
        np.add.at(self.bytes, codes, sizes)
        np.add.at(self.files, codes, 1)
        np.maximum.at(self.last, codes, times)

    def of(self, group: int) -> tuple[int, int, int, int | None]:
        """Rows, bytes, files and the last time of one group."""
        rows, size, files, last = (int(a[group]) for a in (self.rows, self.bytes, self.files, self.last))
        return rows, size, files, last or None


@gathered(
    "partition STRING, record_count BIGINT NOT NULL, file_size_in_bytes BIGINT NOT NULL, file_count BIGINT NOT "
    "NULL, last_update_time TIMESTAMP(3), created_at TIMESTAMP(3), created_by STRING, updated_by STRING, options "
    "STRING, total_buckets INT NOT NULL, done BOOLEAN NOT NULL, deleted_record_count BIGINT"
)
def _partitions(state: TableState) -> Iterable[Sequence[Any]]:
    entries = listed_entries(state)
    raws, codes = columns_of_files(entries).partitions
    totals = _Totals(entries, codes, len(raws))
    buckets = dict(zip((e.partition for e in entries), (e.total_buckets for e in entries), strict=True))
    deleted = _deleted(state)
    reader = PartitionReader(state.schema, state.paths)
    names = [_partition_name(state.schema, reader.values(raw)) for raw in raws]
    order = sorted(range(len(raws)), key=lambda i: names[i])
    rows = []
    for i in order:
        counts = totals.of(i)
        done = state.store.exists(f"{state.paths.root}/{reader.folder(raws[i])}/_SUCCESS") if names[i] else False
        rows.append((names[i], *counts, None, None, None, None, buckets[raws[i]], done, deleted.get(raws[i], 0)))
    return rows


def _partition_name(schema: TableSchema, values: Sequence[Any]) -> str:
    default = schema.opts.of(opt.PARTITION_DEFAULT_NAME)
    parts = []
    for field, value in zip(schema.partition_fields, values, strict=True):
        assert isinstance(field.type, AtomicType)
        parts.append(f"{field.name}={default if value is None else render_value(field.type, value, legacy=False)}")
    return "/".join(parts)


def _deleted(state: TableState) -> dict[bytes, int | None]:
    """Count the rows of deletion vectors, by partition; None where an old writer did not count."""
    out: dict[bytes, int | None] = {}
    if not state.schema.opts.of(opt.DV_ENABLED):
        return out
    for entry in index_entries(state.table_files, state.snapshot):
        if entry.index_type != DELETION_VECTORS:
            continue
        for place in entry.ranges or ():
            known = out.get(entry.partition, 0)
            out[entry.partition] = None if known is None or place.cardinality is None else known + place.cardinality
    return out


@gathered(
    "partition STRING, bucket INT NOT NULL, record_count BIGINT NOT NULL, file_size_in_bytes BIGINT NOT NULL, "
    "file_count BIGINT NOT NULL, last_update_time TIMESTAMP(3)"
)
def _buckets(state: TableState) -> Iterable[Sequence[Any]]:
    entries = state.entries()
    keys: dict[tuple[bytes, int], int] = {}
    codes = np.array([keys.setdefault((e.partition, e.bucket), len(keys)) for e in entries], np.int64)
    totals = _Totals(entries, codes, len(keys))
    texts = _Texts(state)
    shown = sorted((texts.partition(raw), bucket, i) for i, (raw, bucket) in enumerate(keys))
    return ((*place, *totals.of(i)) for *place, i in shown)


@gathered(
    "file_name STRING NOT NULL, file_size BIGINT NOT NULL, num_added_files BIGINT NOT NULL, num_deleted_files "
    "BIGINT NOT NULL, schema_id BIGINT NOT NULL, min_partition_stats STRING, max_partition_stats STRING, "
    "min_row_id BIGINT, max_row_id BIGINT"
)
def _manifests(state: TableState) -> Iterable[Sequence[Any]]:
    if state.snapshot is None:
        return ()
    fields = state.schema.partition_fields
    types = [f.type for f in fields]
    metas = snapshot_manifests(state.table_files, state.snapshot)
    if state.snapshot.changelog_manifest_list is not None:
        metas += read_manifest_list(state.table_files, state.snapshot.changelog_manifest_list)

    def bound(raw: bytes) -> str:
        return as_text(fields, decode_row(types, raw)) if raw != EMPTY_ROW or not fields else "{}"

    rows = []
    for m in metas:
        counts = (m.file_name, m.file_size, m.num_added_files, m.num_deleted_files, m.schema_id)
        stats = m.partition_stats
        rows.append((*counts, bound(stats.min), bound(stats.max), m.min_row_id, m.max_row_id))
    return rows


# --- table indexes ----------------------------------------------------------------------------------------------------

_VECTOR = RowType(columns("f0 STRING NOT NULL, f1 INT NOT NULL, f2 INT NOT NULL, _CARDINALITY BIGINT"))


@gathered(
    "partition STRING, bucket INT NOT NULL, index_type STRING NOT NULL, file_name STRING NOT NULL, file_size "
    "BIGINT NOT NULL, row_count BIGINT NOT NULL",
    ("dv_ranges", ArrayType(_VECTOR)),
    "row_range_start BIGINT, row_range_end BIGINT, index_field_id INT, index_field_name STRING",
)
def _table_indexes(state: TableState) -> Iterable[Sequence[Any]]:
    texts = _Texts(state)
    names = {f.id: f.name for f in state.schema.fields}

    def rows() -> Iterator[Sequence[Any]]:
        for e in index_entries(state.table_files, state.snapshot):
            ranges = None if e.ranges is None else [_range(r) for r in e.ranges]
            g = e.global_index
            own = (None,) * 4 if g is None else (g.row_range_start, g.row_range_end, g.index_field_id, _names(g, names))
            file = (e.index_type, e.file_name, e.file_size, e.row_count)
            yield texts.partition(e.partition), e.bucket, *file, ranges, *own

    return rows()


def _range(r: VectorRange) -> dict[str, Any]:
    return {"f0": r.data_file, "f1": r.offset, "f2": r.length, "_CARDINALITY": r.cardinality}


def _names(index: Any, names: Mapping[int, str]) -> str | None:
    ids = (index.index_field_id, *(index.extra_field_ids or ()))
    return ",".join(names[i] for i in ids) if all(i in names for i in ids) else None


# --- file indexes -----------------------------------------------------------------------------------------------------


@gathered(
    "partition STRING, bucket INT NOT NULL, file_path STRING NOT NULL, column_name STRING, index_type STRING, "
    "place STRING NOT NULL, bytes BIGINT, distinct_values BIGINT, record_count BIGINT NOT NULL, problem STRING"
)
def _file_indexes(state: TableState) -> Iterable[Sequence[Any]]:
    entries = [e for e in state.entries() if e.file.embedded_index is not None or index_name(e.file) is not None]
    texts = _Texts(state)
    schemas = texts.schemas  # loaded once, before threads ask

    def look(e: ManifestEntry) -> list[tuple[Any, ...]]:
        head = texts.place(e)
        name = None if e.file.embedded_index is not None else index_name(e.file)
        place = "embedded" if name is None else f"{head[2].rsplit('/', 1)[0]}/{name}"
        opened = open_file_index(state.store, head[2], e.file, schemas[e.file.schema_id])
        assert opened is not None
        rows: list[tuple[Any, ...]] = []
        for column, kinds in opened.columns.items():
            for kind, (_, length) in kinds.items():
                distinct = opened.ask(column, kind, _distinct)
                rows.append((*head, column, kind, place, length, distinct, e.file.row_count, None))
        problems = "; ".join(opened.problems) or None
        if problems is not None:
            rows = [(*r[:-1], problems) for r in rows] or [
                (*head, *(None,) * 2, place, None, None, e.file.row_count, problems)
            ]
        return rows

    gathered = LocalRunner(REQUESTS).run(entries, look)
    return (row for rows in gathered for row in rows)


def _distinct(reader: IndexReader) -> int | None:
    values = reader.distinct() if isinstance(reader, ValueLister) else None
    return None if values is None else len(values)


# --- deletion vectors -------------------------------------------------------------------------------------------------


@gathered(
    "partition STRING, bucket INT NOT NULL, file_path STRING NOT NULL, index_file STRING NOT NULL, offset INT NOT "
    "NULL, length INT NOT NULL, width INT NOT NULL, cardinality BIGINT NOT NULL, record_count BIGINT NOT NULL, "
    "ratio DOUBLE NOT NULL, first_deleted BIGINT, last_deleted BIGINT"
)
def _vectors(state: TableState) -> Iterable[Sequence[Any]]:
    if state.snapshot is None or state.snapshot.index_manifest is None:
        return ()
    live = {e.file.file_name: e for e in state.entries()}
    texts = _Texts(state)
    named = read_index_manifest(state.table_files, state.snapshot.index_manifest)
    files = [e for e in named if e.ranges and any(r.data_file in live for r in e.ranges)]

    def look(index: IndexFileEntry) -> list[tuple[Any, ...]]:
        path = index_path(state.paths, state.schema, index)
        wanted = [r for r in index.ranges or () if r.data_file in live]
        sizes = [(r.offset, frame_bytes(r, index.file_size)) for r in wanted]
        rows: list[tuple[Any, ...]] = []
        for place, frame in zip(wanted, state.store.read_ranges(path, sizes), strict=True):
            entry = live[place.data_file]
            count = entry.file.row_count
            vector = decode_frame(frame, place, count)
            deleted = vector.cardinality
            span = (vector.rows.min(), vector.rows.max()) if deleted else (None, None)
            width = 64 if vector.wide else 32
            head = (*texts.place(entry), path)
            rows.append(
                (*head, place.offset, place.length, width, deleted, count, deleted / count if count else 0.0, *span)
            )
        return rows

    gathered = LocalRunner(REQUESTS).run(files, look)
    return (row for rows in gathered for row in rows)


# --- the tables by name -----------------------------------------------------------------------------------------------

FILE_INDEXES = _file_indexes
FILE_TABLES = {
    "files": _files,
    "file_key_ranges": _file_key_ranges,
    "partitions": _partitions,
    "buckets": _buckets,
    "manifests": _manifests,
    "table_indexes": _table_indexes,
    "file_indexes": FILE_INDEXES,
    "deletion_vectors": _vectors,
}
