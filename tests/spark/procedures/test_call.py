"""Procedures in SQL: Paimon's arguments and results, and errors that show how to call them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from answers import rows_of
from long import exhaustive

import bitlake
from bitlake.errors import AlreadyExists, InvalidRequest, NotFound, UnsupportedFeature

pytestmark = pytest.mark.spark


@pytest.fixture
def lake(spark: Any, tmp_path: Path) -> bitlake.Lake:
    lake = bitlake.connect(str(tmp_path / "lake"), spark=spark)
    lake.sql("CREATE TABLE T (id BIGINT, v STRING, dt STRING) PARTITIONED BY (dt)")
    table = lake.table("T")
    for i in range(1, 4):
        table.append(pa.table({"id": [i], "v": [f"v{i}"], "dt": [f"2024-01-0{i}"]}))
    return lake


def call(lake: bitlake.Lake, text: str) -> list[list[Any]]:
    return rows_of(lake.sql(f"CALL sys.{text}"))


def ids(lake: bitlake.Lake, name: str = "T") -> list[int]:
    return sorted(r[0] for r in rows_of(lake.sql(f"SELECT id FROM {name}")))


def test_tags(lake: bitlake.Lake) -> None:
    assert call(lake, "create_tag(table => 'default.T', tag => 'a', snapshot => 1, time_retained => '1 d')") == [[True]]
    call(lake, "create_tag('default.T', 'b')")
    with pytest.raises(AlreadyExists, match="'b'"):
        call(lake, "create_tag('default.T', 'b')")
    made = call(lake, "create_tag_from_timestamp(`table` => 'T', `tag` => 'c', `timestamp` => 1724404318750)")
    assert made[0][:2] == ["c", 1] and made[0][3] == ""
    call(lake, "rename_tag('T', 'b', 'd')")
    call(lake, "replace_tag(table => 'T', tag => 'd', snapshot => 2)")
    rows = rows_of(lake.sql("SELECT tag_name, snapshot_id, time_retained FROM `T$tags` ORDER BY 1"))
    assert rows == [["a", 1, "PT24H"], ["c", 1, None], ["d", 2, None]]
    call(lake, "delete_tag('T', 'c,x')")  # one that does not exist is passed over, as in Paimon
    assert list(lake.table("T").history.tags()) == ["a", "d"]
    call(lake, "delete_tag(table => 'T', tag => 'd')")
    assert call(lake, "expire_tags('T')") == [["No expired tags."]]
    assert call(lake, "expire_tags(table => 'T', older_than => '9999-01-01 00:00:00')") == [["a"]]


def test_rolling_back(lake: bitlake.Lake) -> None:
    lake.table("T").history.create_tag("two", 2)
    assert call(lake, "rollback(table => 'T', version => 'two')") == [[3, 2]]
    with pytest.raises(InvalidRequest, match="tags two hold later ones"):
        call(lake, "rollback(table => 'T', snapshot => 1)")
    lake.table("T").history.delete_tag("two")
    assert call(lake, "rollback(table => 'T', version => 1)") == [[2, 1]]
    assert ids(lake) == [1]
    with pytest.raises(InvalidRequest, match="one of 'version', 'snapshot' and 'tag'"):
        call(lake, "rollback(table => 'T')")
    with pytest.raises(NotFound, match="no snapshot 9"):
        call(lake, "rollback(table => 'T', snapshot => 9)")
    assert call(lake, "rollback_to_timestamp(table => 'T', timestamp => 253402300799000)") == [[1, 1]]
    with pytest.raises(NotFound, match="watermark"):
        call(lake, "rollback_to_watermark(table => 'T', watermark => 1)")


def test_branches(lake: bitlake.Lake) -> None:
    lake.table("T").history.create_tag("one", 1)
    assert call(lake, "create_branch(table => 'default.T', branch => 'dev', tag => 'one')") == [[True]]
    with pytest.raises(AlreadyExists, match="'dev'"):
        call(lake, "create_branch('default.T', 'dev')")
    call(lake, "create_branch(table => 'default.T', branch => 'dev', tag => 'one', ignoreIfExists => 'true')")
    call(lake, "create_branch(table => 'default.T$branch_dev', branch => 'other', tag => 'one')")
    lake.sql("INSERT INTO `T$branch_dev` VALUES (7, 'dev', 'x')")
    call(lake, "rename_branch(table => 'T', from_branch => 'dev', to_branch => 'next')")
    call(lake, "fast_forward(table => 'T', branch => 'next')")
    assert ids(lake) == [1, 7]
    call(lake, "delete_branch(table => 'T', branch => 'next,other')")
    with pytest.raises(NotFound, match="no branch 'next'; its branches: only main"):
        call(lake, "delete_branch(table => 'T', branch => 'next')")


def test_consumers(lake: bitlake.Lake) -> None:
    call(lake, "reset_consumer(table => 'T', consumerId => 'myid', nextSnapshotId => 2)")
    call(lake, "reset_consumer(table => 'T', consumerId => 'other', nextSnapshotId => 4)")
    assert rows_of(lake.sql("SELECT * FROM `T$consumers`")) == [["myid", 2], ["other", 4]]
    with pytest.raises(NotFound, match="cannot resume at snapshot 9"):
        call(lake, "reset_consumer(table => 'T', consumerId => 'myid', nextSnapshotId => 9)")
    call(lake, "clear_consumers(table => 'T', includingConsumers => '', excludingConsumers => 'my.*')")
    call(lake, "reset_consumer(table => 'T', consumerId => 'myid')")
    assert rows_of(lake.sql("SELECT * FROM `T$consumers`")) == []


def test_files(lake: bitlake.Lake) -> None:
    table = lake.table("T")
    Path(table.path, "manifest/manifest-orphan-0").write_text("12345")
    assert call(lake, "remove_orphan_files(table => 'default.T')") == [[0, 0]]
    later = "older_than => '9999-01-01 00:00:00'"
    assert call(lake, f"remove_orphan_files(table => 'default.*', {later}, dry_run => true, parallelism => 5)") == [
        [1, 5]
    ]
    assert call(lake, f"remove_orphan_files(table => 'default.T', {later}, mode => 'local')") == [[1, 5]]
    (path,) = Path(table.path, "dt=2024-01-02").rglob("*.parquet")
    path.unlink()
    assert call(lake, "remove_unexisting_files(table => 'T', dry_run => true)") == [[path.name]]
    assert call(lake, "remove_unexisting_files(table => 'T')") == [[path.name]]
    assert ids(lake) == [1, 3]
    Path(table.path, "snapshot/LATEST").write_text("1")
    assert call(lake, "repair('default.T')") == [[True]]
    assert Path(table.path, "snapshot/LATEST").read_text() == "4"
    assert call(lake, "purge_files(table => 'T')")[0][0].startswith("Success purge files")
    assert ids(lake) == []


def test_iceberg_metadata(lake: bitlake.Lake) -> None:
    lake.sql("ALTER TABLE T SET TBLPROPERTIES ('metadata.iceberg.storage' = 'table-location')")
    folder = Path(lake.table("T").path, "metadata")
    number = lake.table("T").snapshot.id
    path = f"{folder}/v{number}.metadata.json"
    assert call(lake, "create_iceberg_metadata(table => 'T')") == [[path]]
    assert Path(path).exists() and Path(folder, "version-hint.text").read_text() == str(number)
    lake.sql("INSERT INTO T SELECT * FROM T LIMIT 1")
    assert Path(folder, "version-hint.text").read_text() == str(lake.table("T").snapshot.id)


@pytest.mark.parametrize("mode", ["local", "distributed"])
@pytest.mark.parametrize("parallelism", [1, exhaustive(3)])
def test_orphans_are_looked_for_by_as_many_as_asked(
    lake: bitlake.Lake, mode: str, parallelism: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bitlake.engine.procedures import maintenance
    from bitlake.spark import context

    given: list[tuple[str, object]] = []
    for module, name in ((maintenance, "LocalRunner"), (context, "SparkRunner")):
        kind = getattr(module, name)

        def made(*a: Any, name: str = name, kind: Any = kind) -> Any:
            given.append((name, a[-1]))
            return kind(*a)

        monkeypatch.setattr(module, name, made)
    table = lake.table("T")
    table.history.create_tag("one", 1)
    table.history.rollback(2)
    left = list(Path(table.path, "dt=2024-01-03").rglob("*.parquet"))
    later = "older_than => '9999-01-01 00:00:00'"
    call(lake, f"remove_orphan_files(table => 'T', {later}, mode => '{mode}', parallelism => {parallelism})")
    assert given == [({"local": "LocalRunner", "distributed": "SparkRunner"}[mode], parallelism)]
    assert left and not any(p.exists() for p in left)
    assert ids(lake) == [1, 2]


def test_partitions(lake: bitlake.Lake) -> None:
    call(lake, "mark_partition_done(table => 'T', partitions => 'dt=2024-01-01;dt=2024-01-02')")
    done = rows_of(lake.sql("SELECT done FROM `T$partitions` ORDER BY partition"))
    assert done == [[True], [True], [False]]
    call(lake, "drop_partition('T', 'dt=2024-01-02')")
    assert ids(lake) == [1, 3]
    expire = "expire_partitions(table => 'T', expiration_time => '1 d', timestamp_formatter => 'yyyy-MM-dd'"
    expired = call(lake, f"{expire}, timestamp_pattern => '$dt', options => 'partition.expiration-max-num=1')")
    assert expired == [["dt=2024-01-01"]]
    assert call(lake, f"{expire}, expire_strategy => 'update-time')") == [["No expired partitions."]]
    lake.sql(
        "CREATE TABLE o (id BIGINT, y STRING, m STRING) PARTITIONED BY (y, m) TBLPROPERTIES ("
        "'partition.expiration-time' = '7 d', 'partition.expiration-check-interval' = '1 d', "
        "'partition.timestamp-formatter' = 'yyyy/MM/dd', 'partition.timestamp-pattern' = '$y/$m/01', "
        "'partition.expiration-strategy' = 'values-time')"
    )
    lake.sql("INSERT INTO o VALUES (1, '2020', '01'), (2, '2020', '02'), (3, '9999', '01')")
    assert ids(lake, "o") == [1, 2, 3]  # nothing goes by itself
    assert call(lake, "expire_partitions(table => 'o', max_expires => 1)") == [["y=2020, m=01"]]
    assert call(lake, "expire_partitions('o', '400000 d')") == [["No expired partitions."]]
    assert call(lake, "expire_partitions('o')") == [["y=2020, m=02"]]
    assert ids(lake, "o") == [3]
    with pytest.raises(InvalidRequest, match="needs 'expiration_time'"):
        call(lake, "expire_partitions('T')")
    with pytest.raises(InvalidRequest, match="column=value"):
        call(lake, "drop_partition('T', 'id=1')")
    with pytest.raises(InvalidRequest, match="duration"):
        call(lake, "expire_partitions('T', 'soon')")


def test_analyze(lake: bitlake.Lake) -> None:
    lake.sql("ANALYZE TABLE T COMPUTE STATISTICS")
    assert rows_of(lake.sql("SELECT snapshot_id, mergedRecordCount FROM `T$statistics`")) == [[3, 3]]
    lake.sql("ANALYZE TABLE T COMPUTE STATISTICS FOR ALL COLUMNS")
    rows = rows_of(lake.sql("SELECT snapshot_id, schema_id, colstat FROM `T$statistics`"))
    found = json.loads(rows[0][2])
    assert rows[0][:2] == [4, 0]
    ends = {"colId": 0, "distinctCount": 3, "min": "1", "max": "3", "nullCount": 0, "avgLen": 8, "maxLen": 8}
    assert found["id"] == ends and found["v"] == {
        "colId": 1,
        "distinctCount": 3,
        "nullCount": 0,
        "avgLen": 2,
        "maxLen": 2,
    }
    kinds = rows_of(lake.sql("SELECT commit_kind, delta_record_count FROM `T$snapshots` WHERE snapshot_id > 3"))
    assert kinds == [["ANALYZE", 0], ["ANALYZE", 0]] and ids(lake) == [1, 2, 3]
    assert call(lake, "analyze(table => 'T', columns => 'v')") == [[6]]
    lake.sql("INSERT INTO T VALUES (9, 'x', 'y')")
    assert len(rows_of(lake.sql("SELECT * FROM `T$statistics`"))) == 1  # until the columns change
    with pytest.raises(NotFound, match="no column 'w'"):
        lake.sql("ANALYZE TABLE T COMPUTE STATISTICS FOR COLUMNS w")
    with pytest.raises(UnsupportedFeature, match="PARTITION"):
        lake.sql("ANALYZE TABLE T PARTITION (dt = 'x') COMPUTE STATISTICS")


def test_a_folder_becomes_a_table(lake: bitlake.Lake, tmp_path: Path, spark: Any) -> None:
    frame = spark.range(6).selectExpr("id", "CAST(id % 3 AS STRING) AS v", "id % 2 AS k")
    frame.write.partitionBy("k").parquet(str(tmp_path / "old"))
    text = f"migrate_table(source_type => 'parquet', table => '{tmp_path}/old', target_table => 'default.m', "
    assert call(lake, text + "options_map => map('file-index.bitmap.columns', 'v'), parallelism => 2)") == [[True]]
    rows = sorted(rows_of(lake.sql("SELECT * FROM m")))
    assert rows == [[i, str(i % 3), i % 2] for i in range(6)]
    whole = rows_of(lake.sql("SELECT k, count(v), sum(id) FROM m GROUP BY k ORDER BY k"))
    assert whole == [[0, 3, 6], [1, 3, 9]]
    kinds = rows_of(lake.sql("SELECT DISTINCT column_name, index_type FROM `m$file_indexes`"))
    assert kinds == [["v", "bitmap"]]
    assert lake.plans("SELECT * FROM m WHERE v = 'none'")[0].files == ()
    with pytest.raises(InvalidRequest, match="target_table"):
        call(lake, f"migrate_table('parquet', '{tmp_path}/old')")


def test_migrated_rows_are_the_same_on_executors(
    lake: bitlake.Lake, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bitlake.spark.read import scan

    monkeypatch.setattr(scan, "DRIVER_ROWS", -1)
    spark.range(6).selectExpr("id", "id % 2 AS k").write.partitionBy("k").parquet(str(tmp_path / "old"))
    call(lake, f"migrate_table('parquet', '{tmp_path}/old', target_table => 'm')")
    assert sorted(rows_of(lake.sql("SELECT k, id FROM m"))) == sorted([[i % 2, i] for i in range(6)])
    assert ids(lake, "m") == list(range(6))


def test_procedures_are_listed(lake: bitlake.Lake) -> None:
    found = {r[0]: r[1] for r in rows_of(lake.sql("SHOW PROCEDURES"))}
    wanted = """compact rewrite_file_index expire_snapshots expire_partitions create_tag delete_tag rename_tag
        replace_tag expire_tags create_tag_from_timestamp rollback rollback_to_timestamp create_branch delete_branch
        rename_branch fast_forward remove_orphan_files remove_unexisting_files purge_files repair migrate_table
        drop_partition mark_partition_done rescale analyze""".split()
    assert set(found) >= {f"sys.{name}" for name in wanted}
    assert found["sys.rename_tag"] == "sys.rename_tag(table, tag, target_tag)"
    assert [r[0] for r in rows_of(lake.sql("SHOW PROCEDURES LIKE 'rollback'"))] == ["sys.rollback"]


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("create_tags('T', 'x')", NotFound, r"did you mean sys.create_tag\(table, tag, .*SHOW PROCEDURES lists all"),
        ("create_global_index('T')", UnsupportedFeature, "is for tables with row tracking"),
        ("compact_chain_table('T')", UnsupportedFeature, "is for chain tables"),
        (
            "create_tag('T')",
            InvalidRequest,
            r"sys.create_tag\(table, tag, \[snapshot\], \[time_retained\]\) needs 'tag'",
        ),
        ("create_tag(table => 'T', tagg => 'x')", InvalidRequest, "no argument 'tagg'; did you mean tag"),
        ("create_tag('T', 'x', 'one')", InvalidRequest, "whole number"),
        ("create_tag('T', 'x', 1, 'long')", InvalidRequest, "a duration such as"),
        ("create_tag('none', 'x')", NotFound, "none"),
        ("remove_orphan_files(table => 'T', older_than => 'soon')", InvalidRequest, "invalid timestamp 'soon'"),
        ("remove_orphan_files(table => 'T', dry_run => 'perhaps')", InvalidRequest, "true or false"),
        ("remove_orphan_files(table => 'T', mode => 'fast')", InvalidRequest, "local or distributed, not 'fast'"),
        ("remove_unexisting_files(table => 'T', parallelism => 0)", InvalidRequest, "at least 1, and is 0"),
        (
            "migrate_table('parquet', '/old', target_table => 'm', delete_origin => true)",
            InvalidRequest,
            "'delete_origin' is for a table of Spark's catalog",
        ),
        ("delete_tag(1, 'x')", InvalidRequest, "a table name must be text"),
    ],
)
def test_wrong_calls_show_the_right_one(lake: bitlake.Lake, text: str, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call(lake, text)
