"""The queries of a table with their weights, and profiles of its columns from a sample: the input of advice.

Questions are given queries, recorded scans, or typical questions made from the profiles.

Sample: a table of up to the sample's rows is read whole, file by file.  From a larger one, 4 to 16 runs of neighbouring
rows are read, spread evenly over all data files: neighbours show how values cluster, and a run of 131,072 rows has
32 pages.  Memory holds one column of a run for each thread.

Profiles: distinct values, frequencies, and how values cluster.  Each column of a run is read once and encoded with a
dictionary, from which everything else is counted.  Profiles are small and merge over runs.

Distinct values of a sample: a KMV sketch.  With hashes spread evenly over 0 to 2^64, k - 1 divided by the k-th smallest
hash (as a fraction) estimates the number of distinct values, with a standard error of 1/sqrt(k - 2), 2.2 % for
k = 2048.  Fewer than k hashes count exactly.  Two sketches merge by keeping the k smallest hashes of both.
Source: Bar-Yossef et al., "Counting distinct elements in a data stream", 2002.

Distinct values of a table or file: two growth models, of which the one that predicts the rest of a sample better from
its first part is used:

* a fixed set of D equally likely values: n rows have ``D (1 - exp(-n / D))`` of them;
* values that keep arriving, such as dates, keys or words of a language: ``c n^b``.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bitlake.codec.hashing import UInt64s, number_hash, xxh64
from bitlake.errors import BitlakeError, CorruptError, InvalidRequest
from bitlake.expressions.binder import bind
from bitlake.expressions.indexed import judged_by_indexes
from bitlake.expressions.sql_text import to_sql
from bitlake.expressions.tree import (
    And,
    Comparison,
    Constant,
    In,
    IsNull,
    Like,
    Op,
    Or,
    Predicate,
    TupleIn,
    column_terms,
    columns_of,
    computed_tests,
    leaves_of,
    sources_of,
)
from bitlake.fileindex.cost import PAGE_ROWS
from bitlake.io import Store
from bitlake.lazy_modules import compute as pc
from bitlake.metadata.schema import TableSchema
from bitlake.scan.column_reader import FileTask, ReadCounts, fetch_rows, has_pages, stream_whole
from bitlake.scan.plan import PlannedFile
from bitlake.scan.reader import tasks_of
from bitlake.schema.evolution import align, map_fields
from bitlake.tools.advise.sources import (
    columns_of_source,
    flat_values,
    may_be_advised,
    places_of,
    source_values,
)
from bitlake.tools.scan_log import COMPUTED, ScanRecord
from bitlake.types import AtomicType, DataField, Root, arrow_type
from bitlake.types.arrow import physical_values
from bitlake.types.datatypes import BINARIES, STRINGS

log = logging.getLogger("bitlake")


# --- runs of a sample -------------------------------------------------------------------------------------------------

RUN_ROWS = 131_072
_RUNS = 16
_LEAST_RUNS = 4
_MOST_RUNS = 32
_MOST_COLUMN_RUNS = 512
"""Trying the indexes of a column on a run takes 50 ms and more of processor time, however few rows the run has."""


@dataclass(frozen=True, slots=True)
class Run:
    """Rows ``[start, stop)`` of a data file that stand for it; small, and picklable for executors."""

    task: FileTask
    start: int
    stop: int

    @property
    def rows(self) -> int:
        """The number of rows sampled."""
        return self.stop - self.start

    @property
    def scale(self) -> float:
        """How many times the run goes into its file."""
        return self.task.row_count / max(self.rows, 1)


def choose_runs(
    files: Sequence[PlannedFile], schemas: Mapping[int, TableSchema], rows: int, column_count: int
) -> list[Run]:
    """Runs of about ``rows`` rows in all, fewer the more columns are tried; all rows if rows and files are few."""
    tasks = [t for t in tasks_of(files, schemas) if t.row_count]
    counts = np.array([t.row_count for t in tasks], np.int64)
    total = int(counts.sum())
    most = max(_LEAST_RUNS, min(_MOST_RUNS, _MOST_COLUMN_RUNS // max(column_count, 1)))
    if total <= rows and len(tasks) <= most:
        return [Run(t, 0, t.row_count) for t in tasks]
    length = max(RUN_ROWS, rows // _RUNS)
    # A run is at most a file: of small files it takes more runs to have as many rows.
    number = min(most, max(_LEAST_RUNS, rows // min(length, max(1, total // len(tasks)))))
    ends = np.cumsum(counts)
    middles = ((np.arange(number) + 0.5) * total / number).astype(np.int64)
    places, numbers = np.unique(np.searchsorted(ends, middles, "right"), return_counts=True)
    runs = []
    for place, count in zip(places.tolist(), numbers.tolist(), strict=True):
        task = tasks[place]
        if task.row_count <= count * (length + length // 4):
            runs.append(Run(task, 0, task.row_count))
            continue
        # Each run lies in the middle of an equal share of the file, so no row is sampled twice.
        centers = (np.arange(count) + 0.5) * task.row_count / count
        starts = centers.astype(np.int64) - length // 2
        runs += [Run(task, start, start + length) for start in starts.tolist()]
    return runs


def read_column(store: Store, run: Run, field: DataField, schema: TableSchema) -> pa.Array | None:
    """A column's values of a run in the table's type; None where its file has no such column.

    Raises :class:`CorruptError` or :class:`NotFound` for a file that cannot be read.
    """
    source = map_fields(schema.fields, run.task.file_schema.fields).fields[field.name]
    if source is None:
        return None
    counts = ReadCounts()
    positions = np.arange(run.start, run.stop, dtype=np.int64)
    if has_pages(run.task):
        column = fetch_rows(store, run.task, positions, [source.name], counts).column(0)
    else:
        picked = None if run.rows == run.task.row_count else positions
        parts = [t.column(0) for t, _ in stream_whole(store, run.task, [source.name], counts, picked)]
        column = pa.chunked_array([c for p in parts for c in (p.chunks if isinstance(p, pa.ChunkedArray) else [p])])
    if len(column) != run.rows:
        raise CorruptError(f"{len(column)} rows came where {run.rows} were asked for", None, run.task.path)
    made = align(column, field, source, run.task.path)
    if isinstance(made, pa.ChunkedArray):
        return made.combine_chunks() if made.num_chunks != 1 else made.chunk(0)
    return made if made.type == arrow_type(field.type) else made.cast(arrow_type(field.type))


# --- distinct values: a sketch ----------------------------------------------------------------------------------------

SIZE = 2048
_ALL = float(2**64)


@dataclass(frozen=True, slots=True)
class DistinctSketch:
    """The smallest :data:`SIZE` hashes (sorted, each once) of the values seen so far."""

    hashes: UInt64s

    @staticmethod
    def of(hashes: UInt64s) -> DistinctSketch:
        """The sketch of values with these hashes, in any order and any number of times."""
        if len(hashes) > 4 * SIZE:
            # Repeated values may stand among the smallest: more than enough of them are kept before sorting.
            limit = np.partition(hashes, 4 * SIZE - 1)[4 * SIZE - 1]
            few = np.unique(hashes[hashes <= limit])
            hashes = few if len(few) >= SIZE else hashes
        return DistinctSketch(np.unique(hashes)[:SIZE])

    @staticmethod
    def union(sketches: Iterable[DistinctSketch]) -> DistinctSketch:
        """The sketch of all values that any of them saw."""
        parts = [s.hashes for s in sketches]
        return DistinctSketch.of(np.concatenate(parts) if parts else np.zeros(0, np.uint64))

    @property
    def estimate(self) -> float:
        """About how many distinct values there were; exact below :data:`SIZE`."""
        if len(self.hashes) < SIZE:
            return float(len(self.hashes))
        return (SIZE - 1) / (float(self.hashes[-1]) / _ALL)


def hash_values(values: pa.Array) -> UInt64s:
    """64-bit hashes of flat values without NULL: uint64, one each; equal values of a type have equal hashes."""
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind):
        return _mixed(xxh64(values))
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return _mixed(xxh64(values.cast(pa.large_binary())))
    if pa.types.is_floating(kind):
        bits = values.cast(pa.float64()).to_numpy(zero_copy_only=False) + 0.0  # -0.0 is 0.0
        return _mixed(bits.view(np.uint64))
    if pa.types.is_boolean(kind):
        values = values.cast(pa.int8())
    elif pa.types.is_date32(kind) or pa.types.is_time32(kind):
        values = values.cast(pa.int32())
    elif pa.types.is_decimal(kind):
        return _mixed(xxh64(values.cast(pa.string())))
    return _mixed(values.cast(pa.int64()).to_numpy(zero_copy_only=False).view(np.uint64))


def _mixed(words: UInt64s) -> UInt64s:
    # Paimon's mix alone shifts arithmetically, which leaves small numbers' hashes a little uneven.
    with np.errstate(over="ignore"):
        mixed = number_hash(words.view(np.int64)).view(np.uint64)
        mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0x9E3779B185EBCA87)
        spread: UInt64s = mixed ^ (mixed >> np.uint64(29))
    return spread


# --- distinct values: growth ------------------------------------------------------------------------------------------

_STEPS = 60
_LARGEST_SET = 1e15


@dataclass(frozen=True, slots=True)
class Growth:
    """``fixed``: the size of the set that values come from, None: they grow with the ``power`` of the rows."""

    fixed: float | None
    power: float

    def distinct_in(self, rows: float, known_rows: float, known: float) -> float:
        """Estimate the number of distinct values in ``rows`` rows, given that ``known_rows`` rows have ``known``."""
        if known <= 0 or known_rows <= 0:
            return 0.0
        if self.fixed is not None:
            return min(rows, max(drawn(rows, self.fixed), known if rows >= known_rows else 0.0))
        return min(rows, known * float((rows / known_rows) ** self.power))


def drawn(rows: float, values: float) -> float:
    """Return how many of ``values`` distinct values ``rows`` random draws find on average."""
    return values * -math.expm1(-rows / values) if values else 0.0


def set_size(rows: float, distinct: float) -> float:
    """Return the number of values of which ``rows`` draws find ``distinct`` on average; huge if no value repeats."""
    if distinct >= rows:
        return _LARGEST_SET
    low, high = max(1.0, distinct), _LARGEST_SET
    for _ in range(_STEPS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if drawn(rows, middle) < distinct else (low, middle)
    return high


def growth_of(runs: Sequence[tuple[int, int, tuple[int, int]]], union: float) -> Growth:
    """How values grow: of each run its rows, its distinct values, and those of its first 16th and quarter; ``union``:
    the distinct values of all runs together."""
    known = [r for r in runs if r[0] and r[1]]
    if not known:
        return Growth(1.0, 0.0)
    total = float(sum(r[0] for r in known))
    rows, distinct, sixteenth, quarter = (
        sum(values) / len(known) for values in zip(*((r[0], r[1], *r[2]) for r in known), strict=True)
    )
    if len(known) > 1 and union > 0:
        # Runs lie apart: what they have in common says more than the parts of one.
        steps = (rows / 4, quarter), (rows, distinct), (total, union)
    else:
        steps = (rows / 16, sixteenth), (rows / 4, quarter), (rows, distinct)
    (first_rows, first), (second_rows, second), (last_rows, last) = steps
    if min(first, second, last) <= 0 or second_rows <= first_rows or last_rows <= second_rows:
        return Growth(max(1.0, distinct), 0.0)
    by_set = drawn(last_rows, set_size(second_rows, second))
    slope = math.log(max(second / first, 1.0)) / math.log(second_rows / first_rows)
    by_power = second * (last_rows / second_rows) ** slope
    if abs(math.log(by_set / last)) <= abs(math.log(by_power / last)):
        return Growth(set_size(last_rows, last), 0.0)
    return Growth(None, min(1.0, max(0.0, math.log(max(last / second, 1.0)) / math.log(last_rows / second_rows))))


# --- profiles ---------------------------------------------------------------------------------------------------------

_KEPT = 64
"""Values kept of each run: those with the smallest hashes, so that all runs keep the same ones."""
_TOP = 16
_CUTS = 32


@dataclass(frozen=True, slots=True)
class Value:
    """A value (physical, as in predicates), its hash, and how many of the rows have it."""

    value: Any
    hash: int
    rows: int


@dataclass(frozen=True, slots=True)
class RunProfile:
    """A column in one run of rows.

    ``distinct_parts``: how many distinct values the first sixteenth and the first quarter of the rows have.
    ``spread``: the part of the run's blocks of 4,096 rows that a value's rows are in, on average over the values.
    ``ascending``: the part of neighbouring pairs that do not descend.  ``cuts``: physical values that cut the rows
    into equal parts, smallest and largest included; empty for types without an order.
    """

    rows: int
    nulls: int
    distinct: int
    sketch: DistinctSketch
    top: tuple[Value, ...]
    kept: tuple[Value, ...]
    spread: float
    ascending: float
    cuts: tuple[Any, ...]
    value_bytes: float
    distinct_parts: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class ColumnProfile:
    """A column of a table, estimated from its runs.

    ``rows`` were looked at; ``distinct`` is of the whole table, ``growth`` describes how it grows with the rows.
    """

    name: str
    table_rows: int
    rows: int
    nulls: int
    distinct: float
    growth: Growth
    top: tuple[Value, ...]
    kept: tuple[Value, ...]
    spread: float
    ascending: float
    cuts: tuple[Any, ...]
    value_bytes: float

    @property
    def null_ratio(self) -> float:
        """The part of the rows that are NULL."""
        return self.nulls / self.rows if self.rows else 0.0

    @property
    def top_share(self) -> float:
        """The part of the rows that have the most frequent value."""
        return self.top[0].rows / self.rows if self.top and self.rows else 0.0


def profile_run(store: Store, run: Run, fields: Sequence[DataField], schema: TableSchema) -> dict[str, RunProfile]:
    """The profiles of these columns in a run, one column after the other."""
    profiles = {}
    for field in fields:
        values = read_source(store, run, field.name, schema)
        if values is not None:
            profiles[field.name] = profile(flat_values(field.name, values))
    return profiles


def read_source(store: Store, run: Run, source: str, schema: TableSchema) -> pa.Array | None:
    """The values of a column or an expression in a run; None if its file has no such column, or no value for a row."""
    columns = {}
    for name in columns_of_source(source):
        column = read_column(store, run, schema.field(name), schema)
        if column is None:
            return None
        columns[name] = column
    return source_values(source, columns)


def profile(column: pa.Array) -> RunProfile:
    """The profile of one run's values; a dictionary array or one of a flat type."""
    encoded = column if isinstance(column, pa.DictionaryArray) else column.dictionary_encode()
    values = encoded.dictionary
    valid = encoded.indices.is_valid().to_numpy(zero_copy_only=False)
    codes = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    codes = codes if valid.all() else codes[valid]
    nulls = len(column) - len(codes)
    if not len(codes):
        return RunProfile(len(column), nulls, 0, DistinctSketch.of(np.zeros(0, np.uint64)), (), (), 0, 1, (), 0)
    counts = np.bincount(codes, minlength=len(values))
    hashes = hash_values(values)
    kept = np.argsort(hashes, kind="stable")[:_KEPT]
    top = np.argsort(-counts, kind="stable")[:_TOP]
    blocks = max(1, -(-len(column) // PAGE_ROWS))
    spread = _spread(codes, np.flatnonzero(valid) // PAGE_ROWS, counts, blocks)
    ranks = _ranks(values)
    size = values.nbytes / max(len(values), 1)
    parts = _distinct_of(codes, len(codes) // 16, len(values)), _distinct_of(codes, len(codes) // 4, len(values))
    if ranks is None:
        return RunProfile(
            len(column), nulls, len(values), DistinctSketch.of(hashes), _values(values, hashes, counts, top),
            _values(values, hashes, counts, kept), spread, 1.0, (), size, parts,
        )  # fmt: skip
    ordered = ranks[codes]
    ascending = float((ordered[1:] >= ordered[:-1]).mean()) if len(ordered) > 1 else 1.0
    by_rank = np.argsort(ranks, kind="stable")
    edges = np.cumsum(counts[by_rank])
    wanted = np.minimum(np.linspace(0, len(codes) - 1, _CUTS + 1).astype(np.int64), len(codes) - 1)
    cuts = by_rank[np.searchsorted(edges, wanted, "right")]
    return RunProfile(
        len(column), nulls, len(values), DistinctSketch.of(hashes), _values(values, hashes, counts, top),
        _values(values, hashes, counts, kept), spread, ascending, tuple(physical_values(values.take(pa.array(cuts)))),
        size, parts,
    )  # fmt: skip


def _distinct_of(codes: npt.NDArray[np.int64], rows: int, most: int) -> int:
    return int(np.count_nonzero(np.bincount(codes[:rows], minlength=most)))


def _spread(
    codes: npt.NDArray[np.int64], places: npt.NDArray[np.int64], counts: npt.NDArray[np.int64], blocks: int
) -> float:
    """In which part of the blocks that they could be in a value's rows are, on average over the values."""
    if 2 * len(counts) >= len(codes):
        return 1.0  # most values have a row or two, wherever those are
    pairs = codes * blocks + places
    pairs.sort()
    first = np.concatenate(([True], pairs[1:] != pairs[:-1]))
    per_value = np.bincount(pairs[first] // blocks, minlength=len(counts))
    return float((per_value / np.minimum(counts.clip(1), blocks)).mean())


def _ranks(values: pa.Array) -> npt.NDArray[np.int64] | None:
    """Each distinct value's place in their order; None for types that have none."""
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    try:
        order = pc.sort_indices(values).to_numpy(zero_copy_only=False)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        return None
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return ranks


def _values(
    values: pa.Array, hashes: UInt64s, counts: npt.NDArray[np.int64], which: npt.NDArray[np.int64]
) -> tuple[Value, ...]:
    shown = physical_values(values.take(pa.array(which)))
    return tuple(Value(v, h, n) for v, h, n in zip(shown, hashes[which].tolist(), counts[which].tolist(), strict=True))


def unite(name: str, parts: Sequence[RunProfile], table_rows: int) -> ColumnProfile:
    """Return the profile of a column of a table with ``table_rows`` rows, from the profiles of its runs."""
    rows = sum(p.rows for p in parts)
    union = DistinctSketch.union(p.sketch for p in parts).estimate
    growth = growth_of([(p.rows - p.nulls, p.distinct, p.distinct_parts) for p in parts], union)
    distinct = union if table_rows <= rows else growth.distinct_in(table_rows, rows, union)
    distinct = min(distinct, float(table_rows))  # the sketch may say more than there are rows
    weights = np.array([p.rows for p in parts], float)

    def mean(numbers: Sequence[float]) -> float:
        return float(np.average(numbers, weights=weights)) if rows else 0.0

    cuts = sorted((c for p in parts for c in p.cuts if c == c), key=_sortable)
    return ColumnProfile(
        name=name,
        table_rows=table_rows,
        rows=rows,
        nulls=sum(p.nulls for p in parts),
        distinct=distinct,
        growth=growth,
        top=_merged([p.top for p in parts], by_rows=True)[:_TOP],
        kept=_merged([p.kept for p in parts], by_rows=False)[:_KEPT],
        spread=mean([p.spread for p in parts]),
        ascending=mean([p.ascending for p in parts]),
        cuts=tuple(cuts),
        value_bytes=mean([p.value_bytes for p in parts]),
    )


def _merged(parts: Sequence[tuple[Value, ...]], *, by_rows: bool) -> tuple[Value, ...]:
    merged: dict[int, Value] = {}
    for v in (v for part in parts for v in part):
        known = merged.get(v.hash)
        merged[v.hash] = v if known is None else Value(v.value, v.hash, v.rows + known.rows)
    return tuple(sorted(merged.values(), key=(lambda v: -v.rows) if by_rows else (lambda v: v.hash)))


def _sortable(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


# --- questions --------------------------------------------------------------------------------------------------------

_MOST_QUESTIONS = 200
"""Different questions that are weighed; of more, those asked most often."""
_FEW_VALUES = 12
_LISTS = (3, 10)
_RANGES = ((0.30, 0.31), (0.70, 0.71), (0.45, 0.55))
_RANGED = frozenset(Root) - STRINGS - BINARIES - {Root.BOOLEAN, Root.VARIANT}
_LEAST_RANGED = 24
"""Distinct values from which on ranges of a number are assumed to be asked."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query over one table: its condition (Spark SQL text, or a tree), and its columns (None: all)."""

    where: str | Predicate | None
    columns: tuple[str, ...] | None = None
    weight: float = 1.0


@dataclass(frozen=True)
class Question:
    """A query whose condition is bound to the table; ``weight``: how often it is asked, beside the others."""

    predicate: Predicate
    columns: tuple[str, ...]
    weight: float
    text: str
    kind: str
    """``equality``, ``list``, ``range``, ``pattern``, ``null`` or ``several`` (columns)."""

    @cached_property
    def judged(self) -> Predicate:
        """The condition as indexes evaluate it: with leaves about expressions, and about each column of tuples."""
        return _without_tuples(judged_by_indexes(self.predicate).predicate)

    @cached_property
    def sources(self) -> frozenset[str]:
        """The columns and expressions whose indexes may help."""
        judged = self.judged
        places = {place for leaf in leaves_of(judged) for place in places_of(leaf)}
        computed = {c for test in computed_tests(judged) for c in test.columns}
        return frozenset(place for place in places if may_be_advised(place)) | computed

    @property
    def picked(self) -> bool:
        """Whether it asks for values, which typical questions pick from the sample."""
        return self.kind in ("equality", "list")

    @cached_property
    def needed(self) -> tuple[str, ...]:
        """The columns that are read for it, the condition's among them."""
        more = sorted(c for c in sources_of(self.predicate) if c not in self.columns)
        return (*self.columns, *more)


@dataclass(frozen=True, slots=True)
class Asked:
    """Questions, and those that could not be understood, with the reason."""

    questions: tuple[Question, ...]
    unread: tuple[str, ...] = ()
    masked: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """How often recorded scans without values ask about a column."""
    whole: int = 0
    """Queries without a condition: no index helps them."""


def _without_tuples(predicate: Predicate) -> Predicate:
    match predicate:
        case And(children) | Or(children):
            return type(predicate)(tuple(map(_without_tuples, children)))
        case TupleIn():
            return And(column_terms(predicate))
    return predicate


def units_of(predicate: Predicate) -> list[Predicate]:
    """The predicates that indexes evaluate together: leaves, and leaves of one column that must all hold.

    The two bounds of a range are an example: each may select half of the rows where both select few.
    """
    match predicate:
        case And(children):
            return [u for c in together(children) for u in ([c] if c not in children else units_of(c))]
        case Or(children):
            return [u for c in children for u in units_of(c)]
        case _:
            return list(leaves_of(predicate))


def together(children: Sequence[Predicate]) -> list[Predicate]:
    """Return the conditions that must hold together, several leaves of a column as one AND."""
    groups: dict[object, list[Predicate]] = {}
    for child in children:
        match child:
            case Comparison() | In() | Like() | IsNull():
                groups.setdefault(child.column, []).append(child)
            case _:
                groups[child] = [child]
    return [g[0] if len(g) == 1 else And(tuple(g)) for g in groups.values()]


def not_understood(text: str) -> str:
    """A note on a query that could not be read, in one line."""
    line = " ".join(text.split())
    return f"not understood, and passed over: {line if len(line) <= 160 else line[:159] + '…'}"


def given(queries: Sequence[str | Predicate | Query | ScanRecord], schema: TableSchema, timezone: str) -> Asked:
    """Convert queries to questions about a table.  Queries that cannot be parsed or bound are reported and skipped."""
    questions: dict[tuple[Predicate, tuple[str, ...]], Question] = {}
    unread: list[str] = []
    masked: dict[str, int] = {}
    whole = 0
    for query in queries:
        if isinstance(query, ScanRecord):
            if query.where is None and query.terms:
                for column in {t.column for t in query.terms if t.column in schema.field_names and t.op != COMPUTED}:
                    masked[column] = masked.get(column, 0) + 1
                continue
            query = Query(query.where, query.columns)
        if isinstance(query, str) and query.lstrip().lower().startswith(("select ", "with ", "select\n")):
            raise InvalidRequest(
                "table.indexes.advise() takes conditions such as \"status = 'NEW'\"; "
                "lake.advise(table, queries) takes whole queries"
            )
        if not isinstance(query, Query):
            if not isinstance(query, str | Predicate):
                raise InvalidRequest(f"a query must be a condition such as \"status = 'NEW'\", and is {query!r}")
            query = Query(query)
        if query.where is None:
            whole += 1
            continue
        try:
            bound, columns = _bound(query, schema, timezone)
        except BitlakeError as e:
            unread.append(f"{query.where if isinstance(query.where, str) else to_sql(query.where)}: {e}")
            continue
        if isinstance(bound, Constant) or not leaves_of(judged_by_indexes(bound).predicate):
            whole += 1
            continue
        question = question_of(bound, columns, query.weight, schema)
        known = questions.get((bound, columns))
        questions[bound, columns] = question if known is None else replace(known, weight=known.weight + query.weight)
    most = sorted(questions.values(), key=lambda q: -q.weight)[:_MOST_QUESTIONS]
    return Asked(tuple(most), tuple(unread), masked, whole)


def _bound(query: Query, schema: TableSchema, timezone: str) -> tuple[Predicate, tuple[str, ...]]:
    assert query.where is not None
    tree = query.where
    if isinstance(tree, str):
        from bitlake.expressions.parser import parse_predicate  # brings sqlglot, which only SQL text needs

        tree = parse_predicate(tree, timezone)
    bound = bind(tree, schema.fields, timezone)
    names = schema.field_names if query.columns is None else query.columns
    return bound, tuple(n for n in names if n in schema.field_names)


def question_of(predicate: Predicate, columns: tuple[str, ...], weight: float, schema: TableSchema) -> Question:
    """Return the question that a query with a bound condition asks."""
    kind = _kind(judged_by_indexes(predicate).predicate)
    return Question(predicate, columns, weight, to_sql(predicate, schema.fields, 5), kind)


def _kind(predicate: Predicate) -> str:
    leaves = leaves_of(predicate)
    if len(columns_of(predicate)) > 1:
        return "several"
    if all(isinstance(leaf, Comparison) and leaf.op is Op.EQ for leaf in leaves):
        return "equality" if len(leaves) == 1 else "list"
    if all(isinstance(leaf, IsNull) for leaf in leaves):
        return "null"
    if any(isinstance(leaf, Like) for leaf in leaves):
        return "pattern"
    return "list" if all(isinstance(leaf, In) for leaf in leaves) else "range"


def assumed(field: DataField, profile: ColumnProfile, schema: TableSchema) -> list[Question]:
    """Typical questions about a column: one value, some values, and ranges of numbers and times.

    Of a column with few values any of them is as likely to be asked for; of one with many, those are taken that a
    hash picks.  Ranges hold a hundredth and a tenth of the rows.
    """
    name, columns = field.name, schema.field_names
    assert isinstance(field.type, AtomicType)
    values = [v for v in (profile.top if profile.distinct <= len(profile.top) else profile.kept) if _askable(v)]
    predicates: list[Predicate] = [Comparison(name, Op.EQ, v.value) for v in _evenly(values, _FEW_VALUES)]
    for length in _LISTS:
        if profile.distinct > 2 * length and len(values) >= length:
            predicates.append(In(name, tuple(sorted(v.value for v in values[:length]))))
    if field.type.root in _RANGED and profile.distinct >= _LEAST_RANGED and len(profile.cuts) > 2:
        cuts = profile.cuts
        for low, high in _RANGES:
            first, last = _between(cuts, low), _between(cuts, high)
            predicates.append(And((Comparison(name, Op.GE, first), Comparison(name, Op.LE, last))))
        predicates.append(Comparison(name, Op.GE, _between(cuts, 0.99)))
    if 0 < profile.null_ratio < 0.5:
        predicates.append(IsNull(name))
    return [question_of(p, columns, 1 / max(1, len(predicates)), schema) for p in predicates]


def _askable(v: Value) -> bool:
    return bool(v.value is not None and v.value == v.value)


def _evenly(values: Sequence[Value], most: int) -> list[Value]:
    if len(values) <= most:
        return list(values)
    return [values[i * len(values) // most] for i in range(most)]


def _between(cuts: Sequence[Any], share: float) -> Any:
    """The value below which this share of the rows lies; between two known values numbers are taken for even."""
    at = share * (len(cuts) - 1)
    low = int(at)
    left, right = cuts[low], cuts[min(low + 1, len(cuts) - 1)]
    if isinstance(left, bool) or not isinstance(left, int | float):
        return left
    if isinstance(left, int):  # by whole numbers: a float near the end of BIGINT rounds past it
        return left + (right - left) * round((at - low) * 2**20) // 2**20
    made = left * (1 - (at - low)) + right * (at - low)  # a difference of the two could be infinite
    return float(made) if math.isfinite(made) else left
