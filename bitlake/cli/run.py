"""What every command is given: the lake that was named, its tables, and where output goes."""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

import typer

from bitlake.cli.failures import Usage
from bitlake.cli.output import Output
from bitlake.cli.startup import LightCommand

if TYPE_CHECKING:
    from bitlake.lake import Lake
    from bitlake.scan.scan import Scan
    from bitlake.snapshot.state import TableState
    from bitlake.table.table import Table

Found = TypeVar("Found")
Command: TypeAlias = Callable[..., None]
"""What a command runs: its first argument is the :class:`Run`."""
_PANEL = "Lake and output"


def complete_tables(incomplete: str) -> list[str]:
    """The tables whose names begin so, for the shell's completion; of the lake in ``BITLAKE_LAKE``."""
    import os

    lake = os.environ.get("BITLAKE_LAKE")
    if not lake:
        return []
    from bitlake.errors import BitlakeError
    from bitlake.lake import connect

    database, dot, start = incomplete.rpartition(".")
    try:
        names = connect(lake).tables(database or None)
    except BitlakeError:
        return []
    return [f"{database}{dot}{n}" for n in names if n.startswith(start)]


TableName = Annotated[
    str, typer.Argument(metavar="TABLE", help="A table: orders, or sales.orders.", autocompletion=complete_tables)
]
OptionalTable = Annotated[
    str | None,
    typer.Argument(metavar="TABLE", help="A table: orders, or sales.orders.", autocompletion=complete_tables),
]
SnapshotOption = Annotated[int | None, typer.Option(help="As it was at this snapshot.", metavar="ID")]
TagOption = Annotated[str | None, typer.Option(help="As it was at this tag.", metavar="NAME")]
WhenOption = Annotated[str | None, typer.Option(help="As it was at this time: '2026-01-31 12:00:00'.", metavar="TIME")]
Where = Annotated[str | None, typer.Option("--where", "-w", help="A Spark SQL condition.", metavar="CONDITION")]


@dataclass(frozen=True, slots=True)
class LakeOptions:
    """Which lake, and how to reach it."""

    lake: str | None
    database: str | None
    timezone: str
    option: Sequence[str]
    catalog: str
    uri: str | None
    catalog_option: Sequence[str]
    external_path: Sequence[str] = ()


class Run:
    """One run of a command."""

    def __init__(self, options: LakeOptions, out: Output, debug: bool = False) -> None:
        self.options = options
        self.out = out
        self.debug = debug

    def lake(self) -> Lake:
        """The lake; raises a usage error if none was named."""
        return self._lake

    @cached_property
    def _lake(self) -> Lake:
        from bitlake.lake import connect

        given = self.options
        if not given.lake:
            raise Usage("which lake? Say --lake FOLDER (or s3://bucket/folder), or set BITLAKE_LAKE")
        return connect(
            given.lake,
            database=given.database or "default",
            timezone=given.timezone,
            storage_options=pairs("--option", given.option),
            catalog=given.catalog,
            uri=given.uri,
            catalog_options=pairs("--catalog-option", given.catalog_option),
            external_paths=list(given.external_path),
        )

    def state(self, name: str) -> TableState:
        """What a table is now, which is known sooner than a table is ready to be read."""
        return self._found(lambda: self.lake().state(name))

    def table(self, name: str) -> Table:
        """A table by name; raises :class:`bitlake.errors.NotFound`, naming one like it."""
        return self._found(lambda: self.lake().table(name))

    def scan(self, name: str, snapshot: int | None, tag: str | None, timestamp: str | None) -> Scan:
        """All of a table at a moment, to be read; what writes, which comes with tables, is not loaded for that."""
        if "$" in name:  # maybe a system table, which has no state of its own
            return self.table(name).scan(snapshot=snapshot, tag=tag, timestamp=timestamp)
        from bitlake.scan.scan import Scan
        from bitlake.snapshot.time_travel import When

        state = When(snapshot, tag, timestamp).of(self.state(name), self.options.timezone)
        return Scan(state, state.store, state.schema.field_names, timezone=self.options.timezone)

    def check_folder(self) -> None:
        """Raise :class:`bitlake.errors.NotFound` if the lake's folder is not there: it is misspelled, or new."""
        from bitlake.errors import NotFound

        lake = self.lake()
        if self.options.catalog == "filesystem" and not lake.catalog.store.dir_exists(lake.path):
            raise NotFound(f"there is no lake at {lake.path}: the folder does not exist (the first table makes it)")

    def _found(self, find: Callable[[], Found]) -> Found:
        from bitlake.errors import NotFound

        try:
            return find()
        except NotFound:
            self.check_folder()
            raise

    def agreed(self, question: str, yes: bool, plan: bool = False) -> bool:
        """Whether to go on with what was shown: ``--yes`` said so, or a person at the terminal does now.

        ``plan``: only the plan is wanted.  Where nobody can be asked the answer is no.
        """
        if plan:
            return False
        if yes:
            return True
        if self.out.json or not (sys.stdin.isatty() and sys.stdout.isatty()):
            return False
        return typer.confirm(question, default=False)


def command(app: typer.Typer, name: str, function: Callable[..., None], panel: str | None = None) -> None:
    """Add a command: a function of a :class:`Run` and of its own parameters, which typer reads from its signature."""
    hints = typing.get_type_hints(function, include_extras=True)
    own = [p.replace(annotation=hints[p.name]) for p in inspect.signature(function).parameters.values()][1:]
    common = list(inspect.signature(_common).parameters.values())
    kinds = typing.get_type_hints(_common, include_extras=True)
    common = [p.replace(annotation=kinds[p.name], kind=inspect.Parameter.KEYWORD_ONLY) for p in common]
    own = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]

    @wraps(function)
    def called(**given: Any) -> None:
        function(_common(**{p.name: given.pop(p.name) for p in common}), **given)

    called.__signature__ = inspect.Signature([*own, *common])  # type: ignore[attr-defined]
    called.__annotations__ = {p.name: p.annotation for p in (*own, *common)}
    del called.__wrapped__
    app.command(name, cls=LightCommand, help=inspect.getdoc(function), rich_help_panel=panel)(called)


def _common(
    lake: Annotated[
        str | None,
        typer.Option(
            "--lake", "-l", envvar="BITLAKE_LAKE", metavar="URL", help="The lake's folder.", rich_help_panel=_PANEL
        ),
    ] = None,
    database: Annotated[
        str | None, typer.Option("--database", "-d", help="Where tables without one are.", rich_help_panel=_PANEL)
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option", "-o", metavar="NAME=VALUE", help="A storage option: s3.endpoint=….", rich_help_panel=_PANEL
        ),
    ] = None,
    catalog: Annotated[
        str, typer.Option(help="filesystem, jdbc or rest.", rich_help_panel=_PANEL, envvar="BITLAKE_CATALOG")
    ] = "filesystem",
    uri: Annotated[
        str | None, typer.Option(help="Of a jdbc or rest catalog.", rich_help_panel=_PANEL, envvar="BITLAKE_URI")
    ] = None,
    catalog_option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="An option of the catalog.", rich_help_panel=_PANEL),
    ] = None,
    external_path: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="A folder outside of the tables that may hold files of them; may be repeated.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    timezone: Annotated[
        str, typer.Option(help="The zone of timestamps that name none.", rich_help_panel=_PANEL)
    ] = "UTC",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.", rich_help_panel=_PANEL)] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Print the stack of errors.", rich_help_panel=_PANEL)] = False,
) -> Run:
    options = LakeOptions(
        lake, database, timezone, option or (), catalog, uri, catalog_option or (), external_path or ()
    )
    return Run(options, Output(json), debug)


def pairs(option: str, given: Sequence[str] | None) -> dict[str, str]:
    """``["a=1"]`` → ``{"a": "1"}``; raises a usage error naming the option that was given otherwise."""
    out = {}
    for text in given or ():
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise Usage(f"{option} takes NAME=VALUE, and not '{text}'")
        out[name] = value
    return out


def duration(option: str, text: str | None) -> int | None:
    """``7d``, ``12 h``, ``30 min`` → milliseconds; raises a usage error naming the option."""
    if text is None:
        return None
    from bitlake.metadata.option_types import parse_duration_ms

    try:
        if text.strip().isdigit():
            raise ValueError(text)  # a number without a unit is milliseconds to options, and to nobody at a terminal
        return parse_duration_ms(text)
    except ValueError as e:
        raise Usage(f"{option} takes a time such as 7d, 12h or 30min, and not '{text}'") from e
