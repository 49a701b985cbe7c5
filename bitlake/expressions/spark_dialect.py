"""Spark SQL as sqlglot reads it, corrected to what Spark 4 does.

Since Spark 4.0 a doubled quote inside a quoted string is one quote character (``'it''s'`` is ``it's``), as in the
standard; sqlglot's Spark dialect reads it as two adjoining strings.  Adjoining strings (``'a' 'b'``) stay one
concatenated literal in both.

sqlglot's dialect also accepts syntax of other engines: :func:`foreign_form` finds it, and the parser refuses lists with
a comma too many.

Parameters, ``:name`` and ``?``, are replaced by Python values as literals of Spark SQL (:func:`with_values`).
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, ClassVar, TypeAlias, TypeVar

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError

from bitlake.errors import InvalidRequest
from bitlake.expressions.literals import python_value
from bitlake.expressions.sql_text import quote
from bitlake.types import time_zone

Item = TypeVar("Item")

_TYPED_LITERALS = (
    exp.DataType.Type.DATE,
    exp.DataType.Type.TIME,
    exp.DataType.Type.TIMESTAMP,
    exp.DataType.Type.TIMESTAMPTZ,
    exp.DataType.Type.TIMESTAMPLTZ,
    exp.DataType.Type.TIMESTAMPNTZ,
)
"""The types that Spark takes before a text, beside intervals and X."""


_Call: TypeAlias = Callable[[list[exp.Expr]], exp.Expr]
_ABBREVIATED = frozenset(exp.TimeUnit.UNABBREVIATED_UNIT_NAME)


def _with_unit(name: str, place: int) -> _Call:
    """A reader of ``trunc`` or ``date_trunc``, whose unit is the argument at ``place``.

    sqlglot reads Q as QUARTER, and a column's name as a unit.  Spark returns NULL for Q, and uses the column's value.
    Such calls stay as they are written.
    """

    def read(arguments: list[exp.Expr]) -> exp.Expr:
        unit = arguments[place] if len(arguments) == 2 else None
        if not isinstance(unit, exp.Literal) or not unit.is_string or unit.name.upper() in _ABBREVIATED:
            return exp.Anonymous(this=name, expressions=arguments)
        call: exp.Expr = Spark.Parser.FUNCTIONS[name](arguments)
        return call

    return read


class SparkSql(Spark):
    """The dialect that every SQL text given to bitlake is read with."""

    class Tokenizer(Spark.Tokenizer):
        """Spark's tokens, with doubled quotes."""

        STRING_ESCAPES = ["'", '"', "\\"]  # noqa: RUF012 (sqlglot's own way of declaring it)

        # Left empty, so that the rest of CALL, SHOW and the like is tokens too, not one string.
        COMMANDS: ClassVar[set[TokenType]] = set()

    class Parser(Spark.Parser):  # type: ignore[misc, valid-type]  # where it is defined depends on the version
        """Spark's statements; those that only Spark itself can read (SET) are not warned of."""

        FUNCTIONS: ClassVar[dict[str, Any]] = {
            **Spark.Parser.FUNCTIONS,
            "TRUNC": _with_unit("TRUNC", 1),
            "DATE_TRUNC": _with_unit("DATE_TRUNC", 0),
        }

        def _warn_unsupported(self) -> None:
            return

        def _parse_csv(self, parse_method: Callable[[], Item | None], sep: TokenType = TokenType.COMMA) -> list[Item]:
            """A list, refused if nothing stands before or after a comma: sqlglot leaves such items out."""
            items = []
            while True:
                item = parse_method()
                if item is not None:
                    items.append(item)
                if not self._match(sep):
                    if items and item is None:
                        self.raise_error("nothing follows this comma", self._prev)
                    return items
                if item is None:
                    self.raise_error("nothing precedes this comma", self._prev)
                elif isinstance(item, exp.Expr):
                    self._add_comments(item)

        def _parse_join(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
            comma = self._curr
            join: exp.Expr | None = super()._parse_join(*args, **kwargs)
            if join is None and comma is not None and comma.token_type is TokenType.COMMA and self._prev is comma:
                self.raise_error("nothing follows this comma", comma)
            return join

        def _parse_type(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
            """Read ``DATE '2020-01-01'::STRING`` as a cast of the date, and refuse ``INT '1'``, as Spark does.

            sqlglot casts the text first, and takes any type before a text.
            """
            token, is_typed = self._curr, self._next is not None and self._next.token_type is TokenType.STRING
            made: exp.Expr | None = super()._parse_type(*args, **kwargs)
            if not (is_typed and isinstance(made, exp.Cast)):
                return made
            if not made.is_type(*_TYPED_LITERALS):
                self.raise_error(f"write CAST('…' AS {token.text}); a literal has no such type", token)
            if not isinstance(made.this, exp.TryCast):
                return made
            inner = made.this
            while isinstance(inner.this, exp.TryCast):
                inner = inner.this
            if not isinstance(inner.this, exp.Literal):
                return made
            inner.set("this", exp.Cast(this=inner.this, to=made.to))
            outer: exp.Expr = made.this
            return outer

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
        what = str(first.get("description") or "invalid syntax").rstrip(".").partition(" but got <Token")[0]
        what = "a part is missing" if what.startswith("Required keyword") else what
        for sqlglots, ours in (("Invalid expression / U", "u"), ("Expecting", "expected"), ("Expected", "expected")):
            what = what.replace(sqlglots, ours)
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


# --- forms of other dialects ------------------------------------------------------------------------------------------

_TYPES = frozenset(
    "ARRAY BIGINT BINARY BOOLEAN BYTE CHAR CHARACTER DATE DEC DECIMAL DOUBLE FLOAT GEOGRAPHY GEOMETRY INT INTEGER "
    "INTERVAL LONG MAP NUMERIC REAL SHORT SMALLINT STRING STRUCT TIME TIMESTAMP TIMESTAMP_LTZ TIMESTAMP_NTZ TINYINT "
    "VARCHAR VARIANT VOID".split()
)
"""The first words of Spark's types."""
_LENGTHS = frozenset(("CHAR", "CHARACTER", "VARCHAR"))
"""Types that need a length."""
_FOREIGN_FUNCTIONS = frozenset(
    "CHARINDEX CONVERT COUNTIF DAY_OF_MONTH DAY_OF_WEEK DAY_OF_YEAR ENDS_WITH IIF LAST_DAY_OF_MONTH LOGICAL_AND "
    "LOGICAL_OR REGEXP_SPLIT SAFE_CAST STARTS_WITH STDEV STR_POSITION STRPOS TS_OR_DS_TO_DATE VARIANCE_POP "
    "VARIANCE_SAMP WEEK_OF_YEAR".split()
)
"""Functions of other dialects that sqlglot reads as Spark's."""
_CASTS = frozenset(("CAST", "TRY_CAST"))
_QUERY_WORDS = frozenset(("SELECT", "WITH", "FROM", "("))
_SET_OPERATORS = frozenset(("UNION", "INTERSECT", "EXCEPT", "MINUS"))
_BEFORE_SELECT = frozenset(("WHERE", "GROUP", "HAVING", "WINDOW"))
"""Clauses that a query which begins with FROM can only have after its SELECT."""
_LAST = frozenset(
    (TokenType.ORDER_BY, TokenType.SORT_BY, TokenType.CLUSTER_BY, TokenType.DISTRIBUTE_BY)
    + (TokenType.LIMIT, TokenType.OFFSET)
)
"""Clauses after which no set operator can follow."""
_COUNTS = frozenset((TokenType.LIMIT, TokenType.OFFSET))
_COUNT_WORDS = frozenset(("(", ":", "?", "ALL"))
"""Words, beside numbers, with which the count of LIMIT or OFFSET begins."""
_BEFORE_NAME = frozenset(("SELECT", "DISTINCT", ",", ".", "(", "AS", "BY", "WHERE", "AND", "OR", "NOT", "ON", "HAVING"))
"""Words after which a word is a name or a function, not an operator."""


class _Bracket:
    """An open round bracket of a statement: a function's arguments, or a query and the clauses of it seen so far."""

    def __init__(self, function: str) -> None:
        self.function = function
        self.is_query: bool | None = None
        self.selected = self.ended = self.has_offset = False


def foreign_form(text: str, tokens: Sequence[Token], words: Sequence[str]) -> InvalidRequest | None:
    """The error for the first syntax of another dialect in a statement, with its place; None without such syntax.

    sqlglot accepts clauses, operators, types and functions of many engines, and its tree does not tell them from
    Spark's.  ``words``: as :attr:`bitlake.sql.text.SqlText.words`.
    """
    opened = [_Bracket("")]
    for i, word in enumerate(words):
        level = opened[-1]
        if word == ")":
            del opened[max(1, len(opened) - 1) :]
            continue
        if level.is_query is None:
            level.is_query = word in _QUERY_WORDS
        reason = _foreign_word(words, i)
        if word == "(":
            opened.append(_Bracket(words[i - 1] if i else ""))
        elif tokens[i].token_type is TokenType.DCOLON or (word == "AS" and level.function in _CASTS):
            reason = reason or (_foreign_type(text, tokens, words, i + 1) if text[tokens[i].start] in ":aA" else None)
        elif level.is_query:
            reason = reason or _foreign_clause(level, tokens, words, i)
        if reason is not None:
            return InvalidRequest(f"{reason}: {caret(text, tokens[i].start)}")
    return None


def _foreign_clause(level: _Bracket, tokens: Sequence[Token], words: Sequence[str], i: int) -> str | None:
    """Why a clause cannot stand where it does in its query."""
    word, kind = words[i], tokens[i].token_type
    before, after = words[i - 1] if i else "", [*words[i + 1 : i + 4], "", "", ""]
    if kind in _COUNTS and (before in _BEFORE_NAME or not (after[0][:1].isdigit() or after[0] in _COUNT_WORDS)):
        return None  # a column called limit or offset
    if word in ("SELECT", "|>"):
        level.selected = True
    elif word in _SET_OPERATORS and before != "*":  # SELECT * EXCEPT (a)
        if level.ended:
            return f"a query with ORDER BY or LIMIT needs brackets before {word}"
        level.selected = False
    elif word in _BEFORE_SELECT and not level.selected:
        return f"a query that begins with FROM has {word} after its SELECT"
    elif kind in _LAST:
        if kind is TokenType.LIMIT and level.has_offset:
            return "write LIMIT before OFFSET"
        level.ended, level.has_offset = True, kind is TokenType.OFFSET
    if kind is TokenType.GROUP_BY and after[0] == "DISTINCT":
        return "GROUP BY does not take DISTINCT"
    if (
        kind is TokenType.LIMIT
        and after[1] in ("%", "PERCENT")
        and after[2] in ("", ")", ";", "OFFSET", *_SET_OPERATORS)
    ):
        return "LIMIT takes a number of rows, not a percentage"
    if kind is TokenType.LIMIT and after[1] == ",":
        return "LIMIT takes one number; write LIMIT … OFFSET …"
    if kind is TokenType.OFFSET and after[1] in ("ROW", "ROWS"):
        return "OFFSET takes a number; leave out ROWS"
    if word == "IF" and before not in (".", "AS") and after[0] not in ("(", ",", ")", "FROM", ""):
        return "IF is a function: if(condition, a, b)"
    if word == "USING" and after[0] != "(":
        return "USING takes names in brackets"
    if word == "OUTER" and after[0] == "JOIN" and before not in ("LEFT", "RIGHT", "FULL"):
        return "write LEFT, RIGHT or FULL before OUTER JOIN"
    if word == "AS" and after[0] == "" and i + 1 < len(tokens) and tokens[i + 1].token_type is TokenType.STRING:
        return "an alias is a name, not a string; write it in backticks"
    return None


def _foreign_word(words: Sequence[str], i: int) -> str | None:
    """Why a word cannot stand before or after the words around it."""
    word, before, after = words[i], words[i - 1] if i else "(", [*words[i + 1 : i + 3], "", ""]
    match word:
        case "(" if before in _FOREIGN_FUNCTIONS:
            return f"Spark has no function '{before.lower()}'"
        case "(" if before == "DATE_TRUNC" and after[0].isalpha() and after[1] == ",":
            return "date_trunc takes its unit as a string"
        case "ISNULL" | "NOTNULL" if before not in _BEFORE_NAME and after[0] != "(":
            return f"write IS {'NOT ' if word == 'NOTNULL' else ''}NULL"
        case "~~" | "~~*" | "~~~":
            return "write LIKE"
        case "IN" if after[0] == "[" or after[:2] == ["(", ")"]:
            return "IN takes at least one value, in round brackets"
        case "FILTER" if before == ")" and after[0] == "(" and after[1] != "WHERE":
            return "FILTER takes (WHERE …)"
        case "MATERIALIZED" if before in ("AS", "NOT") and after[0] == "(":
            return "WITH does not take MATERIALIZED"
    return None


def _foreign_type(text: str, tokens: Sequence[Token], words: Sequence[str], i: int) -> str | None:
    """Why the type at a place is not one of Spark's."""
    word, following = [*words[i : i + 2], "", ""][:2]
    written = text[tokens[i].start : tokens[i].end + 1] if i < len(tokens) else ""
    if word not in _TYPES or " " in written:
        return f"Spark has no type '{written}'"
    return f"{word} needs a length, such as {word}(10)" if word in _LENGTHS and following != "(" else None


# --- parameters -------------------------------------------------------------------------------------------------------

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
