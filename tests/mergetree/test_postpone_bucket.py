"""Batch writes of tables with ``bucket`` = -2, which give rows their buckets at once; a dictionary is the model."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from faults import Between
from long import exhaustive, some

import bitlake
from bitlake.file_store_table import FileStoreTable
from bitlake.io.local import LocalStore
from bitlake.mergetree import writer
from bitlake.mergetree.postpone_bucket import schema_with_buckets
from bitlake.table.table import Table

SCHEMA = pa.schema(
    [pa.field("p", pa.string(), nullable=False), pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())]
)


def make(root: Path, **options: str) -> Table:
    given = {k.replace("__", ".").replace("_", "-"): v for k, v in options.items()}
    chosen = {"bucket": "-2", "primary-key": "p,id", **given}
    return bitlake.connect(str(root)).create_table("t", SCHEMA, partition_by=["p"], options=chosen)


def found(table: Table) -> dict[tuple[str, int], int]:
    rows = table.scan().to_arrow().to_pylist()
    out = {(r["p"], r["id"]): r["v"] for r in rows}
    assert len(out) == len(rows)
    return out


def counts(table: Table) -> dict[bytes, set[int]]:
    out: dict[bytes, set[int]] = {}
    for e in table._core.state().entries():
        assert 0 <= e.bucket < e.total_buckets
        out.setdefault(e.partition, set()).add(e.total_buckets)
    return out


@pytest.mark.parametrize("function", ["default", exhaustive("mod")])
def test_rows_are_there_after_the_write(tmp_path: Path, function: str) -> None:
    """Rows of a batch write were postponed whatever ``postpone.batch-write-fixed-bucket`` said."""
    more = {"bucket_key": "id", "bucket_function__type": "mod"} if function == "mod" else {}
    table, model, chance = make(tmp_path, **more), {}, random.Random(7)
    for turn in range(6):
        if turn == 2:  # of partitions that come later
            table.alter_options({"postpone.default-bucket-num": "4"})
        rows = [
            {"p": chance.choice("abcde"[: 1 + turn // 2 * 2]), "id": chance.randrange(60), "v": turn} for _ in range(90)
        ]
        kinds = [chance.choice(["+I", "+U", "-D"]) for _ in rows]
        table.upsert(pa.Table.from_pylist(rows, schema=SCHEMA), kinds)
        for r, kind in zip(rows, kinds, strict=True):
            model.pop((r["p"], r["id"]), None)
            if kind != "-D":
                model[r["p"], r["id"]] = r["v"]
        assert found(table) == model
        assert table.snapshot is not None and table.snapshot.id == turn + 1, "no compaction belongs to such a write"
    assert all(len(each) == 1 for each in counts(table).values())
    assert set.union(*counts(table).values()) == {1, 4}
    table.maintenance.compact(full=True)
    assert found(table) == model and table.maintenance.verify().ok


def test_an_overwrite_keeps_the_number_of_buckets(tmp_path: Path) -> None:
    table = make(tmp_path, postpone__default_bucket_num="3", postpone__batch_write_fixed_bucket__max_parallelism="2")
    rows = pa.table({"p": ["a"] * 40, "id": range(40), "v": range(40)}, schema=SCHEMA)
    table.upsert(rows)
    assert list(counts(table).values()) == [{2}]
    table.alter_options({"postpone.batch-write-fixed-bucket.max-parallelism": "9"})
    table.overwrite(rows.slice(5, 3))
    assert found(table) == {("a", i): i for i in range(5, 8)}
    assert list(counts(table).values()) == [{2}]


def test_rows_wait_if_the_option_says_so(tmp_path: Path) -> None:
    table = make(tmp_path, postpone__batch_write_fixed_bucket="false")
    table.upsert(pa.table({"p": ["a"], "id": [1], "v": [1]}, schema=SCHEMA))
    assert found(table) == {} and {e.bucket for e in table._core.state().entries()} == {-2}
    table.maintenance.compact()
    assert found(table) == {("a", 1): 1}


@pytest.mark.parametrize("step", [4, exhaustive(1)])
def test_a_batch_write_while_postponed_rows_get_their_buckets(tmp_path: Path, step: int) -> None:
    """Both numbered their rows alike: some rows of the batch won, and others lost."""
    options = {"postpone__default_bucket_num": "1", "num_sorted_run__compaction_trigger": "9"}
    ids, seen = list(range(6)), set()
    for number in range(0, 100, step):
        table = make(tmp_path / str(number), postpone__batch_write_fixed_bucket="false", **options)
        table.upsert(pa.table({"p": ["a"] * 6, "id": ids, "v": [1] * 6}, schema=SCHEMA))
        table.alter_options({"postpone.batch-write-fixed-bucket": "true"})
        batch = pa.table({"p": ["a"] * 6, "id": ids[::-1], "v": [2] * 6}, schema=SCHEMA)
        store = Between(LocalStore(), number, lambda table=table, batch=batch: table.upsert(batch))
        Table(FileStoreTable(table.name, table.path, store)).maintenance.compact()
        if not store.done:
            break
        rows = found(table)
        assert len(rows) == 6 and len(set(rows.values())) == 1, f"call {number}: {rows}"
        seen |= set(rows.values())
        table.maintenance.compact(full=True)
        assert found(table) == rows and table.maintenance.verify().ok
        assert not table.maintenance.remove_orphan_files(timedelta(days=-1))
    assert seen == {1, 2}


STATEMENTS: dict[str, Callable[[Table], object]] = {
    "update": lambda table: table.update({"v": 9}, "v = 1"),
    "delete": lambda table: table.delete("v = 1"),
}


@pytest.mark.parametrize(
    ("statement", "waiting", "fixed"),
    some(
        itertools.product(STATEMENTS, ["upserted", "deleted"], ["true", "false"]),
        ("update", "upserted", "true"),
        ("update", "deleted", "false"),
        ("delete", "upserted", "false"),
    ),
)
def test_a_statement_while_postponed_rows_get_their_buckets(
    tmp_path: Path, statement: str, waiting: str, fixed: str
) -> None:
    """Bug: it replaced rows that the compaction made visible, and brought back those that it removed."""
    ids, done = list(range(6)), 0
    seen: list[int] = []

    def compact(table: Table) -> None:
        assert table.snapshot is not None
        seen.append(table.snapshot.id)
        table.maintenance.compact(full=True)

    for number in range(0, 400, 5):
        table = make(tmp_path / str(number), postpone__default_bucket_num="1")
        table.upsert(pa.table({"p": ["a"] * 6, "id": ids, "v": [1] * 6}, schema=SCHEMA))
        table.maintenance.compact(full=True)
        table.alter_options({"postpone.batch-write-fixed-bucket": "false"})
        kinds = pa.repeat(pa.scalar(0 if waiting == "upserted" else 3, pa.int8()), 6)
        table.upsert(pa.table({"p": ["a"] * 6, "id": ids, "v": [2] * 6}, schema=SCHEMA), kinds=kinds)
        table.alter_options({"postpone.batch-write-fixed-bucket": fixed})
        before = table.snapshot
        store = Between(LocalStore(), number, lambda table=table: compact(table))
        STATEMENTS[statement](Table(FileStoreTable(table.name, table.path, store)))
        if not store.done or before is None or seen[-1] != before.id:  # the statement was committed first
            break
        done += 1
        table.maintenance.compact(full=True)
        assert found(table) == ({("a", i): 2 for i in ids} if waiting == "upserted" else {}), f"call {number}"
        assert table.maintenance.verify().ok
    assert done > 3


def test_writers_of_postponed_rows_have_numbers_below_2_to_the_31_less_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paimon draws ``nextInt(Integer.MAX_VALUE)`` and reads the number as an int."""

    class Highest(random.Random):
        def randrange(self, stop: int, *rest: object) -> int:  # type: ignore[override]
            return stop - 1

    monkeypatch.setattr(writer.random, "Random", Highest)
    table = make(tmp_path, postpone__batch_write_fixed_bucket="false")
    table.upsert(pa.table({"p": ["a"], "id": [1], "v": [1]}, schema=SCHEMA))
    (entry,) = table._core.state().entries()
    assert f"-s-{2**31 - 2}-w-" in entry.file.file_name
    assert (entry.file.min_sequence_number, entry.file.max_sequence_number, entry.total_buckets) == (-1, -1, -2)


@pytest.mark.parametrize(
    ("options", "rows", "size", "buckets"),
    [
        ({"postpone.target-row-num-per-bucket": "10"}, (4, 6), 1, 1),
        ({"postpone.target-row-num-per-bucket": "10"}, (5, 6), 1, 2),
        ({"postpone.target-row-num-per-bucket": "10"}, (10, 11), 10**9, 3),
        ({"postpone.target-size-per-bucket": "100 b"}, (5, 6), 50, 1),
        ({"postpone.target-size-per-bucket": "100 b"}, (5, 6), 51, 2),
        ({"postpone.default-bucket-num": "7", "postpone.target-row-num-per-bucket": "10"}, (5, 6), 1, 7),
        ({"postpone.target-row-num-per-bucket": "10"}, (0, 0), 0, 1),
    ],
)
def test_the_number_of_buckets_of_a_new_partition(
    tmp_path: Path, options: dict[str, str], rows: tuple[int, int], size: int, buckets: int
) -> None:
    """By number, else by rows, else by bytes, rounded up; of a partition that has buckets, their number."""
    table = make(tmp_path, postpone__batch_write_fixed_bucket="false")
    table.upsert(pa.table({"p": ["a"], "id": [1], "v": [1]}, schema=SCHEMA))
    (entry,) = table._core.state().entries()
    schema = table.schema.with_options(options)
    files = [replace(entry, file=replace(entry.file, row_count=n, file_size=size)) for n in rows]
    assert schema_with_buckets(schema, entry.partition, files, files).num_buckets == buckets
    other = [replace(e, bucket=0, total_buckets=n, partition=p) for e, n, p in (
        (entry, 3, b"another"), (entry, 5, entry.partition)
    )]  # fmt: skip
    assert schema_with_buckets(schema, entry.partition, files, other).num_buckets == 5
    assert schema_with_buckets(schema, entry.partition, files, other[:1]).num_buckets == buckets
