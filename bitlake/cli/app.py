"""The command ``bitlake``: the list of commands, each imported when it is used, shell completion, and ``main``.

Completion is a script that the shell reads; ``--install-completion`` installs it for the current user.
"""

from __future__ import annotations

import gc
import importlib
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import get_completion_class

import bitlake
from bitlake.cli.failures import Usage, report_failure, terminal_width
from bitlake.cli.run import LAKE_OPTIONS, Group, leave_out_pandas

COMMANDS = {
    "sql": "sql:sql",
    "tables": "tables:tables",
    "describe": "tables:describe",
    "head": "tables:head",
    "count": "tables:count",
    "history": "history:history",
    "files": "tables:files",
    "import": "transfer:import_files",
    "export": "transfer:export",
    "explain": "explain:explain",
    "inspect": "inspect:inspect",
    "advise": "explain:advise",
    "verify": "inspect:verify",
    "report": "explain:report",
    "compact": "maintenance:compact",
    "rewrite-index": "maintenance:rewrite_index",
    "expire": "maintenance:expire",
    "iceberg": "maintenance:iceberg",
    "tag": "history:tag",
    "branch": "history:branch",
    "doctor": "doctor:doctor",
    "demo": "doctor:demo",
}
"""Every command, in the order of the help page: its module in this package, and its name in the module."""

_SPARK = frozenset(("demo", "--sql", "--spark"))
"""Arguments that always start Spark, which needs pandas."""
_COMPLETE = "_BITLAKE_COMPLETE"
"""The variable in which a shell's completion script asks for completions."""
_HELP_WIDTH = 80
_STDOUT = 1

_HELP = """\
Query and maintain lake tables in the Apache Paimon format.

Name the lake once with export BITLAKE_LAKE=/data/lake (or s3://bucket/folder), or use --lake with each command.

Exit codes: 0 success; 1 failure, or problems were found; 2 wrong command line; 3 a bug in bitlake.
"""


class LazyGroup(Group):
    """A group that imports a command's module when the command is looked up.

    A command line imports the module of its own command only; help and completion of command names import all.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands, in the order of the help page."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(f"bitlake.cli.{module}"), attribute)
        return command


def _print_version(ctx: click.Context, parameter: click.Parameter, requested: bool) -> None:
    if requested:
        click.echo(f"bitlake {bitlake.__version__}")
        ctx.exit()


def _print_completion(ctx: click.Context, parameter: click.Parameter, requested: bool) -> None:
    if requested:
        click.echo(_script(ctx.command, _shell()))
        ctx.exit()


def _install_completion(ctx: click.Context, parameter: click.Parameter, requested: bool) -> None:
    if requested:
        click.echo(install_completion(ctx.command))
        ctx.exit()


def _action(name: str, callback: Any, description: str) -> click.Option:
    """An option that does something of its own and ends the command."""
    return click.Option([name], is_flag=True, is_eager=True, expose_value=False, callback=callback, help=description)


cli = LazyGroup(
    "bitlake",
    help=_HELP,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    params=[
        _action("--version", _print_version, "Print the version."),
        _action("--install-completion", _install_completion, "Install completion for the shell in SHELL."),
        _action("--show-completion", _print_completion, "Print the completion script for the shell in SHELL."),
    ],
)
"""The command ``bitlake``."""


# --- the process ------------------------------------------------------------------------------------------------------


def _command_first(arguments: list[str]) -> list[str]:
    """``--lake X tables`` → ``tables --lake X``: the options of every command may precede the command."""
    flags = {name for option in LAKE_OPTIONS if option.is_flag for name in option.opts}
    with_value = {name for option in LAKE_OPTIONS if not option.is_flag for name in option.opts}
    leading: list[str] = []
    rest = list(arguments)
    while rest and (rest[0] in flags or rest[0].partition("=")[0] in with_value):
        leading.append(rest.pop(0))
        if leading[-1] in with_value and rest:
            leading.append(rest.pop(0))
    return [*rest, *leading] if rest else arguments


def _prepare_streams() -> None:
    """Open the standard streams that the caller closed, and escape characters that an output's encoding lacks."""
    if sys.stdin is None:  # closed by `<&-`: it is empty
        sys.stdin = open(os.devnull)  # noqa: SIM115
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by `>&-`: discard the output
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, by default this process's; return the exit code."""
    gc.set_threshold(300_000, 20, 20)  # start-up makes many objects and no garbage
    _prepare_streams()
    words = _command_first(list(sys.argv[1:] if arguments is None else arguments))
    if not _SPARK.intersection(word.partition("=")[0] for word in words):
        leave_out_pandas()
    with report_failure(words) as outcome:
        if _COMPLETE in os.environ:
            cli.main([], "bitlake", _COMPLETE)  # prints completions and ends the process
        width = min(terminal_width(_STDOUT), _HELP_WIDTH)
        with cli.make_context("bitlake", words, terminal_width=width) as context:
            cli.invoke(context)
    if "duckdb" not in sys.modules:  # which reports what is not collected
        gc.freeze()  # or Python visits all loaded objects once more when it ends, for 30 ms
    return outcome.code


# --- shell completion -------------------------------------------------------------------------------------------------

_SHELLS = ("bash", "zsh", "fish")


def install_completion(command: click.Command) -> str:
    """Write the script where the shell in ``SHELL`` reads it at its start; return a message that says where."""
    shell = _shell()
    script = _script(command, shell)
    if shell == "fish":
        config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
        _write(config / "fish" / "completions" / "bitlake.fish", script)
    else:
        data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
        file = data / "bitlake" / f"completion.{shell}"
        _write(file, script)
        _append_line(Path.home() / f".{shell}rc", f"source '{file}'")
    return f"installed completion for {shell}: it works in shells that you start from now on"


def _shell() -> str:
    name = os.path.basename(os.environ.get("SHELL", ""))
    if name not in _SHELLS:
        raise Usage(f"completion supports {', '.join(_SHELLS)}; set SHELL to the path of one of them")
    return name


def _script(command: click.Command, shell: str) -> str:
    """Return a completion script, which runs ``bitlake`` with the environment variable :data:`_COMPLETE`."""
    completion = get_completion_class(shell)
    assert completion is not None  # click has all of _SHELLS
    return completion(command, {}, "bitlake", _COMPLETE).source()


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def _append_line(file: Path, line: str) -> None:
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    if line not in text.splitlines():
        with file.open("a", encoding="utf-8") as f:
            f.write(("" if not text or text.endswith("\n") else "\n") + line + "\n")
