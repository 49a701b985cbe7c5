"""What a commit leaves behind when the store fails, or another writer comes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from caches import forget
from commits import STORE, append, check_table, entry, make_table, names
from long import exhaustive
from store_wrappers import FaultyStore, ResponseLost

from bitlake.errors import CommitConflict, StorageUnavailable
from bitlake.io.local import LocalStore
from bitlake.metadata.manifest import EntryKind
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.schema import TableSchema
from bitlake.snapshot import manifests, versions
from bitlake.snapshot.table_files import TableFiles
from bitlake.write.commit import commit
from bitlake.write.commit_plan import CommitPlan


def _prepared(root: Path) -> tuple[TablePaths, TableSchema]:
    paths, schema = make_table(root)
    schema = schema.with_options({"manifest.merge-min-count": "2"})
    append(paths, schema, entry("a"))
    append(paths, schema, entry("b"))
    return paths, schema


PLAN = CommitPlan("OVERWRITE", (entry("new"),), (entry("a"),))


@pytest.mark.parametrize("after", [exhaustive(False), True])
@pytest.mark.parametrize("dead", [False, True])
def test_failing_each_call_in_turn_shows_the_old_table_or_the_new(tmp_path: Path, after: bool, dead: bool) -> None:
    """`dead`: the process never gets another call through, as if it had crashed; else it may retry."""
    number = outcomes = 0
    while True:
        paths, schema = _prepared(tmp_path / f"t{number}")
        schema = schema.with_options({"commit.max-retries": "0" if dead else "3"})
        forget()
        store = FaultyStore(STORE, number, after=after, dead=dead)
        try:
            made = commit(store, paths, PLAN, schema, "me")
            assert made is not None
            done = True
        except StorageUnavailable:
            done = False
            assert dead
        found = names(paths)
        assert found in ({"a", "b"}, {"b", "new"})
        if done:
            assert found == {"b", "new"}
        for snapshot_id in versions.snapshot_ids(TableFiles(STORE, paths)):
            files = manifests.live_files(
                TableFiles(STORE, paths), versions.load_snapshot(TableFiles(STORE, paths), snapshot_id)
            )
            assert len(files) in (1, 2)
        # Whatever happened, the next writer goes on.
        append(paths, schema, entry("next"))
        assert names(paths) == found | {"next"}
        outcomes += 1
        if not store.failed:
            break
        number += 1
    assert outcomes > 10


def test_an_unknown_outcome_is_found_to_be_a_success(tmp_path: Path) -> None:
    paths, schema = make_table(tmp_path / "t")

    store = ResponseLost("/snapshot/snapshot-")
    made = append(paths, schema, entry("a"), store=store)
    assert (made.id, store.lost) == (1, 1)
    assert names(paths) == {"a"}
    check_table(paths)


def test_a_store_that_stays_broken_says_so(tmp_path: Path) -> None:
    paths, schema = make_table(tmp_path / "t")
    schema = schema.with_options({"commit.max-retries": "2"})

    class Broken(LocalStore):
        def create(self, path: str, data: bytes) -> bool:
            raise StorageUnavailable("no space")

    with pytest.raises(StorageUnavailable, match=r"failed 3 times \(no space\); whether it took place is unknown"):
        append(paths, schema, entry("a"), store=Broken())

    class ReadOnly(LocalStore):
        def write(self, path: str, data: bytes) -> None:
            raise StorageUnavailable("read-only")

    with pytest.raises(StorageUnavailable, match="no change is visible"):
        append(paths, schema, entry("a"), store=ReadOnly())
    assert names(paths) == set()


def test_a_commit_ends_if_its_snapshot_exists_but_has_no_file(tmp_path: Path) -> None:
    paths, schema = make_table(tmp_path / "t")
    schema = schema.with_options({"commit.min-retry-wait": "1 ms"})

    class Taken(LocalStore):
        def create(self, path: str, data: bytes) -> bool:
            return False

    with pytest.raises(StorageUnavailable, match="snapshot-1 because it existed, but shows no such file; no change"):
        append(paths, schema, entry("a"), store=Taken())
    assert names(paths) == set()


def test_an_interrupt_while_publishing_leaves_the_snapshot_whole(tmp_path: Path) -> None:
    """Files of a snapshot that may exist must not be cleaned up, whatever ends the commit."""
    paths, schema = make_table(tmp_path / "t")

    class Interrupted(LocalStore):
        def create(self, path: str, data: bytes) -> bool:
            super().create(path, data)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        append(paths, schema, entry("a"), store=Interrupted())
    assert names(paths) == {"a"}
    check_table(paths)


def test_another_writer_takes_the_id_of_a_try_that_failed(tmp_path: Path) -> None:
    """The first try leaves nothing behind, the second finds somebody else's snapshot: the rows go into the next."""
    paths, schema = make_table(tmp_path / "t")

    class Raced(LocalStore):
        tries = 0

        def create(self, path: str, data: bytes) -> bool:
            self.tries += 1
            if self.tries == 1:
                raise StorageUnavailable("connection reset")
            if self.tries == 2:
                append(paths, schema, entry("theirs"))
            return super().create(path, data)

    store = Raced()
    made = append(paths, schema, entry("ours"), store=store)
    assert (made.id, store.tries) == (2, 3)
    assert names(paths) == {"theirs", "ours"}
    assert STORE.read(paths.latest_hint) == b"2"


def test_files_of_a_try_that_surely_failed_may_be_deleted(tmp_path: Path) -> None:
    """The first try leaves nothing behind; before the second another commit removes a file that ours replaces."""
    paths, schema = make_table(tmp_path / "t")
    append(paths, schema, entry("old"))

    class Raced(LocalStore):
        def create(self, path: str, data: bytes) -> bool:
            assert commit(STORE, paths, dataclasses.replace(plan, adds=(entry("theirs"),)), schema, "they") is not None
            raise StorageUnavailable("connection reset")

    plan = CommitPlan("COMPACT", (entry("ours"),), (dataclasses.replace(entry("old"), kind=EntryKind.DELETE),))
    cleared: list[bool] = []
    with pytest.raises(CommitConflict):
        commit(Raced(), paths, plan, schema, "me", on_failure=lambda: cleared.append(True))
    assert cleared == [True]
    assert names(paths) == {"theirs"}
