"""Read planned files: the chosen rows of the requested columns, as Arrow in the table's types.

A :class:`FileTask` goes one of three ways:

* rows chosen by an exact index, or no predicate: all requested columns at once, by pages if the rows are few;
* rows to be filtered: the predicate's columns first, then of the others what survives (late materialisation);
* files merged by key: each file's rows as they are stored, merged, then filtered.  Memory holds the requested columns
  of one section, that is, of files of one bucket whose key ranges overlap.

The predicate is always applied to what was read: pruning saves work, it never decides the result.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from bitlake.codec.hashing import Int64s
from bitlake.errors import CorruptError, InvalidRequest, NotFound
from bitlake.expressions.evaluate import evaluate, filter_table, physical_array
from bitlake.expressions.tree import Predicate, sources_of
from bitlake.fileindex.cost import PAGE_ROWS
from bitlake.fileindex.selection import Selection
from bitlake.formats.conform import null_column, nullable
from bitlake.formats.parquet.footer import FetchRanges, Footer
from bitlake.formats.parquet.gather import ZSTD
from bitlake.formats.parquet.page_index import has_codec, share_of_pages
from bitlake.io import Store
from bitlake.merge.engine import LEVEL, LevelGroups, merge_rows
from bitlake.merge.sort_merge_reader import SortedSource, merge_runs
from bitlake.metadata import options as opt
from bitlake.metadata.schema import TableSchema
from bitlake.runtime import at_least, by_identity
from bitlake.scan.column_reader import (
    COUNTERS,
    FileTask,
    MergeTask,
    ReadCounts,
    Rows,
    fetch_parts,
    footer_of,
    has_pages,
    naming,
    position_array,
    stream,
    stream_whole,
)
from bitlake.scan.page_pruning import rows_by_pages
from bitlake.scan.read_ahead import MERGE_THREADS, map_ahead
from bitlake.schema import merge_spec
from bitlake.schema.evolution import align, map_fields, stored_alike
from bitlake.types import DataField, arrow_field, arrow_type

log = logging.getLogger("bitlake")

FILE_PATH = "__paimon_file_path"
ROW_INDEX = "__paimon_row_index"
PARTITION = "__paimon_partition"
BUCKET = "__paimon_bucket"
STORED_SYSTEM = {merge_spec.VALUE_KIND: pa.int8(), merge_spec.SEQUENCE_NUMBER: pa.int64()}
"""What files of primary-key tables store beside the columns.  Asked for, merging keeps deleted rows; rows of append
tables are +I, and have no number."""

WHOLE_FILE_SHARE = 0.25
"""Above this share of a file's rows nearly every page holds a chosen one, so the file is read in order, not by pages
(scattered rows reach every page far earlier: see :data:`LATE_PAGES`)."""
LATE_PAGES = 0.5
"""Up to this share of blocks of :data:`PAGE_ROWS` rows, or of the bytes of smaller pages, rows are fetched by pages.
Above it all pages are decoded in order, which takes less than finding rows in each.  16 columns of 367 pages: 360 ms of
CPU in order, and by pages 640 ms for 0.4 of them, 680 ms for 41 rows in each, 1.7 s for 400."""
IN_ORDER_ROWS = 1 << 16
"""Chosen rows of files with fewer rows are always fetched by pages."""
_RUN_ROWS = 1 << 19
"""Rows of neighbouring row groups that are filtered together."""

# On Spark: reading this much on the driver takes tens of milliseconds; starting a Spark stage of Python workers takes
# 110-180 ms on the machine it was measured on.  Beyond it, the executors' cores win.
DRIVER_BYTES = 32 << 20
WHOLE_DRIVER_BYTES = DRIVER_BYTES // 8
"""The same for whole files, which Spark's reader decodes faster than Python."""
DRIVER_ROWS = 200_000
DRIVER_FILES = 64
SELECTIVE_SHARE = 0.05
"""Above this share of a file's rows Spark's reader takes the whole file, since it decodes faster than Python picks."""


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """What to return of each file: output columns in order, metadata columns too, of rows that match the predicate."""

    schema: TableSchema
    columns: tuple[str, ...]
    predicate: Predicate | None
    timezone: str = "UTC"
    """Converts between TIMESTAMP and TIMESTAMP_LTZ, in columns that changed from one to the other."""
    ignored: IgnoredFiles | None = None
    """Which unreadable files are left out; queries only."""
    exact: bool = True
    """Whether every row must match.  Else the caller filters, and gets other rows where filtering here saves little."""
    compact: frozenset[str] = frozenset()
    """Columns that may come as Arrow dictionaries, or as decimals of fewer bits: see :func:`compact_schema`."""


def metadata_fields(partition_fields: Sequence[DataField]) -> dict[str, pa.Field]:
    """Paimon's metadata columns by name, with their Arrow types, and the columns of :data:`STORED_SYSTEM`."""
    return {
        **{name: pa.field(name, kind) for name, kind in STORED_SYSTEM.items()},
        FILE_PATH: pa.field(FILE_PATH, pa.string(), False),
        ROW_INDEX: pa.field(ROW_INDEX, pa.int64(), False),
        PARTITION: pa.field(PARTITION, pa.struct([arrow_field(f) for f in partition_fields]), False),
        BUCKET: pa.field(BUCKET, pa.int32(), False),
    }


_METADATA = frozenset(metadata_fields(()))


def output_schema(schema: TableSchema, columns: Sequence[str]) -> pa.Schema:
    """The Arrow schema of a scan's result."""
    return _schemas(schema)(tuple(columns))


@by_identity
def _schemas(schema: TableSchema) -> Callable[[tuple[str, ...]], pa.Schema]:
    """From columns to the Arrow schema of a scan of them."""

    @lru_cache(64)
    def of_columns(columns: tuple[str, ...]) -> pa.Schema:
        extra = metadata_fields(schema.partition_fields) if _METADATA.intersection(columns) else {}
        return pa.schema([extra[c] if c in extra else arrow_field(schema.field(c)) for c in columns])

    return of_columns


_nullable = by_identity(nullable)


def compact_schema(schema: pa.Schema, names: Collection[str]) -> pa.Schema:
    """A schema with smaller types for these columns, as Parquet stores them.

    Text is Arrow's dictionary of 32-bit codes; decimals of up to 9 and 18 digits have 32 and 64 bits.
    """
    return schema if not names else pa.schema([_compact(f) if f.name in names else f for f in schema])


def _compact(field: pa.Field) -> pa.Field:
    kind = field.type
    if kind == pa.string():
        return field.with_type(pa.dictionary(pa.int32(), kind))
    if pa.types.is_decimal128(kind) and kind.precision <= 18:
        narrow_type = pa.decimal32 if kind.precision <= 9 else pa.decimal64
        return field.with_type(narrow_type(kind.precision, kind.scale))
    return field


def read_file(store: Store, task: FileTask, request: ReadRequest, counts: ReadCounts) -> Iterator[pa.Table]:
    """Yield the matching rows of a file, in file order, as tables of :func:`output_schema` with nullable columns."""
    if request.ignored is None or task.merge is not None:
        return _read_file(store, task, request, counts)
    return request.ignored.guard(store, task, counts, lambda: _read_file(store, task, request, counts))


def _read_file(store: Store, task: FileTask, request: ReadRequest, counts: ReadCounts) -> Iterator[pa.Table]:
    if task.merge is not None:
        yield from read_merged(store, task, request, counts)
        return
    late = _late(task, request)
    if late is not None:
        for table in late.read(store, request, counts):
            counts.add(rows_returned=table.num_rows)
            yield table
        return
    needed = list(request.columns)
    predicate = request.predicate if request.exact else None
    if predicate is not None:
        needed += [c for c in sorted(sources_of(predicate)) if c not in needed]
    columns = _FileColumns(task, request, needed)
    for rows, positions in _read(store, task, columns, counts):
        counts.add(rows_read=len(positions))
        table = columns.table(rows, positions)
        if predicate is not None:
            with counts.filtering():
                table = filter_table(predicate, table, request.schema.fields)
        counts.add(rows_returned=table.num_rows)
        if table.num_rows:
            yield table.select(list(request.columns))


def _few(chosen: int, task: FileTask) -> bool:
    return chosen <= task.row_count * WHOLE_FILE_SHARE


def _late(task: FileTask, request: ReadRequest) -> _Late | None:
    """How to read the predicate's columns first; None where that saves nothing, as for rows known exactly."""
    if request.predicate is None or task.selection.exact or not has_pages(task):
        return None
    judged = sorted(sources_of(request.predicate))
    first = _FileColumns(task, request, judged)
    rest = _FileColumns(task, request, [c for c in request.columns if c not in judged])
    return _Late(task, first, rest) if first.names and rest.names else None


@dataclass(frozen=True, slots=True)
class _Late:
    """Late materialisation: read and evaluate the predicate's columns, then read of the others only what survives.

    Row groups are taken in runs of about ``_RUN_ROWS`` rows; memory holds the filtered columns of one run.
    Survivors in few pages, and those of few rows that an index chose, are read by pages; else the run is streamed.
    Measured on 4M orders in one file (136 MB, 7 columns), all columns, 2 busy cores: 6 scattered rows
    2,080 → 256 ms, 4,000 clustered rows 2,220 → 249 ms, no row 2,210 → 435 ms; where all survive, no slower.
    """

    task: FileTask
    first: _FileColumns
    rest: _FileColumns

    def read(self, store: Store, request: ReadRequest, counts: ReadCounts) -> Iterator[pa.Table]:
        """Yield the matching rows in file order."""
        if _few(self.task.selection.count(self.task.row_count), self.task):
            yield from self._by_pages(store, request, counts, self.task.selection.positions(self.task.row_count))
            return
        footer = footer_of(store, self.task)
        assert request.predicate is not None
        fields = {
            name: (request.schema.field(name), source)
            for name in self.first.needed
            if (source := self.first.source(name)) is not None
        }
        possible = rows_by_pages(store, self.task, footer, request.predicate, fields, counts)
        if possible is not None and len(possible) <= self.task.row_count * WHOLE_FILE_SHARE:
            chosen = self.task.selection.both(Selection.of(possible, False))
            yield from self._by_pages(store, request, counts, chosen.positions(self.task.row_count))
            return
        picked = None if self.task.selection.rows is None else self.task.selection.positions(self.task.row_count)
        runs = list(_runs(footer))
        while runs:
            if not request.exact and self._is_dense(store, request, runs[0], picked):
                columns = _FileColumns(self.task, request, request.columns)
                left = [number for run in runs for number in run]
                for rows, positions in stream(store, self.task, columns.names, counts, left, picked, columns.compact):
                    counts.add(rows_read=len(positions))
                    yield columns.table(rows, positions)
                return
            groups = runs.pop(0)
            batches = stream(store, self.task, self.first.names, counts, groups, picked, self.first.compact)
            filtered, survivors = self._filtered(batches, request, counts)
            if not len(survivors):
                continue
            yield from self._joined(filtered, self._others(store, footer, counts, groups, survivors), request)

    def _is_dense(self, store: Store, request: ReadRequest, groups: Sequence[int], picked: Int64s | None) -> bool:
        """Whether most pages hold a matching row, judged by a run's first batch, which is then read again."""
        with closing(
            stream(store, self.task, self.first.names, ReadCounts(), groups, picked, self.first.compact)
        ) as rows:
            batch = next(rows, None)
        if batch is None:
            return False
        _, survivors = self._filtered(iter((batch,)), request, ReadCounts())
        return bool(_blocks(survivors) > LATE_PAGES * _blocks(position_array(batch[1])))

    def _by_pages(
        self, store: Store, request: ReadRequest, counts: ReadCounts, positions: Int64s
    ) -> Iterator[pa.Table]:
        """As :meth:`read`, for few rows: those of pages that can hold a matching one."""
        if not len(positions):
            return
        parts = _few_rows(store, self.task, self.first, counts, positions)
        filtered, survivors = self._filtered(parts, request, counts)
        if len(survivors):
            rest = _few_rows(store, self.task, self.rest, counts, survivors)
            yield from self._joined(filtered, rest, request)

    def _filtered(self, batches: Iterator[Rows], request: ReadRequest, counts: ReadCounts) -> tuple[pa.Table, Int64s]:
        """The predicate's columns of the rows for which it is TRUE, and the positions of these in the file."""
        assert request.predicate is not None
        tables: list[pa.Table] = []
        survivors: list[Int64s] = []
        for rows, positions in batches:
            counts.add(rows_read=len(positions))
            table = self.first.table(rows, positions)
            with counts.filtering():
                true = evaluate(request.predicate, table, request.schema.fields).fill_null(False)
            if true.true_count:
                tables.append(table.filter(true))
                survivors.append(position_array(positions)[true.to_numpy(zero_copy_only=False)])
        if not tables:
            return pa.table({}), np.zeros(0, np.int64)
        return pa.concat_tables(tables), np.concatenate(survivors)

    def _joined(self, filtered: pa.Table, rest: Iterator[Rows], request: ReadRequest) -> Iterator[pa.Table]:
        """The requested columns: the predicate's from ``filtered``, the others from ``rest``, of the same rows."""
        at = 0
        for rows, positions in rest:
            others = self.rest.table(rows, positions)
            first = filtered.slice(at, len(positions))
            at += len(positions)
            columns = [first.column(c) if c in self.first.needed else others.column(c) for c in request.columns]
            yield pa.table(columns, names=list(request.columns))

    def _others(
        self, store: Store, footer: Footer, counts: ReadCounts, groups: Sequence[int], survivors: Int64s
    ) -> Iterator[Rows]:
        rows = sum(footer.row_groups[n].rows for n in groups)
        with naming(store, self.task):
            few = _in_few_pages(footer, _counted(store, self.task, counts), survivors, self.rest.names, rows)
        if few:
            yield from fetch_parts(store, self.task, survivors, self.rest.names, counts)
        else:
            yield from stream(store, self.task, self.rest.names, counts, groups, survivors, self.rest.compact)


def _blocks(positions: Int64s) -> int:
    """The number of blocks of ``PAGE_ROWS`` rows of a file that hold one of these rows (sorted)."""
    return int(np.count_nonzero(np.diff(positions // PAGE_ROWS, prepend=-1)))


def by_pages(footer: Footer, fetch_ranges: FetchRanges, positions: Int64s, names: Sequence[str]) -> bool:
    """Whether columns of chosen rows are fetched by the pages that hold these, which are few; else in order."""
    if len(positions) > footer.rows * WHOLE_FILE_SHARE:
        return False
    return footer.rows < IN_ORDER_ROWS or _in_few_pages(footer, fetch_ranges, positions, names, footer.rows)


def _in_few_pages(
    footer: Footer, fetch_ranges: FetchRanges, positions: Int64s, names: Sequence[str], rows: int
) -> bool:
    """Whether few of the columns' pages hold a chosen row; ``rows``: those of the row groups that are read."""
    if _blocks(positions) * PAGE_ROWS <= rows * LATE_PAGES:
        return True
    # A file may have smaller pages ('parquet.page.size'), of which a smaller share holds a row.  pyarrow decodes single
    # pages of other codecs, which takes longer than to decode them all.
    if len(positions) > rows * WHOLE_FILE_SHARE or not has_codec(footer, names, ZSTD):
        return False
    try:
        return share_of_pages(footer, fetch_ranges, positions, names) <= LATE_PAGES
    except CorruptError:
        return False  # a read in order takes no offset index


def _counted(store: Store, task: FileTask, counts: ReadCounts) -> FetchRanges:
    """A function that fetches ranges of the file and counts them."""

    def fetch(ranges: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        counts.add(bytes=sum(length for _, length in ranges), requests=len(ranges))
        return store.read_ranges(task.path, ranges)

    return fetch


def _few_rows(
    store: Store, task: FileTask, columns: _FileColumns, counts: ReadCounts, positions: Int64s
) -> Iterator[Rows]:
    """The columns of a few rows of a file with pages, at these positions (sorted)."""
    footer = footer_of(store, task)
    with naming(store, task):
        few = by_pages(footer, _counted(store, task, counts), positions, columns.names)
    if few:
        yield from fetch_parts(store, task, positions, columns.names, counts)
        return
    starts = [group.first_row for group in footer.row_groups]
    first, last = (bisect_right(starts, int(positions[end])) for end in (0, -1))
    yield from stream(store, task, columns.names, counts, range(first - 1, last), positions, columns.compact)


def _runs(footer: Footer) -> Iterator[list[int]]:
    """Runs of neighbouring row groups, each of enough rows to be worth opening the file for."""
    groups = footer.row_groups
    return at_least(_RUN_ROWS, range(len(groups)), lambda number: groups[number].rows)


class _FileColumns:
    """Builds the table's columns from a file's: mapped by id, cast, constant for partitions, or generated."""

    def __init__(self, task: FileTask, request: ReadRequest, needed: Sequence[str]) -> None:
        schema = request.schema
        self._task = task
        self._schema = schema
        self._timezone = request.timezone
        self.needed = needed
        self._mapping = map_fields(schema.fields, task.file_schema.fields)
        self._constants = dict(zip(schema.partition_keys, task.partition, strict=True))
        stored = [
            f.name
            for c in needed
            if c in self._mapping.fields and c not in self._constants
            for f in [self._mapping.fields[c]]
            if f is not None
        ]
        system = [c for c in needed if c in STORED_SYSTEM] if task.file_schema.primary_keys else []
        self.names = list(dict.fromkeys([*stored, *system]))
        self.compact = [
            source.name
            for c in needed
            if c in request.compact
            and (source := self.source(c)) is not None
            and stored_alike(schema.field(c).type, source.type)
        ]
        """Columns of the file that are read in smaller types, and keep these."""
        self._as_stored = self._mapping.identical and not self._constants and len(stored) == len(needed) > 0
        self._unchanged: tuple[pa.Schema, pa.Schema] | None = None
        """Of batches whose columns are the table's as they are: their schema, and that of the table's."""

    def source(self, name: str) -> DataField | None:
        """The file's column that stores a column of the table; None for partition columns and columns added later."""
        return None if name in self._constants else self._mapping.fields.get(name)

    def table(self, rows: pa.Table | pa.RecordBatch, positions: Int64s | range) -> pa.Table:
        if self._as_stored and rows.schema.names == self.needed:
            schema = _nullable(output_schema(self._schema, self.needed))
            if rows.schema.types == schema.types:
                return pa.Table.from_arrays(rows.columns, schema=schema)
        if self._unchanged is not None and rows.schema.equals(self._unchanged[0]):
            return pa.Table.from_arrays(rows.columns, schema=self._unchanged[1])
        table = self._converted(rows, positions)
        if rows.schema.names == self.needed and rows.schema.types == table.schema.types and self._keeps_values():
            self._unchanged = rows.schema, table.schema
        return table

    def _keeps_values(self) -> bool:
        """Whether columns of the right types are the table's: nested ones may have members of other ids."""
        return all((s := self.source(c)) is not None and s.type == self._schema.field(c).type for c in self.needed)

    def _converted(self, rows: pa.Table | pa.RecordBatch, positions: Int64s | range) -> pa.Table:
        count = len(positions)
        arrays: list[Any] = []
        fields: list[pa.Field] = []
        extra = metadata_fields(self._schema.partition_fields) if _METADATA.intersection(self.needed) else {}
        for name in self.needed:
            if name in extra:
                fields.append(extra[name])
                if name in self.names:
                    arrays.append(rows.column(name).cast(extra[name].type))
                else:
                    arrays.append(self.metadata(name, positions))
                continue
            field_ = self._schema.field(name)
            fields.append(arrow_field(field_).with_nullable(True))
            if name in self._constants:
                arrays.append(_repeat(field_, self._constants[name], count))
                continue
            source = self._mapping.fields[name]
            if source is None:
                arrays.append(null_column(count, arrow_type(field_.type)))
                continue
            column = rows.column(source.name)
            if source.name in self.compact and column.type != fields[-1].type:
                fields[-1] = fields[-1].with_type(column.type)
                arrays.append(column)
                continue
            arrays.append(align(column, field_, source, self._task.path, self._timezone))
        if not fields:
            return _no_columns(count)
        return pa.Table.from_arrays(arrays, schema=pa.schema(fields))

    def metadata(self, name: str, positions: Int64s | range) -> pa.Array:
        """A metadata column for rows at these positions."""
        count = len(positions)
        if name == ROW_INDEX:
            return pa.array(position_array(positions), pa.int64())
        if name == BUCKET:
            return pa.array(np.full(count, self._task.bucket, np.int32))
        if name == FILE_PATH:
            return pa.repeat(self._task.path, count)
        if name == merge_spec.VALUE_KIND:
            return pa.array(np.zeros(count, np.int8))
        if name == merge_spec.SEQUENCE_NUMBER:
            return pa.nulls(count, pa.int64())
        members = self._schema.partition_fields
        arrays = [_repeat(f, v, count) for f, v in zip(members, self._task.partition, strict=True)]
        if not members:
            return pa.array([{}] * count, pa.struct([]))
        return pa.StructArray.from_arrays(arrays, fields=[arrow_field(f) for f in members])


def generated(
    task: FileTask, request: ReadRequest, columns: Sequence[str], positions: np.ndarray
) -> dict[str, pa.Array]:
    """The metadata columns among ``columns`` that files do not store, for rows at these positions."""
    names = metadata_fields(request.schema.partition_fields).keys() - STORED_SYSTEM
    file_columns = _FileColumns(task, request, [])
    return {c: file_columns.metadata(c, positions) for c in columns if c in names}


def _repeat(field_: DataField, value: Any, count: int) -> pa.Array:
    if value is None:
        return null_column(count, arrow_type(field_.type))
    return pa.repeat(physical_array(field_, [value])[0], count)


def _no_columns(count: int) -> pa.Table:
    """A table without columns that has a number of rows, for counting."""
    return pa.table({"": pa.nulls(count)}).select([])


def _read(store: Store, task: FileTask, columns: _FileColumns, counts: ReadCounts) -> Iterator[Rows]:
    names = columns.names
    chosen = task.selection.count(task.row_count)
    if not names:
        positions = task.selection.positions(task.row_count)
        yield _no_columns(len(positions)), positions
    elif not has_pages(task):
        picked = None if chosen == task.row_count else task.selection.positions(task.row_count)
        yield from stream_whole(store, task, names, counts, picked)
    elif _few(chosen, task):
        yield from _few_rows(store, task, columns, counts, task.selection.positions(task.row_count))
    else:
        picked = None if chosen == task.row_count else task.selection.positions(task.row_count)
        yield from stream(store, task, names, counts, picked=picked, compact=columns.compact)


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
            None
            if f.merge is None
            else MergeTask(tuple(tasks_of(f.merge.files, schemas)), f.merge.predicate, f.merge.schema),
            f.entry.file.level,
        )
        for f in files
    ]


@dataclass(frozen=True, slots=True)
class IgnoredFiles:
    """Which unreadable data files a query leaves out: ``scan.ignore-corrupt-files``, ``scan.ignore-lost-files``.

    As in Paimon, a file that cannot be read ends where it breaks: rows before that were returned.  Only queries ignore
    files: what is read to be written again (compaction, DELETE, UPDATE) must be whole, and a deletion vector is never
    ignored.  A store that does not answer stays an error.
    """

    corrupt: bool
    lost: bool

    @staticmethod
    def of(options: Mapping[str, str]) -> IgnoredFiles | None:
        """The setting in a table's options; None, as nearly always, if every file must be readable."""
        if opt.SCAN_IGNORE_CORRUPT.name not in options and opt.SCAN_IGNORE_LOST.name not in options:
            return None
        parsed = opt.Options(options)
        ignored = IgnoredFiles(parsed.of(opt.SCAN_IGNORE_CORRUPT), parsed.of(opt.SCAN_IGNORE_LOST))
        return ignored if ignored.corrupt or ignored.lost else None

    def guard(
        self, store: Store, task: FileTask, counts: ReadCounts, read: Callable[[], Iterator[pa.Table]]
    ) -> Iterator[pa.Table]:
        """Yield what ``read`` does up to the first error that is ignored, which is logged and counted once a file."""
        try:
            yield from read()
        except (CorruptError, NotFound) as e:
            lost = isinstance(e, NotFound) and not store.exists(task.path)
            if not (self.lost if lost else self.corrupt):
                raise
            if not counts.files_ignored:
                counts.add(files_ignored=1)
                warn_ignored(task.path, e, lost)


def warn_ignored(path: str, error: object, lost: bool) -> None:
    """Log a file that a query leaves out."""
    option = (opt.SCAN_IGNORE_LOST if lost else opt.SCAN_IGNORE_CORRUPT).name
    log.warning("data file %s is ignored ('%s'): %s", path, option, error)


def read_merged(store: Store, task: FileTask, request: ReadRequest, counts: ReadCounts) -> Iterator[pa.Table]:
    """Yield the matching rows of files that are merged by key, as :func:`read_file` does."""
    assert task.merge is not None
    schema = task.merge.schema or request.schema
    spec = merge_spec.MergeSpec.of(schema)
    names = {f.name for f in schema.fields}
    requested = [*request.columns, *(sorted(sources_of(request.predicate)) if request.predicate is not None else ())]
    # The keys are always read, so that the number of rows is never lost.
    columns = tuple(dict.fromkeys([*spec.keys, *(c for c in requested if c in names)]))
    inner = replace(request, schema=_extended(schema), columns=spec.needed(columns), predicate=task.merge.predicate)
    inner = replace(inner, compact=frozenset())  # files of one chunk may store a column in different types
    stored = not STORED_SYSTEM.keys().isdisjoint(requested)
    # Positions count the live rows among merged ones, in key order.
    positioned = ROW_INDEX in requested or task.selection.rows is not None
    by_level = merge_spec.needs_lookup(schema) and spec.engine in (merge_spec.PARTIAL_UPDATE, merge_spec.AGGREGATION)

    def merge(chunk: pa.Table) -> _Merged:
        if by_level:
            chunk = LevelGroups.of(spec.keys, chunk).chunk
        try:
            rows = merge_rows(spec, chunk, columns, keep_deletes=stored or positioned)
        except InvalidRequest as e:
            raise InvalidRequest(f"{e} (merging {_folder(task.path)})") from e
        if positioned and not stored:
            rows = rows.filter(pa.array(alive(rows.column(merge_spec.VALUE_KIND).to_numpy())))
        merged = _Merged(rows, range(rows.num_rows), rows.num_rows)
        return merged if task.selection.rows is not None else merged.matching(request.predicate, schema)

    costs = [ReadCounts() for _ in task.merge.files]
    chunks = merge_runs(_runs_to_merge(store, task.merge, inner, costs, by_level), spec.keys)
    chosen = None if task.selection.rows is None else task.selection.positions(task.row_count)
    before = returned = 0
    try:
        for merged in map_ahead(chunks, merge, MERGE_THREADS):
            start, before = before, before + merged.count
            if chosen is not None:
                low, high = np.searchsorted(chosen, (start, before))
                merged = merged.at(chosen[low:high] - start).matching(request.predicate, schema)
            returned += merged.rows.num_rows
            if merged.rows.num_rows:
                yield _output(task, request, merged.rows, position_array(merged.positions) + start)
    finally:
        read = {name: sum(getattr(cost, name) for cost in costs) for name in COUNTERS}
        counts.add(**{**read, "rows_returned": returned})


@dataclass(frozen=True, slots=True)
class _Merged:
    """Merged rows of a chunk, and their positions among the ``count`` rows that the chunk was merged to."""

    rows: pa.Table
    positions: Int64s | range
    count: int

    def matching(self, predicate: Predicate | None, schema: TableSchema) -> _Merged:
        """The rows for which a predicate is TRUE."""
        if predicate is None:
            return self
        true = evaluate(predicate, self.rows, schema.fields).fill_null(False)
        kept = position_array(self.positions)[true.to_numpy(zero_copy_only=False)]
        return _Merged(self.rows.filter(true), kept, self.count)

    def at(self, positions: Int64s) -> _Merged:
        """Of all rows that the chunk was merged to, those at these positions."""
        return _Merged(self.rows.take(pa.array(positions)), positions, self.count)


def _runs_to_merge(
    store: Store, merge: MergeTask, request: ReadRequest, costs: Sequence[ReadCounts], with_level: bool
) -> list[SortedSource]:
    """Sorted runs: each file of level 0, and all files of one level above 0 together.

    ``merge.files`` are in order of their smallest key.
    """
    runs: dict[tuple[int, int], list[tuple[FileTask, ReadCounts]]] = {}
    for number, (file, cost) in enumerate(zip(merge.files, costs, strict=True)):
        runs.setdefault((file.level, number if file.level == 0 else 0), []).append((file, cost))

    def rows(run: Sequence[tuple[FileTask, ReadCounts]]) -> Iterator[pa.Table]:
        for file, cost in run:
            for table in read_file(store, replace(file, file_schema=_extended(file.file_schema)), request, cost):
                yield _with_level(table, file.level) if with_level else table

    return [SortedSource(rows(run), ", ".join(file.path for file, _ in run)) for run in runs.values()]


def _output(task: FileTask, request: ReadRequest, merged: pa.Table, positions: np.ndarray) -> pa.Table:
    metadata: dict[str, pa.Array] = generated(task, request, request.columns, positions)
    if not metadata:
        return merged.select(list(request.columns))
    arrays: Sequence[pa.Array] = [metadata[c] if c in metadata else merged.column(c) for c in request.columns]
    return pa.table(arrays, names=list(request.columns))


def alive(kinds: np.ndarray) -> np.ndarray:
    """Whether readers see rows of these kinds: neither deletes nor the old values of updates."""
    live: np.ndarray = (kinds != merge_spec.UPDATE_BEFORE) & (kinds != merge_spec.DELETE)
    return live


def _with_level(rows: pa.Table, level: int) -> pa.Table:
    return rows.append_column(LEVEL, pa.array(np.full(rows.num_rows, level, np.int32)))


@by_identity
def _extended(schema: TableSchema) -> TableSchema:
    """The schema with the system columns that merging needs; they are found by id like any other."""
    return replace(schema, fields=(*schema.fields, *merge_spec.SYSTEM_FIELDS))


def _folder(path: str) -> str:
    return path.rsplit("/", 1)[0]
