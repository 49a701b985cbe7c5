"""Merging branches: what only one of them has is added to the other, once, and nothing comes back."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import bitlake
from bitlake.errors import InvalidRequest, NotFound
from bitlake.write import merge_branch as merging
from bitlake.write.merge_branch import merge_branch

SCHEMA = pa.schema([("id", pa.int32()), ("p", pa.string())])


@pytest.fixture
def lake(tmp_path: Path) -> bitlake.Lake:
    return bitlake.connect(str(tmp_path))


def rows(*ids: int) -> pa.Table:
    return pa.table([pa.array(ids, pa.int32()), [f"p{i % 2}" for i in ids]], schema=SCHEMA)


def content(table: bitlake.Table) -> list[int]:
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def forked(lake: bitlake.Lake, *before: int, **options: str) -> tuple[bitlake.Table, bitlake.Table]:
    """A table with a snapshot for each id, and a branch made at the last."""
    given = {k.replace("_", "-"): v for k, v in options.items()}
    table = lake.create_table("t", SCHEMA, partition_by=["p"], options=given)
    for i in before or (1,):
        table.append(rows(i))
    table.history.create_tag("fork")
    table.history.create_branch("b", "fork")
    return table, lake.table("t$branch_b")


@pytest.mark.parametrize("before", [(1,), (1, 2, 3)])
def test_both_ways_and_again(lake: bitlake.Lake, before: tuple[int, ...]) -> None:
    table, branch = forked(lake, *before)
    branch.append(rows(10, 11))
    table.append(rows(20))
    made = merge_branch(table._core, "b")
    assert made is not None and (made.commit_kind, made.total_record_count) == ("APPEND", len(before) + 3)
    assert content(table) == [*before, 10, 11, 20]
    assert merge_branch(table._core, "b") is None
    branch.append(rows(12))
    merge_branch(branch._core, "main", "b")
    assert content(branch) == [*before, 10, 11, 12, 20]
    merge_branch(branch._core, "b", "main")
    assert content(table) == content(branch)
    table.history.delete_branch("b")
    table.maintenance.remove_orphan_files(2**53)
    assert content(table) == [*before, 10, 11, 12, 20]


def test_a_merge_that_comes_second_adds_nothing_twice(lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table, branch = forked(lake)
    branch.append(rows(10))
    commit = merging.commit

    def late(*args: object, **more: object) -> object:
        monkeypatch.setattr(merging, "commit", commit)
        merge_branch(table._core, "b")
        branch.append(rows(11))
        return commit(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(merging, "commit", late)
    merge_branch(table._core, "b")
    assert content(table) == [1, 10, 11]


def test_columns_that_were_added_to_both(lake: bitlake.Lake) -> None:
    table, branch = forked(lake)
    branch.add_column("x", "INT")
    branch.append(rows(10))
    with pytest.raises(InvalidRequest, match="their columns differ"):
        merge_branch(table._core, "b")
    table.add_column("x", "STRING")
    with pytest.raises(InvalidRequest, match="their columns differ"):
        merge_branch(table._core, "b")


def test_schemas_of_files_must_be_the_same(lake: bitlake.Lake) -> None:
    table, branch = forked(lake)
    branch.alter_options({"target-file-size": "1 mb"})
    branch.append(rows(10))
    with pytest.raises(InvalidRequest, match="written with schema 1, which the target lacks"):
        merge_branch(table._core, "b")
    table.alter_options({"target-file-size": "2 mb"})
    with pytest.raises(InvalidRequest, match="written with schema 1, which differs in the target"):
        merge_branch(table._core, "b")


def test_what_could_bring_rows_back_is_refused(lake: bitlake.Lake) -> None:
    table, branch = forked(lake, 1, 2)
    branch.append(rows(10))
    table.delete("id = 1")
    with pytest.raises(InvalidRequest, match=r"snapshot 3 of 'main' is of kind \w+, and only snapshots that add files"):
        merge_branch(table._core, "b")
    assert content(table) == [2]
    with pytest.raises(InvalidRequest, match="of kind"):
        merge_branch(table._core, "main", "b")


def test_histories_must_be_known(lake: bitlake.Lake) -> None:
    table, branch = forked(lake, 1, 2)
    branch.append(rows(10))
    for i in (3, 4):
        table.append(rows(i))
    table.history.delete_tag("fork")
    table.alter_options({"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"})
    table.maintenance.expire_snapshots()
    with pytest.raises(InvalidRequest, match="the snapshot at which they diverged is unknown"):
        merge_branch(table._core, "b")


def test_branches_that_cannot_be_merged(lake: bitlake.Lake) -> None:
    table, _ = forked(lake)
    table.history.create_branch("empty")
    for source, target, message in (
        ("b", "b", "into itself"),
        ("empty", "main", "'empty' has no snapshot"),
        ("b", "empty", "'empty' has no snapshot"),
    ):
        with pytest.raises(InvalidRequest, match=message):
            merge_branch(table._core, source, target)
    for source, target in (("none", "main"), ("b", "none")):
        with pytest.raises(NotFound, match="has no branch 'none'; its branches: b, empty"):
            merge_branch(table._core, source, target)
    keyed = lake.create_table("k", SCHEMA, primary_key=["id"])
    keyed.append(rows(1))
    keyed.history.create_tag("fork")
    keyed.history.create_branch("b", "fork")
    with pytest.raises(InvalidRequest, match="has a primary key"):
        merge_branch(keyed._core, "b")
    marked = lake.create_table("m", SCHEMA, options={"deletion-vectors.enabled": "true"})
    marked.append(rows(1))
    marked.history.create_tag("fork")
    marked.history.create_branch("b", "fork")
    with pytest.raises(InvalidRequest, match=r"has 'deletion-vectors\.enabled'"):
        merge_branch(marked._core, "b")
