"""``$table_indexes`` as Paimon has it; bitlake's own ``$file_indexes`` and ``$deletion_vectors``.

``$file_indexes``: one row for each index of each live data file; ``place`` is ``embedded`` (in the manifest) or the
index file's path, ``bytes`` the payload's length, ``distinct_values`` what the index itself knows (NULL of those that
keep no values).  ``$deletion_vectors``: one row for each data file with deleted rows; ``width`` is 32 or 64 bits,
``ratio`` the share of the file's rows, ``first_deleted`` and ``last_deleted`` positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bitlake.fileindex.capabilities import IndexReader, ValueLister
from bitlake.metadata.index_manifest import IndexFileEntry
from bitlake.metadata.manifest import ManifestEntry
from bitlake.runtime import LocalRunner
from bitlake.scan.index_location import index_name
from bitlake.scan.index_reader import open_file_index
from bitlake.snapshot.index_manifest import index_entries, index_path, read_index_manifest
from bitlake.snapshot.partitions import PartitionReader
from bitlake.snapshot.state import TableState
from bitlake.system_tables.rows import Metadata, array_of, as_text, by_rows, columns, row_of
from bitlake.tableindex.deletion_vectors import decode_frame, frame_bytes
from bitlake.tableindex.vector_range import VectorRange

_THREADS = 16
_VECTOR = row_of("f0 STRING NOT NULL", "f1 INT NOT NULL", "f2 INT NOT NULL", "_CARDINALITY BIGINT")
_TABLE_INDEXES = columns(
    "partition STRING",
    "bucket INT NOT NULL",
    "index_type STRING NOT NULL",
    "file_name STRING NOT NULL",
    "file_size BIGINT NOT NULL",
    "row_count BIGINT NOT NULL",
    ("dv_ranges", array_of(_VECTOR)),
    "row_range_start BIGINT",
    "row_range_end BIGINT",
    "index_field_id INT",
    "index_field_name STRING",
)
_FILE_INDEXES = columns(
    "partition STRING",
    "bucket INT NOT NULL",
    "file_path STRING NOT NULL",
    "column_name STRING",
    "index_type STRING",
    "place STRING NOT NULL",
    "bytes BIGINT",
    "distinct_values BIGINT",
    "record_count BIGINT NOT NULL",
    "problem STRING",
)
_VECTORS = columns(
    "partition STRING",
    "bucket INT NOT NULL",
    "file_path STRING NOT NULL",
    "index_file STRING NOT NULL",
    "offset INT NOT NULL",
    "length INT NOT NULL",
    "width INT NOT NULL",
    "cardinality BIGINT NOT NULL",
    "record_count BIGINT NOT NULL",
    "ratio DOUBLE NOT NULL",
    "first_deleted BIGINT",
    "last_deleted BIGINT",
)


def _table_indexes(state: TableState) -> Mapping[str, Any]:
    reader = PartitionReader(state.schema, state.paths)
    fields = state.schema.partition_fields
    names = {f.id: f.name for f in state.schema.fields}

    def rows() -> Iterator[Sequence[Any]]:
        for e in index_entries(state.table_files, state.snapshot):
            ranges = None if e.ranges is None else [_range(r) for r in e.ranges]
            g = e.global_index
            own = (None,) * 4 if g is None else (g.row_range_start, g.row_range_end, g.index_field_id, _names(g, names))
            partition = as_text(fields, reader.values(e.partition))
            yield partition, e.bucket, e.index_type, e.file_name, e.file_size, e.row_count, ranges, *own

    return by_rows(_TABLE_INDEXES, rows())


def _range(r: VectorRange) -> dict[str, Any]:
    return {"f0": r.data_file, "f1": r.offset, "f2": r.length, "_CARDINALITY": r.cardinality}


def _names(index: Any, names: Mapping[int, str]) -> str | None:
    ids = (index.index_field_id, *(index.extra_field_ids or ()))
    return ",".join(names[i] for i in ids) if all(i in names for i in ids) else None


# --- indexes of data files --------------------------------------------------------------------------------------------


def _file_indexes(state: TableState) -> Mapping[str, Any]:
    entries = [e for e in state.entries() if e.file.embedded_index is not None or index_name(e.file) is not None]
    schemas = state.schemas({e.file.schema_id for e in entries})
    reader = PartitionReader(state.schema, state.paths)
    fields = state.schema.partition_fields

    def look(e: ManifestEntry) -> list[tuple[Any, ...]]:
        path = reader.data_path(e)
        name = None if e.file.embedded_index is not None else index_name(e.file)
        place = "embedded" if name is None else f"{path.rsplit('/', 1)[0]}/{name}"
        head = (as_text(fields, reader.values(e.partition)), e.bucket, path)
        opened = open_file_index(state.store, path, e.file, schemas[e.file.schema_id])
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

    gathered = LocalRunner(_THREADS).run(entries, look)
    return by_rows(_FILE_INDEXES, (row for rows in gathered for row in rows))


def _distinct(reader: IndexReader) -> int | None:
    values = reader.distinct() if isinstance(reader, ValueLister) else None
    return None if values is None else len(values)


# --- deletion vectors -------------------------------------------------------------------------------------------------


def _vectors(state: TableState) -> Mapping[str, Any]:
    if state.snapshot is None or state.snapshot.index_manifest is None:
        return by_rows(_VECTORS, ())
    live = {e.file.file_name: e for e in state.entries()}
    reader = PartitionReader(state.schema, state.paths)
    fields = state.schema.partition_fields
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
            gone = vector.cardinality
            span = (vector.rows.min(), vector.rows.max()) if gone else (None, None)
            head = (as_text(fields, reader.values(entry.partition)), entry.bucket, reader.data_path(entry), path)
            width = 64 if vector.wide else 32
            rows.append((*head, place.offset, place.length, width, gone, count, gone / count if count else 0.0, *span))
        return rows

    gathered = LocalRunner(_THREADS).run(files, look)
    return by_rows(_VECTORS, (row for rows in gathered for row in rows))


FILE_INDEXES = Metadata(_FILE_INDEXES, _file_indexes)
TABLES = {
    "table_indexes": Metadata(_TABLE_INDEXES, _table_indexes),
    "file_indexes": FILE_INDEXES,
    "deletion_vectors": Metadata(_VECTORS, _vectors),
}
