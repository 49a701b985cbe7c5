"""``bitlake sql``: statements from the command line, a file, or a person at the shell."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bitlake.cli.failures import Usage
from bitlake.cli.output import Output, Screen
from bitlake.cli.run import Run, command

if TYPE_CHECKING:
    import pyarrow as pa

    from bitlake.lake import Lake

SHOWN = 1000
"""Rows shown at a terminal unless ``--limit`` says otherwise."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "sql", sql)


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
    if statement is not None and file is not None:
        raise Usage("give a STATEMENT or --file, not both")
    if format not in _SHOW:
        raise Usage(f"--format is one of {', '.join(_SHOW)}, and not '{format}'")
    if statement is None and file is None and sys.stdin.isatty() and not run.out.json:
        from bitlake.cli.shell import Shell

        Shell(run, SHOWN if limit is None else limit).loop()
        return
    from bitlake.sql.parse import split_statements

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
                _SHOW[format](run.out.screen, result)
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


def starting(out: Output) -> None:
    """Tell a person that Spark takes a moment."""
    if out.watched and "pyspark" not in sys.modules:
        out.note("starting Spark …")


def _numbered(lake: Lake, text: str, limit: int, number: int | None) -> Result:
    from bitlake.errors import BitlakeError

    try:
        return Result.of(lake, text, limit)
    except BitlakeError as e:
        if number is not None:
            e.args = (f"statement {number}: {e}",)
        raise


class Result:
    """What a statement returned: its rows (at most a limit), and how long it took."""

    def __init__(self, text: str, rows: pa.Table, more: bool, seconds: float) -> None:
        self.text = text
        self.rows = rows
        self.more = more
        self.seconds = seconds

    @staticmethod
    def of(lake: Lake, text: str, limit: int) -> Result:
        """Run a statement and fetch its rows: all of them for a limit of 0."""
        import pyarrow as pa

        started = time.perf_counter()
        frame = lake.sql(text)
        if not frame.columns:
            return Result(text, pa.table({}), False, time.perf_counter() - started)
        rows = (frame.limit(limit + 1) if limit else frame).toArrow()
        more = 0 < limit < rows.num_rows
        return Result(text, rows.slice(0, limit) if more else rows, more, time.perf_counter() - started)

    @property
    def has_rows(self) -> bool:
        """Whether it is a table at all: statements that change something return none."""
        return bool(self.rows.num_columns)

    def document(self) -> dict[str, Any]:
        """As JSON: columns with their types, rows as lists in that order."""
        import json

        from bitlake.cli.json_lines import json_lines

        names = [str(i) for i in range(self.rows.num_columns)]  # names may be there twice
        lines = json_lines(self.rows.rename_columns(names)).splitlines() if self.has_rows else []
        return {
            "statement": self.text,
            "columns": [{"name": f.name, "type": str(f.type)} for f in self.rows.schema],
            "rows": [list(json.loads(line).values()) for line in lines],
            "truncated": self.more,
            "seconds": round(self.seconds, 3),
        }


def show_table(screen: Screen, result: Result) -> None:
    """Rows as a table; one below the other, column by column, where a line would hold too little of each."""
    from bitlake.cli.cells import cells, numeric

    rows, names = cells(result.rows), result.rows.column_names
    widths = [max([len(n), *(len(r[i]) for r in rows)]) for i, n in enumerate(names)]
    if sum(min(w, 24) + 2 for w in widths) - 2 > screen.width:
        for number, row in enumerate(rows, 1):
            screen.line(f"row {number}", "dim")
            screen.pairs(zip(names, row, strict=True), empty=True)
    else:
        right = [numeric(f.type) for f in result.rows.schema]
        kinds = [">" if r else "*" if w > 24 else "" for r, w in zip(right, widths, strict=True)]
        screen.table([k + n for k, n in zip(kinds, names, strict=True)], rows, empty="no rows")
    if result.more:
        screen.line(f"the first {result.rows.num_rows:,} rows; --limit 0 shows all", "dim")


def _show_csv(screen: Screen, result: Result) -> None:
    from bitlake.cli.export import write

    sys.stdout.flush()
    write(sys.stdout.buffer, "csv", result.rows.schema, result.rows.to_batches())
    sys.stdout.buffer.flush()


def _show_json(screen: Screen, result: Result) -> None:
    from bitlake.cli.json_lines import json_lines

    sys.stdout.flush()
    sys.stdout.buffer.write(json_lines(result.rows))
    sys.stdout.buffer.flush()


_SHOW = {"table": show_table, "csv": _show_csv, "json": _show_json}
