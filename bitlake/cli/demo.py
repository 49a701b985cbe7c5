"""``bitlake demo``: a guided tour."""

from __future__ import annotations

import click

from bitlake.cli.parameters import Integer
from bitlake.cli.run import Run, command


@command("demo")
@click.option(
    "--rows", type=Integer(min=1), default=1_000_000, metavar="N", help="The number of rows of the second part."
)
@click.option("--keep", metavar="FOLDER", help="Create the lake in this folder and keep it.")
def demo(run: Run, rows: int, keep: str | None) -> None:
    """Run a tour: the tables of Paimon's file-index article, then a million orders with and without an index."""
    from bitlake.demo.__main__ import main

    main(["--rows", str(rows), *(["--keep", keep] if keep else [])])
