"""Reading a planned file: the chosen rows (or all) of the wanted columns, as Arrow in the table's types.

The predicate is always applied to what was read: pruning saves work, it never decides.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from bitlake.errors import CorruptError, UnsupportedFeature
from bitlake.fileindex.selection import Selection
from bitlake.formats.parquet_footer import Footer, read_footer
from bitlake.formats.parquet_pages import read_rows
from bitlake.formats.parquet_scan import read_columns
from bitlake.metadata.schema import TableSchema
from bitlake.predicate.evaluate import filter_table
from bitlake.predicate.tree import Predicate, columns_of
from bitlake.storage import Store
from bitlake.table.cache import Cache
from bitlake.table.evolution import align, map_fields
from bitlake.table.planner import physical_array
from bitlake.types import DataField, arrow_field, arrow_type

FILE_PATH = "__paimon_file_path"
ROW_INDEX = "__paimon_row_index"
PARTITION = "__paimon_partition"
BUCKET = "__paimon_bucket"

# Above this share of a file's rows nearly every page holds a chosen one: reading all of it in order is cheaper than
# picking (scattered rows reach every page far earlier; the reader then touches all of them anyway).
WHOLE_FILE_SHARE = 0.25
_BATCH_ROWS = 64 * 1024

_footers: Cache[str, Footer] = Cache(2000)


@dataclass(frozen=True, slots=True)
class FileTask:
    """All that reading one file needs; small, and picklable for the executors."""

    path: str
    size: int
    row_count: int
    bucket: int
    partition: tuple[Any, ...]
    selection: Selection
    file_schema: TableSchema


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """What to return of each file: output columns in order (metadata columns too) of rows that match the predicate."""

    schema: TableSchema
    columns: tuple[str, ...]
    predicate: Predicate | None


@dataclass(slots=True)
class ReadCounts:
    """What reading cost; threads add to it."""

    rows_read: int = 0
    rows_returned: int = 0
    bytes: int = 0
    requests: int = 0
    pages: int = 0
    row_groups: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, **more: int) -> None:
        """Add to the counters by name."""
        with self._lock:
            for name, value in more.items():
                setattr(self, name, getattr(self, name) + value)


def metadata_fields(partition_fields: Sequence[DataField]) -> dict[str, pa.Field]:
    """Paimon's metadata columns by name, with their Arrow types."""
    return {
        FILE_PATH: pa.field(FILE_PATH, pa.string(), False),
        ROW_INDEX: pa.field(ROW_INDEX, pa.int64(), False),
        PARTITION: pa.field(PARTITION, pa.struct([arrow_field(f) for f in partition_fields]), False),
        BUCKET: pa.field(BUCKET, pa.int32(), False),
    }


def output_schema(schema: TableSchema, columns: Sequence[str]) -> pa.Schema:
    """The Arrow schema of a scan's result."""
    extra = metadata_fields(schema.partition_fields)
    return pa.schema([extra[c] if c in extra else arrow_field(schema.field(c)) for c in columns])


def read_file(store: Store, task: FileTask, request: ReadRequest, counts: ReadCounts) -> Iterator[pa.Table]:
    """Yield the wanted rows of a file, in file order, as tables of :func:`output_schema`."""
    if not task.path.endswith(".parquet"):
        raise UnsupportedFeature(f"data file {task.path} is not Parquet, the only format this version reads")
    needed = list(request.columns)
    if request.predicate is not None:
        needed += [c for c in sorted(columns_of(request.predicate)) if c not in needed]
    columns = _FileColumns(task, request.schema, needed)
    for rows, positions in _read(store, task, columns.names, counts):
        counts.add(rows_read=len(positions))
        table = columns.table(rows, positions)
        if request.predicate is not None:
            table = filter_table(request.predicate, table, request.schema.fields)
        counts.add(rows_returned=table.num_rows)
        if table.num_rows:
            yield table.select(list(request.columns))


class _FileColumns:
    """Makes the table's columns from a file's: mapped by id, cast, constant for partitions, or generated."""

    def __init__(self, task: FileTask, schema: TableSchema, needed: Sequence[str]) -> None:
        self._task = task
        self._schema = schema
        self._needed = needed
        self._mapping = map_fields(schema.fields, task.file_schema.fields)
        self._constants = dict(zip(schema.partition_keys, task.partition, strict=True))
        wanted = [
            f.name
            for c in needed
            if c in self._mapping.fields and c not in self._constants
            for f in [self._mapping.fields[c]]
            if f is not None
        ]
        self.names = list(dict.fromkeys(wanted))

    def table(self, rows: pa.Table | pa.RecordBatch, positions: np.ndarray) -> pa.Table:
        count = len(positions)
        arrays: list[Any] = []
        fields: list[pa.Field] = []
        extra = metadata_fields(self._schema.partition_fields)
        for name in self._needed:
            if name in extra:
                fields.append(extra[name])
                arrays.append(self._metadata(name, positions))
                continue
            field_ = self._schema.field(name)
            fields.append(arrow_field(field_).with_nullable(True))
            if name in self._constants:
                arrays.append(_repeat(field_, self._constants[name], count))
                continue
            source = self._mapping.fields[name]
            if source is None:
                arrays.append(pa.nulls(count, arrow_type(field_.type)))
                continue
            column = rows.column(source.name)
            arrays.append(align(column, field_, source, self._task.path))
        if not fields:
            return _no_columns(count)
        return pa.Table.from_arrays(arrays, schema=pa.schema(fields))

    def _metadata(self, name: str, positions: np.ndarray) -> pa.Array:
        count = len(positions)
        if name == ROW_INDEX:
            return pa.array(positions, pa.int64())
        if name == BUCKET:
            return pa.array(np.full(count, self._task.bucket, np.int32))
        if name == FILE_PATH:
            return pa.repeat(self._task.path, count)
        members = self._schema.partition_fields
        arrays = [_repeat(f, v, count) for f, v in zip(members, self._task.partition, strict=True)]
        if not members:
            return pa.array([{}] * count, pa.struct([]))
        return pa.StructArray.from_arrays(arrays, fields=[arrow_field(f) for f in members])


def _repeat(field_: DataField, value: Any, count: int) -> pa.Array:
    if value is None:
        return pa.nulls(count, arrow_type(field_.type))
    return pa.repeat(physical_array(field_, [value])[0], count)


def _no_columns(count: int) -> pa.Table:
    """A table of no columns that still has a number of rows, for counting."""
    return pa.table({"": pa.nulls(count)}).select([])


def _read(
    store: Store, task: FileTask, names: Sequence[str], counts: ReadCounts
) -> Iterator[tuple[pa.Table | pa.RecordBatch, np.ndarray]]:
    chosen = task.selection.count(task.row_count)
    if not names:
        positions = task.selection.positions(task.row_count)
        yield _no_columns(len(positions)), positions
        return
    footer = _footer(store, task)
    if chosen <= task.row_count * WHOLE_FILE_SHARE:
        positions = task.selection.positions(task.row_count)
        try:
            rows, stats = read_rows(footer, lambda ranges: store.read_ranges(task.path, ranges), positions, names)
        except CorruptError as e:
            raise e.within(task.path) from e
        counts.add(bytes=stats.bytes, requests=stats.requests, pages=stats.pages, row_groups=stats.row_groups)
        yield rows, positions
        return
    yield from _read_whole(store, task, footer, names, counts)


def _read_whole(
    store: Store, task: FileTask, footer: Footer, names: Sequence[str], counts: ReadCounts
) -> Iterator[tuple[pa.RecordBatch | pa.Table, np.ndarray]]:
    counts.add(bytes=_stored_bytes(footer, names), requests=1, row_groups=len(footer.row_groups))
    picked = (
        None if task.selection.count(task.row_count) == task.row_count else task.selection.positions(task.row_count)
    )
    start = 0
    try:
        with store.open_input(task.path) as source:
            for batch in read_columns(source, names, batch_size=_BATCH_ROWS):
                end = start + batch.num_rows
                if picked is None:
                    yield batch, np.arange(start, end, dtype=np.int64)
                else:
                    low, high = np.searchsorted(picked, (start, end))
                    if high > low:
                        positions = picked[low:high]
                        yield batch.take(pa.array(positions - start)), positions
                start = end
    except CorruptError as e:
        raise e.within(task.path) from e
    if start != task.row_count:
        raise CorruptError(f"the file holds {start} rows and the manifest says {task.row_count}", None, task.path)


def _stored_bytes(footer: Footer, names: Sequence[str]) -> int:
    """Compressed bytes of whole columns."""
    wanted = [footer.column(n) for n in names]
    return sum(
        g.chunks[leaf].compressed for g in footer.row_groups for c in wanted for leaf in range(c.leaf, c.leaf_end)
    )


def _footer(store: Store, task: FileTask) -> Footer:
    def load() -> Footer:
        try:
            footer = read_footer(lambda offset, length: store.read_range(task.path, offset, length), task.size)
        except CorruptError as e:
            raise e.within(task.path) from e
        if footer.rows != task.row_count:
            raise CorruptError(
                f"the footer counts {footer.rows} rows and the manifest says {task.row_count}", None, task.path
            )
        return footer

    return _footers.get_or(task.path, load)


def forget_footers() -> None:
    """Drop every cached footer (tests that break files on purpose need it)."""
    _footers.clear()


def tasks_of(files: Sequence[Any], schemas: Mapping[int, TableSchema]) -> list[FileTask]:
    """The read tasks of a plan's files."""
    return [
        FileTask(
            f.path,
            f.entry.file.file_size,
            f.row_count,
            f.entry.bucket,
            f.partition,
            f.selection,
            schemas[f.entry.file.schema_id],
        )
        for f in files
    ]


__all__ = [
    "BUCKET",
    "FILE_PATH",
    "PARTITION",
    "ROW_INDEX",
    "FileTask",
    "ReadCounts",
    "ReadRequest",
    "forget_footers",
    "metadata_fields",
    "output_schema",
    "read_file",
    "tasks_of",
]
