"""Compaction of append tables: what is picked, that no row is lost or comes back, and how it meets other writers."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from append_tables import SCHEMA, VECTORS, fill, table_of
from faults import strays
from hypothesis import given
from hypothesis import strategies as some

from bitlake.errors import CommitConflict
from bitlake.metadata.manifest import FileSource, ManifestEntry
from bitlake.runtime import LocalRunner
from bitlake.table.table import Table
from bitlake.write import append_compaction
from bitlake.write.append_compaction import CompactionRules, compact_append, pick_groups

BUCKETS = {"bucket": "2", "bucket-key": "id"}
RULES = CompactionRules(100, 70.0, 0.2, 5, 4, False, True, False)


def rows_of(table: Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(r.values()) for r in table.scan().to_arrow().to_pylist())


def files_of(table: Table) -> list[ManifestEntry]:
    return list(table._core.state().entries())


def test_a_compaction_that_others_always_overtake_gives_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of(tmp_path, {})
    fill(table, 5)
    before, tries = rows_of(table), []

    def overtaken(*_: Any, **__: Any) -> None:
        tries.append(1)
        raise CommitConflict("another writer committed first")

    monkeypatch.setattr(append_compaction, "commit", overtaken)
    with pytest.raises(CommitConflict, match="another writer committed first"):
        compact_append(table._core.state(), files_of(table), table._core.state, LocalRunner(1), "me", full=True)
    assert len(tries) == 10
    assert rows_of(table) == before and strays(table) == set()


# --- picking ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def entry(tmp_path_factory: pytest.TempPathFactory) -> ManifestEntry:
    table = table_of(tmp_path_factory.mktemp("one"), {})
    fill(table, 1)
    return files_of(table)[0]


def made(entry: ManifestEntry, sizes: Sequence[int]) -> list[ManifestEntry]:
    """Files f0, f1, … of these sizes, 10 rows each, in sequence."""
    return [
        replace(
            entry,
            file=replace(
                entry.file,
                file_name=f"f{i}",
                file_size=size,
                row_count=10,
                min_sequence_number=10 * i,
                max_sequence_number=10 * i + 9,
            ),
        )
        for i, size in enumerate(sizes)
    ]


def names(groups: Sequence[Sequence[ManifestEntry]]) -> list[list[str]]:
    return [[e.file.file_name for e in g] for g in groups]


PICKS = [
    # sizes, deleted rows by file (None: not known), full, groups
    ([10, 10, 10, 10], {}, False, []),
    ([10, 10, 10, 10], {}, True, [["f0", "f1", "f2", "f3"]]),
    ([10, 80, 10, 10, 10, 10], {}, False, [["f0", "f2", "f3", "f4", "f5"]]),
    ([69, 69, 69, 69], {}, False, [["f0", "f1", "f2"]]),
    ([80, 80], {0: 2}, False, []),
    ([80, 80], {0: 3}, False, [["f0"]]),
    ([80, 80], {0: None}, False, [["f0"]]),
    ([80, 80], {0: 1}, True, [["f0"]]),
    ([10, 80, 80], {0: 1, 2: 9}, False, [["f0", "f2"]]),
    ([80, 80], {}, True, []),
]


@pytest.mark.parametrize(("sizes", "gone", "full", "expected"), PICKS)
def test_picks_without_buckets(
    entry: ManifestEntry, sizes: list[int], gone: dict[int, int | None], full: bool, expected: list[list[str]]
) -> None:
    deleted = {f"f{i}": n for i, n in gone.items()}
    groups = pick_groups(RULES, made(entry, sizes), deleted, full, dict.fromkeys(deleted, "index-1"))
    assert names(groups) == expected


def test_files_of_one_index_file_stay_together(entry: ManifestEntry) -> None:
    files = made(entry, [90, 90, 90, 90, 90])
    deleted = {f"f{i}": 9 for i in range(5)}
    index_of = {"f0": "a", "f1": "b", "f2": "a", "f3": "b", "f4": "c"}
    groups = pick_groups(RULES, files, deleted, False, index_of)
    assert sorted(n for g in names(groups) for n in g) == ["f0", "f1", "f2", "f3", "f4"]
    where = {n: i for i, g in enumerate(names(groups)) for n in g}
    assert where["f0"] == where["f2"] and where["f1"] == where["f3"]


BUCKET_PICKS = [
    ([10, 10, 10, 10, 10, 10], {}, False, [["f0", "f1", "f2", "f3", "f4"]]),
    ([150, 150, 10, 10, 10, 10, 10], {}, False, [["f1", "f2", "f3", "f4", "f5"]]),
    ([80, 10, 10, 10], {}, True, [["f1", "f2", "f3"]]),
    ([80, 10], {0: 1}, True, [["f0", "f1"]]),
    ([80, 80], {1: 1}, True, [["f1"]]),
    ([10], {}, True, []),
]


@pytest.mark.parametrize(("sizes", "gone", "full", "expected"), BUCKET_PICKS)
def test_picks_in_buckets(
    entry: ManifestEntry, sizes: list[int], gone: dict[int, int | None], full: bool, expected: list[list[str]]
) -> None:
    rules = replace(RULES, bucketed=True)
    deleted = {f"f{i}": n for i, n in gone.items()}
    assert names(pick_groups(rules, made(entry, sizes), deleted, full, {})) == expected


@given(some.lists(some.integers(1, 250), max_size=20), some.booleans(), some.booleans(), some.booleans())
def test_no_file_is_in_two_groups(sizes: list[int], full: bool, bucketed: bool, every: bool) -> None:
    files = made(_ANY[0], sizes)
    rules = replace(RULES, bucketed=bucketed, every_file=every)
    groups = pick_groups(rules, files, {"f1": 9, "f3": 0}, full, {"f1": "a", "f3": "a"})
    picked = [n for g in names(groups) for n in g]
    assert len(picked) == len(set(picked))
    assert all(g for g in groups)


_ANY: list[ManifestEntry] = []


@pytest.fixture(autouse=True)
def _any(entry: ManifestEntry) -> None:
    _ANY[:] = [entry]


# --- compacting -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("buckets", [{}, BUCKETS], ids=["unaware", "bucketed"])
@pytest.mark.parametrize("vectors", [{}, VECTORS], ids=["copy-on-write", "vectors"])
def test_rows_stay_and_files_become_fewer(tmp_path: Path, buckets: dict[str, str], vectors: dict[str, str]) -> None:
    table = table_of(tmp_path, {**buckets, **vectors, "file-index.bitmap.columns": "v"}, ["p"])
    fill(table, 6)
    table.delete("v = 'v3'")
    before, count = rows_of(table), len(files_of(table))
    snapshot = table.maintenance.compact(full=True)
    assert snapshot is not None and snapshot.commit_kind == "COMPACT"
    assert rows_of(table) == before
    left = files_of(table)
    assert len(left) == (4 if buckets else 2) < count
    assert {e.file.file_source for e in left} == {FileSource.COMPACT}
    assert sum(e.file.row_count for e in left) == len(before), "deleted rows are gone from the files"
    plan = table.scan(where="v = 'v1'").plan()
    assert all(f.pruned_by == ("bitmap(v)",) for f in plan.files), "indexes are built anew"
    assert table.maintenance.compact(full=True) is None, "nothing is left to do"


def test_files_in_buckets_keep_the_order_of_rows(tmp_path: Path) -> None:
    table = table_of(tmp_path, {"bucket": "1", "bucket-key": "p"})
    fill(table, 5)
    table.maintenance.compact()
    (file,) = files_of(table)
    assert table.scan(["id"]).to_arrow().column(0).to_pylist() == list(range(100))
    assert (file.file.min_sequence_number, file.file.max_sequence_number) == (0, 99)


def test_few_small_files_are_left_until_there_are_enough(tmp_path: Path) -> None:
    table = table_of(tmp_path, {})
    fill(table, 4)
    assert table.maintenance.compact() is None
    fill(table, 1)
    assert table.maintenance.compact() is not None
    assert len(files_of(table)) == 1


def test_where_narrows_partitions(tmp_path: Path) -> None:
    table = table_of(tmp_path, {}, ["p"])
    fill(table, 5)
    table.maintenance.compact(where="p = 'p1'")
    assert len(files_of(table)) == 6


# --- beside other writers ---------------------------------------------------------------------------------------------


def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Let another writer act once, between the writing of new files and their commit."""
    plain, left = append_compaction.rewrite, [act]

    def rewrite(*arguments: Any) -> Any:
        done = plain(*arguments)
        if left:
            left.pop()()
        return done

    monkeypatch.setattr(append_compaction, "rewrite", rewrite)


@pytest.mark.parametrize("buckets", [{}, BUCKETS], ids=["unaware", "bucketed"])
def test_rows_deleted_meanwhile_stay_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, buckets: dict[str, str]
) -> None:
    table = table_of(tmp_path, {**VECTORS, **buckets})
    fill(table, 6)
    table.delete("id < 5")
    meanwhile(monkeypatch, lambda: table.delete("id BETWEEN 50 AND 53"))
    assert table.maintenance.compact(full=True) is not None
    assert [r[0] for r in rows_of(table)] == [i for i in range(5, 120) if not 50 <= i <= 53]
    orphans = {p.name for p in Path(table.path).rglob("data-*.parquet")} - {e.file.file_name for e in files_of(table)}
    assert len(orphans) == 12 if buckets else 6, "only the files of older snapshots are left beside the live ones"


def test_vectors_of_other_files_in_the_same_index_file_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_of(tmp_path, {**VECTORS, "target-file-size": "1 kb", "compaction.delete-ratio-threshold": "0.5"})
    fill(table, 3, rows=200)
    table.delete("id < 150 OR id IN (199, 299, 399, 499, 599)")
    rewritten: list[int] = []
    meanwhile(monkeypatch, lambda: rewritten.append(table.delete("id = 401")))
    table.maintenance.compact()
    assert rewritten == [1]
    assert [r[0] for r in rows_of(table)] == [i for i in range(150, 600) if i % 100 != 99 and i != 401]


def test_it_gives_way_to_another_compaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of(tmp_path, {})
    fill(table, 6)
    before = rows_of(table)
    meanwhile(monkeypatch, table.maintenance.compact)
    assert table.maintenance.compact() is None
    assert rows_of(table) == before
    assert len(files_of(table)) == 1
    assert len(list(Path(table.path).rglob("data-*.parquet"))) == 7, "what it wrote is deleted"


def test_rows_appended_meanwhile_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of(tmp_path, {})
    fill(table, 5)
    meanwhile(monkeypatch, lambda: fill(table, 1))
    table.maintenance.compact()
    assert len(rows_of(table)) == 120
    assert len(files_of(table)) == 2


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(4))
def test_random_statements_and_compactions(tmp_path: Path, seed: int) -> None:
    """Appends, deletes, updates and compactions in any order, against a list."""
    pick = random.Random(seed)
    options = {**(VECTORS if seed % 2 else {}), **(BUCKETS if seed > 1 else {}), "compaction.min.file-num": "2"}
    table = table_of(tmp_path, options, ["p"])
    rows: list[tuple[Any, ...]] = []
    for step in range(25):
        low = pick.randrange(200)
        act = pick.choice(["append", "append", "delete", "update", "compact", "full"])
        if act == "append":
            new = [(pick.randrange(200), pick.choice(["a", "b", None]), pick.choice(["p0", "p1"])) for _ in range(12)]
            columns = {n: [r[i] for r in new] for i, n in enumerate(SCHEMA.names)}
            table.append(pa.table(columns, schema=SCHEMA))
            rows += new
        elif act == "delete":
            hit = [r for r in rows if low <= r[0] < low + 25]
            assert table.delete(f"id >= {low} AND id < {low + 25}") == len(hit)
            rows = [r for r in rows if not low <= r[0] < low + 25]
        elif act == "update":
            count = table.update({"v": f"u{step}"}, f"id < {low // 4} AND v IS NOT NULL")
            assert count == sum(r[0] < low // 4 and r[1] is not None for r in rows)
            rows = [(r[0], f"u{step}", r[2]) if r[0] < low // 4 and r[1] is not None else r for r in rows]
        else:
            table.maintenance.compact(full=act == "full")
        found = [tuple(r.values()) for r in table.scan().to_arrow().to_pylist()]
        assert sorted(found, key=repr) == sorted(rows, key=repr), (step, act)
