"""Arrow's compute expressions → bound predicates, for planning with indexes.

``pyarrow.compute.Expression`` has no public members.  It pickles itself as an Arrow IPC file, which C++ writes and
reads (``arrow::compute::Serialize``, cpp/src/arrow/compute/expression.cc): one record batch of one row, whose columns
are the literals and the options of calls, each of its own Arrow type, and whose schema's metadata is the tree, entry
after entry in order::

    literal: <column>                          a literal: the value of that column
    field_ref: <name>                          a column
    nested_field_ref: <n>, n × field_ref       a member of a struct
    call: <function> … [options: <column>] end: <function>      a call, its arguments between

Metadata keys repeat, and pyarrow's dictionaries would keep one of each: they are read from the C data interface, where
metadata is ``int32 n``, then for each pair ``int32 length``, key, ``int32 length``, value, in native byte order.

A comparison in Arrow does not always mean what it means in Spark SQL: NaN compares with nothing, and NULL handling of
sets has four forms.  :func:`implied` therefore gives a predicate that is TRUE for every row for which the expression is
TRUE, and whether the reverse holds as well.
"""

from __future__ import annotations

import ctypes
import math
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import pyarrow as pa

from bitlake.errors import BitlakeError, EvaluationFailed, InvalidRequest, NotFound
from bitlake.expressions.binder import all_of, any_of, bind
from bitlake.expressions.tree import FALSE, TRUE, Comparison, Computed, In, IsNull, Like, Op, Predicate, like_literal
from bitlake.types.arrow import arrow_schema, arrow_type
from bitlake.types.datatypes import FLOATS, AtomicType, DataField, Root, is_scalar

_MATCH, _SKIP, _EMIT_NULL, _INCONCLUSIVE = range(4)
"""What ``is_in`` answers for NULL (``arrow::compute::SetLookupOptions::NullMatchingBehavior``)."""
_COMPARISONS = {
    "equal": Op.EQ,
    "not_equal": Op.NE,
    "less": Op.LT,
    "less_equal": Op.LE,
    "greater": Op.GT,
    "greater_equal": Op.GE,
}
_NAN = float("nan")


@dataclass(frozen=True, slots=True)
class Field:
    """A column, or a member of one: the names from the outermost."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Literal:
    """An Arrow constant."""

    value: pa.Scalar


@dataclass(frozen=True, slots=True)
class Call:
    """A function call; ``options`` by name."""

    function: str
    arguments: tuple[Node, ...]
    options: dict[str, Any]


Node: TypeAlias = Field | Literal | Call


def decode(expression: Any) -> Node:
    """Read the tree of a ``pyarrow.compute.Expression``.

    Raises :class:`InvalidRequest` where this Arrow version writes expressions in another form.
    """
    try:
        with pa.ipc.open_file(expression.__reduce__()[1][0]) as file:
            batch = file.get_batch(0)
        return _node(iter(_metadata(batch.schema)), batch)
    except (pa.ArrowException, AttributeError, IndexError, KeyError, ValueError, StopIteration) as e:
        raise InvalidRequest(f"cannot read the Arrow expression {expression}; write the condition as SQL text") from e


def columns_of(node: Node) -> frozenset[str]:
    """The columns that an expression reads, as it names them."""
    match node:
        case Field(path):
            return frozenset(path[:1])
        case Call(_, arguments):
            return frozenset().union(*(columns_of(a) for a in arguments))
    return frozenset()


def implied(node: Node, fields: Sequence[DataField], timezone: str = "UTC") -> tuple[Predicate, bool]:
    """A bound predicate that is TRUE wherever an expression is TRUE, and whether both are TRUE for the same rows.

    ``fields`` are the columns whose names the expression uses.  What has no form as a predicate is left out: TRUE, not
    exact.
    """
    return _Translator(fields, timezone).translate(node, False)


def bind_expression(expression: Any, fields: Sequence[DataField], timezone: str = "UTC") -> Predicate:
    """The bound predicate of an expression that a user wrote as a condition: TRUE for the rows Arrow selects.

    What prunes is joined with the expression itself, which Arrow evaluates, unless both are the same.
    Raises :class:`NotFound` for an unknown column.
    """
    tree = decode(expression)
    names = columns_of(tree)
    known = {f.name for f in fields}
    for name in sorted(names - known):
        bind(IsNull(name), fields, timezone)  # raises an error with near names
        raise NotFound(f"no column '{name}': Arrow's expressions name columns by case")
    predicate, exact = implied(tree, fields, timezone)
    return predicate if exact else all_of([predicate, Computed(ArrowTest(pickle.dumps(expression), names))])


@dataclass(frozen=True, slots=True)
class ArrowTest:
    """An expression that Arrow evaluates over rows, pickled, since Arrow's expressions cannot be compared."""

    pickled: bytes
    columns: frozenset[str]

    def __str__(self) -> str:
        return f"arrow{pickle.loads(self.pickled)}"

    def bound(self, fields: Sequence[DataField], timezone: str, negated: bool) -> Predicate:
        """The test itself, whose columns are the schema's own already."""
        return Computed(self, negated)

    def mask(self, table: pa.Table, fields: Sequence[DataField]) -> pa.BooleanArray:
        """TRUE, FALSE or NULL for each row."""
        from pyarrow import dataset  # slow to import, and rarely needed

        plain = retyped_columns(table, fields)
        try:
            masked = dataset.dataset(plain).to_table(columns={"mask": pickle.loads(self.pickled)})
        except pa.ArrowException as e:
            raise EvaluationFailed(f"Arrow cannot evaluate {self}: {e}") from e
        if not pa.types.is_boolean(masked.column(0).type):
            raise InvalidRequest(f"{self} is not a condition: its values are of type {masked.column(0).type}")
        return pa.concat_arrays(masked.column(0).chunks) if table.num_rows else pa.array([], pa.bool_())

    def sql(self) -> str | None:
        """None: Arrow's functions have no SQL of the same meaning."""
        return None


def retyped_columns(table: pa.Table, fields: Sequence[DataField]) -> pa.Table:
    """The columns of fields in the fields' own Arrow types: without dictionaries, which few functions take."""
    names = [f.name for f in fields]
    return table.select(names).cast(arrow_schema(replace(f, type=replace(f.type, nullable=True)) for f in fields))


def _fills(constant: Any, length: int | None) -> bool:
    """Whether text compares with a CHAR column of this length alike with its padding and without.

    SQL ignores blanks at the end, by which a longer text is larger in Arrow.
    """
    size = length or 1
    return isinstance(constant, str) and len(constant) >= size and not constant[size:].endswith(" ")


class _Translator:
    """Translates an expression, or its negation: a predicate TRUE wherever the expression is TRUE, or FALSE."""

    def __init__(self, fields: Sequence[DataField], timezone: str) -> None:
        self.fields = {f.name: f for f in fields}
        self.timezone = timezone

    def translate(self, node: Node, negated: bool) -> tuple[Predicate, bool]:
        match node:
            case Literal(value):
                return (TRUE if value.is_valid and bool(value.as_py()) != negated else FALSE), True
            case Field():
                return self._leaf(self._field(node), lambda name: Comparison(name, Op.EQ, not negated), pa.bool_())
            case Call("invert", (inner,)):
                return self.translate(inner, not negated)
            case Call("and_kleene" | "and" | "or_kleene" | "or" as name, (left, right)):
                # Without Kleene's logic, NULL beside FALSE or TRUE gives NULL: fewer rows.
                strict = "kleene" not in name and (negated == name.startswith("and"))
                join = all_of if name.startswith("and") != negated else any_of
                return self._join(join, [self.translate(left, negated), self.translate(right, negated)], not strict)
            case Call("if_else", (test, then, other)):
                yes = [self.translate(test, False), self.translate(then, negated)]
                no = [self.translate(test, True), self.translate(other, negated)]
                return self._join(any_of, [self._join(all_of, yes), self._join(all_of, no)])
            case Call("is_null" | "is_valid" as name, (Field() as field,), options):
                return self._null_test(field, (name == "is_valid") != negated, _true(options.get("nan_is_null")))
            case Call("is_nan", (Field() as field,)):
                column = self._field(field)
                nan = Op.NE if negated else Op.EQ
                return self._leaf(column, lambda n: Comparison(n, nan, _NAN), _float_type(column))
            case Call("is_in", (Field() as field,), options):
                return self._membership(field, options, negated)
            case Call(name, (left, right)) if name in _COMPARISONS:
                return self._comparison(_COMPARISONS[name], left, right, negated)
            case Call("starts_with" | "ends_with" | "match_substring" as name, (Field() as field,), options):
                return self._affix(name, field, options, negated)
        return TRUE, False

    def _join(
        self, join: Callable[[list[Predicate]], Predicate], parts: list[tuple[Predicate, bool]], exact: bool = True
    ) -> tuple[Predicate, bool]:
        return join([p for p, _ in parts]), exact and all(e for _, e in parts)

    def _field(self, field: Field, constants: Sequence[Any] = ()) -> DataField | None:
        """The atomic column of a reference; None for a member of a struct and other types.

        Arrow compares CHAR with its padding, SQL without: it takes constants that need none.
        """
        column = self.fields.get(field.path[0]) if len(field.path) == 1 else None
        kind = None if column is None else column.type
        if kind is None or not is_scalar(kind):
            return None
        padded = kind.root is Root.CHAR and not (constants and all(_fills(c, kind.length) for c in constants))
        return None if padded else column

    def _leaf(
        self, found: DataField | None, make: Callable[[str], Predicate], kind: pa.DataType | None, exact: bool = True
    ) -> tuple[Predicate, bool]:
        """A leaf on a column whose values compare with ``kind`` in Arrow as they do in SQL."""
        if found is None or kind is None or not _alike(found.type, kind):
            return TRUE, False
        try:
            return bind(make(found.name), [found], self.timezone), exact
        except BitlakeError:
            return TRUE, False  # such as a literal out of the calendar

    def _null_test(self, field: Field, negated: bool, nan_is_null: bool) -> tuple[Predicate, bool]:
        column = self.fields.get(field.path[0]) if len(field.path) == 1 else None
        if column is None:
            return TRUE, False
        null = IsNull(column.name, negated)
        if not nan_is_null or _float_type(column) is None:
            return null, True
        nan = bind(Comparison(column.name, Op.NE if negated else Op.EQ, _NAN), [column], self.timezone)
        return (all_of if negated else any_of)([null, nan]), True

    def _comparison(self, op: Op, left: Node, right: Node, negated: bool) -> tuple[Predicate, bool]:
        left, right = _folded(left), _folded(right)
        if isinstance(left, Literal):
            op, left, right = op.swapped, right, left
        if not isinstance(left, Field) or not isinstance(right, Literal):
            return TRUE, False
        if not right.value.is_valid:
            return FALSE, True  # NULL for every row
        value = _python(right.value)
        column = self._field(left, [value])
        if value is None or column is None or (isinstance(value, float) and math.isnan(value)):
            return TRUE, False
        if _float_type(column) is None:
            return self._leaf(column, lambda n: Comparison(n, op.negated if negated else op, value), right.value.type)
        # Arrow: NaN compares with nothing, so it is <> everything.  SQL: it is the largest number.
        leaf, exact = self._leaf(
            column, lambda n: Comparison(n, op.negated if negated else op, value), right.value.type
        )
        if negated and op in (Op.GT, Op.GE):
            nan, _ = self._leaf(column, lambda n: Comparison(n, Op.EQ, _NAN), right.value.type)
            return any_of([leaf, nan]), exact
        return leaf, exact and not (op in (Op.GT, Op.GE) and not negated)

    def _membership(self, field: Field, options: dict[str, Any], negated: bool) -> tuple[Predicate, bool]:
        members = options["value_set"]
        behaviour = options["null_matching_behavior"].as_py()
        if not members.is_valid:
            return TRUE, False
        values = members.values
        known = _python_values(values.drop_null())
        column = self._field(field, known or ())
        if column is None or known is None or any(isinstance(v, float) and math.isnan(v) for v in known):
            return TRUE, False
        if negated and _float_type(column) is not None:
            known = [v for v in known if v]  # zeros of both signs are two values in Arrow's sets
        has_null = values.null_count > 0
        # Zeros of both signs are one value in SQL, and two in Arrow's sets.
        exact = _float_type(column) is None
        if not known:
            leaf: Predicate = IsNull(column.name, True) if negated else FALSE
        else:
            leaf, exact = self._leaf(column, lambda n: In(n, tuple(known), negated), values.type, exact)
        if negated and has_null and behaviour == _INCONCLUSIVE:
            return FALSE, True
        if behaviour in (_MATCH, _SKIP):
            matches_null = has_null and behaviour == _MATCH
            if matches_null != negated:
                return any_of([leaf, IsNull(column.name)]), exact
        return leaf, exact

    def _affix(self, function: str, field: Field, options: dict[str, Any], negated: bool) -> tuple[Predicate, bool]:
        text = options["pattern"].as_py()
        if options["ignore_case"].as_py() or isinstance(text, bytes):
            return TRUE, False
        before = "" if function == "starts_with" else "%"
        after = "" if function == "ends_with" else "%"
        pattern = before + like_literal(text) + after
        return self._leaf(self._field(field), lambda n: Like(n, pattern, negated), pa.string())


def _metadata(schema: pa.Schema) -> list[tuple[str, str]]:
    """The pairs of a schema's metadata in order, repeated keys included."""
    capsule = schema.__arrow_c_schema__()
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    start = pointer_of(capsule, b"arrow_schema")
    # struct ArrowSchema { const char* format; const char* name; const char* metadata; … }
    address = ctypes.cast(start, ctypes.POINTER(ctypes.c_void_p))[2]
    if address is None:
        raise ValueError("an expression without a tree")

    def number() -> int:
        nonlocal address
        assert address is not None
        value = ctypes.c_int32.from_address(address).value
        address += 4
        return value

    def text() -> str:
        nonlocal address
        assert address is not None
        size = number()
        value = ctypes.string_at(address, size).decode()
        address += size
        return value

    return [(text(), text()) for _ in range(number())]


def _node(entries: Iterator[tuple[str, str]], batch: pa.RecordBatch) -> Node:
    key, value = next(entries)
    return _known(key, value, entries, batch)


def _known(key: str, value: str, entries: Iterator[tuple[str, str]], batch: pa.RecordBatch) -> Node:
    match key:
        case "literal":
            return Literal(batch.column(int(value))[0])
        case "field_ref":
            return Field((value,))
        case "nested_field_ref":
            return Field(tuple(next(entries)[1] for _ in range(int(value))))
        case "call":
            arguments: list[Node] = []
            options: dict[str, Any] = {}
            for inner, name in entries:
                if inner == "end":
                    return Call(value, tuple(arguments), options)
                if inner == "options":
                    options = dict(batch.column(int(name))[0])
                else:
                    arguments.append(_known(inner, name, entries, batch))
    raise ValueError(f"unknown entry '{key}'")


def _folded(node: Node) -> Node:
    """A cast of a literal as the literal it makes."""
    match node:
        case Call("cast", (Literal(value),), options) if "to_type" in options:
            try:
                return Literal(value.cast(options["to_type"].type))
            except pa.ArrowException:
                return node
    return node


def _float_type(field: DataField | None) -> pa.DataType | None:
    """The Arrow type of a FLOAT or DOUBLE column; None for others."""
    if field is None or not isinstance(field.type, AtomicType) or field.type.root not in FLOATS:
        return None
    return arrow_type(field.type)


def _alike(kind: Any, literal: pa.DataType) -> bool:
    """Whether Arrow compares a column with literals of this type as SQL compares them."""
    column, t = arrow_type(kind), pa.types
    if column == literal:
        return True
    if t.is_integer(column) or t.is_decimal(column):
        exact = bool(t.is_integer(literal) or (t.is_decimal(column) and t.is_decimal(literal)))
        # Arrow compares an integer with a double in doubles, as Spark does; with a float, in floats.
        return exact or bool(t.is_integer(column) and t.is_float64(literal))
    if t.is_floating(column):
        return bool(t.is_integer(literal) or t.is_float64(literal) or t.is_float32(literal))
    if t.is_string(column):
        return bool(t.is_string(literal) or t.is_large_string(literal) or t.is_string_view(literal))
    if t.is_binary(column):
        return bool(t.is_binary(literal) or t.is_large_binary(literal) or t.is_binary_view(literal))
    if t.is_timestamp(column) and t.is_timestamp(literal):
        return bool((column.tz is None) == (literal.tz is None))
    return False


def _true(option: pa.Scalar | None) -> bool:
    return option is not None and bool(option.as_py())


def _python(value: pa.Scalar) -> Any:
    """A literal as Python has it; None where Python cannot hold it exactly."""
    values = _python_values(pa.repeat(value, 1))
    return None if values is None else values[0]


def _python_values(values: pa.Array) -> list[Any] | None:
    """Literals as Python has them; None where Python cannot hold one exactly."""
    kind = values.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        try:
            values = values.cast(pa.timestamp("us", kind.tz))
        except pa.ArrowInvalid:
            return None  # Python's clocks end at microseconds
    if pa.types.is_dictionary(kind):
        values = values.dictionary_decode()
    try:
        members: list[Any] = values.to_pylist()
    except (OverflowError, ValueError):
        return None
    return members
