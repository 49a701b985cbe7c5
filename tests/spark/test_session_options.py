"""Options of tables that a session sets, for reading and for writing, from one statement to the next."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from answers import rows_of

import bitlake
from bitlake.errors import InvalidRequest, UnsupportedFeature
from bitlake.spark.session import SessionConf

pytestmark = pytest.mark.spark


@contextmanager
def setting(lake: bitlake.Lake, name: str, value: str) -> Iterator[None]:
    lake.spark.conf.set(name, value)
    try:
        yield
    finally:
        lake.spark.conf.unset(name)


def ids(lake: bitlake.Lake, table: str = "t") -> list[Any]:
    return sorted(r[0] for r in rows_of(lake.sql(f"SELECT id FROM {table}")))


@pytest.fixture
def two_commits(lake: bitlake.Lake) -> bitlake.Lake:
    lake.sql("CREATE TABLE t (id INT, v STRING)")
    table = lake.table("t")
    for number, text in ((1, "a"), (2, "b")):
        table.append(pa.table({"id": pa.array([number], pa.int32()), "v": [text]}))
    return lake


def test_settings_hold_from_the_next_statement_until_they_are_unset(two_commits: bitlake.Lake) -> None:
    # spark.conf.set() after the first statement was ignored, and so was unset(): time travel stayed.
    lake = two_commits
    assert ids(lake) == [1, 2]
    with setting(lake, "spark.paimon.scan.snapshot-id", "1"):
        assert ids(lake) == [1]
    assert ids(lake) == [1, 2]
    with setting(lake, "spark.paimon.paimon.default.t.scan.version", "1"):
        assert ids(lake) == [1]
        with setting(lake, "spark.paimon.paimon.default.t.scan.version", "2"):
            assert ids(lake) == [1, 2]
    assert ids(lake) == [1, 2]


@pytest.mark.parametrize(
    ("name", "literal", "other"),
    [
        ("spark.sql.legacy.consecutiveStringLiterals.enabled", "'it''s'", "'its'"),
        ("spark.sql.parser.escapedStringLiterals", r"'a\\b'", "'ab'"),
    ],
)
def test_settings_that_change_string_literals_are_refused(
    two_commits: bitlake.Lake, name: str, literal: str, other: str
) -> None:
    # DELETE took other rows than Spark's meaning of the literal.
    lake = two_commits
    with setting(lake, name, "true"):
        long = ", ".join([*(f"'other {i}'" for i in range(100)), literal])  # is read without the parser
        for condition in (f"v = {literal}", f"v NOT IN ({long})"):
            with pytest.raises(UnsupportedFeature, match=f"{name}.*set it to false"):
                lake.sql(f"DELETE FROM t WHERE {condition}")
        for statement in (f"DELETE FROM t WHERE v = {literal}", f"SELECT * FROM t WHERE v = {literal}"):
            with pytest.raises(UnsupportedFeature, match=f"{name}.*set it to false"):
                lake.sql(statement)
        lake.sql(f"DELETE FROM t WHERE v = {other} OR v = ''")
    lake.sql(f"DELETE FROM t WHERE v = {literal}")
    assert ids(lake) == [1, 2]


def test_settings_that_come_back_are_not_fetched_again(
    two_commits: bitlake.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each statement after a change of the settings fetched them all: a hundred round trips to the JVM.
    lake, fetched, times = two_commits, SessionConf._fetched, []
    if getattr(lake.spark, "_jsparkSession", None) is None:
        pytest.skip("Spark Connect fetches them for each statement")

    def counted(self: SessionConf) -> Any:
        times.append(self)
        return fetched(self)

    monkeypatch.setattr(SessionConf, "_fetched", counted)
    for snapshot, answer in (("1", [1]), ("2", [1, 2])) * 5:
        with setting(lake, "spark.paimon.scan.snapshot-id", snapshot):
            assert ids(lake) == answer
        assert ids(lake) == [1, 2]
    assert len(times) <= 3


def test_a_session_writes_with_its_options_which_are_not_stored(two_commits: bitlake.Lake) -> None:
    # Write options of the session were ignored.
    lake = two_commits
    folder = Path(lake.path) / "default.db" / "t" / "bucket-0"
    with setting(lake, "spark.paimon.data-file.prefix", "mine-"):
        lake.sql("INSERT INTO t VALUES (3, 'c')")
    assert len(list(folder.glob("mine-*.parquet"))) == 1
    with setting(lake, "spark.paimon.*.default.t.file.format", "orc"):
        lake.sql("INSERT INTO t VALUES (4, 'd')")
        lake.sql("UPDATE t SET v = 'D' WHERE id = 4")
        lake.sql("ALTER TABLE t SET TBLPROPERTIES ('write-only' = 'true')")
    assert len(list(folder.glob("*.orc"))) == 2
    assert lake.table("t").schema.options == {"write-only": "true"}
    lake.sql("INSERT INTO t VALUES (5, 'e')")
    assert len(list(folder.glob("*.orc"))) == 2
    assert ids(lake) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("option", ["bucket", "merge-engine", "deletion-vectors.enabled"])
def test_options_that_the_files_fix_are_refused(two_commits: bitlake.Lake, option: str) -> None:
    # They were not refused.
    value = {"bucket": "4", "merge-engine": "aggregation", "deletion-vectors.enabled": "true"}[option]
    with setting(two_commits, f"spark.paimon.{option}", value):
        for text in ("INSERT INTO t VALUES (3, 'c')", "DELETE FROM t WHERE id = 1", "SELECT count(v) FROM t"):
            with pytest.raises(InvalidRequest, match=f"option '{option}'"):
                two_commits.sql(text).collect()
    assert ids(two_commits) == [1, 2]


def test_a_number_of_buckets_is_the_tables(lake: bitlake.Lake) -> None:
    lake.sql("CREATE TABLE b (id INT) TBLPROPERTIES ('bucket' = '2', 'bucket-key' = 'id')")
    lake.sql("INSERT INTO b VALUES (1)")
    with setting(lake, "spark.paimon.bucket", "3"), pytest.raises(InvalidRequest, match="option 'bucket' is 2"):
        lake.sql("INSERT INTO b VALUES (2)")


def test_the_option_branch_reads_and_writes_a_branch(two_commits: bitlake.Lake) -> None:
    lake = two_commits
    lake.sql("CALL sys.create_branch('t', 'dev')")
    with setting(lake, "spark.paimon.paimon.default.t.branch", "dev"):
        lake.sql("INSERT INTO t VALUES (9, 'on dev')")
        assert ids(lake) == [9]
    assert ids(lake) == [1, 2]
    assert ids(lake, "`t$branch_dev`") == [9]


def test_a_session_may_merge_on_read_beside_deletion_vectors(lake: bitlake.Lake) -> None:
    lake.sql(
        "CREATE TABLE dv (id INT NOT NULL, v STRING) TBLPROPERTIES ('primary-key' = 'id', 'bucket' = '1', "
        "'deletion-vectors.enabled' = 'true', 'write-only' = 'true')"
    )
    lake.sql("INSERT INTO dv VALUES (1, 'a')")
    assert ids(lake, "dv") == []  # level 0 is not seen before it is compacted
    with setting(lake, "spark.paimon.deletion-vectors.merge-on-read", "true"):
        assert ids(lake, "dv") == [1]
    assert ids(lake, "dv") == []


def test_options_of_writing_that_are_not_honoured_are_refused(two_commits: bitlake.Lake) -> None:
    # The columns of the query would land in others than the option asks for.
    name = "spark.paimon.write.hive-style-dynamic-partition.enabled"
    with (
        setting(two_commits, name, "true"),
        pytest.raises(UnsupportedFeature, match="'write.hive-style-dynamic-partition.enabled' = 'true' would not"),
    ):
        two_commits.sql("INSERT INTO t VALUES (3, 'c')")
    with setting(two_commits, name, "false"):
        two_commits.sql("INSERT INTO t VALUES (3, 'c')")
    assert ids(two_commits) == [1, 2, 3]
