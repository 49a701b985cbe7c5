"""Statements that need no Spark leave the same table and the same result in this process as through Spark."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bitlake
from bitlake.errors import BitlakeError

TYPES = (
    "b BOOLEAN, t TINYINT, s SMALLINT, i INT, l BIGINT NOT NULL, f FLOAT, d DOUBLE, m DECIMAL(12, 2), c CHAR(3), "
    "v VARCHAR(5), x STRING COMMENT 'text', y BINARY, day DATE, z TIMESTAMP, n TIMESTAMP_NTZ, a ARRAY<INT>, "
    "o MAP<STRING, BIGINT>, r STRUCT<p: INT NOT NULL, q: ARRAY<STRUCT<u: STRING>>>"
)
SCRIPTS: dict[str, tuple[str, ...]] = {
    "databases": (
        "CREATE DATABASE d",
        "CREATE DATABASE IF NOT EXISTS d",
        "SHOW DATABASES",
        "SHOW DATABASES LIKE 'd|x*'",
        "DESCRIBE DATABASE EXTENDED d",
        "USE d",
        "SHOW CURRENT NAMESPACE",
        "CREATE TABLE t (a INT)",
        "SHOW TABLES",
        "SHOW TABLES IN d LIKE 't*'",
        "USE default",
        "ALTER TABLE d.t RENAME TO u",
        "SHOW TABLES IN d",
        "DROP DATABASE d CASCADE",
        "SHOW SCHEMAS",
    ),
    "tables": (
        f"CREATE TABLE w ({TYPES}) PARTITIONED BY (day) COMMENT 'wide' TBLPROPERTIES ('file.format' = 'parquet')",
        "CREATE TABLE IF NOT EXISTS w (a INT)",
        "DESCRIBE w",
        "DESC EXTENDED w",
        "DESCRIBE w x",
        "SHOW CREATE TABLE w",
        "SHOW COLUMNS IN w",
        "SHOW TABLE EXTENDED LIKE 'w*'",
        "SHOW TBLPROPERTIES w",
        "SHOW TBLPROPERTIES w ('file.format')",
        "ALTER TABLE w SET TBLPROPERTIES ('write-buffer-size' = '64 mb', 'comment' = 'wider')",
        "ALTER TABLE w UNSET TBLPROPERTIES IF EXISTS ('write-buffer-size', 'gone')",
        "ALTER TABLE w ADD COLUMNS (k INT COMMENT 'new', g STRING FIRST)",
        "ALTER TABLE w RENAME COLUMN k TO h",
        "ALTER TABLE w ALTER COLUMN i TYPE BIGINT",
        "ALTER TABLE w ALTER COLUMN h SET DEFAULT 7",
        "ALTER TABLE w DROP COLUMN o",
        "COMMENT ON TABLE w IS 'widest'",
        "REFRESH TABLE w",
        "SHOW CREATE TABLE w",
        "CREATE TABLE copy LIKE w",
        "SHOW CREATE TABLE copy",
        "CREATE OR REPLACE TABLE copy (id INT, PRIMARY KEY (id) NOT ENFORCED) TBLPROPERTIES ('bucket' = '2')",
        "SHOW CREATE TABLE copy",
        "DROP TABLE copy",
        "DROP TABLE IF EXISTS copy",
        "SHOW TABLES",
    ),
    "partitions": (
        "SHOW PARTITIONS p",
        "SHOW PARTITIONS p PARTITION (day = '2026-01-02')",
        "DESCRIBE p PARTITION (day = '2026-01-02', kind = 1)",
        "ALTER TABLE p ADD IF NOT EXISTS PARTITION (day = '2026-01-02', kind = 1)",
        "ALTER TABLE p DROP PARTITION (day = DATE '2026-01-01')",
        "SHOW PARTITIONS p",
        "TRUNCATE TABLE p PARTITION (kind = '3')",
        "SHOW PARTITIONS p",
        "TRUNCATE TABLE p",
        "SHOW PARTITIONS p",
    ),
    "tags and branches": (
        "ALTER TABLE p CREATE TAG one",
        "ALTER TABLE p CREATE TAG IF NOT EXISTS one AS OF VERSION 1",
        "ALTER TABLE p RENAME TAG one TO first",
        "SHOW TAGS p",
        "CALL sys.create_tag('p', 'second', 1)",
        "CALL sys.create_tag_from_timestamp(table => 'p', tag => 'third', timestamp => 1)",
        "CALL sys.create_branch('p', 'dev', 'first')",
        "SHOW TABLES",
        "ALTER TABLE `p$branch_dev` ADD COLUMN extra INT",
        "DESCRIBE `p$branch_dev`",
        "CALL sys.rename_branch('p', 'dev', 'test')",
        "CALL sys.fast_forward('p', 'test')",
        "DESCRIBE p",
        "CALL sys.delete_branch('p', 'test')",
        "CALL sys.rollback(table => 'p', version => '1')",
        "ALTER TABLE p DELETE TAG second",
        "SHOW TAGS p",
    ),
    "procedures": (
        "SHOW PROCEDURES",
        "SHOW PROCEDURES LIKE '*tag*'",
        "CALL sys.compact(table => 'p', where => 'kind = 1')",
        "CALL sys.compact(table => 'k', compact_strategy => 'minor')",
        "CALL paimon.sys.compact('k')",
        "CALL sys.compact_database(including_tables => 'default.k')",
        "CALL sys.rescale('k', 3)",
        "ALTER TABLE p SET TBLPROPERTIES ('file-index.bitmap.columns' = 'x')",
        "CALL sys.rewrite_file_index('p')",
        "CALL sys.remove_orphan_files(table => 'p', older_than => '9999-01-01 00:00:00')",
        "CALL sys.remove_unexisting_files('p')",
        "CALL sys.expire_snapshots(table => 'k', retain_max => 1)",
        "CALL sys.expire_partitions(table => 'p', expiration_time => '1 d', timestamp_formatter => 'yyyy-MM-dd', "
        "timestamp_pattern => '$day', max_expires => 1)",
        "CALL sys.drop_partition('p', 'day=2026-01-02,kind=1')",
        "CALL sys.mark_partition_done('p', 'day=2026-01-02,kind=3')",
        "CALL sys.verify('p')",
        "CALL sys.compact_manifest('p')",
        "CALL sys.repair('p')",
        "CALL sys.reset_consumer('p', 'me', 1)",
        "CALL sys.clear_consumers('p')",
    ),
    "errors": (
        "DROP TABLE missing",
        "DESCRIBE missing",
        "USE missing",
        "CREATE TABLE p (a INT)",
        "CREATE TABLE bad (a INT) USING csv",
        "ALTER TABLE p DROP COLUMN gone",
        "ALTER TABLE p DROP PARTITION (day = '2020-01-01', kind = 1)",
        "SHOW PARTITIONS k",
        "CALL sys.compakt('p')",
        "CALL sys.compact()",
        "CALL sys.create_global_index('p')",
        "SHOW TBLPROPERTIES p ('none')",
    ),
}


@pytest.fixture
def lakes(spark: Any, tmp_path: Path) -> Iterator[tuple[bitlake.Lake, bitlake.Lake]]:
    """Two equal lakes: one for Spark, the other for this process."""
    lake = bitlake.connect(tmp_path / "spark", spark=spark)
    rows = pa.table({"day": ["2026-01-01", "2026-01-02", "2026-01-02"], "kind": [1, 1, 3], "x": ["a", "b", None]})
    rows = rows.set_column(0, "day", rows["day"].cast(pa.date32()))
    rows = rows.set_column(1, "kind", rows["kind"].cast(pa.int32()))
    keyed = pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]})
    table = lake.create_table("p", rows.schema, partition_by=["day", "kind"], options={"bucket": "-1"})
    table.append(rows)
    key = lake.create_table("k", keyed.schema, primary_key=["id"], options={"bucket": "2"})
    key.upsert(keyed)
    key.upsert(keyed.slice(1))
    shutil.copytree(tmp_path / "spark", tmp_path / "core")
    yield lake, bitlake.connect(tmp_path / "core")
    shutil.rmtree(tmp_path, ignore_errors=True)


def result(lake: bitlake.Lake, text: str, engine: str) -> tuple[Any, ...]:
    """Names, types and rows, or the error's kind and message, without what differs between two folders."""
    try:
        found = lake.sql(text, engine=engine)
    except BitlakeError as e:
        return type(e).__name__, _plain(lake, str(e))
    table = found if isinstance(found, pa.Table) else found.toArrow() if found.columns else pa.table({})
    rows = [tuple(_plain(lake, v) if isinstance(v, str) else v for v in r.values()) for r in table.to_pylist()]
    return table.schema.names, [str(t) for t in table.schema.types], rows


def _plain(lake: bitlake.Lake, text: str) -> str:
    return text.replace(lake.path, "<lake>")


def contents(lake: bitlake.Lake) -> dict[str, Any]:
    """The rows, the schema and the kinds of snapshots of all tables."""
    out = {}
    for name in lake.tables():
        table = lake.table(name)
        commits = [(s.id, s.commit_kind, s.total_record_count) for s in table.history.snapshots()]
        rows = sorted(map(str, table.to_arrow().to_pylist()))
        out[name] = (str(table.schema), dict(table.schema.options), rows, commits, sorted(table.history.tags()))
    return out


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_same_table_and_result(lakes: tuple[bitlake.Lake, bitlake.Lake], name: str) -> None:
    on_spark, in_process = lakes
    for text in SCRIPTS[name]:
        assert result(in_process, text, "duckdb") == result(on_spark, text, "spark"), text
    assert contents(in_process) == contents(on_spark)


def test_the_database_and_settings_are_both_engines(spark: Any, tmp_path: Path) -> None:
    lake = bitlake.connect(tmp_path / "lake", spark=spark)
    zone = spark.conf.get("spark.sql.session.timeZone")
    lake.sql("CREATE DATABASE d", engine="duckdb")
    lake.sql("USE d", engine="duckdb")
    assert lake.sql("SELECT current_database()").collect()[0][0] == "d" == lake.database
    try:
        lake.sql("SET TIME ZONE 'Asia/Tokyo'", engine="duckdb")
        assert lake.sql("SELECT current_timezone()").collect()[0][0] == "Asia/Tokyo"
        lake.sql("SET spark.sql.session.timeZone = America/New_York")
        at = lake.sql("SELECT TIMESTAMP '2026-01-01 00:00:00'", engine="duckdb").fetchall()[0][0]
        assert at.utcoffset().total_seconds() == -5 * 3600
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    lake.sql("CREATE TABLE v (a INT)")
    spark.range(1).createOrReplaceTempView("v")
    with pytest.raises(BitlakeError, match="is not a table of the lake"):
        lake.sql("SELECT * FROM v", engine="duckdb")
    spark.catalog.dropTempView("v")


def test_settings_wait_for_spark(spark: Any, tmp_path: Path) -> None:
    """SET in this process holds for the Spark session that a later statement needs."""
    lake = bitlake.connect(tmp_path / "lake")
    lake.sql("CREATE TABLE t (a INT)", engine="duckdb")
    lake.sql("SET spark.paimon.scan.snapshot-id = 9", engine="duckdb")
    try:
        for engine in ("duckdb", "spark"):
            with pytest.raises(BitlakeError, match="snapshot"):
                lake.sql("SELECT * FROM t", engine=engine)
        lake.sql("RESET spark.paimon.scan.snapshot-id", engine="duckdb")
        assert lake.sql("SELECT * FROM t").collect() == []
    finally:
        spark.conf.unset("spark.paimon.scan.snapshot-id")
