"""Keyed writes by Spark tasks into a table of many files: each looks at its own buckets, the driver at none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from caches import forget
from long import exhaustive, long
from made_entries import made_entries
from pyspark.sql import SparkSession

import bitlake
from bitlake.mergetree.bucket import LiveBuckets, hash_index_states
from bitlake.mergetree.bucket_assignment import AssignerLayout
from bitlake.mergetree.commit import publish
from bitlake.mergetree.cross_partition import NEW_BUCKET
from bitlake.metadata.manifest import EntryKind
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


@pytest.mark.parametrize("kind", ["vectors", exhaustive("dynamic")])
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


ANYWHERE = {
    "fixed": {"bucket": "4"},
    "dynamic": {"bucket": "-1", "dynamic-bucket.target-row-num": "15"},
    "vectors": {"bucket": "4", "deletion-vectors.enabled": "true"},
    "across": {"bucket": "-1", "dynamic-bucket.target-row-num": "15"},
    "across, vectors": {"bucket": "-1", "deletion-vectors.enabled": "true"},
    "across, partial-update": {"bucket": "-1", "merge-engine": "partial-update"},
    "across, first-row": {"bucket": "-1", "merge-engine": "first-row"},
}
"""Tables without partitions, and tables whose keys are unique across partitions."""


def made_anywhere(lake: bitlake.Lake, kind: str) -> Table:
    parts = ["day"] if kind.startswith("across") else []
    table = lake.create_table("t", SCHEMA, partition_by=parts, primary_key=["id"], options=ANYWHERE[kind])
    for _ in range(2):
        table.upsert(rows(range(60), "first", ["d0", "d1", "d2"]))
    return table


@pytest.mark.parametrize("kind", ["fixed", "vectors", "dynamic"])
def test_a_task_looks_at_the_buckets_of_its_rows(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Spark calls it: rows by bucket, in batches of which one begins in the midst of a bucket."""
    table = made_anywhere(bitlake.connect(str(tmp_path)), kind)
    at = table.scan(["id", "__paimon_bucket"]).to_arrow().to_pydict()
    bucket_of = dict(zip(at["id"], at["__paimon_bucket"], strict=True))
    chosen = sorted(set(bucket_of.values()))[1:3]
    monkeypatch.setattr(partition_files, "MANY_FILES", 1)
    monkeypatch.setattr(manifests, "COLUMNAR_ENTRIES", 1)
    forget()
    state = table._core.state()
    assert state.snapshot is not None
    metas = manifests.snapshot_manifests(state.table_files, state.snapshot)
    every = [e for of_one in manifests.read_manifests(state.table_files, metas) for e in of_one]
    # Deleted ones become objects, and those of their names, to find what is deleted.
    live = {e.file.file_name for e in every} - {e.file.file_name for e in every if e.kind is EntryKind.DELETE}
    forget()
    made = made_entries(monkeypatch)

    def objects() -> set[int]:
        return {e.bucket for e in made if e.file.file_name in live}

    job = primary_key.WriteJob(LiveBuckets.of(state), "me", None, grouped=True)
    sent = dumps(job)
    assert not objects() and not job.live.states, "the driver looked at nothing"
    assert b"ManifestEntry" not in sent and len(sent) < 5_000
    came = pa.concat_tables([rows(range(60), "new", ["d9"]).take(keys_in(bucket_of, b)) for b in chosen])
    buckets = [b for b in chosen for _ in keys_in(bucket_of, b)]
    came = came.append_column(NEW_BUCKET, pa.array(buckets, pa.int32()))
    error, changes = loads(primary_key._attempt(sent, iter(came.to_batches(max_chunksize=7))))
    assert error is None and [c.bucket for c in changes] == chosen
    assert objects() == set(chosen)
    publish(table._core, state, changes, operation="WRITE")
    assert objects() == set(chosen), "nor did the commit look at others"
    monkeypatch.undo()
    assert table.scan(where="v = 'new'").count() == len(buckets) == came.num_rows
    assert table.scan().count() == 60, "old rows of the keys are gone: their sequence numbers were known"


def keys_in(bucket_of: dict[int, int], bucket: int) -> list[int]:
    return [key for key in range(60) if bucket_of[key] == bucket]


# Tables with deletion vectors take the paths of those without, too.
@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", [long(k) if k in ("fixed", "across") else k for k in ANYWHERE])
def test_keys_that_may_be_anywhere(
    spark: SparkSession, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INSERT, UPDATE, DELETE, MERGE and compaction end as in a dictionary, and no entry is sent to a task."""
    lake = bitlake.connect(str(tmp_path), spark=spark)
    table = made_anywhere(lake, kind)
    model = {i: ("first", f"d{i % 3}") for i in range(60)}
    monkeypatch.setattr(partition_files, "MANY_FILES", 1)
    monkeypatch.setattr(manifests, "COLUMNAR_ENTRIES", 1)
    monkeypatch.setattr(primary_key, "DRIVER_BYTES", -1)
    sent = list[bytes]()

    def dumped(value: Any) -> bytes:
        sent.append(dumps(value))
        return sent[-1]

    monkeypatch.setattr(primary_key, "dumps", dumped)
    for turn in range(2):
        new = {i + 25 * turn: (f"t{turn}", f"d{(i + turn) % 4}") for i in range(50)}
        source = f"id + {25 * turn} AS id", f"'t{turn}' AS v", f"concat('d', (id + {turn}) % 4) AS day"
        spark.range(50).selectExpr(*source).repartition(2).createOrReplaceTempView("anywhere_source")
        lake.sql("INSERT INTO t SELECT * FROM anywhere_source")
        for key, (v, day) in new.items():
            old = model.get(key)
            first, partial = kind.endswith("first-row"), kind.endswith("partial-update")
            model[key] = old if old and first else (v, old[1] if old and partial else day)
        if "update" not in kind and "first" not in kind:
            lake.sql(f"UPDATE t SET v = 'updated' WHERE id % 5 = {turn}")
            lake.sql(f"DELETE FROM t WHERE id % 7 = {turn}")
            lake.sql(
                "MERGE INTO t USING (SELECT id + 10 AS id, day FROM anywhere_source) s ON t.id = s.id "
                "WHEN MATCHED THEN UPDATE SET v = 'merged' WHEN NOT MATCHED THEN INSERT (id, v, day) "
                "VALUES (s.id, 'inserted', s.day)"
            )
            model = {k: ("updated", d) if k % 5 == turn else (v, d) for k, (v, d) in model.items() if k % 7 != turn}
            for key, (_, day) in new.items():
                known = model.get(key + 10)
                model[key + 10] = ("merged", known[1]) if known else ("inserted", day)
        if turn:
            lake.table("t").maintenance.compact(full=True)
        found = lake.sql("SELECT id, v, day FROM t").collect()
        assert sorted(map(tuple, found)) == sorted((k, v, d) for k, (v, d) in model.items())
    assert sent and not any(b"ManifestEntry" in call for call in sent)
    assert table.scan().count() == len(model)
