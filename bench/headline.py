"""The article's headline: of a million rows in 100 MB, a bitmap index finds the thousand PENDING ones.

    python -m bench.headline WAREHOUSE TABLE     the bytes that a fresh process reads for them, as JSON

Bytes are counted below everything, at the store: snapshot, schema, manifests, index, footer and pages.  CPU is
``time.process_time``: all threads of this process.
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
from typing import TYPE_CHECKING, Any

import bitlake
from bench.measure import Result, noise, samples
from bench.wide import wide_orders
from bitlake.catalog.filesystem import FileSystemCatalog
from bitlake.io import open_store
from tests.store_wrappers import CountingStore

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
        found = bitlake.connect(str(warehouse)).table(table).scan(where=WHERE).to_arrow()
        assert found.num_rows == ROWS // 1000

    def full() -> None:
        assert bitlake.connect(str(warehouse)).table(table).scan().to_arrow().num_rows == ROWS

    def filtered() -> None:
        scan = bitlake.connect(str(warehouse)).table(table).scan(where=WHERE).without_index()
        assert scan.to_arrow().num_rows == ROWS // 1000

    find()
    warm = bytes_read(warehouse, table)
    # The clock of the CPU ticks too coarsely for one short run beside a long one: ten are taken together.
    times = 1 if scattered else 10
    found = samples({"found": _cpu(find, times), "full": _cpu(full), "filter": _cpu(filtered)}, 2 * rounds + 1)
    m = {k: statistics.median(v) for k, v in found.items()}
    cold = _cold(warehouse, table)
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


def bytes_read(warehouse: Path, table: str) -> dict[str, Any]:
    """Bytes and requests that the store served for one read of the PENDING rows, with whatever is cached."""
    lake = bitlake.connect(str(warehouse))
    store = CountingStore(open_store(str(warehouse)))
    lake._catalog = FileSystemCatalog(store, str(warehouse))
    assert lake.table(table).scan(where=WHERE).to_arrow().num_rows == ROWS // 1000
    return {"bytes": store.bytes_read, "requests": sum(store.calls.values())}


def _cold(warehouse: Path, table: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.headline", str(warehouse), table]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parent.parent)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


if __name__ == "__main__":
    print(json.dumps(bytes_read(Path(sys.argv[1]), sys.argv[2])))
