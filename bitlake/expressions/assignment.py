"""Values that become a column's: of SQL expressions (``UPDATE … SET amount = amount * 2``) and of a query's columns.

A value is converted to the column's type as Spark stores it (its ANSI store assignment): between numbers, and between
dates and timestamps, with an error for a value that does not fit; a DECIMAL is rounded half up.  An expression of
another type does not become text, and text does not become another type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from bitlake.errors import EvaluationFailed, InvalidRequest, NotFound
from bitlake.expressions.casts import cast_typed
from bitlake.expressions.numeric_functions import NUMBERS
from bitlake.expressions.term_binder import KERNELS, TermBinder, refusal, term_type
from bitlake.expressions.terms import Refused, Term, Typed, columns_in, evaluate_term
from bitlake.lazy_modules import compute as pc
from bitlake.types.arrow import arrow_type
from bitlake.types.datatypes import BINARIES, STRINGS, TIMESTAMPS, AtomicType, DataField, DataType, Root

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
                parts.append(_fitted(evaluate_term(cast, rows, count, KERNELS), field, kind))
            except EvaluationFailed as e:
                raise EvaluationFailed(f"UPDATE: column '{field.name}': {e}") from e
        return pa.chunked_array(parts, arrow_type(kind))

    return computed


def store_assignment(field: DataField, source: DataType, timezone: str) -> Callable[[pa.ChunkedArray], pa.ChunkedArray]:
    """A function that converts values of a type to a column's, as Spark's INSERT and MERGE store them.

    Whole numbers, booleans and days also become text.  Raises :class:`InvalidRequest` for types whose conversion Spark
    refuses, or whose result is not certain.  The function raises :class:`EvaluationFailed` for a value that does not
    fit.

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
    cast = _cast(value, kind, timezone)

    def convert(values: pa.ChunkedArray) -> pa.ChunkedArray:
        parts = [_fitted(evaluate_term(cast, {"value": v}, len(v), KERNELS), field, kind) for v in values.chunks]
        return pa.chunked_array(parts, arrow_type(kind))

    return convert


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


def _fitted(values: pa.Array, field: DataField, kind: AtomicType) -> pa.Array:
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
