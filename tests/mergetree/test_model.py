"""A primary-key table against a dictionary: random writes, deletes, compactions, expiries, switches and reopenings.

Whatever was done, the table reads as the dictionary does, and every kept snapshot as the dictionary was then.
``BITLAKE_MODEL_STEPS`` makes the runs longer (``.ci/run`` takes 300).  Every choice comes from the seed: hypothesis
only cuts a failing run short.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from typing import Any

import pyarrow as pa
import pytest
from caches import forget
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from long import exhaustive, long

import bitlake
from bitlake.merge import sort_merge_reader
from bitlake.merge.sort_merge_reader import MEMORY
from bitlake.snapshot.versions import snapshot_ids

SCHEMA = pa.schema(
    [
        pa.field("k", pa.int32(), nullable=False),
        pa.field("p", pa.string(), nullable=False),
        ("a", pa.int64()),
        ("t", pa.string()),
        ("s", pa.int32()),
    ]
)
KEYS = 60
Row = tuple[Any, ...]
Model = dict[tuple[int, str], Row]

ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "sequence": {"sequence.field": "s"},
    "partial-update": {"merge-engine": "partial-update"},
    "aggregation": {
        "merge-engine": "aggregation",
        "fields.a.aggregate-function": "sum",
        "fields.t.aggregate-function": "max",
    },
    "first-row": {"merge-engine": "first-row"},
}
OPTIONS: list[dict[str, str]] = [
    {},
    {"num-sorted-run.compaction-trigger": "2"},
    {"target-file-size": "4 kb"},
    {"file-index.bitmap.columns": "t", "file-index.range-bitmap.columns": "a"},
    {"data-file.thin-mode": "true"},
    {"file.format": "avro", "file.compression": "zstd"},
    {"deletion-vectors.bitmap64": "true"},
    {"compaction.delete-ratio-threshold": "0.1"},
]


def merged(engine: str, old: Row | None, new: Row) -> Row:
    """What becomes of a key's row; the model in one place."""
    if old is None:
        return new
    k, p, a, t, s = new
    if engine == "first-row":
        return old
    if engine == "sequence":
        return old if old[4] is not None and (s is None or s < old[4]) else new
    if engine == "partial-update":
        return (k, p, *(o if n is None else n for o, n in zip(old[2:], new[2:], strict=True)))
    if engine == "aggregation":
        total = a if old[2] is None else old[2] if a is None else old[2] + a
        most = t if old[3] is None else old[3] if t is None else max(old[3], t)
        return (k, p, total, most, old[4] if s is None else s)
    return new


class PrimaryKeyTable(RuleBasedStateMachine):
    """One table and its dictionary; a subclass for each seed."""

    seed = 0

    def __init__(self) -> None:
        super().__init__()
        self.rng = rng = random.Random(self.seed)
        self.engine = list(ENGINES)[self.seed % len(ENGINES)]
        self.vectors = self.engine != "first-row" and rng.random() < 0.6
        self.partitioned = rng.random() < 0.4
        self.model: Model = {}
        self.kept: dict[int, list[Row]] = {}
        options = {
            "primary-key": "k,p" if self.partitioned else "k",
            "bucket": rng.choice(["1", "2", "-1"]),
            "deletion-vectors.enabled": str(self.vectors).lower(),
            **ENGINES[self.engine],
            **rng.choice(OPTIONS),
            **rng.choice(OPTIONS),
        }
        # Runs are merged in one chunk, or in many.
        sort_merge_reader.MEMORY = random.Random(~self.seed).choice([1, 3_000, MEMORY])
        self.folder = tempfile.mkdtemp()
        lake = bitlake.connect(self.folder)
        by = ["p"] if self.partitioned else []
        self.table = lake.create_table("default.t", SCHEMA, partition_by=by, options=options)

    def teardown(self) -> None:
        try:
            self.reopen()
            for number, rows in self.kept.items():
                assert self.read(number) == rows, f"snapshot {number}, at the end"
        finally:
            sort_merge_reader.MEMORY = MEMORY
            shutil.rmtree(self.folder)

    @rule()
    def step(self) -> None:
        """One random operation, and then what must hold."""
        steps = {
            self.upsert: 8,
            self.mixed_kinds: 4 if self.engine == "deduplicate" else 0,
            self.delete: 3 if self.engine == "deduplicate" else 0,
            self.update: 2 if self.engine == "deduplicate" else 0,
            self.compact: 3,
            self.switch_vectors: 0 if self.engine == "first-row" else 1,
            self.expire: 1,
            self.reopen: 1,
            self.look_back: 3,
            self.filter: 3,
        }
        operation = self.rng.choices(list(steps), list(steps.values()))[0]
        operation()
        wanted = self.wanted()
        assert self.read() == wanted, operation.__name__
        assert self.table.scan().count() == len(wanted), operation.__name__

    # --- what is done to it -------------------------------------------------------------------------------------------

    def upsert(self) -> None:
        rng = self.rng
        rows = [self.random_row() for _ in range(rng.choice([1, 5, 80]))]
        for row in rows:
            key = self.key(row)
            self.model[key] = merged(self.engine, self.model.get(key), row)
        self.table.upsert(self.arrow(rows))
        self.done()

    def mixed_kinds(self) -> None:
        rows = [self.random_row() for _ in range(self.rng.choice([3, 40]))]
        kinds = [self.rng.choice(["+I", "+U", "-D", "-U"]) for _ in rows]
        for row, kind in zip(rows, kinds, strict=True):
            if kind[0] == "+":
                self.model[self.key(row)] = row
            else:
                self.model.pop(self.key(row), None)
        self.table.upsert(self.arrow(rows), kinds=kinds)
        self.done()

    def delete(self) -> None:
        low, value = self.rng.randrange(KEYS), self.rng.randrange(-50, 50)
        self.table.delete(f"k BETWEEN {low} AND {low + 15} AND (a > {value} OR a IS NULL)")
        for key, row in list(self.model.items()):
            if low <= row[0] <= low + 15 and (row[2] is None or row[2] > value):
                del self.model[key]
        self.done()

    def update(self) -> None:
        low = self.rng.randrange(KEYS)
        self.table.update({"t": "updated"}, f"k >= {low} AND s < 10")
        for key, row in self.model.items():
            if row[0] >= low and row[4] is not None and row[4] < 10:
                self.model[key] = (*row[:3], "updated", row[4])
        self.done()

    def compact(self) -> None:
        self.table.maintenance.compact(full=self.rng.random() < 0.5)
        self.done()

    def switch_vectors(self) -> None:
        if self.vectors:
            self.table.maintenance.disable_deletion_vectors()
        else:
            self.table.maintenance.enable_deletion_vectors()
        self.vectors = not self.vectors
        self.done()

    def expire(self) -> None:
        self.table.maintenance.expire_snapshots(
            retain_max=self.rng.randrange(1, 8), retain_min=1, older_than=0, max_deletes=1000
        )
        ids = set(snapshot_ids(self.table._core.state().table_files))
        self.kept = {i: rows for i, rows in self.kept.items() if i in ids}

    def reopen(self) -> None:
        forget()
        self.table = bitlake.connect(self.folder).table("default.t")

    # --- what is asked of it ------------------------------------------------------------------------------------------

    def look_back(self) -> None:
        for number in self.rng.sample(sorted(self.kept), min(3, len(self.kept))):
            assert self.read(number) == self.kept[number], f"snapshot {number}"

    def filter(self) -> None:
        row = self.random_row()
        rows = self.model.values()
        for where, wanted in (
            (f"k = {row[0]}", [r for r in rows if r[0] == row[0]]),
            (f"t = '{row[3]}'", [r for r in rows if r[3] == row[3] and row[3] is not None]),
            (f"a >= {row[2] or 0}", [r for r in rows if r[2] is not None and r[2] >= (row[2] or 0)]),
            ("s IS NULL AND k < 30", [r for r in rows if r[4] is None and r[0] < 30]),
        ):
            assert self.rows(self.table.scan(where=where)) == sorted(wanted, key=repr), where
            assert self.table.scan(where=where).count() == len(wanted), where

    # --- helpers ------------------------------------------------------------------------------------------------------

    def random_row(self) -> Row:
        rng = self.rng
        k = rng.randrange(KEYS)
        p = "xyz"[(k + (rng.randrange(3) if self.partitioned else 0)) % 3]
        a = None if rng.random() < 0.2 else rng.randrange(-50, 50)
        t = None if rng.random() < 0.2 else rng.choice("abcdé") * rng.randrange(3)
        s = None if rng.random() < 0.1 else rng.randrange(20)
        return (k, p, a, t, s)

    def key(self, row: Row) -> tuple[int, str]:
        return (row[0], row[1] if self.partitioned else "")

    def arrow(self, rows: list[Row]) -> pa.Table:
        return pa.table([list(c) for c in zip(*rows, strict=True)], schema=SCHEMA)

    def rows(self, scan: bitlake.Scan) -> list[Row]:
        return sorted(zip(*scan.to_arrow().to_pydict().values(), strict=True), key=repr)

    def read(self, snapshot: int | None = None) -> list[Row]:
        return self.rows(self.table.scan(snapshot=snapshot))

    def wanted(self) -> list[Row]:
        return sorted(self.model.values(), key=repr)

    def done(self) -> None:
        snapshot = self.table.snapshot
        if snapshot is not None:
            self.kept[snapshot.id] = self.wanted()


@pytest.mark.parametrize(
    "seed", range(20) if "BITLAKE_MODEL_STEPS" in os.environ else [0, exhaustive(1), long(2), long(3)]
)
def test_whatever_is_done_the_table_reads_as_the_dictionary(seed: int) -> None:
    machine = type(f"Seed{seed}", (PrimaryKeyTable,), {"seed": seed})
    steps = int(os.environ.get("BITLAKE_MODEL_STEPS", "40"))
    checks = settings(
        max_examples=1,
        stateful_step_count=steps,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=checks)
