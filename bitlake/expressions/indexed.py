"""Indexed expressions: values computed of one row that file indexes hold, such as ``lower(email)``.

An index entry of an expression is named by its canonical text: Spark SQL of the bound term, with the file's own column
names, functions by one name, constants in one form and without the casts that binding adds.  What the text leaves open
is added behind ``@``: the time zone of an expression that reads wall clocks, and the version of each function whose
version is not 1::

    lower(email)    hour(ts)@zone=Europe/Berlin    lower(email)@lower=2

The name identifies the meaning: an expression of another meaning has another name, which no query looks up.
:data:`VERSIONS` lists the functions; a change of what one computes must raise its version.

:func:`judged_by_indexes` replaces the computed tests of a predicate (:class:`~bitlake.expressions.tree.Computed`) by
leaves about expressions, which indexes evaluate.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from bitlake.errors import EvaluationFailed, InvalidRequest, NotFound
from bitlake.expressions.functions import CONTAINS, MEMBERS, member_type, physical
from bitlake.expressions.json_path import path_text
from bitlake.expressions.sql_text import name as column_sql
from bitlake.expressions.sql_text import python_literal, quote, sql_type
from bitlake.expressions.term_binder import KERNELS, REMEDY, VALUE, RowsTest, TermBinder, call_sql, term_type
from bitlake.expressions.terms import CallTerm, Term, Typed, columns_in, evaluate_term
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
    RowTest,
)
from bitlake.types import time_zone
from bitlake.types.datatypes import INTEGERS, TIMESTAMPS, AtomicType, DataField, MapType, Root
from bitlake.types.utf8 import is_utf8

VERSIONS: dict[str, int] = dict.fromkeys(
    ("lower", "upper", "trim", "ltrim", "rtrim", "substring", "left", "right", "replace", "instr", "concat")
    + ("length", "octet_length", "coalesce", "greatest", "least", "cast")
    + ("year", "quarter", "month", "day", "dayofyear", "dayofweek", "weekday", "weekofyear", "hour", "minute", "second")
    + ("date_add", "date_sub", "datediff", "last_day", "add_months", "trunc", "date_trunc")
    + ("get_json_object", "hash", "pmod", "split")
    + ("rlike", "has_token", "has_all_tokens", "has_any_token")
    + ("element", "keys")
    + ("+", "-", "*", "/", "%", "div", "negative", "abs", "sign"),
    1,
)
"""The functions that an indexed expression may have, each with the version of what it computes."""
_FREE = frozenset({"column", "member", "map value", "literal", "folded"})
"""Other nodes of an expression, without a version: their meaning cannot change."""
_WRITTEN = {"case": "CASE", "shift": "adding an interval", "is null": "IS NULL"}
"""The usual words for nodes that have other names here."""
_CLOCKS = frozenset({"hour", "minute", "second"})
_OF_DATES = frozenset(
    {"year", "quarter", "month", "day", "dayofyear", "dayofweek", "weekday", "weekofyear", "last_day", "trunc"}
    | {"date_add", "date_sub", "datediff", "add_months"}
)
"""Functions that convert a timestamp to a date themselves."""
_SUFFIX = re.compile(r"(?s)(.*)@((?:[^=,@'`()]+=[\w+:/-]+)(?:,[^=,@'`()]+=[\w+:/-]+)*)")
_ZONE = "zone"


# --- names ------------------------------------------------------------------------------------------------------------


def indexed_expression(term: Typed) -> IndexedExpression | None:
    """The expression of a bound term, named canonically; None if the term cannot be indexed."""
    if why_not_indexed(term) is not None:
        return None
    zones = sorted(set(_zones(term)))
    used = sorted({t.function for t in _nodes(term) if VERSIONS.get(t.function, 1) != 1})
    marks = [f"{function}={VERSIONS[function]}" for function in used] + [f"{_ZONE}={zone}" for zone in zones]
    return IndexedExpression(_canonical(term).sql, ",".join(marks), term, term.type)


def why_not_indexed(term: Typed) -> str | None:
    """Why a term cannot be indexed; None if it can."""
    for node in _nodes(term):
        if node.function in MEMBERS and node is not term:
            return f"{node.function}(…) cannot be part of a larger expression"
        if node.function not in VERSIONS and node.function not in _FREE:
            name = _WRITTEN.get(node.function, f"'{node.function}'")
            return f"{name} cannot be indexed; an index may use {', '.join(sorted(VERSIONS))}"
    if not columns_in(term):
        return "it names no column"
    if term.function == "column":
        return "it is a column"
    if not isinstance(term.type, AtomicType) or term.type.root in (Root.CHAR, Root.VARIANT, Root.TIME):
        return f"its values are of type {term.type}"
    return "it depends on two time zones" if len(set(_zones(term))) > 1 else None


def zone_of(expression: IndexedExpression) -> str | None:
    """The time zone that an expression's values depend on; None if they depend on none."""
    return next(_zones(expression.term), None)


def expression_named(name: str, fields: Sequence[DataField]) -> IndexedExpression | None:
    """The expression of an index entry over a file's columns; None for a name that this version does not write."""
    text, zone = name, "UTC"
    match = _SUFFIX.fullmatch(name)
    if match is not None:
        text = match[1]
        zone = dict(mark.split("=") for mark in match[2].split(",")).get(_ZONE, zone)
    try:
        column = parse_indexed(text, fields, zone)
    except (InvalidRequest, NotFound):
        return None
    return column if isinstance(column, IndexedExpression) and column == name else None


def parse_indexed(text: str, fields: Sequence[DataField], timezone: str) -> str:
    """Parse the source of an index: a column's name, a :class:`MapKey` or an :class:`IndexedExpression`.

    Raises :class:`InvalidRequest` for text that cannot be indexed, and :class:`NotFound` for an unknown column.
    """
    from bitlake.expressions.parser import parse_term  # brings sqlglot, which only SQL text needs
    from bitlake.expressions.term_parser import asks_the_time

    try:
        term = _bound(parse_term(text, timezone), TermBinder(fields, timezone))
    except InvalidRequest as e:
        _check_one_row(text, e)
        message = str(e).removesuffix(f"; {REMEDY}").replace("that a scan computes", "that an index computes")
        raise InvalidRequest(message.replace("a scan cannot evaluate", "an index cannot compute")) from e
    if asks_the_time(text):
        _check_one_row(text)
    if term.function == "column":
        return str(term.parameter)
    if term.function == "map value" and term.arguments[0].function == "column":
        return MapKey(str(term.arguments[0].parameter), term.parameter)
    expression = indexed_expression(term)
    if expression is None:
        raise InvalidRequest(f"cannot index '{text}': {why_not_indexed(term)}")
    return expression


def _check_one_row(text: str, cause: Exception | None = None) -> None:
    from bitlake.expressions.parser import why_nondeterministic  # brings sqlglot, as above

    why = why_nondeterministic(text)
    if why is not None:
        raise InvalidRequest(f"cannot index '{text}': {why}; an index needs an expression of one row") from cause


def _bound(term: Term, binder: TermBinder) -> Typed:
    """The typed term; ``element(a)`` and ``keys(m)`` stand for an array's elements and a map's keys."""
    match term:
        case CallTerm(function, (of,)) if function in MEMBERS:
            whole = binder.bind(of)
            kind = member_type(whole.type)
            if kind is None or isinstance(whole.type, MapType) != (function == "keys"):
                takes = "a map" if function == "keys" else "an array"
                raise InvalidRequest(
                    f"{function} takes {takes} of strings, integers, booleans or dates, and {whole.sql} is {whole.type}"
                )
            return members_of(whole)
    return binder.bind(term)


def members_of(whole: Typed) -> Typed:
    """The elements of an array, or the keys of a map, as a term that only indexes use."""
    kind = member_type(whole.type)
    assert kind is not None
    function = "keys" if isinstance(whole.type, MapType) else "element"
    return Typed(function, term_type(kind), (whole,), None, f"{function}({whole.sql})")


def has_members(expression: IndexedExpression) -> bool:
    """Whether a row has any number of values: those of ``element(a)`` and ``keys(m)``."""
    return expression.term.function in MEMBERS


def values_of(expression: IndexedExpression, batch: pa.RecordBatch) -> pa.Array:
    """An expression's value in each row of a batch, which has the columns that the expression reads.

    Of ``element(a)`` and ``keys(m)``, the arrays or maps.
    Raises :class:`bitlake.errors.EvaluationFailed` where the expression fails for a row.
    """
    term = expression.term.arguments[0] if has_members(expression) else expression.term
    names = columns_in(term)
    rows = {name: batch.column(batch.schema.get_field_index(name)) for name in names}
    for name, column in rows.items():
        _check_text(name, column)
    if len(names) == 1 and not has_members(expression):
        ((name, column),) = rows.items()
        if pa.types.is_dictionary(column.type) and len(column.dictionary) < len(column):
            with contextlib.suppress(EvaluationFailed):  # perhaps for a dictionary value that no row has
                values = evaluate_term(term, {name: column.dictionary}, len(column.dictionary), KERNELS)
                distinct = values.dictionary_encode()
                return pa.DictionaryArray.from_arrays(distinct.indices.take(column.indices), distinct.dictionary)
    return evaluate_term(term, rows, batch.num_rows, KERNELS)


def _check_text(name: str, column: pa.Array) -> None:
    """Raise :class:`EvaluationFailed` for text that is not UTF-8: Spark computes with other characters than Arrow."""
    if not is_utf8(column):
        raise EvaluationFailed(f"column '{name}' has text that is not UTF-8")


def _nodes(term: Typed) -> Iterator[Typed]:
    yield term
    for argument in term.arguments:
        yield from _nodes(argument)


def _zones(term: Typed) -> Iterator[str]:
    """The zones whose wall clocks a term reads, each by one name."""
    for node in _nodes(term):
        roots = {node.root, *(a.root for a in node.arguments)}
        if node.function == "date_trunc":
            yield _zone_name(node.parameter[1])
        elif node.function in ("cast", *_CLOCKS) and Root.TIMESTAMP_LTZ in roots:
            yield _zone_name(node.parameter)


def _zone_name(zone: str) -> str:
    if not time_zone.is_fixed(zone):
        return zone
    minutes = time_zone.fixed_offset(zone) // 60_000_000
    return time_zone.offset_text(minutes) if minutes else "UTC"


def _canonical(term: Typed) -> Typed:
    """The term with its canonical text; its arguments are those that the text shows."""
    match term.function:
        case "column":
            return replace(term, sql=column_sql(term.parameter))
        case "member":
            return replace(term, sql=f"{_canonical(term.arguments[0]).sql}.{column_sql(term.parameter)}")
        case "map value":
            return replace(term, sql=f"{_canonical(term.arguments[0]).sql}[{quote(term.parameter)}]")
        case "literal" | "folded":
            return replace(term, sql=_literal(term))
        case "cast":
            (inner,) = term.arguments
            if term.sql == inner.sql:
                return _canonical(inner)  # binding adds it again
            assert isinstance(term.type, AtomicType)
            return replace(term, sql=f"CAST({_canonical(inner).sql} AS {sql_type(term.type)})")
    arguments = [_shown(term, a) for a in term.arguments]
    return replace(term, sql=call_sql(term.function, [*_constants_before(term), *arguments, *_constants_behind(term)]))


def _shown(term: Typed, argument: Typed) -> Typed:
    """An argument, without the conversion to a date that the function makes itself."""
    if term.function in _OF_DATES and argument.function == "cast" and argument.root is Root.DATE:
        (inner,) = argument.arguments
        if inner.root in TIMESTAMPS:
            return _canonical(inner)
    return _canonical(argument)


def _constants_before(term: Typed) -> list[Typed]:
    return [_constant(quote(term.parameter[0]))] if term.function == "date_trunc" else []


def _constants_behind(term: Typed) -> list[Typed]:
    """The constants that a function keeps as its parameter."""
    match term.function, term.parameter:
        case "substring", (start, length):
            return [_constant(str(n)) for n in (start, length) if n is not None]
        case "left" | "right", count:
            return [_constant(str(count))]
        case "replace", (sought, put):
            return [_constant(quote(sought)), _constant(quote(put))]
        case "instr" | "rlike" | "split", sought:
            return [_constant(quote(sought))]
        case "has_token" | "has_all_tokens" | "has_any_token", tokens:
            return [_constant(quote(token)) for token in tokens]
        case "get_json_object", names:
            return [_constant(quote(path_text(names)))]
        case "trunc", unit:
            return [_constant(quote(unit))]
    return []


def _constant(sql: str) -> Typed:
    return Typed("literal", AtomicType(Root.INT), (), None, sql)


def _literal(term: Typed) -> str:
    text = python_literal(term.parameter)
    if term.function == "folded" and term.root in (*INTEGERS, Root.DECIMAL):
        return f"CAST({text} AS {term.type})"
    return text


# --- predicates -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Judged:
    """A predicate for indexes; ``exact``: it is TRUE for the same rows as its test, otherwise perhaps for more."""

    predicate: Predicate
    exact: bool = True


def judged_by_indexes(predicate: Predicate, judge: Callable[[Typed], Typed | None] = lambda term: term) -> Judged:
    """Replace the computed tests of a bound predicate by leaves about expressions, if indexes can evaluate them.

    ``judge`` maps a test's term to a file's columns, or returns None where it cannot.  A test that stays
    :class:`Computed` is judged by no index.
    """
    match predicate:
        case And(children) | Or(children):
            parts = [judged_by_indexes(c, judge) for c in children]
            combined = type(predicate)(tuple(p.predicate for p in parts))
            return Judged(combined, all(p.exact for p in parts))
        case Computed(test, negated):
            return judged_test(test, negated, judge) or Judged(predicate)
    return Judged(predicate)


def judged_test(
    test: RowTest, negated: bool = False, judge: Callable[[Typed], Typed | None] = lambda term: term
) -> Judged | None:
    """A test, or its negation, as a predicate that indexes evaluate; None if they cannot."""
    if not isinstance(test, RowsTest):
        return None
    if not negated and (test.term.function in CONTAINS or test.term.function == "size"):
        return _judged_members(test, judge)
    term = judge(test.term)
    expression = None if term is None else indexed_expression(term)
    if expression is None:
        return None
    if test.leaf is None:
        return Judged(Comparison(expression, Op.EQ, not negated))
    return None if negated else Judged(about(test.leaf, expression))


def _judged_members(test: RowsTest, judge: Callable[[Typed], Typed | None]) -> Judged | None:
    """A test of an array's elements or a map's keys: whether it contains a value, or is not empty."""
    whole = judge(test.term.arguments[0])
    if whole is None or member_type(whole.type) is None:
        return None
    expression = indexed_expression(members_of(whole))
    if expression is None:
        return None
    if test.term.function == "size":
        some = test.leaf in (Comparison(VALUE, Op.GT, 0), Comparison(VALUE, Op.GE, 1))
        return Judged(IsNull(expression, negated=True)) if some else None
    if test.leaf not in (None, Comparison(VALUE, Op.EQ, True)):
        return None  # FALSE and NULL depend on NULL members, which the index does not tell apart
    values = sorted({physical(value) for value in test.term.parameter})
    return Judged(Comparison(expression, Op.EQ, values[0]) if len(values) == 1 else In(expression, tuple(values)))


def about(leaf: Predicate, expression: IndexedExpression) -> Predicate:
    """A test of a term's value as a test of the expression."""
    match leaf:
        case And(children) | Or(children):
            return type(leaf)(tuple(about(c, expression) for c in children))
        case Comparison() | In() | Like() | IsNull():
            return replace(leaf, column=expression)
        case Constant():
            return leaf
    raise AssertionError(f"not a test of a value: {leaf}")
