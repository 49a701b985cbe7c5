"""Commits that take place although their caller gets an error or an interrupt: their files must not be deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from caches import forget
from store_wrappers import ResponseLost

import bitlake
from bitlake.errors import StorageUnavailable
from bitlake.io.base import WHOLE_FILE_BYTES
from bitlake.io.local import LocalStore
from bitlake.mergetree import task_writes
from bitlake.table.table import Table
from bitlake.write import commit as commits
from bitlake.write.commit import OutcomeUnknown

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
SNAPSHOTS = "/snapshot/snapshot-"
ONCE = {"commit.max-retries": "0"}


def made(root: Path, **options: str) -> Table:
    given = {"primary-key": "id", **ONCE, **{k.replace("_", "-"): v for k, v in options.items()}}
    return bitlake.connect(str(root)).create_table("t", SCHEMA, options=given)


def rows(*ids: int) -> pa.Table:
    return pa.table([list(ids), [i * 10 for i in ids]], schema=SCHEMA)


def ids(table: Table) -> list[int]:
    forget()
    return sorted(table.scan().with_level_0().to_arrow().column("id").to_pylist())


def lose_response(table: Table, monkeypatch: pytest.MonkeyPatch) -> type[BaseException]:
    """The snapshot is created, and the response gets lost."""
    table._core.store = ResponseLost(SNAPSHOTS)
    return OutcomeUnknown


def interrupt(table: Table, monkeypatch: pytest.MonkeyPatch) -> type[BaseException]:
    """Ctrl-C after the snapshot was created, for example while Iceberg metadata is written."""

    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(commits, "publish_commit", interrupted)
    return KeyboardInterrupt


def back_to_normal(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    table._core.store = LocalStore()


ENDS = pytest.mark.parametrize("end", [lose_response, interrupt])
End = Callable[[Table, pytest.MonkeyPatch], type[BaseException]]


@ENDS
def test_postponed_rows_stay_when_a_compaction_placed_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: End
) -> None:
    table = bitlake.connect(str(tmp_path)).create_table(
        "t", SCHEMA, options={"primary-key": "id", "bucket": "-2", "postpone.batch-write-fixed-bucket": "false", **ONCE}
    )
    table.upsert(rows(1, 2, 3))
    error = end(table, monkeypatch)
    with pytest.raises(error):
        table.maintenance.compact()
    back_to_normal(table, monkeypatch)
    table.maintenance.compact()
    assert ids(table) == [1, 2, 3]


@ENDS
def test_rows_stay_when_a_compaction_merged_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: End) -> None:
    table = made(tmp_path, bucket="1")
    for i in range(3):
        table.upsert(rows(i))
    error = end(table, monkeypatch)
    with pytest.raises(error):
        table.maintenance.compact(full=True)
    back_to_normal(table, monkeypatch)
    assert ids(table) == [0, 1, 2]


@ENDS
def test_the_statistics_file_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: End) -> None:
    lake = bitlake.connect(str(tmp_path))
    table = made(tmp_path, bucket="1")
    table.upsert(rows(1))
    error = end(table, monkeypatch)
    if error is OutcomeUnknown:
        lake._catalog.store = ResponseLost(SNAPSHOTS)
    with pytest.raises(error):
        lake.sql("ANALYZE TABLE t COMPUTE STATISTICS", engine="duckdb")
    back_to_normal(table, monkeypatch)
    assert bitlake.connect(str(tmp_path)).verify("t").ok


@ENDS
def test_repaired_indexes_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: End) -> None:
    options = {"file-index.bitmap.columns": "v", "file-index.in-manifest-threshold": "1 b", **ONCE}
    lake = bitlake.connect(str(tmp_path))
    table = lake.create_table("t", SCHEMA, options=options)
    table.append(rows(1, 2))
    damaged = next(tmp_path.rglob("*.index"))
    damaged.write_bytes(b"\0" * damaged.stat().st_size)
    assert not lake.verify("t").ok
    error = end(table, monkeypatch)
    with pytest.raises(error):
        table.maintenance.repair(dry_run=False)
    back_to_normal(table, monkeypatch)
    latest = table.snapshot
    assert latest is not None and lake.verify("t", snapshots=[latest.id]).ok
    plan = table.scan(where="v = 10").plan()
    assert not plan.problems and plan.files[0].pruned_by


def test_a_job_does_not_fail_when_its_compaction_cannot_read_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are in the table: an error would make the caller write them again."""
    table = made(tmp_path, bucket="1")
    state = table._core.state()
    job = task_writes.TaskJob(state, table._core.publisher(state).user)
    result = task_writes.write_task(job, 0, rows(1, 2).to_batches())

    def fails(*args: Any) -> None:
        raise StorageUnavailable("no answer in time")

    monkeypatch.setattr(task_writes, "entries_of_buckets", fails)
    snapshot = task_writes.commit_tasks(table._core, job, [result])
    assert snapshot is not None and snapshot.id == 1 and ids(table) == [1, 2]


def test_a_created_table_that_another_writer_has_written_to_stays(tmp_path: Path) -> None:
    lake = bitlake.connect(str(tmp_path))

    def batches() -> Iterator[pa.RecordBatch]:
        yield from rows(1).to_batches()
        bitlake.connect(str(tmp_path)).table("t").append(rows(7))
        raise ValueError("no more rows")

    with pytest.raises(ValueError, match="no more rows"):
        lake.create_table("t", pa.RecordBatchReader.from_batches(SCHEMA, batches()))
    assert ids(lake.table("t")) == [7]


def test_create_table_as_keeps_the_table_when_the_response_to_the_commit_gets_lost(tmp_path: Path) -> None:
    lake = bitlake.connect(str(tmp_path))
    lake.create_table("s", SCHEMA).append(rows(1, 2))
    lake._catalog.store = ResponseLost(SNAPSHOTS)
    with pytest.raises(OutcomeUnknown, match="its files are kept"):
        lake.sql("CREATE TABLE t TBLPROPERTIES ('commit.max-retries' = '0') AS SELECT * FROM s", engine="duckdb")
    assert ids(bitlake.connect(str(tmp_path)).table("t")) == [1, 2]


def test_create_table_as_drops_a_table_that_it_cannot_open(tmp_path: Path) -> None:
    lake = bitlake.connect(str(tmp_path))

    class Fails(LocalStore):
        failed = False

        def read(self, path: str, limit: int = WHOLE_FILE_BYTES) -> bytes:
            if path.endswith("/t/schema/schema-0") and not self.failed:
                self.failed = True
                raise StorageUnavailable("no answer in time")
            return super().read(path, limit)

    lake._catalog.store = Fails()
    with pytest.raises(StorageUnavailable, match="no answer in time"):
        lake.sql("CREATE TABLE t AS SELECT 1 AS id", engine="duckdb")
    assert bitlake.connect(str(tmp_path)).tables() == []
