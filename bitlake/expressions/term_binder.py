"""Bind terms to a schema: columns found, functions chosen, implicit casts written out; and tests of terms.

Two kinds of unbound tests come from conditions: a term compared with constants (:class:`TermTest`), which is compared
as a column would be (:mod:`bitlake.expressions.literal_comparison`), and a term that is TRUE or FALSE itself, as two
terms compared are (:class:`BooleanTest`).  Bound, both are :class:`RowsTest`.  A TermTest also gives the comparisons of
its column that it implies, if these are certain: metadata prunes by them.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from bitlake.errors import InvalidRequest, NotFound
from bitlake.expressions.casts import CAST, cast_typed
from bitlake.expressions.evaluate import evaluate, is_in
from bitlake.expressions.functions import ARRAY_FUNCTIONS, SHIFT, TEXT_FUNCTIONS, TIME_FUNCTIONS, shift_typed
from bitlake.expressions.json_path import JSON_FUNCTIONS
from bitlake.expressions.literal_comparison import bound_leaf, implied_comparisons
from bitlake.expressions.numeric_functions import (
    GREATEST,
    LEAST,
    NULL_SAFE,
    NUMBERS,
    NUMERIC_FUNCTIONS,
    common_number,
    comparison_kernel,
)
from bitlake.expressions.sql_text import name as column_sql
from bitlake.expressions.sql_text import python_literal, quote, sql_type, to_sql
from bitlake.expressions.terms import (
    BINARY,
    BOOLEAN,
    DATE,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Bound,
    CallTerm,
    CastTerm,
    ColumnTerm,
    Function,
    IntervalTerm,
    Kernel,
    LiteralTerm,
    Refused,
    Term,
    Typed,
    columns_in,
    evaluate_term,
    literal_type,
    names_in,
)
from bitlake.expressions.text_functions import TEXT_TESTS, TOKEN_LISTS
from bitlake.expressions.tree import And, Comparison, Computed, Constant, IsNull, Leaf, MapKey, Op, Or, Predicate
from bitlake.lazy_modules import compute as pc
from bitlake.types.datatypes import INTEGERS, TIMESTAMPS, AtomicType, DataField, DataType, MapType, Root, RowType

if TYPE_CHECKING:
    from bitlake.expressions.literal_lists import LiteralList  # brings sqlglot, which only SQL text needs


class Columns:
    """A schema's columns by name."""

    def __init__(self, fields: Sequence[DataField]) -> None:
        self.fields = fields
        self.exact = {f.name: f for f in fields}
        self.lower: dict[str, list[DataField]] = {}
        for f in fields:
            self.lower.setdefault(f.name.lower(), []).append(f)

    def member(self, name: str) -> list[DataField]:
        """The struct column and the members that a dotted name leads to; empty if it names a column, or nothing.

        Raises :class:`NotFound` for a struct without such a member.
        """
        if "." not in name or self._find(name) is not None:
            return []
        parts = name.split(".")
        for start in range(len(parts) - 1):
            root = self._find(parts[start])
            if root is None or not isinstance(root.type, RowType):
                continue
            path = [root]
            for part in parts[start + 1 :]:
                inner = path[-1].type
                if not isinstance(inner, RowType):
                    raise NotFound(f"'{name}': '{path[-1].name}' of type {inner} has no members")
                path.append(Columns(inner.fields).field(part))
            return path
        return []

    def map_value(self, leaf: MapKey) -> DataField:
        """The values of a map's key, as a column."""
        field = self.field(leaf.column)
        made = map_of_texts(f"column '{field.name}'", field.type)
        bound = MapKey(field.name, leaf.key)
        if bound in self.exact:
            raise InvalidRequest(f"'{bound}' is also the name of a column; it cannot name the value of a map's key")
        return replace(field, name=bound, type=replace(made.value, nullable=True))

    def field(self, name: str) -> DataField:
        """The column of a name; a dotted one may be a column, a struct's member or qualified by its table."""
        found = self._find(name)
        if found is not None:
            return found
        first, dot, rest = name.partition(".")
        if dot:
            root = self._find(first)
            if root is not None and isinstance(root.type, RowType):
                raise InvalidRequest(f"'{name}' is a member of a struct, and not a column")
            last = name.rpartition(".")[2]
            found = self._find(rest) or self._find(last)
            if found is not None:
                return found
        near = difflib.get_close_matches(name.lower(), list(self.lower), 3, 0.6)
        names = [self.lower[n][0].name for n in near] or [f.name for f in self.fields[:_MOST_LISTED]]
        listed = ", ".join(map(repr, names)) + (" …" if not near and len(self.fields) > _MOST_LISTED else "")
        raise NotFound(f"no column '{name}'; " + (f"did you mean {listed}?" if near else f"there are {listed}"))

    def _find(self, name: str) -> DataField | None:
        if name in self.exact:
            return self.exact[name]
        same = self.lower.get(name.lower(), [])
        if len(same) > 1:
            raise InvalidRequest(f"column '{name}' is ambiguous: {', '.join(f.name for f in same)}")
        return same[0] if same else None


_MOST_LISTED = 10
"""Maximum number of columns that an error lists, where none has a similar name."""


def map_of_texts(what: str, made: DataType) -> MapType:
    """The type, which is that of a map with STRING keys; raises :class:`InvalidRequest` for another."""
    if not isinstance(made, MapType) or not isinstance(made.key, AtomicType) or made.key.root is not Root.VARCHAR:
        raise InvalidRequest(f"{what} of type {made} is not a map with STRING keys")
    return made


VALUE = "value"
"""The column of a leaf that is about a term's value."""
REMEDY = "filter it in SQL (lake.sql, which runs on Spark) or after the scan"


def refusal(sql: str, why: str) -> InvalidRequest:
    """The error for an expression that a scan does not evaluate."""
    return InvalidRequest(f"a scan cannot evaluate '{sql}' ({why}); {REMEDY}")


# --- tests ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TermTest:
    """An unbound test of one term against constants: ``leaf`` is about the column :data:`VALUE`."""

    term: Term
    leaf: Leaf

    @property
    def columns(self) -> frozenset[str]:
        """The columns as written."""
        return names_in(self.term)

    def bound(self, fields: Sequence[DataField], timezone: str, negated: bool) -> Predicate:
        """The test over typed terms, and the comparisons of columns that it implies."""
        term = TermBinder(fields, timezone).bind(self.term)
        if isinstance(self.leaf, IsNull):
            return _is_null(term, self.leaf.negated != negated)
        if term.is_null:
            return Constant(False)
        if term.root is Root.CHAR:
            raise refusal(term.sql, "CHAR values are padded")
        return _bound_test(term, self.leaf, fields, timezone, negated)

    def mask(self, table: pa.Table, fields: Sequence[DataField]) -> pa.BooleanArray:
        """Only a bound test is evaluated."""
        raise InvalidRequest(f"the predicate is not bound: {self}")

    def sql(self) -> str | None:
        """The test as Spark SQL."""
        return to_sql(self.leaf, names={VALUE: _operand(_printed(self.term))})


@dataclass(frozen=True, slots=True)
class BooleanTest:
    """An unbound test that a term, such as two columns compared, is TRUE."""

    term: Term

    @property
    def columns(self) -> frozenset[str]:
        """The columns as written."""
        return names_in(self.term)

    def bound(self, fields: Sequence[DataField], timezone: str, negated: bool) -> Predicate:
        """The test over a typed term."""
        term = TermBinder(fields, timezone).bind(self.term)
        if term.is_null:
            return Constant(False)
        if term.root is not Root.BOOLEAN:
            raise refusal(term.sql, f"it is {term.type}, and not a condition")
        if not columns_in(term):
            truth = RowsTest(term, None).of_constants()
            return Constant(truth is not None and truth != negated)
        compared = _compared_with_constant(term)
        if compared is not None:
            return _bound_test(*compared, fields, timezone, negated)
        return Computed(RowsTest(term, None), negated)

    def mask(self, table: pa.Table, fields: Sequence[DataField]) -> pa.BooleanArray:
        """Only a bound test is evaluated."""
        raise InvalidRequest(f"the predicate is not bound: {self}")

    def sql(self) -> str | None:
        """The test as Spark SQL."""
        term = _printed(self.term)
        return f"({term.sql})" if term.function in ("and", "or") else term.sql


@dataclass(frozen=True, slots=True)
class RowsTest:
    """A bound test: what ``leaf`` (over the column :data:`VALUE`) says of a term's values, or a BOOLEAN term itself."""

    term: Typed
    leaf: Predicate | None

    @property
    def columns(self) -> frozenset[str]:
        """The table's columns that are read."""
        return columns_in(self.term)

    def bound(self, fields: Sequence[DataField], timezone: str, negated: bool) -> Predicate:
        """It is bound already."""
        return Computed(self, negated)

    def mask(self, table: pa.Table, fields: Sequence[DataField]) -> pa.BooleanArray:
        """TRUE, FALSE or NULL for each row."""
        masks = []
        for batch in table.combine_chunks().to_batches():
            rows = {name: batch.column(i) for i, name in enumerate(batch.schema.names)}
            masks.append(self._mask(evaluate_term(self.term, rows, batch.num_rows, KERNELS)))
        return pa.concat_arrays(masks) if masks else pa.array([], pa.bool_())

    def of_constants(self) -> bool | None:
        """The truth of a test without columns."""
        truth: bool | None = self._mask(evaluate_term(self.term, {}, 1, KERNELS))[0].as_py()
        return truth

    def _mask(self, values: pa.Array) -> pa.BooleanArray:
        if self.leaf is None:
            return values
        return evaluate(self.leaf, pa.table([values], [VALUE]), [DataField(0, VALUE, self.term.type)])

    def sql(self) -> str | None:
        """The test as Spark SQL."""
        if self.leaf is None:
            return f"({self.term.sql})" if self.term.function in ("and", "or") else self.term.sql
        text = to_sql(self.leaf, [DataField(0, VALUE, self.term.type)], names={VALUE: _operand(self.term)})
        return f"({text})" if isinstance(self.leaf, And | Or) else text


def _bound_test(term: Typed, leaf: Leaf, fields: Sequence[DataField], timezone: str, negated: bool) -> Predicate:
    """A test of a term against constants, and the comparisons of columns that it implies."""
    field = DataField(0, VALUE, term.type)
    try:
        bound = bound_leaf(leaf, field, negated, timezone)
    except InvalidRequest as e:
        raise InvalidRequest(str(e).replace(f"column '{VALUE}'", f"'{term.sql}'")) from e
    if isinstance(bound, Constant) and term.function in ("member", "map value"):
        return bound  # other terms may fail, whatever is asked of them
    test = _test(term, bound)
    implied = implied_comparisons(term, bound, fields) if columns_in(term) else ()
    return And((*implied, test)) if implied else test


_COMPARED = frozenset({"=", "<", "<=", ">", ">="})


def _compared_with_constant(term: Typed) -> tuple[Typed, Leaf] | None:
    """A comparison as a test of one side, if the other has no column: ``lower(s) = lower('X')`` is ``lower(s) = 'x'``.

    Of texts and integers; None for another term, and for a constant that fails or is NULL.
    """
    if term.function not in _COMPARED:
        return None
    op, (tested, other) = Op(term.function), term.arguments
    if not columns_in(tested):
        op, tested, other = op.swapped, other, tested
    if columns_in(other) or tested.type != other.type or tested.root not in (Root.VARCHAR, *INTEGERS):
        return None
    try:
        value = evaluate_term(other, {}, 1, KERNELS)[0].as_py()
    except InvalidRequest:
        return None  # it fails for each row that is tested, if there is one
    return None if value is None else (tested, Comparison(VALUE, op, value))


def _is_null(term: Typed, negated: bool) -> Predicate:
    if term.function in _NEVER_NULL:
        return Constant(negated)
    if term.is_literal:
        return Constant(term.is_null != negated)
    return _test(term, IsNull(VALUE, negated))


def _test(term: Typed, leaf: Predicate) -> Predicate:
    """The test of each row, or its truth if the term has no column."""
    test = RowsTest(term, leaf)
    return Computed(test) if columns_in(term) else Constant(test.of_constants() is True)


# --- terms ------------------------------------------------------------------------------------------------------------


class TermBinder:
    """Binds the terms of one condition to a schema."""

    def __init__(self, fields: Sequence[DataField], timezone: str) -> None:
        self.columns = Columns(fields)
        self.zone = timezone

    def bind(self, term: Term) -> Typed:
        """The typed term; raises :class:`InvalidRequest` for one that a scan does not evaluate exactly."""
        match term:
            case ColumnTerm(name):
                return self._column(name)
            case LiteralTerm(value, kind, is_literal):
                return Typed("literal" if is_literal else "folded", kind or STRING, (), value, _literal_sql(term))
            case IntervalTerm():
                raise refusal(term.sql, "an interval can only be added to a date or timestamp")
            case CastTerm(inner, to):
                bound = self.bind(inner)
                return self._certain(
                    f"CAST({bound.sql} AS {sql_type(to)})", lambda: cast_typed(bound, to, self.zone, True)
                )
            case CallTerm(function, (of, IntervalTerm() as interval)) if function in ("+", "-"):
                bound = self.bind(of)
                sign = 1 if function == "+" else -1
                sql = f"({bound.sql} {function} {interval.sql})"
                if bound.is_null:
                    return bound
                months, micros = sign * interval.months, sign * interval.micros
                return self._certain(sql, lambda: shift_typed(bound, months, micros, self.zone, sql))
            case CallTerm("in", (value, LiteralTerm(values))):
                return self._in(value, values)
            case CallTerm(function, arguments):
                return self._call(function, [self.bind(a) for a in arguments])
        raise AssertionError(term)

    def _in(self, value: Term, values: LiteralList) -> Typed:
        """``IN`` with a long list, at once where a value and the literals need no casts."""
        bound = self.bind(value)
        if bound.is_literal or bound.root not in (INTEGERS if isinstance(values.values[0], int) else (Root.VARCHAR,)):
            each = (CallTerm("=", (value, LiteralTerm(v, literal_type(v)))) for v in values.values)
            return self.bind(CallTerm("or", tuple(each)))
        return Typed("in", BOOLEAN, (bound,), values, f"{bound.sql} IN ('{values}')")

    def _column(self, name: str) -> Typed:
        if isinstance(name, MapKey) and self.columns.member(name.column):
            source = self._column(name.column)
            kind = map_of_texts(f"'{source.sql}'", source.type).value
            sql = f"{source.sql}[{quote(name.key)}]"
            return Typed("map value", term_type(replace(kind, nullable=True)), (source,), name.key, sql)
        if isinstance(name, MapKey):
            value = self.columns.map_value(name)
            column = self.columns.field(name.column)
            source = Typed("column", column.type, (), column.name, column_sql(column.name))
            return Typed("map value", term_type(value.type), (source,), name.key, column_sql(value.name))
        path = self.columns.member(name)
        if not path:
            field = self.columns.field(name)
            return Typed("column", term_type(field.type), (), field.name, column_sql(field.name))
        term = Typed("column", path[0].type, (), path[0].name, column_sql(path[0].name))
        for member in path[1:]:
            sql = f"{term.sql}.{column_sql(member.name)}"
            term = Typed("member", term_type(member.type), (term,), member.name, sql)
        return term

    def _call(self, function: str, arguments: list[Typed]) -> Typed:
        sql = call_sql(function, arguments)
        if function in _SPECIAL:
            return self._certain(sql, lambda: self._special(function, arguments, sql))
        if function not in FUNCTIONS:
            near = difflib.get_close_matches(function, NAMES, 3, 0.6)
            hint = f"; did you mean {', '.join(near)}?" if near else ""
            raise refusal(sql, f"it has no function '{function}'{hint}")
        if any(a.is_null for a in arguments) and function not in ("isnan", "hash"):
            return Typed("literal", STRING, (), None, "NULL")

        def bound() -> Typed:
            kernel = function
            if function in ("+", "-") and arguments[0].root is Root.DATE:
                kernel = "date_add" if function == "+" else "date_sub"
            cast, kind, parameter = FUNCTIONS[kernel].bind(arguments, self.zone)
            return Typed(kernel, kind, tuple(cast), parameter, sql)

        return self._certain(sql, bound)

    def _special(self, function: str, arguments: list[Typed], sql: str) -> Typed:
        """Operators and functions whose NULLs or types follow rules of their own."""
        match function:
            case "is null" | "is not null":
                (tested,) = arguments
                if tested.function in _NEVER_NULL:
                    return Typed("folded", BOOLEAN, (), function == "is not null", sql)
                return Typed(function, BOOLEAN, (tested,), None, sql)
            case "and" | "or" | "not":
                return Typed(function, BOOLEAN, tuple(map(self._condition, arguments)), None, sql)
            case "if":
                return self._special("case", arguments, sql)
            case "nvl2":
                tested, present, missing = arguments
                return self._special("case", [self._special("is not null", [tested], sql), present, missing], sql)
            case "nullif":
                first, second = arguments
                null = Typed("literal", STRING, (), None, "NULL")
                return self._special("case", [self._special("=", [first, second], sql), null, first], sql)
            case "case":
                kind = self._common([*arguments[1::2], arguments[-1]])
                values = [
                    self._condition(a) if i % 2 == 0 and i + 1 < len(arguments) else cast_typed(a, kind, self.zone)
                    for i, a in enumerate(arguments)
                ]
                return Typed("case", kind, tuple(values), None, sql)
            case "coalesce" | "greatest" | "least":
                kind = self._common(arguments)
                return Typed(function, kind, tuple(cast_typed(a, kind, self.zone) for a in arguments), None, sql)
        a, b = self._comparable(*arguments)
        if function != "<=>" and (a.is_null or b.is_null):
            return Typed("literal", BOOLEAN, (), None, "NULL")
        return Typed(function, BOOLEAN, (a, b), None, sql)

    def _condition(self, term: Typed) -> Typed:
        if term.is_null:
            return Typed("literal", BOOLEAN, (), None, "NULL")
        if term.root is not Root.BOOLEAN:
            raise Refused(f"{term.sql} is {term.type}, and not a condition")
        return term

    def _comparable(self, a: Typed, b: Typed) -> tuple[Typed, Typed]:
        """Two operands of a comparison in the type in which Spark compares them."""
        for one, other in ((a, b), (b, a)):
            # A text literal beside a date or timestamp is read as one.
            if one.is_literal and one.root is Root.VARCHAR and other.root is Root.DATE:
                one = cast_typed(one, DATE, self.zone)
                return (one, other) if other is b else (other, one)
        kind = self._common([a, b], compared=True)
        return cast_typed(a, kind, self.zone), cast_typed(b, kind, self.zone)

    def _common(self, terms: Sequence[Typed], *, compared: bool = False) -> AtomicType:
        """The type that Spark gives several terms; a compared literal has no more digits than are written."""
        known = [t if compared or not t.is_literal else replace(t, function="folded") for t in terms if not t.is_null]
        if not known:
            return STRING
        widest = known[0]
        for other in known[1:]:
            kind = _wider(widest, other)
            if kind != widest.type:
                widest = Typed("cast", kind, (), None, widest.sql)
        if not isinstance(widest.type, AtomicType) or widest.root in (Root.CHAR, Root.TIME, Root.VARIANT):
            raise Refused(f"{widest.sql} is {widest.type}, which is not computed with")
        return widest.type

    def _certain(self, sql: str, make: Callable[[], Typed]) -> Typed:
        try:
            return make()
        except Refused as e:
            raise refusal(sql, str(e)) from e
        except ValueError as e:  # too few or too many to unpack
            raise refusal(sql, "it does not take that number of arguments") from e


def _wider(a: Typed, b: Typed) -> AtomicType:
    if a.root in NUMBERS and b.root in NUMBERS:
        return common_number(a, b)
    times = (*TIMESTAMPS, Root.DATE)
    if a.root in times and b.root in times:
        if a.root is b.root:
            return DATE if a.root is Root.DATE else TIMESTAMP if a.root is Root.TIMESTAMP_LTZ else TIMESTAMP_NTZ
        return TIMESTAMP if Root.TIMESTAMP_LTZ in (a.root, b.root) else TIMESTAMP_NTZ
    if a.root is not b.root or not isinstance(a.type, AtomicType):
        raise Refused(f"{a.sql} is {a.type} and {b.sql} is {b.type}; cast one of them")
    return a.type


def term_type(kind: DataType) -> DataType:
    """The type of a column's values in terms: without lengths, and with microseconds."""
    if not isinstance(kind, AtomicType):
        return kind
    match kind.root:
        case Root.VARCHAR:
            return STRING
        case Root.BINARY | Root.VARBINARY:
            return BINARY
        case Root.TIMESTAMP:
            return TIMESTAMP_NTZ
        case Root.TIMESTAMP_LTZ:
            return TIMESTAMP
    return replace(kind, nullable=True)


def term_sql(term: Term) -> str:
    """An unbound term as Spark SQL, for people.

    >>> term_sql(CallTerm("*", (ColumnTerm("amount"), LiteralTerm(2, INT))))
    '(amount * 2)'
    """
    return _printed(term).sql


def _printed(term: Term) -> Typed:
    """A term with its text; its type is not known."""
    match term:
        case ColumnTerm(name):
            return Typed("column", STRING, (), name, column_sql(name))
        case LiteralTerm(value):
            return Typed("literal", STRING, (), value, _literal_sql(term))
        case IntervalTerm():
            return Typed("literal", STRING, (), term, term.sql)
        case CastTerm(inner, to):
            return Typed("cast", STRING, (), None, f"CAST({term_sql(inner)} AS {sql_type(to)})")
    arguments = tuple(map(_printed, term.arguments))
    return Typed(term.function, STRING, arguments, None, call_sql(term.function, arguments))


def _literal_sql(term: LiteralTerm) -> str:
    text = python_literal(term.value)
    if term.is_literal or term.type is None or term.type.root not in (*INTEGERS, Root.DECIMAL):
        return text
    return f"CAST({text} AS {term.type})"  # its type decides the type of what it is part of


def _operand(term: Typed) -> str:
    return f"({term.sql})" if term.function in _LOOSE else term.sql


def call_sql(function: str, arguments: Sequence[Typed]) -> str:
    """A call of a function or operator as Spark SQL."""
    shown = [_operand(a) for a in arguments]
    match function:
        case "is null" | "is not null":
            return f"{', '.join(shown)} {function.upper()}"
        case "not":
            return f"NOT ({arguments[0].sql})"
        case "negative":
            return f"-({arguments[0].sql})"
        case "case":
            pairs = zip(shown[::2], shown[1::2], strict=False)  # the last one is the value of ELSE
            return f"CASE {' '.join(f'WHEN {c} THEN {v}' for c, v in pairs)} ELSE {shown[-1]} END"
    if function in ("and", "or"):
        return f" {function.upper()} ".join(shown)
    if function in COMPARISONS:
        return f" {function} ".join(shown)
    if function in OPERATORS:
        return f"({f' {function} '.join(shown)})"
    if shown and (function in TOKEN_LISTS or function == "arrays_overlap"):
        return f"{function}({shown[0]}, array({', '.join(shown[1:])}))"
    return f"{function}({', '.join(shown)})"


COMPARISONS = {**{op.value: comparison_kernel(op) for op in Op}, "<=>": NULL_SAFE}
_NEVER_NULL = frozenset(("hash", "isnan", "is null", "is not null", "<=>"))
"""Spark answers IS NULL of these without computing their arguments, which might fail."""
_LOOSE = frozenset((*COMPARISONS, "in", "and", "or", "not", "is null", "is not null"))
"""Functions that need brackets as an operand."""
OPERATORS = frozenset({"+", "-", "*", "/", "%", "div"})


def _unary(kernel: Callable[[pa.Array], pa.Array]) -> Kernel:
    return lambda term, arrays, rows: kernel(arrays[0])


def _inverted(array: pa.Array) -> pa.Array:
    return pc.invert(array)


def _is_in(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    values = term.parameter.array
    found = is_in(arrays[0].cast(values.type), values)
    return pc.if_else(arrays[0].is_valid(), found, pa.scalar(None, pa.bool_()))


def _bound_by_binder(arguments: Sequence[Typed], zone: str) -> Bound:
    raise Refused("its types follow rules of their own")


_SPECIAL_KERNELS: dict[str, Kernel] = {
    **COMPARISONS,
    "greatest": GREATEST,
    "least": LEAST,
    "cast": CAST,
    "shift": SHIFT,
    "in": _is_in,
    "not": _unary(_inverted),
    "is null": _unary(lambda array: array.is_null()),
    "is not null": _unary(lambda array: array.is_valid()),
}
FUNCTIONS = {**NUMERIC_FUNCTIONS, **TEXT_FUNCTIONS, **TIME_FUNCTIONS, **TEXT_TESTS, **ARRAY_FUNCTIONS, **JSON_FUNCTIONS}
KERNELS = {**FUNCTIONS, **{name: Function(_bound_by_binder, kernel) for name, kernel in _SPECIAL_KERNELS.items()}}
_SPECIAL = frozenset(
    (*COMPARISONS, "and", "or", "not", "is null", "is not null")
    + ("case", "if", "coalesce", "nullif", "nvl2", "greatest", "least")
)
NAMES = sorted(n for n in {*FUNCTIONS, *_SPECIAL} if n.replace("_", "").isalpha())
"""The functions and operators that are words."""
