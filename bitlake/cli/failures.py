"""Failures of a command: one line on stderr with a suggestion, and an exit code; ``--debug`` adds the stack."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO

import click
from click.exceptions import Exit, NoArgsIsHelpError

from bitlake.errors import BitlakeError
from bitlake.formatting import printable, printable_json

FAILED, BROKEN, INTERRUPTED, PIPE = 1, 3, 130, 141
"""Exit codes: failure, or problems found; a bug; Ctrl-C; the reader of the output closed the pipe."""


@dataclass(slots=True)
class Outcome:
    """The outcome of a command.  Mutable: the exit code is set when it is known."""

    code: int = 0


class Usage(click.UsageError):
    """The command line is wrong; the message says what would be right."""


class Problems(Exception):
    """Raised when a command did its work and found problems: exit code 1, without a message."""


@contextmanager
def report_failure(arguments: Sequence[str]) -> Iterator[Outcome]:
    """Run the block; turn an exception into a message on stderr and an exit code."""
    outcome = Outcome()
    as_json, debug = "--json" in arguments, "--debug" in arguments
    _log_to_stderr()
    try:
        yield outcome
        sys.stdout.flush()
    except Problems:
        sys.stdout.flush()
        outcome.code = FAILED
    except BrokenPipeError:
        outcome.code = _broken_pipe()
    except Exit as e:
        outcome.code = e.exit_code
    except SystemExit as e:  # from shell completion
        outcome.code = e.code if isinstance(e.code, int) else 0
    except (KeyboardInterrupt, click.Abort):
        print_stderr("interrupted")
        outcome.code = INTERRUPTED
    except click.ClickException as e:
        outcome.code = _usage(e)
    except Exception as e:  # noqa: BLE001  (the last line of defence)
        outcome.code = show_failure(e, as_json, debug)


def _broken_pipe() -> int:
    """Discard the rest of the output: its reader closed the pipe (``bitlake files t | head``)."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return PIPE


def show_failure(error: Exception, as_json: bool, debug: bool) -> int:
    """Print what failed on stderr; return the exit code."""
    if debug:
        print_stderr("".join(traceback.format_exception(error)).rstrip())
    if isinstance(error, BitlakeError | OSError):
        show_error(error, as_json)
        return FAILED
    print_stderr(f"error: this is a bug in bitlake: {type(error).__name__}: {_one_line(error)}")
    if not debug:
        print_stderr("  run the command again with --debug and report what it prints")
    return BROKEN


def _usage(error: click.ClickException) -> int:
    if isinstance(error, NoArgsIsHelpError):
        print_stderr(error.format_message())
        return error.exit_code
    print_stderr(f"error: {suggestion(error)}")
    context = getattr(error, "ctx", None)
    if context is not None:
        print_stderr(f"  help: {context.command_path} --help")
    return error.exit_code


def show_error(error: Exception, as_json: bool) -> None:
    """One line on stderr: plain, or as JSON."""
    if as_json:
        document = {"error": {"type": type(error).__name__, "message": _one_line(error)}}
        print_stderr(printable_json(json.dumps(document, ensure_ascii=not is_unicode(sys.stderr))))
    else:
        print_stderr(f"error: {_one_line(error)}")


def is_unicode(stream: TextIO) -> bool:
    """Whether a stream's encoding has every character; otherwise JSON has escapes in their place."""
    return (stream.encoding or "").lower().startswith("utf")


def print_stderr(text: str) -> None:
    """Print a line on stderr, wrapped at the terminal's width."""
    text = printable(text)
    if sys.stderr.isatty():
        text = wrapped(text, terminal_width(sys.stderr.fileno()))
    print(text, file=sys.stderr, flush=True)


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and isinstance(error.filename, str | bytes | os.PathLike):
        path = os.fsdecode(error.filename).removesuffix(f".{os.getpid()}.part")  # while it is written
        return f"cannot open or write {path}: {error.strerror}"
    lines = re.sub(r"(?<![?:;])\ntable '", "; table '", str(error)).splitlines()  # a table's columns, each on a line
    if len(lines) > 2 and lines[-1].strip() == "^":  # the mark below the text: the first line names its column
        lines = [*lines[:-3], f"{lines[-3]}: {lines[-2]}"]
    return " ".join(" ".join(lines).split()) or type(error).__name__


class _Stderr(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        print_stderr(f"{record.levelname.lower()}: {record.getMessage()}")


def _log_to_stderr() -> None:
    log = logging.getLogger("bitlake")
    if not log.handlers:
        log.addHandler(_Stderr(logging.WARNING))
        log.propagate = False


_SYNONYMS = {
    "--retain-max": ("keep", "keep-last", "retain", "max", "last", "snapshots", "num-retained", "retain-last"),
    "--older-than": ("age", "before", "older", "days", "since", "ttl", "older-than-days"),
    "--where": ("condition", "filter", "predicate", "cond", "partition"),
    "--yes": ("force", "no-confirm", "confirm", "do-it", "execute", "run"),
    "--dry-run": ("plan", "check", "no-op", "noop", "preview", "simulate"),
    "--limit": ("max", "max-rows", "rows", "count", "top", "head", "last"),
    "--columns": ("select", "cols", "fields"),
    "--keep": ("ttl", "retain", "expire", "retained", "time-retained", "older-than"),
    "--overwrite": ("replace", "force", "mode"),
    "--create": ("new", "make", "create-table"),
    "--primary-key": ("key", "pk", "keys"),
    "--partition-by": ("partition", "partitions", "partitioned-by"),
    "--table-option": ("property", "properties", "tblproperties", "set", "with"),
    "--null": ("null-value", "na", "nulls"),
    "--no-header": ("headerless", "header", "skip-header"),
    "--delimiter": ("sep", "separator", "delim", "field-separator"),
    "--format": ("type", "output-format", "fmt"),
    "--file": ("script", "input", "query-file"),
    "--quick": ("fast", "metadata", "shallow", "light"),
    "--repair": ("fix", "mend"),
    "--full": ("all", "everything", "major"),
    "--queries": ("workload", "queries-file"),
    "--query": ("sql", "statement"),
    "--sql": ("query", "statement"),
    "--timestamp": ("as-of", "time", "at", "when", "version-as-of"),
    "--snapshot": ("version", "id", "at-snapshot"),
    "--json": ("output", "machine"),
    "--lake": ("warehouse", "path", "root", "folder", "dir"),
    "--database": ("db", "schema", "namespace"),
    "--option": ("conf", "config", "storage-option"),
}
"""Words that people try instead of an option's name, without dashes, by option."""


def suggestion(error: click.ClickException) -> str:
    """The message about a wrong command line, with the option that was probably meant."""
    message = error.format_message()
    command = error.ctx.command if isinstance(error, click.UsageError) and error.ctx is not None else None
    options = {name for parameter in getattr(command, "params", ()) for name in parameter.opts}
    if isinstance(error, click.NoSuchOption):
        word = error.option_name.lstrip("-").lower()
        synonyms = [option for option, words in _SYNONYMS.items() if word in words and option in options]
        matches = synonyms or error.possibilities
        hint = f" Did you mean {' or '.join(matches)}?" if matches else ""
        return f"No such option: {error.option_name}.{hint}"
    if message.startswith("Got unexpected extra argument") and "--where" in options:
        return f"{message.rstrip('.')}; a condition needs --where '…'"
    return message


_LABEL = re.compile(r"( *\S(?:\S| (?! )){0,22} {2,})(?=\S)")
"""A label and at least two blanks, as in ``  files      3 of 40 read``; the rest of the line is its text."""
_MARK = re.compile(r" *(?:[-+*•→✗…] )?")
_LEAST_TEXT = 20
"""The text behind a label keeps at least this many characters of a line."""


def terminal_width(descriptor: int) -> int:
    """The width of the terminal behind a file descriptor, in characters; ``COLUMNS`` overrides it."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdigit() and int(columns):
        return int(columns)
    try:
        return os.get_terminal_size(descriptor).columns or 80
    except OSError:
        return 80


def wrapped(text: str, width: int) -> str:
    """Break the text into lines of at most ``width`` characters.

    Lines are broken between words, and paths that are longer than a line after a ``/``.
    """
    return "\n".join(part for line in text.split("\n") for part in _wrap(line, width))


def _wrap(line: str, width: int) -> list[str]:
    if len(line) <= width:
        return [line]
    indent = _indent(line, width)
    lines: list[str] = []
    current, empty = line[:indent], True
    for word in re.findall(r" *\S+", line[indent:]):
        if not empty and len(current) + len(word) > width:
            lines.append(current.rstrip())
            current, empty = " " * indent, True
        word = word if not empty or not lines else word.lstrip()
        while len(current) + len(word) > width:
            room = width - len(current)
            cut = word.rfind("/", 1, room) + 1 or room
            lines.append(current + word[:cut])
            current, word = " " * indent, word[cut:]
        current, empty = current + word, False
    return [*lines, current]


def _indent(line: str, width: int) -> int:
    label = _LABEL.match(line)
    if label is not None and label.end() <= width - _LEAST_TEXT:
        return label.end()
    mark = _MARK.match(line)
    lead = mark.end() if mark is not None else 0
    lead += 2 * (lead == len(line) - len(line.lstrip()))  # without a mark, continued lines are indented further
    return min(lead, max(0, width - _LEAST_TEXT))
