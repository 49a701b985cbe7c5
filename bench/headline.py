"""The article's headline: of a million rows in 100 MB, a bitmap index finds the thousand PENDING ones.

    python -m bench.headline WAREHOUSE TABLE     the bytes that a fresh process reads for them, as JSON

Bytes are counted below everything, at the store: snapshot, schema, manifests, index, footer and pages.  CPU is
``time.process_time``: all threads of this process.  The lake is kept, since its caches are its own; each read opens the
table again.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import bitlake
from bench.measure import Result, noise, samples
from bench.wide import wide_orders
from bitlake.catalog.filesystem import FileSystemCatalog
from bitlake.lake import Lake
from bitlake.tools.explain.explanation import Meter, MeteringStore

if TYPE_CHECKING:
    from bench.cases import Bench

ROWS = 1_000_000
WHERE = "status = 'PENDING'"
BYTES_TARGET, CPU_TARGET = 1 / 600, 1 / 300
INDEXES = {"file-index.bitmap.columns": "status,region", "file-index.bloom-filter.columns": "user_id"}
SMALL_PAGES = {"parquet.page.size": "16384", "parquet.page.row.count.limit": "1024"}
LAYOUTS = {
    "side by side, 16 KB pages": ("headline_side", False, SMALL_PAGES),
    "side by side, default pages": ("headline_side_default", False, {}),
    "scattered, 16 KB pages": ("headline_scattered", True, SMALL_PAGES),
    "scattered, default pages": ("headline_scattered_default", True, {}),
}


def headline(bench: Bench) -> list[Result]:
    """What do 1,000 PENDING of 1M wide rows cost, in bytes of the file and in CPU of a full scan?"""
    results: list[Result] = []
    for layout, (name, scattered, options) in LAYOUTS.items():
        bench.say(f"headline: {layout}")
        results += _measure(bench.warehouse, f"bench.{name}", layout, scattered, options, bench.rounds)
    # Small pages make a full scan dearer, which flatters the ratio: so also against the scan they make dearer.
    by_name = {r.name: r for r in results}
    for placed in ("side by side", "scattered"):
        small, usual = by_name[f"CPU, 1,000 {placed}, 16 KB pages"], by_name[f"CPU, 1,000 {placed}, default pages"]
        results.append(replace(small, base=usual.base, base_name="a full scan of default pages", note=""))
    return results


def _measure(
    warehouse: Path, table: str, layout: str, scattered: bool, options: dict[str, str], rounds: int
) -> list[Result]:
    lake = bitlake.connect(str(warehouse))
    lake.create_database("bench", if_not_exists=True)
    lake.drop_table(table, if_exists=True)
    rows = wide_orders(ROWS, scattered)
    lake.create_table(table, rows.schema, options=INDEXES | options).append(rows)
    file = lake.table(table).scan().plan().metrics.data_bytes

    def find() -> None:
        assert lake.table(table).scan(where=WHERE).to_arrow().num_rows == ROWS // 1000

    def full() -> None:
        assert lake.table(table).scan().to_arrow().num_rows == ROWS

    def filtered() -> None:
        scan = lake.table(table).scan(where=WHERE).without_index()
        assert scan.to_arrow().num_rows == ROWS // 1000

    _, warm = bytes_read(warehouse, table)
    # The clock of the CPU ticks too coarsely for one short run beside a long one: ten are taken together.
    times = 1 if scattered else 10
    found = samples({"found": _cpu(find, times), "full": _cpu(full), "filter": _cpu(filtered)}, 2 * rounds + 1)
    m = {k: statistics.median(v) for k, v in found.items()}
    cold = _of_fresh_process(warehouse, table)
    note = (
        f"the first read of a fresh process: {cold['bytes'] / 1024:,.0f} KB in {cold['requests']} requests "
        f"(1/{file / cold['bytes']:,.0f}); warm: {warm['requests']} requests"
    )
    without = (
        f"a filtering scan without index reads the status column first and takes {m['filter'] * 1000:.1f} ms of CPU: "
        f"1/{m['filter'] / m['found']:.1f}; {noise(found)}"
    )
    return [
        Result(f"bytes, 1,000 {layout}", "KB", warm["bytes"] / 1024, file / 1024, "the file", BYTES_TARGET, 1, note),
        Result(f"CPU, 1,000 {layout}", "s", m["found"], m["full"], "a full scan", CPU_TARGET, 2 * rounds + 1, without),
    ]


def _cpu(action: Callable[[], object], times: int = 1) -> Callable[[], float]:
    def run() -> float:
        started = time.process_time()
        for _ in range(times):
            action()
        return (time.process_time() - started) / times

    return run


def bytes_read(warehouse: Path, table: str) -> list[dict[str, int]]:
    """Bytes and requests that the store served for the first read of the PENDING rows by a lake, and for the second."""
    lake = bitlake.connect(str(warehouse))
    return [_metered(lake, warehouse, table) for _ in range(2)]


def _metered(lake: Lake, warehouse: Path, table: str) -> dict[str, int]:
    """One read, through a store that measures it and has the lake's caches."""
    meter = Meter()
    kept = lake._catalog
    lake._catalog = FileSystemCatalog(MeteringStore(kept.store, meter), str(warehouse))
    try:
        assert lake.table(table).scan(where=WHERE).to_arrow().num_rows == ROWS // 1000
    finally:
        lake._catalog = kept
    phases = meter.by_phase.values()
    return {"bytes": sum(p.bytes for p in phases), "requests": sum(p.requests for p in phases)}


def _of_fresh_process(warehouse: Path, table: str) -> dict[str, int]:
    """As :func:`bytes_read`, the first read of a process of its own."""
    command = [sys.executable, "-m", "bench.headline", str(warehouse), table]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parent.parent)
    answer: list[dict[str, int]] = json.loads(done.stdout)
    return answer[0]


if __name__ == "__main__":
    print(json.dumps(bytes_read(Path(sys.argv[1]), sys.argv[2])))
