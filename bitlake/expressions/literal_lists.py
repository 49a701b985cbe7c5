"""Long lists of literals in ``IN (…)``, read without the parser.

sqlglot takes 50 to 300 µs to parse a literal.  :func:`without_lists` cuts lists of numbers, strings, dates,
timestamps, binaries and NULL out of a text and puts a marker, made of the list's digest, in place of each.  The parser
then meets ``x IN ('<marker>')``.  :func:`take_lists` puts a :class:`ListNode` in the tree there, which only code that
knows the list can use.  A list is found by its marker inside of :func:`reading`. :func:`with_lists` is the text as it
was written.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from types import MappingProxyType
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from bitlake.errors import InvalidRequest
from bitlake.expressions.folding import cast, constant, negative, number_of
from bitlake.expressions.spark_dialect import SparkSql
from bitlake.lazy_modules import pyarrow as pa

_LEAST_CHARACTERS = 500
"""The parser reads shorter lists."""
_MARK = "\ue000"
_MARKER = re.compile(f"'({_MARK}[0-9a-f]{{32}})'")
_RAW_STRING = re.compile(r"\br['\"]", re.I)
_RAW_STARTS = ("r'", "R'", 'r"', 'R"')
"""A text with a raw string contains one of these; this test is faster than the pattern."""
_STRING = r"'[^'\\]*+(?:''[^'\\]*+)*'"
_SHAPE = rf"(?:[A-Za-z_]++(?:\s*+{_STRING})?|{_STRING})"
_PIECE = re.compile(
    rf"""  '(?:[^'\\]|\\.?)*+(?:'|\Z)
        | "(?:[^"\\]|\\.?)*+(?:"|\Z)
        | `[^`]*+(?:`|\Z)
        | --[^\n]*+
        | /\*.*?(?:\*/|\Z)
        | (?P<head>\bIN\s*\()(?P<list>[-0-9A-Za-z.,\s]++|\s*+{_SHAPE}(?:\s*+,\s*+{_SHAPE})*\s*+)(?=\))""",
    re.I | re.S | re.X,
)
# No possessive repeat of a group that can fail half-way: before Python 3.11.5 it takes that half for a match.
_NUMBERS = re.compile(r"\s*-?[0-9]{1,18}\s*(?:,\s*-?[0-9]{1,18}\s*)*")
_STRINGS = re.compile(rf"\s*+{_STRING}\s*+(?:,\s*+{_STRING}\s*+)*")
_TEXT = re.compile(r"'([^']*+(?:''[^']*+)*)'")
_HEX = r"(X'[0-9A-Fa-f]*+')"
_NUMBER, _WORD = r"[0-9]++(?:\.[0-9]++)?", r"DATE|TIMESTAMP(?:_NTZ|_LTZ)?"
_LITERAL_PARTS = re.compile(rf"(-?+)\s*+({_NUMBER})([LSYDF]?)|(?:({_WORD})\s*+)?{_TEXT.pattern}|{_HEX}|(NULL)", re.I)
# Blanks are possessive: two ways to share them between neighbours would be 2**n for n literals.
_LITERAL = rf"\s*+(?:-?+\s*+{_NUMBER}[LSYDF]?|(?:(?:{_WORD})\s*+)?{_STRING}|{_HEX}|NULL)\s*+"
_LITERALS = re.compile(f"{_LITERAL}(?:,{_LITERAL})*", re.I)
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
    def is_plain(self) -> bool:
        """Whether the list has only whole numbers or only strings, so that an engine can take it as a table."""
        return bool(self.values)

    @cached_property
    def array(self) -> pa.Array:
        """The values of a plain list as an Arrow array."""
        return pa.array(self.values)

    @property
    def table(self) -> str:
        """The name of a table of the values."""
        return f"lake_list_{self[1:]}"

    def constants(self, timezone: str) -> tuple[Any, ...]:
        """The values as :func:`bitlake.expressions.folding.constant` gives them; raises :class:`NotConstant`."""
        return self.values or tuple(_constants(self.text, timezone))

    def literals(self) -> list[exp.Expr]:
        """The values as nodes of a tree; raises :class:`InvalidRequest` for literals that cannot be parsed."""
        if not self.values:
            try:
                return list(sqlglot.parse_one(f"x IN ({self.text})", dialect=SparkSql).expressions)
            except SqlglotError as e:
                raise InvalidRequest(f"cannot read the list '{self}': {e}") from e  # with its marker: see the engine
        return [exp.Literal.number(v) if isinstance(v, int) else exp.Literal.string(v) for v in self.values]


class ListNode(exp.Expression, exp.Func):
    """Stands in a tree for the literals of a :class:`LiteralList`, which is its ``this``."""

    arg_types = {"this": True}  # noqa: RUF012 (sqlglot's own way of declaring it)
    _sql_names = ["LITERAL_LIST"]  # noqa: RUF012


_KNOWN_LISTS: ContextVar[Mapping[str, LiteralList]] = ContextVar(
    "lists of the text that is read", default=MappingProxyType({})
)
"""By their markers."""


@contextmanager
def reading(lists: Sequence[LiteralList]) -> Iterator[None]:
    """Find lists by their markers while a text is read from which they were cut."""
    before = _KNOWN_LISTS.set({**_KNOWN_LISTS.get(), **{made: made for made in lists}})
    try:
        yield
    finally:
        _KNOWN_LISTS.reset(before)


def list_of(node: exp.In) -> LiteralList | None:
    """The list of ``x IN (…)`` whose literals were cut out, or None."""
    only = node.expressions[0] if len(node.expressions) == 1 else None
    return only.args["this"] if isinstance(only, ListNode) else None


def take_lists(tree: exp.Expr) -> int:
    """Put a :class:`ListNode` in place of each marker in ``x IN ('<marker>')``; returns how many there were."""
    held = _KNOWN_LISTS.get()
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
    held = _KNOWN_LISTS.get()
    return sum(m[1] in held for m in _MARKER.finditer(text)) if _MARK in text else 0


def with_lists(text: str) -> str:
    """A text with its lists in the places of their markers."""

    held = _KNOWN_LISTS.get()

    def written(match: re.Match[str]) -> str:
        found = held.get(match[1])
        return match[0] if found is None else found.text

    return _MARKER.sub(written, text) if _MARK in text else text


def without_lists(text: str, *, timestamps: bool = True) -> tuple[str, tuple[LiteralList, ...]]:
    """A text with markers in place of long lists, and the lists; as it is, without lists, where the cut might be wrong.

    The caller reads the text inside of :func:`reading`.  With ``timestamps`` False, lists with
    ``TIMESTAMP '…'`` stay in the text: a session's setting may make the literal a TIMESTAMP_NTZ.

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
        if values is not None and (timestamps or values or not _TIMESTAMP.search(inside)):
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
    return () if _LITERALS.fullmatch(inside) else None


def _constants(inside: str, timezone: str) -> Iterator[Any]:
    types: dict[str, exp.DataType] = {}

    def type_of(prefix: str, suffix: str) -> exp.DataType:
        kind = types.get(prefix + suffix)
        if kind is None:
            node = sqlglot.parse_one(f"{prefix} ''" if prefix else f"1{suffix}", dialect=SparkSql)
            kind = types[prefix + suffix] = node.args["to"]
        return kind

    for sign, number, suffix, word, text, binary, null in _LITERAL_PARTS.findall(inside):
        if null:
            yield None
        elif number:
            value = number_of(number)
            value = cast(value, type_of("", suffix), timezone) if suffix else value
            yield negative(value) if sign else value
        elif binary:
            yield constant(exp.HexString(this=binary[2:-1]), timezone)
        else:
            text = text.replace("''", "'")
            yield cast(text, type_of(word, ""), timezone) if word else text
