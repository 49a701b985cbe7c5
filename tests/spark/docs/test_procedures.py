"""Paimon's Spark documentation, page "Procedures": the calls of its table, on tables that they fit."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bitlake
from bitlake.errors import AlreadyExists, InvalidRequest, NotFound

pytestmark = pytest.mark.spark

Run = Callable[[str], list[list[Any]]]
TRUE = [[True]]


def _rows(value: int) -> pa.Table:
    return pa.table({"a": pa.array([value], pa.int32())})


def _fill(run: Run, name: str, rows: str, count: int = 2) -> None:
    for _ in range(count):
        run(f"INSERT INTO {name} {rows}")


@pytest.mark.exhaustive
def test_compact(run: Run, lake: bitlake.Lake) -> None:
    run("CREATE TABLE T (a INT, b INT, p INT, dt INT, h INT) PARTITIONED BY (p, dt, h)")
    _fill(run, "T", "VALUES (2, 1, 0, 11, 1), (1, 2, 1, 11, 1)")
    run("SET spark.sql.shuffle.partitions=2")
    order = "order_strategy => 'zorder', order_by => 'a,b'"
    assert run(f"CALL sys.compact(table => 'T', partitions => 'p=0;p=1',  {order})") == TRUE
    assert run(f"CALL sys.compact(table => 'T', where => 'p>0 and p<3', {order})") == TRUE
    options = "options => 'target-file-size=128m'"
    assert run(f"CALL sys.compact(table => 'T', where => 'dt>10 and h<20', {order}, {options})") == TRUE
    assert len(lake.table("T")._core.state().entries()) == 2
    assert run("CALL sys.compact(table => 'T', partition_idle_time => '60s')") == TRUE
    assert run("CALL sys.compact(table => 'T', compact_strategy => 'minor')") == TRUE
    assert len(run("SELECT * FROM T")) == 4


def test_compact_database(run: Run, lake: bitlake.Lake) -> None:
    for name in ("db1.table1", "db1.table2", "db1.my_ignore_table", "db2.table1"):
        run(f"CREATE DATABASE IF NOT EXISTS {name.split('.')[0]}; CREATE TABLE {name} (a INT)")
        lake.table(name).append(_rows(1))
        lake.table(name).append(_rows(2))

    def compacted() -> int:
        tables = [f"{d}.{t}" for d in lake.databases() for t in lake.tables(d)]
        return sum(len(lake.table(t)._core.state().entries()) == 1 for t in tables)

    def finished(good: int) -> list[list[str]]:
        return [[f"Compact database finished. Success: {good}, Failed: 0"]]

    call = "CALL sys.compact_database"
    args = "including_databases => 'db1', including_tables => 'db1.table1|db1.table2'"
    assert run(f"{call}({args})") == finished(2) and compacted() == 2
    assert run(f"{call}(including_databases => 'db1|db2', excluding_tables => '.*ignore_table')") == finished(3)
    assert run(f"{call}(including_databases => 'db1', options => 'target-file-size=128m')") == finished(3)
    assert run(f"{call}()") == finished(4) and compacted() == 4


@pytest.fixture
def history(lake: bitlake.Lake) -> bitlake.Table:
    """A table with twelve snapshots."""
    lake.sql("CREATE TABLE T (a INT) TBLPROPERTIES ('bucket' = '1', 'bucket-key' = 'a')")
    table = lake.table("T")
    for i in range(12):
        table.append(_rows(i))
    return table


def test_tags(run: Run, history: bitlake.Table) -> None:
    calls = [
        "create_tag(table => 'default.T', tag => 'my_tag', snapshot => 10, time_retained => '1 d')",
        "create_tag(table => 'default.T', tag => 'tag1')",
        "replace_tag(table => 'default.T', tag => 'tag1', snapshot => 10, time_retained => '1 d')",
        "rename_tag(table => 'default.T', tag => 'tag1', target_tag => 'tag2')",
        "delete_tag(table => 'default.T', tag => 'my_tag')",
    ]
    assert [run(f"CALL sys.{call}") for call in calls] == [TRUE] * 5
    arguments = "`table` => 'default.T', `tag` => 'my_tag', `timestamp` => 1724404318750, time_retained => '1 d'"
    assert run(f"CALL sys.create_tag_from_timestamp({arguments})")[0][:2] == ["my_tag", 1]
    assert {name: tag.snapshot.id for name, tag in history.history.tags().items()} == {"my_tag": 1, "tag2": 10}
    older = "CALL sys.expire_tags(table => 'default.T', older_than => '2024-09-06 11:00:00')"
    assert run(older) == [["No expired tags."]]
    assert run("CALL sys.trigger_tag_automatic_creation(table => 'default.T')") == TRUE
    assert len(history.history.tags()) == 2  # nothing asks for others
    run("ALTER TABLE T SET TBLPROPERTIES ('tag.automatic-creation' = 'process-time', 'tag.creation-period' = 'hourly')")
    assert run("CALL sys.trigger_tag_automatic_creation(table => 'default.T')") == TRUE
    (made,) = set(history.history.tags()) - {"my_tag", "tag2"}
    assert history.history.tags()[made].snapshot.id == 1 and len(made) == len("2024-01-31 12")


def test_rollback(run: Run, history: bitlake.Table) -> None:
    run("CALL sys.create_tag('T', 'my_tag', 11); CALL sys.create_tag('T', 'tag1', 10)")
    assert run("CALL sys.rollback(table => 'default.T', version => 'my_tag')") == [[12, 11]]
    run("CALL sys.delete_tag('T', 'my_tag')")
    assert run("CALL sys.rollback(table => 'default.T', tag => 'tag1')") == [[11, 10]]
    run("CALL sys.delete_tag('T', 'tag1')")
    assert run("CALL sys.rollback(table => 'default.T', version => 9)") == [[10, 9]]
    assert run("CALL sys.rollback(table => 'default.T', snapshot => 2)") == [[9, 2]]
    time = history.history.snapshots()[0].time_millis
    assert run(f"CALL sys.rollback_to_timestamp(table => 'default.T', timestamp => {time})") == [[2, 1]]
    assert run("SELECT * FROM T") == [[0]]


def test_rollback_to_watermark(run: Run, history: bitlake.Table, lake: bitlake.Lake) -> None:
    """Only streams of Paimon's leave watermarks: here they are written into the snapshots of a copy."""
    copy = Path(history.path).with_name("W")
    shutil.copytree(history.path, copy)
    for number in range(3, 13):
        path = copy / "snapshot" / f"snapshot-{number}"
        text = path.read_text().rstrip().removesuffix("}")
        path.write_text(f'{text}, "watermark" : {1730292023000 + number - 5}}}')
    call = "CALL sys.rollback_to_watermark(table => 'default.W', watermark => {})"
    assert run(call.format(1730292023000)) == [[12, 5]]
    assert run("SELECT max(a) FROM W") == [[4]]
    with pytest.raises(NotFound, match="no snapshot with a watermark of 5 or less"):
        run(call.format(5))


def test_expire_and_repair(run: Run, history: bitlake.Table) -> None:
    call = "CALL sys.expire_snapshots(table => 'default.T', retain_max => 10, options => 'snapshot.expire.limit=1')"
    assert run(call) == [[1]] and history.history.snapshots()[0].id == 2
    assert run("CALL sys.repair_earliest_snapshot(table => 'default.T', snapshot_id => 10)") == [[2, 10]]
    with pytest.raises(InvalidRequest, match="10 to 12"):
        run("CALL sys.repair_earliest_snapshot(table => 'default.T', snapshot_id => 9)")
    assert run("CALL sys.compact_manifest(`table` => 'default.T', dry_run => true)") == TRUE
    assert history._core.state().snapshot_id == 12
    assert run("CALL sys.compact_manifest(`table` => 'default.T', options => 'manifest.target-file-size=1 b')") == TRUE
    assert history._core.state().snapshot_id == 12, "none of them is small then"
    assert run("CALL sys.compact_manifest(`table` => 'default.T')") == TRUE
    assert history._core.state().snapshot_id == 13
    assert run("SELECT count(*), max(a) FROM T") == [[12, 11]]
    assert run("SELECT count(*) FROM `T$manifests`") == [[1]]
    assert run("CALL sys.repair('default.T,default')") == TRUE
    assert run("CALL sys.repair('')") == TRUE
    assert run("CALL sys.repair_earliest_snapshot(table => 'default.T', snapshot_id => 2)") == [[2, 2]]
    assert run("CALL sys.purge_files(table => 'default.T')") == [["Success purge files with table: default.T."]]
    assert run("SELECT * FROM T") == []


def test_branches_and_consumers(run: Run, history: bitlake.Table) -> None:
    run("CALL sys.create_tag('T', 'my_tag', 2)")
    calls = [
        "create_branch(table => 'default.T', branch => 'test_branch')",
        "create_branch(table => 'default.T', branch => 'existBranchName', tag => 'my_tag')",
        "rename_branch(table => 'default.T', from_branch => 'test_branch', to_branch => 'new_branch')",
        "delete_branch(table => 'default.T', branch => 'new_branch')",
        "create_branch(table => 'default.T$branch_existBranchName', branch => 'test_branch', tag => 'my_tag')",
        "fast_forward(table => 'default.T', branch => 'existBranchName')",
    ]
    assert [run(f"CALL sys.{call}") for call in calls] == [TRUE] * 6
    assert sorted(run("SELECT * FROM T")) == sorted(run("SELECT * FROM `T$branch_test_branch`")) == [[0], [1]]
    run("CALL sys.reset_consumer(table => 'default.T', consumerId => 'myid', nextSnapshotId => 2)")
    run("CALL sys.reset_consumer(table => 'default.T', consumerId => 'myid1x', nextSnapshotId => 2)")
    consumers = "SELECT consumer_id FROM `T$consumers` ORDER BY 1"
    clear = "CALL sys.clear_consumers(table => 'default.T'{})"
    run(clear.format(", includingConsumers => 'myid.*', excludingConsumers => 'myid1.*'"))
    assert run(consumers) == [["myid1x"]]
    run("CALL sys.reset_consumer(table => 'default.T', consumerId => 'myid1x')")
    assert run(consumers) == []
    run(clear.format(", includingConsumers => '', excludingConsumers => 'myid1.*'"))
    run(clear.format(", includingConsumers => 'myid.*'"))
    run(clear.format(""))


def test_merge_branch(run: Run) -> None:
    """The page's calls, on what Paimon's own test of this procedure has."""
    run("CREATE DATABASE test_db; USE test_db")
    run("CREATE TABLE T (id INT, name STRING) TBLPROPERTIES ('branch-merge.enabled' = 'true')")
    run("INSERT INTO T VALUES (1, 'a'); CALL sys.create_tag('T', 'tag1')")
    run("CALL sys.create_branch('T', 'branch1', 'tag1'); CALL sys.create_branch('T', 'branch2', 'tag1')")
    run("INSERT INTO `T$branch_branch1` VALUES (2, 'b')")
    call = "CALL sys.merge_branch(table => 'test_db.T', source_branch => 'branch1'{})"
    for more, name in (("", "T"), (", target_branch => 'branch2'", "`T$branch_branch2`")):
        assert run(call.format(more)) == TRUE
        assert run(f"SELECT * FROM {name} ORDER BY id") == [[1, "a"], [2, "b"]]


def test_partitions(run: Run, lake: bitlake.Lake) -> None:
    run("CREATE TABLE T (a INT, dt STRING) PARTITIONED BY (dt)")
    run("INSERT INTO T VALUES (1, '2024-07-01'), (2, '2024-07-02'), (3, '9999-01-01')")
    day = "CALL sys.mark_partition_done(table => 'default.T', partitions => "
    assert run(f"{day}'dt=2024-07-01')") == TRUE
    assert run(f"{day}'dt=2024-07-01;dt=2024-07-02')") == TRUE
    assert (Path(lake.table("T").path) / "dt=2024-07-02" / "_SUCCESS").exists()
    arguments = "expiration_time => '1 d', timestamp_formatter => \n'yyyy-MM-dd', timestamp_pattern => '$dt'"
    more = "expire_strategy => 'values-time', options => 'partition.expiration-max-num=2'"
    assert sorted(run(f"CALL sys.expire_partitions(table => 'default.T', {arguments}, {more})")) == [
        ["dt=2024-07-01"],
        ["dt=2024-07-02"],
    ]
    assert run("SELECT a FROM T") == [[3]]


@pytest.mark.exhaustive
def test_rescale(run: Run, lake: bitlake.Lake) -> None:
    run("CREATE TABLE T (k INT, dt STRING, hh STRING) PARTITIONED BY (dt, hh)"
        " TBLPROPERTIES ('primary-key' = 'dt,hh,k', 'bucket' = '2')")  # fmt: skip
    rows = [[k, "20250217", hh] for hh in ("07", "08", "09") for k in range(8)]
    run("INSERT INTO T VALUES " + ", ".join(f"({k}, '{dt}', '{hh}')" for k, dt, hh in rows))
    which = "partitions => 'dt=20250217,hh=08;dt=20250217,hh=09'"
    assert run(f"CALL sys.rescale(table => 'default.T', bucket_num => 16, {which})") == TRUE
    assert {e.total_buckets for e in lake.table("T")._core.state().entries()} == {2, 16}
    assert sorted(run("SELECT * FROM T")) == sorted(rows)
    assert run("SELECT hh FROM T WHERE k = 5 ORDER BY hh") == [["07"], ["08"], ["09"]]
    assert lake.table("T").schema.num_buckets == 2


@pytest.mark.exhaustive
def test_files(run: Run, lake: bitlake.Lake) -> None:
    run("CREATE DATABASE mydb; CREATE TABLE mydb.myt (a INT); CREATE TABLE T (a INT); INSERT INTO mydb.myt VALUES 1")
    stray = Path(lake.table("T").path) / "bucket-0" / "data-stray-0.parquet"
    stray.parent.mkdir()
    stray.write_bytes(b"x")
    orphans = "CALL sys.remove_orphan_files(table => 'default.{}', older_than => '{}'{})"
    old, young = "2023-10-31 12:00:00", "9999-01-01 00:00:00"
    assert run(orphans.format("T", old, "")) == [[0, 0]]
    assert run(orphans.format("T", young, ", dry_run => true, parallelism => 5, mode => 'local'")) == [[1, 1]]
    assert run(orphans.format("*", young, "")) == [[1, 1]] and not stray.exists()
    (entry,) = lake.table("mydb.myt")._core.state().entries()
    (Path(lake.table("mydb.myt").path) / "bucket-0" / entry.file.file_name).unlink()
    assert run("CALL sys.remove_unexisting_files(table => 'mydb.myt', dry_run = true)") == [[entry.file.file_name]]
    assert run("CALL sys.remove_unexisting_files(table => 'mydb.myt')") == [[entry.file.file_name]]
    assert run("SELECT * FROM mydb.myt") == []


def test_file_index(run: Run) -> None:
    run("CREATE TABLE t (a INT, day STRING) PARTITIONED BY (day); INSERT INTO t VALUES (1, '2025-08-17')")
    run("ALTER TABLE t SET TBLPROPERTIES ('file-index.bitmap.columns' = 'a')")
    rows = run('CALL sys.rewrite_file_index(table => "t", where => "day = \'2025-08-17\'")')
    assert [row[:3] for row in rows] == [["day=2025-08-17", 1, 1]]
    assert [row[:3] for row in run('CALL sys.rewrite_file_index(table => "t")')] == [["day=2025-08-17", 1, 0]]


@pytest.mark.exhaustive
def test_migration(run: Run, lake: bitlake.Lake, tmp_path: Path) -> None:
    """Tables of Spark's own catalog, where the page has Hive's."""
    spark = lake.spark
    spark.sql(f"CREATE DATABASE db01 LOCATION '{tmp_path / 'db01'}'")
    try:
        for name in ("one", "two", "T"):
            spark.sql(f"CREATE TABLE spark_catalog.db01.{name} USING parquet AS SELECT 1 AS a, 'x' AS b")
        more = "options => 'file.format=parquet', options_map => map('k1','v1'), parallelism => 6"
        run("CREATE DATABASE db01")
        target = "target_table => 'db01.T'"
        assert run(f"CALL sys.migrate_table(source_type => 'hive', table => 'db01.T', {target}, {more})") == TRUE
        assert run(f"CALL sys.migrate_database(source_type => 'hive', database => 'db01', {more})") == [
            ["migrate database is finished, success cnt: 2 , failed cnt: 0"]
        ]
        assert lake.tables("db01") == ["T", "one", "two"]
        assert run("SELECT * FROM db01.two") == [[1, "x"]]
        assert lake.table("db01.one").schema.options["k1"] == "v1"
    finally:
        spark.sql("DROP DATABASE spark_catalog.db01 CASCADE")


@pytest.mark.exhaustive
def test_copy(run: Run, lake: bitlake.Lake) -> None:
    options = "TBLPROPERTIES ('primary-key' = 'a,day', 'bucket' = '1')"
    run(f"CREATE TABLE t1 (a INT, day STRING) PARTITIONED BY (day) {options}")
    run("INSERT INTO t1 VALUES (1, '2025-08-17'), (2, '2025-08-18')")
    assert run('CALL sys.copy(source_table => "t1", target_table => "t1_copy")') == TRUE
    assert run("SELECT * FROM t1_copy ORDER BY a") == [[1, "2025-08-17"], [2, "2025-08-18"]]
    assert lake.table("t1_copy").schema.options == lake.table("t1").schema.options
    some = 'CALL sys.copy(source_table => "t1", target_table => "t1_copy", where => "day = \'2025-08-17\'")'
    with pytest.raises(AlreadyExists):
        run(some)
    run("DROP TABLE t1_copy")
    assert run(some) == TRUE
    assert run("SELECT * FROM t1_copy") == [[1, "2025-08-17"]]
