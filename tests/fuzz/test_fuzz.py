"""Hundreds of mutations of each format end in a result or in bitlake's own error; run.py tries far more."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from fuzz.mutate import mutate
from fuzz.run import fuzz
from fuzz.targets import TARGETS
from long import long

from bitlake.expressions.tree import Comparison, In, Leaf, Op
from bitlake.fileindex.reader import open_index
from bitlake.fileindex.registry import IndexBuilder, IndexSpec
from bitlake.types import AtomicType, DataField, Root

SLOW = frozenset({"parquet", "orc", "bsi", "parquet-footer"})
"""Half as many mutations."""


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("count", [200, long(400), long(2000)])
def test_mutations_are_survived(name: str, count: int) -> None:
    bugs = [bug for found in fuzz(name, count // 2 if name in SLOW else count, 60.0) for bug in found.bugs]
    # A busy machine may stop a process for a second: a slow mutation must be slow again.
    slow = [b for b in bugs if ": took" in b]
    assert not [b for b in bugs if b not in slow] and len(slow) < 3, "\n".join(bugs[:5])


@pytest.mark.exhaustive
def test_damage_to_a_container_with_checksums_is_never_a_wrong_answer() -> None:
    fields = (DataField(0, "s", AtomicType(Root.VARCHAR, length=9)), DataField(1, "i", AtomicType(Root.BIGINT)))
    rows = 1500
    specs = [IndexSpec("s", "bitmap", {}), IndexSpec("i", "bsi", {}), IndexSpec("i", "range-bitmap", {})]
    builder = IndexBuilder(specs, fields)
    builder.add(pa.table({"s": [f"s{n * 31 % 200}" for n in range(rows)], "i": [n * 7919 % 5000 for n in range(rows)]}))
    good = builder.finish(checksums=True)
    leaves: list[Leaf] = [Comparison("s", Op.EQ, "s7"), Comparison("i", Op.LT, 900), In("s", ("s1", "s2", "none"))]

    def answers(data: bytes) -> list[set[int]]:
        index = open_index(lambda at, n: data[at : at + n], len(data), fields, rows)
        return [set(index.evaluate(leaf).positions(rows).tolist()) for leaf in leaves]

    truth = answers(good)
    assert all(0 < len(t) < rows / 2 for t in truth)
    for number in range(1500):
        broken = mutate(good, random.Random(number), [good])
        for found, wanted in zip(answers(broken), truth, strict=True):
            assert found == wanted or len(found) == rows, f"mutation {number}"
