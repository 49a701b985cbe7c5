"""Planning some partitions of a table of very many files: as if all files had been looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from caches import forget
from store_wrappers import CountingStore

import bitlake
from bitlake.metadata.manifest import EntryKind
from bitlake.snapshot import manifests, partitions
from bitlake.snapshot.state import TableState

CONDITIONS = [
    "p = 3",
    "p = 3 AND q = 'b'",
    "p IN (1, 2, 99) AND q IN ('a', 'c')",
    "p = 3 AND q = 'b' AND v > 2",
    "p BETWEEN 2 AND 4 AND v = 1",
    "p > 5",
    "p IS NULL",
    "p = 4 AND q IS NULL",
    "p = 100",
    "p = 1 AND p = 2",
    "p = 1 OR p = 2",
    "p <> 3",
    "f = 0.0 AND p = 2 AND q = 'a'",
    "q LIKE 'b%'",
]


@pytest.fixture
def table(tmp_path: Path) -> bitlake.Table:
    schema = pa.schema([("p", pa.int32()), ("q", pa.string()), ("v", pa.int64()), ("f", pa.float64())])
    made = bitlake.connect(str(tmp_path)).create_table("t", schema, partition_by=["p", "q"])
    for turn in range(4):
        cells = [(p, q) for p in (*range(turn, turn + 4), None) for q in ("a", "b", "c", None)]
        columns = {
            "p": pa.array([p for p, _ in cells], pa.int32()),
            "q": [q for _, q in cells],
            "v": [turn] * len(cells),
            "f": [-0.0] * len(cells),
        }
        made.append(pa.table(columns, schema=schema))
    made.overwrite(pa.table({"p": [3], "q": ["b"], "v": [7], "f": [1.5]}, schema=schema), {"p": 3, "q": "b"})
    return made


def planned(table: bitlake.Table, where: str) -> tuple[list[str], Any]:
    forget()
    plan = table.scan(where=where).plan()
    return [f.path for f in plan.files], plan.metrics


@pytest.mark.exhaustive
@pytest.mark.parametrize("where", CONDITIONS)
def test_the_same_files_are_planned(table: bitlake.Table, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, whole = planned(table, where)
    monkeypatch.setattr(partitions, "MANY_FILES", 1)
    for many in (1, 5_000):
        monkeypatch.setattr(manifests, "MANY_ENTRIES", many)
        found, metrics = planned(table, where)
        assert found == wanted
        assert (metrics.files, metrics.rows, metrics.files_skipped) == (whole.files, whole.rows, whole.files_skipped)
        assert table.scan(where=where).to_arrow().num_rows == metrics.rows_chosen or "v" in where or "f" in where


def test_manifests_of_other_partitions_are_not_read(table: bitlake.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "MANY_FILES", 1)
    forget()
    scan = table.scan(where="p = 0 AND q = 'a'")  # only the first commit wrote to it
    metrics = scan.plan().metrics
    assert metrics.manifests_read < metrics.manifests
    assert metrics.files_unseen == metrics.files - len(scan.plan().files) > 50
    assert f"{metrics.files_unseen} files of other partitions were not looked at" in scan.explain()
    assert scan.explain("dict")["manifests"]["files_unseen"] == metrics.files_unseen
    store = CountingStore(table._core.store)
    snapshot = table.snapshot
    assert snapshot is not None
    assert not manifests.is_cached(table._core.state().table_files, snapshot)
    again = partitions.files_to_plan(
        TableState("t", table._core.state().paths, store, table.schema, snapshot), scan._core.predicate
    )
    assert len(again.files) == 1 and not store.calls  # known by now


@pytest.mark.parametrize("where", CONDITIONS[:3] + CONDITIONS[5:6])
def test_conditions_choose_the_same_files_of_large_tables(
    table: bitlake.Table, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compaction, backfill and listings of some partitions: the files of others are not decoded."""
    forget()
    whole = list(table._core.partition_files(table._core.state(), where))
    monkeypatch.setattr(partitions, "MANY_FILES", 1)
    monkeypatch.setattr(manifests, "MANY_ENTRIES", 1)
    forget()
    state = table._core.state()
    assert list(table._core.partition_files(state, where)) == whole
    assert state.snapshot is not None
    # Every manifest has files of this partition of the first column.
    assert manifests.is_cached(state.table_files, state.snapshot) == (where == "p = 3")


def test_a_compaction_reads_the_entries_of_its_partitions(
    table: bitlake.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "MANY_FILES", 1)
    monkeypatch.setattr(manifests, "MANY_ENTRIES", 1)
    before = sorted(table.to_arrow().to_pylist(), key=str)
    forget()
    state = table._core.state()
    assert state.snapshot is not None
    assert table.maintenance.compact(full=True, where="p = 2 AND q = 'b'") is not None
    assert not manifests.is_cached(state.table_files, state.snapshot)
    assert len(table.scan(where="p = 2 AND q = 'b'").plan().files) == 1
    assert sorted(table.to_arrow().to_pylist(), key=str) == before


def test_small_tables_are_looked_at_as_a_whole(table: bitlake.Table) -> None:
    forget()
    plan = table.scan(where="p = 0 AND q = 'a'").plan()
    assert plan.metrics.files_unseen == 0 and len(plan.skipped) == plan.metrics.files - 1


@pytest.mark.parametrize(("names", "seen"), [("abcdefgh", 8), ("abcdefghi", 16)])
def test_up_to_64_partitions_are_looked_for_one_by_one(
    table: bitlake.Table, names: str, seen: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of more, all files in manifests that may hold one are looked at; each of the four has files of five ``p``."""
    monkeypatch.setattr(partitions, "MANY_FILES", 1)
    monkeypatch.setattr(manifests, "MANY_ENTRIES", 1)
    where = f"p IN (0, 20, 21, 22, 23, 24, 25, 26) AND q IN ({', '.join(map(repr, names))})"
    files, metrics = planned(table, where)
    assert len(files) == 3
    assert metrics.files - metrics.files_unseen == (3 if seen == 8 else 20)


def test_the_newest_files_of_a_large_table_are_found_in_the_last_manifests(
    table: bitlake.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last commit added one file, each before it twenty; a large manifest is read only if it is the last.

    Files that were deleted since count: they show as well how large files of the table are.
    """
    store = CountingStore(table._core.store)
    state = TableState("t", table._core.state().paths, store, table.schema, table.snapshot)
    live = list(table._core.state().entries())
    assert state.snapshot is not None
    metas = manifests.snapshot_manifests(state.table_files, state.snapshot)
    entries = [e for of_one in manifests.read_manifests(state.table_files, metas) for e in of_one]
    added = [e.file.file_name for e in entries if e.kind is EntryKind.ADD]
    assert [m.num_added_files for m in metas] == [20, 20, 20, 20, 1] and len(live) == 77

    def newest(count: int, many_files: int = 1, many_entries: int = 5_000) -> tuple[list[str], int]:
        forget()
        monkeypatch.setattr(partitions, "MANY_FILES", many_files)
        monkeypatch.setattr(manifests, "MANY_ENTRIES", many_entries)
        store.reset()
        files = partitions.newest_files(state, count)
        read = sum("manifest-" in path and "list" not in path for _, path in store.paths)
        assert state.entries() and list(partitions.newest_files(state, count)) == live[-count:], "they are cached now"
        return [e.file.file_name for e in files], read

    assert newest(1) == (added[-1:], 1)
    assert newest(20) == (added[-20:], 2)
    assert newest(21) == (added[-21:], 2)
    assert newest(22) == (added[-22:], 3)
    assert newest(22, many_entries=20) == (added[-1:], 1)
    assert newest(22, many_entries=21) == (added[-22:], 3)
    assert newest(1, many_entries=1) == (added[-1:], 1), "the last manifest is read, large or not"
    assert newest(1, many_files=len(live)) == (added[-1:], 1)
    assert newest(1, many_files=len(live) + 1) == (added[-1:], 5)
