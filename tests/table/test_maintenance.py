"""Tidying up: orphans, files that are gone, purging, old partitions, hints."""

from __future__ import annotations

import json
import os
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from builders import age_terms
from caches import forget

import bitlake
from bitlake import _clock
from bitlake.errors import BitlakeError, CorruptError, InvalidRequest, NotFound, UnsupportedFeature
from bitlake.file_store_table import FileStoreTable
from bitlake.metadata.manifest import encode_manifests
from bitlake.metadata.options import PartitionAge
from bitlake.snapshot import expiry, orphan_files
from bitlake.snapshot.manifests import snapshot_manifests
from bitlake.table.table import Table

SCHEMA = pa.schema([("id", pa.int64()), ("dt", pa.string())])
KEYED = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string())])
SOON = 1 << 60
DAY = 86_400_000


def rows(ids: list[int], day: str) -> pa.Table:
    return pa.table({"id": ids, "dt": [day] * len(ids)}, schema=SCHEMA)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = bitlake.connect(str(tmp_path / "lake")).create_table("t", SCHEMA, partition_by=["dt"])
    made.append(rows([1, 2], "2024-01-01"))
    made.append(rows([3], "2024-01-02"))
    return made


def files(table: Table) -> set[str]:
    root = Path(table.path)
    return {str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()}


def litter(table: Table) -> set[str]:
    names = [
        "dt=2024-01-01/bucket-0/data-orphan-0.parquet",
        "dt=2024-01-01/bucket-0/data-orphan-0.parquet.index",
        "dt=2030-01-01/bucket-3/data-orphan-1.parquet",
        "manifest/manifest-orphan-0",
        "manifest/manifest-list-orphan-1",
        "index/index-orphan-0",
        ".staging/abc/dt=2024-01-01/part-0.parquet",
        "snapshot/.snapshot-9.orphan.tmp",
    ]
    for name in names:
        path = Path(table.path, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"12345")
    return set(names)


@pytest.fixture(params=[orphan_files.MANY_ENTRIES, 1], ids=["by name", "by hash"])
def _large_manifests(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are compared as they are, or as in manifests of many files."""
    monkeypatch.setattr(orphan_files, "MANY_ENTRIES", request.param)


@pytest.mark.usefixtures("_large_manifests")
def test_orphans_go_and_everything_that_anything_needs_stays(table: Table) -> None:
    table.history.create_tag("one", 1)
    table.history.create_branch("dev", "one")
    dev = Table(FileStoreTable("t", table.path, table._core.store, branch="dev"))
    dev.append(rows([9], "2024-01-09"))
    table.overwrite(rows([5], "2024-01-05"))
    kept = files(table)
    own = {"notes.txt", "dt=2024-01-01/readme"}
    for name in own:
        Path(table.path, name).write_text("mine")
    added = litter(table)
    assert table.maintenance.remove_orphan_files() == []  # younger than a day
    looked = table.maintenance.remove_orphan_files(SOON, dry_run=True)
    assert {os.path.relpath(o.path, table.path) for o in looked} == added and files(table) == kept | added | own
    assert {o.size for o in looked} == {5}
    assert table.maintenance.remove_orphan_files(SOON) == looked
    assert files(table) == kept | own and not Path(table.path, ".staging/abc").exists()
    forget()
    assert dev.scan().count() == 3 and table.scan(tag="one").count() == 2 and table.scan(snapshot=2).count() == 3


def test_what_a_rollback_left_is_an_orphan(table: Table) -> None:
    before = files(table)
    table.append(rows([7], "2024-01-01"))
    table.history.rollback(2)
    assert len(files(table) - before) > 0
    table.maintenance.remove_orphan_files(SOON)
    assert files(table) == before


def test_nothing_is_deleted_where_a_snapshot_cannot_be_read(table: Table) -> None:
    litter(table)
    snapshot = table.snapshot
    assert snapshot is not None
    Path(table.path, "manifest", snapshot.delta_manifest_list).unlink()
    forget()
    before = files(table)
    with pytest.raises(BitlakeError):
        table.maintenance.remove_orphan_files(SOON)
    assert files(table) == before


@pytest.mark.usefixtures("_large_manifests")
def test_nothing_is_deleted_where_a_manifest_has_fewer_entries_than_its_list_says(tmp_path: Path) -> None:
    table = bitlake.connect(str(tmp_path / "lake")).create_table("t", SCHEMA, partition_by=["dt"])
    table.append(pa.concat_tables([rows([i], f"2024-01-{i + 1:02}") for i in range(9)]))
    state = table._core.state()
    assert state.snapshot is not None
    (meta,) = snapshot_manifests(state.table_files, state.snapshot)
    ((fewer, _),) = encode_manifests(state.entries()[1:], 1 << 23, 1)
    Path(state.paths.manifest(meta.file_name)).write_bytes(fewer)
    forget()
    litter(table)
    before = files(table)
    with pytest.raises(CorruptError, match="the manifest adds 8 and deletes 0 files; its list records 9 and 0"):
        table.maintenance.remove_orphan_files(SOON)
    assert files(table) == before


@pytest.mark.usefixtures("_large_manifests")
def test_index_files_beside_data_files_are_no_orphans(tmp_path: Path) -> None:
    options = {"file-index.bitmap.columns": "dt", "file-index.in-manifest-threshold": "0 b"}
    table = bitlake.connect(str(tmp_path / "lake")).create_table("t", SCHEMA, partition_by=["dt"], options=options)
    table.append(pa.concat_tables([rows([i], f"2024-01-{i + 1:02}") for i in range(9)]))
    added = litter(table)
    found = table.maintenance.remove_orphan_files(SOON)
    assert {os.path.relpath(o.path, table.path) for o in found} == added
    assert sum(name.endswith(".index") for name in files(table)) == 9


@pytest.mark.usefixtures("_large_manifests")
def test_keys_vectors_and_changelogs_are_no_orphans(tmp_path: Path) -> None:
    options = {"bucket": "1", "primary-key": "id", "deletion-vectors.enabled": "true", "changelog-producer": "lookup"}
    table = bitlake.connect(str(tmp_path / "lake")).create_table("k", KEYED, options=options)
    for value in "abc":
        table.upsert(pa.table({"id": [1, 2], "v": [value, value]}, schema=KEYED))
    before = files(table)
    assert table.maintenance.remove_orphan_files(SOON) == [] and files(table) == before
    assert table.scan().count() == 2


@pytest.mark.parametrize("vectors", ["false", "true"])
def test_files_that_are_gone_leave_the_table(tmp_path: Path, vectors: str) -> None:
    options = {"deletion-vectors.enabled": vectors}
    table = bitlake.connect(str(tmp_path / "lake")).create_table("t", SCHEMA, partition_by=["dt"], options=options)
    table.append(rows([1, 2], "2024-01-01"))
    table.append(rows([3], "2024-01-02"))
    if vectors == "true":
        table.delete("id = 1")
    (path,) = Path(table.path, "dt=2024-01-01").rglob("*.parquet")
    path.unlink()
    forget()  # the DELETE read the whole small file
    with pytest.raises(BitlakeError):
        table.scan().to_arrow()
    assert table.maintenance.remove_unexisting_files(dry_run=True) == [str(path)]
    assert table.maintenance.remove_unexisting_files() == [str(path)]
    assert table.scan().to_arrow().to_pylist() == [{"id": 3, "dt": "2024-01-02"}]
    assert table.maintenance.remove_unexisting_files() == []


def test_purging_leaves_the_schema(table: Table) -> None:
    table.history.create_tag("one", 1)
    table.history.create_branch("dev", "one")
    litter(table)
    before = {f for f in files(table) if "parquet" in f}
    assert table.maintenance.purge_files() >= len(before) > 0
    assert table.scan().count() == 0 and table.history.tags() == {} and table.history.branches() == []
    assert not [f for f in files(table) if "parquet" in f]
    table.append(rows([1], "2024-01-01"))
    assert table.scan().count() == 1


def test_hints_are_repaired(table: Table) -> None:
    Path(table.path, "snapshot/LATEST").write_text("77")
    Path(table.path, "snapshot/EARLIEST").unlink()
    assert table.maintenance.repair_hints() == (1, 2)
    assert Path(table.path, "snapshot/LATEST").read_text() == "2"
    assert Path(table.path, "snapshot/EARLIEST").read_text() == "1"


def test_the_option_limits_how_many_partitions_expire(table: Table) -> None:
    table.alter_options({"partition.expiration-max-num": "1"})
    terms = age_terms(PartitionAge(DAY))
    assert table.maintenance.expire_partitions(**terms, dry_run=True) == [{"dt": "2024-01-01"}]
    assert table.maintenance.expire_partitions(**terms) == [{"dt": "2024-01-01"}]
    assert table.maintenance.expire_partitions(**terms, max_expires=5) == [{"dt": "2024-01-02"}]


def test_old_partitions_expire(table: Table) -> None:
    today = date.today().isoformat()
    table.append(rows([8], today))
    table.append(rows([9], "no date"))
    assert table.maintenance.expire_partitions(**age_terms(PartitionAge(DAY)), max_expires=1) == [{"dt": "2024-01-01"}]
    by_pattern = age_terms(PartitionAge(DAY, "yyyy-MM-dd", "$dt"))
    assert table.maintenance.expire_partitions(**by_pattern) == [{"dt": "2024-01-02"}]
    assert sorted(table.scan().to_arrow().column("dt").to_pylist()) == sorted([today, "no date"])
    assert table.maintenance.expire_partitions(**age_terms(PartitionAge(DAY, strategy="update-time"))) == []
    assert len(table.maintenance.expire_partitions(**age_terms(PartitionAge(-DAY, strategy="update-time")))) == 2
    with pytest.raises(InvalidRequest, match="names 'hr'"):
        table.maintenance.expire_partitions(**age_terms(PartitionAge(DAY, pattern="$dt $hr")))
    with pytest.raises(InvalidRequest, match="'QQ' is not understood"):
        table.maintenance.expire_partitions(**age_terms(PartitionAge(DAY, "yyyy-QQ")))
    with pytest.raises(InvalidRequest, match="unknown strategy"):
        table.maintenance.expire_partitions(**age_terms(PartitionAge(DAY, strategy="age")))


@pytest.mark.parametrize(("size", "commits"), [(None, 1), (0, 1), (2, 3), (5, 1)])
def test_partitions_expire_in_one_commit_or_in_batches(tmp_path: Path, size: int | None, commits: int) -> None:
    """Each partition was a commit of its own; Paimon drops a batch of them in one, by default all."""
    options = {} if size is None else {"partition.expiration-batch-size": str(size)}
    schema = pa.schema([("id", pa.int64()), ("dt", pa.string()), ("hr", pa.int32())])
    table = bitlake.connect(str(tmp_path)).create_table("t", schema, partition_by=["dt", "hr"], options=options)
    days = [f"2024-01-0{i}" for i in range(1, 6)]
    table.append(pa.table({"id": range(6), "dt": [*days, "no date"], "hr": [0] * 6}, schema=schema))
    gone = table.maintenance.expire_partitions(timedelta(days=1))
    assert [p["dt"] for p in gone] == days
    assert len(table.history.snapshots()) == 1 + commits and table.to_arrow()["dt"].to_pylist() == ["no date"]


def test_a_dry_run_names_partitions_and_leaves_them(table: Table) -> None:
    age = PartitionAge(DAY)
    would = table.maintenance.expire_partitions(**age_terms(age), dry_run=True)
    assert [p["dt"] for p in would] == ["2024-01-01", "2024-01-02"] and table.scan().to_arrow().num_rows == 3
    assert table.maintenance.expire_partitions(**age_terms(age)) == would and table.scan().to_arrow().num_rows == 0


def test_a_partition_that_is_written_to_meanwhile_does_not_expire_by_its_update_time(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = _clock.local_ms() + 2 * DAY
    monkeypatch.setattr(_clock, "local_ms", lambda: later)
    looked = expiry.expired_partitions
    asked = []

    def and_then_rows_come(*args: Any) -> list[dict[str, Any]]:
        found = looked(*args)
        if not asked:
            table.append(rows([9], "2024-01-02"))
        asked.append(1)
        return found

    monkeypatch.setattr(expiry, "expired_partitions", and_then_rows_come)
    gone = table.maintenance.expire_partitions(**age_terms(PartitionAge(DAY, strategy="update-time")))
    assert [p["dt"] for p in gone] == ["2024-01-01"]
    assert sorted(table.scan().to_arrow().column("id").to_pylist()) == [3, 9]


def test_partition_times_of_several_columns(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("hr", pa.int32())])
    table = bitlake.connect(str(tmp_path / "lake")).create_table("t", schema, partition_by=["day", "hr"])
    old, new = date(2024, 1, 1), date.today() + timedelta(days=1)
    table.append(pa.table({"id": [1, 2, 3], "day": [old, new, None], "hr": [5, 23, 1]}, schema=schema))
    # Java's HH has two digits, and the hour 5 one.
    assert table.maintenance.expire_partitions(**age_terms(PartitionAge(DAY, "yyyy-MM-dd HH", "$day $hr"))) == []
    age = PartitionAge(DAY, "yyyy-MM-dd H", "$day $hr")
    assert len(table.maintenance.expire_partitions(**age_terms(age))) == 1
    assert sorted(table.scan().to_arrow().column("id").to_pylist()) == [2, 3]


def test_a_write_marks_its_partitions_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``partition.end-input-to-done`` was refused; Paimon's Spark writer marks the partitions of each write."""
    schema = pa.schema([("id", pa.int64()), ("p", pa.string())])
    options = {"partition.end-input-to-done": "true"}
    table = bitlake.connect(str(tmp_path)).create_table("t", schema, partition_by=["p"], options=options)
    folder = Path(table.path)

    def marks() -> dict[str, dict[str, int]]:
        return {p.parent.name: json.loads(p.read_text()) for p in folder.rglob("_SUCCESS")}

    monkeypatch.setattr(_clock, "now_ms", lambda: 1000)
    table.append(pa.table({"id": [1, 2], "p": ["a", "b"]}, schema=schema))
    assert marks() == {p: {"creationTime": 1000, "modificationTime": 1000} for p in ("p=a", "p=b")}
    monkeypatch.setattr(_clock, "now_ms", lambda: 2000)
    table.append(pa.table({"id": [3], "p": ["b"]}, schema=schema))
    assert marks()["p=b"] == {"creationTime": 1000, "modificationTime": 2000} and len(marks()) == 2
    table.maintenance.compact(full=True)
    assert marks()["p=a"]["modificationTime"] == 1000, "a compaction writes no rows"
    with pytest.raises(UnsupportedFeature, match="mark-done-action"):
        table.alter_options({"partition.mark-done-action": "http-report"})


def test_partitions_are_named_by_python_values(tmp_path: Path) -> None:
    """Of a DATE, they had to be named, and were returned, as numbers of days; others were silently not truncated."""
    schema = pa.schema({"id": pa.int64(), "day": pa.date32()})
    table = bitlake.connect(str(tmp_path)).create_table("t", schema, partition_by=["day"])
    days = [date(2024, 1, d) for d in (1, 2, 3)]
    table.append(pa.table({"id": [1, 2, 3], "day": days}))
    path = table.maintenance.mark_partition_done({"day": days[0]})
    assert path == table.maintenance.mark_partition_done({"day": "2024-01-01"}) and Path(path).exists()
    table.truncate({"day": days[0]})
    assert table.to_arrow(["id"]).column("id").to_pylist() == [2, 3]
    table.overwrite(pa.table({"id": [4], "day": days[1:2]}), {"day": "2024-01-02"})
    assert sorted(table.to_arrow(["id"]).column("id").to_pylist()) == [3, 4]
    assert table.maintenance.expire_partitions(timedelta(days=1), formatter="yyyy-MM-dd", max_expires=1) == [
        {"day": days[1]}
    ]
    table.truncate({"day": "2024-01-03"})
    assert table.count() == 0
    with pytest.raises(InvalidRequest, match="invalid DATE value 'soon' for partition column 'day'"):
        table.truncate({"day": "soon"})


def test_a_partition_is_marked_done(table: Table, tmp_path: Path) -> None:
    path = table.maintenance.mark_partition_done({"dt": "2024-01-01"})
    assert path == f"{table.path}/dt=2024-01-01/_SUCCESS" and "creationTime" in Path(path).read_text()
    done = bitlake.connect(str(tmp_path / "lake")).table("t$partitions").scan(["done"]).to_arrow()
    assert done.column(0).to_pylist() == [True, False]
    assert table.maintenance.remove_orphan_files(_clock.now_ms() + DAY) == []
    with pytest.raises(NotFound, match="no partition dt=2030"):
        table.maintenance.mark_partition_done({"dt": "2030"})
    with pytest.raises(InvalidRequest, match="values of dt"):
        table.maintenance.mark_partition_done({})
