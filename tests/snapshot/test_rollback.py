"""Rollback beside another command, step by step: one is done whole at each call that the other makes of the store.

A serial model judges the result: some order of the two, with the outcomes that their callers saw, explains it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest
from builders import terms
from caches import forget
from long import long
from store_wrappers import WRITES, FaultyStore

import bitlake
from bitlake import _clock
from bitlake.errors import CommitConflict, InvalidRequest, NotFound, StorageUnavailable
from bitlake.file_store_table import FileStoreTable
from bitlake.io import Store
from bitlake.scan.stream_offsets import ChangeStream, StreamOffset
from bitlake.snapshot.expiry import Retention
from bitlake.snapshot.removal_markers import BASE, REMOVED, load_line
from bitlake.snapshot.versions import read_hint
from bitlake.table.table import Table
from bitlake.write.commit import commit
from bitlake.write.commit_plan import CommitPlan, Overwrite

SCHEMA = pa.schema([("id", pa.int64())])
ALL = Retention(1, 1, 1 << 60, 1000)
DAY_MS = 86_400_000
STEP = int(os.environ.get("HISTORY_STEP", "5"))
"""Of the calls of commands other than appends, every how many-th is interrupted; ``make history-each`` takes each."""
PACES = [3, long(1)] if STEP > 1 else [1]
"""In ``make test`` a third of these calls, and of those of appends."""
Rows = list[int]
Work = Callable[[Table], object]
Outcome = Literal["done", "refused"]
# Overwriting makes files that only the snapshots before need.
MODEL: dict[int, Rows] = {1: [1], 2: [1, 2], 3: [3], 4: [3, 4], 5: [5], 6: [5, 6]}


class Between:
    """A store that does something else before the ``at``-th call of it, once; ``only`` limits which calls count."""

    def __init__(self, inner: Store, at: int, work: Callable[[], object], only: frozenset[str] | None = None) -> None:
        self._inner, self._left, self._work, self._only, self.done = inner, at, work, only, False
        self.caches = inner.caches

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._inner, name)

        def call(*args: Any, **named: Any) -> Any:
            if name != "local_path" and (self._only is None or name in self._only):
                self._left -= 1
            if self._left < 0 and not self.done:
                self.done = True
                forget()
                self._work()
                forget()
            return member(*args, **named)

        return call


def rows(*numbers: int) -> pa.Table:
    return pa.table({"id": list(numbers)}, schema=SCHEMA)


def ids(table: Table, **moment: Any) -> Rows:
    forget()
    return sorted(table.scan(**moment).to_arrow().column("id").to_pylist())


def make(root: str) -> Table:
    table = bitlake.connect(root).create_table("t", SCHEMA)
    for number in MODEL:
        (table.overwrite if number in (3, 5) else table.append)(rows(number))
    return table


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("rollback")
    table = make(str(root))
    Path(table.path, "bucket-0", "data-nobody-0.parquet").write_bytes(b"no snapshot names this")
    old = (_clock.now_ms() - 2 * DAY_MS) / 1000
    for path in root.rglob("*"):
        os.utime(path, (old, old))
    return root


def attempt(work: Work, table: Table) -> Outcome:
    forget()
    try:
        work(table)
    except (NotFound, InvalidRequest, CommitConflict):
        return "refused"
    return "done"


def moments(
    template: Path, folder: Path, first: Work, then: Work, step: int = 1
) -> Iterator[tuple[Table, Outcome, Outcome]]:
    """The table and both outcomes, ``then`` being done at every ``step``-th call of the store that ``first`` makes."""
    root = folder / "lake"
    for at in range(0, 1000, step):
        shutil.copytree(template, root)
        forget()
        plain = bitlake.connect(str(root)).table("t")
        outcomes: list[Outcome] = []
        store = Between(plain._core.store, at, lambda: outcomes.append(attempt(then, plain)))  # noqa: B023
        outcome = attempt(first, Table(FileStoreTable(plain.name, plain.path, store)))
        if not store.done:
            assert at > 4
            shutil.rmtree(root)
            return
        forget()
        yield bitlake.connect(str(root)).table("t"), outcome, outcomes[0]
        shutil.rmtree(root)
    raise AssertionError("it never ends")


def append(table: Table) -> None:
    table.append(rows(99))


def append_twice(table: Table) -> None:
    table.append(rows(98))
    table.append(rows(99))


def expire(table: Table) -> None:
    table.maintenance.expire_snapshots(**terms(ALL))


def remove_orphans(table: Table) -> None:
    table.maintenance.remove_orphan_files()


def tag(table: Table) -> None:
    table.history.create_tag("new", 5)


def back_to(number: int) -> Work:
    return lambda table: table.history.rollback(number)


# By the outcomes of a rollback to snapshot 4 and of the other command: the rows that some order of the two leaves.
OTHERS: dict[str, tuple[Work, dict[tuple[Outcome, Outcome], list[Rows]]]] = {
    "append": (append, {("done", "done"): [[3, 4], [3, 4, 99]]}),
    "two appends": (append_twice, {("done", "done"): [[3, 4], [3, 4, 99], [3, 4, 98, 99]]}),
    "rollback to 4": (back_to(4), {("done", "done"): [[3, 4]]}),
    "rollback to 2": (back_to(2), {("done", "done"): [[1, 2]], ("refused", "done"): [[1, 2]]}),
    "rollback to 5": (back_to(5), {("done", "done"): [[3, 4]], ("done", "refused"): [[3, 4]]}),
    "expiry": (expire, {("done", "done"): [[3, 4]], ("refused", "done"): [[5, 6]]}),
    "orphan removal": (remove_orphans, {("done", "done"): [[3, 4]]}),
    "tag": (tag, {("done", "done"): [[3, 4]], ("done", "refused"): [[3, 4]], ("refused", "done"): [[5, 6]]}),
}


def check(table: Table, wanted: list[Rows], why: str, seen: set[Any]) -> None:
    """The rows are those wanted, everything that is kept can be read, and the table is written to and tidied up.

    ``seen`` are states that were checked already.
    """
    found = ids(table)
    assert found in wanted, why
    line = load_line(table._core.state().table_files)
    hint = read_hint(table._core.store, table._core.state().paths.latest_hint)
    state = (tuple(found), line.ids, len(line.holds), hint, tuple(table.history.tags()))
    if state in seen:
        return
    seen.add(state)
    for number in line.kept:
        ids(table, snapshot=number)
    assert not line.markers and not line.holds, why
    report = table.maintenance.verify()
    assert not [f for f in report.findings if f.severity == "error"], f"{why}: {report.text()}"
    for name in table.history.tags():
        assert ids(table, tag=name) == MODEL[5], why
    table.append(rows(100))
    assert ids(table) == [*found, 100], why
    expire(table)
    table.maintenance.remove_orphan_files()
    assert ids(table) == [*found, 100], why


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", ["rollback", "other"])
@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("pace", PACES)
def test_rollback_beside_another_command(template: Path, tmp_path: Path, name: str, first: str, pace: int) -> None:
    """A commit between a rollback's listing and its deletions vanished later, and rolled-back rows returned."""
    work, wanted = OTHERS[name]
    pair = (back_to(4), work) if first == "rollback" else (work, back_to(4))
    seen: set[Any] = set()
    step = pace if name == "append" else STEP
    for at, (table, one, two) in enumerate(moments(template, tmp_path, *pair, step)):
        outcomes = (one, two) if first == "rollback" else (two, one)
        assert outcomes in wanted, f"{outcomes} at call {at * step}"
        check(table, wanted[outcomes], f"{outcomes} at call {at * step}", seen)


CHANGES = WRITES | {"list", "names", "read"}


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", ["rollback", "append"])
@pytest.mark.parametrize("pace", PACES)
def test_rollback_beside_an_append_in_an_object_store(first: str, pace: int) -> None:
    """Where a rename does not exist and a file is only created if absent, or deleted."""
    wanted = OTHERS["append"][1]["done", "done"]
    for at in range(0, 1000, pace):
        forget()
        plain = make(f"memory://rollback-{first}-{pace}-{at}/lake")
        work, other = (back_to(4), append) if first == "rollback" else (append, back_to(4))
        store = Between(plain._core.store, at, lambda: other(plain), CHANGES)  # noqa: B023
        forget()
        work(Table(FileStoreTable(plain.name, plain.path, store)))
        if not store.done:
            assert at > 8
            return
        found = ids(plain)
        assert found in wanted, f"at call {at}"
        plain.append(rows(100))
        assert ids(plain) == [*found, 100], f"at call {at}"


def test_rollback_to_a_tag_while_the_tag_is_deleted(template: Path, tmp_path: Path) -> None:
    """The snapshot had expired, and deleting the tag took the files that the rollback brought back."""
    base = tmp_path / "base"
    shutil.copytree(template, base)
    table = bitlake.connect(str(base)).table("t")
    table.append(rows(7))
    table.history.create_tag("new", 5)
    expire(table)
    seen: set[Any] = set()
    pair: tuple[Work, Work] = (lambda t: t.history.rollback(tag="new"), lambda t: t.history.delete_tag("new"))
    for at, (found, one, two) in enumerate(moments(base, tmp_path, *pair)):
        assert two == "done"
        check(found, [MODEL[5]] if one == "done" else [[5, 6, 7]], f"{one} at call {at}", seen)


def test_a_rollback_leaves_no_gap_and_for_a_day_its_record(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Paimon leaves it: the later snapshots are gone, and the next commit takes the first of their ids."""
    shutil.copytree(template, tmp_path / "lake")
    table = bitlake.connect(str(tmp_path / "lake")).table("t")
    assert table.history.rollback(4) == (6, 4)
    folder = Path(table.path, "snapshot")
    record, *names = sorted(path.name for path in folder.iterdir())
    assert record.startswith(REMOVED)
    assert names == ["EARLIEST", "LATEST", *(f"snapshot-{i}" for i in range(1, 5))]
    assert (folder / "LATEST").read_text() == "4"
    base = table.history.snapshots()[-1]
    made = table.append(rows(99))
    assert made is not None and made.id == 5 and made.properties == {BASE: base.uuid}
    assert ids(table) == [3, 4, 99]
    now = _clock.now_ms()
    monkeypatch.setattr(_clock, "now_ms", lambda: now + DAY_MS + 1)
    table.maintenance.expire_snapshots(retain_max=100, retain_min=100)
    assert sorted(path.name for path in folder.iterdir()) == [*names, "snapshot-5"]


def test_commits_after_a_killed_rollback(template: Path, tmp_path: Path) -> None:
    """The fence that a killed rollback leaves is a snapshot like any other: commits follow it, and it expires."""
    shutil.copytree(template, tmp_path / "lake")
    plain = bitlake.connect(str(tmp_path / "lake")).table("t")
    # It made the hold, two manifest lists, the fence, and the hint.
    dying = Table(FileStoreTable(plain.name, plain.path, FaultyStore(plain._core.store, 5, dead=True, only=WRITES)))
    with pytest.raises(StorageUnavailable):
        dying.history.rollback(4)
    assert ids(plain) == [3, 4]
    line = load_line(plain._core.state().table_files)
    assert line.ids == tuple(range(1, 8)) and line.held == 4
    plain.append(rows(99))
    expire(plain)
    assert load_line(plain._core.state().table_files).ids == (4, 5, 6, 7, 8)
    plain.maintenance.remove_orphan_files(_clock.now_ms() - DAY_MS)
    assert ids(plain) == [3, 4, 99] and ids(plain, snapshot=7) == [3, 4]
    with pytest.raises(NotFound, match="snapshot 5 was rolled back"):
        plain.history.rollback(5)
    assert plain.history.rollback(4) == (8, 4)
    assert ids(plain) == [3, 4] and load_line(plain._core.state().table_files).ids == (4,)


def test_changes_over_the_ids_that_a_rollback_left_unused(template: Path, tmp_path: Path) -> None:
    """``changes`` and streams took the ids that a killed rollback leaves unused for expired snapshots, for ever."""
    shutil.copytree(template, tmp_path / "lake")
    plain = bitlake.connect(str(tmp_path / "lake")).table("t")
    # As above, the record, the filler, and it deleted snapshot 6.
    dying = Table(FileStoreTable(plain.name, plain.path, FaultyStore(plain._core.store, 8, dead=True, only=WRITES)))
    with pytest.raises(StorageUnavailable):
        dying.history.rollback(4)
    plain.append(rows(99))
    assert load_line(plain._core.state().table_files).ids == (1, 2, 3, 4, 5, 7, 8)
    assert not plain.maintenance.verify().findings
    assert plain.changes(4, 8, kinds=False).to_arrow().column("id").to_pylist() == [99]
    feed = ChangeStream(plain._core, kinds=False)
    end = feed.step(StreamOffset(5)).end
    found = [scan.to_arrow().column("id").to_pylist() for scan in feed.scans(StreamOffset(5), end)]
    assert end == StreamOffset(9) and found == [[99]]
    Path(plain.path, "snapshot", "snapshot-2").unlink()
    with pytest.raises(NotFound, match="snapshot 2 is missing"):
        plain.changes(1, 8)


def test_changelogs_of_snapshots_that_were_rolled_back_go(tmp_path: Path) -> None:
    """As in Paimon: other snapshots will have their ids."""
    table = bitlake.connect(str(tmp_path)).create_table("t", SCHEMA)
    for number in range(6):
        table.append(rows(number))
    table.history.create_tag("two", 2)
    folder = Path(table.path, "changelog")
    folder.mkdir()
    for number in range(1, 5):  # as Paimon expires a table that keeps changelogs for longer than snapshots
        Path(table.path, f"snapshot/snapshot-{number}").rename(folder / f"changelog-{number}")
    for name, number in (("changelog/EARLIEST", 1), ("changelog/LATEST", 4), ("snapshot/EARLIEST", 5)):
        Path(table.path, name).write_text(str(number))
    table.history.rollback(5)
    assert len(list(folder.iterdir())) == 6
    table.history.rollback(tag="two")
    assert ids(table) == [0, 1] and sorted(p.name for p in folder.iterdir()) == ["changelog-1", "changelog-2"]
    table.append(rows(9))
    feed = ChangeStream(table._core, kinds=False)
    found = [scan.to_arrow().column("id").to_pylist() for scan in feed.scans(feed.at(1), feed.latest())]
    assert found == [[0], [1], [9]] and feed.since(0) == StreamOffset(1)


def test_a_hold_is_ignored_after_a_day(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed rollback must not hold expiry back for ever, and the files that its fence brought back stay."""
    shutil.copytree(template, tmp_path / "lake")
    table = bitlake.connect(str(tmp_path / "lake")).table("t")
    dying = Table(FileStoreTable(table.name, table.path, FaultyStore(table._core.store, 5, dead=True, only=WRITES)))
    with pytest.raises(StorageUnavailable):
        dying.history.rollback(2)
    table.append(rows(99))
    now = _clock.now_ms()
    monkeypatch.setattr(_clock, "now_ms", lambda: now + DAY_MS + 1)
    table.maintenance.expire_snapshots(retain_max=4, retain_min=4, older_than=1 << 60, max_deletes=1000)
    assert load_line(table._core.state().table_files).ids == (5, 6, 7, 8)
    assert ids(table, snapshot=7) == [1, 2] and ids(table) == [1, 2, 99]
    expire(table)
    line = load_line(table._core.state().table_files)
    assert line.ids == (8,) and not line.holds
    table.maintenance.remove_orphan_files()
    assert ids(table) == [1, 2, 99]


def test_a_suspended_rollback_stops_before_its_hold_is_ignored(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fast-forward ignores a hold after ten minutes: rollback changes no history after five."""
    refused, cut_short = 0, 0
    for at in range(100):
        root = tmp_path / "lake"
        shutil.copytree(template, root)
        table = bitlake.connect(str(root)).table("t")
        with monkeypatch.context() as clock:
            later = _clock.now_ms() + 300_500
            store = Between(table._core.store, at, partial(clock.setattr, _clock, "now_ms", lambda now=later: now))
            try:
                Table(FileStoreTable(table.name, table.path, store)).history.rollback(3)
            except CommitConflict as e:
                assert "rollback took longer than 5 minutes; nothing was changed; try again" in str(e)  # noqa: PT017
                assert ids(table) == [5, 6]
                refused += 1
            else:
                assert ids(table) == [3]
                cut_short += load_line(table._core.state().table_files).ids != (1, 2, 3)
        if not store.done:
            break
        table.history.rollback(3)
        assert ids(table) == [3] and load_line(table._core.state().table_files).ids[:3] == (1, 2, 3)
        shutil.rmtree(root)
    assert refused >= 1 and cut_short >= 4


@pytest.mark.parametrize("later", [0, 1, 2])
@pytest.mark.parametrize("kind", ["overwrite", "keys looked up", "compaction"])
def test_a_commit_whose_snapshot_was_rolled_back(template: Path, tmp_path: Path, kind: str, later: int) -> None:
    """Ids only were compared: commits under the ids of snapshots that were rolled back were overlooked."""
    shutil.copytree(template, tmp_path / "lake")
    table = bitlake.connect(str(tmp_path / "lake")).table("t")
    read = table.history.snapshots()[4]
    plan = {
        "overwrite": CommitPlan("OVERWRITE", overwrite=Overwrite(computed_on=5, computed_uuid=read.uuid)),
        "keys looked up": CommitPlan("APPEND", alone_since=5, read_uuid=read.uuid),
        "compaction": CommitPlan("COMPACT", computed_on=5, read_uuid=read.uuid),
    }[kind]
    table.history.rollback(4)
    for number in range(later):
        table.append(rows(90 + number))
    state = table._core.state()
    with pytest.raises(CommitConflict, match=r"snapshot 5 of .* was rolled back"):
        commit(state.store, state.paths, plan, state.schema, "user")
    assert ids(table) == [3, 4, *range(90, 90 + later)]
