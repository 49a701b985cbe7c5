"""Commands on a table's history that die at any change of the store, and what every other command does after it.

A serial model judges: the latest snapshot, each one that is kept and each tag has the rows it had, and what is
committed afterwards is there.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from builders import terms
from caches import forget
from faults import distinct
from long import long
from store_wrappers import WRITES, FaultyStore

import bitlake
from bitlake.errors import InvalidRequest, NotFound, StorageUnavailable
from bitlake.file_store_table import FileStoreTable
from bitlake.io.local import LocalStore
from bitlake.snapshot.expiry import Retention
from bitlake.snapshot.removal_markers import load_line
from bitlake.snapshot.versions import load_snapshot
from bitlake.table.table import Table

SCHEMA = pa.schema([("id", pa.int64())])
ALL = Retention(1, 1, 1 << 60, 1000)
SOON = 1 << 60
TRIED = [1, long(2)] if int(os.environ.get("HISTORY_STEP", "5")) > 1 else [5]
"""How many commands follow each death, in turn; ``make history-each`` tries all of them."""
Rows = list[int]
# The rows of each snapshot: overwriting makes files that only expired snapshots need.
MODEL: dict[int, Rows] = {1: [1], 2: [1, 2], 3: [3], 4: [3, 4], 5: [5], 6: [5, 6]}
UUIDS: dict[str | None, Rows] = {}


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids)}, schema=SCHEMA)


def ids(table: Table, **moment: object) -> Rows:
    forget()
    return sorted(table.scan(**moment).to_arrow().column("id").to_pylist())  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root: Path = tmp_path_factory.mktemp("history")
    table = bitlake.connect(str(root)).create_table("t", SCHEMA)
    for number in MODEL:
        made = (table.overwrite if number in (3, 5) else table.append)(rows(number))
        assert made is not None
        UUIDS[made.uuid] = MODEL[number]
    table.history.create_tag("two", 2)
    for number in range(3):
        Path(table.path, "bucket-0", f"data-nobody-{number}.parquet").write_bytes(b"no snapshot names this")
    return root


def open_table(root: Path) -> Table:
    forget()
    return bitlake.connect(str(root)).table("t")


def killed(template: Path, folder: Path, work: Callable[[Table], object]) -> Iterator[Path]:
    """Copies of the table after ``work`` died before its first change of the store, its second, …, and not at all."""
    roots: list[Path] = []
    for number in range(1000):
        root = folder / f"killed-{number}"
        shutil.copytree(template, root)
        roots.append(root)
        store = FaultyStore(LocalStore(), number, dead=True, only=WRITES)
        plain = open_table(root)
        with contextlib.suppress(StorageUnavailable):
            work(Table(FileStoreTable(plain.name, plain.path, store)))
        if not store.failed:
            break
    assert len(roots) > 2
    yield from distinct(roots)


def check(table: Table, latest: list[Rows]) -> None:
    """What is kept is readable and as it was; the latest snapshot has one of these sets of rows."""
    assert ids(table) in latest
    line = load_line(table._core.state().table_files)
    assert line.kept and line.kept[-1] == line.ids[-1]
    for number in line.kept:
        uuid = load_snapshot(table._core.state().table_files, number).uuid
        if uuid in UUIDS:  # else it was made later, under the id of one that was rolled back
            assert ids(table, snapshot=number) == UUIDS[uuid]
    for tag in table.history.tags():
        assert ids(table, tag=tag) == MODEL[2]


def expire(table: Table) -> None:
    table.maintenance.expire_snapshots(**terms(ALL))


def rollback(table: Table, to: int = 4) -> None:
    if to in load_line(table._core.state().table_files).ids:
        table.history.rollback(to)


def remove_orphans(table: Table) -> None:
    table.maintenance.remove_orphan_files(SOON)


def append(table: Table) -> None:
    before = ids(table)
    table.append(rows(99))
    assert ids(table) == sorted([*before, 99])


def tag_earliest(table: Table) -> None:
    """A tag of a snapshot that is going is refused."""
    if 2 in load_line(table._core.state().table_files).ids:
        table.history.create_tag("again", 2)


def rollback_to_tag(table: Table) -> None:
    table.history.rollback(tag="two")


FIRST = {f.__name__: f for f in (expire, rollback, remove_orphans)}
THEN = {f.__name__: f for f in (append, rollback, remove_orphans, tag_earliest, rollback_to_tag)}


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("tried", TRIED)
def test_every_command_after_one_that_died(template: Path, tmp_path: Path, first: str, tried: int) -> None:
    """A killed expiry, a rollback and an orphan removal deleted every data file."""
    start = MODEL[6]
    every = list(THEN.items()) * 2
    for number, root in enumerate(killed(template, tmp_path, FIRST[first])):
        latest = [start, MODEL[4]] if first == "rollback" else [start]
        check(open_table(root), latest)
        report = open_table(root).maintenance.verify()
        # A death between a snapshot and the hint leaves no damage: readers notice.
        assert not [f for f in report.findings if f.code != "hint-wrong"], report.text()
        for name, work in every[number % len(THEN) :][:tried]:
            other = tmp_path / f"{root.name}-{name}"
            shutil.copytree(root, other)
            table = open_table(other)
            before = ids(table)
            outcomes = {"rollback": [before, MODEL[4]], "rollback_to_tag": [before, MODEL[2]]}
            outcomes["append"] = [sorted([*before, 99])]
            try:
                work(table)
            except (InvalidRequest, NotFound):
                assert ids(table) == before, f"{name} was refused after {root}"
            check(table, outcomes.get(name, [before]))
            # Whatever happened, the table is written to, tidied up, and keeps its rows.
            kept = ids(table)
            table.append(rows(100))
            expire(table)
            remove_orphans(table)
            assert ids(table) == sorted([*kept, 100]), f"{name} after {root}"
            check(table, [sorted([*kept, 100])])
            shutil.rmtree(other)


def test_rollback_to_a_snapshot_whose_expiry_was_killed(tmp_path: Path) -> None:
    """It was accepted; then orphan removal deleted every data file, as the old announcement covered all snapshots."""
    table = bitlake.connect(str(tmp_path)).create_table("t", SCHEMA)
    for number in range(12):
        table.append(rows(number))
    dying = Table(FileStoreTable(table.name, table.path, FaultyStore(table._core.store, 1, dead=True, only=WRITES)))
    with pytest.raises(StorageUnavailable):
        dying.maintenance.expire_snapshots(**terms(ALL))
    assert not table.maintenance.verify().findings
    with pytest.raises(InvalidRequest, match=r"expiry of the snapshots before 12 has begun.*expire_snapshots"):
        table.history.rollback(10)
    table.append(rows(50))
    table.maintenance.remove_orphan_files(SOON)
    assert ids(table) == [*range(12), 50]
    table.maintenance.expire_snapshots()
    assert load_line(table._core.state().table_files).ids == (12, 13)


def test_an_announcement_beyond_the_latest_snapshot(tmp_path: Path) -> None:
    """Another program went back to a snapshot while an expiry was half done: the latest snapshot's files stay."""
    table = bitlake.connect(str(tmp_path)).create_table("t", SCHEMA)
    for number in range(3):
        table.append(rows(number))
    snapshots = Path(table.path, "snapshot")
    (snapshots / ".expiring-9-abcdef01").write_text("1")
    table.maintenance.remove_orphan_files(SOON)
    assert ids(table) == [0, 1, 2]
    table.append(rows(7))
    table.maintenance.expire_snapshots(retain_max=100, retain_min=100)
    table.maintenance.remove_orphan_files(SOON)
    assert ids(table) == [0, 1, 2, 7]
    assert sorted(p.name for p in snapshots.iterdir()) == ["EARLIEST", "LATEST", "snapshot-4"]
    assert not table.maintenance.verify().findings
