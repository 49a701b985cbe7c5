"""SQL text: a cursor over its tokens, and edits by position."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NoReturn, TypeAlias

from sqlglot import Token, TokenType

from bitlake.errors import InvalidRequest
from bitlake.expressions.spark_dialect import caret, tokenize
from bitlake.sql.statements import TableName

Edit: TypeAlias = tuple[int, int, str]
"""From a place up to another the text is to be this."""


def spliced(text: str, edits: Iterable[Edit]) -> str:
    """The text with all edits, which do not overlap, applied."""
    out, done = [], 0
    for start, end, new in sorted(edits, key=lambda e: e[:2]):
        out += [text[done:start], new]
        done = end
    return "".join([*out, text[done:]])


LAKE_CATALOGS = frozenset({"bitlake", "paimon"})
"""Catalog names that mean the lake itself."""

STRINGS = (TokenType.STRING, TokenType.RAW_STRING)
"""Tokens that are texts in quotes."""
DATABASE_WORDS = ("DATABASE", "SCHEMA", "NAMESPACE")
_QUOTED = (TokenType.IDENTIFIER, TokenType.STRING, TokenType.RAW_STRING, TokenType.HEX_STRING, TokenType.HINT)


class Cursor:
    """Walks the tokens of one statement; comments and closing semicolons are left out."""

    def __init__(self, text: str, tokens: list[Token] | None = None) -> None:
        self.text = text
        found = tokenize(text) if tokens is None else tokens
        while found and found[-1].token_type is TokenType.SEMICOLON:
            found = found[:-1]
        self.tokens = [piece for token in found for piece in _single_words(token, text)]
        self.i = 0

    @property
    def at_end(self) -> bool:
        """Whether no token is left."""
        return self.i >= len(self.tokens)

    @property
    def token(self) -> Token | None:
        """The next token."""
        return None if self.at_end else self.tokens[self.i]

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
        if at >= len(self.tokens) or self.tokens[at].token_type in _QUOTED:
            return ""
        return self.raw(at).upper()

    def raw(self, at: int) -> str:
        """The text of the token at an index, as written."""
        return self.text[self.tokens[at].start : self.tokens[at].end + 1]

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
        """What was expected, what was found, and where."""
        found = "the end" if self.at_end else f"'{self.raw(self.i)}'"
        return InvalidRequest(f"expected {expected} but found {found} at {caret(self.text, self.position)}")

    def name(self, what: str = "a name") -> str:
        """One identifier, bare or in backticks; keywords are names too where one is expected."""
        token = self.token
        if token is None:
            self.fail(what)
        if token.token_type is TokenType.IDENTIFIER:
            self.i += 1
            return token.text
        raw = self.raw(self.i)
        if token.token_type in _QUOTED or not raw.replace("_", "a").isalnum():
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

    def names(self, what: str) -> tuple[str, ...]:
        """``(a, b, …)``."""
        self.expect("(")
        out = [self.name(what)]
        while self.accept(","):
            out.append(self.name(what))
        self.expect(")")
        return tuple(out)

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
        return table_name(parts)

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

    def rest(self) -> str:
        """All that is left, as written."""
        if self.at_end:
            return ""
        out = self.text[self.position : self.tokens[-1].end + 1]
        self.i = len(self.tokens)
        return out

    def until(self, *stops: str) -> str:
        """The text up to one of these words outside brackets (not taken), as written; not empty."""
        start, first, depth = self.position, self.i, 0
        while not self.at_end:
            word = self.word()
            if depth == 0 and (word in stops or word == ")"):
                break
            depth += (word in ("(", "[")) - (word in (")", "]"))
            self.i += 1
        if self.i == first:
            self.fail("an expression")
        return self.text[start : self.end]


def _single_words(token: Token, text: str) -> list[Token]:
    """A token such as ``PARTITIONED BY`` as one token per word."""
    raw = text[token.start : token.end + 1]
    if token.token_type in _QUOTED or not any(c.isspace() for c in raw):
        return [token]
    return [
        Token(TokenType.VAR, m.group(), start=token.start + m.start(), end=token.start + m.end() - 1)
        for m in re.finditer(r"\S+", raw)
    ]


def table_name(parts: list[str]) -> TableName:
    """The name of one to three parts; the lake's own catalog is dropped."""
    if len(parts) == 1:
        return TableName(None, parts[0])
    if len(parts) == 2 or parts[0].lower() in LAKE_CATALOGS:
        return TableName(parts[-2], parts[-1])
    return TableName(parts[1], parts[2], parts[0])
