"""``bitlake inspect``: what is in a file, byte by byte."""

from __future__ import annotations

from typing import Annotated

import typer

from bitlake.cli.failures import Usage
from bitlake.cli.run import Run, command, pairs


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "inspect", inspect)


def inspect(
    run: Run,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A path or URI; with --table also only a name.")],
    table: Annotated[str | None, typer.Option("--table", "-t", help="The table that the file is of.")] = None,
    column: Annotated[
        str | None, typer.Option("--column", "-c", help="Of Parquet its pages, of an index its values.")
    ] = None,
    value: Annotated[
        str | None, typer.Option("--value", help="With --column: the rows that have this value, as indexes tell.")
    ] = None,
    offset: Annotated[int, typer.Option(min=0, help="Show entries of lists from this one on.")] = 0,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="Show so many entries of each list.")] = 20,
    hex: Annotated[
        str | None, typer.Option("--hex", metavar="AT:LENGTH", help="Show these bytes instead: 0:64, 0x1f0:128.")
    ] = None,
) -> None:
    """Look into any file of a table: snapshot, manifest, index, deletion vectors, data; as a tree with offsets.

    A damaged file shows up to its fault, and the exit code is 1. --value NULL asks about NULL.
    """
    from bitlake.inspect.inspection import ANY, inspect_file
    from bitlake.storage import open_store
    from bitlake.storage.base import scheme_of

    if value is not None and column is None:
        raise Usage("--value goes with --column")
    if table is not None:
        state = run.state(table)
        store, paths = state.store, state.paths
    else:
        options = pairs("--option", run.options.option)
        store, paths = open_store(file, options if scheme_of(file) != "file" else None), None
    found = inspect_file(
        file,
        store=store,
        table=paths,
        offset=offset,
        limit=limit,
        column=column,
        value=ANY if value is None else None if value.upper() == "NULL" else value,
        hex=None if hex is None else _region(hex),
        timezone=run.options.timezone,
    )
    if run.out.json:
        run.out.result(found.to_dict(), lambda screen: None)
    else:
        run.out.screen.text(found.text(run.out.screen.width if run.out.is_terminal else 0))
    if found.faults:
        run.out.problems()


def _region(text: str) -> tuple[int, int]:
    at, sign, length = text.partition(":")
    try:
        return int(at, 0), int(length, 0) if sign else 256
    except ValueError as e:
        raise Usage(f"--hex takes AT:LENGTH, as in 0:64 or 0x1f0:128, and not '{text}'") from e
