"""Partial aggregates of groups of rows, merged exactly, and their results with Spark's types and rounding.

A partial aggregate (:class:`Partial`) holds the rows of each of some groups, and of each column
(:class:`ColumnValues`) the rows that are not NULL, their exact sum, smallest and largest value, and distinct values.
Partials come from metadata, from indexes and from rows (:func:`of_rows`); :func:`merged` merges them.  Sums are
Python integers of physical values (floats: floats), so that nothing overflows before the result.

Results are Spark's: SUM of integers is a BIGINT, of DECIMAL(p, s) a DECIMAL(p + 10, s); AVG of integers is a DOUBLE, of
DECIMAL(p, s) a DECIMAL(p + 4, s + 4), rounded half up; of floats both are DOUBLE; of no rows both are NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bitlake.codec.hashing import Int64s
from bitlake.errors import EvaluationFailed, InvalidRequest
from bitlake.expressions.evaluate import physical_array
from bitlake.expressions.term_binder import KERNELS
from bitlake.expressions.terms import Typed, evaluate_term
from bitlake.fileindex.sums import of_grouped, of_runs
from bitlake.lazy_modules import compute as pc
from bitlake.types import AtomicType, DataField, DataType, Root, arrow_type
from bitlake.types.datatypes import FLOATS, INTEGERS

COUNT_ROWS, COUNT, COUNT_DISTINCT, SUM, AVG, MIN, MAX = (
    "count(*)",
    "count",
    "count distinct",
    "sum",
    "avg",
    "min",
    "max",
)
_BIGINT, _DOUBLE = AtomicType(Root.BIGINT), AtomicType(Root.DOUBLE)
_EXACT_DOUBLE = 1 << 53
"""Spark adds integers for AVG as DOUBLE: up to here every partial sum is exact, whatever the order."""
_MOST_DIGITS, _DIVISION_SCALE = 38, 38
_LOW = 0xFFFFFFFF


class Unordered(Exception):
    """The result depends on the order in which an engine adds the rows: an overflow, or a rounding, on the way."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate: its kind, and its column (None for :data:`COUNT_ROWS`)."""

    kind: str
    column: str | None = None


@dataclass(frozen=True, slots=True)
class GroupKey:
    """A column to group by: its own values, or those of bound terms over it alone."""

    column: str
    terms: tuple[Typed, ...] = ()


@dataclass(slots=True)
class ColumnValues:
    """A column's values in groups of rows; what no aggregate needs is None.

    ``pairs``: groups with one distinct value each, which are all different.
    """

    counts: Int64s | None = None
    totals: Sequence[Any] | None = None
    magnitudes: Sequence[Any] | None = None
    low: pa.Array | None = None
    high: pa.Array | None = None
    pairs: tuple[Int64s, pa.Array] | None = None


_NO_PAIRS = (np.zeros(0, np.int64), pa.array([]))


@dataclass(slots=True)
class Partial:
    """Groups of rows: for each key an array with the value of one row of each group; rows; and columns' values."""

    keys: tuple[pa.Array, ...]
    rows: Int64s
    columns: dict[str, ColumnValues] = field(default_factory=dict)


# --- groups -----------------------------------------------------------------------------------------------------------


def one_zero(values: Any) -> Any:
    """Values as they group: floats with one NaN and one zero."""
    kind = values.type
    if not pa.types.is_floating(kind):
        return values
    plain = pc.add(values, pa.scalar(0.0, kind))  # -0.0 + 0.0 is 0.0
    return pc.if_else(pc.is_nan(plain), pa.scalar(float("nan"), kind), plain)


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column as one array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    combined = column.combine_chunks()
    return pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined


def group_ids(keys: Sequence[GroupKey], columns: Sequence[pa.Array], rows: int) -> tuple[Int64s, Int64s]:
    """The group of each row, and one row of each group; without keys all rows are one group."""
    ids, first = np.zeros(rows, np.int64), np.zeros(1, np.int64)
    if keys:
        first = np.zeros(0, np.int64)
    for key, column in zip(keys, columns, strict=True):
        named = {key.column: column}
        for values in [evaluate_term(t, named, rows, KERNELS) for t in key.terms] or [column]:
            coded = one_zero(one_array(values)).dictionary_encode("encode")
            ids = ids * max(len(coded.dictionary), 1) + coded.indices.to_numpy()
            _, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
            ids = inverse.reshape(-1).astype(np.int64)
    return ids, first


def distinct_pairs(groups: Int64s, values: pa.Array) -> tuple[Int64s, pa.Array]:
    """The different pairs of a group and a value that is not NULL."""
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    groups, values = groups[valid], values.drop_null()
    codes = one_zero(values).dictionary_encode()
    _, first = np.unique(groups * max(len(codes.dictionary), 1) + codes.indices.to_numpy(), return_index=True)
    return groups[first], values.take(pa.array(first))


def ends_of(values: pa.Array, ids: Int64s, groups: int) -> tuple[pa.Array, pa.Array]:
    """The smallest and the largest value of each group, by Spark's order; NULL for a group without values."""
    order = pc.array_sort_indices(values).to_numpy().astype(np.int64)  # NaN above all numbers, and NULLs last
    order = order[: len(order) - values.null_count]
    first, last = np.full(groups, -1, np.int64), np.full(groups, -1, np.int64)
    # Of equal indices the last one assigned stays.
    first[ids[order][::-1]] = order[::-1]
    last[ids[order]] = order
    return tuple(values.take(pa.array(at, mask=at < 0)) for at in (first, last))


# --- partials ---------------------------------------------------------------------------------------------------------


def of_rows(
    grouping: tuple[Int64s, Int64s],
    keys: Sequence[GroupKey],
    needs: Mapping[str, frozenset[str]],
    columns: Mapping[str, pa.Array],
) -> Partial:
    """Partial aggregates of rows.

    ``grouping``: the result of :func:`group_ids` for these rows; ``needs``: the kinds of aggregates of each column.
    """
    key_columns = [columns[k.column] for k in keys]
    ids, first = grouping
    groups = len(first)
    order = np.argsort(ids, kind="stable")
    bounds = np.concatenate(([0], np.cumsum(np.bincount(ids, minlength=groups)))).astype(np.int64)
    part = Partial(tuple(c.take(pa.array(first)) for c in key_columns), np.diff(bounds))
    for name, kinds in needs.items():
        column, values = columns[name], ColumnValues()
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        values.counts = np.bincount(ids[valid], minlength=groups).astype(np.int64)
        if kinds & {SUM, AVG}:
            values.totals, values.magnitudes = _run_sums(column, order, bounds)
        if kinds & {MIN, MAX}:
            values.low, values.high = ends_of(column, ids, groups)
        if COUNT_DISTINCT in kinds:
            values.pairs = distinct_pairs(ids, column)
        part.columns[name] = values
    return part


def _run_sums(column: pa.Array, order: Int64s, bounds: Int64s) -> tuple[list[Any], list[Any]]:
    """The sum and the magnitude of runs of a column in an order; NULLs add nothing."""
    if pa.types.is_floating(column.type):
        values = column.fill_null(0).to_numpy().astype(np.float64)[order]
        sums = np.zeros(len(bounds) - 1)
        with np.errstate(over="ignore", invalid="ignore"):  # the sum is Infinity or NaN, as in Spark
            np.add.at(sums, np.repeat(np.arange(len(sums)), np.diff(bounds)), values)
        return sums.tolist(), [0] * len(sums)
    if not pa.types.is_decimal(column.type):
        run_sums = of_grouped(column.fill_null(0).to_numpy().astype(np.int64)[order], bounds)
        return run_sums.totals, run_sums.magnitudes
    words = np.frombuffer(column.buffers()[1], np.int64).reshape(-1, 2)[column.offset : column.offset + len(column)]
    words = np.where(column.is_valid().to_numpy(zero_copy_only=False)[:, None], words, 0)[order]
    negative = words[:, 1] < 0
    above, below = (_wide_sums(np.where(mask[:, None], words, 0), bounds) for mask in (~negative, negative))
    return [a + b for a, b in zip(above, below, strict=True)], [a - b for a, b in zip(above, below, strict=True)]


def _wide_sums(words: npt.NDArray[np.int64], bounds: Int64s) -> list[int]:
    """The sums of runs of 128-bit integers: the lower word of each has no sign."""
    low = words[:, 0].view(np.uint64)
    parts = [(low & np.uint64(_LOW)).astype(np.int64), (low >> np.uint64(32)).astype(np.int64), words[:, 1]]
    sums = [of_runs(part, bounds) for part in parts]
    return [a + (b << 32) + (c << 64) for a, b, c in zip(*sums, strict=True)]


def merged(
    keys: Sequence[GroupKey],
    needs: Mapping[str, frozenset[str]],
    types: Mapping[str, DataType],
    parts: Sequence[Partial],
) -> Partial:
    """One partial of many; ``needs``: kinds of aggregates for each column, ``types``: of all columns."""
    arrays = [_joined(arrow_type(types[k.column]), (p.keys[i] for p in parts)) for i, k in enumerate(keys)]
    sizes = [len(p.rows) for p in parts]
    ids, first = group_ids(keys, arrays, sum(sizes))
    groups = len(first)
    whole = Partial(tuple(a.take(pa.array(first)) for a in arrays), _added(ids, [p.rows for p in parts], groups))
    starts = np.cumsum([0, *sizes])[:-1]
    for name, kinds in needs.items():
        columns = [p.columns[name] for p in parts]
        kind, values = arrow_type(types[name]), ColumnValues()
        if kinds & {COUNT, SUM, AVG}:
            values.counts = _added(ids, [c.counts for c in columns], groups)
        if kinds & {SUM, AVG}:
            values.totals = _added(ids, [c.totals for c in columns], groups, object)
            values.magnitudes = _added(ids, [c.magnitudes for c in columns], groups, object)
        if kinds & {MIN, MAX}:
            values.low = ends_of(_joined(kind, (c.low for c in columns)), ids, groups)[0]
            values.high = ends_of(_joined(kind, (c.high for c in columns)), ids, groups)[1]
        if COUNT_DISTINCT in kinds:
            pairs = [c.pairs or _NO_PAIRS for c in columns]
            places = [ids[start + p[0]] for start, p in zip(starts, pairs, strict=True)]
            values.pairs = distinct_pairs(np.concatenate([_NO_PAIRS[0], *places]), _joined(kind, (p[1] for p in pairs)))
        whole.columns[name] = values
    return whole


def _added(ids: Int64s, parts: Iterable[Any], groups: int, kind: Any = np.int64) -> Any:
    sums = np.zeros(groups, kind)
    arrays = [np.array(p, kind) for p in parts]
    if arrays:
        np.add.at(sums, ids, np.concatenate(arrays))
    return sums


def _joined(kind: pa.DataType, parts: Iterable[pa.Array | None]) -> pa.Array:
    return pa.concat_arrays([pa.array([], kind), *(p for p in parts if p is not None and len(p))])


# --- results ----------------------------------------------------------------------------------------------------------


def result_type(aggregate: Aggregate, kind: DataType | None) -> AtomicType | DataType:
    """The type of an aggregate of a column of type ``kind``; raises :class:`InvalidRequest` where there is none."""
    if aggregate.kind in (COUNT_ROWS, COUNT, COUNT_DISTINCT):
        return _BIGINT
    assert kind is not None
    if aggregate.kind in (MIN, MAX):
        return kind
    if isinstance(kind, AtomicType):
        if kind.root is Root.DECIMAL:
            more = 10 if aggregate.kind == SUM else 4
            precision, scale = (kind.precision or 10) + more, (kind.scale or 0) + (0 if aggregate.kind == SUM else 4)
            return AtomicType(Root.DECIMAL, precision=min(precision, _MOST_DIGITS), scale=min(scale, _MOST_DIGITS))
        if kind.root in INTEGERS:
            return _BIGINT if aggregate.kind == SUM else _DOUBLE
        if kind.root in FLOATS:
            return _DOUBLE
    raise InvalidRequest(f"{aggregate.kind} of column '{aggregate.column}' of type {kind}: it takes numbers")


def result(aggregate: Aggregate, kind: DataType | None, partial: Partial, strict: bool) -> pa.Array:
    """An aggregate's value for each group.

    Raises :class:`EvaluationFailed` for a sum that its type does not hold; with ``strict``, :class:`Unordered` for one
    that an engine may not reach, or may reach with another rounding, in the order in which it adds.  A sum of floats is
    never one here: a caller that needs a defined order tests :func:`is_float_sum`.
    """
    if aggregate.column is None:
        return pa.array(partial.rows, pa.int64())
    values = partial.columns[aggregate.column]
    match aggregate.kind:
        case k if k == COUNT:
            return pa.array(values.counts, pa.int64())
        case k if k == COUNT_DISTINCT:
            assert values.pairs is not None
            return pa.array(np.bincount(values.pairs[0], minlength=len(partial.rows)), pa.int64())
        case k if k == MIN:
            return values.low
        case k if k == MAX:
            return values.high
    assert isinstance(kind, AtomicType)
    return _number(aggregate, kind, values, strict)


def is_float_sum(aggregate: Aggregate, kind: DataType | None) -> bool:
    """Whether an aggregate adds floats, so that its last digits depend on the order of the rows."""
    return aggregate.kind in (SUM, AVG) and isinstance(kind, AtomicType) and kind.root in FLOATS


def _number(aggregate: Aggregate, kind: AtomicType, values: ColumnValues, strict: bool) -> pa.Array:
    """SUM or AVG of each group."""
    result = result_type(aggregate, kind)
    assert isinstance(result, AtomicType) and values.counts is not None
    assert values.totals is not None and values.magnitudes is not None
    sum_kind = result_type(Aggregate(SUM, aggregate.column), kind)
    assert isinstance(sum_kind, AtomicType)
    if kind.root in FLOATS:
        limit = None
    elif kind.root is Root.DECIMAL:
        limit = 10 ** (sum_kind.precision or 0) - 1
    else:
        limit = (1 << 63) - 1 if aggregate.kind == SUM else _EXACT_DOUBLE if strict else None
    average = _average(kind, result) if aggregate.kind == AVG else None
    numbers: list[Any] = []
    for count, total, magnitude in zip(values.counts.tolist(), values.totals, values.magnitudes, strict=True):
        if not count:  # a Python step for each group of the result
            numbers.append(None)
            continue
        if limit is not None and (magnitude if strict else abs(total)) > limit:
            if strict:
                raise Unordered
            raise EvaluationFailed(f"{aggregate.kind} of column '{aggregate.column}' overflows {sum_kind}")
        numbers.append(total if average is None else average(total, count))
    if result.root is Root.DOUBLE:
        return pa.array(numbers, pa.float64())
    if result.root is Root.DECIMAL and any(n is not None and abs(n) >= 10 ** (result.precision or 0) for n in numbers):
        if strict:
            raise Unordered
        raise EvaluationFailed(f"{aggregate.kind} of column '{aggregate.column}' overflows {result}")
    return physical_array(DataField(0, "sum", result), numbers)


def _average(kind: AtomicType, result: AtomicType) -> Callable[[Any, int], Any]:
    """Divides a sum by a count as Spark: decimals at 38 digits first, then at the result's scale, half up each time."""
    if result.root is Root.DOUBLE:
        return lambda total, count: total / count
    up, down = 10 ** (_DIVISION_SCALE - (kind.scale or 0)), 10 ** (_DIVISION_SCALE - (result.scale or 0))
    return lambda total, count: _half_up(_half_up(total * up, count), down)


def _half_up(number: int, by: int) -> int:
    """A quotient rounded to the nearest integer, halves away from zero."""
    rounded = (2 * abs(number) + by) // (2 * by)
    return rounded if number >= 0 else -rounded
