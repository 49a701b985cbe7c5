"""SQL text, read once: its tokens, its tree and its edits; a cursor over its tokens, and the clauses of statements."""

from __future__ import annotations

import datetime as dt
import enum
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn, TypeAlias, TypeVar

from sqlglot import Token, TokenType, exp
from sqlglot.errors import SqlglotError

from bitlake.errors import InvalidRequest
from bitlake.expressions.folding import NotConstant, constant
from bitlake.expressions.literal_lists import count_markers, take_lists
from bitlake.expressions.spark_dialect import SPARK_SQL, Expression, caret, foreign_form, syntax_error, tokenize
from bitlake.expressions.sql_text import quoted

Edit: TypeAlias = tuple[int, int, str]
"""From a place up to another the text is to be this."""
Item = TypeVar("Item")

# --- tokens -----------------------------------------------------------------------------------------------------------

LAKE_CATALOGS = frozenset({"bitlake", "paimon"})
"""Catalog names that mean the lake itself."""
STRINGS = (TokenType.STRING, TokenType.RAW_STRING)
"""Tokens that are texts in quotes."""
DATABASE_WORDS = ("DATABASE", "SCHEMA", "NAMESPACE")
QUERY_WORDS = frozenset({"SELECT", "WITH", "VALUES", "FROM", "TABLE", "("})
"""Words with which a query in brackets begins."""
QUERY_STARTS = QUERY_WORDS | {"MAP", "REDUCE"}
"""Words with which a statement that is a query begins."""
SET_OPERATORS = frozenset({"UNION", "INTERSECT", "EXCEPT", "MINUS"})
AFTER_FROM = frozenset(
    ("WHERE", "GROUP", "HAVING", "WINDOW", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET")
)
"""The first words of the clauses that may follow FROM."""
QUOTED = (TokenType.IDENTIFIER, TokenType.STRING, TokenType.RAW_STRING, TokenType.HEX_STRING, TokenType.HINT)
"""Tokens that are never words of the grammar."""


class SqlText(Expression):
    """An SQL text that is tokenised and parsed at most once, each when it is first needed.

    Parts of it (:meth:`part`) share its tokens.  A text with edits is another text.
    """

    _whole: SqlText | None = None
    _start = 0

    def __new__(cls, text: str) -> SqlText:
        """The text; the very object if it is one already."""
        return text if isinstance(text, cls) else super().__new__(cls, text)

    @cached_property
    def tokens(self) -> list[Token]:
        """The tokens, with their positions; raises :class:`InvalidRequest` for an unclosed quote or comment."""
        if self._whole is None:
            return tokenize(self)
        start, end = self._start, self._start + len(self)
        inside = [t for t in self._whole.tokens if t.end >= start and t.start < end]
        if inside and (inside[0].start < start or inside[-1].end >= end):
            return tokenize(self)  # a part that begins or ends inside a token
        return [Token(t.token_type, t.text, t.line, t.col, t.start - start, t.end - start, t.comments) for t in inside]

    @cached_property
    def words(self) -> list[str]:
        """The word or symbol that each token is, in upper case; of ``ORDER BY`` the first word; '' for quoted ones."""
        return ["" if t.token_type in QUOTED else self.raw(t).upper().split()[0] for t in self.tokens]

    @cached_property
    def closing(self) -> dict[int, int]:
        """For the index of each round bracket that opens, the index of the one that closes it."""
        return closing_brackets(self.words)

    @cached_property
    def tree(self) -> exp.Expr | None:
        """The one statement or expression that sqlglot reads; None for several, and for what is not Spark SQL."""
        try:
            if foreign_form(self, self.tokens, self.words) is not None:
                return None
            trees = SPARK_SQL.parser().parse(self.tokens, self)
        except (SqlglotError, InvalidRequest, RecursionError, IndexError):  # IndexError: map(…) of an odd number
            return None
        trees = [t for t in trees if t is not None and not isinstance(t, exp.Semicolon)]
        tree, lists = trees[0] if len(trees) == 1 else None, count_markers(self)
        return tree if tree is None or not lists or take_lists(tree) == lists else None

    @property
    def syntax_error(self) -> InvalidRequest | None:
        """The error of text that cannot be parsed as Spark SQL, with its place; None if it parses."""
        whole = self
        while whole._whole is not None:
            whole = whole._whole
        try:
            SPARK_SQL.parser().parse(self.tokens, self)
        except SqlglotError as e:
            return syntax_error(e, whole)
        except (RecursionError, IndexError):
            return None
        return foreign_form(self, self.tokens, self.words)

    def raw(self, token: Token) -> str:
        """A token as written."""
        return self[token.start : token.end + 1]

    def name(self, token: Token) -> str:
        """The name that a token is, without its backticks."""
        return token.text if token.token_type is TokenType.IDENTIFIER else self.raw(token)

    def part(self, start: int, end: int | None = None) -> SqlText:
        """The text between two positions."""
        text = SqlText(self[start:end])
        if len(text) == len(self):
            return self
        text._whole, text._start = self, start
        return text

    def edit(self, edits: Iterable[Edit]) -> SqlText:
        """The text with all edits, which do not overlap, applied; the same object if there is none."""
        out, done = [], 0
        for start, end, new in sorted(edits, key=lambda e: e[:2]):
            out += [self[done:start], new]
            done = end
        return SqlText("".join([*out, self[done:]])) if out else self


def outside_brackets(words: Sequence[str]) -> Iterator[int]:
    """The indexes of the words outside brackets, those that open a bracket included."""
    closing = closing_brackets(words)
    at = 0
    while at < len(words):
        yield at
        at = closing.get(at, at) + 1


def closing_brackets(words: Sequence[str]) -> dict[int, int]:
    """For the index of each ``(`` that is closed, the index of its ``)``."""
    opened: list[int] = []
    out = {}
    for at, word in enumerate(words):
        if word == "(":
            opened.append(at)
        elif word == ")" and opened:
            out[opened.pop()] = at
    return out


# --- names ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SqlTime:
    """A constant date or timestamp of a PARTITION clause, whose value depends on the session's time zone."""

    text: SqlText

    def value(self, timezone: str) -> Any:
        """The value in a session of this time zone."""
        assert self.text.tree is not None
        return constant(self.text.tree, timezone)


class SqlNull(enum.Enum):
    """NULL written as a partition value, as opposed to None for a partition left to the rows."""

    NULL = "NULL"


@dataclass(frozen=True, slots=True)
class TableName:
    """A table as named in SQL; ``database`` None means the current one.

    ``catalog`` is only set for a catalog that is not the lake's (``spark_catalog``).
    """

    database: str | None
    table: str
    catalog: str | None = None

    @classmethod
    def of(cls, parts: Sequence[str]) -> TableName:
        """The name of one to three parts; the lake's own catalog is dropped."""
        if len(parts) == 1:
            return cls(None, parts[0])
        if len(parts) == 2 or parts[0].lower() in LAKE_CATALOGS:
            return cls(parts[-2], parts[-1])
        return cls(parts[1], parts[2], parts[0])

    def __str__(self) -> str:
        return ".".join(quote_name(p) for p in (self.catalog, self.database, self.table) if p is not None)


def quote_name(name: str) -> str:
    """A name in backticks, unless it is a plain word."""
    plain = name.replace("_", "a").isalnum() and name.isascii() and not name[0].isdigit()
    return name if plain else quoted(name)


# --- cursor -----------------------------------------------------------------------------------------------------------


class Cursor:
    """Walks the tokens of one statement, word by word; comments and closing semicolons are left out.

    ``wall_clocks``: the type TIMESTAMP is TIMESTAMP_NTZ.
    """

    def __init__(self, text: str, tokens: Sequence[Token] | None = None, *, wall_clocks: bool = False) -> None:
        self.text = SqlText(text)
        self.wall_clocks = wall_clocks
        found = list(self.text.tokens if tokens is None else tokens)
        while found and found[-1].token_type is TokenType.SEMICOLON:
            found.pop()
        self.tokens = [piece for token in found for piece in _single_words(token, self.text)]
        self.words = ["" if t.token_type in QUOTED else self.text.raw(t).upper() for t in self.tokens]
        self.i = 0

    @property
    def at_end(self) -> bool:
        """Whether no token is left."""
        return self.i >= len(self.tokens)

    @property
    def position(self) -> int:
        """Where the next token starts, or where the last one ended."""
        if not self.at_end:
            return self.tokens[self.i].start
        return self.tokens[-1].end + 1 if self.tokens else 0

    @property
    def end(self) -> int:
        """Where the last token taken ended."""
        return self.tokens[self.i - 1].end + 1 if self.i else 0

    def word(self, ahead: int = 0) -> str:
        """The bare word or symbol some tokens ahead in upper case; '' for quoted ones and at the end."""
        at = self.i + ahead
        return self.words[at] if at < len(self.words) else ""

    def kind(self, ahead: int = 0) -> TokenType | None:
        """The type of the token some tokens ahead."""
        at = self.i + ahead
        return self.tokens[at].token_type if at < len(self.tokens) else None

    def looking_at(self, *words: str) -> bool:
        """Whether these words come next."""
        return all(self.word(n) == w for n, w in enumerate(words))

    def accept(self, *words: str) -> bool:
        """Take these words if they come next."""
        if not self.looking_at(*words):
            return False
        self.i += len(words)
        return True

    def in_database(self) -> str | None:
        """``IN database``, if it comes next."""
        return self.database() if self.accept("IN") or self.accept("FROM") else None

    def expect(self, *words: str) -> None:
        """Take these words or fail."""
        for word in words:
            if not self.accept(word):
                self.fail(word)

    def expect_end(self) -> None:
        """Fail if anything is left."""
        if not self.at_end:
            self.fail("the end of the statement")

    def fail(self, expected: str) -> NoReturn:
        """Raise :meth:`error`."""
        raise self.error(expected)

    def error(self, expected: str) -> InvalidRequest:
        """Return an error that states what was expected, what was found, and where."""
        token_shown = "the end" if self.at_end else f"'{self.text.raw(self.tokens[self.i])}'"
        return InvalidRequest(f"expected {expected} but found {token_shown} at {caret(self.text, self.position)}")

    def check_once(self, what: str, again: bool, position: int) -> None:
        """Fail if something is given ``again``."""
        if again:
            raise InvalidRequest(f"{what} is given twice at {caret(self.text, position)}")

    def name(self, what: str = "a name") -> str:
        """One identifier, bare or in backticks; keywords are names too where one is expected."""
        if self.at_end:
            self.fail(what)
        token = self.tokens[self.i]
        raw = self.text.name(token)
        if token.token_type is not TokenType.IDENTIFIER:
            if token.token_type in QUOTED or not raw.replace("_", "a").isalnum():
                self.fail(what)
            if raw[0].isdigit():
                raw = self._digits()
        self.i += 1
        return raw

    def _digits(self) -> str:
        """A bare name that starts with digits; sqlglot may take it for a number with a suffix (``1d``)."""
        start = self.position
        while self.i + 1 < len(self.tokens) and self.tokens[self.i + 1].start <= self.tokens[self.i].end:
            self.i += 1
        raw = self.text[start : self.tokens[self.i].end + 1]
        if raw.isdigit():
            self.fail("a name")
        return raw

    def listed(self, read: Callable[[], Item]) -> list[Item]:
        """``a, b, …``, each read by ``read``."""
        out = [read()]
        while self.accept(","):
            out.append(read())
        return out

    def bracketed(self, read: Callable[[], Item]) -> list[Item]:
        """``(a, b, …)``, each read by ``read``."""
        self.expect("(")
        out = self.listed(read)
        self.expect(")")
        return out

    def names(self, what: str) -> tuple[str, ...]:
        """``(a, b, …)``."""
        return tuple(self.bracketed(lambda: self.name(what)))

    def parts(self, what: str) -> list[str]:
        """``a.b.c``."""
        out = [self.name(what)]
        while self.accept("."):
            out.append(self.name(what))
        return out

    def table(self) -> TableName:
        """A table name of one to three parts."""
        start = self.i
        parts = self.parts("a table name")
        if len(parts) > 3:
            self.i = start
            self.fail("a table name of at most three parts (catalog.database.table)")
        return TableName.of(parts)

    def database(self) -> str:
        """A database name, with the lake's catalog before it or not."""
        start = self.i
        parts = self.parts("a database name")
        if len(parts) == 2 and parts[0].lower() in LAKE_CATALOGS:
            return parts[1]
        if len(parts) > 1:
            self.i = start
            self.fail("a database name of one part")
        return parts[0]

    def string(self, what: str = "a quoted string") -> str:
        """A string literal; adjoining ones are one."""
        if self.kind() not in STRINGS:
            self.fail(what)
        out = []
        while self.kind() in STRINGS:
            out.append(self.tokens[self.i].text)
            self.i += 1
        return "".join(out)

    def rest(self) -> SqlText:
        """All that is left, as written."""
        start, self.i = self.position, len(self.tokens)
        return self.text.part(start, self.end)

    @property
    def statement(self) -> SqlText:
        """The whole statement, without what stands before and after its tokens."""
        return self.text.part(self.tokens[0].start, self.tokens[-1].end + 1)

    def expression(self, *stops: str) -> SqlText:
        """The text up to one of these words outside brackets and CASE … END (not taken), as written; not empty."""
        start, first, depth, cases = self.position, self.i, 0, 0
        while not self.at_end:
            word = self.word()
            if depth == 0 and (word == ")" or (cases == 0 and word in stops)):
                break
            depth += (word in ("(", "[")) - (word in (")", "]"))
            if word == "CASE" and (self.i == 0 or self.word(-1) != "."):
                cases += 1
            elif word == "END" and cases:
                cases -= 1
            self.i += 1
        if self.i == first:
            self.fail("an expression")
        return self.text.part(start, self.end)


def _single_words(token: Token, text: SqlText) -> list[Token]:
    """A token such as ``PARTITIONED BY`` as one token per word."""
    raw = text.raw(token)
    if token.token_type in QUOTED or not any(c.isspace() for c in raw):
        return [token]
    return [
        Token(TokenType.VAR, m.group(), start=token.start + m.start(), end=token.start + m.end() - 1)
        for m in re.finditer(r"\S+", raw)
    ]


# --- shared clauses: properties, PARTITION, LIKE, arguments of CALL ---------------------------------------------------


def properties(c: Cursor) -> dict[str, str]:
    """``('k' = 'v', a.b = 5, …)``: quoted or bare dotted keys; strings, numbers and booleans as values."""
    out: dict[str, str] = {}

    def read() -> None:
        at = c.position
        key = _key(c)
        c.check_once(f"property '{key}'", key in out, at)
        if not c.accept("="):
            c.accept("==")
        out[key] = _property_value(c, key)

    c.bracketed(read)
    return out


def property_keys(c: Cursor) -> tuple[str, ...]:
    """``('k', a.b, …)``."""
    return tuple(c.bracketed(lambda: _key(c)))


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
        c.expression(",")
        return c.text[start : c.end]
    raise c.error(f"a value of property '{key}' in quotes, a number, TRUE or FALSE")


def partition_spec(c: Cursor, *, dynamic: bool = False) -> dict[str, Any]:
    """``(a = 1, b = 'x')``, and ``b`` alone (None) where ``dynamic``.

    NULL is :class:`SqlNull`; dates and timestamps are :class:`SqlTime`.
    """
    out: dict[str, Any] = {}

    def read() -> None:
        at = c.position
        name = c.name("a partition column")
        c.check_once(f"partition column '{name}'", name in out, at)
        if c.accept("=") or c.accept("=="):
            start = c.position
            value = _value(c)
            if isinstance(value, dt.date):  # dt.datetime, too
                out[name] = SqlTime(c.text.part(start, c.end))
            else:
                out[name] = SqlNull.NULL if value is None else value
        elif dynamic:
            out[name] = None
        else:
            c.fail(f"'=' and a value for partition column '{name}'")

    c.bracketed(read)
    return out


def like(c: Cursor) -> str | None:
    """``[LIKE] 'pattern'``."""
    if c.accept("LIKE"):
        return c.string("a pattern in quotes")
    return c.string() if c.kind() in STRINGS else None


def arguments(c: Cursor) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """``(1, 'x', name => value)``: positional ones first, then named (``=>`` or ``=``).

    TIMESTAMP 'text' is the text: procedures read times in the session's zone.
    """
    c.expect("(")
    positional: list[Any] = []
    named: dict[str, Any] = {}
    while not c.looking_at(")"):
        at = c.position
        if c.word(1) in ("=>", "="):
            name = c.name("an argument name")
            c.i += 1
            c.check_once(f"argument '{name}'", name.lower() in named, at)
            named[name.lower()] = _argument(c)
        elif named:
            c.fail("a named argument (name => value) after the first named one")
        else:
            positional.append(_argument(c))
        if not c.accept(","):
            break
    c.expect(")")
    return tuple(positional), named


def _argument(c: Cursor) -> Any:
    if c.looking_at("TIMESTAMP") and c.kind(1) in STRINGS:
        c.i += 1
        return c.string()
    return _value(c)


def _value(c: Cursor) -> Any:
    """A constant expression as a Python value; ``map(…)`` a dict and ``array(…)`` a list."""
    start = c.position
    text = c.expression(",")
    try:
        return _constant(text.tree)
    except (NotConstant, RecursionError) as e:
        raise InvalidRequest(f"'{text}' is not a constant value: {caret(c.text, start)}") from e


def _constant(node: exp.Expr | None) -> Any:
    match node:
        case exp.Array():
            return [_constant(e) for e in node.expressions]
        case exp.VarMap():
            keys, values = node.args["keys"], node.args["values"]
            return dict(zip(_constant(keys), _constant(values), strict=True))
        case None:
            raise NotConstant
    return constant(node, "UTC")
