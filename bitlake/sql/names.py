"""Table names in a query's tokens: what stands after FROM, JOIN, TABLE and the commas of a FROM clause.

A rough reading that needs no grammar: it backs up the parsed tree (no name found here may be missing there), and
stands in for it where sqlglot cannot parse what Spark can.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import Token, TokenType

from bitlake.metadata.names import Names
from bitlake.sql.cursor import table_name
from bitlake.sql.statements import TableName

_QUERY = frozenset({"SELECT", "WITH", "VALUES", "FROM", "TABLE", "("})
_ENDS_FROM = frozenset(
    ("SELECT", "WHERE", "GROUP", "HAVING", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET", "UNION")
    + ("INTERSECT", "EXCEPT", "MINUS", "WINDOW", "QUALIFY", "VIEW", "|>")
)
_SET_OPERATIONS = frozenset({"UNION", "INTERSECT", "EXCEPT", "MINUS", "ALL", "DISTINCT"})
_NO_TABLE = frozenset({"SELECT", "LATERAL", "VALUES", "TABLE", "UNNEST", "WITH", "FROM", "WHERE", "ON", "USING"})
_NO_ALIAS = _ENDS_FROM | _SET_OPERATIONS | frozenset(
    ("ON", "USING", "JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL", "SEMI", "ANTI", "LATERAL", "OUTER")
    + ("PIVOT", "UNPIVOT", "TABLESAMPLE", "FOR", "VERSION", "TIMESTAMP", "SYSTEM_VERSION", "SYSTEM_TIME", "INSERT")
    + ("FETCH", "THEN", "WHEN", "SET")
)  # fmt: skip


_BEFORE_QUERY = _NO_ALIAS | frozenset(
    ("AS", "IN", "EXISTS", "FROM", "NOT", "AND", "OR", "SELECT", "ANY", "SOME", "ALL", "DISTINCT", "BY", "THEN", "ELSE")
)
CLAUSES_AFTER_TABLE = _NO_ALIAS
"""Words after a table that are no alias of it."""


@dataclass(frozen=True, slots=True)
class NameUse:
    """A name where a table is expected.

    ``bare`` after TABLE, where no alias can stand, and then ``table_at`` is where TABLE stands, unless that is a
    function's argument; ``shadowed`` if a common table expression has that name there.
    """

    name: TableName
    start: int
    end: int
    has_alias: bool
    alias_at: int
    bare: bool
    shadowed: bool
    travels: bool
    table_at: int | None = None


@dataclass(slots=True)
class _Frame:
    """What is known inside one pair of brackets."""

    first: int
    query: bool = False
    in_from: bool = False
    expects: bool = False
    called: bool = False
    cte: str | None = None
    ctes: set[str] = field(default_factory=set)


class NameFinder:
    """Finds the table names of one text; use :func:`find_names`."""

    def __init__(self, text: str, tokens: list[Token], names: Names) -> None:
        self.names = names
        self.text = text
        self.tokens = tokens
        self.words = upper_words(text, tokens)
        self.found: list[NameUse] = []
        self.frames = [_Frame(0)]

    def word(self, at: int) -> str:
        """The bare word at an index, upper case; '' for quoted ones and outside."""
        return self.words[at] if 0 <= at < len(self.words) else ""

    def run(self) -> list[NameUse]:
        """Walk the tokens."""
        at = 0
        while at < len(self.tokens):
            at = self._step(at)
        return self.found

    def _step(self, at: int) -> int:
        word, frame = self.word(at), self.frames[-1]
        expects, frame.expects = frame.expects, False
        if word == "(":
            self._open(at, expects)
        elif word == ")":
            if len(self.frames) > 1:
                closed = self.frames.pop()
                if closed.cte is not None:
                    self.frames[-1].ctes.add(closed.cte)
        elif word == "FROM":
            if (frame.query or at == frame.first) and self.word(at - 1) != "DISTINCT":
                frame.query = frame.in_from = frame.expects = True
        elif word == "JOIN":
            frame.in_from = frame.expects = True
        elif word == ",":
            frame.expects = frame.in_from
        elif word == "TABLE" and (
            at == frame.first or self.word(at - 1) in _SET_OPERATIONS or (frame.ctes and self.word(at - 1) == ")")
        ):
            return self._name(at + 1, True)
        elif expects and word == "LATERAL":
            frame.expects = True
        elif expects and word not in _NO_TABLE:
            return self._name(at, False)
        elif word in _ENDS_FROM:
            frame.in_from = False
            frame.query = frame.query or word == "SELECT"
        return at + 1

    def _open(self, at: int, expects: bool) -> None:
        new = _Frame(at + 1)
        new.called = at > 0 and _is_name(self.tokens[at - 1], self.text) and self.word(at - 1) not in _BEFORE_QUERY
        inner = self.word(at + 1)
        if expects and inner not in _QUERY:
            new.in_from = new.expects = True
        elif expects and inner == "(":
            new.expects = True
        before = at - 1
        if self.word(before) == "AS":
            before -= 1
            if self.word(before) == ")":
                while before > 0 and self.word(before) != "(":
                    before -= 1
                before -= 1
            if before > 0 and self.word(before - 1) in ("WITH", "RECURSIVE", ","):
                new.cte = self.names.key(_plain(self.tokens[before], self.text))
        self.frames.append(new)

    def _name(self, at: int, bare: bool) -> int:
        """Take a dotted name; a function's is none."""
        first, parts = at, []
        while at < len(self.tokens) and _is_name(self.tokens[at], self.text):
            parts.append(_plain(self.tokens[at], self.text))
            if self.word(at + 1) != ".":
                break
            at += 2
        if not parts or at >= len(self.tokens):
            return first + 1
        if self.word(at + 1) == "(" or len(parts) > 3:
            return at + 1
        name = table_name(parts)
        travels = self._travels(at + 1)
        after = self._after_sample(at + 1)
        shadowed = len(parts) == 1 and any(self.names.key(parts[0]) in f.ctes for f in self.frames)
        has_alias = bare or self._alias(after)
        start, end = self.tokens[first].start, self.tokens[at].end + 1
        alias_at = self.tokens[after - 1].end + 1
        table_at = self.tokens[first - 1].start if bare and not self.frames[-1].called else None
        self.found.append(NameUse(name, start, end, has_alias, alias_at, bare, shadowed, travels, table_at))
        return at + 1

    def _travels(self, at: int) -> bool:
        words = [self.word(at), self.word(at + 1), self.word(at + 2), self.word(at + 3)]
        if words[0] == "FOR":
            words = words[1:]
        return words[0] in ("VERSION", "TIMESTAMP", "SYSTEM_VERSION", "SYSTEM_TIME") and words[1:3] == ["AS", "OF"]

    def _after_sample(self, at: int) -> int:
        """The index after TABLESAMPLE (…) [REPEATABLE (…)], before which no alias may stand."""
        for word in ("TABLESAMPLE", "REPEATABLE"):
            if self.word(at) != word or self.word(at + 1) != "(":
                break
            depth, at = 1, at + 2
            while at < len(self.tokens) and depth:
                depth += (self.word(at) == "(") - (self.word(at) == ")")
                at += 1
        return at

    def _alias(self, at: int) -> bool:
        if at >= len(self.tokens):
            return False
        return self.word(at) == "AS" or (_is_name(self.tokens[at], self.text) and self.word(at) not in _NO_ALIAS)


def find_names(text: str, tokens: list[Token], names: Names = Names.FOLDED) -> list[NameUse]:
    """Every place that names a table, a view or a common table expression, in the order of the text."""
    return NameFinder(text, tokens, names).run()


def upper_words(text: str, tokens: list[Token]) -> list[str]:
    """The bare word of each token, upper case; '' for quoted ones."""
    return [_upper(t, text) for t in tokens]


def _upper(token: Token, text: str) -> str:
    if token.token_type in (TokenType.IDENTIFIER, TokenType.STRING, TokenType.RAW_STRING, TokenType.HINT):
        return ""
    # "ORDER BY" is one token; its first word tells enough.
    return text[token.start : token.end + 1].upper().split()[0]


def _plain(token: Token, text: str) -> str:
    return token.text if token.token_type is TokenType.IDENTIFIER else text[token.start : token.end + 1]


def _is_name(token: Token, text: str) -> bool:
    if token.token_type is TokenType.IDENTIFIER:
        return True
    quoted = token.token_type in (TokenType.STRING, TokenType.RAW_STRING, TokenType.HEX_STRING, TokenType.NUMBER)
    return not quoted and text[token.start : token.end + 1].replace("_", "a").isalnum()
