"""How long does planning take, per data file?  Tables of generated manifest entries: nothing but metadata exists.

    python -m bench.planning [FILES ...]        1,000 10,000 100,000 unless told; no Spark needed

Every file has statistics of seven columns and an embedded bitmap index of 500 rows, like one that a small append makes.
"""

from __future__ import annotations

import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

import bitlake
from bench.measure import Result, print_report
from bitlake.codec.binary_row import EMPTY_ROW
from bitlake.fileindex.registry import IndexBuilder, parse_index_options
from bitlake.metadata.manifest import EMPTY_STATS, DataFileMeta, EntryKind, FileSource, ManifestEntry, decode_manifest
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.stats import build_stats, stats_modes

if TYPE_CHECKING:
    from bench.cases import Bench

SIZES = (1_000, 10_000, 100_000)
COLUMNS = pa.schema(
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
OPTIONS = {"file-index.bitmap.columns": "status"}
STATUSES = ("CANCELLED", "DELIVERED", "PENDING", "SHIPPED")
ROWS = 500
_KINDS = 64
"""Different indexes and texts among the files."""
_STATS = "order_id > {first} AND amount >= 10 AND order_date >= DATE '1970-01-02'"
"""Statistics leave one file in a hundred: the last ones."""
_INDEX = "status = 'RETURNED'"
"""Within every file's bounds, and in no file: each index is asked."""
_HIT = "status = 'PENDING'"
"""About ten rows of every file: each index is asked, its bitmap read, and the file planned."""


@dataclass(frozen=True, slots=True)
class Times:
    """Microseconds of CPU time per file."""

    decode: float
    stats: float
    stats_again: float
    nothing_pruned: float
    index: float
    index_again: float
    first: float
    second: float
    first_index: float
    second_index: float
    hit: float


def entries(schema: TableSchema, files: int) -> list[ManifestEntry]:
    """ADD entries of files with ascending order ids."""
    modes, rng = stats_modes(schema), np.random.default_rng(1)
    specs = parse_index_options(schema.options, schema.fields)
    indexes = []
    for _ in range(_KINDS):
        builder = IndexBuilder(specs, schema.fields)
        builder.add(pa.table({"status": pa.array(np.array(STATUSES)[rng.choice(4, ROWS, p=[0.02, 0.48, 0.02, 0.48])])}))
        indexes.append(builder.finish())
    out = []
    for i in range(files):
        low = [
            i * ROWS,
            int(rng.integers(50)),
            STATUSES[0],
            "ASIA",
            100 + i % 977,
            i // 500,
            f"payload-{i % 991:012}-a",
        ]
        high = [(i + 1) * ROWS - 1, 10**6 + i, STATUSES[3], "US", 10**6 + i, i // 500 + 1, f"payload-{i % 991:012}-z"]
        stats, columns = build_stats(schema.fields, low, high, [0, 0, 0, 3, 0, 0, 0], modes)
        file = DataFileMeta(
            file_name=f"data-{i:08x}-5f4f-4c11-9d8c-0d3bd47c1f5e-{i % 7}.parquet",
            file_size=40_000 + i % 1000,
            row_count=ROWS,
            min_key=EMPTY_ROW,
            max_key=EMPTY_ROW,
            key_stats=EMPTY_STATS,
            value_stats=stats,
            min_sequence_number=0,
            max_sequence_number=0,
            schema_id=schema.id,
            level=0,
            creation_time=1_760_000_000_000 + i,
            delete_row_count=0,
            embedded_index=indexes[i % _KINDS],
            file_source=FileSource.APPEND,
            value_stats_cols=columns,
        )
        out.append(ManifestEntry(EntryKind.ADD, EMPTY_ROW, 0, -1, file))
    return out


def make_table(folder: Path, files: int) -> bitlake.Table:
    """A table of that many data files, none of which exists."""
    table = bitlake.connect(str(folder)).create_table(f"planning_{files}", COLUMNS, options=OPTIONS)
    state = table._core.state()
    table._core.commit_files(state, entries(state.schema, files), "WRITE")
    return table


def measure(table: bitlake.Table, files: int, rounds: int = 3) -> Times:
    """Medians over some rounds, each from cold caches."""
    manifests = [p.read_bytes() for p in Path(table.path).glob("manifest/manifest-*") if "-list-" not in p.name]
    stats = _STATS.format(first=ROWS * (files - files // 100))
    found: list[list[float]] = []
    for _ in range(rounds):
        row = [cpu(lambda: [decode_manifest(m) for m in manifests])]
        table._core.store.caches.clear()
        gc.collect()
        state = table._core.state()
        state.entries()

        def plan(where: str | None, left: int) -> float:
            scan = table.scan(where=where)
            seconds = cpu(scan.plan)
            if len(scan.plan().files) != left:
                raise AssertionError(f"{len(scan.plan().files)} files are left, not {left}")
            return seconds

        row += [plan(stats, files // 100), plan(stats, files // 100), plan(None, files)]
        row += [plan(_INDEX, 0), plan(_INDEX, 0)]
        for where, left in ((stats, files // 100), (_INDEX, 0)):
            table._core.store.caches.clear()
            row += [plan(where, left), plan(where, left)]
        row.append(plan(_HIT, files))
        found.append(row)
    return Times(*(statistics.median(column) / files * 1e6 for column in zip(*found, strict=True)))


def cpu(action: Callable[[], object]) -> float:
    """Seconds of this process's CPU time that one call took: planning waits for nothing but the CPU here."""
    started = time.process_time()
    action()
    return time.process_time() - started


def planning(bench: Bench) -> list[Result]:
    """How long does planning take per data file, and is it linear from 1k to 100k files?"""
    return results(bench.folder / "planning", SIZES, bench.say)


def results(folder: Path, sizes: tuple[int, ...], say: Callable[[str], None]) -> list[Result]:
    """The lines of the report: the largest table's figures, held against the targets, then each stage's growth."""
    times: dict[int, Times] = {}
    for size in sizes:
        say(f"planning: {size:,} files")
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=folder.name) as home:
            times[size] = measure(make_table(Path(home), size), size)
    big, small = times[max(sizes)], times[min(sizes)]
    told = f"{max(sizes):,} files"

    def line(name: str, stage: str, target: float) -> Result:
        ours, note = getattr(big, stage), ", ".join(f"{n:,}: {getattr(t, stage):.1f} µs" for n, t in times.items())
        return Result(f"{told}: {name}, a file", "µs", ours, None, "", target, 3, note)

    lines = [
        line("manifest decoding", "decode", 20),
        line("plan by statistics (1 % left)", "stats", 2),
        line("the same again", "stats_again", 2),
        line("plan without a condition", "nothing_pruned", 10),
        line("embedded bitmap asked, no row in any", "index", 100),
        line("the same again", "index_again", 100),
        line("the same, every file with ten rows", "hit", 100),
    ]
    for name, second, first in (
        ("by statistics", big.second, big.first),
        ("by index", big.second_index, big.first_index),
    ):
        lines.append(Result(f"{told}: second plan {name}, a file", "µs", second, first, "the first, cold", 1 / 5, 3))
    for stage in ("decode", "stats", "index", "first"):
        ours, base = getattr(big, stage), getattr(small, stage)
        lines.append(Result(f"{told}: {stage}, a file", "µs", ours, base, f"{min(sizes):,} files", 1.25, 3))
    return lines


def main() -> None:
    """Without Spark and the rest of the benchmark."""
    sizes = tuple(int(a) for a in sys.argv[1:]) or SIZES
    with tempfile.TemporaryDirectory() as home:
        print_report(results(Path(home) / "planning", sizes, print), {}, 0)


if __name__ == "__main__":
    main()
