"""Clauses that several statements share: properties, PARTITION, LIKE, the arguments of CALL."""

from __future__ import annotations

from typing import Any

import sqlglot
from sqlglot import TokenType, exp
from sqlglot.errors import SqlglotError

from bitlake.errors import InvalidRequest
from bitlake.expressions.folding import NotConstant, constant
from bitlake.expressions.spark_dialect import SparkSql, caret
from bitlake.sql.statements import SqlNull
from bitlake.sql.text import STRINGS, Cursor


def properties(c: Cursor) -> dict[str, str]:
    """``('k' = 'v', a.b = 5, …)``: quoted or bare dotted keys; strings, numbers and booleans as values."""
    c.expect("(")
    out: dict[str, str] = {}
    while True:
        at = c.position
        key = _key(c)
        if key in out:
            raise InvalidRequest(f"property '{key}' is given twice at {caret(c.text, at)}")
        if not c.accept("="):
            c.accept("==")
        out[key] = _property_value(c, key)
        if not c.accept(","):
            break
    c.expect(")")
    return out


def property_keys(c: Cursor) -> tuple[str, ...]:
    """``('k', a.b, …)``."""
    c.expect("(")
    out = [_key(c)]
    while c.accept(","):
        out.append(_key(c))
    c.expect(")")
    return tuple(out)


def _key(c: Cursor) -> str:
    if c.kind() in STRINGS:
        # One token: 'k' 'v' is a key and its value, not one long key.
        c.i += 1
        return c.tokens[c.i - 1].text
    if c.kind() is TokenType.IDENTIFIER:
        return ".".join(c.parts("a property key"))
    # Bare keys may hold dots and dashes: everything up to a space or sign.
    start, first = c.position, c.i
    while not c.at_end and c.word() not in ("=", "==", ",", "(", ")") and c.kind() not in STRINGS:
        if c.i > first and c.position != c.end:
            break
        c.i += 1
    if c.i == first:
        c.fail("a property key, as in 'bucket' = '4'")
    return c.text[start : c.end]


def _property_value(c: Cursor, key: str) -> str:
    if c.kind() in STRINGS:
        return c.string()
    start = c.position
    c.accept("-")
    word = c.word()
    if word in ("TRUE", "FALSE"):
        c.i += 1
        return word.lower()
    if word and (word[0].isdigit() or word[0] == "."):
        c.until(",")
        return c.text[start : c.end]
    raise c.error(f"a value of property '{key}' in quotes, a number, TRUE or FALSE")


def partition_spec(c: Cursor, *, dynamic: bool = False) -> dict[str, Any]:
    """``(a = 1, b = 'x')``, and ``b`` alone (None) where ``dynamic``; NULL is :class:`SqlNull`."""
    c.expect("(")
    out: dict[str, Any] = {}
    while True:
        at = c.position
        name = c.name("a partition column")
        if name in out:
            raise InvalidRequest(f"partition column '{name}' is given twice at {caret(c.text, at)}")
        if c.accept("=") or c.accept("=="):
            value = _value(c)
            out[name] = SqlNull.NULL if value is None else value
        elif dynamic:
            out[name] = None
        else:
            c.fail(f"'=' and a value for partition column '{name}'")
        if not c.accept(","):
            break
    c.expect(")")
    return out


def like(c: Cursor) -> str | None:
    """``[LIKE] 'pattern'``."""
    if c.accept("LIKE"):
        return c.string("a pattern in quotes")
    return c.string() if c.kind() in STRINGS else None


def arguments(c: Cursor) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """``(1, 'x', name => value)``: positional ones first, then named (``=>`` or ``=``)."""
    c.expect("(")
    positional: list[Any] = []
    named: dict[str, Any] = {}
    while not c.looking_at(")"):
        at = c.position
        if c.word(1) in ("=>", "="):
            name = c.name("an argument name")
            c.i += 1
            if name.lower() in named:
                raise InvalidRequest(f"argument '{name}' is given twice at {caret(c.text, at)}")
            named[name.lower()] = _value(c)
        elif named:
            c.fail("a named argument (name => value) after the first named one")
        else:
            positional.append(_value(c))
        if not c.accept(","):
            break
    c.expect(")")
    return tuple(positional), named


def _value(c: Cursor) -> Any:
    """A constant expression as a Python value; ``map(…)`` a dict and ``array(…)`` a list."""
    start = c.position
    text = c.until(",")
    try:
        return _constant(sqlglot.parse_one(text, dialect=SparkSql))
    except (SqlglotError, NotConstant, RecursionError) as e:
        raise InvalidRequest(f"'{text}' is not a constant value: {caret(c.text, start)}") from e


def _constant(node: exp.Expr) -> Any:
    match node:
        case exp.Array():
            return [_constant(e) for e in node.expressions]
        case exp.VarMap():
            keys, values = node.args["keys"], node.args["values"]
            return dict(zip(_constant(keys), _constant(values), strict=True))
    return constant(node, "UTC")
