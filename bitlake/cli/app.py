"""The command line as a whole: which commands there are, and what becomes of errors."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from bitlake.cli.failures import INTERRUPTED, say, told
from bitlake.cli.startup import LightGroup, load_later

COMMANDS = {
    "sql": "sql",
    "tables": "tables",
    "describe": "tables",
    "history": "history",
    "files": "tables",
    "import": "transfer",
    "export": "transfer",
    "explain": "explain",
    "inspect": "inspect",
    "advise": "explain",
    "verify": "inspect",
    "report": "explain",
    "compact": "maintenance",
    "rewrite-index": "maintenance",
    "expire": "maintenance",
    "tag": "history",
    "branch": "history",
    "doctor": "doctor",
    "demo": "demo",
}
"""Every command, in the order in which help lists them, and its module in this package."""

_WITH_VALUE = frozenset(
    ("--lake", "-l", "--database", "-d", "--option", "-o", "--catalog", "--uri", "--catalog-option", "--timezone")
)
_FLAGS = frozenset(("--json", "--debug"))
"""The options that every command has, which may also stand before it."""
_SPARK = frozenset(("sql", "demo", "--sql", "--spark"))
"""What starts Spark, which takes so long that nothing else counts, and which needs pandas."""

_HELP = """\
Lake tables in the Apache Paimon format: look at them, query them, keep them in order.

Name the lake once: export BITLAKE_LAKE=/data/lake (or s3://bucket/folder), or say --lake with each command.

Exit codes: 0 it worked; 1 it failed, or problems were found; 2 the command line is wrong; 3 a bug in bitlake.
"""


def make_app(names: Sequence[str] = tuple(COMMANDS)) -> typer.Typer:
    """The application with these commands."""
    app = typer.Typer(
        name="bitlake",
        cls=LightGroup,
        help=_HELP,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for name in names:
        importlib.import_module(f"bitlake.cli.{COMMANDS[name]}").register(app, name)
    return app


def _version(asked: bool) -> None:
    if asked:
        import importlib.metadata

        try:
            version = importlib.metadata.version("bitlake")
        except importlib.metadata.PackageNotFoundError:
            version = "(run from its source folder)"
        typer.echo(f"bitlake {version}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


def wanted(arguments: Sequence[str]) -> Sequence[str]:
    """The commands that a command line may need: the one it names, or all for help and shell completion."""
    if "_BITLAKE_COMPLETE" not in os.environ and arguments and arguments[0] in COMMANDS:
        return (arguments[0],)
    return tuple(COMMANDS)


def _command_first(arguments: list[str]) -> list[str]:
    """``--lake X tables`` → ``tables --lake X``: every command takes the common options itself."""
    leading: list[str] = []
    rest = list(arguments)
    while rest and (rest[0] in _FLAGS or rest[0].partition("=")[0] in _WITH_VALUE):
        leading.append(rest.pop(0))
        if leading[-1] in _WITH_VALUE and rest:
            leading.append(rest.pop(0))
    return [*rest, *leading] if rest else arguments


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line (default: this process's); returns the exit code."""
    gc.set_threshold(300_000, 20, 20)  # start-up makes many objects and no garbage
    given = _command_first(list(sys.argv[1:] if arguments is None else arguments))
    if not _SPARK.intersection(a.partition("=")[0] for a in given):
        load_later()
    with told(given) as outcome:
        app = make_app(wanted(given))
        done = typer.main.get_command(app).main(given, prog_name="bitlake", standalone_mode=False)
        outcome.code = done if isinstance(done, int) else 0
        if outcome.code == INTERRUPTED:  # typer takes Ctrl-C, and says nothing
            say("interrupted")
    gc.freeze()  # or Python looks at all that was loaded once more when it ends, for 30 ms
    return outcome.code
