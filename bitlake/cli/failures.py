"""How a failed command ends: one line on stderr with a suggestion, and an exit code; a stack only with ``--debug``."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from typer.exceptions import Abort, TyperException

from bitlake.errors import BitlakeError
from bitlake.formatting import printable, printable_json

FAILED, BROKEN, INTERRUPTED, PIPE = 1, 3, 130, 141
"""Exit codes: it failed, or problems were found; a bug; Ctrl-C; whoever read the output went away."""


@dataclass(slots=True)
class Outcome:
    """How a command ended: its exit code, filled in when it is known."""

    code: int = 0


class Usage(TyperException):
    """The command line is wrong; the message says how it would be right."""

    exit_code = 2


class Problems(Exception):
    """Raised when a command did what it should and found problems: exit code 1, nothing more to say."""


@contextmanager
def told(arguments: Sequence[str]) -> Iterator[Outcome]:
    """Run the block; what it raises becomes a message on stderr and an exit code."""
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
        outcome.code = _unread()
    except SystemExit as e:  # typer's way with a broken pipe
        broken = isinstance(e.__context__, BrokenPipeError)
        outcome.code = _unread() if broken else e.code if isinstance(e.code, int) else 0
    except KeyboardInterrupt:
        say("interrupted")
        outcome.code = INTERRUPTED
    except Exception as e:  # noqa: BLE001  (the last line of defence)
        outcome.code = _failed(e, as_json, debug)


def _unread() -> int:
    """Whoever read us went away (``bitlake files t | head``): no more output, and none when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return PIPE


def _failed(error: Exception, as_json: bool, debug: bool) -> int:
    if isinstance(error, Abort):
        say("interrupted")
        return INTERRUPTED
    if isinstance(error, TyperException):
        return _usage(error)
    if debug:
        import traceback

        say("".join(traceback.format_exception(error)).rstrip())
    if isinstance(error, BitlakeError):
        show_error(error, as_json)
        return FAILED
    if isinstance(error, OSError):
        show_error(error, as_json)
        return FAILED
    say(f"error: this is a bug in bitlake: {type(error).__name__}: {_one_line(error)}")
    if not debug:
        say("  run it again with --debug for the details that a report needs")
    return BROKEN


def _usage(error: TyperException) -> int:
    context = getattr(error, "ctx", None)
    text = error.format_message()
    if type(error).__name__ == "NoArgsIsHelpError":
        if text:
            say(text)
    else:
        say(f"error: {suggestion(text, error).replace(': Value error, ', ': ')}")
        if context is not None:
            say(f"  help: {context.command_path} --help")
    return error.exit_code


def show_error(error: Exception, as_json: bool) -> None:
    """One line on stderr: plain, or as JSON."""
    if as_json:
        found = {"error": {"type": type(error).__name__, "message": _one_line(error)}}
        say(printable_json(json.dumps(found, ensure_ascii=False)))
    else:
        say(f"error: {_one_line(error)}")


def say(text: str) -> None:
    """A line on stderr; at a terminal several where it has to be."""
    text = printable(text)
    if sys.stderr.isatty():
        text = wrapped(text, terminal_width(sys.stderr.fileno()))
    print(text, file=sys.stderr, flush=True)


def _one_line(error: Exception) -> str:
    lines = str(error).splitlines()
    if len(lines) > 2 and lines[-1].strip() == "^":  # it points at a column, which the first line names
        lines = [*lines[:-3], f"{lines[-3]}: {lines[-2]}"]
    return " ".join(" ".join(lines).split()) or type(error).__name__


class _Stderr(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say(f"{record.levelname.lower()}: {record.getMessage()}")


def _log_to_stderr() -> None:
    log = logging.getLogger("bitlake")
    if not log.handlers:
        log.addHandler(_Stderr(logging.WARNING))
        log.propagate = False


_SENSE = {
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
"""Words, without dashes, by the option that has their sense."""


def suggestion(message: str, error: Any) -> str:
    """The message of a wrong command line, with the option that was meant where that can be told."""
    command = getattr(getattr(error, "ctx", None), "command", None)
    has = {o for p in getattr(command, "params", ()) for o in getattr(p, "opts", ())}
    given = getattr(error, "option_name", None)
    if given is not None:
        word = str(given).lstrip("-").lower()
        found = [option for option, words in _SENSE.items() if word in words and option in has]
        return f"No such option: {given}. Did you mean {' or '.join(found)}?" if found else message
    if message.startswith("Got unexpected extra argument") and "--where" in has:
        return f"{message.rstrip('.')}; a condition goes with --where '…'"
    return message


_LABEL = re.compile(r"( *\S(?:\S| (?! )){0,22} {2,})(?=\S)")
"""A short text and two blanks or more, as in ``  files      3 of 40 read``: what follows is the line's text."""
_MARK = re.compile(r" *(?:[-+*•→✗…] )?")
_LEAST_TEXT = 20
"""Characters that are left for the text, however narrow the terminal is."""


def terminal_width(descriptor: int) -> int:
    """The characters in a line of the terminal behind a file descriptor; ``COLUMNS`` says otherwise."""
    told = os.environ.get("COLUMNS", "")
    if told.isdigit() and int(told):
        return int(told)
    try:
        return os.get_terminal_size(descriptor).columns or 80
    except OSError:
        return 80


def wrapped(text: str, width: int) -> str:
    """The text without a line of more than ``width`` characters.

    Paths that are longer than a line are broken behind a ``/``.
    """
    return "\n".join(part for line in text.split("\n") for part in _wrap(line, width))


def _wrap(line: str, width: int) -> list[str]:
    if len(line) <= width:
        return [line]
    indent = _indent(line, width)
    out: list[str] = []
    now, empty = line[:indent], True
    for word in re.findall(r" *\S+", line[indent:]):
        if not empty and len(now) + len(word) > width:
            out.append(now.rstrip())
            now, empty = " " * indent, True
        word = word if not empty or not out else word.lstrip()
        while len(now) + len(word) > width:
            room = width - len(now)
            cut = word.rfind("/", 1, room) + 1 or room
            out.append(now + word[:cut])
            now, word = " " * indent, word[cut:]
        now, empty = now + word, False
    return [*out, now]


def _indent(line: str, width: int) -> int:
    label = _LABEL.match(line)
    if label is not None and label.end() <= width - _LEAST_TEXT:
        return label.end()
    mark = _MARK.match(line)
    lead = mark.end() if mark is not None else 0
    lead += 2 * (lead == len(line) - len(line.lstrip()))  # no mark: what goes on is further in than what begins
    return min(lead, max(0, width - _LEAST_TEXT))
