"""A bound predicate over Arrow columns: three-valued, vectorised, with Spark's order of floats.

Spark: NaN equals NaN and is greater than every other number; -0.0 equals 0.0.  Strings and binaries compare by
unsigned bytes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bitlake.errors import InvalidRequest
from bitlake.expressions.term_groups import Group, Ranges, Tuples, grouped_terms, tuples_of
from bitlake.expressions.tree import (
    And,
    Comparison,
    Computed,
    Constant,
    In,
    IndexedExpression,
    IsNull,
    Like,
    MapKey,
    Op,
    Or,
    Predicate,
    TupleIn,
    Wild,
    columns_of,
    derived_from,
    has_computed,
    like_pieces,
    like_regex,
    sources_of,
)
from bitlake.lazy_modules import compute as pc
from bitlake.types.arrow import arrow_type
from bitlake.types.datatypes import FLOATS, AtomicType, DataField, MapType, Root
from bitlake.types.utf8 import java_text

_KERNELS = {
    Op.EQ: "equal",
    Op.NE: "not_equal",
    Op.LT: "less",
    Op.LE: "less_equal",
    Op.GT: "greater",
    Op.GE: "greater_equal",
}
"""Arrow's kernels by name: pyarrow.compute takes long to load, and who plans a scan needs none of them."""


def evaluate(bound: Predicate, table: pa.Table | pa.RecordBatch, fields: Sequence[DataField]) -> pa.BooleanArray:
    """TRUE, FALSE or NULL for each row.

    Requires: columns named as in the predicate, each of its field's Arrow type or one that casts to it without loss
    (dictionaries, large and view types are evaluated as they are).
    Raises :class:`InvalidRequest` if a column is missing, and for a text with a surrogate, which no row can hold.
    """
    by_name = {f.name: f for f in fields}
    columns: dict[str, pa.ChunkedArray] = {}
    names = table.schema.names
    for name in sorted(sources_of(bound)):
        if name not in by_name or name not in names:
            raise InvalidRequest(f"the rows to filter have no column '{name}'; they have {', '.join(names)}")
        column = table.column(names.index(name))
        columns[name] = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
    for leaf in columns_of(bound):
        if isinstance(leaf, MapKey):
            columns[leaf], by_name[leaf] = _values_of(leaf, columns[leaf.column], by_name[leaf.column])
    try:
        return _one_array(_evaluate(bound, columns, by_name, table.num_rows))
    except UnicodeEncodeError as e:
        raise InvalidRequest(f"{e.object!r} is not text that can be stored: {e.reason}; remove the surrogate") from e


def _one_array(found: pa.ChunkedArray | pa.BooleanArray) -> pa.BooleanArray:
    if isinstance(found, pa.ChunkedArray):
        found = found.combine_chunks()
        if isinstance(found, pa.ChunkedArray):
            found = pa.concat_arrays(found.chunks) if found.num_chunks else pa.array([], pa.bool_())
    return cast(pa.BooleanArray, found)


def _values_of(leaf: MapKey, column: pa.ChunkedArray, field: DataField) -> tuple[pa.ChunkedArray, DataField]:
    """A map column's values of one key, NULL where it is not there, and what they are."""
    if not isinstance(field.type, MapType):
        raise InvalidRequest(f"column '{field.name}' of type {field.type} is not a map")
    found = pc.map_lookup(column, pa.scalar(leaf.key, column.type.key_type), "first")
    return found, DataField(field.id, leaf, field.type.value)


def physical_array(column: DataField, values: Sequence[Any]) -> pa.Array:
    """An Arrow array of a column's type from physical values (see :mod:`bitlake.expressions.tree`)."""
    return values_array(values, arrow_type(column.type))


def values_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """An Arrow array of physical values in an Arrow type that has their column's layout."""
    if pa.types.is_decimal(kind):
        words = b"".join(b"\0" * 16 if v is None else int(v).to_bytes(16, "little", signed=True) for v in values)
        mask = pa.array([v is not None for v in values], pa.bool_()).buffers()[1]
        return pa.Array.from_buffers(kind, len(values), [mask, pa.py_buffer(words)])
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(kind)
    if pa.types.is_date(kind) or pa.types.is_time(kind):
        return pa.array(values, pa.int32()).cast(kind)
    return pa.array(values, kind)


def filter_table(bound: Predicate, table: pa.Table, fields: Sequence[DataField]) -> pa.Table:
    """The rows for which the predicate is TRUE, in order."""
    if bound == Constant(True):
        return table
    true = evaluate(bound, table, fields)
    if true.true_count == table.num_rows:
        return table  # as after an exact index: nothing to copy
    return table.filter(true, null_selection_behavior="drop")


def _evaluate(
    node: Predicate | Group, columns: dict[str, pa.ChunkedArray], fields: dict[str, DataField], rows: int
) -> Any:
    match node:
        case Constant(value):
            return pa.nulls(rows, pa.bool_()) if value is None else pa.repeat(pa.scalar(value), rows)
        case And(children) | Or(children):
            conjunction = isinstance(node, And)
            if not children:
                return pa.repeat(pa.scalar(conjunction), rows)
            terms = grouped_terms(node)
            if has_computed(node):
                return _in_order(terms, conjunction, columns, fields, rows)
            parts = (_evaluate(c, columns, fields, rows) for c in terms)
            return functools.reduce(pc.and_kleene if conjunction else pc.or_kleene, parts)
        case IsNull() | Comparison() | In() | Like() if isinstance(node.column, IndexedExpression):
            return pa.repeat(pa.scalar(True), rows)  # only indexes evaluate it
        case IsNull(column, negated):
            return pc.is_valid(columns[column]) if negated else pc.is_null(columns[column])
        case TupleIn():
            return _is_tuple(tuples_of(node), columns, fields, rows)
        case Tuples():
            return _is_tuple(node, columns, fields, rows)
        case Comparison() | In() | Like() | Ranges():
            return _leaf(node, columns[node.column], fields[node.column].type)
        case Computed(test, negated):
            names = sorted(test.columns)
            found = test.mask(pa.table([columns[n] for n in names], names), [fields[n] for n in names])
            return pc.invert(found) if negated else found
    raise InvalidRequest(f"the predicate is not bound: {node}")


def _computes(term: Predicate | Group) -> bool:
    return not isinstance(term, Ranges | Tuples) and has_computed(term)


def _in_order(
    children: Sequence[Predicate | Group],
    conjunction: bool,
    columns: dict[str, pa.ChunkedArray],
    fields: dict[str, DataField],
    rows: int,
) -> Any:
    """AND or OR of terms of which some are computed: these see only the rows that the terms before leave undecided.

    A computed term may fail for some values, as ``10 / b`` does for 0, and ``b <> 0 AND 10 / b > 1`` must not.  Terms
    that cannot fail come first.
    """
    join = pc.and_kleene if conjunction else pc.or_kleene
    decisive = pa.scalar(not conjunction)
    truth: Any = pa.repeat(pa.scalar(conjunction), rows)
    for child in sorted(children, key=_computes):
        if not _computes(child):
            truth = join(truth, _evaluate(child, columns, fields, rows))
            continue
        undecided = _one_array(pc.fill_null(pc.not_equal(truth, decisive), True))
        count = undecided.true_count
        if count == rows:
            truth = join(truth, _evaluate(child, columns, fields, rows))
        elif count:
            left = {name: column.filter(undecided) for name, column in columns.items()}
            among = _one_array(_evaluate(child, left, fields, count))
            truth = join(truth, pc.replace_with_mask(pa.nulls(rows, pa.bool_()), undecided, among))
    return truth


def _leaf(node: Comparison | In | Like | Ranges, column: pa.ChunkedArray, kind: Any) -> pa.ChunkedArray:
    if not isinstance(kind, AtomicType):
        raise InvalidRequest(f"column '{node.column}' of type {kind} cannot be compared")
    if pa.types.is_dictionary(column.type):
        # Once per distinct value, then spread by the codes; NULL codes stay NULL.
        chunks = []
        for chunk in column.chunks:
            answers = _leaf(node, pa.chunked_array([chunk.dictionary]), kind).combine_chunks()
            chunks.append(pc.take(answers, chunk.indices))
        return pa.chunked_array(chunks, pa.bool_())
    column = _as_stored(column, kind)
    if isinstance(node, Like):
        return _like(node, column)
    if isinstance(node, Ranges):
        inside = node.inside[parts_of(node, column)]
        return _null_where_null(pa.chunked_array([pa.array(inside)]), column)
    if kind.root in FLOATS:
        return _float(node, column)
    if isinstance(node, Comparison):
        return pc.call_function(_KERNELS[node.op], [column, _scalar(node.value, column.type, kind)])
    return _member(node, column)


def _as_stored(column: pa.ChunkedArray, kind: AtomicType) -> pa.ChunkedArray:
    wanted, found = arrow_type(kind), column.type
    if found == wanted or _same_layout(found, wanted):
        return column
    return column.cast(wanted)


def _same_layout(found: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_string(wanted):
        return bool(pa.types.is_large_string(found))
    return bool(pa.types.is_binary(wanted) and pa.types.is_large_binary(found))


def _scalar(value: Any, arrow: pa.DataType, kind: AtomicType) -> pa.Scalar:
    if kind.root is Root.DECIMAL:
        return pa.scalar(Decimal(f"{value}E-{kind.scale or 0}"), arrow)
    if pa.types.is_timestamp(arrow):
        return pa.scalar(value, pa.int64()).cast(arrow)
    short = isinstance(value, str) and len(value) <= _SHORT_TEXT
    return _text(value, arrow) if short else pa.scalar(value, arrow)


_SHORT_TEXT = 1000
_text = functools.lru_cache(256)(pa.scalar)
"""Only for short texts: numbers that are equal may have different scalars."""


def _member(node: In, column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if len(node.values) > _FEW_MEMBERS and (pa.types.is_integer(kind) or pa.types.is_date(kind)):
        lookup = derived_from(node, "lookup", lambda: _IntegerSet.of(np.array(node.values, np.int64)))
        found = lookup.contains(_integers(column))
        return _null_where_null(pa.chunked_array([pa.array(~found if node.negated else found)]), column)
    member = is_in(column, derived_from(node, column.type, lambda: values_array(node.values, column.type)))
    return _null_where_null(pc.invert(member) if node.negated else member, column)


def is_in(column: Any, members: pa.Array) -> Any:
    """Whether each value is one of ``members``; Arrow hashes all of these for each call."""
    if len(members) > max(len(column), _FEW_MEMBERS):
        # Hash the fewer: 100,000 members and 20,000 rows take 6 to 9 ms so, and 18 to 32 ms otherwise.
        members = members.filter(pc.is_in(members, value_set=column))
    return pc.is_in(column, value_set=members)


_FEW_MEMBERS = 1000


@dataclass(frozen=True, slots=True, eq=False)
class _IntegerSet:
    """Many integers, in which values are looked up without hashing all of them for each file."""

    numbers: npt.NDArray[np.int64]
    """Sorted."""
    bits: npt.NDArray[np.uint8] | None
    """A bit for each integer from the first to the last one, if these are near enough."""

    @classmethod
    def of(cls, numbers: npt.NDArray[np.int64]) -> _IntegerSet:
        """The set of sorted integers."""
        span = int(numbers[-1]) - int(numbers[0]) + 1
        if span > _MOST_BITS:
            return cls(numbers, None)
        mask = np.zeros(span, bool)
        mask[numbers - numbers[0]] = True
        return cls(numbers, np.packbits(mask, bitorder="little"))

    def contains(self, values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Whether each value is in the set.  20,000 values take 0.3 ms, and 2 ms where the set has no bits."""
        within = (values >= self.numbers[0]) & (values <= self.numbers[-1])
        if self.bits is None:
            places = np.minimum(np.searchsorted(self.numbers, values), len(self.numbers) - 1)
            equal: npt.NDArray[np.bool_] = within & (self.numbers[places] == values)
            return equal
        offsets = np.where(within, values, self.numbers[0]).astype(np.int64) - self.numbers[0]
        held: npt.NDArray[np.bool_] = within & ((self.bits[offsets >> 3] >> (offsets & 7).astype(np.uint8)) & 1).view(
            bool
        )
        return held


_MOST_BITS = 1 << 26
"""Bits of a set take at most 8 MB."""


def _null_where_null(found: pa.ChunkedArray, column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.if_else(pc.is_valid(column), found, pa.scalar(None, pa.bool_())) if column.null_count else found


def _float(node: Comparison | In, column: pa.ChunkedArray) -> pa.ChunkedArray:
    nan = functools.partial(pc.is_nan, column)
    if isinstance(node, In):
        # Adding 0.0 makes -0.0 the 0.0 that is_in looks for.
        plain = pc.add(column, pa.scalar(0.0, column.type))
        numbers = derived_from(
            node, column.type, lambda: pa.array([v + 0.0 for v in node.values if not math.isnan(v)], column.type)
        )
        equal = is_in(plain, numbers)
        if len(numbers) < len(node.values):
            equal = pc.or_(equal, nan())
        return _null_where_null(pc.invert(equal) if node.negated else equal, column)
    op = node.op
    if math.isnan(node.value):
        if op in (Op.EQ, Op.GE):
            return nan()
        if op in (Op.NE, Op.LT):
            return pc.invert(nan())
        return _null_where_null(pa.chunked_array([pa.repeat(pa.scalar(op is Op.LE), len(column))]), column)
    plain = pc.call_function(_KERNELS[op], [column, pa.scalar(node.value, column.type)])
    # IEEE comparisons with NaN are FALSE, except <>.  That is right unless NaN is the greater value.
    return pc.or_(plain, nan()) if op in (Op.GT, Op.GE) else plain


def parts_of(node: Ranges, column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """The part (see :class:`Ranges`) that holds each value; NULL gets an arbitrary one."""
    kind = column.type
    points = derived_from(node.points, kind, lambda: values_array(node.points.values, kind))
    edges, values = _sortable(points, column)
    places: npt.NDArray[np.int64] = np.searchsorted(edges, values, "left") + np.searchsorted(edges, values, "right")
    return places


def _sortable(points: pa.Array, column: pa.ChunkedArray) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """The points and a column's values as numbers that sort like them."""
    kind = column.type
    if pa.types.is_floating(kind):
        return points.to_numpy(), column.fill_null(0).to_numpy()
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_temporal(kind):
        return _integers(points), _integers(column)
    ranks = pc.rank(pa.chunked_array([points, *column.chunks]), sort_keys="ascending", tiebreaker="dense").to_numpy()
    return ranks[: len(points)], ranks[len(points) :]


def _integers(values: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    kind = values.type
    if pa.types.is_temporal(kind):
        values = values.cast(pa.int64() if kind.bit_width == 64 else pa.int32())
    elif pa.types.is_boolean(kind):
        values = values.cast(pa.int8())
    integers: npt.NDArray[Any] = values.fill_null(0).to_numpy()
    return integers


def _is_tuple(
    node: Tuples, columns: dict[str, pa.ChunkedArray], fields: dict[str, DataField], rows: int
) -> pa.ChunkedArray:
    """Whether each row is one of the tuples; each column narrows the rows that the columns before it left."""
    candidates, state = np.arange(rows), np.zeros(rows, np.int64)
    for listed, step in zip(node.columns, node.steps, strict=True):
        places = places_in(listed, columns[listed.column], fields[listed.column].type)[candidates]
        sought = state * (len(listed.values) + 1) + places
        state = np.minimum(np.searchsorted(step, sought), len(step) - 1)
        same = (step[state] == sought) & (places >= 0)
        candidates, state = candidates[same], state[same]
    selected = np.full(rows, node.negated)
    selected[candidates] = not node.negated
    return pa.chunked_array([pa.array(selected)])


def places_in(listed: In, column: pa.ChunkedArray, kind: Any) -> npt.NDArray[np.int64]:
    """The index of each value in a list: the list's length for NULL, -1 for a value that is not in it."""
    if not isinstance(kind, AtomicType):
        raise InvalidRequest(f"column '{listed.column}' of type {kind} cannot be compared")
    column = _as_stored(column, kind)
    if kind.root in FLOATS:
        column = pc.add(column, pa.scalar(0.0, column.type))  # -0.0 is 0.0
    members = derived_from(listed, column.type, lambda: values_array(listed.values, column.type))
    if len(members) > max(len(column), _FEW_MEMBERS):  # as in is_in
        sought = pc.indices_nonzero(pc.is_in(members, value_set=column))
        places = pc.take(sought.cast(pa.int32()), pc.index_in(column, value_set=members.take(sought)))
    else:
        places = pc.index_in(column, value_set=members)
    places = pc.fill_null(places, -1)
    if column.null_count:
        places = pc.if_else(pc.is_null(column), pa.scalar(len(members), pa.int32()), places)
    numbers: npt.NDArray[np.int64] = places.to_numpy().astype(np.int64)
    return numbers


def _like(node: Like, column: pa.ChunkedArray) -> pa.ChunkedArray:
    pieces = like_pieces(node.pattern, node.escape)
    match pieces:
        case (str() as text, Wild.MANY):
            matches = pc.starts_with(column, pattern=text)
        case (Wild.MANY, str() as text):
            matches = pc.ends_with(column, pattern=text)
        case (Wild.MANY, str() as text, Wild.MANY):
            matches = pc.match_substring(column, pattern=text)
        case _:
            matches = pc.match_substring_regex(java_text(column), pattern=like_regex(pieces))
    return pc.invert(matches) if node.negated else matches
