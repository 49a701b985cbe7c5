"""Queries, DataFrames and DML whose manifests are decoded in Spark tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from caches import forget

import bitlake
from bitlake.errors import CorruptError, NotFound
from bitlake.scan import task_planning
from bitlake.scan.scan import TableScan
from bitlake.snapshot import manifests
from bitlake.snapshot.partitions import FilesToPlan

OPTION = "read.spark-planning-entries"


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The files that were left by each job of tasks."""
    seen: list[int] = []
    run = task_planning._run

    def counted(*given: Any) -> FilesToPlan | None:
        left = run(*given)
        seen.append(-1 if left is None else len(left.files))
        return left

    monkeypatch.setattr(task_planning, "_run", counted)
    return seen


def filled(lake: bitlake.Lake, name: str = "t", **options: str) -> bitlake.Table:
    schema = pa.schema([("id", pa.int64()), ("p", pa.string())])
    table = lake.create_table(name, schema, partition_by=["p"], options=options)
    for i in range(8):
        table.append(pa.table({"id": [10 * i, 10 * i + 1], "p": ["a" if i % 2 else "b"] * 2}, schema=schema))
    return table


def test_queries_frames_and_statements(lake: bitlake.Lake, jobs: list[int]) -> None:
    table = filled(lake, **{OPTION: "1"})
    forget()
    where = "id BETWEEN 30 AND 41"
    expected = [30, 31, 40, 41]
    for _ in range(2):  # the second query finds the files in the driver's cache
        found = lake.sql(f"SELECT id FROM t WHERE {where} ORDER BY id").toArrow()
        assert found.column("id").to_pylist() == expected and jobs == [2]
    forget()
    frame = table.scan(where=where).to_spark()
    assert sorted(r["id"] for r in frame.collect()) == expected and jobs == [2, 2]
    forget()
    assert lake.sql("SELECT count(*) FROM t WHERE id = 50 AND p > 'a'").collect()[0][0] == 0 and jobs == [2, 2, 0]
    forget()
    text = lake.explain("SELECT id FROM t WHERE id = 50")
    assert "skipped 7 files by statistics; they are not listed" in text and jobs == [2, 2, 0, 1]
    forget()
    assert lake.sql("DELETE FROM t WHERE id = 31").collect()[0][0] == 1 and jobs[4:] == [1]
    forget()
    lake.sql("UPDATE t SET id = 32 WHERE id = 30")
    assert len(jobs) > 5 and 1 in jobs[5:]
    forget()
    assert sorted(r[0] for r in lake.sql(f"SELECT id FROM t WHERE {where}").collect()) == [32, 40, 41]
    before = len(jobs)
    forget()
    # In this process no job runs.
    assert sorted(table.scan(where=where).to_arrow().column("id").to_pylist()) == [32, 40, 41]
    assert pa.table(lake.sql(f"SELECT id FROM t WHERE {where}", engine="duckdb")).num_rows == 3
    assert len(jobs) == before


def test_the_option_of_a_session(lake: bitlake.Lake, jobs: list[int]) -> None:
    filled(lake)
    query = "SELECT id FROM t WHERE id = 50"
    forget()
    assert lake.sql(query).count() == 1 and not jobs
    lake.sql(f"SET `spark.paimon.{OPTION}` = 8")
    try:
        forget()
        assert lake.sql(query).count() == 1 and jobs == [1]
        lake.sql(f"SET `spark.paimon.{OPTION}` = 9")
        forget()
        assert lake.sql(query).count() == 1 and jobs == [1]
    finally:
        lake.sql(f"RESET `spark.paimon.{OPTION}`")


def test_a_merge_and_a_table_with_keys(lake: bitlake.Lake, jobs: list[int]) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
    options = {OPTION: "1", "bucket": "2", "write-only": "true"}
    table = lake.create_table("k", schema, primary_key=["id"], options=options)
    for i in range(6):
        table.upsert(pa.table({"id": [10 * i, 10 * i + 5], "v": [i, i]}, schema=schema))
    table.upsert(pa.table({"id": [20], "v": [77]}, schema=schema))
    forget()
    rows = lake.sql("SELECT id, v FROM k WHERE id BETWEEN 20 AND 30 ORDER BY id").collect()
    assert [tuple(r) for r in rows] == [(20, 77), (25, 2), (30, 3)] and jobs and 0 < jobs[0] < 13
    forget()
    assert lake.sql("SELECT id FROM k WHERE v = 2").collect()[0][0] == 25  # the older version of 20 is not a row
    lake.sql(
        "MERGE INTO k USING (SELECT * FROM VALUES (30, 99), (31, 100) AS s(id, v)) AS s ON k.id = s.id AND k.id > 25 "
        "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *"
    )
    forget()
    rows = lake.sql("SELECT id, v FROM k WHERE id BETWEEN 30 AND 31 ORDER BY id").collect()
    assert [tuple(r) for r in rows] == [(30, 99), (31, 100)]


def test_errors_of_tasks_are_bitlakes_own(lake: bitlake.Lake, jobs: list[int]) -> None:
    table = filled(lake, **{OPTION: "1"})
    state = table._core.state()
    assert state.snapshot is not None
    meta = manifests.snapshot_manifests(state.table_files, state.snapshot)[3]
    path = Path(state.paths.manifest(meta.file_name).removeprefix("file:"))
    data = path.read_bytes()

    def error(kind: type[Exception], spark: bool) -> str:
        forget()
        query = lambda: lake.sql("SELECT id FROM t WHERE id = 50")  # noqa: E731
        with pytest.raises(kind) as raised:
            query() if spark else table.scan(where="id = 50").plan()
        return str(raised.value)

    path.write_bytes(data[:-20] + bytes([data[-20] ^ 1]) + data[-19:])
    assert error(CorruptError, True) == error(CorruptError, False) and jobs == [-1]
    path.unlink()
    assert error(NotFound, True) == error(NotFound, False) and path.name in error(NotFound, True)


def test_scans_are_planned_once(lake: bitlake.Lake, jobs: list[int]) -> None:
    table = filled(lake, **{OPTION: "1"})
    forget()
    scan = table.scan(where="id = 50")
    scan.plan()
    assert scan.to_spark().count() == 1 and not jobs  # the plan was made in this process
    assert isinstance(scan._core, TableScan) and scan._core._executors is None
