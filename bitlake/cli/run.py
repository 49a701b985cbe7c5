"""The context of a command: the lake that the command line names, its tables, and the output."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from bitlake.cli.failures import Usage
from bitlake.cli.output import Output
from bitlake.cli.parameters import LAKE_OPTIONS, Command
from bitlake.errors import NotFound

if TYPE_CHECKING:
    from bitlake.catalog.catalog import Catalog
    from bitlake.lake import Lake
    from bitlake.snapshot.state import TableState
    from bitlake.table.scan import Scan
    from bitlake.table.table import Table

Opened = TypeVar("Opened")


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

        zone = self.options.timezone
        state = When(snapshot, tag, timestamp).of(self.state(name), zone)
        columns, recorder = state.schema.field_names, self.catalog().runtime.recorder
        return Scan(TableScan(state, state.store, columns, timezone=zone, _recorder=recorder))

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
