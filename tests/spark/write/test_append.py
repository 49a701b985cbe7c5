"""Files that Spark writes into a staging folder, where storage fails."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from faults import strays
from store_wrappers import FaultyStore

import bitlake
from bitlake.io.local import LocalStore
from bitlake.snapshot.state import TableState
from bitlake.spark.write.append import SparkWriter

pytestmark = pytest.mark.spark


def test_a_staging_folder_that_cannot_be_deleted_fails_no_write(lake: bitlake.Lake, spark: Any) -> None:
    table = lake.create_table("t", pa.schema([("id", "int64")]))
    state, store = table._core.state(), FaultyStore(LocalStore(), 0, only=frozenset({"delete_dir"}))
    files = SparkWriter(spark, store).write(state, spark.range(10))
    assert store.failed and strays(table)
    table._core.commit_files(state, files, "WRITE")
    table.maintenance.remove_orphan_files(timedelta(0))
    assert not strays(table) and table.count() == 10


@pytest.mark.parametrize("partitions", [[], ["p"]])
def test_files_of_an_attempt_that_was_killed_late_are_not_rows(
    lake: bitlake.Lake, spark: Any, monkeypatch: pytest.MonkeyPatch, partitions: list[str]
) -> None:
    """A second attempt of a task goes on for a while after the job has deleted the folder of attempts."""
    stage = SparkWriter._stage

    def late(self: SparkWriter, state: TableState, prepared: Any, staging: str) -> None:
        stage(self, state, prepared, staging)
        [first, *_] = sorted(Path(staging).rglob("*.parquet"))
        attempt = Path(staging, "_temporary/0/_temporary/attempt_202601010000_0001_m_000000_1")
        target = attempt / first.relative_to(staging)
        target.parent.mkdir(parents=True)
        shutil.copy(first, target)

    monkeypatch.setattr(SparkWriter, "_stage", late)
    table = lake.create_table("t", pa.schema([("id", "int64"), ("p", "int64")]), partition_by=partitions)
    lake.write(spark.range(10).selectExpr("id", "id % 2 AS p"), "t")
    assert sorted(table.to_arrow()["id"].to_pylist()) == list(range(10))
    assert not strays(table)
