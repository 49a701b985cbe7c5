"""Plan ``ORDER BY … LIMIT n``: which files, and which of their rows, can be among the first n rows.

Files are taken best first, by the bound of the first order column that partition values and statistics give.  Every
file taken promises rows: its chosen rows at the place of its worst bound, or its n best values themselves where an
index ranks rows.  Once n rows are promised, files whose best bound is not better are skipped.  With a filter, rows are
promised only where the selection is exact, for only then do the chosen rows surely match.  Rows of the other files are
read best first, until n have passed the filter (:mod:`bitlake.scan.top_n_reader`).
"""

from __future__ import annotations

import time
from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pyroaring import BitMap

from bitlake.codec.roaring import bitmap_of
from bitlake.errors import BitlakeError
from bitlake.expressions.statistics import ColumnStats, bounds_of
from bitlake.fileindex.reader import FileIndexReader
from bitlake.fileindex.selection import Selection
from bitlake.io import Store
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.stats import column_stats
from bitlake.scan.index_location import has_index
from bitlake.scan.index_reader import open_file_index
from bitlake.scan.plan import PlannedFile, PlanStep, SkippedFile, SkipReason, StepName
from bitlake.scan.sort_order import BEST, WORST, Order, Place
from bitlake.schema.evolution import map_fields, stored_alike
from bitlake.snapshot.partitions import PartitionReader
from bitlake.types import AtomicType, DataField
from bitlake.types.datatypes import Root

MAX_INDEXED = 10_000
"""An index looks up the values of at most this number of rows: for more, reading the column is as fast."""
_FLOATS = (Root.FLOAT, Root.DOUBLE)


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
        self.field = schema.field(order.column)
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
            column = mapping.fields[self.field.name]
            usable = column is not None and stored_alike(self.field.type, column.type)
            source = self._sources[schema_id] = (column, usable)
        return source

    def stats(self, file: PlannedFile) -> ColumnStats | None:
        """The column's statistics in a file; None if unknown."""
        if self.field.name in self._schema.partition_keys:
            return self._partitions.stats(file.entry.partition)[self.field.name]
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
        return isinstance(self.field.type, AtomicType) and self.field.type.root in _FLOATS


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
            detail = f"its best {ranges.field.name} is not better than that of {request.n:,} rows of other files"
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
