"""Expiry and tagging at once, step by step: one is done at each call that the other makes of the store.

Whichever comes first, a tag, branch or consumer that was made is readable, and one that cannot be is refused.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from builders import terms
from caches import forget
from faults import noted_sleep
from long import exhaustive
from store_wrappers import WRITES, FaultyStore

import bitlake
from bitlake.errors import NotFound, StorageUnavailable
from bitlake.io import Store
from bitlake.metadata.snapshot import Snapshot
from bitlake.runtime import LocalRunner
from bitlake.snapshot import branches, consumers, tags
from bitlake.snapshot import expiry as expire_module
from bitlake.snapshot.expiry import Retention, expire
from bitlake.snapshot.orphan_files import find_orphans
from bitlake.snapshot.references import listed_entries
from bitlake.snapshot.removal_markers import load_line
from bitlake.snapshot.table_files import TableFiles
from bitlake.table.table import Table

SCHEMA = pa.schema([("id", pa.int64())])
ALL = Retention(1, 1, 1 << 60, 1000)


class Between:
    """A store that does something else before the ``at``-th call of it, once."""

    def __init__(self, inner: Store, at: int, work: Callable[[], object]) -> None:
        self._inner = inner
        self.caches = inner.caches
        self._left = at
        self._work = work
        self.done = False

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._inner, name)

        def call(*args: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left < 0 and not self.done:
                self.done = True
                forget()
                self._work()
                forget()
            return member(*args, **named)

        return call


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = bitlake.connect(str(tmp_path / "lake")).create_table("default.t", SCHEMA)
    for i in range(3):
        made.overwrite(pa.table({"id": [i, i + 10]}, schema=SCHEMA))
    made.history.create_tag("old", 2)
    return made


def moments(
    table: Table, tmp_path: Path, first: Callable[[Store], object], then: Callable[[], object]
) -> Iterator[int]:
    """After ``then`` was done at each call that ``first`` makes, on a table as it was; either may be too late."""
    whole = tmp_path / "whole"
    shutil.copytree(table.path, whole)
    for at in range(500):
        shutil.rmtree(table.path)
        shutil.copytree(whole, table.path)
        forget()
        store = Between(table._core.store, at, lambda: late(then))
        late(lambda: first(store))  # noqa: B023 - called at once
        forget()
        if not store.done:
            assert at > 2
            return
        yield at
    raise AssertionError("it never ends")


def late(work: Callable[[], object]) -> None:
    with contextlib.suppress(NotFound):
        work()


def ids(table: Table, **moment: Any) -> list[int]:
    return sorted(table.scan(**moment).to_arrow().column("id").to_pylist())


def expiry(table: Table) -> Callable[[Store], object]:
    state = table._core.state()
    return lambda store: expire(TableFiles(store, state.paths), state.schema, ALL)


@pytest.mark.exhaustive
def test_a_tag_made_at_any_moment_of_an_expiry_is_whole(table: Table, tmp_path: Path) -> None:
    made = 0
    for _ in moments(table, tmp_path, expiry(table), lambda: table.history.create_tag("new", 1)):
        if "new" in table.history.tags():
            made += 1
            assert ids(table, tag="new") == [0, 10]
        assert ids(table, tag="old") == [1, 11] and ids(table) == [2, 12]
        table.maintenance.expire_snapshots(**terms(ALL))
        assert load_line(table._core.state().table_files).ids == (3,)
    assert made > 3


def test_an_expiry_at_any_moment_of_tagging(table: Table, tmp_path: Path) -> None:
    def tag(store: Store) -> None:
        state = table._core.state()
        tags.create_tag(type(state)(state.name, state.paths, store, state.schema, state.snapshot), "new", 1)

    for _ in moments(table, tmp_path, tag, lambda: table.maintenance.expire_snapshots(**terms(ALL))):
        if "new" in table.history.tags():
            assert ids(table, tag="new") == [0, 10]


@pytest.mark.exhaustive
def test_moving_a_tag_while_its_target_expires_leaves_it_where_it_was(table: Table, tmp_path: Path) -> None:
    for _ in moments(table, tmp_path, expiry(table), lambda: table.history.replace_tag("old", 1)):
        assert ids(table, tag="old") in ([0, 10], [1, 11])


def test_a_consumer_that_comes_at_any_moment_of_an_expiry_can_read(table: Table, tmp_path: Path) -> None:
    def hold() -> None:
        consumers.reset_consumer(table._core.state(), "me", 2)

    held = 0
    for _ in moments(table, tmp_path, expiry(table), hold):
        if consumers.consumers(table._core.state().table_files):
            held += 1
            assert ids(table, snapshot=2) == [1, 11]
            assert table.maintenance.expire_snapshots(**terms(ALL)).end <= 2
    assert held > 3


@pytest.mark.parametrize("branching_first", [True, False])
def test_a_branch_made_while_its_tag_is_deleted(table: Table, tmp_path: Path, branching_first: bool) -> None:
    table.maintenance.expire_snapshots(**terms(ALL))
    lake = bitlake.connect(str(Path(table.path).parent.parent))

    def state(store: Store) -> Any:
        now = table._core.state()
        return type(now)(now.name, now.paths, store, now.schema, now.snapshot)

    def branch(store: Store = table._core.store) -> None:
        branches.create_branch(state(store), "b", "old")

    def delete(store: Store = table._core.store) -> None:
        tags.delete_tag(state(store), "old", if_exists=True)

    first, then = (branch, delete) if branching_first else (delete, branch)
    for _ in moments(table, tmp_path, first, then):
        assert "old" not in table.history.tags()
        if "b" in table.history.branches():
            assert ids(lake.table("t$branch_b")) == [1, 11]


@pytest.mark.parametrize("kept_by", [exhaustive("tag"), "branch"])
def test_what_moves_from_name_to_name_is_no_orphan(table: Table, tmp_path: Path, kept_by: str) -> None:
    lake = bitlake.connect(str(Path(table.path).parent.parent))
    table.maintenance.expire_snapshots(**terms(ALL))
    if kept_by == "branch":
        table.history.create_branch("b", "old")
        table.history.delete_tag("old")
    state = table._core.state()

    def remove(store: Store) -> None:
        now = type(state)(state.name, state.paths, store, state.schema, state.snapshot)
        table._core.store.delete_all([o.path for o in find_orphans(now, 1 << 60, LocalRunner(1))])

    def move() -> None:
        if kept_by == "branch":
            table.history.rename_branch("b", "a")
        else:
            table.history.create_branch("a", "old")
            table.history.delete_tag("old")

    for _ in moments(table, tmp_path, remove, move):
        assert ids(lake.table("t$branch_a")) == [1, 11] and ids(table) == [2, 12]


def test_orphans_are_found_while_snapshots_expire(table: Table, tmp_path: Path) -> None:
    for _ in moments(table, tmp_path, expiry(table), lambda: table.maintenance.remove_orphan_files(1 << 60)):
        assert ids(table) == [2, 12] and ids(table, tag="old") == [1, 11]


def test_orphans_are_looked_for_again_while_a_tag_is_taken_back(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tag that came too late for its snapshot is there for a moment, and its files are not."""
    text = Path(table.path, "snapshot", "snapshot-1").read_bytes()
    table.maintenance.expire_snapshots(**terms(ALL))
    forget()
    late = Path(table.path, "tag", "tag-late")
    late.write_bytes(text)
    waited: list[float] = []
    monkeypatch.setattr("bitlake.snapshot.removal_markers.time.sleep", noted_sleep(waited))
    with pytest.raises(NotFound):
        table.maintenance.remove_orphan_files(1 << 60)
    assert ids(table) == [2, 12]
    forget()
    monkeypatch.setattr("bitlake.snapshot.removal_markers.time.sleep", lambda _: late.unlink(missing_ok=True))
    table.maintenance.remove_orphan_files(1 << 60)
    assert ids(table) == [2, 12] and ids(table, tag="old") == [1, 11]


def test_what_a_killed_expiry_announced_goes_whatever_is_asked_next(table: Table) -> None:
    state = table._core.state()
    with pytest.raises(StorageUnavailable):
        expire(TableFiles(FaultyStore(table._core.store, 5, dead=True, only=WRITES), state.paths), state.schema, ALL)
    forget()
    assert load_line(state.table_files).kept == [3]
    with pytest.raises(NotFound, match="expired while"):
        table.history.create_tag("late", 1)
    assert "late" not in table.history.tags()
    with pytest.raises(NotFound, match="only snapshot 3 is kept"):
        consumers.reset_consumer(state, "late", 1)
    done = table.maintenance.expire_snapshots(retain_max=100, retain_min=100)
    assert done.snapshots == (1, 2) and load_line(state.table_files).markers == ()
    assert sorted(p.name for p in Path(table.path, "snapshot").iterdir()) == ["EARLIEST", "LATEST", "snapshot-3"]


def test_an_expiry_that_gives_up_takes_back_no_others_word(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two begin to expire the same snapshots at once; one is killed in mid-delete, the other fails."""
    state = table._core.state()
    announce = expire_module._announce

    def after_the_other(store: Store, *rest: Any) -> str:
        monkeypatch.setattr(expire_module, "_announce", announce)
        with pytest.raises(StorageUnavailable):
            expire(
                TableFiles(FaultyStore(table._core.store, 5, dead=True, only=WRITES), state.paths), state.schema, ALL
            )
        monkeypatch.setattr(expire_module, "_plan", late)
        return announce(store, *rest)

    def late(*_: Any) -> Any:
        raise StorageUnavailable("the other has deleted what this one was to read")

    monkeypatch.setattr(expire_module, "_announce", after_the_other)
    with pytest.raises(StorageUnavailable, match="the other"):
        expire(state.table_files, state.schema, ALL)
    forget()
    assert load_line(state.table_files).kept == [3], "those that are half gone are not offered"


def test_changelogs_that_outlive_their_snapshots_keep_their_files(tmp_path: Path) -> None:
    """As Paimon leaves them under ``changelog.time-retained``: a snapshot's file under another name."""
    options = {"primary-key": "id", "bucket": "1", "changelog-producer": "input"}
    key = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
    table = bitlake.connect(str(tmp_path / "lake")).create_table("default.t", key, options=options)
    for i in range(3):
        table.upsert(pa.table({"id": [i], "v": [i]}, schema=key))
    table.maintenance.compact(full=True)
    state = table._core.state()
    folder = Path(table.path, "changelog")
    folder.mkdir()
    shutil.copy(Path(table.path, "snapshot", "snapshot-1"), folder / "changelog-1")
    first = table._core.store.read(f"{table.path}/changelog/changelog-1")
    table.maintenance.expire_snapshots(**terms(ALL))
    table.maintenance.remove_orphan_files(1 << 60)
    told = Snapshot.from_json(first, "changelog-1").changelog_manifest_list
    assert told is not None
    files = [e.file.file_name for e in listed_entries(state.table_files, told)]
    assert files and all(list(Path(table.path).rglob(name)) for name in files)
