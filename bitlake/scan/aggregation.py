"""Aggregates with GROUP BY from metadata and indexes, file by file, and from rows where a file has no index for them.

Each file gives partial aggregates (:mod:`bitlake.scan.aggregate_values`) in the cheapest way that is exact:

* a column with one value in the file, by metadata, needs nothing else: value × rows;
* an index splits the selected rows into groups (:class:`bitlake.fileindex.capabilities.RowGrouper`), and indexes give
  sums, extremes, NULLs and distinct values of each group's rows.  Several keys: the groups' intersections;
* otherwise the columns are read, if the caller allows it.

Indexes answer only for files whose selection is exact.  Data files and their indexes never change, so what indexes gave
for some rows stays cached: the same aggregates of these rows are not computed again.

A term over a column, such as ``date_trunc('MONTH', day)``, is evaluated over the column's distinct values; a group is
represented by the value of one of its rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from bitlake import arguments
from bitlake.codec.hashing import Int64s
from bitlake.errors import InvalidRequest
from bitlake.expressions.evaluate import physical_array
from bitlake.expressions.statistics import ColumnStats
from bitlake.expressions.term_binder import KERNELS, TermBinder
from bitlake.expressions.terms import ColumnTerm, Typed, columns_in, evaluate_term
from bitlake.fileindex.capabilities import RowGrouper, ValueBounds, ValueCounter, ValueLister, ValueSummer
from bitlake.fileindex.keyed import MAX_COUNTED
from bitlake.fileindex.reader import FileIndexReader
from bitlake.fileindex.sums import sizes_of
from bitlake.metadata.schema import TableSchema
from bitlake.runtime import CacheName
from bitlake.scan.aggregate_values import (
    AVG,
    COUNT,
    COUNT_DISTINCT,
    COUNT_ROWS,
    MAX,
    MIN,
    SUM,
    Aggregate,
    ColumnValues,
    GroupKey,
    Partial,
    Unordered,
    distinct_pairs,
    ends_of,
    group_ids,
    is_float_sum,
    merged,
    of_rows,
    one_array,
    one_zero,
    result,
    result_type,
)
from bitlake.scan.metadata_only import INDEX, METADATA, NeedsData, ScanAggregates
from bitlake.scan.plan import PlannedFile
from bitlake.types import DataField, DataType, arrow_type

_CONTAINER_US, _EXTREME_US = 5, 150
"""Finding the smallest and the largest value of a group by bit slices, for each container of 65,536 rows it touches,
and for each group (measured)."""
_READ_US = 5000
_PARTIAL, _GROUP = 1024, 128
"""Estimates of the bytes of a cached partial beside its rows, and of each of its groups and columns."""


@dataclass(frozen=True, slots=True)
class ReadLimit:
    """The most rows of data files to read, and the largest share of all chosen rows."""

    rows: int
    share: float

    def most(self, files: Sequence[PlannedFile]) -> float:
        """The most rows to read of some files."""
        return min(self.rows, self.share * sum(f.chosen_rows for f in files))


@dataclass(frozen=True, slots=True)
class _CachedPartial:
    """The values that indexes gave for the ``rows`` of a file (None: all)."""

    rows: BitMap | None
    partial: Partial


_PARTIALS: CacheName[tuple[object, ...], _CachedPartial] = CacheName("aggregates of files")


@dataclass(frozen=True, slots=True)
class _Groups:
    """Groups of a file's chosen rows (None: all): the value of one row of each for every key."""

    keys: tuple[pa.Array, ...]
    rows: Sequence[BitMap | None]
    indexed: bool


def aggregate(
    source: ScanAggregates,
    keys: Sequence[GroupKey],
    aggregates: Sequence[Aggregate],
    *,
    limit: ReadLimit | None = None,
    most_groups: int | None = None,
    strict: bool = False,
    sums_floats: bool = True,
) -> pa.Table:
    """A row for each group (without keys: one row): a value of each key's column, then the aggregates by number.

    Raises :class:`NeedsData` where ``source`` may not read, where more rows would be read than ``limit`` allows, or
    for more than ``most_groups``; :class:`InvalidRequest` for a column that has no such aggregate; and
    :class:`EvaluationFailed` for an overflow.  ``strict``: :class:`bitlake.scan.aggregate_values.Unordered` where an
    engine may get another result, by the order in which it adds; without ``sums_floats`` also for any sum of floats.
    """
    fields = {f.name: f for f in source.plan.schema.fields}
    for key in keys:
        source.comparable(key.column)
    for a in aggregates:
        if a.column is not None:
            if a.kind != COUNT:
                source.comparable(a.column)
            result_type(a, fields[a.column].type)
    types: Mapping[str, DataType] = {name: f.type for name, f in fields.items()}
    kinds = [None if a.column is None else types[a.column] for a in aggregates]
    if not sums_floats and any(is_float_sum(a, kind) for a, kind in zip(aggregates, kinds, strict=True)):
        raise Unordered
    needs = _needs(aggregates)
    parts = _Files(source, keys, needs, fields).parts(limit, most_groups)
    whole = merged(keys, needs, types, parts)
    if most_groups is not None and len(whole.rows) > most_groups:
        raise NeedsData
    columns = [result(a, kind, whole, strict) for a, kind in zip(aggregates, kinds, strict=True)]
    names = [*(k.column for k in keys), *(str(i) for i in range(len(aggregates)))]
    # Spark shows a group of both zeros as 0.0.  A term takes the value as it is stored.
    shown = [values if key.terms else one_zero(values) for key, values in zip(keys, whole.keys, strict=True)]
    return pa.Table.from_arrays([*shown, *columns], names=names)


def _needs(aggregates: Sequence[Aggregate]) -> dict[str, frozenset[str]]:
    """The kinds of aggregates for each column."""
    needs: dict[str, frozenset[str]] = {}
    for a in aggregates:
        if a.column is not None:
            needs[a.column] = needs.get(a.column, frozenset()) | {a.kind}
    return needs


def are_indexed(
    source: ScanAggregates, keys: Sequence[GroupKey], aggregates: Sequence[Aggregate], limit: ReadLimit
) -> bool:
    """Whether a plan's files have the indexes for aggregates, except at most as many rows as ``limit`` allows to read.

    Asked before a plan is made that is exact, which may read indexes that are not worth reading otherwise.
    """
    files = _Files(source, keys, _needs(aggregates), {f.name: f for f in source.plan.schema.fields})
    left = limit.most(source.plan.files)
    for file in source.plan.files:
        left -= 0 if files.is_indexed(file) else file.chosen_rows
        if left < 0:
            return False
    return True


def _all_null(kind: pa.DataType, groups: int) -> ColumnValues:
    zeros, nulls = np.zeros(groups, np.int64), pa.nulls(groups, kind)
    return ColumnValues(zeros, [0] * groups, [0] * groups, nulls, nulls, (zeros[:0], nulls[:0]))


class _Files:
    """The partial aggregates of a plan's files."""

    def __init__(
        self,
        source: ScanAggregates,
        keys: Sequence[GroupKey],
        needs: Mapping[str, frozenset[str]],
        fields: Mapping[str, DataField],
    ) -> None:
        self.source = source
        self.keys = keys
        self.needs = needs
        self.fields = fields
        self.ways: list[str] = []
        """Ways in which files were answered without their data; counted once it is sure that the others may be read."""
        kinds = [(fields[name], sorted(of_column)) for name, of_column in needs.items()]
        self._aggregate_key = repr(([(fields[key.column], key.terms) for key in keys], kinds))

    def parts(self, limit: ReadLimit | None, most_groups: int | None) -> list[Partial]:
        """The partials of all files; first those that need no data, so that nothing is read in vain."""
        files = self.source.plan.files
        parts: list[Partial] = []
        unanswered: list[PlannedFile] = []
        left = None if limit is None else limit.most(files)
        for file in files:
            part = self._partial(file) if self.source.is_sure(file) else None
            if part is not None:
                parts.append(part)
                continue
            unanswered.append(file)
            left = None if left is None else left - file.chosen_rows
            if not self.source.may_read or (left is not None and left < 0):
                raise NeedsData
        for way in self.ways:
            self.source.count_way(way)
        columns = list(dict.fromkeys([*(k.column for k in self.keys), *self.needs]))

        def partial(rows: pa.Table) -> Partial:
            arrays = {name: one_array(rows.column(name)) for name in columns}
            groups = group_ids(self.keys, [arrays[k.column] for k in self.keys], rows.num_rows)
            if most_groups is not None and len(groups[1]) > most_groups:
                raise NeedsData
            return of_rows(groups, self.keys, self.needs, arrays)

        return parts + self.source.read_each(unanswered, columns, partial)

    # --- groups -------------------------------------------------------------------------------------------------------

    def is_indexed(self, file: PlannedFile) -> bool:
        """Whether a file has the indexes that its groups and sums take; otherwise no index is read in vain."""
        required: list[tuple[str, tuple[type, ...]]] = [(key.column, (RowGrouper,)) for key in self.keys]
        grouped = bool(self.keys) or not file.whole
        required += [(name, p) for name, kinds in self.needs.items() for p in _protocols(kinds, grouped)]
        for name, protocols in required:
            field = self.fields[name]
            if _constant(self.source, file, field) is None:
                column, index = self.source.index_of(file, field.name)
                if index is None or not index.provides(column, protocols):
                    return False
        return True

    def _partial(self, file: PlannedFile) -> Partial | None:
        """A file's partial from the cache, or from metadata and indexes.  None if rows must be read."""
        rows: BitMap | None = file.selection.rows
        key = self.source.partial_key(file)
        # The key has only the number of rows and the ends; the rows themselves are compared below.
        ends = () if rows is None else (len(rows), rows.min(), rows.max()) if rows else (0,)
        place = None if key is None else (*key, self._aggregate_key, ends)
        cached = None if place is None else self.source.caches[_PARTIALS].get(place)
        if cached is not None and cached.rows == rows:
            self.ways.append(INDEX)
            return cached.partial
        if not self.is_indexed(file):
            return None
        partial, indexed = self._without_data(file) or (None, False)
        if partial is not None:
            self.ways.append(INDEX if indexed else METADATA)
            if indexed and place is not None:
                size = _PARTIAL + len(partial.rows) * _GROUP * (1 + len(self.keys) + len(self.needs))
                size += sum(c.pairs[1].nbytes for c in partial.columns.values() if c.pairs is not None)
                size += 0 if rows is None else min(8 * len(rows), file.row_count // 8)
                self.source.caches[_PARTIALS].put(place, _CachedPartial(rows, partial), size)
        return partial

    def _without_data(self, file: PlannedFile) -> tuple[Partial, bool] | None:
        """A file's partial, and whether indexes were needed.  None if rows must be read."""
        groups = self._groups(file)
        if groups is None:
            return None
        sizes = sizes_of(groups.rows, file.row_count)
        part = Partial(groups.keys, sizes)
        indexed = groups.indexed or file.selection.rows is not None
        for name, kinds in self.needs.items():
            column = _Column(self.source, file, self.fields[name], kinds, groups.rows, sizes)
            values = column.values()
            if values is None:
                return None
            part.columns[name] = values
            indexed |= column.indexed
        return part, indexed

    def _groups(self, file: PlannedFile) -> _Groups | None:
        """The groups of a file's chosen rows.  None without an index for a key, or if they are too many."""
        rows: BitMap | None = file.selection.rows
        if not file.chosen_rows and self.keys:
            return _Groups(tuple(pa.array([], arrow_type(self.fields[k.column].type)) for k in self.keys), (), False)
        whole = _Groups((), (rows,), False)
        for key in self.keys:
            of_key = self._groups_of(file, key, rows)
            if of_key is None or len(of_key.rows) * len(whole.rows) > MAX_COUNTED:
                return None
            whole = _product(whole, of_key)
        return whole

    def _groups_of(self, file: PlannedFile, key: GroupKey, rows: BitMap | None) -> _Groups | None:
        field = self.fields[key.column]
        constant = _constant(self.source, file, field)
        if constant is not None:
            return _Groups((constant,), (rows,), False)
        name, index = self.source.index_of(file, field.name)
        groups = None if index is None else index.groups(name, rows, MAX_COUNTED)
        if groups is None:
            return None
        values = groups.values.cast(arrow_type(field.type))
        if not key.terms and not pa.types.is_floating(values.type):
            return _Groups((values,), groups.rows, True)  # an index has each value once
        ids, first = group_ids([key], [values], len(values))
        if len(first) == len(values):
            return _Groups((values,), groups.rows, True)
        order = np.argsort(ids, kind="stable")
        cuts = np.searchsorted(ids[order], np.arange(1, len(first)))
        united = [BitMap.union(*(groups.rows[i] for i in part.tolist())) for part in np.split(order, cuts)]
        return _Groups((values.take(pa.array(first)),), united, True)


def _protocols(kinds: frozenset[str], grouped: bool) -> Iterator[tuple[type, ...]]:
    """Return the protocols that a column's indexes must have for aggregates: one of each; metadata may give the others.

    ``grouped``: of a part of a file's rows.
    """
    if kinds & {SUM, AVG}:
        yield (ValueSummer,)
    if kinds & {MIN, MAX} and grouped:
        yield ValueBounds, ValueCounter
    if COUNT_DISTINCT in kinds:
        yield RowGrouper, ValueLister


def _product(a: _Groups, b: _Groups) -> _Groups:
    """The groups by both keys that have rows."""
    rows: list[BitMap | None] = []
    left: list[int] = []
    right: list[int] = []
    for i, x in enumerate(a.rows):  # at most MAX_COUNTED pairs
        for j, y in enumerate(b.rows):
            both = y if x is None else x if y is None else x & y
            if both is None or both:
                rows.append(both)
                left.append(i)
                right.append(j)
    keys = [k.take(pa.array(left, pa.int64())) for k in a.keys] + [k.take(pa.array(right, pa.int64())) for k in b.keys]
    return _Groups(tuple(keys), rows, a.indexed or b.indexed)


def _stats(source: ScanAggregates, file: PlannedFile, field: DataField) -> tuple[ColumnStats | None, int | None]:
    """Return the statistics of a file's column, and its number of NULLs."""
    ranges = source.range_of(field.name)
    stats = ranges.stats(file)
    return stats, None if stats is None else ranges.nulls(stats, file)


def _constant(source: ScanAggregates, file: PlannedFile, field: DataField) -> pa.Array | None:
    """The one value, or NULL, that all rows of a file have by metadata.  None if they may have others."""
    stats, nulls = _stats(source, file, field)
    if stats is None:
        return None
    kind = arrow_type(field.type)
    if nulls == file.row_count:
        return pa.nulls(1, kind)
    cut = stats.truncated or (pa.types.is_floating(kind) and not source.range_of(field.name).constant)
    if nulls != 0 or cut or stats.min is None or stats.min != stats.max:
        return None
    return physical_array(field, [stats.min])


# --- what callers ask for ---------------------------------------------------------------------------------------------

_WORDS = {"count": COUNT, "count_distinct": COUNT_DISTINCT, "sum": SUM, "avg": AVG, "min": MIN, "max": MAX}
ROWS = "*"
"""Stands for rows instead of a column: ``{"*": "count"}``."""


def parse_aggregates(items: Mapping[str, str | Sequence[str]], schema: TableSchema) -> dict[str, Aggregate]:
    """Aggregates by the names of their results, such as ``amount_sum``; of ``{"*": "count"}``, ``count``.

    Raises :class:`InvalidRequest` for another word and :class:`bitlake.errors.NotFound` for an unknown column.
    """
    out = {}
    for name, kinds in arguments.mapping("aggregates", items).items():
        for word in (kinds,) if isinstance(kinds, str) else arguments.names(f"the aggregates of '{name}'", kinds):
            if word not in _WORDS or (name == ROWS and word != "count"):
                most = "count" if name == ROWS else ", ".join(_WORDS)
                raise InvalidRequest(f"'{word}' of '{name}' is not an aggregate; choose from {most}")
            if name == ROWS:
                out[word] = Aggregate(COUNT_ROWS)
            else:
                column = schema.field(name).name
                out[f"{column}_{word}"] = Aggregate(_WORDS[word], column)
    return out


def parse_keys(
    items: Sequence[str], fields: Sequence[DataField], timezone: str
) -> tuple[list[GroupKey], list[tuple[Typed, int]]]:
    """The keys of columns and of SQL expressions over one column each; and each item's term with its key's place.

    Raises :class:`InvalidRequest` for an expression over several columns, or over none.
    """
    from bitlake.expressions.parser import parse_term  # sqlglot takes long to import

    binder = TermBinder(fields, timezone)
    terms: list[tuple[Typed, str]] = []
    names = {field.name for field in fields}
    for item in arguments.names("group_by", items):
        term = binder.bind(ColumnTerm(item) if item in names else parse_term(item, timezone))
        columns = columns_in(term)
        if len(columns) != 1:
            raise InvalidRequest(f"cannot group by {item}: it takes {len(columns)} columns, and a key takes one")
        terms.append((term, next(iter(columns))))
    keys = []
    for column in dict.fromkeys(column for _, column in terms):
        own = [term for term, name in terms if name == column]
        keys.append(GroupKey(column, () if any(t.function == "column" for t in own) else tuple(own)))
    places = {key.column: i for i, key in enumerate(keys)}
    return keys, [(term, places[column]) for term, column in terms]


def key_values(term: Typed, values: pa.ChunkedArray) -> pa.Array:
    """The values of a key for groups, from the column's value in a row of each."""
    if term.function == "column":
        return values
    return evaluate_term(term, {next(iter(columns_in(term))): one_array(values)}, len(values), KERNELS)


# --- one column of one file -------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Column:
    """The values of a column in groups of a file's rows, by metadata and indexes."""

    source: ScanAggregates
    file: PlannedFile
    field: DataField
    kinds: frozenset[str]
    groups: Sequence[BitMap | None]
    sizes: Int64s
    indexed: bool = False
    """Whether an index was needed."""

    def values(self) -> ColumnValues | None:
        """The values.  None where rows must be read."""
        groups = len(self.groups)
        constant = _constant(self.source, self.file, self.field)
        if constant is not None:
            if constant.null_count:
                return _all_null(constant.type, groups)
            return self._of_constant(constant)
        values = self._by_metadata()
        if values is not None:
            return values
        name, index = self.source.index_of(self.file, self.field.name)
        if index is None:
            return None
        self.indexed = True
        return self._by_index(name, index)

    def _of_constant(self, value: pa.Array) -> ColumnValues:
        n = len(self.groups)
        repeated = value.take(pa.array(np.zeros(n, np.int64)))
        values = ColumnValues(self.sizes, None, None, repeated, repeated, (np.arange(n), repeated))
        if self.kinds & {SUM, AVG}:
            part = of_rows(group_ids((), (), 1), (), {"v": self.kinds & {SUM, AVG}}, {"v": value}).columns["v"]
            assert part.totals is not None and part.magnitudes is not None
            values.totals = [part.totals[0] * size for size in self.sizes.tolist()]
            values.magnitudes = [part.magnitudes[0] * size for size in self.sizes.tolist()]
        return values

    def _by_metadata(self) -> ColumnValues | None:
        """Counts by the number of NULLs, and of a whole file the bounds."""
        stats, nulls = _stats(self.source, self.file, self.field)
        if stats is None or nulls is None or not self.kinds <= {COUNT, MIN, MAX}:
            return None
        whole = self.file.whole and list(self.groups) == [None]
        if not whole and (nulls or self.kinds != {COUNT}):
            return None
        values = ColumnValues(self.sizes - nulls if whole else self.sizes)
        if self.kinds != {COUNT}:
            if stats.truncated or pa.types.is_floating(arrow_type(self.field.type)) or None in (stats.min, stats.max):
                return None
            values.low, values.high = (physical_array(self.field, [end]) for end in (stats.min, stats.max))
        return values

    def _by_index(self, name: str, index: FileIndexReader) -> ColumnValues | None:
        values = ColumnValues()
        if self.kinds & {SUM, AVG}:
            sums = index.sums(name, self.groups)
            if sums is None:
                return None
            values.counts, values.totals, values.magnitudes = sums.counts, sums.totals, sums.magnitudes
        elif COUNT in self.kinds:
            nulls = index.nulls(name)
            if nulls is None:
                return None
            rows = nulls.rows if nulls.rows is not None or nulls.is_empty else BitMap(range(self.file.row_count))
            empty = BitMap() if rows is None else rows
            values.counts = self.sizes - np.array(
                [len(empty) if g is None else empty.intersection_cardinality(g) for g in self.groups], np.int64
            )
        if self.kinds & {MIN, MAX}:
            ends = self._ends(name, index)
            if ends is None:
                return None
            values.low, values.high = ends
        if COUNT_DISTINCT in self.kinds:
            values.pairs = self._pairs(name, index)
            if values.pairs is None:
                return None
        return values

    def _ends(self, name: str, index: FileIndexReader) -> tuple[pa.Array, pa.Array] | None:
        containers = (self.file.row_count >> 16) + 1
        touched = int(np.minimum(self.sizes, containers).sum())
        cost = len(self.groups) * _EXTREME_US + touched * _CONTAINER_US
        if len(self.groups) > 1 and cost > _READ_US * (1 + containers // 10):
            return None
        kind = arrow_type(self.field.type)
        ends, ids = [pa.array([], kind)], []
        for number, rows in enumerate(self.groups):  # as many as the cost allows
            pair = index.extremes(name, rows)
            if pair is None:
                counted = index.value_counts(name, rows)
                pair = None if counted is None else counted.values
            if pair is None:
                return None
            ends.append(pair.cast(kind))
            ids.append(np.full(len(pair), number, np.int64))
        return ends_of(pa.concat_arrays(ends), np.concatenate([np.zeros(0, np.int64), *ids]), len(self.groups))

    def _pairs(self, name: str, index: FileIndexReader) -> tuple[Int64s, pa.Array] | None:
        kind = arrow_type(self.field.type)
        if list(self.groups) == [None]:
            distinct = index.distinct(name)
            if distinct is not None:
                return np.zeros(len(distinct), np.int64), distinct.cast(kind)
        most = MAX_COUNTED // max(len(self.groups), 1)
        by_value = index.groups(name, self.file.selection.rows, most)
        if by_value is None:
            return None
        pairs = [
            (g, v)
            for g, rows in enumerate(self.groups)  # at most MAX_COUNTED pairs
            for v, value_rows in enumerate(by_value.rows)
            if rows is None or rows.intersect(value_rows)
        ]
        groups, values = np.array(pairs, np.int64).reshape(-1, 2).T
        return distinct_pairs(groups, by_value.values.take(pa.array(values)).cast(kind))
