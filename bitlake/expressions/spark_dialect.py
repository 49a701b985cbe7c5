"""Spark SQL as sqlglot reads it, corrected to what Spark 4 does.

Since Spark 4.0 a doubled quote inside a quoted string is one quote character (``'it''s'`` is ``it's``), as in the
standard; sqlglot's Spark dialect reads it as two adjoining strings.  Adjoining strings (``'a' 'b'``) stay one
concatenated literal in both.
"""

from __future__ import annotations

from typing import ClassVar

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError

from bitlake.errors import InvalidRequest
from bitlake.expressions.sql_text import quoted as quoted


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
