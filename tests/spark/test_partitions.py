"""Partitions described, added and dropped by a part of their columns; tables made like branches and replaced AS."""

from __future__ import annotations

import logging
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from answers import rows_of
from long import exhaustive

import bitlake
from bitlake.errors import AlreadyExists, InvalidRequest, NotFound, UnsupportedFeature

pytestmark = pytest.mark.spark


def ask(lake: bitlake.Lake, text: str) -> list[list[Any]]:
    return rows_of(lake.sql(text))


@pytest.fixture
def table(lake: bitlake.Lake) -> bitlake.Table:
    lake.sql("CREATE TABLE t (a INT, p INT, d DATE, q STRING) PARTITIONED BY (p, d, q)")
    made = lake.table("t")
    ids = range(6)
    numbers = [pa.array(ids, pa.int32()), pa.array([i % 3 for i in ids], pa.int32())]
    texts = [*map(str, range(5)), None]
    made.append(pa.table([*numbers, [date(2024, 1, 1 + i % 2) for i in ids], texts], made.arrow_schema.names))
    return made


def test_partitions_are_dropped_by_some_of_their_columns(lake: bitlake.Lake, table: bitlake.Table) -> None:
    """Every column had to be given, though Paimon drops what a part of them selects."""
    lake.sql("ALTER TABLE t DROP PARTITION (p = '0')")
    assert sorted(ask(lake, "SELECT a FROM t")) == [[1], [2], [4], [5]]
    lake.sql("ALTER TABLE t DROP PARTITION (p = 1, d = '2024-01-01'), PARTITION (q = NULL)")
    assert sorted(ask(lake, "SELECT a FROM t")) == [[1], [2]]
    lake.sql("ALTER TABLE t DROP PARTITION (p = 7)")  # matches nothing; Paimon does not fail either
    with pytest.raises(NotFound, match="no partition"):
        lake.sql("ALTER TABLE t DROP PARTITION (p = 7, d = '2024-01-01', q = '1')")
    lake.sql("ALTER TABLE t DROP IF EXISTS PARTITION (q = '1', p = 7, d = '2024-01-01'), PARTITION (d = '2024-01-02')")
    assert sorted(ask(lake, "SELECT a FROM t")) == [[2]]
    with pytest.raises(InvalidRequest, match="'a' is not a partition column"):
        lake.sql("ALTER TABLE t DROP PARTITION (a = 1)")


def test_several_partitions_are_dropped_in_one_snapshot(lake: bitlake.Lake, table: bitlake.Table) -> None:
    """Each was a snapshot of its own: readers saw some of them gone, and a death between them left the others."""
    before = table.snapshot
    assert before is not None
    lake.sql("ALTER TABLE t DROP PARTITION (p = 0, d = '2024-01-01', q = '0'), PARTITION (d = '2024-01-02')")
    assert sorted(ask(lake, "SELECT a FROM t")) == [[2], [4]]
    after = lake.table("t").snapshot
    assert after is not None and (after.id, after.commit_kind) == (before.id + 1, "OVERWRITE")
    lake.sql("CALL sys.drop_partition(table => 't', partitions => 'p=2;p=1,d=2024-01-01')")
    assert ask(lake, "SELECT a FROM t") == []
    after = lake.table("t").snapshot
    assert after is not None and after.id == before.id + 2


def test_adding_a_partition(lake: bitlake.Lake, table: bitlake.Table) -> None:
    before = table.snapshot
    lake.sql(
        "ALTER TABLE t ADD PARTITION (p = 1, d = '2030-01-01', q = 'x') PARTITION (p = 2, d = '2030-01-01', q = 'x')"
    )
    lake.sql("ALTER TABLE t ADD IF NOT EXISTS PARTITION (q = '0', p = 0, d = '2024-01-01')")
    assert lake.table("t").snapshot == before and len(ask(lake, "SHOW PARTITIONS t")) == 6
    with pytest.raises(AlreadyExists, match="IF NOT EXISTS"):
        lake.sql("ALTER TABLE t ADD PARTITION (p = 0, d = '2024-01-01', q = '0')")
    with pytest.raises(InvalidRequest, match="'q' has none"):
        lake.sql("ALTER TABLE t ADD PARTITION (p = 1, d = '2030-01-01')")
    with pytest.raises(UnsupportedFeature, match="LOCATION"):
        lake.sql("ALTER TABLE t ADD PARTITION (p = 1, d = '2030-01-01', q = 'x') LOCATION '/x'")


def test_describing_a_partition(lake: bitlake.Lake, table: bitlake.Table) -> None:
    spec = "PARTITION (d = '2024-01-02', q = '1', p = 1)"
    assert ask(lake, f"DESCRIBE t {spec}") == ask(lake, "DESCRIBE t")
    shown = {r[0]: r[1] for r in ask(lake, f"DESCRIBE EXTENDED t {spec}")}
    assert shown["Partition Values"] == "[p=1, d=2024-01-02, q=1]" and shown["Files"] == "1"
    assert shown["Partition Statistics"].endswith(" bytes, 1 rows") and shown["Location"].startswith(table.path)
    with pytest.raises(NotFound, match="no partition"):
        lake.sql("DESCRIBE t PARTITION (p = 1, d = '2024-01-01', q = '1')")
    with pytest.raises(InvalidRequest, match="'d' has none"):
        lake.sql("DESCRIBE t PARTITION (p = 1)")


def test_replacing_a_table_by_a_query(lake: bitlake.Lake) -> None:
    with pytest.raises(NotFound, match="default.t"):
        lake.sql("REPLACE TABLE t AS SELECT 1 AS x")
    lake.sql("CREATE TABLE t (a INT, b STRING)")
    lake.sql("INSERT INTO t VALUES (1, 'x')")
    lake.sql("REPLACE TABLE t COMMENT 'again' AS SELECT b, a + 1 AS c FROM t")
    assert ask(lake, "SELECT b, c FROM t") == [["x", 2]] and lake.table("t").schema.comment == "again"
    assert ask(lake, "SELECT * FROM t VERSION AS OF 1") == [[1, "x"]]


def test_a_table_like_a_branch(lake: bitlake.Lake, caplog: Any) -> None:
    lake.sql("CREATE TABLE t (a INT) COMMENT 'main' TBLPROPERTIES ('file.format' = 'orc')")
    lake.sql("CALL sys.create_branch('t', 'b')")
    lake.sql("ALTER TABLE `t$branch_b` ADD COLUMN extra STRING")
    lake.sql("CREATE TABLE u LIKE `t$branch_b`")
    schema = lake.table("u").schema
    assert schema.field_names == ("a", "extra") and schema.options["file.format"] == "orc" and schema.comment == "main"
    lake.sql("INSERT INTO u VALUES (1, 'x')")
    assert ask(lake, "SELECT * FROM u") == [[1, "x"]] and ask(lake, "SELECT * FROM `t$branch_b`") == []
    for source in ("`t$branch_c`", "`t$snapshots`", "v"):
        with pytest.raises((NotFound, InvalidRequest)):
            lake.sql(f"CREATE TABLE w LIKE {source}")
    with caplog.at_level(logging.WARNING, "bitlake"):
        lake.sql("CALL sys.delete_tag('t', 'none')")
    assert "has no tag 'none'" in caplog.text, "as in Paimon, which warns"


@pytest.mark.parametrize("key", ["", exhaustive("'primary-key' = 'id,dt', 'bucket' = '1',")])
def test_batch_commits_expire_partitions(lake: Any, key: str) -> None:
    """``end-input.check-partition-expire`` was refused."""
    lake.sql(f"CREATE TABLE e (id INT, v INT, dt STRING) PARTITIONED BY (dt) TBLPROPERTIES ({key} 'x' = 'y')")
    old = "INSERT INTO e VALUES (1, 1, '2020-01-01'), (2, 1, '2020-01-02'), (3, 1, 'none')"
    statements = {
        "INSERT INTO e VALUES (4, 1, 'none')": [(3, 1), (4, 1)],
        "UPDATE e SET v = 2 WHERE id = 3": [(3, 2)],
        "DELETE FROM e WHERE v + id = 4": [],
        "MERGE INTO e USING (SELECT 3 AS k) AS s ON id = k WHEN MATCHED THEN UPDATE SET v = k": [(3, 3)],
        "CALL sys.compact('e')": [(3, 1)],
    }
    for statement, left in statements.items():
        lake.sql("ALTER TABLE e UNSET TBLPROPERTIES IF EXISTS ('end-input.check-partition-expire')")
        lake.sql("TRUNCATE TABLE e")
        lake.sql(old)
        lake.sql(
            "ALTER TABLE e SET TBLPROPERTIES ('end-input.check-partition-expire' = 'true', "
            "'partition.expiration-time' = '7 d')"
        )
        lake.sql(statement)
        found = sorted((r.id, r.v) for r in lake.sql("SELECT id, v FROM e").collect())
        assert found == left, statement


def test_partitions_of_an_hour_that_comes_twice(lake: Any) -> None:
    """Both instants are 01:30 in New York's clocks, and were stored in the partition of the first one's group."""
    rows = [(1, datetime(2024, 11, 3, 5, 30, tzinfo=UTC)), (2, datetime(2024, 11, 3, 6, 30, tzinfo=UTC)), (3, None)]
    lake.sql("CREATE TABLE twice (id INT, at TIMESTAMP) PARTITIONED BY (at)")
    before = lake.spark.conf.get("spark.sql.session.timeZone")
    lake.spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        frame = lake.spark.range(1, 4, 1, 1).selectExpr(
            "CAST(id AS INT) AS id", "CASE WHEN id < 3 THEN timestamp_seconds(1730608200 + 3600 * id) END AS at"
        )
        lake.write(frame, "twice")
    finally:
        lake.spark.conf.set("spark.sql.session.timeZone", before)
    stored = lake.table("twice").to_arrow()
    assert sorted(zip(*stored.to_pydict().values(), strict=True)) == rows
