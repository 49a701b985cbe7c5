"""APPEND, then COMPACT: with other writers in between, and with storage that fails at any of its calls."""

from __future__ import annotations

import itertools
import logging
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from faults import Between, each_call_failing, noted_sleep, strays
from keyed_tables import COLUMNS, DV, made, read, rows_of
from long import exhaustive, long, some

import bitlake
from bitlake.errors import CommitConflict, StorageUnavailable
from bitlake.file_store_table import FileStoreTable
from bitlake.io.local import LocalStore
from bitlake.mergetree import commit as publish
from bitlake.mergetree.bucket import BucketChange, bucket_states
from bitlake.mergetree.commit import Publisher, compact_buckets
from bitlake.mergetree.writer import prepare_rows, write_changes
from bitlake.table.table import Table
from bitlake.write.commit_plan import Overwrite, SequenceTaken


def written(table: Table, rows: pa.Table, kinds: list[str] | None = None) -> tuple[Publisher, Any, list[BucketChange]]:
    """A write that is done but for its commits."""
    state = table._core.state()
    publisher = table._core.publisher(state)
    changes = write_changes(state, prepare_rows("t", state.schema, [rows], kinds), publisher.user)
    return publisher, state, changes


def finish(job: tuple[Publisher, Any, list[BucketChange]]) -> Any:
    publisher, state, changes = job
    return publisher.publish(state, changes, operation="WRITE")


def test_an_append_whose_numbers_are_always_taken_gives_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = written(made(tmp_path), pa.table({"id": [1], "v": ["a"]}))
    tries = []

    def taken(*_: Any) -> Any:
        tries.append(1)
        raise SequenceTaken("taken")

    monkeypatch.setattr(Publisher, "_commit", taken)
    with pytest.raises(SequenceTaken):
        finish(job)
    assert len(tries) == publish.COMPACT_TRIES


def test_rows_written_before_another_commit_get_later_numbers(tmp_path: Path) -> None:
    table = made(tmp_path)
    _, state, changes = written(table, pa.table({"id": [1, 2], "v": ["mine", "mine"]}))
    assert BucketChange(changes[0].partition, changes[0].bucket).rows == 0 and sum(c.rows for c in changes) == 2
    table.upsert(pa.table({"id": [2, 3], "v": ["theirs", "theirs"]}))
    assert publish.publish(table._core, state, changes, operation="WRITE") is not None
    assert read(table) == {1: "mine", 2: "mine", 3: "theirs"}


def test_a_writer_that_quick_ones_overtake_each_time_is_done_at_the_second_renumbering(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(tmp_path)
    job = written(table, rows_of([1, 2], "mine"))
    theirs, renumber = [], Publisher._renumber

    def overtaken(self: Publisher, *args: Any) -> Any:
        renumbered = renumber(self, *args)
        theirs.append(len(theirs))
        table.upsert(rows_of([2, 3 + theirs[-1]], f"theirs {theirs[-1]}"))
        return renumbered

    table.upsert(rows_of([1], "before"))
    monkeypatch.setattr(Publisher, "_renumber", overtaken)
    finish(job)
    assert len(theirs) == 2
    assert read(table) == {1: "mine", 2: "mine", 3: "theirs 0", 4: "theirs 1"}
    table.upsert(rows_of([1], "later"))
    assert read(table)[1] == "later"
    assert strays(table) == set()


@pytest.mark.parametrize("options", [{}, DV, {"bucket": "-1"}])
def test_rows_of_other_keys_are_no_conflict(
    options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Sequence numbers order the rows of one key: both an update and an upsert keep theirs.
    table = made(tmp_path, **options)
    table.upsert(rows_of(range(20), "old"))
    updating, upserting = (written(table, rows_of(keys, "mine")) for keys in ([3, 6], [15, 18]))
    table.upsert(rows_of([7, 8, 14, 19], "theirs"))
    table.upsert(rows_of([1, 2], "theirs"))
    renumbered, renumber = [], Publisher._renumber

    def counted(self: Publisher, state: Any, adds: Any, free: int) -> Any:
        renumbered.append(len(adds))
        return renumber(self, state, adds, free)

    monkeypatch.setattr(Publisher, "_renumber", counted)
    publisher, state, changes = updating
    publisher.publish(state, changes, operation="UPDATE", renumber=False)
    assert not renumbered
    finish(upserting)
    assert renumbered == [1]  # a file of 7 to 19 may hold 15
    finish(written(table, rows_of([6, 7], "later")))
    expected = dict.fromkeys(range(20), "old") | dict.fromkeys([7, 8, 14, 19, 1, 2], "theirs")
    expected |= {3: "mine", 6: "later", 7: "later", 15: "mine", 18: "mine"}
    assert read(table) == expected
    table.maintenance.compact(full=True)
    assert read(table) == expected


# --- other writers in between -----------------------------------------------------------------------------------------


WAYS = [DV, {**DV, "changelog-producer": "lookup"}, {"compaction.force-up-level-0": "true"}, {}]


@pytest.mark.parametrize("options", WAYS)
@pytest.mark.parametrize("begun", [False, True])
def test_both_of_two_writers_at_once_are_compacted(options: dict[str, str], begun: bool, tmp_path: Path) -> None:
    table = made(tmp_path, **options)
    expected = {}
    if begun:
        table.upsert(rows_of(range(100), "old"))
        expected = dict.fromkeys(range(100), "old")
    first = written(table, rows_of(range(0, 60, 2), "first"))
    second = written(table, rows_of(range(0, 60, 3), "second"))
    finish(first)
    finish(second)
    expected |= dict.fromkeys(range(0, 60, 2), "first") | dict.fromkeys(range(0, 60, 3), "second")
    assert read(table) == expected
    assert not options or {e.file.level for e in table._core.state().entries()}.isdisjoint({0})
    ranges = sorted((e.file.min_sequence_number, e.file.max_sequence_number) for e in table._core.state().entries())
    assert options or all(a[1] < b[0] for a, b in pairwise(ranges)), "later rows have higher numbers"
    assert strays(table) == set()


def test_an_update_looks_again_at_rows_that_changed(tmp_path: Path) -> None:
    table = made(tmp_path, **DV)
    table.upsert(rows_of(range(5), "old"))

    class Slower(LocalStore):
        """Another writer is first, just before this one commits."""

        done = False

        def create(self, path: str, data: bytes) -> bool:
            if not self.done:
                self.done = True
                table.upsert(rows_of([1], "new"))
            return super().create(path, data)

    def longer(rows: pa.Table) -> pa.Array:
        return pa.array([f"{v}!" for v in rows.column("v").to_pylist()])

    assert Table(FileStoreTable("t", table.path, Slower())).update({"v": longer}, "id < 3") == 3
    assert read(table) == {0: "old!", 1: "new!", 2: "old!", 3: "old", 4: "old"}
    assert strays(table) == set()


def test_rows_deleted_and_written_at_once(tmp_path: Path) -> None:
    """A delete whose compaction leaves no file, and a key that came above it meanwhile: the delete must not be lost."""
    table = made(tmp_path, **DV)
    table.upsert(rows_of([1, 2], "old"))
    deleting = written(table, rows_of([5], ""), ["-D"])
    table.upsert(rows_of([5], "new"))
    finish(deleting)
    assert read(table) == {1: "old", 2: "old"}
    assert strays(table) == set()


def test_a_compaction_that_came_too_late_gives_way(tmp_path: Path) -> None:
    table = made(tmp_path, **DV, **{"write-only": "true"})
    table.upsert(rows_of(range(10), "a"))
    state = table._core.state()
    publisher = table._core.publisher(state)
    late = compact_buckets(state, list(bucket_states(state).values()), publisher.runner)
    assert table.maintenance.compact() is not None
    assert publisher.compact(state, late, operation=None) is None
    assert read(table) == dict.fromkeys(range(10), "a")
    assert strays(table) == set()


def overtaken_compaction(tmp_path: Path) -> tuple[Table, Publisher, Any, Any]:
    """A table of four buckets, and a compaction of all of them that an upsert of one overtook."""
    table = made(tmp_path, **DV, bucket="4", **{"write-only": "true"})
    table.upsert(rows_of(range(100), "a"))
    state = table._core.state()
    publisher = table._core.publisher(state)
    compactions = compact_buckets(state, list(bucket_states(state).values()), publisher.runner)
    table.upsert(rows_of([1], "b"))
    table.alter_options(unset=["write-only"])
    table.upsert(rows_of([1], "c"))
    return table, publisher, state, compactions


def test_a_compaction_is_computed_again_for_what_changed_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, publisher, state, compactions = overtaken_compaction(tmp_path)
    again: list[int] = []
    inner = compact_buckets

    def counted(state: Any, buckets: Any, *rest: Any) -> Any:
        again.extend(b.bucket for b in buckets)
        return inner(state, buckets, *rest)

    monkeypatch.setattr(publish, "compact_buckets", counted)
    snapshot = publisher.compact(state, compactions, operation=None)
    assert snapshot is not None and snapshot.commit_kind == "COMPACT"
    assert len(again) == 1
    assert read(table) == dict.fromkeys(range(100), "a") | {1: "c"}
    assert strays(table) == set()


def test_level_0_is_left_to_the_next_writer_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = made(tmp_path, **DV)
    waits: list[float] = []
    losses = []
    with monkeypatch.context() as patch:

        class Longest(random.Random):
            def uniform(self, a: float, b: float) -> float:
                assert a == 0
                return b

        def lose(*_: Any) -> None:
            losses.append(1)
            raise CommitConflict("lost")

        patch.setattr(Publisher, "_commit_compactions", lose)
        patch.setattr(publish.random, "Random", Longest)
        patch.setattr(publish.time, "sleep", noted_sleep(waits))
        snapshot = table.upsert(rows_of([1], "a"))
    assert len(losses) == publish.COMPACT_TRIES
    assert waits == [0.1, 0.2, 0.4, *[0.8] * (publish.COMPACT_TRIES - 4)], "seconds at most, between tries"
    assert snapshot is not None and snapshot.commit_kind == "APPEND"
    assert "left to the next writer" in caplog.text
    assert read(table) == {} and read(table, level_0=True) == {1: "a"}
    assert strays(table) == set()
    table.upsert(rows_of([2], "b"))
    assert read(table) == {1: "a", 2: "b"}


def test_a_dynamic_bucket_that_another_writer_filled(tmp_path: Path) -> None:
    table = made(tmp_path, bucket="-1", **DV)
    first = written(table, rows_of(range(5), "first"))
    second = written(table, rows_of(range(3, 9), "second"))
    finish(first)
    with pytest.raises(CommitConflict, match="HASH"):
        finish(second)
    assert read(table) == dict.fromkeys(range(5), "first")
    assert strays(table) == set()

    class Slower(LocalStore):
        """Another writer is first, just before this one commits."""

        done = False

        def create(self, path: str, data: bytes) -> bool:
            if not self.done:
                self.done = True
                table.upsert(rows_of(range(8, 12), "other"))
            return super().create(path, data)

    Table(FileStoreTable("t", table.path, Slower())).upsert(rows_of(range(3, 10), "again"))
    expected = dict.fromkeys(range(3), "first") | dict.fromkeys(range(10, 12), "other")
    assert read(table) == expected | dict.fromkeys(range(3, 10), "again")
    assert strays(table) == set()


@pytest.mark.parametrize("partition", [None, {}])
def test_known_keys_of_a_dynamic_bucket_that_was_overwritten(partition: dict[str, Any] | None, tmp_path: Path) -> None:
    """The index of a bucket has no hash of a key whose rows another writer has overwritten: none may come back."""
    table = made(tmp_path, bucket="-1", **{"dynamic-bucket.target-row-num": "3"})
    table.upsert(rows_of(range(9), "old"))
    of_known, of_others = written(table, rows_of([8], "mine")), written(table, rows_of([1], "mine"))
    table.upsert(rows_of([9, 10], "other"))  # further keys are no conflict
    finish(of_known)
    assert read(table) == dict.fromkeys(range(8), "old") | {8: "mine", 9: "other", 10: "other"}
    of_known = written(table, rows_of([8], "late"))
    table.overwrite(rows_of([100], "new"), partition)
    for job in (of_known, of_others):
        with pytest.raises(CommitConflict, match="keys of the HASH index of bucket"):
            finish(job)
    assert strays(table) == set()
    table.upsert(rows_of([8], "again"))
    assert sorted(read(table).items()) == [(8, "again"), (100, "new")] and table.count() == 2


@pytest.mark.parametrize("options", [DV, exhaustive({"num-sorted-run.compaction-trigger": "2"})])
def test_writers_and_a_compactor_lose_nothing(options: dict[str, str], tmp_path: Path) -> None:
    root = made(tmp_path, **options, bucket="2", **{"commit.max-retries": "10"}).path
    rounds = 12

    def writer(number: int) -> None:
        table = Table(FileStoreTable("t", root, LocalStore()))
        for step in range(rounds):
            own = range(number * 100, number * 100 + 40)
            table.upsert(rows_of(own, f"{number}.{step}"))

    def compactor() -> None:
        table = Table(FileStoreTable("t", root, LocalStore()))
        for step in range(rounds // 2):
            table.maintenance.compact(full=step % 2 == 0)

    with ThreadPoolExecutor(3) as pool:
        for work in [pool.submit(writer, 0), pool.submit(writer, 1), pool.submit(compactor)]:
            work.result()
    table = Table(FileStoreTable("t", root, LocalStore()))
    expected = {i: f"{n}.{rounds - 1}" for n in (0, 1) for i in range(n * 100, n * 100 + 40)}
    assert read(table, level_0=True) == expected
    table.maintenance.compact()
    assert read(table) == expected
    assert strays(table) == set()


# --- storage that fails -----------------------------------------------------------------------------------------------

CASES = {
    "vectors": DV,
    "merged": {"num-sorted-run.compaction-trigger": "1"},
    "dynamic": {**DV, "bucket": "-1", "changelog-producer": "input", "file-index.bitmap.columns": "v"},
}


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("dead", "after", "step"), [(False, True, 2), long(False, True, 1), long(True, False, 1), long(False, False, 1)]
)
@pytest.mark.parametrize("case", CASES)
def test_each_store_call_failing_in_turn(case: str, dead: bool, after: bool, step: int, tmp_path: Path) -> None:
    template = tmp_path / "template"
    options = {**CASES[case], "file-index.in-manifest-threshold": "1 b"}
    made(template, **options).upsert(rows_of(range(20), "old"))
    old = dict.fromkeys(range(20), "old")
    new = old | dict.fromkeys(range(10, 30), "new")

    def work(table: Table) -> None:
        table.upsert(rows_of(range(10, 30), "new"))

    attempts = 0
    for done in each_call_failing(template, tmp_path, work, dead=dead, after=after, step=step):
        attempts += 1
        assert read(done.table) in (old, new)
        found = read(done.table, level_0=True)
        done.check(found, old, new)
        done.table.upsert(rows_of([0, 40], "next"))
        assert read(done.table) == found | {0: "next", 40: "next"}
    assert attempts > 10


@pytest.mark.exhaustive
@pytest.mark.parametrize(("dead", "after"), [(False, True), (True, False), (False, False)])
@pytest.mark.parametrize("case", CASES)
def test_an_overwrite_is_visible_as_a_whole_whichever_store_call_fails(
    case: str, dead: bool, after: bool, tmp_path: Path
) -> None:
    """Readers of a table with deletion vectors skip level 0, so the overwrite includes its compaction."""
    template = tmp_path / "template"
    made(template, **CASES[case]).upsert(rows_of(range(20), "old"))
    old, new = dict.fromkeys(range(20), "old"), dict.fromkeys(range(10, 30), "new")

    def work(table: Table) -> None:
        table.overwrite([rows_of(range(10, 25), "replaced"), rows_of(range(10, 30), "new")])

    for done in each_call_failing(template, tmp_path, work, dead=dead, after=after):
        found = read(done.table)
        assert found == read(done.table, level_0=True)
        done.check(found, old, new)
        done.table.upsert(rows_of([10, 40], "next"))
        assert read(done.table) == found | {10: "next", 40: "next"}


@pytest.mark.parametrize(
    "options", [*CASES.values(), {"changelog-producer": "lookup"}, {"changelog-producer": "full-compaction"}]
)
def test_an_overwrite_is_one_snapshot_without_a_changelog(options: dict[str, str], tmp_path: Path) -> None:
    table = made(tmp_path, **options)
    before = table.upsert(rows_of(range(20), "old"))
    after = table.overwrite([rows_of(range(10, 25), "replaced"), rows_of(range(10, 30), "new")])
    assert before is not None and after is not None
    assert (after.id, after.commit_kind, after.changelog_manifest_list) == (before.id + 1, "OVERWRITE", None)
    assert table.snapshot is not None and table.snapshot.id == after.id
    assert read(table) == dict.fromkeys(range(10, 30), "new")
    assert strays(table) == set()


def test_an_overwritten_partition_without_rows_left_is_replaced(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("p", pa.int32(), nullable=False), *COLUMNS])
    options = {"bucket": "1", "primary-key": "p,id", **DV}
    table = bitlake.connect(tmp_path).create_table("t", schema, partition_by=["p"], options=options)
    table.append(pa.table({"p": [1, 2], "id": [1, 1], "v": ["a", "b"]}, schema=schema))
    publisher = table._core.publisher(state := table._core.state())
    deleted = prepare_rows("t", state.schema, [pa.table({"p": [1], "id": [7], "v": ["x"]}, schema=schema)], ["-D"])
    changes = write_changes(state, deleted, publisher.user, fresh=True)
    publisher.publish(state, changes, operation="OVERWRITE", overwrite=Overwrite(dynamic=True))
    assert table.scan().to_arrow().to_pylist() == [{"p": 2, "id": 1, "v": "b"}]


def test_a_failed_compaction_does_not_fail_the_write(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = made(tmp_path, **DV)
    table.upsert(rows_of([1], "a"))

    class Stuck(LocalStore):
        def create(self, path: str, data: bytes) -> bool:
            if path.endswith("/snapshot-4"):
                raise StorageUnavailable("stuck")
            return super().create(path, data)

    with caplog.at_level(logging.WARNING):
        snapshot = Table(FileStoreTable("t", table.path, Stuck())).upsert(rows_of([1, 2], "b"))
    assert snapshot is not None and snapshot.id == 3
    assert "not yet compacted" in caplog.text
    assert read(table, level_0=True) == {1: "b", 2: "b"}
    table.maintenance.compact()
    assert read(table) == {1: "b", 2: "b"}


def test_an_overwrites_files_go_to_the_highest_level(tmp_path: Path) -> None:
    for number, (options, levels) in enumerate(
        [
            ({}, {5}),
            ({"target-file-row-num": "4"}, {5}),
            ({"overwrite-upgrade": "false"}, {0}),
            ({"num-levels": "3"}, {2}),
            # Several runs overlap.
            ({"write-buffer-size": "100 b"}, {0}),
        ]
    ):
        table = made(tmp_path / str(number), **options)
        batches = rows_of(range(10), "a").to_batches() + rows_of(range(5, 15), "b").to_batches()
        table.overwrite(batches)
        assert {e.file.level for e in table._core.state().entries()} == levels, options
        assert read(table) == dict.fromkeys(range(5), "a") | dict.fromkeys(range(5, 15), "b")


def test_a_change_of_the_hash_index_alone_is_committed_and_no_change_is_not(tmp_path: Path) -> None:
    table = made(tmp_path, bucket="-1")
    publisher, state, changes = written(table, rows_of(range(9), "v"))
    nothing = [BucketChange(c.partition, c.bucket) for c in changes]
    assert publisher.publish(state, nothing, operation="WRITE") is None and table._core.state().snapshot is None
    index = [BucketChange(c.partition, c.bucket, index=c.index) for c in changes]
    assert any(c.index for c in index)
    snapshot = publisher.publish(state, index, operation="WRITE")
    assert snapshot is not None and snapshot.index_manifest is not None
    assert not table._core.state().entries()


def test_a_compaction_that_fails_when_computed_again_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the files of the buckets that fail, nor those of buckets whose compaction was still good."""
    table, publisher, state, compactions = overtaken_compaction(tmp_path)

    def fail(*_: Any) -> Any:
        raise StorageUnavailable("no disk")

    monkeypatch.setattr(publish, "compact_buckets", fail)
    with pytest.raises(StorageUnavailable):
        publisher.compact(state, compactions, operation=None)
    assert strays(table) == set()


def test_later_numbers_follow_without_a_gap(tmp_path: Path) -> None:
    table = made(tmp_path, **{"write-only": "true"})
    table.upsert(rows_of([1, 2, 3], "old"))
    job = written(table, rows_of([1, 2], "mine"))
    table.upsert(rows_of([2, 3, 4, 5], "theirs"))
    finish(job)
    files = [e.file for e in table._core.state().entries()]
    assert sorted((f.min_sequence_number, f.max_sequence_number) for f in files) == [(0, 2), (3, 6), (7, 8)]


STATEMENTS: dict[str, Callable[[Table], object]] = {
    "update": lambda table: table.update({"v": "new"}, "v = 'old'"),
    "delete": lambda table: table.delete("v = 'old'"),
}
OTHERS: dict[str, tuple[Callable[[Table], object], dict[int, str]]] = {
    "truncate": (lambda table: table.truncate(), {}),
    "overwrite": (lambda table: table.overwrite(rows_of(range(8), "kept")), dict.fromkeys(range(8), "kept")),
    "rollback": (lambda table: table.history.rollback(1), dict.fromkeys(range(8), "first")),
    "upsert": (lambda table: table.upsert(rows_of(range(8), "kept")), dict.fromkeys(range(8), "kept")),
}


@pytest.mark.parametrize(
    ("statement", "other", "options"),
    some(
        itertools.product(STATEMENTS, OTHERS, [{}, DV, {"bucket": "-2"}, {"merge-engine": "partial-update"}]),
        ("update", "truncate", {}),
        ("update", "rollback", DV),
        ("update", "upsert", {"bucket": "-2"}),
        ("delete", "overwrite", {"merge-engine": "partial-update"}),
        ("delete", "rollback", {}),
        ("delete", "upsert", DV),
    ),
    ids=str,
)
def test_a_statement_beside_what_replaces_the_rows_that_it_read(
    tmp_path: Path, statement: str, other: str, options: dict[str, str]
) -> None:
    """Its rows came back after an overwrite or a rollback, and a DELETE took rows for which its condition is FALSE."""
    work, expected = OTHERS[other]
    done = 0
    for number in range(0, 400, 7):
        table = made(tmp_path / str(number), **options)
        table.upsert(rows_of(range(8), "first"))
        table.upsert(rows_of(range(8), "old"))
        store = Between(LocalStore(), number, lambda table=table, work=work: work(table))
        STATEMENTS[statement](Table(FileStoreTable(table.name, table.path, store)))
        if not store.done:
            break
        done += 1
        assert read(table, level_0=True) == expected, f"call {number}"
    assert done > 3


@pytest.mark.parametrize("options", [{}, exhaustive(DV), exhaustive({"changelog-producer": "lookup"})], ids=str)
def test_an_update_beside_a_delete_whose_rows_were_compacted_away(tmp_path: Path, options: dict[str, str]) -> None:
    """No live file showed the numbers of the -D rows any more, and the update brought the rows back."""
    for number in range(0, 400, 5):
        table = made(tmp_path / str(number), **options)
        table.upsert(rows_of(range(8), "old"))

        def delete(table: Table = table) -> None:
            table.delete("id < 4")
            table.maintenance.compact(full=True)

        store = Between(LocalStore(), number, delete)
        Table(FileStoreTable(table.name, table.path, store)).update({"v": "new"}, "v = 'old'")
        if not store.done:
            break
        assert read(table, level_0=True) == dict.fromkeys(range(4, 8), "new"), f"call {number}"
    assert number > 10
