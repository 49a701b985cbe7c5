"""System tables as Paimon (Java) 1.4.2 reads them, and as bitlake does: of Paimon's tables, and of bitlake's."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures import warehouse
from interop.rows import rows_of

import bitlake
from bitlake.catalog.catalog import Identifier
from bitlake.snapshot.consumers import reset_consumer
from bitlake.system_tables.tables import TABLES, VIEWS
from bitlake.table.migrate import migrate_folder
from bitlake.write.analyze import ColumnStatistics, save_statistics

pytestmark = pytest.mark.interop

OWN = {"file_indexes", "deletion_vectors", "read_optimized"}
"""Names that Paimon does not have."""
SYSTEMS = sorted({*TABLES, *VIEWS} - OWN)
NEWER = {"snapshots": 2, "partitions": 3, "table_indexes": 4}
"""How many columns later versions of Paimon have after those of 1.4."""


def comparable(exact: bool, name: str, value: Any) -> Any:
    """Without what may be written in several ways: a URI of a local path, the order of JSON's members.

    ``exact`` is False where files are gone: Paimon's time of a partition is the newest of all that manifests name,
    those that are deleted too; bitlake's is that of the files which are there.
    """
    if name == "file_path" and isinstance(value, str):
        return value.removeprefix("file:")
    if name == "last_update_time" and exact is False:
        return None
    if name in ("min_value_stats", "max_value_stats"):
        return re.sub("c_bin=.*, c_bool=", "c_bool=", value, flags=re.DOTALL)  # Java shows an object's address
    if name in ("options", "col_stat", "colstat") and isinstance(value, str) and value.startswith("{"):
        return sorted(json.loads(value).items(), key=repr)
    return value


def check(java: ModuleType, lake: bitlake.Lake, table: str, system: str, exact: bool = True) -> int:
    """Both read the same; returns how many rows."""
    name = f"{table}${system}"
    theirs = java.schema(lake.path, f"default.{name}")
    ours = lake.table(name)
    fields = [(f.name, str(f.type)) for f in ours.schema.fields]
    assert fields[: len(theirs)] == theirs, name
    assert len(fields) - len(theirs) == NEWER.get(system, 0), name
    names = [n for n, _ in theirs]
    found = rows_of(ours.scan(names).to_arrow())
    wanted = java.read(lake.path, f"default.{name}").rows
    rows = [
        sorted(([comparable(exact, n, v) for n, v in zip(names, r, strict=True)] for r in given), key=repr)
        for given in (found, wanted)
    ]
    assert rows[0] == rows[1], name
    return len(found)


@pytest.mark.parametrize(
    "table",
    [
        "time_travel",
        "pk_dv",
        "append_dv",
        "partitioned",
        "schema_evolution",
        "pk_dynamic_bucket",
        "pk_dv_partitioned",
        "pk_dv_lookup_changelog",
        "every_index_embedded",
    ],
)
def test_of_tables_that_paimon_wrote(java: ModuleType, table: str) -> None:
    lake = bitlake.connect(str(warehouse()))
    rows = {system: check(java, lake, table, system) for system in SYSTEMS}
    assert rows["snapshots"] and rows["files"] and rows["manifests"] and rows["partitions"] and rows["buckets"]


SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("day", pa.date32()), ("x", pa.decimal128(9, 2))])


def rows_for(*ids: int) -> pa.Table:
    columns = [list(ids), [f"v{i}" for i in ids], [19_000 + i % 2 for i in ids], [f"{i}.50" for i in ids]]
    return pa.table([pa.array(columns[0]), pa.array(columns[1]), pa.array(columns[2], pa.int32()).cast(pa.date32()),
                     pa.array(columns[3]).cast(pa.decimal128(9, 2))], schema=SCHEMA)  # fmt: skip


@pytest.mark.parametrize(
    ("key", "options"),
    [
        ([], {"deletion-vectors.enabled": "true", "file-index.bitmap.columns": "v"}),
        (["id", "day"], {"bucket": "2", "deletion-vectors.enabled": "true", "changelog-producer": "lookup"}),
        (["id", "day"], {"dynamic-bucket.target-row-num": "5", "fields.v.aggregate-function": "last_value"}),
    ],
)
def test_of_tables_that_bitlake_wrote(
    java: ModuleType, tmp_path: Path, key: list[str], options: dict[str, str]
) -> None:
    lake = bitlake.connect(str(tmp_path))
    more = {"tag.automatic-creation": "batch"}
    table = lake.create_table("t", SCHEMA, partition_by=["day"], primary_key=key, options={**options, **more})
    table.append(rows_for(*range(20)))
    table.history.create_tag("first", 1, retain=timedelta(milliseconds=86400000))
    table.history.create_branch("dev", "first")
    table.append(rows_for(*range(15, 30)))
    table.delete("id < 4")
    reset_consumer(table._core.state(), "me", 2)
    facts = {
        "id": ColumnStatistics(26, "4", "29", 0, 8, 8),
        "v": ColumnStatistics(26, None, None, 0, 3, 3),
        "day": ColumnStatistics(2, "19000", "19001", 0, 4, 4),
        "x": ColumnStatistics(26, "4.50", "29.50", 0, 8, 8),
    }
    save_statistics(table._core.state(), 26, facts, "me")
    counts = {system: check(java, lake, "t", system, exact=False) for system in SYSTEMS}
    assert (counts["tags"], counts["branches"], counts["consumers"], counts["statistics"]) == (2, 1, 1, 1)
    assert check(java, lake, "t$branch_dev", "files") and check(java, lake, "t$branch_dev", "snapshots") == 1


@pytest.mark.spark
def test_analyzed_columns_of_every_type(java: ModuleType, spark: Any, tmp_path: Path) -> None:
    """Dates and moments were written as SQL shows them, which Paimon could not read, nor then the statistics."""
    lake = bitlake.connect(str(tmp_path), spark=spark)
    lake.sql(
        "CREATE TABLE t (a BOOLEAN, b TINYINT, c SMALLINT, d INT, e BIGINT, f FLOAT, g DOUBLE, h DECIMAL(9, 2), "
        "i DECIMAL(30, 5), j STRING, k BINARY, l DATE, m TIMESTAMP, n TIMESTAMP_NTZ, o CHAR(3), p INT)"
    )
    for day in ("2021-03-28 01:30:00.12", "1969-12-31 23:59:59"):
        lake.sql(
            f"INSERT INTO t SELECT true, 1, 2, 3, -4, 1.5, double('NaN'), 1.50, -2, 'x', X'01', date'{day[:10]}', "
            f"timestamp'{day} Europe/Berlin', timestamp_ntz'{day}', 'ab', NULL"
        )
    lake.sql("ANALYZE TABLE t COMPUTE STATISTICS FOR ALL COLUMNS")
    assert check(java, lake, "t", "statistics") == 1
    found = json.loads(lake.table("t$statistics").scan(["colstat"]).to_arrow()["colstat"][0].as_py())
    assert (found["l"]["min"], found["l"]["max"]) == ("-1", "18714")
    assert (found["m"]["min"], found["m"]["max"]) == ("1969-12-31 22:59:59.000000", "2021-03-28 00:30:00.120000")


def test_a_migrated_table(java: ModuleType, tmp_path: Path) -> None:
    for day in ("2024-01-01", "2024-01-02"):
        folder = tmp_path / "old" / f"dt={day}"
        folder.mkdir(parents=True)
        pq.write_table(rows_for(1, 2, 3).drop_columns(["day"]), folder / "part-0.parquet")
    lake = bitlake.connect(str(tmp_path / "lake"))
    table = migrate_folder(
        lake._catalog, str(tmp_path / "old"), Identifier("default", "m"), {"file-index.bitmap.columns": "v"}
    )
    wanted = sorted(rows_of(table.scan().to_arrow()))
    assert len(wanted) == 6 and sorted(java.dump(lake.path, "default.m")) == wanted
    assert sorted(java.dump(lake.path, "default.m", dt="2024-01-01")) == [r for r in wanted if r[-1] == "2024-01-01"]
    for system in SYSTEMS:
        check(java, lake, "m", system)


@pytest.mark.parametrize("producer", ["none", "input", "lookup", "full-compaction"])
def test_changes_between_snapshots(java: ModuleType, tmp_path: Path, producer: str) -> None:
    lake = bitlake.connect(str(tmp_path))
    options = {"bucket": "2", "changelog-producer": producer}
    table = lake.create_table("t", SCHEMA, primary_key=["id"], options=options)
    table.upsert(rows_for(*range(10)))
    table.upsert(rows_for(*range(5, 15)).set_column(1, "v", pa.array([f"w{i}" for i in range(10)])))
    if producer == "input":
        updates = rows_for(*(i for i in range(5) for _ in range(2)))
        table.upsert(updates.set_column(1, "v", pa.array([f"x{i // 2}" for i in range(10)])), ["-U", "+U"] * 5)
    table.delete("id IN (3, 7)")
    table.maintenance.compact(full=True)
    table.upsert(rows_for(3, 4))
    table.maintenance.compact(full=True)
    assert table.snapshot is not None
    last = table.snapshot.id
    for mode in ("delta", "changelog"):
        for start, end in ((0, last), (1, last), (1, 3), (last - 1, last)):
            found = {
                system: rows_of(table.changes(start, end, mode=mode, packed=system == "binlog").to_arrow())
                for system in ("audit_log", "binlog")
            }
            for system, rows in found.items():
                wanted = java.between(tmp_path, f"default.t${system}", start, end, mode)
                assert sorted(rows, key=repr) == sorted(wanted, key=repr), (system, mode, start, end)
            additions = rows_of(table.changes(start, end, mode=mode, kinds=False).to_arrow())
            assert sorted(additions) == sorted(r[1:] for r in found["audit_log"] if r[0] in ("+I", "+U"))
