"""``bitlake sql``: statements from the command line, a file or an interactive shell.

The shell keeps a session and a history, edits multi-line statements, and completes tables and columns.  A
statement ends with ``;`` and may span lines.  Ctrl-C clears the input or stops a query; Ctrl-D exits.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from bitlake.cli.failures import Usage, show_error
from bitlake.cli.parameters import argument, limit_option
from bitlake.cli.result import SHOW, Result, show_table
from bitlake.cli.run import Run, command
from bitlake.errors import BitlakeError, InvalidRequest, NotFound

if TYPE_CHECKING:
    pass


# --- the interactive shell --------------------------------------------------------------------------------------------

_HELP = """\
statements end with ; and may span lines    Ctrl-C clears the input or stops a query    Ctrl-D exits
\\dt  tables      \\d TABLE  its columns      \\l  databases      \\q  exit      \\?  this help"""
_KEYWORDS = """\
SELECT FROM WHERE GROUP BY ORDER HAVING LIMIT JOIN LEFT RIGHT FULL INNER ON USING AND OR NOT IN IS NULL LIKE BETWEEN AS
DISTINCT UNION ALL CASE WHEN THEN ELSE END CREATE TABLE DROP ALTER INSERT INTO OVERWRITE VALUES DELETE UPDATE SET MERGE
MATCHED TRUNCATE DESCRIBE SHOW TABLES DATABASES USE EXPLAIN CALL ANALYZE TBLPROPERTIES PARTITIONED COMMENT COUNT SUM MIN
MAX AVG VERSION OF TIMESTAMP WITH""".split()
_BEFORE_TABLES = frozenset(("FROM", "JOIN", "INTO", "TABLE", "UPDATE", "DESCRIBE", "DESC", "USING"))
"""A table name follows these words."""


class Shell:
    """Reads statements until the user exits; shows at most ``limit`` rows of each result, 0 for all."""

    def __init__(self, run: Run, limit: int, engine: str) -> None:
        self.run = run
        self.engine = engine
        self.limit = limit
        self.lake = run.lake()
        self.names = Names(run)
        self.session: PromptSession[str] = PromptSession(
            history=_history(),
            completer=self.names,
            complete_while_typing=False,
            multiline=True,
            prompt_continuation=lambda width, number, wrapped: " " * (width - 3) + "-> ",
            key_bindings=_keys(),
        )

    def loop(self) -> None:
        """Read and run statements until Ctrl-D or ``\\q``."""
        self.run.out.screen.line(f"{self.lake.path}: statements end with ;  \\? shows help, Ctrl-D exits", "dim")
        while True:
            try:
                text = self.session.prompt(f"{self.lake.database}> ")
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            if text.strip() in ("\\q", "quit", "exit", "quit;", "exit;"):
                return
            try:
                self._run(text.strip())
            except KeyboardInterrupt:
                self.run.out.note("stopped")
            except BitlakeError as e:
                show_error(e, False)

    def _run(self, text: str) -> None:
        if not text:
            return
        if text.startswith("\\"):
            self._command(text.rstrip(";").split())
            return
        from bitlake.sql.parser import split_statements

        for statement in split_statements(text):
            result = Result.of(self.lake, statement, self.limit, self.engine, self.run.out)
            if result.has_rows:
                show_table(self.run.out.screen, result)
            rows = f"{result.rows.num_rows:,} rows, " if result.has_rows else "ok, "
            self.run.out.screen.line(f"{rows}{result.seconds:.2f} s", "dim")
            if not statement.lstrip("( \n").upper().startswith(("SELECT", "WITH")):
                self.names.forget()

    def _command(self, words: list[str]) -> None:
        screen = self.run.out.screen
        match words:
            case ["\\?"]:
                screen.line(_HELP)
            case ["\\l"]:
                screen.table(("database",), [(d,) for d in self.lake.databases()])
            case ["\\dt"]:
                screen.table(("table",), [(t,) for t in self.lake.tables()], empty="no tables yet")
            case ["\\d", table]:
                fields = self.run.state(table).schema.fields
                screen.table(("column", "type"), [(f.name, str(f.type)) for f in fields])
            case _:
                raise InvalidRequest(f"no such command '{' '.join(words)}'; \\? lists them")


class Names(Completer):
    """Completes tables, the columns of the tables that a statement names, and SQL keywords."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._tables: list[str] | None = None
        self._columns: dict[str, list[str]] = {}

    def forget(self) -> None:
        """Clear the cached names: a statement may have created, dropped or changed tables."""
        self._tables = None
        self._columns.clear()

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """The names and keywords that can follow at the cursor."""
        word = document.get_word_before_cursor(pattern=re.compile(r"[\w.]+"))
        if not word and not document.text_before_cursor.endswith((" ", "(", ",", "\n")):
            return
        upper = not word or word[0].isupper()
        before = document.text_before_cursor[: len(document.text_before_cursor) - len(word)].split()
        only_tables = bool(before) and before[-1].upper() in _BEFORE_TABLES
        for name, kind in self._candidates(document.text, only_tables):
            if name.lower().startswith(word.lower()):
                text = name if kind != "word" or upper else name.lower()
                yield Completion(text, -len(word), display_meta="" if kind == "word" else kind)

    def _candidates(self, text: str, only_tables: bool) -> Iterable[tuple[str, str]]:
        tables = _quietly(self._all_tables)
        if only_tables:
            yield from ((t, "table") for t in tables)
            return
        named = {w.lower() for w in re.findall(r"[\w.]+", text)}
        for table in tables:
            if table.lower() in named:
                yield from ((c, table) for c in _quietly(partial(self._of, table)))
        yield from ((t, "table") for t in tables)
        yield from ((w, "word") for w in _KEYWORDS)

    def _all_tables(self) -> list[str]:
        if self._tables is None:
            lake = self.run.lake()
            current = lake.database
            self._tables = lake.tables()
            self._tables += [f"{d}.{t}" for d in lake.databases() if d != current for t in lake.tables(d)]
        return self._tables

    def _of(self, table: str) -> list[str]:
        if table not in self._columns:
            self._columns[table] = list(self.run.state(table).schema.field_names)
        return self._columns[table]


def _quietly(ask: Callable[[], list[str]]) -> list[str]:
    try:
        return ask()
    except BitlakeError:
        return []  # an error must not interrupt typing


def _history() -> History:
    """Statements of earlier sessions, in ``$XDG_STATE_HOME/bitlake/history``, readable by the owner only."""
    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "bitlake"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = folder / "history"
        file.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(file))


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add(Keys.Enter)
    def _enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return keys


def is_complete(text: str) -> bool:
    """Whether Enter runs a text: it ends with ``;`` outside quotes and comments, is a command, or is empty."""
    stripped = text.strip()
    if not stripped or stripped.startswith("\\") or stripped in ("quit", "exit"):
        return True
    if ";" not in stripped:
        return False
    from sqlglot import TokenType

    from bitlake.expressions.spark_dialect import tokenize

    try:
        tokens = tokenize(stripped)
    except InvalidRequest:
        return False  # an open quote
    return bool(tokens) and tokens[-1].token_type is TokenType.SEMICOLON


# --- the command ------------------------------------------------------------------------------------------------------

SHOWN = 1000
"""Rows shown at a terminal without ``--limit``."""
_FORMATS = ("table", "csv", "json")


@command("sql")
@argument("statement", "One or more statements, separated by semicolons.", required=False)
@click.option("--file", "-f", metavar="FILE", help="Run the statements in a file; - is stdin.")
@limit_option(f"Return at most N rows of each result; 0 returns all. Default: {SHOWN} at a terminal, all in a pipe.")
@click.option(
    "--format",
    type=click.Choice(_FORMATS),
    default="table",
    metavar="FORMAT",
    help="table, csv or json (one object per line).",
)
@click.option(
    "--engine",
    type=click.Choice(("auto", "duckdb", "spark")),
    default="auto",
    show_default=True,
    help="auto: without Spark where statements and queries (by DuckDB) mean the same, else Spark.",
)
def sql(run: Run, statement: str | None, file: str | None, limit: int | None, format: str, engine: str) -> None:
    """Run Spark SQL over the lake's tables: statements, a file of statements, or an interactive shell.

    Without a statement, the command opens the shell at a terminal and reads statements from stdin in a pipe.

    Example: bitlake sql "SELECT status, count(*) FROM orders GROUP BY status"
    """
    if statement is not None and file is not None:
        raise Usage("STATEMENT and --file exclude each other: use one of them")
    if statement is None and file is None and sys.stdin.isatty() and not run.out.json:
        Shell(run, SHOWN if limit is None else limit, engine).loop()
        return
    from bitlake.sql.parser import split_statements

    statements = split_statements(_text(statement, file))
    if not statements:
        raise Usage("the text contains no statement")
    shown = limit if limit is not None else SHOWN if run.out.is_terminal and format == "table" else 0
    documents: list[dict[str, Any]] = []
    try:
        for number, text in enumerate(statements, 1):
            result = _numbered(run, text, shown, number if len(statements) > 1 else None, engine)
            if run.out.json:
                documents.append(result.document())
            elif result.has_rows:
                SHOW[format](run.out.screen, result)
    finally:
        if run.out.json:
            run.out.result({"statements": documents}, lambda screen: None)


def _text(statement: str | None, file: str | None) -> str:
    if statement is not None:
        return statement
    if file is None or file == "-":
        return sys.stdin.read()
    try:
        with open(file, encoding="utf-8") as f:
            return f.read()
    except FileNotFoundError as e:
        raise NotFound(f"file not found: {file}") from e
    except UnicodeDecodeError as e:
        raise InvalidRequest(f"{file} is not UTF-8 text; convert it first") from e


def _numbered(run: Run, text: str, limit: int, number: int | None, engine: str) -> Result:
    try:
        return Result.of(run.lake(), text, limit, engine, run.out)
    except BitlakeError as e:
        if number is not None:
            e.args = (f"statement {number}: {e}",)
        raise
