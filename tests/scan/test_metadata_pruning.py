"""Pruning all files at once says what judging each by itself says, and describes what it skips only when asked."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from caches import forget

import bitlake
from bitlake.errors import CorruptError
from bitlake.expressions.binder import bind
from bitlake.expressions.parser import parse_predicate
from bitlake.metadata.manifest import EMPTY_STATS, DataFileMeta, EntryKind, ManifestEntry, SimpleStats
from bitlake.scan import planner
from bitlake.scan.plan import SkippedFile, SkippedFiles, SkipReason
from bitlake.scan.planner import MetadataPruning
from bitlake.snapshot.file_columns import FileColumns, LiveFiles, columns_of_files

CONDITIONS = [
    "id < 100",
    "id >= 100 AND name LIKE 'n2%'",
    "p = 'b' OR id = 3",
    "p IS NULL AND id > 5",
    "p <> 'a' AND amount > 10.5",
    "p IN ('a', 'c') AND name IN ('n1', 'n250')",
    "id IS NOT NULL",
    "late = 7",
    "late IS NULL AND id > 150",
    "id = 42",
]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> bitlake.Table:
    """Files of three partitions, with and without some statistics, of two schemas."""
    lake = bitlake.connect(str(tmp_path_factory.mktemp("lake")))

    def rows(start: int) -> pa.Table:
        number = range(start, start + 30)
        return pa.table(
            {
                "id": pa.array(number, pa.int64()),
                "p": pa.array([(None, "a", "b", "c")[i % 4] for i in number]),
                "name": pa.array([f"n{i}" for i in number]),
                "amount": pa.array([i / 4 for i in number], pa.float64()),
            }
        )

    made = lake.create_table("t", rows(0).schema, partition_by=["p"])
    for start in range(0, 200, 50):
        made.append(rows(start))
    made.alter_options({"fields.name.stats-mode": "none"})
    made.append(rows(250))
    made.add_column("late", "INT")
    made.append(rows(300).append_column("late", pa.array([7] * 30, pa.int32())))
    return made


def pruned(table: bitlake.Table, condition: str, entries: LiveFiles | None = None) -> MetadataPruning:
    state = table._core.state()
    files = state.entries() if entries is None else entries
    predicate = bind(parse_predicate(condition), state.schema.fields)
    schemas = state.schemas({e.file.schema_id for e in files})
    return MetadataPruning(columns_of_files(files), state.schema, schemas, state.paths, predicate)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_each_by_itself_says_the_same(table: bitlake.Table, condition: str, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = pruned(table, condition)
    with monkeypatch.context() as patch:
        patch.setattr(MetadataPruning, "_judge", lambda self, group, predicate, of: self._judge_each(predicate, of))
        one_by_one = pruned(table, condition)
    assert at_once.kept.tolist() == one_by_one.kept.tolist()
    assert at_once.whole.tolist() == one_by_one.whole.tolist()
    assert [at_once.describe(i) for i in at_once.skipped] == [one_by_one.describe(i) for i in one_by_one.skipped]
    assert sum(at_once.counts().values()) == len(at_once.skipped)
    assert len(table.scan(where=condition).plan().files) <= len(at_once.kept)


def test_a_second_question_finds_the_columns_decoded(table: bitlake.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    forget()
    pruned(table, "id > 10")

    def refuse(*args: object) -> None:
        raise AssertionError("decoded again")

    monkeypatch.setattr("bitlake.snapshot.file_columns.column_bounds", refuse)
    assert len(pruned(table, "id > 10000").kept) == 0
    with pytest.raises(AssertionError):
        pruned(table, "amount > 10")


def test_damaged_statistics_matter_only_where_they_are_needed(table: bitlake.Table) -> None:
    first, *others = table._core.state().entries()
    broken: ManifestEntry = replace(first, file=replace(first.file, value_stats=SimpleStats(b"", b"", ())))
    entries = LiveFiles([broken, *others])
    values = pruned(table, "TRUE", entries).partitions.values(broken.partition)
    other = "a" if values != ("a",) else "b"
    assert len(pruned(table, f"p = '{other}' AND id >= 0", entries).kept)
    with pytest.raises(CorruptError):
        pruned(table, "id >= 0", entries)


def test_nothing_is_described_unless_it_is_looked_at(table: bitlake.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = table.scan(where="id > 100000")
    with monkeypatch.context() as patch:
        patch.setattr(planner, "_stats_detail", None)
        plan = scan.plan()
        assert plan.files == ()
        assert plan.metrics.files_skipped == {"statistics": plan.metrics.files}
    assert "id is in [" in scan.explain()
    assert all(s.reason is SkipReason.STATS for s in plan.skipped)


def test_skipped_files_are_a_sequence() -> None:
    entry = ManifestEntry(
        EntryKind.ADD, b"", 0, 1, DataFileMeta("f", 3, 1, b"", b"", EMPTY_STATS, EMPTY_STATS, 0, 0, 0, 0)
    )

    def describe(number: int) -> SkippedFile:
        return SkippedFile(entry, f"f{number}", SkipReason.STATS, "")

    more = (describe(7),)
    some = SkippedFiles.joined([SkippedFiles(2, lambda i: describe((2, 4)[i])), (), more])
    assert [s.path for s in some] == ["f2", "f4", "f7"]
    assert some == (describe(2), describe(4), describe(7)) and some != (describe(2),)
    assert some[-1].path == "f7" and some[0].path == "f2"
    assert [s.path for s in some[1:]] == ["f4", "f7"]
    assert describe(4) in some and describe(5) not in some
    assert pickle.loads(pickle.dumps(SkippedFiles.joined([more]))) == more
    assert some.counts() == {SkipReason.STATS: 3} and some.sizes() == {SkipReason.STATS: 9}
    with pytest.raises(IndexError):
        some[3]


def test_files_are_grouped_by_value_not_by_identity(tmp_path: Path) -> None:
    lake = bitlake.connect(str(tmp_path))
    table = lake.create_table("t", pa.schema([pa.field("id", pa.int64()), pa.field("l", pa.list_(pa.int32()))]))
    rows = pa.table({"id": pa.array([1], pa.int64()), "l": pa.array([[1]], pa.list_(pa.int32()))})
    for _ in range(3):
        table.append(rows)
    entries = table._core.state().entries()
    apart = [replace(e, file=replace(e.file, value_stats_cols=(*(e.file.value_stats_cols or ()),))) for e in entries]
    (group,) = FileColumns(apart).groups
    assert group.places.tolist() == np.arange(3).tolist()
    assert group.columns == ("id",)
