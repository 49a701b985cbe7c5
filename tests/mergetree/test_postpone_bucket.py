"""Batch writes of tables with ``bucket`` = -2, which give rows their buckets at once; a dictionary is the model."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

import bitlake
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


@pytest.mark.parametrize("function", ["default", "mod"])
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
