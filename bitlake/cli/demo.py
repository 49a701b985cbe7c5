"""``bitlake demo``: see it at work."""

from __future__ import annotations

from typing import Annotated

import typer

from bitlake.cli.run import Run, command


def register(app: typer.Typer, name: str) -> None:
    """Add the command."""
    command(app, name, demo)


def demo(
    run: Run,
    rows: Annotated[int, typer.Option(min=1, help="Rows of the second part.")] = 1_000_000,
    keep: Annotated[str | None, typer.Option(metavar="FOLDER", help="Put the lake here and leave it there.")] = None,
) -> None:
    """A tour: the tables of Paimon's file-index article, then a million orders with and without an index."""
    from bitlake.demo.__main__ import main

    main(["--rows", str(rows), *(["--keep", keep] if keep else [])])
