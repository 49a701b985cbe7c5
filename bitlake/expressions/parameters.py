"""Parameters of SQL text, ``:name`` and ``?``, and Python values as literals of Spark SQL."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

from sqlglot import Token, TokenType

from bitlake.errors import InvalidRequest
from bitlake.expressions.literals import python_value
from bitlake.expressions.spark_dialect import caret, tokenize
from bitlake.expressions.sql_text import quote

Args: TypeAlias = Mapping[str, Any] | Sequence[Any]
"""Values of ``:name``, by name, or of ``?``, in order."""


class Expression(str):
    """SQL text that stands for a parameter as it is written."""


def with_values(text: str, args: Args) -> str:
    """The text with a literal for each parameter.

    Raises :class:`InvalidRequest` for a parameter without a value, and a value that has no literal.

    >>> with_values("status = :s AND amount > :least", {"s": "it's", "least": 5})
    "status = 'it\\'s' AND amount > 5"
    """
    parts: list[str] = []
    end = 0
    for start, stop, value in edits(text, tokenize(text), args):
        parts += (text[end:start], value)
        end = stop
    return "".join((*parts, text[end:]))


def edits(text: str, tokens: Sequence[Token], args: Args) -> list[tuple[int, int, str]]:
    """Where each parameter starts and ends, and its value as a literal."""
    if isinstance(args, str | bytes) or not isinstance(args, Mapping | Sequence):
        raise InvalidRequest("args is a mapping of names to values, or a list of values")
    return _by_name(text, tokens, args) if isinstance(args, Mapping) else _in_order(text, tokens, args)


def named_places(text: str, tokens: Sequence[Token]) -> Iterator[tuple[int, int, str]]:
    """Where the parameters ``:name`` start and end, and their names."""
    for sign, name in itertools.pairwise(tokens):
        word = text[name.start : name.end + 1]
        if sign.token_type is not TokenType.COLON or name.start != sign.end + 1 or not word.isidentifier():
            continue
        before = text[sign.start - 1 : sign.start]
        if before.isalnum() or before in ("_", "`", ")", "]"):
            continue  # v:path of a VARIANT
        yield sign.start, name.end + 1, word


def _by_name(text: str, tokens: Sequence[Token], args: Mapping[str, Any]) -> list[tuple[int, int, str]]:
    found = []
    for start, end, word in named_places(text, tokens):
        if word not in args:
            raise InvalidRequest(f"parameter ':{word}' has no value in args: {caret(text, start)}")
        found.append((start, end, literal(args[word])))
    return found


def _in_order(text: str, tokens: Sequence[Token], args: Sequence[Any]) -> list[tuple[int, int, str]]:
    marks = [t for t in tokens if t.token_type is TokenType.PLACEHOLDER]
    if len(marks) > len(args):
        place = caret(text, marks[len(args)].start)
        raise InvalidRequest(f"the text has {len(marks)} parameters, but args has {len(args)} values: {place}")
    return [(t.start, t.end + 1, literal(v)) for t, v in zip(marks, args, strict=False)]


def literal(value: Any) -> str:
    """A Python value as an SQL literal of the type that Spark's ``lit()`` gives it; raises :class:`InvalidRequest`."""
    if not isinstance(value, list | tuple | Mapping | bytearray):
        try:
            value = python_value(value)
        except ValueError as e:
            raise InvalidRequest(f"{value!r} cannot be a parameter's value: {e}") from e
    match value:
        case Expression():
            return str(value)
        case None:
            return "NULL"
        case bool():
            return str(value).upper()
        case int():
            made = str(value)  # Spark gives it the smallest type that holds it
        case float() if not math.isfinite(value):
            return f"CAST('{value}' AS DOUBLE)"
        case float():
            made = f"{value!r}D"
        case Decimal() if value.is_finite():
            whole, _, part = f"{abs(value):f}".partition(".")
            digits = max(len(whole.lstrip("0")) + len(part), 1)
            return f"CAST('{value:f}' AS DECIMAL({digits}, {len(part)}))"
        case str():
            return quote(value)
        case bytes() | bytearray():
            return f"X'{bytes(value).hex()}'"
        case _:
            return _time_or_nested(value)
    return f"({made})" if made.startswith("-") else made


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
