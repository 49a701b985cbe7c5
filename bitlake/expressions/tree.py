"""The predicate tree: one form for SQL, strings, Arrow and Spark filters.

A tree is first *unbound* (column names as written, Python literals) and then *bound* to a schema
(:mod:`bitlake.expressions.binder`): names are the schema's own, literals are physical values, and neither ``Not`` nor
``Between`` nor an inexact literal is left.  Truth is SQL's: TRUE, FALSE or NULL; a row is selected where it is TRUE.

Physical literals of a bound tree, by the column's type:

======================  =========================================================================
BOOLEAN                 ``bool``
TINYINT … BIGINT        ``int``
FLOAT, DOUBLE           ``float`` (of a FLOAT column: exactly representable in 32 bits)
DECIMAL(p, s)           ``int``, unscaled at the column's scale
CHAR, VARCHAR           ``str``
BINARY, VARBINARY       ``bytes``
DATE                    ``int``, days since the epoch
TIME                    ``int``, milliseconds of the day
TIMESTAMP(p), LTZ       ``int`` since the epoch, in ms (p ≤ 3), µs (p ≤ 6) or ns — the unit of its Arrow type
======================  =========================================================================

Indexes, statistics and pages know one column's values.  What needs more than these, such as ``length(s) > 3`` or
``a < b``, is a :class:`Computed` leaf: a :class:`RowTest` that is evaluated over the values of rows and prunes nothing.

A LIKE pattern is a sequence of literal texts and two wildcards (:func:`like_pieces`).
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from bitlake.errors import InvalidRequest

if TYPE_CHECKING:
    import pyarrow as pa

    from bitlake.expressions.terms import Typed
    from bitlake.types.datatypes import DataField, DataType


T = TypeVar("T")


class Op(enum.Enum):
    """A comparison operator, by its SQL spelling."""

    EQ = "="
    NE = "<>"
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="

    @property
    def negated(self) -> Op:
        """The operator that is TRUE where this one is FALSE, and NULL where it is NULL."""
        return _NEGATED[self]

    @property
    def swapped(self) -> Op:
        """The operator with its operands exchanged."""
        return _SWAPPED.get(self, self)


_NEGATED = {Op.EQ: Op.NE, Op.NE: Op.EQ, Op.LT: Op.GE, Op.GE: Op.LT, Op.GT: Op.LE, Op.LE: Op.GT}
_SWAPPED = {Op.LT: Op.GT, Op.GT: Op.LT, Op.LE: Op.GE, Op.GE: Op.LE}


@dataclass(frozen=True, slots=True)
class Comparison:
    """``column op value``; the value is never None in a bound tree."""

    column: str
    op: Op
    value: Any


@dataclass(frozen=True, slots=True)
class In:
    """``column [NOT] IN (values)``; a bound tree's values are distinct, sorted and never None."""

    column: str
    values: tuple[Any, ...]
    negated: bool = False
    derived: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    """What :func:`derived_from` keeps, by its use."""

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickling: without what is derived from the values."""
        return In, (self.column, self.values, self.negated)


@dataclass(frozen=True, slots=True)
class TupleIn:
    """``(column, …) [NOT] IN ((value, …), …)``; NULL equals NULL, so it is never NULL itself.

    ``values`` are those of the first column in all tuples, then those of the second, and so on; None is NULL.
    ``types`` are the types that Spark gives the literals of each column, in an unbound tree.
    """

    columns: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...]
    negated: bool = False
    types: tuple[DataType | None, ...] = ()
    derived: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What :func:`derived_from` keeps, by its use."""

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickling: without what is derived from the values."""
        return TupleIn, (self.columns, self.values, self.negated, self.types)


def derived_from(node: In | TupleIn | And | Or, use: Hashable, make: Callable[[], T]) -> T:
    """Return ``make()``, such as an array of many values: computed once for a node and ``use``, shared by all files."""
    try:
        derived: T = node.derived[use]
    except KeyError:  # two threads may both make it
        derived = node.derived[use] = make()
    return derived


@dataclass(frozen=True, slots=True)
class Like:
    """``column [NOT] LIKE pattern`` with ``%``, ``_`` and an escape character."""

    column: str
    pattern: str
    negated: bool = False
    escape: str = "\\"


@dataclass(frozen=True, slots=True)
class IsNull:
    """``column IS [NOT] NULL``; never NULL itself."""

    column: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class And:
    """All children; ``And(())`` is TRUE."""

    children: tuple[Predicate, ...]
    derived: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What :func:`derived_from` keeps, by its use."""

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickling: without what is derived from the terms."""
        return And, (self.children,)


@dataclass(frozen=True, slots=True)
class Or:
    """Any child; ``Or(())`` is FALSE."""

    children: tuple[Predicate, ...]
    derived: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What :func:`derived_from` keeps, by its use."""

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickling: without what is derived from the terms."""
        return Or, (self.children,)


@dataclass(frozen=True, slots=True)
class Not:
    """Only in unbound trees; binding pushes it into the leaves."""

    child: Predicate


@dataclass(frozen=True, slots=True)
class Between:
    """``column [NOT] BETWEEN low AND high``; only in unbound trees."""

    column: str
    low: Any
    high: Any
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Constant:
    """TRUE, FALSE or NULL (None) for every row."""

    value: bool | None


class MapKey(str):
    """A leaf's column that is the value of one text key of a map: ``MapKey("m", "a")`` is ``m['a']``.

    As text it is ``m[a]``, as Paimon names an index of it.  A row without the key, or without a map, is NULL.
    """

    column: str
    key: str

    def __new__(cls, column: str, key: str) -> MapKey:
        """``column`` is the map's name."""
        made = super().__new__(cls, f"{column}[{key}]")
        made.column, made.key = column, key
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickling."""
        return MapKey, (self.column, self.key)


class IndexedExpression(str):
    """A leaf's column that is the value of an expression over one row, such as ``lower(email)``.

    As text it is the name of the index entries of the expression (:mod:`bitlake.expressions.indexed`): its ``sql``,
    and marks behind an ``@`` that tell the time zone and versions.  Only indexes judge such a leaf: statistics, pages
    and rows find every row possible, so it stands only in predicates that may select too many rows.
    """

    sql: str
    marks: str
    term: Typed
    type: DataType

    def __new__(cls, sql: str, marks: str, term: Typed, kind: DataType) -> IndexedExpression:
        """``kind`` is the type of the values that are indexed."""
        expression = super().__new__(cls, f"{sql}@{marks}" if marks else sql)
        expression.sql, expression.marks, expression.term, expression.type = sql, marks, term, kind
        return expression

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickling."""
        return IndexedExpression, (self.sql, self.marks, self.term, self.type)

    def __repr__(self) -> str:
        return f"IndexedExpression({str(self)!r})"


class RowTest(Protocol):
    """A test of rows that only their values decide; immutable, hashable and picklable."""

    @property
    def columns(self) -> frozenset[str]:
        """The columns whose values it needs; at least one."""

    def bound(self, fields: Sequence[DataField], timezone: str, negated: bool) -> Predicate:
        """The predicate over a schema's own names and types that is TRUE for the same rows, or for those of its NOT.

        Raises :class:`NotFound` for an unknown column and :class:`InvalidRequest` for a test that cannot be evaluated.
        """

    def mask(self, table: pa.Table, fields: Sequence[DataField]) -> pa.BooleanArray:
        """TRUE, FALSE or NULL for each row; of a bound test only.  ``table`` has at least :attr:`columns`."""

    def sql(self) -> str | None:
        """The test as Spark SQL that AND can join, in brackets where it needs them; None if it has no such form."""


@dataclass(frozen=True, slots=True)
class Computed:
    """A test over the values of rows, or its negation; NULL stays NULL."""

    test: RowTest
    negated: bool = False


Leaf = Comparison | In | Like | IsNull
"""The leaves about one column, which indexes and statistics can judge."""
Predicate = Comparison | In | TupleIn | Like | IsNull | Computed | And | Or | Not | Between | Constant

TRUE = Constant(True)
FALSE = Constant(False)


def sources_of(predicate: Predicate) -> frozenset[str]:
    """The columns that must be read to judge a predicate: of ``m['a']``, the map; of an indexed expression, none."""
    columns = (c for c in columns_of(predicate) if not isinstance(c, IndexedExpression))
    return frozenset(c.column if isinstance(c, MapKey) else c for c in columns)


def columns_of(predicate: Predicate) -> frozenset[str]:
    """Return the subjects of a predicate's leaves, as indexes name them: columns, map values, indexed expressions."""
    match predicate:
        case And(children) | Or(children):
            return derived_from(predicate, "columns", lambda: frozenset().union(*map(columns_of, children)))
        case Not(child):
            return columns_of(child)
        case Constant():
            return frozenset()
        case Computed(test):
            return test.columns
        case TupleIn(columns):
            return frozenset(columns)
        case _:
            return frozenset((predicate.column,))


def computed_tests(predicate: Predicate) -> tuple[RowTest, ...]:
    """The tests of a predicate's :class:`Computed` leaves."""
    match predicate:
        case And(children) | Or(children):
            return derived_from(predicate, "tests", lambda: tuple(t for c in children for t in computed_tests(c)))
        case Not(child):
            return computed_tests(child)
        case Computed(test):
            return (test,)
        case _:
            return ()


def has_computed(predicate: Predicate) -> bool:
    """Whether any leaf is a :class:`Computed` one."""
    return bool(computed_tests(predicate))


def conjuncts(predicate: Predicate) -> tuple[Predicate, ...]:
    """The top-level AND terms of a predicate; none for TRUE."""
    match predicate:
        case And(children):
            return tuple(c for child in children for c in conjuncts(child))
        case Constant(True):
            return ()
        case _:
            return (predicate,)


def column_terms(node: TupleIn) -> tuple[Predicate, ...]:
    """Conditions on one column each that are TRUE wherever a bound ``(a, b) IN (…)`` is; none for NOT IN."""

    def make() -> tuple[Predicate, ...]:
        terms: dict[Predicate, None] = {}
        for column, values in zip(node.columns, node.values, strict=True):
            points = sorted_points(v for v in values if v is not None)
            is_null = [IsNull(column)] if None in values else []
            terms[any_of([*([In(column, tuple(points))] if points else []), *is_null])] = None
        return tuple(terms)

    return () if node.negated else derived_from(node, "terms", make)


def leaves_of(predicate: Predicate) -> list[Leaf]:
    """The leaves about one column of a predicate without NOT, such as a bound one; of tuples, those that they imply."""
    match predicate:
        case And(children) | Or(children):
            return [leaf for c in children for leaf in leaves_of(c)]
        case TupleIn():
            return [leaf for c in column_terms(predicate) for leaf in leaves_of(c)]
        case Comparison() | In() | Like() | IsNull():
            return [predicate]
        case _:
            return []


def sorted_points(points: Iterable[Any]) -> list[Any]:
    """Physical values, distinct and sorted, NaN last."""
    known = list(points)
    nan = [p for p in known if isinstance(p, float) and math.isnan(p)][:1]
    return sorted({p for p in known if not (isinstance(p, float) and math.isnan(p))}) + nan


def all_of(terms: Sequence[Predicate]) -> Predicate:
    """The AND of some terms; of one, that term."""
    return terms[0] if len(terms) == 1 else And(tuple(terms))


def any_of(terms: Sequence[Predicate]) -> Predicate:
    """The OR of some terms; of one, that term."""
    return terms[0] if len(terms) == 1 else Or(tuple(terms))


def terms_on(predicate: Predicate | None, columns: Collection[str]) -> tuple[Predicate, ...]:
    """The top-level AND terms that speak of some of these columns and of no other; none without a predicate."""
    if predicate is None:
        return ()
    allowed = frozenset(columns)
    return tuple(t for t in conjuncts(predicate) if frozenset() < sources_of(t) <= allowed)


def named_values(terms: Iterable[Predicate], column: str) -> tuple[Any, ...] | None:
    """Values of a column, the fewest that any term names, outside which not all terms are TRUE; None if none does."""
    named: list[tuple[Any, ...]] = []
    for term in terms:
        match term:
            case Comparison(name, Op.EQ, value) if name == column:
                named.append((value,))
            case In(name, values, negated=False) if name == column:
                named.append(values)
            case TupleIn(columns) if column in columns:
                named += [t.values for t in column_terms(term) if isinstance(t, In) and t.column == column]
            case _:
                pass
    return min(named, key=len, default=None)


# --- LIKE patterns ----------------------------------------------------------------------------------------------------


class Wild(enum.Enum):
    """A wildcard of a LIKE pattern."""

    MANY = "%"
    """Any characters, also none."""
    ONE = "_"
    """Exactly one character (code point)."""


Piece = str | Wild


def like_pieces(pattern: str, escape: str = "\\") -> tuple[Piece, ...]:
    """A pattern's literal texts (none empty) and wildcards, in order.

    Raises :class:`InvalidRequest` where the escape character stands before anything but ``%``, ``_`` or itself, as
    Spark does.

    >>> like_pieces("a%b_")
    ('a', <Wild.MANY: '%'>, 'b', <Wild.ONE: '_'>)
    """
    pieces: list[Piece] = []
    text: list[str] = []
    i = 0
    while i < len(pattern):
        c = pattern[i]
        i += 1
        if c == escape:
            if i == len(pattern) or pattern[i] not in ("%", "_", escape):
                raise InvalidRequest(f"LIKE pattern '{pattern}': '{escape}' may only stand before %, _ or itself")
            text.append(pattern[i])
            i += 1
        elif c in "%_":
            if text:
                pieces.append("".join(text))
                text.clear()
            pieces.append(Wild(c))
        else:
            text.append(c)
    if text:
        pieces.append("".join(text))
    return tuple(pieces)


def like_literal(text: str) -> str:
    """The LIKE pattern that only this text matches.

    >>> like_literal("100%")
    '100\\\\%'
    """
    return "".join("\\" + c if c in "%_\\" else c for c in text)


def like_prefix(pieces: tuple[Piece, ...]) -> tuple[str, bool]:
    """The text every match starts with, and whether starting with it is all the pattern asks for."""
    prefix = pieces[0] if pieces and isinstance(pieces[0], str) else ""
    rest = pieces[1:] if prefix else pieces
    return prefix, bool(rest) and all(p is Wild.MANY for p in rest)


def like_regex(pieces: tuple[Piece, ...]) -> str:
    """A regular expression (RE2 and Python) that fully matches what the pattern matches."""
    body = "".join(re.escape(p) if isinstance(p, str) else (".*" if p is Wild.MANY else ".") for p in pieces)
    return rf"(?s)\A{body}\z"
