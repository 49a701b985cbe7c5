"""Iceberg metadata beside the rest of a table's life: deaths, rollbacks, tags, expiry, orphan files, renames."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from iceberg_reader import IcebergTable, local, sorted_rows
from long import long
from store_wrappers import CountingStore, FaultyStore, RequestsRepeated

import bitlake
from bitlake.errors import InvalidRequest
from bitlake.file_store_table import FileStoreTable
from bitlake.metadata.snapshot import Snapshot
from bitlake.snapshot.iceberg_metadata import create_iceberg_metadata, publish_commit
from bitlake.snapshot.state import TableState
from bitlake.table.table import Table

ON = {"metadata.iceberg.storage": "table-location"}
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])


def table_of(root: Path, **more: str) -> Table:
    return bitlake.connect(str(root)).create_table("t", SCHEMA, options={**ON, **more})


def rows_of(ids: range | list[int]) -> pa.Table:
    return pa.table({"id": list(ids), "v": [f"v{i}" for i in ids]}, schema=SCHEMA)


def folder_of(table: Table) -> Path:
    return Path(table.path) / "metadata"


def iceberg(table: Table) -> IcebergTable:
    found = IcebergTable.open(folder_of(table))
    found.check()
    return found


def assert_published(table: Table) -> IcebergTable:
    found = iceberg(table)
    assert found.metadata["current-snapshot-id"] == table.snapshot.id
    assert found.current["summary"]["paimon-commit-identity"] == table.snapshot.uuid
    assert sorted_rows(found.rows()) == sorted_rows(table.scan().to_arrow())
    return found


def unpublished(table: Table, change: Callable[[], object]) -> TableState:
    """Commit without publishing, as a process does that dies between Paimon's metadata and Iceberg's."""
    table.alter_options({"metadata.iceberg.storage": "disabled"})
    change()
    table.alter_options(ON)
    return table._core.state()


def test_requests_that_arrive_twice(tmp_path: Path) -> None:
    plain = table_of(tmp_path)
    table = Table(FileStoreTable(plain.name, plain.path, RequestsRepeated()))
    for i in range(3):
        table.append(rows_of([i]))
        assert_published(plain)


@pytest.mark.exhaustive
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("base", [True, False], ids=["incremental", "rebuild"])
@pytest.mark.parametrize("each", [3, long(1)])
def test_a_death_at_each_step(tmp_path: Path, after: bool, base: bool, each: int) -> None:
    """The process dies at each call of the store: readers see the table before the commit or after it."""
    ended = set()
    for step in range(0, 40, each):
        table = table_of(tmp_path / str(step))
        table.append(rows_of(range(10)))
        table.append(rows_of(range(10, 20)))
        if not base:
            unpublished(table, lambda table=table: table.append(rows_of([])) or table.delete("id = 4"))
        before = IcebergTable.open(folder_of(table)).metadata["current-snapshot-id"]
        state = unpublished(table, lambda table=table: table.delete("id = 3"))
        store = FaultyStore(state.store, step, after=after, dead=True)
        publish_commit(replace(state, store=store), None)
        found = iceberg(table)
        now = found.metadata["current-snapshot-id"]
        assert now in (before, state.snapshot_id)
        assert len(found.rows()) == (20 if now == before else 19 if base else 18)
        ended.add(now == before)
        # The next commit makes up for it, and nothing that a death left is named by anything.
        table.append(rows_of([100]))
        assert_published(table)
        table.maintenance.remove_orphan_files(timedelta(days=-1))
        found = assert_published(table)
        lists = {local(s["manifest-list"]) for s in found.metadata["snapshots"]}
        manifests = {local(m["manifest_path"]) for s in found.metadata["snapshots"] for m in found.manifests(s)}
        assert set(folder_of(table).glob("*.avro")) == lists | manifests
        if not store.failed:
            break
    else:
        pytest.fail("a publication takes more than 40 calls of the store")
    assert ended == {True, False}


def test_commits_that_were_not_published_are_made_up_for(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    table.append(rows_of(range(10)))
    uuid = assert_published(table).metadata["table-uuid"]
    table.alter_options({"metadata.iceberg.storage": "disabled"})
    table.append(rows_of(range(10, 20)))
    table.delete("id = 3")
    assert len(iceberg(table).rows()) == 10  # as it was
    table.alter_options(ON)
    table.append(rows_of(range(20, 30)))
    found = assert_published(table)
    assert [s["snapshot-id"] for s in found.metadata["snapshots"]] == [4]
    assert found.metadata["table-uuid"] == uuid and len(found.rows()) == 29
    # Nothing of the earlier metadata is left.
    assert {p.name for p in folder_of(table).iterdir()} == {
        "version-hint.text",
        "v4.metadata.json",
        local(found.current["manifest-list"]).name,
        *(local(m["manifest_path"]).name for m in found.manifests()),
    }


@pytest.mark.parametrize("damage", ["metadata", "list", "manifest"])
@pytest.mark.parametrize("how", ["cut", "gone", "garbage"])
def test_damaged_metadata_is_written_again(tmp_path: Path, damage: str, how: str) -> None:
    table = table_of(tmp_path)
    table.append(rows_of(range(10)))
    found = assert_published(table)
    file = {
        "metadata": folder_of(table) / "v1.metadata.json",
        "list": local(found.current["manifest-list"]),
        "manifest": local(found.manifests()[0]["manifest_path"]),
    }[damage]
    match how:
        case "cut":
            file.write_bytes(file.read_bytes()[:-20])
        case "gone":
            file.unlink()
        case "garbage":
            file.write_bytes(b"{}")
    table.delete("id = 3")
    assert len(assert_published(table).rows()) == 9


def test_a_rollback_is_published_at_once(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    for i in range(4):
        table.append(rows_of(range(i * 10, i * 10 + 10)))
    before = iceberg(table).metadata
    table.history.rollback(2)
    found = assert_published(table)
    assert len(found.rows()) == 20 and found.metadata["table-uuid"] == before["table-uuid"]
    assert [p.name for p in folder_of(table).glob("v*.json")] == ["v2.metadata.json"]
    # Snapshot 3 is another one now.
    table.append(rows_of(range(50, 55)))
    found = assert_published(table)
    assert len(found.rows()) == 25 and found.metadata["table-uuid"] == before["table-uuid"]


def test_metadata_of_an_abandoned_history_is_replaced(tmp_path: Path) -> None:
    """A rollback by a process that died: the next commit reuses ids of what was published."""
    table = table_of(tmp_path, **{"metadata.iceberg.delete-after-commit.enabled": "false"})
    for i in range(4):
        table.append(rows_of(range(i * 10, i * 10 + 10)))
    saved = {p: p.read_bytes() for p in folder_of(table).iterdir()}
    table.history.rollback(1)
    for path in folder_of(table).iterdir():
        path.unlink()
    for path, data in saved.items():
        path.write_bytes(data)
    table.append(rows_of(range(90, 93)))
    found = assert_published(table)
    assert len(found.rows()) == 13
    versions = sorted(p.name for p in folder_of(table).glob("v*.json"))
    assert versions == ["v1.metadata.json", "v2.metadata.json"]


def test_fast_forward_is_published(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    table.append(rows_of(range(10)))
    table.history.create_tag("start")
    table.history.create_branch("dev", tag="start")
    dev = bitlake.connect(str(tmp_path)).table("t$branch_dev")
    dev.append(rows_of(range(10, 13)))
    assert len(iceberg(table).rows()) == 10  # branches are not shown
    table.history.fast_forward("dev")
    assert len(assert_published(table).rows()) == 13


def test_tags_are_refs(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    table.append(rows_of(range(3)))
    table.history.create_tag("one")
    table.append(rows_of(range(3, 6)))
    table.history.create_tag("two", snapshot=2)

    def refs() -> dict[str, int]:
        found = iceberg(table).metadata["refs"]
        assert all(r["type"] == "tag" and r["max-ref-age-ms"] == 2**63 - 1 for r in found.values())
        return {name: r["snapshot-id"] for name, r in found.items()}

    assert refs() == {"one": 1, "two": 2}
    table.history.rename_tag("two", "second")
    table.history.replace_tag("one", snapshot=2)
    assert refs() == {"one": 2, "second": 2}
    table.append(rows_of(range(6, 9)))
    assert refs() == {"one": 2, "second": 2}
    assert sorted_rows(iceberg(table).rows(2)) == sorted_rows(table.scan(tag="second").to_arrow())
    table.history.delete_tag("one")
    assert refs() == {"second": 2}
    # A tag gets no ref while the metadata does not list its snapshot: readers would fail.
    table.alter_options({"snapshot.num-retained.max": "1", "snapshot.num-retained.min": "1"})
    table.append(rows_of([100]))
    assert refs() == {} and [s["snapshot-id"] for s in iceberg(table).metadata["snapshots"]] == [4]


def test_a_new_tag_reads_no_older_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each new tag read and parsed all others: those before the last commit are in its metadata."""
    table = table_of(tmp_path)
    table.append(rows_of(range(3)))
    for i in range(3):
        table.history.create_tag(f"old{i}")
        os.utime(Path(table.path, f"tag/tag-old{i}"), (time.time() - 7200,) * 2)
    table.append(rows_of(range(3)))
    table.history.create_tag("young")
    store = CountingStore(table._core.store)
    monkeypatch.setattr(table._core, "store", store)
    parsed: list[str] = []
    from_json = Snapshot.from_json
    monkeypatch.setattr(Snapshot, "from_json", lambda data, path: parsed.append(path) or from_json(data, path))
    table.history.create_tag("new")
    assert {n for kind, n in store.paths if kind == "read" and "/tag/" in n} == {
        f"{table.path}/tag/tag-{name}" for name in ("young", "new")
    }
    assert [Path(path).name for path in parsed if "/tag/" in path] == ["tag-new"]
    assert iceberg(table).metadata["refs"].keys() == {"old0", "old1", "old2", "young", "new"}


def test_automatic_tags_are_refs(tmp_path: Path) -> None:
    table = table_of(tmp_path, **{"tag.automatic-creation": "batch", "tag.batch.customized-name": "last"})
    for i in range(3):
        table.append(rows_of([i]))
        assert iceberg(table).metadata["refs"]["last"]["snapshot-id"] == i + 1


def test_expired_snapshots_leave_the_metadata(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    for i in range(5):
        table.append(rows_of(range(i * 10, i * 10 + 10)))
    table.delete("id < 20")
    table.history.create_tag("kept", snapshot=2)
    table.maintenance.expire_snapshots(retain_max=2, retain_min=1, older_than=timedelta(0))
    found = assert_published(table)
    assert [s["snapshot-id"] for s in found.metadata["snapshots"]] == [2, 6]
    for number in (2, 6):
        rows = table.scan(tag="kept") if number == 2 else table.scan(snapshot=number)
        assert sorted_rows(found.rows(number)) == sorted_rows(rows.to_arrow())
    table.append(rows_of([70]))
    assert_published(table)


def test_orphan_files_are_those_that_nothing_names(tmp_path: Path) -> None:
    """Of a killed publication; referenced metadata and the files of others are never deleted."""
    table = table_of(tmp_path)
    for i in range(3):
        table.append(rows_of(range(i * 10, i * 10 + 10)))
    folder = folder_of(table)
    kept = {p.name for p in folder.iterdir()}
    uuid = "0f0e0d0c-1111-4222-8333-123456789abc"
    stray = {f"{uuid}-m1.avro", f"snap-1-{uuid}.avro"}
    foreign = {"notes.txt", "other-m1.avro", "snap.avro", "part-0.parquet"}
    for name in stray | foreign:
        (folder / name).write_bytes(b"x")
    young = folder / "0f0e0d0c-1111-4222-8333-123456789abd-m1.avro"
    for path in folder.iterdir():
        os.utime(path, (time.time() - 200_000, time.time() - 200_000))
    young.write_bytes(b"x")
    found = table.maintenance.remove_orphan_files(dry_run=True)
    assert {Path(o.path).name for o in found} == stray
    table.maintenance.remove_orphan_files()
    assert {p.name for p in folder.iterdir()} == {*kept, *foreign, young.name}
    assert_published(table)
    # If metadata cannot be read, what it names is unknown.
    (folder / "v3.metadata.json").write_bytes(b"{")
    os.utime(young, (0, 0))
    with pytest.raises(bitlake.errors.CorruptError, match="v3.metadata.json"):
        table.maintenance.remove_orphan_files()
    assert young.exists()


def test_orphan_files_of_a_hadoop_catalog(tmp_path: Path) -> None:
    table = table_of(tmp_path, **{"metadata.iceberg.storage": "hadoop-catalog"})
    table.append(rows_of(range(3)))
    stray = tmp_path / "iceberg/default/t/metadata/0f0e0d0c-1111-4222-8333-123456789abd-m1.avro"
    stray.write_bytes(b"x")
    os.utime(stray, (0, 0))
    assert [o.path for o in table.maintenance.remove_orphan_files()] == [str(stray)]
    assert not stray.exists()


def test_a_renamed_table_is_described_where_it_is(tmp_path: Path) -> None:
    lake = bitlake.connect(str(tmp_path))
    table = table_of(tmp_path)
    table.append(rows_of(range(3)))
    lake.rename_table("t", "u")
    table = lake.table("u")
    table.append(rows_of([7]))
    found = assert_published(table)
    assert found.metadata["location"] == f"file:{table.path}" and all(f.startswith(table.path) for f in found.files())


def test_existing_tables(tmp_path: Path) -> None:
    table = bitlake.connect(str(tmp_path)).create_table("t", SCHEMA)
    with pytest.raises(InvalidRequest, match="metadata.iceberg.storage"):
        table.maintenance.create_iceberg_metadata()
    table.alter_options(ON)
    with pytest.raises(InvalidRequest, match="no snapshot yet"):
        table.maintenance.create_iceberg_metadata()
    table.alter_options({"metadata.iceberg.storage": "disabled"})
    for i in range(3):
        table.append(rows_of(range(i * 10, i * 10 + 10)))
    table.alter_options(ON)
    path = table.maintenance.create_iceberg_metadata()
    assert path == f"{table.path}/metadata/v3.metadata.json" and Path(path).exists()
    first = assert_published(table).metadata
    assert table.maintenance.create_iceberg_metadata() == path
    assert iceberg(table).metadata == first
    table.append(rows_of([77]))
    found = assert_published(table)
    assert [s["snapshot-id"] for s in found.metadata["snapshots"]] == [3, 4]


def test_a_delayed_publication_does_not_move_the_hint_back(tmp_path: Path) -> None:
    """Two writers: the first to commit is the last to publish."""
    table = table_of(tmp_path)
    table.append(rows_of(range(3)))
    slow = unpublished(table, lambda: table.append(rows_of(range(3, 6))))
    table.append(rows_of(range(6, 9)))
    publish_commit(slow, None)
    assert len(assert_published(table).rows()) == 9
    table.append(rows_of(range(9, 12)))
    assert len(assert_published(table).rows()) == 12


def test_the_requests_of_a_commit_do_not_grow(tmp_path: Path) -> None:
    """Whatever the number of commits before: no manifest is read."""
    table = table_of(tmp_path)
    table.append(rows_of([0]))
    counted = []
    for i in range(1, 8):
        state = unpublished(table, lambda i=i: table.append(rows_of([i])))
        store = CountingStore(state.store)
        publish_commit(replace(state, store=store), None)
        counted.append(sum(store.calls.values()))
        assert not [path for name, path in store.paths if name == "read" and "-m" in path and path.endswith(".avro")]
    assert len(set(counted[1:])) == 1 and counted[-1] <= 24, counted
    assert len(assert_published(table).manifests()) == 8


def test_branches_are_not_shown(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    table.append(rows_of(range(3)))
    table.history.create_tag("start")
    table.history.create_branch("dev", tag="start")
    dev = bitlake.connect(str(tmp_path)).table("t$branch_dev")
    with pytest.raises(InvalidRequest, match="main branch"):
        create_iceberg_metadata(dev._core.state())


def test_an_object_store() -> None:
    table = bitlake.connect("memory://bucket/lake").create_table(
        "t", SCHEMA, options={"metadata.iceberg.storage": "hadoop-catalog"}
    )
    store, root = table._core.store, "memory://bucket/lake/iceberg/default/t/metadata"
    for i in range(3):
        table.append(rows_of([i]))
    table.delete("id = 1")
    assert store.read(f"{root}/version-hint.text") == b"4"
    table.history.rollback(2)
    assert store.read(f"{root}/version-hint.text") == b"2"
    metadata = json.loads(store.read(f"{root}/v2.metadata.json"))
    assert metadata["location"] == table.path and metadata["current-snapshot-id"] == 2
    assert metadata["snapshots"][-1]["manifest-list"].startswith(root)
