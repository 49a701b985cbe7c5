"""Metadata-only queries: counts, distinct values and extremes from metadata and indexes, file by file.

Each file takes the cheapest of three ways that is exact:

* ``metadata``: row counts, partition values, NULL counts, and bounds that are values of the column (not cut, not of
  floats, of a file whose rows all count);
* ``index``: the values that an index holds with their rows, intersected with the chosen ones;
* ``data``: the one column (and the predicate's) is read.

The first two are taken only for files whose selection is exact: a superset would count rows that do not match.
Values group as in Spark: one NaN, and -0.0 with 0.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from bitlake.errors import BitlakeError, InvalidRequest
from bitlake.expressions.evaluate import physical_array
from bitlake.fileindex.reader import FileIndexReader
from bitlake.io import Store
from bitlake.metadata.manifest import has_index
from bitlake.metadata.paths import TablePaths
from bitlake.runtime import Caches, LocalRunner
from bitlake.scan.aggregate_values import one_zero
from bitlake.scan.column_reader import FileTask, ReadCounts
from bitlake.scan.index_pruning import index_identity, open_file_index
from bitlake.scan.plan import Plan, PlannedFile
from bitlake.scan.read_ahead import threads_for
from bitlake.scan.reader import IgnoredFiles, ReadRequest, read_file, tasks_of
from bitlake.scan.sort_order import Order, best_rows
from bitlake.scan.top_n import FileRanges
from bitlake.types import AtomicType, DataField, arrow_type
from bitlake.types.datatypes import FLOATS, is_scalar

T = TypeVar("T")
METADATA, INDEX, DATA = "metadata", "index", "data"
_COUNT = "count"


class NeedsData(Exception):
    """The aggregate needs rows of data files, which the caller does not let it read."""


class ScanAggregates:
    """Aggregates of a plan's rows.

    ``may_read`` allows opening data files where metadata and indexes do not suffice; without it methods raise
    :class:`NeedsData`.  ``answered_by`` of the plan's metrics counts the files answered each way.
    """

    def __init__(
        self,
        plan: Plan,
        store: Store,
        paths: TablePaths,
        *,
        timezone: str,
        use_index: bool,
        may_read: bool,
        ignored: IgnoredFiles | None = None,
    ) -> None:
        self.plan = plan
        self._store = store
        self._paths = paths
        self._timezone = timezone
        self._use_index = use_index
        self.may_read = may_read
        self._ignored = ignored
        self._ranges: dict[str, FileRanges] = {}

    # --- the answers -------------------------------------------------------------------------------------------------

    def count(self, column: str | None = None) -> int:
        """The number of rows, or of those that are not NULL in a column."""
        total = 0
        for file in self.plan.files:
            if self.is_sure(file):
                rows = file.chosen_rows if column is None else self._not_null(file, column)
                if rows is not None:
                    total += rows
                    if column is None:
                        self.count_way(INDEX if file.selection.rows is not None else METADATA)
                    continue
            for table in self.read(file, [] if column is None else [column]):
                total += table.num_rows - (0 if column is None else table.column(0).null_count)
        return total

    def exists(self) -> bool:
        """Whether there is a row."""
        files = self.plan.files
        if any(self.is_sure(f) and f.chosen_rows for f in files):
            self.count_way(METADATA)
            return True
        return any(t.num_rows for f in files if not self.is_sure(f) for t in self.read(f, []))

    def group_count(self, column: str) -> pa.Table:
        """Each distinct value, also NULL, with its number of rows: columns ``<column>`` and ``count``."""
        field = self.comparable(column)
        parts = [part for file in self.plan.files for part in self._counted(file, field)]
        return _merged(parts, field)

    def distinct(self, column: str) -> pa.Array:
        """The distinct values, NULL last if there is one."""
        field = self.comparable(column)
        parts = [part for file in self.plan.files for part in self._distinct(file, field)]
        values = _merged(parts, field).column(0).combine_chunks()
        return pa.concat_arrays([values.drop_null(), pa.nulls(values.null_count, values.type)])

    def min_max(self, column: str) -> tuple[pa.Scalar, pa.Scalar]:
        """The smallest and the largest value that is not NULL; NULL if there is none."""
        field = self.comparable(column)
        kind = arrow_type(field.type)
        ends = [pa.array([], kind)]
        for file in self.plan.files:
            ends += self._ends(file, field)
        values = pa.table([pa.chunked_array(ends, kind).drop_null()], names=[column])
        out = []
        for descending in (False, True):
            best = best_rows(values, [Order(column, descending, False)], 1)
            out.append(values.column(0)[int(best[0])] if len(best) else pa.scalar(None, kind))
        return out[0], out[1]

    # --- one file ----------------------------------------------------------------------------------------------------

    def _not_null(self, file: PlannedFile, column: str) -> int | None:
        ranges = self.range_of(column)
        stats = ranges.stats(file)
        nulls = None if stats is None else ranges.nulls(stats, file)
        if nulls == 0 or nulls == file.row_count:
            self.count_way(METADATA)
            return 0 if nulls else file.chosen_rows
        if nulls is not None and file.whole:
            self.count_way(METADATA)
            return file.row_count - nulls
        name, index = self.index_of(file, column)
        nulls = None if index is None else index.null_count(name, file.selection.rows)
        if nulls is None:
            return None
        self.count_way(INDEX)
        return file.chosen_rows - nulls

    def _counted(self, file: PlannedFile, field: DataField) -> Iterator[pa.Table]:
        if self.is_sure(file):
            single = self._single(file, field)
            if single is not None:
                yield single
                return
            name, index = self.index_of(file, field.name)
            values = None if index is None else index.value_counts(name, file.selection.rows)
            if values is not None:
                self.count_way(INDEX)
                yield _table(field, values.values.cast(arrow_type(field.type)), values.counts)
                yield _nulls(field, values.nulls)
                return
        for table in self.read(file, [field.name]):
            yield _merged([_table(field, table.column(0), np.ones(table.num_rows, np.int64))], field)

    def _distinct(self, file: PlannedFile, field: DataField) -> Iterator[pa.Table]:
        if self.is_sure(file) and file.whole and self._single(file, field) is None:
            name, index = self.index_of(file, field.name)
            values = None if index is None else index.distinct(name)
            nulls = None if index is None or values is None else index.null_count(name)
            if values is not None and nulls is not None:
                self.count_way(INDEX)
                yield _table(field, values.cast(arrow_type(field.type)), np.ones(len(values), np.int64))
                yield _nulls(field, nulls)
                return
        yield from self._counted(file, field)

    def _ends(self, file: PlannedFile, field: DataField) -> list[pa.Array]:
        """Values of a file among which its smallest and largest are."""
        if self.is_sure(file):
            bounds = self._bounds(file, field)
            if bounds is not None:
                self.count_way(METADATA)
                return [physical_array(field, bounds)]
            name, index = self.index_of(file, field.name)
            rows: BitMap | None = file.selection.rows
            values = None if index is None else index.extremes(name, rows)
            if values is None and index is not None:
                counted = index.value_counts(name, rows) if rows is not None else None
                values = index.distinct(name) if rows is None else None if counted is None else counted.values
            if values is not None:
                self.count_way(INDEX)
                return [values.cast(arrow_type(field.type))]
        out = []
        for table in self.read(file, [field.name]):
            for descending in (False, True):
                best = best_rows(table, [Order(field.name, descending, False)], 1)
                out.append(table.column(0).take(pa.array(best)).combine_chunks())
        return [c for a in out for c in (a.chunks if isinstance(a, pa.ChunkedArray) else [a])]

    def _bounds(self, file: PlannedFile, field: DataField) -> list[Any] | None:
        """The smallest and largest value by metadata, if the chosen rows are known to have them."""
        ranges = self.range_of(field.name)
        stats = ranges.stats(file)
        if stats is None:
            return None
        if ranges.nulls(stats, file) == file.row_count:
            return []
        constant = ranges.constant
        floating = isinstance(field.type, AtomicType) and field.type.root in FLOATS
        whole = file.whole and not stats.truncated and not floating
        if stats.min is None or stats.max is None or not (constant or whole):
            return None
        return [stats.min, stats.max]

    def _single(self, file: PlannedFile, field: DataField) -> pa.Table | None:
        """The file's values with their counts, if metadata show that it has at most one value."""
        bounds = self._bounds(file, field)
        if bounds is None or (bounds and bounds[0] != bounds[1]):
            return None
        ranges = self.range_of(field.name)
        stats = ranges.stats(file)
        nulls = None if stats is None else ranges.nulls(stats, file)
        if nulls is None or not (file.whole or nulls in (0, file.row_count)):
            return None
        if not file.whole and nulls:  # all of them
            nulls = file.chosen_rows
        self.count_way(METADATA)
        parts = [_nulls(field, nulls)]
        if bounds:
            parts.append(_table(field, physical_array(field, bounds[:1]), np.array([file.chosen_rows - nulls])))
        return pa.concat_tables(parts)

    # --- helpers -----------------------------------------------------------------------------------------------------

    def is_sure(self, file: PlannedFile) -> bool:
        """Whether all chosen rows of a file are known to match."""
        return file.sure(self.plan.predicate)

    def count_way(self, way: str) -> None:
        """Count a file's answer: :data:`METADATA`, :data:`INDEX` or :data:`DATA`."""
        answered = self.plan.metrics.answered_by
        answered[way] = answered.get(way, 0) + 1

    def range_of(self, column: str) -> FileRanges:
        """Return the metadata's bounds of a column in each file."""
        ranges = self._ranges.get(column)
        if ranges is None:
            order = Order(column, False, False)
            ranges = self._ranges[column] = FileRanges(order, self.plan.schema, self.plan.schemas, self._paths)
        return ranges

    def index_of(self, file: PlannedFile, column: str) -> tuple[str, FileIndexReader | None]:
        """The file's name of a column, and the file's index if it can be used for the column."""
        source, usable = self.range_of(column).source(file.entry.file.schema_id)
        if source is None or not usable or not self._use_index or not has_index(file.entry.file):
            return column, None
        try:
            index = open_file_index(
                self._store, file.path, file.entry.file, self.plan.schemas[file.entry.file.schema_id]
            )
        except BitlakeError:
            return source.name, None  # the rows are read instead
        return source.name, index

    @property
    def caches(self) -> Caches:
        """The caches of the store."""
        return self._store.caches

    def partial_key(self, file: PlannedFile) -> tuple[object, ...] | None:
        """Return a key under which a file's values and indexes never change.  None without an index."""
        if not self._use_index or file.merge is not None or not has_index(file.entry.file):
            return None
        return file.path, index_identity(file.entry.file), file.partition, self._timezone

    def comparable(self, column: str) -> DataField:
        """A column whose values can be grouped; raises :class:`InvalidRequest` for any other."""
        field = self.plan.schema.field(column)
        if not is_scalar(field.type):
            raise InvalidRequest(f"column '{field.name}' of type {field.type} cannot be grouped or compared")
        return field

    def read(self, file: PlannedFile, columns: Sequence[str]) -> Iterator[pa.Table]:
        """The matching rows of a file, some at a time; raises :class:`NeedsData` where reading is not allowed."""
        request, counts = self._request(columns), ReadCounts()
        try:
            yield from read_file(self._store, tasks_of([file], self.plan.schemas)[0], request, counts)
        finally:
            self._count(counts)

    def read_each(
        self, files: Sequence[PlannedFile], columns: Sequence[str], convert: Callable[[pa.Table], T]
    ) -> list[T]:
        """Apply ``convert`` to each batch of matching rows, in the order of the files; threads read the files.

        Raises :class:`NeedsData` where reading is not allowed.
        """
        if not files:
            return []
        request, tasks = self._request(columns), tasks_of(files, self.plan.schemas)

        def one(task: FileTask) -> tuple[list[T], ReadCounts]:
            counts = ReadCounts()
            return [convert(rows) for rows in read_file(self._store, task, request, counts)], counts

        results: list[T] = []
        for of_file, counts in LocalRunner(threads_for(self._store, tasks)).run(tasks, one):
            results += of_file
            self._count(counts)
        return results

    def _request(self, columns: Sequence[str]) -> ReadRequest:
        if not self.may_read:
            raise NeedsData
        return ReadRequest(self.plan.schema, tuple(columns), self.plan.predicate, self._timezone, self._ignored)

    def _count(self, counts: ReadCounts) -> None:
        """Count a file that was read."""
        self.count_way(DATA)
        m = self.plan.metrics
        m.rows_read += counts.rows_read
        m.rows_returned += counts.rows_returned
        m.data_bytes_read += counts.bytes
        m.data_requests += counts.requests
        m.pages_read += counts.pages
        m.row_groups_read += counts.row_groups
        m.files_ignored += counts.files_ignored


def _table(field: DataField, values: pa.Array | pa.ChunkedArray, counts: np.ndarray[Any, Any]) -> pa.Table:
    column = values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values], arrow_type(field.type))
    return pa.table([column, pa.array(counts, pa.int64())], names=[field.name, count_name(field)])


def _nulls(field: DataField, count: int) -> pa.Table:
    rows = 1 if count else 0
    return _table(field, pa.nulls(rows, arrow_type(field.type)), np.full(rows, count, np.int64))


def count_name(field: DataField) -> str:
    """The name of the column of counts beside a column."""
    return _COUNT if field.name != _COUNT else "count_rows"


def _merged(parts: Sequence[pa.Table], field: DataField) -> pa.Table:
    """One row for each distinct value, counts added."""
    count, kind = count_name(field), arrow_type(field.type)
    if not parts:
        return pa.table([pa.array([], kind), pa.array([], pa.int64())], names=[field.name, count])
    whole = pa.concat_tables(parts)
    values = whole.column(0)
    values = one_zero(values)
    # Not by Arrow's group_by, for which it imports its datasets: that takes 0.1 s, once.
    chunks = values.dictionary_encode("encode").chunks  # without empty ones, and all with the same dictionary
    if not chunks:
        return whole.slice(0, 0)
    groups = chunks[0].dictionary
    counts = np.zeros(len(groups), np.int64)
    np.add.at(counts, np.concatenate([c.indices.to_numpy() for c in chunks]), whole.column(1).to_numpy())
    return pa.table([groups, pa.array(counts)], names=[field.name, count])
