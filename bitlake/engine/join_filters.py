"""Join filters: the keys of a small table choose the files that a join reads of a large one.

A query's links (:class:`bitlake.sql.analyzer.KeyLink`) say that rows of one table, the probe, matter only if a column
equals some value of a column of another table, the build.  The build's column is read first, in this process, under the
conditions that the query has on it, at the same snapshot.  Its distinct values become a condition on the probe's scan:
IN of up to :data:`MOST_KEYS`, else the range from the smallest to the largest.  The planner prunes by it as by a
condition in the text: partitions, buckets, statistics, file indexes, page bounds.

Only the columns of stored tables are read, never the result of a subquery, so nothing is evaluated twice with different
results.  Filters go from tables of fewer rows to tables of more, so that no table's rows depend on their own filter.
A build may be narrowed by smaller ones first: the nations of a region, then their suppliers.

The gate keeps the cost small: :data:`PROBE_ROWS`, :data:`PROBE_RATIO`, a build with a condition, and a probe whose
files the column distinguishes.  A filter that leaves too many rows is dropped (:data:`MOST_LEFT`), and so is one whose
build fails or takes longer than :data:`BUILD_SECONDS`: the query then runs without it, and reports its own errors.
Decision record 0023 has the proof and the measurements.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ParamSpec, TypeVar

import pyarrow as pa

from bitlake.engine.merge_clauses import INTEGERS, PRUNED, between, one_of
from bitlake.expressions.tree import Comparison, Op, Predicate, all_of, conjuncts
from bitlake.fileindex.registry import usable_indexes
from bitlake.formatting import counted
from bitlake.lazy_modules import compute as pc
from bitlake.metadata import options as opt
from bitlake.metadata.stats import column_stats
from bitlake.scan.planner import MetadataPruning
from bitlake.scan.scan import TableScan
from bitlake.snapshot.file_columns import columns_of_files
from bitlake.snapshot.partitions import files_to_plan, has_many_files
from bitlake.sql.analyzer import KeyLink, QueryAnalysis
from bitlake.types import AtomicType, DataField, Root

P = ParamSpec("P")
T = TypeVar("T")
_LOG = logging.getLogger(__name__)

MOST_KEYS = 1000
"""More distinct keys than this become a range."""
PROBE_ROWS = 200_000
"""A probe of fewer rows is read in less time than pruning it takes."""
PROBE_RATIO = 20
"""A probe has at least this many times the rows of a build: reading one or two columns of it costs at most 5 %."""
FEW_ROWS = 100
"""A build without a condition is read only if it has at most this many rows: most keys of a probe are in its build."""
MOST_LEFT = 0.7
"""A filter is kept if the files that are left have at most this share of the probe's rows."""
MOST_CHOSEN = 0.1
"""A filter is also kept if indexes and page bounds choose at most this share of the probe's rows."""
BUILD_SECONDS = 2.0
"""A build that takes longer is abandoned."""
_MOST_OF_ONE_VALUE = 0.5
"""Statistics distinguish files if they leave at most this share of the files for one value."""


@dataclass(frozen=True, slots=True)
class JoinFilter:
    """A condition that a scan got from a join.

    ``keys`` are pairs: a number of distinct keys, and the table that has them.
    """

    keys: tuple[tuple[int, str], ...]
    files_left: int
    files: int

    def __str__(self) -> str:
        of = " and ".join(f"{counted(count, 'key')} of {table}" for count, table in self.keys)
        return f"{of} left {self.files_left:,} of {counted(self.files, 'file')}"


@dataclass(frozen=True, slots=True)
class _Keys:
    """The distinct keys of a build, without NULL."""

    values: pa.ChunkedArray

    def predicate(self, field: DataField) -> Predicate:
        if len(self.values) <= MOST_KEYS:
            return one_of(field, self.values)
        ends = pc.min_max(self.values)
        low, high = (pa.chunked_array([pa.array([ends[e].as_py()], self.values.type)]) for e in ("min", "max"))
        return between(field, low, high)


class _TimedOut(Exception):
    """A build took too long."""


def add_join_filters(
    analysis: QueryAnalysis, scans: Sequence[TableScan], by_rows: bool
) -> tuple[tuple[TableScan, ...], tuple[JoinFilter | None, ...]]:
    """The scans of a query's tables, narrowed by the keys of others, and what narrowed each.

    ``by_rows``: a filter is also made where indexes choose few rows of many files.  Not for DuckDB, which reads whole
    files faster than Arrow reads these rows: of 4M rows in 4 files, 20,000 by a bitmap took 114 ms, and all 83 ms.
    """
    filters: list[JoinFilter | None] = [None] * len(scans)
    narrowed = list(scans)
    joins = None
    if any(_is_probe(scans[link.probe]) for link in analysis.links):
        joins = _attempt(_Joins, analysis, scans, by_rows)
    if joins is not None:
        for place in joins.probes():
            made = _attempt(joins.narrow, place)
            if made is not None:
                narrowed[place], filters[place] = made
    return tuple(narrowed), tuple(filters)


def _attempt(work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T | None:
    try:
        return work(*args, **named)
    except Exception as e:  # noqa: BLE001 - the query runs without the filter and reports its own errors
        _LOG.debug("a query runs without a join filter: %r", e)
        return None


def _is_eligible(scan: TableScan) -> bool:
    """Whether a scan's rows are those of a snapshot's files."""
    plain = type(scan) is TableScan and scan.row_limit is None and scan.ignored is None and scan.other is None
    return plain and scan.state.is_snapshot and scan.state.snapshot is not None


def _is_probe(scan: TableScan) -> bool:
    """Whether a table is large enough, by its snapshot alone, and allows join filters."""
    if not _is_eligible(scan) or scan.state.snapshot is None:
        return False
    return scan.state.snapshot.total_record_count >= PROBE_ROWS and scan.state.schema.opts.of(opt.READ_JOIN_FILTERS)


class _Joins:
    """The links of a query between tables that qualify."""

    def __init__(self, analysis: QueryAnalysis, scans: Sequence[TableScan], by_rows: bool) -> None:
        self.scans = scans
        self.by_rows = by_rows
        self.deadline = time.perf_counter() + BUILD_SECONDS
        linked = {place for link in analysis.links for place in (link.probe, link.build)}
        linked = {place for place in linked if _is_eligible(scans[place]) and not analysis.tables[place].file_metadata}
        self.rows = {place: _rows(scans[place]) for place in linked}
        self.links = [link for link in analysis.links if self._is_usable(link)]
        self._keys: dict[tuple[int, str], _Keys | None] = {}

    def _is_usable(self, link: KeyLink) -> bool:
        if link.probe not in self.rows or link.build not in self.rows:
            return False
        if (self.rows[link.build], link.build) >= (self.rows[link.probe], link.probe):
            return False
        probe = self.scans[link.probe].state.schema.field(link.probe_column)
        return _compares_as_stored(probe, self.scans[link.build].state.schema.field(link.build_column))

    def probes(self) -> list[int]:
        """The tables that may be narrowed, those of fewer rows first."""
        places = {link.probe for link in self.links if _is_probe(self.scans[link.probe])}
        return sorted((p for p in places if self.rows[p] >= PROBE_ROWS), key=lambda p: (self.rows[p], p))

    def narrow(self, place: int) -> tuple[TableScan, JoinFilter] | None:
        """A probe's scan of the files that can hold the keys of its builds; None if it saves too little."""
        scan = self.scans[place]
        links = [n for n in self.links if n.probe == place and self.rows[n.build] * PROBE_RATIO <= self.rows[place]]
        paying = {
            column: _distinguishes_files(scan, column, self.by_rows) for column in {link.probe_column for link in links}
        }
        builds = [(link, self.keys(link.build, link.build_column)) for link in links if paying[link.probe_column]]
        used = [(link, keys) for link, keys in builds if keys is not None]
        if not used:
            return None
        fields = scan.state.schema
        terms = [keys.predicate(fields.field(link.probe_column)) for link, keys in used]
        narrowed = scan.where_bound(all_of(terms))
        plan, files = narrowed.plan(), scan.state.entries()
        in_files = sum(f.row_count for f in plan.files)
        before = self.rows[place]
        few = self.by_rows and plan.chosen_rows <= MOST_CHOSEN * before
        if in_files > MOST_LEFT * before and not few:
            return None
        total = len(files) if has_many_files(scan.state) else len(scan.plan().files)
        counts = tuple((len(keys.values), self.scans[link.build].state.name.split(".")[-1]) for link, keys in used)
        return narrowed, JoinFilter(counts, len(plan.files), total)

    def keys(self, place: int, column: str) -> _Keys | None:
        """The distinct keys of a build; None if all of its rows would have to be read without a condition."""
        if (place, column) not in self._keys:
            self._keys[place, column] = None  # if reading fails
            self._keys[place, column] = self._read(place, column)
        return self._keys[place, column]

    def _read(self, place: int, column: str) -> _Keys | None:
        scan = self.scans[place]
        inner = [(n, self.keys(n.build, n.build_column)) for n in self.links if n.probe == place]
        fields = scan.state.schema
        terms = [keys.predicate(fields.field(n.probe_column)) for n, keys in inner if keys is not None]
        if terms:
            scan = scan.where_bound(all_of(terms))
        if scan.predicate is None and self.rows[place] > FEW_ROWS:
            return None
        scan.plan()
        parts = []
        for batch in replace(scan.apart(), columns=(column,), _recorder=None).to_batches():
            parts.append(pc.unique(batch.column(0)).drop_null())
            if time.perf_counter() > self.deadline:
                raise _TimedOut(f"table '{scan.state.name}': its keys took longer than {BUILD_SECONDS} s")
        values = pa.chunked_array(parts, None if parts else scan.select([column]).schema.field(0).type)
        return _Keys(pa.chunked_array([pc.unique(values)]))


def _rows(scan: TableScan) -> int:
    """The rows that a scan's plan leaves; of a table too large to plan for that, all."""
    snapshot = scan.state.snapshot
    if has_many_files(scan.state) and snapshot is not None:
        return snapshot.total_record_count
    return scan.plan().chosen_rows


def _compares_as_stored(one: DataField, other: DataField) -> bool:
    """Whether two columns are equal just where their stored values are."""
    if not isinstance(one.type, AtomicType) or not isinstance(other.type, AtomicType):
        return False
    if one.type.root in INTEGERS and other.type.root in INTEGERS:
        return True
    if one.type.root == other.type.root == Root.VARCHAR:
        return True
    return one.type.root in PRUNED and replace(one.type, nullable=True) == replace(other.type, nullable=True)


def _distinguishes_files(scan: TableScan, column: str, by_rows: bool) -> bool:
    """Whether one value of a column is in few of a table's files or, ``by_rows``, in few rows by an index."""
    schema = scan.state.schema
    if column in schema.partition_keys or [column] == list(schema.bucket_keys):
        return True
    if by_rows and any(spec.column == column for spec in usable_indexes(schema.options, schema.fields)):
        return True
    files = files_to_plan(scan.state, scan.predicate).files
    columns = columns_of_files(files)
    schemas = scan.state.schemas(columns.schema_ids)

    def kept(*terms: Predicate) -> int:
        pruning = MetadataPruning(columns, schema, schemas, scan.state.paths, all_of(terms) if terms else None)
        return len(pruning.kept)

    own = conjuncts(scan.predicate) if scan.predicate is not None else ()
    total = kept(*own)
    if total < 2:
        return False
    sampled = [files[i] for i in sorted({0, len(files) // 2, len(files) - 1})]
    stats = [column_stats(e.file, schemas[e.file.schema_id].fields).get(column) for e in sampled]
    lows = [s.min for s in stats if s is not None and s.min is not None]
    if not lows:
        return False
    shares = [kept(Comparison(column, Op.EQ, low), *own) / total for low in lows]
    return sum(shares) / len(shares) <= _MOST_OF_ONE_VALUE
