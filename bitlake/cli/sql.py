"""``bitlake sql``: statements from the command line, a file, or a person at the shell."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bitlake.cli.failures import Usage
from bitlake.cli.run import Run, command

if TYPE_CHECKING:
    from bitlake.cli.result import Result
    from bitlake.lake import Lake

SHOWN = 1000
"""Rows shown at a terminal unless ``--limit`` says otherwise."""


def register(app: typer.Typer, name: str) -> None:
    """Add the command."""
    command(app, name, sql)


def sql(
    run: Run,
    statement: Annotated[
        str | None, typer.Argument(metavar="STATEMENT", help="One or more, with ; between. Without: a shell.")
    ] = None,
    file: Annotated[
        str | None, typer.Option("--file", "-f", metavar="FILE", help="Run the statements of a file; - is stdin.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", min=0, help=f"Rows of each result; 0 is all. Default: {SHOWN}, in a pipe all."),
    ] = None,
    format: Annotated[str, typer.Option("--format", help="table, csv or json (one object a line).")] = "table",
) -> None:
    """Run SQL on Spark over the lake's tables: statements, a file of them, or an interactive shell.

    Without a statement at a terminal you get the shell; in a pipe, statements are read from stdin.
    """
    from bitlake.cli.result import SHOW, starting

    if statement is not None and file is not None:
        raise Usage("give a STATEMENT or --file, not both")
    if format not in SHOW:
        raise Usage(f"--format is one of {', '.join(SHOW)}, and not '{format}'")
    if statement is None and file is None and sys.stdin.isatty() and not run.out.json:
        from bitlake.cli.shell import Shell

        Shell(run, SHOWN if limit is None else limit).loop()
        return
    from bitlake.sql.parser import split_statements

    statements = split_statements(_text(statement, file))
    if not statements:
        raise Usage("there is no statement to run")
    shown = limit if limit is not None else SHOWN if run.out.is_terminal and format == "table" else 0
    lake = run.lake()
    starting(run.out)
    documents: list[dict[str, Any]] = []
    try:
        for number, text in enumerate(statements, 1):
            result = _numbered(lake, text, shown, number if len(statements) > 1 else None)
            if run.out.json:
                documents.append(result.document())
            elif result.has_rows:
                SHOW[format](run.out.screen, result)
    finally:
        if run.out.json:
            run.out.result({"statements": documents}, lambda screen: None)


def _text(statement: str | None, file: str | None) -> str:
    from bitlake.errors import InvalidRequest, NotFound

    if statement is not None:
        return statement
    if file is None or file == "-":
        return sys.stdin.read()
    try:
        with open(file, encoding="utf-8") as f:
            return f.read()
    except FileNotFoundError as e:
        raise NotFound(f"there is no file {file}") from e
    except UnicodeDecodeError as e:
        raise InvalidRequest(f"{file} is no text in UTF-8") from e


def _numbered(lake: Lake, text: str, limit: int, number: int | None) -> Result:
    from bitlake.cli.result import Result
    from bitlake.errors import BitlakeError

    try:
        return Result.of(lake, text, limit)
    except BitlakeError as e:
        if number is not None:
            e.args = (f"statement {number}: {e}",)
        raise
