"""What does a table of very many files cost to plan and to commit to?  Only metadata exists.

    python -m bench.scale [FILES [PARTITIONS]]        100,000 files in 2,000 partitions unless told; no Spark needed

Peak memory is that of a process which only plans.

Files come in commits of one partition each, as a table that is written day by day has them.
"""

from __future__ import annotations

import gc
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

import bitlake
from bench.measure import Result, print_report
from bench.planning import COLUMNS, entries
from bitlake.codec.binary_row import encode_row_with_arity
from bitlake.mergetree.bucket import LiveBuckets
from bitlake.metadata.manifest import EntryKind, ManifestEntry
from bitlake.runtime import process_caches

if TYPE_CHECKING:
    from bench.cases import Bench

FILES, PARTITIONS = 100_000, 2_000
SMALLER = 10_000, 200
_PLAN_SECONDS, _PLAN_MB, _SECOND, _PARTITION, _COMMIT = 4e-6, 500, 0.1, 0.05, 0.02
"""Targets: a file in a plan of everything, cold, and its peak memory; the plan again; a partition's; a commit."""
_PLANNER = """
import resource, sys, bitlake
files = bitlake.connect(sys.argv[1]).table("scale").scan().plan().files
print(len(files), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
_PART = pa.field("part", pa.int32())
_COMMITS = 40
"""Commits that make the table; the partitions of one lie side by side, as if they had been compacted."""


def make_table(folder: Path, files: int, partitions: int) -> bitlake.Table:
    """A partitioned table of that many data files, none of which exists."""
    schema = pa.schema([_PART, *COLUMNS])
    table = bitlake.connect(str(folder)).create_table("scale", schema, partition_by=["part"])
    types = [f.type for f in table.schema.partition_fields]
    plain = replace(table.schema, fields=table.schema.fields[1:], partition_keys=(), options={})
    known = tuple(COLUMNS.names)  # the partition's own columns need no statistics
    made = [
        replace(e, file=replace(e.file, embedded_index=None, value_stats_cols=known))
        for e in entries(plain, min(files, 10_000))
    ]
    share = -(-partitions // _COMMITS)
    for first in range(0, partitions, share):
        batch: list[ManifestEntry] = []
        for part in range(first, min(first + share, partitions)):
            raw = encode_row_with_arity(types, (part,))
            at = part * (files // partitions)
            for number in range(at, at + files // partitions):
                like = made[number % len(made)]
                file = replace(like.file, file_name=f"data-{number:08x}-5f4f-4c11-9d8c-0d3bd47c1f5e-0.parquet")
                batch.append(replace(like, partition=raw, file=file))
        table._core.commit_files(table._core.state(), batch, "WRITE")
    return table


def _forget(table: bitlake.Table) -> None:
    """Clear the caches of the lake and, for what is unpickled, of this process."""
    store = table._core.store
    store.caches.clear()
    process_caches(store.identity, store.caches.budget.size).clear()
    gc.collect()


def results(folder: Path, files: int, partitions: int, say: Callable[[str], None]) -> list[Result]:
    """Planning one partition and everything, from nothing and again, and one more commit."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=folder.name) as home:
        say(f"scale: making {files:,} files in {partitions:,} partitions")
        table = make_table(Path(home), files, partitions)
        manifests = [p for p in Path(table.path).glob("manifest/manifest-*") if "-list-" not in p.name]
        size = sum(p.stat().st_size for p in manifests)
        note = f"{len(manifests)} manifests on disk, {size / 1e6:.0f} MB; {size / files:.0f} bytes a file"
        one = f"part = {partitions // 2} AND order_id >= 0"

        def plan(where: str | None, cold: bool) -> float:
            if cold:
                _forget(table)
            started = time.process_time()  # planning waits for nothing but the CPU here
            planned = table.scan(where=where).plan()
            taken = time.process_time() - started
            wanted = files if where is None else files // partitions
            assert len(planned.files) == wanted, (len(planned.files), wanted)
            return taken

        def middle(where: str | None, cold: bool) -> float:
            return statistics.median(plan(where, cold) for _ in range(3))

        told = f"{files:,} files, {partitions:,} partitions"
        lines = [
            Result(f"{told}: plan of one partition, cold", "s", middle(one, True), None, "", _PARTITION, 3, note),
            Result(f"{told}: the same again", "s", middle(one, False), None, "", _SECOND, 3),
            Result(f"{told}: plan of everything, cold", "s", middle(None, True), None, "", _PLAN_SECONDS * files, 3),
            Result(f"{told}: the same again", "s", middle(None, False), None, "", _SECOND, 3),
            Result(f"{told}: peak memory of planning everything", "MB", _peak(home, files), None, "", _PLAN_MB, 1),
        ]
        lines += _keyed_write(table, partitions, told)
        extra = table._core.state().entries()[:1]
        new = [replace(extra[0], file=replace(extra[0].file, file_name="data-one-more-0.parquet"))]
        _forget(table)
        started = time.perf_counter()
        table._core.commit_files(table._core.state(), new, "WRITE")
        taken = time.perf_counter() - started
        lines.append(Result(f"{told}: a commit of one more file", "s", taken, None, "", _COMMIT, 1))
        return lines


def _peak(home: str, files: int) -> float:
    """The peak memory in MB of a process that plans everything."""
    done = subprocess.run([sys.executable, "-c", _PLANNER, home], check=True, capture_output=True, text=True)
    planned, peak = map(int, done.stdout.split())
    assert planned == files, (planned, files)
    return peak / 1024


def _keyed_write(table: bitlake.Table, partitions: int, told: str) -> list[Result]:
    """What a keyed write by Spark tasks asks of the files that are there: the driver, and a task for its partitions."""
    types = [f.type for f in table.schema.partition_fields]

    def driver(lazy: bool) -> tuple[float, int]:
        _forget(table)
        started = time.perf_counter()
        sent = pickle.dumps(LiveBuckets.of(table._core.state(), lazy=lazy))
        return time.perf_counter() - started, len(sent)

    def task(count: int) -> float:
        first = partitions // 2
        rows = [encode_row_with_arity(types, (part,)) for part in range(first, min(first + count, partitions))]
        sent = pickle.dumps(LiveBuckets.of(table._core.state(), lazy=True))
        _forget(table)
        started = time.perf_counter()
        found = pickle.loads(sent).load(rows)
        assert len({partition for partition, _ in found}) == len(rows)
        return time.perf_counter() - started

    (asked, sent), (all_asked, all_sent) = driver(True), driver(False)
    return [
        Result(
            f"{told}: a keyed write by tasks, driver", "s", asked, None, "", None, 1, f"{sent:,} bytes to each task"
        ),
        Result(f"{told}: as if the driver told all", "s", all_asked, None, "", None, 1, f"{all_sent / 1e6:.0f} MB"),
        Result(f"{told}: a task looks at one partition", "s", task(1), None, "", None, 1),
        Result(f"{told}: a task looks at fifty", "s", task(50), None, "", None, 1),
    ]


def iceberg_results(folder: Path, files: int, say: Callable[[str], None]) -> list[Result]:
    """Commits to a table with Iceberg metadata: a file added, one removed, and one removed without caches."""
    schema = pa.schema(list(COLUMNS))
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=folder.name) as home:
        say(f"scale: publishing {files:,} files as Iceberg")
        options = {"metadata.iceberg.storage": "table-location"}
        table = bitlake.connect(home).create_table("iceberg", schema, options=options)
        made = [replace(e, file=replace(e.file, embedded_index=None)) for e in entries(table.schema, files)]
        for first in range(0, files, files // _COMMITS):
            table._core.commit_files(table._core.state(), made[first : first + files // _COMMITS], "WRITE")

        def commit(changes: list[ManifestEntry], operation: str, cold: bool) -> float:
            if cold:
                _forget(table)
            state, started = table._core.state(), time.process_time()
            table._core.commit_files(state, changes, operation)
            return time.process_time() - started

        def middle(kind: EntryKind, cold: bool = False) -> float:
            adds = kind is EntryKind.ADD
            chosen = [made.pop(len(made) // 3) for _ in range(7)]
            names = [f"data-more-{i}-0.parquet" if adds else e.file.file_name for i, e in enumerate(chosen)]
            changes = [
                replace(e, kind=kind, file=replace(e.file, file_name=n)) for e, n in zip(chosen, names, strict=True)
            ]
            return statistics.median(commit([c], "WRITE" if adds else "DELETE", cold) for c in changes)

        told = f"{files:,} files, with Iceberg metadata"
        return [
            Result(f"{told}: a commit of one more file", "s", middle(EntryKind.ADD), None, "", _COMMIT, 7),
            Result(f"{told}: one that removes a file", "s", middle(EntryKind.DELETE), None, "", _COMMIT, 7),
            Result(f"{told}: the same, caches empty", "s", middle(EntryKind.DELETE, True), None, "", _COMMIT, 7),
        ]


def scale(bench: Bench) -> list[Result]:
    """How long do a plan and a commit of a table of 10k and of 100k files take?"""
    sizes = (SMALLER, (FILES, PARTITIONS))
    lines = [line for size in sizes for line in results(bench.folder / "scale", *size, bench.say)]
    return lines + iceberg_results(bench.folder / "scale", SMALLER[0], bench.say)


def main() -> None:
    """Without Spark and the rest of the benchmark."""
    files, partitions = (*(int(a) for a in sys.argv[1:]), *(FILES, PARTITIONS)[len(sys.argv) - 1 :])[:2]
    with tempfile.TemporaryDirectory() as home:
        lines = results(Path(home) / "scale", files, partitions, print)
        print_report([*lines, *iceberg_results(Path(home) / "scale", min(files, SMALLER[0]), print)], {}, 0)


if __name__ == "__main__":
    main()
