"""Parameters of a statement, ``:name`` and ``?``: literals take their places, as Spark substitutes them.

So a condition with parameters prunes as one with literals does, and statements that Spark never sees take them too.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from sqlglot import Token, TokenType

from bitlake.errors import InvalidRequest
from bitlake.expressions.spark_dialect import caret, tokenize
from bitlake.sql.text import Edit, spliced

Args = Mapping[str, Any] | Sequence[Any]
_INT_MAX = (1 << 31) - 1
_LONG_MAX = (1 << 63) - 1
_VARIABLE = re.compile(r"(?:(?:system\s*\.\s*)?session\s*\.\s*)?(`(?:[^`]|``)+`|[A-Za-z_]\w*)", re.I)
_CONSTANTS = frozenset(
    (
        "NULL",
        "TRUE",
        "FALSE",
        "CURRENT_DATE",
        "CURRENT_TIME",
        "CURRENT_TIMESTAMP",
        "CURRENT_USER",
        "SESSION_USER",
        "USER",
    )
    + ("LOCALTIMESTAMP", "CURRENT_CATALOG", "CURRENT_DATABASE", "CURRENT_SCHEMA")
)
"""Words that are values without brackets."""


def bind_parameters(text: str, args: Args) -> str:
    """The text with each parameter replaced: ``:name`` by a mapping's values, ``?`` by those of a list, in order.

    Values are Python's, or :class:`SqlText` for an expression as written.  Raises :class:`InvalidRequest` for a
    parameter without a value, and a value that has no SQL literal.
    """
    if isinstance(args, str | bytes):
        raise InvalidRequest("args is a mapping of names to values, or a list of values")
    tokens = tokenize(text)
    return spliced(text, _named(text, tokens, args) if isinstance(args, Mapping) else _positional(text, tokens, args))


def has_named(text: str) -> bool:
    """Whether a statement has parameters ``:name``."""
    return any(True for _ in _named_places(text, tokenize(text)))


def variable_name(expression: str) -> str | None:
    """The name of the session variable that an expression is; None for other expressions."""
    found = _VARIABLE.fullmatch(expression.strip())
    if found is None or found.group(1).upper() in _CONSTANTS:
        return None
    name = found.group(1)
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def in_brackets(expression: str) -> str:
    """The expression in brackets, unless it is one literal: Spark joins strings that stand side by side."""
    return expression if len(tokenize(expression)) == 1 else f"({expression})"


def _named_places(text: str, tokens: Sequence[Token]) -> Iterator[tuple[int, int, str]]:
    """Where the parameters ``:name`` begin and end, and their names."""
    for sign, name in itertools.pairwise(tokens):
        word = text[name.start : name.end + 1]
        if sign.token_type is not TokenType.COLON or name.start != sign.end + 1 or not word.isidentifier():
            continue
        before = text[sign.start - 1 : sign.start]
        if before.isalnum() or before in ("_", "`", ")", "]"):
            continue  # v:path of a VARIANT
        yield sign.start, name.end + 1, word


def _named(text: str, tokens: Sequence[Token], args: Mapping[str, Any]) -> list[Edit]:
    edits = []
    for start, end, word in _named_places(text, tokens):
        if word not in args:
            raise InvalidRequest(f"parameter ':{word}' has no value in args: {caret(text, start)}")
        edits.append((start, end, literal(args[word])))
    return edits


def _positional(text: str, tokens: Sequence[Token], args: Sequence[Any]) -> list[Edit]:
    marks = [t for t in tokens if t.token_type is TokenType.PLACEHOLDER]
    if len(marks) > len(args):
        raise InvalidRequest(f"{len(marks)} parameters, but {len(args)} values: {caret(text, marks[len(args)].start)}")
    return [(t.start, t.end + 1, literal(v)) for t, v in zip(marks, args, strict=False)]


class SqlText(str):
    """A parameter's value that is an SQL expression."""


def literal(value: Any) -> str:
    """A Python value as an SQL literal of the type that Spark's ``lit()`` gives it; raises :class:`InvalidRequest`."""
    if hasattr(value, "item") and not isinstance(value, list | tuple | Mapping):
        value = value.item()  # a scalar of numpy's
    match value:
        case SqlText():
            return str(value)
        case None:
            return "NULL"
        case bool():
            return str(value).upper()
        case int():
            made = str(abs(value)) + ("L" if _INT_MAX < abs(value) <= _LONG_MAX else "")
        case float() if not math.isfinite(value):
            return f"CAST('{value}' AS DOUBLE)"
        case float():
            made = f"{abs(value)!r}D"
        case Decimal() if value.is_finite():
            exponent = value.as_tuple().exponent
            scale = max(0, -exponent) if isinstance(exponent, int) else 0
            digits = max(
                len(value.as_tuple().digits) + max(0, value.adjusted() + 1 - len(value.as_tuple().digits)), scale
            )
            return f"CAST('{value:f}' AS DECIMAL({digits}, {scale}))"
        case str():
            return _quoted(value)
        case bytes() | bytearray():
            return f"X'{bytes(value).hex()}'"
        case _:
            return _time_or_nested(value)
    return f"({'-' + made})" if math.copysign(1, value) < 0 else made


def _time_or_nested(value: Any) -> str:
    match value:
        case dt.datetime():
            instant = value.astimezone(dt.UTC)  # without a zone: a wall clock of this machine, as PySpark takes it
            return f"TIMESTAMP '{instant.isoformat(sep=' ')}'"
        case dt.date():
            return f"DATE '{value.isoformat()}'"
        case dt.timedelta():
            micros = value // dt.timedelta(microseconds=1)
            seconds, rest = divmod(abs(micros), 1_000_000)
            clock = f"{seconds // 86400} {seconds // 3600 % 24:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest:06}"
            return f"INTERVAL '{'-' if micros < 0 else ''}{clock}' DAY TO SECOND"
        case list() | tuple():
            return f"array({', '.join(map(literal, value))})"
        case Mapping():
            return f"map({', '.join(f'{literal(k)}, {literal(v)}' for k, v in value.items())})"
    raise InvalidRequest(f"{value!r} is of type {type(value).__name__}, which cannot be a parameter's value")


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
