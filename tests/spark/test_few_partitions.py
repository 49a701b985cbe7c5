"""Keyed writes by Spark tasks into a table of many files: each task looks at its own partitions, the driver at none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from caches import forget
from pyspark.sql import SparkSession

import bitlake
from bitlake.mergetree.bucket import LiveBuckets, hash_index_states
from bitlake.mergetree.bucket_assignment import AssignerLayout
from bitlake.mergetree.commit import publish
from bitlake.mergetree.cross_partition import NEW_BUCKET
from bitlake.snapshot import manifests
from bitlake.snapshot import partitions as partition_files
from bitlake.snapshot.index_files import read_hashes
from bitlake.snapshot.state import TableState
from bitlake.spark.runner import dumps, loads
from bitlake.spark.write import primary_key
from bitlake.spark.write.primary_key import AssignJob
from bitlake.table.table import Table
from bitlake.write.data_file_writer import rows_per_file

pytestmark = pytest.mark.spark
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("day", pa.string())])
KINDS = {
    "vectors": {"bucket": "1", "deletion-vectors.enabled": "true"},
    "dynamic": {"dynamic-bucket.target-row-num": "3"},
}


def rows(ids: range, v: str, days: list[str]) -> pa.Table:
    return pa.table([list(ids), [v] * len(ids), [days[i % len(days)] for i in ids]], schema=SCHEMA)


def made(folder: Path, options: dict[str, str]) -> Table:
    lake = bitlake.connect(str(folder))
    table = lake.create_table("t", SCHEMA, partition_by=["day"], primary_key=["id", "day"], options=options)
    table.upsert(rows(range(60), "first", [f"d{i}" for i in range(6)]))
    return table


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many partitions each look at a table's files was for; a look at all of them fails."""
    monkeypatch.setattr(partition_files, "MANY_FILES", 1)
    whole: Callable[..., Any] = TableState.entries
    found: list[int] = []

    def entries(state: TableState, partitions: manifests.PartitionFilter | None = None) -> Any:
        if state.snapshot is not None:
            assert partitions is not None and partitions.rows is not None, "every file of the table is looked at"
            found.append(len(partitions.rows))
        return whole(state, partitions)

    monkeypatch.setattr(TableState, "entries", entries)
    return found


def test_a_task_looks_at_the_partitions_of_its_rows(
    tmp_path: Path, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Spark calls it: rows by partition and bucket, in two batches, of which the second begins in the midst."""
    table = made(tmp_path, {"bucket": "1"})
    table.add_column("x", "INT")
    table.upsert(rows(range(0, 60, 6), "wide", ["d0"]))
    forget()
    asked.clear()
    state = table._core.state()
    job = primary_key.WriteJob(LiveBuckets.of(state, lazy=True), "me", None, grouped=True)
    assert not asked and not job.live.states, "the driver looked at nothing"
    came = pa.concat_tables([rows(range(0, 60, 6), "new", ["d0"]), rows(range(1, 60, 6), "new", ["d1"])])
    came = came.append_column("x", pa.nulls(20, pa.int32())).append_column(NEW_BUCKET, pa.array([0] * 20, pa.int32()))
    error, changes = loads(primary_key._attempt(dumps(job), iter(came.to_batches(max_chunksize=15))))
    assert error is None and len(changes) == 2 and set(asked) <= {1, 2}
    publish(table._core, state, changes, operation="WRITE")
    assert max(asked) == 2, "nor did the commit look at others"
    monkeypatch.undo()
    assert table.scan(where="v = 'new'").count() == 20
    assert table.scan().count() == 60, "old rows of the keys are gone: their sequence numbers were known"


def test_an_assigner_knows_the_buckets_that_are_there(tmp_path: Path, asked: list[int]) -> None:
    state = made(tmp_path, KINDS["dynamic"])._core.state()
    forget()
    asked.clear()
    job = loads(dumps(AssignJob(LiveBuckets.of(state, lazy=True), AssignerLayout.of(state.schema, 1))))
    day = b"".join(sorted({p for p, _ in hash_index_states(state)})[:1])
    known = [b for (p, _), b in hash_index_states(state).items() if p == day]
    assert len(known) > 2
    hashes = [read_hashes(state.table_files, state.schema, b.hashes) for b in known if b.hashes is not None]
    wanted = np.repeat([b.bucket for b in known], [len(h) for h in hashes])
    every = np.concatenate(hashes)
    batch = (pa.array(np.zeros(len(every), np.int32)), pa.array(every), pa.array(["d0"] * len(every)))
    (found,) = job.run(iter([batch]))
    assert found.to_pylist() == wanted.tolist()
    assert not asked, "the index manifest alone names them"


def test_a_file_is_measured_on_the_newest_files(tmp_path: Path, asked: list[int], monkeypatch: Any) -> None:
    """How many rows make a file is asked before each append; a table of many files is not gone through for it."""
    table = bitlake.connect(str(tmp_path)).create_table("t", SCHEMA, partition_by=["day"])
    for day in range(3):
        table.append(rows(range(20_000), "v" * (day + 1), [f"d{day}"]))
    newest = table.scan(where="day = 'd2'").plan().files[0].entry.file
    forget()
    monkeypatch.setattr(manifests, "MANY_ENTRIES", 1)
    assert rows_per_file(table._core.state()) == int((256 << 20) / (newest.file_size / newest.row_count))


@pytest.mark.parametrize("kind", ["vectors", "dynamic"])
def test_on_spark(
    spark: SparkSession, tmp_path: Path, kind: str, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """INSERT and MERGE, with tasks that shuffle; their processes think ten thousand files many, and may look at all."""
    made(tmp_path / "lake", KINDS[kind])
    (tmp_path / "lake/default.db").rename(tmp_path / "lake/moved.db")  # nothing of it is known in this process
    lake = bitlake.connect(str(tmp_path / "lake"), spark=spark)
    monkeypatch.setattr(primary_key, "DRIVER_BYTES", -1)
    new = spark.range(12).selectExpr("id", "'second' AS v", "if(id % 2 = 0, 'd9', 'd1') AS day").repartition(2)
    new.createOrReplaceTempView("few_source")
    lake.sql("INSERT INTO moved.t SELECT * FROM few_source")
    lake.sql(
        "MERGE INTO moved.t USING (SELECT id, v, 'd1' AS day FROM few_source) s ON t.id = s.id AND t.day = s.day "
        "WHEN MATCHED AND t.v = 'second' THEN UPDATE SET v = 'third' WHEN NOT MATCHED THEN INSERT *"
    )
    monkeypatch.undo()
    table = lake.table("moved.t")
    third = table.scan(where="v = 'third'").to_arrow()
    assert sorted(third.column("id").to_pylist()) == [1, 3, 5, 7, 9, 11]
    assert table.scan(where="day = 'd1'").count() == 10 + 4 + 6
    assert table.scan().count() == 60 + 4 + 6 + 6
