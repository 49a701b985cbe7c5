"""Top n: plan and read ``ORDER BY … LIMIT n`` with as few files and rows as possible.

Planning takes files best first, by the bound of the first order column that partition values and statistics give.
Every file taken promises rows: its chosen rows at the place of its worst bound, or its n best values themselves where
an index ranks rows.  Once n rows are promised, files whose best bound is not better are skipped.  With a filter, rows
are promised only where the selection is exact, for only then do the chosen rows surely match.

Reading takes the files best first, until n rows have passed the filter.  Where the plan leaves few rows, all columns
are read at once.  Else the order columns come first; the n-th best row so far prunes files whose bounds are not better,
and rows that an index ranks as not better; and the other columns are read of the winners alone.
"""

from __future__ import annotations

import time
from bisect import insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from bitlake.codec.roaring import bitmap_of
from bitlake.errors import BitlakeError
from bitlake.expressions.statistics import ColumnStats, bounds_of
from bitlake.expressions.tree import IndexedExpression
from bitlake.fileindex.reader import FileIndexReader
from bitlake.fileindex.selection import Selection
from bitlake.formats.conform import nullable, retyped, take_rows
from bitlake.io import Store
from bitlake.metadata.manifest import has_index
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.stats import column_stats
from bitlake.scan.column_reader import ReadCounts
from bitlake.scan.index_pruning import open_file_index
from bitlake.scan.plan import PlannedFile, PlanStep, ScanMetrics, SkippedFile, SkipReason, StepName
from bitlake.scan.reader import ROW_INDEX, ReadRequest, output_schema, read_file, tasks_of
from bitlake.scan.sort_order import BEST, WORST, Order, Place, best_rows, with_expressions
from bitlake.schema.evolution import map_fields, map_indexed, stored_alike
from bitlake.snapshot.partitions import PartitionReader
from bitlake.types import AtomicType, DataField
from bitlake.types.arrow import physical_values
from bitlake.types.datatypes import FLOATS

# --- planning ---------------------------------------------------------------------------------------------------------

MAX_INDEXED = 10_000
"""An index looks up the values of at most this number of rows: for more, reading the column is as fast."""


@dataclass(frozen=True, slots=True)
class TopNRequest:
    """The first ``n`` rows by ``orders``; ``filtered``: there is a predicate."""

    orders: tuple[Order, ...]
    n: int
    filtered: bool
    use_index: bool


class Promised:
    """The best places that rows are known to have, and the n-th of these."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._places: list[tuple[Place, int]] = []
        self._rows = 0

    def add(self, place: Place, rows: int) -> None:
        """At least ``rows`` further rows are as good as ``place``."""
        if rows <= 0 or place == WORST or (self.worst is not None and place >= self.worst):
            return
        insort(self._places, (place, rows))
        self._rows += rows
        while self._places and self._rows - self._places[-1][1] >= self._n:
            self._rows -= self._places.pop()[1]

    @property
    def worst(self) -> Place | None:
        """The place that n rows reach, or None while fewer are promised."""
        return self._places[-1][0] if self._places and self._rows >= self._n else None


class FileRanges:
    """The places that the rows of files can have by one order column."""

    def __init__(self, order: Order, schema: TableSchema, schemas: Mapping[int, TableSchema], paths: Any) -> None:
        self.order = order
        self.field = _field_of(order.column, schema)
        self._schema = schema
        self._schemas = schemas
        self._partitions = PartitionReader(schema, paths)
        self._sources: dict[int, tuple[DataField | None, bool]] = {}

    def source(self, schema_id: int) -> tuple[DataField | None, bool]:
        """The file's column (None: every row is NULL), and whether its bounds and indexes can be used."""
        source = self._sources.get(schema_id)
        if source is None:
            file_schema = self._schemas[schema_id]
            mapping = map_fields(self._schema.fields, file_schema.fields)
            column: DataField | None
            if isinstance(self.order.column, IndexedExpression):
                name = map_indexed(self.order.column, self._schema.fields, mapping)
                column, usable = replace(self.field, name=name or self.field.name), name is not None
            else:
                column = mapping.fields[self.field.name]
                usable = column is not None and stored_alike(self.field.type, column.type)
            source = self._sources[schema_id] = (column, usable)
        return source

    def stats(self, file: PlannedFile) -> ColumnStats | None:
        """The column's statistics in a file; None if unknown, as for an expression or files that are merged."""
        if isinstance(self.order.column, IndexedExpression):
            return None
        if self.field.name in self._schema.partition_keys:
            return self._partitions.stats(file.entry.partition)[self.field.name]
        if file.merge is not None:
            # The files may have different schemas, and a merged row may have the value of any of them.
            return None
        column, usable = self.source(file.entry.file.schema_id)
        if column is None:
            return ColumnStats(None, None, file.row_count)
        if not usable:
            return None
        fields = self._schemas[file.entry.file.schema_id].fields
        stats: ColumnStats | None = column_stats(file.entry.file, fields).get(column.name)
        return stats

    def best(self, file: PlannedFile) -> Place:
        """No row of the file stands before this."""
        stats = self.stats(file)
        if stats is None:
            return BEST
        nulls = self.nulls(stats, file)
        if nulls == file.row_count or (self.order.nulls_first and nulls != 0):
            return self.order.null_place
        bounds = bounds_of(stats)
        bound = bounds.high if self.order.descending else bounds.low
        # NaN, which is in no bound, is the greatest number.
        return BEST if bound is None or (self.order.descending and self._floating) else self.order.place(bound)

    def promise(self, file: PlannedFile, rows: int, promised: Promised, whole: bool) -> None:
        """Promise ``rows`` matching rows of a file; ``whole``: they are all its rows."""
        stats = self.stats(file)
        if stats is None:
            return
        nulls = self.nulls(stats, file)
        if nulls == file.row_count:
            promised.add(self.order.null_place, rows)
            return
        bounds = bounds_of(stats)
        bound = bounds.low if self.order.descending else bounds.high
        unsure = bound is None or (not self.order.descending and self._floating)
        worst = WORST if unsure else self.order.place(bound)
        if self.order.nulls_first:  # NULLs are better than any bound
            sure_nulls = nulls if whole and nulls is not None else 0
            promised.add(self.order.null_place, sure_nulls)
            promised.add(worst, rows - sure_nulls)
        elif nulls is not None:
            promised.add(worst, rows - nulls)
            promised.add(self.order.null_place, min(rows, nulls))

    @property
    def constant(self) -> bool:
        """Whether the column is a partition column, with one value in all rows of a file."""
        return self.field.name in self._schema.partition_keys

    def nulls(self, stats: ColumnStats, file: PlannedFile) -> int | None:
        """The number of NULLs in the file; statistics of a partition are those of one row."""
        if self.field.name in self._schema.partition_keys:
            return file.row_count if stats.null_count else 0
        return stats.null_count

    @property
    def _floating(self) -> bool:
        return isinstance(self.field.type, AtomicType) and self.field.type.root in FLOATS


def _field_of(column: str, schema: TableSchema) -> DataField:
    """The column to sort by, or a field for the values of an expression."""
    return DataField(-1, column, column.type) if isinstance(column, IndexedExpression) else schema.field(column)


@dataclass(frozen=True, slots=True)
class PlacedRows:
    """Rows by their positions, and the rank of each in ``places``, of which the greatest is the worst."""

    positions: np.ndarray[Any, np.dtype[np.int64]]
    ranks: np.ndarray[Any, np.dtype[np.int64]]
    places: Sequence[Place]

    def at(self, chosen: Sequence[bool]) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The positions, ascending, of the rows at chosen places."""
        if not len(self.positions):
            return self.positions
        return np.sort(self.positions[np.array(chosen, bool)[self.ranks]])


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A file that can hold one of the first rows; ``best_rows`` where its index gives them."""

    file: PlannedFile
    best_rows: PlacedRows | None = None


def plan_top_n(
    request: TopNRequest,
    files: Sequence[PlannedFile],
    ranges: FileRanges,
    schemas: Mapping[int, TableSchema],
    store: Store,
) -> PlanStep:
    """Keep the files that can hold one of the first n rows, best first, and skip the others."""
    started = time.perf_counter()
    single = len(request.orders) == 1
    promised = Promised(request.n)
    candidates: list[_Candidate] = []
    skipped: list[SkippedFile] = []
    index_bytes = 0
    ranked = sorted(((ranges.best(f), i) for i, f in enumerate(files)), key=lambda x: x)
    for best, i in ranked:
        file = files[i]
        worst = promised.worst
        if worst is not None and (best > worst or (single and best == worst)):
            detail = f"its best {ranges.order.sql} is not better than that of {request.n:,} rows of other files"
            skipped.append(_skip(file, detail))
            continue
        sure = file.merge is None and (not request.filtered or file.selection.exact)
        narrowed, size = _by_index(request, file, ranges, schemas, store) if sure else (None, 0)
        candidate = narrowed or _Candidate(file)
        index_bytes += size
        if candidate.best_rows is not None:
            counts = np.bincount(candidate.best_rows.ranks, minlength=len(candidate.best_rows.places))
            for place, count in zip(candidate.best_rows.places, counts, strict=True):
                promised.add(place, int(count))
        elif sure:
            ranges.promise(file, file.chosen_rows, promised, file.whole)
        candidates.append(candidate)
    kept = []
    for candidate in candidates:
        cut = _cut(candidate, promised.worst)
        if cut is None:
            skipped.append(_skip(candidate.file, f"{request.n:,} rows of other files are better by {ranges.order}"))
        else:
            kept.append(cut)
    elapsed = (time.perf_counter() - started) * 1000
    return PlanStep(StepName.TOP_N, kept, skipped, index_bytes=index_bytes, ms=elapsed)


def _by_index(
    request: TopNRequest,
    file: PlannedFile,
    ranges: FileRanges,
    schemas: Mapping[int, TableSchema],
    store: Store,
) -> tuple[_Candidate | None, int]:
    """The file with its n best rows by an index that ranks them, None without one; and the bytes of the index read."""
    ranking = ranking_index(file, ranges, schemas, store, request.n) if request.use_index else None
    if ranking is None:
        return None, 0
    index, column, index_type = ranking
    before, order = index.bytes_read, ranges.order
    single = len(request.orders) == 1
    rows = index.top_n(column, request.n, order.descending, order.nulls_first, file.selection.rows, strict=single)
    placed = None if rows is None else placed_rows(index, column, rows, order)
    size = index.bytes_read - before
    if rows is None or placed is None:
        return None, size
    used = (*file.pruned_by, f"{index_type}({column}) top {request.n}")
    place = "embedded" if file.entry.file.embedded_index is not None else "file"
    chosen = Selection.of(rows, file.selection.exact or not request.filtered)
    return _Candidate(replace(file, selection=chosen, pruned_by=used, index_place=place), placed), size


def ranking_index(
    file: PlannedFile, ranges: FileRanges, schemas: Mapping[int, TableSchema], store: Store, n: int
) -> tuple[FileIndexReader, str, str] | None:
    """The file's index, its name of the order column, and the type of index that ranks it; None without one."""
    if file.merge is not None:
        return None
    column, usable = ranges.source(file.entry.file.schema_id)
    if not usable or column is None or file.chosen_rows <= n or n > MAX_INDEXED or not has_index(file.entry.file):
        return None
    try:
        index = open_file_index(store, file.path, file.entry.file, schemas[file.entry.file.schema_id])
    except BitlakeError:
        return None  # an index that cannot be read never makes a scan fail here: the rows are read instead
    index_type = None if index is None else index.ranking_type(column.name)
    return None if index is None or index_type is None else (index, column.name, index_type)


def placed_rows(index: FileIndexReader, column: str, rows: BitMap, order: Order) -> PlacedRows | None:
    """The places of rows of a file, by an index that ranks them; None if it does not."""
    ranked = index.ranked(column, rows)
    if ranked is None:
        return None
    positions, ranks = ranked.positions, ranked.ranks
    places = [order.place(v) for v in ranked.values]
    nulls = rows - bitmap_of(positions)
    if nulls:
        positions = np.concatenate([positions, np.frombuffer(nulls.to_array(), np.uint32).astype(np.int64)])
        ranks = np.concatenate([ranks, np.full(len(nulls), len(places), np.int64)])
        places.append(order.null_place)
    return PlacedRows(positions, ranks, places)


def _cut(candidate: _Candidate, worst: Place | None) -> PlannedFile | None:
    """The file with only the rows that are good enough, or None without any."""
    file, rows = candidate.file, candidate.best_rows
    if rows is None or worst is None:
        return file
    good = [p <= worst for p in rows.places]
    if all(good):
        return file
    chosen: BitMap = bitmap_of(rows.at(good))
    return replace(file, selection=Selection.of(chosen, file.selection.exact)) if chosen else None


def _skip(file: PlannedFile, detail: str) -> SkippedFile:
    return SkippedFile(file.entry, file.path, SkipReason.TOP_N, detail)


# --- reading ----------------------------------------------------------------------------------------------------------

_FEW_ROWS = 1000
_FEW_PER_N = 10
"""Up to this number of chosen rows, or ten times n, all columns are read at once."""
_FIRST, _PER_N = 32, 4
"""A first round takes 32 rows, or four times n."""
_GROWTH = 8
"""Once n rows are found, each round takes this many times the rows of the one before."""
_FIRST_SHARE, _SHARE = 256, 64
"""A first round takes at most 1/256 of the rows, another 1/64: scattered, these lie on every page (of 4,096 rows)."""
_FILE = "__bitlake_file"


class TooManyRows(Exception):
    """More rows would have to be read than the caller allows."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """The order of rows: ``ranges`` by the first of ``orders``; ``use_index``: indexes may rank them."""

    orders: Sequence[Order]
    n: int
    ranges: FileRanges
    use_index: bool
    metrics: ScanMetrics


def read_top_n(
    store: Store,
    files: Sequence[PlannedFile],
    schemas: Mapping[int, TableSchema],
    request: ReadRequest,
    ranking: Ranking,
    counts: Sequence[ReadCounts],
    at_most: int | None = None,
) -> pa.Table:
    """The first ``n`` rows, in order, with the request's columns (nullable, as :func:`read_file` gives them).

    ``counts`` has one entry for each file, which is added to.  Raises :class:`TooManyRows` if the order column of more
    than ``at_most`` rows would have to be read.
    """
    orders, n = ranking.orders, ranking.n
    sorting = tuple(dict.fromkeys(c for o in orders for c in o.sources))
    once = sum(f.chosen_rows for f in files) <= max(_FEW_ROWS, _FEW_PER_N * n)
    extra = tuple(c for c in request.columns if c not in sorting) if once else (ROW_INDEX,)
    first = replace(request, columns=(*sorting, *(c for c in extra if c not in sorting)))
    best, left = with_expressions(_empty(first), orders), at_most
    waiting: list[pa.Table] = []
    for number, file in enumerate(files):
        nth = _nth(best, n, orders[0])
        if n == 0 or (nth is not None and _needless(ranking.ranges.best(file), nth, len(orders) == 1)):
            continue
        for part in _parts(store, file, schemas, request, ranking, lambda: best):  # noqa: B023
            if left is not None:
                left -= part.chosen_rows
                if left < 0:
                    raise TooManyRows
            for table in read_file(store, tasks_of([part], schemas)[0], first, counts[number]):
                numbers = pa.array(np.full(table.num_rows, number, np.int32))
                table = with_expressions(table.append_column(_FILE, numbers), orders)
                waiting.append(retyped(table, best.schema))
                if sum(t.num_rows for t in waiting) >= best.num_rows:  # each row is gathered a few times, for any n
                    best, waiting = _best_of([best, *waiting], orders, n), []
        if waiting:  # the next file is judged by the best rows so far
            best, waiting = _best_of([best, *waiting], orders, n), []
    if once:
        return best.select(list(request.columns))
    return _others(store, files, schemas, request, best, counts)


def _parts(
    store: Store,
    file: PlannedFile,
    schemas: Mapping[int, TableSchema],
    request: ReadRequest,
    ranking: Ranking,
    best: Callable[[], pa.Table],
) -> Iterator[PlannedFile]:
    """The file, or in rounds its best rows, where a filter leaves it open how many must be read.

    ``best``: the best rows so far.
    """
    if file.sure(request.predicate) or not ranking.use_index:
        yield file
        return
    single = len(ranking.orders) == 1
    rounds = BestFirst(store, file, ranking.ranges, schemas, ranking.n, single, ranking.metrics)
    if not rounds.usable:
        yield file
        return
    while True:
        nth = _nth(best(), ranking.n, ranking.orders[0])
        rows = rounds.take(nth, best().num_rows)
        if rows is None:
            return
        if rows:
            yield replace(file, selection=Selection.of(rows, False))


def _nth(best: pa.Table, n: int, order: Order) -> Place | None:
    """The place of the last of n rows; None if there are fewer."""
    if not 0 < n <= best.num_rows:
        return None
    last = best.column(order.column).slice(n - 1, 1)
    return order.place(physical_values(last)[0])


def _best_of(tables: Sequence[pa.Table], orders: Sequence[Order], n: int) -> pa.Table:
    """The first ``n`` rows of tables, in order."""
    rows = pa.concat_tables(tables)
    return take_rows(rows, pa.array(best_rows(rows, orders, n)))


def _empty(request: ReadRequest) -> pa.Table:
    schema = nullable(output_schema(request.schema, request.columns))
    return schema.append(pa.field(_FILE, pa.int32())).empty_table()


def _needless(file_best: Place, nth: Place, single: bool) -> bool:
    """Whether no row of a file can come before the last of the best rows."""
    return file_best > nth or (single and file_best == nth)


def _others(
    store: Store,
    files: Sequence[PlannedFile],
    schemas: Mapping[int, TableSchema],
    request: ReadRequest,
    best: pa.Table,
    counts: Sequence[ReadCounts],
) -> pa.Table:
    """Read the requested columns of the first n rows, by file and position."""
    numbers = best.column(_FILE).to_numpy().astype(np.int64)
    positions = best.column(ROW_INDEX).to_numpy().astype(np.int64)
    unfiltered = replace(request, predicate=None)
    tables = []
    for number in np.unique(numbers).tolist():  # ascending, as lexsort takes them below
        rows = np.sort(positions[numbers == number])
        chosen = replace(files[number], selection=Selection.of(bitmap_of(rows), True))
        for task in tasks_of([chosen], schemas):
            tables += list(read_file(store, task, unfiltered, counts[number]))
    if not tables:
        return _empty(request).select(list(request.columns))
    order = np.empty(len(positions), np.int64)
    order[np.lexsort((positions, numbers))] = np.arange(len(positions))
    return take_rows(pa.concat_tables(tables), pa.array(order))


class BestFirst:
    """The chosen rows of one file in rounds, best first, by an index that ranks them.

    Where a filter must still run over the chosen rows, it is unknown how many of the best survive it.  So the best few
    are read first, then as many more as the share of survivors predicts; rows behind the n-th survivor are not read.
    If none survives, or too many rows would be needed, the rest is read in file order.  ``single``: there is one order
    column, so rows that tie with the n-th best need not be read.

    Measured: top 10 of 1M rows in two files, all columns, with a filter that no index answers, against reading the
    filter's and the order's columns of all rows.  Half of the rows survive: 173 → 42 ms, 17 %: 342 → 131 ms; next to
    none: one round in vain, 311 → 350 ms.
    """

    def __init__(
        self,
        store: Store,
        file: PlannedFile,
        ranges: FileRanges,
        schemas: Mapping[int, TableSchema],
        n: int,
        single: bool,
        metrics: ScanMetrics,
    ) -> None:
        self._ranges = ranges
        self._file = file
        self._single = single
        self._metrics = metrics
        self._n = n
        self._rows = max(_FIRST, _PER_N * n)
        self._before = 0
        self._seen = BitMap()
        self._worst: Place | None = None
        self._over = False
        self._index = ranking_index(file, ranges, schemas, store, n)

    @property
    def usable(self) -> bool:
        """Whether an index ranks the rows, and there are enough rows for it to pay."""
        return self._index is not None and self._rows * _FIRST_SHARE <= self._file.chosen_rows

    def take(self, bound: Place | None, survivors: int) -> BitMap | None:
        """The next rows to read, or None when no further row can be among the best.

        ``bound`` is the place of the n-th best row so far, None while there are fewer; ``survivors`` is the number of
        rows so far.
        """
        if self._over or (bound is not None and self._worst is not None and self._worst >= bound):
            return None
        if self._worst is not None:
            new = survivors - self._before
            expected = 2 * self._n * len(self._seen) // new if new > 0 else self._file.chosen_rows
            self._rows = self._rows * _GROWTH if bound is not None else max(2 * self._rows, expected)
        else:
            self._before = survivors
        small = self._rows <= MAX_INDEXED and self._rows * _SHARE <= self._file.chosen_rows
        rows = self._ranked(bound) if small else None
        if rows is None:  # too many, or not ranked by the index
            self._over = True
            chosen = self._file.selection.rows
            rows = (BitMap(range(self._file.row_count)) if chosen is None else chosen) - self._seen
        return rows

    def _ranked(self, bound: Place | None) -> BitMap | None:
        """The next rows that can be among the best, by the index; None if it does not rank them."""
        assert self._index is not None
        index, column, _ = self._index
        order = self._ranges.order
        before = index.bytes_read
        among = self._file.selection.rows
        rows = index.top_n(column, self._rows, order.descending, order.nulls_first, among, strict=False)
        placed = None if rows is None else placed_rows(index, column, rows - self._seen, order)
        self._metrics.index_bytes_read += index.bytes_read - before
        if rows is None or placed is None:
            return None
        new = rows - self._seen
        self._seen = rows
        if placed.places:
            self._worst = max(placed.places)
        if bound is None:
            return new
        good = [p < bound or (p == bound and not self._single) for p in placed.places]
        return bitmap_of(placed.at(good))
