"""Live files held by column are those held by entry, and so are their columns."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from caches import forget
from fixtures import warehouse
from made_entries import made_entries
from store_wrappers import CountingStore

import bitlake
from bitlake.codec.binary_row import EMPTY_ROW, encode_row_with_arity
from bitlake.errors import CorruptError
from bitlake.expressions.statistics import ColumnBounds
from bitlake.io.local import LocalStore
from bitlake.metadata.manifest import EMPTY_STATS, DataFileMeta, EntryKind, ManifestEntry, ManifestFileMeta
from bitlake.metadata.options import Options
from bitlake.metadata.paths import TablePaths
from bitlake.scan import planner
from bitlake.scan.plan import Plan, PlannedFiles
from bitlake.snapshot import file_columns, versions
from bitlake.snapshot import manifests as live
from bitlake.snapshot.file_columns import ColumnarFiles, LiveFiles, columns_of_files
from bitlake.snapshot.manifests import ManifestWriter
from bitlake.snapshot.table_files import TableFiles
from bitlake.types import parse_type

STORE = LocalStore()


@pytest.fixture
def by_column(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """All tables' files are held by column, and plans make the files that they keep when these are looked at."""
    forget()
    monkeypatch.setattr(live, "COLUMNAR_ENTRIES", 0)
    monkeypatch.setattr(planner, "MANY_PLANNED", 1)
    yield
    forget()


def by_entry(table: TableFiles, name: str, monkeypatch: pytest.MonkeyPatch) -> LiveFiles:
    snapshot = versions.latest_snapshot(table)
    assert snapshot is not None, name
    with monkeypatch.context() as patch:
        patch.setattr(live, "COLUMNAR_ENTRIES", 1 << 40)
        forget()
        files = live.live_files(table, snapshot)
        forget()
    assert isinstance(files, LiveFiles)
    return files


@pytest.mark.usefixtures("by_column")
def test_every_fixture_has_the_same_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = 0
    for path in sorted((warehouse() / "default.db").iterdir()):
        table = TableFiles(STORE, TablePaths(str(path)))
        snapshot = versions.latest_snapshot(table) if path.is_dir() else None
        if snapshot is None:
            continue
        expected = by_entry(table, path.name, monkeypatch)
        files = live.live_files(table, snapshot)
        assert files == expected and tuple(expected) == files
        if not isinstance(files, ColumnarFiles):
            continue
        columns, others = columns_of_files(files), columns_of_files(expected)
        assert columns.rows.tolist() == others.rows.tolist()
        assert columns.sizes.tolist() == others.sizes.tolist()
        assert columns.total_bytes == others.total_bytes
        assert columns.buckets.tolist() == others.buckets.tolist()
        some = np.arange(0, len(files), 2)
        assert columns.names(some).to_pylist() == others.names(some).to_pylist()
        assert columns.has_external_path.tolist() == others.has_external_path.tolist()
        assert columns.partitions[0] == others.partitions[0]
        assert columns.partitions[1].tolist() == others.partitions[1].tolist()
        assert columns.schema_ids == others.schema_ids
        for group, other in zip(columns.groups, others.groups, strict=True):
            assert (group.schema_id, group.columns) == (other.schema_id, other.columns)
            assert group.places.tolist() == other.places.tolist()
            fields = versions.load_schema(table, group.schema_id).fields
            names = [f.name for f in fields]
            for places in (group.places, group.places[:1]):
                some, same = (g.bounds(c, fields, names, places) for g, c in ((group, columns), (other, others)))
                assert {n: None if b is None else _lists(b) for n, b in some.items()} == {
                    n: None if b is None else _lists(b) for n, b in same.items()
                }
        seen += 1
    assert seen > 40


def _lists(bounds: ColumnBounds) -> list[object]:
    """Bounds of a column as values; None where a bound is unknown."""

    def known(values: Any, has: Any) -> list[str | None]:
        listed = values.tolist() if isinstance(values, np.ndarray) else values.to_pylist()
        return [repr(v) if h else None for v, h in zip(listed, has, strict=True)]

    low, high = known(bounds.low, bounds.has_low), known(bounds.high, bounds.has_high)
    return [low, high, bounds.nulls.tolist(), bounds.form, bounds.truncated]


def entry(name: str, number: int, kind: EntryKind = EntryKind.ADD, **more: object) -> ManifestEntry:
    file = DataFileMeta(name, 10 + number, number, EMPTY_ROW, EMPTY_ROW, EMPTY_STATS, EMPTY_STATS, 0, 0, 0, 0)
    partition = encode_row_with_arity([parse_type("INT")], [number // 10])
    return ManifestEntry(kind, partition, number % 3, 3, replace(file, **more))  # type: ignore[arg-type]


def rows(start: int, late: bool = False) -> pa.Table:
    number = range(start, start + 30)
    columns = {
        "id": pa.array(number, pa.int64()),
        "p": pa.array(["abc"[i % 3] for i in number]),
        "name": pa.array([f"n{i}" for i in number]),
        **({"late": pa.array([7] * 30, pa.int32())} if late else {}),
    }
    return pa.table(columns)


def write(root: Path, manifests: Sequence[Sequence[ManifestEntry]]) -> tuple[TableFiles, list[ManifestFileMeta]]:
    table = TableFiles(CountingStore(LocalStore()), TablePaths(str(root)))
    writer = ManifestWriter(table, [parse_type("INT")], Options({}))
    return table, [meta for entries in manifests for meta in writer.write(entries)]


@pytest.mark.usefixtures("by_column")
@pytest.mark.parametrize("seed", range(3))
def test_deletes_cancel_exactly_the_same_files(tmp_path: Path, seed: int) -> None:
    """A DELETE of a file in another level or with another index cancels nothing; a file may be listed twice."""
    rng = random.Random(seed)
    adds = [entry(f"data-{i}.parquet", i) for i in range(60)]
    changes = ({"level": 1}, {"extra_files": ("a.index",)}, {"embedded_index": b"i"}, {"external_path": "s3://x/y"})
    alike = [replace(e, file=replace(e.file, **rng.choice(changes))) for e in rng.sample(adds, 10)]
    twice = rng.sample(adds, 5)
    deletes = [replace(e, kind=EntryKind.DELETE) for e in rng.sample([*adds, *alike, entry("other", 1)], 25)]
    entries = [*adds, *alike, *twice, *deletes]
    rng.shuffle(entries)
    parts = [entries[:30], entries[30:70], entries[70:]]
    table, metas = write(tmp_path, parts)
    files = live._columnar_files(table, metas)
    expected = live.live_entries(parts)
    assert isinstance(files, ColumnarFiles) and list(files) == expected
    assert len(files) == len(expected) < len(adds) + 15
    assert columns_of_files(files).rows.tolist() == [e.file.row_count for e in expected]


@pytest.mark.usefixtures("by_column")
def test_files_are_a_sequence(tmp_path: Path) -> None:
    entries = [entry(f"data-{i}.parquet", i) for i in range(40)]
    table, metas = write(tmp_path, [entries[:15], entries[15:]])
    files = live._columnar_files(table, metas)
    assert files is not None and files == tuple(entries) and files != tuple(entries[1:]) and files != entries
    assert (files[0], files[17], files[-1]) == (entries[0], entries[17], entries[-1])
    assert files[10:20] == tuple(entries[10:20]) and files[::-3] == tuple(entries[::-3]) and files[5:5] == ()
    assert entries[3] in files and replace(entries[3], bucket=77) not in files
    assert list(columns_of_files(files).take(np.array([2, 14, 15, 39]))) == [entries[i] for i in (2, 14, 15, 39)]
    copy = pickle.loads(pickle.dumps(files))
    assert isinstance(copy, LiveFiles) and copy == tuple(entries) and hash(files) == hash(tuple(entries))
    with pytest.raises(IndexError):
        files[40]
    assert 0 < files.memory < 100 * 40 * 10


@pytest.mark.usefixtures("by_column")
def test_entries_of_repeated_walks_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DROP PARTITION of 12,000 files took 6 s, because each of its walks created all entries again."""
    table, metas = write(tmp_path, [[entry(f"f{i}", i) for i in range(30)]])

    def live_files() -> ColumnarFiles:
        forget()
        files = live._columnar_files(table, metas)
        assert files is not None
        return files

    files = live_files()
    first, before = list(files), files.memory
    second, third = list(files), list(files)
    assert first == second == third and all(a is b for a, b in zip(second, third, strict=True))
    assert files.memory >= before + 30 * 800
    monkeypatch.setattr(file_columns, "_KEPT_FILES", 29)
    files = live_files()
    walks = [list(files) for _ in range(3)]
    assert walks[1] == walks[2] == first and all(a is not b for a, b in zip(walks[1], walks[2], strict=True))


@pytest.mark.usefixtures("by_column")
def test_columns_of_a_manifest_are_decoded_once(tmp_path: Path) -> None:
    entries = [entry(f"data-{i}.parquet", i) for i in range(40)]
    table, metas = write(tmp_path, [entries[:15], entries[15:]])
    live._columnar_files(table, metas[:1])
    assert isinstance(table.store, CountingStore)
    table.store.reset()
    files = live._columnar_files(table, metas)
    assert files is not None and list(files) == entries
    assert table.store.calls["read"] == 1


@pytest.mark.usefixtures("by_column")
def test_damage_is_reported_as_by_the_other_decoder(tmp_path: Path) -> None:
    """A manifest that is damaged, or that holds another number of files than its list records."""
    table, metas = write(tmp_path, [[entry(f"data-{i}-{j}.parquet", i) for i in range(9)] for j in range(3)])
    miscounted = [*metas[:2], replace(metas[2], num_added_files=8, num_deleted_files=1)]
    assert live._columnar_files(table, miscounted) is None
    with pytest.raises(CorruptError, match="its list records 8 and 1"):
        live.read_manifests(table, miscounted)
    path = Path(table.paths.manifest(metas[1].file_name))
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)
    forget()
    assert live._columnar_files(table, metas) is None
    with pytest.raises(CorruptError) as error:
        live.read_manifests(table, metas)
    assert error.value.path == str(path)


CONDITIONS = [
    "id < 100",
    "p = 'b' OR id = 3",
    "p IN ('a', 'c') AND name = 'n1'",
    "late = 7",
    "late IS NULL AND id > 150",
]


@pytest.mark.parametrize("keys", [False, True])
def test_plans_are_the_same(tmp_path: Path, keys: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = bitlake.connect(str(tmp_path))

    options = {"bucket": "2"} if keys else {}
    primary_key = ["p", "id"] if keys else []
    table = lake.create_table("t", rows(0).schema, partition_by=["p"], primary_key=primary_key, options=options)
    put = table.upsert if keys else table.append
    for start in (0, 50, 100, 20):
        put(rows(start))
    table.add_column("late", "INT")
    put(rows(250, late=True))
    table.delete("id = 60")

    def plans() -> list[Plan]:
        forget()
        return [table.scan(where=where).plan() for where in (None, *CONDITIONS)]

    expected = plans()
    monkeypatch.setattr(live, "COLUMNAR_ENTRIES", 0)
    monkeypatch.setattr(planner, "MANY_PLANNED", 1)
    for plan, other in zip(plans(), expected, strict=True):
        assert isinstance(table._core.state().entries(), ColumnarFiles)
        assert plan.chosen_rows == other.chosen_rows and len(plan.files) == len(other.files)
        assert plan.paths == other.paths  # before the files are made, and after
        assert plan.files == other.files and plan.paths == other.paths and tuple(plan.skipped) == tuple(other.skipped)
        mine, others = ({k: v for k, v in p.metrics.as_dict().items() if not k.endswith("_ms")} for p in (plan, other))
        assert mine == others
        assert [s.skipped_bytes() for s in plan.steps] == [s.skipped_bytes() for s in other.steps]
    forget()


@pytest.mark.usefixtures("by_column")
def test_files_of_a_plan_are_made_when_they_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = bitlake.connect(str(tmp_path))
    table = lake.create_table("t", pa.schema([pa.field("id", pa.int64())]))
    for i in range(3):
        table.append(pa.table({"id": pa.array([i], pa.int64())}))
    forget()
    decoded = made_entries(monkeypatch)
    plan = table.scan().plan()
    assert isinstance(plan.files, PlannedFiles) and len(plan.files) == 3 and plan.chosen_rows == 3
    paths = plan.paths
    assert repr(plan) == "Plan(default.t: 3 of 3 files, 3 of 3 rows)" and not decoded
    assert [f.path for f in plan.files] == paths and all(Path(path).is_file() for path in paths)
    first = plan.files[0]
    assert first is plan.files[0] and len(plan.files[1:]) == 2 and len(decoded) == 3
    assert pickle.loads(pickle.dumps(plan.files)) == plan.files == tuple(plan.files)
    assert table.scan(where="id = 1").count() == 1 and table.scan().to_arrow().num_rows == 3


def test_paths_of_many_files_include_external_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of each bucket and partition, in the table's folder and then outside of it."""
    away = tmp_path / "away"
    lake = bitlake.connect(str(tmp_path / "lake"), external_paths=[str(away)])
    options = {"bucket": "3", "bucket-key": "id"}
    table = lake.create_table("t", rows(0).schema, partition_by=["p"], options=options)
    table.append(rows(0))
    outside = {"data-file.external-paths": away.as_uri(), "data-file.external-paths.strategy": "round-robin"}
    table.alter_options(outside)
    table.append(rows(50))
    forget()
    expected = [f.path for f in table.scan().plan().files]
    assert {f"{away}/" in path for path in expected} == {True, False}
    monkeypatch.setattr(live, "COLUMNAR_ENTRIES", 0)
    monkeypatch.setattr(planner, "MANY_PLANNED", 1)
    forget()
    plan = table.scan().plan()
    assert isinstance(plan.files, PlannedFiles) and plan.paths == expected
    forget()
