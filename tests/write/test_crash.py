"""Writers that die or whose storage fails: readers see the old table or the new one, and the next writer goes on."""

from __future__ import annotations

import errno
import io
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from builders import events
from caches import forget
from faults import distinct, each_call_failing, strays
from long import long

import bitlake
from bitlake.errors import StorageUnavailable
from bitlake.file_store_table import FileStoreTable
from bitlake.io.local import LocalStore

OPTIONS = {
    "file-index.bitmap.columns": "status",
    "file-index.in-manifest-threshold": "1 b",
    "commit.min-retry-wait": "1 ms",
    "commit.max-retry-wait": "1 ms",
    "commit.max-retries": "0",
}
_EVENTS = events(300).filter(pc.is_in(events(300).column("region"), pa.array(["US", "EU"])))
OLD, NEW = _EVENTS, _EVENTS.slice(0, 100)


def prepared(root: Path) -> bitlake.Table:
    """A table of two partitions and one commit, whose options ask for an index it lacks."""
    table = bitlake.connect(str(root)).create_table("t", OLD.schema, partition_by=["region"], options=OPTIONS)
    table.append(OLD)
    table.alter_options({"file-index.bloom-filter.columns": "id"})
    return table


def append(table: bitlake.Table) -> None:
    table.append(NEW)


def overwrite(table: bitlake.Table) -> None:
    table.overwrite(NEW)


def overwrite_partition(table: bitlake.Table) -> None:
    table.overwrite(NEW.filter(pc.equal(NEW.column("region"), "EU")), partition={"region": "EU"})


def truncate(table: bitlake.Table) -> None:
    table.truncate({"region": "EU"})


def rewrite(table: bitlake.Table) -> None:
    table.indexes.rebuild()


WORK: dict[str, Callable[[bitlake.Table], None]] = {
    f.__name__: f for f in (append, overwrite, overwrite_partition, truncate, rewrite)
}


def rows(table: bitlake.Table) -> list[tuple[Any, ...]]:
    forget()
    return sorted((tuple(r.values()) for r in table.scan().to_arrow().to_pylist()), key=repr)


def contents(folder: Path) -> tuple[list[tuple[Any, ...]], list[str]]:
    """The rows, and for each file the indexes that answer a condition: what a reader can tell apart."""
    table = bitlake.connect(str(folder)).table("t")
    found = rows(table)
    plan = table.scan(where="status = 'S3' AND id = 1").plan()
    assert not plan.problems
    return found, sorted({p for f in plan.files for p in f.pruned_by})


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root: Path = tmp_path_factory.mktemp("template")
    prepared(root)
    return root


# --- storage that fails -----------------------------------------------------------------------------------------------


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("dead", "after", "step"),
    [(True, False, 2), *(long(*how, 1) for how in itertools.product([True, False], repeat=2))],
)
@pytest.mark.parametrize("work", WORK)
def test_each_store_call_failing_in_turn(
    template: Path, tmp_path: Path, work: str, dead: bool, after: bool, step: int
) -> None:
    shutil.copytree(template, tmp_path / "ideal")
    old = contents(tmp_path / "ideal")
    WORK[work](bitlake.connect(str(tmp_path / "ideal")).table("t"))
    new = contents(tmp_path / "ideal")
    assert new != old
    for done in each_call_failing(template, tmp_path, WORK[work], dead=dead, after=after, step=step):
        found = contents(Path(done.table.path).parents[1])
        done.check(found, old, new)
        done.table.append(NEW)
        assert done.table.scan().count() == len(found[0]) + NEW.num_rows


class Overtaken(LocalStore):
    """Somebody else does something just before this writer first makes a file of metadata."""

    def __init__(self, first: Callable[[], object]) -> None:
        super().__init__()
        self._waiting = [first]

    def create(self, path: str, data: bytes) -> bool:
        while self._waiting:
            self._waiting.pop()()
        return super().create(path, data)


def test_a_lost_race_for_good_leaves_nothing(template: Path, tmp_path: Path) -> None:
    root = tmp_path / "t"
    shutil.copytree(template, root)
    table = bitlake.connect(str(root)).table("t")

    slow = bitlake.Table(FileStoreTable(table.name, table.path, Overtaken(lambda: table.overwrite(NEW))))
    assert slow.indexes.rebuild() == [], "none of the files it began with is left"
    assert len(rows(table)) == NEW.num_rows
    assert strays(table) == set()


def test_two_rewrites_at_once_do_not_share_index_files(template: Path, tmp_path: Path) -> None:
    """The slower rewrite once deleted, on losing, the index files that the faster one had committed."""
    root = tmp_path / "t"
    shutil.copytree(template, root)
    table = bitlake.connect(str(root)).table("t")

    done = bitlake.Table(FileStoreTable(table.name, table.path, Overtaken(table.indexes.rebuild))).indexes.rebuild()
    assert all(d.new is None for d in done), "the one that lost looked again and found it done"
    assert strays(table) == set()
    assert contents(root)[1] == ["bitmap(status)", "bloom-filter(id)"]


class _FullDisk(io.RawIOBase):
    """A file that takes ``room`` bytes."""

    def __init__(self, path: str, room: int) -> None:
        self._file = open(path, "wb", buffering=0)  # noqa: SIM115
        self._room = room

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._room -= len(data)
        if self._room < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self._file.write(data) or 0

    def close(self) -> None:
        self._file.close()
        super().close()


@pytest.mark.parametrize("room", [0, 10, 1000])
def test_a_full_disk_while_writing_data(template: Path, tmp_path: Path, room: int) -> None:
    root = tmp_path / "t"
    shutil.copytree(template, root)
    table = bitlake.connect(str(root)).table("t")
    before = rows(table)

    class Full(LocalStore):
        def open_output(self, path: str) -> Any:
            super().open_output(path).close()
            return pa.PythonFile(_FullDisk(path, room), "w")

    full = bitlake.Table(FileStoreTable(table.name, table.path, Full()))
    with pytest.raises(StorageUnavailable, match="No space left"):
        full.append(NEW)
    assert rows(table) == before
    assert strays(table) == set()


def test_an_interrupted_append_removes_its_files(template: Path, tmp_path: Path) -> None:
    root = tmp_path / "t"
    shutil.copytree(template, root)
    table = bitlake.connect(str(root)).table("t")

    def batches() -> Any:
        yield from NEW.to_batches()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        table.append(batches())

    class Interrupted(LocalStore):
        def write(self, path: str, data: bytes) -> None:
            if "manifest" in path:
                raise KeyboardInterrupt
            super().write(path, data)

    with pytest.raises(KeyboardInterrupt):
        bitlake.Table(FileStoreTable(table.name, table.path, Interrupted())).append(NEW)
    assert len(rows(table)) == OLD.num_rows
    assert strays(table) == set()


# --- processes that are killed ----------------------------------------------------------------------------------------

_KILLED = """
from bitlake.file_store_table import FileStoreTable
from bitlake.file_store_table import FileStoreTable
import os, shutil, signal, sys
import bitlake, test_crash
from store_wrappers import FaultyStore
from bitlake.io.local import LocalStore

class Killer(FaultyStore):
    def _call(self, name, path, work):
        number, self.count = self.count, self.count + 1
        if number == self.fail_at and not self.after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = work()
        if number == self.fail_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

template, target, work, after = sys.argv[1:]
for number in range(200):
    root = f"{target}/{number}"
    shutil.copytree(template, root)
    # This process only forks: each child starts from the same, untouched state.
    child = os.fork()
    if child == 0:
        store = Killer(LocalStore(), number, after=after == "True")
        test_crash.WORK[work](bitlake.Table(FileStoreTable("default.t", f"{root}/default.db/t", store)))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        sys.exit(os.WEXITSTATUS(status))
    assert os.WTERMSIG(status) == signal.SIGKILL
"""


def _environment() -> dict[str, str]:
    here = Path(__file__).parent
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(here), str(here.parent), *sys.path])}


@pytest.mark.exhaustive
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(("work", "after"), [long("append", False), ("append", True), ("rewrite", False)])
def test_killed_at_each_store_call(template: Path, tmp_path: Path, work: str, after: bool) -> None:
    old = contents(template)
    ran = subprocess.run(
        [sys.executable, "-c", _KILLED, str(template), str(tmp_path), work, str(after)],
        env=_environment(), capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    roots = sorted(tmp_path.iterdir(), key=lambda p: int(p.name))
    new = contents(roots[-1])
    assert new != old and len(roots) > 15
    seen = set()
    for root in distinct(roots):
        found = contents(root)
        assert found in (old, new)
        seen.add(found == new)
        table = bitlake.connect(str(root)).table("t")
        table.append(NEW)
        assert len(rows(table)) == len(found[0]) + NEW.num_rows
    assert seen == {False, True}


_APPENDING = """
import sys
import bitlake, test_crash
table = bitlake.connect(sys.argv[1]).table("t")
while True:
    table.append(test_crash.NEW)
    print("appended", flush=True)
"""


@pytest.mark.exhaustive
def test_killed_at_any_moment(template: Path, tmp_path: Path) -> None:
    root = tmp_path / "t"
    shutil.copytree(template, root)
    table = bitlake.connect(str(root)).table("t")
    chance = random.Random(7)
    for _ in range(3):
        writer = subprocess.Popen(
            [sys.executable, "-c", _APPENDING, str(root)], env=_environment(), stdout=subprocess.PIPE
        )
        assert writer.stdout is not None
        for _ in range(chance.randint(1, 20)):
            assert writer.stdout.readline() == b"appended\n"
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        count = len(rows(table))
        assert (count - OLD.num_rows) % NEW.num_rows == 0
        assert table.snapshot is not None and table.snapshot.total_record_count == count
    assert len(rows(table)) > OLD.num_rows
