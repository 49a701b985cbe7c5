"""System tables: Paimon's columns, gathered from the metadata of tables that Paimon and bitlake wrote."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fixtures import warehouse

import bitlake
from bitlake.errors import InvalidRequest, NotFound
from bitlake.system_tables.tables import TABLES, VIEWS
from bitlake.table.table import Table

SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string()), pa.field("dt", pa.string())]
)


@pytest.fixture
def lake(tmp_path: Path) -> bitlake.Lake:
    return bitlake.connect(str(tmp_path / "lake"))


@pytest.fixture
def table(lake: bitlake.Lake) -> Table:
    options = {"file-index.bitmap.columns": "v", "deletion-vectors.enabled": "true", "bucket": "-1"}
    made = lake.create_table("t", SCHEMA, partition_by=["dt"], options=options)
    for i in range(3):
        ids = list(range(i * 10, i * 10 + 10))
        days = [f"d{n % 2}" for n in ids]
        made.append(pa.table({"id": ids, "v": [f"v{n % 3}" for n in ids], "dt": days}, schema=SCHEMA))
    return made


def read(lake: bitlake.Lake, name: str, *columns: str, where: str | None = None) -> list[tuple[Any, ...]]:
    rows = lake.table(name).scan(columns or None, where).to_arrow()
    return [tuple(r.values()) for r in rows.to_pylist()]


def test_every_system_table_reads_every_kind_of_table() -> None:
    lake = bitlake.connect(str(warehouse()))
    for name in ("time_travel", "pk_dv", "append_dv", "partitioned", "schema_evolution", "nested_types", "pk_mor"):
        for system in (*TABLES, *VIEWS):
            table = lake.table(f"{name}${system}")
            found = table.scan().to_arrow()
            assert found.schema == table.scan().schema
            assert found.num_rows == table.scan().count(), (name, system)


def test_snapshots_schemas_options(lake: bitlake.Lake, table: Table) -> None:
    table.alter_options({"target-file-size": "64 mb"})
    found = read(lake, "t$snapshots", "snapshot_id", "commit_kind", "total_record_count", where="snapshot_id >= 2")
    assert found == [(2, "APPEND", 20), (3, "APPEND", 30)]
    assert read(lake, "t$schemas", "schema_id", "partition_keys", "primary_keys") == [
        (0, '["dt"]', "[]"),
        (1, '["dt"]', "[]"),
    ]
    fields = read(lake, "t$schemas", "fields")[0][0]
    assert fields.startswith('[{"id":0,"name":"id","type":"BIGINT NOT NULL"},{"id":1,')
    assert ("target-file-size", "64 mb") in read(lake, "t$options")


def test_aggregation_fields(lake: bitlake.Lake) -> None:
    options = {"merge-engine": "aggregation", "fields.v.aggregate-function": "listagg", "fields.v.distinct": "true"}
    columns = pa.schema([pa.field("id", pa.int64()), pa.field("v", pa.string(), metadata={"comment": "words"})])
    lake.create_table("a", columns, primary_key=["id"], options=options)
    assert read(lake, "a$aggregation_fields") == [
        ("id", "BIGINT NOT NULL", "[]", "[]", None),
        ("v", "STRING", "[listagg, true]", "[fields.v.aggregate-function, fields.v.distinct]", "words"),
    ]


def test_files_partitions_buckets_manifests(lake: bitlake.Lake, table: Table) -> None:
    files = lake.table("t$files").scan().to_arrow()
    assert files.num_rows == 6 and sum(files.column("record_count").to_pylist()) == 30
    first = files.slice(0, 1).to_pylist()[0]
    assert first["partition"] == "{d0}" and first["file_format"] == "parquet" and first["min_key"] is None
    assert first["min_value_stats"] == "{dt=d0, id=0, v=v0}" and first["null_value_counts"] == "{dt=0, id=0, v=0}"
    assert Path(first["file_path"]).stat().st_size == first["file_size_in_bytes"]
    assert read(lake, "t$partitions", "partition", "record_count", "file_count", "done", "deleted_record_count") == [
        ("dt=d0", 15, 3, False, 0),
        ("dt=d1", 15, 3, False, 0),
    ]
    assert read(lake, "t$buckets", "partition", "bucket", "record_count") == [("{d0}", 0, 15), ("{d1}", 0, 15)]
    assert [r[:2] for r in read(lake, "t$manifests", "num_added_files", "num_deleted_files")] == [(2, 0)] * 3
    assert read(lake, "t$manifests", "min_partition_stats", "max_partition_stats")[0] == ("{d0}", "{d1}")
    assert len(read(lake, "t$file_key_ranges")) == 6


def test_indexes_and_vectors(lake: bitlake.Lake, table: Table) -> None:
    table.delete("id < 4")
    found = read(lake, "t$deletion_vectors", "partition", "width", "cardinality", "record_count", "ratio")
    assert sorted(found) == [("{d0}", 32, 2, 5, 0.4), ("{d1}", 32, 2, 5, 0.4)]
    assert sorted(read(lake, "t$deletion_vectors", "first_deleted", "last_deleted")) == [(0, 1), (0, 1)]
    kinds = read(lake, "t$file_indexes", "column_name", "index_type", "place", "distinct_values", "record_count")
    assert kinds == [("v", "bitmap", "embedded", 3, 5)] * 6
    assert {r[0] for r in read(lake, "t$table_indexes", "index_type")} == {"DELETION_VECTORS"}
    assert read(lake, "t$partitions", "deleted_record_count") == [(2,), (2,)]


def test_a_damaged_index_is_told_not_raised(lake: bitlake.Lake, table: Table) -> None:
    table.alter_options({"file-index.in-manifest-threshold": "1 b"})
    table.append(pa.table({"id": [99], "v": ["x"], "dt": ["d9"]}, schema=SCHEMA))
    (path,) = Path(table.path).rglob("*.index")
    path.write_bytes(b"\0" * path.stat().st_size)
    found = read(lake, "t$file_indexes", "column_name", "place", "problem", where="place <> 'embedded'")
    assert [f[:2] for f in found] == [(None, str(path))] and found[0][2]


def test_tags_branches_consumers(lake: bitlake.Lake, table: Table) -> None:
    table.history.create_tag("a", 1)
    table.history.create_tag("b", 2, retain=timedelta(milliseconds=90500000))
    table.history.create_branch("dev", "a")
    Path(table.path, "consumer").mkdir()
    Path(table.path, "consumer/consumer-c").write_text('{"nextSnapshot": 3}')
    assert read(lake, "t$tags", "tag_name", "snapshot_id", "record_count", "time_retained") == [
        ("a", 1, 10, None),
        ("b", 2, 20, "PT25H8M20S"),
    ]
    assert read(lake, "t$branches", "branch_name") == [("dev",)]
    assert read(lake, "t$consumers") == [("c", 3)]
    assert read(lake, "t$branch_dev$snapshots", "snapshot_id") == [(1,)]
    assert read(lake, "t$branch_dev$tags", "tag_name") == [("a",)]
    assert lake.table("t$files").scan(tag="a").count() == 2
    assert lake.table("t$files").scan(snapshot=2).count() == 4


def test_readings_of_rows(lake: bitlake.Lake) -> None:
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string())])
    options = {"bucket": "1", "primary-key": "id", "write-only": "true"}
    table = lake.create_table("k", columns, options=options)
    table.upsert(pa.table({"id": [1, 2], "v": ["a", "b"]}, schema=columns))
    table.upsert(pa.table({"id": [2, 3], "v": ["gone", "c"]}, schema=columns), ["-D", "+U"])
    assert sorted(read(lake, "k$audit_log")) == [("+I", 1, "a"), ("+U", 3, "c"), ("-D", 2, "gone")]
    assert sorted(read(lake, "k$binlog", "rowkind", "v"))[0] == ("+I", ["a"])
    assert sorted(read(lake, "k$audit_log", "v", where="rowkind <> '-D' AND id < 3")) == [("a",)]
    assert sorted(lake.table("k$audit_log").scan(incremental_between=(1, 2)).to_arrow().to_pylist(), key=str) == [
        {"rowkind": "+U", "id": 3, "v": "c"},
        {"rowkind": "-D", "id": 2, "v": "gone"},
    ]
    assert read(lake, "k$ro") == []
    table.maintenance.compact(full=True)
    assert sorted(read(lake, "k$read_optimized")) == [(1, "a"), (3, "c")]
    table.alter_options({"table-read.sequence-number.enabled": "true"})
    assert sorted(read(lake, "k$audit_log", "_SEQUENCE_NUMBER", "id")) == [(0, 1), (3, 3)]


def test_the_audit_log_has_the_values_of_deleted_rows(lake: bitlake.Lake) -> None:
    # DELETE wrote keys alone, and the audit log showed NULL where Paimon's has the deleted values.
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string())])
    options = {"bucket": "1", "primary-key": "id", "write-only": "true"}
    table = lake.create_table("k", columns, options=options)
    table.upsert(pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]}, schema=columns))
    table.delete("id = 2")
    assert sorted(read(lake, "k$audit_log")) == [("+I", 1, "a"), ("+I", 3, "c"), ("-D", 2, "b")]


def test_a_system_table_can_only_be_read(lake: bitlake.Lake, table: Table) -> None:
    found = lake.table("t$snapshots")
    assert found.arrow_schema.names[:2] == ["snapshot_id", "schema_id"]
    for call in (
        lambda: found.append(pa.table({"snapshot_id": [1]})),
        lambda: found.alter_options({"a": "b"}),
        found.delete,
        found.maintenance.compact,
        lambda: found.changes(1),
    ):
        with pytest.raises(InvalidRequest, match="system table, which can only be read; use 'default.t'"):
            call()
    with pytest.raises(NotFound, match=r"no system table 'snapshot'; did you mean snapshots"):
        lake.table("t$snapshot")
    with pytest.raises(InvalidRequest, match=r"expected t, t\$branch_b"):
        lake.table("t$snapshots$files")
    with pytest.raises(NotFound, match="nothing"):
        lake.table("nothing$snapshots")
