"""DELETE FROM on append tables: against a plain model, by every way rows are found and taken out."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from dml_model import OPTIONS, Model
from long import exhaustive, few, long

import bitlake
from bitlake.errors import InvalidRequest, NotFound
from bitlake.spark.dml import delete_update, merge_few, target
from bitlake.spark.read import scan

pytestmark = pytest.mark.spark


def files_of(lake: bitlake.Lake) -> set[str]:
    return {e.file.file_name for e in lake.table("t")._core.state().entries()}


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("where", "name"),
    few(
        itertools.product(["driver", "executors"], OPTIONS),
        *[("driver", "copy-on-write-bucketed"), ("executors", "vectors")],
    ),
)
@pytest.mark.parametrize("turns", [3, long(6)])
def test_random_conditions(
    lake: bitlake.Lake, name: str, where: str, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if where == "executors":
        if "bucketed" in name:
            pytest.skip("the same as without buckets")
        monkeypatch.setattr(scan, "DRIVER_ROWS", -1)
        monkeypatch.setattr(target, "DRIVER_ROWS", -1)
        monkeypatch.setattr(delete_update, "DRIVER_BYTES", 0)
    model = Model(lake, OPTIONS[name], seed=len(name), partitioned=name in ("vectors", "copy-on-write"))
    for turn in range(turns):
        model.delete(model.condition())
        model.check()
        if turn == 1:
            model.append(1000, 20)


def test_vectors_leave_data_files_alone(lake: bitlake.Lake) -> None:
    model = Model(lake, OPTIONS["vectors"], seed=1, partitioned=False)
    before = files_of(lake)
    model.delete("a % 3 = 1")
    model.delete("a IS NULL")
    assert files_of(lake) == before
    snapshot = lake.table("t").snapshot
    assert snapshot is not None and (snapshot.commit_kind, snapshot.operation) == ("OVERWRITE", "DELETE")
    assert snapshot.total_record_count == 120, "deleted rows still count: they are in the files"
    model.check()


def test_whole_files_and_partitions_go_by_metadata(lake: bitlake.Lake) -> None:
    model = Model(lake, OPTIONS["vectors"], seed=2, partitioned=True)
    model.delete("p = 'p'")
    assert not any(b"\x00p" in e.partition for e in lake.table("t")._core.state().entries())
    model.delete("id < 40")
    snapshot = lake.table("t").snapshot
    assert snapshot is not None and snapshot.index_manifest is None, "no row was marked"
    model.check()
    model.delete("true")
    assert files_of(lake) == set()


def test_copy_on_write_rewrites_only_files_with_matches(lake: bitlake.Lake) -> None:
    model = Model(lake, {}, seed=3, partitioned=False)
    before = files_of(lake)
    model.delete("id = 5 OR id % 100 = 7")
    assert len(before & files_of(lake)) == len(before) - 2, "5 and 7 are in one file, 107 in another"
    model.check()


def test_nothing_to_delete_makes_no_snapshot(lake: bitlake.Lake) -> None:
    lake.sql("CREATE TABLE t (a INT) TBLPROPERTIES ('deletion-vectors.enabled' = 'true')")
    assert lake.sql("DELETE FROM t").collect()[0][0] == 0
    lake.sql("INSERT INTO t VALUES (1), (NULL)")
    assert lake.sql("DELETE FROM t AS x WHERE x.a % 2 = 0").collect()[0][0] == 0
    assert lake.table("t")._core.state().snapshot_id == 1
    assert lake.sql("WITH u AS (SELECT 1 AS k) DELETE FROM default.t WHERE a IN (SELECT k FROM u)").collect()[0][0] == 1
    assert lake.sql("DELETE FROM t WHERE default.t.a IS NULL").collect()[0][0] == 1


def test_values_of_deleted_rows_are_not_computed(lake: bitlake.Lake) -> None:
    lake.sql("CREATE TABLE t (a INT) TBLPROPERTIES ('deletion-vectors.enabled' = 'true')")
    lake.sql("INSERT INTO t VALUES (0), (1), (5)")
    with pytest.raises(InvalidRequest, match="(?i)divi"):
        lake.sql("DELETE FROM t WHERE 10 / a > 3")
    lake.sql("DELETE FROM t WHERE a = 0")
    assert lake.sql("DELETE FROM t WHERE 10 / a > 3").collect()[0][0] == 1


def test_what_an_index_answers_starts_no_job(lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(lake, OPTIONS["vectors"], seed=4, partitioned=False)
    rows = model.rows

    def never(*_: Any) -> Any:
        raise AssertionError("Spark was asked")

    monkeypatch.setattr(delete_update, "gather", never)
    monkeypatch.setattr(delete_update, "SparkRunner", lambda _: None)
    count = sum(r[2] == "x" for r in rows)
    assert lake.sql("DELETE FROM t AS target WHERE target.b = 'x'").collect()[0][0] == count
    model.rows = [r for r in rows if r[2] != "x"]
    model.check()


@pytest.mark.parametrize("key", [exhaustive(""), "id"])
def test_rows_of_a_small_table_are_gathered_without_python_workers(
    lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """They took longer to start and to be spoken to than Spark took to find the rows."""
    options = {"deletion-vectors.enabled": "true"} | ({"primary-key": key, "bucket": "2"} if key else {})
    made = ", ".join(f"'{k}' = '{v}'" for k, v in options.items())
    lake.sql(f"CREATE TABLE t (id BIGINT NOT NULL, b STRING) TBLPROPERTIES ({made})")
    lake.sql("INSERT INTO t SELECT id, concat('b', id) FROM range(1000)")
    workers, frame = [], type(lake.spark.range(1))
    plain = frame.mapInArrow

    def counted(*args: Any, **named: Any) -> Any:
        workers.append(1)
        return plain(*args, **named)

    monkeypatch.setattr(frame, "mapInArrow", counted)
    assert lake.sql("DELETE FROM t WHERE pmod(id, 10) = 7").collect()[0][0] == 100
    if not key:
        monkeypatch.setattr(merge_few, "MOST_ROWS", -1)
        source = "(SELECT id, 'new' AS b FROM range(20)) AS s"
        merged = f"MERGE INTO t USING {source} ON t.id = s.id WHEN MATCHED THEN UPDATE SET *"
        assert lake.sql(merged).collect()[0][0] == 18, "7 and 17 were deleted"
        assert lake.sql("SELECT count(*), max(id) FROM t WHERE b = 'new'").collect() == [(18, 19)]
    assert workers == []
    monkeypatch.setattr(target, "DRIVER_ROWS", 999)  # one less than the table's files have
    assert lake.sql("DELETE FROM t WHERE pmod(id, 10) IN (6, 7)").collect()[0][0] == 100
    assert workers == [1]
    assert [r[0] for r in lake.sql("SELECT id FROM t ORDER BY 1").collect()] == [
        i for i in range(1000) if i % 10 not in (6, 7)
    ]


def test_a_concurrent_delete_of_the_same_rows_is_done_once(lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two writers find the same rows; the second commits later, and finds them gone."""
    lake.sql("CREATE TABLE t (a INT) TBLPROPERTIES ('deletion-vectors.enabled' = 'true')")
    lake.sql("INSERT INTO t VALUES (1), (2), (3), (4)")
    plain, others = delete_update.condition_hits, [1]

    def late(of: Any, condition: str | None) -> Any:
        hits = plain(of, condition)
        if others:
            others.pop()
            assert lake.table("t").delete("a <= 2") == 2
        return hits

    monkeypatch.setattr(delete_update, "condition_hits", late)
    assert lake.sql("DELETE FROM t WHERE a <= 3").collect()[0][0] == 1
    assert lake.sql("SELECT a FROM t").collect() == [(4,)]


def test_mistakes(lake: bitlake.Lake) -> None:
    lake.sql("CREATE TABLE t (a INT)")
    with pytest.raises(NotFound, match="(?s)nope.*has columns a"):
        lake.sql("DELETE FROM t WHERE nope = 1")
    with pytest.raises(NotFound, match="missing"):
        lake.sql("DELETE FROM missing")
