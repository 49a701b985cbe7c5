"""The demo: ``python -m bitlake.demo [--rows N] [--keep FOLDER]``.

First the two tables of the article that bitlake was asked for by, with its SQL as it stands there; then a million
orders, to see what an index is worth.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from rich.console import Console
from rich.logging import RichHandler
from rich.panel import Panel
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table as Grid
from rich.text import Text

import bitlake
from bitlake.demo.data import ALTER_ORDERS, ORDERS, QUERIES, USER_EVENTS, orders
from bitlake.formatting import counted, human_bytes
from bitlake.scan.plan import Plan
from bitlake.tools.explain.text import describe_choice

_INDEXED = {
    "file-index.bitmap.columns": "status,region",
    "file-index.bloom-filter.columns": "user_id",
}
_REPEAT = 5


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the demo in a temporary folder, or in one that is kept."""
    parser = argparse.ArgumentParser(prog="make demo", description="See bitlake at work.")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the second part (default: 1,000,000)")
    parser.add_argument("--keep", metavar="FOLDER", help="put the lake here and leave it there")
    chosen = parser.parse_args(arguments)
    console = Console(highlight=False)
    handler = RichHandler(console=console, show_time=False, show_path=False, markup=False)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[handler])
    logging.getLogger("py4j").setLevel(logging.ERROR)
    if chosen.keep:
        lake = Path(chosen.keep) / "lake"
        if lake.exists():
            parser.error(f"{lake} is there already: name another folder, or remove it")
        _run(console, Path(chosen.keep), chosen.rows)
        (Path(chosen.keep) / "orders.parquet").unlink()
        console.print(
            f"The lake stays in {lake}: bitlake.connect({str(lake)!r}), or: bitlake tables --lake {lake}",
            markup=False,
            soft_wrap=True,
        )
        return
    with tempfile.TemporaryDirectory(prefix="bitlake-demo-") as folder:
        _run(console, Path(folder), chosen.rows)
    console.print("This lake is gone now; `bitlake demo --keep FOLDER` leaves it, to look at with `bitlake tables`.")


def _run(console: Console, folder: Path, rows: int) -> None:
    console.print(
        Panel.fit("[bold]bitlake[/]: Paimon lake tables with their whole index system, in Python and on Spark")
    )
    lake = bitlake.connect(str(folder / "lake"))
    with console.status("Starting Spark …"):
        started = time.perf_counter()
        version = lake.spark.version
    console.print(f"Spark {version} is up after {time.perf_counter() - started:.1f} s; the lake is in {lake.path}\n")
    _article(console, lake)
    _orders(console, lake, folder, rows)


# --- part 1 ----------------------------------------------------------------------------------------------------------


def _article(console: Console, lake: bitlake.Lake) -> None:
    console.print(Rule("[bold]1  Bitmap indexes on two small tables"))
    for title, statements in (
        ("user_events", USER_EVENTS),
        ("Queries", QUERIES),
        ("orders", ORDERS),
        ("Indexes later", ALTER_ORDERS),
    ):
        console.print(Rule(f"[dim]{title}", style="dim", align="left"))
        for text in statements:
            _statement(console, lake, text)


def _statement(console: Console, lake: bitlake.Lake, text: str) -> None:
    console.print(Syntax(text.strip(), "sql", theme="ansi_dark", background_color="default", word_wrap=True))
    plans = lake.plans(text) if text.lstrip().upper().startswith("SELECT") else []
    frame = lake.sql(text)
    rows = frame.collect()
    if frame.columns:
        console.print(_grid(frame.columns, rows))
    for plan in plans:
        _choice(console, plan)
    console.print()


def _grid(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Grid:
    grid = Grid(header_style="bold cyan", border_style="dim")
    for i, name in enumerate(columns):
        number = bool(rows) and isinstance(rows[0][i], (int, float)) and not isinstance(rows[0][i], bool)
        grid.add_column(name, justify="right" if number else "left")
    for row in rows:
        grid.add_row(*[Text("NULL", style="dim") if v is None else Text(str(v)) for v in row])
    return grid


def _choice(console: Console, plan: Plan) -> None:
    """Which rows of which file the index chose."""
    for file in plan.files:
        console.print(Text.assemble(("  ✔ ", "green"), (_short(file.path), "bold"), "  ", describe_choice(file)))
    for gone in plan.skipped:
        line = f"skipped by {gone.reason.value}: {gone.detail}"
        console.print(Text.assemble(("  ✘ ", "red"), (_short(gone.path), "bold"), "  ", (line, "dim")))


def _short(path: str) -> str:
    bucket, name = path.split("/")[-2:]
    return f"{bucket}/{name[:13]}…{name.rsplit('-', 1)[-1]}"


# --- part 2 ----------------------------------------------------------------------------------------------------------


def _orders(console: Console, lake: bitlake.Lake, folder: Path, rows: int) -> None:
    source = folder / "orders.parquet"
    with console.status(f"Making {rows:,} orders …"):
        made = orders(rows)
        pending = pc.sum(pc.equal(made.column("status"), "PENDING")).as_py() or 0
        pq.write_table(made, source, row_group_size=500_000)
    console.print(Rule(f"[bold]2  What an index is worth: {rows:,} orders, {pending:,} of them PENDING"))
    lake.spark.read.parquet(str(source)).createOrReplaceTempView("incoming_orders")
    properties = ", ".join(f"'{k}' = '{v}'" for k, v in _INDEXED.items())
    create = f"CREATE TABLE many_orders TBLPROPERTIES ({properties})\nAS SELECT * FROM incoming_orders"
    console.print(Syntax(create, "sql", theme="ansi_dark", background_color="default", word_wrap=True))
    with console.status("Writing them with indexes on Spark …"):
        started = time.perf_counter()
        lake.sql(create)
    files = lake.table("many_orders").scan().plan().files
    size = sum(f.entry.file.file_size for f in files)
    console.print(
        f"written in {time.perf_counter() - started:.1f} s: {counted(len(files), 'file')}, {human_bytes(size)}, "
        "indexes of status, region and user_id made on the way\n"
    )
    query = "SELECT * FROM many_orders WHERE status = 'PENDING'"
    console.print(Syntax(query, "sql", theme="ansi_dark", background_color="default"))
    lake.table("many_orders").alter_options({"file-index.read.enabled": "true"})
    console.print(_comparison(lake, query))
    for plan in lake.plans(query):
        _choice(console, plan)
    console.print()


def _comparison(lake: bitlake.Lake, query: str) -> Grid:
    table = lake.table("many_orders")
    scan = table.scan(where="status = 'PENDING'")
    grid = Grid(header_style="bold cyan", border_style="dim", title=f"median of {_REPEAT} warm runs")
    grid.add_column("way")
    for name in ("rows", "files", "bytes read", "time"):
        grid.add_column(name, justify="right")

    def line(name: str, made: bitlake.Scan, times: float, rows: int, *, style: str) -> None:
        m = made.plan().metrics
        size = human_bytes(m.data_bytes_read + m.index_bytes_read)
        grid.add_row(name, f"{rows:,}", f"{m.files_read} of {m.files}", size, f"{times * 1000:.0f} ms", style=style)

    cold = scan.select(scan.columns)
    cold.to_arrow()
    with_index, fast = _timed(lambda: scan.select(scan.columns).to_arrow())
    line("in this process, with the index", cold, fast, with_index.num_rows, style="green")
    plain = scan.without_index()
    plain.to_arrow()
    without, slow = _timed(lambda: scan.without_index().to_arrow())
    line("in this process, without it", plain, slow, without.num_rows, style="yellow")
    paths = [f.path for f in table.scan().plan().files]
    whole = sum(f.entry.file.file_size for f in table.scan().plan().files)
    read, slowest = _timed(lambda: ds.dataset(paths).to_table(filter=pc.field("status") == "PENDING"))
    grid.add_row(
        "pyarrow dataset with the same filter",
        f"{read.num_rows:,}",
        f"{len(paths)} of {len(paths)}",
        f"up to {human_bytes(whole)}",
        f"{slowest * 1000:.0f} ms",
        style="yellow",
    )
    rows, sql_fast = _timed(lambda: lake.sql(query).collect())
    line("Spark SQL, with the index", cold, sql_fast, len(rows), style="green")
    table.alter_options({"file-index.read.enabled": "false"})
    rows, sql_slow = _timed(lambda: lake.sql(query).collect())
    up_to = f"up to {human_bytes(whole)}"
    files = f"{len(paths)} of {len(paths)}"
    grid.add_row("Spark SQL, without it", f"{len(rows):,}", files, up_to, f"{sql_slow * 1000:.0f} ms", style="yellow")
    table.alter_options({"file-index.read.enabled": "true"})
    ratio = (plain.plan().metrics.data_bytes_read or 1) / max(
        1, cold.plan().metrics.data_bytes_read + cold.plan().metrics.index_bytes_read
    )
    fewer = f"{ratio:,.0f} × fewer bytes; " if ratio >= 1.5 else ""
    grid.caption = f"{fewer}{slow / fast:,.1f} × faster in process, {sql_slow / sql_fast:,.1f} × in Spark SQL"
    return grid


def _timed(run: Callable[[], Any]) -> tuple[Any, float]:
    run()
    times = []
    for _ in range(_REPEAT):
        started = time.perf_counter()
        result = run()
        times.append(time.perf_counter() - started)
    return result, statistics.median(times)


if __name__ == "__main__":
    main()
