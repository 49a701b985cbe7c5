"""Long lists of literals in ``IN (…)``, read without the parser.

sqlglot takes 50 to 300 µs to parse a literal.  :func:`without_lists` cuts lists of numbers, strings, dates,
timestamps, binaries and NULL, and of tuples of these, out of a text and puts a marker, made of the list's digest, in
place of each.  The parser then meets ``x IN ('<marker>')``.  :func:`take_lists` puts a :class:`ListNode` in the tree
there, which only code that knows the list can use.  A list is found by its marker inside of :func:`reading`.
:func:`with_lists` is the text as it was written.
"""

from __future__ import annotations

import hashlib
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from bitlake.errors import InvalidRequest
from bitlake.expressions.folding import NotConstant, cast, constant, negative, number_of
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
_TUPLE_SHAPE = rf"\((?:[^()'\"`]++|{_STRING}|\([^()'\"`]*+\))*\)"
_PIECE = re.compile(
    rf"""  '(?:[^'\\]|\\.?)*+(?:'|\Z)
        | "(?:[^"\\]|\\.?)*+(?:"|\Z)
        | `[^`]*+(?:`|\Z)
        | --[^\n]*+
        | /\*.*?(?:\*/|\Z)
        | (?P<head>\bIN\s*\()(?P<list>[-0-9A-Za-z.,\s]++|\s*+{_SHAPE}(?:\s*+,\s*+{_SHAPE})*\s*+
                                     |\s*+{_TUPLE_SHAPE}(?:\s*+,\s*+{_TUPLE_SHAPE})*\s*+)(?=\))""",
    re.I | re.S | re.X,
)
# No possessive repeat of a group that can fail half-way: before Python 3.11.5 it takes that half for a match.
_NUMBERS = re.compile(r"\s*-?[0-9]{1,18}\s*(?:,\s*-?[0-9]{1,18}\s*)*")
_STRINGS = re.compile(rf"\s*+{_STRING}\s*+(?:,\s*+{_STRING}\s*+)*")
_TEXT = re.compile(r"'([^']*+(?:''[^']*+)*)'")
_HEX = r"(X'[0-9A-Fa-f]*+')"
_NUMBER, _WORD = r"[0-9]++(?:\.[0-9]++)?", r"DATE|TIMESTAMP(?:_NTZ|_LTZ)?"
_WHOLE_TUPLES = re.compile(r"[-0-9Ll,()\s]++")
_NO_BRACKETS = {ord(c): None for c in "()" + string.whitespace}
_TYPED_NULL = r"CAST\s*+\(\s*+NULL\s++AS\s++([A-Z_]++)\s*+\)"
_LITERAL_PARTS = re.compile(
    rf"(-?+)\s*+({_NUMBER})([LSYDF]?)|(?:({_WORD})\s*+)?{_TEXT.pattern}|{_HEX}|{_TYPED_NULL}|(NULL)", re.I
)
# Blanks are possessive: two ways to share them between neighbours would be 2**n for n literals.
_LITERAL = rf"\s*+(?:-?+\s*+{_NUMBER}[LSYDF]?|(?:(?:{_WORD})\s*+)?{_STRING}|{_HEX}|NULL)\s*+"
_LITERALS = re.compile(f"{_LITERAL}(?:,{_LITERAL})*", re.I)
_ONE_LITERAL = re.compile(_LITERAL, re.I)
_FIELD = rf"(?:{_LITERAL}|\s*+{_TYPED_NULL}\s*+)"
_TUPLE = re.compile(rf"\s*+\({_FIELD}(?:,{_FIELD})+\)", re.I)
_TIMESTAMP = re.compile(r"\bTIMESTAMP\s*'", re.I)


class Literals(NamedTuple):
    """The parts of some literals' texts; those that a literal lacks are empty."""

    signs: tuple[str, ...]
    numbers: tuple[str, ...]
    suffixes: tuple[str, ...]
    words: tuple[str, ...]
    texts: tuple[str, ...]
    binaries: tuple[str, ...]
    null_types: tuple[str, ...]
    nulls: tuple[str, ...]

    def plain_texts(self) -> Sequence[str] | None:
        """The values if all are strings."""
        if any(map(any, (self.numbers, self.words, self.binaries, self.null_types, self.nulls))):
            return None
        return [text.replace("''", "'") for text in self.texts] if "''" in "".join(self.texts) else self.texts


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
    def derived(self) -> dict[Any, Any]:
        """What conditions derive from the values: :attr:`bitlake.expressions.tree.In.derived` of all that a statement
        reads."""
        return {}

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
        if self.values:
            return self.values
        if self.width > 1:
            raise NotConstant
        return tuple(constants_of(Literals(*zip(*_LITERAL_PARTS.findall(self.text), strict=True)), timezone))

    @cached_property
    def width(self) -> int:
        """The number of literals of each tuple; 1 for a list without tuples."""
        first = None if self.values else _TUPLE.match(self.text)
        return 1 if first is None else len(_LITERAL_PARTS.findall(first[0]))

    @property
    def first_literal(self) -> str:
        """The text of the first literal or tuple."""
        found = (_TUPLE if self.width > 1 else _ONE_LITERAL).match(self.text)
        assert found is not None
        return found[0]

    def whole_columns(self) -> list[tuple[list[int], str]] | None:
        """The values of a list of tuples of whole numbers by column, with their suffix; None for another list."""
        if not _WHOLE_TUPLES.fullmatch(self.text):
            return None
        numbers = self.text.upper().translate(_NO_BRACKETS).split(",")
        columns = []
        for i in range(self.width):
            joined = ",".join(numbers[i :: self.width])
            suffixes = joined.count("L")
            if suffixes and suffixes * self.width != len(numbers):
                return None
            columns.append((list(map(int, joined.replace("L", "").split(","))), "L" if suffixes else ""))
        return columns

    def columns(self) -> list[Literals]:
        """The literals of a list of tuples: those of the first column, then those of the second, and so on."""
        literals = _LITERAL_PARTS.findall(self.text)
        return [Literals(*zip(*literals[i :: self.width], strict=True)) for i in range(self.width)]

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
    return () if _LITERALS.fullmatch(inside) or _are_tuples(inside) else None


def _are_tuples(inside: str) -> bool:
    """Whether a list has only tuples of literals, which are equally long."""
    first = _TUPLE.match(inside)
    if first is None:
        return False
    width = len(_LITERAL_PARTS.findall(first[0]))
    tuple_ = rf"\s*+\({_FIELD}(?:,{_FIELD}){{{width - 1}}}\)\s*+"
    return re.compile(f"{tuple_}(?:,{tuple_})*", re.I).fullmatch(inside) is not None


def constants_of(literals: Literals, timezone: str) -> Iterator[Any]:
    """The values of literals as :func:`bitlake.expressions.folding.constant` gives them."""
    types: dict[str, exp.DataType] = {}

    def type_of(prefix: str, suffix: str) -> exp.DataType:
        kind = types.get(prefix + suffix)
        if kind is None:
            node = sqlglot.parse_one(f"{prefix} ''" if prefix else f"1{suffix}", dialect=SparkSql)
            kind = types[prefix + suffix] = node.args["to"]
        return kind

    for sign, number, suffix, word, text, binary, null_type, null in zip(*literals, strict=True):
        if null or null_type:
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
