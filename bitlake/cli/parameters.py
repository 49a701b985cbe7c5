"""Commands, groups, arguments and options in the form that all of ``bitlake`` uses, on click's public classes.

A group suggests the command that was probably meant, and prints the first sentence of each command's help in full.  A
command's help lists its arguments, its own options, and the options of every command.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any

import click

from bitlake.errors import BitlakeError


def complete_tables(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the tables of the lake in ``BITLAKE_LAKE`` whose names start with a text, for shell completion."""
    lake = os.environ.get("BITLAKE_LAKE")
    if not lake:
        return []
    from bitlake.lake import connect

    database, dot, start = incomplete.rpartition(".")
    try:
        names = connect(lake).tables(database or None)
    except BitlakeError:
        return []
    return [f"{database}{dot}{n}" for n in names if n.startswith(start)]


class Integer(click.IntRange):
    """A whole number within bounds; errors call it an integer."""

    name = "integer"


class Argument(click.Argument):
    """A positional argument with a help text."""

    def __init__(self, names: Sequence[str], description: str = "", **attributes: Any) -> None:
        super().__init__(names, **attributes)
        self.description = description

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """The argument's line in the help page."""
        return self.make_metavar(ctx), self.description


class LakeOption(click.Option):
    """An option of every command: the lake, how to reach it, and the form of the output."""


LAKE_OPTIONS: Sequence[LakeOption] = (
    LakeOption(["--lake", "-l"], envvar="BITLAKE_LAKE", show_envvar=True, metavar="URL", help="The lake's folder."),
    LakeOption(["--database", "-d"], metavar="NAME", help="The database of tables that are named without one."),
    LakeOption(
        ["--option", "-o"], multiple=True, metavar="NAME=VALUE", help="A storage option, as s3.endpoint=…; repeatable."
    ),
    LakeOption(
        ["--catalog"],
        default="filesystem",
        envvar="BITLAKE_CATALOG",
        show_envvar=True,
        metavar="KIND",
        help="filesystem, jdbc or rest.",
    ),
    LakeOption(
        ["--uri"], envvar="BITLAKE_URI", show_envvar=True, metavar="URI", help="The address of a jdbc or rest catalog."
    ),
    LakeOption(["--catalog-option"], multiple=True, metavar="NAME=VALUE", help="An option of the catalog; repeatable."),
    LakeOption(
        ["--external-path"],
        multiple=True,
        metavar="URL",
        help="A folder outside the tables that may hold their files; repeatable.",
    ),
    LakeOption(
        ["--cache-bytes"],
        type=click.IntRange(0),
        metavar="BYTES",
        help="The memory for what was read of metadata and indexes; 0: none.",
    ),
    LakeOption(["--timezone"], default="UTC", metavar="ZONE", help="The time zone of timestamps that do not name one."),
    LakeOption(["--json"], is_flag=True, help="Print one JSON document."),
    LakeOption(["--debug"], is_flag=True, expose_value=False, help="Print the stack trace of an error."),
)


class Command(click.Command):
    """A command whose help page lists the options of every command in a section of their own."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section for each kind of parameter."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": [], "Lake and output": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                sections[_section(parameter)].append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records, col_max=min(30, formatter.width // 2))


def _section(parameter: click.Parameter) -> str:
    if isinstance(parameter, click.Argument):
        return "Arguments"
    return "Lake and output" if isinstance(parameter, LakeOption) else "Options"


class Group(click.Group):
    """A group of commands, in the order in which they are added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the first argument names, or suggest one."""
        name = args[0]
        if self.get_command(ctx, name) is None and not ctx.resilient_parsing and not name.startswith("-"):
            matches = get_close_matches(name, self.list_commands(ctx))
            hint = f" Did you mean {' or '.join(map(repr, matches))}?" if matches else ""
            ctx.fail(f"No such command '{name}'.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the first sentence of each command's help, wrapped instead of shortened."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, c.get_short_help_str(1000)) for name, c in commands if c is not None])


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def argument(name: str, description: str, **attributes: Any) -> Decorator:
    """A positional argument with a help text."""
    return click.argument(name, cls=Argument, description=description, **attributes)


def table_argument(required: bool = True) -> Decorator:
    """The table that a command is about."""
    description = "A table: orders, or sales.orders."
    return argument("table", description, required=required, shell_complete=complete_tables)


def where_option(description: str = "A Spark SQL condition.") -> Decorator:
    """A condition on rows."""
    return click.option("--where", "-w", metavar="CONDITION", help=description)


def partitions_option() -> Decorator:
    """A condition on partition columns."""
    return where_option("A condition on partition columns.")


def limit_option(description: str, default: int | None = None) -> Decorator:
    """The number of rows, files or entries to return or show."""
    return click.option("--limit", "-n", type=Integer(min=0), default=default, metavar="N", help=description)


def columns_option(description: str = "Only these columns: a,b,c.") -> Decorator:
    """Columns, separated by commas."""
    return click.option("--columns", "-c", metavar="NAMES", help=description)


snapshot_option = click.option(
    "--snapshot", type=int, metavar="ID", help="Use this snapshot instead of the latest one."
)
tag_option = click.option("--tag", metavar="NAME", help="Use the snapshot of this tag.")


def time_travel_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Options that choose the snapshot to read: ``snapshot``, ``tag`` and ``timestamp``."""
    timestamp = "Use the snapshot that was the latest at this time: '2026-01-31 12:00:00'."
    return snapshot_option(tag_option(click.option("--timestamp", metavar="TIME", help=timestamp)(function)))


def yes_option(description: str = "Do not ask for confirmation.") -> Decorator:
    """Consent to what a command would otherwise ask about."""
    return click.option("--yes", "-y", is_flag=True, help=description)
