"""Commands: their arguments and options, on click's public classes, and the context in which a command runs.

:class:`Run` is the context: the lake that the command line names, its tables, and the output.  A group suggests the
command that was probably meant, and prints the first sentence of each command's help in full.  A command's help lists
its arguments, its own options, and the options of every command.  Commands that do not start Spark leave pandas out by
an import hook (:func:`leave_out_pandas`).
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from bitlake.cli.failures import Usage
from bitlake.cli.output import Output
from bitlake.errors import BitlakeError, NotFound

if TYPE_CHECKING:
    from bitlake.catalog.catalog import Catalog
    from bitlake.lake import Lake
    from bitlake.snapshot.state import TableState
    from bitlake.table.scan import Scan
    from bitlake.table.table import Table


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
        type=Integer(0),
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


_SYNONYMS = {
    "sql": "query select shell repl execute",
    "tables": "ls databases show",
    "describe": "schema columns info show-table",
    "head": "cat peek sample preview rows read select",
    "count": "rows size",
    "history": "log snapshots commits versions",
    "files": "manifests",
    "import": "load ingest insert append copy write upload",
    "export": "dump unload save download",
    "explain": "plan analyze",
    "advise": "recommend suggest tune",
    "verify": "check fsck validate repair",
    "report": "statistics",
    "compact": "optimize merge",
    "rewrite-index": "index reindex rebuild-index create-index",
    "expire": "vacuum clean gc purge orphans",
    "demo": "example tutorial",
    "doctor": "version diagnose",
    "create": "add new",
    "delete": "remove rm drop",
    "list": "ls show",
}
"""Words that people try instead of a command's name, often from another tool, by command."""


def commands_like(name: str, commands: Sequence[str]) -> list[str]:
    """The commands that a word probably means: by name or synonym, else by the most similar of these."""
    words = {command: [command, *_SYNONYMS.get(command, "").split()] for command in commands}
    known = {word for synonyms in words.values() for word in synonyms}
    meant = [name.lower()] if name.lower() in known else get_close_matches(name.lower(), sorted(known), 1, 0.7)
    return [command for command in commands if meant and meant[0] in words[command]]


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
            matches = commands_like(name, self.list_commands(ctx))
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


Opened = TypeVar("Opened")


@dataclass(frozen=True, slots=True)
class LakeOptions:
    """Options that name a lake and the way to reach it."""

    lake: str | None
    database: str | None
    timezone: str
    option: Sequence[str]
    catalog: str
    uri: str | None
    catalog_option: Sequence[str]
    external_path: Sequence[str] = ()
    cache_bytes: int | None = None


class Run:
    """One run of a command."""

    def __init__(self, options: LakeOptions, out: Output) -> None:
        self.options = options
        self.out = out

    def lake(self) -> Lake:
        """Return the lake; raise a usage error if the command line names none."""
        return self._lake

    @cached_property
    def _lake(self) -> Lake:
        from bitlake.lake import connect
        from bitlake.runtime import DEFAULT_CACHE_BYTES

        options = self.options
        if not options.lake:
            raise Usage("no lake is named: use --lake FOLDER (or s3://bucket/folder), or set BITLAKE_LAKE")
        return connect(
            options.lake,
            database=options.database or "default",
            timezone=options.timezone,
            storage_options=pairs("--option", options.option),
            catalog=options.catalog,
            uri=options.uri,
            catalog_options=pairs("--catalog-option", options.catalog_option),
            external_paths=list(options.external_path),
            cache_bytes=DEFAULT_CACHE_BYTES if options.cache_bytes is None else options.cache_bytes,
        )

    def catalog(self) -> Catalog:
        """Return the lake's catalog."""
        from bitlake.lake import catalog_of

        return catalog_of(self.lake())

    def state(self, name: str) -> TableState:
        """Return a table's schema and latest snapshot, which takes less time than opening it for reading."""
        from bitlake.lake import state_of

        return self._open(lambda: state_of(self.lake(), name))

    def table(self, name: str) -> Table:
        """Open a table; raise :class:`bitlake.errors.NotFound`, with a similar name if there is one."""
        return self._open(lambda: self.lake().table(name))

    def scan(
        self,
        name: str,
        snapshot: int | None,
        tag: str | None,
        timestamp: str | None,
        where: str | None = None,
        columns: str | None = None,
    ) -> Scan:
        """Return a scan at a snapshot, of all rows and columns unless ``where`` and ``columns`` choose."""
        scan = self._scan(name, snapshot, tag, timestamp)
        scan = scan if where is None else scan.where(where)
        return scan.select(column_names(columns)) if columns else scan

    def _scan(self, name: str, snapshot: int | None, tag: str | None, timestamp: str | None) -> Scan:
        """Return a scan without loading the modules that write tables."""
        if "$" in name:  # possibly a system table, which has no state of its own
            return self.table(name).scan(snapshot=snapshot, tag=tag, timestamp=timestamp)
        from bitlake.scan.scan import TableScan
        from bitlake.snapshot.time_travel import When
        from bitlake.table.scan import Scan

        scan = TableScan.at(self.state(name), When(snapshot, tag, timestamp), self.options.timezone)
        return Scan(replace(scan, _recorder=self.catalog().runtime.recorder))

    def check_folder(self) -> None:
        """Raise :class:`bitlake.errors.NotFound` if the lake's folder does not exist: it is misspelled, or new."""
        lake = self.lake()
        if self.options.catalog == "filesystem" and not self.catalog().store.dir_exists(lake.path):
            raise NotFound(
                f"no lake at {lake.path}: the folder does not exist; check the path, or create the first table in it"
            )

    def _open(self, find: Callable[[], Opened]) -> Opened:
        try:
            return find()
        except NotFound:
            self.check_folder()
            raise

    def confirmed(self, question: str, yes: bool, dry_run: bool = False) -> bool:
        """Whether to carry out the plan on the screen: ``--yes`` was given, or the person at the terminal agrees.

        With ``--dry-run``, or without a terminal to ask at, the answer is no.
        """
        if dry_run:
            return False
        if yes:
            return True
        if self.out.json or not (sys.stdin.isatty() and sys.stdout.isatty()):
            return False
        return click.confirm(question, default=False)


def command(name: str, group: click.Group | None = None) -> Callable[[Callable[..., None]], Command]:
    """Make a function of a :class:`Run` and its own parameters a command, with the options of every command.

    The function's docstring is the help text, and its first sentence the line in the list of commands.
    """

    def decorate(function: Callable[..., None]) -> Command:
        @wraps(function)
        def invoke(**values: Any) -> None:
            options = LakeOptions(**{f.name: values.pop(f.name) for f in fields(LakeOptions)})
            function(Run(options, Output(values.pop("json"))), **values)

        lake_command = click.command(name, cls=Command, params=list(LAKE_OPTIONS))(invoke)
        if group is not None:
            group.add_command(lake_command)
        return lake_command

    return decorate


def pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    """``["a=1"]`` → ``{"a": "1"}``; raise a usage error that names the option where a text is not NAME=VALUE."""
    values = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise Usage(f"{option} expects NAME=VALUE; got '{text}'")
        values[name] = value
    return values


def duration(option: str, text: str | None) -> int | None:
    """``7d``, ``12 h``, ``30 min`` → milliseconds; raise a usage error that names the option."""
    if text is None:
        return None
    from bitlake.metadata.option_types import parse_duration_ms

    try:
        if text.strip().isdigit():
            raise ValueError(text)  # table options read a number without a unit as milliseconds; people do not
        return parse_duration_ms(text)
    except ValueError as e:
        raise Usage(f"{option} expects a duration such as 7d, 12h or 30min; got '{text}'") from e


def column_names(text: str | None) -> list[str]:
    """``"a, b"`` → ``["a", "b"]``."""
    return [n.strip() for n in text.split(",") if n.strip()] if text else []


class _WithoutPandas:
    """An import hook in whose presence pandas counts as not installed.

    Arrow imports pandas, where it is installed, to find out whether the list that it converts is a pandas object.
    That takes 0.2 to 0.3 s, and no command that runs without Spark handles pandas objects.  The hook has no base class,
    because importing ``importlib.abc`` takes 10 ms.
    """

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        """Refuse pandas; leave other modules to the next hook."""
        if fullname == "pandas":
            raise ModuleNotFoundError("this command does not use pandas", name=fullname)


def leave_out_pandas() -> None:
    """Prepare the process for a command that may run without Spark."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy would start threads for linear algebra
    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _WithoutPandas())


def allow_pandas() -> None:
    """Prepare the process for Spark."""
    hooks = [hook for hook in sys.meta_path if isinstance(hook, _WithoutPandas)]
    for hook in hooks:
        sys.meta_path.remove(hook)
    if hooks and "pyarrow" in sys.modules:
        import pyarrow

        # Arrow remembers that pandas is missing until a conversion needs pandas.
        with contextlib.suppress(ModuleNotFoundError):
            pyarrow.table({}).to_pandas()
