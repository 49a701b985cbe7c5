"""The interactive shell of ``bitlake sql``.

It keeps a session and a history, edits multi-line statements, and completes tables and columns.  A statement ends with
``;`` and may span lines.  Ctrl-C clears the input or stops a query; Ctrl-D exits.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from sqlglot import TokenType

from bitlake.cli.failures import show_failure
from bitlake.cli.result import Result, show_table
from bitlake.cli.run import Run
from bitlake.errors import BitlakeError, InvalidRequest
from bitlake.expressions.spark_dialect import tokenize
from bitlake.sql.parser import split_statements

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
            except Exception as e:  # noqa: BLE001 - the session and its views are kept, whatever failed
                show_failure(e, False, False)

    def _run(self, text: str) -> None:
        if not text:
            return
        if text.startswith("\\"):
            self._command(text.rstrip(";").split())
            return
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
    try:
        tokens = tokenize(stripped)
    except InvalidRequest:
        return False  # an open quote
    return bool(tokens) and tokens[-1].token_type is TokenType.SEMICOLON
