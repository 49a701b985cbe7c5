"""How much faster do merge-on-read and a full compaction run on two cores than on one?

python -m bench.cores FOLDER CORES      reads and compactions of the tables in FOLDER on this many cores, as JSON
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from bench.measure import Result, timed

if TYPE_CHECKING:
    from bench.cases import Bench

ROWS, UPSERTED, UPSERTS = 5_000_000, 300_000, 3
BUCKETS = (1, 2)
_TIMES = 5
_TARGET = 1 / 1.6


def cores(bench: Bench) -> list[Result]:
    """How much faster do merge-on-read and full compaction in process run on two cores than on one?"""
    if len(os.sched_getaffinity(0)) < 2:
        bench.say("cores: this machine has only one")
        return []
    folder = bench.folder / "cores"
    shutil.rmtree(folder, ignore_errors=True)
    bench.say(f"cores: {ROWS:,} rows, upserted {UPSERTS} times by {UPSERTED:,}, in {BUCKETS} buckets")
    _make(folder)
    found: dict[int, list[dict[str, float]]] = {1: [], 2: []}
    for turn in range(bench.rounds):
        for count in (1, 2) if turn % 2 else (2, 1):
            command = [sys.executable, "-m", "bench.cores", str(folder), str(count)]
            output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            found[count].append(json.loads(output.splitlines()[-1]))
    results = []
    for key in found[1][0]:
        one, two = (statistics.median(run[key] for run in found[count]) for count in (1, 2))
        results.append(
            Result(f"{key}, two cores", "s", two, one, "one core", _TARGET, bench.rounds, f"{one / two:.2f} times")
        )
    shutil.rmtree(folder)
    return results


def _make(folder: Path) -> None:
    import bitlake

    lake = bitlake.connect(str(folder))
    rng = np.random.default_rng(1)
    for buckets in BUCKETS:
        options = {"bucket": str(buckets), "write-only": "true"}
        table = lake.create_table(f"b{buckets}", _rows(rng, np.arange(ROWS)), primary_key=["id"], options=options)
        for _ in range(UPSERTS):
            table.upsert(_rows(rng, np.sort(rng.choice(ROWS, UPSERTED, replace=False))))


def _rows(rng: np.random.Generator, keys: np.ndarray) -> pa.Table:
    count = len(keys)
    return pa.table(
        {
            "id": pa.array(keys, pa.int64()),
            "amount": pa.array(rng.integers(0, 10**6, count)),
            "price": pa.array(rng.random(count)),
            "status": pa.array(np.array(["NEW", "PAID", "SENT"])[rng.integers(0, 3, count)]),
            "note": pa.array(np.char.add("n", rng.integers(0, 10**5, count).astype(str))),
        }
    )


def main(folder: str, count: str) -> None:
    """Print the median seconds of warm reads, and of compactions of copies."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(count)])
    pa.set_cpu_count(int(count))
    import bitlake
    from bitlake.formatting import counted

    out = {}
    for buckets in BUCKETS:
        table = bitlake.connect(folder).table(f"b{buckets}")
        reads = [timed(lambda t=table: sum(b.num_rows for b in t.scan().to_batches())) for _ in range(_TIMES)]
        out[f"merge-on-read of {ROWS:,} rows, {counted(buckets, 'bucket')}"] = statistics.median(reads[1:])
    for buckets in BUCKETS:
        times = []
        for turn in range(_TIMES):
            copy = f"{folder}-{count}-{turn}"
            shutil.copytree(folder, copy)
            table = bitlake.connect(copy).table(f"b{buckets}")
            times.append(timed(lambda t=table: t.maintenance.compact(full=True)))
            shutil.rmtree(copy)
        out[f"full compaction of {ROWS:,} rows, {counted(buckets, 'bucket')}"] = statistics.median(times[1:])
    print(json.dumps(out))


if __name__ == "__main__":
    main(*sys.argv[1:])
