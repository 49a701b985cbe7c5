"""A streaming upsert job that is killed again and again ends with exactly the rows of its input.

``python tests/stress/stream.py --kills 10``: for each way to write (the lake's own, and the data source's sink), a
process with Spark streams batches of upserts and deletes from one table into another, a file for each micro-batch.
When it has made some number of snapshots, and some moment later, it is killed with all that it started (SIGKILL), and
started anew on its checkpoint; when it was killed so often, it may finish.  A dictionary says what the rows must be,
and every batch must be in the table's history once.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa

import bitlake
from bitlake.metadata.snapshot import Snapshot
from bitlake.snapshot.table_files import TableFiles
from bitlake.snapshot.versions import latest_snapshot_id
from bitlake.table.table import Table

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64()), ("kind", pa.string())])
WAYS = {
    "lake": {"bucket": "-1", "deletion-vectors.enabled": "true"},
    "sink": {"bucket": "2"},
}
KEYS = 500
MOST_SECONDS = 300
"""A process that does nothing for so long is stuck."""
Model = dict[int, int]


def batch(number: int) -> pa.Table:
    """The input's batch of a number: of each of some keys a row, with its kind."""
    rng = random.Random(number)
    ids = rng.sample(range(KEYS), 100)
    kinds = [rng.choice(["+I", "+U", "+U", "-D"]) for _ in ids]
    return pa.table([ids, [number] * len(ids), kinds], schema=COLUMNS)


def stream(root: str, way: str) -> None:
    """The process that is killed: everything that is in the input goes into the output."""
    from bitlake.spark.session import get_or_create

    spark = get_or_create(**{"spark.sql.shuffle.partitions": "2", "spark.master": "local[2]"})
    lake = bitlake.connect(root, spark=spark)
    rows = lake.read_stream("input", start="earliest", maxFilesPerTrigger="1")
    checkpoint = f"{root}/checkpoint"
    if way == "lake":
        query = lake.write_stream(rows, "output", checkpoint, kinds="kind", trigger={"availableNow": True})
    else:
        options = {"warehouse": root, "table": "output", "checkpointLocation": checkpoint, "row-kind-column": "kind"}
        query = rows.writeStream.format("bitlake").options(**options).trigger(availableNow=True).start()
    query.awaitTermination()
    failed = query.exception()
    spark.stop()
    if failed is not None:
        sys.exit(str(failed))


def run(way: str, kills: int, seed: int) -> str:
    """One table written one way; returns what was done, or raises :class:`AssertionError`."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as root:
        lake = bitlake.connect(root)
        source = lake.create_table("input", COLUMNS)
        options = {"snapshot.num-retained.min": "100000", **WAYS[way]}
        output = lake.create_table("output", COLUMNS.remove(2), primary_key=["id"], options=options)
        batches = 3 * kills + 3
        for number in range(batches):
            source.append(batch(number))
        killed = sum(_killed(root, way, output, rng) for _ in range(kills))
        ended = subprocess.run([*_command(root, way)], check=False, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr[-3000:]
        check(output, batches)
        return f"{way}: {batches} batches, killed {killed} times: every row once"


def _command(root: str, way: str) -> list[str]:
    return [sys.executable, __file__, "--root", root, "--way", way]


def _killed(root: str, way: str, output: Table, rng: random.Random) -> bool:
    """Start the process, and kill it after up to three snapshots and a moment; False if it had finished before."""
    paths = output._core.state().paths
    wanted = (latest_snapshot_id(TableFiles(output._core.store, paths)) or 0) + rng.randint(0, 3)
    process = subprocess.Popen(
        _command(root, way), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    until = time.time() + MOST_SECONDS
    checkpoint = Path(root, "checkpoint", "offsets")
    while process.poll() is None and (
        (latest_snapshot_id(TableFiles(output._core.store, paths)) or 0) < wanted or not checkpoint.exists()
    ):
        assert time.time() < until, f"{way}: the stream is stuck"
        time.sleep(0.02)
    time.sleep(rng.uniform(0, 1.5))
    if process.poll() is not None:
        return False
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return True


def check(output: Table, batches: int) -> None:
    """Compare rows and history with the input."""
    model: Model = {}
    for number in range(batches):
        for key, n, kind in zip(*batch(number).to_pydict().values(), strict=True):
            if kind == "-D":
                model.pop(key, None)
            else:
                model[key] = n
    rows = output.scan().with_level_0().to_arrow()
    found = dict(zip(rows.column("id").to_pylist(), rows.column("n").to_pylist(), strict=True))
    assert len(found) == rows.num_rows, "a key is there twice"
    wrong = [k for k in {**found, **model} if found.get(k) != model.get(k)]
    assert not wrong, f"{len(wrong)} keys differ: {wrong[0]} is {found.get(wrong[0])}, not {model.get(wrong[0])}"
    history: list[Snapshot] = [s for s in output.history.snapshots() if s.commit_kind == "APPEND"]
    assert [s.commit_identifier for s in history] == list(range(batches)), "a batch is missing, or there twice"
    assert len({s.commit_user for s in history}) == 1


def main() -> None:
    """Write each way that is asked for, or be the process that is killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--root")
    parser.add_argument("--way", choices=WAYS)
    given = parser.parse_args()
    if given.root is not None:
        stream(given.root, given.way)
        return
    for way in given.ways:
        print(run(way, given.kills, given.seed), flush=True)


if __name__ == "__main__":
    main()
