"""``(a, b) IN ((1, 2), …)`` over tables: the rows that brute force finds, with and without indexes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from long import every

import bitlake

ROWS = 600
INDEXES: list[dict[str, str]] = [
    {},
    {"file-index.bitmap.columns": "a,s"},
    {"file-index.bloom-filter.columns": "a,c,s"},
    {"file-index.bsi.columns": "c", "file-index.range-bitmap.columns": "s"},
]
Row = tuple[Any, ...]


def rows(seed: int, count: int = ROWS) -> list[Row]:
    rng = random.Random(seed)

    def some(least: int, most: int) -> int | None:
        return None if rng.random() < 0.1 else rng.randint(least, most)

    return [
        (i, some(i // 10, i // 10 + 5), some(0, 40), None if rng.random() < 0.1 else f"k{rng.randint(0, 30)}")
        for i in range(count)
    ]


def arrow(held: list[Row]) -> pa.Table:
    schema = pa.schema([("id", pa.int32()), ("a", pa.int32()), ("c", pa.int64()), ("s", pa.string())])
    return pa.table(dict(zip(schema.names, zip(*held, strict=True), strict=True)), schema)


def literal(name: str, value: Any) -> str:
    if value is None:
        return f"CAST(NULL AS { {'a': 'INT', 'c': 'BIGINT', 's': 'STRING'}[name] })"
    return f"'{value}'" if name == "s" else f"{value}L" if name == "c" else str(value)


def condition(names: str, tuples: list[Row], negated: bool = False) -> str:
    listed = ", ".join(f"({', '.join(map(literal, names, t))})" for t in tuples)
    return f"({', '.join(names)}) {'NOT ' * negated}IN ({listed})"


def expected(held: list[Row], names: str, tuples: list[Row], negated: bool = False) -> list[int]:
    places, wanted = ["_acs".index(n) for n in names], set(tuples)
    return [row[0] for row in held if (tuple(row[p] for p in places) in wanted) != negated]


def asked(held: list[Row], names: str, count: int, seed: int) -> list[Row]:
    """Tuples of which a few are rows' own."""
    rng, places = random.Random(seed), ["_acs".index(n) for n in names]
    own = [tuple(row[p] for p in places) for row in rng.sample(held, min(count, 9))]
    others = [tuple(rng.choice(held)[p] for p in places) for _ in range(count - len(own))]
    return rng.sample(own + others, count)


@pytest.mark.parametrize("options", every(2, INDEXES), ids=[" ".join(o.values()) for o in INDEXES])
def test_rows_with_indexes(tmp_path: Path, options: dict[str, str]) -> None:
    held = rows(1)
    table = bitlake.connect(str(tmp_path)).create_table("t", arrow(held).schema, options=options)
    for start in range(0, ROWS, 200):
        table.append(arrow(held[start : start + 200]))
    for seed, (names, count, negated) in enumerate(
        (names, count, negated)
        for names in ("ac", "as", "acs", "cs")
        for count in (1, 3, 30, 200)
        for negated in (0, 1)
    ):
        tuples = asked(held, names, count, seed)
        where = condition(names, tuples, bool(negated))
        found = table.scan(columns=["id"], where=where).to_arrow().column("id").to_pylist()
        assert found == expected(held, names, tuples, bool(negated)), where
