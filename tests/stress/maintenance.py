"""Maintenance under fire: whoever reads what is kept never fails, whoever writes never loses, and nothing is left over.

``python tests/stress/maintenance.py --seconds 120 --modes keyed``: so many seconds in each mode these processes work on
one table at once:

* a writer appends or upserts, compacts, and makes statistics;
* a reader opens the latest snapshot, older ones, tags, branches, and a snapshot that it holds as a consumer, reads all
  rows, and compares them with the batches they must be made of, at least those that the writer said it had written;
* a tagger makes, moves, renames and deletes tags and branches, also of snapshots about to expire;
* two expirers take snapshots, down to one, partitions, and tags; each is killed now and then and started again;
* an orphan remover takes files nobody names, older than a write ever takes; it is killed now and then as well.

In the end tags and branches go, everything expires, and the files that are left are those that the table names.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from builders import terms
from maintenance_model import COLUMNS, PER_DAY, added, batch, check, day_of, read, taken

import bitlake
from bitlake.errors import BitlakeError, CommitConflict, NotFound
from bitlake.runtime import LocalRunner
from bitlake.snapshot.consumers import clear_consumers, reset_consumer
from bitlake.snapshot.expiry import Retention
from bitlake.snapshot.orphan_files import find_orphans
from bitlake.snapshot.removal_markers import load_line
from bitlake.table.table import Table
from bitlake.write.analyze import ColumnStatistics, save_statistics

INDEXED = {"file-index.bitmap.columns": "n", "file-index.in-manifest-threshold": "0 b", "manifest.merge-min-count": "3"}
MODES = {
    "keyed": {"bucket": "2", "deletion-vectors.enabled": "true", "changelog-producer": "lookup"},
    "merge-on-read": {"bucket": "-1", "dynamic-bucket.target-row-num": "100", "changelog-producer": "input"},
    "append": {"bucket": "-1", "deletion-vectors.enabled": "true"},
}
ROLES = ("writer", "reader", "tagger", "expirer-0", "expirer-1", "orphans")
KILLED = ("expirer-0", "expirer-1", "orphans")
KEPT_DAYS = 4
SOON = 1 << 60
Did = Counter[str]


class Ledger:
    """What the processes tell each other: the last batch that is written, and before which day partitions expired."""

    def __init__(self, root: str) -> None:
        self._root = Path(root)

    def written(self) -> int:
        """The last batch the writer knows to be there."""
        return int(self._get("written", "-1"))

    def expired(self) -> str:
        """The first day that no expirer may have taken."""
        return self._get("expired", day_of(0))

    def until(self) -> float:
        """When to stop; waits for the start."""
        while not (said := self._get("until", "")):
            time.sleep(0.01)
        return float(said)

    def settle(self, role: str, kept: Callable[[], bool]) -> bool:
        """Whether something is still kept once a process has ended the step it is in."""
        before = self._steps(role)
        while still := kept():
            if self._steps(role) >= before + 2 or self._get(f"ended-{role}", ""):
                break
            time.sleep(0.01)
        return still and kept()

    def did(self, role: str, counts: Did) -> None:
        """Say what this process has done so far."""
        self.put(f"did-{role}-{os.getpid()}", json.dumps(counts))

    def all_did(self, role: str = "*") -> Did:
        """What the processes of a role, or all, have done."""
        counts: Did = Counter()
        for path in self._root.glob(f"did-{role}-*"):
            counts.update(json.loads(path.read_text()))
        return counts

    def _steps(self, role: str) -> int:
        return self.all_did(role).total()

    def put(self, name: str, value: str) -> None:
        """Say something; readers see it whole."""
        aside = self._root / f".{name}.{os.getpid()}"
        aside.write_text(value)
        aside.replace(self._root / name)

    def _get(self, name: str, default: str) -> str:
        path = self._root / name
        return path.read_text() if path.exists() else default


# --- the processes ----------------------------------------------------------------------------------------------------


def write(table: Table, ledger: Ledger, rng: random.Random, keyed: bool) -> Iterator[str]:
    """One batch after another; only another writer's change is a reason to try again."""
    number = ledger.written() + 1
    while True:
        rows, kinds = batch(number)
        table.upsert(rows, kinds) if keyed else table.append(added(number))
        if not keyed and number % PER_DAY:
            table.delete(taken(number))
        ledger.put("written", str(number))
        number += 1
        yield "batches"
        if rng.random() < 0.3:
            with contextlib.suppress(CommitConflict):  # an expirer took a partition
                yield "compactions" if table.maintenance.compact(full=rng.random() < 0.4) else "nothing to compact"
        if rng.random() < 0.1:
            save_statistics(
                table._core.state(), number, {"n": ColumnStatistics(distinct_count=number)}, table._core.commit_user()
            )
            yield "statistics"


def look(table: Table, ledger: Ledger, rng: random.Random, keyed: bool) -> Iterator[str]:
    """Read a moment, and fail unless it is right or was given up meanwhile."""
    lake = bitlake.connect(str(Path(table.path).parent.parent))
    table.maintenance.expire_snapshots(dry_run=True)
    while True:
        kind = rng.choice(["latest", "latest", "snapshot", "tag", "tag", "branch", "consumer"])
        known = ledger.written()
        line = load_line(table._core.state().table_files)
        scan, kept = None, _always
        if kind == "latest":
            scan = table.scan()
            number = scan._core.state.snapshot_id
            kept = _held(table, number)
        elif kind == "snapshot" and line.kept:
            number = rng.choice(line.kept)
            kept = _held(table, number)
            with contextlib.suppress(NotFound):
                scan = table.scan(snapshot=number)
        elif kind == "tag" and (names := table.history.tags()):
            name = rng.choice(sorted(names))
            kept = _still_tagged(table, name)
            with contextlib.suppress(NotFound):
                scan = table.scan(tag=name)
        elif kind == "branch" and (branches := table.history.branches()):
            name = rng.choice(branches)
            kept = _still_branch(table, name)
            with contextlib.suppress(NotFound):
                scan = lake.table(f"t$branch_{name}").scan()
        elif kind == "consumer" and line.kept:
            try:
                reset_consumer(table._core.state(), "reader", number := rng.choice(line.kept))
            except NotFound:
                yield "came too late"
                continue
            kept = _always
            scan = table.scan(snapshot=number)
        if scan is None:
            yield "nothing to read"
            continue
        try:
            rows = scan.with_level_0().to_arrow()
        except BitlakeError as e:
            # The tagger takes back a tag whose snapshot expired while it was made; until then it can be seen.
            if ledger.settle("tagger", kept) if kind in ("tag", "branch") else kept():
                raise AssertionError(f"{kind} at snapshot {scan._core.state.snapshot_id} cannot be read") from e
            yield f"{kind} given up meanwhile"
            continue
        seen = read(rows)
        check(seen, keyed, ledger.expired())
        assert kind != "latest" or seen.last >= known, f"batch {known} was written, and the last read is {seen.last}"
        if kind == "consumer":
            reset_consumer(table._core.state(), "reader", None)
        yield kind


def _held(table: Table, number: int | None) -> Callable[[], bool]:
    return lambda: number in load_line(table._core.state().table_files).kept


def _still_tagged(table: Table, name: str) -> Callable[[], bool]:
    before = table.history.tags().get(name)
    return lambda: table.history.tags().get(name) == before


def _still_branch(table: Table, name: str) -> Callable[[], bool]:
    return lambda: name in table.history.branches()


def _always() -> bool:
    return True


def tag(table: Table, ledger: Ledger, rng: random.Random, keyed: bool) -> Iterator[str]:
    """Make, move, rename and delete tags and branches; only what goes in the meantime may be refused."""
    made = 0
    while True:
        made += 1
        names, branches = sorted(table.history.tags()), table.history.branches()
        kept = load_line(table._core.state().table_files).kept
        name = f"{os.getpid()}-{made}"
        choice = rng.random()
        try:
            if choice < 0.4 and kept and len(names) < 12:
                number = rng.choice([None, kept[0], rng.choice(kept)])
                table.history.create_tag(f"t{name}", number, retain=rng.choice([None, timedelta(milliseconds=500)]))
                yield "tags"
            elif choice < 0.5 and names and kept:
                table.history.replace_tag(rng.choice(names), rng.choice(kept))
                yield "moved tags"
            elif choice < 0.6 and names:
                table.history.rename_tag(rng.choice(names), f"r{name}")
                yield "renamed tags"
            elif choice < 0.75 and names:
                table.history.delete_tag(rng.choice(names), if_exists=True)
                yield "deleted tags"
            elif choice < 0.87 and names and len(branches) < 3:
                table.history.create_branch(f"b{name}", rng.choice(names))
                yield "branches"
            elif choice < 0.9 and branches:
                table.history.rename_branch(rng.choice(branches), f"c{name}")
                yield "renamed branches"
            elif branches:
                table.history.delete_branch(rng.choice(branches))
                yield "deleted branches"
        except NotFound as e:
            if not re.search(r"(expired|deleted) while|no snapshot \d|no tag|was deleted or moved", str(e)):
                raise
            yield "came too late"


def expire(table: Table, ledger: Ledger, rng: random.Random, keyed: bool) -> Iterator[str]:
    """Take snapshots by count, partitions by their day, and tags by their time."""
    while True:
        most = rng.choice([1, 2, 5, 20])
        retention = Retention(retain_max=most, retain_min=1, older_than_ms=rng.choice([0, SOON]))
        if rng.random() < 0.2:
            table.maintenance.expire_snapshots(**terms(retention), dry_run=True)
        for _ in table.maintenance.expire_snapshots(**terms(retention)).snapshots:
            yield "expired snapshots"
        if rng.random() < 0.2:
            limit = max(ledger.written() // PER_DAY - KEPT_DAYS, 0)
            day = day_of(limit * PER_DAY)
            if day > ledger.expired():
                ledger.put("expired", day)
                age = ((date.today() - date.fromisoformat(day)).days + 1) * 86_400_000
                for _ in table.maintenance.expire_partitions(timedelta(milliseconds=age)):
                    yield "expired partitions"
        for _ in table.maintenance.expire_tags():
            yield "expired tags"
        yield "expiries"
        time.sleep(rng.uniform(0, 0.3))


def remove(table: Table, ledger: Ledger, rng: random.Random, keyed: bool, age: float = 0) -> Iterator[str]:
    """Take orphans that are old enough, of which some are put there."""
    while True:
        litter = Path(table.path, "dt=2020-01-01", "bucket-0", f"data-{rng.randrange(1 << 60):x}-0.parquet")
        litter.parent.mkdir(parents=True, exist_ok=True)
        litter.write_bytes(b"nobody names this")
        os.utime(litter, (0, 0))
        for _ in table.maintenance.remove_orphan_files(int((time.time() - age) * 1000)):
            yield "orphans"
        assert not litter.exists(), "an orphan was not found"
        yield "orphan removals"
        time.sleep(rng.uniform(0, 0.5))


# --- the run ----------------------------------------------------------------------------------------------------------


def play(role: str, root: str, keyed: bool, seed: int, age: float) -> None:
    """Be one of the processes; the ledger says what was done."""
    table = bitlake.connect(f"{root}/lake").table("t")
    ledger, rng = Ledger(root), random.Random(seed)
    print("ready", flush=True)
    until = ledger.until()
    work = {"writer": write, "reader": look, "tagger": tag, "expirer": expire}.get(role.split("-")[0])
    steps = remove(table, ledger, rng, keyed, age) if work is None else work(table, ledger, rng, keyed)
    did: Did = Counter()
    for step in steps:
        did[step] += 1
        ledger.did(role, did)
        if time.time() > until:
            break
    ledger.put(f"ended-{role}", "yes")


def run(mode: str, seconds: float, age: float, seed: int) -> str:
    """One table of a mode; returns what was done, or raises :class:`AssertionError`."""
    rng = random.Random(seed)
    keyed = mode != "append"
    with tempfile.TemporaryDirectory() as root:
        key = {"primary-key": "dt,id"} if keyed else {}
        table = bitlake.connect(f"{root}/lake").create_table(
            "t", COLUMNS, partition_by=["dt"], options={**INDEXED, **MODES[mode], **key}
        )

        def start(role: str) -> subprocess.Popen[str]:
            command = [sys.executable, __file__, "--root", root, "--modes", mode, "--role", role, "--age", str(age)]
            command += ["--seed", str(rng.randrange(1 << 30))]
            return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

        running = {role: start(role) for role in ROLES}
        for role, process in running.items():
            assert process.stdout is not None and process.stdout.readline() == "ready\n", f"{mode}: no {role}"
        until = time.time() + seconds
        Ledger(root).put("until", str(until))
        kills = 0
        while time.time() < until and not any(p.poll() for p in running.values()):
            time.sleep(rng.uniform(0.2, min(3.0, seconds / 4)))
            role = rng.choice(KILLED)
            if time.time() < until - 1 and running[role].poll() is None:
                running[role].send_signal(signal.SIGKILL)
                running[role].communicate()
                running[role] = start(role)
                kills += 1
        failed = [role for role, process in running.items() if process.poll()]
        for process in running.values():
            if failed:
                process.kill()
        for role, process in running.items():
            _, errors = process.communicate(timeout=seconds + 300)
            assert process.returncode == 0 or (failed and role not in failed), f"{mode}: {role} failed:\n{errors}"
        finish(table, keyed, Ledger(root))
        counts = ", ".join(f"{n} {what}" for what, n in sorted(Ledger(root).all_did().items()))
        return f"{mode}: {counts}, {kills} kills: no reader of what was kept failed"


def finish(table: Table, keyed: bool, ledger: Ledger) -> None:
    """Give everything up but the last snapshot: the files left are those it names, and it is right."""
    for name in table.history.branches():
        table.history.delete_branch(name)
    for name in table.history.tags():
        table.history.delete_tag(name)
    clear_consumers(table._core.state())
    seen = read(table.scan().with_level_0().to_arrow())
    check(seen, keyed, ledger.expired())
    assert seen.last == ledger.written()
    table.maintenance.expire_snapshots(retain_max=1, retain_min=1, older_than=SOON, max_deletes=1 << 30)
    table.maintenance.remove_orphan_files(SOON)
    assert read(table.scan().with_level_0().to_arrow()) == seen
    state = table._core.state()
    assert state.snapshot is not None
    named = {n for e in state.entries() for n in (e.file.file_name, *e.file.extra_files)}
    there = {p.name for p in Path(table.path).rglob("*") if p.is_file()}
    data = {n for n in there if n.startswith(("data-", "changelog-"))}
    told = {f"snapshot-{state.snapshot.id}", "EARLIEST", "LATEST"}
    if keyed and state.schema.options["changelog-producer"] != "none":
        data = {n for n in data if not n.startswith("changelog-")}
    assert data == named, f"{len(data - named)} data files too many, {len(named - data)} too few"
    snapshots = {p.name for p in Path(table.path, "snapshot").iterdir()}
    assert snapshots == told, f"{sorted(snapshots - told)} is left beside the snapshots"
    assert not find_orphans(state, SOON, LocalRunner())


def main() -> None:
    """Run the modes asked for, or be one of the processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--age", type=float, default=20, help="seconds that a write takes at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--root")
    parser.add_argument("--role", choices=ROLES)
    given = parser.parse_args()
    if given.role is not None:
        play(given.role, given.root, given.modes[0] != "append", given.seed, given.age)
        return
    for mode in given.modes:
        print(run(mode, given.seconds, given.age, given.seed), flush=True)


if __name__ == "__main__":
    main()
