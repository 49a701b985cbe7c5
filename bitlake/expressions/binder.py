"""Bind a predicate to a schema: real column names, physical literals, no Not and no Between.

A bound tree is TRUE for exactly the rows for which the expression is TRUE in Spark.  Where it is not TRUE it may be
FALSE instead of NULL: once NOT has been pushed into the leaves nothing can tell the two apart (AND and OR are
monotone), and it lets ``int_column = 3.5`` become plain FALSE.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal

from bitlake.errors import InvalidRequest
from bitlake.expressions.indexed import judged_by_indexes
from bitlake.expressions.literal_comparison import bound_leaf, bound_tuples, spark_rounds
from bitlake.expressions.term_binder import VALUE, Columns, TermTest
from bitlake.expressions.term_groups import MANY
from bitlake.expressions.terms import ColumnTerm
from bitlake.expressions.text_functions import term_condition
from bitlake.expressions.tree import (
    FALSE,
    TRUE,
    And,
    Between,
    Comparison,
    Computed,
    Constant,
    In,
    IndexedExpression,
    Leaf,
    MapKey,
    Not,
    Op,
    Or,
    Predicate,
    TupleIn,
    conjuncts,
    has_computed,
    leaves_of,
    sorted_points,
)
from bitlake.types.datatypes import AtomicType, DataField, Root


def bind(
    predicate: Predicate,
    fields: Sequence[DataField],
    timezone: str = "UTC",
    on_unsupported: Literal["raise", "true"] = "raise",
    indexed: Collection[str] = (),
) -> Predicate:
    """The predicate over a schema's own names and physical literals.

    Names match without case, an exact match first.  With ``on_unsupported="true"`` a leaf that cannot be compared the
    way Spark would becomes TRUE: the result is then TRUE wherever the predicate is, which is what pruning needs.
    There a computed test is a leaf that only indexes judge, if its expression is among ``indexed``, by their names.

    Raises :class:`NotFound` for an unknown column (with near names) and :class:`InvalidRequest` for a literal that
    cannot be compared with its column.
    """
    return _Binder(fields, timezone, on_unsupported == "true", indexed).bind(predicate, False)


class _Binder:
    def __init__(
        self, fields: Sequence[DataField], timezone: str, lenient: bool, indexed: Collection[str] = ()
    ) -> None:
        self.fields = fields
        self.columns = Columns(fields)
        self.timezone = timezone
        self.lenient = lenient
        self.indexed = indexed

    def bind(self, node: Predicate, negated: bool) -> Predicate:
        match node:
            case Not(child):
                return self.bind(child, not negated)
            case And():
                return (any_of if negated else all_of)(self.bind(c, negated) for c in _children(node, And))
            case Or():
                return (all_of if negated else any_of)(self.bind(c, negated) for c in _children(node, Or))
            case Constant(value):
                return TRUE if value is not None and value != negated else FALSE
        try:
            if isinstance(node, Between):
                return self._between(node, negated != node.negated)
            if isinstance(node, TupleIn):
                return bound_tuples(node, [self.columns.field(c) for c in node.columns], negated)
            if isinstance(node, Computed):
                return self._pruning(node.test.bound(self.fields, self.timezone, node.negated != negated))
            return self._leaf(node, negated)
        except InvalidRequest:
            if self.lenient:
                return TRUE
            raise

    def _between(self, node: Between, negated: bool) -> Predicate:
        """Both ends as comparisons; of CHAR as stored, since Spark pads what ``=`` and IN compare, and not this."""
        column = node.column
        stored = None
        if not isinstance(column, MapKey) and not self.columns.member(column):
            field = self.columns.field(column)
            stored = field.name if isinstance(field.type, AtomicType) and field.type.root is Root.CHAR else None
        ends: list[Predicate] = []
        for op, end in ((Op.GE, node.low), (Op.LE, node.high)):
            if stored is not None and isinstance(end, str):
                ends.append(Comparison(stored, op.negated if negated else op, end))
            else:
                ends.append(self.bind(Comparison(column, op, end), negated))
        return (any_of if negated else all_of)(ends)

    def _leaf(self, node: Leaf, negated: bool) -> Predicate:
        column = node.column
        if self.columns.member(column.column if isinstance(column, MapKey) else column):
            test = TermTest(ColumnTerm(column), replace(node, column=VALUE))
            return self._pruning(test.bound(self.fields, self.timezone, negated))
        field = self.columns.map_value(column) if isinstance(column, MapKey) else self.columns.field(column)
        if self.lenient and isinstance(node, (Comparison, In)) and isinstance(field.type, AtomicType):
            literals = (node.value,) if isinstance(node, Comparison) else node.values
            if spark_rounds(field.type, literals):
                return TRUE
        return bound_leaf(node, field, negated, self.timezone)

    def _pruning(self, bound: Predicate) -> Predicate:
        """Bind computed leaves; if the result only prunes, keep only what indexes evaluate."""
        if not self.lenient:
            return bound
        return all_of(t if not has_computed(t) else self._judged(t) for t in conjuncts(bound))

    def _judged(self, term: Predicate) -> Predicate:
        """A computed test as leaves about indexed expressions; TRUE if no index covers it."""
        if not self.indexed:
            return TRUE
        judged = judged_by_indexes(term).predicate
        return judged if not has_computed(judged) and all(map(self._is_indexed, leaves_of(judged))) else TRUE

    def _is_indexed(self, leaf: Leaf) -> bool:
        """Whether an index may evaluate a leaf: an index of its expression, or of the text that it requires."""
        if leaf.column in self.indexed or not isinstance(leaf.column, IndexedExpression):
            return leaf.column in self.indexed
        text = term_condition(leaf.column.term, leaf)
        return text is not None and text.column in self.indexed


def _children(node: And | Or, kind: type[And] | type[Or]) -> Sequence[Predicate]:
    """The children, and those of children of the same kind, in order: ``a | b | c | …`` may nest thousands deep."""
    if not any(isinstance(child, kind) for child in node.children):
        return node.children
    flat: list[Predicate] = []
    waiting: list[Predicate] = [node]
    while waiting:
        one = waiting.pop()
        if isinstance(one, kind):
            waiting.extend(reversed(one.children))
        else:
            flat.append(one)
    return flat


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
    terms = tuple(flat if len(flat) < MANY else _listed(flat, kind is And))
    if not terms:
        return neutral
    return terms[0] if len(terms) == 1 else make(terms)


def _listed(terms: Iterable[Predicate], negated: bool) -> list[Predicate]:
    """The terms of an OR (of an AND if ``negated``), those like ``a = 1`` and ``a IN (…)`` (``<>``, NOT IN) as one IN.

    Its values are looked up at once, where 1,000 terms would be evaluated one by one.
    """
    op = Op.NE if negated else Op.EQ
    listed: list[Predicate] = []
    values: dict[tuple[type, str], list[Any]] = {}
    places: dict[tuple[type, str], int] = {}
    for term in terms:
        if isinstance(term, Comparison) and term.op is op:
            found: tuple[Any, ...] = (term.value,)
        elif isinstance(term, In) and term.negated == negated:
            found = term.values
        else:
            listed.append(term)
            continue
        key = type(term.column), term.column
        if key not in places:
            places[key] = len(listed)
            listed.append(term)
        values.setdefault(key, []).extend(found)
    for key, points in values.items():
        first = listed[places[key]]
        distinct = sorted_points(points)
        if len(distinct) > 1 and isinstance(first, Comparison | In):
            listed[places[key]] = In(first.column, tuple(distinct), negated)
    return listed
