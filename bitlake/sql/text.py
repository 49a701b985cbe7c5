"""SQL text: edits by position, a cursor over its tokens, clauses that several statements share, and parameters.

Parameters of a statement, ``:name`` and ``?``, are replaced by literals, as Spark substitutes them: a condition with
parameters then prunes as one with literals does, and statements that Spark never sees take them too.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, NoReturn, TypeAlias

import sqlglot
from sqlglot import Token, TokenType, exp
from sqlglot.errors import SqlglotError

from bitlake.errors import InvalidRequest
from bitlake.expressions.folding import NotConstant, constant
from bitlake.expressions.spark_dialect import SparkSql, caret, tokenize
from bitlake.sql.statements import SqlNull, TableName

Edit: TypeAlias = tuple[int, int, str]
"""From a place up to another the text is to be this."""


def spliced(text: str, edits: Iterable[Edit]) -> str:
    """The text with all edits, which do not overlap, applied."""
    out, done = [], 0
    for start, end, new in sorted(edits, key=lambda e: e[:2]):
        out += [text[done:start], new]
        done = end
    return "".join([*out, text[done:]])


# --- tokens -----------------------------------------------------------------------------------------------------------

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


# --- shared clauses: properties, PARTITION, LIKE, arguments of CALL ---------------------------------------------------


def properties(c: Cursor) -> dict[str, str]:
    """``('k' = 'v', a.b = 5, …)``: quoted or bare dotted keys; strings, numbers and booleans as values."""
    c.expect("(")
    out: dict[str, str] = {}
    while True:
        at = c.position
        key = _key(c)
        if key in out:
            raise InvalidRequest(f"property '{key}' is given twice at {caret(c.text, at)}")
        if not c.accept("="):
            c.accept("==")
        out[key] = _property_value(c, key)
        if not c.accept(","):
            break
    c.expect(")")
    return out


def property_keys(c: Cursor) -> tuple[str, ...]:
    """``('k', a.b, …)``."""
    c.expect("(")
    out = [_key(c)]
    while c.accept(","):
        out.append(_key(c))
    c.expect(")")
    return tuple(out)


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
        c.until(",")
        return c.text[start : c.end]
    raise c.error(f"a value of property '{key}' in quotes, a number, TRUE or FALSE")


def partition_spec(c: Cursor, *, dynamic: bool = False) -> dict[str, Any]:
    """``(a = 1, b = 'x')``, and ``b`` alone (None) where ``dynamic``; NULL is :class:`SqlNull`."""
    c.expect("(")
    out: dict[str, Any] = {}
    while True:
        at = c.position
        name = c.name("a partition column")
        if name in out:
            raise InvalidRequest(f"partition column '{name}' is given twice at {caret(c.text, at)}")
        if c.accept("=") or c.accept("=="):
            value = _value(c)
            out[name] = SqlNull.NULL if value is None else value
        elif dynamic:
            out[name] = None
        else:
            c.fail(f"'=' and a value for partition column '{name}'")
        if not c.accept(","):
            break
    c.expect(")")
    return out


def like(c: Cursor) -> str | None:
    """``[LIKE] 'pattern'``."""
    if c.accept("LIKE"):
        return c.string("a pattern in quotes")
    return c.string() if c.kind() in STRINGS else None


def arguments(c: Cursor) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """``(1, 'x', name => value)``: positional ones first, then named (``=>`` or ``=``)."""
    c.expect("(")
    positional: list[Any] = []
    named: dict[str, Any] = {}
    while not c.looking_at(")"):
        at = c.position
        if c.word(1) in ("=>", "="):
            name = c.name("an argument name")
            c.i += 1
            if name.lower() in named:
                raise InvalidRequest(f"argument '{name}' is given twice at {caret(c.text, at)}")
            named[name.lower()] = _value(c)
        elif named:
            c.fail("a named argument (name => value) after the first named one")
        else:
            positional.append(_value(c))
        if not c.accept(","):
            break
    c.expect(")")
    return tuple(positional), named


def _value(c: Cursor) -> Any:
    """A constant expression as a Python value; ``map(…)`` a dict and ``array(…)`` a list."""
    start = c.position
    text = c.until(",")
    try:
        return _constant(sqlglot.parse_one(text, dialect=SparkSql))
    except (SqlglotError, NotConstant, RecursionError) as e:
        raise InvalidRequest(f"'{text}' is not a constant value: {caret(c.text, start)}") from e


def _constant(node: exp.Expr) -> Any:
    match node:
        case exp.Array():
            return [_constant(e) for e in node.expressions]
        case exp.VarMap():
            keys, values = node.args["keys"], node.args["values"]
            return dict(zip(_constant(keys), _constant(values), strict=True))
    return constant(node, "UTC")


# --- parameters -------------------------------------------------------------------------------------------------------

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
