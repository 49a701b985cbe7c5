"""Tests of arrays and maps, and values of maps → DuckDB's; arrays are columns, what they hold, and pieces of texts.

A test is NULL where Spark's is: where the array is NULL, or does not hold the value but a NULL.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from bitlake.expressions.folding import NotConstant, constant
from bitlake.sql import spark_types as ty
from bitlake.sql.duckdb_expressions import Expressions, call_name, exists_subquery, named, translates
from bitlake.sql.duckdb_values import NotTranslatable, Value, stored_value
from bitlake.types.datatypes import ArrayType, DataType, MapType

_SOUGHT = frozenset({"BOOLEAN", "STRING", "DATE", "TIMESTAMP"})
"""Types of elements, beside integers, that both engines compare alike; floating numbers have NaN and -0.0."""


@translates(exp.ArrayContains, args="this expression")
def _array_contains(e: Expressions, node: exp.ArrayContains) -> Value:
    array, sought = e.value(node.this), _constant(e, node, node.expression)
    return _holds(node, array, [sought]).named(named("array_contains({}, {})", array, sought))


@translates(exp.MapContainsKey, args="this key")
def _map_contains_key(e: Expressions, node: exp.MapContainsKey) -> Value:
    value, key = e.value(node.this), _constant(e, node, node.args["key"])
    _check(node, _map(node, value).key, key)
    return Value(f"map_contains({value.sql}, {key.sql})", ty.BOOLEAN, named("map_contains_key({}, {})", value, key))


@translates(exp.Exists, args="this expression")
def _exists(e: Expressions, node: exp.Exists) -> Value:
    match node.expression:
        case None:
            return exists_subquery(e, node)
        case exp.Lambda(expressions=[exp.Identifier() as element], this=test):
            pass
        case _:
            raise NotTranslatable(node, "only tests of an element alone are known to mean the same")

    def is_element(part: exp.Expr) -> bool:
        return isinstance(part, exp.Identifier) and part.name.lower() == element.name.lower()

    match test:
        case exp.EQ(this=one, expression=other) if is_element(one) != is_element(other):
            return _holds(node, e.value(node.this), [_constant(e, node, other if is_element(one) else one)])
        case exp.In(this=one, expressions=[_, *_] as others) if is_element(one) and not test.args.get("query"):
            return _holds(node, e.value(node.this), [_constant(e, node, other) for other in others])
    raise NotTranslatable(node, "only = and IN of an element are known to mean the same")


def arrays_overlap(e: Expressions, node: exp.Anonymous) -> Value:
    """The translation of ``arrays_overlap(column, array(…))``, with an array of constants."""
    match node.expressions:
        case [array, exp.Array(expressions=[_, *_] as others)]:
            return _holds(node, e.value(array), [_constant(e, node, other) for other in others])
    raise NotTranslatable(node, "only an array of constants is known to mean the same")


@translates(exp.ArraySize, args="this")
def _size(e: Expressions, node: exp.ArraySize) -> Value:
    value = e.value(node.this)
    if not isinstance(value.nested, ArrayType | MapType):
        raise NotTranslatable(node, "it is not a column of arrays or maps")
    count = "len" if isinstance(value.nested, ArrayType) else "cardinality"
    return Value(f"CAST({count}({value.sql}) AS INTEGER)", ty.INT, call_name(e, node, value))


@translates(exp.Bracket, args="this expressions offset")
def _map_value(e: Expressions, node: exp.Bracket) -> Value:
    value = e.value(node.this)
    kind = _map(node, value)
    key = _constant(e, node, node.expressions[0])
    _check(node, kind.key, key)
    name = named("{}[{}]", value, key)
    return stored_value(f"map_extract_value({value.sql}, {key.sql})", kind.value, "").named(name)


def _holds(node: exp.Expr, array: Value, sought: Sequence[Value]) -> Value:
    """Whether an array holds one of some constants."""
    if not isinstance(array.nested, ArrayType):
        raise NotTranslatable(node, "it is not a column of arrays")
    for value in sought:
        _check(node, array.nested.element, value)
    found = f"list_has_any({array.sql}, [{', '.join(v.sql for v in sought)}])"
    unknown = f"len({array.sql}) > list_count({array.sql})"
    return Value(
        f"CASE WHEN {array.sql} IS NULL THEN NULL WHEN {found} THEN TRUE WHEN {unknown} THEN NULL ELSE FALSE END",
        ty.BOOLEAN,
    )


def _constant(e: Expressions, node: exp.Expr, sought: exp.Expr) -> Value:
    """The value of a constant; raises :class:`NotTranslatable` for others."""
    try:
        known = constant(sought, e.timezone) is not None
    except NotConstant:
        known = False
    if not known:
        raise NotTranslatable(node, "only constants are known to mean the same")
    return e.value(sought)


def _map(node: exp.Expr, value: Value) -> MapType:
    if not isinstance(value.nested, MapType):
        raise NotTranslatable(node, "it is not a column of maps")
    return value.nested


def _check(node: exp.Expr, kind: DataType, sought: Value) -> None:
    """Raise :class:`NotTranslatable` unless a constant compares with stored values of a type as in Spark."""
    stored = stored_value("", kind, "")
    integers = stored.type.is_integer and sought.type.is_integer
    if not integers and (stored.type != sought.type or stored.type.kind not in _SOUGHT or stored.char):
        raise NotTranslatable(node, f"it differs for {sought.type.sql} among values of type {kind}")
