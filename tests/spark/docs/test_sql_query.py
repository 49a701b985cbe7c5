"""Paimon's Spark documentation, page "SQL Query": metadata columns, time travel, changes, filters by key."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import bitlake

pytestmark = pytest.mark.spark

Run = Callable[[str], list[list[Any]]]


def test_metadata_columns(run: Run, lake: bitlake.Lake) -> None:
    run("CREATE TABLE t (a INT, p STRING) PARTITIONED BY (p); INSERT INTO t VALUES (1, 'x'), (2, 'x')")
    assert sorted(run("SELECT * FROM t;")) == [[1, "x"], [2, "x"]]
    rows = sorted(
        run("SELECT *, __paimon_file_path, __paimon_partition, __paimon_bucket, __paimon_row_index FROM t;"), key=str
    )
    (entry,) = lake.table("t")._core.state().entries()
    assert [[*row[:2], *row[3:]] for row in rows] == [[1, "x", ["x"], 0, 0], [2, "x", ["x"], 0, 1]]
    assert all(row[2].endswith(f"/t/p=x/bucket-0/{entry.file.file_name}") for row in rows)


def _times(lake: bitlake.Lake, name: str) -> list[int]:
    return [s.time_millis for s in lake.table(name).history.snapshots()]


def test_time_travel(run: Run, lake: bitlake.Lake) -> None:
    run("CREATE TABLE t (a INT); INSERT INTO t VALUES 1; INSERT INTO t VALUES 2; INSERT INTO t VALUES 3")
    lake.table("t").history.create_tag("my-tag", 2)
    first, _, last = _times(lake, "t")
    assert run("-- use snapshot id as version\nSELECT * FROM t VERSION AS OF 1;") == [[1]]
    assert sorted(run("SELECT * FROM t VERSION AS OF 'my-tag';")) == [[1], [2]]
    at = datetime.fromtimestamp(first / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    assert run(f"SELECT * FROM t TIMESTAMP AS OF '{at}';") == [[1]]
    assert sorted(run(f"SELECT * FROM t TIMESTAMP AS OF {last // 1000 + 1};")) == [[1], [2], [3]]
    lake.table("t").history.create_tag("1", 2)  # a tag comes before a snapshot's id
    assert sorted(run("SELECT * FROM t VERSION AS OF '1'")) == [[1], [2]]


def test_changes(run: Run, lake: bitlake.Lake) -> None:
    run("CREATE TABLE tableName (a INT) TBLPROPERTIES ('primary-key' = 'a', 'bucket' = '1')")
    for value in (1, 2, 3):
        run(f"INSERT INTO tableName VALUES {value}")
    assert sorted(run("SELECT * FROM paimon_incremental_query('tableName', 1, 3);")) == [[2], [3]]
    first, _, third = _times(lake, "tableName")
    between = "SELECT * FROM paimon_incremental_between_timestamp('tableName', "
    assert sorted(run(f"{between}'{first}', '{third}');")) == [[2], [3]]
    day = datetime.fromtimestamp(first / 1000, UTC)
    start, end = (d.strftime("%Y-%m-%d %H:%M:%S") for d in (day - timedelta(hours=1), day + timedelta(hours=1)))
    assert sorted(run(f"{between}'{start}', '{end}');")) == [[1], [2], [3]]
    table = lake.table("tableName")
    table.history.create_tag("2024-12-03", 1)
    table.history.create_tag("2024-12-04", 2)
    auto = "SELECT * FROM paimon_incremental_to_auto_tag('tableName', "
    assert run(f"{auto}'2024-12-04');") == [[2]]
    assert run(f"{auto}'2024-12-05');") == [] and run(f"{auto}'2024-12-03');") == []
    # Rows that are deleted are no rows of a query; the audit log has them.
    run("DELETE FROM tableName WHERE a = 1")
    assert sorted(run("SELECT * FROM paimon_incremental_query('tableName', 1, 4)")) == [[2], [3]]
    assert run("SELECT rowkind FROM `tableName$audit_log` WHERE a = 1") == [["-D"]]


def test_filters_by_key_prune(run: Run, lake: bitlake.Lake) -> None:
    run(
        "CREATE TABLE orders (catalog_id BIGINT, order_id BIGINT) TBLPROPERTIES ('primary-key' = 'catalog_id,order_id')"
    )
    run("INSERT INTO orders VALUES (1, 1), (2, 2)")
    run("INSERT INTO orders VALUES (1025, 29495), (1025, 3000), (1025, 9000)")
    assert run("SELECT * FROM orders WHERE catalog_id=1025 AND order_id=29495;") == [[1025, 29495]]
    assert len(run("SELECT * FROM orders WHERE catalog_id=1025;")) == 3
    ranged = "SELECT * FROM orders\n  WHERE catalog_id=1025\n  AND order_id>2035 AND order_id<6000;"
    assert run(ranged) == [[1025, 3000]]
    (plan,) = lake.plans("SELECT * FROM orders WHERE catalog_id=1025")
    assert len(plan.skipped) == 1
    assert run("SELECT * FROM orders WHERE order_id=29495;") == [[1025, 29495]]
    assert len(run("SELECT * FROM orders WHERE catalog_id=1025 OR order_id=29495;")) == 3
