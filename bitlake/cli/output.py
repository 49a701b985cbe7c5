"""The output of a command: its result on stdout, as JSON or drawn for a person, and notes on stderr.

On a terminal, output has colours and is wrapped at its width.  In a pipe it is plain text, never cut or wrapped.
``NO_COLOR`` turns colours off.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bitlake.cli.failures import Problems, is_unicode, print_stderr, terminal_width, wrapped
from bitlake.formatting import printable, printable_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

_ENDLESS = 1_000_000
"""The line width in a pipe."""
_LEAST = 16
"""A column that is wrapped or shortened keeps at least this many characters."""
_KINDS = ">~*"
_STYLES = {"bold": "\x1b[1m", "dim": "\x1b[2m"}
_PLAIN = "\x1b[0m"

Document = Mapping[str, Any]


class Screen:
    """Output for a person: text, pairs and tables that fit the terminal's width.

    ``width`` is the maximum length of a line, ``coloured`` whether to write escape codes.  rich draws tables; lines
    are written without it, because it takes long to import.
    """

    def __init__(self, width: int, is_terminal: bool, coloured: bool) -> None:
        self.width = width
        self.is_terminal = is_terminal
        self.coloured = coloured

    @cached_property
    def _console(self) -> Console:
        from rich.console import Console

        return Console(
            markup=False,
            highlight=False,
            emoji=False,
            force_terminal=self.is_terminal,
            color_system="auto" if self.coloured else None,
            width=self.width,
        )

    def line(self, text: str = "", style: str | None = None) -> None:
        """Write a line, wrapped between words at the width; ``style`` is ``bold`` or ``dim``."""
        text = printable(text)
        before, after = (_STYLES[style], _PLAIN) if style is not None and self.coloured else ("", "")
        sys.stdout.write("".join(f"{before}{line}{after}\n" for line in wrapped(text, self.width).split("\n")))

    def text(self, text: str) -> None:
        """Write lines that are already aligned; only those wider than the terminal are wrapped."""
        self.line(text)

    def pairs(self, rows: Iterable[tuple[str, Any]], *, empty: bool = False) -> None:
        """Write names and values, one pair per line; pairs without a value only if ``empty``."""
        from rich.table import Table as Grid
        from rich.text import Text

        grid = Grid.grid(padding=(0, 2))
        grid.add_column(style="cyan", no_wrap=True)
        grid.add_column(overflow="fold")
        for name, value in rows:
            if empty or (value is not None and value != ""):
                grid.add_row(printable(name, one_line=True), Text(printable(str(value))))
        self.put(grid)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str = "nothing") -> None:
        """Write rows under column names.

        A leading ``>`` in a name aligns the column to the right.  If rows are wider than the terminal, columns with a
        leading ``*`` are wrapped, then those with a leading ``~`` (long names) are shortened in the middle.  A ``?``
        before these leaves a column out if all of its values are empty.
        """
        values = [list(row) for row in rows]
        if not values:
            self.line(empty, "dim")
            return
        kept = [i for i, name in enumerate(columns) if name[:1] != "?" or any(row[i] for row in values)]
        columns = [columns[i].removeprefix("?") for i in kept]
        if not self.is_terminal and self._plain_table(columns, [[_string(row[i]) for row in values] for i in kept]):
            return
        from rich.table import Table as Grid

        cells = [[_text(row[i]) for i in kept] for row in values]
        _shorten(columns, cells, self.width)
        grid = Grid(box=None, header_style="bold cyan", pad_edge=False, padding=(0, 2, 0, 0))
        for name in columns:
            kind = name[:1]
            grid.add_column(
                printable(name.lstrip(_KINDS), one_line=True),
                justify="right" if kind == ">" else "left",
                no_wrap=kind != "*",
                overflow="fold",
            )
        for row in cells:
            grid.add_row(*row)
        self.put(grid)

    def _plain_table(self, columns: Sequence[str], cells: Sequence[Sequence[str]]) -> bool:
        """Write a table, given by columns, as :meth:`put` would; False, and nothing, if it is wider than a line.

        rich takes 0.6 ms to draw a row, so a long result in a pipe would take minutes.
        """
        names = [printable(name.lstrip(_KINDS), one_line=True) for name in columns]
        drawn = [[name, *column] for name, column in zip(names, cells, strict=True)]
        widths = [max(map(_width, column)) for column in drawn]
        if sum(widths) + 2 * (len(widths) - 1) > self.width:
            return False
        padded = []
        for name, column, width in zip(columns, drawn, widths, strict=True):
            is_right = name[:1] == ">"
            column = [text.rstrip() for text in column] if is_right else column  # as rich does
            blanks = [" " * (width - _width(text)) for text in column]
            padded.append([b + t if is_right else t + b for t, b in zip(column, blanks, strict=True)])
        sys.stdout.writelines("  ".join(row).rstrip() + "\n" for row in zip(*padded, strict=True))
        return True

    def put(self, grid: Grid) -> None:
        """Write a rich table, in a pipe without trailing blanks."""
        sys.stdout.flush()
        if self.is_terminal:
            self._console.print(grid)
            return
        with self._console.capture() as captured:
            self._console.print(grid)
        for line in captured.get().splitlines():
            sys.stdout.write(line.rstrip() + "\n")


class Output:
    """One command's output; with ``json``, one JSON document."""

    def __init__(self, json: bool = False) -> None:
        self.json = json

    @cached_property
    def screen(self) -> Screen:
        """Stdout, drawn for a person."""
        coloured = self.is_terminal and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
        return Screen(terminal_width(sys.stdout.fileno()) if self.is_terminal else _ENDLESS, self.is_terminal, coloured)

    @property
    def is_terminal(self) -> bool:
        """Whether stdout is a terminal."""
        return sys.stdout.isatty()

    @property
    def watched(self) -> bool:
        """Whether stderr, which gets notes, is a terminal."""
        return sys.stderr.isatty()

    def result(self, document: Document, render: Callable[[Screen], None]) -> None:
        """Write a command's result: the document as JSON, or what ``render`` draws from it."""
        if self.json:
            text = json.dumps(document, indent=2, ensure_ascii=not is_unicode(sys.stdout), default=_plain)
            sys.stdout.write(printable_json(text) + "\n")
        else:
            render(self.screen)
        sys.stdout.flush()

    def note(self, text: str) -> None:
        """Write a note to stderr."""
        print_stderr(text)

    def problems(self) -> None:
        """End the command with exit code 1: it found problems."""
        raise Problems


def _text(value: Any) -> Text:
    from rich.text import Text

    return Text(_string(value), style="dim" if value is None else "")


def _string(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else printable(str(value), one_line=True)


def _width(text: str) -> int:
    """The number of a terminal's cells that a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # imported lazily: most results are ASCII

    return cell_len(text)


def _shorten(columns: Sequence[str], rows: list[list[Text]], width: int) -> None:
    """Shorten long names, in place, where rows are wider than the terminal."""
    widest = [max(len(name.lstrip(_KINDS)), *(r[i].cell_len for r in rows)) for i, name in enumerate(columns)]
    over = sum(widest) + 2 * (len(columns) - 1) - width
    over -= sum(max(0, w - _LEAST) for w, name in zip(widest, columns, strict=True) if name.startswith("*"))
    for i in (i for i, name in enumerate(columns) if name.startswith("~")):
        if over <= 0:
            return
        room = max(_LEAST, widest[i] - over)
        for row in rows:
            row[i] = _elided(row[i], room)
        over -= widest[i] - room


def _elided(text: Text, room: int) -> Text:
    from rich.text import Text

    plain = text.plain
    if len(plain) <= room:
        return text
    tail = (room - 1) // 2
    return Text(f"{plain[: room - 1 - tail]}…{plain[len(plain) - tail :]}")


def iso(millis: int | None) -> str | None:
    """A timestamp for JSON: ISO 8601 in UTC, in milliseconds."""
    if millis is None:
        return None
    return datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def when(text: str | None) -> str | None:
    """Format a timestamp of :func:`iso` for display, in UTC, as ``--timestamp`` accepts it.  None stays None."""
    return None if text is None else text.replace("T", " ")


def _plain(value: Any) -> Any:
    """A value that JSON does not have: bytes as hexadecimal digits, others as strings."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, set | frozenset):
        return sorted(value)
    return str(value)
