"""Moments, changes, branches and system tables in SQL."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from answers import rows_of
from long import every, exhaustive

import bitlake
from bitlake.errors import InvalidRequest, NotFound
from bitlake.spark.read import scan as spark_scan
from bitlake.system_tables.tables import TABLES, VIEWS

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def lake(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> bitlake.Lake:
    lake = bitlake.connect(str(tmp_path_factory.mktemp("travel")), spark=spark)
    lake.sql("CREATE TABLE t (id BIGINT, v STRING)")
    for i in range(1, 5):
        lake.sql(f"INSERT INTO t VALUES ({i}, 'v{i}')")
    lake.sql("CREATE TABLE k (id BIGINT NOT NULL, v STRING) TBLPROPERTIES ('primary-key' = 'id', 'bucket' = '2')")
    lake.sql("INSERT INTO k VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    lake.table("k").history.create_tag("before")
    lake.sql("UPDATE k SET v = 'B' WHERE id = 2")
    lake.sql("DELETE FROM k WHERE id = 3")
    lake.table("k").history.create_tag("after")
    table = lake.table("t")
    table.history.create_tag("two", 2)
    table.history.create_tag("3", 1)
    table.history.create_branch("dev", "two")
    return lake


def ask(lake: bitlake.Lake, text: str) -> list[list[Any]]:
    return sorted(rows_of(lake.sql(text)), key=repr)


@pytest.mark.parametrize(
    ("query", "ids"),
    every(
        2,
        [
            ("SELECT id FROM t VERSION AS OF 1", [1]),
            ("SELECT t.id FROM t FOR VERSION AS OF 2 WHERE t.v <> 'v1'", [2]),
            ("SELECT x.id FROM default.t FOR SYSTEM_VERSION AS OF 2 AS x", [1, 2]),
            ("SELECT id FROM t VERSION AS OF 'two'", [1, 2]),
            ("SELECT id FROM t VERSION AS OF '3'", [1]),
            ("SELECT id FROM t VERSION AS OF 3", [1]),  # a tag's name comes first, as in Paimon
            ("SELECT a.id FROM t VERSION AS OF 2 a JOIN t VERSION AS OF 1 b ON a.id = b.id", [1]),
            ("SELECT id FROM t EXCEPT SELECT id FROM t VERSION AS OF 2", [3, 4]),
            ("WITH c AS (SELECT * FROM t VERSION AS OF 1) SELECT id FROM c", [1]),
            ("SELECT id FROM t TIMESTAMP AS OF current_timestamp() + INTERVAL 1 HOUR", [1, 2, 3, 4]),
            ("SELECT id FROM t FOR SYSTEM_TIME AS OF '9999-12-31'", [1, 2, 3, 4]),
            ("SELECT id FROM t TIMESTAMP AS OF DATE '9999-12-31' x WHERE x.id = 1", [1]),
            ("SELECT id FROM t TIMESTAMP AS OF 253402300799", [1, 2, 3, 4]),
            ("SELECT id FROM t TIMESTAMP AS OF TIMESTAMP_NTZ '9999-12-31' x WHERE x.id = 1", [1]),
            ("SELECT id FROM t TIMESTAMP AS OF '9999-12-31'::TIMESTAMP x WHERE x.id = 1", [1]),
            ("SELECT count(*) FROM t VERSION AS OF 1", [1]),
            ("SELECT max(id) FROM t VERSION AS OF 'two'", [2]),
            ("SELECT id FROM `t$branch_dev`", [1, 2]),
            ("SELECT id FROM t@branch_dev", [1, 2]),
            ("SELECT id FROM default.`t$branch_dev` VERSION AS OF 2", [1, 2]),
            ("SELECT id FROM paimon_incremental_query('t', 1, 3)", [2, 3]),
            ("SELECT c.id FROM paimon_incremental_query('default.t', '3', 'two') AS c", [2]),
            ("SELECT id FROM paimon_incremental_between_timestamp('t', '0', '2020-01-01 00:00:00')", []),
            ("SELECT id FROM paimon_incremental_between_timestamp('t', '0', '9999-01-01') WHERE id > 2", [3, 4]),
        ],
    ),
)
def test_moments_and_changes(lake: bitlake.Lake, query: str, ids: list[int]) -> None:
    assert ask(lake, query) == [[i] for i in ids]


def test_a_time_between_two_snapshots(lake: bitlake.Lake) -> None:
    times = [r[0] for r in rows_of(lake.sql("SELECT commit_time FROM `t$snapshots` ORDER BY snapshot_id"))]
    asked = times[1].isoformat(" ")
    there = sum(t <= times[1] for t in times)  # two, unless two commits are of one millisecond
    assert ask(lake, f"SELECT count(*) FROM t TIMESTAMP AS OF '{asked}Z'") == [[there]]
    first, last = (round(times[i].replace(tzinfo=UTC).timestamp() * 1000) for i in (0, 2))
    between = [[i + 1] for i, t in enumerate(times) if times[0] < t <= times[2]]
    assert ask(lake, f"SELECT id FROM paimon_incremental_between_timestamp('t', '{first}', '{last}')") == between


@pytest.mark.parametrize("here", [True, exhaustive(False)])
def test_changes_of_keys(lake: bitlake.Lake, here: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not here:
        monkeypatch.setattr(spark_scan, "DRIVER_ROWS", -1)
    assert ask(lake, "SELECT * FROM paimon_incremental_query('k', 'before', 'after')") == [[2, "B"]]
    log = "SELECT rowkind, id FROM paimon_incremental_query('`k$audit_log`', 'before', 'after') WHERE id > 1"
    assert [r[1] for r in ask(lake, log)] == [2, 3]
    assert ask(lake, "SELECT count(*) FROM `k$audit_log` WHERE rowkind = '+I' AND v = 'a'") == [[1]]
    assert [1, ["a"]] in ask(lake, "SELECT id[0], v FROM `k$binlog`")


def test_system_tables_join_and_filter(lake: bitlake.Lake) -> None:
    text = """
        SELECT t.tag_name, s.commit_kind, f.n
        FROM `t$tags` t JOIN `t$snapshots` s ON t.snapshot_id = s.snapshot_id
        CROSS JOIN (SELECT count(*) AS n FROM `t$files` WHERE level = 0) f
        WHERE s.snapshot_id > 1
    """
    assert ask(lake, text) == [["two", "APPEND", 4]]
    assert ask(lake, "SELECT `t$branches`.branch_name FROM `t$branches`") == [["dev"]]
    assert ask(lake, "SELECT count(*) FROM `t$branch_dev$snapshots`") == [[1]]
    assert ask(lake, "SELECT min(record_count), max(level) FROM `t$files`") == [[1, 0]]
    assert ask(lake, "SELECT snapshot_id FROM `t$snapshots` ORDER BY snapshot_id DESC LIMIT 1") == [[4]]
    assert [r[0] for r in rows_of(lake.sql("DESCRIBE `t$tags`"))][:2] == ["tag_name", "snapshot_id"]


@pytest.mark.parametrize("system", every(4, sorted({*TABLES, *VIEWS})))
def test_every_system_table_joins_in_sql(lake: bitlake.Lake, system: str) -> None:
    rows = lake.table(f"k${system}").scan().to_arrow()
    first = f"`{rows.column_names[0]}`"
    text = f"SELECT count(a.{first}), max(n) FROM `k${system}` a CROSS JOIN (SELECT count(*) AS n FROM k) b"
    wanted = rows.num_rows - rows.column(0).null_count
    assert ask(lake, text) == [[wanted, 2 if rows.num_rows else None]]


def test_metadata_columns(lake: bitlake.Lake) -> None:
    rows = rows_of(lake.sql("SELECT id, __paimon_bucket, __paimon_row_index, __paimon_file_path FROM t"))
    assert [r[:3] for r in sorted(rows)] == [[i, 0, 0] for i in range(1, 5)]
    assert all(Path(r[3]).exists() for r in rows)
    files = "SELECT count(*) FROM t JOIN `t$files` f ON f.file_path = __paimon_file_path"
    assert ask(lake, files) == [[4]]
    assert ask(lake, "SELECT __paimon_partition FROM t WHERE __paimon_row_index = 0 AND id = 1") == [[[]]]


def test_a_branch_is_written_in_sql(lake: bitlake.Lake) -> None:
    lake.sql("CREATE TABLE b (id BIGINT, v STRING)")
    lake.sql("INSERT INTO b VALUES (1, 'main')")
    table = lake.table("b")
    table.history.create_tag("one")
    table.history.create_branch("dev", "one")
    lake.sql("INSERT INTO `b$branch_dev` VALUES (2, 'dev')")
    lake.sql("INSERT INTO b@branch_dev SELECT 3, v FROM b")
    lake.sql("UPDATE `b$branch_dev` SET v = 'changed' WHERE id = 2")
    lake.sql("DELETE FROM `b$branch_dev` WHERE id = 3")
    assert ask(lake, "SELECT * FROM `b$branch_dev`") == [[1, "main"], [2, "changed"]]
    assert ask(lake, "SELECT * FROM b") == [[1, "main"]]


def test_moments_feed_other_statements(lake: bitlake.Lake) -> None:
    lake.sql("CREATE TABLE copy AS SELECT * FROM t VERSION AS OF 2")
    lake.sql("INSERT INTO copy SELECT * FROM paimon_incremental_query('t', 2, 4)")
    assert ask(lake, "SELECT id FROM copy") == [[1], [2], [3], [4]]
    lake.sql("MERGE INTO copy USING (SELECT * FROM t VERSION AS OF 1) s ON copy.id = s.id WHEN MATCHED THEN DELETE")
    lake.sql("WITH w AS (SELECT id FROM t VERSION AS OF 2) DELETE FROM copy WHERE id IN (SELECT id FROM w)")
    assert ask(lake, "SELECT id FROM copy") == [[3], [4]]
    lake.sql("CREATE TEMPORARY VIEW first AS SELECT * FROM t VERSION AS OF 1")
    assert ask(lake, "SELECT id FROM first") == [[1]]
    assert "snapshot" in rows_of(lake.sql("EXPLAIN SELECT * FROM t VERSION AS OF 1"))[0][0]
    assert lake.plans("SELECT * FROM t VERSION AS OF 2")[0].snapshot_id == 2


def test_options_of_the_session(lake: bitlake.Lake) -> None:
    try:
        lake.sql("SET spark.paimon.*.default.t.scan.snapshot-id=1")
        assert ask(lake, "SELECT id FROM t") == [[1]]
        lake.sql("SET spark.paimon.*.*.t.scan.snapshot-id=2")
        lake.sql("RESET spark.paimon.*.default.t.scan.snapshot-id")
        assert ask(lake, "SELECT id FROM t") == [[1], [2]]
        assert len(ask(lake, "SELECT id FROM k")) == 2
        lake.sql("SET spark.paimon.*.*.t.scan.snapshot-id=99")
        with pytest.raises(NotFound, match="the session's options ask for it"):
            lake.sql("SELECT id FROM t")
        lake.sql("RESET spark.paimon.*.*.t.scan.snapshot-id")
        lake.sql("SET spark.paimon.*.*.t.incremental-between=1,2")
        assert ask(lake, "SELECT id FROM t") == [[2]]
    finally:
        lake.sql("RESET")
    assert len(ask(lake, "SELECT id FROM t")) == 4


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("SELECT * FROM t VERSION AS OF 77", NotFound, "has no snapshot 77: snapshots 1 to 4 are kept"),
        (
            "SELECT * FROM t VERSION AS OF 'none'",
            NotFound,
            r"no version 'none': a version is a tag \(its tags: 3, two\)",
        ),
        ("SELECT * FROM t TIMESTAMP AS OF '1970-01-01'", NotFound, "no snapshot as old as 1970"),
        ("SELECT * FROM t TIMESTAMP AS OF 'soon'", InvalidRequest, "soon"),
        ("SELECT * FROM t TIMESTAMP AS OF NULL", InvalidRequest, "is NULL"),
        ("SELECT * FROM t VERSION AS OF", InvalidRequest, "must be followed"),
        ("SELECT * FROM `t$branch_none`", NotFound, "no branch 'none'; its branches: dev"),
        ("SELECT * FROM `t$snapshot`", NotFound, "did you mean snapshots"),
        ("SELECT * FROM paimon_incremental_query('t', 2, 99)", NotFound, "snapshots 1 to 4 are kept"),
        ("SELECT * FROM paimon_incremental_query('t', 3, 2)", InvalidRequest, "an earlier moment"),
        (
            "SELECT * FROM paimon_incremental_to_auto_tag('t', 'two')",
            InvalidRequest,
            "not the name of an automatic tag",
        ),
        ("DELETE FROM t VERSION AS OF 1", InvalidRequest, "the end of the statement"),
        ("INSERT INTO `t$tags` VALUES (1)", InvalidRequest, "can only be read"),
        ("DROP TABLE `t$tags`", NotFound, "does not exist"),
        ("SELECT nothing FROM t VERSION AS OF 1", NotFound, "has columns id, v"),
    ],
)
def test_what_cannot_be_says_so(lake: bitlake.Lake, text: str, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        lake.sql(text)


@pytest.mark.parametrize("zone", ["Asia/Kolkata", "America/New_York"])
@pytest.mark.parametrize("engine", ["spark", "duckdb"])
def test_a_time_as_wall_clock_is_one_of_the_sessions_zone(lake: bitlake.Lake, zone: str, engine: str) -> None:
    spark = lake.spark
    (snapshot,) = (s for s in lake.table("t").history.snapshots() if s.id == 2)
    at = datetime.fromtimestamp(snapshot.time_millis / 1000, UTC)
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        clock = at.astimezone(ZoneInfo(zone)).replace(tzinfo=None).isoformat(" ")
        utc = at.astimezone(UTC).isoformat(" ")
        for time in (f"'{clock}'", f"TIMESTAMP '{clock}'", f"TIMESTAMP_NTZ '{clock}'", f"TIMESTAMP '{utc}'"):
            found = lake.sql(f"SELECT count(*) FROM t TIMESTAMP AS OF {time}", engine=engine)
            rows = found.collect() if engine == "spark" else found.fetchall()
            assert [tuple(row) for row in rows] == [(2,)], time
    finally:
        for name in ("spark.sql.timestampType", "spark.sql.session.timeZone"):
            spark.conf.unset(name)
