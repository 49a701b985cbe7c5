"""bitlake and Paimon (Java) take turns at one table: after every turn both read what a plain dictionary says."""

from __future__ import annotations

import random
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from interop.rows import rows_of

import bitlake

pytestmark = pytest.mark.interop

ARROW = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False),
        pa.field("p", pa.string(), nullable=False),
        ("a", pa.int32()),
        ("t", pa.string()),
    ]
)
VECTORS = {"deletion-vectors.enabled": "true"}
ROUNDS = 10

CASES: dict[str, dict[str, str]] = {
    "vectors": {"bucket": "2", **VECTORS},
    "vectors-64": {"bucket": "1", "deletion-vectors.bitmap64": "true", **VECTORS},
    "vectors-often-compacted": {"bucket": "1", "num-sorted-run.compaction-trigger": "2", **VECTORS},
    "vectors-partitioned": {"bucket": "2", "partition": "p", **VECTORS},
    "merge-on-read": {"bucket": "2"},
    "merge-on-read-often-compacted": {"bucket": "1", "num-sorted-run.compaction-trigger": "2"},
    "indexed": {"bucket": "1", "file-index.bitmap.columns": "a", "file-index.bloom-filter.columns": "t", **VECTORS},
    "partial-update": {"bucket": "1", "merge-engine": "partial-update", **VECTORS},
    "aggregation": {
        "bucket": "1",
        "merge-engine": "aggregation",
        "fields.a.aggregate-function": "sum",
        "fields.t.aggregate-function": "max",
        **VECTORS,
    },
    "lookup-changelog": {"bucket": "1", "changelog-producer": "lookup", **VECTORS},
    "thin": {"bucket": "1", "data-file.thin-mode": "true", **VECTORS},
    "orc": {"bucket": "1", "file.format": "orc", **VECTORS},
}

Model = dict[tuple[Any, ...], tuple[Any, ...]]


def changes(rng: random.Random, model: Model, engine: str, deletes: bool) -> list[tuple[str, tuple[Any, ...]]]:
    """Some upserts and deletes; the model takes them too."""
    out: list[tuple[str, tuple[Any, ...]]] = []
    for k in rng.sample(range(120), rng.randrange(10, 60)):
        p = f"p{k % 3}"
        if deletes and rng.random() < 0.25:
            out.append(("-D", (k, p, None, None)))
            model.pop((k, p), None)
            continue
        a = None if rng.random() < 0.2 else rng.randrange(-100, 100)
        t = None if rng.random() < 0.2 else rng.choice(["x", "y", "zz", "é"]) * rng.randrange(1, 4)
        out.append(("+I", (k, p, a, t)))
        old = model.get((k, p))
        if old is not None and engine == "partial-update":
            a, t = (old[2] if a is None else a), (old[3] if t is None else t)
        elif old is not None and engine == "aggregation":
            a = a if old[2] is None else old[2] if a is None else old[2] + a
            t = t if old[3] is None else old[3] if t is None else max(old[3], t)
        model[k, p] = (k, p, a, t)
    return out


@pytest.mark.parametrize("case", CASES)
def test_ten_rounds_of_taking_turns(java: ModuleType, tmp_path: Path, case: str) -> None:
    options = dict(CASES[case])
    engine = options.get("merge-engine", "deduplicate")
    key = "k,p" if "partition" in options else "k"
    rng, model = random.Random(case), {}
    lake = bitlake.connect(str(tmp_path))
    partition = options.pop("partition", None)
    table = lake.create_table(
        "default.t", ARROW, partition_by=[partition] if partition else [], options={"primary-key": key, **options}
    )
    for turn in range(ROUNDS):
        rows = changes(rng, model, engine, deletes=engine == "deduplicate")
        full = rng.random() < 0.2
        if turn % 2:
            java.write(tmp_path, "default.t", rows, full=full)
        else:
            kinds, values = zip(*rows, strict=True)
            table.upsert(pa.table(list(map(list, zip(*values, strict=True))), schema=ARROW), kinds=list(kinds))
            if full:
                table.maintenance.compact(full=True)
        wanted = sorted(model.values(), key=repr)
        assert sorted(rows_of(table.scan().to_arrow()), key=repr) == wanted, f"{case}, turn {turn}: bitlake"
        assert sorted(java.dump(tmp_path, "default.t"), key=repr) == wanted, f"{case}, turn {turn}: Java"
    if "changelog-producer" in options:
        replayed: Model = {}
        for kind, *row in java.changes(tmp_path, "default.t"):
            if kind in ("+I", "+U"):
                replayed[row[0], row[1]] = tuple(row)
            else:
                assert replayed.pop((row[0], row[1])) == tuple(row), f"{kind} of a row that was not there before"
        assert sorted(replayed.values(), key=repr) == wanted
