"""What a column's values are like: how many, how often, where they lie.

A run of rows is looked at once, each column by itself: its values become numbers (a dictionary), from which all the
rest is counted.  What comes of it is small, and unites over runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bitlake.codec.hashing import UInt64s
from bitlake.formats.column_bounds import physical_values
from bitlake.io import Store
from bitlake.metadata.schema import TableSchema
from bitlake.table.advise.growth import Growth, growth_of
from bitlake.table.advise.sample import Run, read_column
from bitlake.table.advise.sketch import DistinctSketch, hash_values
from bitlake.types import AtomicType, DataField, Root

BLOCK_ROWS = 4096
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
    """A column of a table, as its runs tell.

    ``rows`` were looked at; ``distinct`` is of the whole table, ``growth`` tells how it grows with the rows.
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

    def distinct_in(self, rows: int, known_rows: int, known: int) -> float:
        """About how many distinct values so many rows have, where ``known_rows`` have ``known``."""
        return self.growth.distinct_in(rows, known_rows, known)


def is_profiled(field: DataField) -> bool:
    """Whether values of a column's type can be told apart here: flat types."""
    return isinstance(field.type, AtomicType) and field.type.root is not Root.VARIANT


def profile_run(store: Store, run: Run, fields: Sequence[DataField], schema: TableSchema) -> dict[str, RunProfile]:
    """The profiles of these columns in a run, one column after the other."""
    found = {}
    for field in fields:
        column = read_column(store, run, field, schema)
        if column is not None:
            found[field.name] = profile(column)
    return found


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
    blocks = max(1, -(-len(column) // BLOCK_ROWS))
    spread = _spread(codes, np.flatnonzero(valid) // BLOCK_ROWS, counts, blocks)
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
    """A column of a table of so many rows, from the profiles of its runs."""
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
    found: dict[int, Value] = {}
    for v in (v for part in parts for v in part):
        known = found.get(v.hash)
        found[v.hash] = v if known is None else Value(v.value, v.hash, v.rows + known.rows)
    return tuple(sorted(found.values(), key=(lambda v: -v.rows) if by_rows else (lambda v: v.hash)))


def _sortable(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value
