"""Two processes that upsert the same keys and one that compacts, for a while; then nothing is lost.

``python tests/stress/lsm.py --seconds 120 --modes vectors``: so many seconds in each mode.  The APPEND snapshots say in
which order the writers' batches came; a dictionary that takes them in that order is what the table must hold, before
and after a full compaction, and in snapshots on the way.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import pyarrow as pa

import bitlake
from bitlake.errors import CommitConflict
from bitlake.metadata.snapshot import Snapshot
from bitlake.snapshot.table_files import TableFiles
from bitlake.snapshot.versions import load_snapshot, snapshot_ids
from bitlake.table.table import Table

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("writer", pa.int32()), ("n", pa.int64())])
MODES = {
    "vectors": {"bucket": "2", "deletion-vectors.enabled": "true"},
    "merge-on-read": {"bucket": "2", "num-sorted-run.compaction-trigger": "3"},
    "dynamic-buckets": {"bucket": "-1", "dynamic-bucket.target-row-num": "700", "deletion-vectors.enabled": "true"},
}
ROLES = ("writer-0", "writer-1", "compactor")
KEYS = 3000
CHECKED = 20
"""Snapshots on the way that are read at the end."""
Model = dict[int, tuple[int, int]]


def batch(writer: int, number: int) -> tuple[pa.Table, list[str]]:
    """A writer's batch of a number, always the same: rows, one of each of some keys, and their kinds."""
    rng = random.Random(writer * 1_000_003 + number)
    ids = rng.sample(range(KEYS), rng.choice([1, 20, 400]))
    kinds = [rng.choice(["+I", "+I", "+I", "-D"]) for _ in ids]
    return pa.table([ids, [writer] * len(ids), [number] * len(ids)], schema=COLUMNS), kinds


def write(root: str, writer: int, seconds: float) -> None:
    """Upsert one batch after another; one that surely was not written is tried again."""
    table = bitlake.connect(root).table("t")
    number, user = 0, ""
    until = _start(seconds)
    while number == 0 or time.time() < until:
        try:
            snapshot = table.upsert(*batch(writer, number))
        except CommitConflict as e:
            print(f"writer {writer}: {e}", file=sys.stderr)
            continue
        assert snapshot is not None
        number, user = number + 1, snapshot.commit_user
    print(number, user)


def compact(root: str, seconds: float) -> None:
    """Compact, every other time fully; counts the times that there was something to do."""
    table = bitlake.connect(root).table("t")
    number = done = 0
    until = _start(seconds)
    while number == 0 or time.time() < until:
        done += table.maintenance.compact(full=number % 2 == 1) is not None
        number += 1
    print(done, "-")


def _start(seconds: float) -> float:
    """Wait for the other processes; returns when to stop."""
    print("ready", flush=True)
    sys.stdin.readline()
    return time.time() + seconds


def run(mode: str, seconds: float) -> str:
    """One table of a mode; returns what was done, or raises :class:`AssertionError`."""
    with tempfile.TemporaryDirectory() as root:
        options = {"primary-key": "id", "snapshot.num-retained.min": "100000", **MODES[mode]}
        table = bitlake.connect(root).create_table("t", COLUMNS, options=options)
        command = [sys.executable, __file__, "--root", root, "--seconds", str(seconds), "--role"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        running = [subprocess.Popen([*command, role], **pipes) for role in ROLES]
        for process in running:
            assert process.stdout is not None and process.stdout.readline() == "ready\n", f"{mode}: no start"
        for process in running:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        said = [process.communicate(timeout=2 * seconds + 300)[0].split() for process in running]
        assert all(process.returncode == 0 for process in running), f"{mode}: a process failed"
        counts = [int(number) for number, _ in said]
        users = {said[w][1]: w for w in range(2)}
        check(table, users, counts[:2])
        last = snapshot_ids(table._core.state().table_files)[-1]
        return f"{mode}: {counts[0]} + {counts[1]} upserts, {counts[2]} compactions, {last} snapshots: nothing lost"


def check(table: Table, users: dict[str, int], counts: list[int]) -> None:
    """Replay the batches in the order of their snapshots, and compare."""
    model: Model = {}
    done = [0, 0]
    snapshots = list(_snapshots(table))
    looked = {s.id for s in random.Random(len(snapshots)).sample(snapshots, min(CHECKED, len(snapshots)))}
    for snapshot in snapshots:
        if snapshot.commit_kind == "APPEND":
            writer = users[snapshot.commit_user]
            _apply(model, *batch(writer, done[writer]))
            done[writer] += 1
        if snapshot.id in looked:
            scan = table.scan(snapshot=snapshot.id).with_level_0()
            _same(_read(scan.to_arrow()), model, f"snapshot {snapshot.id}")
    assert done == counts, f"{counts} batches were written, and {done} are there"
    _same(_read(table.scan().with_level_0().to_arrow()), model, "the table, level 0 included")
    table.maintenance.compact(full=True)
    _same(_read(table.scan().to_arrow()), model, "the table after a full compaction")


def _snapshots(table: Table) -> Iterator[Snapshot]:
    paths = table._core.state().paths
    for number in snapshot_ids(TableFiles(table._core.store, paths)):
        yield load_snapshot(TableFiles(table._core.store, paths), number)


def _apply(model: Model, rows: pa.Table, kinds: list[str]) -> None:
    for (key, writer, number), kind in zip(zip(*rows.to_pydict().values(), strict=True), kinds, strict=True):
        if kind == "-D":
            model.pop(key, None)
        else:
            model[key] = (writer, number)


def _read(rows: pa.Table) -> Model:
    ids, writers, numbers = rows.to_pydict().values()
    found = {k: (w, n) for k, w, n in zip(ids, writers, numbers, strict=True)}
    assert len(found) == rows.num_rows, "a key is there twice"
    return found


def _same(found: Model, wanted: Model, what: str) -> None:
    wrong = [k for k in {**found, **wanted} if found.get(k) != wanted.get(k)]
    assert not wrong, (
        f"{what}: {len(wrong)} keys differ, {wrong[0]} is {found.get(wrong[0])}, not {wanted.get(wrong[0])}"
    )


def main() -> None:
    """Run the modes asked for, or be one of the processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--root")
    parser.add_argument("--role", choices=ROLES)
    given = parser.parse_args()
    if given.role is None:
        for mode in given.modes:
            print(run(mode, given.seconds), flush=True)
    elif given.role == "compactor":
        compact(given.root, given.seconds)
    else:
        write(given.root, ROLES.index(given.role), given.seconds)


if __name__ == "__main__":
    main()
