"""Statements that need no Spark leave the same table and the same result in this process as through Spark."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from long import long

import bitlake
from bitlake.errors import BitlakeError, NotFound

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
    "insert": (
        f"CREATE TABLE w ({TYPES}) PARTITIONED BY (day)",
        "INSERT INTO w VALUES (true, 1, 2, 3, 4, 0.5, 1e3, 12.3, 'a', 'bc', 'x', X'00ff', DATE '2026-01-01', "
        "TIMESTAMP '2026-01-01 10:00:00', TIMESTAMP_NTZ '2026-01-01 10:00:00.123456', NULL, NULL, NULL), "
        + f"({', '.join(['NULL'] * 4)}, -4, {', '.join(['NULL'] * 13)})",
        "INSERT INTO w (l, day, i, x) VALUES (9, '2026-01-02', '17', 5), (10, NULL, NULL, 6)",
        "INSERT INTO w (l, v, c) VALUES (11, 'abcde  ', 'a  ')",
        "INSERT INTO w (l, v) VALUES (12, 'abcdef')",
        "INSERT INTO w (l) VALUES (NULL)",
        "INSERT INTO w PARTITION (day = '2026-02-01') (l, m, d) SELECT l, m, i FROM w WHERE l < 0 OR i > 3",
        "INSERT INTO w BY NAME SELECT l + 100 AS l, i, x, day FROM w WHERE i IS NOT NULL",
        "INSERT OVERWRITE w PARTITION (day = '2026-01-02') (l, x) VALUES (1000, 'over')",
        "INSERT OVERWRITE p PARTITION (day = '2026-01-02', kind = 3) IF NOT EXISTS VALUES ('not written')",
        "INSERT OVERWRITE p SELECT day, kind + 1, x FROM p WHERE kind = 1",
        "SET spark.sql.sources.partitionOverwriteMode = dynamic",
        "INSERT OVERWRITE p VALUES (DATE '2026-01-02', 2, 'dynamic')",
        "RESET spark.sql.sources.partitionOverwriteMode",
        "INSERT INTO k VALUES (2, 'B'), (4, 'd'), (4, 'e')",
        "INSERT INTO k SELECT id + 10, v FROM k WHERE id <> 2",
        "INSERT INTO k (v) VALUES ('no key')",
        "INSERT OVERWRITE k VALUES (7, 'only')",
        "INSERT INTO k VALUES (1)",
        "INSERT INTO k (id, nope) VALUES (1, 'a')",
        "INSERT INTO k (id, id) VALUES (1, 2)",
        "INSERT INTO k BY NAME SELECT id, v AS other FROM k",
        "CREATE TABLE defaults (a INT, b STRING DEFAULT 'bee', c INT DEFAULT 3)",
        "INSERT INTO defaults VALUES (1, DEFAULT, NULL), (2, 'b', 4)",
        "INSERT INTO defaults (a) VALUES (3)",
        "INSERT INTO defaults SELECT a + 10, b, c FROM defaults",
        "CREATE TABLE made PARTITIONED BY (kind) AS SELECT x, kind FROM p",
        "CREATE TABLE everything AS SELECT * FROM p",
        "CREATE OR REPLACE TABLE made PARTITIONED BY (kind) AS SELECT x AS y, kind FROM p",
        "SHOW CREATE TABLE made",
        "CALL sys.copy('k', 'copied', 'true')",
    ),
    "delete and update": (
        "DELETE FROM p WHERE day = '2026-01-02' AND kind = 3",
        "UPDATE p SET x = concat(x, '!') WHERE p.kind = 1 AND x LIKE 'a%'",
        "UPDATE p AS q SET q.x = 'all', kind = q.kind * 2",
        "DELETE FROM default.p q WHERE q.kind > 100",
        "DELETE FROM p",
        "DELETE FROM k WHERE v = 'a' OR id + 1 = 3",
        "UPDATE k SET v = upper(v) WHERE id = 3",
        "UPDATE k SET v = NULL WHERE v IS NOT NULL",
        "UPDATE k SET id = 4",
        "INSERT INTO k VALUES (8, 'x'), (9, 'y')",
        "MERGE INTO k USING (SELECT 8 AS n, 1 AS w UNION ALL SELECT 8, 2 UNION ALL SELECT 88, 3) y ON k.id = y.n "
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, v) VALUES (y.n, y.w)",
        "CREATE TABLE v (id INT, n DECIMAL(10, 2), at TIMESTAMP) TBLPROPERTIES ('deletion-vectors.enabled' = 'true')",
        "INSERT INTO v VALUES (1, 1.5, TIMESTAMP '2026-01-01 00:00:00'), (2, 2.5, NULL), (3, NULL, NULL)",
        "UPDATE v SET n = n * 1.5, at = TIMESTAMP '2026-06-01 12:00:00' WHERE id <= 2",
        "DELETE FROM v WHERE n > 3",
        "UPDATE v SET n = 1 WHERE id = 99",
        "UPDATE v SET id = 1, id = 2",
    ),
    "analyze": (
        "ANALYZE TABLE p COMPUTE STATISTICS",
        "SELECT snapshot_id, schema_id, mergedRecordCount, colstat FROM `p$statistics`",
        "ANALYZE TABLE p COMPUTE STATISTICS FOR COLUMNS X, day",
        "SELECT colstat FROM `p$statistics`",
        "ANALYZE TABLE k COMPUTE STATISTICS NOSCAN",
        "ANALYZE TABLE k COMPUTE STATISTICS FOR ALL COLUMNS",
        "SELECT mergedRecordCount, colstat FROM `k$statistics`",
        "CALL sys.analyze('k', 'v')",
        "SELECT colstat FROM `k$statistics`",
        "DELETE FROM p",
        "CALL sys.analyze('p')",
        "SELECT mergedRecordCount, colstat FROM `p$statistics`",
        f"CREATE TABLE w ({TYPES})",
        "ANALYZE TABLE w COMPUTE STATISTICS FOR ALL COLUMNS",
        "ANALYZE TABLE w COMPUTE STATISTICS FOR COLUMNS a",
        "ANALYZE TABLE w COMPUTE STATISTICS FOR COLUMNS nope",
        "ANALYZE TABLE w PARTITION (day = '2026-01-01') COMPUTE STATISTICS",
    ),
    "casts": (
        "CREATE TABLE a (id INT, b BOOLEAN, t TINYINT, i INT, l BIGINT, f FLOAT, d DOUBLE, m DECIMAL(12, 3), day DATE, "
        "z TIMESTAMP, n TIMESTAMP_NTZ, x STRING)",
        "INSERT INTO a VALUES (1, true, -7, 2147483647, 9007199254740993, 0.1, 2.5, 12.345, DATE '2026-03-01', "
        "TIMESTAMP '2026-03-01 23:59:59.999999', TIMESTAMP_NTZ '1969-12-31 23:59:59.999999', 'x')",
        "INSERT INTO a VALUES (2, false, 99, -1, -9223372036854775808, -3.5, -2.9999, -0.125, DATE '0001-01-01', "
        "TIMESTAMP '1969-12-31 00:00:00', TIMESTAMP_NTZ '2026-01-01 00:00:00', ''), "
        f"(3, {', '.join(['NULL'] * 11)})",
        "CREATE TABLE r (id INT, t SMALLINT, i INT, l BIGINT, f FLOAT, d DOUBLE, m DECIMAL(30, 1), day DATE, "
        "z TIMESTAMP, n TIMESTAMP_NTZ, x STRING, v VARCHAR(5))",
        "INSERT INTO r (id, l, f, d, m, x, v) SELECT id, d, d, f, m, b, t FROM a",
        "INSERT INTO r (id, t, i, l, f, d, m, x) SELECT id + 10, t, f, m, l, l, l, l FROM a",
        "INSERT INTO r (id, t, i, l, f, d, m, x) SELECT id + 20, m, d, i, i, i, i, i FROM a",
        "INSERT INTO r (id, d, f, day, z, n, x) SELECT id + 30, m, t, n, day, day, day FROM a",
        "INSERT INTO r (id, day, z, n) SELECT id + 40, z, n, z FROM a",
        "INSERT INTO r (id, i, d) SELECT id + 50, avg(i), sum(f) FROM a GROUP BY id",
        "INSERT INTO r (id, x) SELECT id + 60, m FROM a",
        "INSERT INTO r (id, x) SELECT id + 70, z FROM a",
        "INSERT INTO r (id, x) SELECT id + 80, n FROM a",
        "INSERT INTO r (id, x) SELECT id + 90, CAST(i AS DOUBLE) * 1000 FROM a",
        "INSERT INTO r (id, x) SELECT id + 100, CAST(t AS FLOAT) FROM a",
        "INSERT INTO r (id, m) SELECT id + 110, d / 3 FROM a",
        "INSERT INTO r (id, m) SELECT id + 120, f FROM a",
        "CREATE TABLE cents (id INT, m DECIMAL(12, 2))",
        "INSERT INTO cents SELECT i.id + 10 * j.id, CAST(i.d AS DOUBLE) * j.f / 7 FROM a i CROSS JOIN a j",
        "INSERT INTO cents SELECT id + 100, id / 8 FROM a",
        "INSERT INTO cents SELECT id, CAST(l AS DOUBLE) FROM a",
        "SET TIME ZONE 'America/New_York'",
        "INSERT INTO r (id, x) SELECT id + 130, z FROM a",
        "RESET spark.sql.session.timeZone",
        "INSERT INTO r (id, i) SELECT id, l FROM a",
        "INSERT INTO r (id, i) SELECT id, d * CAST(l AS DOUBLE) FROM a",
        "INSERT INTO r (id, t) SELECT id, i FROM a",
        "INSERT INTO r (id, v) SELECT id, i FROM a",
        "CREATE TABLE few (id INT, m DECIMAL(4, 1))",
        "INSERT INTO few SELECT id, m FROM a",
        "INSERT INTO few SELECT id, m * 1000 FROM a",
        "MERGE INTO r USING a ON r.id = a.id WHEN MATCHED THEN UPDATE SET d = a.l, m = a.m * 2, x = a.i, i = a.d, "
        "n = a.day WHEN NOT MATCHED BY SOURCE AND r.id < 20 THEN UPDATE SET f = r.l, l = r.d "
        "WHEN NOT MATCHED THEN INSERT (id, d) VALUES (a.id, a.l)",
        "MERGE INTO r USING a ON r.id = a.id + 100 WHEN NOT MATCHED THEN INSERT (id, t) VALUES (a.id, a.l)",
        "CREATE TABLE defaults (id INT, d DOUBLE DEFAULT 0.5)",
        "INSERT INTO defaults SELECT id, l FROM a",
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


WRITES = ("insert", "delete and update", "casts")


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
    if hasattr(found, "to_arrow_table"):  # a query's, of DuckDB
        table = found.to_arrow_table()
    else:
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


def needed(text: str) -> bool:
    """Whether later statements of a script build on this one."""
    return text.startswith(("CREATE", "SET", "RESET", "INSERT INTO a"))


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "step"), [*((n, 2 if n == "casts" else 1) for n in SCRIPTS), long("casts", 1)])
def test_the_same_table_and_result(lakes: tuple[bitlake.Lake, bitlake.Lake], name: str, step: int) -> None:
    """``step``: of the statements that others do not need, every how many-th is executed."""
    on_spark, in_process = lakes
    for text in (text for i, text in enumerate(SCRIPTS[name]) if needed(text) or i % step == 0):
        here, there = result(in_process, text, "duckdb"), result(on_spark, text, "spark")
        if name in WRITES and isinstance(there[0], str):
            here, there = here[:1], there[:1]  # errors of values are worded in another way
        assert here == there, text
    assert contents(in_process) == contents(on_spark)


@pytest.mark.exhaustive
def test_statistics_of_many_values(lakes: tuple[bitlake.Lake, bitlake.Lake], tmp_path: Path) -> None:
    """Both engines keep the same statistics of values of every type, of 70, 700 and 20,000 distinct ones."""
    on_spark, in_process = lakes
    on_spark.sql(
        "CREATE TABLE w (b BOOLEAN, t TINYINT, s SMALLINT, i INT, l BIGINT, f FLOAT, d DOUBLE, m DECIMAL(12, 2), "
        "h DECIMAL(30, 5), x STRING, c CHAR(7), y BINARY, day DATE, z TIMESTAMP, n TIMESTAMP_NTZ, q TIMESTAMP_NTZ(3)) "
        "TBLPROPERTIES ('bucket' = '-1')"
    )
    on_spark.sql(
        "INSERT INTO w SELECT id % 2 = 0, id % 70, id % 700 - 350, id * 31, id * id - 1000000, "
        "if(id % 9 = 0, float('NaN'), if(id = 5, float('-0.0'), id / 8)), id / 3 * pow(10, id % 20 - 10), "
        "id % 700 / 100 - 3, CAST(id AS DECIMAL(11, 0)) * if(id % 2 = 0, -123456789012.5, 1), "
        "if(id % 5 = 0, NULL, concat('value ', id, repeat('x', id % 70))), id % 70, "
        "CAST(repeat('y', id % 40) AS BINARY), date_add(DATE '1960-01-01', int(id % 60000)), "
        "timestamp_micros(id * 1000003 - 500000), CAST(timestamp_micros(id * 1001 - 7) AS TIMESTAMP_NTZ), "
        "CAST(timestamp_millis(id - 9) AS TIMESTAMP_NTZ) FROM range(20000)"
    )
    shutil.copytree(tmp_path / "spark" / "default.db" / "w", tmp_path / "core" / "default.db" / "w")
    statements = ("ANALYZE TABLE w COMPUTE STATISTICS FOR ALL COLUMNS", "SELECT * FROM `w$statistics`")
    here = [result(in_process, text, "duckdb") for text in statements]
    assert here == [result(on_spark, text, "spark") for text in statements]
    found = json.loads(here[1][2][0][-1])
    for column, count in (("b", 2), ("t", 70), ("s", 700), ("i", 20_000)):
        assert abs(found[column]["distinctCount"] - count) <= 0.1 * count


VIEWS = (
    "CREATE TABLE t (a INT, b STRING, m DECIMAL(9, 2), at TIMESTAMP)",
    "INSERT INTO t VALUES (1, 'x', 1.5, TIMESTAMP '2026-01-01 00:00:00'), (2, 'y', 2.0, NULL), (3, NULL, NULL, NULL)",
    "CREATE VIEW v COMMENT 'some' AS SELECT * FROM t WHERE a < 3",
    "CREATE VIEW v AS SELECT a FROM t",
    "CREATE VIEW IF NOT EXISTS v AS SELECT a FROM t",
    "CREATE VIEW n AS SELECT v.b, count(*) AS n, max(at) AS last FROM v GROUP BY v.b",
    "CREATE VIEW t AS SELECT 1 AS a",
    "DESCRIBE v",
    "DESCRIBE EXTENDED v",
    "DESCRIBE default.n",
    "DESCRIBE v a",
    "SHOW VIEWS",
    "SHOW VIEWS LIKE 'n*'",
    "SHOW TABLES",
    "SELECT a, b, m FROM v ORDER BY a",
    "SELECT x.b, n FROM n x JOIN v USING (b) ORDER BY b",
    "SELECT count(*) AS c FROM v WHERE m > 1",
    "INSERT INTO t SELECT a + 10, b, m, at FROM v",
    "ALTER VIEW v AS SELECT b, a FROM t WHERE a > 3",
    "ALTER VIEW vv AS SELECT 1 AS a",
    "CREATE OR REPLACE VIEW n AS SELECT a FROM v",
    "SELECT * FROM n ORDER BY a",
    "ALTER VIEW n RENAME TO v",
    "ALTER VIEW n RENAME TO t",
    "ALTER VIEW nn RENAME TO mm",
    "ALTER VIEW n RENAME TO default.renamed",
    "SELECT * FROM n",
    "DESCRIBE EXTENDED renamed",
    "DROP TABLE renamed",
    "ALTER VIEW default.renamed RENAME TO n",
    "SELECT * FROM n ORDER BY a",
    "CALL sys.alter_view_dialect('default.v', 'update', 'spark', 'SELECT a FROM t WHERE a = 2')",
    "SELECT * FROM v",
    "DROP VIEW v",
    "DROP VIEW IF EXISTS v",
    "DROP VIEW v",
    "SHOW VIEWS IN default",
)


def test_views(spark: Any, tmp_path: Path) -> None:
    """What both engines keep and show of a jdbc catalog's views, and the rows of queries over them."""
    for table in spark.catalog.listTables():  # SHOW VIEWS lists temporary views, also those of other tests
        if table.isTemporary:
            spark.catalog.dropTempView(table.name)
    lakes = []
    for name, options in (("core", {}), ("spark", {"spark": spark})):
        uri = f"sqlite:///{tmp_path}/{name}.db"
        lakes.append(bitlake.connect(tmp_path / name, catalog="jdbc", uri=uri, **options))
    in_process, on_spark = lakes
    for text in VIEWS:
        here, there = result(in_process, text, "duckdb"), result(on_spark, text, "spark")
        assert here == there, text
    rows = []
    for name in ("core", "spark"):
        with sqlite3.connect(tmp_path / f"{name}.db") as database:
            rows.append(database.execute("SELECT view_name, view_schema FROM paimon_views ORDER BY 1").fetchall())
    assert rows[0] == rows[1] and [name for name, _ in rows[0]] == ["n"]


def test_changes_read_views(spark: Any, tmp_path: Path) -> None:
    """MERGE, UPDATE and DELETE read a catalog's views, and MERGE an earlier snapshot of a table."""
    uri = f"sqlite:///{tmp_path}/names.db"
    lake = bitlake.connect(tmp_path / "lake", spark=spark, catalog="jdbc", uri=uri)
    lake.create_table("t", pa.table({"id": [1, 2, 3], "a": [10, 20, 30]}), primary_key=["id"])
    lake.sql("CREATE VIEW v AS SELECT id, a + 1 AS a FROM t WHERE id > 1", engine="duckdb")

    def changed(text: str, engine: str) -> list[tuple[int, int]]:
        lake.sql(text, engine=engine)
        return [tuple(r.values()) for r in lake.table("t").to_arrow().sort_by("id").to_pylist()]

    for engine in ("duckdb", "spark"):
        merge = "MERGE INTO t USING v ON t.id = v.id WHEN MATCHED THEN UPDATE SET a = v.a"
        assert changed(merge, engine) == [(1, 10), (2, 21), (3, 31)]
        merge = "MERGE INTO t USING t VERSION AS OF 1 AS old ON t.id = old.id WHEN MATCHED THEN UPDATE SET a = old.a"
        assert changed(merge, engine) == [(1, 10), (2, 20), (3, 30)]
    update = "UPDATE t SET a = 0 WHERE id IN (SELECT id FROM v WHERE id = 2)"
    assert changed(update, "spark") == [(1, 10), (2, 0), (3, 30)]
    delete = "DELETE FROM t WHERE EXISTS (SELECT 1 FROM v WHERE v.id = t.id AND v.a > 30)"
    assert changed(delete, "spark") == [(1, 10), (2, 0)]
    for text in ("DELETE FROM v WHERE id = 1", "MERGE INTO v USING t ON v.id = t.id WHEN MATCHED THEN DELETE"):
        with pytest.raises(NotFound, match="table 'default.v' does not exist"):
            lake.sql(text)


def test_the_database_and_settings_are_both_engines(spark: Any, tmp_path: Path) -> None:
    lake = bitlake.connect(tmp_path / "lake", spark=spark)
    zone = spark.conf.get("spark.sql.session.timeZone")
    lake.sql("CREATE DATABASE d", engine="duckdb")
    lake.sql("USE d", engine="duckdb")
    lake.sql("CREATE TABLE k (a INT)", engine="duckdb")
    assert lake.sql("SELECT current_database()").collect()[0][0] == "d" == lake.database
    try:
        lake.sql("SET TIME ZONE 'Asia/Tokyo'", engine="duckdb")
        assert lake.sql("SELECT current_timezone()").collect()[0][0] == "Asia/Tokyo"
        lake.sql("SET spark.sql.session.timeZone = America/New_York")
        at = lake.sql("SELECT TIMESTAMP '2026-01-01 00:00:00' AS at", engine="duckdb").fetchall()[0][0]
        assert at.utcoffset().total_seconds() == -5 * 3600
        lake.sql("SET spark.sql.ansi.enabled = false")
        for text in ("SELECT 1", "DELETE FROM k", "INSERT INTO k SELECT 1"):
            with pytest.raises(BitlakeError, match="'spark.sql.ansi.enabled' = false needs Spark"):
                lake.sql(text, engine="duckdb")
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
        spark.conf.unset("spark.sql.ansi.enabled")
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
