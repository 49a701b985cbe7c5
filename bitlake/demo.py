"""The demo: ``python -m bitlake.demo [--rows N] [--keep FOLDER]``, a tour of indexes in two parts.

1. The two tables of the article on Paimon's file indexes, with the article's own SQL (sections 4.2, 5.2 and 6.1).
2. A million orders, with and without an index.

The generated orders, which the benchmark uses too, are the same in every run: ``order_id`` and ``order_date`` ascend
(new orders come last), ``user_id`` is uniform over 500,000, ``status`` is skewed with exactly 1,000 PENDING orders in
each million, side by side; ``payload`` is 48 hex digits that do not compress.
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

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from numpy.typing import NDArray
from rich.console import Console
from rich.logging import RichHandler
from rich.panel import Panel
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table as Grid
from rich.text import Text

import bitlake
from bitlake.expressions.casts import scaled
from bitlake.formatting import counted, human_bytes
from bitlake.scan.plan import Plan
from bitlake.tools.explain.text import describe_choice

# --- the article's statements -----------------------------------------------------------------------------------------

USER_EVENTS = (
    """
CREATE TABLE user_events (
    user_id INT,
    event_type STRING,
    event_time TIMESTAMP,
    region STRING
) TBLPROPERTIES (
    'file-index.bitmap.columns' = 'event_type,region',
    'file-index.bitmap.event_type.index-block-size' = '32kb',
    'file-index.in-manifest-threshold' = '10kb'
)
""",
    """
INSERT INTO user_events VALUES
    (1, 'login', TIMESTAMP '2024-01-01 10:00:00', 'US'),
    (2, 'click', TIMESTAMP '2024-01-01 10:01:00', 'EU'),
    (3, 'login', TIMESTAMP '2024-01-01 10:02:00', 'US'),
    (4, 'purchase', TIMESTAMP '2024-01-01 10:03:00', 'ASIA'),
    (5, 'click', TIMESTAMP '2024-01-01 10:04:00', 'US'),
    (6, 'login', TIMESTAMP '2024-01-01 10:05:00', 'EU')
""",
)

QUERIES = (
    "SELECT * FROM user_events WHERE event_type = 'login'",
    "SELECT * FROM user_events WHERE event_type IN ('login', 'purchase')",
    "SELECT * FROM user_events WHERE event_type NOT IN ('login')",
    "SELECT * FROM user_events WHERE region IS NULL",
    "SELECT * FROM user_events WHERE region IS NOT NULL",
    "SELECT * FROM user_events\nWHERE event_type = 'login' AND region = 'US'",
    "SELECT * FROM user_events\nWHERE event_type = 'login' OR region = 'US'",
)

ORDERS = (
    """
CREATE TABLE orders (
    order_id BIGINT,
    user_id BIGINT,
    status STRING,
    region STRING,
    amount DECIMAL(10, 2),
    order_date DATE
) TBLPROPERTIES (
    'bucket' = '4',
    'bucket-key' = 'order_id',
    'file-index.bitmap.columns' = 'status,region',
    'file-index.bitmap.status.version' = '2',
    'file-index.bitmap.status.index-block-size' = '16kb',
    'file-index.in-manifest-threshold' = '5kb'
)
""",
    """
INSERT INTO orders VALUES
    (1001, 1, 'PENDING', 'US', 100.00, DATE '2024-01-01'),
    (1002, 2, 'COMPLETED', 'EU', 200.00, DATE '2024-01-01'),
    (1003, 3, 'PENDING', 'ASIA', 150.00, DATE '2024-01-01'),
    (1004, 4, 'CANCELLED', 'US', 50.00, DATE '2024-01-02'),
    (1005, 5, 'COMPLETED', 'EU', 300.00, DATE '2024-01-02'),
    (1006, 6, 'PENDING', 'US', 120.00, DATE '2024-01-02'),
    (1007, 7, 'COMPLETED', 'ASIA', 250.00, DATE '2024-01-03'),
    (1008, 8, 'CANCELLED', 'EU', 80.00, DATE '2024-01-03'),
    (1009, 9, 'PENDING', 'ASIA', 180.00, DATE '2024-01-03'),
    (1010, 10, 'COMPLETED', 'US', 400.00, DATE '2024-01-04')
""",
    "SELECT order_id, user_id, region, amount\nFROM orders\nWHERE status = 'PENDING'",
)

ALTER_ORDERS = (
    """
ALTER TABLE user_events SET TBLPROPERTIES (
    'file-index.bitmap.columns' = 'event_type,region'
)
""",
    "CALL sys.rewrite_file_index('default.user_events')",
    """
ALTER TABLE user_events SET TBLPROPERTIES (
    'file-index.bloom-filter.columns' = 'user_id'
)
""",
    "CALL sys.rewrite_file_index(table => 'default.user_events')",
    "SELECT * FROM user_events WHERE user_id = 3",
    "SELECT * FROM user_events WHERE user_id = 4 AND event_type = 'login'",
)
"""Indexes for a table that has data already: what it has is kept, what is missing is built, for all files at once."""


# --- generated orders -------------------------------------------------------------------------------------------------

SEED = 7
USERS = 500_000
ORDERS_PER_DAY = 20_000
FIRST_DAY = 19_000  # days since the epoch: 2022-01-08
PENDING_EVERY, PENDING_FROM, PENDING_RUN = 1_000_000, 600_000, 1_000
STATUSES = ("COMPLETED", "CANCELLED", "SHIPPED", "RETURNED", "PENDING")
STATUS_WEIGHTS = (0.6, 0.1, 0.25, 0.05)
REGIONS = ("US", "EU", "ASIA", "LATAM", "MEA")

SCHEMA = pa.schema(
    [
        pa.field("order_id", pa.int64()),
        pa.field("user_id", pa.int64()),
        pa.field("status", pa.string()),
        pa.field("region", pa.string()),
        pa.field("amount", pa.decimal128(10, 2)),
        pa.field("order_date", pa.date32()),
        pa.field("payload", pa.string()),
    ]
)


def orders(rows: int) -> pa.Table:
    """``rows`` orders with :data:`SCHEMA`.

    The draws come in a fixed order: moving one changes every value after it.
    """
    random = np.random.default_rng(SEED)
    number = np.arange(rows, dtype=np.int64)
    status = random.choice(len(STATUS_WEIGHTS), rows, p=STATUS_WEIGHTS).astype(np.int8)
    into = number % PENDING_EVERY - PENDING_FROM
    status[(into >= 0) & (into < PENDING_RUN)] = STATUSES.index("PENDING")
    region = random.choice(len(REGIONS), rows).astype(np.int8)
    cents = random.integers(100, 10_000_000, rows)
    user = random.integers(0, USERS, rows)
    payload = random.integers(0, 256, (rows, 24), dtype=np.uint8)
    columns = [
        pa.array(number),
        pa.array(user),
        _names(status, STATUSES),
        _names(region, REGIONS),
        scaled(cents, pa.decimal128(10, 2), None),
        pa.array((number // ORDERS_PER_DAY + FIRST_DAY).astype(np.int32)).cast(pa.date32()),
        _hex(payload),
    ]
    return pa.table(columns, schema=SCHEMA)


def _names(codes: NDArray[np.int8], names: tuple[str, ...]) -> pa.Array:
    return pa.array(names, pa.string()).take(pa.array(codes))


def _hex(raw: NDArray[np.uint8]) -> pa.Array:
    """uint8[rows, n] → strings of 2n lower-case hex digits."""
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    text = digits[np.stack([raw >> 4, raw & 15], axis=2)]
    width = 2 * raw.shape[1]
    offsets = np.arange(len(raw) + 1, dtype=np.int32) * width
    return pa.Array.from_buffers(pa.string(), len(raw), [None, pa.py_buffer(offsets), pa.py_buffer(text)])


# --- the program ------------------------------------------------------------------------------------------------------

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
    _article_tour(console, lake)
    _orders_tour(console, lake, folder, rows)


# --- part 1: the article's tables -------------------------------------------------------------------------------------


def _article_tour(console: Console, lake: bitlake.Lake) -> None:
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
    """Describe which rows of which file the index chose."""
    for file in plan.files:
        console.print(Text.assemble(("  ✔ ", "green"), (_short(file.path), "bold"), "  ", describe_choice(file)))
    for skipped in plan.skipped:
        line = f"skipped by {skipped.reason.value}: {skipped.detail}"
        console.print(Text.assemble(("  ✘ ", "red"), (_short(skipped.path), "bold"), "  ", (line, "dim")))


def _short(path: str) -> str:
    bucket, name = path.split("/")[-2:]
    return f"{bucket}/{name[:13]}…{name.rsplit('-', 1)[-1]}"


# --- part 2: a million orders -----------------------------------------------------------------------------------------


def _orders_tour(console: Console, lake: bitlake.Lake, folder: Path, rows: int) -> None:
    source = folder / "orders.parquet"
    with console.status(f"Making {rows:,} orders …"):
        table = orders(rows)
        pending = pc.sum(pc.equal(table.column("status"), "PENDING")).as_py() or 0
        pq.write_table(table, source, row_group_size=500_000)
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
