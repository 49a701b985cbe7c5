"""Bind a predicate to a schema: real column names, physical literals, no Not and no Between.

A bound tree is TRUE for exactly the rows for which the expression is TRUE in Spark.  Where it is not TRUE it may be
FALSE instead of NULL: once NOT has been pushed into the leaves nothing can tell the two apart (AND and OR are
monotone), and it lets ``int_column = 3.5`` become plain FALSE.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, Literal

from bitlake.errors import InvalidRequest, NotFound
from bitlake.predicate import compare
from bitlake.predicate.like import Wild, like_pieces
from bitlake.predicate.tree import (
    FALSE,
    TRUE,
    And,
    Between,
    Comparison,
    Constant,
    In,
    IsNull,
    Like,
    MapKey,
    Not,
    Op,
    Or,
    Predicate,
)
from bitlake.types.datatypes import STRINGS, AtomicType, DataField, MapType, Root, RowType


def bind(
    predicate: Predicate,
    fields: Sequence[DataField],
    timezone: str = "UTC",
    on_unsupported: Literal["raise", "true"] = "raise",
) -> Predicate:
    """The predicate over a schema's own names and physical literals.

    Names match without case, an exact match first.  With ``on_unsupported="true"`` a leaf that cannot be compared the
    way Spark would becomes TRUE: the result is then TRUE wherever the predicate is, which is what pruning needs.

    Raises :class:`NotFound` for an unknown column (with near names) and :class:`InvalidRequest` for a literal that
    cannot be compared with its column.
    """
    return _Binder(fields, timezone, on_unsupported == "true").bind(predicate, False)


class _Binder:
    def __init__(self, fields: Sequence[DataField], timezone: str, lenient: bool) -> None:
        self.fields = fields
        self.exact = {f.name: f for f in fields}
        self.lower: dict[str, list[DataField]] = {}
        for f in fields:
            self.lower.setdefault(f.name.lower(), []).append(f)
        self.timezone = timezone
        self.lenient = lenient

    def bind(self, node: Predicate, negated: bool) -> Predicate:
        match node:
            case Not(child):
                return self.bind(child, not negated)
            case And(children):
                return (any_of if negated else all_of)(self.bind(c, negated) for c in children)
            case Or(children):
                return (all_of if negated else any_of)(self.bind(c, negated) for c in children)
            case Constant(value):
                return TRUE if value is not None and value != negated else FALSE
            case Between(column, low, high, inner):
                both = And((Comparison(column, Op.GE, low), Comparison(column, Op.LE, high)))
                return self.bind(both, negated != inner)
        try:
            return self._leaf(node, negated)
        except InvalidRequest:
            if self.lenient:
                return TRUE
            raise

    def _leaf(self, node: Comparison | In | Like | IsNull, negated: bool) -> Predicate:
        column = node.column
        field = self.map_value(column) if isinstance(column, MapKey) else self.field(column)
        if isinstance(node, IsNull):
            return IsNull(field.name, node.negated != negated)
        if not isinstance(field.type, AtomicType) or field.type.root is Root.VARIANT:
            raise InvalidRequest(f"column '{field.name}' of type {field.type} can only be tested for NULL")
        if self.lenient and isinstance(node, (Comparison, In)):
            literals = (node.value,) if isinstance(node, Comparison) else node.values
            if any(spark_rounds(field.type, v) for v in literals):
                return TRUE
        match node:
            case Comparison(_, op, value):
                if value is None:
                    return FALSE
                return compare.comparison(field, field.type, op.negated if negated else op, value, self.timezone)
            case In(_, values, inner):
                return self._in(field, field.type, values, inner != negated)
            case Like(_, pattern, inner, escape):
                return _like(field, field.type, pattern, inner != negated, escape)

    def _in(self, field: DataField, kind: AtomicType, values: tuple[Any, ...], negated: bool) -> Predicate:
        known = [v for v in values if v is not None]
        if negated and len(known) < len(values):
            return FALSE  # x NOT IN (…, NULL) is FALSE or NULL
        return compare.membership(field, kind, known, negated, self.timezone)

    def map_value(self, leaf: MapKey) -> DataField:
        """The values of a map's key, as a column."""
        field = self.field(leaf.column)
        made = field.type
        if not isinstance(made, MapType) or not isinstance(made.key, AtomicType) or made.key.root is not Root.VARCHAR:
            raise InvalidRequest(f"column '{field.name}' of type {made} is not a map with STRING keys")
        bound = MapKey(field.name, leaf.key)
        if bound in self.exact:
            raise InvalidRequest(f"'{bound}' is a column of its own; the value of a map's key cannot be told from it")
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
                raise InvalidRequest(f"'{name}' is a member of a struct; a scan can only compare whole columns")
            last = name.rpartition(".")[2]
            found = self._find(rest) or self._find(last)
            if found is not None:
                return found
        near = difflib.get_close_matches(name.lower(), list(self.lower), 3, 0.6)
        names = [self.lower[n][0].name for n in near] or [f.name for f in self.fields[:10]]
        listed = ", ".join(map(repr, names))
        raise NotFound(f"no column '{name}'; " + (f"did you mean {listed}?" if near else f"there are {listed}"))

    def _find(self, name: str) -> DataField | None:
        if name in self.exact:
            return self.exact[name]
        same = self.lower.get(name.lower(), [])
        if len(same) > 1:
            raise InvalidRequest(f"column '{name}' is ambiguous: {', '.join(f.name for f in same)}")
        return same[0] if same else None


def all_of(children: Iterable[Predicate]) -> Predicate:
    """AND of bound predicates: flat, without TRUE, FALSE as soon as one term is never TRUE."""
    return _join(children, And, TRUE, FALSE)


def any_of(children: Iterable[Predicate]) -> Predicate:
    """OR of bound predicates: flat, without FALSE, TRUE as soon as one term is always TRUE."""
    return _join(children, Or, FALSE, TRUE)


def _join(children: Iterable[Predicate], kind: type[And] | type[Or], neutral: Constant, final: Constant) -> Predicate:
    flat: dict[Predicate, None] = {}
    make: Callable[[tuple[Predicate, ...]], And | Or] = kind
    ended = False
    for child in children:
        # Every child is bound, also after the end: an unknown column is an error wherever it stands.
        ended = ended or child == final
        for one in child.children if isinstance(child, kind) else (child,):
            if one != neutral:
                flat[one] = None
    if ended:
        return final
    terms = tuple(flat)
    if not terms:
        return neutral
    return terms[0] if len(terms) == 1 else make(terms)


def spark_rounds(kind: AtomicType, value: Any) -> bool:
    """Whether Spark would compare a DECIMAL column with a literal in a type too narrow for both, and so round.

    The common type has the digits of either before and after the point, but never more than 38.
    """
    if kind.root is not Root.DECIMAL or isinstance(value, bool) or not isinstance(value, int | Decimal):
        return False
    _, digits, exponent = Decimal(value).as_tuple()
    if not isinstance(exponent, int):
        return False
    scale = kind.scale or 0
    before = max((kind.precision or 0) - scale, len(digits) + exponent)
    return before + max(scale, -exponent) > 38


def _like(field: DataField, kind: AtomicType, pattern: str, negated: bool, escape: str) -> Predicate:
    if kind.root not in STRINGS:
        raise InvalidRequest(f"column '{field.name}' of type {kind} cannot be compared by LIKE; it is not a string")
    pieces = like_pieces(pattern, escape)
    if all(isinstance(p, str) for p in pieces):
        # CHAR columns too: LIKE compares the value as stored, without padding.
        return Comparison(field.name, Op.NE if negated else Op.EQ, "".join(str(p) for p in pieces))
    if pieces and all(p is Wild.MANY for p in pieces):
        return FALSE if negated else IsNull(field.name, True)
    return Like(field.name, pattern, negated, escape)
