"""Tags, branches and rollback: what a name holds stays readable, and what nothing holds goes."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from builders import terms
from caches import forget
from faults import Between
from long import exhaustive
from store_wrappers import FaultyStore

import bitlake
from bitlake import _clock
from bitlake.errors import AlreadyExists, InvalidRequest, NotFound, StorageUnavailable
from bitlake.io.local import LocalStore
from bitlake.metadata.snapshot import Snapshot
from bitlake.scan.scan import TableScan
from bitlake.snapshot import branches, tags
from bitlake.snapshot.expiry import Retention
from bitlake.snapshot.manifests import snapshot_manifests
from bitlake.snapshot.rollback import rollback
from bitlake.snapshot.state import TableState
from bitlake.snapshot.table_files import TableFiles
from bitlake.snapshot.versions import latest_snapshot, load_snapshot, snapshot_ids, tag_names
from bitlake.table.table import Table

SCHEMA = pa.schema([("id", pa.int64())])
DAY = 86_400_000
ALL = Retention(1, 1, 1 << 60, 1000)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = bitlake.connect(str(tmp_path / "lake")).create_table("default.t", SCHEMA)
    for i in range(4):
        made.overwrite(pa.table({"id": [i, i + 10]}, schema=SCHEMA))
    return made


def read(table: Table, snapshot: Snapshot) -> list[int]:
    forget()
    state = replace(table._core.state(), snapshot=snapshot)
    return sorted(TableScan(state=state, store=table._core.store, columns=["id"]).to_arrow().column("id").to_pylist())


def data_files(table: Table) -> int:
    return len(list(Path(table.path).rglob("*.parquet")))


def test_a_tag_keeps_its_snapshot_readable_until_it_is_deleted(table: Table) -> None:
    assert tags.create_tag(table._core.state(), "two", 2)
    tags.create_tag(table._core.state(), "also two", 2)
    table.maintenance.expire_snapshots(**terms(ALL))
    assert data_files(table) == 2
    assert read(table, tags.load_tag(table._core.state(), "two").snapshot) == [1, 11]
    tags.delete_tag(table._core.state(), "two")
    assert read(table, tags.load_tag(table._core.state(), "also two").snapshot) == [1, 11]
    tags.create_tag(table._core.state(), "again", 2)  # from the tag that still holds it
    tags.delete_tag(table._core.state(), "also two")
    tags.delete_tag(table._core.state(), "again")
    assert data_files(table) == 1 and table.scan().count() == 2
    names = {p.name for p in Path(table.path, "manifest").iterdir()}
    latest = table._core.state().snapshot
    assert latest is not None
    listed = {m.file_name for m in snapshot_manifests(table._core.state().table_files, latest)}
    assert names == {latest.base_manifest_list, latest.delta_manifest_list, *listed}


def test_the_tag_file_is_the_snapshots_and_with_a_retention_two_members_more(table: Table) -> None:
    tags.create_tag(table._core.state(), "a")
    root = Path(table.path)
    assert (root / "tag/tag-a").read_bytes() == (root / "snapshot/snapshot-4").read_bytes()
    tags.create_tag(table._core.state(), "b", 3, retained_ms=DAY)
    text = (root / "tag/tag-b").read_text()
    assert text.endswith('"tagTimeRetained" : 86400.000000000\n}')
    assert len(json.loads(text)["tagCreateTime"]) == 7
    tag = tags.load_tag(table._core.state(), "b")
    assert tag.retained_ms == DAY and tag.created_ms is not None
    assert not tag.expired(tag.created_ms + DAY) and tag.expired(tag.created_ms + DAY + 1)
    assert tags.expire_tags(table._core.state()) == []
    tags.create_tag(table._core.state(), "c", 3, retained_ms=36500 * DAY + 1)
    assert (root / "tag/tag-c").read_text().endswith('"tagTimeRetained" : 3153600000.001000000\n}')
    assert tags.load_tag(table._core.state(), "c").retained_ms == 36500 * DAY + 1


def test_expiring_tags_older_than_a_time(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Paimon's TagTimeExpire: also tags without a retention, by their files, and tags whose retention is over."""
    state = table._core.state()
    start = _clock.now_ms()
    for name, created, retained in (("old", -9 * DAY, 20 * DAY), ("over", -2 * DAY, DAY), ("new", -2 * DAY, 20 * DAY)):
        with monkeypatch.context() as patch:
            patch.setattr(_clock, "local_ms", lambda at=created: start + at)
            tags.create_tag(state, name, 3, retained_ms=retained)
    for name, written in (("old file", -9 * DAY), ("new file", -2 * DAY)):
        tags.create_tag(state, name, 1)
        os.utime(Path(table.path, f"tag/tag-{name}"), ns=((start + written) * 1_000_000,) * 2)
    monkeypatch.setattr(_clock, "now_ms", lambda: start)
    monkeypatch.setattr(_clock, "local_ms", lambda: start + 3_600_000)
    assert tags.expire_tags(state, start - 5 * DAY, dry_run=True) == ["old", "old file", "over"]
    assert tags.expire_tags(state, dry_run=True) == ["over"]
    assert tags.expire_tags(state, start - 9 * DAY + 3_600_000, dry_run=True) == ["old", "over"]
    assert tags.expire_tags(state, start - 5 * DAY, names=["old file", "gone", "new"], dry_run=True) == ["old file"]
    assert tags.expire_tags(state, start - 5 * DAY) == ["old", "old file", "over"]
    assert [t.name for t in tags.list_tags(state)] == ["new", "new file"]


def test_renaming_and_replacing_tags(table: Table) -> None:
    tags.create_tag(table._core.state(), "a", 1)
    tags.rename_tag(table._core.state(), "a", "b")
    tags.replace_tag(table._core.state(), "b", 3)
    assert [(t.name, t.snapshot.id) for t in tags.list_tags(table._core.state())] == [("b", 3)]
    with pytest.raises(NotFound, match="its tags: b"):
        tags.rename_tag(table._core.state(), "a", "c")
    tags.create_tag(table._core.state(), "c")
    with pytest.raises(AlreadyExists):
        tags.rename_tag(table._core.state(), "b", "c")
    with pytest.raises(AlreadyExists):
        tags.create_tag(table._core.state(), "c", 1)
    assert not tags.create_tag(table._core.state(), "c", 1, if_not_exists=True)


@pytest.mark.parametrize("name", ["", " ", "a/b", " a"])
def test_names_that_cannot_be_tags(table: Table, name: str) -> None:
    with pytest.raises(InvalidRequest, match="invalid tag name"):
        tags.create_tag(table._core.state(), name)


def test_tagging_what_is_not_there(table: Table) -> None:
    with pytest.raises(NotFound, match="no snapshot 9: snapshots 1 to 4 are kept"):
        tags.create_tag(table._core.state(), "a", 9)
    with pytest.raises(NotFound):
        tags.delete_tag(table._core.state(), "a")
    assert not tags.delete_tag(table._core.state(), "a", if_exists=True)


def test_a_branch_of_a_tag_outlives_tag_and_expiry(table: Table) -> None:
    tags.create_tag(table._core.state(), "two", 2)
    branches.create_branch(table._core.state(), "dev", "two")
    tags.delete_tag(table._core.state(), "two")
    table.maintenance.expire_snapshots(**terms(ALL))
    paths = branches.find_branch(table._core.state(), "dev").paths
    snapshot = latest_snapshot(TableFiles(table._core.store, paths))
    assert snapshot is not None and read(table, snapshot) == [1, 11]
    branches.rename_branch(table._core.state(), "dev", "next")
    with pytest.raises(NotFound, match="its branches: next"):
        branches.find_branch(table._core.state(), "dev")
    branches.fast_forward(table._core.state(), "next")
    forget()
    assert snapshot_ids(table._core.state().table_files) == [2]
    assert sorted(table.scan().to_arrow().column("id").to_pylist()) == [1, 11]
    table.append(pa.table({"id": [99]}, schema=SCHEMA))
    assert table.scan().count() == 3
    branches.delete_branch(table._core.state(), "next")
    assert table.scan().count() == 3


def test_a_branch_exists_if_only_the_response_to_its_rename_gets_lost(table: Table) -> None:
    """It was reported as another writer's."""
    store = FaultyStore(LocalStore(), 0, after=True, only=frozenset({"rename"}))
    state = replace(table._core.state(), store=store)
    assert branches.create_branch(state, "b") and store.failed
    assert list(table.history.branches()) == ["b"]


def created(make: Callable[[], object]) -> bool:
    """Whether a creation succeeded; False if what it creates exists."""
    try:
        make()
    except AlreadyExists:
        return False
    return True


@pytest.mark.parametrize("other", ["create", "rename"])
@pytest.mark.parametrize("where", ["local", exhaustive("memory")])
def test_two_that_create_one_branch_at_once(
    tmp_path: Path, where: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: both succeeded, with the branch of one of them, or in a bucket with snapshots and tags of both."""
    monkeypatch.setattr(branches, "_CLAIM_WAIT", 0)
    seen = set()
    for number in range(200):
        root = f"memory://{uuid.uuid4()}/lake" if where == "memory" else f"{tmp_path}/{number}"
        table = bitlake.connect(root).create_table("t", SCHEMA)
        for i, tag in enumerate(("one", "two")):
            table.append(pa.table({"id": [i]}, schema=SCHEMA))
            table.history.create_tag(tag)
        state = table._core.state()
        if other == "rename":
            branches.create_branch(state, "c", "two")
        won = []

        def work(state: TableState = state, won: list[str] = won) -> None:
            make = partial(branches.create_branch, state, "b", "two")
            if created(make if other == "create" else partial(branches.rename_branch, state, "c", "b")):
                won.append("two")

        store = Between(state.store, number, work)
        if created(partial(branches.create_branch, replace(state, store=store), "b", "one")):
            won.append("one")
        if not store.done:
            break
        assert len(won) == 1, f"call {number}"
        branch = state.table_files.on_branch("b")
        assert tag_names(branch) == won and snapshot_ids(branch) == [1 if won == ["one"] else 2], f"call {number}"
        assert not [
            n for n in state.store.names(f"{state.paths.root}/branch") if n.startswith((".creating", ".making"))
        ]
        seen |= set(won)
    assert seen == {"one", "two"}


@pytest.mark.parametrize("later", [61_000, -3_600_000])
def test_the_claim_of_a_killed_process_is_ignored_after_a_minute(
    table: Table, monkeypatch: pytest.MonkeyPatch, later: int
) -> None:
    """Also if its clock was an hour fast."""
    monkeypatch.setattr(branches, "_CLAIM_WAIT", 0)
    state = table._core.state()
    store = FaultyStore(LocalStore(), 1, dead=True, only=frozenset({"create", "write", "delete", "rename"}))
    with pytest.raises(StorageUnavailable):
        branches.create_branch(replace(state, store=store), "b")
    killed = _clock.now_ms()
    for seconds, words in ((0, "60 seconds"), (20, "40 seconds"), (59, "1 second$")):
        monkeypatch.setattr(_clock, "now_ms", lambda at=killed + seconds * 1000: at)
        with pytest.raises(AlreadyExists, match=f"creating branch 'b'; if it was killed, try again in {words}"):
            branches.create_branch(state, "b", if_not_exists=True)
    now = _clock.now_ms()
    monkeypatch.setattr(_clock, "now_ms", lambda: now + later)
    assert branches.create_branch(state, "b") and list(table.history.branches()) == ["b"]


def test_branches_that_cannot_be_made(table: Table) -> None:
    for name in ("main", "12", "", "a/b"):
        with pytest.raises(InvalidRequest, match="invalid branch name"):
            branches.create_branch(table._core.state(), name)
    branches.create_branch(table._core.state(), "dev")
    assert not branches.create_branch(table._core.state(), "dev", if_not_exists=True)
    with pytest.raises(AlreadyExists):
        branches.create_branch(table._core.state(), "dev")
    with pytest.raises(InvalidRequest, match="no snapshot to go forward to"):
        branches.fast_forward(table._core.state(), "dev")
    with pytest.raises(NotFound, match="no tag 'x'"):
        branches.create_branch(table._core.state(), "other", "x")


def test_rollback_makes_an_earlier_snapshot_the_latest(table: Table) -> None:
    state = table._core.state()
    assert rollback(state, load_snapshot(state.table_files, 2)) == [3, 4]
    assert sorted(table.scan().to_arrow().column("id").to_pylist()) == [1, 11]
    table.append(pa.table({"id": [5]}, schema=SCHEMA))
    assert snapshot_ids(state.table_files) == [1, 2, 3] and table.scan().count() == 3


def test_rollback_to_a_tag_whose_snapshot_has_expired(table: Table) -> None:
    tags.create_tag(table._core.state(), "one", 1)
    table.maintenance.expire_snapshots(**terms(ALL))
    rollback(table._core.state(), tags.load_tag(table._core.state(), "one").snapshot)
    forget()
    assert sorted(table.scan().to_arrow().column("id").to_pylist()) == [0, 10]
    assert Path(table.path, "snapshot/EARLIEST").read_text() == "1"


def test_rollback_past_a_tag_is_refused(table: Table) -> None:
    tags.create_tag(table._core.state(), "three", 3)
    with pytest.raises(InvalidRequest, match="tags three hold later ones"):
        rollback(table._core.state(), load_snapshot(table._core.state().table_files, 2))
    assert table.scan().count() == 2 and len(snapshot_ids(table._core.state().table_files)) == 4


@pytest.mark.parametrize("producer", ["input", "lookup"])
def test_a_tag_takes_the_changelog_along_that_only_it_kept(tmp_path: Path, producer: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
    options = {"bucket": "1", "changelog-producer": producer}
    table = bitlake.connect(tmp_path).create_table("k", schema, primary_key=["id"], options=options)
    for value in "abc":
        table.upsert(pa.table([[1], [value]], schema=schema))
    tagged = next(s for s in table.history.snapshots() if s.changelog_manifest_list is not None)
    table.history.create_tag("one", tagged.id)
    table.history.create_tag("same", tagged.id)
    table.maintenance.expire_snapshots(retain_max=1, retain_min=1, older_than=2**60)

    def changelogs() -> int:
        return len(list(Path(table.path).rglob("changelog-*")))

    kept = changelogs()
    table.history.delete_tag("same")
    assert changelogs() == kept, "the other tag needs it"
    table.history.delete_tag("one")
    assert changelogs() == kept - 1
    assert table.maintenance.remove_orphan_files(older_than=2**60) == []


def test_success_files_of_tags(table: Table) -> None:
    """The folder of these files was read as a tag: tags were not listed, and snapshots did not expire."""
    table.alter_options({"tag.create-success-file": "true"})
    table.history.create_tag("a", 1)
    folder = Path(table.path, "tag", "tag-success-file")
    first = json.loads((folder / "a_SUCCESS").read_text())
    assert set(first) == {"creationTime", "modificationTime"}
    table.history.replace_tag("a", 2)
    again = json.loads((folder / "a_SUCCESS").read_text())
    assert again["creationTime"] == first["creationTime"] < again["modificationTime"] + 1
    assert list(table.history.tags()) == tag_names(table._core.state().table_files) == ["a"]
    assert table.maintenance.expire_snapshots(retain_max=1, older_than=timedelta(0)).snapshots == (1, 2, 3)
    assert table.maintenance.remove_orphan_files(older_than=timedelta(0)) == []
    table.history.rename_tag("a", "b")
    assert [f.name for f in folder.iterdir()] == ["b_SUCCESS"]
    table.history.delete_tag("b")
    assert list(folder.iterdir()) == []
