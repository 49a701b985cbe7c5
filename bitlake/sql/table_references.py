"""Table references in a query: where they are, and the query with other names in their places.

Names are what stands after FROM, JOIN, TABLE and the commas of a FROM clause.  This rough reading needs no grammar: it
backs up the parsed tree (no name found here may be missing there), and stands in for it where sqlglot cannot parse what
Spark can.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlglot import Token, TokenType

from bitlake.expressions.sql_text import quoted
from bitlake.expressions.tree import Predicate
from bitlake.metadata.schema import Names
from bitlake.sql.text import AFTER_FROM, LAKE_CATALOGS, QUERY_WORDS, QUOTED, SET_OPERATORS, Edit, SqlText, TableName

_ENDS_FROM = AFTER_FROM | SET_OPERATORS | {"SELECT", "QUALIFY", "VIEW", "|>"}
_SET_OPERATIONS = SET_OPERATORS | {"ALL", "DISTINCT"}
_NO_TABLE = frozenset({"SELECT", "LATERAL", "VALUES", "TABLE", "UNNEST", "WITH", "FROM", "WHERE", "ON", "USING"})
CLAUSES_AFTER_TABLE = _ENDS_FROM | _SET_OPERATIONS | frozenset(
    ("ON", "USING", "JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL", "SEMI", "ANTI", "LATERAL", "OUTER")
    + ("PIVOT", "UNPIVOT", "TABLESAMPLE", "FOR", "VERSION", "TIMESTAMP", "SYSTEM_VERSION", "SYSTEM_TIME", "INSERT")
    + ("FETCH", "THEN", "WHEN", "SET")
)  # fmt: skip
"""Words after a table that cannot be its alias."""
_BEFORE_QUERY = CLAUSES_AFTER_TABLE | frozenset(
    ("AS", "IN", "EXISTS", "FROM", "NOT", "AND", "OR", "SELECT", "ANY", "SOME", "ALL", "DISTINCT", "BY", "THEN", "ELSE")
)


@dataclass(frozen=True, slots=True)
class TableUse:
    """A place in a text that names a table, a view or a common table expression.

    ``start`` and ``end`` span the name with its database and backticks.  If it has no alias, ``alias_at`` is where one
    goes.  It is ``bare`` after TABLE, where no alias can stand, and then ``table_at`` is where a query can take its
    place: where TABLE stands, or the name in brackets that is a function's argument.  It is ``shadowed`` if a common
    table expression has that name there, and ``travels`` if AS OF follows.

    What the query needs of a lake table is found later (:func:`bitlake.sql.analyzer.analyse_query`).  ``columns`` are
    the schema's names, a superset of what the query can need from here, or None for all; ``metadata`` are the
    ``__paimon_…`` columns that are mentioned.  ``predicate`` is unbound; rows for which it is not TRUE may be left out
    of this use without a change of the query's result; ``computed`` likewise, of conditions that compute, such as
    ``lower(email) = 'x'``.  ``file_metadata`` are the members of Spark's ``_metadata`` that
    are needed from here, as a column of that name.
    """

    name: TableName
    start: int
    end: int
    has_alias: bool
    alias_at: int
    bare: bool = False
    shadowed: bool = False
    travels: bool = False
    table_at: int | None = None
    columns: tuple[str, ...] | None = None
    predicate: Predicate | None = None
    computed: Predicate | None = None
    metadata: tuple[str, ...] = ()
    file_metadata: tuple[str, ...] = ()


@dataclass(slots=True)
class _Frame:
    """The state inside one pair of brackets."""

    first: int
    query: bool = False
    in_from: bool = False
    expects: bool = False
    called: bool = False
    cte: str | None = None
    ctes: set[str] = field(default_factory=set)


class NameFinder:
    """Finds the table names of one text; use :func:`find_names`."""

    def __init__(self, text: SqlText, names: Names) -> None:
        self.names = names
        self.text = text
        self.tokens = text.tokens
        self.words = text.words
        self.found: list[TableUse] = []
        self.frames = [_Frame(0)]
        self.in_merge = False
        """Whether MERGE was read and its USING, which names a table where a join's names columns, is still to come."""

    def word(self, at: int) -> str:
        """The bare word at an index, upper case; '' for quoted ones and outside."""
        return self.words[at] if 0 <= at < len(self.words) else ""

    def run(self) -> list[TableUse]:
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
        elif word in ("MERGE", "USING") and len(self.frames) == 1:
            frame.expects = self.in_merge and word == "USING"
            self.in_merge = word == "MERGE"
        elif word == ",":
            frame.expects = frame.in_from
        elif word == "TABLE" and self._begins_query(at):
            return self._table(at + 1)
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
        if expects and inner not in QUERY_WORDS:
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
                new.cte = self.names.key(self.text.name(self.tokens[before]))
        self.frames.append(new)

    def _begins_query(self, at: int) -> bool:
        """Whether a query or a function's argument begins at an index."""
        frame, before = self.frames[-1], self.word(at - 1)
        if at == frame.first or before in _SET_OPERATIONS:
            return True
        return before in (",", "=>") if frame.called else bool(frame.ctes) and before == ")"

    def _table(self, at: int) -> int:
        """Take the name after TABLE, which stands in brackets where it is a function's argument: ``f(TABLE(t))``."""
        if not self.frames[-1].called:
            return self._name(at, True, self.tokens[at - 1].start)
        if self.word(at) != "(" or self.word(at + 1) in QUERY_WORDS or at + 1 >= len(self.tokens):
            return at
        self.frames.append(_Frame(at + 1))
        return self._name(at + 1, True, self.tokens[at + 1].start)

    def _name(self, at: int, bare: bool, table_at: int | None = None) -> int:
        """Take a dotted name; a function's is none."""
        first, parts = at, []
        while at < len(self.tokens) and _is_name(self.tokens[at], self.text):
            parts.append(self.text.name(self.tokens[at]))
            if self.word(at + 1) != ".":
                break
            at += 2
        if not parts or at >= len(self.tokens):
            return first + 1
        if self.word(at + 1) == "(" or len(parts) > 3:
            return at + 1
        name = TableName.of(parts)
        travels = self._travels(at + 1)
        after = self._after_sample(at + 1)
        shadowed = len(parts) == 1 and any(self.names.key(parts[0]) in f.ctes for f in self.frames)
        has_alias = bare or self._alias(after)
        start, end = self.tokens[first].start, self.tokens[at].end + 1
        alias_at = self.tokens[after - 1].end + 1
        self.found.append(TableUse(name, start, end, has_alias, alias_at, bare, shadowed, travels, table_at))
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
            at = self.text.closing.get(at + 1, len(self.tokens) - 1) + 1
        return at

    def _alias(self, at: int) -> bool:
        word = self.word(at)
        named = at < len(self.tokens) and _is_name(self.tokens[at], self.text) and word not in CLAUSES_AFTER_TABLE
        return named or word == "AS"


def find_names(text: SqlText, names: Names = Names.FOLDED) -> list[TableUse]:
    """Every place that names a table, a view or a common table expression, in the order of the text."""
    return NameFinder(text, names).run()


def _is_name(token: Token, text: SqlText) -> bool:
    if token.token_type is TokenType.IDENTIFIER:
        return True
    return token.token_type not in (*QUOTED, TokenType.NUMBER) and text.raw(token).replace("_", "a").isalnum()


_ALIAS_TOKENS = (TokenType.ALIAS, TokenType.VAR, TokenType.IDENTIFIER)


def replace_tables(
    text: SqlText,
    uses: Sequence[TableUse],
    names: Sequence[str],
    database: str = "default",
    compared: Names = Names.FOLDED,
    edits: Sequence[Edit] = (),
) -> SqlText:
    """The text with each use's table replaced by the (unquoted) name of the same index.

    A use without an alias gets its table's own name as alias, so that ``t.a`` means the same, and ``db.t.a`` becomes
    ``t.a``.  ``database`` is the current one; ``compared`` says which names in the text are the same.  ``edits`` are
    more changes of the text, beside its tables' names.
    """
    if len(uses) != len(names):
        raise ValueError(f"{len(uses)} uses but {len(names)} names")
    qualified, aliases = _qualified(text, uses, database, compared)
    made = [e for e in qualified if not any(start <= e[0] and e[1] <= end for start, end, _ in edits)]
    for use, name in zip(uses, names, strict=True):
        alias = f" AS {quoted(aliases.get(_place(use, database, compared), use.name.table))}"
        if use.table_at is not None:
            made.append((use.table_at, use.end, f"SELECT * FROM {quoted(name)}{alias}"))
            continue
        made.append((use.start, use.end, quoted(name)))
        if not use.has_alias:
            made.append((use.alias_at, use.alias_at, alias))
    return text.edit([*made, *edits])


def _place(use: TableUse, database: str, names: Names) -> tuple[str, str]:
    return names.key(use.name.database or database), names.key(use.name.table)


def _qualified(
    text: SqlText, uses: Sequence[TableUse], database: str, names: Names
) -> tuple[list[Edit], dict[tuple[str, str], str]]:
    """Edits of references ``db.t.column`` to uses that go by their alias, and aliases where ``t`` is ambiguous.

    Tables of one name in different databases get aliases of their own; ``t.column`` is then the one of its scope.
    """
    plain = [u for u in uses if not u.has_alias or u.table_at is not None]
    places = {_place(u, database, names) for u in plain}
    lower = names.key(text)
    if not any(name in lower for name, _ in places):
        return [], {}
    databases: dict[str, set[str]] = {}
    for name, table in places:
        databases.setdefault(table, set()).add(name)
    spans = {u.start for u in uses}
    full: list[tuple[tuple[str, str], list[Token], int]] = []
    short: list[tuple[str, str, Token]] = []
    for chain in _chains(text):
        if chain[0].start in spans:
            continue
        words = [names.key(text.name(t)) for t in chain[::2]]
        first = 1 if len(words) > 3 and words[0].lower() in LAKE_CATALOGS else 0
        if len(words) >= first + 3 and (words[first], words[first + 1]) in places:
            full.append(((words[first], words[first + 1]), chain, first))
        elif len(databases.get(words[0], ())) > 1:
            short.append((words[0], words[1], chain[0]))
    doubled = {place[1] for place, _, _ in full if len(databases[place[1]]) > 1}
    aliases = {place: ".".join(place) for place in places if place[1] in doubled}
    edits: list[Edit] = []
    for place, chain, first in full:
        last = chain[2 * first + 2]
        edits.append((chain[0].start, last.start, ""))
        if place in aliases:
            edits.append((last.start, last.end + 1, quoted(aliases[place])))
    if doubled and short:
        scopes = _Scopes(text)
        for name, column, token in short:
            nearest = scopes.nearest(token.start, [u for u in plain if names.same(u.name.table, name)])
            having = {_place(u, database, names) for u in nearest if _has(u, column, names)}
            if name in doubled and len(having) == 1:
                edits.append((token.start, token.end + 1, quoted(aliases[having.pop()])))
    return edits, aliases


class _Scopes:
    """Which SELECT, or bracket with an alias, a place of a text belongs to."""

    def __init__(self, text: SqlText) -> None:
        words = text.words
        self.parents: list[int] = [-1]
        self.starts = [t.start for t in text.tokens]
        self.scopes: list[int] = []
        stack = [0]
        # The names inside of brackets that have an alias, as in (t) x, are not seen outside.
        after = {opened: text.tokens[closed + 1 : closed + 2] for opened, closed in text.closing.items()}
        named = {opened for opened, next_ in after.items() if next_ and next_[0].token_type in _ALIAS_TOKENS}
        for at, word in enumerate(words):
            if word == "(":
                inner = at + 1
                while inner < len(words) and words[inner] == "(":
                    inner += 1
                is_query = inner < len(words) and words[inner] in QUERY_WORDS
                stack.append(self._new(stack[-1]) if is_query or at in named else stack[-1])
            elif word in SET_OPERATORS and not (at and words[at - 1] == "*"):  # SELECT * EXCEPT (a)
                stack[-1] = self._new(self.parents[stack[-1]])
            self.scopes.append(stack[-1])
            if word == ")" and len(stack) > 1:
                stack.pop()

    def _new(self, parent: int) -> int:
        self.parents.append(parent)
        return len(self.parents) - 1

    def _at(self, position: int) -> int:
        return self.scopes[bisect.bisect_right(self.starts, position) - 1]

    def nearest(self, position: int, uses: Sequence[TableUse]) -> list[TableUse]:
        """Those of the innermost scope around a place that has some of these."""
        scope = self._at(position)
        while scope >= 0:
            same_scope = [u for u in uses if self._at(u.start) == scope]
            if same_scope:
                return same_scope
            scope = self.parents[scope]
        return []


def _has(use: TableUse, column: str, names: Names) -> bool:
    """Whether a use may have a column that the text names."""
    return column == "*" or use.columns is None or column in map(names.key, use.columns)


def _chains(text: SqlText) -> list[list[Token]]:
    """The runs ``a.b.c`` (or ``a.b.*``) of a text, as their tokens with the dots."""
    out: list[list[Token]] = []
    run: list[Token] = []
    for token in text.tokens:
        dot = token.token_type is TokenType.DOT
        part = token.token_type in (TokenType.IDENTIFIER, TokenType.STAR) or text.name(token)[:1].isalpha()
        joined = bool(run) and (run[-1].token_type is TokenType.DOT) != dot
        if joined and (dot or part):
            run.append(token)
            continue
        if len(run) > 2:
            out.append(run)
        run = [token] if part and not dot else []
    return [*out, run] if len(run) > 2 else out
