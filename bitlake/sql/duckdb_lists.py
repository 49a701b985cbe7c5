"""IN, AND and OR of Spark SQL → DuckDB's.  Long lists of constants, and of tuples, are tables that a query names.

DuckDB parses and optimises a list in a text slowly, and OR of terms like ``a = 1 AND c = 2`` in quadratic time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
from sqlglot import exp

from bitlake.expressions.folding import NotConstant
from bitlake.expressions.literal_lists import LiteralList, list_of
from bitlake.expressions.term_groups import MANY
from bitlake.expressions.term_parser import tuple_columns, tuple_fields
from bitlake.sql import spark_types as ty
from bitlake.sql.duckdb_expressions import Expressions, alike, check_operands, named, padded, translates, why_apart
from bitlake.sql.duckdb_values import NotTranslatable, Value, cast_sql, widen
from bitlake.types import arrow_type


@translates(exp.And, exp.Or)
def _logic(e: Expressions, node: exp.And | exp.Or) -> Value:
    word = f" {'AND' if isinstance(node, exp.And) else 'OR'} "
    # Of the whole chain, whose nodes are as deep as it is long.
    operands = list(node.flatten(unnest=False))
    groups: list[Value] = []
    if e.selects and isinstance(node, exp.Or) and len(operands) >= MANY:
        operands, groups = _without_tuples(e, operands)
    terms = [e.require(node, e.value(o), "BOOLEAN") for o in operands] + groups
    more = len(terms) - 1
    name = named("(" * more + "{}" + f"{word}{{}})" * more, *terms)
    return Value(f"({word.join(t.sql for t in terms)})", ty.BOOLEAN, name)


def _without_tuples(e: Expressions, operands: Sequence[exp.Expr]) -> tuple[list[exp.Expr], list[Value]]:
    """The operands of OR without those like ``(a = 1 AND c = 2)``, and these as lists of tuples.

    DuckDB optimises OR of such terms in quadratic time.
    """
    by_columns: dict[tuple[str, ...], list[tuple[exp.Expr, dict[str, tuple[exp.Column, int | str]]]]] = {}
    for operand in operands:
        compared = _compared(operand)
        if compared is not None:
            by_columns.setdefault(tuple(sorted(compared)), []).append((operand, compared))
    listed: set[int] = set()
    groups: list[Value] = []
    for key, group in by_columns.items():
        values = e.values([group[0][1][name][0] for name in key])
        columns = [[compared[name][1] for _, compared in group] for name in key]
        if len(group) >= MANY and all(map(_holds_types, columns, values)):
            sql = [cast_sql(v.sql, ty.BIGINT) if v.type.is_integer else v.sql for v in values]
            groups.append(_is_listed(e, sql, [pa.array(c) for c in columns]))
            listed.update(id(operand) for operand, _ in group)
    return [o for o in operands if id(o) not in listed], groups


def _compared(term: exp.Expr) -> dict[str, tuple[exp.Column, int | str]] | None:
    """The columns that an AND compares with one number or text each, by their text; None for another term."""
    inner = term.unnest()
    if not isinstance(inner, exp.And):
        return None
    compared: dict[str, tuple[exp.Column, int | str]] = {}
    for part in inner.flatten():
        column, literal = (part.this, part.expression) if isinstance(part, exp.EQ) else (None, None)
        if isinstance(column, exp.Literal):
            column, literal = literal, column
        if not isinstance(column, exp.Column) or not isinstance(literal, exp.Literal):
            return None
        name = ".".join(part.name for part in column.parts)
        written = str(literal.this)
        if name in compared or not (literal.is_string or (written.isdecimal() and len(written) <= _INTEGER_DIGITS)):
            return None
        compared[name] = column, written if literal.is_string else int(written)
    return compared


_INTEGER_DIGITS = 18
"""Whole numbers of this many digits are BIGINT or narrower."""


def _holds_types(constants: Sequence[int | str], value: Value) -> bool:
    """Whether a column is compared with constants as they are, by both engines."""
    kinds = set(map(type, constants))
    return kinds == {int} if value.type.is_integer else kinds == {str} and value.type == ty.STRING and not value.char


def _is_listed(e: Expressions, values: Sequence[str], columns: Sequence[pa.Array]) -> Value:
    """Whether values, some of which may be NULL, are a tuple of a list; NULL equals NULL."""
    table = pa.table(list(columns), [f"v{i}" for i in range(len(columns))])
    digest = hashlib.blake2b(digest_size=16)
    for batch in table.to_batches():
        digest.update(batch.serialize())
    name = f"lake_list_{digest.hexdigest()}"
    e.lists[name] = table
    listed = ", ".join(table.column_names)
    return Value(f"(row({', '.join(values)}) IN (SELECT row({listed}) FROM {name}))", ty.BOOLEAN)


def _in_tuples(e: Expressions, node: exp.In) -> Value:
    """``(a, b) IN ((1, 2), …)``, which both engines compare null-safely if the types are equal."""
    fields = tuple_fields(node.this)
    values = e.values(fields)
    try:
        columns = tuple_columns(list_of(node) or node.expressions, len(fields), e.timezone)
    except NotConstant as error:
        raise NotTranslatable(node, "only constants of equal types are compared in tuples") from error
    arrays = []
    for value, (constants, kind) in zip(values, columns, strict=True):
        if kind is None or value.char or value.type == ty.OPAQUE or ty.of_column(kind) != value.type:
            raise NotTranslatable(node, "Spark compares tuples of equal types only")
        arrays.append(pa.array(constants, arrow_type(kind)))
    made = _is_listed(e, [v.sql for v in values], arrays)
    return replace(made, sql=f"(NOT {made.sql})") if node.args.get("negate") else made


@translates(exp.In, args="this expressions query negate")
def _in(e: Expressions, node: exp.In) -> Value:
    query = node.args.get("query")
    if isinstance(node.this.unnest(), exp.Tuple):
        if query is not None:
            raise NotTranslatable(node, "IN with tuples and a query is not translated")
        return _in_tuples(e, node)
    check_operands(node, node.this)
    value, name, cut = e.value(node.this), None, list_of(node)
    if query is not None:
        if not _is_condition(node):
            if isinstance(node.find_ancestor(exp.Join, exp.Select), exp.Join):
                raise NotTranslatable(node, "in ON, Spark takes NULL for FALSE before it negates")
            raise NotTranslatable(node, "as a value it is never NULL in Spark")
        sql, columns = e.query(query, replace(e.scope, grouped=e.keys is not None))
        if len(columns) != 1:
            raise NotTranslatable(node, "a subquery must have one column here")
        kind = ty.common_type((value.type, columns[0].type)) or ty.OPAQUE
        if (
            kind == ty.OPAQUE
            or value.char
            or columns[0].char
            or (value.type != columns[0].type and kind == ty.TIMESTAMP)
        ):
            raise NotTranslatable(node, why_apart({value.type, columns[0].type}))
        inner = Value('i."c0"', columns[0].type)
        listed = sql if inner.type == kind else f"SELECT {widen(node, inner, kind)} FROM ({sql}) AS i"
        made = f"({widen(node, replace(value, literal=None), kind)} IN ({listed}))"
    elif cut is not None and _holds_type(cut, value):
        e.lists[cut.table] = pa.table({"v": cut.array})
        made = f"({value.sql} IN (SELECT v FROM {cut.table}))"
    else:
        options = e.values(node.expressions if cut is None else cut.literals())
        (first, *rest), _ = alike(node, padded(node, [value, *options]))
        made = f"({first} IN ({', '.join(rest)}))"
        name = named(f"({{}} IN ({', '.join('{}' for _ in options)}))", value, *options)
    if node.args.get("negate"):
        return Value(f"(NOT {made})", ty.BOOLEAN, None if name is None else f"(NOT {name})")
    return Value(made, ty.BOOLEAN, name)


def _is_condition(node: exp.In) -> bool:
    """Whether it matters only if an IN with a query is TRUE, not whether it is FALSE or NULL.

    So it is as a term of WHERE, HAVING, ON or WHEN; but in ON Spark takes NULL for FALSE, before NOT, too.
    """
    negated = bool(node.args.get("negate"))
    term: exp.Expr = node
    parent = node.parent
    while isinstance(parent, exp.And | exp.Or | exp.Not | exp.Paren):
        negated = negated or isinstance(parent, exp.Not)
        term, parent = parent, parent.parent
    if negated and isinstance(node.find_ancestor(exp.Join, exp.Select), exp.Join):
        return False
    if isinstance(parent, exp.If):
        case = parent.parent
        return parent.this is term and not (isinstance(case, exp.Case) and case.this is not None)
    return isinstance(parent, exp.Where | exp.Having | exp.Join)


def _holds_type(values: LiteralList, value: Value) -> bool:
    """Whether a value is compared with a list's literals as they are, by both engines."""
    if not values.is_plain:
        return False
    return value.type.is_integer if isinstance(values.values[0], int) else value.type == ty.STRING and not value.char
