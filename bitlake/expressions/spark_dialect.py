"""Spark SQL as sqlglot reads it, corrected to what Spark 4 does.

Since Spark 4.0 a doubled quote inside a quoted string is one quote character (``'it''s'`` is ``it's``), as in the
standard; sqlglot's Spark dialect reads it as two adjoining strings.  Adjoining strings (``'a' 'b'``) stay one
concatenated literal in both.

Parameters, ``:name`` and ``?``, are replaced by Python values as literals of Spark SQL (:func:`with_values`).

sqlglot takes 50 to 300 µs to parse a literal, so long lists in ``IN (…)`` are read without it.  :func:`without_lists`
cuts lists of numbers, strings, dates, timestamps, binaries and NULL out of a text and puts a marker, made of the list's
digest, in place of each.  The parser then meets ``x IN ('<marker>')``.  :func:`take_lists` puts a :class:`ListNode` in
the tree there, which only code that knows the list can use.  A list is found by its marker inside of :func:`reading`.
:func:`with_lists` is the text as it was written.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import Decimal
from types import MappingProxyType
from typing import Any, ClassVar, TypeAlias

import sqlglot
from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError

from bitlake.errors import InvalidRequest
from bitlake.expressions.folding import cast, constant, negative, number_of
from bitlake.expressions.literals import python_value
from bitlake.expressions.sql_text import quote
from bitlake.types import time_zone


class SparkSql(Spark):
    """The dialect that every SQL text given to bitlake is read with."""

    class Tokenizer(Spark.Tokenizer):
        """Spark's tokens, with doubled quotes."""

        STRING_ESCAPES = ["'", '"', "\\"]  # noqa: RUF012 (sqlglot's own way of declaring it)

        # Left empty, so that the rest of CALL, SHOW and the like is tokens too, not one string.
        COMMANDS: ClassVar[set[TokenType]] = set()

    class Parser(Spark.Parser):  # type: ignore[misc, valid-type]  # where it is defined depends on the version
        """Spark's statements; those that only Spark itself can read (SET) are not warned of."""

        def _warn_unsupported(self) -> None:
            return

    def to_json_path(self, path: exp.Expr | None) -> exp.Expr | None:
        """Keep the path of ``get_json_object`` as it is written: sqlglot accepts paths that Spark refuses."""
        return path


SPARK_SQL = SparkSql()


def tokenize(text: str) -> list[Token]:
    """The tokens of a text, with their positions; raises :class:`InvalidRequest` for an unclosed quote or comment."""
    try:
        return SPARK_SQL.tokenize(text)
    except SqlglotError as e:
        raise InvalidRequest(f"cannot read the SQL: {plain(str(e))}") from e


def caret(text: str, position: int) -> str:
    """``line L, column C`` of a position and, below, its line with a caret under it."""
    position = max(0, min(position, len(text)))
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    line = text[start : len(text) if end < 0 else end]
    number = text.count("\n", 0, position) + 1
    return f"line {number}, column {position - start + 1}\n  {line}\n  {' ' * (position - start)}^"


def syntax_error(error: SqlglotError, text: str) -> InvalidRequest:
    """Our error for one of sqlglot's, showing where in ``text`` it is."""
    if isinstance(error, ParseError) and error.errors:
        first = error.errors[0]
        what = str(first.get("description") or "invalid syntax").rstrip(".")
        what = (
            "a part is missing" if what.startswith("Required keyword") else what.replace("Invalid expression / U", "u")
        )
        line, column = first.get("line"), first.get("col")
        if isinstance(line, int) and isinstance(column, int):
            width = len(str(first.get("highlight") or ""))
            lines = text.split("\n")
            before = sum(len(one) + 1 for one in lines[: line - 1])
            return InvalidRequest(f"{what}: {caret(text, before + max(0, column - max(1, width)))}")
        return InvalidRequest(f"{what}: {text}")
    return InvalidRequest(f"cannot read the SQL: {plain(str(error))}")


def plain(message: str) -> str:
    """A message of sqlglot's without its terminal underlining."""
    return message.replace("\x1b[4m", "").replace("\x1b[0m", "")


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
    named = []
    for start, end, word in named_places(text, tokens):
        if word not in args:
            raise InvalidRequest(f"parameter ':{word}' has no value in args: {caret(text, start)}")
        named.append((start, end, literal(args[word])))
    return named


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
            whole, _, part = f"{value.copy_abs():f}".partition(".")
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
            instant = time_zone.in_utc(value)  # without a zone: a wall clock of this machine, as PySpark takes it
            return f"TIMESTAMP '{instant.isoformat(sep=' ')}'"
        case dt.date():
            return f"DATE '{value.isoformat()}'"
        case dt.timedelta():
            micros = value // dt.timedelta(microseconds=1)
            seconds, rest = divmod(abs(micros), 1_000_000)
            clock = f"{seconds // 86400} {seconds // 3600 % 24:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest:06}"
            return f"INTERVAL '{'-' if micros < 0 else ''}{clock}' DAY TO SECOND"
        case tuple() if (names := getattr(value, "__fields__", None)) and len(names) == len(value):  # Spark's Row
            members = zip(names, value, strict=True)
            return f"named_struct({', '.join(f'{quote(n)}, {literal(v)}' for n, v in members)})"
        case list() | tuple():
            return f"array({', '.join(map(literal, value))})"
        case Mapping():
            return f"map({', '.join(f'{literal(k)}, {literal(v)}' for k, v in value.items())})"
    raise InvalidRequest(f"{value!r} is of type {type(value).__name__}, which cannot be a parameter's value")


_LEAST_CHARACTERS = 500
"""The parser reads shorter lists."""
_MARK = "\ue000"
_MARKER = re.compile(f"'({_MARK}[0-9a-f]{{32}})'")
_RAW_STRING = re.compile(r"\br['\"]", re.I)
_RAW_STARTS = ("r'", "R'", 'r"', 'R"')
"""A text with a raw string contains one of these; this test is faster than the pattern."""
_STRING = r"'[^'\\]*+(?:''[^'\\]*+)*'"
_NAMED = rf"(?:[A-Za-z_]++(?:\s*+{_STRING})?|{_STRING})"
_PIECE = re.compile(
    rf"""  '(?:[^'\\]|\\.)*+'
        | "(?:[^"\\]|\\.)*+"
        | `[^`]*+`
        | --[^\n]*+
        | /\*.*?\*/
        | (?P<head>\bIN\s*\()(?P<list>[-0-9A-Za-z.,\s]++|\s*+{_NAMED}(?:\s*+,\s*+{_NAMED})*\s*+)(?=\))""",
    re.I | re.S | re.X,
)
# No possessive repeat of a group that can fail half-way: before Python 3.11.5 it takes that half for a match.
_NUMBERS = re.compile(r"\s*-?[0-9]{1,18}\s*(?:,\s*-?[0-9]{1,18}\s*)*")
_STRINGS = re.compile(rf"\s*+{_STRING}\s*+(?:,\s*+{_STRING}\s*+)*")
_TEXT = re.compile(r"'([^']*+(?:''[^']*+)*)'")
_NUMBER, _WORD = r"[0-9]++(?:\.[0-9]++)?", r"X|DATE|TIMESTAMP(?:_NTZ|_LTZ)?"
_ELEMENT = re.compile(rf"(-?+)\s*+({_NUMBER})([LSYDF]?)|(?:({_WORD})\s*+)?{_TEXT.pattern}|(NULL)", re.I)
# Blanks are possessive: two ways to share them between neighbours would be 2**n for n literals.
_ANY = rf"\s*+(?:-?+\s*+{_NUMBER}[LSYDF]?|(?:(?:{_WORD})\s*+)?{_STRING}|NULL)\s*+"
_ELEMENTS = re.compile(f"{_ANY}(?:,{_ANY})*", re.I)
_TIMESTAMP = re.compile(r"\bTIMESTAMP\s*'", re.I)


class LiteralList(str):
    """A list that was cut out of a text: the marker in its place, with the text and the values of the list."""

    text: str
    values: tuple[int, ...] | tuple[str, ...]
    """The values of a list of whole numbers or of strings; none for one of other literals."""

    def __new__(cls, marker: str, text: str, values: tuple[int, ...] | tuple[str, ...]) -> LiteralList:
        """The list of a marker."""
        made = super().__new__(cls, marker)
        made.text, made.values = text, values
        return made

    @property
    def table(self) -> str:
        """The name of a table of the values."""
        return f"lake_list_{self[1:]}"

    def constants(self, timezone: str) -> tuple[Any, ...]:
        """The values as :func:`bitlake.expressions.folding.constant` gives them; raises :class:`NotConstant`."""
        return self.values or tuple(_constants(self.text, timezone))

    def literals(self) -> list[exp.Expr]:
        """The values as nodes of a tree."""
        if not self.values:
            return list(sqlglot.parse_one(f"x IN ({self.text})", dialect=SparkSql).expressions)
        return [exp.Literal.number(v) if isinstance(v, int) else exp.Literal.string(v) for v in self.values]


class ListNode(exp.Expression, exp.Func):
    """Stands in a tree for the literals of a :class:`LiteralList`, which is its ``this``."""

    arg_types = {"this": True}  # noqa: RUF012 (sqlglot's own way of declaring it)
    _sql_names = ["LITERAL_LIST"]  # noqa: RUF012


_READ: ContextVar[Mapping[str, LiteralList]] = ContextVar(
    "lists of the text that is read", default=MappingProxyType({})
)
"""By their markers."""


@contextmanager
def reading(lists: Sequence[LiteralList]) -> Iterator[None]:
    """Find lists by their markers while a text is read from which they were cut."""
    before = _READ.set({**_READ.get(), **{made: made for made in lists}})
    try:
        yield
    finally:
        _READ.reset(before)


def list_of(node: exp.In) -> LiteralList | None:
    """The list of ``x IN (…)`` whose literals were cut out, or None."""
    only = node.expressions[0] if len(node.expressions) == 1 else None
    return only.args["this"] if isinstance(only, ListNode) else None


def take_lists(tree: exp.Expr) -> int:
    """Put a :class:`ListNode` in place of each marker in ``x IN ('<marker>')``; returns how many there were."""
    held = _READ.get()
    nodes = [n for n in tree.find_all(exp.In) if len(n.expressions) == 1]
    marked = [(n, one) for n in nodes if isinstance(one := n.expressions[0], exp.Literal) and one.this in held]
    for node, literal in marked:
        node.set("expressions", [ListNode(this=held[literal.this])])
    return len(marked)


def has_markers(text: str) -> bool:
    """Whether a text may have markers of lists."""
    return _MARK in text


def count_markers(text: str) -> int:
    """The number of markers in a text whose lists are known."""
    held = _READ.get()
    return sum(m[1] in held for m in _MARKER.finditer(text)) if _MARK in text else 0


def with_lists(text: str) -> str:
    """A text with its lists in the places of their markers."""

    held = _READ.get()

    def written(match: re.Match[str]) -> str:
        found = held.get(match[1])
        return match[0] if found is None else found.text

    return _MARKER.sub(written, text) if _MARK in text else text


def without_lists(text: str, *, wall_clocks: bool = True) -> tuple[str, tuple[LiteralList, ...]]:
    """A text with markers in place of long lists, and the lists; as it is, without lists, where the cut might be wrong.

    The caller reads the text inside of :func:`reading`.  ``wall_clocks`` False leaves ``TIMESTAMP '…'`` in the text,
    for callers to whom a setting may make it a TIMESTAMP_NTZ.

    >>> text, lists = without_lists(f"a IN ({', '.join(['7'] * 1000)}) AND b > 1")
    >>> text == f"a IN ('{lists[0]}') AND b > 1"
    True
    """
    if len(text) < _LEAST_CHARACTERS or _MARK in text:
        return text, ()
    if any(start in text for start in _RAW_STARTS) and _RAW_STRING.search(text):
        return text, ()
    lists: list[LiteralList] = []
    parts, end = [], 0
    for piece in _PIECE.finditer(text):
        inside = piece["list"]
        values = None if inside is None or len(inside) < _LEAST_CHARACTERS else _values(inside)
        if values is not None and (wall_clocks or values or not _TIMESTAMP.search(inside)):
            marker = _MARK + hashlib.blake2b(inside.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
            lists.append(LiteralList(marker, inside, values))
            parts += [text[end : piece.start("list")], f"'{marker}'"]
            end = piece.end("list")
    return "".join([*parts, text[end:]]), tuple(lists)


def _values(inside: str) -> tuple[int, ...] | tuple[str, ...] | None:
    """The values of a list of whole numbers or strings, none for one of other literals, None for other expressions."""
    if _NUMBERS.fullmatch(inside):
        return tuple(map(int, inside.split(",")))
    if _STRINGS.fullmatch(inside):
        texts = _TEXT.findall(inside)
        return tuple(text.replace("''", "'") for text in texts) if "''" in inside else tuple(texts)
    return () if _ELEMENTS.fullmatch(inside) else None


def _constants(inside: str, timezone: str) -> Iterator[Any]:
    types: dict[str, exp.DataType] = {}

    def type_of(prefix: str, suffix: str) -> exp.DataType:
        kind = types.get(prefix + suffix)
        if kind is None:
            node = sqlglot.parse_one(f"{prefix} ''" if prefix else f"1{suffix}", dialect=SparkSql)
            kind = types[prefix + suffix] = node.args["to"]
        return kind

    for sign, number, suffix, word, text, null in _ELEMENT.findall(inside):
        if null:
            yield None
        elif number:
            value = number_of(number)
            value = cast(value, type_of("", suffix), timezone) if suffix else value
            yield negative(value) if sign else value
        elif word in ("X", "x"):
            yield constant(exp.HexString(this=text), timezone)
        else:
            text = text.replace("''", "'")
            yield cast(text, type_of(word, ""), timezone) if word else text
