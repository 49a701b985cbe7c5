"""Iceberg metadata of primary-key tables: what is compacted, and with exported deletion vectors all above level 0."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from iceberg_reader import IcebergTable, avro, local, sorted_rows
from long import every

import bitlake
from bitlake.snapshot.iceberg_metadata import create_iceberg_metadata
from bitlake.table.table import Table

ON = {"metadata.iceberg.storage": "table-location"}
VECTORS = {
    "deletion-vectors.enabled": "true",
    "deletion-vectors.bitmap64": "true",
    "metadata.iceberg.format-version": "3",
}
COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
APPENDED = pa.schema([("id", pa.int64()), ("v", pa.string())])


def keyed(root: Path, **more: str) -> Table:
    options = {"bucket": "1", "primary-key": "id", **ON, **more}
    return bitlake.connect(str(root)).create_table("t", COLUMNS, options=options)


def rows_of(ids: range | list[int], value: str) -> pa.Table:
    return pa.table({"id": list(ids), "v": [value] * len(ids)}, schema=COLUMNS)


def iceberg(table: Table) -> IcebergTable:
    """The table as Iceberg readers see it, checked; its current snapshot is the table's."""
    found = IcebergTable.open(Path(table.path) / "metadata")
    found.check()
    assert found.metadata["current-snapshot-id"] == table.snapshot.id
    return found


def rows_at(table: Table, least_level: int) -> list[Any]:
    """The rows of the live files from a level on, read with the table's deletion vectors by bitlake."""
    core = table._core
    state = core.state()
    shown = {e.file.file_name for e in state.entries() if e.file.level >= least_level}
    found = IcebergTable.open(Path(table.path) / "metadata")
    assert {Path(f).name for f in found.files()} == shown
    return sorted_rows(found.rows())


def test_only_the_highest_level_is_shown(tmp_path: Path) -> None:
    table = keyed(tmp_path, **{"write-only": "true"})
    table.upsert(rows_of(range(10), "a"))
    assert iceberg(table).rows() == []
    table.alter_options({"write-only": "false"})
    table.maintenance.compact(full=True)
    assert sorted_rows(iceberg(table).rows()) == sorted_rows(table.scan().to_arrow())
    compacted = sorted_rows(table.scan().to_arrow())
    table.alter_options({"write-only": "true"})
    table.upsert(rows_of([1, 2], "b"))
    # A row of level 0 would need merging: readers see the table as of the last full compaction.
    assert sorted_rows(iceberg(table).rows()) == compacted != sorted_rows(table.scan().to_arrow())
    table.alter_options({"write-only": "false"})
    table.maintenance.compact(full=True)
    found = iceberg(table)
    assert sorted_rows(found.rows()) == sorted_rows(table.scan().to_arrow())
    assert found.current["summary"]["operation"] == "overwrite"


def test_a_file_whose_level_changes_is_listed_once(tmp_path: Path) -> None:
    """A compaction of one file moves it to the highest level without writing it again: DELETE and ADD of one name."""
    table = keyed(tmp_path, **{"write-only": "true"})
    table.upsert(rows_of(range(10), "a"))
    table.alter_options({"write-only": "false"})
    table.maintenance.compact(full=True)
    assert len(iceberg(table).files()) == 1
    # Again above a file that readers see already: 'num-levels' moves the highest level up.
    table.alter_options({"num-levels": "9"})
    table.maintenance.compact(full=True)
    table.upsert(rows_of(range(10, 20), "b"))
    table.maintenance.compact(full=True)
    assert sorted_rows(iceberg(table).rows()) == sorted_rows(table.scan().to_arrow())


def test_vectors_are_copied_into_puffin_files(tmp_path: Path) -> None:
    table = keyed(tmp_path, **VECTORS)
    table.upsert(rows_of(range(100), "a"))
    table.upsert(rows_of(range(10, 20), "b"))
    table.delete("id = 50")
    found = iceberg(table)
    assert found.version == 3 and sorted_rows(found.rows()) == sorted_rows(table.scan().to_arrow())
    (vector,) = found.live(1)
    assert vector["file_format"] == "puffin" and vector["record_count"] == 11
    assert local(vector["file_path"]).parent == Path(table.path) / "metadata"
    assert vector["file_size_in_bytes"] == local(vector["file_path"]).stat().st_size
    assert found.current["summary"]["total-position-deletes"] == "11"
    # A commit that changes no vector carries their manifest over.
    before = [m["manifest_path"] for m in found.manifests() if m["content"] == 1]
    table.upsert(rows_of([1000], "c"))
    found = iceberg(table)
    assert [m["manifest_path"] for m in found.manifests() if m["content"] == 1] == before
    assert sorted_rows(found.rows()) == sorted_rows(table.scan().to_arrow())
    table.maintenance.compact(full=True)
    found = iceberg(table)
    assert found.live(1) == [] and sorted_rows(found.rows()) == sorted_rows(table.scan().to_arrow())


def test_vectors_that_readers_cannot_see(tmp_path: Path) -> None:
    """In format version 2 readers see the table as of the last full compaction, whatever is marked as deleted since."""
    table = keyed(tmp_path, **{"deletion-vectors.enabled": "true"})
    table.upsert(rows_of(range(100), "a"))
    table.maintenance.compact(full=True)
    compacted = sorted_rows(table.scan().to_arrow())
    table.upsert(rows_of(range(10, 20), "b"))
    found = iceberg(table)
    assert found.live(1) == [] and sorted_rows(found.rows()) == compacted
    table.maintenance.compact(full=True)
    assert sorted_rows(iceberg(table).rows()) == sorted_rows(table.scan().to_arrow()) != compacted


def test_vectors_of_an_append_table(tmp_path: Path) -> None:
    table = bitlake.connect(str(tmp_path)).create_table("t", APPENDED, options={**ON, **VECTORS})
    for i in range(3):
        table.append(pa.table({"id": [i * 10 + j for j in range(10)], "v": ["x"] * 10}, schema=APPENDED))
    table.delete("id IN (3, 13, 23)")
    found = iceberg(table)
    assert len(found.live(1)) == 3 and len(found.rows()) == 27
    assert sorted_rows(found.rows()) == sorted_rows(table.scan().to_arrow())
    table.update({"v": "'new'"}, "id = 5")
    assert sorted_rows(iceberg(table).rows()) == sorted_rows(table.scan().to_arrow())
    table.maintenance.compact(full=True)
    found = iceberg(table)
    assert found.live(1) == [] and sorted_rows(found.rows()) == sorted_rows(table.scan().to_arrow())


def test_row_ids(tmp_path: Path) -> None:
    """Version 3: row ids are never handed out twice, and a file keeps its own when its manifest is written again."""
    options = {**ON, **VECTORS, "metadata.iceberg.compaction.max.file-num": "3"}
    options["metadata.iceberg.compaction.min.file-num"] = "3"
    table = bitlake.connect(str(tmp_path)).create_table("t", APPENDED, options=options)
    first: dict[str, int] = {}
    for i in range(5):
        table.append(pa.table({"id": list(range(7)), "v": [f"x{i}"] * 7}, schema=APPENDED))
        found = iceberg(table)
        assert found.current["first-row-id"] + found.current["added-rows"] == found.metadata["next-row-id"]
        for m in found.manifests():
            following = m["first_row_id"]
            for e in avro(m["manifest_path"])[1]:
                number = e["data_file"]["first_row_id"]
                if number is None:
                    number, following = following, following + e["data_file"]["record_count"]
                assert first.setdefault(e["data_file"]["file_path"], number) == number
    assert len(set(first.values())) == 5


def test_options_that_change_what_is_shown(tmp_path: Path) -> None:
    """Another format version, or vectors that become visible: everything is written again, with the table's uuid."""
    table = keyed(tmp_path, **{"deletion-vectors.enabled": "true", "deletion-vectors.bitmap64": "true"})
    table.upsert(rows_of(range(100), "a"))
    table.upsert(rows_of(range(10, 20), "b"))
    uuid = iceberg(table).metadata["table-uuid"]
    table.alter_options({"metadata.iceberg.format-version": "3"})
    table.upsert(rows_of([7], "c"))
    found = iceberg(table)
    assert found.version == 3 and found.metadata["table-uuid"] == uuid
    assert sorted_rows(found.rows()) == sorted_rows(table.scan().to_arrow())
    rows_at(table, 1)
    table.alter_options({"deletion-vectors.bitmap64": "false"})
    table.upsert(rows_of([8], "d"))
    iceberg(table)
    rows_at(table, 5)


@pytest.mark.parametrize("seed", every(2, range(4)))
def test_random_commits(tmp_path: Path, seed: int) -> None:
    """Fifteen commits: after each, readers see the rows of the files that Paimon exposes, and no others."""
    chance = random.Random(seed)
    exported = bool(seed % 2)
    options = {"num-sorted-run.compaction-trigger": "3", "metadata.iceberg.compaction.min.file-num": "4"}
    options["metadata.iceberg.compaction.max.file-num"] = "6"
    table = keyed(tmp_path, **options, **(VECTORS if exported else {}))
    compacted: list[dict[str, Any]] = []
    for step in range(15):
        match chance.choice(["upsert", "upsert", "upsert", "delete", "compact", "evolve"]):
            case "upsert":
                ids = chance.sample(range(60), chance.randint(1, 30))
                rows = rows_of(ids, f"v{step}")
                for name in table.schema.field_names[2:]:
                    rows = rows.append_column(name, pa.array([step] * len(ids), pa.int32()))
                table.upsert(rows)
            case "delete":
                table.delete(f"id < {chance.randrange(20)}")
            case "compact":
                table.maintenance.compact(full=True)
            case "evolve":
                table.alter(add={f"n{step}": "INT"})
                continue
        if table.snapshot is None:
            continue
        # A new column is shown from the next commit on, as in Paimon.
        columns = [f["name"] for f in iceberg(table).schema["fields"]]
        now = sorted_rows(table.scan(columns).to_arrow())
        shown = rows_at(table, 1 if exported else 3)
        if exported:
            assert shown == now
        elif all(e.file.level == 3 for e in table._core.state().entries()):
            assert shown == now
            compacted = table.scan(["id", "v"]).to_arrow().to_pylist()
        assert exported or {(dict(r)["id"], dict(r)["v"]) for r in shown} == {(r["id"], r["v"]) for r in compacted}


def test_puffin_files_of_unchanged_buckets_are_kept(tmp_path: Path) -> None:
    table = keyed(
        tmp_path, **{**VECTORS, "bucket": "2", "snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"}
    )
    table.upsert(rows_of(range(100), "a"))
    table.upsert(rows_of(range(50), "b"))
    before = {v["referenced_data_file"]: v for v in iceberg(table).live(1)}
    assert len({v["file_path"] for v in before.values()}) == 2
    table.upsert(rows_of([60], "c"))
    after = {v["referenced_data_file"]: v for v in iceberg(table).live(1)}
    assert sorted(before[name] == after[name] for name in before) == [False, True]
    # Files that no snapshot lists are deleted; those that one lists stay.
    puffins = {Path(v["file_path"]).name for v in after.values()}
    assert {p.name for p in (Path(table.path) / "metadata").glob("*.puffin")} == puffins
    table.maintenance.remove_orphan_files(timedelta(days=-1))
    assert sorted_rows(iceberg(table).rows()) == sorted_rows(table.scan().to_arrow())


def test_a_table_of_many_buckets_and_partitions(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("p", pa.string(), False), pa.field("id", pa.int64(), False), ("v", pa.string())])
    options = {"bucket": "3", "primary-key": "p,id", **ON, **VECTORS}
    table = bitlake.connect(str(tmp_path)).create_table("t", schema, partition_by=["p"], options=options)
    for i in range(4):
        ids = list(range(i, 60, i + 1))
        table.upsert(pa.table({"p": [f"p{j % 3}" for j in ids], "id": ids, "v": [f"v{i}"] * len(ids)}, schema=schema))
        assert sorted_rows(iceberg(table).rows()) == sorted_rows(table.scan().to_arrow())
    before = iceberg(table)
    path = create_iceberg_metadata(table._core.state())
    assert path == f"{table.path}/metadata/v{table.snapshot.id}.metadata.json"
    assert iceberg(table).metadata == before.metadata
