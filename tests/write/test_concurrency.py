"""Several processes write one table at once: nothing is lost, and everybody finishes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from builders import events
from caches import forget
from long import long

import bitlake
from bitlake.snapshot import manifests, versions
from bitlake.snapshot.partitions import PartitionReader
from bitlake.snapshot.table_files import TableFiles

APPENDS, BATCH = 50, 20

_HEAD = """
import sys, time
from pathlib import Path
import pyarrow as pa
import bitlake, test_concurrency as t
from bitlake.errors import CommitConflict
root, who, others = sys.argv[1], sys.argv[2], int(sys.argv[3])
table = bitlake.connect(root).table("t")
Path(root, f"{who}.ready").touch()
while len(list(Path(root).glob("*.ready"))) < others:
    time.sleep(0.001)
"""
_APPENDER = """
for i in range(t.APPENDS):
    table.append(t.batch(who, i))
Path(root, f"{who}.done").touch()
"""
_REWRITER = """
done = 0
while not list(Path(root).glob("appender*.done")):
    try:
        done += sum(r.new is not None for r in table.indexes.rebuild())
    except CommitConflict:
        pass
for _ in range(20):
    try:
        table.indexes.rebuild()
        break
    except CommitConflict:
        pass
"""
_OVERWRITER = """
for i in range(20):
    table.overwrite(t.replacement(i), partition={"p": "b"})
Path(root, f"{who}.done").touch()
"""


def batch(who: str, number: int) -> object:
    """The rows of one append: half of them in each of two partitions, ids that no other append has."""
    rows = events(BATCH)
    ids = [f"{who}-{number}-{i}" for i in range(BATCH)]
    return rows.set_column(0, "id", [ids]).append_column("p", [["a", "b"] * (BATCH // 2)])


def replacement(number: int) -> object:
    rows = events(3)
    return rows.set_column(0, "id", [[f"over-{number}-{i}" for i in range(3)]]).append_column("p", [["b"] * 3])


def start(root: Path, who: str, text: str, others: int) -> subprocess.Popen[bytes]:
    here = Path(__file__).parent
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here), str(here.parent), *sys.path])}
    return subprocess.Popen([sys.executable, "-c", _HEAD + text, str(root), who, str(others)], env=env)


def finish(*writers: subprocess.Popen[bytes]) -> None:
    try:
        assert [w.wait(240) for w in writers] == [0] * len(writers)
    finally:
        for w in writers:
            w.kill()


def check(table: bitlake.Table) -> None:
    """Every snapshot's files and indexes are there, and its totals add up."""
    forget()
    state = table._core.state()
    store, paths = table._core.store, state.paths
    partitions = PartitionReader(state.schema, paths)
    ids = versions.snapshot_ids(TableFiles(store, paths))
    assert ids == list(range(1, len(ids) + 1))
    for number in ids:
        snapshot = versions.load_snapshot(TableFiles(store, paths), number)
        entries = manifests.live_files(TableFiles(store, paths), snapshot)
        assert snapshot.total_record_count == sum(e.file.row_count for e in entries)
        for e in entries:
            path = partitions.data_path(e)
            assert all(store.exists(f"{path.rsplit('/', 1)[0]}/{n}") for n in e.file.extra_files)


PLAIN: dict[str, str] = {}
FULL = {
    "bucket": "2",
    "bucket-key": "id",
    "file-index.bitmap.columns": "status",
    "file-index.bloom-filter.columns": "id",
    "file-index.in-manifest-threshold": "1 b",
}


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("full", [True, long(False)])
def test_two_processes_append_fifty_times_each(tmp_path: Path, full: bool) -> None:
    schema = batch("x", 0).schema  # type: ignore[attr-defined]
    partition_by = ["p"] if full else []
    table = bitlake.connect(str(tmp_path)).create_table(
        "t", schema, partition_by=partition_by, options=FULL if full else PLAIN
    )
    finish(*(start(tmp_path, f"appender{w}", _APPENDER, 2) for w in range(2)))
    found = Counter(table.scan(columns=["id"]).to_arrow().column("id").to_pylist())
    wanted = Counter(f"appender{w}-{n}-{i}" for w in range(2) for n in range(APPENDS) for i in range(BATCH))
    assert found == wanted
    assert versions.latest_snapshot_id(table._core.state().table_files) == 2 * APPENDS
    check(table)
    for key in ("appender0-49-7", "appender1-0-0"):
        scan = table.scan(columns=["id"], where=f"id = '{key}'")
        assert scan.to_arrow().column("id").to_pylist() == [key]
        assert not scan.plan().problems
        if full:
            assert len(scan.plan().files) == 1


@pytest.mark.exhaustive
@pytest.mark.slow
def test_an_appender_a_rewriter_and_an_overwriter(tmp_path: Path) -> None:
    schema = batch("x", 0).schema  # type: ignore[attr-defined]
    options = {k: v for k, v in FULL.items() if not k.startswith("bucket")}
    lake = bitlake.connect(str(tmp_path))
    table = lake.create_table("t", schema, partition_by=["p"])
    table.append(batch("first", 0))
    table.alter_options(options)
    finish(
        start(tmp_path, "appender0", _APPENDER, 3),
        start(tmp_path, "rewriter", _REWRITER, 3),
        start(tmp_path, "overwriter", _OVERWRITER, 3),
    )
    rows = table.scan(columns=["p", "id"]).to_arrow().to_pylist()
    kept = Counter(r["id"] for r in rows if r["p"] == "a")
    appended = {f"appender0-{n}-{i}" for n in range(APPENDS) for i in range(BATCH)}
    first = {f"first-0-{i}" for i in range(BATCH)}
    assert kept == Counter(i for i in first | appended if int(i.rsplit("-", 1)[1]) % 2 == 0)
    replaced = Counter(r["id"] for r in rows if r["p"] == "b")
    assert max(replaced.values()) == 1
    assert {i for i in replaced if i.startswith("over-")} == {f"over-19-{i}" for i in range(3)}
    # Appends are whole: what the last overwrite left of them comes after it.
    after = Counter(i.rsplit("-", 1)[0] for i in replaced if i.startswith("appender"))
    assert set(after.values()) <= {BATCH // 2}
    check(table)
    plan = table.scan(where="status = 'S1' AND id = 'appender0-49-0'").plan()
    assert not plan.problems
    assert table.scan(where="id = 'first-0-0'").count() == 1


@pytest.mark.exhaustive
def test_threads_of_one_process_share_a_table(tmp_path: Path) -> None:
    table = bitlake.connect(str(tmp_path)).create_table("t", events(1).schema, options={"bucket": "2"})

    def work(_: int) -> None:
        for _ in range(8):
            table.append(events(10))
            assert table.scan(where="status = 'S1'").count() > 0

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert table.scan().count() == 4 * 8 * 10
    check(table)
