"""``bitlake sql``: statements from the command line, a file, or the shell (:mod:`bitlake.cli.shell`)."""

from __future__ import annotations

import sys
from typing import Any

import click

from bitlake.cli.failures import Usage
from bitlake.cli.result import SHOW, Result
from bitlake.cli.run import Run, argument, command, limit_option
from bitlake.errors import BitlakeError, InvalidRequest, NotFound

SHOWN = 1000
"""Rows shown at a terminal without ``--limit``."""
_FORMATS = ("table", "csv", "json")


@command("sql")
@argument("statement", "One or more statements, separated by semicolons.", required=False)
@click.option("--file", "-f", metavar="FILE", help="Run the statements in a file; - is stdin.")
@limit_option(f"Return at most N rows of each result; 0 returns all. Default: {SHOWN} at a terminal, all in a pipe.")
@click.option(
    "--format",
    type=click.Choice(_FORMATS),
    default="table",
    metavar="FORMAT",
    help="table, csv or json (one object per line).",
)
@click.option(
    "--engine",
    type=click.Choice(("auto", "duckdb", "spark")),
    default="auto",
    show_default=True,
    help="auto: without Spark where statements and queries (by DuckDB) mean the same, else Spark.",
)
def sql(run: Run, statement: str | None, file: str | None, limit: int | None, format: str, engine: str) -> None:
    """Run Spark SQL over the lake's tables: statements, a file of statements, or an interactive shell.

    Without a statement, the command opens the shell at a terminal and reads statements from stdin in a pipe.

    Example: bitlake sql "SELECT status, count(*) FROM orders GROUP BY status"
    """
    if statement is not None and file is not None:
        raise Usage("STATEMENT and --file exclude each other: use one of them")
    if statement is None and file is None and sys.stdin.isatty() and not run.out.json:
        from bitlake.cli.shell import Shell  # prompt_toolkit takes 0.1 s, and only the shell needs it

        Shell(run, SHOWN if limit is None else limit, engine).loop()
        return
    from bitlake.sql.parser import split_statements

    statements = split_statements(_text(statement, file))
    if not statements:
        raise Usage("the text contains no statement")
    shown = limit if limit is not None else SHOWN if run.out.is_terminal and format == "table" else 0
    documents: list[dict[str, Any]] = []
    try:
        for number, text in enumerate(statements, 1):
            result = _numbered(run, text, shown, number if len(statements) > 1 else None, engine)
            if run.out.json:
                documents.append(result.document())
            elif result.has_rows:
                SHOW[format](run.out.screen, result)
    finally:
        if run.out.json:
            run.out.result({"statements": documents}, lambda screen: None)


def _text(statement: str | None, file: str | None) -> str:
    if statement is not None:
        return statement
    if file is None or file == "-":
        return sys.stdin.read()
    try:
        with open(file, encoding="utf-8") as f:
            return f.read()
    except FileNotFoundError as e:
        raise NotFound(f"file not found: {file}") from e
    except UnicodeDecodeError as e:
        raise InvalidRequest(f"{file} is not UTF-8 text; convert it first") from e


def _numbered(run: Run, text: str, limit: int, number: int | None, engine: str) -> Result:
    try:
        return Result.of(run.lake(), text, limit, engine, run.out)
    except BitlakeError as e:
        if number is not None:
            e.args = (f"statement {number}: {e}",)
        raise
