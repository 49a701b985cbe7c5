"""Statements of Delta Lake and Iceberg: which of bitlake's they become, and what is refused."""

from __future__ import annotations

import re
from typing import Any

import pytest

from bitlake import _clock
from bitlake.errors import BitlakeError, InvalidRequest, UnsupportedFeature
from bitlake.sql import statements as st
from bitlake.sql.parser import parse_statement
from bitlake.sql.text import SqlText, TableName
from bitlake.sql.time_travel import take_relations


def _call(name: str, **named: Any) -> st.Call:
    return st.Call(f"sys.{name}", named=named)


ZORDER = {"order_strategy": "zorder", "order_by": "a,b"}


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("OPTIMIZE db.t", _call("compact", table="db.t")),
        (
            "OPTIMIZE t WHERE day > '2024-01-01' ZORDER BY (a, b)",
            _call("compact", table="t", where="day > '2024-01-01'", **ZORDER),
        ),
        ("OPTIMIZE `my t` ZORDER BY a, b", _call("compact", table="`my t`", **ZORDER)),
        ("VACUUM t", st.Vacuum(TableName(None, "t"), 168)),
        ("VACUUM db.t RETAIN 0.5 HOURS DRY RUN", st.Vacuum(TableName("db", "t"), 0.5, True)),
        (
            "CALL system.expire_snapshots('db.t', TIMESTAMP '2021-06-30 00:00:00.000', 100)",
            _call("expire_snapshots", table="db.t", older_than="2021-06-30 00:00:00.000", retain_min=100),
        ),
        (
            "CALL bitlake.system.rewrite_data_files(table => 't', strategy => 'sort', sort_order => 'zorder(a, b)')",
            _call("compact", table="t", **ZORDER),
        ),
        (
            "CALL system.rewrite_data_files(table => 't', sort_order => 'a ASC NULLS FIRST, b', where => 'p = 1')",
            _call("compact", table="t", where="p = 1", order_strategy="order", order_by="a,b"),
        ),
        ("CALL system.rewrite_data_files('t', 'binpack')", _call("compact", table="t")),
        ("CALL system.rewrite_manifests('t', false)", _call("compact_manifest", table="t")),
        (
            "CALL system.remove_orphan_files(table => 't', dry_run => true, max_concurrent_deletes => 4)",
            _call("remove_orphan_files", table="t", dry_run=True),
        ),
        (
            "CALL system.compute_table_stats(table => 't', columns => array('a', 'b'))",
            _call("analyze", table="t", columns="a,b"),
        ),
        # Not a statement of Delta's: the table is called history.
        ("DESCRIBE HISTORY", st.Describe(TableName(None, "HISTORY"))),
        ("DESCRIBE DETAIL", st.Describe(TableName(None, "DETAIL"))),
        ("OPTIMIZE spark_catalog.db.t", st.Other("OPTIMIZE spark_catalog.db.t")),
    ],
)
def test_statements_of_others_are_ours(text: str, made: Any) -> None:
    assert parse_statement(text) == made


def test_snapshots_expire_after_five_days_as_in_iceberg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_clock, "now_ms", lambda: 1_700_000_000_000)
    assert parse_statement("CALL system.expire_snapshots('t')") == _call(
        "expire_snapshots", table="t", older_than="2023-11-09 22:13:20+00:00", retain_min=None
    )


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (
            "RESTORE TABLE db.t TO VERSION AS OF 3",
            UnsupportedFeature,
            "RESTORE TABLE db.t keeps the later snapshots, and bitlake has no such statement. CALL sys.rollback(table "
            "=> 'db.t', snapshot => 3) makes the snapshot the latest one and deletes those after it; INSERT OVERWRITE "
            "db.t SELECT * FROM db.t VERSION AS OF 3 writes its rows again and keeps the history",
        ),
        (
            "RESTORE t TO TIMESTAMP AS OF '2024-01-01'",
            UnsupportedFeature,
            "SELECT * FROM t TIMESTAMP AS OF '2024-01-01'",
        ),
        ("RESTORE t VERSION AS OF 3", InvalidRequest, "expected TO but found 'VERSION'"),
        (
            "CALL system.rollback_to_snapshot('db.t', 4)",
            UnsupportedFeature,
            "CALL sys.rollback(table => 'db.t', snapshot => 4)",
        ),
        (
            "CALL system.rollback_to_timestamp('t', TIMESTAMP '2021-06-30')",
            UnsupportedFeature,
            "CALL sys.rollback_to_timestamp(table => 't', timestamp => '2021-06-30')",
        ),
        (
            "CALL system.set_current_snapshot(table => 't', ref => 'x')",
            UnsupportedFeature,
            "(table => 't', version => 'x')",
        ),
        (
            "CALL system.fast_forward('db.t', 'main', 'b')",
            UnsupportedFeature,
            "CALL sys.fast_forward(table => 'db.t', ",
        ),
        (
            "CALL system.migrate('db.t')",
            UnsupportedFeature,
            "CALL sys.migrate_table(source_type => 'parquet', table => 'db.t')",
        ),
        ("CALL system.ancestors_of('db.t')", UnsupportedFeature, "DESCRIBE HISTORY db.t lists the snapshots"),
        (
            "CALL system.expire_snapshot('t')",
            InvalidRequest,
            "has no counterpart in bitlake; did you mean expire_snapshots",
        ),
        ("CALL system.expire_snapshots('t', foo => 1)", InvalidRequest, "no argument 'foo'"),
        ("CALL system.rewrite_data_files('t', 'sort')", InvalidRequest, "needs a sort_order"),
        ("CALL system.rewrite_data_files('t', 'sort', 'a DESC')", UnsupportedFeature, "sort_order = 'a DESC'"),
        ("CALL system.remove_orphan_files(table => 't', location => 'x')", UnsupportedFeature, "takes no 'location'"),
        ("DESCRIBE DETAIL db.t", UnsupportedFeature, "DESCRIBE EXTENDED db.t shows the folder"),
        ("CONVERT TO DELTA parquet.`/x`", UnsupportedFeature, "CALL sys.migrate_table(source_type => 'parquet'"),
        (
            "GENERATE symlink_format_manifest FOR TABLE t",
            UnsupportedFeature,
            "sys.create_iceberg_metadata(table => 't')",
        ),
        (
            "CREATE TABLE a SHALLOW CLONE db.t",
            UnsupportedFeature,
            "CREATE TABLE a AS SELECT * FROM db.t copies the rows, and CALL sys.create_branch(table => 'db.t', branch",
        ),
        ("create or replace table a clone t version as of 3", UnsupportedFeature, "CREATE TABLE a AS SELECT * FROM t"),
        ("REORG TABLE t APPLY (PURGE)", UnsupportedFeature, "CALL sys.compact(table => 't')"),
        ("FSCK REPAIR TABLE t DRY RUN", UnsupportedFeature, "CALL sys.verify(table => 't')"),
        (
            "ALTER TABLE t ADD PARTITION FIELD bucket(4, id)",
            UnsupportedFeature,
            "PARTITIONED BY (…) AS SELECT * FROM t",
        ),
        ("ALTER TABLE t WRITE ORDERED BY id;", UnsupportedFeature, "CALL sys.compact(table => 't', order_strategy"),
        ("ALTER TABLE t SET IDENTIFIER FIELDS id", UnsupportedFeature, "TBLPROPERTIES ('primary-key' = '…')"),
        ("ALTER TABLE db.t CREATE BRANCH b", UnsupportedFeature, "sys.create_branch(table => 'db.t', branch => 'b')"),
        ("ALTER TABLE t DROP BRANCH b", UnsupportedFeature, "CALL sys.delete_branch(table => 't', branch => 'b')"),
        ("ALTER TABLE t DROP TAG v1", UnsupportedFeature, "ALTER TABLE t DELETE TAG v1"),
        (
            "ALTER TABLE db.t CLUSTER BY (a, b)",
            UnsupportedFeature,
            "CALL sys.compact(table => 'db.t', order_strategy => 'zorder', order_by => 'a,b') sorts the rows",
        ),
        (
            "CREATE TABLE t (a INT) USING delta CLUSTER BY (a)",
            UnsupportedFeature,
            "CALL sys.compact(table => 't', order_",
        ),
        ("CREATE TABLE t CLUSTER BY (a) AS SELECT 1 AS a", UnsupportedFeature, "CALL sys.compact(table => 't', order_"),
        ("ALTER TABLE t DROP FEATURE deletionVectors", UnsupportedFeature, "ALTER TABLE t SET TBLPROPERTIES"),
        ("VACUUM t RETAIN many HOURS", InvalidRequest, "RETAIN many HOURS: expected a number of hours"),
        ("VACUUM t RETAIN -1 HOURS", InvalidRequest, "HOURS: expected a number of hours"),
        ("VACUUM t RETAIN 1e999 HOURS", InvalidRequest, "HOURS: expected a number of hours"),
    ],
)
def test_what_is_refused_names_the_statement_to_use(text: str, kind: type[BitlakeError], message: str) -> None:
    with pytest.raises(kind, match=re.escape(message)):
        parse_statement(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "SELECT * FROM db.t@v3 WHERE a = 1",
            "'db.t@v3' is Delta Lake's way to name a version. In bitlake, SELECT * FROM",
        ),
        (
            "SELECT * FROM db.t@v3 AS x",
            "SELECT * FROM db.t VERSION AS OF 3 reads a snapshot (their numbers begin with 1)",
        ),
        ("SELECT 1 FROM a JOIN `my t`@V12 USING (b)", "SELECT * FROM `my t` VERSION AS OF 12"),
        ("SELECT * FROM t@20240601123456000", "SELECT * FROM t TIMESTAMP AS OF '2024-06-01 12:34:56'"),
        (
            "SELECT * FROM table_changes('db.t', 2, 5)",
            "SELECT * FROM paimon_incremental_query('db.t', 3, 7) returns the rows added after snapshot 3, up to 7, "
            "and paimon_incremental_query('db.`t$audit_log`', 3, 7) also deleted ones",
        ),
        ("SELECT * FROM a, TABLE_CHANGES('t', '2024-06-01') AS c", "paimon_incremental_query('t', 3, 7)"),
    ],
)
def test_versions_and_changes_of_delta_name_bitlakes_way(text: str, message: str) -> None:
    with pytest.raises(UnsupportedFeature, match=re.escape(message)):
        take_relations(SqlText(text), lambda _: True)


@pytest.mark.parametrize("text", ["SELECT 'table_changes(1)', 't@v3' FROM t", "SELECT table_changes FROM t@branch_v3"])
def test_text_and_names_like_deltas_are_left_alone(text: str) -> None:
    assert take_relations(SqlText(text), lambda _: True)[1] == {}
