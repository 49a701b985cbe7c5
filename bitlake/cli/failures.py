"""What a person is told when a command fails: one line, and never a stack unless ``--debug`` asks for it."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from typer.exceptions import Abort, TyperException

from bitlake.cli.meant import meant
from bitlake.cli.wrap import terminal_width, wrapped
from bitlake.errors import BitlakeError
from bitlake.words import printable, printable_json

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
        say(f"error: {meant(text, error).replace(': Value error, ', ': ')}")
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
