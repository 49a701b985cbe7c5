"""The interactive shell through a pseudo-terminal, and what it is made of."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.conftest import environment
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

import bitlake
from bitlake.cli.output import Output
from bitlake.cli.run import LakeOptions, Run
from bitlake.cli.shell import Names, is_complete

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\x1b\][^\x07]*\x07|\r")
UP, TAB, ENTER, CTRL_C, CTRL_D = "\x1b[A", "\t", "\r", "\x03", "\x04"


class Terminal:
    """A process at a terminal of its own: type, and wait for what it says."""

    def __init__(self, home: Path, lake: bitlake.Lake) -> None:
        self.ours, theirs = pty.openpty()
        env = environment(
            home, BITLAKE_LAKE=lake.path, TERM="xterm", COLUMNS="120", LINES="40", PROMPT_TOOLKIT_NO_CPR="1"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bitlake", "sql"], stdin=theirs, stdout=theirs, stderr=theirs, env=env, cwd=home
        )
        os.close(theirs)
        self.seen = ""

    def type(self, *keys: str) -> None:
        for key in keys:
            os.write(self.ours, key.encode())

    def wait(self, text: str, seconds: float = 100) -> str:
        """Read until a text has come since the last one that was waited for; returns all up to it."""
        until = time.monotonic() + seconds
        while text not in (plain := ESCAPES.sub("", self.seen)):
            left = until - time.monotonic()
            assert left > 0, f"waited for {text!r} in vain: {plain[-2000:]!r}"
            if select.select([self.ours], [], [], min(left, 1))[0]:
                try:
                    self.seen += os.read(self.ours, 65536).decode(errors="replace")
                except OSError:
                    assert text in ESCAPES.sub("", self.seen), f"it ended without {text!r}: {plain[-2000:]!r}"
        self.seen = plain[plain.index(text) + len(text) :]
        return plain

    def ends(self, seconds: float = 60) -> int:
        until = time.monotonic() + seconds
        while time.monotonic() < until:  # what nobody reads would keep it from ending
            try:
                if select.select([self.ours], [], [], 1)[0] and not os.read(self.ours, 65536):
                    break
            except OSError:
                break
        os.close(self.ours)
        return self.process.wait(60)


@pytest.fixture
def terminal(lake: bitlake.Lake, home: Path) -> Iterator[Terminal]:
    made = Terminal(home, lake)
    yield made
    if made.process.poll() is None:
        made.process.kill()
        made.process.wait()


@pytest.mark.spark
@pytest.mark.slow
def test_statements_are_typed(terminal: Terminal) -> None:
    """Several lines, completion of a table and of its columns, an error, Ctrl-C, and the way out, in one session."""
    terminal.wait("default>")
    terminal.type("SELECT count(*) * 1000 AS many FROM ord", TAB)
    terminal.wait("orders")
    terminal.type(ENTER, "WHERE sta", TAB)
    terminal.wait("status")
    terminal.type(" = 'PENDING';", ENTER)
    terminal.wait("30000")
    terminal.wait("1 rows, ")
    terminal.wait("default>")
    terminal.type("SELECT nothing FROM orders;", ENTER)
    terminal.wait("error: ")
    assert "Traceback" not in terminal.wait("default>")
    terminal.type("SELECT half a line", CTRL_C)
    terminal.wait("default>")
    terminal.type("SELECT 6 * 7 AS answer;", ENTER)
    terminal.wait("42")
    terminal.wait("default>")
    terminal.type(CTRL_D)
    assert terminal.ends() == 0


def test_history_and_commands_without_spark(lake: bitlake.Lake, home: Path) -> None:
    first = Terminal(home, lake)
    first.wait("default>")
    first.type("\\d orders", ENTER)
    first.wait("BIGINT")
    first.wait("default>")  # what is typed before the prompt is there may be lost with the terminal's mode
    first.type("\\nope", ENTER)
    first.wait("no such command '\\nope'")
    first.wait("default>")
    first.type("\\q", ENTER)
    assert first.ends() == 0
    second = Terminal(home, lake)
    second.wait("default>")
    second.type(UP, UP, UP)
    second.wait("\\d orders")
    second.type(ENTER)
    second.wait("BIGINT")
    second.wait("default>")
    second.type(CTRL_D)
    assert second.ends() == 0
    history = home / "state" / "bitlake" / "history"
    assert "+\\d orders" in history.read_text() and history.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("SELECT 1;", True), ("SELECT 1", False), ("", True), ("SELECT ';", False), ("SELECT ';';", True),
        ("SELECT 1; -- why", True), ("SELECT 1 -- why;", False), ("/* ; */", False), ("\\d t", True), ("exit", True),
        ("SELECT 1;\n SELECT 2", False), ("SELECT `a;", False),
    ],
)  # fmt: skip
def test_when_enter_runs(text: str, complete: bool) -> None:
    assert is_complete(text) is complete


def completions(lake: bitlake.Lake, text: str) -> list[str]:
    options = LakeOptions(lake.path, None, "UTC", (), "filesystem", None, ())
    found = Names(Run(options, Output())).get_completions(Document(text), CompleteEvent())
    return [c.text for c in found]


def test_completions(lake: bitlake.Lake) -> None:
    assert completions(lake, "SELECT * FROM us") == ["users"]
    assert completions(lake, "SELECT * FROM orders WHERE st") == ["status"]
    assert completions(lake, "INSERT INTO ") == ["orders", "users"]
    assert completions(lake, "SEL") == ["SELECT"] and completions(lake, "sel") == ["select"]
    assert completions(lake, "SELECT * FROM orders WHERE na") == []  # a column of another table
    assert completions(lake, "SELECT 'x'") == []
