"""Statements of Delta Lake and Iceberg on tables: what they change, and that the statements named instead work."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import bitlake
from bitlake.errors import UnsupportedFeature

pytestmark = pytest.mark.spark


def _fill(lake: bitlake.Lake, partitioned: str = "") -> None:
    lake.sql(f"CREATE TABLE t (id INT, p INT) {partitioned}")
    for i in range(4):
        lake.sql(f"INSERT INTO t VALUES ({i}, {i})")


def test_history(lake: bitlake.Lake) -> None:
    _fill(lake)
    lake.sql("DELETE FROM t WHERE id = 0")
    rows = lake.sql("DESCRIBE HISTORY default.t LIMIT 2").collect()
    assert [(r.version, r.operation, r.total_record_count) for r in rows] == [(5, "DELETE", 3), (4, "WRITE", 4)]
    assert rows[0].timestamp > rows[1].timestamp
    assert lake.sql("DESC HISTORY t").count() == 5
    assert lake.sql("DESCRIBE HISTORY t LIMIT 1", engine="duckdb").fetchall()[0][0] == 5


def test_optimize(lake: bitlake.Lake) -> None:
    _fill(lake, "PARTITIONED BY (p)")
    for i in range(5):
        lake.sql(f"INSERT INTO t VALUES ({i + 10}, 1)")
    lake.sql("OPTIMIZE t WHERE p = 1")
    assert lake.sql("SELECT count(*) FROM t$files").collect()[0][0] == 4
    assert lake.sql("SELECT id FROM t WHERE p = 1 ORDER BY id").toArrow()[0].to_pylist() == [1, 10, 11, 12, 13, 14]


def test_optimize_with_zorder_and_rewrite_data_files_sort(lake: bitlake.Lake) -> None:
    for name in ("t", "u"):
        lake.sql(f"CREATE TABLE {name} (a INT, b INT)")
        lake.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ id % 8, id DIV 8 FROM range(64)")
    before = lake.table("t").to_arrow().to_pylist()
    lake.sql("OPTIMIZE t ZORDER BY (a, b)")
    lake.sql("CALL sys.compact(table => 'u', order_strategy => 'zorder', order_by => 'a,b')")
    assert lake.table("t").to_arrow().to_pylist() == lake.table("u").to_arrow().to_pylist() != before
    lake.sql("CALL system.rewrite_data_files(table => 't', strategy => 'sort', sort_order => 'a, b')")
    rows = lake.table("t").to_arrow().to_pylist()
    assert [(r["a"], r["b"]) for r in rows] == [(a, b) for a in range(8) for b in range(8)]


def test_vacuum(lake: bitlake.Lake) -> None:
    _fill(lake)
    lake.sql("ALTER TABLE t SET TBLPROPERTIES ('snapshot.num-retained.min' = '1')")
    orphan = Path(lake.table("t").path, "bucket-0", "data-orphan-0.parquet")
    young = orphan.with_name("data-young-0.parquet")
    for file in (orphan, young):
        file.write_bytes(b"x")
    os.utime(orphan, (0, 0))
    assert lake.sql("VACUUM t").collect()[0].deleted_snapshots_count == 0  # a week is kept
    assert not orphan.exists()
    assert lake.sql("VACUUM t RETAIN 0 HOURS DRY RUN").collect()[0].deleted_snapshots_count == 3
    assert len(lake.table("t").history.snapshots()) == 4
    lake.sql("VACUUM t RETAIN 0 HOURS")
    assert [s.id for s in lake.table("t").history.snapshots()] == [4]
    assert young.exists()  # a running write may need it
    assert lake.table("t").count() == 4


def test_expire_snapshots_of_icebergs(lake: bitlake.Lake) -> None:
    _fill(lake)
    lake.sql("CALL system.expire_snapshots('t', TIMESTAMP '2100-01-01 00:00:00', 2)")
    assert [s.id for s in lake.table("t").history.snapshots()] == [3, 4]


def test_the_statements_named_for_restore_work(lake: bitlake.Lake) -> None:
    _fill(lake, "PARTITIONED BY (p)")
    with pytest.raises(UnsupportedFeature) as raised:
        lake.sql("RESTORE TABLE t TO VERSION AS OF 2")
    rollback = re.search(r"CALL sys\.rollback\(.*?\)", str(raised.value))
    overwrite = re.search(r"INSERT OVERWRITE t .* VERSION AS OF \d+", str(raised.value))
    assert rollback is not None and overwrite is not None
    lake.sql(overwrite.group())
    assert sorted(lake.table("t").to_arrow()["id"].to_pylist()) == [0, 1]
    assert len(lake.table("t").history.snapshots()) == 5
    lake.sql(rollback.group())
    assert sorted(lake.table("t").to_arrow()["id"].to_pylist()) == [0, 1]
    assert len(lake.table("t").history.snapshots()) == 2


def test_times_of_procedures_are_in_the_sessions_zone(lake: bitlake.Lake) -> None:
    """TIMESTAMP '…' was read in UTC, and the same text in quotes in the session's zone."""
    _fill(lake)
    last = lake.table("t").history.snapshots()[-1].time_millis
    zone = lake.spark.conf.get("spark.sql.session.timeZone")
    lake.spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        there = lake.spark.sql(f"SELECT CAST(timestamp_millis({last - 3_600_000}) AS STRING)").collect()[0][0]
        lake.sql(f"CALL system.expire_snapshots('t', TIMESTAMP '{there}', 1)")
    finally:
        lake.spark.conf.set("spark.sql.session.timeZone", str(zone))
    assert len(lake.table("t").history.snapshots()) == 4
