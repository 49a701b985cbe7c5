from __future__ import annotations

import pickle
import threading
from pathlib import Path
from typing import Any

import credential_server
import pyarrow as pa
import pytest
import rest_server
import s3_server
from catalog.conftest import OPTIONS, first, lake_of

from bitlake import _clock
from bitlake.catalog.catalog import Identifier
from bitlake.errors import (
    AccessDenied,
    AlreadyExists,
    CommitConflict,
    CorruptError,
    InvalidRequest,
    NotFound,
    StorageUnavailable,
    UnsupportedFeature,
)
from bitlake.lake import Lake, connect
from bitlake.snapshot.rollback import rollback
from bitlake.table.table import Table

ROWS = pa.schema({"id": pa.int64(), "p": pa.string()})


def rows(*ids: int, p: str = "x") -> pa.Table:
    return pa.table({"id": list(ids), "p": [p] * len(ids)}, schema=ROWS)


def ids(lake: Lake, name: str = "t") -> list[int]:
    return sorted(lake.table(name).scan().to_arrow()["id"].to_pylist())


# --- names ------------------------------------------------------------------------------------------------------------


def test_databases(lake: Lake, server: rest_server.Server) -> None:
    names = ["a b/ü", "c%", "d", "e", "f"]
    for name in names[2:]:
        lake.create_database(name)
    assert lake.databases() == ["d", "e", "f"], "a list has more than one page"
    with pytest.raises(AlreadyExists, match="database 'd'"):
        lake.create_database("d")
    lake.create_database("d", if_not_exists=True)
    lake._catalog.create_database("c%", properties={"k": "v"})
    lake._catalog.alter_database("c%", {"l": "w"})
    assert lake._catalog.database_properties("c%") == {"k": "v", "l": "w"}
    assert lake._catalog.database_path("c%") == f"file://{server.root}/c%"
    lake.drop_database("d")
    lake.drop_database("d", if_exists=True)
    for attempt in (
        lambda: lake.drop_database("d"),
        lambda: lake.tables("d"),
        lambda: lake._catalog.alter_database("d", {}),
        lambda: lake._catalog.database_properties("d"),
        lambda: lake.create_table("d.t", ROWS),
    ):
        with pytest.raises(NotFound, match="database 'd'"):
            attempt()


def test_tables(lake: Lake, server: rest_server.Server) -> None:
    assert lake.tables() == []
    for name in ("t3", "T1", "a b%3A", "t2"):
        lake.create_table(name, ROWS, partition_by=["p"], options={"bucket": "-1"}, comment="hello")
    assert lake.databases() == ["default"] and lake.tables() == ["T1", "a b%3A", "t2", "t3"]
    schema = lake.table("t1").schema
    assert schema.partition_keys == ("p",) and schema.comment == "hello" and schema.options["bucket"] == "-1"
    with pytest.raises(AlreadyExists, match=r"default\.t2"):
        lake.create_table("t2", ROWS)
    lake.create_table("t2", ROWS, if_not_exists=True)
    with pytest.raises(InvalidRequest, match="too many buckets"):
        lake.create_table("many", ROWS, primary_key=["id"], options={"bucket": "9999"})
    lake.create_database("other")
    lake.table("t2").append(rows(1))
    with pytest.raises(AlreadyExists):
        lake.rename_table("t2", "t3")
    with pytest.raises(NotFound, match="database 'no'"):
        lake.rename_table("t2", "no.t2")
    lake.rename_table("t2", "other.moved")
    assert lake.tables() == ["T1", "a b%3A", "t3"] and ids(lake, "other.moved") == [1]
    with pytest.raises(InvalidRequest, match="not empty"):
        lake.drop_database("other")
    lake.drop_database("other", cascade=True)
    lake.drop_table("t3")
    lake.drop_table("t3", if_exists=True)
    for attempt in (lambda: lake.drop_table("t3"), lambda: lake.table("t3"), lambda: lake.rename_table("t3", "x")):
        with pytest.raises(NotFound, match=r"default\.t3"):
            attempt()


def test_names_that_paths_take_for_other_folders(lake: Lake, server: rest_server.Server) -> None:
    """Bug: DROP TABLE `..` sent requests about the folder above the tables, which is the database."""
    lake.create_database("d")
    start = len(server.seen)
    for attempt in (
        lambda: lake.sql("DROP TABLE `..`", engine="duckdb"),
        lambda: lake.sql("SELECT * FROM d.`.`", engine="duckdb"),
        lambda: lake.drop_table("`..`"),
        lambda: lake.drop_database(".."),
        lambda: lake.drop_database(""),
        lambda: lake._catalog.drop_view(Identifier("d", "..")),
    ):
        with pytest.raises(InvalidRequest, match="invalid name"):
            attempt()
    assert len(server.seen) == start


def test_what_is_no_table_of_files_is_refused(lake: Lake, server: rest_server.Server) -> None:
    lake.create_table("t", ROWS)
    server.tables["default", "t"].schema["options"]["type"] = "format-table"
    with pytest.raises(UnsupportedFeature, match="format-table"):
        lake.table("t")
    server.tables["default", "t"].schema["options"].pop("type")
    server.tables["default", "t"].path += "-gone"
    with pytest.raises(NotFound, match="be reached from here"):
        lake.table("t")


# --- rows -------------------------------------------------------------------------------------------------------------


def test_rows_are_committed_by_the_server(lake: Lake, server: rest_server.Server) -> None:
    table = lake.create_table("t", ROWS, partition_by=["p"])
    table.append(pa.table({"id": [1, 2, 3], "p": ["a:b", "a:b", None]}, schema=ROWS))
    table.append(rows(4))
    assert ids(lake_of(server)) == [1, 2, 3, 4]
    one, two = server.commits
    assert one["baseSnapshotUuid"] is None and two["baseSnapshotUuid"] == one["snapshot"]["uuid"]
    assert one["tableId"] == server.tables["default", "t"].id
    told = {s["spec"]["p"]: (s["recordCount"], s["fileCount"], s["totalBuckets"]) for s in one["statistics"]}
    assert told == {"a:b": (2, 1, -1), "__DEFAULT_PARTITION__": (1, 1, -1)}
    assert all(s["fileSizeInBytes"] > 100 for s in one["statistics"])
    created = [s["lastFileCreationTime"] for s in one["statistics"]]
    assert all(abs(c - one["snapshot"]["timeMillis"]) < 60_000 for c in created)
    table.overwrite(rows(5, p="a:b"))
    told = {s["spec"]["p"]: s["recordCount"] for s in server.commits[2]["statistics"]}
    assert told["a:b"] == 1 - 2


def test_keys_and_compaction(lake: Lake, server: rest_server.Server) -> None:
    table = lake.create_table("t", ROWS, primary_key=["id"], options={"bucket": "2"})
    table.upsert(rows(1, 2, p="old"))
    table.upsert(rows(2, 3, p="new"))
    table.maintenance.compact(full=True)
    found = lake_of(server).table("t").scan().to_arrow()
    assert dict(zip(found["id"].to_pylist(), found["p"].to_pylist())) == {1: "old", 2: "new", 3: "new"}


def test_two_committers(lake: Lake, server: rest_server.Server) -> None:
    lake.create_table("t", ROWS)
    failed: list[BaseException] = []

    def run(number: int) -> None:
        try:
            table = lake_of(server).table("t")
            for i in range(5):
                table.append(rows(100 * number + i))
        except BaseException as e:
            failed.append(e)
            raise

    threads = [threading.Thread(target=run, args=(i,)) for i in (1, 2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed
    assert ids(lake) == [*range(100, 105), *range(200, 205)]


@pytest.mark.parametrize("what", [rest_server.DROP, rest_server.LOSE_ANSWER, 503, 500, 429])
def test_a_lost_commit_is_found_or_made_again_and_never_twice(
    lake: Lake, server: rest_server.Server, what: object
) -> None:
    table = lake.create_table("t", ROWS)
    table.append(rows(1))
    server.plan = first("commit", what, what)
    table.append(rows(2))
    assert ids(lake) == [1, 2]


def test_a_commit_that_a_gateway_sends_twice_is_made_once(lake: Lake, server: rest_server.Server) -> None:
    table = lake.create_table("t", ROWS)
    for number in (1, 2):
        server.plan = first("commit", rest_server.REPEAT)
        snapshot = table.append(rows(number))
        assert snapshot is not None and snapshot.id == number
    assert ids(lake) == [1, 2]


def test_a_commit_whose_response_is_lost_is_found_by_its_uuid(lake: Lake, server: rest_server.Server) -> None:
    """The server acts and closes the socket: the request is not sent again, the table says what became of it."""
    table = lake.create_table("t", ROWS)
    server.plan = first("commit", rest_server.LOSE_ANSWER)
    table.append(rows(1))
    assert len(server.commits) == 1 and ids(lake) == [1]


def test_creations_and_renames_whose_responses_are_lost_are_not_sent_again(
    lake: Lake, server: rest_server.Server
) -> None:
    lake.create_table("first", ROWS)
    for name, change in (
        ("tables", lambda: lake.create_table("t", ROWS)),
        ("rename", lambda: lake.rename_table("t", "u")),
        ("databases", lambda: lake.create_database("d")),
        ("first", lambda: lake.table("first").add_column("n", "INT")),
    ):
        start = len(server.seen)
        server.plan = first(name, rest_server.LOSE_ANSWER)
        with pytest.raises(StorageUnavailable, match="dropped; whether it made the change is unknown"):
            change()
        sent = [path.rpartition("/")[2] for method, path in server.seen[start:] if method == "POST"]
        assert sent == [name]
    assert lake.tables() == ["first", "u"] and "d" in lake.databases()
    assert [f.name for f in lake.table("first").schema.fields] == ["id", "p", "n"]


def test_a_commit_that_never_gets_through_leaves_the_table_as_it_was(lake: Lake, server: rest_server.Server) -> None:
    table = lake.create_table("t", ROWS, options={"commit.max-retries": "1"})
    table.append(rows(1))
    server.plan = first("commit", *[rest_server.DROP] * 9)
    with pytest.raises(StorageUnavailable):
        table.append(rows(2))
    server.plan = first("commit", *[rest_server.LOSE_ANSWER] * 9)
    assert ids(lake) == [1]
    table.append(rows(3))
    assert ids(lake) == [1, 3]
    server.plan = first("commit", 403)
    with pytest.raises(AccessDenied):
        table.append(rows(4))
    assert ids(lake) == [1, 3]


def test_a_table_made_anew_takes_no_commits_meant_for_the_old_one(lake: Lake, server: rest_server.Server) -> None:
    table = lake.create_table("t", ROWS, options={"commit.max-retries": "1"})
    server.tables["default", "t"].id = "another"
    with pytest.raises(CommitConflict, match="dropped, replaced or renamed"):
        table.append(rows(1))
    assert ids(lake) == []


def test_commits_and_changes_of_a_table_that_another_client_renamed(lake: Lake, server: rest_server.Server) -> None:
    """Bug: a commit was sent eleven times, and its outcome "unknown"; an ALTER changed the new table of the name."""
    table = lake.create_table("t", ROWS)
    table.append(rows(1))
    other = lake_of(server)
    other.rename_table("t", "u")
    sent = len(server.seen)
    for _ in range(2):
        with pytest.raises(
            CommitConflict, match="table 'default.t' was dropped, replaced or renamed.* no change is vis"
        ):
            table.append(rows(2))
        with pytest.raises(NotFound, match="default.t"):
            table.add_column("n", "INT")
        other.create_table("t", ROWS, if_not_exists=True)
    assert sum(name.endswith("/commit") for _, name in server.seen[sent:]) == 2
    assert not server.changes and ids(lake) == [] and ids(lake, "u") == [1]
    data = Path(table.path.removeprefix("file://")).glob("bucket-0/*.parquet")
    assert len(list(data)) == 1, "files of refused commits are deleted"


# --- schemas ----------------------------------------------------------------------------------------------------------


def test_columns_and_options_change_through_the_server(lake: Lake, server: rest_server.Server) -> None:
    table = lake.create_table("t", ROWS, options={"a": "1"})
    table.append(rows(1))
    table.add_column("n", "INT", comment="new", after="id")
    table.rename_column("p", "q")
    table.alter_column("n", type="BIGINT", comment="newer", first=True)
    table.drop_column("q")
    assert [f.name for f in table.schema.fields] == ["n", "id"]
    assert [c["action"] for c in server.changes] == [
        "addColumn",
        "renameColumn",
        "updateColumnType",
        "updateColumnComment",
        "updateColumnPosition",
        "dropColumn",
    ]
    assert server.changes[0]["move"] == {"fieldName": "n", "referenceFieldName": "id", "type": "AFTER"}
    assert server.tables["default", "t"].schema_id == 4
    assert lake_of(server).table("t").scan().to_arrow().to_pylist() == [{"n": None, "id": 1}]
    lake.table("t").append(pa.table({"n": [2], "id": [2]}))
    assert ids(lake) == [1, 2]
    table.alter_options({"b": "2"}, unset=["a"])
    assert dict(table.schema.options) == dict(server.tables["default", "t"].schema["options"])


@pytest.mark.parametrize("key", [[], ["id"]])
def test_deletion_vectors_are_switched_on_and_off(lake: Lake, key: list[str]) -> None:
    """Bug: the switch was made, and then 'was dropped, replaced or renamed': the server's schema has its own time."""
    table = lake.create_table("v", ROWS, primary_key=key, options={"bucket": "1", "bucket-key": "id"})
    table.append(rows(1, 2))
    for on in (True, False):
        switch = table.maintenance.enable_deletion_vectors if on else table.maintenance.disable_deletion_vectors
        assert switch().options["deletion-vectors.enabled"] == str(on).lower()
        assert lake.table("v").snapshot.schema_id == lake.table("v").schema.id  # type: ignore[union-attr]
        lake.table("v").append(rows(3 if on else 4))
        lake.table("v").maintenance.compact()
        lake.table("v").delete("id = 1")
        assert ids(lake, "v") == ([2, 3] if on else [2, 3, 4])


def test_tags_are_files_and_expiry_keeps_the_last_snapshot(lake: Lake, server: rest_server.Server) -> None:
    table = lake.create_table("t", ROWS)
    for i in range(4):
        table.append(rows(i))
    table.history.create_tag("two", 2)
    assert table.maintenance.expire_snapshots(retain_max=2, retain_min=1).snapshots == (1, 2)
    assert ids(lake) == [0, 1, 2, 3]
    assert sorted(table.scan(tag="two").to_arrow()["id"].to_pylist()) == [0, 1]
    table.history.delete_tag("two")
    assert not table.history.tags()
    with pytest.raises(UnsupportedFeature, match="only its server changes snapshot/snapshot-4"):
        lake._catalog.store.delete(f"{server.tables['default', 't'].path}/snapshot/snapshot-4")


def test_the_server_rolls_back_to_snapshots_and_tags(lake: Lake, server: rest_server.Server) -> None:
    table = lake.create_table("t", ROWS)
    for i in range(4):
        table.append(rows(i))
    table.history.create_tag("two", 2)
    stale = lake_of(server).table("t")
    assert table.history.rollback(3) == (4, 3)
    assert ids(lake) == [0, 1, 2]
    stale.append(rows(7))  # on the snapshot that is the latest now, not on 4
    assert ids(lake) == [0, 1, 2, 7]
    table.maintenance.expire_snapshots(retain_max=1, retain_min=1)
    assert table.history.rollback(tag="two") == (4, 2)
    assert ids(lake) == [0, 1]
    assert [r for r in server.seen if r[1].endswith("/rollback")] == [
        ("POST", "of/mine/databases/default/tables/t/rollback")
    ] * 2
    table.append(rows(8))
    assert ids(lake) == [0, 1, 8] and table.maintenance.verify().ok


def test_a_commit_that_is_rolled_back_at_once(
    lake: Lake, server: rest_server.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: the commit failed, since the hint of the last snapshot, which the server writes, could not be deleted."""
    table = lake.create_table("t", ROWS)
    table.append(rows(1))
    commit = rest_server._commit

    def then_roll_back(server: rest_server.Server, table: rest_server.Table, body: dict[str, Any]) -> dict[str, bool]:
        answer = commit(server, table, body)
        rest_server._rollback(table, {"type": "snapshot", "snapshotId": 1})
        return answer

    with monkeypatch.context() as patched:
        patched.setattr(rest_server, "_commit", then_roll_back)
        table.append(rows(2))
    assert ids(lake) == [1]
    table.append(rows(3))
    assert ids(lake) == [1, 3] and table.maintenance.verify().ok


def test_a_commit_on_a_snapshot_that_was_rolled_back(lake: Lake, server: rest_server.Server) -> None:
    """Bug: the request named no base, so that the server took a commit with rows that had been rolled back."""
    table = lake.create_table("t", ROWS)
    for i in range(3):
        table.append(rows(i))
    store, folder = lake._catalog.store, f"{table.path}/snapshot"
    table.append(rows(3))
    on_that = store.read(f"{folder}/snapshot-4")
    table.history.rollback(2)
    assert store.create(f"{folder}/snapshot-4", on_that) is False
    table.append(rows(7))  # another snapshot 3
    assert store.create(f"{folder}/snapshot-4", on_that) is False
    assert ids(lake) == [0, 1, 7] and len(server.commits) == 5


def test_a_snapshot_whose_id_another_one_has_now(lake: Lake, server: rest_server.Server) -> None:
    """Bug: the server was asked for the id, and rolled back to the snapshot that has it now."""
    table = lake.create_table("t", ROWS)
    for i in range(2):
        table.append(rows(i))
    state = table._core.state()
    snapshot = state.snapshot
    assert snapshot is not None
    table.history.rollback(1)
    for i in (2, 3):
        table.append(rows(i))
    with pytest.raises(NotFound, match="snapshot 2 was rolled back"):
        rollback(state, snapshot)
    assert ids(lake) == [0, 2, 3]


@pytest.mark.parametrize("what", [rest_server.LOSE_ANSWER, rest_server.DROP, 500])
def test_a_rollback_whose_response_is_lost(lake: Lake, server: rest_server.Server, what: object) -> None:
    table = lake.create_table("t", ROWS)
    for i in range(3):
        table.append(rows(i))
    server.plan = first("rollback", what)
    if what == rest_server.LOSE_ANSWER:
        assert table.history.rollback(1) == (3, 1)
        assert ids(lake) == [0]
    else:
        with pytest.raises(StorageUnavailable):
            table.history.rollback(1)
        assert ids(lake) == [0, 1, 2]


def test_the_server_makes_branches_and_commits_to_them(lake: Lake, server: rest_server.Server) -> None:
    table = lake.create_table("t", ROWS)
    table.append(rows(1))
    table.history.create_tag("one")
    table.append(rows(2))
    table.history.create_branch("b", tag="one")
    table.history.create_branch("empty")
    branch = lake.table("t$branch_b")
    branch.append(rows(10))
    branch.add_column("n", "INT")
    branch.append(pa.table({"id": [11], "p": ["y"], "n": pa.array([5], pa.int32())}))
    branch.history.create_tag("on_branch")
    assert ids(lake) == [1, 2] and ids(lake, "t$branch_b") == [1, 10, 11] and ids(lake, "t$branch_empty") == []
    assert sorted(table.history.branches()) == ["b", "empty"]
    commits = [path for method, path in server.seen if path.endswith("/commit")]
    assert commits[-1] == "of/mine/databases/default/tables/t%24branch_b/commit"
    assert [f.name for f in table.schema.fields] == ["id", "p"]
    with pytest.raises(AlreadyExists, match="already has a branch 'b'"):
        table.history.create_branch("b")
    with pytest.raises(NotFound, match="no tag 'nope'"):
        table.history.create_branch("c", tag="nope")
    table.history.rename_branch("empty", "e")
    table.history.delete_branch("e")
    assert table.history.branches() == ["b"]
    branch.history.delete_tag("on_branch")
    assert branch.history.rollback(2) == (3, 2)
    assert ids(lake, "t$branch_b") == [1, 10] and ids(lake) == [1, 2]
    table.history.fast_forward("b")
    assert ids(lake) == [1, 10]
    lake.table("t").append(pa.table({"id": [12], "p": ["y"], "n": pa.array([5], pa.int32())}))
    assert ids(lake) == [1, 10, 12] and lake.table("t").maintenance.verify().ok


def test_a_branch_that_another_client_creates_at_the_same_time(lake: Lake, server: rest_server.Server) -> None:
    """Bug: the server's 409 was an error also with IF NOT EXISTS."""
    history = lake.create_table("t", ROWS).history
    server.plan = first("branches", 409, 409)
    assert history.create_branch("b", if_not_exists=True) is False
    with pytest.raises(AlreadyExists, match="table 'default.t' already has a branch 'b'"):
        history.create_branch("b")


def test_tables_inside_the_folders_of_others_commit_through_the_server(lake: Lake, server: rest_server.Server) -> None:
    """Bug: the outer table's folder was found first, so that snapshots of the inner one were written as files."""
    lake.create_table("outer", ROWS).append(rows(1))
    lake.create_table("inner", ROWS)
    outer, inner = (server.tables["default", name] for name in ("outer", "inner"))
    folder = outer.folder / "t"
    inner.folder.rename(folder)
    inner.path = f"{outer.path}/t"
    lake = lake_of(server)
    assert ids(lake, "outer") == [1]
    lake.table("inner").append(rows(2))
    assert [c["tableId"] for c in server.commits] == [outer.id, inner.id] and ids(lake, "inner") == [2]


def test_tables_that_were_open_during_a_fast_forward(lake: Lake, server: rest_server.Server) -> None:
    """Main's schemas and snapshots are others under the same names then."""
    table = lake.create_table("t", ROWS)
    table.append(rows(1))
    table.history.create_tag("one")
    table.history.create_branch("b", tag="one")
    branch = lake.table("t$branch_b")
    branch.add_column("b", "INT")
    branch.append(pa.table({"id": [10], "p": ["x"], "b": pa.array([5], pa.int32())}))
    table.add_column("m", "STRING")
    table.append(pa.table({"id": [2], "p": ["x"], "m": ["s"]}))
    table.history.create_tag("gone")
    other = lake_of(server).table("t")
    assert other.count() == 2
    table.history.fast_forward("b")
    for opened in (table, other):
        assert opened.scan().to_arrow().column_names == ["id", "p", "b"] and opened.count() == 2
        assert list(opened.history.tags()) == ["one"]
    with pytest.raises(InvalidRequest, match="no column 'm'"):
        other.append(pa.table({"id": [3], "p": ["x"], "m": ["s"]}))
    other.append(rows(3))
    table.add_column("c", "INT")
    assert ids(lake) == [1, 3, 10] and table.maintenance.verify().ok


def test_expiry_after_a_fast_forward_to_a_branch_that_begins_earlier(lake: Lake) -> None:
    """Bug: the hint EARLIEST still named main's earliest snapshot, and expiry left those before it."""
    table = lake.create_table("t", ROWS)
    for i in range(4):
        table.append(rows(i))
        if i == 0:
            table.history.create_tag("first")
            table.history.create_branch("b", tag="first")
    table.maintenance.expire_snapshots(retain_max=2, retain_min=1)
    for i in (10, 11, 12):
        lake.table("t$branch_b").append(rows(i))
    table.history.fast_forward("b")
    assert [s.id for s in table.history.snapshots()] == [1, 2, 3, 4]
    assert table.maintenance.expire_snapshots(retain_max=1, retain_min=1).snapshots == (1, 2, 3)
    assert ids(lake) == [0, 10, 11, 12] and table.maintenance.verify().ok


def external_with_branch(lake: Lake, server: rest_server.Server) -> tuple[Table, Table]:
    """An external table with a row, and its branch ``b`` from there."""
    lake.create_table("t", ROWS)
    server.tables["default", "t"].external = True
    table = lake.table("t")
    table.append(rows(1))
    table.history.create_tag("one")
    table.history.create_branch("b", tag="one")
    return table, lake.table("t$branch_b")


def test_an_external_table_is_fast_forwarded_to_a_newer_schema(lake: Lake, server: rest_server.Server) -> None:
    """Bug: the fast-forward stopped half-way, each time, at replacing the schema that the server had written."""
    table, branch = external_with_branch(lake, server)
    branch.add_column("n", "INT")
    branch.append(pa.table({"id": [10], "p": ["x"], "n": pa.array([5], pa.int32())}))
    table.history.fast_forward("b")
    assert ids(lake) == [1, 10] and [c["action"] for c in server.changes] == ["addColumn"]
    table.history.delete_branch("b")
    lake.table("t").add_column("m", "INT")
    assert [f["name"] for f in server.tables["default", "t"].schema["fields"]] == ["id", "p", "n", "m"]
    assert lake.table("t").maintenance.verify().ok


@pytest.mark.parametrize("branch_column", ["n", None])
def test_an_external_table_whose_schema_changed_is_not_fast_forwarded(
    lake: Lake, server: rest_server.Server, branch_column: str | None
) -> None:
    """Bug: it stopped half-way, each time, and the branch could not be deleted any more."""
    table, branch = external_with_branch(lake, server)
    if branch_column is not None:
        branch.add_column(branch_column, "INT")
    branch.append(pa.table({"id": [10], "p": ["x"]}))
    lake.table("t").add_column("m", "STRING")
    lake.table("t").append(rows(2))
    for _ in range(2):
        with pytest.raises(InvalidRequest, match="only the catalog's server changes.*copy the rows instead"):
            table.history.fast_forward("b")
    assert ids(lake) == [1, 2] and ids(lake, "t$branch_b") == [1, 10] and lake.table("t").maintenance.verify().ok
    assert not list((server.tables["default", "t"].folder / "snapshot").glob(".*"))
    table.history.delete_branch("b")
    assert not table.history.branches()


def test_a_commit_to_a_branch_has_the_branchs_id(lake: Lake, server: rest_server.Server) -> None:
    """Bug: it had the table's, which a server may refuse; Paimon sends the id of the table ``t$branch_b``."""
    lake.create_table("t", ROWS).history.create_branch("b")
    for _ in range(2):
        branch = lake.table("t$branch_b")
        branch.append(rows(1))
        branch.append(rows(2))
        assert server.commits[-1]["tableId"] == server.tables["default", "t$branch_b"].id
        lake.table("t").history.delete_branch("b")
        lake.table("t").history.create_branch("b")
    assert server.tables["default", "t$branch_b"].id != server.tables["default", "t"].id


def test_a_branch_is_not_dropped_as_a_table(lake: Lake, server: rest_server.Server) -> None:
    """Bug: the server forgot the branch, whose files stayed, so that it was listed and took no commits."""
    table = lake.create_table("t", ROWS)
    table.history.create_branch("b")
    lake.drop_table("t$branch_b", if_exists=True)
    for attempt in (
        lambda: lake.drop_table("t$branch_b"),
        lambda: lake.sql("DROP TABLE `t$branch_b`", engine="duckdb"),
        lambda: lake.rename_table("t$branch_b", "u"),
        lambda: lake._catalog.table_path(Identifier("default", "t$branch_b")),
    ):
        with pytest.raises(NotFound, match=r"table 'default\.t\$branch_b' does not exist"):
            attempt()
    lake.table("t$branch_b").append(rows(1))
    assert ids(lake, "t$branch_b") == [1] and ids(lake) == []


@pytest.mark.parametrize("step", ["branches", "rename", "forward", "b"])
@pytest.mark.parametrize("what", [rest_server.LOSE_ANSWER, rest_server.DROP])
def test_a_request_about_a_branch_whose_response_is_lost(
    lake: Lake, server: rest_server.Server, step: str, what: str
) -> None:
    """What took place is found in the files; otherwise the call raises, and can be repeated."""
    history = lake.create_table("t", ROWS).history
    lake.table("t").append(rows(1))
    history.create_tag("one")
    if step != "branches":
        history.create_branch("b", tag="one")
    call = {
        "branches": lambda: history.create_branch("b", tag="one"),
        "rename": lambda: history.rename_branch("b", "c"),
        "forward": lambda: history.fast_forward("b"),
        "b": lambda: history.delete_branch("b"),
    }[step]
    server.plan = first(step, what)
    if step == "forward" or (what == rest_server.DROP and step != "b"):
        with pytest.raises(StorageUnavailable):
            call()
        call()
    else:
        call()
    assert history.branches() == {"branches": ["b"], "rename": ["c"], "forward": ["b"], "b": []}[step]


def test_views_are_kept_by_the_server(lake: Lake, server: rest_server.Server) -> None:
    pytest.importorskip("duckdb")
    lake.create_table("t", ROWS).append(rows(1, 2, 3))
    lake.create_database("d")
    lake.sql("CREATE VIEW v COMMENT 'big' AS SELECT id FROM t WHERE id > 1", engine="duckdb")
    assert server.views["default", "v"] == {
        "fields": [{"id": 0, "name": "id", "type": "BIGINT"}],
        "query": "SELECT id FROM default.t WHERE id > 1",
        "dialects": {"spark": "SELECT id FROM default.t WHERE id > 1"},
        "options": {},
        "comment": "big",
    }
    other = lake_of(server)
    start = len(server.seen)
    assert other.sql("SELECT count(*) AS n FROM t", engine="duckdb").fetchall() == [(3,)]
    assert not [p for _, p in server.seen[start:] if "/views" in p], "a table's name needs no view"
    assert other.sql("SELECT count(*) AS n FROM default.v", engine="duckdb").fetchall() == [(2,)]
    lake.sql("CREATE OR REPLACE VIEW v AS SELECT id FROM t WHERE id > 2", engine="duckdb")
    assert other.sql("SELECT id FROM v", engine="duckdb").fetchall() == [(3,)]
    with pytest.raises(AlreadyExists, match="a table has this name"):
        lake.sql("CREATE VIEW t AS SELECT 1 AS a", engine="duckdb")
    with pytest.raises(InvalidRequest, match="1 views"):
        lake.drop_database("default")
    lake.sql(
        "CALL sys.alter_view_dialect(view => 'v', action => 'add', query => 'SELECT 1', engine => 'flink')",
        engine="duckdb",
    )
    assert server.views["default", "v"]["dialects"]["flink"] == "SELECT 1"
    stored = server.views["default", "v"]
    lake.sql("ALTER VIEW v RENAME TO w", engine="duckdb")
    assert server.views == {("default", "w"): stored}
    lake.sql("ALTER VIEW w RENAME TO v", engine="duckdb")
    lake.sql("DROP VIEW v", engine="duckdb")
    assert not server.views
    with pytest.raises(NotFound, match="view 'v' does not exist"):
        lake.sql("DROP VIEW v", engine="duckdb")


def test_a_view_that_cannot_be_replaced_stays(lake: Lake, server: rest_server.Server) -> None:
    pytest.importorskip("duckdb")
    lake.create_table("t", ROWS).append(rows(1, 2, 3))
    lake.sql("CREATE VIEW v AS SELECT id FROM t", engine="duckdb")
    server.plan = first("views", 400)
    with pytest.raises(InvalidRequest, match="answered 400"):
        lake.sql("CREATE OR REPLACE VIEW v AS SELECT p FROM t", engine="duckdb")
    assert lake.sql("SELECT * FROM v", engine="duckdb").columns == ["id"]


def test_views_in_databases_that_do_not_exist_yet(lake: Lake, server: rest_server.Server) -> None:
    """Bug: only the first table created the database ``default``."""
    pytest.importorskip("duckdb")
    lake.sql("CREATE VIEW v AS SELECT 1 AS a", engine="duckdb")
    assert lake.sql("SELECT a FROM v", engine="duckdb").fetchall() == [(1,)]
    with pytest.raises(NotFound, match="database 'no' does not exist"):
        lake.sql("CREATE VIEW no.v AS SELECT 1 AS a", engine="duckdb")


def test_tables_do_not_take_the_names_of_views(lake: Lake) -> None:
    """Bug: the message was that a table of this name exists, and should be dropped."""
    pytest.importorskip("duckdb")
    lake.create_table("t", ROWS)
    lake.sql("CREATE VIEW v AS SELECT 1 AS a", engine="duckdb")
    for attempt in (
        lambda: lake.create_table("v", ROWS),
        lambda: lake.create_table("v", ROWS, if_not_exists=True),
        lambda: lake.rename_table("t", "v"),
    ):
        with pytest.raises(AlreadyExists, match="a view has this name"):
            attempt()


def test_views_that_other_clients_replace_and_drop(lake: Lake, server: rest_server.Server) -> None:
    """Bug: CREATE OR REPLACE and DROP DATABASE failed if another client had deleted the view, or created it, before."""
    pytest.importorskip("duckdb")
    lake.create_database("d")
    create = "CREATE OR REPLACE VIEW d.v AS SELECT {} AS a"
    lake.sql(create.format(1), engine="duckdb")
    other = dict(server.views["d", "v"])

    def plan(method: str, name: str, number: int) -> object:
        if steps and (method, name) == steps[0]:
            steps.pop(0)
            if method == "DELETE":
                del server.views["d", "v"]
            else:
                server.views["d", "v"] = other
        return rest_server.PASS

    steps = [("DELETE", "v"), ("POST", "views")]
    server.plan = plan  # type: ignore[assignment]
    lake.sql(create.format(2), engine="duckdb")
    assert not steps and lake.sql("SELECT a FROM d.v", engine="duckdb").fetchall() == [(2,)]
    steps = [("DELETE", "v")]
    lake.drop_database("d", cascade=True)
    assert not steps and not server.views and not server.databases


def test_a_view_whose_response_is_lost(lake: Lake, server: rest_server.Server) -> None:
    """Bug: the call failed although the server had replaced the view."""
    pytest.importorskip("duckdb")
    lake.create_table("t", ROWS)
    for query in ("SELECT id FROM t", "SELECT p FROM t"):
        server.plan = first("views", rest_server.LOSE_ANSWER)
        lake.sql(f"CREATE OR REPLACE VIEW v AS {query}", engine="duckdb")
    assert lake.sql("SELECT * FROM v", engine="duckdb").columns == ["p"]
    server.plan = first("views", rest_server.DROP)
    with pytest.raises(StorageUnavailable, match="is unknown"):
        lake.sql("CREATE OR REPLACE VIEW v AS SELECT id FROM t", engine="duckdb")
    assert lake.sql("SELECT * FROM v", engine="duckdb").columns == ["p"]


def test_a_server_without_views(lake: Lake, server: rest_server.Server) -> None:
    pytest.importorskip("duckdb")
    lake.create_table("t", ROWS).append(rows(1))
    server.plan = lambda method, name, number: 501 if "views" in server.seen[number][1] else rest_server.PASS
    assert lake.sql("SHOW VIEWS", engine="duckdb").num_rows == 0
    with pytest.raises(NotFound, match="'nothing'"):
        lake.sql("SELECT * FROM nothing", engine="duckdb")
    with pytest.raises(UnsupportedFeature, match="answered 501"):
        lake.sql("CREATE VIEW v AS SELECT id FROM t", engine="duckdb")


def test_external_tables_commit_by_files_and_alter_through_the_server(lake: Lake, server: rest_server.Server) -> None:
    lake.create_table("t", ROWS)
    server.tables["default", "t"].external = True
    table = lake.table("t")
    table.append(rows(1))
    table.history.create_tag("one")
    table.append(rows(2))
    table.add_column("n", "INT")
    assert ids(lake) == [1, 2] and table.scan(tag="one").to_arrow()["id"].to_pylist() == [1]
    table.history.rollback(1)
    assert ids(lake) == [1] and not server.commits
    assert [c["action"] for c in server.changes] == ["addColumn"]


# --- credentials and executors ----------------------------------------------------------------------------------------


def token(name: str, endpoint: str, expires_ms: int) -> dict[str, object]:
    keys = {"fs.s3a.access.key": name, "fs.s3a.secret.key": "secret-of-s3", "fs.s3a.endpoint": endpoint}
    more = {"fs.s3a.endpoint.region": "us-east-1", "fs.s3a.path.style.access": "true", "fs.oss.endpoint": "elsewhere"}
    more |= {"fs.s3a.session.token": None}  # type: ignore[dict-item]
    return {"token": keys | more, "expiresAtMillis": expires_ms}


def test_the_server_issues_credentials_for_files(server: rest_server.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are asked for once, renewed before they expire, taken to executors, and in no text."""
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of-someone-else")
    server.settings["overrides"] = {"data-token.enabled": "true"}
    server.databases["default"] = {}
    for name in ("t", "u"):
        server.tables["default", name] = rest_server.Table(f"s3://b/{name}", name, {"options": {}})
    now = _clock.now_ms()
    day = 24 * 3_600_000
    with credential_server.running() as store:
        server.tokens = [token(f"KEY{i}", store.endpoint, now + (i + 1) * day) for i in range(4)]
        lake = lake_of(server)
        files = lake._catalog.store
        lake._catalog.table_path(Identifier("default", "t"))
        for _ in range(3):
            assert files.read("s3://b/t/data") == credential_server.DATA
        assert {asker.split("/")[0].partition("Credential=")[2] for asker in store.askers} == {"KEY0"}
        assert "x-amz-security-token" not in str(store.askers), "neither null nor the environment's"
        lake._catalog.table_path(Identifier("default", "u"))
        files.read("s3://b/u/data")
        assert "KEY1" in store.askers[-1]
        monkeypatch.setattr(_clock, "now_ms", lambda: now + day - 3_600_000)
        files.read("s3://b/t/branch/branch-b/data")
        assert "KEY2" in store.askers[-1]
        there = pickle.dumps(files)
        monkeypatch.setattr(_clock, "now_ms", lambda: now + 9 * day)
        pickle.loads(there).read("s3://b/t/data")
        assert "KEY2" in store.askers[-1]
        assert [p for _, p in server.seen].count("of/mine/databases/default/tables/t/token") == 2
        server.plan = lambda method, name, number: 403 if name == "token" else rest_server.PASS
        with pytest.raises(AccessDenied, match="answered 403"):
            files.read("s3://b/t/data")
    assert "secret-of-s3" not in f"{files!r} {lake!r} {files._tokens!r}"  # type: ignore[attr-defined]


@pytest.mark.parametrize("cached", [False, True])
def test_verify_renews_credentials(
    server: rest_server.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cached: bool
) -> None:
    """Its store, which has no local cache, was a copy without the catalog's client."""
    server.settings["overrides"] = {"data-token.enabled": "true"}
    server.databases["default"] = {}
    server.tables["default", "t"] = rest_server.Table("s3://b/t", "t", {"options": {}})
    cache = {"local-cache.enabled": "true", "local-cache.dir": str(tmp_path)} if cached else {}
    now, day = _clock.now_ms(), 24 * 3_600_000
    with credential_server.running() as store:
        server.tokens = [token(f"KEY{i}", store.endpoint, now + (i + 1) * day) for i in range(3)]
        lake = connect(
            rest_server.WAREHOUSE, catalog="rest", uri=server.uri, catalog_options=OPTIONS, storage_options=cache
        )
        lake._catalog.table_path(Identifier("default", "t"))
        files = lake._catalog.store.uncached
        assert (files is lake._catalog.store) is not cached
        for later, key in ((0, "KEY0"), (day, "KEY1")):
            monkeypatch.setattr(_clock, "now_ms", lambda later=later: now + later)
            assert files.read("s3://b/t/data") == credential_server.DATA
            assert key in store.askers[-1]


def test_credentials_that_cannot_be_renewed_are_used_until_they_expire(
    server: rest_server.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: reads failed as soon as the server was down, an hour early, and jobs once any table had been dropped."""
    server.settings["overrides"] = {"data-token.enabled": "true"}
    server.databases["default"] = {}
    for name in ("t", "u"):
        server.tables["default", name] = rest_server.Table(f"s3://b/{name}", name, {"options": {}})
    now, day = _clock.now_ms(), 24 * 3_600_000
    with credential_server.running() as store:
        server.tokens = [token("KEY", store.endpoint, now + day)]
        lake = lake_of(server)
        files = lake._catalog.store
        for name in ("t", "u"):
            lake._catalog.table_path(Identifier("default", name))
            files.read(f"s3://b/{name}/data")
        server.tables.pop(("default", "t"))
        monkeypatch.setattr(_clock, "now_ms", lambda: now + day - 3_600_000)
        start = len(server.seen)
        for _ in range(3):
            assert files.read("s3://b/t/data") == credential_server.DATA
        assert len(server.seen) == start + 1, "it is asked again at half of the time that remains"
        monkeypatch.setattr(_clock, "now_ms", lambda: now + day)
        with pytest.raises(NotFound):
            files.read("s3://b/t/data")
        server.tokens = [token("NEW", store.endpoint, now + 2 * day)]
        pickle.loads(pickle.dumps(files)).read("s3://b/u/data")
        assert "NEW" in store.askers[-1]


def test_tables_whose_files_need_issued_credentials(server: rest_server.Server, s3_endpoint: str) -> None:
    """A table on S3, one on this disk, whose files need none, and an external one, which takes the lake's options.

    Bug: the server was asked for credentials of external tables, too, of which Paimon's clients never ask.
    """
    root = "s3://lake/issued"
    connect(root, storage_options=s3_server.options(s3_endpoint)).create_table("t", ROWS).append(rows(1))
    lake_of(server).create_table("on_disk", ROWS).append(rows(5))
    server.settings["overrides"] = {"data-token.enabled": "true"}
    server.tokens = [token("KEY", s3_endpoint, _clock.now_ms() + 1000)]
    server.tables["default", "t"] = rest_server.Table(f"{root}/default.db/t", "1", {"options": {}})
    lake = lake_of(server)
    lake._catalog.store.write(f"{lake.table('t').path}/tag/note", b"written")
    lake.table("on_disk").append(rows(6))
    assert ids(lake) == [1] and ids(lake, "on_disk") == [5, 6]
    server.tables["default", "t"].external = True
    start = len(server.seen)
    own = s3_server.options(s3_endpoint)
    lake = connect(rest_server.WAREHOUSE, catalog="rest", uri=server.uri, catalog_options=OPTIONS, storage_options=own)
    lake.table("t").append(rows(2))
    assert ids(lake) == [1, 2] and not [path for _, path in server.seen[start:] if path.endswith("/token")]
    server.tables["default", "t"].external = False
    server.tokens = [{"token": "wrong"}]
    with pytest.raises(CorruptError, match="the catalog's token of table 'default.t' cannot be parsed"):
        ids(lake_of(server))


def test_executors_read_but_do_not_commit(lake: Lake, server: rest_server.Server) -> None:
    table = lake.create_table("t", ROWS)
    table.append(rows(1))
    root = server.tables["default", "t"].path
    there = pickle.loads(pickle.dumps(lake._catalog.store))
    assert there.read(f"{root}/snapshot/LATEST") == b"1"
    with pytest.raises(InvalidRequest, match="an executor cannot commit"):
        there.create(f"{root}/snapshot/snapshot-2", there.read(f"{root}/snapshot/snapshot-1"))
