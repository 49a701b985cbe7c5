"""Values that become a column's: of SQL expressions (``UPDATE … SET amount = amount * 2``) and of a query's columns.

A value is converted to the column's type as Spark stores it (its ANSI store assignment): between numbers, and between
dates and timestamps, with an error for a value that does not fit; a DECIMAL is rounded half up.  An expression of
another type does not become text, and text does not become another type.

INSERT and MERGE also store other types as text, and numbers with a fraction as decimals, where the result is certain.
Spark makes both of Java's text of a number, whose last digits depend on the version of Java: :class:`UncertainValue`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import partial

import numpy as np
import pyarrow as pa

from bitlake.errors import EvaluationFailed, InvalidRequest, NotFound
from bitlake.expressions.casts import cast_typed, scaled
from bitlake.expressions.numeric_functions import NUMBERS
from bitlake.expressions.term_binder import KERNELS, TermBinder, refusal, term_type
from bitlake.expressions.terms import Refused, Term, Typed, columns_in, evaluate_term, mask_of
from bitlake.lazy_modules import compute as pc
from bitlake.types.arrow import arrow_type
from bitlake.types.casts import to_text
from bitlake.types.datatypes import BINARIES, STRINGS, TIMESTAMPS, AtomicType, DataField, DataType, Root
from bitlake.types.time_zone import wall_micros

_FAMILIES = (NUMBERS, STRINGS, BINARIES, frozenset((Root.DATE, *TIMESTAMPS)), frozenset((Root.BOOLEAN,)))


def new_values(
    expressions: Mapping[str, Term], fields: Sequence[DataField], timezone: str
) -> dict[str, Callable[[pa.Table], pa.Array]]:
    """For each column, a function of the old rows that gives its new values.

    Raises :class:`NotFound` for unknown columns and :class:`InvalidRequest` for expressions that are not evaluated.
    """
    binder = TermBinder(fields, timezone)
    made = {}
    for name, term in expressions.items():
        try:
            field = binder.columns.field(name)
        except NotFound as e:
            raise NotFound(f"UPDATE: {e}") from e
        made[name] = _column(field, binder.bind(term), timezone)
    return made


def _column(field: DataField, value: Typed, timezone: str) -> Callable[[pa.Table], pa.Array]:
    kind = _computed_type(field, value.sql)
    if not (value.is_null or _alike(value.root, kind.root)):
        raise InvalidRequest(
            f"UPDATE: column '{field.name}' is {kind} and {value.sql} is {value.type}; write CAST({value.sql} AS …), "
            "or a constant in `values`"
        )
    cast = _cast(value, kind, timezone)
    names = sorted(columns_in(cast))

    def computed(old: pa.Table) -> pa.Array:
        parts = []
        for batch in old.select(names).combine_chunks().to_batches() if names else [None]:
            rows = {} if batch is None else {n: batch.column(i) for i, n in enumerate(names)}
            count = old.num_rows if batch is None else batch.num_rows
            try:
                parts.append(_fitted(evaluate_term(cast, rows, count, KERNELS), kind))
            except EvaluationFailed as e:
                raise EvaluationFailed(f"UPDATE: column '{field.name}': {e}") from e
        return pa.chunked_array(parts, arrow_type(kind))

    return computed


class UncertainValue(EvaluationFailed):
    """A value that Spark may store in another way."""

    def __init__(self, value: float, kind: AtomicType) -> None:
        super().__init__(f"the cast of {value!r} to {'STRING' if kind.root is Root.VARCHAR else kind}")


def store_assignment(field: DataField, source: DataType, timezone: str) -> Callable[[pa.ChunkedArray], pa.ChunkedArray]:
    """A function that converts values of a type to a column's, as Spark's INSERT and MERGE store them.

    Numbers, booleans, days and timestamps also become text.  Raises :class:`InvalidRequest` for types whose conversion
    Spark refuses, or whose result is not certain.  The function raises :class:`EvaluationFailed` for a value that does
    not fit, and :class:`UncertainValue`.

    >>> amount = DataField(0, "amount", AtomicType(Root.DECIMAL, precision=5, scale=1))
    >>> convert = store_assignment(amount, AtomicType(Root.DECIMAL, precision=5, scale=2), "UTC")
    >>> str(convert(pa.chunked_array([pa.array(["1.25"]).cast(pa.decimal128(5, 2))]))[0])
    '1.3'
    """
    shown = f"a value of {source}"
    kind = _computed_type(field, shown)
    value = Typed("column", term_type(source), (), "value", shown)
    if not (_alike(value.root, kind.root) or (kind.root is Root.VARCHAR and isinstance(source, AtomicType))):
        raise refusal(shown, f"it is not stored in column '{field.name}' of type {kind}")
    special = _special(source, kind, timezone)
    cast = None if special is not None else _cast(value, kind, timezone)

    def stored(values: pa.Array) -> pa.Array:
        if cast is not None:
            return evaluate_term(cast, {"value": values}, len(values), KERNELS)
        assert special is not None
        return special(values)

    def convert(values: pa.ChunkedArray) -> pa.ChunkedArray:
        return pa.chunked_array([_fitted(stored(v), kind) for v in values.chunks], arrow_type(kind))

    return convert


# --- conversions by way of Java's text --------------------------------------------------------------------------------

_WHOLE = {Root.FLOAT: 2.0**24, Root.DOUBLE: 2.0**53}
"""Below these every whole number is a value of the type, and Java prints its digits."""
_YEARS = (-62_135_596_800_000_000, 253_402_300_800_000_000)
"""Microseconds of the years 1 to 9999, which Spark prints with four digits."""
_EXACT = Context(prec=1200, rounding=ROUND_HALF_UP)
"""More digits than a DOUBLE has."""


def _special(source: DataType, kind: AtomicType, timezone: str) -> Callable[[pa.Array], pa.Array] | None:
    """Return the conversion of values that are stored, and not cast in conditions; None for other types."""
    if not isinstance(source, AtomicType):
        return None
    if kind.root is Root.VARCHAR:
        if source.root is Root.DECIMAL:
            return partial(to_text, source=source)
        if source.root in _WHOLE:
            return partial(_floating_text, source=source)
        if source.root in TIMESTAMPS:
            return partial(_timestamp_text, source=source, timezone=timezone)
    if kind.root is Root.DECIMAL and source.root in _WHOLE:
        return partial(_decimal, kind=kind)
    return None


def _floating_text(array: pa.Array, source: AtomicType) -> pa.Array:
    values = array.drop_null().to_numpy(zero_copy_only=False)
    with np.errstate(invalid="ignore"):
        certain = ~np.isfinite(values) | ((np.trunc(values) == values) & (np.abs(values) < _WHOLE[source.root]))
    if not certain.all():
        raise UncertainValue(float(values[~certain][0]), AtomicType(Root.VARCHAR))
    return to_text(array, source)


def _timestamp_text(array: pa.Array, source: AtomicType, timezone: str) -> pa.Array:
    """Without zeros at the end of the fraction, as a clock of the zone shows it."""
    array = array.cast(pa.timestamp("us", array.type.tz))
    micros = wall_micros(array, source.root, timezone)
    clocks = pa.array(micros, mask=mask_of(array))
    live = clocks.drop_null().to_numpy()
    if len(live) and not (_YEARS[0] <= live.min() and live.max() < _YEARS[1]):
        raise EvaluationFailed("a timestamp before year 1 or after 9999 is not stored as text")
    texts = pc.strftime(clocks.cast(pa.timestamp("us")), "%Y-%m-%d %H:%M:%S")
    return pc.replace_substring_regex(texts, r"\.?0+$", "")


def _decimal(array: pa.Array, kind: AtomicType) -> pa.Array:
    """The nearest decimals, half up of the decimal text; it decides only what lies between two of them."""
    scale, mask = kind.scale or 0, mask_of(array)
    values = (array.fill_null(0) if array.null_count else array).to_numpy().astype(np.float64)
    if not np.isfinite(values).all():
        raise UncertainValue(float(values[~np.isfinite(values)][0]), kind)
    with np.errstate(over="ignore", invalid="ignore"):
        size = np.abs(values) * 10.0**scale
        near = np.abs(size - np.floor(size) - 0.5) <= 4 * np.spacing(size)
    slow = near | ~(size < 2.0**52)
    whole = np.where(slow, 0, np.copysign(np.floor(np.where(slow, 0, size) + 0.5), values)).astype(np.int64)
    rounded = scaled(whole, pa.decimal128(38, scale), mask)
    if slow.any():
        distinct, places = np.unique(values[slow], return_inverse=True)
        exact = pa.array([_exact_decimal(v, scale, kind) for v in distinct.tolist()], pa.decimal128(38, scale))
        rounded = pc.replace_with_mask(rounded, pa.array(slow), exact.take(pa.array(places.reshape(-1))))
        if mask is not None:
            rounded = pc.if_else(pa.array(mask), pa.scalar(None, rounded.type), rounded)
    return rounded


def _exact_decimal(value: float, scale: int, kind: AtomicType) -> Decimal:
    """The number that all texts of a value round to: one is nearer to it than half the way to the next value."""
    if abs(value) >= 1e38:
        raise EvaluationFailed(f"a value does not fit {kind}")
    unit, exact = Decimal(1).scaleb(-scale), Decimal(value)
    neighbours = [Decimal(math.nextafter(value, to)) for to in (-math.inf, math.inf)]
    ends = [_EXACT.divide(_EXACT.add(exact, other), Decimal(2)) for other in neighbours]
    low, middle, high = (_EXACT.quantize(v, unit) for v in (ends[0], exact, ends[1]))
    if not low == middle == high and Decimal(repr(value)) != exact:
        raise UncertainValue(value, kind)
    if middle.adjusted() >= 38 - scale and middle:
        raise EvaluationFailed(f"a value does not fit {kind}")
    return middle


def _computed_type(field: DataField, sql: str) -> AtomicType:
    kind = field.type
    if not isinstance(kind, AtomicType) or kind.root in (Root.CHAR, Root.TIME, Root.VARIANT, Root.BINARY):
        raise refusal(sql, f"values of column '{field.name}' of type {kind} are not computed")
    return kind


def _alike(source: Root | None, kind: Root) -> bool:
    return any(source in family and kind in family for family in _FAMILIES)


def _cast(value: Typed, kind: AtomicType, timezone: str) -> Typed:
    wanted = term_type(kind)
    assert isinstance(wanted, AtomicType)
    try:
        return cast_typed(value, wanted, timezone)
    except Refused as e:
        raise refusal(value.sql, str(e)) from e


def _fitted(values: pa.Array, kind: AtomicType) -> pa.Array:
    """Values in the column's own Arrow type and length."""
    arrow = arrow_type(kind)
    if kind.length is not None and kind.root in (*STRINGS, *BINARIES) and len(values):
        length = pc.utf8_length(values) if kind.root in STRINGS else pc.binary_length(values)
        longest = pc.max(length).as_py()
        if longest is not None and longest > kind.length:
            raise EvaluationFailed(f"a value of length {longest} does not fit {kind}")
    if values.type == arrow:
        return values
    if pa.types.is_timestamp(arrow) and arrow.unit == "ms":
        raw = values.view(pa.int64())
        return pc.floor_temporal(raw.view(pa.timestamp("us")), unit="millisecond").cast(pa.timestamp("ms")).cast(arrow)
    try:
        return values.cast(arrow)
    except pa.ArrowInvalid as e:
        raise EvaluationFailed(f"a value does not fit {kind}") from e
