"""Peak memory of reading and of row-level statements, at full size: fails when a case exceeds its limit.

``python tests/memory/measure.py [--cases to_batches update …] [--folder DIR]``: two tables are written with default
options (Parquet, row groups of 128 MB of Arrow memory), then each case runs in a process of its own.

* ``files``: 10 data files of 256 MB each, of numbers and incompressible text;
* ``rows``: 5,000,000 rows of about 200 bytes; the statements hit every 10,000th row.

The figure is the process's peak resident set size (``VmHWM``) less its resident set size after importing bitlake.  The
cases of ``spark_`` run on Spark with every file read in Python workers; their figure is that of the largest worker,
less what it held after it had read a small table.  Linux only.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

LIMIT = 400 << 20
FILES, FILE_BYTES = 10, 256 << 20
ROWS, EVERY = 5_000_000, 10_000
_STEP = 100_000


def batch(first: int, rows: int, seed: int) -> pa.Table:
    """Rows of 200 bytes of Arrow memory, of which little can be compressed."""
    random = np.random.default_rng(seed)
    letters = random.integers(48, 112, rows * 144, dtype=np.uint8)
    offsets = np.arange(0, rows * 144 + 1, 144, dtype=np.int32)
    text = pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(letters))
    ids = np.arange(first, first + rows)
    return pa.table(
        {
            "id": ids,
            "k": (ids % EVERY).astype(np.int32),
            "x": random.random(rows),
            "y": random.random(rows),
            "code": pa.array([f"code-{i:05d}" for i in range(1000)]).take(pa.array(random.integers(0, 1000, rows))),
            "text": text,
        }
    )


def make(folder: Path) -> None:
    """Write both tables."""
    import bitlake

    lake = bitlake.connect(str(folder), progress=False)
    lake.create_database("d")
    schema = batch(0, 1, 0).schema
    files = lake.create_table("d.files", schema)
    rows = lake.create_table("d.rows", schema)
    lake.create_table("d.tiny", schema).append(batch(0, 1000, 0))
    marked = lake.create_table("d.marked", schema, options={"deletion-vectors.enabled": "true"})
    for i in range(FILES):
        # The text takes 3/4 of its bytes; the rows of one append fit into one file.
        files.append(pa.concat_tables(batch(i * 1_900_000 + j * _STEP, _STEP, i * 100 + j) for j in range(19)))
    for i in range(0, ROWS, 1_000_000):
        million = pa.concat_tables(batch(i + j * _STEP, _STEP, 10_000 + i + j) for j in range(10))
        rows.append(million)
        marked.append(million)


def memory(field: str) -> int:
    """Bytes of a field of this process's status: ``VmRSS`` now, ``VmHWM`` at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) << 10


def _rare(table: Any) -> str:
    """A condition that holds for every 10,000th row, other rows than before the table's last change."""
    return f"k = {table._core.state().snapshot_id * 7 % EVERY}"


def to_batches(lake: Any) -> object:
    return sum(b.num_rows for b in lake.table("d.files").scan().to_batches())


def stream(lake: Any) -> object:
    return sum(b.num_rows for b in pa.RecordBatchReader.from_stream(lake.table("d.files").scan()))


def first_batch(lake: Any) -> object:
    batches = lake.table("d.files").scan().to_batches()
    rows = next(batches).num_rows
    batches.close()
    return rows


def filtered(lake: Any) -> object:
    return sum(b.num_rows for b in lake.table("d.files").scan(where="x < 0.9").to_batches())


def count(lake: Any) -> object:
    return lake.table("d.files").scan(where="x < 0.9 AND y < 0.9").count()


def top_n(lake: Any) -> object:
    return lake.table("d.files").scan().top_n([("x", "desc")], 100).to_arrow().num_rows


def update(lake: Any) -> object:
    return lake.table("d.rows").update({"code": "other"}, _rare(lake.table("d.rows")))


def delete(lake: Any) -> object:
    return lake.table("d.rows").delete(_rare(lake.table("d.rows")))


def update_marked(lake: Any) -> object:
    return lake.table("d.marked").update({"code": "other"}, _rare(lake.table("d.marked")))


def delete_marked(lake: Any) -> object:
    return lake.table("d.marked").delete(_rare(lake.table("d.marked")))


def index(lake: Any) -> object:
    lake.table("d.rows").alter_options({"file-index.bloom-filter.columns": "id"})
    return lake.table("d.rows").indexes.rebuild()


def compact(lake: Any) -> object:
    return lake.table("d.marked").maintenance.compact(full=True)


def verify(lake: Any) -> object:
    return lake.table("d.rows").maintenance.verify()


# --- on Spark: rows are read in Python workers ----------------------------------------------------------------------


def workers() -> dict[int, tuple[int, int]]:
    """Resident bytes, now and at most, of each Python worker that this process's Spark has started."""
    processes: dict[int, tuple[int, str, dict[str, str]]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # the process has ended
            fields = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
            processes[int(folder.name)] = (int(fields["PPid"]), (folder / "cmdline").read_text(), fields)

    def is_ours(pid: int) -> bool:
        while pid in processes and pid != os.getpid():
            pid = processes[pid][0]
        return pid == os.getpid()

    daemons = {pid for pid, (_, command, _) in processes.items() if "pyspark.daemon" in command and is_ours(pid)}
    return {
        pid: (int(fields["VmRSS"].split()[0]) << 10, int(fields["VmHWM"].split()[0]) << 10)
        for pid, (parent, _, fields) in processes.items()
        if parent in daemons
    }


def spark_selective(lake: Any) -> object:
    """Pages of one row in 10,000, and the other columns of these rows."""
    return lake.sql(f"SELECT count(text), sum(x) FROM d.rows WHERE {_rare(lake.table('d.rows'))}").collect()


def spark_marked(lake: Any) -> object:
    return lake.sql("SELECT count(text), sum(x) FROM d.marked WHERE id % 1000 < 900").collect()


def spark_all(lake: Any) -> object:
    return lake.sql("SELECT count(text), sum(x) FROM d.files").collect()


def on_spark(name: str, folder: str) -> None:
    """One case on Spark; prints as :func:`run` does."""
    import bitlake

    lake = bitlake.connect(folder, progress=False)
    lake.sql("SET spark.paimon.read.spark-path = workers")
    # Both workers import what they need, and stay.
    lake.sql("SELECT count(text) FROM d.rows WHERE id < 0 OR k < 0").collect()
    lake.sql("SELECT count(text), sum(x) FROM d.tiny").collect()
    before = min(now for now, _ in workers().values())
    started = time.perf_counter()
    result = SPARK_CASES[name](lake)
    seconds = time.perf_counter() - started
    peak = max(most for _, most in workers().values())
    print(json.dumps([peak - before, seconds, str(result)[:40]]))


SPARK_CASES: dict[str, Callable[[Any], object]] = {f.__name__: f for f in (spark_selective, spark_marked, spark_all)}
CASES: dict[str, Callable[[Any], object]] = {
    f.__name__: f
    for f in (to_batches, stream, first_batch, filtered, count, top_n, update, delete, update_marked, delete_marked,
              index, compact, verify)
}  # fmt: skip
ALL = CASES | SPARK_CASES


def run(name: str, folder: str) -> None:
    """One case, in this process."""
    import bitlake

    lake = bitlake.connect(folder, progress=False)
    # Modules are imported when they are needed; a small read and a statement without effect need them.
    lake.table("d.tiny").scan(where="k = -1 AND x < 0").to_arrow()
    lake.table("d.tiny").delete("k = -1")
    before = memory("VmRSS")
    started = time.perf_counter()
    result = CASES[name](lake)
    seconds = time.perf_counter() - started
    print(json.dumps([memory("VmHWM") - before, seconds, str(result)[:40]]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="+", choices=ALL, default=list(ALL))
    parser.add_argument("--folder", help="where the tables are, or are made and kept")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.run:
        (on_spark if asked.run in SPARK_CASES else run)(asked.run, asked.folder)
        return 0
    folder = asked.folder or tempfile.mkdtemp(prefix="bitlake-memory-")
    failed = []
    try:
        if not (Path(folder) / "d.db").exists():
            make(Path(folder))
        for name in asked.cases:
            command = [sys.executable, __file__, "--run", name, "--folder", folder]
            done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
            if done.returncode:
                print(f"{name:16} failed", flush=True)
                failed.append(name)
                continue
            peak, seconds, result = json.loads(done.stdout.splitlines()[-1])
            print(f"{name:16} {peak / 2**20:8.0f} MB {seconds:8.1f} s   {result}", flush=True)
            if peak > LIMIT:
                failed.append(name)
    finally:
        if not asked.folder:
            shutil.rmtree(folder)
    if failed:
        print(f"over {LIMIT >> 20} MB, or failed: {', '.join(failed)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
