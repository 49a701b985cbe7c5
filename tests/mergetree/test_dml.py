"""DELETE in primary-key tables: -D rows that mark the rows they delete, or the files that were hit written again."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from faults import Between, strays
from keyed_tables import QUICK
from long import every, exhaustive, long
from store_wrappers import FaultyStore

import bitlake
from bitlake.errors import StorageUnavailable
from bitlake.file_store_table import FileStoreTable
from bitlake.io.local import LocalStore
from bitlake.mergetree.bucket import BucketReader
from bitlake.mergetree.dml import compact_pending, deletes_by_rewrite, deletes_by_rows
from bitlake.mergetree.lookup import KeyLookup
from bitlake.table.table import Table
from bitlake.write import append_dml
from bitlake.write.commit import OutcomeUnknown

COLUMNS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("p", pa.string(), nullable=False),
        pa.field("v", pa.int64()),
        pa.field("w", pa.string()),
    ]
)
SUM = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
TABLES: dict[str, dict[str, str]] = {
    "first-row": {"merge-engine": "first-row"},
    "first-row, lookup": {"merge-engine": "first-row", "changelog-producer": "lookup"},
    "partial-update": {"merge-engine": "partial-update"},
    "aggregation": SUM,
    "aggregation, small files": {**SUM, "target-file-size": "4 kb", "num-sorted-run.compaction-trigger": "3"},
    "aggregation, lookup": {**SUM, "changelog-producer": "lookup"},
    "aggregation, full-compaction": {**SUM, "changelog-producer": "full-compaction"},
    "aggregation, uncompacted": {**SUM, "write-only": "true"},
    "aggregation, dynamic": {**SUM, "bucket": "-1", "dynamic-bucket.target-row-num": "30"},
    "aggregation, vectors": {**SUM, "deletion-vectors.enabled": "true"},
    "ignored deletes": {"ignore-delete": "true"},
}
Row = tuple[int, str, int | None, str | None]


def made(root: Path, **options: str) -> Table:
    given = {"bucket": "2", "primary-key": "id,p", **QUICK, **options}
    return bitlake.connect(str(root)).create_table("t", COLUMNS, partition_by=["p"], options=given)


def arrow(rows: list[Row]) -> pa.Table:
    return pa.table([list(c) for c in zip(*rows, strict=True)], schema=COLUMNS)


def read(table: Table, snapshot: int | None = None) -> list[Row]:
    return sorted(zip(*table.scan(snapshot=snapshot).to_arrow().to_pydict().values(), strict=True), key=repr)


def merged(name: str, old: Row | None, new: Row) -> Row:
    if old is None or name == "ignored deletes":
        return new
    if name.startswith("first-row"):
        return old
    later = old[3] if new[3] is None else new[3]
    if name.startswith("partial-update"):
        return (*old[:2], old[2] if new[2] is None else new[2], later)
    return (*old[:2], old[2] if new[2] is None else (old[2] or 0) + new[2], later)


CONDITIONS: list[tuple[str, Any]] = [
    ("v IN (3, 10, 17) OR v > 60", lambda r: r[2] is not None and (r[2] in (3, 10, 17) or r[2] > 60)),
    ("id BETWEEN 20 AND 33", lambda r: 20 <= r[0] <= 33),
    ("id > 50 AND w = 'x' AND p = 'a'", lambda r: r[0] > 50 and r[3] == "x" and r[1] == "a"),
    ("w IS NULL AND id < 90", lambda r: r[3] is None and r[0] < 90),
    ("p = 'b'", lambda r: r[1] == "b"),
]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("turns", [3, long(6)])
def test_random_deletes(name: str, turns: int, tmp_path: Path) -> None:
    table = made(tmp_path, **TABLES[name])
    rng = random.Random(name)
    model: dict[Any, Row] = {}
    for turn in range(turns):
        rows: list[Row] = []
        for _ in range(70):
            value = None if rng.random() < 0.2 else rng.randrange(100)
            rows.append((rng.randrange(turn * 10, 100), rng.choice("ab"), value, rng.choice([None, "x", "y"])))
        for row in rows:
            model[row[:2]] = merged(name, model.get(row[:2]), row)
        table.upsert(arrow(rows))
        assert read(table) == sorted(model.values(), key=repr)
        where, of = CONDITIONS[turn % len(CONDITIONS)]
        count = sum(1 for r in model.values() if of(r))
        before = table.snapshot
        assert table.delete(where) == count
        model = {k: r for k, r in model.items() if not of(r)}
        assert read(table) == sorted(model.values(), key=repr), where
        last = table.snapshot
        assert last is not None and before is not None and (last.commit_kind, last.operation) == ("OVERWRITE", "DELETE")
        if name.endswith("uncompacted"):
            assert last.id == before.id + 1
    table.maintenance.compact(full=True)
    assert read(table) == sorted(model.values(), key=repr)
    assert table.delete() == len(model)
    assert read(table) == []
    assert table.delete() == 0
    assert strays(table) == set()


def test_only_what_was_hit_is_written_again(tmp_path: Path) -> None:
    table = made(tmp_path, **SUM, **{"bucket": "1", "write-only": "true"})
    for start in range(0, 50, 10):
        table.upsert(arrow([(i, "a", i, "x") for i in range(start, start + 10)]))
    files = {e.file.file_name: e for e in table._core.state().entries()}
    assert len(files) > 1
    assert table.delete("id = 3") == 1
    after = {e.file.file_name: e for e in table._core.state().entries()}
    gone, new = files.keys() - after.keys(), after.keys() - files.keys()
    assert len(gone) == len(new) == 1
    old, made_ = files[gone.pop()].file, after[new.pop()].file
    assert (made_.level, made_.row_count) == (old.level, old.row_count - 1)
    assert made_.max_sequence_number <= old.max_sequence_number


def test_rows_not_told_of_yet_are_in_the_changelog_before_files_are_written_again(tmp_path: Path) -> None:
    table = made(tmp_path, **SUM, **{"bucket": "1", "changelog-producer": "full-compaction"})
    table.upsert(arrow([(1, "a", 1, "x"), (2, "a", 2, "x")]))
    first = table.snapshot
    assert first is not None
    assert table.delete("id = 2") == 1
    told = [table.scan(snapshot=i)._core.state.snapshot for i in range(1, table.snapshot.id + 1)]  # type: ignore[union-attr]
    assert sum(s.changelog_record_count or 0 for s in told if s is not None) == 2
    assert [s.commit_kind for s in told if s is not None] == ["APPEND", "COMPACT", "OVERWRITE"]


@pytest.mark.parametrize("after", [False, True])
def test_a_store_that_fails_at_any_call_leaves_old_or_new_and_no_strays(after: bool, tmp_path: Path) -> None:
    for number in range(200):
        table = made(tmp_path / str(number), **SUM, bucket="1")
        for _ in range(2):
            table.upsert(arrow([(i, "a", i, "x") for i in range(5)]))
        store = FaultyStore(LocalStore(), number, after=after, only=frozenset({"create", "write", "open_output"}))
        try:
            Table(FileStoreTable("default.t", table.path, store)).delete("id = 3")
        except OutcomeUnknown:  # files stay, in case they are needed
            assert [r[0] for r in read(table)] == ([0, 1, 2, 4] if after else [0, 1, 2, 3, 4])
            continue
        except StorageUnavailable:
            assert [r[0] for r in read(table)] == [0, 1, 2, 3, 4]
            assert after or strays(table) == set()
            continue
        assert [r[0] for r in read(table)] == [0, 1, 2, 4]
        if not store.failed:
            break
    assert number > 3


@pytest.mark.parametrize(
    ("options", "rows", "rewrite"),
    [
        ({}, True, False),
        ({"ignore-delete": "true"}, False, True),
        ({"ignore-delete": "true", "deletion-vectors.enabled": "true"}, False, False),
        ({"merge-engine": "first-row"}, False, True),
        (SUM, False, True),
        ({**SUM, "aggregation.remove-record-on-delete": "true"}, True, False),
        ({**SUM, "deletion-vectors.enabled": "true"}, False, False),
        ({"merge-engine": "partial-update"}, False, True),
        ({"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"}, True, False),
        ({"merge-engine": "partial-update", "fields.v.sequence-group": "w"}, False, True),
        (
            {
                "merge-engine": "partial-update",
                "fields.v.sequence-group": "w",
                "partial-update.remove-record-on-sequence-group": "v",
            },
            True,
            False,
        ),
        ({"primary-key": ""}, False, False),
    ],
)
def test_how_rows_are_deleted(tmp_path: Path, options: dict[str, str], rows: bool, rewrite: bool) -> None:
    """By -D rows if the engine removes rows by them, else by vectors or by rewriting; an append table has neither."""
    if "primary-key" in options:
        table = bitlake.connect(str(tmp_path)).create_table("t", COLUMNS)
    else:
        table = made(tmp_path, **options)
    state = table._core.state()
    assert (deletes_by_rows(state), deletes_by_rewrite(state)) == (rows, rewrite)


@pytest.mark.parametrize(
    ("producer", "shown"), [("none", True), ("input", True), ("lookup", False), ("full-compaction", False)]
)
def test_changes_that_the_changelog_does_not_show_are_compacted(tmp_path: Path, producer: str, shown: bool) -> None:
    """With lookup level 0 has them, with full compactions all levels but the highest."""
    options = {"changelog-producer": producer, "bucket": "1", "write-only": "true"}
    table = made(tmp_path, **options)
    table.upsert(arrow([(1, "a", 1, "x")]))
    assert compact_pending(table._core, table._core.state()).snapshot_id == (1 if shown else 2)
    if shown:
        return
    state = table._core.state()
    assert {e.file.level for e in state.entries()} == {5}
    assert compact_pending(table._core, state) is state, "nothing is left to show"
    table.upsert(arrow([(1, "a", 2, "x")]))
    table.upsert(arrow([(2, "b", 2, "x")]))
    after = compact_pending(table._core, table._core.state())
    assert {e.file.level for e in after.entries()} <= ({4, 5} if producer == "lookup" else {5})


def test_an_overwrite_with_own_rows_waits_for_those_of_another_writer(tmp_path: Path) -> None:
    """Queries of a first-row table do not read level 0: the overwrite lost its rows."""
    table = made(tmp_path, **TABLES["first-row"], **{"write-only": "true"})
    table.upsert(arrow([(1, "a", 1, "x")]))
    for number in range(0, 200, 4):
        store = Between(LocalStore(), number, lambda n=number: table.upsert(arrow([(n + 2, "a", 1, "x")])))
        core = FileStoreTable(table.name, table.path, store)
        after = compact_pending(core, core.state(), overwrites=True)
        assert all(e.file.level for e in after.entries()), f"call {number}"
        if not store.done:
            break
    assert number > 20


@pytest.mark.parametrize("where", ["p = 'a'", exhaustive("p < 'b' OR p IS NULL"), None])
@pytest.mark.parametrize("name", every(2, ["input", *TABLES]))
def test_delete_of_whole_partitions_drops_their_files(tmp_path: Path, name: str, where: str | None) -> None:
    """A -D row was written for each row; Paimon truncates the partitions, without a changelog."""
    table = made(tmp_path, **({"changelog-producer": "input"} if name == "input" else TABLES[name]))
    for v in (1, 2):
        table.append(arrow([(1, "a", v, None), (2, "a", v, None), (1, "b", v, None)]))
    kept = [r for r in read(table) if where is not None and r[1] == "b"]
    before = {s.id for s in table.history.snapshots()}
    assert table.delete(where) == 3 - len(kept) and read(table) == kept
    assert table.delete(where) == 0
    made_here = [s for s in table.history.snapshots() if s.id not in before]
    assert [(s.commit_kind, s.changelog_record_count) for s in made_here] == [("OVERWRITE", None)]
    assert table.maintenance.verify().ok
    table.append(arrow([(1, "a", 7, None)]))
    assert read(table) == sorted([*kept, (1, "a", 7, None)], key=repr)


@pytest.mark.parametrize("where", ["p = CAST('NaN' AS DOUBLE)", "p > 1.0", "p IS NOT NULL", None])
def test_delete_of_a_partition_of_nan_drops_its_files(tmp_path: Path, where: str | None) -> None:
    """NaN differs from itself: the rows were counted as deleted, and stayed."""
    nan, kind = float("nan"), pa.float64()
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("p", kind, nullable=False)])
    options = {"bucket": "1", "primary-key": "id,p", **QUICK}
    table = bitlake.connect(str(tmp_path)).create_table("t", columns, partition_by=["p"], options=options)
    table.append(pa.table([[1, 2, 3], pa.array([nan, 0.5, nan], kind)], schema=columns))
    kept = [] if where in ("p IS NOT NULL", None) else [2]
    assert table.delete(where) == 3 - len(kept)
    assert table.scan().to_arrow()["id"].to_pylist() == kept


def test_delete_of_whole_partitions_shows_rows_where_the_table_asks_for_it(tmp_path: Path) -> None:
    force = {"delete.force-produce-changelog": "true", "changelog-producer": "input"}
    table = made(tmp_path, **force)
    table.append(arrow([(1, "a", 1, None), (1, "b", 1, None)]))
    assert table.delete("p = 'a'") == 1
    assert table.changes(1).to_arrow().to_pylist() == [{"rowkind": "-D", "id": 1, "p": "a", "v": 1, "w": None}]
    assert table.delete() == 1 and table.changes(2).to_arrow().num_rows == 0, "TRUNCATE shows no rows in Paimon either"


def test_delete_of_whole_partitions_reads_again_what_another_writer_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(tmp_path)
    table.append(arrow([(1, "a", 1, None), (1, "b", 1, None)]))
    drop, raced = FileStoreTable.delete_partitions, []

    def and_rows_come(self: FileStoreTable, scan: Any) -> int:
        if not raced:
            raced.append(1)
            table.append(arrow([(2, "a", 1, None)]))
        return drop(self, scan)

    monkeypatch.setattr(FileStoreTable, "delete_partitions", and_rows_come)
    assert table.delete("p = 'a'") == 2 and read(table) == [(1, "b", 1, None)]


def test_deletes_are_ignored_under_former_names_of_the_option(tmp_path: Path) -> None:
    """DELETE wrote -D rows, which such a table leaves out: it reported rows that it did not delete."""
    for name in ("first-row.ignore-delete", "deduplicate.ignore-delete", "partial-update.ignore-delete"):
        table = made(tmp_path / name, **{name: "true"})
        table.append(arrow([(1, "a", 1, None), (2, "a", 1, None)]))
        assert table.delete("id = 1") == 1 and read(table) == [(2, "a", 1, None)]
        table.upsert(arrow([(2, "a", 1, None)]), kinds=["-D"])
        assert read(table) == [(2, "a", 1, None)]


# --- -D rows of rows that were found by position ----------------------------------------------------------------------

VECTORS: dict[str, dict[str, str]] = {
    "plain": {},
    "small files": {"target-file-size": "4 kb", "num-sorted-run.compaction-trigger": "3"},
    "input": {"changelog-producer": "input"},
    "lookup": {"changelog-producer": "lookup"},
    "sequence": {"sequence.field": "v"},
    "gentle": {"lookup-compact": "gentle"},
    "every commit": {"full-compaction.delta-commits": "1"},
    "write-only": {"write-only": "true"},
    "dynamic": {"bucket": "-1", "dynamic-bucket.target-row-num": "30"},
    "mostly deleted": {"compaction.delete-ratio-threshold": "0.1"},
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", VECTORS)
def test_random_deletes_by_vectors(name: str, tmp_path: Path) -> None:
    table = made(tmp_path, **{"deletion-vectors.enabled": "true", **VECTORS[name]})
    rng = random.Random(name)
    model: dict[Any, Row] = {}

    def check(where: str) -> None:
        rows = table._core.scan_of(table._core.state()).with_level_0().to_arrow()
        found = sorted(zip(*rows.to_pydict().values(), strict=True), key=repr)
        assert found == sorted(model.values(), key=repr), where

    for turn in range(8):
        rows: list[Row] = []
        for _ in range(70 if turn % 3 == 0 else 4):
            rows.append((rng.randrange(100), rng.choice("ab"), turn * 100 + rng.randrange(80), rng.choice([None, "x"])))
        model |= {row[:2]: row for row in sorted(rows, key=lambda r: r[2] or 0)}
        table.upsert(arrow(sorted(rows, key=lambda r: r[2] or 0)))
        check("upsert")
        value = rng.randrange(7)
        where = [f"v % 7 = {value}", f"id BETWEEN {value * 9} AND {value * 9 + 20}", "w = 'x' AND id % 2 = 0"][turn % 3]
        of = [
            lambda r: r[2] % 7 == value,  # noqa: B023
            lambda r: value * 9 <= r[0] <= value * 9 + 20,  # noqa: B023
            lambda r: r[3] == "x" and r[0] % 2 == 0,
        ][turn % 3]
        assert table.delete(where) == sum(map(of, model.values()))
        model = {k: r for k, r in model.items() if not of(r)}
        check(where)
    assert table.maintenance.verify().ok and strays(table) == set()
    table.maintenance.compact(full=True)
    check("compact")


def test_a_delete_marks_the_rows_that_it_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looked up by their keys the rows that it had found by position, and read its own -D rows again for that."""
    table = made(tmp_path, **{"bucket": "1", "deletion-vectors.enabled": "true"})
    table.upsert(arrow([(i, "a", i, "x") for i in range(50)]))
    before = {e.file.file_name: e.file.level for e in table._core.state().entries()}
    monkeypatch.setattr(KeyLookup, "find", lambda *_: pytest.fail("a key is looked up"))
    read_files: list[str] = []
    read_rows = BucketReader.read

    def noted(self: BucketReader, entry: Any, *rest: Any, **more: Any) -> Any:
        read_files.append(entry.file.file_name)
        return read_rows(self, entry, *rest, **more)

    monkeypatch.setattr(BucketReader, "read", noted)
    for low in (10, 30):
        last = table.snapshot
        assert last is not None and table.delete(f"id >= {low} AND id < {low + 5}") == 5
        assert table.changes(last.id, last.id + 1).to_arrow().to_pylist() == [
            {"rowkind": "-D", "id": i, "p": "a", "v": i, "w": "x"} for i in range(low, low + 5)
        ]
    left = [(i, "a", i, "x") for i in range(50) if i // 5 not in (2, 6)]
    assert read(table) == sorted(left, key=repr)
    assert {e.file.file_name: e.file.level for e in table._core.state().entries()} == before
    assert read_files == []


def test_a_delete_in_a_unit_with_other_files_marks_and_merges(tmp_path: Path) -> None:
    table = made(tmp_path, **{"bucket": "1", "deletion-vectors.enabled": "true"})
    table.upsert(arrow([(i, "a", i, "x") for i in range(500)]))
    table.upsert(arrow([(i, "a", -1, "y") for i in range(0, 500, 100)]))
    levels = sorted(e.file.level for e in table._core.state().entries())
    assert len(levels) == 2 and min(levels) > 0
    assert table.delete("id < 300") == 300
    left = [(i, "a", i, "x") if i % 100 else (i, "a", -1, "y") for i in range(300, 500)]
    assert read(table) == sorted(left, key=repr)
    assert sorted(e.file.level for e in table._core.state().entries()) == levels
    table.maintenance.compact(full=True)
    assert len(read(table)) == 200


def test_a_delete_that_compacts_fully_leaves_no_deleted_rows(tmp_path: Path) -> None:
    """It marked rows in files of the highest level, which stayed as they were."""
    options = {"bucket": "1", "deletion-vectors.enabled": "true", "full-compaction.delta-commits": "1"}
    table = made(tmp_path, **options)
    table.upsert(arrow([(i, "a", i, "x") for i in range(50)]))
    assert table.delete("id < 20") == 20
    assert [e.file.row_count for e in table._core.state().entries()] == [30]
    last = table.snapshot
    assert last is not None and last.total_record_count == 30 and len(read(table)) == 30


def test_a_delete_runs_again_if_another_writer_was_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it found by position is of the snapshot that it read."""
    table = made(tmp_path, **{"bucket": "1", "deletion-vectors.enabled": "true"})
    table.upsert(arrow([(i, "a", i, "x") for i in range(5)]))
    find, raced = append_dml.find_hits, []

    def and_rows_come(*given: Any) -> Any:
        hits = find(*given)
        if not raced:
            raced.append(1)
            table.upsert(arrow([(2, "a", 9, "x"), (3, "a", 0, "x")]))
        return hits

    monkeypatch.setattr(append_dml, "find_hits", and_rows_come)
    assert table.delete("v >= 3") == 2 and read(table) == [(0, "a", 0, "x"), (1, "a", 1, "x"), (3, "a", 0, "x")]
